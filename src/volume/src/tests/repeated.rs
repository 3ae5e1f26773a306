//! What a repeated request makes of the disk that exists.

use super::*;

#[test]
fn the_disk_that_a_plan_makes_is_the_disk_of_the_plan() {
    let zoned = Request { preferred: segments(&[(DISK_TOPOLOGY_KEY, "eastus-1")]), ..request(&[]) };
    let requests = [
        request(&[]),
        zoned,
        request(&[("skuName", "UltraSSD_LRS"), ("LogicalSectorSize", "512"), ("maxShares", "2")]),
        request(&[("diskEncryptionSetID", DES), ("tags", "a=b")]),
    ];
    for request in requests {
        let plan = plan_of(&request);
        let adopted = plan.adopt(&made(&plan)).unwrap();
        assert_eq!((adopted.size, adopted.accessible_topology), (plan.size, plan.accessible_topology));
        assert_eq!(adopted.volume_context, plan.volume_context);
    }
}

#[test]
fn a_larger_disk_is_good_up_to_the_limit_and_a_smaller_one_never() {
    let with = |required: i64, limit: i64| {
        plan_of(&Request { required_bytes: required * GIB, limit_bytes: limit * GIB, ..request(&[]) })
    };
    let disk = made(&with(10, 0));
    for (required, limit, good) in
        [(10, 0, true), (5, 0, true), (0, 0, true), (10, 10, true), (5, 9, false), (11, 0, false)]
    {
        let adopted = with(required, limit).adopt(&disk);
        assert_eq!(adopted.is_ok(), good, "{required} {limit} {adopted:?}");
        if let Ok(adopted) = adopted {
            assert_eq!((adopted.size, adopted.volume_context["requestedsizegib"].as_str()), (Gib::new(10), "10"));
        }
    }
}

#[test]
fn every_difference_is_named_with_both_values() {
    let plan = plan(&[("diskEncryptionSetID", DES), ("csi.storage.k8s.io/pv/name", "pvc-1")]);
    let disk = made(&plan);
    let other = |change: fn(&mut Disk)| {
        let mut disk = disk.clone();
        change(&mut disk);
        plan.adopt(&disk).unwrap_err()
    };
    for (mismatch, property, existing) in [
        (other(|disk| disk.sku = Some(SkuName::PremiumLrs)), "skuName", "Premium_LRS"),
        (other(|disk| disk.sku = None), "skuName", "unknown"),
        (other(|disk| disk.location = "westus".to_owned()), "location", "westus"),
        (other(|disk| disk.zones = vec!["2".to_owned()]), "zones", "2"),
        (other(|disk| disk.max_shares = 2), "maxShares", "2"),
        (other(|disk| disk.disk_encryption_set = None), "diskEncryptionSetID", "none"),
        (other(|disk| disk.source = ACCESS.parse().ok()), "source", ACCESS),
    ] {
        let Mismatch::Property { property: named, existing: seen, .. } = &mismatch else { panic!("{mismatch}") };
        assert_eq!((*named, seen.as_str()), (property, existing));
        assert!(mismatch.to_string().contains(property) && mismatch.to_string().contains(existing), "{mismatch}");
    }
}

#[test]
fn one_disk_is_never_handed_to_two_volumes() {
    let of = |name: &str| plan_of(&Request { name: name.to_owned(), ..request(&[("diskName", "the-disk")]) });
    let disk = made(&of("pvc-1"));
    assert!(of("pvc-1").adopt(&disk).is_ok());
    let mismatch = of("pvc-2").adopt(&disk).unwrap_err().to_string();
    assert!(mismatch.contains("lazuli-request is \"pvc-1\" instead of \"pvc-2\""), "{mismatch}");
    assert!(mismatch.contains("/disks/the-disk"), "{mismatch}");
}

/// Tags as the Go driver sets them, with and without external-provisioner's extra metadata.
fn made_by_go(plan: &CreatePlan, pv_name: Option<&str>) -> Disk {
    let mut tags = map(&[("k8s-azure-created-by", "kubernetes-azure-dd")]);
    tags.extend(pv_name.map(|name| ("Kubernetes.io-created-for-pv-name".to_owned(), name.to_owned())));
    Disk { tags, ..made(plan) }
}

#[test]
fn a_disk_without_our_tag_is_taken_only_if_it_names_the_persistent_volume_and_is_free() {
    let vm = || ArmId::virtual_machine("s", "g", "vm").unwrap();
    let extra = [("csi.storage.k8s.io/pv/name", "pvc-1")];
    let by_class = [("diskName", "the-disk")];
    for (pairs, pv_name, holder, reason) in [
        (&[][..], Some("pvc-1"), None, None),
        (&extra[..], Some("pvc-1"), None, None),
        (&[][..], Some("pvc-1"), Some(vm()), Some("holds it")),
        (&[][..], Some("pvc-2"), None, Some("is \"pvc-2\" instead of \"pvc-1\"")),
        (&extra[..], None, None, Some("it has neither the tag lazuli-request nor kubernetes.io-created-for-pv-name")),
        (&by_class[..], Some("pvc-1"), None, Some("a disk that diskName names")),
    ] {
        let plan = plan(pairs);
        let disk = Disk { managed_by: holder, ..made_by_go(&plan, pv_name) };
        match (plan.adopt(&disk), reason) {
            (Ok(_), None) => {}
            (Err(mismatch), Some(reason)) => assert!(mismatch.to_string().contains(reason), "{mismatch}"),
            (adopted, reason) => panic!("{pairs:?} {pv_name:?}: {adopted:?}, expected {reason:?}"),
        }
    }
}

#[test]
fn a_disk_with_our_tag_is_ours_also_once_it_is_attached_and_never_when_it_was_copied() {
    let plan = plan(&[]);
    let vm = ArmId::virtual_machine("s", "g", "vm").unwrap();
    assert!(plan.adopt(&Disk { managed_by: Some(vm), ..made(&plan) }).is_ok());
    // Restoring a snapshot may copy the tags of the disk it was taken of.
    let copy = Disk { source: Some("snapshot".to_owned()), ..made(&plan) };
    assert!(matches!(plan.adopt(&copy), Err(Mismatch::Property { property: "source", .. })));
}

#[test]
fn a_region_is_the_same_however_it_is_spelled() {
    let plan = plan(&[]);
    assert!(plan.adopt(&Disk { location: "East US".to_owned(), ..made(&plan) }).is_ok());
}

#[test]
fn a_disk_of_an_earlier_try_in_another_accepted_zone_is_kept() {
    let in_zone = |preferred| {
        plan_of(&Request {
            preferred: segments(&[(DISK_TOPOLOGY_KEY, preferred)]),
            requisite: segments(&[(DISK_TOPOLOGY_KEY, "eastus-1"), (DISK_TOPOLOGY_KEY, "eastus-2")]),
            ..request(&[])
        })
    };
    let disk = made(&in_zone("eastus-1"));
    let adopted = in_zone("eastus-2").adopt(&disk).unwrap();
    assert_eq!(adopted.accessible_topology, segments(&[(DISK_TOPOLOGY_KEY, "eastus-1")]));
    let elsewhere = Disk { zones: vec!["3".to_owned()], ..disk };
    assert!(matches!(in_zone("eastus-2").adopt(&elsewhere), Err(Mismatch::Property { property: "zones", .. })));
}
