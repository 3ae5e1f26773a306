//! Snapshots, copies and changed attributes: what Azure must hold when one is answered, and which codes are warranted.

use std::collections::BTreeSet;

use tonic::Code;

use super::super::{
    facts::{Content, DiskFacts, Facts, SnapshotFacts, name_of},
    script::{Attributes, Class, ELSEWHERE, Place},
};
use super::{Became, Call, Judge, Rpc};

/// What CreateSnapshot has answered.
#[derive(Debug, Clone)]
pub(in super::super) struct Taken {
    pub(in super::super) handle: String,
    pub(in super::super) source_volume: String,
    pub(in super::super) bytes: i64,
    pub(in super::super) ready: bool,
}

/// The local snapshot of one in another region.
pub(super) fn local_of(snapshot: &str) -> String {
    format!("local_{snapshot}")
}

impl Judge {
    /// What there is to know later of what may be gone by then.
    pub(super) fn note_origins(&mut self) {
        let Self { facts, origins, named, .. } = self;
        let disks = facts.disks.iter().map(|(name, disk)| (name, &disk.content));
        let snapshots = facts.snapshots.iter().map(|(name, snapshot)| (name, &snapshot.content));
        for (name, Content { unique_id, from }) in disks.chain(snapshots) {
            if !origins.contains_key(unique_id) {
                origins.insert(unique_id.clone(), from.clone());
                named.entry(name.clone()).or_default().insert(unique_id.clone());
            }
        }
    }

    pub(super) fn compare_copies(&self, old: &Facts, changes: &mut Vec<(String, Became)>) {
        for (name, disk) in &self.facts.disks {
            let Some(was) = old.disks.get(name) else { continue };
            if disk.is_filled() && !was.is_filled() {
                changes.push((name.clone(), Became::Filled));
            }
            let attributes = |disk: &DiskFacts| {
                (disk.sku.clone(), disk.iops, disk.mbps, disk.tier.clone(), disk.gib, disk.tags.clone())
            };
            if attributes(disk) != attributes(was) {
                changes.push((name.clone(), Became::Changed));
            }
        }
        for (name, snapshot) in &self.facts.snapshots {
            let was = old.snapshots.get(name).filter(|was| was.content == snapshot.content);
            if was.is_none() {
                changes.push((name.clone(), Became::Made));
            }
            if snapshot.is_complete() && !was.is_some_and(SnapshotFacts::is_complete) {
                changes.push((name.clone(), Became::Filled));
            }
            if snapshot.failed && was.is_some_and(|was| !was.failed && was.provisioning == "succeeded") {
                changes.push((name.clone(), Became::Lost));
            }
        }
        let gone = old.snapshots.keys().filter(|name| !self.facts.snapshots.contains_key(*name));
        changes.extend(gone.map(|name| (name.clone(), Became::Gone)));
    }

    /// Whether content comes from what had this name, over whatever it was copied through.
    fn comes_from(&self, content: &Content, source: &str) -> bool {
        let empty = BTreeSet::new();
        let sources = self.named.get(source).unwrap_or(&empty);
        let mut from = content.from.clone();
        while let Some(id) = from {
            if sources.contains(&id) {
                return true;
            }
            from = self.origins.get(&id).cloned().flatten();
        }
        false
    }

    pub(super) fn copied(&mut self, call: &Call, (disk, source): (&str, &str), gib: i64, class: Class) {
        let right = self.facts.disks.get(disk).is_some_and(|facts| {
            facts.ours
                && facts.gib >= gib
                && facts.provisioning != "Failed"
                && facts.zone == class.zone().map(|zone| zone.to_string())
                && self.comes_from(&facts.content, source)
        });
        if !right && !self.disturbed(disk, self.window(call), call.replica) {
            let what = format!("{disk} of {gib} GiB as {class:?} from {source}: {:?}", self.facts.disks.get(disk));
            self.violated("copied", what);
        }
        self.is_imported_whole(disk);
    }

    /// What an OK to CreateSnapshot has said.
    pub(in super::super) fn taken(&mut self, id: usize, taken: &Taken) {
        let call = self.calls[id].clone();
        let Rpc::TakeSnapshot { snapshot, disk, place } = &call.rpc else { return };
        if self.disturbed(snapshot, self.window(&call), call.replica) {
            return;
        }
        let target = self.facts.snapshots.get(snapshot);
        let local = self.facts.snapshots.get(&local_of(snapshot)).filter(|_| *place == Place::Elsewhere);
        let mut wrong = Vec::new();
        if name_of(&taken.handle) != *snapshot || name_of(&taken.source_volume) != *disk {
            wrong.push("it is called otherwise".to_owned());
        }
        let Some(shown) = target.or(local) else {
            return self.violated("taken", format!("{snapshot} of {disk} is nowhere"));
        };
        if !self.comes_from(&shown.content, disk) || !shown.ours {
            wrong.push(format!("it is another one: {shown:?}"));
        }
        if taken.bytes != shown.gib << 30 {
            wrong.push(format!("it says {} bytes", taken.bytes));
        }
        if let Some(target) = target {
            let there = if *place == Place::Elsewhere { ELSEWHERE } else { "westeurope" };
            if target.location != there {
                wrong.push(format!("it is in {}", target.location));
            }
        }
        let usable = target.is_some_and(|target| match place {
            Place::Elsewhere => target.is_complete(),
            Place::Here => target.is_complete(),
            Place::Instant => {
                let open = ["available", "instantaccess", "availablewithinstantaccess"];
                !target.failed && open.contains(&target.access.as_str())
            }
        });
        if taken.ready && !usable {
            wrong.push(format!("it is not ready: {target:?}"));
        }
        if taken.ready && local.is_some() {
            wrong.push("the local snapshot is left".to_owned());
        }
        self.coverage.count(if taken.ready { "snapshot ready" } else { "snapshot not ready" });
        if !wrong.is_empty() {
            self.violated("taken", format!("{snapshot} of {disk}: {wrong:?}"));
        }
    }

    pub(super) fn dropped(&mut self, call: &Call, snapshot: &str) {
        let names = [snapshot.to_owned(), local_of(snapshot)];
        let left: Vec<&String> = names.iter().filter(|name| self.facts.snapshots.contains_key(*name)).collect();
        if !left.is_empty() && !self.disturbed(snapshot, self.window(call), call.replica) {
            self.violated("dropped", format!("{left:?} is there"));
        }
    }

    pub(super) fn modified(&mut self, call: &Call, disk: &str, to: Attributes) {
        let has = self.facts.disks.get(disk).is_some_and(|facts| match to {
            Attributes::Sku(sku) => facts.sku == sku,
            Attributes::Performance { iops, mbps } => (facts.iops, facts.mbps) == (Some(iops), Some(mbps)),
            Attributes::Tier(tier) => facts.tier.as_deref() == Some(tier),
            Attributes::Tag(team) => facts.tags.get("team").is_some_and(|has| has == team),
        });
        if !has && !self.disturbed(disk, self.window(call), call.replica) {
            self.violated("modified", format!("{disk} to {to:?}: {:?}", self.facts.disks.get(disk)));
        }
    }

    /// A write of ours has taken a tag from a disk that stays.
    pub(super) fn kept_tags(&mut self, old: &Facts, disk: &str) {
        let (Some(was), Some(is)) = (old.disks.get(disk), self.facts.disks.get(disk)) else { return };
        let lost: Vec<String> = was.tags.keys().filter(|tag| !is.tags.contains_key(*tag)).cloned().collect();
        if !lost.is_empty() && was.content.unique_id == is.content.unique_id {
            self.violated("modified", format!("{disk} loses the tags {lost:?}"));
        }
    }

    /// A snapshot of ours whose content can never come: a growth or a deletion of ours did it.
    pub(super) fn lost(&mut self, snapshot: &str) {
        let facts = self.facts.snapshots.get(snapshot).filter(|facts| facts.ours);
        if let Some(facts) = facts.cloned() {
            self.violated("lost", format!("{snapshot}: {facts:?}"));
        }
    }

    /// Whether a refusal of a request about a snapshot, a copy or a change is warranted; `None` for other requests.
    pub(super) fn is_copy_refusal_warranted(&self, call: &Call, code: Code, since: u64) -> Option<bool> {
        Some(match (&call.rpc, code) {
            (Rpc::Copy { source, .. }, Code::NotFound) => self.was_source_absent(source, since),
            (Rpc::Copy { source, .. }, Code::FailedPrecondition)
                if self.is_vhd(source) || self.is_gone_with_account(source, since) =>
            {
                self.was_attached_anywhere(source, since) || self.is_gone_with_account(source, since)
            }
            (Rpc::Copy { source, .. }, Code::FailedPrecondition) => {
                self.facts.snapshots.get(source).is_some_and(|facts| facts.failed)
            }
            (Rpc::Copy { gib, source, .. }, Code::InvalidArgument | Code::OutOfRange) => {
                let (disk, snapshot) = (self.facts.disks.get(source), self.facts.snapshots.get(source));
                let size = disk.map(|facts| facts.gib).or(snapshot.map(|facts| facts.gib));
                size.is_none_or(|size| size > *gib)
            }
            (Rpc::TakeSnapshot { disk, .. }, Code::NotFound) => self.was_absent(disk, since),
            (Rpc::DropSnapshot { snapshot }, Code::FailedPrecondition) => self.was_being_copied(snapshot, since),
            (Rpc::Delete { disk }, Code::FailedPrecondition) => {
                self.was_attached_anywhere(disk, since) || self.has_dependents(disk, since)
            }
            (Rpc::Modify { disk, .. }, Code::NotFound) => self.was_absent(disk, since),
            (Rpc::Modify { disk, to }, Code::InvalidArgument) => {
                let changed = self.changes_of(disk, since).any(|change| change.became == Became::Changed);
                changed || self.facts.disks.get(disk).is_none_or(|facts| !fits(*to, facts))
            }
            (Rpc::Modify { disk, to }, Code::FailedPrecondition) => {
                let before = self.changes_of(disk, 0).any(|change| change.became == Became::Changed);
                let now = self.facts.disks.get(disk);
                before || self.was_attached_anywhere(disk, since) || now.is_none_or(|facts| !fits(*to, facts))
            }
            (
                Rpc::Copy { .. }
                | Rpc::TakeSnapshot { .. }
                | Rpc::DropSnapshot { .. }
                | Rpc::Modify { .. }
                | Rpc::ListSnapshots,
                _,
            ) => false,
            _ => return None,
        })
    }

    /// A final answer to CreateSnapshot while one is there, or is made, is a leak to come: external-snapshotter forgets it.
    pub(super) fn not_taken(&mut self, call: &Call, snapshot: &str, (code, message): (Code, &str)) {
        let names = [snapshot.to_owned(), local_of(snapshot)];
        let there = names.iter().any(|name| self.facts.snapshots.contains_key(name));
        if there && code != Code::ResourceExhausted && !self.disturbed(snapshot, self.window(call), call.replica) {
            self.violated("code", format!("{code:?} is final, and {snapshot} is there: {message}"));
        }
    }

    fn was_source_absent(&self, source: &str, since: u64) -> bool {
        if self.facts.snapshots.contains_key(source) {
            return self.changes_of(source, since).any(|change| change.became == Became::Made);
        }
        self.was_absent(source, since)
    }

    /// Whether something was being made or filled from a snapshot, or from its local one.
    fn was_being_copied(&self, snapshot: &str, since: u64) -> bool {
        let ids = [snapshot.to_owned(), local_of(snapshot)];
        let ids: BTreeSet<&String> = ids.iter().filter_map(|name| self.named.get(name)).flatten().collect();
        let goes_on = |name: &String, content: &Content, is_over: bool| {
            let is_of = content.from.as_ref().is_some_and(|from| ids.contains(from));
            is_of && (!is_over || self.changes_of(name, since).next().is_some())
        };
        let disks = self.facts.disks.iter();
        let mut disks = disks
            .map(|(name, disk)| goes_on(name, &disk.content, disk.is_filled() && disk.provisioning == "Succeeded"));
        let snapshots = self.facts.snapshots.iter();
        let mut snapshots = snapshots
            .map(|(name, copy)| goes_on(name, &copy.content, copy.is_complete() && copy.provisioning == "succeeded"));
        disks.any(|is| is) || snapshots.any(|is| is)
    }

    fn has_dependents(&self, disk: &str, since: u64) -> bool {
        self.facts.snapshots.iter().any(|(name, snapshot)| {
            let unfinished =
                !snapshot.is_complete() || self.changes_of(name, since).any(|change| change.became == Became::Filled);
            unfinished && self.comes_from(&snapshot.content, disk)
        })
    }
}

/// Whether such a disk can have such attributes. Operations per second are bounded by the size (source: Microsoft docs,
/// disks-types): 3,000 of PremiumV2 and up to 500 per GiB, up to 300 per GiB of Ultra.
fn fits(to: Attributes, disk: &DiskFacts) -> bool {
    let gib = u64::try_from(disk.gib).unwrap_or_default();
    let iops_range = match disk.sku.as_str() {
        "PremiumV2_LRS" => Some(3_000..=(500 * gib).max(3_000)),
        "UltraSSD_LRS" => Some(100..=300 * gib),
        _ => None,
    };
    match to {
        Attributes::Sku(_) => iops_range.is_none(),
        Attributes::Performance { iops, .. } => iops_range.is_some_and(|range| range.contains(&iops)),
        Attributes::Tier(_) => disk.sku == "Premium_LRS",
        Attributes::Tag(_) => true,
    }
}
