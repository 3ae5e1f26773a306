//! What went wrong with a request to the blob service.

use std::{error::Error as StdError, fmt, sync::Arc};

use lazuli_model::fault::Fault;

use super::tries::fault_of;
use crate::error::ArmError;
use lazuli_vhd::life::Problem;

/// A request to a blob service that failed. Cheap to clone. It never holds a key, a signature or a query.
#[derive(Debug, Clone)]
pub struct BlobError(Arc<Inner>);

#[derive(Debug, Clone)]
struct Inner {
    fault: Fault,
    /// The method, and the address without its query.
    what: String,
    status: Option<u16>,
    code: String,
    message: String,
    request_id: Option<String>,
    client_request_id: Option<String>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

/// The ids of a request, and what lies behind the failure, count for nothing.
impl PartialEq for BlobError {
    fn eq(&self, other: &Self) -> bool {
        let told = |Inner { fault, what, status, code, message, .. }: &Inner| {
            (fault.clone(), what.clone(), *status, code.clone(), message.clone())
        };
        told(&self.0) == told(&other.0)
    }
}

/// The longest text of an answer that is kept, in characters.
const LONGEST_MESSAGE: usize = 300;

impl BlobError {
    /// A failure that the service did not speak of.
    pub(super) fn ours(fault: Fault, what: impl Into<String>, message: impl Into<String>) -> Self {
        Self(Arc::new(Inner {
            fault,
            what: what.into(),
            status: None,
            code: String::new(),
            message: message.into(),
            request_id: None,
            client_request_id: None,
            source: None,
        }))
    }

    fn with(self, change: impl FnOnce(&mut Inner)) -> Self {
        let mut inner = Arc::unwrap_or_clone(self.0);
        change(&mut inner);
        Self(Arc::new(inner))
    }

    pub(super) fn caused_by(self, source: impl StdError + Send + Sync + 'static) -> Self {
        self.with(|inner| inner.source = Some(Arc::new(source)))
    }

    /// With what an answer says.
    pub(super) fn answered(self, status: u16, code: &str, body: &[u8]) -> Self {
        self.with(|inner| {
            inner.status = Some(status);
            inner.code = code.chars().take(LONGEST_MESSAGE).collect();
            if let Some(message) = message(status, code, body) {
                inner.message = message;
            }
        })
    }

    pub(super) fn with_ids(self, request_id: Option<String>, client_request_id: Option<String>) -> Self {
        let clip = |id: Option<String>| id.map(|id| id.chars().take(LONGEST_MESSAGE).collect());
        self.with(|inner| {
            inner.request_id = clip(request_id);
            inner.client_request_id = clip(client_request_id);
        })
    }

    /// The same failure as this problem.
    pub(super) fn sorted(self, problem: &Problem) -> Self {
        self.with(|inner| inner.fault = fault_of(problem))
    }

    /// What a caller may do about it.
    pub fn fault(&self) -> &Fault {
        &self.0.fault
    }

    /// The service's `x-ms-error-code`, or the resource manager's code where it gave no keys; empty where Azure gave none.
    pub fn code(&self) -> &str {
        self.by_manager().map_or(&self.0.code, |error| &error.code)
    }

    /// The answer of the resource manager, where it gave no keys.
    pub fn by_manager(&self) -> Option<&ArmError> {
        self.0.source.as_ref()?.downcast_ref()
    }
}

/// The service's words. None of a refusal of the signature, which may quote it.
fn message(status: u16, code: &str, body: &[u8]) -> Option<String> {
    if code.eq_ignore_ascii_case("AuthenticationFailed") {
        return Some(
            "the service does not take the signature; does this machine's clock tell the right time?".to_owned(),
        );
    }
    let is_of_the_signature = matches!(status, 401 | 403) || code.to_ascii_lowercase().contains("auth");
    // The lines below hold the id of the request and the time.
    let message = element(body, "Message").filter(|_| !is_of_the_signature)?.lines().next()?.trim().to_owned();
    (!message.is_empty()).then_some(message)
}

/// The text of an element of a refusal's body, clipped.
pub(super) fn element(body: &[u8], name: &str) -> Option<String> {
    let text = String::from_utf8_lossy(body);
    let inner = text.split(&format!("<{name}>")).nth(1)?.split("</").next()?;
    Some(inner.chars().take(LONGEST_MESSAGE).collect())
}

impl fmt::Display for BlobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = &*self.0;
        write!(f, "{}: ", inner.what)?;
        if let Some(status) = inner.status {
            write!(f, "{status} ")?;
        }
        let words = [inner.code.as_str(), inner.message.as_str()];
        let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
        match words.is_empty() {
            true => f.write_str("the blob service gave no reason")?,
            false => f.write_str(&words.join(": "))?,
        }
        let ids = [("request id", &inner.request_id), ("client request id", &inner.client_request_id)];
        let ids: Vec<String> =
            ids.into_iter().filter_map(|(name, id)| id.as_ref().map(|id| format!("{name} {id}"))).collect();
        if !ids.is_empty() {
            write!(f, " ({})", ids.join(", "))?;
        }
        Ok(())
    }
}

impl StdError for BlobError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_ref().map(|source| &**source as &(dyn StdError + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_the_services_words_and_ids() {
        let body = b"<?xml version=\"1.0\"?><Error><Code>BlobAlreadyExists</Code><Message>The specified blob already exists.\n\
                     RequestId:1\nTime:2</Message></Error>";
        let error = BlobError::ours(Fault::Malformed, "PUT https://a1.blob.x/c/d", "")
            .answered(409, "BlobAlreadyExists", body)
            .with_ids(Some("r-1".to_owned()), Some("c-1".to_owned()))
            .sorted(&Problem::Exists);
        assert_eq!((error.fault(), error.code()), (&Fault::Conflict, "BlobAlreadyExists"));
        assert_eq!(
            error.to_string(),
            "PUT https://a1.blob.x/c/d: 409 BlobAlreadyExists: The specified blob already exists. (request id r-1, \
             client request id c-1)"
        );
    }

    #[test]
    fn a_refusal_of_the_signature_is_not_quoted() {
        let body = b"<Error><Message>The MAC signature 'c2VjcmV0' is not the same</Message></Error>";
        for (status, code) in [(403, "AuthenticationFailed"), (403, ""), (400, "InvalidAuthenticationInfo"), (401, "")]
        {
            let error = BlobError::ours(Fault::Malformed, "GET x", "").answered(status, code, body);
            assert!(!format!("{error} {error:?}").contains("c2Vjcm"), "{error:?}");
        }
    }
}
