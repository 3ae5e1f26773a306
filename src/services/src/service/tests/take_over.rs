//! Taking over: what the Go manager left behind is served without a write.

use super::{
    cases::{Case, cases},
    *,
};
use crate::network::{Served, Wants};

/// A body as Azure tells it back: ids in another case, entity tags, its own defaults, both the singular and the plural.
fn as_azure_tells(mut body: Value, id: &ArmId) -> Value {
    fn touch(item: &mut Value) {
        item["etag"] = json!("W/\"0\"");
        item["properties"]["provisioningState"] = json!("Succeeded");
    }
    fn shout(value: &mut Value) {
        match value {
            Value::Object(map) => map.iter_mut().for_each(|(key, value)| match value {
                Value::String(text) if key == "id" => {
                    *text = text.replace("resourceGroups/group", "resourceGroups/GROUP")
                }
                other => shout(other),
            }),
            Value::Array(items) => items.iter_mut().for_each(shout),
            _ => {}
        }
    }
    touch(&mut body);
    body["id"] = json!(id.as_str());
    shout(&mut body);
    let Some(properties) = body["properties"].as_object_mut() else { return body };
    for items in properties.values_mut().filter_map(Value::as_array_mut) {
        items.iter_mut().filter(|item| item["name"].is_string()).for_each(touch);
    }
    for list in ["inboundNatRules", "outboundRules", "inboundNatPools"] {
        properties.entry(list).or_insert_with(|| json!([]));
    }
    let children = |properties: &mut serde_json::Map<String, Value>, list: &str| {
        properties.get_mut(list).and_then(Value::as_array_mut).map(std::mem::take).unwrap_or_default()
    };
    let mut frontends = children(properties, "frontendIPConfigurations");
    for frontend in &mut frontends {
        let properties = &mut frontend["properties"];
        if properties.get("subnet").is_some() && properties.get("privateIPAddress").is_none() {
            let is_six = properties["privateIPAddressVersion"] == "IPv6";
            properties["privateIPAddress"] = json!(if is_six { "fd00::4" } else { "10.0.0.4" });
        } else if properties.get("subnet").is_none() {
            properties["privateIPAllocationMethod"] = json!("Dynamic");
        }
    }
    let mut rules = children(properties, "loadBalancingRules");
    for rule in &mut rules {
        let pool = rule["properties"]["backendAddressPool"].clone();
        rule["properties"]["backendAddressPools"] = json!([pool]);
        rule["properties"]["allowBackendPortConflict"] = json!(false);
        if rule["properties"].get("enableTcpReset").is_none() {
            rule["properties"]["enableTcpReset"] = json!(false);
        }
    }
    let mut security = children(properties, "securityRules");
    for rule in &mut security {
        for list in ["sourceAddressPrefixes", "destinationAddressPrefixes", "sourcePortRanges", "destinationPortRanges"]
        {
            if rule["properties"].get(list).is_none() {
                rule["properties"][list] = json!([]);
            }
        }
    }
    for (list, items) in
        [("frontendIPConfigurations", frontends), ("loadBalancingRules", rules), ("securityRules", security)]
    {
        properties.insert(list.to_owned(), json!(items));
    }
    body
}

fn only<P, G>(ask: &Ask, want: crate::network::Want<P, G>) -> Wants<P, G> {
    [(ask.service.clone(), want)].into()
}

/// What would be written for a Service, where Azure has what another spelling of it led to.
fn writes(title: &str, case: &Case, object: &ServiceObject) -> Vec<String> {
    let bodies = bodies(&case.object, &case.settings);
    let settings = &case.settings;
    let side = parse(&case.object, settings, &Existing::default()).unwrap().side;
    let env = load_balancer_env(settings, side);
    let balancer = as_azure_tells(bodies.load_balancer, &env.id);
    let existing = beside(&case.object, settings, side, &balancer);
    let ask = parse(object, settings, &existing).unwrap_or_else(|mistakes| panic!("{title}: {mistakes:?}"));
    assert_eq!(ask.side, side, "{title}");
    let mut written = Vec::new();

    let mut ids = BTreeMap::new();
    let mut addresses: BTreeSet<IpAddr> = BTreeSet::new();
    for family in &ask.families {
        let AddressAsk::Public(public) = &family.address else { continue };
        let found = wants::public_ip_id(public, settings).unwrap();
        let id = found.unwrap_or_else(|| settings.public_ip_id(public.resource_group(), "found").unwrap());
        if let Some(body) = bodies.public_ips.iter().find(|body| body["name"] == id.name()) {
            let mut body = as_azure_tells(body.clone(), &id);
            let address = if family.family == Family::V4 { "20.0.0.4" } else { "2001:db8::4" };
            body["properties"]["ipAddress"] = json!(address);
            let env = public_ip_env(settings, &id);
            let actual = public_ip::PublicIp::read(&id, &body).unwrap();
            let plan = public_ip::plan(&only(&ask, wants::public_ip(public, family.family)), Some(&actual), &env);
            written.extend(plan.edits.iter().map(|edit| format!("{edit:?}")));
            let Served::Done(found) = &plan.served[&ask.service] else { panic!("{title}: {plan:?}") };
            assert_eq!(found.notices, [], "{title}");
        }
        ids.insert(family.family, id);
        addresses.insert(if family.family == Family::V4 { "20.0.0.4" } else { "2001:db8::4" }.parse().unwrap());
    }

    let actual = load_balancer::LoadBalancer::read(&env.id, &balancer).unwrap();
    let want = wants::load_balancer(&ask, settings, &ids, &Former::default(), Stage::Trimming).unwrap();
    let plan = load_balancer::plan(&only(&ask, want), Some(&actual), &env);
    written.extend(plan.edits.iter().map(|edit| format!("{edit:?}")));
    if ask.side == Side::Internal {
        // Security rules were made for the addresses of the fixture.
        addresses.extend(["10.0.0.4", "fd00::4"].map(|text| text.parse::<IpAddr>().unwrap()));
        addresses.retain(|address| ask.families.iter().any(|family| family.family == Family::of(*address)));
    }

    let env = security_group_env(settings);
    let body = as_azure_tells(bodies.security_group, &env.id);
    let actual = security_group::SecurityGroup::read(&env.id, &body).unwrap();
    let nodes = ["10.0.0.11", "10.0.0.12"].iter().map(|text| text.parse().unwrap()).collect();
    let want = wants::security_group(&ask, &addresses, &nodes, &Former::default(), Stage::Trimming);
    // Tags of the configuration were written by the Go manager, too.
    let env = security_group::Env { tags: TagPolicy::default(), nodes, ..env };
    let plan = security_group::plan(&only(&ask, want), Some(&actual), &env);
    written.extend(plan.edits.iter().map(|edit| format!("{edit:?}")));
    written
}

#[test]
fn taking_over_a_service_of_any_annotation_or_field_writes_nothing() {
    for case in cases() {
        let title = format!("{:?} {:?}", case.about, case.object.annotations);
        assert_eq!(writes(&title, &case, &case.object), Vec::<String>::new(), "{title}");
    }
}

#[test]
fn a_mistake_in_any_annotation_of_a_served_service_writes_nothing() {
    // A value that is none of its kind. Of these keys every text is one, or it has an effect on what it names alone.
    let any_text = [
        "azure-load-balancer-health-probe-request-path",
        "health-probe_request-path",
        "azure-shared-securityrule",
        "azure-additional-public-ips",
    ];
    let lists = ["azure-allowed-", "load-balancer-source-ranges", "azure-load-balancer-mode", "azure-pls-"];
    let mut tried = BTreeSet::new();
    for case in cases() {
        for key in case.object.annotations.keys() {
            if any_text.iter().any(|text| key.ends_with(text)) || lists.iter().any(|text| key.contains(text)) {
                continue;
            }
            let mut object = case.object.clone();
            object.annotations.insert(key.clone(), "no such=thing!,=".to_owned());
            if parse(&object, &case.settings, &Existing::default()).is_ok() {
                continue;
            }
            let title = format!("{key} of {:?} {:?}", case.about, case.object.annotations);
            assert_eq!(writes(&title, &case, &object), Vec::<String>::new(), "{title}");
            tried.insert(annotation::find(key).unwrap().0.key);
        }
    }
    assert!(tried.len() > 20, "{tried:?}");
}
