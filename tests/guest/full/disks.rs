//! Disks on a real kernel, in what takes minutes: many of them, their end while they are in use, killed tools, copies, and
//! a kernel that is told less than Azure's.

use std::time::{Duration, Instant};

use csi_proto::csi::{
    CapacityRange, CreateVolumeRequest, VolumeContentSource,
    volume_content_source::{Type, VolumeSource},
};
use futures::future::join_all;
use tonic::{Code, Status};

use crate::{
    guest::{
        disk_driver::{
            Disks, GIB, NODE, NVME_NODE, SECOND_NODE, SOCKET, STATE, Volume, bytes, check, find, grow, has, is_blank,
            kernel_sees, kind, publish, refused, stage, try_unstage, unpublish, unstage, write,
        },
        disks::{Nvme, add_namespace, remove_namespace, start_nvme},
        machine::{Equipment, able},
        sanity::{skipped, suite},
    },
    reader,
};

/// How soon a test asks again.
const AGAIN: Duration = Duration::from_millis(200);

/// Whether kubelet asks again after this answer, and Kubernetes does nothing else meanwhile.
fn is_repeated(status: &Status) -> bool {
    // A call whose deadline is over on this side is cancelled, says the client.
    [Code::Unavailable, Code::Aborted, Code::DeadlineExceeded, Code::Cancelled].contains(&status.code())
}

/// Repeats a call as kubelet does, until it succeeds.
async fn repeat(disks: &Disks, mut call: impl AsyncFnMut() -> Result<(), Status>) {
    loop {
        match call().await {
            Ok(()) => return,
            // The guest's life is the one deadline of a test.
            Err(status) if is_repeated(&status) => disks.guest.meanwhile(tokio::time::sleep(AGAIN)).await,
            Err(status) => panic!("{status}"),
        }
    }
}

/// Watches the node plugin: the most child processes at a time, until the file `/tmp/enough` is there.
const WATCH: &str = "rm -f /tmp/enough; (most=0; until [ -e /tmp/enough ]; do \
    now=$(cat /proc/$(cat /tmp/node.pid)/task/*/children 2>/dev/null | wc -w); \
    [ $now -le $most ] || most=$now; sleep 0.1; done; echo $most >/tmp/most) >/dev/null 2>&1 </dev/null &";
const WATCHED: &str = "touch /tmp/enough; until [ -s /tmp/most ]; do sleep 0.1; done; echo $(cat /tmp/most; rm /tmp/most) \
    children, $(grep -E 'VmHWM|VmRSS' /proc/$(cat /tmp/node.pid)/status | tr -d '\\n\\t')";

#[tokio::test]
async fn thirty_two_disks_come_at_once_and_sixty_four_are_found() {
    if !able() {
        return;
    }
    let disks = Disks::start().await;
    for count in [1, 32] {
        let mut volumes = Vec::new();
        for n in 0..count {
            volumes.push(disks.create(&format!("pvc-{count}-{n}"), kind("ext4")).await);
        }
        disks.guest.sh(WATCH).await;
        let began = Instant::now();
        join_all(volumes.iter_mut().map(|volume| disks.attach(volume, NODE))).await;
        let attached = began.elapsed();
        while disks.kernel_sees().await.len() < count {
            tokio::time::sleep(AGAIN).await;
        }
        let found = began.elapsed();
        join_all(volumes.iter().map(|volume| repeat(&disks, || disks.stage(volume)))).await;
        let staged = began.elapsed();
        println!("{count} disks at once: attached after {attached:?}, seen by the kernel {found:?}, staged {staged:?}");
        println!("the node plugin meanwhile: {}", disks.guest.sh(WATCHED).await);
        for volume in &volumes {
            publish(&disks.node, volume).await;
            write(&disks.guest, volume).await;
        }
        for volume in &volumes {
            check(&disks.guest, volume).await;
            unpublish(&disks.node, volume).await;
        }
        let began = Instant::now();
        join_all(volumes.iter().map(|volume| repeat(&disks, || try_unstage(&disks.node, volume)))).await;
        let unstaged = began.elapsed();
        join_all(volumes.iter().map(|volume| disks.detach(volume, NODE))).await;
        println!("{count} disks: unstaged after {unstaged:?}, detached after {:?}", began.elapsed());
        for volume in &volumes {
            let file = disks.file(&volume.disk);
            assert!(has(&file, &volume.content()), "{}", volume.disk);
            disks.delete(volume).await;
        }
    }
    // All that Azure allows.
    let luns: Vec<u32> = (0..64).collect();
    let began = Instant::now();
    for lun in &luns {
        let name = format!("disk-{lun}");
        disks.tool.make_disk(&name, 1).await;
        reader::name_disk(&disks.file(&name), &name);
        disks.tool.attach(NODE, &name, u8::try_from(*lun).unwrap()).await;
    }
    for (lun, disk) in find(&disks.guest, &luns, &[]).await {
        assert!(disk.name == format!("disk-{lun}") && disk.bytes == 1 << 30, "LUN {lun}: {disk:?}");
    }
    println!("64 disks one after the other: found after {:?}", began.elapsed());
    for lun in &luns {
        disks.tool.yank(NODE, &format!("disk-{lun}")).await;
    }
    find(&disks.guest, &[], &luns).await;
    disks.finish().await;
}

#[tokio::test]
async fn a_volume_moves_to_another_machine_with_its_bytes() {
    if !able() {
        return;
    }
    let disks = Disks::start().await;
    let (guest, node) = disks.second().await;
    for name in ["ext4", "xfs", "btrfs", "block"] {
        let mut volume = disks.create(&format!("pvc-{name}"), kind(name)).await;
        guest.sh(&format!("mkdir -p $(dirname {})", volume.target)).await;
        disks.attach(&mut volume, NODE).await;
        disks.stage(&volume).await.unwrap();
        publish(&disks.node, &volume).await;
        write(&disks.guest, &volume).await;
        unpublish(&disks.node, &volume).await;
        unstage(&disks.node, &volume).await;
        disks.detach(&volume, NODE).await;
        disks.attach(&mut volume, SECOND_NODE).await;
        stage(&node, &volume).await.unwrap();
        publish(&node, &volume).await;
        check(&guest, &volume).await;
        unpublish(&node, &volume).await;
        unstage(&node, &volume).await;
        disks.detach(&volume, SECOND_NODE).await;
        disks.delete(&volume).await;
    }
    assert!(kernel_sees(&guest).await.is_empty());
    guest.stop().await;
    disks.finish().await;
}

#[tokio::test]
async fn a_disk_that_is_pulled_while_a_pod_writes_loses_nothing_that_was_reported_written() {
    if !able() {
        return;
    }
    let disks = Disks::start().await;
    let (guest, node) = (&disks.guest, &disks.node);
    for name in ["ext4", "xfs", "btrfs", "block"] {
        let mut volume = disks.create(&format!("pvc-{name}"), kind(name)).await;
        disks.attach(&mut volume, NODE).await;
        disks.stage(&volume).await.unwrap();
        publish(node, &volume).await;
        write(guest, &volume).await;
        // A Pod that appends numbers, flushes each, and says which are written.
        let place = if volume.is_block() { volume.target.clone() } else { format!("{}/numbers", volume.target) };
        guest
            .sh(&format!(
                "rm -f /tmp/written; (n=8; while printf '%-511s\\n' $n | dd of={place} bs=512 seek=$n \
                 conv=notrunc,fsync 2>/dev/null; do echo $n >>/tmp/written; n=$((n + 1)); done; touch /tmp/over) \
                 >/dev/null 2>&1 </dev/null & until [ \"$(wc -l </tmp/written)\" -gt 5 ]; do sleep 0.05; done"
            ))
            .await;
        disks.tool.yank(NODE, &volume.disk).await;
        guest.sh("until [ -e /tmp/over ]; do sleep 0.05; done; rm /tmp/over").await;
        let last: u64 = guest.sh("tail -n 1 /tmp/written").await.parse().unwrap();
        // Every call is answered, and the volume is given up.
        unpublish(node, &volume).await;
        repeat(&disks, || try_unstage(node, &volume)).await;
        assert!(!disks.kernel_sees().await.contains_key(&volume.lun()));
        disks.attach(&mut volume, NODE).await;
        repeat(&disks, || disks.stage(&volume)).await;
        publish(node, &volume).await;
        if !volume.is_block() {
            // Its first bytes are the volume's only where the file system had flushed them by itself.
            let count = guest.sh(&format!("wc -c <{place}")).await;
            assert!(count.parse::<u64>().unwrap() >= (last + 1) * 512, "{name}: {count} of {last}");
        }
        for n in 8..=last {
            let found = guest.sh(&format!("dd if={place} bs=512 skip={n} count=1 2>/dev/null")).await;
            assert_eq!(found.trim_end(), n.to_string(), "{name}: number {n} of {last} is lost");
        }
        println!("{name}: {} numbers were written and are there", last - 7);
        unpublish(node, &volume).await;
        unstage(node, &volume).await;
        disks.detach(&volume, NODE).await;
        disks.delete(&volume).await;
    }
    disks.finish().await;
}

#[tokio::test]
async fn a_kernel_that_is_told_nothing_finds_the_right_disk_and_its_new_size() {
    if !able() {
        return;
    }
    let disks = Disks::start_with(",hotplug=off,param_change=off", "").await;
    let (guest, node) = (&disks.guest, &disks.node);
    let mut small = disks.create("pvc-small", kind("ext4")).await;
    disks.attach(&mut small, NODE).await;
    assert!(disks.kernel_sees().await.is_empty(), "the kernel was told");
    // The plugin asks the kernel to scan.
    disks.stage(&small).await.unwrap();
    publish(node, &small).await;
    write(guest, &small).await;
    unpublish(node, &small).await;
    unstage(node, &small).await;
    disks.detach(&small, NODE).await;
    assert!(disks.kernel_sees().await.contains_key(&small.lun()), "the kernel was told");
    let before = bytes(&disks.file(&small.disk));

    // A larger disk comes to the LUN, where the kernel still has the entry of the small one.
    let request = CreateVolumeRequest {
        name: "pvc-large".to_owned(),
        capacity_range: Some(CapacityRange { required_bytes: 2 * GIB, limit_bytes: 0 }),
        volume_capabilities: vec![kind("ext4")],
        ..Default::default()
    };
    let mut large = disks.create_as(request).await;
    disks.attach(&mut large, NODE).await;
    assert_eq!(large.lun(), small.lun());
    repeat(&disks, || disks.stage(&large)).await;
    publish(node, &large).await;
    write(guest, &large).await;
    disks.expand(&large, 3).await;
    assert_eq!(grow(node, &large, 3).await, 3 * GIB);
    check(guest, &large).await;
    unpublish(node, &large).await;
    unstage(node, &large).await;
    disks.detach(&large, NODE).await;
    assert!(has(&disks.file(&large.disk), &large.content()));
    assert!(bytes(&disks.file(&small.disk)) == before, "the disk that was there before was written");

    // The small one comes again. The kernel takes it for as large as the other, until the plugin makes it look.
    let before = bytes(&disks.file(&large.disk));
    disks.attach(&mut small, NODE).await;
    disks.stage(&small).await.unwrap();
    publish(node, &small).await;
    check(guest, &small).await;
    unpublish(node, &small).await;
    unstage(node, &small).await;
    disks.detach(&small, NODE).await;
    assert!(bytes(&disks.file(&large.disk)) == before, "the disk that was there before was written");
    for volume in [&small, &large] {
        disks.delete(volume).await;
    }
    guest.sh("for entry in /sys/class/scsi_device/1:0:0:*; do echo 1 >$entry/device/delete; done").await;
    disks.finish().await;
}

#[tokio::test]
async fn namespaces_come_and_go_under_load_and_none_is_taken_for_another() {
    if !able() {
        return;
    }
    for multipath in ["N", "Y"] {
        let mut disks = Disks::start_with("", &format!("nvme_core.multipath={multipath}")).await;
        start_nvme(&disks.guest).await;
        let paths = disks.guest.sh("ls -d /sys/class/nvme/nvme0/nvme0c0n1 2>/dev/null; true").await;
        assert_eq!(!paths.is_empty(), multipath == "Y", "{paths}");
        disks.restart_plugin(NVME_NODE, "--state-dir /mnt/system/state").await;
        let mut volume = disks.create("pvc-nvme", kind("ext4")).await;
        disks.attach(&mut volume, NVME_NODE).await;
        let (guest, node) = (&disks.guest, &disks.node);
        reader::each_disk_is_found_at_its_lun(&Nvme(guest), "nvme").await;
        add_namespace(guest, 2, "1G").await;
        disks.stage(&volume).await.unwrap();
        publish(node, &volume).await;
        write(guest, &volume).await;
        let place = format!("{}/numbers", volume.target);
        guest
            .sh(&format!(
                "rm -f /tmp/enough; (n=0; until [ -e /tmp/enough ]; do printf '%-511s\\n' $n | dd of={place} bs=512 seek=$n \
                 conv=notrunc,fsync 2>/dev/null || echo $n >>/tmp/lost; n=$((n + 1)); done; echo $n >/tmp/over) \
                 >/dev/null 2>&1 </dev/null &"
            ))
            .await;
        for round in 0..6_u8 {
            for nsid in 3..6 {
                add_namespace(guest, nsid + round % 2, "1G").await;
            }
            let luns: Vec<u32> = (1..4).map(|lun| lun + u32::from(round) % 2).collect();
            assert_eq!(find(guest, &luns, &[6]).await.len(), 3);
            for nsid in 3..6 {
                remove_namespace(guest, nsid + round % 2).await;
            }
            find(guest, &[], &[1, 2, 3, 4]).await;
        }
        guest.sh("touch /tmp/enough; until [ -s /tmp/over ]; do sleep 0.05; done; [ ! -e /tmp/lost ]").await;
        let count: u64 = guest.sh("cat /tmp/over; rm /tmp/over").await.parse().unwrap();
        println!("multipath={multipath}: {count} numbers were written under load");
        let wrong = format!(
            "n=0; while [ $n -lt {count} ]; do read -r found || exit 1; [ $found = $n ] || exit 1; n=$((n + 1)); done <{place}"
        );
        guest.sh(&wrong).await;
        check(guest, &volume).await;
        unpublish(node, &volume).await;
        unstage(node, &volume).await;
        remove_namespace(guest, 2).await;
        disks.detach(&volume, NVME_NODE).await;
        disks.delete(&volume).await;
        disks.finish().await;
    }
}

/// How often mkfs is killed, for each file system.
const KILLS: u32 = 20;

#[tokio::test]
async fn a_killed_mkfs_leaves_a_volume_that_is_formatted_again() {
    if !able() {
        return;
    }
    let disks = Disks::start().await;
    let (guest, node) = (&disks.guest, &disks.node);
    for name in ["ext4", "xfs", "btrfs"] {
        let (mut struck, mut volumes) = (0, Vec::new());
        for n in 0..KILLS {
            volumes.push(disks.create(&format!("pvc-{name}-{n}"), kind(name)).await);
        }
        join_all(volumes.iter_mut().map(|volume| disks.attach(volume, NODE))).await;
        for (n, volume) in volumes.iter().enumerate() {
            // It is killed at some point of its work, which is another one each time.
            let killer = format!(
                "rm -f /tmp/struck /tmp/over; (until [ -e /tmp/over ]; do for pid in $(pidof mkfs.{name} mke2fs); do \
                 [ -e /tmp/struck ] || {{ usleep {}; kill -9 $pid && touch /tmp/struck; }}; done; done) \
                 >/dev/null 2>&1 </dev/null &",
                n * 10_000
            );
            guest.sh(&killer).await;
            let first = disks.stage(volume).await;
            let was_struck = guest.sh("touch /tmp/over; [ -e /tmp/struck ] && echo yes || true").await == "yes";
            struck += u32::from(was_struck && first.is_err());
            println!("{name} {n}: struck {was_struck}, {first:?}");
            let mut again = 0;
            while let Err(status) = disks.stage(volume).await {
                // kubelet asks again whatever the answer was.
                again += 1;
                assert!(again < 50, "{status}");
                tokio::time::sleep(AGAIN).await;
            }
            publish(node, volume).await;
            write(guest, volume).await;
            check(guest, volume).await;
            unpublish(node, volume).await;
            unstage(node, volume).await;
        }
        join_all(volumes.iter().map(|volume| disks.detach(volume, NODE))).await;
        for volume in &volumes {
            disks.delete(volume).await;
        }
        println!("{name}: {struck} of {KILLS} kills have struck");
        assert!(struck > 0, "no kill has struck mkfs.{name}");
    }
    disks.finish().await;
}

#[tokio::test]
async fn a_plugin_that_is_killed_or_replaced_is_followed_by_one_that_goes_on() {
    if !able() {
        return;
    }
    let mut disks = Disks::start().await;
    let mut kept = disks.create("pvc-kept", kind("xfs")).await;
    disks.attach(&mut kept, NODE).await;
    disks.stage(&kept).await.unwrap();
    publish(&disks.node, &kept).await;
    write(&disks.guest, &kept).await;
    let kill = "kill -9 $(cat /tmp/node.pid)";
    let arguments = format!("--state-dir {STATE}");
    for (n, name) in ["ext4", "xfs", "btrfs", "ext4", "xfs", "btrfs"].into_iter().enumerate() {
        let mut volume = disks.create(&format!("pvc-{n}"), kind(name)).await;
        disks.attach(&mut volume, NODE).await;
        // Killed at some point of staging, which is another one each time.
        let call = tokio::spawn({
            let (node, volume) = (disks.node.clone(), volume.clone());
            async move { stage(&node, &volume).await }
        });
        tokio::time::sleep(Duration::from_millis(250 * (n as u64 + 1))).await;
        disks.guest.sh(kill).await;
        println!(
            "{name}: the plugin was killed, and the call ended with {:?}",
            call.await.unwrap().err().map(|end| end.code())
        );
        disks.restart_plugin(NODE, &arguments).await;
        repeat(&disks, || disks.stage(&volume)).await;
        publish(&disks.node, &volume).await;
        write(&disks.guest, &volume).await;
        check(&disks.guest, &volume).await;
        unpublish(&disks.node, &volume).await;
        let call = tokio::spawn({
            let (node, volume) = (disks.node.clone(), volume.clone());
            async move { try_unstage(&node, &volume).await }
        });
        tokio::time::sleep(Duration::from_millis(20 * n as u64)).await;
        // What is installed meanwhile is what starts.
        disks.guest.sh(&format!("cp /bin/lazuli /bin/new && mv /bin/new /bin/lazuli; {kill}")).await;
        let _ = call.await.unwrap();
        disks.restart_plugin(NODE, &arguments).await;
        repeat(&disks, || try_unstage(&disks.node, &volume)).await;
        disks.detach(&volume, NODE).await;
        assert!(has(&disks.file(&volume.disk), &volume.content()), "{name}");
        disks.delete(&volume).await;
        check(&disks.guest, &kept).await;
        disks.stage(&kept).await.unwrap();
    }
    unpublish(&disks.node, &kept).await;
    unstage(&disks.node, &kept).await;
    disks.detach(&kept, NODE).await;
    disks.delete(&kept).await;
    disks.finish().await;
}

#[tokio::test]
async fn a_file_that_is_open_in_another_mount_namespace_holds_the_disk() {
    if !able() {
        return;
    }
    let disks = Disks::start().await;
    let (guest, node) = (&disks.guest, &disks.node);
    let mut volume = disks.create("pvc-open", kind("ext4")).await;
    disks.attach(&mut volume, NODE).await;
    disks.stage(&volume).await.unwrap();
    publish(node, &volume).await;
    write(guest, &volume).await;
    guest
        .sh(&format!(
            "mkfifo /tmp/go; (unshare -m --propagation private sh -c 'exec 3>>{}/open; echo >/tmp/go; read end </tmp/go; \
             echo late >&3') >/dev/null 2>&1 </dev/null & read begun </tmp/go",
            volume.target
        ))
        .await;
    unpublish(node, &volume).await;
    let status = try_unstage(node, &volume).await.expect_err("the disk is in use");
    println!("in use: {status}");
    guest.sh("echo >/tmp/go; rm /tmp/go").await;
    repeat(&disks, || try_unstage(node, &volume)).await;
    disks.detach(&volume, NODE).await;
    disks.attach(&mut volume, NODE).await;
    disks.stage(&volume).await.unwrap();
    publish(node, &volume).await;
    check(guest, &volume).await;
    assert_eq!(guest.sh(&format!("cat {}/open", volume.target)).await, "late");
    unpublish(node, &volume).await;
    unstage(node, &volume).await;
    disks.detach(&volume, NODE).await;
    disks.delete(&volume).await;
    disks.finish().await;
}

#[tokio::test]
async fn copies_with_one_uuid_live_beside_their_source() {
    if !able() {
        return;
    }
    let disks = Disks::start().await;
    let (guest, node) = (&disks.guest, &disks.node);
    for name in ["ext4", "xfs", "btrfs"] {
        let mut source = disks.create(&format!("pvc-{name}"), kind(name)).await;
        disks.attach(&mut source, NODE).await;
        disks.stage(&source).await.unwrap();
        publish(node, &source).await;
        write(guest, &source).await;
        guest.sh("sync").await;
        let of = VolumeSource { volume_id: source.id.clone() };
        let request = CreateVolumeRequest {
            name: format!("pvc-{name}-copy"),
            capacity_range: Some(CapacityRange { required_bytes: GIB, limit_bytes: 0 }),
            volume_capabilities: vec![kind(name)],
            volume_content_source: Some(VolumeContentSource { r#type: Some(Type::Volume(of)) }),
            ..Default::default()
        };
        let mut copy = disks.create_as(request).await;
        disks.attach(&mut copy, NODE).await;
        repeat(&disks, || disks.stage(&copy)).await;
        publish(node, &copy).await;
        let found = guest.sh(&format!("dd if={}/name bs=512 count=1 2>/dev/null", copy.target)).await;
        assert_eq!(found.trim_end(), source.content(), "{name}");
        write(guest, &copy).await;
        check(guest, &source).await;
        check(guest, &copy).await;
        for volume in [&copy, &source] {
            unpublish(node, volume).await;
            unstage(node, volume).await;
            disks.detach(volume, NODE).await;
        }
        for volume in [&copy, &source] {
            disks.delete(volume).await;
        }
    }
    disks.finish().await;
}

/// A volume whose disk is another's is refused, also when it has come by itself meanwhile.
#[tokio::test]
async fn a_disk_that_takes_the_lun_of_a_staged_one_is_not_staged_for_it() {
    if !able() {
        return;
    }
    let disks = Disks::start().await;
    let node = &disks.node;
    let mut volume: Volume = disks.create("pvc-own", kind("xfs")).await;
    disks.attach(&mut volume, NODE).await;
    disks.stage(&volume).await.unwrap();
    disks.tool.make_disk("stranger", 1).await;
    disks.tool.yank(NODE, &volume.disk).await;
    disks.tool.attach(NODE, "stranger", volume.lun()).await;
    repeat(&disks, || try_unstage(node, &volume)).await;
    let message = refused(disks.stage(&volume).await, Code::Unavailable);
    assert!(message.contains("stranger"), "{message}");
    assert!(is_blank(&disks.file("stranger")));
    disks.tool.yank(NODE, "stranger").await;
    disks.attach(&mut volume, NODE).await;
    repeat(&disks, || disks.stage(&volume)).await;
    unstage(node, &volume).await;
    disks.detach(&volume, NODE).await;
    disks.delete(&volume).await;
    disks.finish().await;
}

/// Reasons for which a spec may skip itself, by how the suite's own words end.
const ALLOWED: [&str; 2] = ["not supported", "single node multi writer capability"];

#[tokio::test(flavor = "multi_thread")]
async fn the_disk_driver_passes_the_community_s_suite_with_a_real_kernel() {
    if !able() {
        return;
    }
    let suite = suite();
    let disks =
        Disks::start_in(Equipment { programs: &[("/bin/csi-sanity", &*suite)], ..Equipment::default() }, "").await;
    let (guest, port) = (&disks.guest, disks.serve_controller().await);
    guest.put("/csi/parameters.yaml", 0o600, b"skuName: Premium_LRS\n").await;
    let line = format!(
        "mkdir /mnt/sanity && exec csi-sanity -csi.endpoint unix://{SOCKET} -csi.controllerendpoint 10.0.2.2:{port} \
         -csi.mountdir /mnt/sanity/mount -csi.stagingdir /mnt/sanity/staging \
         -csi.testvolumesize {GIB} -csi.testvolumeexpandsize {} -csi.testvolumeparameters /csi/parameters.yaml \
         -csi.testnodevolumeattachlimit -ginkgo.no-color -ginkgo.junit-report /tmp/report.xml",
        2 * GIB
    );
    let output = guest.exec(&["/bin/sh", "-c", &line]).await;
    let log = guest.node_log().await;
    assert!(output.code == 0, "{}\n{}\n--- the log of the node plugin\n{log}", output.stdout, output.stderr);
    let summary = output.stdout.lines().find(|line| line.starts_with("SUCCESS! --"));
    println!("{}", summary.expect("the suite says how many specs have passed"));
    let skipped = skipped(&String::from_utf8(guest.get("/tmp/report.xml").await).unwrap());
    assert!(!skipped.is_empty(), "no driver claims every capability");
    let unexpected: Vec<_> =
        skipped.iter().filter(|(_, reason)| !ALLOWED.iter().any(|allowed| reason.ends_with(allowed))).collect();
    assert!(unexpected.is_empty(), "{unexpected:?}");
    disks.finish().await;
}
