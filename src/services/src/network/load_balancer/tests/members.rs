//! Members of pools.

use super::*;

fn vnet() -> ArmId {
    settings().vnet_id().unwrap()
}

pub(super) fn nic_pool() -> PoolMembers {
    PoolMembers { kind: PoolKind::Nic, vnet: vnet(), addresses: BTreeMap::new(), may_be_empty: false, keeps: false }
}

fn node(number: usize) -> (IpAddr, String) {
    (
        IpAddr::from([10, 0, u8::try_from(number / 256).unwrap(), u8::try_from(number % 256).unwrap()]),
        format!("n{number}"),
    )
}

pub(super) fn nodes(numbers: impl IntoIterator<Item = usize>) -> PoolMembers {
    PoolMembers { kind: PoolKind::NodeIp, addresses: numbers.into_iter().map(node).collect(), ..nic_pool() }
}

fn env_with(members: PoolMembers) -> Env {
    Env { pools: [("kubernetes".to_owned(), members)].into(), ..env() }
}

fn addresses(body: &Value) -> Vec<String> {
    let members = &body["properties"]["backendAddressPools"][0]["properties"]["loadBalancerBackendAddresses"];
    members
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["properties"]["ipAddress"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn a_new_pool_of_addresses_goes_out_with_its_members() {
    let wants = wants_of(&[&numbered(1, &[80])]);
    let (plan, body) = step(&wants, None, &env_with(nodes(1..=2)));
    assert_eq!(write_target(&plan.edits), WriteTarget::Whole);
    assert_eq!(
        pool_body(&body.unwrap(), "kubernetes"),
        Some(json!({
            "name": "kubernetes",
            "properties": {
                "virtualNetwork": { "id": format!("{SUBSCRIPTION}/virtualNetworks/vnet") },
                "loadBalancerBackendAddresses": [
                    { "name": "n1", "properties": { "ipAddress": "10.0.0.1" } },
                    { "name": "n2", "properties": { "ipAddress": "10.0.0.2" } },
                ],
            },
        }))
    );
}

#[test]
fn a_change_of_nodes_writes_one_pool_and_nothing_else() {
    let wants = wants_of(&[&numbered(1, &[80])]);
    let body = settle(&wants, None, &env_with(nodes(1..=3)));
    let (plan, body) = step(&wants, body, &env_with(nodes(2..=4)));
    assert_eq!(write_target(&plan.edits), WriteTarget::Pool("kubernetes".to_owned()));
    assert_eq!(addresses(&body.unwrap()), ["10.0.0.2", "10.0.0.3", "10.0.0.4"]);
}

#[test]
fn a_tenth_of_a_pool_or_ten_leave_with_one_write_and_the_last_one_never() {
    let wants = wants_of(&[&numbered(1, &[80])]);
    let body = settle(&wants, None, &env_with(nodes(0..200)));
    let (plan, body) = step(&wants, body, &env_with(nodes(150..200)));
    assert!(plan.is_partial);
    assert_eq!(addresses(body.as_ref().unwrap()).len(), 180);
    let body = settle(&wants, body, &env_with(nodes(150..200)));
    assert_eq!(addresses(body.as_ref().unwrap()).len(), 50);
    // No node is left that the pool knows: those that come are added at once.
    let body = settle(&wants, body, &env_with(nodes(300..301)));
    assert_eq!(addresses(body.as_ref().unwrap()), ["10.0.1.44"]);
    let (plan, _) = step(&wants, body, &env_with(nodes([])));
    assert!(plan.is_quiet());
}

#[test]
fn a_pool_keeps_its_kind() {
    let wants = wants_of(&[&numbered(1, &[80])]);
    let body = settle(&wants, None, &env_with(nodes(1..=2)));
    // The configuration says NICs now: the pool of addresses is served as it is.
    let mut as_nics = nodes(1..=3);
    as_nics.kind = PoolKind::Nic;
    let body = settle(&wants, body, &env_with(as_nics)).unwrap();
    assert_eq!(addresses(&body).len(), 3);
    // And the other way round.
    let mut with_nics = settle(&wants, None, &env_with(nic_pool())).unwrap();
    with_nics["properties"]["backendAddressPools"][0]["properties"] = json!({
        "backendIPConfigurations": [{ "id": "nic" }],
        "loadBalancerBackendAddresses": [{ "name": "x", "properties": { "networkInterfaceIPConfiguration": { "id": "nic" } } }],
    });
    assert!(step(&wants, Some(with_nics), &env_with(nodes(1..=3))).0.is_quiet());
}

#[test]
fn a_pool_that_another_load_balancer_takes_over_may_be_emptied() {
    let wants = wants_of(&[&numbered(1, &[80])]);
    let body = settle(&wants, None, &env_with(nodes(1..=2)));
    let body = settle(&wants, body, &env_with(PoolMembers { may_be_empty: true, ..nodes([]) })).unwrap();
    assert!(addresses(&body).is_empty());
}

#[test]
fn a_service_on_a_pool_of_addresses_is_done_when_the_pool_has_one() {
    let web = numbered(1, &[80]);
    let wants = wants_of(&[&web]);
    let body = settle(&wants, None, &env_with(nodes([])));
    assert!(matches!(step(&wants, body.clone(), &env_with(nodes([]))).0.served[&web.key], Served::Done(_)));
    let (plan, body) = step(&wants, body, &env_with(nodes(1..=2)));
    assert_eq!(plan.served[&web.key], Served::Pending);
    assert!(matches!(step(&wants, body, &env_with(nodes(1..=9))).0.served[&web.key], Served::Done(_)));
}

/// A load balancer that serves, and whose pool has two NICs.
fn with_nics(wants: &Wants) -> Value {
    let mut body = settle(wants, None, &env_with(nic_pool())).unwrap();
    let pool = &mut body["properties"]["backendAddressPools"][0]["properties"];
    pool["backendIPConfigurations"] = json!([{ "id": "one" }, { "id": "two" }]);
    pool["loadBalancerBackendAddresses"] =
        json!([{ "name": "x", "properties": { "networkInterfaceIPConfiguration": { "id": "one" } } }]);
    body
}

#[test]
fn a_pool_of_nics_becomes_one_of_addresses_by_azures_own_action_where_that_is_configured() {
    let wants = wants_of(&[&numbered(1, &[80])]);
    let body = with_nics(&wants);
    let asked = Env { migrates_pools: true, ..env_with(nodes(1..=2)) };
    let (plan, after) = step(&wants, Some(body.clone()), &asked);
    assert_eq!(plan.edits, [Edit::MigratePools(vec!["kubernetes".to_owned()])]);
    assert_eq!(write_target(&plan.edits), WriteTarget::Migration(vec!["kubernetes".to_owned()]));
    let actual = read(Some(&body), &asked);
    assert!(plan.is_partial && replaces(&plan.edits, actual.as_ref()));
    assert_eq!(plan.served.values().filter(|served| matches!(served, Served::Done(_))).count(), 1, "it serves on");
    // The model and the body agree.
    assert_eq!(apply(actual, &plan.edits, &asked), read(after.as_ref(), &asked));
    // Another Service waits for its turn, and nothing else goes out with it.
    let two = wants_of(&[&numbered(1, &[80]), &numbered(2, &[80])]);
    let (plan, _) = step(&two, Some(body.clone()), &asked);
    assert_eq!(plan.edits.len(), 1);
    assert_eq!(plan.served.values().filter(|served| matches!(served, Served::Pending)).count(), 1);
    // It is done once, and a load balancer that goes needs none.
    let end = settle(&two, Some(body.clone()), &asked).unwrap();
    assert_eq!(addresses(&end), ["10.0.0.1", "10.0.0.2"]);
    let (plan, _) = step(&without(wants.clone(), &numbered(1, &[80])), Some(body.clone()), &asked);
    assert!(!plan.edits.iter().any(|edit| matches!(edit, Edit::MigratePools(_))), "{:?}", plan.edits);
    // Without the key, or where NICs are configured, the pool keeps its kind.
    for quiet in [env_with(nodes(1..=2)), Env { migrates_pools: true, ..env_with(nic_pool()) }] {
        assert!(step(&wants, Some(body.clone()), &quiet).0.is_quiet());
    }
}

#[test]
fn until_a_take_over_is_accepted_members_join_and_none_leaves() {
    let wants = wants_of(&[&numbered(1, &[80])]);
    let body = settle(&wants, None, &env_with(nodes([1, 2]))).unwrap();
    let kept = settle(&wants, Some(body), &env_with(PoolMembers { keeps: true, ..nodes([2, 3]) })).unwrap();
    assert_eq!(addresses(&kept), ["10.0.0.1", "10.0.0.2", "10.0.0.3"]);
    let accepted = settle(&wants, Some(kept), &env_with(nodes([2, 3]))).unwrap();
    assert_eq!(addresses(&accepted), ["10.0.0.2", "10.0.0.3"]);
}
