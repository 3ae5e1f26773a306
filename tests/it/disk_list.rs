//! ListVolumes: whole, or an error; right while volumes come and go; with the nodes that hold them.

use std::collections::BTreeMap;

use lazuli_emulator::scenario::ResourceGroup;
use serde_json::json;
use tonic::Code;

use super::disk_rig::{
    Rig, create, create_all, create_with, delete, disk_id, list, list_page, name_of, named, numbered, publish,
    publish_as, refused, typical, vm_id,
};

#[tokio::test(start_paused = true)]
async fn disk_a_list_in_pages_names_every_volume_once_while_others_are_deleted_and_made() {
    let (rig, client) = Rig::typical().await;
    let volumes = create_all(&client, &numbered(10)).await;
    let mut seen = Vec::new();
    let mut token = String::new();
    for page in 0.. {
        let (entries, next) = list_page(&client, 3, &token).await.unwrap();
        assert!(entries.len() <= 3);
        seen.extend(entries.into_iter().map(|entry| name_of(&named(entry).0).to_owned()));
        match page {
            // The last of the page, which the token names, and one of the next.
            0 => {
                delete(&client, &volumes[2].volume_id).await.unwrap();
                delete(&client, &volumes[4].volume_id).await.unwrap();
            }
            1 => drop(create(&client, "pvc-03-a").await.unwrap()),
            _ => {}
        }
        if next.is_empty() {
            break;
        }
        token = next;
    }
    let expected = ["pvc-00", "pvc-01", "pvc-02", "pvc-03", "pvc-05", "pvc-06", "pvc-07", "pvc-08", "pvc-09"];
    assert_eq!(seen, expected);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn disk_a_list_tells_the_nodes_of_each_volume_and_leaves_out_what_is_nobodys_volume() {
    let (rig, client) = Rig::typical().await;
    let other = rig.other_tool();
    other.make_disk("theirs").await;
    other.make_disk("static").await;
    let volumes = create_all(&client, &numbered(3)).await;
    publish(&client, &volumes[0], "node-0").await.unwrap();
    publish(&client, &volumes[2], "node-1").await.unwrap();
    let fixed = disk_id("static");
    publish_as(&client, &fixed, &Default::default(), "node-1").await.unwrap();
    let node = |name: &str| vec![name.to_owned()];
    let expected: BTreeMap<String, Vec<String>> = [
        (volumes[0].volume_id.clone(), node("node-0")),
        (volumes[1].volume_id.clone(), vec![]),
        (volumes[2].volume_id.clone(), node("node-1")),
        (fixed, node("node-1")),
    ]
    .into();
    assert_eq!(list(&client).await.unwrap(), expected);
    rig.stop().await;
}

/// external-attacher takes what a list leaves out as detached.
#[tokio::test(start_paused = true)]
async fn disk_a_list_of_which_a_page_fails_is_an_error() {
    for (status, code) in [(500, Code::Unavailable), (403, Code::PermissionDenied)] {
        let azure = lazuli_emulator::Options { page_size: 2, ..typical() };
        let mut rig = Rig::on(azure).await;
        let client = rig.controller().await;
        create_all(&client, &numbered(7)).await;
        assert_eq!(list(&client).await.unwrap().len(), 7);
        rig.incident(json!({
            "match": {"method": "GET", "path": "*/providers/Microsoft.Compute/disks", "nth": 2},
            "then": {"status": status}, "times": 0,
        }));
        refused(list(&client).await, code);
        rig.control.clear_incidents();
        assert_eq!(list(&client).await.unwrap().len(), 7);
        rig.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn disk_a_token_that_is_none_is_aborted_and_a_negative_count_is_refused() {
    let (rig, client) = Rig::typical().await;
    refused(list_page(&client, 0, "no token").await, Code::Aborted);
    refused(list_page(&client, -1, "").await, Code::InvalidArgument);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn disk_volumes_of_another_subscription_are_listed_and_one_that_is_closed_to_us_hides_no_others() {
    const OTHER: &str = "00000000-0000-0000-0000-0000000000ff";
    let mut azure = typical();
    azure.scenario.subscriptions.push(OTHER.into());
    let far = ResourceGroup { name: "far".into(), location: None, subscription: Some(OTHER.into()) };
    azure.scenario.resource_groups.push(far);
    let mut rig = Rig::on(azure).await;
    let client = rig.controller().await;
    let near = create(&client, "pvc-near").await.unwrap();
    let place = [("subscriptionID", OTHER), ("resourceGroup", "far")];
    let there = create_with(&client, "pvc-far", &place).await.unwrap();
    let handles: Vec<String> = list(&client).await.unwrap().into_keys().collect();
    assert_eq!(handles, [near.volume_id.clone(), there.volume_id.clone()]);

    let refuse = |status: u16, code: &str| {
        json!({"match": {"method": "GET", "path": format!("/subscriptions/{OTHER}/*")},
            "then": {"status": status, "code": code}})
    };
    rig.incident(refuse(403, "AuthorizationFailed"));
    assert_eq!(list(&client).await.unwrap().into_keys().collect::<Vec<_>>(), [near.volume_id]);
    // What may be there tomorrow makes the list incomplete.
    rig.incident(refuse(400, "Strange"));
    list(&client).await.unwrap_err();
    rig.stop().await;
}

/// The system disk of a machine that was made from an image names the image by an id without a resource group.
#[tokio::test(start_paused = true)]
async fn disk_volumes_are_listed_in_a_subscription_with_a_machine_made_from_an_image() {
    let (rig, client) = Rig::typical().await;
    let volume = create(&client, "pvc-1").await.unwrap();
    let network = vm_id("").replace("Microsoft.Compute/virtualMachines/", "Microsoft.Network");
    let card = format!("{network}/networkInterfaces/card");
    let subnet = format!("{network}/virtualNetworks/lazuli-vnet/subnets/nodes");
    let place = json!({"subnet": {"id": subnet}});
    let body =
        json!({"location": "westeurope", "properties": {"ipConfigurations": [{"name": "one", "properties": place}]}});
    let other = rig.other_tool();
    let (status, answer) = other.call("PUT", &card, Some(body)).await;
    assert_eq!(status, 201, "{answer}");
    let body = json!({"location": "westeurope", "properties": {
        "hardwareProfile": {"vmSize": "Standard_D2s_v3"},
        "storageProfile": {
            "imageReference": {"publisher": "p", "offer": "o", "sku": "s", "version": "latest"},
            "osDisk": {"createOption": "FromImage", "name": "system"},
        },
        "osProfile": {"computerName": "new", "adminUsername": "u", "adminPassword": "secret"},
        "networkProfile": {"networkInterfaces": [{"id": card}]},
    }});
    let (status, answer) = other.call("PUT", &vm_id("new"), Some(body)).await;
    assert_eq!(status, 201, "{answer}");
    rig.at_rest().await;
    let image = &rig.disk("system").unwrap()["properties"]["creationData"]["imageReference"]["id"];
    assert!(!image.as_str().unwrap().to_lowercase().contains("resourcegroups"), "{image}");
    assert_eq!(list(&client).await.unwrap().into_keys().collect::<Vec<_>>(), [volume.volume_id]);

    // Such a disk can be a volume as well, once its machine has let go of it.
    let made = json!({"createOption": "FromImage", "imageReference": {"id": image}});
    let fixed = disk_id("fixed");
    other.make_disk("fixed").await;
    rig.control.tamper(&fixed, |disk| disk["properties"]["creationData"] = made).unwrap();
    publish_as(&client, &fixed, &Default::default(), "node-0").await.unwrap();
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn disk_an_unreadable_disk_fails_the_list_only_when_it_may_be_a_volume() {
    let (rig, client) = Rig::typical().await;
    let volume = create(&client, "pvc-1").await.unwrap();
    let other = rig.other_tool();
    for name in ["theirs", "static"] {
        other.make_disk(name).await;
    }
    let spoil = |id: &str| rig.control.tamper(id, |disk| disk["managedBy"] = json!("who knows")).unwrap();
    spoil(&disk_id("theirs"));
    assert_eq!(list(&client).await.unwrap().into_keys().collect::<Vec<_>>(), std::slice::from_ref(&volume.volume_id));
    // Kubernetes has named this one.
    publish_as(&client, &disk_id("static"), &Default::default(), "node-0").await.unwrap();
    assert_eq!(list(&client).await.unwrap().len(), 2);
    spoil(&disk_id("static"));
    refused(list(&client).await, Code::Unavailable);
    rig.control.tamper(&disk_id("static"), |disk| disk["managedBy"] = json!(vm_id("node-0"))).unwrap();
    assert_eq!(list(&client).await.unwrap().len(), 2);
    // A driver made this one.
    spoil(&volume.volume_id);
    refused(list(&client).await, Code::Unavailable);
    rig.stop().await;
}
