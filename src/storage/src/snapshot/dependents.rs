//! Whether snapshots depend on a disk that is to be deleted or to grow, and which snapshots ListSnapshots shows.
//!
//! The content of a snapshot of an Ultra or PremiumV2 disk is in the disk alone until it has been copied. Azure deletes the
//! disk before that, and fails the snapshot when the disk grows. [`guard`](crate::whole_disk::guard) asks what is here, behind
//! the permit of each such write.
//!
//! A list of snapshots lags, so that it may lack what this process has just had made. [`Known`] keeps that. What it keeps
//! counts as unfinished until a single read shows it, or a list shows it complete that is new enough ([`doubtful`]).

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use lazuli_model::{
    ArmId, CopyMethod, Disk, SkuName, Snapshot,
    disk_tags::{CARRIES_TO, value},
    fault::Fault,
};
use lazuli_quota::read::By;
use lazuli_volume::snapshot::{SnapshotView, fills_snapshots_late};

use super::{ListOf, Listed, Wanted, Worked, memory::remove_oldest};
use crate::attach::LISTS_LAG;

/// How old the list may be by which the temporary snapshot of a disk is found before the disk's deletion, so that it is kept
/// for so long.
pub const LIST_IS_FRESH: Duration = Duration::from_secs(5);

/// For how long it is kept that a snapshot was asked for: longer than its PUT and its operation take. After that each list
/// shows it.
const KEPT: Duration = Duration::from_secs(30 * 60);
/// How many snapshots and disks are kept.
const MOST: usize = 16_384;

/// How many subscriptions are kept. A cluster has disks in one or two.
const MOST_SUBSCRIPTIONS: usize = 16;

/// For how long a look counts that has shown a disk of a type whose snapshots are filled at once. Another replica or a person
/// may make it a PremiumV2 disk at any moment, and tells this process nothing. Most deletions of a storm come within it after
/// the disk's creation, its attach or a ListVolumes, and need no read for the type then, where the identity may list the
/// subscription's snapshots. A type whose snapshots are filled late counts without an end, for Azure changes it to no other
/// one.
const TYPE_COUNTS: Duration = Duration::from_secs(15 * 60);

/// Since when the list may have been sent by which the temporary snapshot of a disk is found.
pub fn fresh_enough(now: Duration) -> Duration {
    now.saturating_sub(LIST_IS_FRESH)
}

/// The lists that may show the snapshots of a disk, the best one first. An identity may have no right on the subscription,
/// and only the cluster's own snapshots are seen then: they are in the disk's group unless their class says otherwise.
pub fn lists(disk: &ArmId) -> [ListOf; 2] {
    [ListOf::subscription_of(disk), ListOf::group_of(disk)]
}

/// Whether a disk may have unfinished snapshots, by a list.
pub fn may_have(disk: &ArmId, there: &[Snapshot]) -> bool {
    there.iter().any(|snapshot| {
        let source = snapshot.source.as_deref().and_then(|source| source.parse::<ArmId>().ok());
        source.as_ref() == Some(disk) && snapshot.needs_its_source()
    })
}

/// The disk that a snapshot which is to be made is taken of. `None` for a copy of a snapshot, and for a deletion.
pub fn needed_by(wanted: &Wanted) -> Option<&ArmId> {
    match wanted {
        Wanted::Made(spec) if spec.method == CopyMethod::Copy => Some(&spec.source),
        Wanted::Made(_) | Wanted::Deleted => None,
    }
}

/// What becomes of a deletion or a growth where a list cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WithoutList {
    /// The next list is asked. After the last one it fails.
    NextList,
    /// What the list is of does not exist, and has no snapshots. The write itself says what that means.
    Nothing,
    /// It fails.
    Fails,
}

/// What becomes of the deletion or the growth of an Ultra or PremiumV2 disk where a list has failed so. Without a list nothing
/// shows that no snapshot needs the disk, so that only what is certainly not there lets the write go on.
pub fn without_list(of: &ListOf, fault: &Fault) -> WithoutList {
    match (fault, &of.group) {
        (Fault::Forbidden | Fault::Denied | Fault::Unsupported | Fault::ScopeNotFound, None) => WithoutList::NextList,
        (Fault::ScopeNotFound, Some(_)) => WithoutList::Nothing,
        _ => WithoutList::Fails,
    }
}

/// A snapshot that this process has asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// The snapshot.
    pub snapshot: ArmId,
    /// The disk that it is of.
    pub disk: ArmId,
    /// When it was asked for last, or when that request was answered.
    pub at: Duration,
    /// Whether the answer has shown that it needs its disk no more.
    pub is_settled: bool,
}

/// The type of a disk, as it was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SeenType {
    /// Whether snapshots of the disk are filled late.
    fills_late: bool,
    /// Which disk of its name it is, where a read has said it.
    unique_id: Option<String>,
    /// When the read was sent.
    at: Duration,
}

/// What this process knows of disks and of the snapshots that it has asked for. It may be lost at any moment: it saves reads,
/// and makes up for lists that lag.
#[derive(Debug, Clone, Default)]
pub struct Known {
    types: BTreeMap<ArmId, SeenType>,
    subscriptions: BTreeSet<String>,
    /// The disks beside which the snapshots could not all be listed before their deletion.
    unseen: BTreeSet<ArmId>,
    taken: BTreeMap<ArmId, Taken>,
}

impl Known {
    /// A disk was read, by a read that was sent then. A list may be older than a change of the disk.
    pub fn learn(&mut self, disk: &Disk, by: By, sent_at: Duration) {
        if by == By::List {
            return self.learn_listed(&disk.id, disk.sku, sent_at);
        }
        self.meet(&disk.id);
        let fills_late = fills_snapshots_late(disk.sku);
        let unique_id = disk.unique_id.clone();
        let is_another = |known: &SeenType| {
            known
                .unique_id
                .as_ref()
                .zip(unique_id.as_ref())
                .is_some_and(|(one, other)| !one.eq_ignore_ascii_case(other))
        };
        match self.types.get_mut(&disk.id) {
            // A read that was sent before a change may be answered after it.
            Some(known) if known.fills_late && !fills_late && !is_another(known) => {}
            Some(known) => *known = SeenType { fills_late, unique_id, at: sent_at },
            None => self.insert(&disk.id, SeenType { fills_late, unique_id, at: sent_at }),
        }
    }

    /// A list that was sent then has shown a disk of this type.
    pub fn learn_listed(&mut self, disk: &ArmId, sku: Option<SkuName>, sent_at: Duration) {
        let fills_late = fills_snapshots_late(sku);
        self.meet(disk);
        let has_room = self.types.len() < MOST;
        match self.types.get_mut(disk) {
            Some(known) if known.fills_late && !fills_late => {}
            Some(known) => (known.fills_late, known.at) = (fills_late, known.at.max(sent_at)),
            None if has_room => self.insert(disk, SeenType { fills_late, unique_id: None, at: sent_at }),
            // The disks of a list make no room for each other.
            None => {}
        }
    }

    /// The subscriptions of the disks that were seen, in lower case.
    pub fn subscriptions(&self) -> &BTreeSet<String> {
        &self.subscriptions
    }

    fn meet(&mut self, disk: &ArmId) {
        let is_it = |known: &String| known.eq_ignore_ascii_case(disk.subscription());
        if self.subscriptions.len() < MOST_SUBSCRIPTIONS && !self.subscriptions.iter().any(is_it) {
            self.subscriptions.insert(disk.subscription().to_ascii_lowercase());
        }
    }

    /// This process has made a disk, or found it singly when it was asked to make it.
    pub fn made(&mut self, disk: &Disk, now: Duration) {
        self.types.remove(&disk.id);
        self.learn(disk, By::Single, now);
    }

    /// A change of a disk's type is sent. Reads and lists may show the former type for a while.
    pub fn changes(&mut self, disk: &ArmId, to: Option<SkuName>, now: Duration) {
        if to.is_some() && fills_snapshots_late(to) {
            let unique_id = self.types.get(disk).and_then(|known| known.unique_id.clone());
            self.insert(disk, SeenType { fills_late: true, unique_id, at: now });
        }
    }

    fn insert(&mut self, disk: &ArmId, seen: SeenType) {
        if self.types.len() >= MOST && !self.types.contains_key(disk) {
            remove_oldest(&mut self.types, |known| known.at);
        }
        self.types.insert(disk.clone(), seen);
    }

    /// A disk was deleted.
    pub fn forget(&mut self, disk: &ArmId) {
        self.types.remove(disk);
        self.unseen.remove(disk);
    }

    /// The snapshots beside a disk that is to be deleted, by one of [`lists`]; `None` where that could not be read. Where it
    /// shows unfinished snapshots of the disk, or where the best list cannot be read, the type is to be read.
    pub fn listed(&mut self, disk: &ArmId, of: &ListOf, there: Option<&[Snapshot]>) {
        match there {
            None if self.unseen.len() < MOST => drop(self.unseen.insert(disk.clone())),
            // There is no room to tell which: no type that a list has shown counts.
            None => self.types.retain(|_, known| known.fills_late),
            Some(there) => {
                if of.group.is_none() {
                    self.unseen.remove(disk);
                }
                if may_have(disk, there) {
                    self.types.remove(disk);
                }
            }
        }
    }

    /// Whether snapshots of a disk that is to be deleted are filled late; `None` where its type is to be read first.
    ///
    /// Where this process has asked for a snapshot of it that may be unfinished, they are looked at whatever the type was.
    pub fn before_deletion(&self, disk: &ArmId, now: Duration) -> Option<bool> {
        if self.taken.values().any(|taken| taken.disk == *disk && !taken.is_settled) {
            return Some(true);
        }
        let known = self.types.get(disk)?;
        let counts = known.fills_late || now < known.at + TYPE_COUNTS && !self.unseen.contains(disk);
        counts.then_some(known.fills_late)
    }

    /// A snapshot is asked for.
    pub fn asks(&mut self, snapshot: &ArmId, wanted: &Wanted, now: Duration) {
        let Some(disk) = needed_by(wanted) else { return };
        self.taken.retain(|_, taken| now < taken.at + KEPT);
        if self.taken.len() >= MOST && !self.taken.contains_key(snapshot) {
            remove_oldest(&mut self.taken, |taken| taken.at);
        }
        let taken = Taken { snapshot: snapshot.clone(), disk: disk.clone(), at: now, is_settled: false };
        self.taken.insert(snapshot.clone(), taken);
    }

    /// The request for a snapshot has ended; `done` where it has not failed.
    pub fn ended(&mut self, snapshot: &ArmId, wanted: &Wanted, done: Option<&Worked>, now: Duration) {
        self.asks(snapshot, wanted, now);
        if let (Some(Worked::Made(shown) | Worked::Found(shown)), Some(taken)) = (done, self.taken.get_mut(snapshot)) {
            taken.is_settled = !shown.needs_its_source();
        }
    }

    /// The snapshots of a disk that were asked for of late.
    pub fn taken_of(&self, disk: &ArmId) -> Vec<Taken> {
        self.taken.values().filter(|taken| taken.disk == *disk).cloned().collect()
    }
}

/// The snapshots of a disk that were asked for and that a list leaves in doubt: each is read alone. One that the list shows
/// complete is not, unless the list may be older than the request: it may show an earlier snapshot of the name.
pub fn doubtful(taken: &[Taken], listed: &Listed) -> Vec<ArmId> {
    let is_settled = |taken: &Taken| {
        let shown = listed.snapshots.iter().find(|shown| shown.id == taken.snapshot);
        listed.sent_at >= taken.at + LISTS_LAG && shown.is_some_and(|shown| !shown.needs_its_source())
    };
    taken.iter().filter(|taken| !is_settled(taken)).map(|taken| taken.snapshot.clone()).collect()
}

/// What ListSnapshots shows of these: all of them whoever made them, as with the Go driver, but for those through which a
/// disk is being copied into another zone. Of one volume alone where one is named.
pub fn shown(there: &[Snapshot], source: Option<&ArmId>) -> Vec<SnapshotView> {
    let is_of = |view: &SnapshotView| {
        source.is_none_or(|volume| view.source_volume_id.parse::<ArmId>().is_ok_and(|id| id == *volume))
    };
    there
        .iter()
        .filter(|snapshot| value(&snapshot.tags, CARRIES_TO).is_none())
        .map(SnapshotView::of)
        .filter(is_of)
        .collect()
}

#[cfg(test)]
mod tests {
    use lazuli_model::{
        SnapshotAccessState,
        snapshot_spec::{SnapshotOrigin, SnapshotSpec, SourceIdentity},
    };

    use super::*;

    fn disk(name: &str) -> ArmId {
        ArmId::disk("s", "g", name).unwrap()
    }

    fn snapshot(name: &str, of: &str) -> Snapshot {
        Snapshot::complete(ArmId::snapshot("s", "g", name).unwrap(), &disk(of))
    }

    #[test]
    fn only_a_disk_that_an_unfinished_snapshot_names_is_looked_at() {
        let unfinished = Snapshot { access: Some(SnapshotAccessState::InstantAccess), ..snapshot("a", "D1") };
        let failed = Snapshot { copy_error: Some("Gone".into()), ..unfinished.clone() };
        assert!(may_have(&disk("d1"), &[snapshot("b", "d2"), unfinished.clone()]));
        assert!(!may_have(&disk("d2"), &[snapshot("b", "d2"), unfinished]));
        assert!(!may_have(&disk("d1"), &[failed]));
    }

    #[test]
    fn no_list_is_as_good_as_one_only_where_nothing_can_be_there() {
        let [subscription, group] = lists(&disk("d1"));
        use WithoutList::{Fails, NextList, Nothing};
        for (fault, of_subscription, of_group) in [
            (Fault::Forbidden, NextList, Fails),
            (Fault::Denied, NextList, Fails),
            (Fault::Unsupported, NextList, Fails),
            (Fault::ScopeNotFound, NextList, Nothing),
            (Fault::NotFound, Fails, Fails),
            (Fault::Unavailable, Fails, Fails),
            (Fault::Throttled { retry_after: None }, Fails, Fails),
            (Fault::OutcomeUnknown, Fails, Fails),
            (Fault::Deadline, Fails, Fails),
            (Fault::Unauthenticated, Fails, Fails),
            (Fault::Malformed, Fails, Fails),
            (Fault::Invalid, Fails, Fails),
        ] {
            let decided = [&subscription, &group].map(|of| without_list(of, &fault));
            assert_eq!(decided, [of_subscription, of_group], "{fault:?}");
        }
    }

    #[test]
    fn a_snapshot_that_was_asked_for_is_in_doubt_until_a_list_shows_it_that_is_new_enough() {
        let at = Duration::from_secs;
        let (snapshot_id, of) = (snapshot("a", "d1").id, disk("d1"));
        let taken = Taken { snapshot: snapshot_id, disk: of, at: at(100), is_settled: false };
        let unfinished = Snapshot { access: Some(SnapshotAccessState::Pending), ..snapshot("a", "d1") };
        let failed = Snapshot { copy_error: Some("Gone".into()), ..unfinished.clone() };
        let late = at(100) + LISTS_LAG;
        for (shown, sent_at, is_doubtful) in [
            (None, at(100), true),
            (None, late, true),
            (Some(&unfinished), late, true),
            (Some(&snapshot("a", "d1")), late - at(1), true),
            (Some(&snapshot("a", "d1")), late, false),
            (Some(&failed), late, false),
        ] {
            let snapshots = vec![snapshot("b", "d1")].into_iter().chain(shown.cloned()).collect::<Vec<_>>();
            let listed = Listed { snapshots: snapshots.into(), sent_at, azure_now: None };
            let doubted = doubtful(std::slice::from_ref(&taken), &listed);
            assert_eq!(doubted == [taken.snapshot.clone()], is_doubtful, "{shown:?} at {sent_at:?}");
        }
    }

    /// A snapshot that is asked for.
    fn asked(method: CopyMethod, source: ArmId) -> Wanted {
        let spec = SnapshotSpec {
            location: "local".into(),
            extended_location: None,
            tags: BTreeMap::new(),
            method,
            source,
            instant_access_minutes: None,
            incremental: true,
            network_access_policy: None,
            public_network_access: None,
            data_access_auth_mode: None,
            origin: SnapshotOrigin {
                request: "snapshot-1".into(),
                volume: disk("d1").to_string(),
                source: SourceIdentity::Unknown,
            },
        };
        Wanted::Made(spec.into())
    }

    #[test]
    fn what_was_asked_for_is_kept_until_every_list_shows_it() {
        let at = Duration::from_secs;
        let (one, other) = (snapshot("a", "d1").id, snapshot("b", "d1").id);
        let mut known = Known::default();
        known.asks(&one, &asked(CopyMethod::Copy, disk("D1")), at(0));
        known.asks(&other, &asked(CopyMethod::CopyStart, one.clone()), at(0));
        assert_eq!(
            known.taken_of(&disk("d1")),
            [Taken { snapshot: one.clone(), disk: disk("D1"), at: at(0), is_settled: false }]
        );
        assert!(known.taken_of(&one).is_empty(), "a copy of a snapshot needs no disk");
        known.asks(&one, &asked(CopyMethod::Copy, disk("d1")), at(900));
        known.asks(&other, &asked(CopyMethod::Copy, disk("d2")), at(900) + KEPT);
        assert!(known.taken_of(&disk("d1")).is_empty());
        assert_eq!(known.taken_of(&disk("d2")).len(), 1);
    }

    /// What happens to a disk, in order, and what is known of it before its deletion at last.
    #[derive(Debug, Clone)]
    enum Happens {
        Read(By, Option<SkuName>, &'static str, u64),
        Made(SkuName, u64),
        Changes(Option<SkuName>),
        /// The list before the deletion: none, one without snapshots of it, one with an unfinished one.
        List(Option<bool>),
        /// The list of its resource group, without snapshots of it.
        OfGroup,
        /// A snapshot is asked for, and ended so.
        Asked(Option<bool>),
        Forgotten,
    }

    #[test]
    fn the_type_of_a_disk_counts_while_nothing_may_have_changed_it() {
        use Happens::{Asked, Changes, Forgotten, List, Made, OfGroup, Read};
        use SkuName::{PremiumLrs, PremiumV2Lrs};
        let (at_once, late) = (Some(PremiumLrs), Some(PremiumV2Lrs));
        let (one, list) = (By::Single, By::List);
        let end = TYPE_COUNTS.as_secs();
        let [best, other] = lists(&disk("d1"));
        for (story, now, expected) in [
            (vec![], 0, None),
            (vec![Made(PremiumLrs, 0)], 1, Some(false)),
            (vec![Made(PremiumLrs, 0)], end - 1, Some(false)),
            // Another replica may have made it a PremiumV2 disk.
            (vec![Made(PremiumLrs, 0)], end, None),
            (vec![Made(PremiumLrs, 0), Read(list, at_once, "", 500)], end, Some(false)),
            (vec![Made(PremiumLrs, 0), Read(one, at_once, "u-1", 500)], end + 500, None),
            (vec![Made(PremiumV2Lrs, 0)], 100 * end, Some(true)),
            (vec![Made(PremiumLrs, 0), Read(one, late, "u-1", 1)], 2, Some(true)),
            (vec![Made(PremiumLrs, 0), Read(list, late, "", 1)], 2, Some(true)),
            (vec![Read(one, None, "u-1", 0)], 1, Some(true)),
            // A list lags, and a read may be answered after a change. Another disk of its name has its own type.
            (vec![Made(PremiumV2Lrs, 0), Read(list, at_once, "", 1)], 2, Some(true)),
            (vec![Made(PremiumV2Lrs, 0), Read(one, at_once, "u-1", 1)], 2, Some(true)),
            (vec![Made(PremiumV2Lrs, 0), Read(one, at_once, "u-2", 1)], 2, Some(false)),
            (vec![Made(PremiumV2Lrs, 0), Made(PremiumLrs, 1)], 2, Some(false)),
            (vec![Made(PremiumV2Lrs, 0), Forgotten], 2, None),
            (vec![Made(PremiumLrs, 0), Changes(late)], 2, Some(true)),
            (vec![Changes(late), Read(one, at_once, "u-1", 1)], 2, Some(true)),
            (vec![Made(PremiumLrs, 0), Changes(None)], 2, Some(false)),
            // Without a list of its snapshots the type is read again, and a lost list does not count for the next deletion.
            (vec![Made(PremiumLrs, 0), List(None)], 1, None),
            (vec![Made(PremiumLrs, 0), List(None), Read(list, at_once, "", 1)], 1, None),
            (vec![Made(PremiumLrs, 0), List(None), OfGroup], 1, None),
            (vec![Made(PremiumLrs, 0), List(None), List(Some(false))], 1, Some(false)),
            (vec![Made(PremiumV2Lrs, 0), List(None)], 1, Some(true)),
            (vec![Made(PremiumLrs, 0), List(Some(true))], 1, None),
            // A snapshot of this process may be in no list yet.
            (vec![Made(PremiumLrs, 0), Asked(None)], 1, Some(true)),
            (vec![Made(PremiumLrs, 0), Asked(Some(false))], 1, Some(true)),
            (vec![Made(PremiumLrs, 0), Asked(Some(true))], 1, Some(false)),
            (vec![Asked(Some(true))], 1, None),
        ] {
            let mut known = Known::default();
            let of = |sku, unique: &str| {
                let unique_id = Some(unique.to_owned()).filter(|id| !id.is_empty());
                Disk { id: disk("d1"), sku, unique_id, ..Disk::unattached("d1") }
            };
            for happens in story.clone() {
                match happens {
                    Read(by, sku, unique, at) => known.learn(&of(sku, unique), by, Duration::from_secs(at)),
                    Made(sku, at) => known.made(&of(Some(sku), "u-1"), Duration::from_secs(at)),
                    Changes(to) => known.changes(&disk("d1"), to, Duration::ZERO),
                    List(None) => known.listed(&disk("d1"), &best, None),
                    OfGroup => known.listed(&disk("d1"), &other, Some(&[])),
                    List(Some(is_unfinished)) => {
                        let access = Some(SnapshotAccessState::Pending).filter(|_| is_unfinished);
                        known.listed(&disk("d1"), &best, Some(&[Snapshot { access, ..snapshot("a", "d1") }]));
                    }
                    Asked(is_complete) => {
                        let access = Some(SnapshotAccessState::Pending).filter(|_| is_complete != Some(true));
                        let shown = Snapshot { access, ..snapshot("a", "d1") };
                        let done = is_complete.map(|_| Worked::Made(shown.into()));
                        let wanted = asked(CopyMethod::Copy, disk("d1"));
                        known.ended(&snapshot("a", "d1").id, &wanted, done.as_ref(), Duration::ZERO);
                    }
                    Forgotten => known.forget(&disk("d1")),
                }
            }
            let found = known.before_deletion(&disk("d1"), Duration::from_secs(now));
            assert_eq!(found, expected, "{story:?}, at {now} s");
        }
    }

    #[test]
    fn the_subscriptions_of_all_disks_that_were_seen_are_known() {
        let mut known = Known::default();
        for (subscription, by) in [("S", By::Single), ("s", By::List), ("Other", By::List)] {
            let disk = Disk { id: ArmId::disk(subscription, "g", "d").unwrap(), ..Disk::unattached("d") };
            known.learn(&disk, by, Duration::ZERO);
        }
        assert!(known.subscriptions().iter().eq(["other", "s"]));
    }

    #[test]
    fn all_snapshots_are_shown_but_carriers_and_of_a_volume_its_own() {
        let mut carrier = snapshot("carrier", "d1");
        carrier.tags.insert(CARRIES_TO.into(), "x".into());
        let there = [snapshot("a", "D1"), carrier, snapshot("b", "d2")];
        let names = |source: Option<&str>| -> Vec<String> {
            let volume = source.map(|name| disk(name).to_string().parse().unwrap());
            shown(&there, volume.as_ref()).iter().map(|view| view.snapshot.name().to_owned()).collect()
        };
        assert_eq!(names(None), ["a", "b"]);
        assert_eq!(names(Some("d1")), ["a"]);
        assert!(names(Some("d3")).is_empty());
    }
}
