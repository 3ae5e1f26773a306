//! Managed disks that are made from page blobs, as external-provisioner asks for them: a claim whose source is a volume that
//! is a VHD.

use std::time::Duration;

use csi_proto::csi::{
    CapacityRange, CreateVolumeRequest, Volume, VolumeContentSource,
    volume_content_source::{Type, VolumeSource},
};
use lazuli_assembly::clients::Azure;
use lazuli_azure::{Until, blob::Account};
use lazuli_emulator::scenario::{self, ResourceGroup, VirtualMachine};
use lazuli_model::{ArmId, BlobUri};
use lazuli_vhd::{
    footer::{Footer, ZEROS},
    life::{Answer, Blob, Call, Metadata},
};
use lazuli_volume::SOURCE_KEY;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tonic::{Code, Status};

use super::disk_rig::{Client, GIB, Rig, create_request, delete, publish, typical, unpublish, vm_id};

const STORAGE_VERSION: &str = "2025-01-01";
const MACHINE: &str = "old-0";

/// An Azure with a storage account `vhds1` and a machine that takes VHDs.
struct Vhds {
    rig: Rig,
    azure: Azure,
}

impl Vhds {
    async fn start() -> (Self, Client) {
        Self::on(typical()).await
    }

    async fn on(mut options: lazuli_emulator::Options) -> (Self, Client) {
        let mut old = VirtualMachine::pattern("old-{}", 1);
        old.os_disk.storage_account = Some("vhds1".to_owned());
        options.scenario.virtual_machines.push(old);
        let group = ResourceGroup { name: "elsewhere".into(), location: None, subscription: None };
        options.scenario.resource_groups.push(group);
        let mut rig = Rig::on(options).await;
        let client = rig.controller().await;
        let azure = rig.lab.azure(&mut Registry::default()).await.unwrap();
        let vhds = Self { rig, azure };
        vhds.account(scenario::RESOURCE_GROUP, "vhds1", scenario::LOCATION).await;
        (vhds, client)
    }

    async fn account(&self, group: &str, name: &str, location: &str) {
        let body = json!({
            "location": location, "sku": {"name": "Standard_LRS"}, "kind": "StorageV2",
            "properties": {"supportsHttpsTrafficOnly": false},
        });
        let (status, answer) =
            self.rig.other_tool().call_in(STORAGE_VERSION, "PUT", account_id(group, name).as_str(), Some(body)).await;
        assert_eq!(status, 202, "{answer}");
        self.rig.at_rest().await;
        let account = account_id(group, name);
        let answer = self.blob_call(&account, &uri(name, "x"), Call::MakeContainer).await;
        assert!(matches!(answer, Answer::Done(_)), "{answer:?}");
    }

    async fn blob_call(&self, account: &ArmId, blob: &BlobUri, call: Call) -> Answer<lazuli_azure::blob::BlobError> {
        let account = Account { id: account.clone(), location: None };
        self.azure.blobs.call(&account, blob, &call, &Until::within(Duration::from_secs(60))).await
    }

    /// A VHD that nobody has.
    async fn vhd(&self, group: &str, account: &str, name: &str, bytes: u64) -> BlobUri {
        let (id, blob) = (account_id(group, account), uri(account, name));
        let made = self.blob_call(&id, &blob, Call::MakeBlob { length: bytes + 512, metadata: Metadata::new() }).await;
        let Answer::Done(Some(if_match)) = made else { panic!("{made:?}") };
        let page = Box::new(Footer::new(bytes, [7; 16], 0).to_page());
        let written = self.blob_call(&id, &blob, Call::WritePage { offset: bytes, page, if_match }).await;
        assert!(matches!(written, Answer::Done(_)), "{written:?}");
        blob
    }

    async fn plain(&self, name: &str, gib: u64) -> BlobUri {
        self.vhd(scenario::RESOURCE_GROUP, "vhds1", name, gib << 30).await
    }

    async fn blob(&self, blob: &BlobUri) -> Blob {
        match self.blob_call(&account_id(scenario::RESOURCE_GROUP, "vhds1"), blob, Call::ReadBlob).await {
            Answer::Blob(blob) => *blob,
            other => panic!("{other:?}"),
        }
    }

    /// Somebody writes to a VHD.
    async fn write(&self, blob: &BlobUri) {
        let (if_match, page) = (self.blob(blob).await.etag, Box::new([1; 512]));
        let call = Call::WritePage { offset: 512, page, if_match };
        let written = self.blob_call(&account_id(scenario::RESOURCE_GROUP, "vhds1"), blob, call).await;
        assert!(matches!(written, Answer::Done(_)), "{written:?}");
    }

    /// Another tool gives the machine these VHDs, and no others.
    async fn attach(&self, blobs: &[&BlobUri]) {
        let disks: Vec<Value> = blobs
            .iter()
            .enumerate()
            .map(|(lun, blob)| {
                json!({"lun": lun, "name": format!("d{lun}"), "createOption": "Attach", "vhd": {"uri": blob.as_str()}})
            })
            .collect();
        let body = json!({"properties": {"storageProfile": {"dataDisks": disks}}});
        let (status, answer) = self.rig.other_tool().call("PATCH", &vm_id(MACHINE), Some(body)).await;
        assert!((200..300).contains(&status), "{status} {answer}");
        self.rig.at_rest().await;
    }

    async fn power(&self, action: &str) {
        let (status, answer) = self.rig.other_tool().call("POST", &format!("{}/{action}", vm_id(MACHINE)), None).await;
        assert_eq!(status, 202, "{answer}");
        self.rig.at_rest().await;
    }

    fn puts(&self) -> usize {
        self.rig.writes().iter().filter(|call| call.method == "PUT" && call.path.contains("/disks/")).count()
    }
}

fn account_id(group: &str, name: &str) -> ArmId {
    ArmId::storage_account(scenario::SUBSCRIPTION, group, name).unwrap()
}

fn uri(account: &str, name: &str) -> BlobUri {
    BlobUri::of(account, "core.windows.net", "vhds", name).unwrap()
}

fn request(name: &str, blob: &str, gib: i64) -> CreateVolumeRequest {
    let source = Type::Volume(VolumeSource { volume_id: blob.into() });
    CreateVolumeRequest {
        capacity_range: Some(CapacityRange { required_bytes: gib * GIB, limit_bytes: 0 }),
        volume_content_source: Some(VolumeContentSource { r#type: Some(source) }),
        ..create_request(name, &[])
    }
}

async fn import(client: &Client, name: &str, blob: &BlobUri, gib: i64) -> Result<Volume, Status> {
    let answer = client.clone().create_volume(request(name, blob.as_str(), gib)).await?;
    Ok(answer.into_inner().volume.unwrap())
}

fn tag(disk: &Value) -> &str {
    disk["tags"]["lazuli-imported"].as_str().unwrap()
}

#[tokio::test(start_paused = true)]
async fn disk_a_free_vhd_becomes_a_managed_disk_and_stays_as_it_is() {
    let (vhds, client) = Vhds::start().await;
    let blob = vhds.plain("a.vhd", 2).await;
    let before = vhds.blob(&blob).await;
    let volume = import(&client, "pvc-1", &blob, 3).await.unwrap();
    assert_eq!(volume.capacity_bytes, 3 * GIB);
    assert_eq!(volume.content_source, request("pvc-1", blob.as_str(), 3).volume_content_source);
    assert_eq!(volume.volume_context[SOURCE_KEY], blob.as_str());
    assert_eq!(volume.volume_context["resizeRequired"], "true");
    let disk = vhds.rig.disk("pvc-1").unwrap();
    let data = &disk["properties"]["creationData"];
    assert_eq!(data["createOption"], "Import");
    assert_eq!(data["sourceUri"], blob.as_str());
    assert_eq!(data["storageAccountId"], account_id(scenario::RESOURCE_GROUP, "vhds1").as_str());
    assert_eq!(disk["properties"]["diskSizeGB"], 3);
    assert!(tag(&disk).ends_with(&format!(" {} checked", (2_u64 << 30) + 512)), "{}", tag(&disk));
    assert_eq!(vhds.blob(&blob).await, before, "an import only reads");
    // A disk that was answered is the answer, whatever becomes of the blob; another blob's is not.
    vhds.write(&blob).await;
    assert_eq!(import(&client, "pvc-1", &blob, 3).await.unwrap().volume_id, volume.volume_id);
    let other = vhds.plain("b.vhd", 2).await;
    assert_eq!(import(&client, "pvc-1", &other, 3).await.unwrap_err().code(), Code::AlreadyExists);
    assert_eq!(vhds.puts(), 1);
    publish(&client, &volume, "node-0").await.unwrap();
    unpublish(&client, &volume.volume_id, "node-0").await.unwrap();
    // A VHD may have no whole number of GiB, and its account may be of another resource group.
    vhds.account("elsewhere", "vhds2", scenario::LOCATION).await;
    let odd = vhds.vhd("elsewhere", "vhds2", "folder/c.vhd", (1 << 30) + (1 << 20)).await;
    assert_eq!(import(&client, "pvc-2", &odd, 1).await.unwrap().capacity_bytes, 2 * GIB);
    for name in ["pvc-1", "pvc-2"] {
        delete(&client, &super::disk_rig::disk_id(name)).await.unwrap();
    }
    vhds.rig.check_empty();
    vhds.rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn disk_a_vhd_of_a_machine_is_imported_where_that_is_deallocated() {
    let (vhds, client) = Vhds::start().await;
    let blob = vhds.plain("a.vhd", 1).await;
    vhds.attach(&[&blob]).await;
    let refused = import(&client, "pvc-1", &blob, 1).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    assert!(refused.message().contains(MACHINE) && refused.message().contains("deallocate"), "{refused}");
    vhds.power("powerOff").await;
    assert_eq!(import(&client, "pvc-1", &blob, 1).await.unwrap_err().code(), Code::FailedPrecondition);
    assert_eq!(vhds.puts(), 0);
    vhds.power("deallocate").await;
    let volume = import(&client, "pvc-1", &blob, 1).await.unwrap();
    delete(&client, &volume.volume_id).await.unwrap();
    assert!(vhds.rig.disks().is_empty());
    vhds.rig.lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn disk_an_azure_that_imports_no_leased_vhd_is_told_of_with_the_way_out() {
    let mut options = typical();
    options.unverified.set("leased-blob-importable=false").unwrap();
    let (vhds, client) = Vhds::on(options).await;
    let blob = vhds.plain("a.vhd", 1).await;
    vhds.attach(&[&blob]).await;
    vhds.power("deallocate").await;
    let refused = import(&client, "pvc-1", &blob, 1).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    assert!(refused.message().contains("delete the machine, which keeps its blobs"), "{refused}");
    assert!(vhds.rig.disks().is_empty());
    let (status, answer) = vhds.rig.other_tool().call("DELETE", &vm_id(MACHINE), None).await;
    assert_eq!(status, 202, "{answer}");
    vhds.rig.at_rest().await;
    import(&client, "pvc-1", &blob, 1).await.unwrap();
    vhds.rig.check();
    vhds.rig.lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn disk_a_vhd_that_changes_while_azure_reads_it_is_imported_anew() {
    let (vhds, client) = Vhds::start().await;
    let blob = vhds.plain("a.vhd", 1).await;
    let writer = async {
        while vhds.rig.disk("pvc-1").is_none() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        vhds.write(&blob).await;
    };
    let (first, ()) = tokio::join!(import(&client, "pvc-1", &blob, 1), writer);
    let refused = first.unwrap_err();
    assert_eq!(refused.code(), Code::Aborted, "{refused}");
    vhds.rig.check_empty();
    import(&client, "pvc-1", &blob, 1).await.unwrap();
    assert_eq!(vhds.puts(), 2);
    assert_eq!(vhds.rig.disks(), ["pvc-1".to_owned()].into());
    vhds.rig.lab.stop().await;
}

/// The call is given up at any moment, and another replica takes it on.
#[tokio::test(start_paused = true)]
async fn disk_an_import_that_is_given_up_anywhere_is_taken_on() {
    let (mut vhds, client) = Vhds::start().await;
    let blob = vhds.plain("a.vhd", 1).await;
    let other = vhds.rig.lab.controller("other").await.unwrap();
    for milliseconds in (0..6_000).step_by(150) {
        let name = format!("pvc-{milliseconds}");
        let limit = Duration::from_millis(milliseconds);
        let given_up = tokio::time::timeout(limit, import(&client, &name, &blob, 1)).await.is_err();
        if given_up && milliseconds % 300 == 0 {
            vhds.write(&blob).await;
        }
        let volume = loop {
            match import(&other, &name, &blob, 1).await {
                Ok(volume) => break volume,
                Err(refused) => assert_eq!(refused.code(), Code::Aborted, "{milliseconds} ms: {refused}"),
            }
        };
        vhds.rig.at_rest().await;
        assert_eq!(vhds.rig.disks(), [name.clone()].into());
        let version = format!("{} {} checked", vhds.blob(&blob).await.etag.0.trim_matches('"'), GIB + 512);
        assert_eq!(tag(&vhds.rig.disk(&name).unwrap()), version, "{milliseconds} ms");
        delete(&other, &volume.volume_id).await.unwrap();
        vhds.rig.check_empty();
    }
    vhds.rig.lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn disk_what_cannot_be_imported_is_refused_before_anything_is_written() {
    let (vhds, client) = Vhds::start().await;
    vhds.account(scenario::RESOURCE_GROUP, "faraway", "northeurope").await;
    let far = vhds.vhd(scenario::RESOURCE_GROUP, "faraway", "a.vhd", 1 << 30).await;
    let raw = uri("vhds1", "raw.vhd");
    let id = account_id(scenario::RESOURCE_GROUP, "vhds1");
    let made = vhds.blob_call(&id, &raw, Call::MakeBlob { length: (1 << 30) + 512, metadata: Metadata::new() }).await;
    let Answer::Done(Some(if_match)) = made else { panic!("{made:?}") };
    let code = async |blob: &str| {
        let refused = client.clone().create_volume(request("pvc-1", blob, 1)).await.unwrap_err();
        (refused.code(), refused.message().to_owned())
    };
    let (wrong_region, message) = code(far.as_str()).await;
    assert_eq!(wrong_region, Code::InvalidArgument);
    assert!(message.contains("northeurope") && message.contains(scenario::LOCATION), "{message}");
    let (no_footer, message) = code(raw.as_str()).await;
    assert_eq!(no_footer, Code::FailedPrecondition, "{message}");
    let page = Box::new(ZEROS);
    vhds.blob_call(&id, &raw, Call::WritePage { offset: 0, page, if_match }).await;
    for gone in [uri("vhds1", "none.vhd"), uri("nowhere", "a.vhd")] {
        assert_eq!(code(gone.as_str()).await.0, Code::NotFound);
    }
    assert_eq!(code("https://vhds1.blob.core.chinacloudapi.cn/vhds/raw.vhd").await.0, Code::InvalidArgument);
    assert_eq!(code("https://vhds1.blob.core.windows.net/vhds/raw.vhd?sig=secret").await.0, Code::NotFound);
    assert_eq!(vhds.puts(), 0);
    vhds.rig.check_empty();
    vhds.rig.lab.stop().await;
}
