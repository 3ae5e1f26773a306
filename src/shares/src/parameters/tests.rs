use super::*;
use proptest::prelude::*;

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn defaults() -> Defaults {
    Defaults {
        subscription: "sub".into(),
        resource_group: "group".into(),
        location: "local".into(),
        storage_endpoint_suffix: "core.windows.net".into(),
        vnet_name: "vnet".into(),
        driver_name: "file.csi.azure.com".into(),
        ..Defaults::default()
    }
}

fn parse(pairs: &[(&str, &str)]) -> Result<ShareClass, ParameterError> {
    ShareClass::parse(&map(pairs), &BTreeMap::new(), &defaults())
}

#[track_caller]
fn refused(pairs: &[(&str, &str)], key: &str, says: &str) {
    let error = parse(pairs).unwrap_err();
    assert_eq!(error.parameter, key, "{error}");
    assert!(error.to_string().contains(says), "{error}");
    assert_eq!(error.code(), lazuli_model::fault::Code::InvalidArgument);
}

#[test]
fn a_class_that_says_nothing_asks_for_what_the_go_driver_makes() {
    let class = parse(&[]).unwrap();
    assert_eq!((class.sku, class.location.as_deref()), (None, None));
    assert_eq!((class.subscription.as_str(), class.resource_group.as_str()), ("sub", "group"));
    assert_eq!(class.account, AccountSource::Matching { pick: Pick::First, by_tags: false });
    assert_eq!(class.share, ShareNaming::Generated { prefix: None });
    assert!(!class.allow_blob_public_access);
    assert_eq!(
        class.key,
        KeyStorage { store: true, latest: false, secret_name: None, secret_namespace: "default".into() }
    );
    assert_eq!(class.tags, map(&[("k8s-azure-created-by", "azure")]));
    assert_eq!(class.storage_endpoint_suffix, "core.windows.net");
    assert_eq!((class.endpoint, class.warnings), (Endpoint::Any, Vec::<String>::new()));
}

#[test]
fn keys_have_no_letter_case_and_values_have() {
    let class = parse(&[("SKUNAME", "Premium_LRS"), ("ShareNamePrefix", "team"), ("MATCHTAGS", "True")]).unwrap();
    assert_eq!(class.sku, Some(StorageSku::PremiumLrs));
    assert_eq!(class.share, ShareNaming::Generated { prefix: Some("team".into()) });
    assert_eq!(class.account, AccountSource::Matching { pick: Pick::First, by_tags: true });
    refused(&[("skuName", "premium_lrs")], "skuName", "PremiumV2_ZRS, in exactly this spelling");
    refused(&[("tags", "a=b"), ("Tags", "a=b")], "tags", "given twice");
}

#[test]
fn every_sku_of_the_go_driver_is_taken() {
    for sku in StorageSku::ALL {
        assert_eq!(parse(&[("storageAccountType", sku.as_str())]).unwrap().sku, Some(*sku));
    }
    assert!(parse(&[("skuName", "Standard_LRS"), ("storageAccountType", "Standard_LRS")]).is_ok());
    refused(&[("skuName", "Standard_LRS"), ("storageAccountType", "Standard_ZRS")], "storageAccountType", "same thing");
    refused(&[("shareAccessTier", "Hot"), ("accessTier", "Cool")], "accessTier", "same thing");
}

#[test]
fn an_unknown_parameter_is_refused_and_the_one_that_was_meant_is_named() {
    refused(&[("skuname2", "x")], "skuname2", "did you mean skuName?");
    refused(&[("colour", "blue")], "colour", "allowed are accessTier");
    let error = parse(&[("colour", "blue")]).unwrap_err();
    assert!(!error.allowed.contains("did you mean"), "{error}");
    for key in known::all_for_tests() {
        assert!(error.allowed.contains(key) || key.starts_with("csi"), "{key}");
    }
}

#[test]
fn what_is_not_done_is_refused_with_the_reason() {
    for (key, value, says) in [
        ("protocol", "nfs", "NFS"),
        ("protocol", "SMB", "allowed is smb"),
        ("fsType", "nfs", "NFS"),
        ("fsType", "ext4", "VHD"),
        ("fsType", "xfs", "VHD"),
        ("fsType", "btrfs", "allowed are cifs and smb"),
        ("diskName", "d.vhd", "VHD"),
        ("mountWithManagedIdentity", "true", "Kerberos"),
        ("mountWithWorkloadIdentityToken", "1", "Kerberos"),
        ("mountWithOAuthToken", "T", "Kerberos"),
        ("clientID", "c", "identity of a workload"),
        ("tenantID", "c", "identity of a workload"),
        ("confidentialContainerLabel", "x", "confidential"),
        ("runtimeClassHandler", "kata-cc", "confidential"),
        ("rootSquashType", "NoRootSquash", "only NFS"),
        ("allowSharedKeyAccess", "false", "key of its account"),
        ("useDataPlaneAPI", "yes", "true, false and oauth"),
    ] {
        refused(&[(key, value)], key, says);
    }
    for (key, value) in [
        ("protocol", "smb"),
        ("fsType", "cifs"),
        ("fsType", "smb"),
        ("mountWithManagedIdentity", "false"),
        ("clientID", ""),
        ("allowSharedKeyAccess", "true"),
        ("useDataPlaneAPI", "false"),
        ("encryptInTransit", "false"),
    ] {
        assert_eq!(parse(&[(key, value)]).unwrap().warnings, Vec::<String>::new(), "{key}");
    }
    for (key, value) in [("useDataPlaneAPI", "oauth"), ("useDataPlaneAPI", "True"), ("encryptInTransit", "true")] {
        assert_eq!(parse(&[(key, value)]).unwrap().warnings.len(), 1, "{key}");
    }
}

#[test]
fn a_boolean_is_one() {
    for key in [
        "enableLargeFileShares",
        "disableDeleteRetentionPolicy",
        "allowBlobPublicAccess",
        "allowSharedKeyAccess",
        "allowCrossTenantReplication",
        "requireInfraEncryption",
        "enableMultichannel",
        "selectRandomMatchingAccount",
        "getLatestAccountKey",
        "encryptInTransit",
        "createFolderIfNotExist",
        "mountWithManagedIdentity",
        "mountWithWorkloadIdentityToken",
        "mountWithOAuthToken",
    ] {
        refused(&[(key, "yes")], key, "true and false");
    }
    let class = parse(&[
        ("enableLargeFileShares", "true"),
        ("disableDeleteRetentionPolicy", "f"),
        ("allowBlobPublicAccess", "1"),
        ("allowCrossTenantReplication", "0"),
        ("requireInfraEncryption", "TRUE"),
        ("selectRandomMatchingAccount", "True"),
        ("getLatestAccountKey", "t"),
    ])
    .unwrap();
    assert_eq!((class.large_file_shares, class.disable_delete_retention), (Some(true), Some(false)));
    assert!(class.allow_blob_public_access && class.key.latest);
    assert_eq!(class.allow_cross_tenant_replication, Some(false));
    assert_eq!(class.require_infrastructure_encryption, Some(true));
    assert_eq!(class.account, AccountSource::Matching { pick: Pick::Random, by_tags: false });
}

#[test]
fn an_account_is_named_made_or_matched() {
    let named = |create| AccountSource::Named { name: "acct1".into(), create };
    assert_eq!(parse(&[("storageAccount", "acct1")]).unwrap().account, named(false));
    assert_eq!(parse(&[("storageAccount", "acct1"), ("createAccount", "true")]).unwrap().account, named(true));
    assert_eq!(parse(&[("createAccount", "TRUE")]).unwrap().account, AccountSource::Own);
    assert!(matches!(parse(&[("createAccount", "yes")]).unwrap().account, AccountSource::Matching { .. }));
    refused(&[("storageAccount", "acct1"), ("matchTags", "true")], "storageAccount", "matchTags");
    for name in ["ab", "Acct", "a-b", "a#b", &"a".repeat(25)] {
        refused(&[("storageAccount", name)], "storageAccount", "3 to 24");
    }
}

#[test]
fn another_subscription_needs_a_resource_group() {
    refused(&[("subscriptionID", "other")], "subscriptionID", "resourceGroup");
    let class = parse(&[("subscriptionID", "other"), ("resourceGroup", "theirs")]).unwrap();
    assert_eq!((class.subscription.as_str(), class.resource_group.as_str()), ("other", "theirs"));
    assert_eq!(parse(&[("subscriptionID", "SUB")]).unwrap().resource_group, "group");
    for (key, value) in [("resourceGroup", "a/b"), ("resourceGroup", "a#b"), ("subscriptionID", "a#b")] {
        refused(&[(key, value)], key, "without '/', '#'");
    }
}

#[test]
fn an_account_quota_is_at_least_100_and_100_counts() {
    assert_eq!(parse(&[("accountQuota", "100")]).unwrap().account_quota, Some(Gib::new(100)));
    for quota in ["99", "-100", "x", "2147483648", "1e3"] {
        refused(&[("accountQuota", quota)], "accountQuota", "from 100");
    }
}

#[test]
fn multichannel_needs_an_account_on_ssd() {
    for sku in ["Premium_LRS", "PremiumV2_ZRS"] {
        assert_eq!(parse(&[("enableMultichannel", "true"), ("skuName", sku)]).unwrap().multichannel, Some(true));
    }
    for pairs in
        [&[("enableMultichannel", "true")][..], &[("enableMultichannel", "true"), ("skuName", "StandardV2_LRS")]]
    {
        refused(pairs, "enableMultichannel", "SSD");
    }
    assert_eq!(parse(&[("enableMultichannel", "false")]).unwrap().multichannel, Some(false));
    assert!(parse(&[("enableMultichannel", "true"), ("storageAccount", "acct1")]).is_ok());
    refused(
        &[("enableMultichannel", "true"), ("storageAccount", "acct1"), ("createAccount", "true")],
        "enableMultichannel",
        "SSD",
    );
}

#[test]
fn access_tiers_are_names_that_fit_the_sku() {
    assert_eq!(parse(&[("accessTier", "Hot")]).unwrap().share_access_tier, Some(ShareAccessTier::Hot));
    assert_eq!(parse(&[("accountAccessTier", "Cool")]).unwrap().account_access_tier, Some(AccountAccessTier::Cool));
    refused(&[("shareAccessTier", "hot")], "shareAccessTier", "exactly this spelling");
    refused(&[("accountAccessTier", "Archive")], "accountAccessTier", "Hot, Cool, Cold, Premium");
    refused(&[("shareAccessTier", "Hot"), ("skuName", "Premium_LRS")], "shareAccessTier", "allowed is Premium");
    refused(&[("shareAccessTier", "Premium"), ("skuName", "Standard_LRS")], "shareAccessTier", "Cool");
    refused(&[("shareAccessTier", "Premium"), ("createAccount", "true")], "shareAccessTier", "Cool");
    assert!(parse(&[("shareAccessTier", "Premium"), ("storageAccount", "acct")]).is_ok());
    assert!(parse(&[("shareAccessTier", "Premium"), ("skuName", "Premium_ZRS")]).is_ok());
    refused(&[("publicNetworkAccess", "disabled")], "publicNetworkAccess", "SecuredByPerimeter");
}

#[test]
fn performance_is_provisioned_for_v2_skus_alone_and_within_their_limits() {
    for (sku, key, least, most) in [
        ("StandardV2_LRS", "provisionedIOPS", 500, 50_000),
        ("StandardV2_LRS", "provisionedBandwidth", 60, 5_120),
        ("PremiumV2_LRS", "provisionedIOPS", 3_000, 102_400),
        ("PremiumV2_LRS", "provisionedBandwidth", 100, 10_340),
    ] {
        for number in [least, most] {
            let class = parse(&[("skuName", sku), (key, &number.to_string())]).unwrap();
            assert!([class.iops, class.bandwidth].contains(&Some(number)), "{sku} {key}");
        }
        for number in [least - 1, most + 1] {
            refused(&[("skuName", sku), (key, &number.to_string())], key, &format!("from {least} to {most}"));
        }
        refused(&[("skuName", sku), (key, "-1")], key, "whole numbers");
        for sku in ["Standard_LRS", "Premium_LRS"] {
            refused(&[("skuName", sku), (key, &least.to_string())], key, "size alone");
        }
    }
    assert_eq!(parse(&[("provisionedIOPS", "500")]).unwrap().iops, Some(500));
    refused(&[("provisionedIOPS", "499")], "provisionedIOPS", "from 500 to 102400");
}

#[test]
fn a_volume_attributes_class_changes_performance_and_nothing_else() {
    let over = |pairs: &[(&str, &str)]| {
        ShareClass::parse(&map(&[("skuName", "StandardV2_LRS"), ("provisionediops", "600")]), &map(pairs), &defaults())
    };
    assert_eq!(over(&[("ProvisionedIOPS", "700")]).unwrap().iops, Some(700));
    assert_eq!(over(&[]).unwrap().iops, Some(600));
    let error = over(&[("skuName", "PremiumV2_LRS")]).unwrap_err();
    assert_eq!((error.parameter.as_str(), error.value.as_str()), ("skuName", "PremiumV2_LRS"));
    assert!(error.allowed.contains("provisionedIOPS, provisionedBandwidth"), "{error}");
}

#[test]
fn templates_are_filled_in_names_and_tags() {
    let metadata = [
        ("csi.storage.k8s.io/pvc/name", "data-db-0"),
        ("csi.storage.k8s.io/pvc/namespace", "db"),
        ("csi.storage.k8s.io/pv/name", "pvc-1"),
    ];
    let given = [
        ("shareName", "${pvc.metadata.namespace}-${pvc.metadata.name}"),
        ("folderName", "x/${pv.metadata.name}"),
        ("secretName", "key-of-${pvc.metadata.name}"),
        ("secretNamespace", "${pvc.metadata.namespace}"),
        ("tags", "team=${pvc.metadata.namespace}"),
    ];
    let class = parse(&[&metadata[..], &given[..]].concat()).unwrap();
    assert_eq!(class.share, ShareNaming::Named("db-data-db-0".into()));
    assert_eq!(class.key.secret_name.as_deref(), Some("key-of-data-db-0"));
    assert_eq!(class.key.secret_namespace, "db");
    assert_eq!(class.tags["team"], "db");
    for (key, value) in given {
        refused(&[(key, value)], key, "--extra-create-metadata");
    }
    assert_eq!(parse(&metadata).unwrap().key.secret_namespace, "db");
}

#[test]
fn names_are_checked_before_anything_is_made() {
    refused(&[("shareName", "a")], "shareName", "3 to 63");
    refused(&[("shareName", "a_b")], "shareName", "3 to 63");
    assert_eq!(parse(&[("shareName", "Data")]).unwrap().warnings.len(), 1);
    for prefix in ["-a", "A", "a_b", &"a".repeat(21)] {
        refused(&[("shareNamePrefix", prefix)], "shareNamePrefix", "1 to 20");
    }
    refused(&[("folderName", "a/../b")], "folderName", "..");
    refused(&[("server", "/etc")], "server", "server");
    refused(&[("storageEndpointSuffix", "a/b")], "storageEndpointSuffix", "server");
    refused(&[("secretName", "A b")], "secretName", "Secret");
    for namespace in ["a.b", "A", "a b", &"a".repeat(64)] {
        refused(&[("secretNamespace", namespace)], "secretNamespace", "namespace");
    }
    refused(&[("mountPermissions", "0888")], "mountPermissions", "octal");
    assert!(parse(&[("mountPermissions", "0")]).is_ok());
    refused(&[("fsGroupChangePolicy", "Sometimes")], "fsGroupChangePolicy", "OnRootMismatch");
}

#[test]
fn the_drivers_own_tags_cannot_be_set() {
    let class = parse(&[("tags", "K8S-azure-created-by=me,Skip-Matching=,team=x")]).unwrap();
    assert_eq!(class.tags, map(&[("k8s-azure-created-by", "azure"), ("team", "x")]));
    assert_eq!(class.warnings.len(), 2);
    let class = parse(&[("tags", "a=1,2;b=3"), ("tagValueDelimiter", ";")]).unwrap();
    assert_eq!((class.tags["a"].as_str(), class.tags["b"].as_str()), ("1,2", "3"));
    refused(&[("tags", "a")], "tags", "is no tag");
    let long = |count: usize| format!("t={}", "x".repeat(count));
    assert_eq!(parse(&[("tags", &long(256))]).unwrap().tags["t"].len(), 256);
    refused(&[("tags", &long(257))], "tags", "256 characters");
    let many = |count: usize| (0..count).map(|n| format!("t{n}=x")).collect::<Vec<_>>().join(",");
    assert_eq!(parse(&[("tags", &many(49))]).unwrap().tags.len(), 50);
    refused(&[("tags", &many(50))], "tags", "51 tags");
}

#[test]
fn an_account_key_is_stored_unless_the_class_says_false() {
    for (value, store) in [("false", false), ("False", false), ("true", true), ("no", true)] {
        let class = parse(&[("storeAccountKey", value)]).unwrap();
        assert_eq!(class.key.store, store, "{value}");
        let is_warned = class.warnings.iter().any(|warning| warning.contains("counts as true"));
        assert_eq!(is_warned, value == "no", "{value}: {:?}", class.warnings);
    }
}

#[test]
fn subnets_are_named_by_the_class_or_the_cloud() {
    let subnet = |group: &str, vnet: &str, name: &str| -> lazuli_model::ArmId {
        format!(
            "/subscriptions/sub/resourceGroups/{group}/providers/Microsoft.Network/virtualNetworks/{vnet}/subnets/{name}"
        )
        .parse()
        .unwrap()
    };
    let service = ("networkEndpointType", "serviceEndpoint");
    let class = parse(&[service, ("subnetName", "a, b,a"), ("vnetResourceGroup", "net"), ("vnetName", "v")]).unwrap();
    assert_eq!(class.endpoint, Endpoint::Subnets(vec![subnet("net", "v", "a"), subnet("net", "v", "b")]));
    refused(&[service], "networkEndpointType", "needs a subnet");
    refused(&[service, ("subnetName", "a/b")], "networkEndpointType", "needs a subnet");
    let cloud = Defaults { subnet_name: "nodes".into(), vnet_resource_group: "net".into(), ..defaults() };
    let class = ShareClass::parse(&map(&[service]), &BTreeMap::new(), &cloud).unwrap();
    assert_eq!(class.endpoint, Endpoint::Subnets(vec![subnet("net", "vnet", "nodes")]));
    refused(&[("networkEndpointType", "privateEndpoint"), ("subnetName", "a,b")], "subnetName", "one name");
    refused(&[("networkEndpointType", "public")], "networkEndpointType", "serviceEndpoint");
    refused(&[("privateDNSZoneResourceGroup", "g")], "privateDNSZoneResourceGroup", "privateEndpoint");
    let warnings = parse(&[("vnetLinkName", "l")]).unwrap().warnings;
    assert!(warnings.iter().any(|warning| warning.contains("vnetLinkName")), "{warnings:?}");
}

#[test]
fn the_zone_and_link_of_a_private_endpoint_are_named_as_by_the_go_driver() {
    let private = ("networkEndpointType", "PrivateEndpoint");
    let of = |pairs: &[(&str, &str)]| match parse(pairs).unwrap().endpoint {
        Endpoint::Private(network) => *network,
        other => panic!("{other:?}"),
    };
    let id = |group: &str, rest: &str| -> lazuli_model::ArmId {
        format!("/subscriptions/sub/resourceGroups/{group}/providers/Microsoft.Network/{rest}").parse().unwrap()
    };
    let network = of(&[private, ("subnetName", "nodes"), ("vnetResourceGroup", "net")]);
    assert_eq!(network.network, id("net", "virtualNetworks/vnet"));
    assert_eq!(network.subnet, id("net", "virtualNetworks/vnet/subnets/nodes"));
    assert_eq!(network.zone, id("net", "privateDnsZones/privatelink.file.core.windows.net"));
    assert_eq!(
        network.link,
        id("net", "privateDnsZones/privatelink.file.core.windows.net/virtualNetworkLinks/vnet-vnetlink")
    );
    let network = of(&[
        private,
        ("subnetName", "nodes"),
        ("vnetName", "v"),
        ("vnetLinkName", "l"),
        ("privateDNSZoneResourceGroup", "dns"),
        ("storageEndpointSuffix", "core.chinacloudapi.cn"),
    ]);
    assert_eq!(network.link, id("dns", "privateDnsZones/privatelink.file.core.chinacloudapi.cn/virtualNetworkLinks/l"));
    refused(&[private], "networkEndpointType", "needs a subnet");
    refused(
        &[private, ("subnetName", "a"), ("privateDNSZoneResourceGroup", "a/b")],
        "privateDNSZoneResourceGroup",
        "slash",
    );
    refused(&[private, ("subnetName", "a"), ("vnetLinkName", "a/b")], "vnetLinkName", "virtual network link");
}

proptest! {
    #[test]
    fn no_parameters_break_the_parser(
        pairs in proptest::collection::btree_map(
            prop_oneof![
                proptest::sample::select(known::all_for_tests().collect::<Vec<_>>())
                    .prop_map(str::to_owned),
                "\\PC{0,12}",
            ],
            prop_oneof![
                Just("true".to_owned()), Just("100".to_owned()), Just("Premium_LRS".to_owned()), Just("a=b".to_owned()),
                Just("acct".to_owned()), "\\PC{0,20}",
            ],
            0..6,
        ),
    ) {
        match ShareClass::parse(&pairs, &BTreeMap::new(), &defaults()) {
            Ok(class) => {
                prop_assert_eq!(class.written, pairs);
                let kept = class.tags.get(CREATED_BY.0).map(String::as_str);
                prop_assert_eq!(kept, Some(CREATED_BY.1));
            }
            Err(error) => {
                let given = pairs.iter().any(|(key, value)| *key == error.parameter && value.contains(&error.value));
                prop_assert!(given, "{error}");
            }
        }
    }
}

#[test]
fn a_class_names_only_the_resource_groups_that_are_allowed() {
    let list = ["team".parse().unwrap(), "s2/*".parse().unwrap()];
    let defaults = Defaults { allowed_resource_groups: AllowedResourceGroups::of(list.into()), ..defaults() };
    let parse = |pairs: &[(&str, &str)]| ShareClass::parse(&map(pairs), &BTreeMap::new(), &defaults);
    for pairs in [
        &[][..],
        &[("resourceGroup", "GROUP")],
        &[("resourceGroup", "Team")],
        &[("subscriptionID", "S2"), ("resourceGroup", "x")],
    ] {
        assert!(parse(pairs).is_ok(), "{pairs:?}");
    }
    let error = parse(&[("resourceGroup", "other")]).unwrap_err();
    assert_eq!(error.parameter, "resourceGroup");
    assert!(error.to_string().contains("team, s2/* (--allowed-resource-groups)"), "{error}");
    // What is made in the network is bound by the list too, but for the network of the cloud configuration.
    let network = |parameter: &str, group: &str| {
        let configured = Defaults {
            vnet_resource_group: "net".into(),
            vnet_name: "vnet".into(),
            subnet_name: "nodes".into(),
            ..defaults.clone()
        };
        let pairs = [("networkEndpointType", "privateEndpoint"), (parameter, group)];
        ShareClass::parse(&map(&pairs), &BTreeMap::new(), &configured)
    };
    for parameter in ["vnetResourceGroup", "privateDNSZoneResourceGroup"] {
        for group in ["NET", "Group", "team"] {
            assert!(network(parameter, group).is_ok(), "{parameter} {group}");
        }
        assert_eq!(network(parameter, "other").unwrap_err().parameter, parameter);
    }
}

/// What a class comes to, without what only a person reads and without the context, which repeats the class.
fn outcome(pairs: &[(&str, &str)]) -> String {
    let shown = parse(pairs).map(|class| ShareClass { written: BTreeMap::new(), warnings: Vec::new(), ..class });
    format!("{shown:?}")
}

#[test]
fn every_parameter_of_the_table_does_what_its_row_says() {
    use lazuli_model::reference::Effect;
    for row in PARAMETERS {
        // These say how others are read.
        let base: &[(&str, &str)] = match row.name {
            "tagValueDelimiter" => &[("tags", "a=1;b=2")],
            "csi.storage.k8s.io/pv/name" => &[("tags", "a=${pv.metadata.name}")],
            "csi.storage.k8s.io/pvc/name" => &[("tags", "a=${pvc.metadata.name}")],
            "vnetLinkName" => &[("networkEndpointType", "privateEndpoint"), ("subnetName", "s")],
            "vnetName" | "subnetName" | "vnetResourceGroup" => &[("networkEndpointType", "serviceEndpoint")],
            _ => &[],
        };
        let with = |value| outcome(&[base, &[(row.name, value)]].concat());
        let changes = with(row.example) != outcome(base) || with("\u{7}") != outcome(base);
        match row.effect {
            Effect::Used => assert!(changes, "{} counts", row.name),
            Effect::NoEffect => assert_eq!(with(row.example), outcome(base), "{}", row.name),
            Effect::Refused => refused(&[(row.name, row.example)], row.name, "allowed"),
        }
        if let Some(of) = row.alias_of {
            assert_eq!(with(row.example), outcome(&[(of, row.example)]), "{} is {of}", row.name);
        }
        let names = PARAMETERS.iter().filter(|other| other.name.eq_ignore_ascii_case(row.name));
        assert_eq!(names.count(), 1, "{}", row.name);
        assert!(row.meaning.ends_with('.') && !row.meaning.contains('|'), "{}", row.name);
    }
}
