//! What exists when the emulator starts.
//!
//! A [`Scenario`] is read from YAML or JSON and checked as a whole: unknown keys, dangling references
//! and doubled names are refused with the key they are in. It is a value; the store is filled from it
//! elsewhere. [`Scenario::default`] is a small cloud that works without any file:
//!
//! | what | value |
//! |---|---|
//! | subscription | [`SUBSCRIPTION`] |
//! | tenant | [`TENANT`] |
//! | client and secret | [`CLIENT_ID`], [`CLIENT_SECRET`] |
//! | user-assigned identity | `lazuli-identity`, client id [`IDENTITY_CLIENT_ID`] |
//! | resource group, location | `lazuli`, `westeurope` |
//! | network | `lazuli-vnet` 10.0.0.0/8 with subnet `nodes` 10.240.0.0/16 |
//! | virtual machines | `node-0`, `node-1`: `Standard_D8s_v3`, no zone |
//!
//! ```yaml
//! location: westeurope
//! resourceGroups: [{name: lazuli}]
//! virtualNetworks:
//! - {name: net, prefixes: [10.0.0.0/8], subnets: [{name: nodes, prefix: 10.240.0.0/16}]}
//! virtualMachines:
//! - {name: "node-{}", count: 3, size: Standard_D8s_v3, zones: ["1", "2", "3"]}
//! scaleSets:
//! - {name: pool, count: 3, orchestration: uniform, computerNamePrefix: aks-pool-vmss}
//! disks:
//! - {name: data, sizeGib: 32, sku: Premium_LRS, zone: "1", attachTo: {vm: node-0, lun: 0}}
//! ```

mod check;
mod principals;
mod scale_set;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

pub use self::scale_set::{Orchestration, ScaleSet, UpgradePolicy};
pub use crate::roles::Role;
use crate::sizes;

/// Subscription of the default scenario.
pub const SUBSCRIPTION: &str = "00000000-0000-0000-0000-000000000001";
/// Tenant of the default scenario.
pub const TENANT: &str = "00000000-0000-0000-0000-000000000002";
/// Client (application) id of the default scenario.
pub const CLIENT_ID: &str = "00000000-0000-0000-0000-000000000003";
/// Secret of that client. It opens nothing but an emulator.
pub const CLIENT_SECRET: &str = "lazuli-emulator-secret";
/// Client id of the user-assigned identity of the default scenario.
pub const IDENTITY_CLIENT_ID: &str = "00000000-0000-0000-0000-000000000004";
/// Name of the default resource group.
pub const RESOURCE_GROUP: &str = "lazuli";
/// The default location.
pub const LOCATION: &str = "westeurope";

/// Name space of the ids that are derived from names, so that they are the same at every start.
const DERIVED: Uuid = Uuid::from_u128(0x6c61_7a75_6c69_4000_8000_656d_756c_6174);

/// What exists at the start. Every key may be left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Scenario {
    /// Tenant id, a GUID.
    pub tenant_id: String,
    /// The tenant's domain, which a token URL may name instead of the id.
    pub tenant_domain: String,
    /// Subscription ids. The first one holds whatever names no other.
    pub subscriptions: Vec<String>,
    /// Location of what names no other.
    pub location: String,
    /// Applications that may sign in.
    pub clients: Vec<Client>,
    /// User-assigned managed identities.
    pub identities: Vec<Identity>,
    /// Usage limits by name (`cores`, `disks`, `publicIPAddresses`…) for every subscription and region.
    pub quotas: BTreeMap<String, u64>,
    /// Resource groups; `lazuli` alone when left out.
    pub resource_groups: Vec<ResourceGroup>,
    /// Virtual networks.
    pub virtual_networks: Vec<VirtualNetwork>,
    /// Network security groups, with the rules that each has from its start.
    pub security_groups: Vec<SecurityGroup>,
    /// Route tables, without routes.
    pub route_tables: Vec<RouteTable>,
    /// Availability sets.
    pub availability_sets: Vec<AvailabilitySet>,
    /// Virtual machines.
    pub virtual_machines: Vec<VirtualMachine>,
    /// Virtual machine scale sets.
    pub scale_sets: Vec<ScaleSet>,
    /// Managed disks, besides the OS disks of the machines.
    pub disks: Vec<Disk>,
}

/// An application.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Client {
    /// Application (client) id, a GUID.
    pub id: String,
    /// Its secret; without one it can sign in by an assertion only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// Object id of its service principal; derived from the client id when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object_id: Option<String>,
    /// Whose tokens it accepts in place of a secret. Empty: any well-formed token.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub federated: Vec<FederatedCredential>,
    /// The certificates, in PEM, with whose keys it may sign assertions of its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub certificates: Vec<String>,
    /// What it may do; everything when left out, nothing when empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub roles: Option<Vec<Role>>,
}

impl Client {
    /// The object id, given or derived.
    #[must_use]
    pub fn object_id(&self) -> String {
        self.object_id.clone().unwrap_or_else(|| derived_id("service-principal", &self.id))
    }
}

/// A federated credential of an application.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FederatedCredential {
    /// Claim `iss`.
    pub issuer: String,
    /// Claim `sub`.
    pub subject: String,
}

/// A user-assigned managed identity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Identity {
    /// Resource name.
    pub name: String,
    /// Client id; derived from the name when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// Object id of its service principal; derived from the name when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object_id: Option<String>,
    /// ARM id; made from the first subscription and resource group when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_id: Option<String>,
    /// What it may do; everything when left out, nothing when empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub roles: Option<Vec<Role>>,
}

/// A resource group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ResourceGroup {
    /// Name.
    pub name: String,
    /// Location; the scenario's when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub location: Option<String>,
    /// Subscription; the first one when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subscription: Option<String>,
}

/// A virtual network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct VirtualNetwork {
    /// Name.
    pub name: String,
    /// Resource group; the first one when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_group: Option<String>,
    /// Address space, as CIDR prefixes.
    pub prefixes: Vec<String>,
    /// Subnets.
    #[serde(default)]
    pub subnets: Vec<Subnet>,
}

/// A network security group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SecurityGroup {
    /// Name.
    pub name: String,
    /// Resource group; the first one when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_group: Option<String>,
}

/// A route table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RouteTable {
    /// Name.
    pub name: String,
    /// Resource group; the first one when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_group: Option<String>,
}

/// A subnet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Subnet {
    /// Name.
    pub name: String,
    /// CIDR prefix.
    pub prefix: String,
}

/// An availability set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AvailabilitySet {
    /// Name.
    pub name: String,
    /// Resource group; the first one when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_group: Option<String>,
    /// Fault domains.
    #[serde(default = "two")]
    pub fault_domains: u8,
    /// Update domains.
    #[serde(default = "five")]
    pub update_domains: u8,
}

const fn two() -> u8 {
    2
}

const fn five() -> u8 {
    5
}

/// One virtual machine, or several of one pattern.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct VirtualMachine {
    /// Name. `{}` in it becomes the number of the machine, from 0; needed when `count` is given.
    pub name: String,
    /// How many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
    /// Size.
    #[serde(default = "default_size")]
    pub size: String,
    /// Resource group; the first one when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_group: Option<String>,
    /// Resource group of their network interfaces; that of the machines when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nic_resource_group: Option<String>,
    /// Zones, dealt out in turn; none when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub zones: Vec<String>,
    /// The zone of all machines: `zones` with one element.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// Availability set; excludes zones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub availability_set: Option<String>,
    /// Subnet as `network/subnet`; the first subnet when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subnet: Option<String>,
    /// OS disk.
    #[serde(default)]
    pub os_disk: OsDisk,
    /// How data disks come to it; as its size has it when left out: by NVMe from version 6 on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_controller: Option<DiskController>,
    /// Whether its kernel shows disks that come by NVMe with its multipath.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub nvme_multipath: bool,
    /// Whether it has a system-assigned identity.
    #[serde(default = "yes")]
    pub system_identity: bool,
    /// Names of user-assigned identities; all of the scenario's when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identities: Option<Vec<String>>,
    /// Tags.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
}

const fn yes() -> bool {
    true
}

fn default_size() -> String {
    "Standard_D8s_v3".to_owned()
}

/// How data disks come to a virtual machine, as ARM spells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DiskController {
    /// As LUNs of a SCSI host.
    #[serde(rename = "SCSI")]
    Scsi,
    /// As namespaces of an NVMe controller.
    #[serde(rename = "NVMe")]
    Nvme,
}

/// Where the OS disk of a virtual machine is, as ARM spells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Placement {
    /// On a local NVMe disk of the host, so that it is no namespace among the data disks.
    NvmeDisk,
}

/// The OS disk of a virtual machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct OsDisk {
    /// GiB.
    pub size_gib: u64,
    /// Disk SKU.
    pub sku: String,
    /// The name of a storage account of which it is a blob, so that the machine takes blobs as data disks and no managed
    /// disks. A managed disk when left out. Neither the account nor the blob is made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_account: Option<String>,
    /// The local disk that it is on; a remote disk when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placement: Option<Placement>,
}

impl Default for OsDisk {
    fn default() -> Self {
        Self { size_gib: 30, sku: "Premium_LRS".to_owned(), storage_account: None, placement: None }
    }
}

/// A managed disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Disk {
    /// Name.
    pub name: String,
    /// GiB.
    pub size_gib: u64,
    /// Disk SKU.
    #[serde(default = "default_sku")]
    pub sku: String,
    /// Zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// Resource group; the first one when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_group: Option<String>,
    /// The machine it is attached to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attach_to: Option<AttachTo>,
    /// Tags.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
}

fn default_sku() -> String {
    "Premium_LRS".to_owned()
}

/// Where a disk of the scenario is attached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AttachTo {
    /// Name of the machine.
    pub vm: String,
    /// LUN, 0 to 63.
    pub lun: u8,
}

/// A machine of the scenario with its pattern resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Name, which is also its computer name and the name of the Kubernetes node.
    pub name: String,
    /// Position among all machines of the scenario; gives addresses their order.
    pub index: u32,
    /// Size as Azure spells it.
    pub size: String,
    /// Resource group.
    pub resource_group: String,
    /// Resource group of its network interface.
    pub nic_resource_group: String,
    /// Zone.
    pub zone: Option<String>,
    /// Availability set.
    pub availability_set: Option<String>,
    /// Network and subnet.
    pub subnet: Option<(String, String)>,
    /// OS disk.
    pub os_disk: OsDisk,
    /// How data disks come to it, if that is said.
    pub disk_controller: Option<DiskController>,
    /// Whether its kernel has NVMe multipath.
    pub nvme_multipath: bool,
    /// Whether it has a system-assigned identity.
    pub system_identity: bool,
    /// ARM ids of its user-assigned identities.
    pub identities: Vec<String>,
    /// Tags.
    pub tags: BTreeMap<String, String>,
}

/// A scenario could not be had.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// The file cannot be read.
    #[error("scenario {} cannot be read", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Something is wrong in a file.
    #[error("scenario {}", path.display())]
    InFile {
        /// The file.
        path: PathBuf,
        /// What.
        #[source]
        source: Box<Self>,
    },
    /// Not YAML, or not a scenario: where and why, in one line.
    #[error("not a scenario in YAML: {0}")]
    Yaml(String),
    /// Not JSON, or not a scenario.
    #[error("the scenario is not valid JSON for a scenario")]
    Json(#[source] serde_json::Error),
    /// It parses but does not hold together.
    #[error("{key}: {what}")]
    Wrong {
        /// The key, such as `virtualMachines[1].size`.
        key: String,
        /// What is wrong with it.
        what: String,
    },
}

impl Default for Scenario {
    fn default() -> Self {
        Self {
            tenant_id: TENANT.to_owned(),
            tenant_domain: "lazuli.onmicrosoft.com".to_owned(),
            subscriptions: vec![SUBSCRIPTION.to_owned()],
            location: LOCATION.to_owned(),
            clients: vec![Client {
                id: CLIENT_ID.to_owned(),
                secret: Some(CLIENT_SECRET.to_owned()),
                object_id: None,
                federated: Vec::new(),
                certificates: Vec::new(),
                roles: None,
            }],
            identities: vec![Identity {
                name: "lazuli-identity".to_owned(),
                client_id: Some(IDENTITY_CLIENT_ID.to_owned()),
                object_id: None,
                resource_id: None,
                roles: None,
            }],
            quotas: BTreeMap::new(),
            resource_groups: vec![ResourceGroup {
                name: RESOURCE_GROUP.to_owned(),
                location: None,
                subscription: None,
            }],
            virtual_networks: vec![VirtualNetwork {
                name: "lazuli-vnet".to_owned(),
                resource_group: None,
                prefixes: vec!["10.0.0.0/8".to_owned()],
                subnets: vec![Subnet { name: "nodes".to_owned(), prefix: "10.240.0.0/16".to_owned() }],
            }],
            security_groups: Vec::new(),
            route_tables: Vec::new(),
            availability_sets: Vec::new(),
            virtual_machines: vec![VirtualMachine::pattern("node-{}", 2)],
            scale_sets: Vec::new(),
            disks: Vec::new(),
        }
    }
}

impl VirtualMachine {
    /// `count` machines of the default size, named by a pattern with `{}`.
    #[must_use]
    pub fn pattern(name: &str, count: u32) -> Self {
        Self {
            name: name.to_owned(),
            count: Some(count),
            size: default_size(),
            resource_group: None,
            nic_resource_group: None,
            zones: Vec::new(),
            zone: None,
            availability_set: None,
            subnet: None,
            os_disk: OsDisk::default(),
            disk_controller: None,
            nvme_multipath: false,
            system_identity: true,
            identities: None,
            tags: BTreeMap::new(),
        }
    }

    fn names(&self) -> Vec<String> {
        match self.count {
            Some(count) => (0..count).map(|index| self.name.replace("{}", &index.to_string())).collect(),
            None => vec![self.name.clone()],
        }
    }
}

/// What is wrong in a text of YAML, and where, without the excerpt that the reader adds.
pub(crate) fn one_line(error: &serde_saphyr::Error) -> String {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or("");
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}

/// A GUID that depends on nothing but its arguments: the same at every start.
#[must_use]
pub fn derived_id(purpose: &str, name: &str) -> String {
    let name = format!("{purpose}/{}", name.to_lowercase());
    Uuid::new_v5(&DERIVED, name.as_bytes()).to_string()
}

impl Scenario {
    /// Reads a scenario file, YAML or JSON.
    ///
    /// # Errors
    /// When the file cannot be read, does not parse, or does not hold together.
    pub fn load(path: &Path) -> Result<Self, ScenarioError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ScenarioError::Unreadable { path: path.to_owned(), source })?;
        Self::parse(&text).map_err(|error| ScenarioError::InFile { path: path.to_owned(), source: Box::new(error) })
    }

    /// Reads a scenario from text: JSON when it begins with a brace, else YAML.
    ///
    /// # Errors
    /// When it does not parse or does not hold together.
    pub fn parse(text: &str) -> Result<Self, ScenarioError> {
        let scenario: Self = if text.trim_start().starts_with('{') {
            serde_json::from_str(text).map_err(ScenarioError::Json)?
        } else {
            serde_saphyr::from_str(text).map_err(|error| ScenarioError::Yaml(one_line(&error)))?
        };
        scenario.check()?;
        Ok(scenario)
    }

    /// The first subscription.
    #[must_use]
    pub fn subscription(&self) -> &str {
        self.subscriptions.first().map_or(SUBSCRIPTION, |s| s)
    }

    /// The first resource group.
    #[must_use]
    pub fn resource_group(&self) -> &str {
        self.resource_groups.first().map_or(RESOURCE_GROUP, |group| &group.name)
    }

    /// The subscription of a resource group.
    #[must_use]
    pub fn subscription_of(&self, resource_group: &str) -> &str {
        self.resource_groups
            .iter()
            .find(|group| group.name.eq_ignore_ascii_case(resource_group))
            .and_then(|group| group.subscription.as_deref())
            .unwrap_or_else(|| self.subscription())
    }

    /// The ARM id of a user-assigned identity.
    #[must_use]
    pub fn identity_id(&self, identity: &Identity) -> String {
        identity.resource_id.clone().unwrap_or_else(|| {
            format!(
                "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.ManagedIdentity/userAssignedIdentities/{}",
                self.subscription_of(self.resource_group()),
                self.resource_group(),
                identity.name
            )
        })
    }

    /// All machines, patterns resolved, in order.
    #[must_use]
    pub fn machines(&self) -> Vec<Machine> {
        let mut machines = Vec::new();
        let mut index = 0;
        for vm in &self.virtual_machines {
            let zones: Vec<&String> = vm.zone.iter().chain(&vm.zones).collect();
            let resource_group = vm.resource_group.as_deref().unwrap_or(self.resource_group());
            for (turn, name) in vm.names().into_iter().enumerate() {
                let identities = self
                    .identities
                    .iter()
                    .filter(|identity| {
                        vm.identities
                            .as_ref()
                            .is_none_or(|names| names.iter().any(|n| n.eq_ignore_ascii_case(&identity.name)))
                    })
                    .map(|identity| self.identity_id(identity))
                    .collect();
                machines.push(Machine {
                    name,
                    index,
                    size: sizes::find(&vm.size).map_or_else(|| vm.size.clone(), |size| size.name.to_owned()),
                    resource_group: resource_group.to_owned(),
                    nic_resource_group: vm.nic_resource_group.as_deref().unwrap_or(resource_group).to_owned(),
                    zone: zones.get(turn % zones.len().max(1)).map(|zone| (*zone).clone()),
                    availability_set: vm.availability_set.clone(),
                    subnet: self.subnet_of(vm.subnet.as_deref()),
                    os_disk: vm.os_disk.clone(),
                    disk_controller: vm.disk_controller,
                    nvme_multipath: vm.nvme_multipath,
                    system_identity: vm.system_identity,
                    identities,
                    tags: vm.tags.clone(),
                });
                index += 1;
            }
        }
        machines
    }

    /// Network and subnet of a `network/subnet`; the first where none is given.
    pub(crate) fn subnet_of(&self, given: Option<&str>) -> Option<(String, String)> {
        match given {
            Some(subnet) => {
                let (network, subnet) = subnet.split_once('/')?;
                Some((network.to_owned(), subnet.to_owned()))
            }
            None => self.virtual_networks.iter().find_map(|network| {
                let subnet = network.subnets.first()?;
                Some((network.name.clone(), subnet.name.clone()))
            }),
        }
    }
}
