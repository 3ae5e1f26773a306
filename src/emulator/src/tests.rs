//! The emulator's behaviours, each proven by raw requests to the service in process.

mod blobs;
mod clients;
mod control;
mod data_disks;
mod deployments;
mod disk_changes;
mod disk_copies;
mod disk_data;
mod disks;
pub(crate) mod engine;
mod front_door;
mod gateway;
mod lists;
mod load_balancers;
mod machines;
mod network;
mod operations;
mod page;
mod private_dns;
mod private_links;
mod public_ips;
mod qemu_machines;
mod races;
mod recorded;
mod recovery;
mod roles;
mod scale_sets;
mod security_groups;
mod shares;
mod snapshot_access;
mod snapshots;
mod state_file;
mod storage_accounts;
mod switches;
mod unusual_requests;
mod vhd_data;
mod vhds;

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::{HeaderMap, Request};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::latency::Profile;
use crate::scenario::{AvailabilitySet, Scenario, VirtualMachine};
use crate::{Control, Emulator, Options};

const SUB: &str = "/subscriptions/00000000-0000-0000-0000-000000000001";
const DISKS_VERSION: &str = "2025-01-02";
const COMPUTE_VERSION: &str = "2025-04-01";

/// An emulator with a client that speaks raw HTTP.
struct Rig {
    emulator: Emulator,
    router: Router,
    token: String,
}

struct Got {
    status: u16,
    headers: HeaderMap,
    body: Value,
}

impl Got {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    fn code(&self) -> &str {
        self.body["error"]["code"].as_str().unwrap_or("")
    }

    fn message(&self) -> &str {
        self.body["error"]["message"].as_str().unwrap_or("")
    }

    #[track_caller]
    fn expect(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{}", self.body);
        self
    }

    #[track_caller]
    fn refused(self, status: u16, code: &str) -> Self {
        assert_eq!((self.status, self.code()), (status, code), "{}", self.body);
        self
    }
}

/// Four machines of eight data disks, three of them in zones, two in an availability set.
fn scenario() -> Scenario {
    let mut zonal = VirtualMachine::pattern("zonal-{}", 3);
    zonal.zones = vec!["1".to_owned(), "2".to_owned(), "3".to_owned()];
    zonal.size = "Standard_D4s_v3".to_owned();
    let mut plain = VirtualMachine::pattern("plain-{}", 2);
    plain.size = "Standard_D4s_v3".to_owned();
    let mut member = VirtualMachine::pattern("member-{}", 2);
    member.availability_set = Some("set".to_owned());
    member.size = "Standard_D4s_v3".to_owned();
    let mut small = VirtualMachine::pattern("basic", 1);
    small.count = None;
    small.size = "Standard_F4".to_owned();
    Scenario {
        availability_sets: vec![AvailabilitySet {
            name: "set".to_owned(),
            resource_group: None,
            fault_domains: 2,
            update_domains: 5,
        }],
        virtual_machines: vec![zonal, plain, member, small],
        ..Scenario::default()
    }
}

fn options() -> Options {
    Options { scenario: scenario(), ..Options::default() }
}

/// Options with durations that tests can wait for on paused time.
fn slow() -> Options {
    Options { latency: Profile::typical(), ..options() }
}

impl Rig {
    async fn new(options: Options) -> Self {
        let emulator = Emulator::start(options).await.unwrap();
        Self { router: emulator.service(), token: emulator.control().token(), emulator }
    }

    fn control(&self) -> Control {
        self.emulator.control()
    }

    async fn send(&self, request: Request<Body>) -> Got {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        Got {
            status: parts.status.as_u16(),
            headers: parts.headers,
            body: serde_json::from_slice(&bytes).unwrap_or(Value::Null),
        }
    }

    async fn with(&self, method: &str, uri: &str, body: Option<Value>, extra: &[(&str, &str)]) -> Got {
        let mut request = Request::builder()
            .method(method)
            .uri(uri)
            .header("host", "127.0.0.1:7")
            .header("authorization", format!("Bearer {}", self.token));
        for (name, value) in extra {
            request = request.header(*name, *value);
        }
        let body = match body {
            Some(body) => {
                request = request.header("content-type", "application/json");
                Body::from(body.to_string())
            }
            None => Body::empty(),
        };
        self.send(request.body(body).unwrap()).await
    }

    async fn call(&self, method: &str, uri: &str, body: Option<Value>) -> Got {
        self.with(method, uri, body, &[]).await
    }

    async fn get(&self, uri: &str) -> Got {
        self.call("GET", uri, None).await
    }

    async fn put_disk(&self, name: &str, body: Value) -> Got {
        self.call("PUT", &disk_uri(name), Some(body)).await
    }

    /// An empty Premium disk, ready for use.
    async fn disk(&self, name: &str) -> String {
        self.disk_with(name, json!({})).await
    }

    /// The same with changes at the top level.
    async fn disk_with(&self, name: &str, changes: Value) -> String {
        let mut body = premium(10);
        for (member, value) in changes.as_object().unwrap() {
            body[member] = value.clone();
        }
        let got = self.put_disk(name, body).await.expect(202);
        self.finish(&got).await;
        disk_id(name)
    }

    /// Polls the asynchronous operation of an answer to its end.
    async fn finish(&self, got: &Got) -> Value {
        let url = got.header("azure-asyncoperation").to_owned();
        assert!(!url.is_empty(), "no operation: {:?}", got.headers);
        self.poll(&url).await
    }

    /// Waits for longer than a token lives, and goes on with a new one.
    async fn wait(&mut self, long: Duration) {
        tokio::time::sleep(long).await;
        self.token = self.control().token();
    }

    async fn poll(&self, url: &str) -> Value {
        for _ in 0..100 {
            let polled = self.get(path_of(url)).await.expect(200);
            if polled.body["status"] != "InProgress" {
                return polled.body;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        panic!("the operation never ended");
    }

    async fn vm(&self, name: &str) -> Value {
        self.get(&vm_uri(name)).await.expect(200).body
    }

    async fn disk_doc(&self, name: &str) -> Value {
        self.get(&disk_uri(name)).await.expect(200).body
    }

    async fn put_data_disks(&self, vm: &str, elements: Value) -> Got {
        self.call("PUT", &vm_uri(vm), Some(data_disks_body(elements))).await
    }

    async fn attach_detach(&self, vm: &str, attach: Value, detach: Value) -> Got {
        let uri = format!("{}/attachDetachDataDisks?api-version={COMPUTE_VERSION}", vm_id(vm));
        let mut body = json!({});
        if attach != json!([]) {
            body["dataDisksToAttach"] = attach;
        }
        if detach != json!([]) {
            body["dataDisksToDetach"] = detach;
        }
        self.call("POST", &uri, Some(body)).await
    }

    /// Attaches disks in one write and waits.
    async fn attached(&self, vm: &str, disks: &[(&str, u8)]) {
        let list: Vec<Value> = disks.iter().map(|(name, lun)| json!({"diskId": disk_id(name), "lun": lun})).collect();
        let got = self.attach_detach(vm, json!(list), json!([])).await.expect(202);
        assert_eq!(self.finish(&got).await["status"], "Succeeded");
    }

    fn luns(&self, vm: &str) -> Vec<(u8, String)> {
        let map = self.control().store(|store| store.lun_map(&vm_id(vm)));
        map.into_iter().map(|(lun, id)| (lun, id.rsplit('/').next().unwrap().to_owned())).collect()
    }
}

fn group() -> String {
    format!("{SUB}/resourceGroups/lazuli")
}

fn disk_id(name: &str) -> String {
    format!("{}/providers/Microsoft.Compute/disks/{name}", group())
}

fn vm_id(name: &str) -> String {
    format!("{}/providers/Microsoft.Compute/virtualMachines/{name}", group())
}

fn disk_uri(name: &str) -> String {
    format!("{}?api-version={DISKS_VERSION}", disk_id(name))
}

fn vm_uri(name: &str) -> String {
    format!("{}?api-version={COMPUTE_VERSION}", vm_id(name))
}

fn empty_disk(sku: &str, gib: u64) -> Value {
    json!({
        "location": "westeurope",
        "sku": {"name": sku},
        "properties": {"creationData": {"createOption": "Empty"}, "diskSizeGB": gib},
    })
}

fn premium(gib: u64) -> Value {
    empty_disk("Premium_LRS", gib)
}

fn data_disks_body(elements: Value) -> Value {
    json!({"location": "westeurope", "properties": {"storageProfile": {"dataDisks": elements}}})
}

fn element(name: &str, lun: u8) -> Value {
    json!({"lun": lun, "createOption": "Attach", "managedDisk": {"id": disk_id(name)}})
}

/// Path and query of an absolute URL.
fn path_of(url: &str) -> &str {
    let after = url.find("://").map_or(0, |at| at + 3);
    url[after..].find('/').map_or(url, |at| &url[after + at..])
}
