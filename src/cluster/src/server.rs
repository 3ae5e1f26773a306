//! Names the API server in the errors of calls that it does not answer.
//!
//! The client library's own errors tell what went wrong and not where: an operator with several clusters, or with a
//! kubeconfig that names a server that is gone, needs the address.

use std::{
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures::future::BoxFuture;
use http::{Request, Uri};
use kube::client::Body;
use tower::{BoxError, Layer, Service};

/// How long one call may take. The client library sets no end to reading an answer, for a watch has none.
pub(super) const CALL: Duration = Duration::from_secs(30);
/// How long an answer may take to begin, the connection included: less than a call, so that the error has the address.
const BEGIN: Duration = Duration::from_secs(25);

/// A call that got no answer.
#[derive(Debug, thiserror::Error)]
enum CallError {
    #[error("the API server {server} cannot be called")]
    Failed {
        server: Arc<str>,
        #[source]
        source: BoxError,
    },
    #[error("the API server {server} gives no answer within {} s", BEGIN.as_secs())]
    Silent { server: Arc<str> },
}

/// The layer that names a server, by scheme, host and port.
#[derive(Debug, Clone)]
pub(super) struct NamedServer(Arc<str>);

impl NamedServer {
    pub(super) fn new(url: &Uri) -> Self {
        let scheme = url.scheme_str().unwrap_or("https");
        let host = url.host().unwrap_or_default();
        let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
        Self(format!("{scheme}://{host}{port}").into())
    }
}

impl<S> Layer<S> for NamedServer {
    type Service = Named<S>;

    fn layer(&self, inner: S) -> Named<S> {
        Named { inner, server: self.0.clone() }
    }
}

/// A client whose errors name the server.
#[derive(Debug, Clone)]
pub(super) struct Named<S> {
    inner: S,
    server: Arc<str>,
}

impl<S> Service<Request<Body>> for Named<S>
where
    S: Service<Request<Body>>,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<S::Response, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        let server = &self.server;
        self.inner.poll_ready(context).map_err(|error| failed(server, error))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (call, server) = (self.inner.call(request), self.server.clone());
        Box::pin(async move {
            match tokio::time::timeout(BEGIN, call).await {
                Ok(answer) => answer.map_err(|error| failed(&server, error)),
                Err(_) => Err(CallError::Silent { server }.into()),
            }
        })
    }
}

fn failed(server: &Arc<str>, error: impl Into<BoxError>) -> BoxError {
    CallError::Failed { server: server.clone(), source: error.into() }.into()
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, error::Error};

    use super::*;
    use crate::{connect, read_secret};

    #[test]
    fn a_server_is_named_by_scheme_host_and_port_alone() {
        for (url, name) in [
            ("https://10.0.0.1:6443/", "https://10.0.0.1:6443"),
            ("https://user:word@api.example/path?x=1", "https://api.example"),
            ("http://[::1]:8080", "http://[::1]:8080"),
        ] {
            assert_eq!(&*NamedServer::new(&url.parse().unwrap()).0, name);
        }
    }

    fn chained(error: &dyn Error) -> String {
        let source = error.source().map(chained).unwrap_or_default();
        format!("{error}; {source}")
    }

    #[tokio::test(start_paused = true)]
    async fn an_api_server_that_does_not_answer_is_named_by_its_address() {
        // Bound and closed again: nobody listens there.
        let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        // Takes connections and never answers.
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let folder = std::env::temp_dir().join(format!("lazuli-no-server-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        for (address, said) in [
            (closed, format!("the API server http://{closed} cannot be called")),
            (
                silent.local_addr().unwrap(),
                format!("the API server http://{} gives no answer within 25 s", silent.local_addr().unwrap()),
            ),
        ] {
            let file = folder.join("kubeconfig");
            let text = format!(
                r#"{{"apiVersion": "v1", "kind": "Config", "current-context": "c",
                "clusters": [{{"name": "c", "cluster": {{"server": "http://{address}"}}}}],
                "contexts": [{{"name": "c", "context": {{"cluster": "c", "user": "u"}}}}],
                "users": [{{"name": "u", "user": {{}}}}]}}"#
            );
            std::fs::write(&file, text).unwrap();
            let client = connect(Some(&file), &BTreeMap::new()).await.unwrap().unwrap();
            let error = read_secret(&client, "kube-system", "x").await.unwrap_err();
            let text = chained(&error);
            assert!(text.contains(&said), "{text}");
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
