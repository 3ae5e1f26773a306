//! The snapshot to make, as typed values, and whether a snapshot that exists is that snapshot.

use std::collections::BTreeMap;

use crate::{
    ArmId, CopyMethod, DataAccessAuthMode, Snapshot,
    disk_spec::{ExtendedLocation, NetworkAccessPolicy, PublicNetworkAccess, canonical_region},
    disk_tags as tags,
    fault::Code,
};

/// Everything that the PUT of a snapshot says.
///
/// A field that is `None` is left out of the body, and Azure's default counts. The paths are those of the snapshots API's
/// JSON body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotSpec {
    /// `location`, as it was configured or written.
    pub location: String,
    /// `extendedLocation`
    pub extended_location: Option<ExtendedLocation>,
    /// `tags`
    pub tags: BTreeMap<String, String>,
    /// `properties.creationData.createOption`
    pub method: CopyMethod,
    /// `properties.creationData.sourceResourceId`, as the caller spells it.
    pub source: ArmId,
    /// `properties.creationData.instantAccessDurationMinutes`
    pub instant_access_minutes: Option<u32>,
    /// `properties.incremental`
    pub incremental: bool,
    /// `properties.networkAccessPolicy`
    pub network_access_policy: Option<NetworkAccessPolicy>,
    /// `properties.publicNetworkAccess`
    pub public_network_access: Option<PublicNetworkAccess>,
    /// `properties.dataAccessAuthMode`
    pub data_access_auth_mode: Option<DataAccessAuthMode>,
    /// In the body only as tags: for what the snapshot is made.
    pub origin: SnapshotOrigin,
}

/// For which request a snapshot is made, and what shows it on a snapshot that exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotOrigin {
    /// The value of the tag `lazuli-request`.
    pub request: String,
    /// The value of the tag `source_volume_id`.
    pub volume: String,
    /// Which disk or snapshot has the source's name now.
    pub source: SourceIdentity,
}

/// Which disk or snapshot has a name now, as far as a single read shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceIdentity {
    /// The one that Azure gave this id when it was made.
    UniqueId(String),
    /// None: it has been deleted. A snapshot that was taken of it before is as good as ever.
    Gone,
    /// Azure does not say it, or it was not read.
    Unknown,
}

impl SourceIdentity {
    /// Of a source that was read.
    pub fn of(unique_id: Option<&str>) -> Self {
        unique_id.map_or(Self::Unknown, |id| Self::UniqueId(id.to_owned()))
    }

    /// Whether what was made of a source with this id was made of another one.
    fn differs(&self, made_of: Option<&str>) -> bool {
        match (self, made_of) {
            (Self::UniqueId(now), Some(then)) => !now.eq_ignore_ascii_case(then),
            (Self::Gone | Self::Unknown, _) | (_, None) => false,
        }
    }
}

/// Why a snapshot of the same name is not the snapshot that is asked for: `ALREADY_EXISTS`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotMismatch {
    /// It differs from the request.
    #[error("the snapshot {snapshot} exists with {property} {existing}, but {requested} is requested")]
    Property {
        /// The snapshot.
        snapshot: ArmId,
        /// The property.
        property: &'static str,
        /// What the snapshot has.
        existing: String,
        /// What the request says.
        requested: String,
    },
    /// It was taken of another disk of the same name.
    #[error(
        "the snapshot {snapshot} exists and was taken of an earlier disk with the name of {source_id}: that had the unique id \
         {existing}, and the disk of today has {now}; take another snapshot"
    )]
    SourceRemade {
        /// The snapshot.
        snapshot: ArmId,
        /// The source.
        source_id: ArmId,
        /// The unique id of what it was taken of.
        existing: String,
        /// The unique id of what has the source's name now.
        now: String,
    },
    /// Nothing shows that it was made for this request.
    #[error(
        "the snapshot {snapshot} exists and was not made for this request: {reason}; delete it, or use another name"
    )]
    Origin {
        /// The snapshot.
        snapshot: ArmId,
        /// What is missing or different.
        reason: String,
    },
}

impl SnapshotMismatch {
    /// The gRPC code: final for external-snapshotter, for a repetition would fail in the same way.
    pub fn code(&self) -> Code {
        Code::AlreadyExists
    }
}

/// Whether two values of the tag `source_volume_id` name one volume: Azure ignores the letter case of ids.
fn is_volume(one: &str, other: &str) -> bool {
    one.eq_ignore_ascii_case(other)
}

impl SnapshotSpec {
    /// Whether a snapshot that exists under the name is what a repeated request asks for.
    ///
    /// It must have been made for this request, of this source, in this region and of this kind. Of a disk that was
    /// deleted and made again under its name, an older snapshot is not the one that is asked for. The source of a copy in
    /// another region is a local snapshot that goes when the copy is there, so the copy's tag names the volume instead.
    /// Network access and other tags are not compared: they may have been changed on purpose since.
    ///
    /// # Errors
    /// The first difference.
    pub fn matches(&self, snapshot: &Snapshot) -> Result<(), SnapshotMismatch> {
        self.check_origin(snapshot)?;
        let differs = |property, existing: String, requested: String| {
            Err(SnapshotMismatch::Property { snapshot: snapshot.id.clone(), property, existing, requested })
        };
        let source: Option<ArmId> = snapshot.source.as_deref().and_then(|source| source.parse().ok());
        if source.as_ref() != Some(&self.source) {
            let existing = snapshot.source.clone().unwrap_or_else(|| "none".to_owned());
            return differs("source", existing, self.source.to_string());
        }
        if snapshot.method != Some(self.method) {
            let existing = snapshot.method.map_or("another one", CopyMethod::as_str);
            return differs("createOption", existing.to_owned(), self.method.to_string());
        }
        if let (SourceIdentity::UniqueId(now), Some(existing)) = (&self.origin.source, &snapshot.source_unique_id)
            && self.origin.source.differs(Some(existing))
        {
            return Err(SnapshotMismatch::SourceRemade {
                snapshot: snapshot.id.clone(),
                source_id: self.source.clone(),
                existing: existing.clone(),
                now: now.clone(),
            });
        }
        if canonical_region(&snapshot.location) != canonical_region(&self.location) {
            return differs("location", snapshot.location.clone(), self.location.clone());
        }
        if snapshot.incremental != self.incremental {
            return differs("incremental", snapshot.incremental.to_string(), self.incremental.to_string());
        }
        Ok(())
    }

    /// Whether an existing snapshot was made for this request: its content would otherwise reach another's claim.
    ///
    /// The tag `lazuli-request` decides where the snapshot has it. One without it may be the Go driver's, made for this
    /// request before the cluster changed drivers. Its name is the request's, so it must have the Go driver's mark and name
    /// the volume, and may name no other VolumeSnapshot.
    fn check_origin(&self, snapshot: &Snapshot) -> Result<(), SnapshotMismatch> {
        let not_made_for_it = |reason| Err(SnapshotMismatch::Origin { snapshot: snapshot.id.clone(), reason });
        let has = |name| tags::value(&snapshot.tags, name);
        let origin = &self.origin;
        match has(tags::REQUEST) {
            Some(request) if request != origin.request => {
                let tag = tags::REQUEST;
                return not_made_for_it(format!("its tag {tag} is {request:?} instead of {:?}", origin.request));
            }
            None if !tags::is_made_by_driver(&snapshot.tags) => {
                let (made, value) = tags::CREATED_BY;
                return not_made_for_it(format!("it has neither the tag {} nor {made} of {value}", tags::REQUEST));
            }
            _ => {}
        }
        match has(tags::SOURCE_VOLUME) {
            Some(volume) if is_volume(volume, &origin.volume) => {}
            // A person may have removed it; the snapshot of a disk names its source anyway.
            None if has(tags::REQUEST).is_some() && self.method == CopyMethod::Copy => {}
            there => {
                let there = there.map_or_else(|| "missing".to_owned(), |volume| format!("{volume:?}"));
                let tag = tags::SOURCE_VOLUME;
                return not_made_for_it(format!("its tag {tag} is {there} instead of {:?}", origin.volume));
            }
        }
        if has(tags::REQUEST).is_some() {
            return Ok(());
        }
        for tag in [tags::FOR_SNAPSHOT, tags::FOR_SNAPSHOT_NAMESPACE] {
            if let (Some(there), Some(asked)) = (has(tag), tags::value(&self.tags, tag))
                && there != asked
            {
                return not_made_for_it(format!("its tag {tag} is {there:?} instead of {asked:?}"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn disk() -> ArmId {
        ArmId::disk("s", "g", "pvc-1").unwrap()
    }

    fn spec() -> SnapshotSpec {
        SnapshotSpec {
            location: "eastus".into(),
            extended_location: None,
            tags: [(tags::FOR_SNAPSHOT, "nightly"), (tags::FOR_SNAPSHOT_NAMESPACE, "db")]
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into(),
            method: CopyMethod::Copy,
            source: disk(),
            instant_access_minutes: None,
            incremental: true,
            network_access_policy: None,
            public_network_access: None,
            data_access_auth_mode: None,
            origin: SnapshotOrigin {
                request: "snapshot-1".into(),
                volume: disk().to_string(),
                source: SourceIdentity::UniqueId("u-1".into()),
            },
        }
    }

    fn tagged(pairs: &[(&str, &str)]) -> Snapshot {
        Snapshot {
            location: "East US".into(),
            source_unique_id: Some("U-1".into()),
            tags: pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
            ..Snapshot::complete(ArmId::snapshot("s", "g", "snapshot-1").unwrap(), &disk())
        }
    }

    fn ours() -> Snapshot {
        let volume = disk().to_string().to_uppercase();
        tagged(&[("Lazuli-Request", "snapshot-1"), ("SOURCE_VOLUME_ID", &volume)])
    }

    fn by_go(volume: &str) -> Snapshot {
        tagged(&[("k8s-azure-created-by", "kubernetes-azure-dd"), (tags::SOURCE_VOLUME, volume)])
    }

    #[test]
    fn ours_and_the_go_drivers_of_this_request_are_it() {
        assert_eq!(spec().matches(&ours()), Ok(()));
        assert_eq!(spec().matches(&by_go(disk().as_str())), Ok(()));
        let mut named = by_go(disk().as_str());
        named.tags.insert(tags::FOR_SNAPSHOT.into(), "nightly".into());
        assert_eq!(spec().matches(&named), Ok(()));
    }

    #[test]
    fn a_snapshot_of_another_request_or_of_no_driver_is_not_it() {
        let other = ArmId::disk("s", "g", "pvc-2").unwrap();
        let mut of_another_name = by_go(disk().as_str());
        of_another_name.tags.insert(tags::FOR_SNAPSHOT.into(), "weekly".into());
        for (snapshot, reason) in [
            (tagged(&[("lazuli-request", "snapshot-2")]), "\"snapshot-2\" instead of \"snapshot-1\""),
            (tagged(&[]), "neither the tag lazuli-request nor k8s-azure-created-by"),
            (tagged(&[(tags::SOURCE_VOLUME, disk().as_str())]), "neither the tag"),
            (tagged(&[("k8s-azure-created-by", "kubernetes-azure-dd")]), "source_volume_id is missing"),
            (by_go(other.as_str()), "pvc-2"),
            (tagged(&[("lazuli-request", "snapshot-1"), (tags::SOURCE_VOLUME, other.as_str())]), "pvc-2"),
            (of_another_name, "\"weekly\" instead of \"nightly\""),
        ] {
            let error = spec().matches(&snapshot).unwrap_err();
            assert!(matches!(error, SnapshotMismatch::Origin { .. }), "{error}");
            assert!(error.to_string().contains(reason), "{error}");
            assert_eq!(error.code(), Code::AlreadyExists);
        }
    }

    #[test]
    fn a_snapshot_of_a_disk_that_was_made_again_is_not_it_and_of_one_that_is_gone_it_is() {
        let earlier = Snapshot { source_unique_id: Some("u-0".into()), ..ours() };
        let error = spec().matches(&earlier).unwrap_err();
        assert!(matches!(error, SnapshotMismatch::SourceRemade { .. }), "{error}");
        for part in ["u-0", "u-1", "pvc-1"] {
            assert!(error.to_string().contains(part), "{error}");
        }
        for source in [SourceIdentity::Gone, SourceIdentity::Unknown, SourceIdentity::of(None)] {
            let spec = SnapshotSpec { origin: SnapshotOrigin { source, ..spec().origin }, ..spec() };
            assert_eq!(spec.matches(&earlier), Ok(()));
        }
        assert_eq!(spec().matches(&Snapshot { source_unique_id: None, ..ours() }), Ok(()));
    }

    #[test]
    fn every_difference_is_named_with_both_values() {
        let other = ArmId::disk("s", "g", "pvc-2").unwrap().to_string();
        for (snapshot, property, existing) in [
            (Snapshot { source: Some(other.clone()), ..ours() }, "source", other.as_str()),
            (Snapshot { source: None, ..ours() }, "source", "none"),
            (Snapshot { method: Some(CopyMethod::CopyStart), ..ours() }, "createOption", "CopyStart"),
            (Snapshot { location: "westus".into(), ..ours() }, "location", "westus"),
            (Snapshot { incremental: false, ..ours() }, "incremental", "false"),
        ] {
            let error = spec().matches(&snapshot).unwrap_err();
            let SnapshotMismatch::Property { property: named, existing: seen, .. } = &error else { panic!("{error}") };
            assert_eq!((*named, seen.as_str()), (property, existing));
        }
    }

    #[test]
    fn a_copy_in_another_region_is_known_by_the_volume_that_its_tag_names() {
        let local = ArmId::snapshot("s", "g", "local_snapshot-1").unwrap();
        let spec = SnapshotSpec {
            location: "westus".into(),
            method: CopyMethod::CopyStart,
            source: local.clone(),
            origin: SnapshotOrigin { source: SourceIdentity::Gone, ..spec().origin },
            ..spec()
        };
        let copy = Snapshot {
            location: "westus".into(),
            method: Some(CopyMethod::CopyStart),
            source: Some(local.to_string()),
            source_unique_id: Some("local's".into()),
            ..ours()
        };
        assert_eq!(spec.matches(&copy), Ok(()));
        let mut untold = copy;
        untold.tags.retain(|name, _| !name.eq_ignore_ascii_case(tags::SOURCE_VOLUME));
        assert!(matches!(spec.matches(&untold), Err(SnapshotMismatch::Origin { .. })));
    }

    proptest! {
        /// Adoption is a matter of this request and this source alone.
        #[test]
        fn no_snapshot_of_another_request_or_disk_is_taken(
            request in proptest::option::of(0u8..3), volume in proptest::option::of(0u8..3), driver in any::<bool>(),
            source in 0u8..3, unique in proptest::option::of(0u8..3), now in proptest::option::of(0u8..3),
        ) {
            let id = |n: u8| ArmId::disk("s", "g", &format!("pvc-{n}")).unwrap();
            let mut snapshot = Snapshot { source: Some(id(source).to_string()), tags: BTreeMap::new(), ..ours() };
            snapshot.source_unique_id = unique.map(|n| format!("u-{n}"));
            let mut tag = |name: &str, value: String| snapshot.tags.insert(name.to_owned(), value);
            if let Some(n) = request {
                tag(tags::REQUEST, format!("snapshot-{n}"));
            }
            if let Some(n) = volume {
                tag(tags::SOURCE_VOLUME, id(n).to_string());
            }
            if driver {
                tag(tags::CREATED_BY.0, tags::CREATED_BY.1.to_owned());
            }
            let identity = now.map_or(SourceIdentity::Gone, |n| SourceIdentity::UniqueId(format!("u-{n}")));
            let spec = SnapshotSpec { origin: SnapshotOrigin { source: identity, ..spec().origin }, ..spec() };
            let is_ours = request == Some(1) && volume.is_none_or(|n| n == 1)
                || request.is_none() && driver && volume == Some(1);
            let is_of_it = source == 1 && (now.is_none() || unique.is_none() || unique == now);
            prop_assert_eq!(spec.matches(&snapshot).is_ok(), is_ours && is_of_it);
        }
    }
}
