//! Volumes that are VHDs in page blobs.

use std::collections::BTreeMap;

use csi_proto::csi::{
    ControllerExpandVolumeResponse, ControllerGetVolumeResponse, Volume, controller_get_volume_response,
};
use lazuli_blob_disk::{BlobDiskError, BlobDisks};
use lazuli_disk::{BlobExpandError, Created};
use lazuli_journal::{Key, Word};
use lazuli_model::{
    BlobUri, DiskId, Gib,
    event::{Claim, Event, Failure, Reason, Regarding},
    fault::{Code, Rpc},
    parameter::ParameterError,
};
use lazuli_vhd::class::{self, BlobClass, Choice, Defaults, Found};
use lazuli_volume::{self as plan, Adopted};
use tonic::Status;

use super::{ControllerService, failed, refused};
use crate::{
    asked::Asked,
    server::{failure, status},
    wire::wire_bytes,
};

/// What is missing where there is no client of page blobs.
pub(super) fn without_client(id: &dyn std::fmt::Display) -> Status {
    let message = format!("volume {id} is a VHD in a page blob, and this program has no client of page blobs");
    status(Code::FailedPrecondition, message)
}

/// Page blobs have no snapshots and no copies that become disks.
pub(super) fn no_copies(id: &BlobUri) -> Status {
    let message = format!(
        "volume {id} is a VHD in a page blob, of which no snapshots and no clones are made; make a managed disk of it: a \
         claim of a managed class whose dataSource is this claim"
    );
    status(Code::FailedPrecondition, message)
}

/// No blob disk is made of anything.
fn no_source() -> Status {
    status(
        Code::InvalidArgument,
        "the class asks for a VHD in a page blob, which is made of no snapshot and of no other volume; make the claim anew \
         without a dataSource, or with a class of managed disks: one without kind and storageAccount",
    )
}

/// Page blobs have no attributes that could be changed.
pub(super) fn no_attributes(id: &BlobUri) -> Status {
    let message = format!("volume {id} is a VHD in a page blob, which has no attributes that could be changed");
    status(Code::InvalidArgument, message)
}

/// Refuses what no node would do with the disk, before it is made. One machine has a blob disk at a time.
fn check_mounting(class: &BlobClass, request: &plan::Request) -> Result<(), Status> {
    if let Some((key, value)) = request.mutable_parameters.iter().next() {
        let allowed = "a blob disk has no attributes that could be changed; allowed is no VolumeAttributesClass";
        return Err(refused(&ParameterError::invalid(key, value, allowed)));
    }
    let invalid = |error: &plan::CapabilityError| failure(Code::InvalidArgument, error);
    plan::validate_capabilities(&request.capabilities, 1).map_err(|error| invalid(&error))?;
    plan::check_tuning(&class.written).map_err(|error| refused(&error))?;
    let attached = BTreeMap::from([("LUN".to_owned(), "0".to_owned())]);
    let check = |capability| plan::stage_parameters(&class.written, capability, &attached).map(drop);
    request.capabilities.iter().try_for_each(check).map_err(|error| refused(&error))
}

impl ControllerService {
    /// The blob disk that a class asks for, if it does and gets one.
    pub(super) async fn blob_class(
        &self,
        request: &plan::Request,
        claim: Option<&Claim>,
    ) -> Result<Option<Box<BlobClass>>, Status> {
        let asked = class::Request {
            name: request.name.clone(),
            parameters: request.parameters.clone(),
            required_bytes: request.required_bytes,
            limit_bytes: request.limit_bytes,
        };
        let defaults = Defaults {
            blob_disks: self.blob_disks,
            is_stack_hub: self.defaults.cloud == plan::Cloud::AzureStack,
            subscription: self.defaults.subscription.clone(),
            resource_group: self.defaults.resource_group.clone(),
            location: self.defaults.location.clone(),
        };
        let mut found = Found::default();
        let choice = loop {
            match class::choose(&asked, &defaults, &found).map_err(|error| refused(&error))? {
                Choice::AskForMachines => {
                    let machines = self.volumes.machines().await;
                    found.machines = Some(machines.map_err(|error| failed(Rpc::CreateVolume, &error))?);
                }
                Choice::AskForBlob(class) => found.blob = Some(self.is_begun(&class).await?),
                Choice::AskForManaged => found.managed = Some(self.is_there(request).await?),
                choice => break choice,
            }
        };
        match choice {
            Choice::Managed { warning } => {
                if let (Some(what), Some(claim)) = (warning, claim) {
                    self.events.send(Event::new(Regarding::Claim(claim.clone()), Reason::IgnoredValue, what));
                }
                Ok(None)
            }
            Choice::Blob(class) => Ok(Some(class)),
            _ => Err(status(
                Code::Unavailable,
                "no machine of the cluster's Nodes is known yet, so it is not known whether they take blob disks; wait for one, \
                 or say it with --blob-disks",
            )),
        }
    }

    /// Whether an earlier try has begun the blob disk of a class.
    async fn is_begun(&self, class: &BlobClass) -> Result<bool, Status> {
        match self.volumes.blob_disks() {
            Some(disks) => disks.is_begun(class).await.map_err(|error| failure(error.code(Rpc::CreateVolume), &error)),
            None => Ok(false),
        }
    }

    /// Whether there is the managed disk that a request asks for otherwise. What is no request for one has made none.
    async fn is_there(&self, request: &plan::Request) -> Result<bool, Status> {
        match plan::plan_create(request, &self.defaults) {
            Ok(plan) => self.volumes.is_there(&plan).await.map_err(|error| failed(Rpc::CreateVolume, &error)),
            Err(_) => Ok(false),
        }
    }

    /// Refuses a request with a source whose class gets a blob disk, unless an earlier try has made the managed disk of it: that
    /// one would belong to nobody.
    pub(super) async fn check_no_source(&self, request: &plan::Request) -> Result<(), Status> {
        if self.is_there(request).await? { Ok(()) } else { Err(no_source()) }
    }

    /// Makes a blob disk.
    pub(super) async fn create_blob(
        &self,
        class: &BlobClass,
        request: &plan::Request,
        claim: Option<Claim>,
    ) -> Result<Created, Status> {
        check_mounting(class, request)?;
        for warning in &class.warnings {
            tracing::warn!(volume = request.name, "{warning}");
        }
        let disks = self.blobs(&class.blob)?;
        let asked = Asked::of(&self.journal, Key::blob_name(&class.blob), Word::CreateAsked.number(class.size.get()));
        let made = match self.volumes.create_blob(disks, class, &request.name).await {
            Ok(made) => made,
            Err(error) => {
                let what = format!("The blob disk {} cannot be created", class.blob);
                let status = self.blob_failure(Rpc::CreateVolume, claim.map(Regarding::Claim), &what, &error);
                return Err(asked.failed(status, Some(&error.fault())));
            }
        };
        asked.done(Word::Answered);
        let size = Gib::holding(made.size_bytes).ok_or_else(|| status(Code::Internal, "the disk has no size"))?;
        Ok(Created {
            volume_id: made.uri.as_str().to_owned(),
            adopted: Adopted { size, volume_context: class.written.clone(), accessible_topology: Vec::new() },
        })
    }

    pub(super) async fn delete_blob(&self, uri: &BlobUri) -> Result<(), Status> {
        let asked = Asked::of(&self.journal, Key::blob(uri), Word::DeleteAsked);
        match self.volumes.delete_blob(uri).await {
            Ok(()) => asked.done(Word::Answered),
            Err(error) => return Err(asked.failed(failed(Rpc::DeleteVolume, &error), Some(&error.fault))),
        }
        Ok(())
    }

    pub(super) async fn expand_blob(
        &self,
        uri: &BlobUri,
        (required_bytes, limit_bytes): (i64, i64),
    ) -> Result<ControllerExpandVolumeResponse, Status> {
        let blobs = self.blobs(uri)?;
        let note = Word::ExpandAsked.number(required_bytes.div_euclid(1 << 30));
        let asked = Asked::of(&self.journal, Key::blob(uri), note);
        let size = match self.volumes.expand_blob(blobs, uri, (required_bytes, limit_bytes)).await {
            Ok(size) => size,
            Err(BlobExpandError::Busy(error)) => {
                return Err(asked.failed(failed(Rpc::Expand, &error), Some(&error.fault)));
            }
            Err(BlobExpandError::Failed(error)) => {
                let what = format!("The blob disk {uri} cannot be expanded");
                let regarding = Some(Regarding::ClaimOf(DiskId::Blob(uri.clone())));
                let status = self.blob_failure(Rpc::Expand, regarding, &what, &error);
                return Err(asked.failed(status, Some(&error.fault())));
            }
        };
        asked.done(Word::Answered);
        Ok(ControllerExpandVolumeResponse { capacity_bytes: wire_bytes(size), node_expansion_required: true })
    }

    pub(super) async fn get_blob(
        &self,
        uri: &BlobUri,
        volume_id: String,
    ) -> Result<ControllerGetVolumeResponse, Status> {
        let read = self.volumes.get_blob(uri).await;
        let (size, published_node_ids) = read.map_err(|error| failed(Rpc::Read, &error))?;
        let capacity_bytes = wire_bytes(size.bytes());
        Ok(ControllerGetVolumeResponse {
            volume: Some(Volume { volume_id, capacity_bytes, ..Volume::default() }),
            status: Some(controller_get_volume_response::VolumeStatus { published_node_ids }),
        })
    }

    fn blobs(&self, what: &dyn std::fmt::Display) -> Result<&BlobDisks, Status> {
        self.volumes.blob_disks().ok_or_else(|| without_client(what))
    }

    /// The status of a failed request for a blob disk. Reports the failure where a person must know about it.
    fn blob_failure(&self, rpc: Rpc, regarding: Option<Regarding>, what: &str, error: &BlobDiskError) -> Status {
        if let Some(regarding) = regarding {
            let (fault, action) = (error.fault(), error.action());
            let failed = Failure { fault: &fault, what, code: error.azure_code(), action: action.as_deref() };
            if let Some(event) = Event::of_failure(rpc, regarding, &failed) {
                self.events.send(event);
            }
        }
        failure(error.code(rpc), error)
    }
}
