//! Nodes that come and go while a person's cluster runs. The desired ones are names in a file of the cluster's folder;
//! the supervisor starts and stops the processes of nodes until they are so.

use std::{collections::BTreeSet, time::Duration};

use serde_json::Value;

use crate::{
    cluster::Settings,
    emulator::{MACHINES, NODES},
    kubernetes::Kubernetes,
    place::{Place, read_json},
};

/// How often the supervisor looks which nodes should run.
const LOOK: Duration = Duration::from_millis(500);

/// What brings a cluster one step nearer to the nodes that it should have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Start(&'static str),
    Stop(&'static str),
}

/// The next step from the nodes that run to the desired ones; none when they are the same.
fn plan(desired: &BTreeSet<&'static str>, running: &BTreeSet<&'static str>) -> Option<Step> {
    let stop = running.difference(desired).next().map(|name| Step::Stop(name));
    stop.or_else(|| desired.difference(running).next().map(|name| Step::Start(name)))
}

/// The desired nodes as the file has them: those of the start without one. What is no machine is left out.
pub(crate) fn desired(file: Option<&Value>) -> BTreeSet<&'static str> {
    match file.and_then(Value::as_array) {
        None => NODES.into(),
        Some(names) => MACHINES.into_iter().filter(|machine| names.iter().any(|name| name == machine)).collect(),
    }
}

/// The machine that the next node would be; `None` when all are nodes.
pub(crate) fn next(desired: &BTreeSet<&'static str>) -> Option<&'static str> {
    MACHINES.into_iter().find(|machine| !desired.contains(machine))
}

/// Starts and stops nodes without end.
pub(crate) async fn keep(place: &Place, settings: &Settings<'_>, kubernetes: &mut Kubernetes) {
    loop {
        let file = read_json(&place.nodes());
        match plan(&desired(file.as_ref()), &kubernetes.nodes()) {
            Some(Step::Start(name)) => kubernetes.start_node(settings, name),
            Some(Step::Stop(name)) => kubernetes.kill_node(name),
            None => tokio::time::sleep(LOOK).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_course_of_steps_ends_with_the_desired_nodes() {
        let subset = |bits: usize| -> BTreeSet<&'static str> {
            MACHINES.into_iter().enumerate().filter(|(index, _)| bits >> index & 1 == 1).map(|(_, name)| name).collect()
        };
        for from in 0..1 << MACHINES.len() {
            for to in 0..1 << MACHINES.len() {
                let (mut running, desired) = (subset(from), subset(to));
                let mut steps = 0;
                while let Some(step) = plan(&desired, &running) {
                    let changes = match step {
                        Step::Start(name) => running.insert(name),
                        Step::Stop(name) => running.remove(name),
                    };
                    steps += 1;
                    assert!(changes && steps <= MACHINES.len(), "{step:?} of {running:?} for {desired:?}");
                }
                assert_eq!(running, desired);
            }
        }
    }

    #[test]
    fn a_file_names_the_nodes_and_the_next_one_is_the_first_free_machine() {
        assert_eq!(desired(None), BTreeSet::from(NODES));
        let names = desired(Some(&json!(["node-0", "node-2", "node-99", 7])));
        assert_eq!(names, BTreeSet::from(["node-0", "node-2"]));
        assert_eq!(next(&names), Some("node-1"));
        assert_eq!(next(&BTreeSet::from(MACHINES)), None);
    }
}
