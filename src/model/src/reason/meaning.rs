//! On which objects a reason is written, and what it means. The compiler asks for every reason.

use super::Reason;

/// A kind of object that gets events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectKind {
    /// A PersistentVolumeClaim.
    Claim,
    /// A PersistentVolume.
    Volume,
    /// A Pod.
    Pod,
    /// A Node.
    Node,
    /// A Service.
    Service,
    /// A VolumeSnapshot.
    Snapshot,
}

impl ObjectKind {
    /// As people call it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Claim => "claim",
            Self::Volume => "PersistentVolume",
            Self::Pod => "Pod",
            Self::Node => "Node",
            Self::Service => "Service",
            Self::Snapshot => "VolumeSnapshot",
        }
    }
}

const CLAIM: &[ObjectKind] = &[ObjectKind::Claim];
const VOLUME: &[ObjectKind] = &[ObjectKind::Volume];
const NODE: &[ObjectKind] = &[ObjectKind::Node];
const SERVICE: &[ObjectKind] = &[ObjectKind::Service];
const SNAPSHOT: &[ObjectKind] = &[ObjectKind::Snapshot];
const SNAPSHOT_SERVICE: &[ObjectKind] = &[ObjectKind::Snapshot, ObjectKind::Service];
const CLAIM_SNAPSHOT: &[ObjectKind] = &[ObjectKind::Claim, ObjectKind::Snapshot];
const CLAIM_SNAPSHOT_SERVICE: &[ObjectKind] = &[ObjectKind::Claim, ObjectKind::Snapshot, ObjectKind::Service];
const CLAIM_NODE: &[ObjectKind] = &[ObjectKind::Claim, ObjectKind::Node];
const CLAIM_SNAPSHOT_NODE_SERVICE: &[ObjectKind] =
    &[ObjectKind::Claim, ObjectKind::Snapshot, ObjectKind::Node, ObjectKind::Service];
const MOUNTED_BY: &[ObjectKind] = &[ObjectKind::Pod, ObjectKind::Claim, ObjectKind::Node];

impl Reason {
    /// The objects that it is written on.
    pub fn objects(self) -> &'static [ObjectKind] {
        self.meaning_and_objects().0
    }

    /// When it is written, in one sentence.
    pub fn meaning(self) -> &'static str {
        self.meaning_and_objects().1
    }

    fn meaning_and_objects(self) -> (&'static [ObjectKind], &'static str) {
        match self {
            Self::AuthorizationFailed => {
                (CLAIM_SNAPSHOT_NODE_SERVICE, "The identity lacks the action that the event names.")
            }
            Self::LinkedAuthorizationFailed => (
                CLAIM_SNAPSHOT_SERVICE,
                "The identity lacks a right on what the object refers to, such as its disk encryption set.",
            ),
            Self::CredentialRefused => (CLAIM_SNAPSHOT_NODE_SERVICE, "Azure gives no token for this credential."),
            Self::ScopeNotFound => (CLAIM_SNAPSHOT_SERVICE, "A resource group or subscription does not exist."),
            Self::ResourceLocked => (CLAIM_SNAPSHOT_NODE_SERVICE, "A management lock forbids the change."),
            Self::QuotaExceeded => {
                (CLAIM_SNAPSHOT_SERVICE, "The quota is used up, or the region, zone or size has no capacity.")
            }
            Self::Throttled => (CLAIM_SNAPSHOT_NODE_SERVICE, "Azure has refused requests as too many for two minutes."),
            Self::VMSizeFull => (NODE, "The VM takes no more data disks."),
            Self::ZoneMismatch => (CLAIM, "The disk's zone is not the VM's."),
            Self::ExpansionNeedsDetach => (CLAIM, "Azure grows this disk only while it is detached."),
            Self::ModificationRefused => {
                (CLAIM, "Azure does not change an attribute of the volume now, as its VolumeAttributesClass asks.")
            }
            Self::AttributeIgnored => (
                CLAIM,
                "The VolumeAttributesClass has a parameter that counts only when a volume is made, such as cachingMode.",
            ),
            Self::SnapshotLimitReached => {
                (SNAPSHOT, "The disk has as many incremental snapshots as Azure keeps of one disk.")
            }
            Self::SnapshotFailed => (
                SNAPSHOT,
                "Azure has failed to make the snapshot or to copy its content, so that it never becomes ready.",
            ),
            Self::OperationsLimited => (
                CLAIM_SNAPSHOT,
                "Azure makes no more snapshots, copies or conversions at a time, of this disk or in the subscription.",
            ),
            Self::InstantAccessLimits => (
                CLAIM,
                "The claim asks for another size or type of disk than Azure makes of a snapshot while instant access lasts.",
            ),
            Self::SKUMigrationStarted => (CLAIM, "Azure converts the disk to PremiumV2_LRS, in the background."),
            Self::SKUMigrationProgress => (CLAIM, "Another 20 percent of the disk are converted."),
            Self::SKUMigrationCompleted => (CLAIM, "The disk is converted to PremiumV2_LRS."),
            Self::SKUMigrationTimeout => {
                (CLAIM, "The conversion takes longer than 10 to 19 hours, by the size of the disk.")
            }
            Self::StaleAttachmentDetached => {
                (NODE, "A disk that Kubernetes did not use on this node was detached from it.")
            }
            Self::StaleAttachmentKept => {
                (NODE, "Nothing proves that a disk on this node is unused, so it stays attached.")
            }
            Self::AttachmentNotAllowed => (
                NODE,
                "An attached disk could not be attached now: its resource group is not allowed, or a Pod names the disk of \
                 a claim.",
            ),
            Self::DataDiskVanished => {
                (NODE, "A data disk that a write did not name is gone from the VM since it was read.")
            }
            Self::ForceDetached => (NODE, "A disk was detached by force from the stopped VM."),
            Self::ShareKept => (
                VOLUME,
                "Its share stays in the storage account, or keeps other shares from being deleted because the \
                 PersistentVolume does not say what it is about.",
            ),
            Self::FormatRefused => (CLAIM_NODE, "The device holds something else than the volume's file system."),
            Self::FilesystemDamaged => (CLAIM_NODE, "fsck leaves errors to a person."),
            Self::DuplicateFilesystem => (CLAIM_NODE, "The disk is a copy of a btrfs that is mounted."),
            Self::IdentityUnconfirmed => (CLAIM_NODE, "For a minute nothing has confirmed which disk is at the LUN."),
            Self::EnsuringLoadBalancer => {
                (SERVICE, "The Service is new or asks for something else, and work on it begins.")
            }
            Self::EnsuredLoadBalancer => (SERVICE, "Azure serves the Service as it asks."),
            Self::UpdatedLoadBalancer => {
                (SERVICE, "The load balancer has followed a change of the Service's backends.")
            }
            Self::DeletingLoadBalancer => {
                (SERVICE, "The Service is deleted or is no load balancer any more, and the removal begins.")
            }
            Self::DeletedLoadBalancer => (SERVICE, "Nothing of the Service is left in Azure."),
            Self::SyncLoadBalancerFailed => (
                SERVICE,
                "The Service is not served as it asks: the event has Azure's code, or names the event that says more, or \
                 the object that the Service has waited for.",
            ),
            Self::UpdateLoadBalancerFailed => (
                SERVICE,
                "Azure refused to let the load balancer follow a change of the Service's backends; the event has Azure's code.",
            ),
            Self::UnAvailableLoadBalancer => (SERVICE, "No Node of the cluster can be a backend."),
            Self::InvalidService => (
                SERVICE,
                "A new Service has a value that is not allowed, or a wrong value of a served one cannot be read from what \
                 Azure shows.",
            ),
            Self::PlanHeld => (
                SERVICE,
                "A change would remove or replace something or let more sources in, and waits for --accept-plan.",
            ),
            Self::PortConflict => (SERVICE, "Another Service has the port at the same address."),
            Self::LimitExceeded => (SERVICE, "The load balancer or the security group takes no more rules."),
            Self::NotFound => (SERVICE, "What the Service names does not exist."),
            Self::ForeignOwner => (SERVICE, "What the Service needs belongs to another cluster, Service or program."),
            Self::WouldReplaceAddress => (SERVICE, "The change would give the Service another address."),
            Self::NoPlacement => (SERVICE, "No load balancer of the configuration may serve the Service."),
            Self::Mismatch => (SERVICE, "What the Service names is of another kind than it needs."),
            Self::LastFrontend => {
                (SERVICE, "The Service is gone, and its frontend stays as the last of a load balancer that stays.")
            }
            Self::SharedAddress => (
                SERVICE,
                "Its address is another Service's, or something else has its public IP: the event says what is not done \
                 there.",
            ),
            Self::UnknownAnnotation => (SERVICE, "An annotation has a key that nothing knows."),
            Self::IgnoredValue => (
                SNAPSHOT_SERVICE,
                "A value is not allowed: what Azure has for the Service stays, and the snapshot is taken as the event says.",
            ),
            Self::KeptValue => (SERVICE, "A value is kept that a new Service would not get."),
            Self::NoEffect => (SERVICE, "A setting changes nothing on this Service."),
            Self::ConflictConfiguration => (SERVICE, "Two settings contradict each other."),
            Self::ScaleSetHeld => (
                NODE,
                "The model of a scale set is not given the load balancers of its Nodes: a write of it would upgrade \
                 instances that lag.",
            ),
            Self::Synced => (NODE, "It has its provider id, addresses and labels from Azure."),
            Self::NodeNotInitialized => (
                NODE,
                "It keeps its taint: Azure has no such VM, or its VM has not the address that kubelet was given.",
            ),
            Self::NodeStateUnknown => {
                (NODE, "It is not Ready, and Azure does not tell whether its VM is stopped or deleted.")
            }
            Self::NodeOutOfService => (NODE, "Its VM is stopped: pods are evicted and volumes detached."),
            Self::NodeDeletionSlowed => {
                (NODE, "It waited, because more VMs than the limit are gone or stopped at once.")
            }
            Self::DeletingNode => (NODE, "Its VM does not exist, and the Node is deleted."),
            Self::FailedToCreateRoute => (NODE, "Its route is refused; the event says why."),
            Self::RouteKept => (NODE, "Its route exists and stays, and would be refused as a new one."),
            Self::CidrNotAvailable => (
                NODE,
                "With --allocate-node-cidrs=true the Node has had no spec.podCIDR for a minute: kube-controller-manager \
                 gives it.",
            ),
            Self::AccountKeyUnavailable => {
                (MOUNTED_BY, "For 15 seconds no controller has handed out the key of a file share.")
            }
            Self::AccountKeyDenied => {
                (MOUNTED_BY, "The controller does not give this node the key: no Pod on it uses the volume.")
            }
            Self::AccountKeyRefused => (
                MOUNTED_BY,
                "The file server refuses every key that there is: a Secret of yours is stale, or the account's firewall \
                 keeps the node out.",
            ),
            Self::AccountKeyMissing => (
                MOUNTED_BY,
                "There is no key for a file share: its Secret is missing or wrong, and Azure is not asked.",
            ),
            Self::FileServerUnreachable => (
                MOUNTED_BY,
                "For 15 seconds the server of a file share has had no address, has not answered on TCP port 445, or has \
                 hung.",
            ),
            Self::FileShareNotFound => (MOUNTED_BY, "There is no such share or folder."),
            Self::FileMountDead => (MOUNTED_BY, "What was mounted of a share is dead, and a new Pod gets a new mount."),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_says_on_what_it_is_written_when_and_what_to_do() {
        for reason in Reason::ALL {
            assert!(!reason.objects().is_empty(), "{reason:?}");
            for text in [reason.meaning(), reason.advice()] {
                assert!(text.ends_with('.') && !text.contains('|'), "{reason:?}: {text}");
            }
        }
    }
}
