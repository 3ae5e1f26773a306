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
    // A copy has what its source has at the moment of the request.
    let copies = work
        .steps
        .iter()
        .take_while(|step| matches!(step, HypervisorStep::Copy { .. } | HypervisorStep::Import { .. }))
        .count();
    let (copies, steps) = work.steps.split_at(copies);
    if !work.steps.is_empty() {
        let mut failed = carry_all(shared, &work.operation, copies).await;
        let at = work.started + (work.due - work.started).mul_f64(DEVICE_AT);
        if shared.hypervisor.is_loop() {
            shared.clock.sleep_until(at).await;
        }
        if failed.is_none() {
            failed = carry_all(shared, &work.operation, steps).await;
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

/// Carries steps out up to the first that fails. An incident may have ordered the failure of the operation already: then
/// the hypervisor does nothing.
async fn carry_all(shared: &Shared, operation: &str, steps: &[HypervisorStep]) -> Option<HypervisorError> {
    if steps.is_empty() || shared.state().operations.will_fail(operation) {
        return None;
    }
    for step in steps {
        if let Err(error) = carry_step(shared, step).await {
            return Some(error);
        }
    }
    None
}

async fn carry_step(shared: &Shared, step: &HypervisorStep) -> Result<(), HypervisorError> {
    let hypervisor = &shared.hypervisor;
    match step {
        HypervisorStep::Attach { vm, lun, disk } => hypervisor.attach(&path::machine_name(vm), *lun, disk).await,
        HypervisorStep::Detach { vm, lun } => hypervisor.detach(&path::machine_name(vm), *lun).await,
        HypervisorStep::Create { disk } => hypervisor.create_disk(disk).await,
        HypervisorStep::Copy { from, disk } => hypervisor.copy_disk(from, disk).await,
        HypervisorStep::Import { file, disk } => hypervisor.import_disk(file, disk).await,
        HypervisorStep::Resize { disk } => hypervisor.resize(disk).await,
        HypervisorStep::Delete { disk } => hypervisor.delete_disk(&disk.id).await,
        HypervisorStep::CreateMachine { vm } => hypervisor.create_machine(&path::machine_name(vm)).await,
        HypervisorStep::DeleteMachine { vm } => hypervisor.delete_machine(&path::machine_name(vm)).await,
    }
}
