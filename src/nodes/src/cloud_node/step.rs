//! The step of one Node.
//!
//! It takes the machine of a new Node from what the Node's plugin publishes, or reads it, and patches the Node, at most
//! twice; it requests the Node's routes from the route table; it keeps the addresses of an initialised Node as those of its
//! machine; and while the Node is not Ready it reads whether its machine runs, is stopped or is gone.
//!
//! # When a machine is gone
//!
//! Azure answers 404 for exactly this machine, twice, at least [`APART`] apart, and each time another machine, or its scale
//! set, is there ([`existence`](super::existence)). A missing right, a missing resource group and an answer that did not
//! come prove nothing. This process has known the Node for the grace period. Then the Node asks the
//! [`breaker`](super::breaker), and is deleted by its uid while its last proof is younger than [`FRESH`].

mod action;
mod event;
mod refresh;

use std::time::Duration;

pub use action::{Action, Lookup, NetworkCondition, Patch, Reason};
pub use event::{Checked, Event, PatchFault};
use lazuli_engine::{Awaited, Id, Ids, Shared, backoff::Backoff, earlier};
use lazuli_model::{PowerState, ProvisioningState, fault::Fault};
use refresh::Refresh;

use super::{
    BetaLabels, CloudNode, Instance, Taint,
    facts::Scope,
    provider_id,
    routes::{self, Requests, Routes},
};

/// The least time between two proofs that a machine is gone.
pub const APART: Duration = Duration::from_secs(5);
/// How old a proof may be when the Node is deleted or tainted by it.
pub const FRESH: Duration = Duration::from_secs(30);
/// The pauses between reads of the machine of a Node that is not Ready.
const CHECKS: Backoff = Backoff::new(Duration::from_secs(10), Duration::from_secs(60));
/// How long the machine of a new Node that is not Ready is not read: it was there when its kubelet registered.
const NEW: Duration = Duration::from_secs(60);
/// The pauses after a read or a patch that failed.
const RETRIES: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));
/// The pause after a patch that met another writer.
const CONFLICT: Duration = Duration::from_millis(250);

/// Which controllers run. Source of the names: the Go manager's `--controllers`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Controllers {
    /// `cloud-node`: initialises Nodes.
    pub node: bool,
    /// `cloud-node-lifecycle`: taints and deletes Nodes.
    pub lifecycle: bool,
    /// `node-route`: routes, and the condition NetworkUnavailable.
    pub route: bool,
}

/// What a step needs beside its own state.
#[derive(Debug, Clone, Copy)]
pub struct Env<'a> {
    /// What all keys share.
    pub shared: Shared,
    /// Where the machines of Nodes are that do not say it themselves.
    pub scope: Scope<'a>,
    /// How long a new Node waits for what its plugin publishes before Azure is asked.
    pub metadata_wait: Duration,
    /// How long after it was seen first a new route is expected to work.
    pub route_settle: Duration,
    /// Which controllers run.
    pub controllers: Controllers,
    /// Whether new Nodes get the labels of before Kubernetes 1.17 too.
    pub beta_labels: BetaLabels,
    /// Who gives Nodes the ranges of their pods.
    pub pod_ranges: PodRanges,
    /// How long this process has known a Node at least before it deletes it.
    pub grace: Duration,
}

/// Who gives Nodes the ranges of their pods (`spec.podCIDRs`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PodRanges {
    /// The operator says nothing of it: a network plugin may need none.
    #[default]
    NotExpected,
    /// The operator expects that each Node gets some (`--allocate-node-cidrs=true`). This program gives none.
    Expected,
}

/// How long a new Node may be without a pod range before that is reported. Source: kube-controller-manager gives one within
/// seconds of the Node's registration.
const POD_RANGE_WAIT: Duration = Duration::from_secs(60);

/// Whether the breaker lets the Node act.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Grant {
    #[default]
    None,
    Asked,
    /// By a proof from then on.
    Since(Duration),
}

/// What was proved of the machine last, by a read that was sent then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Proof {
    sent_at: Duration,
    what: Proved,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Proved {
    Runs,
    /// Stopped or deallocated, and no operation is in flight.
    Stopped,
    /// Gone, and when that was proved first.
    Gone {
        first: Duration,
    },
}

/// The facts of one Node.
#[derive(Debug, Clone)]
pub struct State {
    ids: Ids,
    node: Option<CloudNode>,
    /// The Node that was removed, while its routes go.
    removed: Option<CloudNode>,
    known_since: Duration,
    instance: Option<Instance>,
    reading: Option<Id>,
    read_at: Duration,
    reads: Backoff,
    refresh: Refresh,
    checking: Option<(Id, Duration)>,
    check_at: Duration,
    checks: Backoff,
    proof: Option<Proof>,
    grant: Grant,
    writing: Option<Id>,
    /// Whether the Node was uninitialized when the write in flight began. Its watch may show the end before the answer does.
    writes_new: bool,
    write_at: Duration,
    writes: Backoff,
    is_deleted: bool,
    requests: Requests,
    reported: Option<Reason>,
    /// Whether it was reported that the Node has no pod range.
    lack_of_range_reported: bool,
    draining: bool,
    wake: Option<Duration>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            ids: Ids::default(),
            node: None,
            removed: None,
            known_since: Duration::ZERO,
            instance: None,
            reading: None,
            read_at: Duration::ZERO,
            reads: RETRIES,
            refresh: Refresh::new(RETRIES),
            checking: None,
            check_at: Duration::ZERO,
            checks: CHECKS,
            proof: None,
            grant: Grant::None,
            writing: None,
            writes_new: false,
            write_at: Duration::ZERO,
            writes: RETRIES,
            is_deleted: false,
            requests: Requests::default(),
            reported: None,
            lack_of_range_reported: false,
            draining: false,
            wake: None,
        }
    }
}

/// Folds an event into the facts and decides what to do.
pub fn step(state: &mut State, env: &Env<'_>, now: Duration, event: Event) -> Vec<Action> {
    let mut actions = Vec::new();
    state.fold(now, event, &mut actions);
    state.decide(env, now, &mut actions);
    actions
}

impl State {
    /// When [`Event::Woke`] is due if nothing else happens before.
    pub fn wake_at(&self) -> Option<Duration> {
        self.wake
    }

    /// Whether the state may be dropped: the Node is gone, its routes too, and nothing is in flight.
    pub fn is_idle(&self) -> bool {
        self.node.is_none() && self.removed.is_none() && !self.is_busy()
    }

    /// What the Node waits for.
    pub fn awaited(&self, env: &Env<'_>, now: Duration) -> Awaited {
        match (&self.node, self.proof.map(|proof| proof.what)) {
            _ if self.writing.is_some() => Awaited::Patch,
            _ if self.reading.is_some() || self.refresh.reading.is_some() || self.checking.is_some() => {
                Awaited::Machine
            }
            _ if self.draining => Awaited::End,
            (None, _) if self.removed.is_none() => Awaited::Nothing,
            (Some(node), _) if !node.is_ours() || node.is_deleting || self.is_deleted => Awaited::Nothing,
            _ if !env.shared.synced => Awaited::Informers,
            _ if !env.shared.lease.covers_write(now) => Awaited::Lease,
            (None, _) => Awaited::Routes,
            (Some(_), _) if self.grant == Grant::Asked => Awaited::Breaker,
            (Some(_), Some(Proved::Gone { .. })) => Awaited::Proof,
            (Some(node), _) if env.controllers.node && node.has_taint(Taint::UNINITIALIZED) => {
                let waits_for_metadata = self.instance.is_none() && now < self.known_since + env.metadata_wait;
                if waits_for_metadata { Awaited::Metadata } else { Awaited::Pause }
            }
            (Some(node), _) if env.controllers.lifecycle && !node.is_ready => Awaited::Readiness,
            (Some(_), _) if self.requests.is_known() && !self.requests.is_done() => Awaited::Routes,
            (Some(_), _) => Awaited::Nothing,
        }
    }

    fn is_busy(&self) -> bool {
        let reads = self.reading.is_some() || self.refresh.reading.is_some();
        reads || self.checking.is_some() || self.writing.is_some()
    }

    fn fold(&mut self, now: Duration, event: Event, actions: &mut Vec<Action>) {
        match event {
            Event::Changed(node) => self.changed(node, now, actions),
            Event::Removed => {
                self.forget(actions);
                self.removed = self.node.take().or(self.removed.take());
            }
            Event::Read { id, result } => {
                let Some(_) = self.reading.take_if(|reading| *reading == id) else { return };
                match result {
                    Ok(instance) => {
                        self.reads.succeeded();
                        self.instance = Some(instance);
                    }
                    Err(fault) => {
                        self.read_at = now + self.reads.failed();
                        let reason = match fault {
                            Fault::NotFound => Reason::NoMachine,
                            fault => Reason::Unreadable(fault),
                        };
                        self.report(reason, actions);
                    }
                }
            }
            Event::Listed(listed) => {
                if let Some(node) = &self.node {
                    self.refresh.listed(node, listed.as_deref(), now);
                }
            }
            Event::AddressesRead { id, result } => {
                if let Some(reason) = self.refresh.read(id, result, now) {
                    self.report(reason, actions);
                }
            }
            Event::Checked { id, result } => {
                let Some((_, sent_at)) = self.checking.take_if(|(checking, _)| *checking == id) else { return };
                self.checked(sent_at, result, now, actions);
            }
            Event::Patched { id, result } => {
                let Some(_) = self.writing.take_if(|writing| *writing == id) else { return };
                match result {
                    Ok(node) => {
                        self.writes.succeeded();
                        if self.writes_new && !node.has_taint(Taint::UNINITIALIZED) {
                            self.report(Reason::Initialised, actions);
                        }
                        self.changed(node, now, actions);
                    }
                    Err(fault) => self.not_written(fault, now),
                }
            }
            Event::Deleted { id, result } => {
                let Some(_) = self.writing.take_if(|writing| *writing == id) else { return };
                match result {
                    Ok(()) => self.is_deleted = true,
                    Err(fault) => self.not_written(fault, now),
                }
            }
            Event::Routed { generation, outcome } => {
                if let Some(reason) = self.requests.told(generation, &outcome, now) {
                    self.report(reason, actions);
                }
            }
            Event::RoutesLost => self.requests.lost(),
            Event::Granted { reads_again } => {
                if self.grant == Grant::Asked {
                    self.grant = Grant::Since(if reads_again { now } else { Duration::ZERO });
                }
            }
            Event::Woke => {}
            Event::Drain => self.draining = true,
        }
    }

    fn changed(&mut self, node: CloudNode, now: Duration, actions: &mut Vec<Action>) {
        let before = self.node.as_ref();
        if before.is_some_and(|before| before.uid == node.uid && before.version > node.version) {
            return;
        }
        let has_booted = before.is_some_and(|before| has_booted(before, &node));
        if before.is_none_or(|before| before.uid != node.uid) {
            // The route table is told of the new ranges instead of the old ones, and shows anew what it has.
            self.forget(actions);
            self.requests.renew();
            self.known_since = now;
            if node.has_taint(Taint::UNINITIALIZED) {
                self.check_at = now + NEW;
            }
            self.removed = None;
        } else if before.is_some_and(|before| before.is_ready != node.is_ready) {
            // What was proved of the machine was proved of another time.
            self.proof = None;
            self.checks.succeeded();
            self.check_at = now;
            self.withdraw(actions);
        }
        if has_booted {
            self.refresh.need(now);
        }
        self.node = Some(node);
    }

    /// Forgets what is known of the machine.
    fn forget(&mut self, actions: &mut Vec<Action>) {
        self.withdraw(actions);
        let Self { ids, node, removed, requests, draining, .. } = std::mem::take(self);
        *self = Self { ids, node, removed, requests, draining, ..Self::default() };
    }

    fn withdraw(&mut self, actions: &mut Vec<Action>) {
        if std::mem::take(&mut self.grant) != Grant::None {
            actions.push(Action::Withdraw);
        }
    }

    fn not_written(&mut self, fault: PatchFault, now: Duration) {
        self.write_at = match fault {
            // The informer tells the newer state; if it has told it already, the next patch is of that one.
            PatchFault::Changed => now + CONFLICT,
            PatchFault::Gone | PatchFault::Failed => now + self.writes.failed(),
        };
    }

    fn checked(&mut self, sent_at: Duration, result: Checked, now: Duration, actions: &mut Vec<Action>) {
        self.check_at = now + self.checks.failed();
        let what = match result {
            Checked::Unproved(fault) => {
                self.report(Reason::Unproved(fault), actions);
                return;
            }
            Checked::Here(view) => {
                let is_at_rest = view.provisioning_state == ProvisioningState::Succeeded;
                match view.power {
                    Some(PowerState::Stopped | PowerState::Deallocated) if is_at_rest => Proved::Stopped,
                    Some(PowerState::Other) => Proved::Runs,
                    // On its way, or not said.
                    _ => {
                        self.proof = None;
                        self.withdraw(actions);
                        return;
                    }
                }
            }
            Checked::Gone => match self.proof {
                Some(Proof { what: Proved::Gone { first }, .. }) => Proved::Gone { first },
                _ => {
                    self.check_at = now + APART;
                    Proved::Gone { first: sent_at }
                }
            },
        };
        let kind = |what: Proved| std::mem::discriminant(&what);
        if self.proof.is_some_and(|proof| kind(proof.what) != kind(what)) {
            self.withdraw(actions);
        }
        self.proof = Some(Proof { sent_at, what });
    }

    fn report(&mut self, reason: Reason, actions: &mut Vec<Action>) {
        if self.reported.as_ref() != Some(&reason) {
            self.reported = Some(reason.clone());
            actions.push(Action::Report(reason));
        }
    }

    /// Whether a time has not come. If so, the next decision is due then.
    fn waits(&mut self, at: Duration, now: Duration) -> bool {
        let waits = now < at;
        if waits {
            self.wake = earlier(self.wake, at);
        }
        waits
    }

    fn decide(&mut self, env: &Env<'_>, now: Duration, actions: &mut Vec<Action>) {
        self.wake = None;
        if self.draining {
            if !self.is_busy() {
                actions.push(Action::Drained);
            }
            return;
        }
        if env.shared.lease.until.is_none() && !self.requests.is_known() {
            // The leader removes the routes. When this process leads, it looks for those that are left.
            self.removed = None;
        }
        if !env.shared.synced || !env.shared.lease.covers_write(now) {
            return;
        }
        match self.node.take() {
            None => self.remove_routes(env, actions),
            Some(node) => {
                self.decide_for(&node, env, now, actions);
                self.node = Some(node);
            }
        }
    }

    fn decide_for(&mut self, node: &CloudNode, env: &Env<'_>, now: Duration, actions: &mut Vec<Action>) {
        if !node.is_ours() {
            if self.requests.withdraw() {
                actions.push(Action::WithdrawRoutes);
            }
            return;
        }
        if node.is_deleting || self.is_deleted {
            return;
        }
        if env.controllers.route
            && let Some(want) = routes::want(node)
            && let Some((generation, want)) = self.requests.tell(want)
        {
            actions.push(Action::Route { generation, want });
        }
        self.report_missing_range(node, env, now, actions);
        if env.controllers.lifecycle {
            self.check(node, env, now, actions);
        }
        if env.controllers.node {
            self.read_addresses(node, now, actions);
        }
        let may_write = self.writing.is_none() && !self.waits(self.write_at, now);
        if let Some(patch) = self.patch(node, env, now, actions)
            && may_write
        {
            let id = self.ids.next_id();
            (self.writing, self.writes_new) = (Some(id), node.has_taint(Taint::UNINITIALIZED));
            actions.push(Action::Patch { id, uid: node.uid.clone(), version: node.version, patch });
        }
    }

    /// Reports once that the Node has no pod range although the operator expects one.
    fn report_missing_range(&mut self, node: &CloudNode, env: &Env<'_>, now: Duration, actions: &mut Vec<Action>) {
        let lacks = env.pod_ranges == PodRanges::Expected && node.pod_ranges().is_empty();
        if !lacks {
            self.lack_of_range_reported = false;
        } else if !self.lack_of_range_reported && !self.waits(self.known_since + POD_RANGE_WAIT, now) {
            self.lack_of_range_reported = true;
            actions.push(Action::Report(Reason::NoPodRange));
        }
    }

    /// Leads the routes of a deleted Node to their end.
    fn remove_routes(&mut self, env: &Env<'_>, actions: &mut Vec<Action>) {
        let Some(removed) = &self.removed else { return };
        let want = self.requests.gone().or_else(|| routes::gone(removed).filter(|_| removed.is_ours()));
        let Some(want) = want.filter(|_| env.controllers.route) else {
            self.removed = None;
            return;
        };
        if let Some((generation, want)) = self.requests.tell(want) {
            actions.push(Action::Route { generation, want });
        } else if self.requests.is_done() {
            self.requests.withdraw();
            self.removed = None;
            actions.push(Action::WithdrawRoutes);
        }
    }

    /// The next patch that the Node needs.
    fn patch(&mut self, node: &CloudNode, env: &Env<'_>, now: Duration, actions: &mut Vec<Action>) -> Option<Patch> {
        if env.controllers.node && node.has_taint(Taint::UNINITIALIZED) {
            return self.initialise(node, env, now, actions);
        }
        let taints = self.taints(node, env, now);
        if taints != node.taints {
            return Some(Patch::Taints(taints));
        }
        // Routes are led to the new addresses before the condition is reported anew.
        if env.controllers.node
            && let Some(addresses) = self.addresses(node, now, actions)
        {
            return Some(Patch::Status { addresses: Some(addresses), network: None });
        }
        if let Some(network) = self.network(node, env, now) {
            return Some(Patch::Status { addresses: None, network: Some(network) });
        }
        let machine = node.machine().filter(|_| env.controllers.node)?;
        let labels = node.labels_of_metadata(machine.id());
        (!labels.is_empty()).then_some(Patch::Labels(labels))
    }

    fn initialise(
        &mut self,
        node: &CloudNode,
        env: &Env<'_>,
        now: Duration,
        actions: &mut Vec<Action>,
    ) -> Option<Patch> {
        if self.instance.is_none() && self.reading.is_none() {
            self.instance = node.instance_of_metadata(env.scope);
        }
        let Some(instance) = &self.instance else {
            let due = self.read_at.max(self.known_since + env.metadata_wait);
            if self.reading.is_none() && !self.waits(due, now) {
                let id = self.ids.next_id();
                self.reading = Some(id);
                let lookup = node.machine().map_or_else(|| named(node), Lookup::Machine);
                actions.push(Action::Read { id, lookup });
            }
            return None;
        };
        let addresses = match instance.node_addresses(node) {
            Ok(addresses) => addresses,
            Err(why) => {
                // A machine in the making gets its address later.
                self.instance = None;
                self.read_at = now + self.reads.failed();
                self.wake = earlier(self.wake, self.read_at);
                self.report(Reason::NoAddress(why), actions);
                return None;
            }
        };
        let addresses = (addresses != node.addresses).then_some(addresses);
        let network = match node.is_network_unavailable {
            None if env.controllers.route => Some(NetworkCondition::WAITING),
            _ => None,
        };
        if addresses.is_some() || network.is_some() {
            return Some(Patch::Status { addresses, network });
        }
        let mut taints = self.taints(node, env, now);
        taints.retain(|taint| taint.key != Taint::UNINITIALIZED);
        let provider_id = node.provider_id.is_none().then(|| provider_id(&instance.id));
        let mut labels = instance.labels(env.beta_labels);
        labels.extend(node.labels_of_metadata(&instance.id));
        Some(Patch::Initialise { provider_id, labels, taints })
    }

    /// The condition NetworkUnavailable, where it is not what the route table shows.
    fn network(&mut self, node: &CloudNode, env: &Env<'_>, now: Duration) -> Option<NetworkCondition> {
        if !env.controllers.route {
            return None;
        }
        match (self.requests.routes, node.is_network_unavailable) {
            (Routes::Exist { since }, None | Some(true)) => {
                (!self.waits(since + env.route_settle, now)).then_some(NetworkCondition::CREATED)
            }
            (Routes::Missing, None | Some(false)) => Some(NetworkCondition::MISSING),
            _ => None,
        }
    }

    /// The taints that the Node is to have.
    fn taints(&self, node: &CloudNode, env: &Env<'_>, now: Duration) -> Vec<Taint> {
        let mut taints = node.taints.clone();
        if !env.controllers.lifecycle {
            return taints;
        }
        let (shutdown, out_of_service) = (Taint::shutdown(), Taint::out_of_service());
        let proved = self.proof.map(|proof| proof.what);
        if node.is_ready {
            taints.retain(|taint| !taint.is(&shutdown));
            if proved == Some(Proved::Runs) {
                taints.retain(|taint| !taint.is(&out_of_service));
            }
        } else if proved == Some(Proved::Stopped) {
            if !taints.iter().any(|taint| taint.is(&shutdown)) {
                taints.push(shutdown);
            }
            let is_there = |taint: &Taint| taint.key == out_of_service.key && taint.effect == out_of_service.effect;
            if self.may_act(now) && !taints.iter().any(is_there) {
                taints.push(out_of_service);
            }
        }
        taints
    }

    /// Whether the breaker has granted what the last proof asks for, and that proof is fresh.
    fn may_act(&self, now: Duration) -> bool {
        let (Grant::Since(since), Some(proof)) = (self.grant, self.proof) else { return false };
        proof.sent_at >= since && now.saturating_sub(proof.sent_at) <= FRESH
    }

    /// Reads the machine when that is due, asks the breaker, and deletes the Node of a machine that is gone.
    fn check(&mut self, node: &CloudNode, env: &Env<'_>, now: Duration, actions: &mut Vec<Action>) {
        let Some(machine) = node.machine() else { return };
        let has_ours = node.taints.iter().any(|taint| taint.is(&Taint::out_of_service()));
        if node.is_ready && (!has_ours || self.proof.is_some_and(|proof| proof.what == Proved::Runs)) {
            return;
        }
        let is_drastic = match self.proof.map(|proof| proof.what).filter(|_| !node.is_ready) {
            Some(Proved::Gone { first }) => {
                let proved = self.proof.is_some_and(|proof| proof.sent_at >= first + APART);
                proved && !self.waits(self.known_since + env.grace, now)
            }
            Some(Proved::Stopped) => !node.has_taint(Taint::OUT_OF_SERVICE),
            Some(Proved::Runs) | None => false,
        };
        if is_drastic && self.grant == Grant::None {
            self.grant = Grant::Asked;
            actions.push(Action::Ask);
        }
        if is_drastic && self.may_act(now) {
            self.report(if self.is_gone() { Reason::Gone } else { Reason::Stopped }, actions);
            if self.is_gone() && self.writing.is_none() && !self.waits(self.write_at, now) {
                let id = self.ids.next_id();
                self.writing = Some(id);
                actions.push(Action::Delete { id, uid: node.uid.clone() });
            }
            return;
        }
        if is_drastic && matches!(self.grant, Grant::Since(_)) {
            // The proof is too old.
            self.check_at = self.check_at.min(now);
        }
        if self.checking.is_none() && !self.waits(self.check_at, now) {
            let id = self.ids.next_id();
            self.checking = Some((id, now));
            // Until this read is answered no other is due.
            self.check_at = Duration::MAX;
            actions.push(Action::Check { id, machine: machine.id().clone() });
        }
    }

    fn is_gone(&self) -> bool {
        matches!(self.proof, Some(Proof { what: Proved::Gone { .. }, .. }))
    }
}

/// Whether kubelet has reported another boot: its VM was started anew, or another VM has its name.
fn has_booted(before: &CloudNode, after: &CloudNode) -> bool {
    before.uid == after.uid && before.boot_id.is_some() && after.boot_id.is_some() && before.boot_id != after.boot_id
}

fn named(node: &CloudNode) -> Lookup {
    Lookup::Named { name: node.name.clone(), resource_group: node.resource_group.clone() }
}
