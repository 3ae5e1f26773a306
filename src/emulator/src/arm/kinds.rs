//! The names of resource types, as Azure prints them: those that are emulated, and those that they name.

/// Resource groups.
pub(crate) const GROUP: &str = "Microsoft.Resources/resourceGroups";
/// Deployments of templates.
pub(crate) const DEPLOYMENT: &str = "Microsoft.Resources/deployments";
/// Managed disks.
pub(crate) const DISK: &str = "Microsoft.Compute/disks";
/// Snapshots of disks.
pub(crate) const SNAPSHOT: &str = "Microsoft.Compute/snapshots";
/// Virtual machines.
pub(crate) const MACHINE: &str = "Microsoft.Compute/virtualMachines";
/// Their extensions.
pub(crate) const EXTENSION: &str = "Microsoft.Compute/virtualMachines/extensions";
/// Virtual machine scale sets.
pub(crate) const SCALE_SET: &str = "Microsoft.Compute/virtualMachineScaleSets";
/// Instances of scale sets of uniform orchestration.
pub(crate) const INSTANCE: &str = "Microsoft.Compute/virtualMachineScaleSets/virtualMachines";
/// Their network interfaces.
pub(crate) const INSTANCE_NIC: &str = "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/networkInterfaces";
/// Public addresses of these.
pub(crate) const INSTANCE_ADDRESS: &str =
    "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/networkInterfaces/ipConfigurations/publicIPAddresses";
/// Extensions of instances.
pub(crate) const INSTANCE_EXTENSION: &str = "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/extensions";
/// Availability sets.
pub(crate) const SET: &str = "Microsoft.Compute/availabilitySets";
/// Virtual networks.
pub(crate) const NETWORK: &str = "Microsoft.Network/virtualNetworks";
/// Their subnets.
pub(crate) const SUBNET: &str = "Microsoft.Network/virtualNetworks/subnets";
/// Network security groups.
pub(crate) const SECURITY_GROUP: &str = "Microsoft.Network/networkSecurityGroups";
/// Route tables.
pub(crate) const ROUTE_TABLE: &str = "Microsoft.Network/routeTables";
/// NAT gateways.
pub(crate) const NAT_GATEWAY: &str = "Microsoft.Network/natGateways";
/// Application security groups.
pub(crate) const APPLICATION_GROUP: &str = "Microsoft.Network/applicationSecurityGroups";
/// Load balancers.
pub(crate) const LOAD_BALANCER: &str = "Microsoft.Network/loadBalancers";
/// Their frontends.
pub(crate) const FRONTEND: &str = "Microsoft.Network/loadBalancers/frontendIPConfigurations";
/// Their load-balancing rules.
pub(crate) const RULE: &str = "Microsoft.Network/loadBalancers/loadBalancingRules";
/// Their probes.
pub(crate) const PROBE: &str = "Microsoft.Network/loadBalancers/probes";
/// Their outbound rules.
pub(crate) const OUTBOUND_RULE: &str = "Microsoft.Network/loadBalancers/outboundRules";
/// Their inbound NAT pools.
pub(crate) const NAT_POOL: &str = "Microsoft.Network/loadBalancers/inboundNatPools";
/// Private link services.
pub(crate) const PRIVATE_LINK_SERVICE: &str = "Microsoft.Network/privateLinkServices";
/// Private endpoints.
pub(crate) const PRIVATE_ENDPOINT: &str = "Microsoft.Network/privateEndpoints";
/// Their DNS zone groups.
pub(crate) const ZONE_GROUP: &str = "Microsoft.Network/privateEndpoints/privateDnsZoneGroups";
/// Private DNS zones.
pub(crate) const PRIVATE_ZONE: &str = "Microsoft.Network/privateDnsZones";
/// Their links to virtual networks.
pub(crate) const ZONE_LINK: &str = "Microsoft.Network/privateDnsZones/virtualNetworkLinks";
/// Backend pools of load balancers.
pub(crate) const BACKEND_POOL: &str = "Microsoft.Network/loadBalancers/backendAddressPools";
/// Inbound NAT rules of load balancers.
pub(crate) const NAT_RULE: &str = "Microsoft.Network/loadBalancers/inboundNatRules";
/// Public IP addresses.
pub(crate) const ADDRESS: &str = "Microsoft.Network/publicIPAddresses";
/// Public IP prefixes.
pub(crate) const PREFIX: &str = "Microsoft.Network/publicIPPrefixes";
/// Network interfaces.
pub(crate) const NIC: &str = "Microsoft.Network/networkInterfaces";
/// Storage accounts.
pub(crate) const STORAGE_ACCOUNT: &str = "Microsoft.Storage/storageAccounts";
/// Their file services, one each.
pub(crate) const FILE_SERVICE: &str = "Microsoft.Storage/storageAccounts/fileServices";
/// File shares.
pub(crate) const SHARE: &str = "Microsoft.Storage/storageAccounts/fileServices/shares";
/// What the types of the emulator's own documents begin with.
pub(crate) const OWN: &str = "lazuli/";
