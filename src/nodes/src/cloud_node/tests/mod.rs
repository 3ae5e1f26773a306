//! The step of a Node, case by case and on random schedules.

mod addresses;
mod existence;
mod lifecycle;
mod schedules;

use std::time::Duration;

use lazuli_engine::{Acceptance, Awaited, Id, Lease, Outcome, Refusal, Shared, Waiting};
use lazuli_model::{ArmId, InstanceView, PowerState, ProvisioningState, fault::Fault};

use super::{
    facts::{InstanceFacts, PublishedAddress, Scope},
    step::{
        Action, Checked, Controllers, Env, Event, NetworkCondition, Patch, PatchFault, PodRanges, Reason, State, step,
    },
    *,
};
use crate::routing::{Report, Want};

const VM: &str = "/subscriptions/s/resourceGroups/Group/providers/Microsoft.Compute/virtualMachines/node-1";
const PROVIDER_ID: &str =
    "azure:///subscriptions/s/resourceGroups/group/providers/Microsoft.Compute/virtualMachines/node-1";

fn s(s: u64) -> Duration {
    Duration::from_secs(s)
}

fn env() -> Env<'static> {
    Env {
        scope: Scope { subscription: "s", resource_group: "group" },
        metadata_wait: Duration::ZERO,
        route_settle: Duration::ZERO,
        shared: Shared {
            synced: true,
            lease: Lease { until: Some(Duration::MAX), least: s(5) },
            trusted_from: Duration::ZERO,
            acceptance: Acceptance::Given,
            resync: None,
        },
        controllers: Controllers { node: true, lifecycle: true, route: true },
        beta_labels: BetaLabels::Written,
        pod_ranges: PodRanges::NotExpected,
        grace: s(60),
    }
}

fn instance() -> Instance {
    let address = |private: &str| InstanceAddress { private: private.parse().unwrap(), public: None };
    Instance {
        id: VM.parse().unwrap(),
        size: "Standard_D8s_v3".to_owned(),
        location: "WestEurope".to_owned(),
        zone: Some("2".to_owned()),
        fault_domain: None,
        addresses: vec![address("fd01::5"), address("10.0.0.5")],
    }
}

fn taint(key: &str, effect: &str) -> Taint {
    Taint { key: key.to_owned(), value: String::new(), effect: effect.to_owned(), time_added: None }
}

/// A Node as kubelet registers it.
fn new_node() -> CloudNode {
    CloudNode {
        name: "node-1".to_owned(),
        uid: "u1".to_owned(),
        version: 10,
        taints: vec![taint("dedicated", "NoSchedule"), taint(Taint::UNINITIALIZED, "NoSchedule")],
        pod_ranges: vec!["10.244.1.0/24".to_owned()],
        ..CloudNode::default()
    }
}

/// A Node that was initialised.
fn old_node() -> CloudNode {
    let address = |kind: &str, address: &str| NodeAddress { kind: kind.to_owned(), address: address.to_owned() };
    CloudNode {
        provider_id: Some(PROVIDER_ID.to_owned()),
        taints: vec![taint("dedicated", "NoSchedule")],
        addresses: vec![address("Hostname", "node-1"), address("InternalIP", "10.0.0.5")],
        is_ready: true,
        is_network_unavailable: Some(false),
        ..new_node()
    }
}

/// What a patch makes of a Node.
fn patched(node: &CloudNode, patch: &Patch) -> CloudNode {
    let mut node = CloudNode { version: node.version + 1, ..node.clone() };
    match patch {
        Patch::Status { addresses, network } => {
            node.addresses = addresses.clone().unwrap_or(node.addresses);
            node.is_network_unavailable = network.map(|one| one.is_unavailable).or(node.is_network_unavailable);
        }
        Patch::Initialise { provider_id, taints, .. } => {
            node.provider_id = provider_id.clone().or(node.provider_id);
            node.taints.clone_from(taints);
        }
        Patch::Taints(taints) => node.taints.clone_from(taints),
        Patch::Labels(labels) => node.metadata_labels.extend(labels.iter().map(|(key, _)| *key)),
    }
    node
}

/// A Node, its state, and the time.
struct Rig {
    state: State,
    env: Env<'static>,
    now: Duration,
    node: CloudNode,
    actions: Vec<Action>,
}

impl Rig {
    fn start(node: CloudNode) -> Self {
        let mut rig = Self { state: State::default(), env: env(), now: s(100), node, actions: vec![] };
        rig.tell(Event::Changed(rig.node.clone()));
        rig
    }

    fn tell(&mut self, event: Event) {
        let actions = step(&mut self.state, &self.env, self.now, event);
        self.actions.extend(actions);
    }

    fn change(&mut self, change: impl FnOnce(&mut CloudNode)) {
        change(&mut self.node);
        self.node.version += 1;
        self.tell(Event::Changed(self.node.clone()));
    }

    /// Moves the time to when the state is to be woken.
    fn wake(&mut self) {
        self.now = self.state.wake_at().expect("something is due").max(self.now);
        self.tell(Event::Woke);
    }

    fn take(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.actions)
    }

    /// The id of the one action of this kind, and all that were taken.
    fn id(&mut self, of: impl Fn(&Action) -> Option<Id>) -> Option<Id> {
        self.actions.iter().find_map(of)
    }

    /// Carries out the next patch. Returns it.
    fn patch(&mut self) -> Option<Patch> {
        let at = self.actions.iter().position(|action| matches!(action, Action::Patch { .. }))?;
        let Action::Patch { id, version, patch, .. } = self.actions.remove(at) else { unreachable!() };
        assert_eq!(version, self.node.version);
        self.node = patched(&self.node, &patch);
        self.tell(Event::Patched { id, result: Ok(self.node.clone()) });
        Some(patch)
    }

    fn read(&mut self, result: Result<Instance, Fault>) {
        let id = self.id(|action| if let Action::Read { id, .. } = action { Some(*id) } else { None });
        let id = id.expect("the machine is read");
        self.actions.retain(|action| !matches!(action, Action::Read { .. }));
        self.tell(Event::Read { id, result });
    }
}

#[test]
fn an_initialised_node_is_reported_also_when_its_watch_shows_it_before_the_answer() {
    let mut rig = Rig::start(new_node());
    rig.read(Ok(instance()));
    rig.patch().expect("its status");
    let at = rig.actions.iter().position(|action| matches!(action, Action::Patch { .. })).expect("the Node");
    let Action::Patch { id, patch, .. } = rig.actions.remove(at) else { unreachable!() };
    rig.node = patched(&rig.node, &patch);
    rig.tell(Event::Changed(rig.node.clone()));
    assert!(!rig.actions.contains(&Action::Report(Reason::Initialised)));
    rig.tell(Event::Patched { id, result: Ok(rig.node.clone()) });
    assert!(rig.take().contains(&Action::Report(Reason::Initialised)));
}

#[test]
fn a_new_node_is_told_of_its_machine_by_two_writes_and_unavailable_until_its_route_exists() {
    let mut rig = Rig::start(new_node());
    rig.read(Ok(instance()));
    let first = rig.patch().expect("its status");
    let Patch::Status { addresses: Some(addresses), network: Some(network) } = first else { panic!("{first:?}") };
    let texts: Vec<String> = addresses.iter().map(|one| format!("{} {}", one.kind, one.address)).collect();
    assert_eq!(texts, ["Hostname node-1", "InternalIP 10.0.0.5", "InternalIP fd01::5"]);
    assert_eq!((network.is_unavailable, network.reason), (true, "NodeInitialization"));
    let second = rig.patch().expect("the Node");
    let Patch::Initialise { provider_id, labels, taints } = second else { panic!("{second:?}") };
    assert_eq!(provider_id.as_deref(), Some(PROVIDER_ID));
    assert_eq!(taints, [taint("dedicated", "NoSchedule")]);
    let labels: Vec<String> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    assert_eq!(
        labels,
        [
            "node.kubernetes.io/instance-type=Standard_D8s_v3",
            "beta.kubernetes.io/instance-type=Standard_D8s_v3",
            "topology.kubernetes.io/region=westeurope",
            "failure-domain.beta.kubernetes.io/region=westeurope",
            "topology.kubernetes.io/zone=westeurope-2",
            "failure-domain.beta.kubernetes.io/zone=westeurope-2",
        ]
    );
    assert_eq!(rig.patch(), None, "two writes");
    let wants: Vec<&Action> = rig.actions.iter().filter(|action| matches!(action, Action::Route { .. })).collect();
    let [Action::Route { generation, want: Want::Present(ranges) }] = wants[..] else { panic!("{wants:?}") };
    assert_eq!(ranges[0].next_hop, Some("10.0.0.5".parse().unwrap()));
    let generation = *generation;
    assert!(rig.take().contains(&Action::Report(Reason::Initialised)));

    rig.tell(Event::Routed { generation, outcome: Outcome::Waiting(Waiting::Write) });
    assert_eq!(rig.patch(), None, "it says so already");
    rig.tell(Event::Routed {
        generation,
        outcome: Outcome::Done(Report { is_associated: true, is_provisioned: true, objection: None }),
    });
    let third = rig.patch();
    let created =
        NetworkCondition { is_unavailable: false, reason: "RouteCreated", message: "RouteController created a route" };
    assert_eq!(third, Some(Patch::Status { addresses: None, network: Some(created) }));
}

#[test]
fn a_node_says_what_it_waits_for_at_each_step() {
    let mut rig = Rig {
        state: State::default(),
        env: Env { metadata_wait: s(5), ..env() },
        now: s(100),
        node: new_node(),
        actions: vec![],
    };
    let waits = |rig: &Rig| rig.state.awaited(&rig.env, rig.now);
    assert_eq!(waits(&rig), Awaited::Nothing, "it is not known");
    rig.env.shared.lease.until = None;
    rig.tell(Event::Changed(rig.node.clone()));
    assert_eq!(waits(&rig), Awaited::Lease);
    rig.env.shared.lease.until = Some(Duration::MAX);
    rig.tell(Event::Woke);
    assert_eq!(waits(&rig), Awaited::Metadata);
    rig.wake();
    assert_eq!(waits(&rig), Awaited::Machine);
    rig.read(Err(Fault::Unavailable));
    assert_eq!(waits(&rig), Awaited::Pause);
    rig.wake();
    rig.read(Ok(instance()));
    assert_eq!(waits(&rig), Awaited::Patch);
    rig.patch().expect("its status");
    rig.patch().expect("the Node");
    let route = rig.actions.iter().find_map(|action| match action {
        Action::Route { generation, .. } => Some(*generation),
        _ => None,
    });
    rig.change(|node| node.is_ready = true);
    assert_eq!(waits(&rig), Awaited::Routes);
    let generation = route.expect("it asks for its route");
    let report = Report { is_associated: true, is_provisioned: true, objection: None };
    rig.tell(Event::Routed { generation, outcome: Outcome::Done(report) });
    rig.patch().expect("its condition");
    assert_eq!(waits(&rig), Awaited::Nothing);
    rig.change(|node| node.is_ready = false);
    assert_eq!(waits(&rig), Awaited::Machine, "it is read whether it runs");
    rig.tell(Event::Drain);
    assert_eq!(waits(&rig), Awaited::Machine);
}

#[test]
fn what_the_plugin_tells_of_the_machine_becomes_labels_at_once_or_when_it_comes() {
    let facts = |id: &str| {
        Some(InstanceFacts {
            resource_id: id.to_owned(),
            vm_size: "Standard_D8s_v3".to_owned(),
            sub_fault_domain: Some("4".to_owned()),
            ..InstanceFacts::default()
        })
    };
    let label = (labels::SUB_FAULT_DOMAIN, "4".to_owned());
    let mut rig = Rig::start(CloudNode { facts: facts(VM), ..new_node() });
    rig.read(Ok(instance()));
    rig.patch().expect("its status");
    let Some(Patch::Initialise { labels, .. }) = rig.patch() else { panic!() };
    assert!(labels.contains(&label));

    // Later, and of its own machine alone.
    let mut rig = Rig::start(old_node());
    rig.change(|node| node.facts = facts("/subscriptions/s/resourceGroups/g/providers/a/b/other"));
    assert_eq!(rig.patch(), None);
    rig.change(|node| node.facts = facts(VM));
    assert_eq!(rig.patch(), Some(Patch::Labels(vec![label])));
    assert_eq!(rig.patch(), None, "once");
}

/// What the plugin of node-1 publishes.
fn published() -> InstanceFacts {
    InstanceFacts {
        resource_id: VM.to_owned(),
        vm_size: "Standard_D8s_v3".to_owned(),
        location: Some("westeurope".to_owned()),
        zone: Some("2".to_owned()),
        addresses: vec![PublishedAddress { private: "10.0.0.5".parse().unwrap(), public: None }],
        boot_id: Some("boot".to_owned()),
        ..InstanceFacts::default()
    }
}

fn has_read(actions: &[Action]) -> bool {
    actions.iter().any(|action| matches!(action, Action::Read { .. }))
}

#[test]
fn a_new_node_whose_plugin_has_published_everything_is_initialised_without_a_read() {
    let node = CloudNode { boot_id: Some("boot".to_owned()), ..new_node() };
    let mut rig = Rig::start(CloudNode { facts: Some(published()), ..node.clone() });
    assert!(!has_read(&rig.actions));
    assert!(rig.patch().is_some() && rig.patch().is_some());
    assert_eq!(rig.node.provider_id.as_deref(), Some(PROVIDER_ID));
    assert!(!has_read(&rig.take()));

    // A Node waits for it, and not longer than it may.
    let waits = || {
        let env = Env { metadata_wait: s(10), ..env() };
        let mut rig = Rig { state: State::default(), env, now: s(100), node: node.clone(), actions: vec![] };
        rig.change(|node| node.facts = Some(InstanceFacts { resource_id: "/x".to_owned(), ..published() }));
        assert!(!has_read(&rig.actions), "what is of another machine says nothing");
        rig
    };
    let mut rig = waits();
    rig.wake();
    assert!(has_read(&rig.actions) && rig.now == s(110), "{:?}", rig.now);
    let mut rig = waits();
    rig.change(|node| node.facts = Some(published()));
    assert!(rig.patch().is_some() && !has_read(&rig.actions));
}

#[test]
fn a_node_has_the_first_address_of_each_family_and_another_where_kubelet_was_given_it() {
    let address = |private: &str| InstanceAddress { private: private.parse().unwrap(), public: None };
    let all = ["10.0.0.5", "10.0.0.6", "fd01::5", "fd01::6"].map(address);
    let instance = Instance { addresses: all.into(), ..instance() };
    let texts = |node: &CloudNode| -> Vec<String> {
        instance.node_addresses(node).unwrap().into_iter().map(|one| one.address).collect()
    };
    assert_eq!(texts(&new_node()), ["node-1", "10.0.0.5", "fd01::5"]);
    let told = CloudNode { provided_addresses: vec!["10.0.0.6".parse().unwrap()], ..new_node() };
    assert_eq!(texts(&told), ["node-1", "10.0.0.6"]);
}

#[test]
fn a_route_counts_when_it_has_had_its_time_to_work() {
    let mut rig = Rig::start(CloudNode { is_network_unavailable: Some(true), ..old_node() });
    rig.env.route_settle = s(30);
    let Action::Route { generation, .. } = rig.take()[0] else { panic!() };
    let done = || Outcome::Done(Report { is_associated: true, is_provisioned: true, objection: None });
    rig.tell(Event::Routed { generation, outcome: done() });
    rig.now += s(20);
    rig.tell(Event::Routed { generation, outcome: done() });
    assert_eq!(rig.patch(), None);
    rig.wake();
    assert_eq!(rig.now, s(130), "since it was seen first");
    assert!(matches!(rig.patch(), Some(Patch::Status { network: Some(created), .. }) if !created.is_unavailable));
}

#[test]
fn a_route_that_stays_though_it_would_not_be_added_is_reported() {
    let why = "lies outside of --cluster-cidr";
    for objection in [None, Some(why)] {
        let mut rig = Rig::start(old_node());
        let Action::Route { generation, .. } = rig.take()[0] else { panic!() };
        let report = Report { is_associated: true, is_provisioned: true, objection };
        rig.tell(Event::Routed { generation, outcome: Outcome::Done(report) });
        let reported: Vec<Action> =
            rig.take().into_iter().filter(|action| matches!(action, Action::Report(_))).collect();
        let expected: Vec<Action> = objection.map(|why| Action::Report(Reason::RouteKept(why))).into_iter().collect();
        assert_eq!(reported, expected);
    }
}

#[test]
fn the_machine_of_a_new_node_that_is_not_ready_yet_is_not_read_for_a_minute() {
    let checks = |rig: &Rig| rig.actions.iter().any(|action| matches!(action, Action::Check { .. }));
    let mut rig = Rig::start(new_node());
    rig.read(Ok(instance()));
    assert!(rig.patch().is_some() && rig.patch().is_some() && !checks(&rig));
    rig.wake();
    assert!(checks(&rig) && rig.now == s(160), "{:?}", rig.now);
    // A process that comes later knows nothing of its machine.
    assert!(checks(&Rig::start(CloudNode { is_ready: false, ..old_node() })));
}

#[test]
fn nothing_is_written_of_a_node_as_the_go_manager_left_it() {
    let mut rig = Rig::start(old_node());
    let actions = rig.take();
    let [Action::Route { generation, .. }] = actions[..] else { panic!("{actions:?}") };
    rig.tell(Event::Routed {
        generation,
        outcome: Outcome::Done(Report { is_associated: true, is_provisioned: true, objection: None }),
    });
    rig.now += s(3_600);
    rig.tell(Event::Woke);
    assert_eq!(rig.take(), []);
}

#[test]
fn an_unreadable_table_changes_nothing_and_a_proven_absence_does() {
    let mut rig = Rig::start(old_node());
    let Action::Route { generation, .. } = rig.take()[0] else { panic!() };
    for outcome in [
        Outcome::Waiting(Waiting::Retry(Fault::Forbidden)),
        Outcome::Waiting(Waiting::OtherOperation),
        Outcome::Waiting(Waiting::FreshReads),
    ] {
        rig.tell(Event::Routed { generation, outcome });
        assert_eq!(rig.take(), []);
    }
    rig.tell(Event::Routed { generation: generation + 1, outcome: Outcome::Waiting(Waiting::Write) });
    assert_eq!(rig.take(), [], "not of this want");
    rig.tell(Event::Routed { generation, outcome: Outcome::Refused(Refusal::Azure(Fault::Invalid)) });
    assert!(matches!(rig.patch(), Some(Patch::Status { network: Some(missing), .. }) if missing.is_unavailable));
}

#[test]
fn what_is_not_ours_is_never_touched() {
    for foreign in [
        CloudNode { is_unmanaged: true, ..new_node() },
        CloudNode { provider_id: Some("aws:///eu/i-1".to_owned()), ..new_node() },
        CloudNode { is_unmanaged: true, is_ready: false, ..old_node() },
        CloudNode { provider_id: Some("metal://x".to_owned()), is_ready: false, ..old_node() },
    ] {
        let mut rig = Rig::start(foreign);
        rig.now += s(600);
        rig.tell(Event::Woke);
        assert_eq!(rig.take(), []);
        rig.tell(Event::Removed);
        assert_eq!(rig.take(), []);
        assert!(rig.state.is_idle());
    }
}

#[test]
fn a_machine_that_is_missing_or_has_no_address_yet_is_read_again_and_the_taint_stays() {
    let mut rig = Rig::start(new_node());
    rig.read(Err(Fault::NotFound));
    assert_eq!(rig.take(), [Action::Report(Reason::NoMachine)]);
    rig.wake();
    rig.read(Ok(Instance { addresses: vec![], ..instance() }));
    assert!(matches!(&rig.take()[..], [Action::Report(Reason::NoAddress(why))] if why.contains("node-1")));
    rig.wake();
    rig.read(Ok(instance()));
    assert!(rig.patch().is_some() && rig.patch().is_some());
    assert!(!rig.node.has_taint(Taint::UNINITIALIZED));
}

#[test]
fn an_address_that_kubelet_was_told_must_be_the_machines_and_is_the_only_one_of_its_type() {
    let told = |address: &str| CloudNode { provided_addresses: vec![address.parse().unwrap()], ..new_node() };
    let why = instance().node_addresses(&told("10.0.0.9")).unwrap_err();
    assert!(why.contains("10.0.0.9"), "{why}");
    let only = instance().node_addresses(&told("fd01::5")).unwrap();
    let texts: Vec<&str> = only.iter().map(|one| one.address.as_str()).collect();
    assert_eq!(texts, ["node-1", "fd01::5"]);
    let public = Some("20.0.0.1".parse().unwrap());
    let instance =
        Instance { addresses: vec![InstanceAddress { private: "10.0.0.5".parse().unwrap(), public }], ..instance() };
    let both = instance.node_addresses(&told("10.0.0.5")).unwrap();
    let kinds: Vec<&str> = both.iter().map(|one| one.kind.as_str()).collect();
    assert_eq!(kinds, ["Hostname", "InternalIP", "ExternalIP"]);
}

#[test]
fn texts_are_those_of_the_go_manager() {
    let id: ArmId = "/subscriptions/S/resourceGroups/MC_Group/providers/Microsoft.Compute/virtualMachineScaleSets/Set/virtualMachines/3"
        .parse()
        .unwrap();
    assert_eq!(
        provider_id(&id),
        "azure:///subscriptions/S/resourceGroups/mc_group/providers/Microsoft.Compute/virtualMachineScaleSets/Set/virtualMachines/3"
    );
    let zone = |zone: Option<&str>, fault_domain| {
        Instance { zone: zone.map(str::to_owned), fault_domain, ..instance() }.zone_label()
    };
    assert_eq!(
        (zone(Some("3"), None), zone(None, Some(1)), zone(None, None)),
        ("westeurope-3".into(), "1".into(), "0".into())
    );
}

#[test]
fn a_patch_that_meets_another_writer_is_planned_again_from_the_newer_state() {
    let mut rig = Rig::start(new_node());
    rig.read(Ok(instance()));
    rig.patch().expect("its status");
    let Some(Action::Patch { id, .. }) = rig.take().pop() else { panic!() };
    rig.tell(Event::Patched { id, result: Err(PatchFault::Changed) });
    rig.change(|node| node.taints.push(taint("new", "NoExecute")));
    rig.wake();
    let Some(Patch::Initialise { taints, .. }) = rig.patch() else { panic!() };
    assert_eq!(taints.len(), 2);
}

#[test]
fn nothing_happens_without_lease_or_before_the_informers_are_synced() {
    for break_it in [|env: &mut Env<'_>| env.shared.synced = false, |env: &mut Env<'_>| env.shared.lease.until = None] {
        let mut rig = Rig { state: State::default(), env: env(), now: s(1), node: new_node(), actions: vec![] };
        break_it(&mut rig.env);
        rig.tell(Event::Changed(new_node()));
        rig.tell(Event::Woke);
        assert_eq!(rig.take(), []);
        rig.env = env();
        rig.tell(Event::Woke);
        assert!(matches!(rig.take()[..], [Action::Read { .. }]));
    }
}

#[test]
fn a_route_goes_with_its_node_and_a_new_node_of_the_name_takes_its_place() {
    let mut rig = Rig::start(old_node());
    rig.take();
    rig.tell(Event::Removed);
    let actions = rig.take();
    let [Action::Route { generation, want: Want::Gone(ranges) }] = &actions[..] else { panic!("{actions:?}") };
    assert_eq!(ranges.len(), 1);
    assert!(!rig.state.is_idle());
    let generation = *generation;
    rig.tell(Event::Routed {
        generation,
        outcome: Outcome::Done(Report { is_associated: true, is_provisioned: true, objection: None }),
    });
    assert_eq!(rig.take(), [Action::WithdrawRoutes]);
    assert!(rig.state.is_idle());

    let mut rig = Rig::start(old_node());
    rig.tell(Event::Removed);
    rig.take();
    rig.tell(Event::Changed(CloudNode {
        uid: "u2".to_owned(),
        pod_ranges: vec!["10.244.7.0/24".to_owned()],
        ..old_node()
    }));
    let actions = rig.take();
    let [Action::Route { want: Want::Present(ranges), .. }] = &actions[..] else { panic!("{actions:?}") };
    assert_eq!(ranges[0].text, "10.244.7.0/24");

    // With the same range: what the table has said of the Node before says nothing of this one.
    let mut rig = Rig::start(old_node());
    let Action::Route { generation, .. } = rig.take()[0] else { panic!() };
    rig.tell(Event::Routed {
        generation,
        outcome: Outcome::Done(Report { is_associated: true, is_provisioned: true, objection: None }),
    });
    rig.change(|node| (node.uid, node.is_network_unavailable) = ("u2".to_owned(), Some(true)));
    assert_eq!(rig.patch(), None);
    assert!(matches!(rig.take()[..], [Action::Route { generation: again, .. }] if again > generation));
}

#[test]
fn a_process_that_does_not_lead_keeps_nothing_of_a_removed_node() {
    let mut rig = Rig { state: State::default(), env: env(), now: s(1), node: old_node(), actions: vec![] };
    rig.env.shared.lease.until = None;
    rig.tell(Event::Changed(old_node()));
    assert!(!rig.state.is_idle());
    rig.tell(Event::Removed);
    assert!(rig.state.is_idle());
    assert_eq!(rig.take(), []);
}

#[test]
fn the_labels_of_before_1_17_are_left_out_where_the_operator_says_so() {
    let env = Env { beta_labels: BetaLabels::LeftOut, ..env() };
    let node = new_node();
    let mut rig = Rig { state: State::default(), env, now: s(100), node: node.clone(), actions: vec![] };
    rig.tell(Event::Changed(node));
    rig.read(Ok(instance()));
    rig.patch().expect("its status");
    let Some(Patch::Initialise { labels, .. }) = rig.patch() else { panic!() };
    let keys: Vec<&str> = labels.iter().map(|(key, _)| *key).collect();
    assert_eq!(keys, [labels::INSTANCE_TYPE, labels::REGION, labels::ZONE]);
}

#[test]
fn a_node_that_is_without_an_expected_pod_range_for_a_minute_is_reported_once() {
    let missing = |actions: &[Action]| actions.contains(&Action::Report(Reason::NoPodRange));
    let bare = || CloudNode { pod_ranges: vec![], ..old_node() };
    let start = |pod_ranges| {
        let env = Env { pod_ranges, ..env() };
        let mut rig = Rig { state: State::default(), env, now: s(100), node: bare(), actions: vec![] };
        rig.tell(Event::Changed(bare()));
        rig
    };
    let mut rig = start(PodRanges::NotExpected);
    rig.now = s(300);
    rig.tell(Event::Woke);
    assert!(!missing(&rig.take()), "a network plugin may need none");

    let mut rig = start(PodRanges::Expected);
    assert!(!missing(&rig.take()), "it may come yet");
    rig.wake();
    assert_eq!(rig.now, s(160));
    assert!(missing(&rig.take()));
    rig.change(|_| {});
    assert!(!missing(&rig.take()), "once");
    rig.change(|node| node.pod_ranges = vec!["10.244.1.0/24".to_owned()]);
    rig.change(|node| node.pod_ranges = vec![]);
    assert!(missing(&rig.take()), "it is gone again");

    let mut rig = start(PodRanges::Expected);
    rig.change(|node| node.pod_ranges = vec!["10.244.1.0/24".to_owned()]);
    rig.now = s(300);
    rig.tell(Event::Woke);
    assert!(!missing(&rig.take()), "it has come");
}
