//! What went wrong with a call to Azure, for the program and for the reader.
//!
//! The program looks at [`Failure::fault`] and [`Failure::effect`]; the reader gets what was done to what, Azure's
//! own words, and the ids that Azure's support asks for. The fault rests on status, codes and target, never on the
//! text. Nothing here ever holds a token, a key or the query of a URL.

use std::{error::Error as StdError, fmt, ops::Deref, sync::Arc, time::Duration};

use http::HeaderMap;
use lazuli_model::{
    ArmId, chain,
    fault::{Answer, Effect, Fault, classify},
};
use lazuli_quota::read::By;
use serde_json::Value;

/// What a request does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verb {
    /// Reads.
    Get,
    /// Makes or replaces.
    Put,
    /// Changes in part.
    Patch,
    /// Acts.
    Post,
    /// Deletes.
    Delete,
}

impl Verb {
    /// The HTTP method.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Post => "POST",
            Self::Delete => "DELETE",
        }
    }

    /// Whether Azure may be different afterwards.
    pub fn writes(self) -> bool {
        self != Self::Get
    }

    pub(crate) fn method(self) -> http::Method {
        match self {
            Self::Get => http::Method::GET,
            Self::Put => http::Method::PUT,
            Self::Patch => http::Method::PATCH,
            Self::Post => http::Method::POST,
            Self::Delete => http::Method::DELETE,
        }
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One of Azure's further reasons.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Detail {
    /// Its code.
    pub code: String,
    /// Its words.
    pub message: String,
    /// What it is about.
    pub target: Option<String>,
}

/// A call that failed. Cheap to clone, for one failed write may have many callers.
#[derive(Clone)]
pub struct ArmError(Arc<Failure>);

/// What is known of a call that failed.
#[derive(Debug, Clone)]
pub struct Failure {
    /// What the caller may do about it.
    pub fault: Fault,
    /// Whether Azure may have been changed all the same.
    pub effect: Effect,
    /// What was done.
    pub verb: Verb,
    /// To what: the path, without the query.
    pub resource: String,
    /// The HTTP status of the answer; 200 when an operation failed late; `None` without an answer.
    pub status: Option<u16>,
    /// Azure's `error.code`; empty when Azure gave none.
    pub code: String,
    /// Azure's `error.message`, or ours when Azure said nothing.
    pub message: String,
    /// Azure's `error.target`.
    pub target: Option<String>,
    /// Azure's `error.details`.
    pub details: Vec<Detail>,
    /// Azure's `error.innererror.internalErrorCode`.
    pub inner_code: Option<String>,
    /// The service's id of the request: `x-ms-request-id`.
    pub request_id: Option<String>,
    /// `x-ms-correlation-request-id`.
    pub correlation_id: Option<String>,
    /// The id this client gave the request.
    pub client_request_id: Option<String>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

/// The longest text of an answer that is kept: a proxy's error page is a book.
const LONGEST_MESSAGE: usize = 1_000;

/// A longer run of characters is no word, and is cut.
const LONGEST_WORD: usize = 64;

/// Azure's error object, wherever it was found.
#[derive(Debug, Default)]
pub(crate) struct AzureError {
    code: String,
    message: String,
    target: Option<String>,
    details: Vec<Detail>,
    inner_code: Option<String>,
}

impl AzureError {
    /// Reads the error object of an answer or of a failed operation: `{"error":{…}}`, or the object bare, as compute
    /// throttling answers it.
    pub(crate) fn read(value: &Value) -> Self {
        let error = value.get("error").filter(|e| e.is_object()).unwrap_or(value);
        let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(|text| clip(text).to_owned());
        let details = error.get("details").and_then(Value::as_array);
        Self {
            code: text(error, "code").unwrap_or_default(),
            message: text(error, "message").unwrap_or_default(),
            target: text(error, "target"),
            details: details
                .into_iter()
                .flatten()
                .map(|detail| Detail {
                    code: text(detail, "code").unwrap_or_default(),
                    message: text(detail, "message").unwrap_or_default(),
                    target: text(detail, "target"),
                })
                .collect(),
            inner_code: error
                .get("innererror")
                .and_then(|inner| text(inner, "internalErrorCode").or_else(|| text(inner, "code"))),
        }
    }
}

impl AzureError {
    /// An answer that is no JSON: a proxy's page, for example.
    pub(crate) fn text(text: &str) -> Self {
        Self { message: clip(text.trim()).to_owned(), ..Self::default() }
    }

    /// A failure of which only a word is known.
    pub(crate) fn code(code: String) -> Self {
        Self { code, ..Self::default() }
    }
}

/// At most so many characters, and no half word where a whole one ends near.
fn clip(text: &str) -> &str {
    match text.char_indices().nth(LONGEST_MESSAGE) {
        Some((end, _)) => {
            let head = &text[..end];
            let is_inside = !text[end..].starts_with(char::is_whitespace);
            let word = head.rfind(char::is_whitespace).filter(|at| is_inside && end - at <= LONGEST_WORD);
            word.map_or(head, |at| &head[..at])
        }
        None => text,
    }
}

impl Failure {
    /// A failure that Azure did not speak of.
    pub(crate) fn ours(fault: Fault, effect: Effect, verb: Verb, resource: &str, message: impl Into<String>) -> Self {
        Self {
            fault,
            effect,
            verb,
            resource: resource.to_owned(),
            status: None,
            code: String::new(),
            message: message.into(),
            target: None,
            details: Vec::new(),
            inner_code: None,
            request_id: None,
            correlation_id: None,
            client_request_id: None,
            source: None,
        }
    }

    /// The failed read of something that another service of Azure has.
    pub fn elsewhere(fault: Fault, resource: &str, message: impl Into<String>) -> Self {
        Self::ours(fault, Effect::None, Verb::Get, resource, message)
    }

    /// A whole list lacks the resource. Azure was not asked for the resource itself.
    pub(crate) fn unlisted(list: &str) -> Self {
        Self::ours(Fault::NotFound, Effect::None, Verb::Get, list, "the list lacks the resource")
    }

    /// Which read has shown that the resource does not exist: one of the resource alone, or a list that lacks it and may be
    /// old.
    pub fn by(&self) -> By {
        if self.fault == Fault::NotFound && self.status.is_none() { By::List } else { By::Single }
    }

    pub(crate) fn caused_by(mut self, source: impl StdError + Send + Sync + 'static) -> Self {
        self.source = Some(Arc::new(source));
        self
    }

    /// A failure from Azure's answer: an error status, or an operation that failed late.
    pub(crate) fn answered(
        verb: Verb,
        resource: &str,
        status: u16,
        error: AzureError,
        retry_after: Option<Duration>,
        effect: Effect,
    ) -> Self {
        let answer = Answer {
            status,
            code: &error.code,
            details: error.details.iter().map(|detail| detail.code.as_str()).collect(),
            inner: error.inner_code.as_deref(),
            target: error.target.as_deref(),
            retry_after,
        };
        let mut fault = classify(&answer);
        if let Fault::AttachedElsewhere { holder } = &mut fault {
            *holder = vm_named(&error);
        }
        Self {
            status: Some(status),
            code: error.code,
            target: error.target,
            details: error.details,
            inner_code: error.inner_code,
            ..Self::ours(fault, effect, verb, resource, error.message)
        }
    }

    /// Takes the ids from an answer's headers.
    pub(crate) fn with_ids(mut self, headers: &HeaderMap) -> Self {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(|id| clip(id).to_owned());
        self.request_id = text("x-ms-request-id");
        self.correlation_id = text("x-ms-correlation-request-id");
        self
    }

    pub(crate) fn with_client_request_id(mut self, id: &str) -> Self {
        self.client_request_id = Some(id.to_owned());
        self
    }
}

/// The VM that an error names in a field of its own; its text is never searched.
fn vm_named(error: &AzureError) -> Option<ArmId> {
    error
        .details
        .iter()
        .filter_map(|detail| detail.target.as_deref())
        .chain(error.target.as_deref())
        .filter_map(|target| target.parse::<ArmId>().ok())
        .find(|id| {
            id.is_type("Microsoft.Compute/virtualMachines")
                || id.is_type("Microsoft.Compute/virtualMachineScaleSets/virtualMachines")
        })
}

impl From<Failure> for ArmError {
    fn from(failure: Failure) -> Self {
        Self(Arc::new(failure))
    }
}

impl Deref for ArmError {
    type Target = Failure;

    fn deref(&self) -> &Failure {
        &self.0
    }
}

impl fmt::Debug for ArmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for ArmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: ", self.verb, self.resource)?;
        match self.status {
            Some(200..=299) => f.write_str("the operation failed: ")?,
            Some(status) => write!(f, "{status} ")?,
            None => {}
        }
        let words = [self.code.as_str(), self.message.as_str()];
        let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
        if words.is_empty() {
            f.write_str("Azure gave no reason")?;
        } else {
            f.write_str(&words.join(": "))?;
        }
        for detail in &self.details {
            let words = [detail.code.as_str(), detail.message.as_str()];
            let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
            if !words.is_empty() {
                write!(f, "; {}", words.join(": "))?;
            }
        }
        let ids = [
            ("target", &self.target),
            ("request id", &self.request_id),
            ("correlation id", &self.correlation_id),
            ("client request id", &self.client_request_id),
        ];
        let ids: Vec<String> =
            ids.into_iter().filter_map(|(name, id)| id.as_ref().map(|id| format!("{name} {id}"))).collect();
        if !ids.is_empty() {
            write!(f, " ({})", ids.join(", "))?;
        }
        Ok(())
    }
}

impl ArmError {
    /// The answer to a question about an operation as the end of the write that began it: Azure may have done a part of it.
    pub(crate) fn of_write(self, verb: Verb, resource: &str) -> Self {
        let resource = resource.to_owned();
        Failure { verb, resource, effect: Effect::Possible, ..Arc::unwrap_or_clone(self.0) }.into()
    }

    /// The same failure, of work that may have changed Azure by another call.
    #[must_use]
    pub fn after_a_change(self) -> Self {
        Failure { effect: Effect::Possible, ..Arc::unwrap_or_clone(self.0) }.into()
    }

    /// The same failure as another fault.
    pub(crate) fn resorted(self, fault: Fault) -> Self {
        Failure { fault, ..Arc::unwrap_or_clone(self.0) }.into()
    }

    /// The error with its causes, such as why there is no token, for a log line.
    pub fn with_causes(&self) -> String {
        chain(self)
    }
}

impl StdError for ArmError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_ref().map(|source| &**source as &(dyn StdError + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn failure(status: u16, body: Value) -> ArmError {
        let error = AzureError::read(&body);
        Failure::answered(Verb::Put, "/subscriptions/s", status, error, None, Effect::None).into()
    }

    #[test]
    fn an_error_says_what_was_done_to_what_and_carries_azures_ids() {
        let body = json!({"error": {"code": "Conflict", "message": "Busy.", "target": "disk",
            "details": [{"code": "Deeper", "message": "Why."}]}});
        let mut headers = HeaderMap::new();
        headers.insert("x-ms-request-id", "r-1".parse().unwrap());
        headers.insert("x-ms-correlation-request-id", "c-1".parse().unwrap());
        let failure =
            Failure::answered(Verb::Put, "/subscriptions/s/disks/d", 409, AzureError::read(&body), None, Effect::None)
                .with_ids(&headers)
                .with_client_request_id("ours");
        assert_eq!(failure.fault, Fault::Conflict);
        assert_eq!(
            ArmError::from(failure).to_string(),
            "PUT /subscriptions/s/disks/d: 409 Conflict: Busy.; Deeper: Why. (target disk, request id r-1, \
             correlation id c-1, client request id ours)"
        );
    }

    #[test]
    fn throttling_without_an_envelope_is_read_too() {
        let error = failure(
            429,
            json!({"code": "OperationNotAllowed", "message": "too many",
                "details": [{"code": "TooManyRequests", "target": "HighCostGet30Min", "message": "{}"}],
                "innererror": {"internalErrorCode": "TooManyRequestsReceived"}}),
        );
        assert_eq!(error.fault, Fault::Throttled { retry_after: None });
        assert_eq!(error.details[0].target.as_deref(), Some("HighCostGet30Min"));
    }

    #[test]
    fn the_vm_that_holds_a_disk_is_taken_from_a_field_and_never_from_the_text() {
        let vm = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/other";
        let disk = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/d";
        let text = failure(
            409,
            json!({"error": {"code": "ConflictingUserInput", "target": disk,
                "message": format!("Cannot attach the disk d because it is already attached to VM {vm}.")}}),
        );
        assert_eq!(text.fault, Fault::AttachedElsewhere { holder: None });
        let field = failure(
            409,
            json!({"error": {"code": "ConflictingUserInput", "target": disk,
                "details": [{"code": "x", "message": "", "target": vm}]}}),
        );
        assert_eq!(field.fault, Fault::AttachedElsewhere { holder: Some(vm.parse().unwrap()) });
    }

    #[test]
    fn a_long_answer_is_clipped_on_a_character() {
        let error = failure(500, json!({"error": {"code": "x", "message": "ä".repeat(5_000)}}));
        assert_eq!(error.message.chars().count(), LONGEST_MESSAGE);
        let regions = "westeurope, ".repeat(500);
        let error = failure(400, json!({"error": {"code": "x", "message": regions}}));
        assert!(error.message.ends_with("westeurope,"), "{}", error.message);
    }
}
