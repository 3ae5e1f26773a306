//! Whether Azure answers this process, for `/readyz`.
//!
//! Every call of the driver that succeeds proves it. Where none has of late, a disk that does not exist is read: that
//! needs a token, the resource manager and the right to read disks, and costs one small request.

use std::time::Duration;

use lazuli_assembly::clients::Azure;
use lazuli_azure::{Until, error::ArmError};
use lazuli_csi::server::chain;
use lazuli_model::{ArmId, fault::Fault};
use lazuli_telemetry::Condition;
use tokio::time::sleep;

/// How long Azure, or the cluster, may fail without a break before a process that was ready is not ready.
pub(super) const TOLERANCE: Duration = Duration::from_secs(5 * 60);
/// How old a success may be that still proves that Azure answers.
const FRESH: Duration = Duration::from_secs(60);
/// How soon after a failure Azure is asked again.
const AGAIN: Duration = Duration::from_secs(15);
/// How long one answer may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// The disk that is asked for. The names of the driver's own disks begin with pvc or with what a class says.
const NOBODYS: &str = "lazuli-readiness-check";

/// Keeps the condition true to what Azure answers, until dropped.
pub(super) async fn keep(azure: &Azure, condition: &Condition) {
    loop {
        let pause = match answers(azure).await {
            Ok(()) => {
                condition.ready(format!("the resource manager {} answers", azure.cloud.resource_manager));
                FRESH
            }
            Err(why) => {
                condition.not_ready(why);
                AGAIN
            }
        };
        sleep(pause).await;
    }
}

async fn answers(azure: &Azure) -> Result<(), String> {
    if azure.metrics.last_success().is_some_and(|at| at.elapsed() < FRESH) {
        return Ok(());
    }
    let disk = ArmId::disk(&azure.defaults.subscription, &azure.defaults.resource_group, NOBODYS);
    let disk = disk.map_err(|error| format!("subscriptionId and resourceGroup name no place: {}", chain(&error)))?;
    match azure.compute.get_disk(&disk, &Until::within(PATIENCE)).await {
        Ok(_) => Ok(()),
        Err(error) if is_an_answer(&error) => Ok(()),
        Err(error) => Err(format!("Azure cannot be read: {}", chain(&error))),
    }
}

/// That exactly this disk does not exist is what was expected.
fn is_an_answer(error: &ArmError) -> bool {
    error.fault == Fault::NotFound
}

#[cfg(test)]
#[cfg(feature = "emulator")]
mod tests {
    use lazuli_assembly::clients;
    use lazuli_azure::transport::Routes;
    use lazuli_emulator::{Control, Emulator};
    use prometheus_client::registry::Registry;
    use serde_json::json;

    use super::*;
    use lazuli_config::{Config, Document, Environment};
    use lazuli_rig::azure_json;
    use lazuli_telemetry::Readiness;

    async fn azure() -> (Emulator, Control, Azure) {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let options = lazuli_emulator::Options::default();
        let scenario = options.scenario.clone();
        let running = Emulator::start(options).await.unwrap();
        let document = azure_json(&scenario, &running.url()).to_string();
        let document = Document::parse("the embedded Azure", document.as_bytes()).unwrap();
        let config = Config::from_documents(Some(&document), None, &Environment::new(&Default::default())).unwrap();
        let azure = clients::connect(&config, Routes::none(), &mut Registry::default(), 1).await.unwrap();
        let control = running.control();
        (running, control, azure)
    }

    fn refuse(control: &Control, path: &str, status: u16, code: &str) {
        let incident = json!({"match": {"path": path}, "then": {"status": status, "code": code}, "times": 0});
        control.add_incident(serde_json::from_value(incident).unwrap()).unwrap();
    }

    fn reads(control: &Control) -> usize {
        control.call_log().iter().filter(|call| call.path.contains(NOBODYS)).count()
    }

    #[tokio::test(start_paused = true)]
    async fn azure_is_ready_after_a_token_and_a_read_and_not_after_five_minutes_of_failure() {
        for (path, status, code) in [
            ("*/oauth2/*", 400, "unauthorized_client"),
            ("*/disks/*", 403, "AuthorizationFailed"),
            ("*/disks/*", 503, "ServerBusy"),
            ("*/disks/*", 404, "ResourceGroupNotFound"),
        ] {
            let (_running, control, azure) = azure().await;
            let readiness = Readiness::new();
            let condition = readiness.tolerant_condition("azure", TOLERANCE);
            refuse(&control, path, status, code);
            let kept = keep(&azure, &condition);
            let story = async {
                let pass = async |seconds| sleep(Duration::from_secs(seconds)).await;
                pass(90).await;
                let (ready, words) = readiness.describe();
                assert!(!ready && words.contains("Azure cannot be read"), "{code}: {words}");
                control.clear_incidents();
                pass(50).await;
                assert!(readiness.is_ready(), "{code}: {}", readiness.describe().1);
                // Once a minute, while nothing else is asked.
                let before = reads(&control);
                pass(600).await;
                assert!((9..=11).contains(&(reads(&control) - before)));
                if path != "*/oauth2/*" {
                    refuse(&control, path, status, code);
                    pass(290).await;
                    assert!(readiness.is_ready(), "{code}: {}", readiness.describe().1);
                    pass(120).await;
                    let (ready, words) = readiness.describe();
                    assert!(!ready && words.contains(code), "{code}: {words}");
                    control.clear_incidents();
                    pass(50).await;
                    assert!(readiness.is_ready(), "{code}: {}", readiness.describe().1);
                }
            };
            tokio::select! {
                () = kept => {}
                () = story => {}
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_succeeds_proves_that_azure_answers_and_saves_the_read() {
        let (_running, control, azure) = azure().await;
        let readiness = Readiness::new();
        let condition = readiness.tolerant_condition("azure", TOLERANCE);
        let defaults = &azure.defaults;
        let list = async || {
            let until = Until::within(PATIENCE);
            azure.compute.list_vms(&defaults.subscription, &defaults.resource_group, &until).await.unwrap();
        };
        list().await;
        let story = async {
            for _ in 0..20 {
                sleep(Duration::from_secs(30)).await;
                assert!(readiness.is_ready());
                list().await;
            }
        };
        tokio::select! {
            () = keep(&azure, &condition) => {}
            () = story => {}
        }
        assert_eq!(reads(&control), 0);
    }
}
