use lazuli_model::{ShareAccessTier, fault::Code};
use proptest::prelude::*;

use super::*;

const GIB: i64 = 1 << 30;

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn defaults() -> Defaults {
    Defaults {
        subscription: "s".into(),
        resource_group: "g".into(),
        location: "local".into(),
        storage_endpoint_suffix: "core.windows.net".into(),
        driver_name: "file.csi.azure.com".into(),
        ..Defaults::default()
    }
}

fn request(pairs: &[(&str, &str)], required: i64, limit: i64) -> Request {
    Request {
        name: "pvc-1".into(),
        parameters: map(pairs),
        required_bytes: required,
        limit_bytes: limit,
        capabilities: vec![Capability { mode: AccessMode::MultiNodeMultiWriter, access: Access::Mount }],
        ..Request::default()
    }
}

fn plan(pairs: &[(&str, &str)], gib: i64) -> SharePlan {
    plan_create(&request(pairs, gib * GIB, 0), &defaults()).unwrap()
}

fn account() -> ArmId {
    ArmId::storage_account("s", "g", "f1").unwrap()
}

fn sku(name: &str) -> StorageSku {
    name.parse().unwrap()
}

#[test]
fn the_put_of_a_share_says_what_the_go_driver_says() {
    let plan = plan(&[("shareAccessTier", "Hot")], 5);
    let spec = plan.spec(StorageSku::StandardLrs).unwrap();
    assert_eq!(
        spec,
        ShareSpec {
            quota: Gib::new(5),
            protocol: None,
            access_tier: Some(ShareAccessTier::Hot),
            root_squash: None,
            provisioned_iops: None,
            provisioned_bandwidth: None,
            metadata: map(&[("createdBy", "file.csi.azure.com")]),
        }
    );
    assert_eq!((plan.share.as_str(), plan.is_read_first()), ("pvc-1", false));
}

#[test]
fn a_size_is_that_of_the_skus_and_within_the_callers_limit() {
    for (sku_name, required, limit, expected) in [
        ("Standard_LRS", 0, 0, Ok(100)),
        ("Standard_LRS", 1, 0, Ok(1)),
        ("Standard_LRS", GIB + 1, 0, Ok(2)),
        ("Standard_LRS", 0, 10 * GIB, Ok(10)),
        ("Standard_LRS", 0, 1, Err(LIMIT)),
        ("Standard_LRS", 102_400 * GIB, 0, Ok(102_400)),
        ("Standard_LRS", 102_401 * GIB, 0, Err(SIZE)),
        ("Standard_LRS", GIB + 1, GIB + 2, Err(LIMIT)),
        ("Premium_LRS", 5 * GIB, 0, Ok(100)),
        ("Premium_LRS", 5 * GIB, 100 * GIB, Ok(100)),
        ("Premium_LRS", 5 * GIB, 99 * GIB, Err(LIMIT)),
        ("Premium_LRS", 102_401 * GIB, 0, Err(SIZE)),
        ("StandardV2_LRS", 5 * GIB, 0, Ok(32)),
        ("PremiumV2_LRS", 33 * GIB, 0, Ok(33)),
        ("PremiumV2_LRS", 262_144 * GIB, 0, Ok(262_144)),
        ("PremiumV2_LRS", 262_145 * GIB, 0, Err(SIZE)),
        ("Standard_LRS", i64::MAX, 0, Err(SIZE)),
    ] {
        let planned = plan_create(&request(&[("skuName", sku_name)], required, limit), &defaults());
        match expected {
            Ok(gib) => {
                let spec = planned.unwrap().spec(sku(sku_name)).unwrap();
                assert_eq!(spec.quota, Gib::new(gib), "{sku_name} {required} {limit}");
            }
            Err(key) => {
                let error = planned.unwrap_err();
                assert_eq!((error.parameter.as_str(), error.code()), (key, Code::OutOfRange), "{error}");
            }
        }
    }
    for (required, limit) in [(-1, 0), (0, -1)] {
        let error = plan_create(&request(&[], required, limit), &defaults()).unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument);
    }
}

#[test]
fn the_sku_of_a_named_account_decides_where_the_class_says_none() {
    let plan = plan(&[("storageAccount", "acct1"), ("provisionedIOPS", "600")], 5);
    assert_eq!(plan.spec(sku("StandardV2_LRS")).unwrap().quota, Gib::new(32));
    assert_eq!(plan.spec(sku("Premium_LRS")).unwrap_err().parameter, "provisionedIOPS");
    let error = plan.spec(sku("PremiumV2_LRS")).unwrap_err();
    assert!(error.to_string().contains("3000 to 102400"), "{error}");
    // The class cannot be wrong for an account that is matched: its SKU is the default one.
    let error = plan_create(&request(&[("provisionedIOPS", "600")], 0, 0), &defaults()).unwrap_err();
    assert_eq!(error.parameter, "provisionedIOPS");
}

#[test]
fn performance_is_what_the_class_says_else_what_azure_recommends() {
    let spec = plan(&[("skuName", "PremiumV2_LRS"), ("provisionedBandwidth", "200")], 1_000);
    let spec = spec.spec(sku("PremiumV2_LRS")).unwrap();
    assert_eq!((spec.provisioned_iops, spec.provisioned_bandwidth), (Some(4_000), Some(200)));
}

#[test]
fn the_answer_is_that_of_the_go_driver() {
    let given = [
        ("SecretNamespace", ""),
        ("skuName", "Premium_LRS"),
        ("csi.storage.k8s.io/pvc/namespace", "db"),
        ("folderName", "x"),
    ];
    let answer = plan(&given, 5).answer(&account(), Gib::new(100)).unwrap();
    assert_eq!(answer.volume_id, "g#f1#pvc-1###db");
    assert_eq!(answer.capacity_bytes, 100 << 30);
    let mut expected = map(&given);
    expected.insert("SecretNamespace".into(), "db".into());
    assert_eq!(answer.volume_context, expected);
    let answer = plan(&[], 5).answer(&account(), Gib::new(5)).unwrap();
    assert_eq!(answer.volume_context, map(&[("secretnamespace", "default")]));
}

#[test]
fn a_share_that_the_class_names_has_the_request_in_its_volume_id_and_keeps_its_template() {
    let given = [
        ("shareName", "${pvc.metadata.name}"),
        ("csi.storage.k8s.io/pvc/name", "data"),
        ("subscriptionID", "other"),
        ("resourceGroup", "theirs"),
    ];
    let plan = plan(&given, 5);
    assert!(plan.is_read_first());
    let answer = plan.answer(&account(), Gib::new(5)).unwrap();
    assert_eq!(answer.volume_id, "theirs#f1#data##pvc-1#default#other");
    assert_eq!(answer.volume_context["shareName"], "${pvc.metadata.name}");
}

#[test]
fn an_account_with_a_private_endpoint_is_reached_by_its_private_name() {
    let given = [
        ("networkEndpointType", "privateEndpoint"),
        ("storageEndpointSuffix", "example.org"),
        ("vnetName", "vnet"),
        ("subnetName", "nodes"),
    ];
    let answer = plan(&given, 5).answer(&account(), Gib::new(5)).unwrap();
    assert_eq!(answer.volume_context["server"], "f1.privatelink.file.example.org");
}

#[test]
fn a_share_that_exists_is_used_unchanged_if_it_is_large_enough() {
    let plan = plan(&[("shareName", "data")], 5);
    let share = |gib| FileShare::smb("f1", "data", gib);
    assert_eq!(plan.adopt(&share(5)), Ok(Gib::new(5)));
    assert_eq!(plan.adopt(&share(7)), Ok(Gib::new(7)));
    let error = plan.adopt(&share(4)).unwrap_err();
    assert_eq!(error.code(), Code::AlreadyExists);
    assert!(error.to_string().contains("has 4 GiB, and the claim asks for 5 GiB"), "{error}");
    let nfs = FileShare { protocol: Some(ShareProtocol::Nfs), ..share(5) };
    assert_eq!(plan.adopt(&nfs), Err(ShareMismatch::NotSmb { share: "data".into() }));
    let limited = plan_create(&request(&[("shareName", "data")], 5 * GIB, 6 * GIB), &defaults()).unwrap();
    assert_eq!(limited.adopt(&share(6)), Ok(Gib::new(6)));
    assert!(matches!(limited.adopt(&share(7)), Err(ShareMismatch::TooLarge { .. })));
    // Not even a PUT that meets it changes it.
    let spec = plan.spec(StorageSku::StandardLrs).unwrap();
    let put = |share: &FileShare| plan.after_put(&spec, PutAnswer::Existed(share), Some(Gib::new(50)));
    assert_eq!(put(&share(7)), Ok(AfterPut::Done(Gib::new(7))));
    assert!(put(&share(4)).is_err());
}

#[test]
fn a_share_of_the_request_that_a_put_may_have_shrunk_gets_its_volumes_size_back() {
    let plan = plan(&[], 5);
    let spec = plan.spec(StorageSku::StandardLrs).unwrap();
    let share = |gib| FileShare::smb("f1", "pvc-1", gib);
    let after =
        |answer: PutAnswer<'_>, volume: Option<u32>| plan.after_put(&spec, answer, volume.map(Gib::new)).unwrap();
    let enlarge =
        |gib| AfterPut::Enlarge(ShareChange { quota: Some(Gib::new(gib)), ..ShareChange::default() }, Gib::new(gib));
    assert_eq!(after(PutAnswer::Created, None), AfterPut::Done(Gib::new(5)));
    assert_eq!(after(PutAnswer::Existed(&share(5)), None), AfterPut::Done(Gib::new(5)));
    assert_eq!(after(PutAnswer::Existed(&share(9)), None), AfterPut::Done(Gib::new(9)));
    assert_eq!(after(PutAnswer::Existed(&share(5)), Some(9)), enlarge(9));
    assert_eq!(after(PutAnswer::Existed(&share(9)), Some(9)), AfterPut::Done(Gib::new(9)));
    assert_eq!(after(PutAnswer::Existed(&share(9)), Some(2)), AfterPut::Done(Gib::new(9)));
    assert_eq!(after(PutAnswer::Existed(&share(3)), Some(2)), enlarge(5));
    // The share was deleted by hand and is made anew: its PersistentVolume promises more.
    assert_eq!(after(PutAnswer::Created, Some(9)), enlarge(9));
    let nfs = FileShare { protocol: Some(ShareProtocol::Nfs), ..share(9) };
    assert!(plan.after_put(&spec, PutAnswer::Existed(&nfs), None).is_err());
}

#[test]
fn a_share_is_mounted_in_every_access_mode_and_is_no_block_device() {
    let check = |mode, access| validate_capabilities(&[Capability { mode, access }]);
    for mode in AccessMode::ALL {
        assert_eq!(check(mode, Access::Mount).is_ok(), mode != AccessMode::Unknown, "{mode:?}");
        assert!(check(mode, Access::Block).is_err());
    }
    let unknown = check(AccessMode::Unknown, Access::Mount).unwrap_err();
    assert!(unknown.allowed.starts_with("allowed are SINGLE_NODE_WRITER, "), "{unknown}");
    assert!(validate_capabilities(&[]).is_err());
    let bad = Request { capabilities: vec![], ..request(&[], 0, 0) };
    assert!(plan_create(&bad, &defaults()).is_err());
}

#[test]
fn a_request_needs_a_name_that_fits_into_a_volume_id() {
    for name in ["", "a#b"] {
        let error = plan_create(&Request { name: name.into(), ..request(&[], 0, 0) }, &defaults()).unwrap_err();
        assert_eq!((error.parameter.as_str(), error.value.as_str()), ("name", name));
    }
}

#[test]
fn a_share_grows_and_never_shrinks() {
    let share = FileShare::smb("f1", "pvc-1", 50);
    let grow = |gib| Expand::Grow(ShareChange { quota: Some(Gib::new(gib)), ..ShareChange::default() }, Gib::new(gib));
    for (sku_name, required, limit, expected) in [
        ("Standard_LRS", 50 * GIB, 0, Ok(Expand::Enough(Gib::new(50)))),
        ("Standard_LRS", GIB, 0, Ok(Expand::Enough(Gib::new(50)))),
        ("Standard_LRS", 50 * GIB + 1, 0, Ok(grow(51))),
        ("Standard_LRS", 50 * GIB + 1, 51 * GIB, Ok(grow(51))),
        ("Standard_LRS", 50 * GIB + 1, 51 * GIB - 1, Err((LIMIT, Code::OutOfRange))),
        ("Standard_LRS", GIB, 50 * GIB, Ok(Expand::Enough(Gib::new(50)))),
        ("Standard_LRS", GIB, 50 * GIB - 1, Err((LIMIT, Code::OutOfRange))),
        ("Premium_LRS", 60 * GIB, 0, Ok(grow(100))),
        ("Premium_LRS", 102_401 * GIB, 0, Err((SIZE, Code::OutOfRange))),
        ("Standard_LRS", 0, 0, Err((SIZE, Code::InvalidArgument))),
        ("Standard_LRS", -1, 0, Err((SIZE, Code::InvalidArgument))),
        ("Standard_LRS", i64::MAX, 0, Err((SIZE, Code::OutOfRange))),
    ] {
        let planned = plan_expand(&share, Some(sku(sku_name)), required, limit);
        match expected {
            Ok(expand) => assert_eq!(planned, Ok(expand), "{sku_name} {required}"),
            Err((key, code)) => {
                let error = planned.unwrap_err();
                assert_eq!((error.parameter.as_str(), error.code()), (key, code), "{error}");
            }
        }
    }
}

#[test]
fn only_what_differs_of_the_performance_is_written() {
    let share =
        FileShare { provisioned_iops: Some(600), provisioned_bandwidth: Some(70), ..FileShare::smb("f1", "x", 50) };
    let modify = |pairs: &[(&str, &str)], sku_name: &str| plan_modify(&share, Some(sku(sku_name)), &map(pairs));
    assert!(modify(&[("provisionedIops", "600")], "StandardV2_LRS").unwrap().is_empty());
    let change = modify(&[("provisionedIOPS", "700"), ("provisionedBandwidth", "70")], "StandardV2_LRS").unwrap();
    assert_eq!(change, ShareChange { provisioned_iops: Some(700), ..ShareChange::default() });
    for (pairs, sku_name) in [
        (&[("provisionedIOPS", "700")][..], "Standard_LRS"),
        (&[("provisionedIOPS", "700")], "PremiumV2_LRS"),
        (&[("skuName", "Premium_LRS")], "StandardV2_LRS"),
    ] {
        assert_eq!(modify(pairs, sku_name).unwrap_err().code(), Code::InvalidArgument, "{pairs:?}");
    }
}

proptest! {
    #[test]
    fn a_share_never_gets_less_than_it_has_or_than_was_asked(
        there in 1u32..200_000, required in 1i64..200_000 * GIB, limit in 0i64..300_000 * GIB,
        volume in proptest::option::of(1u32..200_000), index in 0usize..14,
    ) {
        let sku = StorageSku::ALL[index];
        let share = FileShare::smb("f1", "pvc-1", there);
        match plan_expand(&share, Some(sku), required, limit) {
            Ok(Expand::Enough(size)) => {
                prop_assert_eq!(size, share.quota);
                prop_assert!(size.bytes() as i64 >= required);
            }
            Ok(Expand::Grow(change, size)) => {
                prop_assert_eq!(change.quota, Some(size));
                prop_assert!(size > share.quota && size.bytes() as i64 >= required);
                prop_assert!(limit == 0 || size.bytes() as i64 <= limit);
                prop_assert!(share_size(sku.billing()).contains(&size));
            }
            Err(error) => prop_assert_eq!(error.code(), Code::OutOfRange),
        }
        let name = sku.as_str();
        if let Ok(plan) = plan_create(&request(&[("skuName", name)], required, limit), &defaults()) {
            let spec = plan.spec(sku).unwrap();
            prop_assert!(spec.quota.bytes() as i64 >= required && (limit == 0 || spec.quota.bytes() as i64 <= limit));
            let after = plan.after_put(&spec, PutAnswer::Existed(&share), volume.map(Gib::new)).unwrap();
            let size = match after {
                AfterPut::Done(size) => {
                    prop_assert_eq!(size, share.quota);
                    size
                }
                AfterPut::Enlarge(change, size) => {
                    prop_assert!(size > share.quota);
                    prop_assert_eq!(change, ShareChange { quota: Some(size), ..ShareChange::default() });
                    size
                }
            };
            prop_assert!(size >= spec.quota && volume.is_none_or(|volume| size.get() >= volume));
        }
    }

    #[test]
    fn what_is_answered_names_the_share_that_was_made(
        name in "pvc-[0-9a-f]{1,36}|[a-zA-Z0-9 ._-]{1,70}", prefix in proptest::option::of("[a-z][a-z0-9-]{0,10}"),
    ) {
        let mut given = request(&[], GIB, 0);
        given.name = name;
        given.parameters.extend(prefix.map(|prefix| ("shareNamePrefix".to_owned(), prefix)));
        let plan = plan_create(&given, &defaults()).unwrap();
        let answer = plan.answer(&account(), Gib::new(1)).unwrap();
        let id = ShareVolumeId::parse(&answer.volume_id).unwrap();
        prop_assert_eq!(id.share_id("s", "g").unwrap(), ArmId::file_share(&account(), &plan.share).unwrap());
        prop_assert!(!id.is_named_by_class());
    }
}
