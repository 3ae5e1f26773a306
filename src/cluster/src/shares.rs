//! The PersistentVolumes that may name a file share: of the file driver, and of the in-tree plugin.
//!
//! A command that ends lists them once: [`list_share_volumes`].
//!
//! Where there is no cluster, no PersistentVolume names anything. With one, they are unknown until they have been listed
//! whole, and again when nothing was heard of them within [`STALE_AFTER`]: a share is deleted only by what is known.

use std::{collections::BTreeMap, sync::Arc};

use kube::Client;
use lazuli_diagnosis::shares::ShareVolume;
use lazuli_model::{Gib, kube_name::is_subdomain};
use lazuli_shares::{
    deletion::{ShareVolumes, VolumeRef},
    secret::SecretRef,
};
use lazuli_storage::admission::bytes_of_quantity;
use lazuli_telemetry::Condition;
use serde::Deserialize;
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::{
    client::null_as_empty,
    follow::{Change, Interest, Slim, SlimMetadata, WAITING, follow},
    inventory::{ClaimReference, ListError, list},
    liveness::{Heard, Liveness, STALE_AFTER, keep_watching},
    reservations::VOLUMES,
};

const RESOURCE: &str = "PersistentVolumes of file shares";

/// Keeps `known` up to date until `stop`. `driver` is the name of the file driver. Without a client no volume names a
/// share, and the call returns. `live` is fulfilled while they are followed, or need not be.
///
/// Run it as a task of its own. At the end they are unknown: nothing keeps them up to date.
pub async fn watch_share_volumes(
    client: Option<Client>,
    driver: &str,
    known: watch::Sender<ShareVolumes>,
    live: Condition,
    stop: CancellationToken,
) {
    let Some(client) = client else {
        known.send_replace(Some(Arc::default()));
        live.ready("there is no cluster to watch");
        return;
    };
    let cold = || drop(known.send_replace(None));
    let keep = || keep(&client, driver, &known, &live);
    keep_watching(RESOURCE, &live, &stop, cold, keep).await;
}

async fn keep(client: &Client, driver: &str, known: &watch::Sender<ShareVolumes>, live: &Condition) {
    let (changes, mut volumes) = mpsc::channel(WAITING);
    let following = follow::<SlimShareVolume>(client.clone(), VOLUMES, Interest::of_driver(driver), changes);
    let keeping = async {
        let mut picture = Picture::default();
        let mut liveness = Liveness::of(live, RESOURCE);
        loop {
            liveness.show(picture.heard.is_fresh());
            let stale_at = picture.heard.at.filter(|_| picture.heard.is_fresh()).map(|at| at + STALE_AFTER);
            let change = tokio::select! {
                // In this order: what is waiting is told before the age is judged.
                biased;
                Some(change) = volumes.recv() => Some(change),
                () = sleep_until(stale_at.unwrap_or_else(Instant::now)), if stale_at.is_some() => None,
            };
            match &change {
                Some(change) => liveness.note(RESOURCE, change),
                None => {
                    warn!("no word from the API server about PersistentVolumes: no share is deleted until there is")
                }
            }
            known.send_if_modified(|shown| picture.update(shown, change));
        }
    };
    tokio::select! {
        () = following => {}
        () = keeping => {}
    }
}

#[derive(Default)]
struct Picture {
    /// The volumes while they are not shown.
    hidden: Option<Arc<Vec<VolumeRef>>>,
    heard: Heard,
}

impl Picture {
    /// Brings what is shown up to date, in place where nothing else holds it, and says whether that changes anything for a
    /// reader. No change at all: time has passed.
    fn update(&mut self, shown: &mut ShareVolumes, change: Option<Change<VolumeRef>>) -> bool {
        if let Some(change) = &change {
            self.heard.note(change);
        }
        let was_shown = shown.is_some();
        let mut volumes = shown.take().or_else(|| self.hidden.take()).unwrap_or_default();
        let has_changed = change.is_some_and(|change| apply(&mut volumes, change));
        let is_shown = self.heard.is_fresh();
        *(if is_shown { shown } else { &mut self.hidden }) = Some(volumes);
        was_shown != is_shown || is_shown && has_changed
    }
}

/// Applies a change to the volumes, which are sorted by name. Returns whether they differ then.
fn apply(volumes: &mut Arc<Vec<VolumeRef>>, change: Change<VolumeRef>) -> bool {
    let place = |volumes: &Vec<VolumeRef>, name: &str| volumes.binary_search_by(|one| one.name.as_str().cmp(name));
    match change {
        Change::Replaced(all) => {
            let mut all: Vec<VolumeRef> = all.into_iter().map(|(_, volume)| volume).collect();
            all.sort_by(|one, other| one.name.cmp(&other.name));
            let differs = **volumes != all;
            *volumes = Arc::new(all);
            differs
        }
        Change::Applied(name, Some(volume)) => match place(volumes, &name) {
            Ok(at) if volumes.get(at) == Some(&volume) => false,
            Ok(at) => {
                Arc::make_mut(volumes).splice(at..=at, [volume]);
                true
            }
            Err(at) => {
                Arc::make_mut(volumes).insert(at, volume);
                true
            }
        },
        Change::Applied(name, None) | Change::Deleted(name) => match place(volumes, &name) {
            Ok(at) => {
                Arc::make_mut(volumes).remove(at);
                true
            }
            Err(_) => false,
        },
        Change::Confirmed | Change::Lost(_) => false,
    }
}

#[derive(Clone, Deserialize)]
struct SlimShareVolume {
    metadata: SlimMetadata,
    spec: SlimSpec,
    #[serde(default)]
    status: SlimStatus,
}

#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SlimSpec {
    csi: Option<SlimCsi>,
    /// In-tree volumes.
    azure_file: Option<SlimAzureFile>,
    #[serde(default)]
    persistent_volume_reclaim_policy: String,
    #[serde(default)]
    capacity: BTreeMap<String, String>,
    claim_ref: Option<ClaimReference>,
    #[serde(default, deserialize_with = "null_as_empty")]
    mount_options: Vec<String>,
}

#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SlimCsi {
    driver: String,
    volume_handle: String,
    #[serde(default)]
    volume_attributes: BTreeMap<String, String>,
    node_stage_secret_ref: Option<StageSecret>,
}

/// `spec.csi.nodeStageSecretRef`.
#[derive(Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct StageSecret {
    name: String,
    namespace: String,
}

impl StageSecret {
    /// The Secret; `None` for a name that no Secret can have.
    pub(super) fn secret(self) -> Option<SecretRef> {
        let Self { name, namespace } = self;
        (is_subdomain(&name) && is_subdomain(&namespace)).then_some(SecretRef { namespace, name })
    }
}

#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SlimAzureFile {
    #[serde(default)]
    share_name: String,
    #[serde(default)]
    secret_name: String,
}

#[derive(Clone, Default, Deserialize)]
struct SlimStatus {
    #[serde(default)]
    phase: String,
}

impl Slim for SlimShareVolume {
    type Kept = VolumeRef;

    fn metadata(&self) -> &SlimMetadata {
        &self.metadata
    }

    fn keep(self, interest: &Interest) -> Option<VolumeRef> {
        self.refers(&interest.driver)
    }
}

impl SlimShareVolume {
    /// What it says of its share, if it is of this driver or of the in-tree plugin.
    fn refers(&self, driver: &str) -> Option<VolumeRef> {
        let released = VolumeRef::is_released(&self.status.phase, &self.spec.persistent_volume_reclaim_policy);
        let name = &self.metadata.name;
        let size = self.spec.capacity.get("storage").and_then(|text| bytes_of_quantity(text.as_str()));
        let size = size.and_then(|bytes| u64::try_from(bytes).ok()).and_then(Gib::holding);
        let volume = match (&self.spec.csi, &self.spec.azure_file) {
            (Some(csi), _) if csi.driver == driver => {
                Some(VolumeRef::of_driver(name, &csi.volume_handle, &csi.volume_attributes, released))
            }
            (_, Some(file)) => Some(VolumeRef::of_in_tree(name, &file.share_name, &file.secret_name, released)),
            _ => None,
        };
        volume.map(|volume| volume.with_size(size))
    }

    /// The same for a person's command, with what its claim and its mount options are.
    fn listed(self, driver: &str) -> Option<ShareVolume> {
        let refers = self.refers(driver)?;
        let (attributes, stage_secret) = match self.spec.csi {
            Some(csi) => (csi.volume_attributes, csi.node_stage_secret_ref.and_then(StageSecret::secret)),
            None => (BTreeMap::new(), None),
        };
        Some(ShareVolume {
            refers,
            claim: self.spec.claim_ref.map(|claim| claim.to_string()),
            attributes,
            stage_secret,
            mount_options: self.spec.mount_options,
        })
    }
}

/// Lists the PersistentVolumes of the file driver `driver`, and those of the in-tree plugin.
///
/// # Errors
/// [`ListError`].
pub async fn list_share_volumes(client: &Client, driver: &str) -> Result<Vec<ShareVolume>, ListError> {
    let all = list::<SlimShareVolume>(client, VOLUMES, "persistentvolumes").await?;
    Ok(all.into_iter().filter_map(|volume| volume.listed(driver)).collect())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lazuli_apiserver::{ApiServer, Options};
    use lazuli_telemetry::Readiness;
    use serde_json::{Value, json};
    use tokio::time::timeout;

    use super::*;
    use crate::fake::FakeApiServer;

    fn volume(name: &str, spec: Value, phase: &str) -> Value {
        json!({"metadata": {"name": name}, "spec": spec, "status": {"phase": phase}})
    }

    fn of(name: &str, share: &str) -> VolumeRef {
        VolumeRef::of_in_tree(name, share, "azure-storage-account-f1-secret", false)
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_is_made_in_place_and_one_that_changes_nothing_wakes_nobody() {
        let (mut picture, mut shown) = (Picture::default(), None);
        let applied = |name: &str, share: &str| Some(Change::Applied(name.to_owned(), Some(of(name, share))));
        let names = |shown: &ShareVolumes| {
            shown.as_ref().map(|all| all.iter().map(|one| one.name.clone()).collect::<Vec<_>>().join(" "))
        };
        // Not all are known yet.
        assert!(!picture.update(&mut shown, applied("d", "x")));
        assert_eq!(shown, None);
        let all = ["c", "a"].map(|name| (name.to_owned(), of(name, "x"))).into_iter().collect();
        assert!(picture.update(&mut shown, Some(Change::Replaced(all))));
        assert_eq!(names(&shown).as_deref(), Some("a c"));
        let place = Arc::as_ptr(shown.as_ref().unwrap());
        assert!(picture.update(&mut shown, applied("b", "x")));
        assert!(!picture.update(&mut shown, applied("b", "x")));
        assert!(picture.update(&mut shown, applied("b", "y")));
        assert!(!picture.update(&mut shown, Some(Change::Confirmed)));
        assert!(!picture.update(&mut shown, Some(Change::Deleted("z".to_owned()))));
        assert!(picture.update(&mut shown, Some(Change::Applied("a".to_owned(), None))));
        assert_eq!((names(&shown).as_deref(), Arc::as_ptr(shown.as_ref().unwrap())), (Some("b c"), place));
        // A reader that holds it keeps what it holds.
        let held = shown.clone();
        assert!(picture.update(&mut shown, Some(Change::Deleted("c".to_owned()))));
        assert_eq!((names(&held).as_deref(), names(&shown).as_deref()), (Some("b c"), Some("b")));
        // Old news is not shown, and is not lost either.
        tokio::time::advance(STALE_AFTER).await;
        assert!(picture.update(&mut shown, None));
        assert_eq!(shown, None);
        assert!(picture.update(&mut shown, Some(Change::Confirmed)));
        assert_eq!(names(&shown).as_deref(), Some("b"));
    }

    #[tokio::test]
    async fn volumes_of_the_driver_and_of_the_in_tree_plugin_are_known_once_they_are_listed() {
        let server = ApiServer::start(Options::default());
        let handle = "rg#account#pvc-1###default";
        let csi = |driver: &str| json!({"csi": {"driver": driver, "volumeHandle": handle}, "persistentVolumeReclaimPolicy": "Delete"});
        server.put("persistentvolumes", volume("pvc-1", csi("file.csi.azure.com"), "Released")).unwrap();
        server.put("persistentvolumes", volume("pvc-2", csi("disk.csi.azure.com"), "Bound")).unwrap();
        let in_tree = json!({"azureFile": {"shareName": "share", "secretName": "azure-secret"}});
        server.put("persistentvolumes", volume("pv-3", in_tree, "Bound")).unwrap();
        let client = Client::new(server.router(), "default");
        let (tell, mut known) = watch::channel(None);
        let (live, stop) = (Readiness::new().condition("volumes"), CancellationToken::new());
        let watching = tokio::spawn({
            let stop = stop.clone();
            async move { watch_share_volumes(Some(client), "file.csi.azure.com", tell, live, stop).await }
        });
        let names = |known: &ShareVolumes| {
            let volumes = known.as_ref().map(|volumes| volumes.iter());
            volumes.map(|all| all.map(|one| (one.name.clone(), one.is_released_for_deletion)).collect::<Vec<_>>())
        };
        let expected = vec![("pv-3".to_owned(), false), ("pvc-1".to_owned(), true)];
        let wait = known.wait_for(|known| names(known).as_ref() == Some(&expected));
        timeout(Duration::from_secs(10), wait).await.expect("they are listed").expect("they are watched");
        server.put("persistentvolumes", volume("pvc-4", csi("file.csi.azure.com"), "Bound")).unwrap();
        let wait = known.wait_for(|known| names(known).is_some_and(|names| names.len() == 3));
        timeout(Duration::from_secs(10), wait).await.expect("it is seen").expect("they are watched");
        stop.cancel();
        watching.await.unwrap();
        assert_eq!(*known.borrow(), None);
    }

    #[tokio::test]
    async fn a_command_gets_volumes_with_claim_and_mount_options() {
        let server = FakeApiServer::default();
        let csi = json!({"driver": "file.csi.azure.com", "volumeHandle": "rg#account#pvc-1###default",
            "volumeAttributes": {"protocol": "smb"}, "nodeStageSecretRef": {"name": "mine", "namespace": "db"}});
        let spec =
            json!({"csi": csi, "claimRef": {"namespace": "shop", "name": "data"}, "mountOptions": ["actimeo=30"]});
        server.put(VOLUMES, volume("pvc-1", spec, "Bound"));
        let in_tree = json!({"azureFile": {"shareName": "share", "secretName": "azure-secret"}, "mountOptions": null});
        server.put(VOLUMES, volume("pv-2", in_tree, "Bound"));
        server.put(
            VOLUMES,
            volume("disk", json!({"csi": {"driver": "disk.csi.azure.com", "volumeHandle": "d"}}), "Bound"),
        );
        let driver = "file.csi.azure.com";
        let listed = list_share_volumes(&server.client(), driver).await.unwrap();
        let shown: Vec<_> = listed
            .iter()
            .map(|one| (one.refers.name.as_str(), one.claim.as_deref(), one.attributes.len(), one.mount_options.len()))
            .collect();
        assert_eq!(shown, [("pv-2", None, 0, 0), ("pvc-1", Some("shop/data"), 1, 1)]);
        let staged: Vec<_> = listed.iter().map(|one| one.stage_secret.clone()).collect();
        assert_eq!(staged, [None, Some(SecretRef { namespace: "db".into(), name: "mine".into() })]);
    }
}
