//! Claims of file shares: CSI's calls on a unix socket, Azure's and Kubernetes' answers from their emulators.

use std::{collections::HashMap, sync::Arc, time::Duration};

use csi_proto::csi::{
    CapacityRange, ControllerExpandVolumeRequest, ControllerModifyVolumeRequest, CreateVolumeRequest,
    DeleteVolumeRequest, ValidateVolumeCapabilitiesRequest, Volume, VolumeCapability,
    controller_client::ControllerClient,
    volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume, access_mode::Mode},
};
use kube::Client;
use lazuli_apiserver::ApiServer;
use lazuli_emulator::call_log::Call;
use lazuli_journal::Recorder;
use lazuli_model::event::{Event, Reason, Regarding};
use lazuli_rig::{Folder, Lab, Options, ShareView, secret_writer};
use lazuli_shares::{adoption::BEGINNING, deletion::VolumeRef};
use lazuli_telemetry::lossy;
use prometheus_client::metrics::counter::Counter;
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
    events: lossy::Receiver<Event>,
    _folder: Folder,
}

impl Rig {
    pub(super) async fn start() -> Self {
        Self::with(|_| {}).await
    }

    async fn with(change: impl FnOnce(&mut Options)) -> Self {
        let folder = Folder::make("it").unwrap();
        let mut options = Options::new(folder.path());
        change(&mut options);
        let mut lab = Lab::start(options).await.unwrap();
        let server = ApiServer::start(lazuli_apiserver::Options::default());
        let volumes = watch::channel(Some(Arc::default())).0;
        let (sender, events) = lossy::channel(100, Counter::default());
        let view = ShareView { events: sender, ..view(&volumes, &server) };
        let client = lab.file_controller("files", view).await.unwrap();
        Self { lab, client, volumes, server, events, _folder: folder }
    }

    /// The events since the last look: the PersistentVolume and the note of each.
    fn kept(&mut self) -> Vec<(String, String)> {
        let events = std::iter::from_fn(|| self.events.try_receive());
        let of = |event: Event| match event.regarding {
            Regarding::Volume(name) if event.reason == Reason::ShareKept => (name, event.note),
            _ => panic!("{event:?}"),
        };
        events.map(of).collect()
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

/// A PersistentVolume with this volume id.
fn pv(name: &str, volume: &Volume, released: bool) -> VolumeRef {
    let attributes = volume.volume_context.clone().into_iter().collect();
    VolumeRef::of_driver(name, &volume.volume_id, &attributes, released)
}

#[tokio::test(start_paused = true)]
async fn file_a_share_that_another_volume_names_or_nobody_made_stays() {
    let mut rig = Rig::start().await;
    let volume = create(&rig.client, request("pvc-1", 5, &[("shareName", "together")])).await.unwrap();
    rig.volumes.send_replace(Some(Arc::new(vec![pv("pvc-1", &volume, false)])));
    let message = refused(delete(&rig.client, &volume.volume_id).await, Code::Unavailable);
    assert!(message.contains("not released"), "{message}");
    rig.volumes.send_replace(Some(Arc::new(vec![pv("pvc-1", &volume, true), pv("pv-2", &volume, false)])));
    delete(&rig.client, &volume.volume_id).await.unwrap();
    let events = rig.kept();
    assert!(events.len() == 1 && events[0].0 == "pvc-1" && events[0].1.contains("pv-2 names it too"), "{events:?}");
    // One that does not say what it is about counts as equal, and is told of.
    let unclear = VolumeRef::of_driver("vague", "mine", &std::collections::BTreeMap::new(), false);
    rig.volumes.send_replace(Some(Arc::new(vec![pv("pvc-1", &volume, true), unclear])));
    delete(&rig.client, &volume.volume_id).await.unwrap();
    let events = rig.kept();
    let names: Vec<&str> = events.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["pvc-1", "vague"]);
    assert!(events[1].1.contains("PersistentVolume vague may need it"), "{events:?}");
    let deletions = |rig: &Rig| rig.writes().iter().filter(|call| call.method == "DELETE").count();
    assert_eq!(deletions(&rig), 0);
    rig.volumes.send_replace(None);
    let message = refused(delete(&rig.client, &volume.volume_id).await, Code::Unavailable);
    assert!(message.contains("are not known yet"), "{message}");
    rig.volumes.send_replace(Some(Arc::default()));
    let message = refused(delete(&rig.client, &volume.volume_id).await, Code::Unavailable);
    assert!(message.contains("has begun less than 20 minutes ago"), "{message}");
    assert_eq!(deletions(&rig), 0);
    tokio::time::sleep(BEGINNING).await;
    delete(&rig.client, &volume.volume_id).await.unwrap();
    assert_eq!(deletions(&rig), 1, "this driver made it");
}

#[tokio::test(start_paused = true)]
async fn file_a_share_that_a_claim_has_just_got_is_not_deleted_with_another_claim() {
    let mut rig = Rig::start().await;
    tokio::time::sleep(BEGINNING).await;
    let together = [("shareName", "together")];
    let first = create(&rig.client, request("pvc-1", 5, &together)).await.unwrap();
    rig.volumes.send_replace(Some(Arc::new(vec![pv("pvc-1", &first, true)])));
    let second = create(&rig.client, request("pvc-2", 5, &together)).await.unwrap();
    let message = refused(delete(&rig.client, &first.volume_id).await, Code::Unavailable);
    assert!(message.contains("given to the request pvc-2 too"), "{message}");
    // Its PersistentVolume is seen.
    rig.volumes.send_replace(Some(Arc::new(vec![pv("pvc-1", &first, true), pv("pvc-2", &second, false)])));
    delete(&rig.client, &first.volume_id).await.unwrap();
    assert_eq!(rig.kept().len(), 1);
    // The last one takes the share along.
    rig.volumes.send_replace(Some(Arc::new(vec![pv("pvc-2", &second, true)])));
    delete(&rig.client, &second.volume_id).await.unwrap();
    assert_eq!(rig.writes().iter().filter(|call| call.method == "DELETE").count(), 1);
}

async fn modify(rig: &Rig, id: &str, parameters: &[(&str, &str)]) -> Result<(), Status> {
    let mutable_parameters = parameters.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
    let request = ControllerModifyVolumeRequest { volume_id: id.into(), mutable_parameters, ..Default::default() };
    rig.client.clone().controller_modify_volume(request).await.map(drop)
}

#[tokio::test]
async fn file_a_class_of_attributes_changes_the_performance_of_a_share() {
    let rig = Rig::start().await;
    let volume = create(&rig.client, request("pvc-1", 50, &[("skuName", "PremiumV2_LRS")])).await.unwrap();
    let patches = || rig.writes().iter().filter(|call| call.method == "PATCH").count();
    let faster = [("provisionedIOPS", "5000"), ("provisionedBandwidth", "300")];
    for _ in 0..2 {
        modify(&rig, &volume.volume_id, &faster).await.unwrap();
    }
    assert_eq!(patches(), 1, "what it is already is not written");
    for (parameters, words) in [
        (&[("skuName", "Premium_LRS")][..], "provisionedIOPS, provisionedBandwidth"),
        (&[("provisionedIOPS", "many")], "many"),
        (&[("provisionedIOPS", "5")], "allowed are whole numbers"),
    ] {
        let message = refused(modify(&rig, &volume.volume_id, parameters).await, Code::InvalidArgument);
        assert!(message.contains(words), "{message}");
    }
    let plain = create(&rig.client, request("pvc-2", 5, &[("skuName", "Standard_LRS")])).await.unwrap();
    let message = refused(modify(&rig, &plain.volume_id, &faster).await, Code::InvalidArgument);
    assert!(message.contains("the size alone decides"), "{message}");
    refused(modify(&rig, "no volume", &faster).await, Code::NotFound);
    let missing = volume.volume_id.replace("pvc-1", "pvc-9");
    refused(modify(&rig, &missing, &faster).await, Code::NotFound);
    assert_eq!(patches(), 1);
}

#[tokio::test]
async fn file_only_the_allowed_resource_groups_are_used() {
    let allowed = lazuli_model::AllowedResourceGroups::of(vec!["team".parse().unwrap()]);
    let rig = Rig::with(|options| options.allowed_resource_groups = allowed).await;
    let words = "team (--allowed-resource-groups)";
    let elsewhere = request("pvc-1", 5, &[("resourceGroup", "other")]);
    let message = refused(create(&rig.client, elsewhere).await, Code::InvalidArgument);
    assert!(message.contains(words), "{message}");
    let id = "other#account#pvc-1###shop";
    for answer in [
        delete(&rig.client, id).await,
        expand(&rig.client, id, 5).await.map(drop),
        modify(&rig, id, &[("provisionedIOPS", "5000")]).await,
    ] {
        let message = refused(answer, Code::InvalidArgument);
        assert!(message.contains(words), "{message}");
    }
    create(&rig.client, request("pvc-1", 5, &[])).await.unwrap();
}

/// The calls of the life of shares with everything that the controller asks Azure about them.
pub(super) async fn calls_of_a_life() -> Vec<Call> {
    let rig = Rig::start().await;
    let volume =
        create(&rig.client, request("pvc-1", 50, &[("skuName", "PremiumV2_LRS"), ("enableMultichannel", "true")]));
    let volume = volume.await.unwrap();
    expand(&rig.client, &volume.volume_id, 60).await.unwrap();
    modify(&rig, &volume.volume_id, &[("provisionedIOPS", "5000")]).await.unwrap();
    delete(&rig.client, &volume.volume_id).await.unwrap();
    let calls = rig.lab.emulator.control().call_log();
    calls.into_iter().filter(|call| call.plane == "arm").collect()
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
