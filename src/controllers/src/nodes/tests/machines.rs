//! Machines that are gone with their groups, machines with other addresses, and ranges that divert traffic.

use super::*;

const FAR: &str = "far";

fn far(at: usize) -> ArmId {
    ArmId::resource(scenario::SUBSCRIPTION, FAR, "Microsoft.Compute/virtualMachines", &format!("far-{at}")).unwrap()
}

impl Rig {
    /// A Node that is initialised, as the Go manager left it.
    fn initialised(&self, name: &str, machine: &ArmId, ready: &str) {
        let node = json!({"metadata": {"name": name}, "spec": {"providerID": format!("azure://{machine}")},
            "status": {"conditions": [{"type": "Ready", "status": ready}]}});
        self.server.put("nodes", node).unwrap();
    }

    fn exists(&self, name: &str) -> bool {
        self.server.get("nodes", "", name).is_some()
    }

    fn internal_address(&self, name: &str) -> Option<String> {
        let node = self.server.get("nodes", "", name)?;
        let addresses = node["status"]["addresses"].as_array().cloned().unwrap_or_default();
        let internal = addresses.iter().find(|one| one["type"] == "InternalIP")?;
        internal["address"].as_str().map(str::to_owned)
    }

    /// Another tool gives the first configuration of a NIC another address.
    fn readdress(&self, nic: &str, address: &str) {
        let change = |nic: &mut Value| {
            nic["properties"]["ipConfigurations"][0]["properties"]["privateIPAddress"] = address.into();
        };
        self.emulator.control().tamper(nic, change).expect("the NIC exists");
    }

    /// The reads of this kind so far.
    fn reads(&self, of: &str) -> usize {
        let calls = self.emulator.control().call_log();
        calls.iter().filter(|call| call.plane == "arm" && call.method == "GET" && call.path.contains(of)).count()
    }
}

#[tokio::test(start_paused = true)]
async fn the_nodes_of_a_group_without_machines_go_and_that_of_a_missing_group_stays_with_an_event() {
    let mut scenario = scenario::Scenario::default();
    let group = scenario::ResourceGroup { name: FAR.to_owned(), ..scenario.resource_groups[0].clone() };
    scenario.resource_groups.push(group);
    let machines = scenario::VirtualMachine::pattern("far-{}", 2);
    scenario.virtual_machines.push(scenario::VirtualMachine { resource_group: Some(FAR.to_owned()), ..machines });
    let rig = Rig::of(scenario, Switches::default()).await;
    (0..2).for_each(|at| rig.register(at));
    (0..2).for_each(|at| rig.initialised(&format!("far-{at}"), &far(at), "True"));
    let (stop, running) = rig.controller("one");
    rig.wait("the routes exist", || (0..2).all(|at| rig.condition(at).as_deref() == Some("False RouteCreated"))).await;
    sleep(Duration::from_secs(60)).await;

    for at in 0..2 {
        rig.delete_machine(&far(at)).await;
        rig.initialised(&format!("far-{at}"), &far(at), "Unknown");
    }
    rig.wait("both Nodes are deleted", || !rig.exists("far-0") && !rig.exists("far-1")).await;

    _ = rig.told(1);
    let missing = json!({"match": {"method": "GET", "path": "*/virtualMachines/node-1"},
        "then": {"status": 404, "code": "ResourceGroupNotFound"}, "times": 0});
    rig.emulator.control().add_incident(serde_json::from_value(missing).unwrap()).unwrap();
    rig.stop_kubelet(1);
    sleep(Duration::from_secs(300)).await;
    assert!(rig.node(1).is_some());
    assert_eq!(rig.told(1), ["NodeStateUnknown"]);
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn addresses_follow_their_machines_by_one_list_a_scope_and_at_once_after_a_boot() {
    let rig = Rig::start().await;
    (0..5).for_each(|at| rig.register(at));
    let set = id("Microsoft.Compute/virtualMachineScaleSets", "pool");
    let instance: ArmId = format!("{set}/virtualMachines/0").parse().unwrap();
    rig.initialised("pool000000", &instance, "True");
    let (stop, running) = rig.controller("one");
    rig.wait("the routes exist", || (0..5).all(|at| rig.condition(at).as_deref() == Some("False RouteCreated"))).await;
    let of_instance = rig.network.list_instance_interfaces(&set, &until()).await.unwrap();
    let first = of_instance.iter().find(|nic| nic["properties"]["virtualMachine"]["id"] == instance.as_str()).unwrap();
    let own = first["properties"]["ipConfigurations"][0]["properties"]["privateIPAddress"].as_str().unwrap();
    rig.wait("the instance has its address", || rig.internal_address("pool000000").as_deref() == Some(own)).await;

    // At rest a list of each scope is all that is read.
    sleep(Duration::from_secs(60)).await;
    let (lists, alone) = (rig.reads("networkInterfaces"), rig.reads("virtualMachines/"));
    sleep(Duration::from_secs(600)).await;
    assert_eq!((rig.reads("networkInterfaces") - lists, rig.reads("virtualMachines/") - alone), (4, 0));

    let nic = id("Microsoft.Network/networkInterfaces", "node-3-nic");
    rig.readdress(nic.as_str(), "10.240.9.3");
    rig.readdress(first["id"].as_str().unwrap(), "10.240.9.9");
    rig.wait("node-3 has its new address", || rig.internal_address("node-3").as_deref() == Some("10.240.9.3")).await;
    rig.wait("so has the instance", || rig.internal_address("pool000000").as_deref() == Some("10.240.9.9")).await;
    sleep(Duration::from_secs(30)).await;
    let routes = rig.routes().await;
    assert!(routes.contains(&"node-3____102443024 10.244.3.0/24 10.240.9.3".to_owned()), "{routes:?}");

    // Another VM of the name: kubelet reports another boot.
    let boots = |boot: &str| {
        let mut node = rig.node(4).unwrap();
        node["status"]["nodeInfo"] = json!({"bootID": boot});
        rig.server.put("nodes", node).unwrap();
    };
    boots("one");
    sleep(Duration::from_secs(1)).await;
    rig.readdress(id("Microsoft.Network/networkInterfaces", "node-4-nic").as_str(), "10.240.9.4");
    boots("two");
    let took = rig.wait("at once", || rig.internal_address("node-4").as_deref() == Some("10.240.9.4")).await;
    assert!(took < Duration::from_secs(10), "{took:?}");
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_node_that_takes_the_range_of_another_gets_no_route_and_an_event() {
    let rig = Rig::start().await;
    (0..2).for_each(|at| rig.register(at));
    let (stop, running) = rig.controller("one");
    rig.wait("the routes exist", || (0..2).all(|at| rig.condition(at).as_deref() == Some("False RouteCreated"))).await;
    for (at, range) in [(2, "10.244.1.128/25"), (3, "0.0.0.0/0"), (4, "10.244.240.0/24")] {
        rig.register(at);
        let mut node = rig.node(at).unwrap();
        node["spec"]["podCIDRs"] = json!([range]);
        rig.server.put("nodes", node).unwrap();
    }
    sleep(Duration::from_secs(120)).await;
    assert_eq!(rig.routes().await.len(), 2, "{:?}", rig.routes().await);
    let events: Vec<Event> = {
        let mut told = rig.told.try_lock().unwrap();
        std::iter::from_fn(|| told.receive().now_or_never().flatten()).collect()
    };
    for at in 2..5 {
        let is_refused = |event: &Event| {
            event.regarding == Regarding::Node(format!("node-{at}")) && event.reason.as_str() == "FailedToCreateRoute"
        };
        assert!(events.iter().any(is_refused), "node-{at}");
    }
    stop.cancel();
    running.await.unwrap();
}
