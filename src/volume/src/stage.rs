//! What a node needs to know to stage a disk.

use std::{collections::BTreeMap, fmt};

use lazuli_model::{
    Gib, Lun, SkuName,
    parameter::{Context, Parameter, Parameters},
};

use super::{
    AccessType, Capability, ParameterError,
    perf::{self, DeviceSetting, PerfProfile},
    publish::LUN_KEY,
};

const FS_TYPES: &str = "allowed are ext4, ext3, ext2, xfs, btrfs";

/// What only Windows node plugins stage: the controller attaches such a volume and leaves the rest to them.
const NTFS: &str = "ntfs";

/// A filesystem that a Linux node makes, mounts and grows: one list for the controller and the node, so that no disk is
/// made that can never be staged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum FsType {
    /// The default.
    #[default]
    Ext4,
    /// ext3
    Ext3,
    /// ext2
    Ext2,
    /// XFS
    Xfs,
    /// Btrfs
    Btrfs,
}

impl FsType {
    /// Every filesystem.
    pub const ALL: [Self; 5] = [Self::Ext4, Self::Ext3, Self::Ext2, Self::Xfs, Self::Btrfs];

    /// The filesystem of a name that the kernel, `blkid` or a volume uses.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|fs_type| fs_type.as_str() == name)
    }

    /// The name that `mount`, `mkfs` and `blkid` use.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Ext3 => "ext3",
            Self::Ext2 => "ext2",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
        }
    }

    /// The filesystem to mount where this one is asked for and one of this name is on the disk; `None` when that is
    /// another one.
    ///
    /// ext4, which is also what a volume without `fsType` asks for, takes the ext2 and ext3 of older volumes, as the
    /// kernel's ext4 does. ext2 and ext3 by name take nothing else.
    pub fn existing(self, found: &str) -> Option<Self> {
        let found = Self::parse(found)?;
        let takes = self == found || (self == Self::Ext4 && matches!(found, Self::Ext3 | Self::Ext2));
        takes.then_some(found)
    }

    /// In any case of letters, as in the Go driver. What this driver's nodes cannot serve is refused here, before a disk
    /// is made: `ntfs` among them, for Windows nodes are not served.
    pub(super) fn of(parameter: Parameter<'_>) -> Result<Self, ParameterError> {
        let is_it = |fs_type: &Self| fs_type.as_str().eq_ignore_ascii_case(parameter.value);
        Self::ALL.into_iter().find(is_it).ok_or_else(|| parameter.refuse(FS_TYPES))
    }

    /// The filesystem of a capability; `None` when it names none.
    pub(super) fn from_capability(fs_type: &str) -> Result<Option<Self>, ParameterError> {
        match fs_type {
            "" => Ok(None),
            value => Self::of(Parameter { key: "fsType", value }).map(Some),
        }
    }
}

/// Whether a disk with this filesystem may be attached: one that a node of ours stages, or one of Windows.
pub(super) fn may_be_attached(fs_type: &str) -> Result<(), ParameterError> {
    if fs_type.eq_ignore_ascii_case(NTFS) {
        return Ok(());
    }
    FsType::from_capability(fs_type).map(drop)
}

impl fmt::Display for FsType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What NodeStageVolume does with a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StageParameters {
    /// The slot the disk is attached to.
    pub lun: Lun,
    /// The filesystem to mount; `None` for a raw block volume.
    pub fs_type: Option<FsType>,
    /// The mount flags, in the order of the capability.
    pub mount_flags: Vec<String>,
    /// The partition to use instead of the whole disk (Linux: appends `-part<n>` to the device's link).
    pub partition: Option<u32>,
    /// The size the volume was provisioned with; `None` for static volumes.
    pub requested_size: Option<Gib>,
    /// Whether the filesystem must grow to the device: the volume was cloned into a larger one.
    pub resize_required: bool,
    /// The tuning of the device.
    pub perf_profile: PerfProfile,
    /// The settings of the profile `advanced`, by path.
    pub device_settings: Vec<DeviceSetting>,
    /// What a human should know of, a sentence each: a setting that is left out.
    pub warnings: Vec<String>,
    /// The disk's type, for the profile `basic`, where it is known.
    pub sku: Option<SkuName>,
    /// The disk's operations per second, for the profile `basic`, where they are known.
    pub iops: Option<u64>,
    /// The disk's throughput in MB per second, for the profile `basic`, where it is known.
    pub mbps: Option<u64>,
}

/// Reads the contexts of a volume for NodeStageVolume. Keys may have any case. What the disk is now stands in the publish
/// context, where the controller told it; else the volume context says what it was made as.
///
/// # Errors
/// When the slot is missing, or a value is not allowed.
pub fn stage_parameters(
    volume_context: &BTreeMap<String, String>,
    capability: &Capability,
    publish_context: &BTreeMap<String, String>,
) -> Result<StageParameters, ParameterError> {
    let (volume, publish) = (Parameters::context(volume_context), Parameters::context(publish_context));
    let (fs_type, mount_flags) = match &capability.access_type {
        None => {
            return Err(ParameterError::invalid("volumeCapability", "", "it needs exactly one of block and mount"));
        }
        Some(AccessType::Block) => (None, Vec::new()),
        Some(AccessType::Mount { fs_type, flags }) => {
            let fs_type = match volume.get("fstype")? {
                Some(parameter) => FsType::of(parameter)?,
                None => FsType::from_capability(fs_type)?.unwrap_or_default(),
            };
            (Some(fs_type), flags.clone())
        }
    };
    // No new volume has a setting that is refused. A PersistentVolume cannot be changed, and its data count more.
    let (device_settings, refused) = perf::device_settings(volume.iter());
    let warnings = refused.iter().map(|error| format!("the setting is left out: {error}")).collect();
    let parameter = volume.get("perfprofile")?;
    let perf_profile = match refused.is_empty() {
        true => perf::check_profile(parameter, &device_settings)?,
        false => perf::profile(parameter)?,
    };
    Ok(StageParameters {
        lun: lun(&publish)?,
        fs_type,
        mount_flags,
        partition: positive(volume.get("partition")?, "allowed is the number of a partition, from 1")?,
        requested_size: positive(volume.get("requestedsizegib")?, "allowed is a whole number of GiB, from 1")?
            .map(Gib::new),
        resize_required: volume.get("resizerequired")?.is_some_and(|parameter| parameter.is_true()),
        perf_profile,
        device_settings,
        warnings,
        sku: known("skuname", &volume, &publish)?
            .or(known("storageaccounttype", &volume, &publish)?)
            .and_then(|parameter| SkuName::from_azure(parameter.value)),
        iops: known("diskiopsreadwrite", &volume, &publish)?.and_then(|parameter| parameter.value.parse().ok()),
        mbps: known("diskmbpsreadwrite", &volume, &publish)?.and_then(|parameter| parameter.value.parse().ok()),
    })
}

fn known<'a>(
    folded: &str,
    volume: &Context<'a>,
    publish: &Context<'a>,
) -> Result<Option<Parameter<'a>>, ParameterError> {
    Ok(match publish.get(folded)? {
        Some(parameter) => Some(parameter),
        None => volume.get(folded)?,
    })
}

fn positive(parameter: Option<Parameter<'_>>, allowed: &str) -> Result<Option<u32>, ParameterError> {
    let Some(parameter) = parameter else { return Ok(None) };
    match parameter.number(allowed)? {
        0 => Err(parameter.refuse(allowed)),
        number => Ok(Some(number)),
    }
}

/// The slot, in either of the ways in which it was ever written.
fn lun(publish: &Context<'_>) -> Result<Lun, ParameterError> {
    let allowed = "allowed is a whole number from 0 to 63, written by ControllerPublishVolume";
    let parameter = publish.get("lun")?.ok_or_else(|| ParameterError::invalid(LUN_KEY, "", allowed))?;
    parameter.value.parse().map_err(|_| parameter.refuse(allowed))
}
