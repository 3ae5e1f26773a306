//! Which operation a request asks for: by method, by how deep its address is, and by `restype` and `comp`.

use super::context::{Answer, Context, Reply};
use super::error::{self, BlobError};
use super::request::Asked;
use super::{blobs, containers, copies, lists, page_writes, xml};

/// An operation.
#[derive(Clone, Copy)]
pub(super) struct Operation {
    /// The emulator's name of it, for the call log and for incidents.
    pub(super) name: &'static str,
    pub(super) handler: fn(&mut Context<'_>) -> Reply,
}

/// What is asked for where the emulator does not know it.
pub(super) const UNKNOWN: &str = "blob.unknown";

impl Operation {
    /// The operation of a request.
    pub(super) fn of(asked: &Asked) -> Result<Self, BlobError> {
        let (comp, restype) = (asked.query("comp"), asked.query("restype"));
        if (restype, comp) == ("account", "properties") {
            return Ok(Self { name: "blob.accountInformation", handler: account });
        }
        match (&asked.address.container, &asked.address.blob) {
            (None, _) => Self::of_service(asked, restype, comp),
            (Some(_), None) => Self::of_container(asked, restype, comp),
            (Some(_), Some(_)) => Self::of_blob(asked, comp),
        }
    }

    fn of_service(asked: &Asked, restype: &str, comp: &str) -> Result<Self, BlobError> {
        Ok(match (asked.method.as_str(), restype, comp) {
            ("GET", "", "list") => Self { name: "blob.listContainers", handler: lists::containers },
            ("GET", "service", "properties") => Self { name: "blob.serviceProperties", handler: service },
            (_, "service", _) | (_, "", "batch" | "blobs") => return Err(not_served(restype, comp)),
            _ => return Err(error::INVALID_URI.into()),
        })
    }

    fn of_container(asked: &Asked, restype: &str, comp: &str) -> Result<Self, BlobError> {
        if restype != "container" {
            // A blob of the root container.
            return Err(match restype {
                "" => BlobError::not_emulated("blobs of the root container without its name"),
                other => BlobError::query("restype", other, "Invalid value."),
            });
        }
        Ok(match (asked.method.as_str(), comp) {
            ("PUT", "") => Self { name: "blob.createContainer", handler: containers::create },
            ("GET" | "HEAD", "" | "metadata") => Self { name: "blob.getContainer", handler: containers::properties },
            ("PUT", "metadata") => Self { name: "blob.setContainerMetadata", handler: containers::set_metadata },
            ("GET" | "HEAD", "acl") => Self { name: "blob.getContainerAccess", handler: containers::access },
            ("PUT", "lease") => Self { name: "blob.leaseContainer", handler: containers::lease },
            ("DELETE", "") => Self { name: "blob.deleteContainer", handler: containers::delete },
            ("GET", "list") => Self { name: "blob.list", handler: lists::blobs },
            (_, "acl" | "undelete" | "rename" | "blobs" | "batch") => return Err(not_served(restype, comp)),
            _ => return Err(unsupported(comp)),
        })
    }

    fn of_blob(asked: &Asked, comp: &str) -> Result<Self, BlobError> {
        let is_copy = asked.headers.contains_key("x-ms-copy-source");
        Ok(match (asked.method.as_str(), comp) {
            ("PUT", "") if is_copy => Self { name: "blob.copy", handler: copies::start },
            ("PUT", "") => Self { name: "blob.put", handler: blobs::put },
            ("GET", "") => Self { name: "blob.get", handler: blobs::get },
            ("HEAD", "") => Self { name: "blob.getProperties", handler: blobs::properties },
            ("DELETE", "") => Self { name: "blob.delete", handler: blobs::delete },
            ("PUT", "page") => Self { name: "blob.putPage", handler: page_writes::put },
            ("GET", "pagelist") => Self { name: "blob.getPageRanges", handler: page_writes::ranges },
            ("PUT", "properties") => Self { name: "blob.setProperties", handler: blobs::set_properties },
            ("GET" | "HEAD", "metadata") => Self { name: "blob.getMetadata", handler: blobs::metadata },
            ("PUT", "metadata") => Self { name: "blob.setMetadata", handler: blobs::set_metadata },
            ("PUT", "lease") => Self { name: "blob.lease", handler: blobs::lease },
            ("PUT", "snapshot") => Self { name: "blob.snapshot", handler: blobs::snapshot },
            ("PUT", "copy") => Self { name: "blob.abortCopy", handler: copies::abort },
            (
                _,
                "appendblock"
                | "block"
                | "blocklist"
                | "expiry"
                | "immutabilityPolicies"
                | "incrementalcopy"
                | "legalhold"
                | "query"
                | "seal"
                | "tags"
                | "tier"
                | "undelete",
            ) => return Err(not_served("", comp)),
            _ => return Err(unsupported(comp)),
        })
    }
}

fn not_served(restype: &str, comp: &str) -> BlobError {
    BlobError::not_emulated(&format!("requests with restype={restype} and comp={comp}"))
}

fn unsupported(comp: &str) -> BlobError {
    let known = ["", "acl", "copy", "lease", "list", "metadata", "page", "pagelist", "properties", "snapshot"];
    match known.contains(&comp) {
        true => error::UNSUPPORTED_VERB.into(),
        false => BlobError::query("comp", comp, "Invalid value."),
    }
}

/// GET, HEAD `?restype=account&comp=properties`.
fn account(context: &mut Context<'_>) -> Reply {
    let text = |value: &serde_json::Value| value.as_str().unwrap_or("").to_owned();
    Ok(Answer::new(200)
        .with("x-ms-sku-name", text(&context.account["sku"]["name"]))
        .with("x-ms-account-kind", text(&context.account["kind"]))
        .with("x-ms-is-hns-enabled", (context.account["properties"]["isHnsEnabled"] == true).to_string()))
}

/// GET `/?restype=service&comp=properties`: nothing has been set.
fn service(_: &mut Context<'_>) -> Reply {
    let off = "<Version>1.0</Version><Delete>false</Delete><Read>false</Read><Write>false</Write>\
               <RetentionPolicy><Enabled>false</Enabled></RetentionPolicy>";
    let metrics = "<Version>1.0</Version><Enabled>false</Enabled><RetentionPolicy><Enabled>false</Enabled>\
                   </RetentionPolicy>";
    Ok(Answer::xml(xml::document(&format!(
        "<StorageServiceProperties><Logging>{off}</Logging><HourMetrics>{metrics}</HourMetrics>\
         <MinuteMetrics>{metrics}</MinuteMetrics><Cors /><DeleteRetentionPolicy><Enabled>false</Enabled>\
         </DeleteRetentionPolicy></StorageServiceProperties>"
    ))))
}
