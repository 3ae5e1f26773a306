//! The course of a request for a whole disk, with a guard: what snapshots forbid is not sent.
//!
//! The guard stands before each deletion and each expansion, behind the permit to send it and with no rest in between:
//!
//! ```text
//!   permit ─▶ … ─▶ the write is to be sent ─┬─ snapshots of the disk's type are filled at once ──────────────▶ sent
//!                                           └─ its type? ─▶ snapshots listed ─▶ those in doubt, one by one ─┬─▶ sent
//!                                                                                                           └─▶ not sent
//! ```
//!
//! So each list is sent after the permit was given. This process takes no snapshot of the disk meanwhile. Another replica or
//! a person may, between the list and the write, and a list lags: what they have taken a moment ago it may lack. Azure has no
//! condition for this write that would close that gap.

use std::{mem, sync::Arc, time::Duration};

use lazuli_engine::{
    Awaited,
    single::{AzureFailure, Course, Input, Next},
};
use lazuli_model::{
    ArmId, Disk, Snapshot,
    fault::{Effect, Fault},
};
use lazuli_quota::permit::Priority;
use lazuli_volume::snapshot::{fills_snapshots_late, may_delete, may_grow};

use super::{Done, Failure, Needed, Op, SeenDisk, Snapshots, Verb, Wanted, WholeDisk, Why};
use crate::{
    calls,
    snapshot::{
        ListOf, Listed,
        dependents::{self, Taken, WithoutList, doubtful, may_have},
    },
};

/// What is asked of a disk.
#[derive(Debug, Clone)]
pub struct Request {
    /// The disk.
    pub disk: ArmId,
    /// What of it.
    pub of: super::Request,
    /// Whether snapshots of it are filled late, where its type is known.
    pub fills_late: Option<bool>,
}

/// What a read asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Query {
    /// The disk alone: [`Seen::Disk`]. The place in the queue of a read that belongs to a write; none of its own otherwise.
    Disk(Option<Priority>),
    /// Snapshots, by a list that is sent from now on, and those that this process has asked for: [`Seen::Snapshots`].
    Snapshots(ListOf),
    /// One snapshot, alone: [`Seen::Snapshot`].
    Snapshot(ArmId),
}

/// What a read shows.
#[derive(Debug, Clone)]
pub enum Seen<E> {
    /// The disk.
    Disk(Box<SeenDisk>),
    /// Snapshots.
    Snapshots {
        /// Those of the list.
        listed: Result<Listed, E>,
        /// The snapshots of the disk that this process has asked for.
        taken: Vec<Taken>,
    },
    /// A snapshot.
    Snapshot(Result<Box<Snapshot>, E>),
}

/// The course of one request, with its guard.
#[derive(Debug, Clone)]
pub struct GuardedDisk<E: AzureFailure> {
    course: WholeDisk<E>,
    disk: ArmId,
    watch: Watch,
    /// Whether a write that it let pass was sent.
    has_sent: bool,
    at: At,
}

/// What the guard stands before.
#[derive(Debug, Clone)]
enum Watch {
    /// Nothing.
    Nothing,
    /// The deletion of a disk; whether snapshots of it are filled late, where that is known.
    Deletion(Option<bool>),
    /// The expansion of this disk, as the last read has shown it.
    Expansion(Arc<Disk>),
}

impl Watch {
    /// The course has read the disk: its type may be another one by now.
    fn sees(&mut self, disk: &Disk) {
        match self {
            Self::Nothing => {}
            Self::Deletion(fills_late) => *fills_late = Some(fills_snapshots_late(disk.sku)),
            Self::Expansion(before) => *before = Arc::new(disk.clone()),
        }
    }
}

#[derive(Debug, Clone)]
enum At {
    /// The course goes on by itself.
    Course,
    /// The disk is read for its type.
    Type(Op),
    /// Snapshots are listed. `disk` is the disk, where it was read.
    List { op: Op, disk: Option<Box<Disk>>, which: usize },
    /// Snapshots are read alone, the last one first.
    Doubt { op: Op, disk: Option<Box<Disk>>, there: Vec<Snapshot>, doubted: Vec<ArmId> },
    /// The disk is read, for snapshots of its name that are unfinished.
    Disk { op: Op, there: Vec<Snapshot> },
}

type Turn<E> = Next<GuardedDisk<E>>;

impl<E: AzureFailure> Course for GuardedDisk<E> {
    type Request = Request;
    type Seen = Seen<E>;
    type Env = ();
    type Query = Query;
    type Verb = Verb;
    type Op = Op;
    type Done = Done;
    type Why = Failure<E>;
    type Error = E;

    fn of(request: &Request) -> Self {
        let watch = match &request.of.wanted {
            Wanted::Deleted => Watch::Deletion(request.fills_late),
            Wanted::Grown { before, .. } => Watch::Expansion(before.clone()),
            Wanted::Made(_) | Wanted::Changed { .. } | Wanted::Marked(_) => Watch::Nothing,
        };
        let (course, disk) = (WholeDisk::of(&request.of), request.disk.clone());
        Self { course, disk, watch, has_sent: false, at: At::Course }
    }

    fn is_same(running: &Request, asked: &Request) -> bool {
        WholeDisk::<E>::is_same(&running.of, &asked.of)
    }

    fn next(&mut self, (): &(), now: Duration, input: Input<Self>) -> Next<Self> {
        match (mem::replace(&mut self.at, At::Course), input) {
            (At::Type(op), Input::Read(read)) => self.typed(op, read),
            (At::List { op, disk, which }, Input::Read(read)) => self.listed(op, disk, which, read),
            (At::Doubt { op, disk, there, doubted }, Input::Read(read)) => self.doubted(op, disk, there, doubted, read),
            (At::Disk { op, there }, Input::Read(read)) => self.seen(op, &there, read),
            // Where it waits for a read, nothing else comes.
            (_, input) => {
                if let Input::Read(Ok(Seen::Disk(seen))) = &input {
                    self.watch.sees(&seen.disk);
                }
                let next = self.course.next(&(), now, inward(input));
                self.outward(next)
            }
        }
    }

    fn goes_on_alone(&self) -> bool {
        self.course.goes_on_alone()
    }

    fn rests_for(&self) -> Awaited {
        self.course.rests_for()
    }
}

/// What has happened, as the course takes it. It reads nothing but the disk.
fn inward<E: AzureFailure>(input: Input<GuardedDisk<E>>) -> Input<WholeDisk<E>> {
    let disk = |seen: Seen<E>| match seen {
        Seen::Disk(disk) => *disk,
        seen @ (Seen::Snapshots { .. } | Seen::Snapshot(_)) => calls::unexpected(&"the course of a disk", &seen),
    };
    match input {
        Input::Begin => Input::Begin,
        Input::Permitted => Input::Permitted,
        Input::NoPermit(error) => Input::NoPermit(error),
        Input::Read(read) => Input::Read(read.map(disk)),
        Input::Written(seen) => Input::Written(seen.map(disk)),
        Input::Refused(error) => Input::Refused(error),
        Input::Failed(error) => Input::Failed(error),
        Input::Rested => Input::Rested,
        Input::Unwanted => Input::Unwanted,
    }
}

impl<E: AzureFailure> GuardedDisk<E> {
    /// What the course wants, unless the guard must look first.
    fn outward(&mut self, next: Next<WholeDisk<E>>) -> Turn<E> {
        match next {
            Next::Permit(verb) => Next::Permit(verb),
            Next::Read(priority) => Next::Read(Query::Disk(priority)),
            Next::Write(op) => self.look(op),
            Next::Rest(rest) => Next::Rest(rest),
            Next::End(end) => Next::End(end),
        }
    }

    /// A write is to be sent.
    fn look(&mut self, op: Op) -> Turn<E> {
        match &self.watch {
            Watch::Nothing => Next::Write(op),
            Watch::Deletion(Some(false)) => self.pass(op),
            Watch::Expansion(disk) if !fills_snapshots_late(disk.sku) => self.pass(op),
            Watch::Deletion(None) => {
                self.at = At::Type(op);
                Next::Read(Query::Disk(Some(Priority::Create)))
            }
            Watch::Deletion(Some(true)) | Watch::Expansion(_) => self.list(op, None, 0),
        }
    }

    /// It may be sent.
    fn pass(&mut self, op: Op) -> Turn<E> {
        self.has_sent = true;
        Next::Write(op)
    }

    /// It is not sent.
    fn fail(&self, fault: Fault, why: Why, azure: Option<E>) -> Turn<E> {
        let effect = if self.has_sent { Effect::Possible } else { Effect::None };
        Next::End(Err(Failure { fault, effect, why, azure }))
    }

    fn unread(&self, why: Why, error: E) -> Turn<E> {
        self.fail(error.fault().clone(), why, Some(error))
    }

    fn typed(&mut self, op: Op, read: Result<Seen<E>, E>) -> Turn<E> {
        match disk_of(read) {
            Err(error) => self.unread(Why::Unreadable, error),
            Ok(Some(disk)) if fills_snapshots_late(disk.sku) => self.list(op, Some(disk), 0),
            // Where there is no disk, its deletion says so.
            Ok(Some(_) | None) => self.pass(op),
        }
    }

    fn list(&mut self, op: Op, disk: Option<Box<Disk>>, which: usize) -> Turn<E> {
        let [best, other] = dependents::lists(&self.disk);
        let of = if which == 0 { best } else { other };
        self.at = At::List { op, disk, which };
        Next::Read(Query::Snapshots(of))
    }

    fn listed(&mut self, op: Op, disk: Option<Box<Disk>>, which: usize, read: Result<Seen<E>, E>) -> Turn<E> {
        let [best, other] = dependents::lists(&self.disk);
        let of = if which == 0 { best } else { other };
        let (listed, taken) = match read {
            Ok(Seen::Snapshots { listed, taken }) => (listed, taken),
            Ok(seen) => calls::unexpected(&of, &seen),
            Err(error) => (Err(error), Vec::new()),
        };
        match listed {
            Ok(listed) => {
                let doubted = doubtful(&taken, &listed);
                self.doubt(op, disk, listed.snapshots.to_vec(), doubted)
            }
            Err(error) => match dependents::without_list(&of, error.fault()) {
                WithoutList::NextList => self.list(op, disk, 1),
                WithoutList::Nothing => self.pass(op),
                WithoutList::Fails => self.unread(Why::Unseen(Snapshots::Of(of)), error),
            },
        }
    }

    fn doubt(&mut self, op: Op, disk: Option<Box<Disk>>, there: Vec<Snapshot>, doubted: Vec<ArmId>) -> Turn<E> {
        match doubted.last().cloned() {
            Some(snapshot) => {
                self.at = At::Doubt { op, disk, there, doubted };
                Next::Read(Query::Snapshot(snapshot))
            }
            None => self.judge(op, disk, there),
        }
    }

    /// A snapshot was read alone. Where it is not found the list stands, which may have it.
    fn doubted(
        &mut self,
        op: Op,
        disk: Option<Box<Disk>>,
        mut there: Vec<Snapshot>,
        mut doubted: Vec<ArmId>,
        read: Result<Seen<E>, E>,
    ) -> Turn<E> {
        let Some(id) = doubted.pop() else { return self.judge(op, disk, there) };
        let read = match read {
            Ok(Seen::Snapshot(read)) => read,
            Ok(seen) => calls::unexpected(&id, &seen),
            Err(error) => Err(error),
        };
        match calls::found_beside(read) {
            Err(error) => return self.unread(Why::Unseen(Snapshots::One(id)), error),
            Ok(Some(snapshot)) => {
                there.retain(|shown| shown.id != id);
                there.push(*snapshot);
            }
            Ok(None) => {}
        }
        self.doubt(op, disk, there, doubted)
    }

    /// What the snapshots say of the write.
    fn judge(&mut self, op: Op, disk: Option<Box<Disk>>, there: Vec<Snapshot>) -> Turn<E> {
        match (&self.watch, disk) {
            (Watch::Expansion(before), _) => match may_grow(before, &there) {
                Ok(()) => self.pass(op),
                Err(blocked) => self.needed(blocked.into()),
            },
            (_, Some(disk)) => match may_delete(&disk, &there) {
                Ok(()) => self.pass(op),
                Err(depend) => self.needed(depend.into()),
            },
            (_, None) if may_have(&self.disk, &there) => {
                self.at = At::Disk { op, there };
                Next::Read(Query::Disk(Some(Priority::Create)))
            }
            (_, None) => self.pass(op),
        }
    }

    fn seen(&mut self, op: Op, there: &[Snapshot], read: Result<Seen<E>, E>) -> Turn<E> {
        match disk_of(read) {
            Err(error) => self.unread(Why::Unreadable, error),
            Ok(Some(disk)) => match may_delete(&disk, there) {
                Ok(()) => self.pass(op),
                Err(depend) => self.needed(depend.into()),
            },
            Ok(None) => self.pass(op),
        }
    }

    fn needed(&self, needed: Needed) -> Turn<E> {
        self.fail(Fault::Busy, Why::Needed(needed), None)
    }
}

/// The disk that was read. A missing one is no failure.
fn disk_of<E: AzureFailure>(read: Result<Seen<E>, E>) -> Result<Option<Box<Disk>>, E> {
    Ok(calls::found_beside(read)?.map(|seen| match seen {
        Seen::Disk(seen) => Box::new(seen.disk),
        seen @ (Seen::Snapshots { .. } | Seen::Snapshot(_)) => calls::unexpected(&"the read of a disk", &seen),
    }))
}

#[cfg(test)]
mod tests {
    use lazuli_engine::attempts::Limits;
    use lazuli_model::{Gib, SkuName, SnapshotAccessState};

    use super::*;

    #[derive(Debug, Clone, PartialEq)]
    struct Failed(Fault);

    impl AzureFailure for Failed {
        fn fault(&self) -> &Fault {
            &self.0
        }

        fn effect(&self) -> Effect {
            Effect::None
        }

        fn code(&self) -> &str {
            ""
        }
    }

    type Guarded = GuardedDisk<Failed>;

    const LATE: Option<SkuName> = Some(SkuName::PremiumV2Lrs);
    const AT_ONCE: Option<SkuName> = Some(SkuName::PremiumLrs);

    fn disk(sku: Option<SkuName>) -> Disk {
        Disk { sku, ..Disk::unattached("d") }
    }

    fn snapshot(access: SnapshotAccessState) -> Snapshot {
        let id = ArmId::snapshot("s", "g", "snapshot-1").unwrap();
        Snapshot { access: Some(access), ..Snapshot::complete(id, &disk(LATE).id) }
    }

    /// A request that has its permit, and what it wants then.
    fn permitted(wanted: Wanted, fills_late: Option<bool>) -> (Guarded, Next<Guarded>) {
        let limits = Limits { tries: 4, longest_wait: Duration::from_secs(60) };
        let request = Request { disk: disk(LATE).id, of: super::super::Request { wanted, limits }, fills_late };
        let mut course = Guarded::of(&request);
        assert!(matches!(course.next(&(), Duration::ZERO, Input::Begin), Next::Permit(_)));
        let next = course.next(&(), Duration::ZERO, Input::Permitted);
        (course, next)
    }

    fn grown(sku: Option<SkuName>) -> Wanted {
        Wanted::Grown { before: Arc::new(disk(sku)), read_at: Duration::ZERO, to: Gib::new(8) }
    }

    fn read(course: &mut Guarded, seen: Result<Seen<Failed>, Fault>) -> Next<Guarded> {
        course.next(&(), Duration::ZERO, Input::Read(seen.map_err(Failed)))
    }

    fn seen_disk(sku: Option<SkuName>) -> Result<Seen<Failed>, Fault> {
        Ok(Seen::Disk(Box::new(SeenDisk { disk: disk(sku), details: None })))
    }

    /// A list that was sent an hour after all that was taken, unless it is told to lag.
    fn list(there: &[Snapshot], taken: &[&Snapshot], lags: bool) -> Result<Seen<Failed>, Fault> {
        let of = |snapshot: &&Snapshot| {
            let (snapshot, disk) = (snapshot.id.clone(), disk(LATE).id);
            Taken { snapshot, disk, at: Duration::ZERO, is_settled: false }
        };
        let sent_at = if lags { Duration::ZERO } else { Duration::from_secs(3_600) };
        let listed = Ok(Listed { snapshots: Arc::new(there.to_vec()), sent_at, azure_now: None });
        Ok(Seen::Snapshots { listed, taken: taken.iter().map(of).collect() })
    }

    fn no_list(fault: Fault) -> Result<Seen<Failed>, Fault> {
        Ok(Seen::Snapshots { listed: Err(Failed(fault)), taken: Vec::new() })
    }

    fn is_sent(next: &Next<Guarded>) -> bool {
        matches!(next, Next::Write(Op::Delete | Op::Resize(_)))
    }

    #[track_caller]
    fn asks(next: &Next<Guarded>, query: &Query) {
        assert!(matches!(next, Next::Read(asked) if asked == query), "{next:?} instead of {query:?}");
    }

    #[track_caller]
    fn is_refused(next: Next<Guarded>, expected: impl Fn(&Why) -> bool) {
        let Next::End(Err(failure)) = next else { panic!("{next:?}") };
        assert!(expected(&failure.why), "{failure:?}");
    }

    fn disk_query() -> Query {
        Query::Disk(Some(Priority::Create))
    }

    fn lists() -> [Query; 2] {
        dependents::lists(&disk(LATE).id).map(Query::Snapshots)
    }

    #[test]
    fn what_no_snapshot_needs_is_sent_without_a_look() {
        assert!(is_sent(&permitted(Wanted::Deleted, Some(false)).1));
        assert!(is_sent(&permitted(grown(AT_ONCE), None).1));
    }

    #[test]
    fn a_deletion_looks_at_the_type_that_it_does_not_know_and_lists_where_that_is_filled_late() {
        let unfinished = snapshot(SnapshotAccessState::Pending);
        for (sku, is_late) in [(AT_ONCE, false), (LATE, true), (None, true)] {
            let (mut course, next) = permitted(Wanted::Deleted, None);
            asks(&next, &disk_query());
            let next = read(&mut course, seen_disk(sku));
            if !is_late {
                assert!(is_sent(&next));
                continue;
            }
            asks(&next, &lists()[0]);
            let refused = read(&mut course.clone(), list(std::slice::from_ref(&unfinished), &[], false));
            is_refused(refused, |why| matches!(why, Why::Needed(Needed::Deletion(_))));
            assert!(is_sent(&read(&mut course, list(&[snapshot(SnapshotAccessState::Available)], &[], false))));
        }
        let (mut course, _) = permitted(Wanted::Deleted, None);
        assert!(is_sent(&read(&mut course.clone(), Err(Fault::NotFound))), "the deletion says that it is gone");
        is_refused(read(&mut course, Err(Fault::Forbidden)), |why| *why == Why::Unreadable);
    }

    #[test]
    fn what_is_needed_is_neither_deleted_nor_grown_and_each_send_has_its_own_list() {
        let unfinished = snapshot(SnapshotAccessState::InstantAccess);
        let (mut course, next) = permitted(grown(LATE), None);
        asks(&next, &lists()[0]);
        assert!(is_sent(&read(&mut course, list(&[], &[], false))));
        // Azure delays it: the next send lists again.
        let throttled = Input::Refused(Failed(Fault::Throttled { retry_after: None }));
        assert!(matches!(course.next(&(), Duration::ZERO, throttled), Next::Rest(_)));
        assert!(matches!(course.next(&(), Duration::ZERO, Input::Rested), Next::Permit(_)));
        asks(&course.next(&(), Duration::ZERO, Input::Permitted), &Query::Disk(None));
        asks(&read(&mut course, seen_disk(LATE)), &lists()[0]);
        let next = read(&mut course, list(std::slice::from_ref(&unfinished), &[], false));
        is_refused(next, |why| matches!(why, Why::Needed(Needed::Expansion(_))));
        // A disk of another identity has the name now.
        let (mut course, next) = permitted(Wanted::Deleted, Some(true));
        asks(&next, &lists()[0]);
        let other = Snapshot { source_unique_id: Some("u-0".into()), ..unfinished };
        asks(&read(&mut course, list(&[other], &[], false)), &disk_query());
        let today = Disk { unique_id: Some("u-1".into()), ..disk(LATE) };
        let today = Ok(Seen::Disk(Box::new(SeenDisk { disk: today, details: None })));
        assert!(is_sent(&read(&mut course, today)));
    }

    #[test]
    fn each_read_of_the_disk_says_anew_whether_its_snapshots_are_looked_at() {
        for (wanted, fills_late) in [(grown(AT_ONCE), None), (Wanted::Deleted, Some(false))] {
            for (sku, is_late) in [(AT_ONCE, false), (LATE, true)] {
                let (mut course, next) = permitted(wanted.clone(), fills_late);
                assert!(is_sent(&next));
                // Azure delays it. Another replica may change the disk's type meanwhile.
                let throttled = Input::Refused(Failed(Fault::Throttled { retry_after: None }));
                assert!(matches!(course.next(&(), Duration::ZERO, throttled), Next::Rest(_)));
                assert!(matches!(course.next(&(), Duration::ZERO, Input::Rested), Next::Permit(_)));
                let next = course.next(&(), Duration::ZERO, Input::Permitted);
                assert!(matches!(next, Next::Read(Query::Disk(_))), "{next:?}");
                let next = read(&mut course, seen_disk(sku));
                match is_late {
                    true => asks(&next, &lists()[0]),
                    false => assert!(is_sent(&next)),
                }
            }
        }
    }

    #[test]
    fn a_list_that_cannot_be_read_lets_nothing_go() {
        for wanted in [Wanted::Deleted, grown(LATE)] {
            let begun = || permitted(wanted.clone(), Some(true)).0;
            for fault in [Fault::Unavailable, Fault::Throttled { retry_after: None }, Fault::Malformed] {
                is_refused(read(&mut begun(), no_list(fault)), |why| matches!(why, Why::Unseen(Snapshots::Of(_))));
            }
            let mut course = begun();
            asks(&read(&mut course, no_list(Fault::Forbidden)), &lists()[1]);
            assert!(is_sent(&read(&mut course.clone(), list(&[], &[], false))));
            assert!(is_sent(&read(&mut course.clone(), no_list(Fault::ScopeNotFound))));
            is_refused(read(&mut course, no_list(Fault::Forbidden)), |why| {
                matches!(why, Why::Unseen(Snapshots::Of(_)))
            });
        }
    }

    #[test]
    fn a_snapshot_that_was_asked_for_is_read_alone_where_the_list_may_lag() {
        let (unfinished, complete) = (snapshot(SnapshotAccessState::Pending), snapshot(SnapshotAccessState::Available));
        let one = Query::Snapshot(unfinished.id.clone());
        let alone = |snapshot: &Snapshot| Ok(Seen::Snapshot(Ok(Box::new(snapshot.clone()))));
        for there in [vec![], vec![complete.clone()], vec![unfinished.clone()]] {
            let (mut course, _) = permitted(grown(LATE), None);
            asks(&read(&mut course, list(&there, &[&unfinished], true)), &one);
            let needed = |why: &Why| matches!(why, Why::Needed(_));
            is_refused(read(&mut course.clone(), alone(&unfinished)), needed);
            assert!(is_sent(&read(&mut course.clone(), alone(&complete))));
            let unread = Ok(Seen::Snapshot(Err(Failed(Fault::Unavailable))));
            is_refused(read(&mut course.clone(), unread), |why| matches!(why, Why::Unseen(Snapshots::One(_))));
            // Where it is not found the list stands.
            let missing = read(&mut course, Ok(Seen::Snapshot(Err(Failed(Fault::NotFound)))));
            match there.contains(&unfinished) {
                true => is_refused(missing, needed),
                false => assert!(is_sent(&missing)),
            }
        }
        let (mut course, _) = permitted(Wanted::Deleted, Some(true));
        asks(&read(&mut course, list(&[], &[&unfinished], false)), &one);
        asks(&read(&mut course, alone(&unfinished)), &disk_query());
        is_refused(read(&mut course, seen_disk(LATE)), |why| matches!(why, Why::Needed(Needed::Deletion(_))));
        let (mut course, _) = permitted(Wanted::Deleted, Some(true));
        assert!(is_sent(&read(&mut course, list(std::slice::from_ref(&complete), &[&complete], false))));
    }
}
