//! The guest itself.

use std::net::Ipv4Addr;

use csi_proto::csi::{
    GetPluginInfoRequest, NodeGetInfoRequest, identity_client::IdentityClient, node_client::NodeClient,
};
use lazuli_emulator::{Emulator, Options};
use tokio::{io::AsyncWriteExt as _, net::TcpListener};

use super::machine::{Guest, able};

#[tokio::test]
async fn a_guest_runs_the_program_and_carries_files_calls_and_connections() {
    if !able() {
        return;
    }
    let guest = Guest::boot().await;
    let kernel = guest.sh("cat /proc/version").await;
    assert!(kernel.contains("Debian") && kernel.contains("-cloud-"), "{kernel}");
    let said = guest.sh("lazuli --version").await;
    assert!(said.starts_with(&format!("lazuli {}", env!("CARGO_PKG_VERSION"))), "{said}");

    let content: Vec<u8> = (0..1_000_000_u32).flat_map(u32::to_le_bytes).collect();
    guest.put("/tmp/file", 0o640, &content).await;
    assert_eq!(guest.sh("stat -c '%s %a' /tmp/file").await, format!("{} 640", content.len()));
    assert!(guest.get("/tmp/file").await == content, "a file comes back as it went");
    let failed = guest.exec(&["sh", "-c", "echo out; echo error >&2; exit 7"]).await;
    assert_eq!((failed.code, &*failed.stdout, &*failed.stderr), (7, "out\n", "error\n"));
    assert!(guest.unix_socket("/csi/none.sock").await.unwrap_err().contains("No such file"));

    // A program in the guest that asks the emulator out here, and is called from here.
    let emulator = Emulator::start(Options::default()).await.unwrap();
    let port = emulator.url().rsplit_once(':').unwrap().1.to_owned();
    let arguments =
        format!("--endpoint unix:///csi/csi.sock --node-id node-0 --imds-url http://10.0.2.2:{port}/_imds/node-0");
    let channel = guest.start_node("lazuli", &arguments, "/csi/csi.sock").await;
    let plugin = IdentityClient::new(channel.clone()).get_plugin_info(GetPluginInfoRequest {}).await.unwrap();
    assert_eq!(plugin.into_inner().name, "disk.csi.azure.com");
    // An emulated processor may take longer than the metadata is given; kubelet asks again then, until the guest's life is over.
    let node = loop {
        match NodeClient::new(channel.clone()).node_get_info(NodeGetInfoRequest {}).await {
            Ok(node) => break node.into_inner(),
            Err(status) => assert_eq!(status.code(), tonic::Code::Unavailable, "{status}"),
        }
    };
    assert_eq!(node.node_id, "node-0");
    // The metadata name the size of the machine, from which the number of disks follows.
    assert!(node.max_volumes_per_node > 0, "{node:?}");
    emulator.shutdown().await;

    // A name and a port in the guest lead to a port out here, and a closed one refuses.
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    guest.reach("account.file.test", 445, listener.local_addr().unwrap().port()).await;
    let call = async {
        let (mut caller, _) = listener.accept().await.unwrap();
        caller.write_all(b"reached").await.unwrap();
    };
    let (said, ()) = tokio::join!(guest.sh("nc account.file.test 445 </dev/null"), call);
    assert_eq!(said, "reached");
    drop(listener);
    let refused = guest.exec(&["nc", "account.file.test", "445"]).await;
    assert!(refused.code != 0 && refused.stderr.contains("Connection refused"), "{refused:?}");
    guest.stop().await;
}
