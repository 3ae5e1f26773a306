//! The controller killed between any two writes: the next one goes on from what is there.
//!
//! A real process and a real kill -9, so this runs on real time; the operations are short instead.

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use lazuli_emulator::{Emulator, latency::Profile, scenario};
use lazuli_rig::{Folder, connect};
use serde_json::{Value, json};
use tonic::{Code, Status};

use super::disk_rig::{Client, create, delete, disk_id, publish_as, unpublish, vm_id};

const NODE: &str = "node-0";
const NAME: &str = "pvc-a";
/// How long one life may take, with everything else that this machine does.
pub(super) const PATIENCE: Duration = Duration::from_secs(240);

/// A controller as a process of its own.
pub(super) struct Process {
    child: Child,
    pub(super) client: Client,
}

impl Process {
    pub(super) async fn start(folder: &Path) -> Self {
        Self::start_with(folder, &[]).await
    }

    /// One with more arguments.
    pub(super) async fn start_with(folder: &Path, arguments: &[&str]) -> Self {
        let socket = folder.join("csi.sock");
        // The socket of a killed process does no harm, but the test must not connect to it.
        let _ = std::fs::remove_file(&socket);
        let child = Command::new(env!("CARGO_BIN_EXE_lazuli"))
            .arg("csi-controller")
            .arg("--endpoint")
            .arg(format!("unix://{}", socket.display()))
            .arg("--cloud-config")
            .arg(folder.join("azure.json"))
            .args(arguments)
            .env_clear()
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut process = child;
        let channel = loop {
            if let Ok(channel) = connect(&socket).await {
                break channel;
            }
            assert!(process.try_wait().unwrap().is_none(), "the controller did not start");
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        Self { child: process, client: Client::new(channel) }
    }

    pub(super) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Already dead when the test killed it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The steps of a volume's life, a write each.
const STEPS: usize = 4;

async fn step(client: &Client, step: usize) -> Result<(), Status> {
    let context = [("requestedsizegib".to_owned(), "1".to_owned())].into();
    match step {
        0 => create(client, NAME).await.map(drop),
        1 => publish_as(client, &disk_id(NAME), &context, NODE).await.map(|lun| assert_eq!(lun, 0)),
        2 => unpublish(client, &disk_id(NAME), NODE).await,
        _ => delete(client, &disk_id(NAME)).await,
    }
}

/// The write of a step.
fn write_of(step: usize) -> Value {
    match step {
        0 => json!({"method": "PUT", "path": "*/disks/pvc-a"}),
        1 => json!({"method": "POST", "bodyContains": "dataDisksToAttach"}),
        2 => json!({"method": "POST", "bodyContains": "dataDisksToDetach"}),
        _ => json!({"method": "DELETE", "path": "*/disks/pvc-a"}),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moment {
    /// The write has arrived and Azure has not acted.
    Arrived,
    /// Azure has accepted the write and works on it.
    Accepted,
}

/// As a sidecar does: again while the code says that it may help.
async fn insist(client: &Client, at: usize) {
    loop {
        match step(client, at).await {
            Ok(()) => return,
            Err(status) if matches!(status.code(), Code::Aborted | Code::Unavailable) => {
                tokio::time::sleep(Duration::from_millis(300)).await;
            }
            Err(status) => panic!("step {at}: {status:?}"),
        }
    }
}

/// One life, with the controller killed at one write.
async fn life(killed_at: usize, moment: Moment) {
    let folder = Folder::make("kill").unwrap();
    let emulator = Emulator::start(lazuli_emulator::Options {
        latency: short(folder.path()),
        retry_after: Some(1),
        ..Default::default()
    })
    .await
    .unwrap();
    let control = emulator.control();
    std::fs::write(folder.path().join("azure.json"), azure_json(&emulator.url())).unwrap();
    let mut process = Process::start(folder.path()).await;
    for at in 0..STEPS {
        if at == killed_at {
            if moment == Moment::Arrived {
                let incident = json!({"match": write_of(at), "then": {"delayMs": 3_600_000}});
                control.add_incident(serde_json::from_value(incident).unwrap()).unwrap();
            }
            let writes = || control.counters().writes;
            let before = writes();
            let client = process.client.clone();
            let asking = tokio::spawn(async move { step(&client, at).await });
            let happened = || match moment {
                Moment::Arrived => control.incidents().iter().any(|listed| listed.struck > 0),
                Moment::Accepted => writes() > before,
            };
            while !happened() {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            process.kill();
            asking.await.unwrap().unwrap_err();
            control.clear_incidents();
            process = Process::start(folder.path()).await;
        }
        insist(&process.client, at).await;
        let disk = control.store(|store| store.disk(&disk_id(NAME)));
        let held = control.lun_maps()[&vm_id(NODE).to_lowercase()].len();
        assert_eq!((disk.is_some(), held), [(true, 0), (true, 1), (true, 0), (false, 0)][at], "step {at}");
    }
    let dump = control.dump();
    assert_eq!(dump.running_operations, 0);
    assert!(dump.luns.values().all(std::collections::BTreeMap::is_empty));
    emulator.shutdown().await;
}

/// Long enough to be killed in the middle of, short enough for the first poll.
fn short(folder: &Path) -> Profile {
    let path: PathBuf = folder.join("latency.yaml");
    let kinds =
        ["diskCreate", "diskDelete", "vmAttach", "vmDetach"].map(|kind| format!("  {kind}: {{constant_ms: 900}}"));
    std::fs::write(&path, format!("base: none\noperations:\n{}\n", kinds.join("\n"))).unwrap();
    Profile::parse(path.to_str().unwrap()).unwrap()
}

pub(super) fn azure_json(url: &str) -> String {
    json!({
        "cloud": "AzurePublicCloud",
        "resourceManagerEndpoint": url,
        "tenantId": scenario::TENANT,
        "subscriptionId": scenario::SUBSCRIPTION,
        "aadClientId": scenario::CLIENT_ID,
        "aadClientSecret": scenario::CLIENT_SECRET,
        "resourceGroup": scenario::RESOURCE_GROUP,
        "location": scenario::LOCATION,
    })
    .to_string()
}

#[tokio::test]
async fn disk_a_controller_killed_at_any_write_is_succeeded_by_one_that_ends_in_the_same_state() {
    let moments = [Moment::Arrived, Moment::Accepted];
    let lives = (0..STEPS).flat_map(|at| moments.map(|moment| tokio::time::timeout(PATIENCE, life(at, moment))));
    for (which, ended) in futures::future::join_all(lives).await.into_iter().enumerate() {
        ended.unwrap_or_else(|_| panic!("life {which} did not end"));
    }
}
