//! The rig of the disk controller's tests: a provider on an embedded Azure, requests as the sidecars send them, and
//! Azure's state afterwards.
//!
//! Nothing here imports a crate that decides: the tests judge by the emulator's own dump and call log.
//!
//! # What these suites catch
//!
//! Each of these was broken by hand once, and these tests failed:
//!
//! | broken | caught by |
//! |---|---|
//! | `lun::allocate` gives away a reserved LUN | three tests of `disk_luns` |
//! | the whole list goes without `If-Match` | `disk_a_role_without_the_action_writes_the_whole_list_under_its_etag_from_then_on` |
//! | a request is answered although another one of the disk has replaced it | `disk_an_unpublish_is_never_answered_by_a_publish_that_was_given_up` |
//! | after a failed write, what the VM's model lists counts as attached | `disk_an_attach_that_failed_and_stays_in_the_model_is_applied_again_by_the_next_publish` |
//! | while a write runs, what the VM's model lists counts as attached | the same, and `disk_a_publish_that_finds_anothers_attach_in_flight_answers_when_that_has_ended` |
//! | the VM worker does not wait for another writer | `disk_leadership_that_moves_while_a_write_is_in_flight_loses_and_doubles_nothing` and seven more |
//! | a lost answer fails the batch | `disk_a_lost_answer_never_has_two_effects` and three more |
//! | a disk that another VM holds may be attached | `disk_a_member_that_is_attached_elsewhere_fails_alone_before_anything_is_written` and one more |
//! | one 404 proves that a VM is gone | two tests of `disk_gone` |
//!
//! Broken, and caught by nothing here: `LONGEST_BURST` of zero, since on paused time a whole storm arrives within one
//! `QUIET`.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    time::Duration,
};

use csi_proto::csi::{
    CapacityRange, ControllerExpandVolumeRequest, ControllerPublishVolumeRequest, ControllerUnpublishVolumeRequest,
    CreateVolumeRequest, DeleteVolumeRequest, ListVolumesRequest, Volume, VolumeCapability,
    controller_client::ControllerClient,
    list_volumes_response::Entry,
    volume_capability::{AccessType, MountVolume, access_mode::Mode},
};
use lazuli_emulator::{Control, call_log::Call, incident::Incident, latency::Profile, scenario};
use lazuli_rig::{AttachMethod, Folder, Lab, Options};
use serde_json::{Value, json};
use tonic::{Code, Status, transport::Channel};

use super::deploy_azure;

pub(super) const GIB: i64 = 1 << 30;

pub(super) type Client = ControllerClient<Channel>;

/// A lab with a folder of its own.
pub(super) struct Rig {
    pub(super) lab: Lab,
    pub(super) control: Control,
    _folder: Folder,
}

/// An Azure whose operations take as long as the published medians.
pub(super) fn typical() -> lazuli_emulator::Options {
    lazuli_emulator::Options { latency: Profile::typical(), ..Default::default() }
}

impl Rig {
    /// On this Azure, with the provider's defaults.
    pub(super) async fn on(azure: lazuli_emulator::Options) -> Self {
        Self::with(azure, |_| {}).await
    }

    pub(super) async fn with(azure: lazuli_emulator::Options, change: impl FnOnce(&mut Options)) -> Self {
        let folder = Folder::make("it").unwrap();
        let mut options = Options { azure, ..Options::new(folder.path()) };
        change(&mut options);
        let lab = Lab::start(options).await.unwrap();
        Self { control: lab.emulator.control(), lab, _folder: folder }
    }

    pub(super) async fn controller(&mut self) -> Client {
        self.lab.controller("controller").await.unwrap()
    }

    /// An Azure with the published medians and one controller.
    pub(super) async fn typical() -> (Self, Client) {
        let mut rig = Self::on(typical()).await;
        let client = rig.controller().await;
        (rig, client)
    }

    /// Stops everything. Whatever the controller asked, the roles in `deploy/azure` allow it.
    pub(super) async fn stop(self) {
        deploy_azure::assert_allowed(&self.calls());
        self.lab.stop().await;
    }

    /// Adds an incident, given as JSON.
    pub(super) fn incident(&self, incident: Value) {
        let incident: Incident = serde_json::from_value(incident).unwrap();
        self.control.add_incident(incident).unwrap();
    }

    /// Another client of the same Azure.
    pub(super) fn other_tool(&self) -> OtherTool {
        OtherTool { service: self.lab.emulator.service(), token: self.control.token() }
    }

    /// The requests to the resource manager since the last reset.
    pub(super) fn calls(&self) -> Vec<Call> {
        self.control.call_log().into_iter().filter(|call| call.plane == "arm").collect()
    }

    /// Writes of the resource manager.
    pub(super) fn writes(&self) -> Vec<Call> {
        self.calls().into_iter().filter(|call| call.method != "GET").collect()
    }

    /// Writes of one machine.
    pub(super) fn vm_writes(&self, machine: &str) -> Vec<Call> {
        let id = vm_id(machine).to_lowercase();
        self.writes().into_iter().filter(|call| call.path.to_lowercase().starts_with(&id)).collect()
    }

    /// What the hypervisor of a machine holds: LUN to the name of the disk.
    pub(super) fn luns(&self, machine: &str) -> BTreeMap<u8, String> {
        let maps = self.control.lun_maps();
        let held = maps.get(&vm_id(machine).to_lowercase()).cloned().unwrap_or_default();
        held.into_iter().map(|(lun, disk)| (lun, name_of(&disk).to_lowercase())).collect()
    }

    /// A disk's document.
    pub(super) fn disk(&self, name: &str) -> Option<Value> {
        self.control.dump().resources.get(&disk_id(name).to_lowercase()).cloned()
    }

    /// The names of the managed disks that the provider made and that still exist.
    pub(super) fn disks(&self) -> BTreeSet<String> {
        let dump = self.control.dump();
        dump.resources
            .values()
            .filter(|doc| doc["type"].as_str().is_some_and(|kind| kind.eq_ignore_ascii_case("Microsoft.Compute/disks")))
            .filter(|doc| doc["tags"]["k8s-azure-created-by"] == "kubernetes-azure-dd")
            .map(|doc| doc["name"].as_str().unwrap_or_default().to_lowercase())
            .collect()
    }

    /// Waits, on the clock of the test, until nothing runs in Azure any more.
    pub(super) async fn at_rest(&self) {
        while self.control.running_operations() > 0 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// What holds whatever happened, judged from the emulator's dump alone: no disk on two machines, none twice on
    /// one, no machine that lists what it does not hold or holds what it does not list, and disks that agree with
    /// their machines.
    #[track_caller]
    pub(super) fn check(&self) {
        let dump = self.control.dump();
        assert_eq!(dump.running_operations, 0, "Azure is not at rest");
        assert!(dump.violations.is_empty(), "{:?}", dump.violations);
        let mut holders: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (vm, held) in &dump.luns {
            for disk in held.values() {
                holders.entry(disk.to_lowercase()).or_default().push(vm.clone());
            }
            let listed = dump.resources[vm]["properties"]["storageProfile"]["dataDisks"].as_array().cloned();
            let listed: BTreeMap<u8, String> = listed
                .unwrap_or_default()
                .iter()
                .filter_map(|element| {
                    let lun = u8::try_from(element["lun"].as_u64()?).ok()?;
                    Some((lun, element["managedDisk"]["id"].as_str()?.to_lowercase()))
                })
                .collect();
            let held: BTreeMap<u8, String> = held.iter().map(|(lun, disk)| (*lun, disk.to_lowercase())).collect();
            assert_eq!(listed, held, "{vm} lists other disks than it holds");
        }
        for (disk, vms) in &holders {
            assert_eq!(vms.len(), 1, "{disk} is on {vms:?}");
            let managed_by = dump.resources[disk]["managedBy"].as_str().map(str::to_lowercase);
            assert_eq!(managed_by.as_deref(), Some(vms[0].as_str()), "{disk} does not know its machine");
        }
        for doc in dump.resources.values().filter(|doc| doc["properties"]["diskState"] == "Attached") {
            let id = doc["id"].as_str().unwrap_or_default().to_lowercase();
            let of_the_system = doc["properties"]["osType"].is_string();
            assert!(of_the_system || holders.contains_key(&id), "{id} says it is attached and no machine holds it");
        }
    }

    /// The same, and no disk is left.
    #[track_caller]
    pub(super) fn check_empty(&self) {
        self.check();
        assert_eq!(self.disks(), BTreeSet::new(), "disks are left");
    }
}

/// Another tool, which speaks to the resource manager directly.
pub(super) struct OtherTool {
    service: axum::Router,
    token: String,
}

impl OtherTool {
    /// Sends a request and gives status and body.
    pub(super) async fn call(&self, method: &str, path: &str, body: Option<Value>) -> (u16, Value) {
        let version = if path.contains("/disks/") { "2025-01-02" } else { "2025-04-01" };
        self.call_in(version, method, path, body).await
    }

    /// The same, by this version of the API.
    pub(super) async fn call_in(&self, version: &str, method: &str, path: &str, body: Option<Value>) -> (u16, Value) {
        use tower::ServiceExt;
        let request = http::Request::builder()
            .method(method)
            .uri(format!("{path}?api-version={version}"))
            .header("authorization", format!("Bearer {}", self.token))
            .header("content-type", "application/json")
            .body(axum::body::Body::from(body.map(|body| body.to_string()).unwrap_or_default()))
            .unwrap();
        let response = self.service.clone().oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let bytes = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
        (status, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
    }

    /// Makes a disk that no driver made.
    pub(super) async fn make_disk(&self, name: &str) {
        let body = json!({
            "location": scenario::LOCATION, "sku": {"name": "StandardSSD_LRS"},
            "properties": {"creationData": {"createOption": "Empty"}, "diskSizeGB": 4},
        });
        let (status, answer) = self.call("PUT", &disk_id(name), Some(body)).await;
        assert_eq!(status, 202, "{answer}");
    }

    /// Attaches disks to a machine, at these LUNs.
    pub(super) async fn attach(&self, machine: &str, disks: &[(&str, u8)]) -> u16 {
        let list: Vec<Value> = disks.iter().map(|(name, lun)| json!({"diskId": disk_id(name), "lun": lun})).collect();
        let path = format!("{}/attachDetachDataDisks", vm_id(machine));
        self.call("POST", &path, Some(json!({ "dataDisksToAttach": list }))).await.0
    }

    /// Detaches disks from a machine.
    pub(super) async fn detach(&self, machine: &str, disks: &[&str]) -> u16 {
        let list: Vec<Value> = disks.iter().map(|name| json!({"diskId": disk_id(name)})).collect();
        let path = format!("{}/attachDetachDataDisks", vm_id(machine));
        self.call("POST", &path, Some(json!({ "dataDisksToDetach": list }))).await.0
    }
}

pub(super) fn disk_id(name: &str) -> String {
    format!(
        "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Compute/disks/{name}",
        scenario::SUBSCRIPTION,
        scenario::RESOURCE_GROUP
    )
}

pub(super) fn vm_id(name: &str) -> String {
    format!(
        "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Compute/virtualMachines/{name}",
        scenario::SUBSCRIPTION,
        scenario::RESOURCE_GROUP
    )
}

pub(super) fn name_of(id: &str) -> &str {
    id.rsplit('/').next().unwrap_or(id)
}

pub(super) fn capability() -> VolumeCapability {
    VolumeCapability {
        access_mode: Some(csi_proto::csi::volume_capability::AccessMode { mode: Mode::SingleNodeWriter.into() }),
        access_type: Some(AccessType::Mount(MountVolume { fs_type: "ext4".into(), ..Default::default() })),
    }
}

pub(super) fn create_request(name: &str, parameters: &[(&str, &str)]) -> CreateVolumeRequest {
    CreateVolumeRequest {
        name: name.into(),
        capacity_range: Some(CapacityRange { required_bytes: GIB, limit_bytes: 0 }),
        volume_capabilities: vec![capability()],
        parameters: parameters.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect(),
        ..Default::default()
    }
}

pub(super) async fn create_with(client: &Client, name: &str, parameters: &[(&str, &str)]) -> Result<Volume, Status> {
    let answer = client.clone().create_volume(create_request(name, parameters)).await?.into_inner();
    Ok(answer.volume.unwrap())
}

pub(super) async fn create(client: &Client, name: &str) -> Result<Volume, Status> {
    create_with(client, name, &[]).await
}

/// Creates many volumes at once, in the order of their names.
pub(super) async fn create_all(client: &Client, names: &[String]) -> Vec<Volume> {
    let made = futures::future::join_all(names.iter().map(|name| create(client, name))).await;
    made.into_iter().map(Result::unwrap).collect()
}

pub(super) async fn delete(client: &Client, volume_id: &str) -> Result<(), Status> {
    let request = DeleteVolumeRequest { volume_id: volume_id.into(), ..Default::default() };
    client.clone().delete_volume(request).await.map(drop)
}

pub(super) async fn publish_as(
    client: &Client,
    volume_id: &str,
    context: &std::collections::HashMap<String, String>,
    node: &str,
) -> Result<u8, Status> {
    let request = ControllerPublishVolumeRequest {
        volume_id: volume_id.into(),
        node_id: node.into(),
        volume_capability: Some(capability()),
        volume_context: context.clone(),
        ..Default::default()
    };
    let answer = client.clone().controller_publish_volume(request).await?.into_inner();
    Ok(answer.publish_context["LUN"].parse().unwrap())
}

pub(super) async fn publish(client: &Client, volume: &Volume, node: &str) -> Result<u8, Status> {
    publish_as(client, &volume.volume_id, &volume.volume_context, node).await
}

/// Publishes many at once.
pub(super) async fn publish_all(client: &Client, volumes: &[Volume], node: &str) -> Vec<Result<u8, Status>> {
    futures::future::join_all(volumes.iter().map(|volume| publish(client, volume, node))).await
}

pub(super) async fn unpublish(client: &Client, volume_id: &str, node: &str) -> Result<(), Status> {
    let request =
        ControllerUnpublishVolumeRequest { volume_id: volume_id.into(), node_id: node.into(), ..Default::default() };
    client.clone().controller_unpublish_volume(request).await.map(drop)
}

pub(super) async fn unpublish_all(client: &Client, volumes: &[Volume], node: &str) -> Vec<Result<(), Status>> {
    futures::future::join_all(volumes.iter().map(|volume| unpublish(client, &volume.volume_id, node))).await
}

pub(super) async fn expand(client: &Client, volume_id: &str, required: i64, limit: i64) -> Result<i64, Status> {
    let request = ControllerExpandVolumeRequest {
        volume_id: volume_id.into(),
        capacity_range: Some(CapacityRange { required_bytes: required, limit_bytes: limit }),
        volume_capability: Some(capability()),
        ..Default::default()
    };
    Ok(client.clone().controller_expand_volume(request).await?.into_inner().capacity_bytes)
}

/// One page of ListVolumes, with the token of the next.
pub(super) async fn list_page(client: &Client, max: i32, token: &str) -> Result<(Vec<Entry>, String), Status> {
    let request = ListVolumesRequest { max_entries: max, starting_token: token.into() };
    let answer = client.clone().list_volumes(request).await?.into_inner();
    Ok((answer.entries, answer.next_token))
}

/// All of ListVolumes: volume id to nodes.
pub(super) async fn list(client: &Client) -> Result<BTreeMap<String, Vec<String>>, Status> {
    let (entries, token) = list_page(client, 0, "").await?;
    assert_eq!(token, "");
    Ok(entries.into_iter().map(named).collect())
}

pub(super) fn named(entry: Entry) -> (String, Vec<String>) {
    let nodes = entry.status.unwrap().published_node_ids;
    (entry.volume.unwrap().volume_id, nodes)
}

/// Fails unless the call failed with this code; gives the message.
#[track_caller]
pub(super) fn refused<T: std::fmt::Debug>(result: Result<T, Status>, code: Code) -> String {
    let status = result.unwrap_err();
    assert_eq!(status.code(), code, "{}", status.message());
    status.message().to_owned()
}

/// Calls as a sidecar does: again, after a while, as long as the code says that it may help.
pub(super) async fn insist<T, F: Future<Output = Result<T, Status>>>(mut call: impl FnMut() -> F) -> T {
    for _ in 0..20 {
        match call().await {
            Ok(answer) => return answer,
            Err(status) if matches!(status.code(), Code::Aborted | Code::Unavailable | Code::FailedPrecondition) => {
                pass(seconds(1)).await;
            }
            Err(status) => panic!("{status:?}"),
        }
    }
    panic!("twenty tries did not help");
}

/// Starts something that goes on while the test does something else.
pub(super) fn start<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> tokio::task::JoinHandle<T> {
    tokio::spawn(future)
}

/// Publishes in the background.
pub(super) fn publishing(
    client: &Client,
    volume: &Volume,
    node: &'static str,
) -> tokio::task::JoinHandle<Result<u8, Status>> {
    let (client, volume) = (client.clone(), volume.clone());
    start(async move { publish(&client, &volume, node).await })
}

pub(super) fn numbered(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("pvc-{n:02}")).collect()
}

pub(super) async fn pass(duration: Duration) {
    tokio::time::sleep(duration).await;
}

pub(super) fn millis(n: u64) -> Duration {
    Duration::from_millis(n)
}

pub(super) fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// How a VM's data disks are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    Action,
    WholeList,
    AzureStack,
}

pub(super) const METHODS: [Method; 3] = [Method::Action, Method::WholeList, Method::AzureStack];

impl Method {
    pub(super) fn set(self, options: &mut Options) {
        match self {
            Self::Action => options.attach_method = AttachMethod::Action,
            Self::WholeList => options.attach_method = AttachMethod::WholeList,
            Self::AzureStack => options.azure_stack = true,
        }
    }
}
