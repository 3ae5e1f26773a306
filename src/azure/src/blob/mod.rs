//! Page blobs and their containers: the requests of [`lazuli_vhd::life`] to the blob service, and lists.
//!
//! | module | owns |
//! |---|---|
//! | `wire` | which request of the official crate a call is, and what its answer means |
//! | `signature` | Shared Key |
//! | `keys` | the keys of accounts, in memory for ten minutes |
//! | `sending` | a request on its way |
//! | `tries` | whether it is sent again |
//! | `error` | what went wrong |
//!
//! The official crate `azure_storage_blob` makes the requests and reads the lists. It has neither our transport nor
//! keys, so each request has a pipeline of its own: its retries are off, a policy of ours signs, and the last
//! one hands the request to [`Transport`](crate::transport::Transport), which follows no redirect.
//!
//! A request goes to `https://ACCOUNT.blob.SUFFIX` and nowhere else: the address of a blob is refused unless it is one
//! of this cloud's and its account is the one whose keys sign. That a host does not exist says nothing of its account;
//! the resource manager does, which is asked for the keys again then.

mod error;
mod keys;
mod sending;
mod signature;
#[cfg(test)]
mod tests;
mod tries;
mod wire;

use azure_storage_blob::models::{ListBlobsIncludeItem, ListBlobsResponse};
use lazuli_model::{ArmId, BlobUri, blob_uri::is_account_name, fault::Fault, storage_account::ACCOUNT_TYPE};
use lazuli_vhd::life::{self, Answer, Call, Problem};
use url::Url;

pub use error::BlobError;
use keys::Keys;
use sending::{About, serve};
use wire::Wanted;

use crate::{metrics::ResourceType, storage::Storage, until::Until};

/// Which versions of the blob service a cloud has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServiceVersion {
    /// Those of the public clouds: requests name the one that the official crate knows.
    Newest,
    /// Those of Azure Stack Hub: requests name 2017-11-09, and ask for nothing that came later.
    StackHub,
}

/// The client of a cloud's blob services; clones share the keys.
#[derive(Debug, Clone)]
pub struct Blobs {
    keys: Keys,
    suffix: String,
    version: ServiceVersion,
    /// How many entries of a list come at once.
    page: i32,
}

/// A storage account, as the requests to it need it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// Its ARM id. Its keys are asked for by it.
    pub id: ArmId,
    /// Its region, where it is known.
    pub location: Option<String>,
}

/// What a list of blobs shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Show {
    /// Blobs, with their metadata.
    Disks,
    /// All that is there, as far as the service's version tells: snapshots, versions, deleted blobs that can be
    /// restored, and blobs of which only blocks are there. A version is an entry like a blob's.
    Everything,
}

/// A blob of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedBlob {
    /// Its name in its container.
    pub name: String,
    /// The time of a snapshot; `None` for the blob itself.
    pub snapshot: Option<String>,
    /// Its properties and metadata. Where the list says nothing, its ETag is empty and its lease unknown.
    pub blob: life::Blob,
    /// Whether it is deleted, and can be restored.
    pub is_deleted: bool,
}

/// How many pages a list may have: ten million entries.
const MOST_PAGES: u32 = 10_000;

/// A refusal, sorted.
type Refused = (Problem, BlobError);

impl Blobs {
    /// A client for the blob services below a domain: `core.windows.net`.
    pub fn new(storage: Storage, suffix: &str, version: ServiceVersion) -> Self {
        Self { keys: Keys::new(storage), suffix: suffix.to_ascii_lowercase(), version, page: wire::PAGE }
    }

    /// Sends a call of a step to the blob service of an account. A write is sent once, unless it is certain that the
    /// service has not acted. The calls that are about the account itself are for the resource manager: here they are
    /// refused as [`Fault::Unsupported`].
    pub async fn call(&self, account: &Account, blob: &BlobUri, call: &Call, until: &Until) -> Answer<BlobError> {
        let served = Box::pin(self.served(account, blob, call, until)).await;
        served.unwrap_or_else(|(problem, error)| Answer::Refused(problem, error))
    }

    async fn served(
        &self,
        account: &Account,
        blob: &BlobUri,
        call: &Call,
        until: &Until,
    ) -> Result<Answer<BlobError>, Refused> {
        blob.check_cloud(&self.suffix).map_err(|error| {
            let refused = BlobError::ours(Fault::Invalid, blob.account(), "the address is not used");
            (Problem::Other(Fault::Invalid), refused.caused_by(error))
        })?;
        let service = self.service(account)?;
        if service.host_str().is_none_or(|host| host.split('.').next() != Some(blob.account())) {
            return Err(unusable(blob.as_str(), "the blob is in another account than the one whose keys sign"));
        }
        let path = if wire::is_of_the_container(call) {
            blob.container().to_owned()
        } else {
            format!("{}/{}", blob.container(), blob.name())
        };
        let url = below(&service, &path);
        if *call == Call::ListSnapshots {
            return self.snapshots(account, &url, blob, until).await.map(Answer::Snapshots);
        }
        let Some((method, writes)) = wire::method(call) else {
            let error = BlobError::ours(Fault::Unsupported, url, "the blob service does not serve this");
            return Err((Problem::Other(Fault::Unsupported), error));
        };
        if wire::condition(call).is_some_and(|etag| etag.0.trim().is_empty()) {
            return Err(unusable(url.as_str(), "the condition of the request is empty"));
        }
        if !wire::has_usable_metadata(call) {
            return Err(unusable(url.as_str(), "a name of the metadata is none"));
        }
        let about = About { method, url: &url, writes };
        let send = |pipeline| Box::pin(wire::send(call, &url, pipeline, self.version));
        let (body, headers) = serve(&self.keys, account, about, until, send).await?;
        wire::answer(call, &headers, &body).ok_or_else(|| {
            let error = about.failed(Fault::Malformed, "the answer lacks what it must have");
            (Problem::Other(Fault::Malformed), error)
        })
    }

    /// The times of a blob's snapshots.
    async fn snapshots(
        &self,
        account: &Account,
        container: &Url,
        blob: &BlobUri,
        until: &Until,
    ) -> Result<Vec<String>, Refused> {
        let prefix = Some(blob.name().to_owned());
        let include = vec![ListBlobsIncludeItem::Snapshots];
        let mut times = Vec::new();
        self.pages(account, container, prefix, include, until, |page| {
            let of_this = page.blob_items.into_iter().filter(|item| item.name.as_deref() == Some(blob.name()));
            times.extend(of_this.filter_map(|item| item.snapshot));
        })
        .await?;
        Ok(times)
    }

    /// Lists the blobs of a container, page by page; `None` where there is no such container.
    ///
    /// # Errors
    /// Any fault.
    pub async fn list(
        &self,
        account: &Account,
        container: &str,
        show: Show,
        until: &Until,
    ) -> Result<Option<Vec<ListedBlob>>, BlobError> {
        let listed = async {
            let service = self.service(account)?;
            let is_container = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-$".contains(&byte);
            if container.is_empty() || !container.bytes().all(is_container) {
                return Err(unusable(service.as_str(), "this is no name of a container"));
            }
            let (url, mut listed) = (below(&service, container), Vec::new());
            self.pages(account, &url, None, wire::includes(show, self.version), until, |page| {
                listed.extend(page.blob_items.into_iter().filter_map(wire::listed));
            })
            .await?;
            Ok(listed)
        };
        match Box::pin(listed).await {
            Ok(listed) => Ok(Some(listed)),
            Err((Problem::NoContainer, _)) => Ok(None),
            Err((_, error)) => Err(error),
        }
    }

    /// Reads a list of blobs to its end.
    async fn pages(
        &self,
        account: &Account,
        container: &Url,
        prefix: Option<String>,
        include: Vec<ListBlobsIncludeItem>,
        until: &Until,
        mut take: impl FnMut(ListBlobsResponse),
    ) -> Result<(), Refused> {
        let about = About { method: "GET", url: container, writes: false };
        let mut wanted = Wanted { version: self.version, most: self.page, prefix, include, marker: None };
        for _ in 0..MOST_PAGES {
            let send = |pipeline| Box::pin(wire::list_blobs(container, pipeline, wanted.clone()));
            let (mut page, _) = serve(&self.keys, account, about, until, send).await?;
            self.count_page(ResourceType::Blobs);
            let marker = next_marker(&about, wanted.marker.as_ref(), page.next_marker.take())?;
            take(page);
            if marker.is_none() {
                return Ok(());
            }
            wanted.marker = marker;
        }
        Err(endless(&about))
    }

    /// Lists the names of an account's containers, page by page, without those of Azure's own. Deleted ones that can be
    /// restored are shown where the service's version has them.
    ///
    /// # Errors
    /// Any fault.
    pub async fn containers(
        &self,
        account: &Account,
        with_deleted: bool,
        until: &Until,
    ) -> Result<Vec<String>, BlobError> {
        let named = async {
            let service = self.service(account)?;
            let about = About { method: "GET", url: &service, writes: false };
            let include = wire::includes_containers(with_deleted, self.version);
            let mut wanted = Wanted { version: self.version, most: self.page, prefix: None, include, marker: None };
            let mut names = Vec::new();
            for _ in 0..MOST_PAGES {
                let send = |pipeline| Box::pin(wire::list_containers(&service, pipeline, wanted.clone()));
                let (page, _) = serve(&self.keys, account, about, until, send).await?;
                self.count_page(ResourceType::BlobContainers);
                names.extend(page.container_items.into_iter().filter_map(|container| container.name));
                wanted.marker = next_marker(&about, wanted.marker.as_ref(), page.next_marker)?;
                if wanted.marker.is_none() {
                    return Ok(names);
                }
            }
            Err(endless(&about))
        };
        Box::pin(named).await.map_err(|(_, error): Refused| error)
    }

    fn count_page(&self, resource: ResourceType) {
        self.keys.storage().arm().metrics().list_page(resource);
    }

    /// Where an account's blobs are.
    fn service(&self, account: &Account) -> Result<Url, Refused> {
        let name = account.id.name().to_ascii_lowercase();
        let is_account = account.id.is_type(ACCOUNT_TYPE) && is_account_name(&name);
        let url = is_account.then(|| Url::parse(&format!("https://{name}.blob.{}/", self.suffix)).ok());
        url.flatten().ok_or_else(|| unusable(account.id.as_str(), "this is no storage account"))
    }
}

/// Where a list goes on; `None` at its end.
fn next_marker(about: &About<'_>, last: Option<&String>, next: Option<String>) -> Result<Option<String>, Refused> {
    let next = next.filter(|marker| !marker.is_empty());
    if next.is_some() && next.as_ref() == last { Err(endless(about)) } else { Ok(next) }
}

fn endless(about: &About<'_>) -> Refused {
    (Problem::Other(Fault::Malformed), about.failed(Fault::Malformed, "the list has no end"))
}

fn below(service: &Url, path: &str) -> Url {
    let mut url = service.clone();
    url.set_path(path);
    url
}

fn unusable(what: &str, why: &str) -> Refused {
    (Problem::Other(Fault::Invalid), BlobError::ours(Fault::Invalid, what, why))
}
