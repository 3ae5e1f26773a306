//! What is sent and what is answered is judged by what is true.

use std::time::Duration;

use lazuli_model::{ArmId, node::ClusterNodes};

use super::{
    NATURAL,
    azure::number_of,
    world::{Asked, MACHINES, NODES, Truth, World, Write},
};
use crate::{attach::Goal, publish::Done};

impl World {
    /// What was true at the instants since then.
    fn since(&self, since: Duration) -> impl Iterator<Item = &Truth> {
        let before = self.history.iter().rev().find(|truth| truth.at < since);
        before.into_iter().chain(self.history.iter().filter(move |truth| truth.at >= since))
    }

    /// Laws 5 and 6, when a worker is asked.
    pub(super) fn judge_work(&mut self, asked: &mut Asked, vm: &ArmId, goal: Goal, only_if: bool) {
        let names: Vec<String> = self.view.names_of(vm).into_iter().map(str::to_owned).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        match (goal, asked.node) {
            (Goal::Detached, Some(node)) if !only_if => {
                let is_named = names.contains(&NODES[node]);
                let uses = |name: &&&str| {
                    let other = NODES.iter().position(|known| known == *name);
                    other.is_some_and(|other| other != node && self.attachments[other] == Some(true))
                };
                if !is_named && let Some(other) = names.iter().find(uses) {
                    self.breaks(format!("law 5: a detach for {} from the machine of {other}", NODES[node]));
                }
                if number_of(vm).is_some_and(|vm| vm != NATURAL[node]) {
                    self.count("detached from another holder");
                }
                if names.len() > 1 {
                    self.count("unpublish of a shared machine");
                }
            }
            (Goal::Attached(_), Some(node)) => {
                if let Some(vm) = number_of(vm) {
                    asked.attached.insert(vm);
                }
                let was_node = self.since(asked.since).any(|truth| truth.nodes & 1 << node != 0);
                let is_stale = asked.was_silent || self.is_silent;
                if !was_node && !is_stale {
                    self.breaks(format!("law 6: an attach for {}, which is no Node", NODES[node]));
                }
                // The VM that only looks like node 1.
                let looks = *vm == MACHINES[4] && NATURAL[node] == 1;
                if looks && self.api[node].is_some_and(|named| named.is_some()) && !is_stale && names.is_empty() {
                    self.breaks("law 6: an attach to a VM that only has the name of a Node");
                }
            }
            _ => {}
        }
    }

    /// Law 2, when a disk leaves a machine.
    pub(super) fn judge_detach(&mut self, write: &Write) {
        if write.only_if.is_none() {
            return;
        }
        if write.for_deletion && self.azure.disk.is_some_and(|disk| disk.holds[write.vm] && !disk.is_ours) {
            self.breaks("law 2: a detach for a deletion of what a person attached");
        }
        let Some(node) = self.azure.machines[write.vm].runs else { return };
        let is_its_machine = match self.api[node] {
            Some(Some(named)) => named == write.vm,
            // Only its computer name says so, once its VolumeAttachment is deleted by hand and another Node claims the machine.
            Some(None) => NATURAL[node] == write.vm && self.attachments[node].is_some(),
            None => false,
        };
        if self.uses[node] && is_its_machine {
            self.breaks(format!("law 2: a detach as dangling from {}, where a pod uses the disk", NODES[node]));
        }
    }

    /// Law 8, when an attach takes place.
    pub(super) fn judge_late(&mut self, write: &Write) {
        let Some(node) = write.node.filter(|node| self.azure.machines[write.vm].runs == Some(*node)) else { return };
        // A Node that had come to be elsewhere, and may be deleted or be back by now: the attach to its former machine is not
        // suspected.
        let named = [self.named_last[node], self.unpublished_from[node]];
        let is_elsewhere = named.into_iter().flatten().any(|named| named != write.vm);
        let is_known = self.is_known(node, write.vm, self.process.saw[node], false) && !is_elsewhere;
        if self.unpublished[node].is_some_and(|at| write.sent_at < at) && is_known {
            self.breaks(format!("law 8: an attach for {} takes place after its unpublish", NODES[node]));
        }
        // A detach from all nodes looks at what this process has under way, and suspects no lost attach.
        let is_under_way = write.by == self.process.number && !write.is_lost;
        if is_under_way && self.unpublished_all.is_some_and(|at| write.sent_at < at) {
            self.breaks("law 8: an attach takes place after the unpublish from all nodes");
        }
    }

    /// Whether the process, which saw the node name these machines, could know that a machine that runs as the node is its.
    fn is_known(&self, node: usize, vm: usize, saw: [bool; 5], node_was_known: bool) -> bool {
        let is_there = node_was_known || self.view.has_node(NODES[node]) || self.view == ClusterNodes::Cold;
        let has_its_name = NATURAL[node] == vm && node != 1;
        let saw_another = saw.contains(&true) || self.process.saw[node].contains(&true);
        saw[vm] || !saw_another && (has_its_name || !is_there)
    }

    /// A request is answered OK.
    pub(super) fn answered(&mut self, asked: &Asked, done: &Done) {
        let truths: Vec<Truth> = self.since(asked.since).copied().collect();
        match (done, asked.node) {
            (Done::Published { .. }, Some(node)) => {
                self.count("published");
                if !truths.iter().any(|truth| asked.attached.iter().any(|vm| truth.holds[*vm])) {
                    self.breaks(format!("law 7: the disk was never on a machine of {}", NODES[node]));
                }
                if self.attachments[node].is_some() {
                    (self.attachments[node], self.uses[node]) = (Some(true), true);
                }
            }
            (Done::Unpublished, Some(node)) => {
                self.count("unpublished");
                self.judge_unpublish(asked, node, &truths);
                self.attachments[node] = None;
                self.unpublished[node] = Some(asked.since);
                self.unpublished_from[node] = self.named_last[node];
            }
            (Done::Unpublished, None) => {
                self.unpublished_all = Some(asked.since);
                if let Some(vm) = (0..5).find(|vm| truths.iter().all(|truth| truth.holds[*vm])) {
                    self.breaks(format!("law 1: {} still holds the disk, which left every machine", MACHINES[vm]));
                }
            }
            (Done::Deleted, _) => {
                self.count("deleted");
                if truths.iter().all(|truth| truth.disk) {
                    self.breaks("law 7: the disk was there all the time");
                }
            }
            (Done::Published { .. }, None) => self.breaks("a publish without a node"),
        }
        self.changed();
    }

    /// Law 1.
    fn judge_unpublish(&mut self, asked: &Asked, node: usize, truths: &[Truth]) {
        for vm in 0..5 {
            if self.azure.machines[vm].runs != Some(node) || !self.is_known(node, vm, asked.saw, asked.node_was_known) {
                continue;
            }
            let all_the_time = truths.iter().all(|truth| truth.holds[vm]);
            // Another Node says that it is this machine, and the process cannot tell that it lies.
            let is_others = truths.iter().any(|truth| truth.named[vm] != 0 && truth.named[vm] & 1 << node == 0);
            // It has the name of another Node, which names no machine.
            let looks_like = |other: usize| {
                other != node && NATURAL[other] == vm && self.view.has_node_without_machine(NODES[other])
            };
            if all_the_time && !is_others && !(0..4).any(looks_like) {
                self.breaks(format!(
                    "law 1: {} still holds the disk, and {} is unpublished",
                    MACHINES[vm], NODES[node]
                ));
            }
        }
    }
}
