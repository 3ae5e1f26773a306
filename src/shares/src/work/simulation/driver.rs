//! Two replicas: the steps, wired together as the program wires them.

use lazuli_engine::single::{Action, Course, Event, Refusal, Rest, Written};

use super::{azure::Fate, *};
use crate::{
    deletion::NotNow,
    work::pool::{Elsewhere, elsewhere},
};

/// A process.
#[derive(Default)]
pub(super) struct Replica {
    /// How often it was started anew.
    pub life: u64,
    pub pool: pool::State<Error>,
    accounts: BTreeMap<ArmId, single::State<Account>>,
    shares: BTreeMap<ArmId, single::State<share::Share<Error>>>,
    /// Who waits for accounts: the accounts of the group, or a deletion.
    waits: BTreeMap<Caller, (ArmId, Waits)>,
    pub has_volumes: bool,
    /// When a creation was left last.
    pub left_at: Option<Duration>,
    pub adoptions: Arc<Adoptions>,
    /// The courses of shares and of accounts.
    pub courses: BTreeMap<ArmId, Running>,
    dropped: BTreeSet<(ArmId, Id)>,
    pub left: BTreeSet<(ArmId, Id)>,
    /// When the shares of an account were listed last.
    pub listed: BTreeMap<ArmId, Duration>,
    /// The accounts that were chosen for claims.
    pub placed: BTreeSet<(usize, ArmId)>,
}

#[derive(PartialEq)]
enum Waits {
    Make(Id),
    Finish(Id),
    Match(Caller),
}

/// A course, as the world sees it.
#[derive(Debug, Clone)]
pub(super) struct Running {
    pub number: u64,
    pub began: Duration,
    pub callers: BTreeSet<Caller>,
    pub permitted: Option<Duration>,
    /// When the last read was sent.
    pub read_at: Option<Duration>,
    /// When it reached Azure, and whether it found anything; nothing where it failed.
    pub shown: Option<(Duration, bool)>,
}

/// What a replica is told.
#[derive(Debug)]
pub(super) enum Told {
    Pool(pool::Event<Error>),
    Account(ArmId, Event<Account>),
    Share(ArmId, Event<share::Share<Error>>),
}

/// A caller that waits, and how far it is.
#[derive(Debug, Clone)]
pub(super) struct Task {
    pub replica: usize,
    pub claim: usize,
    pub goal: Goal,
    pub began: Duration,
    /// When the first caller of the course that it has joined came: what it is answered was true since.
    pub since: Duration,
    pub tries: u32,
    /// The account that was chosen.
    pub account: Option<StorageAccount>,
    /// The share that it waits for.
    pub share: Option<ArmId>,
    pub courses: BTreeSet<u64>,
    /// The accounts that were full or gone, and how often.
    pub refused_in: BTreeMap<(ArmId, bool), u32>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Goal {
    Made { volume: Option<u32> },
    Deleted,
    Grown(u32),
}

/// What a caller is answered.
#[derive(Debug, Clone)]
pub(super) enum Answer {
    Size(u32),
    Gone,
    Kept(crate::deletion::Kept),
}

impl World {
    fn volume_of(&self, claim: usize) -> Option<&Volume> {
        self.volumes.iter().find(|volume| volume.claim == Some(claim))
    }

    pub(super) fn ask(&mut self, incident: Incident) {
        let (replica, claim, patience, goal) = match incident {
            Incident::Create { replica, claim, patience } => {
                if self.deleted.contains(&claim) {
                    return;
                }
                let volume = self.volume_of(claim).map(|volume| volume.gib);
                (replica, claim, patience, Goal::Made { volume })
            }
            Incident::Delete { replica, claim, patience } => (replica, claim, patience, Goal::Deleted),
            Incident::Grow { replica, claim, patience } => {
                let Some(volume) = self.volume_of(claim).filter(|volume| !volume.is_released) else { return };
                (replica, claim, patience, Goal::Grown(volume.gib + 1))
            }
            _ => return,
        };
        let volume = self.volume_of(claim).cloned();
        if goal == Goal::Deleted {
            let Some(volume) = self.volumes.iter_mut().find(|volume| volume.claim == Some(claim)) else { return };
            volume.is_released = true;
            self.deleted.insert(claim);
            self.volumes_changed();
        }
        let caller = self.number();
        self.asks += 1;
        let task = Task {
            replica,
            claim,
            goal: goal.clone(),
            began: self.now,
            since: self.now,
            tries: 0,
            account: None,
            share: volume.as_ref().map(|volume| volume.share.clone()).filter(|_| !matches!(goal, Goal::Made { .. })),
            courses: BTreeSet::new(),
            refused_in: BTreeMap::new(),
        };
        self.tasks.insert(caller, task);
        if patience < u64::MAX {
            self.at(self.now + Duration::from_millis(patience), Then::Leaves(caller));
        }
        match (goal, volume) {
            (Goal::Made { .. }, _) => self.pool(replica, pool::Event::Requested(caller, plans()[claim].clone())),
            (Goal::Deleted, Some(volume)) => {
                let id = Arc::new(ShareVolumeId::parse(&volume.id).expect("it was written"));
                let wanted = share::Wanted::Deleted { volume: id, share: volume.share.clone(), prefix: None };
                self.request_share(caller, volume.share, wanted);
            }
            (Goal::Grown(to), Some(volume)) => {
                let account = volume.share.account_of_share().expect("it is a share");
                let sku = self.find(&account).and_then(|row| self.rows[row].account.sku);
                let required_bytes = i64::from(to) << 30;
                self.request_share(caller, volume.share, share::Wanted::Grown { required_bytes, limit_bytes: 0, sku });
            }
            (Goal::Deleted | Goal::Grown(_), None) => {}
        }
    }

    pub(super) fn leaves(&mut self, caller: Caller) {
        let Some(task) = self.tasks.remove(&caller) else { return };
        self.count("caller gave up");
        self.tell_story(|| format!("caller {caller} gives up"));
        self.excused.entry(task.claim).or_insert("a caller gave up");
        let replica = task.replica;
        if let Some(course) = task.share.as_ref().and_then(|share| self.replicas[replica].courses.get_mut(share)) {
            course.callers.remove(&caller);
        }
        if let Some(share) = &task.share {
            self.call_ends(&task, share, false);
        }
        if self.mutant == Some(Mutant::NeverLeaves) {
            return;
        }
        match task.share {
            Some(share) => self.told(replica, Told::Share(share, Event::Abandoned(caller))),
            None => self.pool(replica, pool::Event::Abandoned(caller)),
        }
    }

    /// A process ends, and another one begins, which knows nothing.
    pub(super) fn kill(&mut self, replica: usize) {
        self.count("process killed");
        let life = self.replicas[replica].life + 1;
        let adoptions = match self.mutant {
            Some(Mutant::NothingBefore) => Adoptions::default(),
            _ => Adoptions::beginning(self.now),
        };
        self.replicas[replica] = Replica { life, adoptions: Arc::new(adoptions), ..Replica::default() };
        let killed: Vec<Caller> =
            self.tasks.iter().filter(|(_, task)| task.replica == replica).map(|(caller, _)| *caller).collect();
        for caller in killed {
            if let Some(task) = self.tasks.remove(&caller) {
                self.excused.entry(task.claim).or_insert("a process was killed");
            }
        }
        self.after_ms(3_000, Then::Listed(replica, life));
    }

    pub(super) fn pool(&mut self, replica: usize, event: pool::Event<Error>) {
        self.told(replica, Told::Pool(event));
    }

    pub(super) fn told(&mut self, replica: usize, told: Told) {
        self.tell_story(|| format!("replica {replica}: {told:?}"));
        let now = self.now;
        match told {
            Told::Pool(event) => {
                let actions = self.replicas[replica].pool.step(now, event);
                for action in actions {
                    self.carry_pool(replica, action);
                }
            }
            Told::Account(key, event) => {
                if self.is_dropped(replica, &key, &event) {
                    return;
                }
                let step = self.replicas[replica].accounts.entry(key.clone()).or_default();
                let actions = step.step(&(), now, event);
                for action in actions {
                    self.tell_story(|| format!("replica {replica}:   {action:?}"));
                    self.carry_account(replica, &key, action);
                }
            }
            Told::Share(key, event) => {
                if self.is_dropped(replica, &key, &event) {
                    return;
                }
                let volumes = self.replicas[replica].has_volumes.then(|| self.refs.clone());
                let forgets = self.mutant == Some(Mutant::ForgetsAnswers);
                let adoptions = if forgets { Arc::default() } else { self.replicas[replica].adoptions.clone() };
                let env = share::Env { volumes, adoptions, driver_name: "file.csi.azure.com".into() };
                let step = self.replicas[replica].shares.entry(key.clone()).or_default();
                let actions = step.step(&env, now, event);
                for action in actions {
                    self.tell_story(|| format!("replica {replica}:   {action:?}"));
                    self.carry_share(replica, &key, action);
                }
            }
        }
    }

    /// What was dropped is told no more. A permit is noted.
    fn is_dropped<C: Course>(&mut self, replica: usize, key: &ArmId, event: &Event<C>) -> bool {
        match event {
            Event::NoPermit(id, _) | Event::Rested(id) => self.replicas[replica].dropped.contains(&(key.clone(), *id)),
            Event::Permitted(_) => {
                let now = self.now;
                if let Some(course) = self.replicas[replica].courses.get_mut(key) {
                    course.permitted = Some(now);
                }
                false
            }
            _ => false,
        }
    }

    fn request(&mut self, replica: usize, call: Call) {
        self.requests += 1;
        let life = self.replicas[replica].life;
        self.after_ms(200, Then::Serve(replica, life, Box::new(call)));
    }

    fn carry_pool(&mut self, replica: usize, action: pool::Action<Error>) {
        self.tell_story(|| format!("replica {replica}:   {action:?}"));
        match action {
            pool::Action::List(id) => self.request(replica, Call::List(id)),
            pool::Action::ListShares(id, account) => self.request(replica, Call::ListShares(id, account)),
            pool::Action::ReadFileService(id, account) => self.request(replica, Call::FileService(id, account)),
            pool::Action::Look(id, account, after) => {
                if after > Duration::ZERO {
                    self.count("waits for another's account");
                }
                self.requests += 1;
                let life = self.replicas[replica].life;
                self.at(self.now + after, Then::Serve(replica, life, Box::new(Call::Look(id, account))));
            }
            pool::Action::Make(id, candidate) => {
                let mut candidate = *candidate;
                if self.mutant == Some(Mutant::OwnNames) {
                    candidate.account = account_id(&format!("{}{replica}", candidate.account.name()));
                }
                if self.tasks.values().any(|task| task.replica == replica && task.claim / CLAIMS >= 3) {
                    self.own.insert(candidate.account.clone());
                }
                let wanted =
                    account::Wanted::Made { spec: Box::new(candidate.spec), file_service: candidate.file_service };
                self.request_account(replica, candidate.account, wanted, Waits::Make(id));
            }
            pool::Action::Finish(id, account, spec) => {
                self.request_account(replica, account, account::Wanted::Finished(spec), Waits::Finish(id));
            }
            pool::Action::Leave(id) => self.leaves_account(replica, id),
            pool::Action::Answer(caller, answer) => self.chosen(caller, answer),
        }
    }

    fn leaves_account(&mut self, replica: usize, id: Id) {
        self.count("creation left");
        self.replicas[replica].left_at = Some(self.now);
        if self.mutant == Some(Mutant::NeverLeft) {
            return;
        }
        let waits = &self.replicas[replica].waits;
        let left = waits.iter().find(|(_, (_, waits))| *waits == Waits::Make(id) || *waits == Waits::Finish(id));
        let Some((caller, (account, _))) = left.map(|(caller, waits)| (*caller, waits)) else { return };
        let (account, life) = (account.clone(), self.replicas[replica].life);
        self.replicas[replica].waits.remove(&caller);
        if let Some(course) = self.replicas[replica].courses.get_mut(&account) {
            course.callers.remove(&caller);
        }
        // After its request, which may be under way.
        self.after_ms(0, Then::Tell(replica, life, Box::new(Told::Account(account, Event::Abandoned(caller)))));
    }

    fn chosen(&mut self, caller: Caller, answer: Result<Box<StorageAccount>, pool::Refused<Error>>) {
        let Some(task) = self.tasks.get_mut(&caller) else { return };
        let account = match answer {
            Ok(account) => *account,
            Err(pool::Refused::Azure(_, error)) => return self.finish(caller, Err(error)),
            Err(pool::Refused::Choice(_)) => return self.finish(caller, Err(failed(Fault::Invalid))),
            Err(pool::Refused::Unsettled) => return self.breaks("what Azure shows is called unsettled"),
        };
        let plan = plans()[task.claim].clone();
        task.account = Some(account.clone());
        self.may_choose(caller, &account);
        let Some(task) = self.tasks.get(&caller) else { return };
        let Ok(spec) = plan.spec(account.sku.unwrap_or(StorageSku::StandardLrs)) else {
            return self.finish(caller, Err(failed(Fault::Invalid)));
        };
        let share = ArmId::file_share(&account.id, &plan.share).expect("it is a name");
        let Goal::Made { volume } = task.goal else { return };
        let volume = volume.filter(|_| self.mutant != Some(Mutant::ForgetsSize)).map(Gib::new);
        self.request_share(caller, share, share::Wanted::Made { plan, spec, persistent_volume: volume });
    }

    fn request_share(&mut self, caller: Caller, share: ArmId, wanted: share::Wanted) {
        let Some(task) = self.tasks.get_mut(&caller) else { return };
        let replica = task.replica;
        task.share = Some(share.clone());
        if let share::Wanted::Made { plan, .. } = &wanted
            && plan.is_read_first()
        {
            Arc::make_mut(&mut self.replicas[replica].adoptions).begin(&share, &plan.request);
        }
        self.begins(replica, &share, caller, |replica| replica.shares.get(&share).is_none_or(single::State::is_idle));
        let request = share::Request { wanted, limits: LIMITS };
        self.told(replica, Told::Share(share, Event::Requested(caller, request)));
    }

    /// A call for a share that its class names ends.
    fn call_ends(&mut self, task: &Task, share: &ArmId, has_share: bool) {
        let plan = &plans()[task.claim];
        if plan.is_read_first() && matches!(task.goal, Goal::Made { .. }) {
            let now = self.now;
            Arc::make_mut(&mut self.replicas[task.replica].adoptions).end(share, &plan.request, has_share, now);
        }
    }

    /// A course begins, or one gets another caller.
    fn begins(&mut self, replica: usize, key: &ArmId, caller: Caller, is_idle: impl Fn(&Replica) -> bool) {
        let number = self.number();
        // What its caller knew.
        let began = self.tasks.get(&caller).map_or(self.now, |task| task.began);
        if is_idle(&self.replicas[replica]) {
            let running =
                Running { number, began, callers: BTreeSet::new(), permitted: None, read_at: None, shown: None };
            self.replicas[replica].courses.insert(key.clone(), running);
        } else {
            self.count("joined");
        }
        if let Some(course) = self.replicas[replica].courses.get_mut(key) {
            course.callers.insert(caller);
            if let Some(task) = self.tasks.get_mut(&caller) {
                task.courses.insert(course.number);
                task.since = course.began.min(task.began);
            }
        }
    }

    fn request_account(&mut self, replica: usize, account: ArmId, wanted: account::Wanted, waits: Waits) {
        let caller = self.number();
        self.replicas[replica].waits.insert(caller, (account.clone(), waits));
        self.begins(replica, &account, caller, |replica| {
            replica.accounts.get(&account).is_none_or(single::State::is_idle)
        });
        let request = account::Request { wanted, limits: LIMITS };
        let life = self.replicas[replica].life;
        self.after_ms(
            0,
            Then::Tell(replica, life, Box::new(Told::Account(account, Event::Requested(caller, request)))),
        );
    }

    /// What all courses have in common. What is left is returned.
    fn carry<C: Course<Error = Error>>(
        &mut self,
        replica: usize,
        key: &ArmId,
        action: Action<C>,
        tell: fn(ArmId, Event<C>) -> Told,
    ) -> Option<Action<C>> {
        let life = self.replicas[replica].life;
        let then = |event| Then::Tell(replica, life, Box::new(tell(key.clone(), event)));
        match action {
            Action::TakePermit(id, _) => {
                let event = if self.numbers.one_in(80) {
                    self.count("permit refused");
                    Event::NoPermit(id, failed(Fault::Unauthenticated))
                } else {
                    Event::Permitted(id)
                };
                let most = if self.numbers.one_in(4) { 8_000 } else { 50 };
                self.after_ms(most, then(event));
            }
            Action::Rest(id, rest) => {
                let pause = match rest {
                    Rest::For(pause) => pause,
                    Rest::BackOff { failures } => Duration::from_millis(500 << failures.min(6)),
                };
                self.sleeping += 1;
                if self.mutant == Some(Mutant::Sleeps) && self.sleeping.is_multiple_of(3) {
                    return None;
                }
                self.at(self.now + pause, then(Event::Rested(id)));
            }
            Action::ReleasePermit(_) => {
                if let Some(course) = self.replicas[replica].courses.get_mut(key) {
                    course.permitted = None;
                }
            }
            Action::Drop(id) => drop(self.replicas[replica].dropped.insert((key.clone(), id))),
            Action::LeaveUnsent(id) => drop(self.replicas[replica].left.insert((key.clone(), id))),
            other => return Some(other),
        }
        None
    }

    fn reads(&mut self, replica: usize, key: &ArmId) {
        let now = self.now;
        if let Some(course) = self.replicas[replica].courses.get_mut(key) {
            (course.read_at, course.shown) = (Some(now), None);
        }
    }

    fn fate(&mut self) -> Fate {
        let numbers = &mut self.numbers;
        match numbers.below(24) {
            0 => Fate::NotDone,
            1 => Fate::Lost,
            2..4 => Fate::Refused(u8::try_from(numbers.below(7)).expect("it is small")),
            4 | 5 => Fate::Served { fails: true },
            _ => Fate::Served { fails: false },
        }
    }

    /// Sends a write. Where its answer is lost, the replica learns that after a while.
    fn sends(&mut self, replica: usize, call: Call, fate: Fate, unanswered: Told) {
        self.requests += 1;
        let life = self.replicas[replica].life;
        if fate == Fate::Lost {
            let is_late = self.numbers.one_in(2);
            self.count(if is_late { "lost, and done late" } else { "lost, and done" });
            self.after_ms(if is_late { 60_000 } else { 300 }, Then::Serve(replica, life, Box::new(call)));
            return self.after_ms(3_000, Then::Tell(replica, life, Box::new(unanswered)));
        }
        self.after_ms(300, Then::Serve(replica, life, Box::new(call)));
    }

    fn carry_account(&mut self, replica: usize, key: &ArmId, action: Action<Account>) {
        match self.carry(replica, key, action, Told::Account) {
            Some(Action::Read(id, query)) => {
                self.reads(replica, key);
                self.request(replica, Call::ReadAccount(key.clone(), id, query));
            }
            Some(Action::Write { id, op, .. }) => {
                let read_at = self.account_sent(replica, key, &op);
                let fate = self.fate();
                let unanswered = Told::Account(key.clone(), Event::Ended(id, Written::Refused(lost())));
                self.sends(replica, Call::Account(key.clone(), id, op, fate, read_at), fate, unanswered);
            }
            Some(Action::Answer(caller, outcome)) => self.account_answered(replica, key, caller, outcome),
            _ => {}
        }
    }

    fn account_answered(
        &mut self,
        replica: usize,
        key: &ArmId,
        caller: Caller,
        outcome: Result<account::Done, Refusal<Account>>,
    ) {
        let outcome = outcome.map_err(|refusal| match refusal {
            Refusal::Busy(_) => failed(Fault::Busy),
            Refusal::Why(failure) => Error { effect: failure.effect, ..failed(failure.fault) },
        });
        if let Some(course) = self.replicas[replica].courses.get_mut(key) {
            course.callers.remove(&caller);
        }
        let event = match self.replicas[replica].waits.remove(&caller).map(|(_, waits)| waits) {
            Some(Waits::Make(id)) => pool::Event::Made(
                id,
                outcome.map(|done| match done {
                    account::Done::Made(account) | account::Done::Exists(account) => pool::Made::There(account),
                    account::Done::Taken | account::Done::AsAsked => pool::Made::Taken,
                }),
            ),
            Some(Waits::Finish(id)) => pool::Event::Finished(id, outcome.map(drop)),
            Some(Waits::Match(of)) if self.tasks.contains_key(&of) => return self.finish(of, Ok(Answer::Gone)),
            Some(Waits::Match(_)) | None => return,
        };
        let life = self.replicas[replica].life;
        self.after_ms(0, Then::Tell(replica, life, Box::new(Told::Pool(event))));
    }

    fn carry_share(&mut self, replica: usize, key: &ArmId, action: Action<share::Share<Error>>) {
        match self.carry(replica, key, action, Told::Share) {
            Some(Action::Read(id, query)) => {
                self.reads(replica, key);
                self.request(replica, Call::ReadShare(key.clone(), id, query));
            }
            Some(Action::Write { id, op, .. }) => {
                let Some(course) = self.share_sent(replica, key, &op) else { return };
                let fate = self.fate();
                if fate == Fate::Lost && matches!(op, share::Op::Put(_)) {
                    *self.late.entry(course.number).or_default() += 1;
                }
                let unanswered = Told::Share(key.clone(), Event::Ended(id, Written::Refused(lost())));
                let (share, began) = (key.clone(), course.began);
                self.sends(
                    replica,
                    Call::Share { share, id, op, fate, course: course.number, began },
                    fate,
                    unanswered,
                );
            }
            Some(Action::Answer(caller, outcome)) => self.share_answered(replica, key, caller, outcome),
            _ => {}
        }
    }

    fn share_answered(
        &mut self,
        replica: usize,
        key: &ArmId,
        caller: Caller,
        outcome: Result<share::Done, Refusal<share::Share<Error>>>,
    ) {
        if let Some(course) = self.replicas[replica].courses.get_mut(key) {
            course.callers.remove(&caller);
        }
        let Some(task) = self.tasks.get(&caller).cloned() else { return };
        self.call_ends(&task, key, outcome.is_ok());
        if let (Goal::Deleted, Ok(_)) = (&task.goal, &outcome) {
            Arc::make_mut(&mut self.replicas[replica].adoptions).forget(key, &plans()[task.claim].request);
        }
        match &outcome {
            Err(Refusal::Why(share::Failure { why: share::Why::NotNow(NotNow::Adopted { .. }), .. })) => {
                self.count("given to a request that is not seen");
            }
            Err(Refusal::Why(share::Failure { why: share::Why::NotNow(NotNow::JustBegun(_)), .. })) => {
                self.count("just begun");
            }
            _ => {}
        }
        let outcome = outcome.map_err(|refusal| match refusal {
            Refusal::Busy(_) => failed(Fault::Busy),
            Refusal::Why(failure) => Error { effect: failure.effect, ..failed(failure.fault) },
        });
        if matches!(&outcome, Err(error) if error.fault == Fault::Busy) {
            self.count("busy");
        }
        match (task.goal, outcome) {
            (Goal::Made { .. }, Err(error)) => self.not_made(caller, error),
            (_, Err(error)) => self.finish(caller, Err(error)),
            (_, Ok(share::Done::Size(size))) => self.finish(caller, Ok(Answer::Size(size.get()))),
            (_, Ok(share::Done::Kept(kept))) => self.finish(caller, Ok(Answer::Kept(kept))),
            (_, Ok(share::Done::Gone)) => {
                let account = key.account_of_share().expect("it is a share");
                self.pool(replica, pool::Event::Freed(account.clone()));
                if self.replicas[replica].pool.is_left_out(&account) {
                    return self.request_account(replica, account, account::Wanted::Matched, Waits::Match(caller));
                }
                self.finish(caller, Ok(Answer::Gone));
            }
        }
    }

    /// The share of a claim was not made in the account that was chosen.
    fn not_made(&mut self, caller: Caller, error: Error) {
        let Some(task) = self.tasks.get_mut(&caller) else { return };
        let (plan, tries) = (plans()[task.claim].clone(), task.tries);
        let Some(account) = task.account.as_ref().map(|account| account.id.clone()) else { return };
        let event = match elsewhere(&error.fault, error.effect, &plan, tries) {
            Elsewhere::Full if self.mutant == Some(Mutant::NeverFull) => pool::Event::Woke,
            Elsewhere::Full => pool::Event::Full(account.clone(), plan.share.clone()),
            Elsewhere::Gone if self.mutant == Some(Mutant::NeverGone) => pool::Event::Woke,
            Elsewhere::Gone => pool::Event::Gone(account.clone()),
            Elsewhere::No => return self.finish(caller, Err(error)),
        };
        (task.tries, task.share) = (tries + 1, None);
        let is_gone = error.fault == Fault::ScopeNotFound;
        let count = task.refused_in.entry((account.clone(), is_gone)).or_default();
        *count += 1;
        let (replica, count) = (task.replica, *count);
        // A person may delete it once more, and a deletion in it may be thought to make room.
        if count > 3 && !self.is_back(&account) {
            self.breaks(format!("{} is chosen again for a share that it has refused", account.name()));
        }
        self.pool(replica, event);
        self.pool(replica, pool::Event::Requested(caller, plan));
    }
}
