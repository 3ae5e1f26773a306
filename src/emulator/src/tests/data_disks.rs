use super::*;

#[tokio::test(start_paused = true)]
async fn an_attach_changes_the_model_at_once_and_the_disk_at_the_end() {
    let rig = Rig::new(slow()).await;
    rig.disk("d").await;
    let got = rig.attach_detach("plain-0", json!([{"diskId": disk_id("d")}]), json!([])).await.expect(202);
    assert!(got.header("azure-asyncoperation").contains("/locations/westeurope/operations/"));
    assert!(got.header("location").ends_with("&monitor=true"));
    assert_eq!(got.header("azure-asyncnotification"), "Enabled");
    assert_eq!(got.header("retry-after"), "10");
    let vm = rig.vm("plain-0").await;
    assert_eq!(vm["properties"]["provisioningState"], "Updating");
    assert_eq!(vm["properties"]["storageProfile"]["dataDisks"][0]["lun"], 0);
    let disk = rig.disk_doc("d").await;
    assert_eq!(disk["properties"]["diskState"], "Unattached");
    assert!(disk.get("managedBy").is_none());
    assert!(rig.luns("plain-0").is_empty());
    rig.get(path_of(got.header("location"))).await.expect(202);
    assert_eq!(rig.finish(&got).await["status"], "Succeeded");
    let profile = rig.get(path_of(got.header("location"))).await.expect(200).body;
    assert_eq!(
        profile["dataDisks"],
        json!([{
            "lun": 0,
            "name": "d",
            "createOption": "Attach",
            "caching": "ReadOnly",
            "managedDisk": {"storageAccountType": "Premium_LRS", "id": disk_id("d")},
            "deleteOption": "Detach",
            "diskSizeGB": 10,
            "toBeDetached": false,
        }])
    );
    let disk = rig.disk_doc("d").await;
    assert_eq!(disk["managedBy"], vm_id("plain-0"));
    assert_eq!(disk["properties"]["diskState"], "Attached");
    assert_eq!(rig.luns("plain-0"), [(0, "d".to_owned())]);
    assert_eq!(rig.vm("plain-0").await["properties"]["provisioningState"], "Succeeded");
}

#[tokio::test(start_paused = true)]
async fn an_operation_takes_effect_when_it_is_due_although_nobody_asks() {
    let rig = Rig::new(slow()).await;
    rig.disk("d").await;
    rig.attach_detach("plain-0", json!([{"diskId": disk_id("d"), "lun": 7}]), json!([])).await.expect(202);
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(rig.luns("plain-0"), [(7, "d".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn a_detach_keeps_the_element_marked_until_its_end() {
    let rig = Rig::new(slow()).await;
    rig.disk("a").await;
    rig.disk("b").await;
    rig.attached("plain-0", &[("a", 0), ("b", 1)]).await;
    let got = rig.attach_detach("plain-0", json!([]), json!([{"diskId": disk_id("a")}])).await.expect(202);
    let vm = rig.vm("plain-0").await;
    assert_eq!(vm["properties"]["storageProfile"]["dataDisks"][0]["toBeDetached"], true);
    assert_eq!(rig.disk_doc("a").await["managedBy"], vm_id("plain-0"));
    rig.finish(&got).await;
    assert_eq!(rig.luns("plain-0"), [(1, "b".to_owned())]);
    let disk = rig.disk_doc("a").await;
    assert!(disk.get("managedBy").is_none());
    assert_eq!(disk["properties"]["diskState"], "Unattached");
    assert_eq!(rig.vm("plain-0").await["properties"]["storageProfile"]["dataDisks"].as_array().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_partial_put_with_location_and_data_disks_attaches_and_detaches() {
    let rig = Rig::new(slow()).await;
    rig.disk("a").await;
    rig.disk("b").await;
    let before = rig.vm("plain-0").await;
    let got = rig.put_data_disks("plain-0", json!([element("a", 0), element("b", 5)])).await.expect(200);
    assert_eq!(got.body["properties"]["provisioningState"], "Updating");
    assert!(got.header("location").is_empty());
    assert_eq!(got.header("etag"), "\"3\"");
    assert_eq!(rig.finish(&got).await["status"], "Succeeded");
    assert_eq!(rig.luns("plain-0"), [(0, "a".to_owned()), (5, "b".to_owned())]);
    let after = rig.vm("plain-0").await;
    assert_eq!(after["properties"]["osProfile"], before["properties"]["osProfile"]);
    // Detach in the way the Go drivers do: the whole array, one element marked.
    let mut leaving = element("a", 0);
    leaving["toBeDetached"] = json!(true);
    let got = rig.put_data_disks("plain-0", json!([leaving, element("b", 5)])).await.expect(200);
    rig.finish(&got).await;
    assert_eq!(rig.luns("plain-0"), [(5, "b".to_owned())]);
    // An array left out changes nothing.
    let got = rig.call("PUT", &vm_uri("plain-0"), Some(json!({"location": "westeurope"}))).await.expect(200);
    assert!(got.header("azure-asyncoperation").is_empty());
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(rig.luns("plain-0"), [(5, "b".to_owned())]);
    // An empty one detaches all.
    let got = rig.put_data_disks("plain-0", json!([])).await.expect(200);
    rig.finish(&got).await;
    assert!(rig.luns("plain-0").is_empty());
}

#[tokio::test(start_paused = true)]
async fn luns_are_checked_and_assigned_from_below() {
    let rig = Rig::new(options()).await;
    for name in ["a", "b", "c", "d"] {
        rig.disk(name).await;
    }
    rig.attached("plain-0", &[("a", 1)]).await;
    let at = |name: &str, lun: i64| json!({"diskId": disk_id(name), "lun": lun});
    let got = rig.attach_detach("plain-0", json!([at("b", 1)]), json!([])).await.refused(400, "InvalidParameter");
    assert_eq!(got.message(), "A disk at LUN 1 already exists.");
    rig.attach_detach("plain-0", json!([at("b", 3), at("c", 3)]), json!([])).await.refused(400, "InvalidParameter");
    let got = rig.attach_detach("plain-0", json!([at("b", 64)]), json!([])).await.refused(400, "InvalidParameter");
    assert_eq!(
        got.message(),
        "The value '64' of parameter 'dataDisk.lun' is out of range. Value '64' must be between '0' and '63' inclusive."
    );
    assert_eq!(got.body["error"]["target"], "dataDisk.lun");
    rig.attach_detach("plain-0", json!([at("b", -1)]), json!([])).await.refused(400, "InvalidParameter");
    let automatic = |name: &str| json!({"diskId": disk_id(name)});
    let got =
        rig.attach_detach("plain-0", json!([automatic("b"), automatic("c"), at("d", 0)]), json!([])).await.expect(202);
    rig.finish(&got).await;
    assert_eq!(
        rig.luns("plain-0"),
        [(0, "d".to_owned()), (1, "a".to_owned()), (2, "b".to_owned()), (3, "c".to_owned())]
    );
    let got = rig.put_data_disks("plain-1", json!([element("a", 3), element("b", 3)])).await;
    got.refused(409, "ConflictingUserInput");
    rig.disk("e").await;
    rig.disk("f").await;
    rig.put_data_disks("plain-1", json!([element("e", 3), element("f", 3)])).await.refused(400, "InvalidParameter");
    rig.put_data_disks("plain-1", json!([element("e", 3), element("e", 4)])).await.refused(400, "InvalidParameter");
}

#[tokio::test(start_paused = true)]
async fn a_lun_does_not_change_its_disk_in_one_write() {
    let rig = Rig::new(options()).await;
    rig.disk("a").await;
    rig.disk("b").await;
    rig.attached("plain-0", &[("a", 0)]).await;
    rig.put_data_disks("plain-0", json!([element("b", 0)])).await.refused(409, "PropertyChangeNotAllowed");
    rig.put_data_disks("plain-0", json!([element("a", 1)])).await.refused(409, "PropertyChangeNotAllowed");
    assert_eq!(rig.luns("plain-0"), [(0, "a".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn a_disk_belongs_to_one_machine_and_is_not_deleted_meanwhile() {
    let rig = Rig::new(options()).await;
    let id = rig.disk("d").await;
    rig.attached("plain-0", &[("d", 0)]).await;
    let got =
        rig.attach_detach("plain-1", json!([{"diskId": id}]), json!([])).await.refused(409, "ConflictingUserInput");
    assert_eq!(
        got.message(),
        format!(
            "Cannot attach the disk d to VM {} because it is already attached to VM {}. A disk can be attached to only one VM at a time.",
            vm_id("plain-1"),
            vm_id("plain-0")
        )
    );
    assert_eq!(got.body["error"]["target"], id);
    let got = rig.call("DELETE", &disk_uri("d"), None).await.refused(409, "OperationNotAllowed");
    assert_eq!(got.message(), format!("Disk d is attached to VM {}.", vm_id("plain-0")));
}

#[tokio::test(start_paused = true)]
async fn two_machines_racing_for_a_disk_end_with_one_late_failure() {
    let rig = Rig::new(slow()).await;
    rig.disk("d").await;
    let one = rig.attach_detach("plain-0", json!([{"diskId": disk_id("d")}]), json!([])).await.expect(202);
    let two = rig.attach_detach("plain-1", json!([{"diskId": disk_id("d")}]), json!([])).await.expect(202);
    let ends = [rig.finish(&one).await, rig.finish(&two).await];
    let failed: Vec<&Value> = ends.iter().filter(|end| end["status"] == "Failed").collect();
    assert_eq!(failed.len(), 1, "{ends:?}");
    assert_eq!(failed[0]["error"]["code"], "ConflictingUserInput");
    assert_eq!(rig.luns("plain-0").len() + rig.luns("plain-1").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_disk_deleted_while_its_attach_runs_fails_the_attach_late() {
    let rig = Rig::new(Options { latency: Profile::typical(), ..options() }).await;
    rig.disk("d").await;
    let attach = rig.attach_detach("plain-0", json!([{"diskId": disk_id("d")}]), json!([])).await.expect(202);
    rig.call("DELETE", &disk_uri("d"), None).await.expect(202);
    let end = rig.finish(&attach).await;
    assert_eq!(end["status"], "Failed");
    assert_eq!(end["error"]["code"], "NotFound");
    let location = rig.get(path_of(attach.header("location"))).await;
    assert_eq!((location.status, location.code()), (404, "NotFound"));
    let vm = rig.vm("plain-0").await;
    assert_eq!(vm["properties"]["provisioningState"], "Failed");
    assert_eq!(vm["properties"]["storageProfile"]["dataDisks"], json!([]));
}

#[tokio::test(start_paused = true)]
async fn the_size_limits_the_number_of_data_disks() {
    let rig = Rig::new(options()).await;
    let mut list = Vec::new();
    for at in 0..9 {
        rig.disk(&format!("d{at}")).await;
        list.push(json!({"diskId": disk_id(&format!("d{at}"))}));
    }
    let got = rig.attach_detach("plain-0", json!(list), json!([])).await.refused(409, "OperationNotAllowed");
    assert_eq!(got.message(), "The maximum number of data disks allowed to be attached to a VM of this size is 8.");
    assert_eq!(got.body["error"]["target"], "dataDisks");
    let got = rig.attach_detach("plain-0", json!(list[..8]), json!([])).await.expect(202);
    rig.finish(&got).await;
    // One out and one in is within the limit.
    let got = rig.attach_detach("plain-0", json!([list[8]]), json!([list[0]])).await.expect(202);
    assert_eq!(rig.finish(&got).await["status"], "Succeeded");
    assert_eq!(rig.luns("plain-0").len(), 8);
}

#[tokio::test(start_paused = true)]
async fn a_missing_disk_is_404_and_nothing_of_the_batch_happens() {
    let rig = Rig::new(options()).await;
    rig.disk("a").await;
    rig.attach_detach("plain-0", json!([{"diskId": disk_id("a")}, {"diskId": disk_id("none")}]), json!([]))
        .await
        .refused(404, "NotFound");
    rig.put_data_disks("plain-0", json!([element("none", 0)])).await.refused(404, "NotFound");
    rig.attach_detach("plain-0", json!([{"diskId": "nonsense"}]), json!([])).await.refused(400, "InvalidParameter");
    rig.attach_detach("plain-0", json!([{"lun": 1}]), json!([])).await.refused(400, "InvalidParameter");
    assert!(rig.luns("plain-0").is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_disk_of_another_subscription_is_refused() {
    let mut options = options();
    let other = "00000000-0000-0000-0000-000000000009";
    options.scenario.subscriptions.push(other.to_owned());
    let rig = Rig::new(options).await;
    let there = format!("/subscriptions/{other}/resourceGroups/there");
    let made = json!({"location": "westeurope"});
    rig.call("PUT", &format!("{there}?api-version=2021-04-01"), Some(made)).await.expect(201);
    let disk = format!("{there}/providers/Microsoft.Compute/disks/d");
    let got = rig.call("PUT", &format!("{disk}?api-version={DISKS_VERSION}"), Some(premium(4))).await.expect(202);
    rig.finish(&got).await;
    rig.attach_detach("plain-0", json!([{"diskId": disk}]), json!([])).await.refused(400, "InvalidParameter");
    let element = json!({"lun": 0, "createOption": "Attach", "managedDisk": {"id": disk}});
    rig.put_data_disks("plain-0", json!([element])).await.refused(400, "InvalidParameter");
}

#[tokio::test(start_paused = true)]
async fn zones_must_fit() {
    let rig = Rig::new(options()).await;
    let zone_2 = rig.disk_with("z2", json!({"zones": ["2"]})).await;
    let regional = rig.disk("r").await;
    rig.disk_with("zrs", json!({"sku": {"name": "Premium_ZRS"}})).await;
    let attach = |id: &str| json!([{"diskId": id}]);
    let got = rig.attach_detach("zonal-0", attach(&zone_2), json!([])).await.refused(400, "BadRequest");
    assert!(got.message().ends_with("because it is not in the same zone as the VM. VM zone: '1'. Disk zone: '2'."));
    let got = rig.attach_detach("zonal-0", attach(&regional), json!([])).await.refused(400, "BadRequest");
    assert!(got.message().ends_with("cannot be attached to the VM because it is not in zone '1'."));
    let got = rig.attach_detach("member-0", attach(&zone_2), json!([])).await.refused(400, "BadRequest");
    assert!(got.message().starts_with("Zonal Disk "));
    rig.attach_detach("zonal-1", attach(&zone_2), json!([])).await.expect(202);
    for vm in ["zonal-2"] {
        let got = rig.attach_detach(vm, attach(&disk_id("zrs")), json!([])).await.expect(202);
        rig.finish(&got).await;
    }
}

#[tokio::test(start_paused = true)]
async fn skus_and_caching_must_fit() {
    let rig = Rig::new(options()).await;
    rig.disk("p").await;
    let got =
        rig.attach_detach("basic", json!([{"diskId": disk_id("p")}]), json!([])).await.refused(400, "InvalidParameter");
    assert!(
        got.message()
            .contains("the VM size Standard_F4 does not support the storage account type Premium_LRS of disk 'p'")
    );
    rig.disk_with("u", json!({"sku": {"name": "UltraSSD_LRS"}, "zones": ["1"]})).await;
    rig.attach_detach("zonal-0", json!([{"diskId": disk_id("u")}]), json!([])).await.refused(400, "InvalidParameter");
    rig.disk_with("v2", json!({"sku": {"name": "PremiumV2_LRS"}, "zones": ["1"]})).await;
    let cached = |name: &str, caching: &str| json!([{"diskId": disk_id(name), "caching": caching}]);
    rig.attach_detach("zonal-0", cached("v2", "ReadOnly"), json!([])).await.refused(400, "InvalidParameter");
    let got = rig.attach_detach("zonal-0", cached("v2", "None"), json!([])).await.expect(202);
    rig.finish(&got).await;
    rig.disk_with("big", json!({"properties": {"creationData": {"createOption": "Empty"}, "diskSizeGB": 4096}})).await;
    rig.attach_detach("plain-0", cached("big", "ReadOnly"), json!([])).await.refused(400, "InvalidParameter");
    rig.disk_with(
        "shared",
        json!({"properties": {"creationData": {"createOption": "Empty"}, "diskSizeGB": 10, "maxShares": 2}}),
    )
    .await;
    rig.attach_detach("plain-0", cached("shared", "ReadOnly"), json!([])).await.refused(400, "InvalidParameter");
    rig.attach_detach("plain-0", cached("p", "Sometimes"), json!([])).await.refused(400, "InvalidParameter");
    let fast = json!([{"diskId": disk_id("p"), "writeAcceleratorEnabled": true}]);
    rig.attach_detach("plain-0", fast, json!([])).await.refused(400, "InvalidParameter");
}

#[tokio::test(start_paused = true)]
async fn a_shared_disk_names_its_machines_and_stops_at_max_shares() {
    let rig = Rig::new(options()).await;
    let properties = json!({"creationData": {"createOption": "Empty"}, "diskSizeGB": 10, "maxShares": 2});
    let id = rig.disk_with("s", json!({"properties": properties})).await;
    rig.attached("plain-0", &[("s", 0)]).await;
    rig.attached("plain-1", &[("s", 4)]).await;
    let disk = rig.disk_doc("s").await;
    assert_eq!(disk["managedByExtended"], json!([vm_id("plain-0"), vm_id("plain-1")]));
    assert_eq!(disk["properties"]["shareInfo"], json!([{"vmUri": vm_id("plain-0")}, {"vmUri": vm_id("plain-1")}]));
    rig.attach_detach("member-0", json!([{"diskId": id}]), json!([])).await.refused(409, "ConflictingUserInput");
    let got = rig.attach_detach("plain-0", json!([]), json!([{"diskId": id}])).await.expect(202);
    rig.finish(&got).await;
    let disk = rig.disk_doc("s").await;
    assert_eq!(disk["managedByExtended"], json!([vm_id("plain-1")]));
    assert_eq!(disk["properties"]["diskState"], "Attached");
    let patch = json!({"properties": {"maxShares": 3}});
    rig.call("PATCH", &disk_uri("s"), Some(patch)).await.refused(409, "OperationNotAllowed");
    let got = rig.attach_detach("plain-1", json!([]), json!([{"diskId": id}])).await.expect(202);
    rig.finish(&got).await;
    assert!(rig.disk_doc("s").await.get("managedByExtended").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_failed_detach_leaves_the_disk_being_detached() {
    let rig = Rig::new(slow()).await;
    let id = rig.disk("d").await;
    rig.attached("plain-0", &[("d", 0)]).await;
    let incident = json!({
        "match": {"method": "POST", "path": "*/attachDetachDataDisks"},
        "then": {"lateFailure": {"code": "InternalExecutionError", "message": "no"}},
    });
    rig.control().add_incident(serde_json::from_value(incident).unwrap()).unwrap();
    let got = rig.attach_detach("plain-0", json!([]), json!([{"diskId": id}])).await.expect(202);
    let end = rig.finish(&got).await;
    assert_eq!(
        (end["status"].as_str(), end["error"]["code"].as_str()),
        (Some("Failed"), Some("InternalExecutionError"))
    );
    assert_eq!(rig.luns("plain-0"), [(0, "d".to_owned())]);
    let got = rig
        .attach_detach("plain-1", json!([{"diskId": id}]), json!([]))
        .await
        .refused(409, "AttachDiskWhileBeingDetached");
    assert_eq!(
        got.message(),
        "Cannot attach data disk 'd' to VM 'plain-1' because the disk is currently being detached or the last detach operation failed. Please wait until the disk is completely detached and then try again or delete/detach the disk explicitly again."
    );
    let forced = json!([{"diskId": id, "detachOption": "ForceDetach"}]);
    let got = rig.attach_detach("plain-0", json!([]), forced).await.expect(202);
    assert_eq!(rig.finish(&got).await["status"], "Succeeded");
    assert!(rig.luns("plain-0").is_empty());
}

#[tokio::test(start_paused = true)]
async fn conflicting_and_unknown_members_of_elements_are_refused() {
    let rig = Rig::new(options()).await;
    rig.disk("d").await;
    let mut both = element("d", 0);
    both["createOption"] = json!("Empty");
    let got = rig.put_data_disks("plain-0", json!([both])).await.refused(400, "InvalidParameterConflictingProperties");
    assert_eq!(
        got.message(),
        "The property 'dataDisk.createOption' cannot have the value 'Empty' when property 'dataDisk.managedDisk.id' is set."
    );
    let mut odd = element("d", 0);
    odd["odd"] = json!(1);
    let got = rig.put_data_disks("plain-0", json!([odd])).await.refused(400, "BadRequest");
    assert!(got.message().starts_with("Could not find member 'odd' on object of type 'DataDisk'. Path 'properties.storageProfile.dataDisks[0].odd', line 1, position "));
    assert_eq!(got.body["error"]["target"], "vm.properties.storageProfile.dataDisks[0].odd");
    rig.put_data_disks("plain-0", json!([{"createOption": "Attach"}])).await.expect(400);
    rig.put_data_disks("plain-0", json!([{"lun": 0, "createOption": "Attach"}])).await.refused(400, "InvalidParameter");
    let old = format!("{}?api-version=2017-12-01", vm_id("plain-0"));
    let mut leaving = element("d", 0);
    leaving["toBeDetached"] = json!(true);
    let got = rig.call("PUT", &old, Some(data_disks_body(json!([leaving])))).await.refused(400, "BadRequest");
    assert!(got.message().contains("Could not find member 'toBeDetached' on object of type 'DataDisk'."));
}

#[tokio::test(start_paused = true)]
async fn an_element_with_create_option_empty_makes_its_disk() {
    let rig = Rig::new(slow()).await;
    let new = json!({"lun": 2, "name": "made", "createOption": "Empty", "diskSizeGB": 16, "managedDisk": {"storageAccountType": "Premium_LRS"}});
    let got = rig.put_data_disks("plain-0", json!([new])).await.expect(200);
    rig.finish(&got).await;
    assert_eq!(rig.luns("plain-0"), [(2, "made".to_owned())]);
    let disk = rig.disk_doc("made").await;
    assert_eq!(disk["managedBy"], vm_id("plain-0"));
    assert_eq!(disk["properties"]["diskSizeGB"], 16);
}

#[tokio::test(start_paused = true)]
async fn what_was_read_goes_back_whole_with_elements_of_every_create_option() {
    let rig = Rig::new(options()).await;
    rig.disk("a").await;
    let new = json!({"lun": 2, "name": "made", "createOption": "Empty", "diskSizeGB": 16});
    let got = rig.put_data_disks("plain-0", json!([element("a", 0), new])).await.expect(200);
    rig.finish(&got).await;
    let mut machine = rig.vm("plain-0").await;
    rig.call("PUT", &vm_uri("plain-0"), Some(machine.clone())).await.expect(200);
    let shown = &machine["properties"]["storageProfile"]["dataDisks"][1];
    assert_eq!((&shown["createOption"], &shown["managedDisk"]["id"]), (&json!("Empty"), &json!(disk_id("made"))));
    assert_eq!(shown["toBeDetached"], false);
    machine["properties"]["storageProfile"]["dataDisks"][1]["toBeDetached"] = json!(true);
    let got = rig.call("PUT", &vm_uri("plain-0"), Some(machine)).await.expect(200);
    rig.finish(&got).await;
    assert_eq!(rig.luns("plain-0"), [(0, "a".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn growing_an_attached_disk_follows_the_online_rules() {
    let rig = Rig::new(options()).await;
    rig.disk("d").await;
    rig.attached("plain-0", &[("d", 0)]).await;
    let patch = |gib: u64| json!({"properties": {"diskSizeGB": gib}});
    let got = rig.call("PATCH", &disk_uri("d"), Some(patch(20))).await.expect(202);
    rig.finish(&got).await;
    let disk = rig.disk_doc("d").await;
    assert_eq!((&disk["properties"]["diskSizeGB"], &disk["managedBy"]), (&json!(20), &json!(vm_id("plain-0"))));
    let got = rig.call("PATCH", &disk_uri("d"), Some(patch(4096))).await.refused(409, "OperationNotAllowed");
    assert_eq!(got.body["error"]["innererror"]["internalErrorCode"], "InvalidResizeForLargeDisks");
    let got = rig
        .call("POST", &format!("{}/deallocate?api-version={COMPUTE_VERSION}", vm_id("plain-0")), None)
        .await
        .expect(202);
    rig.finish(&got).await;
    assert_eq!(rig.disk_doc("d").await["properties"]["diskState"], "Reserved");
    // A deallocated machine is not enough: the disk must be detached.
    rig.call("PATCH", &disk_uri("d"), Some(patch(4096))).await.refused(409, "OperationNotAllowed");
    let got = rig.put_data_disks("plain-0", json!([])).await.expect(200);
    rig.finish(&got).await;
    let got = rig.call("PATCH", &disk_uri("d"), Some(patch(4096))).await.expect(202);
    rig.finish(&got).await;
    // An OS disk cannot be detached; deallocation is enough for it.
    let vm = rig.vm("plain-0").await;
    let os = vm["properties"]["storageProfile"]["osDisk"]["managedDisk"]["id"].as_str().unwrap().to_owned();
    let os = format!("{os}?api-version={DISKS_VERSION}");
    rig.call("PATCH", &os, Some(patch(4096))).await.expect(202);
}
