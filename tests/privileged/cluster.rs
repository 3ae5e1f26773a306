//! The whole chain in a real Kubernetes: its API server, controllers, scheduler and kubelets, and the chart as it is
//! installed. The chart's containers run as processes: `tests/tools/node` says what of them is applied and what is not.
//! Azure is the emulator with its block devices.

mod admission;
mod blob_disks;
mod cloud_controllers;
mod conformance;
mod containers;
mod files;
mod go_driver;
mod rights;
mod snapshots;
mod ssh_key;
mod take_over;
mod wrong_lists;

use std::{
    collections::BTreeMap,
    fs,
    ops::{Deref, DerefMut},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use lazuli_test_cluster::{Drivers, PODS_OF_THE_CHART, Settings, chart, kubernetes, node, schedulable};
use serde_json::{Value, json};

use super::{
    cloud::NODES,
    process::{Folder, PATIENCE, able, mounted_at},
};
use kubernetes::{CloudProvider, Controllers, collection, until};
use node::{Container, IDLE, kubelet_folder};

const DRIVER: &str = "disk.csi.azure.com";
const START_UP_TAINT: &str = "disk.csi.azure.com/agent-not-ready";
const ATTACHMENTS: &str = "/apis/storage.k8s.io/v1/volumeattachments";
const VOLUMES: &str = "/api/v1/persistentvolumes";
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/default/events";
const PODS: &str = "/api/v1/namespaces/default/pods";

/// Where the Go programs are; says so where these tests cannot run.
fn able_with_tools() -> Option<PathBuf> {
    if !able() {
        return None;
    }
    let tools = std::env::var_os("LAZULI_CLUSTER_TOOLS").map(PathBuf::from);
    if tools.is_none() {
        eprintln!("SKIPPED: LAZULI_CLUSTER_TOOLS names no folder with Kubernetes; scripts/test cluster makes one");
    }
    tools
}

/// A cluster whose every wait fails the test.
struct Cluster(lazuli_test_cluster::Cluster);

impl Deref for Cluster {
    type Target = lazuli_test_cluster::Cluster;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for Cluster {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

/// The program in the chart's containers: the one under test, or another build of it that `LAZULI_CLUSTER_PROGRAM` names.
fn program() -> PathBuf {
    std::env::var_os("LAZULI_CLUSTER_PROGRAM").unwrap_or(env!("CARGO_BIN_EXE_lazuli").into()).into()
}

impl Cluster {
    /// A cluster of two nodes with the chart installed, or nothing where it cannot run.
    async fn start(emulator_options: &[&str]) -> Option<Self> {
        let mut cluster = Self::start_empty(emulator_options, "").await?;
        cluster.install_chart().await;
        Some(cluster)
    }

    /// A cluster of two nodes, without a driver. `gates` are feature gates of the API server.
    async fn start_empty(emulator_options: &[&str], gates: &str) -> Option<Self> {
        Self::start_with(emulator_options, gates, CloudProvider::None).await
    }

    async fn start_with(emulator_options: &[&str], gates: &str, provider: CloudProvider) -> Option<Self> {
        let (tools, lazuli) = (able_with_tools()?, program());
        let folder = Folder::make();
        kubernetes::enter_own_network();
        let settings = Settings {
            tools: &tools,
            lazuli: &lazuli,
            emulator: emulator_options,
            gates,
            provider,
            controllers: Controllers::Needed,
        };
        Some(Self(lazuli_test_cluster::Cluster::start(folder, &settings, &|_| {}).await))
    }

    /// The pods of a component of the chart: name and node.
    async fn pods_of(&self, component: &str) -> Vec<(String, &'static str)> {
        let pods = self.kubernetes.list(PODS_OF_THE_CHART).await;
        let of_it = pods.iter().filter(|pod| pod["metadata"]["labels"]["app.kubernetes.io/component"] == component);
        let place = |pod: &Value| {
            let node = NODES.into_iter().find(|node| pod["spec"]["nodeName"] == *node)?;
            Some((pod["metadata"]["name"].as_str()?.to_owned(), node))
        };
        of_it.filter_map(place).collect()
    }

    /// The pod of the node plugin on a node.
    async fn node_plugin(&self, node: &str) -> String {
        self.pods_of("node").await.into_iter().find(|(_, at)| *at == node).unwrap().0
    }

    /// A container of a pod as it runs now.
    fn container(&self, pod: &str, node: &str, name: &str) -> Option<Container> {
        let index = NODES.iter().position(|one| *one == node).unwrap();
        Container::of(self.folder.path(), index, pod, name)
    }

    async fn claim(&self, name: &str, class: &str, gib: u32) {
        let spec = json!({
            "storageClassName": class, "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": format!("{gib}Gi")}},
        });
        self.kubernetes.create(CLAIMS, json!({"metadata": {"name": name}, "spec": spec})).await;
    }

    /// A pod that uses these claims on this node.
    async fn pod(&self, name: &str, node: &str, claims: &[&str]) {
        let volumes: Vec<Value> =
            claims.iter().map(|claim| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}})).collect();
        let mounts: Vec<Value> =
            claims.iter().map(|claim| json!({"name": claim, "mountPath": format!("/{claim}")})).collect();
        let spec = json!({
            "nodeSelector": {"kubernetes.io/hostname": node}, "terminationGracePeriodSeconds": 0, "volumes": volumes,
            "containers": [{"name": "c", "image": IDLE, "imagePullPolicy": "IfNotPresent", "volumeMounts": mounts}],
        });
        self.kubernetes.create(PODS, json!({"metadata": {"name": name}, "spec": spec})).await;
    }

    /// Waits until the pod runs, and gives the folders of its volumes by claim.
    async fn running(&mut self, name: &str, node: &str) -> BTreeMap<String, PathBuf> {
        let path = format!("{PODS}/{name}");
        let runs = |pod: Option<&Value>| pod.is_some_and(|pod| pod["status"]["phase"] == "Running");
        let pod = self.kubernetes.until("a running pod", &path, runs).await;
        let folder = kubelet_folder(self.folder.path(), node);
        let volumes = folder.join("pods").join(pod["metadata"]["uid"].as_str().unwrap());
        let mut folders = BTreeMap::new();
        for volume in pod["spec"]["volumes"].as_array().unwrap() {
            let Some(claim) = volume["persistentVolumeClaim"]["claimName"].as_str() else { continue };
            let claimed = self.kubernetes.get(&format!("{CLAIMS}/{claim}")).await.unwrap();
            let pv = claimed["spec"]["volumeName"].as_str().unwrap();
            let folder = volumes.join(format!("volumes/kubernetes.io~csi/{pv}/mount"));
            assert!(mounted_at(&folder).is_some(), "{} is no mount", folder.display());
            folders.insert(claim.to_owned(), folder);
        }
        folders
    }

    async fn delete_pod(&mut self, name: &str) {
        let path = format!("{PODS}/{name}");
        self.kubernetes.delete(&path).await;
        self.kubernetes.until("the pod's end", &path, |pod| pod.is_none()).await;
    }

    async fn delete_claim(&mut self, name: &str) {
        self.kubernetes.delete(&format!("{CLAIMS}/{name}")).await;
    }

    /// Makes a claim grow, and waits until its file system has.
    async fn grow(&mut self, name: &str, gib: u32) {
        let (path, size) = (format!("{CLAIMS}/{name}"), format!("{gib}Gi"));
        self.kubernetes.patch(&path, json!({"spec": {"resources": {"requests": {"storage": size}}}})).await;
        let grown = |claim: Option<&Value>| claim.is_some_and(|claim| claim["status"]["capacity"]["storage"] == *size);
        self.kubernetes.until("the claim's growth", &path, grown).await;
    }

    /// Waits until the attacher, which looks every five seconds, has compared so often what is attached.
    async fn lists_of_disks(&self, count: usize) {
        let (began, seen) = (Instant::now(), self.azure.lists_of_disks().await);
        while self.azure.lists_of_disks().await < seen + count {
            assert!(began.elapsed() < PATIENCE, "the attacher does not look");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Waits until there are so many objects of a collection.
    async fn count(&mut self, what: &str, path: &str, count: usize) {
        let is = |list: Option<&Value>| list.is_some_and(|l| l["items"].as_array().is_some_and(|l| l.len() == count));
        self.kubernetes.until(what, path, is).await;
    }

    async fn no_attachments(&mut self) {
        self.count("the end of all attachments", ATTACHMENTS, 0).await;
        assert!(self.azure.attached().await.is_empty(), "Azure holds what Kubernetes has forgotten");
    }

    async fn all_attached(&mut self) {
        let all = |list: Option<&Value>| {
            let list = list.and_then(|list| list["items"].as_array());
            list.is_some_and(|list| list.iter().all(|attachment| attachment["status"]["attached"] == true))
        };
        self.kubernetes.until("every attachment", ATTACHMENTS, all).await;
    }

    /// What VolumeAttachments say once none is being deleted, by disk: node and LUN. All must be attached.
    ///
    /// The attacher may still repeat a detach that Azure has done, whose answer died with the driver. Its
    /// VolumeAttachment then outlives the disk's attach to the next node.
    async fn recorded(&mut self) -> BTreeMap<String, Vec<(String, u8)>> {
        let settled = |list: Option<&Value>| {
            let list = list.and_then(|list| list["items"].as_array());
            list.is_some_and(|list| list.iter().all(|one| one["metadata"]["deletionTimestamp"].is_null()))
        };
        self.kubernetes.until("the end of the detaches", ATTACHMENTS, settled).await;
        let volumes: BTreeMap<String, String> = self
            .kubernetes
            .list(VOLUMES)
            .await
            .iter()
            .map(|pv| {
                let handle = pv["spec"]["csi"]["volumeHandle"].as_str().unwrap();
                let disk = handle.rsplit('/').next().unwrap().to_lowercase();
                (pv["metadata"]["name"].as_str().unwrap().to_owned(), disk)
            })
            .collect();
        let mut recorded: BTreeMap<String, Vec<(String, u8)>> = BTreeMap::new();
        for attachment in self.kubernetes.list(ATTACHMENTS).await {
            assert_eq!(attachment["status"]["attached"], true, "{attachment:#}");
            let pv = attachment["spec"]["source"]["persistentVolumeName"].as_str().unwrap();
            let lun = attachment["status"]["attachmentMetadata"]["LUN"].as_str().unwrap().parse().unwrap();
            let node = attachment["spec"]["nodeName"].as_str().unwrap().to_owned();
            recorded.entry(volumes[pv].clone()).or_default().push((node, lun));
        }
        recorded
    }

    /// Kills the driver in each replica. Its sidecars end with it, and kubelet starts all of them again.
    async fn kill_controllers(&self) {
        for (pod, node) in self.pods_of("controller").await {
            if let Some(container) = self.container(&pod, node, "lazuli") {
                container.kill();
            }
        }
    }

    /// Kills the node plugin of a node, which kubelet starts again.
    async fn kill_node_plugin(&self, node: &str) {
        if let Some(container) = self.container(&self.node_plugin(node).await, node, "lazuli") {
            container.kill();
        }
    }

    /// What the drivers of all replicas have logged, those that have ended too.
    async fn controller_logs(&self) -> String {
        let pods = self.pods_of("controller").await;
        pods.iter().map(|(pod, node)| self.logs(pod, node, "lazuli")).collect()
    }

    /// What the containers of this name of a pod have logged, those that have ended too.
    fn logs(&self, pod: &str, node: &str, container: &str) -> String {
        let mut all = String::new();
        let logs = kubelet_folder(self.folder.path(), node).join("pod-logs");
        for of_pod in fs::read_dir(logs).unwrap().flatten() {
            if of_pod.file_name().to_string_lossy().contains(pod) {
                for log in fs::read_dir(of_pod.path().join(container)).into_iter().flatten().flatten() {
                    all += &fs::read_to_string(log.path()).unwrap();
                }
            }
        }
        all
    }

    /// Fails unless nothing is left of any volume.
    async fn finish(mut self) {
        self.no_attachments().await;
        self.count("the end of all volumes", VOLUMES, 0).await;
        assert!(self.azure.disks().await.is_empty(), "disks are left: {:?}", self.azure.disks().await);
        assert_eq!(self.folder.loops(), Vec::<String>::new(), "loop devices are left");
        // What kubelet itself mounts is in memory; its folder is mounted on itself.
        let of_kubelet = |mount: &PathBuf| {
            let itself = NODES.iter().any(|node| *mount == kubelet_folder(self.folder.path(), node));
            itself || mounted_at(mount).is_none_or(|line| line.fs_type == "tmpfs")
        };
        let left: Vec<PathBuf> = self.folder.mounts().into_iter().filter(|mount| !of_kubelet(mount)).collect();
        assert_eq!(left, Vec::<PathBuf>::new(), "mounts are left");
        self.0.stop().await;
    }
}

fn size_of(folder: &Path) -> u64 {
    let stat = rustix::fs::statvfs(folder).unwrap();
    stat.f_blocks * stat.f_frsize
}

/// That the taint is gone is what the cluster waited for; here is what else the node plugin's account may not do.
#[tokio::test]
async fn a_node_plugin_removes_its_own_start_up_taint_and_may_change_nothing_else() {
    let Some(cluster) = Cluster::start(&[]).await else { return };
    let [own, other] = NODES.map(|node| format!("/api/v1/nodes/{node}"));
    let plugin = cluster.node_plugin(NODES[0]).await;
    // The token that kubelet gave to the container.
    let token = "/var/run/secrets/kubernetes.io/serviceaccount/token";
    let token = fs::read_to_string(cluster.container(&plugin, NODES[0], "lazuli").unwrap().path(token)).unwrap();
    let account = cluster.kubernetes.kubeconfig_of_token("node-plugin", &token);
    let taint = json!({"spec": {"taints": [{"key": "dedicated", "effect": "NoSchedule"}]}});
    for (path, change) in [
        (&own, json!({"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}})),
        (&own, json!({"metadata": {"annotations": {"a": "b"}}})),
        // kubelet's.
        (&own, json!({"metadata": {"annotations": {"volumes.kubernetes.io/controller-managed-attach-detach": null}}})),
        (&other, json!({"metadata": {"annotations": {"lazuli.azure/instance-metadata": "{}"}}})),
        (&own, json!({"spec": {"unschedulable": true}})),
        (&own, taint.clone()),
        (&other, json!({"metadata": {"labels": {"a": "b"}}})),
    ] {
        let refusal = cluster.kubernetes.refusal_of_patch(&account, path, &change).await;
        let (code, message) = refusal.unwrap_or_else(|| panic!("{path} took {change}"));
        let words = if path == &own { "change nothing else of its node" } else { "may not change node" };
        assert!(code == 403 && message.contains(words), "{change}: {code} {message}");
    }
    // Other taints stay: the policy lets none but its own go.
    cluster.kubernetes.patch(&own, taint).await;
    let none = json!({"spec": {"taints": []}});
    let refusal = cluster.kubernetes.refusal_of_patch(&account, &own, &none).await.expect("is refused");
    assert!(refusal.1.contains("change nothing else"), "{refusal:?}");
    for node in NODES {
        let taints = cluster.kubernetes.get(&format!("/api/v1/nodes/{node}")).await.unwrap()["spec"]["taints"].clone();
        assert!(!taints.to_string().contains(START_UP_TAINT), "{taints}");
    }
    cluster.kubernetes.patch(&own, none).await;
    cluster.finish().await;
}

#[tokio::test]
async fn a_pods_bytes_are_there_after_a_crash_an_expansion_and_a_move_to_another_node() {
    let Some(mut cluster) = Cluster::start(&[]).await else { return };
    cluster.claim("data", "xfs", 1).await;
    cluster.pod("first", NODES[0], &["data"]).await;
    let folder = cluster.running("first", NODES[0]).await.remove("data").unwrap();
    fs::write(folder.join("letter"), "bytes").unwrap();
    assert_eq!(cluster.recorded().await, cluster.azure.attached().await);

    // The plugin's end is no end of the pod's volume.
    cluster.kill_node_plugin(NODES[0]).await;
    cluster.kill_controllers().await;
    let before = size_of(&folder);
    cluster.grow("data", 2).await;
    until("the file system's growth", || size_of(&folder) > before * 3 / 2).await;

    cluster.delete_pod("first").await;
    cluster.pod("second", NODES[1], &["data"]).await;
    let folder = cluster.running("second", NODES[1]).await.remove("data").unwrap();
    assert_eq!(fs::read_to_string(folder.join("letter")).unwrap(), "bytes");
    assert_eq!(cluster.recorded().await, cluster.azure.attached().await);

    cluster.delete_pod("second").await;
    cluster.delete_claim("data").await;
    cluster.finish().await;
}

/// Many pods at once, and what should serve them is killed while they start.
#[tokio::test]
async fn every_pod_gets_its_own_bytes_however_often_the_program_is_killed_meanwhile() {
    const PER_NODE: usize = 4;
    let Some(mut cluster) = Cluster::start(&["--latency", "typical", "--time-scale", "10"]).await else { return };
    let names: Vec<String> = (0..2 * PER_NODE).map(|n| format!("p{n}")).collect();
    for (n, name) in names.iter().enumerate() {
        cluster.claim(name, "ext4", 1).await;
        cluster.pod(name, NODES[n % 2], &[name]).await;
    }
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(700)).await;
        cluster.kill_controllers().await;
        for node in NODES {
            cluster.kill_node_plugin(node).await;
        }
    }
    for (n, name) in names.iter().enumerate() {
        let folder = cluster.running(name, NODES[n % 2]).await.remove(name).unwrap();
        fs::write(folder.join("whose"), name).unwrap();
    }
    assert_eq!(cluster.recorded().await, cluster.azure.attached().await);

    // Every pod to the other node, all at once.
    for name in &names {
        cluster.kubernetes.delete(&format!("{PODS}/{name}")).await;
    }
    for (n, name) in names.iter().enumerate() {
        cluster.kubernetes.until("the pod's end", &format!("{PODS}/{name}"), |pod| pod.is_none()).await;
        cluster.pod(name, NODES[(n + 1) % 2], &[name]).await;
    }
    tokio::time::sleep(Duration::from_millis(700)).await;
    cluster.kill_controllers().await;
    for (n, name) in names.iter().enumerate() {
        let folder = cluster.running(name, NODES[(n + 1) % 2]).await.remove(name).unwrap();
        assert_eq!(fs::read_to_string(folder.join("whose")).unwrap(), *name);
    }
    assert_eq!(cluster.recorded().await, cluster.azure.attached().await);
    for name in &names {
        cluster.delete_pod(name).await;
        cluster.delete_claim(name).await;
    }
    cluster.finish().await;
}

/// external-attacher compares what ListVolumes says to the letter, and attaches again what it misses.
#[tokio::test]
async fn what_is_attached_is_left_alone_and_what_was_taken_away_returns_to_its_own_lun() {
    let Some(mut cluster) = Cluster::start(&["--nasty-casing"]).await else { return };
    for name in ["a", "b"] {
        cluster.claim(name, "ext4", 1).await;
    }
    cluster.pod("a", NODES[0], &["a"]).await;
    cluster.running("a", NODES[0]).await;
    let disk = cluster.recorded().await.into_keys().next().unwrap();
    const ATTACH: &str = "method=\"ControllerPublishVolume\" volume";
    let before = cluster.controller_logs().await.matches(ATTACH).count();
    assert!(before > 0, "the log does not show how the driver attaches");
    cluster.lists_of_disks(2).await;
    let now = cluster.controller_logs().await.matches(ATTACH).count();
    assert_eq!(now, before, "attached again without need");

    cluster.azure.other_tool().await.yank(NODES[0], &disk).await;
    cluster.pod("b", NODES[0], &["b"]).await;
    cluster.running("b", NODES[0]).await;
    let began = Instant::now();
    while !cluster.azure.attached().await.contains_key(&disk) {
        assert!(began.elapsed() < PATIENCE, "what was taken away is not attached again");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    cluster.all_attached().await;
    let attached = cluster.azure.attached().await;
    assert_eq!(attached[&disk], [(NODES[0].to_owned(), 0)]);
    assert_eq!(cluster.recorded().await, attached);
    for name in ["a", "b"] {
        cluster.delete_pod(name).await;
        cluster.delete_claim(name).await;
    }
    cluster.finish().await;
}

/// The driver's own events, by the accounts that the chart gives it.
#[tokio::test]
async fn a_claim_shows_by_the_drivers_events_why_its_disk_is_not_made_and_why_it_is_not_formatted() {
    let Some(mut cluster) = Cluster::start(&[]).await else { return };
    show_events(&mut cluster).await;
    cluster.finish().await;
}

/// Has controller and node plugin each write an event about a claim, and another process of each count on in it.
async fn show_events(cluster: &mut Cluster) {
    // A final code for which the provisioner does not ask for another node.
    let then = json!({"status": 403, "code": "AuthorizationFailed"});
    let incident = json!({"match": {"method": "PUT", "path": "*/disks/*"}, "then": then, "times": 0});
    cluster.azure.incident(&incident).await;
    let spec = json!({
        "storageClassName": "ext4", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
    });
    // As the scheduler does for a pod: the disk is made before there is one.
    let annotations = json!({"volume.kubernetes.io/selected-node": NODES[0]});
    let claim = json!({"metadata": {"name": "data", "annotations": annotations}, "spec": spec});
    let uid = cluster.kubernetes.create(CLAIMS, claim).await["metadata"]["uid"].clone();
    let find = |events: Option<&Value>, reason: &str| {
        let events = events.and_then(|events| events["items"].as_array()).cloned().unwrap_or_default();
        events.into_iter().find(|event| event["reason"] == reason && event["reportingController"] == DRIVER)
    };
    let told = |events: Option<&Value>| find(events, "AuthorizationFailed").is_some();
    let events = cluster.kubernetes.until("the event", EVENTS, told).await;
    let event = find(Some(&events), "AuthorizationFailed").unwrap();
    assert_eq!((&event["regarding"]["uid"], &event["type"]), (&uid, &json!("Warning")), "{event:#}");
    assert!(event["note"].as_str().unwrap().contains("lacks the action Microsoft.Compute/disks/write"), "{event:#}");
    // `kubectl describe` asks the older API, by fields.
    let selector = format!("involvedObject.uid={},reportingComponent={DRIVER}", uid.as_str().unwrap());
    let older = format!("/api/v1/namespaces/default/events?fieldSelector={}", selector.replace('=', "%3D"));
    assert_eq!(cluster.kubernetes.list(&older).await.len(), 1);
    // Another process counts on in the same event.
    cluster.kill_controllers().await;
    let counted = |events: Option<&Value>| find(events, "AuthorizationFailed").unwrap()["series"]["count"] == 2;
    cluster.kubernetes.until("the event's series", EVENTS, counted).await;
    assert_eq!(cluster.kubernetes.list(&older).await.len(), 1);

    cluster.azure.clear_incidents().await;
    let bound = |claim: Option<&Value>| claim.is_some_and(|claim| claim["status"]["phase"] == "Bound");
    let claim = cluster.kubernetes.until("a bound claim", &format!("{CLAIMS}/data"), bound).await;
    let disk = claim["spec"]["volumeName"].as_str().unwrap();
    let files = fs::read_dir(cluster.folder.path().join("azure/disks")).unwrap().flatten().map(|entry| entry.path());
    let is_it = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(disk));
    let mut file = fs::OpenOptions::new().write(true).open(files.into_iter().find(is_it).unwrap()).unwrap();
    std::io::Write::write_all(&mut file, b"not a file system").unwrap();
    cluster.pod("pod", NODES[0], &["data"]).await;
    let told = |events: Option<&Value>| find(events, "FormatRefused").is_some();
    let events = cluster.kubernetes.until("the node's event", EVENTS, told).await;
    let event = find(Some(&events), "FormatRefused").unwrap();
    assert_eq!((&event["regarding"]["uid"], &event["reportingInstance"]), (&uid, &json!(NODES[0])), "{event:#}");
    cluster.kill_node_plugin(NODES[0]).await;
    let counted = |events: Option<&Value>| find(events, "FormatRefused").unwrap()["series"]["count"] == 2;
    cluster.kubernetes.until("the series of the node's event", EVENTS, counted).await;
    cluster.delete_pod("pod").await;
    cluster.delete_claim("data").await;
}
