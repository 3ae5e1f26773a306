//! Every key of the cloud configuration: the table by which a process says which keys count for it, and the reference.

use lazuli_model::reference::{Comparison, ConfigRow, UsedBy};

const FLAG: &str = "true or false";
const TEXT: &str = "a text";
const SECONDS: &str = "a whole number of seconds";
const COUNT: &str = "a whole number";
const NUMBER: &str = "a number that is not negative";
const GROUP: &str = "the name of a resource group";
const LIMIT: &str = "a mapping with the keys cloudProviderRateLimit and its kin";
const CLUSTER_GROUP: &str = "resourceGroup";

const NONE: UsedBy = UsedBy { all: false, services: false, nodes: false, cloud_controllers: false };
const ALL: UsedBy = UsedBy { all: true, ..NONE };
const SERVICES: UsedBy = UsedBy { services: true, ..NONE };
const NODES: UsedBy = UsedBy { nodes: true, ..NONE };
const BOTH: UsedBy = UsedBy { services: true, nodes: true, ..NONE };
const REQUESTS: UsedBy = UsedBy { cloud_controllers: true, ..NONE };

const SAME: Comparison = Comparison::Same;
const CEILING: Comparison = Comparison::Differs(
    "a ceiling on requests beside Azure's own limits, which are always kept to: a request waits for both",
);
const BACKOFF: Comparison =
    Comparison::Differs("reads that fail are repeated so; after a write that fails, Azure is read again first");
const CACHES: Comparison =
    Comparison::NoEffect("what was read of Azure is not kept for a time: it is read again when a decision needs it");
const NOT_SENT: Comparison = Comparison::NoEffect("no such requests are sent");
const ALL_MACHINES: Comparison = Comparison::NoEffect("machines of every kind are found by what their Nodes say");
const POD_POOLS: Comparison = Comparison::NoEffect("pools of the addresses of pods are not supported");
const GONE: Comparison = Comparison::NoEffect("the Go manager does not have it any more");
const WRITTEN_BACK: Comparison = Comparison::NoEffect("a Go manager writes it into its own copy of the file");
const GATEWAY: Comparison =
    Comparison::Refused("the service gateway of the Go manager makes other load balancers, in front of pods");
const OTHER_TENANT: Comparison = Comparison::Refused("a network of another tenant than the cluster's is not supported");

const fn row(
    key: &'static str,
    values: &'static str,
    default: &'static str,
    used_by: UsedBy,
    go: Comparison,
    meaning: &'static str,
) -> ConfigRow {
    ConfigRow { key, values, default, used_by, go, meaning }
}

/// Of a kind of requests.
const fn limit(key: &'static str, meaning: &'static str) -> ConfigRow {
    row(key, LIMIT, "the limits of all requests", REQUESTS, CEILING, meaning)
}

const fn limit_of_none(key: &'static str) -> ConfigRow {
    row(key, LIMIT, "", NONE, NOT_SENT, "Limits of requests that this program does not send.")
}

const fn cache(key: &'static str, of: &'static str) -> ConfigRow {
    row(key, SECONDS, "", NONE, CACHES, of)
}

/// The keys, by name without regard to letter case, which does not count.
pub const KEYS: &[ConfigRow] = &[
    row("aadClientCertPassword", TEXT, "", ALL, SAME, "Password of the certificate file."),
    row(
        "aadClientCertPath",
        "the path of a PEM or PKCS#12 file",
        "",
        ALL,
        Comparison::Differs("a file that is replaced counts from the next token on"),
        "Signs in as a service principal with this certificate.",
    ),
    row(
        "aadClientId",
        "the client id of an application",
        "",
        ALL,
        SAME,
        "The service principal, or the workload identity.",
    ),
    row("aadClientSecret", TEXT, "", ALL, SAME, "Its password; msi stands for a managed identity, as in old files."),
    row(
        "aadFederatedTokenFile",
        "the path of a file",
        "",
        ALL,
        SAME,
        "The token of a workload identity; AZURE_FEDERATED_TOKEN_FILE wins.",
    ),
    row(
        "aadMSIDataPlaneIdentityPath",
        "the path of a file",
        "",
        ALL,
        Comparison::Refused("such files are of Azure's own services: name another credential"),
        "A credential of Azure's own services.",
    ),
    limit_of_none("attachDetachDiskRateLimit"),
    row(
        "auxiliaryTokenProvider",
        "a mapping",
        "",
        NONE,
        OTHER_TENANT,
        "Where the Go manager finds a token for the network's tenant.",
    ),
    row("auxiliaryTokenProvider.keyVaultURL", "a URL", "", NONE, OTHER_TENANT, "The key vault, in older files."),
    row("auxiliaryTokenProvider.resourceGroup", GROUP, "", NONE, OTHER_TENANT, "Resource group of the key vault."),
    row("auxiliaryTokenProvider.secretName", TEXT, "", NONE, OTHER_TENANT, "The vault's secret with the token."),
    row("auxiliaryTokenProvider.subscriptionID", TEXT, "", NONE, OTHER_TENANT, "Subscription of the key vault."),
    row("auxiliaryTokenProvider.vaultName", TEXT, "", NONE, OTHER_TENANT, "The key vault."),
    row(
        "auxiliaryTokenSecretURI",
        TEXT,
        "",
        NONE,
        GONE,
        "Where old Go managers found a token for the network's tenant.",
    ),
    limit_of_none("availabilitySetRateLimit"),
    cache("availabilitySetsCacheTTLInSeconds", "How long availability sets are kept."),
    row(
        "cloud",
        "AzurePublicCloud, AzureChinaCloud, AzureUSGovernmentCloud, AzureStackCloud",
        "AzurePublicCloud",
        ALL,
        Comparison::Differs("a Secret may change it only together with the credential that it holds"),
        "Which Azure it is; AzureStackCloud needs resourceManagerEndpoint or AZURE_ENVIRONMENT_FILEPATH.",
    ),
    row(
        "cloudConfigType",
        "merge, file, secret",
        "merge",
        ALL,
        SAME,
        "Whether the Secret's keys win over the file's, or one of both counts alone; read from the file.",
    ),
    row(
        "cloudProviderBackoff",
        FLAG,
        "false",
        REQUESTS,
        BACKOFF,
        "Whether failed requests are repeated at the pace of the next four keys.",
    ),
    row("cloudProviderBackoffDuration", SECONDS, "5", REQUESTS, BACKOFF, "The first pause."),
    row(
        "cloudProviderBackoffExponent",
        NUMBER,
        "1.5",
        REQUESTS,
        BACKOFF,
        "By how much each pause is longer than the one before.",
    ),
    row("cloudProviderBackoffJitter", NUMBER, "1.0", REQUESTS, BACKOFF, "How much of a pause is random."),
    row("cloudProviderBackoffMode", TEXT, "", NONE, GONE, "Which back-off old Go managers used."),
    row("cloudProviderBackoffRetries", COUNT, "6", REQUESTS, BACKOFF, "How often a request is repeated."),
    row("cloudProviderRateLimit", FLAG, "false", REQUESTS, CEILING, "Whether the next four keys limit requests."),
    row("cloudProviderRateLimitBucket", COUNT, "5", REQUESTS, CEILING, "Reads at once."),
    row("cloudProviderRateLimitBucketWrite", COUNT, "as for reads", REQUESTS, CEILING, "Writes at once."),
    row("cloudProviderRateLimitQPS", NUMBER, "1", REQUESTS, CEILING, "Reads a second."),
    row("cloudProviderRateLimitQPSWrite", NUMBER, "as for reads", REQUESTS, CEILING, "Writes a second."),
    row(
        "clusterServiceLoadBalancerHealthProbeMode",
        "servicenodeport, shared",
        "servicenodeport",
        SERVICES,
        SAME,
        "A probe for each port of a Service with cluster-wide traffic, or one of kube-proxy for all.",
    ),
    row(
        "clusterServiceSharedLoadBalancerHealthProbePath",
        TEXT,
        "/healthz",
        SERVICES,
        SAME,
        "Path of the shared probe.",
    ),
    row(
        "clusterServiceSharedLoadBalancerHealthProbePort",
        "1 to 65535",
        "10256",
        SERVICES,
        SAME,
        "Port of the shared probe.",
    ),
    limit_of_none("containerServiceRateLimit"),
    limit_of_none("deploymentRateLimit"),
    row("disableAPICallCache", FLAG, "", NONE, CACHES, "Whether nothing is kept."),
    row(
        "disableAvailabilitySetNodes",
        FLAG,
        "",
        NONE,
        ALL_MACHINES,
        "Whether machines outside of scale sets are looked for.",
    ),
    row(
        "disableAzureStackCloud",
        FLAG,
        "false",
        ALL,
        SAME,
        "AzureStackCloud without the old API versions of Azure Stack Hub.",
    ),
    row(
        "disableCloudProvider",
        FLAG,
        "false",
        REQUESTS,
        Comparison::Differs("no cloud controller takes its Lease; it counts at the start alone"),
        "Starts no cloud controller.",
    ),
    row(
        "disableOutboundSNAT",
        FLAG,
        "false",
        SERVICES,
        SAME,
        "Rules give no outbound connections; loadBalancerSku standard alone.",
    ),
    limit("diskRateLimit", "Limits of requests about disks."),
    row(
        "enableIPTagMutationForExistingPublicIP",
        FLAG,
        "false",
        SERVICES,
        SAME,
        "Whether IP tags of a public IP that exists are changed.",
    ),
    row(
        "enableMigrateToIPBasedBackendPoolAPI",
        FLAG,
        "false",
        SERVICES,
        SAME,
        "Asks Azure to turn pools of network interfaces into pools of addresses, without an interruption.",
    ),
    row(
        "enableMinimumRetryAfter",
        FLAG,
        "",
        NONE,
        Comparison::NoEffect("Azure's Retry-After is always kept"),
        "Whether a least pause is kept.",
    ),
    row("enableVmssFlexNodes", FLAG, "", NONE, ALL_MACHINES, "Whether flexible scale sets are looked for."),
    row(
        "excludeMasterFromStandardLB",
        FLAG,
        "true",
        SERVICES,
        SAME,
        "Keeps Nodes of the control plane out of the pools of Standard load balancers.",
    ),
    row("extendedLocationName", TEXT, "", ALL, SAME, "The edge zone of the cluster; needs extendedLocationType."),
    row("extendedLocationType", "EdgeZone", "", ALL, SAME, "Its type; needs extendedLocationName."),
    row("identitySystem", "azure_ad, adfs", "azure_ad", ALL, SAME, "Who gives tokens; adfs signs in without a tenant."),
    limit("interfaceRateLimit", "Limits of requests about network interfaces."),
    row(
        "listVmssVirtualMachinesWithoutInstanceView",
        FLAG,
        "",
        NONE,
        Comparison::NoEffect("no list asks for instance views"),
        "Whether lists of instances are short.",
    ),
    row(
        "loadBalancerBackendPoolConfigurationType",
        "nodeIPConfiguration, nodeIP",
        "nodeIPConfiguration",
        SERVICES,
        Comparison::Differs(
            "a pool that exists keeps its kind unless enableMigrateToIPBasedBackendPoolAPI is true; podIP, which needs a \
             service gateway, is refused",
        ),
        "New pools list network interfaces, or addresses of Nodes.",
    ),
    row(
        "loadBalancerBackendPoolUpdateIntervalInSeconds",
        SECONDS,
        "at once",
        SERVICES,
        Comparison::Differs("it acts where it is set; the Go manager waits for 30 s by default"),
        "The least time between two changes of the pool of a Service with local traffic.",
    ),
    cache("loadBalancerCacheTTLInSeconds", "How long load balancers are kept."),
    row(
        "loadBalancerName",
        TEXT,
        "--cluster-name",
        SERVICES,
        SAME,
        "Name of the load balancer; the internal one has -internal behind it.",
    ),
    limit("loadBalancerRateLimit", "Limits of requests about load balancers."),
    row("loadBalancerResourceGroup", GROUP, CLUSTER_GROUP, SERVICES, SAME, "Resource group of the load balancers."),
    row(
        "loadBalancerSku",
        "standard, basic",
        "standard",
        SERVICES,
        Comparison::Differs(
            "service, which needs a service gateway, is refused; a Basic load balancer is not made Standard",
        ),
        "SKU of load balancers and public IPs.",
    ),
    row("location", "a region", "", ALL, SAME, "Region of what is made; required."),
    row(
        "maximumLoadBalancerRuleCount",
        COUNT,
        "250",
        SERVICES,
        SAME,
        "Rules of a Basic load balancer above which another one is chosen.",
    ),
    row(
        "multipleStandardLoadBalancerConfigurations",
        "a list of mappings",
        "one load balancer",
        SERVICES,
        SAME,
        "Several Standard load balancers; needs loadBalancerBackendPoolConfigurationType nodeIP.",
    ),
    row(
        "multipleStandardLoadBalancerConfigurations[].activeNodes",
        "a list",
        "",
        NONE,
        WRITTEN_BACK,
        "What a Go manager has written back.",
    ),
    row(
        "multipleStandardLoadBalancerConfigurations[].activeServices",
        "a list",
        "",
        NONE,
        WRITTEN_BACK,
        "What a Go manager has written back.",
    ),
    row(
        "multipleStandardLoadBalancerConfigurations[].allowServicePlacement",
        FLAG,
        "true",
        SERVICES,
        SAME,
        "Whether new Services may come to this load balancer.",
    ),
    row(
        "multipleStandardLoadBalancerConfigurations[].name",
        TEXT,
        "",
        SERVICES,
        SAME,
        "Name of the load balancer; required.",
    ),
    row(
        "multipleStandardLoadBalancerConfigurations[].nodeSelector",
        "a label selector",
        "",
        SERVICES,
        SAME,
        "The Nodes that prefer this load balancer.",
    ),
    row(
        "multipleStandardLoadBalancerConfigurations[].primaryVMSet",
        "the name of an availability set or scale set",
        "",
        SERVICES,
        SAME,
        "The machines that are always behind this load balancer; required.",
    ),
    row(
        "multipleStandardLoadBalancerConfigurations[].serviceLabelSelector",
        "a label selector",
        "all",
        SERVICES,
        SAME,
        "The Services that this load balancer is for.",
    ),
    row(
        "multipleStandardLoadBalancerConfigurations[].serviceNamespaceSelector",
        "a label selector",
        "all",
        SERVICES,
        SAME,
        "The namespaces that this load balancer is for.",
    ),
    row(
        "networkResourceSubscriptionID",
        "the id of a subscription",
        "subscriptionId",
        BOTH,
        SAME,
        "Subscription of load balancers, public IPs, security group, network and route table.",
    ),
    row("networkResourceTenantID", "tenantId", "tenantId", NONE, OTHER_TENANT, "Tenant of the network."),
    row(
        "nodeInstanceNotFoundGracePeriodInSeconds",
        SECONDS,
        "0",
        NODES,
        SAME,
        "How long a machine must be missing before its Node is deleted, besides the proofs that are always asked for.",
    ),
    cache("nonVmssUniformNodesCacheTTLInSeconds", "How long machines outside of uniform scale sets are kept."),
    cache("nsgCacheTTLInSeconds", "How long security groups are kept."),
    cache("plsCacheTTLInSeconds", "How long private link services are kept."),
    row("podCidrIPv4", "a list of ranges", "", NONE, POD_POOLS, "Ranges of pods."),
    row("podCidrIPv6", "a list of ranges", "", NONE, POD_POOLS, "Ranges of pods."),
    row(
        "preConfiguredBackendPoolLoadBalancerTypes",
        "internal, external, all",
        "",
        SERVICES,
        SAME,
        "The load balancers whose pools have members of another program's choice.",
    ),
    row("primaryAvailabilitySetName", TEXT, "", SERVICES, SAME, "The availability set behind a Basic load balancer."),
    row("primaryScaleSetName", TEXT, "", SERVICES, SAME, "The scale set behind a Basic load balancer."),
    limit_of_none("privateDNSRateLimit"),
    limit_of_none("privateDNSZoneGroupRateLimit"),
    limit_of_none("privateEndpointRateLimit"),
    limit("privateLinkServiceRateLimit", "Limits of requests about private link services."),
    row(
        "privateLinkServiceResourceGroup",
        GROUP,
        CLUSTER_GROUP,
        SERVICES,
        SAME,
        "Resource group of private link services.",
    ),
    limit("publicIPAddressRateLimit", "Limits of requests about public IPs."),
    cache("publicIPCacheTTLInSeconds", "How long public IPs are kept."),
    row(
        "putVMSSVMBatchSize",
        COUNT,
        "",
        NONE,
        Comparison::NoEffect("Azure's throttles decide how many instances are written at once"),
        "How many instances of a scale set are written at once.",
    ),
    row(
        "resourceGroup",
        GROUP,
        "",
        ALL,
        SAME,
        "Resource group of the cluster's machines, and of what is made; required.",
    ),
    row(
        "resourceManagerEndpoint",
        "an https URL",
        "that of the cloud",
        ALL,
        Comparison::Differs("a Secret may change it only together with the credential that it holds"),
        "Where Azure Resource Manager is, in private clouds; its /metadata/endpoints has the rest.",
    ),
    limit_of_none("routeRateLimit"),
    cache("routeTableCacheTTLInSeconds", "How long route tables are kept."),
    row("routeTableName", TEXT, "", NODES, SAME, "The route table for pods; node-route needs it."),
    limit("routeTableRateLimit", "Limits of requests about route tables."),
    row("routeTableResourceGroup", GROUP, CLUSTER_GROUP, NODES, SAME, "Resource group of the route table."),
    row(
        "routeUpdateIntervalInSeconds",
        SECONDS,
        "at once",
        NODES,
        Comparison::Differs("it acts where it is set; the Go manager waits for 30 s by default"),
        "The least time between two writes of the route table.",
    ),
    row(
        "routeUpdateWaitingInSeconds",
        SECONDS,
        "as soon as Azure shows it",
        NODES,
        Comparison::Differs("it acts where it is set; the Go manager waits for 30 s by default"),
        "How long after its write a route is expected to work.",
    ),
    row("securityGroupName", TEXT, "", SERVICES, SAME, "The security group of the Nodes; service-lb needs it."),
    limit("securityGroupRateLimit", "Limits of requests about security groups."),
    row("securityGroupResourceGroup", GROUP, CLUSTER_GROUP, SERVICES, SAME, "Resource group of the security group."),
    row("serviceGatewayEnabled", "false", "false", SERVICES, GATEWAY, "The service gateway of the Go manager."),
    limit_of_none("snapshotRateLimit"),
    limit_of_none("storageAccountRateLimit"),
    row(
        "subnetName",
        "the name of a subnet",
        "",
        BOTH,
        SAME,
        "The Nodes' subnet: of internal frontends, and of the route table.",
    ),
    limit("subnetsRateLimit", "Limits of requests about subnets."),
    row("subscriptionId", "the id of a subscription", "", ALL, SAME, "The cluster's subscription; required."),
    row(
        "systemTags",
        "prefixes of names of tags, separated by commas",
        "no tag is removed",
        BOTH,
        SAME,
        "Tags to keep: where it is set, other tags that are not configured are removed.",
    ),
    row(
        "tags",
        "name=value,name=value",
        "",
        BOTH,
        SAME,
        "Tags of load balancers, security groups, route tables and public IPs.",
    ),
    row("tagsMap", "a mapping of names to values", "", BOTH, SAME, "The same, over tags."),
    row("tenantId", "the id of a tenant", "", ALL, SAME, "The tenant of the credential; AZURE_TENANT_ID wins."),
    row(
        "useFederatedWorkloadIdentityExtension",
        FLAG,
        "false",
        ALL,
        SAME,
        "Signs in with aadFederatedTokenFile, before every other credential.",
    ),
    row(
        "useInstanceMetadata",
        FLAG,
        "false",
        ALL,
        Comparison::Differs(
            "a new Node waits up to 10 s for the annotation of its node plugin before Azure is read; the instance metadata \
             of the controllers' own machine are not asked",
        ),
        "Initialises Nodes from the instance metadata of their machines.",
    ),
    row("useManagedIdentityExtension", FLAG, "false", ALL, SAME, "Signs in with the machine's managed identity."),
    row("userAgent", TEXT, "", ALL, SAME, "What requests to Azure name behind the program's own name."),
    row(
        "userAssignedIdentityID",
        "a client id or an ARM id",
        "the machine's own identity",
        ALL,
        SAME,
        "Which managed identity.",
    ),
    limit("virtualMachineRateLimit", "Limits of requests about virtual machines."),
    limit("virtualMachineScaleSetRateLimit", "Limits of requests about scale sets."),
    limit_of_none("virtualMachineSizesRateLimit"),
    limit("virtualNetworkRateLimit", "Limits of requests about virtual networks."),
    cache("vmCacheTTLInSeconds", "How long virtual machines are kept."),
    cache("vmssCacheTTLInSeconds", "How long scale sets are kept."),
    cache("vmssFlexCacheTTLInSeconds", "How long flexible scale sets are kept."),
    cache("vmssFlexVMCacheTTLInSeconds", "How long their machines are kept."),
    row("vmssVirtualMachineCacheInstanceView", FLAG, "", NONE, GONE, "Whether old Go managers kept instance views."),
    cache("vmssVirtualMachinesCacheTTLInSeconds", "How long instances of scale sets are kept."),
    row("vmType", "vmss, standard, vmssflex", "vmss", NONE, ALL_MACHINES, "What the cluster's machines are."),
    row(
        "vnetName",
        TEXT,
        "",
        BOTH,
        SAME,
        "The Nodes' virtual network; service-lb and network classes of shares need it.",
    ),
    row("vnetResourceGroup", GROUP, CLUSTER_GROUP, BOTH, SAME, "Resource group of the virtual network."),
];

/// The row of a key of the document itself, as the table spells it.
fn row_of(key: &str) -> Option<&'static ConfigRow> {
    KEYS.iter().find(|row| row.key == key)
}

/// Whether a process for which `counts` says so uses a key.
pub(crate) fn is_used(key: &str, counts: impl Fn(&UsedBy) -> bool) -> bool {
    row_of(key).is_some_and(|row| counts(&row.used_by))
}

/// The keys of the document itself that no process uses, by the reason: each reason once.
pub(crate) fn without_meaning() -> Vec<(&'static str, Vec<&'static str>)> {
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for row in KEYS.iter().filter(|row| !row.key.contains('.')) {
        let Comparison::NoEffect(reason) = row.go else { continue };
        match reasons.iter_mut().find(|(there, _)| *there == reason) {
            Some((_, keys)) => keys.push(row.key),
            None => reasons.push((reason, vec![row.key])),
        }
    }
    reasons
}
