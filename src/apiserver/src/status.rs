//! Refusals, in the words of kube-apiserver. Source of codes and reasons: `k8s.io/apimachinery/pkg/api/errors`.

use serde_json::{Value, json};

use crate::{Refused, resource::Resource};

impl Refused {
    /// The `Status` object of the answer.
    pub(crate) fn object(&self) -> Value {
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code,
        })
    }
}

pub(crate) fn bad_request(message: impl Into<String>) -> Refused {
    Refused { code: 400, reason: "BadRequest", message: message.into() }
}

pub(crate) fn no_such_path() -> Refused {
    Refused { code: 404, reason: "NotFound", message: "the server could not find the requested resource".to_owned() }
}

pub(crate) fn unknown_kind(plural: &str) -> Refused {
    Refused { code: 404, reason: "NotFound", message: format!("the server does not know the collection {plural:?}") }
}

pub(crate) fn not_found(resource: &Resource, name: &str) -> Refused {
    Refused { code: 404, reason: "NotFound", message: format!("{} {name:?} not found", resource.qualified()) }
}

pub(crate) fn already_exists(resource: &Resource, name: &str) -> Refused {
    Refused { code: 409, reason: "AlreadyExists", message: format!("{} {name:?} already exists", resource.qualified()) }
}

pub(crate) fn conflict(resource: &Resource, name: &str, why: &str) -> Refused {
    let message = format!("Operation cannot be fulfilled on {} {name:?}: {why}", resource.qualified());
    Refused { code: 409, reason: "Conflict", message }
}

/// What the writer of an older version is told.
pub(crate) const MODIFIED: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

pub(crate) fn invalid(resource: &Resource, name: &str, why: &str) -> Refused {
    Refused { code: 422, reason: "Invalid", message: format!("{} {name:?} is invalid: {why}", resource.kind) }
}

pub(crate) fn expired(asked: u64, oldest: u64) -> Refused {
    Refused { code: 410, reason: "Expired", message: format!("too old resource version: {asked} ({oldest})") }
}

pub(crate) fn token_expired() -> Refused {
    let message = "The provided continue parameter is too old to display a consistent list result.".to_owned();
    Refused { code: 410, reason: "Expired", message }
}

pub(crate) fn too_new(asked: u64, head: u64) -> Refused {
    let message = format!("Too large resource version: {asked}, current: {head}");
    Refused { code: 504, reason: "Timeout", message }
}

pub(crate) fn method_not_allowed() -> Refused {
    let message = "the server does not allow this method on the requested resource".to_owned();
    Refused { code: 405, reason: "MethodNotAllowed", message }
}

pub(crate) fn unsupported_media(kind: &str) -> Refused {
    let message = format!(
        "the body of the request was in an unsupported format {kind:?} - accepted media types include: \
         application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json"
    );
    Refused { code: 415, reason: "UnsupportedMediaType", message }
}
