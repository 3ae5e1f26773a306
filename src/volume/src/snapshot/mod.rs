//! From a CreateSnapshot request to the snapshot it asks for, and what comes next of it.
//!
//! A snapshot in the disk's own region is one PUT. Azure makes none in another region: there the snapshot is a copy of a
//! local one, which goes once the copy is complete.
//!
//! ```text
//!  no local, no copy ──PUT local──▶ local ──complete, PUT copy──▶ local and copy ──copy complete, DELETE local──▶ copy
//! ```
//!
//! Each state is read from Azure, so a process that is killed between any two writes leaves what the next one goes on
//! from ([`next`]).

mod limits;
mod next;
mod parameters;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, ops::RangeInclusive};

use lazuli_model::{
    ArmId, AzureTime, CopyMethod, DataAccessAuthMode, Disk, Snapshot,
    disk_spec::{NetworkAccessPolicy, PublicNetworkAccess, canonical_region},
    disk_tags::{CARRIES_TO, CREATED_BY, FOR_SNAPSHOT, FOR_SNAPSHOT_NAMESPACE, REQUEST, SOURCE_VOLUME, value},
    fault::Fault,
    parameter::{Parameter, ParameterError, Parameters},
    snapshot_spec::{SnapshotOrigin, SnapshotSpec, SourceIdentity},
    tags::LONGEST_VALUE,
    template::Templates,
};

use super::{
    create::{
        Cloud, Defaults,
        place::{check_source_group, location, resource_id},
    },
    name, sku, tags,
};

pub use limits::{
    AZURE_LIMITS, GrowthBlocked, SnapshotLimit, SnapshotLimits, SnapshotsDepend, fills_snapshots_late, may_delete,
    may_grow,
};
pub use next::{NextDeletion, NextSnapshot, SnapshotRefusal, SnapshotsSeen, is_region_refusal, next, next_deletion};
pub use parameters::SNAPSHOT_PARAMETERS;

/// For how many minutes a snapshot may give instant access (source: disks-instant-access-snapshots).
const INSTANT_ACCESS_MINUTES: RangeInclusive<u32> = 60..=300;

/// Tags that a class cannot set: adoption and ListSnapshots rely on them.
const RESERVED: [&str; 6] = [CREATED_BY.0, REQUEST, SOURCE_VOLUME, FOR_SNAPSHOT, FOR_SNAPSHOT_NAMESPACE, CARRIES_TO];

/// A CreateSnapshot request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotRequest {
    /// The name of the request: `snapshot-<uid>`.
    pub name: String,
    /// The volume that the snapshot is taken of, as the request spells it.
    pub volume: ArmId,
    /// The parameters of the VolumeSnapshotClass.
    pub parameters: BTreeMap<String, String>,
}

/// What a single read of the source has shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceSeen<'a> {
    /// This disk.
    Disk(&'a Disk),
    /// There is no such disk any more. A snapshot that was taken of it stays.
    Gone,
}

impl SourceSeen<'_> {
    fn identity(self) -> SourceIdentity {
        match self {
            Self::Disk(disk) => SourceIdentity::of(disk.unique_id.as_deref()),
            Self::Gone => SourceIdentity::Gone,
        }
    }
}

/// The snapshot that a request asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotPlan {
    /// Its id: the CSI snapshot id, from the first answer on.
    pub snapshot: ArmId,
    /// The volume, as the request spells it.
    pub volume: ArmId,
    /// How it is made.
    pub route: Route,
    /// Whether the source was there when it was read.
    pub source: SourceIdentity,
    /// What a human should know of, a sentence each: the request is carried out differently from what was written.
    pub warnings: Vec<String>,
}

/// How a snapshot is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route {
    /// Of the disk itself, in its region.
    InRegion(Box<SnapshotSpec>),
    /// As a copy of a local snapshot, in another region.
    AcrossRegions {
        /// The id of the local snapshot.
        local: ArmId,
        /// What the PUT of the local snapshot says.
        of_disk: Box<SnapshotSpec>,
        /// What the PUT of the copy says.
        copy: Box<SnapshotSpec>,
    },
}

/// What CSI is told of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotView {
    /// Its id.
    pub snapshot: ArmId,
    /// The volume that it was taken of; empty where nothing says it.
    pub source_volume_id: String,
    /// `size_bytes`: the least size of a disk that is made from it, in whole GiB as the Go driver answers it.
    /// external-provisioner refuses a claim below it.
    pub size_bytes: u64,
    /// When it was taken.
    pub created: AzureTime,
    /// Whether disks can be made from it.
    pub is_ready: bool,
    /// Why it never becomes ready.
    pub failure: Option<SnapshotFailed>,
}

/// A snapshot that Azure has failed to make or to fill. It stays until its VolumeSnapshot is deleted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("Azure has failed to make the snapshot {snapshot} ({why})")]
pub struct SnapshotFailed {
    /// The snapshot: the one that is asked for, or the local one that its content was to come from.
    pub snapshot: ArmId,
    /// Azure's word.
    pub why: String,
}

impl SnapshotFailed {
    fn of(snapshot: &Snapshot) -> Option<Self> {
        let state = || format!("{:?}", snapshot.provisioning_state).to_lowercase();
        let why = || snapshot.copy_error.clone().unwrap_or_else(state);
        snapshot.has_failed().then(|| Self { snapshot: snapshot.id.clone(), why: why() })
    }
}

impl SnapshotView {
    /// Of a snapshot that a list or a read shows.
    pub fn of(snapshot: &Snapshot) -> Self {
        Self {
            snapshot: snapshot.id.clone(),
            source_volume_id: source_volume(snapshot),
            size_bytes: snapshot.size.bytes(),
            created: snapshot.created,
            is_ready: is_ready(snapshot),
            failure: SnapshotFailed::of(snapshot),
        }
    }
}

/// Whether disks can be made from a snapshot. A copy in another region has its content from nowhere else, so that it is not
/// ready before it is complete, whatever the Go driver has written about instant access into it.
fn is_ready(snapshot: &Snapshot) -> bool {
    snapshot.is_ready() && (snapshot.method != Some(CopyMethod::CopyStart) || snapshot.is_complete())
}

/// The volume that a snapshot was taken of. Azure names the source of a snapshot; of a copy in another region that is the
/// local snapshot, and a tag names the volume.
fn source_volume(snapshot: &Snapshot) -> String {
    let tag = || value(&snapshot.tags, SOURCE_VOLUME).map(str::to_owned);
    let source = || snapshot.source.clone();
    let found = match snapshot.method {
        Some(CopyMethod::CopyStart) => tag().or_else(source),
        _ => source().or_else(tag),
    };
    found.unwrap_or_default()
}

/// The name of the snapshot of a request: the request's, or a digest of one that Azure refuses.
fn snapshot_name(request: &str) -> Result<String, ParameterError> {
    name::disk_name(request, None, &Templates::default())
}

/// The id of the snapshot that a request asks for; `None` where no plan would have one. It does not depend on the source.
pub fn asked_snapshot(request: &SnapshotRequest, defaults: &Defaults) -> Option<ArmId> {
    let parameters = Parameters::written(&request.parameters).ok()?;
    snapshot_id(request, &parameters, defaults).ok()
}

/// What a person is to know of the class of a snapshot that is taken: what counts otherwise than it is written, a sentence each.
pub fn taken_otherwise(request: &SnapshotRequest, defaults: &Defaults) -> Vec<String> {
    let planned = plan_snapshot(request, defaults, SourceSeen::Gone);
    let (Ok(plan), Ok(parameters)) = (planned, Parameters::written(&request.parameters)) else { return Vec::new() };
    let empty = parameters.iter().filter(|(_, parameter)| parameter.value.is_empty());
    let told = empty.map(|(_, parameter)| format!("parameter {} is empty and counts as not given", parameter.key));
    plan.warnings.iter().cloned().chain(told).collect()
}

/// Which resource group Azure does not have, where that is why a snapshot of the disk was not taken, and what names it. It may
/// be the disk's own.
pub fn missing_scope(fault: &Fault, snapshot: &ArmId, disk: &ArmId) -> Option<String> {
    let group = |id: &ArmId| format!("resource group {} in subscription {}", id.resource_group(), id.subscription());
    let (of_class, of_disk) = (group(snapshot), group(disk));
    let is_one = of_class.eq_ignore_ascii_case(&of_disk);
    let named = "which the parameters resourceGroup and subscriptionID of the VolumeSnapshotClass name";
    matches!(fault, Fault::ScopeNotFound).then(|| match is_one {
        true => format!("{of_class}, {named}, or else the disk's"),
        false => format!("{of_class}, {named}, or {of_disk}, which is the disk's"),
    })
}

/// The name of the local snapshot of one in another region, as the Go driver gives it.
fn local_name(snapshot: &str) -> Result<String, ParameterError> {
    snapshot_name(&format!("local_{snapshot}"))
}

/// Which snapshot the request asks for. The same request gives the same plan, whatever the order and the letter case of its
/// parameters' keys.
///
/// # Errors
/// The first value that cannot be used. Nothing has been sent then, and the code is final.
pub fn plan_snapshot(
    request: &SnapshotRequest,
    defaults: &Defaults,
    source: SourceSeen<'_>,
) -> Result<SnapshotPlan, ParameterError> {
    if request.name.is_empty() {
        return Err(ParameterError::invalid("name", "", "the request needs a name"));
    }
    let parameters = Parameters::written(&request.parameters)?;
    for (folded, parameter) in parameters.iter() {
        if !parameters::is_known(folded) {
            let allowed = parameters::allowed();
            return Err(parameter.refuse(format!("there is no parameter of this name; allowed are {allowed}")));
        }
    }
    let mut warnings = Vec::new();
    let disk = &request.volume;
    check_source_group("source_volume_id", disk, defaults)?;
    let incremental = incremental(&parameters, defaults.cloud, source, &mut warnings)?;
    let access = access(&parameters, defaults.cloud, source, &mut warnings)?;
    note_user_agent(&parameters, &mut warnings);
    let snapshot = snapshot_id(request, &parameters, defaults)?;
    check_subscription(&parameters, incremental, &snapshot, disk)?;
    let tags = snapshot_tags(request, &parameters, &mut warnings)?;

    let home = match source {
        SourceSeen::Disk(disk) if canonical_region(&disk.location) != canonical_region(&defaults.location) => {
            disk.location.clone()
        }
        _ => defaults.location.clone(),
    };
    if home.is_empty() {
        return Err(ParameterError::invalid("location", "", "allowed is the name of a region, and none is configured"));
    }
    let origin = |source| SnapshotOrigin {
        request: tags::value_of(&request.name),
        volume: volume_value(&request.volume),
        source,
    };
    let of_disk = Box::new(SnapshotSpec {
        location: home.clone(),
        extended_location: defaults.extended_location.clone(),
        tags: tags.clone(),
        method: CopyMethod::Copy,
        source: disk.clone(),
        instant_access_minutes: access.instant_minutes,
        incremental,
        network_access_policy: access.policy,
        public_network_access: access.public,
        data_access_auth_mode: access.auth_mode,
        origin: origin(source.identity()),
    });
    let route = match location(&parameters)? {
        Some(there) if canonical_region(there.value) != canonical_region(&home) => {
            if !incremental {
                return Err(there.refuse(format!(
                    "only an incremental snapshot can be copied into another region than {home}; allowed is {home}, or any \
                     region without incremental: \"false\""
                )));
            }
            let local =
                ArmId::snapshot(snapshot.subscription(), snapshot.resource_group(), &local_name(snapshot.name())?)
                    .map_err(|error| there.refuse(error.to_string()))?;
            let copy = Box::new(SnapshotSpec {
                location: there.value.to_owned(),
                // Edge zones are of the cluster's own region.
                extended_location: None,
                method: CopyMethod::CopyStart,
                source: local.clone(),
                // It would call the copy ready before its content is there.
                instant_access_minutes: None,
                origin: origin(SourceIdentity::Gone),
                ..(*of_disk).clone()
            });
            Route::AcrossRegions { local, of_disk, copy }
        }
        _ => Route::InRegion(of_disk),
    };
    Ok(SnapshotPlan { snapshot, volume: request.volume.clone(), route, source: source.identity(), warnings })
}

/// The Go driver takes exactly `false` for a full snapshot.
fn incremental(
    parameters: &Parameters<'_>,
    cloud: Cloud,
    source: SourceSeen<'_>,
    warnings: &mut Vec<String>,
) -> Result<bool, ParameterError> {
    let parameter = parameters.get("incremental");
    if cloud == Cloud::AzureStack {
        if let Some(parameter) = parameter.filter(|parameter| parameter.value != "false") {
            warnings.push(format!(
                "parameter {} is {:?}, but Azure Stack has full snapshots alone, and one is made",
                parameter.key, parameter.value
            ));
        }
        return Ok(false);
    }
    let Some(parameter) = parameter else { return Ok(true) };
    match (parameter.value, source) {
        ("false", SourceSeen::Disk(disk)) if disk.sku.is_some_and(sku::has_own_performance) => {
            let sku = disk.sku.map_or("this type", |sku| sku.as_str());
            Err(parameter.refuse(format!("a disk of {sku} has incremental snapshots alone; allowed is true")))
        }
        ("false", _) => Ok(false),
        ("true", _) => Ok(true),
        (other, _) => {
            warnings.push(format!(
                "parameter {} is {other:?} and counts as true: allowed are true and false",
                parameter.key
            ));
            Ok(true)
        }
    }
}

/// Who may read the content, and when.
struct Access {
    instant_minutes: Option<u32>,
    policy: Option<NetworkAccessPolicy>,
    public: Option<PublicNetworkAccess>,
    auth_mode: Option<DataAccessAuthMode>,
}

fn access(
    parameters: &Parameters<'_>,
    cloud: Cloud,
    source: SourceSeen<'_>,
    warnings: &mut Vec<String>,
) -> Result<Access, ParameterError> {
    let given = ["instantaccessdurationminutes", "networkaccesspolicy", "publicnetworkaccess", "dataaccessauthmode"]
        .map(|key| parameters.get(key));
    let [minutes, policy, public, auth_mode] = given;
    let found = Access {
        instant_minutes: minutes.map(instant_minutes).transpose()?,
        policy: policy.map(network_policy).transpose()?,
        public: public.map(|parameter| parameter.name()).transpose()?,
        auth_mode: auth_mode.map(|parameter| parameter.name()).transpose()?,
    };
    if cloud == Cloud::Public {
        if let (Some(parameter), SourceSeen::Disk(Disk { sku: Some(sku), .. })) = (minutes, source)
            && !sku::has_own_performance(*sku)
        {
            return Err(parameter.refuse(format!(
                "the disk is {sku}, whose snapshots are ready at once without it; allowed with PremiumV2_LRS and UltraSSD_LRS"
            )));
        }
        return Ok(found);
    }
    for parameter in given.into_iter().flatten() {
        warnings.push(format!(
            "parameter {} is {:?}, which Azure Stack does not know; it is left out",
            parameter.key, parameter.value
        ));
    }
    Ok(Access { instant_minutes: None, policy: None, public: None, auth_mode: None })
}

fn instant_minutes(parameter: Parameter<'_>) -> Result<u32, ParameterError> {
    let allowed = format!(
        "allowed is a whole number from {} to {}",
        INSTANT_ACCESS_MINUTES.start(),
        INSTANT_ACCESS_MINUTES.end()
    );
    let minutes: u32 = parameter.number(&allowed)?;
    if INSTANT_ACCESS_MINUTES.contains(&minutes) { Ok(minutes) } else { Err(parameter.refuse(allowed)) }
}

/// A private policy needs a disk access resource, which a VolumeSnapshotClass cannot name.
fn network_policy(parameter: Parameter<'_>) -> Result<NetworkAccessPolicy, ParameterError> {
    match parameter.name() {
        Ok(NetworkAccessPolicy::AllowPrivate) => Err(parameter.refuse(format!(
            "it needs a disk access resource, and no parameter of a VolumeSnapshotClass names one; allowed are {}",
            parameters::NETWORK_POLICIES
        ))),
        Ok(policy) => Ok(policy),
        Err(_) => {
            Err(parameter.refuse(format!("allowed are {}, in exactly this spelling", parameters::NETWORK_POLICIES)))
        }
    }
}

fn note_user_agent(parameters: &Parameters<'_>, warnings: &mut Vec<String>) {
    if let Some(parameter) = parameters.get("useragent") {
        warnings.push(format!(
            "parameter {} is {:?}: it is sent with no request; the cloud configuration's userAgent is",
            parameter.key, parameter.value
        ));
    }
}

/// In the disk's own subscription and group, unless the class says otherwise. With a group and no subscription it is the
/// cluster's, as with the Go driver.
fn snapshot_id(
    request: &SnapshotRequest,
    parameters: &Parameters<'_>,
    defaults: &Defaults,
) -> Result<ArmId, ParameterError> {
    let (disk, name) = (&request.volume, snapshot_name(&request.name)?);
    let subscription = match parameters.get("resourcegroup") {
        Some(_) => defaults.subscription.as_str(),
        None => disk.subscription(),
    };
    resource_id(parameters, (subscription, disk.resource_group()), defaults, |subscription, group| {
        ArmId::snapshot(subscription, group, &name)
    })
}

/// Whether a text has the form of a subscription's id.
fn is_guid(text: &str) -> bool {
    let groups: Vec<&str> = text.split('-').collect();
    let is_hex = |group: &&str| group.bytes().all(|byte| byte.is_ascii_hexdigit());
    groups.iter().map(|group| group.len()).eq([8, 4, 4, 4, 12]) && groups.iter().all(is_hex)
}

/// Azure makes no incremental snapshot outside of the disk's subscription (source: disks-incremental-snapshots).
fn check_subscription(
    parameters: &Parameters<'_>,
    incremental: bool,
    snapshot: &ArmId,
    disk: &ArmId,
) -> Result<(), ParameterError> {
    if snapshot.subscription().eq_ignore_ascii_case(disk.subscription()) {
        return Ok(());
    }
    if let Some(parameter) = parameters.get("subscriptionid").filter(|parameter| !is_guid(parameter.value)) {
        return Err(parameter.refuse(format!(
            "it is no id of a subscription, which is a GUID; allowed is {}, that of the disk",
            disk.subscription()
        )));
    }
    if !incremental {
        return Ok(());
    }
    let allowed = format!(
        "an incremental snapshot is made only in the subscription of its disk; allowed is {}, or incremental: \"false\"",
        disk.subscription()
    );
    Err(parameters.get("subscriptionid").map_or_else(
        || ParameterError::invalid("subscriptionID", snapshot.subscription(), allowed.clone()),
        |parameter| parameter.refuse(allowed.clone()),
    ))
}

/// The value of the tag `source_volume_id`. An id may be longer than a tag; its digest is that of any spelling.
fn volume_value(volume: &ArmId) -> String {
    match volume.as_str().chars().count() > LONGEST_VALUE {
        true => name::digest_name(volume.folded()),
        false => volume.as_str().to_owned(),
    }
}

fn snapshot_tags(
    request: &SnapshotRequest,
    parameters: &Parameters<'_>,
    warnings: &mut Vec<String>,
) -> Result<BTreeMap<String, String>, ParameterError> {
    let mut tags = BTreeMap::new();
    tags::insert(&mut tags, CREATED_BY.0, CREATED_BY.1);
    tags::insert(&mut tags, REQUEST, &tags::value_of(&request.name));
    tags::insert(&mut tags, SOURCE_VOLUME, &volume_value(&request.volume));
    for (tag, key) in [
        (FOR_SNAPSHOT, "csi.storage.k8s.io/volumesnapshot/name"),
        (FOR_SNAPSHOT_NAMESPACE, "csi.storage.k8s.io/volumesnapshot/namespace"),
    ] {
        if let Some(parameter) = parameters.get(key) {
            tags::insert(&mut tags, tag, &tags::value_of(parameter.value));
        }
    }
    tags::add_written(&mut tags, parameters, None, &RESERVED, warnings)?;
    tags::check_number(parameters, &tags)?;
    Ok(tags)
}
