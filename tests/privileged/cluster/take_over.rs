//! The take-over of what azuredisk-csi-driver has left, and the way back, as `deploy/moving.md` describes them.

use std::{collections::BTreeMap, fs, path::PathBuf};

use serde_json::{Value, json};

use super::{
    super::{azure::disk_id, cloud::NODES, process::mounted_at},
    ATTACHMENTS, CLAIMS, Cluster, DRIVER, PODS_OF_THE_CHART, VOLUMES,
    go_driver::GoNodePlugin,
};

/// The leases of the Go driver's sidecars, which are those of the chart's.
const LEASES: [&str; 3] =
    ["disk-csi-azure-com", "external-attacher-leader-disk-csi-azure-com", "external-resizer-disk-csi-azure-com"];
const LEASES_PATH: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
const CLASSES: &str = "/apis/storage.k8s.io/v1/storageclasses";
const CSI_DRIVERS: &str = "/apis/storage.k8s.io/v1/csidrivers";
const ATTACHER_FINALIZER: &str = "external-attacher/disk-csi-azure-com";
const CLASS: &str = "managed-csi";

/// The CSIDriver of the Go driver's chart.
fn csi_driver() -> Value {
    json!({
        "metadata": {"name": DRIVER, "annotations": {"csiDriver": "v1.35.7", "snapshot": "v8.6.0"}},
        "spec": {"attachRequired": true, "podInfoOnMount": false, "fsGroupPolicy": "File"},
    })
}

impl Cluster {
    /// Starts what the Go driver has on the nodes, and waits until kubelet has registered it.
    async fn start_go_driver(&mut self) -> Vec<GoNodePlugin> {
        self.kubernetes.create(CSI_DRIVERS, csi_driver()).await;
        let mut plugins = Vec::new();
        for node in NODES {
            plugins.push(GoNodePlugin::start(self.folder.path(), node).await);
        }
        self.registered().await;
        plugins
    }

    /// A claim with its volume, as the Go driver's provisioner makes both.
    async fn volume_of_go(&mut self, name: &str) {
        self.claim(name, CLASS, 1).await;
        let claim = self.kubernetes.get(&format!("{CLAIMS}/{name}")).await.unwrap();
        let volume = volume_of(&claim);
        let tags = json!({
            "k8s-azure-created-by": "kubernetes-azure-dd", "kubernetes.io-created-for-pv-name": volume,
            "kubernetes.io-created-for-pvc-name": name, "kubernetes.io-created-for-pvc-namespace": "default",
        });
        self.azure.other_tool().await.make_disk_with_tags(&volume, 1, tags).await;
        let attributes = json!({
            "csi.storage.k8s.io/pv/name": volume, "csi.storage.k8s.io/pvc/name": name,
            "csi.storage.k8s.io/pvc/namespace": "default", "requestedsizegib": "1", "skuName": "StandardSSD_LRS",
            "storage.kubernetes.io/csiProvisionerIdentity": "1700000000000-8081-disk.csi.azure.com",
        });
        let object = json!({
            "metadata": {
                "name": volume,
                "annotations": {
                    "pv.kubernetes.io/provisioned-by": DRIVER,
                    "volume.kubernetes.io/provisioner-deletion-secret-name": "",
                    "volume.kubernetes.io/provisioner-deletion-secret-namespace": "",
                },
                "finalizers": [
                    "external-provisioner.volume.kubernetes.io/finalizer", "kubernetes.io/pv-protection", ATTACHER_FINALIZER,
                ],
            },
            "spec": {
                "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": CLASS,
                "persistentVolumeReclaimPolicy": "Delete", "volumeMode": "Filesystem",
                "claimRef": {
                    "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "default", "name": name,
                    "uid": claim["metadata"]["uid"],
                },
                "csi": {"driver": DRIVER, "volumeHandle": disk_id(&volume), "volumeAttributes": attributes},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                    {"key": format!("topology.{DRIVER}/zone"), "operator": "In", "values": [""]},
                ]}]}},
            },
        });
        self.kubernetes.create(VOLUMES, object).await;
        let bound = |claim: Option<&Value>| claim.is_some_and(|claim| claim["status"]["phase"] == "Bound");
        self.kubernetes.until("a bound claim", &format!("{CLAIMS}/{name}"), bound).await;
    }

    /// The VolumeAttachment of a claim's volume, once there is one.
    async fn attachment_of(&mut self, claim: &str) -> String {
        let volume = volume_of(&self.kubernetes.get(&format!("{CLAIMS}/{claim}")).await.unwrap());
        let of_it = |list: Option<&Value>| -> Option<String> {
            let all = list?["items"].as_array()?;
            let found = all.iter().find(|one| one["spec"]["source"]["persistentVolumeName"] == *volume)?;
            Some(found["metadata"]["name"].as_str()?.to_owned())
        };
        let list = self.kubernetes.until("a VolumeAttachment", ATTACHMENTS, |list| of_it(list).is_some()).await;
        of_it(Some(&list)).unwrap()
    }

    /// What external-attacher and the Go driver's controller do for a VolumeAttachment.
    async fn attach_as_go(&mut self, claim: &str, node: &str, lun: u8) {
        let name = self.attachment_of(claim).await;
        let volume = volume_of(&self.kubernetes.get(&format!("{CLAIMS}/{claim}")).await.unwrap());
        let metadata =
            json!({"finalizers": [ATTACHER_FINALIZER], "annotations": {"csi.alpha.kubernetes.io/node-id": node}});
        self.kubernetes.patch(&format!("{ATTACHMENTS}/{name}"), json!({"metadata": metadata})).await;
        self.azure.other_tool().await.attach(node, &volume, lun).await;
        let status = json!({"attached": true, "attachmentMetadata": {"LUN": lun.to_string()}});
        self.kubernetes.patch(&format!("{ATTACHMENTS}/{name}/status"), json!({"status": status})).await;
    }

    /// What both do when it is deleted.
    async fn detach_as_go(&mut self, claim: &str, node: &str) {
        let name = self.attachment_of(claim).await;
        let path = format!("{ATTACHMENTS}/{name}");
        let deleted = |one: Option<&Value>| one.is_some_and(|one| !one["metadata"]["deletionTimestamp"].is_null());
        self.kubernetes.until("the deletion of a VolumeAttachment", &path, deleted).await;
        let volume = volume_of(&self.kubernetes.get(&format!("{CLAIMS}/{claim}")).await.unwrap());
        self.azure.other_tool().await.yank(node, &volume).await;
        self.kubernetes.patch(&path, json!({"metadata": {"finalizers": null}})).await;
    }

    /// The versions of all objects that a change of the driver must leave alone.
    async fn versions(&self) -> BTreeMap<String, String> {
        let mut versions = BTreeMap::new();
        for path in [VOLUMES, ATTACHMENTS, &format!("{CLASSES}/{CLASS}")] {
            let found = self.kubernetes.get(path).await.unwrap();
            let objects = found["items"].as_array().cloned().unwrap_or_else(|| vec![found]);
            for object in objects {
                let text = |key: &str| object["metadata"][key].as_str().unwrap().to_owned();
                versions.insert(format!("{path}/{}", text("name")), text("resourceVersion"));
            }
        }
        versions
    }

    /// Takes the chart away as `helm uninstall` does: its StorageClasses stay.
    async fn uninstall_chart(&mut self) {
        for object in super::chart::objects() {
            if object["kind"] != "StorageClass" {
                let name = object["metadata"]["name"].as_str().unwrap();
                self.kubernetes.delete(&format!("{}/{name}", super::collection(&object))).await;
            }
        }
        self.count("the end of the chart's pods", PODS_OF_THE_CHART, 0).await;
    }
}

fn volume_of(claim: &Value) -> String {
    format!("pvc-{}", claim["metadata"]["uid"].as_str().unwrap())
}

/// Reads what a pod's volume holds, as the pod sees it.
fn letter(cluster: &Cluster, pod: &str, node: &str) -> String {
    let container = cluster.container(pod, node, "c").unwrap();
    fs::read_to_string(container.path(&format!("/{pod}/letter"))).unwrap()
}

/// The staging folders that are mounted on a node.
fn staged(cluster: &Cluster, node: &str) -> Vec<PathBuf> {
    let folder = super::kubelet_folder(cluster.folder.path(), node).join("plugins/kubernetes.io/csi").join(DRIVER);
    let staging = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path().join("globalmount"));
    staging.filter(|path| mounted_at(path).is_some()).collect()
}

#[tokio::test]
async fn volumes_of_the_go_driver_are_taken_over_and_given_back_and_no_object_is_rewritten() {
    let Some(mut cluster) = Cluster::start_empty(&[], "").await else { return };
    for node in NODES {
        cluster.kubernetes.patch(&format!("/api/v1/nodes/{node}"), json!({"spec": {"taints": null}})).await;
    }
    let class = json!({
        "metadata": {"name": CLASS}, "provisioner": DRIVER, "parameters": {"skuName": "StandardSSD_LRS"},
        "volumeBindingMode": "WaitForFirstConsumer", "allowVolumeExpansion": true, "reclaimPolicy": "Delete",
    });
    cluster.kubernetes.create(CLASSES, class).await;
    let plugins = cluster.start_go_driver().await;
    for (lun, pod) in ["stays", "moves"].into_iter().enumerate() {
        cluster.volume_of_go(pod).await;
        cluster.pod(pod, NODES[0], &[pod]).await;
        cluster.attach_as_go(pod, NODES[0], u8::try_from(lun).unwrap()).await;
        let folder = cluster.running(pod, NODES[0]).await.remove(pod).unwrap();
        fs::write(folder.join("letter"), format!("of {pod}")).unwrap();
    }
    assert_eq!(staged(&cluster, NODES[0]).len(), 2);
    let node = cluster.kubernetes.get(&format!("/api/v1/nodes/{}", NODES[0])).await.unwrap();
    let node_id = node["metadata"]["annotations"]["csi.volume.kubernetes.io/nodeid"].clone();
    assert_eq!(node_id, json!({DRIVER: NODES[0]}).to_string());
    // Its controller was stopped some time ago, without giving its leases back.
    for name in LEASES {
        let spec = json!({
            "holderIdentity": "csi-azuredisk-controller-5c9f7d8b6-x2x4z", "leaseDurationSeconds": 15,
            "acquireTime": "2026-01-01T00:00:00.000000Z", "renewTime": "2026-01-01T00:10:00.000000Z", "leaseTransitions": 3,
        });
        cluster.kubernetes.create(LEASES_PATH, json!({"metadata": {"name": name}, "spec": spec})).await;
    }
    let before = cluster.versions().await;
    assert_eq!(before.len(), 5);

    // To Lazuli.
    for plugin in plugins {
        plugin.stop().await;
    }
    cluster.kubernetes.delete(&format!("{CSI_DRIVERS}/{DRIVER}")).await;
    cluster.install_chart().await;
    for name in LEASES {
        let ours = |lease: Option<&Value>| {
            lease
                .is_some_and(|lease| lease["spec"]["holderIdentity"].as_str().unwrap().starts_with("lazuli-controller"))
        };
        cluster.kubernetes.until("the lease", &format!("{LEASES_PATH}/{name}"), ours).await;
    }
    // external-attacher compares what is attached, and repeats what it finds missing.
    cluster.lists_of_disks(2).await;
    assert_eq!(cluster.versions().await, before);
    for pod in ["stays", "moves"] {
        assert_eq!(letter(&cluster, pod, NODES[0]), format!("of {pod}"));
    }
    // What the Go driver staged is unstaged, detached, and staged elsewhere.
    let attachment = cluster.attachment_of("moves").await;
    cluster.delete_pod("moves").await;
    cluster.kubernetes.until("the detachment", &format!("{ATTACHMENTS}/{attachment}"), |one| one.is_none()).await;
    assert_eq!(staged(&cluster, NODES[0]).len(), 1);
    cluster.pod("moves", NODES[1], &["moves"]).await;
    cluster.running("moves", NODES[1]).await;
    assert_eq!(letter(&cluster, "moves", NODES[1]), "of moves");
    cluster.all_attached().await;
    let moved = cluster.versions().await;
    let same = before.iter().filter(|(object, version)| moved.get(*object) == Some(version)).count();
    assert_eq!(same, 4, "all but the VolumeAttachment of the pod that moved: {before:#?} {moved:#?}");

    // And back.
    cluster.uninstall_chart().await;
    let plugins = cluster.start_go_driver().await;
    assert_eq!(cluster.versions().await, moved);
    for (pod, node) in [("stays", NODES[0]), ("moves", NODES[1])] {
        assert_eq!(letter(&cluster, pod, node), format!("of {pod}"));
        cluster.delete_pod(pod).await;
        cluster.detach_as_go(pod, node).await;
        assert_eq!(staged(&cluster, node), Vec::<PathBuf>::new());
    }
    // What its provisioner does.
    for name in ["stays", "moves"] {
        let volume = volume_of(&cluster.kubernetes.get(&format!("{CLAIMS}/{name}")).await.unwrap());
        cluster.delete_claim(name).await;
        let path = format!("{VOLUMES}/{volume}");
        let released = |one: Option<&Value>| one.is_some_and(|one| one["status"]["phase"] == "Released");
        cluster.kubernetes.until("a released volume", &path, released).await;
        cluster.azure.other_tool().await.delete_disk(&volume).await;
        cluster.kubernetes.delete(&path).await;
        cluster.kubernetes.patch(&path, json!({"metadata": {"finalizers": null}})).await;
    }
    for plugin in plugins {
        plugin.stop().await;
    }
    cluster.finish().await;
}
