//! The requests of a run: how they travel, what Azure answers, and what becomes of the answers.

use std::{collections::BTreeSet, time::Duration};

use lazuli_model::fault::Fault;
use lazuli_quota::read::{Accept, By};

use super::{
    driver::{Happens, LEASE, LEAST, Run, TIME_OUT},
    mutant::Mutant,
    schedule::{Fate, Race},
    toy::Op,
    world::{Body, Course, FrontendAddress, Name, Owner, POISON, Provisioning, Refused, losers, takes_away},
};
use crate::{
    Acceptance, Id,
    object::{self, After, Cause, Failure},
};

/// How old a list may be, in milliseconds: older than any single read.
const OLDEST_LIST: u64 = 20_000;
/// The last writes of a leader are those that begin no longer than this before it must begin none.
const TAIL: Duration = Duration::from_secs(3);

impl Run {
    pub(super) fn read_arrives(&mut self, replica: usize, name: Name, id: Id, sent_at: Duration, accept: Accept) {
        let mut by = By::Single;
        let fault = self.read_faults.pop_front();
        let result = match fault {
            Some(fault) => {
                self.count(if fault == Fault::Unavailable { "read failed" } else { "read throttled" });
                Err(fault)
            }
            None => {
                let lag = if self.now < self.lag_until { self.numbers.ms(3_000) } else { Duration::ZERO };
                let as_of = self.now.saturating_sub(lag);
                let mut version = self.azure.read(name, as_of);
                if let (Mutant::TrustsUnused, Some(version)) = (self.mutant, &mut version) {
                    version.is_used = true;
                }
                let may_be_listed = accept == Accept::Any && !self.replicas[replica].written.contains(&name);
                if may_be_listed
                    && self.azure.read(name, self.now.saturating_sub(self.numbers.ms(OLDEST_LIST))).is_none()
                {
                    self.count(if version.is_some() { "list lacks what exists" } else { "list lacks it" });
                    version = None;
                    by = if self.mutant == Mutant::TrustsLists { By::Single } else { By::List };
                }
                if version.as_ref().map(|version| version.etag) != self.azure.current(name).map(|now| now.etag) {
                    self.count("read lagged");
                }
                version.ok_or(Fault::NotFound)
            }
        };
        self.later(60, replica, Happens::Read { name, id, sent_at, by, result });
    }

    pub(super) fn write(&mut self, replica: usize, name: Name, id: Id, observation: Id, op: Op) {
        self.note(|| format!("{replica}: write {name:?} {op:?}"));
        self.count("write");
        self.writes += 1;
        self.last_write = self.now;
        let this = &mut self.replicas[replica];
        this.written.insert(name);
        let lease_end = this.lease_end.unwrap_or(self.now + LEASE);
        let judged = if lease_end < self.now + TIME_OUT {
            Err(format!("a write of {name:?} starts with too little lease"))
        } else if !this.writing.insert(name) {
            Err(format!("two writes of {name:?} are in flight"))
        } else if this.not_before.get(&name).is_some_and(|not_before| self.now < *not_before) {
            Err(format!("a write of {name:?} starts before Retry-After is over"))
        } else {
            Ok(())
        };
        let raw = this.raw.get(&name).filter(|(read, _)| *read == observation).map(|(_, version)| version.clone());
        self.judge(judged);
        let Some(version) = raw else {
            self.judge(Err(format!("a write of {name:?} names an observation that is not the last")));
            return;
        };
        let body = match op {
            Op::Put(body) => Some(body),
            Op::Delete => None,
        };
        let there = version.as_ref().map(|version| &version.body);
        let losers = self.losers(name, there, body.as_ref());
        if let Some(owner) = losers.intersection(&self.taken_over).next() {
            let why = format!("a write of {name:?} takes from service {owner} what the operator has not accepted");
            self.judge(Err(why));
        }
        let etag = version.map(|version| version.etag);
        let is_late = self.replicas[replica].tail_is_late && lease_end < self.now + LEAST + TAIL;
        let fate = if is_late { Some(Fate::Late) } else { self.fates.pop_front() };
        let at = match fate {
            Some(Fate::Late) => self.now + TIME_OUT + self.numbers.ms(3_000),
            _ => self.now + self.numbers.ms(60),
        };
        if matches!(fate, Some(Fate::LostRequest | Fate::LostAnswer | Fate::Late)) {
            let fault = if self.mutant == Mutant::TrustsAfterLoss { Fault::Conflict } else { Fault::OutcomeUnknown };
            self.at(self.now + TIME_OUT, replica, Happens::Ended { name, id, result: Err((fault, false)) });
        }
        self.at(at, replica, Happens::WriteArrives { name, id, etag, body, fate });
    }

    #[expect(clippy::too_many_arguments, reason = "they are the parts of one request")]
    pub(super) fn write_arrives(
        &mut self,
        replica: usize,
        process: u32,
        name: Name,
        id: Id,
        etag: Option<u64>,
        body: Option<Body>,
        fate: Option<Fate>,
    ) {
        let refusal = match fate {
            Some(Fate::LostRequest) => {
                self.count("write: request lost");
                return;
            }
            Some(Fate::Conflict) => Some(("write: 409", Fault::Conflict)),
            Some(Fate::Precondition) => Some(("write: 412", Fault::PreconditionFailed)),
            Some(Fate::Throttled(seconds)) => {
                let retry_after = Some(Duration::from_secs(seconds));
                Some(("write: 429", Fault::Throttled { retry_after }))
            }
            Some(Fate::Forbidden) => Some(("write: 403", Fault::Forbidden)),
            Some(Fate::Unavailable) => Some(("write: 503", Fault::Unavailable)),
            _ => None,
        };
        let answered = !matches!(fate, Some(Fate::LostAnswer | Fate::Late));
        if let Some((what, fault)) = refusal {
            self.count(what);
            self.answer(replica, process, Happens::Ended { name, id, result: Err((fault, false)) });
            return;
        }
        let course = match fate {
            Some(Fate::Fails) => Course::Fails,
            Some(Fate::FailsPartly) => Course::FailsPartly,
            _ => Course::Succeeds,
        };
        let etag = match self.mutant {
            Mutant::NoEtag => self.azure.current(name).map(|version| version.etag),
            _ => etag,
        };
        if fate == Some(Fate::Late) {
            self.count("write: late");
        }
        if self.is_denied(name, body.as_ref()) {
            self.count("write: denied by a policy");
            if answered {
                self.answer(replica, process, Happens::Ended { name, id, result: Err((Fault::Denied, false)) });
            }
            return;
        }
        let poisoned = |body: &Option<Body>| match body {
            Some(Body::LoadBalancer(body)) => {
                body.rules.keys().filter(|rule| rule.2 == POISON).map(|rule| rule.0).collect()
            }
            _ => Vec::new(),
        };
        let poisoned = poisoned(&body);
        self.race(name, body.as_ref());
        let removes = takes_away(self.azure.current(name).map(|version| &version.body), body.as_ref());
        let mut result = Err(Refused::Busy);
        self.change(|azure, now| result = azure.write(now, name, etag, body, course));
        match result {
            Ok(operation) => {
                self.note(|| format!("operation {operation} on {name:?} begins ({course:?})"));
                let another_leads =
                    self.replicas.iter().any(|replica| replica.leads) && self.replicas[replica].process != process;
                if removes && another_leads {
                    self.count("write: removal of the leader before");
                }
                self.count(match (course, answered) {
                    (Course::Fails, _) => "write: fails late",
                    (Course::FailsPartly, _) => "write: fails half way",
                    (Course::Succeeds, true) => "write: accepted",
                    (Course::Succeeds, false) => "write: answer lost",
                });
                self.operations_of.insert(operation, name);
                let at = self.now + Duration::from_millis(500) + self.numbers.ms(5_000);
                self.at(at, replica, Happens::OperationEnds(operation));
                if answered {
                    self.answer(replica, process, Happens::Accepted { name, id, operation });
                }
            }
            Err(refused) => {
                self.note(|| format!("write of {name:?}: {refused:?}"));
                let (what, fault) = match refused {
                    Refused::NotFound => ("azure: not found", Fault::NotFound),
                    Refused::Precondition => ("azure: 412", Fault::PreconditionFailed),
                    Refused::Busy => ("azure: 409", Fault::Conflict),
                    Refused::Invalid => ("azure: invalid", Fault::Invalid),
                    Refused::InUse => ("azure: in use", Fault::InUse),
                    Refused::ReferenceNotProvisioned => {
                        ("azure: 429, reference not provisioned", Fault::Throttled { retry_after: None })
                    }
                };
                self.count(what);
                if refused == Refused::Invalid && answered {
                    self.refused_by_azure(&poisoned);
                }
                if answered {
                    let reference = refused == Refused::ReferenceNotProvisioned;
                    self.answer(replica, process, Happens::Ended { name, id, result: Err((fault, reference)) });
                }
            }
        }
    }

    /// Whether a policy denies a write. Once the Service is found that it is about, no write has new rules of others beside
    /// its own: they would be denied with it.
    fn is_denied(&mut self, name: Name, body: Option<&Body>) -> bool {
        let rules = |body: Option<&Body>| match body {
            Some(Body::LoadBalancer(body)) => body.rules.keys().copied().collect(),
            _ => BTreeSet::new(),
        };
        let before = rules(self.azure.current(name).map(|version| &version.body));
        let gets: BTreeSet<Owner> = rules(body).difference(&before).map(|rule| rule.0).collect();
        let now = self.now;
        let is_denied = |owner: &&Owner| self.policies.get(*owner).is_some_and(|until| now < *until);
        let denied: Vec<Owner> = gets.iter().filter(is_denied).copied().collect();
        for owner in &denied {
            let times = self.denied.entry(*owner).or_default();
            *times += 1;
            // Five Services at most.
            if *times > 1 + 3 + 1 && gets.len() > 1 {
                self.judge(Err(format!("the new rules of services {gets:?} are denied with those of service {owner}")));
            }
        }
        !denied.is_empty()
    }

    /// Lets another writer be faster than a write that arrives now, where an incident says so.
    fn race(&mut self, name: Name, body: Option<&Body>) {
        let now = self.now;
        let of_public_ip = body.is_none() && matches!(name, Name::PublicIp(_));
        // A late write of ours could make it again, which only a resync would find.
        let is_under_way = |public_ip: &Name| {
            let mut pending = self.pending.iter().flatten();
            pending.any(|(_, _, happens)| matches!(happens, Happens::WriteArrives { name, .. } if name == public_ip))
        };
        let orphan = self.new_public_ip(name, body).filter(|public_ip| !is_under_way(public_ip));
        let concerned = |race: &Race| match race {
            Race::Deletes | Race::Holds(_) => of_public_ip,
            Race::Orphans => orphan.is_some(),
            Race::Operates(_) => true,
        };
        let Some(race) = self.races.iter().position(concerned).and_then(|index| self.races.remove(index)) else {
            return;
        };
        let comes_first = match race {
            Race::Deletes => self.azure.delete_by_other(now, name),
            Race::Orphans => {
                let deleted = orphan.is_some_and(|public_ip| self.azure.delete_by_other(now, public_ip));
                if deleted {
                    self.count("public IP deleted before its frontend");
                }
                deleted
            }
            Race::Holds(seconds) => self.azure.hold(name, now + Duration::from_secs(seconds)),
            Race::Operates(_) if self.azure.is_busy(name) || self.azure.current(name).is_none() => false,
            Race::Operates(seconds) => {
                self.azure.write_by_other(now, name, Provisioning::Updating);
                self.at(now + Duration::from_secs(seconds), 0, Happens::OtherEnds(name));
                true
            }
        };
        if comes_first {
            self.note(|| format!("another writer comes before the write of {name:?}: {race:?}"));
        }
    }

    /// The Services of which a write removes or replaces something that the operator has not accepted.
    fn losers(&self, name: Name, before: Option<&Body>, after: Option<&Body>) -> BTreeSet<Owner> {
        if self.acceptance() == Acceptance::Given {
            return BTreeSet::new();
        }
        losers(&self.azure, name, before, after)
    }

    /// A public IP of which a write makes the frontend.
    fn new_public_ip(&self, name: Name, body: Option<&Body>) -> Option<Name> {
        let Some(Body::LoadBalancer(body)) = body else { return None };
        let before = match self.azure.current(name).map(|version| &version.body) {
            Some(Body::LoadBalancer(before)) => before.frontends.values().copied().collect(),
            _ => BTreeSet::new(),
        };
        body.frontends.values().find_map(|frontend| match frontend {
            FrontendAddress::Public(number) if !before.contains(frontend) => Some(Name::PublicIp(*number)),
            _ => None,
        })
    }

    /// While neither a user changes a Service nor a public IP is written, one process has at most log2(n) + 1 writes refused because of one, after the first.
    fn refused_by_azure(&mut self, poisoned: &[Owner]) {
        if let [owner] = poisoned {
            let refused = self.refused.entry(*owner).or_default();
            *refused += 1;
            let refused = *refused;
            // Five Services at most.
            if refused > 1 + 3 + 1 {
                self.judge(Err(format!("service {owner} had {refused} writes refused")));
            }
        }
    }

    fn answer(&mut self, replica: usize, process: u32, happens: Happens) {
        if self.replicas[replica].process == process {
            self.later(60, replica, happens);
        }
    }

    pub(super) fn ended(&mut self, replica: usize, name: Name, id: Id, result: Result<(), (Fault, bool)>) {
        self.note(|| format!("{replica}: write of {name:?} ended {result:?}"));
        let this = &mut self.replicas[replica];
        this.writing.remove(&name);
        if result.is_ok() && matches!(name, Name::PublicIp(_)) {
            // What was refused may succeed now.
            self.refused.clear();
            self.denied.clear();
        }
        let this = &mut self.replicas[replica];
        let result = match result {
            Ok(()) => Ok(After::Unread),
            Err((mut fault, reference)) => {
                if let Fault::Throttled { retry_after } = &mut fault {
                    let until = self.now + retry_after.unwrap_or_default();
                    this.not_before.insert(name, until);
                    if self.mutant == Mutant::ForgetsRetryAfter {
                        *retry_after = None;
                    }
                }
                let cause = if reference { Cause::Reference } else { Cause::Unnamed };
                Err(Failure { fault, cause })
            }
        };
        self.step_object(replica, name, object::Event::Ended { id, result });
    }

    pub(super) fn poll_arrives(&mut self, replica: usize, name: Name, id: Id) {
        let Some(operation) = self.replicas[replica].operations.get(&(name, id)).copied() else { return };
        match self.azure.outcome(operation) {
            None => self.later(60, replica, Happens::Polled { name, id }),
            Some(succeeded) => {
                self.replicas[replica].operations.remove(&(name, id));
                let result = if succeeded { Ok(()) } else { Err((Fault::OperationFailed, false)) };
                self.later(60, replica, Happens::Ended { name, id, result });
            }
        }
    }
}
