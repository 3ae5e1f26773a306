//! The emulator's file shares behind the kernel's client: what a mount sees of what ARM does.

use std::fs;

use axum::body::Body;
use lazuli_emulator::{Emulator, Options, smb::FileServer, smb::Samba};
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::{
    folder::{Folder, samba_programs},
    machine::{Equipment, Guest, Output, able},
};

/// Mount options of the Go driver, without those of the user.
const OPTIONS: &str = "file_mode=0777,dir_mode=0777,actimeo=30,mfsymlinks,nosharesock";

/// An emulator that serves files, and a guest that reaches the accounts by their names.
pub(super) struct Cloud {
    pub(super) emulator: Emulator,
    pub(super) guest: Guest,
    _folder: Folder,
}

/// A request about an account, as ARM takes it.
pub(super) fn to_arm(token: &str, method: &str, account: &str, below: &str, body: &Value) -> http::Request<Body> {
    let subscription = &lazuli_emulator::scenario::Scenario::default().subscriptions[0];
    let uri = format!(
        "/subscriptions/{subscription}/resourceGroups/lazuli/providers/Microsoft.Storage/storageAccounts/{account}\
         {below}?api-version=2025-01-01"
    );
    let request = http::Request::builder()
        .method(method)
        .uri(uri)
        .header("host", "localhost")
        .header("authorization", format!("Bearer {token}"))
        .header("content-type", "application/json");
    request.body(Body::from(body.to_string())).unwrap()
}

impl Cloud {
    /// With these accounts, each with a share `data` of 5 GiB.
    pub(super) async fn start(accounts: &[&str]) -> Self {
        Self::start_with(accounts, Equipment::default()).await
    }

    /// The same, with more in the guest.
    pub(super) async fn start_with(accounts: &[&str], equipment: Equipment<'_>) -> Self {
        let folder = Folder::make();
        let samba = Samba { root: folder.smb(), programs: samba_programs() };
        let options = Options { smb: Some(samba), throttling: false, ..Options::default() };
        let emulator = Emulator::start(options).await.unwrap();
        let cloud = Self { emulator, guest: Guest::boot_with(equipment).await, _folder: folder };
        for account in accounts {
            let body = json!({"location": "westeurope", "kind": "StorageV2", "sku": {"name": "Standard_LRS"}});
            cloud.ask("PUT", account, "", body, 202).await;
            cloud.put_share(account, "data", 5).await;
            cloud.reach(&cloud.guest, account).await;
        }
        cloud
    }

    /// Leads the name of an account to its server, in this guest or another.
    pub(super) async fn reach(&self, guest: &Guest, account: &str) {
        let port = self.server(account).address.port();
        guest.reach(&format!("{account}.file.core.windows.net"), 445, port).await;
    }

    /// A request about an account, which must have this status.
    pub(super) async fn ask(&self, method: &str, account: &str, below: &str, body: Value, status: u16) -> Value {
        let request = to_arm(&self.emulator.control().token(), method, account, below, &body);
        let answer = self.emulator.service().oneshot(request).await.unwrap();
        let got = answer.status();
        let bytes = axum::body::to_bytes(answer.into_body(), usize::MAX).await.unwrap();
        assert_eq!(got, status, "{method} {account}{below}: {}", String::from_utf8_lossy(&bytes));
        serde_json::from_slice(&bytes).unwrap_or_default()
    }

    pub(super) async fn put_share(&self, account: &str, share: &str, gib: u64) {
        let body = json!({"properties": {"shareQuota": gib}});
        self.ask("PUT", account, &format!("/fileServices/default/shares/{share}"), body, 201).await;
    }

    pub(super) async fn key(&self, account: &str) -> String {
        let keys = self.ask("POST", account, "/listKeys", json!({}), 200).await;
        keys["keys"][0]["value"].as_str().unwrap().to_owned()
    }

    /// The version of a deleted share.
    fn deleted_version(&self, account: &str, share: &str) -> String {
        let dump = self.emulator.control().dump();
        let start = format!("/storageaccounts/{account}/fileservices/default/deletedshares/{share}_");
        let found = dump.resources.iter().find(|(id, _)| id.contains(&start)).expect("a deleted share");
        found.1["properties"]["version"].as_str().unwrap().to_owned()
    }

    pub(super) fn server(&self, account: &str) -> FileServer {
        let servers = self.emulator.control().file_servers();
        let server = servers.into_iter().find(|server| server.account == account).expect("the account is served");
        assert_eq!(server.problem, None);
        server
    }

    /// Mounts a share in the guest, with the host's name and the port of Azure.
    pub(super) async fn mount(&self, account: &str, share: &str, user: &str, key: &str, at: &str) -> Output {
        Self::mount_in(&self.guest, account, share, user, key, at).await
    }

    /// The same in another guest.
    pub(super) async fn mount_in(guest: &Guest, account: &str, share: &str, user: &str, key: &str, at: &str) -> Output {
        let source = format!("//{account}.file.core.windows.net/{share}");
        guest.sh(&format!("mkdir -p {at}")).await;
        let options = format!("{OPTIONS},username={user},password={key}");
        guest.exec(&["mount", "-t", "cifs", &source, at, "-o", &options]).await
    }

    async fn must_mount(&self, account: &str, at: &str) {
        let mounted = self.mount(account, "data", account, &self.key(account).await, at).await;
        assert!(mounted.code == 0, "{mounted:?}");
    }

    pub(super) async fn stop(self) {
        self.guest.stop().await;
        self.emulator.shutdown().await;
    }
}

/// Whether a mount failed with this error of the kernel.
fn failed_with(output: &Output, errno: u32) -> bool {
    output.code == 32 && output.stderr.contains(&format!("mount error({errno})"))
}

#[tokio::test]
async fn a_share_is_mounted_written_read_and_heals_when_its_server_comes_back() {
    if !able() {
        return;
    }
    let cloud = Cloud::start(&["first", "second"]).await;
    let guest = &cloud.guest;
    cloud.must_mount("first", "/mnt/first").await;
    cloud.must_mount("second", "/mnt/second").await;
    let mounts = guest.sh("grep cifs /proc/mounts").await;
    assert!(mounts.contains("//first.file.core.windows.net/data /mnt/first cifs rw,"), "{mounts}");
    assert!(mounts.contains("vers=3.1.1"), "{mounts}");

    guest.sh("echo of the first >/mnt/first/file; echo of the second >/mnt/second/file; sync").await;
    assert_eq!(guest.sh("cat /mnt/first/file").await, "of the first");
    let folder = &cloud.server("first").shares["data"];
    assert_eq!(fs::read_to_string(folder.join("file")).unwrap(), "of the first\n");
    fs::write(folder.join("other"), "of another client").unwrap();
    assert_eq!(guest.sh("cat /mnt/first/other").await, "of another client");

    // Each account opens its own shares only, and nobody else does.
    let (first, second) = (cloud.key("first").await, cloud.key("second").await);
    for (user, key) in [("second", &second), ("first", &second), ("second", &first), ("root", &first)] {
        let refused = cloud.mount("first", "data", user, key, "/mnt/other").await;
        assert!(failed_with(&refused, 13), "{user}: {refused:?}");
    }
    let missing = cloud.mount("first", "none", "first", &first, "/mnt/other").await;
    assert!(failed_with(&missing, 2), "{missing:?}");

    // Killed, it is started again, and the mount heals by itself.
    let killed = cloud.server("first").pid.unwrap();
    let pid = nix::unistd::Pid::from_raw(i32::try_from(killed).unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
    let is_new = || cloud.server("first").pid.is_some_and(|pid| pid != killed);
    guest.until("a new smbd serves", is_new).await;
    guest.sh("echo after the kill >/mnt/first/killed; sync").await;
    assert_eq!(fs::read_to_string(folder.join("killed")).unwrap(), "after the kill\n");

    // Out of service: what is mounted says so, and what is not, cannot be.
    cloud.emulator.control().serve_files("first", false).await.unwrap();
    let down = guest.exec(&["touch", "/mnt/first/down"]).await;
    assert!(down.code != 0 && down.stderr.contains("Host is down"), "{down:?}");
    let refused = cloud.mount("first", "data", "first", &first, "/mnt/other").await;
    assert!(failed_with(&refused, 111), "{refused:?}");
    guest.sh("touch /mnt/second/up").await;
    cloud.emulator.control().serve_files("first", true).await.unwrap();
    guest.sh("touch /mnt/first/up").await;
    assert!(folder.join("up").exists() && !folder.join("down").exists());
    cloud.stop().await;
}

#[tokio::test]
async fn size_deletion_restoration_and_a_new_key_reach_the_clients() {
    if !able() {
        return;
    }
    let cloud = Cloud::start(&["first"]).await;
    let guest = &cloud.guest;
    cloud.must_mount("first", "/mnt/first").await;
    guest.sh("echo kept >/mnt/first/file; sync").await;
    let size = || guest.sh("df -k /mnt/first | tail -n 1 | tr -s ' ' | cut -d ' ' -f 2");
    assert_eq!(size().await, (5 * 1024 * 1024).to_string());
    let share = "/fileServices/default/shares/data";
    cloud.ask("PATCH", "first", share, json!({"properties": {"shareQuota": 9}}), 200).await;
    assert_eq!(size().await, (9 * 1024 * 1024).to_string());

    // A share that comes can be mounted at once, and does not disturb the other.
    cloud.put_share("first", "late", 1).await;
    let key = cloud.key("first").await;
    let mounted = cloud.mount("first", "late", "first", &key, "/mnt/late").await;
    assert!(mounted.code == 0, "{mounted:?}");
    guest.sh("echo late >/mnt/late/file; cat /mnt/first/file").await;

    cloud.ask("DELETE", "first", share, json!({}), 200).await;
    let gone = guest.exec(&["touch", "/mnt/first/new"]).await;
    assert!(gone.code != 0, "{gone:?}");
    let missing = cloud.mount("first", "data", "first", &key, "/mnt/other").await;
    assert!(failed_with(&missing, 2), "{missing:?}");
    guest.sh("echo still >/mnt/late/file").await;
    guest.sh("umount /mnt/first").await;

    let deleted = cloud.ask("GET", "first", "/fileServices/default/shares", json!({}), 200).await;
    assert_eq!(deleted["value"].as_array().unwrap().len(), 1, "{deleted}");
    // Restored with its files.
    let version = cloud.deleted_version("first", "data");
    let body = json!({"deletedShareName": "data", "deletedShareVersion": version});
    cloud.ask("POST", "first", &format!("{share}/restore"), body, 200).await;
    cloud.must_mount("first", "/mnt/first").await;
    assert_eq!(guest.sh("cat /mnt/first/file").await, "kept");

    // A new key ends what was opened with the old one.
    cloud.ask("POST", "first", "/regenerateKey", json!({"keyName": "key1"}), 200).await;
    let refused = cloud.mount("first", "data", "first", &key, "/mnt/other").await;
    assert!(failed_with(&refused, 13), "{refused:?}");
    let ended = guest.exec(&["touch", "/mnt/first/new"]).await;
    assert!(ended.code != 0, "{ended:?}");
    cloud.must_mount("first", "/mnt/again").await;
    assert_eq!(guest.sh("cat /mnt/again/file").await, "kept");
    cloud.stop().await;
}
