//! The nodes of the cluster and the containers that run on them, which are processes of this machine.

use std::{
    fs,
    path::{Path, PathBuf},
    time::SystemTime,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};

use crate::{
    azure::machine_id,
    emulator::{text, words},
    kubernetes::{CloudProvider, GATEWAY},
    process::{Process, run},
};

/// The image of a test's own pods, whose program does nothing until it is told to stop.
pub const IDLE: &str = "idle:1";

/// The image of a person's pods, with the programs of this machine, as the kubelet completes the name `shell`.
pub const SHELL: &str = "shell:latest";

/// Where the test sees the kubelet's folder of a node.
pub fn kubelet_folder(folder: &Path, node: &str) -> PathBuf {
    folder.join(format!("kubelet-{node}"))
}

/// Starts a node: its network, its mounts, its container runtime and its kubelet.
pub fn start(
    tools: &Path,
    folder: &Path,
    index: usize,
    name: &str,
    kubeconfig: &str,
    images: &Value,
    provider: CloudProvider,
) -> Process {
    let state = folder.join(format!("node-{index}-runtime"));
    // Azure keeps the first four addresses of a subnet.
    let address = format!("10.213.1.{}", index + 4);
    let pods = format!("10.244.{}", index + 1);
    let socket = format!("unix://{}", state.join("cri.sock").display());
    let (who, value) = match provider {
        CloudProvider::None => ("--provider-id", format!("azure://{}", machine_id(name))),
        CloudProvider::External => ("--cloud-provider", "external".to_owned()),
    };
    // That of an earlier node of this machine: its socket is in the way.
    let _ = fs::remove_dir_all(&state);
    let settings = json!({
        "name": name, "kubeletFolder": kubelet_folder(folder, name), "state": state, "bridge": "cluster",
        "gateway": GATEWAY, "address": address, "pods": pods, "images": images,
        "kubelet": [
            tools.join("kubernetes"), "kubelet", "--kubeconfig", kubeconfig, "--node", name, "--node-ip", address,
            who, value, "--client-ca-file", folder.join("ca.crt"), "--container-runtime-endpoint", socket,
        ],
    });
    let file = folder.join(format!("{name}.json"));
    fs::write(&file, settings.to_string()).unwrap();
    let route = format!("route replace {pods}.0/24 via {address}");
    run("ip", &route.split(' ').collect::<Vec<_>>());
    let log = folder.join(format!("{name}.log"));
    Process::of_program(&tools.join("node"), name, &log, &words(&["up", &text(&file)]))
}

/// A container that runs now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Container(Pid);

impl Container {
    /// That of a pod, if the pod has run one of this name; it may have ended.
    pub fn of(folder: &Path, node_index: usize, pod: &str, name: &str) -> Option<Self> {
        let file = folder.join(format!("node-{node_index}-runtime/running/{pod}/{name}"));
        let pid = fs::read_to_string(file).ok()?.parse().ok()?;
        Some(Self(Pid::from_raw(pid)))
    }

    /// This very process, which has whatever this machine gives.
    pub fn of_this_process() -> Self {
        Self(Pid::this())
    }

    /// How the last container of this name of a pod has ended, by its exit code, and when; if it has.
    pub fn ending(folder: &Path, node_index: usize, pod: &str, name: &str) -> Option<(i32, SystemTime)> {
        let file = folder.join(format!("node-{node_index}-runtime/ended/{pod}/{name}"));
        let code = fs::read_to_string(&file).ok()?.parse().ok()?;
        Some((code, fs::metadata(&file).ok()?.modified().ok()?))
    }

    /// What a link or file of the kernel says of the process (source: proc(5)).
    pub fn proc(self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/{name}", self.0))
    }

    /// A path in the container's root.
    pub fn path(self, path: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{path}", self.0))
    }

    /// A value of `/proc/PID/status` (source: proc_pid_status(5)).
    pub fn status(self, key: &str) -> String {
        let text = fs::read_to_string(format!("/proc/{}/status", self.0)).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':')).unwrap();
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// Kills its program, as the kernel does when memory is short.
    pub fn kill(self) {
        let _ = kill(self.0, Signal::SIGKILL);
    }
}
