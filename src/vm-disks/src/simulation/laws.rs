//! The laws. Each judges what a step wants done by what Azure was at the time, never by a plan of its own.
//!
//! | law | says |
//! |---|---|
//! | 1 | a write gives no LUN that the read it names shows occupied, and no LUN twice |
//! | 2 | a write gives no LUN that a VolumeAttachment of another disk names, and none while these are not known |
//! | 3 | a disk is detached on request alone, or where a read proves that it is not attached; by force from a stopped VM |
//! | 4 | each caller is answered once, and what it is told was true at some time between the request and the answer |
//! | 5 | a write and an answer rest on reads since the last write of this replica; an answer on one since the request |
//! | 6 | a write changes something, and a caller waits for all that it attaches and for something of what it removes |
//! | 7 | one bad disk of a batch fails alone, after log2(n) + 1 further writes at most |
//! | 8 | when no fault happens any more, each caller is answered within five minutes, and everything comes to rest |
//! | 9 | one write and two reads of a VM at most are under way, and no id and no permit is left behind |
//! | 10 | no attach begins after the OK of its detach |
//! | 11 | a list without an etag undoes no write of a replica: the read that it follows from lacks none, and shows none that runs |
//!
//! Law 10 has four exceptions, which are counted ([`Run::excuse`]). Where VMs have no etag, a stale disk may be removed that
//! another replica attaches at that moment; that is counted too. So are a list that undoes a write which came late from the
//! leader before, and one list after every three minutes in which each read showed another write at work (law 11).

use std::{collections::BTreeMap, time::Duration};

use lazuli_engine::Id;
use lazuli_model::{
    ProvisioningState,
    fault::Fault,
    op::{VmWrite, VmWriteMethod},
};
use lazuli_quota::read::By;

use super::{
    azure::{disk_no, vm_id},
    cluster::Key,
    driver::{Asked, Observed, Run, Sent, Under},
    schedule::{DiskNo, Fate, VmNo, World},
};
use crate::{Caller, Failure, Outcome};
use lazuli_storage::lun::LunReservations;

/// How many things a VM's step may do in a minute.
pub(super) const MOST_ACTIONS: u64 = 300;
/// How long a caller waits at most when no fault happens any more.
const LONGEST_WAIT: Duration = Duration::from_secs(300);
/// How old the reads may be that a detach for one attachment alone rests on, and how long they travel.
const CONDITION_AGE: Duration = Duration::from_millis(2_500);
/// How long every read has shown another write at work when its end is not waited for any longer, without the time that
/// the first read travels.
const LONGEST_FOREIGN_WRITE: Duration = Duration::from_secs(178);
/// How old a single read may be in a world where reads lag.
const READ_LAG: Duration = Duration::from_millis(3_500);

/// For how long a replica takes a detach for the same one that was asked for before.
const REPEATED_WITHIN: Duration = Duration::from_secs(400);

/// What the laws remember.
#[derive(Debug, Default)]
pub(super) struct Laws {
    pub(super) quiet_since: Option<Duration>,
    pub(super) most_actions: u64,
    /// When, and by which replica, a detach was last answered OK since which no attach was asked for.
    detached: BTreeMap<Key, (Duration, usize)>,
    /// When each replica was last asked for a detach, and whether it has answered OK since.
    detaches: BTreeMap<(usize, Key), (Duration, bool)>,
    /// The same of the detaches that were asked for before the last attach.
    former_detaches: BTreeMap<(usize, Key), (Duration, bool)>,
    /// The writes of replicas that Azure accepted without a condition, with their times, and whether they came late.
    accepted: Vec<(VmNo, Duration, bool)>,
    /// The lists without a condition that Azure has not got yet, by the process that sent them: what they say, and when they
    /// arrive.
    late: BTreeMap<(usize, u64, VmNo), (VmWrite, Duration, Duration)>,
    /// The disks of the last write.
    last_write: usize,
    /// The disks of the first write that failed, and the writes since.
    failed: Option<(usize, u32)>,
    /// Whether the bad disk was answered.
    found: bool,
}

impl Laws {
    pub(super) fn asked(&mut self, replica: usize, key: Key, attaches: bool, now: Duration) {
        if attaches {
            self.detached.remove(&key);
            for replica in 0..2 {
                let asked = self.detaches.remove(&(replica, key));
                self.former_detaches.extend(asked.map(|asked| ((replica, key), asked)));
            }
        } else {
            self.detaches.insert((replica, key), (now, false));
        }
    }

    /// Whether the detach was taken for one that was asked for before the attach, whose end the replica has not learned:
    /// another replica ended that one, and attached the disk again.
    fn was_taken_for_another(&self, replica: usize, key: Key, answered: Duration) -> bool {
        let former = self.former_detaches.get(&(replica, key));
        former.is_some_and(|(asked, ended)| !ended && answered < *asked + REPEATED_WITHIN)
    }

    /// A write was sent that arrives late.
    pub(super) fn sent_late(&mut self, of: (usize, u64, VmNo), write: &VmWrite, sent_at: Duration, arrives: Duration) {
        self.late.insert(of, (write.clone(), sent_at, arrives));
    }

    pub(super) fn write_ended(&mut self, _: VmNo, ok: bool) {
        if !ok && self.failed.is_none() {
            self.failed = Some((self.last_write, 0));
        }
    }
}

fn broken(law: &str, what: String) -> Result<(), String> {
    Err(format!("{law}: {what}"))
}

impl Run {
    /// The callers that wait at a VM of a process.
    fn waiting(&self, replica: usize, vm: VmNo) -> impl Iterator<Item = &Asked> {
        let process = self.replicas[replica].process;
        self.callers.values().filter(move |asked| (asked.replica, asked.process, asked.vm) == (replica, process, vm))
    }

    fn waits_for(&self, replica: usize, vm: VmNo, disk: DiskNo, attaches: bool) -> bool {
        self.waiting(replica, vm).any(|asked| asked.disk == disk && asked.attaches == attaches)
    }

    /// What a write removes from the model without a request of its detach.
    pub(super) fn removes(&self, replica: usize, vm: VmNo, write: &VmWrite) -> Vec<DiskNo> {
        let detach = write.detach.iter().map(disk_no);
        detach.filter(|disk| !self.waits_for(replica, vm, *disk, false)).collect()
    }

    pub(super) fn judge_write(
        &mut self,
        replica: usize,
        vm: VmNo,
        observation: Id,
        write: &VmWrite,
        method: VmWriteMethod,
    ) -> Result<(), String> {
        let side = &self.replicas[replica].sides[vm];
        let Some((_, read)) = side.kept.clone().filter(|(kept, _)| *kept == observation) else {
            return broken("law 5 (fresh)", format!("a write of node-{vm} does not name the last read"));
        };
        if side.last_write_ended.is_some_and(|ended| read.sent_at < ended) {
            let last = "an observation older than the last write";
            return broken("law 5 (fresh)", format!("a write of node-{vm} names {last}"));
        }
        if read.by == By::List && (method != VmWriteMethod::Action || write.says_nothing()) {
            return broken("law 5 (fresh)", format!("a list of disks of node-{vm} follows from a list of VMs"));
        }
        if !self.habits.etag && (method != VmWriteMethod::Action || write.says_nothing()) {
            self.judge_unconditional(replica, vm, &read)?;
        }
        self.judge_luns(replica, vm, &read, write)?;
        self.judge_detaches(replica, vm, &read, write)?;
        self.judge_wanted(replica, vm, write)?;
        if self.habits.world == World::OneBadDisk {
            self.laws.last_write = write.attach.len();
            if let Some((_, writes)) = self.laws.failed.as_mut().filter(|_| !self.laws.found) {
                *writes += 1;
            }
        }
        Ok(())
    }

    /// A list that Azure takes whatever the VM is by then.
    fn judge_unconditional(&mut self, replica: usize, vm: VmNo, read: &Observed) -> Result<(), String> {
        const LAW: &str = "law 11 (undone)";
        let side = &mut self.replicas[replica].sides[vm];
        // One write follows from each wait.
        let at_work_since = side.at_work_since.take();
        let is_waited_out = at_work_since.is_some_and(|since| self.now >= since + LONGEST_FOREIGN_WRITE);
        if is_waited_out {
            self.count("accepted: a list does not wait for the end of another write any longer");
        } else if read.machine.provisioning == ProvisioningState::InProgress {
            return broken(LAW, format!("a list of node-{vm} follows from a read that shows another write at work"));
        }
        let lacks =
            |at: &Duration| *at <= read.sent_at && self.azure.machines[vm].at(*at).version > read.machine.version;
        let mut lacking = self.laws.accepted.iter().filter(|(of, at, _)| *of == vm && lacks(at));
        if let Some((_, at, came_late)) = lacking.next_back() {
            if !came_late {
                return broken(LAW, format!("a list of node-{vm} follows from a read that lacks the write of {at:?}"));
            }
            self.count("accepted: a list undoes a late write");
        }
        let process = self.replicas[replica].process;
        let Some((write, sent_at, arrives)) = self.laws.late.get(&(replica, process, vm)) else { return Ok(()) };
        let stays = |read: &Observed, disk: &_| {
            read.machine.elements.iter().any(|element| element.disk == disk_no(disk) && !element.leaving)
        };
        let is_shown = |read: &&Observed| {
            read.sent_at >= *sent_at
                && write.attach.iter().all(|it| stays(read, &it.disk))
                && !write.detach.iter().any(|disk| stays(read, disk))
        };
        if self.now < *arrives && !self.replicas[replica].sides[vm].shown.iter().any(|read| is_shown(&read)) {
            return broken(LAW, format!("a list of node-{vm} is sent while another one is on its way"));
        }
        Ok(())
    }

    fn judge_luns(&self, replica: usize, vm: VmNo, read: &Observed, write: &VmWrite) -> Result<(), String> {
        let mut given = BTreeMap::new();
        for attachment in &write.attach {
            let (lun, disk) = (attachment.lun.get(), disk_no(&attachment.disk));
            if given.insert(lun, disk).is_some() {
                return broken("law 1 (LUN)", format!("two disks get LUN {lun} of node-{vm}"));
            }
            if let Some(element) = read.machine.elements.iter().find(|it| it.lun == lun || it.disk == disk) {
                return broken(
                    "law 1 (LUN)",
                    format!("d{disk:02} gets LUN {lun} of node-{vm}, which shows {element:?}"),
                );
            }
            match &self.replicas[replica].attachments {
                LunReservations::NoCluster => {}
                LunReservations::Cold => {
                    return broken("law 2 (cold)", format!("d{disk:02} gets a LUN while attachments are not known"));
                }
                LunReservations::Synced(nodes) => {
                    let of_node = nodes.get(vm_id(vm).name()).into_iter().flatten();
                    let own = self.habits.disk_id(disk);
                    let is_anothers = |handle: &Option<String>| handle.as_deref() != Some(own.as_str());
                    let mut named = of_node.filter(|it| it.lun.get() == lun && is_anothers(&it.volume_handle));
                    if let Some(named) = named.next() {
                        let whose = &named.attachment;
                        return broken("law 2 (named LUN)", format!("d{disk:02} gets LUN {lun}, which {whose} names"));
                    }
                }
            }
        }
        Ok(())
    }

    fn judge_detaches(&self, replica: usize, vm: VmNo, read: &Observed, write: &VmWrite) -> Result<(), String> {
        let side = &self.replicas[replica].sides[vm];
        for disk in write.detach.iter().map(disk_no) {
            let Some(element) = read.machine.elements.iter().find(|element| element.disk == disk) else {
                return broken("law 6 (no change)", format!("d{disk:02} is not on node-{vm} and is detached"));
            };
            if write.force.contains(&self.habits.disk_id(disk)) {
                self.judge_force(replica, vm, disk)?;
            }
            if self.waits_for(replica, vm, disk, false) {
                self.judge_condition(replica, vm, disk)?;
                continue;
            }
            // A detach that failed is repeated before the disk can be attached.
            if element.leaving && self.waits_for(replica, vm, disk, true) {
                let key = self.habits.disk_id(disk);
                let is_named = match &self.replicas[replica].attachments {
                    LunReservations::Synced(nodes) => nodes
                        .get(vm_id(vm).name())
                        .into_iter()
                        .flatten()
                        .any(|it| it.volume_handle.as_deref() == Some(key.as_str())),
                    LunReservations::NoCluster | LunReservations::Cold => false,
                };
                if is_named {
                    return broken("law 3 (detach)", format!("d{disk:02} is detached, which an attachment names"));
                }
                continue;
            }
            let proof = side.disks.get(&disk).filter(|shown| shown.sent_at >= read.sent_at);
            let is_proved =
                proof.is_some_and(|shown| shown.disk.as_ref().is_none_or(|disk| !disk.holders.contains_key(&vm)));
            if !is_proved {
                return broken("law 3 (detach)", format!("d{disk:02} is detached from node-{vm} without a request"));
            }
        }
        Ok(())
    }

    fn judge_force(&self, replica: usize, vm: VmNo, disk: DiskNo) -> Result<(), String> {
        let shown = self.replicas[replica].sides[vm].stopped_at;
        match shown.filter(|at| self.now < *at + Duration::from_secs(30)) {
            Some(_) if self.habits.forces => Ok(()),
            _ => broken("law 3 (force)", format!("d{disk:02} is detached by force from node-{vm}")),
        }
    }

    /// A detach that only callers with a condition wait for is of the attachment that they have judged.
    fn judge_condition(&self, replica: usize, vm: VmNo, disk: DiskNo) -> Result<(), String> {
        let of_disk = || self.waiting(replica, vm).filter(|asked| asked.disk == disk && !asked.attaches);
        if of_disk().any(|asked| asked.judged.is_none()) {
            return Ok(());
        }
        let from = self.now.saturating_sub(CONDITION_AGE);
        let holds = |asked: &Asked| {
            let mut lately = self.azure.disks[disk].within(from, self.now);
            lately.any(|state| state.holders.contains_key(&vm) && Some(state.changed) == asked.judged)
        };
        match of_disk().any(holds) || self.habits.world == World::ReadsLag {
            true => Ok(()),
            false => broken("law 3 (condition)", format!("another attachment of d{disk:02} is detached")),
        }
    }

    fn judge_wanted(&self, replica: usize, vm: VmNo, write: &VmWrite) -> Result<(), String> {
        if write.says_nothing() && write.reapply.is_empty() {
            return broken("law 6 (no change)", format!("an empty write of node-{vm}"));
        }
        let come = write.attach.iter().map(|attachment| &attachment.disk).chain(&write.reapply);
        for disk in come.map(disk_no) {
            if !self.waits_for(replica, vm, disk, true) {
                return broken("law 6 (wanted)", format!("d{disk:02} is attached to node-{vm} for nobody"));
            }
        }
        match self.waiting(replica, vm).next() {
            Some(_) => Ok(()),
            None => broken("law 6 (wanted)", format!("node-{vm} is written for nobody")),
        }
    }

    /// A write of a replica was accepted.
    pub(super) fn judge_accepted(&mut self, sent: &Sent) -> Result<(), String> {
        let vm = sent.vm;
        if !sent.is_conditional {
            let came_late = matches!(sent.fate, Some(Fate::Late(_)));
            self.laws.accepted.push((vm, self.now, came_late));
        }
        for disk in &sent.attaches {
            let key = (vm, *disk);
            let answered = self.laws.detached.get(&key).filter(|(answered, _)| *answered >= sent.sent_at).copied();
            let Some((answered, by)) = answered else { continue };
            match self.excuse(sent, key, answered, by) {
                Some(excuse) => self.count(excuse),
                None => {
                    let what = format!("the attach of d{disk:02} to node-{vm} begins after its detach was answered");
                    return broken("law 10 (hidden attach)", what);
                }
            }
        }
        for disk in &sent.removes {
            let element = self.azure.machine(vm).elements.iter().find(|element| element.disk == *disk);
            let is_held = self.azure.disk(*disk).holders.contains_key(&vm);
            if is_held && element.is_some_and(|element| element.leaving) && !sent.repeats_detach.contains(disk) {
                if sent.is_conditional {
                    return broken("law 3 (removal)", format!("d{disk:02} is attached to node-{vm} and is removed"));
                }
                self.count("accepted: removal of an attached disk without a condition");
            }
        }
        Ok(())
    }

    /// Why an attach that begins after the OK of a detach is one that is known and accepted.
    fn excuse(&self, sent: &Sent, key: Key, answered: Duration, by: usize) -> Option<&'static str> {
        let (vm, disk) = key;
        let lists = |machine: &super::azure::Machine| machine.elements.iter().any(|element| element.disk == disk);
        if self.azure.machines[vm].within(sent.sent_at, answered).any(lists) {
            // Another attach of the disk was shown, and detached.
            return Some("accepted: hidden attach after another attach");
        }
        if by != sent.replica && self.laws.was_taken_for_another(by, key, answered) {
            return Some("accepted: hidden attach, the detach was taken for an older one");
        }
        if sent.recorded.contains(&disk) {
            // Another tool had detached what the VolumeAttachment records.
            return Some("accepted: hidden attach of a recorded attachment");
        }
        if !self.habits.cluster && !self.is_alive(sent.replica, sent.process) {
            return Some("accepted: hidden attach of a process before, without a cluster");
        }
        None
    }

    pub(super) fn judge_answer(
        &mut self,
        replica: usize,
        vm: VmNo,
        caller: Caller,
        disk: DiskNo,
        outcome: &Outcome<super::azure::ArmAnswer>,
    ) -> Result<(), String> {
        let Some(asked) = self.callers.get(&caller).cloned() else {
            return broken("law 4 (once)", format!("caller {caller} is answered and does not wait"));
        };
        if (asked.replica, asked.vm, asked.disk) != (replica, vm, disk) {
            return broken("law 4 (once)", format!("caller {caller} gets the answer of another request"));
        }
        if self.quiet && self.now > asked.waits_since + LONGEST_WAIT {
            return broken("law 8 (wait)", format!("caller {caller} was answered after five minutes"));
        }
        self.judge_bad_disk(disk, outcome.is_ok())?;
        let key = (vm, disk);
        match outcome {
            Ok(Some(lun)) => self.judge_attached(&asked, lun.get()),
            Ok(None) => {
                self.judge_detached(&asked)?;
                self.laws.detached.insert(key, (self.now, replica));
                if let Some((_, ended)) = self.laws.detaches.get_mut(&(replica, key)) {
                    *ended = true;
                }
                Ok(())
            }
            Err(failure) => self.judge_failure(&asked, failure),
        }
    }

    /// The single reads of the VM that may answer a caller.
    fn evidence(&self, asked: &Asked) -> impl Iterator<Item = &Observed> {
        let side = &self.replicas[asked.replica].sides[asked.vm];
        let since = side.last_write_ended.unwrap_or_default().max(asked.at);
        side.shown.iter().filter(move |read| read.sent_at >= since)
    }

    fn judge_attached(&self, asked: &Asked, lun: u8) -> Result<(), String> {
        let (vm, disk) = (asked.vm, asked.disk);
        if !asked.attaches {
            return broken("law 4 (true)", format!("the detach of d{disk:02} is answered with a LUN"));
        }
        let shows = |read: &Observed| {
            let mut elements = read.machine.elements.iter();
            elements.any(|element| element.disk == disk && element.lun == lun && !element.leaving)
        };
        let is_true = |asked: &Asked| {
            let mut states = self.azure.disks[disk].within(asked.at, self.now);
            states.any(|state| state.holders.get(&vm) == Some(&lun))
        };
        if !is_true(asked) {
            return broken("law 4 (true)", format!("d{disk:02} was at no time at LUN {lun} of node-{vm}"));
        }
        match self.evidence(asked).any(shows) {
            true => Ok(()),
            false => broken("law 5 (evidence)", format!("no read shows d{disk:02} at LUN {lun} of node-{vm}")),
        }
    }

    fn judge_detached(&self, asked: &Asked) -> Result<(), String> {
        let (vm, disk) = (asked.vm, asked.disk);
        if asked.attaches {
            return broken("law 4 (true)", format!("the attach of d{disk:02} is answered without a LUN"));
        }
        let mut states = self.azure.disks[disk].within(asked.at, self.now);
        if !states.any(|state| !state.holders.contains_key(&vm)) {
            return broken("law 4 (true)", format!("d{disk:02} was attached to node-{vm} all the time"));
        }
        let shows = |read: &Observed| !read.machine.elements.iter().any(|element| element.disk == disk);
        match self.evidence(asked).any(shows) {
            true => Ok(()),
            false => broken("law 5 (evidence)", format!("no read shows node-{vm} without d{disk:02}")),
        }
    }

    fn judge_failure(&self, asked: &Asked, failure: &Failure<super::azure::ArmAnswer>) -> Result<(), String> {
        let (vm, disk) = (asked.vm, asked.disk);
        // A read that lags may show what another replica has changed since.
        let lag = if self.habits.world == World::ReadsLag { READ_LAG } else { Duration::ZERO };
        let from = asked.at.saturating_sub(lag);
        if matches!(failure.fault, Fault::AttachedElsewhere { .. }) {
            let shares = self.azure.shares(disk);
            let mut states = self.azure.disks[disk].within(from, self.now);
            let is_elsewhere = states.any(|it| !it.holders.contains_key(&vm) && it.holders.len() >= shares);
            if !is_elsewhere {
                return broken("law 4 (true)", format!("d{disk:02} was at no time attached elsewhere"));
            }
        }
        if super::words::vm_is_missing(failure) {
            let mut machines = self.azure.machines[vm].within(from, self.now);
            if !machines.any(|machine| !machine.exists) {
                return broken("law 4 (true)", format!("node-{vm} existed all the time"));
            }
        }
        Ok(())
    }

    fn judge_bad_disk(&mut self, disk: DiskNo, ok: bool) -> Result<(), String> {
        if self.habits.world != World::OneBadDisk || self.quiet || self.laws.found {
            return Ok(());
        }
        if self.azure.bad(disk, self.now).is_none() {
            return match ok {
                true => Ok(()),
                false => broken("law 7 (one bad disk)", format!("d{disk:02} is good and fails")),
            };
        }
        self.laws.found = true;
        let (members, writes) = self.laws.failed.unwrap_or((1, 0));
        let most = members.next_power_of_two().ilog2() + 1;
        self.counts.entry("bad disk found").and_modify(|count| *count += 1).or_insert(1);
        match writes <= most {
            true => Ok(()),
            false => broken("law 7 (one bad disk)", format!("{writes} more writes for one bad disk of {members}")),
        }
    }

    /// What is under way for a VM after a step.
    pub(super) fn judge_under_way(&self, replica: usize, vm: VmNo) -> Result<(), String> {
        let under = &self.replicas[replica].sides[vm].under;
        let writes = under.values().filter(|under| **under == Under::Write).count();
        if writes > 1 {
            return broken("law 9 (one write)", format!("{writes} writes of node-{vm} are in flight"));
        }
        // One main thing, and one read aside.
        let is_read = |under: &&Under| matches!(under, Under::VmRead | Under::DisksRead);
        let reads = under.values().filter(is_read).count();
        if under.len() > 2 || (under.len() == 2 && reads == 0) {
            return broken("law 9 (one read)", format!("node-{vm} waits for {under:?}"));
        }
        Ok(())
    }

    /// Judges the world when nothing happens any more.
    pub(super) fn at_rest(&self) -> Result<(), String> {
        if let Some((caller, asked)) = self.callers.first_key_value() {
            return broken("law 8 (wait)", format!("caller {caller} was never answered: {asked:?}"));
        }
        for (replica, of) in self.replicas.iter().enumerate() {
            for (vm, side) in of.sides.iter().enumerate() {
                if !side.under.is_empty() {
                    return broken("law 9 (ids)", format!("replica {replica}, node-{vm} waits for {:?}", side.under));
                }
                if side.state.is_some() {
                    return broken("law 8 (rest)", format!("the state of node-{vm} in replica {replica} is not idle"));
                }
            }
        }
        for ((vm, disk), attachment) in &self.cluster.attachments {
            if attachment.deleting || !attachment.attached {
                return broken("law 8 (rest)", format!("the attachment of d{disk:02} on node-{vm} is {attachment:?}"));
            }
        }
        Ok(())
    }
}
