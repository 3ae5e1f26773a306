//! The way to the API server.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::{Path, PathBuf};

use http::Uri;
use kube::Client;
use kube::api::{GetParams, ListParams};
use kube::client::ClientBuilder;
use kube::client::retry::RetryPolicy;
use kube::config::{Config, InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::core::Request;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use tower::buffer::BufferLayer;
use tower::retry::RetryLayer;

use super::proxy::{self, ProxyError};
use super::server::{CALL, NamedServer, NotedStatus};

/// Source: Kubernetes sets it in every pod.
const IN_CLUSTER: &str = "KUBERNETES_SERVICE_HOST";

/// Who asks, in the API server's audit log and metrics.
const USER_AGENT: &str = concat!("lazuli/", env!("CARGO_PKG_VERSION"));

/// Requests that wait for the connection; source: the client library's own bound.
const WAITING_REQUESTS: usize = 1_024;
/// The most objects a page of a list has; source: the default of client-go.
pub(super) const PAGE: u32 = 500;
/// How many objects the first page has. An object may have 1.5 MiB, and who writes it may mean harm.
const FIRST_PAGE: u32 = 25;
/// How many bytes a page should have at most. The next page has fewer objects where this one had more, and more objects
/// where it had far less: then a list of small objects needs hardly more pages.
const PAGE_BYTES: usize = 2 * 1024 * 1024;
/// How much larger than the last one a page may be.
const GROWTH: u32 = 4;

/// How many objects the next page has after one with so many objects and bytes.
fn next_page(objects: u32, bytes: usize) -> u32 {
    let fit = usize::try_from(objects).unwrap_or(usize::MAX).saturating_mul(PAGE_BYTES) / bytes.max(1);
    u32::try_from(fit).unwrap_or(u32::MAX).clamp(1, objects.saturating_mul(GROWTH).min(PAGE))
}

/// The API server took a call and did not answer it in time.
#[derive(Debug, thiserror::Error)]
#[error("no answer within {} s", CALL.as_secs())]
struct NoAnswer;

/// One call, with an end.
pub(super) async fn answered<T>(call: impl Future<Output = kube::Result<T>>) -> kube::Result<T> {
    let late = |_| Err(kube::Error::Service(Box::new(NoAnswer)));
    tokio::time::timeout(CALL, call).await.unwrap_or_else(late)
}

/// One object of a collection; `None` where there is none of that name.
pub(super) async fn get<K: DeserializeOwned>(client: &Client, collection: &str, name: &str) -> kube::Result<Option<K>> {
    let request = Request::new(collection).get(name, &GetParams::default()).map_err(kube::Error::BuildRequest)?;
    match answered(client.request(request)).await {
        Ok(object) => Ok(Some(object)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error),
    }
}

/// The objects of a collection that a selector finds, by one consistent read. Unlike [`Pages`] without pages: the API server
/// answers so from its memory, with its indices, and a limit would send it through all objects of the cluster (source:
/// `shouldDelegateList` of kube-apiserver). For selectors that find few.
pub(super) async fn select<K: DeserializeOwned>(
    client: &Client,
    collection: &str,
    only: &ListParams,
) -> kube::Result<Vec<K>> {
    let request = Request::new(collection).list(only).map_err(kube::Error::BuildRequest)?;
    let page: Page<K> = answered(client.request(request)).await?;
    Ok(page.into_items())
}

/// Decodes a list or map that is null as an empty one: Go programs write null where they keep no list. With
/// `serde(default)`, because others leave the member out.
pub(super) fn null_as_empty<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// A page of a list.
#[derive(Deserialize)]
pub(super) struct Page<K> {
    #[serde(default)]
    metadata: PageMetadata,
    items: Option<Vec<K>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PageMetadata {
    #[serde(default)]
    resource_version: String,
    #[serde(rename = "continue")]
    next: Option<String>,
}

impl<K> Page<K> {
    /// The objects of this page.
    pub(super) fn into_items(self) -> Vec<K> {
        self.items.unwrap_or_default()
    }

    /// The version that the list shows.
    pub(super) fn resource_version(&self) -> &str {
        &self.metadata.resource_version
    }
}

/// A list of a collection, read page by page. Without a resource version in the request: the answer is a consistent
/// read, not an old cache.
pub(super) struct Pages<'c> {
    client: &'c Client,
    request: Request,
    /// What to ask next; `None` after the last page.
    next: Option<ListParams>,
    /// How many objects to ask for.
    objects: u32,
}

impl<'c> Pages<'c> {
    pub(super) fn new(client: &'c Client, collection: &str) -> Self {
        let next = Some(ListParams::default().limit(FIRST_PAGE));
        Self { client, request: Request::new(collection), next, objects: FIRST_PAGE }
    }

    /// The next page; `None` after the last.
    pub(super) async fn next<K: DeserializeOwned>(&mut self) -> kube::Result<Option<Page<K>>> {
        let Some(params) = self.next.take() else { return Ok(None) };
        let request = self.request.list(&params).map_err(kube::Error::BuildRequest)?;
        let text = answered(self.client.request_text(request)).await?;
        let page: Page<K> = serde_json::from_str(&text).map_err(kube::Error::SerdeError)?;
        self.objects = next_page(self.objects, text.len());
        let token = page.metadata.next.as_deref().filter(|token| !token.is_empty());
        self.next = token.map(|token| ListParams::default().limit(self.objects).continue_token(token));
        Ok(Some(page))
    }
}

/// Why the client could not be made although a cluster was named.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The kubeconfig is incomplete.
    #[error("cannot use the kubeconfig {}", path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: Box<KubeconfigError>,
    },
    /// The kubeconfig cannot be read. Without the client library's words: they repeat path and cause.
    #[error("cannot read the kubeconfig {}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The kubeconfig is not valid YAML. Without the parser's words: they may quote a token.
    #[error("the kubeconfig {} is not valid", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
    },
    /// The pod's service account cannot be used.
    #[error("cannot use the service account of this pod")]
    InCluster(#[source] Box<InClusterError>),
    /// The proxy cannot be used.
    #[error("cannot use the proxy before the Kubernetes API")]
    Proxy(#[source] ProxyError),
    /// TLS or the proxy cannot be set up.
    #[error("cannot set up the client of the Kubernetes API")]
    Client(#[source] Box<kube::Error>),
}

/// A client, or `None` where nothing names a cluster. Makes no connection: the first request does.
///
/// In this order: `kubeconfig` (a flag), `$KUBECONFIG` (the first of its files wins where they disagree), the
/// pod's service account. `~/.kube/config` is not looked for: a program run on a laptop must not touch a
/// cluster that its caller did not name. The proxy is that of the kubeconfig's `proxy-url`, else of `HTTPS_PROXY`, `HTTP_PROXY`,
/// `ALL_PROXY` and `NO_PROXY`.
///
/// # Errors
/// [`ConnectError`]: a cluster was named and cannot be used.
pub async fn connect(
    kubeconfig: Option<&Path>,
    variables: &BTreeMap<String, String>,
) -> Result<Option<Client>, ConnectError> {
    connect_as(USER_AGENT, kubeconfig, variables).await
}

/// The same as [`connect`], with another name in the API server's audit log and metrics.
///
/// # Errors
/// [`ConnectError`]: a cluster was named and cannot be used.
pub async fn connect_as(
    user_agent: &'static str,
    kubeconfig: Option<&Path>,
    variables: &BTreeMap<String, String>,
) -> Result<Option<Client>, ConnectError> {
    let named = |name| variables.get(name).filter(|value| !value.is_empty());
    let paths: Vec<PathBuf> = match (kubeconfig, named("KUBECONFIG")) {
        (Some(path), _) => vec![path.to_owned()],
        (None, Some(list)) => std::env::split_paths(list).filter(|path| !path.as_os_str().is_empty()).collect(),
        (None, None) => Vec::new(),
    };
    let (mut config, named_proxy) = if !paths.is_empty() {
        from_files(&paths).await?
    } else if named(IN_CLUSTER).is_some() {
        (Config::incluster().map_err(|source| ConnectError::InCluster(Box::new(source)))?, None)
    } else {
        return Ok(None);
    };
    config.headers.push((http::header::USER_AGENT, http::HeaderValue::from_static(user_agent)));
    config.proxy_url = match named_proxy {
        Some(proxy) => Some(proxy),
        None => proxy::of_environment(&config.cluster_url, variables).map_err(ConnectError::Proxy)?,
    };
    let named = NamedServer::new(&config.cluster_url);
    // The library would repeat requests below the layer that names the server, where no layer sees what was answered.
    config.default_retry = false;
    let client = ClientBuilder::try_from(config).map_err(|source| ConnectError::Client(Box::new(source)))?;
    let repeating = RetryLayer::new(RetryPolicy::server_retry());
    let client = client.with_layer(&NotedStatus).with_layer(&BufferLayer::new(WAITING_REQUESTS));
    Ok(Some(client.with_layer(&repeating).with_layer(&named).build()))
}

/// The configuration of kubeconfigs, and the proxy that they name.
async fn from_files(paths: &[PathBuf]) -> Result<(Config, Option<Uri>), ConnectError> {
    let failed = |path: &Path, source| match source {
        KubeconfigError::Parse(_) => ConnectError::Malformed { path: path.to_owned() },
        KubeconfigError::ReadConfig(source, _) => ConnectError::Unreadable { path: path.to_owned(), source },
        source => ConnectError::Kubeconfig { path: path.to_owned(), source: Box::new(source) },
    };
    let mut merged = Kubeconfig::default();
    let mut last: &Path = Path::new("");
    for path in paths {
        last = path;
        let one = Kubeconfig::read_from(path).map_err(|source| failed(path, source))?;
        merged = merged.merge(one).map_err(|source| failed(path, source))?;
    }
    let proxy = proxy::named_in(&merged).map_err(ConnectError::Proxy)?;
    let config = Config::from_custom_kubeconfig(merged, &KubeConfigOptions::default()).await;
    Ok((config.map_err(|source| failed(last, source))?, proxy))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_large_objects_are_short_and_those_of_small_ones_grow() {
        let sizes = |bytes_of_object: usize| {
            let mut size = FIRST_PAGE;
            std::iter::from_fn(move || {
                let page = size;
                size = next_page(size, page as usize * bytes_of_object);
                Some(page)
            })
        };
        assert_eq!(sizes(3_000).take(4).collect::<Vec<_>>(), [25, 100, 400, 500]);
        // No page but the first has more than two MiB.
        let large = 256 * 1024;
        assert_eq!(sizes(large).take(3).collect::<Vec<_>>(), [25, 8, 8]);
        assert_eq!(sizes(3 * 1024 * 1024).take(3).collect::<Vec<_>>(), [25, 1, 1]);
        assert_eq!(next_page(PAGE, 0), PAGE);
    }
}
