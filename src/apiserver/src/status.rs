//! Refusals, in the words of kube-apiserver. Source of codes and reasons: `k8s.io/apimachinery/pkg/api/errors`.

use serde_json::{Value, json};

use crate::{Refused, patch, resource::Resource};

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

fn media(message: String) -> Refused {
    Refused { code: 415, reason: "UnsupportedMediaType", message }
}

pub(crate) fn unsupported_patch(kind: &str) -> Refused {
    let allowed = patch::MEDIA.join(", ");
    media(match kind {
        "application/apply-patch+yaml" | "application/apply-patch+cbor" => format!(
            "this API server keeps no field managers, so it takes no server-side apply ({kind}): use kubectl apply without \
             --server-side; accepted media types include: {allowed}"
        ),
        _ => format!(
            "the body of the request was in an unsupported format {kind:?} - accepted media types include: {allowed}"
        ),
    })
}

pub(crate) fn unsupported_body(kind: &str) -> Refused {
    media(format!(
        "this API server reads JSON, and the body is {kind}: kubectl apply -f and create -f send JSON; behind a kubectl create \
         KIND write --dry-run=client -o yaml | kubectl apply -f -"
    ))
}

pub(crate) fn not_acceptable(asked: &str) -> Refused {
    let message =
        format!("this API server answers in JSON alone, and the request accepts {asked}: add application/json");
    Refused { code: 406, reason: "NotAcceptable", message }
}

/// An object whose fields are not those of its kind.
pub(crate) fn not_of_kind(resource: &Resource, problems: &[String]) -> Refused {
    let Resource { kind, .. } = resource;
    let message = format!(
        "{kind} in version {:?} cannot be handled as a {kind}: strict decoding error: {}",
        resource.api_version(),
        problems.join(", ")
    );
    bad_request(message)
}
