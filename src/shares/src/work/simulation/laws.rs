//! What is sent rests on a read and on a caller; what is answered was true at some instant since it was asked; there are no
//! more accounts than needed, and no more shares.
//!
//! What does not hold always is excused by name. A claim may get a second share after its caller gave up or its process was
//! killed, after people changed accounts, after an account failed to be made, and where an account was made for another
//! class and fits. A share may shrink below a size that its PersistentVolume got after the request had come.

use super::{
    driver::{Answer, Goal, Running},
    *,
};
use crate::deletion::Kept;

/// How old what a claim rests on may be: a list of accounts with its lag, and a list of shares.
const OLD_LIST: Duration = Duration::from_secs(60 + 6);

impl World {
    /// A read of an account has reached Azure.
    pub(super) fn read_shows(&mut self, replica: usize, key: &ArmId, found: bool) {
        let now = self.now;
        if let Some(course) = self.replicas[replica].courses.get_mut(key) {
            course.shown = Some((now, found));
        }
    }

    /// A read of a share has reached Azure: whether it shows one that a driver has made.
    pub(super) fn share_read_shows(&mut self, replica: usize, key: &ArmId) {
        let account = key.account_of_share().expect("it is a share");
        let row = self.find(&account);
        let ours = row.and_then(|row| self.rows[row].shares.get(key.name())).is_some_and(|share| share.by.is_some());
        self.read_shows(replica, key, ours);
    }

    /// An account is PUT only after a read, behind the permit, that has found none. Returns when that was.
    pub(super) fn account_sent(
        &mut self,
        replica: usize,
        key: &ArmId,
        op: &account::Op<FileService>,
    ) -> Option<Duration> {
        let course = self.replicas[replica].courses.get(key).cloned()?;
        let behind = course.read_at.is_some_and(|at| course.permitted.is_some_and(|permitted| at >= permitted));
        // The account is told a moment after.
        let is_leaving = self.replicas[replica].left_at.is_some_and(|at| self.now <= at + Duration::from_millis(2));
        let waits = |task: &Task| task.replica == replica && task.share.is_none();
        if !matches!(op, account::Op::Tags(_)) && !is_leaving && !self.tasks.values().any(waits) {
            self.breaks("a write of an account that no claim needs");
        }
        match (op, course.shown) {
            (account::Op::Put(_), Some((at, false))) if behind => return Some(at),
            (account::Op::Put(_), _) => self.breaks(format!("a PUT of an account that rests on {:?}", course.shown)),
            (account::Op::FileService(..) | account::Op::Tags(_), _) if !behind => {
                self.breaks("a change of an account that rests on no read behind its permit");
            }
            _ => {}
        }
        None
    }

    /// An account is made only where none that fits has room: none that was there all the time, and none that a replica
    /// has made before for such claims. Returns whether it is made for all claims of its class.
    pub(super) fn economy(&mut self, id: &ArmId, sku: StorageSku) -> bool {
        let class = match sku {
            StorageSku::StandardV2Lrs => 1,
            StorageSku::PremiumV2Lrs => 2,
            _ => 0,
        };
        // Of claims of a named account, and of those that want one each, there is nothing to compare.
        let is_asked = |task: &&Task| task.claim / CLAIMS == class && matches!(task.goal, Goal::Made { .. });
        if self.has_dropped || self.own.contains(id) || id.name() == "given" {
            return false;
        }
        let asked_at = self.tasks.values().filter(is_asked).map(|task| task.began).min();
        let is_old = |row: &Row| {
            row.is_good_for(class)
                && !row.is_touched
                && (row.is_ours
                    || row.made_at == Duration::ZERO
                    || asked_at.is_some_and(|at| row.made_at + OLD_LIST < at))
        };
        // Its file service is not finished, or it is being made.
        let is_begun = |row: &Row| row.is_ours && !row.is_touched && row.account.sku == Some(sku) && row.filled == 0;
        if let Some(row) = self.rows.iter().find(|row| is_old(row) || is_begun(row)) {
            self.breaks(format!("{} is made, and {} was there", id.name(), row.account.name()));
        }
        true
    }

    /// Whether an account that was full or gone may have been so for a while alone.
    pub(super) fn is_back(&self, account: &ArmId) -> bool {
        self.find(account).is_some_and(|row| !self.rows[row].is_sealed && self.rows[row].room() != Some(0))
    }

    /// The account of a claim is one that its class may have, and none that was full when its shares were listed last.
    pub(super) fn may_choose(&mut self, caller: Caller, account: &StorageAccount) {
        let Some(task) = self.tasks.get(&caller) else { return };
        let (class, claim, replica) = (task.claim / CLAIMS, task.claim, task.replica);
        if matches!(class, 3 | NAMED_SHARE) && account.name() != "given" {
            self.breaks(format!("{} for a claim of class {class}", account.name()));
        }
        let is_placed = !self.replicas[replica].placed.insert((claim, account.id.clone()));
        let Some(row) = self.find(&account.id) else { return };
        // Also one that was deleted since the list.
        let (name, of) = (&plans()[claim].share, &self.rows[row]);
        let holds = of.shares.contains_key(name) || of.soft_deleted.contains_key(name);
        let listed_at = self.replicas[replica].listed.get(&account.id);
        if !is_placed
            && !holds
            && self.rows[row].full_since.is_some_and(|at| listed_at.is_some_and(|listed| at < *listed))
        {
            self.breaks(format!("{} has no room", account.name()));
        }
    }

    /// A write of a share is one that a caller waits for.
    pub(super) fn share_sent(&mut self, replica: usize, key: &ArmId, op: &share::Op) -> Option<Running> {
        let course = self.replicas[replica].courses.get(key).cloned()?;
        if course.callers.is_empty() {
            self.breaks("a write that no caller waits for");
        }
        if *op == share::Op::Delete {
            self.may_send_deletion(replica, key, &course);
        }
        Some(course)
    }

    fn may_send_deletion(&mut self, replica: usize, key: &ArmId, course: &Running) {
        let others = || self.volumes.iter().filter(|volume| !volume.is_released && volume.share == *key);
        // Of what another replica has answered nothing is known here before its PersistentVolume is seen.
        let is_known = |other: &&Volume| other.is_seen || other.answered_by.is_none_or(|by| by == replica);
        if let Some(other) = others().find(is_known) {
            return self.breaks(format!("the share of {} is deleted", other.name));
        }
        if others().next().is_some() {
            self.count("deleted under another replica's answer");
        }
        if !self.replicas[replica].has_volumes {
            return self.breaks("a deletion before the PersistentVolumes are known");
        }
        let behind = course.read_at.is_some_and(|at| course.permitted.is_some_and(|permitted| at >= permitted));
        if key.name() == "data" && !(behind && matches!(course.shown, Some((_, true)))) {
            self.breaks("a share that nobody proves to be a driver's is deleted");
        }
    }

    /// A share is deleted: not with its snapshots, and none that a person has made before it was read.
    pub(super) fn deletes(&mut self, _: usize, name: &str, there: &azure::Share, began: Duration) {
        if there.snapshots > 0 {
            self.breaks("a share is deleted with its snapshots");
        }
        if there.by.is_none() && there.made_at < began {
            self.breaks(format!("the share {name} of a person is deleted"));
        }
        self.count("clean deletion");
    }

    /// A share does not become smaller than a PersistentVolume says, as far as its course could know.
    pub(super) fn shrinks(&mut self, row: usize, name: &str, to: u32, from: u32, began: Duration) {
        let share = ArmId::file_share(&self.rows[row].account.id, name).expect("it is a name");
        let is_known = |volume: &&Volume| volume.share == share && volume.sized_at <= began && volume.gib > to;
        if to < from && self.volumes.iter().any(|volume| is_known(&volume)) {
            self.breaks(format!("the share {name} shrinks from {from} to {to} GiB"));
        }
    }

    /// A claim has one share.
    pub(super) fn only_one(&mut self, row: usize, name: &str) {
        let Some(claim) = plans().iter().position(|plan| plan.share == name && name != "data") else { return };
        let others = self.rows.iter().enumerate().filter(|(other, one)| *other != row && one.shares.contains_key(name));
        if others.count() > 0 {
            match self.excused.get(&claim) {
                Some(_) => self.count("a second share"),
                None => self.breaks(format!("{name} is in two accounts")),
            }
        }
    }

    /// What was there since then.
    fn was(&self, share: &ArmId, since: Duration, holds: impl Fn(Option<u32>) -> bool) -> bool {
        let of_it = || self.log.iter().filter(|(_, id, _)| id == share);
        let before = of_it().rev().find(|(at, ..)| *at <= since).and_then(|(_, _, gib)| *gib);
        holds(before) || of_it().filter(|(at, ..)| *at > since).any(|(_, _, gib)| holds(*gib))
    }

    /// A caller is answered once, and truly.
    pub(super) fn finish(&mut self, caller: Caller, outcome: Result<Answer, Error>) {
        self.tell_story(|| format!("caller {caller}: {outcome:?}"));
        if self.mutant == Some(Mutant::NoAnswer) && caller.is_multiple_of(2) {
            return;
        }
        let Some(task) = self.tasks.remove(&caller) else { return self.breaks("a second answer") };
        if self.mutant == Some(Mutant::TwoAnswers) {
            return self.finish(caller, outcome);
        }
        let share = task.share.clone();
        let outcome = match (self.mutant, outcome, &task.goal) {
            (Some(Mutant::NoEffect), Err(error), _) => Err(Error { effect: Effect::None, ..error }),
            (Some(Mutant::Optimist), Err(_), Goal::Made { .. }) if share.is_some() => Ok(Answer::Size(40)),
            (Some(Mutant::DeletesNothing), Err(_), Goal::Deleted) => Ok(Answer::Gone),
            (_, outcome, _) => outcome,
        };
        match (outcome, share) {
            (Ok(Answer::Size(gib)), Some(share)) => {
                if !self.was(&share, task.since, |was| was == Some(gib)) {
                    self.breaks(format!("{share} never had {gib} GiB"));
                }
                self.sized(&task, share, gib);
            }
            (Ok(Answer::Gone), Some(share)) => {
                if !self.was(&share, task.since, |was| was.is_none()) {
                    self.breaks(format!("{share} was there all the time"));
                }
                self.volumes.retain(|volume| volume.claim != Some(task.claim));
                self.volumes_changed();
            }
            (Ok(Answer::Kept(kept)), Some(share)) => self.kept(&task, &share, &kept),
            (Ok(_), None) => self.breaks("an answer of no share"),
            (Err(error), _) => self.refuses(&task, &error),
        }
    }

    fn sized(&mut self, task: &Task, share: ArmId, gib: u32) {
        let now = self.now;
        if let Goal::Grown(to) = task.goal {
            self.count("grown");
            if gib < to {
                self.breaks("a share that has not grown");
            }
            for volume in self.volumes.iter_mut().filter(|volume| volume.claim == Some(task.claim)) {
                if gib > volume.gib {
                    (volume.gib, volume.sized_at) = (gib, now);
                }
            }
            return;
        }
        self.count("made");
        let is_known = self.volumes.iter().any(|volume| volume.claim == Some(task.claim));
        if is_known || self.deleted.contains(&task.claim) {
            return;
        }
        let account = share.account_of_share().expect("it is a share");
        let answer = plans()[task.claim].answer(&account, Gib::new(gib)).expect("its names have no separator");
        self.volumes.push(Volume {
            name: format!("pvc-{}", task.claim),
            claim: Some(task.claim),
            id: answer.volume_id,
            share,
            gib,
            sized_at: now,
            is_released: false,
            is_seen: false,
            answered_by: Some(task.replica),
        });
        let lag = if self.numbers.one_in(3) { 60_000 } else { 200 };
        self.after_ms(lag, Then::Seen(format!("pvc-{}", task.claim)));
    }

    fn kept(&mut self, task: &Task, share: &ArmId, kept: &Kept) {
        match kept {
            Kept::Shared { .. } => {
                self.count("kept for another volume");
                let is_other = |volume: &Volume| volume.share == *share && volume.claim != Some(task.claim);
                if !self.volumes.iter().any(is_other) {
                    self.breaks("a share is kept for a PersistentVolume that is not there");
                }
            }
            Kept::Unclear { .. } => self.breaks("a PersistentVolume that says all is called unclear"),
            Kept::NotOurs { .. } => {
                self.count("kept for lack of proof");
                let account = share.account_of_share().expect("it is a share");
                let row = self.find(&account).map(|row| self.rows[row].shares.get(share.name()).cloned());
                if share.name() != "data"
                    || row.flatten().is_some_and(|there| there.by.is_some() && there.made_at < task.began)
                {
                    self.breaks("a share of the driver is kept as a person's");
                }
            }
        }
        self.volumes.retain(|volume| volume.claim != Some(task.claim));
        self.volumes_changed();
    }

    /// A failure that says that nothing was done has left nothing.
    fn refuses(&mut self, task: &Task, error: &Error) {
        // One that finds another at work has done nothing itself.
        let is_busy = error.fault == Fault::Busy;
        if error.effect == Effect::None && !is_busy && matches!(task.goal, Goal::Made { .. }) {
            self.count("creation failed without an effect");
            let may_come = task.courses.iter().any(|course| self.late.get(course).is_some_and(|puts| *puts > 0));
            let mut shares = self.rows.iter().flat_map(|row| row.shares.values());
            if may_come || shares.any(|share| share.by.is_some_and(|by| task.courses.contains(&by))) {
                self.breaks(format!("a creation that says that it left nothing: {error:?}"));
            }
        }
    }
}
