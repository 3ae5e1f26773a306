//! Random requests of one disk among five machines and four names of Nodes: pods come and go, Nodes are deleted, made again
//! and claimed by others, machines are deleted and hidden, persons attach and detach, the API server falls silent, the
//! process starts anew, and calls are slow, fail, and lose their effects. Laws judge what is sent and what is answered.
//!
//! It imports no rule of the steps. `LAZULI_PUBLISH_SEEDS=N` runs so many schedules, and `LAZULI_PUBLISH_SEED=S` one, with
//! its story.
//!
//! | law | says |
//! |---|---|
//! | 1 | an unpublish is answered OK only if, at some instant since it was asked, no machine that ran as the node held the disk, as far as the process could know |
//! | 2 | no attachment that Kubernetes uses is ended as dangling, and none of a person's for a deletion |
//! | 3 | no read from before the request counts, and none that was not put off: such distortions break law 1 |
//! | 4 | each request ends, [`SETTLED`] after the last incident at the latest |
//! | 5 | no detach goes to a machine that only other Nodes name whose VolumeAttachments name the disk |
//! | 6 | an attach goes only to the machine of a Node of the cluster |
//! | 7 | a publish is answered OK only if the disk was on a machine to which it was sent; a deletion, if there was no disk |
//! | 8 | no attach that was sent before an unpublish was answered OK takes place after it on the node's machine |
//!
//! Open: law 2 breaks in about one of a million schedules (964364 is the first). A Node registers on another machine, and a
//! second later without a providerID on the first one again, while the disk is being detached there as unused: what
//! Kubernetes was asked before is true no more, and the worker of the VM asks Azure alone again.

pub(super) mod azure;
mod laws;
pub(super) mod world;

use std::time::Duration;

use lazuli_model::seeded::{self, Numbers, Outcome, Simulation};

use world::World;

/// The schedules in which a distortion must be noticed.
const NOTICED: u64 = 50_000;
/// The last incident comes before, in milliseconds.
const INCIDENTS: u64 = 90_000;
/// So long after the last incident every request is answered.
const SETTLED: Duration = Duration::from_secs(180);

const REACHED: [&str; 29] = [
    "attach lost, and done late",
    "caller gave up",
    "deleted",
    "detached as dangling",
    "detached from another holder",
    "held elsewhere",
    "kept: may be attached",
    "kept: used by others",
    "kept: a Node names no machine",
    "kept: used there",
    "list from a moment ago",
    "machine deleted",
    "machine hidden",
    "machine hidden from single reads",
    "machine is gone",
    "node claimed",
    "node deleted",
    "node deleted unseen",
    "node made again elsewhere",
    "occupied",
    "of no Node",
    "person attached",
    "process started anew",
    "published",
    "refused: may be attaching",
    "refused: shared machine",
    "searched",
    "unpublish of a shared machine",
    "unpublished",
];

/// What happens to the cluster, to Azure and to the process from outside. Nodes and machines are numbers.
#[derive(Debug, Clone, Copy)]
pub(super) enum Incident {
    Publish {
        node: usize,
        patience: u64,
    },
    Unpublish {
        node: usize,
        patience: u64,
    },
    UnpublishAll,
    Delete,
    /// The disk is made, if there is none.
    Make,
    /// A Node is deleted.
    DeleteNode(usize),
    /// A Node registers, with this machine. Whether its provider id says so.
    MakeNode {
        node: usize,
        machine: usize,
        named: bool,
    },
    /// A Node says that it is a machine which it is not.
    Claim {
        node: usize,
        machine: usize,
    },
    DeleteMachine(usize),
    MakeMachine(usize),
    /// Azure does not find a machine for so many milliseconds; where that is long, single reads alone do not.
    Hide(usize, u64),
    /// The API server is not heard.
    Silence,
    /// It is heard again, and lists all Nodes.
    Relist,
    /// The process starts anew, and knows the Nodes after so many milliseconds.
    Restart(u64),
    /// A person attaches the disk to a machine, or detaches it there.
    Attach(usize),
    Detach(usize),
    /// A VolumeAttachment is deleted by hand.
    ForgetAttachment(usize),
}

/// Each node's machine by its names. That of node 1 has no name of it.
pub(super) const NATURAL: [usize; 4] = [0, 1, 2, 3];
/// A machine that runs as no node, and has the name of node 1.
pub(super) const FOREIGN: usize = 4;

fn incident(numbers: &mut Numbers, node: usize) -> Incident {
    let patience = if numbers.one_in(6) { numbers.below(20_000) } else { u64::MAX };
    let pick = |numbers: &mut Numbers, n: u64| usize::try_from(numbers.below(n)).expect("it is small");
    match numbers.below(28) {
        0..5 => Incident::Publish { node, patience },
        5..12 => Incident::Unpublish { node, patience },
        12 => Incident::UnpublishAll,
        13 => match numbers.one_in(2) {
            true => Incident::Delete,
            false => Incident::Make,
        },
        14..17 => Incident::DeleteNode(node),
        17 | 18 => {
            let machine = if node < 2 && numbers.one_in(2) { 1 - node } else { NATURAL[node] };
            Incident::MakeNode { node, machine, named: node == 1 || machine != node || numbers.one_in(2) }
        }
        19 => Incident::Claim { node: pick(numbers, 2), machine: pick(numbers, 4) },
        20 => Incident::DeleteMachine(pick(numbers, 5)),
        21 => {
            let hidden = if numbers.one_in(3) { 200 + numbers.below(1_700) } else { 5_000 + numbers.below(25_000) };
            Incident::Hide(pick(numbers, 4), hidden)
        }
        22 => match numbers.one_in(2) {
            true => Incident::MakeMachine(pick(numbers, 4)),
            false => Incident::Relist,
        },
        23 => Incident::Silence,
        24 => Incident::Restart(numbers.below(6_000)),
        25 => Incident::Attach(pick(numbers, 5)),
        26 => Incident::Detach(pick(numbers, 5)),
        _ => Incident::ForgetAttachment(node),
    }
}

impl seeded::Incident for Incident {
    fn of(seed: u64) -> Vec<(u64, Self)> {
        let mut numbers = Numbers::new(seed);
        let count = 2 + numbers.below(11);
        let first = numbers.below(INCIDENTS / 2);
        // Most incidents are about one node, and stand close together.
        let main = numbers.below(4);
        let mut incidents: Vec<_> = (0..count)
            .map(|_| {
                let at = if numbers.one_in(3) { numbers.below(INCIDENTS) } else { first + numbers.below(15_000) };
                let node = if numbers.one_in(3) { numbers.below(4) } else { main };
                (at, incident(&mut numbers, usize::try_from(node).expect("it is small")))
            })
            .collect();
        incidents.sort_by_key(|(at, _)| *at);
        incidents
    }
}

/// A distortion that a law must notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mutant {
    /// The disk names no holder.
    NoHolders,
    /// The disk is as it was a while before the request came.
    OldDisk,
    /// The second read of a machine is not put off.
    GoneAtOnce,
    /// A machine that was hidden once is never found again.
    StaysHidden,
    /// What single reads do not find, lists lack too, however long that is so.
    HiddenFromLists,
    /// VolumeAttachments name nothing.
    NoAttachments,
    /// Kubernetes says that nothing is used.
    NothingUsed,
    /// A Node that was deleted is still there.
    GhostNodes,
    /// Nothing is being attached or detached.
    NeverOccupied,
    /// Every attachment is this process's.
    OwnAttachments,
    /// No attach is under way of which Azure shows nothing.
    NoLateAttach,
    /// Every fifth answer to a call is lost.
    NoAnswer,
    /// A failed unpublish is answered OK.
    UnpublishAlways,
    /// A failed publish is answered OK.
    PublishAlways,
}

const MUTANTS: [Mutant; 14] = [
    Mutant::NoHolders,
    Mutant::OldDisk,
    Mutant::GoneAtOnce,
    Mutant::StaysHidden,
    Mutant::HiddenFromLists,
    Mutant::NoAttachments,
    Mutant::NothingUsed,
    Mutant::GhostNodes,
    Mutant::NeverOccupied,
    Mutant::OwnAttachments,
    Mutant::NoLateAttach,
    Mutant::NoAnswer,
    Mutant::UnpublishAlways,
    Mutant::PublishAlways,
];

/// Requests to attach, detach and delete disks.
struct Requests;

impl Simulation for Requests {
    type Schedule = seeded::Incidents<Incident>;
    type Mutant = Option<Mutant>;

    const NAME: &'static str = "PUBLISH";
    const QUICK: u64 = 50_000;
    const FULL: u64 = 500_000;
    const REACHED: &'static [&'static str] = &REACHED;
    const LEAST: u64 = 250;

    fn run(schedule: &Self::Schedule, mutant: Option<Mutant>, with_story: bool) -> Outcome {
        let mut world = World::new(schedule.seed, &schedule.all, mutant, with_story);
        let result = world.run();
        Outcome { result, counts: world.counts, story: world.story.unwrap_or_default() }
    }

    fn least(schedules: u64) -> u64 {
        if schedules >= Self::FULL { Self::LEAST } else { schedules / 5_000 }
    }
}

#[test]
fn no_schedule_of_requests_to_attach_and_detach_breaks_a_law() {
    seeded::check_laws::<Requests>();
}

#[test]
fn every_distortion_of_a_request_is_noticed() {
    seeded::check_mutants::<Requests>(&MUTANTS.map(|mutant| (Some(mutant), &[][..])), NOTICED);
}
