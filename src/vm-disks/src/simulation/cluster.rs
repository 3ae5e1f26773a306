//! Kubernetes: VolumeAttachments, Nodes, and the external-attacher of the leader, which repeats what fails.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use lazuli_model::{
    Lun,
    node::{ClusterNodes, KnownNodes, Machine, Node},
};

use super::{
    azure::vm_id,
    driver::{Asked, Happens, Run},
    schedule::{DiskNo, Habits, VmNo},
};
use crate::{Caller, Event};
use lazuli_storage::{
    attach::Goal,
    dangling::Dangling,
    lun::{LunReservations, Reservation},
};

/// The VolumeAttachment of a disk on a node.
pub(super) type Key = (VmNo, DiskNo);

#[derive(Debug, Default)]
pub(super) struct VolumeAttachment {
    /// The LUN in its `status.attachmentMetadata`. It is written once.
    pub(super) lun: Option<u8>,
    pub(super) attached: bool,
    pub(super) deleting: bool,
    /// Whether external-attacher has put its finalizer on it.
    tried: bool,
    /// The call that is under way.
    pub(super) call: Option<Caller>,
    /// Whether an answer is being recorded.
    recording: bool,
    failures: u32,
}

#[derive(Debug, Default)]
pub(super) struct Cluster {
    pub(super) attachments: BTreeMap<Key, VolumeAttachment>,
    pub(super) nodes: BTreeSet<VmNo>,
    /// The replica whose sidecar leads.
    pub(super) leader: Option<usize>,
    /// Counts the leaders. What one of them has not recorded yet is lost with it.
    pub(super) term: u64,
}

/// What a caller was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    Attached(u8),
    Detached,
    /// The VM does not exist.
    VmMissing,
    Failed,
}

impl Cluster {
    /// What a replica's informer shows.
    pub(super) fn reservations(&self, habits: Habits) -> LunReservations {
        let mut nodes: BTreeMap<String, Vec<Reservation>> = BTreeMap::new();
        for ((vm, disk), attachment) in &self.attachments {
            let Some(lun) = attachment.lun else { continue };
            nodes.entry(vm_id(*vm).name().to_owned()).or_default().push(Reservation {
                lun: Lun::try_from(i64::from(lun)).expect("Azure has given it"),
                volume_handle: Some(habits.disk_id(*disk).as_str().to_owned()),
                attachment: format!("csi-{vm}-{disk}"),
            });
        }
        LunReservations::Synced(nodes)
    }

    pub(super) fn known_nodes(&self) -> ClusterNodes {
        let node = |vm: &VmNo| {
            let machine = Machine::of_id(vm_id(*vm));
            (vm_id(*vm).name().to_owned(), Node { machine, healthy: true, ..Node::default() })
        };
        let mut known = KnownNodes::default();
        known.replace(self.nodes.iter().map(node));
        ClusterNodes::Known(known)
    }
}

impl Run {
    /// A pod needs a disk on a node.
    pub(super) fn need(&mut self, key: Key) {
        let (vm, disk) = key;
        let is_elsewhere = self.cluster.attachments.keys().any(|(other, of)| *of == disk && *other != vm);
        let may_be_twice = self.azure.shares(disk) > 1 || self.numbers.one_in(4);
        let is_node = self.cluster.nodes.contains(&vm);
        if !is_node || self.cluster.attachments.contains_key(&key) || (is_elsewhere && !may_be_twice) {
            return;
        }
        self.cluster.attachments.insert(key, VolumeAttachment::default());
        self.later(5, Happens::Try(key));
    }

    /// A VolumeAttachment is deleted.
    pub(super) fn let_go(&mut self, key: Key) {
        let Some(attachment) = self.cluster.attachments.get_mut(&key) else { return };
        (attachment.deleting, attachment.failures) = (true, 0);
        self.later(5, Happens::Try(key));
    }

    /// external-attacher looks at a VolumeAttachment.
    pub(super) fn try_attachment(&mut self, key: Key) {
        let Some(leader) = self.cluster.leader else { return };
        let Some(attachment) = self.cluster.attachments.get_mut(&key) else { return };
        if attachment.call.is_some() || attachment.recording {
            return;
        }
        let goal = match (attachment.deleting, attachment.attached) {
            (true, _) if !attachment.tried => {
                self.cluster.attachments.remove(&key);
                return;
            }
            (true, _) => Goal::Detached,
            (false, true) => return,
            (false, false) => Goal::Attached(None),
        };
        attachment.tried = true;
        self.call(leader, key, goal, None, true);
    }

    /// external-attacher asks again for what it has recorded.
    pub(super) fn resync(&mut self, key: Key) {
        if let Some(attachment) = self.cluster.attachments.get_mut(&key)
            && !attachment.deleting
        {
            attachment.attached = false;
            self.try_attachment(key);
        }
    }

    /// Calls a replica.
    pub(super) fn call(&mut self, replica: usize, key: Key, goal: Goal, only_if: Option<Dangling>, recorded: bool) {
        let (vm, disk) = key;
        self.next_caller += 1;
        let caller = self.next_caller;
        if let Some(attachment) = self.cluster.attachments.get_mut(&key).filter(|_| recorded) {
            attachment.call = Some(caller);
        }
        let attaches = goal != Goal::Detached;
        let judged = only_if.as_ref().map(|_| self.azure.disk(disk).changed);
        let process = self.replicas[replica].process;
        let asked = Asked { replica, process, vm, disk, attaches, at: self.now, waits_since: self.now, judged };
        self.note(|| format!("caller {caller} asks replica {replica}: {} d{disk:02} on node-{vm}", word(attaches)));
        self.callers.insert(caller, asked);
        self.laws.asked(replica, key, attaches, self.now);
        if !self.quiet {
            self.at(self.now + self.habits.patience, Happens::TimesOut(caller));
        }
        let node = vm_id(vm).name().to_owned();
        self.step(replica, vm, Event::Requested { caller, node, disk: self.habits.disk_id(disk), goal, only_if });
    }

    /// A caller gives up, or its connection ends.
    pub(super) fn give_up(&mut self, caller: Caller) {
        let Some(asked) = self.callers.remove(&caller) else { return };
        self.note(|| format!("caller {caller} gives up"));
        self.count("caller gave up");
        let key = (asked.vm, asked.disk);
        if let Some(attachment) = self.cluster.attachments.get_mut(&key).filter(|it| it.call == Some(caller)) {
            attachment.call = None;
            self.again(key);
        }
        if self.is_alive(asked.replica, asked.process) && !self.mutant.hides_abandonment() {
            self.step(asked.replica, asked.vm, Event::Abandoned(caller));
        }
    }

    /// A caller has its answer.
    pub(super) fn told(&mut self, caller: Caller, asked: &Asked, told: Told) {
        let key = (asked.vm, asked.disk);
        let term = self.cluster.term;
        // Its connection ends, and the VM is told that the caller is no longer interested.
        let abandoned = Happens::Event(asked.vm, Box::new(Event::Abandoned(caller)));
        self.later_at(asked.replica, 2, abandoned);
        let Some(attachment) = self.cluster.attachments.get_mut(&key).filter(|it| it.call == Some(caller)) else {
            return;
        };
        attachment.call = None;
        match told {
            Told::Failed => return self.again(key),
            Told::VmMissing if asked.attaches => return self.again(key),
            Told::VmMissing | Told::Attached(_) | Told::Detached => {}
        }
        attachment.recording = true;
        self.later(800, Happens::Records(key, term, told));
    }

    /// external-attacher records an answer.
    pub(super) fn record(&mut self, key: Key, term: u64, told: Told) {
        let vm_exists = self.azure.machine(key.0).exists;
        let Some(attachment) = self.cluster.attachments.get_mut(&key) else { return };
        if term != self.cluster.term {
            self.count("an answer was not recorded");
            return;
        }
        attachment.recording = false;
        match told {
            Told::Attached(lun) => {
                self.note(|| format!("VolumeAttachment d{:02} on node-{} names LUN {lun}", key.1, key.0));
                let attachment = self.cluster.attachments.get_mut(&key).expect("it is there");
                attachment.lun.get_or_insert(lun);
                (attachment.attached, attachment.failures) = (true, 0);
                if attachment.deleting {
                    self.later(5, Happens::Try(key));
                }
            }
            // The driver proves that the machine is gone before it answers.
            Told::VmMissing if vm_exists => return self.again(key),
            Told::Detached | Told::VmMissing => {
                self.note(|| format!("VolumeAttachment d{:02} on node-{} is gone", key.1, key.0));
                self.cluster.attachments.remove(&key);
            }
            Told::Failed => {}
        }
        self.cluster_changed();
    }

    /// external-attacher tries again after a pause.
    fn again(&mut self, key: Key) {
        let attachment = self.cluster.attachments.get_mut(&key).expect("it is there");
        attachment.failures += 1;
        let pause = Duration::from_secs(1 << attachment.failures.min(4));
        self.at(self.now + pause, Happens::Try(key));
    }

    /// The informers of the replicas will show the cluster as it is.
    pub(super) fn cluster_changed(&mut self) {
        for replica in 0..2 {
            self.later_at(replica, 1_500, Happens::Informed);
        }
    }

    /// The sidecar of the leader exits: its calls end, and what it has not recorded is lost.
    pub(super) fn leader_exits(&mut self, replica: usize) {
        self.cluster.leader = None;
        self.cluster.term += 1;
        self.replicas[replica].late = None;
        self.calls_end(replica);
        for attachment in self.cluster.attachments.values_mut() {
            attachment.recording = false;
        }
    }

    /// All calls of external-attacher to a replica end.
    pub(super) fn calls_end(&mut self, replica: usize) {
        let callers: Vec<Caller> =
            self.callers.iter().filter(|(_, asked)| asked.replica == replica).map(|(caller, _)| *caller).collect();
        callers.into_iter().for_each(|caller| self.give_up(caller));
    }

    /// The sidecar of a replica leads: it looks at every VolumeAttachment.
    pub(super) fn leads(&mut self, replica: usize) {
        self.note(|| format!("the sidecar of replica {replica} leads"));
        self.count("a sidecar leads");
        self.cluster.leader = Some(replica);
        let keys: Vec<Key> = self.cluster.attachments.keys().copied().collect();
        keys.into_iter().for_each(|key| self.later(500, Happens::Try(key)));
    }
}

pub(super) fn word(attaches: bool) -> &'static str {
    if attaches { "attach" } else { "detach" }
}
