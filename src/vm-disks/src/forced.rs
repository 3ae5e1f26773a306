//! Detaches by force, from VMs that are proved stopped. Decided in [`lazuli_storage::force_detach`].

use std::collections::BTreeSet;

use lazuli_model::{DiskId, InstanceView, op::VmWriteMethod};

use super::{
    Action, AzureError, Cx, DiskSeen, State,
    round::{Planning, Stage},
};
use lazuli_storage::{
    attach::Goal,
    force_detach::{self, ForceDetach},
};

impl<E: AzureError> State<E> {
    /// Looks for disks that this round may detach by force: their ordinary detach has failed. Another hand may have detached
    /// such a disk and attached it again since, so each is read.
    pub(super) fn look_for_failed_detaches(&mut self, cx: &mut Cx<'_, E>, planning: Box<Planning<E>>) {
        // A list by omission cannot say how a disk leaves.
        let is_off = cx.env.force_detach == ForceDetach::Off || cx.memory.method == VmWriteMethod::WholeListByOmission;
        // `detachOption` is of managed disks (source: the compute API).
        let has_failed = |disk: &DiskId| {
            disk.managed().is_some()
                && planning.vm.read.vm.data_disk(disk).is_some()
                && cx.memory.failed_detaches.contains(&self.vm, disk)
        };
        let detach = planning.members().iter().filter(|(_, goal)| **goal == Goal::Detached);
        let failed: Vec<DiskId> = match is_off {
            true => Vec::new(),
            false => detach.map(|(disk, _)| disk).filter(|disk| has_failed(disk)).cloned().collect(),
        };
        if failed.is_empty() {
            return self.with_force(cx, planning, BTreeSet::new());
        }
        self.read_disks(cx, failed);
        self.stage = Stage::FailedDetaches(planning);
    }

    /// Azure must show right now that the VM is stopped.
    pub(super) fn failed_detaches_read(
        &mut self,
        cx: &mut Cx<'_, E>,
        planning: Box<Planning<E>>,
        reads: Vec<(DiskId, Result<DiskSeen, E>)>,
    ) {
        let is_this_attachment = |read: &Result<DiskSeen, E>| {
            let failed = &cx.memory.failed_detaches;
            read.as_ref().is_ok_and(|read| failed.is_of_this_attachment(&self.vm, &read.disk))
        };
        let failed = reads.into_iter().filter(|(_, read)| is_this_attachment(read)).map(|(disk, _)| disk);
        let failed: BTreeSet<DiskId> = failed.collect();
        if failed.is_empty() {
            return self.with_force(cx, planning, failed);
        }
        let priority = self.priority(cx, &failed.iter().map(|disk| (disk.clone(), Goal::Detached)).collect());
        let id = self.await_next();
        cx.actions.push(Action::ReadView(id, priority));
        self.stage = Stage::InstanceView(planning, failed);
    }

    pub(super) fn view_read(&mut self, cx: &mut Cx<'_, E>, view: Result<InstanceView, E>) {
        match std::mem::replace(&mut self.stage, Stage::Idle) {
            Stage::InstanceView(planning, failed) => {
                let is_stopped = view.is_ok_and(|view| force_detach::check(view).is_ok());
                let force = if is_stopped { failed } else { BTreeSet::new() };
                self.with_force(cx, planning, force);
            }
            stage => self.stage = stage,
        }
    }
}
