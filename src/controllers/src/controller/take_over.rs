//! The plan without a write, and the first leadership after another controller.

use lazuli_azure::error::ArmError;
use lazuli_cluster::{read_mark, write_mark};
use lazuli_plan::{balancing::preview::Planned, engine::Acceptance};
use tracing::{error, warn};

use super::{AGAIN, Controller};
use crate::preview;

/// The annotation of the Lease that says that a replica of this program has taken the Services over.
const TAKEN_OVER: &str = "lazuli.azure/services-taken-over";

impl Controller {
    /// What the controller would write if it led now, without a write. What other writers change meanwhile is not in it.
    ///
    /// # Errors
    /// When Azure cannot be read.
    pub async fn dry_run(self) -> Result<Vec<Planned>, ArmError> {
        // What the start reads is what the plan is made from.
        self.informed.told().evidence.is_of_leader = true;
        let previewing = async {
            self.informed.listed.notified().await;
            self.preview(true).await
        };
        tokio::select! {
            planned = previewing => planned,
            () = self.feed() => Ok(vec![]),
        }
    }

    /// What would be written now; on request also for Services that are to go.
    async fn preview(&self, with_going: bool) -> Result<Vec<Planned>, ArmError> {
        // Machines decide where Services belong.
        self.look_for_machines().await;
        let services = self.informed.told().services.clone().unwrap_or_default();
        let snapshots = services.values().filter_map(|service| Some((&service.object.key, self.snapshot(service)?)));
        let subjects = snapshots.filter_map(|(key, snapshot)| preview::subject(key, snapshot));
        let subjects: Vec<_> = subjects.filter(|subject| with_going || subject.spec.is_some()).collect();
        self.informed.preview(&subjects).await
    }

    /// Decides at the first leadership whether changes that remove or replace something wait for the operator. Who led before
    /// is written on the Lease.
    pub(super) async fn take_over(&self) {
        let (api, lease) = (&self.informed.api.client, &self.options.lease);
        let accepted = match read_mark(api, lease, TAKEN_OVER).await {
            Ok(mark) => mark.is_some() || self.options.accepts_plan,
            Err(error) => {
                warn!(%error, "the Lease cannot be read; changes that remove or replace something wait");
                self.options.accepts_plan
            }
        };
        self.informed.listed.notified().await;
        if !accepted {
            loop {
                match self.preview(false).await {
                    Ok(planned) => {
                        let held: Vec<&Planned> = planned.iter().filter(|one| one.replaces).collect();
                        if held.is_empty() {
                            break;
                        }
                        for one in held {
                            warn!("the take-over would change {one}");
                        }
                        error!(
                            "changes that remove or replace something or let more sources in wait: look at them, then start with \
                             --accept-plan"
                        );
                        return;
                    }
                    Err(error) => {
                        error!(%error, "the plan of the take-over cannot be made; it is tried again");
                        tokio::time::sleep(AGAIN).await;
                    }
                }
            }
        }
        self.informed.told().acceptance = Acceptance::Given;
        self.informed.wake_all();
        // Members may leave the pools now.
        self.informed.replan_load_balancers(None);
        if let Err(error) = write_mark(api, lease, TAKEN_OVER).await {
            warn!(%error, "the take-over cannot be noted on the Lease (the role needs patch on leases)");
        }
    }
}
