//! A snapshot of a managed disk as Azure describes it, and the CSI snapshot id.

use std::{collections::BTreeMap, fmt, str::FromStr};

use super::{ArmId, ArmIdError, AzureTime, Completion, Gib, ProvisioningState, UnknownName, names};

names! {
    /// What can be done with a snapshot (source: the SnapshotAccessState enum of the disks API).
    SnapshotAccessState {
        /// Azure does not say it.
        Unknown = "Unknown",
        /// Nothing: its content is still being copied.
        Pending = "Pending",
        /// Everything.
        Available = "Available",
        /// Disks can be made from it. It can be neither downloaded nor copied into another region.
        InstantAccess = "InstantAccess",
        /// Everything, and disks that are made from it are filled fast.
        AvailableWithInstantAccess = "AvailableWithInstantAccess",
    } allowed "Unknown, Pending, Available, InstantAccess, AvailableWithInstantAccess"
}

names! {
    /// Who may read a snapshot's content by a shared access signature.
    DataAccessAuthMode {
        /// Every holder of a signature: Azure's default.
        None = "None",
        /// Only a signed-in identity that has the right.
        AzureActiveDirectory = "AzureActiveDirectory",
    } allowed "None, AzureActiveDirectory"
}

names! {
    /// How a snapshot gets its content from what it is made of.
    CopyMethod {
        /// From a disk or a snapshot of the same region.
        Copy = "Copy",
        /// From an incremental snapshot of another region, in the background.
        CopyStart = "CopyStart",
    } allowed "Copy, CopyStart"
}

/// A snapshot of a managed disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// As Azure spells it.
    pub id: ArmId,
    /// The region.
    pub location: String,
    /// The size, as Azure names it in whole GiB (`diskSizeGB`). The content may be a little smaller or larger.
    pub size: Gib,
    /// The exact size of the content in bytes; `None` where Azure does not say it.
    pub bytes: Option<u64>,
    /// The id that Azure gave it when it was made; `None` where Azure does not say it.
    pub unique_id: Option<String>,
    /// How it was made; `None` for a way that no driver uses.
    pub method: Option<CopyMethod>,
    /// What it was made from, in Azure's words; `None` for one that was made empty.
    pub source: Option<String>,
    /// The id that Azure gave the source when that was made; `None` where Azure does not say it.
    pub source_unique_id: Option<String>,
    /// When it was made.
    pub created: AzureTime,
    /// Whether it holds only what has changed since the snapshot before it.
    pub incremental: bool,
    /// What the incremental snapshots of one disk and their copies have in common.
    pub family: Option<String>,
    /// Where its last operation is.
    pub provisioning_state: ProvisioningState,
    /// What can be done with it; `None` where Azure does not say it, or names a newer state.
    pub access: Option<SnapshotAccessState>,
    /// For how many minutes since its creation disks can be made from it before its content is complete.
    pub instant_access_minutes: Option<u32>,
    /// How much of the content has been copied; `None` for one that is filled by no copy in the background.
    pub completion: Option<Completion>,
    /// Azure's code of why the copy in the background has failed.
    pub copy_error: Option<String>,
    /// The logical sector size of the disk in bytes, where Azure says.
    pub logical_sector_size: Option<u32>,
    /// Its tags.
    pub tags: BTreeMap<String, String>,
}

impl Snapshot {
    /// The exact size of the content in bytes, or the whole GiB where Azure does not say it.
    pub fn size_in_bytes(&self) -> u64 {
        self.bytes.unwrap_or_else(|| self.size.bytes())
    }

    /// Whether Azure has failed to make it or to fill it.
    pub fn has_failed(&self) -> bool {
        matches!(self.provisioning_state, ProvisioningState::Failed | ProvisioningState::Canceled)
            || self.copy_error.is_some()
    }

    /// Whether its content is complete. Until then it depends on what it is made from.
    ///
    /// Azure shows for each copy in another region how much has been copied (source:
    /// disks-copy-incremental-snapshot-across-regions). One that shows neither that nor an access state has just been made.
    pub fn is_complete(&self) -> bool {
        let says_nothing = matches!(self.access, None | Some(SnapshotAccessState::Unknown));
        let is_untold_copied = self.method != Some(CopyMethod::CopyStart) || !says_nothing;
        self.provisioning_state == ProvisioningState::Succeeded
            && self.copy_error.is_none()
            && self.completion.map_or(is_untold_copied, Completion::is_complete)
            && !matches!(self.access, Some(SnapshotAccessState::Pending | SnapshotAccessState::InstantAccess))
    }

    /// Whether it would be lost with what it is made from. While it is deleted or changed, a completion or an access state that
    /// says that all of the content is there counts; while it is made Azure shows neither.
    pub fn needs_its_source(&self) -> bool {
        let settled = Self { provisioning_state: ProvisioningState::Succeeded, ..self.clone() };
        let says_whole = self.completion.is_some_and(Completion::is_complete)
            || matches!(
                self.access,
                Some(SnapshotAccessState::Available | SnapshotAccessState::AvailableWithInstantAccess)
            );
        let is_whole = self.provisioning_state == ProvisioningState::InProgress && says_whole && settled.is_complete();
        !self.has_failed() && !self.is_complete() && !is_whole
    }

    /// Whether disks can be made from it: the CSI specification's `ready_to_use`.
    ///
    /// Azure's access state decides. Where Azure does not say it, the Go driver's rule does: a snapshot of instant access
    /// is ready once it is made, any other one when all of its content is copied.
    pub fn is_ready(&self) -> bool {
        if self.provisioning_state != ProvisioningState::Succeeded || self.copy_error.is_some() {
            return false;
        }
        match self.access {
            Some(
                SnapshotAccessState::Available
                | SnapshotAccessState::InstantAccess
                | SnapshotAccessState::AvailableWithInstantAccess,
            ) => true,
            Some(SnapshotAccessState::Pending) => false,
            Some(SnapshotAccessState::Unknown) | None => {
                self.instant_access_minutes.is_some() || self.completion.is_none_or(Completion::is_complete)
            }
        }
    }
}

#[cfg(any(test, feature = "testing"))]
impl Snapshot {
    /// An incremental snapshot of a disk that is complete.
    pub fn complete(id: ArmId, disk: &ArmId) -> Self {
        Self {
            id,
            location: "local".into(),
            size: Gib::new(1),
            bytes: None,
            unique_id: None,
            method: Some(CopyMethod::Copy),
            source: Some(disk.to_string()),
            source_unique_id: None,
            created: AzureTime::from_unix_seconds(0),
            incremental: true,
            family: None,
            provisioning_state: ProvisioningState::Succeeded,
            access: Some(SnapshotAccessState::Available),
            instant_access_minutes: None,
            completion: None,
            copy_error: None,
            logical_sector_size: None,
            tags: BTreeMap::new(),
        }
    }
}

/// The CSI snapshot id (a VolumeSnapshotContent's `snapshotHandle`): the snapshot's ARM id or, as the Go driver takes it,
/// the bare name of a snapshot in the cluster's own resource group.
///
/// It is kept as the VolumeSnapshotContent spells it, for external-snapshotter compares it byte by byte.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotId {
    spelled: String,
    snapshot: ArmId,
}

/// Why a snapshot id names no snapshot. There is no such snapshot, then: its deletion has succeeded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotIdError {
    /// It is empty.
    #[error("the snapshot id is empty")]
    Empty,
    /// It looks like an ARM id, and is none.
    #[error("the snapshot id names no snapshot")]
    NotAnId(#[source] ArmIdError),
    /// It is the id of something else. The Go driver would take the snapshot that has the same name.
    #[error(
        "the snapshot id {0} is not that of a snapshot; expected …/providers/Microsoft.Compute/snapshots/{{name}}, or the name of \
         a snapshot in the cluster's resource group"
    )]
    NotASnapshot(ArmId),
    /// It is a name that no snapshot can have.
    #[error("the snapshot id {0:?} is no name that a snapshot can have")]
    NotAName(String),
}

impl SnapshotId {
    /// Reads an id; `cluster` is the cluster's subscription and resource group.
    ///
    /// # Errors
    /// When it can be the id of no snapshot.
    pub fn parse(text: &str, cluster: (&str, &str)) -> Result<Self, SnapshotIdError> {
        if text.is_empty() {
            return Err(SnapshotIdError::Empty);
        }
        let snapshot = if text.to_ascii_lowercase().contains("/subscriptions/") {
            let id: ArmId = text.parse().map_err(SnapshotIdError::NotAnId)?;
            if !id.is_type("Microsoft.Compute/snapshots") {
                return Err(SnapshotIdError::NotASnapshot(id));
            }
            id
        } else {
            let (subscription, group) = cluster;
            ArmId::snapshot(subscription, group, text).map_err(|_| SnapshotIdError::NotAName(shortened(text)))?
        };
        Ok(Self { spelled: text.to_owned(), snapshot })
    }

    /// The snapshot.
    pub fn snapshot(&self) -> &ArmId {
        &self.snapshot
    }

    /// The id as it was spelled.
    pub fn as_str(&self) -> &str {
        &self.spelled
    }
}

impl From<ArmId> for SnapshotId {
    fn from(snapshot: ArmId) -> Self {
        Self { spelled: snapshot.to_string(), snapshot }
    }
}

impl fmt::Display for SnapshotId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.spelled)
    }
}

/// As much of a text as an error shows.
fn shortened(text: &str) -> String {
    const SHOWN: usize = 256;
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CLUSTER: (&str, &str) = ("sub", "rg");

    fn snapshot() -> Snapshot {
        Snapshot::complete(ArmId::snapshot("s", "g", "snap").unwrap(), &ArmId::disk("s", "g", "d").unwrap())
    }

    #[test]
    fn an_id_is_that_of_a_snapshot_or_a_name_in_the_clusters_group() {
        let whole = "/subscriptions/S/resourcegroups/G/providers/microsoft.compute/SNAPSHOTS/n";
        let id = SnapshotId::parse(whole, CLUSTER).unwrap();
        assert_eq!((id.as_str(), id.to_string().as_str()), (whole, whole));
        assert_eq!(*id.snapshot(), ArmId::snapshot("s", "g", "n").unwrap());
        let named = SnapshotId::parse("snapshot-1", CLUSTER).unwrap();
        assert_eq!(
            (named.as_str(), named.snapshot().clone()),
            ("snapshot-1", ArmId::snapshot("sub", "rg", "snapshot-1").unwrap())
        );
        assert_eq!(SnapshotId::from(named.snapshot().clone()).as_str(), named.snapshot().as_str());
    }

    #[test]
    fn what_names_no_snapshot_says_why() {
        let parse = |text: &str| SnapshotId::parse(text, CLUSTER).unwrap_err();
        assert_eq!(parse(""), SnapshotIdError::Empty);
        let disk = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/n";
        assert!(matches!(parse(disk), SnapshotIdError::NotASnapshot(_)));
        for text in ["/subscriptions/s", "x/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/snapshots/n"] {
            assert!(matches!(parse(text), SnapshotIdError::NotAnId(_)), "{text}");
        }
        for text in ["a b", "a/b", "..", "a?b", &"x".repeat(2_000)] {
            assert!(matches!(parse(text), SnapshotIdError::NotAName(_)), "{text}");
        }
        assert!(parse(&"x".repeat(2_000)).to_string().len() < 400);
    }

    #[test]
    fn azures_access_state_decides_what_is_ready_and_what_is_complete() {
        use SnapshotAccessState::{Available, AvailableWithInstantAccess, InstantAccess, Pending, Unknown};
        let half = Some(Completion::from_percent(50.0));
        let whole = Some(Completion::COMPLETE);
        for (access, minutes, completion, ready, complete) in [
            (Some(Available), None, None, true, true),
            (Some(Available), Some(60), whole, true, true),
            (Some(InstantAccess), Some(60), half, true, false),
            (Some(AvailableWithInstantAccess), Some(60), whole, true, true),
            (Some(Pending), None, half, false, false),
            // Its time is over before its content is there: nothing can be made from it.
            (Some(Pending), Some(60), half, false, false),
            // Where Azure does not say it, as the Go driver.
            (None, None, None, true, true),
            (None, None, half, false, false),
            (None, None, whole, true, true),
            (None, Some(60), half, true, false),
            (Some(Unknown), None, half, false, false),
        ] {
            let snapshot = Snapshot { access, instant_access_minutes: minutes, completion, ..snapshot() };
            let case = format!("{access:?} {minutes:?} {completion:?}");
            assert_eq!((snapshot.is_ready(), snapshot.is_complete()), (ready, complete), "{case}");
        }
    }

    #[test]
    fn a_copy_in_another_region_is_complete_once_azure_says_how_much_is_copied() {
        use SnapshotAccessState::{Available, Pending, Unknown};
        let whole = Some(Completion::COMPLETE);
        for (method, access, completion, expected) in [
            (CopyMethod::CopyStart, None, None, false),
            (CopyMethod::CopyStart, Some(Unknown), None, false),
            (CopyMethod::CopyStart, Some(Pending), None, false),
            (CopyMethod::CopyStart, Some(Available), None, true),
            (CopyMethod::CopyStart, None, whole, true),
            (CopyMethod::Copy, None, None, true),
        ] {
            let snapshot = Snapshot { method: Some(method), access, completion, ..snapshot() };
            assert_eq!(snapshot.is_complete(), expected, "{method:?} {access:?} {completion:?}");
        }
    }

    #[test]
    fn a_snapshot_whose_content_is_whole_needs_its_source_no_more_although_it_is_being_deleted() {
        use ProvisioningState::{Canceled, Failed, InProgress, Succeeded};
        use SnapshotAccessState::{Available, AvailableWithInstantAccess, InstantAccess, Pending};
        let (whole, half) = (Some(Completion::COMPLETE), Some(Completion::from_percent(50.0)));
        for (state, completion, access, needs) in [
            (Succeeded, None, None, false),
            (Succeeded, half, None, true),
            (Succeeded, whole, Some(InstantAccess), true),
            (InProgress, None, None, true),
            (InProgress, half, None, true),
            (InProgress, half, Some(Available), true),
            (InProgress, whole, Some(Pending), true),
            (InProgress, whole, None, false),
            (InProgress, None, Some(Available), false),
            (InProgress, whole, Some(AvailableWithInstantAccess), false),
            (Failed, half, None, false),
            (Canceled, None, Some(Pending), false),
        ] {
            let snapshot = Snapshot { provisioning_state: state, completion, access, ..snapshot() };
            assert_eq!(snapshot.needs_its_source(), needs, "{state:?} {completion:?} {access:?}");
        }
    }

    #[test]
    fn a_snapshot_that_is_being_made_or_has_failed_is_not_ready() {
        for (state, failed) in [
            (ProvisioningState::InProgress, false),
            (ProvisioningState::Failed, true),
            (ProvisioningState::Canceled, true),
        ] {
            let snapshot = Snapshot { provisioning_state: state, ..snapshot() };
            assert_eq!((snapshot.is_ready(), snapshot.has_failed()), (false, failed), "{state:?}");
        }
        let broken = Snapshot { copy_error: Some("CopySourceNotFound".into()), access: None, ..snapshot() };
        assert!(!broken.is_ready() && broken.has_failed() && !broken.is_complete());
    }

    #[test]
    fn sizes_are_exact_where_azure_says_them() {
        assert_eq!(snapshot().size_in_bytes(), 1 << 30);
        assert_eq!(Snapshot { bytes: Some((1 << 30) + 512), ..snapshot() }.size_in_bytes(), (1 << 30) + 512);
    }

    proptest! {
        #[test]
        fn any_text_is_an_id_or_an_error_that_shows_it(text in "\\PC{0,40}") {
            match SnapshotId::parse(&text, CLUSTER) {
                Ok(id) => {
                    prop_assert_eq!(id.as_str(), &text);
                    prop_assert!(id.snapshot().is_type("Microsoft.Compute/snapshots"));
                }
                Err(error) => prop_assert!(!error.to_string().is_empty()),
            }
        }
    }
}
