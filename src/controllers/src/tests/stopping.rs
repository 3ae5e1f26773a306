//! What ends, and what goes on, when the process is told to stop.

use lazuli_emulator::incident::{Effect, Incident, Match};

use super::*;

/// The lease lasts 15 s, and is renewed until what is in flight has ended.
#[tokio::test(start_paused = true)]
async fn an_answer_that_comes_longer_after_the_stop_than_a_lease_lasts_is_taken() {
    let rig = Rig::start().await;
    let (stop, running) = rig.controller("one");
    let then = Effect { delay_ms: Some(25_000), ..Effect::default() };
    let matching =
        Match { method: Some("PUT".to_owned()), path: Some("*/publicIPAddresses/*".to_owned()), ..Match::default() };
    let control = rig.emulator.control();
    control.add_incident(Incident { matching, then, times: 1 }).unwrap();
    rig.service("web");
    while control.incidents().iter().all(|incident| incident.struck == 0) {
        sleep(Duration::from_millis(100)).await;
    }
    stop.cancel();
    let ended = tokio::time::timeout(Duration::from_secs(300), running).await.expect("the process ends");
    assert_eq!(ended.unwrap(), Ended::Stopped);
    let puts =
        control.call_log().into_iter().filter(|call| call.method == "PUT" && call.path.contains("publicIPAddresses"));
    assert_eq!(puts.map(|call| call.status).collect::<Vec<_>>(), [201]);
    assert_eq!(control.running_operations(), 0, "the process has not waited for what it had begun");
}
