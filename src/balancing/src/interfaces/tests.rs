//! Which NIC belongs to which pool, and how many leave at a time.

use lazuli_model::ServiceKey;
use lazuli_services::{
    ask::names::BaseName,
    network::{backends::Exclusion, load_balancer::Gone, security_group::SecurityGroup, settings::PoolKind},
    service::fixtures::settings,
};
use serde_json::json;

use super::*;
use crate::balancers::{Balancers, Leaving};

const GROUP: &str = "/subscriptions/sub/resourceGroups/group/providers";

fn vm(at: usize) -> ArmId {
    format!("{GROUP}/Microsoft.Compute/virtualMachines/node-{at}").parse().unwrap()
}

fn nic_id(at: usize) -> ArmId {
    format!("{GROUP}/Microsoft.Network/networkInterfaces/node-{at}-nic").parse().unwrap()
}

struct World {
    settings: Settings,
    nodes: BackendNodes,
    machines: Machines,
    balancers: Balancers,
    leaving: Leaving,
    admitted: AdmittedNodes,
}

impl World {
    /// So many Nodes, and a load balancer with a frontend of a Service and the pool of all Nodes.
    fn new(nodes: usize) -> Self {
        let settings = Settings { pool_kind: PoolKind::Nic, ..settings() };
        let node = |at: usize| BackendNode {
            provider_id: Some(format!("azure://{}", vm(at))),
            addresses: vec![IpAddr::from([10, 0, 1, u8::try_from(at).unwrap()])],
            ..BackendNode::default()
        };
        let nodes_by_name = (0..nodes).map(|at| (format!("node-{at}"), node(at))).collect();
        let mut world = Self {
            settings,
            nodes: nodes_by_name,
            machines: Machines::default(),
            balancers: Balancers::default(),
            leaving: Leaving::new(),
            admitted: AdmittedNodes::default(),
        };
        (0..nodes).for_each(|at| world.show(at, &[]));
        world.show_balancer(json!([]));
        world
    }

    /// A read shows the load balancer with these rules.
    fn show_balancer(&mut self, rules: Value) {
        let id = self.balancer();
        let body = json!({"sku": {"name": "Standard"}, "properties": {
            "frontendIPConfigurations": [{"name": self.base().as_str(), "properties": {"privateIPAddress": "10.240.1.2"}}],
            "loadBalancingRules": rules,
            "backendAddressPools": [{"name": self.settings.pool_name(Family::V4)}]}});
        let actual = LoadBalancer::read(&id, &body).unwrap();
        self.balancers.observed(&id, Some(&actual), &self.settings);
    }

    /// A read shows the security group with a rule that admits to these machines.
    fn show_group(&mut self, admitted: std::ops::Range<usize>) {
        let id: ArmId = format!("{GROUP}/Microsoft.Network/networkSecurityGroups/group").parse().unwrap();
        let destinations: Vec<String> = admitted.map(|at| format!("10.0.1.{at}")).collect();
        let rule = json!({"name": "k8s-azure-lb_allow_IPv4_0123456789abcdef0123456789abcdef", "properties": {
            "priority": 500, "access": "Allow", "direction": "Inbound", "protocol": "Tcp",
            "sourceAddressPrefix": "Internet", "sourcePortRange": "*", "destinationAddressPrefixes": destinations,
            "destinationPortRanges": ["30080"]}});
        let group = SecurityGroup::read(&id, &json!({"properties": {"securityRules": [rule]}})).unwrap();
        self.admitted.observed(Some(&group));
    }

    /// These Services leave the load balancer and give up these private addresses.
    fn leave(&mut self, bases: &[BaseName], addresses: &[IpAddr]) {
        let gone = |base: &BaseName| Gone::Everything {
            base: base.clone(),
            pools: vec![],
            public_ips: BTreeSet::new(),
            addresses: addresses.iter().copied().collect(),
        };
        let all = bases.iter().map(|base| (base.as_str().to_lowercase(), gone(base))).collect();
        self.leaving = [(self.balancer(), all)].into();
    }

    fn base(&self) -> BaseName {
        BaseName::of(&ServiceKey::new("shop", "web", "0b7c6a52-3c1e-4d3a-9a53-0a6b9a0c2f11"))
    }

    fn balancer(&self) -> ArmId {
        self.settings.load_balancer_id(&self.settings.cluster_name).unwrap()
    }

    fn pool(&self) -> ArmId {
        LoadBalancer::pool_id(&self.balancer(), &self.settings.pool_name(Family::V4))
    }

    /// A read shows the NIC of a machine in these pools.
    fn show(&mut self, at: usize, pools: &[ArmId]) {
        let pools: Vec<_> = pools.iter().map(|pool| json!({"id": pool.as_str()})).collect();
        let body = json!({"properties": {"primary": true, "virtualMachine": {"id": vm(at).as_str()},
            "ipConfigurations": [{"name": "one", "properties": {"primary": true, "loadBalancerBackendAddressPools": pools}}]}});
        self.machines.observed(&nic_id(at), Some(&Nic::read(&nic_id(at), &body).unwrap()));
    }

    fn pools(&self) -> Vec<PoolOfNics> {
        self.balancers.nic_pools(&self.settings, &self.leaving)
    }

    /// What the NICs are told, as those that join and those that leave.
    fn changes(&self) -> (Vec<ArmId>, Vec<ArmId>) {
        let selection = Selection { resource_group: "group", leaves_out_control_plane: true };
        let wants = memberships(&self.settings, &self.nodes, &selection, &self.machines, &self.admitted, &self.pools());
        let (mut joins, mut leaves) = (vec![], vec![]);
        for (id, want) in wants {
            for edit in nic::plan(self.machines.nic(&id).unwrap(), &want).edits {
                match edit {
                    nic::Edit::Join { .. } => joins.push(id.clone()),
                    nic::Edit::Leave { .. } => leaves.push(id.clone()),
                }
            }
        }
        (joins, leaves)
    }
}

#[test]
fn the_nics_of_backends_join_and_those_of_excluded_nodes_and_of_none_leave() {
    let mut world = World::new(3);
    assert_eq!(world.changes(), ((0..3).map(nic_id).collect(), vec![]));
    let pool = world.pool();
    (0..4).for_each(|at| world.show(at, std::slice::from_ref(&pool)));
    assert_eq!(world.changes(), (vec![], vec![nic_id(3)]), "no Node has the machine of the fourth");
    world.nodes.get_mut("node-1").unwrap().exclusion = Some(Exclusion::Label);
    assert_eq!(world.changes(), (vec![], vec![nic_id(1), nic_id(3)]));
    // Without a read that shows the pool nothing is joined.
    let id = world.balancer();
    world.balancers.observed(&id, None, &world.settings);
    assert_eq!(world.changes(), (vec![], vec![]));
}

#[test]
fn a_wrong_list_of_nodes_empties_no_pool_at_once_and_never_wholly() {
    let mut world = World::new(30);
    let pool = world.pool();
    (0..30).for_each(|at| world.show(at, std::slice::from_ref(&pool)));
    let all = std::mem::take(&mut world.nodes);
    assert_eq!(world.changes(), (vec![], vec![]), "a list without a Node moves nothing");
    world.nodes = all.into_iter().filter(|(name, _)| name == "node-0").collect();
    let mut left = 0;
    loop {
        let (joins, leaves) = world.changes();
        assert!(joins.is_empty() && leaves.len() <= 10);
        if leaves.is_empty() {
            break;
        }
        left += leaves.len();
        for id in leaves {
            let at = (0..30).find(|at| nic_id(*at) == id).unwrap();
            world.show(at, &[]);
        }
    }
    assert_eq!(left, 29, "the member that is a Node stays");
}

#[test]
fn all_leave_a_load_balancer_whose_last_service_goes() {
    let mut world = World::new(20);
    let pool = world.pool();
    (0..20).for_each(|at| world.show(at, std::slice::from_ref(&pool)));
    assert_eq!(world.changes(), (vec![], vec![]));
    world.leave(&[world.base()], &[]);
    assert_eq!(world.changes().1.len(), 20);
}

#[test]
fn the_members_that_leave_with_the_last_service_are_those_that_the_load_balancer_lists() {
    let mut world = World::new(0);
    let in_another_group =
        "/subscriptions/sub/resourceGroups/other/providers/Microsoft.Network/networkInterfaces/one".parse().unwrap();
    let configuration = |nic: &ArmId| json!({"id": format!("{nic}/ipConfigurations/one")});
    let instance: ArmId = format!("{}/networkInterfaces/nic", instance_id(0)).parse().unwrap();
    let pool = json!({"name": world.settings.pool_name(Family::V4), "properties": {"backendIPConfigurations":
        [configuration(&nic_id(0)), configuration(&in_another_group), configuration(&instance)]}});
    let body = json!({"sku": {"name": "Standard"}, "properties": {
        "frontendIPConfigurations": [{"name": world.base().as_str(), "properties": {"privateIPAddress": "10.240.1.2"}}],
        "backendAddressPools": [pool]}});
    let actual = LoadBalancer::read(&world.balancer(), &body).unwrap();
    world.balancers.observed(&world.balancer(), Some(&actual), &world.settings);
    let unknown = |world: &World, looked: &Unknown| world.machines.unknown_members(&world.pools(), looked);
    assert_eq!(unknown(&world, &Unknown::default()), Unknown::default(), "a Service is served there");

    world.leave(&[world.base()], &[]);
    let members = Unknown {
        nics: [nic_id(0), in_another_group.clone()].into(),
        scale_sets: [set_id()].into(),
        ..Unknown::default()
    };
    assert_eq!(unknown(&world, &Unknown::default()), members);
    assert_eq!(unknown(&world, &members), Unknown::default(), "once in a look");
    world.show(0, &[world.pool()]);
    let first = Unknown { nics: [in_another_group].into(), scale_sets: [set_id()].into(), ..Unknown::default() };
    assert_eq!(unknown(&world, &Unknown::default()), first);
    assert_eq!(world.changes(), (vec![], vec![nic_id(0)]), "a NIC of no Node leaves");
}

#[test]
fn without_a_node_no_member_leaves_a_pool_that_is_in_use() {
    let mut world = World::new(0);
    let pool = world.pool();
    (0..3).for_each(|at| world.show(at, std::slice::from_ref(&pool)));
    assert_eq!(world.changes(), (vec![], vec![]));
}

#[test]
fn of_a_basic_load_balancer_only_its_availability_set_is_a_member() {
    let mut world = World::new(2);
    world.settings.sku = LoadBalancerSku::Basic;
    world.settings.primary_vm_set = "first".to_owned();
    let in_set = |set: &str| json!({"properties": {"availabilitySet": {"id": format!("{GROUP}/Microsoft.Compute/availabilitySets/{set}")}}});
    world.machines.machine_observed(vm(0), &in_set("FIRST"));
    world.machines.machine_observed(vm(1), &in_set("second"));
    assert_eq!(world.changes(), (vec![nic_id(0)], vec![]));
    assert_eq!(world.machines.sets(world.nodes.values()), ["FIRST", "second"]);
}

#[test]
fn a_nic_that_is_as_it_should_be_is_not_told() {
    let mut world = World::new(1);
    let selection = Selection { resource_group: "group", leaves_out_control_plane: true };
    let want = |world: &World| {
        let all =
            memberships(&world.settings, &world.nodes, &selection, &world.machines, &world.admitted, &world.pools());
        all.into_values().next().unwrap()
    };
    let nic = |world: &World| world.machines.nic(&nic_id(0)).cloned();
    assert!(is_news(None, &want(&world), nic(&world).as_ref()));
    assert!(!is_news(Some(&want(&world)), &want(&world), nic(&world).as_ref()), "it was told");
    let pool = world.pool();
    world.show(0, &[pool]);
    assert!(!is_news(None, &want(&world), nic(&world).as_ref()));
}

const SETS: &str = "/subscriptions/sub/resourceGroups/group/providers/Microsoft.Compute/virtualMachineScaleSets";

fn set_id() -> ArmId {
    format!("{SETS}/agents").parse().unwrap()
}

fn instance_id(at: usize) -> ArmId {
    format!("{SETS}/agents/virtualMachines/{at}").parse().unwrap()
}

impl World {
    /// So many Nodes that are instances of a scale set, as reads show them.
    fn of_set(nodes: usize) -> Self {
        let mut world = Self::new(0);
        for at in 0..nodes {
            let provider_id = Some(format!("azure://{}", instance_id(at)));
            world.nodes.insert(format!("agents00000{at}"), BackendNode { provider_id, ..BackendNode::default() });
            world.show_held(&instance_id(at), &[]);
        }
        world.show_held(&set_id(), &[]);
        world
    }

    /// A read shows the NIC of an instance or of the model in these pools.
    fn show_held(&mut self, id: &ArmId, pools: &[ArmId]) {
        let pools: Vec<_> = pools.iter().map(|pool| json!({"id": pool.as_str()})).collect();
        let nics = json!([{"name": "nic", "properties": {"primary": true, "ipConfigurations": [
            {"name": "one", "properties": {"primary": true, "loadBalancerBackendAddressPools": pools}}]}}]);
        let body = json!({"properties": {
            "networkProfileConfiguration": {"networkInterfaceConfigurations": nics},
            "virtualMachineProfile": {"networkProfile": {"networkInterfaceConfigurations": nics}}}});
        self.machines.observed(id, Some(&Nic::read(id, &body).unwrap()));
    }
}

#[test]
fn instances_and_their_model_join_together_and_the_model_leaves_first() {
    let mut world = World::of_set(2);
    assert_eq!(world.changes(), (vec![set_id(), instance_id(0), instance_id(1)], vec![]));
    let pool = world.pool();
    let all = [set_id(), instance_id(0), instance_id(1)];
    all.iter().for_each(|id| world.show_held(id, std::slice::from_ref(&pool)));
    assert_eq!(world.changes(), (vec![], vec![]));
    assert!(world.machines.is_in_model(&pool));

    world.leave(&[world.base()], &[]);
    assert_eq!(world.changes(), (vec![], vec![set_id()]), "an instance made now would join again");
    world.show_held(&set_id(), &[]);
    assert_eq!(world.changes(), (vec![], vec![instance_id(0), instance_id(1)]));
    assert!(!world.machines.is_in_model(&pool));
}

#[test]
fn a_new_instance_that_its_model_has_put_into_the_pool_needs_no_write() {
    let mut world = World::of_set(3);
    let pool = world.pool();
    [set_id(), instance_id(0), instance_id(1), instance_id(2)]
        .iter()
        .for_each(|id| world.show_held(id, std::slice::from_ref(&pool)));
    assert_eq!(world.changes(), (vec![], vec![]));
}

#[test]
fn an_excluded_node_leaves_at_once_and_its_set_with_the_last() {
    let mut world = World::of_set(2);
    let pool = world.pool();
    [set_id(), instance_id(0), instance_id(1)].iter().for_each(|id| world.show_held(id, std::slice::from_ref(&pool)));
    world.nodes.values_mut().next().unwrap().exclusion = Some(Exclusion::Label);
    assert_eq!(world.changes(), (vec![], vec![instance_id(0)]), "the other one keeps the model where it is");
    world.nodes.values_mut().for_each(|node| node.exclusion = Some(Exclusion::Label));
    assert_eq!(world.changes().1, [set_id()]);
}

#[test]
fn a_set_that_is_scaled_to_none_stays_while_a_service_is_served() {
    let mut world = World::of_set(0);
    let pool = world.pool();
    world.show_held(&set_id(), std::slice::from_ref(&pool));
    assert_eq!(world.changes(), (vec![], vec![]));
    world.leave(&[world.base()], &[]);
    assert_eq!(world.changes(), (vec![], vec![set_id()]));
}

#[test]
fn a_set_of_others_is_not_touched() {
    let mut world = World::of_set(0);
    let theirs = LoadBalancer::pool_id(&world.settings.load_balancer_id("theirs").unwrap(), "x");
    world.show_held(&set_id(), std::slice::from_ref(&theirs));
    let selection = Selection { resource_group: "group", leaves_out_control_plane: true };
    let wants =
        memberships(&world.settings, &world.nodes, &selection, &world.machines, &world.admitted, &world.pools());
    assert!(wants.is_empty());
}

#[test]
fn a_model_is_held_while_a_write_would_upgrade_instances_that_lag() {
    let pool = World::new(0).pool();
    let body = |mode: &str| {
        json!({"properties": {"upgradePolicy": {"mode": mode}, "virtualMachineProfile":
        {"networkProfile": {"networkInterfaceConfigurations": [{"name": "nic", "properties": {"ipConfigurations":
            [{"name": "one", "properties": {}}]}}]}}}})
    };
    let env = nic::Env { wanted: [(Family::V4, [pool.clone()].into())].into(), managed: [pool].into() };
    let wants = [(Membership, env)].into();
    for (mode, instances_lag, is_held) in
        [("Manual", true, false), ("Rolling", false, false), ("Rolling", true, true), ("Automatic", true, true)]
    {
        let model = Nic::read(&set_id(), &body(mode)).unwrap();
        let plan = Interfaces::plan(&wants, Some(&model), &Surroundings { instances_lag });
        assert_eq!(plan.write.is_none(), is_held, "{mode} {instances_lag}");
        assert_eq!(matches!(plan.served[&Membership], Served::Waiting(_)), is_held);
    }
}

#[test]
fn what_is_not_known_of_an_instance_its_set_tells() {
    let mut world = World::of_set(2);
    let selection = Selection { resource_group: "group", leaves_out_control_plane: true };
    let needs = Needs { nics: true, sets: true };
    let unknown = |machines: &Machines, looked: &Unknown| machines.unknown(&world.nodes, &selection, needs, looked);
    assert_eq!(unknown(&world.machines, &Unknown::default()), Unknown::default());
    world.machines = Machines::default();
    let sets = Unknown { scale_sets: [set_id()].into(), ..Unknown::default() };
    let unknown = |looked: &Unknown| world.machines.unknown(&world.nodes, &selection, needs, looked);
    assert_eq!(unknown(&Unknown::default()), sets);
    assert_eq!(unknown(&sets), Unknown::default(), "once in a look");
    assert_eq!(world.machines.sets(world.nodes.values()), ["agents"]);
    assert_eq!(node_of_set(&world.nodes, &set_id()), Some("agents000000"));
}

#[test]
fn a_nic_joins_once_its_node_is_admitted_where_floating_ip_is_off() {
    let mut world = World::new(3);
    let pool = world.pool();
    world.show(0, std::slice::from_ref(&pool));
    world.show_group(0..1);
    let late = || vec![nic_id(1), nic_id(2)];
    assert_eq!(world.changes().0, late(), "no rule sends to the nodes by their own addresses");
    let rule = |floating: bool| {
        json!([{"name": format!("{}-TCP-80", world.base().as_str()), "properties": {"protocol": "Tcp",
            "frontendPort": 80, "backendPort": 30080, "enableFloatingIP": floating}}])
    };
    let [on, off] = [rule(true), rule(false)];
    world.show_balancer(on);
    assert_eq!(world.changes().0, late(), "floating IP is on");
    world.show_balancer(off);
    assert_eq!(world.changes(), (vec![], vec![]), "the member that is there stays");
    world.show_group(0..2);
    assert_eq!(world.changes().0, vec![nic_id(1)]);
    world.show_group(0..3);
    assert_eq!(world.changes().0, late());
}

#[test]
fn members_stay_while_a_rule_is_at_a_frontend_and_leave_with_the_last() {
    let mut world = World::new(1);
    let pool = world.pool();
    world.show(0, std::slice::from_ref(&pool));
    let frontend = LoadBalancer::frontend_id(&world.balancer(), world.base().as_str());
    let other = BaseName::of(&ServiceKey::new("shop", "other", "5f1d2c34-0000-4d3a-9a53-0a6b9a0c2f11"));
    world.show_balancer(json!([{"name": format!("{}-TCP-81", other.as_str()), "properties": {"protocol": "Tcp",
        "frontendIPConfiguration": {"id": frontend.as_str()}, "frontendPort": 81, "backendPort": 81}}]));
    let left = |world: &mut World, bases: &[&BaseName]| {
        world.leave(&bases.iter().map(|base| (*base).clone()).collect::<Vec<_>>(), &[]);
        world.changes().1
    };
    assert_eq!(left(&mut world, &[]), []);
    let base = world.base();
    assert_eq!(left(&mut world, &[&base]), [], "another Service uses the frontend of one that is deleted");
    assert_eq!(left(&mut world, &[&other]), [nic_id(0)], "the frontend bears the name of a Service that is gone");
    assert_eq!(left(&mut world, &[&base, &other]), [nic_id(0)]);
    world.show_balancer(json!([]));
    assert_eq!(left(&mut world, &[&other]), [], "no rule is at the frontend yet");
    world.leave(&[other], &["10.240.1.2".parse().unwrap()]);
    assert_eq!(world.changes().1, [nic_id(0)], "the last that used the frontend gives up its address");
}

#[test]
fn the_primary_nic_of_a_machine_is_found_by_its_id_in_any_group() {
    let mut world = World::new(2);
    let selection = Selection { resource_group: "group", leaves_out_control_plane: true };
    let needs = Needs { nics: true, sets: false };
    let shown = |id: &ArmId, is_primary: bool| {
        let body = json!({"properties": {"primary": is_primary, "virtualMachine": {"id": vm(1).as_str()}, "ipConfigurations": [
            {"name": "ipconfig1", "properties": {"primary": true, "privateIPAddressVersion": "IPv4"}}]}});
        Nic::read(id, &body).unwrap()
    };
    let elsewhere: ArmId =
        "/subscriptions/sub/resourceGroups/nics/providers/Microsoft.Network/networkInterfaces/first".parse().unwrap();
    world.machines = Machines::default();
    world.show(0, &[]);
    // A list of the machine's own group shows its second NIC only.
    world.machines.observed(&nic_id(1), Some(&shown(&nic_id(1), false)));
    let mut looked = Unknown::default();
    let next = |world: &World, looked: &Unknown| world.machines.unknown(&world.nodes, &selection, needs, looked);
    let group = || [("sub".to_owned(), "group".to_owned())].into();
    let nics = next(&world, &looked);
    assert_eq!(nics, Unknown { nic_groups: group(), ..Unknown::default() });
    looked.add(nics);
    let machines = next(&world, &looked);
    assert_eq!(machines, Unknown { machine_groups: group(), ..Unknown::default() });
    looked.add(machines);
    assert_eq!(next(&world, &looked), Unknown::default(), "the machine is not there");

    let nics = json!([{"id": nic_id(1).as_str(), "properties": {"primary": false}},
        {"id": elsewhere.as_str(), "properties": {"primary": true}}]);
    world.machines.machine_observed(vm(1), &json!({"properties": {"networkProfile": {"networkInterfaces": nics}}}));
    let by_id = next(&world, &looked);
    assert_eq!(by_id, Unknown { nics: [elsewhere.clone()].into(), ..Unknown::default() });
    world.machines.observed(&elsewhere, Some(&shown(&elsewhere, true)));
    assert_eq!(next(&world, &looked), Unknown::default());
    let (joins, _) = world.changes();
    assert!(joins.contains(&elsewhere) && !joins.contains(&nic_id(1)), "{joins:?}");

    // Another NIC has taken its place: the machine is asked again.
    world.machines.observed(&elsewhere, None);
    let by_id = next(&world, &Unknown::default());
    assert_eq!(by_id.nics, [elsewhere].into());
    assert_eq!(next(&world, &by_id).machine_groups, group());
}
