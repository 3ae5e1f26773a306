//! A key of the cloud configuration that means nothing is named in the log of each process that reads it, at its start. The
//! node plugin reads none.

use std::process::Stdio;

use lazuli_emulator::Emulator;
use lazuli_rig::{Folder, azure_json};
use serde_json::json;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::Command,
};

/// What each process says once it has read its configuration, and after its warnings.
const PROCESSES: [(&str, &str); 3] = [
    ("csi-controller --endpoint=unix://FOLDER/csi.sock", "serving CSI Identity and Controller"),
    ("cloud-controllers --kubeconfig=FOLDER/kubeconfig", "waiting for the Lease"),
    ("cloud-controllers --kubeconfig=FOLDER/kubeconfig --controllers=cloud-node", "waiting for the Lease"),
];

#[tokio::test]
async fn each_process_that_reads_the_configuration_names_its_unknown_keys_at_its_start() {
    let options = lazuli_emulator::Options::default();
    let scenario = options.scenario.clone();
    let azure = Emulator::start(options).await.unwrap();
    let folder = Folder::make("unknown-keys").unwrap();
    let mut config = azure_json(&scenario, &azure.url());
    for (key, value) in [("subnetName", "nodes"), ("securityGroupName", "nodes-nsg"), ("vnettName", "v")] {
        config[key] = value.into();
    }
    let kubeconfig = json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}], "users": [{"name": "u", "user": {}}]});
    for (name, value) in [("azure.json", config), ("kubeconfig", kubeconfig)] {
        std::fs::write(folder.path().join(name), value.to_string()).unwrap();
    }
    for (command, started) in PROCESSES {
        let at = folder.path().display().to_string();
        let mut process = Command::new(env!("CARGO_BIN_EXE_lazuli"))
            .env_clear()
            .args(command.split(' ').map(|word| word.replace("FOLDER", &at)))
            .args([&format!("--cloud-config={at}/azure.json"), "--cloud-config-secret-name="])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
        let mut said: Vec<String> = Vec::new();
        while said.last().is_none_or(|line| !line.contains(started)) {
            let Some(line) = lines.next_line().await.unwrap() else { panic!("{command} has ended: {said:#?}") };
            said.push(line);
        }
        process.kill().await.unwrap();
        let is_named =
            |line: &&String| line.contains("unknown key vnettName (the nearest key that exists is vnetName)");
        assert_eq!(said.iter().filter(is_named).count(), 1, "{command}: {said:#?}");
    }
    azure.shutdown().await;
}
