//! ListVolumes: whole, or an error; right while volumes come and go; with the nodes that hold them.

use std::collections::BTreeMap;

use lazuli_emulator::scenario::ResourceGroup;
use serde_json::json;
use tonic::Code;

use super::disk_rig::{
    Rig, create, create_all, create_with, delete, list, list_page, name_of, named, numbered, publish, publish_as,
    refused, typical,
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
    let fixed = super::disk_rig::disk_id("static");
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
