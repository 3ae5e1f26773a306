//! The five laws, on random Services of one public IP.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn want() -> impl Strategy<Value = Option<Want>> {
    let label = prop_oneof![
        Just(DnsLabel::Untouched),
        Just(DnsLabel::Untouched),
        Just(DnsLabel::Removed),
        Just(label("one")),
        Just(label("two"))
    ];
    let tags = proptest::option::of(Just(("team".to_owned(), "y".to_owned())));
    let usage = (any::<bool>(), label, tags).prop_map(|(makes, dns_label, tags)| {
        let creation = if makes { Creation::Make { prefix: None } } else { Creation::MustExist };
        uses(creation, PublicIpSettings { dns_label, tags: tags.into_iter().collect(), ..Default::default() })
    });
    let nothing = Want { present: Part::default(), gone: Gone::Nothing };
    let left = Want { present: Part::default(), gone: Gone::LeftToOthers };
    prop_oneof![Just(None), Just(Some(released())), Just(Some(left)), Just(Some(nothing)), usage.prop_map(Some)]
}

/// A public IP of random tags; `None` where there is none.
fn world() -> impl Strategy<Value = Option<Value>> {
    let services = proptest::sample::subsequence(vec!["default/web1", "Default/WEB2", "default/other"], 0..=3);
    let cluster = proptest::sample::select(vec!["kubernetes", "other"]);
    let dns = proptest::option::of(proptest::sample::select(vec!["default/web1", "default/web2"]));
    (any::<bool>(), any::<bool>(), services, cluster, dns, any::<bool>()).prop_map(
        |(exists, is_used, services, cluster, dns, is_old)| {
            let name = if is_old { "service" } else { "k8s-azure-service" };
            let mut tags = json!({ "foreign": "1", "k8s-azure-cluster-name": cluster });
            if !services.is_empty() {
                tags[name] = json!(services.join(","));
            }
            let mut body = body(&tags);
            if let Some(owner) = dns {
                body["tags"]["k8s-azure-dns-label-service"] = json!(owner);
                body["properties"]["dnsSettings"] = json!({ "domainNameLabel": "one", "fqdn": "one.example" });
            }
            body["properties"]["futureField"] = json!({ "x": 1 });
            exists.then_some(if is_used { used(body) } else { body })
        },
    )
}

fn respell(body: &Value) -> Value {
    let mut body = body.clone();
    let tags = body["tags"].as_object().unwrap().iter().rev();
    body["tags"] =
        tags.map(|(name, value)| (name.to_uppercase(), value.clone())).collect::<serde_json::Map<_, _>>().into();
    body["properties"]["ddosSettings"] = json!({ "protectionMode": "VirtualNetworkInherited" });
    body
}

/// The Services in the tag, read without the code under test.
fn listed(body: Option<&Value>) -> BTreeSet<String> {
    let Some(tags) = body.and_then(|body| body["tags"].as_object()) else { return BTreeSet::new() };
    let find = |wanted: &str| tags.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| value);
    let text = find("k8s-azure-service").or_else(|| find("service")).and_then(Value::as_str).unwrap_or_default();
    text.split(',').filter(|name| !name.is_empty()).map(str::to_lowercase).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_024, ..ProptestConfig::default() })]

    #[test]
    fn the_five_laws_hold(body in world(), asked in proptest::collection::vec(want(), 3)) {
        let mut env = env();
        env.tags.set.insert("team".to_owned(), "x".to_owned());
        let wants: Wants =
            (1..).zip(asked).filter_map(|(number, want)| Some((key(number), want?))).collect();
        let read = |body: Option<&Value>| body.map(|body| PublicIp::read(&env.id, body).unwrap());
        let (plan, next) = step(&wants, body.clone(), &env);

        // The model and the body agree on what edits do.
        let applied = apply(read(body.as_ref()), &plan.edits, &env);
        prop_assert_eq!(read(next.as_ref()), applied);

        // It converges, and is quiet however Azure spells the same thing. A second write lets those join who waited for
        // the public IP to be there.
        let mut end = next.clone();
        for _ in 0..2 {
            end = step(&wants, end, &env).1;
        }
        prop_assert_eq!(step(&wants, end.clone(), &env).0.edits, vec![]);
        if let Some(end) = &end {
            prop_assert_eq!(step(&wants, Some(respell(end)), &env).0.edits, vec![]);
        }

        // What is foreign stays: other tags, unknown fields, Services that are not known, the users' and other clusters' own.
        if let Some(before) = &body {
            let cluster = before["tags"]["k8s-azure-cluster-name"] == "other";
            let is_users = listed(Some(before)).is_empty();
            if cluster {
                // A public IP of the user may get a label; nothing else of it changes.
                let mut same = end.clone().unwrap();
                same["properties"]["dnsSettings"] = before["properties"]["dnsSettings"].clone();
                let mut old = before.clone();
                old["properties"]["dnsSettings"] = before["properties"]["dnsSettings"].clone();
                prop_assert_eq!(same, old);
            }
            if listed(Some(before)).contains("default/other") && !is_users {
                prop_assert!(listed(end.as_ref()).contains("default/other"));
            }
            if let Some(end) = &end {
                prop_assert_eq!(&end["tags"]["foreign"], "1");
                prop_assert_eq!(&end["properties"]["futureField"], &before["properties"]["futureField"]);
                if is_users {
                    prop_assert_eq!(&end["tags"], &before["tags"]);
                }
            }
            // It is deleted only when its last Service has given it up and nothing refers to it.
            if end.is_none() {
                let all_released = listed(Some(before)).iter().all(|name| {
                    wants.iter().any(|(service, want)| service.tag_name() == *name && want.gone == Gone::Released)
                });
                prop_assert!(all_released && before["properties"].get("ipConfiguration").is_none());
            }
            // One that leaves it to others is out of its tag, or is alone in it and keeps it.
            for (service, _) in wants.iter().filter(|(_, want)| want.gone == Gone::LeftToOthers && !cluster && !is_users) {
                let all = listed(end.as_ref());
                prop_assert!(all.len() == 1 || !all.contains(&service.tag_name()), "{service} is still in {all:?}");
                if listed(Some(before)).len() == 1 && listed(Some(before)).contains(&service.tag_name()) {
                    prop_assert!(listed(next.as_ref()).contains(&service.tag_name()));
                }
                // It is done only when one of the two holds.
                let done = matches!(plan.served[service], Served::Done(_));
                let now = listed(Some(before));
                prop_assert_eq!(done, now.len() == 1 || !now.contains(&service.tag_name()));
            }
        }
    }
}
