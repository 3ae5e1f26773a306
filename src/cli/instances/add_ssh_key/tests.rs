use std::collections::BTreeSet;

use clap::Parser;
use lazuli_azure::transport::Routes;
use lazuli_config::{Config, Document, Environment};
use lazuli_emulator::{
    Emulator,
    scenario::{self, AvailabilitySet, ScaleSet, Scenario, VirtualMachine},
};
use lazuli_model::rbac;
use lazuli_rig::{Folder, azure_json};

use super::*;
use crate::cli::output::testing::odd_names;

/// Made for these tests; its private half is thrown away.
const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIN+LfKwqm98JhFsKuQpnR2s3YrhvpsgJ0sIirUc0Z2rv me";

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    options: AddSshKey,
}

/// An Azure and the files of the command.
struct World {
    azure: Emulator,
    folder: Folder,
}

impl World {
    async fn start(scenario: Scenario) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let azure = Emulator::start(lazuli_emulator::Options { scenario: scenario.clone(), ..Default::default() });
        let azure = azure.await.unwrap();
        let folder = Folder::make("add-ssh-key").unwrap();
        let config = azure_json(&scenario, &azure.url()).to_string();
        std::fs::write(folder.path().join("azure.json"), config).unwrap();
        std::fs::write(folder.path().join("key.pub"), KEY).unwrap();
        Self { azure, folder }
    }

    fn options(&self, more: &[&str]) -> AddSshKey {
        let path = |name: &str| self.folder.path().join(name).display().to_string();
        let fixed = [
            "add-ssh-key".to_owned(),
            "--user=me".to_owned(),
            format!("--key={}", path("key.pub")),
            format!("--cloud-config={}", path("azure.json")),
            "--cloud-config-secret-name=".to_owned(),
        ];
        Command::parse_from(fixed.into_iter().chain(more.iter().map(|word| (*word).to_owned()))).options
    }

    async fn run(&self, more: &[&str]) -> (String, Result<(), String>) {
        let mut out = Vec::new();
        let (options, stop) = (self.options(more), CancellationToken::new());
        let ended = Box::pin(execute(&options, Console::None, &stop, &mut out)).await;
        (String::from_utf8(out).unwrap(), ended.map_err(|error| error.to_string()))
    }

    /// The extensions that were written, as the path below the provider.
    fn written(&self) -> Vec<String> {
        let calls = self.azure.control().call_log();
        let puts = calls.iter().filter(|call| call.plane == "arm" && call.method == "PUT" && call.status < 400);
        puts.filter_map(|call| Some(call.path.split_once("Microsoft.Compute/")?.1.to_owned())).collect()
    }

    async fn compute(&self) -> Compute {
        let config = azure_json(&Scenario::default(), &self.azure.url()).to_string();
        let document = Document::parse("azure.json", config.as_bytes()).unwrap();
        let config = Config::from_documents(Some(&document), None, &Environment::new(&Default::default())).unwrap();
        let mut registry = prometheus_client::registry::Registry::default();
        lazuli_assembly::clients::connect(&config, Routes::none(), &mut registry, 1).await.unwrap().compute
    }

    fn incident(&self, incident: Value) {
        self.azure.control().add_incident(serde_json::from_value(incident).unwrap()).unwrap();
    }
}

fn vm(name: &str) -> ArmId {
    ArmId::virtual_machine(scenario::SUBSCRIPTION, scenario::RESOURCE_GROUP, name).unwrap()
}

/// Machines of all kinds: two VMs, one of an availability set, a uniform and a flexible scale set.
fn all_kinds() -> Scenario {
    let set: AvailabilitySet = serde_json::from_value(json!({"name": "set"})).unwrap();
    let member: VirtualMachine = serde_json::from_value(json!({"name": "member", "availabilitySet": "set"})).unwrap();
    let mut scenario = Scenario {
        availability_sets: vec![set],
        scale_sets: vec![ScaleSet::uniform("pool", 2), ScaleSet::flexible("flex", 1)],
        ..Scenario::default()
    };
    scenario.virtual_machines.push(member);
    scenario
}

#[tokio::test(start_paused = true)]
async fn a_key_is_added_on_machines_of_every_kind_and_one_that_refuses_stops_no_other() {
    let world = World::start(all_kinds()).await;
    world.azure.control().tamper(vm("node-1").as_str(), |body| {
        body["properties"]["storageProfile"]["osDisk"]["osType"] = "Windows".into();
    });
    let refused = json!({"status": 403, "code": "AuthorizationFailed", "message": "no"});
    world.incident(json!({"match": {"method": "PUT", "path": "*/node-0/extensions/*"}, "then": refused}));
    let throttled = json!({"status": 429, "code": "TooManyRequests", "retryAfter": 90});
    world.incident(json!({"match": {"method": "PUT", "path": "*/virtualMachines/1/extensions/*"}, "then": throttled}));
    let busy = json!({"status": 409, "code": "Conflict", "message": "another operation is in flight"});
    world.incident(json!({"match": {"method": "PUT", "path": "*/member/extensions/*"}, "then": busy}));
    let (text, ended) = world.run(&["--all", "--yes"]).await;
    let line = |name: &str, what: &str| {
        let found = text.lines().any(|line| line.starts_with(name) && line.contains(what));
        assert!(found, "{name}: {what}: {text}");
    };
    assert!(text.contains("for user me, who may become root by sudo"), "{text}");
    assert!(text.starts_with("ssh-ed25519 SHA256:"), "{text}");
    line("  node-1", "it runs Windows");
    line("node-0: failed", "AuthorizationFailed");
    line("member: ", "has the key");
    line("flex", "has the key");
    line("pool000000: ", "has the key");
    line("pool000001: ", "has the key");
    assert_eq!(
        ended,
        Err("1 of 6 machines do not have the key; see above, and repeat the command for these".to_owned())
    );
    let written = world.written();
    assert_eq!(written.len(), 4, "{written:#?}");
    assert!(
        written.iter().any(|path| path == "virtualMachineScaleSets/pool/virtualMachines/1/extensions/lazuli-vm-access")
    );
    // The role that the command needs has these actions and no others.
    let role = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/azure/role-add-ssh-key.json");
    let role: Value = serde_json::from_slice(&std::fs::read(role).unwrap()).unwrap();
    let allowed: BTreeSet<&str> = role["Actions"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    let calls = world.azure.control().call_log();
    let needed: BTreeSet<String> = calls
        .iter()
        .filter(|call| call.plane == "arm")
        .filter_map(|call| rbac::action(&call.method, &call.path))
        .collect();
    assert_eq!(needed.iter().map(String::as_str).collect::<BTreeSet<_>>(), allowed);

    // What failed is repeated alone; the key of the others is not written again.
    let (text, ended) = world.run(&["--node=node-0", "--yes"]).await;
    assert_eq!((ended, text.lines().last()), (Ok(()), Some("node-0: has the key")));
    assert_eq!(world.written().len(), 5);
    world.azure.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_by_a_dry_run_nor_without_consent() {
    let world = World::start(Scenario::default()).await;
    let (text, ended) = world.run(&["--all", "--dry-run"]).await;
    assert_eq!(ended, Ok(()));
    let expected = format!("\n  node-0  add the extension lazuli-vm-access\n            {}\n", vm("node-0"));
    assert!(text.contains(&expected), "{text}");
    let (_, ended) = world.run(&["--all"]).await;
    assert!(ended.unwrap_err().contains("give --yes"));
    let (text, ended) = world.run(&["--all", "--dry-run", "--output=json"]).await;
    assert_eq!(ended, Ok(()));
    let printed: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&printed["plan"][1]["node"], &printed["results"]), (&json!("node-1"), &Value::Null));
    let key = &printed["key"];
    assert!(key["fingerprint"].as_str().unwrap().starts_with("SHA256:") && key["kind"] == "ssh-ed25519", "{key}");
    assert_eq!(odd_names(&printed), Vec::<String>::new());
    let (_, ended) = world.run(&["--node=nobody", "--yes"]).await;
    assert!(ended.unwrap_err().contains("it has node-0, node-1"));
    assert_eq!(world.written(), [""; 0]);
    for (answer, consents) in [("y\n", true), (" YES ", true), ("\n", false), ("n", false), ("yesterday", false)] {
        assert_eq!(is_yes(answer), consents, "{answer:?}");
    }
    world.azure.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn an_extension_of_another_program_is_named_and_replaced_only_when_told() {
    let world = World::start(Scenario::default()).await;
    let compute = world.compute().await;
    let (machine, until) = (vm("node-0"), Until::within(Duration::from_secs(600)));
    let id = extension_id(&machine, "enablevmaccess").unwrap();
    let body = json!({"location": scenario::LOCATION, "properties": {"publisher": vm_access::PUBLISHER,
        "type": vm_access::TYPE, "typeHandlerVersion": "1.5", "protectedSettings": {"username": "other"}}});
    compute.put_extension(&machine, &id, body, &until).await.unwrap().settle(&until).await.unwrap();
    let (text, ended) = world.run(&["--all", "--yes", "--output=json"]).await;
    let printed: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(printed["plan"][0]["writes"], false);
    assert!(printed["plan"][0]["step"].as_str().unwrap().contains("enablevmaccess"), "{printed}");
    assert_eq!(printed["results"], json!([{"node": "node-1", "added": true, "text": "has the key"}]));
    assert!(ended.unwrap_err().starts_with("1 of 2 machines"));
    let (text, ended) = world.run(&["--all", "--yes", "--replace"]).await;
    assert_eq!(ended, Ok(()), "{text}");
    let paths = ["node-0/extensions/enablevmaccess", "node-1/extensions/lazuli-vm-access"];
    let mut written = world.written();
    written.drain(..2);
    written.sort();
    assert_eq!(written, paths.map(|path| format!("virtualMachines/{path}")));
    world.azure.shutdown().await;
}

/// Takes the output, and stops the command at the first machine that has the key.
struct StopAtFirst {
    text: Vec<u8>,
    stop: CancellationToken,
}

impl Write for StopAtFirst {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.text.extend_from_slice(bytes);
        if String::from_utf8_lossy(&self.text).contains("has the key") {
            self.stop.cancel();
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_command_that_is_stopped_reports_each_machine() {
    let scenario = Scenario {
        virtual_machines: Vec::new(),
        scale_sets: vec![ScaleSet::uniform("pool", 14)],
        ..Scenario::default()
    };
    let world = World::start(scenario).await;
    let stop = CancellationToken::new();
    let mut out = StopAtFirst { text: Vec::new(), stop: stop.clone() };
    let options = world.options(&["--all", "--yes"]);
    let ended = Box::pin(execute(&options, Console::None, &stop, &mut out)).await;
    let text = String::from_utf8(out.text).unwrap();
    let results: Vec<&str> = text.lines().filter(|line| line.starts_with("pool")).collect();
    let count = |what: &str| results.iter().filter(|line| line.contains(what)).count();
    assert_eq!((results.len(), count("has the key") >= 1, count("not begun")), (14, true, 4), "{text}");
    assert_eq!(count("has the key") + count("interrupted"), 10, "{text}");
    // No machine was begun after the stop, and what was begun was never more than ten at a time.
    assert_eq!(world.written().len(), 10);
    let missing = 14 - count("has the key");
    assert!(ended.unwrap_err().to_string().starts_with(&format!("{missing} of 14 machines")));
    world.azure.shutdown().await;
}

#[tokio::test]
async fn a_private_key_is_refused_and_in_no_message() {
    let folder = Folder::make("add-ssh-key").unwrap();
    let path = folder.path().join("id");
    std::fs::write(&path, "-----BEGIN OPENSSH PRIVATE KEY-----\nc2VjcmV0\n").unwrap();
    let words = ["add-ssh-key", "--user=me", "--all", "--key", path.to_str().unwrap()];
    let options = Command::parse_from(words).options;
    let mut out = Vec::new();
    let error = Box::pin(execute(&options, Console::None, &CancellationToken::new(), &mut out)).await.unwrap_err();
    let told = chain(error.as_ref());
    assert!(told.contains(path.to_str().unwrap()) && told.contains("it holds a private key"), "{told}");
    assert!(out.is_empty() && !told.contains("c2VjcmV0"));
}
