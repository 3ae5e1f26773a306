use super::*;

use serde_json::json;

const NETWORK: &str = "/subscriptions/sub/resourceGroups/group/providers/Microsoft.Network";

fn pool(balancer: &str, name: &str) -> ArmId {
    format!("{NETWORK}/loadBalancers/{balancer}/backendAddressPools/{name}").parse().unwrap()
}

fn nic_id() -> ArmId {
    format!("{NETWORK}/networkInterfaces/n1-nic").parse().unwrap()
}

/// A NIC with an IPv4 and an IPv6 address, in these pools.
fn body(pools: &[&ArmId]) -> Value {
    let pools: Vec<Value> = pools.iter().map(lazuli_model::json::reference).collect();
    json!({ "name": "n1-nic", "properties": { "enableIPForwarding": true, "ipConfigurations": [
        { "name": "second", "properties": { "privateIPAddress": "10.0.0.12", "primary": false } },
        { "name": "first", "etag": "x", "properties": {
            "privateIPAddress": "10.0.0.11", "primary": true, "loadBalancerBackendAddressPools": pools, "futureField": 1
        }},
        { "name": "six", "properties": { "privateIPAddressVersion": "IPv6", "primary": false } },
    ]}})
}

fn env(v4: &[&ArmId], v6: &[&ArmId], managed: &[&ArmId]) -> Env {
    let all = |pools: &[&ArmId]| pools.iter().map(|pool| (*pool).clone()).collect::<BTreeSet<_>>();
    Env { wanted: [(Family::V4, all(v4)), (Family::V6, all(v6))].into(), managed: all(managed) }
}

fn step(body: Value, env: &Env) -> (NicPlan, Value) {
    let nic = Nic::read(&nic_id(), &body).unwrap();
    let plan = plan(&nic, env);
    let after = apply_raw(body, &plan.edits);
    assert_eq!(Nic::read(&nic_id(), &after).unwrap(), apply(nic, &plan.edits));
    (plan, after)
}

#[test]
fn the_primary_configuration_joins_the_pools_of_its_family_and_all_else_stays() {
    let (ours, inner, six) = (
        pool("kubernetes", "kubernetes"),
        pool("kubernetes-internal", "kubernetes"),
        pool("kubernetes", "kubernetes-IPv6"),
    );
    let theirs = pool("gateway-internal", "x");
    let wanted = env(&[&ours], &[&six], &[&ours, &inner, &six]);
    let (plan, after) = step(body(&[&theirs]), &wanted);
    assert_eq!(
        plan.edits,
        [
            Edit::Join { configuration: "first".to_owned(), pool: ours.clone() },
            Edit::Join { configuration: "six".to_owned(), pool: six.clone() }
        ]
    );
    let mut expected = body(&[&theirs, &ours]);
    expected["properties"]["ipConfigurations"][2]["properties"]["loadBalancerBackendAddressPools"] =
        json!([lazuli_model::json::reference(&six)]);
    assert_eq!(after, expected);
    assert_eq!(step(after, &wanted).0, NicPlan::default());
}

#[test]
fn a_pool_that_is_ours_and_not_wanted_is_left_in_any_spelling() {
    let ours = pool("kubernetes", "kubernetes");
    let theirs = pool("other", "x");
    let shouted: ArmId = ours.as_str().to_uppercase().replace("/SUBSCRIPTIONS", "/subscriptions").parse().unwrap();
    let (plan, after) = step(body(&[&theirs, &shouted]), &env(&[], &[], &[&ours]));
    assert_eq!(plan.edits.len(), 1);
    assert_eq!(after, body(&[&theirs]));
}

#[test]
fn a_nic_in_another_load_balancer_of_the_side_is_not_added() {
    let (ours, theirs) = (pool("kubernetes", "kubernetes"), pool("control-plane", "masters"));
    let (plan, _) = step(body(&[&theirs]), &env(&[&ours], &[], &[&ours]));
    assert_eq!(
        plan,
        NicPlan { edits: vec![], conflicts: vec![Conflict::OtherLoadBalancer { wanted: ours.clone(), there: theirs }] }
    );
    // When it moves between load balancers of this provider it leaves and joins in one write.
    let other = pool("lb2", "kubernetes");
    let (plan, after) = step(body(&[&other]), &env(&[&ours], &[], &[&ours, &other]));
    assert_eq!(plan.edits.len(), 2);
    assert_eq!(after, body(&[&ours]));
}

#[test]
fn a_nic_without_an_address_of_the_family_is_a_conflict() {
    let six = pool("kubernetes", "kubernetes-IPv6");
    let mut body = body(&[]);
    body["properties"]["ipConfigurations"].as_array_mut().unwrap().pop();
    let (plan, _) = step(body, &env(&[], &[&six], &[&six]));
    assert_eq!(plan.conflicts, [Conflict::NoAddress(Family::V6)]);
}

#[test]
fn of_an_instance_and_of_a_model_only_the_nics_are_written() {
    let ours = pool("kubernetes", "kubernetes");
    let set = "/subscriptions/sub/resourceGroups/group/providers/Microsoft.Compute/virtualMachineScaleSets/set";
    let wanted = env(&[&ours], &[], &[&ours]);
    let mut other = body(&[]);
    other["name"] = json!("second");
    let hardware = json!({"vmSize": "Standard_D8s_v3", "vmSizeProperties": {"vCPUsAvailable": 2}});
    for (id, holder, pointer) in [
        (format!("{set}/virtualMachines/7"), Holder::Instance, "/networkProfileConfiguration"),
        (set.to_owned(), Holder::Model, "/virtualMachineProfile/networkProfile"),
    ] {
        let id: ArmId = id.parse().unwrap();
        assert_eq!(Holder::of(&id), holder);
        let path = format!("{pointer}/networkInterfaceConfigurations");
        let nics = |pools: &[&ArmId]| {
            let mut primary = body(pools);
            primary["properties"]["primary"] = json!(true);
            json!([other.clone(), primary])
        };
        let mut raw = json!({"location": "westeurope", "etag": "1", "properties": {
            "storageProfile": {"dataDisks": [{"lun": 0}]}, "osProfile": {"secrets": []}, "hardwareProfile": hardware,
            "networkProfileConfiguration": {"networkInterfaceConfigurations": nics(&[])},
            "virtualMachineProfile": {"networkProfile": {"networkInterfaceConfigurations": nics(&[])},
                "storageProfile": {}}}});
        let nic = Nic::read(&id, &raw).unwrap();
        assert_eq!(nic.machine.is_some(), holder == Holder::Instance);
        let edits = plan(&nic, &wanted).edits;
        assert_eq!(edits, [Edit::Join { configuration: "first".to_owned(), pool: ours.clone() }]);
        let written = write_body(&id, raw.clone(), &edits);
        let mut expected = json!({"properties": {}});
        match holder {
            Holder::Model => {
                expected["properties"]["virtualMachineProfile"]["networkProfile"]["networkInterfaceConfigurations"] =
                    nics(&[&ours]);
            }
            _ => {
                expected["location"] = json!("westeurope");
                expected["properties"]["hardwareProfile"] = hardware.clone();
                expected["properties"]["networkProfileConfiguration"]["networkInterfaceConfigurations"] =
                    nics(&[&ours]);
            }
        }
        assert_eq!(written, expected);
        *raw["properties"].pointer_mut(&path).unwrap() = nics(&[&ours]);
        assert_eq!(Nic::read(&id, &raw).unwrap(), apply(nic, &edits));
        raw["properties"]["provisioningState"] = json!("Deleting");
        assert_eq!(plan(&Nic::read(&id, &raw).unwrap(), &env(&[], &[], &[&ours])), NicPlan::default(), "it goes");
    }
}

#[test]
fn a_failed_interface_joins_nothing_and_leaves() {
    let (ours, left) = (pool("kubernetes", "kubernetes"), pool("lb2", "kubernetes"));
    let mut body = body(&[&left]);
    body["properties"]["provisioningState"] = json!("Failed");
    let (plan, _) = step(body, &env(&[&ours], &[], &[&ours, &left]));
    assert_eq!(plan.conflicts, [Conflict::Failed]);
    assert_eq!(plan.edits, [Edit::Leave { configuration: "first".to_owned(), pool: left }]);
}

#[test]
fn only_a_model_with_another_policy_than_manual_upgrades_instances() {
    let set: ArmId =
        "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/set".parse().unwrap();
    for (body, expected) in [
        (json!({"properties": {"upgradePolicy": {"mode": "Manual"}}}), false),
        (json!({"properties": {"upgradePolicy": {"mode": "Rolling"}}}), true),
        (json!({"properties": {"upgradePolicy": {"mode": "automatic"}}}), true),
        (json!({"properties": {}}), false),
    ] {
        assert_eq!(Nic::read(&set, &body).unwrap().upgrades_instances, expected, "{body}");
        assert!(!Nic::read(&nic_id(), &body).unwrap().upgrades_instances);
    }
}

mod laws {
    use proptest::prelude::*;

    use super::*;

    /// Pools of two load balancers a side of ours, and of others.
    fn pools() -> Vec<ArmId> {
        [
            ("kubernetes", "kubernetes"),
            ("lb2", "kubernetes"),
            ("kubernetes-internal", "kubernetes"),
            ("theirs", "x"),
            ("theirs-internal", "x"),
        ]
        .map(|(balancer, name)| pool(balancer, name))
        .into()
    }

    fn some() -> impl Strategy<Value = Vec<ArmId>> {
        proptest::sample::subsequence(pools(), 0..=5)
    }

    fn respell(body: &Value) -> Value {
        let mut body = body.clone();
        let configurations = body["properties"]["ipConfigurations"].as_array_mut().unwrap();
        configurations.reverse();
        for configuration in configurations {
            let Some(pools) = configuration["properties"].get_mut("loadBalancerBackendAddressPools") else { continue };
            pools.as_array_mut().unwrap().reverse();
            for pool in pools.as_array_mut().unwrap() {
                pool["id"] = json!(pool["id"].as_str().unwrap().to_uppercase());
            }
        }
        body
    }

    fn sorted(plan: &NicPlan) -> Vec<String> {
        let mut texts: Vec<String> = plan.edits.iter().map(|edit| format!("{edit:?}").to_lowercase()).collect();
        texts.sort_unstable();
        texts
    }

    proptest! {
        #[test]
        fn the_five_laws_hold(there in some(), wanted in some()) {
            let managed: Vec<ArmId> = pools().into_iter().take(3).collect();
            let wanted: Vec<ArmId> = wanted.into_iter().filter(|pool| managed.contains(pool)).collect();
            let env = Env {
                wanted: [(Family::V4, wanted.iter().cloned().collect())].into(),
                managed: managed.iter().cloned().collect(),
            };
            let before = body(&there.iter().collect::<Vec<_>>());
            let (plan, after) = step(before.clone(), &env);

            // It converges in one write; what it cannot join is a conflict still.
            let (again, _) = step(after.clone(), &env);
            prop_assert_eq!(&again.edits, &vec![]);
            prop_assert_eq!(&again.conflicts, &plan.conflicts);

            // Order and spelling do not count.
            prop_assert_eq!(sorted(&step(respell(&before), &env).0), sorted(&plan));
            prop_assert_eq!(step(respell(&after), &env).0.edits, vec![]);

            // Pools of others stay, and all else in the body.
            let foreign = |body: &Value| {
                let nic = Nic::read(&nic_id(), body).unwrap();
                let pools = nic.configurations.into_iter().flat_map(|there| there.pools);
                pools.filter(|pool| !managed.contains(pool)).collect::<Vec<_>>()
            };
            prop_assert_eq!(foreign(&after), foreign(&before));
            let without = |mut body: Value| {
                body["properties"]["ipConfigurations"][1]["properties"]["loadBalancerBackendAddressPools"] = json!([]);
                body
            };
            prop_assert_eq!(without(after), without(before));

            // In no prefix is it out of a pool that it was in and stays in.
            let nic = Nic::read(&nic_id(), &body(&there.iter().collect::<Vec<_>>())).unwrap();
            for length in 0..=plan.edits.len() {
                let here = apply(nic.clone(), &plan.edits[..length]);
                for pool in there.iter().filter(|pool| wanted.contains(pool)) {
                    prop_assert!(here.configurations.iter().any(|configuration| configuration.pools.contains(pool)));
                }
            }
        }
    }
}
