//! What is counted of work on Services.

use lazuli_emulator::incident::{Effect, Incident, Match};
use lazuli_telemetry::go_names::GoNames;
use prometheus_client::registry::Registry;

use super::*;

/// How often each request was counted of a Service, and how often it failed.
fn counted(go: &GoNames, service: &str) -> Vec<(String, String)> {
    let mut page = String::new();
    go.write(&mut page);
    let of_service = |line: &&str| line.contains(&format!("source=\"default/{service}\""));
    let word = |line: &str, name: &str| {
        let rest = line.split_once(&format!("{name}=\"")).map(|(_, rest)| rest);
        rest.and_then(|rest| rest.split('"').next()).unwrap_or_default().to_owned()
    };
    let lines = page.lines().filter(of_service);
    let counts = lines.filter(|line| {
        line.starts_with("cloudprovider_azure_op_duration_seconds_count")
            || line.starts_with("cloudprovider_azure_op_failure_count")
    });
    counts
        .map(|line| {
            let kind = if line.contains("failure") { "failed" } else { "all" };
            let request = word(line, "request").replace("services_", "");
            (format!("{kind} {request}"), line.rsplit(' ').next().unwrap_or_default().to_owned())
        })
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_service_that_is_made_refused_once_and_deleted_is_counted_as_the_go_manager_does() {
    let mut rig = Rig::start().await;
    let go = GoNames::on();
    rig.operations = Operations::register(&mut Registry::default(), go.clone(), &rig.settings);
    let (stop, running) = rig.controller("one");
    rig.service("web");
    rig.addresses("web").await;
    let then = Effect { status: Some(403), code: Some("AuthorizationFailed".to_owned()), ..Effect::default() };
    let matching =
        Match { method: Some("PUT".to_owned()), path: Some("*/publicIPAddresses/*".to_owned()), ..Match::default() };
    rig.emulator.control().add_incident(Incident { matching, then, times: 1 }).unwrap();
    rig.service("refused");
    rig.addresses("refused").await;
    sleep(Duration::from_secs(60)).await;
    let pair = |one: &str, count: &str| (one.to_owned(), count.to_owned());
    assert_eq!(counted(&go, "web"), [pair("all ensure_loadbalancer", "1")]);
    assert_eq!(
        counted(&go, "refused"),
        [pair("all ensure_loadbalancer", "2"), pair("failed ensure_loadbalancer", "1")]
    );
    rig.server.delete("services", "default", "web").unwrap();
    sleep(Duration::from_secs(120)).await;
    assert_eq!(
        counted(&go, "web"),
        [pair("all ensure_loadbalancer", "1"), pair("all ensure_loadbalancer_deleted", "1")]
    );
    stop.cancel();
    running.await.unwrap();
}
