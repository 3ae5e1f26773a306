//! What a class says of a disk's performance, protection and access.

use std::{fmt::Display, ops::RangeInclusive};

use lazuli_model::{
    ArmId, Gib, SkuName,
    disk_spec::{EncryptionType, NetworkAccessPolicy, PerformanceTier, PublicNetworkAccess},
    parameter::{Parameter, ParameterError, Parameters},
};

use super::TIER_KEY;
use crate::sku;

pub(crate) fn in_range(
    parameter: Parameter<'_>,
    range: &RangeInclusive<u64>,
    of: impl Display,
) -> Result<u64, ParameterError> {
    let allowed = format!("allowed for {of} is a whole number from {} to {}", range.start(), range.end());
    let number: u64 = parameter.number(&allowed)?;
    if range.contains(&number) { Ok(number) } else { Err(parameter.refuse(allowed)) }
}

/// A parameter that only disks with performance of their own have.
pub(crate) fn own_performance_only(parameter: Parameter<'_>, sku_name: SkuName) -> ParameterError {
    parameter.refuse(format!("allowed only with UltraSSD_LRS and PremiumV2_LRS, and this disk is {sku_name}"))
}

/// Operations and throughput per second.
pub(crate) fn performance(
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

/// The logical sector size; `of_source` is that of the content that is copied. It stays what it is, and a type of disk with
/// sectors of 512 bytes alone takes no other content (source: disks-incremental-snapshots).
pub(crate) fn logical_sector_size(
    parameters: &Parameters<'_>,
    sku_name: SkuName,
    of_source: Option<u32>,
) -> Result<Option<u32>, ParameterError> {
    let own = sku::has_own_performance(sku_name);
    if let (false, Some(bytes @ 4096)) = (own, of_source) {
        return Err(ParameterError::invalid(
            "skuName",
            sku_name,
            format!("the source has sectors of {bytes} bytes; allowed are UltraSSD_LRS and PremiumV2_LRS"),
        ));
    }
    let Some(parameter) = parameters.get("logicalsectorsize") else { return Ok(None) };
    if !own {
        return Err(own_performance_only(parameter, sku_name));
    }
    let bytes = match parameter.value {
        "512" => 512,
        "4096" => 4096,
        _ => return Err(parameter.refuse("allowed are 512, 4096")),
    };
    match of_source {
        Some(there) if there != bytes => {
            Err(parameter.refuse(format!("the source has sectors of {there} bytes; allowed is {there}")))
        }
        _ => Ok(Some(bytes)),
    }
}

/// The performance tier that a VolumeAttributesClass names.
pub(crate) fn tier(
    parameters: &Parameters<'_>,
    sku_name: SkuName,
    size: Gib,
) -> Result<Option<PerformanceTier>, ParameterError> {
    let Some(parameter) = parameters.get(TIER_KEY) else { return Ok(None) };
    let tier: PerformanceTier = parameter.name()?;
    if !sku::is_premium(sku_name) {
        return Err(parameter.refuse(format!("allowed with Premium_LRS and Premium_ZRS, and this disk is {sku_name}")));
    }
    let allowed = PerformanceTier::allowed_for(size);
    if allowed.contains(&tier) {
        return Ok(Some(tier));
    }
    let allowed: Vec<&str> = allowed.into_iter().map(PerformanceTier::as_str).collect();
    Err(parameter.refuse(format!("allowed for {sku_name} of {size} are {}", allowed.join(", "))))
}

pub(crate) fn bursting(
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

pub(crate) fn write_accelerator(parameters: &Parameters<'_>, sku_name: SkuName) -> Result<bool, ParameterError> {
    match parameters.get("writeacceleratorenabled").filter(Parameter::is_true) {
        Some(parameter) if !sku::is_premium(sku_name) => {
            Err(parameter.refuse(format!("allowed with Premium_LRS and Premium_ZRS, and this disk is {sku_name}")))
        }
        found => Ok(found.is_some()),
    }
}

pub(crate) fn resource(parameter: Parameter<'_>, resource_type: &str) -> Result<ArmId, ParameterError> {
    parameter.value.parse::<ArmId>().ok().filter(|id| id.is_type(resource_type)).ok_or_else(|| {
        parameter.refuse(format!(
            "allowed is /subscriptions/{{subscription}}/resourceGroups/{{group}}/providers/{resource_type}/{{name}}"
        ))
    })
}

pub(crate) fn encryption(
    parameters: &Parameters<'_>,
) -> Result<(Option<ArmId>, Option<EncryptionType>), ParameterError> {
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

/// Who may export the disk.
pub(crate) struct Network {
    pub(crate) policy: Option<NetworkAccessPolicy>,
    pub(crate) public: Option<PublicNetworkAccess>,
    pub(crate) disk_access: Option<ArmId>,
}

pub(crate) fn network(
    parameters: &Parameters<'_>,
    on_stack: bool,
    warnings: &mut Vec<String>,
) -> Result<Network, ParameterError> {
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
