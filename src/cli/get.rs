//! `lazuli get`: what the provider sees of a cluster in Azure. It reads and changes nothing.

mod disks;
mod load_balancers;
mod shares;
pub(super) mod snapshots;

use std::{collections::BTreeMap, net::IpAddr, time::Duration};

use clap::{Args, Subcommand};
use lazuli_assembly::clients::{self, CloudOptions};
use lazuli_azure::{
    Until,
    network::{Network, NetworkType},
};
use lazuli_cluster::control_plane;
use lazuli_config::Config;
use lazuli_model::{ArmId, ArmIdError, scale_set::is_instance};
use lazuli_nodes::{
    cloud_node::{
        Instance,
        body::{Machine, nic_addresses},
        provider_id,
    },
    routing::{Route, RouteTable, names},
};
use lazuli_quota::permit::Priority;
use serde_json::{Value, json};

use super::{
    Outcome,
    connect::azure_of,
    output::{Field, Item, List, ListOptions, Printed, fields_help, joined},
    progress::Progress,
    table::{
        Column,
        Shown::{Always, Wide, WithRoom},
    },
    terminal::Screen,
};

/// Why something cannot be read.
type AnyError = Box<dyn std::error::Error + Send + Sync>;

/// How long Azure may take to answer.
const PATIENCE: Duration = Duration::from_secs(120);

/// Options of all that can be got.
#[derive(Debug, Args)]
pub(super) struct Options {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    #[command(flatten)]
    Table(TableOf),
    /// The load balancers in the configured resource group: their frontends, the Services that each serves, rules and
    /// backends.
    #[command(after_long_help = fields_help(load_balancers::FIELDS))]
    LoadBalancers(load_balancers::LoadBalancers),
    /// The disks of the cluster: volume, claim, size, zone, state, and the machine and LUN that each is attached at; of a VHD
    /// blob disk also its kind, its storage account, its lease and its footer, for which the right to read the accounts and
    /// their keys is needed.
    /// With --node: those of that machine, and its next free LUN.
    #[command(after_long_help = fields_help(disks::FIELDS))]
    Disks(disks::Disks),
    /// The file shares of the cluster: storage account, volume, claim, quota, tier, snapshots, and what is deleted and can be
    /// restored. With --used: how much of each is used.
    #[command(after_long_help = fields_help(shares::FIELDS))]
    Shares(shares::Shares),
    /// The snapshots of disks in the cluster's resource groups: VolumeSnapshot, volume, claim, size, state, and how much of each
    /// is there.
    #[command(after_long_help = fields_help(snapshots::FIELDS))]
    Snapshots(snapshots::Snapshots),
}

/// What is a table with a line for each.
#[derive(Debug, Subcommand)]
enum TableOf {
    /// The VMs of the cluster's resource group and the instances of its scale sets: provider id, type and addresses.
    #[command(after_long_help = fields_help(INSTANCE_FIELDS))]
    Instances(Common),
    /// The region and zone of each of these, as its Node's labels say them.
    #[command(after_long_help = fields_help(ZONE_FIELDS))]
    Zones(Common),
    /// The cluster, and the Nodes of its control plane where a cluster is named.
    #[command(after_long_help = fields_help(CLUSTER_FIELDS))]
    Clusters {
        /// The --cluster-name of lazuli cloud-controllers.
        #[arg(long, env = "LAZULI_CLUSTER_NAME", default_value = "kubernetes")]
        cluster_name: String,
        #[command(flatten)]
        common: Common,
    },
    /// The routes of the cluster's route table, and the Node of each.
    #[command(after_long_help = fields_help(ROUTE_FIELDS))]
    Routes(Common),
}

#[derive(Debug, Args)]
struct Common {
    #[command(flatten)]
    output: ListOptions,
    #[command(flatten)]
    cloud: CloudOptions,
}

/// Why something cannot be got.
#[derive(Debug, thiserror::Error)]
enum GetError {
    #[error("the cloud configuration has no routeTableName, so there is no route table to read")]
    NoRouteTable,
    #[error("route table {0} does not exist; lazuli cloud-controllers makes it for the first route")]
    NoSuchTable(ArmId),
}

/// Why there are no routes to print.
enum RoutesError {
    /// There is no route table.
    None(GetError),
    /// It cannot be read.
    Other(AnyError),
}

pub(super) async fn run(options: Options) -> Outcome {
    let printed = Box::pin(printed(options, Screen::of_stdout())).await?;
    printed.print();
    Ok(())
}

async fn printed(options: Options, screen: Screen) -> Result<Printed, AnyError> {
    let (list, output) = Box::pin(listed(options)).await?;
    Ok(list.printed(&output, screen))
}

async fn listed(options: Options) -> Result<(List, ListOptions), AnyError> {
    // Gone before anything is printed.
    let _progress = Progress::begin("the cluster and Azure are asked");
    let what = match options.what {
        What::LoadBalancers(options) => return Ok((load_balancers::list(&options).await?, options.common.output)),
        What::Disks(options) => return Ok((Box::pin(disks::list(&options)).await?, options.common.output)),
        What::Shares(options) => return Ok((Box::pin(shares::list(&options)).await?, options.common.output)),
        What::Snapshots(options) => return Ok((Box::pin(snapshots::list(&options)).await?, options.common.output)),
        What::Table(what) => what,
    };
    let (TableOf::Instances(common)
    | TableOf::Zones(common)
    | TableOf::Routes(common)
    | TableOf::Clusters { common, .. }) = &what;
    let client = clients::cluster(&common.cloud).await?;
    let config = clients::configuration(&common.cloud, client.as_ref()).await?;
    let list = match &what {
        TableOf::Instances(common) => instances(&machines(common, &config).await?),
        TableOf::Zones(common) => zones(&machines(common, &config).await?),
        TableOf::Routes(common) => match route_table(common, &config).await {
            Ok(table) => routes(&table.routes),
            // As where a cluster has none of anything else.
            Err(RoutesError::None(why)) => List { nothing: why.to_string(), ..routes(&[]) },
            Err(RoutesError::Other(error)) => return Err(error),
        },
        TableOf::Clusters { cluster_name, .. } => {
            let masters = match &client {
                Some(client) => control_plane(client).await?,
                None => vec![],
            };
            clusters(&config, cluster_name, &masters)
        }
    };
    let (TableOf::Instances(common)
    | TableOf::Zones(common)
    | TableOf::Routes(common)
    | TableOf::Clusters { common, .. }) = what;
    Ok((list, common.output))
}

/// A machine under the name that people know: that of a VM, else that of the computer.
struct Named {
    name: String,
    instance: Instance,
}

/// The machines of the cluster's resource group, by name: its VMs, and the instances of its uniform scale sets.
async fn machines(common: &Common, config: &Config) -> Result<Vec<Named>, AnyError> {
    let azure = azure_of(&common.cloud, config).await?;
    let (subscription, group) = (&config.cluster.subscription_id, config.cluster.resource_group.as_str());
    let until = Until::within(PATIENCE);
    let list = |kind| azure.network.list(kind, subscription, group, &until);
    let id = |body: &Value| body["id"].as_str().and_then(|id| id.parse::<ArmId>().ok());
    let mut public: BTreeMap<ArmId, IpAddr> = BTreeMap::new();
    for body in list(NetworkType::PublicIp).await? {
        let address = body["properties"]["ipAddress"].as_str().and_then(|text| text.parse().ok());
        public.extend(id(&body).zip(address));
    }
    let mut nics: BTreeMap<ArmId, Value> =
        list(NetworkType::Interface).await?.into_iter().filter_map(|body| Some((id(&body)?, body))).collect();
    let mut bodies = azure.compute.list_vm_bodies(subscription, group, &until).await?;
    for set in azure.compute.list_uniform_sets(subscription, group, &until).await? {
        bodies.extend(azure.compute.list_instance_bodies(&set.id, &until).await?);
    }
    let mut named = Vec::new();
    for body in bodies {
        let mut machine = Machine::read(&body)?;
        if machine.lacks_fault_domain() {
            let whole = azure.compute.read_alone(&machine.id, Priority::Read, &until).await?;
            machine.fault_domain = Machine::read(&whole)?.fault_domain;
        }
        let mut addresses = Vec::new();
        for nic in &machine.nics {
            // The NICs of an instance of a uniform scale set are in no list, and neither are its public IPs.
            let alone = |id: ArmId| {
                let (network, until) = (&azure.network, &until);
                async move { network.read_alone(&id, Priority::Read, until).await }
            };
            if is_instance(&machine.id) && !nics.contains_key(nic) {
                nics.insert(nic.clone(), alone(nic.clone()).await?);
            }
            for address in nics.get(nic).map(nic_addresses).unwrap_or_default() {
                if let Some(ip) = &address.public
                    && is_instance(&machine.id)
                    && !public.contains_key(ip)
                {
                    let read = alone(ip.clone()).await?;
                    public.extend(
                        read["properties"]["ipAddress"]
                            .as_str()
                            .and_then(|text| Some((ip.clone(), text.parse().ok()?))),
                    );
                }
                addresses.push(address.with_public(|id| public.get(id).copied()));
            }
        }
        let name = match &machine.computer_name {
            Some(computer) if is_instance(&machine.id) => computer.to_lowercase(),
            _ => machine.id.name().to_owned(),
        };
        let Machine { id, size, location, zone, fault_domain, .. } = machine;
        named.push(Named { name, instance: Instance { addresses, id, size, location, zone, fault_domain } });
    }
    named.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(named)
}

/// The route table that the configuration names.
pub(super) fn route_table_id(config: &Config) -> Result<Option<ArmId>, ArmIdError> {
    let network = &config.network;
    let group = network.route_table_resource_group.as_str();
    let id = |name: &String| ArmId::resource(&network.subscription_id, group, "Microsoft.Network/routeTables", name);
    network.route_table.as_ref().map(id).transpose()
}

/// Reads a route table.
pub(super) async fn read_route_table(network: &Network, id: &ArmId, until: &Until) -> Result<RouteTable, AnyError> {
    match network.read_alone(id, Priority::Read, until).await {
        Ok(body) => Ok(RouteTable::read(id, &body)?),
        Err(error) if error.fault == lazuli_model::fault::Fault::NotFound => {
            Err(GetError::NoSuchTable(id.clone()).into())
        }
        Err(error) => Err(error.into()),
    }
}

async fn route_table(common: &Common, config: &Config) -> Result<RouteTable, RoutesError> {
    let other = |error: ArmIdError| RoutesError::Other(error.into());
    let id = route_table_id(config).map_err(other)?.ok_or(RoutesError::None(GetError::NoRouteTable))?;
    let azure = azure_of(&common.cloud, config).await.map_err(RoutesError::Other)?;
    let read = read_route_table(&azure.network, &id, &Until::within(PATIENCE)).await;
    read.map_err(|error| match error.downcast::<GetError>() {
        Ok(none) => RoutesError::None(*none),
        Err(error) => RoutesError::Other(error),
    })
}

const INSTANCES: [Column; 7] = [
    Column::new("NAME", Always),
    Column::new("TYPE", WithRoom(3)),
    Column::new("INTERNAL", Always),
    Column::new("EXTERNAL", WithRoom(2)),
    Column::new("REGION", Wide),
    Column::new("ZONE", Wide),
    Column::new("PROVIDER ID", WithRoom(1)),
];
const INSTANCE_FIELDS: &[Field] = &[
    ("name", "of the VM; of an instance of a scale set, that of its computer"),
    ("type", "VM size"),
    ("internal", "private addresses, a list"),
    ("external", "public addresses, a list"),
    ("region", "as the label of its Node says it"),
    ("zone", "as the label of its Node says it"),
    ("providerId", "as its Node has it"),
];

fn instances(all: &[Named]) -> List {
    let item = |Named { name, instance: one }: &Named| {
        let internal: Vec<String> = one.addresses.iter().map(|address| address.private.to_string()).collect();
        let public = one.addresses.iter().filter_map(|address| Some(address.public?.to_string()));
        let external: Vec<String> = public.collect();
        let (region, zone, id) = (one.location.to_lowercase(), one.zone_label(), provider_id(&one.id));
        Item {
            name: name.clone(),
            object: json!({"name": name, "type": one.size, "internal": internal, "external": external,
                "region": region, "zone": zone, "providerId": id}),
            cells: vec![name.clone(), one.size.clone(), joined(internal), joined(external), region, zone, id],
        }
    };
    List::new("instance", &INSTANCES, all.iter().map(item).collect())
}

const ZONES: [Column; 3] = [Column::new("NAME", Always), Column::new("REGION", Always), Column::new("ZONE", Always)];
const ZONE_FIELDS: &[Field] =
    &[("name", "of the machine"), ("region", "as the label of its Node says it"), ("zone", "the same")];

fn zones(all: &[Named]) -> List {
    let item = |Named { name, instance: one }: &Named| {
        let (region, zone) = (one.location.to_lowercase(), one.zone_label());
        let object = json!({"name": name, "region": region, "zone": zone});
        Item { name: name.clone(), object, cells: vec![name.clone(), region, zone] }
    };
    List::new("zone", &ZONES, all.iter().map(item).collect())
}

const CLUSTERS: [Column; 5] = [
    Column::new("NAME", Always),
    Column::new("SUBSCRIPTION", WithRoom(1)),
    Column::new("RESOURCE GROUP", Always),
    Column::new("LOCATION", WithRoom(2)),
    Column::new("CONTROL PLANE", Always),
];
const CLUSTER_FIELDS: &[Field] = &[
    ("name", "the --cluster-name of the cloud controllers"),
    ("subscription", "its id"),
    ("resourceGroup", "that of the machines"),
    ("location", "the region"),
    ("controlPlane", "the Nodes of its control plane, a list; empty where no cluster is named"),
];

fn clusters(config: &Config, name: &str, masters: &[String]) -> List {
    let cluster = &config.cluster;
    let group = cluster.resource_group.as_str();
    let cells = vec![
        name.to_owned(),
        cluster.subscription_id.clone(),
        group.to_owned(),
        cluster.location.clone(),
        joined(masters.iter().cloned()),
    ];
    let object = json!({"name": name, "subscription": cluster.subscription_id, "resourceGroup": group,
        "location": cluster.location, "controlPlane": masters});
    List::new("cluster", &CLUSTERS, vec![Item { name: name.to_owned(), cells, object }])
}

const ROUTES: [Column; 4] = [
    Column::new("NAME", Always),
    Column::new("NODE", Always),
    Column::new("RANGE", Always),
    Column::new("NEXT HOP", Always),
];
const ROUTE_FIELDS: &[Field] = &[
    ("name", "of the route"),
    ("node", "the Node whose pods it leads to; null where its name names none"),
    ("range", "addresses of pods; null where it has none"),
    ("nextHop", "an address of the Node; null where it leads to none"),
];

fn routes(all: &[Route]) -> List {
    let item = |route: &Route| {
        let node = names::node(&route.name).map(str::to_owned);
        let (range, hop) = (route.range.map(|range| range.to_string()), route.next_hop.map(|hop| hop.to_string()));
        Item {
            name: route.name.clone(),
            object: json!({"name": route.name, "node": node, "range": range, "nextHop": hop}),
            cells: vec![route.name.clone(), joined(node), joined(range), joined(hop)],
        }
    };
    List::new("route", &ROUTES, all.iter().map(item).collect())
}

#[cfg(test)]
#[cfg(feature = "emulator")]
mod tests {
    use super::{super::output::testing::assert_regular, *};
    use clap::Parser;
    use lazuli_apiserver::{ApiServer, Options as ApiServerOptions};
    use lazuli_azure::network::NetworkWrite;
    use lazuli_azure::transport::Routes;
    use lazuli_config::{Document, Environment};
    use lazuli_emulator::{
        Emulator,
        scenario::{self, ScaleSet, Scenario},
    };
    use lazuli_rig::{Folder, azure_json};
    use prometheus_client::registry::Registry;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        options: Options,
    }

    async fn got(folder: &Folder, arguments: &[&str]) -> Result<String, String> {
        let config = format!("--cloud-config={}", folder.path().join("azure.json").display());
        let more = [config.as_str(), "--cloud-config-secret-name="];
        let options = Command::parse_from([&["get"], arguments, &more].concat()).options;
        let printed = Box::pin(printed(options, Screen::default())).await.map_err(|error| error.to_string())?;
        Ok(if printed.result.is_empty() { printed.aside } else { printed.result })
    }

    /// The items of what is printed as JSON.
    async fn items(folder: &Folder, arguments: &[&str]) -> Value {
        let text = got(folder, &[arguments, &["-o", "json"]].concat()).await.unwrap();
        serde_json::from_str::<Value>(&text).unwrap()["items"].take()
    }

    #[test]
    fn lists_have_the_fields_that_help_shows() {
        let id = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/a".parse().unwrap();
        let instance = Instance {
            addresses: vec![],
            id,
            size: "Standard_D2s_v3".to_owned(),
            location: "westeurope".to_owned(),
            zone: None,
            fault_domain: Some(0),
        };
        let all = [Named { name: "a".to_owned(), instance }];
        assert_regular(&instances(&all), INSTANCE_FIELDS);
        assert_regular(&zones(&all), ZONE_FIELDS);
        let document = Document::parse(
            "azure.json",
            br#"{"subscriptionId": "s", "resourceGroup": "g", "location": "l", "useManagedIdentityExtension": true}"#,
        );
        let config = Config::from_documents(Some(&document.unwrap()), None, &Environment::new(&Default::default()));
        assert_regular(&clusters(&config.unwrap(), "c", &[]), CLUSTER_FIELDS);
        let route = Route { name: "out".to_owned(), range: None, next_hop: None };
        assert_regular(&routes(&[route]), ROUTE_FIELDS);
    }

    #[tokio::test(start_paused = true)]
    async fn instances_zones_clusters_and_routes_are_printed_as_azure_shows_them() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let scenario = Scenario { scale_sets: vec![ScaleSet::uniform("pool", 1)], ..Scenario::default() };
        let options = lazuli_emulator::Options { scenario, ..Default::default() };
        let configured = options.scenario.clone();
        let azure = Emulator::start(options).await.unwrap();
        let folder = Folder::make("get").unwrap();
        let mut config = azure_json(&configured, &azure.url());
        config["routeTableName"] = "rt".into();
        std::fs::write(folder.path().join("azure.json"), config.to_string()).unwrap();

        let instances = got(&folder, &["instances"]).await.unwrap();
        let lines: Vec<Vec<&str>> = instances.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0], ["NAME", "TYPE", "INTERNAL", "EXTERNAL", "PROVIDER", "ID"]);
        assert_eq!(lines[1][..4], ["node-0", "Standard_D8s_v3", "10.240.0.4", "-"]);
        assert!(lines[1][4].starts_with("azure:///subscriptions/") && lines[1][4].ends_with("virtualMachines/node-0"));
        assert_eq!((lines.len(), lines[3][0]), (4, "pool000000"));
        assert!(
            lines[3][2].starts_with("10.240.0.") && lines[3][4].ends_with("/pool/virtualMachines/0"),
            "{instances}"
        );

        let zones = items(&folder, &["zones"]).await;
        assert_eq!(zones[1], json!({"name": "node-1", "region": scenario::LOCATION, "zone": "0"}));

        let missing = got(&folder, &["routes"]).await.unwrap();
        assert!(missing.contains("routeTables/rt"), "{missing}");
        let document = Document::parse("azure.json", config.to_string().as_bytes()).unwrap();
        let read = Config::from_documents(Some(&document), None, &Environment::new(&Default::default())).unwrap();
        let client = clients::connect(&read, Routes::none(), &mut Registry::default(), 1).await.unwrap();
        let id =
            ArmId::resource(scenario::SUBSCRIPTION, scenario::RESOURCE_GROUP, "Microsoft.Network/routeTables", "rt");
        let until = Until::within(Duration::from_secs(600));
        let kind = NetworkType::RouteTable;
        // Reads bring the token that a write needs.
        client.network.list(kind, scenario::SUBSCRIPTION, scenario::RESOURCE_GROUP, &until).await.unwrap();
        let body = json!({"location": scenario::LOCATION, "properties": {"routes": [
            {"name": "node-0____102440024", "properties": {"addressPrefix": "10.244.0.0/24",
                "nextHopType": "VirtualAppliance", "nextHopIpAddress": "10.240.0.4"}},
            {"name": "out", "properties": {"addressPrefix": "0.0.0.0/0", "nextHopType": "Internet"}}]}});
        let put = NetworkWrite::Put { body, etag: None };
        client.network.write(kind, &id.unwrap(), put, None, &until).await.unwrap().settle(&until).await.unwrap();
        let routes = items(&folder, &["routes"]).await;
        assert_eq!(
            routes,
            json!([
                {"name": "node-0____102440024", "node": "node-0", "range": "10.244.0.0/24", "nextHop": "10.240.0.4"},
                {"name": "out", "node": null, "range": "0.0.0.0/0", "nextHop": null}
            ])
        );

        let server = ApiServer::start(ApiServerOptions::default());
        let master = json!({"metadata": {"name": "m", "labels": {"node-role.kubernetes.io/control-plane": ""}}});
        server.put("nodes", master).unwrap();
        server.put("nodes", json!({"metadata": {"name": "w"}})).unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = server.router();
        tokio::spawn(async move { axum::serve(listener, router).await });
        let kubeconfig = json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": format!("http://{address}")}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "users": [{"name": "u", "user": {}}]});
        let path = folder.path().join("kubeconfig");
        std::fs::write(&path, kubeconfig.to_string()).unwrap();
        let kubeconfig = format!("--kubeconfig={}", path.display());
        let clusters = items(&folder, &["clusters", &kubeconfig]).await;
        assert_eq!((&clusters[0]["name"], &clusters[0]["controlPlane"]), (&json!("kubernetes"), &json!(["m"])));
        assert_eq!(got(&folder, &["clusters", "-o", "name", &kubeconfig]).await.unwrap(), "cluster/kubernetes\n");
    }
}
