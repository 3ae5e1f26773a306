//! How a disk is attached, and what the node is told.

use std::collections::BTreeMap;

use lazuli_model::{CachingMode, Disk, Lun, parameter::Parameters};

use super::{
    ParameterError,
    perf::{self, PerfProfile},
    sku,
};

/// The publish context's key of the slot.
pub(super) const LUN_KEY: &str = "LUN";

/// The context key, in any letter case, by which a controller says that a disk was made from a snapshot, another disk
/// or an image. Such a disk is never formatted: if it looks blank, something is wrong with it.
pub const SOURCE_KEY: &str = "sourceResourceId";

/// What the context of a volume says about attaching it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PublishParameters {
    /// The caching mode that is asked for; `None` when none is.
    pub caching: Option<CachingMode>,
    /// How many VMs may hold the disk at a time.
    pub max_shares: u32,
    /// What the nodes are told of the disk.
    pub told: Told,
}

/// What the nodes are told of a disk besides its slot. The context of a volume shows its disk as it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// Nothing.
    Nothing,
    /// Its type and performance, which a VolumeAttributesClass changes: the profile `basic` tunes the device for them.
    Performance,
    /// All that counts. No provisioner made the volume: the PersistentVolume was written by hand or translated from an
    /// in-tree one, and its context lacks it.
    All,
}

/// Reads the context of a volume for ControllerPublishVolume. Keys may have any case.
///
/// # Errors
/// When `cachingMode` or `maxShares` has a value that is not allowed.
pub fn publish_parameters(volume_context: &BTreeMap<String, String>) -> Result<PublishParameters, ParameterError> {
    let context = Parameters::context(volume_context);
    let allowed = "allowed is a whole number from 1";
    let max_shares = match context.get("maxshares")? {
        None => 1,
        Some(parameter) => match parameter.number(allowed)? {
            0 => return Err(parameter.refuse(allowed)),
            shares => shares,
        },
    };
    // What is wrong with a profile the node says.
    let is_tuned = perf::profile(context.get("perfprofile")?) == Ok(PerfProfile::Basic);
    let told = match context.get("requestedsizegib")? {
        None => Told::All,
        Some(_) if is_tuned => Told::Performance,
        Some(_) => Told::Nothing,
    };
    Ok(PublishParameters {
        caching: context.get("cachingmode")?.map(|parameter| parameter.name()).transpose()?,
        max_shares,
        told,
    })
}

/// The caching mode to attach a disk with: what is asked for (`ReadOnly` when nothing is), but `None` where Azure
/// caches no disk: Ultra and PremiumV2, shared disks, 4 TiB and more.
pub fn effective_caching<I>(requested: Option<CachingMode>, disk: &Disk<I>) -> CachingMode {
    let uncached =
        disk.sku.is_some_and(sku::has_own_performance) || disk.max_shares > 1 || disk.size >= sku::CACHING_ENDS_AT;
    if uncached { CachingMode::None } else { requested.unwrap_or(CachingMode::ReadOnly) }
}

impl PublishParameters {
    /// The caching mode to attach this disk with.
    pub fn caching(&self, disk: &Disk) -> CachingMode {
        effective_caching(self.caching, disk)
    }

    /// The publish context: the slot, and what is told of the disk.
    pub fn publish_context(&self, lun: Lun, disk: Option<&Disk>) -> BTreeMap<String, String> {
        let slot = (LUN_KEY.to_owned(), lun.to_string());
        let Some(disk) = disk else { return BTreeMap::from([slot]) };
        let performance = [
            ("skuname", disk.sku.map(|sku| sku.to_string())),
            ("diskiopsreadwrite", disk.iops.map(|iops| iops.to_string())),
            ("diskmbpsreadwrite", disk.mbps.map(|mbps| mbps.to_string())),
        ];
        let others = [
            ("networkaccesspolicy", disk.network_access_policy.clone()),
            ("logicalsectorsize", disk.logical_sector_size.map(|size| size.to_string())),
            ("diskencryptionsetid", disk.disk_encryption_set.as_ref().map(ToString::to_string)),
            ("maxshares", (disk.max_shares > 1).then(|| disk.max_shares.to_string())),
        ];
        let performance = performance.into_iter().filter(|_| self.told != Told::Nothing);
        let others = others.into_iter().filter(|_| self.told == Told::All);
        let properties = performance.chain(others);
        [slot].into_iter().chain(properties.filter_map(|(key, value)| Some((key.to_owned(), value?)))).collect()
    }
}
