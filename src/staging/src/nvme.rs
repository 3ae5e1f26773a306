//! Which namespace of an NVMe controller is the data disk at a LUN.
//!
//! A machine whose size shows disks over NVMe has a controller for its remote disks, and perhaps others for local ones. A
//! remote disk is a namespace, and its LUN is the namespace's id less an offset. Where the disk of the operating system is
//! namespace 1, the data disks begin at 2 (source: azure-vm-utils, `identify_disks.c`). Other offsets are told of, and
//! blank disks of one size that are shifted by one look right to every check but the metadata. So the offset is proved, or
//! it is an operator's word and counts only as far as the metadata bears it out.
//!
//! | what is seen | what follows |
//! |---|---|
//! | the kernel's `root=` names a device, and that lies on namespace 1 of the controller | the offset is 2 |
//! | `root=` names a UUID or a label, kubelet's folder lies on namespace 1, and so does that, or the folder is in the root file system itself | the same |
//! | `root=` is not found among the disks, and kubelet's folder lies on namespace 1, which has partitions or the root file system | the same |
//! | `root=` lies elsewhere, whatever kubelet's folder says | nothing is proved |
//! | nothing is proved, and an operator gives an offset | it counts while every disk of the metadata is found by it with its size, and no namespace is left over |
//! | nothing is proved, and none is given | no LUN is known |
//!
//! Who may write to a disk can give it the UUID or the label of another. So such a `root=` needs a second witness, and has no
//! veto against one that nobody can forge: a file system in which kubelet's folder has the path that it has on the machine is
//! the root file system.
//!
//! The name that the kernel gives to a namespace counts for nothing: it is the order in which the namespaces appeared.

use std::fmt;

use lazuli_model::{Gib, Lun};

use crate::device_identity::Listed;

/// The model of the controller of remote disks (source: azure-vm-utils, `identify_disks.c`). Every other model is of
/// another kind: `Microsoft NVMe Direct Disk` and its followers are temporary storage.
pub const REMOTE_DISKS: &str = "MSFT NVMe Accelerator v1.0";

/// The namespace of the operating system's disk.
const SYSTEM_NSID: u32 = 1;

/// The offset where the disk of the operating system is namespace 1.
const PROVED_OFFSET: u32 = 2;

/// How an operator finds the offset.
pub const FIND_OFFSET: &str =
    "it is the namespace id of a data disk (grep . /sys/block/nvme*/nsid on the node) less its LUN in Azure";

/// What a controller's state is called when it serves requests (source: Linux, `nvme_sysfs_show_state`).
const LIVE: &str = "live";

/// A namespace that has a block device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// The kernel's name of its block device.
    pub name: String,
    /// Its id.
    pub nsid: u32,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// Whether the kernel has found partitions on it.
    pub is_partitioned: bool,
}

/// An NVMe controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Controller {
    /// The kernel's name: `nvme0`.
    pub name: String,
    /// Its model, without padding.
    pub model: String,
    /// Its state, as the kernel calls it.
    pub state: String,
    /// Its namespaces.
    pub namespaces: Vec<Namespace>,
}

/// How `root=` names its device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RootNamed {
    /// By a node: `/dev/nvme0n1p1`.
    #[default]
    Node,
    /// By what is written on it: a UUID or a label.
    Content,
}

/// On which whole disks the system lies, by the kernel's names; empty where that is not known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SystemDisks {
    /// Those under what the kernel was started with as `root=`.
    pub root: Vec<String>,
    /// How that names its device.
    pub root_named: RootNamed,
    /// Those under kubelet's folder.
    pub kubelet: Vec<String>,
    /// Whether that folder has the path in its file system that it has on the machine: no other is mounted on the way to it.
    pub is_kubelet_in_root: bool,
}

/// What a machine shows of NVMe.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// All controllers.
    pub controllers: Vec<Controller>,
    /// Where the system lies.
    pub system: SystemDisks,
}

/// Why a namespace counts as the disk at a LUN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offset {
    /// The system lies on namespace 1.
    Proved,
    /// An operator gave the offset, or another one than is proved: the metadata must bear it out.
    Given,
}

/// By what the LUNs of the disks of a machine are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Luns {
    /// The system lies on namespace 1.
    Proved,
    /// An operator gave the offset.
    Given,
    /// By nothing: no disk is used.
    Unknown,
}

/// A disk that is a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NvmeDisk {
    /// The kernel's name of the controller.
    pub controller: String,
    /// The id of the namespace.
    pub nsid: u32,
    /// Why it counts as the disk at its LUN.
    pub offset: Offset,
}

/// What is at a LUN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// No controller of remote disks is there, or none that has a namespace: this is no NVMe machine, or has no disks.
    NoDisks,
    /// The block device of this name.
    At(String, NvmeDisk),
    /// No namespace. These disks are at other LUNs.
    Nothing(Vec<(u32, String)>),
    /// Several namespaces, by the kernel's names.
    Ambiguous(Vec<String>),
    /// A controller does not serve requests now, for this reason.
    NotReady(String),
    /// It is not known which namespace it is.
    Unplaced(Unplaced),
}

/// Why it is not known which namespace is at a LUN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unplaced {
    /// Nothing proves the offset, and none is given.
    NotProved {
        /// The controllers of remote disks.
        controllers: Vec<String>,
        /// Where the system lies.
        system: SystemDisks,
    },
    /// An operator gives another offset than the one that is proved, and there are disks on other controllers.
    GivenOtherThanProved {
        /// The controller.
        controller: String,
        /// The offset that is given.
        given: u32,
    },
    /// The disk is on no controller with the system, and nothing says how the ids of the others count.
    Beside {
        /// The other controllers of remote disks.
        controllers: Vec<String>,
    },
    /// An operator gives an offset, and there are several controllers of remote disks.
    SeveralControllers(Vec<String>),
    /// By the offset that an operator gives, no namespace is at the LUN.
    NoNamespace {
        /// The controller.
        controller: String,
        /// The offset.
        offset: u32,
        /// The id of the namespace.
        nsid: u32,
        /// The ids that there are.
        seen: Vec<u32>,
    },
}

impl Unplaced {
    /// Whether a disk that appears may end it.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::NoNamespace { .. } | Self::Beside { .. })
    }
}

impl fmt::Display for Unplaced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotProved { controllers, system } => write!(
                f,
                "disks come by NVMe here, and nothing proves which namespace of {} has which LUN: {system}, and that does not \
                 prove that namespace 1 is the operating system's disk; give the offset between namespace ids \
                 and LUNs to the node plugin with --nvme-lun-offset: {FIND_OFFSET}",
                controllers.join(" and ")
            ),
            Self::GivenOtherThanProved { controller, given } => write!(
                f,
                "--nvme-lun-offset is {given}, and the operating system's disk is namespace 1 of {controller}, which proves \
                 the offset {PROVED_OFFSET} there; data disks are on other controllers too, and one offset must hold for all"
            ),
            Self::Beside { controllers } => write!(
                f,
                "no namespace with the disk's id is on the controller of the operating system's disk, and nothing proves which \
                 namespace of {} has which LUN; where the offset is {PROVED_OFFSET} there too, say so to the node plugin with \
                 --nvme-lun-offset={PROVED_OFFSET}",
                controllers.join(" and ")
            ),
            Self::SeveralControllers(controllers) => write!(
                f,
                "--nvme-lun-offset is given, and there are several NVMe controllers of remote disks: {}",
                controllers.join(" and ")
            ),
            Self::NoNamespace { controller, offset, nsid, seen } => {
                let seen: Vec<String> = seen.iter().map(u32::to_string).collect();
                write!(
                    f,
                    "by the offset {offset}, which --nvme-lun-offset gives or must bear out, the disk would be namespace {nsid} of \
                     {controller}, which has {}: it has not come yet, or the offset is another one",
                    seen.join(", ")
                )
            }
        }
    }
}

fn named(disks: &[String]) -> String {
    if disks.is_empty() { "no disk that is known".to_owned() } else { disks.join(" and ") }
}

/// What speaks against an offset that an operator gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Disagreement {
    /// The metadata lists no disk.
    NothingListed,
    /// No namespace is where a listed disk should be.
    Missing {
        /// The LUN of the disk.
        lun: Lun,
        /// The namespace id where it should be.
        nsid: u32,
    },
    /// The metadata does not say how large a listed disk is.
    NoSize(Lun),
    /// The namespace has another size than the disk.
    OtherSize {
        /// The LUN of the disk.
        lun: Lun,
        /// The kernel's name of the namespace.
        name: String,
        /// Its size in bytes.
        found: u64,
        /// The size that the metadata lists.
        listed: Gib,
    },
    /// A namespace is no disk that the metadata lists.
    LeftOver {
        /// The kernel's name of the namespace.
        name: String,
        /// Its id.
        nsid: u32,
    },
}

impl fmt::Display for Disagreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NothingListed => f.write_str("the instance metadata lists no disk"),
            Self::Missing { lun, nsid } => {
                write!(f, "the instance metadata lists a disk at LUN {lun}, and there is no namespace {nsid}")
            }
            Self::NoSize(lun) => write!(f, "the instance metadata does not say how large the disk at LUN {lun} is"),
            Self::OtherSize { lun, name, found, listed } => write!(
                f,
                "the instance metadata lists {listed} at LUN {lun}, and {name}, which should be it, has {found} bytes"
            ),
            Self::LeftOver { name, nsid } => {
                write!(f, "{name}, namespace {nsid}, is no disk that the instance metadata lists")
            }
        }
    }
}

/// Whether a namespace of so many bytes is as large as a disk of this size. Azure rounds the size of a disk up to whole GiB
/// where what it was made from has none.
#[must_use]
pub fn is_size(bytes: u64, size: Gib) -> bool {
    Gib::holding(bytes) == Some(size)
}

impl Controller {
    /// Whether it is the controller of remote disks, whose namespaces are the data disks.
    #[must_use]
    pub fn has_remote_disks(&self) -> bool {
        self.model == REMOTE_DISKS
    }

    fn namespace(&self, nsid: u32) -> Option<&Namespace> {
        self.namespaces.iter().find(|namespace| namespace.nsid == nsid)
    }

    /// Whether the system lies on namespace 1.
    fn is_proved(&self, system: &SystemDisks) -> bool {
        // A data disk may be mounted at kubelet's folder, and it may be namespace 1 where the system is not on this
        // controller. So where it is known on which disk the system is, nothing else counts.
        let Some(first) = self.namespace(SYSTEM_NSID) else { return false };
        let (is_root, is_kubelet) = (system.root.contains(&first.name), system.kubelet.contains(&first.name));
        match (system.root.is_empty(), system.root_named) {
            (true, _) => is_kubelet && (first.is_partitioned || system.is_kubelet_in_root),
            (false, RootNamed::Node) => is_root,
            (false, RootNamed::Content) => is_kubelet && (is_root || system.is_kubelet_in_root),
        }
    }
}

impl fmt::Display for SystemDisks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (root, kubelet) = (named(&self.root), named(&self.kubelet));
        match self.root_named {
            RootNamed::Node => write!(f, "the kernel's root= lies on {root} and kubelet's folder on {kubelet}"),
            RootNamed::Content => write!(
                f,
                "the kernel's root= names a UUID or a label, which {root} has, and kubelet's folder lies on {kubelet}"
            ),
        }
    }
}

impl SystemDisks {
    /// Whether the system lies on the disk of this name, which is the namespace of this id. What only is written on a disk
    /// counts for namespace 1: another one may be a copy, or what somebody made like the system's.
    #[must_use]
    pub fn has(&self, name: &str, nsid: u32) -> bool {
        let is_in = |disks: &[String]| disks.iter().any(|disk| disk == name);
        is_in(&self.kubelet) || is_in(&self.root) && (self.root_named == RootNamed::Node || nsid == SYSTEM_NSID)
    }
}

impl Machine {
    fn remote(&self) -> impl Iterator<Item = &Controller> {
        self.controllers.iter().filter(|controller| controller.has_remote_disks())
    }

    /// The controllers whose namespaces are searched, why, and by which offset.
    fn searched(&self, given: Option<u32>) -> Result<(Vec<&Controller>, Offset, u32), Unplaced> {
        let names = || self.remote().map(|controller| controller.name.clone()).collect::<Vec<_>>();
        let proved: Vec<&Controller> = self.remote().filter(|controller| controller.is_proved(&self.system)).collect();
        match (proved.first(), given) {
            // Of the ids on the other controllers the system proves nothing.
            (Some(controller), Some(given)) if !self.beside(&proved).is_empty() => match given {
                PROVED_OFFSET => Ok((self.remote().collect(), Offset::Given, given)),
                _ => Err(Unplaced::GivenOtherThanProved { controller: controller.name.clone(), given }),
            },
            // One option may be for machines of several kinds. The proof outweighs it, but counts only as far as the metadata
            // bears it out: somebody knows otherwise.
            (Some(_), Some(given)) if given != PROVED_OFFSET => Ok((proved, Offset::Given, PROVED_OFFSET)),
            (Some(_), _) => Ok((proved, Offset::Proved, PROVED_OFFSET)),
            (None, None) => Err(Unplaced::NotProved { controllers: names(), system: self.system.clone() }),
            (None, Some(given)) => match self.remote().count() {
                1 => Ok((self.remote().collect(), Offset::Given, given)),
                _ => Err(Unplaced::SeveralControllers(names())),
            },
        }
    }

    /// The other controllers of remote disks that have some.
    fn beside(&self, searched: &[&Controller]) -> Vec<&Controller> {
        let is_searched = |one: &Controller| searched.iter().any(|other| other.name == one.name);
        self.remote().filter(|one| !one.namespaces.is_empty() && !is_searched(one)).collect()
    }

    /// By what the LUNs of remote disks are known; `None` where no disk comes by NVMe.
    #[must_use]
    pub fn luns(&self, given: Option<u32>) -> Option<Luns> {
        self.remote().next()?;
        Some(match self.searched(given) {
            Ok((searched, Offset::Proved, _)) if !self.beside(&searched).is_empty() => Luns::Unknown,
            Ok((_, Offset::Proved, _)) => Luns::Proved,
            Ok((_, Offset::Given, _)) => Luns::Given,
            Err(_) => Luns::Unknown,
        })
    }

    /// The block devices of remote disks, by the kernel's names, but those on which the system lies: of any of them a disk
    /// may be the namespace whose LUN is not known. `None` while a controller does not show what it has.
    #[must_use]
    pub fn data_disks(&self) -> Option<Vec<String>> {
        if self.remote().any(|controller| controller.state != LIVE) {
            return None;
        }
        let namespaces = self.remote().flat_map(|controller| &controller.namespaces);
        let data = namespaces.filter(|namespace| !self.system.has(&namespace.name, namespace.nsid));
        Some(data.map(|namespace| namespace.name.clone()).collect())
    }

    /// What is at a LUN, where an operator may have given an offset.
    #[must_use]
    pub fn place(&self, lun: u32, given: Option<u32>) -> Place {
        if let Some(controller) = self.remote().find(|controller| controller.state != LIVE) {
            return Place::NotReady(format!("the NVMe controller {} is {}", controller.name, controller.state));
        }
        if self.remote().all(|controller| controller.namespaces.is_empty()) {
            return Place::NoDisks;
        }
        let (searched, offset, number) = match self.searched(given) {
            Ok(searched) => searched,
            Err(unplaced) => return Place::Unplaced(unplaced),
        };
        let nsid = lun.saturating_add(number);
        let beside = self.beside(&searched);
        let all = searched.iter().chain(&beside);
        let with_id: Vec<(&Controller, &Namespace)> =
            all.filter_map(|controller| Some((*controller, controller.namespace(nsid)?))).collect();
        let is_searched = |(one, _): &(&Controller, &Namespace)| searched.iter().any(|other| other.name == one.name);
        match (with_id.as_slice(), offset, searched.first()) {
            ([found @ (controller, namespace)], ..) if is_searched(found) => {
                let disk = NvmeDisk { controller: controller.name.clone(), nsid, offset };
                Place::At(namespace.name.clone(), disk)
            }
            ([], Offset::Given, Some(_)) => {
                let names: Vec<&str> = searched.iter().map(|controller| &*controller.name).collect();
                let namespaces = searched.iter().flat_map(|controller| &controller.namespaces);
                let mut seen: Vec<u32> = namespaces.map(|namespace| namespace.nsid).collect();
                seen.sort_unstable();
                Place::Unplaced(Unplaced::NoNamespace { controller: names.join(" and "), offset: number, nsid, seen })
            }
            ([] | [_], ..) if !beside.is_empty() => {
                let controllers = beside.iter().map(|controller| controller.name.clone()).collect();
                Place::Unplaced(Unplaced::Beside { controllers })
            }
            ([], ..) => Place::Nothing(luns(&searched, number)),
            (several, ..) => Place::Ambiguous(several.iter().map(|(_, namespace)| namespace.name.clone()).collect()),
        }
    }

    /// Whether the metadata bears out an offset that an operator gave: each disk that it lists is found with its size, and
    /// each namespace but the operating system's is one of them. With a wrong offset one of the two fails, but for disks of one
    /// size while metadata or kernel does not show all of them, and namespace 1 is partitioned or the operating system's. So
    /// a disk is used by it only once the metadata has confirmed it for longer than it lags.
    ///
    /// # Errors
    /// What speaks against it.
    pub fn bears_out(&self, disk: &NvmeDisk, lun: u32, listed: &[Listed]) -> Result<(), Disagreement> {
        let offset = disk.nsid.saturating_sub(lun);
        let namespaces: Vec<&Namespace> = self.remote().flat_map(|controller| &controller.namespaces).collect();
        if listed.is_empty() {
            return Err(Disagreement::NothingListed);
        }
        for Listed { lun, size, .. } in listed {
            let (lun, nsid) = (*lun, u32::from(lun.get()).saturating_add(offset));
            let namespace = namespaces.iter().find(|namespace| namespace.nsid == nsid);
            let Some(Namespace { name, size_bytes, .. }) = namespace else {
                return Err(Disagreement::Missing { lun, nsid });
            };
            let listed = size.ok_or(Disagreement::NoSize(lun))?;
            if !is_size(*size_bytes, listed) {
                return Err(Disagreement::OtherSize { lun, name: name.clone(), found: *size_bytes, listed });
            }
        }
        let is_listed = |nsid: u32| listed.iter().any(|disk| u32::from(disk.lun.get()).saturating_add(offset) == nsid);
        // A data disk that is new has no partitions, and would be passed over as the operating system's. One with
        // partitions would be too, where it is not known on which disk the system is.
        let is_root = |one: &Namespace| match (self.system.root.is_empty(), self.system.root_named) {
            (false, RootNamed::Node) => self.system.root.contains(&one.name),
            (true, _) | (false, RootNamed::Content) => one.is_partitioned,
        };
        let is_system = |one: &Namespace| one.nsid == SYSTEM_NSID && one.nsid < offset && is_root(one);
        match namespaces.iter().find(|namespace| !is_listed(namespace.nsid) && !is_system(namespace)) {
            Some(Namespace { name, nsid, .. }) => Err(Disagreement::LeftOver { name: name.clone(), nsid: *nsid }),
            None => Ok(()),
        }
    }
}

/// The data disks of controllers and their LUNs.
fn luns(controllers: &[&Controller], offset: u32) -> Vec<(u32, String)> {
    let namespaces = controllers.iter().flat_map(|controller| &controller.namespaces);
    namespaces.filter_map(|namespace| Some((namespace.nsid.checked_sub(offset)?, namespace.name.clone()))).collect()
}

#[cfg(test)]
mod tests;
