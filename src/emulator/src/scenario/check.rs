//! Whether a scenario holds together: names are there once, what is referred to exists, values are in
//! range. Each refusal names the key.

use std::collections::BTreeSet;

use uuid::Uuid;

use super::{DiskController, Machine, OsDisk, Placement, Scenario, ScenarioError};
use crate::arm::regions;
use crate::{cidr, disk_skus, path, sizes};

impl Scenario {
    /// Checks that names are there once and that what is referred to exists.
    ///
    /// # Errors
    /// The first thing that is wrong, with its key.
    pub fn check(&self) -> Result<(), ScenarioError> {
        self.check_identity()?;
        self.check_groups()?;
        self.check_networks()?;
        let machines = self.check_machines()?;
        self.check_scale_sets()?;
        self.check_disks(&machines)
    }

    fn check_identity(&self) -> Result<(), ScenarioError> {
        guid("tenantId", &self.tenant_id)?;
        if self.subscriptions.is_empty() {
            return Err(wrong("subscriptions", "at least one is needed"));
        }
        for (at, subscription) in self.subscriptions.iter().enumerate() {
            guid(&format!("subscriptions[{at}]"), subscription)?;
        }
        unique("subscriptions", "", self.subscriptions.iter())?;
        for (at, client) in self.clients.iter().enumerate() {
            guid(&format!("clients[{at}].id"), &client.id)?;
            if let Some(no) = client.certificates.iter().position(|pem| crate::login::certificate_der(pem).is_none()) {
                return Err(wrong(format!("clients[{at}].certificates[{no}]"), "it is no certificate in PEM"));
            }
        }
        let of_clients = self.clients.iter().map(|client| &client.roles);
        let of_identities = self.identities.iter().map(|identity| &identity.roles);
        let listed = of_clients.enumerate().map(|(at, roles)| (format!("clients[{at}]"), roles));
        let listed = listed.chain(of_identities.enumerate().map(|(at, roles)| (format!("identities[{at}]"), roles)));
        for (key, roles) in listed {
            for (at, role) in roles.iter().flatten().enumerate() {
                role.check().map_err(|(member, what)| wrong(format!("{key}.roles[{at}].{member}"), what))?;
            }
        }
        unique("clients", ".id", self.clients.iter().map(|c| &c.id))?;
        unique("identities", ".name", self.identities.iter().map(|i| &i.name))
    }

    fn check_groups(&self) -> Result<(), ScenarioError> {
        location("location", &self.location)?;
        if self.resource_groups.is_empty() {
            return Err(wrong("resourceGroups", "at least one is needed"));
        }
        for (at, group) in self.resource_groups.iter().enumerate() {
            if let Some(own) = &group.location {
                location(format!("resourceGroups[{at}].location"), own)?;
            }
            if let Some(subscription) = &group.subscription
                && !self.subscriptions.contains(subscription)
            {
                return Err(wrong(
                    format!("resourceGroups[{at}].subscription"),
                    format!("{subscription:?} is not in subscriptions"),
                ));
            }
        }
        unique("resourceGroups", ".name", self.resource_groups.iter().map(|group| &group.name))
    }

    fn known_group(&self, key: &str, group: Option<&String>) -> Result<(), ScenarioError> {
        let known =
            group.is_none_or(|name| self.resource_groups.iter().any(|group| group.name.eq_ignore_ascii_case(name)));
        if known {
            return Ok(());
        }
        Err(wrong(key, format!("{:?} is not in resourceGroups", group.map_or("", |g| g))))
    }

    fn check_networks(&self) -> Result<(), ScenarioError> {
        for (at, network) in self.virtual_networks.iter().enumerate() {
            let key = format!("virtualNetworks[{at}]");
            self.known_group(&format!("virtualNetworks[{at}].resourceGroup"), network.resource_group.as_ref())?;
            if network.prefixes.is_empty() {
                return Err(wrong(format!("{key}.prefixes"), "at least one is needed"));
            }
            for prefix in &network.prefixes {
                prefix_of(&format!("{key}.prefixes"), prefix)?;
            }
            for (at, subnet) in network.subnets.iter().enumerate() {
                let own = format!("{key}.subnets[{at}].prefix");
                prefix_of(&own, &subnet.prefix)?;
                let inside = |(first, last): (std::net::IpAddr, std::net::IpAddr)| {
                    let space = network.prefixes.iter().filter_map(|prefix| cidr::range(prefix));
                    space.into_iter().any(|(low, high)| low <= first && last <= high)
                };
                if cidr::range(&subnet.prefix).is_some_and(|range| !inside(range)) {
                    let space = network.prefixes.join(", ");
                    return Err(wrong(own, format!("{:?} is not in {key}.prefixes: {space}", subnet.prefix)));
                }
            }
            let names = network.subnets.iter().map(|subnet| &subnet.name);
            unique(&format!("{key}.subnets"), ".name", names)?;
        }
        unique("virtualNetworks", ".name", self.virtual_networks.iter().map(|network| &network.name))?;
        for (at, group) in self.security_groups.iter().enumerate() {
            self.known_group(&format!("securityGroups[{at}].resourceGroup"), group.resource_group.as_ref())?;
        }
        unique("securityGroups", ".name", self.security_groups.iter().map(|group| &group.name))?;
        for (at, table) in self.route_tables.iter().enumerate() {
            self.known_group(&format!("routeTables[{at}].resourceGroup"), table.resource_group.as_ref())?;
        }
        unique("routeTables", ".name", self.route_tables.iter().map(|table| &table.name))?;
        for (at, set) in self.availability_sets.iter().enumerate() {
            self.known_group(&format!("availabilitySets[{at}].resourceGroup"), set.resource_group.as_ref())?;
        }
        unique("availabilitySets", ".name", self.availability_sets.iter().map(|set| &set.name))
    }

    fn check_machines(&self) -> Result<Vec<Machine>, ScenarioError> {
        for (at, vm) in self.virtual_machines.iter().enumerate() {
            let key = |member: &str| format!("virtualMachines[{at}].{member}");
            self.known_group(&key("resourceGroup"), vm.resource_group.as_ref())?;
            self.known_group(&key("nicResourceGroup"), vm.nic_resource_group.as_ref())?;
            if vm.count.is_some_and(|count| count != 1) && !vm.name.contains("{}") {
                return Err(wrong(key("name"), "needs {} where the number goes"));
            }
            let Some(size) = sizes::find(&vm.size) else {
                return Err(wrong(
                    key("size"),
                    format!(
                        "{:?} is no known virtual machine size; there are such as {}",
                        vm.size,
                        SOME_SIZES.join(", ")
                    ),
                ));
            };
            for zone in vm.zone.iter().chain(&vm.zones) {
                if !size.zones().contains(&zone.as_str()) {
                    return Err(wrong(key("zones"), format!("{zone:?} is not 1, 2 or 3")));
                }
            }
            if vm.zone.is_some() && !vm.zones.is_empty() {
                return Err(wrong(key("zone"), "give zone or zones, not both"));
            }
            if let Some(set) = &vm.availability_set {
                if vm.zone.is_some() || !vm.zones.is_empty() {
                    return Err(wrong(key("availabilitySet"), "a machine in a zone cannot be in an availability set"));
                }
                if !self.availability_sets.iter().any(|known| known.name.eq_ignore_ascii_case(set)) {
                    return Err(wrong(key("availabilitySet"), format!("{set:?} is not in availabilitySets")));
                }
            }
            if vm.subnet.is_some() && !self.subnet_exists(vm.subnet.as_deref()) {
                return Err(wrong(key("subnet"), "no such network/subnet in virtualNetworks"));
            }
            for name in vm.identities.iter().flatten() {
                if !self.identities.iter().any(|identity| identity.name.eq_ignore_ascii_case(name)) {
                    return Err(wrong(key("identities"), format!("{name:?} is not in identities")));
                }
            }
            disk_sku(&key("osDisk"), &vm.os_disk.sku, vm.os_disk.size_gib)?;
            if vm.os_disk.storage_account.is_some() && (vm.zone.is_some() || !vm.zones.is_empty()) {
                return Err(wrong(key("osDisk"), "a machine whose system disk is a blob cannot be in a zone"));
            }
            let about = format!("{:?} of the size {}", vm.name, size.name);
            let by_nvme = match vm.disk_controller {
                Some(controller) => controller == DiskController::Nvme,
                None => sizes::is_nvme(size.name),
            };
            if vm.nvme_multipath && !by_nvme {
                return Err(wrong(key("nvmeMultipath"), by_scsi(&about, true)));
            }
            local_system_disk(&key("osDisk.placement"), &vm.os_disk, &about, by_nvme, true)?;
        }
        let machines = self.machines();
        unique("virtualMachines", ".name", machines.iter().map(|m| &m.name))?;
        Ok(machines)
    }

    fn check_scale_sets(&self) -> Result<(), ScenarioError> {
        for (at, set) in self.scale_sets.iter().enumerate() {
            let key = |member: &str| format!("scaleSets[{at}].{member}");
            self.known_group(&format!("scaleSets[{at}].resourceGroup"), set.resource_group.as_ref())?;
            if set.count > 1000 {
                return Err(wrong(
                    key("count"),
                    format!("{} is more than 1000, the most that a set can have", set.count),
                ));
            }
            let Some(size) = sizes::find(&set.size) else {
                let known = SOME_SIZES.join(", ");
                let what = format!("{:?} is no known virtual machine size; there are such as {known}", set.size);
                return Err(wrong(key("size"), what));
            };
            for zone in &set.zones {
                if !size.zones().contains(&zone.as_str()) {
                    return Err(wrong(key("zones"), format!("{zone:?} is not 1, 2 or 3")));
                }
            }
            if !self.subnet_exists(set.subnet.as_deref()) {
                return Err(wrong(key("subnet"), "no such network/subnet in virtualNetworks"));
            }
            disk_sku(&key("osDisk"), &set.os_disk.sku, set.os_disk.size_gib)?;
            if set.os_disk.storage_account.is_some() {
                return Err(wrong(key("osDisk"), "a scale set has managed disks, and no storageAccount"));
            }
            let about = format!("{:?} of the size {}", set.name, size.name);
            local_system_disk(&key("osDisk.placement"), &set.os_disk, &about, sizes::is_nvme(size.name), false)?;
        }
        unique("scaleSets", ".name", self.scale_sets.iter().map(|set| &set.name))
    }

    fn subnet_exists(&self, given: Option<&str>) -> bool {
        self.subnet_of(given).is_some_and(|(network, subnet)| {
            self.virtual_networks.iter().any(|known| {
                known.name.eq_ignore_ascii_case(&network)
                    && known.subnets.iter().any(|known| known.name.eq_ignore_ascii_case(&subnet))
            })
        })
    }

    fn check_disks(&self, machines: &[Machine]) -> Result<(), ScenarioError> {
        let mut taken = BTreeSet::new();
        for (at, disk) in self.disks.iter().enumerate() {
            let key = format!("disks[{at}]");
            self.known_group(&format!("disks[{at}].resourceGroup"), disk.resource_group.as_ref())?;
            let sku = disk_sku(&key, &disk.sku, disk.size_gib)?;
            let zones: Vec<&String> = disk.zone.iter().collect();
            sku.check_zones(&zones).map_err(|error| wrong(format!("{key}.zone"), error.to_string()))?;
            let Some(attach) = &disk.attach_to else {
                continue;
            };
            let Some(machine) = machines.iter().find(|machine| machine.name.eq_ignore_ascii_case(&attach.vm)) else {
                return Err(wrong(format!("{key}.attachTo.vm"), format!("{:?} is not in virtualMachines", attach.vm)));
            };
            if attach.lun > 63 {
                return Err(wrong(format!("{key}.attachTo.lun"), "must be 0 to 63"));
            }
            if !taken.insert((machine.index, attach.lun)) {
                return Err(wrong(
                    format!("{key}.attachTo.lun"),
                    format!("LUN {} of {} is taken", attach.lun, machine.name),
                ));
            }
            if !sku.zone_redundant() && disk.zone != machine.zone {
                return Err(wrong(
                    format!("{key}.attachTo"),
                    format!("the disk and {} are not in the same zone", machine.name),
                ));
            }
        }
        unique("disks", ".name", self.disks.iter().map(|disk| &disk.name))
    }
}

/// Common sizes, of the more than two thousand that are known.
const SOME_SIZES: [&str; 4] = ["Standard_B2s", "Standard_D2s_v3", "Standard_D8s_v3", "Standard_E16s_v5"];

/// A size whose disks come by NVMe.
const A_SIZE_WITH_NVME: &str = "Standard_D8ds_v6";

/// Why a key of NVMe is refused where disks come by SCSI, and what is allowed. A scale set has no `diskController`.
fn by_scsi(about: &str, has_controller: bool) -> String {
    let or = if has_controller { ", or diskController: NVMe" } else { "" };
    format!(
        "the disks of {about} come by SCSI, so that this has no effect; leave it out, or give a size of version {} or newer, \
         such as {A_SIZE_WITH_NVME}{or}",
        sizes::FIRST_NVME_VERSION
    )
}

/// Refuses an operating system on a local NVMe disk where it has none.
fn local_system_disk(
    key: &str,
    disk: &OsDisk,
    about: &str,
    by_nvme: bool,
    has_controller: bool,
) -> Result<(), ScenarioError> {
    match (disk.placement, &disk.storage_account) {
        (None, _) => Ok(()),
        (Some(_), Some(_)) => Err(wrong(key, format!("the system disk of {about} is a blob, and no local disk"))),
        (Some(Placement::NvmeDisk), None) if by_nvme => Ok(()),
        (Some(Placement::NvmeDisk), None) => Err(wrong(key, by_scsi(about, has_controller))),
    }
}

/// Refuses a location that no region has.
fn location(key: impl Into<String>, value: &str) -> Result<(), ScenarioError> {
    let regions = regions::all();
    if regions.contains(&path::location(value).as_str()) {
        return Ok(());
    }
    Err(wrong(key, format!("{value:?} is no location; there are: {}", regions.join(", "))))
}

fn wrong(key: impl Into<String>, what: impl Into<String>) -> ScenarioError {
    ScenarioError::Wrong { key: key.into(), what: what.into() }
}

fn guid(key: &str, value: &str) -> Result<(), ScenarioError> {
    Uuid::try_parse(value).map(|_| ()).map_err(|_| wrong(key, format!("{value:?} is not a GUID")))
}

fn prefix_of(key: &str, value: &str) -> Result<(), ScenarioError> {
    let valid = value.split_once('/').is_some_and(|(address, length)| {
        let longest = match address.parse() {
            Ok(std::net::IpAddr::V4(_)) => 32,
            Ok(std::net::IpAddr::V6(_)) => 128,
            Err(_) => return false,
        };
        length.parse::<u8>().is_ok_and(|length| length <= longest)
    });
    if valid { Ok(()) } else { Err(wrong(key, format!("{value:?} is not a CIDR prefix"))) }
}

fn disk_sku(key: &str, sku: &str, gib: u64) -> Result<&'static disk_skus::Sku, ScenarioError> {
    let Some(found) = disk_skus::find(sku) else {
        return Err(wrong(
            format!("{key}.sku"),
            format!("{sku:?} is no disk SKU; there are: {}", disk_skus::SKUS.map(|sku| sku.name).join(", ")),
        ));
    };
    found.check_size(gib).map_err(|error| wrong(format!("{key}.sizeGib"), error.to_string()))?;
    Ok(found)
}

/// Names are compared as Azure compares them: letter case does not matter.
fn unique<'a>(list: &str, member: &str, names: impl Iterator<Item = &'a String>) -> Result<(), ScenarioError> {
    let mut seen = BTreeSet::new();
    for (at, name) in names.enumerate() {
        if name.is_empty() {
            return Err(wrong(format!("{list}[{at}]{member}"), "is empty"));
        }
        if !seen.insert(name.to_lowercase()) {
            return Err(wrong(format!("{list}[{at}]{member}"), format!("{name:?} is there twice")));
        }
    }
    Ok(())
}
