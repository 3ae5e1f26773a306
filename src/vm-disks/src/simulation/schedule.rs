//! What a seed decides before a run: the size of the world, the habits of its Azure, and a list of incidents with their
//! times. The list can be shortened.

use std::time::Duration;

use lazuli_model::{
    ArmId, BlobUri, DiskId,
    op::VmWriteMethod,
    seeded::{self, Numbers},
};

/// A VM, by its number. Its node has the same number.
pub(super) type VmNo = usize;
/// A disk, by its number.
pub(super) type DiskNo = usize;

/// What becomes of one write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// It never reaches Azure, and no answer comes.
    LostRequest,
    /// Azure takes it, and the answer is lost.
    LostAnswer,
    /// It reaches Azure so many seconds after it was sent, when the client has given up.
    Late(u64),
    /// A 409.
    Conflict,
    /// A 412.
    Precondition,
    /// A 429, with so many seconds of Retry-After.
    Throttled(Option<u64>),
    /// A 403 for the identity.
    Forbidden,
    /// A 403 for something that a disk refers to.
    LinkedForbidden,
    /// A 404 that means something else.
    Malformed,
    /// A 405.
    Unsupported,
    /// A management lock.
    Locked,
    /// A 503; nothing was done.
    Unavailable,
    /// A code that says too little.
    Unclear,
    /// Azure accepts it, and it fails before it has done anything.
    Fails,
    /// Azure accepts it, and it fails half way.
    FailsPartly,
    /// Azure reports its end some seconds before a read of the VM shows it.
    AnswersEarly,
    /// It takes so many seconds.
    Slow(u64),
}

const FATES: [Fate; 22] = [
    Fate::LostRequest,
    Fate::LostAnswer,
    Fate::LostAnswer,
    Fate::Late(8),
    Fate::Late(40),
    Fate::Conflict,
    Fate::Precondition,
    Fate::Throttled(None),
    Fate::Throttled(Some(3)),
    Fate::Throttled(Some(45)),
    Fate::Forbidden,
    Fate::LinkedForbidden,
    Fate::Malformed,
    Fate::Unsupported,
    Fate::Locked,
    Fate::Unavailable,
    Fate::Unclear,
    Fate::Fails,
    Fate::FailsPartly,
    Fate::FailsPartly,
    Fate::AnswersEarly,
    Fate::Slow(75),
];

/// How a read fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadFault {
    Throttled,
    Unavailable,
    Forbidden,
    Malformed,
}

/// How a disk is bad.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bad {
    /// Azure refuses every write that attaches it.
    Refused,
    /// Azure accepts such a write, and it fails.
    FailsLate,
    /// Azure finds it in another zone.
    OtherZone,
}

/// Whether a machine runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Power {
    Running,
    Stopped,
    Deallocated,
}

/// What becomes of the last writes of a leader that loses its lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tail {
    /// They meet what writes meet at any time.
    Prompt,
    /// They reach Azure so many seconds later, and the client never learns what became of them.
    Late(u64),
}

/// One thing that happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Incident {
    /// A pod needs a disk on a node: a VolumeAttachment is made.
    Attach(VmNo, DiskNo),
    /// A pod has ended: its VolumeAttachment is deleted.
    Detach(VmNo, DiskNo),
    /// external-attacher asks again for an attachment that it has recorded.
    Resync(VmNo, DiskNo),
    /// A caller without a VolumeAttachment asks for an attach, and does not repeat it.
    ExtraAttach(VmNo, DiskNo),
    /// The same of a detach.
    ExtraDetach(VmNo, DiskNo),
    /// The detach of a disk that no VolumeAttachment names, for its present attachment alone.
    Unused(DiskNo),
    /// The caller of a disk on a VM gives up.
    GiveUp(VmNo, DiskNo),
    /// The next write meets this.
    Write(Fate),
    /// The next read meets this.
    Read(ReadFault),
    /// So many of the next permits are not there at once.
    NoPermit(u64),
    /// The next wait for a permit fails.
    PermitFails,
    /// Another tool attaches a disk.
    ForeignAttach(VmNo, DiskNo),
    /// The same, and its write fails.
    ForeignFailedAttach(VmNo, DiskNo),
    /// Another tool detaches a disk.
    ForeignDetach(VmNo, DiskNo),
    /// Another tool changes something else of a VM.
    ForeignTouch(VmNo),
    /// Another tool's operation on a VM runs for so many seconds.
    ForeignOperation(VmNo, u64),
    /// Another tool deletes a disk that is attached nowhere.
    DeleteDisk(DiskNo),
    /// For so many seconds a disk is bad.
    BadDisk(DiskNo, Bad, u64),
    /// For so many seconds the host of a VM lets no disk go.
    StuckHost(VmNo, u64),
    /// A machine is stopped, deallocated or started.
    Power(VmNo, Power),
    /// A VM is deleted, and its Node with it.
    DeleteVm(VmNo),
    /// A Node is deleted.
    DeleteNode(VmNo),
    /// The sidecar of the leader loses its lease.
    LeaderMoves(Tail),
    /// The process of a replica ends and starts again.
    Restart(usize),
}

impl Incident {
    /// For how long another tool is at work, or a disk is bad.
    pub(super) fn lasts(self) -> Duration {
        match self {
            Self::ForeignOperation(_, seconds) | Self::BadDisk(_, _, seconds) => Duration::from_secs(seconds),
            _ => Duration::ZERO,
        }
    }

    /// Its kind, to be counted.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Attach(..) => "user: attach",
            Self::Detach(..) => "user: detach",
            Self::Resync(..) => "caller: asks again",
            Self::ExtraAttach(..) => "caller: extra attach",
            Self::ExtraDetach(..) => "caller: extra detach",
            Self::Unused(_) => "caller: detach of an unused disk",
            Self::GiveUp(..) => "caller: gives up",
            Self::Write(_) => "fault: write",
            Self::Read(_) => "fault: read",
            Self::NoPermit(_) => "fault: no permit at once",
            Self::PermitFails => "fault: no permit",
            Self::ForeignAttach(..) => "foreign: attach",
            Self::ForeignFailedAttach(..) => "foreign: attach that fails",
            Self::ForeignDetach(..) => "foreign: detach",
            Self::ForeignTouch(_) => "foreign: other change",
            Self::ForeignOperation(..) => "foreign: operation",
            Self::DeleteDisk(_) => "foreign: deletes a disk",
            Self::BadDisk(..) => "fault: bad disk",
            Self::StuckHost(..) => "fault: stuck host",
            Self::Power(..) => "user: power",
            Self::DeleteVm(_) => "user: deletes a VM",
            Self::DeleteNode(_) => "user: deletes a Node",
            Self::LeaderMoves(Tail::Prompt) => "leader moves",
            Self::LeaderMoves(Tail::Late(_)) => "leader moves, late tail",
            Self::Restart(_) => "process restarts",
        }
    }
}

/// Which world it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum World {
    /// Every fault may happen.
    Mixed,
    /// One disk of a batch is bad, and nothing else happens.
    OneBadDisk,
    /// Reads may not show yet what the other replica has written. No other tool writes.
    ReadsLag,
}

/// How Azure and the cluster behave in this world.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Habits {
    pub(super) world: World,
    /// How data disks are written at first.
    pub(super) method: VmWriteMethod,
    /// Whether VMs have an etag.
    pub(super) etag: bool,
    /// Whether the action exists, and the identity may use it.
    pub(super) action: Allowed,
    /// Whether the identity may write VMs as a whole.
    pub(super) list: Allowed,
    /// Whether a disk that a list leaves out stays.
    pub(super) left_out_stays: bool,
    /// Whether a failed attach leaves an element in the VM's model.
    pub(super) failed_attach_stays: bool,
    /// Whether Azure names the disk that it refuses.
    pub(super) names_disk: bool,
    /// Whether a newer write ends a running one; else it is refused.
    pub(super) preempts: bool,
    /// Whether a detach of what is not attached, and an attach of what is, are refused.
    pub(super) refuses_repetitions: bool,
    /// Whether a list that names a deleted disk is refused.
    pub(super) refuses_deleted: bool,
    /// Whether disks say to which VM they are attached.
    pub(super) disks_name_vms: bool,
    /// Whether disks may be detached by force.
    pub(super) forces: bool,
    /// Whether there is a cluster to ask.
    pub(super) cluster: bool,
    /// Whether the disks are page blobs: a VM has disks of one kind.
    pub(super) blobs: bool,
    /// How long a caller waits for an answer.
    pub(super) patience: Duration,
}

/// Whether a way to write works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Allowed {
    Yes,
    Forbidden,
    Unknown,
}

impl Habits {
    /// The id of a disk.
    pub(super) fn disk_id(&self, disk: DiskNo) -> DiskId {
        let name = format!("d{disk:02}");
        match self.blobs {
            true => BlobUri::of("acct", "core.windows.net", "vhds", &name).expect("this is a name").into(),
            false => ArmId::disk("s", "g", &name).expect("this is a name").into(),
        }
    }

    fn new(numbers: &mut Numbers) -> Self {
        let world = match numbers.below(12) {
            0 | 1 => World::OneBadDisk,
            2 | 3 => World::ReadsLag,
            _ => World::Mixed,
        };
        let method = match numbers.below(8) {
            0 => VmWriteMethod::WholeListByOmission,
            1 | 2 => VmWriteMethod::WholeList,
            _ => VmWriteMethod::Action,
        };
        let is_old = method == VmWriteMethod::WholeListByOmission;
        let allowed = |numbers: &mut Numbers, unknown: bool| match numbers.below(8) {
            0 => Allowed::Forbidden,
            1 if unknown => Allowed::Unknown,
            _ => Allowed::Yes,
        };
        let action = if world == World::OneBadDisk { Allowed::Yes } else { allowed(numbers, true) };
        let list = match action {
            Allowed::Yes if method == VmWriteMethod::Action && world != World::OneBadDisk => allowed(numbers, false),
            _ => Allowed::Yes,
        };
        let left_out_stays = !is_old && numbers.one_in(3);
        let failed_attach_stays = world != World::OneBadDisk && numbers.one_in(2);
        Self {
            world,
            method,
            etag: !is_old && !numbers.one_in(4),
            action,
            list,
            left_out_stays,
            failed_attach_stays,
            names_disk: numbers.one_in(3),
            preempts: world != World::OneBadDisk && numbers.one_in(5),
            refuses_repetitions: numbers.one_in(2),
            // Else nothing removes a deleted disk from a model.
            refuses_deleted: !left_out_stays && numbers.one_in(2),
            disks_name_vms: !numbers.one_in(4),
            forces: numbers.one_in(2),
            cluster: !numbers.one_in(12),
            blobs: false,
            patience: Duration::from_secs(match world {
                World::OneBadDisk => 600,
                _ => [15, 60, 120][numbers.below(3) as usize],
            }),
        }
    }
}

/// A world and what happens in it.
#[derive(Debug, Clone)]
pub(super) struct Schedule {
    pub(super) seed: u64,
    pub(super) habits: Habits,
    pub(super) vms: usize,
    /// How many VMs may have each disk.
    pub(super) shares: Vec<u32>,
    /// How many data disks a VM takes.
    pub(super) limit: u8,
    pub(super) incidents: Vec<(Duration, Incident)>,
}

impl seeded::Schedule for Schedule {
    type Incident = (Duration, Incident);

    fn new(seed: u64) -> Self {
        let mut numbers = Numbers::new(seed);
        let habits = Habits::new(&mut numbers);
        let crowd = numbers.one_in(10) || habits.world == World::OneBadDisk && numbers.one_in(2);
        let vms = if crowd || habits.world == World::OneBadDisk { 1 } else { 1 + numbers.below(3) as usize };
        let disks = if crowd { 11 + numbers.below(10) } else { 1 + numbers.below(10) } as usize;
        let has_shared = habits.world != World::OneBadDisk && numbers.one_in(8);
        let shares = (0..disks).map(|_| if has_shared && numbers.one_in(3) { 2 } else { 1 }).collect();
        let limit = if numbers.one_in(6) && !crowd { 2 + numbers.below(4) as u8 } else { 32 };
        let limit = if habits.world == World::OneBadDisk { 32 } else { limit };
        // Where disks name no VM, nothing shows that an element is stale whose disk another VM has.
        let disks_name_vms = vms > 1 || habits.disks_name_vms;
        // Blobs are written as lists, which the identity may send then; a cloud that has the action has etags too.
        let takes_blobs = habits.list == Allowed::Yes && (habits.etag || habits.method != VmWriteMethod::Action);
        let blobs = seed % 4 == 3 && takes_blobs;
        let habits = Habits { disks_name_vms, blobs, ..habits };
        let mut schedule = Self { seed, habits, vms, shares, limit, incidents: Vec::new() };
        match habits.world {
            World::OneBadDisk => schedule.one_bad_disk(&mut numbers),
            World::Mixed | World::ReadsLag => schedule.mixed(&mut numbers),
        }
        schedule
    }

    /// A batch of which one disk is bad.
    fn incidents(&self) -> &[Self::Incident] {
        &self.incidents
    }

    fn with(&self, incidents: &[Self::Incident]) -> Self {
        Self { incidents: incidents.to_vec(), ..self.clone() }
    }

    fn described(&self) -> String {
        let Self { habits, vms, shares, limit, .. } = self;
        let mut incidents = self.incidents.clone();
        incidents.sort_by_key(|(at, _)| *at);
        let incidents = seeded::table(&incidents);
        format!("{habits:?}, {vms} VMs, disks shared by {shares:?}, {limit} per VM\n{incidents}")
    }
}

impl Schedule {
    fn one_bad_disk(&mut self, numbers: &mut Numbers) {
        let disks = self.shares.len();
        let kind = if numbers.one_in(2) { Bad::Refused } else { Bad::FailsLate };
        let bad = numbers.below(disks as u64) as usize;
        self.incidents.push((Duration::ZERO, Incident::BadDisk(bad, kind, 400)));
        self.incidents.extend((0..disks).map(|disk| (Duration::from_secs(1), Incident::Attach(0, disk))));
    }

    fn mixed(&mut self, numbers: &mut Numbers) {
        let mut at = numbers.ms(3_000);
        let count = 14 + numbers.below(40) as usize;
        // Some processes have run for a while when the story begins.
        if numbers.one_in(2) {
            self.burst(numbers, at);
            at += Duration::from_secs(20) + numbers.ms(40_000);
        }
        while self.incidents.len() < count {
            at += match numbers.below(10) {
                0..3 => Duration::ZERO,
                3..6 => numbers.ms(500),
                6..8 => numbers.ms(4_000),
                8 => numbers.ms(20_000),
                _ => numbers.ms(60_000),
            };
            self.next(numbers, &mut at);
        }
    }

    fn any(&self, numbers: &mut Numbers) -> (VmNo, DiskNo) {
        (numbers.below(self.vms as u64) as usize, numbers.below(self.shares.len() as u64) as usize)
    }

    /// Many disks are needed on one node, or leave it, at about the same time.
    fn burst(&mut self, numbers: &mut Numbers, at: Duration) {
        let (vm, _) = self.any(numbers);
        let leaves = numbers.one_in(3);
        for disk in 0..self.shares.len() {
            if !numbers.one_in(3) {
                let incident = if leaves { Incident::Detach(vm, disk) } else { Incident::Attach(vm, disk) };
                self.incidents.push((at + numbers.ms(60), incident));
            }
        }
    }

    fn next(&mut self, numbers: &mut Numbers, at: &mut Duration) {
        let (vm, disk) = self.any(numbers);
        let incident = match numbers.below(100) {
            0..18 => Incident::Attach(vm, disk),
            18..32 => Incident::Detach(vm, disk),
            32..37 => return self.burst(numbers, *at),
            37..39 => Incident::Resync(vm, disk),
            39..41 => Incident::ExtraAttach(vm, disk),
            41 => Incident::ExtraDetach(vm, disk),
            42..44 => Incident::Unused(disk),
            44..47 => Incident::GiveUp(vm, disk),
            47..63 => {
                let fate = FATES[numbers.below(FATES.len() as u64) as usize];
                // A write of this VM should follow.
                let request = if numbers.one_in(3) { Incident::Detach(vm, disk) } else { Incident::Attach(vm, disk) };
                self.incidents.push((*at, Incident::Write(fate)));
                if numbers.one_in(4) {
                    self.incidents.push((*at, Incident::Write(fate)));
                }
                request
            }
            63..66 => Incident::Read(
                [ReadFault::Throttled, ReadFault::Unavailable, ReadFault::Forbidden, ReadFault::Malformed]
                    [numbers.below(4) as usize],
            ),
            66..68 => Incident::NoPermit(1 + numbers.below(3)),
            68 => Incident::PermitFails,
            69..76 => self.foreign(numbers, vm, disk),
            76..80 => {
                let bad = [Bad::Refused, Bad::FailsLate, Bad::OtherZone][numbers.below(3) as usize];
                let seconds = 5 + numbers.below(90);
                self.incidents.push((*at, Incident::BadDisk(disk, bad, seconds)));
                Incident::Attach(vm, disk)
            }
            80..82 => {
                self.incidents.push((*at, Incident::StuckHost(vm, 20 + numbers.below(90))));
                if numbers.one_in(2) && self.habits.world == World::Mixed {
                    let power = if numbers.one_in(2) { Power::Stopped } else { Power::Deallocated };
                    self.incidents.push((*at + numbers.ms(20_000), Incident::Power(vm, power)));
                }
                Incident::Detach(vm, disk)
            }
            82..86 if self.habits.world == World::ReadsLag => self.foreign(numbers, vm, disk),
            82..84 => {
                Incident::Power(vm, [Power::Running, Power::Stopped, Power::Deallocated][numbers.below(3) as usize])
            }
            84 => Incident::DeleteVm(vm),
            85 => Incident::DeleteNode(vm),
            86..90 => Incident::LeaderMoves(Tail::Prompt),
            90..94 => {
                // An attach that is under way when the lease moves, and of which the next leader sees nothing yet.
                self.incidents.push((*at, Incident::Attach(vm, disk)));
                *at += numbers.ms(300);
                self.incidents.push((*at, Incident::LeaderMoves(Tail::Late(10 + numbers.below(40)))));
                *at += numbers.ms(20_000);
                Incident::Detach(vm, disk)
            }
            94..96 => Incident::Restart(numbers.below(2) as usize),
            _ => {
                // A pod ends before its disk is attached.
                self.incidents.push((*at, Incident::Attach(vm, disk)));
                *at += numbers.ms(12_000);
                self.incidents.push((*at, Incident::GiveUp(vm, disk)));
                Incident::Detach(vm, disk)
            }
        };
        self.incidents.push((*at, incident));
    }

    fn foreign(&self, numbers: &mut Numbers, vm: VmNo, disk: DiskNo) -> Incident {
        // Where reads lag, they hide no other tool's writes.
        if self.habits.world == World::ReadsLag {
            return Incident::ForeignTouch(vm);
        }
        match numbers.below(10) {
            0..2 => Incident::ForeignAttach(vm, disk),
            2..4 => Incident::ForeignDetach(vm, disk),
            4 | 5 => Incident::ForeignFailedAttach(vm, disk),
            6 => Incident::ForeignTouch(vm),
            7 => Incident::ForeignOperation(vm, 1 + numbers.below(40)),
            8 if numbers.one_in(3) => Incident::ForeignOperation(vm, 190),
            _ => Incident::DeleteDisk(disk),
        }
    }
}
