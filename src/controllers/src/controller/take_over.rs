//! The plan without a write, and the first leadership after another controller.

use kube::{Client, api::ListParams, core::Request};
use lazuli_azure::error::ArmError;
use lazuli_balancing::preview::Planned;
use lazuli_cluster::{read_mark, write_mark};
use lazuli_engine::Acceptance;
use tracing::{error, warn};

use super::{AGAIN, Controller};
use crate::preview::{self, plan_hash};

/// The annotation of the Lease that says that a replica of this program has taken the Services over, and that no other
/// controller has led since.
const TAKEN_OVER: &str = "lazuli.azure/services-taken-over";

/// What a dry run lists of the cluster: what it is called, and where.
const LISTED: [(&str, &str); 2] = [("services", "/api/v1/services"), ("nodes", "/api/v1/nodes")];

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
pub enum DryRunError {
    /// The API server does not let this identity list something.
    #[error("the API server refuses the list of {resource} (the role needs list and watch on {resource}): {message}")]
    Refused {
        /// What.
        resource: &'static str,
        /// What the API server says.
        message: String,
    },
    /// Azure cannot be read.
    #[error(transparent)]
    Azure(#[from] ArmError),
}

/// Why a list that failed is of no use to repeat, as what runs on does: the API server knows who asks, and refuses it.
fn refusal(resource: &'static str, error: kube::Error) -> Option<DryRunError> {
    match error {
        kube::Error::Api(status) if matches!(status.code, 401 | 403) => {
            Some(DryRunError::Refused { resource, message: status.message.clone() })
        }
        _ => None,
    }
}

/// Asks for one object of each list.
async fn refused(api: &Client) -> Option<DryRunError> {
    for (resource, path) in LISTED {
        let one = Request::new(path).list(&ListParams::default().limit(1)).ok()?;
        if let Err(error) = api.request_text(one).await
            && let Some(refusal) = refusal(resource, error)
        {
            return Some(refusal);
        }
    }
    None
}

impl Controller {
    /// What the controller would write if it led now, without a write, and the hash by which the operator accepts what that
    /// removes or replaces. What other writers change meanwhile is not in it.
    ///
    /// # Errors
    /// [`DryRunError`].
    pub async fn dry_run(self) -> Result<(Vec<Planned>, Option<String>), DryRunError> {
        if let Some(refused) = refused(&self.informed.api.client).await {
            return Err(refused);
        }
        // What the start reads is what the plan is made from.
        self.informed.told().evidence.is_of_leader = true;
        let previewing = async {
            self.informed.listed.notified().await;
            let held = self.preview(false).await?;
            Ok((self.preview(true).await?, plan_hash(&held)))
        };
        tokio::select! {
            planned = previewing => planned,
            () = self.feed() => Ok((vec![], None)),
        }
    }

    /// What would be written now; on request also for Services that are to go.
    async fn preview(&self, with_going: bool) -> Result<Vec<Planned>, ArmError> {
        // Machines decide where Services belong.
        self.look_for_machines().await;
        self.discover().await;
        let services = self.informed.told().services.clone().unwrap_or_default();
        let (mut subjects, mut refused) = (Vec::new(), Vec::new());
        for service in services.values() {
            let Some(snapshot) = self.snapshot(service) else { continue };
            match preview::subject(&service.object.key, snapshot) {
                Ok(subject) => subjects.extend((with_going || subject.spec.is_some()).then_some(subject)),
                Err(planned) => refused.push(*planned),
            }
        }
        let mut planned = self.informed.preview(&subjects).await?;
        planned.extend(refused);
        Ok(planned)
    }

    /// Decides at the first leadership whether changes that remove or replace something wait for the operator. Who led before
    /// is written on the Lease.
    pub(super) async fn take_over(&self) {
        let (api, lease) = (&self.informed.api.client, &self.options.lease);
        let is_taken_over = read_mark(api, lease, TAKEN_OVER).await.unwrap_or_else(|error| {
            warn!(%error, "the Lease cannot be read; changes that remove or replace something wait");
            false
        });
        self.informed.listed.notified().await;
        if !is_taken_over && !self.is_accepted().await {
            return;
        }
        self.informed.told().acceptance = Acceptance::Given;
        self.informed.wake_all();
        // Members may leave the pools now.
        self.informed.replan_load_balancers(None);
        if let Err(error) = write_mark(api, lease, TAKEN_OVER).await {
            warn!(%error, "{}", not_noted(&error));
        }
    }

    /// Whether the plan of the take-over removes and replaces nothing, or is the one that the operator has accepted.
    async fn is_accepted(&self) -> bool {
        loop {
            let previewed = self.preview(false).await;
            let lacks_evidence = self.informed.lacks_evidence();
            match next(lacks_evidence, previewed, self.options.accepted_plan.as_deref()) {
                Next::Begin => return true,
                Next::LookAgain => self.look_again().await,
                Next::TryAgain(error) => {
                    error!(%error, "the plan of the take-over cannot be made; it is tried again");
                    tokio::time::sleep(AGAIN).await;
                }
                Next::AskOperator { hash, changes } => {
                    for one in changes {
                        warn!(changes = one.changes.join("; "), "the take-over would change {}", one.object);
                    }
                    error!(
                        accepted = self.options.accepted_plan.as_deref(),
                        "changes that remove or replace something or let more sources in wait: look at them, then start \
                         with --accept-plan={hash}"
                    );
                    return false;
                }
            }
        }
    }

    /// Reads what Services with a mistake are read beside, or waits before that is tried again.
    async fn look_again(&self) {
        self.informed.look_at_evidence().await;
        if self.informed.lacks_evidence() {
            tokio::time::sleep(AGAIN).await;
        }
    }
}

/// What is said when the mark of the take-over cannot be written.
fn not_noted(error: &kube::Error) -> &'static str {
    match error {
        kube::Error::Api(status) if status.code == 403 => {
            "the take-over cannot be noted on the Lease (the role needs patch on leases)"
        }
        _ => "the take-over cannot be noted on the Lease",
    }
}

/// What follows from a plan of a take-over.
#[derive(Debug)]
enum Next {
    /// Nothing that waits for the operator is left: the controller writes.
    Begin,
    /// A Service with a mistake is read by what load balancers show. Before that is known the Service is in no plan, and
    /// what it changes would come without the operator's word.
    LookAgain,
    /// There is no plan.
    TryAgain(ArmError),
    /// The operator decides about these changes, and accepts them by the hash.
    AskOperator { hash: String, changes: Vec<Planned> },
}

/// What follows from a plan that was made while evidence about Services lacked or not. `accepted` is the hash of the plan
/// that the operator has accepted.
fn next(lacks_evidence: bool, previewed: Result<Vec<Planned>, ArmError>, accepted: Option<&str>) -> Next {
    if lacks_evidence {
        return Next::LookAgain;
    }
    let planned = match previewed {
        Ok(planned) => planned,
        Err(error) => return Next::TryAgain(error),
    };
    match plan_hash(&planned) {
        Some(hash) if accepted != Some(&hash) => {
            let changes = planned.into_iter().filter(|one| one.replaces).collect();
            Next::AskOperator { hash, changes }
        }
        _ => Next::Begin,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(replaces: bool) -> Planned {
        let changes = vec!["rule web goes".to_owned()];
        Planned { object: "load balancer kubernetes".into(), changes, replaces, ..Planned::default() }
    }

    #[test]
    fn the_role_is_blamed_only_where_the_api_server_forbids_the_mark() {
        let answered = |code: u16| {
            let status = serde_json::json!({"status": "Failure", "message": "no", "reason": "", "code": code});
            not_noted(&kube::Error::Api(serde_json::from_value(status).unwrap()))
        };
        assert!(answered(403).contains("the role needs patch on leases"));
        for text in
            [answered(404), answered(409), answered(500), not_noted(&kube::Error::LinesCodecMaxLineLengthExceeded)]
        {
            assert_eq!(text, "the take-over cannot be noted on the Lease");
        }
    }

    #[test]
    fn what_the_api_server_refuses_is_told_at_once_and_what_may_pass_is_tried_again() {
        let answered = |code: u16| {
            let status = serde_json::json!({"status": "Failure", "message": "no", "reason": "", "code": code});
            let refusal = refusal("services", kube::Error::Api(serde_json::from_value(status).unwrap()));
            refusal.map(|refusal| refusal.to_string())
        };
        let refused = "the API server refuses the list of services (the role needs list and watch on services): no";
        assert_eq!([answered(403), answered(401)], [Some(refused.to_owned()), Some(refused.to_owned())]);
        assert_eq!([404, 429, 500, 503].map(answered), [const { None }; 4]);
        assert!(refusal("nodes", kube::Error::LinesCodecMaxLineLengthExceeded).is_none());
    }

    #[test]
    fn only_a_whole_plan_without_removals_or_the_accepted_one_begins_a_take_over() {
        assert!(matches!(next(false, Ok(vec![change(false)]), None), Next::Begin));
        let Next::AskOperator { hash, changes } = next(false, Ok(vec![change(false), change(true)]), None) else {
            panic!("the operator was not asked")
        };
        assert_eq!(changes.len(), 1);
        assert!(matches!(next(false, Ok(vec![change(true)]), Some(&hash)), Next::Begin));
        assert!(matches!(next(false, Ok(vec![change(true)]), Some("another")), Next::AskOperator { .. }));
        // No plan counts that was made while something was not known, the accepted one neither.
        for planned in [vec![], vec![change(false)], vec![change(true)]] {
            assert!(matches!(next(true, Ok(planned), Some(&hash)), Next::LookAgain));
        }
    }
}
