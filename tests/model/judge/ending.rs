//! What must hold in the end, when all is quiet: every wish has come true, and nothing else is left.

use std::collections::{BTreeMap, BTreeSet};

use super::{super::facts::AccountFacts, Became, Judge, Who, is_ours};

impl Judge {
    /// Attachments and disks without a request, whose maker has an excuse: a tool, or a replica whose write was on
    /// its way when it lost its role. An operator must remove them; all others are leaks.
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
                if let Some(recorded) = self.attachments.get(&(vm.clone(), element.disk.clone())) {
                    // The detach of a disk that its node may be using has failed: that is for a person to judge.
                    if element.leaving && machine.provisioning == "Failed" && recorded.is_some() {
                        attached.push((vm.clone(), element.disk.clone()));
                    }
                    continue;
                }
                let listed = doer(&element.disk, &|became| matches!(became, Became::Listed(on, _) if on == vm));
                match listed {
                    Some(change) if change.by == Who::Tool || change.by == Who::Azure || change.late => {
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

    /// Whether Azure is to change something by itself.
    pub(in super::super) fn goes_on(&mut self) -> bool {
        self.look_closely();
        self.facts.goes_on()
    }

    /// The disks and snapshots that the controller has made and that are there, by name. Those of a late replica are an
    /// operator's to remove.
    pub(in super::super) fn left_of_copies(&mut self) -> Vec<String> {
        self.look_closely();
        let is_late = |name: &str| {
            let made = self.changes.iter().rev().find(|change| change.disk == name && change.became == Became::Made);
            made.is_some_and(|change| change.late)
        };
        let disks = self.facts.disks.iter().filter(|(_, disk)| disk.ours).map(|(name, _)| name);
        let snapshots = self.facts.snapshots.iter().filter(|(_, snapshot)| snapshot.ours).map(|(name, _)| name);
        let is_left = |account: &AccountFacts| account.of.is_some() && !account.has_others && !self.keeps_accounts;
        let accounts = self.facts.accounts.iter().filter(|(_, account)| is_left(account));
        let accounts = accounts.map(|(name, _)| name);
        disks.chain(snapshots).chain(accounts).filter(|name| !is_late(name)).cloned().collect()
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
        self.vhds_at_rest();
        let asked = self.calls.len() as u64;
        for (who, writes) in self.writes.clone().into_iter().filter(|(who, _)| matches!(who, Who::Replica(_))) {
            // An attach may be refused, looked for, and brought anew: a few writes for each call, never a stream.
            // A VHD is made, grown and deleted in several writes each.
            let most = if self.has_vhds { 8 } else { 6 };
            if writes > 30 + most * asked {
                self.violated("economy", format!("{who:?}: {writes} writes for {asked} calls"));
            }
        }
    }
}
