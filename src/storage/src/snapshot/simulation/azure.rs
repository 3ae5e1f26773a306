//! What Azure does with a write.

use std::time::Duration;

use lazuli_engine::{Id, single::Written};
use lazuli_model::{
    CopyMethod,
    fault::{Effect, Fault},
};

use super::{
    Doing, Error, Name, Snap,
    world::{CopyMethodOf, Course, End, Fate, Key, Then, World},
};
use crate::whole_snapshot::Op;

fn refused(fault: Fault) -> Written<Course> {
    Written::Refused(Error { fault, effect: Effect::None, code: "" })
}

fn lost() -> Written<Course> {
    Written::Refused(Error { fault: Fault::OutcomeUnknown, effect: Effect::Possible, code: "" })
}

impl World {
    /// A snapshot that is being made now.
    pub(super) fn snap(&mut self, from: CopyMethodOf, of: u64, is_ours: bool) -> Snap {
        let number = self.next;
        self.next += 1;
        let method = match from {
            CopyMethodOf::Disk => CopyMethod::Copy,
            CopyMethodOf::Local => CopyMethod::CopyStart,
        };
        let fills = self.fills_late || from == CopyMethodOf::Local;
        let takes = if fills { self.numbers.ms(300_000) } else { Duration::ZERO };
        Snap {
            number,
            method,
            of,
            is_ours,
            state: Doing::Busy,
            complete_at: self.now + takes,
            has_lost_source: false,
            created: self.now,
        }
    }

    fn put(&mut self, key: Key, count: i64) {
        *self.puts.entry((key.replica, key.epoch)).or_default() += count;
    }

    /// A write is sent: what becomes of it?
    pub(super) fn goes_out(&mut self, key: Key, id: Id, op: Op) {
        let numbers = &mut self.numbers;
        let fate = match numbers.below(20) {
            0 => Fate::NotDone,
            1 => Fate::Lost,
            2..5 => Fate::Refused(u8::try_from(numbers.below(8)).expect("it is small")),
            5 | 6 => Fate::Served { fails: true, left: numbers.one_in(2), end_lost: false },
            7 => Fate::Served { fails: false, left: false, end_lost: true },
            _ => Fate::Served { fails: false, left: false, end_lost: false },
        };
        self.put(key, i64::from(matches!(op, Op::Put(_))));
        let mut most = 300;
        if fate == Fate::Lost {
            self.count("lost, and done");
            most = if self.numbers.one_in(2) { 60_000 } else { 300 };
            self.answer_write(key, id, lost(), 3_000);
        }
        self.after_ms(most, Then::WriteArrives(key, id, op, fate));
    }

    pub(super) fn write_arrives(&mut self, key: Key, id: Id, op: &Op, fate: Fate) {
        let is_put = matches!(op, Op::Put(_));
        let (fails, left, end_lost) = match fate {
            Fate::Served { fails, left, end_lost } => (fails, left, end_lost),
            Fate::Lost => (false, false, true),
            Fate::NotDone => {
                self.count("lost, and not done");
                self.put(key, -i64::from(is_put));
                return self.answer_write(key, id, lost(), 3_000);
            }
            Fate::Refused(which) => {
                self.count("refused");
                self.put(key, -i64::from(is_put));
                let throttled = |seconds| Fault::Throttled { retry_after: Some(Duration::from_secs(seconds)) };
                let faults = [
                    throttled(2),
                    throttled(90),
                    Fault::Unavailable,
                    Fault::Forbidden,
                    Fault::Unclear,
                    Fault::Conflict,
                    Fault::Invalid,
                    Fault::Exhausted,
                ];
                return self.answer_write(key, id, refused(faults[usize::from(which)].clone()), 200);
            }
        };
        if self.no_region && matches!(op, Op::Put(spec) if spec.method == CopyMethod::CopyStart) {
            self.count("region refused");
            self.put(key, -1);
            let code = "LocationNotAvailableForResourceType";
            let refused = Error { fault: Fault::Invalid, effect: Effect::None, code };
            return self.answer_write(key, id, Written::Refused(refused), 200);
        }
        if is_put {
            self.put_at = self.now;
        }
        let begun = match op {
            Op::Put(spec) => self.begin_put(key.name, spec.method),
            Op::Delete => self.begin_delete(key.name),
        };
        match begun {
            Ok(Some(number)) => {
                let end = match (op, fails) {
                    (_, true) => End::Failed { left },
                    (Op::Put(_), false) => End::Good,
                    (Op::Delete, false) => End::Deleted,
                };
                let to = (fate != Fate::Lost).then_some((id, end_lost));
                self.after_ms(6_000, Then::Ends { key, number, end, to });
            }
            other => {
                self.put(key, -i64::from(is_put));
                let written = other.map_or_else(refused, |_| Written::Done(None));
                if fate != Fate::Lost {
                    self.answer_write(key, id, written, 200);
                }
            }
        }
    }

    fn begin_put(&mut self, name: Name, method: CopyMethod) -> Result<Option<u64>, Fault> {
        let (from, of) = match method {
            CopyMethod::Copy => (CopyMethodOf::Disk, self.disk.ok_or(Fault::NotFound)?),
            CopyMethod::CopyStart => {
                let local = self.snaps.get(&Name::Local).ok_or(Fault::NotFound)?;
                if !local.is_complete(self.now) || self.deleting.contains(&Name::Local) {
                    return Err(Fault::Unclear);
                }
                (CopyMethodOf::Local, local.number)
            }
        };
        match self.snaps.get(&name).copied() {
            Some(snap) if snap.state == Doing::Busy || self.deleting.contains(&name) => Err(Fault::Conflict),
            Some(snap) if snap.method != method || snap.of != of => Err(Fault::Conflict),
            Some(snap) => {
                // A creation that has failed is done again; what is there stays.
                let again = if snap.state == Doing::Failed { self.snap(from, of, true) } else { snap };
                self.snaps.insert(name, Snap { state: Doing::Busy, is_ours: true, ..again });
                self.changed();
                Ok(Some(again.number))
            }
            None => {
                let snap = self.snap(from, of, true);
                self.snaps.insert(name, snap);
                self.changed();
                Ok(Some(snap.number))
            }
        }
    }

    fn begin_delete(&mut self, name: Name) -> Result<Option<u64>, Fault> {
        let Some(snap) = self.snaps.get(&name).copied() else { return Ok(None) };
        if snap.state == Doing::Busy || self.deleting.contains(&name) {
            return Err(Fault::Conflict);
        }
        let now = self.now;
        let is_copying = |target: &Snap| {
            target.method == CopyMethod::CopyStart
                && target.of == snap.number
                && !target.has_lost_source
                && !target.is_complete(now)
        };
        if name == Name::Local && self.snaps.get(&Name::Target).is_some_and(is_copying) {
            return Err(Fault::Unclear);
        }
        self.deleting.insert(name);
        Ok(Some(snap.number))
    }

    pub(super) fn ends(&mut self, key: Key, number: u64, end: End, to: Option<(Id, bool)>) {
        let name = key.name;
        let failed = |fault: Fault| Written::Failed(Error { fault, effect: Effect::Possible, code: "" });
        let snap = self.snaps.get(&name).copied().filter(|snap| snap.number == number);
        let was_deleting = self.deleting.contains(&name) && !matches!(end, End::Good);
        self.put(key, -i64::from(!was_deleting));
        if was_deleting {
            self.deleting.remove(&name);
        }
        let written = match (end, snap) {
            (_, None) => Written::Done(None),
            (End::Good, Some(snap)) => {
                let snap = Snap { state: Doing::Good, ..snap };
                self.snaps.insert(name, snap);
                Written::Done(Some(snap.seen(name, self.now)))
            }
            (End::Deleted, Some(_)) => {
                self.snaps.remove(&name);
                Written::Done(None)
            }
            (End::Failed { .. }, Some(_)) if was_deleting => failed(Fault::OperationFailed),
            (End::Failed { left: true }, Some(snap)) => {
                self.count("operation failed, snapshot left");
                self.snaps.insert(name, Snap { state: Doing::Failed, ..snap });
                failed(Fault::OperationFailed)
            }
            (End::Failed { left: false }, Some(_)) => {
                self.snaps.remove(&name);
                failed(Fault::OperationFailed)
            }
        };
        self.changed();
        if let Some((id, end_lost)) = to {
            let written = if end_lost { failed(Fault::OutcomeUnknown) } else { written };
            self.answer_write(key, id, written, 200);
        }
    }
}
