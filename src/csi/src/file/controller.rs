//! `csi.v1.Controller` of `file.csi.azure.com`.
//!
//! A request is parsed here into typed values, a decision is asked of `lazuli-shares`, [`Shares`] carries it out, and its
//! failure becomes the code that the sidecar in front understands, and an event where a person must know about it. Shares
//! are attached to no node: `ControllerPublishVolume` is not offered.

use std::{fmt, sync::Arc};

use csi_proto::csi::{
    ControllerExpandVolumeRequest, ControllerExpandVolumeResponse, ControllerGetCapabilitiesRequest,
    ControllerGetCapabilitiesResponse, ControllerGetVolumeHealthRequest, ControllerGetVolumeHealthResponse,
    ControllerGetVolumeRequest, ControllerGetVolumeResponse, ControllerListVolumeHealthRequest,
    ControllerListVolumeHealthResponse, ControllerModifyVolumeRequest, ControllerModifyVolumeResponse,
    ControllerPublishVolumeRequest, ControllerPublishVolumeResponse, ControllerServiceCapability,
    ControllerUnpublishVolumeRequest, ControllerUnpublishVolumeResponse, CreateSnapshotRequest, CreateSnapshotResponse,
    CreateVolumeRequest, CreateVolumeResponse, DeleteSnapshotRequest, DeleteSnapshotResponse, DeleteVolumeRequest,
    DeleteVolumeResponse, GetCapacityRequest, GetCapacityResponse, GetSnapshotRequest, GetSnapshotResponse,
    ListSnapshotsRequest, ListSnapshotsResponse, ListVolumesRequest, ListVolumesResponse,
    ValidateVolumeCapabilitiesRequest, ValidateVolumeCapabilitiesResponse, Volume, VolumeCapability,
    controller_server::Controller,
    controller_service_capability::{self, Rpc as RpcCapability, rpc},
    validate_volume_capabilities_response, volume_capability,
};
use lazuli_file::{Deleted, ShareError, Shares};
use lazuli_model::{
    ArmId, StorageSku,
    event::{Claim, Event, Failure, Reason, Regarding},
    fault::{self, Code, Rpc},
    parameter::ParameterError,
};
use lazuli_shares::{
    parameters::{Defaults, KeyStorage},
    secret::{Credentials, SecretRef, choose_key, secret_name},
    share::{self as plan, Access, Capability, SharePlan, plan_create},
    volume_id::ShareVolumeId,
};
use lazuli_telemetry::lossy;
use tonic::{Request, Response, Status};

use crate::{
    capability::{capability, ordered},
    server::{Made, RpcNote, failure, status},
    wire::{Boxed, boxed, range, required, unsupported, wire_bytes},
};

/// What the controller can do, as it tells the sidecars. As the Go driver, it lists neither volumes nor snapshots.
const CAPABILITIES: [rpc::Type; 4] =
    [rpc::Type::CreateDeleteVolume, rpc::Type::ExpandVolume, rpc::Type::SingleNodeMultiWriter, rpc::Type::ModifyVolume];

type Write = dyn Fn(SecretRef, Credentials) -> Boxed<'static, Result<(), String>> + Send + Sync;

/// How the key of an account is written into a Secret.
#[derive(Clone)]
pub struct SecretWriter(Arc<Write>);

impl SecretWriter {
    /// `write` makes the Secret, or leaves one that a person made as it is, and says why it could not.
    pub fn new(
        write: impl Fn(SecretRef, Credentials) -> Boxed<'static, Result<(), String>> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(write))
    }
}

impl fmt::Debug for SecretWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretWriter")
    }
}

/// The controller service of the file driver.
#[derive(Debug, Clone)]
pub struct ControllerService {
    shares: Shares,
    defaults: Defaults,
    secrets: Option<SecretWriter>,
    events: lossy::Sender<Event>,
}

fn failed(rpc: Rpc, error: &ShareError) -> Status {
    let code = error.code().unwrap_or_else(|| fault::code(rpc, &error.fault, error.effect));
    failure(if code == Code::Ok { Code::Internal } else { code }, error)
}

fn refused(error: &ParameterError) -> Status {
    failure(error.code(), error)
}

fn capabilities(wire: &[VolumeCapability]) -> Vec<Capability> {
    let access = |wire: &VolumeCapability| match wire.access_type {
        Some(volume_capability::AccessType::Block(_)) => Access::Block,
        Some(volume_capability::AccessType::Mount(_)) | None => Access::Mount,
    };
    wire.iter().map(|wire| Capability { mode: capability(wire).access_mode, access: access(wire) }).collect()
}

/// The volume of a request. A handle that no share can have is the handle of no volume.
fn volume(id: &str) -> Result<ShareVolumeId, Status> {
    required("volume_id", id)?;
    ShareVolumeId::parse(id).map_err(|error| failure(Code::NotFound, &error))
}

impl ControllerService {
    /// A service over these shares; `defaults` stand where a StorageClass says nothing. Without `secrets` no key is
    /// written into the cluster.
    pub fn new(
        shares: Shares,
        defaults: Defaults,
        secrets: Option<SecretWriter>,
        events: lossy::Sender<Event>,
    ) -> Self {
        Self { shares, defaults, secrets, events }
    }

    /// The status of a call that failed. Reports the failure where a person must know about it. `what` could not be done.
    fn reported(&self, rpc: Rpc, regarding: Option<Regarding>, what: &str, error: &ShareError) -> Status {
        if let Some(regarding) = regarding {
            let action = error.action();
            let failure = Failure { fault: &error.fault, what, code: error.azure_code(), action: action.as_deref() };
            if let Some(event) = Event::of_failure(rpc, regarding, &failure) {
                self.events.send(event);
            }
        }
        failed(rpc, error)
    }

    /// What a request asks for, and the claim that it is made for.
    fn planned(&self, request: CreateVolumeRequest) -> Result<(Arc<SharePlan>, Option<Claim>), Status> {
        required("name", &request.name)?;
        if request.volume_content_source.is_some() {
            let message =
                "volume_content_source is set: shares from snapshots and clones are not offered by this driver";
            return Err(status(Code::InvalidArgument, message));
        }
        let (required_bytes, limit_bytes) = range(request.capacity_range.as_ref());
        let claim = Claim::of(|key| request.parameters.get(key).map(String::as_str), &request.name);
        let request = plan::Request {
            name: request.name,
            capabilities: capabilities(&request.volume_capabilities),
            parameters: ordered(request.parameters),
            mutable_parameters: ordered(request.mutable_parameters),
            required_bytes,
            limit_bytes,
        };
        let plan = Arc::new(plan_create(&request, &self.defaults).map_err(|error| refused(&error))?);
        for warning in &plan.class.warnings {
            tracing::warn!(volume = request.name, "{warning}");
        }
        Ok((plan, claim))
    }

    async fn create(&self, request: CreateVolumeRequest, note: &RpcNote) -> Result<CreateVolumeResponse, Status> {
        let (plan, claim) = self.planned(request)?;
        note.makes(Made { storage_account_type: plan.class.sku.map_or("", StorageSku::as_str), protocol: "smb" });
        let created = match self.shares.create(&plan).await {
            Ok(created) => created,
            Err(error) => {
                let what = format!("Share {} ({}) cannot be created", plan.share, plan.size);
                return Err(self.reported(Rpc::CreateVolume, claim.map(Regarding::Claim), &what, &error));
            }
        };
        let account = &created.account.id;
        // On the heap when its turn comes: a thousand claims that wait for their shares need no room for it.
        Box::pin(self.store_key(account, &plan.class.key)).await?;
        let answer = plan.answer(account, created.size).map_err(|error| failure(Code::InvalidArgument, &error))?;
        Ok(CreateVolumeResponse {
            volume: Some(Volume {
                capacity_bytes: wire_bytes(answer.capacity_bytes),
                volume_id: answer.volume_id,
                volume_context: answer.volume_context.into_iter().collect(),
                ..Volume::default()
            }),
        })
    }

    /// Writes the key of an account into its Secret, where the class wants that.
    async fn store_key(&self, account: &ArmId, storage: &KeyStorage) -> Result<(), Status> {
        let Some(SecretWriter(write)) = self.secrets.as_ref().filter(|_| storage.store) else { return Ok(()) };
        let keys = self.shares.keys(account).await.map_err(|error| failed(Rpc::CreateVolume, &error))?;
        let key = choose_key(&keys, storage.latest).ok_or_else(|| {
            status(Code::Unavailable, format!("Azure shows no key of storage account {}", account.name()))
        })?;
        let secret = SecretRef {
            namespace: storage.secret_namespace.clone(),
            name: storage.secret_name.clone().unwrap_or_else(|| secret_name(account.name())),
        };
        let credentials = Credentials { account: account.name().to_owned(), key: key.value.clone() };
        write(secret, credentials).await.map_err(|why| status(Code::Unavailable, why))
    }

    async fn delete(&self, request: DeleteVolumeRequest) -> Result<DeleteVolumeResponse, Status> {
        required("volume_id", &request.volume_id)?;
        let Ok(volume) = ShareVolumeId::parse(&request.volume_id) else {
            tracing::warn!(volume = request.volume_id, "this handle names no file share; there is nothing to delete");
            return Ok(DeleteVolumeResponse {});
        };
        if volume.is_vhd() {
            let message = format!(
                "volume {} is a VHD file in a share; this driver has none of these and leaves it as it is",
                request.volume_id
            );
            return Err(status(Code::InvalidArgument, message));
        }
        match self.shares.delete(volume, None).await {
            Ok(Deleted::Gone) => Ok(DeleteVolumeResponse {}),
            Ok(Deleted::Kept { kept, volume }) => {
                let persistent_volume = volume.as_deref();
                tracing::warn!(volume = request.volume_id, persistent_volume, audit = true, "{kept}");
                let concerned = volume.iter().map(String::as_str).chain(kept.must_be_mended());
                for name in concerned {
                    self.events.send(Event::new(Regarding::Volume(name.to_owned()), Reason::ShareKept, &kept));
                }
                Ok(DeleteVolumeResponse {})
            }
            Err(error) => Err(failed(Rpc::DeleteVolume, &error)),
        }
    }

    async fn validate(
        &self,
        request: ValidateVolumeCapabilitiesRequest,
    ) -> Result<ValidateVolumeCapabilitiesResponse, Status> {
        required("volume_id", &request.volume_id)?;
        if request.volume_capabilities.is_empty() {
            return Err(status(Code::InvalidArgument, "volume_capabilities is missing in the request"));
        }
        let id = volume(&request.volume_id)?;
        if !self.shares.exists(&id).await.map_err(|error| failed(Rpc::Read, &error))? {
            let message = format!("share {} of storage account {} does not exist", id.share_name(), id.account);
            return Err(status(Code::NotFound, message));
        }
        Ok(match plan::validate_capabilities(&capabilities(&request.volume_capabilities)) {
            Ok(()) => ValidateVolumeCapabilitiesResponse {
                confirmed: Some(validate_volume_capabilities_response::Confirmed {
                    volume_context: request.volume_context,
                    volume_capabilities: request.volume_capabilities,
                    parameters: request.parameters,
                    mutable_parameters: request.mutable_parameters,
                }),
                message: String::new(),
            },
            Err(error) => ValidateVolumeCapabilitiesResponse { confirmed: None, message: error.to_string() },
        })
    }

    async fn expand(&self, request: ControllerExpandVolumeRequest) -> Result<ControllerExpandVolumeResponse, Status> {
        required("volume_id", &request.volume_id)?;
        if request.capacity_range.is_none() {
            return Err(status(Code::InvalidArgument, "capacity_range is missing in the request"));
        }
        let (required_bytes, limit_bytes) = range(request.capacity_range.as_ref());
        let id = volume(&request.volume_id)?;
        if id.is_vhd() {
            return Err(unsupported("ControllerExpandVolume of a VHD file in a share"));
        }
        let size =
            self.shares.expand(&id, required_bytes, limit_bytes).await.map_err(|error| failed(Rpc::Expand, &error))?;
        // The server shows the new size; no node has to do anything.
        Ok(ControllerExpandVolumeResponse { capacity_bytes: wire_bytes(size.bytes()), node_expansion_required: false })
    }

    async fn modify(&self, request: ControllerModifyVolumeRequest) -> Result<ControllerModifyVolumeResponse, Status> {
        required("volume_id", &request.volume_id)?;
        let id = volume(&request.volume_id)?;
        if id.is_vhd() {
            return Err(unsupported("ControllerModifyVolume of a VHD file in a share"));
        }
        let modified = self.shares.modify(&id, ordered(request.mutable_parameters)).await;
        modified.map_err(|error| failed(Rpc::Modify, &error))?;
        Ok(ControllerModifyVolumeResponse {})
    }
}

#[tonic::async_trait]
impl Controller for ControllerService {
    async fn create_volume(
        &self,
        request: Request<CreateVolumeRequest>,
    ) -> Result<Response<CreateVolumeResponse>, Status> {
        let note = RpcNote::of(&request);
        note.about(&request.get_ref().name);
        boxed(self.create(request.into_inner(), &note)).await
    }

    async fn delete_volume(
        &self,
        request: Request<DeleteVolumeRequest>,
    ) -> Result<Response<DeleteVolumeResponse>, Status> {
        RpcNote::of(&request).about(&request.get_ref().volume_id);
        boxed(self.delete(request.into_inner())).await
    }

    async fn validate_volume_capabilities(
        &self,
        request: Request<ValidateVolumeCapabilitiesRequest>,
    ) -> Result<Response<ValidateVolumeCapabilitiesResponse>, Status> {
        RpcNote::of(&request).about(&request.get_ref().volume_id);
        boxed(self.validate(request.into_inner())).await
    }

    async fn controller_expand_volume(
        &self,
        request: Request<ControllerExpandVolumeRequest>,
    ) -> Result<Response<ControllerExpandVolumeResponse>, Status> {
        RpcNote::of(&request).about(&request.get_ref().volume_id);
        boxed(self.expand(request.into_inner())).await
    }

    async fn controller_get_capabilities(
        &self,
        _: Request<ControllerGetCapabilitiesRequest>,
    ) -> Result<Response<ControllerGetCapabilitiesResponse>, Status> {
        let capabilities = CAPABILITIES.map(|r#type| ControllerServiceCapability {
            r#type: Some(controller_service_capability::Type::Rpc(RpcCapability { r#type: r#type.into() })),
        });
        Ok(Response::new(ControllerGetCapabilitiesResponse { capabilities: capabilities.into() }))
    }

    async fn controller_publish_volume(
        &self,
        _: Request<ControllerPublishVolumeRequest>,
    ) -> Result<Response<ControllerPublishVolumeResponse>, Status> {
        Err(unsupported("ControllerPublishVolume"))
    }

    async fn controller_unpublish_volume(
        &self,
        _: Request<ControllerUnpublishVolumeRequest>,
    ) -> Result<Response<ControllerUnpublishVolumeResponse>, Status> {
        Err(unsupported("ControllerUnpublishVolume"))
    }

    async fn list_volumes(&self, _: Request<ListVolumesRequest>) -> Result<Response<ListVolumesResponse>, Status> {
        Err(unsupported("ListVolumes"))
    }

    async fn controller_get_volume(
        &self,
        _: Request<ControllerGetVolumeRequest>,
    ) -> Result<Response<ControllerGetVolumeResponse>, Status> {
        Err(unsupported("ControllerGetVolume"))
    }

    async fn get_capacity(&self, _: Request<GetCapacityRequest>) -> Result<Response<GetCapacityResponse>, Status> {
        Err(unsupported("GetCapacity"))
    }

    async fn create_snapshot(
        &self,
        _: Request<CreateSnapshotRequest>,
    ) -> Result<Response<CreateSnapshotResponse>, Status> {
        Err(unsupported("CreateSnapshot"))
    }

    async fn delete_snapshot(
        &self,
        _: Request<DeleteSnapshotRequest>,
    ) -> Result<Response<DeleteSnapshotResponse>, Status> {
        Err(unsupported("DeleteSnapshot"))
    }

    async fn list_snapshots(
        &self,
        _: Request<ListSnapshotsRequest>,
    ) -> Result<Response<ListSnapshotsResponse>, Status> {
        Err(unsupported("ListSnapshots"))
    }

    async fn get_snapshot(&self, _: Request<GetSnapshotRequest>) -> Result<Response<GetSnapshotResponse>, Status> {
        Err(unsupported("GetSnapshot"))
    }

    async fn controller_modify_volume(
        &self,
        request: Request<ControllerModifyVolumeRequest>,
    ) -> Result<Response<ControllerModifyVolumeResponse>, Status> {
        RpcNote::of(&request).about(&request.get_ref().volume_id);
        boxed(self.modify(request.into_inner())).await
    }

    async fn controller_list_volume_health(
        &self,
        _: Request<ControllerListVolumeHealthRequest>,
    ) -> Result<Response<ControllerListVolumeHealthResponse>, Status> {
        Err(unsupported("ControllerListVolumeHealth"))
    }

    async fn controller_get_volume_health(
        &self,
        _: Request<ControllerGetVolumeHealthRequest>,
    ) -> Result<Response<ControllerGetVolumeHealthResponse>, Status> {
        Err(unsupported("ControllerGetVolumeHealth"))
    }
}
