//! The machines: as Azure's scenario has them, and as kubelet would register each as a Node.

use lazuli_apiserver::{ApiServer, Refused};
use lazuli_emulator::scenario::{Scenario, VirtualMachine};
use lazuli_nodes::cloud_node::Taint;
use serde_json::{Value, json};

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

/// What Nodes say of the machine on which all of them are.
#[derive(Debug, Default)]
pub(super) struct ThisMachine {
    boot_id: String,
    kernel: String,
    /// Now, as objects carry it.
    now: String,
}

impl ThisMachine {
    pub(super) fn read() -> Self {
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let boot_id = lazuli_host::Host::new().boot_id().unwrap_or_default();
        Self { boot_id, kernel: kernel.trim().to_owned(), now: format!("{:.0}", jiff::Timestamp::now()) }
    }
}

/// The Service of the API server, which every cluster has.
///
/// # Errors
/// When the API server refuses it.
pub(super) fn put_api_service(server: &ApiServer) -> Result<(), Refused> {
    let labels = json!({"component": "apiserver", "provider": "kubernetes"});
    let spec = json!({"clusterIP": "10.96.0.1", "ports": [{"name": "https", "port": 443, "targetPort": 6443}]});
    server.put("services", json!({"metadata": {"name": "kubernetes", "labels": labels}, "spec": spec})).map(drop)
}

/// A Service to begin with.
pub(super) fn web() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80}], "selector": {"app": "web"}},
    })
}

/// The Node of a machine, as kubelet with an external cloud provider registers it. The cloud controllers take it from there.
pub(super) fn node(at: u8, machine: &ThisMachine) -> Value {
    let name = name(at);
    let condition = |kind: &str, status: &str, reason: &str| {
        json!({"type": kind, "status": status, "reason": reason, "message": "",
            "lastHeartbeatTime": machine.now, "lastTransitionTime": machine.now})
    };
    let resources = json!({"cpu": "8", "memory": "32Gi", "ephemeral-storage": "30Gi", "pods": "110"});
    let range = format!("10.244.{at}.0/24");
    json!({
        "metadata": {"name": name, "labels": {
            "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
        }},
        "spec": {
            "podCIDR": range, "podCIDRs": [range],
            "taints": [{"key": Taint::UNINITIALIZED, "value": "true", "effect": "NoSchedule"}],
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
                "kubeletVersion": lazuli_apiserver::VERSION, "osImage": "without kubelet",
                "containerRuntimeVersion": "none", "operatingSystem": "linux", "architecture": "amd64",
                "kernelVersion": machine.kernel, "bootID": machine.boot_id, "machineID": "", "systemUUID": "",
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
        let ranges: std::collections::BTreeSet<String> = (0..MOST)
            .map(|at| node(at, &ThisMachine::default())["spec"]["podCIDR"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(ranges.len(), usize::from(MOST));
        let machine = ThisMachine { boot_id: "b".to_owned(), ..ThisMachine::default() };
        assert_eq!(node(0, &machine)["spec"]["taints"][0]["key"], Taint::UNINITIALIZED);
        assert_eq!(node(0, &machine)["status"]["nodeInfo"]["bootID"], "b");
    }
}
