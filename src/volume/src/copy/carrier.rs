//! The temporary snapshot that carries the content of a disk into another zone.

use std::collections::BTreeMap;

use lazuli_model::{
    ArmId, AzureTime, CopyMethod, Disk, ProvisioningState, Snapshot,
    disk_spec::{NetworkAccessPolicy, PublicNetworkAccess},
    disk_tags::{CARRIES_TO, CREATED_BY, REQUEST, SOURCE_VOLUME, is_made_by_driver, value},
    parameter::ParameterError,
    snapshot_spec::{SnapshotOrigin, SnapshotSpec, SourceIdentity},
    template::Templates,
};

use crate::{
    create::{Cloud, CreatePlan, Defaults},
    name, tags,
};

/// For how long a carrier whose disk does not exist may be that of a request that is still repeated. external-provisioner
/// pauses for minutes between two tries; a carrier that is deleted too early is made again.
const LIFE_SECONDS: u64 = 24 * 3_600;

/// The name of the carrier to a disk.
fn name(disk: &str) -> Result<String, ParameterError> {
    name::disk_name(&format!("carry_{disk}"), None, &Templates::default())
}

/// The carrier to a disk: in the disk's resource group. Azure makes incremental snapshots only in the subscription of their
/// source, so that one of another subscription is beside the source.
pub(super) fn id(disk: &ArmId, source: &ArmId) -> Result<ArmId, ParameterError> {
    let name = name(disk.name())?;
    let beside = if disk.subscription().eq_ignore_ascii_case(source.subscription()) { disk } else { source };
    ArmId::snapshot(beside.subscription(), beside.resource_group(), &name)
        .map_err(|error| ParameterError::invalid("name", disk.name(), error.to_string()))
}

/// What the PUT of the carrier says.
pub(super) fn spec(create: &CreatePlan, source: &Disk, defaults: &Defaults) -> SnapshotSpec {
    let request = create.spec.origin.request.clone();
    // Azure Stack has neither these properties nor incremental snapshots.
    let known = defaults.cloud == Cloud::Public;
    let mut tags = BTreeMap::new();
    tags::insert(&mut tags, CREATED_BY.0, CREATED_BY.1);
    tags::insert(&mut tags, REQUEST, &request);
    tags::insert(&mut tags, SOURCE_VOLUME, &tags::value_of(source.id.as_str()));
    tags::insert(&mut tags, CARRIES_TO, &target_value(&create.disk));
    SnapshotSpec {
        location: source.location.clone(),
        extended_location: defaults.extended_location.clone(),
        tags,
        method: CopyMethod::Copy,
        source: source.id.clone(),
        instant_access_minutes: None,
        incremental: known,
        network_access_policy: known.then_some(NetworkAccessPolicy::DenyAll),
        public_network_access: known.then_some(PublicNetworkAccess::Disabled),
        data_access_auth_mode: None,
        origin: SnapshotOrigin {
            request,
            volume: tags::value_of(source.id.as_str()),
            source: SourceIdentity::of(source.unique_id.as_deref()),
        },
    }
}

/// The value of the tag that names the disk. An id may be longer than a tag; its digest is that of any spelling.
fn target_value(disk: &ArmId) -> String {
    let text = tags::value_of(disk.as_str());
    if text == disk.as_str() { text } else { tags::value_of(disk.folded()) }
}

/// Whether a snapshot is the carrier to this disk. A person's snapshot may have its name or its tags.
pub fn is_carrier_to(snapshot: &Snapshot, disk: &ArmId) -> bool {
    let has_name = name(disk.name()).is_ok_and(|name| name.eq_ignore_ascii_case(snapshot.id.name()));
    let names_it = value(&snapshot.tags, CARRIES_TO).is_some_and(|to| to.eq_ignore_ascii_case(&target_value(disk)));
    has_name && names_it && is_made_by_driver(&snapshot.tags)
}

/// The carrier that a disk was made from, by what Azure says of the disk. DeleteVolume takes it along, once
/// [`is_carrier_to`] has confirmed a read of it.
pub fn carrier_of(disk: &Disk) -> Option<ArmId> {
    carrier_from(&disk.id, disk.source.as_deref()?)
}

/// The same of a disk of which only its source is known, in Azure's words.
pub fn carrier_from(disk: &ArmId, source: &str) -> Option<ArmId> {
    let source: ArmId = source.parse().ok()?;
    let has_name = name(disk.name()).is_ok_and(|name| name.eq_ignore_ascii_case(source.name()));
    (source.is_type("Microsoft.Compute/snapshots") && has_name).then_some(source)
}

/// The disk that a snapshot says to be the carrier to. `None` for other snapshots, and where the disk's id is longer than a
/// tag.
pub fn carrier_target(snapshot: &Snapshot) -> Option<ArmId> {
    let target: ArmId = value(&snapshot.tags, CARRIES_TO)?.parse().ok()?;
    (target.is_type("Microsoft.Compute/disks") && is_carrier_to(snapshot, &target)).then_some(target)
}

/// What a single read of a carrier's disk has shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetSeen<'a> {
    /// This disk.
    Disk(&'a Disk),
    /// There is none.
    Absent,
}

/// Whether a disk has all of its content, so that what it is made from may go.
pub(super) fn is_filled(disk: &Disk) -> bool {
    disk.provisioning_state == ProvisioningState::Succeeded && !disk.is_hydrating()
}

/// Whether a sweep deletes a snapshot: a carrier to `disk`, whose content has arrived or that no request waits for any more.
/// `now` is Azure's clock.
pub fn is_left_over(snapshot: &Snapshot, disk: &ArmId, target: TargetSeen<'_>, now: AzureTime) -> bool {
    is_carrier_to(snapshot, disk)
        && match target {
            TargetSeen::Disk(target) => is_filled(target),
            TargetSeen::Absent => {
                let is_at_rest = snapshot.is_complete() || snapshot.has_failed();
                is_at_rest && now.seconds_since(snapshot.created) >= LIFE_SECONDS
            }
        }
}
