//! What the cloud configuration says of load balancers and what belongs to them.

use std::{collections::BTreeSet, time::Duration};

use lazuli_model::{ArmId, ArmIdError, address::Family, tags::TagPolicy};

use crate::ask::{Side, selector::LabelSelector};

/// The part of `azure.json` that Services depend on; `lazuli-config` fills it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The name of the cluster: of its load balancers, pools and public IPs.
    pub cluster_name: String,
    /// The subscription of the network: `networkResourceSubscriptionID`, else `subscriptionId`.
    pub subscription: String,
    /// `subscriptionId`: that of the machines.
    pub compute_subscription: String,
    /// `location`.
    pub location: String,
    /// `resourceGroup`: of public IPs, and of what has no group of its own.
    pub resource_group: String,
    /// `loadBalancerResourceGroup`, else `resourceGroup`.
    pub load_balancer_resource_group: String,
    /// `loadBalancerName`, which stands for the cluster name in names of load balancers.
    pub load_balancer_name: Option<String>,
    /// `loadBalancerSku`.
    pub sku: LoadBalancerSku,
    /// `vnetResourceGroup`, else `resourceGroup`.
    pub vnet_resource_group: String,
    /// `vnetName`.
    pub vnet_name: String,
    /// `subnetName`: the subnet of internal frontends without an annotation.
    pub subnet_name: String,
    /// `securityGroupResourceGroup`, else `resourceGroup`.
    pub security_group_resource_group: String,
    /// `securityGroupName`.
    pub security_group_name: String,
    /// `privateLinkServiceResourceGroup`, else `resourceGroup`.
    pub private_link_resource_group: String,
    /// `loadBalancerBackendPoolConfigurationType`: of pools that this provider makes.
    pub pool_kind: PoolKind,
    /// `preConfiguredBackendPoolLoadBalancerTypes`: the sides whose pools are the operator's.
    pub preconfigured_pools: PreconfiguredPools,
    /// `primaryAvailabilitySetName` or `primaryScaleSetName`.
    pub primary_vm_set: String,
    /// `multipleStandardLoadBalancerConfigurations`.
    pub configurations: Vec<LoadBalancerConfiguration>,
    /// `enableMigrateToIPBasedBackendPoolAPI`: whether a pool of NICs becomes one of addresses where
    /// [`pool_kind`](Self::pool_kind) says so. Otherwise a pool that exists keeps its kind.
    pub migrates_pools: bool,
    /// `loadBalancerBackendPoolUpdateIntervalInSeconds`: the least time between two changes of endpoints that the pool of a
    /// Service with local traffic follows. Zero: it follows at once.
    pub pool_update_interval: Duration,
    /// `maximumLoadBalancerRuleCount`: read for Basic load balancers.
    pub maximum_rules: u32,
    /// `excludeMasterFromStandardLB`: whether NICs of the control plane are in no pool of a Standard load balancer.
    pub exclude_control_plane: bool,
    /// `disableOutboundSNAT`.
    pub disable_outbound_snat: bool,
    /// `clusterServiceLoadBalancerHealthProbeMode` and its port and path.
    pub shared_probe: Option<SharedProbe>,
    /// `enableIPTagMutationForExistingPublicIP`.
    pub may_change_ip_tags: bool,
    /// `tags`, `tagsMap`, `systemTags`.
    pub tags: TagPolicy,
    /// `extendedLocationName`: an edge zone.
    pub edge_zone: Option<String>,
    /// The flag `--share-addresses`: which Services may share an address.
    pub share_addresses: AddressSharing,
    /// The flag `--allowed-service-resource-groups`, in lower case: where Services may name public IPs, prefixes and private
    /// link services, beside the groups of the configuration. `None`: everywhere.
    pub allowed_groups: Option<BTreeSet<String>>,
}

/// Which Services may share an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum AddressSharing {
    /// All; an event names one of another namespace.
    #[default]
    Any,
    /// Those of one namespace, and of the namespaces that the owner of the address names.
    Namespace,
}

/// `loadBalancerSku`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LoadBalancerSku {
    /// `basic`.
    Basic,
    /// `standard`.
    Standard,
}

impl LoadBalancerSku {
    /// Azure's spelling.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Basic => "Basic",
            Self::Standard => "Standard",
        }
    }
}

/// `loadBalancerBackendPoolConfigurationType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PoolKind {
    /// `nodeIPConfiguration`: NICs name the pool.
    Nic,
    /// `nodeIP`: the pool lists addresses of nodes.
    NodeIp,
}

/// `preConfiguredBackendPoolLoadBalancerTypes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum PreconfiguredPools {
    /// Empty.
    #[default]
    None,
    /// `internal`.
    Internal,
    /// `external`.
    External,
    /// `all`.
    All,
}

impl PreconfiguredPools {
    /// Whether the operator fills the pools of this side.
    pub fn covers(self, side: Side) -> bool {
        match self {
            Self::None => false,
            Self::Internal => side == Side::Internal,
            Self::External => side == Side::Public,
            Self::All => true,
        }
    }
}

/// `clusterServiceLoadBalancerHealthProbeMode: shared`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedProbe {
    /// `clusterServiceSharedLoadBalancerHealthProbePort`; 10256 by default.
    pub port: u16,
    /// `clusterServiceSharedLoadBalancerHealthProbePath`; `/healthz` by default.
    pub path: String,
}

/// One of `multipleStandardLoadBalancerConfigurations`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadBalancerConfiguration {
    /// `name`: of the load balancer.
    pub name: String,
    /// `primaryVMSet`: whose nodes belong to it.
    pub primary_vm_set: String,
    /// `allowServicePlacement`; true by default.
    pub allow_placement: bool,
    /// `serviceLabelSelector`.
    pub service_labels: Option<LabelSelector>,
    /// `serviceNamespaceSelector`.
    pub namespace_labels: Option<LabelSelector>,
    /// `nodeSelector`.
    pub node_labels: Option<LabelSelector>,
}

impl Settings {
    /// Whether several Standard load balancers share the Services.
    pub fn has_several_load_balancers(&self) -> bool {
        self.sku == LoadBalancerSku::Standard && !self.configurations.is_empty()
    }

    /// The id of a load balancer.
    ///
    /// # Errors
    /// When a part of the id is no part of an id.
    pub fn load_balancer_id(&self, name: &str) -> Result<ArmId, ArmIdError> {
        let group = &self.load_balancer_resource_group;
        ArmId::resource(&self.subscription, group, "Microsoft.Network/loadBalancers", name)
    }

    /// The id of the security group.
    ///
    /// # Errors
    /// As above.
    pub fn security_group_id(&self) -> Result<ArmId, ArmIdError> {
        let group = &self.security_group_resource_group;
        ArmId::resource(&self.subscription, group, "Microsoft.Network/networkSecurityGroups", &self.security_group_name)
    }

    /// The id of a public IP.
    ///
    /// # Errors
    /// As above.
    pub fn public_ip_id(&self, resource_group: &str, name: &str) -> Result<ArmId, ArmIdError> {
        ArmId::resource(&self.subscription, resource_group, "Microsoft.Network/publicIPAddresses", name)
    }

    /// The id of the virtual network.
    ///
    /// # Errors
    /// As above.
    pub fn vnet_id(&self) -> Result<ArmId, ArmIdError> {
        let group = &self.vnet_resource_group;
        ArmId::resource(&self.subscription, group, "Microsoft.Network/virtualNetworks", &self.vnet_name)
    }

    /// The id of a subnet of the virtual network.
    ///
    /// # Errors
    /// As above.
    pub fn subnet_id(&self, name: &str) -> Result<ArmId, ArmIdError> {
        format!("{}/subnets/{name}", self.vnet_id()?).parse()
    }

    /// The id of a private link service.
    ///
    /// # Errors
    /// As above.
    pub fn private_link_id(&self, resource_group: &str, name: &str) -> Result<ArmId, ArmIdError> {
        ArmId::resource(&self.subscription, resource_group, "Microsoft.Network/privateLinkServices", name)
    }

    /// Whether the operator fills the pools of a load balancer: `preConfiguredBackendPoolLoadBalancerTypes`.
    pub fn is_preconfigured(&self, load_balancer: &ArmId) -> bool {
        let name = load_balancer.name();
        let is_internal = crate::ask::names::load_balancer_stem(name) != name;
        self.preconfigured_pools.covers(if is_internal { Side::Internal } else { Side::Public })
    }

    /// Whether a Service may name something of a resource group.
    pub fn allows_group(&self, group: &str) -> bool {
        let own = [&self.resource_group, &self.load_balancer_resource_group, &self.private_link_resource_group];
        self.allowed_groups.as_ref().is_none_or(|allowed| {
            own.iter().any(|own| own.eq_ignore_ascii_case(group)) || allowed.contains(&group.to_lowercase())
        })
    }

    /// The name of the pool that all nodes of a family belong to.
    pub fn pool_name(&self, family: Family) -> String {
        crate::ask::names::pool(&self.cluster_name, family)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_may_name_the_groups_of_the_configuration_and_those_that_are_allowed() {
        let settings = Settings {
            resource_group: "cluster".to_owned(),
            load_balancer_resource_group: "balancers".to_owned(),
            private_link_resource_group: "links".to_owned(),
            allowed_groups: Some(["addresses".to_owned()].into()),
            ..crate::service::fixtures::settings()
        };
        for (group, is_allowed) in [
            ("cluster", true),
            ("Balancers", true),
            ("LINKS", true),
            ("addresses", true),
            ("Addresses", true),
            ("others", false),
            ("", false),
        ] {
            assert_eq!(settings.allows_group(group), is_allowed, "{group}");
        }
        let open = Settings { allowed_groups: None, ..settings };
        assert!(open.allows_group("others"), "without a list every group is allowed");
    }
}
