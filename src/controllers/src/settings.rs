//! From the cloud configuration to what planners know.

use lazuli_config as config;
use lazuli_plan::{
    network::{
        Settings, TagPolicy,
        settings::{LoadBalancerConfiguration, LoadBalancerSku, PoolKind, PreconfiguredPools, SharedProbe},
    },
    service::selector::{LabelSelector, Operator, Requirement},
};

/// A key that Services need and the configuration does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the cloud configuration has no {0}: Services of type LoadBalancer need it")]
pub struct MissingKey(&'static str);

/// What the configuration says of load balancers. `cluster_name` is the flag `--cluster-name`.
///
/// # Errors
/// [`MissingKey`].
pub fn settings(config: &config::Config, cluster_name: &str) -> Result<Settings, MissingKey> {
    let network = &config.network;
    let keys =
        [(&network.vnet, "vnetName"), (&network.subnet, "subnetName"), (&network.security_group, "securityGroupName")];
    match keys.into_iter().find(|(value, _)| value.is_none()) {
        Some((_, key)) => Err(MissingKey(key)),
        None => Ok(without_services(config, cluster_name)),
    }
}

/// The same for a process that looks after no Services: what only they need may be missing.
pub fn without_services(config: &config::Config, cluster_name: &str) -> Settings {
    let config::Config { cluster, network, load_balancing, tags, .. } = config;
    let or_none = |value: &Option<String>| value.clone().unwrap_or_default();
    let primary = cluster.primary_availability_set.clone().or_else(|| cluster.primary_scale_set.clone());
    Settings {
        cluster_name: cluster_name.to_owned(),
        subscription: network.subscription_id.clone(),
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
    }
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
