//! From a VolumeAttributesClass and a disk to the PATCH that the disk needs: ControllerModifyVolume.
//!
//! What the class says is compared with the disk, never with its PersistentVolume, whose context shows the disk as it was
//! made. A change of type that Azure never makes is refused ([`types`]). Azure takes one only of a detached disk, and few
//! changes a day. Whether it takes one now is its to say: nothing here guesses it.
//!
//! A parameter of a StorageClass that no change reaches is taken where the disk has its value, and refused where it has
//! another one. One that only the PersistentVolume knows is ignored, with an event.

mod conversion;
mod hindrance;
mod parameters;
#[cfg(test)]
mod tests;
mod types;

use std::{collections::BTreeMap, fmt::Display};

use lazuli_model::{
    ArmId, Disk, Gib, SkuName,
    disk_details::DiskDetails,
    disk_spec::{EncryptionType, NetworkAccessPolicy, PerformanceTier, PublicNetworkAccess, canonical_region},
    disk_tags::{FOR_CLAIM, FOR_NAMESPACE, FOR_PV, value},
    op::DiskChange,
    parameter::{Parameter, ParameterError, Parameters},
    tags::find,
    template::Templates,
};

use super::{
    create::{
        Cloud, SKU_ALIASES, TIER_KEY,
        attributes::{in_range, own_performance_only, resource, tier},
        refuse_unknown, sku_name,
    },
    parameters as of_storage_class, perf, sku, tags,
};

pub use conversion::{Conversion, ConversionReport, Reported, conversion_reports, is_converting};
pub use hindrance::{hindrance, may_be_hindered};
pub use parameters::ATTRIBUTE_PARAMETERS;

/// What ControllerModifyVolume does.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModifyPlan {
    /// The PATCH; empty where the disk is as asked already.
    pub change: DiskChange,
    /// The conversion that the PATCH begins, if it begins one that goes on after it.
    pub conversion: Option<Conversion>,
    /// What counts only when a volume is made, a sentence each: an event tells it.
    pub ignored: Vec<String>,
    /// What else a human should know of, a sentence each.
    pub warnings: Vec<String>,
}

/// What ControllerModifyVolume writes. The same class gives the same plan, whatever the order and the letter case of its
/// keys.
///
/// # Errors
/// The first value that this disk cannot have: `INVALID_ARGUMENT`, which external-resizer calls infeasible. Nothing has been
/// sent then.
pub fn plan_modify(
    mutable: &BTreeMap<String, String>,
    disk: &Disk,
    details: &DiskDetails,
    cloud: Cloud,
) -> Result<ModifyPlan, ParameterError> {
    let parameters = Parameters::written(mutable)?;
    let mut plan = ModifyPlan::default();
    let templates = templates(&parameters, disk);
    for (folded, parameter) in parameters.iter().filter(|(_, parameter)| !parameter.value.is_empty()) {
        if !parameters::is_attribute(folded) {
            other(folded, parameter, (disk, details), &templates, &mut plan)?;
        }
    }
    let given = SKU_ALIASES.iter().find_map(|key| parameters.get(key));
    let wanted = if given.is_some() { Some(sku_name(&parameters, cloud)?) } else { None };
    if let Some((parameter, wanted)) = given.zip(wanted) {
        types::check(parameter, disk, wanted)?;
    }
    let change = &mut plan.change;
    change.sku = wanted.filter(|wanted| disk.sku != Some(*wanted));
    let after = After { sku: wanted.or(disk.sku), size: disk.size, is_other_type: change.sku.is_some() };
    (change.iops, change.mbps) = performance(&parameters, disk, &after)?;
    change.tier = changed_tier(&parameters, details, &after)?;
    change.bursting_enabled = bursting(&parameters, details, &after)?;
    network(&parameters, disk, details, cloud, &mut plan)?;
    plan.change.tags = changed_tags(&parameters, disk, &templates, &mut plan.warnings)?;
    plan.conversion = Conversion::of(disk, &plan.change);
    Ok(plan)
}

/// The disk after the PATCH.
struct After {
    /// `None` for a type that is newer than this program: Azure judges what is asked of it.
    sku: Option<SkuName>,
    size: Gib,
    /// It gets another type. Azure gives it the performance of that type then, whatever it had.
    is_other_type: bool,
}

impl After {
    fn keeps(&self, is_equal: bool) -> bool {
        is_equal && !self.is_other_type
    }
}

/// As external-resizer's extra metadata sends them, else as the disk's own tags keep them since its creation.
fn templates<'a>(parameters: &Parameters<'a>, disk: &'a Disk) -> Templates<'a> {
    let sent = Templates::of(parameters);
    Templates {
        pv_name: sent.pv_name.or_else(|| value(&disk.tags, FOR_PV)),
        pvc_name: sent.pvc_name.or_else(|| value(&disk.tags, FOR_CLAIM)),
        pvc_namespace: sent.pvc_namespace.or_else(|| value(&disk.tags, FOR_NAMESPACE)),
    }
}

/// A parameter of a StorageClass that no change reaches.
fn other(
    folded: &str,
    parameter: Parameter<'_>,
    (disk, details): (&Disk, &DiskDetails),
    templates: &Templates<'_>,
    plan: &mut ModifyPlan,
) -> Result<(), ParameterError> {
    let has = |is_equal: bool, there: &dyn Display| match is_equal {
        true => Ok(()),
        false => Err(parameter.refuse(format!("the disk has {there}, which does not change; allowed is that"))),
    };
    let text = parameter.value;
    match folded {
        "cachingmode" | "fstype" | "perfprofile" => plan.ignored.push(only_of_volume(parameter)),
        _ if perf::setting_path(parameter.key).is_some() => plan.ignored.push(only_of_volume(parameter)),
        "location" => has(canonical_region(text) == canonical_region(&disk.location), &disk.location)?,
        "resourcegroup" => {
            let there = disk.id.resource_group();
            has(text.eq_ignore_ascii_case(there), &there)?;
        }
        "subscriptionid" => {
            let there = disk.id.subscription();
            has(text.eq_ignore_ascii_case(there), &there)?;
        }
        "diskname" => {
            let there = disk.id.name();
            has(templates.fill(text).eq_ignore_ascii_case(there), &there)?;
        }
        "logicalsectorsize" => {
            let there = disk.logical_sector_size.unwrap_or(512);
            has(text == there.to_string(), &there)?;
        }
        "maxshares" => {
            let there = disk.max_shares.max(1);
            has(text.parse() == Ok(there), &there)?;
        }
        "diskencryptionsetid" => {
            let there = disk.disk_encryption_set.as_ref();
            has(text.parse::<ArmId>().ok().as_ref() == there, &there.map_or("none", ArmId::as_str))?;
        }
        "diskencryptiontype" => {
            let there = details.encryption_type.unwrap_or(EncryptionType::PlatformKey);
            has(parameter.name::<EncryptionType>()? == there, &there)?;
        }
        "writeacceleratorenabled" => {
            has(parameter.is_true() == disk.write_accelerator(), &disk.write_accelerator())?;
        }
        "enableperformanceplus" => has(parameter.boolean()? == details.performance_plus, &details.performance_plus)?,
        "kind" if !text.eq_ignore_ascii_case("managed") => plan.warnings.push(format!(
            "parameter {} is {text:?}, but the disk is a managed disk: allowed is Managed",
            parameter.key
        )),
        _ if of_storage_class::row(folded).is_none() => {
            return Err(no_attribute(parameter));
        }
        _ => refuse_unknown(folded, parameter)?,
    }
    Ok(())
}

/// The refusal of a key that neither a VolumeAttributesClass nor a StorageClass has.
pub(crate) fn no_attribute(parameter: Parameter<'_>) -> ParameterError {
    parameter.refuse(format!("there is no attribute of this name; allowed are {}", parameters::allowed()))
}

fn only_of_volume(parameter: Parameter<'_>) -> String {
    format!("parameter {} is {:?} and is ignored: it counts only when a volume is made", parameter.key, parameter.value)
}

/// Operations and throughput per second, where they differ from the disk's.
fn performance(
    parameters: &Parameters<'_>,
    disk: &Disk,
    after: &After,
) -> Result<(Option<u64>, Option<u64>), ParameterError> {
    const NUMBER: &str = "allowed is a whole number";
    let (iops, mbps) = (parameters.get("diskiopsreadwrite"), parameters.get("diskmbpsreadwrite"));
    if let (Some(parameter), Some(sku)) = (iops.or(mbps), after.sku.filter(|sku| !sku::has_own_performance(*sku))) {
        return Err(own_performance_only(parameter, sku));
    }
    let of = |range: Option<_>, parameter: Parameter<'_>, of: String| match range {
        Some(range) => in_range(parameter, &range, of),
        None => parameter.number(NUMBER),
    };
    let called = after.sku.map_or("this disk", SkuName::as_str);
    let iops_range = after.sku.and_then(|sku| sku::iops_range(sku, after.size));
    let operations =
        iops.map(|parameter| of(iops_range, parameter, format!("{called} of {}", after.size))).transpose()?;
    // What PremiumV2 has when nothing is asked for.
    let effective = operations.or(disk.iops.filter(|_| !after.is_other_type)).unwrap_or(3_000);
    let mbps_range = after.sku.and_then(|sku| sku::mbps_range(sku, effective));
    let with = || format!("{called} of {} with {effective} operations per second", after.size);
    let throughput = mbps.map(|parameter| of(mbps_range, parameter, with())).transpose()?;
    Ok((
        operations.filter(|wanted| !after.keeps(disk.iops == Some(*wanted))),
        throughput.filter(|wanted| !after.keeps(disk.mbps == Some(*wanted))),
    ))
}

fn changed_tier(
    parameters: &Parameters<'_>,
    details: &DiskDetails,
    after: &After,
) -> Result<Option<PerformanceTier>, ParameterError> {
    let wanted = match after.sku {
        Some(sku) => tier(parameters, sku, after.size)?,
        None => parameters.get(TIER_KEY).map(|parameter| parameter.name()).transpose()?,
    };
    let there = details.tier.unwrap_or_else(|| PerformanceTier::of(after.size));
    Ok(wanted.filter(|wanted| !after.keeps(there == *wanted)))
}

/// Unlike a StorageClass, a VolumeAttributesClass switches bursting off too.
fn bursting(parameters: &Parameters<'_>, details: &DiskDetails, after: &After) -> Result<Option<bool>, ParameterError> {
    let Some(parameter) = parameters.get("enablebursting") else { return Ok(None) };
    let wanted = parameter.is_true();
    if !wanted && !parameter.value.eq_ignore_ascii_case("false") {
        return Err(parameter.refuse("allowed are true and false"));
    }
    match after.sku {
        Some(sku) if wanted && (!sku::is_premium(sku) || after.size <= sku::BURSTING_ABOVE) => {
            Err(parameter.refuse(format!(
                "allowed with Premium_LRS and Premium_ZRS disks of more than {}, and this disk is {sku} of {}",
                sku::BURSTING_ABOVE,
                after.size
            )))
        }
        _ => Ok(Some(wanted).filter(|wanted| details.bursting_enabled != *wanted)),
    }
}

fn network(
    parameters: &Parameters<'_>,
    disk: &Disk,
    details: &DiskDetails,
    cloud: Cloud,
    plan: &mut ModifyPlan,
) -> Result<(), ParameterError> {
    let given = ["networkaccesspolicy", "publicnetworkaccess", "diskaccessid"].map(|key| parameters.get(key));
    let [policy_parameter, public_parameter, access_parameter] = given;
    let policy: Option<NetworkAccessPolicy> = policy_parameter.map(|p| p.name()).transpose()?;
    let public: Option<PublicNetworkAccess> = public_parameter.map(|p| p.name()).transpose()?;
    let access = access_parameter.map(|p| resource(p, "Microsoft.Compute/diskAccesses")).transpose()?;
    if cloud == Cloud::AzureStack {
        for parameter in given.into_iter().flatten() {
            plan.warnings.push(format!(
                "parameter {} is {:?}, which Azure Stack does not know; it is left out",
                parameter.key, parameter.value
            ));
        }
        return Ok(());
    }
    let there = disk.network_access_policy.as_deref().and_then(NetworkAccessPolicy::from_azure);
    let after = policy.or(there);
    let is_private = after == Some(NetworkAccessPolicy::AllowPrivate);
    if let (Some(parameter), false) = (access_parameter, is_private) {
        let policy = after.map_or("unknown", NetworkAccessPolicy::as_str);
        return Err(parameter.refuse(format!(
            "allowed only together with networkAccessPolicy AllowPrivate, and the policy is {policy}"
        )));
    }
    let door = if is_private { access.or_else(|| details.disk_access.clone()) } else { None };
    if let (Some(parameter), true, None) = (policy_parameter, is_private, &door) {
        return Err(
            parameter.refuse("allowed only together with diskAccessID, which neither the class nor the disk has")
        );
    }
    let is_asked = policy.is_some() || access_parameter.is_some();
    if is_asked && (after != there || is_private && door != details.disk_access) {
        (plan.change.network_access_policy, plan.change.disk_access) = (after, door);
    }
    plan.change.public_network_access = public.filter(|wanted| details.public_network_access != Some(*wanted));
    Ok(())
}

/// All tags of the disk, with those of the class among them; `None` where it has them. A tag keeps the spelling of its name.
fn changed_tags(
    parameters: &Parameters<'_>,
    disk: &Disk,
    templates: &Templates<'_>,
    warnings: &mut Vec<String>,
) -> Result<Option<BTreeMap<String, String>>, ParameterError> {
    let mut wanted = BTreeMap::new();
    tags::add_written(&mut wanted, parameters, Some((templates, tags::OF_RESIZER)), &tags::RESERVED, warnings)?;
    let mut after = disk.tags.clone();
    for (name, value) in wanted {
        let spelled = find(&disk.tags, &name).map_or(name, |(spelled, _)| spelled.clone());
        after.insert(spelled, value);
    }
    if after == disk.tags {
        return Ok(None);
    }
    tags::check_number(parameters, &after)?;
    Ok(Some(after))
}
