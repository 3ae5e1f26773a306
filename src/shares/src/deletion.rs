//! What DeleteVolume may delete.
//!
//! A share is deleted only where the evidence says that nothing else needs it: no other PersistentVolume names it, a
//! driver made it, and it has no snapshots. Azure Resource Manager deletes a share together with its snapshots unless it
//! is told not to; each DELETE therefore says `$include=none`, and Azure refuses it where there is a snapshot.

use std::collections::BTreeMap;

use lazuli_model::{ArmId, FileShare, Gib, fault::Code, file_share::CREATED_BY, op::ShareWrite};

use crate::{
    mount::share_of,
    name,
    secret::{account_of_secret, key_source},
    volume_id::ShareVolumeId,
};

/// The name of the driver, which the Go driver and this one write into the metadata of the shares that they make.
pub const DRIVER_NAME: &str = "file.csi.azure.com";

/// A PersistentVolume of this driver, or of the in-tree plugin, and what it says of its share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeRef {
    /// The name of the PersistentVolume.
    pub name: String,
    /// Its volume id; `None` for one of the in-tree plugin.
    pub volume_id: Option<String>,
    /// The account; `None` where only a Secret names it.
    pub account: Option<String>,
    /// The share, also with folders behind it; `None` where it cannot be read.
    pub share: Option<String>,
    /// Whether Kubernetes is done with it and wants its share deleted: its phase is `Released` or `Failed`, and its reclaim
    /// policy `Delete`.
    pub is_released_for_deletion: bool,
    /// Its size, where that is known.
    pub size: Option<Gib>,
}

impl VolumeRef {
    /// The same PersistentVolume, with its `spec.capacity.storage`.
    #[must_use]
    pub fn with_size(self, size: Option<Gib>) -> Self {
        Self { size, ..self }
    }

    /// The size of the PersistentVolume of a claim's request, whose name it has (source: external-provisioner).
    pub fn size_of(volumes: &[Self], request: &str) -> Option<Gib> {
        volumes.iter().find(|volume| volume.name == request).and_then(|volume| volume.size)
    }

    /// What a PersistentVolume of this driver says of its share, by its volume id and its attributes. What cannot be read
    /// is unknown.
    pub fn of_driver(
        name: &str,
        volume_id: &str,
        attributes: &BTreeMap<String, String>,
        is_released_for_deletion: bool,
    ) -> Self {
        let id = ShareVolumeId::parse(volume_id).ok();
        Self {
            name: name.to_owned(),
            volume_id: Some(volume_id.to_owned()),
            account: key_source(attributes, id.as_ref()).ok().and_then(|source| source.account),
            share: share_of(volume_id, attributes),
            is_released_for_deletion,
            size: None,
        }
    }

    /// What a PersistentVolume of the in-tree plugin says of its share (`spec.azureFile`): the account is in the name of
    /// its Secret, or in the Secret alone.
    pub fn of_in_tree(name: &str, share: &str, secret: &str, is_released_for_deletion: bool) -> Self {
        Self {
            name: name.to_owned(),
            volume_id: None,
            account: account_of_secret(secret).map(str::to_owned),
            share: Some(share.to_owned()).filter(|share| !share.is_empty()),
            is_released_for_deletion,
            size: None,
        }
    }

    /// Whether Kubernetes is done with a PersistentVolume and wants its share deleted, by its `status.phase` and
    /// `spec.persistentVolumeReclaimPolicy`.
    pub fn is_released(phase: &str, reclaim_policy: &str) -> bool {
        matches!(phase, "Released" | "Failed") && reclaim_policy == "Delete"
    }

    /// Whether it is the PersistentVolume of this volume, or one of several that have its id.
    fn has(&self, volume: &ShareVolumeId) -> bool {
        let parsed = self.volume_id.as_deref().map(ShareVolumeId::parse);
        parsed.is_some_and(|parsed| parsed.as_ref() == Ok(volume))
    }

    /// Whether it may be about this share. What it does not say counts as equal.
    fn may_name(&self, account: &str, share: &str) -> bool {
        let is_account = self.account.as_deref().is_none_or(|name| name.trim().eq_ignore_ascii_case(account));
        let is_share = self.share.as_deref().is_none_or(|name| {
            let name = name.trim_start_matches('/').split(['/', '\\']).next().unwrap_or_default();
            name.eq_ignore_ascii_case(share)
        });
        is_account && is_share
    }
}

/// What is known of the PersistentVolumes of the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Volumes<'a> {
    /// The watch has not listed them yet.
    Unknown,
    /// All that this driver may mount, among them the one whose share is to be deleted.
    Known(&'a [VolumeRef]),
}

/// What is known of the share itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShareSeen<'a> {
    /// It was not read.
    NotRead,
    /// There is none, or it is deleted.
    Gone,
    /// It is there.
    There(&'a FileShare),
}

/// All that a deletion rests on.
#[derive(Debug, Clone, Copy)]
pub struct Evidence<'a> {
    /// The volume.
    pub volume: &'a ShareVolumeId,
    /// Its share in Azure.
    pub share_id: &'a ArmId,
    /// The parameter `shareNamePrefix` of its class, as the PersistentVolume keeps it.
    pub prefix: Option<&'a str>,
    /// The share, as it was read.
    pub share: ShareSeen<'a>,
    /// The times of its snapshots, where they were listed.
    pub snapshots: &'a [String],
    /// The PersistentVolumes of the cluster.
    pub volumes: Volumes<'a>,
    /// The name of this driver, where it is another than [`DRIVER_NAME`].
    pub driver_name: &'a str,
}

/// Why a share stays.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Kept {
    /// Another PersistentVolume may be about it.
    #[error(
        "share {share} of storage account {account} is kept: PersistentVolume {other} names it too; it is deleted with the last of them"
    )]
    Shared {
        /// The account.
        account: String,
        /// The share.
        share: String,
        /// The PersistentVolume.
        other: String,
    },
    /// Nothing proves that a driver made it.
    #[error(
        "share {share} of storage account {account} is kept: nothing proves that a driver made it (its metadata {CREATED_BY} does \
         not say so); delete it by hand if nobody needs it"
    )]
    NotOurs {
        /// The account.
        account: String,
        /// The share.
        share: String,
    },
}

/// Why a share cannot be deleted now.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotNow {
    /// It has snapshots, which a deletion would take along.
    #[error("share {share} has snapshots: {}; delete their VolumeSnapshots first, or the snapshots by hand", snapshots.join(", "))]
    HasSnapshots {
        /// The share.
        share: String,
        /// Their times.
        snapshots: Vec<String>,
    },
    /// Its own PersistentVolume is not released, as far as the watch has come.
    #[error(
        "PersistentVolume {0} has this volume and is not released for deletion yet, as far as is known; the deletion is tried again"
    )]
    NotReleased(String),
    /// It is not known whether another PersistentVolume names it.
    #[error("the PersistentVolumes of the cluster are not known yet; the deletion is tried again")]
    VolumesUnknown,
}

impl NotNow {
    /// The gRPC code. external-provisioner repeats a deletion after either.
    pub fn code(&self) -> Code {
        match self {
            Self::HasSnapshots { .. } => Code::FailedPrecondition,
            Self::VolumesUnknown | Self::NotReleased(_) => Code::Unavailable,
        }
    }
}

/// What DeleteVolume does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Delete the share. Where Azure refuses because of snapshots, list them and ask again.
    Delete(ShareWrite),
    /// There is nothing to delete: OK.
    Gone,
    /// The name proves nothing: read the share, and ask again.
    Read,
    /// It stays, and the volume goes: OK, an event and a line in the audit log.
    Keep(Kept),
    /// It stays, and so does the volume.
    Refuse(NotNow),
}

/// Whether the name of the share proves that a driver made it. Where the class named it, anybody may have. The id of an
/// in-tree volume cannot tell that: in the field that would, it has the namespace.
fn is_named_by_driver(evidence: &Evidence<'_>) -> bool {
    let share = evidence.share_id.name();
    name::is_in_tree(share) || !evidence.volume.is_named_by_class() && name::is_generated(share, evidence.prefix)
}

fn is_marked_by_driver(share: &FileShare, driver_name: &str) -> bool {
    share.metadata(CREATED_BY).is_some_and(|by| {
        [DRIVER_NAME, driver_name].iter().any(|name| !name.is_empty() && by.eq_ignore_ascii_case(name))
    })
}

/// Judges a deletion.
pub fn may_delete(evidence: &Evidence<'_>) -> Verdict {
    let volumes = match evidence.volumes {
        Volumes::Unknown => return Verdict::Refuse(NotNow::VolumesUnknown),
        Volumes::Known(volumes) => volumes,
    };
    let account = || evidence.volume.account.clone();
    let share = evidence.share_id.name();
    if evidence.share == ShareSeen::Gone {
        return Verdict::Gone;
    }
    // The sidecar that asks has its own watch, which may be ahead of ours: an old picture of the volume itself is no other
    // volume.
    let (released, own): (Vec<_>, Vec<_>) =
        volumes.iter().filter(|one| one.has(evidence.volume)).partition(|one| one.is_released_for_deletion);
    if let (true, Some(own)) = (released.is_empty(), own.iter().min_by_key(|one| &one.name)) {
        return Verdict::Refuse(NotNow::NotReleased(own.name.clone()));
    }
    let other = volumes
        .iter()
        .filter(|one| !one.is_released_for_deletion && one.may_name(&evidence.volume.account, share))
        .min_by_key(|one| &one.name);
    if let Some(other) = other {
        return Verdict::Keep(Kept::Shared { account: account(), share: share.to_owned(), other: other.name.clone() });
    }
    let is_proved = match evidence.share {
        ShareSeen::There(seen) => is_named_by_driver(evidence) || is_marked_by_driver(seen, evidence.driver_name),
        ShareSeen::NotRead if is_named_by_driver(evidence) => true,
        ShareSeen::NotRead => return Verdict::Read,
        ShareSeen::Gone => return Verdict::Gone,
    };
    if !is_proved {
        return Verdict::Keep(Kept::NotOurs { account: account(), share: share.to_owned() });
    }
    if !evidence.snapshots.is_empty() {
        let mut snapshots = evidence.snapshots.to_vec();
        snapshots.sort();
        return Verdict::Refuse(NotNow::HasSnapshots { share: share.to_owned(), snapshots });
    }
    Verdict::Delete(ShareWrite::Delete { share: evidence.share_id.clone() })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn volume(id: &str) -> (ShareVolumeId, ArmId) {
        let volume = ShareVolumeId::parse(id).unwrap();
        let share = volume.share_id("s", "g").unwrap();
        (volume, share)
    }

    fn other(name: &str, account: Option<&str>, share: Option<&str>) -> VolumeRef {
        VolumeRef {
            name: name.into(),
            volume_id: None,
            account: account.map(str::to_owned),
            share: share.map(str::to_owned),
            is_released_for_deletion: false,
            size: None,
        }
    }

    fn evidence<'a>(volume: &'a (ShareVolumeId, ArmId), volumes: &'a [VolumeRef]) -> Evidence<'a> {
        Evidence {
            volume: &volume.0,
            share_id: &volume.1,
            prefix: None,
            share: ShareSeen::NotRead,
            snapshots: &[],
            volumes: Volumes::Known(volumes),
            driver_name: "file.csi.azure.com",
        }
    }

    fn marked(name: &str, by: &str) -> FileShare {
        let mut share = FileShare::smb("f1", name, 5);
        share.metadata.insert("createdBy".into(), by.into());
        share
    }

    #[test]
    fn an_old_picture_of_the_volume_itself_is_no_other_volume() {
        let id = "rg#f1#pvc-1###ns";
        let of = volume(id);
        let pv = |name: &str, released: bool| VolumeRef::of_driver(name, id, &BTreeMap::new(), released);
        let bound = [pv("pvc-1", false)];
        let verdict = may_delete(&evidence(&of, &bound));
        assert_eq!(verdict, Verdict::Refuse(NotNow::NotReleased("pvc-1".into())));
        assert!(matches!(may_delete(&evidence(&of, &[pv("pvc-1", true)])), Verdict::Delete(_)));
        // Another one with its id keeps it, once its own is released.
        let both = [pv("pvc-1", true), pv("static", false)];
        assert!(
            matches!(may_delete(&evidence(&of, &both)), Verdict::Keep(Kept::Shared { other, .. }) if other == "static")
        );
    }

    #[test]
    fn a_share_that_its_request_named_is_deleted_unread() {
        let volume = volume("g#f1#pvc-1###default");
        assert_eq!(
            may_delete(&evidence(&volume, &[])),
            Verdict::Delete(ShareWrite::Delete { share: volume.1.clone() })
        );
        assert_eq!(ShareWrite::DELETE_INCLUDE, "none");
    }

    #[test]
    fn nothing_is_deleted_before_the_volumes_of_the_cluster_are_known() {
        let volume = volume("g#f1#pvc-1###default");
        let cold = Evidence { volumes: Volumes::Unknown, ..evidence(&volume, &[]) };
        let Verdict::Refuse(why) = may_delete(&cold) else { panic!() };
        assert_eq!((why.code(), why), (Code::Unavailable, NotNow::VolumesUnknown));
    }

    #[test]
    fn snapshots_stop_a_deletion_and_are_named() {
        let volume = volume("g#f1#pvc-1###default");
        let snapshots = ["2026-02-01T00:00:00.0000000Z".to_owned(), "2026-01-01T00:00:00.0000000Z".to_owned()];
        let Verdict::Refuse(why) = may_delete(&Evidence { snapshots: &snapshots, ..evidence(&volume, &[]) }) else {
            panic!()
        };
        assert_eq!(why.code(), Code::FailedPrecondition);
        assert!(why.to_string().contains("2026-01-01T00:00:00.0000000Z, 2026-02-01T00:00:00.0000000Z"), "{why}");
    }

    #[test]
    fn a_share_that_another_volume_may_name_is_kept() {
        let volume = volume("g#f1#pvc-1###default");
        for (account, share) in [
            (Some("f1"), Some("pvc-1")),
            (Some("F1"), Some("PVC-1")),
            (None, Some("pvc-1")),
            (Some("f1"), None),
            (None, None),
            (Some("f1"), Some("pvc-1/folder")),
            (Some(" f1 "), Some("/pvc-1/")),
        ] {
            let others = [other("pv-2", account, share)];
            assert_eq!(
                may_delete(&evidence(&volume, &others)),
                Verdict::Keep(Kept::Shared { account: "f1".into(), share: "pvc-1".into(), other: "pv-2".into() }),
                "{account:?} {share:?}"
            );
        }
        for (account, share) in [(Some("f2"), Some("pvc-1")), (Some("f1"), Some("pvc-2")), (Some("f2"), None)] {
            let others = [other("pv-2", account, share)];
            assert!(matches!(may_delete(&evidence(&volume, &others)), Verdict::Delete(_)), "{account:?} {share:?}");
        }
    }

    #[test]
    fn a_persistent_volume_names_the_share_that_a_node_would_mount() {
        let attributes = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        for (id, pairs, account, share) in [
            ("g#f1#pvc-1###ns", &[][..], Some("f1"), Some("pvc-1")),
            ("vol1", &[("shareName", "data")], None, Some("data")),
            ("vol1", &[("shareName", "data/x"), ("storageAccount", "f2")], Some("f2"), Some("data")),
            ("g#f1#data##pvc-1#ns", &[("shareName", "${pvc.metadata.name}")], Some("f1"), Some("data")),
            ("vol1", &[("shareName", "${pvc.metadata.name}")], None, None),
            ("vol1", &[("shareName", "a"), ("sharename", "b")], None, None),
            ("g#f1#pvc-1###ns", &[("storageAccount", "a"), ("storageaccount", "b")], None, Some("pvc-1")),
            ("vol1", &[], None, None),
        ] {
            let found = VolumeRef::of_driver("pv", id, &attributes(pairs), true);
            assert_eq!((found.account.as_deref(), found.share.as_deref()), (account, share), "{id} {pairs:?}");
            assert!(found.is_released_for_deletion);
        }
        let found = VolumeRef::of_in_tree("pv", "data", "azure-storage-account-f1-secret", false);
        assert_eq!(found, other("pv", Some("f1"), Some("data")));
        assert_eq!(VolumeRef::of_in_tree("pv", "", "mine", false), other("pv", None, None));
        for (phase, policy, released) in [
            ("Released", "Delete", true),
            ("Failed", "Delete", true),
            ("Bound", "Delete", false),
            ("Available", "Delete", false),
            ("Released", "Retain", false),
            ("Failed", "Recycle", false),
            ("", "", false),
        ] {
            assert_eq!(VolumeRef::is_released(phase, policy), released, "{phase} {policy}");
        }
    }

    #[test]
    fn volumes_that_wait_for_the_same_deletion_do_not_keep_a_share() {
        let volume = volume("g#f1#pvc-1###default");
        let released = VolumeRef { is_released_for_deletion: true, ..other("pv-1", Some("f1"), Some("pvc-1")) };
        assert!(matches!(may_delete(&evidence(&volume, std::slice::from_ref(&released))), Verdict::Delete(_)));
        let bound = other("pv-2", Some("f1"), Some("pvc-1"));
        let both = [released, bound];
        let Verdict::Keep(why) = may_delete(&evidence(&volume, &both)) else { panic!() };
        assert!(why.to_string().contains("PersistentVolume pv-2 names it too"), "{why}");
    }

    #[test]
    fn a_share_is_deleted_only_with_proof_that_a_driver_made_it() {
        // The id, the class's prefix, the metadata, and whether it is proved.
        let cases = [
            ("g#f1#pvc-1###default", None, None, true),
            ("g#f1#pvcn-1###default", None, None, true),
            ("g#f1#kubernetes-dynamic-pvc-1#pv#default", None, None, true),
            ("g#f1#pvc-mine#pv#default", None, None, false),
            ("#f1#kubernetes-dynamic-pvc-1#pv#default", None, None, true),
            ("g#f1#team-pvc-1###default", Some("team"), None, true),
            ("g#f1#team-pvc-1###default", None, None, false),
            ("g#f1#data###default", None, None, false),
            ("g#f1#data###default", None, Some("somebody"), false),
            ("g#f1#data###default", None, Some("file.csi.azure.com"), true),
            ("g#f1#data###default", None, Some("File.CSI.azure.com"), true),
            // A class named it: its name proves nothing, for a person may have made it.
            ("g#f1#pvc-archive##pvc-1#default", None, None, false),
            ("g#f1#pvc-archive##pvc-1#default", None, Some("file.csi.azure.com"), true),
        ];
        for (id, prefix, by, is_proved) in cases {
            let volume = volume(id);
            let share = by.map_or_else(|| FileShare::smb("f1", "x", 5), |by| marked("x", by));
            let read = Evidence { prefix, share: ShareSeen::There(&share), ..evidence(&volume, &[]) };
            match may_delete(&read) {
                Verdict::Delete(_) => assert!(is_proved, "{id} {by:?}"),
                Verdict::Keep(Kept::NotOurs { .. }) => assert!(!is_proved, "{id} {by:?}"),
                other => panic!("{other:?}"),
            }
            // Unread, only a name can prove it.
            let unread = may_delete(&Evidence { share: ShareSeen::NotRead, ..read });
            assert_eq!(matches!(unread, Verdict::Delete(_)), is_proved && by.is_none(), "{id}");
            assert_eq!(unread == Verdict::Read, !is_proved || by.is_some(), "{id}");
        }
    }

    #[test]
    fn a_driver_with_another_name_knows_its_own_shares() {
        let volume = volume("g#f1#data###default");
        let share = marked("data", "test.csi.azure.com");
        let read = Evidence { share: ShareSeen::There(&share), ..evidence(&volume, &[]) };
        assert!(matches!(may_delete(&read), Verdict::Keep(_)));
        assert!(matches!(may_delete(&Evidence { driver_name: "test.csi.azure.com", ..read }), Verdict::Delete(_)));
        let empty = marked("data", "");
        let unnamed = Evidence { driver_name: "", share: ShareSeen::There(&empty), ..read };
        assert!(matches!(may_delete(&unnamed), Verdict::Keep(_)));
    }

    #[test]
    fn a_share_that_is_gone_is_deleted() {
        let volume = volume("g#f1#data##pvc-1#default");
        let gone = Evidence { share: ShareSeen::Gone, ..evidence(&volume, &[]) };
        assert_eq!(may_delete(&gone), Verdict::Gone);
    }

    fn any_ref() -> impl Strategy<Value = VolumeRef> {
        let account = proptest::option::of(prop_oneof![Just("f1".to_owned()), Just("f2".to_owned())]);
        let share = proptest::option::of(prop_oneof![Just("pvc-1".to_owned()), Just("data".to_owned())]);
        ("pv-[a-c]", account, share, any::<bool>()).prop_map(|(name, account, share, released)| VolumeRef {
            name,
            volume_id: None,
            account,
            share,
            is_released_for_deletion: released,
            size: None,
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 1_024, ..ProptestConfig::default() })]

        #[test]
        fn a_deletion_rests_on_all_of_its_evidence_and_on_no_order(
            volumes in proptest::collection::vec(any_ref(), 0..4), known in any::<bool>(), by_class in any::<bool>(),
            named in prop_oneof![Just("pvc-1"), Just("data")], by in proptest::option::of(any::<bool>()),
            read in any::<bool>(), snapshots in 0usize..2,
        ) {
            let uuid = if by_class { "pvc-9" } else { "" };
            let volume = volume(&format!("g#f1#{named}##{uuid}#default"));
            let share = match by {
                Some(ours) => marked(named, if ours { DRIVER_NAME } else { "me" }),
                None => FileShare::smb("f1", named, 5),
            };
            let times = vec!["t".to_owned(); snapshots];
            let evidence = Evidence {
                share: if read { ShareSeen::There(&share) } else { ShareSeen::NotRead },
                snapshots: &times,
                volumes: if known { Volumes::Known(&volumes) } else { Volumes::Unknown },
                ..evidence(&volume, &[])
            };
            let verdict = may_delete(&evidence);
            let mut turned = volumes.clone();
            turned.reverse();
            let again = Evidence { volumes: if known { Volumes::Known(&turned) } else { Volumes::Unknown }, ..evidence };
            prop_assert_eq!(&may_delete(&again), &verdict);
            if let Verdict::Delete(write) = verdict {
                prop_assert_eq!(write, ShareWrite::Delete { share: volume.1.clone() });
                prop_assert!(known && snapshots == 0);
                let needed = |one: &VolumeRef| {
                    !one.is_released_for_deletion
                        && one.account.as_deref().is_none_or(|account| account == "f1")
                        && one.share.as_deref().is_none_or(|share| share == named)
                };
                prop_assert!(!volumes.iter().any(needed));
                prop_assert!((named == "pvc-1" && !by_class) || (read && by == Some(true)));
            }
        }
    }
}
