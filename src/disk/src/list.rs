//! ListVolumes: all volumes of the cluster.
//!
//! A list reads the resource groups that [`lazuli_storage::list::groups`] names. Of each disk it keeps the volume id, the
//! size and the nodes. Callers share reads: one list is read at a time, and all callers that come during that read share
//! the next one. A caller never joins a read that has begun. The first page of that read may be older than the caller's
//! last attach, and external-attacher would take that volume for detached.
//!
//! A disk that the list shows in conversion to PremiumV2 is watched from then on, if it is not yet.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::{
    FutureExt, StreamExt, TryStreamExt,
    future::{BoxFuture, Shared, WeakShared, join},
    stream,
};
use lazuli_azure::compute::{ListedDisk, UnreadableDisk};
use lazuli_model::{ArmId, BlobUri, Gib, disk_tags::is_made_by_driver, fault::Fault};
use lazuli_storage::{
    list::{GroupFailure, HandleCasing, ResourceGroup, VolumeHandles, group_failure, groups},
    lun::LunReservations,
};
use lazuli_volume::modify::is_converting;
use tokio::{sync::Semaphore, time::timeout};
use tracing::{debug, warn};

use super::{VolumeError, Volumes};

/// How long a list waits for the cluster's VolumeAttachments and PersistentVolumes.
const CLUSTER_WAIT: Duration = Duration::from_secs(10);
/// How long a list of volumes waits for the list of storage accounts and for those of their blobs, which take less.
/// external-attacher gives a list a minute.
const BLOBS_WITHIN: Duration = Duration::from_secs(15);
/// How many groups are listed at the same time. A page of a list is some megabytes.
const GROUPS_AT_ONCE: usize = 4;

/// A volume of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedVolume {
    /// Its volume id as Kubernetes spells it.
    pub volume_id: Arc<str>,
    /// The size of its disk.
    pub size: Gib,
    /// The names of the nodes it is attached to, as Kubernetes spells them.
    pub nodes: Box<[Arc<str>]>,
}

/// The volumes of a list, in the order of their disks' ids, each once.
pub type VolumeList = Arc<[ListedVolume]>;

type Answer = Result<VolumeList, VolumeError>;
type Read = BoxFuture<'static, Answer>;

/// The reads of lists. Clones share them.
#[derive(Clone)]
pub(crate) struct Lists {
    /// Its one permit is that of the list that is being read.
    one_read: Arc<Semaphore>,
    /// The read that has not begun. It is dropped with its last caller.
    next: Arc<Mutex<Option<WeakShared<Read>>>>,
}

impl Default for Lists {
    fn default() -> Self {
        Self { one_read: Arc::new(Semaphore::new(1)), next: Arc::default() }
    }
}

impl fmt::Debug for Lists {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lists").field("one_read", &self.one_read).finish_non_exhaustive()
    }
}

impl Lists {
    fn next(&self) -> MutexGuard<'_, Option<WeakShared<Read>>> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The result of a read that begins after this call.
    async fn read<F>(&self, read: impl FnOnce() -> F + Send + 'static) -> Answer
    where
        F: Future<Output = Answer> + Send + 'static,
    {
        let shared = self.join(read);
        shared.await
    }

    fn join<F>(&self, read: impl FnOnce() -> F + Send + 'static) -> Shared<Read>
    where
        F: Future<Output = Answer> + Send + 'static,
    {
        let mut next = self.next();
        if let Some(waiting) = next.as_ref().and_then(WeakShared::upgrade) {
            return waiting;
        }
        let lists = self.clone();
        let shared = async move {
            let _one_read = lists.one_read.acquire().await.expect("the semaphore is never closed");
            // From here on no caller joins.
            *lists.next() = None;
            read().await
        };
        let shared = shared.boxed().shared();
        *next = shared.downgrade();
        shared
    }
}

impl Volumes {
    /// Every volume of the cluster's resource group and of the resource groups that a known volume is in. A volume is a
    /// disk that a driver made, or whose handle Kubernetes names.
    ///
    /// # Errors
    /// Azure's own failures. An incomplete list is an error, because external-attacher takes a missing volume for
    /// detached: also one without a resource group that this identity may not read.
    pub async fn list(&self) -> Answer {
        let volumes = self.clone();
        self.sweeps.served();
        self.lists.read(move || async move { volumes.read_list().await }).await
    }

    async fn read_list(&self) -> Answer {
        let handles = self.known_handles().await?;
        let groups = groups(&self.group, &handles);
        let managed = stream::iter(groups)
            .map(|group| {
                let handles = &handles;
                async move { self.volumes_of(&group, handles).await }
            })
            .buffered(GROUPS_AT_ONCE)
            .try_collect::<Vec<Vec<ListedVolume>>>();
        // An account that does not answer must not keep the list of managed disks.
        let blobs = timeout(BLOBS_WITHIN, self.blob_volumes(&handles));
        let (listed, blobs) = join(managed, blobs).await;
        let listed = listed?;
        let mut volumes: Vec<ListedVolume> = listed.into_iter().flatten().collect();
        volumes.sort_by(|a, b| folded(a).cmp(folded(b)));
        // A disk that is made between the reads of two pages may move another disk onto both.
        volumes.dedup_by(|a, b| a.volume_id.eq_ignore_ascii_case(&b.volume_id));
        // Behind them, for the letter case of their paths tells these apart.
        volumes.extend(blobs.inspect_err(|_| warn!("the storage accounts do not answer in time")).unwrap_or_default());
        Ok(volumes.into())
    }

    /// The page blobs that handles name, and those beside them. Accounts that cannot be read are left out, so that they fail
    /// no list of managed disks: external-attacher asks for the attach of a volume anew that a list lacks.
    async fn blob_volumes(&self, handles: &HandleCasing) -> Vec<ListedVolume> {
        let known: Vec<BlobUri> = handles.iter().filter_map(|handle| handle.parse().ok()).collect();
        let Some(blobs) = self.blobs.disks().filter(|_| !known.is_empty()) else { return Vec::new() };
        let listing = match blobs.list(known).await {
            Ok(listing) => listing,
            Err(error) => {
                warn!(%error, "the storage accounts cannot be listed; the list of volumes has no blob disks");
                return Vec::new();
            }
        };
        for (account, error) in &listing.unreadable {
            warn!(account, %error, "the list of volumes has no blob disks of this storage account");
        }
        let listed = listing.disks.iter().map(|listed| {
            let disk = self.blobs.disk(&listed.uri, &listed.blob);
            let handle = handles.of(&disk.id).cloned();
            ListedVolume {
                volume_id: handle.unwrap_or_else(|| disk.id.as_str().into()),
                size: disk.size,
                nodes: disk.holders().into_iter().map(|vm| self.nodes.name_of(vm).into()).collect(),
            }
        });
        listed.collect()
    }

    /// The known handles with their casing: from requests, then from PersistentVolumes, then from VolumeAttachments. The
    /// last one counts: external-attacher compares the list with the VolumeAttachments.
    pub(crate) async fn known_handles(&self) -> Result<HandleCasing, VolumeError> {
        let unknown = || {
            VolumeError::new(
                Fault::Unavailable,
                "volumes cannot be listed: the cluster's VolumeAttachments and PersistentVolumes are not known yet",
            )
        };
        timeout(CLUSTER_WAIT, self.reservations.known()).await.map_err(|_| unknown())?;
        let mut handles = self.handle_casing().clone();
        match &*self.handles.borrow() {
            VolumeHandles::Cold => return Err(unknown()),
            VolumeHandles::NoCluster => {}
            VolumeHandles::Synced(volumes) => handles.extend(volumes.values().cloned()),
        }
        match &*self.reservations.now() {
            LunReservations::Cold => return Err(unknown()),
            LunReservations::NoCluster => {}
            LunReservations::Synced(nodes) => {
                let named = nodes.values().flatten().filter_map(|reservation| reservation.volume_handle.as_deref());
                handles.extend(named);
            }
        }
        Ok(handles)
    }

    /// The volumes of a resource group. A volume that cannot be decoded fails the list. Another disk that cannot be
    /// decoded is left out.
    async fn volumes_of(
        &self,
        group: &ResourceGroup,
        handles: &HandleCasing,
    ) -> Result<Vec<ListedVolume>, VolumeError> {
        let ResourceGroup { subscription, name } = group;
        let failed = |error| {
            VolumeError::azure(
                format!("the disks of resource group {name} of subscription {subscription} cannot be listed"),
                error,
            )
        };
        let mut volumes = Vec::new();
        let mut unreadable_volume = None;
        let mut nodes = NodeNames::default();
        let take = |disk: Result<ListedDisk, UnreadableDisk>| match disk {
            Ok(disk) => {
                let handle = handles.of(&(&disk.id).into());
                if disk.made_by_driver || handle.is_some() {
                    if is_converting(disk.sku, disk.completion, disk.source.as_deref(), disk.made_as) {
                        self.conversions.found(&disk.id);
                    }
                    volumes.push(ListedVolume {
                        volume_id: handle.cloned().unwrap_or_else(|| disk.id.as_str().into()),
                        size: disk.size,
                        nodes: disk.holders.iter().map(|vm| nodes.of(vm, || self.nodes.name_of(vm))).collect(),
                    });
                }
            }
            Err(disk) => {
                let is_volume = |id: &str| is_made_by_driver(&disk.tags) || handles.names(id);
                if disk.id.as_deref().is_none_or(is_volume) {
                    unreadable_volume.get_or_insert(disk.error);
                } else {
                    warn!(error = %disk.error, "a disk that is not a volume cannot be decoded; the list leaves it out");
                }
            }
        };
        if let Err(error) = self.client.list_disks(group, take).await {
            return match group_failure(&self.group, group, &error.fault, &error.code) {
                GroupFailure::Gone => {
                    debug!(subscription, resource_group = name, "a volume's resource group does not exist");
                    Ok(Vec::new())
                }
                // Without the rights on a group, the list names the group that is missing and says what to do.
                GroupFailure::Incomplete if matches!(error.fault, Fault::Forbidden | Fault::ScopeNotFound) => {
                    Err(failed(error).suffixed(
                        "a list without its volumes would show them as detached; give the identity the rights on this \
                         resource group, or delete the PersistentVolumes of disks in it, or set --list-volumes=false",
                    ))
                }
                GroupFailure::Incomplete => Err(failed(error)),
            };
        }
        match unreadable_volume {
            Some(error) => Err(failed(error)),
            None => Ok(volumes),
        }
    }
}

/// The bytes of a volume's handle in lower case. A handle is the id of its disk, in any letter case.
fn folded(volume: &ListedVolume) -> impl Iterator<Item = u8> {
    volume.volume_id.bytes().map(|byte| byte.to_ascii_lowercase())
}

/// The names of a list's nodes. Each is in memory once.
#[derive(Debug, Default)]
struct NodeNames(BTreeMap<ArmId, Arc<str>>);

impl NodeNames {
    fn of(&mut self, vm: &ArmId, name: impl FnOnce() -> String) -> Arc<str> {
        if let Some(known) = self.0.get(vm) {
            return known.clone();
        }
        let name: Arc<str> = name().into();
        self.0.insert(vm.clone(), name.clone());
        name
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::Notify;

    use super::*;

    /// Reads that end when they are told to, and their count.
    #[derive(Clone, Default)]
    struct Reads {
        begun: Arc<AtomicUsize>,
        end: Arc<Notify>,
    }

    impl Reads {
        /// Asks for a list, in a task. Its answer says which read it was.
        async fn ask(&self, lists: &Lists) -> tokio::task::JoinHandle<usize> {
            let (reads, lists) = (self.clone(), lists.clone());
            let asked = tokio::spawn(async move {
                let read = move || async move {
                    let number = reads.begun.fetch_add(1, Ordering::Relaxed) + 1;
                    reads.end.notified().await;
                    let volume = |_| ListedVolume { volume_id: "v".into(), size: Gib::new(1), nodes: Box::default() };
                    Ok((0..number).map(volume).collect())
                };
                lists.read(read).await.unwrap().len()
            });
            for _ in 0..5 {
                tokio::task::yield_now().await;
            }
            asked
        }

        fn begun(&self) -> usize {
            self.begun.load(Ordering::Relaxed)
        }
    }

    #[tokio::test]
    async fn those_who_ask_while_a_list_is_read_share_the_next_one() {
        let (lists, reads) = (Lists::default(), Reads::default());
        let first = reads.ask(&lists).await;
        let (second, third) = (reads.ask(&lists).await, reads.ask(&lists).await);
        assert_eq!(reads.begun(), 1);
        reads.end.notify_one();
        assert_eq!(first.await.unwrap(), 1);
        let fourth = reads.ask(&lists).await;
        assert_eq!(reads.begun(), 2);
        reads.end.notify_one();
        assert_eq!((second.await.unwrap(), third.await.unwrap()), (2, 2));
        reads.end.notify_one();
        assert_eq!(fourth.await.unwrap(), 3);
    }

    #[tokio::test]
    async fn a_list_without_callers_is_not_read_and_delays_no_other_list() {
        let (lists, reads) = (Lists::default(), Reads::default());
        let first = reads.ask(&lists).await;
        let second = reads.ask(&lists).await;
        for left in [second, first] {
            left.abort();
            left.await.unwrap_err();
        }
        let third = reads.ask(&lists).await;
        assert_eq!(reads.begun(), 2);
        reads.end.notify_one();
        assert_eq!(third.await.unwrap(), 2);
    }

    #[tokio::test]
    async fn a_caller_that_leaves_does_not_end_the_read_of_the_others() {
        let (lists, reads) = (Lists::default(), Reads::default());
        let first = reads.ask(&lists).await;
        let (second, third) = (reads.ask(&lists).await, reads.ask(&lists).await);
        reads.end.notify_one();
        assert_eq!(first.await.unwrap(), 1);
        tokio::task::yield_now().await;
        second.abort();
        second.await.unwrap_err();
        tokio::task::yield_now().await;
        assert_eq!(reads.begun(), 2);
        reads.end.notify_one();
        assert_eq!(third.await.unwrap(), 2);
    }
}
