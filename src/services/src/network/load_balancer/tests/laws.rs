//! The five laws, on random Services over a load balancer that others use too.

use proptest::prelude::*;

use super::*;
use crate::ask::names::SHARED_PROBE;

/// What a random Service asks.
#[derive(Debug, Clone, Copy)]
struct Spec {
    /// A bit for each of three ports.
    ports: u8,
    /// On a public IP that several Services name, or on its own.
    is_shared: bool,
    is_local: bool,
}

/// What is known of a random Service now.
#[derive(Debug, Clone, Copy)]
enum Now {
    Unknown,
    Gone,
    Present(Spec),
}

fn spec() -> impl Strategy<Value = Spec> {
    (1_u8..8, any::<bool>(), any::<bool>()).prop_map(|(ports, is_shared, is_local)| Spec { ports, is_shared, is_local })
}

fn now() -> impl Strategy<Value = Now> {
    prop_oneof![Just(Now::Unknown), Just(Now::Gone), spec().prop_map(Now::Present), spec().prop_map(Now::Present)]
}

fn object(number: u8, spec: Spec) -> ServiceObject {
    let all = [(1, port(PortProtocol::Tcp, 80)), (2, port(PortProtocol::Tcp, 443)), (4, port(PortProtocol::Udp, 53))];
    let ports = all.into_iter().filter(|(bit, _)| spec.ports & bit != 0).map(|(_, port)| port).collect();
    let annotations =
        if spec.is_shared { annotated(&[("azure-pip-name", "shared")]).annotations } else { BTreeMap::new() };
    let health_check_node_port = if spec.is_local { 31_000 + u16::from(number) } else { 0 };
    ServiceObject { ports, annotations, is_local: spec.is_local, health_check_node_port, ..numbered(number, &[]) }
}

/// The load balancer after some Services, with parts of others and fields that this provider does not know.
fn world(before: &[Option<Spec>], env: &Env) -> Option<Value> {
    let objects: Vec<ServiceObject> =
        (1..).zip(before).filter_map(|(number, spec)| Some(object(number, (*spec)?))).collect();
    let mut body = settle(&wants_of(&objects.iter().collect::<Vec<_>>()), None, env)?;
    let lists = ["frontendIPConfigurations", "loadBalancingRules", "probes", "backendAddressPools"];
    let id = |list: &str, name: &str| json!({ "id": format!("{}/{list}/{name}", env.id) });
    for list in lists {
        if body["properties"].get(list).is_none() {
            body["properties"][list] = json!([]);
        }
        let items = body["properties"][list].as_array_mut()?;
        items.iter_mut().for_each(|item| item["etag"] = json!("W/\"1\""));
        items.push(json!({ "name": "theirs", "properties": { "futureField": list } }));
    }
    body["properties"]["loadBalancingRules"].as_array_mut()?.push(json!({ "name": "manual", "properties": {
        "frontendIPConfiguration": id(lists[0], "theirs"), "backendAddressPool": id(lists[3], "theirs"),
        "probe": id(lists[2], "theirs"), "protocol": "Tcp", "frontendPort": 80, "backendPort": 80
    }}));
    let some = body["properties"][lists[0]][0]["name"].as_str()?.to_owned();
    body["properties"]["outboundRules"] = json!([{ "name": "egress", "properties": {
        "frontendIPConfigurations": [id(lists[0], &some)], "backendAddressPool": id(lists[3], "theirs")
    }}]);
    Some(body)
}

fn wants_now(now: &[Now]) -> Wants {
    let mut wants = Wants::new();
    for (number, now) in (1..).zip(now) {
        match now {
            Now::Unknown => {}
            Now::Gone => wants = without(wants, &numbered(number, &[])),
            Now::Present(spec) => wants.extend(wants_of(&[&object(number, *spec)])),
        }
    }
    wants
}

/// Whether an element belongs to a Service that the wants know, or is shared by all of them.
fn is_ours(name: &str, wants: &Wants) -> bool {
    name == SHARED_PROBE || name == "kubernetes" || wants.keys().any(|service| BaseName::of(service).owns(name))
}

/// The elements that no plan may touch: all that is not ours but frontends that no rule uses any more.
fn foreign(body: Option<&Value>, wants: &Wants) -> BTreeMap<String, Value> {
    let Some(body) = body else { return BTreeMap::new() };
    let mut all = BTreeMap::new();
    for (list, items) in body["properties"].as_object().unwrap() {
        for item in items.as_array().unwrap() {
            let name = item["name"].as_str().unwrap();
            let is_orphan = list == "frontendIPConfigurations" && crate::ask::names::base_in(name).is_some();
            if !is_ours(name, wants) && !is_orphan {
                all.insert(format!("{list}/{name}"), item.clone());
            }
        }
    }
    all
}

/// The elements of a list, if there is one.
fn items<'a>(body: &'a mut Value, list: &str) -> impl Iterator<Item = &'a mut Value> {
    body["properties"].get_mut(list).and_then(Value::as_array_mut).into_iter().flatten()
}

/// The same load balancer as Azure could spell it another time: other case of ids and names, lists in another order, its
/// own defaults filled in.
fn respell(body: &Value) -> Value {
    fn ids(value: &mut Value) {
        match value {
            Value::Object(map) => {
                for (key, value) in map.iter_mut() {
                    match value {
                        Value::String(text) if key == "id" || key == "protocol" => *text = text.to_uppercase(),
                        other => ids(other),
                    }
                }
            }
            Value::Array(items) => {
                items.iter_mut().for_each(ids);
                for name in items.iter_mut().filter_map(|item| item.get_mut("name")) {
                    *name = json!(name.as_str().unwrap().to_uppercase());
                }
                items.reverse();
            }
            _ => {}
        }
    }
    let mut body = body.clone();
    ids(&mut body);
    body["sku"]["tier"] = json!("Regional");
    for item in items(&mut body, "frontendIPConfigurations") {
        item["properties"]["privateIPAllocationMethod"] = json!("Dynamic");
    }
    for item in items(&mut body, "probes") {
        item["properties"]["numberOfProbes"] = json!(1);
    }
    for item in items(&mut body, "loadBalancingRules") {
        item["properties"]["provisioningState"] = json!("Succeeded");
        if item["properties"].get("enableTcpReset").is_none() {
            item["properties"]["enableTcpReset"] = json!(false);
        }
    }
    body
}

/// Every rule that had its frontend, pool and probe has them still.
fn dangling(balancer: &LoadBalancer) -> Vec<String> {
    let has = |id: &Option<ArmId>, names: Vec<&String>| {
        id.as_ref().is_none_or(|id| names.iter().any(|name| name.eq_ignore_ascii_case(id.name())))
    };
    balancer
        .rules
        .iter()
        .filter(|rule| {
            !has(&rule.frontend, balancer.frontends.iter().map(|item| &item.name).collect())
                || !has(&rule.pool, balancer.pools.iter().map(|item| &item.name).collect())
                || !has(&rule.probe, balancer.probes.iter().map(|item| &item.name).collect())
        })
        .map(|rule| rule.name.clone())
        .collect()
}

fn sorted(edits: &[Edit]) -> Vec<String> {
    let mut texts: Vec<String> = edits.iter().map(|edit| format!("{edit:?}").to_lowercase()).collect();
    texts.sort_unstable();
    texts
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn the_five_laws_hold(
        before in proptest::collection::vec(proptest::option::of(spec()), 4),
        after in proptest::collection::vec(now(), 4),
        node_count in 0_usize..4,
    ) {
        let mut env = env();
        env.pools.insert("kubernetes".to_owned(), PoolMembers {
            kind: if node_count == 0 { PoolKind::Nic } else { PoolKind::NodeIp },
            ..members::nodes(1..=node_count)
        });
        let body = world(&before, &env);
        let wants = wants_now(&after);
        let actual = read(body.as_ref(), &env);
        let plan = plan(&wants, actual.as_ref(), &env);

        // The model and the body agree on what edits do.
        let next = apply_raw(body.clone(), &plan.edits, &env);
        prop_assert_eq!(read(next.as_ref(), &env), apply(actual.clone(), &plan.edits, &env));

        // It converges, and leaves what is foreign alone.
        let end = settle(&wants, body.clone(), &env);
        prop_assert_eq!(foreign(end.as_ref(), &wants), foreign(body.as_ref(), &wants));

        // It does not depend on order or spelling.
        if let Some(body) = &body {
            let other = super::super::plan(&wants, read(Some(&respell(body)), &env).as_ref(), &env);
            prop_assert_eq!(sorted(&other.edits), sorted(&plan.edits));
        }

        // It is quiet afterwards, however Azure spells the same thing.
        if let Some(end) = &end {
            prop_assert_eq!(super::super::plan(&wants, read(Some(&respell(end)), &env).as_ref(), &env).edits, vec![]);
        }

        // Every prefix is safe: no rule dangles, and a Service that was served is served.
        let done = |plan: &Plan<Edit>| {
            let is_done = |(service, state): (&ServiceKey, &Served)| {
                let asks = !wants[service].present.frontends.is_empty();
                (asks && matches!(state, Served::Done(_))).then(|| service.clone())
            };
            plan.served.iter().filter_map(is_done).collect::<BTreeSet<_>>()
        };
        let (served, dangles) = (done(&plan), actual.as_ref().map(dangling).unwrap_or_default());
        for length in 1..=plan.edits.len() {
            let here = apply(actual.clone(), &plan.edits[..length], &env);
            let then = super::super::plan(&wants, here.as_ref(), &env);
            prop_assert!(served.is_subset(&done(&then)), "{:?}", &plan.edits[..length]);
            prop_assert_eq!(here.as_ref().map(dangling).unwrap_or_default(), dangles.clone());
        }
    }

    #[test]
    fn a_burst_is_one_write(specs in proptest::collection::vec(spec(), 1..12)) {
        let env = env();
        let objects: Vec<ServiceObject> =
            (1..).zip(&specs).map(|(number, spec)| object(number, Spec { is_shared: false, ..*spec })).collect();
        let wants = wants_of(&objects.iter().collect::<Vec<_>>());
        let (_, body) = step(&wants, None, &env);
        prop_assert!(step(&wants, body, &env).0.is_quiet());
    }
}
