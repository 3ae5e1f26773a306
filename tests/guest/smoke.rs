//! The guest itself.

use std::net::Ipv4Addr;

use csi_proto::csi::{GetPluginInfoRequest, identity_client::IdentityClient};
use tokio::{io::AsyncWriteExt as _, net::TcpListener};

use super::machine::{Guest, able};

#[tokio::test]
async fn a_guest_runs_the_program_and_carries_files_and_calls() {
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

    // A socket in the guest, called from here.
    let start = "lazuli csi-node --endpoint unix:///csi/csi.sock --node-id node-0 --imds off >/tmp/node.log 2>&1 &";
    guest.sh(start).await;
    guest
        .sh("for look in $(seq 300); do [ -S /csi/csi.sock ] && exit; sleep 0.05; done; cat /tmp/node.log >&2; exit 1")
        .await;
    let mut identity = IdentityClient::new(guest.channel("/csi/csi.sock").await);
    let plugin = identity.get_plugin_info(GetPluginInfoRequest {}).await.unwrap().into_inner();
    assert_eq!(plugin.name, "disk.csi.azure.com");
    guest.stop().await;
}

#[tokio::test]
async fn a_name_and_a_port_in_the_guest_lead_to_a_port_out_here_and_a_closed_one_refuses() {
    if !able() {
        return;
    }
    let guest = Guest::boot().await;
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
