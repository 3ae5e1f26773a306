//! Long-running operations: accepted now, over at a drawn moment, kept for those who poll.
//!
//! This module knows nothing of resources: what an operation does when it ends is its `Work`, which is
//! handed out once. Finished operations are kept for [`KEPT_FOR`], and no more than [`KEPT_MOST`] of them:
//! a poll of one that is gone answers 404, as of one that never was.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::clock::Clock;
use crate::fault::Fault;
use crate::latency::OperationKind;

/// How long a finished operation can be polled. Unverified: a day.
pub(crate) const KEPT_FOR: Duration = Duration::from_secs(24 * 3600);
/// How many finished operations are kept at most, the newest; a limit of the emulator's own.
pub(crate) const KEPT_MOST: usize = 50_000;

/// What a finished operation hands out, as text: most of it is never read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    /// `properties.output` of the operation object.
    output: Option<Arc<str>>,
    /// The body at the `Location` URL; none means 200 with an empty body.
    result: Option<Arc<str>>,
}

fn text(value: &Value) -> Arc<str> {
    Arc::from(value.to_string())
}

impl Outcome {
    /// The same at both.
    pub(crate) fn both(value: &Value) -> Self {
        let value = text(value);
        Self { output: Some(Arc::clone(&value)), result: Some(value) }
    }

    /// At the `Location` URL only.
    pub(crate) fn at_location(value: &Value) -> Self {
        Self { output: None, result: Some(text(value)) }
    }

    /// The body at the `Location` URL, as JSON text.
    pub(crate) fn result(&self) -> Option<&str> {
        self.result.as_deref().filter(|text| *text != "null")
    }
}

/// Which shape an operation's status object has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// Recorded: `startTime`, `endTime`, `status`, `properties.output`, `name`.
    Compute,
    /// Recorded: `status` only.
    Network,
    /// Recorded: `Location` only, empty bodies.
    Group,
    /// Recorded: `Location` only, empty bodies, the document at the end.
    Storage,
    /// Documented: the state of a deployment, `Running` while it is.
    Deployment,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Status {
    Running,
    Succeeded,
    Failed(Fault),
    Canceled(Fault),
}

/// One operation.
pub(crate) struct Operation<W> {
    pub(crate) id: String,
    pub(crate) style: Style,
    pub(crate) kind: OperationKind,
    /// Id of the resource that it changes.
    pub(crate) resource: String,
    pub(crate) started: Duration,
    pub(crate) due: Duration,
    pub(crate) ended: Option<Duration>,
    pub(crate) status: Status,
    pub(crate) outcome: Outcome,
    /// Seconds told to pollers.
    pub(crate) retry_after: Option<u64>,
    sequence: u64,
    /// What is done when it ends.
    work: Option<W>,
    /// The failure that an incident ordered.
    late_failure: Option<Fault>,
    /// The hypervisor has not finished its part.
    held: bool,
}

impl<W> Operation<W> {
    /// Whether it waits for the hypervisor.
    pub(crate) fn is_held(&self) -> bool {
        self.held
    }

    /// The object at the `Azure-AsyncOperation` URL, as JSON text.
    pub(crate) fn object(&self, clock: &Clock) -> String {
        let (word, fault) = match &self.status {
            Status::Running if self.style == Style::Deployment => ("Running", None),
            Status::Running => ("InProgress", None),
            Status::Succeeded => ("Succeeded", None),
            Status::Failed(fault) => ("Failed", Some(fault)),
            Status::Canceled(fault) => ("Canceled", Some(fault)),
        };
        let compute = self.style == Style::Compute;
        let quoted = |text: &str| Value::from(text).to_string();
        let mut members = Vec::new();
        if compute {
            members.push(("startTime", quoted(&clock.stamp(self.started))));
            members.extend(self.ended.map(|ended| ("endTime", quoted(&clock.stamp(ended)))));
        }
        members.push(("status", quoted(word)));
        members.extend(self.outcome.output.as_ref().map(|output| ("properties", format!("{{\"output\":{output}}}"))));
        members.extend(fault.map(|fault| ("error", fault.object().to_string())));
        if compute {
            members.push(("name", quoted(&self.id)));
        }
        let members: Vec<String> = members.iter().map(|(name, text)| format!("\"{name}\":{text}")).collect();
        format!("{{{}}}", members.join(","))
    }
}

/// What a new operation is made of.
pub(crate) struct Order<W> {
    pub(crate) id: String,
    pub(crate) style: Style,
    pub(crate) kind: OperationKind,
    pub(crate) resource: String,
    pub(crate) started: Duration,
    pub(crate) due: Duration,
    pub(crate) retry_after: Option<u64>,
    pub(crate) late_failure: Option<Fault>,
    pub(crate) held: bool,
    pub(crate) work: W,
}

/// All operations of this run.
pub(crate) struct Operations<W> {
    all: BTreeMap<String, Operation<W>>,
    /// Due time and order of acceptance to id, of those that run.
    running: BTreeMap<(Duration, u64), String>,
    next: u64,
    /// Other names of operations: the tokens of group deletions.
    aliases: BTreeMap<String, String>,
    /// Finished operations, in the order in which they ended.
    finished: VecDeque<(Duration, String)>,
    /// How many that had finished are forgotten.
    forgotten: u64,
}

impl<W> Default for Operations<W> {
    fn default() -> Self {
        Self {
            all: BTreeMap::new(),
            running: BTreeMap::new(),
            next: 0,
            aliases: BTreeMap::new(),
            finished: VecDeque::new(),
            forgotten: 0,
        }
    }
}

impl<W> Operations<W> {
    /// Gives an operation a second name; a later one of that name replaces it.
    pub(crate) fn alias(&mut self, token: &str, id: &str) {
        self.aliases.insert(token.to_owned(), id.to_owned());
    }

    /// The id behind a second name.
    pub(crate) fn resolve(&self, token: &str) -> Option<String> {
        self.aliases.get(token).cloned()
    }

    pub(crate) fn accept(&mut self, order: Order<W>) {
        self.next += 1;
        let sequence = self.next;
        self.running.insert((order.due, sequence), order.id.clone());
        self.all.insert(
            order.id.clone(),
            Operation {
                id: order.id,
                style: order.style,
                kind: order.kind,
                resource: order.resource,
                started: order.started,
                due: order.due,
                ended: None,
                status: Status::Running,
                outcome: Outcome::default(),
                retry_after: order.retry_after,
                sequence,
                work: Some(order.work),
                late_failure: order.late_failure,
                held: order.held,
            },
        );
    }

    pub(crate) fn get(&self, id: &str) -> Option<&Operation<W>> {
        self.all.get(id)
    }

    pub(crate) fn is_running(&self, id: &str) -> bool {
        self.all.get(id).is_some_and(|op| op.status == Status::Running)
    }

    /// Lets a held operation end.
    pub(crate) fn release(&mut self, id: &str) {
        if let Some(operation) = self.all.get_mut(id) {
            operation.held = false;
        }
    }

    /// Makes a running operation fail at its end.
    pub(crate) fn fail_late(&mut self, id: &str, fault: Fault) {
        if let Some(operation) = self.all.get_mut(id) {
            operation.late_failure.get_or_insert(fault);
        }
    }

    /// How many run.
    pub(crate) fn running(&self) -> usize {
        self.running.len()
    }

    /// Whether an incident or the hypervisor already decided that it fails.
    pub(crate) fn will_fail(&self, id: &str) -> bool {
        self.all.get(id).is_some_and(|op| op.late_failure.is_some())
    }

    /// Takes the first operation that is due and not held.
    pub(crate) fn take_due(&mut self, now: Duration) -> Option<String> {
        let key = self
            .running
            .iter()
            .take_while(|((due, _), _)| *due <= now)
            .find(|(_, id)| self.all.get(*id).is_some_and(|op| !op.held))
            .map(|(key, _)| *key)?;
        self.running.remove(&key)
    }

    /// Due time of the first operation that can end by `now`.
    pub(crate) fn first_due(&self, now: Duration) -> Option<Duration> {
        self.running
            .iter()
            .take_while(|((due, _), _)| *due <= now)
            .find(|(_, id)| self.all.get(*id).is_some_and(|op| !op.held))
            .map(|((due, _), _)| *due)
    }

    /// Those that have ended beyond the first so many, in order, as far as they are not forgotten; and how many have ended.
    pub(crate) fn ended_after(&self, count: u64) -> (u64, impl Iterator<Item = &Operation<W>>) {
        let skipped = usize::try_from(count.saturating_sub(self.forgotten)).unwrap_or(usize::MAX);
        let ended = self.finished.iter().skip(skipped).filter_map(|(_, id)| self.all.get(id));
        (self.forgotten + self.finished.len() as u64, ended)
    }

    /// Those that run, in the order in which they would end.
    pub(crate) fn all_running(&self) -> Vec<String> {
        self.running.values().cloned().collect()
    }

    /// The same with all that is known of each.
    pub(crate) fn iter_running(&self) -> impl Iterator<Item = &Operation<W>> {
        self.running.values().filter_map(|id| self.all.get(id))
    }

    pub(crate) fn stop(&mut self, id: &str) {
        if let Some(operation) = self.all.get(id) {
            self.running.remove(&(operation.due, operation.sequence));
        }
    }

    /// Hands out what an operation does at its end, its due time and the failure that was ordered.
    pub(crate) fn take_work(&mut self, id: &str) -> Option<(W, Duration, Option<Fault>)> {
        let operation = self.all.get_mut(id)?;
        Some((operation.work.take()?, operation.due, operation.late_failure.take()))
    }

    /// Notes how an operation ended, and forgets the oldest.
    pub(crate) fn end(&mut self, id: &str, at: Duration, result: Result<Outcome, Fault>) {
        let Some(operation) = self.all.get_mut(id) else {
            return;
        };
        operation.ended = Some(at);
        match result {
            Ok(outcome) => {
                operation.status = Status::Succeeded;
                operation.outcome = outcome;
            }
            Err(fault) => operation.status = Status::Failed(fault),
        }
        self.keep(id, at);
    }

    /// A running operation is over because a newer one replaces it: its work is never done.
    pub(crate) fn preempt(&mut self, id: &str, now: Duration, fault: Fault) {
        self.stop(id);
        let Some(operation) = self.all.get_mut(id) else {
            return;
        };
        operation.ended = Some(now);
        operation.work = None;
        operation.status =
            if operation.style == Style::Network { Status::Canceled(fault) } else { Status::Failed(fault) };
        self.keep(id, now);
    }

    fn keep(&mut self, id: &str, now: Duration) {
        self.finished.push_back((now, id.to_owned()));
        let mut forgotten = false;
        while let Some((ended, old)) = self.finished.front()
            && (self.finished.len() > KEPT_MOST || *ended + KEPT_FOR < now)
        {
            self.all.remove(old);
            self.finished.pop_front();
            self.forgotten += 1;
            forgotten = true;
        }
        if forgotten && !self.aliases.is_empty() {
            let all = &self.all;
            self.aliases.retain(|_, id| all.contains_key(id));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(id: usize) -> Order<()> {
        Order {
            id: format!("{id}"),
            style: Style::Compute,
            kind: OperationKind::DiskCreate,
            resource: String::new(),
            started: Duration::ZERO,
            due: Duration::ZERO,
            retry_after: None,
            late_failure: None,
            held: false,
            work: (),
        }
    }

    #[test]
    fn the_object_of_an_operation_is_json_with_its_members_in_order() {
        let clock = Clock::new(crate::Options::default().start_time, 1.0);
        let mut operations = Operations::default();
        let mut object = |id: usize, result| {
            operations.accept(order(id));
            operations.end(&id.to_string(), Duration::from_secs(1), result);
            let text = operations.get(&id.to_string()).unwrap().object(&clock);
            let object: Value = serde_json::from_str(&text).unwrap();
            let members: Vec<&str> = object.as_object().unwrap().keys().map(String::as_str).collect();
            (members.join(" "), object)
        };
        let document = serde_json::json!({"a \"quoted\" name": [1, null]});
        let (members, shown) = object(1, Ok(Outcome::both(&document)));
        assert_eq!(members, "startTime endTime status properties name");
        assert_eq!((&shown["properties"]["output"], shown["name"].as_str()), (&document, Some("1")));
        let (members, shown) = object(2, Err(crate::fault::preempted()));
        assert_eq!(members, "startTime endTime status error name");
        assert_eq!(shown["error"]["code"], "OperationPreempted");
    }

    #[test]
    fn the_oldest_of_too_many_finished_operations_are_forgotten_and_none_that_runs() {
        let mut operations = Operations::default();
        operations.accept(order(0));
        for id in 1..=KEPT_MOST + 2 {
            operations.accept(order(id));
            operations.alias(&format!("alias-{id}"), &format!("{id}"));
            operations.stop(&format!("{id}"));
            operations.end(&format!("{id}"), Duration::ZERO, Ok(Outcome::default()));
        }
        assert!(operations.is_running("0"));
        assert!(operations.get("2").is_none());
        assert!(operations.get("3").is_some());
        assert_eq!(operations.resolve("alias-2"), None);
        assert_eq!(operations.aliases.len(), KEPT_MOST);
    }

    #[test]
    fn each_end_is_told_once_in_order_and_those_that_are_forgotten_are_not_waited_for() {
        let mut operations = Operations::default();
        let end = |operations: &mut Operations<()>, id: usize, at: u64| {
            operations.accept(order(id));
            operations.end(&id.to_string(), Duration::from_secs(at), Ok(Outcome::default()));
        };
        let told = |operations: &Operations<()>, count: u64| -> (u64, Vec<String>) {
            let (count, ended) = operations.ended_after(count);
            (count, ended.map(|operation| operation.id.clone()).collect())
        };
        assert_eq!(told(&operations, 0), (0, vec![]));
        operations.accept(order(9));
        (0..3).for_each(|id| end(&mut operations, id, 0));
        assert_eq!(told(&operations, 0), (3, vec!["0".to_owned(), "1".to_owned(), "2".to_owned()]));
        assert_eq!(told(&operations, 2), (3, vec!["2".to_owned()]));
        assert_eq!(told(&operations, 3), (3, vec![]));
        end(&mut operations, 3, KEPT_FOR.as_secs() + 1);
        assert_eq!(told(&operations, 3), (4, vec!["3".to_owned()]), "the first three are forgotten");
        assert_eq!(told(&operations, 0), (4, vec!["3".to_owned()]));
    }

    #[test]
    fn a_finished_operation_is_forgotten_after_its_time() {
        let mut operations = Operations::default();
        for (id, at) in [(1, Duration::ZERO), (2, KEPT_FOR), (3, KEPT_FOR + Duration::from_secs(1))] {
            operations.accept(order(id));
            operations.stop(&id.to_string());
            operations.end(&id.to_string(), at, Err(crate::fault::preempted()));
        }
        assert!(operations.get("1").is_none());
        assert!(operations.get("2").is_some());
    }
}
