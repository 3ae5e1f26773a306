//! What the blob service refuses, as XML. Codes and texts are documented (rest/api/storageservices/blob-service-error-codes,
//! common-rest-api-error-codes) where nothing else is written.

use super::xml;
use crate::fault::Fault;

/// A refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BlobError {
    pub(super) status: u16,
    pub(super) code: String,
    pub(super) message: String,
    /// Further elements of the body.
    pub(super) details: Vec<(&'static str, String)>,
}

/// A refusal that is always the same.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known(u16, &'static str, &'static str);

pub(super) const ACCOUNT_NOT_FOUND: Known = Known(404, "ResourceNotFound", "The specified resource does not exist.");
pub(super) const ACCOUNT_REQUIRES_HTTPS: Known =
    Known(400, "AccountRequiresHttps", "The account being accessed does not support http.");
pub(super) const BLOB_ALREADY_EXISTS: Known = Known(409, "BlobAlreadyExists", "The specified blob already exists.");
pub(super) const BLOB_NOT_FOUND: Known = Known(404, "BlobNotFound", "The specified blob does not exist.");
pub(super) const BLOB_TYPE_NOT_SUPPORTED: Known =
    Known(409, "BlobTypeNotSupported", "The specified blob type is not supported by this account.");
pub(super) const BODY_TOO_LARGE: Known =
    Known(413, "RequestBodyTooLarge", "The request body is too large and exceeds the maximum permissible limit.");
pub(super) const CANNOT_VERIFY_COPY_SOURCE: Known =
    Known(404, "CannotVerifyCopySource", "The specified source could not be accessed.");
pub(super) const CONDITION_NOT_MET: Known =
    Known(412, "ConditionNotMet", "The condition specified using HTTP conditional header(s) is not met.");
pub(super) const CONTAINER_ALREADY_EXISTS: Known =
    Known(409, "ContainerAlreadyExists", "The specified container already exists.");
pub(super) const CONTAINER_BEING_DELETED: Known =
    Known(409, "ContainerBeingDeleted", "The specified container is being deleted. Try operation later.");
pub(super) const CONTAINER_NOT_FOUND: Known =
    Known(404, "ContainerNotFound", "The specified container does not exist.");
pub(super) const EMPTY_METADATA_KEY: Known =
    Known(400, "EmptyMetadataKey", "The key for one of the metadata key-value pairs is empty.");
pub(super) const INVALID_BLOB_TYPE: Known =
    Known(409, "InvalidBlobType", "The blob type is invalid for this operation.");
pub(super) const INVALID_METADATA: Known =
    Known(400, "InvalidMetadata", "The specified metadata is invalid. It includes characters that are not permitted.");
pub(super) const INVALID_PAGE_RANGE: Known = Known(416, "InvalidPageRange", "The page range specified is invalid.");
pub(super) const INVALID_RANGE: Known =
    Known(416, "InvalidRange", "The range specified is invalid for the current size of the resource.");
pub(super) const INVALID_RESOURCE_NAME: Known =
    Known(400, "InvalidResourceName", "The specified resource name contains invalid characters.");
pub(super) const INVALID_URI: Known =
    Known(400, "InvalidUri", "The requested URI does not represent any resource on the server.");
pub(super) const KEYS_NOT_PERMITTED: Known = Known(
    403,
    "KeyBasedAuthenticationNotPermitted",
    "Key based authentication is not permitted on this storage account.",
);
pub(super) const LEASE_ID_MISSING: Known = Known(
    412,
    "LeaseIdMissing",
    "There is currently a lease on the blob and no lease ID was specified in the request.",
);
pub(super) const LEASE_ID_MISSING_ON_CONTAINER: Known = Known(
    412,
    "LeaseIdMissing",
    "There is currently a lease on the container and no lease ID was specified in the request.",
);
pub(super) const LEASE_LOST: Known =
    Known(412, "LeaseLost", "A lease ID was specified, but the lease for the blob has expired.");
pub(super) const LEASE_LOST_ON_CONTAINER: Known =
    Known(412, "LeaseLost", "A lease ID was specified, but the lease for the container has expired.");
pub(super) const LEASE_MISMATCH: Known =
    Known(412, "LeaseIdMismatchWithBlobOperation", "The lease ID specified did not match the lease ID for the blob.");
pub(super) const LEASE_MISMATCH_ON_CONTAINER: Known = Known(
    412,
    "LeaseIdMismatchWithContainerOperation",
    "The lease ID specified did not match the lease ID for the container.",
);
pub(super) const LEASE_NOT_PRESENT: Known =
    Known(412, "LeaseNotPresentWithBlobOperation", "There is currently no lease on the blob.");
pub(super) const LEASE_NOT_PRESENT_ON_CONTAINER: Known =
    Known(412, "LeaseNotPresentWithContainerOperation", "There is currently no lease on the container.");
pub(super) const METADATA_TOO_LARGE: Known =
    Known(400, "MetadataTooLarge", "The size of the specified metadata exceeds the maximum size permitted.");
pub(super) const NAME_LENGTH: Known =
    Known(400, "OutOfRangeInput", "The specified resource name length is not within the permissible limits.");
pub(super) const NO_PENDING_COPY: Known =
    Known(409, "NoPendingCopyOperation", "There is currently no pending copy operation.");
pub(super) const NOT_MODIFIED: Known =
    Known(304, "ConditionNotMet", "The condition specified using HTTP conditional header(s) is not met.");
pub(super) const PUBLIC_ACCESS_NOT_PERMITTED: Known =
    Known(409, "PublicAccessNotPermitted", "Public access is not permitted on this storage account.");
pub(super) const RESOURCE_NOT_FOUND: Known = Known(404, "ResourceNotFound", "The specified resource does not exist.");
pub(super) const SEQUENCE_NUMBER_CONDITION: Known =
    Known(412, "SequenceNumberConditionNotMet", "The sequence number condition specified was not met.");
pub(super) const SEQUENCE_NUMBER_INCREMENT: Known = Known(
    409,
    "SequenceNumberIncrementTooLarge",
    "The sequence number increment cannot be performed because it would result in overflow of the sequence number.",
);
pub(super) const SNAPSHOTS_PRESENT: Known =
    Known(409, "SnapshotsPresent", "This operation is not permitted because the blob has snapshots.");
pub(super) const SOURCE_CONDITION_NOT_MET: Known =
    Known(412, "SourceConditionNotMet", "The source condition specified using HTTP conditional header(s) is not met.");
pub(super) const UNSUPPORTED_VERB: Known =
    Known(405, "UnsupportedHttpVerb", "The resource doesn't support specified Http Verb.");

impl From<Known> for BlobError {
    fn from(Known(status, code, message): Known) -> Self {
        Self { status, code: code.to_owned(), message: message.to_owned(), details: Vec::new() }
    }
}

/// The codes of leases are the same for shares and blobs; only the resource provider says them as JSON.
impl From<Fault> for BlobError {
    fn from(fault: Fault) -> Self {
        Self { status: fault.status, code: fault.code, message: fault.message, details: Vec::new() }
    }
}

impl BlobError {
    /// Of a kind that this module has no name for.
    pub(super) fn new(status: u16, code: &str, message: impl Into<String>) -> Self {
        Self { status, code: code.to_owned(), message: message.into(), details: Vec::new() }
    }

    fn with(mut self, name: &'static str, text: impl Into<String>) -> Self {
        self.details.push((name, text.into()));
        self
    }

    /// A header whose value cannot be used.
    pub(super) fn header(name: &str, value: &str) -> Self {
        Self::new(400, "InvalidHeaderValue", "The value for one of the HTTP headers is not in the correct format.")
            .with("HeaderName", name)
            .with("HeaderValue", value)
    }

    /// A header that is missing.
    pub(super) fn header_missing(name: &str) -> Self {
        Self::new(400, "MissingRequiredHeader", "An HTTP header that's mandatory for this request is not specified.")
            .with("HeaderName", name)
    }

    /// A query parameter whose value cannot be used.
    pub(super) fn query(name: &str, value: &str, reason: &str) -> Self {
        let message = "Value for one of the query parameters specified in the request URI is invalid.";
        Self::new(400, "InvalidQueryParameterValue", message)
            .with("QueryParameterName", name)
            .with("QueryParameterValue", value)
            .with("Reason", reason)
    }

    /// A number in the query that is too small or too large.
    pub(super) fn query_range(name: &str, value: &str) -> Self {
        let message = "One of the query parameters specified in the request URI is outside the permissible range.";
        Self::new(400, "OutOfRangeQueryParameterValue", message)
            .with("QueryParameterName", name)
            .with("QueryParameterValue", value)
    }

    /// A signature that is none of this account.
    pub(super) fn authentication(detail: impl Into<String>) -> Self {
        let message = "Server failed to authenticate the request. Make sure the value of Authorization header is formed \
                       correctly including the signature.";
        Self::new(403, "AuthenticationFailed", message).with("AuthenticationErrorDetail", detail)
    }

    /// What Azure does and the emulator does not: the one refusal that is not Azure's.
    pub(super) fn not_emulated(what: &str) -> Self {
        Self::new(501, "NotImplemented", format!("The emulator does not serve {what}."))
    }

    /// The body. Texts end with the request's id and the time.
    pub(super) fn body(&self, request_id: &str, time: &str) -> String {
        let message = format!("{}\nRequestId:{request_id}\nTime:{time}", self.message);
        let details: String = self.details.iter().map(|(name, text)| xml::element(name, text)).collect();
        let code = xml::element("Code", &self.code);
        xml::document(&format!("<Error>{code}{}{details}</Error>", xml::element("Message", &message)))
    }
}
