//! What went wrong with a request to the blob service.

use std::{error::Error as StdError, fmt, sync::Arc};

use lazuli_model::fault::Fault;

/// A request to a blob service that failed. Cheap to clone. It never holds a key, a signature or a query.
#[derive(Debug, Clone)]
pub struct BlobError(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    fault: Fault,
    code: String,
}

impl BlobError {
    /// What a caller may do about it.
    pub fn fault(&self) -> &Fault {
        &self.0.fault
    }

    /// The service's `x-ms-error-code`; empty where it gave none.
    pub fn code(&self) -> &str {
        &self.0.code
    }
}

impl fmt::Display for BlobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

impl StdError for BlobError {}
