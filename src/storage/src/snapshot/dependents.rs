//! Whether snapshots depend on a disk that is to be deleted or to grow, and which snapshots ListSnapshots shows.
//!
//! The content of a snapshot of an Ultra or PremiumV2 disk is in the disk alone until it has been copied. Azure deletes the
//! disk before that, and fails the snapshot when the disk grows. [`guard`](crate::whole_disk::guard) asks what is here, behind
//! the permit of each such write.
//!
//! A list of snapshots lags, so that it may lack what this process has just had made. [`Known`] keeps that. What it keeps
//! counts as unfinished until a single read shows it, or a list shows it complete that is new enough ([`doubtful`]).

use std::{collections::BTreeMap, time::Duration};

use lazuli_model::{
    ArmId, CopyMethod, Disk, Snapshot, VolumeId,
    disk_tags::{CARRIES_TO, value},
    fault::Fault,
};
use lazuli_volume::snapshot::{SnapshotView, fills_snapshots_late};

use super::{ListOf, Listed, Wanted, memory::remove_oldest};
use crate::attach::LISTS_LAG;

/// How old the list may be by which the temporary snapshot of a disk is found before the disk's deletion, so that it is kept
/// for so long.
pub const LIST_IS_FRESH: Duration = Duration::from_secs(5);

/// For how long it is kept that a snapshot was asked for: longer than its PUT and its operation take. After that each list
/// shows it.
const KEPT: Duration = Duration::from_secs(30 * 60);
/// How many snapshots and disks are kept.
const MOST: usize = 16_384;

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
        source.as_ref() == Some(disk) && !snapshot.is_complete() && !snapshot.has_failed()
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
}

/// What this process knows of disks and of the snapshots that it has asked for. It may be lost at any moment: it saves reads,
/// and makes up for lists that lag.
#[derive(Debug, Clone, Default)]
pub struct Known {
    fills_late: BTreeMap<ArmId, bool>,
    taken: BTreeMap<ArmId, Taken>,
}

impl Known {
    /// A disk was seen.
    pub fn learn(&mut self, disk: &Disk) {
        if self.fills_late.len() >= MOST && !self.fills_late.contains_key(&disk.id) {
            self.fills_late.pop_first();
        }
        self.fills_late.insert(disk.id.clone(), fills_snapshots_late(disk.sku));
    }

    /// A disk was deleted, or its type may be another one.
    pub fn forget(&mut self, disk: &ArmId) {
        self.fills_late.remove(disk);
    }

    /// A list was read. Where it shows unfinished snapshots of a disk, what was known of the disk's type is over: another hand
    /// may have changed it.
    pub fn listed(&mut self, disk: &ArmId, there: &[Snapshot]) {
        if may_have(disk, there) {
            self.forget(disk);
        }
    }

    /// Whether snapshots of a disk are filled late; `None` where its type is not known.
    pub fn fills_late(&self, disk: &ArmId) -> Option<bool> {
        self.fills_late.get(disk).copied()
    }

    /// A snapshot is asked for, or was until now.
    pub fn asks(&mut self, snapshot: &ArmId, wanted: &Wanted, now: Duration) {
        let Some(disk) = needed_by(wanted) else { return };
        self.taken.retain(|_, taken| now < taken.at + KEPT);
        if self.taken.len() >= MOST && !self.taken.contains_key(snapshot) {
            remove_oldest(&mut self.taken, |taken| taken.at);
        }
        let taken = Taken { snapshot: snapshot.clone(), disk: disk.clone(), at: now };
        self.taken.insert(snapshot.clone(), taken);
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
        listed.sent_at >= taken.at + LISTS_LAG && shown.is_some_and(|shown| shown.is_complete() || shown.has_failed())
    };
    taken.iter().filter(|taken| !is_settled(taken)).map(|taken| taken.snapshot.clone()).collect()
}

/// What ListSnapshots shows of these: all of them whoever made them, as with the Go driver, but for those through which a
/// disk is being copied into another zone. Of one volume alone where one is named.
pub fn shown(there: &[Snapshot], source: Option<&VolumeId>) -> Vec<SnapshotView> {
    let is_of = |view: &SnapshotView| {
        source.is_none_or(|volume| view.source_volume_id.parse::<ArmId>().is_ok_and(|id| id == *volume.disk()))
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
        let taken = Taken { snapshot: snapshot("a", "d1").id, disk: disk("d1"), at: at(100) };
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

    #[test]
    fn what_was_asked_for_is_kept_until_every_list_shows_it() {
        let at = Duration::from_secs;
        let (one, other) = (snapshot("a", "d1").id, snapshot("b", "d1").id);
        let spec = |method: CopyMethod, source: ArmId| {
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
        };
        let mut known = Known::default();
        known.asks(&one, &spec(CopyMethod::Copy, disk("D1")), at(0));
        known.asks(&other, &spec(CopyMethod::CopyStart, one.clone()), at(0));
        assert_eq!(known.taken_of(&disk("d1")), [Taken { snapshot: one.clone(), disk: disk("D1"), at: at(0) }]);
        assert!(known.taken_of(&one).is_empty(), "a copy of a snapshot needs no disk");
        known.asks(&one, &spec(CopyMethod::Copy, disk("d1")), at(900));
        known.asks(&other, &spec(CopyMethod::Copy, disk("d2")), at(900) + KEPT);
        assert!(known.taken_of(&disk("d1")).is_empty());
        assert_eq!(known.taken_of(&disk("d2")).len(), 1);
    }

    #[test]
    fn the_type_of_a_disk_is_known_from_the_last_look_at_it() {
        use lazuli_model::SkuName::{PremiumLrs, PremiumV2Lrs};
        let of = |sku| Disk { sku, ..Disk::unattached("d1") };
        let mut known = Known::default();
        let id = of(None).id;
        assert_eq!(known.fills_late(&id), None);
        for (sku, expected) in [(Some(PremiumLrs), false), (Some(PremiumV2Lrs), true), (None, true)] {
            known.learn(&of(sku));
            assert_eq!(known.fills_late(&id), Some(expected));
        }
        known.forget(&id);
        assert_eq!(known.fills_late(&id), None);
        known.learn(&of(Some(PremiumLrs)));
        known.listed(&id, &[snapshot("a", "d1"), snapshot("b", "d2")]);
        assert_eq!(known.fills_late(&id), Some(false));
        known.listed(&id, &[Snapshot { access: Some(SnapshotAccessState::Pending), ..snapshot("a", id.name()) }]);
        assert_eq!(known.fills_late(&id), None, "its type must have changed");
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
