//! `scripts/cluster node add` and `node remove`.

use std::{
    collections::BTreeSet,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::json;

use crate::{
    command::{Failure, failure, on, say},
    emulator::MACHINES,
    nodes::{desired, next},
    place::{Place, read_json, write_json},
};

/// How long kubectl may wait for each thing.
const TIMEOUT: &str = "--timeout=120s";
/// How long disks may take to be detached from a node without pods.
const DETACHED_WITHIN: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(500);

/// Starts one more node and waits until it is ready and has the driver.
///
/// # Errors
/// No cluster serves, every machine is a node, or the node does not become ready.
pub fn add(place: &Place) -> Result<(), Failure> {
    let mut names = running(place)?;
    let Some(name) = next(&names) else {
        return failure(format!("all {} machines are nodes; remove one first", MACHINES.len()));
    };
    names.insert(name);
    write_json(&place.nodes(), &json!(names)).map_err(on(&place.nodes()))?;
    kubectl(place, &["wait", "--for=create", &format!("csinode/{name}"), TIMEOUT])?;
    kubectl(place, &["wait", "--for=condition=Ready", &format!("node/{name}"), TIMEOUT])?;
    let driver = "--for=jsonpath={.spec.drivers[0].name}=disk.csi.azure.com";
    kubectl(place, &["wait", driver, &format!("csinode/{name}"), TIMEOUT])?;
    say(&format!("{name} is ready.\n"));
    Ok(())
}

/// Drains a node, waits until its disks are detached, and ends it.
///
/// # Errors
/// No cluster serves, the node is none of its nodes or the last one, or its pods or disks stay.
pub fn remove(place: &Place, name: &str) -> Result<(), Failure> {
    let mut names = running(place)?;
    if !names.contains(name) {
        let all: Vec<&str> = names.into_iter().collect();
        return failure(format!("{name} is no node of this cluster: its nodes are {}", all.join(", ")));
    }
    if names.len() == 1 {
        return failure(format!("{name} is the last node: scripts/cluster down ends the cluster"));
    }
    kubectl(place, &["drain", name, "--ignore-daemonsets", "--delete-emptydir-data", "--force", TIMEOUT])?;
    let attachments = "jsonpath={range .items[*]}{.spec.nodeName}{\"\\n\"}{end}";
    let began = Instant::now();
    while kubectl(place, &["get", "volumeattachments", "--output", attachments])?.lines().any(|node| node == name) {
        if began.elapsed() > DETACHED_WITHIN {
            return failure(format!("disks stay attached to {name}: see kubectl get volumeattachments"));
        }
        std::thread::sleep(LOOK);
    }
    names.remove(name);
    write_json(&place.nodes(), &json!(names)).map_err(on(&place.nodes()))?;
    // Not before its kubelet has ended, which would make it again.
    kubectl(place, &["wait", "--for=condition=Ready=Unknown", &format!("node/{name}"), TIMEOUT])?;
    kubectl(place, &["delete", "node", name])?;
    say(&format!("{name} is gone.\n"));
    Ok(())
}

/// The nodes of a cluster that serves.
fn running(place: &Place) -> Result<BTreeSet<&'static str>, Failure> {
    if place.supervisors().is_empty() || !place.addresses().exists() {
        return failure(format!("no cluster serves in {}", place.path().display()));
    }
    Ok(desired(read_json(&place.nodes()).as_ref()))
}

/// What kubectl prints when it succeeds.
fn kubectl(place: &Place, arguments: &[&str]) -> Result<String, Failure> {
    let mut command = Command::new(place.programs().join("kubectl"));
    let command = command.args(arguments).env("KUBECONFIG", place.kubeconfig()).stdin(Stdio::null());
    let output = command.output().map_err(on(&place.programs().join("kubectl")))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return failure(format!("kubectl {}: {}", arguments.join(" "), said.trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
