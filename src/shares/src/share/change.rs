//! How a share that exists is changed: its size by ControllerExpandVolume, its performance by ControllerModifyVolume.

use std::collections::BTreeMap;

use lazuli_model::{
    FileShare, Gib, StorageSku,
    op::ShareChange,
    parameter::{ParameterError, Parameters},
};

use super::{LIMIT, SIZE, size_of};
use crate::{limits::DEFAULT_SKU, parameters};

/// What ControllerExpandVolume does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expand {
    /// The share is large enough: answer its size.
    Enough(Gib),
    /// Write this, and answer the size.
    Grow(ShareChange, Gib),
}

/// How a share grows. It never shrinks. `sku` is the account's, where it is known.
///
/// # Errors
/// `OUT_OF_RANGE` for a size that no share of the SKU has, and where the share is larger than the caller takes.
pub fn plan_expand(
    share: &FileShare,
    sku: Option<StorageSku>,
    required_bytes: i64,
    limit_bytes: i64,
) -> Result<Expand, ParameterError> {
    let most = u64::try_from(limit_bytes).ok().filter(|most| *most > 0);
    let asked = u64::try_from(required_bytes).ok().filter(|bytes| *bytes > 0);
    let asked = asked
        .ok_or_else(|| ParameterError::invalid(SIZE, required_bytes, "allowed is a number of bytes above 0"))
        .and_then(|bytes| {
            Gib::holding(bytes).ok_or_else(|| ParameterError::out_of_range(SIZE, bytes, "no share is as large as this"))
        })?;
    if share.quota >= asked {
        return match most {
            Some(most) if share.quota.bytes() > most => Err(ParameterError::out_of_range(
                LIMIT,
                most,
                format!("the share has {} bytes ({}), and a share does not shrink", share.quota.bytes(), share.quota),
            )),
            _ => Ok(Expand::Enough(share.quota)),
        };
    }
    let size = size_of(asked, sku.unwrap_or(DEFAULT_SKU), most)?;
    Ok(Expand::Grow(ShareChange { quota: Some(size), ..ShareChange::default() }, size))
}

/// Refuses what a VolumeAttributesClass cannot change, and what no share can have. Nothing has to be read for it.
///
/// # Errors
/// The first such parameter.
pub fn check_modification(mutable: &BTreeMap<String, String>) -> Result<(), ParameterError> {
    let mutable = Parameters::written(mutable)?;
    parameters::check_mutable(&mutable)?;
    let mut given = mutable.iter().filter(|(_, parameter)| !parameter.value.is_empty());
    given.try_for_each(|(_, parameter)| parameters::provisioned(parameter, None).map(drop))
}

/// What ControllerModifyVolume writes; nothing where the share is as asked already.
///
/// # Errors
/// For a parameter that a VolumeAttributesClass cannot change, and a value that the SKU does not have.
pub fn plan_modify(
    share: &FileShare,
    sku: Option<StorageSku>,
    mutable: &BTreeMap<String, String>,
) -> Result<ShareChange, ParameterError> {
    let mutable = Parameters::written(mutable)?;
    parameters::check_mutable(&mutable)?;
    let wanted = |folded: &str, there: Option<u32>| {
        let number = mutable.get(folded).map(|parameter| parameters::provisioned(parameter, sku)).transpose()?;
        Ok::<_, ParameterError>(number.filter(|number| there != Some(*number)))
    };
    Ok(ShareChange {
        quota: None,
        provisioned_iops: wanted("provisionediops", share.provisioned_iops)?,
        provisioned_bandwidth: wanted("provisionedbandwidth", share.provisioned_bandwidth)?,
    })
}
