use std::collections::BTreeMap;

use lazuli_model::{ArmId, ServiceKey};
use lazuli_services::{
    ask::names::BaseName,
    network::{load_balancer::LoadBalancer, public_ip::PublicIp, security_group::SecurityGroup},
};
use serde_json::json;

use super::{
    managers::{Container, DiskFlags, Manager, ServiceFlags, allocators, managers, of_disks, of_services, rivals},
    objects::{Observed, unknown},
    *,
};

fn node(name: &str, ranges: &[&str]) -> Node {
    let pod_ranges = ranges.iter().map(|range| (*range).to_owned()).collect();
    Node { name: name.to_owned(), is_ours: true, region: Some("westeurope".to_owned()), pod_ranges, addresses: vec![] }
}

fn graded(findings: &[Finding]) -> Vec<Grade> {
    findings.iter().map(|finding| finding.grade).collect()
}

#[test]
fn pod_ranges_that_one_allocator_gave_are_fine() {
    let nodes = [node("a", &["10.244.0.0/24", "fd00::/64"]), node("b", &["10.244.1.0/24", "fd00:0:0:1::/64"])];
    assert_eq!(graded(&pod_ranges(&nodes)), [Grade::Fine]);
    assert_eq!(graded(&pod_ranges(&[node("a", &[])])), [Grade::Note]);
    assert_eq!(pod_ranges(&[]), []);
}

#[test]
fn overlaps_nodes_without_a_range_and_ranges_that_are_none_are_wrong() {
    let nodes = [
        node("small", &["10.244.1.0/24"]),
        node("large", &["10.244.0.0/16"]),
        node("twin", &["10.244.1.0/24"]),
        node("far", &["10.1.0.0/24"]),
        node("none", &[]),
        node("odd", &["10.244.0.0"]),
    ];
    let findings = pod_ranges(&nodes);
    assert_eq!(graded(&findings), [Grade::Wrong; 4]);
    let told: Vec<&str> = findings.iter().map(|finding| finding.text.as_str()).collect();
    assert!(told[0].contains("Node odd") && told[0].contains("\"10.244.0.0\""), "{told:?}");
    assert!(told[1].contains("large (10.244.0.0/16) and small (10.244.1.0/24)"), "{told:?}");
    assert!(told[2].contains("large (10.244.0.0/16) and twin (10.244.1.0/24)"), "{told:?}");
    assert!(told[3].starts_with("1 of 6 Nodes have no pod range (none)"), "{told:?}");
}

#[test]
fn a_node_of_this_provider_says_that_it_is_in_the_configured_region() {
    let fine = regions(&[node("a", &[])], "West Europe");
    assert_eq!(graded(&fine), [Grade::Fine]);
    let silent = Node { region: None, ..node("b", &[]) };
    let foreign = Node { is_ours: false, ..silent.clone() };
    let away = Node { region: Some("eastus".to_owned()), ..node("c", &[]) };
    let findings = regions(&[node("a", &[]), silent, foreign.clone(), away], "westeurope");
    assert_eq!(graded(&findings), [Grade::Wrong; 2]);
    assert!(findings[0].text.starts_with("1 of the Nodes have no label") && findings[0].text.contains("(b)"));
    assert!(findings[1].text.contains("c in eastus"), "{findings:?}");
    assert_eq!(regions(&[foreign], "westeurope"), []);
}

fn container(owner: &str, command: &str) -> Container {
    Container {
        namespace: "kube-system".to_owned(),
        pod: format!("{owner}-pod"),
        owner: owner.to_owned(),
        image: "registry/x:1".to_owned(),
        command: command.split('|').map(str::to_owned).collect(),
        release: None,
    }
}

const KCM: &str = "kube-controller-manager|--allocate-node-cidrs=true|--cluster-cidr=10.244.0.0/16";

fn found(commands: &[(&str, &str)]) -> Vec<Manager> {
    let containers: Vec<Container> = commands.iter().map(|(owner, command)| container(owner, command)).collect();
    managers(&containers)
}

#[test]
fn exactly_one_program_gives_pod_ranges() {
    let of = |commands: &[(&str, &str)]| allocators(&found(commands), true);
    let ccm = "/usr/local/bin/cloud-controller-manager|--allocate-node-cidrs|true|--v=2";
    // Three replicas on three machines are one program.
    let replicas = [("Node/a", KCM), ("Node/b", KCM), ("Node/c", KCM)];
    assert_eq!(graded(&of(&replicas)), [Grade::Fine]);
    let two = of(&[("Node/a", KCM), ("Deployment/ccm", ccm)]);
    assert_eq!(graded(&two), [Grade::Wrong]);
    assert!(two[0].text.contains("kube-controller-manager (kube-system/static pods)"), "{two:?}");
    assert!(two[0].text.contains("the Azure cloud-controller-manager (kube-system/Deployment/ccm)"), "{two:?}");
    for one in [
        "cloud-controller-manager|--allocate-node-cidrs=false",
        "cloud-controller-manager|--controllers=*,-node-ipam-controller|--allocate-node-cidrs=true",
        "/lazuli|cloud-controllers|--cluster-cidr=10.244.0.0/16",
    ] {
        assert_eq!(graded(&of(&[("Node/a", KCM), ("Deployment/ccm", one)])), [Grade::Fine], "{one}");
    }
    assert_eq!(graded(&of(&[("d", "sh|-c|exec kube-controller-manager --allocate-node-cidrs")])), [Grade::Fine]);
}

#[test]
fn what_cannot_be_seen_of_allocators_is_said_and_blamed_on_none() {
    assert_eq!(graded(&allocators(&[], true)), [Grade::Unseen]);
    let variable = found(&[("d", "kube-controller-manager|--allocate-node-cidrs=$(ALLOCATE)")]);
    assert_eq!(graded(&allocators(&variable, true)), [Grade::Unseen]);
    let without = found(&[("d", "kube-controller-manager|--allocate-node-cidrs=false")]);
    assert_eq!(graded(&allocators(&without, true)), [Grade::Note]);
    assert_eq!(allocators(&without, false), []);
}

#[test]
fn two_managers_with_one_lease_are_noted_and_with_two_leases_wrong() {
    let holders = BTreeMap::from([("kube-system/cloud-controller-manager".to_owned(), "lazuli-x_1".to_owned())]);
    let of = |one: &str, other: &str| rivals(&found(&[("Deployment/a", one), ("Deployment/b", other)]), &holders);
    let (go, ours) = ("cloud-controller-manager|--leader-elect=true", "/lazuli|cloud-controllers");
    let shared = of(go, ours);
    assert_eq!(graded(&shared), [Grade::Note]);
    assert!(shared[0].text.contains("only lazuli-x_1 acts"), "{shared:?}");
    let apart = of(go, "/lazuli|cloud-controllers|--lease-name=mine");
    assert_eq!(graded(&apart), [Grade::Wrong]);
    let all = "both run cloud-node, cloud-node-lifecycle, service-lb, node-route without a Lease in common";
    assert!(apart[0].text.contains(all), "{apart:?}");
    let alone = of("cloud-controller-manager|--leader-elect=false", ours);
    assert_eq!(graded(&alone), [Grade::Wrong]);
    assert!(alone[0].text.contains("(--leader-elect=false and kube-system/cloud-controller-manager)"), "{alone:?}");
    // Divided work, and Services of another class, are no rivalry.
    for (one, other) in [
        (
            "cloud-controller-manager|--controllers=node-ipam,service",
            "lazuli|cloud-controllers|--lease-name=mine|--controllers=*,-service-lb",
        ),
        (go, "lazuli|cloud-controllers|--lease-name=mine|--controllers=service-lb|--load-balancer-class=canary"),
        (
            "cloud-controller-manager|--configure-cloud-routes=false|--controllers=route",
            "lazuli|cloud-controllers|--lease-name=mine",
        ),
    ] {
        assert_eq!(of(one, other), [], "{one} {other}");
    }
    // Replicas on the machines of a control plane are one manager.
    assert_eq!(graded(&rivals(&found(&[("Node/a", go), ("Node/b", go)]), &holders)), [Grade::Fine]);
    let alone = rivals(&found(&[("Deployment/b", ours)]), &holders);
    assert_eq!(graded(&alone), [Grade::Fine]);
}

#[test]
fn two_controllers_of_one_disk_driver_are_told_apart_by_their_namespaces() {
    let go = Container { image: "mcr/azuredisk-csi:v1.30".to_owned(), ..container("Deployment/csi", "--endpoint=x") };
    let node = Container { command: vec!["--nodeid=n".to_owned()], ..go.clone() };
    let ours = container("Deployment/lazuli-controller", "/lazuli|csi-controller|--endpoint=x");
    let found = |containers: &[Container]| rivals(&managers(containers), &BTreeMap::new());
    assert_eq!(graded(&found(&[go.clone(), ours.clone()])), [Grade::Note]);
    let elsewhere = Container { namespace: "storage".to_owned(), ..ours.clone() };
    assert_eq!(graded(&found(&[go.clone(), elsewhere])), [Grade::Wrong]);
    let other = container("Deployment/other", "/lazuli|csi-controller|--driver-name=other.example");
    assert_eq!(found(&[go, other]), []);
    assert_eq!(found(&[node, ours]), []);
}

#[test]
fn objects_of_services_that_the_cluster_does_not_have_are_listed() {
    let web = ServiceKey::new("shop", "web", "0b7c6a52-3c1e-4d3a-9a53-0a6b9a0c2f11");
    let (base, other) = (BaseName::of(&web), format!("a{}", "0".repeat(31)));
    let id = |kind: &str, name: &str| -> ArmId {
        format!("/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/{kind}/{name}").parse().unwrap()
    };
    let balancer = json!({"sku": {"name": "Standard"}, "properties": {
        "frontendIPConfigurations": [{"name": base.as_str(), "properties": {}}, {"name": other, "properties": {}},
            {"name": "mine", "properties": {}}],
        "loadBalancingRules": [{"name": format!("{base}-TCP-80"), "properties": {"protocol": "Tcp"}},
            {"name": format!("{}-TCP-80", other.to_uppercase()), "properties": {"protocol": "Tcp"}}]}});
    let group = json!({"properties": {"securityRules": [
        {"name": format!("{other}-TCP-80-Internet"), "properties": {}}, {"name": "shared-TCP-80-Internet", "properties": {}},
        {"name": "k8s-azure-lb_allow_IPv4_x", "properties": {}}]}});
    let ip = |name: &str, services: &str| {
        let body = json!({"tags": {"k8s-azure-service": services, "k8s-azure-cluster-name": "prod"}, "properties": {}});
        PublicIp::read(&id("publicIPAddresses", name), &body).unwrap()
    };
    let observed = Observed {
        load_balancers: vec![LoadBalancer::read(&id("loadBalancers", "kubernetes"), &balancer).unwrap()],
        public_ips: vec![ip("own", "shop/web"), ip("others", "shop/web,shop/gone"), ip("user", "")],
        security_groups: vec![SecurityGroup::read(&id("networkSecurityGroups", "nsg"), &group).unwrap()],
    };
    let findings = unknown(&observed, &[web]);
    assert_eq!(graded(&findings), [Grade::Note; 2]);
    let told = &findings[0].text;
    for object in ["frontend a0", "rule A0", "load balancer kubernetes", "security group nsg"] {
        assert!(told.contains(object), "{object}: {told}");
    }
    assert!(!told.contains(base.as_str()) && !told.contains("mine"), "{told}");
    assert!(findings[1].text.contains("others is tagged for shop/gone") && findings[1].text.contains("prod"));
    assert_eq!(graded(&unknown(&Observed::default(), &[])), [Grade::Fine]);
}

#[test]
fn the_flags_about_services_are_those_of_the_programs_that_serve_them() {
    let none = ServiceFlags::default();
    assert_eq!(of_services(&[]), std::slice::from_ref(&none));
    let go = "cloud-controller-manager|--cluster-name=prod|--share-addresses=namespace|--load-balancer-class=x";
    let of_go = ServiceFlags { cluster_name: Some("prod".to_owned()), ..none.clone() };
    assert_eq!(of_services(&found(&[("Deployment/go", go)])), [of_go]);
    let ours = "lazuli|cloud-controllers|--cluster-name=c|--load-balancer-class=canary|--share-addresses=namespace|\
                --allowed-external-addresses=20.1.0.0/16,20.2.0.0/16|--allowed-service-resource-groups=Net,ips";
    let nodes_alone = "lazuli|cloud-controllers|--controllers=*,-service-lb|--cluster-name=other";
    let hidden = "lazuli|cloud-controllers|--cluster-name=$(NAME)|--allowed-service-resource-groups=";
    let all = found(&[("Deployment/a", ours), ("Deployment/b", nodes_alone), ("Deployment/c", hidden), ("d", go)]);
    let expected = ServiceFlags {
        cluster_name: Some("c".to_owned()),
        class: Some("canary".to_owned()),
        allowed_external: ["20.1.0.0/16", "20.2.0.0/16"].map(|range| range.parse().unwrap()).to_vec(),
        share_addresses: Some("namespace".to_owned()),
        allowed_groups: vec!["net".to_owned(), "ips".to_owned()],
    };
    assert_eq!(of_services(&all), [expected, none]);
}

#[test]
fn the_flags_about_attaches_are_those_of_this_programs_disk_driver() {
    let of = |command: &str| of_disks(&found(&[("Deployment/csi", command)]));
    assert_eq!(of("azurediskplugin|--endpoint=x"), []);
    let usual = DiskFlags { driver: "disk.csi.azure.com".to_owned(), allowed_groups: vec![], allows_inline: false };
    assert_eq!(of("lazuli|csi-controller|--allow-inline-claimed-disks=false"), std::slice::from_ref(&usual));
    let allowed_groups = vec!["team".to_owned(), "s/*".to_owned()];
    let command =
        "lazuli|csi-controller|--driver-name=d|--allowed-resource-groups=team,s/*|--allow-inline-claimed-disks=true";
    assert_eq!(of(command), [DiskFlags { driver: "d".to_owned(), allowed_groups, allows_inline: true }]);
    for (flags, driver) in [
        ("--drivername=d", "d"),
        ("--driver-name=", "disk.csi.azure.com"),
        ("--driver-name=$(N)", "disk.csi.azure.com"),
    ] {
        assert_eq!(of(&format!("lazuli|csi-controller|{flags}"))[0].driver, driver, "{flags}");
    }
}

#[test]
fn machines_elsewhere_than_the_configured_location_are_named() {
    let of = |all: &[&str]| {
        let machines: Vec<(String, String)> =
            (0..).zip(all).map(|(at, there)| (format!("m-{at}"), (*there).to_owned())).collect();
        locations(&machines, "westeurope").map(|finding| (finding.grade, finding.text))
    };
    assert_eq!(of(&[]), None);
    let (grade, text) = of(&["westeurope", "West Europe"]).unwrap();
    assert!(grade == Grade::Fine && text.contains("2 machines"), "{text}");
    let (grade, text) = of(&["westeurope", "northeurope"]).unwrap();
    assert!(grade == Grade::Note && text.contains("1 of 2 machines") && text.contains("m-1 in northeurope"), "{text}");
    let (grade, text) = of(&["northeurope", "eastus"]).unwrap();
    assert!(grade == Grade::Wrong && text.contains("location in the cloud configuration is westeurope"), "{text}");
}
