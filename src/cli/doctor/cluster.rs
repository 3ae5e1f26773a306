//! What is wrong with the cluster. Everything is decided in [`lazuli_diagnosis`]; here are the reads.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use lazuli_assembly::clients::Azure;
use lazuli_azure::{
    Until,
    error::ArmError,
    network::{Network, NetworkType},
};
use lazuli_balancing::preview::Planned;
use lazuli_cluster::{
    ClusterIps, LeaseName, LeaseView, ListError, ListedNode, lease_holder, list_classes, list_containers,
    list_load_balancers, list_nodes, list_services,
};
use lazuli_config::Config;
use lazuli_controllers::{
    Controller, Options,
    settings::{settings, without_services},
};
use lazuli_csi::server::chain;
use lazuli_diagnosis::{
    Finding, Grade, Node, addresses, kept,
    managers::{self, CLOUD_LEASE, Container, Manager, ServiceFlags},
    migration::Class,
    nvme,
    objects::{self, Observed},
    pod_ranges, regions, routes,
};
use lazuli_journal::Recorder;
use lazuli_model::{ArmId, node::Machine};
use lazuli_nodes::cloud_node::{
    facts::{ANNOTATION, InstanceFacts},
    is_unmanaged,
    labels::{BETA_INSTANCE_TYPE, INSTANCE_TYPE, REGION},
};
use lazuli_reconcile::metrics::Metrics;
use lazuli_services::{
    network::{
        backends::labels::MANAGED, load_balancer::LoadBalancer, public_ip::PublicIp, security_group::SecurityGroup,
        settings::AddressSharing,
    },
    service::{ClusterAddresses, ServiceObject},
};
use lazuli_telemetry::lossy;
use prometheus_client::registry::Registry;
use serde_json::Value;

use super::{super::get, disks, shares, snapshots::Snapshots};

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
pub(super) const READS: Duration = Duration::from_secs(60);

/// What is listed of a cluster, once for all checks: two lists could differ.
#[derive(Debug)]
pub(super) struct Listed {
    /// The Nodes.
    pub(super) nodes: Result<Vec<ListedNode>, ListError>,
    /// The Services that are load balancers, and the addresses of the others.
    pub(super) services: Result<(Vec<ServiceObject>, ClusterIps), ListError>,
    /// The containers of the pods in the namespaces where managers are looked for.
    pub(super) containers: Vec<Container>,
    /// Why pods of some of those namespaces are not among them.
    pub(super) unlisted: Vec<ListError>,
    /// The StorageClasses.
    pub(super) classes: Result<Vec<Class>, ListError>,
    /// What there is of snapshots.
    pub(super) snapshots: Snapshots,
}

impl Listed {
    /// Lists a cluster.
    ///
    /// # Errors
    /// A finding, where the API server does not answer at all. Once: nothing else would be told either.
    pub(super) async fn list(client: &kube::Client, namespaces: &[String]) -> Result<Self, Finding> {
        let nodes = list_nodes(client).await;
        if let Err(error) = &nodes
            && error.is_unanswered()
        {
            return Err(Finding::new(CLUSTER, Grade::Wrong, format!("nothing of it is checked: {}", chain(error))));
        }
        let (mut containers, mut unlisted) = (Vec::new(), Vec::new());
        for namespace in namespaces {
            match list_containers(client, namespace).await {
                Ok(listed) => containers.extend(listed),
                Err(error) => unlisted.push(error),
            }
        }
        let services = list_load_balancers(client).await;
        let (classes, snapshots) = (list_classes(client).await, Snapshots::list(client).await);
        Ok(Self { nodes, services, containers, unlisted, classes, snapshots })
    }
}

/// Examines a cluster. Without `azure` Azure is not asked.
pub(super) async fn examine(
    config: &Config,
    client: &kube::Client,
    cluster: &Listed,
    azure: Option<&Azure>,
) -> Vec<Finding> {
    let network = azure.map(|azure| &azure.network);
    let mut findings = Vec::new();
    let mut machines = BTreeMap::new();
    let mut have_ranges = false;
    let mut known = ClusterAddresses::default();
    let mut listed_nodes = None;
    match &cluster.nodes {
        Ok(listed) => {
            known.nodes =
                listed.iter().flat_map(|node| node.addresses.iter().chain(&node.other_addresses)).copied().collect();
            let machine = |node: &ListedNode| Machine::of_provider_id(node.provider_id.as_deref()?);
            let with_machine = |node: &ListedNode| Some((node.name.clone(), machine(node)?.id().clone()));
            machines.extend(listed.iter().filter_map(with_machine));
            let nodes: Vec<Node> = listed.iter().map(node).collect();
            let ranges = nodes.iter().flat_map(|node| &node.pod_ranges);
            known.pods = ranges.filter_map(|range| range.parse().ok()).collect();
            have_ranges = nodes.iter().any(|node| !node.pod_ranges.is_empty());
            findings.extend(pod_ranges(&nodes));
            findings.extend(regions(&nodes, &config.cluster.location));
            findings.extend(nvme::nodes(&listed.iter().map(by_nvme).collect::<Vec<_>>()));
            listed_nodes = Some(nodes);
        }
        Err(error) => findings.push(unseen(NODES, error)),
    }
    let managers = managers::managers(&cluster.containers);
    findings.extend(cluster.unlisted.iter().map(|error| unseen(PODS, error)));
    // What was not listed may be the allocator that is missed.
    if cluster.unlisted.is_empty() || !managers.is_empty() {
        findings.extend(managers::allocators(&managers, have_ranges));
    }
    findings.extend(managers::rivals(&managers, &holders(client, &managers).await));
    let (pods, services) = managers::ranges(&managers);
    known.pods.extend(pods);
    known.services = services;
    let flags = managers::of_services(&managers);
    match &cluster.services {
        Ok((services, others)) => {
            known.cluster_ips.extend(others.iter());
            known.external_ips.extend(others.external());
            let (kept, planned) = match network {
                Some(network) if listed_nodes.is_some() => {
                    kept_by_services(config, client, network, &flags, &known).await
                }
                _ => Default::default(),
            };
            findings.extend(kept);
            // Of what a Service keeps only this is seen without a plan.
            findings.extend(addresses::additional(services, &known, &flags, &planned));
        }
        Err(error) => findings.push(unseen(ADDRESSES, error)),
    }
    if let Some(azure) = azure {
        for flags in managers::of_disks(&managers) {
            match disks::attached(config, client, &azure.compute, &flags, &machines).await {
                Ok(found) => findings.extend(found),
                Err(error) => findings.push(unseen(kept::ATTACHED, &error)),
            }
        }
    }
    let names: Vec<&str> = listed_nodes.iter().flatten().map(|node: &Node| node.name.as_str()).collect();
    findings.extend(Box::pin(shares::examine(config, client, azure, &names)).await);
    if let Some(network) = network {
        findings.extend(unknown_objects(config, client, network).await);
        if let Some(nodes) = &listed_nodes {
            findings.extend(kept_routes(config, network, nodes, &managers).await);
        }
    }
    findings
}

/// What Services keep, by a dry run of the controllers that serve them, each with its flags, and the classes of the Services that
/// were planned. Nothing is said where the cloud controllers would not start with the configuration: another check says it.
async fn kept_by_services(
    config: &Config,
    client: &kube::Client,
    network: &Network,
    flags: &[ServiceFlags],
    known: &ClusterAddresses,
) -> (Vec<Finding>, BTreeSet<Option<String>>) {
    let (mut kept, mut findings, mut classes) = (Vec::new(), Vec::new(), BTreeSet::new());
    for flags in flags {
        let settings = settings(config, flags.cluster_name.as_deref().unwrap_or("kubernetes"));
        let Ok(mut settings) = settings else { continue };
        if flags.share_addresses.as_deref() == Some("namespace") {
            settings.share_addresses = AddressSharing::Namespace;
        }
        let groups: BTreeSet<String> = flags.allowed_groups.iter().cloned().collect();
        settings.allowed_groups = Some(groups).filter(|groups| !groups.is_empty());
        let allowed = flags.allowed_external.clone();
        // Nothing is led, and no event is written.
        let options = Options {
            settings,
            zones: Some(vec![]),
            lease: LeaseName { namespace: String::new(), name: String::new(), identity: String::new() },
            lease_view: LeaseView::default(),
            operations: Default::default(),
            class: flags.class.clone(),
            accepted_plan: None,
            external: ClusterAddresses {
                allowed,
                pods: known.pods.clone(),
                services: known.services.clone(),
                ..Default::default()
            },
            resync: None,
            events: lossy::Sender::nowhere(),
            journal: Recorder::nowhere(),
        };
        let controller =
            Controller::new(options, network.clone(), client.clone(), Metrics::register(&mut Registry::default()));
        match tokio::time::timeout(READS, controller.dry_run()).await {
            Ok(Ok((planned, _))) => {
                kept.extend(planned);
                classes.insert(flags.class.clone());
            }
            Ok(Err(error)) => findings.push(not_checked(kept::KEPT, &chain(&error))),
            Err(_) => {
                let text = format!(
                    "the Services of the cluster, or what Azure has of them, were not told within {} s",
                    READS.as_secs()
                );
                findings.push(not_checked(kept::KEPT, &text));
            }
        }
    }
    let of_service = |one: &'_ Planned| {
        let all = one.kept.iter().chain(&one.notes).map(|why| (one.object.clone(), why.clone()));
        all.collect::<Vec<_>>()
    };
    let all: Vec<(String, String)> = kept.iter().flat_map(of_service).collect();
    if !classes.is_empty() {
        findings.extend(kept::by_services(all.iter().map(|(service, why)| (service.as_str(), why.as_str()))));
    }
    (findings, classes)
}

fn not_checked(check: &'static str, why: &str) -> Finding {
    Finding::new(check, Grade::Unseen, format!("not checked: {why}"))
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

pub(super) fn unseen(check: &'static str, error: &ListError) -> Finding {
    Finding::new(check, Grade::Unseen, format!("not checked: {}", chain(error)))
}

fn node(listed: &ListedNode) -> Node {
    let provider_id = listed.provider_id.as_deref();
    let of_azure = provider_id.is_none_or(|id| Machine::of_provider_id(id).is_some());
    let label = |key: &str| listed.labels.get(key).filter(|value| !value.is_empty());
    Node {
        is_ours: of_azure && !is_unmanaged(label(MANAGED).map(String::as_str)),
        region: label(REGION).cloned(),
        name: listed.name.clone(),
        pod_ranges: listed.pod_ranges.clone(),
        addresses: listed.addresses.clone(),
    }
}

/// What is known of a Node's NVMe disks.
fn by_nvme(listed: &ListedNode) -> nvme::Node {
    let label = |key: &str| listed.labels.get(key).filter(|value| !value.is_empty());
    nvme::Node {
        name: listed.name.clone(),
        size: label(INSTANCE_TYPE).or_else(|| label(BETA_INSTANCE_TYPE)).cloned(),
        seen: listed.annotations.get(ANNOTATION).and_then(|text| InstanceFacts::parse(text)?.nvme),
    }
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
mod tests;
