//! The plan of a VM's requests by what has been read, and how its write may be sent.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use lazuli_model::{DiskId, Lun, op::VmWriteMethod};
use lazuli_quota::read::By;

use super::{AzureError, Batch, Cx, DiskReads, State, VmRead, memory::SHORTEST_LEADERSHIP, waits::MAX_FOREIGN_WRITE};
use lazuli_storage::attach::{self, Bounds, DetachMarks, Evidence, Goal, Plan, Writes};

impl<E: AzureError> State<E> {
    /// Plans once, by what has been read.
    pub(super) fn plan(
        &self,
        cx: &mut Cx<'_, E>,
        read: &VmRead,
        reads: &DiskReads<E>,
        members: &Batch,
        writes: Writes,
        force: &BTreeSet<DiskId>,
    ) -> Plan<Duration> {
        cx.memory.suspicions.vm_read(&read.vm, read.seen);
        let shown = cx.memory.shown_on(&self.vm);
        let names = [Some(self.node.as_str()), Some(read.vm.id.name()), read.vm.computer_name.as_deref()];
        let names: Vec<&str> = names.into_iter().flatten().collect();
        let late_attaches = self.late_attaches(cx, read, &names, members);
        let marks = detach_marks(cx.memory.method);
        let vm = match marks {
            DetachMarks::Shown => read.vm.clone(),
            DetachMarks::Hidden => cx.memory.suspicions.with_marks(&read.vm),
        };
        let evidence = Evidence {
            vm: &vm,
            seen: read.seen,
            disks: &reads.reads,
            shown: &shown,
            fresh_from: cx.memory.fresh_from(),
            late_attaches: &late_attaches,
            lists_from: cx.memory.lists_from(cx.env.attachments, cx.now),
            writes_shown_from: Some(cx.memory.writes_shown_from(&self.vm, cx.now)),
            waited_out: cx.memory.at_work_for(&self.vm, cx.now) >= MAX_FOREIGN_WRITE,
            marks,
        };
        let limit = cx.env.sizes.max_data_disks(&read.vm.size);
        let max_data_disks = limit.map_or(usize::from(Lun::COUNT), usize::from);
        let reservations = cx.env.attachments.of_node(&names);
        let bounds = Bounds { reservations: &reservations, max_data_disks, force, writes };
        attach::plan(&evidence, &self.queue.arrived_of(members), &bounds)
    }

    /// Until when attaches of the leader before may be under way, of those disks that are to be detached and that a read of
    /// the VM does not show.
    fn late_attaches(
        &self,
        cx: &mut Cx<'_, E>,
        read: &VmRead,
        names: &[&str],
        members: &Batch,
    ) -> BTreeMap<DiskId, Duration> {
        let detach = members.iter().filter(|(_, goal)| **goal == Goal::Detached).map(|(disk, _)| disk);
        let (listed, missing): (Vec<_>, Vec<_>) = detach.partition(|disk| read.vm.data_disk(disk).is_some());
        if read.seen.by == By::Single {
            listed.into_iter().for_each(|disk| cx.memory.suspicions.shown(&self.vm, disk, cx.now));
        }
        let late = missing.into_iter().map(|disk| {
            let until = cx.memory.late_attach(cx.env.attachments, &self.vm, names, disk, cx.now)?;
            Some((disk.clone(), until))
        });
        late.flatten().collect()
    }

    /// Which write may follow: one of the whole list of disks, and any after a failed one, needs a single read.
    pub(super) fn writes(&self, cx: &Cx<'_, E>, members: &Batch) -> Writes {
        match self.method(cx, members.keys()) {
            VmWriteMethod::Action if self.attempts.is_clean() => Writes::AfterAnyRead,
            VmWriteMethod::Action => Writes::AfterSingleRead,
            VmWriteMethod::WholeList | VmWriteMethod::WholeListByOmission => Writes::WholeList,
        }
    }

    /// How the next write, of these disks, is sent. The action knows managed disks alone (source: the compute API), so page
    /// blobs are written as a list.
    pub(super) fn method<'a>(&self, cx: &Cx<'_, E>, mut disks: impl Iterator<Item = &'a DiskId>) -> VmWriteMethod {
        match self.attempts.method.unwrap_or(cx.memory.method) {
            VmWriteMethod::Action if disks.any(|disk| disk.blob().is_some()) => VmWriteMethod::WholeList,
            method => method,
        }
    }

    /// Whether the next write of the VM, by this method, has no condition (etag).
    pub(super) fn needs_permit(method: VmWriteMethod, read: &VmRead) -> bool {
        method == VmWriteMethod::Action || read.version.etag.is_none()
    }
}

/// Whether a read of a VM is too old for a list of disks to follow from. Where the VM has no etag, Azure does not notice that
/// another replica has led, and written, since: this process may have been stopped for a while.
pub(super) fn is_too_old_for_a_list(read: &VmRead, now: Duration) -> bool {
    read.version.etag.is_none() && now > read.seen.sent_at + SHORTEST_LEADERSHIP
}

/// Whether VMs show which disks leave. Where they do not, a list detaches by omission.
pub(super) fn detach_marks(method: VmWriteMethod) -> DetachMarks {
    match method {
        VmWriteMethod::Action | VmWriteMethod::WholeList => DetachMarks::Shown,
        VmWriteMethod::WholeListByOmission => DetachMarks::Hidden,
    }
}
