//! What callers write down: which object, and a note about it.

use std::borrow::Cow;

use lazuli_model::{ArmId, BlobUri, DiskId, ServiceKey, fault::Fault};

use crate::{FaultKind, words::Word};

/// What kind of object a key names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Subject {
    /// A managed disk, or a page blob that is one.
    Disk,
    /// A virtual machine, or an instance of a scale set.
    Vm,
    /// A Service of Kubernetes.
    Service,
    /// A Node of Kubernetes.
    Node,
    /// A load balancer.
    LoadBalancer,
    /// A network security group.
    SecurityGroup,
    /// A public IP address.
    PublicIp,
    /// A private link service.
    PrivateLink,
    /// A subnet.
    Subnet,
    /// A network interface, or what holds interfaces: an instance or the model of a scale set.
    Interface,
    /// A route table.
    RouteTable,
    /// A snapshot of a managed disk.
    Snapshot,
    /// A storage account.
    StorageAccount,
}

impl Subject {
    /// All subjects.
    pub const ALL: [Self; 13] = [
        Self::Disk,
        Self::Vm,
        Self::Service,
        Self::Node,
        Self::LoadBalancer,
        Self::SecurityGroup,
        Self::PublicIp,
        Self::PrivateLink,
        Self::Subnet,
        Self::Interface,
        Self::RouteTable,
        Self::Snapshot,
        Self::StorageAccount,
    ];

    /// What people call it.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Disk => "disk",
            Self::Vm => "VM",
            Self::Service => "Service",
            Self::Node => "Node",
            Self::LoadBalancer => "load balancer",
            Self::SecurityGroup => "security group",
            Self::PublicIp => "public IP",
            Self::PrivateLink => "private link service",
            Self::Subnet => "subnet",
            Self::Interface => "network interface",
            Self::RouteTable => "route table",
            Self::Snapshot => "snapshot",
            Self::StorageAccount => "storage account",
        }
    }
}

/// Names an object. Names that differ in letter case alone name one object, as Azure's ids do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key<'a> {
    pub(crate) subject: Subject,
    pub(crate) name: Cow<'a, str>,
}

impl<'a> Key<'a> {
    /// The object of this name: the ARM id of what is Azure's, the name of a Node, `namespace/name` of a Service.
    pub fn new(subject: Subject, name: impl Into<Cow<'a, str>>) -> Self {
        Self { subject, name: name.into() }
    }

    /// A managed disk.
    pub fn disk(id: &'a ArmId) -> Self {
        Self::new(Subject::Disk, id.as_str())
    }

    /// A disk of either kind.
    pub fn disk_id(id: &'a DiskId) -> Self {
        Self::new(Subject::Disk, id.as_str())
    }

    /// A disk in a page blob.
    pub fn blob(uri: &'a BlobUri) -> Self {
        Self::new(Subject::Disk, uri.as_str())
    }

    /// A disk in a page blob that has no account yet: it is known by the name of its blob.
    pub fn blob_name(name: &'a str) -> Self {
        Self::new(Subject::Disk, name)
    }

    /// A storage account.
    pub fn storage_account(id: &'a ArmId) -> Self {
        Self::new(Subject::StorageAccount, id.as_str())
    }

    /// A snapshot of a managed disk.
    pub fn snapshot(id: &'a ArmId) -> Self {
        Self::new(Subject::Snapshot, id.as_str())
    }

    /// A virtual machine, or an instance of a scale set.
    pub fn vm(id: &'a ArmId) -> Self {
        Self::new(Subject::Vm, id.as_str())
    }

    /// A Node.
    pub fn node(name: &'a str) -> Self {
        Self::new(Subject::Node, name)
    }

    /// A Service. One that is made again under the name of another continues its records.
    pub fn service(key: &ServiceKey) -> Self {
        Self::new(Subject::Service, key.tag_name())
    }
}

/// What is noted of an object. It has room for a word, the cause of a failure, a number and another object.
///
/// There is no room for text of another program: [`Note::because`] takes text of this program alone, and the names of
/// objects are kept as names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note<'a> {
    pub(crate) word: Word,
    pub(crate) cause: NoteCause,
    pub(crate) number: Option<u32>,
    pub(crate) about: Option<Key<'a>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoteCause {
    None,
    Fault(FaultKind),
    Reason(&'static str),
}

impl<'a> Note<'a> {
    /// Names the other object.
    #[must_use]
    pub fn about(self, key: Key<'a>) -> Self {
        Self { about: Some(key), ..self }
    }

    /// Adds a number: a LUN, a status, the number of a write. A greater one than 32 bits hold is left out.
    #[must_use]
    pub fn number(self, number: impl TryInto<u32>) -> Self {
        Self { number: number.try_into().ok().filter(|number| *number != u32::MAX), ..self }
    }

    /// Adds the fault that is the cause.
    #[must_use]
    pub fn fault(self, fault: &Fault) -> Self {
        Self { cause: NoteCause::Fault(fault.into()), ..self }
    }

    /// Adds the reason of a planner: a word or a sentence of this program's own, of a bounded set.
    #[must_use]
    pub fn because(self, reason: &'static str) -> Self {
        Self { cause: NoteCause::Reason(reason), ..self }
    }
}

impl From<Word> for Note<'_> {
    fn from(word: Word) -> Self {
        Self { word, cause: NoteCause::None, number: None, about: None }
    }
}

impl Word {
    /// A note of this word about another object; see [`Note::about`].
    #[must_use]
    pub fn about(self, key: Key<'_>) -> Note<'_> {
        Note::from(self).about(key)
    }

    /// A note of this word with a number; see [`Note::number`].
    #[must_use]
    pub fn number<'a>(self, number: impl TryInto<u32>) -> Note<'a> {
        Note::from(self).number(number)
    }

    /// A note of this word with the fault that is its cause.
    #[must_use]
    pub fn fault<'a>(self, fault: &Fault) -> Note<'a> {
        Note::from(self).fault(fault)
    }
}
