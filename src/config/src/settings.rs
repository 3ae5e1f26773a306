//! The values of the configuration, grouped by who reads them. A field's key is in its comment; times are
//! durations, and an absent key has the default of the Go peers unless the comment says otherwise.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use serde::{Serialize, Serializer};

use super::reader::Choice;

fn as_seconds<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(time.as_secs())
}

#[expect(clippy::ref_option, reason = "serde passes the field")]
fn as_seconds_if_any<S: Serializer>(time: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    time.map(|time| time.as_secs()).serialize(serializer)
}

/// Declares an enumeration of configuration words. The first word of a value is how it is printed.
macro_rules! choice {
    ($(#[$meta:meta])* $name:ident { $($(#[$variant_meta:meta])* $variant:ident = $($word:literal)|+),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
        pub enum $name { $($(#[$variant_meta])* $variant),+ }

        impl Choice for $name {
            const WORDS: &'static [(&'static str, Self)] = &[$($(($word, Self::$variant)),+),+];
        }
    };
}

choice! {
    /// `vmType`: what the cluster's machines are.
    VmType {
        /// Scale set instances, possibly beside standalone machines.
        Vmss = "vmss",
        /// Standalone machines and availability sets.
        Standard = "standard",
        /// Scale sets with flexible orchestration only.
        VmssFlex = "vmssflex",
    }
}

choice! {
    /// `loadBalancerSku`.
    LoadBalancerSku {
        /// Basic. Retired by Azure in 2025; existing ones are read.
        Basic = "basic",
        /// Standard.
        Standard = "standard",
        /// Service gateway (pod addresses).
        Service = "service",
    }
}

choice! {
    /// `loadBalancerBackendPoolConfigurationType`: how machines join a backend pool.
    BackendPoolType {
        /// By their network interfaces' configurations.
        NodeIpConfiguration = "nodeIPConfiguration",
        /// By their private addresses.
        NodeIp = "nodeIP",
        /// Pods by their addresses.
        PodIp = "podIP",
    }
}

choice! {
    /// `preConfiguredBackendPoolLoadBalancerTypes`: whose pool members another program sets.
    PreconfiguredPools {
        /// Of internal load balancers.
        Internal = "internal",
        /// Of public load balancers.
        External = "external",
        /// Of all.
        All = "all",
    }
}

choice! {
    /// `clusterServiceLoadBalancerHealthProbeMode`.
    ProbeMode {
        /// A probe for each port of each service.
        ServiceNodePort = "servicenodeport",
        /// One probe of kube-proxy for all services with cluster-wide traffic.
        Shared = "shared",
    }
}

choice! {
    /// `cloudConfigType`: which of file and secret count. Read from the file only.
    ConfigType {
        /// The secret overrides the keys it sets.
        Merge = "merge",
        /// The file alone.
        File = "file",
        /// The secret alone.
        Secret = "secret",
    }
}

impl Choice for super::cloud::IdentitySystem {
    const WORDS: &'static [(&'static str, Self)] = &[("azure_ad", Self::AzureAd), ("adfs", Self::Adfs)];
}

/// The name of a resource group: printed as it was spelled, compared without regard to letter case.
///
/// The Go peers lower-case the name when they load it. Azure does not care, but a person comparing our
/// messages with the portal does, so the spelling stays.
#[derive(Debug, Clone, Serialize)]
pub struct ResourceGroup(String);

impl ResourceGroup {
    /// Takes a name as spelled.
    pub fn new(name: impl Into<String>) -> Self {
        Self(name.into())
    }

    /// As spelled in the configuration.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn folded(&self) -> String {
        self.0.to_lowercase()
    }
}

impl fmt::Display for ResourceGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl PartialEq for ResourceGroup {
    fn eq(&self, other: &Self) -> bool {
        self.folded() == other.folded()
    }
}

impl Eq for ResourceGroup {}

impl PartialOrd for ResourceGroup {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ResourceGroup {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.folded().cmp(&other.folded())
    }
}

impl std::hash::Hash for ResourceGroup {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.folded().hash(state);
    }
}

/// An address prefix (`10.0.0.0/16`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct IpPrefix {
    /// The address before the slash.
    pub address: IpAddr,
    /// Significant bits.
    pub length: u8,
}

impl std::str::FromStr for IpPrefix {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (address, length) = text.split_once('/').ok_or(())?;
        let address: IpAddr = address.parse().map_err(|_| ())?;
        // `u8::from_str` takes a leading plus sign.
        if !length.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(());
        }
        let length: u8 = length.parse().map_err(|_| ())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        (length <= most).then_some(Self { address, length }).ok_or(())
    }
}

impl fmt::Display for IpPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

/// Where the cluster's machines are.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Cluster {
    /// `subscriptionId`.
    pub subscription_id: String,
    /// `resourceGroup` of the machines.
    pub resource_group: ResourceGroup,
    /// `location`: region of created resources.
    pub location: String,
    /// `extendedLocationName` and `extendedLocationType`: an edge zone, when both are set.
    pub extended_location: Option<lazuli_model::disk_spec::ExtendedLocation>,
    /// `vmType`. Default: scale sets (standard before the Go peers' 1.28).
    pub vm_type: VmType,
    /// `primaryAvailabilitySetName`: the availability set behind load balancers.
    pub primary_availability_set: Option<String>,
    /// `primaryScaleSetName`: the scale set behind load balancers.
    pub primary_scale_set: Option<String>,
    /// `disableAvailabilitySetNodes`: with scale sets, do not look for standalone machines.
    pub disable_availability_set_nodes: bool,
    /// `enableVmssFlexNodes`: with scale sets, look for flexible ones too.
    pub enable_vmss_flex_nodes: bool,
    /// `useInstanceMetadata`: new Nodes wait for what their own plugins tell by the instance metadata, before Azure is asked.
    pub use_instance_metadata: bool,
    /// `nodeInstanceNotFoundGracePeriodInSeconds`: how long a machine must be missing before its node is
    /// deleted, besides what is always checked. Default none.
    #[serde(serialize_with = "as_seconds")]
    pub not_found_grace: Duration,
    /// `putVMSSVMBatchSize`: concurrent writes to instances of a scale set. Up to 1: one after another.
    pub vmss_write_batch: u32,
    /// `disableCloudProvider`: start no controller.
    pub disable_controllers: bool,
    /// `podCidrIPv4` and `podCidrIPv6`.
    pub pod_cidrs: Vec<IpPrefix>,
}

/// The network the machines are in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Network {
    /// `networkResourceTenantID`, when it differs from the cluster's tenant.
    pub tenant_id: Option<String>,
    /// `networkResourceSubscriptionID`. Default: the cluster's.
    pub subscription_id: String,
    /// `vnetName`.
    pub vnet: Option<String>,
    /// `vnetResourceGroup`. Default: the cluster's.
    pub vnet_resource_group: ResourceGroup,
    /// `subnetName`: default subnet of internal load balancers.
    pub subnet: Option<String>,
    /// `securityGroupName`.
    pub security_group: Option<String>,
    /// `securityGroupResourceGroup`. Default: the cluster's.
    pub security_group_resource_group: ResourceGroup,
    /// `routeTableName`.
    pub route_table: Option<String>,
    /// `routeTableResourceGroup`. Default: the cluster's.
    pub route_table_resource_group: ResourceGroup,
    /// `routeUpdateIntervalInSeconds`: the least time between two writes of the route table. Default none: changes are
    /// written as soon as a burst of them is over (30 s in the Go manager).
    #[serde(serialize_with = "as_seconds_if_any")]
    pub route_update_interval: Option<Duration>,
    /// `routeUpdateWaitingInSeconds`: how long after its write a route is expected to work. Default none: as soon as Azure
    /// shows it (30 s in the Go manager).
    #[serde(serialize_with = "as_seconds_if_any")]
    pub route_settle: Option<Duration>,
    /// `privateLinkServiceResourceGroup`. Default: the cluster's.
    pub private_link_resource_group: ResourceGroup,
}

/// How load balancers are made.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LoadBalancing {
    /// `loadBalancerSku`. Default standard.
    pub sku: LoadBalancerSku,
    /// `loadBalancerName`. Default: the cluster's name, which is a flag.
    pub name: Option<String>,
    /// `loadBalancerResourceGroup`. Default: the cluster's.
    pub resource_group: ResourceGroup,
    /// `preConfiguredBackendPoolLoadBalancerTypes`.
    pub preconfigured_pools: Option<PreconfiguredPools>,
    /// `loadBalancerBackendPoolConfigurationType`. Default: network interface configurations.
    pub pool_type: BackendPoolType,
    /// `enableMigrateToIPBasedBackendPoolAPI`.
    pub migrate_pools_by_api: bool,
    /// `loadBalancerBackendPoolUpdateIntervalInSeconds`. Default none: pools follow at once (30 s in the Go manager).
    #[serde(serialize_with = "as_seconds_if_any")]
    pub pool_update_interval: Option<Duration>,
    /// `maximumLoadBalancerRuleCount`. Default 250.
    pub maximum_rules: u32,
    /// `excludeMasterFromStandardLB`. Default true.
    pub exclude_control_plane: bool,
    /// `disableOutboundSNAT`. Only with the standard SKU.
    pub disable_outbound_snat: bool,
    /// `multipleStandardLoadBalancerConfigurations`.
    pub multiple: Vec<LoadBalancerPlacement>,
    /// `clusterServiceLoadBalancerHealthProbeMode`. Default: a probe for each port.
    pub probe_mode: ProbeMode,
    /// `clusterServiceSharedLoadBalancerHealthProbePort`. Default 10256, kube-proxy's.
    pub shared_probe_port: u16,
    /// `clusterServiceSharedLoadBalancerHealthProbePath`. Default `/healthz`.
    pub shared_probe_path: String,
    /// `enableIPTagMutationForExistingPublicIP`.
    pub mutate_ip_tags: bool,
    /// `serviceGatewayEnabled`.
    pub service_gateway: bool,
}

/// One of several standard load balancers, and what may be placed on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LoadBalancerPlacement {
    /// Name of the public one; the internal one is called `NAME-internal`.
    pub name: String,
    /// The availability set or scale set whose nodes are always behind it.
    pub primary_vm_set: String,
    /// Whether new services may come.
    pub allow_service_placement: bool,
    /// Services it is for. Absent: all.
    pub service_labels: Option<LabelSelector>,
    /// Namespaces it is for. Absent: all.
    pub namespace_labels: Option<LabelSelector>,
    /// Nodes that prefer it.
    pub node_labels: Option<LabelSelector>,
}

/// A Kubernetes label selector.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LabelSelector {
    /// Labels that must have exactly these values.
    pub match_labels: BTreeMap<String, String>,
    /// Further requirements.
    pub match_expressions: Vec<LabelRequirement>,
}

/// One requirement of a label selector.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LabelRequirement {
    /// The label.
    pub key: String,
    /// What is required of it.
    pub operator: LabelOperator,
    /// The values the operator speaks of.
    pub values: Vec<String>,
}

choice! {
    /// Operator of a label requirement. Source: Kubernetes API, `LabelSelectorRequirement`.
    LabelOperator {
        /// One of the values.
        In = "In",
        /// None of the values.
        NotIn = "NotIn",
        /// Present.
        Exists = "Exists",
        /// Absent.
        DoesNotExist = "DoesNotExist",
    }
}

/// Tags of load balancers, security groups, route tables and public addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Tags {
    /// `tags` (`a=b,c=d`) overlaid with `tagsMap`.
    pub apply: BTreeMap<String, String>,
    /// `systemTags`: prefixes of tags that are kept. Without any, no tag is ever removed.
    pub keep_prefixes: Vec<String>,
}

/// `cloudProviderBackoff…`: repetition of failed requests.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Backoff {
    /// `cloudProviderBackoff`.
    pub enabled: bool,
    /// `cloudProviderBackoffRetries`. Default 6.
    pub retries: u32,
    /// `cloudProviderBackoffExponent`. Default 1.5.
    pub exponent: f64,
    /// `cloudProviderBackoffDuration`. Default 5 s.
    #[serde(serialize_with = "as_seconds")]
    pub duration: Duration,
    /// `cloudProviderBackoffJitter`. Default 1.0.
    pub jitter: f64,
    /// `enableMinimumRetryAfter`.
    pub minimum_retry_after: bool,
}

/// A client-side limit on requests.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RateLimit {
    /// `cloudProviderRateLimit`.
    pub enabled: bool,
    /// `cloudProviderRateLimitQPS`: reads per second. Default 1.
    pub read_per_second: f64,
    /// `cloudProviderRateLimitBucket`: reads at once. Default 5.
    pub read_burst: u32,
    /// `cloudProviderRateLimitQPSWrite`. Default: as for reads.
    pub write_per_second: f64,
    /// `cloudProviderRateLimitBucketWrite`. Default: as for reads.
    pub write_burst: u32,
}

/// Client-side limits: one for all, and those that differ.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RateLimits {
    /// For every kind of resource without its own.
    pub default: RateLimit,
    /// By key (`loadBalancerRateLimit`), for those given.
    pub by_client: BTreeMap<&'static str, RateLimit>,
}

/// `…CacheTTLInSeconds`: how old an answer may be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Caches {
    /// `disableAPICallCache`.
    pub disabled: bool,
    /// `listVmssVirtualMachinesWithoutInstanceView`.
    pub list_without_instance_view: bool,
    /// `vmCacheTTLInSeconds`. Default 60 s.
    #[serde(serialize_with = "as_seconds")]
    pub vm: Duration,
    /// `loadBalancerCacheTTLInSeconds`. Default 120 s.
    #[serde(serialize_with = "as_seconds")]
    pub load_balancer: Duration,
    /// `nsgCacheTTLInSeconds`. Default 120 s.
    #[serde(serialize_with = "as_seconds")]
    pub security_group: Duration,
    /// `routeTableCacheTTLInSeconds`. Default 120 s.
    #[serde(serialize_with = "as_seconds")]
    pub route_table: Duration,
    /// `publicIPCacheTTLInSeconds`. Default 120 s.
    #[serde(serialize_with = "as_seconds")]
    pub public_ip: Duration,
    /// `plsCacheTTLInSeconds`. Default 120 s.
    #[serde(serialize_with = "as_seconds")]
    pub private_link: Duration,
    /// `vmssCacheTTLInSeconds`. Default 600 s.
    #[serde(serialize_with = "as_seconds")]
    pub scale_set: Duration,
    /// `vmssVirtualMachinesCacheTTLInSeconds`. Default 600 s.
    #[serde(serialize_with = "as_seconds")]
    pub scale_set_instances: Duration,
    /// `availabilitySetsCacheTTLInSeconds`. Default 600 s.
    #[serde(serialize_with = "as_seconds")]
    pub availability_sets: Duration,
    /// `vmssFlexCacheTTLInSeconds`. Default 600 s.
    #[serde(serialize_with = "as_seconds")]
    pub flexible_scale_set: Duration,
    /// `vmssFlexVMCacheTTLInSeconds`. Default 600 s.
    #[serde(serialize_with = "as_seconds")]
    pub flexible_instances: Duration,
    /// `nonVmssUniformNodesCacheTTLInSeconds`. Default 900 s.
    #[serde(serialize_with = "as_seconds")]
    pub standalone_nodes: Duration,
}

/// `auxiliaryTokenProvider`: a token for the network's tenant, kept in a key vault. Older files name the
/// vault by URL.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AuxiliaryToken {
    /// Subscription of the vault.
    pub subscription_id: Option<String>,
    /// Resource group of the vault.
    pub resource_group: Option<ResourceGroup>,
    /// `vaultName`.
    pub vault: Option<String>,
    /// `keyVaultURL`.
    pub vault_url: Option<String>,
    /// Name of the vault's secret. Not itself secret.
    pub secret_name: Option<String>,
}
