//! What a write does to a machine's data disks, as a value, and the disks and hypervisor steps that follow.

use serde_json::Value;

use super::{attachments, background_copy, disk_copy, disk_rules, disk_work, quotas};
use crate::answer::Context;
use crate::blob::vhd;
use crate::fault::Fault;
use crate::path;
use crate::state::{HypervisorStep, State};
use crate::store::Resource;

/// What a write does to a machine's data disks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    /// `dataDisks` of the model from the moment of acceptance.
    pub(crate) model: Vec<Value>,
    pub(crate) attach: Vec<(u8, String)>,
    pub(crate) detach: Vec<Detach>,
    /// Disks to be made because an element said `Empty` or `Copy`.
    pub(crate) create: Vec<NewDisk>,
    /// Blobs to be made because an element said `Empty`, with their size in GiB.
    pub(crate) blobs: Vec<(String, u64)>,
    /// Members of an element changed without an attach or detach.
    pub(crate) changed: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Detach {
    pub(crate) lun: u8,
    pub(crate) disk: String,
}

#[derive(Clone, Debug)]
pub(crate) struct NewDisk {
    pub(crate) id: String,
    pub(crate) body: Value,
}

impl Plan {
    /// Whether anything happens at all.
    pub(crate) fn is_empty(&self) -> bool {
        self.attach.is_empty() && self.detach.is_empty() && !self.changed
    }
}

/// The documents of disks that elements with `Empty` or `Copy` ask for.
pub(crate) fn make_disks(context: &mut Context<'_>, plan: &Plan) -> Result<Vec<(String, Value)>, Fault> {
    let mut made = Vec::new();
    for new in &plan.create {
        let location = new.body["location"].as_str().unwrap_or("").to_owned();
        let created = context.shared.clock.stamp(context.now);
        let unique = crate::derived::guid_of(&format!("{}/{}", path::key(&new.id), context.state.guid()));
        let doc = disk_rules::complete(context.state, &new.id, &location, &new.body, &created, &unique)?;
        quotas::check_disk(context, &doc, None)?;
        made.push((new.id.clone(), doc));
    }
    Ok(made)
}

/// Puts new disks in place. What they are made of comes from now on.
pub(crate) fn insert(context: &mut Context<'_>, made: Vec<(String, Value)>) {
    let now = context.now;
    for (id, disk) in made {
        let faster = disk_copy::speed(context.state, &disk);
        context.state.store.insert(&id, Resource::new(disk), now);
        background_copy::begin(context, &id, now, faster);
    }
}

/// What the hypervisor does for a plan.
pub(crate) fn steps(state: &State, vm: &str, plan: &Plan) -> Vec<HypervisorStep> {
    let mut steps: Vec<HypervisorStep> = plan
        .detach
        .iter()
        .filter(|detach| state.store.lun_map(vm).contains_key(&detach.lun))
        .map(|detach| HypervisorStep::Detach { vm: vm.to_owned(), lun: detach.lun })
        .collect();
    for (lun, disk) in &plan.attach {
        if vhd::is_address(disk) {
            let gib = plan.blobs.iter().find(|(uri, _)| uri == disk).map(|(_, gib)| *gib);
            steps.push(HypervisorStep::AttachBlob { vm: vm.to_owned(), lun: *lun, uri: disk.clone(), gib });
            continue;
        }
        let Some(doc) = state.store.disk(disk) else {
            continue;
        };
        let facts = disk_work::facts(&doc);
        if plan.create.iter().any(|new| path::same(&new.id, disk)) {
            steps.push(disk_work::creation_step(state, &doc));
        }
        steps.push(HypervisorStep::Attach { vm: vm.to_owned(), lun: *lun, disk: facts });
    }
    steps
}

/// Makes the blobs of a plan, at the end of its write. Those that are devices of the machine already have been made.
pub(crate) fn make_blobs(
    state: &mut State,
    vm: &str,
    blobs: &[(String, u64)],
    at: std::time::Duration,
) -> Result<(), Fault> {
    blobs.iter().try_for_each(|(uri, gib)| vhd::create(state, vm, uri, *gib, at))
}

/// Removes the disks that a failed write had made, unless a machine has them by now.
pub(crate) fn remove_unheld(state: &mut State, disks: &[String], at: std::time::Duration) {
    for id in disks {
        if state.store.disk(id).is_some_and(|doc| attachments::owners(&doc).is_empty()) {
            state.store.remove(id, at);
        }
    }
}
