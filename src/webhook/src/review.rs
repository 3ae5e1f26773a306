//! AdmissionReview, version v1 of `admission.k8s.io`, as far as it is read and answered.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use lazuli_storage::admission::Patch;
use serde::Deserialize;
use serde_json::{Value, json};

const API_VERSION: &str = "admission.k8s.io/v1";
const KIND: &str = "AdmissionReview";

/// Longer warnings may be cut by the API server (source: the documentation of admission webhooks).
const LONGEST_WARNING: usize = 256;

/// What the API server asks.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Request {
    uid: String,
    /// `CREATE`, `UPDATE`…
    pub(crate) operation: String,
    #[serde(default)]
    pub(crate) object: Value,
    #[serde(default)]
    pub(crate) old_object: Value,
}

impl Request {
    /// Reads a review.
    ///
    /// # Errors
    /// A sentence, when it is none of version v1.
    pub(crate) fn parse(body: &[u8]) -> Result<Self, String> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Review {
            api_version: String,
            kind: String,
            request: Option<Request>,
        }
        let review: Review = serde_json::from_slice(body).map_err(|error| format!("the body is no {KIND}: {error}"))?;
        if review.api_version != API_VERSION || review.kind != KIND {
            return Err(format!(
                "the body is of kind {} of {}; expected {KIND} of {API_VERSION}",
                review.kind, review.api_version
            ));
        }
        review.request.ok_or_else(|| format!("the {KIND} has no request"))
    }
}

/// What the API server hears.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Answer {
    pub(crate) changes: Vec<Patch>,
    /// Why the request is refused; `None` admits it.
    pub(crate) refusal: Option<String>,
    /// For the person who asks.
    pub(crate) warning: Option<String>,
}

impl Answer {
    pub(crate) fn changed(changes: Vec<Patch>) -> Self {
        Self { changes, ..Self::default() }
    }

    pub(crate) fn refused(why: String) -> Self {
        Self { refusal: Some(why), ..Self::default() }
    }

    pub(crate) fn admitted_with(warning: String) -> Self {
        Self { warning: Some(warning), ..Self::default() }
    }

    /// The review with its response.
    pub(crate) fn to_json(&self, request: &Request) -> Value {
        let mut response = json!({"uid": request.uid, "allowed": self.refusal.is_none()});
        if let Some(message) = &self.refusal {
            // The code and the reason of what validation refuses.
            response["status"] = json!({"code": 422, "reason": "Invalid", "message": message});
        }
        if !self.changes.is_empty() {
            let patch: Vec<Value> = self.changes.iter().map(Patch::to_json).collect();
            response["patchType"] = "JSONPatch".into();
            response["patch"] = STANDARD.encode(Value::from(patch).to_string()).into();
        }
        if let Some(warning) = &self.warning {
            let end = warning.char_indices().nth(LONGEST_WARNING).map_or(warning.len(), |(end, _)| end);
            response["warnings"] = json!([warning[..end]]);
        }
        json!({"apiVersion": API_VERSION, "kind": KIND, "response": response})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> Request {
        let body = json!({"apiVersion": API_VERSION, "kind": KIND, "request": {
            "uid": "u-1", "operation": "UPDATE", "object": {"a": 1}, "oldObject": null, "dryRun": false,
        }});
        Request::parse(body.to_string().as_bytes()).expect("is a review")
    }

    #[test]
    fn a_review_of_another_version_or_without_a_request_is_refused_with_a_sentence() {
        assert_eq!((request().object, request().old_object), (json!({"a": 1}), Value::Null));
        for (body, words) in [
            ("", "no AdmissionReview"),
            ("[]", "no AdmissionReview"),
            (
                r#"{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview","request":{}}"#,
                "no AdmissionReview",
            ),
            (
                r#"{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview"}"#,
                "kind AdmissionReview of admission.k8s.io/v1beta1; expected",
            ),
            (r#"{"apiVersion":"admission.k8s.io/v1","kind":"Status"}"#, "kind Status of"),
            (r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}"#, "has no request"),
        ] {
            let error = Request::parse(body.as_bytes()).expect_err(body);
            assert!(error.contains(words), "{body}: {error}");
        }
    }

    #[test]
    fn an_answer_has_the_uid_of_its_request_and_a_patch_only_with_changes() {
        let response = |answer: &Answer| answer.to_json(&request())["response"].clone();
        assert_eq!(response(&Answer::default()), json!({"uid": "u-1", "allowed": true}));
        let changed = Answer::changed(vec![Patch::Remove { path: "/spec/azureDisk".to_owned() }]);
        let patch = STANDARD.encode(r#"[{"op":"remove","path":"/spec/azureDisk"}]"#);
        assert_eq!(
            response(&changed),
            json!({"uid": "u-1", "allowed": true, "patchType": "JSONPatch", "patch": patch})
        );
        let refused = Answer::refused("it is too large".to_owned());
        assert_eq!(
            response(&refused),
            json!({"uid": "u-1", "allowed": false,
                "status": {"code": 422, "reason": "Invalid", "message": "it is too large"}})
        );
        let warned = Answer::admitted_with("é".repeat(300));
        assert_eq!(response(&warned)["warnings"], json!(["é".repeat(LONGEST_WARNING)]));
    }
}
