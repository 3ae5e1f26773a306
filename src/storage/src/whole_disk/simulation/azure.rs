//! What Azure does with a write.

use super::*;

impl World {
    pub(super) fn answer(&mut self, replica: usize, id: Id, written: Written<Course>, most: u64) {
        if let (Written::Refused(_) | Written::Failed(_), Some(life)) = (&written, &mut self.lives[replica]) {
            life.has_failed = true;
        }
        self.after_ms(most, Then::Tell(replica, Box::new(Event::Ended(id, written))));
    }

    /// A write reaches Azure.
    pub(super) fn arrives(&mut self, replica: usize, id: Id, op: &Op, fate: Fate, life: u64) {
        let is_lost = fate == Fate::Lost;
        if is_lost && matches!(op, Op::Put(_)) {
            *self.late_puts.entry(life).or_default() -= 1;
        }
        let refused = |fault: Fault| Written::Refused(Error { fault, effect: Effect::None });
        let answer = |world: &mut Self, written: Written<Course>| {
            if !is_lost {
                world.answer(replica, id, written, 200);
            }
        };
        let (fails, left, end_lost) = match fate {
            Fate::Served { fails, left, end_lost } => (fails, left, end_lost),
            Fate::Lost => (false, false, true),
            Fate::NotDone => {
                self.count("lost, and not done");
                return answer(self, Written::Refused(lost()));
            }
            Fate::Refused(which) => {
                self.count("refused");
                let throttled = |seconds| Fault::Throttled { retry_after: Some(Duration::from_secs(seconds)) };
                let fault = [
                    throttled(2),
                    throttled(90),
                    Fault::Throttled { retry_after: None },
                    Fault::Unavailable,
                    Fault::Forbidden,
                    Fault::Unclear,
                    Fault::Conflict,
                ];
                return answer(self, refused(fault[usize::from(which)].clone()));
            }
        };
        if self.disk.is_some_and(|disk| disk.state == Doing::Busy) || self.deleting {
            return answer(self, refused(Fault::Conflict));
        }
        let (number, end) = match (op, self.disk) {
            (Op::Put(spec), disk) => {
                let claim = u8::from(spec.origin.request == "pvc-1");
                let busy = Made { number: 0, claim, gib: 4, team: 0, state: Doing::Busy, held: false, by: Some(life) };
                let number = match disk {
                    None => self.make(busy),
                    Some(disk) => {
                        self.disk = Some(Made { claim, state: Doing::Busy, ..disk });
                        self.changed();
                        disk.number
                    }
                };
                // Azure may leave a failed disk or none. What was there stays.
                let left = left || disk.is_some();
                let gib = disk.map_or(4, |disk| disk.gib);
                (number, if fails { End::Failed { left } } else { End::Good(gib, None) })
            }
            (_, None) if *op == Op::Delete => return answer(self, Written::Done(None)),
            (_, None) => return answer(self, refused(Fault::NotFound)),
            (Op::Delete, Some(disk)) if disk.held => return answer(self, refused(Fault::Unclear)),
            (Op::Delete, Some(disk)) => {
                self.deleting = true;
                (disk.number, if fails { End::Failed { left: true } } else { End::Deleted })
            }
            (Op::Resize(to), Some(disk)) => {
                self.disk = Some(Made { state: Doing::Busy, ..disk });
                self.changed();
                let gib = u32::try_from(to.bytes() >> 30).expect("it is small");
                (disk.number, if fails { End::Failed { left: true } } else { End::Good(gib, None) })
            }
            (Op::Change(change), Some(disk)) => {
                self.disk = Some(Made { state: Doing::Busy, ..disk });
                self.changed();
                let team = change.tags.as_ref().and_then(|tags| tags.get(TEAM)?.parse().ok());
                (disk.number, if fails { End::Failed { left: true } } else { End::Good(disk.gib, team) })
            }
        };
        let to = (!is_lost).then_some((replica, id, end_lost));
        self.after_ms(6_000, Then::Ends { number, end, to });
    }

    pub(super) fn ends(&mut self, number: u64, end: End, to: Option<(usize, Id, bool)>) {
        let was_deleting = std::mem::take(&mut self.deleting);
        let disk = self.disk.filter(|disk| disk.number == number);
        let failed = |fault: Fault| Written::Failed(Error { fault, effect: Effect::Possible });
        let written = match (end, disk) {
            (_, None) => {
                self.deleting = was_deleting;
                Written::Done(None)
            }
            (End::Good(gib, team), Some(disk)) => {
                let team = team.unwrap_or(disk.team);
                let disk = Made { state: Doing::Good, gib: gib.max(disk.gib), team, ..disk };
                self.disk = Some(disk);
                Written::Done(Some(disk.read()))
            }
            (End::Deleted, Some(_)) => {
                self.disk = None;
                Written::Done(None)
            }
            (End::Failed { left: true }, Some(disk)) => {
                let state = if was_deleting { disk.state } else { Doing::Failed };
                self.disk = Some(Made { state, ..disk });
                self.count("operation failed, disk left");
                failed(Fault::OperationFailed)
            }
            (End::Failed { left: false }, Some(_)) => {
                self.disk = None;
                self.count("operation failed, nothing left");
                failed(Fault::OperationFailed)
            }
        };
        self.changed();
        if let Some((replica, id, end_lost)) = to {
            if end_lost {
                self.count("operation's end lost");
            }
            self.answer(replica, id, if end_lost { failed(Fault::OutcomeUnknown) } else { written }, 200);
        }
    }
}
