//! `csi.v1.Controller` of `disk.csi.azure.com`.
//!
//! A request is parsed here into typed values, a decision is asked of `lazuli-storage`, [`Volumes`] carries it out,
//! and its failure becomes the code that the sidecar in front understands ([`fault::code`]), and an event where a
//! person must know about it ([`fault::reason`]). Nothing else happens
//! here: the operation that a request starts belongs to `disk`, and goes on when the sidecar gives up.

mod blobs;
mod copies;
mod imports;
mod modify;
mod snapshots;

use std::collections::BTreeMap;

use csi_proto::csi::{
    ControllerExpandVolumeRequest, ControllerExpandVolumeResponse, ControllerGetCapabilitiesRequest,
    ControllerGetCapabilitiesResponse, ControllerGetVolumeHealthRequest, ControllerGetVolumeHealthResponse,
    ControllerGetVolumeRequest, ControllerGetVolumeResponse, ControllerListVolumeHealthRequest,
    ControllerListVolumeHealthResponse, ControllerModifyVolumeRequest, ControllerModifyVolumeResponse,
    ControllerPublishVolumeRequest, ControllerPublishVolumeResponse, ControllerServiceCapability,
    ControllerUnpublishVolumeRequest, ControllerUnpublishVolumeResponse, CreateSnapshotRequest, CreateSnapshotResponse,
    CreateVolumeRequest, CreateVolumeResponse, DeleteSnapshotRequest, DeleteSnapshotResponse, DeleteVolumeRequest,
    DeleteVolumeResponse, GetCapacityRequest, GetCapacityResponse, GetSnapshotRequest, GetSnapshotResponse,
    ListSnapshotsRequest, ListSnapshotsResponse, ListVolumesRequest, ListVolumesResponse, Topology,
    ValidateVolumeCapabilitiesRequest, ValidateVolumeCapabilitiesResponse, Volume, VolumeCapability,
    VolumeContentSource, controller_get_volume_response,
    controller_server::Controller,
    controller_service_capability::{self, Rpc as RpcCapability, rpc},
    validate_volume_capabilities_response,
};
use lazuli_disk::{CreateError, Created, DeleteError, ExpandError, Found, ListedVolume, VolumeError, Volumes};
use lazuli_journal::{Key, Recorder, Subject, Word};
use lazuli_model::{
    ArmId, BlobUri, DiskId, VolumeId,
    event::{Claim, Event, Failure, Regarding},
    fault::{self, Code, Rpc},
};
use lazuli_telemetry::lossy;
use lazuli_vhd::class;
use lazuli_volume::{self as plan, Capability, Defaults, ParameterError, Told};
use tonic::{Request, Response, Status};

use crate::{
    asked::Asked,
    capability::{capability, ordered, segments},
    mount_flags,
    pages::Pages,
    server::{Made, RpcNote, failure, status},
    wire::{boxed, range, required, unsupported, wire_bytes},
};

/// What the controller can do, as it tells the sidecars.
///
/// `GET_CAPACITY` is left out: Azure cannot answer it, and claiming it blocks scheduling.
const CAPABILITIES: [rpc::Type; 12] = [
    rpc::Type::CreateDeleteVolume,
    rpc::Type::CloneVolume,
    rpc::Type::PublishUnpublishVolume,
    rpc::Type::ListVolumes,
    rpc::Type::ListVolumesPublishedNodes,
    rpc::Type::ExpandVolume,
    rpc::Type::GetVolume,
    rpc::Type::CreateDeleteSnapshot,
    rpc::Type::ListSnapshots,
    rpc::Type::GetSnapshot,
    rpc::Type::ModifyVolume,
    rpc::Type::SingleNodeMultiWriter,
];

/// The controller service of the managed disk driver.
#[derive(Debug, Clone)]
pub struct ControllerService {
    volumes: Volumes,
    defaults: Defaults,
    list_volumes: ListVolumes,
    volume_pages: Pages<ListedVolume>,
    snapshot_pages: Pages<snapshots::Listed>,
    events: lossy::Sender<Event>,
    journal: Recorder,
    blob_disks: class::BlobDisks,
}

/// Whether ListVolumes is offered. Where it is, external-attacher compares the list with the VolumeAttachments once a
/// minute, and every list costs at least one read of Azure for each resource group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ListVolumes {
    /// It is.
    #[default]
    On,
    /// It is not: neither `LIST_VOLUMES` nor `LIST_VOLUMES_PUBLISHED_NODES` is claimed.
    Off,
}

impl ListVolumes {
    fn claims(self, capability: rpc::Type) -> bool {
        match capability {
            rpc::Type::ListVolumes | rpc::Type::ListVolumesPublishedNodes => self == Self::On,
            _ => true,
        }
    }
}

impl ControllerService {
    /// A service over these volumes; `defaults` stand where a StorageClass says nothing.
    pub fn new(volumes: Volumes, defaults: Defaults) -> Self {
        let (events, journal) = (lossy::Sender::nowhere(), Recorder::nowhere());
        Self {
            volumes,
            defaults,
            list_volumes: ListVolumes::On,
            volume_pages: Pages::default(),
            snapshot_pages: Pages::default(),
            events,
            journal,
            blob_disks: class::BlobDisks::default(),
        }
    }

    /// The same service, with this choice of classes that ask for blob disks.
    pub fn with_blob_disks(self, blob_disks: class::BlobDisks) -> Self {
        Self { blob_disks, ..self }
    }

    /// The same service, which sends events for people there.
    pub fn with_events(self, events: lossy::Sender<Event>) -> Self {
        Self { events, ..self }
    }

    /// The same service, which notes what is asked of each disk there.
    pub fn with_journal(self, journal: Recorder) -> Self {
        Self { journal, ..self }
    }

    /// The same service, which offers ListVolumes or does not.
    pub fn with_list_volumes(self, list_volumes: ListVolumes) -> Self {
        Self { list_volumes, ..self }
    }
}

/// A node in the journal.
fn node_key(name: &str) -> Key<'_> {
    Key::new(Subject::Node, name)
}

fn failed(rpc: Rpc, error: &VolumeError) -> Status {
    let code = fault::code(rpc, &error.fault, error.effect);
    failure(if code == Code::Ok { Code::Internal } else { code }, error)
}

fn refused(error: &ParameterError) -> Status {
    failure(error.code(), error)
}

/// The volume a request names. A handle that cannot be a managed disk is the handle of no volume.
fn volume(id: &str) -> Result<VolumeId, Status> {
    required("volume_id", id)?;
    id.parse().map_err(|error| failure(Code::NotFound, &error))
}

/// The volume of a request that is served where there is none of the name. `None` where the handle cannot be that of any
/// disk. An address that only looks as that of a page blob may be one to another program: OK would be a lie.
fn volume_or_none(id: &str) -> Result<Option<VolumeId>, Status> {
    match required("volume_id", id)?.parse::<VolumeId>() {
        Ok(id) => Ok(Some(id)),
        Err(error) if id.contains("://") => Err(failure(Code::InvalidArgument, &error)),
        Err(_) => Ok(None),
    }
}

/// The managed disk of a volume, for what has snapshots and copies.
fn managed(id: &VolumeId) -> Result<&ArmId, Status> {
    match id.disk() {
        DiskId::Managed(disk) => Ok(disk),
        DiskId::Blob(uri) => Err(blobs::no_copies(uri)),
    }
}

/// What CreateVolume answers of a disk.
fn answered(created: Created, content_source: Option<VolumeContentSource>) -> Volume {
    let Created { volume_id, adopted } = created;
    let topology = |segments: BTreeMap<String, String>| Topology { segments: segments.into_iter().collect() };
    Volume {
        capacity_bytes: wire_bytes(adopted.size.bytes()),
        volume_id,
        volume_context: adopted.volume_context.into_iter().collect(),
        content_source,
        accessible_topology: adopted.accessible_topology.into_iter().map(topology).collect(),
    }
}

/// What a volume is made from.
enum Source {
    /// A disk or a snapshot.
    Resource(ArmId),
    /// A page blob.
    Blob(BlobUri),
}

impl Source {
    fn of(wire: &VolumeContentSource, defaults: &Defaults) -> Result<Self, Status> {
        match imports::blob(wire)? {
            Some(blob) => Ok(Self::Blob(blob)),
            None => copies::source(wire, defaults).map(Self::Resource),
        }
    }
}

fn capabilities(wire: &[VolumeCapability]) -> Vec<Capability> {
    wire.iter().map(capability).collect()
}

impl ControllerService {
    /// The status of a call that failed. Reports the failure where a person must know about it. `what` could not be done.
    fn reported(&self, rpc: Rpc, regarding: Option<Regarding>, what: &str, error: &VolumeError) -> Status {
        if let Some(regarding) = regarding {
            let action = error.action();
            let failure = Failure {
                fault: &error.fault,
                what: error.note().unwrap_or(what),
                code: error.azure_code(),
                action: action.as_deref(),
            };
            if let Some(event) = Event::of_failure(rpc, regarding, &failure) {
                self.events.send(event);
            }
        }
        failed(rpc, error)
    }

    /// The same for an attach or a detach, `done` to or from a node: about the claim, where the volume is the reason, else
    /// about the Node.
    fn reported_on_node(&self, rpc: Rpc, disk: &DiskId, node: &str, done: &str, error: &VolumeError) -> Status {
        match fault::reason(rpc, &error.fault) {
            Some(reason) if reason.lies_in_the_volume() => {
                let what = format!("Disk {} cannot be {done} node {node}", disk.name());
                self.reported(rpc, Some(Regarding::ClaimOf(disk.clone())), &what, error)
            }
            _ => {
                let what = format!("Disks cannot be {done} node {node}");
                self.reported(rpc, Regarding::of_node(node), &what, error)
            }
        }
    }

    async fn create(&self, request: CreateVolumeRequest, note: &RpcNote) -> Result<CreateVolumeResponse, Status> {
        required("name", &request.name)?;
        let content = request.volume_content_source.clone();
        let source = content.as_ref().map(|content| Source::of(content, &self.defaults)).transpose()?;
        let flags_accepted = mount_flags::check(&request);
        let (required_bytes, limit_bytes) = range(request.capacity_range.as_ref());
        let requirement = request.accessibility_requirements.unwrap_or_default();
        let claim = Claim::of(|key| request.parameters.get(key).map(String::as_str), &request.name);
        let request = plan::Request {
            name: request.name,
            parameters: ordered(request.parameters),
            mutable_parameters: ordered(request.mutable_parameters),
            required_bytes,
            limit_bytes,
            capabilities: capabilities(&request.volume_capabilities),
            requisite: segments(&requirement.requisite),
            preferred: segments(&requirement.preferred),
        };
        let class = self.blob_class(&request, claim.as_ref()).await?;
        if class.is_some() && source.is_some() {
            self.check_no_source(&request).await?;
        }
        if let Some(class) = class.filter(|_| source.is_none()) {
            flags_accepted?;
            let created = self.create_blob(&class, &request, claim).await?;
            return Ok(CreateVolumeResponse { volume: Some(answered(created, content)) });
        }
        let created = match source {
            None => self.create_empty(&request, flags_accepted, (claim, note)).await,
            Some(Source::Resource(source)) => self.create_copy(request, source, flags_accepted, (claim, note)).await,
            Some(Source::Blob(blob)) => self.create_import(request, blob, flags_accepted, (claim, note)).await,
        };
        Ok(CreateVolumeResponse { volume: Some(answered(created?, content)) })
    }

    /// Makes the disk that a request without a source asks for. Nothing is sent where the mount flags are not accepted.
    async fn create_empty(
        &self,
        request: &plan::Request,
        flags_accepted: Result<(), Status>,
        (claim, note): (Option<Claim>, &RpcNote),
    ) -> Result<Created, Status> {
        let plan = plan::plan_create(request, &self.defaults).map_err(|error| refused(&error))?;
        flags_accepted?;
        note.makes(Made { storage_account_type: plan.spec.sku.as_str(), protocol: "" });
        for warning in &plan.warnings {
            tracing::warn!(volume = request.name, "{warning}");
        }
        let asked = Asked::new(&self.journal, &plan.disk, Word::CreateAsked.number(plan.spec.size.get()));
        let created = match self.volumes.create(&plan).await {
            Ok(created) => created,
            Err(CreateError::Exists(mismatch)) => {
                return Err(asked.failed(failure(Code::AlreadyExists, &mismatch), None));
            }
            Err(CreateError::Failed(error)) => {
                let spec = &plan.spec;
                let (name, sku) = (plan.disk.name(), spec.sku.as_str());
                let what = format!("Disk {name} ({}, {sku}, {}) cannot be created", spec.size, spec.location);
                let status = self.reported(Rpc::CreateVolume, claim.map(Regarding::Claim), &what, &error);
                return Err(asked.failed(status, Some(&error.fault)));
            }
        };
        asked.done(Word::Answered);
        Ok(created)
    }

    async fn delete(&self, request: DeleteVolumeRequest) -> Result<DeleteVolumeResponse, Status> {
        let Some(id) = volume_or_none(&request.volume_id)? else {
            tracing::warn!(volume = request.volume_id, "this handle names no disk; there is nothing to delete");
            return Ok(DeleteVolumeResponse {});
        };
        let disk = match id.disk() {
            DiskId::Managed(disk) => disk,
            DiskId::Blob(uri) => return self.delete_blob(uri).await.map(|()| DeleteVolumeResponse {}),
        };
        let asked = Asked::new(&self.journal, disk, Word::DeleteAsked);
        match self.volumes.delete(disk).await {
            Ok(()) => asked.done(Word::Answered),
            Err(DeleteError::Snapshots(depend)) => return Err(asked.failed(failure(depend.code(), &depend), None)),
            Err(DeleteError::Failed(error)) => {
                return Err(asked.failed(failed(Rpc::DeleteVolume, &error), Some(&error.fault)));
            }
        }
        Ok(DeleteVolumeResponse {})
    }

    async fn publish(
        &self,
        request: ControllerPublishVolumeRequest,
    ) -> Result<ControllerPublishVolumeResponse, Status> {
        required("volume_id", &request.volume_id)?;
        let node = required("node_id", &request.node_id)?.to_owned();
        let Some(wire) = &request.volume_capability else {
            return Err(status(Code::InvalidArgument, "volume_capability is missing in the request"));
        };
        let context = ordered(request.volume_context);
        let parameters = plan::publish_parameters(&context).map_err(|error| refused(&error))?;
        plan::validate_attachment(&capability(wire), parameters.max_shares)
            .map_err(|error| failure(Code::InvalidArgument, &error))?;
        let id = volume(&request.volume_id)?;
        self.volumes.learn_handle_casing(&id);
        let asked = Asked::of(&self.journal, Key::disk_id(id.disk()), Word::AttachAsked.about(node_key(&node)));
        let published = match self.volumes.publish(id.disk(), &node, parameters.caching).await {
            Ok(published) => published,
            Err(error) => {
                let status = self.reported_on_node(Rpc::Publish, id.disk(), &node, "attached to", &error);
                return Err(asked.failed(status, Some(&error.fault)));
            }
        };
        // What the context of the volume does not say of its disk, or not any more, the node learns from here.
        let described = match (parameters.told, id.disk()) {
            (Told::Nothing, _) | (_, DiskId::Blob(_)) => None,
            (Told::Performance | Told::All, DiskId::Managed(disk)) => match self.volumes.get(disk).await {
                Ok(found) => Some(found),
                Err(error) => return Err(asked.failed(failed(Rpc::Publish, &error), Some(&error.fault))),
            },
        };
        asked.done(Word::AnsweredLun.number(published.lun.get()));
        let mut publish_context =
            parameters.publish_context(published.lun, described.as_ref().map(|found| &*found.disk));
        let source = published.source.or_else(|| described.and_then(|found| found.disk.source.clone()));
        self.tell_line(source, &context, &mut publish_context).await;
        Ok(ControllerPublishVolumeResponse { publish_context: publish_context.into_iter().collect() })
    }

    async fn unpublish(
        &self,
        request: ControllerUnpublishVolumeRequest,
    ) -> Result<ControllerUnpublishVolumeResponse, Status> {
        let Some(id) = volume_or_none(&request.volume_id)? else {
            tracing::warn!(volume = request.volume_id, "this handle names no disk; it is attached nowhere");
            return Ok(ControllerUnpublishVolumeResponse {});
        };
        self.volumes.learn_handle_casing(&id);
        let node = Some(request.node_id.as_str()).filter(|node| !node.is_empty());
        let note = node.map_or(Word::DetachAsked.into(), |node| Word::DetachAsked.about(node_key(node)));
        let asked = Asked::of(&self.journal, Key::disk_id(id.disk()), note);
        if let Err(error) = self.volumes.unpublish(id.disk(), node).await {
            let status = match node {
                Some(node) => self.reported_on_node(Rpc::Unpublish, id.disk(), node, "detached from", &error),
                None => failed(Rpc::Unpublish, &error),
            };
            return Err(asked.failed(status, Some(&error.fault)));
        }
        asked.done(Word::Answered);
        Ok(ControllerUnpublishVolumeResponse {})
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
        let max_shares = match id.disk() {
            DiskId::Managed(disk) => self.volumes.get(disk).await.map(|found| found.disk.max_shares),
            DiskId::Blob(uri) => self.volumes.get_blob(uri).await.map(|_| 1),
        };
        let max_shares = max_shares.map_err(|error| failed(Rpc::Read, &error))?;
        let answer = match plan::validate_capabilities(&capabilities(&request.volume_capabilities), max_shares) {
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
        };
        Ok(answer)
    }

    async fn list(&self, request: ListVolumesRequest) -> Result<ListVolumesResponse, Status> {
        if self.list_volumes == ListVolumes::Off {
            return Err(unsupported("ListVolumes"));
        }
        let limit = max_entries(request.max_entries)?;
        match request.starting_token.as_str() {
            "" => {
                let volumes = self.volumes.list().await.map_err(|error| failed(Rpc::Read, &error))?;
                Ok(self.volume_pages.first(volumes, limit))
            }
            token => self.volume_pages.next(token, limit),
        }
    }

    async fn get(&self, request: ControllerGetVolumeRequest) -> Result<ControllerGetVolumeResponse, Status> {
        let id = volume(&request.volume_id)?;
        let disk = match id.disk() {
            DiskId::Managed(disk) => disk,
            DiskId::Blob(uri) => return self.get_blob(uri, request.volume_id.clone()).await,
        };
        let found = self.volumes.get(disk).await.map_err(|error| failed(Rpc::Read, &error))?;
        let published_node_ids = found.nodes.clone();
        let volume = Volume { volume_id: request.volume_id, ..wire_volume(&found) };
        Ok(ControllerGetVolumeResponse {
            volume: Some(volume),
            status: Some(controller_get_volume_response::VolumeStatus { published_node_ids }),
        })
    }

    async fn expand(&self, request: ControllerExpandVolumeRequest) -> Result<ControllerExpandVolumeResponse, Status> {
        required("volume_id", &request.volume_id)?;
        if request.capacity_range.is_none() {
            return Err(status(Code::InvalidArgument, "capacity_range is missing in the request"));
        }
        let (required_bytes, limit_bytes) = range(request.capacity_range.as_ref());
        let id = volume(&request.volume_id)?;
        self.volumes.learn_handle_casing(&id);
        // The number is for people: a request is in whole GiB but for its last part.
        let disk = match id.disk() {
            DiskId::Managed(disk) => disk,
            DiskId::Blob(uri) => return self.expand_blob(uri, (required_bytes, limit_bytes)).await,
        };
        let asked = Asked::new(&self.journal, disk, Word::ExpandAsked.number(required_bytes.div_euclid(1 << 30)));
        let size = match self.volumes.expand(disk, required_bytes, limit_bytes).await {
            Ok(size) => size,
            Err(ExpandError::Range(error)) => return Err(asked.failed(refused(&error), None)),
            Err(ExpandError::Snapshots(blocked)) => return Err(asked.failed(failure(blocked.code(), &blocked), None)),
            Err(ExpandError::Failed(error)) => {
                let what = format!("Disk {} cannot be expanded", disk.name());
                let regarding = Some(Regarding::ClaimOf(disk.into()));
                let status = self.reported(Rpc::Expand, regarding, &what, &error);
                return Err(asked.failed(status, Some(&error.fault)));
            }
        };
        asked.done(Word::Answered);
        Ok(ControllerExpandVolumeResponse { capacity_bytes: wire_bytes(size.bytes()), node_expansion_required: true })
    }
}

/// The caller's limit to the entries of a page, of which zero sets none.
fn max_entries(wire: i32) -> Result<usize, Status> {
    usize::try_from(wire)
        .map_err(|_| status(Code::InvalidArgument, format!("max_entries is {wire}: it cannot be negative")))
}

fn wire_volume(found: &Found) -> Volume {
    Volume {
        capacity_bytes: wire_bytes(found.disk.size.bytes()),
        volume_id: found.volume_id.clone(),
        ..Volume::default()
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

    async fn controller_publish_volume(
        &self,
        request: Request<ControllerPublishVolumeRequest>,
    ) -> Result<Response<ControllerPublishVolumeResponse>, Status> {
        let note = RpcNote::of(&request);
        note.about(&request.get_ref().volume_id);
        note.on(&request.get_ref().node_id);
        boxed(self.publish(request.into_inner())).await
    }

    async fn controller_unpublish_volume(
        &self,
        request: Request<ControllerUnpublishVolumeRequest>,
    ) -> Result<Response<ControllerUnpublishVolumeResponse>, Status> {
        let note = RpcNote::of(&request);
        note.about(&request.get_ref().volume_id);
        note.on(&request.get_ref().node_id);
        boxed(self.unpublish(request.into_inner())).await
    }

    async fn validate_volume_capabilities(
        &self,
        request: Request<ValidateVolumeCapabilitiesRequest>,
    ) -> Result<Response<ValidateVolumeCapabilitiesResponse>, Status> {
        RpcNote::of(&request).about(&request.get_ref().volume_id);
        boxed(self.validate(request.into_inner())).await
    }

    async fn list_volumes(
        &self,
        request: Request<ListVolumesRequest>,
    ) -> Result<Response<ListVolumesResponse>, Status> {
        boxed(self.list(request.into_inner())).await
    }

    async fn controller_get_volume(
        &self,
        request: Request<ControllerGetVolumeRequest>,
    ) -> Result<Response<ControllerGetVolumeResponse>, Status> {
        RpcNote::of(&request).about(&request.get_ref().volume_id);
        boxed(self.get(request.into_inner())).await
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
        let capabilities = CAPABILITIES
            .into_iter()
            .filter(|capability| self.list_volumes.claims(*capability))
            .map(|r#type| ControllerServiceCapability {
                r#type: Some(controller_service_capability::Type::Rpc(RpcCapability { r#type: r#type.into() })),
            })
            .collect();
        Ok(Response::new(ControllerGetCapabilitiesResponse { capabilities }))
    }

    async fn get_capacity(&self, _: Request<GetCapacityRequest>) -> Result<Response<GetCapacityResponse>, Status> {
        Err(unsupported("GetCapacity"))
    }

    async fn create_snapshot(
        &self,
        request: Request<CreateSnapshotRequest>,
    ) -> Result<Response<CreateSnapshotResponse>, Status> {
        RpcNote::of(&request).about(&request.get_ref().name);
        boxed(self.take_snapshot(request.into_inner())).await
    }

    async fn delete_snapshot(
        &self,
        request: Request<DeleteSnapshotRequest>,
    ) -> Result<Response<DeleteSnapshotResponse>, Status> {
        RpcNote::of(&request).about(&request.get_ref().snapshot_id);
        boxed(self.remove_snapshot(request.into_inner())).await
    }

    async fn list_snapshots(
        &self,
        request: Request<ListSnapshotsRequest>,
    ) -> Result<Response<ListSnapshotsResponse>, Status> {
        boxed(self.snapshots(request.into_inner())).await
    }

    async fn get_snapshot(
        &self,
        request: Request<GetSnapshotRequest>,
    ) -> Result<Response<GetSnapshotResponse>, Status> {
        RpcNote::of(&request).about(&request.get_ref().snapshot_id);
        boxed(self.one_snapshot(request.into_inner())).await
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
