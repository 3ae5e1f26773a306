//! Registration, with a kubelet that is only its side of the protocol.

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use csi_proto::{
    csi::{NodeGetInfoRequest, node_client::NodeClient},
    registration::{InfoRequest, RegistrationStatus, registration_client::RegistrationClient},
};
use lazuli_rig as lab;
use nix::sys::signal::Signal;

use super::{
    azure::http,
    cloud::{Cloud, NODES, connect},
    process::{Process, able, until},
};

const NODE: &str = NODES[0];

/// Answers of the node to the probes.
struct Plugin {
    process: Process,
    socket: PathBuf,
    address: String,
}

impl Plugin {
    async fn ready(&self) -> (u16, String) {
        http(&self.address, "GET", "/readyz", &[], "").await
    }

    async fn kubelet(&mut self) -> RegistrationClient<tonic::transport::Channel> {
        let socket = self.socket.clone();
        RegistrationClient::new(connect(&mut self.process, &socket).await)
    }

    async fn tell(&mut self, plugin_registered: bool, error: &str) {
        let status = RegistrationStatus { plugin_registered, error: error.into() };
        self.kubelet().await.notify_registration_status(status).await.unwrap();
    }

    /// Waits until the socket is another one than that with this inode number and creation.
    async fn made_anew(&self, before: (u64, i64, i64)) {
        until("a new registration socket", || identity(&self.socket).filter(|now| *now != before)).await;
    }
}

/// A number alone may be used again.
fn identity(path: &Path) -> Option<(u64, i64, i64)> {
    let found = fs::symlink_metadata(path).ok()?;
    Some((found.ino(), found.ctime(), found.ctime_nsec()))
}

#[tokio::test]
async fn the_node_registers_itself_with_kubelet_and_comes_back_whatever_happens_to_its_socket() {
    if !able() {
        return;
    }
    let mut cloud = Cloud::start().await;
    cloud.node(NODE).await;
    cloud.nodes.remove(NODE).unwrap().stop().await;
    let registry = cloud.path("registry");
    fs::create_dir(&registry).unwrap();
    // Free a moment ago, and so now as good as certainly.
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let process = cloud.another_node(NODE, &options_of(&registry, &address));
    let mut plugin = Plugin { process, socket: registry.join("disk.csi.azure.com-reg.sock"), address };

    // As kubelet does when the socket appears.
    let info = plugin.kubelet().await.get_info(InfoRequest {}).await.unwrap().into_inner();
    assert_eq!((info.r#type.as_str(), info.name.as_str()), ("CSIPlugin", "disk.csi.azure.com"));
    assert_eq!(info.endpoint, cloud.socket(NODE).display().to_string());
    let mut node = NodeClient::new(lab::connect(Path::new(&info.endpoint)).await.unwrap());
    let known = node.node_get_info(NodeGetInfoRequest {}).await.unwrap().into_inner();
    assert_eq!((known.node_id.as_str(), known.max_volumes_per_node), (NODE, 16));
    let (status, text) = plugin.ready().await;
    assert!(status == 503 && text.contains("kubelet has not registered the driver yet"), "{status} {text}");
    plugin.tell(true, "").await;
    let (status, text) = plugin.ready().await;
    assert!(status == 200 && text.contains("kubelet has registered the driver"), "{status} {text}");

    // An operator cleans up kubelet's folder; kubelet forgets the driver then.
    let before = identity(&plugin.socket).unwrap();
    fs::remove_file(&plugin.socket).unwrap();
    plugin.made_anew(before).await;
    plugin.kubelet().await.get_info(InfoRequest {}).await.unwrap();
    assert_eq!(plugin.ready().await.0, 503);
    plugin.tell(true, "").await;
    assert_eq!(plugin.ready().await.0, 200);

    // kubelet refuses, and looks again only at a new socket.
    let before = identity(&plugin.socket).unwrap();
    plugin.tell(false, "no such node").await;
    let (status, text) = plugin.ready().await;
    assert!(status == 503 && text.contains("no such node"), "{status} {text}");
    plugin.made_anew(before).await;
    plugin.kubelet().await.get_info(InfoRequest {}).await.unwrap();
    plugin.tell(true, "").await;
    assert_eq!(plugin.ready().await.0, 200);

    // Killed, it leaves its socket; the next one takes it over.
    plugin.process.kill();
    assert!(plugin.socket.exists());
    plugin.process = cloud.another_node(NODE, &options_of(&registry, &plugin.address));
    plugin.kubelet().await.get_info(InfoRequest {}).await.unwrap();
    plugin.process.signal(Signal::SIGTERM);
    assert!(plugin.process.end().await.success());
    assert!(!plugin.socket.exists() && !cloud.socket(NODE).exists());
    cloud.finish().await;
}

fn options_of<'a>(registry: &'a Path, address: &'a str) -> [&'a str; 4] {
    ["--registration-dir", registry.to_str().unwrap(), "--health-endpoint", address]
}
