//! What the phases of a run have to show: their sums, their operations, and how fast they could have been.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::latency::OperationKind;
use crate::lower_bound::{self, LowerBound, Need, Share};
use crate::operations::Status;
use crate::options::Options;
use crate::path;
use crate::phases::{Accepted, Counted, OperationRecord, Phase};
use crate::state::State;
use crate::throttle::{self, DELETE_INSTANCE, DELETE_VM, Door, Levels, UPDATE_INSTANCE, UPDATE_VM};

impl State {
    /// All phases, oldest first.
    pub(crate) fn phases(&self, options: &Options) -> Vec<Phase> {
        let phases = &self.phases.kept;
        let ends = phases.iter().skip(1).map(|next| Some(millis(next.started))).chain([None]);
        phases
            .iter()
            .zip(ends)
            .map(|(phase, ended_ms)| Phase {
                number: phase.number,
                name: phase.name.clone(),
                started_ms: millis(phase.started),
                ended_ms,
                buckets: phase.contents.clone(),
                counters: phase.counters.clone(),
                lower_bound: lower_bound::of_phase(&self.shares(phase, options)),
            })
            .collect()
    }

    /// The lower bound of all phases, one after the other.
    pub(crate) fn lower_bound(&self, options: &Options) -> LowerBound {
        let phases: Vec<Vec<Share>> = self.phases.kept.iter().map(|phase| self.shares(phase, options)).collect();
        lower_bound::of_run(&phases)
    }

    /// The operations that were accepted in a phase, in order.
    pub(crate) fn operations_of(&self, phase: u64) -> Vec<OperationRecord> {
        let accepted = self.phases.accepted.iter().filter(|operation| operation.phase == phase);
        accepted
            .map(|accepted| {
                let operation = self.operations.get(&accepted.id);
                let running = operation.is_some_and(|operation| operation.status == Status::Running);
                // One that is forgotten has ended; when, it was known at the start.
                let ended = operation.and_then(|operation| operation.ended).unwrap_or(accepted.due);
                OperationRecord {
                    id: accepted.id.clone(),
                    resource: accepted.resource.clone(),
                    kind: accepted.kind,
                    accepted_ms: millis(accepted.accepted),
                    ended_ms: (!running).then(|| millis(ended)),
                    succeeded: operation.is_none_or(|operation| operation.status == Status::Succeeded),
                    attached: accepted.attached.clone(),
                    detached: accepted.detached.clone(),
                }
            })
            .collect()
    }

    /// What each principal had to do in a phase.
    fn shares(&self, phase: &Counted, options: &Options) -> Vec<Share> {
        let accepted: Vec<&Accepted> =
            self.phases.accepted.iter().filter(|operation| operation.phase == phase.number).collect();
        let draw = |kind, resource: &str, nth| self.draw(options, kind, resource, nth);
        let mut shares: BTreeMap<(&str, &str), Vec<Need>> = BTreeMap::new();
        for (principal, resource, need) in necessary(&accepted, draw) {
            shares.entry((principal, path::subscription_of(resource))).or_default().push(need);
        }
        shares
            .into_iter()
            .map(|((principal, subscription), needs)| Share {
                principal: format!("{subscription}/{principal}"),
                needs,
                levels: match options.throttling {
                    true => throttle::levels(&phase.contents, subscription, principal),
                    false => Levels::unlimited(),
                },
            })
            .collect()
    }
}

/// What a write does to a resource, as far as it matters for what is necessary.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WriteKind {
    Create,
    Update,
    Delete,
}

fn write_kind(kind: OperationKind) -> WriteKind {
    match kind {
        OperationKind::DiskCreate
        | OperationKind::VmCreate
        | OperationKind::Snapshot
        | OperationKind::StorageAccount
        | OperationKind::Deployment => WriteKind::Create,
        OperationKind::DiskDelete
        | OperationKind::VmDelete
        | OperationKind::SnapshotDelete
        | OperationKind::ShareRemoval
        | OperationKind::ResourceGroupDelete => WriteKind::Delete,
        OperationKind::DiskUpdate
        | OperationKind::SnapshotCopy
        | OperationKind::DiskGrantAccess
        | OperationKind::VmUpdate
        | OperationKind::VmAttach
        | OperationKind::VmDetach
        | OperationKind::VmPower
        | OperationKind::ScaleSetUpdate
        | OperationKind::InstanceUpdate
        | OperationKind::Network
        | OperationKind::LoadBalancer
        | OperationKind::PublicIpAddress
        | OperationKind::SecurityGroup => WriteKind::Update,
    }
}

/// The provider's bucket of a write, of its kind and the resource's id in lower case. Those of scale sets are not known
/// here: without one the bound is lower, and still one.
fn policy(kind: OperationKind, resource: &str) -> Option<&'static str> {
    let machine = resource.contains("/microsoft.compute/virtualmachines/");
    let instance =
        resource.contains("/microsoft.compute/virtualmachinescalesets/") && resource.contains("/virtualmachines/");
    match kind {
        OperationKind::VmCreate
        | OperationKind::VmUpdate
        | OperationKind::VmAttach
        | OperationKind::VmDetach
        | OperationKind::VmPower
        | OperationKind::InstanceUpdate => {
            instance.then_some(UPDATE_INSTANCE.name).or(machine.then_some(UPDATE_VM.name))
        }
        OperationKind::VmDelete => instance.then_some(DELETE_INSTANCE.name).or(machine.then_some(DELETE_VM.name)),
        _ => None,
    }
}

/// The writes that were necessary, each with the principal that sent the first of its resource; see [`bound`].
/// `draw` gives the latency of the nth write of a resource.
fn necessary<'a>(
    accepted: &[&'a Accepted],
    draw: impl Fn(OperationKind, &str, u64) -> Duration,
) -> Vec<(&'a str, &'a str, Need)> {
    let mut by_resource: BTreeMap<&str, Vec<&'a Accepted>> = BTreeMap::new();
    for operation in accepted {
        by_resource.entry(&operation.resource).or_default().push(operation);
    }
    let drawn = |operations: &[&Accepted], what: WriteKind, others: u64| -> Option<(OperationKind, Duration)> {
        let first = operations.first()?;
        let of_this = operations.iter().filter(|operation| write_kind(operation.kind) == what);
        let latencies = of_this.flat_map(|operation| (0..=others).map(move |later| (operation.kind, later)));
        latencies
            .map(|(kind, later)| (kind, draw(kind, &first.resource, first.nth + later)))
            .min_by_key(|(_, latency)| *latency)
    };
    let created: BTreeMap<&str, Duration> = by_resource
        .iter()
        .filter_map(|(resource, operations)| Some((*resource, drawn(operations, WriteKind::Create, 0)?.1)))
        .collect();
    let mut needs = Vec::new();
    for (resource, operations) in &by_resource {
        let Some(first) = operations.first() else { continue };
        let mut need = |kind: OperationKind, latency: Duration, after: Duration| {
            let door = if write_kind(kind) == WriteKind::Delete { Door::Deletes } else { Door::Writes };
            needs.push((
                &*first.principal,
                &*first.resource,
                Need { door, policy: policy(kind, &first.resource), latency, after },
            ));
        };
        let creation = drawn(operations, WriteKind::Create, 0);
        let changed = drawn(operations, WriteKind::Update, 0);
        match (creation, changed) {
            // It could have been made as it was wanted at last.
            (Some((kind, latency)), _) => need(kind, latency, Duration::ZERO),
            (None, Some((kind, latency))) => {
                let disks = operations.iter().flat_map(|operation| &operation.attached);
                let after = disks.filter_map(|disk| created.get(disk.as_str())).max().copied().unwrap_or_default();
                need(kind, latency, after);
            }
            (None, None) => {}
        }
        let before = u64::from(creation.is_some() || changed.is_some());
        if let Some((kind, latency)) = drawn(operations, WriteKind::Delete, before) {
            need(kind, latency, created.get(resource).copied().unwrap_or_default());
        }
    }
    needs
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepted(resource: &str, kind: OperationKind, nth: u64, attached: &[&str]) -> Accepted {
        Accepted {
            id: format!("{resource}-{nth}"),
            phase: 1,
            principal: "someone".to_owned(),
            resource: resource.to_owned(),
            kind,
            nth,
            accepted: Duration::ZERO,
            due: Duration::ZERO,
            attached: attached.iter().map(|disk| (*disk).to_owned()).collect(),
            detached: Vec::new(),
        }
    }

    /// The nth write of anything takes 10 n seconds.
    fn needs(accepted: &[Accepted]) -> Vec<(String, u64, u64)> {
        let accepted: Vec<&Accepted> = accepted.iter().collect();
        necessary(&accepted, |_, _, nth| Duration::from_secs(10 * nth))
            .into_iter()
            .map(|(_, resource, need)| (resource.to_owned(), need.latency.as_secs(), need.after.as_secs()))
            .collect()
    }

    #[test]
    fn one_write_of_a_machine_is_necessary_and_the_later_ones_count_nothing() {
        let once = [accepted("vm", OperationKind::VmAttach, 3, &["a", "b"])];
        let thrice = [
            accepted("vm", OperationKind::VmAttach, 3, &["a"]),
            accepted("vm", OperationKind::VmAttach, 4, &["b"]),
            accepted("vm", OperationKind::VmAttach, 5, &["b"]),
        ];
        assert_eq!(needs(&once), [("vm".to_owned(), 30, 0)]);
        assert_eq!(needs(&thrice), needs(&once));
    }

    #[test]
    fn a_disk_is_made_before_it_is_attached_and_before_it_is_deleted() {
        let operations = [
            accepted("disk", OperationKind::DiskCreate, 1, &[]),
            accepted("vm", OperationKind::VmAttach, 2, &["disk"]),
            accepted("disk", OperationKind::DiskDelete, 2, &[]),
        ];
        assert_eq!(
            needs(&operations),
            [("disk".to_owned(), 10, 0), ("disk".to_owned(), 10, 10), ("vm".to_owned(), 20, 10)]
        );
    }
}
