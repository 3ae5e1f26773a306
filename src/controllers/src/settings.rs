//! From the cloud configuration to what planners know.

use std::time::Duration;

use lazuli_azure::arm::Retry;
use lazuli_config as config;
use lazuli_model::tags::TagPolicy;
use lazuli_quota::permit::{Ceiling, Ceilings, Rate};
use lazuli_services::{
    ask::selector::{LabelSelector, Operator, Requirement},
    network::{
        Settings,
        settings::{
            AddressSharing, LoadBalancerConfiguration, LoadBalancerSku, PoolKind, PreconfiguredPools, SharedProbe,
        },
    },
};

/// Why no Service can be served.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// The keys that Services need and the configuration does not have.
    #[error("the cloud configuration has no {}: Services of type LoadBalancer need what it names", .0.join(", "))]
    MissingKeys(Vec<&'static str>),
    /// Load balancers have the name of the cluster, and Azure takes no such name.
    #[error(
        "--cluster-name is {0:?} and names the load balancers; Azure allows at most {LONGEST_CLUSTER_NAME} letters, digits, \
         '_', '.' and '-', a letter or digit first, and a letter, digit or '_' last. Give the name of the load balancers in \
         loadBalancerName"
    )]
    ClusterName(String),
}

/// The longest name of a cluster that names load balancers: Azure's limit of 80 less `-internal` (source: Microsoft's
/// document on naming rules of resources).
const LONGEST_CLUSTER_NAME: usize = 71;

/// Whether Azure takes the name for a load balancer, also with `-internal` behind it.
fn names_load_balancers(name: &str) -> bool {
    let is_first = |char: char| char.is_ascii_alphanumeric();
    name.len() <= LONGEST_CLUSTER_NAME
        && name.chars().all(|char| is_first(char) || "_.-".contains(char))
        && name.starts_with(is_first)
        && name.ends_with(|char: char| is_first(char) || char == '_')
}

/// What the configuration says of load balancers. `cluster_name` is the flag `--cluster-name`.
///
/// # Errors
/// [`SettingsError`].
pub fn settings(config: &config::Config, cluster_name: &str) -> Result<Settings, SettingsError> {
    let network = &config.network;
    let keys =
        [(&network.vnet, "vnetName"), (&network.subnet, "subnetName"), (&network.security_group, "securityGroupName")];
    let missing: Vec<&str> = keys.into_iter().filter(|(value, _)| value.is_none()).map(|(_, key)| key).collect();
    if !missing.is_empty() {
        return Err(SettingsError::MissingKeys(missing));
    }
    let is_named_otherwise = config.load_balancing.name.is_some() || !config.load_balancing.multiple.is_empty();
    if !is_named_otherwise && !names_load_balancers(cluster_name) {
        return Err(SettingsError::ClusterName(cluster_name.to_owned()));
    }
    Ok(without_services(config, cluster_name))
}

/// The same for a process that looks after no Services: what only they need may be missing.
pub fn without_services(config: &config::Config, cluster_name: &str) -> Settings {
    let config::Config { cluster, network, load_balancing, tags, .. } = config;
    let or_none = |value: &Option<String>| value.clone().unwrap_or_default();
    let primary = cluster.primary_availability_set.clone().or_else(|| cluster.primary_scale_set.clone());
    Settings {
        cluster_name: cluster_name.to_owned(),
        subscription: network.subscription_id.clone(),
        compute_subscription: cluster.subscription_id.clone(),
        location: cluster.location.clone(),
        resource_group: cluster.resource_group.as_str().to_owned(),
        load_balancer_resource_group: load_balancing.resource_group.as_str().to_owned(),
        load_balancer_name: load_balancing.name.clone(),
        sku: match load_balancing.sku {
            config::LoadBalancerSku::Basic => LoadBalancerSku::Basic,
            _ => LoadBalancerSku::Standard,
        },
        vnet_resource_group: network.vnet_resource_group.as_str().to_owned(),
        vnet_name: or_none(&network.vnet),
        subnet_name: or_none(&network.subnet),
        security_group_resource_group: network.security_group_resource_group.as_str().to_owned(),
        security_group_name: or_none(&network.security_group),
        private_link_resource_group: network.private_link_resource_group.as_str().to_owned(),
        pool_kind: match load_balancing.pool_type {
            config::BackendPoolType::NodeIp => PoolKind::NodeIp,
            // The service controller does not start with podIP.
            config::BackendPoolType::NodeIpConfiguration | config::BackendPoolType::PodIp => PoolKind::Nic,
        },
        preconfigured_pools: match load_balancing.preconfigured_pools {
            None => PreconfiguredPools::None,
            Some(config::PreconfiguredPools::Internal) => PreconfiguredPools::Internal,
            Some(config::PreconfiguredPools::External) => PreconfiguredPools::External,
            Some(config::PreconfiguredPools::All) => PreconfiguredPools::All,
        },
        primary_vm_set: primary.unwrap_or_default(),
        configurations: load_balancing.multiple.iter().map(configuration).collect(),
        // Azure Stack Hub does not have the action.
        migrates_pools: load_balancing.migrate_pools_by_api && !config.is_stack_cloud,
        pool_update_interval: load_balancing.pool_update_interval.unwrap_or_default(),
        maximum_rules: load_balancing.maximum_rules,
        exclude_control_plane: load_balancing.exclude_control_plane,
        disable_outbound_snat: load_balancing.disable_outbound_snat,
        shared_probe: (load_balancing.probe_mode == config::ProbeMode::Shared).then(|| SharedProbe {
            port: load_balancing.shared_probe_port,
            path: load_balancing.shared_probe_path.clone(),
        }),
        may_change_ip_tags: load_balancing.mutate_ip_tags,
        tags: TagPolicy { set: tags.apply.clone(), keep_prefixes: tags.keep_prefixes.clone() },
        edge_zone: cluster.extended_location.as_ref().map(|edge| edge.name.clone()),
        share_addresses: AddressSharing::default(),
        allowed_groups: None,
    }
}

/// The longest pause between two tries of a request where the configuration says how pauses grow (source: the client library
/// of the Go manager).
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// How often requests to Azure that failed are repeated: as the back-off of the configuration says, where it is switched on.
/// Writes of what Services share are not repeated so: what Azure holds is read again, and decided again.
pub fn retry(config: &config::Config) -> Retry {
    let backoff = &config.backoff;
    if !backoff.enabled {
        return Retry::default();
    }
    Retry {
        tries: backoff.retries,
        first_pause: backoff.duration,
        factor: backoff.exponent.max(1.0),
        jitter: (1.0, 1.0 + backoff.jitter),
        longest_pause: LONGEST_PAUSE,
        ..Retry::default()
    }
}

/// The keys of rate limits, and the resource types of each whose requests the cloud controllers send.
const CLIENTS: [(&str, &[&str]); 11] = [
    ("loadBalancerRateLimit", &["Microsoft.Network/loadBalancers"]),
    ("publicIPAddressRateLimit", &["Microsoft.Network/publicIPAddresses"]),
    ("securityGroupRateLimit", &["Microsoft.Network/networkSecurityGroups"]),
    (
        "interfaceRateLimit",
        &[
            "Microsoft.Network/networkInterfaces",
            "Microsoft.Compute/virtualMachineScaleSets/networkInterfaces",
            "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/networkInterfaces",
        ],
    ),
    ("privateLinkServiceRateLimit", &["Microsoft.Network/privateLinkServices"]),
    ("virtualNetworkRateLimit", &["Microsoft.Network/virtualNetworks"]),
    ("subnetsRateLimit", &["Microsoft.Network/virtualNetworks/subnets"]),
    ("routeTableRateLimit", &["Microsoft.Network/routeTables"]),
    ("virtualMachineRateLimit", &["Microsoft.Compute/virtualMachines"]),
    ("virtualMachineScaleSetRateLimit", &["Microsoft.Compute/virtualMachineScaleSets"]),
    ("diskRateLimit", &["Microsoft.Compute/disks"]),
];

/// The ceilings on requests that the configuration sets: for each client its own, else the common one.
pub fn ceilings(config: &config::Config) -> Ceilings {
    let limits = &config.rate_limits;
    let mut ceilings = Ceilings::default();
    for (client, types) in CLIENTS {
        let limit = limits.by_client.get(client).unwrap_or(&limits.default);
        if limit.enabled {
            let reads = Rate { per_second: limit.read_per_second, burst: limit.read_burst };
            let writes = Rate { per_second: limit.write_per_second, burst: limit.write_burst };
            ceilings.limit(client, types, Ceiling { reads, writes });
        } else {
            ceilings.leave(client, types);
        }
    }
    ceilings
}

fn configuration(one: &config::LoadBalancerPlacement) -> LoadBalancerConfiguration {
    LoadBalancerConfiguration {
        name: one.name.clone(),
        primary_vm_set: one.primary_vm_set.clone(),
        allow_placement: one.allow_service_placement,
        service_labels: one.service_labels.as_ref().map(selector),
        namespace_labels: one.namespace_labels.as_ref().map(selector),
        node_labels: one.node_labels.as_ref().map(selector),
    }
}

fn selector(one: &config::LabelSelector) -> LabelSelector {
    let requirement = |one: &config::LabelRequirement| {
        let values = one.values.iter().cloned().collect();
        let operator = match one.operator {
            config::LabelOperator::In => Operator::In(values),
            config::LabelOperator::NotIn => Operator::NotIn(values),
            config::LabelOperator::Exists => Operator::Exists,
            config::LabelOperator::DoesNotExist => Operator::DoesNotExist,
        };
        Requirement { key: one.key.clone(), operator }
    };
    LabelSelector {
        labels: one.match_labels.clone(),
        expressions: one.match_expressions.iter().map(requirement).collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, time::Duration};

    use lazuli_quota::permit::{Direction, Permits, Priority, Scope};
    use serde_json::{Value, json};

    use super::*;

    fn config(keys: Value) -> config::Config {
        let mut all = json!({"tenantId": "t", "subscriptionId": "s", "resourceGroup": "g", "location": "westeurope",
            "useManagedIdentityExtension": true});
        all.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
        let document = config::Document::parse("azure.json", all.to_string().as_bytes()).unwrap();
        config::Config::from_documents(Some(&document), None, &config::Environment::new(&BTreeMap::new())).unwrap()
    }

    /// How many requests of a direction to resources of a type are sent at once.
    fn at_once(ceilings: &Ceilings, direction: Direction, resource_type: &str) -> usize {
        let mut permits = Permits::default();
        permits.set_ceilings(ceilings.clone());
        let path = format!("/subscriptions/s/resourceGroups/g/providers/{resource_type}/one");
        let scope = Scope::of(direction, &path).unwrap();
        for _ in 0..8 {
            permits.request(scope.clone(), Priority::Create, Duration::ZERO);
        }
        permits.step(Duration::ZERO).granted.len()
    }

    #[test]
    fn rate_limits_are_ceilings_of_their_clients() {
        let config = config(json!({
            "cloudProviderRateLimit": true, "cloudProviderRateLimitBucket": 3, "cloudProviderRateLimitBucketWrite": 2,
            "loadBalancerRateLimit": {"cloudProviderRateLimit": true, "cloudProviderRateLimitBucketWrite": 1},
            "publicIPAddressRateLimit": {"cloudProviderRateLimit": false},
        }));
        let ceilings = ceilings(&config);
        for (resource_type, reads, writes) in [
            ("Microsoft.Network/loadBalancers", 3, 1),
            ("Microsoft.Network/networkSecurityGroups", 3, 2),
            ("Microsoft.Network/publicIPAddresses", 8, 8),
            ("Microsoft.Network/virtualNetworks/v/subnets", 3, 2),
            ("Microsoft.Network/locations/l/operations", 8, 8),
        ] {
            assert_eq!(at_once(&ceilings, Direction::Reads, resource_type), reads, "{resource_type}");
            assert_eq!(at_once(&ceilings, Direction::Writes, resource_type), writes, "{resource_type}");
        }
    }

    #[test]
    fn a_cluster_name_that_names_no_load_balancer_is_refused_where_it_would() {
        let keys = json!({"vnetName": "v", "subnetName": "s", "securityGroupName": "g"});
        for name in ["kubernetes", "a", "1_a.b-c_", &"n".repeat(71)] {
            assert_eq!(settings(&config(keys.clone()), name).unwrap().cluster_name, name);
        }
        let mut named = keys.clone();
        named["loadBalancerName"] = json!("lb");
        for name in ["a b/c", "-a", "a-", "a.", "ä", &"n".repeat(72)] {
            let error = settings(&config(keys.clone()), name).unwrap_err();
            assert_eq!(error, SettingsError::ClusterName(name.to_owned()));
            assert!(settings(&config(named.clone()), name).is_ok(), "{name}");
        }
    }

    #[test]
    fn the_back_off_counts_where_it_is_switched_on() {
        assert_eq!(retry(&config(json!({"cloudProviderBackoffRetries": 9}))), Retry::default());
        let given = config(json!({"cloudProviderBackoff": true, "cloudProviderBackoffRetries": 9,
            "cloudProviderBackoffExponent": 3.0, "cloudProviderBackoffDuration": 2, "cloudProviderBackoffJitter": 0.5}));
        let retry = retry(&given);
        assert_eq!((retry.tries, retry.first_pause, retry.factor), (9, Duration::from_secs(2), 3.0));
        assert_eq!((retry.jitter, retry.longest_wait), ((1.0, 1.5), Retry::default().longest_wait));
    }

    #[test]
    fn without_the_key_there_is_no_ceiling() {
        let ceilings = ceilings(&config(json!({"cloudProviderRateLimitBucket": 3})));
        assert_eq!(at_once(&ceilings, Direction::Reads, "Microsoft.Network/loadBalancers"), 8);
    }
}
