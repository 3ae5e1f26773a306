//! Detaches by force: only where the operator allows it, after an ordinary detach failed, and from a VM that Azure shows as
//! stopped.

use lazuli_model::event::{Event, Reason, Regarding};
use lazuli_storage::force_detach::ForceDetach;
use lazuli_telemetry::lossy;
use prometheus_client::metrics::counter::Counter;
use serde_json::{Value, json};
use tonic::Code;

use super::disk_rig::{Client, Method, Rig, create, pass, publish, refused, seconds, typical, unpublish, vm_id};

const NODE: &str = "node-0";

struct Stuck {
    rig: Rig,
    client: Client,
    volume: csi_proto::csi::Volume,
    events: lossy::Receiver<Event>,
}

impl Stuck {
    /// A node with a volume, whose VM is then switched off by this action.
    async fn new(method: Method, force_detach: ForceDetach, power_action: Option<&str>) -> Self {
        let (sender, events) = lossy::channel(100, Counter::default());
        let mut rig = Rig::with(typical(), |options| {
            method.set(options);
            options.force_detach = force_detach;
            options.events = sender;
        })
        .await;
        let client = rig.controller().await;
        let volume = create(&client, "pvc-a").await.unwrap();
        publish(&client, &volume, NODE).await.unwrap();
        if let Some(action) = power_action {
            let (status, answer) = rig.other_tool().call("POST", &format!("{}/{action}", vm_id(NODE)), None).await;
            assert_eq!(status, 202, "{answer}");
            rig.at_rest().await;
        }
        rig.control.reset_log();
        Self { rig, client, volume, events }
    }

    async fn unpublish(&self) -> Result<(), tonic::Status> {
        unpublish(&self.client, &self.volume.volume_id, NODE).await
    }

    /// How each write of the VM detaches the disk: `None` for an ordinary detach.
    fn options(&self) -> Vec<Value> {
        let option = |call: lazuli_emulator::call_log::Call| {
            let body = call.body.unwrap();
            let action = &body["dataDisksToDetach"][0];
            let list = &body["properties"]["storageProfile"]["dataDisks"][0];
            let element = if action.is_object() { action } else { list };
            assert!(action.is_object() || element["toBeDetached"] == true, "{body}");
            element["detachOption"].clone()
        };
        self.rig.vm_writes(NODE).into_iter().map(option).collect()
    }
}

/// Azure takes the writes of the VM, and their operations fail.
fn fails(times: u64, then: &Value) -> [Value; 2] {
    ["POST", "PUT"].map(|method| {
        let of = json!({"method": method, "path": format!("*/virtualMachines/{NODE}*")});
        json!({"match": of, "then": then, "times": times})
    })
}

fn late_failure() -> Value {
    json!({"lateFailure": {"code": "InternalExecutionError"}})
}

#[tokio::test(start_paused = true)]
async fn disk_a_detach_that_failed_is_repeated_by_force_from_a_stopped_vm_and_a_person_is_told() {
    for method in [Method::Action, Method::WholeList] {
        for power_action in ["deallocate", "powerOff"] {
            let mut stuck = Stuck::new(method, ForceDetach::StoppedVms, Some(power_action)).await;
            for incident in fails(1, &late_failure()) {
                stuck.rig.incident(incident);
            }
            refused(stuck.unpublish().await, Code::Unavailable);
            assert_eq!(stuck.options(), [Value::Null], "the first detach is an ordinary one");
            stuck.unpublish().await.unwrap();
            assert_eq!(stuck.options(), [Value::Null, json!("ForceDetach")], "{method:?} {power_action}");
            assert_eq!(stuck.rig.luns(NODE).len(), 0);
            let reported: Vec<Event> = std::iter::from_fn(|| stuck.events.try_receive()).collect();
            let [event] = &reported[..] else { panic!("{reported:?}") };
            assert_eq!((&event.regarding, event.reason), (&Regarding::Node(NODE.into()), Reason::ForceDetached));
            assert!(event.note.starts_with("Disk pvc-a was detached by force"), "{}", event.note);
            // The next detach begins as an ordinary one.
            let start = format!("{}/start", vm_id(NODE));
            assert_eq!(stuck.rig.other_tool().call("POST", &start, None).await.0, 202);
            stuck.rig.at_rest().await;
            publish(&stuck.client, &stuck.volume, NODE).await.unwrap();
            stuck.rig.control.reset_log();
            stuck.unpublish().await.unwrap();
            assert_eq!(stuck.options(), [Value::Null]);
            stuck.rig.check();
            stuck.rig.stop().await;
        }
    }
}

/// Each of these alone keeps a detach ordinary: the option is off; the VM runs; Azure refused the request.
#[tokio::test(start_paused = true)]
async fn disk_without_the_option_a_stopped_vm_and_a_failed_detach_nothing_is_forced() {
    let throttled = json!({"status": 429, "retryAfter": 300});
    let locked = json!({"status": 409, "code": "ScopeLocked"});
    for (force_detach, power_action, then) in [
        (ForceDetach::Off, Some("deallocate"), late_failure()),
        (ForceDetach::StoppedVms, None, late_failure()),
        (ForceDetach::StoppedVms, Some("deallocate"), throttled),
        (ForceDetach::StoppedVms, Some("deallocate"), locked),
    ] {
        let stuck = Stuck::new(Method::Action, force_detach, power_action).await;
        for incident in fails(0, &then) {
            stuck.rig.incident(incident);
        }
        for _ in 0..3 {
            stuck.unpublish().await.unwrap_err();
            pass(seconds(400)).await;
        }
        let options = stuck.options();
        assert!(options.len() >= 3 && options.iter().all(Value::is_null), "{force_detach:?} {then}: {options:?}");
        stuck.rig.stop().await;
    }
}

/// The failure is that of an attachment that is gone.
#[tokio::test(start_paused = true)]
async fn disk_a_disk_that_another_hand_has_attached_again_since_its_detach_failed_is_detached_without_force_first() {
    let stuck = Stuck::new(Method::Action, ForceDetach::StoppedVms, Some("powerOff")).await;
    for incident in fails(1, &late_failure()) {
        stuck.rig.incident(incident);
    }
    refused(stuck.unpublish().await, Code::Unavailable);
    stuck.rig.control.clear_incidents();
    let other = stuck.rig.other_tool();
    assert_eq!(other.detach(NODE, &["pvc-a"]).await, 202);
    stuck.rig.at_rest().await;
    pass(seconds(20)).await;
    assert_eq!(other.attach(NODE, &[("pvc-a", 5)]).await, 202);
    stuck.rig.at_rest().await;
    pass(seconds(20)).await;
    stuck.rig.control.reset_log();
    stuck.unpublish().await.unwrap();
    assert_eq!(stuck.options(), [Value::Null]);
    assert_eq!(stuck.rig.luns(NODE).len(), 0);
    stuck.rig.check();
    stuck.rig.stop().await;
}

/// A VM that could not be read is no detach that failed: nothing was sent.
#[tokio::test(start_paused = true)]
async fn disk_a_detach_that_was_not_sent_is_followed_by_an_ordinary_one() {
    let unread = json!({"match": {"method": "GET", "path": vm_id(NODE)}, "then": {"status": 503}, "times": 0});
    let unreached =
        json!({"match": {"method": "POST", "path": "*/attachDetachDataDisks"}, "then": {"status": 429}, "times": 0});
    for incident in [unread, unreached] {
        let stuck = Stuck::new(Method::Action, ForceDetach::StoppedVms, Some("powerOff")).await;
        stuck.rig.incident(incident);
        refused(stuck.unpublish().await, Code::Unavailable);
        stuck.rig.control.clear_incidents();
        stuck.rig.control.reset_log();
        pass(seconds(120)).await;
        stuck.unpublish().await.unwrap();
        assert_eq!(stuck.options(), [Value::Null]);
        stuck.rig.check();
        stuck.rig.stop().await;
    }
}
