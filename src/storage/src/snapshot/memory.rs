//! The snapshots that are unfinished, as requests have found them. It saves reads, and may be lost at any moment.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use lazuli_model::{ArmId, Snapshot, disk_spec::canonical_region};
use lazuli_volume::snapshot::{Route, SnapshotPlan, SnapshotRequest, SnapshotView};

use super::{ListOf, dependents::LIST_IS_FRESH};
use crate::attach::LISTS_LAG;

/// How many are kept. A cluster takes some hundred at a time.
const MOST: usize = 4_096;
/// From how many unfinished snapshots of a resource group on a list is read for all of them: a page of a list then replaces
/// as many single reads as is worth one while reads are plentiful ([`lazuli_quota::read::PLENTIFUL`]).
const WORTH_A_LIST: usize = lazuli_quota::read::PLENTIFUL;

/// How long after a write was asked for Azure may begin it: many times what was ever seen. What it has begun, a read shows.
const LATE: Duration = Duration::from_secs(600);

/// How long a region is taken for refused after Azure has refused it: Azure opens regions to a subscription seldom. Without
/// it each retry would make a local snapshot and delete it again.
const REGION_REFUSED: Duration = Duration::from_secs(3_600);

/// The snapshots that were unfinished when their requests were last answered.
#[derive(Debug, Clone, Default)]
pub struct Memory {
    /// By the snapshot that is asked for.
    pending: BTreeMap<ArmId, Arc<Pending>>,
    /// The names of requests of which a write was asked for whose outcome is not certain, and when that was.
    uncertain: BTreeMap<String, Duration>,
    /// The regions that Azure has refused to subscriptions, both in lower case: its code, and when that was.
    refused: BTreeMap<(String, String), (String, Duration)>,
}

/// A snapshot that was unfinished.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Pending {
    /// The request that it was proved to be of.
    pub(super) request: SnapshotRequest,
    /// What that asks for.
    pub(super) plan: Arc<SnapshotPlan>,
    /// What it was answered.
    pub(super) view: SnapshotView,
    /// The snapshot whose content is being copied: the one that is asked for, or the local one before its copy.
    pub(super) watched: ArmId,
    /// Which snapshot of that name it is.
    pub(super) unique_id: String,
    /// Since when it is known.
    pub(super) since: Duration,
}

/// How an unfinished snapshot is looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Look {
    /// By a list for many.
    List {
        /// Which.
        of: ListOf,
        /// It was sent no earlier.
        not_before: Duration,
    },
    /// By a read of it.
    Read,
}

/// What a look shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shown {
    /// It is unfinished.
    Pending,
    /// It is complete, or has failed.
    Over,
    /// It is another snapshot of its name, or cannot be told from one.
    Other,
}

impl Memory {
    /// The unfinished snapshot of a request.
    pub(super) fn of(&self, request: &SnapshotRequest) -> Option<Arc<Pending>> {
        self.pending.values().find(|pending| pending.request == *request).cloned()
    }

    /// A request is answered: its snapshot is unfinished, and `shown` is the one whose content is being copied.
    pub(super) fn learn(
        &mut self,
        request: &SnapshotRequest,
        plan: &Arc<SnapshotPlan>,
        view: &SnapshotView,
        shown: &Snapshot,
        now: Duration,
    ) {
        let Some(unique_id) = shown.unique_id.clone() else { return self.forget(&plan.snapshot) };
        let before = self.pending.get(&plan.snapshot).filter(|before| before.unique_id == unique_id);
        let since = before.map_or(now, |before| before.since);
        if self.pending.len() >= MOST && !self.pending.contains_key(&plan.snapshot) {
            remove_oldest(&mut self.pending, |pending| pending.since);
        }
        let pending = Pending {
            request: request.clone(),
            plan: plan.clone(),
            view: view.clone(),
            watched: shown.id.clone(),
            unique_id,
            since,
        };
        self.pending.insert(plan.snapshot.clone(), Arc::new(pending));
    }

    /// Forgets a snapshot: it is complete, or is to go.
    pub(super) fn forget(&mut self, snapshot: &ArmId) {
        self.pending.remove(snapshot);
    }

    /// A write of a request is asked for. Until its outcome is certain it may have been done, also where its caller leaves.
    /// Returns whether that is so of no write before it.
    pub(super) fn begins(&mut self, request: &SnapshotRequest, now: Duration) -> bool {
        self.uncertain.retain(|_, at| now < *at + LATE);
        if self.uncertain.len() >= MOST {
            remove_oldest(&mut self.uncertain, |at| *at);
        }
        self.uncertain.insert(request.name.clone(), now).is_none()
    }

    /// The outcome of the only write of a request is certain.
    pub(super) fn is_certain(&mut self, request: &SnapshotRequest) {
        self.uncertain.remove(&request.name);
    }

    /// Whether a write of a request may yet be done.
    pub(super) fn may_come(&self, request: &SnapshotRequest, now: Duration) -> bool {
        self.uncertain.get(&request.name).is_some_and(|at| now < *at + LATE)
    }

    /// Azure has refused a copy because of its region.
    pub(super) fn region_is_refused(&mut self, snapshot: &ArmId, region: &str, code: &str, now: Duration) {
        self.refused.retain(|_, (_, at)| now < *at + REGION_REFUSED);
        if self.refused.len() >= MOST {
            remove_oldest(&mut self.refused, |(_, at)| *at);
        }
        self.refused.insert(place(snapshot, region), (code.to_owned(), now));
    }

    /// The code with which Azure has refused a region of late.
    pub(super) fn refusal(&self, snapshot: &ArmId, region: &str, now: Duration) -> Option<&str> {
        let (code, at) = self.refused.get(&place(snapshot, region))?;
        (now < *at + REGION_REFUSED).then_some(code)
    }

    /// How an unfinished snapshot is looked at.
    pub(super) fn look(&self, pending: &Pending, now: Duration) -> Look {
        let of = ListOf::group_of(&pending.watched);
        let beside = self.pending.values().filter(|other| ListOf::group_of(&other.watched) == of);
        match beside.take(WORTH_A_LIST).count() {
            WORTH_A_LIST.. => Look::List { of, not_before: now.saturating_sub(LIST_IS_FRESH) },
            _ => Look::Read,
        }
    }
}

/// Makes room for another one.
pub(super) fn remove_oldest<K: Ord + Clone, V>(map: &mut BTreeMap<K, V>, since: impl Fn(&V) -> Duration) {
    let oldest = map.iter().min_by_key(|(_, value)| since(value)).map(|(key, _)| key.clone());
    oldest.map(|key| map.remove(&key));
}

/// The subscription that a snapshot is in, and a region.
fn place(snapshot: &ArmId, region: &str) -> (String, String) {
    (snapshot.subscription().to_ascii_lowercase(), canonical_region(region))
}

impl Pending {
    /// What a list says that was sent then. One that lacks a new snapshot may be older than that.
    pub(super) fn listed(&self, snapshots: &[Snapshot], sent_at: Duration) -> Shown {
        match snapshots.iter().find(|snapshot| snapshot.id == self.watched) {
            Some(snapshot) => self.shown(snapshot),
            None if sent_at < self.since + LISTS_LAG => Shown::Pending,
            None => Shown::Other,
        }
    }

    /// What a look at it says.
    pub(super) fn shown(&self, snapshot: &Snapshot) -> Shown {
        let is_it = snapshot.id == self.watched
            && snapshot.unique_id.as_deref().is_some_and(|id| id.eq_ignore_ascii_case(&self.unique_id));
        let is_complete = match self.plan.route {
            Route::InRegion(_) => SnapshotView::of(snapshot).is_ready,
            Route::AcrossRegions { .. } => snapshot.is_complete(),
        };
        match is_it {
            false => Shown::Other,
            true if is_complete || snapshot.has_failed() => Shown::Over,
            true => Shown::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_makes_room_whatever_its_name() {
        let request = |name: String| {
            let volume = ArmId::disk("s", "g", "d").unwrap().to_string().parse().unwrap();
            SnapshotRequest { name, volume, parameters: BTreeMap::new() }
        };
        let mut memory = Memory::default();
        let first = request("z".into());
        memory.begins(&first, Duration::ZERO);
        for n in 0..MOST {
            memory.begins(&request(format!("a{n}")), Duration::from_secs(1));
        }
        let now = Duration::from_secs(2);
        assert!(!memory.may_come(&first, now) && memory.may_come(&request("a0".into()), now));
        assert_eq!(memory.uncertain.len(), MOST);
    }
}
