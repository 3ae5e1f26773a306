//! The five laws, on random Nodes and a route table that others use too.

use proptest::prelude::*;

use super::*;

/// What is known of a Node, by indices into small sets.
#[derive(Debug, Clone)]
enum Now {
    Unknown,
    Gone,
    /// Its ranges, and its address.
    Present(Vec<u8>, u8),
}

/// Names of which one is the beginning of another.
const NODES: [&str; 4] = ["agent-1", "agent-10", "agent-2", "b"];

fn range(at: u8) -> String {
    if at < 6 { format!("10.244.{at}.0/24") } else { format!("fd00:10:244:{at}::/64") }
}

fn hop(range: u8, at: u8) -> String {
    if range < 6 { format!("10.0.0.{}", 4 + at) } else { format!("fd01::{}", 4 + at) }
}

fn now() -> impl Strategy<Value = Now> {
    let present = (
        prop_oneof![
            Just(vec![]),
            (0_u8..6).prop_map(|v4| vec![v4]),
            (0_u8..6, 6_u8..9).prop_map(|(v4, v6)| vec![v4, v6])
        ],
        0_u8..4,
    );
    prop_oneof![
        Just(Now::Unknown),
        Just(Now::Gone),
        present.clone().prop_map(|(ranges, at)| Now::Present(ranges, at)),
        present.prop_map(|(ranges, at)| Now::Present(ranges, at)),
    ]
}

/// A route that is there: whose name, whether it is of 2017, range and address.
fn routes() -> impl Strategy<Value = Vec<(usize, bool, u8, u8)>> {
    proptest::collection::vec((0..NODES.len(), any::<bool>(), 0_u8..9, 0_u8..4), 0..6)
}

fn world(routes: &[(usize, bool, u8, u8)]) -> Value {
    let mut bodies = vec![
        json!({"name": "internet", "properties": {"addressPrefix": "0.0.0.0/0", "nextHopType": "Internet"}}),
        route("firewall", "10.9.0.0/16", "10.1.1.1"),
        json!({"name": "tag", "properties": {"addressPrefix": "AzureCloud", "nextHopType": "Internet", "new": [1]}}),
    ];
    for (node, is_old, at, to) in routes {
        let name = if *is_old { NODES[*node].to_owned() } else { names::route(NODES[*node], &range(*at)) };
        let same =
            |body: &Value| body["name"] == name.as_str() || body["properties"]["addressPrefix"] == range(*at).as_str();
        if !bodies.iter().any(same) {
            bodies.push(route(&name, &range(*at), &hop(*at, *to)));
        }
    }
    table(&json!(bodies))
}

fn wants_of(now: &[Now]) -> Wants {
    let wants = NODES.iter().zip(now).filter_map(|(node, now)| {
        let want = match now {
            Now::Unknown => return None,
            Now::Gone => Want::Gone(["10.244.0.0/24".parse().unwrap()].into()),
            Now::Present(ranges, at) => {
                Want::Present(ranges.iter().map(|one| pod(&range(*one), Some(&hop(*one, *at)))).collect())
            }
        };
        Some(((*node).to_owned(), want))
    });
    wants.collect()
}

fn respell(body: &Value) -> Value {
    let mut body = body.clone();
    let routes = body["properties"]["routes"].as_array_mut().unwrap();
    routes.reverse();
    for route in routes {
        route["name"] = json!(route["name"].as_str().unwrap().to_uppercase());
        route["id"] = json!("some/id");
        route["properties"]["nextHopType"] = json!(route["properties"]["nextHopType"].as_str().unwrap().to_uppercase());
        route["properties"]["provisioningState"] = json!("Succeeded");
    }
    body
}

fn sorted(edits: &[Edit]) -> Vec<String> {
    let mut texts: Vec<String> = edits.iter().map(|edit| format!("{edit:?}").to_lowercase()).collect();
    texts.sort_unstable();
    texts
}

/// Where traffic for a range goes.
fn leads(table: &RouteTable) -> BTreeMap<Cidr, Option<IpAddr>> {
    table.routes.iter().filter_map(|route| Some((route.range?, route.next_hop))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn the_five_laws_hold(routes in routes(), now in proptest::collection::vec(now(), NODES.len())) {
        let (env, body, wants) = (env(), world(&routes), wants_of(&now));
        let actual = read(&body);
        let plan = plan(&wants, Some(&actual), &env);

        // The model and the body agree on what edits do.
        let end = apply_raw(Some(body.clone()), &plan.edits, &env).unwrap();
        prop_assert_eq!(Some(read(&end)), apply(Some(actual.clone()), &plan.edits, &env));

        // It converges in one write. A Node is done then unless it is refused.
        let after = super::super::plan(&wants, Some(&read(&end)), &env);
        prop_assert_eq!(&after.edits, &vec![]);
        for (node, served) in &after.served {
            prop_assert!(!matches!(served, plan::Served::Pending | plan::Served::Waiting(_)), "{node}");
        }

        // It leaves alone what is foreign, and the routes of Nodes that are not known.
        let kept = |name: &str| {
            let find = |body: &Value| {
                body["properties"]["routes"].as_array().unwrap().iter().find(|route| route["name"] == name).cloned()
            };
            (find(&body), find(&end))
        };
        for foreign in ["internet", "firewall", "tag"] {
            let (before, after) = kept(foreign);
            prop_assert_eq!(before, after);
        }
        for there in &actual.routes {
            let known = wants.keys().any(|node| names::is_of_node(&there.name, node));
            if !known {
                let (before, after) = kept(&there.name);
                prop_assert_eq!(before, after);
            }
        }

        // Azure takes what is written: no range has two routes.
        let ranges: Vec<Cidr> = read(&end).routes.iter().filter_map(|route| route.range).collect();
        prop_assert_eq!(ranges.iter().collect::<BTreeSet<_>>().len(), ranges.len());

        // It does not depend on order or spelling, and is quiet when only those differ.
        let other = super::super::plan(&wants, Some(&read(&respell(&body))), &env);
        prop_assert_eq!(sorted(&other.edits), sorted(&plan.edits));
        prop_assert_eq!(super::super::plan(&wants, Some(&read(&respell(&end))), &env).edits, vec![]);

        // No prefix leads a range elsewhere than the beginning or the end does, and a route of both stays.
        let (old, new) = (leads(&actual), leads(&read(&end)));
        for length in 0..=plan.edits.len() {
            let table = apply(Some(actual.clone()), &plan.edits[..length], &env).unwrap();
            let here = leads(&table);
            for (range, hop) in &here {
                prop_assert!(old.get(range) == Some(hop) || new.get(range) == Some(hop), "{range}");
            }
            for route in &actual.routes {
                let stays = read(&end).routes.contains(route);
                prop_assert!(!stays || table.routes.contains(route), "{}", route.name);
            }
        }
    }
}
