//! The tasks behind accepted operations: they wait, do the hypervisor's part, and settle.

use std::sync::Arc;

use crate::arm::compute::{attachments, disk_controller};
use crate::blob::vhd;
use crate::error_chain::chain;
use crate::fault::Fault;
use crate::hypervisor::{DiskFacts, HypervisorError};
use crate::path;
use crate::state::{HypervisorStep, Pending, Shared, State};

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
        if shared.hypervisor.has_devices() {
            shared.clock.sleep_until(at).await;
        }
        if failed.is_none() {
            failed = carry_all(shared, &work.operation, steps).await;
        }
        let mut state = shared.state();
        if let Some(fault) = failed {
            state.operations.fail_late(&work.operation, fault);
        }
        state.operations.release(&work.operation);
    }
    shared.clock.sleep_until(work.due).await;
    drop(shared.state());
    shared.saver.changed();
    take_back(shared, &work.steps).await;
}

/// Carries steps out up to the first that fails. An incident may have ordered the failure of the operation already: then
/// the hypervisor does nothing. A newer write may have preempted it, which takes over what machines have and nothing else.
async fn carry_all(shared: &Shared, operation: &str, steps: &[HypervisorStep]) -> Option<Fault> {
    if steps.is_empty() || shared.state().operations.will_fail(operation) {
        return None;
    }
    for step in steps {
        if !makes_file(step) && !shared.state().operations.is_running(operation) {
            continue;
        }
        let failed = match step {
            HypervisorStep::AttachBlob { vm, lun, uri, gib } => match hand_over(shared, operation, vm, uri, *gib) {
                Ok(Some(disk)) => attach(shared, vm, *lun, &disk).await,
                Ok(None) => Ok(()),
                Err(fault) => return Some(fault),
            },
            step => carry_step(shared, step).await,
        };
        if let Err(error) = failed {
            tracing::warn!(operation, error = chain(&error), "the hypervisor failed");
            let message = format!("The hypervisor failed: {}", chain(&error));
            return Some(Fault::new(500, "InternalExecutionError", message));
        }
    }
    None
}

/// Whether a step makes the file of a disk, and leaves all machines as they are.
fn makes_file(step: &HypervisorStep) -> bool {
    matches!(step, HypervisorStep::Create { .. } | HypervisorStep::Copy { .. } | HypervisorStep::Import { .. })
}

/// Gives a blob to a machine as its device. Without devices that has time until the end of the operation.
fn hand_over(
    shared: &Shared,
    operation: &str,
    vm: &str,
    uri: &str,
    gib: Option<u64>,
) -> Result<Option<DiskFacts>, Fault> {
    let mut state = shared.state();
    if !shared.hypervisor.has_devices() || !state.operations.is_running(operation) {
        return Ok(None);
    }
    let at = shared.clock.elapsed();
    vhd::hand_over(&mut state, vm, uri, gib, at).map(Some)
}

/// Takes back what was a device and is no disk of its machine, since the operation has failed or was preempted.
async fn take_back(shared: &Shared, steps: &[HypervisorStep]) {
    for step in steps {
        let (vm, lun, id) = match step {
            HypervisorStep::AttachBlob { vm, lun, uri, .. } => (vm, *lun, uri),
            HypervisorStep::Attach { vm, lun, disk } => (vm, *lun, &disk.id),
            _ => continue,
        };
        let disk = {
            let state = shared.state();
            if !shared.hypervisor.has_devices() || is_wanted(&state, step) {
                continue;
            }
            match step {
                HypervisorStep::Attach { disk, .. } => Some(disk.clone()),
                _ => vhd::device_of(&state, vm, id),
            }
        };
        let Some(disk) = disk else { continue };
        if let Err(error) = shared.hypervisor.withdraw(&path::machine_name(vm), lun, &disk).await {
            tracing::warn!(disk = id, error = chain(&error), "a disk was not taken back");
        }
        let mut state = shared.state();
        if !is_wanted(&state, step) {
            let at = shared.clock.elapsed();
            attachments::give_back(&mut state, vm, id, at);
        }
    }
    shared.saver.changed();
}

/// Whether a machine has what a step attaches, or is about to have it by a write that goes on.
fn is_wanted(state: &State, step: &HypervisorStep) -> bool {
    let goes_on = |vm: &str| {
        let busy = state.store.get(vm).and_then(|resource| resource.machine.as_ref()?.busy.clone());
        busy.is_some_and(|busy| state.operations.is_running(&busy))
    };
    match step {
        HypervisorStep::AttachBlob { vm, uri, .. } => {
            state.store.lun_map(vm).values().any(|held| held == uri)
                || goes_on(vm) && attachments::wanted(state, vm).iter().any(|(_, disk)| disk == uri)
        }
        HypervisorStep::Attach { vm, lun, disk } => {
            state.store.lun_map(vm).get(lun).is_some_and(|held| path::same(held, &disk.id))
                || goes_on(vm)
                    && attachments::wanted(state, vm).iter().any(|(at, held)| at == lun && path::same(held, &disk.id))
        }
        _ => true,
    }
}

/// Shows a disk to a machine, if it can have any as it is now.
async fn attach(shared: &Shared, vm: &str, lun: u8, disk: &DiskFacts) -> Result<(), HypervisorError> {
    let machine = disk_controller::machine(&shared.state().store, vm);
    shared.hypervisor.check(&machine)?;
    shared.hypervisor.attach(&machine.name, lun, disk).await
}

async fn carry_step(shared: &Shared, step: &HypervisorStep) -> Result<(), HypervisorError> {
    let hypervisor = &shared.hypervisor;
    match step {
        // With an operation of its own.
        HypervisorStep::AttachBlob { .. } => Ok(()),
        HypervisorStep::Attach { vm, lun, disk } => attach(shared, vm, *lun, disk).await,
        HypervisorStep::Detach { vm, lun } => hypervisor.detach(&path::machine_name(vm), *lun).await,
        HypervisorStep::Create { disk } => hypervisor.create_disk(disk).await,
        HypervisorStep::Copy { from, disk } => hypervisor.copy_disk(from, disk).await,
        HypervisorStep::Import { file, bytes, disk } => hypervisor.import_disk(file, *bytes, disk).await,
        HypervisorStep::Resize { disk } => hypervisor.resize(disk).await,
        HypervisorStep::Delete { disk } => hypervisor.delete_disk(&disk.id).await,
        HypervisorStep::CreateMachine { vm, shown } => hypervisor.create_machine(&path::machine_name(vm), *shown).await,
        HypervisorStep::DeleteMachine { vm } => hypervisor.delete_machine(&path::machine_name(vm)).await,
    }
}
