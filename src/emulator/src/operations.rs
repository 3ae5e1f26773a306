//! Long-running operations: accepted now, taking effect at a drawn moment.
//!
//! An operation's effect takes place at its due time whether or not anybody polls: every request
//! first settles what is due, and a spawned task settles at the due time for those who only watch
//! the hypervisor. Effects of one moment take place in the order in which they were accepted, so a
//! run is the same each time. This module knows nothing of resources: an effect is a function.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::clock::Clock;
use crate::fault::Fault;
use crate::latency::OperationKind;
use crate::state::State;

/// What an operation does to the state when it ends.
pub(crate) type Effect = Box<dyn FnOnce(&mut State, Duration) -> Result<Outcome, Fault> + Send>;

/// What a failure leaves behind.
pub(crate) type Undo = Box<dyn FnOnce(&mut State, Duration, &Fault) + Send>;

/// What a finished operation hands out.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    /// `properties.output` of the operation object.
    pub(crate) output: Option<Arc<Value>>,
    /// The body at the `Location` URL; none means 200 with an empty body.
    pub(crate) result: Option<Arc<Value>>,
}

impl Outcome {
    /// The same at both.
    pub(crate) fn both(value: Value) -> Self {
        let value = Arc::new(value);
        Self { output: Some(Arc::clone(&value)), result: Some(value) }
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
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Status {
    Running,
    Succeeded,
    Failed(Fault),
    Canceled(Fault),
}

/// One operation.
pub(crate) struct Operation {
    pub(crate) id: String,
    pub(crate) style: Style,
    pub(crate) kind: OperationKind,
    pub(crate) started: Duration,
    pub(crate) due: Duration,
    pub(crate) ended: Option<Duration>,
    pub(crate) status: Status,
    pub(crate) outcome: Outcome,
    /// Seconds told to pollers.
    pub(crate) retry_after: Option<u64>,
    sequence: u64,
    effect: Option<Effect>,
    undo: Option<Undo>,
    /// The failure that an incident ordered.
    late_failure: Option<Fault>,
    /// The hypervisor has not finished its part.
    held: bool,
}

impl Operation {
    /// The object at the `Azure-AsyncOperation` URL.
    pub(crate) fn object(&self, clock: &Clock) -> Value {
        let (word, fault) = match &self.status {
            Status::Running => ("InProgress", None),
            Status::Succeeded => ("Succeeded", None),
            Status::Failed(fault) => ("Failed", Some(fault)),
            Status::Canceled(fault) => ("Canceled", Some(fault)),
        };
        let mut object = Map::new();
        if self.style == Style::Compute {
            object.insert("startTime".to_owned(), json!(clock.stamp(self.started)));
            if let Some(ended) = self.ended {
                object.insert("endTime".to_owned(), json!(clock.stamp(ended)));
            }
        }
        object.insert("status".to_owned(), json!(word));
        if let Some(output) = &self.outcome.output {
            object.insert("properties".to_owned(), json!({ "output": **output }));
        }
        if let Some(fault) = fault {
            object.insert("error".to_owned(), fault.object());
        }
        if self.style == Style::Compute {
            object.insert("name".to_owned(), json!(self.id));
        }
        Value::Object(object)
    }
}

/// What a new operation is made of.
pub(crate) struct Order {
    pub(crate) id: String,
    pub(crate) style: Style,
    pub(crate) kind: OperationKind,
    pub(crate) started: Duration,
    pub(crate) due: Duration,
    pub(crate) retry_after: Option<u64>,
    pub(crate) late_failure: Option<Fault>,
    pub(crate) held: bool,
    pub(crate) effect: Effect,
    pub(crate) undo: Option<Undo>,
}

/// All operations of this run.
#[derive(Default)]
pub(crate) struct Operations {
    all: BTreeMap<String, Operation>,
    /// Due time and order of acceptance to id, of those that run.
    running: BTreeMap<(Duration, u64), String>,
    next: u64,
    /// Other names of operations: the tokens of group deletions.
    aliases: BTreeMap<String, String>,
}

impl Operations {
    /// Gives an operation a second name; a later one of that name replaces it.
    pub(crate) fn alias(&mut self, token: &str, id: &str) {
        self.aliases.insert(token.to_owned(), id.to_owned());
    }

    /// The id behind a second name.
    pub(crate) fn resolve(&self, token: &str) -> Option<String> {
        self.aliases.get(token).cloned()
    }

    pub(crate) fn accept(&mut self, order: Order) {
        self.next += 1;
        let sequence = self.next;
        self.running.insert((order.due, sequence), order.id.clone());
        self.all.insert(
            order.id.clone(),
            Operation {
                id: order.id,
                style: order.style,
                kind: order.kind,
                started: order.started,
                due: order.due,
                ended: None,
                status: Status::Running,
                outcome: Outcome::default(),
                retry_after: order.retry_after,
                sequence,
                effect: Some(order.effect),
                undo: order.undo,
                late_failure: order.late_failure,
                held: order.held,
            },
        );
    }

    pub(crate) fn get(&self, id: &str) -> Option<&Operation> {
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
    fn take_due(&mut self, now: Duration) -> Option<String> {
        let key = self
            .running
            .iter()
            .take_while(|((due, _), _)| *due <= now)
            .find(|(_, id)| self.all.get(*id).is_some_and(|op| !op.held))
            .map(|(key, _)| *key)?;
        self.running.remove(&key)
    }

    fn stop(&mut self, id: &str) {
        if let Some(operation) = self.all.get(id) {
            self.running.remove(&(operation.due, operation.sequence));
        }
    }
}

impl State {
    /// Lets everything that is due at `now` take effect.
    pub(crate) fn settle(&mut self, now: Duration) {
        while let Some(id) = self.operations.take_due(now) {
            self.finish(&id);
        }
    }

    /// Lets everything that runs take effect, whatever its due time (for a state file).
    pub(crate) fn settle_all(&mut self) {
        let ids: Vec<String> = self.operations.running.values().cloned().collect();
        for id in ids {
            self.operations.stop(&id);
            self.finish(&id);
        }
    }

    fn finish(&mut self, id: &str) {
        let Some(operation) = self.operations.all.get_mut(id) else {
            return;
        };
        let at = operation.due;
        let effect = operation.effect.take();
        let undo = operation.undo.take();
        let result = match operation.late_failure.take() {
            Some(fault) => Err(fault),
            None => effect.map_or_else(|| Ok(Outcome::default()), |effect| effect(self, at)),
        };
        if let (Err(fault), Some(undo)) = (&result, undo) {
            undo(self, at, fault);
        }
        if let Some(operation) = self.operations.all.get_mut(id) {
            operation.ended = Some(at);
            match result {
                Ok(outcome) => {
                    operation.status = Status::Succeeded;
                    operation.outcome = outcome;
                }
                Err(fault) => operation.status = Status::Failed(fault),
            }
        }
    }

    /// Ends a running operation because a newer one replaces it. Its effect never takes place.
    pub(crate) fn preempt(&mut self, id: &str, now: Duration, fault: Fault) {
        self.operations.stop(id);
        if let Some(operation) = self.operations.all.get_mut(id) {
            operation.ended = Some(now);
            operation.effect = None;
            operation.undo = None;
            operation.status =
                if operation.style == Style::Network { Status::Canceled(fault) } else { Status::Failed(fault) };
        }
    }
}
