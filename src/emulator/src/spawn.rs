//! The tasks behind accepted operations: they wait, do the hypervisor's part, and settle.

use std::sync::Arc;

use crate::fault::Fault;
use crate::hypervisor::HypervisorError;
use crate::path;
use crate::state::{HypervisorStep, Pending, Shared};

/// How far into an operation a device appears or goes, as a fraction: it is visible well before the
/// operation ends (documented: kubernetes#69262 saw it after a third of the time).
const DEVICE_AT: f64 = 0.7;

/// Carries an operation to its end, polled or not.
pub(crate) fn carry_out(shared: &Arc<Shared>, work: Pending) {
    let task = Arc::clone(shared);
    tokio::spawn(async move {
        let stop = task.stop.clone();
        tokio::select! {
            () = stop.cancelled() => {}
            () = run(&task, work) => {}
        }
    });
}

async fn run(shared: &Shared, work: Pending) {
    if !work.steps.is_empty() {
        let at = work.started + (work.due - work.started).mul_f64(DEVICE_AT);
        if shared.hypervisor.is_loop() {
            shared.clock.sleep_until(at).await;
        }
        // An incident may have ordered the failure already: then the hypervisor does nothing.
        let fails = shared.state().operations.will_fail(&work.operation);
        let mut failed = None;
        if !fails {
            for step in &work.steps {
                if let Err(error) = carry_step(shared, step).await {
                    failed = Some(error);
                    break;
                }
            }
        }
        let mut state = shared.state();
        if let Some(error) = failed {
            tracing::warn!(operation = %work.operation, error = %error, "the hypervisor failed");
            state.operations.fail_late(
                &work.operation,
                Fault::new(500, "InternalExecutionError", format!("The hypervisor failed: {error}")),
            );
        }
        state.operations.release(&work.operation);
    }
    shared.clock.sleep_until(work.due).await;
    drop(shared.state());
    shared.saver.changed();
}

async fn carry_step(shared: &Shared, step: &HypervisorStep) -> Result<(), HypervisorError> {
    let hypervisor = &shared.hypervisor;
    match step {
        HypervisorStep::Attach { vm, lun, disk } => hypervisor.attach(&path::machine_name(vm), *lun, disk).await,
        HypervisorStep::Detach { vm, lun } => hypervisor.detach(&path::machine_name(vm), *lun).await,
        HypervisorStep::Create { disk } => hypervisor.create_disk(disk).await,
        HypervisorStep::Copy { from, disk } => hypervisor.copy_disk(from, disk).await,
        HypervisorStep::Resize { disk } => hypervisor.resize(disk).await,
        HypervisorStep::Delete { disk } => hypervisor.delete_disk(&disk.id).await,
        HypervisorStep::CreateMachine { vm } => hypervisor.create_machine(&path::machine_name(vm)).await,
        HypervisorStep::DeleteMachine { vm } => hypervisor.delete_machine(&path::machine_name(vm)).await,
    }
}
