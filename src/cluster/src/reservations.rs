//! The snapshot of LUNs that VolumeAttachments name, and the one of PersistentVolumes' handles.
//!
//! Rests on VolumeAttachments (which LUN, on which node) and PersistentVolumes (whose LUN). Every attachment
//! of the driver that names a LUN counts, also one that is being deleted or no longer attached: kubelet may
//! still stage by it.
//!
//! The snapshot is
//! - `NoCluster` where there is no client,
//! - `Cold` until both resources have been listed whole,
//! - `Synced` from then on, as long as each of them was heard of within [`STALE_AFTER`]; else `Cold` again,
//!   until a list or a bookmark proves the picture whole. An old picture lacks the newest attachments, and a
//!   LUN of one of those might be given away: waiting is the safe side.
//!
//! The other direction, an attachment that is gone and still shown, costs a LUN for a moment and is harmless.
//!
//! The handles are `NoCluster`, `Cold` and `Synced` together with the LUNs: a list of volumes that rests on an old picture
//! would leave out the volumes of a new resource group.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use kube::Client;
use lazuli_model::Lun;
use lazuli_storage::{
    list::VolumeHandles,
    lun::{LunReservations, Reservation},
};
use lazuli_telemetry::Condition;
use serde::Deserialize;
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{
    follow::{Change, Interest, Slim, SlimMetadata, WAITING, follow},
    liveness::{Heard, Liveness, STALE_AFTER, keep_watching},
};

pub(super) const ATTACHMENTS: &str = "/apis/storage.k8s.io/v1/volumeattachments";
pub(super) const VOLUMES: &str = "/api/v1/persistentvolumes";
/// Key of the LUN in `status.attachmentMetadata`. Source: the publish context of the Go driver, which the
/// attacher copies there.
const LUN_KEY: &str = "LUN";

/// Keeps `snapshot` and `known_handles` up to date until `stop`. `driver` is the CSI driver's name. Without a client
/// both become `NoCluster` and the call returns. `live` is fulfilled while both resources are followed, or need not be.
///
/// Run it as a task of its own. At the end both are `Cold`: nothing keeps them up to date.
pub async fn watch_luns(
    client: Option<Client>,
    driver: &str,
    snapshot: watch::Sender<LunReservations>,
    known_handles: watch::Sender<VolumeHandles>,
    live: Condition,
    stop: CancellationToken,
) {
    let Some(client) = client else {
        known_handles.send_replace(VolumeHandles::NoCluster);
        snapshot.send_replace(LunReservations::NoCluster);
        live.ready("there is no cluster to watch");
        return;
    };
    let cold = || {
        known_handles.send_replace(VolumeHandles::Cold);
        snapshot.send_replace(LunReservations::Cold);
    };
    // A snapshot that is not kept up to date would give away the LUNs of the newest attachments.
    let keep = || keep(&client, driver, &snapshot, &known_handles, &live);
    keep_watching("VolumeAttachments and PersistentVolumes", &live, &stop, cold, keep).await;
}

/// Follows both resources and tells the snapshot; does not return by itself.
async fn keep(
    client: &Client,
    driver: &str,
    snapshot: &watch::Sender<LunReservations>,
    known_handles: &watch::Sender<VolumeHandles>,
    live: &Condition,
) {
    let (attachment_changes, mut attachments) = mpsc::channel(WAITING);
    let (volume_changes, mut volumes) = mpsc::channel(WAITING);
    let following_attachments =
        follow::<SlimAttachment>(client.clone(), ATTACHMENTS, Interest::of_driver(driver), attachment_changes);
    let following_volumes = follow::<SlimVolume>(client.clone(), VOLUMES, Interest::of_driver(driver), volume_changes);
    let keeping = async {
        let mut picture = Picture::new(snapshot, known_handles);
        let mut liveness = Liveness::of(live, "VolumeAttachments and PersistentVolumes");
        loop {
            liveness.show(picture.synced);
            let stale_at = picture.stale_at();
            tokio::select! {
                // In this order: what is waiting is told before the age is judged.
                biased;
                Some(change) = attachments.recv() => {
                    liveness.note("VolumeAttachments", &change);
                    picture.attachments(change);
                }
                Some(change) = volumes.recv() => {
                    liveness.note("PersistentVolumes", &change);
                    picture.volumes(change);
                }
                () = sleep_until(stale_at.unwrap_or_else(Instant::now)), if stale_at.is_some() => {
                    picture.went_stale();
                }
            }
        }
    };
    tokio::select! {
        () = following_attachments => {}
        () = following_volumes => {}
        () = keeping => {}
    }
}

/// What of one attachment matters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Attachment {
    node: String,
    lun: Lun,
    source: Source,
}

impl Attachment {
    /// Its reservation, with the handle that a PersistentVolume of this name has.
    fn reservation(&self, name: &str, handle: impl FnOnce(&str) -> Option<String>) -> Reservation {
        Reservation {
            lun: self.lun,
            volume_handle: match &self.source {
                Source::Volume(volume) => handle(volume),
                Source::Inline(handle) => Some(handle.clone()),
                Source::Unknown => None,
            },
            attachment: name.to_owned(),
        }
    }

    /// Its node, and its reservation there.
    pub(super) fn into_reservation(
        self,
        name: String,
        handle: impl FnOnce(&str) -> Option<String>,
    ) -> (String, Reservation) {
        let reservation = self.reservation(&name, handle);
        (self.node, reservation)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Source {
    Volume(String),
    Inline(String),
    Unknown,
}

/// The picture behind the snapshot. A change touches the entries it is about and nothing else: with 5,000
/// attachments a rebuild for every event would cost more than everything else this process does.
struct Picture<'s> {
    snapshot: &'s watch::Sender<LunReservations>,
    known_handles: &'s watch::Sender<VolumeHandles>,
    attachments: BTreeMap<String, Attachment>,
    /// Handle of each volume, by the name of its PersistentVolume.
    handles: BTreeMap<String, Arc<str>>,
    /// Attachments by the name of their PersistentVolume.
    by_volume: BTreeMap<String, BTreeSet<String>>,
    attachments_heard: Heard,
    volumes_heard: Heard,
    /// Whether the snapshot shows this picture.
    synced: bool,
    /// Whether a list replaced a part since the snapshot was last made whole.
    replaced: bool,
}

impl<'s> Picture<'s> {
    fn new(snapshot: &'s watch::Sender<LunReservations>, known_handles: &'s watch::Sender<VolumeHandles>) -> Self {
        Self {
            snapshot,
            known_handles,
            attachments: BTreeMap::new(),
            handles: BTreeMap::new(),
            by_volume: BTreeMap::new(),
            attachments_heard: Heard::default(),
            volumes_heard: Heard::default(),
            synced: false,
            replaced: false,
        }
    }

    fn stale_at(&self) -> Option<Instant> {
        let oldest = self.attachments_heard.at?.min(self.volumes_heard.at?);
        self.synced.then(|| oldest + STALE_AFTER)
    }

    fn went_stale(&mut self) {
        warn!(
            seconds = STALE_AFTER.as_secs(),
            "no word from the API server about attachments: no LUN is given until there is"
        );
        self.synced = false;
        self.known_handles.send_replace(VolumeHandles::Cold);
        self.snapshot.send_replace(LunReservations::Cold);
    }

    fn attachments(&mut self, change: Change<Attachment>) {
        self.attachments_heard.note(&change);
        match change {
            Change::Replaced(all) => {
                self.attachments = all.into_iter().collect();
                self.by_volume = BTreeMap::new();
                for (name, attachment) in &self.attachments {
                    index(&mut self.by_volume, name, attachment);
                }
                self.replaced = true;
            }
            Change::Applied(name, Some(attachment)) => {
                if self.attachments.get(&name) != Some(&attachment) {
                    self.remove(&name);
                    index(&mut self.by_volume, &name, &attachment);
                    self.show(&name, &attachment);
                    self.attachments.insert(name, attachment);
                }
            }
            Change::Applied(name, None) | Change::Deleted(name) => self.remove(&name),
            Change::Confirmed | Change::Lost(_) => {}
        }
        self.sync();
    }

    fn volumes(&mut self, change: Change<Arc<str>>) {
        self.volumes_heard.note(&change);
        match change {
            Change::Replaced(all) => {
                self.handles = all.into_iter().collect();
                self.replaced = true;
            }
            Change::Applied(volume, Some(handle)) => {
                if self.handles.get(&volume) != Some(&handle) {
                    self.handles.insert(volume.clone(), handle.clone());
                    self.show_all_of(&volume);
                    self.change_handles(|handles| drop(handles.insert(volume, handle)));
                }
            }
            Change::Applied(volume, None) | Change::Deleted(volume) => {
                if self.handles.remove(&volume).is_some() {
                    self.show_all_of(&volume);
                    self.change_handles(|handles| drop(handles.remove(&volume)));
                }
            }
            Change::Confirmed | Change::Lost(_) => {}
        }
        self.sync();
    }

    /// Publishes the picture if it is whole and the snapshot does not show it yet. If it is not whole, what
    /// the snapshot shows stays until it is too old.
    fn sync(&mut self) {
        let shown = self.synced && !self.replaced;
        if shown || !self.attachments_heard.is_fresh() || !self.volumes_heard.is_fresh() {
            return;
        }
        let mut nodes: BTreeMap<String, Vec<Reservation>> = BTreeMap::new();
        for (name, attachment) in &self.attachments {
            let reservation = self.reservation(name, attachment);
            insert(nodes.entry(attachment.node.clone()).or_default(), reservation);
        }
        self.synced = true;
        self.replaced = false;
        // Before the LUNs: who waits for those may then read these.
        self.known_handles.send_replace(VolumeHandles::Synced(self.handles.clone()));
        self.snapshot.send_if_modified(|shown| {
            let fresh = LunReservations::Synced(nodes);
            let differs = *shown != fresh;
            if *shown == LunReservations::Cold {
                info!(attachments = self.attachments.len(), "attachments are known");
            }
            *shown = fresh;
            differs
        });
    }

    fn reservation(&self, name: &str, attachment: &Attachment) -> Reservation {
        attachment.reservation(name, |volume| self.handles.get(volume).map(|handle| handle.to_string()))
    }

    fn show(&self, name: &str, attachment: &Attachment) {
        let reservation = self.reservation(name, attachment);
        self.change_node(&attachment.node, |reservations| {
            reservations.retain(|shown| shown.attachment != name);
            insert(reservations, reservation);
        });
    }

    fn show_all_of(&self, volume: &str) {
        for name in self.by_volume.get(volume).into_iter().flatten() {
            if let Some(attachment) = self.attachments.get(name) {
                self.show(name, attachment);
            }
        }
    }

    fn remove(&mut self, name: &str) {
        let Some(attachment) = self.attachments.remove(name) else {
            return;
        };
        if let Source::Volume(volume) = &attachment.source
            && let Some(names) = self.by_volume.get_mut(volume)
        {
            names.remove(name);
            if names.is_empty() {
                self.by_volume.remove(volume);
            }
        }
        self.change_node(&attachment.node, |reservations| {
            reservations.retain(|shown| shown.attachment != name);
        });
    }

    /// Changes what the snapshot shows of one node, in place. While it is cold it shows nothing.
    fn change_node(&self, node: &str, change: impl FnOnce(&mut Vec<Reservation>)) {
        if !self.synced {
            return;
        }
        self.snapshot.send_if_modified(|shown| {
            let LunReservations::Synced(nodes) = shown else {
                return false;
            };
            let reservations = nodes.entry(node.to_owned()).or_default();
            change(reservations);
            if reservations.is_empty() {
                nodes.remove(node);
            }
            true
        });
    }
}

impl Picture<'_> {
    /// Changes the handles that are shown, in place. While the picture is cold they are not shown.
    fn change_handles(&self, change: impl FnOnce(&mut BTreeMap<String, Arc<str>>)) {
        if !self.synced {
            return;
        }
        self.known_handles.send_if_modified(|shown| {
            let VolumeHandles::Synced(handles) = shown else {
                return false;
            };
            change(handles);
            true
        });
    }
}

fn index(by_volume: &mut BTreeMap<String, BTreeSet<String>>, name: &str, attachment: &Attachment) {
    if let Source::Volume(volume) = &attachment.source {
        by_volume.entry(volume.clone()).or_default().insert(name.to_owned());
    }
}

/// Keeps a node's reservations in the order of LUN and name.
fn insert(reservations: &mut Vec<Reservation>, reservation: Reservation) {
    let key = |reservation: &Reservation| (reservation.lun, reservation.attachment.clone());
    let at = reservations.partition_point(|shown| key(shown) < key(&reservation));
    reservations.insert(at, reservation);
}

#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SlimAttachment {
    pub(super) metadata: SlimMetadata,
    pub(super) spec: SlimAttachmentSpec,
    #[serde(default)]
    status: Option<SlimAttachmentStatus>,
}

#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SlimAttachmentSpec {
    pub(super) attacher: String,
    pub(super) node_name: String,
    pub(super) source: SlimSource,
}

#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SlimSource {
    pub(super) persistent_volume_name: Option<String>,
    pub(super) inline_volume_spec: Option<SlimVolumeSpec>,
}

#[derive(Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SlimAttachmentStatus {
    attachment_metadata: Option<BTreeMap<String, String>>,
}

#[derive(Clone, Deserialize)]
pub(super) struct SlimVolume {
    pub(super) metadata: SlimMetadata,
    pub(super) spec: SlimVolumeSpec,
}

#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SlimVolumeSpec {
    csi: Option<SlimCsi>,
    /// In-tree volumes: Kubernetes translates them, and their URI is the handle.
    azure_disk: Option<SlimAzureDisk>,
}

#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SlimCsi {
    driver: String,
    volume_handle: String,
}

#[derive(Clone, Deserialize)]
struct SlimAzureDisk {
    #[serde(rename = "diskURI")]
    disk_uri: String,
}

impl SlimVolumeSpec {
    pub(super) fn handle(self, driver: &str) -> Option<String> {
        match (self.csi, self.azure_disk) {
            (Some(csi), _) => (csi.driver == driver).then_some(csi.volume_handle),
            (None, Some(disk)) => Some(disk.disk_uri),
            (None, None) => None,
        }
    }

    /// The handle, whichever driver's it is.
    pub(super) fn any_handle(self) -> Option<String> {
        match (self.csi, self.azure_disk) {
            (Some(csi), _) => Some(csi.volume_handle),
            (None, disk) => disk.map(|disk| disk.disk_uri),
        }
    }
}

impl Slim for SlimVolume {
    type Kept = Arc<str>;

    fn metadata(&self) -> &SlimMetadata {
        &self.metadata
    }

    fn keep(self, interest: &Interest) -> Option<Arc<str>> {
        self.spec.handle(&interest.driver).map(Arc::from)
    }
}

impl Slim for SlimAttachment {
    type Kept = Attachment;

    fn metadata(&self) -> &SlimMetadata {
        &self.metadata
    }

    fn keep(self, interest: &Interest) -> Option<Attachment> {
        if self.spec.attacher != interest.driver {
            return None;
        }
        let named = self
            .status
            .and_then(|status| status.attachment_metadata)
            .and_then(|mut metadata| metadata.remove(LUN_KEY))?;
        let lun = match named.parse() {
            Ok(lun) => lun,
            Err(error) => {
                // No other driver writes here, so this is worth a look; no LUN can be kept for it.
                warn!(attachment = self.metadata.name, %error, "an attachment names no valid LUN");
                return None;
            }
        };
        let source = &self.spec.source;
        Some(Attachment {
            lun,
            source: match (source.persistent_volume_name.clone(), source.inline_volume_spec.clone()) {
                (Some(volume), _) => Source::Volume(volume),
                (None, Some(spec)) => spec.handle(&interest.driver).map_or(Source::Unknown, Source::Inline),
                (None, None) => Source::Unknown,
            },
            node: self.spec.node_name,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Step = (bool, Change<Attachment>, Change<Arc<str>>);

    fn attachment() -> impl Strategy<Value = Attachment> {
        (0u8..3, 0i64..4, 0u8..5).prop_map(|(node, lun, source)| Attachment {
            node: format!("n{node}"),
            lun: Lun::try_from(lun).expect("is a LUN"),
            source: match source {
                0 => Source::Unknown,
                1 => Source::Inline("inline".to_owned()),
                n => Source::Volume(format!("pv{n}")),
            },
        })
    }

    fn change<V: std::fmt::Debug + Clone + 'static>(
        prefix: &'static str,
        values: impl Strategy<Value = V> + Clone + 'static,
    ) -> impl Strategy<Value = Change<V>> {
        let name = (0u8..5).prop_map(move |n| format!("{prefix}{n}"));
        let one = (name.clone(), values.clone());
        prop_oneof![
            1 => prop::collection::vec(one, 0..5).prop_map(Change::Replaced),
            6 => (name.clone(), prop::option::weighted(0.8, values))
                .prop_map(|(name, value)| Change::Applied(name, value)),
            3 => name.prop_map(Change::Deleted),
            1 => Just(Change::Confirmed),
        ]
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let handles = (0u8..3).prop_map(|n| Arc::from(format!("disk{n}")));
        let attachments = std::rc::Rc::new(attachment().boxed());
        let step = (any::<bool>(), change("va", attachments), change("pv", handles));
        prop::collection::vec(step, 1..40)
    }

    proptest! {
        /// The snapshot that grew event by event is the one a restart would make.
        #[test]
        fn a_snapshot_that_grew_equals_one_made_anew(steps in steps()) {
            let (sender, grown) = watch::channel(LunReservations::Cold);
            let (tell_handles, grown_handles) = watch::channel(VolumeHandles::Cold);
            let mut picture = Picture::new(&sender, &tell_handles);
            picture.attachments(Change::Replaced(Vec::new()));
            prop_assert_eq!(&*grown.borrow(), &LunReservations::Cold);
            prop_assert_eq!(&*grown_handles.borrow(), &VolumeHandles::Cold);
            picture.volumes(Change::Replaced(Vec::new()));
            for (attachments, attachment_change, volume_change) in steps {
                if attachments {
                    picture.attachments(attachment_change);
                } else {
                    picture.volumes(volume_change);
                }
            }
            let (sender, anew) = watch::channel(LunReservations::Cold);
            let (tell_handles, anew_handles) = watch::channel(VolumeHandles::Cold);
            let mut fresh = Picture::new(&sender, &tell_handles);
            fresh.volumes(Change::Replaced(picture.handles.clone().into_iter().collect()));
            fresh.attachments(Change::Replaced(picture.attachments.into_iter().collect()));
            prop_assert_eq!(&*grown.borrow(), &*anew.borrow());
            prop_assert_eq!(&*grown_handles.borrow(), &*anew_handles.borrow());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_after_a_gap_does_not_make_the_picture_whole_but_a_bookmark_does() {
        let (sender, snapshot) = watch::channel(LunReservations::Cold);
        let (tell_handles, handles) = watch::channel(VolumeHandles::Cold);
        let mut picture = Picture::new(&sender, &tell_handles);
        picture.attachments(Change::Replaced(Vec::new()));
        picture.volumes(Change::Replaced(Vec::new()));
        assert_ne!(*snapshot.borrow(), LunReservations::Cold);
        tokio::time::advance(STALE_AFTER).await;
        picture.went_stale();
        picture.volumes(Change::Applied("pv".to_owned(), Some("handle".into())));
        picture.volumes(Change::Confirmed);
        picture.attachments(Change::Deleted("va".to_owned()));
        assert_eq!(*snapshot.borrow(), LunReservations::Cold);
        assert_eq!(*handles.borrow(), VolumeHandles::Cold);
        picture.attachments(Change::Confirmed);
        assert_ne!(*snapshot.borrow(), LunReservations::Cold);
        assert_eq!(*handles.borrow(), VolumeHandles::Synced([("pv".to_owned(), "handle".into())].into()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_of_one_resource_does_not_hide_that_the_other_is_stale() {
        let (sender, snapshot) = watch::channel(LunReservations::Cold);
        let (tell_handles, handles) = watch::channel(VolumeHandles::Cold);
        let mut picture = Picture::new(&sender, &tell_handles);
        picture.volumes(Change::Replaced(Vec::new()));
        picture.attachments(Change::Replaced(Vec::new()));
        tokio::time::advance(STALE_AFTER).await;
        picture.attachments(Change::Replaced(Vec::new()));
        assert!(picture.stale_at().is_some_and(|at| at <= Instant::now()));
        picture.went_stale();
        assert_eq!(*snapshot.borrow(), LunReservations::Cold);
        assert_eq!(*handles.borrow(), VolumeHandles::Cold);
    }
}
