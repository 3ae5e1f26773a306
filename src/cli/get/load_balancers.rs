//! `lazuli get load-balancers`: frontends, the Services that each serves, rules and backends.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use clap::Args;
use lazuli_assembly::clients::CloudOptions;
use lazuli_azure::{Until, network::NetworkType};
use lazuli_balancing::listing::{self, Row, Served};
use lazuli_cluster::{Change, WatchedService, follow_services};
use lazuli_controllers::settings;
use lazuli_model::{ArmId, ServiceKey};
use lazuli_services::network::{load_balancer::LoadBalancer, public_ip::PublicIp};
use serde_json::{Value, json};

use super::{
    super::{
        connect::connected,
        output::{Field, Item, List},
        table::{
            Column,
            Shown::{Always, Wide, WithRoom},
        },
    },
    Common,
};

/// How long all reads may take together.
const READS: Duration = Duration::from_secs(120);

#[derive(Debug, Args)]
pub(super) struct LoadBalancers {
    #[command(flatten)]
    pub(super) common: Common,
}

pub(super) async fn list(options: &LoadBalancers) -> Result<List, Box<dyn std::error::Error + Send + Sync>> {
    let (rows, cluster) = load_balancers(&options.common.cloud).await?;
    Ok(of_rows(&rows, cluster))
}

async fn load_balancers(cloud: &CloudOptions) -> Result<(Vec<Row>, Cluster), Box<dyn std::error::Error + Send + Sync>> {
    let (client, config, azure) = connected(cloud).await?;
    // To read, the names of subnet and security group are not needed.
    let settings = settings::without_services(&config, "kubernetes");
    let until = Until::within(READS);
    let list = |kind, group| azure.network.list(kind, &settings.subscription, group, &until);
    let balancers: Vec<LoadBalancer> = list(NetworkType::LoadBalancer, &settings.load_balancer_resource_group)
        .await?
        .iter()
        .filter_map(|body| LoadBalancer::read(&id_of(body)?, body).ok())
        .collect();
    let mut public_ips: BTreeMap<ArmId, PublicIp> = BTreeMap::new();
    let groups = balancers.iter().flat_map(|one| &one.frontends).filter_map(|one| one.public_ip.as_ref());
    let groups: BTreeSet<String> = groups.map(|ip| ip.resource_group().to_owned()).collect();
    for group in &groups {
        let read = |body: &Value| PublicIp::read(&id_of(body)?, body).ok();
        let bodies = list(NetworkType::PublicIp, group).await?;
        public_ips.extend(bodies.iter().filter_map(read).map(|ip| (ip.id.clone(), ip)));
    }
    let (services, cluster) = match client {
        Some(client) => (services(client).await?, Cluster::Asked),
        None => (vec![], Cluster::Unnamed),
    };
    Ok((listing::rows(&balancers, &public_ips, &services), cluster))
}

fn id_of(body: &Value) -> Option<ArmId> {
    body.get("id")?.as_str()?.parse().ok()
}

/// Whether a cluster was asked for its Services.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cluster {
    Asked,
    Unnamed,
}

/// The cluster is named and does not tell its Services.
#[derive(Debug, thiserror::Error)]
#[error("the Services of the cluster cannot be listed: {0}")]
struct NoServices(String);

/// The Services of the cluster.
async fn services(client: kube::Client) -> Result<Vec<ServiceKey>, NoServices> {
    let (following, mut told) = follow_services(client, BTreeSet::new());
    let key = |service| match service {
        WatchedService::Balanced(service) => Some(service.object.key),
        WatchedService::Other(_) => None,
    };
    let first = async {
        match told.recv().await {
            Some(Change::Replaced(all)) => Ok(all.into_iter().filter_map(|(_, service)| key(service)).collect()),
            Some(Change::Lost(why)) => Err(NoServices(why)),
            _ => Err(NoServices("the first list has not come".to_owned())),
        }
    };
    tokio::select! {
        services = first => services,
        () = following => Err(NoServices("the first list has not come".to_owned())),
    }
}

fn served(one: &Served, cluster: Cluster) -> String {
    match (one, cluster) {
        (Served::Service(name), _) => name.clone(),
        (Served::Unknown(base), Cluster::Asked) => format!("{base} (no Service of this cluster)"),
        // The first part of the names is made of the Service's UID.
        (Served::Unknown(base), Cluster::Unnamed) => format!("{base} (--kubeconfig shows its name)"),
        (Served::Foreign, _) => "(not of a Service)".to_owned(),
    }
}

const COLUMNS: [Column; 7] = [
    Column::new("LOAD BALANCER", WithRoom(2)),
    Column::new("FRONTEND", Wide),
    Column::new("SKU", Wide),
    Column::new("ADDRESS", Always),
    Column::new("SERVICE", Always),
    Column::new("RULES", Always),
    Column::new("BACKENDS", WithRoom(1)),
];

/// The fields of a frontend.
pub(super) const FIELDS: &[Field] = &[
    ("loadBalancer", "its name"),
    ("sku", "of the load balancer"),
    ("frontend", "its name"),
    ("address", "or null where Azure has given none yet"),
    ("services", "the Services of the cluster that it serves, a list of NAMESPACE/NAME"),
    ("rules", "a list, such as TCP 80 -> 8080"),
    ("backends", "a list: pool; members (how many)"),
];

fn item(row: &Row, cluster: Cluster) -> Item {
    let services = row.services.iter().filter_map(|one| match one {
        Served::Service(name) => Some(name),
        _ => None,
    });
    let joined = |texts: Vec<String>| texts.join(", ");
    let backends = || row.backends.iter();
    Item {
        name: format!("{}/{}", row.load_balancer, row.frontend),
        object: json!({"loadBalancer": row.load_balancer, "sku": row.sku.as_str(), "frontend": row.frontend,
            "address": row.address, "services": services.collect::<Vec<_>>(), "rules": row.rules,
            "backends": backends().map(|(pool, count)| json!({"pool": pool, "members": count})).collect::<Vec<_>>()}),
        cells: vec![
            row.load_balancer.clone(),
            row.frontend.clone(),
            row.sku.as_str().to_owned(),
            row.address.map_or_else(String::new, |address| address.to_string()),
            joined(row.services.iter().map(|one| served(one, cluster)).collect()),
            joined(row.rules.clone()),
            joined(backends().map(|(pool, count)| format!("{pool}: {count}")).collect()),
        ],
    }
}

fn of_rows(rows: &[Row], cluster: Cluster) -> List {
    let items = rows.iter().map(|row| item(row, cluster)).collect();
    List { nothing: "no load balancer has a frontend".to_owned(), ..List::new("frontend", &COLUMNS, items) }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::{
        super::super::{
            output::{ListOptions, testing::assert_regular},
            terminal::Screen,
        },
        *,
    };

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        options: ListOptions,
    }

    fn text(list: &List) -> String {
        list.printed(&Command::parse_from(["get"]).options, Screen::default()).result
    }

    #[test]
    fn a_table_has_a_line_a_frontend_and_json_all_of_it() {
        let row = Row {
            load_balancer: "kubernetes".to_owned(),
            sku: lazuli_services::network::settings::LoadBalancerSku::Standard,
            frontend: "a0".to_owned(),
            address: "20.0.0.1".parse().ok(),
            services: [Served::Service("shop/web".to_owned())].into(),
            rules: vec!["TCP 80 -> 80".to_owned()],
            backends: [("kubernetes".to_owned(), 2)].into(),
        };
        let bare = Row {
            address: None,
            services: [Served::Foreign].into(),
            rules: vec![],
            backends: BTreeMap::new(),
            ..row.clone()
        };
        let rows = [row, bare];
        let expected = "\
LOAD BALANCER  ADDRESS   SERVICE             RULES         BACKENDS
kubernetes     20.0.0.1  shop/web            TCP 80 -> 80  kubernetes: 2
kubernetes     -         (not of a Service)  -             -
";
        let list = of_rows(&rows, Cluster::Asked);
        assert_regular(&list, FIELDS);
        assert_eq!(text(&list), expected);
        assert_eq!(
            list.object()["items"][0],
            json!({"loadBalancer": "kubernetes", "sku": "Standard", "frontend": "a0", "address": "20.0.0.1",
                "services": ["shop/web"], "rules": ["TCP 80 -> 80"], "backends": [{"pool": "kubernetes", "members": 2}]})
        );
        assert_eq!(text(&of_rows(&[], Cluster::Asked)), "");
    }

    #[test]
    fn a_service_is_called_foreign_only_where_the_cluster_was_asked() {
        let unknown = Served::Unknown("a0b7c".to_owned());
        assert_eq!(served(&unknown, Cluster::Asked), "a0b7c (no Service of this cluster)");
        assert_eq!(served(&unknown, Cluster::Unnamed), "a0b7c (--kubeconfig shows its name)");
    }

    #[tokio::test]
    async fn an_api_server_that_does_not_answer_is_an_error() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = kube::Client::try_from(kube::Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap();
        let error = services(client).await.unwrap_err().to_string();
        assert!(error.starts_with("the Services of the cluster cannot be listed: "), "{error}");
    }
}
