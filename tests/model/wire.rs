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
use http_body_util::BodyExt as _;
use lazuli_azure::{
    arm::{Arm, Retry},
    auth::{Credential, Secret, Tokens},
    blob::{Blobs, ServiceVersion},
    compute::{ApiVersions, Compute},
    metrics::Metrics,
    storage::Storage,
    transport::{Routes, Transport},
};
use lazuli_blob_disk::BlobDisks;
use lazuli_csi::controller::ControllerService;
use lazuli_disk::{PageBlobs, Settings, Volumes};
use lazuli_emulator::{Emulator, scenario};
use lazuli_model::{AllowedResourceGroups, Lun, node::ClusterNodes, op::VmWriteMethod, size::SizeLimits};
use lazuli_storage::{
    list::VolumeHandles,
    lun::{LunReservations, Reservation},
};
use lazuli_vhd::class;
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
const STORAGE_SUFFIX: &str = "core.windows.net";
const LOGIN: &str = "https://login.microsoftonline.com";

/// One client's line to Azure.
#[derive(Clone)]
pub(super) struct Line {
    router: axum::Router,
    /// What goes to the blob services of accounts goes over TLS.
    blobs: axum::Router,
    judge: Arc<Mutex<Judge>>,
    who: Who,
    cut: CancellationToken,
}

impl Line {
    fn new(emulator: &Emulator, judge: &Arc<Mutex<Judge>>, who: Who, cut: CancellationToken) -> Self {
        Self { router: emulator.service(), blobs: emulator.service_over_tls(), judge: judge.clone(), who, cut }
    }
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
            let query = request.uri().query().unwrap_or_default().to_owned();
            line.judge.lock().unwrap().request_leaves(line.who, &method, (&path, &query));
            let host = request.headers().get(http::header::HOST).and_then(|host| host.to_str().ok());
            let is_of_blobs = host.is_some_and(|host| host.contains(".blob."));
            let router = if is_of_blobs { line.blobs } else { line.router };
            let answer = router.oneshot(request.map(Body::new)).await;
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
    /// The handles of PersistentVolumes, in a world of VHDs.
    handles: watch::Sender<VolumeHandles>,
    line: CancellationToken,
}

impl Replica {
    /// Starts one, with nothing known of VolumeAttachments.
    pub(super) fn start(number: u32, world: &World, emulator: &Emulator, judge: &Arc<Mutex<Judge>>) -> Self {
        let cut = CancellationToken::new();
        let line = Line::new(emulator, judge, Who::Replica(number), cut.clone());
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
        let storage = if stack { Storage::of_azure_stack(arm.clone()) } else { Storage::new(arm.clone()) };
        let service_version = if stack { ServiceVersion::StackHub } else { ServiceVersion::Newest };
        let page_blobs = Blobs::new(storage.clone(), STORAGE_SUFFIX, service_version);
        let blobs = world.vhds.as_ref().map(|_| {
            BlobDisks::new(lazuli_blob_disk::Settings {
                storage: storage.clone(),
                blobs: page_blobs.clone(),
                suffix: STORAGE_SUFFIX.into(),
                is_stack_hub: stack,
                subscription: scenario::SUBSCRIPTION.into(),
                resource_group: scenario::RESOURCE_GROUP.into(),
                allowed_resource_groups: AllowedResourceGroups::Any,
                cluster_name: String::new(),
                metrics: lazuli_reconcile::metrics::Metrics::unregistered(),
                journal: lazuli_journal::Recorder::nowhere(),
            })
        });
        let unknown = if world.vhds.is_some() { VolumeHandles::Cold } else { VolumeHandles::NoCluster };
        let (handles, known_handles) = watch::channel(unknown);
        let volumes = Volumes::new(Settings {
            blobs,
            compute: Compute::new(arm, versions),
            subscription: scenario::SUBSCRIPTION.into(),
            resource_group: scenario::RESOURCE_GROUP.into(),
            reservations,
            handles: known_handles,
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
        let service = match &world.vhds {
            None => ControllerService::new(volumes, defaults),
            Some(vhds) => {
                let volumes = volumes.with_page_blobs(PageBlobs::new(storage, page_blobs));
                let wanted = if vhds.always { class::BlobDisks::Always } else { class::BlobDisks::Auto };
                ControllerService::new(volumes, defaults).with_blob_disks(wanted)
            }
        };
        Self { number, service, informer, handles, line: cut }
    }

    /// kill -9.
    pub(super) fn kill(&self) {
        self.line.cancel();
    }

    /// Its informers have the attachments, as node, LUN and volume handle, and the handles of all volumes.
    pub(super) fn inform(&self, attachments: &[(String, u8, String)], volumes: &[String]) {
        if *self.handles.borrow() != VolumeHandles::NoCluster {
            let handles = volumes.iter().map(|handle| (format!("pv of {handle}"), handle.as_str().into()));
            self.handles.send_replace(VolumeHandles::Synced(handles.collect()));
        }
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
        let line = Line::new(emulator, judge, Who::Tool, CancellationToken::new());
        Self { line, token: emulator.control().token() }
    }

    /// Sends one request and gives the status.
    pub(super) async fn call(&self, method: &str, path: &str, body: Option<Value>) -> u16 {
        self.ask(method, path, body).await.0
    }

    async fn ask(&self, method: &str, path: &str, body: Option<Value>) -> (u16, Value) {
        let version = match path {
            _ if path.contains("/disks/") => "2025-01-02",
            _ if path.contains("/storageAccounts/") => "2025-01-01",
            _ => "2025-04-01",
        };
        let request = Request::builder()
            .method(method)
            .uri(format!("{path}?api-version={version}"))
            .header("authorization", format!("Bearer {}", self.token))
            .header("content-type", "application/json")
            .body(Body::from(body.map(|body| body.to_string()).unwrap_or_default()))
            .unwrap();
        let Ok(answer) = self.line.clone().oneshot(request).await;
        let status = answer.status().as_u16();
        // An answer that is lost on purpose has no body.
        let body = answer.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        (status, serde_json::from_slice(&body).unwrap_or_default())
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

    /// Changes the list of a machine's data disks.
    pub(super) async fn write_list(&self, node: &str, change: impl FnOnce(&mut Vec<Value>)) -> u16 {
        let (status, mut machine) = self.ask("GET", &vm_id(node), None).await;
        let Value::Array(mut disks) = machine["properties"]["storageProfile"]["dataDisks"].take() else {
            return status;
        };
        change(&mut disks);
        let body = serde_json::json!({"properties": {"storageProfile": {"dataDisks": disks}}});
        self.call("PATCH", &vm_id(node), Some(body)).await
    }

    pub(super) async fn make_account(&self, name: &str) -> u16 {
        let body = serde_json::json!({
            "location": scenario::LOCATION, "sku": {"name": "Standard_LRS"}, "kind": "StorageV2",
            "properties": {"supportsHttpsTrafficOnly": true},
        });
        self.call("PUT", &account_id(name), Some(body)).await
    }

    pub(super) async fn delete_account(&self, name: &str) -> u16 {
        self.call("DELETE", &account_id(name), None).await
    }

    pub(super) async fn rotate_keys(&self, account: &str) -> u16 {
        let path = format!("{}/regenerateKey", account_id(account));
        let mut status = 0;
        for key in ["key1", "key2"] {
            status = self.call("POST", &path, Some(serde_json::json!({"keyName": key}))).await;
        }
        status
    }

    pub(super) async fn make_share(&self, account: &str) -> u16 {
        let path = format!("{}/fileServices/default/shares/other", account_id(account));
        self.call("PUT", &path, Some(serde_json::json!({"properties": {"shareQuota": 1}}))).await
    }
}

fn account_id(name: &str) -> String {
    let (subscription, group) = (scenario::SUBSCRIPTION, scenario::RESOURCE_GROUP);
    format!("/subscriptions/{subscription}/resourceGroups/{group}/providers/Microsoft.Storage/storageAccounts/{name}")
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
