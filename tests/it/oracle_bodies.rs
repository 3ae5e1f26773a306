//! The bodies that the oracle judges: what the emulator answers and what the controller sends.
//!
//! The oracle (`tests/oracle`) has a lock file of its own and cannot be linked in here, so the bodies
//! go through files: `answers/TYPE--WHAT.json` and `requests/TYPE--WHAT.json` under
//! `oracle-bodies` in the target's folder for test files. TYPE is the type of `azure_mgmt_compute` that
//! each should be. This module drives and collects; it judges only that nothing is missing.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};

use csi_proto::csi;
use csi_proto::csi::controller_client::ControllerClient;
use hyper_util::rt::TokioIo;
use lazuli_emulator::{Emulator, Options};
use serde_json::{Value, json};
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Uri};

use super::recordings::exchange;

const API: &str = "api-version=2024-07-01";
const GROUP: &str = "/subscriptions/00000000-0000-0000-0000-000000000001/resourceGroups/lazuli";
const COMPUTE: &str =
    "/subscriptions/00000000-0000-0000-0000-000000000001/resourceGroups/lazuli/providers/Microsoft.Compute";
const GIB: i64 = 1 << 30;

/// An operation is over at the first poll, and the first poll may come at once.
fn options() -> Options {
    Options { retry_after: Some(0), ..Options::default() }
}

/// Where the bodies of one kind go; emptied first.
fn folder(kind: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("oracle-bodies").join(kind);
    // Absent at the first run.
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("the folder is made");
    folder
}

fn keep(folder: &Path, type_name: &str, what: &str, body: &Value) {
    let path = folder.join(format!("{type_name}--{what}.json"));
    fs::write(path, serde_json::to_string_pretty(body).expect("JSON is written")).expect("the file is written");
}

/// Asks the emulator as any client would; the body of an accepted operation is its end.
async fn ask(emulator: &Emulator, method: &str, path: &str, body: Option<Value>) -> (u16, Value) {
    let headers = [
        ("Authorization".to_owned(), format!("Bearer {}", emulator.control().token())),
        ("Content-Type".to_owned(), "application/json".to_owned()),
    ];
    let url = format!("{}{path}{}{API}", emulator.url(), if path.contains('?') { '&' } else { '?' });
    let body = body.map(|body| body.to_string()).unwrap_or_default();
    let answer = exchange(&url, method, &headers, &body).await.expect("the emulator answers");
    let parsed = |text: &str| if text.is_empty() { Value::Null } else { serde_json::from_str(text).expect("JSON") };
    if let Some(operation) = answer.headers.get("azure-asyncoperation") {
        let polled = exchange(operation, "GET", &headers, "").await.expect("the emulator answers");
        let polled = parsed(&polled.body);
        assert_eq!(polled["status"], "Succeeded", "{method} {path}: {polled}");
    }
    (answer.status, parsed(&answer.body))
}

#[tokio::test]
async fn the_emulators_answers_are_left_for_the_oracle() {
    let emulator = Emulator::start(options()).await.expect("the emulator starts");
    let folder = folder("answers");
    let disk = |gib: u32, zones: Value| {
        json!({"location": "westeurope", "sku": {"name": "Premium_LRS"}, "tags": {"a": "b"}, "zones": zones,
            "properties": {"creationData": {"createOption": "Empty"}, "diskSizeGB": gib}})
    };
    let first = format!("{COMPUTE}/disks/first");
    let attach = format!("{COMPUTE}/virtualMachines/node-0/attachDetachDataDisks");
    let set = json!({"location": "westeurope", "sku": {"name": "Aligned"},
        "properties": {"platformFaultDomainCount": 2, "platformUpdateDomainCount": 5}});
    let steps: Vec<(&str, &str, &str, String, Option<Value>)> = vec![
        ("Disk", "accepted", "PUT", first.clone(), Some(disk(8, json!([])))),
        ("Disk", "created", "GET", first.clone(), None),
        ("Disk", "zonal-accepted", "PUT", format!("{COMPUTE}/disks/zonal"), Some(disk(4, json!(["2"])))),
        ("Disk", "zonal", "GET", format!("{COMPUTE}/disks/zonal"), None),
        ("Disk", "growing", "PATCH", first.clone(), Some(json!({"properties": {"diskSizeGB": 16}}))),
        ("StorageProfile", "attaching", "POST", attach.clone(),
            Some(json!({"dataDisksToAttach": [{"diskId": first, "lun": 5, "caching": "ReadOnly"}]}))),
        ("Disk", "attached", "GET", first.clone(), None),
        ("DiskList", "of-a-group", "GET", format!("{COMPUTE}/disks"), None),
        ("DiskList", "first-page", "GET", format!("{COMPUTE}/disks?$top=1"), None),
        ("VirtualMachine", "with-a-disk", "GET", format!("{COMPUTE}/virtualMachines/node-0"), None),
        ("VirtualMachine", "with-its-view", "GET",
            format!("{COMPUTE}/virtualMachines/node-0?$expand=instanceView"), None),
        ("VirtualMachineInstanceView", "running", "GET",
            format!("{COMPUTE}/virtualMachines/node-0/instanceView"), None),
        ("VirtualMachineListResult", "of-a-group", "GET", format!("{COMPUTE}/virtualMachines"), None),
        ("VirtualMachine", "writing", "PUT", format!("{COMPUTE}/virtualMachines/node-1"),
            Some(json!({"location": "westeurope", "tags": {"c": "d"}}))),
        ("AvailabilitySet", "created", "PUT", format!("{COMPUTE}/availabilitySets/set"), Some(set)),
        ("AvailabilitySetListResult", "of-a-group", "GET", format!("{COMPUTE}/availabilitySets"), None),
        ("ResourceSkusResult", "of-the-location", "GET",
            "/subscriptions/00000000-0000-0000-0000-000000000001/providers/Microsoft.Compute/skus?$filter=location%20eq%20'westeurope'".to_owned(), None),
        ("CloudError", "absent", "GET", format!("{COMPUTE}/disks/absent"), None),
        ("CloudError", "attached", "DELETE", first.clone(), None),
        ("CloudError", "lun", "POST", attach, Some(json!({"dataDisksToAttach": [{"diskId": first, "lun": 64}]}))),
        ("CloudError", "group", "GET", GROUP.replace("/lazuli", "/absent"), None),
    ];
    for (type_name, what, method, path, body) in steps {
        let (status, answer) = ask(&emulator, method, &path, body).await;
        assert_eq!(status >= 400, type_name == "CloudError", "{method} {path}: {status} {answer}");
        // A service that has nothing to say yet answers 202 with no body.
        if !answer.is_null() {
            keep(&folder, type_name, what, &answer);
        }
    }
    emulator.shutdown().await;
}

/// The controller of this build, over a configuration for an emulator; ended when dropped.
struct Controller {
    process: Child,
    folder: PathBuf,
}

impl Controller {
    async fn start(emulator: &Emulator, method: &str) -> (Controller, ControllerClient<Channel>) {
        let folder = std::env::temp_dir().join(format!("lazuli-oracle-{method}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("the folder is made");
        let scenario = lazuli_emulator::scenario::Scenario::default();
        let client = &scenario.clients[0];
        let config = json!({
            "cloud": "AzurePublicCloud", "resourceManagerEndpoint": emulator.url(),
            "tenantId": scenario.tenant_id, "subscriptionId": scenario.subscriptions[0],
            "aadClientId": client.id, "aadClientSecret": client.secret,
            "resourceGroup": "lazuli", "location": scenario.location, "vmType": "standard",
        });
        fs::write(folder.join("azure.json"), config.to_string()).expect("the configuration is written");
        let socket = folder.join("csi.sock");
        let mut process = Command::new(env!("CARGO_BIN_EXE_lazuli"))
            .arg("csi-controller")
            .args(["--endpoint", &format!("unix://{}", socket.display())])
            .args(["--cloud-config", &folder.join("azure.json").display().to_string()])
            .args(["--attach-method", method])
            // No cluster here, whatever the developer's shell knows of one.
            .env_remove("KUBECONFIG")
            .env_remove("KUBERNETES_SERVICE_HOST")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary of this build runs");
        let log = process.stderr.take().expect("a pipe");
        let controller = Controller { process, folder };
        wait_until_it_serves(log).await;
        (controller, connect(socket).await)
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        // Already ended at worst.
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Reads the controller's log until it says that it serves, and goes on reading behind that.
async fn wait_until_it_serves(log: ChildStderr) {
    let (told, serves) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let (mut told, mut read) = (Some(told), String::new());
        for line in BufReader::new(log).lines().map_while(Result::ok) {
            if told.is_some() {
                read.push_str(&line);
                read.push('\n');
            }
            if line.contains("serving CSI") {
                // The receiver is gone: then the body is not needed.
                let _ = told.take().map(|told| told.send(Ok(())));
            }
        }
        let _ = told.take().map(|told| told.send(Err(read)));
    });
    if let Err(log) = serves.await.expect("the reader tells") {
        panic!("the controller ended:\n{log}");
    }
}

async fn connect(socket: PathBuf) -> ControllerClient<Channel> {
    let channel = Endpoint::from_static("http://socket.invalid")
        .connect_with_connector(tower::service_fn(move |_: Uri| {
            let socket = socket.clone();
            async move { UnixStream::connect(socket).await.map(TokioIo::new) }
        }))
        .await
        .expect("a controller that serves takes a connection");
    ControllerClient::new(channel)
}

fn capability() -> csi::VolumeCapability {
    csi::VolumeCapability {
        access_type: Some(csi::volume_capability::AccessType::Mount(Default::default())),
        access_mode: Some(csi::volume_capability::AccessMode {
            mode: csi::volume_capability::access_mode::Mode::SingleNodeWriter.into(),
        }),
    }
}

/// A volume's life in the cloud: created, attached with another, expanded, detached, deleted.
async fn live(client: &mut ControllerClient<Channel>, parameters: &[(&str, &str)], name: &str) {
    let created = client
        .create_volume(csi::CreateVolumeRequest {
            name: name.to_owned(),
            capacity_range: Some(csi::CapacityRange { required_bytes: 4 * GIB, limit_bytes: 0 }),
            volume_capabilities: vec![capability()],
            parameters: parameters.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
            ..Default::default()
        })
        .await
        .expect("the volume is created")
        .into_inner();
    let volume_id = created.volume.expect("a volume").volume_id;
    client
        .controller_publish_volume(csi::ControllerPublishVolumeRequest {
            volume_id: volume_id.clone(),
            node_id: "node-0".to_owned(),
            volume_capability: Some(capability()),
            ..Default::default()
        })
        .await
        .expect("the volume is attached");
    client
        .controller_unpublish_volume(csi::ControllerUnpublishVolumeRequest {
            volume_id: volume_id.clone(),
            node_id: "node-0".to_owned(),
            ..Default::default()
        })
        .await
        .expect("the volume is detached");
    client
        .controller_expand_volume(csi::ControllerExpandVolumeRequest {
            volume_id: volume_id.clone(),
            capacity_range: Some(csi::CapacityRange { required_bytes: 9 * GIB, limit_bytes: 0 }),
            volume_capability: Some(capability()),
            ..Default::default()
        })
        .await
        .expect("the volume grows");
    client
        .delete_volume(csi::DeleteVolumeRequest { volume_id, ..Default::default() })
        .await
        .expect("the volume is deleted");
}

/// The type of a write's body, by the resource it goes to.
fn type_of(method: &str, path: &str) -> Option<&'static str> {
    let path = path.to_ascii_lowercase();
    let last = path.rsplit('/').nth(1)?;
    match (method, last) {
        ("PUT", "disks") => Some("Disk"),
        ("PATCH", "disks") => Some("DiskUpdate"),
        ("PUT", "virtualmachines") => Some("VirtualMachine"),
        ("PATCH", "virtualmachines") => Some("VirtualMachineUpdate"),
        ("POST", _) if path.ends_with("/attachdetachdatadisks") => Some("AttachDetachDataDisksRequest"),
        _ => None,
    }
}

#[tokio::test]
async fn the_controllers_requests_are_left_for_the_oracle() {
    let emulator = Emulator::start(options()).await.expect("the emulator starts");
    for method in ["action", "whole-list"] {
        let (_controller, mut client) = Controller::start(&emulator, method).await;
        live(&mut client, &[("skuName", "Premium_LRS")], &format!("pvc-plain-{method}")).await;
        let rich = [
            ("skuName", "StandardSSD_LRS"),
            ("cachingMode", "ReadOnly"),
            ("tags", "team=storage,tier=gold"),
            ("networkAccessPolicy", "DenyAll"),
            ("fsType", "ext4"),
        ];
        live(&mut client, &rich, &format!("pvc-rich-{method}")).await;
    }

    let folder = folder("requests");
    let mut kinds: BTreeMap<&str, u32> = BTreeMap::new();
    for call in emulator.control().call_log() {
        if let (Some(type_name), Some(body)) = (type_of(&call.method, &call.path), &call.body) {
            let number = kinds.entry(type_name).or_default();
            *number += 1;
            keep(&folder, type_name, &number.to_string(), body);
        }
    }
    emulator.shutdown().await;
    for type_name in ["Disk", "DiskUpdate", "AttachDetachDataDisksRequest", "VirtualMachine"] {
        assert!(kinds.contains_key(type_name), "the controller sent no {type_name}: {kinds:?}");
    }
}
