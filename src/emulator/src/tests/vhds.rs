//! Disks that are VHDs in storage accounts: a machine takes, holds and releases them; and the way to managed disks.

use super::blobs::{Blobs, plain};
use super::state_file::Folder;
use super::storage_accounts::account_id;
use super::*;

const NETWORK_VERSION: &str = "2025-05-01";

pub(super) fn uri(name: &str) -> String {
    format!("https://vhds1.blob.core.windows.net/vhds/{name}")
}

pub(super) fn blob_element(name: &str, lun: u8) -> Value {
    json!({"lun": lun, "name": name, "createOption": "Attach", "vhd": {"uri": uri(name)}})
}

pub(super) fn empty_element(name: &str, lun: u8, gib: u64) -> Value {
    json!({"lun": lun, "name": name, "createOption": "Empty", "diskSizeGB": gib, "vhd": {"uri": uri(name)}})
}

/// An account with a container, and machines whose system disk is a blob.
async fn cloud(options: Options, machines: &[&str]) -> Blobs {
    let blobs = Blobs::of(Rig::new(options).await, plain()).await;
    blobs.container().await;
    for name in machines {
        blobs.rig.blob_machine(name).await.expect(201);
        tokio::time::sleep(Duration::from_secs(600)).await;
    }
    blobs
}

impl Rig {
    /// A machine whose system disk is a blob.
    async fn blob_machine(&self, name: &str) -> Got {
        let network = format!("{}/providers/Microsoft.Network", group());
        let net = format!("{network}/virtualNetworks/{name}");
        let body = json!({"location": "westeurope", "properties": {
            "addressSpace": {"addressPrefixes": ["10.9.0.0/16"]},
            "subnets": [{"name": "nodes", "properties": {"addressPrefix": "10.9.0.0/24"}}],
        }});
        self.call("PUT", &format!("{net}?api-version={NETWORK_VERSION}"), Some(body)).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        let nic = format!("{network}/networkInterfaces/{name}");
        let body = json!({"location": "westeurope", "properties": {"ipConfigurations": [
            {"name": "first", "properties": {"subnet": {"id": format!("{net}/subnets/nodes")}}},
        ]}});
        self.call("PUT", &format!("{nic}?api-version={NETWORK_VERSION}"), Some(body)).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        let body = json!({"location": "westeurope", "properties": {
            "hardwareProfile": {"vmSize": "Standard_D4s_v3"},
            "osProfile": {"computerName": "x", "adminUsername": "someone", "adminPassword": "Password-1-of-1"},
            "networkProfile": {"networkInterfaces": [{"id": nic}]},
            "storageProfile": {
                "imageReference": {
                    "publisher": "Canonical", "offer": "ubuntu-24_04-lts", "sku": "server", "version": "latest",
                },
                "osDisk": {"name": "os", "createOption": "FromImage", "vhd": {"uri": uri(&format!("{name}-os.vhd"))}},
            },
        }});
        self.call("PUT", &vm_uri(name), Some(body)).await
    }

    pub(super) async fn write_blobs(&self, vm: &str, elements: Value) -> Value {
        let got = self.put_data_disks(vm, elements).await.expect(200);
        self.finish(&got).await
    }
}

#[tokio::test(start_paused = true)]
async fn a_machine_makes_takes_and_releases_a_blob_by_its_lease() {
    let blobs = cloud(options(), &["one", "two"]).await;
    let rig = &blobs.rig;
    let made = rig.write_blobs("one", json!([empty_element("a.vhd", 3, 1)])).await;
    assert_eq!(made["status"], "Succeeded", "{made}");
    assert_eq!(rig.luns("one"), [(3, "a.vhd".to_owned())]);
    let head = blobs.head("a.vhd").await;
    assert_eq!(head.header("content-length"), ((1 << 30) + 512).to_string());
    assert_eq!((head.header("x-ms-lease-state"), head.header("x-ms-lease-duration")), ("leased", "infinite"));
    assert_eq!(head.header("x-ms-meta-microsoftazurecompute_vmname"), "one");
    let footer = blobs.read("a.vhd", "bytes=1073741824-1073742335").await;
    assert!(footer.starts_with(b"conectix"));
    blobs.send("DELETE", "/vhds/a.vhd", &[], b"").await.refused(412, "LeaseIdMissing");
    let failed = rig.write_blobs("two", json!([blob_element("a.vhd", 0)])).await;
    assert_eq!(failed["error"]["code"], "DiskBlobAlreadyInUseByAnotherDisk", "{failed}");
    assert!(failed["error"]["message"].as_str().unwrap().contains("belonging to VM 'one'"));
    // A lease is the machine's while it is deallocated, too.
    let action = format!("{}/deallocate?api-version={COMPUTE_VERSION}", vm_id("one"));
    let got = rig.call("POST", &action, None).await.expect(202);
    rig.finish(&got).await;
    assert_eq!(blobs.head("a.vhd").await.header("x-ms-lease-state"), "leased");
    assert_eq!(rig.write_blobs("one", json!([])).await["status"], "Succeeded");
    let head = blobs.head("a.vhd").await;
    assert_eq!(
        (head.header("x-ms-lease-state"), head.header("x-ms-meta-microsoftazurecompute_vmname")),
        ("available", "")
    );
    assert_eq!(rig.write_blobs("two", json!([blob_element("a.vhd", 0)])).await["status"], "Succeeded");
    let shown = rig.vm("two").await["properties"]["storageProfile"]["dataDisks"][0].clone();
    assert_eq!((&shown["vhd"]["uri"], &shown["lun"]), (&json!(uri("a.vhd")), &json!(0)));
    let gone = rig.call("DELETE", &vm_uri("two"), None).await.expect(202);
    rig.finish(&gone).await;
    assert_eq!(blobs.head("a.vhd").await.header("x-ms-lease-state"), "available");
}

#[tokio::test(start_paused = true)]
async fn only_the_machine_that_has_a_blob_writes_to_its_disk() {
    let blobs = cloud(options(), &["one"]).await;
    let (rig, address) = (&blobs.rig, uri("a.vhd"));
    let control = rig.emulator.control();
    assert_eq!(control.blob_bytes(&address, 0, 512), None);
    assert_eq!(rig.write_blobs("one", json!([empty_element("a.vhd", 0, 1)])).await["status"], "Succeeded");
    let before = blobs.head("a.vhd").await.header("etag").to_owned();
    control.write_as_machine(&address, 4096, b"content").unwrap();
    assert_ne!(blobs.head("a.vhd").await.header("etag"), before);
    assert_eq!(blobs.read("a.vhd", "bytes=4096-4102").await, b"content"[..]);
    assert_eq!(control.blob_bytes(&address, 4096, 7).as_deref(), Some(&b"content"[..]));
    assert_eq!(control.write_as_machine(&address, 1 << 30, b"footer"), None, "it is behind the disk");
    assert_eq!(control.delete_blob(&address), None, "it is leased");
    assert_eq!(rig.write_blobs("one", json!([])).await["status"], "Succeeded");
    assert_eq!(control.write_as_machine(&address, 0, b"x"), None, "no machine has it");
    control.delete_blob(&address).unwrap();
    assert_eq!(control.blob_bytes(&address, 0, 512), None);
}

#[tokio::test(start_paused = true)]
async fn letter_case_tells_blobs_apart() {
    let blobs = cloud(options(), &["one"]).await;
    let both = json!([empty_element("a.vhd", 0, 1), empty_element("A.vhd", 1, 1)]);
    assert_eq!(blobs.rig.write_blobs("one", both.clone()).await["status"], "Succeeded");
    assert_eq!(blobs.rig.luns("one"), [(0, "a.vhd".to_owned()), (1, "A.vhd".to_owned())]);
    let mut host = empty_element("a.vhd", 2, 1);
    host["vhd"]["uri"] = json!(uri("a.vhd").replace("vhds1", "VHDS1"));
    let three = json!([both[0], both[1], host]);
    blobs.rig.put_data_disks("one", three).await.refused(400, "InvalidParameter");
}

#[tokio::test(start_paused = true)]
async fn machines_of_a_scenario_may_have_blobs_as_system_disks() {
    let mut options = options();
    let mut old = VirtualMachine::pattern("old-{}", 2);
    old.os_disk.storage_account = Some("vhds1".to_owned());
    options.scenario.virtual_machines.push(old);
    let blobs = cloud(options, &[]).await;
    let shown = blobs.rig.vm("old-1").await["properties"]["storageProfile"]["osDisk"].clone();
    let uri = shown["vhd"]["uri"].as_str().unwrap();
    assert!(uri.starts_with("https://vhds1.blob.core.windows.net/vhds/old-1_OsDisk_1_"), "{uri}");
    assert_eq!(shown["managedDisk"], Value::Null);
    assert_eq!(blobs.rig.write_blobs("old-1", json!([empty_element("a.vhd", 0, 1)])).await["status"], "Succeeded");
    assert_eq!(blobs.rig.luns("old-1"), [(0, "a.vhd".to_owned())]);
    blobs.rig.disk("d").await;
    blobs.rig.put_data_disks("old-0", json!([element("d", 0)])).await.refused(409, "OperationNotAllowed");
    let mut zonal = VirtualMachine::pattern("zonal-{}", 1);
    zonal.zones = vec!["1".to_owned()];
    zonal.os_disk.storage_account = Some("vhds1".to_owned());
    let scenario = Scenario { virtual_machines: vec![zonal], ..Scenario::default() };
    assert!(scenario.check().unwrap_err().to_string().contains("cannot be in a zone"));
}

/// A killed emulator finds an attach in its file that had not ended: it is taken to its end.
#[tokio::test(start_paused = true)]
async fn a_blob_that_was_being_made_is_there_after_a_kill() {
    let folder = Folder::new("vhds");
    let mut with_file = folder.options();
    let mut old = VirtualMachine::pattern("old-{}", 1);
    old.os_disk.storage_account = Some("vhds1".to_owned());
    with_file.scenario.virtual_machines.push(old);
    let Blobs { rig, key } = cloud(with_file.clone(), &[]).await;
    rig.put_data_disks("old-0", json!([empty_element("a.vhd", 5, 1)])).await.expect(200);
    // Written soon after each change; dropped as by a kill.
    tokio::time::sleep(Duration::from_millis(200)).await;
    drop(rig);
    tokio::time::sleep(Duration::from_millis(200)).await;
    let blobs = Blobs { rig: Rig::new(with_file).await, key };
    assert_eq!(blobs.rig.luns("old-0"), [(5, "a.vhd".to_owned())]);
    assert_eq!(blobs.head("a.vhd").await.header("x-ms-lease-state"), "leased");
}

#[tokio::test(start_paused = true)]
async fn what_is_no_vhd_or_is_leased_by_others_is_not_taken() {
    let blobs = cloud(options(), &["one"]).await;
    let rig = &blobs.rig;
    blobs.page_blob("bare.vhd", (1 << 20) + 512).await;
    let code = async |elements: Value| {
        let ended = rig.write_blobs("one", elements).await;
        (
            ended["error"]["code"].as_str().unwrap_or("").to_owned(),
            ended["error"]["message"].as_str().unwrap_or("").to_owned(),
        )
    };
    assert_eq!(code(json!([blob_element("none.vhd", 0)])).await.0, "DiskBlobNotFound");
    let (invalid, message) = code(json!([blob_element("bare.vhd", 0)])).await;
    assert_eq!(invalid, "InvalidVhd");
    assert!(message.contains("Disk is expected to have cookie value 'conectix'."), "{message}");
    assert_eq!(code(json!([empty_element("bare.vhd", 0, 1)])).await.0, "DiskBlobAlreadyExists");
    assert_eq!(code(json!([empty_element("a.vhd", 0, 1)])).await.0, "");
    assert_eq!(code(json!([])).await.0, "");
    blobs.lease("a.vhd", "acquire", &[("x-ms-lease-duration", "-1")]).await.expect(201);
    assert_eq!(code(json!([blob_element("a.vhd", 0)])).await.0, "AcquireDiskLeaseFailed");
    blobs.lease("a.vhd", "break", &[]).await.expect(202);
    assert_eq!(code(json!([blob_element("a.vhd", 0)])).await.0, "");
    for (element, refused) in [
        (json!({"lun": 1, "name": "x", "createOption": "Attach", "vhd": {"uri": "no address"}}), "InvalidParameter"),
        (json!({"lun": 1, "name": "x", "createOption": "Empty", "vhd": {"uri": uri("x")}}), "InvalidParameter"),
        (json!({"lun": 1, "createOption": "Attach", "vhd": {"uri": uri("x")}}), "InvalidParameter"),
        (empty_element("x", 1, 4096), "InvalidParameter"),
    ] {
        let both = json!([blob_element("a.vhd", 0), element]);
        rig.put_data_disks("one", both).await.refused(400, refused);
    }
    rig.put_data_disks("plain-0", json!([blob_element("a.vhd", 0)])).await.refused(409, "OperationNotAllowed");
}

#[tokio::test(start_paused = true)]
async fn a_cloud_without_unmanaged_disks_changes_and_starts_no_machine_that_has_them() {
    let mut options = options();
    options.unverified.set("unmanaged-disks-retired=true").unwrap();
    let blobs = cloud(options, &[]).await;
    let refused = blobs.rig.blob_machine("one").await.refused(400, "BadRequest");
    assert_eq!(refused.message(), "Unmanaged disks have been retired.");
}

#[tokio::test(start_paused = true)]
async fn a_managed_disk_is_imported_from_a_blob() {
    let blobs = cloud(options(), &["one"]).await;
    let rig = &blobs.rig;
    assert_eq!(rig.write_blobs("one", json!([empty_element("a.vhd", 0, 2)])).await["status"], "Succeeded");
    let import = |name: &str, account: &str, gib: Option<u64>| {
        json!({"location": "westeurope", "sku": {"name": "Premium_LRS"}, "properties": {"diskSizeGB": gib, "creationData": {
            "createOption": "Import", "sourceUri": uri(name), "storageAccountId": account_id(account),
        }}})
    };
    let without_size = |mut body: Value| {
        body["properties"].as_object_mut().unwrap().remove("diskSizeGB");
        body
    };
    let got = rig.put_disk("same", without_size(import("a.vhd", "vhds1", None))).await.expect(202);
    rig.finish(&got).await;
    let disk = rig.disk_doc("same").await;
    assert_eq!(
        (&disk["properties"]["diskSizeGB"], &disk["properties"]["diskSizeBytes"]),
        (&json!(2), &json!(2_u64 << 30))
    );
    let got = rig.put_disk("larger", import("a.vhd", "vhds1", Some(4))).await.expect(202);
    rig.finish(&got).await;
    rig.put_disk("smaller", import("a.vhd", "vhds1", Some(1))).await.refused(400, "InvalidParameter");
    rig.put_disk("none", import("none.vhd", "vhds1", Some(4))).await.refused(400, "InvalidParameter");
    rig.put_disk("other", import("a.vhd", "vhds2", Some(4))).await.refused(400, "InvalidParameter");
    let mut strict = options();
    strict.unverified.set("leased-blob-importable=false").unwrap();
    let blobs = cloud(strict, &["one"]).await;
    blobs.rig.write_blobs("one", json!([empty_element("a.vhd", 0, 2)])).await;
    blobs.rig.put_disk("d", import("a.vhd", "vhds1", Some(4))).await.refused(409, "OperationNotAllowed");
}

#[tokio::test(start_paused = true)]
async fn the_metadata_service_names_a_blob_by_its_address_and_size() {
    let blobs = cloud(options(), &["one"]).await;
    let rig = &blobs.rig;
    assert_eq!(rig.write_blobs("one", json!([empty_element("a.vhd", 2, 3)])).await["status"], "Succeeded");
    assert_eq!(rig.write_blobs("one", json!([])).await["status"], "Succeeded");
    // An element that attaches what is there says nothing of its size.
    assert_eq!(rig.write_blobs("one", json!([blob_element("a.vhd", 5)])).await["status"], "Succeeded");
    tokio::time::sleep(Duration::from_secs(600)).await;
    let instance = "/_imds/one/metadata/instance/compute/storageProfile/dataDisks?api-version=2021-02-01";
    let disks = rig.with("GET", instance, None, &[("metadata", "true")]).await.expect(200).body;
    let disk = &disks[0];
    assert_eq!(disks.as_array().unwrap().len(), 1, "{disks}");
    assert_eq!((&disk["vhd"]["uri"], &disk["managedDisk"]["id"]), (&json!(uri("a.vhd")), &json!("")), "{disk}");
    assert_eq!((&disk["lun"], &disk["name"]), (&json!("5"), &json!("a.vhd")));
    let bytes = (3_u64 << 30).to_string();
    assert_eq!((&disk["diskSizeGB"], &disk["diskCapacityBytes"]), (&json!("3"), &json!(bytes)));
}

#[tokio::test(start_paused = true)]
async fn a_blob_service_of_2017_knows_no_later_version() {
    let mut old = options();
    old.unverified.set("blob-service-of-2017=true").unwrap();
    let blobs = Blobs::of(Rig::new(old).await, plain()).await;
    let list = async |version: &str| blobs.send("GET", "/?comp=list", &[("x-ms-version", version)], b"").await;
    list("2017-11-09").await.expect(200);
    list("2026-04-06").await.refused(400, "InvalidHeaderValue");
}

#[tokio::test]
async fn the_blob_service_is_served_over_tls_by_the_names_of_accounts() {
    let mut options = options();
    options.listen_tls = Some("127.0.0.1:0".parse().unwrap());
    let mut account = plain();
    account["properties"] = json!({"supportsHttpsTrafficOnly": true});
    let blobs = Blobs::of(Rig::new(options).await, account).await;
    let emulator = &blobs.rig.emulator;
    let _ = rustls::crypto::ring::default_provider().install_default();
    let authority = reqwest::Certificate::from_pem(emulator.ca_pem().unwrap().as_bytes()).unwrap();
    let address = emulator.tls_url().unwrap().strip_prefix("https://").unwrap().parse().unwrap();
    let host = "vhds1.blob.localhost";
    let client = reqwest::Client::builder().no_proxy().tls_certs_only([authority]).resolve(host, address);
    let client = client.build().unwrap();
    let path = "/vhds?restype=container";
    for (scheme, address, status) in [("https", address, 201), ("http", emulator.address, 400)] {
        let mut request = client.put(format!("{scheme}://{host}:{}{path}", address.port()));
        for (name, value) in blobs.signed("PUT", path, &[], b"") {
            request = request.header(name, value);
        }
        if scheme == "http" {
            request = request.header("host", host);
        }
        let answer = request.header("content-length", "0").send().await.unwrap();
        assert_eq!(answer.status().as_u16(), status, "{scheme}: {:?}", answer.headers());
    }
}
