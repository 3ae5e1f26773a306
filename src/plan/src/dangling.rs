//! Whether an attachment is dangling: Azure says that a VM holds a disk, and Kubernetes uses it there no more.
//!
//! It comes from a detach that was never asked for, such as that of a VolumeAttachment deleted by hand, or from an attach
//! that a second external-attacher asked for after the detach. The disk can neither be attached to another node nor be
//! deleted until it is detached, and nothing asks for that. But a disk that is detached while its node uses it loses
//! data. So every sign of use, and everything that cannot be told, counts as use.
//!
//! The facts are gathered in this order, each after the one before: the disk, by a single read ([`holder`]); the live
//! VolumeAttachments of its holder's node; that Node and its Lease ([`check`]). An attachment that is begun meanwhile
//! would show: its VolumeAttachment is made before anything is attached, and kubelet reports a volume as in use before it
//! mounts it.

use std::time::Duration;

use crate::{
    disk::is_made_by_driver,
    model::{ArmId, Disk, VolumeId},
};

/// How old the last sign of life of a node may be (source: the node controller takes a node for dead after 40 s without
/// a renewal of its Lease, and kubelet renews it every 10 s).
pub const OLDEST_LEASE: Duration = Duration::from_secs(60);

/// What Kubernetes says about a node that holds a disk, read live.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeFacts {
    /// The VolumeAttachments on the node whose volumes may be this driver's.
    pub attachments: Vec<NodeAttachment>,
    /// Whether kubelet reports that the node is ready.
    pub ready: bool,
    /// How long ago, by the API server's clock, the node's Lease was renewed; `None` when that cannot be told.
    pub lease_age: Option<Duration>,
    /// The names of the volumes that the Node's status lists as in use or attached.
    pub volumes: Vec<String>,
}

/// A VolumeAttachment on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeAttachment {
    /// Its name.
    pub name: String,
    /// The handle of its volume; `None` when that cannot be told.
    pub handle: Option<String>,
}

/// Why an attachment is not taken for dangling.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotDangling {
    /// Several VMs may hold the disk, so that the others may use it.
    #[error("several nodes may use it at the same time")]
    Shared,
    /// The disk has no tag of a driver.
    #[error("its tags name no Kubernetes driver that made it")]
    NotMadeByDriver,
    /// The VM that holds the disk may belong to another cluster, or to none.
    #[error("no Node of this cluster has the providerID of that machine")]
    NotANode,
    /// A VolumeAttachment is about the disk.
    #[error("VolumeAttachment {0} is about it")]
    Attached(String),
    /// It cannot be told which volume a VolumeAttachment is about.
    #[error("it cannot be told which volume VolumeAttachment {0} is about")]
    Unresolved(String),
    /// The node is not ready.
    #[error("the node is not ready, so what it uses is not known")]
    NotReady,
    /// The node has not renewed its Lease.
    #[error("the node has not renewed its Lease within {} s, so what it uses is not known", OLDEST_LEASE.as_secs())]
    Silent,
    /// The Node lists the volume.
    #[error("the Node's status lists it as in use or attached")]
    Listed,
    /// The Node lists a volume of the driver that cannot be read.
    #[error("the Node's status lists a volume that cannot be told: {0}")]
    UnknownVolume(String),
}

impl NotDangling {
    /// Whether a person must look: the attachment may be dangling, and nothing shows that it is in use.
    pub fn needs_a_person(&self) -> bool {
        match self {
            Self::Unresolved(_) | Self::NotReady | Self::Silent | Self::UnknownVolume(_) => true,
            Self::Shared | Self::NotMadeByDriver | Self::NotANode | Self::Attached(_) | Self::Listed => false,
        }
    }

    /// Whether Kubernetes itself says that the disk is used, and so will say when it is not.
    pub fn is_use(&self) -> bool {
        matches!(self, Self::Attached(_) | Self::Listed)
    }
}

/// The one VM that holds the disk; `None` when no VM does.
///
/// # Errors
/// [`NotDangling::Shared`] where other VMs may hold the disk at the same time, [`NotDangling::NotMadeByDriver`] where no
/// driver of Kubernetes made it.
pub fn holder(disk: &Disk) -> Result<Option<&ArmId>, NotDangling> {
    match disk.holders()[..] {
        [] => Ok(None),
        [holder] if disk.max_shares <= 1 => {
            if is_made_by_driver(&disk.tags) {
                Ok(Some(holder))
            } else {
                Err(NotDangling::NotMadeByDriver)
            }
        }
        _ => Err(NotDangling::Shared),
    }
}

/// Whether nothing on a node uses a disk that its VM holds. `driver` is the name of the CSI driver.
///
/// # Errors
/// The first [`NotDangling`].
pub fn check(disk: &ArmId, driver: &str, facts: &NodeFacts) -> Result<(), NotDangling> {
    let is_disk = |handle: &str| handle.parse::<VolumeId>().is_ok_and(|volume| volume.disk() == disk);
    for attachment in &facts.attachments {
        match &attachment.handle {
            None => return Err(NotDangling::Unresolved(attachment.name.clone())),
            Some(handle) if is_disk(handle) => return Err(NotDangling::Attached(attachment.name.clone())),
            Some(_) => {}
        }
    }
    if !facts.ready {
        return Err(NotDangling::NotReady);
    }
    if facts.lease_age.is_none_or(|age| age > OLDEST_LEASE) {
        return Err(NotDangling::Silent);
    }
    for volume in &facts.volumes {
        match handle_of(volume, driver) {
            Some(handle) if is_disk(handle) => return Err(NotDangling::Listed),
            // The handle of a page blob is a URL, and no managed disk.
            Some(handle) if handle.parse::<VolumeId>().is_err() && !handle.starts_with("https://") => {
                return Err(NotDangling::UnknownVolume(volume.clone()));
            }
            _ => {}
        }
    }
    Ok(())
}

/// The handle in a unique volume name, as kubelet spells it, if the volume is one of this driver's or of the in-tree
/// plugin's.
fn handle_of<'a>(volume: &'a str, driver: &str) -> Option<&'a str> {
    if let Some(rest) = volume.strip_prefix("kubernetes.io/csi/") {
        return rest.strip_prefix(driver)?.strip_prefix('^');
    }
    volume.strip_prefix("kubernetes.io/azure-disk/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Gib, ProvisioningState};

    const DRIVER: &str = "disk.csi.azure.com";

    fn disk() -> ArmId {
        ArmId::disk("s", "g", "d0").unwrap()
    }

    fn idle() -> NodeFacts {
        let other = ArmId::disk("s", "g", "d1").unwrap().to_string();
        NodeFacts {
            attachments: vec![NodeAttachment { name: "csi-1".into(), handle: Some(other.clone()) }],
            ready: true,
            lease_age: Some(Duration::from_secs(9)),
            volumes: vec![
                format!("kubernetes.io/csi/{DRIVER}^{other}"),
                format!("kubernetes.io/csi/other.example^{}", disk()),
                "kubernetes.io/csi/file.csi.azure.com^g#account#share".into(),
                "kubernetes.io/azure-disk/https://account.blob.core.windows.net/vhds/a.vhd".into(),
            ],
        }
    }

    #[test]
    fn only_a_disk_of_a_driver_that_one_vm_may_hold_is_looked_at() {
        let vm = ArmId::virtual_machine("s", "g", "n0").unwrap();
        let ours = || Disk {
            id: disk(),
            location: "local".into(),
            zones: Vec::new(),
            sku: None,
            size: Gib::new(1),
            state: None,
            provisioning_state: ProvisioningState::Succeeded,
            managed_by: Some(vm.clone()),
            managed_by_extended: Vec::new(),
            max_shares: 1,
            disk_encryption_set: None,
            tags: [("k8s-azure-created-by".to_owned(), "kubernetes-azure-dd".to_owned())].into(),
            iops: None,
            mbps: None,
            logical_sector_size: None,
            network_access_policy: None,
            source: None,
        };
        assert_eq!(holder(&ours()), Ok(Some(&vm)));
        assert_eq!(holder(&Disk { max_shares: 2, ..ours() }), Err(NotDangling::Shared));
        assert_eq!(holder(&Disk { tags: Default::default(), ..ours() }), Err(NotDangling::NotMadeByDriver));
        assert_eq!(holder(&Disk { managed_by: None, ..ours() }), Ok(None));
        let other = ArmId::virtual_machine("s", "g", "n1").unwrap();
        assert_eq!(holder(&Disk { managed_by_extended: vec![other], ..ours() }), Err(NotDangling::Shared));
    }

    #[test]
    fn nothing_that_speaks_for_use_is_overlooked() {
        assert_eq!(check(&disk(), DRIVER, &idle()), Ok(()));
        let shouted = disk().to_string().to_uppercase().replace("SUBSCRIPTIONS", "subscriptions");
        let attachment = |handle: Option<String>| NodeAttachment { name: "csi-2".into(), handle };
        let with = |change: &dyn Fn(&mut NodeFacts)| {
            let mut facts = idle();
            change(&mut facts);
            check(&disk(), DRIVER, &facts).unwrap_err()
        };
        let attached = attachment(Some(shouted.clone()));
        assert_eq!(with(&|facts| facts.attachments.push(attached.clone())), NotDangling::Attached("csi-2".into()));
        assert_eq!(with(&|facts| facts.attachments.push(attachment(None))), NotDangling::Unresolved("csi-2".into()));
        assert_eq!(with(&|facts| facts.ready = false), NotDangling::NotReady);
        assert_eq!(with(&|facts| facts.lease_age = None), NotDangling::Silent);
        assert_eq!(with(&|facts| facts.lease_age = Some(OLDEST_LEASE + Duration::from_millis(1))), NotDangling::Silent);
        for name in [format!("kubernetes.io/csi/{DRIVER}^{shouted}"), format!("kubernetes.io/azure-disk/{shouted}")] {
            assert_eq!(with(&|facts| facts.volumes.push(name.clone())), NotDangling::Listed);
        }
        let odd = format!("kubernetes.io/csi/{DRIVER}^odd");
        assert_eq!(with(&|facts| facts.volumes.push(odd.clone())), NotDangling::UnknownVolume(odd.clone()));
    }
}
