//! The data disks of VMs: callers that wait, abandon and join; one failing disk; two replicas.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::future::BoxFuture;
use lazuli_engine::{
    Acceptance, Outcome, Shared, Waiting,
    object::{Cause, Event, Failure, Object, Plan, Served, Taint, Write},
};
use lazuli_journal::{Key, Recorder, Standing, Subject, Word};
use lazuli_model::fault::Fault;
use lazuli_quota::{
    permit::Priority,
    poll::{Durations, Expectation, Kind as PollKind},
    read::{Accept, By},
};
use tokio::{
    sync::oneshot,
    time::{sleep, timeout},
};

use super::callers::{Callers, Place};
use crate::{
    Clock, Lease, LeaseHolder, Workers,
    metrics::Metrics,
    object::{Adapter, Objects, Observed, Polled, Written},
};

/// How long an attach takes.
const ATTACH: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, PartialEq)]
struct DataDisks;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Goal {
    Attached,
    Detached,
}

#[derive(Debug, Clone, PartialEq, Default)]
struct Vm {
    disks: BTreeSet<String>,
    updating: bool,
}

#[derive(Debug, Clone, PartialEq, Default)]
struct Change {
    attach: BTreeSet<String>,
    detach: BTreeSet<String>,
}

impl Object for DataDisks {
    type Requester = String;
    type Want = Goal;
    type Model = Vm;
    type Inputs = ();
    type Op = Change;
    type Report = ();
    type Related = ();
    /// The call that attaches takes no ETag.
    const CONDITIONAL: bool = false;

    fn plan(wants: &BTreeMap<String, Goal>, actual: Option<&Vm>, (): &()) -> Plan<Self> {
        let is_attached = |disk: &String| actual.is_some_and(|vm| vm.disks.contains(disk));
        let of = |goal: Goal, attached: bool| {
            let due = wants.iter().filter(move |(disk, want)| **want == goal && is_attached(disk) == attached);
            due.map(|(disk, _)| disk.clone()).collect::<BTreeSet<_>>()
        };
        let op = Change { attach: of(Goal::Attached, false), detach: of(Goal::Detached, true) };
        let is_due = |disk: &String| op.attach.contains(disk) || op.detach.contains(disk);
        let served =
            wants.keys().map(|disk| (disk.clone(), if is_due(disk) { Served::Pending } else { Served::Met(()) }));
        let served = served.collect();
        let replaces = !op.detach.is_empty();
        let write = (op != Change::default()).then(|| Write {
            op: op.clone(),
            priority: Priority::Attach,
            replaces,
            is_partial: false,
            taints: Vec::new(),
        });
        Plan { write, served }
    }

    fn is_updating(vm: &Vm) -> bool {
        vm.updating
    }

    fn removes(_: &Goal) -> bool {
        false
    }
}

/// One VM in Azure.
#[derive(Debug, Default)]
struct Azure {
    vm: Vm,
    /// Disks that no VM can take.
    failing: BTreeSet<String>,
    writes: Vec<Change>,
    broken: bool,
}

type Answer = Result<(), Fault>;

/// The VMs of one replica.
#[derive(Debug)]
struct Vms {
    azure: Arc<Mutex<Azure>>,
    lease: Lease,
    clock: Clock,
    waiting: Mutex<WaitingCallers>,
    workers: std::sync::OnceLock<Workers<Objects<DataDisks, Vms>>>,
    journal: Recorder,
}

#[derive(Debug, Default)]
struct WaitingCallers {
    callers: Callers<String, Goal>,
    answers: BTreeMap<u64, oneshot::Sender<Answer>>,
    last: u64,
}

/// A caller that waits. Dropped, it has given up.
struct Call {
    vms: Arc<Vms>,
    disk: String,
    caller: u64,
    answer: oneshot::Receiver<Answer>,
}

impl Drop for Call {
    fn drop(&mut self) {
        let withdrawn = self.vms.waiting.lock().unwrap().callers.abandon(&self.disk, self.caller);
        if let Some(disk) = withdrawn {
            self.vms.send(Event::Withdrawn(disk));
        }
    }
}

impl Call {
    async fn answered(mut self) -> Answer {
        (&mut self.answer).await.unwrap_or(Err(Fault::OutcomeUnknown))
    }
}

impl Vms {
    fn send(&self, event: Event<DataDisks>) {
        self.workers.get().unwrap().send(&"vm".to_owned(), event.into());
    }

    fn request(self: &Arc<Self>, disk: &str, goal: Goal) -> Result<Call, Fault> {
        let mut waiting = self.waiting.lock().unwrap();
        waiting.last += 1;
        let (caller, disk) = (waiting.last, disk.to_owned());
        let joined = waiting.callers.join(&disk, goal, caller);
        if joined == Place::Opposed {
            return Err(Fault::Busy);
        }
        let (sender, answer) = oneshot::channel();
        waiting.answers.insert(caller, sender);
        drop(waiting);
        if joined == Place::First {
            let (from, acceptance) = (disk.clone(), Acceptance::Given);
            self.send(Event::Requested { from, generation: caller, want: goal, acceptance });
        }
        Ok(Call { vms: self.clone(), disk, caller, answer })
    }

    fn answer(&self, disk: &String, answer: &Answer) {
        let mut waiting = self.waiting.lock().unwrap();
        for caller in waiting.callers.decided(disk) {
            if let Some(sender) = waiting.answers.remove(&caller) {
                _ = sender.send(answer.clone());
            }
        }
        drop(waiting);
        self.send(Event::Withdrawn(disk.clone()));
    }
}

impl Adapter<DataDisks> for Vms {
    type Key = String;
    type Raw = ();
    type Permit = ();
    type Operation = (Duration, Option<Fault>);
    const NAME: &'static str = "vm";

    fn shared(&self) -> Shared {
        let (lease, trusted_from) = (self.lease.now(), Duration::ZERO);
        Shared { synced: true, lease, trusted_from, acceptance: Acceptance::Given, resync: None }
    }

    fn inputs(&self, _: &String) -> Arc<()> {
        Arc::new(())
    }

    fn observe(&self, _: &String, not_before: Duration, _: Accept) -> BoxFuture<'static, Observed<DataDisks, ()>> {
        let azure = self.azure.clone();
        assert!(!azure.lock().unwrap().broken, "this adapter has a bug");
        Box::pin(async move {
            sleep(Duration::from_millis(40)).await;
            Observed { sent_at: not_before, by: By::Single, result: Ok((azure.lock().unwrap().vm.clone(), ())) }
        })
    }

    fn permit(&self, _: &String, _: Priority) -> BoxFuture<'static, ()> {
        Box::pin(sleep(Duration::from_millis(100)))
    }

    fn write(
        &self,
        _: &String,
        _: Option<()>,
        op: Change,
        (): (),
    ) -> BoxFuture<'static, Written<DataDisks, Self::Operation>> {
        self.waiting.lock().unwrap().callers.sent(op.attach.iter().chain(&op.detach));
        let (azure, ends_at) = (self.azure.clone(), self.clock.now() + ATTACH);
        Box::pin(async move {
            sleep(Duration::from_millis(40)).await;
            let mut locked = azure.lock().unwrap();
            assert!(!locked.vm.updating, "two writes of one VM at once");
            locked.writes.push(op.clone());
            let fails = op.attach.iter().any(|disk| locked.failing.contains(disk));
            locked.vm.updating = true;
            drop(locked);
            // Azure goes on without its client.
            tokio::spawn(async move {
                sleep(ATTACH).await;
                let mut azure = azure.lock().unwrap();
                azure.vm.updating = false;
                if !fails {
                    azure.vm.disks.extend(op.attach);
                    azure.vm.disks.retain(|disk| !op.detach.contains(disk));
                }
            });
            let fault = fails.then_some(Fault::Unclear);
            Written::Accepted((ends_at, fault), Expectation::of(PollKind::VmAttach, &Durations::default(), None))
        })
    }

    fn poll(&self, _: &String, (ends_at, fault): Self::Operation) -> BoxFuture<'static, Polled<DataDisks, ()>> {
        let ended = self.clock.now() > ends_at + Duration::from_millis(40);
        Box::pin(async move {
            match fault {
                _ if !ended => Polled::Running(Duration::ZERO),
                None => Polled::Done,
                Some(fault) => Polled::Failed(Failure { fault, cause: Cause::Unnamed }),
            }
        })
    }

    fn tell(&self, _: &String, disk: String, _: u64, outcome: Outcome<()>) {
        match outcome {
            Outcome::Done(()) => self.answer(&disk, &Ok(())),
            Outcome::Refused(lazuli_engine::Refusal::Azure(fault)) => self.answer(&disk, &Err(fault)),
            Outcome::Waiting(Waiting::Retry(_)) => {
                for abandoned in self.waiting.lock().unwrap().callers.undecided([&disk]) {
                    self.send(Event::Withdrawn(abandoned));
                }
            }
            _ => {}
        }
    }

    fn taint(&self, _: Vec<()>, _: Taint) {}

    fn broken_off(&self, _: &String) {
        let mut waiting = self.waiting.lock().unwrap();
        // Every caller is answered: a write may be in flight.
        waiting.callers = Callers::default();
        for (_, sender) in std::mem::take(&mut waiting.answers) {
            _ = sender.send(Err(Fault::OutcomeUnknown));
        }
    }

    fn journal_key(vm: &String) -> Option<Key<'_>> {
        Some(Key::new(Subject::Vm, vm))
    }

    fn requester_key(disk: &String) -> Option<Key<'_>> {
        Some(Key::new(Subject::Disk, disk))
    }
}

/// A replica on an Azure.
fn replica(azure: &Arc<Mutex<Azure>>, clock: Clock) -> (Arc<Vms>, LeaseHolder) {
    let (holder, lease) = LeaseHolder::new(clock, Duration::from_secs(5));
    let waiting = Mutex::default();
    let (workers, journal) = (std::sync::OnceLock::new(), Recorder::new(move || clock.now()));
    let vms = Arc::new(Vms { azure: azure.clone(), lease, clock, waiting, workers, journal: journal.clone() });
    let objects = Arc::new(Objects::new(vms.clone(), clock));
    vms.workers.set(Workers::with_journal(objects, clock, Metrics::unregistered(), journal)).unwrap();
    (vms, holder)
}

fn leader(azure: &Arc<Mutex<Azure>>) -> Arc<Vms> {
    let clock = Clock::start();
    let (vms, holder) = replica(azure, clock);
    holder.renewed(Duration::from_secs(100_000));
    vms
}

fn azure() -> Arc<Mutex<Azure>> {
    Arc::default()
}

fn disks(numbers: std::ops::Range<u32>) -> Vec<String> {
    numbers.map(|number| format!("disk-{number}")).collect()
}

#[tokio::test(start_paused = true)]
async fn a_burst_of_callers_makes_one_write_and_the_task_ends_when_all_are_answered() {
    let azure = azure();
    let vms = leader(&azure);
    let calls: Vec<Call> = disks(0..8).iter().map(|disk| vms.request(disk, Goal::Attached).unwrap()).collect();
    assert_eq!(vms.workers.get().unwrap().len(), 1);
    for call in calls {
        assert_eq!(call.answered().await, Ok(()));
    }
    assert_eq!(azure.lock().unwrap().writes.len(), 1);
    // The last answers have been withdrawn when the drain begins.
    sleep(Duration::from_secs(1)).await;
    assert!(vms.workers.get().unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_gives_up_before_the_write_leaves_the_batch() {
    let azure = azure();
    let vms = leader(&azure);
    let stays = vms.request("disk-1", Goal::Attached).unwrap();
    let leaves = vms.request("disk-2", Goal::Attached).unwrap();
    let joined = vms.request("disk-1", Goal::Attached).unwrap();
    sleep(Duration::from_millis(60)).await;
    drop(leaves);
    drop(joined);
    assert_eq!(stays.answered().await, Ok(()));
    let attached = BTreeSet::from(["disk-1".to_owned()]);
    assert_eq!(azure.lock().unwrap().vm.disks, attached, "and the one that another caller waits for stays");
}

#[tokio::test(start_paused = true)]
async fn a_write_outlives_its_caller_and_the_repeated_request_joins_it() {
    let azure = azure();
    let vms = leader(&azure);
    let call = vms.request("disk-1", Goal::Attached).unwrap();
    assert!(timeout(Duration::from_secs(3), call.answered()).await.is_err());
    assert_eq!(vms.request("disk-1", Goal::Detached).err(), Some(Fault::Busy), "the write goes on");
    let again = vms.request("disk-1", Goal::Attached).unwrap();
    assert_eq!(again.answered().await, Ok(()));
    assert_eq!(azure.lock().unwrap().writes.len(), 1);
    assert_eq!(vms.request("disk-1", Goal::Detached).unwrap().answered().await, Ok(()));
    assert!(azure.lock().unwrap().vm.disks.is_empty());
}

#[tokio::test(start_paused = true)]
async fn requests_that_arrive_during_a_write_make_the_next_one() {
    let azure = azure();
    let vms = leader(&azure);
    let first = vms.request("disk-1", Goal::Attached).unwrap();
    sleep(Duration::from_secs(2)).await;
    let second: Vec<Call> = disks(2..6).iter().map(|disk| vms.request(disk, Goal::Attached).unwrap()).collect();
    assert_eq!(first.answered().await, Ok(()));
    for call in second {
        assert_eq!(call.answered().await, Ok(()));
    }
    assert_eq!(azure.lock().unwrap().writes.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn one_failing_disk_fails_alone_after_log2_n_plus_1_writes() {
    let azure = azure();
    azure.lock().unwrap().failing.insert("disk-5".to_owned());
    let vms = leader(&azure);
    let calls: Vec<Call> = disks(0..8).iter().map(|disk| vms.request(disk, Goal::Attached).unwrap()).collect();
    for (number, call) in calls.into_iter().enumerate() {
        let expected = if number == 5 { Err(Fault::Unclear) } else { Ok(()) };
        assert_eq!(call.answered().await, expected, "disk {number}");
    }
    let azure = azure.lock().unwrap();
    assert!(azure.writes.len() <= 1 + 3 + 1, "{:?}", azure.writes);
    assert_eq!(azure.vm.disks.len(), 7);
}

#[tokio::test(start_paused = true)]
async fn the_lease_moves_during_a_write_and_the_next_leader_finishes_it_without_another() {
    let azure = azure();
    let clock = Clock::start();
    let (first, first_lease) = replica(&azure, clock);
    let (second, second_lease) = replica(&azure, clock);
    first_lease.renewed(Duration::from_secs(15));
    let call = first.request("disk-1", Goal::Attached).unwrap();
    sleep(Duration::from_secs(2)).await;
    first_lease.released();
    first.workers.get().unwrap().abort().await;
    assert!(timeout(Duration::from_secs(1), call.answered()).await.is_err(), "no task answers it any more");
    second_lease.renewed(Duration::from_secs(3_600));
    assert_eq!(second.request("disk-1", Goal::Attached).unwrap().answered().await, Ok(()));
    assert_eq!(azure.lock().unwrap().writes.len(), 1);
    assert!(clock.now() >= ATTACH, "{:?}", clock.now());
}

#[tokio::test(start_paused = true)]
async fn without_enough_lease_a_write_waits_until_the_lease_is_renewed() {
    let azure = azure();
    let clock = Clock::start();
    let (vms, holder) = replica(&azure, clock);
    holder.renewed(Duration::from_secs(3));
    let call = vms.request("disk-1", Goal::Attached).unwrap();
    sleep(Duration::from_secs(2)).await;
    assert!(azure.lock().unwrap().writes.is_empty());
    holder.renewed(Duration::from_secs(60));
    vms.workers.get().unwrap().wake_all();
    assert_eq!(call.answered().await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_drain_waits_for_the_write_in_flight_and_starts_no_other() {
    let azure = azure();
    let vms = leader(&azure);
    let call = vms.request("disk-1", Goal::Attached).unwrap();
    sleep(Duration::from_secs(1)).await;
    let late = vms.request("disk-2", Goal::Attached).unwrap();
    vms.workers.get().unwrap().drain().await;
    assert!(vms.workers.get().unwrap().is_empty());
    let locked = azure.lock().unwrap();
    assert_eq!((locked.writes.len(), locked.vm.disks.len()), (1, 1));
    drop(locked);
    drop((call, late));
}

#[tokio::test(start_paused = true)]
async fn a_panic_ends_the_state_of_one_key_and_answers_its_callers() {
    let azure = azure();
    azure.lock().unwrap().broken = true;
    let vms = leader(&azure);
    let call = vms.request("disk-1", Goal::Attached).unwrap();
    let answer = call.answered().await;
    assert_eq!(answer, Err(Fault::OutcomeUnknown));
    let story = vms.journal.look(|journal| journal.story_of(&Key::new(Subject::Vm, "vm"))).unwrap().unwrap();
    let words: Vec<Word> = story.records.iter().map(|record| record.word).collect();
    assert_eq!(words, [Word::Wanted, Word::AwaitsRead, Word::Panicked]);
    assert_eq!((story.standing, story.open().len()), (Standing::Failed, 1));
    azure.lock().unwrap_or_else(std::sync::PoisonError::into_inner).broken = false;
    azure.clear_poison();
    assert_eq!(vms.request("disk-1", Goal::Attached).unwrap().answered().await, Ok(()));
}
