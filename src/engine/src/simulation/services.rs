//! The Services of a run: what their informer shows of them, what they tell the objects, and their patches.

use std::collections::BTreeSet;

use super::{
    driver::{Happens, Key, Message, Run, ServiceEvent},
    mutant::Mutant,
    toy::{Arm, Gone, Report, Tag, Want},
    world::{Body, FrontendAddress, LOAD_BALANCERS, Name, Owner},
};
use crate::{
    Id, Outcome, object,
    service::{self, Desired, Patch, PatchFault, Reason, Snapshot},
};

impl Run {
    pub(super) fn inform(&mut self, replica: usize, owner: Owner) {
        if self.replicas[replica].lease_end.is_some() {
            return;
        }
        let Some(service) = self.api.services.get(&owner) else {
            self.step_service(replica, owner, service::Event::Removed);
            return;
        };
        let desired = match &service.ask {
            _ if service.deleting || !service.claimed => Desired::Gone,
            Some(ask) => Desired::Present(ask.clone()),
            None => Desired::Invalid(vec!["an annotation is wrong".to_owned()]),
        };
        let found = LOAD_BALANCERS.map(Name::LoadBalancer).chain([Name::PublicIp(0), Name::SecurityGroup]);
        // Frontends show their public IPs, a specification names what it asks for, and all else that carries the Service's
        // tag is found by lists.
        let balancers = LOAD_BALANCERS.filter_map(|number| self.azure.current(Name::LoadBalancer(number)));
        let on_frontends = balancers.flat_map(|version| match &version.body {
            Body::LoadBalancer(body) => body.frontends.values().copied().collect(),
            _ => Vec::new(),
        });
        let on_frontends: BTreeSet<FrontendAddress> = on_frontends.collect();
        let own = [false, true].map(|second| super::api::own_public_ip(owner, second));
        let used = own.into_iter().filter(|number| on_frontends.contains(&FrontendAddress::Public(*number)));
        let found = found.chain(used.map(Name::PublicIp));
        let tagged = own.map(Name::PublicIp).into_iter().chain([Name::PrivateLink(owner)]);
        let listed = &self.replicas[replica].listed;
        let shown = tagged.filter(|name| listed.as_ref().is_some_and(|listed| listed.contains(name)));
        let named = service.ask.iter().filter(|_| desired == Desired::Gone).flat_map(|ask| {
            let public_ip = super::toy::public_ip(owner, ask).map(Name::PublicIp);
            public_ip.into_iter().chain(ask.link.then_some(Name::PrivateLink(owner)))
        });
        let is_read = listed.is_some() || self.mutant == Mutant::ForgetsUnread;
        let snapshot = Snapshot {
            version: service.version,
            found: found.chain(shown).chain(named).collect(),
            ownerless: BTreeSet::new(),
            named: BTreeSet::new(),
            unread: if is_read { vec![] } else { vec!["the tags are not listed yet".to_owned()] },
            desired,
            finalizer: service.finalizer,
            status: service.status,
        };
        self.step_service(replica, owner, service::Event::Changed(snapshot));
    }

    pub(super) fn step_service(&mut self, replica: usize, owner: Owner, event: ServiceEvent) {
        let shared = self.shared(replica);
        let (now, this) = (self.now, &mut self.replicas[replica]);
        let state = this.services.entry(owner).or_default();
        let env = service::Env { shared, id: &owner, inputs: &this.inputs };
        let actions = service::step(state, &env, now, event);
        let wake = state.wake_at();
        let gone = state.is_gone();
        self.schedule_wake(replica, Key::Service(owner), wake);
        for action in actions {
            self.carry_out_service(replica, owner, gone, action);
        }
    }

    fn carry_out_service(&mut self, replica: usize, owner: Owner, gone: bool, action: service::Action<Arm>) {
        match action {
            service::Action::Tell { key, generation, want, acceptance } => {
                self.note(|| format!("{replica}: service {owner} tells {key:?} {want:?}"));
                if key == Name::SecurityGroup {
                    self.replicas[replica].at_group.insert(owner);
                }
                if self.leaves_with_the_address(owner, key, &want) {
                    self.count("told: load balancer left with the address");
                }
                match &want {
                    Want::LoadBalancer { gone: Gone::Own, .. } => self.count("told: load balancer clean"),
                    Want::LoadBalancer { gone: Gone::OwnPrivateRules, .. } => self.count("told: load balancer quiet"),
                    Want::LoadBalancer { rules, frontends, .. } if rules.is_empty() && !frontends.is_empty() => {
                        self.count("told: frontend only");
                    }
                    Want::LoadBalancer { .. } => self.count("told: load balancer"),
                    Want::SecurityGroup { gone, .. } if !gone.is_empty() => self.count("told: security group clean"),
                    Want::SecurityGroup { .. } => self.count("told: security group"),
                    Want::PublicIp(Tag::Present) => self.count("told: public IP present"),
                    Want::PublicIp(Tag::Leaves) => self.count("told: public IP left to others"),
                    Want::PublicIp(Tag::Gone) => self.count("told: public IP gone"),
                    Want::Member(_) => self.count("told: member"),
                    Want::PrivateLink(_) => self.count("told: private link"),
                    Want::NoPrivateLink => self.count("told: private link gone"),
                    Want::Nothing => self.count("told: look"),
                }
                let early = match self.mutant {
                    Mutant::StatusEarly => !gone && !matches!(key, Name::PublicIp(_)),
                    Mutant::FinalizerEarly => gone,
                    _ => false,
                };
                if early {
                    let report = self.replicas[replica].services[&owner].report_of(&key).cloned().unwrap_or_default();
                    let report =
                        if matches!(want, Want::LoadBalancer { .. }) { self.shown(owner, key) } else { report };
                    let told = service::Event::Told { key, generation, outcome: Outcome::Done(report) };
                    self.inbox.push_back((replica, Message::Service(owner, told)));
                }
                let dropped = self.mutant == Mutant::DropsWants
                    && self.replicas[replica].objects.get(&key).is_some_and(object::State::is_writing);
                if !dropped {
                    let event = object::Event::Requested { from: owner, generation, want, acceptance };
                    self.inbox.push_back((replica, Message::Object(key, event)));
                }
            }
            service::Action::Withdraw(key) => {
                self.count("withdrawn");
                if !gone && self.api.services.contains_key(&owner) {
                    self.note(|| format!("{replica}: service {owner} forgets {key:?}"));
                    self.count(match key {
                        Name::PrivateLink(_) => "forgotten: private link",
                        _ => "forgotten: public IP",
                    });
                }
                self.inbox.push_back((replica, Message::Object(key, object::Event::Withdrawn(owner))));
            }
            service::Action::Patch { id, version, patch } => {
                self.note(|| format!("{replica}: service {owner} patch {patch:?}"));
                self.count(match &patch {
                    Patch::AddFinalizer => "patch: finalizer added",
                    Patch::SetStatus(_) => "patch: status set",
                    Patch::ClearStatus => "patch: status cleared",
                    Patch::RemoveFinalizer => "patch: finalizer removed",
                });
                self.later(50, replica, Happens::PatchArrives { owner, id, version, patch });
            }
            service::Action::Report(reason) => {
                self.note(|| format!("{replica}: service {owner} reports {reason:?}"));
                self.count(match reason {
                    Reason::Ensuring => "report: ensuring",
                    Reason::Ensured => "report: ensured",
                    Reason::Unchanged => "report: unchanged",
                    Reason::Invalid(_) => "report: invalid",
                    Reason::Refused(..) => "report: refused",
                    Reason::Retry(..) => "report: retry",
                    Reason::Held(_) => "report: held",
                    Reason::Waits(..) => "report: waits",
                    Reason::Unread(_) => "report: unread",
                    Reason::Deleting => "report: deleting",
                    Reason::Deleted => "report: deleted",
                });
            }
            service::Action::Drained => {}
        }
    }

    /// Whether a Service is to leave a load balancer, and its address is one that it takes to another.
    fn leaves_with_the_address(&self, owner: Owner, key: Name, want: &Want) -> bool {
        let Want::LoadBalancer { gone: Gone::Own, released, .. } = want else { return false };
        let ask = self.api.services.get(&owner).and_then(|service| service.ask.as_ref());
        let kept = ask.and_then(|ask| super::toy::public_ip(owner, ask)).filter(|number| released.contains(number));
        let Some(Body::LoadBalancer(body)) = self.azure.current(key).map(|version| &version.body) else { return false };
        kept.is_some_and(|number| body.frontends.values().any(|at| *at == FrontendAddress::Public(number)))
    }

    /// What an object shows of a Service now.
    fn shown(&self, owner: Owner, key: Name) -> Report {
        super::toy::report(owner, self.azure.current(key).map(|version| &version.body))
    }

    pub(super) fn patch_arrives(
        &mut self,
        replica: usize,
        owner: Owner,
        id: Id,
        version: u64,
        patch: Patch<u32>,
        reached: bool,
    ) {
        if !reached {
            self.later(1_000, replica, Happens::Patched { owner, id, result: Err(PatchFault::Again) });
            return;
        }
        let result = self.api.patch(owner, version, |service| match &patch {
            Patch::AddFinalizer => service.finalizer = true,
            Patch::SetStatus(status) => service.status = Some(*status),
            Patch::ClearStatus => service.status = None,
            Patch::RemoveFinalizer => service.finalizer = false,
        });
        if result.is_ok() {
            let judged = match patch {
                Patch::SetStatus(status) => self.oracle.status(owner, status, &self.azure),
                Patch::RemoveFinalizer => self.oracle.finalizer_removed(owner, &self.azure),
                Patch::AddFinalizer | Patch::ClearStatus => Ok(()),
            };
            self.judge(judged);
            self.oracle.narrow(&self.azure, &self.api, self.now);
        }
        let result = result.map_err(|gone| if gone { PatchFault::Gone } else { PatchFault::Again });
        if result.is_err() {
            self.count("patch refused");
        }
        self.inform_all(owner);
        self.later(50, replica, Happens::Patched { owner, id, result });
    }
}
