//! From a CreateVolume request to the disk it asks for.

pub(super) mod attributes;
pub(super) mod place;
mod size;

use std::collections::BTreeMap;

use attributes::{bursting, encryption, logical_sector_size, network, performance, tier, write_accelerator};
use lazuli_model::{
    ArmId, CachingMode, Disk, Gib, SkuName,
    disk_spec::{CopyOf, CopySize, CreateOption, DiskSpec, ExtendedLocation, ImportOf, Mismatch, NamedBy, Origin},
    parameter::{Parameter, Parameters},
    template::Templates,
};
use place::{Pin, disk_id, place};
use size::{Size, size};

use super::{
    AllowedResourceGroups, Capability, ParameterError,
    modify::no_attribute,
    parameters, perf, sku,
    stage::FsType,
    tags, validate_capabilities,
    zone::{self, Segments},
};

/// The volume context's key of the size; without it a volume counts as static.
pub(super) const SIZE_KEY: &str = "requestedsizegib";

pub(super) const SKU_ALIASES: [&str; 2] = ["skuname", "storageaccounttype"];

/// The parameter of a VolumeAttributesClass that names a performance tier, in lower case. No StorageClass has it, for the
/// Go driver refuses it there.
pub(super) const TIER_KEY: &str = "tier";

/// The names that Azure Stack Hub has.
const AZURE_STACK_SKUS: [SkuName; 2] = [SkuName::StandardLrs, SkuName::PremiumLrs];

/// Which Azure it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Cloud {
    /// Azure, in any of its sovereign clouds.
    #[default]
    Public,
    /// Azure Stack Hub (`AzureStackCloud`): older APIs, fewer kinds of disks.
    AzureStack,
}

/// What the cloud configuration says for every disk.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Defaults {
    /// The subscription of the cluster.
    pub subscription: String,
    /// The resource group for disks whose class names none.
    pub resource_group: String,
    /// The region of the cluster.
    pub location: String,
    /// The edge zone of the cluster, where it is in one.
    pub extended_location: Option<ExtendedLocation>,
    /// Which Azure it is.
    pub cloud: Cloud,
    /// The resource groups that a class may name besides the cluster's.
    pub allowed_resource_groups: AllowedResourceGroups,
}

/// A CreateVolume request, without what the disk is made from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Request {
    /// The name of the request: `pvc-<uid>`.
    pub name: String,
    /// The parameters of the StorageClass.
    pub parameters: BTreeMap<String, String>,
    /// The parameters of the VolumeAttributesClass; they win. Everything a StorageClass may say is taken here too, as
    /// in the Go driver.
    pub mutable_parameters: BTreeMap<String, String>,
    /// `capacity_range.required_bytes`; 0 when there is none.
    pub required_bytes: i64,
    /// `capacity_range.limit_bytes`; 0 when there is none.
    pub limit_bytes: i64,
    /// The capabilities the volume must have.
    pub capabilities: Vec<Capability>,
    /// `accessibility_requirements.requisite`, segments in the request's order.
    pub requisite: Vec<Segments>,
    /// `accessibility_requirements.preferred`, best first.
    pub preferred: Vec<Segments>,
}

/// The disk that a request asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreatePlan {
    /// Its id.
    pub disk: ArmId,
    /// What the PUT says.
    pub spec: DiskSpec,
    /// The context of the volume: the parameters as they were written, and what the driver adds, spelled as the Go
    /// driver spells it.
    pub volume_context: BTreeMap<String, String>,
    /// Where the volume can be used.
    pub accessible_topology: Vec<Segments>,
    /// Its size: the capacity that CreateVolume answers.
    pub size: Gib,
    /// What a human should know of, a sentence each: the request is carried out differently from what was written.
    pub warnings: Vec<String>,
}

/// A disk that an earlier try of the same request made: what CreateVolume answers for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Adopted {
    /// The capacity.
    pub size: Gib,
    /// The context of the volume; its size is that of the disk.
    pub volume_context: BTreeMap<String, String>,
    /// Where it can be used.
    pub accessible_topology: Vec<Segments>,
}

impl CreatePlan {
    /// What to answer when a disk of this name exists.
    ///
    /// # Errors
    /// When it is not the disk that is asked for: `ALREADY_EXISTS`.
    pub fn adopt(&self, disk: &Disk) -> Result<Adopted, Mismatch> {
        self.spec.matches(disk)?;
        Ok(self.adopted(disk))
    }

    /// What to answer for a disk that is the one that is asked for.
    pub(super) fn adopted(&self, disk: &Disk) -> Adopted {
        let accessible_topology = if disk.zones == self.spec.zones {
            self.accessible_topology.clone()
        } else {
            zone::accessible(&disk.location, &disk.zones)
        };
        let mut volume_context = self.volume_context.clone();
        // The device of a copy may have no whole number of GiB, and must not be smaller than its volume says.
        let size = disk.bytes.map_or(disk.size, |bytes| disk.size.min(Gib::within(bytes)));
        set(&mut volume_context, SIZE_KEY, &size.get().to_string());
        Adopted { size: disk.size, volume_context, accessible_topology }
    }
}

/// Which disk the request asks for. The same request gives the same plan, whatever the order and the case of its
/// parameters' keys.
///
/// # Errors
/// The first value that cannot be used. Nothing has been sent then, and the code is final.
pub fn plan_create(request: &Request, defaults: &Defaults) -> Result<CreatePlan, ParameterError> {
    build(request, defaults, None)
}

/// What a copy gets from its source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Copied {
    /// What is copied.
    pub(super) from: CopiedFrom,
    /// Its exact size; `None` where it is gone.
    pub(super) bytes: Option<u64>,
    /// The logical sector size of its content.
    pub(super) sector_size: Option<u32>,
    /// Where its copy must be.
    pub(super) pin: Pin,
}

/// What a disk is a copy of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CopiedFrom {
    /// A disk or a snapshot.
    Resource {
        /// Its id.
        source: ArmId,
        /// The id that Azure gave it when it was made.
        unique_id: Option<String>,
    },
    /// A page blob.
    Blob(ImportOf),
}

impl CopiedFrom {
    fn create_option(&self, size: CopySize) -> CreateOption {
        match self.clone() {
            Self::Resource { source, unique_id } => CreateOption::Copy(CopyOf { source, unique_id, size }),
            Self::Blob(of) => CreateOption::Import(of),
        }
    }
}

/// Which disk a request asks for: an empty one, or a copy.
pub(super) fn build(
    request: &Request,
    defaults: &Defaults,
    copied: Option<&Copied>,
) -> Result<CreatePlan, ParameterError> {
    if request.name.is_empty() {
        return Err(ParameterError::invalid("name", "", "the request needs a name"));
    }
    let parameters = known_parameters(request)?;
    let mut warnings = Vec::new();
    let on_stack = defaults.cloud == Cloud::AzureStack;

    let sku_name = sku_name(&parameters, defaults.cloud)?;
    let performance_plus = performance_plus(&parameters, sku_name)?;
    let Size { asked, size, copy } = size(request, sku_name, performance_plus, copied, &mut warnings)?;
    let max_shares = max_shares(&parameters, sku_name, size, defaults.cloud)?;
    validate_capabilities(&request.capabilities, max_shares)?;
    let caching = caching(&parameters, sku_name, size, max_shares, &mut warnings)?;
    if let Some(parameter) = parameters.get("fstype") {
        FsType::of(parameter)?;
    }
    perf::check(&parameters)?;
    if let Some(parameter) = parameters.get("attachdiskinitialdelay") {
        parameter.number::<i64>("allowed is a whole number of milliseconds")?;
    }
    note_kind(&parameters, &mut warnings);
    if let Some(parameter) = parameters.get("useragent") {
        warnings.push(format!(
            "parameter {} is {:?}: it is kept with the volume and sent with no request; the cloud configuration's \
             userAgent is",
            parameter.key, parameter.value
        ));
    }

    let (iops, mbps) = performance(&parameters, sku_name, size)?;
    let logical_sector_size = logical_sector_size(&parameters, sku_name, copied.and_then(|copied| copied.sector_size))?;
    let bursting_enabled = bursting(&parameters, sku_name, size, &mut warnings)?;
    let tier = tier(&parameters, sku_name, size)?;
    let write_accelerator = write_accelerator(&parameters, sku_name)?;
    let (disk_encryption_set, encryption_type) = encryption(&parameters)?;
    let network = network(&parameters, on_stack, &mut warnings)?;

    let templates = Templates::of(&parameters);
    let tags = tags::disk_tags(&parameters, &templates, &request.name, write_accelerator, &mut warnings)?;
    let origin = Origin {
        request: tags::value_of(&request.name),
        persistent_volume: templates.pv_name.unwrap_or(&request.name).to_owned(),
        named_by: if parameters.get("diskname").is_some() { NamedBy::Class } else { NamedBy::Request },
    };
    let disk = disk_id(request, &parameters, &templates, defaults, &mut warnings)?;
    let place = place(request, &parameters, sku_name, defaults, copied.map(|copied| &copied.pin))?;
    let create_option = copied.map_or(CreateOption::Empty, |copied| copied.from.create_option(copy));

    let mut volume_context: BTreeMap<String, String> =
        parameters.iter().map(|(_, parameter)| (parameter.key.to_owned(), parameter.value.to_owned())).collect();
    if parameters.iter().any(|(folded, _)| folded == "kind") {
        set(&mut volume_context, "kind", "Managed");
    }
    if caching == Some(CachingMode::None) && sku_name == SkuName::PremiumV2Lrs {
        set(&mut volume_context, "cachingmode", CachingMode::None.as_str());
    }
    set(&mut volume_context, SIZE_KEY, &asked.get().to_string());

    Ok(CreatePlan {
        disk,
        spec: DiskSpec {
            location: place.location,
            // As in the Go driver, whatever zone the class names.
            extended_location: defaults.extended_location.clone(),
            zones: place.zones,
            sku: sku_name,
            tags,
            create_option,
            logical_sector_size,
            performance_plus: performance_plus.then_some(true),
            size: asked,
            iops,
            mbps,
            max_shares,
            disk_encryption_set,
            encryption_type,
            network_access_policy: network.policy,
            disk_access: network.disk_access,
            public_network_access: network.public,
            bursting_enabled,
            tier,
            most_bytes: Some(request.limit_bytes.unsigned_abs()).filter(|limit| *limit > 0),
            zones_accepted: place.zones_accepted,
            origin,
        },
        volume_context,
        accessible_topology: place.accessible_topology,
        size,
        warnings,
    })
}

/// The parameters of both classes; those of the VolumeAttributesClass win, and only it may name a tier.
fn known_parameters(request: &Request) -> Result<Parameters<'_>, ParameterError> {
    let fixed = Parameters::written(&request.parameters)?;
    let mutable = Parameters::written(&request.mutable_parameters)?;
    for (folded, parameter) in fixed.iter() {
        refuse_unknown(folded, parameter)?;
    }
    for (folded, parameter) in mutable.iter().filter(|(folded, _)| *folded != TIER_KEY) {
        match parameters::row(folded).is_none() && perf::setting_path(parameter.key).is_none() {
            true => return Err(no_attribute(parameter)),
            false => refuse_unknown(folded, parameter)?,
        }
    }
    Ok(fixed.overridden_by(mutable, &SKU_ALIASES))
}

/// Sets a key that the driver owns, in the spelling that is there.
pub(super) fn set(context: &mut BTreeMap<String, String>, key: &str, value: &str) {
    let spelled = context.keys().find(|k| k.eq_ignore_ascii_case(key)).cloned().unwrap_or_else(|| key.to_owned());
    context.insert(spelled, value.to_owned());
}

pub(super) fn refuse_unknown(folded: &str, parameter: Parameter<'_>) -> Result<(), ParameterError> {
    match folded {
        "storageaccount" => {
            Err(parameter
                .refuse("it asks for a VHD blob disk, and this disk is a managed one; allowed is to leave it out"))
        }
        "zone" | "zones" => Err(parameter.refuse(
            "it belongs to the in-tree provisioner; allowed is allowedTopologies of the StorageClass with the key \
             topology.disk.csi.azure.com/zone",
        )),
        _ if perf::setting_path(parameter.key).is_some() => Ok(()),
        _ if parameters::row(folded).is_some() => Ok(()),
        _ => {
            Err(parameter.refuse(format!("there is no parameter of this name; allowed are {}", parameters::allowed())))
        }
    }
}

/// An empty `skuName` counts as absent, as in the Go driver.
pub(super) fn sku_name(parameters: &Parameters<'_>, cloud: Cloud) -> Result<SkuName, ParameterError> {
    let [sku_name, alias] = SKU_ALIASES.map(|key| parameters.get(key));
    if let (Some(one), Some(other)) = (sku_name, alias)
        && one.value != other.value
    {
        return Err(other.refuse(format!(
            "{} names the same thing and is {:?}; allowed is one of the two, or the same value for both",
            one.key, one.value
        )));
    }
    let Some(parameter) = sku_name.or(alias) else {
        return Ok(match cloud {
            Cloud::Public => SkuName::StandardSsdLrs,
            Cloud::AzureStack => SkuName::StandardLrs,
        });
    };
    match cloud {
        Cloud::Public => parameter.name(),
        Cloud::AzureStack => AZURE_STACK_SKUS
            .into_iter()
            .find(|sku| sku.as_str() == parameter.value)
            .ok_or_else(|| parameter.refuse("allowed on Azure Stack are Standard_LRS, Premium_LRS")),
    }
}

fn performance_plus(parameters: &Parameters<'_>, sku_name: SkuName) -> Result<bool, ParameterError> {
    let Some(parameter) = parameters.get("enableperformanceplus") else { return Ok(false) };
    let wanted = parameter.boolean()?;
    if wanted && sku::has_own_performance(sku_name) {
        return Err(parameter.refuse(format!(
            "allowed with Standard HDD, Standard SSD and Premium SSD, not with {sku_name}, whose performance is set by itself"
        )));
    }
    Ok(wanted)
}

fn max_shares(parameters: &Parameters<'_>, sku_name: SkuName, size: Gib, cloud: Cloud) -> Result<u32, ParameterError> {
    let Some(parameter) = parameters.get("maxshares") else { return Ok(1) };
    let most = if cloud == Cloud::AzureStack { 1 } else { sku::max_shares(sku_name, size) };
    let on = if cloud == Cloud::AzureStack { "on Azure Stack" } else { "for this disk" };
    let allowed = format!("allowed {on} ({sku_name}, {size}) is a whole number from 1 to {most}");
    let shares: u32 = parameter.number(&allowed)?;
    if (1..=most).contains(&shares) { Ok(shares) } else { Err(parameter.refuse(allowed)) }
}

/// How the host will cache the disk, where that is settled on creation.
fn caching(
    parameters: &Parameters<'_>,
    sku_name: SkuName,
    size: Gib,
    max_shares: u32,
    warnings: &mut Vec<String>,
) -> Result<Option<CachingMode>, ParameterError> {
    let uncached = sku::has_own_performance(sku_name);
    let Some(parameter) = parameters.get("cachingmode") else { return Ok(uncached.then_some(CachingMode::None)) };
    let caching: CachingMode = parameter.name()?;
    if caching != CachingMode::None {
        if uncached {
            return Err(parameter.refuse(format!("allowed with {sku_name} is None")));
        }
        if max_shares > 1 {
            return Err(parameter.refuse(format!("allowed with maxShares of {max_shares} is None")));
        }
        if size >= sku::CACHING_ENDS_AT {
            warnings.push(format!(
                "parameter {} is {caching}, but a disk of {size} is attached with None, as Azure caches no disk of 4 TiB and more",
                parameter.key
            ));
        }
    }
    Ok(Some(caching))
}

/// A class that asks for a blob disk and gets none has a managed disk whatever `kind` says, as by the Go driver.
fn note_kind(parameters: &Parameters<'_>, warnings: &mut Vec<String>) {
    if let Some(parameter) = parameters.get("kind")
        && !parameter.value.eq_ignore_ascii_case("managed")
    {
        warnings.push(format!(
            "parameter {} is {:?}, but the disk is a managed disk: allowed is Managed",
            parameter.key, parameter.value
        ));
    }
}
