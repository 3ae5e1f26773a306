//! What the emulator answers when it refuses: the error envelope, and the catalogue of errors.
//!
//! The catalogue keeps every text in one place with its evidence: *recorded* (live traffic),
//! *documented* (Microsoft's pages or a real body quoted in a public tracker), *unverified* (a text
//! of our own for a refusal that is known to exist). Nothing here decides whether to refuse.

mod compute;
mod network;

use serde_json::{Map, Value, json};

pub(crate) use compute::*;
pub(crate) use network::*;

/// An error as Azure Resource Manager answers it, or as it stands in a failed operation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Fault {
    /// The HTTP status.
    pub(crate) status: u16,
    pub(crate) code: String,
    pub(crate) message: String,
    /// Boxed, like the narrow types below, to keep refusals small enough to return by value.
    pub(crate) target: Option<Box<str>>,
    pub(crate) details: Vec<Value>,
    /// `innererror.internalErrorCode`.
    pub(crate) inner: Option<&'static str>,
    /// The gateway said it, not the resource provider: `x-ms-failure-cause: gateway`.
    pub(crate) gateway: bool,
    /// Seconds.
    pub(crate) retry_after: Option<u32>,
    /// The provider prints `details: []` even when there are none (the network provider does).
    pub(crate) empty_details: bool,
}

impl Fault {
    pub(crate) fn new(status: u16, code: &str, message: impl Into<String>) -> Self {
        Self {
            status,
            code: code.to_owned(),
            message: message.into(),
            target: None,
            details: Vec::new(),
            inner: None,
            gateway: false,
            retry_after: None,
            empty_details: false,
        }
    }

    fn at(mut self, target: impl Into<Box<str>>) -> Self {
        self.target = Some(target.into());
        self
    }

    fn by_gateway(mut self) -> Self {
        self.gateway = true;
        self
    }

    fn inner(mut self, code: &'static str) -> Self {
        self.inner = Some(code);
        self
    }

    /// The object that stands under `error`.
    pub(crate) fn object(&self) -> Value {
        let mut error = Map::new();
        error.insert("code".to_owned(), json!(self.code));
        error.insert("message".to_owned(), json!(self.message));
        if let Some(target) = &self.target {
            error.insert("target".to_owned(), json!(target));
        }
        if !self.details.is_empty() || self.empty_details {
            error.insert("details".to_owned(), Value::Array(self.details.clone()));
        }
        if let Some(inner) = &self.inner {
            error.insert("innererror".to_owned(), json!({ "internalErrorCode": inner }));
        }
        Value::Object(error)
    }

    /// The whole body.
    pub(crate) fn body(&self) -> Value {
        json!({ "error": self.object() })
    }
}

// ---- gateway ----

/// Recorded.
pub(crate) fn resource_not_found(resource_type: &str, name: &str, group: &str) -> Fault {
    Fault::new(
        404,
        "ResourceNotFound",
        format!(
            "The Resource '{resource_type}/{name}' under resource group '{group}' was not found. For more details please go to https://aka.ms/ARMResourceNotFoundFix"
        ),
    )
    .by_gateway()
}

/// Documented.
pub(crate) fn parent_not_found(kind: &str, parent: &str) -> Fault {
    Fault::new(
        404,
        "ParentResourceNotFound",
        format!("Failed to perform 'write' on resource(s) of type '{kind}', because the parent resource '{parent}' could not be found."),
    )
    .by_gateway()
}

/// Recorded.
pub(crate) fn group_not_found(group: &str) -> Fault {
    Fault::new(404, "ResourceGroupNotFound", format!("Resource group '{group}' could not be found.")).by_gateway()
}

/// Documented.
pub(crate) fn subscription_not_found(subscription: &str) -> Fault {
    Fault::new(404, "SubscriptionNotFound", format!("The subscription '{subscription}' could not be found."))
        .by_gateway()
}

/// Documented.
pub(crate) fn invalid_subscription(subscription: &str) -> Fault {
    Fault::new(
        400,
        "InvalidSubscriptionId",
        format!("The provided subscription identifier '{subscription}' is malformed or invalid."),
    )
    .by_gateway()
}

/// Documented.
pub(crate) fn missing_api_version() -> Fault {
    Fault::new(
        400,
        "MissingApiVersionParameter",
        "The api-version query parameter (?api-version=) is required for all requests.",
    )
    .by_gateway()
}

/// Documented (azure-cli#28038): the newest first.
pub(crate) fn invalid_api_version(version: &str, known: &[&str]) -> Fault {
    let known: Vec<&str> = known.iter().rev().copied().collect();
    Fault::new(
        400,
        "InvalidApiVersionParameter",
        format!("The api-version '{version}' is invalid. The supported versions are '{}'.", known.join(",")),
    )
    .by_gateway()
}

/// Documented (azure-cli#28496, migAz#246): the oldest first.
pub(crate) fn no_registered_provider(
    kind: &str,
    location: &str,
    version: &str,
    known: &[&str],
    locations: &[&str],
) -> Fault {
    Fault::new(
        400,
        "NoRegisteredProviderFound",
        format!(
            "No registered resource provider found for location '{location}' and API version '{version}' for type '{kind}'. The supported api-versions are '{}'. The supported locations are '{}'.",
            known.join(", "),
            locations.join(", ")
        ),
    )
    .by_gateway()
}

/// Documented (azure-cli#2681): a list has no location.
pub(crate) fn version_of_no_type(kind: &str, namespace: &str, version: &str, known: &[&str]) -> Fault {
    Fault::new(
        400,
        "InvalidResourceType",
        format!(
            "The resource type '{kind}' could not be found in the namespace '{namespace}' for api version '{version}'. The supported api-versions are '{}'.",
            known.join(",")
        ),
    )
    .by_gateway()
}

/// Documented: what a cloud without the type answers. The last sentence is ours, for people who wonder.
pub(crate) fn invalid_resource_type(kind: &str, namespace: &str, version: &str) -> Fault {
    Fault::new(
        404,
        "InvalidResourceType",
        format!(
            "The resource type '{kind}' could not be found in the namespace '{namespace}' for api version '{version}'. The supported api-versions are ''. This cloud is an emulator, and the type is not emulated."
        ),
    )
    .by_gateway()
}

/// Documented but for the last sentence.
pub(crate) fn invalid_namespace(namespace: &str) -> Fault {
    Fault::new(
        404,
        "InvalidResourceNamespace",
        format!(
            "The resource namespace '{namespace}' is invalid. This cloud is an emulator, and the namespace is not emulated."
        ),
    )
    .by_gateway()
}

/// Documented.
pub(crate) fn path_not_found(path: &str) -> Fault {
    Fault::new(404, "NotFound", format!("The requested path '{path}' was not found.")).by_gateway()
}

/// Documented.
pub(crate) fn method_not_allowed(method: &str) -> Fault {
    Fault::new(405, "MethodNotAllowed", format!("The requested resource does not support http method '{method}'."))
}

/// Documented.
pub(crate) fn missing_authorization() -> Fault {
    Fault::new(401, "AuthenticationFailed", "Authentication failed. The 'Authorization' header is missing.")
        .by_gateway()
}

/// Documented.
pub(crate) fn invalid_token() -> Fault {
    Fault::new(401, "InvalidAuthenticationToken", "The access token is invalid.").by_gateway()
}

/// As .NET prints a moment where the culture is none's.
fn american(at: time::OffsetDateTime) -> String {
    let (hour, half) = match at.hour() {
        0 => (12, "AM"),
        hour @ 1..=11 => (hour, "AM"),
        12 => (12, "PM"),
        hour => (hour - 12, "PM"),
    };
    format!("{}/{}/{} {hour}:{:02}:{:02} {half}", u8::from(at.month()), at.day(), at.year(), at.minute(), at.second())
}

/// Documented (vscode-azureappservice#2483).
pub(crate) fn expired_token(at: time::OffsetDateTime, now: time::OffsetDateTime) -> Fault {
    Fault::new(
        401,
        "ExpiredAuthenticationToken",
        format!(
            "The access token expiry UTC time '{}' is earlier than current UTC time '{}'.",
            american(at),
            american(now)
        ),
    )
    .by_gateway()
}

/// Documented (hashicorp/go-azure-helpers#51).
pub(crate) fn wrong_audience(audience: &str) -> Fault {
    Fault::new(
        401,
        "InvalidAuthenticationTokenAudience",
        format!(
            "The access token has been obtained for wrong audience or resource '{audience}'. It should exactly match with one of the allowed audiences 'https://management.core.windows.net/','https://management.core.windows.net','https://management.azure.com/','https://management.azure.com'."
        ),
    )
    .by_gateway()
}

/// Documented (azure-sdk-for-python#38382).
pub(crate) fn wrong_tenant(issuer: &str, tenant: &str) -> Fault {
    Fault::new(
        401,
        "InvalidAuthenticationTokenTenant",
        format!(
            "The access token is from the wrong issuer '{issuer}'. It must match the tenant 'https://sts.windows.net/{tenant}/' associated with this subscription. Please use the authority (URL) 'https://login.windows.net/{tenant}' to get the token. Note, if the subscription is transferred to another tenant there is no impact to the services, but information about new tenant could take time to propagate (up to an hour). If you just transferred your subscription and see this error message, please try back later."
        ),
    )
    .by_gateway()
}

/// Documented.
pub(crate) fn location_required() -> Fault {
    Fault::new(400, "LocationRequired", "The location property is required for this definition.").by_gateway()
}

/// Documented.
pub(crate) fn location_unavailable(location: &str, kind: &str, known: &str) -> Fault {
    Fault::new(
        400,
        "LocationNotAvailableForResourceType",
        format!(
            "The provided location '{location}' is not available for resource type '{kind}'. List of available regions for the resource type is '{known}'."
        ),
    )
    .by_gateway()
}

/// Documented.
pub(crate) fn location_conflict(name: &str, there: &str, group: &str, asked: &str) -> Fault {
    Fault::new(
        409,
        "InvalidResourceLocation",
        format!(
            "The resource '{name}' already exists in location '{there}' in resource group '{group}'. A resource with the same name cannot be created in location '{asked}'. Please select a new resource name."
        ),
    )
    .by_gateway()
}

/// Documented.
pub(crate) fn group_location_conflict(name: &str, there: &str) -> Fault {
    Fault::new(
        409,
        "InvalidResourceGroupLocation",
        format!("Invalid resource group location '{name}'. The Resource group already exists in location '{there}'."),
    )
    .by_gateway()
}

/// Documented.
pub(crate) fn group_being_deleted(group: &str) -> Fault {
    Fault::new(
        409,
        "ResourceGroupBeingDeleted",
        format!("The resource group '{group}' is in deprovisioning state and cannot perform this operation."),
    )
    .by_gateway()
}

/// Documented (bicep-registry-modules#1607); the inner texts are unverified.
pub(crate) fn group_deletion_blocked(group: &str, staying: &[String]) -> Fault {
    let short: Vec<&str> =
        staying.iter().map(|id| id.split_once("/providers/").map_or(id.as_str(), |(_, rest)| rest)).collect();
    let mut fault = Fault::new(
        409,
        "ResourceGroupDeletionBlocked",
        format!(
            "Deletion of resource group '{group}' failed as resources with identifiers '{}' could not be deleted. The provisioning state of the resource group will be rolled back. The tracking Id is '{}'. Please check audit logs for more details.",
            short.join(","),
            crate::derived::guid_of(&staying.join(","))
        ),
    )
    .by_gateway();
    fault.details = staying
        .iter()
        .map(|id| json!({"target": id, "message": "The resource is in use by a resource of another group."}))
        .collect();
    fault
}

/// Documented.
pub(crate) fn invalid_content(why: &str) -> Fault {
    Fault::new(
        400,
        "InvalidRequestContent",
        format!("The request content was invalid and could not be deserialized: '{why}'."),
    )
    .by_gateway()
}

/// Documented: a member that no resource has at its top (azure-rest-api-specs#286).
pub(crate) fn not_in_definition(member: &str, position: usize) -> Fault {
    invalid_content(&format!(
        "Could not find member '{member}' on object of type 'ResourceDefinition'. Path '{member}', line 1, position {position}."
    ))
}

/// Documented (coreos/tectonic-installer#596).
pub(crate) fn invalid_tag_characters(names: &str) -> Fault {
    Fault::new(
        400,
        "InvalidTagNameCharacters",
        format!("The tag names '{names}' have reserved characters '<,>,%,&,\\,?,/' or control characters."),
    )
    .by_gateway()
}

/// Documented limit; code and text are those of the check in Azure PowerShell (Az.Migrate).
pub(crate) fn tag_name_too_long(names: &str) -> Fault {
    Fault::new(
        400,
        "InvalidTagName",
        format!(
            "Tag key too large. Following tag name '{names}' exceeded the maximum length. Maximum allowed length for tag name - '512' characters."
        ),
    )
    .by_gateway()
}

/// Documented limit; code and text are those of the check in Azure PowerShell (Az.Migrate).
pub(crate) fn tag_value_too_long(values: &str) -> Fault {
    Fault::new(
        400,
        "InvalidTagValueLength",
        format!(
            "Tag value too large. Following tag value '{values}' exceeded the maximum length. Maximum allowed length for tag value - '256' characters."
        ),
    )
    .by_gateway()
}

/// Documented limit; code and text are unverified.
pub(crate) fn too_many_tags(count: usize) -> Fault {
    Fault::new(
        400,
        "InvalidTagCount",
        format!("The number of tags '{count}' exceeded the maximum. Maximum allowed number of tags - '50'."),
    )
    .by_gateway()
}

/// Documented.
pub(crate) fn invalid_filter(filter: &str) -> Fault {
    Fault::new(400, "InvalidFilterInQueryString", format!("Invalid $filter '{filter}' specified in the query string."))
        .by_gateway()
}

/// Documented code and text (azure-api-management-devops-resource-kit#594).
pub(crate) fn content_too_large() -> Fault {
    Fault::new(413, "RequestContentTooLarge", "The request content size exceeds the maximum size of 4 MB.").by_gateway()
}

/// Documented.
pub(crate) fn unsupported_media_type(given: &str) -> Fault {
    Fault::new(
        415,
        "UnsupportedMediaType",
        format!("The content media type '{given}' is not supported. Only 'application/json' is supported."),
    )
    .by_gateway()
}

/// Documented.
pub(crate) fn invalid_name(kind: &str, name: &str) -> Fault {
    Fault::new(
        400,
        "InvalidResourceName",
        format!(
            "Resource name '{name}' of type '{kind}' is invalid. The name must begin with a letter or number, end with a letter, number or underscore, and may contain only letters, numbers, underscores, periods, or hyphens."
        ),
    )
}
