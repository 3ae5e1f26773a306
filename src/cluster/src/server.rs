//! Names the API server in the errors of calls that it does not answer.
//!
//! The client library's own errors say what went wrong and not where: an operator with several clusters, or with a
//! kubeconfig that names a server that is gone, needs the address.

use std::{
    error::Error,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU16, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use futures::future::BoxFuture;
use http::{Request, Response, StatusCode, Uri};
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
    #[error("the API server {server} answers {status} again and again for {} s", BEGIN.as_secs())]
    Refusing { server: Arc<str>, status: StatusCode },
}

/// What a call of the API server failed of, in words without those of the client library's own layers.
#[derive(Debug)]
pub struct ApiError(kube::Error);

impl ApiError {
    pub(super) fn boxed(error: kube::Error) -> Box<Self> {
        Box::new(Self(error))
    }

    /// The client library's error.
    pub fn call(&self) -> &kube::Error {
        &self.0
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            // The library puts `ServiceError` before it.
            kube::Error::Service(error) => error.fmt(f),
            error => error.fmt(f),
        }
    }
}

impl Error for ApiError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.0 {
            kube::Error::Service(error) => error.source(),
            error => error.source(),
        }
    }
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

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let last = LastStatus::default();
        request.extensions_mut().insert(last.clone());
        let (call, server) = (self.inner.call(request), self.server.clone());
        Box::pin(async move {
            match tokio::time::timeout(BEGIN, call).await {
                Ok(answer) => answer.map_err(|error| failed(&server, error)),
                Err(_) => Err(match last.get() {
                    Some(status) => CallError::Refusing { server, status },
                    None => CallError::Silent { server },
                }
                .into()),
            }
        })
    }
}

/// The status of the last answer to a call, which is repeated after some. A request carries it, and so do its repetitions.
#[derive(Debug, Clone, Default)]
struct LastStatus(Arc<AtomicU16>);

impl LastStatus {
    fn get(&self) -> Option<StatusCode> {
        StatusCode::from_u16(self.0.load(Ordering::Relaxed)).ok()
    }
}

/// The layer below the one that repeats requests: it notes what each was answered.
#[derive(Debug, Clone)]
pub(super) struct NotedStatus;

impl<S> Layer<S> for NotedStatus {
    type Service = Noting<S>;

    fn layer(&self, inner: S) -> Noting<S> {
        Noting { inner }
    }
}

/// A client that notes what was answered.
#[derive(Debug)]
pub(super) struct Noting<S> {
    inner: S,
}

impl<S, B> Service<Request<Body>> for Noting<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    B: 'static,
{
    type Response = Response<B>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Response<B>, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let last = request.extensions().get::<LastStatus>().cloned();
        let call = self.inner.call(request);
        Box::pin(async move {
            let answer = call.await?;
            if let Some(LastStatus(last)) = last {
                last.store(answer.status().as_u16(), Ordering::Relaxed);
            }
            Ok(answer)
        })
    }
}

fn failed(server: &Arc<str>, error: impl Into<BoxError>) -> BoxError {
    CallError::Failed { server: server.clone(), source: error.into() }.into()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

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
            assert!(text.contains(&said) && !text.contains("ServiceError"), "{text}");
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn an_api_server_that_is_overloaded_again_and_again_is_not_said_to_be_silent() {
        let asked = Arc::new(AtomicU16::new(0));
        let counted = asked.clone();
        let overloaded = tower::service_fn(move |_: Request<Body>| {
            counted.fetch_add(1, Ordering::Relaxed);
            let answer = Response::builder().status(503).header("Retry-After", "2").body(Body::empty()).unwrap();
            async { Ok::<_, BoxError>(answer) }
        });
        let named = NamedServer::new(&"https://10.0.0.1:6443/".parse().unwrap());
        let stack = tower::ServiceBuilder::new()
            .layer(named)
            .layer(tower::retry::RetryLayer::new(kube::client::retry::RetryPolicy::server_retry()))
            .layer(tower::buffer::BufferLayer::new(4))
            .layer(NotedStatus)
            .service(overloaded);
        let client = kube::Client::new(stack, "default");
        let error = read_secret(&client, "kube-system", "x").await.unwrap_err();
        let text = chained(&error);
        let said = "the API server https://10.0.0.1:6443 answers 503 Service Unavailable again and again for 25 s";
        assert!(text.contains(said) && asked.load(Ordering::Relaxed) > 5, "{text}");
    }
}
