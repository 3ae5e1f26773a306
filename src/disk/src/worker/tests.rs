use lazuli_model::{node::ClusterNodes, op::VmWriteMethod};

use super::*;
use crate::{occupied::Occupied, on_nowhere::client};

fn disk(n: i64) -> ArmId {
    ArmId::disk("s", "g", &format!("d{n}")).unwrap()
}

/// Workers without an Azure: no test here sends a request to it.
fn workers() -> VmWorkers {
    let client = client();
    let reservations = ClusterSnapshot::new(watch::channel(LunReservations::NoCluster).1, |_| true);
    let nodes = Nodes::new("s", "g", watch::channel(ClusterNodes::NoCluster).1);
    let sizes = watch::channel(SizeLimits::default()).1;
    let policy = Policy { force_detach: ForceDetach::Off, events: lossy::Sender::nowhere() };
    let memory = Memory::new(VmWriteMethod::Action);
    VmWorkers::new(
        client,
        nodes,
        reservations,
        sizes,
        memory,
        policy,
        Notes { metrics: Metrics::unregistered(), journal: Recorder::nowhere() },
    )
}

#[tokio::test(start_paused = true)]
async fn a_panic_of_the_work_on_a_vm_answers_all_who_wait_and_the_next_request_starts_anew() {
    let (workers, vm) = (workers(), ArmId::virtual_machine("s", "g", "node-0").unwrap());
    let occupied = Occupied::default();
    let request = |n: i64| {
        let (workers, vm, hold) = (workers.clone(), vm.clone(), occupied.attachment(disk(n)).unwrap());
        async move { (disk(n), workers.request(&vm, "node-0", &disk(n), Goal::Attached(None), hold).await) }
    };
    let broken_off = async {
        tokio::task::yield_now().await;
        assert!(workers.is_requested(&vm, disk(0)));
        workers.workers.tell(&vm, VmEvent::Panic);
    };
    let (answers, ()) = join(join_all([request(0), request(1), request(2)]), broken_off).await;
    for (disk, answer) in answers {
        let error = answer.unwrap_err();
        // A write may have been sent, so no sidecar may take this error for final.
        assert_eq!((&error.fault, error.effect), (&Fault::OutcomeUnknown, Effect::Possible));
        let message = error.to_string();
        assert!(message.contains(disk.as_str()) && message.contains("node-0"), "{message}");
        assert!(!occupied.is_attaching_or_detaching(&disk) && !workers.is_requested(&vm, &disk), "{message}");
    }
    // The next request is not the work that was broken off.
    let again = request(0);
    assert!(futures::poll!(Box::pin(again)).is_pending());
    workers.workers.drain().await;
    assert!(workers.workers.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_gives_up_ends_the_work_that_is_for_it_alone() {
    let (workers, vm) = (workers(), ArmId::virtual_machine("s", "g", "node-0").unwrap());
    let occupied = Occupied::default();
    let (disk, hold) = (disk(0), occupied.attachment(disk(0)).unwrap());
    let request = workers.request(&vm, "node-0", &disk, Goal::Detached, hold);
    let gives_up = tokio::time::timeout(Duration::from_millis(10), request);
    assert!(gives_up.await.is_err());
    workers.workers.drain().await;
    assert!(!occupied.is_attaching_or_detaching(&disk) && !workers.is_requested(&vm, &disk));
}
