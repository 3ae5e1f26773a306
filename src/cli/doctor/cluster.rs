//! What is wrong with the cluster. Everything is decided in [`lazuli_diagnosis`]; here are the reads.

use std::{collections::BTreeMap, time::Duration};

use lazuli_azure::{
    Until,
    error::ArmError,
    network::{Network, NetworkType},
};
use lazuli_cluster::{
    ListError, ListedNode, lease_holder, list_containers, list_load_balancers, list_nodes, list_services,
};
use lazuli_config::Config;
use lazuli_controllers::settings::without_services;
use lazuli_csi::server::chain;
use lazuli_diagnosis::{
    Finding, Grade, Node, addresses,
    managers::{self, CLOUD_LEASE, Manager},
    objects::{self, Observed},
    pod_ranges, regions, routes,
};
use lazuli_model::{ArmId, node::Machine};
use lazuli_nodes::cloud_node::{is_unmanaged, labels::REGION};
use lazuli_services::{
    network::{
        backends::labels::MANAGED, load_balancer::LoadBalancer, public_ip::PublicIp, security_group::SecurityGroup,
    },
    service::ClusterAddresses,
};
use serde_json::Value;

use super::super::get;

/// The cluster as a whole.
pub(super) const CLUSTER: &str = "cluster";
/// Reads of Nodes.
const NODES: &str = "Nodes";
/// Reads of pods.
const PODS: &str = "managers";
/// Reads of Services.
const ADDRESSES: &str = "additional addresses of Services";
/// Reads of Services and of what Azure has for them.
const SERVICES: &str = "objects of unknown Services";
/// Reads of the route table.
const ROUTES: &str = "routes";
/// How long Azure may take to answer.
const READS: Duration = Duration::from_secs(60);

/// Examines a cluster. Without `network` Azure is not asked.
pub(super) async fn examine(
    config: &Config,
    client: &kube::Client,
    namespaces: &[String],
    network: Option<&Network>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut have_ranges = false;
    let mut known = ClusterAddresses::default();
    let mut listed_nodes = None;
    match list_nodes(client).await {
        Ok(listed) => {
            let nodes: Vec<Node> = listed.into_iter().map(node).collect();
            let ranges = nodes.iter().flat_map(|node| &node.pod_ranges);
            known.pods = ranges.filter_map(|range| range.parse().ok()).collect();
            have_ranges = nodes.iter().any(|node| !node.pod_ranges.is_empty());
            findings.extend(pod_ranges(&nodes));
            findings.extend(regions(&nodes, &config.cluster.location));
            listed_nodes = Some(nodes);
        }
        Err(error) => findings.push(unseen(NODES, &error)),
    }
    let (managers, failures) = managers_in(client, namespaces).await;
    let is_whole = failures.is_empty();
    findings.extend(failures);
    // What was not listed may be the allocator that is missed.
    if is_whole || !managers.is_empty() {
        findings.extend(managers::allocators(&managers, have_ranges));
    }
    findings.extend(managers::rivals(&managers, &holders(client, &managers).await));
    match list_load_balancers(client).await {
        Ok((services, _)) => findings.extend(addresses::additional(&services, &known)),
        Err(error) => findings.push(unseen(ADDRESSES, &error)),
    }
    if let Some(network) = network {
        findings.extend(unknown_objects(config, client, network).await);
        if let Some(nodes) = &listed_nodes {
            findings.extend(kept_routes(config, network, nodes, &managers).await);
        }
    }
    findings
}

/// What stays in the route table of the configuration, where it names one.
async fn kept_routes(config: &Config, network: &Network, nodes: &[Node], managers: &[Manager]) -> Vec<Finding> {
    let read = match get::route_table_id(config) {
        Ok(None) => return vec![],
        Ok(Some(id)) => get::read_route_table(network, &id, &Until::within(READS)).await,
        Err(error) => Err(error.into()),
    };
    match read {
        Ok(table) => {
            let (pods, services) = managers::ranges(managers);
            routes::kept(nodes, &table, &pods, &services)
        }
        Err(error) => {
            let text = format!("not checked: {}", chain(error.as_ref()));
            vec![Finding::new(ROUTES, Grade::Unseen, text)]
        }
    }
}

fn unseen(check: &'static str, error: &ListError) -> Finding {
    Finding::new(check, Grade::Unseen, format!("not checked: {}", chain(error)))
}

fn node(listed: ListedNode) -> Node {
    let provider_id = listed.provider_id.as_deref();
    let of_azure = provider_id.is_none_or(|id| Machine::of_provider_id(id).is_some());
    let label = |key: &str| listed.labels.get(key).filter(|value| !value.is_empty());
    Node {
        is_ours: of_azure && !is_unmanaged(label(MANAGED).map(String::as_str)),
        region: label(REGION).cloned(),
        name: listed.name,
        pod_ranges: listed.pod_ranges,
        addresses: listed.addresses,
    }
}

async fn managers_in(client: &kube::Client, namespaces: &[String]) -> (Vec<Manager>, Vec<Finding>) {
    let (mut containers, mut failures) = (Vec::new(), Vec::new());
    for namespace in namespaces {
        match list_containers(client, namespace).await {
            Ok(listed) => containers.extend(listed),
            Err(error) => failures.push(unseen(PODS, &error)),
        }
    }
    (managers::managers(&containers), failures)
}

/// The holders of the managers' Leases. One that cannot be read is left out, and the findings do without its name.
async fn holders(client: &kube::Client, managers: &[Manager]) -> BTreeMap<String, String> {
    let mut holders = BTreeMap::new();
    let usual = format!("{}/{}", CLOUD_LEASE.0, CLOUD_LEASE.1);
    for lease in managers.iter().map(Manager::lease).chain([usual]) {
        if !holders.contains_key(&lease)
            && let Some((namespace, name)) = lease.split_once('/')
            && let Ok(Some(holder)) = lease_holder(client, namespace, name).await
        {
            holders.insert(lease, holder);
        }
    }
    holders
}

/// What Azure has for Services that the cluster does not have.
async fn unknown_objects(config: &Config, client: &kube::Client, network: &Network) -> Vec<Finding> {
    let services = match list_services(client).await {
        Ok(services) => services,
        Err(error) => return vec![unseen(SERVICES, &error)],
    };
    match observe(config, network).await {
        Ok(observed) => objects::unknown(&observed, &services),
        Err(error) => vec![Finding::new(SERVICES, Grade::Unseen, format!("not checked: {}", chain(&error)))],
    }
}

async fn observe(config: &Config, network: &Network) -> Result<Observed, ArmError> {
    let settings = without_services(config, "kubernetes");
    let until = Until::within(READS);
    let list = |kind, group| network.list(kind, &settings.subscription, group, &until);
    let id = |body: &Value| body.get("id")?.as_str()?.parse::<ArmId>().ok();
    let balancers = list(NetworkType::LoadBalancer, &settings.load_balancer_resource_group).await?;
    let ips = list(NetworkType::PublicIp, &settings.resource_group).await?;
    let groups = list(NetworkType::SecurityGroup, &settings.security_group_resource_group).await?;
    let own = |group: &SecurityGroup| group.id.name().eq_ignore_ascii_case(&settings.security_group_name);
    Ok(Observed {
        load_balancers: balancers.iter().filter_map(|body| LoadBalancer::read(&id(body)?, body).ok()).collect(),
        public_ips: ips.iter().filter_map(|body| PublicIp::read(&id(body)?, body).ok()).collect(),
        // Only the configured one has rules of Services.
        security_groups: groups
            .iter()
            .filter_map(|body| SecurityGroup::read(&id(body)?, body).ok())
            .filter(own)
            .collect(),
    })
}

#[cfg(test)]
#[cfg(feature = "emulator")]
mod tests {
    use clap::Parser;
    use lazuli_rig::cluster::Cluster;
    use serde_json::json;

    use super::super::{Options, examined};

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        options: Options,
    }

    async fn doctor(cluster: &Cluster) -> (String, bool) {
        let words = ["doctor".to_owned()].into_iter().chain(cluster.arguments());
        Box::pin(examined(&Command::parse_from(words).options)).await
    }

    fn pod(name: &str, command: &[&str]) -> serde_json::Value {
        json!({"metadata": {"name": name, "namespace": "kube-system",
                "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "cp-1", "uid": "u"}]},
            "spec": {"containers": [{"name": "c", "image": "i", "command": command}]}, "status": {"phase": "Running"}})
    }

    #[tokio::test(start_paused = true)]
    async fn a_cluster_is_examined_and_each_fault_is_a_sentence() {
        let cluster = Cluster::start(lazuli_emulator::Options::default(), &[]).await.unwrap();
        for at in 0..2 {
            let mut node = cluster.server.get("nodes", "", &format!("node-{at}")).unwrap();
            node["metadata"]["labels"] = json!({"topology.kubernetes.io/region": "westeurope"});
            node["spec"]["podCIDRs"] = json!([format!("10.244.{at}.0/24")]);
            cluster.server.put("nodes", node).unwrap();
        }
        let allocator = ["kube-controller-manager", "--allocate-node-cidrs=true"];
        cluster.server.put("pods", pod("kube-controller-manager-cp-1", &allocator)).unwrap();
        let (text, is_well) = doctor(&cluster).await;
        assert!(is_well, "{text}");
        for line in [
            "ok   pod ranges: each of 2 Nodes has a pod range, and none overlap\n",
            "ok   region of Nodes: 2 Nodes are labelled with the region westeurope\n",
            "ok   allocators of pod ranges: kube-controller-manager (kube-system/static pods) gives Nodes pod ranges",
            "ok   additional addresses of Services: none is an address of the cluster",
            "ok   objects of unknown Services: there are none\n",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }

        let mut node = cluster.server.get("nodes", "", "node-1").unwrap();
        node["metadata"]["labels"] = json!({});
        node["spec"]["podCIDRs"] = json!(["10.244.0.0/25"]);
        cluster.server.put("nodes", node).unwrap();
        let second = ["cloud-controller-manager", "--allocate-node-cidrs=true"];
        cluster.server.put("pods", pod("cloud-controller-manager-cp-1", &second)).unwrap();
        let ours = pod("lazuli", &["lazuli", "cloud-controllers", "--lease-name=mine"]);
        cluster.server.put("pods", ours).unwrap();
        let (text, is_well) = doctor(&cluster).await;
        assert!(!is_well);
        let wrong: Vec<&str> = text.lines().filter(|line| line.starts_with("FAIL")).collect();
        assert_eq!(wrong.len(), 4, "{text}");
        for (line, part) in wrong.iter().zip(["overlap", "topology.kubernetes.io/region", "each give", "both run"]) {
            assert!(line.contains(part), "{part}: {line}");
        }
        cluster.azure.shutdown().await;
    }

    #[tokio::test(start_paused = true)]
    async fn routes_that_stay_are_named() {
        let cluster =
            Cluster::start(lazuli_emulator::Options::default(), &[("routeTableName", "rt".into())]).await.unwrap();
        for name in ["node-0", "node-1"] {
            let mut node = cluster.server.get("nodes", "", name).unwrap();
            node["metadata"]["labels"] = json!({"topology.kubernetes.io/region": "westeurope"});
            cluster.server.put("nodes", node).unwrap();
        }
        let (text, is_well) = doctor(&cluster).await;
        assert!(text.contains("?    routes: not checked: ") && text.contains("routeTables/rt"), "{text}");
        assert!(is_well, "the route controller makes the table: {text}");

        for (at, range) in ["10.244.0.0/24", "10.9.0.0/24"].into_iter().enumerate() {
            let mut node = cluster.server.get("nodes", "", &format!("node-{at}")).unwrap();
            node["spec"]["podCIDRs"] = json!([range]);
            cluster.server.put("nodes", node).unwrap();
        }
        let manager = ["lazuli", "cloud-controllers", "--cluster-cidr=10.244.0.0/16"];
        cluster.server.put("pods", pod("lazuli", &manager)).unwrap();
        let route = |name: &str, range: &str, hop: &str| {
            json!({"name": name, "properties":
                {"addressPrefix": range, "nextHopType": "VirtualAppliance", "nextHopIpAddress": hop}})
        };
        let routes = json!([
            route("node-0____10244000024", "10.244.0.0/24", "10.240.0.4"),
            route("node-1____109000024", "10.9.0.0/24", "10.240.0.5"),
            route("to-firewall", "0.0.0.0/0", "10.1.0.4"),
        ]);
        cluster.make_route_table("rt", &routes).await.unwrap();
        let (text, _) = doctor(&cluster).await;
        let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("note routes: ")).collect();
        assert_eq!(lines.len(), 2, "{text}");
        assert!(lines[0].contains("Node node-1 has a route in route table rt that would not be added today"), "{text}");
        assert!(lines[1].contains("1 of 3 routes") && lines[1].contains("(to-firewall)"), "{text}");
        cluster.azure.shutdown().await;
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_cluster_it_says_that_the_cluster_is_not_checked() {
        let cluster = Cluster::start(lazuli_emulator::Options::default(), &[]).await.unwrap();
        let words = ["doctor".to_owned(), "--output=json".to_owned()].into_iter().chain(cluster.arguments());
        let words = words.filter(|word| !word.starts_with("--kubeconfig"));
        let (text, is_well) = Box::pin(examined(&Command::parse_from(words).options)).await;
        let printed: serde_json::Value = serde_json::from_str(&text).unwrap();
        let last = printed["findings"].as_array().unwrap().last().unwrap();
        assert_eq!((&last["check"], &last["grade"]), (&json!("cluster"), &json!("?")));
        assert!(is_well);
        cluster.azure.shutdown().await;
    }
}
