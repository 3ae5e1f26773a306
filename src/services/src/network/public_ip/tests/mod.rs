use std::collections::BTreeMap;

use lazuli_model::ServiceKey;
use serde_json::{Value, json};

use super::*;
use crate::{
    ask::{DnsLabel, IpTag},
    network::{Found, Plan, Refusal, RefusalReason, Served, Waiting},
    service::fixtures::{public_ip_env, settings},
};

mod laws;

type Want = crate::network::Want<Part, Gone>;

fn env() -> Env {
    let settings = settings();
    public_ip_env(&settings, &settings.public_ip_id("group", "pip").unwrap())
}

fn key(number: u8) -> ServiceKey {
    ServiceKey::new("default", format!("web{number}"), format!("uid-{number}"))
}

fn uses(creation: Creation, settings: PublicIpSettings) -> Want {
    Want {
        present: Part { usage: Some(Use { family: Family::V4, creation, settings, outside: None }) },
        gone: Gone::Nothing,
    }
}

fn makes() -> Want {
    uses(Creation::Make { prefix: None }, PublicIpSettings::default())
}

fn shares() -> Want {
    uses(Creation::MustExist, PublicIpSettings::default())
}

fn labelled(label: DnsLabel) -> Want {
    uses(Creation::MustExist, PublicIpSettings { dns_label: label, ..PublicIpSettings::default() })
}

fn released() -> Want {
    Want { present: Part::default(), gone: Gone::Released }
}

fn label(text: &str) -> DnsLabel {
    DnsLabel::Set(text.to_owned())
}

fn wants<const N: usize>(all: [(u8, Want); N]) -> Wants {
    all.into_iter().map(|(number, want)| (key(number), want)).collect()
}

const GROUP: &str = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network";

/// A public IP with tags, as Azure answers it.
fn body(tags: &Value) -> Value {
    json!({
        "name": "pip", "location": "westeurope", "sku": { "name": "Standard", "tier": "Regional" }, "tags": tags,
        "properties": {
            "provisioningState": "Succeeded", "ipAddress": "20.0.0.4", "publicIPAddressVersion": "IPv4", "ipTags": [],
            "publicIPAllocationMethod": "Static", "idleTimeoutInMinutes": 4
        }
    })
}

fn tagged(services: &str) -> Value {
    body(&json!({ "k8s-azure-service": services, "k8s-azure-cluster-name": "kubernetes", "other": "1" }))
}

fn used(mut body: Value) -> Value {
    let frontend = "/subscriptions/sub/resourceGroups/group/providers/Microsoft.Network/loadBalancers/kubernetes/frontendIPConfigurations/a";
    body["properties"]["ipConfiguration"] = json!({ "id": frontend });
    body
}

fn step(wants: &Wants, body: Option<Value>, env: &Env) -> (Plan<Edit>, Option<Value>) {
    let actual = body.as_ref().map(|body| PublicIp::read(&env.id, body).unwrap());
    let plan = plan(wants, actual.as_ref(), env);
    let after = apply_raw(body, &plan.edits, env);
    (plan, after)
}

fn refusal(plan: &Plan<Edit>, number: u8) -> Refusal {
    match &plan.served[&key(number)] {
        Served::Refused(refusal) => refusal.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_public_ip_that_must_exist_is_not_made() {
    let (plan, _) = step(&wants([(1, shares())]), None, &env());
    assert!(plan.is_quiet());
    assert_eq!(
        refusal(&plan, 1),
        Refusal::new(
            RefusalReason::NotFound,
            "public IP pip does not exist in resource group group; create it or name another one"
        )
    );
    let (plan, _) = step(&wants([(1, shares()), (2, makes())]), None, &env());
    assert!(!plan.is_quiet());
    assert_eq!(plan.served[&key(1)], Served::Waiting(Waiting::For(env().id)));
}

#[test]
fn a_service_is_done_when_the_address_is_there() {
    let (plan, _) = step(&wants([(1, makes())]), Some(tagged("default/web1")), &env());
    assert!(plan.is_quiet());
    let Served::Done(found) = &plan.served[&key(1)] else { panic!("{plan:?}") };
    assert_eq!(found.addresses[&Family::V4], "20.0.0.4".parse::<IpAddr>().unwrap());
    let mut fresh = tagged("default/web1");
    fresh["properties"]["ipAddress"] = json!("");
    let (plan, _) = step(&wants([(1, makes())]), Some(fresh), &env());
    assert_eq!(plan.served[&key(1)], Served::Waiting(Waiting::Address));
    let mut updating = tagged("default/web1");
    updating["properties"]["provisioningState"] = json!("Updating");
    let (plan, _) = step(&wants([(1, makes())]), Some(updating), &env());
    assert_eq!(plan.served[&key(1)], Served::Waiting(Waiting::For(env().id)));
}

#[test]
fn services_join_the_tag_and_leave_it_in_any_letter_case() {
    let (plan, after) = step(&wants([(1, makes()), (2, shares())]), Some(tagged("Default/Web1")), &env());
    assert_eq!(plan.served[&key(2)], Served::Pending);
    assert_eq!(after.as_ref().unwrap()["tags"]["k8s-azure-service"], "Default/Web1,default/web2");
    let (_, after) = step(&wants([(1, released()), (2, shares())]), after, &env());
    assert_eq!(after.as_ref().unwrap()["tags"]["k8s-azure-service"], "default/web2");
    assert_eq!(after.as_ref().unwrap()["tags"]["other"], "1");
    let (plan, _) = step(&wants([(1, released()), (2, shares())]), after, &env());
    assert!(plan.is_quiet());
    assert_eq!(plan.served[&key(1)], Served::Done(Found::default()));
}

#[test]
fn the_last_service_in_the_tag_takes_the_public_ip_once_no_frontend_refers_to_it() {
    let all = wants([(1, released())]);
    let (plan, _) = step(&all, Some(used(tagged("default/web1"))), &env());
    assert!(plan.is_quiet());
    assert!(matches!(plan.served[&key(1)], Served::Waiting(Waiting::ReferencedBy(_))), "{plan:?}");
    let (plan, after) = step(&all, Some(tagged("default/web1")), &env());
    assert_eq!((plan.edits, after), (vec![Edit::Delete], None));
    assert_eq!(step(&all, None, &env()).0.served[&key(1)], Served::Done(Found::default()));
}

#[test]
fn a_service_that_is_unknown_or_has_given_up_nothing_deletes_nothing() {
    for all in [Wants::new(), wants([(1, Want { present: Part::default(), gone: Gone::Nothing })])] {
        assert!(step(&all, Some(tagged("default/web1")), &env()).0.is_quiet());
    }
    let (_, after) = step(&wants([(1, released())]), Some(tagged("default/web1,default/unknown")), &env());
    assert_eq!(after.unwrap()["tags"]["k8s-azure-service"], "default/unknown");
}

#[test]
fn the_last_of_a_shared_public_ip_keeps_its_tag_until_it_releases_the_whole() {
    let left = || Want { present: Part::default(), gone: Gone::LeftToOthers };
    let all = wants([(1, left()), (2, left())]);
    let (plan, after) = step(&all, Some(tagged("default/web1,default/web2")), &env());
    assert_eq!(plan.served.values().collect::<Vec<_>>(), [&Served::Pending, &Served::Pending]);
    assert_eq!(after.as_ref().unwrap()["tags"]["k8s-azure-service"], "default/web2");
    let (plan, after) = step(&all, after, &env());
    assert!(plan.is_quiet() && plan.served.values().all(|served| *served == Served::Done(Found::default())));
    assert_eq!(step(&wants([(2, released())]), after, &env()).1, None);
}

#[test]
fn a_service_of_the_same_name_that_lives_now_keeps_the_public_ip() {
    let mut all = wants([(1, makes())]);
    all.insert(ServiceKey::new("default", "web1", "older"), released());
    assert!(step(&all, Some(tagged("default/web1")), &env()).0.is_quiet());
}

#[test]
fn a_public_ip_of_a_user_is_neither_tagged_nor_deleted() {
    let mine = body(&json!({ "owner": "me" }));
    let tags = BTreeMap::from([("a".to_owned(), "b".to_owned())]);
    let tagging = uses(Creation::MustExist, PublicIpSettings { tags, ..PublicIpSettings::default() });
    let mut env = env();
    env.tags.set.insert("team".to_owned(), "x".to_owned());
    let (plan, _) = step(&wants([(1, tagging)]), Some(mine.clone()), &env);
    assert!(plan.is_quiet());
    assert!(matches!(plan.served[&key(1)], Served::Done(_)));
    let (plan, _) = step(&wants([(1, released())]), Some(mine.clone()), &env);
    assert!(plan.is_quiet());
    assert_eq!(plan.served[&key(1)], Served::Done(Found::default()));
    // A label is set, as the Go manager does, and no tag with it.
    let (_, after) = step(&wants([(1, labelled(label("web")))]), Some(mine.clone()), &env);
    let mut expected = mine;
    expected["properties"]["dnsSettings"] = json!({ "domainNameLabel": "web" });
    assert_eq!(after, Some(expected));
}

#[test]
fn a_public_ip_of_another_cluster_is_never_written() {
    let theirs = body(&json!({ "k8s-azure-service": "default/web1", "k8s-azure-cluster-name": "other" }));
    let (plan, _) = step(&wants([(1, makes())]), Some(theirs.clone()), &env());
    assert!(plan.is_quiet());
    assert_eq!(
        refusal(&plan, 1),
        Refusal::new(RefusalReason::ForeignOwner, "public IP pip belongs to cluster other; name another public IP")
    );
    let (plan, _) = step(&wants([(1, released())]), Some(theirs), &env());
    assert!(plan.is_quiet());
    assert_eq!(plan.served[&key(1)], Served::Done(Found::default()));
}

#[test]
fn tags_of_older_managers_are_read() {
    let old = body(&json!({ "service": "default/web1", "kubernetes-cluster-name": "kubernetes" }));
    assert!(step(&wants([(1, makes())]), Some(old.clone()), &env()).0.is_quiet());
    let (_, after) = step(&wants([(1, makes()), (2, shares())]), Some(old), &env());
    assert_eq!(
        after.unwrap()["tags"],
        json!({ "service": "default/web1", "kubernetes-cluster-name": "kubernetes",
            "k8s-azure-service": "default/web1,default/web2" })
    );
}

#[test]
fn a_tag_that_is_full_refuses_the_next_service() {
    let names: Vec<String> = (0..20).map(|number| format!("default/web-{number:03}")).collect();
    let (plan, _) = step(&wants([(1, shares())]), Some(tagged(&names.join(","))), &env());
    assert!(plan.is_quiet());
    assert_eq!(
        refusal(&plan, 1),
        Refusal::new(
            RefusalReason::LimitExceeded,
            "public IP pip is shared by 20 Services, and its tag k8s-azure-service has no room for another name: Azure allows \
             256 characters. Use another public IP"
        )
    );
}

#[test]
fn the_dns_label_belongs_to_one_service() {
    let two = tagged("default/web2,default/web1");
    let (_, after) = step(&wants([(1, makes()), (2, labelled(label("web")))]), Some(two), &env());
    let after = after.unwrap();
    assert_eq!(after["properties"]["dnsSettings"], json!({ "domainNameLabel": "web" }));
    assert_eq!(after["tags"]["k8s-azure-dns-label-service"], "default/web2");
    // Another Service may not change it.
    let (plan, _) =
        step(&wants([(1, labelled(label("mine"))), (2, labelled(label("web")))]), Some(after.clone()), &env());
    assert!(plan.is_quiet());
    assert_eq!(
        refusal(&plan, 1),
        Refusal::new(
            RefusalReason::ForeignOwner,
            "the DNS label of public IP pip belongs to Service default/web2; remove annotation \
             service.beta.kubernetes.io/azure-dns-label-name from one of the two Services"
        )
    );
    // Its owner removes it with an empty annotation, and its tag with it.
    let (_, removed) = step(&wants([(2, labelled(DnsLabel::Removed))]), Some(after.clone()), &env());
    let removed = removed.unwrap();
    assert_eq!(removed["properties"].get("dnsSettings"), None);
    assert_eq!(removed["tags"].get("k8s-azure-dns-label-service"), None);
    // Without the annotation it stays, and the tag goes with the owner.
    assert!(step(&wants([(2, shares())]), Some(after.clone()), &env()).0.is_quiet());
    let (_, left) = step(&wants([(1, makes()), (2, released())]), Some(after), &env());
    let left = left.unwrap();
    assert_eq!(left["properties"]["dnsSettings"], json!({ "domainNameLabel": "web" }));
    assert_eq!(left["tags"].get("k8s-azure-dns-label-service"), None);
}

#[test]
fn two_new_labels_on_one_public_ip_refuse_the_second() {
    let (plan, _) = step(
        &wants([(1, labelled(label("one"))), (2, labelled(label("two")))]),
        Some(tagged("default/web1,default/web2")),
        &env(),
    );
    assert!(plan.edits.contains(&Edit::DnsLabel(Some("one".to_owned()))));
    assert_eq!(refusal(&plan, 2).reason, RefusalReason::ForeignOwner);
}

#[test]
fn changed_ip_tags_are_an_event_and_the_address_stays() {
    let ip_tags = Some(vec![IpTag { kind: "RoutingPreference".to_owned(), tag: "Internet".to_owned() }]);
    let want =
        || uses(Creation::Make { prefix: None }, PublicIpSettings { ip_tags: ip_tags.clone(), ..Default::default() });
    let mut env = env();
    let (plan, _) = step(&wants([(1, want())]), Some(tagged("default/web1")), &env);
    assert!(plan.is_quiet());
    let Served::Done(found) = &plan.served[&key(1)] else { panic!("{plan:?}") };
    assert_eq!(found.notices[0].reason, RefusalReason::WouldReplaceAddress);
    env.may_change_ip_tags = true;
    let (plan, after) = step(&wants([(1, want())]), Some(tagged("default/web1")), &env);
    assert_eq!(plan.edits.len(), 1);
    let after = after.unwrap();
    assert_eq!(after["properties"]["ipTags"], json!([{ "ipTagType": "RoutingPreference", "tag": "Internet" }]));
    assert!(step(&wants([(1, want())]), Some(after), &env).0.is_quiet());
}

#[test]
fn a_public_ip_of_another_family_or_sku_is_refused() {
    let mut six = tagged("default/web1");
    six["properties"]["publicIPAddressVersion"] = json!("IPv6");
    assert_eq!(
        refusal(&step(&wants([(1, makes())]), Some(six), &env()).0, 1),
        Refusal::new(RefusalReason::Mismatch, "public IP pip is IPv6, and the Service needs IPv4; name another one")
    );
    let mut basic = tagged("default/web1");
    basic["sku"] = json!({ "name": "Basic" });
    assert_eq!(refusal(&step(&wants([(1, makes())]), Some(basic), &env()).0, 1).reason, RefusalReason::Mismatch);
}

#[test]
fn system_tags_take_what_is_neither_theirs_nor_ours() {
    let mut env = env();
    env.tags.set.insert("team".to_owned(), "x".to_owned());
    env.tags.keep_prefixes = vec!["sys".to_owned()];
    let mut there = tagged("default/web1");
    there["tags"]["system-a"] = json!("1");
    let (_, after) = step(&wants([(1, makes())]), Some(there), &env);
    assert_eq!(
        after.unwrap()["tags"],
        json!({ "k8s-azure-service": "default/web1", "k8s-azure-cluster-name": "kubernetes", "system-a": "1", "team": "x" })
    );
}

#[test]
fn the_tags_of_a_listed_service_that_has_told_nothing_stay() {
    let mut env = env();
    env.tags.set.insert("team".to_owned(), "x".to_owned());
    let mut there = tagged("default/web2,default/web1");
    there["tags"]["team"] = json!("y");
    let look = || Want { present: Part::default(), gone: Gone::Nothing };
    let annotated = uses(
        Creation::MustExist,
        PublicIpSettings { tags: [("team".to_owned(), "y".to_owned())].into(), ..PublicIpSettings::default() },
    );
    for told in [wants([(1, look()), (2, look())]), wants([(1, shares())]), wants([(1, shares()), (2, annotated)])] {
        assert_eq!(step(&told, Some(there.clone()), &env).0.edits, [], "{told:?}");
    }
    let (_, after) = step(&wants([(1, shares()), (2, shares())]), Some(there), &env);
    assert_eq!(after.unwrap()["tags"]["team"], "x", "the annotation is gone");
}

#[test]
fn a_public_ip_whose_frontend_stays_goes_when_the_frontend_has_gone() {
    let kept = || Want { present: Part::default(), gone: Gone::KeptByFrontend };
    let plan_of = |wants: &Wants, body: &Value| plan(wants, Some(&PublicIp::read(&env().id, body).unwrap()), &env());
    let tagged = |user: &str| {
        let mut body = body(&json!({ tags::SERVICES: "default/web1", tags::CLUSTER: "kubernetes" }));
        body["properties"]["ipConfiguration"] = json!({ "id": user });
        body
    };
    let frontend =
        "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/loadBalancers/lb/frontendIPConfigurations/f";
    let first = plan_of(&wants([(1, kept())]), &tagged(frontend));
    assert_eq!(first.served[&key(1)], Served::Pending);
    let noted = apply_raw(Some(tagged(frontend)), &first.edits, &env()).unwrap();
    assert_eq!(noted["tags"][tags::RELEASED], json!("default/web1"));
    let second = plan_of(&wants([(1, kept())]), &noted);
    assert!(second.is_quiet() && second.served[&key(1)] == Served::Done(Found::default()), "{second:?}");
    // Without the frontend it goes at the want of any Service that gives it up, and not at that of one that only looks.
    let mut left = noted.clone();
    left["properties"]["ipConfiguration"] = Value::Null;
    let look = || Want { present: Part::default(), gone: Gone::Nothing };
    let others = || Want { present: Part::default(), gone: Gone::LeftToOthers };
    assert!(plan_of(&wants([(2, look())]), &left).is_quiet());
    assert_eq!(plan_of(&wants([(2, others())]), &left).edits, [Edit::Delete]);
    assert!(plan_of(&wants([(2, others())]), &noted).is_quiet());
    // A Service that uses it takes the note away.
    let again = plan_of(&wants([(1, makes())]), &noted);
    assert_eq!(again.served[&key(1)], Served::Pending);
    let back = apply_raw(Some(noted), &again.edits, &env()).unwrap();
    assert!(!PublicIp::read(&env().id, &back).unwrap().is_released());
    assert!(matches!(plan_of(&wants([(1, makes())]), &back).served[&key(1)], Served::Done(_)));
}

/// A public IP that this frontend or IP configuration has.
fn used_by(tags: &Value, user: &str) -> Value {
    let mut body = body(tags);
    body["properties"]["ipConfiguration"] = json!({ "id": format!("{GROUP}/{user}") });
    body["properties"]["dnsSettings"] = json!({ "domainNameLabel": "theirs", "fqdn": "theirs.example" });
    body
}

#[test]
fn a_public_ip_that_something_else_uses_keeps_its_label_and_its_tags() {
    let asks = || {
        let tags = [("team".to_owned(), "mine".to_owned())].into();
        uses(Creation::MustExist, PublicIpSettings { dns_label: label("mine"), tags, tags_stay: false, ip_tags: None })
    };
    let env = env();
    let own = crate::ask::names::BaseName::of(&key(1));
    let other = format!("a{}", "0".repeat(31));
    let tagged = json!({ tags::SERVICES: "default/web1,default/other", tags::CLUSTER: "kubernetes" });
    let labels = |body: &Value| {
        let plan = plan(&wants([(1, asks())]), Some(&PublicIp::read(&env.id, body).unwrap()), &env);
        let changes = plan.edits.iter().any(|edit| match edit {
            Edit::DnsLabel(_) => true,
            Edit::Tags { set, .. } => set.contains_key("team"),
            _ => false,
        });
        (changes, plan.served[&key(1)].clone())
    };
    for user in [
        "networkInterfaces/vm/ipConfigurations/i".to_owned(),
        "applicationGateways/g/frontendIPConfigurations/f".to_owned(),
        "loadBalancers/theirs/frontendIPConfigurations/f".to_owned(),
        format!("loadBalancers/kubernetes/frontendIPConfigurations/{other}"),
    ] {
        for tags in [json!({}), tagged.clone()] {
            let (changes, served) = labels(&used_by(&tags, &user));
            assert!(!changes, "{user} {tags}");
            let Served::Done(found) = served else { panic!("{served:?}") };
            assert_eq!(found.notices[0].reason, RefusalReason::SharedAddress);
        }
    }
    // Its own frontend, one that the last other Service has left to it, and none.
    let alone = json!({ tags::SERVICES: "default/web1", tags::CLUSTER: "kubernetes" });
    for (tags, user) in [
        (json!({}), format!("loadBalancers/kubernetes/frontendIPConfigurations/{own}")),
        (alone.clone(), format!("loadBalancers/kubernetes/frontendIPConfigurations/{other}")),
    ] {
        assert!(labels(&used_by(&tags, &user)).0, "{user}");
    }
    assert!(labels(&body(&json!({}))).0);
}

#[test]
fn before_a_frontend_has_a_public_ip_its_maker_or_the_first_in_its_tag_sets_label_and_tags() {
    let key = |number: u8| {
        ServiceKey::new("default", format!("web{number}"), format!("{number:08}-4e5f-6071-8293-a4b5c6d7e8f9"))
    };
    let tags = [("team".to_owned(), "mine".to_owned())].into();
    let settings = PublicIpSettings { dns_label: label("mine"), tags, tags_stay: false, ip_tags: None };
    let asked: Wants = [(key(1), uses(Creation::MustExist, settings)), (key(2), shares())].into();
    let made_for = |number: u8| {
        let name = format!("kubernetes-{}", crate::ask::names::BaseName::of(&key(number)));
        Env { id: crate::service::fixtures::settings().public_ip_id("group", &name).unwrap(), ..env() }
    };
    for (services, env, is_set) in [
        ("default/web1", env(), true),
        ("default/web1,default/web2", env(), true),
        ("default/web2,default/web1", made_for(1), true),
        ("default/web2", env(), false),
        ("default/web2,default/web1", env(), false),
        ("default/web1,default/web2", made_for(2), false),
        ("default/web1", made_for(2), true),
    ] {
        let plan = plan(&asked, Some(&PublicIp::read(&env.id, &tagged(services)).unwrap()), &env);
        let is_label = |edit: &Edit| *edit == Edit::DnsLabel(Some("mine".to_owned()));
        let is_tag = |edit: &Edit| matches!(edit, Edit::Tags { set, .. } if set.contains_key("team"));
        assert_eq!((plan.edits.iter().any(is_label), plan.edits.iter().any(is_tag)), (is_set, is_set), "{services}");
        match &plan.served[&key(1)] {
            // It waits for its name in the tag, and not for the label: the frontend would wait for that.
            Served::Pending => assert!(is_set || !services.contains("web1"), "{services}"),
            Served::Done(found) => {
                assert_eq!((found.notices[0].reason, is_set), (RefusalReason::SharedAddress, false));
                assert!(found.notices[0].message.contains("Service default/web2"), "{found:?}");
            }
            served => panic!("{served:?}"),
        }
    }
}

#[test]
fn a_guest_does_not_change_the_ip_tags_which_would_replace_the_address() {
    let ip_tags = vec![IpTag { kind: "RoutingPreference".to_owned(), tag: "Internet".to_owned() }];
    let asks = || {
        let ip_tags = Some(ip_tags.clone());
        uses(Creation::MustExist, PublicIpSettings { ip_tags, ..PublicIpSettings::default() })
    };
    let env = Env { may_change_ip_tags: true, ..env() };
    let owners = crate::ask::names::BaseName::of(&key(2));
    let user = format!("loadBalancers/kubernetes/frontendIPConfigurations/{owners}");
    let there = used_by(&json!({ tags::SERVICES: "default/web1,default/web2", tags::CLUSTER: "kubernetes" }), &user);
    let (plan, _) = step(&wants([(1, asks()), (2, shares())]), Some(there.clone()), &env);
    assert!(plan.is_quiet(), "{plan:?}");
    let Served::Done(found) = &plan.served[&key(1)] else { panic!("{plan:?}") };
    assert_eq!(found.notices[0].reason, RefusalReason::SharedAddress);
    // The owner may.
    let (plan, _) = step(&wants([(1, shares()), (2, asks())]), Some(there), &env);
    assert_eq!(plan.edits, [Edit::IpTags(ip_tags)]);
}

#[test]
fn a_public_ip_of_a_resource_group_that_services_may_not_name_is_kept_and_not_taken() {
    let status = |address: &str| -> Option<BTreeSet<IpAddr>> { Some([address.parse().unwrap()].into()) };
    let outside = |want: Want, outside| {
        let usage = Use { outside, ..want.present.usage.unwrap() };
        Want { present: Part { usage: Some(usage) }, gone: Gone::Nothing }
    };
    let plan_of = |want: Want, body: Option<&Value>| {
        let actual = body.map(|body| PublicIp::read(&env().id, body).unwrap());
        plan(&wants([(1, want)]), actual.as_ref(), &env())
    };
    let refused = |plan: &Plan<Edit>| matches!(&plan.served[&key(1)], Served::Refused(why) if why.message.contains("--allowed-service-resource-groups"));
    let none = plan_of(outside(makes(), Some(Default::default())), None);
    assert!(refused(&none) && none.is_quiet(), "{none:?}");
    let theirs = body(&json!({}));
    assert!(refused(&plan_of(outside(shares(), Some(Default::default())), Some(&theirs))));
    assert!(!refused(&plan_of(outside(shares(), status("20.0.0.4")), Some(&theirs))), "the status has its address");
    let listed = body(&json!({ tags::SERVICES: "default/web1", tags::CLUSTER: "kubernetes" }));
    let kept = plan_of(outside(makes(), Some(Default::default())), Some(&listed));
    let Served::Done(found) = &kept.served[&key(1)] else { panic!("its tag lists the Service: {kept:?}") };
    assert_eq!(
        found.notices,
        [Refusal::new(
            RefusalReason::KeptValue,
            "the Service keeps public IP pip of resource group group, though that is none of \
             --allowed-service-resource-groups: a new Service would not get it"
        )]
    );
    let Served::Done(found) = &plan_of(makes(), Some(&listed)).served[&key(1)] else { panic!() };
    assert_eq!(found.notices, []);
}
