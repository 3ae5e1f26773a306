//! What must hold, computed from Azure's own state and from what was asked and answered. Imports nothing of the
//! provider's: what it judges could share a mistake with it.
//!
//! | invariant | what it says |
//! |---|---|
//! | `one-machine` | no disk is held by two machines |
//! | `one-slot` | no machine lists two disks on one LUN, or one disk twice |
//! | `reserved-lun` | a LUN that a VolumeAttachment of the node names is given to no other disk |
//! | `own-lun` | a disk whose own VolumeAttachment names a free LUN gets no other |
//! | `unasked` | nothing is attached or detached without a request to this replica |
//! | `foreign` | a disk of others keeps slot and terms |
//! | `published` | at the answer the machine lists and holds the disk at that LUN, and the disk says so |
//! | `unpublished` | at the answer it neither lists nor holds it, and the disk does not say so |
//! | `created`, `deleted`, `expanded` | at the answer the disk is there as promised; it is gone, and no machine lists it; it has the size |
//! | `listed`, `found` | ListVolumes and ControllerGetVolume tell what was so throughout the call |
//! | `code` | a code that the state does not warrant; a final one for what is still possible; RESOURCE_EXHAUSTED for 429 |
//! | `economy` | a publish of an attached disk, undisturbed, costs no write and at most one read, and one more the first time that a process serves the disk, the first time after an incident or after another change of the machine, and each time where machines have no version; writes are bounded |
//! | `copied` | at the answer a volume from a snapshot or a volume has the content of that very one, the size and the zone |
//! | `taken` | at the answer Azure holds a snapshot of that very disk, or what it is copied from; ready is only what disks can be made from |
//! | `dropped`, `lost` | at the answer a snapshot and its local one are gone; no request fails a snapshot of ours |
//! | `modified` | at the answer the disk has the attributes |
//! | `double` | no volume has two disks |
//! | `footer` | a VHD that is answered, and one that a machine takes, ends with a footer; between, it has one there or where the note says |
//! | `content` | what a machine has written to its VHD stays, and no VHD shrinks |
//! | `lease` | no VHD is written while a machine has had it for longer than a request takes |
//! | `imported` | a disk that is imported is answered where its VHD had one version and no machine while Azure read it |
//! | `account` | an account goes with its disk, where it was made for that alone and nothing else is in it, and no other account goes |
//! | `converges`, `leak` | when all is quiet every wish comes true, and nothing else is left |
//!
//! An answer is judged at its own instant. Only where another actor (a tool, the other replica) touched the same
//! disk since just before the call, it is enough that it was true within the call: no client can promise more.

use std::collections::{BTreeMap, BTreeSet};

use lazuli_emulator::Control;
use tokio::time::Instant;
use tonic::Code;

use super::{
    facts::Facts,
    script::{Attributes, Class, Method, Place, World, node_name},
};

mod blobs;
mod calls;
mod changes;
mod copies;
mod ending;

use blobs::Vhds;
pub(super) use copies::Taken;

/// How long before a call something counts as having happened in it, besides the lag of reads: a burst of requests is
/// served by a read that came before the last of them.
const JUST_BEFORE_MS: u64 = 300;

/// How long a call that was given up may go on in the controller, when nothing is wrong any more.
pub(super) const GIVEN_UP_FOR_MS: u64 = 240_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Who {
    Replica(u32),
    Tool,
    /// No request did it: an operation ended.
    Azure,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Rpc {
    Create {
        disk: String,
        gib: i64,
        class: Class,
    },
    /// A creation from a snapshot or a disk, by name.
    Copy {
        disk: String,
        gib: i64,
        class: Class,
        source: String,
    },
    Delete {
        disk: String,
    },
    Publish {
        disk: String,
        node: String,
    },
    Unpublish {
        disk: String,
        node: Option<String>,
    },
    Expand {
        disk: String,
        gib: i64,
    },
    List,
    Get {
        disk: String,
    },
    Modify {
        disk: String,
        to: Attributes,
    },
    TakeSnapshot {
        snapshot: String,
        disk: String,
        place: Place,
    },
    DropSnapshot {
        snapshot: String,
    },
    ListSnapshots,
}

impl Rpc {
    /// The disk or the snapshot that the request makes, changes, attaches, detaches or deletes.
    fn object(&self) -> Option<&str> {
        match self {
            Self::Create { disk, .. }
            | Self::Copy { disk, .. }
            | Self::Delete { disk }
            | Self::Publish { disk, .. }
            | Self::Unpublish { disk, .. } => Some(disk),
            Self::TakeSnapshot { snapshot, .. } | Self::DropSnapshot { snapshot } => Some(snapshot),
            Self::Modify { disk, .. } => Some(disk),
            Self::Expand { .. } | Self::List | Self::Get { .. } | Self::ListSnapshots => None,
        }
    }
}

/// How a call ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ending {
    /// With the LUN of a publish.
    Done(Option<u8>),
    Failed(Code, String),
    GivenUp,
}

#[derive(Debug, Clone)]
struct Call {
    rpc: Rpc,
    replica: u32,
    started: u64,
    ended: Option<(u64, Ending)>,
    /// When the call began: nothing else was asked, and the disk was where it was asked for.
    settled_before: bool,
    writes_before: u64,
    reads_before: u64,
}

impl Call {
    fn done(&self) -> bool {
        matches!(&self.ended, Some((_, Ending::Done(_))))
    }
}

/// What became of a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Became {
    Listed(String, u8),
    Marked(String),
    Unlisted(String),
    Held(String, u8),
    Unheld(String),
    Made,
    Gone,
    /// A disk has other attributes.
    Changed,
    /// A disk or a snapshot has all of its content.
    Filled,
    /// A snapshot that was made has lost where its content comes from.
    Lost,
    /// A VHD has another version.
    Written,
}

impl Became {
    /// The machine that this is about.
    fn machine(&self) -> Option<&str> {
        match self {
            Self::Listed(machine, _)
            | Self::Marked(machine)
            | Self::Unlisted(machine)
            | Self::Held(machine, _)
            | Self::Unheld(machine) => Some(machine),
            Self::Made | Self::Gone | Self::Changed | Self::Filled | Self::Lost | Self::Written => None,
        }
    }
}

#[derive(Debug, Clone)]
struct Change {
    at: u64,
    by: Who,
    disk: String,
    became: Became,
    /// Whether the replica had lost its role by then: its write was on the way when another took over.
    late: bool,
}

/// What does not hold.
#[derive(Debug, Clone)]
pub(super) struct Violation {
    pub(super) invariant: &'static str,
    pub(super) what: String,
}

/// How much a run was about: a suite that never gets anywhere proves nothing.
#[derive(Debug, Clone, Default)]
pub(super) struct Coverage {
    pub(super) counts: BTreeMap<String, u64>,
}

impl Coverage {
    pub(super) fn count(&mut self, what: impl Into<String>) {
        *self.counts.entry(what.into()).or_default() += 1;
    }

    pub(super) fn add(&mut self, other: &Self) {
        for (what, count) in &other.counts {
            *self.counts.entry(what.clone()).or_default() += count;
        }
    }
}

pub(super) struct Judge {
    control: Control,
    origin: Instant,
    lag_ms: u64,
    /// Whether the model of a machine has a version (etag).
    has_versions: bool,
    /// Whether the accounts of disks that are gone stay: on Azure Stack Hub nobody can see that they are empty.
    keeps_accounts: bool,
    /// How much later than a single read a list may be.
    list_lag_ms: u64,
    limits: BTreeMap<String, usize>,
    pub(super) facts: Facts,
    /// `(machine, disk)` of what failed attaches have left in the models.
    left_over: BTreeSet<(String, String)>,
    /// How many operations ran at the last look.
    running: usize,
    /// The revision of the emulator's store then.
    revision: Option<u64>,
    changes: Vec<Change>,
    calls: Vec<Call>,
    /// Whether there are snapshots, copies and changes in this life, or VHDs.
    has_copies: bool,
    has_vhds: bool,
    /// The nodes that take VHDs.
    vhd_nodes: BTreeSet<String>,
    vhds: Vhds,
    /// The unique id of every disk and snapshot so far, with that of what it was copied from.
    origins: BTreeMap<String, Option<String>>,
    /// The unique ids of all that had a name.
    named: BTreeMap<String, BTreeSet<String>>,
    /// `(node, disk)` of every VolumeAttachment, with the LUN that was recorded.
    pub(super) attachments: BTreeMap<(String, String), Option<u8>>,
    /// Who has the roles: of disks, of attachments.
    pub(super) provisioner: u32,
    pub(super) attacher: u32,
    writes: BTreeMap<Who, u64>,
    reads: BTreeMap<Who, u64>,
    /// When an incident struck last, as far as noticed.
    struck: u64,
    last_struck: u64,
    pub(super) violation: Option<Violation>,
    pub(super) coverage: Coverage,
    /// A line per call and change, for the reader of a failure.
    pub(super) story: Vec<String>,
}

impl Judge {
    pub(super) fn new(control: Control, world: &World, limits: BTreeMap<String, usize>) -> Self {
        let facts = Facts::read(&control);
        Self {
            control,
            origin: Instant::now(),
            lag_ms: world.read_lag_ms,
            has_versions: world.method != Method::AzureStack,
            keeps_accounts: world.method == Method::AzureStack,
            list_lag_ms: world.list_lag_ms(),
            limits,
            facts,
            left_over: BTreeSet::new(),
            running: 0,
            revision: None,
            changes: Vec::new(),
            calls: Vec::new(),
            has_copies: world.has_farewell(),
            has_vhds: world.vhds.is_some(),
            vhd_nodes: (0..world.nodes.len()).filter(|node| world.takes_vhds(*node)).map(node_name).collect(),
            vhds: Vhds::default(),
            origins: BTreeMap::new(),
            named: BTreeMap::new(),
            attachments: BTreeMap::new(),
            provisioner: 0,
            attacher: 0,
            writes: BTreeMap::new(),
            reads: BTreeMap::new(),
            struck: 0,
            last_struck: 0,
            violation: None,
            coverage: Coverage::default(),
            story: Vec::new(),
        }
    }

    pub(super) fn now(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_millis()).unwrap()
    }

    pub(super) fn tell(&mut self, line: &str) {
        let at = self.now();
        self.story.push(format!("{at:>8} {line}"));
    }

    pub(super) fn violated(&mut self, invariant: &'static str, what: String) {
        self.tell(&format!("VIOLATED {invariant}: {what}"));

        self.violation.get_or_insert(Violation { invariant, what });
    }

    /// How many calls have begun so far.
    pub(super) fn asked_for(&self) -> usize {
        self.calls.len()
    }

    /// Writes of everybody so far.
    pub(super) fn writes(&self) -> u64 {
        self.writes.values().sum()
    }
}

pub(super) fn is_ours(disk: &str) -> bool {
    disk.starts_with("pvc-")
}
