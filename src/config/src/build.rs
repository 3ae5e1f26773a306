//! From a tree of values to the settings: which keys exist, their defaults, and what must fit together.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::cloud::{AZURE_STACK, Cloud, CloudSource, Discovery, EndpointFile, IdentitySystem, check_endpoint};
use super::credential::{Credential, ManagedIdentity};
use super::reader::Reader;
use super::settings::{
    AuxiliaryToken, BackendPoolType, Backoff, Caches, Cluster, ConfigType, IpPrefix, LabelOperator, LabelRequirement,
    LabelSelector, LoadBalancerPlacement, LoadBalancerSku, LoadBalancing, Network, ProbeMode, RateLimit, RateLimits,
    ResourceGroup, Tags, VmType,
};
use super::trust::without_audiences_of_azure;
use super::{Config, Environment, ExtendedLocation};

/// Client id and secret that stand for "managed identity" in files of acs-engine and AKS.
const MSI: &str = "msi";

/// Resource kinds with a rate limit of their own. Source: the Go peers' `CloudProviderRateLimitConfig`.
const RATE_LIMITED_CLIENTS: &[&str] = &[
    "attachDetachDiskRateLimit",
    "availabilitySetRateLimit",
    "containerServiceRateLimit",
    "deploymentRateLimit",
    "diskRateLimit",
    "interfaceRateLimit",
    "loadBalancerRateLimit",
    "privateDNSRateLimit",
    "privateDNSZoneGroupRateLimit",
    "privateEndpointRateLimit",
    "privateLinkServiceRateLimit",
    "publicIPAddressRateLimit",
    "routeRateLimit",
    "routeTableRateLimit",
    "securityGroupRateLimit",
    "snapshotRateLimit",
    "storageAccountRateLimit",
    "subnetsRateLimit",
    "virtualMachineRateLimit",
    "virtualMachineScaleSetRateLimit",
    "virtualMachineSizesRateLimit",
    "virtualNetworkRateLimit",
];

/// Keys the Go peers once had or have for purposes this program does not share. Known, so not a typing mistake.
const OF_OTHERS: &[&str] =
    &["cloudProviderBackoffMode", "vmssVirtualMachineCacheInstanceView", "auxiliaryTokenSecretURI"];

pub(super) fn config(mut keys: Reader<'_>, environment: &Environment<'_>) -> Config {
    // Its value was needed before the layers were put together; here it is only known and checked.
    let _ = keys.choice::<ConfigType>("cloudConfigType");
    for &key in OF_OTHERS {
        let _ = keys.text(key);
    }
    let identity_system = keys.choice("identitySystem").unwrap_or(IdentitySystem::AzureAd);
    let tenant_id = environment.text("AZURE_TENANT_ID").or(keys.text("tenantId"));
    let cloud_name = keys.text("cloud");
    let stack_disabled = keys.flag("disableAzureStackCloud").unwrap_or(false);
    let is_stack_cloud =
        !stack_disabled && cloud_name.as_deref().is_some_and(|name| name.eq_ignore_ascii_case(AZURE_STACK));
    let cloud = cloud_source(&mut keys, cloud_name, identity_system, environment);
    let credential = credential(&mut keys, identity_system, tenant_id.as_deref(), environment);
    let cluster = cluster(&mut keys);
    if credential == Credential::Absent && !cluster.use_instance_metadata {
        keys.without_credential("aadClientId");
    }
    let config = Config {
        is_stack_cloud,
        user_agent: keys.text("userAgent"),
        identity_system,
        credential,
        network: network(&mut keys, &cluster, tenant_id.as_deref()),
        auxiliary_token: auxiliary_token(&mut keys),
        load_balancing: load_balancing(&mut keys, &cluster),
        tags: tags(&mut keys),
        backoff: backoff(&mut keys),
        rate_limits: rate_limits(&mut keys),
        caches: caches(&mut keys),
        cloud,
        tenant_id,
        cluster,
        unknown_keys: Vec::new(),
        keys_without_effect: Vec::new(),
        warnings: Vec::new(),
        harmless: Vec::new(),
    };
    refuse_another_tenant(&keys, &config);
    keys.finish();
    config
}

/// The network's resources are written with the cluster's credential. Source: the Go manager takes a second one where the
/// tenants differ, from the client's own secret or certificate, or from `auxiliaryTokenProvider` with a managed identity.
fn refuse_another_tenant(keys: &Reader<'_>, config: &Config) {
    let Some(other) = &config.network.tenant_id else { return };
    let own = config.tenant_id.as_ref().map_or_else(|| "is not set".to_owned(), |own| format!("is {own:?}"));
    keys.unusable(
        "networkResourceTenantID",
        format!(
            "{other:?} is another tenant than the cluster's (tenantId {own}), and network resources of another tenant are \
             not supported: move them to the cluster's tenant and leave the key away, or serve Services, Nodes and routes \
             with the Azure cloud-controller-manager"
        ),
    );
    if config.auxiliary_token.is_some() {
        keys.unusable(
            "auxiliaryTokenProvider",
            format!(
                "tokens for another tenant ({other:?}, networkResourceTenantID) from a key vault are not supported: leave \
                 both keys away"
            ),
        );
    }
}

fn cloud_source(
    keys: &mut Reader<'_>,
    name: Option<String>,
    identity_system: IdentitySystem,
    environment: &Environment<'_>,
) -> CloudSource {
    let file = match environment.endpoint_file {
        None => None,
        Some((path, text)) => match EndpointFile::parse(text) {
            Ok(file) => Some(file),
            Err(error) => {
                keys.unusable("AZURE_ENVIRONMENT_FILEPATH", format!("{path}: {error}"));
                None
            }
        },
    };
    // Only to go on to the next key; a configuration with a problem is never handed out.
    let fallback = || CloudSource::Known(Cloud::well_known("AzurePublicCloud").expect("is well known"));

    if let Some(endpoint) = keys.text("resourceManagerEndpoint") {
        return match check_endpoint(&endpoint) {
            Ok(url) => CloudSource::Discover(Discovery::new(url, name, identity_system, file.unwrap_or_default())),
            Err(error) => {
                keys.unusable("resourceManagerEndpoint", error.to_string());
                fallback()
            }
        };
    }
    let name = name.unwrap_or_else(|| "AzurePublicCloud".to_owned());
    if let Some(cloud) = Cloud::well_known(&name) {
        match without_audiences_of_azure(file.unwrap_or_default().apply(cloud, identity_system)) {
            Ok(cloud) => return CloudSource::Known(cloud),
            Err(error) => keys.unusable("AZURE_ENVIRONMENT_FILEPATH", error.to_string()),
        }
        return fallback();
    }
    if name.eq_ignore_ascii_case(AZURE_STACK) {
        match file.as_ref().map(|file| file.whole(identity_system)) {
            Some(Ok(cloud)) => return CloudSource::Known(cloud),
            Some(Err(error)) => keys.unusable("AZURE_ENVIRONMENT_FILEPATH", error.to_string()),
            None => keys.unusable(
                "cloud",
                "AZURESTACKCLOUD needs resourceManagerEndpoint, or the environment variable \
                 AZURE_ENVIRONMENT_FILEPATH with the path of an endpoint description",
            ),
        }
    } else {
        let names: Vec<_> = Cloud::well_known_names().collect();
        keys.unusable(
            "cloud",
            format!(
                "unknown cloud {name:?}, expected one of {}, {AZURE_STACK}, or set \
                 resourceManagerEndpoint",
                names.join(", ")
            ),
        );
    }
    fallback()
}

fn credential(
    keys: &mut Reader<'_>,
    identity_system: IdentitySystem,
    tenant_id: Option<&str>,
    environment: &Environment<'_>,
) -> Credential {
    let stands_for_msi = |text: &str| text.eq_ignore_ascii_case(MSI);
    let configured_client = keys.text("aadClientId");
    let configured_secret = keys.secret("aadClientSecret");
    let legacy_msi = configured_client.as_deref().is_some_and(stands_for_msi)
        || configured_secret.as_ref().is_some_and(|secret| stands_for_msi(secret.expose()));
    let client_id = environment.text("AZURE_CLIENT_ID").or(configured_client.filter(|text| !stands_for_msi(text)));
    let secret = environment
        .text("AZURE_CLIENT_SECRET")
        .map(super::Secret::new)
        .or(configured_secret.filter(|secret| !stands_for_msi(secret.expose())));
    let certificate = keys.text("aadClientCertPath");
    let certificate_password = keys.secret("aadClientCertPassword");
    let data_plane = keys.text("aadMSIDataPlaneIdentityPath");
    let use_federated = keys.flag("useFederatedWorkloadIdentityExtension").unwrap_or(false);
    let configured_token = keys.text("aadFederatedTokenFile");
    let token_file = match environment.text("AZURE_FEDERATED_TOKEN_FILE") {
        Some(path) => Some(Some(path)),
        None => use_federated.then_some(configured_token),
    };
    let use_managed_identity = keys.flag("useManagedIdentityExtension").unwrap_or(false);
    let user_assigned = keys.text("userAssignedIdentityID");

    let tenant = |keys: &Reader<'_>| match (identity_system, tenant_id) {
        (_, Some(tenant)) => tenant.to_owned(),
        // ADFS knows one tenant, called so.
        (IdentitySystem::Adfs, None) => "adfs".to_owned(),
        (IdentitySystem::AzureAd, None) => {
            keys.missing("tenantId", "the id of the Microsoft Entra tenant");
            String::new()
        }
    };
    let client = |keys: &Reader<'_>| {
        client_id.clone().unwrap_or_else(|| {
            keys.missing("aadClientId", "the client id of the application");
            String::new()
        })
    };

    if let Some(token_file) = token_file {
        let token_file = token_file.unwrap_or_else(|| {
            keys.missing(
                "aadFederatedTokenFile",
                "the path of the federated token, because useFederatedWorkloadIdentityExtension is true",
            );
            String::new()
        });
        return Credential::FederatedToken {
            tenant_id: tenant(keys),
            client_id: client(keys),
            token_file: token_file.into(),
        };
    }
    if use_managed_identity {
        return Credential::ManagedIdentity(ManagedIdentity::from_key(user_assigned));
    }
    if let Some(secret) = secret {
        return Credential::ClientSecret { tenant_id: tenant(keys), client_id: client(keys), secret };
    }
    if let Some(path) = certificate {
        return Credential::ClientCertificate {
            tenant_id: tenant(keys),
            client_id: client(keys),
            path: path.into(),
            password: certificate_password,
        };
    }
    if legacy_msi {
        return Credential::ManagedIdentity(ManagedIdentity::from_key(user_assigned));
    }
    if data_plane.is_some() {
        keys.unusable(
            "aadMSIDataPlaneIdentityPath",
            "data-plane identity files are Azure's own and cannot be used; use useManagedIdentityExtension, \
             useFederatedWorkloadIdentityExtension, aadClientSecret or aadClientCertPath",
        );
        // Named above; Absent would add a second complaint.
        return Credential::ManagedIdentity(ManagedIdentity::SystemAssigned);
    }
    Credential::Absent
}

fn cluster(keys: &mut Reader<'_>) -> Cluster {
    let extended = (keys.text("extendedLocationName"), keys.text("extendedLocationType"));
    let mut pod_cidrs = prefixes(keys, "podCidrIPv4");
    pod_cidrs.extend(prefixes(keys, "podCidrIPv6"));
    Cluster {
        subscription_id: keys.required_text("subscriptionId", "the id of the subscription"),
        resource_group: ResourceGroup::new(
            keys.required_text("resourceGroup", "the resource group of the cluster's machines"),
        ),
        location: keys.required_text("location", "the region, such as westeurope"),
        extended_location: match extended {
            (Some(name), Some(kind)) => Some(ExtendedLocation { name, kind }),
            // As the Go peers: half an edge zone is none.
            (Some(_), None) => {
                keys.warn("extendedLocationName has no effect without extendedLocationType (EdgeZone)".to_owned());
                None
            }
            (None, Some(_)) => {
                keys.warn("extendedLocationType has no effect without extendedLocationName".to_owned());
                None
            }
            (None, None) => None,
        },
        vm_type: keys.choice("vmType").unwrap_or(VmType::Vmss),
        primary_availability_set: keys.text("primaryAvailabilitySetName"),
        primary_scale_set: keys.text("primaryScaleSetName"),
        disable_availability_set_nodes: keys.flag("disableAvailabilitySetNodes").unwrap_or(false),
        enable_vmss_flex_nodes: keys.flag("enableVmssFlexNodes").unwrap_or(false),
        use_instance_metadata: keys.flag("useInstanceMetadata").unwrap_or(false),
        not_found_grace: keys.seconds("nodeInstanceNotFoundGracePeriodInSeconds", 0),
        // Negative numbers mean the same as 0 to the Go peers.
        vmss_write_batch: keys
            .whole("putVMSSVMBatchSize", i64::from(i32::MIN), i64::from(i32::MAX))
            .and_then(|size| u32::try_from(size).ok())
            .unwrap_or(0),
        disable_controllers: keys.flag("disableCloudProvider").unwrap_or(false),
        pod_cidrs,
    }
}

fn prefixes(keys: &mut Reader<'_>, key: &str) -> Vec<IpPrefix> {
    let mut prefixes = Vec::new();
    for text in keys.texts(key) {
        match text.parse() {
            Ok(prefix) => prefixes.push(prefix),
            Err(()) => keys.unusable(key, format!("{text:?} is not an address prefix")),
        }
    }
    prefixes
}

fn network(keys: &mut Reader<'_>, cluster: &Cluster, tenant_id: Option<&str>) -> Network {
    let group = |keys: &mut Reader<'_>, key: &str| {
        keys.text(key).map_or_else(|| cluster.resource_group.clone(), ResourceGroup::new)
    };
    Network {
        tenant_id: keys
            .text("networkResourceTenantID")
            .filter(|id| !tenant_id.is_some_and(|own| own.eq_ignore_ascii_case(id))),
        subscription_id: keys.text("networkResourceSubscriptionID").unwrap_or_else(|| cluster.subscription_id.clone()),
        vnet: keys.text("vnetName"),
        vnet_resource_group: group(keys, "vnetResourceGroup"),
        subnet: keys.text("subnetName"),
        security_group: keys.text("securityGroupName"),
        security_group_resource_group: group(keys, "securityGroupResourceGroup"),
        route_table: keys.text("routeTableName"),
        route_table_resource_group: group(keys, "routeTableResourceGroup"),
        route_update_interval: seconds_if_any(keys, "routeUpdateIntervalInSeconds"),
        route_settle: seconds_if_any(keys, "routeUpdateWaitingInSeconds"),
        private_link_resource_group: group(keys, "privateLinkServiceResourceGroup"),
    }
}

fn seconds_if_any(keys: &mut Reader<'_>, key: &str) -> Option<Duration> {
    keys.count(key).map(|seconds| Duration::from_secs(u64::from(seconds)))
}

fn load_balancing(keys: &mut Reader<'_>, cluster: &Cluster) -> LoadBalancing {
    let sku = keys.choice("loadBalancerSku").unwrap_or(LoadBalancerSku::Standard);
    let pool_type =
        keys.choice("loadBalancerBackendPoolConfigurationType").unwrap_or(BackendPoolType::NodeIpConfiguration);
    let disable_outbound_snat = keys.flag("disableOutboundSNAT").unwrap_or(false);
    if disable_outbound_snat && sku != LoadBalancerSku::Standard {
        keys.unusable("disableOutboundSNAT", "can be true only with loadBalancerSku: standard");
    }
    let multiple = placements(keys);
    if !multiple.is_empty() && pool_type == BackendPoolType::NodeIpConfiguration {
        keys.unusable(
            "multipleStandardLoadBalancerConfigurations",
            "cannot be used with loadBalancerBackendPoolConfigurationType: nodeIPConfiguration; \
             use nodeIP",
        );
    }
    let service_gateway = keys.flag("serviceGatewayEnabled").unwrap_or(false);
    // In the Go manager the three need each other, and make load balancers that this program does not know. A Go manager
    // from before the service gateway takes podIP for nodeIPConfiguration.
    if service_gateway {
        keys.unusable("serviceGatewayEnabled", "true is not supported: Services are served by load balancers alone");
    }
    if sku == LoadBalancerSku::Service {
        keys.unusable("loadBalancerSku", "service needs a service gateway, which is not supported; use standard");
    }
    if pool_type == BackendPoolType::PodIp {
        keys.unusable(
            "loadBalancerBackendPoolConfigurationType",
            "podIP needs a service gateway, which is not supported; use nodeIPConfiguration (what Go managers without \
             service gateway make of podIP) or nodeIP",
        );
    }
    LoadBalancing {
        sku,
        name: keys.text("loadBalancerName"),
        resource_group: keys
            .text("loadBalancerResourceGroup")
            .map_or_else(|| cluster.resource_group.clone(), ResourceGroup::new),
        preconfigured_pools: keys.choice("preConfiguredBackendPoolLoadBalancerTypes"),
        pool_type,
        migrate_pools_by_api: keys.flag("enableMigrateToIPBasedBackendPoolAPI").unwrap_or(false),
        pool_update_interval: seconds_if_any(keys, "loadBalancerBackendPoolUpdateIntervalInSeconds"),
        maximum_rules: keys.count("maximumLoadBalancerRuleCount").unwrap_or(250),
        exclude_control_plane: keys.flag("excludeMasterFromStandardLB").unwrap_or(true),
        disable_outbound_snat,
        multiple,
        probe_mode: keys.choice("clusterServiceLoadBalancerHealthProbeMode").unwrap_or(ProbeMode::ServiceNodePort),
        shared_probe_port: keys
            .whole("clusterServiceSharedLoadBalancerHealthProbePort", 0, 65535)
            .and_then(|port| u16::try_from(port).ok())
            .filter(|port| *port != 0)
            .unwrap_or(10256),
        shared_probe_path: keys
            .text("clusterServiceSharedLoadBalancerHealthProbePath")
            .unwrap_or_else(|| "/healthz".to_owned()),
        mutate_ip_tags: keys.flag("enableIPTagMutationForExistingPublicIP").unwrap_or(false),
        service_gateway,
    }
}

fn placements(keys: &mut Reader<'_>) -> Vec<LoadBalancerPlacement> {
    const KEY: &str = "multipleStandardLoadBalancerConfigurations";
    let mut placements = Vec::new();
    let mut names = BTreeSet::new();
    let mut vm_sets = BTreeSet::new();
    for mut table in keys.tables(KEY) {
        let placement = LoadBalancerPlacement {
            name: table.required_text("name", "the name of the load balancer"),
            primary_vm_set: table
                .required_text("primaryVMSet", "the availability set or scale set whose nodes are behind it"),
            allow_service_placement: table.flag("allowServicePlacement").unwrap_or(true),
            service_labels: selector(&mut table, "serviceLabelSelector"),
            namespace_labels: selector(&mut table, "serviceNamespaceSelector"),
            node_labels: selector(&mut table, "nodeSelector"),
        };
        // A resource has one load balancer of a type, so both are unique.
        if !placement.name.is_empty() && !names.insert(placement.name.to_lowercase()) {
            table.unusable("name", "is used by another load balancer of the list");
        }
        if !placement.primary_vm_set.is_empty() && !vm_sets.insert(placement.primary_vm_set.to_lowercase()) {
            table.unusable("primaryVMSet", "is the primary set of another load balancer of the list");
        }
        // Written back by the Go peers into their own copy; a dump of it carries them.
        let _ = (table.texts("activeServices"), table.texts("activeNodes"));
        table.finish();
        placements.push(placement);
    }
    placements
}

fn selector(keys: &mut Reader<'_>, key: &str) -> Option<LabelSelector> {
    let mut table = keys.table(key)?;
    let mut selector =
        LabelSelector { match_labels: table.texts_by_name("matchLabels"), match_expressions: Vec::new() };
    for mut expression in table.tables("matchExpressions") {
        let key = expression.required_text("key", "the name of a label");
        let operator = expression.choice::<LabelOperator>("operator");
        let values = expression.texts("values");
        match operator {
            Some(operator) => selector.match_expressions.push(LabelRequirement { key, operator, values }),
            None => expression.missing("operator", "one of In, NotIn, Exists, DoesNotExist"),
        }
        expression.finish();
    }
    table.finish();
    Some(selector)
}

fn tags(keys: &mut Reader<'_>) -> Tags {
    let mut tags = Tags::default();
    for pair in keys.text("tags").unwrap_or_default().split(',') {
        let pair = pair.trim();
        match pair.split_once('=') {
            Some((name, value)) if !name.trim().is_empty() && !value.contains('=') => {
                tags.apply.insert(name.trim().to_owned(), value.trim().to_owned());
            }
            _ if pair.is_empty() => {}
            _ => keys.warn(
                "tags contains a part that is not of the form name=value: it is skipped \
                 (tagsMap can hold any value)"
                    .to_owned(),
            ),
        }
    }
    for (name, value) in keys.texts_by_name("tagsMap") {
        // Azure compares tag names without regard to letter case.
        tags.apply.retain(|known, _| !known.eq_ignore_ascii_case(&name));
        tags.apply.insert(name, value);
    }
    tags.keep_prefixes = keys
        .text("systemTags")
        .unwrap_or_default()
        .split(',')
        .map(|prefix| prefix.trim().to_owned())
        .filter(|prefix| !prefix.is_empty())
        .collect();
    tags
}

fn backoff(keys: &mut Reader<'_>) -> Backoff {
    Backoff {
        enabled: keys.flag("cloudProviderBackoff").unwrap_or(false),
        retries: keys.count("cloudProviderBackoffRetries").unwrap_or(6),
        exponent: keys.real("cloudProviderBackoffExponent").unwrap_or(1.5),
        duration: keys.seconds("cloudProviderBackoffDuration", 5),
        jitter: keys.real("cloudProviderBackoffJitter").unwrap_or(1.0),
        minimum_retry_after: keys.flag("enableMinimumRetryAfter").unwrap_or(false),
    }
}

fn rate_limits(keys: &mut Reader<'_>) -> RateLimits {
    const BUILT_IN: RateLimit =
        RateLimit { enabled: false, read_per_second: 1.0, read_burst: 5, write_per_second: 0.0, write_burst: 0 };
    let default = rate_limit(keys, BUILT_IN);
    let mut by_client = BTreeMap::new();
    for &client in RATE_LIMITED_CLIENTS {
        if let Some(mut table) = keys.table(client) {
            // A client's object that does not say so switches its limit off.
            by_client.insert(client, rate_limit(&mut table, default));
            table.finish();
        }
    }
    RateLimits { default, by_client }
}

fn rate_limit(keys: &mut Reader<'_>, inherited: RateLimit) -> RateLimit {
    let read_per_second = keys.real("cloudProviderRateLimitQPS");
    let read_burst = keys.count("cloudProviderRateLimitBucket");
    let write_per_second = keys.real("cloudProviderRateLimitQPSWrite");
    let write_burst = keys.count("cloudProviderRateLimitBucketWrite");
    let read_per_second = read_per_second.unwrap_or(inherited.read_per_second);
    let read_burst = read_burst.unwrap_or(inherited.read_burst);
    let inherited_or = |inherited: f64, read: f64| if inherited > 0.0 { inherited } else { read };
    RateLimit {
        enabled: keys.flag("cloudProviderRateLimit").unwrap_or(false),
        read_per_second,
        read_burst,
        write_per_second: write_per_second.unwrap_or_else(|| inherited_or(inherited.write_per_second, read_per_second)),
        write_burst: write_burst.unwrap_or(if inherited.write_burst > 0 { inherited.write_burst } else { read_burst }),
    }
}

fn caches(keys: &mut Reader<'_>) -> Caches {
    Caches {
        disabled: keys.flag("disableAPICallCache").unwrap_or(false),
        list_without_instance_view: keys.flag("listVmssVirtualMachinesWithoutInstanceView").unwrap_or(false),
        vm: keys.seconds("vmCacheTTLInSeconds", 60),
        load_balancer: keys.seconds("loadBalancerCacheTTLInSeconds", 120),
        security_group: keys.seconds("nsgCacheTTLInSeconds", 120),
        route_table: keys.seconds("routeTableCacheTTLInSeconds", 120),
        public_ip: keys.seconds("publicIPCacheTTLInSeconds", 120),
        private_link: keys.seconds("plsCacheTTLInSeconds", 120),
        scale_set: keys.seconds("vmssCacheTTLInSeconds", 600),
        scale_set_instances: keys.seconds("vmssVirtualMachinesCacheTTLInSeconds", 600),
        availability_sets: keys.seconds("availabilitySetsCacheTTLInSeconds", 600),
        flexible_scale_set: keys.seconds("vmssFlexCacheTTLInSeconds", 600),
        flexible_instances: keys.seconds("vmssFlexVMCacheTTLInSeconds", 600),
        standalone_nodes: keys.seconds("nonVmssUniformNodesCacheTTLInSeconds", 900),
    }
}

fn auxiliary_token(keys: &mut Reader<'_>) -> Option<AuxiliaryToken> {
    let mut table = keys.table("auxiliaryTokenProvider")?;
    let token = AuxiliaryToken {
        subscription_id: table.text("subscriptionID"),
        resource_group: table.text("resourceGroup").map(ResourceGroup::new),
        vault: table.text("vaultName"),
        vault_url: table.text("keyVaultURL"),
        secret_name: table.text("secretName"),
    };
    table.finish();
    Some(token)
}
