use lazuli_model::ServiceKey;
use serde_json::{Value, json};

use super::*;
use crate::{
    network::{Found, Plan, RefusalReason, Served, Waiting},
    service::fixtures::settings,
};

mod laws;

type Want = crate::network::Want<Part, Gone>;

fn env() -> Env {
    let settings = settings();
    Env {
        id: settings.private_link_id("group", "pls-a").unwrap(),
        cluster_name: "kubernetes".to_owned(),
        location: "westeurope".to_owned(),
        edge_zone: None,
        tags: TagPolicy::default(),
    }
}

fn frontend(name: &str) -> ArmId {
    let balancer = settings().load_balancer_id("kubernetes-internal").unwrap();
    format!("{balancer}/frontendIPConfigurations/{name}").parse().unwrap()
}

fn ask() -> PrivateLinkAsk {
    PrivateLinkAsk {
        name: None,
        resource_group: "group".to_owned(),
        subnet: "nodes".to_owned(),
        address_count: 1,
        addresses: vec![],
        host_names: vec![],
        proxy_protocol: false,
        visible_to: vec![],
        approved_for: vec![],
        is_configured: false,
    }
}

fn wants_link(ask: PrivateLinkAsk) -> Want {
    let link = Link {
        frontend: frontend("a"),
        subnet: settings().subnet_id(&ask.subnet).unwrap(),
        is_own: true,
        is_allowed: true,
        ask,
    };
    Want { present: Part { link: Some(link) }, gone: Gone::Nothing }
}

fn released() -> Want {
    Want { present: Part::default(), gone: Gone::Released }
}

fn key(number: u8) -> ServiceKey {
    ServiceKey::new("default", format!("web{number}"), format!("uid-{number}"))
}

fn step(wants: &Wants, body: Option<Value>) -> (Plan<Edit>, Option<Value>) {
    let env = env();
    let actual = body.as_ref().map(|body| PrivateLink::read(&env.id, body).unwrap());
    let plan = plan(wants, actual.as_ref(), &env);
    let after = apply_raw(body, &plan.edits, &env);
    let read = after.as_ref().map(|body| PrivateLink::read(&env.id, body).unwrap());
    assert_eq!(read, apply(actual, &plan.edits, &env));
    (plan, after)
}

fn one(number: u8, want: Want) -> Wants {
    [(key(number), want)].into()
}

/// What the first Service is told that it keeps.
fn kept_of(plan: &Plan<Edit>) -> Vec<String> {
    let Served::Done(found) = &plan.served[&key(1)] else { panic!("{plan:?}") };
    assert!(found.notices.iter().all(|notice| notice.reason == RefusalReason::KeptValue));
    found.notices.iter().map(|notice| notice.message.clone()).collect()
}

#[test]
fn its_owner_makes_it_and_configures_it_in_place() {
    let (plan, body) = step(&one(1, wants_link(ask())), None);
    assert_eq!(plan.served[&key(1)], Served::Pending);
    let (plan, body) = step(&one(1, wants_link(ask())), body);
    assert!(plan.is_quiet());
    assert_eq!(plan.served[&key(1)], Served::Done(Found::default()));
    let mut body = body.unwrap();
    body["properties"]["futureField"] = json!(1);
    let wider = PrivateLinkAsk {
        address_count: 2,
        addresses: vec!["10.0.0.9".parse().unwrap()],
        host_names: vec!["a.example".to_owned()],
        proxy_protocol: true,
        visible_to: vec!["*".to_owned()],
        is_configured: true,
        ..ask()
    };
    let (plan, after) = step(&one(1, wants_link(wider.clone())), Some(body));
    assert_eq!(plan.edits.len(), 4);
    let after = after.unwrap();
    assert_eq!(after["properties"]["futureField"], 1);
    assert_eq!(after["properties"]["ipConfigurations"][0]["properties"]["primary"], true);
    assert!(step(&one(1, wants_link(wider)), Some(after)).0.is_quiet());
}

#[test]
fn others_share_it_without_configuring_it() {
    let (_, body) = step(&one(1, wants_link(ask())), None);
    let configured = PrivateLinkAsk { proxy_protocol: true, is_configured: true, ..ask() };
    let all: Wants =
        [(key(1), wants_link(ask())), (key(2), wants_link(ask())), (key(3), wants_link(configured))].into();
    let (plan, _) = step(&all, body);
    assert!(plan.is_quiet());
    assert_eq!(plan.served[&key(2)], Served::Done(Found::default()));
    let Served::Refused(refusal) = &plan.served[&key(3)] else { panic!("{plan:?}") };
    assert_eq!(
        (refusal.reason, refusal.message.as_str()),
        (
            RefusalReason::ForeignOwner,
            "private link service pls-a belongs to Service default/web1, which alone configures it; remove all azure-pls \
             annotations but azure-pls-create"
        )
    );
    let (plan, _) = step(&[(key(1), wants_link(ask())), (key(2), wants_link(ask()))].into(), None);
    assert_eq!(plan.served[&key(2)], Served::Waiting(Waiting::For(env().id)));
}

#[test]
fn it_goes_after_its_connections_when_its_owner_gives_it_up() {
    let (_, body) = step(&one(1, wants_link(ask())), None);
    let mut body = body.unwrap();
    body["properties"]["privateEndpointConnections"] = json!([{ "name": "c1" }, { "name": "c2" }]);
    assert!(step(&Wants::new(), Some(body.clone())).0.is_quiet());
    let nothing = Want { present: Part::default(), gone: Gone::Nothing };
    assert!(step(&one(1, nothing), Some(body.clone())).0.is_quiet());
    assert!(step(&one(2, released()), Some(body.clone())).0.is_quiet());
    let (plan, body) = step(&one(1, released()), Some(body));
    assert_eq!((plan.edits, plan.is_partial), (vec![Edit::DeleteConnection("c1".to_owned())], true));
    let (_, body) = step(&one(1, released()), body);
    let (plan, body) = step(&one(1, released()), body);
    assert_eq!((plan.edits, body), (vec![Edit::Delete], None));
    assert_eq!(step(&one(1, released()), None).0.served[&key(1)], Served::Done(Found::default()));
}

#[test]
fn it_stays_while_another_service_shares_it() {
    let (_, body) = step(&one(1, wants_link(ask())), None);
    let all: Wants = [(key(1), released()), (key(2), wants_link(ask()))].into();
    let (plan, _) = step(&all, body);
    assert!(plan.is_quiet());
    assert_eq!(plan.served[&key(1)], Served::Done(Found::default()));
}

#[test]
fn one_that_this_cluster_did_not_make_is_not_written() {
    let (_, body) = step(&one(1, wants_link(ask())), None);
    let mut body = body.unwrap();
    body["tags"]["k8s-azure-cluster-name"] = json!("other");
    for wants in [one(1, wants_link(PrivateLinkAsk { proxy_protocol: true, ..ask() })), one(1, released())] {
        assert!(step(&wants, Some(body.clone())).0.is_quiet());
    }
}

#[test]
fn its_name_and_frontend_cannot_change() {
    let (_, body) = step(&one(1, wants_link(ask())), None);
    let renamed = wants_link(PrivateLinkAsk { name: Some("new".to_owned()), is_configured: true, ..ask() });
    let (plan, _) = step(&one(1, renamed), body.clone());
    assert!(matches!(&plan.served[&key(1)], Served::Refused(refusal) if refusal.reason == RefusalReason::Mismatch));
    let mut moved = wants_link(ask());
    moved.present.link.as_mut().unwrap().frontend = frontend("b");
    let (plan, _) = step(&one(1, moved), body.clone());
    assert!(matches!(&plan.served[&key(1)], Served::Refused(refusal) if refusal.reason == RefusalReason::Mismatch));
    let there = PrivateLink::read(&env().id, &body.unwrap()).unwrap();
    assert_eq!(name(&ask(), &frontend("a"), std::slice::from_ref(&there)), "pls-a");
    assert_eq!(name(&ask(), &frontend("b"), &[there]), "pls-b");
}

#[test]
fn none_is_made_or_changed_before_the_frontend_of_another_service() {
    let guest = |ask| {
        let mut want = wants_link(ask);
        want.present.link.as_mut().unwrap().is_own = false;
        want
    };
    let (plan, body) = step(&one(1, guest(ask())), None);
    assert!(matches!(&plan.served[&key(1)], Served::Refused(why) if why.reason == RefusalReason::ForeignOwner));
    assert_eq!(body, None);
    // It shares the one of the owner, and its own that is there stays as it is.
    let (_, made) = step(&one(1, wants_link(ask())), None);
    let mut both = one(1, wants_link(ask()));
    both.extend(one(2, guest(ask())));
    assert_eq!(step(&both, made.clone()).0.served[&key(2)], Served::Done(Found::default()));
    let (plan, _) = step(&one(1, guest(ask())), made.clone());
    assert!(plan.is_quiet());
    assert_eq!(
        kept_of(&plan),
        ["the Service keeps private link service pls-a in front of frontend a, which is not that of \
        this Service: a new one would not be made there"]
    );
    let (plan, _) = step(&one(1, guest(PrivateLinkAsk { visible_to: vec!["*".to_owned()], ..ask() })), made);
    assert!(plan.is_quiet() && matches!(plan.served[&key(1)], Served::Refused(_)), "{plan:?}");
}

#[test]
fn none_is_made_in_a_resource_group_that_services_may_not_name() {
    let mut want = wants_link(ask());
    want.present.link.as_mut().unwrap().is_allowed = false;
    let (plan, body) = step(&one(1, want.clone()), None);
    assert!(matches!(&plan.served[&key(1)], Served::Refused(why) if why.message.contains("resource group group")));
    assert_eq!(body, None);
    let (_, made) = step(&one(1, wants_link(ask())), None);
    let (plan, _) = step(&one(1, want), made.clone());
    assert!(plan.is_quiet());
    assert_eq!(
        kept_of(&plan),
        ["the Service keeps private link service pls-a of resource group group, though that is none \
        of --allowed-service-resource-groups: a new Service would not get it"]
    );
    let (plan, _) = step(&one(1, wants_link(ask())), made);
    assert_eq!(plan.served[&key(1)], Served::Done(Found::default()));
}
