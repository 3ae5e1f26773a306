//! The process that starts a person's cluster and keeps it: the first process of a namespace of processes, in namespaces
//! of its own for mounts and network. When it ends, however it ends, the kernel ends all that it has started, and nothing
//! is left of its mounts and its network. What outlives it are loop devices and its folder.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    net::SocketAddr,
    path::Path,
};

use serde_json::{Value, json};
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
};

use crate::{
    chart,
    cluster::{Cluster, Settings},
    emulator::{MACHINES, text},
    kubernetes::{self, CloudProvider, Controllers, GATEWAY},
    nodes,
    place::{Place, write_json},
    process::Folder,
    relay::relay,
};

/// Where the supervisor serves for this machine: at a free port of the loopback address.
const OUTSIDE: &str = "127.0.0.1:0";
/// The security group and the route table of the nodes.
const SECURITY_GROUP: &str = "nodes-nsg";
const ROUTE_TABLE: &str = "routes";

/// The machines of a person's cluster, in the network that its nodes have.
fn scenario() -> Value {
    json!({
        "virtualNetworks": [
            {"name": "net", "prefixes": ["10.213.0.0/16"], "subnets": [{"name": "nodes", "prefix": "10.213.1.0/24"}]},
        ],
        "virtualMachines": [{"name": "node-{}", "count": MACHINES.len(), "zone": "1"}],
    })
}

/// What the cloud configuration says of that network.
fn keys() -> Value {
    json!({
        "subnetName": "nodes", "securityGroupName": SECURITY_GROUP, "routeTableName": ROUTE_TABLE,
        "loadBalancerSku": "standard", "loadBalancerBackendPoolConfigurationType": "nodeIP",
    })
}

/// Starts a cluster in new namespaces, in which this must be the first process, and keeps it until it is told to stop.
///
/// # Errors
/// A port of this machine or a file of the place cannot be opened. Whatever else fails panics.
pub async fn serve(place: &Place, lazuli: &Path, tools: &Path) -> io::Result<()> {
    note_failures(place);
    let mut stopped = signal(SignalKind::terminate())?;
    // In the network of this machine; all that follows is in the cluster's.
    let (api_server, page) = (TcpListener::bind(OUTSIDE).await?, TcpListener::bind(OUTSIDE).await?);
    kubernetes::enter_own_network();
    tokio::select! {
        biased;
        _ = stopped.recv() => Ok(()),
        result = serve_in_own_network(place, lazuli, tools, api_server, page) => result,
    }
}

/// Keeps what a panic says for `up`: the log goes on with what the processes said last.
fn note_failures(place: &Place) {
    let (file, usual) = (place.failure(), std::panic::take_hook());
    std::panic::set_hook(Box::new(move |info| {
        if let Some(words) = info.payload_as_str() {
            // The log has it in any case.
            let _ = fs::write(&file, words);
        }
        usual(info);
    }));
}

async fn serve_in_own_network(
    place: &Place,
    lazuli: &Path,
    tools: &Path,
    api_server: TcpListener,
    page: TcpListener,
) -> io::Result<()> {
    let steps = File::options().create(true).append(true).open(place.steps())?;
    let report = |step: &str| {
        // The cluster serves also when nobody can read how far it is.
        let _ = writeln!(&steps, "{step}");
    };
    let scenario_file = place.path().join("scenario.json");
    fs::write(&scenario_file, scenario().to_string())?;
    let emulator = ["--scenario", &text(&scenario_file)];
    let settings = Settings {
        tools,
        lazuli,
        emulator: &emulator,
        gates: "",
        provider: CloudProvider::External,
        controllers: Controllers::All,
    };
    let mut cluster = start(place, &settings, &report).await;
    let (outside, page_outside) = (api_server.local_addr()?, page.local_addr()?);
    cluster.kubernetes.kubeconfig_at(outside, &place.kubeconfig());
    let addresses = json!({"apiServer": format!("https://{outside}"), "page": format!("http://{page_outside}/")});
    write_json(&place.addresses(), &addresses)?;
    let inside = |address: &str| address.parse::<SocketAddr>().expect("an address of ours");
    tokio::join!(
        relay(api_server, inside(&format!("{GATEWAY}:443"))),
        relay(page, inside(chart::EMULATOR)),
        nodes::keep(place, &settings, &mut cluster.kubernetes),
    );
    Ok(())
}

/// The cluster with the chart, the cloud controllers included.
async fn start(place: &Place, settings: &Settings<'_>, report: &dyn Fn(&str)) -> Cluster {
    let mut cluster = Cluster::start(Folder::at(place.path()), settings, report).await;
    let azure = cluster.azure.other_tool().await;
    azure.put_network("networkSecurityGroups", SECURITY_GROUP, json!({})).await;
    azure.put_network("routeTables", ROUTE_TABLE, json!({})).await;
    cluster.apply_chart(keys()).await;
    // For claims that name no class.
    let default = json!({"metadata": {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}});
    cluster.kubernetes.patch("/apis/storage.k8s.io/v1/storageclasses/ext4", default).await;
    report("the chart is installed");
    cluster.serving().await;
    report("the chart's pods are ready");
    cluster.registered().await;
    report("the nodes take pods");
    cluster
}
