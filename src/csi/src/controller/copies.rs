//! CreateVolume with a source: volumes from snapshots and clones.

use std::collections::BTreeMap;

use csi_proto::csi::{VolumeContentSource, volume_content_source::Type};
use lazuli_disk::{CopyError, Created};
use lazuli_journal::Word;
use lazuli_model::{
    ArmId, SnapshotId, SnapshotIdError, VolumeId,
    event::{Claim, Event, Regarding},
    fault::{Code, Rpc},
};
use lazuli_storage::copies::Create;
use lazuli_volume::{self as plan, Defaults, SOURCE_KEY, copy::LINE_KEY};
use tonic::Status;

use super::{ControllerService, managed, refused};
use crate::{
    asked::Asked,
    server::{Made, RpcNote, failure, status},
    wire::required,
};

/// The disk or the snapshot that a request names as its source. What can be neither does not exist.
pub(super) fn source(wire: &VolumeContentSource, defaults: &Defaults) -> Result<ArmId, Status> {
    match &wire.r#type {
        Some(Type::Snapshot(snapshot)) => {
            let id = required("volume_content_source.snapshot.snapshot_id", &snapshot.snapshot_id)?;
            let cluster = (defaults.subscription.as_str(), defaults.resource_group.as_str());
            let id = SnapshotId::parse(id, cluster);
            id.map(|id| id.snapshot().clone()).map_err(|error: SnapshotIdError| failure(Code::NotFound, &error))
        }
        Some(Type::Volume(volume)) => {
            let id = required("volume_content_source.volume.volume_id", &volume.volume_id)?;
            let id: VolumeId = id.parse().map_err(|error| failure(Code::NotFound, &error))?;
            managed(&id).cloned()
        }
        None => Err(status(Code::InvalidArgument, "volume_content_source names neither a snapshot nor a volume")),
    }
}

impl ControllerService {
    /// Makes the disk that a request with a source asks for. Nothing is sent where the mount flags are not accepted.
    pub(super) async fn create_copy(
        &self,
        request: plan::Request,
        source: ArmId,
        flags_accepted: Result<(), Status>,
        (claim, note): (Option<Claim>, &RpcNote),
    ) -> Result<Created, Status> {
        let create = Create::new(request, source, self.defaults.clone()).map_err(|error| refused(&error))?;
        flags_accepted?;
        let planned = create.planned();
        note.makes(Made { storage_account_type: planned.spec.sku.as_str(), protocol: "" });
        for warning in &planned.warnings {
            tracing::warn!(volume = planned.disk.name(), "{warning}");
        }
        let (disk, spec) = (planned.disk.clone(), planned.spec.clone());
        let asked = Asked::new(&self.journal, &disk, Word::CreateAsked.number(planned.size.get()));
        let error = match self.volumes.create_copy(create).await {
            Ok(created) => {
                asked.done(Word::Answered);
                return Ok(created);
            }
            Err(error) => error,
        };
        let what = format!("Disk {} ({}, {}) cannot be created", disk.name(), spec.sku, spec.location);
        let regarding = claim.map(Regarding::Claim);
        let answer = match error.decided() {
            Err(failed) => self.reported(Rpc::CreateVolume, regarding, &what, failed),
            Ok((code, reason)) => {
                if let Some((regarding, reason)) = regarding.zip(reason) {
                    self.events.send(Event::new(regarding, reason, format_args!("{what}: {error}")));
                }
                failure(code, &error)
            }
        };
        let fault = match &error {
            CopyError::Failed(error) | CopyError::Limited { source: error, .. } => Some(&error.fault),
            CopyError::Parameter(_) | CopyError::Refused(_) => None,
        };
        Err(asked.failed(answer, fault))
    }

    /// Tells a node what the disk was made from. CreateVolume has told it of the volumes that this driver has copied, in their
    /// contexts.
    pub(super) async fn tell_line(
        &self,
        source: Option<String>,
        volume_context: &BTreeMap<String, String>,
        publish_context: &mut BTreeMap<String, String>,
    ) {
        let Some(source) = source else { return };
        if !volume_context.keys().any(|key| key.eq_ignore_ascii_case(LINE_KEY)) {
            let line = self.volumes.line(&source).await;
            if !line.is_empty() {
                publish_context.insert(LINE_KEY.to_owned(), line.to_context());
            }
        }
        publish_context.insert(SOURCE_KEY.to_owned(), source);
    }
}

#[cfg(test)]
mod tests {
    use csi_proto::csi::volume_content_source::{SnapshotSource, VolumeSource};

    use super::*;

    #[test]
    fn a_source_is_a_snapshot_or_a_volume_and_what_can_be_neither_does_not_exist() {
        let defaults = Defaults { subscription: "s".into(), resource_group: "g".into(), ..Defaults::default() };
        let of = |r#type| source(&VolumeContentSource { r#type }, &defaults);
        let snapshot = |id: &str| of(Some(Type::Snapshot(SnapshotSource { snapshot_id: id.into() })));
        let volume = |id: &str| of(Some(Type::Volume(VolumeSource { volume_id: id.into() })));
        // A bare name is that of a snapshot in the cluster's group, as the Go driver takes it.
        assert_eq!(snapshot("snap").unwrap(), ArmId::snapshot("s", "g", "snap").unwrap());
        let disk = ArmId::disk("s", "other", "pvc-1").unwrap();
        assert_eq!(volume(disk.as_str()).unwrap(), disk);
        let code = |refused: Result<ArmId, Status>| refused.unwrap_err().code();
        for unknown in [snapshot(disk.as_str()), snapshot("a b"), volume("pvc-1"), volume("/subscriptions/s")] {
            assert_eq!(code(unknown), tonic::Code::NotFound);
        }
        for malformed in [snapshot(""), volume(""), of(None)] {
            assert_eq!(code(malformed), tonic::Code::InvalidArgument);
        }
    }
}
