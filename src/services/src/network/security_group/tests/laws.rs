//! The five laws, on random Services over a security group that others use too.

use proptest::prelude::*;

use super::*;

/// What a random Service asks, by indices into small sets.
#[derive(Debug, Clone)]
struct Spec {
    sources: u8,
    ports: u8,
    destination: u8,
    denies: bool,
}

#[derive(Debug, Clone)]
enum Now {
    Unknown,
    Gone,
    Present(Spec),
}

const SOURCES: [&[&str]; 4] = [&["Internet"], &["10.0.0.0/8"], &["10.0.0.0/8", "20.0.0.0/8"], &["AzureCloud"]];
const PORTS: [&[u16]; 3] = [&[80], &[443], &[80, 443]];
const DESTINATIONS: [&str; 3] = ["20.0.0.9", "20.0.0.10", "20.0.0.11"];

fn spec() -> impl Strategy<Value = Spec> {
    (0_u8..4, 0_u8..3, 0_u8..3, any::<bool>()).prop_map(|(sources, ports, destination, denies)| Spec {
        sources,
        ports,
        destination,
        denies,
    })
}

fn now() -> impl Strategy<Value = Now> {
    prop_oneof![Just(Now::Unknown), Just(Now::Gone), spec().prop_map(Now::Present), spec().prop_map(Now::Present)]
}

fn part(spec: &Spec) -> Part {
    let destination = DESTINATIONS[usize::from(spec.destination)];
    let allow = allow(SOURCES[usize::from(spec.sources)], PORTS[usize::from(spec.ports)], &[destination]);
    let deny_all = if spec.denies { [ip(destination)].into() } else { BTreeSet::new() };
    Part { allow: vec![allow], deny_all, ..Part::default() }
}

/// How many Services had an address.
fn had_by(before: &[Option<Spec>], address: IpAddr) -> usize {
    before.iter().flatten().filter(|spec| ip(DESTINATIONS[usize::from(spec.destination)]) == address).count()
}

/// The wants now: each known Service records the address that it had before, too, and on one that another Service had as
/// well its ports alone.
fn wants_now(before: &[Option<Spec>], now: &[Now]) -> Wants {
    let (all, mut wants) = (before, Wants::new());
    for ((number, before), now) in (1..).zip(before).zip(now) {
        let had: BTreeSet<IpAddr> = before.iter().map(|spec| ip(DESTINATIONS[usize::from(spec.destination)])).collect();
        let present = match now {
            Now::Unknown => continue,
            Now::Gone => Part::default(),
            Now::Present(spec) => part(spec),
        };
        let mut destinations = had;
        destinations.extend(present.allow.iter().flat_map(|allow| &allow.destinations));
        let ports: BTreeSet<(SecurityProtocol, u16)> = before
            .iter()
            .flat_map(|spec| PORTS[usize::from(spec.ports)])
            .chain(present.allow.iter().flat_map(|allow| &allow.ports))
            .map(|port| (SecurityProtocol::Tcp, *port))
            .collect();
        let is_shared = |address: &IpAddr| had_by(all, *address) > 1;
        let shared = destinations.iter().filter(|address| is_shared(address)).map(|address| (*address, ports.clone()));
        let gone = Gone {
            shared: shared.collect(),
            destinations: destinations.iter().filter(|address| !is_shared(address)).copied().collect(),
            nodes: false,
            public_ips: BTreeMap::new(),
            base: Some(BaseName::of(&key(number))),
        };
        wants.insert(key(number), Want { present, gone });
    }
    wants
}

fn world(before: &[Option<Spec>], env: &Env) -> Value {
    let none: Vec<Now> = before.iter().map(|spec| spec.clone().map_or(Now::Unknown, Now::Present)).collect();
    let mut body = settle(&wants_now(before, &none), body(&json!([])), env);
    let rules = body["properties"]["securityRules"].as_array_mut().unwrap();
    rules.iter_mut().for_each(|rule| rule["etag"] = json!("W/\"1\""));
    rules.push(json!({ "name": "ssh", "properties": {
        "priority": 510, "protocol": "Tcp", "access": "Allow", "direction": "Inbound", "sourceAddressPrefix": "*",
        "sourcePortRange": "*", "destinationAddressPrefix": DESTINATIONS[0], "destinationPortRange": "22", "futureField": 1
    }}));
    rules.push(json!({ "name": names::allow_rule(SecurityProtocol::Udp, Family::V4, &["Internet".to_owned()], &[53]),
        "properties": {
            "priority": 511, "protocol": "Udp", "access": "Allow", "direction": "Inbound", "sourceAddressPrefix": "Internet",
            "sourcePortRange": "*", "destinationAddressPrefix": "20.9.9.9", "destinationPortRanges": ["53"]
        }}));
    body
}

/// Who gets in, by an oracle of its own: source, port and destination of every combination that the first matching rule
/// allows. A source that no rule names stands for the virtual network, which Azure lets in by default.
fn admitted(group: &SecurityGroup) -> BTreeSet<(String, u16, String)> {
    let mut rules: Vec<&SecurityRule> = group.rules.iter().filter(|rule| rule.is_inbound).collect();
    rules.sort_by_key(|rule| rule.priority);
    let mut all = BTreeSet::new();
    for source in ["Internet", "AzureCloud", "10.0.0.0/8", "20.0.0.0/8", "VirtualNetwork"] {
        for port in [80_u16, 443] {
            for destination in DESTINATIONS {
                let has = |list: &[String], item: &str| list.iter().any(|there| there == item || there == "*");
                let matching = rules.iter().find(|rule| {
                    has(&rule.sources, source)
                        && has(&rule.ports, &port.to_string())
                        && has(&rule.destinations, destination)
                        && (rule.protocol == "*" || rule.protocol.eq_ignore_ascii_case("Tcp"))
                });
                if matching.map_or(source == "VirtualNetwork", |rule| rule.is_allow) {
                    all.insert((source.to_owned(), port, destination.to_owned()));
                }
            }
        }
    }
    all
}

fn respell(body: &Value) -> Value {
    let mut body = body.clone();
    let rules = body["properties"]["securityRules"].as_array_mut().unwrap();
    rules.reverse();
    for rule in rules {
        let properties = &mut rule["properties"];
        properties["protocol"] = json!(properties["protocol"].as_str().unwrap().to_uppercase());
        for list in ["sourceAddressPrefixes", "destinationAddressPrefixes", "destinationPortRanges"] {
            match properties.get_mut(list).and_then(Value::as_array_mut) {
                Some(items) => items.reverse(),
                None => properties[list] = json!([]),
            }
        }
    }
    body["properties"]["defaultSecurityRules"] = json!([{ "name": "AllowVnetInBound" }]);
    body
}

fn sorted(edits: &[Edit]) -> Vec<String> {
    // A rule keeps the order of its destinations unless they change.
    let mut texts: Vec<String> = edits.iter().map(|edit| format!("{edit:?}").to_lowercase()).collect();
    texts.sort_unstable();
    texts
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn the_five_laws_hold(
        before in proptest::collection::vec(proptest::option::of(spec()), 4),
        after in proptest::collection::vec(now(), 4),
    ) {
        let env = env();
        let body = world(&before, &env);
        let wants = wants_now(&before, &after);
        let actual = read(&body, &env);
        let plan = plan(&wants, Some(&actual), &env);

        // The model and the body agree on what edits do.
        let next = apply_raw(Some(body.clone()), &plan.edits, &env).unwrap();
        prop_assert_eq!(Some(read(&next, &env)), apply(Some(actual.clone()), &plan.edits, &env));

        // It converges in one write, and leaves what is foreign alone.
        let end = settle(&wants, body.clone(), &env);
        prop_assert_eq!(&end, &next);
        for foreign in ["ssh", &names::allow_rule(SecurityProtocol::Udp, Family::V4, &["Internet".to_owned()], &[53])] {
            prop_assert_eq!(rule(&end, foreign), rule(&body, foreign));
        }

        // It does not depend on order or spelling, and is quiet afterwards.
        let other = super::super::plan(&wants, Some(&read(&respell(&body), &env)), &env);
        prop_assert_eq!(sorted(&other.edits), sorted(&plan.edits));
        prop_assert_eq!(super::super::plan(&wants, Some(&read(&respell(&end), &env)), &env).edits, vec![]);

        // No prefix lets in a source that neither the beginning nor the end lets in.
        let (old, new) = (admitted(&actual), admitted(&read(&end, &env)));
        for length in 0..=plan.edits.len() {
            let here = apply(Some(actual.clone()), &plan.edits[..length], &env).unwrap();
            for entry in admitted(&here) {
                prop_assert!(old.contains(&entry) || new.contains(&entry), "{entry:?} {:?}", &plan.edits[..length]);
            }
            // And none shuts out a source that both let in.
            let here = admitted(&here);
            prop_assert!(old.intersection(&new).all(|entry| here.contains(entry)), "{:?}", &plan.edits[..length]);
        }

        // Destinations of a Service that is not known stay as they were.
        for ((number, before), now) in (1..).zip(&before).zip(&after) {
            let (Some(before), Now::Unknown) = (before, now) else { continue };
            let address = ip(DESTINATIONS[usize::from(before.destination)]);
            let ports = PORTS[usize::from(before.ports)];
            let has_all = |own: &BTreeSet<(SecurityProtocol, u16)>| {
                ports.iter().all(|port| own.contains(&(SecurityProtocol::Tcp, *port)))
            };
            let is_named = wants.values().any(|want| {
                want.gone.destinations.contains(&address) || want.gone.shared.get(&address).is_some_and(has_all)
            });
            if !is_named {
                let alone: Wants = [(key(number), Want { present: part(before), gone: Gone::default() })].into();
                prop_assert!(super::super::plan(&alone, Some(&read(&end, &env)), &env).is_quiet());
            }
        }

        // On an address that others use, a Service's own ports are open only to what a Service asks for.
        for (address, own) in wants.values().flat_map(|want| &want.gone.shared) {
            for rule in read(&end, &env).rules.iter().filter(|rule| rule.is_managed() && rule.is_allow) {
                let is_own = |port: &String| own.contains(&(SecurityProtocol::Tcp, port.parse().unwrap()));
                let is_asked = wants.values().flat_map(|want| &want.present.allow).any(|allow| {
                    allow.destinations.contains(address)
                        && names::allow_rule(allow.protocol, allow.family, &allow.sources, &allow.ports) == rule.name
                });
                prop_assert!(!rule.has_destination(*address) || is_asked || !rule.ports.iter().all(is_own), "{rule:?}");
            }
        }
    }
}
