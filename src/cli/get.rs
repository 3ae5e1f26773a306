//! `lazuli get`: what the provider sees of a cluster in Azure. It reads and changes nothing.

mod disks;
mod load_balancers;
mod shares;

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
use serde_json::{Map, Value};

use super::{Outcome, connect::azure_of, output::Format};

/// Why something cannot be read.
type AnyError = Box<dyn std::error::Error + Send + Sync>;

/// How long Azure may take to answer.
const PATIENCE: Duration = Duration::from_secs(120);
/// What a cell without a value shows.
const NONE: &str = "-";

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
    LoadBalancers(load_balancers::LoadBalancers),
    /// The managed disks of the cluster: volume, claim, size, zone, state, and the machine and LUN that each is attached at.
    /// With --node: what that machine holds, and its next free LUN.
    Disks(disks::Disks),
    /// The file shares of the cluster: storage account, volume, claim, quota, tier, snapshots, and what is deleted and can be
    /// restored. With --used: how much of each is used.
    Shares(shares::Shares),
}

/// What is a table with a line for each.
#[derive(Debug, Subcommand)]
enum TableOf {
    /// The VMs of the cluster's resource group and the instances of its scale sets: provider id, type and addresses.
    Instances(Common),
    /// The region and zone of each of these, as its Node's labels say them.
    Zones(Common),
    /// The cluster, and the Nodes of its control plane where a cluster is named.
    Clusters {
        /// The --cluster-name of lazuli cloud-controllers.
        #[arg(long, env = "LAZULI_CLUSTER_NAME", default_value = "kubernetes")]
        cluster_name: String,
        #[command(flatten)]
        common: Common,
    },
    /// The routes of the cluster's route table, and the Node of each.
    Routes(Common),
}

#[derive(Debug, Args)]
struct Common {
    /// How to print; json is for programs: an object for each line, in an array or below the table's name.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    output: Format,
    #[command(flatten)]
    cloud: CloudOptions,
}

/// Rows with a name for each column.
#[derive(Debug, PartialEq, Eq)]
struct Table {
    columns: &'static [&'static str],
    rows: Vec<Vec<String>>,
}

impl Table {
    fn print(&self, format: Format) -> String {
        match format {
            Format::Json => {
                let object = |row: &Vec<String>| -> Value {
                    let cells = self.columns.iter().zip(row);
                    let cell = |text: &String| if text == NONE { Value::Null } else { Value::from(text.as_str()) };
                    cells.map(|(column, text)| ((*column).to_owned(), cell(text))).collect::<Map<_, _>>().into()
                };
                format!("{}\n", Value::from(self.rows.iter().map(object).collect::<Vec<_>>()))
            }
            Format::Text => {
                let heads: Vec<String> = self.columns.iter().map(|column| column.to_uppercase()).collect();
                let all: Vec<&Vec<String>> = [&heads].into_iter().chain(&self.rows).collect();
                let width = |at: usize| all.iter().map(|row| row[at].chars().count()).max().unwrap_or_default();
                let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
                let line = |row: &&Vec<String>| {
                    let cells = row.iter().zip(&widths).map(|(text, width)| format!("{text:<width$}"));
                    format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
                };
                all.iter().map(line).collect()
            }
        }
    }
}

/// Why something cannot be got.
#[derive(Debug, thiserror::Error)]
enum GetError {
    #[error("the cloud configuration has no routeTableName, so there is no route table to read")]
    NoRouteTable,
    #[error("route table {0} does not exist; lazuli cloud-controllers makes it for the first route")]
    NoSuchTable(ArmId),
}

pub(super) async fn run(options: Options) -> Outcome {
    print!("{}", printed(options).await?);
    Ok(())
}

async fn printed(options: Options) -> Result<String, Box<dyn std::error::Error + Send + Sync>> {
    let what = match options.what {
        What::LoadBalancers(options) => return load_balancers::printed(&options).await,
        What::Disks(options) => return Box::pin(disks::printed(&options)).await,
        What::Shares(options) => return Box::pin(shares::printed(&options)).await,
        What::Table(what) => what,
    };
    let (TableOf::Instances(common)
    | TableOf::Zones(common)
    | TableOf::Routes(common)
    | TableOf::Clusters { common, .. }) = &what;
    let client = clients::cluster(&common.cloud).await?;
    let config = clients::configuration(&common.cloud, client.as_ref()).await?;
    let table = match &what {
        TableOf::Instances(common) => instances(&machines(common, &config).await?),
        TableOf::Zones(common) => zones(&machines(common, &config).await?),
        TableOf::Routes(common) => routes(&route_table(common, &config).await?),
        TableOf::Clusters { cluster_name, .. } => {
            let masters = match &client {
                Some(client) => control_plane(client).await?,
                None => vec![],
            };
            clusters(&config, cluster_name, &masters)
        }
    };
    Ok(table.print(common.output))
}

/// A machine under the name that people know: that of a VM, else that of the computer.
struct Named {
    name: String,
    instance: Instance,
}

/// The machines of the cluster's resource group, by name: its VMs, and the instances of its uniform scale sets.
async fn machines(common: &Common, config: &Config) -> Result<Vec<Named>, Box<dyn std::error::Error + Send + Sync>> {
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

async fn route_table(common: &Common, config: &Config) -> Result<RouteTable, AnyError> {
    let id = route_table_id(config)?.ok_or(GetError::NoRouteTable)?;
    let azure = azure_of(&common.cloud, config).await?;
    read_route_table(&azure.network, &id, &Until::within(PATIENCE)).await
}

fn or_none(text: impl IntoIterator<Item = String>) -> String {
    let all: Vec<String> = text.into_iter().collect();
    if all.is_empty() { NONE.to_owned() } else { all.join(",") }
}

fn instances(all: &[Named]) -> Table {
    let row = |Named { name, instance: one }: &Named| {
        vec![
            name.clone(),
            one.size.clone(),
            or_none(one.addresses.iter().map(|address| address.private.to_string())),
            or_none(one.addresses.iter().filter_map(|address| Some(address.public?.to_string()))),
            provider_id(&one.id),
        ]
    };
    Table { columns: &["name", "type", "internal", "external", "provider_id"], rows: all.iter().map(row).collect() }
}

fn zones(all: &[Named]) -> Table {
    let row = |Named { name, instance: one }: &Named| vec![name.clone(), one.location.to_lowercase(), one.zone_label()];
    Table { columns: &["name", "region", "zone"], rows: all.iter().map(row).collect() }
}

fn clusters(config: &Config, name: &str, masters: &[String]) -> Table {
    let cluster = &config.cluster;
    let row = vec![
        name.to_owned(),
        cluster.subscription_id.clone(),
        cluster.resource_group.as_str().to_owned(),
        cluster.location.clone(),
        or_none(masters.iter().cloned()),
    ];
    Table { columns: &["name", "subscription", "resource_group", "location", "master"], rows: vec![row] }
}

fn routes(table: &RouteTable) -> Table {
    let row = |route: &Route| {
        vec![
            route.name.clone(),
            or_none(names::node(&route.name).map(str::to_owned)),
            or_none(route.range.map(|range| range.to_string())),
            or_none(route.next_hop.map(|hop| hop.to_string())),
        ]
    };
    Table { columns: &["name", "node", "range", "next_hop"], rows: table.routes.iter().map(row).collect() }
}

#[cfg(test)]
#[cfg(feature = "emulator")]
mod tests {
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
    use serde_json::json;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        options: Options,
    }

    async fn got(folder: &Folder, arguments: &[&str]) -> Result<String, String> {
        let config = format!("--cloud-config={}", folder.path().join("azure.json").display());
        let more = [config.as_str(), "--cloud-config-secret-name="];
        let options = Command::parse_from([&["get"], arguments, &more].concat()).options;
        Box::pin(printed(options)).await.map_err(|error| error.to_string())
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
        assert_eq!(lines[0], ["NAME", "TYPE", "INTERNAL", "EXTERNAL", "PROVIDER_ID"]);
        assert_eq!(lines[1][..4], ["node-0", "Standard_D8s_v3", "10.240.0.4", "-"]);
        assert!(lines[1][4].starts_with("azure:///subscriptions/") && lines[1][4].ends_with("virtualMachines/node-0"));
        assert_eq!((lines.len(), lines[3][0]), (4, "pool000000"));
        assert!(
            lines[3][2].starts_with("10.240.0.") && lines[3][4].ends_with("/pool/virtualMachines/0"),
            "{instances}"
        );

        let zones: Value = serde_json::from_str(&got(&folder, &["zones", "--output=json"]).await.unwrap()).unwrap();
        assert_eq!(zones[1], json!({"name": "node-1", "region": scenario::LOCATION, "zone": "0"}));

        let missing = got(&folder, &["routes"]).await.unwrap_err();
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
        let routes: Value = serde_json::from_str(&got(&folder, &["routes", "--output=json"]).await.unwrap()).unwrap();
        assert_eq!(
            routes,
            json!([
                {"name": "node-0____102440024", "node": "node-0", "range": "10.244.0.0/24", "next_hop": "10.240.0.4"},
                {"name": "out", "node": null, "range": "0.0.0.0/0", "next_hop": null}
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
        let clusters = got(&folder, &["clusters", "--output=json", &kubeconfig]).await.unwrap();
        let clusters: Value = serde_json::from_str(&clusters).unwrap();
        assert_eq!((&clusters[0]["name"], &clusters[0]["master"]), (&json!("kubernetes"), &json!("m")));
    }
}
