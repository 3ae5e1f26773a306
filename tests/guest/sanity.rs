//! The CSI community's own suite (csi-sanity) on the file driver. The suite and the node plugin run in the guest; the
//! controller, which hands out the keys, the emulator and the API server run outside it. The suite's secrets are empty, and
//! nothing is left out: a spec may skip itself only because the driver does not claim its capability.

use std::{path::PathBuf, process::Command, sync::Arc};

use csi_proto::csi::{CapacityRange, CreateVolumeRequest};

use super::{
    driver::{NODE, SOCKET, capability},
    kubernetes::Cluster,
    machine::{Equipment, able},
    provisioner,
    shares::Cloud,
};

const GIB: i64 = 1 << 30;
/// Reasons for which a spec may skip itself, by how the suite's own words end. A share can be mounted everywhere and any
/// number of times: the node names no limit and no topology.
const ALLOWED: [&str; 3] = ["not supported", "No MaxVolumesPerNode", "node does not report accessible topology"];

/// Where csi-sanity is.
pub(super) fn suite() -> PathBuf {
    let output = Command::new("scripts/guest").arg("sanity").current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{printed}{}", String::from_utf8_lossy(&output.stderr));
    PathBuf::from(printed.lines().last().unwrap()).join("csi-sanity")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_file_driver_passes_the_community_s_suite_with_a_real_kernel() {
    if !able() {
        return;
    }
    let programs = [("/bin/csi-sanity", &*suite())];
    let cloud = Cloud::start_with(&[], Equipment { programs: &programs, ..Equipment::default() }).await;
    let guest = &cloud.guest;
    let cluster = Arc::new(guest.meanwhile(Cluster::start(&cloud.emulator)).await);

    // The account that the suite's claims will share: the first claim makes it, and with it its name.
    let first = CreateVolumeRequest {
        name: "first".to_owned(),
        capacity_range: Some(CapacityRange { required_bytes: GIB, limit_bytes: 0 }),
        volume_capabilities: vec![capability(&[], "")],
        ..Default::default()
    };
    let made = guest.meanwhile(cluster.files().create_volume(first)).await.unwrap();
    let made = made.into_inner().volume.unwrap();
    let account = made.volume_id.split('#').nth(1).unwrap();
    cloud.reach(guest, account).await;

    let arguments = format!("{NODE} {}", cluster.equip(guest).await);
    drop(guest.start_node("lazuli", &arguments, SOCKET).await);
    let address = provisioner::serve(Arc::clone(&cluster)).await;
    guest.put("/csi/parameters.yaml", 0o600, b"skuName: Standard_LRS\n").await;
    let line = format!(
        "mkdir /mnt/sanity && exec csi-sanity -csi.endpoint unix://{SOCKET} -csi.controllerendpoint 10.0.2.2:{} \
         -csi.mountdir /mnt/sanity/mount -csi.stagingdir /mnt/sanity/staging \
         -csi.testvolumesize {GIB} -csi.testvolumeexpandsize {} -csi.testvolumeparameters /csi/parameters.yaml \
         -csi.testnodevolumeattachlimit -ginkgo.no-color -ginkgo.junit-report /tmp/report.xml",
        address.port(),
        2 * GIB
    );
    let output = guest.exec(&["/bin/sh", "-c", &line]).await;
    let log = guest.node_log().await;
    assert!(output.code == 0, "{}\n{}\n--- the log of the node plugin\n{log}", output.stdout, output.stderr);
    let summary = output.stdout.lines().find(|line| line.starts_with("SUCCESS! --"));
    println!("{}", summary.expect("the suite says how many specs have passed"));

    let report = String::from_utf8(guest.get("/tmp/report.xml").await).unwrap();
    let skipped = skipped(&report);
    assert!(!skipped.is_empty(), "no driver claims every capability: {report}");
    let unexpected: Vec<&(String, String)> =
        skipped.iter().filter(|(_, reason)| !ALLOWED.iter().any(|allowed| reason.ends_with(allowed))).collect();
    assert_eq!(unexpected, Vec::<&(String, String)>::new());
    // What this test is about has not skipped itself.
    let ran = |spec: &str| report.contains(spec) && !skipped.iter().any(|(name, _)| name.contains(spec));
    for spec in ["Node Service should work", "Node Service should be idempotent", "single node single writer"] {
        assert!(ran(spec), "{spec}: {skipped:#?}");
    }
    // The suite has undone what it did.
    assert_eq!(guest.sh("grep cifs /proc/mounts; true").await, "");
    assert_eq!(cluster.server.list("persistentvolumes").len(), 0);
    cloud.stop().await;
}

/// The specs that skipped themselves, and why, by the suite's report: an element for each spec, with its name first.
pub(super) fn skipped(report: &str) -> Vec<(String, String)> {
    let between = |text: &str, before: &str, after: &str| -> Option<String> {
        let (_, rest) = text.split_once(before)?;
        Some(rest.split_once(after)?.0.to_owned())
    };
    let specs = report.split("<testcase ").skip(1);
    specs
        .filter_map(|spec| {
            let reason = between(spec, "<skipped message=\"skipped - ", "\"")?;
            Some((between(spec, "name=\"", "\"")?, reason))
        })
        .collect()
}
