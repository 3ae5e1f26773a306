//! Whether a disk may be attached at all: which resource groups attachments may reach, and which disks a Pod may name.
//!
//! A Pod may name any disk in its volume `azureDisk`, and Kubernetes asks for its attach as for any other. So the author
//! of a Pod could read the disk of another claim. A disk that belongs to a claim is therefore attached only for its
//! PersistentVolume: by the cluster's own PersistentVolumes, or by the tags with which a driver marked the disk, also for
//! another cluster.
//!
//! Only what an attach would add is judged. A disk that the VM holds already stays, with a warning for a person.

use lazuli_model::{ArmId, Disk};

use lazuli_volume::claim_of;

/// Whether Pods may name the disks of claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum InlineVolumes {
    /// A disk that belongs to a claim is attached only for a PersistentVolume.
    #[default]
    Unclaimed,
    /// Any disk, as with the Go driver.
    Any,
}

/// What a VolumeAttachment is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttachmentSource {
    /// A PersistentVolume.
    PersistentVolume,
    /// A volume that a Pod names (`inlineVolumeSpec`).
    Inline,
    /// No VolumeAttachment has the name that Kubernetes gives to that of this disk on this node: none of a Pod's making.
    Unknown,
}

/// Why an attachment should not be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Objection {
    /// The disk's resource group is not one of those that the operator allows.
    #[error("{0}")]
    ResourceGroup(String),
    /// A PersistentVolume of the cluster is about it.
    #[error(
        "a Pod names it in a volume azureDisk, and PersistentVolume {0} is about it; let the Pod use that volume's claim, or \
         allow this with --allow-inline-claimed-disks=true"
    )]
    PersistentVolume(String),
    /// Its tags say that a driver made it for a claim.
    #[error(
        "a Pod names it in a volume azureDisk, and its tags say that it was made for claim {0}; let the Pod use a claim, or \
         allow this with --allow-inline-claimed-disks=true"
    )]
    Claim(String),
}

/// What becomes of a request to attach a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It is served.
    Admit,
    /// It is served, because the VM holds the disk already; an event reports it.
    Kept(Objection),
    /// It is refused.
    Refuse(Objection),
}

/// What is known of a request to attach a disk.
#[derive(Debug, Clone)]
pub struct Attachment<'a> {
    /// Which disks Pods may name.
    pub inline: InlineVolumes,
    /// What its VolumeAttachment is about.
    pub source: AttachmentSource,
    /// Whether the operator allows the disk's resource group, and if not, what is allowed.
    pub resource_group: Result<(), String>,
    /// The VM.
    pub vm: &'a ArmId,
}

impl Attachment<'_> {
    /// Whether the request depends on a read of the disk. It needs no read otherwise, and is served.
    pub fn needs_the_disk(&self) -> bool {
        self.resource_group.is_err()
            || self.inline == InlineVolumes::Unclaimed && self.source == AttachmentSource::Inline
    }

    /// What becomes of the request. `persistent_volume` is the name of a PersistentVolume that is about the disk.
    pub fn judge<I>(&self, persistent_volume: Option<&str>, disk: &Disk<I>) -> Verdict {
        let is_inline = self.inline == InlineVolumes::Unclaimed && self.source == AttachmentSource::Inline;
        let objection = if let Err(allowed) = &self.resource_group {
            Objection::ResourceGroup(allowed.clone())
        } else if let Some(volume) = persistent_volume.filter(|_| is_inline) {
            Objection::PersistentVolume(volume.to_owned())
        } else if let Some(claim) = claim_of(&disk.tags).filter(|_| is_inline) {
            Objection::Claim(claim)
        } else {
            return Verdict::Admit;
        };
        if disk.holders().contains(&self.vm) { Verdict::Kept(objection) } else { Verdict::Refuse(objection) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLAIM: [(&str, &str); 2] =
        [("kubernetes.io-created-for-pvc-name", "data"), ("Kubernetes.io-created-for-pvc-namespace", "db")];

    fn vm() -> ArmId {
        ArmId::virtual_machine("s", "g", "n0").unwrap()
    }

    fn disk(tags: &[(&str, &str)], holder: Option<ArmId>) -> Disk {
        let tags = tags.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Disk { tags, managed_by: holder, ..Disk::unattached("d0") }
    }

    fn attachment(source: AttachmentSource, vm: &ArmId) -> Attachment<'_> {
        Attachment { inline: InlineVolumes::Unclaimed, source, resource_group: Ok(()), vm }
    }

    #[test]
    fn a_disk_of_a_claim_is_attached_only_for_its_persistent_volume() {
        let vm = vm();
        let (claimed, plain) = (disk(&CLAIM, None), disk(&[], None));
        let inline = attachment(AttachmentSource::Inline, &vm);
        assert_eq!(inline.judge(None, &claimed), Verdict::Refuse(Objection::Claim("db/data".into())));
        assert_eq!(inline.judge(Some("pv"), &plain), Verdict::Refuse(Objection::PersistentVolume("pv".into())));
        assert_eq!(inline.judge(None, &plain), Verdict::Admit);
        let only_request = disk(&[("lazuli-request", "pvc-1")], None);
        assert_eq!(inline.judge(None, &only_request), Verdict::Refuse(Objection::Claim("pvc-1".into())));
        for source in [AttachmentSource::PersistentVolume, AttachmentSource::Unknown] {
            let attachment = attachment(source, &vm);
            assert!(!attachment.needs_the_disk());
            assert_eq!(attachment.judge(Some("pv"), &claimed), Verdict::Admit);
        }
        let any = Attachment { inline: InlineVolumes::Any, ..inline };
        assert!(!any.needs_the_disk());
        assert_eq!(any.judge(Some("pv"), &claimed), Verdict::Admit);
    }

    #[test]
    fn what_the_vm_holds_already_stays() {
        let (vm, other) = (vm(), ArmId::virtual_machine("s", "g", "n1").unwrap());
        let inline = attachment(AttachmentSource::Inline, &vm);
        let claim = || Objection::Claim("db/data".into());
        assert_eq!(inline.judge(None, &disk(&CLAIM, Some(vm.clone()))), Verdict::Kept(claim()));
        assert_eq!(inline.judge(None, &disk(&CLAIM, Some(other))), Verdict::Refuse(claim()));
    }

    #[test]
    fn a_resource_group_that_is_not_allowed_holds_for_every_source() {
        let vm = vm();
        for source in [AttachmentSource::PersistentVolume, AttachmentSource::Inline, AttachmentSource::Unknown] {
            let refused = Attachment { resource_group: Err("allowed are g".into()), ..attachment(source, &vm) };
            assert!(refused.needs_the_disk());
            let objection = || Objection::ResourceGroup("allowed are g".into());
            assert_eq!(refused.judge(None, &disk(&[], None)), Verdict::Refuse(objection()));
            assert_eq!(refused.judge(None, &disk(&[], Some(vm.clone()))), Verdict::Kept(objection()));
        }
    }
}
