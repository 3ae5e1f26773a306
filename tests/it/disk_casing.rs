//! Azure answers ids in any letter case: that costs no write, and Kubernetes reads its own spelling.

use super::disk_rig::{
    Method, Rig, create_all, delete, disk_id, list, named, numbered, pass, publish, publish_all, publish_as, seconds,
    typical, unpublish, unpublish_all,
};

fn nasty() -> lazuli_emulator::Options {
    lazuli_emulator::Options { nasty_casing: true, future_fields: true, ..typical() }
}

#[tokio::test(start_paused = true)]
async fn disk_a_whole_life_in_nasty_casing_costs_no_extra_write_and_drops_nothing() {
    for method in [Method::Action, Method::WholeList] {
        whole_life(method).await;
    }
}

#[tokio::test(start_paused = true)]
async fn disk_azure_stack_a_whole_life_in_nasty_casing_costs_no_extra_write_and_drops_nothing() {
    whole_life(Method::AzureStack).await;
}

async fn whole_life(method: Method) {
    let mut rig = Rig::with(nasty(), |options| method.set(options)).await;
    let client = rig.controller().await;
    let sku: &[(&str, &str)] = &[("skuName", "Standard_LRS")];
    let names = numbered(4);
    let made = names.iter().map(|name| super::disk_rig::create_with(&client, name, sku));
    let volumes: Vec<_> = futures::future::join_all(made).await.into_iter().map(Result::unwrap).collect();
    for (at, lun) in publish_all(&client, &volumes, "node-0").await.into_iter().enumerate() {
        assert_eq!(usize::from(lun.unwrap()), at, "{method:?}");
    }
    assert_eq!(rig.vm_writes("node-0").len(), 1, "{method:?}");
    // A second PUT of the same volume finds it made.
    super::disk_rig::create_with(&client, "pvc-00", sku).await.unwrap();
    for answer in unpublish_all(&client, &volumes[..3], "node-0").await {
        answer.unwrap();
    }
    assert_eq!(rig.vm_writes("node-0").len(), 2, "{method:?}");
    assert_eq!(rig.luns("node-0").into_iter().collect::<Vec<_>>(), [(3, "pvc-03".to_owned())]);
    unpublish(&client, &volumes[3].volume_id, "node-0").await.unwrap();
    for volume in &volumes {
        delete(&client, &volume.volume_id).await.unwrap();
    }
    rig.check_empty();
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn disk_publishing_what_is_attached_costs_no_write_and_one_read_in_any_spelling() {
    let mut rig = Rig::on(nasty()).await;
    let client = rig.controller().await;
    let volumes = create_all(&client, &numbered(16)).await;
    for (at, lun) in publish_all(&client, &volumes, "node-0").await.into_iter().enumerate() {
        assert_eq!(usize::from(lun.unwrap()), at);
    }
    // Another replica, which remembers nothing: what a disk was made from takes it one read more, once.
    let other = rig.lab.controller("other").await.unwrap();
    for (spelt, reads) in [
        (volumes[5].volume_id.clone(), 2),
        (volumes[5].volume_id.to_uppercase().replace("/SUBSCRIPTIONS/", "/subscriptions/"), 1),
        (disk_id("PVC-05"), 1),
    ] {
        rig.control.reset_log();
        assert_eq!(publish_as(&other, &spelt, &volumes[5].volume_context, "node-0").await.unwrap(), 5, "{spelt}");
        let counters = rig.control.counters();
        assert_eq!((counters.writes, counters.reads, counters.polls), (0, reads, 0), "{spelt}");
    }
    // All of them at once, as after a forced resync: one read of the machine, and one of each disk that was not read yet,
    // because no list says what a disk was made from. Later the machine's alone.
    for reads in [16, 1] {
        rig.control.reset_log();
        for (at, lun) in publish_all(&other, &volumes, "node-0").await.into_iter().enumerate() {
            assert_eq!(usize::from(lun.unwrap()), at);
        }
        let counters = rig.control.counters();
        assert_eq!((counters.writes, counters.polls), (0, 0));
        assert!(counters.reads <= reads, "{} reads", counters.reads);
    }
    // This process's own write of the machine is no reason to read a disk again. Another process's is, once for each disk.
    for (replica, detached, reads) in [(&other, 0, 1), (&client, 1, 2), (&other, 2, 1)] {
        unpublish(replica, &volumes[detached].volume_id, "node-0").await.unwrap();
        rig.control.reset_log();
        assert_eq!(publish(&other, &volumes[5], "node-0").await.unwrap(), 5);
        assert_eq!(rig.control.counters().reads, reads);
    }
    rig.check();
    rig.stop().await;
}

/// external-attacher compares handles and node ids byte by byte: another spelling is a forced resync.
#[tokio::test(start_paused = true)]
async fn disk_listed_volumes_and_nodes_are_spelt_as_kubernetes_spells_them() {
    let mut rig = Rig::on(nasty()).await;
    let client = rig.controller().await;
    let volumes = create_all(&client, &numbered(3)).await;
    let handles = [
        disk_id("pvc-00"),
        disk_id("pvc-01").replace("resourceGroups", "resourcegroups"),
        disk_id("PVC-02").replace("Microsoft.Compute", "microsoft.compute"),
    ];
    for (handle, volume) in handles.iter().zip(&volumes) {
        publish_as(&client, handle, &volume.volume_context, "node-1").await.unwrap();
    }
    let listed = list(&client).await.unwrap();
    let expected = handles.iter().map(|handle| (handle.clone(), vec!["node-1".to_owned()])).collect();
    assert_eq!(listed, expected);
    // A replica that was told nothing yet learns the spelling with the first request.
    let other = rig.lab.controller("other").await.unwrap();
    publish_as(&other, &handles[2], &volumes[2].volume_context, "node-1").await.unwrap();
    let request = csi_proto::csi::ListVolumesRequest::default();
    let entries = other.clone().list_volumes(request).await.unwrap().into_inner().entries;
    let told: Vec<(String, Vec<String>)> = entries.into_iter().map(named).collect();
    assert!(told.contains(&(handles[2].clone(), vec!["node-1".to_owned()])), "{told:?}");
    pass(seconds(1)).await;
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn disk_a_node_is_found_by_the_name_its_machine_gives_itself() {
    let mut rig = Rig::on(typical()).await;
    let client = rig.controller().await;
    let volumes = create_all(&client, &numbered(1)).await;
    rig.control
        .tamper(&super::disk_rig::vm_id("node-1"), |doc| {
            doc["properties"]["osProfile"]["computerName"] = "aks-7".into()
        })
        .unwrap();
    assert_eq!(publish(&client, &volumes[0], "aks-7").await.unwrap(), 0);
    assert_eq!(rig.luns("node-1").len(), 1);
    let listed = list(&client).await.unwrap();
    assert_eq!(listed.values().next().unwrap(), &["aks-7".to_owned()]);
    unpublish(&client, &volumes[0].volume_id, "aks-7").await.unwrap();
    rig.check();
    rig.stop().await;
}
