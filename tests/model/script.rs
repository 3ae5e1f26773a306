//! A seed becomes a world and a list of steps. Both are plain values: they can be printed, and a step can be left out.

use std::time::Duration;

use lazuli_emulator::{
    latency::Profile,
    options::{Already, Concurrent, FailedSnapshot, LIST_LAG, LeftOut, Switches},
    scenario::{AttachTo, Disk, Scenario, VirtualMachine},
};
use serde_json::{Value, json};

use super::dice::Dice;

/// Machine sizes with the data disks they take (source: Microsoft docs, sizes).
pub(super) const SIZES: [(&str, usize); 4] =
    [("Standard_B1s", 2), ("Standard_D2s_v3", 4), ("Standard_B2s", 4), ("Standard_D8s_v3", 16)];

/// How many slots there are for snapshots.
pub(super) const SNAPSHOTS: usize = 4;
/// In so many of a hundred lives there are snapshots, copies and changes, unless `LAZULI_MODEL_COPIES` says otherwise.
const SHARE_WITH_COPIES: u64 = 25;

/// In so many of a hundred lives there are VHDs in page blobs beside managed disks, unless `LAZULI_MODEL_VHDS` says otherwise.
const SHARE_WITH_VHDS: u64 = 25;
/// The account that a class names, which somebody else has made.
pub(super) const NAMED_ACCOUNT: &str = "vhdsofothers";

/// In which account a VHD is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Shared,
    Dedicated,
    /// In [`NAMED_ACCOUNT`].
    Named,
}

/// What there is of VHDs in a world.
#[derive(Debug, Clone)]
pub(super) struct Vhds {
    /// Whether the system disk of each node is one, so that it takes VHDs and no managed disks.
    pub(super) nodes: Vec<bool>,
    /// The kinds of the first slots for volumes; none where those are managed disks.
    pub(super) slots: Vec<Option<Kind>>,
    /// `--blob-disks=always`, and not `auto`.
    pub(super) always: bool,
}

/// How a VM's data disks are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    Action,
    WholeList,
    AzureStack,
}

/// The kind of disk that a claim asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Class {
    /// `Standard_LRS` in no zone: the one that every Azure has, that every size takes and that every machine attaches.
    Plain,
    /// `Premium_LRS` in this zone. The machines are in none, so that it is never attached.
    Premium(u8),
    /// `PremiumV2_LRS` in this zone.
    PremiumV2(u8),
    /// `UltraSSD_LRS` in this zone.
    Ultra(u8),
    /// A VHD in a page blob.
    Vhd(Kind),
}

impl Class {
    pub(super) fn sku(self) -> &'static str {
        match self {
            Self::Plain | Self::Vhd(_) => "Standard_LRS",
            Self::Premium(_) => "Premium_LRS",
            Self::PremiumV2(_) => "PremiumV2_LRS",
            Self::Ultra(_) => "UltraSSD_LRS",
        }
    }

    pub(super) fn zone(self) -> Option<u8> {
        match self {
            Self::Plain | Self::Vhd(_) => None,
            Self::Premium(zone) | Self::PremiumV2(zone) | Self::Ultra(zone) => Some(zone),
        }
    }

    /// Whether its performance is chosen, and its snapshots are filled in the background.
    pub(super) fn is_adjustable(self) -> bool {
        matches!(self, Self::PremiumV2(_) | Self::Ultra(_))
    }

    pub(super) fn is_vhd(self) -> bool {
        matches!(self, Self::Vhd(_))
    }

    /// The least size.
    pub(super) fn least_gib(self) -> i64 {
        if matches!(self, Self::Ultra(_)) { 4 } else { 1 }
    }
}

/// Where a snapshot is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// In the region of its disk.
    Here,
    /// There, with instant access where its disk can have it.
    Instant,
    /// In another region.
    Elsewhere,
}

/// The region of [`Place::Elsewhere`].
pub(super) const ELSEWHERE: &str = "northeurope";

/// What a VolumeAttributesClass says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Attributes {
    Sku(&'static str),
    Performance {
        iops: u64,
        mbps: u64,
    },
    Tier(&'static str),
    /// The tag `team`.
    Tag(&'static str),
}

/// What a run takes place in.
#[derive(Debug, Clone)]
pub(super) struct World {
    pub(super) seed: u64,
    /// Index into [`SIZES`] of each node.
    pub(super) nodes: Vec<usize>,
    pub(super) volumes: usize,
    /// Disks of others: the node and LUN where each is at the start, if anywhere.
    pub(super) foreign: Vec<Option<(usize, u8)>>,
    pub(super) method: Method,
    /// Whether a role for the action is missing, so that the provider must fall back.
    pub(super) without_action: bool,
    pub(super) nasty_casing: bool,
    pub(super) throttling: bool,
    pub(super) future_fields: bool,
    pub(super) read_lag_ms: u64,
    pub(super) page_size: usize,
    pub(super) latency: &'static str,
    pub(super) switches: Switches,
    /// Whether other tools write to the machines.
    pub(super) meddling: bool,
    /// Whether a second replica may take over.
    pub(super) replicas: bool,
    /// The kinds of the disks that snapshots, copies and changes are mostly about, a slot each after those of `volumes`;
    /// none where these lives have no snapshots.
    pub(super) classes: Vec<Class>,
    pub(super) vhds: Option<Vhds>,
}

/// The call of a volume or an attachment that an incident can strike, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Strike {
    Throttled(u64),
    Status(u16),
    Refused,
    LostBefore,
    LostAfter,
    Late(&'static str),
    /// Azure says that all is done, and has done nothing.
    Hollow,
    Delayed(u64),
}

/// Which requests an incident strikes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    VmWrite,
    VmRead,
    DiskPut,
    DiskDelete,
    DiskRead,
    DiskList,
    Poll,
    DiskPatch,
    SnapshotPut,
    SnapshotDelete,
    SnapshotRead,
    SnapshotList,
    BlobWrite,
    BlobRead,
    AccountPut,
    AccountDelete,
    AccountRead,
    AccountKeys,
}

/// The sidecar whose lease moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Provisioner,
    Attacher,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Step {
    /// A claim appears: a volume is wanted in this slot.
    Create {
        slot: usize,
        gib: i64,
    },
    /// The same name again, with another size.
    CreateOther {
        slot: usize,
        gib: i64,
    },
    /// The claim goes; a hasty one is deleted without waiting for its attachments.
    Delete {
        slot: usize,
        hasty: bool,
    },
    /// A pod wants the volume on a node; elsewhere it is not wanted any more, unless it is wanted on both.
    Publish {
        slot: usize,
        node: usize,
        both: bool,
    },
    /// The attachment is asked for again, as after a resync.
    Republish {
        slot: usize,
    },
    /// The pod goes.
    Unpublish {
        slot: usize,
    },
    /// A caller unpublishes where the volume may not be at all.
    UnpublishFrom {
        slot: usize,
        node: usize,
    },
    /// From wherever it is.
    UnpublishEverywhere {
        slot: usize,
    },
    Expand {
        slot: usize,
        gib: i64,
    },
    List {
        page: i32,
    },
    Get {
        slot: usize,
    },
    /// `times` requests of this kind meet this.
    Incident {
        target: Target,
        strike: Strike,
        nth: u64,
        times: u64,
    },
    /// Another tool attaches a disk of its own.
    ForeignAttach {
        disk: usize,
        node: usize,
        lun: u8,
    },
    ForeignDetach {
        disk: usize,
    },
    /// Another tool attaches or detaches a disk of ours.
    MeddleAttach {
        slot: usize,
        node: usize,
        lun: u8,
    },
    MeddleDetach {
        slot: usize,
    },
    /// kill -9 of the replica that has this role; another one has both roles afterwards.
    Kill {
        role: Role,
    },
    /// The lease moves to the other replica; the first one finishes what it has begun.
    Move {
        role: Role,
    },
    /// A VolumeSnapshot appears in this slot of snapshots, unless one is there.
    TakeSnapshot {
        at: usize,
        of: usize,
        place: Place,
    },
    DropSnapshot {
        at: usize,
    },
    /// A claim appears in a free slot, to be filled from a snapshot. A hasty one does not wait until that is ready.
    Restore {
        slot: usize,
        at: usize,
        class: Class,
        more_gib: i64,
        hasty: bool,
    },
    /// A claim appears in a free slot, to be filled from the volume in another one.
    Clone {
        slot: usize,
        of: usize,
        class: Class,
        more_gib: i64,
    },
    Modify {
        slot: usize,
        to: Attributes,
    },
    /// Of one volume, where one is named.
    ListSnapshots {
        of: Option<usize>,
        page: i32,
    },
    /// The machine that has a VHD writes to it, at the beginning of this GiB or at the end of the disk.
    MachineWrites {
        slot: usize,
        gib: u64,
    },
    /// Somebody draws the keys of a VHD's account anew.
    RotateKeys {
        slot: usize,
    },
    /// Somebody puts something else into a VHD's account.
    Litter {
        slot: usize,
    },
}

/// A step and how long after the one before it comes.
pub(super) type Timed = (Duration, Step);

/// What a seed says.
pub(super) fn of_seed(seed: u64) -> (World, Vec<Timed>) {
    let mut dice = Dice::new(seed);
    let world = world(seed, &mut dice);
    let steps = dice.from(40, 160);
    let mut script = (0..steps).map(|_| (pause(&mut dice), step(&world, &mut dice))).collect();
    add_copies(&world, &mut script);
    add_vhds(&world, &mut script);
    (world, script)
}

/// Puts what happens to VHDs between the steps of a life, from a stream of its own.
fn add_vhds(world: &World, script: &mut Vec<Timed>) {
    let Some(vhds) = &world.vhds else { return };
    let mut dice = Dice::of(world.seed, "steps of vhds");
    for slot in 0..world.volumes {
        script.insert(0, (dice.millis(0, 500), Step::Create { slot, gib: dice.one(&[1, 2, 4]) }));
    }
    for _ in 0..dice.from(10, 40) {
        let at = dice.below(script.len() + 1);
        let pause = if dice.percent(10) { dice.millis(30_000, 200_000) } else { pause(&mut dice) };
        let step = vhd_step(world, vhds, &mut dice);
        // A write that arrives late is one of a process that is gone.
        let kill = matches!(step, Step::Incident { strike: Strike::Delayed(_), .. }) && dice.percent(50);
        script.insert(at, (pause, step));
        if kill {
            script.insert(
                at + 1,
                (dice.millis(100, 8_000), Step::Kill { role: dice.one(&[Role::Provisioner, Role::Attacher]) }),
            );
        }
    }
}

fn vhd_step(world: &World, vhds: &Vhds, dice: &mut Dice) -> Step {
    let of: Vec<usize> = (0..world.volumes).filter(|slot| vhds.slots[*slot].is_some()).collect();
    let (slot, all) = (dice.one(&of), world.slots());
    let node = dice.below(world.nodes.len());
    match dice.below(100) {
        0..=13 => Step::Create { slot, gib: dice.one(&[1, 2, 4]) },
        14..=23 => Step::Publish { slot, node, both: dice.percent(15) },
        24..=31 => Step::Unpublish { slot },
        32..=45 => Step::Expand { slot, gib: dice.one(&[2, 4, 5, 8]) },
        46..=53 => Step::Delete { slot, hasty: dice.percent(30) },
        54..=61 => {
            let class = if dice.percent(80) { Class::Plain } else { class(world.method, dice) };
            Step::Clone { slot: dice.below(all), of: slot, class, more_gib: dice.one(&[0, 0, 0, 1, 4]) }
        }
        62..=69 => Step::MachineWrites { slot, gib: dice.from(0, 8) },
        70..=73 => Step::RotateKeys { slot },
        74 | 75 => Step::Litter { slot },
        76..=78 => Step::List { page: dice.one(&[0, 1, 3]) },
        _ => {
            let target = dice.one(&[
                Target::BlobWrite,
                Target::BlobWrite,
                Target::BlobWrite,
                Target::BlobRead,
                Target::AccountPut,
                Target::AccountDelete,
                Target::AccountRead,
                Target::AccountKeys,
                Target::VmWrite,
            ]);
            let Step::Incident { nth, times, strike, .. } = incident_of(target, dice) else { unreachable!() };
            let strike = match (target, strike) {
                // What only the resource manager answers.
                (Target::BlobWrite | Target::BlobRead, Strike::Late(_) | Strike::Status(409)) => Strike::LostAfter,
                // Nearly as long as a client waits.
                (Target::BlobWrite, Strike::LostBefore | Strike::Delayed(_)) => {
                    Strike::Delayed(dice.from(2_000, 58_000))
                }
                (Target::AccountKeys, Strike::Late(_)) => Strike::LostBefore,
                (_, strike) => strike,
            };
            Step::Incident {
                target,
                strike,
                nth: if target == Target::BlobWrite { dice.from(1, 5) } else { nth },
                times,
            }
        }
    }
}

/// Puts snapshots, copies and changes between the steps of a life. A stream of their own draws them, so that the rest of a
/// seed stays as it was.
fn add_copies(world: &World, script: &mut Vec<Timed>) {
    if world.classes.is_empty() {
        return;
    }
    let mut dice = Dice::of(world.seed, "copies");
    // First a few disks to begin with, in the order of their slots.
    for at in 0..2.min(world.classes.len()) {
        script
            .insert(at, (dice.millis(0, 2_000), Step::Create { slot: world.volumes + at, gib: dice.one(&[1, 4, 5]) }));
    }
    for _ in 0..dice.from(4, 16) {
        let at = dice.below(script.len() + 1);
        let pause = if dice.percent(15) { dice.millis(30_000, 400_000) } else { pause(&mut dice) };
        let step = copy_step(world, &mut dice);
        script.insert(at, (pause, step));
    }
}

fn copy_step(world: &World, dice: &mut Dice) -> Step {
    let (all, first) = (world.slots(), world.volumes);
    let special = first + dice.below(world.classes.len());
    // Any disk, but mostly one that is not in the others' way.
    let slot = if dice.percent(70) { special } else { dice.below(all) };
    let of = if dice.percent(60) { first + dice.below(world.classes.len()) } else { dice.below(all) };
    let at = dice.below(SNAPSHOTS);
    let class = class(world.method, dice);
    let more_gib = dice.one(&[0, 0, 0, 1, 4]);
    let gib = dice.one(&[2, 4, 5, 8]);
    match dice.below(100) {
        0..=23 => {
            let place = match (world.method, dice.below(10)) {
                (Method::AzureStack, _) | (_, 0..=4) => Place::Here,
                (_, 5 | 6) => Place::Instant,
                _ => Place::Elsewhere,
            };
            Step::TakeSnapshot { at, of, place }
        }
        24..=31 => Step::DropSnapshot { at },
        32..=41 => Step::Create { slot: special, gib },
        42..=53 => Step::Restore { slot, at, class, more_gib, hasty: dice.percent(40) },
        54..=65 => Step::Clone { slot, of, class, more_gib },
        66..=73 => Step::Modify { slot: of, to: attributes(world.method, dice) },
        74..=79 => Step::Expand { slot: of, gib },
        80..=85 => Step::Delete { slot: of, hasty: dice.percent(30) },
        86..=88 => {
            let of = dice.percent(50).then_some(of);
            Step::ListSnapshots { of, page: dice.one(&[0, 1, 3]) }
        }
        89..=90 => Step::Kill { role: Role::Provisioner },
        _ => copy_incident(dice),
    }
}

fn class(method: Method, dice: &mut Dice) -> Class {
    let zone = dice.one(&[1, 1, 2]);
    let class = dice.one(&[
        Class::Plain,
        Class::Plain,
        Class::Premium(zone),
        Class::PremiumV2(zone),
        Class::PremiumV2(zone),
        Class::Ultra(zone),
    ]);
    if method == Method::AzureStack { Class::Plain } else { class }
}

fn attributes(method: Method, dice: &mut Dice) -> Attributes {
    let to = match dice.below(12) {
        0..=4 => Attributes::Sku(dice.one(&["StandardSSD_LRS", "Premium_LRS", "Standard_LRS"])),
        5..=7 => Attributes::Performance { iops: dice.one(&[1_200, 3_000, 3_200]), mbps: dice.one(&[125, 200]) },
        8 | 9 => Attributes::Tier(dice.one(&["P2", "P4"])),
        _ => Attributes::Tag(dice.one(&["blue", "green"])),
    };
    match (method, to) {
        (
            Method::AzureStack,
            Attributes::Sku("StandardSSD_LRS") | Attributes::Performance { .. } | Attributes::Tier(_),
        ) => Attributes::Sku("Premium_LRS"),
        (_, to) => to,
    }
}

fn copy_incident(dice: &mut Dice) -> Step {
    let target = dice.one(&[
        Target::SnapshotPut,
        Target::SnapshotPut,
        Target::SnapshotDelete,
        Target::SnapshotRead,
        Target::SnapshotList,
        Target::DiskPut,
        Target::DiskPatch,
        Target::DiskRead,
    ]);
    incident_of(target, dice)
}

fn world(seed: u64, dice: &mut Dice) -> World {
    let method = match dice.below(10) {
        0..=4 => Method::Action,
        5..=7 => Method::WholeList,
        _ => Method::AzureStack,
    };
    // Without etags there is a window between read and write that no client can close: one writer alone there.
    let alone = method == Method::AzureStack;
    let nodes: Vec<usize> = (0..dice.from(1, 4)).map(|_| dice.below(SIZES.len())).collect();
    let mut foreign = Vec::new();
    for at in 0..dice.below(4) {
        let node = dice.below(nodes.len());
        foreign.push(dice.percent(70).then(|| (node, u8::try_from(at).unwrap() * 2)));
    }
    // A node of two slots keeps one for us.
    for node in 0..nodes.len() {
        let mut here = 0;
        for place in foreign.iter_mut().filter(|place| place.is_some_and(|(at, _)| at == node)) {
            here += 1;
            if here >= SIZES[nodes[node]].1 {
                *place = None;
            }
        }
    }
    let keep = |dice: &mut Dice| if dice.percent(40) { LeftOut::Keep } else { LeftOut::Detach };
    let already = |dice: &mut Dice| if dice.percent(50) { Already::Ignore } else { Already::Refuse };
    let mut of_copies = Dice::of(seed, "switches of copies");
    let mut switches = Switches {
        concurrent_vm_write: if dice.percent(50) { Concurrent::Preempt } else { Concurrent::Conflict },
        // A detach by omission is the only one that Azure Stack knows.
        left_out_of_put: if alone { LeftOut::Detach } else { keep(dice) },
        left_out_of_patch: if alone { LeftOut::Detach } else { keep(dice) },
        attach_attached: already(dice),
        detach_unattached: already(dice),
        failed_attach_stays_in_model: dice.percent(30),
        // Of two draws the second: the rest of a seed stays as it was.
        put_needs_location: (dice.percent(20), dice.percent(70)).1,
        disk_retry_after: dice.one(&[2, 7]),
        network_update_answers_created: dice.percent(50),
        // A stream of its own, so that the rest of a seed stays as it was.
        list_lag: Dice::of(seed, "list-lag").percent(30),
        copy_source_deletable: of_copies.percent(60),
        filled_source_deletable: of_copies.percent(60),
        pending_source_deletable: of_copies.percent(60),
        failed_snapshot_shows: of_copies.one(&[FailedSnapshot::CopyError, FailedSnapshot::State]),
        filling_disk_counts: of_copies.percent(60),
        filling_disk_is_source: of_copies.percent(60),
        ..Switches::default()
    };
    let volumes = usize::try_from(dice.from(2, 7)).unwrap();
    let vhds = vhds(seed, volumes, nodes.len());
    if let Some(vhds) = &vhds {
        foreign.iter_mut().for_each(|place| *place = place.filter(|(node, _)| !vhds.nodes[*node]));
        switches.blob_service_of_2017 = alone;
    }
    World {
        seed,
        volumes,
        nodes,
        foreign,
        method,
        without_action: method == Method::Action && dice.percent(15),
        nasty_casing: dice.percent(50),
        throttling: dice.percent(50),
        future_fields: dice.percent(30),
        read_lag_ms: dice.one(&[0, 0, 0, 400, 1500]),
        page_size: dice.one(&[1000, 1000, 3]),
        latency: dice.one(&["typical", "azure", "azure", "bad-day"]),
        switches,
        meddling: !alone && dice.percent(50),
        replicas: !alone && dice.percent(50),
        classes: {
            let mut dice = Dice::of(seed, "classes");
            let count = if dice.percent(super::variable("LAZULI_MODEL_COPIES").unwrap_or(SHARE_WITH_COPIES)) {
                dice.from(2, 4)
            } else {
                0
            };
            (0..count).map(|_| class(method, &mut dice)).collect()
        },
        vhds,
    }
}

fn vhds(seed: u64, volumes: usize, nodes: usize) -> Option<Vhds> {
    let mut dice = Dice::of(seed, "vhds");
    if !dice.percent(super::variable("LAZULI_MODEL_VHDS").unwrap_or(SHARE_WITH_VHDS)) {
        return None;
    }
    let kind = |dice: &mut Dice| dice.one(&[Kind::Shared, Kind::Shared, Kind::Dedicated, Kind::Dedicated, Kind::Named]);
    // At least one of each.
    let slots = (0..volumes).map(|slot| (slot == 0 || dice.percent(60)).then(|| kind(&mut dice))).collect();
    let nodes: Vec<bool> = (0..nodes).map(|node| node == 0 || dice.percent(60)).collect();
    let always = nodes.contains(&false) || dice.percent(50);
    Some(Vhds { nodes, slots, always })
}

fn pause(dice: &mut Dice) -> Duration {
    match dice.below(10) {
        0..=3 => Duration::ZERO,
        4..=6 => dice.millis(1, 300),
        7 | 8 => dice.millis(300, 5_000),
        _ => dice.millis(5_000, 30_000),
    }
}

fn step(world: &World, dice: &mut Dice) -> Step {
    let slot = dice.below(world.volumes);
    let node = dice.below(world.nodes.len());
    let lun = u8::try_from(dice.below(8)).unwrap();
    let gib = dice.one(&[1, 2, 4, 5, 8]);
    let role = dice.one(&[Role::Provisioner, Role::Attacher, Role::Attacher]);
    match dice.below(100) {
        0..=13 => Step::Create { slot, gib },
        14 => Step::CreateOther { slot, gib },
        15..=20 => Step::Delete { slot, hasty: dice.percent(30) },
        21..=44 => Step::Publish { slot, node, both: dice.percent(15) },
        45..=49 => Step::Republish { slot },
        50..=61 => Step::Unpublish { slot },
        62..=63 => Step::UnpublishFrom { slot, node },
        64 => Step::UnpublishEverywhere { slot },
        65..=68 => Step::Expand { slot, gib },
        69..=70 => Step::List { page: dice.one(&[0, 1, 3]) },
        71..=72 => Step::Get { slot },
        73..=86 => incident(dice),
        87..=90 if world.meddling && !world.foreign.is_empty() => {
            let disk = dice.below(world.foreign.len());
            if dice.percent(50) { Step::ForeignAttach { disk, node, lun } } else { Step::ForeignDetach { disk } }
        }
        91..=93 if world.meddling => {
            if dice.percent(30) {
                Step::MeddleAttach { slot, node, lun }
            } else {
                Step::MeddleDetach { slot }
            }
        }
        94..=96 => Step::Kill { role },
        97..=99 if world.replicas => Step::Move { role },
        _ => Step::Publish { slot, node, both: false },
    }
}

fn incident(dice: &mut Dice) -> Step {
    let target = dice.one(&[
        Target::VmWrite,
        Target::VmWrite,
        Target::VmWrite,
        Target::VmRead,
        Target::DiskPut,
        Target::DiskDelete,
        Target::DiskRead,
        Target::DiskList,
        Target::Poll,
    ]);
    incident_of(target, dice)
}

fn incident_of(target: Target, dice: &mut Dice) -> Step {
    let writes = matches!(
        target,
        Target::VmWrite
            | Target::DiskPut
            | Target::DiskDelete
            | Target::DiskPatch
            | Target::SnapshotPut
            | Target::SnapshotDelete
            | Target::BlobWrite
            | Target::AccountPut
            | Target::AccountDelete
    );
    let strike = match dice.below(if writes { 12 } else { 6 }) {
        0 | 1 => Strike::Throttled(dice.one(&[1, 3, 6, 40])),
        2 => Strike::Status(503),
        3 => Strike::Status(500),
        4 => Strike::LostBefore,
        5 => Strike::Delayed(dice.from(50, 20_000)),
        6 => Strike::LostAfter,
        7 => Strike::Status(409),
        8 if target == Target::VmWrite => Strike::Status(412),
        9 if target == Target::VmWrite => Strike::Refused,
        8 | 9 => Strike::LostAfter,
        10 if target == Target::VmWrite => Strike::Hollow,
        _ => Strike::Late(dice.one(&["InternalExecutionError", "RetryableError", "OperationPreempted", "Conflict"])),
    };
    // Now and then for longer than a client can sit out.
    let times = if dice.percent(20) { 12 } else { dice.from(1, 3) };
    Step::Incident { target, strike, nth: dice.from(1, 3), times }
}

impl Step {
    /// The incident, as the emulator takes it.
    pub(super) fn incident(&self) -> Option<Value> {
        let Self::Incident { target, strike, nth, times } = self else { return None };
        let mut matching = match target {
            Target::VmWrite => json!({"operation": "virtualMachines.*"}),
            Target::VmRead => json!({"method": "GET", "operation": "virtualMachines.get"}),
            Target::DiskPut => json!({"method": "PUT", "path": "*/disks/*"}),
            Target::DiskDelete => json!({"method": "DELETE", "path": "*/disks/*"}),
            Target::DiskRead => json!({"method": "GET", "path": "*/disks/*"}),
            Target::DiskList => json!({"method": "GET", "path": "*/disks"}),
            Target::Poll => json!({"method": "GET", "path": "*operations/*"}),
            Target::DiskPatch => json!({"method": "PATCH", "path": "*/disks/*"}),
            Target::SnapshotPut => json!({"method": "PUT", "path": "*/snapshots/*"}),
            Target::SnapshotDelete => json!({"method": "DELETE", "path": "*/snapshots/*"}),
            Target::SnapshotRead => json!({"method": "GET", "path": "*/snapshots/*"}),
            Target::SnapshotList => json!({"method": "GET", "path": "*/snapshots"}),
            Target::BlobWrite => json!({"method": "PUT|DELETE", "path": "/vhds*"}),
            Target::BlobRead => json!({"method": "GET|HEAD", "path": "/vhds*"}),
            Target::AccountPut => json!({"method": "PUT", "path": "*/storageAccounts/*"}),
            Target::AccountDelete => json!({"method": "DELETE", "path": "*/storageAccounts/*"}),
            Target::AccountRead => json!({"method": "GET", "path": "*/storageAccounts*"}),
            Target::AccountKeys => json!({"method": "POST", "path": "*/listKeys"}),
        };
        if *target == Target::VmWrite {
            // Whatever method the world writes by; none of these is a read.
            matching["bodyContains"] = json!("ata");
        }
        matching["nth"] = json!(nth);
        let then = match strike {
            Strike::Throttled(seconds) => json!({"status": 429, "retryAfter": seconds}),
            Strike::Status(status) => json!({"status": status}),
            Strike::Refused => json!({"status": 400, "code": "InvalidParameter"}),
            Strike::LostBefore => json!({"loseAnswer": "before"}),
            Strike::LostAfter => json!({"loseAnswer": "after"}),
            Strike::Hollow => json!({"status": 200}),
            Strike::Late(code) => json!({"lateFailure": {"code": code}}),
            Strike::Delayed(ms) => json!({"delayMs": ms}),
        };
        Some(json!({"match": matching, "then": then, "times": times}))
    }
}

pub(super) fn node_name(node: usize) -> String {
    format!("node-{node}")
}

pub(super) fn node_number(name: &str) -> usize {
    name.trim_start_matches("node-").parse().unwrap()
}

pub(super) fn foreign_name(disk: usize) -> String {
    format!("foreign-{disk}")
}

impl World {
    /// The emulator of this world.
    pub(super) fn azure(&self) -> lazuli_emulator::Options {
        let machines = self.nodes.iter().enumerate().map(|(at, size)| {
            let mut machine = VirtualMachine::pattern("{}", 1);
            (machine.name, machine.count, machine.size) = (node_name(at), None, SIZES[*size].0.to_owned());
            machine.os_disk.storage_account = self.takes_vhds(at).then(|| "systems".to_owned());
            machine
        });
        let disks = self.foreign.iter().enumerate().map(|(at, place)| Disk {
            name: foreign_name(at),
            size_gib: 4,
            sku: "StandardSSD_LRS".to_owned(),
            zone: None,
            resource_group: None,
            attach_to: place.map(|(node, lun)| AttachTo { vm: node_name(node), lun }),
            tags: Default::default(),
        });
        lazuli_emulator::Options {
            seed: self.seed,
            latency: Profile::parse(self.latency).unwrap(),
            throttling: self.throttling,
            nasty_casing: self.nasty_casing,
            read_lag: Duration::from_millis(self.read_lag_ms),
            future_fields: self.future_fields,
            page_size: self.page_size,
            scenario: Scenario { virtual_machines: machines.collect(), disks: disks.collect(), ..Scenario::default() },
            unverified: self.switches,
            ..Default::default()
        }
    }

    pub(super) fn is_azure_stack(&self) -> bool {
        self.method == Method::AzureStack
    }

    /// How many volumes there may be at a time.
    pub(super) fn slots(&self) -> usize {
        self.volumes + self.classes.len()
    }

    /// The kind of disk that a claim without a source asks for.
    pub(super) fn class(&self, slot: usize) -> Class {
        let vhd = || self.vhds.as_ref().and_then(|vhds| vhds.slots[slot]);
        match slot.checked_sub(self.volumes) {
            Some(at) => self.classes[at],
            None => vhd().map_or(Class::Plain, Class::Vhd),
        }
    }

    /// Whether the disks of a node are VHDs.
    pub(super) fn takes_vhds(&self, node: usize) -> bool {
        self.vhds.as_ref().is_some_and(|vhds| vhds.nodes[node])
    }

    /// Whether a node takes disks of a class.
    pub(super) fn takes(&self, node: usize, class: Class) -> bool {
        self.takes_vhds(node) == class.is_vhd()
    }

    /// Whether the life ends with the deletion of everything.
    pub(super) fn has_farewell(&self) -> bool {
        !self.classes.is_empty() || self.vhds.is_some()
    }

    /// How much later than a single read a list may be.
    pub(super) fn list_lag_ms(&self) -> u64 {
        if self.switches.list_lag { u64::try_from(LIST_LAG.as_millis()).unwrap() } else { 0 }
    }

    pub(super) fn limit(&self, node: usize) -> usize {
        SIZES[self.nodes[node]].1
    }
}
