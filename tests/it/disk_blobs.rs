//! VHD blob disks, as the sidecars ask for them: made, attached, grown, detached and deleted, on machines whose system disks
//! are blobs.

use std::{collections::BTreeSet, fs::File, io::ErrorKind, os::unix::fs::FileExt as _, process::Command};

use csi_proto::csi::Volume;
use futures::future::join_all;
use lazuli_emulator::scenario::VirtualMachine;
use lazuli_rig::Options;
use serde_json::Value;
use tokio::time::Instant;
use tonic::Code;

use super::disk_rig::{
    Client, GIB, Rig, create_with, delete, expand, list, publish, refused, seconds, typical, unpublish, vm_id,
};

fn machines(count: u32) -> VirtualMachine {
    let mut old = VirtualMachine::pattern("old-{}", count);
    old.os_disk.storage_account = Some("system1".to_owned());
    old
}

/// An Azure whose machines have VHDs as their system disks, in the account `system1`.
async fn vhds(change: impl FnOnce(&mut lazuli_emulator::Options)) -> (Rig, Client) {
    let mut azure = typical();
    azure.listen_tls = Some("127.0.0.1:0".parse().unwrap());
    azure.scenario.virtual_machines = vec![machines(2)];
    change(&mut azure);
    let mut rig = Rig::with(azure, |_: &mut Options| {}).await;
    let client = rig.controller().await;
    (rig, client)
}

/// The blobs of disks: account and blob.
fn blobs(rig: &Rig) -> Vec<(String, String)> {
    let dump = rig.control.dump();
    let of = |(id, doc): (String, Value)| {
        let account = id.split("/storageaccounts/").nth(1)?.split('/').next()?.to_owned();
        (doc["type"] == "lazuli/blobs").then(|| (account, doc["properties"]["name"].as_str().unwrap().to_owned()))
    };
    dump.resources.into_iter().filter_map(of).collect()
}

/// The data disks of a machine: LUN and address.
fn attached(rig: &Rig, machine: &str) -> Vec<(u64, String)> {
    let dump = rig.control.dump();
    let disks = dump.resources[&vm_id(machine).to_lowercase()]["properties"]["storageProfile"]["dataDisks"].clone();
    let element = |disk: &Value| (disk["lun"].as_u64().unwrap(), disk["vhd"]["uri"].as_str().unwrap().to_owned());
    disks.as_array().unwrap().iter().map(element).collect()
}

#[tokio::test(start_paused = true)]
async fn disk_a_blob_disk_is_made_attached_grown_and_deleted() {
    let (rig, client) = vhds(|_| {}).await;
    let shared = create_with(&client, "pvc-1", &[("kind", "Shared"), ("skuName", "Standard_LRS")]).await.unwrap();
    let own = create_with(&client, "pvc-2", &[("kind", "Dedicated"), ("cachingMode", "None")]).await.unwrap();
    for (volume, prefix) in [(&shared, "https://ds"), (&own, "https://dd")] {
        assert!(volume.volume_id.starts_with(prefix), "{}", volume.volume_id);
        assert_eq!(volume.capacity_bytes, GIB);
        assert!(volume.accessible_topology.is_empty());
    }
    assert_eq!(create_with(&client, "pvc-1", &[("kind", "Shared")]).await.unwrap().volume_id, shared.volume_id);

    let made = list(&client).await.unwrap();
    assert!(made[&shared.volume_id].is_empty() && made[&own.volume_id].is_empty(), "{made:?}");

    assert_eq!(publish(&client, &shared, "old-0").await.unwrap(), 0);
    assert_eq!(publish(&client, &own, "old-0").await.unwrap(), 1);
    assert_eq!(publish(&client, &shared, "old-0").await.unwrap(), 0, "it is attached");
    let listed = attached(&rig, "old-0");
    assert_eq!(listed, [(0, shared.volume_id.clone()), (1, own.volume_id.clone())]);
    let message = refused(publish(&client, &shared, "old-1").await, Code::FailedPrecondition);
    assert!(message.contains("old-0"), "{message}");
    let shown = list(&client).await.unwrap();
    assert_eq!(shown[&shared.volume_id], ["old-0"]);

    let message = refused(expand(&client, &shared.volume_id, 12 * GIB, 0).await, Code::FailedPrecondition);
    assert!(message.contains("old-0") && message.contains("detach"), "{message}");
    let message = refused(delete(&client, &shared.volume_id).await, Code::FailedPrecondition);
    assert!(message.contains("old-0"), "{message}");

    unpublish(&client, &shared.volume_id, "old-0").await.unwrap();
    unpublish(&client, &shared.volume_id, "old-0").await.unwrap();
    assert_eq!(expand(&client, &shared.volume_id, 12 * GIB, 0).await.unwrap(), 12 * GIB);
    assert_eq!(publish(&client, &shared, "old-1").await.unwrap(), 0);
    unpublish(&client, &shared.volume_id, "old-1").await.unwrap();
    unpublish(&client, &own.volume_id, "old-0").await.unwrap();
    for volume in [&shared, &own] {
        delete(&client, &volume.volume_id).await.unwrap();
        delete(&client, &volume.volume_id).await.unwrap();
    }
    assert_eq!(blobs(&rig), []);
    let accounts = |prefix: &str| {
        let dump = rig.control.dump();
        let is_account = |doc: &&Value| doc["type"] == "Microsoft.Storage/storageAccounts";
        dump.resources
            .values()
            .filter(is_account)
            .filter(|doc| doc["name"].as_str().unwrap().starts_with(prefix))
            .count()
    };
    assert_eq!((accounts("ds"), accounts("dd")), (1, 0), "the account of one disk goes with it");
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn disk_a_class_of_blobs_gets_a_managed_disk_where_the_machines_take_these() {
    let (rig, client) = vhds(|azure| azure.scenario.virtual_machines[0].os_disk.storage_account = None).await;
    let volume = create_with(&client, "pvc-1", &[("kind", "Shared")]).await.unwrap();
    assert!(volume.volume_id.contains("/disks/"), "{}", volume.volume_id);
    let message =
        refused(create_with(&client, "pvc-2", &[("storageAccount", "azuretestx")]).await, Code::InvalidArgument);
    assert!(message.contains("storageAccount") && message.contains("--blob-disks=always"), "{message}");
    refused(unpublish(&client, "https://example.com/d.vhd", "old-0").await, Code::InvalidArgument);
    // The machine does not list it.
    unpublish(&client, "https://azuretestx.blob.core.windows.net/vhds/d.vhd", "old-0").await.unwrap();
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn disk_a_retired_cloud_attaches_no_blob_and_names_the_way_out() {
    let (rig, client) = vhds(|azure| azure.unverified.set("unmanaged-disks-retired=true").unwrap()).await;
    let volume = create_with(&client, "pvc-1", &[("kind", "Shared")]).await.unwrap();
    let message = refused(publish(&client, &volume, "old-0").await, Code::FailedPrecondition);
    assert!(message.contains("retired") && message.contains("dataSource"), "{message}");
    assert_eq!(attached(&rig, "old-0"), []);
    rig.lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn disk_a_storm_of_blob_disks_takes_as_long_as_an_account_and_a_write_of_a_machine() {
    let (rig, client) = vhds(|azure| azure.scenario.virtual_machines = vec![machines(10)]).await;
    let names: Vec<String> = (0..160).map(|n| format!("pvc-{n:03}")).collect();
    let began = Instant::now();
    let created =
        names.iter().map(|name| create_with(&client, name, &[("kind", "Shared"), ("skuName", "Standard_LRS")]));
    let volumes: Vec<Volume> = join_all(created).await.into_iter().map(Result::unwrap).collect();
    assert!(began.elapsed() <= seconds(21), "creation: {:?}", began.elapsed());
    let accounts: BTreeSet<&str> = volumes.iter().filter_map(|volume| volume.volume_id.split('.').next()).collect();
    assert_eq!(accounts.len(), 6, "{accounts:?}");

    let began = Instant::now();
    let placed = || volumes.iter().enumerate().map(|(n, volume)| (volume, format!("old-{}", n % 10)));
    let published = placed().map(|(volume, node)| {
        let client = client.clone();
        async move { publish(&client, volume, &node).await }
    });
    join_all(published).await.into_iter().for_each(|lun| assert!(lun.unwrap() < 16));
    assert!(began.elapsed() <= seconds(11), "attach: {:?}", began.elapsed());
    for node in 0..10 {
        let machine = format!("old-{node}");
        assert_eq!((attached(&rig, &machine).len(), rig.vm_writes(&machine).len()), (16, 1), "{machine}");
    }

    let began = Instant::now();
    let unpublished = placed().map(|(volume, node)| {
        let client = client.clone();
        async move { unpublish(&client, &volume.volume_id, &node).await }
    });
    join_all(unpublished).await.into_iter().for_each(Result::unwrap);
    assert!(began.elapsed() <= seconds(17), "detach: {:?}", began.elapsed());
    assert!((0..10).all(|node| rig.vm_writes(&format!("old-{node}")).len() == 2));

    let began = Instant::now();
    join_all(volumes.iter().map(|volume| delete(&client, &volume.volume_id)))
        .await
        .into_iter()
        .for_each(Result::unwrap);
    assert!(began.elapsed() <= seconds(2), "deletion: {:?}", began.elapsed());
    assert_eq!((blobs(&rig), rig.control.counters().throttled), (vec![], 0));
    rig.stop().await;
}

/// What QEMU, whose footers are those of Virtual PC, reads in a blob: its size in bytes.
fn by_qemu(rig: &Rig, uri: &str, length: u64) -> Option<u64> {
    let folder = lazuli_rig::Folder::make("footer").unwrap();
    let path = folder.path().join("disk.vhd");
    let file = File::create(&path).unwrap();
    // The disk itself is blank: a hole.
    file.write_all_at(&rig.control.blob_bytes(uri, length - 512, 512).unwrap(), length - 512).unwrap();
    let mut command = Command::new("qemu-img");
    // QEMU takes the size of the geometry unless it is told that the footer's counts.
    let image = format!("driver=vpc,force_size_calc=current_size,file.filename={}", path.display());
    let answer = match command.args(["info", "--output=json", "--image-opts", &image]).output() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            eprintln!("SKIPPED: there is no qemu-img; install qemu-utils");
            return None;
        }
        answer => answer.unwrap(),
    };
    assert!(answer.status.success(), "{}", String::from_utf8_lossy(&answer.stderr));
    let shown: Value = serde_json::from_slice(&answer.stdout).unwrap();
    Some(shown["virtual-size"].as_u64().unwrap())
}

#[tokio::test(start_paused = true)]
async fn disk_qemu_reads_the_footers_of_made_and_of_grown_blobs() {
    let (rig, client) = vhds(|_| {}).await;
    let volume = create_with(&client, "pvc-1", &[("kind", "Dedicated")]).await.unwrap();
    // QEMU reads none beyond 2,040 GiB.
    for gib in [1, 3, 2040] {
        assert_eq!(expand(&client, &volume.volume_id, gib * GIB, 0).await.unwrap(), gib * GIB);
        let bytes = u64::try_from(gib * GIB).unwrap();
        let shown = by_qemu(&rig, &volume.volume_id, bytes + 512);
        assert!(shown.is_none_or(|shown| shown == bytes), "{shown:?} instead of {bytes}");
    }
    delete(&client, &volume.volume_id).await.unwrap();
    rig.stop().await;
}
