//! What is sent rests on a read and on a caller; what is answered was true at some instant of its course.

use super::*;

impl World {
    /// What is sent must rest on a read, and on a caller.
    pub(super) fn sent(&mut self, replica: usize, id: Id, op: Op) {
        let Some(life) = self.lives[replica].clone() else { return self.breaks("a write of no request") };
        let last = life.reads.last().copied();
        let is_clean_up = op == Op::Delete && matches!(life.goal, Goal::Made(_));
        if life.callers.is_empty() && !is_clean_up {
            self.breaks("a write that no caller waits for");
        }
        let behind_permit = last.is_some_and(|(sent_at, _)| life.permitted.is_some_and(|at| sent_at >= at));
        let read = last.and_then(|(_, shown)| shown);
        let shown = read.flatten();
        match (&op, life.goal) {
            (Op::Put(_), Goal::Made(claim)) => {
                let is_unfinished =
                    |disk: Made| disk.claim == claim && disk.state == Doing::Failed && !disk.held && disk.gib == 4;
                if !behind_permit || read.is_none() || shown.is_some_and(|disk| !is_unfinished(disk)) {
                    self.breaks(format!("a creation that rests on {last:?}"));
                }
            }
            (Op::Delete, Goal::Made(claim)) => {
                self.count("clean-up sent");
                let is_left = |disk: Made| {
                    disk.claim == claim && disk.state == Doing::Failed && disk.number >= life.next_disk && !disk.held
                };
                if !behind_permit || !shown.is_some_and(is_left) {
                    self.breaks(format!("a clean-up that rests on {last:?}"));
                }
            }
            (Op::Delete, Goal::Deleted) => {
                let meant = life.first.flatten();
                let is_other = meant.zip(shown).is_some_and(|(meant, shown)| meant.claim != shown.claim);
                if life.sends > 0
                    && (!behind_permit || read.is_none() || is_other || shown.is_some_and(|disk| disk.held))
                {
                    self.breaks(format!("a deletion sent again that rests on {last:?}"));
                }
            }
            (Op::Resize(to), Goal::Grown(gib)) => {
                let is_fresh = last.is_some_and(|(sent_at, _)| self.now <= sent_at + Duration::from_secs(3));
                let meant = life.first.flatten();
                let is_it = meant.zip(shown).is_some_and(|(meant, shown)| meant.claim == shown.claim);
                if !is_fresh || !is_it || Gib::new(gib) != *to || life.sends > 0 && !behind_permit {
                    self.breaks(format!("an expansion that rests on {last:?}"));
                }
            }
            (Op::Change(change), Goal::Changed(team)) => {
                let meant = life.first.flatten();
                let is_it = meant.zip(shown).is_some_and(|(meant, shown)| meant.claim == shown.claim);
                let is_needed = shown.is_some_and(|shown| shown.team != team && shown.state != Doing::Busy);
                // Azure replaces the tags as a whole.
                let keeps = shown.map(|shown| Made { team, ..shown }.seen().tags) == change.tags;
                if !behind_permit || !is_it || !is_needed || !keeps {
                    self.breaks(format!("a change that rests on {last:?}"));
                }
            }
            _ => self.breaks(format!("{op:?} for {:?}", life.goal)),
        }
        let number = life.number;
        if let Some(life) = &mut self.lives[replica] {
            life.sends += 1;
            life.permitted = None;
        }
        let numbers = &mut self.numbers;
        let fate = match numbers.below(20) {
            0 => Fate::NotDone,
            1 => Fate::Lost,
            2..5 => Fate::Refused(u8::try_from(numbers.below(7)).expect("it is small")),
            5 | 6 => Fate::Served { fails: true, left: !numbers.one_in(3), end_lost: false },
            7 => Fate::Served { fails: false, left: false, end_lost: true },
            _ => Fate::Served { fails: false, left: false, end_lost: false },
        };
        if fate == Fate::Lost {
            if matches!(op, Op::Put(_)) {
                *self.late_puts.entry(number).or_default() += 1;
            }
            let is_late = self.numbers.one_in(2);
            self.count(if is_late { "lost, and done late" } else { "lost, and done" });
            self.after_ms(if is_late { 60_000 } else { 300 }, Then::Arrives(replica, id, op, fate, number));
            return self.answer(replica, id, Written::Refused(lost()), 3_000);
        }
        self.after_ms(300, Then::Arrives(replica, id, op, fate, number));
    }

    /// An answer is the first to its caller, and was true at some instant of its course.
    pub(super) fn answered(&mut self, replica: usize, caller: Caller, outcome: Result<Done, Failure<Error>>) {
        let Some(mut life) = self.lives[replica].clone() else { return self.breaks("an answer to no request") };
        let mut outcome = outcome;
        match (self.mutant, &mut outcome) {
            (Some(Mutant::NoAnswer), _) if caller.is_multiple_of(2) => return,
            (Some(Mutant::NoEffect), Err(failure)) => failure.effect = Effect::None,
            (Some(Mutant::Optimist), Err(_)) if matches!(life.goal, Goal::Made(_)) => {
                outcome = Ok(Done::Disk(Arc::new(Made { state: Doing::Good, ..GOOD }.seen())));
            }
            (Some(Mutant::DeletesNothing), Err(_)) if matches!(life.goal, Goal::Deleted) => outcome = Ok(Done::Gone),
            (Some(Mutant::ChangesNothing), Err(_)) if matches!(life.goal, Goal::Changed(_)) => {
                outcome = Ok(Done::Changed(Box::default()));
            }
            _ => {}
        }
        let times = if self.mutant == Some(Mutant::TwoAnswers) { 2 } else { 1 };
        for _ in 0..times {
            if self.waiting.remove(&caller).is_none() && life.callers.remove(&caller) {
                self.breaks(format!("caller {caller} is answered twice"));
            }
        }
        if let Some(life) = &mut self.lives[replica] {
            life.callers.remove(&caller);
        }
        let shows = |world: &Self, holds: &dyn Fn(Option<Made>) -> bool| {
            let (before, since): (Vec<_>, Vec<_>) = world.history.iter().partition(|(at, _)| *at <= life.began);
            before.last().into_iter().copied().chain(since).any(|(_, disk)| holds(disk))
        };
        match outcome {
            Ok(Done::Disk(disk)) => {
                self.count(if matches!(life.goal, Goal::Made(_)) { "made" } else { "grown" });
                let is_it = |made: Option<Made>| made.is_some_and(|made| made.seen() == *disk);
                if !shows(self, &is_it) {
                    self.breaks(format!("a disk that was never there: {disk:?}"));
                }
                if let Goal::Grown(to) = life.goal
                    && disk.size < Gib::new(to)
                {
                    self.breaks("a disk that has not grown");
                }
            }
            Ok(Done::Changed(plan)) => {
                let is_sent = !plan.change.is_empty();
                self.count(if is_sent { "changed" } else { "changed already" });
                let meant = life.first.flatten().map(|disk| disk.claim);
                // Nothing guards a write against another disk of the name that was made a moment before it arrives.
                let is_meant = |made: Made| is_sent || meant.is_none_or(|meant| meant == made.claim);
                let is_so = |made: Made| matches!(life.goal, Goal::Changed(team) if made.team == team);
                if !shows(self, &|made| made.is_some_and(|made| is_so(made) && is_meant(made))) {
                    self.breaks("a change that was never made");
                }
            }
            Ok(done @ (Done::Gone | Done::Replaced)) => {
                self.count(if done == Done::Gone { "deleted" } else { "replaced" });
                let meant = life.first.flatten().map(|disk| disk.claim);
                let is_gone =
                    |made: Option<Made>| made.is_none_or(|made| meant.is_some_and(|meant| made.claim != meant));
                if !shows(self, &is_gone) {
                    self.breaks("a deletion of what was there all the time");
                }
            }
            Err(failure) => {
                self.count("failed");
                let may_come = self.late_puts.get(&life.number).is_some_and(|puts| *puts > 0);
                let is_left = self.disk.is_some_and(|disk| disk.by == Some(life.number)) && !self.deleting;
                if failure.effect == Effect::None && matches!(life.goal, Goal::Made(_)) {
                    self.count("failed without an effect");
                    if may_come || is_left {
                        self.breaks("a creation that says that it left nothing");
                    }
                }
            }
        }
    }
}
