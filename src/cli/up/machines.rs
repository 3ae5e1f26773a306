//! The machines: as Azure's scenario has them, and as kubelet would register each as a Node.

use lazuli_emulator::scenario::{Scenario, VirtualMachine};
use serde_json::{Value, json};

use super::news::UNINITIALIZED;

/// The most machines: each has a range of 256 addresses for Pods, and its node plugin runs in this process.
pub(super) const MOST: u8 = 100;
/// The ranges of all Pods.
pub(super) const POD_RANGE: &str = "10.244.0.0/16";

/// The name of a machine and of its Node.
pub(super) fn name(at: u8) -> String {
    format!("node-{at}")
}

/// Gives a scenario so many machines of the kind that it has.
pub(super) fn resize(scenario: &mut Scenario, count: u8) {
    for VirtualMachine { count: counted, .. } in scenario.virtual_machines.iter_mut().take(1) {
        *counted = Some(count.into());
    }
}

/// The Node of a machine, as kubelet with an external cloud provider registers it. The cloud controllers take it from there.
pub(super) fn node(at: u8, boot_id: Option<&str>) -> Value {
    let name = name(at);
    let condition = |kind: &str, status: &str, reason: &str| json!({"type": kind, "status": status, "reason": reason});
    let resources = json!({"cpu": "8", "memory": "32Gi", "ephemeral-storage": "30Gi", "pods": "110"});
    let range = format!("10.244.{at}.0/24");
    json!({
        "metadata": {"name": name, "labels": {
            "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
        }},
        "spec": {
            "podCIDR": range, "podCIDRs": [range],
            "taints": [{"key": UNINITIALIZED, "value": "true", "effect": "NoSchedule"}],
        },
        "status": {
            "capacity": resources, "allocatable": resources,
            "addresses": [{"type": "Hostname", "address": name}],
            "conditions": [
                condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
                condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
                condition("PIDPressure", "False", "KubeletHasSufficientPID"),
                condition("Ready", "True", "KubeletReady"),
            ],
            "nodeInfo": {
                "kubeletVersion": lazuli_apiserver::VERSION, "osImage": "a machine of lazuli up, without kubelet",
                "containerRuntimeVersion": "none", "operatingSystem": "linux", "architecture": "amd64",
                "kernelVersion": "none", "bootID": boot_id.unwrap_or_default(), "machineID": "", "systemUUID": "",
                "kubeProxyVersion": "",
            },
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scenario_has_the_machines_that_are_asked_for() {
        let mut scenario = Scenario::default();
        resize(&mut scenario, 7);
        let machines: Vec<(&str, Option<u32>)> =
            scenario.virtual_machines.iter().map(|machine| (&*machine.name, machine.count)).collect();
        assert_eq!(machines, [("node-{}", Some(7))]);
    }

    #[test]
    fn each_node_is_new_and_has_a_range_of_its_own() {
        let ranges: std::collections::BTreeSet<String> =
            (0..MOST).map(|at| node(at, None)["spec"]["podCIDR"].as_str().unwrap().to_owned()).collect();
        assert_eq!(ranges.len(), usize::from(MOST));
        assert_eq!(node(0, Some("b"))["spec"]["taints"][0]["key"], UNINITIALIZED);
        assert_eq!(node(0, Some("b"))["status"]["nodeInfo"]["bootID"], "b");
    }
}
