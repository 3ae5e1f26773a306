//! Tables of single decisions. Whole courses of events are run by the tests on the emulator.

use std::collections::BTreeSet;

use lazuli_model::{
    CachingMode, DataDisk, DataDiskSource, Disk, DiskState, Lun, ProvisioningState, node::ClusterNodes,
    op::VmWriteMethod, size::SizeLimits,
};
use lazuli_quota::read::By;

use super::{judge::unnamed_disks_gone, *};
use crate::{force_detach::ForceDetach, lun::LunReservations};

fn disk(n: i64) -> ArmId {
    ArmId::disk("s", "g", &format!("d{n}")).unwrap()
}

fn vm(disks: &[i64]) -> Vm {
    Vm {
        id: ArmId::virtual_machine("s", "g", "node-0").unwrap(),
        location: "local".into(),
        size: "Standard_DS2_v2".into(),
        zone: None,
        computer_name: None,
        provisioning_state: ProvisioningState::Succeeded,
        etag: None,
        data_disks: disks
            .iter()
            .map(|n| DataDisk {
                lun: Lun::try_from(*n).unwrap(),
                source: DataDiskSource::Managed(disk(*n)),
                caching: CachingMode::None,
                to_be_detached: false,
            })
            .collect(),
    }
}

#[test]
fn a_disk_that_left_with_a_write_that_did_not_name_it_is_told() {
    let write = VmWrite {
        vm: vm(&[]).id,
        attach: Vec::new(),
        detach: vec![disk(1)],
        force: BTreeSet::new(),
        reapply: Vec::new(),
    };
    assert_eq!(unnamed_disks_gone(&vm(&[0, 1, 2]), &write, &vm(&[0, 2])), []);
    assert_eq!(unnamed_disks_gone(&vm(&[0, 1, 2]), &write, &vm(&[0])), [Lun::try_from(2).unwrap()]);
}

/// Azure's error, of which a test needs the fault alone.
#[derive(Debug, Clone, PartialEq)]
struct Refused(Fault);

impl AzureError for Refused {
    fn fault(&self) -> &Fault {
        &self.0
    }

    fn effect(&self) -> lazuli_model::fault::Effect {
        lazuli_model::fault::Effect::None
    }

    fn status(&self) -> Option<u16> {
        Some(400)
    }

    fn named_disk(&self) -> Option<ArmId> {
        None
    }
}

/// One VM, a clock, and what the step wants done.
struct Course {
    state: State<Refused>,
    memory: Memory,
    now: Duration,
    actions: Vec<Action<Refused>>,
}

impl Course {
    fn new() -> Self {
        let (state, memory) = (State::new(vm(&[]).id), Memory::new(VmWriteMethod::Action));
        Self { state, memory, now: Duration::from_secs(100), actions: Vec::new() }
    }

    fn happens(&mut self, event: Event<Refused>) {
        let (nodes, sizes) = (ClusterNodes::NoCluster, SizeLimits::default());
        let attachments = LunReservations::NoCluster;
        let env = Env { attachments: &attachments, nodes: &nodes, sizes: &sizes, force_detach: ForceDetach::Off };
        self.actions = self.state.step(&mut self.memory, &env, self.now, event);
    }

    fn requested(&mut self, caller: Caller, n: i64, goal: Goal) {
        self.happens(Event::Requested { caller, node: "node-0".into(), disk: disk(n), goal, only_if: None });
    }

    /// Lets time pass until the step decides.
    fn wakes(&mut self) {
        self.now = self.state.wake_at().expect("the step waits for time to pass");
        self.happens(Event::Woke);
    }

    fn seen(&self) -> Seen<Duration> {
        Seen { by: By::Single, sent_at: self.now }
    }

    /// The one action; the id of what it wants.
    fn id(&self) -> Id {
        match self.actions.as_slice() {
            [Action::TryPermit(id, _) | Action::ReadVm { id, .. } | Action::ReadDisks { id, .. }] => *id,
            [Action::Write { id, .. }] => *id,
            other => panic!("{other:?}"),
        }
    }

    fn shows(&mut self, disks: &[i64]) {
        let read = VmRead { vm: vm(disks), version: VmVersion::default(), seen: self.seen(), answered: None };
        let id = self.id();
        self.happens(Event::VmRead(id, Ok(Box::new(read))));
    }

    fn shows_disks(&mut self) {
        let actions = std::mem::take(&mut self.actions);
        let [Action::ReadDisks { id, singly, listed, .. }] = actions.as_slice() else { panic!("{actions:?}") };
        let unattached = |id: &ArmId| Disk { state: Some(DiskState::Unattached), ..Disk::unattached(id.name()) };
        let read = |id: &ArmId| (id.clone(), Ok(DiskSeen { disk: unattached(id), seen: self.seen() }));
        let reads = singly.iter().chain(listed).map(read).collect();
        self.happens(Event::DisksRead(*id, reads));
    }

    /// The answers by caller.
    fn answers(&self) -> Vec<(Caller, Result<Option<u8>, Fault>)> {
        let answers = self.actions.iter().filter_map(|action| match action {
            Action::Answer { caller, outcome, .. } => Some((*caller, outcome.as_ref().clone())),
            _ => None,
        });
        answers.map(|(caller, outcome)| (caller, outcome.map(|lun| lun.map(Lun::get)).map_err(|e| e.fault))).collect()
    }
}

#[test]
fn a_burst_of_requests_is_one_write_and_each_caller_is_answered_by_a_read_after_it() {
    let mut course = Course::new();
    course.requested(1, 0, Goal::Attached(None));
    course.requested(2, 1, Goal::Attached(None));
    course.requested(3, 1, Goal::Attached(None));
    assert!(course.actions.is_empty(), "the end of the burst is waited for: {:?}", course.actions);
    course.wakes();
    let id = course.id();
    course.happens(Event::Permitted(id));
    course.shows(&[]);
    course.shows_disks();
    let [Action::Write { id, write, permit: Some(_), .. }] = course.actions.as_slice() else {
        panic!("{:?}", course.actions)
    };
    assert_eq!(write.attach.len(), 2);
    let id = *id;
    course.now += Duration::from_secs(10);
    course.happens(Event::Written(id, Ok(course.now)));
    assert!(course.answers().is_empty(), "the VM is read first");
    course.shows(&[0, 1]);
    assert_eq!(course.answers(), [(1, Ok(Some(0))), (2, Ok(Some(1))), (3, Ok(Some(1)))]);
    assert!(course.state.is_idle() && course.state.wake_at().is_none());
}

#[test]
fn who_gives_up_before_the_write_leaves_and_what_was_asked_for_it_is_dropped() {
    let mut course = Course::new();
    course.requested(1, 0, Goal::Attached(None));
    course.wakes();
    let permit = course.id();
    course.happens(Event::Permitted(permit));
    let read = course.id();
    course.happens(Event::Abandoned(1));
    assert_eq!(course.actions, [Action::Drop(read), Action::ReleasePermit(permit)]);
    assert!(course.state.is_idle());
}

#[test]
fn the_opposite_of_what_is_requested_is_refused_and_both_callers_are_answered_once() {
    let mut course = Course::new();
    course.requested(1, 0, Goal::Attached(None));
    course.requested(2, 0, Goal::Detached);
    assert_eq!(course.answers(), [(2, Err(Fault::Busy))]);
    course.wakes();
    let id = course.id();
    course.happens(Event::NotPermitted(id));
    let id = course.id();
    course.happens(Event::VmRead(id, Err(Refused(Fault::Forbidden))));
    assert_eq!(course.answers(), [(1, Err(Fault::Forbidden))]);
    assert!(course.state.is_idle());
}

#[test]
fn an_answer_that_is_not_waited_for_changes_nothing_and_a_late_permit_goes_back() {
    let mut course = Course::new();
    course.requested(1, 0, Goal::Attached(None));
    course.wakes();
    let permit = course.id();
    course.happens(Event::NotPermitted(permit));
    let read = course.id();
    course.happens(Event::Written(permit, Ok(course.now)));
    assert!(course.actions.is_empty());
    course.happens(Event::Permitted(permit));
    assert_eq!(course.actions, [Action::ReleasePermit(permit)]);
    course.actions = vec![Action::ReadVm { id: read, accept: Accept::List, priority: None, keep: true }];
    course.shows(&[0]);
    assert_eq!(course.answers(), [(1, Ok(Some(0)))]);
}
