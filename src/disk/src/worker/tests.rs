use lazuli_azure::{
    arm::{Arm, Retry},
    auth::{Credential, ManagedIdentity, Tokens},
    compute::{ApiVersions, Compute},
    metrics::Metrics,
    transport::{Routes, Tls, Transport},
};
use lazuli_model::{CachingMode, DataDisk, DataDiskSource, Lun, ProvisioningState, node::ClusterNodes, op::VmWrite};

use super::{outcome::unnamed_disks_gone, queue::Opposed, *};
use crate::{Request, ResultingDisk, in_flight::InFlight};

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

/// Workers without an Azure: no test here sends a request to it.
fn workers() -> VmWorkers {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let authority = url::Url::parse("https://login.example").unwrap();
    let credential = Credential::ManagedIdentity(ManagedIdentity::SystemAssigned);
    let transport = Transport::new(Routes::none(), &Tls::default()).unwrap();
    let tokens = Tokens::new(transport.clone(), credential, "audience", 1);
    let metrics = Metrics::unregistered();
    let arm = Arm::new(authority, transport, tokens, metrics, Retry::default(), 1);
    let client = Client::new(Compute::new(arm, ApiVersions::public()));
    let reservations = ClusterSnapshot::new(watch::channel(LunReservations::NoCluster).1, |_| true);
    let nodes = Nodes::new("s", "g", watch::channel(ClusterNodes::NoCluster).1);
    let sizes = watch::channel(SizeLimits::default()).1;
    let policy = Policy { force_detach: ForceDetach::Off, events: lossy::Sender::nowhere() };
    VmWorkers::new(client, nodes, reservations, sizes, VmWriteMethod::Action, policy)
}

#[test]
fn a_request_that_contradicts_another_names_disk_node_both_operations_and_when_to_retry() {
    let message = |goal, earlier, sent| opposed_message(&disk(1), "node-0", goal, Opposed { goal: earlier, sent });
    let (attached, detached) = (Goal::Attached(None), Goal::Detached);
    for (goal, earlier, sent, expected) in [
        (
            attached,
            detached,
            true,
            "attached to node node-0 while it is being detached from it; retry when the detach has finished",
        ),
        (
            attached,
            detached,
            false,
            "attached to node node-0 while its detach from it is requested; retry when the detach has finished",
        ),
        (
            detached,
            attached,
            true,
            "detached from node node-0 while it is being attached to it; retry when the attach has finished",
        ),
        (
            Goal::Attached(Some(CachingMode::ReadOnly)),
            attached,
            false,
            "attached to node node-0 with ReadOnly caching while an attach with default caching is under way; \
             retry when that attach has finished",
        ),
    ] {
        assert_eq!(message(goal, earlier, sent), format!("{} cannot be {expected}", disk(1)));
    }
}

#[tokio::test]
async fn a_read_answers_only_the_callers_that_came_before_it_was_sent() {
    let in_flight: InFlight<Request, ResultingDisk> = InFlight::default();
    let (mut queue, goal) = (Queue::default(), Goal::Detached);
    let began = Instant::now();
    let [early, sent_at, late] = [1, 2, 3].map(|seconds| began + Duration::from_secs(seconds));
    let [mut first, mut second] =
        [early, late].map(|at| queue.request(&disk(0), goal, None, in_flight.hold(&disk(0)).unwrap(), at).unwrap());
    queue.resolve(&disk(0), goal, &Ok(None), sent_at);
    assert!(matches!(first.try_recv(), Ok(Ok(None))) && second.try_recv().is_err());
    // The other caller's request stays as one that came then.
    let batch = queue.goals();
    assert_eq!(queue.arrived_of(&batch)[&disk(0)].requested_at, late);
    queue.resolve(&disk(0), goal, &Ok(None), late);
    assert!(matches!(second.try_recv(), Ok(Ok(None))) && queue.goals().is_empty());
}

#[tokio::test]
async fn a_panic_of_the_work_on_a_vm_answers_all_who_wait_and_the_next_request_starts_anew() {
    let (workers, id) = (workers(), vm(&[]).id);
    let in_flight: InFlight<Request, ResultingDisk> = InFlight::default();
    let mut answers = Vec::new();
    for n in 0..3 {
        let hold = in_flight.hold(&disk(n)).unwrap();
        let mut queues = workers.shared.queues();
        let queue = queues.entry(id.clone()).or_default();
        answers.push((disk(n), queue.request(&disk(n), Goal::Attached(None), None, hold, Instant::now()).unwrap()));
    }
    let worker = VmWorker {
        shared: workers.shared.clone(),
        vm: id.clone(),
        node: "node-0".into(),
        ended: AtomicBool::new(false),
        looked_at: AtomicU64::new(0),
    };
    worker.guarded(async { panic!("a slot was given twice") }).await;
    drop(worker);
    for (disk, answer) in answers {
        let error = answer.await.unwrap().unwrap_err();
        // A write may have been sent, so no sidecar may take this error for final.
        assert_eq!((&error.fault, error.effect), (&Fault::OutcomeUnknown, Effect::Possible));
        let message = error.to_string();
        assert!(message.contains("a slot was given twice") && message.contains("node-0"), "{message}");
        assert!(message.contains(disk.as_str()) && !in_flight.is_attaching_or_detaching(&disk), "{message}");
    }
    assert!(workers.shared.queues().is_empty());
}

#[tokio::test(start_paused = true)]
async fn only_a_pause_as_long_as_a_lease_may_hide_another_leader_and_a_shorter_one_its_last_writes() {
    let mut leadership = Leadership::default();
    let mut after = |pause: u64, now: Instant| {
        let now = now + Duration::from_secs(pause);
        leadership.request_arrived(now);
        (now, leadership.leading_since(now), leadership.reads_fresh_since)
    };
    let (began, since, _) = after(0, Instant::now());
    assert_eq!(since, began);
    let (second, since, fresh) = after(5, began);
    assert_eq!((since, fresh), (began, Some(second + Duration::from_secs(4))));
    let (third, since, _) = after(14, second);
    assert_eq!(since, began);
    let (fourth, since, _) = after(15, third);
    assert_eq!(since, fourth);
}
