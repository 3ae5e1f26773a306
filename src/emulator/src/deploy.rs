//! The tasks behind deployments: they write the resources of a template, each when those that it waits for have ended.
//!
//! What is written when is decided by [`next`], of what has been planned and of how each write stands. The task does what it
//! says and looks again when something can have ended.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderValue};

use crate::answer::{Context, Request};
use crate::arm;
use crate::arm::resources::template::{Deployment, Planned};
use crate::fault::{self, Fault};
use crate::operations::Status;
use crate::path::ArmPath;
use crate::spawn;
use crate::state::Shared;

/// How long the task rests between two looks at writes that wait for the hypervisor.
const REST: Duration = Duration::from_millis(50);

/// How the write of a resource stands.
#[derive(Clone, Debug, PartialEq)]
enum Stand {
    Waiting,
    /// Its operation.
    Running(String),
    Done,
    Failed(Fault),
}

impl Stand {
    fn failure(&self) -> Option<&Fault> {
        match self {
            Self::Failed(fault) => Some(fault),
            _ => None,
        }
    }
}

/// What the task does next.
#[derive(Debug, PartialEq)]
enum Next {
    /// Writes these, by their places.
    Write(Vec<usize>),
    /// Waits for what runs.
    Wait,
    /// All has ended.
    End(Result<(), Fault>),
}

/// After a failure nothing new begins, and what runs ends.
fn next(steps: &[Planned], stands: &[Stand]) -> Next {
    let failures: Vec<&Fault> = stands.iter().filter_map(Stand::failure).collect();
    let is_done = |at: &usize| stands.get(*at) == Some(&Stand::Done);
    let ready: Vec<usize> = (0..steps.len())
        .filter(|at| stands.get(*at) == Some(&Stand::Waiting) && steps[*at].after.iter().all(is_done))
        .collect();
    if failures.is_empty() && !ready.is_empty() {
        return Next::Write(ready);
    }
    if stands.iter().any(|stand| matches!(stand, Stand::Running(_))) {
        return Next::Wait;
    }
    Next::End(if failures.is_empty() { Ok(()) } else { Err(fault::deployment_failed(&failures)) })
}

/// Carries a deployment to its end.
pub(crate) fn carry_out(shared: &Arc<Shared>, deployment: Deployment) {
    let task = Arc::clone(shared);
    tokio::spawn(async move {
        let stop = task.stop.clone();
        tokio::select! {
            () = stop.cancelled() => {}
            () = run(&task, &deployment) => {}
        }
    });
}

async fn run(shared: &Arc<Shared>, deployment: &Deployment) {
    let steps = &deployment.steps;
    let mut stands = vec![Stand::Waiting; steps.len()];
    loop {
        match next(steps, &stands) {
            Next::Write(places) => {
                for at in places {
                    stands[at] = write(shared, deployment, &steps[at]);
                }
            }
            Next::Wait => wait(shared, &mut stands).await,
            Next::End(result) => {
                let mut state = shared.state();
                if let Err(fault) = result {
                    state.operations.fail_late(&deployment.operation, fault);
                }
                state.operations.release(&deployment.operation);
                drop(state);
                // What is due takes effect with the next look.
                drop(shared.state());
                shared.saver.changed();
                return;
            }
        }
    }
}

/// Writes a resource as a request of the caller would.
fn write(shared: &Arc<Shared>, deployment: &Deployment, step: &Planned) -> Stand {
    let Some(path) = ArmPath::parse(&step.id) else {
        return Stand::Failed(fault::invalid_template(format!("'{}' is no id of a resource", step.id)));
    };
    let request = Request {
        method: "PUT".to_owned(),
        raw_path: step.id.clone(),
        query: BTreeMap::from([("api-version".to_owned(), step.api_version.clone())]),
        api_version: step.api_version.clone(),
        headers: HeaderMap::from_iter([(http::header::CONTENT_TYPE, HeaderValue::from_static("application/json"))]),
        raw: step.body.to_string(),
        json: Some(step.body.clone()),
        base: deployment.base.clone(),
        late_failure: None,
        path,
    };
    let mut state = shared.state();
    let now = shared.clock.elapsed();
    let answered = arm::find("PUT", &request.path, &step.id, &step.api_version).and_then(|route| {
        state.roles.check(&deployment.principal, "PUT", &request.path)?;
        let asked = ("PUT", &request.path, request.json.as_ref());
        state.roles.check_linked(&deployment.principal, asked, state.switches.linked_access_in_group)?;
        let principal = &deployment.principal;
        route.answer(&mut Context { shared, state: &mut state, request: &request, now, principal })
    });
    let pending = std::mem::take(&mut state.pending);
    drop(state);
    for work in pending {
        spawn::carry_out(shared, work);
    }
    match answered {
        Err(fault) => Stand::Failed(fault),
        Ok(answer) => answer.started.map_or(Stand::Done, |(operation, _)| Stand::Running(operation)),
    }
}

/// Waits until something that runs can have ended, and looks how it stands.
async fn wait(shared: &Shared, stands: &mut [Stand]) {
    let due = {
        let state = shared.state();
        let running = stands.iter().filter_map(|stand| match stand {
            Stand::Running(operation) => state.operations.get(operation),
            _ => None,
        });
        running.map(|operation| operation.due).min()
    };
    let now = shared.clock.elapsed();
    match due.filter(|due| *due > now) {
        Some(due) => shared.clock.sleep_until(due).await,
        None => shared.clock.sleep_until(now + REST).await,
    }
    let state = shared.state();
    for stand in stands {
        let Stand::Running(operation) = &*stand else { continue };
        *stand = match state.operations.get(operation).map(|operation| &operation.status) {
            Some(Status::Running) => continue,
            Some(Status::Failed(fault) | Status::Canceled(fault)) => Stand::Failed(fault.clone()),
            Some(Status::Succeeded) | None => Stand::Done,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(after: &[usize]) -> Planned {
        Planned { id: String::new(), api_version: String::new(), body: serde_json::Value::Null, after: after.to_vec() }
    }

    #[test]
    fn each_resource_is_written_after_those_that_it_waits_for_and_none_after_a_failure() {
        let steps = [step(&[]), step(&[0]), step(&[]), step(&[1, 2])];
        let running = || Stand::Running("o".to_owned());
        let failed = Stand::Failed(fault::concurrent_request());
        let after = |stands: [Stand; 4]| next(&steps, &stands);
        use Stand::{Done, Waiting};
        assert_eq!(after([Waiting, Waiting, Waiting, Waiting]), Next::Write(vec![0, 2]));
        assert_eq!(after([running(), Waiting, Done, Waiting]), Next::Wait);
        assert_eq!(after([Done, Waiting, running(), Waiting]), Next::Write(vec![1]));
        assert_eq!(after([Done, running(), failed.clone(), Waiting]), Next::Wait);
        assert_eq!(after([Done, Done, Done, Done]), Next::End(Ok(())));
        let Next::End(Err(fault)) = after([Done, Waiting, failed, Waiting]) else { panic!() };
        assert_eq!((fault.code.as_str(), fault.details[0]["code"].as_str()), ("DeploymentFailed", Some("Conflict")));
    }
}
