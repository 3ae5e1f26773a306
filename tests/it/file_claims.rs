//! Claims of file shares: CSI's calls on a unix socket, Azure's and Kubernetes' answers from their emulators.

use std::{collections::HashMap, sync::Arc, time::Duration};

use csi_proto::csi::{
    CapacityRange, ControllerExpandVolumeRequest, CreateVolumeRequest, DeleteVolumeRequest,
    ValidateVolumeCapabilitiesRequest, Volume, VolumeCapability,
    controller_client::ControllerClient,
    volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume, access_mode::Mode},
};
use kube::Client;
use lazuli_apiserver::ApiServer;
use lazuli_emulator::call_log::Call;
use lazuli_journal::Recorder;
use lazuli_rig::{Folder, Lab, Options, ShareView, secret_writer};
use lazuli_shares::deletion::VolumeRef;
use lazuli_telemetry::lossy;
use tokio::sync::watch;
use tonic::{Code, Status, transport::Channel};

pub(super) const GIB: i64 = 1 << 30;

pub(super) type Volumes = watch::Sender<Option<Arc<Vec<VolumeRef>>>>;

/// An Azure, an API server, and a controller between them.
pub(super) struct Rig {
    pub(super) lab: Lab,
    pub(super) client: ControllerClient<Channel>,
    pub(super) volumes: Volumes,
    pub(super) server: ApiServer,
    _folder: Folder,
}

impl Rig {
    pub(super) async fn start() -> Self {
        let folder = Folder::make("it").unwrap();
        let mut lab = Lab::start(Options::new(folder.path())).await.unwrap();
        let server = ApiServer::start(lazuli_apiserver::Options::default());
        let volumes = watch::channel(Some(Arc::default())).0;
        let client = lab.file_controller("files", view(&volumes, &server)).await.unwrap();
        Self { lab, client, volumes, server, _folder: folder }
    }

    /// The writes that Azure has got, by what they are to.
    fn writes(&self) -> Vec<Call> {
        let calls = self.lab.emulator.control().call_log();
        calls.into_iter().filter(|call| call.method != "GET" && call.path.contains("Microsoft.Storage")).collect()
    }
}

pub(super) fn view(volumes: &Volumes, server: &ApiServer) -> ShareView {
    ShareView {
        volumes: volumes.subscribe(),
        secrets: Some(secret_writer(Client::new(server.router(), "default"))),
        events: lossy::Sender::nowhere(),
        journal: Recorder::nowhere(),
    }
}

fn mount() -> VolumeCapability {
    VolumeCapability {
        access_type: Some(AccessType::Mount(MountVolume::default())),
        access_mode: Some(AccessMode { mode: Mode::MultiNodeMultiWriter.into() }),
    }
}

pub(super) fn request(name: &str, gib: i64, parameters: &[(&str, &str)]) -> CreateVolumeRequest {
    let claim = [
        ("csi.storage.k8s.io/pv/name", name),
        ("csi.storage.k8s.io/pvc/name", "data"),
        ("csi.storage.k8s.io/pvc/namespace", "shop"),
    ];
    CreateVolumeRequest {
        name: name.into(),
        capacity_range: Some(CapacityRange { required_bytes: gib * GIB, limit_bytes: 0 }),
        volume_capabilities: vec![mount()],
        parameters: claim.iter().chain(parameters).map(|(key, value)| ((*key).into(), (*value).into())).collect(),
        ..Default::default()
    }
}

pub(super) async fn create(client: &ControllerClient<Channel>, request: CreateVolumeRequest) -> Result<Volume, Status> {
    Ok(client.clone().create_volume(request).await?.into_inner().volume.unwrap())
}

async fn delete(client: &ControllerClient<Channel>, id: &str) -> Result<(), Status> {
    let request = DeleteVolumeRequest { volume_id: id.into(), secrets: HashMap::new() };
    client.clone().delete_volume(request).await.map(drop)
}

async fn expand(client: &ControllerClient<Channel>, id: &str, gib: i64) -> Result<i64, Status> {
    let request = ControllerExpandVolumeRequest {
        volume_id: id.into(),
        capacity_range: Some(CapacityRange { required_bytes: gib * GIB, limit_bytes: 0 }),
        ..Default::default()
    };
    let grown = client.clone().controller_expand_volume(request).await?.into_inner();
    assert!(!grown.node_expansion_required, "the server shows the new size");
    Ok(grown.capacity_bytes / GIB)
}

#[track_caller]
pub(super) fn refused<T: std::fmt::Debug>(answer: Result<T, Status>, code: Code) -> String {
    let status = answer.unwrap_err();
    assert_eq!(status.code(), code, "{status:?}");
    status.message().to_owned()
}

#[tokio::test]
async fn file_a_claim_becomes_a_share_with_its_key_in_a_secret_grows_and_is_deleted() {
    let mut rig = Rig::start().await;
    let volume = create(&rig.client, request("pvc-1", 5, &[("skuName", "Standard_LRS")])).await.unwrap();
    let parts: Vec<&str> = volume.volume_id.split('#').collect();
    assert_eq!((parts.len(), parts[2], parts[5]), (6, "pvc-1", "shop"), "{}", volume.volume_id);
    assert_eq!(volume.capacity_bytes, 5 * GIB);
    let account = parts[1];
    let secret = rig.server.get("secrets", "shop", &format!("azure-storage-account-{account}-secret")).unwrap();
    assert_eq!(secret["type"], "Opaque");
    let keys: Vec<&String> = secret["data"].as_object().unwrap().keys().collect();
    assert_eq!(keys, ["azurestorageaccountkey", "azurestorageaccountname"]);
    // The same claim again, and from a replica without memory.
    let other = rig.lab.file_controller("other", view(&rig.volumes, &rig.server)).await.unwrap();
    for client in [&rig.client, &other] {
        let again = create(client, request("pvc-1", 5, &[("skuName", "Standard_LRS")])).await.unwrap();
        assert_eq!(again, volume);
    }
    refused(create(&rig.client, request("pvc-1", 9, &[("skuName", "Standard_LRS")])).await, Code::AlreadyExists);
    assert_eq!(expand(&other, &volume.volume_id, 7).await.unwrap(), 7);
    assert_eq!(expand(&rig.client, &volume.volume_id, 6).await.unwrap(), 7);
    // One account, however many claims.
    let next = create(&rig.client, request("pvc-2", 5, &[])).await.unwrap();
    assert_eq!(next.volume_id.split('#').nth(1), Some(account));
    let accounts =
        rig.writes().iter().filter(|call| call.method == "PUT" && !call.path.contains("fileServices")).count();
    assert_eq!(accounts, 1);
    for _ in 0..2 {
        delete(&rig.client, &volume.volume_id).await.unwrap();
    }
    refused(expand(&rig.client, &volume.volume_id, 9).await, Code::NotFound);
}

#[tokio::test]
async fn file_a_share_that_another_volume_names_or_nobody_made_stays() {
    let rig = Rig::start().await;
    let volume = create(&rig.client, request("pvc-1", 5, &[("shareName", "together")])).await.unwrap();
    let none = std::collections::BTreeMap::new();
    let pv = |name: &str, released| VolumeRef::of_driver(name, &volume.volume_id, &none, released);
    rig.volumes.send_replace(Some(Arc::new(vec![pv("pvc-1", false)])));
    let message = refused(delete(&rig.client, &volume.volume_id).await, Code::Unavailable);
    assert!(message.contains("not released"), "{message}");
    rig.volumes.send_replace(Some(Arc::new(vec![pv("pvc-1", true), pv("pv-2", false)])));
    let deletions = || rig.writes().iter().filter(|call| call.method == "DELETE").count();
    delete(&rig.client, &volume.volume_id).await.unwrap();
    assert_eq!(deletions(), 0);
    rig.volumes.send_replace(None);
    let message = refused(delete(&rig.client, &volume.volume_id).await, Code::Unavailable);
    assert!(message.contains("are not known yet"), "{message}");
    rig.volumes.send_replace(Some(Arc::default()));
    delete(&rig.client, &volume.volume_id).await.unwrap();
    assert_eq!(deletions(), 1, "this driver made it");
}

#[tokio::test]
async fn file_a_mistake_is_named_before_anything_is_written() {
    let rig = Rig::start().await;
    for (parameters, words) in [
        (&[("skuName", "Fast_LRS")][..], "Fast_LRS"),
        (&[("sku", "Standard_LRS")], "sku"),
        (&[("protocol", "nfs")], "nfs"),
        (&[("shareAccessTier", "Warm")], "Warm"),
        (&[("accountQuota", "99")], "99"),
    ] {
        let message = refused(create(&rig.client, request("pvc-1", 5, parameters)).await, Code::InvalidArgument);
        assert!(message.contains(words), "{message}");
    }
    let mut block = request("pvc-1", 5, &[]);
    block.volume_capabilities[0].access_type = Some(AccessType::Block(BlockVolume {}));
    refused(create(&rig.client, block).await, Code::InvalidArgument);
    refused(create(&rig.client, request("", 5, &[])).await, Code::InvalidArgument);
    assert_eq!(rig.writes().len(), 0);
    // What names no share is deleted already, and is no volume otherwise.
    delete(&rig.client, "no volume").await.unwrap();
    refused(expand(&rig.client, "no volume", 5).await, Code::NotFound);
    let validate = ValidateVolumeCapabilitiesRequest {
        volume_id: "rg#account#pvc-9###shop".into(),
        volume_capabilities: vec![mount()],
        ..Default::default()
    };
    refused(rig.client.clone().validate_volume_capabilities(validate).await, Code::NotFound);
}

#[tokio::test(start_paused = true)]
async fn file_claims_of_two_replicas_at_once_share_one_account() {
    let mut rig = Rig::start().await;
    let other = rig.lab.file_controller("other", view(&rig.volumes, &rig.server)).await.unwrap();
    let claims = (0..20).map(|number| {
        let client = if number % 2 == 0 { rig.client.clone() } else { other.clone() };
        tokio::spawn(async move { create(&client, request(&format!("pvc-{number}"), 5, &[])).await.unwrap() })
    });
    let made = futures::future::join_all(claims.collect::<Vec<_>>());
    let made = tokio::time::timeout(Duration::from_secs(300), made).await.unwrap();
    let accounts: std::collections::BTreeSet<String> =
        made.into_iter().map(|volume| volume.unwrap().volume_id.split('#').nth(1).unwrap().to_owned()).collect();
    assert_eq!(accounts.len(), 1, "{accounts:?}");
}
