//! The state file: whose it is, and what may be in it.

use std::path::{Path, PathBuf};

use super::*;
use crate::StartError;
use crate::persist::StateFileError;

/// The folder of a state file.
pub(super) struct Folder(PathBuf);

impl Folder {
    pub(super) fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("lazuli-emulator-state-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    fn file(&self) -> PathBuf {
        self.0.join("state.new")
    }

    /// Writes a file into the folder, and says where it is.
    pub(super) fn write(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    pub(super) fn options(&self) -> Options {
        Options { state_file: Some(self.file()), ..slow() }
    }

    async fn refused(&self, content: &str) -> StateFileError {
        std::fs::write(self.file(), content).unwrap();
        let refused = match Emulator::start(self.options()).await.unwrap_err() {
            StartError::State(error) => error,
            other => panic!("{other}"),
        };
        assert_eq!(std::fs::read_to_string(self.file()).unwrap(), content, "it is left as it was");
        refused
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_state_file_belongs_to_one_emulator_at_a_time() {
    let folder = Folder::new("one");
    let first = Emulator::start(folder.options()).await.unwrap();
    let second = Emulator::start(folder.options()).await.unwrap_err();
    assert!(matches!(second, StartError::State(StateFileError::InUse { .. })), "{second}");
    first.shutdown().await;
    Emulator::start(folder.options()).await.unwrap().shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_no_state_file_is_refused_and_left_as_it_is() {
    let folder = Folder::new("foreign");
    assert!(matches!(folder.refused("{\"resources\": {").await, StateFileError::Content { .. }));
    for (content, why) in [
        ("{}", "`subscriptions`"),
        ("[]", "`subscriptions`"),
        (r#"{"subscriptions": []}"#, "`resources`"),
        (r#"{"subscriptions": [], "resources": {"/a": {"doc": {"id": "/b"}}}}"#, "/a"),
    ] {
        let refused = folder.refused(content).await;
        assert!(matches!(refused, StateFileError::Foreign { .. }), "{refused}");
        assert!(refused.to_string().contains(why) && refused.to_string().contains("move it away"), "{refused}");
    }
    let newer = folder.refused(r#"{"format": 2, "subscriptions": [], "resources": {}}"#).await;
    assert!(matches!(newer, StateFileError::Newer { format: 2, .. }), "{newer}");
}

#[tokio::test(start_paused = true)]
async fn a_state_file_of_the_first_format_is_read() {
    let folder = Folder::new("older");
    let rig = Rig::new(folder.options()).await;
    rig.disk("d").await;
    drop(rig.router);
    rig.emulator.shutdown().await;
    let mut content: Value = serde_json::from_slice(&std::fs::read(folder.file()).unwrap()).unwrap();
    assert_eq!(content["format"], 1);
    content.as_object_mut().unwrap().remove("format");
    std::fs::write(folder.file(), content.to_string()).unwrap();
    let rig = Rig::new(folder.options()).await;
    assert_eq!(rig.disk_doc("d").await["properties"]["diskState"], "Unattached");
}

/// Written by the emulator as it was before documents were shared, and killed while a disk was being made, another grew
/// and left its machine, and an access signature was out.
const OF_FORMAT_1: &str = include_str!("state_of_format_1.json");

#[tokio::test(start_paused = true)]
async fn a_state_file_of_the_version_before_is_read_and_written_as_it_was() {
    let folder = Folder::new("before");
    std::fs::write(folder.file(), OF_FORMAT_1).unwrap();
    let before: Value = serde_json::from_str(OF_FORMAT_1).unwrap();
    let signature = before["resources"].as_object().unwrap().values().find_map(|of| of["signatureEnds"].as_i64());
    let start_time = jiff::Timestamp::from_second(signature.unwrap() - 100).unwrap();
    let rig = Rig::new(Options { start_time, ..folder.options() }).await;
    let (coming, free) = (rig.disk_doc("coming").await, rig.disk_doc("free").await);
    assert_eq!(coming["properties"]["provisioningState"], "Succeeded");
    assert_eq!(free["properties"]["diskState"], "ActiveSAS");
    let held = rig.disk_doc("held").await;
    assert_eq!((&held["properties"]["diskSizeGB"], held.get("managedBy")), (&json!(9), None));
    let vm = rig.vm("node-0").await;
    assert_eq!((&vm["properties"]["storageProfile"]["dataDisks"], &vm["etag"]), (&json!([]), &json!("\"4\"")));
    assert_eq!(rig.luns("node-0"), []);
    drop(rig.router);
    rig.emulator.shutdown().await;
    // What no operation was about is written as it was read, member by member in its order.
    let after = std::fs::read_to_string(folder.file()).unwrap();
    let network = |text: &str| {
        text.lines().find(|line| line.contains("/lazuli-vnet\": {")).map(|line| line.trim_end_matches(',').to_owned())
    };
    assert_eq!(network(&after).unwrap(), network(OF_FORMAT_1).unwrap());
    assert_eq!(after.lines().count(), OF_FORMAT_1.lines().count());
}

#[tokio::test(start_paused = true)]
async fn an_access_signature_ends_after_a_restart_too() {
    let folder = Folder::new("signature");
    let rig = Rig::new(folder.options()).await;
    rig.disk("d").await;
    let uri = format!("{}/beginGetAccess?api-version={DISKS_VERSION}", disk_id("d"));
    let granted = rig.call("POST", &uri, Some(json!({"access": "Read", "durationInSeconds": 300}))).await.expect(202);
    rig.finish(&granted).await;
    drop(rig.router);
    rig.emulator.shutdown().await;
    let start_time = Options::default().start_time + Duration::from_secs(100);
    let rig = Rig::new(Options { start_time, ..folder.options() }).await;
    assert_eq!(rig.disk_doc("d").await["properties"]["diskState"], "ActiveSAS");
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(rig.disk_doc("d").await["properties"]["diskState"], "Unattached");
}
