//! Disks on instances of scale sets. An instance of a flexible set is a VM of its own, which Kubernetes knows by the VM's
//! id; one of a uniform set is a part of its set.

use std::collections::BTreeSet;

use futures::future::join_all;
use lazuli_emulator::{
    options::{MissingInstance, Switches},
    scenario::{self, ScaleSet, Scenario},
};
use lazuli_model::node::{ClusterNodes, KnownNodes, Machine, Node};
use serde_json::json;
use tokio::sync::watch;
use tonic::Code;

use super::{
    deploy_azure,
    disk_rig::{
        Client, METHODS, Method, Rig, create, create_all, delete, list, name_of, numbered, pass, publish, publish_all,
        refused, seconds, typical, unpublish, unpublish_all,
    },
};

fn set_id(name: &str) -> String {
    format!(
        "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Compute/virtualMachineScaleSets/{name}",
        scenario::SUBSCRIPTION,
        scenario::RESOURCE_GROUP
    )
}

fn instance_id(set: &str, instance: u32) -> String {
    format!("{}/virtualMachines/{instance}", set_id(set))
}

fn node(machine: &str) -> Node {
    Node { machine: Machine::of_provider_id(&format!("azure://{machine}")), healthy: true, ..Node::default() }
}

/// A uniform set of three instances, of which two are nodes.
async fn rig(method: Method, missing: MissingInstance) -> (Rig, Client) {
    with_nodes(method, missing, node).await
}

async fn with_nodes(method: Method, missing: MissingInstance, node: impl Fn(&str) -> Node) -> (Rig, Client) {
    with_switches(method, Switches { missing_instance: missing, ..Switches::default() }, node).await
}

async fn with_switches(method: Method, unverified: Switches, node: impl Fn(&str) -> Node) -> (Rig, Client) {
    let mut known = KnownNodes::default();
    known.replace([
        ("pool000000".to_owned(), node(&instance_id("pool", 0))),
        ("pool000001".to_owned(), node(&instance_id("pool", 1))),
    ]);
    let nodes = watch::channel(ClusterNodes::Known(known)).1;
    let mut azure = typical();
    let scale_sets = vec![ScaleSet::uniform("pool", 3)];
    azure.unverified = unverified;
    azure.scenario = Scenario { scale_sets, ..Scenario::default() };
    let mut rig = Rig::with(azure, |options| {
        method.set(options);
        options.nodes = Some(nodes);
    })
    .await;
    let client = rig.controller().await;
    (rig, client)
}

/// What the hypervisor of an instance holds.
fn held(rig: &Rig, instance: u32) -> usize {
    rig.control.lun_maps().get(&instance_id("pool", instance).to_lowercase()).map_or(0, |luns| luns.len())
}

/// Whether the hypervisor of an instance holds this disk.
fn holds(rig: &Rig, instance: u32, disk: &str) -> bool {
    let luns = rig.control.lun_maps();
    let held = luns.get(&instance_id("pool", instance).to_lowercase());
    held.is_some_and(|luns| luns.values().any(|id| name_of(id).eq_ignore_ascii_case(disk)))
}

/// What a life of volumes on instances asks of Azure, by the actions of roles.
pub(super) async fn actions_of_a_life(method: Method, missing: MissingInstance) -> BTreeSet<String> {
    let (rig, client) = rig(method, missing).await;
    let volumes = create_all(&client, &numbered(4)).await;
    let luns: BTreeSet<u8> =
        publish_all(&client, &volumes, "pool000000").await.into_iter().map(Result::unwrap).collect();
    assert_eq!(luns.len(), volumes.len());
    assert_eq!(held(&rig, 0), volumes.len());
    rig.check();
    let writes: Vec<String> = rig.writes().into_iter().map(|call| call.path).collect();
    let of_instance = writes.iter().filter(|path| path.contains("/virtualMachineScaleSets/")).count();
    assert_eq!(of_instance, 1, "one write for all: {writes:?}");
    let listed = list(&client).await.unwrap();
    assert!(listed.values().all(|nodes| *nodes == ["pool000000"]));

    // On another node of the set it must be taken from the first.
    refused(publish(&client, &volumes[0], "pool000001").await, Code::FailedPrecondition);
    for answer in unpublish_all(&client, &volumes, "pool000000").await {
        answer.unwrap();
    }
    assert_eq!(held(&rig, 0), 0);
    publish(&client, &volumes[0], "pool000001").await.unwrap();

    // The instance is gone, and with it the attachment.
    assert_eq!(rig.other_tool().call("DELETE", &instance_id("pool", 1), None).await.0, 202);
    pass(seconds(120)).await;
    unpublish(&client, &volumes[0].volume_id, "pool000001").await.unwrap();
    publish(&client, &volumes[0], "pool000000").await.unwrap();
    unpublish(&client, &volumes[0].volume_id, "pool000000").await.unwrap();
    for volume in &volumes {
        delete(&client, &volume.volume_id).await.unwrap();
    }
    rig.check_empty();
    let needed = deploy_azure::needed(&rig.calls());
    rig.stop().await;
    needed
}

#[tokio::test(start_paused = true)]
async fn disk_a_volume_lives_on_an_instance_of_a_uniform_scale_set() {
    for method in METHODS {
        // Azure tells of an instance that is gone in either way.
        for missing in [MissingInstance::NotFound, MissingInstance::InvalidParameter] {
            assert!(!actions_of_a_life(method, missing).await.is_empty());
        }
    }
}

/// Whether a PUT that leaves the hardware profile out takes it away is not documented.
#[tokio::test(start_paused = true)]
async fn disk_an_instance_with_a_size_of_its_own_keeps_it_when_its_disks_are_written() {
    for instance_put_keeps_hardware in [true, false] {
        let unverified = Switches { instance_put_keeps_hardware, ..Switches::default() };
        let (rig, client) = with_switches(Method::WholeList, unverified, node).await;
        let own = json!({"vmSize": "Standard_D4s_v3"});
        let id = instance_id("pool", 0);
        rig.control.tamper(&id, |instance| instance["properties"]["hardwareProfile"] = own.clone()).unwrap();
        let volume = create(&client, "pvc-a").await.unwrap();
        publish(&client, &volume, "pool000000").await.unwrap();
        let written = rig.writes().into_iter().rfind(|call| call.path.contains("/virtualMachineScaleSets/")).unwrap();
        assert_eq!(written.method, "PUT");
        assert_eq!(written.body.unwrap()["properties"].get("networkProfileConfiguration"), None);
        let shown = rig.control.dump().resources[&id.to_lowercase()]["properties"]["hardwareProfile"].clone();
        assert_eq!(shown, own, "left out ones stay: {instance_put_keeps_hardware}");
        rig.check();
        rig.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn disk_an_instance_without_a_provider_id_is_found_by_the_number_in_its_computers_name() {
    let bare = |_: &str| Node { healthy: true, ..Node::default() };
    let (rig, client) = with_nodes(Method::Action, MissingInstance::NotFound, bare).await;
    let volume = create(&client, &numbered(1)[0]).await.unwrap();
    publish(&client, &volume, "pool000001").await.unwrap();
    assert_eq!((held(&rig, 0), held(&rig, 1)), (0, 1));
    let lists = rig.calls().into_iter().filter(|call| call.operation == "virtualMachineScaleSetVMs.list").count();
    assert_eq!(lists, 0, "no list of instances is read for it");
    unpublish(&client, &volume.volume_id, "pool000001").await.unwrap();
    assert_eq!(held(&rig, 1), 0);
    refused(publish(&client, &volume, "pool000009").await, Code::NotFound);
    delete(&client, &volume.volume_id).await.unwrap();
    rig.check_empty();
    rig.stop().await;
}

/// One 404 proves nothing, nor do two while the other instances cannot be listed.
#[tokio::test(start_paused = true)]
async fn disk_an_instance_is_gone_only_where_its_scale_set_can_be_listed() {
    for (status, code, expected) in
        [(403, "AuthorizationFailed", Code::PermissionDenied), (503, "ServiceUnavailable", Code::Unavailable)]
    {
        let (rig, client) = rig(Method::Action, MissingInstance::NotFound).await;
        let volume = create(&client, "pvc-a").await.unwrap();
        publish(&client, &volume, "pool000000").await.unwrap();
        rig.incident(json!({
            "match": {"method": "GET", "path": "*/virtualMachines/0"},
            "then": {"status": 404, "code": "ResourceNotFound"}, "times": 0,
        }));
        rig.incident(json!({
            "match": {"method": "GET", "path": "*/pool/virtualMachines"},
            "then": {"status": status, "code": code}, "times": 0,
        }));
        refused(unpublish(&client, &volume.volume_id, "pool000000").await, expected);
        assert_eq!(held(&rig, 0), 1);
        rig.stop().await;
    }
}

/// Azure may call the request invalid, which it may also mean. Then the list of the instances must lack it twice, by lists
/// that were sent after the request came.
#[tokio::test(start_paused = true)]
async fn disk_an_instance_whose_read_is_called_invalid_is_gone_only_by_two_lists_since_the_request() {
    let (rig, client) = rig(Method::Action, MissingInstance::InvalidParameter).await;
    let volumes = create_all(&client, &numbered(2)).await;
    for volume in &volumes {
        publish(&client, volume, "pool000001").await.unwrap();
    }
    assert_eq!(rig.other_tool().call("DELETE", &instance_id("pool", 1), None).await.0, 202);
    pass(seconds(120)).await;
    rig.incident(json!({
        "match": {"method": "GET", "path": "*/pool/virtualMachines"}, "then": {"delayMs": 1500}, "times": 0,
    }));
    rig.control.reset_log();
    // The second request comes while a list of the first is under way.
    let first = unpublish(&client, &volumes[0].volume_id, "pool000001");
    let second = async {
        pass(seconds(1)).await;
        let came = rig.calls().last().map_or(0, |call| call.at_ms);
        unpublish(&client, &volumes[1].volume_id, "pool000001").await.unwrap();
        came
    };
    let (first, came) = futures::join!(first, second);
    first.unwrap();
    for (operation, status) in [("virtualMachineScaleSetVMs.get", 400), ("virtualMachineScaleSetVMs.list", 200)] {
        let since: Vec<u64> = rig
            .calls()
            .iter()
            .filter(|call| call.operation == operation && call.status == status && call.at_ms >= came)
            .map(|call| call.at_ms)
            .collect();
        assert!(since.len() >= 2 && since[since.len() - 1] - since[0] >= 2000, "{operation}: {since:?}");
    }
    // An instance that is there answers so for another reason.
    publish(&client, &volumes[0], "pool000000").await.unwrap();
    let write = json!({"method": "POST", "path": "*/virtualMachines/0/*"});
    rig.incident(json!({"match": write, "then": {"status": 400, "code": "InvalidParameter"}, "times": 0}));
    refused(unpublish(&client, &volumes[0].volume_id, "pool000000").await, Code::InvalidArgument);
    let read = json!({"method": "GET", "path": "*/virtualMachines/0"});
    rig.incident(json!({"match": read, "then": {"status": 400, "code": "InvalidParameter"}, "times": 0}));
    refused(unpublish(&client, &volumes[0].volume_id, "pool000000").await, Code::InvalidArgument);
    assert_eq!(held(&rig, 0), 1);
    rig.stop().await;
}

/// With a scale set all its instances are gone. The resource group must show that it can be read.
#[tokio::test(start_paused = true)]
async fn disk_a_scale_set_that_was_deleted_holds_no_disk() {
    let (rig, client) = rig(Method::Action, MissingInstance::NotFound).await;
    let volume = create(&client, "pvc-a").await.unwrap();
    publish(&client, &volume, "pool000000").await.unwrap();
    assert_eq!(rig.other_tool().call("DELETE", &set_id("pool"), None).await.0, 202);
    pass(seconds(300)).await;
    rig.incident(json!({
        "match": {"method": "GET", "path": "*/virtualMachineScaleSets/pool"},
        "then": {"status": 403, "code": "AuthorizationFailed"}, "times": 1,
    }));
    refused(unpublish(&client, &volume.volume_id, "pool000000").await, Code::PermissionDenied);
    unpublish(&client, &volume.volume_id, "pool000000").await.unwrap();
    delete(&client, &volume.volume_id).await.unwrap();
    rig.check_empty();
    rig.stop().await;
}

/// An instance that is no Node of the cluster takes no disk, and a VM that has an instance's name is not the node.
#[tokio::test(start_paused = true)]
async fn disk_an_instance_that_is_no_node_takes_no_disk() {
    let (rig, client) = rig(Method::Action, MissingInstance::NotFound).await;
    let volume = create(&client, "pvc-a").await.unwrap();
    refused(publish(&client, &volume, &instance_id("pool", 2)).await, Code::NotFound);
    refused(publish(&client, &volume, "pool000002").await, Code::NotFound);
    assert_eq!(rig.vm_writes("pool000002"), []);
    assert_eq!(held(&rig, 2), 0);
    rig.check();
    rig.stop().await;
}

/// How many instances the storm on a set takes.
const INSTANCES: u32 = 13;

/// Many volumes on a uniform set of several pages, attached, moved to the next instance and detached, all at once.
async fn storm_on_a_set(method: Method, list_lag: bool) {
    let ids = (0..INSTANCES).map(|number| (format!("pool{number:06}"), instance_id("pool", number)));
    let mut known = KnownNodes::default();
    known.replace(ids.map(|(name, id)| (name, node(&id))));
    let nodes = watch::channel(ClusterNodes::Known(known)).1;
    let mut azure = lazuli_emulator::Options { page_size: 50, ..typical() };
    azure.unverified.list_lag = list_lag;
    azure.scenario = Scenario { scale_sets: vec![ScaleSet::uniform("pool", 60)], ..Scenario::default() };
    let mut rig = Rig::with(azure, |options| {
        method.set(options);
        options.nodes = Some(nodes);
    })
    .await;
    let client = &rig.controller().await;
    let volumes = &create_all(client, &numbered(8 * INSTANCES as usize)).await;
    let on_node = |round: u32| {
        let names = (0..INSTANCES).map(move |number| format!("pool{:06}", (number + round) % INSTANCES));
        volumes.chunks(8).zip(names)
    };
    rig.control.reset_log();
    for round in 0..2 {
        let published = on_node(round).map(|(volumes, node)| async move { publish_all(client, volumes, &node).await });
        for luns in join_all(published).await {
            // No two disks of an instance are told the same LUN.
            let luns: BTreeSet<u8> = luns.into_iter().map(Result::unwrap).collect();
            assert_eq!(luns.len(), 8);
        }
        for (volumes, node) in on_node(round) {
            for volume in volumes {
                let instance = node.trim_start_matches("pool").parse().unwrap();
                assert!(holds(&rig, instance, name_of(&volume.volume_id)), "{node} {}", volume.volume_id);
            }
        }
        rig.check();
        let unpublished =
            on_node(round).map(|(volumes, node)| async move { unpublish_all(client, volumes, &node).await });
        for answer in join_all(unpublished).await.into_iter().flatten() {
            answer.unwrap();
        }
        assert!((0..INSTANCES).all(|instance| held(&rig, instance) == 0));
    }
    let counters = rig.control.counters();
    let count = |operation: &str| counters.by_operation.get(operation).copied().unwrap_or_default();
    assert!(method != Method::Action || count("virtualMachineScaleSetVMs.list") > 0, "{counters:?}");
    assert_eq!(counters.throttled, 0, "{counters:?}");
    for answer in join_all(volumes.iter().map(|volume| delete(client, &volume.volume_id))).await {
        answer.unwrap();
    }
    rig.check_empty();
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn disk_a_storm_on_the_instances_of_a_set_ends_well_however_their_list_lags() {
    for (method, list_lag) in [(Method::Action, false), (Method::Action, true), (Method::WholeList, true)] {
        storm_on_a_set(method, list_lag).await;
    }
}
