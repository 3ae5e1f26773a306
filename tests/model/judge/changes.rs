//! What changes in Azure: who changed it, and whether a replica may.

use std::collections::{BTreeMap, BTreeSet};

use lazuli_emulator::store::Store;

use super::super::facts::{self, Facts};
use super::{Became, Call, Change, Judge, Rpc, Who, is_ours};

impl Judge {
    pub(in super::super) fn request_leaves(&mut self, who: Who, method: &str, (path, query): (&str, &str)) {
        self.look();
        let is_read = matches!(method, "GET" | "HEAD") || path.ends_with("/listkeys");
        let is_of_blobs = path.starts_with("/vhds");
        if path.starts_with("/subscriptions/") || is_of_blobs {
            let table = if is_read { &mut self.reads } else { &mut self.writes };
            *table.entry(who).or_default() += 1;
        }
        // A blob is made where there is none.
        let makes = method == "PUT" && !query.contains("comp=");
        if is_of_blobs && !is_read && !makes {
            self.blob_is_written(who, path);
        }
    }

    pub(in super::super) fn request_is_answered(&mut self, who: Who, method: &str) {
        if matches!(method, "GET" | "HEAD") {
            self.look();
        } else {
            self.compare_now(who);
        }
    }

    /// Takes note of what ended since the last look. What begins begins with a request, after which there was a look:
    /// as long as as many operations run as then, nothing can have changed.
    pub(in super::super) fn look(&mut self) {
        if self.control.running_operations() != self.running {
            self.compare_now(Who::Azure);
        }
    }

    /// The same where snapshots and copies matter: their content comes without an operation.
    pub(in super::super) fn look_closely(&mut self) {
        if self.has_copies {
            self.compare_now(Who::Azure);
        } else {
            self.look();
        }
    }

    fn compare_now(&mut self, by: Who) {
        self.running = self.control.running_operations();
        let revision = Some(self.control.store(Store::revision));
        if std::mem::replace(&mut self.revision, revision) == revision {
            return;
        }
        let facts = Facts::read(&self.control);
        if facts == self.facts {
            return;
        }
        let old = std::mem::replace(&mut self.facts, facts);
        self.note_leftovers();
        self.note_origins();
        self.note_imports();
        self.compare(&old, by);
        self.structure();
        self.check_vhds(&old, by);
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
        let none = facts::Machine::default();
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
        self.compare_copies(old, &mut changes);
        self.compare_vhds(old, &mut changes);
        let at = self.now();
        for (disk, became) in changes {
            self.tell(&format!("  {disk} {became:?} by {by:?}"));
            let of_disk = became.machine().is_none();
            let role = if of_disk { self.provisioner } else { self.attacher };
            let late = matches!(by, Who::Replica(number) if number != role);
            if let Who::Replica(number) = by {
                self.write(old, number, &disk, &became, late);
            }
            if became == Became::Lost {
                self.lost(&disk);
            }
            if became == Became::Changed && by != Who::Tool {
                self.kept_tags(old, &disk);
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
}
