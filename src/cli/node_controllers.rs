//! The options of `lazuli cloud-controllers` that are about Nodes and routes, in the spelling of the Go manager.

use std::time::Duration;

use clap::Args;
use lazuli_config::Config;
use lazuli_controllers::{NodeOptions, RouteOptions};
use lazuli_plan::{
    cloud_node::step::Controllers,
    controller_list::{Controller, Entry, runs},
    model::{ArmId, ArmIdError},
    network::{Cidr, TagPolicy},
};

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
    #[arg(long, env = "LAZULI_CONFIGURE_CLOUD_ROUTES", default_value_t = true, action = clap::ArgAction::Set)]
    #[arg(num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    configure_cloud_routes: bool,
    /// The address ranges from which Nodes get those of their pods: one, or one of each family. No route outside of them
    /// is ever removed.
    #[arg(long, env = "LAZULI_CLUSTER_CIDR", value_delimiter = ',', value_name = "RANGE")]
    cluster_cidr: Vec<Cidr>,
    /// Lazuli gives Nodes no pod ranges: kube-controller-manager does. Only false is taken.
    #[arg(long, env = "LAZULI_ALLOCATE_NODE_CIDRS", default_value_t = false, action = clap::ArgAction::Set)]
    #[arg(num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    allocate_node_cidrs: bool,
}

/// Why the controllers of Nodes cannot run.
#[derive(Debug, thiserror::Error)]
pub(super) enum NodeArgumentsError {
    #[error(
        "--allocate-node-cidrs is true, and Lazuli gives Nodes no pod ranges: start kube-controller-manager with \
         --allocate-node-cidrs=true and --cluster-cidr, and leave the flag away here"
    )]
    Allocates,
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
        &self.cluster_cidr
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
        if self.allocate_node_cidrs {
            return Err(NodeArgumentsError::Allocates);
        }
        let routes = match self.configure_cloud_routes && self.runs(Controller::NodeRoute) {
            // As in the Go manager: without the ranges of the cluster no route is its own.
            true if self.cluster_cidr.is_empty() => {
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
            subscription: config.cluster.subscription_id.clone(),
            resource_group: config.cluster.resource_group.as_str().to_owned(),
            grace: config.cluster.not_found_grace.max(GRACE),
            route_settle: config.network.route_settle.unwrap_or_default(),
            metadata_wait: if config.cluster.use_instance_metadata { METADATA_WAIT } else { Duration::ZERO },
            routes,
        }))
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
            cluster_ranges: self.cluster_cidr.clone(),
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
    fn what_is_missing_or_not_done_is_said() {
        let none = options(&["--cluster-cidr=10.244.0.0/16"], json!({})).unwrap_err();
        assert!(none.to_string().contains("routeTableName"), "{none}");
        assert!(
            none.to_string().ends_with("give --configure-cloud-routes=false"),
            "the flag is true by default: {none}"
        );
        let allocates = options(&["--allocate-node-cidrs"], json!({})).unwrap_err();
        assert!(allocates.to_string().contains("kube-controller-manager"), "{allocates}");
        assert!(options(&["--allocate-node-cidrs=false"], json!({})).is_ok());
    }

    #[test]
    fn the_keys_of_routes_count() {
        let waits = options(&[], json!({"useInstanceMetadata": true})).unwrap().unwrap();
        assert_eq!(waits.metadata_wait, METADATA_WAIT);
        let keys = json!({"routeTableName": "rt", "routeTableResourceGroup": "Other", "vnetName": "v",
            "vnetResourceGroup": "n", "subnetName": "nodes", "nodeInstanceNotFoundGracePeriodInSeconds": 300,
            "routeUpdateIntervalInSeconds": 5, "routeUpdateWaitingInSeconds": 7});
        let options = options(&["--cluster-cidr=10.244.0.0/16"], keys).unwrap().unwrap();
        let routes = options.routes.unwrap();
        assert_eq!((options.grace, options.metadata_wait), (Duration::from_secs(300), Duration::ZERO));
        assert!(routes.table.folded().ends_with("/resourcegroups/other/providers/microsoft.network/routetables/rt"));
        assert!(
            routes.subnet.unwrap().as_str().ends_with("/n/providers/Microsoft.Network/virtualNetworks/v/subnets/nodes")
        );
        assert_eq!((options.route_settle, routes.update_interval), (Duration::from_secs(7), Duration::from_secs(5)));
        assert_eq!(routes.tags, TagPolicy::default(), "the table is not in the cluster's group");
    }
}
