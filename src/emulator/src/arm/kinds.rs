//! The names of the emulated resource types, as Azure prints them.

/// Resource groups.
pub(crate) const GROUP: &str = "Microsoft.Resources/resourceGroups";
/// Managed disks.
pub(crate) const DISK: &str = "Microsoft.Compute/disks";
/// Virtual machines.
pub(crate) const MACHINE: &str = "Microsoft.Compute/virtualMachines";
/// Availability sets.
pub(crate) const SET: &str = "Microsoft.Compute/availabilitySets";
/// Virtual networks.
pub(crate) const NETWORK: &str = "Microsoft.Network/virtualNetworks";
/// Their subnets.
pub(crate) const SUBNET: &str = "Microsoft.Network/virtualNetworks/subnets";
/// Public IP addresses.
pub(crate) const ADDRESS: &str = "Microsoft.Network/publicIPAddresses";
/// Public IP prefixes.
pub(crate) const PREFIX: &str = "Microsoft.Network/publicIPPrefixes";
/// Network interfaces.
pub(crate) const NIC: &str = "Microsoft.Network/networkInterfaces";
