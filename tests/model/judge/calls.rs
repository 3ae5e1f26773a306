//! What is asked and answered: whether an answer was true, and whether a refusal was warranted.

use std::collections::{BTreeMap, BTreeSet};

use tonic::Code;

use super::super::facts::name_of;
use super::{Became, Call, Change, Ending, GIVEN_UP_FOR_MS, JUST_BEFORE_MS, Judge, Rpc, Who, is_ours};

impl Judge {
    pub(in super::super) fn call_begins(&mut self, replica: u32, rpc: Rpc) -> usize {
        self.look_closely();
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

    pub(in super::super) fn call_ends(&mut self, id: usize, ending: Ending) {
        self.look_closely();
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

    pub(super) fn window(&self, call: &Call) -> u64 {
        call.started.saturating_sub(self.lag_ms + JUST_BEFORE_MS)
    }

    pub(super) fn changes_of<'a>(&'a self, disk: &'a str, since: u64) -> impl Iterator<Item = &'a Change> {
        self.changes.iter().rev().take_while(move |change| change.at >= since).filter(move |change| change.disk == disk)
    }

    /// Whether another replica or another program wrote about a disk since then, or was asked to.
    pub(super) fn disturbed(&self, disk: &str, since: u64, replica: u32) -> bool {
        let others = |who: Who| matches!(who, Who::Tool) || matches!(who, Who::Replica(number) if number != replica);
        self.changes_of(disk, since).any(|change| others(change.by))
            || self.calls.iter().any(|call| {
                let about = call.rpc.object() == Some(disk);
                // What was given up may still be on its way.
                let going = call.ended.as_ref().is_none_or(|(at, how)| *at >= since || *how == Ending::GivenUp);
                about && call.replica != replica && going
            })
    }

    /// The LUN at which a disk is published, by everybody's word.
    pub(super) fn is_published(&self, disk: &str, node: &str) -> Option<u8> {
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

    pub(super) fn was_attached_anywhere(&self, disk: &str, since: u64) -> bool {
        !self.facts.holders(disk).is_empty()
            || !self.facts.listing(disk).is_empty()
            || self.changes_of(disk, since).any(|change| change.became.machine().is_some())
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
        // What a failed attach has left in a model is no attachment, and the replica that deletes the disk cannot see it.
        let left_over = |vm: &&str| self.left_over.contains(&((*vm).to_owned(), disk.to_owned()));
        let listed = !self.facts.listing(disk).iter().all(left_over);
        let mut changes = self.changes_of(disk, 0);
        changes.find(|change| listed && matches!(change.became, Became::Listed(..))).map(|change| change.by)
    }

    pub(super) fn was_absent(&self, disk: &str, since: u64) -> bool {
        // One that is being deleted cannot be attached any more.
        self.facts.disks.get(disk).is_none_or(|facts| facts.provisioning == "Deleting")
            || self.changes_of(disk, since).any(|change| matches!(change.became, Became::Made | Became::Gone))
    }

    fn done(&mut self, id: usize, call: &Call, lun: Option<u8>) {
        let since = self.window(call);
        match call.rpc.clone() {
            Rpc::Create { disk, gib, class } => match self.facts.disks.get(&disk) {
                Some(facts)
                    if facts.ours
                        && facts.gib >= gib
                        && facts.provisioning != "Failed"
                        && facts.blob.is_some() == class.is_vhd() =>
                {
                    self.vhd_is_answered(&disk, class);
                }
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
                self.account_is_gone(call, &disk);
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
                self.has_footer(&disk, "is published");
                self.economy(id, call, &disk, &node);
            }
            Rpc::Unpublish { disk, node } => {
                let on = |vm: &str| node.as_deref().is_none_or(|node| node == vm);
                let held = self.facts.holders(&disk).iter().any(|(vm, _)| on(vm));
                let listed = self.facts.listing(&disk).iter().any(|vm| on(vm));
                let says = self.facts.disks.get(&disk).and_then(|facts| facts.managed_by.as_deref()).is_some_and(on);
                // An attach that no actor knows of may be in the model of a machine that is not asked about by name.
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
                self.vhd_has_grown(call, &disk);
            }
            Rpc::Copy { disk, gib, class, source } => self.copied(call, (&disk, &source), gib, class),
            Rpc::Modify { disk, to } => self.modified(call, &disk, to),
            Rpc::DropSnapshot { snapshot } => self.dropped(call, &snapshot),
            // Judged by what it answers.
            Rpc::TakeSnapshot { .. } => {}
            Rpc::List | Rpc::ListSnapshots | Rpc::Get { .. } => {}
        }
    }

    /// A publish of what is published already costs nothing but a look.
    fn economy(&mut self, id: usize, call: &Call, disk: &str, node: &str) {
        let alone = self.calls[id + 1..].is_empty();
        let quiet = self.control.incidents().iter().all(|listed| listed.struck > 0) && self.last_struck < call.started;
        if !(call.settled_before && alone && quiet) || self.changes_of(disk, call.started).next().is_some() {
            return;
        }
        self.coverage.count("publish of an attached disk, undisturbed");
        let who = Who::Replica(call.replica);
        let writes = self.writes.get(&who).copied().unwrap_or_default() - call.writes_before;
        let reads = self.reads.get(&who).copied().unwrap_or_default() - call.reads_before;
        // A process that has not served the disk yet reads it too: what it was made from is in no model of a machine. So does
        // each where nothing shows that the machine is as it was: it has no version, or a write of it may have failed.
        let has_changed_since = |since: u64| {
            let of_machine = |became: &Became| became.machine() == Some(node);
            self.last_struck >= since
                || self
                    .changes
                    .iter()
                    .rev()
                    .take_while(|change| change.at > since)
                    .any(|change| of_machine(&change.became))
        };
        let has_served = |earlier: &Call| {
            let is_same = matches!(&earlier.rpc, Rpc::Publish { disk: other, .. } if other == disk);
            let unchanged = matches!(&earlier.ended, Some((at, Ending::Done(_))) if !has_changed_since(*at));
            is_same && earlier.replica == call.replica && unchanged
        };
        let is_vhd = self.facts.disks.get(disk).is_some_and(|facts| facts.blob.is_some());
        // The list of accounts, the keys and the blob are read too, where they are not known.
        let of_blob = if is_vhd { 5 } else { 0 };
        let most = of_blob + if self.has_versions && self.calls[..id].iter().any(has_served) { 1 } else { 2 };
        if writes > 0 || reads > most {
            self.violated("economy", format!("a publish of {disk}, attached: {writes} writes, {reads} reads"));
        }
    }

    fn failed(&mut self, call: &Call, code: Code, message: &str) {
        if matches!(code, Code::Aborted | Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled) {
            return;
        }
        let since = self.window(call);
        let of_copies = self.is_copy_refusal_warranted(call, code, since);
        let warranted = match (&call.rpc, code) {
            _ if of_copies.is_some() => of_copies == Some(true),
            (Rpc::Create { disk, gib, .. }, Code::AlreadyExists) => {
                self.facts.disks.get(disk).is_none_or(|facts| facts.gib != *gib)
            }
            (Rpc::Publish { disk, .. } | Rpc::Expand { disk, .. } | Rpc::Get { disk }, Code::NotFound) => {
                self.was_absent(disk, since)
            }
            (Rpc::Publish { disk, .. } | Rpc::Expand { disk, .. } | Rpc::Get { disk }, Code::FailedPrecondition)
                if self.is_gone_with_account(disk, since) =>
            {
                true
            }
            // Azure has one code for "on another machine" and "on this one already": where another actor has just
            // attached it here, and reads lag, nothing tells the two apart.
            (Rpc::Publish { disk, node }, Code::FailedPrecondition) => {
                let is_of_node = self.takes(node, disk);
                // An incident calls the request wrong, and a cloud that attaches no VHDs any more says no more than that.
                let is_refused =
                    self.is_vhd(disk) && self.last_struck >= since.saturating_sub(60_000) && self.last_struck > 0;
                let is_there = self.was_elsewhere(disk, node, since) || self.disturbed(disk, since, call.replica);
                !is_of_node || is_refused || is_there
            }
            (Rpc::Publish { node, .. }, Code::ResourceExhausted) => self.is_crowded(node, since),
            (Rpc::Expand { disk, .. }, Code::FailedPrecondition) => self.was_attached_anywhere(disk, since),
            // A request that an incident calls wrong.
            (Rpc::Publish { .. } | Rpc::Unpublish { .. }, Code::InvalidArgument) => {
                self.last_struck >= since.saturating_sub(60_000) && self.last_struck > 0
            }
            _ => false,
        };
        if !warranted {
            let state = match &call.rpc {
                Rpc::TakeSnapshot { snapshot, .. } => format!("{:?}", self.facts.snapshots.get(snapshot)),
                Rpc::Create { disk, .. }
                | Rpc::Copy { disk, .. }
                | Rpc::Modify { disk, .. }
                | Rpc::Delete { disk }
                | Rpc::Publish { disk, .. } => {
                    format!("{:?} in {:?}", self.facts.disks.get(disk), self.facts.listing(disk))
                }
                _ => String::new(),
            };
            self.violated("code", format!("{:?} = {code:?} {message} ({state})", call.rpc));
        }
        // A final answer to a creation while a disk is there, or is made, is a leak to come.
        if let Rpc::TakeSnapshot { snapshot, .. } = &call.rpc {
            self.not_taken(call, snapshot, (code, message));
        }
        if let Rpc::Create { disk, .. } | Rpc::Copy { disk, .. } = &call.rpc
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
    pub(in super::super) fn listed(
        &mut self,
        id: usize,
        entries: &[(String, Vec<String>)],
        handles: &BTreeMap<String, String>,
    ) {
        let call = self.calls[id].clone();
        let since = self.window(&call).saturating_sub(self.list_lag_ms);
        let mut found: BTreeMap<String, (String, Vec<String>)> = BTreeMap::new();
        for (handle, nodes) in entries {
            if found.insert(name_of(handle), (handle.clone(), nodes.clone())).is_some() {
                self.violated("listed", format!("{handle} comes twice"));
            }
        }
        let ours: Vec<String> =
            self.facts.disks.iter().filter(|(_, facts)| facts.ours).map(|(disk, _)| disk.clone()).collect();
        for disk in &ours {
            if self.changes_of(disk, since).next().is_some() || self.list_may_lack(disk, since) {
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
}
