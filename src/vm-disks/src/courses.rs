//! Courses of events of one VM: the usual ones, and some that the random schedules have found
//! ([`simulation`](super::simulation)).

use std::collections::BTreeSet;

use lazuli_engine::single::AzureFailure;
use lazuli_model::{
    ArmId, CachingMode, DataDisk, DataDiskSource, DiskId, DiskState, ProvisioningState, fault::Effect,
    node::ClusterNodes, size::SizeLimits,
};
use lazuli_quota::read::By;

use super::{judge::unnamed_disks_gone, *};

fn disk(n: u8) -> DiskId {
    DiskId::from(ArmId::disk("s", "g", &format!("d{n}")).unwrap())
}

fn vm_id() -> ArmId {
    ArmId::virtual_machine("s", "g", "node-0").unwrap()
}

/// The VM with these disks, each at the LUN of its number.
fn vm(provisioning_state: ProvisioningState, disks: &[u8]) -> Vm {
    let element = |n: &u8| DataDisk {
        lun: Lun::try_from(i64::from(*n)).unwrap(),
        source: DataDiskSource::Disk(disk(*n)),
        caching: CachingMode::None,
        to_be_detached: false,
    };
    Vm {
        id: vm_id(),
        location: "local".into(),
        size: "Standard_DS2_v2".into(),
        zone: None,
        computer_name: None,
        provisioning_state,
        etag: Some("1".to_owned()),
        system_disk: lazuli_model::SystemDisk::Managed,
        data_disks: disks.iter().map(element).collect(),
    }
}

#[derive(Debug, Clone, PartialEq)]
struct Refused(Fault, Option<DiskId>);

impl AzureFailure for Refused {
    fn fault(&self) -> &Fault {
        &self.0
    }

    fn effect(&self) -> Effect {
        if self.0 == Fault::OutcomeUnknown { Effect::Possible } else { Effect::None }
    }

    fn code(&self) -> &str {
        ""
    }
}

impl AzureError for Refused {
    fn status(&self) -> Option<u16> {
        Some(if self.0 == Fault::OperationFailed { 200 } else { 400 })
    }

    fn named_disk(&self) -> Option<DiskId> {
        self.1.clone()
    }
}

/// One VM of a cluster, and a clock.
struct Course {
    state: State<Refused>,
    memory: Memory,
    now: Duration,
    attachments: LunReservations,
    provisioning: ProvisioningState,
    etag: Option<String>,
}

impl Course {
    fn new(method: VmWriteMethod) -> Self {
        Self {
            state: State::new(vm_id()),
            memory: Memory::new(method),
            now: Duration::from_secs(100),
            attachments: LunReservations::Synced(BTreeMap::new()),
            provisioning: ProvisioningState::Succeeded,
            etag: Some("1".to_owned()),
        }
    }

    /// A VM without an etag, whose list detaches by omission.
    fn without_etag() -> Self {
        Self { etag: None, ..Self::new(VmWriteMethod::WholeListByOmission) }
    }

    fn happens(&mut self, event: Event<Refused>) -> Vec<Action<Refused>> {
        let (nodes, sizes) = (ClusterNodes::NoCluster, SizeLimits::default());
        let env = Env { attachments: &self.attachments, nodes: &nodes, sizes: &sizes, force_detach: ForceDetach::Off };
        self.state.step(&mut self.memory, &env, self.now, event)
    }

    /// A request, and the end of the burst.
    fn requested(&mut self, caller: Caller, n: u8, goal: Goal) -> Vec<Action<Refused>> {
        self.happens(Event::Requested { caller, node: "node-0".into(), disk: disk(n), goal, only_if: None });
        self.looks()
    }

    /// The end of a wait, and of the burst after it.
    fn looks(&mut self) -> Vec<Action<Refused>> {
        (0..4).map(|_| self.wakes()).find(|actions| !actions.is_empty()).expect("a permit is asked for")
    }

    fn wakes(&mut self) -> Vec<Action<Refused>> {
        self.now = self.state.wake_at().expect("it waits for time to pass");
        self.happens(Event::Woke)
    }

    /// The permit comes at once.
    fn permitted(&mut self, actions: &[Action<Refused>]) -> Vec<Action<Refused>> {
        let Some(Action::TryPermit(id, _)) = actions.last() else { panic!("{actions:?}") };
        self.happens(Event::Permitted(*id))
    }

    fn shows(&mut self, actions: &[Action<Refused>], by: By, disks: &[u8]) -> Vec<Action<Refused>> {
        self.shows_as_of(self.now, actions, by, disks)
    }

    /// By a read that was sent then.
    fn shows_as_of(
        &mut self,
        sent_at: Duration,
        actions: &[Action<Refused>],
        by: By,
        disks: &[u8],
    ) -> Vec<Action<Refused>> {
        let Some(Action::ReadVm { id, .. }) = actions.last() else { panic!("{actions:?}") };
        let vm = Vm { etag: self.etag.clone(), ..vm(self.provisioning, disks) };
        let read = VmRead {
            version: VmVersion { machine: None, etag: vm.etag.clone() },
            vm,
            seen: Seen { by, sent_at },
            answered: None,
        };
        self.happens(Event::VmRead(*id, Ok(Box::new(read))))
    }

    /// Every disk that is asked for is unattached, or does not exist.
    fn shows_disks(&mut self, actions: &[Action<Refused>], exist: bool) -> Vec<Action<Refused>> {
        let Some(Action::ReadDisks { id, singly, listed, .. }) = actions.last() else { panic!("{actions:?}") };
        let seen = Seen { by: By::Single, sent_at: self.now };
        let unattached = |id: &DiskId| Disk { state: Some(DiskState::Unattached), ..Disk::unattached(id.name()) };
        let read = |id: &DiskId| match exist {
            true => (id.clone(), Ok(DiskSeen { disk: unattached(id), seen })),
            false => (id.clone(), Err(Refused(Fault::NotFound, None))),
        };
        let reads = singly.iter().chain(listed).map(read).collect();
        self.happens(Event::DisksRead(*id, reads))
    }

    /// Every disk that is asked for is attached to the VM.
    fn shows_held(&mut self, actions: &[Action<Refused>]) -> Vec<Action<Refused>> {
        let Some(Action::ReadDisks { id, singly, listed, .. }) = actions.last() else { panic!("{actions:?}") };
        let seen = Seen { by: By::Single, sent_at: self.now };
        let held = |id: &DiskId| Disk {
            state: Some(DiskState::Attached),
            managed_by: Some(vm_id()),
            ..Disk::unattached(id.name())
        };
        let reads = singly.iter().chain(listed).map(|id| (id.clone(), Ok(DiskSeen { disk: held(id), seen }))).collect();
        self.happens(Event::DisksRead(*id, reads))
    }

    /// The next round, by a single read of the VM.
    fn round(&mut self, disks: &[u8]) -> Vec<Action<Refused>> {
        let actions = self.looks();
        let actions = self.permitted(&actions);
        self.shows(&actions, By::Single, disks)
    }

    /// Every read shows these disks, and every permit comes at once.
    fn goes_on_until_written(&mut self, mut actions: Vec<Action<Refused>>, disks: &[u8]) -> Vec<Action<Refused>> {
        loop {
            assert_eq!(answers(&actions), []);
            actions = match actions.last() {
                Some(Action::Write { .. }) => return actions,
                Some(Action::ReadVm { .. }) => self.shows(&actions, By::Single, disks),
                Some(Action::TryPermit(..)) => self.permitted(&actions),
                _ => self.wakes(),
            };
        }
    }

    fn refused(&mut self, actions: &[Action<Refused>], fault: Fault) -> Vec<Action<Refused>> {
        self.refused_for(actions, fault, None)
    }

    fn refused_for(
        &mut self,
        actions: &[Action<Refused>],
        fault: Fault,
        named: Option<DiskId>,
    ) -> Vec<Action<Refused>> {
        let (id, ..) = written(actions);
        self.happens(Event::Written(id, Err(Refused(fault, named))))
    }

    /// A stale disk is about to be removed, for the attach of it.
    fn removal(&mut self) -> Vec<Action<Refused>> {
        self.provisioning = ProvisioningState::Failed;
        let actions = self.requested(1, 0, Goal::Attached(None));
        self.state.attempts.stale_disks.insert(disk(0));
        let actions = self.permitted(&actions);
        let actions = self.shows(&actions, By::Single, &[0]);
        // First for the requests that need no write, then for the removal.
        self.shows_disks(&actions, true)
    }
}

/// The write that is wanted: its id, its observation, what it says, and its permit.
fn written(actions: &[Action<Refused>]) -> (Id, Id, VmWrite, VmWriteMethod, Option<Id>) {
    match actions.last() {
        Some(Action::Write { id, observation, write, method, permit, .. }) => {
            (*id, *observation, write.clone(), *method, *permit)
        }
        _ => panic!("{actions:?}"),
    }
}

fn answers(actions: &[Action<Refused>]) -> Vec<Result<Option<Lun>, Fault>> {
    let answers = actions.iter().filter_map(|action| match action {
        Action::Answer { outcome, .. } => Some(outcome.as_ref().clone().map_err(|failure| failure.fault)),
        _ => None,
    });
    answers.collect()
}

#[test]
fn a_stale_disk_is_not_removed_once_no_caller_waits() {
    let mut course = Course::new(VmWriteMethod::Action);
    let actions = course.removal();
    course.happens(Event::Abandoned(1));
    let actions = course.shows_disks(&actions, true);
    assert!(matches!(actions.as_slice(), [Action::ReleasePermit(_)]), "{actions:?}");
    assert!(course.state.is_idle());
}

#[test]
fn a_removal_by_omission_leaves_a_disk_whose_detach_was_given_up() {
    let mut course = Course::new(VmWriteMethod::WholeListByOmission);
    course.provisioning = ProvisioningState::Failed;
    course.happens(Event::Requested {
        caller: 2,
        node: "node-0".into(),
        disk: disk(1),
        goal: Goal::Detached,
        only_if: None,
    });
    let actions = course.requested(1, 0, Goal::Attached(None));
    course.state.attempts.stale_disks.insert(disk(0));
    let actions = course.permitted(&actions);
    let actions = course.shows(&actions, By::Single, &[0, 1]);
    let actions = course.shows_disks(&actions, true);
    course.happens(Event::Abandoned(2));
    let actions = course.shows_disks(&actions, true);
    assert_eq!(written(&actions).2.detach, [disk(0)]);
}

#[test]
fn where_the_list_is_refused_the_vm_is_read_again_before_a_stale_disk_is_removed_by_the_action() {
    let mut course = Course::new(VmWriteMethod::Action);
    let actions = course.removal();
    let actions = course.shows_disks(&actions, true);
    let (_, first, _, method, _) = written(&actions);
    assert_eq!(method, VmWriteMethod::WholeList);
    let actions = course.refused(&actions, Fault::Forbidden);
    assert_eq!(actions, []);
    let actions = course.wakes();
    let actions = course.permitted(&actions);
    let actions = course.shows(&actions, By::Single, &[0]);
    let actions = course.shows_disks(&actions, true);
    let actions = course.shows_disks(&actions, true);
    let (_, second, write, method, permit) = written(&actions);
    assert_eq!((method, write.detach), (VmWriteMethod::Action, vec![disk(0)]));
    assert!(second != first && permit.is_some());
}

#[test]
fn a_deleted_disk_that_azure_refuses_to_detach_by_a_list_is_left_out_of_it() {
    let mut course = Course::new(VmWriteMethod::WholeList);
    let actions = course.requested(1, 0, Goal::Detached);
    let actions = course.permitted(&actions);
    let actions = course.shows(&actions, By::Single, &[0]);
    assert_eq!(written(&actions).3, VmWriteMethod::WholeList);
    let actions = course.refused(&actions, Fault::NotFound);
    let actions = course.shows(&actions, By::Single, &[0]);
    let actions = course.shows_disks(&actions, false);
    assert_eq!(answers(&actions), []);
    let actions = course.wakes();
    let actions = course.permitted(&actions);
    let actions = course.shows(&actions, By::Single, &[0]);
    let actions = course.shows_disks(&actions, false);
    let (_, _, write, method, _) = written(&actions);
    assert_eq!((method, write.detach), (VmWriteMethod::WholeListByOmission, vec![disk(0)]));
}

#[test]
fn an_action_that_misses_a_stale_disk_exists_and_the_disk_is_looked_at() {
    let mut course = Course::new(VmWriteMethod::Action);
    course.provisioning = ProvisioningState::Failed;
    let actions = course.requested(1, 0, Goal::Detached);
    let actions = course.permitted(&actions);
    let actions = course.shows(&actions, By::Single, &[0, 1]);
    assert_eq!(written(&actions).2.detach, [disk(0)]);
    let actions = course.refused_for(&actions, Fault::NotFound, Some(disk(1)));
    let actions = course.shows(&actions, By::Single, &[0, 1]);
    let [Action::ReadDisks { singly, .. }] = actions.as_slice() else { panic!("{actions:?}") };
    assert!(singly.contains(&disk(1)), "{singly:?}");
    course.shows_disks(&actions, false);
    assert!(course.state.attempts.stale_disks.contains(&disk(1)));
    assert_eq!(course.state.attempts.method, None);
}

/// The metadata of a blob are anybody's text, and name the resource group that a machine was in before a move.
#[test]
fn a_blob_is_stale_where_its_metadata_name_another_machine_or_it_is_not_there() {
    let blob = |name: &str| -> DiskId { format!("https://acct.blob.core.windows.net/vhds/{name}").parse().unwrap() };
    let seen = |disk: Disk<DiskId>| Ok(DiskSeen { disk, seen: Seen { sent_at: Duration::ZERO, by: By::Single } });
    let held = |disk: DiskId, group: &str, vm: &str| {
        let managed_by = Some(ArmId::virtual_machine("s", group, vm).unwrap());
        seen(Disk { state: Some(DiskState::Attached), managed_by, ..Disk::plain(disk, String::new()) })
    };
    let nameless = |disk| seen(Disk { state: Some(DiskState::Attached), ..Disk::plain(disk, String::new()) });
    let reads = vec![
        (blob("own"), held(blob("own"), "g", "node-0")),
        (blob("moved"), held(blob("moved"), "before", "NODE-0")),
        (blob("another"), held(blob("another"), "g", "node-1")),
        (blob("nameless"), nameless(blob("nameless"))),
        (blob("gone"), Err(Refused(Fault::NotFound, None))),
        (blob("silent"), Err(Refused(Fault::Unavailable, None))),
        (disk(1), held(disk(1), "before", "node-0")),
    ];
    let stale = Course::without_etag().state.stale_of(reads);
    assert_eq!(stale, BTreeSet::from([blob("another"), blob("gone"), disk(1)]));
}

#[test]
fn a_list_of_vms_leads_to_no_list_of_disks_when_the_method_changes_after_it() {
    let mut course = Course::new(VmWriteMethod::Action);
    let actions = course.requested(1, 0, Goal::Detached);
    let actions = course.permitted(&actions);
    let [Action::ReadVm { accept: Accept::List, .. }] = actions.as_slice() else { panic!("{actions:?}") };
    course.memory.method = VmWriteMethod::WholeList;
    course.state.attempts.method = None;
    let actions = course.shows(&actions, By::List, &[0]);
    assert!(matches!(actions.as_slice(), [Action::ReadVm { accept: Accept::Single, .. }]), "{actions:?}");
}

#[test]
fn a_detach_that_was_answered_says_nothing_of_the_next_one() {
    let mut course = Course::new(VmWriteMethod::Action);
    let of = |course: &mut Course| {
        let Course { memory, attachments, now, .. } = course;
        memory.late_attach(attachments, &vm_id(), &["node-0"], &disk(0), *now)
    };
    // Another replica may have attached the disk before this one became the leader.
    course.memory.request_arrived(course.now);
    assert_eq!(of(&mut course), Some(course.now + Duration::from_secs(60)));
    course.now += Duration::from_secs(62);
    let actions = course.requested(1, 0, Goal::Detached);
    let actions = course.permitted(&actions);
    let actions = course.shows(&actions, By::Single, &[]);
    assert_eq!(answers(&actions), []);
    let actions = course.looks();
    let actions = course.permitted(&actions);
    let actions = course.shows(&actions, By::Single, &[]);
    assert_eq!(answers(&actions), [Ok(None)]);
    course.now += Duration::from_secs(100);
    course.memory.request_arrived(course.now);
    assert_eq!(of(&mut course), Some(course.now + Duration::from_secs(60)));
}

#[test]
fn a_detach_is_not_answered_while_an_attach_may_be_under_way_whose_answer_was_lost() {
    let mut course = Course::new(VmWriteMethod::Action);
    course.attachments = LunReservations::NoCluster;
    let actions = course.requested(1, 0, Goal::Attached(None));
    let actions = course.permitted(&actions);
    let actions = course.shows(&actions, By::Single, &[]);
    let actions = course.shows_disks(&actions, true);
    let actions = course.refused(&actions, Fault::OutcomeUnknown);
    course.happens(Event::Abandoned(1));
    course.shows(&actions, By::Single, &[]);
    assert!(course.state.is_idle());
    course.now += Duration::from_secs(10);
    let actions = course.requested(2, 0, Goal::Detached);
    let actions = course.permitted(&actions);
    let actions = course.shows(&actions, By::Single, &[]);
    println!("{actions:?}");
    assert_eq!(answers(&actions), [Err(Fault::Busy)]);
    course.now += Duration::from_secs(60);
    let actions = course.requested(3, 0, Goal::Detached);
    let actions = course.permitted(&actions);
    course.shows(&actions, By::Single, &[]);
    let actions = course.looks();
    let actions = course.permitted(&actions);
    let actions = course.shows(&actions, By::Single, &[]);
    assert_eq!(answers(&actions), [Ok(None)]);
}

#[test]
fn a_disk_that_left_with_a_write_that_did_not_name_it_is_told() {
    let write =
        VmWrite { vm: vm_id(), attach: Vec::new(), detach: vec![disk(1)], force: BTreeSet::new(), reapply: Vec::new() };
    let of = |disks: &[u8]| vm(ProvisioningState::Succeeded, disks);
    assert_eq!(unnamed_disks_gone(&of(&[0, 1, 2]), &write, &of(&[0, 2])), []);
    assert_eq!(unnamed_disks_gone(&of(&[0, 1, 2]), &write, &of(&[0])), [Lun::try_from(2).unwrap()]);
}

/// The answers by caller.
fn answers_by_caller(actions: &[Action<Refused>]) -> Vec<(Caller, Result<Option<u8>, Fault>)> {
    let callers = actions.iter().filter_map(|action| match action {
        Action::Answer { caller, .. } => Some(*caller),
        _ => None,
    });
    let outcomes = answers(actions).into_iter().map(|outcome| outcome.map(|lun| lun.map(Lun::get)));
    callers.zip(outcomes).collect()
}

impl Course {
    /// A request, of which the burst goes on.
    fn asks(&mut self, caller: Caller, n: u8, goal: Goal) -> Vec<Action<Refused>> {
        self.happens(Event::Requested { caller, node: "node-0".into(), disk: disk(n), goal, only_if: None })
    }

    fn not_permitted(&mut self, actions: &[Action<Refused>]) -> (Id, Vec<Action<Refused>>) {
        let [Action::TryPermit(id, _)] = actions else { panic!("{actions:?}") };
        (*id, self.happens(Event::NotPermitted(*id)))
    }
}

#[test]
fn a_burst_of_requests_is_one_write_and_each_caller_is_answered_by_a_read_after_it() {
    let mut course = Course::new(VmWriteMethod::Action);
    for (caller, n) in [(1, 0), (2, 1), (3, 1)] {
        let actions = course.asks(caller, n, Goal::Attached(None));
        assert!(actions.is_empty(), "the end of the burst is waited for: {actions:?}");
    }
    let actions = course.wakes();
    let actions = course.permitted(&actions);
    let actions = course.shows(&actions, By::Single, &[]);
    let actions = course.shows_disks(&actions, true);
    let (id, _, write, _, permit) = written(&actions);
    assert!(write.attach.len() == 2 && permit.is_some(), "{actions:?}");
    course.now += Duration::from_secs(10);
    let actions = course.happens(Event::Written(id, Ok(course.now)));
    assert!(answers(&actions).is_empty(), "the VM is read first");
    let actions = course.shows(&actions, By::Single, &[0, 1]);
    assert_eq!(answers_by_caller(&actions), [(1, Ok(Some(0))), (2, Ok(Some(1))), (3, Ok(Some(1)))]);
    assert!(course.state.is_idle() && course.state.wake_at().is_none());
}

#[test]
fn who_gives_up_before_the_write_leaves_and_what_was_asked_for_it_is_dropped() {
    let mut course = Course::new(VmWriteMethod::Action);
    let actions = course.requested(1, 0, Goal::Attached(None));
    let [Action::TryPermit(permit, _)] = actions[..] else { panic!("{actions:?}") };
    let actions = course.permitted(&actions);
    let [Action::ReadVm { id: read, .. }] = actions[..] else { panic!("{actions:?}") };
    let actions = course.happens(Event::Abandoned(1));
    assert_eq!(actions, [Action::Drop(read), Action::ReleasePermit(permit)]);
    assert!(course.state.is_idle());
}

#[test]
fn the_opposite_of_what_is_requested_is_refused_and_both_callers_are_answered_once() {
    let mut course = Course::new(VmWriteMethod::Action);
    course.asks(1, 0, Goal::Attached(None));
    let actions = course.asks(2, 0, Goal::Detached);
    assert_eq!(answers_by_caller(&actions), [(2, Err(Fault::Busy))]);
    let actions = course.wakes();
    let (_, actions) = course.not_permitted(&actions);
    let [Action::ReadVm { id, .. }] = actions[..] else { panic!("{actions:?}") };
    let actions = course.happens(Event::VmRead(id, Err(Refused(Fault::Forbidden, None))));
    assert_eq!(answers_by_caller(&actions), [(1, Err(Fault::Forbidden))]);
    assert!(course.state.is_idle());
}

#[test]
fn an_answer_that_is_not_waited_for_changes_nothing_and_a_late_permit_goes_back() {
    let mut course = Course::new(VmWriteMethod::Action);
    let actions = course.requested(1, 0, Goal::Attached(None));
    let (permit, reads) = course.not_permitted(&actions);
    assert!(course.happens(Event::Written(permit, Ok(course.now))).is_empty());
    assert_eq!(course.happens(Event::Permitted(permit)), [Action::ReleasePermit(permit)]);
    let actions = course.shows(&reads, By::Single, &[0]);
    assert_eq!(answers_by_caller(&actions), [(1, Ok(Some(0)))]);
}

#[test]
fn a_list_without_an_etag_waits_until_a_read_shows_what_the_leader_before_wrote() {
    let mut course = Course::without_etag();
    let actions = course.requested(1, 0, Goal::Detached);
    let first = course.now;
    let actions = course.permitted(&actions);
    let actions = course.shows(&actions, By::Single, &[0, 1]);
    assert!(matches!(actions.as_slice(), [Action::ReleasePermit(_)]), "{actions:?}");
    let actions = course.round(&[0]);
    assert!(course.now >= first + Duration::from_secs(3), "{:?}", course.now);
    assert_eq!(written(&actions).2.detach, [disk(0)]);
}

#[test]
fn a_list_without_an_etag_does_not_follow_from_a_read_since_which_another_replica_may_have_led() {
    let second = Duration::from_secs(1);
    for (etag, stopped_for, is_read_again) in [(None, 16, true), (None, 14, false), (Some("1"), 16, false)] {
        let mut course = Course { etag: etag.map(str::to_owned), ..Course::without_etag() };
        course.memory.request_arrived(Duration::from_secs(90));
        let actions = course.requested(1, 0, Goal::Detached);
        let actions = course.permitted(&actions);
        let sent_at = course.now;
        course.now += stopped_for * second;
        let actions = course.shows_as_of(sent_at, &actions, By::Single, &[0, 1]);
        if !is_read_again {
            assert_eq!(written(&actions).2.detach, [disk(0)]);
            continue;
        }
        assert!(matches!(actions.as_slice(), [Action::ReadVm { accept: Accept::Single, .. }]), "{actions:?}");
        // Meanwhile the caller has gone, because its process does not lead any more.
        course.happens(Event::Abandoned(1));
        let actions = course.shows(&actions, By::Single, &[0, 1]);
        assert!(matches!(actions.as_slice(), [Action::ReleasePermit(_)]), "{actions:?}");
    }
}

#[test]
fn a_list_without_an_etag_follows_from_the_read_after_one_that_is_too_old() {
    let mut course = Course::without_etag();
    course.memory.request_arrived(Duration::from_secs(90));
    let actions = course.requested(1, 0, Goal::Detached);
    let actions = course.permitted(&actions);
    let sent_at = course.now;
    course.now += Duration::from_secs(16);
    let actions = course.shows_as_of(sent_at, &actions, By::Single, &[0]);
    let Some(Action::ReadVm { id: again, .. }) = actions.last() else { panic!("{actions:?}") };
    let again = *again;
    let actions = course.shows(&actions, By::Single, &[0, 1]);
    let (_, observation, write, ..) = written(&actions);
    assert_eq!((observation, write.detach), (again, vec![disk(0)]));
}

#[test]
fn a_list_without_an_etag_waits_for_the_end_of_a_write_that_runs() {
    let mut course = Course::without_etag();
    course.memory.request_arrived(Duration::from_secs(90));
    course.provisioning = ProvisioningState::InProgress;
    let actions = course.requested(1, 0, Goal::Detached);
    let actions = course.permitted(&actions);
    let actions = course.shows(&actions, By::Single, &[0, 1]);
    let [Action::ReleasePermit(_), Action::ReadVm { .. }] = actions.as_slice() else { panic!("{actions:?}") };
    course.provisioning = ProvisioningState::Succeeded;
    course.shows(&actions, By::Single, &[0]);
    let actions = course.round(&[0]);
    assert_eq!(written(&actions).2.detach, [disk(0)]);
}

#[test]
fn a_list_without_an_etag_is_written_once_where_the_end_of_a_write_that_runs_does_not_come() {
    let mut course = Course::without_etag();
    course.memory.request_arrived(Duration::from_secs(90));
    course.provisioning = ProvisioningState::InProgress;
    let mut actions = course.requested(1, 0, Goal::Detached);
    for _ in 0..2 {
        let began = course.now;
        actions = course.goes_on_until_written(actions, &[0, 1]);
        let waited = course.now - began;
        assert!(waited >= Duration::from_secs(180), "{waited:?}");
        assert_eq!(written(&actions).2.detach, [disk(0)]);
        actions = course.refused(&actions, Fault::Conflict);
    }
}

/// external-attacher gives a call up after two minutes.
#[test]
fn a_state_that_does_not_end_is_waited_out_by_calls_that_are_given_up() {
    let (call, pause) = (Duration::from_secs(120), Duration::from_secs(2));
    let mut course = Course::without_etag();
    course.memory.request_arrived(Duration::from_secs(90));
    course.provisioning = ProvisioningState::InProgress;
    let began = course.now;
    for caller in 1.. {
        assert!(caller < 4, "no call has written");
        let given_up = course.now + call;
        let mut actions = course.requested(caller, 0, Goal::Detached);
        while course.now < given_up && !matches!(actions.last(), Some(Action::Write { .. })) {
            actions = match actions.last() {
                Some(Action::ReadVm { .. }) => course.shows(&actions, By::Single, &[0, 1]),
                Some(Action::TryPermit(..)) => course.permitted(&actions),
                _ => course.wakes(),
            };
        }
        if let Some(Action::Write { .. }) = actions.last() {
            assert_eq!(written(&actions).2.detach, [disk(0)]);
            assert!(course.now - began >= Duration::from_secs(180), "{:?}", course.now - began);
            break;
        }
        course.happens(Event::Abandoned(caller));
        if let Some(Action::ReadVm { .. }) = actions.last() {
            course.shows(&actions, By::Single, &[0, 1]);
        }
        while course.state.wake_at().is_some() {
            actions = course.wakes();
            if let Some(Action::ReadVm { .. }) = actions.last() {
                course.shows(&actions, By::Single, &[0, 1]);
            }
        }
        course.now += pause;
    }
}

#[test]
fn the_end_of_a_write_is_waited_for_anew_when_the_vm_has_been_at_rest() {
    let at_work = vm(ProvisioningState::InProgress, &[]);
    let mut memory = Memory::new(VmWriteMethod::WholeListByOmission);
    let seconds = Duration::from_secs;
    for at in [0, 60, 120, 180] {
        memory.vm_seen(&at_work, seconds(at));
    }
    assert_eq!(memory.at_work_for(&at_work.id, seconds(180)), seconds(180));
    assert_eq!(memory.at_work_for(&at_work.id, seconds(241)), seconds(0), "another write may run by then");
    memory.vm_seen(&vm(ProvisioningState::Failed, &[]), seconds(181));
    memory.vm_seen(&at_work, seconds(182));
    assert_eq!(memory.at_work_for(&at_work.id, seconds(182)), seconds(0));
}

#[test]
fn a_list_without_an_etag_waits_for_a_write_whose_answer_was_lost_until_a_read_shows_it() {
    for is_shown in [false, true] {
        let mut course = Course::without_etag();
        course.memory.request_arrived(Duration::from_secs(90));
        let actions = course.requested(1, 0, Goal::Detached);
        let actions = course.permitted(&actions);
        let actions = course.shows(&actions, By::Single, &[0, 1]);
        let sent_at = course.now;
        let actions = course.refused(&actions, Fault::OutcomeUnknown);
        course.happens(Event::Abandoned(1));
        course.shows(&actions, By::Single, &[0, 1]);
        assert!(course.state.is_idle());
        let actions = course.requested(2, 1, Goal::Detached);
        let actions = course.permitted(&actions);
        let listed: &[u8] = if is_shown { &[1] } else { &[0, 1] };
        let mut actions = course.shows(&actions, By::Single, listed);
        while !matches!(actions.last(), Some(Action::Write { .. })) {
            actions = course.round(listed);
        }
        let waited = course.now - sent_at;
        assert_eq!(waited >= Duration::from_secs(60), !is_shown, "{waited:?}");
    }
}

#[test]
fn where_the_model_hides_it_a_disk_whose_detach_failed_is_detached_before_it_counts_as_attached() {
    let mut course = Course::without_etag();
    course.memory.request_arrived(Duration::from_secs(90));
    let actions = course.requested(1, 0, Goal::Detached);
    let actions = course.permitted(&actions);
    let actions = course.shows(&actions, By::Single, &[0]);
    course.provisioning = ProvisioningState::Failed;
    let actions = course.refused(&actions, Fault::OperationFailed);
    course.happens(Event::Abandoned(1));
    course.shows(&actions, By::Single, &[0]);
    assert!(course.state.is_idle(), "{:?}", course.state);
    course.now += Duration::from_secs(5);
    let actions = course.requested(2, 0, Goal::Attached(None));
    let actions = course.permitted(&actions);
    let actions = course.shows(&actions, By::Single, &[0]);
    let actions = course.shows_held(&actions);
    assert_eq!(answers(&actions), []);
    assert_eq!(written(&actions).2.detach, [disk(0)]);
}
