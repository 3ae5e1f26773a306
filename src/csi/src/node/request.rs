//! Requests, parsed once. The order of the checks is the order of the fields in the CSI specification.

use std::{collections::BTreeMap, path::PathBuf};

use csi_proto::csi::{NodePublishVolumeRequest, NodeStageVolumeRequest, VolumeCapability};
use lazuli_host::{fs_type::FsType, options::Options};
use lazuli_model::{VolumeId, event::Claim};
use lazuli_volume::{
    self as plan, AccessMode, AccessType, SOURCE_KEY, StageParameters,
    copy::{LINE_KEY, Line},
    stage_parameters, validate_capabilities,
};

use super::error::NodeError;
use crate::{
    capability::{capability, ordered},
    fields::{FieldError, absolute, required},
};

/// A parsed `NodeStageVolume`.
#[derive(Debug, Clone)]
pub(super) struct Stage {
    pub(super) volume: VolumeId,
    pub(super) staging: PathBuf,
    pub(super) parameters: StageParameters,
    pub(super) access: Access,
    /// Whether the disk was made from something, and so is never blank.
    pub(super) has_content: bool,
    /// What the disk was made from, as far as the contexts say it.
    pub(super) line: Line,
    /// Whether several nodes may have the disk at a time, as far as the contexts say it.
    pub(super) is_shared: bool,
    /// The claim, where the volume context names it.
    pub(super) claim: Option<Claim>,
}

/// How a volume is handed out.
#[derive(Debug, Clone)]
pub(super) enum Access {
    Block,
    Filesystem { fs: FsType, options: Options },
}

/// A parsed `NodePublishVolume`.
#[derive(Debug, Clone)]
pub(super) struct Publish {
    pub(super) volume: String,
    pub(super) staging: PathBuf,
    pub(super) target: PathBuf,
    pub(super) read_only: bool,
    /// Whether one target is all that the access mode allows.
    pub(super) alone: bool,
    /// The parameters of a raw block volume; `None` for a mounted one.
    pub(super) block: Option<StageParameters>,
}

fn checked(wire: Option<&VolumeCapability>) -> Result<plan::Capability, NodeError> {
    let parsed = capability(wire.ok_or(FieldError::Missing("volume_capability"))?);
    // How many machines may share the disk was checked when it was attached.
    validate_capabilities(std::slice::from_ref(&parsed), u32::MAX).map_err(NodeError::Capability)?;
    Ok(parsed)
}

/// What a context says of a key in any letter case.
fn said<'a>(context: &'a BTreeMap<String, String>, key: &str) -> Option<&'a str> {
    let found = context.iter().find(|(found, value)| found.eq_ignore_ascii_case(key) && !value.is_empty());
    found.map(|(_, value)| value.as_str())
}

impl Stage {
    pub(super) fn parse(wire: NodeStageVolumeRequest) -> Result<Self, NodeError> {
        let volume = required("volume_id", wire.volume_id)?;
        let staging = absolute("staging_target_path", wire.staging_target_path)?;
        let capability = checked(wire.volume_capability.as_ref())?;
        let volume: VolumeId = volume.parse().map_err(NodeError::VolumeId)?;
        let (context, publish) = (ordered(wire.volume_context), ordered(wire.publish_context));
        let parameters = stage_parameters(&context, &capability, &publish).map_err(NodeError::Parameter)?;
        for warning in &parameters.warnings {
            tracing::warn!(volume = volume.as_str(), "{warning}");
        }
        let access = match parameters.fs_type {
            None => Access::Block,
            Some(fs) => {
                let mut options = Options::parse(&parameters.mount_flags).map_err(NodeError::Flags)?;
                if capability.access_mode.is_read_only() {
                    options = options.read_only();
                }
                Access::Filesystem { fs, options }
            }
        };
        let said_of = |context| {
            let line = said(context, LINE_KEY).map(Line::parse);
            [line, said(context, SOURCE_KEY).map(Line::of_source)]
        };
        let sources: Vec<Line> = [&context, &publish].into_iter().flat_map(said_of).flatten().collect();
        let has_content = parameters.resize_required || !sources.is_empty();
        let line = Line::joined(sources);
        let is_shared =
            [&context, &publish].iter().filter_map(|context| said(context, "maxShares")).any(|most| most.trim() != "1");
        let claim = Claim::of_context(|key| context.get(key).map(String::as_str));
        Ok(Self { volume, staging, parameters, access, has_content, line, is_shared, claim })
    }
}

impl Publish {
    pub(super) fn parse(wire: NodePublishVolumeRequest) -> Result<Self, NodeError> {
        let volume = required("volume_id", wire.volume_id)?;
        let target = absolute("target_path", wire.target_path)?;
        let capability = checked(wire.volume_capability.as_ref())?;
        if wire.staging_target_path.is_empty() {
            return Err(NodeError::NotStaged(PathBuf::from("(no staging_target_path is given)")));
        }
        let staging = absolute("staging_target_path", wire.staging_target_path)?;
        let block = match capability.access_type {
            Some(AccessType::Block) => {
                let (context, publish) = (ordered(wire.volume_context), ordered(wire.publish_context));
                Some(stage_parameters(&context, &capability, &publish).map_err(NodeError::Parameter)?)
            }
            _ => None,
        };
        let mode = capability.access_mode;
        Ok(Self {
            volume,
            staging,
            target,
            read_only: wire.readonly || mode.is_read_only(),
            alone: mode == AccessMode::SingleNodeSingleWriter,
            block,
        })
    }
}
