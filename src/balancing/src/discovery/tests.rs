use lazuli_services::service::{
    Existing,
    fixtures::{annotated, settings},
    parse,
};
use serde_json::json;

use super::*;

const NOW: Duration = Duration::from_secs(10);

fn public(kind: Kind, group: &str) -> Place {
    Place::new(kind, group)
}

fn web(annotations: &[(&str, &str)]) -> ServiceObject {
    ServiceObject { has_finalizer: true, is_deleting: true, ..annotated(annotations) }
}

/// A public IP of this name that lists the Service.
fn tagged(object: &ServiceObject, group: &str, name: &str) -> PublicIp {
    let id = settings().public_ip_id(group, name).unwrap();
    let tags = json!({"k8s-azure-service": object.key.tag_name(), "k8s-azure-cluster-name": "kubernetes"});
    PublicIp::read(&id, &json!({"tags": tags, "properties": {"ipAddress": "20.0.0.9"}})).unwrap()
}

fn link(object: &ServiceObject, group: &str, name: &str, frontend: &str) -> PrivateLink {
    let settings = settings();
    let id = settings.private_link_id(group, name).unwrap();
    let balancer = settings.load_balancer_id("kubernetes-internal").unwrap();
    let tags = json!({"k8s-azure-owner-service": object.key.tag_name(), "k8s-azure-cluster-name": "kubernetes"});
    let frontend = json!({"id": format!("{balancer}/frontendIPConfigurations/{frontend}")});
    let body = json!({"tags": tags, "properties": {"loadBalancerFrontendIpConfigurations": [frontend]}});
    PrivateLink::read(&id, &body).unwrap()
}

fn names(owned: &Owned) -> Vec<&str> {
    owned.keys.iter().map(|key| key.id().name()).collect()
}

#[test]
fn every_group_that_a_service_the_configuration_or_a_prefix_names_is_listed_once() {
    let settings = settings();
    let prefix = format!(
        "/subscriptions/{}/resourceGroups/Prefixes/providers/Microsoft.Network/publicIPPrefixes/p",
        settings.subscription
    );
    let foreign = "/subscriptions/other/resourceGroups/theirs/providers/Microsoft.Network/publicIPPrefixes/p";
    let web = web(&[
        ("azure-load-balancer-resource-group", "Addresses"),
        ("azure-pls-resource-group", "links"),
        ("azure-pip-prefix-id", &prefix),
        ("azure-pip-prefix-id-ipv6", foreign),
    ]);
    let mut discovered = Discovered::default();
    let due = |discovered: &Discovered, standing| discovered.due([(&web, standing)], Duration::ZERO, &settings);
    let all = due(&discovered, Standing::Served);
    let own = configured(&settings);
    let of_service =
        [public(Kind::PublicIp, "addresses"), public(Kind::PublicIp, "prefixes"), public(Kind::PrivateLink, "links")];
    assert_eq!(all, own.into_iter().chain(of_service).collect());
    for place in &all {
        discovered.not_listed(place, "closed".to_owned());
    }
    assert_eq!(due(&discovered, Standing::Served), BTreeSet::new(), "a Service that is served needs no list");
    let again = [public(Kind::PublicIp, "addresses"), public(Kind::PrivateLink, "links")];
    assert_eq!(due(&discovered, Standing::Going), again.into());
    let addresses = [public(Kind::PublicIp, "addresses")];
    assert_eq!(due(&discovered, Standing::LacksAddress), addresses.into());
}

#[test]
fn a_group_that_cannot_be_read_holds_up_only_services_that_name_it() {
    let settings = settings();
    let mut discovered = Discovered::default();
    for place in configured(&settings) {
        match place.kind {
            Kind::PublicIp => discovered.public_ips_listed(&place, NOW, [], &settings),
            Kind::PrivateLink => discovered.private_links_listed(&place, NOW, [], &settings),
        };
    }
    discovered.not_listed(&public(Kind::PublicIp, "closed"), "Azure answered AuthorizationFailed".to_owned());
    let unread = |object: &ServiceObject, not_before| {
        discovered.owned(object, None, Standing::Going, not_before, &settings).unread
    };
    assert_eq!(unread(&web(&[]), NOW), Vec::<String>::new());
    let held = unread(&web(&[("azure-load-balancer-resource-group", "Closed")]), NOW);
    let why = "the public IPs of resource group closed cannot be read: Azure answered AuthorizationFailed";
    assert_eq!(held, [why]);
    let of_new = unread(&web(&[("azure-pls-resource-group", "new")]), NOW);
    assert_eq!(of_new, ["the private link services of resource group new are not read yet"]);
    // A list of before this process led may lack what the leader before has made.
    assert_eq!(unread(&web(&[]), NOW + Duration::from_millis(1)).len(), 2);
}

#[test]
fn an_object_is_in_a_place_that_a_service_names_whatever_the_case_of_letters() {
    let settings = settings();
    let web = web(&[("azure-load-balancer-resource-group", "Addresses"), ("azure-pls-resource-group", "links")]);
    let names = |key: Key| Place::of(&key).map(|place| named(&web, &settings).contains(&place));
    let public_ip = |group: &str| Key::PublicIp(settings.public_ip_id(group, "one").unwrap());
    let link = |group: &str| Key::PrivateLink(settings.private_link_id(group, "one").unwrap());
    assert_eq!(names(public_ip("ADDRESSES")), Some(true));
    assert_eq!(names(link("Links")), Some(true));
    assert_eq!([public_ip("links"), link("addresses")].map(names), [Some(false); 2]);
    assert_eq!(names(public_ip(&settings.resource_group)), Some(false), "it names another");
    assert_eq!(names(Key::LoadBalancer(settings.load_balancer_id("kubernetes").unwrap())), None);
}

#[test]
fn in_a_group_that_the_service_does_not_name_a_public_ip_is_its_own_only_by_its_uid() {
    let settings = settings();
    let web = web(&[]);
    let base = BaseName::of(&web.key);
    let own = format!("kubernetes-{}-prefix-IPv6", base.as_str().to_uppercase());
    let mut discovered = Discovered::default();
    let elsewhere = [tagged(&web, "elsewhere", &own), tagged(&web, "elsewhere", "kubernetes-shared")];
    let here = [tagged(&web, &settings.resource_group, "shared-here")];
    let concerned = discovered.public_ips_listed(&public(Kind::PublicIp, "elsewhere"), NOW, elsewhere, &settings);
    assert!(is_concerned(&web.key, &concerned));
    discovered.public_ips_listed(&configured(&settings)[0], NOW, here, &settings);
    for standing in [Standing::Served, Standing::Going] {
        let owned = discovered.owned(&web, None, standing, NOW, &settings);
        let mut all = names(&owned);
        all.sort_unstable();
        assert_eq!(all, [own.as_str(), "shared-here"]);
    }
}

#[test]
fn a_public_ip_of_another_cluster_is_never_its_own() {
    let settings = settings();
    let web = web(&[]);
    let mut ip = tagged(&web, &settings.resource_group, "theirs");
    ip.tags.insert("k8s-azure-cluster-name".to_owned(), "other".to_owned());
    let mut discovered = Discovered::default();
    let concerned = discovered.public_ips_listed(&configured(&settings)[0], NOW, [ip], &settings);
    assert_eq!(concerned, BTreeSet::new());
    assert_eq!(names(&discovered.owned(&web, None, Standing::Going, NOW, &settings)), Vec::<&str>::new());
}

#[test]
fn a_frontend_of_the_service_shows_its_public_ip_in_any_group() {
    let settings = settings();
    let key = ServiceKey::new("default", "web", "0b7c6a52-3c1e-4d3a-9a53-0a6b9a0c2f11");
    let web = ServiceObject { key, ..web(&[]) };
    let base = BaseName::of(&web.key);
    let own = settings.public_ip_id("forgotten", &format!("kubernetes-{base}")).unwrap();
    let others = settings.public_ip_id("forgotten", "of-a-user").unwrap();
    let balancer = settings.load_balancer_id("of-a-set-without-nodes").unwrap();
    let frontend =
        |name: &str, ip: &ArmId| json!({"name": name, "properties": {"publicIPAddress": {"id": ip.as_str()}}});
    let named = [base.as_str().to_owned(), format!("{base}-second"), "egress".to_owned()];
    let frontends = [frontend(&named[0], &own), frontend(&named[1], &others), frontend(&named[2], &others)];
    let body = json!({"sku": {"name": "Standard"}, "properties": {"frontendIPConfigurations": frontends}});
    let mut discovered = Discovered::default();
    discovered.load_balancer_listed(&LoadBalancer::read(&balancer, &body).unwrap());
    let owned = |standing| discovered.owned(&web, None, standing, NOW, &settings).keys;
    assert_eq!(owned(Standing::Going), [Key::PublicIp(own.clone()), Key::LoadBalancer(balancer)].into());
    assert_eq!(owned(Standing::Served), [Key::PublicIp(own)].into());
}

#[test]
fn what_a_specification_names_is_looked_at_though_no_list_shows_it() {
    let settings = settings();
    let public = web(&[("azure-load-balancer-resource-group", "addresses")]);
    let discovered = Discovered::default();
    let owned = |object: &ServiceObject, standing| {
        let ask = parse(object, &settings, &Existing::default()).unwrap();
        discovered.owned(object, Some(&ask), standing, NOW, &settings).keys
    };
    let name = format!("kubernetes-{}", BaseName::of(&public.key));
    let ip = settings.public_ip_id("addresses", &name).unwrap();
    assert_eq!(owned(&public, Standing::Going), [Key::PublicIp(ip)].into());
    assert_eq!(owned(&public, Standing::Served), BTreeSet::new(), "its specification asks for it");
    let internal = web(&[
        ("azure-load-balancer-internal", "true"),
        ("azure-pls-create", "true"),
        ("azure-pls-resource-group", "links"),
    ]);
    let link = format!("pls-{}", BaseName::of(&internal.key));
    let link = settings.private_link_id("links", &link).unwrap();
    assert_eq!(owned(&internal, Standing::Going), [Key::PrivateLink(link)].into());
}

#[test]
fn a_private_link_service_goes_with_its_service_where_the_service_names_the_group_or_it_bears_the_uid() {
    let settings = settings();
    let web = web(&[("azure-pls-resource-group", "links")]);
    let base = BaseName::of(&web.key);
    let all = [
        link(&web, "links", "named", "other"),
        link(&web, "elsewhere", "by-frontend", base.as_str()),
        link(&web, "elsewhere", &format!("pls-{base}"), "other"),
        link(&web, "elsewhere", "of-another", "other"),
    ];
    let mut discovered = Discovered::default();
    let concerned = discovered.private_links_listed(&public(Kind::PrivateLink, "links"), NOW, all, &settings);
    assert!(is_concerned(&web.key, &concerned));
    let owned = discovered.owned(&web, None, Standing::Going, NOW, &settings);
    let mut found = names(&owned);
    found.sort_unstable();
    let pls = format!("pls-{base}");
    assert_eq!(found, ["by-frontend", "named", pls.as_str()]);
    // With the annotation gone a private link service stays while its Service is served.
    assert_eq!(names(&discovered.owned(&web, None, Standing::Served, NOW, &settings)), Vec::<&str>::new());
}

/// The sizes of what is known.
fn sizes(discovered: &Discovered) -> [usize; 4] {
    discovered.sizes().map(|(_, size)| size)
}

#[test]
fn what_thousands_of_changed_annotations_named_is_forgotten_and_found_again() {
    let settings = settings();
    let mut discovered = Discovered::default();
    let other = ServiceObject { key: ServiceKey::new("shop", "other", "other"), ..web(&[]) };
    for number in 0..5_000 {
        let group = format!("group-{number}");
        let web = ServiceObject {
            is_deleting: false,
            ..web(&[("azure-load-balancer-resource-group", &group), ("azure-pls-resource-group", &group)])
        };
        for place in discovered.due([(&web, Standing::Served)], NOW, &settings) {
            let others = [tagged(&other, &place.group, "theirs"), tagged(&other, &place.group, "theirs-too")];
            match place.kind {
                Kind::PublicIp => discovered.public_ips_listed(&place, NOW, others, &settings),
                Kind::PrivateLink => {
                    let theirs = [link(&other, &place.group, "theirs", "frontend")];
                    discovered.private_links_listed(&place, NOW, theirs, &settings)
                }
            };
        }
        if number == 7 {
            let own = [tagged(&web, "group-7", "own")];
            discovered.public_ips_listed(&public(Kind::PublicIp, "group-7"), NOW, own, &settings);
        }
        discovered.forget_unnamed([&web], &settings);
        assert!(sizes(&discovered).iter().all(|size| *size <= 6), "{number}: {:?}", discovered.sizes());
    }
    let web = web(&[]);
    discovered.forget_unnamed([&web], &settings);
    // The configured places, and what they hold; and the Service's own.
    assert_eq!(sizes(&discovered), [2, 2, 3, 1], "{:?}", discovered.sizes());
    let owned = discovered.owned(&web, None, Standing::Served, NOW, &settings);
    assert_eq!(
        owned.keys,
        BTreeSet::new(),
        "its name does not bear the uid, and the Service does not name the group now"
    );
    let again = ServiceObject { is_deleting: false, ..self::web(&[("azure-load-balancer-resource-group", "group-7")]) };
    assert_eq!(names(&discovered.owned(&again, None, Standing::Served, NOW, &settings)), ["own"]);
    let due = discovered.due([(&again, Standing::Served)], NOW, &settings);
    assert_eq!(due, [public(Kind::PublicIp, "group-7")].into(), "it is listed again");
    // The Service is gone, and with it what bears its tag.
    discovered.forget_unnamed([], &settings);
    assert_eq!(sizes(&discovered), [2, 2, 2, 1], "{:?}", discovered.sizes());
}

#[test]
fn what_lists_lack_for_an_hour_is_forgotten_unless_it_bears_the_tag_of_a_service() {
    let settings = settings();
    let place = public(Kind::PublicIp, "shared");
    let web = web(&[("azure-load-balancer-resource-group", "shared")]);
    let address = "20.0.0.9".parse().unwrap();
    let mut discovered = Discovered::default();
    discovered.public_ips_listed(&place, NOW, [tagged(&web, "shared", "own")], &settings);
    let is_known = |discovered: &Discovered| discovered.with_address(address, "shared").is_some();
    discovered.public_ips_listed(&place, NOW + KEPT, [], &settings);
    assert!(is_known(&discovered), "a list may lag");
    discovered.public_ips_listed(&place, NOW + KEPT + Duration::from_secs(1), [], &settings);
    discovered.forget_unnamed([&web], &settings);
    assert!(!is_known(&discovered));
    let owned = discovered.owned(&web, None, Standing::Going, NOW, &settings);
    assert_eq!(names(&owned), ["own"], "a list proves no absence");
}
