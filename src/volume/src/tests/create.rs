//! The parameters of a StorageClass, row by row.

use super::*;

#[test]
fn an_empty_class_makes_a_closed_standard_ssd() {
    let plan = plan(&[]);
    assert_eq!(plan.disk.as_str(), "/subscriptions/sub/resourceGroups/rg/providers/Microsoft.Compute/disks/pvc-1");
    assert_eq!(
        plan.spec,
        DiskSpec {
            location: "eastus".to_owned(),
            extended_location: None,
            zones: vec![],
            sku: SkuName::StandardSsdLrs,
            tags: map(&[("k8s-azure-created-by", "kubernetes-azure-dd"), ("lazuli-request", "pvc-1")]),
            create_option: CreateOption::Empty,
            logical_sector_size: None,
            performance_plus: None,
            size: Gib::new(10),
            iops: None,
            mbps: None,
            max_shares: 1,
            disk_encryption_set: None,
            encryption_type: None,
            network_access_policy: Some(NetworkAccessPolicy::DenyAll),
            disk_access: None,
            public_network_access: Some(PublicNetworkAccess::Disabled),
            bursting_enabled: None,
            tier: None,
            most_bytes: None,
            zones_accepted: Default::default(),
            origin: Origin {
                request: "pvc-1".to_owned(),
                persistent_volume: "pvc-1".to_owned(),
                named_by: NamedBy::Request,
            },
        }
    );
    assert_eq!(plan.volume_context, map(&[("requestedsizegib", "10")]));
    assert_eq!(plan.accessible_topology, segments(&[(DISK_TOPOLOGY_KEY, "")]));
    assert_eq!((plan.size, plan.warnings), (Gib::new(10), vec![]));
}

#[test]
fn a_request_needs_a_name_and_a_capability() {
    let nameless = Request { name: String::new(), ..request(&[]) };
    assert_eq!(plan_create(&nameless, &defaults()).unwrap_err().parameter, "name");
    let useless = Request { capabilities: vec![], ..request(&[]) };
    assert_eq!(plan_create(&useless, &defaults()).unwrap_err().parameter, "volumeCapabilities");
}

#[test]
fn the_account_type_is_exact() {
    for sku in SkuName::ALL {
        assert_eq!(spec(&[("skuName", sku.as_str())]).sku, *sku);
        assert_eq!(spec(&[("storageAccountType", sku.as_str())]).sku, *sku);
        assert_eq!(spec(&[("storageaccounttype", sku.as_str())]).sku, *sku);
    }
    let error = refused(&[("skuName", "premium_lrs")], "skuName");
    assert!(error.to_string().contains("Premium_LRS"), "{error}");
    refused(&[("skuName", "Standard_GRS")], "skuName");
    assert_eq!(spec(&[("skuName", "")]).sku, SkuName::StandardSsdLrs);
}

#[test]
fn both_sku_aliases_with_different_values_are_refused() {
    let pairs = [("skuName", "Premium_LRS"), ("storageAccountType", "Standard_LRS")];
    let error = refused(&pairs, "storageAccountType");
    assert!(error.to_string().contains("skuName") && error.to_string().contains("Premium_LRS"), "{error}");
    assert_eq!(spec(&[("skuName", "Premium_LRS"), ("storageAccountType", "Premium_LRS")]).sku, SkuName::PremiumLrs);
}

#[test]
fn two_keys_that_differ_only_in_case_are_refused() {
    let error = plan_create(&request(&[("Kind", "x"), ("kind", "x")]), &defaults()).unwrap_err();
    assert!(error.to_string().contains("given twice"), "{error}");
}

#[test]
fn an_attributes_class_wins_over_the_storage_class_whatever_alias_it_uses() {
    let request = Request {
        mutable_parameters: map(&[("skuName", "Premium_LRS")]),
        ..request(&[("storageAccountType", "Standard_LRS"), ("SKUNAME", "Standard_LRS"), ("kind", "managed")])
    };
    let plan = plan_of(&request);
    assert_eq!(plan.spec.sku, SkuName::PremiumLrs);
    let context = [("kind", "Managed"), ("requestedsizegib", "10"), ("skuName", "Premium_LRS")];
    assert_eq!(plan.volume_context, map(&context));
}

#[test]
fn an_unknown_parameter_is_refused_with_those_that_are_known() {
    let error = refused(&[("skuname2", "x")], "skuname2");
    assert!(error.to_string().contains("skuName, ") && error.to_string().contains("device-setting/"), "{error}");
    assert!(!error.to_string().contains("zones"), "{error}");
}

#[test]
fn a_storage_account_is_refused_of_a_managed_disk() {
    let error = refused(&[("storageAccount", "acct")], "storageAccount");
    assert!(error.to_string().contains("VHD blob disk"), "{error}");
    refused(&[("zones", "1,2")], "zones");
}

#[test]
fn every_kind_makes_a_managed_disk_and_a_blob_kind_says_so() {
    for (kind, warns) in [("Managed", false), ("managed", false), ("Dedicated", true), ("Shared", true), ("x", true)] {
        let plan = plan(&[("kind", kind)]);
        assert_eq!(plan.volume_context["kind"], "Managed");
        assert_eq!(plan.warnings.iter().any(|warning| warning.contains(kind)), warns, "{kind}");
    }
    assert_eq!(plan(&[("KIND", "Shared")]).volume_context, map(&[("KIND", "Managed"), ("requestedsizegib", "10")]));
}

#[test]
fn what_is_only_there_for_compatibility_is_accepted_and_kept() {
    let pairs = [
        ("csi-migration", "true"),
        ("zoned", "anything"),
        ("enableAsyncAttach", "no"),
        ("userAgent", "me/1.0"),
        ("attachDiskInitialDelay", "500"),
    ];
    let plan = plan(&pairs);
    assert_eq!(plan.spec, spec(&[]));
    assert!(plan.warnings.len() == 1 && plan.warnings[0].contains("userAgent is \"me/1.0\""), "{:?}", plan.warnings);
    for (key, value) in pairs {
        assert_eq!(plan.volume_context[key], value);
    }
}

#[test]
fn an_initial_delay_that_is_no_number_is_refused() {
    for value in ["1s", "1.5", "x"] {
        refused(&[("attachDiskInitialDelay", value)], "attachDiskInitialDelay");
    }
}

#[test]
fn a_filesystem_that_linux_cannot_make_is_refused_before_a_disk_is_made() {
    for value in ["ext4", "EXT3", "ext2", "xfs", "btrfs", ""] {
        plan(&[("fsType", value)]);
    }
    for value in ["ntfs", "zfs", "ext 4"] {
        let error = refused(&[("fsType", value)], "fsType");
        assert!(error.to_string().contains("ext4, ext3, ext2, xfs, btrfs"), "{error}");
    }
}

#[test]
fn the_group_and_subscription_of_the_class_win() {
    let disk = |pairs| plan(pairs).disk.to_string();
    assert!(disk(&[("resourceGroup", "other")]).starts_with("/subscriptions/sub/resourceGroups/other/"));
    let both = [("subscriptionID", "s2"), ("resourceGroup", "other")];
    assert!(disk(&both).starts_with("/subscriptions/s2/resourceGroups/other/"));
    assert!(disk(&[("subscriptionID", "SUB")]).starts_with("/subscriptions/SUB/resourceGroups/rg/"));
    refused(&[("resourceGroup", "a/b")], "resourceGroup");
    refused(&[("subscriptionID", "a b"), ("resourceGroup", "g")], "subscriptionID");
}

#[test]
fn another_subscription_without_a_group_is_the_users_mistake() {
    let error = refused(&[("subscriptionID", "s2")], "subscriptionID");
    assert!(error.to_string().contains("resourceGroup"), "{error}");
}

#[test]
fn a_class_that_names_a_group_beyond_the_operators_list_is_refused() {
    let list = vec!["team".parse().unwrap(), "s2/disks".parse().unwrap()];
    let restricted = Defaults { allowed_resource_groups: AllowedResourceGroups::of(list), ..defaults() };
    for pairs in [&[][..], &[("resourceGroup", "TEAM")], &[("subscriptionID", "s2"), ("resourceGroup", "disks")]] {
        assert!(plan_create(&request(pairs), &restricted).is_ok(), "{pairs:?}");
    }
    let error = refused_of(&request(&[("resourceGroup", "vault")]), &restricted, "resourceGroup");
    assert!(error.to_string().contains("sub/vault") && error.to_string().contains("team, s2/disks"), "{error}");
    refused_of(&request(&[("subscriptionID", "s2"), ("resourceGroup", "team")]), &restricted, "resourceGroup");
}

#[test]
fn a_fixed_disk_name_warns_and_a_template_does_not() {
    let fixed = plan(&[("diskName", "the-disk")]);
    assert_eq!((fixed.disk.name(), fixed.warnings.len()), ("the-disk", 1));
    let pairs = [("diskName", "d-${pvc.metadata.name}"), ("csi.storage.k8s.io/pvc/name", "data")];
    let filled = plan(&pairs);
    assert_eq!((filled.disk.name(), filled.warnings.len()), ("d-data", 0));
    assert_eq!(filled.volume_context["diskName"], "d-${pvc.metadata.name}");
}

#[test]
fn an_invalid_disk_name_is_not_replaced_by_a_new_one_on_every_try() {
    refused(&[("diskName", "my disk")], "diskName");
}

#[test]
fn max_shares_follow_the_disk() {
    assert_eq!(spec(&[("maxShares", "3"), ("skuName", "Premium_LRS")]).max_shares, 3);
    assert_eq!(spec(&[("maxShares", "15"), ("skuName", "UltraSSD_LRS")]).max_shares, 15);
    for value in ["0", "-1", "4", "two", "1.0"] {
        let error = refused(&[("maxShares", value), ("skuName", "Premium_LRS")], "maxShares");
        assert!(error.to_string().contains("from 1 to 3"), "{error}");
    }
    refused(&[("maxShares", "2"), ("skuName", "Standard_LRS")], "maxShares");
}

#[test]
fn several_nodes_may_write_only_to_a_shared_raw_device() {
    let with = |capability: Capability, shares| Request {
        capabilities: vec![capability],
        ..request(&[("maxShares", shares), ("skuName", "Premium_LRS")])
    };
    let many = AccessMode::MultiNodeMultiWriter;
    plan_of(&with(Capability::block(many), "2"));
    let error = plan_create(&with(Capability::block(many), "1"), &defaults()).unwrap_err();
    assert_eq!((error.parameter.as_str(), error.value.as_str()), ("volumeCapabilities", "MULTI_NODE_MULTI_WRITER"));
    let mounted = Capability { access_mode: many, ..Capability::mounted() };
    assert!(plan_create(&with(mounted, "2"), &defaults()).unwrap_err().to_string().contains("volumeMode: Block"));
}

#[test]
fn operations_and_throughput_are_for_disks_that_have_their_own() {
    let ultra = ("skuName", "UltraSSD_LRS");
    let spec = spec(&[ultra, ("DiskIOPSReadWrite", "2000"), ("DiskMBpsReadWrite", "320")]);
    assert_eq!((spec.iops, spec.mbps), (Some(2000), Some(320)));
    for parameter in ["DiskIOPSReadWrite", "DiskMBpsReadWrite", "LogicalSectorSize"] {
        let error = refused(&[(parameter, "512")], parameter);
        assert!(error.to_string().contains("UltraSSD_LRS and PremiumV2_LRS"), "{error}");
        refused(&[(parameter, "many"), ultra], parameter);
    }
}

#[test]
fn operations_and_throughput_stay_in_what_azure_takes() {
    let of = |sku: &str, gib: i64, iops: &str, mbps: &str| {
        let mut pairs = vec![("skuName", sku)];
        if !iops.is_empty() {
            pairs.push(("DiskIOPSReadWrite", iops));
        }
        if !mbps.is_empty() {
            pairs.push(("DiskMBpsReadWrite", mbps));
        }
        plan_create(&sized(gib, &pairs), &defaults()).map(|plan| (plan.spec.iops, plan.spec.mbps))
    };
    let (ultra, v2) = ("UltraSSD_LRS", "PremiumV2_LRS");
    for (sku, gib, iops, mbps, expected) in [
        (ultra, 4, "", "", (Some(500), Some(100))),
        (ultra, 4, "100", "", (Some(100), Some(25))),
        (ultra, 4, "4000", "1000", (Some(4000), Some(1000))),
        (ultra, 65536, "400000", "10000", (Some(400_000), Some(10_000))),
        (ultra, 1024, "", "50", (Some(1024), Some(50))),
        (v2, 1, "", "", (None, None)),
        (v2, 1, "3000", "750", (Some(3000), Some(750))),
        (v2, 160, "80000", "2000", (Some(80_000), Some(2_000))),
        (v2, 10, "", "750", (None, Some(750))),
    ] {
        assert_eq!(of(sku, gib, iops, mbps), Ok(expected), "{sku} {gib} {iops} {mbps}");
    }
    for (sku, gib, iops, mbps, range) in [
        (ultra, 4, "99", "", "from 100 to 4000"),
        (ultra, 4, "4001", "", "from 100 to 4000"),
        (ultra, 1024, "1000", "", "from 1024 to 400000"),
        (ultra, 4, "400", "101", "from 1 to 100"),
        (ultra, 4, "400", "0", "from 1 to 100"),
        (v2, 6, "3001", "", "from 1 to 3000"),
        (v2, 1024, "80001", "", "from 1 to 80000"),
        (v2, 10, "", "751", "from 1 to 750"),
        (v2, 1024, "80000", "2001", "from 1 to 2000"),
    ] {
        let error = of(sku, gib, iops, mbps).unwrap_err();
        assert!(error.to_string().contains(range), "{error}");
    }
}

#[test]
fn a_logical_sector_has_512_or_4096_bytes() {
    for (value, size) in [("512", 512), ("4096", 4096)] {
        let spec = spec(&[("skuName", "PremiumV2_LRS"), ("LogicalSectorSize", value)]);
        assert_eq!(spec.logical_sector_size, Some(size));
    }
    refused(&[("skuName", "PremiumV2_LRS"), ("LogicalSectorSize", "1024")], "LogicalSectorSize");
}

#[test]
fn an_encryption_set_brings_its_type() {
    let spec1 = spec(&[("diskEncryptionSetID", DES)]);
    assert_eq!(spec1.disk_encryption_set, DES.parse::<ArmId>().ok());
    assert_eq!(spec1.encryption_type, Some(EncryptionType::CustomerKey));
    for encryption_type in EncryptionType::ALL {
        let pairs = [("diskEncryptionSetID", DES), ("diskEncryptionType", encryption_type.as_str())];
        assert_eq!(spec(&pairs).encryption_type, Some(*encryption_type));
    }
    refused(&[("diskEncryptionSetID", DES), ("diskEncryptionType", "aes")], "diskEncryptionType");
}

#[test]
fn a_wrong_encryption_set_is_the_users_mistake() {
    for value in ["keys", "/subscriptions/s", ACCESS] {
        let error = refused(&[("diskEncryptionSetID", value)], "diskEncryptionSetID");
        assert!(error.to_string().contains("Microsoft.Compute/diskEncryptionSets"), "{error}");
    }
}

#[test]
fn an_encryption_type_without_a_set_is_the_users_mistake() {
    refused(&[("diskEncryptionType", "EncryptionAtRestWithCustomerKey")], "diskEncryptionType");
}

#[test]
fn the_network_is_closed_unless_the_class_opens_it() {
    let open = spec(&[("networkAccessPolicy", "AllowAll"), ("publicNetworkAccess", "Enabled")]);
    assert_eq!(open.network_access_policy, Some(NetworkAccessPolicy::AllowAll));
    assert_eq!(open.public_network_access, Some(PublicNetworkAccess::Enabled));
    let private = spec(&[("networkAccessPolicy", "AllowPrivate"), ("diskAccessID", ACCESS)]);
    assert_eq!(private.disk_access, ACCESS.parse::<ArmId>().ok());
    refused(&[("networkAccessPolicy", "allowall")], "networkAccessPolicy");
    refused(&[("publicNetworkAccess", "enabled")], "publicNetworkAccess");
}

#[test]
fn private_access_and_its_disk_access_come_together_or_are_refused() {
    refused(&[("networkAccessPolicy", "AllowPrivate")], "networkAccessPolicy");
    refused(&[("networkAccessPolicy", "DenyAll"), ("diskAccessID", ACCESS)], "diskAccessID");
    refused(&[("diskAccessID", ACCESS)], "diskAccessID");
    refused(&[("networkAccessPolicy", "AllowPrivate"), ("diskAccessID", DES)], "diskAccessID");
}

#[test]
fn the_write_accelerator_is_a_tag() {
    let tags = spec(&[("writeAcceleratorEnabled", "True"), ("skuName", "Premium_LRS")]).tags;
    assert_eq!(tags["writeacceleratorenabled"], "true");
    assert_eq!(spec(&[("writeAcceleratorEnabled", "yes")]).tags, spec(&[]).tags);
    refused(&[("writeAcceleratorEnabled", "true")], "writeAcceleratorEnabled");
}

#[test]
fn an_advanced_profile_needs_settings_that_stay_on_the_device() {
    plan(&[("perfProfile", "Basic")]);
    plan(&[("perfProfile", "advanced"), ("device-setting/queue/scheduler", "none")]);
    refused(&[("perfProfile", "advanced")], "perfProfile");
    refused(&[("perfProfile", "fast")], "perfProfile");
    for key in ["device-setting/../../../etc/passwd", "device-setting/device/delete"] {
        let error = refused(&[(key, "1")], key);
        assert!(error.to_string().contains("allowed under /sys/block/<device>/ are the files below queue/"), "{error}");
    }
}

#[test]
fn bursting_needs_a_premium_disk_of_more_than_512_gib() {
    let premium = ("skuName", "Premium_LRS");
    let large = plan_of(&sized(513, &[premium, ("enableBursting", "true")]));
    assert_eq!(large.spec.bursting_enabled, Some(true));
    let error = refused_of(&sized(512, &[premium, ("enableBursting", "true")]), &defaults(), "enableBursting");
    assert!(error.to_string().contains("more than 512 GiB"), "{error}");
    refused_of(&sized(513, &[("enableBursting", "true")]), &defaults(), "enableBursting");
    assert_eq!(spec(&[("enableBursting", "false")]).bursting_enabled, None);
    assert_eq!(plan(&[("enableBursting", "on")]).warnings.len(), 1);
}

#[test]
fn performance_plus_raises_the_size_and_says_so() {
    let plan = plan(&[("enablePerformancePlus", "true")]);
    assert_eq!((plan.size, plan.spec.performance_plus), (Gib::new(513), Some(true)));
    assert_eq!(plan.volume_context["requestedsizegib"], "513");
    assert!(plan.warnings[0].contains("513 GiB instead of 10 GiB"), "{:?}", plan.warnings);
    assert_eq!(spec(&[("enablePerformancePlus", "F")]).performance_plus, None);
    refused(&[("enablePerformancePlus", "yes")], "enablePerformancePlus");
    refused(&[("enablePerformancePlus", "true"), ("skuName", "UltraSSD_LRS")], "enablePerformancePlus");
    let limited = Request { limit_bytes: 512 * GIB, ..request(&[("enablePerformancePlus", "true")]) };
    assert_eq!(plan_create(&limited, &defaults()).unwrap_err().kind(), ParameterErrorKind::OutOfRange);
}

#[test]
fn a_disk_that_azure_never_caches_takes_no_caching_mode() {
    for sku in ["PremiumV2_LRS", "UltraSSD_LRS"] {
        plan(&[("skuName", sku), ("cachingMode", "None")]);
        refused(&[("skuName", sku), ("cachingMode", "ReadOnly")], "cachingMode");
    }
    let shared = [("skuName", "Premium_LRS"), ("maxShares", "2")];
    plan(&[shared[0], shared[1], ("cachingMode", "None")]);
    refused(&[shared[0], shared[1], ("cachingMode", "ReadOnly")], "cachingMode");
    refused(&[("cachingMode", "readonly")], "cachingMode");
    refused(&[("cachingMode", "Full")], "cachingMode");
    let large = plan_of(&sized(4096, &[("cachingMode", "ReadOnly")]));
    assert_eq!(large.warnings.len(), 1);
    assert!(plan_of(&sized(4095, &[("cachingMode", "ReadOnly")])).warnings.is_empty());
}

#[test]
fn premium_v2_is_written_down_as_uncached() {
    let context = plan(&[("skuName", "PremiumV2_LRS")]).volume_context;
    let expected = [("cachingmode", "None"), ("requestedsizegib", "10"), ("skuName", "PremiumV2_LRS")];
    assert_eq!(context, map(&expected));
    let spelled = plan(&[("skuName", "PremiumV2_LRS"), ("cachingMode", "None")]).volume_context;
    assert_eq!(spelled.keys().collect::<Vec<_>>(), ["cachingMode", "requestedsizegib", "skuName"]);
    assert!(!plan(&[("skuName", "UltraSSD_LRS")]).volume_context.contains_key("cachingmode"));
}

#[test]
fn azure_stack_has_two_kinds_of_disks_no_shares_and_no_network_policy() {
    let plan = plan_create(&request(&[]), &stack()).unwrap();
    assert_eq!(plan.spec.sku, SkuName::StandardLrs);
    assert_eq!((plan.spec.network_access_policy, plan.spec.public_network_access), (None, None));
    let open = plan_create(&request(&[("networkAccessPolicy", "AllowAll")]), &stack()).unwrap();
    assert_eq!((open.spec.network_access_policy, open.warnings.len()), (None, 1));
    assert!(plan_create(&request(&[("skuName", "Premium_LRS")]), &stack()).is_ok());
    let error = refused_of(&request(&[("skuName", "StandardSSD_LRS")]), &stack(), "skuName");
    assert!(error.to_string().contains("Standard_LRS, Premium_LRS"), "{error}");
    let shared = request(&[("skuName", "Premium_LRS"), ("maxShares", "2")]);
    assert!(refused_of(&shared, &stack(), "maxShares").to_string().contains("Azure Stack"));
    assert!(plan_create(&request(&[("maxShares", "1")]), &stack()).is_ok());
}

#[test]
fn a_refusal_is_one_sentence_with_parameter_value_and_what_is_allowed() {
    let error = |request: &Request| plan_create(request, &defaults()).unwrap_err().to_string();
    let mut sentences: Vec<String> = [
        &[("skuName", "premium_lrs")][..],
        &[("skuName", "Premium_LRS"), ("storageAccountType", "Standard_LRS")],
        &[("Kind", "x"), ("kind", "x")],
        &[("subscriptionID", "s2")],
        &[("DiskIOPSReadWrite", "500")],
        &[("skuName", "UltraSSD_LRS"), ("DiskIOPSReadWrite", "50")],
        &[("maxShares", "9")],
        &[("tags", "a")],
        &[("diskName", "a b")],
        &[("diskEncryptionSetID", "x")],
        &[("networkAccessPolicy", "AllowPrivate")],
        &[("storageAccount", "x")],
        &[("fsType", "ntfs")],
        &[("perfProfile", "advanced")],
    ]
    .into_iter()
    .map(|pairs| error(&request(pairs)))
    .collect();
    sentences.push(error(&Request { limit_bytes: GIB, ..request(&[]) }));
    let shared = Capability { access_mode: AccessMode::MultiNodeMultiWriter, ..Capability::mounted() };
    sentences.push(error(&Request { capabilities: vec![shared], ..request(&[]) }));
    sentences.push(error(&Request { capabilities: vec![], ..request(&[]) }));
    insta::assert_snapshot!(sentences.join("\n"), @r#"
    parameter skuName is "premium_lrs": allowed are Standard_LRS, StandardSSD_LRS, StandardSSD_ZRS, Premium_LRS, Premium_ZRS, PremiumV2_LRS, UltraSSD_LRS, in exactly this spelling
    parameter storageAccountType is "Standard_LRS": skuName names the same thing and is "Premium_LRS"; allowed is one of the two, or the same value for both
    parameter kind is "x": it is given twice, also as Kind with "x"; allowed is one spelling
    parameter subscriptionID is "s2": another subscription than the cluster's (sub) is allowed only together with resourceGroup, which is not given
    parameter DiskIOPSReadWrite is "500": allowed only with UltraSSD_LRS and PremiumV2_LRS, and this disk is StandardSSD_LRS
    parameter DiskIOPSReadWrite is "50": allowed for UltraSSD_LRS of 10 GiB is a whole number from 100 to 10000
    parameter maxShares is "9": allowed for this disk (StandardSSD_LRS, 10 GiB) is a whole number from 1 to 3
    parameter tags is "a": "a" is no tag; allowed is key1=value1,key2=value2, separated by "," (tagValueDelimiter)
    parameter diskName is "a b": allowed are 1 to 80 letters, digits, '_', '.' and '-', starting with a letter or digit and ending with a letter, digit or '_'
    parameter diskEncryptionSetID is "x": allowed is /subscriptions/{subscription}/resourceGroups/{group}/providers/Microsoft.Compute/diskEncryptionSets/{name}
    parameter networkAccessPolicy is "AllowPrivate": allowed only together with diskAccessID, which is not given
    parameter storageAccount is "x": it asks for a VHD blob disk, and this disk is a managed one; allowed is to leave it out
    parameter fsType is "ntfs": allowed are ext4, ext3, ext2, xfs, btrfs
    parameter perfProfile is "advanced": it needs at least one parameter device-setting/<path under /sys/block/<device>/>
    parameter limit_bytes is "1073741824": the smallest StandardSSD_LRS disk for the 10737418240 bytes required has 10 GiB (10737418240 bytes)
    parameter volumeCapabilities is "MULTI_NODE_MULTI_WRITER": the access mode MULTI_NODE_MULTI_WRITER is not supported for a mounted filesystem; several nodes can share a disk only as a raw block volume (volumeMode: Block) with maxShares of 2 or more
    parameter volumeCapabilities is "": no volume capability is given; at least one is required
    "#);
}

#[test]
fn an_unknown_key_of_a_class_of_attributes_lists_the_attributes_and_one_of_a_storage_class_its_parameters() {
    let of = |fixed: &[(&str, &str)], mutable: &[(&str, &str)]| {
        let request = Request { mutable_parameters: map(mutable), ..request(fixed) };
        plan_create(&request, &defaults()).unwrap_err().to_string()
    };
    let refused = of(&[], &[("iops", "1")]);
    assert!(refused.contains("allowed are diskAccessID, ") && !refused.contains("cachingMode"), "{refused}");
    let refused = of(&[("iops", "1")], &[]);
    assert!(refused.contains("cachingMode") && refused.contains("device-setting"), "{refused}");
}

#[test]
fn a_location_that_is_no_name_of_a_region_is_refused() {
    let error = plan_create(&request(&[("location", "west-europe")]), &defaults()).unwrap_err();
    assert_eq!((error.parameter.as_str(), error.value.as_str()), ("location", "west-europe"));
    assert!(plan_create(&request(&[("location", "West Europe")]), &defaults()).is_ok());
}
