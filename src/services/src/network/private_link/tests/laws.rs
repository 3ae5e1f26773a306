//! The five laws, on random Services of one private link service.

use proptest::prelude::*;

use super::*;

fn asked() -> impl Strategy<Value = PrivateLinkAsk> {
    (any::<bool>(), any::<bool>(), 1_u8..4, 0_usize..2).prop_map(|(proxy_protocol, sees, address_count, fixed)| {
        let addresses = ["10.0.0.9".parse().unwrap()].into_iter().take(fixed).collect();
        let visible_to = if sees { vec!["b".to_owned(), "a".to_owned()] } else { vec![] };
        PrivateLinkAsk { proxy_protocol, visible_to, address_count, addresses, ..ask() }
    })
}

fn want() -> impl Strategy<Value = Option<Want>> {
    prop_oneof![
        Just(None),
        Just(Some(released())),
        Just(Some(Want { present: Part::default(), gone: Gone::Nothing })),
        asked().prop_map(|ask| Some(wants_link(ask))),
    ]
}

fn respell(body: &Value) -> Value {
    let mut body = body.clone();
    let properties = &mut body["properties"];
    for list in ["ipConfigurations", "fqdns"] {
        if let Some(items) = properties.get_mut(list).and_then(Value::as_array_mut) {
            items.reverse();
        }
    }
    if let Some(items) = properties.pointer_mut("/visibility/subscriptions").and_then(Value::as_array_mut) {
        items.reverse();
    }
    for item in properties["ipConfigurations"].as_array_mut().unwrap() {
        item["properties"]["subnet"]["id"] = json!(item["properties"]["subnet"]["id"].as_str().unwrap().to_uppercase());
        // Azure tells the address that it has chosen.
        if item["properties"].get("privateIPAddress").is_none() {
            item["properties"]["privateIPAddress"] = json!("10.0.0.77");
        }
    }
    properties["alias"] = json!("x.azure.privatelinkservice");
    body
}

proptest! {
    #[test]
    fn the_five_laws_hold(
        maker in proptest::option::of(asked()),
        connections in 0_usize..3,
        is_foreign in any::<bool>(),
        wants in proptest::collection::vec(want(), 3),
    ) {
        let mut body = maker.and_then(|ask| step(&one(1, wants_link(ask)), None).1);
        if let Some(body) = &mut body {
            let names: Vec<Value> = (0..connections).map(|number| json!({ "name": format!("c{number}") })).collect();
            body["properties"]["privateEndpointConnections"] = json!(names);
            body["properties"]["futureField"] = json!(1);
            body["tags"]["foreign"] = json!("1");
            if is_foreign {
                body["tags"][CLUSTER_TAG] = json!("other");
            }
        }
        let wants: Wants = (1..).zip(wants).filter_map(|(number, want)| Some((key(number), want?))).collect();

        // `step` holds model and body equal. It converges: a connection a write, then the rest.
        let mut end = body.clone();
        for _ in 0..connections + 2 {
            end = step(&wants, end).1;
        }
        prop_assert!(step(&wants, end.clone()).0.is_quiet());
        if let Some(end) = &end {
            prop_assert!(step(&wants, Some(respell(end))).0.is_quiet());
        }
        if let Some(before) = &body {
            let edits = |body: Value| step(&wants, Some(body)).0.edits.len();
            prop_assert_eq!(edits(respell(before)), edits(before.clone()));
            if is_foreign {
                prop_assert_eq!(end.as_ref(), Some(before));
            }
            if let Some(end) = &end {
                prop_assert_eq!(&end["properties"]["futureField"], 1);
                prop_assert_eq!(&end["tags"]["foreign"], "1");
                prop_assert_eq!(&end["tags"][OWNER_TAG], &before["tags"][OWNER_TAG]);
            }
            // It goes only when its owner has given it up and no Service asks for it.
            let is_asked = wants.values().any(|want| want.present.link.is_some());
            let is_released = wants.get(&key(1)).is_some_and(|want| want.gone == Gone::Released);
            prop_assert_eq!(end.is_none(), is_released && !is_asked && !is_foreign);
        }
    }
}
