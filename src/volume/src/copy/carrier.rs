//! The temporary snapshot that carries the content of a disk into another zone.

use std::{collections::BTreeMap, time::Duration};

use lazuli_model::{
    ArmId, AzureTime, CopyMethod, Disk, ProvisioningState, Snapshot,
    disk_spec::{NetworkAccessPolicy, PublicNetworkAccess},
    disk_tags::{CARRIES_TO, CREATED_BY, OF_CLUSTER, REQUEST, SOURCE_VOLUME, is_made_by_driver, value},
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

/// For how long such a carrier must have been seen at rest. The copy of a large disk takes longer than its life, and
/// the request that waits for it then needs minutes to come again.
const REST: Duration = Duration::from_secs(3_600);

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

/// The carrier over which a disk would be made from a source; `None` where none can have the name.
pub fn carrier_id(disk: &ArmId, source: &ArmId) -> Option<ArmId> {
    id(disk, source).ok()
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
    tags::insert(&mut tags, OF_CLUSTER, &cluster_value(&defaults.subscription, &defaults.resource_group));
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

/// The value of the tag that names a cluster.
fn cluster_value(subscription: &str, resource_group: &str) -> String {
    tags::value_of(&format!("/subscriptions/{subscription}/resourceGroups/{resource_group}").to_lowercase())
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

/// The disk that a snapshot says to be the carrier to, where it was made for the cluster of this resource group.
/// `None` for other snapshots, and where the disk's id is longer than a tag.
pub fn carrier_target(snapshot: &Snapshot, (subscription, resource_group): (&str, &str)) -> Option<ArmId> {
    let target: ArmId = value(&snapshot.tags, CARRIES_TO)?.parse().ok()?;
    let cluster = cluster_value(subscription, resource_group);
    let is_own = value(&snapshot.tags, OF_CLUSTER).is_some_and(|of| of.eq_ignore_ascii_case(&cluster));
    (is_own && target.is_type("Microsoft.Compute/disks") && is_carrier_to(snapshot, &target)).then_some(target)
}

/// What a single read of a carrier's disk has shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetSeen<'a> {
    /// This disk.
    Disk(&'a Disk),
    /// There is none. For so long the carrier is known to be at rest without one.
    Absent(Duration),
}

/// What a sweep does with a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leftover {
    /// Nothing: it is no carrier to the disk, or the disk is being filled from it, or it is being filled itself.
    InUse,
    /// It leaves it to a later sweep: the carrier is at rest, and a request may yet make its disk.
    Resting,
    /// It deletes it: the content has arrived, or no request waits for it any more.
    Over,
}

/// Whether a disk has all of its content, so that what it is made from may go.
pub(super) fn is_filled(disk: &Disk) -> bool {
    disk.provisioning_state == ProvisioningState::Succeeded && !disk.is_hydrating()
}

/// What a sweep does with a snapshot that may be a carrier to `disk`. `now` is Azure's clock.
pub fn leftover(snapshot: &Snapshot, disk: &ArmId, target: TargetSeen<'_>, now: AzureTime) -> Leftover {
    let is_at_rest = snapshot.is_complete() || snapshot.has_failed();
    match target {
        _ if !is_carrier_to(snapshot, disk) => Leftover::InUse,
        TargetSeen::Disk(target) if is_filled(target) => Leftover::Over,
        TargetSeen::Disk(_) => Leftover::InUse,
        TargetSeen::Absent(_) if !is_at_rest => Leftover::InUse,
        TargetSeen::Absent(rested) if rested >= REST && now.seconds_since(snapshot.created) >= LIFE_SECONDS => {
            Leftover::Over
        }
        TargetSeen::Absent(_) => Leftover::Resting,
    }
}
