//! What a controller reads and tells.

use super::*;

fn context(volume: Pairs<'_>, disk: &Disk) -> BTreeMap<String, String> {
    publish_parameters(&map(volume)).unwrap().publish_context(Lun::try_from(7).unwrap(), Some(disk))
}

#[test]
fn a_provisioned_volume_is_told_its_slot_and_nothing_else() {
    let plan = plan(&[("skuName", "Premium_LRS")]);
    let parameters = publish_parameters(&plan.volume_context).unwrap();
    assert_eq!(parameters, PublishParameters { caching: None, max_shares: 1, told: Told::Nothing });
    assert_eq!(context(&[("requestedsizegib", "10")], &made(&plan)), map(&[("LUN", "7")]));
}

#[test]
fn a_static_volume_is_told_what_its_disk_is() {
    let pairs =
        [("skuName", "UltraSSD_LRS"), ("LogicalSectorSize", "4096"), ("maxShares", "2"), ("diskEncryptionSetID", DES)];
    let expected = [
        ("LUN", "7"),
        ("diskencryptionsetid", DES),
        ("diskiopsreadwrite", "500"),
        ("diskmbpsreadwrite", "100"),
        ("logicalsectorsize", "4096"),
        ("maxshares", "2"),
        ("networkaccesspolicy", "DenyAll"),
        ("skuname", "UltraSSD_LRS"),
    ];
    assert_eq!(context(&[], &made(&plan(&pairs))), map(&expected));
}

#[test]
fn a_tuned_volume_is_told_the_type_and_performance_that_its_disk_has_now() {
    let plan = plan(&[("skuName", "Premium_LRS"), ("PerfProfile", "Basic")]);
    let changed = Disk { sku: Some(SkuName::StandardSsdLrs), iops: Some(600), mbps: Some(150), ..made(&plan) };
    let parameters = publish_parameters(&plan.volume_context).unwrap();
    assert_eq!(parameters.told, Told::Performance);
    let told = parameters.publish_context(Lun::try_from(7).unwrap(), Some(&changed));
    let expected =
        [("LUN", "7"), ("diskiopsreadwrite", "600"), ("diskmbpsreadwrite", "150"), ("skuname", "StandardSSD_LRS")];
    assert_eq!(told, map(&expected));
    let staged = stage_parameters(&plan.volume_context, &Capability::mounted(), &told).unwrap();
    assert_eq!((staged.sku, staged.iops, staged.mbps), (Some(SkuName::StandardSsdLrs), Some(600), Some(150)));
    // A profile that is no profile is the node's to refuse.
    let context = map(&[("requestedsizegib", "10"), ("perfProfile", "fast")]);
    assert_eq!(publish_parameters(&context).unwrap().told, Told::Nothing);
}

#[test]
fn keys_have_any_case_and_values_are_exact() {
    let parameters = publish_parameters(&map(&[("CachingMODE", "ReadWrite"), ("MAXSHARES", "3")])).unwrap();
    assert_eq!((parameters.caching, parameters.max_shares), (Some(CachingMode::ReadWrite), 3));
    for (key, value) in [("cachingMode", "readwrite"), ("maxShares", "0"), ("maxShares", "x")] {
        let error = publish_parameters(&map(&[(key, value)])).unwrap_err();
        assert_eq!((error.parameter.as_str(), error.value.as_str()), (key, value));
    }
}

#[test]
fn azure_caches_no_large_no_shared_and_no_fast_disk() {
    let read_write = Some(CachingMode::ReadWrite);
    let small = made(&plan(&[]));
    assert_eq!(effective_caching(None, &small), CachingMode::ReadOnly);
    assert_eq!(effective_caching(read_write, &small), CachingMode::ReadWrite);
    for disk in [
        Disk { size: Gib::new(4096), ..small.clone() },
        Disk { max_shares: 2, ..small.clone() },
        Disk { sku: Some(SkuName::PremiumV2Lrs), ..small.clone() },
        Disk { sku: Some(SkuName::UltraSsdLrs), ..small.clone() },
    ] {
        assert_eq!(effective_caching(read_write, &disk), CachingMode::None);
        assert_eq!(effective_caching(None, &disk), CachingMode::None);
    }
    assert_eq!(effective_caching(read_write, &Disk { size: Gib::new(4095), ..small }), CachingMode::ReadWrite);
}

#[test]
fn the_tag_of_the_write_accelerator_is_the_one_that_attaching_reads() {
    let disk = made(&plan(&[("skuName", "Premium_LRS"), ("writeAcceleratorEnabled", "true")]));
    assert!(disk.write_accelerator());
    assert!(!made(&plan(&[])).write_accelerator());
}
