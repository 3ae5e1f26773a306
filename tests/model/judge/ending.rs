//! What must hold in the end, when all is quiet: every wish has come true, and nothing else is left.

use std::collections::{BTreeMap, BTreeSet};

use super::{Became, Change, JUST_BEFORE_MS, Judge, Rpc, Who, is_ours};

impl Judge {
    /// Attachments and disks that nobody wants, and whose doer has an excuse: a tool, or a replica whose write was on
    /// its way when it lost its role. Somebody must clear them away; anybody else's are leaks.
    pub(in super::super) fn strays(&mut self, wanted: &BTreeSet<String>) -> (Vec<(String, String)>, Vec<String>) {
        self.look();
        let (mut attached, mut disks, mut leaks) = (Vec::new(), Vec::new(), Vec::new());
        let doer = |disk: &str, is: &dyn Fn(&Became) -> bool| {
            self.changes.iter().rev().find(|change| change.disk == disk && is(&change.became))
        };
        for (vm, machine) in &self.facts.machines {
            for (lun, element) in &machine.listed {
                if !is_ours(&element.disk) {
                    // What a failed attach of a tool left in the model spoils every later write of the machine.
                    if machine.provisioning == "Failed" && machine.held.get(lun) != Some(&element.disk) {
                        attached.push((vm.clone(), element.disk.clone()));
                    }
                    continue;
                }
                // A detach that failed has to be asked for again, and whoever wants the disk attached never does.
                if element.leaving && machine.provisioning == "Failed" {
                    attached.push((vm.clone(), element.disk.clone()));
                    continue;
                }
                if self.attachments.contains_key(&(vm.clone(), element.disk.clone())) {
                    continue;
                }
                let listed = doer(&element.disk, &|became| matches!(became, Became::Listed(on, _) if on == vm));
                match listed {
                    Some(change)
                        if change.by == Who::Tool
                            || change.by == Who::Azure
                            || change.late
                            || self.unseen(change, vm) =>
                    {
                        attached.push((vm.clone(), element.disk.clone()));
                    }
                    _ => leaks.push(format!("{} stays in {vm}: {element:?}", element.disk)),
                }
            }
        }
        for (disk, facts) in self.facts.disks.iter().filter(|(disk, facts)| facts.ours && !wanted.contains(*disk)) {
            match doer(disk, &|became| *became == Became::Made) {
                Some(change) if change.late => disks.push(disk.clone()),
                _ => leaks.push(format!("{disk}: {facts:?}")),
            }
        }
        for what in leaks {
            self.violated("leak", what);
        }
        (attached, disks)
    }

    /// Whether a replica said OK to an unpublish when reads did not show the attach yet.
    fn unseen(&self, listed: &Change, vm: &str) -> bool {
        self.lag_ms > 0
            && self.calls.iter().any(|call| {
                let unpublishes = matches!(&call.rpc, Rpc::Unpublish { disk, node }
                    if *disk == listed.disk && node.as_deref().is_none_or(|node| node == vm));
                let soon = call.started >= listed.at.saturating_sub(JUST_BEFORE_MS)
                    && call.ended.as_ref().is_some_and(|(at, _)| *at <= listed.at + self.lag_ms + JUST_BEFORE_MS);
                unpublishes && soon && call.done()
            })
    }

    /// What holds at rest: `published` are the attachments that are wanted, with the LUNs that were answered last.
    pub(in super::super) fn at_rest(
        &mut self,
        volumes: &BTreeMap<String, i64>,
        published: &BTreeMap<(String, String), u8>,
    ) {
        self.look();
        let dump = self.control.dump();
        let mut wrong: Vec<String> = dump.violations.clone();
        for (disk, gib) in volumes {
            match self.facts.disks.get(disk) {
                Some(facts) if facts.gib >= *gib && facts.ours => {}
                facts => wrong.push(format!("{disk} of {gib} GiB: {facts:?}")),
            }
        }
        for ((node, disk), lun) in published {
            if self.is_published(disk, node) != Some(*lun) {
                wrong.push(format!("{disk} is not at LUN {lun} of {node}"));
            }
        }
        for (vm, machine) in &self.facts.machines {
            let listed: BTreeMap<u8, String> =
                machine.listed.iter().map(|(lun, element)| (*lun, element.disk.clone())).collect();
            if listed != machine.held {
                wrong.push(format!("{vm} lists {listed:?} and holds {:?}", machine.held));
            }
        }
        for (disk, facts) in &self.facts.disks {
            let holders: Vec<&str> = self.facts.holders(disk).into_iter().map(|(vm, _)| vm).collect();
            if facts.managed_by.as_deref() != holders.first().copied() {
                wrong.push(format!("{disk} says {:?} and is held by {holders:?}", facts.managed_by));
            }
        }
        for what in wrong {
            self.violated("leak", what);
        }
        let asked = self.calls.len() as u64;
        for (who, writes) in self.writes.clone().into_iter().filter(|(who, _)| matches!(who, Who::Replica(_))) {
            // An attach may be refused, looked for, and brought anew: a few writes for each call, never a stream.
            if writes > 30 + 6 * asked {
                self.violated("economy", format!("{who:?}: {writes} writes for {asked} calls"));
            }
        }
    }
}
