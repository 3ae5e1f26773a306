//! What follows from requests and the mount table, on a machine whose table is a file; the guest tier mounts.

use std::{
    collections::HashMap,
    fs,
    path::PathBuf,
    sync::{Arc, Mutex},
};

use csi_proto::csi::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume, access_mode::Mode};
use csi_proto::csi::*;
use lazuli_model::{
    Secret,
    event::{Claim, Pod, Reason, Regarding},
};
use lazuli_shares::secret::Credentials;
use prometheus_client::metrics::counter::Counter;

use super::{metrics::Outcome, *};
use crate::scratch::Scratch;

const ID: &str = "g#f1#data###default";
const KEY: &str = "c2VjcmV0LWtleQ==";

/// A node whose mount table is a file, and the questions for keys that it has asked.
struct Lab {
    folder: Scratch,
    service: NodeService,
    /// The key that each question named as refused.
    asked: Arc<Mutex<Vec<Option<Secret>>>>,
    events: lossy::Receiver<Event>,
    metrics: ShareMetrics,
}

impl Lab {
    fn new() -> Self {
        Self::with(|_| Err(KeyError::NoKey("the lab has none".to_owned())))
    }

    fn with(answer: fn(Option<Secret>) -> Result<Credentials, KeyError>) -> Self {
        let folder = Scratch::new();
        fs::create_dir_all(folder.join("proc/self")).unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&asked);
        let keys = KeyReader::new(move |request| {
            noted.lock().unwrap().push(request.refused.clone());
            Box::pin(async move { answer(request.refused) })
        });
        let host = Host::new().with_proc(folder.join("proc"));
        let (events, sent) = lossy::channel(10, Counter::default());
        let metrics = ShareMetrics::default();
        let config = NodeConfig { keys: Some(keys), events, metrics: metrics.clone(), ..NodeConfig::new("node-0") };
        let lab = Self { service: NodeService::new(host, config), folder, asked, events: sent, metrics };
        lab.table(&[]);
        lab
    }

    fn path(&self, name: &str) -> PathBuf {
        fs::canonicalize(self.folder.path()).unwrap().join(name)
    }

    fn folder(&self, name: &str) -> PathBuf {
        fs::create_dir_all(self.path(name)).unwrap();
        self.path(name)
    }

    /// Mounts: target, options, type and source.
    fn table(&self, mounts: &[(&Path, &str, &str, &str)]) {
        let line = |(at, (target, options, fs_type, source)): (usize, &(&Path, &str, &str, &str))| {
            format!("{} 1 0:{at} / {} {options} - {fs_type} {source} rw\n", at + 30, target.display())
        };
        let text: String = mounts.iter().enumerate().map(line).collect();
        fs::write(self.folder.join("proc/self/mountinfo"), format!("22 1 254:0 / / rw - ext4 /dev/vda rw\n{text}"))
            .unwrap();
    }

    async fn stage(&self, request: NodeStageVolumeRequest) -> Result<(), Status> {
        self.service.node_stage_volume(Request::new(request)).await.map(drop)
    }

    async fn publish(&self, request: NodePublishVolumeRequest) -> Result<(), Status> {
        self.service.node_publish_volume(Request::new(request)).await.map(drop)
    }

    fn asked(&self) -> Vec<Option<Secret>> {
        self.asked.lock().unwrap().clone()
    }

    fn to_stage(&self, context: &[(&str, &str)]) -> NodeStageVolumeRequest {
        NodeStageVolumeRequest {
            volume_id: ID.into(),
            staging_target_path: self.path("staging").display().to_string(),
            volume_capability: Some(capability(Mode::MultiNodeMultiWriter)),
            volume_context: map(context),
            ..Default::default()
        }
    }

    fn to_publish(&self, mode: Mode) -> NodePublishVolumeRequest {
        NodePublishVolumeRequest {
            volume_id: ID.into(),
            staging_target_path: self.path("staging").display().to_string(),
            target_path: self.path("pods/1/pvc/mount").display().to_string(),
            volume_capability: Some(capability(mode)),
            ..Default::default()
        }
    }
}

fn map(pairs: &[(&str, &str)]) -> HashMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn capability(mode: Mode) -> VolumeCapability {
    VolumeCapability {
        access_mode: Some(AccessMode { mode: mode.into() }),
        // external-provisioner's default, which is of disks.
        access_type: Some(AccessType::Mount(MountVolume { fs_type: "ext4".into(), ..Default::default() })),
    }
}

fn status_of(answer: Result<(), Status>) -> (tonic::Code, String) {
    let status = answer.expect_err("it is refused");
    (status.code(), status.message().to_owned())
}

const SOURCE: &str = "//f1.file.core.windows.net/data";

#[tokio::test]
async fn a_repeated_stage_asks_for_no_key_whoever_has_staged() {
    let lab = Lab::new();
    let staging = lab.folder("staging");
    lab.table(&[(&staging, "rw", "cifs", SOURCE)]);
    lab.stage(lab.to_stage(&[])).await.unwrap();
    assert_eq!(lab.asked(), []);
    // Another share, or another kind of mount, is left as it is.
    for (options, fs_type, source) in
        [("rw", "cifs", "//f1.file.core.windows.net/other"), ("rw", "ext4", "/dev/sdc"), ("ro", "cifs", SOURCE)]
    {
        lab.table(&[(&staging, options, fs_type, source)]);
        let (code, message) = status_of(lab.stage(lab.to_stage(&[])).await);
        assert_eq!(code, tonic::Code::AlreadyExists);
        assert!(message.contains(source) && message.contains(SOURCE), "{message}");
    }
    assert_eq!(lab.asked(), []);
}

#[tokio::test]
async fn a_dead_mount_needs_a_key_and_stays_until_there_is_one() {
    let lab = Lab::new();
    lab.folder("pods/1/pvc");
    let staging = lab.path("staging");
    // In the table, and not answering.
    lab.table(&[(&staging, "rw", "cifs", SOURCE)]);
    let (code, message) = status_of(lab.publish(lab.to_publish(Mode::MultiNodeMultiWriter)).await);
    assert_eq!((code, lab.asked()), (tonic::Code::FailedPrecondition, vec![None]), "{message}");
    assert!(message.contains("the lab has none"), "{message}");
    lab.table(&[]);
    let (code, _) = status_of(lab.stage(lab.to_stage(&[])).await);
    assert_eq!((code, lab.asked()), (tonic::Code::FailedPrecondition, vec![None, None]));
}

#[tokio::test]
async fn secrets_of_the_request_are_used_before_the_key_source_and_shown_nowhere() {
    let lab = Lab::new();
    let mut request = lab.to_stage(&[("server", "127.0.0.1"), ("shareName", "data")]);
    request.secrets = map(&[("accountname", "f1"), ("azureStorageAccountKey", KEY)]);
    let parsed = Stage::parse(request.clone()).unwrap();
    assert_eq!(parsed.desired.credentials, Some(Credentials { account: "f1".into(), key: Secret::new(KEY) }));
    assert!(!format!("{parsed:?}").contains(KEY));
    // Nothing is mounted here, for want of a kernel or a server; no key is asked for and none is shown.
    let (code, message) = status_of(lab.stage(request.clone()).await);
    assert!(matches!(code, tonic::Code::FailedPrecondition | tonic::Code::Unavailable), "{code:?}: {message}");
    assert!(!message.contains(KEY), "{message}");
    assert_eq!(lab.asked(), []);
    // The account may stand in the volume alone, and a Secret without a key is none.
    request.secrets = map(&[("accountkey", KEY)]);
    assert_eq!(Stage::parse(request.clone()).unwrap().desired.credentials.unwrap().account, "f1");
    request.secrets = map(&[("csi.storage.k8s.io/serviceAccount.tokens", "{}")]);
    assert_eq!(Stage::parse(request.clone()).unwrap().desired.credentials, None);
    request.secrets = map(&[("accountkey", KEY), ("azurestorageaccountkey", "other")]);
    let refused = Stage::parse(request).unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(!crate::server::chain(&refused).contains(KEY));
}

#[tokio::test]
async fn a_volume_that_names_a_secret_alone_asks_for_a_key_only_when_it_is_mounted() {
    let lab = Lab::with(|_| Ok(Credentials { account: "f9".into(), key: Secret::new(KEY) }));
    let context = [("shareName", "data"), ("secretName", "mine"), ("storageEndpointSuffix", "invalid")];
    let staging = lab.folder("staging");
    let target = lab.path("pods/1/pvc/mount");
    lab.folder("pods/1/pvc");
    let stage = || NodeStageVolumeRequest { volume_id: "any text".into(), ..lab.to_stage(&context) };
    let publish = || NodePublishVolumeRequest {
        volume_id: "any text".into(),
        volume_context: map(&context),
        ..lab.to_publish(Mode::MultiNodeMultiWriter)
    };
    lab.table(&[(&staging, "rw", "cifs", "//f9.file.invalid/data"), (&target, "rw", "cifs", "//f9.file.invalid/data")]);
    lab.stage(stage()).await.unwrap();
    for _ in 0..3 {
        lab.publish(publish()).await.unwrap();
    }
    assert_eq!(lab.asked(), []);
    // Another share is not taken for it.
    lab.table(&[(&staging, "rw", "cifs", "//f9.file.invalid/other")]);
    let (code, message) = status_of(lab.stage(stage()).await);
    assert_eq!((code, lab.asked()), (tonic::Code::AlreadyExists, vec![]), "{message}");
    assert!(message.contains("//(the account in Secret default/mine)/data"), "{message}");
    // What is not mounted needs the key, and its account is the server's.
    lab.table(&[]);
    let (code, message) = status_of(lab.stage(stage()).await);
    assert_eq!((code, lab.asked()), (tonic::Code::Unavailable, vec![None]), "{message}");
    assert!(message.contains("f9.file.invalid"), "{message}");
}

#[tokio::test]
async fn a_person_hears_on_the_pod_why_a_share_is_not_mounted_and_it_is_counted() {
    let mut lab = Lab::with(|_| Err(KeyError::Unavailable("10.0.0.1:29662: no connection".to_owned())));
    lab.folder("pods/1/pvc");
    let staging = lab.path("staging");
    // In the table, and not answering.
    lab.table(&[(&staging, "rw", "cifs", SOURCE)]);
    let of_pod = [
        ("csi.storage.k8s.io/pod.name", "app-0"),
        ("csi.storage.k8s.io/pod.namespace", "db"),
        ("csi.storage.k8s.io/pod.uid", "u"),
    ];
    let request =
        NodePublishVolumeRequest { volume_context: map(&of_pod), ..lab.to_publish(Mode::MultiNodeMultiWriter) };
    let (code, message) = status_of(lab.publish(request).await);
    assert!(code == tonic::Code::Unavailable && message.contains("10.0.0.1"), "{message}");
    let pod = Regarding::Pod(Pod { namespace: "db".into(), name: "app-0".into(), uid: Some("u".into()) });
    for (reason, parts) in [
        (Reason::FileMountDead, ["what was mounted of its share is dead (", "Restart those that were running"]),
        (Reason::AccountKeyUnavailable, ["no controller hands out the key", "See that the controller's Pods run"]),
    ] {
        let event = lab.events.try_receive().unwrap();
        assert_eq!((&event.regarding, event.reason), (&pod, reason));
        assert!(event.note.starts_with(&format!("Volume {ID} on node node-0: ")), "{}", event.note);
        assert!(
            parts.iter().all(|part| event.note.contains(part)) && !event.note.contains("10.0.0.1"),
            "{}",
            event.note
        );
    }
    // Staging knows no Pod: the claim, where the volume names it, else the Node.
    lab.table(&[]);
    let claim = Claim { namespace: "db".into(), name: "data-0".into(), uid: None };
    let of_claim = [("csi.storage.k8s.io/pvc/name", "data-0"), ("csi.storage.k8s.io/pvc/namespace", "db")];
    for (context, expected) in [(&of_claim[..], Regarding::Claim(claim)), (&[], Regarding::Node("node-0".into()))] {
        status_of(lab.stage(lab.to_stage(context)).await);
        assert_eq!(lab.events.try_receive().unwrap().regarding, expected);
    }
    assert_eq!(lab.events.try_receive(), None);
    assert_eq!((lab.metrics.counts(Outcome::KeyUnavailable), lab.metrics.counts(Outcome::Mounted)), (3, 0));
    assert_eq!(lab.metrics.dead_and_hung(), (1, 0));
}

#[tokio::test]
async fn what_is_published_is_published_again_by_the_mount_table_alone() {
    let lab = Lab::new();
    let target = lab.path("pods/1/pvc/mount");
    lab.folder("pods/1/pvc");
    // Neither the staged mount nor the published one answers: nobody asks them.
    let staging = lab.path("staging");
    lab.table(&[(&staging, "rw", "cifs", SOURCE), (&target, "rw", "cifs", SOURCE)]);
    lab.publish(lab.to_publish(Mode::MultiNodeMultiWriter)).await.unwrap();
    assert_eq!(lab.asked(), []);
    lab.table(&[(&target, "ro", "cifs", SOURCE)]);
    lab.publish(NodePublishVolumeRequest { readonly: true, ..lab.to_publish(Mode::MultiNodeMultiWriter) })
        .await
        .unwrap();
    let (code, message) = status_of(lab.publish(lab.to_publish(Mode::MultiNodeMultiWriter)).await);
    assert_eq!(code, tonic::Code::AlreadyExists, "{message}");
    lab.table(&[(&target, "rw", "cifs", "//f1.file.core.windows.net/other")]);
    let (code, message) = status_of(lab.publish(lab.to_publish(Mode::MultiNodeMultiWriter)).await);
    assert_eq!(code, tonic::Code::AlreadyExists, "{message}");
}

#[tokio::test]
async fn only_a_staged_share_is_published_and_only_once_where_the_mode_says_so() {
    let lab = Lab::new();
    lab.folder("pods/1/pvc");
    let staging = lab.folder("staging");
    let (code, message) = status_of(lab.publish(lab.to_publish(Mode::MultiNodeMultiWriter)).await);
    assert_eq!(code, tonic::Code::FailedPrecondition, "{message}");
    let without =
        NodePublishVolumeRequest { staging_target_path: String::new(), ..lab.to_publish(Mode::SingleNodeWriter) };
    assert_eq!(status_of(lab.publish(without).await).0, tonic::Code::FailedPrecondition);
    let other = lab.folder("pods/2/pvc/mount");
    lab.table(&[(&staging, "rw", "cifs", SOURCE), (&other, "rw", "cifs", SOURCE)]);
    let (code, message) = status_of(lab.publish(lab.to_publish(Mode::SingleNodeSingleWriter)).await);
    assert_eq!(code, tonic::Code::FailedPrecondition);
    assert!(message.contains("pods/2/pvc/mount"), "{message}");
}

#[tokio::test]
async fn a_volume_whose_account_is_in_the_secrets_of_its_stage_alone_is_published_without_them() {
    let lab = Lab::with(|_| Ok(Credentials { account: "f9".into(), key: Secret::new(KEY) }));
    let context = [("shareName", "data"), ("storageEndpointSuffix", "invalid")];
    let (staging, target) = (lab.folder("staging"), lab.path("pods/1/pvc/mount"));
    lab.folder("pods/1/pvc");
    let secrets = map(&[("azurestorageaccountname", "f9"), ("azurestorageaccountkey", KEY)]);
    let stage =
        |secrets| NodeStageVolumeRequest { volume_id: "unique-volumeid".into(), secrets, ..lab.to_stage(&context) };
    let publish = || NodePublishVolumeRequest {
        volume_id: "unique-volumeid".into(),
        volume_context: map(&context),
        ..lab.to_publish(Mode::MultiNodeMultiWriter)
    };
    let share = |path, share| (path, "rw", "cifs", share);
    lab.table(&[share(&*staging, "//f9.file.invalid/data"), share(&*target, "//f9.file.invalid/data")]);
    lab.stage(stage(secrets.clone())).await.unwrap();
    // kubelet passes the secrets of a stage to no publish.
    lab.publish(publish()).await.unwrap();
    lab.table(&[share(&*staging, "//f9.file.invalid/other")]);
    let (code, message) = status_of(lab.publish(publish()).await);
    assert_eq!(code, tonic::Code::FailedPrecondition, "{message}");
    // Another server's share is not taken for it where the server is known.
    lab.table(&[share(&*staging, "//f1.file.invalid/data")]);
    assert_eq!(status_of(lab.stage(stage(secrets)).await).0, tonic::Code::AlreadyExists);
    let (code, message) = status_of(lab.stage(stage(HashMap::new())).await);
    assert!(code == tonic::Code::InvalidArgument && message.contains("no storage account"), "{message}");
    assert_eq!(lab.asked(), []);
}

#[tokio::test]
async fn what_no_share_can_be_is_refused_before_a_key_is_asked_for() {
    let lab = Lab::new();
    let mut block = lab.to_stage(&[]);
    block.volume_capability.as_mut().unwrap().access_type = Some(AccessType::Block(BlockVolume {}));
    for (request, says) in [
        (block, "no block device"),
        (NodeStageVolumeRequest { volume_id: String::new(), ..lab.to_stage(&[]) }, "volume_id is missing"),
        (NodeStageVolumeRequest { staging_target_path: "a".into(), ..lab.to_stage(&[]) }, "not an absolute path"),
        (NodeStageVolumeRequest { volume_capability: None, ..lab.to_stage(&[]) }, "volume_capability is missing"),
        (
            NodeStageVolumeRequest { volume_capability: Some(capability(Mode::Unknown)), ..lab.to_stage(&[]) },
            "access mode",
        ),
        (lab.to_stage(&[("protocol", "nfs")]), "nfs"),
        (lab.to_stage(&[("folderName", "../up")]), "folderName"),
    ] {
        let (code, message) = status_of(lab.stage(request).await);
        assert_eq!(code, tonic::Code::InvalidArgument, "{message}");
        assert!(message.contains(says), "{message}");
    }
    // Inline volumes of Pods, which have ids without meaning.
    for volume_id in [ID, "csi-0123"] {
        let context = [("csi.storage.k8s.io/ephemeral", "true"), ("shareName", "data"), ("secretName", "mine")];
        let inline = NodePublishVolumeRequest {
            volume_id: volume_id.into(),
            volume_context: map(&context),
            staging_target_path: String::new(),
            ..lab.to_publish(Mode::SingleNodeWriter)
        };
        let (code, message) = status_of(lab.publish(inline).await);
        assert_eq!(code, tonic::Code::InvalidArgument);
        assert!(message.contains("PersistentVolumeClaim"), "{message}");
    }
    assert_eq!(lab.asked(), []);
}

#[tokio::test]
async fn nothing_staged_or_published_is_undone_already_and_has_no_figures() {
    let lab = Lab::new();
    let request = NodeUnstageVolumeRequest {
        volume_id: ID.into(),
        staging_target_path: lab.path("staging").display().to_string(),
    };
    lab.service.node_unstage_volume(Request::new(request)).await.unwrap();
    let target_path = lab.path("pods/none/mount").display().to_string();
    let request = NodeUnpublishVolumeRequest { volume_id: ID.into(), target_path: target_path.clone() };
    lab.service.node_unpublish_volume(Request::new(request)).await.unwrap();
    let request = NodeGetVolumeStatsRequest { volume_id: ID.into(), volume_path: target_path, ..Default::default() };
    let missing = lab.service.node_get_volume_stats(Request::new(request)).await.unwrap_err();
    assert_eq!(missing.code(), tonic::Code::NotFound);
}

#[tokio::test]
async fn the_node_tells_what_the_go_driver_tells() {
    let service = Lab::new().service;
    let answer = service.node_get_capabilities(Request::new(NodeGetCapabilitiesRequest {})).await.unwrap();
    let types: Vec<rpc::Type> = answer
        .into_inner()
        .capabilities
        .into_iter()
        .map(|capability| match capability.r#type {
            Some(Type::Rpc(rpc)) => rpc.r#type(),
            None => panic!("no type"),
        })
        .collect();
    use rpc::Type::{GetVolumeStats, SingleNodeMultiWriter, StageUnstageVolume, VolumeMountGroup};
    assert_eq!(types, [StageUnstageVolume, GetVolumeStats, SingleNodeMultiWriter, VolumeMountGroup]);
    let info = service.node_get_info(Request::new(NodeGetInfoRequest {})).await.unwrap().into_inner();
    assert_eq!(info, NodeGetInfoResponse { node_id: "node-0".into(), ..Default::default() });
    let grown = service.node_expand_volume(Request::new(NodeExpandVolumeRequest::default())).await.unwrap_err();
    assert_eq!(grown.code(), tonic::Code::Unimplemented);
}
