//! What the node tells kubelet of itself.

use super::*;

#[tokio::test]
async fn the_node_tells_its_zone_and_its_limit_without_foreign_disks() {
    let mut machine = Machine::new().await;
    for (lun, name) in [(0, "by-hand"), (1, "pvc-0e8f3a0e-5bb8-4f0c-9a53-2f9f1b8a5d11")] {
        machine.tell(lun, name);
    }
    let info = machine.client.node_get_info(NodeGetInfoRequest {}).await.unwrap().into_inner();
    assert_eq!(info.node_id, "node-1");
    // Standard_D2s_v3 takes four; one slot holds a disk that is not Kubernetes'.
    assert_eq!(info.max_volumes_per_node, 3);
    let segments = info.accessible_topology.clone().unwrap().segments;
    assert_eq!(segments["topology.disk.csi.azure.com/zone"], "westeurope-2");
    assert_eq!(segments["topology.kubernetes.io/zone"], "westeurope-2");

    // The same from memory, after a restart, while the metadata is silent.
    machine.metadata.lock().unwrap().down = true;
    machine.restart().await;
    assert_eq!(machine.client.node_get_info(NodeGetInfoRequest {}).await.unwrap().into_inner(), info);
}

/// The scheduler takes each volume that is attached from the limit: it must not be missing there already.
#[tokio::test]
async fn a_disk_that_kubernetes_has_attached_is_not_foreign_before_it_is_staged() {
    let mut machine = Machine::new().await;
    for (lun, name) in [(0, "by-hand"), (1, "Static-PV")] {
        machine.tell(lun, name);
    }
    let limit = async |machine: &mut Machine| {
        machine.client.node_get_info(NodeGetInfoRequest {}).await.unwrap().into_inner().max_volumes_per_node
    };
    // Standard_D2s_v3 takes four.
    assert_eq!(limit(&mut machine).await, 2);
    for (attached, expected) in [
        (Some(vec![volume("static-pv").to_uppercase().replacen("/SUBSCRIPTIONS", "/subscriptions", 1)]), 3),
        (Some(vec![volume("another"), "no handle".to_owned()]), 2),
        (None, 2),
    ] {
        let read = AttachedReader::new(move || Box::pin(std::future::ready(attached.clone())));
        machine.restart_with(|config| config.attached = Some(read)).await;
        assert_eq!(limit(&mut machine).await, expected);
    }
    // An API server that does not answer holds up nothing.
    let never = AttachedReader::new(|| Box::pin(std::future::pending()));
    machine
        .restart_with(|config| {
            config.attached = Some(never);
            config.timeouts.instance = Duration::from_millis(50);
        })
        .await;
    assert_eq!(limit(&mut machine).await, 2);
}

#[tokio::test]
async fn a_node_that_never_knew_its_zone_says_so_instead_of_guessing() {
    let mut machine = Machine::new().await;
    machine.metadata.lock().unwrap().down = true;
    let refusal = machine.client.node_get_info(NodeGetInfoRequest {}).await.unwrap_err();
    assert_eq!(refusal.code(), Grpc::Unavailable);
}

#[tokio::test]
async fn a_node_whose_metadata_never_answered_is_what_its_labels_say() {
    let mut machine = Machine::new().await;
    machine.metadata.lock().unwrap().down = true;
    let labels = |zone: Option<&str>| MachineLabels {
        region: "westeurope".into(),
        zone: zone.map(str::to_owned),
        vm_size: "Standard_D2s_v3".into(),
    };
    for (said, zone) in [(labels(Some("westeurope-3")), "westeurope-3"), (labels(None), "")] {
        let read = LabelsReader::new(move || Box::pin(std::future::ready(Some(said.clone()))));
        machine.restart_with(|config| config.labels = Some(read)).await;
        let info = machine.client.node_get_info(NodeGetInfoRequest {}).await.unwrap().into_inner();
        assert_eq!(info.accessible_topology.unwrap().segments["topology.disk.csi.azure.com/zone"], zone);
        assert_eq!(info.max_volumes_per_node, 4);
    }
    machine.restart_with(|config| config.labels = Some(LabelsReader::new(|| Box::pin(std::future::ready(None))))).await;
    assert_eq!(machine.client.node_get_info(NodeGetInfoRequest {}).await.unwrap_err().code(), Grpc::Unavailable);
}

#[tokio::test]
async fn the_capabilities_are_those_of_the_go_driver() {
    let mut machine = Machine::new().await;
    let answer = machine.client.node_get_capabilities(NodeGetCapabilitiesRequest {}).await.unwrap();
    let kinds: Vec<_> = answer
        .into_inner()
        .capabilities
        .into_iter()
        .map(|capability| match capability.r#type.unwrap() {
            Type::Rpc(rpc) => rpc.r#type(),
        })
        .collect();
    use rpc::Type::{ExpandVolume, GetVolumeStats, SingleNodeMultiWriter, StageUnstageVolume};
    assert_eq!(kinds, [StageUnstageVolume, ExpandVolume, GetVolumeStats, SingleNodeMultiWriter]);
}
