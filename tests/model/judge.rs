//! What must hold, computed from Azure's own state and from what was asked and answered. Imports nothing of the
//! provider's: what it judges could share a mistake with it.
//!
//! | invariant | what it says |
//! |---|---|
//! | `one-machine` | no disk is held by two machines |
//! | `one-slot` | no machine lists two disks on one LUN, or one disk twice |
//! | `reserved-lun` | a LUN that a VolumeAttachment of the node names is given to no other disk |
//! | `own-lun` | a disk whose own VolumeAttachment names a free LUN gets no other |
//! | `unasked` | nothing is attached or detached that nobody asked this replica for |
//! | `foreign` | a disk of others keeps slot and terms |
//! | `published` | at the answer the machine lists and holds the disk at that LUN, and the disk says so |
//! | `unpublished` | at the answer it neither lists nor holds it, and the disk does not say so |
//! | `created`, `deleted`, `expanded` | at the answer the disk is there as promised; it is gone, and no machine lists it; it has the size |
//! | `listed`, `found` | ListVolumes and ControllerGetVolume tell what was so throughout the call |
//! | `code` | a code that the state does not warrant; a final one for what is still possible; RESOURCE_EXHAUSTED for 429 |
//! | `economy` | a publish of an attached disk, undisturbed, costs no write and at most one read; writes are bounded |
//! | `converges`, `leak` | when all is quiet every wish comes true, and nothing else is left |
//!
//! An answer is judged at its own instant. Only where somebody else (another tool, the other replica) touched the same
//! disk since just before the call, it is enough that it was true within the call: nobody can promise more.

use std::collections::{BTreeMap, BTreeSet};

use lazuli_emulator::Control;
use tokio::time::Instant;
use tonic::Code;

use super::{facts::Facts, script::World};

mod ending;

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
    Create { disk: String, gib: i64 },
    Delete { disk: String },
    Publish { disk: String, node: String },
    Unpublish { disk: String, node: Option<String> },
    Expand { disk: String, gib: i64 },
    List,
    Get { disk: String },
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
    /// How much later than a single read a list may be.
    list_lag_ms: u64,
    limits: BTreeMap<String, usize>,
    pub(super) facts: Facts,
    /// `(machine, disk)` of what failed attaches have left in the models.
    left_over: BTreeSet<(String, String)>,
    /// How many operations ran at the last look.
    running: usize,
    changes: Vec<Change>,
    calls: Vec<Call>,
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
            list_lag_ms: world.list_lag_ms(),
            limits,
            facts,
            left_over: BTreeSet::new(),
            running: 0,
            changes: Vec::new(),
            calls: Vec::new(),
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

    // ---- what Azure does ----

    pub(super) fn request_leaves(&mut self, who: Who, method: &str, path: &str) {
        self.look();
        if path.starts_with("/subscriptions/") {
            let table = if method == "GET" { &mut self.reads } else { &mut self.writes };
            *table.entry(who).or_default() += 1;
        }
    }

    pub(super) fn request_is_answered(&mut self, who: Who, method: &str) {
        if method == "GET" {
            self.look();
        } else {
            self.compare_now(who);
        }
    }

    /// Takes note of what ended since the last look. What begins begins with a request, after which there was a look:
    /// as long as as many operations run as then, nothing can have changed.
    pub(super) fn look(&mut self) {
        if self.control.running_operations() != self.running {
            self.compare_now(Who::Azure);
        }
    }

    fn compare_now(&mut self, by: Who) {
        self.running = self.control.running_operations();
        let facts = Facts::read(&self.control);
        if facts == self.facts {
            return;
        }
        let old = std::mem::replace(&mut self.facts, facts);
        self.note_leftovers();
        self.compare(&old, by);
        self.structure();
    }

    fn note_leftovers(&mut self) {
        let Self { facts, left_over, .. } = self;
        let unheld = |vm: &str, disk: &str| {
            facts.listed(vm, disk).is_some() && !facts.machines[vm].held.values().any(|held| held == disk)
        };
        left_over.retain(|(vm, disk)| unheld(vm, disk));
        for (vm, machine) in facts.machines.iter().filter(|(_, machine)| machine.provisioning == "Failed") {
            let listed = machine.listed.values().filter(|element| unheld(vm, &element.disk));
            left_over.extend(listed.map(|element| (vm.clone(), element.disk.clone())));
        }
    }

    fn compare(&mut self, old: &Facts, by: Who) {
        let mut changes: Vec<(String, Became)> = Vec::new();
        let none = super::facts::Machine::default();
        for (vm, machine) in &self.facts.machines {
            let before = old.machines.get(vm).unwrap_or(&none);
            for (lun, element) in &machine.listed {
                match before.listed.get(lun).filter(|was| was.disk == element.disk) {
                    Some(was) if element.leaving && !was.leaving => {
                        changes.push((element.disk.clone(), Became::Marked(vm.clone())));
                    }
                    Some(_) => {}
                    None => changes.push((element.disk.clone(), Became::Listed(vm.clone(), *lun))),
                }
            }
            for (lun, was) in &before.listed {
                if machine.listed.get(lun).is_none_or(|element| element.disk != was.disk) {
                    changes.push((was.disk.clone(), Became::Unlisted(vm.clone())));
                }
            }
            for (lun, disk) in &machine.held {
                if before.held.get(lun) != Some(disk) {
                    changes.push((disk.clone(), Became::Held(vm.clone(), *lun)));
                }
            }
            for (lun, disk) in &before.held {
                if machine.held.get(lun) != Some(disk) {
                    changes.push((disk.clone(), Became::Unheld(vm.clone())));
                }
            }
        }
        for disk in self.facts.disks.keys().filter(|disk| !old.disks.contains_key(*disk)) {
            changes.push((disk.clone(), Became::Made));
        }
        for disk in old.disks.keys().filter(|disk| !self.facts.disks.contains_key(*disk)) {
            changes.push((disk.clone(), Became::Gone));
        }
        let at = self.now();
        for (disk, became) in changes {
            self.tell(&format!("  {disk} {became:?} by {by:?}"));
            let of_disk = matches!(became, Became::Made | Became::Gone);
            let role = if of_disk { self.provisioner } else { self.attacher };
            let late = matches!(by, Who::Replica(number) if number != role);
            if let Who::Replica(number) = by {
                self.write(old, number, &disk, &became, late);
            }
            self.changes.push(Change { at, by, disk, became, late });
        }
        if let Who::Replica(number) = by {
            self.foreign(old, number);
        }
    }

    /// What a replica's write may do.
    fn write(&mut self, old: &Facts, replica: u32, disk: &str, became: &Became, late: bool) {
        match became {
            Became::Listed(vm, lun) => {
                if !self.asked(replica, disk, vm, true) {
                    self.violated("unasked", format!("replica {replica} attaches {disk} to {vm}"));
                }
                if late {
                    // What it knew of VolumeAttachments is as old as its write.
                    return;
                }
                let mut named =
                    self.attachments.iter().filter(|((node, _), given)| node == vm && **given == Some(*lun));
                if let Some(((_, owner), _)) = named.find(|((_, owner), _)| owner != disk) {
                    let what = format!("{disk} gets LUN {lun} of {vm}, which the VolumeAttachment of {owner} names");
                    self.violated("reserved-lun", what);
                }
                let own = self.attachments.get(&(vm.clone(), disk.to_owned())).copied().flatten();
                if let Some(own) = own.filter(|own| own != lun) {
                    let occupied = old.machines.get(vm).is_some_and(|machine| machine.listed.contains_key(&own));
                    let claimed = self
                        .attachments
                        .iter()
                        .any(|((node, other), given)| node == vm && other != disk && *given == Some(own));
                    if !occupied && !claimed {
                        self.violated("own-lun", format!("{disk} gets LUN {lun} of {vm}; its own {own} is free"));
                    }
                }
            }
            Became::Marked(vm) | Became::Unlisted(vm) => {
                let was_held =
                    old.machines.get(vm).is_some_and(|machine| machine.held.values().any(|held| held == disk));
                let was_leaving = old.listed(vm, disk).is_some_and(|(_, leaving)| leaving);
                if was_held && !was_leaving && !self.asked(replica, disk, vm, false) {
                    self.violated("unasked", format!("replica {replica} detaches {disk} from {vm}"));
                }
            }
            _ => {}
        }
    }

    /// Whether a replica was asked for this, and not for the opposite since.
    fn asked(&self, replica: u32, disk: &str, vm: &str, attach: bool) -> bool {
        let publish = |call: &Call| matches!(&call.rpc, Rpc::Publish { disk: d, node } if d == disk && node == vm);
        let unpublish = |call: &Call| {
            matches!(&call.rpc, Rpc::Unpublish { disk: d, node }
                if d == disk && node.as_deref().is_none_or(|node| node == vm))
        };
        let is = |call: &&Call, publishes: bool| if publishes { publish(call) } else { unpublish(call) };
        let mine = || self.calls.iter().filter(|call| call.replica == replica);
        let Some(asked) = mine().filter(|call| is(call, attach)).map(|call| call.started).max() else { return false };
        mine().filter(|call| is(call, !attach) && call.done()).all(|call| call.started <= asked)
    }

    fn foreign(&mut self, old: &Facts, replica: u32) {
        let mut touched = Vec::new();
        for (vm, before) in &old.machines {
            let Some(after) = self.facts.machines.get(vm) else { continue };
            for (lun, was) in before.listed.iter().filter(|(_, was)| !is_ours(&was.disk)) {
                // An operation of its own may have ended meanwhile.
                let steady = before.held.get(lun) == Some(&was.disk) && !was.leaving;
                if steady && after.listed.get(lun) != Some(was) {
                    touched.push(format!("{} on LUN {lun} of {vm}: {was:?} -> {:?}", was.disk, after.listed.get(lun)));
                }
            }
        }
        for what in touched {
            self.violated("foreign", format!("replica {replica} touches {what}"));
        }
    }

    fn structure(&mut self) {
        let mut wrong = Vec::new();
        let mut holders: BTreeMap<&String, Vec<&String>> = BTreeMap::new();
        for (vm, machine) in &self.facts.machines {
            for disk in machine.held.values() {
                holders.entry(disk).or_default().push(vm);
            }
            let distinct: BTreeSet<&String> = machine.listed.values().map(|element| &element.disk).collect();
            if machine.elements != machine.listed.len() || distinct.len() != machine.listed.len() {
                wrong.push(("one-slot", format!("{vm} lists {:?}", machine.listed)));
            }
        }
        for (disk, vms) in holders.into_iter().filter(|(_, vms)| vms.len() > 1) {
            wrong.push(("one-machine", format!("{disk} is held by {vms:?}")));
        }
        for (invariant, what) in wrong {
            self.violated(invariant, what);
        }
    }

    // ---- what is asked and answered ----

    pub(super) fn call_begins(&mut self, replica: u32, rpc: Rpc) -> usize {
        self.look();
        self.notice_incidents();
        // What was given up may still be at work in the controller.
        let patience = self.now().saturating_sub(GIVEN_UP_FOR_MS);
        let over = |call: &Call| match &call.ended {
            Some((at, Ending::GivenUp)) => *at < patience,
            ended => ended.is_some(),
        };
        let idle = self.calls.iter().all(over) && self.control.running_operations() == 0;
        let settled_before = match &rpc {
            Rpc::Publish { disk, node } => {
                // After a write that failed the model alone is not believed: that takes another look.
                let trusted = self.facts.machines[node].provisioning == "Succeeded";
                idle && trusted && self.is_published(disk, node).is_some()
            }
            _ => false,
        };
        self.tell(&format!("{rpc:?} -> replica {replica}"));
        self.calls.push(Call {
            rpc,
            replica,
            started: self.now(),
            ended: None,
            settled_before,
            writes_before: self.writes.get(&Who::Replica(replica)).copied().unwrap_or_default(),
            reads_before: self.reads.get(&Who::Replica(replica)).copied().unwrap_or_default(),
        });
        self.calls.len() - 1
    }

    pub(super) fn call_ends(&mut self, id: usize, ending: Ending) {
        self.look();
        self.notice_incidents();
        let (at, call) = (self.now(), self.calls[id].clone());
        let shown = match &ending {
            Ending::Done(Some(lun)) => format!("OK LUN {lun}"),
            Ending::Done(None) => "OK".to_owned(),
            Ending::Failed(code, message) => format!("{code:?} {message}"),
            Ending::GivenUp => "given up".to_owned(),
        };
        self.tell(&format!("{:?} = {shown}", call.rpc));
        self.calls[id].ended = Some((at, ending.clone()));
        let name = format!("{:?}", call.rpc);
        let name = name.split([' ', '{']).next().unwrap_or_default().to_owned();
        match ending {
            Ending::Done(lun) => {
                self.coverage.count(format!("{name} OK"));
                self.done(id, &call, lun);
            }
            Ending::Failed(code, message) => {
                self.coverage.count(format!("{name} {code:?}"));
                self.failed(&call, code, &message);
            }
            Ending::GivenUp => self.coverage.count(format!("{name} given up")),
        }
    }

    fn notice_incidents(&mut self) {
        let struck = self.control.incidents().iter().map(|listed| listed.struck).sum();
        // Cleared incidents count from zero again.
        if struck > self.struck {
            self.last_struck = self.now();
        }
        self.struck = struck;
    }

    fn window(&self, call: &Call) -> u64 {
        call.started.saturating_sub(self.lag_ms + JUST_BEFORE_MS)
    }

    fn changes_of<'a>(&'a self, disk: &'a str, since: u64) -> impl Iterator<Item = &'a Change> {
        self.changes.iter().rev().take_while(move |change| change.at >= since).filter(move |change| change.disk == disk)
    }

    /// Whether somebody other than this replica wrote about a disk since then, or was asked to.
    fn disturbed(&self, disk: &str, since: u64, replica: u32) -> bool {
        let others = |who: Who| matches!(who, Who::Tool) || matches!(who, Who::Replica(number) if number != replica);
        self.changes_of(disk, since).any(|change| others(change.by))
            || self.calls.iter().any(|call| {
                let about = match &call.rpc {
                    Rpc::Create { disk: d, .. }
                    | Rpc::Delete { disk: d }
                    | Rpc::Publish { disk: d, .. }
                    | Rpc::Unpublish { disk: d, .. } => d == disk,
                    _ => false,
                };
                // What was given up may still be on its way.
                let going = call.ended.as_ref().is_none_or(|(at, how)| *at >= since || *how == Ending::GivenUp);
                about && call.replica != replica && going
            })
    }

    /// The LUN at which a disk is published, by everybody's word.
    fn is_published(&self, disk: &str, node: &str) -> Option<u8> {
        let (lun, leaving) = self.facts.listed(node, disk)?;
        let machine = &self.facts.machines[node];
        let says = self.facts.disks.get(disk).and_then(|facts| facts.managed_by.as_deref());
        (!leaving && machine.held.get(&lun).map(String::as_str) == Some(disk) && says == Some(node)).then_some(lun)
    }

    fn was_held(&self, disk: &str, node: &str, lun: u8, since: u64) -> bool {
        let now = self.facts.machines.get(node).and_then(|machine| machine.held.get(&lun));
        now.is_some_and(|held| held == disk)
            || self.changes_of(disk, since).any(|change| match &change.became {
                Became::Unheld(vm) => vm == node,
                Became::Held(vm, at) => vm == node && *at == lun,
                _ => false,
            })
    }

    fn was_attached_anywhere(&self, disk: &str, since: u64) -> bool {
        !self.facts.holders(disk).is_empty()
            || !self.facts.listing(disk).is_empty()
            || self.changes_of(disk, since).any(|change| !matches!(change.became, Became::Made | Became::Gone))
    }

    fn was_elsewhere(&self, disk: &str, node: &str, since: u64) -> bool {
        self.facts.holders(disk).iter().any(|(vm, _)| *vm != node)
            || self.facts.listing(disk).iter().any(|vm| *vm != node)
            || self.changes_of(disk, since).any(|change| match &change.became {
                Became::Unheld(vm) | Became::Held(vm, _) | Became::Unlisted(vm) | Became::Listed(vm, _) => vm != node,
                _ => false,
            })
    }

    /// Who attaches a disk that a machine lists.
    fn listed_by(&self, disk: &str) -> Option<Who> {
        // What a failed attach has left in a model is no attachment, and whoever deletes the disk cannot see it.
        let left_over = |vm: &&str| self.left_over.contains(&((*vm).to_owned(), disk.to_owned()));
        let listed = !self.facts.listing(disk).iter().all(left_over);
        let mut changes = self.changes_of(disk, 0);
        changes.find(|change| listed && matches!(change.became, Became::Listed(..))).map(|change| change.by)
    }

    fn was_absent(&self, disk: &str, since: u64) -> bool {
        // One that is being deleted cannot be attached any more.
        self.facts.disks.get(disk).is_none_or(|facts| facts.provisioning == "Deleting")
            || self.changes_of(disk, since).any(|change| matches!(change.became, Became::Made | Became::Gone))
    }

    fn done(&mut self, id: usize, call: &Call, lun: Option<u8>) {
        let since = self.window(call);
        match call.rpc.clone() {
            Rpc::Create { disk, gib } => match self.facts.disks.get(&disk) {
                Some(facts) if facts.ours && facts.gib >= gib && facts.provisioning != "Failed" => {}
                facts => {
                    let what = format!("{disk} of {gib} GiB: {facts:?}");
                    if !self.disturbed(&disk, since, call.replica) {
                        self.violated("created", what);
                    }
                }
            },
            Rpc::Delete { disk } => {
                // Azure lets a disk go while another tool's attach of it is on its way.
                let listed = self.listed_by(&disk) == Some(Who::Replica(call.replica));
                let left = self.facts.disks.contains_key(&disk) || listed;
                if left && !self.disturbed(&disk, since, call.replica) {
                    let what = format!("{disk}: {:?} in {:?}", self.facts.disks.get(&disk), self.facts.listing(&disk));
                    self.violated("deleted", what);
                }
            }
            Rpc::Publish { disk, node } => {
                let lun = lun.unwrap_or(u8::MAX);
                if self.is_published(&disk, &node) != Some(lun) {
                    let excused = self.disturbed(&disk, since, call.replica) && self.was_held(&disk, &node, lun, since);
                    if !excused {
                        let what = format!(
                            "{disk} at LUN {lun} of {node}; it says {:?}, the model {:?}, the machine {:?}",
                            self.facts.disks.get(&disk),
                            self.facts.listed(&node, &disk),
                            self.facts.machines.get(&node).map(|machine| &machine.held),
                        );
                        self.violated("published", what);
                    }
                }
                self.economy(id, call, &disk);
            }
            Rpc::Unpublish { disk, node } => {
                let on = |vm: &str| node.as_deref().is_none_or(|node| node == vm);
                let held = self.facts.holders(&disk).iter().any(|(vm, _)| on(vm));
                let listed = self.facts.listing(&disk).iter().any(|vm| on(vm));
                let says = self.facts.disks.get(&disk).and_then(|facts| facts.managed_by.as_deref()).is_some_and(on);
                // An attach of nobody's knowledge may be in the model of a machine that is not asked about by name.
                let stays = held || says || listed && node.is_some();
                if stays && !self.disturbed(&disk, since, call.replica) {
                    self.violated(
                        "unpublished",
                        format!("{disk} from {node:?}: held {held}, listed {listed}, says {says}"),
                    );
                }
            }
            Rpc::Expand { disk, gib } => {
                let size = self.facts.disks.get(&disk).map(|facts| facts.gib);
                if size.is_none_or(|size| size < gib) && !self.disturbed(&disk, since, call.replica) {
                    self.violated("expanded", format!("{disk} to {gib} GiB: {size:?}"));
                }
            }
            Rpc::List | Rpc::Get { .. } => {}
        }
    }

    /// A publish of what is published already costs nothing but a look.
    fn economy(&mut self, id: usize, call: &Call, disk: &str) {
        let alone = self.calls[id + 1..].is_empty();
        let quiet = self.control.incidents().iter().all(|listed| listed.struck > 0) && self.last_struck < call.started;
        if !(call.settled_before && alone && quiet) || self.changes_of(disk, call.started).next().is_some() {
            return;
        }
        self.coverage.count("publish of an attached disk, undisturbed");
        let who = Who::Replica(call.replica);
        let writes = self.writes.get(&who).copied().unwrap_or_default() - call.writes_before;
        let reads = self.reads.get(&who).copied().unwrap_or_default() - call.reads_before;
        if writes > 0 || reads > 1 {
            self.violated("economy", format!("a publish of {disk}, attached: {writes} writes, {reads} reads"));
        }
    }

    fn failed(&mut self, call: &Call, code: Code, message: &str) {
        if matches!(code, Code::Aborted | Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled) {
            return;
        }
        let since = self.window(call);
        let warranted = match (&call.rpc, code) {
            (Rpc::Create { disk, gib }, Code::AlreadyExists) => {
                self.facts.disks.get(disk).is_none_or(|facts| facts.gib != *gib)
            }
            (Rpc::Publish { disk, .. } | Rpc::Expand { disk, .. } | Rpc::Get { disk }, Code::NotFound) => {
                self.was_absent(disk, since)
            }
            // Azure has one code for "on another machine" and "on this one already": where somebody else has just
            // attached it here, and reads lag, nothing tells the two apart.
            (Rpc::Publish { disk, node }, Code::FailedPrecondition) => {
                self.was_elsewhere(disk, node, since) || self.disturbed(disk, since, call.replica)
            }
            (Rpc::Publish { node, .. }, Code::ResourceExhausted) => self.is_crowded(node, since),
            (Rpc::Delete { disk } | Rpc::Expand { disk, .. }, Code::FailedPrecondition) => {
                self.was_attached_anywhere(disk, since)
            }
            // A request that an incident calls wrong.
            (Rpc::Publish { .. } | Rpc::Unpublish { .. }, Code::InvalidArgument) => {
                self.last_struck >= since.saturating_sub(60_000) && self.last_struck > 0
            }
            _ => false,
        };
        if !warranted {
            let state = match &call.rpc {
                Rpc::Create { disk, .. } | Rpc::Delete { disk } | Rpc::Publish { disk, .. } => {
                    format!("{:?} in {:?}", self.facts.disks.get(disk), self.facts.listing(disk))
                }
                _ => String::new(),
            };
            self.violated("code", format!("{:?} = {code:?} {message} ({state})", call.rpc));
        }
        // A final answer to a creation while a disk is there, or is made, is a leak to come.
        if let Rpc::Create { disk, .. } = &call.rpc
            && code != Code::AlreadyExists
            && self.facts.disks.contains_key(disk)
            && !self.disturbed(disk, since, call.replica)
        {
            self.violated("code", format!("{code:?} is final, and {disk} is there: {message}"));
        }
    }

    /// Whether a node may be full: with what it has, with what leaves it, with what has been asked for.
    fn is_crowded(&self, node: &str, since: u64) -> bool {
        let machine = &self.facts.machines[node];
        let mut disks: BTreeSet<&str> = machine.listed.values().map(|element| element.disk.as_str()).collect();
        for change in self.changes.iter().rev().take_while(|change| change.at >= since) {
            if matches!(&change.became, Became::Unlisted(vm) | Became::Listed(vm, _) if vm == node) {
                disks.insert(&change.disk);
            }
        }
        for call in &self.calls {
            let recent = call.ended.as_ref().is_none_or(|(at, how)| *at >= since || *how == Ending::GivenUp);
            if let Rpc::Publish { disk, node: on } = &call.rpc
                && on == node
                && recent
            {
                disks.insert(disk);
            }
        }
        disks.len() >= self.limits[node]
    }

    /// ListVolumes: volume id to nodes, as answered; `expected` are the handles by disk.
    pub(super) fn listed(&mut self, id: usize, entries: &[(String, Vec<String>)], handles: &BTreeMap<String, String>) {
        let call = self.calls[id].clone();
        let since = self.window(&call).saturating_sub(self.list_lag_ms);
        let mut found: BTreeMap<String, (String, Vec<String>)> = BTreeMap::new();
        for (handle, nodes) in entries {
            if found.insert(super::facts::name_of(handle), (handle.clone(), nodes.clone())).is_some() {
                self.violated("listed", format!("{handle} comes twice"));
            }
        }
        let ours: Vec<String> =
            self.facts.disks.iter().filter(|(_, facts)| facts.ours).map(|(disk, _)| disk.clone()).collect();
        for disk in &ours {
            if self.changes_of(disk, since).next().is_some() {
                continue;
            }
            let on: Vec<String> = self.facts.holders(disk).into_iter().map(|(vm, _)| vm.to_owned()).collect();
            match found.get(disk) {
                None => self.violated("listed", format!("{disk} is missing")),
                Some((_, nodes)) if *nodes != on => {
                    self.violated("listed", format!("{disk} is on {on:?} and listed on {nodes:?}"));
                }
                Some((handle, _)) if handles.get(disk).is_some_and(|known| known != handle) => {
                    self.violated("listed", format!("{handle} is known as {}", handles[disk]));
                }
                Some(_) => self.coverage.count("volume listed"),
            }
        }
        let gone: Vec<String> = found
            .keys()
            .filter(|disk| is_ours(disk) && !self.facts.disks.contains_key(*disk))
            .filter(|disk| self.changes_of(disk, since).next().is_none())
            .cloned()
            .collect();
        for disk in gone {
            self.violated("listed", format!("{disk} does not exist"));
        }
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
