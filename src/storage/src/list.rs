//! What ListVolumes reads, and how its answer is cut into pages.
//!
//! - Which resource groups are listed: the cluster's own, and each group that a volume handle names.
//! - How a volume is spelled: as Kubernetes spells its handle. external-attacher compares handles byte by byte.
//! - What a group that cannot be listed means for the whole list. external-attacher takes a volume that is missing in
//!   the list for detached, so an incomplete list is an error.
//! - How many entries a page takes, by their encoded size.

use std::{collections::BTreeMap, sync::Arc};

use lazuli_model::{ArmId, DiskId, VolumeId, fault::Fault};

/// Most bytes of one page, the message around its entries included. gRPC clients refuse a message of more than 4 MiB
/// unless told otherwise (source: the default `MaxCallRecvMsgSize` of grpc-go, which the CSI sidecars keep).
pub const PAGE_BYTES: usize = 4 * 1024 * 1024;
/// Bytes of a page that its entries leave free, for the token of the next page.
const PAGE_RESERVE: usize = 1024;
/// Most characters of a resource group's name (source: Azure's naming rules).
const LONGEST_GROUP: usize = 90;

/// The handles of the cluster's PersistentVolumes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum VolumeHandles {
    /// There is no cluster to ask.
    NoCluster,
    /// There is a cluster, and its PersistentVolumes are not known yet.
    #[default]
    Cold,
    /// The handle of each PersistentVolume of the driver, by the name of the PersistentVolume.
    Synced(BTreeMap<String, Arc<str>>),
}

/// Volume handles and how they are spelled. One disk has one spelling: the one that was added last.
#[derive(Debug, Clone, Default)]
pub struct HandleCasing {
    /// By the disk's id in lower case.
    by_disk: BTreeMap<Box<str>, Arc<str>>,
}

impl HandleCasing {
    /// Adds a handle. One that names no disk is ignored. A spelling that is known takes no further memory.
    pub fn add(&mut self, handle: impl AsRef<str> + Into<Arc<str>>) {
        let Ok(volume) = handle.as_ref().parse::<VolumeId>() else { return };
        if self.of(volume.disk()).is_none_or(|known| **known != *handle.as_ref()) {
            self.by_disk.insert(volume.disk().folded().into(), handle.into());
        }
    }

    /// The handle of a disk. The disk's own id becomes it, if none is known.
    pub fn of_or_add(&mut self, disk: &DiskId) -> &Arc<str> {
        self.by_disk.entry(disk.folded().into()).or_insert_with(|| disk.as_str().into())
    }

    /// Forgets the handle of a disk.
    pub fn remove(&mut self, disk: &DiskId) {
        self.by_disk.remove(disk.folded());
    }

    /// The handle of a disk, if one is known.
    pub fn of(&self, disk: &DiskId) -> Option<&Arc<str>> {
        self.by_disk.get(disk.folded())
    }

    /// Whether a handle names the disk of this id, which may be no id at all.
    pub fn names(&self, id: &str) -> bool {
        self.by_disk.contains_key(id.to_ascii_lowercase().as_str())
    }

    /// Every handle, in the order of the disks' ids.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<str>> {
        self.by_disk.values()
    }
}

impl<H: AsRef<str> + Into<Arc<str>>> Extend<H> for HandleCasing {
    fn extend<T: IntoIterator<Item = H>>(&mut self, handles: T) {
        handles.into_iter().for_each(|handle| self.add(handle));
    }
}

/// A resource group of a subscription. Azure ignores the letter case of both.
#[derive(Debug, Clone)]
pub struct ResourceGroup {
    /// The subscription.
    pub subscription: String,
    /// The name of the group.
    pub name: String,
}

impl ResourceGroup {
    fn folded(&self) -> (String, String) {
        (self.subscription.to_ascii_lowercase(), self.name.to_ascii_lowercase())
    }
}

impl PartialEq for ResourceGroup {
    fn eq(&self, other: &Self) -> bool {
        self.folded() == other.folded()
    }
}

impl Eq for ResourceGroup {}

/// The groups whose disks ListVolumes reads: the cluster's own first, then each other group that a handle names, in the
/// order of subscription and name. A handle whose group cannot exist by its name adds none.
pub fn groups(own: &ResourceGroup, handles: &HandleCasing) -> Vec<ResourceGroup> {
    let mut others: BTreeMap<(String, String), ResourceGroup> = BTreeMap::new();
    for disk in handles.iter().filter_map(|handle| handle.parse::<ArmId>().ok()) {
        if is_group_name(disk.resource_group()) {
            let group =
                ResourceGroup { subscription: disk.subscription().to_owned(), name: disk.resource_group().to_owned() };
            others.entry(group.folded()).or_insert(group);
        }
    }
    others.remove(&own.folded());
    std::iter::once(own.clone()).chain(others.into_values()).collect()
}

/// Whether a group can have this name (source: Azure's naming rules). One handle that a user mistyped must not fail
/// the list of all volumes.
fn is_group_name(name: &str) -> bool {
    name.chars().count() <= LONGEST_GROUP
        && !name.ends_with('.')
        && name.chars().all(|letter| letter.is_alphanumeric() || matches!(letter, '_' | '-' | '.' | '(' | ')'))
}

/// What it means for ListVolumes that the disks of a group cannot be listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupFailure {
    /// The group does not exist: it has no disks.
    Gone,
    /// The list would be incomplete: it fails. A refusal too may pass, as that of a role that is being assigned, and
    /// external-attacher would take each volume that the list lacks for detached.
    Incomplete,
}

/// Classifies the failure to list the disks of `group`. `own` is the cluster's group: without it there is no list.
pub fn group_failure(own: &ResourceGroup, group: &ResourceGroup, fault: &Fault, code: &str) -> GroupFailure {
    if own == group {
        return GroupFailure::Incomplete;
    }
    match fault {
        Fault::ScopeNotFound if code.eq_ignore_ascii_case("ResourceGroupNotFound") => GroupFailure::Gone,
        _ => GroupFailure::Incomplete,
    }
}

/// A page of ListVolumes that is being filled.
#[derive(Debug, Clone, Copy)]
pub struct Page {
    most_entries: usize,
    entries: usize,
    bytes: usize,
}

impl Page {
    /// An empty page. `most_entries` is the caller's `max_entries`, of which zero sets no limit.
    pub fn new(most_entries: usize) -> Self {
        Self {
            most_entries: if most_entries == 0 { usize::MAX } else { most_entries },
            entries: 0,
            bytes: PAGE_RESERVE,
        }
    }

    /// Adds an entry of so many bytes, as it stands in the message, and says whether it fits. The first entry always
    /// does: a page without entries would never get further.
    pub fn takes(&mut self, bytes: usize) -> bool {
        let fits = self.entries < self.most_entries && self.bytes.saturating_add(bytes) <= PAGE_BYTES;
        if fits || self.entries == 0 {
            self.entries += 1;
            self.bytes = self.bytes.saturating_add(bytes);
            return true;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn group(subscription: &str, name: &str) -> ResourceGroup {
        ResourceGroup { subscription: subscription.to_owned(), name: name.to_owned() }
    }

    fn handle(subscription: &str, group: &str, name: &str) -> Arc<str> {
        format!("/subscriptions/{subscription}/resourceGroups/{group}/providers/Microsoft.Compute/disks/{name}").into()
    }

    fn casing(handles: impl IntoIterator<Item = Arc<str>>) -> HandleCasing {
        let mut casing = HandleCasing::default();
        casing.extend(handles);
        casing
    }

    fn names(groups: &[ResourceGroup]) -> Vec<(&str, &str)> {
        groups.iter().map(|group| (group.subscription.as_str(), group.name.as_str())).collect()
    }

    #[test]
    fn the_own_group_comes_first_and_each_other_once_however_it_is_spelled() {
        let handles = casing([
            handle("s", "zeta", "a"),
            handle("s", "OWN", "b"),
            handle("S", "Zeta", "c"),
            handle("other", "own", "d"),
            handle("s", "alpha", "e"),
        ]);
        let groups = groups(&group("s", "own"), &handles);
        assert_eq!(names(&groups), [("s", "own"), ("other", "own"), ("s", "alpha"), ("s", "zeta")]);
        assert_eq!(names(&super::groups(&group("s", "own"), &HandleCasing::default())), [("s", "own")]);
    }

    #[test]
    fn what_names_no_disk_or_no_possible_group_adds_no_group() {
        let long = "g".repeat(91);
        let handles = casing([
            "https://account.blob.core.windows.net/vhds/a.vhd".into(),
            "pvc-1".into(),
            "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/snapshots/a".into(),
            handle("s", &long, "a"),
            handle("s", "ends.", "a"),
            handle("s", "no$name", "a"),
            handle("s", "Größe_(1)-x.y", "a"),
        ]);
        assert_eq!(names(&groups(&group("s", "own"), &handles)), [("s", "own"), ("s", "Größe_(1)-x.y")]);
    }

    #[test]
    fn the_handle_that_was_added_last_spells_the_disk() {
        let (first, last) = (handle("s", "g", "Disk"), handle("S", "G", "disk"));
        let handles = casing([first.clone(), last.clone()]);
        let disk: DiskId = first.parse().unwrap();
        assert_eq!(handles.of(&disk), Some(&last));
        let mut same = handles.clone();
        same.add(&*last);
        assert!(same.of(&disk).is_some_and(|known| Arc::ptr_eq(known, &last)));
        assert_eq!(handles.iter().count(), 1);
        assert!(handles.names(&first.to_uppercase()));
        assert!(!handles.names("nonsense"));
        let mut handles = handles;
        let other: DiskId = handle("s", "G", "other").parse().unwrap();
        assert_eq!(handles.of(&other), None);
        assert_eq!(&**handles.of_or_add(&other), other.as_str());
        handles.remove(&handle("s", "g", "OTHER").parse().unwrap());
        assert_eq!(handles.of(&other), None);
        assert_eq!(handles.of_or_add(&disk), &last);
    }

    #[test]
    fn only_another_group_that_does_not_exist_may_be_missing() {
        let (own, other) = (group("s", "Own"), group("s", "other"));
        let table = [
            (Fault::ScopeNotFound, "ResourceGroupNotFound", GroupFailure::Gone),
            (Fault::ScopeNotFound, "SubscriptionNotFound", GroupFailure::Incomplete),
            (Fault::Forbidden, "AuthorizationFailed", GroupFailure::Incomplete),
            (Fault::Unauthenticated, "InvalidAuthenticationTokenTenant", GroupFailure::Incomplete),
            (Fault::Invalid, "Strange", GroupFailure::Incomplete),
            (Fault::Unavailable, "ServerError", GroupFailure::Incomplete),
            (Fault::Malformed, "", GroupFailure::Incomplete),
        ];
        for (fault, code, expected) in table {
            assert_eq!(group_failure(&own, &other, &fault, code), expected, "{fault:?} {code}");
            assert_eq!(group_failure(&own, &group("S", "own"), &fault, code), GroupFailure::Incomplete);
        }
    }

    #[test]
    fn a_page_ends_by_the_callers_number_and_by_size() {
        let taken = |most, sizes: &[usize]| {
            let mut page = Page::new(most);
            sizes.iter().take_while(|size| page.takes(**size)).count()
        };
        assert_eq!(taken(2, &[1; 5]), 2);
        assert_eq!(taken(0, &[1; 5]), 5);
        assert_eq!(taken(0, &[PAGE_BYTES / 4; 5]), 3);
        assert_eq!(taken(0, &[PAGE_BYTES * 2, 1]), 1);
        assert_eq!(taken(0, &[1, usize::MAX]), 1);
    }

    proptest! {
        /// Pages in a row take every entry once, and none of several entries is too large.
        #[test]
        fn pages_take_everything_and_stay_below_the_limit(
            sizes in proptest::collection::vec(1usize..PAGE_BYTES / 3, 1..60),
            most in 0usize..20,
        ) {
            let (mut at, mut pages) = (0, 0);
            while at < sizes.len() {
                let mut page = Page::new(most);
                let taken = sizes[at..].iter().take_while(|size| page.takes(**size)).count();
                prop_assert!(taken > 0);
                prop_assert!(most == 0 || taken <= most);
                prop_assert!(sizes[at..at + taken].iter().sum::<usize>() + PAGE_RESERVE <= PAGE_BYTES);
                at += taken;
                pages += 1;
            }
            prop_assert!(pages <= sizes.len());
        }
    }
}
