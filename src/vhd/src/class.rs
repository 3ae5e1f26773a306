//! Whether a StorageClass asks for a blob disk, and for which one.
//!
//! The parameters are those of the in-tree plugin of Kubernetes 1.7: `kind` is `Shared`, `Dedicated` or `Managed`, and
//! `storageAccount` names an account. The Go driver of today knows neither: it makes a managed disk whatever `kind` says,
//! and refuses `storageAccount`. Which of the two holds in a cluster is said by [`BlobDisks`] and by what its machines are
//! made of, because a machine takes either managed disks or blobs (source: Azure's error `Addition of a managed disk to a
//! VM with blob based disks is not supported.`).
//!
//! | `kind` | `storageAccount` | a blob disk is made |
//! |---|---|---|
//! | none or `Managed` | none | never |
//! | `Shared` | none | in an account of the cluster's pool |
//! | `Dedicated` | none | in an account of its own |
//! | none or `Dedicated` | named | in that account |
//! | `Managed`, `Shared` | named | never: it is refused |
//!
//! A class of the in-tree provisioner gets none: where it would, it is refused.
//!
//! What a node does with the disk (`fsType`, `perfProfile`, `device-setting/`) is checked by the crate of classes, as for
//! managed disks.

use std::{collections::BTreeMap, fmt, ops::RangeInclusive, str::FromStr};

use lazuli_model::{
    CachingMode, Gib, StorageSku, SystemDisk, UnknownName, Vm,
    blob_uri::is_account_name,
    digest,
    node::{ClusterNodes, Machine},
    parameter::{Parameter, ParameterError, Parameters},
    spelling::nearest,
};

use crate::parameters;

/// How the names of the blobs that a driver makes end.
const EXTENSION: &str = ".vhd";

/// `--blob-disks`: when a class that asks for a blob disk gets one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum BlobDisks {
    /// Where the machines of the cluster have their system disks in blobs.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never: as the Go driver.
    Never,
}

impl BlobDisks {
    /// Every value, for people.
    pub const NAMES: &'static str = "auto, always, never";

    /// The word of the switch.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Always => "always",
            Self::Never => "never",
        }
    }
}

impl FromStr for BlobDisks {
    type Err = UnknownName;

    fn from_str(text: &str) -> Result<Self, UnknownName> {
        [Self::Auto, Self::Always, Self::Never]
            .into_iter()
            .find(|value| value.as_str() == text)
            .ok_or_else(|| UnknownName { value: text.to_owned(), allowed: Self::NAMES })
    }
}

impl fmt::Display for BlobDisks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What the machines of the cluster's Nodes take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Machines {
    /// All of them blobs.
    Blobs,
    /// At least one takes managed disks.
    Managed,
    /// None has been read yet.
    Unknown,
}

/// What has been found out for a request that asks for a blob disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Found {
    /// What the machines take.
    pub machines: Option<Machines>,
    /// Whether an earlier try of the request has begun the blob disk ([`Choice::AskForBlob`]).
    pub blob: Option<bool>,
    /// Whether an earlier try of the request has made the managed disk ([`Choice::AskForManaged`]).
    pub managed: Option<bool>,
}

impl Machines {
    /// What these machines take. A cluster of both counts as managed: a Pod may come to any of them.
    pub fn of(system_disks: impl IntoIterator<Item = SystemDisk>) -> Self {
        system_disks.into_iter().fold(Self::Unknown, |all, one| match (all, one) {
            (Self::Managed, _) | (_, SystemDisk::Managed) => Self::Managed,
            (Self::Unknown | Self::Blobs, SystemDisk::Blob) => Self::Blobs,
        })
    }

    /// The resource groups (subscription and name) whose virtual machines are listed for [`Machines::of_cluster`]. `home` is
    /// that of the cluster.
    pub fn groups(cluster: &ClusterNodes, home: (&str, &str)) -> Vec<(String, String)> {
        let nodes = match cluster {
            ClusterNodes::NoCluster => return vec![(home.0.to_owned(), home.1.to_owned())],
            ClusterNodes::Cold => return Vec::new(),
            ClusterNodes::Known(nodes) => nodes,
        };
        let mut groups: Vec<(String, String)> = Vec::new();
        for (_, node) in nodes.iter() {
            let (subscription, name) = match &node.machine {
                Some(Machine::Vm(id)) => (id.subscription(), id.resource_group()),
                // What an instance takes is known.
                Some(Machine::Instance(_)) => continue,
                None => (home.0, node.resource_group.as_deref().unwrap_or(home.1)),
            };
            let is_it =
                |(other, of): (&str, &str)| other.eq_ignore_ascii_case(subscription) && of.eq_ignore_ascii_case(name);
            if !groups.iter().any(|(subscription, name)| is_it((subscription, name))) {
                let (subscription, name) = if is_it(home) { home } else { (subscription, name) };
                groups.push((subscription.to_owned(), name.to_owned()));
            }
        }
        groups
    }

    /// What the machines of the cluster's Nodes take. Other machines of a resource group run no Pod: a jumpbox says nothing of
    /// the cluster. Where there is no cluster to ask, every machine may be a node.
    pub fn of_cluster(cluster: &ClusterNodes, listed: &[Vm]) -> Self {
        let nodes = match cluster {
            ClusterNodes::NoCluster => return Self::of(listed.iter().map(|vm| vm.system_disk)),
            ClusterNodes::Cold => return Self::Unknown,
            ClusterNodes::Known(nodes) => nodes,
        };
        let with = |is_it: &dyn Fn(&Vm) -> bool| listed.iter().find(|vm| is_it(vm)).map(|vm| vm.system_disk);
        Self::of(nodes.iter().filter_map(|(name, node)| match &node.machine {
            // Instances of uniform scale sets have managed disks alone.
            Some(Machine::Instance(_)) => Some(SystemDisk::Managed),
            Some(Machine::Vm(id)) => with(&|vm| vm.id == *id),
            None => with(&|vm| vm.id.name().eq_ignore_ascii_case(name)),
        }))
    }
}

/// What the cluster says for every blob disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Defaults {
    /// `--blob-disks`
    pub blob_disks: BlobDisks,
    /// Whether the cloud is Azure Stack Hub.
    pub is_stack_hub: bool,
    /// The subscription of the cluster.
    pub subscription: String,
    /// The resource group of the cluster, in which the accounts are.
    pub resource_group: String,
    /// The region of the cluster.
    pub location: String,
}

/// In which account a blob disk is made.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// In one of the cluster's pool.
    Shared,
    /// In one of its own.
    Dedicated,
    /// In this one, which is never made.
    Account(String),
}

/// What is made for a class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    /// A managed disk.
    Managed {
        /// What a person should know of: the class asks for a blob disk.
        warning: Option<String>,
    },
    /// A blob disk.
    Blob(Box<BlobClass>),
    /// It depends on what the machines take: [`Found::machines`].
    AskForMachines,
    /// It depends on whether this blob disk is begun: [`Found::blob`].
    AskForBlob(Box<BlobClass>),
    /// It depends on whether there is a managed disk: [`Found::managed`].
    AskForManaged,
    /// No machine has been read yet: ask again (`UNAVAILABLE`).
    Undecided,
}

/// A blob disk that a request asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlobClass {
    /// The account.
    pub place: Place,
    /// The SKU of the account. For a named one: what the class says of it.
    pub sku: Option<StorageSku>,
    /// The region of the account; it counts where an account is made or chosen.
    pub location: String,
    /// The name of the blob.
    pub blob: String,
    /// The size that is made.
    pub size: Gib,
    /// The sizes, in bytes, with which a disk that an earlier try made is the one that is asked for.
    pub accepted: RangeInclusive<u64>,
    /// `cachingMode`; `None` where the class does not say.
    pub caching: Option<CachingMode>,
    /// The parameters as they were written: the context of the volume.
    pub written: BTreeMap<String, String>,
    /// What a person should know of, a sentence each.
    pub warnings: Vec<String>,
}

/// A CreateVolume request.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Request {
    /// The name of the request: `pvc-<uid>`.
    pub name: String,
    /// The parameters of the StorageClass, and those of a VolumeAttributesClass over them.
    pub parameters: BTreeMap<String, String>,
    /// `capacity_range.required_bytes`; 0 when there is none.
    pub required_bytes: i64,
    /// `capacity_range.limit_bytes`; 0 when there is none.
    pub limit_bytes: i64,
}

/// The SKUs of accounts whose page blobs are disks (source: the in-tree plugin's list, and Microsoft's page on page blobs:
/// no zone redundancy).
pub const SKUS: [StorageSku; 4] =
    [StorageSku::StandardLrs, StorageSku::StandardGrs, StorageSku::StandardRagrs, StorageSku::PremiumLrs];

/// The SKUs that Azure Stack Hub has (source: "Azure Stack Hub storage: Differences and considerations").
const STACK_HUB_SKUS: [StorageSku; 2] = [StorageSku::StandardLrs, StorageSku::PremiumLrs];

/// The largest blob disk (source: Microsoft's limits of unmanaged disks).
const LARGEST: Gib = Gib::new(4_095);

/// The largest one on Azure Stack Hub, whose page blobs have at most 1 TiB with the footer (source: "Azure Stack Hub
/// storage: Differences and considerations").
const LARGEST_ON_STACK_HUB: Gib = Gib::new(1_023);

/// The sizes that a blob disk can have.
pub fn sizes(is_stack_hub: bool) -> RangeInclusive<Gib> {
    Gib::new(1)..=if is_stack_hub { LARGEST_ON_STACK_HUB } else { LARGEST }
}

/// Parameters that are of managed disks alone.
const OF_MANAGED_DISKS: [&str; 20] = [
    "diskaccessid",
    "diskencryptionsetid",
    "diskencryptiontype",
    "diskiopsreadwrite",
    "diskmbpsreadwrite",
    "diskname",
    "enablebursting",
    "enableperformanceplus",
    "logicalsectorsize",
    "maxshares",
    "networkaccesspolicy",
    "publicnetworkaccess",
    "subscriptionid",
    "tags",
    "tagvaluedelimiter",
    "tier",
    "writeacceleratorenabled",
    "zone",
    "zones",
    "edgezone",
];

/// What `kind` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Shared,
    Dedicated,
    Managed,
}

impl Kind {
    /// The kind of this name in any letter case: the in-tree plugin raised the first letter.
    fn of(parameter: Parameter<'_>) -> Option<Self> {
        let is = |name: &str| parameter.value.eq_ignore_ascii_case(name);
        match () {
            () if is("Shared") => Some(Self::Shared),
            () if is("Dedicated") => Some(Self::Dedicated),
            () if is("Managed") => Some(Self::Managed),
            () => None,
        }
    }
}

/// What a request gets.
///
/// A class that asks for no blob disk is not checked further: that is the business of managed disks, as is what its
/// `kind` may say.
///
/// What the machines take may change between two tries of one request. What the first has begun the second goes on with: a
/// disk of the other sort would be one too many, which no volume names.
///
/// # Errors
/// The first parameter of a blob disk that cannot be used, or a size that no blob disk has. Nothing is written before.
pub fn choose(request: &Request, defaults: &Defaults, found: &Found) -> Result<Choice, ParameterError> {
    let parameters = Parameters::written(&request.parameters)?;
    let kind = parameters.get("kind");
    let account = parameters.get("storageaccount");
    let place = match (kind.map(|kind| (kind, Kind::of(kind))), account) {
        // Where blob disks are made it is a mistake, and elsewhere the business of managed disks.
        (Some((kind, None)), None) if !kind.value.is_empty() => {
            return match (defaults.blob_disks, found.machines, found.managed) {
                (BlobDisks::Auto, None, _) => Ok(Choice::AskForMachines),
                (BlobDisks::Auto, Some(Machines::Blobs), None) => Ok(Choice::AskForManaged),
                (BlobDisks::Always, ..) | (BlobDisks::Auto, Some(Machines::Blobs), Some(false)) => {
                    Err(kind.refuse("allowed are Managed, Shared and Dedicated"))
                }
                (BlobDisks::Auto, Some(_), _) | (BlobDisks::Never, ..) => Ok(Choice::Managed { warning: None }),
            };
        }
        (None | Some((_, None | Some(Kind::Managed))), None) => return Ok(Choice::Managed { warning: None }),
        (Some((kind, None)), Some(_)) => {
            return Err(kind.refuse("allowed with storageAccount is Dedicated, or to leave it out"));
        }
        (Some((kind, Some(Kind::Managed))), Some(account)) => {
            return Err(account.refuse(format!(
                "it names the account of a blob disk, and {} is {:?}; allowed is to leave one of the two out",
                kind.key, kind.value
            )));
        }
        (Some((kind, Some(Kind::Shared))), Some(account)) => {
            return Err(account.refuse(format!(
                "with {} {:?} the driver chooses the account; allowed is to leave one of the two out",
                kind.key, kind.value
            )));
        }
        (Some((_, Some(Kind::Shared))), None) => Place::Shared,
        (Some((_, Some(Kind::Dedicated))), None) => Place::Dedicated,
        (None | Some((_, Some(Kind::Dedicated))), Some(account)) => named(account)?,
    };
    let blob = || {
        refuse_in_tree(&parameters)?;
        blob(request, &parameters, place, defaults).map(Box::new)
    };
    let as_go = || as_go(kind, account, defaults);
    match (defaults.blob_disks, found.machines) {
        (BlobDisks::Always, _) => blob().map(Choice::Blob),
        (BlobDisks::Never, _) => as_go(),
        (BlobDisks::Auto, None) => Ok(Choice::AskForMachines),
        (BlobDisks::Auto, Some(Machines::Unknown)) => Ok(Choice::Undecided),
        // Also for a class that no blob disk can have: the first try may have been a managed disk's.
        (BlobDisks::Auto, Some(Machines::Blobs)) => match found.managed {
            None => Ok(Choice::AskForManaged),
            Some(true) => as_go(),
            Some(false) => blob().map(Choice::Blob),
        },
        // A class of which no try makes a blob disk has none.
        (BlobDisks::Auto, Some(Machines::Managed)) => match (blob(), found.blob) {
            (Ok(blob), None) => Ok(Choice::AskForBlob(blob)),
            (Ok(blob), Some(true)) => Ok(Choice::Blob(blob)),
            (Ok(_), Some(false)) | (Err(_), _) => as_go(),
        },
    }
}

/// Refuses a class of the in-tree provisioner, which external-provisioner marks. Its PersistentVolume is translated back, and
/// the translation makes every kind Managed (source: csi-translation-lib); the API server then refuses the address of a blob
/// (source: its validation of `azureDisk`). So nothing may be made.
fn refuse_in_tree(parameters: &Parameters<'_>) -> Result<(), ParameterError> {
    match parameters.get("csi-migration") {
        Some(mark) if mark.value.eq_ignore_ascii_case("true") => Err(mark.refuse(
            "the class has the in-tree provisioner, of which Kubernetes accepts managed disks alone; make a class with the \
             provisioner disk.csi.azure.com and these parameters for blob disks, and the claim anew with that class; or let the \
             class ask for managed disks, without storageAccount and with kind Managed",
        )),
        Some(_) | None => Ok(()),
    }
}

/// What the Go driver does with a class of blob disks.
fn as_go(
    kind: Option<Parameter<'_>>,
    account: Option<Parameter<'_>>,
    defaults: &Defaults,
) -> Result<Choice, ParameterError> {
    let why = match defaults.blob_disks {
        BlobDisks::Never => "--blob-disks is never",
        BlobDisks::Auto | BlobDisks::Always => "the machines of the cluster take managed disks",
    };
    if let Some(account) = account {
        return Err(account.refuse(format!(
            "it asks for a blob disk, and {why}; allowed is to leave it out, or --blob-disks=always"
        )));
    }
    let warning = kind.map(|kind| {
        format!(
            "parameter {} is {:?}: the disk is made as a managed disk, because {why}; --blob-disks=always makes blob disks",
            kind.key, kind.value
        )
    });
    Ok(Choice::Managed { warning })
}

/// The account that a class names. Azure's names of accounts have no upper case.
fn named(account: Parameter<'_>) -> Result<Place, ParameterError> {
    let name = account.value.to_ascii_lowercase();
    if is_account_name(&name) {
        Ok(Place::Account(name))
    } else {
        Err(account.refuse("allowed is the name of a storage account: 3 to 24 letters and digits"))
    }
}

fn blob(
    request: &Request,
    parameters: &Parameters<'_>,
    place: Place,
    defaults: &Defaults,
) -> Result<BlobClass, ParameterError> {
    if request.name.is_empty() {
        return Err(ParameterError::invalid("name", "", "the request needs a name"));
    }
    let mut warnings = Vec::new();
    for (folded, parameter) in parameters.iter() {
        check_known(folded, parameter)?;
    }
    if let Some(group) = parameters.get("resourcegroup")
        && !group.value.eq_ignore_ascii_case(&defaults.resource_group)
    {
        return Err(group.refuse(format!(
            "the accounts of blob disks are in the resource group of the cluster; allowed is {}",
            defaults.resource_group
        )));
    }
    let sku = sku(parameters, defaults.is_stack_hub)?;
    let location = parameters.get("location");
    if let (Some(location), Place::Account(account)) = (location, &place) {
        warnings.push(format!(
            "parameter {} is {:?}: it is ignored, because the disk is where the account {account} is",
            location.key, location.value
        ));
    }
    let (size, accepted) = size(request, defaults.is_stack_hub)?;
    Ok(BlobClass {
        sku: match place {
            Place::Account(_) => sku,
            Place::Shared | Place::Dedicated => Some(sku.unwrap_or(StorageSku::StandardLrs)),
        },
        place,
        location: location.map_or(&*defaults.location, |location| location.value).to_owned(),
        blob: blob_name(&request.name),
        size,
        accepted,
        caching: parameters.get("cachingmode").map(|caching| caching.name()).transpose()?,
        written: parameters.iter().map(|(_, one)| (one.key.to_owned(), one.value.to_owned())).collect(),
        warnings,
    })
}

fn check_known(folded: &str, parameter: Parameter<'_>) -> Result<(), ParameterError> {
    let is_one_machine = folded != "maxshares" || parameter.value == "1";
    if is_one_machine && (parameters::row(folded).is_some() || folded.starts_with("device-setting/")) {
        return Ok(());
    }
    if OF_MANAGED_DISKS.contains(&folded) {
        return Err(parameter.refuse("it is of managed disks, and a blob disk has none; allowed is to leave it out"));
    }
    let hint = nearest(parameter.key, parameters::names()).map(|known| format!("; did you mean {known}?"));
    let known = parameters::names().collect::<Vec<_>>().join(", ");
    Err(parameter.refuse(format!("allowed for blob disks are {known}{}", hint.unwrap_or_default())))
}

fn sku(parameters: &Parameters<'_>, is_stack_hub: bool) -> Result<Option<StorageSku>, ParameterError> {
    let (one, other) = (parameters.get("skuname"), parameters.get("storageaccounttype"));
    if let (Some(one), Some(other)) = (one, other)
        && one.value != other.value
    {
        return Err(other.refuse(format!(
            "{} names the same thing and is {:?}; allowed is one of the two, or the same value for both",
            one.key, one.value
        )));
    }
    let Some(parameter) = one.or(other) else { return Ok(None) };
    let allowed = if is_stack_hub { &STACK_HUB_SKUS[..] } else { &SKUS[..] };
    if let Some(sku) = allowed.iter().find(|sku| sku.as_str() == parameter.value) {
        return Ok(Some(*sku));
    }
    let names: Vec<&str> = allowed.iter().map(|sku| sku.as_str()).collect();
    let of = if is_stack_hub { "blob disks on Azure Stack Hub" } else { "blob disks" };
    Err(parameter.refuse(format!("allowed for {of} are {}, in exactly this spelling", names.join(", "))))
}

/// The size that is made: what is required, rounded up to GiB, and the sizes that are accepted of a disk that exists.
fn size(request: &Request, is_stack_hub: bool) -> Result<(Gib, RangeInclusive<u64>), ParameterError> {
    let (required, limit) = (request.required_bytes, request.limit_bytes);
    for (parameter, value) in [("required_bytes", required), ("limit_bytes", limit)] {
        if value < 0 {
            return Err(ParameterError::invalid(parameter, value, "allowed is no negative number of bytes"));
        }
    }
    let size = fit(required.unsigned_abs(), is_stack_hub)?;
    let limit_bytes = if limit == 0 { u64::MAX } else { limit.unsigned_abs() };
    if size.bytes() > limit_bytes {
        return Err(ParameterError::out_of_range(
            "limit_bytes",
            limit,
            format!("the smallest blob disk for the {required} bytes required has {size} ({} bytes)", size.bytes()),
        ));
    }
    Ok((size, required.unsigned_abs()..=limit_bytes))
}

/// The size that an expansion asks for.
///
/// # Errors
/// When no blob disk is so large, or none that holds what is required keeps to the limit.
pub fn expansion(required_bytes: i64, limit_bytes: i64, is_stack_hub: bool) -> Result<Gib, ParameterError> {
    let request = Request { required_bytes, limit_bytes, ..Request::default() };
    size(&request, is_stack_hub).map(|(size, _)| size)
}

/// The size of a blob disk that holds so many bytes: for a creation and for an expansion.
///
/// # Errors
/// When no blob disk is so large.
pub fn fit(required_bytes: u64, is_stack_hub: bool) -> Result<Gib, ParameterError> {
    let sizes = sizes(is_stack_hub);
    match Gib::holding(required_bytes).map(|size| size.max(*sizes.start())) {
        Some(size) if size <= *sizes.end() => Ok(size),
        Some(_) | None => Err(ParameterError::out_of_range(
            "required_bytes",
            required_bytes,
            format!(
                "the largest blob disk{} has {}",
                if is_stack_hub { " of Azure Stack Hub" } else { "" },
                sizes.end()
            ),
        )),
    }
}

/// The longest name of a request that is the name of its blob.
const LONGEST_PLAIN: usize = 76;

/// The name of the blob of a request: the same for each try, and another one for each request. CSI allows any text as the
/// name of a request; one that would have to be changed becomes a digest.
pub fn blob_name(request: &str) -> String {
    const REPLACED: &str = "blob-dynamic-";
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let is_fit = (1..=LONGEST_PLAIN).contains(&request.len()) && request.bytes().all(is_plain);
    if is_fit && !request.starts_with(REPLACED) {
        format!("{request}{EXTENSION}")
    } else {
        format!("{REPLACED}{}{EXTENSION}", digest::uuid_like(request.as_bytes()))
    }
}

#[cfg(test)]
mod tests;
