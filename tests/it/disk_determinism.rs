//! The same seed twice gives the same call log: the whole provider, over real sockets, in one thread on paused time.

use serde_json::json;

use super::disk_rig::{Rig, create_all, millis, numbered, pass, publish_all, seconds, typical, unpublish_all};

/// Method, path, status and time of every request.
async fn story(seed: u64) -> Vec<String> {
    let azure = lazuli_emulator::Options { seed, latency: lazuli_emulator::latency::Profile::azure(), ..typical() };
    let mut rig = Rig::with(azure, |options| options.seed = seed).await;
    let client = rig.controller().await;
    rig.incident(json!({"match": {"method": "PUT", "nth": 3}, "then": {"status": 503}}));
    rig.incident(json!({"match": {"method": "POST"}, "then": {"status": 429, "retryAfter": 3}}));
    rig.incident(json!({"match": {"method": "POST", "nth": 3}, "then": {"loseAnswer": "after"}}));
    let volumes = create_all(&client, &numbered(12)).await;
    for node in ["node-0", "node-1"] {
        let half = if node == "node-0" { &volumes[..6] } else { &volumes[6..] };
        for result in publish_all(&client, half, node).await {
            result.unwrap();
        }
        pass(millis(300)).await;
        for result in unpublish_all(&client, half, node).await {
            result.unwrap();
        }
    }
    pass(seconds(60)).await;
    rig.at_rest().await;
    rig.check();
    let log = rig.control.call_log();
    let told = log.iter().map(|call| {
        format!("{:>8} {} {} {} {}", call.at_ms, call.method, call.path, call.status, call.latency_ms.unwrap_or(0))
    });
    let told = told.collect();
    rig.stop().await;
    told
}

#[tokio::test(start_paused = true)]
async fn disk_the_same_seed_twice_gives_the_same_call_log() {
    let (first, second) = (story(7).await, story(7).await);
    for (at, (a, b)) in first.iter().zip(&second).enumerate() {
        assert_eq!(a, b, "request {at}");
    }
    assert_eq!(first.len(), second.len());
    assert_ne!(first, story(8).await);
}
