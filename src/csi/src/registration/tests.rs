use std::fs;

use csi_proto::registration::registration_client::RegistrationClient;
use tokio::task::JoinHandle;

use super::*;
use crate::scratch::{Scratch, channel_to};
use lazuli_telemetry::Readiness;

struct Kept {
    scratch: Scratch,
    socket: PathBuf,
    state: channel::Receiver<State>,
    readiness: Readiness,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

fn keep() -> Kept {
    keep_in(Scratch::new())
}

fn keep_in(scratch: Scratch) -> Kept {
    let readiness = Readiness::new();
    let registration = Registration::new(
        "disk.csi.azure.com",
        "/var/lib/kubelet/plugins/d/csi.sock",
        scratch.path(),
        readiness.condition("registration"),
    );
    let (socket, state) = (registration.socket(), registration.states());
    let stop = CancellationToken::new();
    let task = tokio::spawn(registration.keep(stop.clone()));
    Kept { scratch, socket, state, readiness, stop, task }
}

impl Kept {
    async fn reaches(&mut self, wanted: impl FnMut(&State) -> bool) -> State {
        self.state.wait_for(wanted).await.unwrap().clone()
    }

    async fn announced(&mut self) -> RegistrationClient<tonic::transport::Channel> {
        self.reaches(|state| *state == State::Announced).await;
        self.client().await
    }

    async fn client(&self) -> RegistrationClient<tonic::transport::Channel> {
        RegistrationClient::new(channel_to(&self.socket).await)
    }
}

fn registered() -> Notification {
    Notification { plugin_registered: true, error: String::new() }
}

fn refused(error: &str) -> Notification {
    Notification { plugin_registered: false, error: error.into() }
}

#[tokio::test]
async fn kubelet_learns_name_type_version_and_the_socket_as_it_sees_it() {
    let mut kept = keep();
    let info = kept.announced().await.get_info(InfoRequest {}).await.unwrap().into_inner();
    assert_eq!(kept.socket.file_name().unwrap(), "disk.csi.azure.com-reg.sock");
    assert_eq!(info.r#type, "CSIPlugin");
    assert_eq!(info.name, "disk.csi.azure.com");
    assert_eq!(info.endpoint, "/var/lib/kubelet/plugins/d/csi.sock");
    assert_eq!(info.supported_versions, ["1.0.0"]);
}

#[tokio::test]
async fn readiness_follows_what_kubelet_says() {
    let mut kept = keep();
    let mut client = kept.announced().await;
    assert!(!kept.readiness.is_ready());
    client.notify_registration_status(registered()).await.unwrap();
    assert!(kept.readiness.is_ready());
}

#[tokio::test]
async fn a_removed_socket_is_made_anew_and_counts_as_unregistered() {
    let mut kept = keep();
    kept.announced().await.notify_registration_status(registered()).await.unwrap();
    kept.reaches(|state| *state == State::Registered).await;
    fs::remove_file(&kept.socket).unwrap();
    kept.announced().await.notify_registration_status(registered()).await.unwrap();
    assert_eq!(*kept.state.borrow(), State::Registered);
}

#[tokio::test]
async fn the_end_of_another_registrar_of_the_same_driver_makes_the_socket_anew() {
    let mut kept = keep();
    let rival = kept.scratch.join("disk.csi.azure.com-v1-reg.sock");
    drop(std::os::unix::net::UnixListener::bind(&rival).unwrap());
    kept.announced().await.notify_registration_status(registered()).await.unwrap();
    kept.reaches(|state| *state == State::Registered).await;
    fs::remove_file(&rival).unwrap();
    kept.announced().await.get_info(InfoRequest {}).await.unwrap();
}

#[tokio::test]
async fn the_end_of_another_driver_s_registrar_changes_nothing() {
    let mut kept = keep();
    let stranger = kept.scratch.join("file.csi.azure.com-reg.sock");
    fs::write(&stranger, "").unwrap();
    let mut client = kept.announced().await;
    client.notify_registration_status(registered()).await.unwrap();
    fs::remove_file(&stranger).unwrap();
    client.get_info(InfoRequest {}).await.unwrap();
    assert_eq!(*kept.state.borrow(), State::Registered);
}

#[tokio::test]
async fn a_live_registrar_is_waited_for_and_followed() {
    let scratch = Scratch::new();
    let path = scratch.join("disk.csi.azure.com-reg.sock");
    let other = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let mut kept = keep_in(scratch);
    kept.reaches(|state| matches!(state, State::Taken(_))).await;
    let (ready, why) = kept.readiness.describe();
    assert!(!ready && why.contains("another process is listening"), "{why}");
    drop(other);
    fs::remove_file(&path).unwrap();
    kept.announced().await.get_info(InfoRequest {}).await.unwrap();
}

#[tokio::test]
async fn a_refusal_is_reported_and_the_socket_is_made_anew() {
    let mut kept = keep();
    let mut client = kept.announced().await;
    let before = inode(&kept.socket);
    client.notify_registration_status(refused("topology value collision")).await.unwrap();
    kept.reaches(|state| matches!(state, State::Refused(_))).await;
    let (ready, why) = kept.readiness.describe();
    assert!(!ready && why.contains("topology value collision"), "{why}");
    // The pause is the first and shortest; the socket that follows is another one.
    kept.announced().await.get_info(InfoRequest {}).await.unwrap();
    assert_ne!(before, inode(&kept.socket));
}

fn inode(path: &Path) -> (u64, std::time::SystemTime) {
    use std::os::unix::fs::MetadataExt;
    let found = fs::symlink_metadata(path).unwrap();
    (found.ino(), found.modified().unwrap())
}

#[tokio::test]
async fn the_end_removes_the_socket() {
    let mut kept = keep();
    kept.announced().await;
    kept.stop.cancel();
    kept.task.await.unwrap();
    assert!(!kept.socket.exists());
}
