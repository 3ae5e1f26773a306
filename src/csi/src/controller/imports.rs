//! CreateVolume with a page blob as its source: a managed disk that Azure imports.

use csi_proto::csi::{VolumeContentSource, volume_content_source::Type};
use lazuli_disk::{Created, ImportError};
use lazuli_journal::Word;
use lazuli_model::{
    BlobUri, VolumeId,
    event::{Claim, Regarding},
    fault::{Code, Rpc},
};
use lazuli_vhd::import::Import;
use lazuli_volume as plan;
use tonic::Status;

use super::{ControllerService, refused};
use crate::{
    asked::Asked,
    server::{Made, RpcNote, failure},
};

/// The page blob that a request names as its source, if it names one. An address of no blob is that of no volume.
pub(super) fn blob(wire: &VolumeContentSource) -> Result<Option<BlobUri>, Status> {
    match &wire.r#type {
        Some(Type::Volume(volume)) if !volume.volume_id.is_empty() => {
            let id: VolumeId = volume.volume_id.parse().map_err(|error| failure(Code::NotFound, &error))?;
            Ok(id.disk().blob().cloned())
        }
        _ => Ok(None),
    }
}

impl ControllerService {
    /// Makes the disk that a request with a page blob asks for. Nothing is sent where the mount flags are not accepted.
    pub(super) async fn create_import(
        &self,
        request: plan::Request,
        blob: BlobUri,
        flags_accepted: Result<(), Status>,
        (claim, note): (Option<Claim>, &RpcNote),
    ) -> Result<Created, Status> {
        let import = Import::new(request, blob, self.defaults.clone()).map_err(|error| refused(&error))?;
        flags_accepted?;
        let planned = import.planned();
        note.makes(Made { storage_account_type: planned.spec.sku.as_str(), protocol: "" });
        for warning in &planned.warnings {
            tracing::warn!(volume = planned.disk.name(), "{warning}");
        }
        let (disk, spec) = (planned.disk.clone(), planned.spec.clone());
        let asked = Asked::new(&self.journal, &disk, Word::CreateAsked.number(planned.size.get()));
        let error = match self.volumes.import(import).await {
            Ok(created) => {
                asked.done(Word::Answered);
                return Ok(created);
            }
            Err(error) => error,
        };
        let what = format!("Disk {} ({}, {}) cannot be imported", disk.name(), spec.sku, spec.location);
        let answer = match error.decided() {
            Err(failed) => self.reported(Rpc::CreateVolume, claim.map(Regarding::Claim), &what, failed),
            Ok(code) => failure(code, &error),
        };
        let fault = match &error {
            ImportError::Failed(error) => Some(&error.fault),
            ImportError::Parameter(_) | ImportError::Refused { .. } | ImportError::NoClient(_) => None,
        };
        Err(asked.failed(answer, fault))
    }
}

#[cfg(test)]
mod tests {
    use csi_proto::csi::volume_content_source::{SnapshotSource, VolumeSource};

    use super::*;

    #[test]
    fn only_the_address_of_a_blob_is_one() {
        let of = |r#type| blob(&VolumeContentSource { r#type });
        let volume = |id: &str| of(Some(Type::Volume(VolumeSource { volume_id: id.into() })));
        let uri = "https://acct.blob.core.windows.net/vhds/d.vhd";
        assert_eq!(volume(uri).unwrap().unwrap().as_str(), uri);
        let disk = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/d";
        assert_eq!(volume(disk).unwrap(), None);
        assert_eq!(of(Some(Type::Snapshot(SnapshotSource { snapshot_id: uri.into() }))).unwrap(), None);
        assert_eq!(of(None).unwrap(), None);
        for none in ["http://acct.blob.core.windows.net/vhds/d.vhd", "https://acct.blob.core.windows.net/d.vhd?sig=x"] {
            let refused = volume(none).unwrap_err();
            assert_eq!(refused.code(), tonic::Code::NotFound);
            assert!(!refused.message().contains("sig=x"));
        }
    }
}
