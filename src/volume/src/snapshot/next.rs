//! What comes next of a snapshot: of the one that is asked for, and of the one that is to go.

use lazuli_model::{
    ArmId, CopyMethod, Snapshot,
    disk_tags::{self, REQUEST, SOURCE_VOLUME, value},
    fault::Code,
    parameter::ParameterError,
    snapshot_spec::{SnapshotMismatch, SnapshotSpec, SourceIdentity},
};

use super::{Route, SnapshotFailed, SnapshotPlan, SnapshotView, is_ready, local_name, snapshot_name};

/// The snapshots of a request, each by a read that was sent after the request came.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SnapshotsSeen {
    /// The one that is asked for.
    pub target: Option<Snapshot>,
    /// The local one that the one in another region is a copy of.
    pub local: Option<Snapshot>,
}

/// What comes next of a snapshot that is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NextSnapshot {
    /// PUT this.
    Create {
        /// The snapshot.
        snapshot: ArmId,
        /// What to make.
        spec: Box<SnapshotSpec>,
    },
    /// DELETE this local snapshot: its copy is complete.
    DeleteLocal(ArmId),
    /// Nothing is to be written now: answer this.
    Answer(SnapshotView),
}

/// Why a snapshot cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotRefusal {
    /// A snapshot of its name exists that is another one.
    #[error(transparent)]
    Mismatch(#[from] SnapshotMismatch),
    /// There is no disk to take it of.
    #[error("there is no disk {0} to take a snapshot of")]
    SourceGone(ArmId),
}

impl SnapshotRefusal {
    /// The gRPC code.
    pub fn code(&self) -> Code {
        match self {
            Self::Mismatch(mismatch) => mismatch.code(),
            Self::SourceGone(_) => Code::NotFound,
        }
    }
}

/// What comes next of a snapshot, by what is there.
///
/// One that Azure has failed to make or to fill is answered as not ready, with the failure ([`SnapshotView::failure`]). An
/// error would keep its VolumeSnapshot from being deleted: external-snapshotter sends no DeleteSnapshot before a CreateSnapshot
/// was answered with OK or with a final code, and forgets the snapshot after a final code.
///
/// # Errors
/// Why nothing can: [`SnapshotRefusal::code`].
pub fn next(plan: &SnapshotPlan, seen: &SnapshotsSeen) -> Result<NextSnapshot, SnapshotRefusal> {
    match &plan.route {
        Route::InRegion(spec) => match &seen.target {
            Some(target) => {
                in_region(spec, target).matches(target)?;
                Ok(plan.answer(target, is_ready(target)))
            }
            None => plan.create(&plan.snapshot, spec),
        },
        Route::AcrossRegions { local, of_disk, copy } => match (&seen.target, &seen.local) {
            (Some(target), there) => {
                copy.matches(target)?;
                let complete = is_ready(target) && target.is_complete();
                match there {
                    // Another snapshot of that name stays.
                    Some(there) if complete && is_local_of(there, plan.snapshot.name(), Some(target)) => {
                        Ok(NextSnapshot::DeleteLocal(local.clone()))
                    }
                    _ => Ok(plan.answer(target, complete)),
                }
            }
            (None, Some(there)) => {
                first_cut(of_disk, there).matches(there)?;
                match there.is_complete() {
                    true => Ok(NextSnapshot::Create { snapshot: plan.snapshot.clone(), spec: copy.clone() }),
                    false => Ok(plan.answer(there, false)),
                }
            }
            (None, None) => plan.create(local, of_disk),
        },
    }
}

impl SnapshotPlan {
    /// Whether something of the request is there.
    pub fn has_any(&self, seen: &SnapshotsSeen) -> bool {
        let is = |there: &Snapshot, spec: &SnapshotSpec| spec.matches(there).is_ok();
        let (target, local) = (seen.target.as_ref(), seen.local.as_ref());
        match &self.route {
            Route::InRegion(spec) => target.is_some_and(|there| is(there, &in_region(spec, there))),
            Route::AcrossRegions { of_disk, copy, .. } => {
                target.is_some_and(|there| is(there, copy))
                    || local.is_some_and(|there| is(there, &first_cut(of_disk, there)))
            }
        }
    }

    /// The refusal of a class whose region Azure has refused with this code. `None` where the plan names no other region.
    pub fn region_refused(&self, code: &str) -> Option<ParameterError> {
        let Route::AcrossRegions { copy, of_disk, .. } = &self.route else { return None };
        Some(ParameterError::invalid(
            "location",
            &copy.location,
            format!(
                "Azure has answered {code}: it makes no snapshot of this subscription there; allowed is {}, or another region \
                 of az account list-locations",
                of_disk.location
            ),
        ))
    }

    fn create(&self, snapshot: &ArmId, spec: &SnapshotSpec) -> Result<NextSnapshot, SnapshotRefusal> {
        if self.source == SourceIdentity::Gone {
            return Err(SnapshotRefusal::SourceGone(self.volume.clone()));
        }
        Ok(NextSnapshot::Create { snapshot: snapshot.clone(), spec: Box::new(spec.clone()) })
    }

    /// The answer always names the snapshot that is asked for, whichever of the two shows how far it is.
    fn answer(&self, shown: &Snapshot, is_ready: bool) -> NextSnapshot {
        NextSnapshot::Answer(SnapshotView {
            snapshot: self.snapshot.clone(),
            source_volume_id: self.volume.as_str().to_owned(),
            size_bytes: shown.size.bytes(),
            created: shown.created,
            is_ready,
            failure: SnapshotFailed::of(shown),
        })
    }
}

/// The codes by which Azure says that a region does not exist, or is not for this subscription or type (source: Azure
/// Resource Manager's common deployment errors).
const REGION_REFUSED: [&str; 5] = [
    "LocationNotAvailableForResourceType",
    "LocationNotAvailable",
    "InvalidLocation",
    "InvalidResourceLocationName",
    "NoRegisteredProviderFound",
];

/// Whether Azure's code for a copy into another region says that it never makes one there. The local snapshot was made by the
/// same version of the same interface, so that a provider that is not registered is one of that region.
pub fn is_region_refusal(code: &str) -> bool {
    REGION_REFUSED.iter().any(|refused| refused.eq_ignore_ascii_case(code))
}

/// By what a local snapshot is compared that is there. One that carries the request's tag is what an earlier call has taken for
/// this request, and external-snapshotter may know it: it holds the content of that moment, whichever disk has the source's
/// name by now. Only of one without the tag must Azure show that it is of the disk of today.
fn first_cut(of_disk: &SnapshotSpec, there: &Snapshot) -> SnapshotSpec {
    let mut spec = of_disk.clone();
    if value(&there.tags, REQUEST) == Some(spec.origin.request.as_str()) {
        spec.origin.source = SourceIdentity::Unknown;
    }
    spec
}

/// By what a snapshot of the disk's region is compared that is there. Of one that Azure has failed to make nothing becomes,
/// whichever disk has the source's name by now: it is to be told, so that it is deleted.
fn in_region(spec: &SnapshotSpec, there: &Snapshot) -> SnapshotSpec {
    if there.has_failed() { first_cut(spec, there) } else { spec.clone() }
}

/// Whether a snapshot is the local one from which one in another region was copied, or was to be. A person's snapshot may
/// have the same name.
fn is_local_of(there: &Snapshot, target_name: &str, target: Option<&Snapshot>) -> bool {
    let has_name = local_name(target_name).is_ok_and(|name| name.eq_ignore_ascii_case(there.id.name()));
    let is_of_request = value(&there.tags, REQUEST)
        .is_none_or(|request| snapshot_name(request).is_ok_and(|name| name.eq_ignore_ascii_case(target_name)));
    let volume = |snapshot: &Snapshot| value(&snapshot.tags, SOURCE_VOLUME).map(str::to_ascii_lowercase);
    let is_of_volume = target.is_none_or(|target| volume(target) == volume(there));
    has_name
        && there.method == Some(CopyMethod::Copy)
        && disk_tags::is_made_by_driver(&there.tags)
        && is_of_request
        && is_of_volume
}

/// What comes next of the deletion of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NextDeletion {
    /// Look for this local snapshot, and ask again.
    ReadLocal(ArmId),
    /// DELETE this, and ask again.
    Delete(ArmId),
    /// DELETE this. Nothing is left then.
    DeleteLast(ArmId),
    /// Nothing of it is left.
    Done,
}

/// What comes next of the deletion of `snapshot`. `local` is `None` while it has not been looked for.
///
/// The copy goes before the local snapshot: a deletion that is killed in between is asked for again by the copy's id, and
/// finds the local one by its name. A snapshot of the disk's own region has no local one, and costs no read more.
pub fn next_deletion(snapshot: &ArmId, target: Option<&Snapshot>, local: Option<Option<&Snapshot>>) -> NextDeletion {
    match (target, local) {
        (Some(target), _) if target.method == Some(CopyMethod::CopyStart) => NextDeletion::Delete(snapshot.clone()),
        (Some(_), _) => NextDeletion::DeleteLast(snapshot.clone()),
        (None, None) => {
            let local = local_name(snapshot.name())
                .ok()
                .and_then(|name| ArmId::snapshot(snapshot.subscription(), snapshot.resource_group(), &name).ok());
            local.map_or(NextDeletion::Done, NextDeletion::ReadLocal)
        }
        (None, Some(Some(there))) if is_local_of(there, snapshot.name(), None) => {
            NextDeletion::DeleteLast(there.id.clone())
        }
        (None, Some(_)) => NextDeletion::Done,
    }
}
