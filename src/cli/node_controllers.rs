//! The options of `lazuli cloud-controllers` that are about Nodes and routes, in the spelling of the Go manager.

use std::{str::FromStr, time::Duration};

use clap::Args;
use lazuli_config::Config;
use lazuli_controllers::{NodeOptions, RouteOptions};
use lazuli_diagnosis::controller_list::{Controller, Entry, runs};
use lazuli_model::{ArmId, ArmIdError, address::Cidr, tags::TagPolicy};
use lazuli_nodes::cloud_node::{
    BetaLabels,
    step::{Controllers, PodRanges},
};

use super::go_arguments::boolean;

/// How long this process has known a Node at least before it deletes it, where the configuration says nothing. A VM and
/// its Node are made within seconds of each other, and Azure's answers may lag behind by as many.
const GRACE: Duration = Duration::from_secs(60);
/// How long a new Node waits for its plugin's annotation with useInstanceMetadata. A plugin whose image is on the machine
/// starts within it, and kubelet's network is hardly ready sooner.
const METADATA_WAIT: Duration = Duration::from_secs(10);

/// Which controllers run, and what those of Nodes need.
#[derive(Debug, Args)]
pub(super) struct NodeArguments {
    /// The controllers to run: names, * for all others, -name for none of that name. There are cloud-node, which
    /// initialises Nodes; cloud-node-lifecycle, which taints and deletes Nodes whose VMs are stopped or gone; service-lb;
    /// and node-route.
    #[arg(
        long,
        env = "LAZULI_CONTROLLERS",
        value_delimiter = ',',
        default_value = "*",
        allow_hyphen_values = true,
        value_name = "NAME"
    )]
    controllers: Vec<Entry>,
    /// Whether node-route makes a route for the pods of each Node. It needs --cluster-cidr, and routeTableName of the
    /// cloud configuration.
    #[arg(long, value_parser = boolean, env = "LAZULI_CONFIGURE_CLOUD_ROUTES", default_value_t = true, action = clap::ArgAction::Set)]
    #[arg(num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    configure_cloud_routes: bool,
    /// The address ranges from which Nodes get those of their pods: one, or one of each family. No route outside of them
    /// is ever removed.
    #[arg(long, env = "LAZULI_CLUSTER_CIDR", value_name = "RANGE,…", default_value = "")]
    #[arg(hide_default_value = true, value_parser = one_of_each_family)]
    cluster_cidr: Ranges,
    /// The address ranges of Services: one, or one of each family. A Node whose pod range overlaps one of them gets no
    /// route, and no Service may name an address of them as its own.
    #[arg(long, env = "LAZULI_SERVICE_CLUSTER_IP_RANGE", value_name = "RANGE,…", default_value = "")]
    #[arg(hide_default_value = true, value_parser = one_of_each_family)]
    service_cluster_ip_range: Ranges,
    /// How often cloud-node compares the addresses of Nodes that are initialised with those of their VMs, such as 5m0s or
    /// 90s: one list of network interfaces for each resource group and scale set. A Node that reports another boot is
    /// compared at once. 0s: never but then.
    #[arg(long, env = "LAZULI_NODE_STATUS_UPDATE_FREQUENCY", default_value = "5m0s", value_parser = go_duration)]
    #[arg(value_name = "DURATION")]
    node_status_update_frequency: Duration,
    /// Whether each Node is expected to get a range for its pods. kube-controller-manager gives it, Lazuli does not: with
    /// true, an event names each Node that is without one for a minute.
    #[arg(long, value_parser = boolean, env = "LAZULI_ALLOCATE_NODE_CIDRS", default_value_t = false, action = clap::ArgAction::Set)]
    #[arg(num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    allocate_node_cidrs: bool,
    /// Whether new Nodes get the labels of before Kubernetes 1.17 too: beta.kubernetes.io/instance-type and
    /// failure-domain.beta.kubernetes.io/region and /zone.
    #[arg(long, value_parser = boolean, env = "LAZULI_ENABLE_DEPRECATED_BETA_TOPOLOGY_LABELS", default_value_t = true, action = clap::ArgAction::Set)]
    #[arg(num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    enable_deprecated_beta_topology_labels: bool,
}

/// Ranges, separated by commas. The chart of the Go manager writes an empty text where there are none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Ranges(Vec<Cidr>);

impl FromStr for Ranges {
    type Err = <Cidr as FromStr>::Err;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.trim() {
            "" => Ok(Self::default()),
            text => text.split(',').map(|range| range.trim().parse()).collect::<Result<_, _>>().map(Self),
        }
    }
}

/// Reads ranges of which at most one is of each family, as the API server and the Go manager take them.
fn one_of_each_family(text: &str) -> Result<Ranges, String> {
    let ranges: Ranges = text.parse().map_err(|error: <Ranges as FromStr>::Err| error.to_string())?;
    let mut first = std::collections::BTreeMap::new();
    for range in &ranges.0 {
        if let Some(before) = first.insert(range.family(), range) {
            return Err(format!(
                "{before} and {range} are of one family; allowed are one range, or one of IPv4 and one of IPv6, such as \
                 10.96.0.0/16,fd00:96::/112"
            ));
        }
    }
    Ok(ranges)
}

/// Reads a duration as Go's flags spell it: numbers with units, such as `1h30m`, `5m0s` or `500ms`.
fn go_duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no duration such as 5m0s or 90s");
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let (mut rest, mut whole) = (text, Duration::ZERO);
    while !rest.is_empty() || text.is_empty() {
        let digits = rest.find(|char: char| !char.is_ascii_digit()).filter(|at| *at > 0).ok_or_else(wrong)?;
        let (number, unit) = rest.split_at(digits);
        let end = unit.find(|char: char| char.is_ascii_digit()).unwrap_or(unit.len());
        let (unit, left) = unit.split_at(end);
        let milliseconds = match unit {
            "h" => 3_600_000,
            "m" => 60_000,
            "s" => 1_000,
            "ms" => 1,
            _ => return Err(wrong()),
        };
        let part = number.parse::<u64>().ok().and_then(|number| number.checked_mul(milliseconds)).ok_or_else(wrong)?;
        whole = whole.checked_add(Duration::from_millis(part)).ok_or_else(wrong)?;
        rest = left;
    }
    if !whole.is_zero() && whole < Duration::from_secs(1) {
        return Err(format!("{text:?} is less than a second"));
    }
    Ok(whole)
}

/// Why the controllers of Nodes cannot run.
#[derive(Debug, thiserror::Error)]
pub(super) enum NodeArgumentsError {
    #[error(
        "the cloud configuration has no routeTableName, and node-route needs it: set it, or give \
         --configure-cloud-routes=false"
    )]
    NoRouteTable,
    #[error("the cloud configuration names a route table or subnet that cannot be one")]
    Id(#[from] ArmIdError),
}

impl NodeArguments {
    /// The address ranges of Pods, as far as they are given.
    pub(super) fn cluster_ranges(&self) -> &[Cidr] {
        &self.cluster_cidr.0
    }

    /// The address ranges of Services, as far as they are given.
    pub(super) fn service_ranges(&self) -> &[Cidr] {
        &self.service_cluster_ip_range.0
    }

    /// Whether a controller is to run.
    pub(super) fn runs(&self, controller: Controller) -> bool {
        runs(&self.controllers, controller)
    }

    /// What the controllers of Nodes need; `None` where none of them is to run.
    ///
    /// # Errors
    /// [`NodeArgumentsError`].
    pub(super) fn options(&self, config: &Config) -> Result<Option<NodeOptions>, NodeArgumentsError> {
        self.overlaps().iter().for_each(|overlap| tracing::warn!("{overlap}"));
        if self.allocate_node_cidrs {
            tracing::info!(
                "--allocate-node-cidrs is true: kube-controller-manager gives Nodes the ranges of their pods, this process \
                 gives none, and an event names each Node that lacks one"
            );
        }
        let routes = match self.configure_cloud_routes && self.runs(Controller::NodeRoute) {
            // As in the Go manager: without the ranges of the cluster no route is its own.
            true if self.cluster_cidr.0.is_empty() => {
                tracing::warn!("--cluster-cidr is not given: the route controller does not run");
                None
            }
            true => Some(self.routes(config)?),
            false => None,
        };
        let controllers = Controllers {
            node: self.runs(Controller::CloudNode),
            lifecycle: self.runs(Controller::CloudNodeLifecycle),
            route: routes.is_some(),
        };
        let runs_any = controllers.node || controllers.lifecycle || controllers.route;
        Ok(runs_any.then(|| NodeOptions {
            controllers,
            beta_labels: match self.enable_deprecated_beta_topology_labels {
                true => BetaLabels::Written,
                false => BetaLabels::LeftOut,
            },
            pod_ranges: if self.allocate_node_cidrs { PodRanges::Expected } else { PodRanges::NotExpected },
            subscription: config.cluster.subscription_id.clone(),
            resource_group: config.cluster.resource_group.as_str().to_owned(),
            grace: config.cluster.not_found_grace.max(GRACE),
            address_refresh: self.node_status_update_frequency,
            route_settle: config.network.route_settle.unwrap_or_default(),
            metadata_wait: if config.cluster.use_instance_metadata { METADATA_WAIT } else { Duration::ZERO },
            routes,
        }))
    }

    /// What is said of ranges of Services and of pods that overlap. The Go manager and kube-controller-manager start with them
    /// and give Nodes the rest of the range (source: `filterOutServiceRange` of their range allocators).
    fn overlaps(&self) -> Vec<String> {
        let (services, pods) = (&self.service_cluster_ip_range.0, &self.cluster_cidr.0);
        let pairs = services.iter().flat_map(|services| pods.iter().map(move |pods| (services, pods)));
        let overlapping = pairs.filter(|(services, pods)| services.overlaps(pods));
        let said = |(services, pods): (&Cidr, &Cidr)| {
            format!(
                "--service-cluster-ip-range={services} overlaps --cluster-cidr={pods}: a Node whose pod range lies in it gets \
                 no route; give both the ranges that kube-apiserver and kube-controller-manager have, and apart where the \
                 cluster is made anew"
            )
        };
        overlapping.map(said).collect()
    }

    fn routes(&self, config: &Config) -> Result<RouteOptions, NodeArgumentsError> {
        let network = &config.network;
        let name = network.route_table.as_ref().ok_or(NodeArgumentsError::NoRouteTable)?;
        let (subscription, group) = (&network.subscription_id, network.route_table_resource_group.as_str());
        let subnet = match (&network.vnet, &network.subnet) {
            (Some(vnet), Some(subnet)) => {
                let group = network.vnet_resource_group.as_str();
                let vnet = ArmId::resource(subscription, group, "Microsoft.Network/virtualNetworks", vnet)?;
                Some(format!("{vnet}/subnets/{subnet}").parse()?)
            }
            _ => None,
        };
        // As the Go manager does: the tags are for what is in the cluster's own group.
        let is_own = group.eq_ignore_ascii_case(config.cluster.resource_group.as_str());
        let tags = TagPolicy { set: config.tags.apply.clone(), keep_prefixes: config.tags.keep_prefixes.clone() };
        Ok(RouteOptions {
            table: ArmId::resource(subscription, group, "Microsoft.Network/routeTables", name)?,
            subnet,
            location: config.cluster.location.clone(),
            update_interval: network.route_update_interval.unwrap_or_default(),
            tags: if is_own { tags } else { TagPolicy::default() },
            cluster_ranges: self.cluster_cidr.0.clone(),
            service_ranges: self.service_cluster_ip_range.0.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use lazuli_config::{Document, Environment};
    use serde_json::{Value, json};

    use super::*;

    #[derive(Debug, Parser)]
    struct Command {
        #[command(flatten)]
        nodes: NodeArguments,
    }

    fn options(arguments: &[&str], more: Value) -> Result<Option<NodeOptions>, NodeArgumentsError> {
        let mut azure = json!({"tenantId": "t", "subscriptionId": "s", "resourceGroup": "g", "location": "l",
            "useManagedIdentityExtension": true, "tags": "team=x"});
        azure.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let document = Document::parse("azure.json", azure.to_string().as_bytes()).unwrap();
        let config = Config::from_documents(Some(&document), None, &Environment::new(&Default::default())).unwrap();
        Command::parse_from([&["x"], arguments].concat()).nodes.options(&config)
    }

    fn which(options: &Option<NodeOptions>) -> Option<(bool, bool, bool)> {
        options.as_ref().map(|NodeOptions { controllers: all, .. }| (all.node, all.lifecycle, all.route))
    }

    #[test]
    fn the_list_the_ranges_and_the_configuration_say_what_runs() {
        let table = json!({"routeTableName": "rt"});
        let ranges = "--cluster-cidr=10.244.0.0/16,fd00::/48";
        assert_eq!(which(&options(&[], table.clone()).unwrap()), Some((true, true, false)));
        assert_eq!(which(&options(&[ranges], table.clone()).unwrap()), Some((true, true, true)));
        let without = options(&[ranges, "--configure-cloud-routes=false"], json!({})).unwrap();
        assert_eq!(which(&without), Some((true, true, false)));
        assert_eq!(which(&options(&[ranges, "--controllers=service-lb"], json!({})).unwrap()), None);
        let some = options(&["--controllers=*,-cloud-node", ranges], table.clone()).unwrap();
        assert_eq!(which(&some), Some((false, true, true)));
        let some = options(&["--controllers=-cloud-node,*"], table).unwrap();
        assert_eq!(which(&some), Some((false, true, false)));
        assert!(Command::try_parse_from(["x", "--controllers=cloud"]).is_err());
        assert!(Command::try_parse_from(["x", "--cluster-cidr=10.244.0.1/16"]).is_err());
    }

    #[test]
    fn services_and_pods_have_one_range_of_each_family_at_most() {
        for option in ["--service-cluster-ip-range", "--cluster-cidr"] {
            let read = |ranges: &str| Command::try_parse_from(["x", &format!("{option}={ranges}")]);
            for ranges in ["", "10.96.0.0/16", "fd00::/112", "fd00::/112, 10.96.0.0/16"] {
                assert!(read(ranges).is_ok(), "{option} {ranges}");
            }
            for ranges in ["10.96.0.0/16,10.97.0.0/16", "10.96.0.0/16,fd00::/112,10.96.0.0/16", "fd00::/112,fd01::/112"]
            {
                let refused = read(ranges).err().unwrap().to_string();
                let parts = [option, ranges, "one of IPv4 and one of IPv6"];
                assert!(parts.iter().all(|part| refused.contains(part)), "{refused}");
            }
            assert!(read("10.96.0.1/16").is_err());
        }
    }

    #[test]
    fn ranges_of_services_and_of_pods_that_overlap_are_named_and_the_process_starts_as_gos() {
        let of = |services: &str, pods: &str| {
            let (services, pods) = (format!("--service-cluster-ip-range={services}"), format!("--cluster-cidr={pods}"));
            let arguments = ["--controllers=node-route", &services, &pods];
            assert!(options(&arguments, json!({"routeTableName": "rt"})).is_ok(), "{services} {pods}");
            Command::parse_from([&["x"], &arguments[..]].concat()).nodes.overlaps()
        };
        let none = Vec::<String>::new();
        assert_eq!(of("10.96.0.0/16,fd00::/112", "10.244.0.0/16,fd01::/48"), none);
        assert_eq!((of("", "10.244.0.0/16"), of("10.96.0.0/16", "")), (none.clone(), none));
        for (services, pods, named) in [
            ("10.244.3.0/24", "10.244.0.0/16", ["=10.244.3.0/24", "=10.244.0.0/16"]),
            ("10.0.0.0/8", "10.244.0.0/16", ["=10.0.0.0/8", "=10.244.0.0/16"]),
            ("10.96.0.0/16,fd00::/112", "10.244.0.0/16,fd00::/48", ["=fd00::/112", "=fd00::/48"]),
        ] {
            let said = of(services, pods);
            assert!(said.len() == 1 && named.iter().all(|range| said[0].contains(range)), "{said:?}");
        }
    }

    #[test]
    fn what_is_missing_or_not_done_is_said() {
        let none = options(&["--cluster-cidr=10.244.0.0/16"], json!({})).unwrap_err();
        assert!(none.to_string().contains("routeTableName"), "{none}");
        assert!(
            none.to_string().ends_with("give --configure-cloud-routes=false"),
            "the flag is true by default: {none}"
        );
    }

    #[test]
    fn what_the_go_chart_says_of_pod_ranges_and_labels_is_taken() {
        let of = |arguments: &[&str]| {
            let options = options(arguments, json!({})).unwrap().unwrap();
            (options.pod_ranges, options.beta_labels)
        };
        assert_eq!(of(&["--cluster-cidr="]), (PodRanges::NotExpected, BetaLabels::Written));
        assert_eq!(of(&["--allocate-node-cidrs=false"]), (PodRanges::NotExpected, BetaLabels::Written));
        assert_eq!(of(&["--allocate-node-cidrs"]), (PodRanges::Expected, BetaLabels::Written));
        let left_out = of(&["--enable-deprecated-beta-topology-labels=false"]);
        assert_eq!(left_out, (PodRanges::NotExpected, BetaLabels::LeftOut));
    }

    #[test]
    fn the_frequency_is_spelled_as_gos() {
        let frequency = |arguments: &[&str]| options(arguments, json!({})).unwrap().unwrap().address_refresh;
        assert_eq!(frequency(&[]), Duration::from_secs(300));
        for (text, seconds) in [("5m0s", 300), ("90s", 90), ("1h30m", 5_400), ("0s", 0), ("0", 0), ("1500ms", 1)] {
            let given = format!("--node-status-update-frequency={text}");
            assert_eq!(frequency(&[&given]).as_secs(), seconds, "{text}");
        }
        for text in ["", "5", "m", "5 m", "5m-1s", "-5m", "1.5h", "5d", "10ms", "99999999999999999999s"] {
            let given = format!("--node-status-update-frequency={text}");
            assert!(Command::try_parse_from(["x", &given]).is_err(), "{text}");
        }
    }

    #[test]
    fn the_keys_of_routes_count() {
        let waits = options(&[], json!({"useInstanceMetadata": true})).unwrap().unwrap();
        assert_eq!(waits.metadata_wait, METADATA_WAIT);
        let keys = json!({"routeTableName": "rt", "routeTableResourceGroup": "Other", "vnetName": "v",
            "vnetResourceGroup": "n", "subnetName": "nodes", "nodeInstanceNotFoundGracePeriodInSeconds": 300,
            "routeUpdateIntervalInSeconds": 5, "routeUpdateWaitingInSeconds": 7});
        let ranges = ["--cluster-cidr=10.244.0.0/16", "--service-cluster-ip-range=10.96.0.0/16,fd00:1::/112"];
        let options = options(&ranges, keys).unwrap().unwrap();
        let routes = options.routes.unwrap();
        assert_eq!((options.grace, options.metadata_wait), (Duration::from_secs(300), Duration::ZERO));
        assert!(routes.table.folded().ends_with("/resourcegroups/other/providers/microsoft.network/routetables/rt"));
        assert!(
            routes.subnet.unwrap().as_str().ends_with("/n/providers/Microsoft.Network/virtualNetworks/v/subnets/nodes")
        );
        assert_eq!((options.route_settle, routes.update_interval), (Duration::from_secs(7), Duration::from_secs(5)));
        assert_eq!(routes.service_ranges.len(), 2);
        assert_eq!(routes.tags, TagPolicy::default(), "the table is not in the cluster's group");
    }
}
