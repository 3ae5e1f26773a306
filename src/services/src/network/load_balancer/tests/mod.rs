use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use lazuli_model::ServiceKey;
use serde_json::{Value, json};

use super::*;
use crate::{
    ask::{AddressAsk, PortProtocol, Side},
    network::{Found, Plan, Refusal, RefusalReason, Served, Settings, Waiting, Want},
    service::{
        Existing, ServiceObject,
        fixtures::{SUBSCRIPTION, annotated, load_balancer_env, port, service, settings},
        parse,
        wants::{self, Former, Stage},
    },
};

mod laws;
mod members;
mod sharing;

fn env() -> Env {
    load_balancer_env(&settings(), Side::Public)
}

/// The public Service of a number, with TCP ports.
fn numbered(number: u8, ports: &[u16]) -> ServiceObject {
    let key =
        ServiceKey::new("default", format!("web{number}"), format!("{number:02x}000000-0000-4000-8000-000000000000"));
    ServiceObject { key, ports: ports.iter().map(|number| port(PortProtocol::Tcp, *number)).collect(), ..service() }
}

fn base(object: &ServiceObject) -> String {
    BaseName::of(&object.key).to_string()
}

/// What a Service wants of its load balancer; a public IP that is only named by its address is called `shared`.
fn want_of(object: &ServiceObject, settings: &Settings, stage: Stage) -> Want<Part, Gone> {
    let ask = parse(object, settings, &Existing::default()).unwrap_or_else(|mistakes| panic!("{mistakes:?}"));
    let mut ids = BTreeMap::new();
    for family in &ask.families {
        if let AddressAsk::Public(public) = &family.address {
            let id = wants::public_ip_id(public, settings).unwrap();
            let id = id.unwrap_or_else(|| settings.public_ip_id("group", "shared").unwrap());
            ids.insert(family.family, id);
        }
    }
    wants::load_balancer(&ask, settings, &ids, &Former::default(), stage).unwrap()
}

fn wants_of(objects: &[&ServiceObject]) -> Wants {
    let settings = settings();
    objects.iter().map(|object| (object.key.clone(), want_of(object, &settings, Stage::Trimming))).collect()
}

/// The wants with a Service gone from this load balancer.
fn without(mut wants: Wants, object: &ServiceObject) -> Wants {
    wants.insert(
        object.key.clone(),
        wants::load_balancer_left(&object.key, &settings(), &Former::default(), Stage::Trimming),
    );
    wants
}

fn read(body: Option<&Value>, env: &Env) -> Option<LoadBalancer> {
    body.map(|body| LoadBalancer::read(&env.id, body).unwrap())
}

/// Plans once and applies the edits to the body.
fn step(wants: &Wants, body: Option<Value>, env: &Env) -> (Plan<Edit>, Option<Value>) {
    let plan = plan(wants, read(body.as_ref(), env).as_ref(), env);
    let after = apply_raw(body, &plan.edits, env);
    (plan, after)
}

/// Plans until nothing is left to write.
fn settle(wants: &Wants, mut body: Option<Value>, env: &Env) -> Option<Value> {
    for _ in 0..50 {
        let (plan, after) = step(wants, body, env);
        if plan.is_quiet() {
            return after;
        }
        body = after;
    }
    panic!("it does not converge");
}

fn names(body: &Value, list: &str) -> BTreeSet<String> {
    let items = body["properties"][list].as_array().cloned().unwrap_or_default();
    items.iter().map(|item| item["name"].as_str().unwrap().to_owned()).collect()
}

fn refusal(plan: &Plan<Edit>, object: &ServiceObject) -> Refusal {
    match &plan.served[&object.key] {
        Served::Refused(refusal) => refusal.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_service_is_pending_until_its_parts_are_observed_and_then_done() {
    let (web, env) = (numbered(1, &[80]), env());
    let wants = wants_of(&[&web]);
    let (first, body) = step(&wants, None, &env);
    assert_eq!(first.served[&web.key], Served::Pending);
    assert_eq!(write_target(&first.edits), WriteTarget::Whole);
    let (second, _) = step(&wants, body, &env);
    assert!(second.is_quiet());
    let Served::Done(Found { frontends, .. }) = &second.served[&web.key] else { panic!("{second:?}") };
    assert_eq!(frontends[&Family::V4].name(), base(&web));
}

#[test]
fn no_wants_write_nothing_and_delete_nothing() {
    let env = env();
    let body = settle(&wants_of(&[&numbered(1, &[80])]), None, &env);
    let (plan, after) = step(&Wants::new(), body.clone(), &env);
    assert!(plan.is_quiet());
    assert_eq!(after, body);
    assert!(step(&Wants::new(), None, &env).0.is_quiet());
}

#[test]
fn a_deleted_service_takes_its_own_parts_and_the_last_one_the_load_balancer() {
    let (one, two) = (numbered(1, &[80, 443]), numbered(2, &[80]));
    let mut env = env();
    env.pools.insert("kubernetes".to_owned(), members::nic_pool());
    let both = wants_of(&[&one, &two]);
    let body = settle(&both, None, &env);
    let (plan, after) = step(&without(both.clone(), &one), body, &env);
    assert_eq!(plan.served[&one.key], Served::Pending);
    let after = after.unwrap();
    assert_eq!(names(&after, "loadBalancingRules"), [format!("{}-TCP-80", base(&two))].into());
    assert_eq!(names(&after, "probes"), [format!("{}-TCP-80", base(&two))].into());
    assert_eq!(names(&after, "frontendIPConfigurations"), [base(&two)].into());
    let last = without(without(both, &one), &two);
    let (plan, gone) = step(&last, Some(after), &env);
    assert_eq!(plan.edits, [Edit::Delete]);
    assert_eq!(gone, None);
    assert_eq!(step(&last, None, &env).0.served[&two.key], Served::Done(Found::default()));
}

#[test]
fn a_load_balancer_goes_only_after_the_nics_have_left_its_pools() {
    let (web, mut env) = (numbered(1, &[80]), env());
    env.pools.insert("kubernetes".to_owned(), members::nic_pool());
    let wants = wants_of(&[&web]);
    let mut body = settle(&wants, None, &env).unwrap();
    body["properties"]["backendAddressPools"][0]["properties"]["backendIPConfigurations"] = json!([{ "id": "nic" }]);
    let (plan, _) = step(&without(wants.clone(), &web), Some(body.clone()), &env);
    assert!(plan.is_quiet());
    let pool = LoadBalancer::pool_id(&env.id, "kubernetes");
    assert_eq!(plan.served[&web.key], Served::Waiting(Waiting::MembersLeave(vec![pool.clone()])));
    body["properties"]["backendAddressPools"][0]["properties"]["backendIPConfigurations"] = json!([]);
    // A scale set without instances has no members, and Azure refuses the deletion for its model.
    env.in_models = [pool.clone()].into();
    let (plan, _) = step(&without(wants.clone(), &web), Some(body.clone()), &env);
    assert_eq!(plan.served[&web.key], Served::Waiting(Waiting::MembersLeave(vec![pool])));
    env.in_models.clear();
    assert_eq!(step(&without(wants, &web), Some(body), &env).0.edits, [Edit::Delete]);
}

#[test]
fn who_gives_up_the_address_of_a_departed_service_waits_for_the_nics_too() {
    let (web, mut env) = (numbered(1, &[80]), env());
    env.pools.insert("kubernetes".to_owned(), members::nic_pool());
    let mut body = settle(&wants_of(&[&web]), None, &env).unwrap();
    let address = "10.240.1.2";
    body["properties"]["loadBalancingRules"] = json!([]);
    body["properties"]["probes"] = json!([]);
    body["properties"]["frontendIPConfigurations"] =
        json!([{"name": base(&numbered(2, &[80])), "properties": {"privateIPAddress": address}}]);
    body["properties"]["backendAddressPools"][0]["properties"]["backendIPConfigurations"] = json!([{ "id": "nic" }]);
    let gone = Gone::Everything {
        base: BaseName::of(&web.key),
        pools: vec![],
        public_ips: BTreeSet::new(),
        addresses: [address.parse().unwrap()].into(),
    };
    let wants: Wants = [(web.key.clone(), Want { present: Part::default(), gone })].into();
    let (plan, _) = step(&wants, Some(body.clone()), &env);
    let pool = LoadBalancer::pool_id(&env.id, "kubernetes");
    assert_eq!((plan.edits, &plan.served[&web.key]), (vec![], &Served::Waiting(Waiting::MembersLeave(vec![pool]))));
    body["properties"]["backendAddressPools"][0]["properties"]["backendIPConfigurations"] = json!([]);
    assert_eq!(step(&wants, Some(body), &env).0.edits, [Edit::Delete]);
}

#[test]
fn a_load_balancer_with_other_peoples_parts_stays_when_its_last_service_goes() {
    let (web, mut env) = (numbered(1, &[80]), env());
    env.pools.insert("kubernetes".to_owned(), members::nic_pool());
    let wants = wants_of(&[&web]);
    let mut body = settle(&wants, None, &env).unwrap();
    let pools = body["properties"]["backendAddressPools"].as_array_mut().unwrap();
    pools.push(json!({ "name": "theirs", "properties": {} }));
    let after = settle(&without(wants, &web), Some(body), &env).unwrap();
    assert_eq!(names(&after, "backendAddressPools"), ["kubernetes".to_owned(), "theirs".to_owned()].into());
    assert!(names(&after, "loadBalancingRules").is_empty());
}

#[test]
fn nothing_of_a_service_goes_while_its_new_parts_are_only_added() {
    let settings = settings();
    let env = env();
    let before = numbered(1, &[80, 443]);
    let body = settle(&wants_of(&[&before]), None, &env);
    let after = numbered(1, &[80, 8080]);
    let adding: Wants = [(after.key.clone(), want_of(&after, &settings, Stage::Adding))].into();
    let body = settle(&adding, body, &env);
    assert_eq!(names(body.as_ref().unwrap(), "loadBalancingRules").len(), 3);
    let body = settle(&wants_of(&[&after]), body, &env).unwrap();
    let left: BTreeSet<String> = [80, 8080].map(|port| format!("{}-TCP-{port}", base(&after))).into();
    assert_eq!(names(&body, "loadBalancingRules"), left);
    assert_eq!(names(&body, "probes"), left);
}

#[test]
fn rules_go_before_frontends_where_an_address_is_given_up() {
    let (settings, env) = (settings(), load_balancer_env(&settings(), Side::Internal));
    let subnet = |name: &str| {
        let pairs = [("azure-load-balancer-internal", "true"), ("azure-load-balancer-internal-subnet", name)];
        annotated(&pairs)
    };
    let (old, new) = (subnet("one"), subnet("two"));
    let wants = |object: &ServiceObject, stage| Wants::from([(object.key.clone(), want_of(object, &settings, stage))]);
    let body = settle(&wants(&old, Stage::Trimming), None, &env);
    let count = |body: &Option<Value>| {
        let body = body.as_ref().unwrap();
        (names(body, "frontendIPConfigurations").len(), names(body, "loadBalancingRules").len())
    };
    let body = settle(&wants(&new, Stage::Frontends), body, &env);
    assert_eq!(count(&body), (2, 1));
    let body = settle(&wants(&new, Stage::Adding), body, &env);
    assert_eq!(count(&body), (2, 2));
    let body = settle(&wants(&new, Stage::Quieting), body, &env);
    assert_eq!(count(&body), (2, 1));
    assert_eq!(count(&settle(&wants(&new, Stage::Trimming), body, &env)), (1, 1));
}

#[test]
fn a_plan_says_whether_it_replaces_what_exists() {
    let env = env();
    let web = numbered(1, &[80]);
    let (first, body) = step(&wants_of(&[&web]), None, &env);
    assert!(!replaces(&first.edits, None));
    let (more, _) = step(&wants_of(&[&web, &numbered(2, &[80])]), body.clone(), &env);
    assert!(!replaces(&more.edits, read(body.as_ref(), &env).as_ref()));
    let affine = ServiceObject { is_client_ip_affine: true, ..web };
    let (change, _) = step(&wants_of(&[&affine]), body.clone(), &env);
    assert!(replaces(&change.edits, read(body.as_ref(), &env).as_ref()));
}

#[test]
fn a_service_that_becomes_local_changes_its_probe_and_the_old_one_goes() {
    let env = env();
    let body = settle(&wants_of(&[&numbered(1, &[80])]), None, &env);
    let local = ServiceObject { is_local: true, health_check_node_port: 31_000, ..numbered(1, &[80]) };
    let (_, body) = step(&wants_of(&[&local]), body, &env);
    assert_eq!(names(&body.unwrap(), "probes"), [format!("{}-TCP-31000", base(&local))].into());
}

#[test]
fn the_shared_probe_goes_with_the_last_rule_that_names_it() {
    let mut settings = settings();
    let path = "/healthz".to_owned();
    settings.shared_probe = Some(crate::network::settings::SharedProbe { port: 10_256, path });
    let env = env();
    let (one, two) = (numbered(1, &[80]), numbered(2, &[80]));
    let wants: Wants =
        [&one, &two].map(|object| (object.key.clone(), want_of(object, &settings, Stage::Trimming))).into();
    let body = settle(&wants, None, &env);
    assert_eq!(names(body.as_ref().unwrap(), "probes"), ["cluster-service-shared-health-probe".to_owned()].into());
    let local = ServiceObject { is_local: true, health_check_node_port: 31_000, ..numbered(2, &[80]) };
    let mut wants = without(wants, &one);
    let body = settle(&wants, body, &env);
    assert_eq!(names(body.as_ref().unwrap(), "probes").len(), 1);
    wants.insert(local.key.clone(), want_of(&local, &settings, Stage::Trimming));
    let body = settle(&wants, body, &env).unwrap();
    assert_eq!(names(&body, "probes"), [format!("{}-TCP-31000", base(&two))].into());
}

#[test]
fn what_the_body_holds_beside_is_kept_when_a_rule_changes() {
    let env = env();
    let web = numbered(1, &[80]);
    let mut body = settle(&wants_of(&[&web]), None, &env).unwrap();
    body["etag"] = json!("W/\"1\"");
    body["properties"]["loadBalancingRules"][0]["properties"]["futureField"] = json!({ "x": 1 });
    body["properties"]["loadBalancingRules"][0]["etag"] = json!("W/\"1\"");
    let affine = ServiceObject { is_client_ip_affine: true, ..web };
    let (plan, after) = step(&wants_of(&[&affine]), Some(body.clone()), &env);
    assert_eq!(plan.edits.len(), 1);
    body["properties"]["loadBalancingRules"][0]["properties"]["loadDistribution"] = json!("SourceIP");
    assert_eq!(after, Some(body));
}

#[test]
fn tags_of_the_configuration_are_written_while_a_service_is_there() {
    let mut env = env();
    let web = numbered(1, &[80]);
    let body = settle(&wants_of(&[&web]), None, &env);
    env.tags.set.insert("team".to_owned(), "x".to_owned());
    assert!(step(&Wants::new(), body.clone(), &env).0.is_quiet());
    let after = settle(&wants_of(&[&web]), body, &env);
    assert_eq!(after.unwrap()["tags"], json!({ "team": "x" }));
}

#[test]
fn an_internal_service_waits_for_its_address_and_then_tells_it() {
    let settings = settings();
    let env = load_balancer_env(&settings, Side::Internal);
    let object = annotated(&[("azure-load-balancer-internal", "true")]);
    let wants: Wants = [(object.key.clone(), want_of(&object, &settings, Stage::Trimming))].into();
    let mut body = settle(&wants, None, &env).unwrap();
    let (plan, _) = step(&wants, Some(body.clone()), &env);
    assert_eq!(plan.served[&object.key], Served::Waiting(Waiting::Address));
    body["properties"]["frontendIPConfigurations"][0]["properties"]["privateIPAddress"] = json!("10.0.0.9");
    let (plan, _) = step(&wants, Some(body), &env);
    assert!(plan.is_quiet());
    let Served::Done(found) = &plan.served[&object.key] else { panic!("{plan:?}") };
    assert_eq!(found.addresses[&Family::V4], "10.0.0.9".parse::<IpAddr>().unwrap());
}

#[test]
fn a_frontend_stays_in_its_subnet_unless_an_annotation_names_another() {
    let mut settings = settings();
    let env = load_balancer_env(&settings, Side::Internal);
    let object = annotated(&[("azure-load-balancer-internal", "true")]);
    let key = object.key.clone();
    let body = settle(&[(key.clone(), want_of(&object, &settings, Stage::Trimming))].into(), None, &env);
    settings.subnet_name = "other".to_owned();
    let wants: Wants = [(key, want_of(&object, &settings, Stage::Trimming))].into();
    assert!(step(&wants, body, &env).0.is_quiet());
}

#[test]
fn a_load_balancer_of_another_sku_serves_on_and_takes_no_new_service() {
    let env = env();
    let (one, two) = (numbered(1, &[80]), numbered(2, &[80]));
    let mut body = settle(&wants_of(&[&one]), None, &env).unwrap();
    body["sku"]["name"] = json!("Basic");
    let (plan, _) = step(&wants_of(&[&one, &two]), Some(body), &env);
    assert!(plan.is_quiet());
    assert!(matches!(plan.served[&one.key], Served::Done(_)));
    assert_eq!(
        refusal(&plan, &two),
        Refusal::new(
            RefusalReason::Mismatch,
            "load balancer kubernetes is Basic, and loadBalancerSku says Standard: this controller does not migrate it; let a Go \
             cloud-controller-manager that migrates load balancers do that before, or set loadBalancerSku to basic"
        )
    );
}

#[test]
fn limits_of_azure_refuse_the_newcomer_in_a_sentence() {
    let mut env = env();
    env.sku = LoadBalancerSku::Basic;
    env.maximum_rules = 3;
    let mut settings = settings();
    settings.sku = LoadBalancerSku::Basic;
    let objects = [numbered(2, &[80, 443]), numbered(1, &[80, 443])];
    let want = |object: &ServiceObject| (object.key.clone(), want_of(object, &settings, Stage::Trimming));
    let body = settle(&[want(&objects[0])].into(), None, &env);
    let (plan, after) = step(&[want(&objects[0]), want(&objects[1])].into(), body.clone(), &env);
    assert!(plan.is_quiet());
    assert_eq!(after, body);
    assert!(matches!(plan.served[&objects[0].key], Served::Done(_)));
    assert_eq!(
        refusal(&plan, &objects[1]),
        Refusal::new(
            RefusalReason::LimitExceeded,
            "load balancer kubernetes would have 4 rules with this Service; Azure allows 3. Remove Services or use several \
             load balancers"
        )
    );
}

#[test]
fn a_load_balancer_takes_as_many_rules_as_azure_allows_and_not_one_more() {
    let env = env();
    let nth = |number: u16| {
        let uid = format!("{number:08x}-0000-4000-8000-000000000000");
        let key = ServiceKey::new("default", format!("web{number}"), uid);
        ServiceObject { key, ..numbered(0, &[80, 443, 8443]) }
    };
    let objects: Vec<ServiceObject> = (0..500).map(nth).collect();
    let mut wants = wants_of(&objects.iter().collect::<Vec<_>>());
    let (_, body) = step(&wants, None, &env);
    assert_eq!(names(body.as_ref().unwrap(), "loadBalancingRules").len(), limits::STANDARD_RULES);
    let one_more = nth(500);
    wants.extend(wants_of(&[&one_more]));
    let (plan, _) = step(&wants, body, &env);
    assert!(plan.is_quiet());
    assert!(refusal(&plan, &one_more).message.contains("would have 1503 rules"));
}
