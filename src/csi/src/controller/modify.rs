//! `ControllerModifyVolume`: a volume gets the attributes of a VolumeAttributesClass.
//!
//! It succeeds when Azure's operation has ended. A conversion to PremiumV2 goes on in Azure after that, and is told by events.
//! external-resizer repeats a call until it succeeds; what a class says in vain is told once, by the call that does.

use csi_proto::csi::{ControllerModifyVolumeRequest, ControllerModifyVolumeResponse};
use lazuli_journal::Word;
use lazuli_model::{
    ArmId, DiskId,
    event::{Event, Reason, Regarding},
    fault::Rpc,
};
use lazuli_volume::modify::ModifyPlan;
use tonic::Status;

use super::{ControllerService, blobs::no_attributes, volume};
use crate::{asked::Asked, capability::ordered, wire::required};

impl ControllerService {
    pub(super) async fn modify(
        &self,
        request: ControllerModifyVolumeRequest,
    ) -> Result<ControllerModifyVolumeResponse, Status> {
        required("volume_id", &request.volume_id)?;
        let id = volume(&request.volume_id)?;
        self.volumes.learn_handle_casing(&id);
        let disk = match id.disk() {
            DiskId::Managed(disk) => disk,
            DiskId::Blob(uri) => return Err(no_attributes(uri)),
        };
        let asked = Asked::new(&self.journal, disk, Word::ModifyAsked);
        let class = ordered(request.mutable_parameters);
        match self.volumes.modify(disk, class, self.defaults.cloud).await {
            Ok(plan) => self.tell(disk, &plan),
            Err(error) => {
                let what = format!("Disk {} cannot be changed as its VolumeAttributesClass asks", disk.name());
                let status = self.reported(Rpc::Modify, Some(Regarding::ClaimOf(disk.into())), &what, &error);
                return Err(asked.failed(status, Some(&error.fault)));
            }
        }
        asked.done(Word::Answered);
        Ok(ControllerModifyVolumeResponse {})
    }

    /// What a person is to know of a change that was made.
    fn tell(&self, disk: &ArmId, plan: &ModifyPlan) {
        for warning in &plan.warnings {
            tracing::warn!(%disk, "{warning}");
        }
        if !plan.ignored.is_empty() {
            let regarding = Regarding::ClaimOf(disk.into());
            let what = format!("Of the VolumeAttributesClass of disk {}, {}", disk.name(), plan.ignored.join("; "));
            self.events.send(Event::new(regarding, Reason::AttributeIgnored, what));
        }
    }
}
