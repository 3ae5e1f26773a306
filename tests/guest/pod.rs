//! A Pod that names a share itself, as the old in-tree plugin served it: `azureFile: {secretName: azure-secret, shareName:
//! myshare, readOnly: false}`, in a volume `azure`. These are the calls that kubelet makes for it, one after the other.
//!
//! Sources, of Kubernetes 1.36: what the volume becomes, csi-translation-lib `plugins/azure_file.go`; the calls,
//! `pkg/volume/csi` (`csi_attacher.go`, `csi_mounter.go`, `csi_client.go`). The CSIDriver is the chart's.

use std::collections::HashMap;

use csi_proto::csi::{
    NodeGetCapabilitiesRequest, NodeGetVolumeStatsRequest, NodePublishVolumeRequest, NodeStageVolumeRequest,
    NodeUnpublishVolumeRequest, NodeUnstageVolumeRequest, VolumeCapability,
    node_service_capability::Type,
    node_service_capability::rpc,
    volume_capability::{AccessMode, AccessType, MountVolume, access_mode::Mode},
};

use super::{
    driver::{Driver, map},
    machine::able,
};

/// What the translation makes of the volume.
struct Volume {
    /// `#account#share#volume#namespace`. Where the Secret's name does not tell an account, it stands in the account's place.
    handle: &'static str,
    /// SHA-256 of the handle: kubelet's name for the folder of the staged volume.
    hash: &'static str,
}

impl Volume {
    fn staging(&self) -> String {
        format!("/var/lib/kubelet/plugins/kubernetes.io/csi/file.csi.azure.com/{}/globalmount", self.hash)
    }

    /// kubelet's folder for the Pod's volume. The PersistentVolume that the translation makes up is called as the handle is.
    fn folder(&self) -> String {
        format!("/var/lib/kubelet/pods/{POD}/volumes/kubernetes.io~csi/{}", self.handle)
    }
}

/// The Pod's UID.
const POD: &str = "5d3f0f86-0e8b-4c8c-9d58-3a6a5a5d1d1a";

/// `ReadWriteMany`, without a file system type, mount options or fsGroup.
fn capability() -> VolumeCapability {
    VolumeCapability {
        access_mode: Some(AccessMode { mode: Mode::MultiNodeMultiWriter.into() }),
        access_type: Some(AccessType::Mount(MountVolume::default())),
    }
}

/// The volume's attributes and, as `podInfoOnMount` says, the Pod.
fn context() -> HashMap<String, String> {
    map(&[
        ("shareName", "myshare"),
        ("csi.storage.k8s.io/pod.name", "azure"),
        ("csi.storage.k8s.io/pod.namespace", "default"),
        ("csi.storage.k8s.io/pod.uid", POD),
        ("csi.storage.k8s.io/serviceAccount.name", "default"),
        ("csi.storage.k8s.io/ephemeral", "false"),
    ])
}

#[tokio::test]
async fn a_pod_that_names_a_share_and_a_secret_gets_the_share() {
    served(&Volume {
        handle: "#azure-secret#myshare#azure#default",
        hash: "7ab4d4fa3f0703f6978a5f068d6dbf891945a79dc28e11157995af75425db9cd",
    })
    .await;
}

#[tokio::test]
async fn a_pod_that_names_a_share_and_the_driver_s_secret_gets_the_share() {
    // `secretName: azure-storage-account-first-secret`.
    served(&Volume {
        handle: "#first#myshare#azure#default",
        hash: "ca1d1714f3aaa6542a91de41f9c5ed33637d1980cf573f7a390e2333722b7394",
    })
    .await;
}

async fn served(volume: &Volume) {
    if !able() {
        return;
    }
    let driver = Driver::start().await;
    let (guest, mut node) = (&driver.cloud.guest, driver.node.clone());
    driver.cloud.put_share("first", "myshare", 5).await;
    let key = driver.cloud.key("first").await;
    let (handle, staging, folder) = (volume.handle.to_owned(), volume.staging(), volume.folder());
    let target = format!("{folder}/mount");
    guest.sh("mkdir -p /var/lib/kubelet && /bin/mount -t tmpfs tmpfs /var/lib/kubelet").await;
    guest.sh("/bin/mount --make-rshared /var/lib/kubelet").await;

    let capabilities = node.node_get_capabilities(NodeGetCapabilitiesRequest {}).await.unwrap().into_inner();
    let has = |wanted: rpc::Type| {
        let is_it = |found: &Option<Type>| matches!(found, Some(Type::Rpc(rpc)) if rpc.r#type() == wanted);
        capabilities.capabilities.iter().any(|capability| is_it(&capability.r#type))
    };
    // What decides which calls follow, and with which access mode.
    assert!(has(rpc::Type::StageUnstageVolume) && has(rpc::Type::SingleNodeMultiWriter));

    guest.sh(&format!("mkdir -p -m 750 '{staging}'")).await;
    let stage = NodeStageVolumeRequest {
        volume_id: handle.clone(),
        staging_target_path: staging.clone(),
        volume_capability: Some(capability()),
        volume_context: map(&[("shareName", "myshare")]),
        // The Secret of the Pod's namespace, as nodeStageSecretRef names it.
        secrets: map(&[("azurestorageaccountname", "first"), ("azurestorageaccountkey", &key)]),
        ..Default::default()
    };
    node.node_stage_volume(stage).await.unwrap();
    guest.sh(&format!("mkdir -p -m 750 '{folder}' && echo '{{}}' >'{folder}/vol_data.json'")).await;
    let publish = NodePublishVolumeRequest {
        volume_id: handle.clone(),
        staging_target_path: staging.clone(),
        target_path: target.clone(),
        volume_capability: Some(capability()),
        volume_context: context(),
        // No Secret is named for this call.
        ..Default::default()
    };
    node.node_publish_volume(publish.clone()).await.unwrap();
    let mounts = driver.mounts().await;
    assert_eq!(mounts.len(), 2, "{mounts:?}");
    assert!(mounts.iter().all(|line| line.starts_with("//first.file.core.windows.net/myshare ")), "{mounts:?}");
    guest.sh(&format!("echo of the pod >'{target}/file'; sync")).await;
    let share = &driver.cloud.server("first").shares["myshare"];
    assert_eq!(std::fs::read_to_string(share.join("file")).unwrap(), "of the pod\n");

    // As `requiresRepublish` says, about every minute.
    for _ in 0..2 {
        node.node_publish_volume(publish.clone()).await.unwrap();
    }
    assert_eq!(driver.mounts().await, mounts);
    let measure =
        NodeGetVolumeStatsRequest { volume_id: handle.clone(), volume_path: target.clone(), ..Default::default() };
    let usage = node.node_get_volume_stats(measure).await.unwrap().into_inner().usage;
    assert_eq!(usage[0].total, 5 << 30);

    // The Pod is deleted, and no other on this node has the volume.
    let unpublish = NodeUnpublishVolumeRequest { volume_id: handle.clone(), target_path: target.clone() };
    node.node_unpublish_volume(unpublish).await.unwrap();
    // kubelet removes what it has made, and fails where the driver has left something.
    guest.sh(&format!("[ ! -e '{target}' ] && rm '{folder}/vol_data.json' && rmdir '{folder}'")).await;
    let unstage = NodeUnstageVolumeRequest { volume_id: handle.clone(), staging_target_path: staging.clone() };
    node.node_unstage_volume(unstage).await.unwrap();
    guest.sh(&format!("[ ! -e '{staging}' ] || rmdir '{staging}'")).await;
    assert_eq!(driver.mounts().await, Vec::<String>::new());
    driver.key_is_nowhere(&key).await;
    driver.cloud.stop().await;
}
