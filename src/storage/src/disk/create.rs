//! From a CreateVolume request to the disk it asks for.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Display,
    ops::RangeInclusive,
};

use lazuli_model::{
    ArmId, CachingMode, Disk, Gib, SkuName,
    disk_spec::{
        CreateOption, DiskSpec, EncryptionType, ExtendedLocation, Mismatch, NamedBy, NetworkAccessPolicy, Origin,
        PublicNetworkAccess,
    },
    parameter::{Parameter, Parameters},
    template::Templates,
};

use super::{
    AllowedResourceGroups, Capability, ParameterError, name, parameters, perf, sku,
    stage::FsType,
    tags, validate_capabilities,
    zone::{self, Segments},
};

/// The volume context's key of the size; without it a volume counts as static.
const SIZE_KEY: &str = "requestedsizegib";

const SKU_ALIASES: [&str; 2] = ["skuname", "storageaccounttype"];

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

/// A CreateVolume request, as far as an empty disk is concerned.
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
        let accessible_topology = if disk.zones == self.spec.zones {
            self.accessible_topology.clone()
        } else {
            zone::accessible(&disk.location, &disk.zones)
        };
        let mut volume_context = self.volume_context.clone();
        set(&mut volume_context, SIZE_KEY, &disk.size.get().to_string());
        Ok(Adopted { size: disk.size, volume_context, accessible_topology })
    }
}

/// Which disk the request asks for. The same request gives the same plan, whatever the order and the case of its
/// parameters' keys.
///
/// # Errors
/// The first value that cannot be used. Nothing has been sent then, and the code is final.
pub fn plan_create(request: &Request, defaults: &Defaults) -> Result<CreatePlan, ParameterError> {
    if request.name.is_empty() {
        return Err(ParameterError::invalid("name", "", "the request needs a name"));
    }
    let parameters = Parameters::written(&request.parameters)?
        .overridden_by(Parameters::written(&request.mutable_parameters)?, &SKU_ALIASES);
    for (folded, parameter) in parameters.iter() {
        refuse_unknown(folded, parameter)?;
    }
    let mut warnings = Vec::new();
    let on_stack = defaults.cloud == Cloud::AzureStack;

    let sku_name = sku_name(&parameters, defaults.cloud)?;
    let performance_plus = performance_plus(&parameters, sku_name)?;
    let size = size(request, sku_name, performance_plus, &mut warnings)?;
    let max_shares = max_shares(&parameters, sku_name, size, defaults.cloud)?;
    validate_capabilities(&request.capabilities, max_shares)?;
    let caching = caching(&parameters, sku_name, size, max_shares, &mut warnings)?;
    if let Some(parameter) = parameters.get("fstype") {
        FsType::of(parameter)?;
    }
    let (settings, refused) = perf::device_settings(parameters.iter().map(|(_, parameter)| parameter));
    if let Some(error) = refused.into_iter().next() {
        return Err(error);
    }
    perf::check_profile(parameters.get("perfprofile"), &settings)?;
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
    let logical_sector_size = logical_sector_size(&parameters, sku_name)?;
    let bursting_enabled = bursting(&parameters, sku_name, size, &mut warnings)?;
    let write_accelerator = write_accelerator(&parameters, sku_name)?;
    let (disk_encryption_set, encryption_type) = encryption(&parameters)?;
    let network = network(&parameters, on_stack, &mut warnings)?;

    let templates = Templates::of(&parameters);
    let tags = tags::disk_tags(&parameters, &templates, &request.name, write_accelerator, &mut warnings)?;
    let origin = Origin {
        request: tags::request_value(&request.name),
        persistent_volume: templates.pv_name.unwrap_or(&request.name).to_owned(),
        named_by: if parameters.get("diskname").is_some() { NamedBy::Class } else { NamedBy::Request },
    };
    let disk = disk_id(request, &parameters, &templates, defaults, &mut warnings)?;
    let place = place(request, &parameters, sku_name, defaults)?;

    let mut volume_context: BTreeMap<String, String> =
        parameters.iter().map(|(_, parameter)| (parameter.key.to_owned(), parameter.value.to_owned())).collect();
    if parameters.iter().any(|(folded, _)| folded == "kind") {
        set(&mut volume_context, "kind", "Managed");
    }
    if caching == Some(CachingMode::None) && sku_name == SkuName::PremiumV2Lrs {
        set(&mut volume_context, "cachingmode", CachingMode::None.as_str());
    }
    set(&mut volume_context, SIZE_KEY, &size.get().to_string());

    Ok(CreatePlan {
        disk,
        spec: DiskSpec {
            location: place.location,
            // As in the Go driver, whatever zone the class names.
            extended_location: defaults.extended_location.clone(),
            zones: place.zones,
            sku: sku_name,
            tags,
            create_option: CreateOption::Empty,
            logical_sector_size,
            performance_plus: performance_plus.then_some(true),
            size,
            iops,
            mbps,
            max_shares,
            disk_encryption_set,
            encryption_type,
            network_access_policy: network.policy,
            disk_access: network.disk_access,
            public_network_access: network.public,
            bursting_enabled,
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

/// Sets a key that the driver owns, in the spelling that is there.
fn set(context: &mut BTreeMap<String, String>, key: &str, value: &str) {
    let spelled = context.keys().find(|k| k.eq_ignore_ascii_case(key)).cloned().unwrap_or_else(|| key.to_owned());
    context.insert(spelled, value.to_owned());
}

fn refuse_unknown(folded: &str, parameter: Parameter<'_>) -> Result<(), ParameterError> {
    match folded {
        "storageaccount" => Err(parameter.refuse(
            "it asks for a disk in a page blob, and this version makes managed disks only; allowed is to leave it out",
        )),
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
fn sku_name(parameters: &Parameters<'_>, cloud: Cloud) -> Result<SkuName, ParameterError> {
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

/// The size of the disk: what is required, rounded up, and not below what the kind of disk needs.
fn size(
    request: &Request,
    sku_name: SkuName,
    performance_plus: bool,
    warnings: &mut Vec<String>,
) -> Result<Gib, ParameterError> {
    let (required, limit) = (request.required_bytes, request.limit_bytes);
    for (parameter, value) in [("required_bytes", required), ("limit_bytes", limit)] {
        if value < 0 {
            return Err(ParameterError::invalid(parameter, value, "allowed is no negative number of bytes"));
        }
    }
    let sizes = sku::size_range(sku_name);
    let too_large = || {
        ParameterError::out_of_range(
            "required_bytes",
            required,
            format!("the largest {sku_name} disk has {}", sizes.end()),
        )
    };
    let asked = Gib::holding(required.unsigned_abs()).ok_or_else(too_large)?.max(Gib::new(1));
    let mut size = asked.max(*sizes.start());
    if performance_plus {
        size = size.max(sku::PERFORMANCE_PLUS_MINIMUM);
    }
    if size > *sizes.end() {
        return Err(too_large());
    }
    if limit > 0 && size.bytes() > limit.unsigned_abs() {
        return Err(ParameterError::out_of_range(
            "limit_bytes",
            limit,
            format!(
                "the smallest {sku_name} disk for the {required} bytes required has {size} ({} bytes)",
                size.bytes()
            ),
        ));
    }
    if size > asked && required > 0 {
        let reason = if performance_plus { "a disk with enablePerformancePlus" } else { sku_name.as_str() };
        warnings.push(format!("the disk is made with {size} instead of {asked}, the least for {reason}"));
    }
    Ok(size)
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

/// Blob disks are not there yet; the Go driver makes a managed disk whatever `kind` says, and so does this.
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

fn in_range(parameter: Parameter<'_>, range: &RangeInclusive<u64>, of: impl Display) -> Result<u64, ParameterError> {
    let allowed = format!("allowed for {of} is a whole number from {} to {}", range.start(), range.end());
    let number: u64 = parameter.number(&allowed)?;
    if range.contains(&number) { Ok(number) } else { Err(parameter.refuse(allowed)) }
}

/// A parameter that only disks with performance of their own have.
fn own_performance_only(parameter: Parameter<'_>, sku_name: SkuName) -> ParameterError {
    parameter.refuse(format!("allowed only with UltraSSD_LRS and PremiumV2_LRS, and this disk is {sku_name}"))
}

/// Operations and throughput per second.
fn performance(
    parameters: &Parameters<'_>,
    sku_name: SkuName,
    size: Gib,
) -> Result<(Option<u64>, Option<u64>), ParameterError> {
    let (iops, mbps) = (parameters.get("diskiopsreadwrite"), parameters.get("diskmbpsreadwrite"));
    let Some(iops_range) = sku::iops_range(sku_name, size) else {
        return match iops.or(mbps) {
            Some(parameter) => Err(own_performance_only(parameter, sku_name)),
            None => Ok((None, None)),
        };
    };
    let operations = match iops {
        Some(parameter) => Some(in_range(parameter, &iops_range, format!("{sku_name} of {size}"))?),
        None => sku::default_iops(sku_name, size, mbps.is_some()),
    };
    // What PremiumV2 has when nothing is asked for.
    let effective = operations.unwrap_or(3_000);
    let throughput = match (mbps, sku::mbps_range(sku_name, effective)) {
        (Some(parameter), Some(range)) => {
            Some(in_range(parameter, &range, format!("{sku_name} of {size} with {effective} operations per second"))?)
        }
        _ => sku::default_mbps(sku_name, effective, iops.is_some()),
    };
    Ok((operations, throughput))
}

fn logical_sector_size(parameters: &Parameters<'_>, sku_name: SkuName) -> Result<Option<u32>, ParameterError> {
    let Some(parameter) = parameters.get("logicalsectorsize") else { return Ok(None) };
    if !sku::has_own_performance(sku_name) {
        return Err(own_performance_only(parameter, sku_name));
    }
    match parameter.value {
        "512" => Ok(Some(512)),
        "4096" => Ok(Some(4096)),
        _ => Err(parameter.refuse("allowed are 512, 4096")),
    }
}

fn bursting(
    parameters: &Parameters<'_>,
    sku_name: SkuName,
    size: Gib,
    warnings: &mut Vec<String>,
) -> Result<Option<bool>, ParameterError> {
    let Some(parameter) = parameters.get("enablebursting") else { return Ok(None) };
    if !parameter.is_true() {
        if !parameter.value.eq_ignore_ascii_case("false") {
            warnings.push(format!(
                "parameter {} is {:?} and counts as false: allowed are true and false",
                parameter.key, parameter.value
            ));
        }
        return Ok(None);
    }
    if !sku::is_premium(sku_name) || size <= sku::BURSTING_ABOVE {
        return Err(parameter.refuse(format!(
            "allowed with Premium_LRS and Premium_ZRS disks of more than {}, and this disk is {sku_name} of {size}",
            sku::BURSTING_ABOVE
        )));
    }
    Ok(Some(true))
}

fn write_accelerator(parameters: &Parameters<'_>, sku_name: SkuName) -> Result<bool, ParameterError> {
    match parameters.get("writeacceleratorenabled").filter(Parameter::is_true) {
        Some(parameter) if !sku::is_premium(sku_name) => {
            Err(parameter.refuse(format!("allowed with Premium_LRS and Premium_ZRS, and this disk is {sku_name}")))
        }
        found => Ok(found.is_some()),
    }
}

fn resource(parameter: Parameter<'_>, resource_type: &str) -> Result<ArmId, ParameterError> {
    parameter.value.parse::<ArmId>().ok().filter(|id| id.is_type(resource_type)).ok_or_else(|| {
        parameter.refuse(format!(
            "allowed is /subscriptions/{{subscription}}/resourceGroups/{{group}}/providers/{resource_type}/{{name}}"
        ))
    })
}

fn encryption(parameters: &Parameters<'_>) -> Result<(Option<ArmId>, Option<EncryptionType>), ParameterError> {
    let encryption_type = parameters
        .get("diskencryptiontype")
        .map(|parameter| parameter.name::<EncryptionType>().map(|value| (parameter, value)))
        .transpose()?;
    match (parameters.get("diskencryptionsetid"), encryption_type) {
        (Some(set), given) => {
            let set = resource(set, "Microsoft.Compute/diskEncryptionSets")?;
            Ok((Some(set), Some(given.map_or(EncryptionType::CustomerKey, |(_, value)| value))))
        }
        (None, Some((parameter, _))) => {
            Err(parameter.refuse("allowed only together with diskEncryptionSetID, which is not given"))
        }
        (None, None) => Ok((None, None)),
    }
}

struct Network {
    policy: Option<NetworkAccessPolicy>,
    public: Option<PublicNetworkAccess>,
    disk_access: Option<ArmId>,
}

fn network(parameters: &Parameters<'_>, on_stack: bool, warnings: &mut Vec<String>) -> Result<Network, ParameterError> {
    let policy_parameter = parameters.get("networkaccesspolicy");
    let public_parameter = parameters.get("publicnetworkaccess");
    let access_parameter = parameters.get("diskaccessid");
    let policy = policy_parameter.map(|p| p.name()).transpose()?.unwrap_or(NetworkAccessPolicy::DenyAll);
    let public = public_parameter.map(|p| p.name()).transpose()?.unwrap_or(PublicNetworkAccess::Disabled);
    let disk_access = access_parameter.map(|p| resource(p, "Microsoft.Compute/diskAccesses")).transpose()?;
    if on_stack {
        for parameter in [policy_parameter, public_parameter, access_parameter].into_iter().flatten() {
            warnings.push(format!(
                "parameter {} is {:?}, which Azure Stack does not know; it is left out",
                parameter.key, parameter.value
            ));
        }
        return Ok(Network { policy: None, public: None, disk_access: None });
    }
    match (policy, policy_parameter, access_parameter) {
        (NetworkAccessPolicy::AllowPrivate, Some(parameter), None) => {
            Err(parameter.refuse("allowed only together with diskAccessID, which is not given"))
        }
        (NetworkAccessPolicy::AllowAll | NetworkAccessPolicy::DenyAll, _, Some(parameter)) => Err(parameter.refuse(
            format!("allowed only together with networkAccessPolicy AllowPrivate, and the policy is {policy}"),
        )),
        _ => Ok(Network { policy: Some(policy), public: Some(public), disk_access }),
    }
}

fn disk_id(
    request: &Request,
    parameters: &Parameters<'_>,
    templates: &Templates<'_>,
    defaults: &Defaults,
    warnings: &mut Vec<String>,
) -> Result<ArmId, ParameterError> {
    let subscription = parameters.get("subscriptionid");
    let group = parameters.get("resourcegroup");
    if let (Some(parameter), None) = (subscription, group)
        && !parameter.value.eq_ignore_ascii_case(&defaults.subscription)
    {
        return Err(parameter.refuse(format!(
            "another subscription than the cluster's ({}) is allowed only together with resourceGroup, which is not given",
            defaults.subscription
        )));
    }
    let disk_name = parameters.get("diskname");
    let name = name::disk_name(&request.name, disk_name, templates)?;
    if let Some(parameter) = disk_name
        && templates.fill(parameter.value) == parameter.value
    {
        warnings.push(format!(
            "parameter {} is {:?} for every volume of its class; ${{pvc.metadata.name}} would give each its own disk",
            parameter.key, parameter.value
        ));
    }
    let build = |subscription: &str, group: &str| ArmId::disk(subscription, group, &name);
    let subscription_id = subscription.map_or(defaults.subscription.as_str(), |parameter| parameter.value);
    let group_name = group.map_or(defaults.resource_group.as_str(), |parameter| parameter.value);
    // Which of the two is wrong is found by trying each beside a sound one.
    if build("s", group_name).is_err() {
        let rule = "allowed is the name of a resource group: letters, digits, '_', '.', '-', '(' and ')'";
        return Err(group.map_or_else(
            || ParameterError::invalid("resourceGroup", group_name, rule),
            |parameter| parameter.refuse(rule),
        ));
    }
    let disk = build(subscription_id, group_name).map_err(|_| {
        let rule = "allowed is the id of a subscription";
        subscription.map_or_else(
            || ParameterError::invalid("subscriptionID", subscription_id, rule),
            |parameter| parameter.refuse(rule),
        )
    })?;
    // Without either parameter it is the cluster's own group, which is always allowed.
    if let Some(parameter) = group.or(subscription)
        && let Err(allowed) = defaults
            .allowed_resource_groups
            .check((subscription_id, group_name), (&defaults.subscription, &defaults.resource_group))
    {
        return Err(parameter.refuse(allowed));
    }
    Ok(disk)
}

struct Place {
    location: String,
    zones: Vec<String>,
    zones_accepted: BTreeSet<String>,
    accessible_topology: Vec<Segments>,
}

/// Region and zone: of the preferred topologies, then of the requisite ones, the first zone of the wanted region.
/// Without the parameter `location` any region's zone will do, and the disk is made in that region.
fn place(
    request: &Request,
    parameters: &Parameters<'_>,
    sku_name: SkuName,
    defaults: &Defaults,
) -> Result<Place, ParameterError> {
    let wanted = parameters.get("location").map(|parameter| parameter.value);
    let requisite = zone::zones_of(&request.requisite, wanted);
    let picked = zone::zones_of(&request.preferred, wanted).into_iter().next().or_else(|| requisite.first().cloned());
    let location = match (wanted, &picked) {
        (Some(wanted), _) => wanted.to_owned(),
        (None, Some(zone)) if zone.region != lazuli_model::disk_spec::canonical_region(&defaults.location) => {
            zone.region.clone()
        }
        (None, _) => defaults.location.clone(),
    };
    if location.is_empty() {
        return Err(ParameterError::invalid("location", "", "allowed is the name of a region, and none is configured"));
    }
    if sku::is_zone_redundant(sku_name) {
        let accessible_topology = zone::accessible_everywhere(&location);
        return Ok(Place { location, zones: Vec::new(), zones_accepted: BTreeSet::new(), accessible_topology });
    }
    let zones: Vec<String> = picked.iter().map(|zone| zone.number.clone()).collect();
    let region = picked.as_ref().map(|zone| zone.region.as_str());
    let zones_accepted =
        requisite.iter().filter(|zone| Some(zone.region.as_str()) == region).map(|zone| zone.number.clone()).collect();
    let accessible_topology = zone::accessible(&location, &zones);
    Ok(Place { location, zones, zones_accepted, accessible_topology })
}
