//! Which access modes and types a managed disk can give.

pub use lazuli_model::AccessMode;

use super::{
    ParameterError,
    stage::{self, FsType},
};

/// How a volume is handed to the workload.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum AccessType {
    /// As a raw block device.
    Block,
    /// As a mounted filesystem.
    Mount {
        /// The filesystem that is asked for; empty when none is.
        fs_type: String,
        /// Mount flags, in their order.
        flags: Vec<String>,
    },
}

/// A volume capability. Its access type is a `oneof` on the wire: one of the two, or none.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Capability {
    /// The access mode.
    pub access_mode: AccessMode,
    /// Block or mount; `None` when the message had neither.
    pub access_type: Option<AccessType>,
}

impl Capability {
    /// A mounted filesystem of the default type, for one node.
    pub fn mounted() -> Self {
        Self {
            access_mode: AccessMode::SingleNodeWriter,
            access_type: Some(AccessType::Mount { fs_type: String::new(), flags: Vec::new() }),
        }
    }

    /// A raw block device.
    pub fn block(access_mode: AccessMode) -> Self {
        Self { access_mode, access_type: Some(AccessType::Block) }
    }
}

/// Why a managed disk cannot be used as asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CapabilityError {
    /// No capability was given.
    #[error("no volume capability is given; at least one is required")]
    NoCapability,
    /// A capability names neither block nor mount.
    #[error("a volume capability has neither block nor mount; exactly one of them is required")]
    NoAccessType,
    /// The access mode is unknown.
    #[error(
        "the access mode {} is not supported; allowed are SINGLE_NODE_WRITER, SINGLE_NODE_READER_ONLY, \
         SINGLE_NODE_SINGLE_WRITER, SINGLE_NODE_MULTI_WRITER, and MULTI_NODE_* for raw block volumes with maxShares of 2 or more",
        .0.as_str()
    )]
    UnknownMode(AccessMode),
    /// A filesystem on several nodes would be destroyed.
    #[error(
        "the access mode {} is not supported for a mounted filesystem; several nodes can share a disk only as a raw block volume (volumeMode: Block) with maxShares of 2 or more",
        .0.as_str()
    )]
    SharedFilesystem(AccessMode),
    /// The disk takes one VM only.
    #[error("the access mode {} needs maxShares of 2 or more, but maxShares is {max_shares}", .mode.as_str())]
    NotShared {
        /// The mode.
        mode: AccessMode,
        /// How many VMs the disk takes.
        max_shares: u32,
    },
    /// The filesystem is not one of ours.
    #[error(transparent)]
    FsType(ParameterError),
}

impl From<CapabilityError> for ParameterError {
    fn from(error: CapabilityError) -> Self {
        let value = match &error {
            CapabilityError::NoCapability | CapabilityError::NoAccessType => "",
            CapabilityError::UnknownMode(mode)
            | CapabilityError::SharedFilesystem(mode)
            | CapabilityError::NotShared { mode, .. } => mode.as_str(),
            CapabilityError::FsType(error) => return error.clone(),
        };
        Self::invalid("volumeCapabilities", value, error.to_string())
    }
}

/// Whether a disk that takes `max_shares` VMs at a time can give all of these capabilities.
///
/// Used by CreateVolume, ValidateVolumeCapabilities and NodeStageVolume alike.
///
/// # Errors
/// The first capability that it cannot give, and why.
pub fn validate_capabilities(capabilities: &[Capability], max_shares: u32) -> Result<(), CapabilityError> {
    validate(capabilities, max_shares, |fs_type| FsType::from_capability(fs_type).map(drop))
}

/// Whether a disk that takes `max_shares` VMs at a time can be attached for this capability. As
/// [`validate_capabilities`], and `ntfs` is left to the node plugin of a Windows node.
///
/// # Errors
/// Why it cannot.
pub fn validate_attachment(capability: &Capability, max_shares: u32) -> Result<(), CapabilityError> {
    validate(std::slice::from_ref(capability), max_shares, stage::may_be_attached)
}

fn validate(
    capabilities: &[Capability],
    max_shares: u32,
    check_fs_type: fn(&str) -> Result<(), ParameterError>,
) -> Result<(), CapabilityError> {
    if capabilities.is_empty() {
        return Err(CapabilityError::NoCapability);
    }
    for Capability { access_mode: mode, access_type } in capabilities {
        let Some(access_type) = access_type else { return Err(CapabilityError::NoAccessType) };
        if *mode == AccessMode::Unknown {
            return Err(CapabilityError::UnknownMode(*mode));
        }
        if let AccessType::Mount { fs_type, .. } = access_type {
            if mode.is_multi_node() {
                return Err(CapabilityError::SharedFilesystem(*mode));
            }
            check_fs_type(fs_type).map_err(CapabilityError::FsType)?;
        }
        if mode.is_multi_node() && max_shares < 2 {
            return Err(CapabilityError::NotShared { mode: *mode, max_shares });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(access_mode: AccessMode) -> Capability {
        Capability { access_mode, ..Capability::mounted() }
    }

    #[test]
    fn one_node_may_mount_or_use_the_raw_device_in_every_single_node_mode() {
        for mode in AccessMode::ALL {
            let single = !mode.is_multi_node() && mode != AccessMode::Unknown;
            assert_eq!(validate_capabilities(&[mount(mode)], 1).is_ok(), single, "{mode:?}");
            assert_eq!(validate_capabilities(&[Capability::block(mode)], 1).is_ok(), single, "{mode:?}");
        }
    }

    #[test]
    fn several_nodes_share_only_a_raw_device_with_max_shares() {
        for mode in AccessMode::ALL.into_iter().filter(|mode| mode.is_multi_node()) {
            assert_eq!(validate_capabilities(&[Capability::block(mode)], 2), Ok(()));
            assert_eq!(
                validate_capabilities(&[Capability::block(mode)], 1),
                Err(CapabilityError::NotShared { mode, max_shares: 1 })
            );
            assert_eq!(validate_capabilities(&[mount(mode)], 5), Err(CapabilityError::SharedFilesystem(mode)));
        }
    }

    #[test]
    fn no_capability_and_no_type_are_refused() {
        assert_eq!(validate_capabilities(&[], 1), Err(CapabilityError::NoCapability));
        let neither = Capability { access_type: None, ..Capability::mounted() };
        assert_eq!(validate_capabilities(&[Capability::mounted(), neither], 1), Err(CapabilityError::NoAccessType));
    }

    #[test]
    fn mount_and_block_may_be_asked_for_together() {
        let both = [Capability::mounted(), Capability::block(AccessMode::SingleNodeWriter)];
        assert_eq!(validate_capabilities(&both, 1), Ok(()));
    }

    #[test]
    fn a_filesystem_we_cannot_make_is_refused_by_name() {
        let ntfs = Capability {
            access_mode: AccessMode::SingleNodeWriter,
            access_type: Some(AccessType::Mount { fs_type: "ntfs".to_owned(), flags: Vec::new() }),
        };
        let error = ParameterError::from(validate_capabilities(&[ntfs], 1).unwrap_err());
        assert_eq!((error.parameter.as_str(), error.value.as_str()), ("fsType", "ntfs"));
    }

    #[test]
    fn ntfs_is_attached_for_a_windows_node_and_otherwise_refused() {
        let of = |fs_type: &str, access_mode| Capability {
            access_mode,
            access_type: Some(AccessType::Mount { fs_type: fs_type.to_owned(), flags: Vec::new() }),
        };
        let single = AccessMode::SingleNodeWriter;
        for (fs_type, attached, staged) in [
            ("ntfs", true, false),
            ("NTFS", true, false),
            ("zfs", false, false),
            ("ext4", true, true),
            ("", true, true),
        ] {
            assert_eq!(validate_attachment(&of(fs_type, single), 1).is_ok(), attached, "{fs_type}");
            assert_eq!(validate_capabilities(&[of(fs_type, single)], 1).is_ok(), staged, "{fs_type}");
        }
        assert!(validate_attachment(&of("ntfs", AccessMode::MultiNodeMultiWriter), 2).is_err());
    }
}
