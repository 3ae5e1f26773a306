//! Disks on machines, as pure functions over values: which write a virtual machine needs, when a disk leaves, and what
//! comes next of a disk or snapshot that is made, changed or deleted. Which disk a class asks for is said by `lazuli-volume`,
//! what a node does with a device by `lazuli-staging`.
//!
//! | module | decides |
//! |---|---|
//! | [`admission`] | what the webhooks answer: labels of a PersistentVolume, a claim that cannot grow as asked |
//! | [`attach`] | which write a VM needs, given what is attached, wanted and leaving |
//! | [`conversion`] | when a disk that becomes PremiumV2 is looked at, and what a person is told of it |
//! | [`copies`] | what comes next of a disk that is made from a snapshot or another disk, and of its temporary snapshot |
//! | [`dangling`] | whether Kubernetes uses a disk no more on the node that holds it |
//! | [`force_detach`] | whether a data disk may be detached by force |
//! | [`gone`] | whether a machine that Azure does not find is gone |
//! | [`inline_volume`] | whether a disk may be attached for what asks for it: resource groups, disks that Pods name |
//! | [`inventory`] | what people are shown of the disks of a cluster |
//! | [`late_attach`] | whether an attach may be under way of which Azure shows nothing |
//! | [`list`] | which resource groups ListVolumes reads, how handles are spelled, what a page holds |
//! | [`lun`] | which LUN a disk gets |
//! | [`publish`] | what comes next of a request to attach, to detach or to delete a disk |
//! | [`shared_machine`] | which of several Nodes a machine is that they all name |
//! | [`single_write`] | when the creation or deletion of a resource is sent again, and what is looked at before |
//! | [`snapshot`] | what comes next of a request to make or to delete a snapshot |
//! | [`source`] | which reads say what a disk was made from |
//! | [`unpublish`] | which machines a disk must leave when its node's machine is not certain |
//! | [`whole`] | what comes next of a resource that is made or deleted |
//! | [`whole_disk`] | the same of a disk, and of one that grows |
//! | [`whole_snapshot`] | the same of a snapshot |

pub mod admission;
pub mod attach;
mod calls;
pub mod conversion;
pub mod copies;
pub mod dangling;
pub mod force_detach;
pub mod gone;
pub mod inline_volume;
pub mod inventory;
pub mod late_attach;
pub mod list;
pub mod lun;
pub mod publish;
pub mod shared_machine;
pub mod single_write;
pub mod snapshot;
pub mod source;
pub mod unpublish;
pub mod whole;
pub mod whole_disk;
pub mod whole_snapshot;
