//! The watch of Nodes against an API server inside the test; time is paused.

use std::time::Duration;

use lazuli_model::node::Place;
use lazuli_telemetry::Readiness;
use serde_json::{Value, json};
use tokio::{task::JoinHandle, time::sleep};

use super::*;
use crate::fake::{FakeApiServer, Mood};

const VM: &str = "/subscriptions/s/resourceGroups/other/providers/Microsoft.Compute/virtualMachines/vm-0";

fn node(name: &str, provider_id: &str, ready: &str, taint: &str) -> Value {
    json!({
        "kind": "Node", "apiVersion": "v1",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "kubernetes.azure.com/resource-group": "g"}},
        "spec": {"providerID": provider_id, "taints": [{"key": taint, "effect": "NoExecute"}], "podCIDR": "10.0.0.0/24"},
        "status": {"conditions": [
            {"type": "MemoryPressure", "status": "True"}, {"type": "Ready", "status": ready, "reason": "x"}]},
    })
}

struct Watched {
    nodes: watch::Receiver<ClusterNodes>,
    readiness: Readiness,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Watched {
    fn start(server: &FakeApiServer) -> Self {
        let (tell, nodes) = watch::channel(ClusterNodes::default());
        let (stop, readiness) = (CancellationToken::new(), Readiness::new());
        let live = readiness.tolerant_condition("nodes", Duration::from_secs(300));
        let task = tokio::spawn(watch_nodes(Some(server.client()), tell, live, stop.clone()));
        Self { nodes, readiness, stop, task }
    }

    async fn until(&mut self, is_so: impl Fn(&ClusterNodes) -> bool) {
        let waiting = self.nodes.wait_for(|nodes| is_so(nodes));
        if tokio::time::timeout(Duration::from_secs(600), waiting).await.is_err() {
            panic!("{:?}", *self.nodes.borrow());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_is_the_machine_that_its_provider_id_names_and_dead_when_it_is_not_ready_or_out_of_service() {
    let server = FakeApiServer::default();
    server.put(NODES, node("n0", &format!("azure://{VM}"), "True", "dedicated"));
    server.put(NODES, node("n1", "", "Unknown", "dedicated"));
    server.put(NODES, node("n2", "kind://docker/x", "True", OUT_OF_SERVICE));
    // A Node as kubelet makes it before anything else is known.
    server.put(NODES, json!({"metadata": {"name": "new"}}));
    // As Go writes lists and maps that it does not have.
    let (spec, status) = (json!({"taints": null}), json!({"conditions": null}));
    server.put(NODES, json!({"metadata": {"name": "nulls", "labels": null}, "spec": spec, "status": status}));
    let mut watched = Watched::start(&server);
    assert!(!watched.readiness.is_ready());
    watched.until(|nodes| *nodes != ClusterNodes::Cold).await;
    assert!(watched.readiness.is_ready());
    let nodes = watched.nodes.borrow().clone();
    assert_eq!(nodes.place("n0"), Some(Place::Named(Machine::Vm(VM.parse().unwrap()))));
    assert_eq!(nodes.place("n1"), Some(Place::Group("g".into())));
    assert_eq!(nodes.place("new"), Some(Place::ByName));
    assert_eq!(nodes.place("nulls"), Some(Place::ByName));
    assert_eq!(
        nodes.name_of(&VM.to_uppercase().replace("SUBSCRIPTIONS", "subscriptions").parse().unwrap()),
        Some("n0")
    );
    let dead = ["n0", "n1", "n2", "new", "nulls", "gone"].map(|name| nodes.is_dead(name));
    assert_eq!(dead, [false, true, true, true, true, true]);
    watched.stop.cancel();
    watched.task.await.unwrap();
    assert!(!watched.nodes.borrow().is_dead("gone"), "the watch has ended");
}

#[tokio::test(start_paused = true)]
async fn a_watch_publishes_changes_and_kubelets_reports_publish_nothing() {
    let server = FakeApiServer::default();
    server.put(NODES, node("n0", "", "True", "dedicated"));
    let mut watched = Watched::start(&server);
    watched.until(|nodes| !nodes.is_dead("n0") && *nodes != ClusterNodes::Cold).await;
    server.put(NODES, node("n0", &format!("azure://{VM}"), "True", "dedicated"));
    watched.until(|nodes| matches!(nodes.place("n0"), Some(Place::Named(_)))).await;
    watched.nodes.mark_unchanged();
    let mut report = node("n0", &format!("azure://{VM}"), "True", "dedicated");
    report["status"]["conditions"][1]["lastHeartbeatTime"] = json!("2026-01-01T00:00:00Z");
    server.put(NODES, report);
    server.bookmark();
    sleep(Duration::from_secs(5)).await;
    assert!(!watched.nodes.has_changed().unwrap());
    server.put(NODES, node("n0", &format!("azure://{VM}"), "Unknown", "dedicated"));
    watched.until(|nodes| nodes.is_dead("n0")).await;
    server.delete(NODES, "n0");
    watched.until(|nodes| nodes.place("n0") == Some(Place::ByName) && nodes.is_dead("n0")).await;
    assert_eq!(watched.nodes.borrow().has_machine(&VM.parse().unwrap()), Some(false));
}

#[tokio::test(start_paused = true)]
async fn what_is_known_stays_while_the_api_server_is_silent_but_a_missing_node_says_nothing() {
    let server = FakeApiServer::default();
    server.put(NODES, node("n0", &format!("azure://{VM}"), "True", "dedicated"));
    let mut watched = Watched::start(&server);
    watched.until(|nodes| nodes.is_dead("gone")).await;
    server.mood(NODES, Mood::Hangs);
    server.drop_watches(true);
    watched.until(|nodes| !nodes.is_dead("gone")).await;
    assert_eq!(watched.nodes.borrow().place("n0"), Some(Place::Named(Machine::Vm(VM.parse().unwrap()))));
    assert_eq!(watched.nodes.borrow().has_machine(&VM.replace("vm-0", "vm-1").parse().unwrap()), None);
    server.mood(NODES, Mood::Answers);
    watched.until(|nodes| nodes.is_dead("gone")).await;
}

#[tokio::test(start_paused = true)]
async fn a_role_without_nodes_leaves_them_unknown_and_the_process_not_ready() {
    let server = FakeApiServer::default();
    server.mood(NODES, Mood::Forbids);
    let watched = Watched::start(&server);
    sleep(Duration::from_secs(60)).await;
    assert_eq!(*watched.nodes.borrow(), ClusterNodes::Cold);
    assert!(!watched.readiness.is_ready());
    let (_, report) = watched.readiness.describe();
    assert!(report.contains("Nodes cannot be watched: not allowed (403)"), "{report}");
}
