//! Whether an attachment is dangling: Azure says that a VM holds a disk, and Kubernetes uses it there no more.
//!
//! It comes from a detach that was never asked for, such as that of a VolumeAttachment deleted by hand, or from an attach
//! that a second external-attacher asked for after the detach. The disk can neither be attached to another node nor be
//! deleted until it is detached, and nothing asks for that. But a disk that is detached while its node uses it loses
//! data. So every sign of use, and everything that cannot be told, counts as use.
//!
//! Facts about use do not show why the disk is there. A person may have attached it by hand, for example to save the data
//! of a volume that is being deleted. So the disk of a volume that is being deleted is detached only where this process
//! itself put it there for Kubernetes, and nothing has attached or detached it since ([`SeenAttachments`]): this process
//! remembers when Azure's answer showed the attachment, and Azure stamps each disk with the time of its last attach or
//! detach. Both times are Azure's, so the clock of this process does not matter. A process that has started since knows
//! nothing of that, and a person decides, as where the disk has no stamp or its VM was started since. The Go driver never detaches for a deletion. For a pod on another
//! node it detaches whatever no VolumeAttachment names, and so does this driver, after stricter checks, unless the
//! operator switches that off ([`DetachUnused`]).
//!
//! The facts are gathered in this order, each after the one before: the disk, by a single read ([`holder`]); the live
//! VolumeAttachments of its holder's node; that Node and its Lease ([`check`]). An attachment that is begun meanwhile
//! would show: its VolumeAttachment is made before anything is attached, and kubelet reports a volume as in use before it
//! mounts it. The detach that follows is for the attachment that was judged, and is sent only if a read made right before
//! shows the same one ([`Dangling`]).

use std::{collections::BTreeMap, time::Duration};

use lazuli_model::{ArmId, AzureTime, Disk, DiskId, VolumeId, disk_tags::is_made_by_driver};

/// How old the last sign of life of a node may be (source: the node controller takes a node for dead after 40 s without
/// a renewal of its Lease, and kubelet renews it every 10 s).
pub const OLDEST_LEASE: Duration = Duration::from_secs(60);

/// The request that the attachment of a disk to another VM stands in the way of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blocked {
    /// The disk is to be attached to another node.
    Attach,
    /// The disk is to be deleted.
    Delete,
}

/// Whether disks are detached from nodes on which Kubernetes does not use them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DetachUnused {
    /// They are, where that is proved.
    #[default]
    On,
    /// Never.
    Off,
}

/// Who attached a disk to the VM that holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttachedBy {
    /// This process, for a VolumeAttachment, and it has not detached the disk since.
    ThisProcess,
    /// Not known: another process, another tool, a person.
    Unknown,
}

/// The last attachment of each disk that this process has made for a VolumeAttachment, or found made when it was asked to.
/// It holds what this process has seen, and may be lost: then a person decides.
#[derive(Debug, Default)]
pub struct SeenAttachments(BTreeMap<DiskId, Attachment>);

/// An attachment that this process has seen.
#[derive(Debug, Clone)]
struct Attachment {
    vm: ArmId,
    /// The time of the answer that showed it.
    answered: AzureTime,
}

/// How many disks' attachments are remembered.
const MOST_SEEN: usize = 16_384;

impl SeenAttachments {
    /// An attach of the disk to the VM, which Kubernetes asked for, has ended, and an answer of that time shows it; `None`
    /// where the answer has no time. So no other VM holds the disk: a disk that several may hold is never detached here
    /// ([`NotDangling::Shared`]).
    pub fn attached(&mut self, disk: &DiskId, vm: &ArmId, answered: Option<AzureTime>) {
        let Some(answered) = answered else { return self.forget(disk) };
        if self.0.len() >= MOST_SEEN && !self.0.contains_key(disk) {
            self.0.pop_first();
        }
        self.0.insert(disk.clone(), Attachment { vm: vm.clone(), answered });
    }

    /// The disk was detached from the VM, or is to be: who attaches it next is not known.
    pub fn detached(&mut self, disk: &DiskId, vm: &ArmId) {
        if self.0.get(disk).is_some_and(|attachment| attachment.vm == *vm) {
            self.0.remove(disk);
        }
    }

    /// A read shows these VMs as the disk's holders. One that is not among them has let it go.
    pub fn held_by(&mut self, disk: &DiskId, holders: &[&ArmId]) {
        if self.0.get(disk).is_some_and(|attachment| !holders.contains(&&attachment.vm)) {
            self.0.remove(disk);
        }
    }

    /// The disk was deleted.
    pub fn forget(&mut self, disk: &DiskId) {
        self.0.remove(disk);
    }

    /// Who attached the disk to the VM, by a single read of the disk.
    pub fn attached_by(&self, disk: &Disk<DiskId>, vm: &ArmId) -> AttachedBy {
        match self.0.get(&disk.id) {
            Some(seen) if seen.vm == *vm && disk.is_held_since(vm, seen.answered) => AttachedBy::ThisProcess,
            _ => AttachedBy::Unknown,
        }
    }
}

/// An attachment that was found dangling. Its detach waits in the queue of its VM, for as long as Azure makes it wait, and
/// the attachment may be another one when its turn comes. So the detach is for this attachment alone: the disk is read
/// again right before the write is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dangling {
    blocked: Blocked,
    vm: ArmId,
    /// The time of the disk's last attach or detach, as Azure gave it when the attachment was found dangling.
    ownership_changed: Option<AzureTime>,
}

impl Dangling {
    /// The attachment of a disk to its holder, by the single read of the disk that was judged.
    pub fn new(blocked: Blocked, disk: &Disk<DiskId>, holder: &ArmId) -> Self {
        Self { blocked, vm: holder.clone(), ownership_changed: disk.ownership_changed }
    }

    /// Whether the detach may be sent, by a single read of the disk that was sent after the last wait. `attached_by` follows
    /// from that read. `named` says whether a VolumeAttachment on the VM's node names a LUN of the disk now.
    ///
    /// # Errors
    /// [`NotDangling::Named`], [`NotDangling::MayBeAPersons`], [`NotDangling::Changed`].
    pub fn check_again(&self, disk: &Disk<DiskId>, attached_by: AttachedBy, named: bool) -> Result<(), NotDangling> {
        if named {
            return Err(NotDangling::Named);
        }
        may_detach(self.blocked, DetachUnused::On, attached_by)?;
        match holder(disk)? {
            Some(holder) if *holder == self.vm && disk.ownership_changed == self.ownership_changed => Ok(()),
            _ => Err(NotDangling::Changed),
        }
    }
}

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
    /// A Node names no machine, and may be the one that holds the disk.
    #[error(
        "Node {0} has no spec.providerID and may be that machine, so what it uses there is not known; a cloud controller sets \
         the providerID of a Node"
    )]
    NodeWithoutMachine(String),
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
    /// The operator has switched it off.
    #[error("--detach-unused-disks is false")]
    SwitchedOff,
    /// Nothing shows that the disk is there for Kubernetes.
    #[error(
        "nothing shows that this process attached it there last: it has not since it started, or the disk was attached \
         again or its VM started since, so a person may have attached it, for example to save its data"
    )]
    MayBeAPersons,
    /// A VolumeAttachment has come to name the disk since Kubernetes was asked.
    #[error("a VolumeAttachment of the node names it by now")]
    Named,
    /// The attachment is not the one that was judged.
    #[error("the disk was attached or detached since it was found unused there; the next request looks again")]
    Changed,
}

impl NotDangling {
    /// Whether a person must look: the attachment may be dangling, and nothing shows that it is in use.
    pub fn needs_a_person(&self) -> bool {
        match self {
            Self::NodeWithoutMachine(_)
            | Self::Unresolved(_)
            | Self::NotReady
            | Self::Silent
            | Self::UnknownVolume(_)
            | Self::SwitchedOff
            | Self::MayBeAPersons => true,
            Self::Shared
            | Self::NotMadeByDriver
            | Self::NotANode
            | Self::Attached(_)
            | Self::Listed
            | Self::Named
            | Self::Changed => false,
        }
    }

    /// Whether nobody needs to do anything: Kubernetes itself says that the disk is used, and so will say when it is not, or
    /// the next request judges anew.
    pub fn is_use(&self) -> bool {
        matches!(self, Self::Attached(_) | Self::Listed | Self::Named | Self::Changed)
    }
}

/// Whether the disk of this request may be detached from a node that does not use it ([`check`]).
///
/// # Errors
/// [`NotDangling::SwitchedOff`], [`NotDangling::MayBeAPersons`].
pub fn may_detach(blocked: Blocked, switch: DetachUnused, attached_by: AttachedBy) -> Result<(), NotDangling> {
    match (switch, blocked, attached_by) {
        (DetachUnused::Off, _, _) => Err(NotDangling::SwitchedOff),
        (DetachUnused::On, Blocked::Delete, AttachedBy::Unknown) => Err(NotDangling::MayBeAPersons),
        (DetachUnused::On, Blocked::Delete, AttachedBy::ThisProcess) | (DetachUnused::On, Blocked::Attach, _) => Ok(()),
    }
}

/// The command of Azure's command line that detaches a disk from a machine.
pub fn detach_command(vm: &ArmId, disk: &DiskId) -> String {
    let (subscription, group) = (vm.subscription(), vm.resource_group());
    match vm.parent() {
        Some(set) => format!(
            "az vmss disk detach --subscription {subscription} --resource-group {group} --vmss-name {} --instance-id {} \
             --lun LUN, with the LUN at which the instance lists the disk {}",
            set.name(),
            vm.name(),
            disk.name()
        ),
        None if disk.blob().is_some() => format!(
            "az vm unmanaged-disk detach --subscription {subscription} --resource-group {group} --vm-name {} --name NAME, with \
             the NAME by which the machine lists {disk}",
            vm.name()
        ),
        None => format!(
            "az vm disk detach --subscription {subscription} --resource-group {group} --vm-name {} --name {}",
            vm.name(),
            disk.name()
        ),
    }
}

/// The one VM that holds the disk; `None` when no VM does.
///
/// # Errors
/// [`NotDangling::Shared`] where other VMs may hold the disk at the same time, [`NotDangling::NotMadeByDriver`] where no
/// driver of Kubernetes made it.
pub fn holder<I>(disk: &Disk<I>) -> Result<Option<&ArmId>, NotDangling> {
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
pub fn check(disk: &DiskId, driver: &str, facts: &NodeFacts) -> Result<(), NotDangling> {
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
            Some(handle) if handle.parse::<VolumeId>().is_err() => {
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

    const DRIVER: &str = "disk.csi.azure.com";

    fn disk() -> DiskId {
        DiskId::from(ArmId::disk("s", "g", "d0").unwrap())
    }

    fn idle() -> NodeFacts {
        let other = DiskId::from(ArmId::disk("s", "g", "d1").unwrap()).to_string();
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
        let tags: BTreeMap<_, _> = [("k8s-azure-created-by".to_owned(), "kubernetes-azure-dd".to_owned())].into();
        let ours = || Disk::<DiskId> { managed_by: Some(vm.clone()), tags: tags.clone(), ..Disk::unattached("d0") };
        assert_eq!(holder(&ours()), Ok(Some(&vm)));
        assert_eq!(holder(&Disk { max_shares: 2, ..ours() }), Err(NotDangling::Shared));
        assert_eq!(holder(&Disk { tags: Default::default(), ..ours() }), Err(NotDangling::NotMadeByDriver));
        assert_eq!(holder(&Disk { managed_by: None, ..ours() }), Ok(None));
        let other = ArmId::virtual_machine("s", "g", "n1").unwrap();
        assert_eq!(holder(&Disk { managed_by_extended: vec![other], ..ours() }), Err(NotDangling::Shared));
    }

    #[test]
    fn for_a_deletion_only_what_this_process_attached_and_has_not_detached_since_is_detached() {
        let vm = |name: &str| ArmId::virtual_machine("s", "g", name).unwrap();
        let (one, other) = (vm("n0"), vm("n1"));
        let by_unknown = [(Blocked::Attach, Ok(())), (Blocked::Delete, Err(NotDangling::MayBeAPersons))];
        for (blocked, expected) in by_unknown {
            assert_eq!(may_detach(blocked, DetachUnused::On, AttachedBy::Unknown), expected);
            assert_eq!(may_detach(blocked, DetachUnused::On, AttachedBy::ThisProcess), Ok(()));
            for by in [AttachedBy::Unknown, AttachedBy::ThisProcess] {
                assert_eq!(may_detach(blocked, DetachUnused::Off, by), Err(NotDangling::SwitchedOff));
            }
        }
        let mut seen = SeenAttachments::default();
        let at = |second| Some(AzureTime::from_unix_seconds(second));
        let by = |seen: &SeenAttachments, vm: &ArmId| {
            let managed_by = Some(vm.clone());
            seen.attached_by(&Disk { managed_by, ownership_changed: at(7), ..Disk::unattached("d0") }, vm)
        };
        assert_eq!(by(&seen, &one), AttachedBy::Unknown, "a process that has just started");
        seen.attached(&disk(), &one, at(9));
        assert_eq!((by(&seen, &one), by(&seen, &other)), (AttachedBy::ThisProcess, AttachedBy::Unknown));
        seen.detached(&disk(), &one);
        assert_eq!(by(&seen, &one), AttachedBy::Unknown);
        seen.attached(&disk(), &one, at(9));
        seen.held_by(&disk(), &[&one]);
        assert_eq!(by(&seen, &one), AttachedBy::ThisProcess);
        seen.held_by(&disk(), &[]);
        assert_eq!(by(&seen, &one), AttachedBy::Unknown, "another process has detached it");
        seen.attached(&disk(), &one, at(9));
        seen.attached(&disk(), &other, at(9));
        assert_eq!(
            (by(&seen, &one), by(&seen, &other)),
            (AttachedBy::Unknown, AttachedBy::ThisProcess),
            "one VM at a time"
        );
        seen.attached(&disk(), &one, at(9));
        seen.forget(&disk());
        assert_eq!(by(&seen, &one), AttachedBy::Unknown);
        seen.attached(&disk(), &one, at(9));
        seen.attached(&disk(), &one, None);
        assert_eq!(by(&seen, &one), AttachedBy::Unknown, "an answer without a time");
    }

    #[test]
    fn an_attach_that_azure_stamped_later_than_the_answer_that_this_process_saw_is_another_hands() {
        let vm = ArmId::virtual_machine("s", "g", "n0").unwrap();
        let at = |second| Some(AzureTime::from_unix_seconds(second));
        let mut seen = SeenAttachments::default();
        seen.attached(&disk(), &vm, at(100));
        for (stamp, holder, expected) in [
            (at(90), Some(&vm), AttachedBy::ThisProcess),
            (at(100), Some(&vm), AttachedBy::ThisProcess),
            (at(101), Some(&vm), AttachedBy::Unknown),
            (None, Some(&vm), AttachedBy::Unknown),
            (at(90), None, AttachedBy::Unknown),
        ] {
            let disk = Disk { managed_by: holder.cloned(), ownership_changed: stamp, ..Disk::unattached("d0") };
            assert_eq!(seen.attached_by(&disk, &vm), expected, "{stamp:?} {holder:?}");
        }
    }

    #[test]
    fn a_detach_is_sent_only_for_the_attachment_that_was_found_dangling() {
        let (vm, other) =
            (ArmId::virtual_machine("s", "g", "n0").unwrap(), ArmId::virtual_machine("s", "g", "n1").unwrap());
        let tags: BTreeMap<_, _> = [("k8s-azure-created-by".to_owned(), "kubernetes-azure-dd".to_owned())].into();
        let held = |holder: Option<&ArmId>, second: Option<i64>| Disk {
            managed_by: holder.cloned(),
            ownership_changed: second.map(AzureTime::from_unix_seconds),
            tags: tags.clone(),
            ..Disk::unattached("d0")
        };
        use AttachedBy::{ThisProcess, Unknown};
        for (blocked, seen, now, by, named, expected) in [
            (Blocked::Attach, held(Some(&vm), Some(7)), held(Some(&vm), Some(7)), Unknown, false, Ok(())),
            (Blocked::Attach, held(Some(&vm), None), held(Some(&vm), None), Unknown, false, Ok(())),
            (Blocked::Delete, held(Some(&vm), Some(7)), held(Some(&vm), Some(7)), ThisProcess, false, Ok(())),
            (
                Blocked::Delete,
                held(Some(&vm), Some(7)),
                held(Some(&vm), Some(7)),
                Unknown,
                false,
                Err(NotDangling::MayBeAPersons),
            ),
            (
                Blocked::Delete,
                held(Some(&vm), Some(7)),
                held(Some(&vm), Some(8)),
                ThisProcess,
                false,
                Err(NotDangling::Changed),
            ),
            (
                Blocked::Attach,
                held(Some(&vm), Some(7)),
                held(Some(&vm), Some(8)),
                Unknown,
                false,
                Err(NotDangling::Changed),
            ),
            (
                Blocked::Attach,
                held(Some(&vm), None),
                held(Some(&vm), Some(8)),
                Unknown,
                false,
                Err(NotDangling::Changed),
            ),
            (
                Blocked::Attach,
                held(Some(&vm), Some(7)),
                held(Some(&other), Some(7)),
                Unknown,
                false,
                Err(NotDangling::Changed),
            ),
            (Blocked::Attach, held(Some(&vm), Some(7)), held(None, Some(7)), Unknown, false, Err(NotDangling::Changed)),
            (
                Blocked::Attach,
                held(Some(&vm), Some(7)),
                held(Some(&vm), Some(7)),
                Unknown,
                true,
                Err(NotDangling::Named),
            ),
        ] {
            let dangling = Dangling::new(blocked, &seen, &vm);
            assert_eq!(dangling.check_again(&now, by, named), expected, "{blocked:?} {seen:?} {now:?} {named}");
        }
    }

    #[test]
    fn the_command_names_the_machine_and_the_disk() {
        let vm = ArmId::virtual_machine("s", "g", "n0").unwrap();
        assert_eq!(
            detach_command(&vm, &disk()),
            "az vm disk detach --subscription s --resource-group g --vm-name n0 --name d0"
        );
        let instance =
            "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/a/virtualMachines/3";
        let command = detach_command(&instance.parse().unwrap(), &disk());
        assert!(command.contains("--vmss-name a --instance-id 3"), "{command}");
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
