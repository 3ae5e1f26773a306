//! What a node reads.

use super::*;

#[test]
fn ext4_takes_the_ext2_and_ext3_of_older_volumes_and_nothing_else_is_taken_for_another() {
    for asked in FsType::ALL {
        for found in FsType::ALL {
            let older = asked == FsType::Ext4 && matches!(found, FsType::Ext2 | FsType::Ext3);
            let taken = (asked == found || older).then_some(found);
            assert_eq!(asked.existing(found.as_str()), taken, "{asked} {found}");
        }
        assert_eq!(asked.existing("vfat"), None);
    }
}

fn stage(volume: Pairs<'_>, publish: Pairs<'_>) -> Result<StageParameters, ParameterError> {
    stage_parameters(&map(volume), &Capability::mounted(), &map(publish))
}

#[test]
fn a_provisioned_volume_is_staged_from_its_own_context() {
    let plan =
        plan(&[("skuName", "Premium_LRS"), ("perfProfile", "advanced"), ("device-setting/queue/scheduler", "none")]);
    let staged = stage_parameters(&plan.volume_context, &Capability::mounted(), &map(&[("LUN", "0")])).unwrap();
    assert_eq!((staged.lun.get(), staged.requested_size), (0, Some(Gib::new(10))));
    assert_eq!((staged.fs_type, staged.partition), (Some(FsType::Ext4), None));
    assert_eq!((staged.perf_profile, staged.sku), (PerfProfile::Advanced, Some(SkuName::PremiumLrs)));
    let setting = DeviceSetting { path: "queue/scheduler".to_owned(), value: "none".to_owned() };
    assert_eq!((staged.device_settings, staged.resize_required), (vec![setting], false));
}

#[test]
fn the_context_names_the_filesystem_before_the_capability_does() {
    let xfs = Capability {
        access_mode: AccessMode::SingleNodeWriter,
        access_type: Some(AccessType::Mount { fs_type: "xfs".to_owned(), flags: vec!["noatime".to_owned()] }),
    };
    let with = |volume| stage_parameters(&map(volume), &xfs, &map(&[("LUN", "1")])).unwrap();
    assert_eq!(with(&[]).fs_type, Some(FsType::Xfs));
    assert_eq!(with(&[("FsType", "BTRFS")]).fs_type, Some(FsType::Btrfs));
    assert_eq!(with(&[("fstype", "")]).fs_type, Some(FsType::Xfs));
    assert_eq!(with(&[]).mount_flags, ["noatime"]);
}

#[test]
fn a_raw_device_has_no_filesystem() {
    let block = Capability::block(AccessMode::SingleNodeWriter);
    let staged = stage_parameters(&map(&[("fsType", "ext4")]), &block, &map(&[("LUN", "1")])).unwrap();
    assert_eq!((staged.fs_type, staged.mount_flags.len()), (None, 0));
}

#[test]
fn a_static_volume_is_staged_from_what_the_controller_said() {
    let publish =
        [("LUN", "63"), ("skuname", "UltraSSD_LRS"), ("diskiopsreadwrite", "500"), ("diskmbpsreadwrite", "9")];
    let staged = stage(&[("partition", "2"), ("resizeRequired", "true")], &publish).unwrap();
    assert_eq!((staged.sku, staged.iops, staged.mbps), (Some(SkuName::UltraSsdLrs), Some(500), Some(9)));
    assert_eq!((staged.partition, staged.requested_size, staged.resize_required), (Some(2), None, true));
}

#[test]
fn a_slot_is_a_number_or_the_path_that_was_once_written() {
    let lun = |text| stage(&[], &[("LUN", text)]).map(|staged| staged.lun.get());
    assert_eq!(lun("5"), Ok(5));
    assert_eq!(lun("/dev/disk/azure/scsi1/lun12"), Ok(12));
    for text in ["64", "-1", "lun3", "/dev/disk/azure/scsi1/", "/dev/disk/azure/scsi1/lunx", ""] {
        let error = lun(text).unwrap_err();
        assert_eq!((error.parameter.as_str(), error.value.as_str()), ("LUN", text));
    }
    assert_eq!(stage(&[], &[]).unwrap_err().parameter, "LUN");
}

#[test]
fn what_a_node_cannot_use_is_refused_by_name() {
    for (key, value) in [
        ("fsType", "ntfs"),
        ("partition", "0"),
        ("partition", "one"),
        ("requestedsizegib", "big"),
        ("perfProfile", "advanced"),
        ("perfProfile", "fast"),
    ] {
        let error = stage(&[(key, value)], &[("LUN", "1")]).unwrap_err();
        assert_eq!((error.parameter.as_str(), error.value.as_str()), (key, value));
    }
    let neither = Capability { access_type: None, ..Capability::mounted() };
    assert!(stage_parameters(&BTreeMap::new(), &neither, &map(&[("LUN", "1")])).is_err());
}

/// The Go driver took settings that this one does not write; a PersistentVolume made by it must be staged.
#[test]
fn a_setting_outside_of_the_list_is_left_out_of_an_old_volume_with_a_warning() {
    let context = [
        ("perfProfile", "advanced"),
        ("device-setting/device/state", "offline"),
        ("device-setting/../x", "1"),
        ("device-setting/queue/scheduler", "none"),
        ("device-setting/queue//scheduler", "bfq"),
    ];
    let staged = stage(&context, &[("LUN", "1")]).unwrap();
    assert_eq!(staged.perf_profile, PerfProfile::Advanced);
    // The first by the order of the keys.
    let setting = DeviceSetting { path: "queue/scheduler".to_owned(), value: "bfq".to_owned() };
    assert_eq!(staged.device_settings, [setting]);
    assert_eq!(staged.warnings.len(), 3);
    assert!(staged.warnings[1].contains("device-setting/device/state is \"offline\""), "{:?}", staged.warnings);
    let alone = stage(&context[..2], &[("LUN", "1")]).unwrap();
    assert_eq!((alone.device_settings.len(), alone.warnings.len()), (0, 1));
}
