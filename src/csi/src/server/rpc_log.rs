//! One log line per RPC, written where the RPC leaves the process.
//!
//! A line holds the method, the volume, the code, the duration and a request id. It never holds a request: requests
//! carry secrets. Calls that change something are INFO, calls that only look are DEBUG, failures are WARN.
//!
//! A call that panics is an ERROR and gets an answer like any other: its connection, and the calls beside it, go on.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
};

use lazuli_model::fault as plan;
use lazuli_telemetry::panics::{Panicked, catch};
use tokio::time::Instant;
use tonic::{Code, Status};
use tower::{Layer, Service};
use tracing::{Instrument as _, field::Empty};

use super::{GoDriver, Made, RpcMetrics, go_operations::Ended, status};

/// What a handler tells the log about the call it serves.
///
/// The layer puts one into each request's extensions; [`RpcNote::of`] finds it.
#[derive(Debug, Clone, Default)]
pub struct RpcNote {
    volume: Arc<OnceLock<String>>,
    node: Arc<OnceLock<String>>,
    made: Arc<OnceLock<Made>>,
}

impl RpcNote {
    /// The note of this request; an unread one when no layer is there.
    pub fn of<T>(request: &tonic::Request<T>) -> Self {
        request.extensions().get::<Self>().cloned().unwrap_or_default()
    }

    /// Says which volume, snapshot or node the call is about. The first one said stays.
    pub fn about(&self, id: &str) {
        if !id.is_empty() {
            let _ = self.volume.set(id.to_owned());
            tracing::Span::current().record("volume", id);
        }
    }

    /// Says what the call makes or changes, for what is counted. What is said first stays.
    pub fn makes(&self, made: Made) {
        let _ = self.made.set(made);
    }

    /// Says which node the call is about, where it names one besides the volume. The first one said stays.
    pub fn on(&self, node: &str) {
        if !node.is_empty() {
            let _ = self.node.set(node.to_owned());
            tracing::Span::current().record("node", node);
        }
    }
}

/// The layer that logs; see the module.
#[derive(Debug, Clone, Default)]
pub struct RpcLayer {
    calls: Arc<AtomicU64>,
    metrics: Option<RpcMetrics>,
}

impl RpcLayer {
    /// A layer that counts, too.
    pub fn with_metrics(metrics: RpcMetrics) -> Self {
        Self { calls: Arc::default(), metrics: Some(metrics) }
    }

    /// The same layer in front of a driver, under whose names the Go projects count the calls.
    #[must_use]
    pub fn of(self, driver: GoDriver) -> Self {
        Self { metrics: self.metrics.map(|metrics| metrics.of(driver)), ..self }
    }
}

/// A service with the log around it.
#[derive(Debug, Clone)]
pub struct RpcLog<S> {
    inner: S,
    calls: Arc<AtomicU64>,
    metrics: Option<RpcMetrics>,
}

impl<S> Layer<S> for RpcLayer {
    type Service = RpcLog<S>;

    fn layer(&self, inner: S) -> RpcLog<S> {
        RpcLog { inner, calls: self.calls.clone(), metrics: self.metrics.clone() }
    }
}

impl<S, B, R> Service<http::Request<B>> for RpcLog<S>
where
    S: Service<http::Request<B>, Response = http::Response<R>>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    R: Default + Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: http::Request<B>) -> Self::Future {
        let note = RpcNote::default();
        let method = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
        let request_id = self.calls.fetch_add(1, Ordering::Relaxed);
        let span = tracing::info_span!("rpc", method, request_id, volume = Empty, node = Empty);
        request.extensions_mut().insert(note.clone());
        let call = self.inner.call(request).instrument(span);
        let metrics = self.metrics.clone();
        Box::pin(async move {
            let mut line = Line { method, request_id, note, metrics, began: Instant::now(), written: false };
            let answer = match catch(call).await {
                Ok(answer) => answer,
                Err(panicked) => return Ok(line.panicked(&panicked).into_http()),
            };
            match &answer {
                // A unary failure is a response without a body: its status is in the headers.
                Ok(response) => line.write(Status::from_header_map(response.headers())),
                Err(_) => line.write(Some(Status::unknown("the connection broke"))),
            }
            answer
        })
    }
}

/// A line that is written even if the caller gives up and the call is dropped.
struct Line {
    method: String,
    request_id: u64,
    note: RpcNote,
    metrics: Option<RpcMetrics>,
    began: Instant,
    written: bool,
}

impl Line {
    /// Counts the call; gives how long it took, in milliseconds.
    fn count(&mut self, code: Code) -> u64 {
        self.written = true;
        let took = self.began.elapsed();
        if let Some(metrics) = &self.metrics {
            metrics.observe(&Ended { method: &self.method, code, took, made: self.note.made.get().copied() });
        }
        u64::try_from(took.as_millis()).unwrap_or(u64::MAX)
    }

    /// Writes the line of a call that panicked; gives what its caller is answered.
    fn panicked(&mut self, panicked: &Panicked) -> Status {
        let code = code_of_panic(&self.method);
        let duration_ms = self.count(Code::from(code as i32));
        let (method, request_id) = (self.method.as_str(), self.request_id);
        let volume = self.note.volume.get().map_or("", String::as_str);
        let node = self.note.node.get().map_or("", String::as_str);
        tracing::error!(method, volume, node, request_id, duration_ms, ?code, error = %panicked, "RPC panicked");
        status(code, format!("{method} was broken off: {panicked}; the log of this process says where"))
    }

    fn write(&mut self, status: Option<Status>) {
        let duration_ms = self.count(status.as_ref().map_or(Code::Ok, Status::code));
        let method = self.method.as_str();
        let request_id = self.request_id;
        let volume = self.note.volume.get().map_or("", String::as_str);
        match status.filter(|status| status.code() != Code::Ok) {
            Some(status) => {
                let code = status.code();
                let error = status.message();
                tracing::warn!(method, volume, request_id, duration_ms, ?code, error, "RPC failed");
            }
            None if changes(method) => tracing::info!(method, volume, request_id, duration_ms, "RPC done"),
            None => tracing::debug!(method, volume, request_id, duration_ms, "RPC done"),
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if !self.written {
            self.write(Some(Status::cancelled("the caller went away before the answer")));
        }
    }
}

/// What a caller is answered whose call panicked. One that changes something may have sent its write: external-provisioner
/// and kubelet take INTERNAL for "nothing is under way" and would leave a disk behind, and come back after UNAVAILABLE.
fn code_of_panic(method: &str) -> plan::Code {
    if changes(method) { plan::Code::Unavailable } else { plan::Code::Internal }
}

/// Whether an RPC of this name changes something.
fn changes(method: &str) -> bool {
    let verb = method.strip_prefix("Controller").or_else(|| method.strip_prefix("Node")).unwrap_or(method);
    !["Get", "List", "Probe", "Validate"].iter().any(|read| verb.starts_with(read))
}

#[cfg(test)]
mod tests {
    use std::{
        convert::Infallible,
        io::{self, Write},
        sync::Mutex,
    };

    use tower::ServiceExt as _;

    use super::*;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// What is logged when this method is called with a secret in its body and answers with this status.
    async fn logged(method: &str, answer: Option<Status>) -> String {
        let written = Written::default();
        let writer = written.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::DEBUG)
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        let _guard = tracing::subscriber::set_default(subscriber);
        let service = tower::service_fn(move |request: http::Request<String>| {
            let answer = answer.clone();
            async move {
                assert!(request.body().contains("hunter2"));
                request.extensions().get::<RpcNote>().unwrap().about("disk-1");
                Ok::<_, Infallible>(match answer {
                    Some(status) => status.into_http::<String>(),
                    None => http::Response::new(String::new()),
                })
            }
        });
        let request = http::Request::post(format!("http://localhost/csi.v1.Node/{method}"));
        let request = request.body("password: hunter2".to_owned()).unwrap();
        RpcLayer::default().layer(service).oneshot(request).await.unwrap();
        let bytes = written.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[tokio::test]
    async fn a_call_is_one_line_with_method_and_volume_and_no_secret() {
        let changed = logged("NodeStageVolume", None).await;
        assert!(changed.contains("INFO") && changed.contains("NodeStageVolume"), "{changed}");
        assert!(changed.contains("disk-1") && changed.contains("duration_ms"), "{changed}");
        assert_eq!(changed.lines().count(), 1, "{changed}");
        let looked = logged("NodeGetVolumeStats", None).await;
        assert!(looked.contains("DEBUG"), "{looked}");
        let failed = logged("NodeStageVolume", Some(Status::unavailable("no disk yet"))).await;
        assert!(
            failed.contains("WARN") && failed.contains("Unavailable") && failed.contains("no disk yet"),
            "{failed}"
        );
        for line in [changed, looked, failed] {
            assert!(!line.contains("hunter2"), "{line}");
        }
    }

    #[tokio::test]
    async fn a_call_that_panics_is_an_error_with_volume_and_node_and_has_an_answer_that_is_not_final() {
        let written = Written::default();
        let writer = written.clone();
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
        let _guard = tracing::subscriber::set_default(subscriber);
        let service = tower::service_fn(|request: http::Request<String>| async move {
            let note = request.extensions().get::<RpcNote>().unwrap();
            note.about("disk-1");
            note.on("node-7");
            if request.uri().path().len() > 1 {
                panic!("an index was wrong");
            }
            Ok::<_, Infallible>(http::Response::new(String::new()))
        });
        for (method, code) in [
            ("ControllerPublishVolume", Code::Unavailable),
            ("CreateVolume", Code::Unavailable),
            ("NodeStageVolume", Code::Unavailable),
            ("ControllerGetVolume", Code::Internal),
        ] {
            let request = http::Request::post(format!("http://localhost/csi.v1.Any/{method}")).body(String::new());
            let answer = RpcLayer::default().layer(service).oneshot(request.unwrap()).await.unwrap();
            let status = Status::from_header_map(answer.headers()).unwrap();
            assert_eq!(status.code(), code, "{method}");
            assert!(status.message().contains("an index was wrong"), "{}", status.message());
            let line = String::from_utf8(std::mem::take(&mut *written.0.lock().unwrap())).unwrap();
            for part in ["ERROR", method, "disk-1", "node-7", "an index was wrong"] {
                assert!(line.contains(part), "{part} is not in {line}");
            }
            assert_eq!(line.lines().count(), 1, "{line}");
        }
    }

    #[test]
    fn looking_is_told_from_changing_by_the_name() {
        for method in ["CreateVolume", "ControllerPublishVolume", "NodeStageVolume", "NotifyRegistrationStatus"] {
            assert!(changes(method), "{method}");
        }
        for method in ["NodeGetInfo", "ControllerGetVolume", "ListVolumes", "Probe", "ValidateVolumeCapabilities"] {
            assert!(!changes(method), "{method}");
        }
    }
}
