//! The cluster whole: Azure, Kubernetes and the chart.

use std::{fs, path::Path};

use serde_json::{Value, json};

use crate::{
    azure::Azure,
    chart,
    emulator::{self, NODES, text, words},
    kubernetes::{CloudProvider, Controllers, Kubernetes, collection},
    process::{Folder, Process},
};

/// The driver of disks.
const DRIVER: &str = "disk.csi.azure.com";
/// The taint that keeps pods off a node until the driver serves there.
const START_UP_TAINT: &str = "disk.csi.azure.com/agent-not-ready";
/// The pods of the chart.
pub const PODS_OF_THE_CHART: &str = "/api/v1/namespaces/kube-system/pods?labelSelector=app.kubernetes.io/name%3Dlazuli";

/// Is told each step of a start when it has been made.
pub type Report<'r> = &'r dyn Fn(&str);

/// Which drivers the chart installs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drivers {
    /// That of disks.
    Disks,
    /// `snapshots.enabled` is true.
    DisksWithSnapshots,
    /// `controller.blobDisks` is `always`.
    DisksWithBlobs,
    /// `azureFile.enabled` is true.
    DisksAndFiles,
}

/// What a cluster is made of.
#[derive(Debug, Clone, Copy)]
pub struct Settings<'s> {
    /// The folder of the Go programs that `tests/tools` makes.
    pub tools: &'s Path,
    /// The program in the chart's containers, which is the emulator too.
    pub lazuli: &'s Path,
    /// More options of the emulator.
    pub emulator: &'s [&'s str],
    /// Feature gates of the API server.
    pub gates: &'s str,
    /// Who tells a node which machine it is.
    pub provider: CloudProvider,
    /// Which controllers of Kubernetes run.
    pub controllers: Controllers,
}

/// A cluster of two nodes. Its processes end with it, and its folder goes.
pub struct Cluster {
    /// Kubernetes.
    pub kubernetes: Kubernetes,
    /// Who tells a node which machine it is.
    pub provider: CloudProvider,
    /// What the chart installs.
    pub drivers: Drivers,
    /// Azure's process.
    pub emulator: Process,
    /// A client of Azure.
    pub azure: Azure,
    /// Everything that any process keeps. After the processes: swept when they are no more.
    pub folder: Folder,
}

impl Cluster {
    /// A cluster in the network of this thread, without a driver.
    pub async fn start(folder: Folder, of: &Settings<'_>, report: Report<'_>) -> Self {
        let tls_folder = text(&folder.path().join("tls"));
        let mut options = words(&["--tls", chart::EMULATOR_TLS, "--tls-dir", &tls_folder]);
        options.extend(words(of.emulator));
        let (emulator, azure) = emulator::start(of.lazuli, &folder, chart::EMULATOR, &options).await;
        report("the emulator serves");
        let mut kubernetes = Kubernetes::start(&folder, of, report).await;
        for node in NODES {
            // As the node pool of a cluster that keeps pods off new nodes.
            let path = format!("/api/v1/nodes/{node}");
            let node = kubernetes.until("the node", &path, |found| found.is_some()).await;
            // Of those that kubelet has registered the node with, none goes.
            let mut taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
            taints.push(json!({"key": START_UP_TAINT, "effect": "NoExecute"}));
            kubernetes.patch(&path, json!({"spec": {"taints": taints}})).await;
        }
        report("the nodes are registered");
        Self { kubernetes, provider: of.provider, drivers: Drivers::Disks, emulator, azure, folder }
    }

    /// The objects of the chart as it is installed here.
    pub fn objects(&self) -> Vec<Value> {
        match (self.provider, self.drivers) {
            (CloudProvider::External, _) => chart::objects_with_cloud_controllers(),
            (CloudProvider::None, Drivers::Disks) => chart::objects(),
            (CloudProvider::None, Drivers::DisksWithSnapshots) => chart::objects_with_snapshots(),
            (CloudProvider::None, Drivers::DisksWithBlobs) => chart::objects_with_blobs(),
            (CloudProvider::None, Drivers::DisksAndFiles) => chart::objects_with_files(),
        }
    }

    /// Installs the chart and what it needs, and waits until it serves.
    pub async fn install_chart(&mut self) {
        self.apply_chart(json!({})).await;
        self.serving().await;
        self.registered().await;
    }

    /// Makes the chart's objects and what they need. `keys` come to the cloud configuration.
    pub async fn apply_chart(&mut self, keys: Value) {
        let config = chart::cloud_config(self.folder.path(), keys);
        // That of the driver, and that of the cloud controllers in pods of their own.
        for name in ["azure-cloud-provider", "azure-cloud-controllers"] {
            let secret = json!({"metadata": {"name": name}, "stringData": {"cloud-config": config}});
            self.kubernetes.create("/api/v1/namespaces/kube-system/secrets", secret).await;
        }
        let authority = fs::read_to_string(self.folder.path().join("tls/ca.pem")).unwrap();
        let authority = json!({"metadata": {"name": chart::AUTHORITY}, "data": {"ca.pem": authority}});
        self.kubernetes.create("/api/v1/namespaces/kube-system/configmaps", authority).await;
        self.kubernetes.until("the nodes' leases", "/api/v1/namespaces/kube-node-lease", |found| found.is_some()).await;
        for object in chart::with_overlay(self.objects(), self.folder.path()) {
            self.kubernetes.create(&collection(&object), object).await;
        }
        for object in chart::classes() {
            self.kubernetes.create(object["path"].as_str().unwrap(), object["object"].clone()).await;
        }
    }

    /// Waits until kubelet has registered a driver on every node, and pods are scheduled there.
    pub async fn registered(&mut self) {
        for node in NODES {
            let path = format!("/apis/storage.k8s.io/v1/csinodes/{node}");
            let registered = |found: Option<&Value>| {
                let drivers = found.and_then(|csi| csi["spec"]["drivers"].as_array());
                drivers.is_some_and(|drivers| drivers.iter().any(|driver| driver["name"] == DRIVER))
            };
            self.kubernetes.until("the plugin's registration", &path, registered).await;
            let path = format!("/api/v1/nodes/{node}");
            self.kubernetes.until("a ready node", &path, |node| node.is_some_and(schedulable)).await;
        }
    }

    /// Waits until every container of the chart's pods runs and is ready.
    pub async fn serving(&mut self) {
        let deployments = self.objects().iter().filter(|object| object["kind"] == "Deployment").count();
        let ready = |list: Option<&Value>| {
            let pods = list.and_then(|list| list["items"].as_array()).map_or(&[][..], Vec::as_slice);
            // Two replicas of each Deployment, and a pod on each node.
            pods.len() == 2 * deployments + NODES.len() && pods.iter().all(is_ready)
        };
        self.kubernetes.until("the chart's pods", PODS_OF_THE_CHART, ready).await;
    }

    /// Stops Kubernetes, and then Azure in order.
    pub async fn stop(self) {
        drop(self.kubernetes);
        self.emulator.stop().await;
    }
}

/// Whether a pod, or a node, is ready.
pub fn is_ready(object: &Value) -> bool {
    let conditions = object["status"]["conditions"].as_array().map_or(&[][..], Vec::as_slice);
    conditions.iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

/// Whether a node takes pods.
pub fn schedulable(node: &Value) -> bool {
    is_ready(node) && node["spec"]["taints"].as_array().is_none_or(Vec::is_empty)
}
