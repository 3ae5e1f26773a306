//! The addresses of Nodes that are initialised.

use lazuli_quota::read::Accept;
use serde_json::{Value, json};

use super::*;
use crate::cloud_node::addresses::{InterfaceList, Listed, PublicAddresses, lists};

const NICS: &str = "/subscriptions/s/resourceGroups/group/providers/Microsoft.Network";

fn address(private: &str) -> InstanceAddress {
    InstanceAddress { private: private.parse().unwrap(), public: None }
}

impl Rig {
    /// A Node that is initialised, and the table has its route.
    fn at_rest() -> Self {
        let mut rig = Self::start(CloudNode { boot_id: Some("one".to_owned()), ..old_node() });
        let actions = rig.take();
        let [Action::Route { generation, .. }] = actions[..] else { panic!("{actions:?}") };
        let report = Report { is_associated: true, is_provisioned: true, objection: None };
        rig.tell(Event::Routed { generation, outcome: Outcome::Done(report) });
        assert_eq!(rig.take(), []);
        rig.now += s(300);
        rig
    }

    fn reads(&mut self) -> Option<(Id, Accept)> {
        let of = |action: &Action| match action {
            Action::ReadAddresses { id, accept, machine } => {
                assert_eq!(machine.to_string().to_lowercase(), VM.to_lowercase());
                Some((*id, *accept))
            }
            _ => None,
        };
        let read = self.actions.iter().find_map(of);
        self.actions.retain(|action| of(action).is_none());
        read
    }

    fn shows(&mut self, addresses: &[&str]) {
        let (id, _) = self.reads().expect("the addresses are read");
        let result = Ok(addresses.iter().map(|one| address(one)).collect());
        self.tell(Event::AddressesRead { id, result });
    }

    fn internal(&self) -> Vec<&str> {
        let of_type = self.node.addresses.iter().filter(|one| one.kind == NodeAddress::INTERNAL);
        of_type.map(|one| &*one.address).collect()
    }
}

#[test]
fn a_list_that_says_what_the_node_says_costs_neither_a_read_nor_a_write() {
    let mut rig = Rig::at_rest();
    for _ in 0..3 {
        rig.tell(Event::Listed(Some(vec![address("10.0.0.5")])));
        assert_eq!((rig.take(), rig.state.wake_at()), (vec![], None));
        rig.now += s(300);
    }
    // The order, and what others have added, are no difference.
    let other = NodeAddress { kind: "InternalDNS".to_owned(), address: "x".to_owned() };
    rig.change(|node| node.addresses.insert(0, other));
    rig.tell(Event::Listed(Some(vec![address("10.0.0.5")])));
    assert_eq!(rig.take(), []);
}

#[test]
fn an_added_address_is_written_after_a_read_of_the_machine_alone() {
    let mut rig = Rig::at_rest();
    rig.tell(Event::Listed(Some(vec![address("10.0.0.5"), address("fd01::5")])));
    assert_eq!(rig.patch(), None, "a list may lag");
    let (id, accept) = rig.reads().unwrap();
    assert_eq!(accept, Accept::Single);
    rig.tell(Event::AddressesRead { id, result: Ok(vec![address("10.0.0.5"), address("fd01::5")]) });
    assert!(matches!(rig.patch(), Some(Patch::Status { addresses: Some(_), network: None })));
    assert_eq!(rig.internal(), ["10.0.0.5", "fd01::5"]);
    assert_eq!(rig.node.addresses[0].kind, "Hostname");
    let reported =
        |action: &Action| matches!(action, Action::Report(Reason::Readdressed(all)) if all.contains("fd01::5"));
    assert!(rig.take().iter().any(reported));
    // What was read then is not written over what the Node says later.
    rig.change(|node| node.addresses.retain(|one| one.address != "fd01::5"));
    assert_eq!(rig.patch(), None);
}

#[test]
fn a_node_that_boots_anew_is_read_at_once_and_its_route_follows() {
    let mut rig = Rig::at_rest();
    rig.change(|node| node.boot_id = Some("two".to_owned()));
    rig.shows(&["10.0.0.9"]);
    rig.patch().expect("its status");
    assert_eq!(rig.internal(), ["10.0.0.9"]);
    let wants = |action: &Action| match action {
        Action::Route { want: Want::Present(ranges), .. } => ranges[0].next_hop == Some("10.0.0.9".parse().unwrap()),
        _ => false,
    };
    assert!(rig.take().iter().any(wants));
    rig.change(|node| node.is_ready = true);
    assert_eq!(rig.take(), [], "the same boot");
}

#[test]
fn a_read_that_was_sent_before_the_boot_says_nothing_of_it() {
    let mut rig = Rig::at_rest();
    rig.tell(Event::Listed(Some(vec![address("10.0.0.7")])));
    let (id, _) = rig.reads().unwrap();
    rig.now += s(1);
    rig.change(|node| node.boot_id = Some("two".to_owned()));
    rig.tell(Event::AddressesRead { id, result: Ok(vec![address("10.0.0.7")]) });
    assert_eq!(rig.patch(), None);
    rig.shows(&["10.0.0.9"]);
    rig.patch().expect("its status");
    assert_eq!(rig.internal(), ["10.0.0.9"]);
}

#[test]
fn what_a_list_does_not_say_whole_is_read_by_what_many_share() {
    let mut rig = Rig::at_rest();
    rig.tell(Event::Listed(None));
    assert_eq!(rig.reads().unwrap().1, Accept::List);
}

#[test]
fn a_machine_that_cannot_be_read_leaves_the_addresses_until_the_next_list() {
    for (fault, repeats, reported) in [
        (Fault::NotFound, false, None),
        (Fault::Forbidden, false, Some(Reason::AddressesUnread(Fault::Forbidden))),
        (Fault::Unavailable, true, Some(Reason::AddressesUnread(Fault::Unavailable))),
    ] {
        let mut rig = Rig::at_rest();
        rig.tell(Event::Listed(Some(vec![address("10.0.0.7")])));
        let began = rig.now;
        let mut reads = 0;
        while let Some((id, _)) = rig.reads() {
            reads += 1;
            rig.tell(Event::AddressesRead { id, result: Err(fault.clone()) });
            if rig.state.wake_at().is_some() {
                rig.wake();
            }
        }
        assert_eq!((reads > 1, rig.internal()), (repeats, vec!["10.0.0.5"]), "{fault:?}");
        assert!(rig.now <= began + s(180));
        assert_eq!(rig.take(), reported.map(Action::Report).into_iter().collect::<Vec<_>>());
        rig.tell(Event::Listed(Some(vec![address("10.0.0.7")])));
        rig.shows(&["10.0.0.7"]);
        assert!(rig.patch().is_some());
    }
}

#[test]
fn an_address_that_kubelet_was_given_and_the_machine_lacks_changes_nothing() {
    let mut rig = Rig::at_rest();
    rig.change(|node| node.provided_addresses = vec!["10.0.0.5".parse().unwrap()]);
    rig.tell(Event::Listed(Some(vec![address("10.0.0.9")])));
    rig.shows(&["10.0.0.9"]);
    assert_eq!((rig.patch(), rig.internal()), (None, vec!["10.0.0.5"]));
    assert!(matches!(&rig.take()[..], [Action::Report(Reason::AddressesKept(why))] if why.contains("10.0.0.5")));
}

#[test]
fn nodes_that_are_new_or_not_ours_are_not_refreshed_and_one_list_serves_all_of_a_group() {
    let set = "/subscriptions/s/resourceGroups/Group/providers/Microsoft.Compute/virtualMachineScaleSets/set";
    let named = |name: &str, provider_id: String| CloudNode {
        name: name.to_owned(),
        provider_id: Some(provider_id),
        ..old_node()
    };
    let nodes = [
        old_node(),
        named("node-2", PROVIDER_ID.replace("node-1", "node-2").to_uppercase().replace("AZURE", "azure")),
        named("node-3", format!("azure://{set}/virtualMachines/0")),
        CloudNode { provider_id: Some(PROVIDER_ID.to_owned()), ..new_node() },
        CloudNode { is_unmanaged: true, ..old_node() },
        named("node-5", "aws:///x".to_owned()),
    ];
    let lists = lists(&nodes);
    let of_group = InterfaceList::Group { subscription: "s".to_owned(), resource_group: "group".to_owned() };
    let names = |list: &InterfaceList| -> Vec<&str> { lists[list].iter().map(|(name, _)| &**name).collect() };
    assert_eq!(lists.len(), 2);
    assert_eq!(names(&of_group), ["node-1", "node-2"]);
    assert_eq!(names(&InterfaceList::ScaleSet(set.parse().unwrap())), ["node-3"]);
    for new in [new_node(), CloudNode { is_unmanaged: true, ..old_node() }] {
        let mut rig = Rig::start(new);
        rig.take();
        rig.tell(Event::Listed(Some(vec![address("10.0.0.7")])));
        assert_eq!(rig.take(), []);
    }
}

fn interface(machine: &str, primary: bool, address: &str, public: Option<&str>) -> Value {
    let mut properties = json!({"privateIPAddress": address, "primary": true});
    if let Some(public) = public {
        properties["publicIPAddress"] = json!({"id": format!("{NICS}/publicIPAddresses/{public}")});
    }
    json!({"properties": {"primary": primary, "virtualMachine": {"id": machine},
        "ipConfigurations": [{"properties": properties}]}})
}

#[test]
fn a_list_of_interfaces_tells_the_addresses_of_a_machine_by_its_primary_one() {
    let mut listed = Listed::default();
    listed.add(&json!({"properties": {"ipConfigurations": []}}));
    listed.add(&interface(VM, false, "10.1.0.5", None));
    listed.add(&interface(&VM.to_uppercase().replace("SUBSCRIPTIONS", "subscriptions"), true, "10.0.0.5", Some("p")));
    let (vm, none): (ArmId, PublicAddresses) = (VM.parse().unwrap(), PublicAddresses::new());
    assert!(listed.has_public([&vm]));
    assert_eq!(listed.addresses(&vm, &none), None, "the public IP is in no list");
    let id: ArmId = format!("{NICS}/publicIPAddresses/P").parse().unwrap();
    let known = PublicAddresses::from([(id, Some("20.0.0.1".parse().unwrap()))]);
    let all = listed.addresses(&vm, &known).unwrap();
    let texts: Vec<String> = all.iter().map(|one| format!("{} {:?}", one.private, one.public)).collect();
    assert_eq!(texts, ["10.0.0.5 Some(20.0.0.1)", "10.1.0.5 None"]);
    assert_eq!(listed.addresses(&"/subscriptions/s/resourceGroups/g/providers/a/b/c".parse().unwrap(), &known), None);
}
