//! What a person is told of a volume that cannot be staged.

use lazuli_model::event::{Claim, Event, Reason, Regarding};
use lazuli_telemetry::lossy;
use prometheus_client::metrics::counter::Counter;

use super::*;

const UID: &str = "0b7c6a52-3c1e-4d3a-9a53-0a6b9a0c2f11";

/// A machine with a disk at LUN 3, and the events that it sends.
async fn machine() -> (Machine, lossy::Receiver<Event>) {
    let (events, sent) = lossy::channel(10, Counter::default());
    let config = NodeConfig { timeouts: machine::impatient(), events, ..NodeConfig::new("node-1") };
    let mut machine = Machine::configured(config).await;
    machine.attach(3, "a");
    (machine, sent)
}

#[tokio::test]
async fn a_refused_format_is_told_on_the_claim_that_the_volume_context_names_else_on_the_node() {
    if !able() {
        return;
    }
    let (mut machine, mut sent) = machine().await;
    fs::write(&machine.disk(0).node, vec![7; 4096]).unwrap();
    let mut request = machine.stage_request(3, "a", mounted_as("ext4"));
    let claim = Claim { namespace: "db".into(), name: "data-0".into(), uid: Some(UID.into()) };
    for expected in [Regarding::Node("node-1".into()), Regarding::Claim(claim)] {
        let (code, message) = code(machine.stage(request.clone()).await);
        assert_eq!(code, Grpc::FailedPrecondition, "{message}");
        let event = sent.try_receive().unwrap();
        assert_eq!((event.regarding, event.reason), (expected, Reason::FormatRefused));
        assert!(event.note.starts_with("Disk a on node node-1: /"), "{}", event.note);
        assert!(event.note.contains("is not blank") && event.note.contains("another machine"), "{}", event.note);
        assert_eq!(sent.try_receive(), None);
        let pv = format!("pvc-{UID}");
        let metadata = [("pvc/name", "data-0"), ("pvc/namespace", "db"), ("pv/name", &*pv)];
        let metadata = metadata.map(|(key, value)| (format!("csi.storage.k8s.io/{key}"), value.to_owned()));
        request.volume_context.extend(metadata);
    }
}

#[tokio::test]
async fn an_identity_that_nothing_confirms_is_told_the_same_way_each_time_and_a_success_is_not_told() {
    if !able() {
        return;
    }
    let (mut machine, mut sent) = machine().await;
    machine.metadata.lock().unwrap().down = true;
    let mut notes = Vec::new();
    for _ in 0..2 {
        assert_eq!(code(machine.stage_as(3, "a", mounted_as("ext4")).await).0, Grpc::Unavailable);
        // The message changes after a minute.
        machine.service.0.identity_checks.age(Duration::from_secs(60));
        let event = sent.try_receive().unwrap();
        assert_eq!(event.reason, Reason::IdentityUnconfirmed);
        notes.push(event.note);
    }
    assert_eq!(notes[0], notes[1]);
    machine.metadata.lock().unwrap().down = false;
    machine.stage_as(3, "a", mounted_as("ext4")).await.unwrap();
    assert_eq!(sent.try_receive(), None);
}
