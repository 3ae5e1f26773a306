//! A file system with open files of another process stays attached.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, ChildStdin, Command, Stdio},
};

use tonic::Code;

use super::{
    cloud::{Cloud, NODES, Step, kind, refused},
    content,
    process::{able, mounted_at},
};

const NODE: &str = NODES[0];

/// A process in a mount namespace of its own, with a file of the volume open: a container that does not die.
struct Holder {
    child: Child,
    orders: Option<ChildStdin>,
}

impl Holder {
    fn start(file: &std::path::Path) -> Self {
        let script = "exec 3>>\"$1\"; echo ready; read order; echo late >&3; exec 3>&-";
        let mut child = Command::new("unshare")
            .args(["--mount", "--propagation", "private", "sh", "-c", script, "holder"])
            .arg(file)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Self { orders: child.stdin.take(), child }
    }

    /// Lets it write one line more, and waits for its end.
    fn finish(mut self) {
        self.orders.take().unwrap().write_all(b"go\n").unwrap();
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn a_file_open_in_another_mount_namespace_keeps_the_disk_until_its_holder_ends() {
    if !able() {
        return;
    }
    // Alone: a new mount namespace has copies of everybody's mounts.
    let mut cloud = Cloud::alone().await;
    for name in ["ext4", "xfs", "btrfs"] {
        let volume = cloud.published(&format!("pvc-{name}"), kind(name)).await;
        content::write(&volume, 1);
        let holder = Holder::start(&volume.target.join("log"));
        cloud.unpublish(&volume, NODE).await;
        for _ in 0..2 {
            let message = refused(cloud.call(Step::Unstage, &volume, NODE).await, Code::FailedPrecondition);
            assert!(message.contains("in use") && message.contains(&format!("pid {}", holder.child.id())), "{message}");
            // Nor does another process of the node forget it.
            cloud.restart_node_killed(NODE);
        }
        assert!(mounted_at(&volume.staging).is_none());
        assert!(cloud.device(NODE, volume.lun()).is_some());
        assert_eq!(cloud.azure.attached().await[&volume.disk].len(), 1);
        holder.finish();
        cloud.unstage(&volume, NODE).await;
        cloud.stage(&volume, NODE).await;
        cloud.publish(&volume, NODE).await;
        content::check(&volume, 1);
        // What the holder wrote after the first unstage is there too.
        assert_eq!(fs::read_to_string(volume.target.join("log")).unwrap(), "late\n");
        cloud.tear_down(&volume, NODE).await;
    }
    cloud.finish().await;
}

#[tokio::test]
async fn an_open_file_keeps_the_volume_mounted_where_it_is() {
    if !able() {
        return;
    }
    let mut cloud = Cloud::start().await;
    let volume = cloud.published("pvc-open", kind("ext4")).await;
    let open = fs::File::create(volume.target.join("open")).unwrap();
    refused(cloud.call(Step::Unpublish, &volume, NODE).await, Code::FailedPrecondition);
    assert!(mounted_at(&volume.target).is_some());
    refused(cloud.call(Step::Unstage, &volume, NODE).await, Code::FailedPrecondition);
    // A lazy unmount would have let Azure take the disk from under this write.
    (&open).write_all(b"kept").unwrap();
    drop(open);
    cloud.unpublish(&volume, NODE).await;
    cloud.unstage(&volume, NODE).await;
    cloud.stage(&volume, NODE).await;
    cloud.publish(&volume, NODE).await;
    assert_eq!(fs::read_to_string(volume.target.join("open")).unwrap(), "kept");
    cloud.tear_down(&volume, NODE).await;
    cloud.finish().await;
}
