//! Every decision Lazuli takes, as pure functions over values.
//!
//! Nothing in this crate touches a socket, a file, a clock or a random number: a snapshot goes in, a decision comes
//! out. What acts on the decisions (`lazuli-azure`, `lazuli-disk`, `lazuli-csi`) chooses nothing.
//!
//! | module | decides |
//! |---|---|
//! | [`model`] | nothing: the words the rest is said in (`ArmId`, `VolumeId`, `Lun`, `Gib`, `Disk`, `Vm`) |
//! | [`admission`] | what the webhooks answer: labels of a PersistentVolume, a claim that cannot grow as asked |
//! | [`disk`] | which disk a StorageClass asks for, and whether an existing disk is that disk |
//! | [`engine`] | how an object of Azure, and a Service, come to their desired state: the steps of the reconcile engine |
//! | [`lun`] | which LUN a disk gets |
//! | [`list`] | which resource groups ListVolumes reads, how handles are spelled, what a page holds |
//! | [`cloud_node`] | what a Node is told of its machine, and what becomes of it when the machine is stopped or gone |
//! | [`controller_list`] | which of the cloud controllers run |
//! | [`device_identity`] | whether a node uses the device at a LUN for a volume |
//! | [`diagnosis`] | what is wrong with a cluster, for people: pod ranges, regions, managers, objects of unknown Services |
//! | [`dangling`] | whether Kubernetes uses a disk no more on the node that holds it |
//! | [`attach`] | which write a VM needs, given what is attached, wanted and leaving |
//! | [`node`] | which VM a node is, and whether the node is out of work |
//! | [`unpublish`] | which machines a disk must leave when its node's machine is not certain |
//! | [`lease`] | when a replica takes the lease, renews it, and has lost it |
//! | [`balancing`] | Services on the engine: the planners of the network as its objects, and what a Service wants of each |
//! | [`service`] | what a Service of type LoadBalancer asks of Azure, and what is wrong with it |
//! | [`network`] | which edits a load balancer, a security group, a public IP and their kin need for all Services |
//! | [`op`] | every write to Azure, as data; [`apply`] is their interpreter over the model |
//! | [`fault`] | what a caller may do about a failure, and which gRPC code and event it becomes |
//! | [`event`] | which event a person gets about which object, and when it is written |
//! | [`force_detach`] | whether a data disk may be detached by force |
//! | [`inline_volume`] | whether a disk may be attached for what asks for it: resource groups, disks that Pods name |
//! | [`permit`] | which request to Azure goes out next, and when |
//! | [`poll`] | when to ask a long-running operation how it is doing |
//! | [`rbac`] | which action of Azure a request needs  |
//! | [`routing`] | which routes a route table needs for the Nodes, and which subnet it serves |
//! | [`single_write`] | when the creation or deletion of a disk is sent again, and what is looked at before |
//! | [`size`] | how many data disks a VM size takes |
//! | [`vm_access`] | which machines get an SSH key, and by which extension |

pub mod admission;
pub mod apply;
pub mod attach;
pub mod balancing;
pub mod cloud_node;
pub mod controller_list;
pub mod dangling;
pub mod device_identity;
pub mod diagnosis;
pub mod disk;
pub mod engine;
pub mod event;
pub mod fault;
pub mod force_detach;
pub mod inline_volume;
pub mod lease;
pub mod list;
pub mod lun;
pub mod model;
pub mod network;
pub mod node;
pub mod op;
pub mod permit;
pub mod poll;
pub mod rbac;
pub mod read;
pub mod routing;
#[cfg(test)]
mod seeded;
pub mod service;
pub mod single_write;
pub mod size;
pub mod spelling;
pub mod unpublish;
pub mod vm_access;
