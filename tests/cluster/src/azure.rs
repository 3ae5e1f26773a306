//! The emulator over plain HTTP: what it says of itself, and what another tool of another team might do to it.

use std::collections::{BTreeMap, BTreeSet};

use lazuli_emulator::scenario;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::process::PATIENCE;

/// One request over a connection of its own: status and body.
pub async fn http(address: &str, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> (u16, String) {
    let mut request = format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n");
    for (name, value) in headers {
        request += &format!("{name}: {value}\r\n");
    }
    request += &format!("Content-Length: {}\r\n\r\n{body}", body.len());
    let answer = async {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).await.unwrap();
        String::from_utf8(bytes).unwrap()
    };
    let answer = tokio::time::timeout(PATIENCE, answer).await.expect("no answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("an HTTP answer");
    assert!(!head.to_lowercase().contains("transfer-encoding"), "{head}");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    (status, body.to_owned())
}

/// A running emulator.
#[derive(Debug, Clone)]
pub struct Azure {
    /// `http://127.0.0.1:PORT`
    pub url: String,
}

impl Azure {
    /// The port it serves at.
    pub fn address(&self) -> &str {
        self.url.strip_prefix("http://").unwrap()
    }

    async fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> (u16, Value) {
        let (status, text) = http(self.address(), method, path, headers, body).await;
        (status, serde_json::from_str(&text).unwrap_or(Value::Null))
    }

    async fn read(&self, path: &str) -> Value {
        let (status, value) = self.send("GET", path, &[], "").await;
        assert_eq!(status, 200, "{path}");
        value
    }

    /// Adds an incident.
    pub async fn incident(&self, incident: &Value) {
        let kind = [("Content-Type", "application/json")];
        let (status, answer) = self.send("POST", "/_emulator/incidents", &kind, &incident.to_string()).await;
        assert!(status < 300, "{status} {answer}");
    }

    /// Forgets all incidents.
    pub async fn clear_incidents(&self) {
        let (status, answer) = self.send("DELETE", "/_emulator/incidents", &[], "").await;
        assert!(status < 300, "{status} {answer}");
    }

    /// Everything that exists.
    pub async fn dump(&self) -> Value {
        self.read("/_emulator/state").await
    }

    /// A resource as it is now, if it exists.
    pub async fn resource(&self, id: &str) -> Option<Value> {
        let dump = self.dump().await;
        let is_it = |doc: &&Value| doc["id"].as_str().is_some_and(|one| one.eq_ignore_ascii_case(id));
        dump["resources"].as_object().unwrap().values().find(is_it).cloned()
    }

    /// How many requests the resource manager has had since they were last forgotten.
    pub async fn arm_calls(&self) -> usize {
        let calls = self.read("/_emulator/calls").await;
        calls.as_array().unwrap().iter().filter(|call| call["plane"] == "arm").count()
    }

    /// What the resource manager was asked to read since its requests were last forgotten: method and path.
    pub async fn arm_reads(&self) -> Vec<String> {
        self.arm_requests(|method| method == "GET").await
    }

    /// The writes that the resource manager was asked for since then: method and path.
    pub async fn arm_writes(&self) -> Vec<String> {
        self.arm_requests(|method| method != "GET").await
    }

    async fn arm_requests(&self, is_it: impl Fn(&str) -> bool) -> Vec<String> {
        let calls = self.read("/_emulator/calls").await;
        let of_arm = calls.as_array().unwrap().iter().filter(|call| call["plane"] == "arm");
        let text = |call: &Value| Some(format!("{} {}", call["method"].as_str()?, call["path"].as_str()?));
        of_arm.filter(|call| call["method"].as_str().is_some_and(&is_it)).filter_map(text).collect()
    }

    /// How often the disks of a subscription were listed.
    pub async fn lists_of_disks(&self) -> usize {
        let calls = self.read("/_emulator/calls").await;
        let is_it = |call: &&Value| call["path"].as_str().is_some_and(|path| path.to_lowercase().ends_with("/disks"));
        calls.as_array().unwrap().iter().filter(is_it).count()
    }

    /// Forgets which requests there were.
    pub async fn forget_calls(&self) {
        assert_eq!(self.send("DELETE", "/_emulator/calls", &[], "").await.0, 204);
    }

    /// Waits until no operation runs, and gives the dump of that moment.
    pub async fn at_rest(&self) -> Value {
        let began = std::time::Instant::now();
        loop {
            let dump = self.dump().await;
            if dump["runningOperations"] == 0 {
                return dump;
            }
            assert!(began.elapsed() < PATIENCE, "operations run without end");
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    }

    /// The names of the disks that the provider made and that still exist.
    pub async fn disks(&self) -> BTreeSet<String> {
        let dump = self.at_rest().await;
        let of_us = |doc: &&Value| doc["tags"]["k8s-azure-created-by"] == "kubernetes-azure-dd";
        let resources = dump["resources"].as_object().unwrap().values();
        resources.filter(of_us).filter_map(|doc| Some(doc["name"].as_str()?.to_lowercase())).collect()
    }

    /// The VHDs of disks that exist, and the storage accounts, each by its name.
    pub async fn blobs_and_accounts(&self) -> (BTreeSet<String>, BTreeSet<String>) {
        let dump = self.at_rest().await;
        let of = |kind: &str| {
            let resources = dump["resources"].as_object().unwrap().values();
            let name = |doc: &Value| doc["properties"]["name"].as_str().or(doc["name"].as_str()).map(str::to_owned);
            resources.filter(|doc| doc["type"] == kind).filter_map(name).collect()
        };
        (of("lazuli/blobs"), of("Microsoft.Storage/storageAccounts"))
    }

    /// Which disks the machines hold, by name: machine and LUN.
    pub async fn attached(&self) -> BTreeMap<String, Vec<(String, u8)>> {
        let dump = self.at_rest().await;
        let mut found: BTreeMap<String, Vec<(String, u8)>> = BTreeMap::new();
        for (machine, luns) in dump["luns"].as_object().unwrap() {
            for (lun, disk) in luns.as_object().unwrap() {
                let place = (last(machine), lun.parse().unwrap());
                found.entry(last(disk.as_str().unwrap())).or_default().push(place);
            }
        }
        found
    }

    /// What the instance metadata says of a machine's data disks: LUN to the name of the disk.
    pub async fn metadata(&self, machine: &str) -> BTreeMap<u8, String> {
        let path = format!("/_imds/{machine}/metadata/instance?api-version=2021-02-01");
        let (status, instance) = self.send("GET", &path, &[("Metadata", "true")], "").await;
        if status != 200 {
            return BTreeMap::new();
        }
        let disks = instance["compute"]["storageProfile"]["dataDisks"].as_array().cloned().unwrap_or_default();
        let place =
            |disk: &Value| Some((disk["lun"].as_str()?.parse().ok()?, last(disk["managedDisk"]["id"].as_str()?)));
        disks.iter().filter_map(place).collect()
    }

    /// Another client, which has signed in for itself.
    pub async fn other_tool(&self) -> OtherTool {
        let form = format!(
            "grant_type=client_credentials&client_id={}&client_secret={}&scope=https%3A%2F%2Fmanagement.azure.com%2F.default",
            scenario::CLIENT_ID,
            scenario::CLIENT_SECRET
        );
        let path = format!("/{}/oauth2/v2.0/token", scenario::TENANT);
        let kind = [("Content-Type", "application/x-www-form-urlencoded")];
        let (status, answer) = self.send("POST", &path, &kind, &form).await;
        assert_eq!(status, 200, "{answer}");
        OtherTool { azure: self.clone(), token: format!("Bearer {}", answer["access_token"].as_str().unwrap()) }
    }
}

fn last(id: &str) -> String {
    id.rsplit('/').next().unwrap_or_default().to_lowercase()
}

/// The id of a machine of the emulator's own scenario.
pub fn machine_id(name: &str) -> String {
    id_of("virtualMachines", name)
}

/// The id of a disk in the group of that scenario.
pub fn disk_id(name: &str) -> String {
    id_of("disks", name)
}

/// The id of a resource of the network in the group of that scenario.
pub fn network_id(kind: &str, name: &str) -> String {
    id_of(kind, name).replace("Microsoft.Compute", "Microsoft.Network")
}

fn account_id(name: &str) -> String {
    id_of("storageAccounts", name).replace("Microsoft.Compute", "Microsoft.Storage")
}

fn id_of(kind: &str, name: &str) -> String {
    format!(
        "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Compute/{kind}/{name}",
        scenario::SUBSCRIPTION,
        scenario::RESOURCE_GROUP
    )
}

/// Another tool's client of the resource manager.
pub struct OtherTool {
    azure: Azure,
    token: String,
}

impl OtherTool {
    async fn call(&self, method: &str, id: &str, body: Option<Value>) -> u16 {
        let version = match () {
            () if id.contains("/disks/") => "2025-01-02",
            () if id.contains("/Microsoft.Network/") => "2025-05-01",
            () if id.contains("/Microsoft.Storage/") => "2024-01-01",
            () => "2025-04-01",
        };
        let path = format!("{id}?api-version={version}");
        let headers = [("Authorization", self.token.as_str()), ("Content-Type", "application/json")];
        let body = body.map(|body| body.to_string()).unwrap_or_default();
        let (status, answer) = self.azure.send(method, &path, &headers, &body).await;
        assert!(status < 400, "{method} {id}: {status} {answer}");
        self.azure.at_rest().await;
        status
    }

    /// Writes a resource of the network.
    pub async fn put_network(&self, kind: &str, name: &str, properties: Value) {
        let body = json!({"location": scenario::LOCATION, "properties": properties});
        self.call("PUT", &network_id(kind, name), Some(body)).await;
    }

    /// Stops a machine, and gives its hardware back.
    pub async fn deallocate(&self, machine: &str) {
        self.call("POST", &format!("{}/deallocate", machine_id(machine)), None).await;
    }

    /// Deletes a machine.
    pub async fn delete_machine(&self, machine: &str) {
        self.call("DELETE", &machine_id(machine), None).await;
    }

    /// Makes a blank disk that no driver made.
    pub async fn make_disk(&self, name: &str, gib: u32) {
        self.make_disk_with_tags(name, gib, json!({})).await;
    }

    /// The same, with tags.
    pub async fn make_disk_with_tags(&self, name: &str, gib: u32, tags: Value) {
        let body = json!({
            "location": scenario::LOCATION, "sku": {"name": "StandardSSD_LRS"}, "tags": tags,
            "properties": {"creationData": {"createOption": "Empty"}, "diskSizeGB": gib},
        });
        self.call("PUT", &id_of("disks", name), Some(body)).await;
    }

    /// Makes a storage account.
    pub async fn make_account(&self, name: &str) {
        let properties = json!({"allowBlobPublicAccess": false, "supportsHttpsTrafficOnly": true});
        let body = json!({
            "location": scenario::LOCATION, "kind": "StorageV2", "sku": {"name": "Standard_LRS"}, "properties": properties,
        });
        self.call("PUT", &account_id(name), Some(body)).await;
    }

    /// Deletes a storage account.
    pub async fn delete_account(&self, name: &str) {
        self.call("DELETE", &account_id(name), None).await;
    }

    /// Deletes a disk.
    pub async fn delete_disk(&self, name: &str) {
        self.call("DELETE", &id_of("disks", name), None).await;
    }

    /// Attaches a disk to a machine at a LUN.
    pub async fn attach(&self, machine: &str, disk: &str, lun: u8) {
        let body = json!({"dataDisksToAttach": [{"diskId": id_of("disks", disk), "lun": lun}]});
        self.call("POST", &format!("{}/attachDetachDataDisks", id_of("virtualMachines", machine)), Some(body)).await;
    }

    /// Takes a disk away from a machine without asking the machine.
    pub async fn yank(&self, machine: &str, disk: &str) {
        let body = json!({"dataDisksToDetach": [{"diskId": id_of("disks", disk), "detachOption": "ForceDetach"}]});
        self.call("POST", &format!("{}/attachDetachDataDisks", id_of("virtualMachines", machine)), Some(body)).await;
    }
}
