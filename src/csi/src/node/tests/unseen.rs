//! A volume that the node has never had, while the instance metadata is silent.

use super::*;
use crate::node::OnSilence;

/// A disk at LUN 3 whose metadata is silent, blank or with a file system that the node does not know.
async fn silent(config: NodeConfig, formatted: bool) -> Machine {
    let mut machine = Machine::configured(config).await;
    machine.attach(3, "a");
    if formatted {
        run("mkfs.ext4", &["-q", machine.disk(0).node.to_str().unwrap()]);
    }
    machine.metadata.lock().unwrap().down = true;
    machine
}

fn config() -> NodeConfig {
    NodeConfig { timeouts: machine::impatient(), ..NodeConfig::new("node-1") }
}

#[tokio::test]
async fn silent_metadata_makes_a_volume_wait_that_this_node_has_never_had() {
    if !able() {
        return;
    }
    for (formatted, capability) in [(false, mounted_as("ext4")), (true, mounted_as("ext4")), (false, block())] {
        let mut machine = silent(config(), formatted).await;
        for long in [false, true] {
            let (refusal, message) = code(machine.stage_as(3, "a", capability.clone()).await);
            assert_eq!(refusal, Grpc::Unavailable, "{message}");
            assert!(message.contains("this node has never had the volume") && message.contains("503"), "{message}");
            // kubelet shows the message as an event of the pod.
            assert_eq!(message.contains("--on-silent-imds=tolerate"), long, "{message}");
            machine.service.0.identity_checks.age(Duration::from_secs(60));
        }
        assert_eq!(machine.mounted(&machine.staging("a")), None);
        assert_eq!(machine.record("a").await, None);
        assert!(formatted || machine.disk(0).is_untouched());
        machine.metadata.lock().unwrap().down = false;
        machine.stage_as(3, "a", capability.clone()).await.unwrap();
        // It is staged; and it was here.
        machine.metadata.lock().unwrap().down = true;
        machine.stage_as(3, "a", capability.clone()).await.unwrap();
        let is_raw = capability == block();
        machine.unstage("a").await.unwrap();
        // A raw volume leaves nothing by which it could be known again.
        assert_eq!(machine.stage_as(3, "a", capability).await.is_ok(), !is_raw);
    }
}

#[tokio::test]
async fn metadata_that_answers_and_does_not_list_the_disk_is_not_silent() {
    if !able() {
        return;
    }
    let mut machine = silent(config(), true).await;
    {
        let mut metadata = machine.metadata.lock().unwrap();
        metadata.down = false;
        metadata.disks.clear();
    }
    machine.stage_as(3, "a", mounted_as("ext4")).await.unwrap();
}

#[tokio::test]
async fn an_operator_can_let_the_lun_decide_while_the_metadata_is_silent() {
    if !able() {
        return;
    }
    for capability in [mounted_as("ext4"), block()] {
        let config = NodeConfig { on_silence: OnSilence::Tolerate, ..config() };
        silent(config, false).await.stage_as(3, "a", capability).await.unwrap();
    }
}
