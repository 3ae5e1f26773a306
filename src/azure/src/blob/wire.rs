//! The calls of the steps by the official crate's clients, and what the answers mean.

use std::collections::HashMap;

use azure_core::http::{ClientOptions, Etag, headers::Headers};
use azure_storage_blob::{
    BlobClient, BlobClientOptions, BlobContainerClient, BlobContainerClientOptions, BlobServiceClient,
    BlobServiceClientOptions,
    models::{
        BlobClientDeleteOptions, BlobClientDownloadOptions, BlobClientSetMetadataOptions,
        BlobContainerClientListBlobsOptions, BlobItem, BlobServiceClientListContainersOptions, HttpRange,
        ListBlobsIncludeItem, ListBlobsResponse, ListContainersIncludeType, ListContainersResponse,
        PageBlobClientClearPagesOptions, PageBlobClientCreateOptions, PageBlobClientResizeOptions,
        PageBlobClientUploadPagesOptions,
    },
};
use bytes::Bytes;
use futures::TryStreamExt;
use lazuli_vhd::{
    footer::{LENGTH, Page},
    lease::Lease,
    life::{Answer, Blob, Call, ETag, Metadata},
};
use url::Url;

use super::{ListedBlob, ServiceVersion, Show, error::BlobError, sending::text};

/// How many entries of a list come at once. With the most metadata that a blob can have, 8 KiB, a page is a sixth of
/// what the transport reads.
pub(super) const PAGE: i32 = 1_000;

/// How the metadata of a blob begins among the headers.
const METADATA: &str = "x-ms-meta-";

impl ServiceVersion {
    /// The value of `x-ms-version`; `None` for the crate's own.
    pub(super) fn header(self) -> Option<&'static str> {
        match self {
            Self::Newest => None,
            // Source: Microsoft's "Azure Stack Hub storage: differences and considerations".
            Self::StackHub => Some("2017-11-09"),
        }
    }
}

/// Makes the crate's client of this kind.
macro_rules! client {
    ($client:ident, $options:ident, $url:expr, $pipeline:expr, $version:expr) => {{
        let mut options = $options { client_options: $pipeline, ..$options::default() };
        if let Some(version) = $version.header() {
            options.version = version.to_owned();
        }
        $client::new($url.clone(), None, Some(options))
    }};
}

/// How a call is sent; `None` for those that go elsewhere, or are lists.
pub(super) fn method(call: &Call) -> Option<(&'static str, bool)> {
    match call {
        Call::ReadContainer | Call::ReadPage { .. } => Some(("GET", false)),
        Call::ReadBlob => Some(("HEAD", false)),
        Call::MakeContainer
        | Call::MakeBlob { .. }
        | Call::WritePage { .. }
        | Call::ClearPage { .. }
        | Call::Resize { .. }
        | Call::SetMetadata { .. } => Some(("PUT", true)),
        Call::DeleteBlob { .. } => Some(("DELETE", true)),
        Call::ListSnapshots | Call::ReadAccount | Call::ReadContents | Call::DeleteAccount => None,
    }
}

/// Whether a call is about the container, and not the blob.
pub(super) fn is_of_the_container(call: &Call) -> bool {
    matches!(call, Call::ReadContainer | Call::MakeContainer | Call::ListSnapshots)
}

/// The version that a call is bound to.
pub(super) fn condition(call: &Call) -> Option<&ETag> {
    match call {
        Call::ReadPage { if_match, .. }
        | Call::WritePage { if_match, .. }
        | Call::ClearPage { if_match, .. }
        | Call::Resize { if_match, .. }
        | Call::SetMetadata { if_match, .. }
        | Call::DeleteBlob { if_match } => Some(if_match),
        _ => None,
    }
}

/// Whether the metadata that a call writes has names that can be sent. The crate ends the program over others.
pub(super) fn has_usable_metadata(call: &Call) -> bool {
    let is_usable = |name: &String| {
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
    };
    match call {
        Call::MakeBlob { metadata, .. } | Call::SetMetadata { metadata, .. } => metadata.keys().all(is_usable),
        _ => true,
    }
}

/// Has the crate send a call once, to the URL of its container or blob. The bytes are those of a page that is read.
pub(super) async fn send(
    call: &Call,
    url: &Url,
    pipeline: ClientOptions,
    version: ServiceVersion,
) -> azure_core::Result<Bytes> {
    if is_of_the_container(call) {
        let container = client!(BlobContainerClient, BlobContainerClientOptions, url, pipeline, version)?;
        match call {
            Call::MakeContainer => drop(container.create(None).await?),
            _ => drop(container.get_properties(None).await?),
        }
        return Ok(Bytes::new());
    }
    let blob = client!(BlobClient, BlobClientOptions, url, pipeline, version)?;
    let page_blob = blob.page_blob_client();
    let if_match = condition(call).map(|etag| Etag::from(etag.0.as_str()));
    match call {
        Call::MakeBlob { length, metadata } => {
            let options = PageBlobClientCreateOptions {
                if_none_match: Some(Etag::from("*")),
                metadata: Some(owned(metadata)),
                ..Default::default()
            };
            page_blob.create(*length, Some(options)).await?;
        }
        Call::ReadPage { offset, .. } => {
            let options = BlobClientDownloadOptions {
                range: Some(HttpRange::new(*offset, LENGTH)),
                if_match,
                ..Default::default()
            };
            return blob.download(Some(options)).await?.body.collect().await;
        }
        Call::WritePage { offset, page, .. } => {
            let options = PageBlobClientUploadPagesOptions { if_match, ..Default::default() };
            let body = Bytes::from(page.to_vec()).into();
            page_blob.upload_pages(body, LENGTH, HttpRange::new(*offset, LENGTH), Some(options)).await?;
        }
        Call::ClearPage { offset, .. } => {
            let options = PageBlobClientClearPagesOptions { if_match, ..Default::default() };
            page_blob.clear_pages(HttpRange::new(*offset, LENGTH), Some(options)).await?;
        }
        Call::Resize { length, .. } => {
            let options = PageBlobClientResizeOptions { if_match, ..Default::default() };
            page_blob.resize(*length, Some(options)).await?;
        }
        Call::SetMetadata { metadata, .. } => {
            let options = BlobClientSetMetadataOptions { if_match, ..Default::default() };
            blob.set_metadata(&owned(metadata), Some(options)).await?;
        }
        Call::DeleteBlob { .. } => {
            let options = BlobClientDeleteOptions { if_match, ..Default::default() };
            blob.delete(Some(options)).await?;
        }
        _ => {
            blob.get_properties(None).await?;
        }
    }
    Ok(Bytes::new())
}

fn owned(metadata: &Metadata) -> HashMap<String, String> {
    // The crate's headers have names in lower case, and no other.
    metadata.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.clone())).collect()
}

/// What the success of a call means; `None` where it lacks what its meaning needs.
pub(super) fn answer(call: &Call, headers: &Headers, body: &[u8]) -> Option<Answer<BlobError>> {
    Some(match call {
        Call::ReadContainer => Answer::Container { is_public: text(headers, "x-ms-blob-public-access").is_some() },
        Call::ReadBlob => Answer::Blob(Box::new(blob(headers)?)),
        Call::ReadPage { .. } => Answer::Page(Box::new(Page::try_from(body).ok()?)),
        Call::MakeContainer | Call::DeleteBlob { .. } => Answer::Done(None),
        _ => Answer::Done(text(headers, "etag").map(|etag| ETag(etag.to_owned()))),
    })
}

fn blob(headers: &Headers) -> Option<Blob> {
    let metadata = headers.iter().filter_map(|(name, value)| {
        Some((name.as_str().strip_prefix(METADATA)?.to_owned(), value.as_str().to_owned()))
    });
    Some(Blob {
        etag: ETag(text(headers, "etag")?.to_owned()),
        length: text(headers, "content-length")?.parse().ok()?,
        is_page_blob: text(headers, "x-ms-blob-type").is_some_and(is_page_blob),
        lease: Lease::read(text(headers, "x-ms-lease-state"), text(headers, "x-ms-lease-status")),
        metadata: metadata.collect(),
    })
}

fn is_page_blob(kind: &str) -> bool {
    kind.eq_ignore_ascii_case("PageBlob")
}

/// A page of a list.
#[derive(Debug, Clone)]
pub(super) struct Wanted<I> {
    pub(super) version: ServiceVersion,
    /// How many entries at most.
    pub(super) most: i32,
    pub(super) prefix: Option<String>,
    pub(super) include: Vec<I>,
    pub(super) marker: Option<String>,
}

/// What a list of blobs includes to show this.
pub(super) fn includes(show: Show, version: ServiceVersion) -> Vec<ListBlobsIncludeItem> {
    use ListBlobsIncludeItem::{Deleted, Metadata, Snapshots, UncommittedBlobs, Versions};
    match (show, version) {
        (Show::Disks, _) => vec![Metadata],
        // There are versions of blobs from 2019-12-12 on.
        (Show::Everything, ServiceVersion::StackHub) => vec![Metadata, Snapshots, Deleted, UncommittedBlobs],
        (Show::Everything, ServiceVersion::Newest) => vec![Metadata, Snapshots, Deleted, UncommittedBlobs, Versions],
    }
}

/// What the list of containers includes.
pub(super) fn includes_containers(with_deleted: bool, version: ServiceVersion) -> Vec<ListContainersIncludeType> {
    match (with_deleted, version) {
        (true, ServiceVersion::Newest) => vec![ListContainersIncludeType::Deleted],
        // Deleted containers can be restored from 2019-12-12 on.
        (true, ServiceVersion::StackHub) | (false, _) => Vec::new(),
    }
}

/// Has the crate read one page of a list of blobs.
pub(super) async fn list_blobs(
    url: &Url,
    pipeline: ClientOptions,
    wanted: Wanted<ListBlobsIncludeItem>,
) -> azure_core::Result<ListBlobsResponse> {
    let container = client!(BlobContainerClient, BlobContainerClientOptions, url, pipeline, wanted.version)?;
    let options = BlobContainerClientListBlobsOptions {
        include: Some(wanted.include),
        marker: wanted.marker,
        maxresults: Some(wanted.most),
        prefix: wanted.prefix,
        ..Default::default()
    };
    let page = container.list_blobs(Some(options))?.into_pages().try_next().await?;
    page.map_or_else(|| Ok(ListBlobsResponse::default()), |page| page.into_model())
}

/// Has the crate read one page of the list of containers.
pub(super) async fn list_containers(
    url: &Url,
    pipeline: ClientOptions,
    wanted: Wanted<ListContainersIncludeType>,
) -> azure_core::Result<ListContainersResponse> {
    let service = client!(BlobServiceClient, BlobServiceClientOptions, url, pipeline, wanted.version)?;
    let options = BlobServiceClientListContainersOptions {
        include: Some(wanted.include).filter(|include| !include.is_empty()),
        marker: wanted.marker,
        maxresults: Some(wanted.most),
        prefix: wanted.prefix,
        ..Default::default()
    };
    let page = service.list_containers(Some(options))?.into_pages().try_next().await?;
    page.map_or_else(|| Ok(ListContainersResponse::default()), |page| page.into_model())
}

/// An entry of a list; `None` for one without a name.
pub(super) fn listed(item: BlobItem) -> Option<ListedBlob> {
    let properties = item.properties.unwrap_or_default();
    let metadata = item.metadata.and_then(|metadata| metadata.values).unwrap_or_default();
    Some(ListedBlob {
        name: item.name?,
        snapshot: item.snapshot,
        is_deleted: item.deleted == Some(true),
        blob: Blob {
            etag: ETag(properties.etag.map(|etag| quoted(etag.as_ref())).unwrap_or_default()),
            length: properties.content_length.unwrap_or(0),
            is_page_blob: properties.blob_type.is_some_and(|kind| is_page_blob(kind.as_ref())),
            lease: Lease::read(
                properties.lease_state.as_ref().map(AsRef::as_ref),
                properties.lease_status.as_ref().map(AsRef::as_ref),
            ),
            metadata: metadata.into_iter().map(|(name, value)| (name.to_ascii_lowercase(), value)).collect(),
        },
    })
}

/// An etag as a condition has it. Lists of blobs show it without its quotes.
fn quoted(etag: &str) -> String {
    if etag.is_empty() || etag.contains('"') { etag.to_owned() } else { format!("\"{etag}\"") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_etag_of_a_list_is_one_of_a_condition() {
        assert_eq!(quoted("0x8D"), "\"0x8D\"");
        assert_eq!(quoted("\"0x8D\""), "\"0x8D\"");
        assert_eq!(quoted("W/\"1\""), "W/\"1\"");
        assert_eq!(quoted(""), "");
    }

    #[test]
    fn properties_without_an_etag_or_a_length_are_not_understood() {
        let mut headers = Headers::new();
        headers.insert("content-length", "1024");
        assert_eq!(blob(&headers), None);
        headers.insert("etag", "\"1\"");
        headers.insert("x-ms-meta-createdby", "k");
        let read = blob(&headers).unwrap();
        assert_eq!((read.length, read.is_page_blob, read.lease), (1024, false, Lease::Unknown));
        assert_eq!(read.metadata, Metadata::from([("createdby".to_owned(), "k".to_owned())]));
    }
}
