//! What DeleteVolume may delete.
//!
//! A share is deleted only where the evidence says that nothing else needs it: no other PersistentVolume names it, a
//! driver made it, and it has no snapshots. Azure Resource Manager deletes a share together with its snapshots unless it
//! is told not to; each DELETE therefore says `$include=none`, and Azure refuses it where there is a snapshot.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc, time::Duration};

use lazuli_model::{ArmId, FileShare, Gib, fault::Code, file_share::CREATED_BY, op::ShareWrite, parameter::Parameters};

use crate::{
    adoption::{Adoptions, BEGINNING, Unseen},
    mount::{says_its_account, share_of},
    name,
    secret::{account_of_secret, is_account_name, key_source},
    volume_id::ShareVolumeId,
};

/// The name of the driver, which the Go driver and this one write into the metadata of the shares that they make.
pub const DRIVER_NAME: &str = "file.csi.azure.com";

/// The PersistentVolumes of the cluster that may name a share, by name; `None` while they are not known.
pub type ShareVolumes = Option<Arc<Vec<VolumeRef>>>;

/// The account whose server a PersistentVolume is mounted from, by its attribute `server`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Server {
    /// It says none: the account's own.
    OfAccount,
    /// That of this account, by its name in Azure's domains.
    Of(String),
    /// An address or a name that does not tell whose it is.
    Unknown(String),
}

impl Server {
    /// Reads `server`: Azure's names are `ACCOUNT.file.SUFFIX` and `ACCOUNT.privatelink.file.SUFFIX`.
    fn read(text: &str) -> Self {
        let text = text.trim();
        if text.is_empty() {
            return Self::OfAccount;
        }
        let lower = text.to_ascii_lowercase();
        match lower.split_once('.') {
            Some((account, rest))
                if is_account_name(account)
                    && text.parse::<IpAddr>().is_err()
                    && (rest.starts_with("file.") || rest.starts_with("privatelink.file.")) =>
            {
                Self::Of(account.to_owned())
            }
            _ => Self::Unknown(text.to_owned()),
        }
    }
}

/// A PersistentVolume of this driver, or of the in-tree plugin, and what it says of its share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeRef {
    /// The name of the PersistentVolume.
    pub name: String,
    /// Its volume id; `None` for one of the in-tree plugin.
    pub volume_id: Option<String>,
    /// The account; `None` where it is not certain, because a Secret names it.
    pub account: Option<String>,
    /// The server that it is mounted from.
    pub server: Server,
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
        let is_sure = says_its_account(Parameters::context(attributes), id.as_ref()).unwrap_or(false);
        let account = key_source(attributes, id.as_ref()).ok().and_then(|source| source.account);
        Self {
            name: name.to_owned(),
            volume_id: Some(volume_id.to_owned()),
            account: account.filter(|_| is_sure),
            server: match Parameters::context(attributes).get("server") {
                Ok(server) => server.map_or(Server::OfAccount, |server| Server::read(server.value)),
                Err(error) => Server::Unknown(error.to_string()),
            },
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
            server: Server::OfAccount,
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

    /// Whether it may be about this share; `Some` with what it does not say, which counts as equal.
    fn may_name(&self, account: &str, share: &str) -> Option<Vec<&'static str>> {
        let is_equal = |name: &str| name.trim().eq_ignore_ascii_case(account);
        let mut unsaid = Vec::new();
        match (&self.account, &self.server) {
            (Some(named), _) if is_equal(named) => {}
            (_, Server::Of(server)) if is_equal(server) => {}
            (_, Server::Unknown(_)) => unsaid.push("whose server its attribute server is"),
            // Its server says which account it is, though its key is in a Secret alone.
            (None, Server::Of(_)) => return None,
            (None, Server::OfAccount) => unsaid.push("its storage account (attribute storageAccount)"),
            (Some(_), _) => return None,
        }
        match self.share.as_deref() {
            Some(name) => {
                let name = name.trim_start_matches('/').split(['/', '\\']).next().unwrap_or_default();
                if !name.eq_ignore_ascii_case(share) {
                    return None;
                }
            }
            None => unsaid.push("its share (attribute shareName)"),
        }
        Some(unsaid)
    }
}

/// The PersistentVolume of a volume, as far as it is known.
pub fn volume_of<'a>(volumes: &'a [VolumeRef], volume: &ShareVolumeId) -> Option<&'a str> {
    volumes.iter().filter(|one| one.has(volume)).max_by_key(|one| one.is_released_for_deletion).map(|one| &*one.name)
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
    /// The requests that were given shares.
    pub adoptions: &'a Adoptions,
    /// When the judgement is made, on the clock of the adoptions.
    pub now: Duration,
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
    /// A PersistentVolume does not say enough to tell that it is about another share.
    #[error(
        "share {share} of storage account {account} is kept: PersistentVolume {other} may need it, for it does not say {}; correct \
         or delete PersistentVolume {other}, and delete the share by hand if nobody needs it", unsaid.join(", nor ")
    )]
    Unclear {
        /// The account.
        account: String,
        /// The share.
        share: String,
        /// The PersistentVolume.
        other: String,
        /// What it does not say.
        unsaid: Vec<&'static str>,
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

impl Kept {
    /// The PersistentVolume that a person must mend, so that shares are deleted again.
    pub fn must_be_mended(&self) -> Option<&str> {
        match self {
            Self::Unclear { other, .. } => Some(other),
            Self::Shared { .. } | Self::NotOurs { .. } => None,
        }
    }
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
    /// CreateVolume has given it to a request whose PersistentVolume is not seen yet.
    #[error(
        "share {share} was given to the request {request} too, whose PersistentVolume is not known yet; the deletion is tried again"
    )]
    Adopted {
        /// The share.
        share: String,
        /// The request.
        request: String,
    },
    /// This process does not know which requests have got it.
    #[error(
        "share {0} is named by its StorageClass, and the controller has begun less than {minutes} minutes ago: it does not know \
         whether another claim has just got the share; the deletion is tried again", minutes = BEGINNING.as_secs() / 60
    )]
    JustBegun(String),
    /// It is not known whether another PersistentVolume names it.
    #[error("the PersistentVolumes of the cluster are not known yet; the deletion is tried again")]
    VolumesUnknown,
}

impl NotNow {
    /// The gRPC code. external-provisioner repeats a deletion after either.
    pub fn code(&self) -> Code {
        match self {
            Self::HasSnapshots { .. } => Code::FailedPrecondition,
            Self::VolumesUnknown | Self::NotReleased(_) | Self::Adopted { .. } | Self::JustBegun(_) => {
                Code::Unavailable
            }
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

/// Why other PersistentVolumes keep a share: one that names it, else one that does not say enough.
fn needed_by(volumes: &[VolumeRef], account: &str, share: &str) -> Option<Kept> {
    let needed = volumes.iter().filter(|one| !one.is_released_for_deletion);
    let needed = needed.filter_map(|one| one.may_name(account, share).map(|unsaid| (one, unsaid)));
    let order = |(one, unsaid): &(&VolumeRef, Vec<_>)| (!unsaid.is_empty(), one.name.clone(), unsaid.clone());
    let (other, unsaid) = needed.min_by_key(order)?;
    let (account, share, other) = (account.to_owned(), share.to_owned(), other.name.clone());
    Some(match unsaid.is_empty() {
        true => Kept::Shared { account, share, other },
        false => Kept::Unclear { account, share, other, unsaid },
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
    if let Some(kept) = needed_by(volumes, &evidence.volume.account, share) {
        return Verdict::Keep(kept);
    }
    let unseen = evidence.adoptions.unseen(evidence.share_id, &evidence.volume.uuid, volumes, evidence.now);
    if let Unseen::Request(request) = unseen {
        return Verdict::Refuse(NotNow::Adopted { share: share.to_owned(), request: request.to_owned() });
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
    if unseen == Unseen::Forgotten && evidence.volume.is_named_by_class() && !name::is_in_tree(share) {
        return Verdict::Refuse(NotNow::JustBegun(share.to_owned()));
    }
    if !evidence.snapshots.is_empty() {
        let mut snapshots = evidence.snapshots.to_vec();
        snapshots.sort();
        return Verdict::Refuse(NotNow::HasSnapshots { share: share.to_owned(), snapshots });
    }
    Verdict::Delete(ShareWrite::Delete { share: evidence.share_id.clone() })
}

#[cfg(test)]
mod tests;
