//! The line between a client and Azure: everything that goes over it is witnessed, and it can be cut.
//!
//! A process that is killed sends nothing more and hears nothing more; what Azure has accepted goes on. In one
//! runtime no task can be killed from outside, so its line is cut instead: for Azure that is the same.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
};

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use http::{Request, Response};
use lazuli_azure::{
    arm::{Arm, Retry},
    auth::{Credential, Secret, Tokens},
    compute::{ApiVersions, Compute},
    metrics::Metrics,
    transport::{Routes, Transport},
};
use lazuli_csi::controller::ControllerService;
use lazuli_disk::{Settings, Volumes};
use lazuli_emulator::{Emulator, scenario};
use lazuli_model::{Lun, node::ClusterNodes, op::VmWriteMethod, size::SizeLimits};
use lazuli_storage::{
    list::VolumeHandles,
    lun::{LunReservations, Reservation},
};
use lazuli_volume::{Cloud, Defaults};
use prometheus_client::registry::Registry;
use serde_json::Value;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tower::{Service, ServiceExt};
use url::Url;

use super::{
    judge::{Judge, Who},
    script::{Method, World},
};

const ARM: &str = "https://management.azure.com";
const LOGIN: &str = "https://login.microsoftonline.com";

/// One client's line to Azure.
#[derive(Clone)]
pub(super) struct Line {
    router: axum::Router,
    judge: Arc<Mutex<Judge>>,
    who: Who,
    cut: CancellationToken,
}

impl<B> Service<Request<B>> for Line
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<axum::BoxError>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let line = self.clone();
        Box::pin(async move {
            if line.cut.is_cancelled() {
                std::future::pending::<()>().await;
            }
            let (method, path) = (request.method().to_string(), request.uri().path().to_lowercase());
            line.judge.lock().unwrap().request_leaves(line.who, &method, &path);
            let answer = line.router.oneshot(request.map(Body::new)).await;
            line.judge.lock().unwrap().request_is_answered(line.who, &method);
            if line.cut.is_cancelled() {
                std::future::pending::<()>().await;
            }
            answer
        })
    }
}

/// A controller, as one process has it.
pub(super) struct Replica {
    pub(super) number: u32,
    pub(super) service: ControllerService,
    /// What this replica knows of VolumeAttachments.
    pub(super) informer: watch::Sender<LunReservations>,
    line: CancellationToken,
}

impl Replica {
    /// Starts one, with nothing known of VolumeAttachments.
    pub(super) fn start(number: u32, world: &World, emulator: &Emulator, judge: &Arc<Mutex<Judge>>) -> Self {
        let cut = CancellationToken::new();
        let line =
            Line { router: emulator.service(), judge: judge.clone(), who: Who::Replica(number), cut: cut.clone() };
        let url = |text: &str| Url::parse(text).unwrap();
        // Not where the emulator listens: that is told in errors, and differs from run to run.
        let base = url("http://127.0.0.1:1/");
        let routes =
            [ARM, LOGIN].iter().fold(Routes::none(), |routes, origin| routes.with(&url(origin), &base).unwrap());
        let transport = Transport::in_process(routes, line);
        let credential = Credential::ClientSecret {
            tenant_id: scenario::TENANT.into(),
            client_id: scenario::CLIENT_ID.into(),
            secret: Secret::new(scenario::CLIENT_SECRET),
            authority: url(LOGIN),
        };
        let seed = world.seed.wrapping_add(u64::from(number));
        let tokens = Tokens::new(transport.clone(), credential, "https://management.azure.com/", seed);
        let metrics = Metrics::register(&mut Registry::default(), Default::default());
        let arm = Arm::new(url(ARM), transport, tokens, metrics, Retry::default(), seed);
        let stack = world.method == Method::AzureStack;
        let versions = if stack { ApiVersions::azure_stack() } else { ApiVersions::public() };
        let (informer, reservations) = watch::channel(LunReservations::Cold);
        let volumes = Volumes::new(Settings {
            blobs: None,
            compute: Compute::new(arm, versions),
            subscription: scenario::SUBSCRIPTION.into(),
            resource_group: scenario::RESOURCE_GROUP.into(),
            reservations,
            handles: watch::channel(VolumeHandles::NoCluster).1,
            nodes: watch::channel(ClusterNodes::NoCluster).1,
            sizes: watch::channel(SizeLimits::default()).1,
            events: Default::default(),
            force_detach: Default::default(),
            detach_unused: Default::default(),
            admission: Default::default(),
            node_facts: None,
            method: match world.method {
                Method::Action => VmWriteMethod::Action,
                Method::WholeList => VmWriteMethod::WholeList,
                Method::AzureStack => VmWriteMethod::WholeListByOmission,
            },
            metrics: lazuli_reconcile::metrics::Metrics::unregistered(),
            journal: lazuli_journal::Recorder::nowhere(),
        });
        let defaults = Defaults {
            subscription: scenario::SUBSCRIPTION.into(),
            resource_group: scenario::RESOURCE_GROUP.into(),
            location: scenario::LOCATION.into(),
            cloud: if stack { Cloud::AzureStack } else { Cloud::Public },
            ..Defaults::default()
        };
        Self { number, service: ControllerService::new(volumes, defaults), informer, line: cut }
    }

    /// kill -9.
    pub(super) fn kill(&self) {
        self.line.cancel();
    }

    /// Its informer has the attachments: node, LUN, volume handle.
    pub(super) fn inform(&self, attachments: &[(String, u8, String)]) {
        let mut nodes: BTreeMap<String, Vec<Reservation>> = BTreeMap::new();
        for (node, lun, handle) in attachments {
            nodes.entry(node.clone()).or_default().push(Reservation {
                lun: Lun::try_from(i64::from(*lun)).unwrap(),
                volume_handle: Some(handle.clone()),
                attachment: format!("csi-{node}-{lun}"),
            });
        }
        self.informer.send_replace(LunReservations::Synced(nodes));
    }
}

/// Another tool's client.
#[derive(Clone)]
pub(super) struct Tool {
    line: Line,
    token: String,
}

impl Tool {
    pub(super) fn new(emulator: &Emulator, judge: &Arc<Mutex<Judge>>) -> Self {
        let line =
            Line { router: emulator.service(), judge: judge.clone(), who: Who::Tool, cut: CancellationToken::new() };
        Self { line, token: emulator.control().token() }
    }

    /// Sends one request and gives the status.
    pub(super) async fn call(&self, method: &str, path: &str, body: Option<Value>) -> u16 {
        let version = if path.contains("/disks/") { "2025-01-02" } else { "2025-04-01" };
        let request = Request::builder()
            .method(method)
            .uri(format!("{path}?api-version={version}"))
            .header("authorization", format!("Bearer {}", self.token))
            .header("content-type", "application/json")
            .body(Body::from(body.map(|body| body.to_string()).unwrap_or_default()))
            .unwrap();
        let Ok(answer) = self.line.clone().oneshot(request).await;
        answer.status().as_u16()
    }

    pub(super) async fn attach(&self, node: &str, disk: &str, lun: u8) -> u16 {
        let body = serde_json::json!({"dataDisksToAttach": [{"diskId": disk_id(disk), "lun": lun}]});
        self.call("POST", &format!("{}/attachDetachDataDisks", vm_id(node)), Some(body)).await
    }

    pub(super) async fn detach(&self, node: &str, disk: &str) -> u16 {
        let body = serde_json::json!({"dataDisksToDetach": [{"diskId": disk_id(disk)}]});
        self.call("POST", &format!("{}/attachDetachDataDisks", vm_id(node)), Some(body)).await
    }

    pub(super) async fn delete(&self, disk: &str) -> u16 {
        self.call("DELETE", &disk_id(disk), None).await
    }
}

fn compute(kind: &str, name: &str) -> String {
    let (subscription, group) = (scenario::SUBSCRIPTION, scenario::RESOURCE_GROUP);
    format!("/subscriptions/{subscription}/resourceGroups/{group}/providers/Microsoft.Compute/{kind}/{name}")
}

pub(super) fn disk_id(name: &str) -> String {
    compute("disks", name)
}

pub(super) fn vm_id(name: &str) -> String {
    compute("virtualMachines", name)
}
