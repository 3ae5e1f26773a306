use super::*;
use crate::Switches;
use crate::options::{Already, Concurrent, LeftOut};

fn switched(switches: Switches) -> Options {
    Options { unverified: switches, ..slow() }
}

#[tokio::test(start_paused = true)]
async fn a_newer_write_may_preempt_the_older_and_takes_over_its_work() {
    let rig = Rig::new(switched(Switches { concurrent_vm_write: Concurrent::Preempt, ..Switches::default() })).await;
    rig.disk("a").await;
    rig.disk("b").await;
    let old = rig.put_data_disks("plain-0", json!([element("a", 0)])).await.expect(200);
    let new = rig.put_data_disks("plain-0", json!([element("a", 0), element("b", 1)])).await.expect(200);
    let end = rig.finish(&old).await;
    assert_eq!((end["status"].as_str(), end["error"]["code"].as_str()), (Some("Failed"), Some("OperationPreempted")));
    assert_eq!(end["error"]["message"], "Operation execution has been preempted by a more recent operation.");
    assert_eq!(rig.finish(&new).await["status"], "Succeeded");
    assert_eq!(rig.luns("plain-0"), [(0, "a".to_owned()), (1, "b".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn elements_left_out_stay_or_go_as_the_switch_says() {
    for (method, left_out, stays) in [
        ("PUT", LeftOut::Keep, true),
        ("PUT", LeftOut::Detach, false),
        ("PATCH", LeftOut::Keep, true),
        ("PATCH", LeftOut::Detach, false),
    ] {
        let rig = Rig::new(switched(Switches {
            left_out_of_put: left_out,
            left_out_of_patch: left_out,
            ..Switches::default()
        }))
        .await;
        rig.disk("a").await;
        rig.attached("plain-0", &[("a", 0)]).await;
        rig.call(method, &vm_uri("plain-0"), Some(data_disks_body(json!([])))).await.expect(200);
        tokio::time::sleep(Duration::from_secs(120)).await;
        assert_eq!(!rig.luns("plain-0").is_empty(), stays, "{method} {left_out:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn attaching_the_attached_and_detaching_the_detached_follow_the_switches() {
    for (already, status) in [(Already::Refuse, 409), (Already::Ignore, 202)] {
        let rig = Rig::new(switched(Switches {
            attach_attached: already,
            detach_unattached: already,
            ..Switches::default()
        }))
        .await;
        let id = rig.disk("a").await;
        let detach = rig.attach_detach("plain-0", json!([]), json!([{"diskId": id}])).await;
        assert_eq!(detach.status, status);
        if already == Already::Refuse {
            assert_eq!(detach.code(), "DetachUnattachedDisk");
        }
        tokio::time::sleep(Duration::from_secs(60)).await;
        rig.attached("plain-0", &[("a", 4)]).await;
        rig.attach_detach("plain-0", json!([{"diskId": id}]), json!([])).await.expect(status);
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(rig.luns("plain-0"), [(4, "a".to_owned())]);
    }
}

#[tokio::test(start_paused = true)]
async fn ids_come_back_in_other_letter_case_and_are_understood() {
    let rig = Rig::new(Options { nasty_casing: true, ..slow() }).await;
    rig.disk("d").await;
    rig.attached("plain-0", &[("d", 0)]).await;
    let disk = rig.disk_doc("d").await;
    let managed_by = disk["managedBy"].as_str().unwrap();
    assert_ne!(managed_by, vm_id("plain-0"));
    assert!(managed_by.eq_ignore_ascii_case(&vm_id("plain-0")));
    assert_eq!(disk["name"], "d");
    let shown = disk["id"].as_str().unwrap();
    assert_ne!(shown, disk_id("d"));
    rig.get(&format!("{shown}?api-version={DISKS_VERSION}")).await.expect(200);
    let got = rig.attach_detach("plain-0", json!([]), json!([{"diskId": shown}])).await.expect(202);
    rig.finish(&got).await;
    assert!(rig.luns("plain-0").is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_dropped_future_member_is_refused_and_recorded() {
    let rig = Rig::new(Options { future_fields: true, ..slow() }).await;
    rig.disk("a").await;
    rig.disk("b").await;
    rig.attached("plain-0", &[("a", 0)]).await;
    let vm = rig.vm("plain-0").await;
    let mut elements = vm["properties"]["storageProfile"]["dataDisks"].clone();
    assert!(elements[0][crate::unknown_fields::MEMBER].is_object());
    elements.as_array_mut().unwrap().push(element("b", 1));
    let got = rig.put_data_disks("plain-0", elements).await.expect(200);
    rig.finish(&got).await;
    assert!(rig.control().violations().is_empty());
    rig.put_data_disks("plain-0", json!([element("a", 0), element("b", 1)])).await.refused(400, "BadRequest");
    assert_eq!(rig.control().violations().len(), 1);
    let mut written_back = rig.disk_doc("a").await;
    let got = rig.put_disk("a", written_back.clone()).await.expect(202);
    rig.finish(&got).await;
    written_back["properties"].as_object_mut().unwrap().remove(crate::unknown_fields::MEMBER);
    rig.put_disk("a", written_back).await.refused(400, "BadRequest");
    assert_eq!(rig.control().violations().len(), 2);
}

/// A volume's life with each of the two ways of writing, as careful clients do it: no step asks for what
/// is so already, none overlaps another, and whole lists are sent.
async fn core_of_the_protocol(options: Options, what: &str) {
    let lag = options.read_lag + Duration::from_millis(1);
    let rig = Rig::new(options).await;
    let settled = async || tokio::time::sleep(lag).await;
    let shown_luns = async |vm: &str| -> Vec<u64> {
        settled().await;
        let vm = rig.vm(vm).await;
        let elements = vm["properties"]["storageProfile"]["dataDisks"].as_array().unwrap();
        elements.iter().map(|element| element["lun"].as_u64().unwrap()).collect()
    };
    for name in ["a", "b", "c"] {
        rig.disk(name).await;
        settled().await;
    }
    // By the whole list, each element as it was read.
    let got = rig.put_data_disks("plain-0", json!([element("a", 0), element("b", 5)])).await.expect(200);
    assert_eq!(rig.finish(&got).await["status"], "Succeeded", "{what}");
    assert_eq!(shown_luns("plain-0").await, [0, 5], "{what}");
    rig.call("DELETE", &disk_uri("a"), None).await.refused(409, "OperationNotAllowed");
    let mut list = rig.vm("plain-0").await["properties"]["storageProfile"]["dataDisks"].clone();
    list[0]["toBeDetached"] = json!(true);
    list[0]["detachOption"] = json!("ForceDetach");
    list.as_array_mut().unwrap().push(element("c", 7));
    for method in ["PUT", "PATCH"] {
        let got = rig.call(method, &vm_uri("plain-0"), Some(data_disks_body(list.clone()))).await.expect(200);
        assert_eq!(rig.finish(&got).await["status"], "Succeeded", "{what}");
        assert_eq!(shown_luns("plain-0").await, [5, 7], "{what}");
        list = rig.vm("plain-0").await["properties"]["storageProfile"]["dataDisks"].clone();
        list[0]["writeAcceleratorEnabled"] = json!(false);
    }
    // By the action.
    rig.attached("plain-1", &[("a", 63)]).await;
    settled().await;
    assert!(rig.disk_doc("a").await["managedBy"].as_str().unwrap().eq_ignore_ascii_case(&vm_id("plain-1")), "{what}");
    let got = rig.attach_detach("plain-1", json!([]), json!([{"diskId": disk_id("a")}])).await.expect(202);
    assert_eq!(rig.finish(&got).await["status"], "Succeeded", "{what}");
    let leaving = json!([{"diskId": disk_id("b")}, {"diskId": disk_id("c"), "detachOption": "ForceDetach"}]);
    let got = rig.attach_detach("plain-0", json!([]), leaving).await.expect(202);
    assert_eq!(rig.finish(&got).await["status"], "Succeeded", "{what}");
    for vm in ["plain-0", "plain-1"] {
        assert_eq!(shown_luns(vm).await, [0_u64; 0], "{what}");
    }
    for name in ["a", "b", "c"] {
        let disk = rig.disk_doc(name).await;
        assert_eq!((disk.get("managedBy"), &disk["properties"]["diskState"]), (None, &json!("Unattached")), "{what}");
        let got = rig.call("DELETE", &disk_uri(name), None).await.expect(202);
        rig.finish(&got).await;
        settled().await;
        rig.get(&disk_uri(name)).await.refused(404, "ResourceNotFound");
        rig.call("DELETE", &disk_uri(name), None).await.expect(204);
    }
    assert!(rig.control().violations().is_empty(), "{what}");
}

#[tokio::test(start_paused = true)]
async fn the_core_of_the_protocol_works_in_every_position_of_every_switch() {
    for (key, positions) in crate::SWITCHES {
        let positions = if key == "disk-retry-after" { "0|30" } else { positions };
        for position in positions.split('|') {
            let what = format!("{key}={position}");
            let mut switches = Switches::default();
            switches.set(&what).unwrap();
            core_of_the_protocol(switched(switches), &what).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_core_of_the_protocol_works_with_every_nuisance_and_with_all_at_once() {
    let nasty = || Options { nasty_casing: true, ..slow() };
    let lag = Duration::from_secs(2);
    core_of_the_protocol(nasty(), "nasty casing").await;
    core_of_the_protocol(Options { future_fields: true, ..slow() }, "future fields").await;
    core_of_the_protocol(Options { read_lag: lag, ..slow() }, "read lag").await;
    core_of_the_protocol(Options { page_size: 1, ..slow() }, "small pages").await;
    let all = Options { future_fields: true, read_lag: lag, page_size: 1, latency: Profile::azure(), ..nasty() };
    core_of_the_protocol(all, "all at once").await;
}

#[tokio::test(start_paused = true)]
async fn nasty_casing_reaches_targets_of_errors_and_the_metadata_service() {
    let rig = Rig::new(Options { nasty_casing: true, ..slow() }).await;
    rig.disk("d").await;
    rig.attached("plain-0", &[("d", 0)]).await;
    let refused = rig
        .attach_detach("plain-1", json!([{"diskId": disk_id("d")}]), json!([]))
        .await
        .refused(409, "ConflictingUserInput");
    let target = refused.body["error"]["target"].as_str().unwrap();
    assert!(target != disk_id("d") && target.eq_ignore_ascii_case(&disk_id("d")), "{target}");
    let request = Request::builder()
        .uri("/_imds/plain-0/metadata/instance?api-version=2021-10-01")
        .header("metadata", "true")
        .body(Body::empty())
        .unwrap();
    let seen = rig.send(request).await.expect(200).body;
    let seen = seen["compute"]["storageProfile"]["dataDisks"][0]["managedDisk"]["id"].as_str().unwrap().to_owned();
    let shown = rig.vm("plain-0").await;
    let shown = shown["properties"]["storageProfile"]["dataDisks"][0]["managedDisk"]["id"].as_str().unwrap();
    assert!(seen != shown && seen.eq_ignore_ascii_case(shown), "{seen} {shown}");
}
