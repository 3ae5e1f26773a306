//! A Service that a policy of Azure refuses is no matter of the others.

use lazuli_emulator::incident::{Effect, Incident, Match};
use lazuli_model::ServiceKey;
use lazuli_services::ask::names::BaseName;

use super::*;

impl Rig {
    /// The front-end ports of the public load balancer, as Azure has it now.
    fn ports_now(&self) -> Vec<u64> {
        let id = self.settings.load_balancer_id("kubernetes").unwrap();
        let body = self.emulator.control().store(|store| store.document(id.as_str())).unwrap_or_default();
        let rules = body["properties"]["loadBalancingRules"].as_array().cloned().unwrap_or_default();
        rules.iter().filter_map(|rule| rule["properties"]["frontendPort"].as_u64()).collect()
    }

    /// Changes the port of a Service, and returns how long it took until its load balancer served it.
    async fn time_to_port(&self, name: &str, port: u64) -> Duration {
        let mut service = self.server.get("services", "default", name).unwrap();
        service["spec"]["ports"] = json!([{"port": port}]);
        self.server.put("services", service).unwrap();
        let began = Instant::now();
        while !self.ports_now().contains(&port) {
            assert!(began.elapsed() < Duration::from_secs(600), "{name}: {:#?}", self.writes());
            sleep(Duration::from_millis(100)).await;
        }
        began.elapsed()
    }

    fn denied(&self) -> usize {
        self.emulator.control().call_log().iter().filter(|call| call.status == 403).count()
    }
}

#[tokio::test(start_paused = true)]
async fn a_service_that_a_policy_refuses_for_an_hour_delays_none_of_fifty_others() {
    let rig = Rig::start().await;
    let name = |at: u64| format!("web-{at}");
    (0..50).for_each(|at| _ = rig.service(&name(at)));
    let (stop, running) = rig.controller("one");
    for at in 0..50 {
        rig.addresses(&name(at)).await;
    }
    sleep(Duration::from_secs(60)).await;
    let mut bound = Duration::ZERO;
    for at in 0..5 {
        bound = bound.max(rig.time_to_port(&name(at), 7_000 + at).await);
        sleep(Duration::from_secs(30)).await;
    }

    let none = json!({"metadata": {"name": "bad"}, "spec": {"type": "ClusterIP", "ports": [{"port": 80}]}});
    let mut bad = rig.server.put("services", none).unwrap();
    let base = BaseName::of(&ServiceKey::new("default", "bad", bad["metadata"]["uid"].as_str().unwrap()));
    let matching = Match {
        method: Some("PUT".to_owned()),
        path: Some("*/loadBalancers/*".to_owned()),
        body_contains: Some(base.as_str().to_owned()),
        ..Match::default()
    };
    let then = Effect { status: Some(403), code: Some("RequestDisallowedByPolicy".to_owned()), ..Effect::default() };
    rig.emulator.control().add_incident(Incident { matching, then, times: 0 }).unwrap();
    bad["spec"]["type"] = json!("LoadBalancer");
    rig.server.put("services", bad).unwrap();
    rig.until("the owner is told", async || {
        rig.events("bad").iter().any(|(_, note)| note.contains("RequestDisallowedByPolicy"))
    })
    .await;

    let began = Instant::now();
    for at in 0..50 {
        let took = rig.time_to_port(&name(at), 9_000 + at).await;
        assert!(took <= bound + Duration::from_secs(10), "{}: {took:?}, without the policy {bound:?}", name(at));
        sleep(Duration::from_secs(72).saturating_sub(took)).await;
    }
    assert!(began.elapsed() >= Duration::from_secs(3_600));
    assert!((5..40).contains(&rig.denied()), "{} writes were denied", rig.denied());

    rig.emulator.control().clear_incidents();
    rig.addresses("bad").await;
    stop.cancel();
    running.await.unwrap();
}
