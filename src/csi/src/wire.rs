//! What the services of both drivers read from requests and write into answers in the same way.

use std::pin::Pin;

use csi_proto::csi::CapacityRange;
use lazuli_model::fault::Code;
use tonic::{Response, Status};

use crate::server::status;

/// A future on the heap.
pub(crate) type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Runs a request on the heap: the futures of whole operations are large, and one lies in every connection's task.
pub(crate) fn boxed<'a, T>(
    future: impl Future<Output = Result<T, Status>> + Send + 'a,
) -> Boxed<'a, Result<Response<T>, Status>> {
    Box::pin(async move { future.await.map(Response::new) })
}

/// A text that must not be empty.
pub(crate) fn required<'a>(name: &str, value: &'a str) -> Result<&'a str, Status> {
    if value.is_empty() {
        return Err(status(Code::InvalidArgument, format!("{name} is missing in the request")));
    }
    Ok(value)
}

/// The status of a call that the driver does not offer.
pub(crate) fn unsupported(rpc: &str) -> Status {
    status(Code::Unimplemented, format!("{rpc} is not offered by this driver"))
}

/// `(required_bytes, limit_bytes)`; zero is "not given".
pub(crate) fn range(wire: Option<&CapacityRange>) -> (i64, i64) {
    wire.map_or((0, 0), |range| (range.required_bytes, range.limit_bytes))
}

/// A size as the protocol counts it.
pub(crate) fn wire_bytes(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
