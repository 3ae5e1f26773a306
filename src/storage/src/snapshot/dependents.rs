//! Whether snapshots depend on a disk that is to be deleted or to grow, and which snapshots ListSnapshots shows.
//!
//! The content of a snapshot of an Ultra or PremiumV2 disk is in the disk alone until it has been copied, and the disk may be
//! deleted before that. A deletion reads no disk otherwise, so a list of the snapshots of its subscription is asked first,
//! which deletions of a few seconds share. Only where a snapshot of the list is unfinished and names the disk is that read.

use std::time::Duration;

use lazuli_model::{
    ArmId, Snapshot, VolumeId,
    disk_tags::{CARRIES_TO, value},
    fault::Fault,
};
use lazuli_volume::snapshot::SnapshotView;

use super::ListOf;

/// How old a list may be on which an answer rests, so that it is kept for so long. external-snapshotter keeps a claim from deletion while a snapshot of it
/// is unfinished; this is for what it does not guard, such as a snapshot that a person takes.
pub const LIST_IS_FRESH: Duration = Duration::from_secs(5);

/// Since when the list may have been sent on which a deletion rests.
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

/// What becomes of a deletion or a growth where a list cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WithoutList {
    /// It goes on, with the next list or without one: an identity that may list no snapshots makes none either.
    GoesOn,
    /// It fails, and is repeated.
    Fails,
}

/// What becomes of a deletion or a growth where a list has failed so.
pub fn without_list(fault: &Fault) -> WithoutList {
    match fault {
        Fault::Throttled { .. }
        | Fault::Unavailable
        | Fault::OutcomeUnknown
        | Fault::Deadline
        | Fault::Unauthenticated => WithoutList::Fails,
        _ => WithoutList::GoesOn,
    }
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
    use lazuli_model::SnapshotAccessState;

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
    fn what_a_disk_is_for_waits_only_for_a_list_that_may_come() {
        for fault in [Fault::Unavailable, Fault::Throttled { retry_after: None }] {
            assert_eq!(without_list(&fault), WithoutList::Fails);
        }
        for fault in [Fault::Forbidden, Fault::ScopeNotFound, Fault::Unsupported] {
            assert_eq!(without_list(&fault), WithoutList::GoesOn);
        }
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
