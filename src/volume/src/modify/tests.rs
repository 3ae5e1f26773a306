//! Each parameter of a VolumeAttributesClass, and what holds for every class and disk.

use std::time::Duration;

use lazuli_model::{Completion, apply, event::Reason, fault::Code, reference::Effect};
use proptest::prelude::*;

use super::*;

type Pairs<'a> = &'a [(&'a str, &'a str)];

const ACCESS: &str = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/diskAccesses/door";
const KEYS: &str = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/diskEncryptionSets/keys";

fn map(pairs: Pairs<'_>) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn disk(sku: SkuName, gib: u32) -> Disk {
    let own = sku::has_own_performance(sku);
    Disk {
        id: ArmId::disk("sub", "rg", "pvc-1").unwrap(),
        location: "eastus".into(),
        sku: Some(sku),
        size: Gib::new(gib),
        iops: Some(if own { 3_000 } else { 500 }),
        mbps: Some(if own { 125 } else { 100 }),
        network_access_policy: Some("DenyAll".into()),
        tags: map(&[("Team", "red"), (FOR_CLAIM, "data"), ("lazuli-request", "pvc-1")]),
        ..Disk::unattached("pvc-1")
    }
}

fn premium() -> Disk {
    disk(SkuName::PremiumLrs, 1_024)
}

fn details() -> DiskDetails {
    DiskDetails {
        tier: Some(PerformanceTier::P30),
        public_network_access: Some(PublicNetworkAccess::Disabled),
        ..DiskDetails::default()
    }
}

fn of(pairs: Pairs<'_>, disk: &Disk) -> Result<ModifyPlan, ParameterError> {
    plan_modify(&map(pairs), disk, &details(), Cloud::Public)
}

fn change(pairs: Pairs<'_>, disk: &Disk) -> DiskChange {
    of(pairs, disk).unwrap().change
}

fn refused(pairs: Pairs<'_>, disk: &Disk, parameter: &str) -> ParameterError {
    let error = of(pairs, disk).unwrap_err();
    let value = pairs.iter().find(|(key, _)| *key == parameter).unwrap().1;
    assert_eq!(
        (error.parameter.as_str(), error.value.as_str(), error.code()),
        (parameter, value, Code::InvalidArgument)
    );
    assert!(!error.allowed.is_empty() && !error.to_string().contains('\n'), "{error}");
    error
}

#[test]
fn a_class_says_what_differs_and_nothing_else() {
    assert_eq!(
        change(&[("skuName", "Premium_LRS"), ("tier", "P30"), ("tags", "team=red")], &premium()),
        DiskChange::default()
    );
    assert_eq!(of(&[], &premium()), Ok(ModifyPlan::default()));
    let sku = change(&[("skuName", "StandardSSD_LRS")], &premium());
    assert_eq!(sku, DiskChange { sku: Some(SkuName::StandardSsdLrs), ..DiskChange::default() });
    assert_eq!(change(&[("storageAccountType", "StandardSSD_LRS")], &premium()), sku);
    refused(&[("skuName", "premium_lrs")], &premium(), "skuName");
    refused(&[("skuName", "Premium_LRS"), ("storageAccountType", "Standard_LRS")], &premium(), "storageAccountType");
    let stack = plan_modify(&map(&[("skuName", "StandardSSD_LRS")]), &premium(), &details(), Cloud::AzureStack);
    assert!(stack.unwrap_err().to_string().contains("Azure Stack"));
    let newer = Disk { sku: None, ..premium() };
    assert_eq!(change(&[("skuName", "Premium_LRS")], &newer).sku, Some(SkuName::PremiumLrs));
    let anything = [("DiskIOPSReadWrite", "9"), ("tier", "P1"), ("enableBursting", "true")];
    assert!(of(&anything, &newer).is_ok(), "what a newer type can have is Azure's to say");
}

#[test]
fn operations_and_throughput_stay_in_what_the_disk_can_have() {
    let v2 = disk(SkuName::PremiumV2Lrs, 100);
    let both = change(&[("DiskIOPSReadWrite", "5000"), ("DiskMBpsReadWrite", "125")], &v2);
    assert_eq!((both.iops, both.mbps), (Some(5_000), None));
    let error = refused(&[("DiskIOPSReadWrite", "50001")], &v2, "DiskIOPSReadWrite");
    assert!(error.to_string().contains("from 1 to 50000"), "{error}");
    let error = refused(&[("DiskMBpsReadWrite", "751")], &v2, "DiskMBpsReadWrite");
    assert!(error.to_string().contains("with 3000 operations"), "{error}");
    assert_eq!(change(&[("DiskIOPSReadWrite", "4000"), ("DiskMBpsReadWrite", "1000")], &v2).mbps, Some(1_000));
    for parameter in ["DiskIOPSReadWrite", "DiskMBpsReadWrite"] {
        refused(&[(parameter, "500")], &premium(), parameter);
        refused(&[(parameter, "many")], &v2, parameter);
        refused(&[(parameter, "500"), ("skuName", "Premium_LRS")], &disk(SkuName::StandardLrs, 100), parameter);
    }
    // Azure gives a disk of another type that type's performance, so what is asked for is sent.
    let class = [("skuName", "PremiumV2_LRS"), ("DiskIOPSReadWrite", "3000"), ("DiskMBpsReadWrite", "125")];
    let converted = Disk { iops: Some(3_000), mbps: Some(125), ..premium() };
    let sent = change(&class, &converted);
    assert_eq!((sent.sku, sent.iops, sent.mbps), (Some(SkuName::PremiumV2Lrs), Some(3_000), Some(125)));
}

#[test]
fn tiers_and_bursting_are_for_premium_disks_of_the_size() {
    assert_eq!(change(&[("tier", "P40")], &premium()).tier, Some(PerformanceTier::P40));
    let error = refused(&[("tier", "P20")], &premium(), "tier");
    assert!(error.to_string().contains("are P30, P40, P50"), "{error}");
    for (tier, disk) in [("P60", premium()), ("p40", premium()), ("P40", disk(SkuName::StandardSsdLrs, 1_024))] {
        refused(&[("tier", tier)], &disk, "tier");
    }
    refused(&[("tier", "P40"), ("skuName", "StandardSSD_LRS")], &premium(), "tier");
    assert_eq!(change(&[("enableBursting", "true")], &premium()).bursting_enabled, Some(true));
    assert_eq!(change(&[("enableBursting", "False")], &premium()).bursting_enabled, None);
    let on = DiskDetails { bursting_enabled: true, ..details() };
    let off = plan_modify(&map(&[("enableBursting", "false")]), &premium(), &on, Cloud::Public).unwrap();
    assert_eq!(off.change.bursting_enabled, Some(false));
    refused(&[("enableBursting", "no")], &premium(), "enableBursting");
    refused(&[("enableBursting", "true")], &disk(SkuName::PremiumLrs, 512), "enableBursting");
    refused(&[("enableBursting", "true"), ("skuName", "StandardSSD_LRS")], &premium(), "enableBursting");
    let untold = DiskDetails { tier: None, ..details() };
    let own = plan_modify(&map(&[("tier", "P30")]), &premium(), &untold, Cloud::Public).unwrap();
    assert!(own.change.is_empty(), "its own tier");
}

#[test]
fn a_private_policy_and_its_disk_access_come_together() {
    let door: ArmId = ACCESS.parse().unwrap();
    let private = change(&[("networkAccessPolicy", "AllowPrivate"), ("diskAccessID", ACCESS)], &premium());
    assert_eq!(
        (private.network_access_policy, private.disk_access),
        (Some(NetworkAccessPolicy::AllowPrivate), Some(door.clone()))
    );
    let open = change(&[("networkAccessPolicy", "AllowAll"), ("publicNetworkAccess", "Enabled")], &premium());
    assert_eq!((open.network_access_policy, open.disk_access), (Some(NetworkAccessPolicy::AllowAll), None));
    assert_eq!(open.public_network_access, Some(PublicNetworkAccess::Enabled));
    assert!(change(&[("networkAccessPolicy", "DenyAll"), ("publicNetworkAccess", "Disabled")], &premium()).is_empty());
    refused(&[("networkAccessPolicy", "AllowPrivate")], &premium(), "networkAccessPolicy");
    refused(&[("diskAccessID", ACCESS)], &premium(), "diskAccessID");
    refused(&[("diskAccessID", KEYS), ("networkAccessPolicy", "AllowPrivate")], &premium(), "diskAccessID");
    refused(&[("networkAccessPolicy", "denyall")], &premium(), "networkAccessPolicy");

    let is_private = Disk { network_access_policy: Some("allowprivate".into()), ..premium() };
    let known = DiskDetails { disk_access: Some(door), ..details() };
    let of = |pairs: Pairs<'_>| plan_modify(&map(pairs), &is_private, &known, Cloud::Public).unwrap().change;
    assert!(of(&[("networkAccessPolicy", "AllowPrivate")]).is_empty(), "the disk has a disk access");
    assert!(of(&[("diskAccessID", &ACCESS.to_uppercase())]).is_empty());
    let other = of(&[("diskAccessID", &ACCESS.replace("door", "gate"))]);
    assert_eq!(other.network_access_policy, Some(NetworkAccessPolicy::AllowPrivate));
    assert!(other.disk_access.is_some_and(|id| id.name() == "gate"));
    let stack =
        plan_modify(&map(&[("networkAccessPolicy", "AllowAll")]), &premium(), &details(), Cloud::AzureStack).unwrap();
    assert!(stack.change.is_empty() && stack.warnings.len() == 1);
}

#[test]
fn tags_are_merged_into_those_that_the_disk_has() {
    let merged = change(&[("tags", "TEAM=blue;claim=${pvc.metadata.name}"), ("tagValueDelimiter", ";")], &premium());
    let expected = [("Team", "blue"), ("claim", "data"), (FOR_CLAIM, "data"), ("lazuli-request", "pvc-1")];
    assert_eq!(merged.tags, Some(map(&expected)));
    let plan =
        of(&[("tags", "Lazuli-Request=mine,kubernetes.io-created-for-pvc-name=x,Team=red")], &premium()).unwrap();
    assert!(plan.change.is_empty() && plan.warnings.len() == 2, "{plan:?}");
    let metadata = [("tags", "c=${pvc.metadata.name}"), ("csi.storage.k8s.io/pvc/name", "other")];
    assert_eq!(change(&metadata, &premium()).tags.unwrap()["c"], "other");
    refused(&[("tags", "x")], &premium(), "tags");
    let many: Vec<String> = (0..48).map(|n| format!("k{n}=v")).collect();
    assert!(refused(&[("tags", &many.join(","))], &premium(), "tags").to_string().contains("51 tags"));
}

#[test]
fn what_no_change_reaches_is_taken_where_it_is_so_already() {
    let shown =
        Disk { logical_sector_size: Some(4096), max_shares: 2, disk_encryption_set: KEYS.parse().ok(), ..premium() };
    let known = DiskDetails { encryption_type: Some(EncryptionType::CustomerKey), ..details() };
    let of_shown = |pairs: Pairs<'_>| plan_modify(&map(pairs), &shown, &known, Cloud::Public);
    for (key, same, other) in [
        ("location", "East US", "westus"),
        ("resourceGroup", "RG", "g"),
        ("subscriptionID", "SUB", "s"),
        ("diskName", "PVC-1", "pvc-2"),
        ("LogicalSectorSize", "4096", "512"),
        ("maxShares", "2", "3"),
        ("diskEncryptionSetID", &KEYS.to_uppercase(), ACCESS),
        ("diskEncryptionType", "EncryptionAtRestWithCustomerKey", "EncryptionAtRestWithPlatformKey"),
        ("writeAcceleratorEnabled", "false", "true"),
        ("enablePerformancePlus", "false", "true"),
    ] {
        let plan = of_shown(&[(key, same)]).unwrap();
        assert!(plan.change.is_empty() && plan.ignored.is_empty() && plan.warnings.is_empty(), "{key} {plan:?}");
        let error = of_shown(&[(key, other)]).unwrap_err();
        assert_eq!((error.parameter.as_str(), error.value.as_str(), error.code()), (key, other, Code::InvalidArgument));
        assert!(error.to_string().contains("does not change"), "{error}");
    }
    // What Azure does not say of a disk has Azure's default.
    assert!(of(&[("LogicalSectorSize", "512"), ("maxShares", "1")], &premium()).is_ok());
    assert_eq!(of_shown(&[("kind", "Shared")]).unwrap().warnings.len(), 1);
}

#[test]
fn what_only_the_volume_knows_is_ignored_and_told() {
    let pairs = [
        ("cachingMode", "None"),
        ("fsType", "xfs"),
        ("perfProfile", "basic"),
        ("device-setting/queue/scheduler", "none"),
        ("skuName", "StandardSSD_LRS"),
    ];
    let plan = of(&pairs, &premium()).unwrap();
    assert_eq!((plan.ignored.len(), plan.change.sku), (4, Some(SkuName::StandardSsdLrs)), "{plan:?}");
    assert!(plan.ignored.iter().all(|sentence| sentence.contains("is ignored")), "{plan:?}");
    let silent = [
        ("zoned", "x"),
        ("enableAsyncAttach", "x"),
        ("csi.storage.k8s.io/pv/name", "pvc-1"),
        ("userAgent", "me"),
        ("kind", "managed"),
    ];
    assert_eq!(of(&silent, &premium()), Ok(ModifyPlan::default()));
    let error = refused(&[("color", "red")], &premium(), "color");
    assert!(error.to_string().contains("tier"), "{error}");
    for (key, value) in [("storageAccount", "a"), ("zones", "1")] {
        refused(&[(key, value)], &premium(), key);
    }
    let twice = of(&[("Tier", "P40"), ("tier", "P40")], &premium()).unwrap_err();
    assert!(twice.to_string().contains("given twice"), "{twice}");
}

#[test]
fn every_parameter_of_the_table_changes_a_disk() {
    for row in ATTRIBUTE_PARAMETERS {
        assert_eq!((row.effect, row.meaning.ends_with('.')), (Effect::Used, true), "{}", row.name);
        let disk = match row.name {
            "DiskIOPSReadWrite" | "DiskMBpsReadWrite" => disk(SkuName::UltraSsdLrs, 100),
            _ => premium(),
        };
        let base: Pairs<'_> = match row.name {
            "tagValueDelimiter" => &[("tags", "a=1;b=2")],
            "diskAccessID" => &[("networkAccessPolicy", "AllowPrivate")],
            _ => &[],
        };
        let with = of(&[base, &[(row.name, row.example)]].concat(), &disk);
        assert!(with.is_ok() && with != of(base, &disk), "{} {with:?}", row.name);
        assert!(!with.unwrap().change.is_empty(), "{}", row.name);
        assert_eq!(ATTRIBUTE_PARAMETERS.iter().filter(|other| other.name.eq_ignore_ascii_case(row.name)).count(), 1);
    }
}

#[test]
fn a_new_volume_takes_what_a_class_may_change_later() {
    use crate::{Capability, Defaults, Request, plan_create};
    let request = |fixed: Pairs<'_>, mutable: Pairs<'_>| Request {
        name: "pvc-1".into(),
        parameters: map(fixed),
        mutable_parameters: map(mutable),
        required_bytes: 1_024 << 30,
        capabilities: vec![Capability::mounted()],
        ..Request::default()
    };
    let defaults = Defaults {
        subscription: "sub".into(),
        resource_group: "rg".into(),
        location: "eastus".into(),
        ..Defaults::default()
    };
    let premium = ("skuName", "Premium_LRS");
    let plan = plan_create(&request(&[premium], &[("Tier", "P40"), ("enableBursting", "true")]), &defaults).unwrap();
    assert_eq!((plan.spec.tier, plan.spec.bursting_enabled), (Some(PerformanceTier::P40), Some(true)));
    let error = plan_create(&request(&[premium], &[("tier", "P20")]), &defaults).unwrap_err();
    assert!(error.to_string().contains("P30, P40, P50"), "{error}");
    let error = plan_create(&request(&[premium], &[("color", "red")]), &defaults).unwrap_err();
    assert_eq!(error.parameter, "color");
    // The Go driver refuses it in a StorageClass.
    assert!(plan_create(&request(&[premium, ("tier", "P40")], &[]), &defaults).is_err());
}

fn converting(percent: f64, gib: u32) -> Disk {
    Disk { completion: Some(Completion::from_percent(percent)), ..disk(SkuName::PremiumV2Lrs, gib) }
}

#[test]
fn a_conversion_is_told_from_its_beginning_to_its_end() {
    let plan = of(&[("skuName", "PremiumV2_LRS")], &premium()).unwrap();
    assert_eq!(plan.conversion, Some(Conversion { from: Some(SkuName::PremiumLrs), to: SkuName::PremiumV2Lrs }));
    assert_eq!(of(&[("skuName", "StandardSSD_LRS")], &premium()).unwrap().conversion, None);
    assert_eq!(of(&[("skuName", "PremiumV2_LRS")], &converting(50.0, 10)).unwrap(), ModifyPlan::default());

    let hours = |hours: u64| Duration::from_secs(hours * 3_600);
    let mut reported = Some(Reported::beginning(hours(0)));
    let mut told = Vec::new();
    for (percent, at) in [(0.0, 0), (19.9, 1), (20.0, 2), (65.0, 3), (66.0, 10), (79.0, 11), (99.99, 12), (100.0, 13)] {
        let (reports, next) = conversion_reports(reported.unwrap(), &converting(percent, 1_024), hours(at));
        reported = next;
        told.extend(reports);
    }
    use ConversionReport::{Completed, Long, Progress, Started};
    assert_eq!(told, [Progress(20), Progress(60), Long(hours(10)), Progress(80), Completed]);
    assert_eq!(reported, None);
    let reasons = [Started(None), Progress(20), Long(hours(1)), Completed].map(|report| report.reason());
    let expected = [
        Reason::SKUMigrationStarted,
        Reason::SKUMigrationProgress,
        Reason::SKUMigrationTimeout,
        Reason::SKUMigrationCompleted,
    ];
    assert_eq!(reasons, expected);
}

#[test]
fn a_conversion_is_known_after_a_restart_by_azures_state() {
    let half = converting(50.0, 10);
    let shown_as = |disk: &Disk, made_as| is_converting(disk.sku, disk.completion, disk.source.as_deref(), made_as);
    let shown = |disk: &Disk| shown_as(disk, None);
    assert!(shown(&half));
    let copy = Disk { source: Some("a snapshot".into()), ..half.clone() };
    assert!(!shown(&copy), "it may be a copy that is being filled");
    assert!(!shown_as(&copy, Some(SkuName::PremiumV2Lrs)) && shown_as(&copy, Some(SkuName::StandardLrs)));
    assert!(!shown(&converting(100.0, 10)) && !shown(&disk(SkuName::PremiumV2Lrs, 10)));
    assert!(!shown(&Disk { sku: Some(SkuName::PremiumLrs), ..half.clone() }));
    let found = |disk: &Disk| conversion_reports(Reported::beginning(Duration::ZERO), disk, Duration::ZERO);
    assert_eq!(found(&half).0, [ConversionReport::Progress(40)], "its beginning was told before");
    assert_eq!(found(&converting(100.0, 10)), (vec![ConversionReport::Completed], None));
    assert_eq!(found(&premium()), (vec![], None), "it is not converted");
    for (gib, long) in [(2_047, 10), (2_048, 12), (4_096, 16), (16_384, 19), (65_536, 16)] {
        let known = found(&converting(1.0, gib)).1.unwrap();
        let at = |seconds| conversion_reports(known, &converting(1.0, gib), Duration::from_secs(seconds)).0.len();
        assert_eq!([at(long * 3_600 - 1), at(long * 3_600)], [0, 1], "{gib}");
    }
}

/// Classes that may well be written, each with values of which some are good.
fn likely() -> impl Strategy<Value = BTreeMap<String, String>> {
    const VALUES: [(&str, &[&str]); 12] = [
        ("skuName", &["Premium_LRS", "UltraSSD_LRS", "PremiumV2_LRS", "StandardSSD_LRS", "Premium_ZRS"]),
        ("DiskIOPSReadWrite", &["500", "3000", "20000"]),
        ("DiskMBpsReadWrite", &["100", "125", "700"]),
        ("tier", &["P30", "P40", "P50"]),
        ("enableBursting", &["true", "false", "no"]),
        ("networkAccessPolicy", &["AllowAll", "DenyAll", "AllowPrivate"]),
        ("diskAccessID", &[ACCESS, KEYS]),
        ("publicNetworkAccess", &["Enabled", "Disabled"]),
        ("tags", &["team=blue", "Team=red,new=1", "a"]),
        ("cachingMode", &["None"]),
        ("location", &["eastus", "westus"]),
        ("maxShares", &["1", "2"]),
    ];
    proptest::sample::subsequence(VALUES.to_vec(), 0..=6).prop_flat_map(|rows| {
        rows.into_iter()
            .map(|(key, values)| proptest::sample::select(values).prop_map(move |v| (key.to_owned(), v.to_owned())))
            .collect::<Vec<_>>()
            .prop_map(|pairs| pairs.into_iter().collect())
    })
}

fn some_disk() -> impl Strategy<Value = Disk> {
    (proptest::sample::select(SkuName::ALL), proptest::sample::select(vec![4u32, 100, 1_024, 4_096]))
        .prop_map(|(sku, gib)| disk(sku, gib))
}

fn some_details() -> impl Strategy<Value = DiskDetails> {
    (any::<bool>(), proptest::option::of(proptest::sample::select(PerformanceTier::ALL)), any::<bool>()).prop_map(
        |(bursting, tier, private)| DiskDetails {
            bursting_enabled: bursting,
            tier,
            disk_access: private.then(|| ACCESS.parse().unwrap()),
            ..details()
        },
    )
}

proptest! {
    /// It converges: after its PATCH a disk is as asked.
    #[test]
    fn a_disk_that_was_changed_needs_no_change(class in likely(), disk in some_disk(), details in some_details()) {
        if let Ok(plan) = plan_modify(&class, &disk, &details, Cloud::Public) {
            let (after, details) = apply::disk_change(&disk, &details, &plan.change);
            let again = plan_modify(&class, &after, &details, Cloud::Public);
            prop_assert_eq!(again.map(|plan| plan.change), Ok(DiskChange::default()));
        }
    }

    /// It leaves alone what the class does not name: tags of others, and attributes.
    #[test]
    fn what_a_class_does_not_name_stays(class in likely(), disk in some_disk(), details in some_details()) {
        if let Ok(plan) = plan_modify(&class, &disk, &details, Cloud::Public) {
            let change = plan.change;
            let names = |key: &str| class.contains_key(key);
            prop_assert!(change.sku.is_none() || names("skuName"));
            prop_assert!(change.iops.is_none() || names("DiskIOPSReadWrite"));
            prop_assert!(change.mbps.is_none() || names("DiskMBpsReadWrite"));
            prop_assert!(change.tier.is_none() || names("tier"));
            prop_assert!(change.bursting_enabled.is_none() || names("enableBursting"));
            prop_assert!(change.public_network_access.is_none() || names("publicNetworkAccess"));
            prop_assert!(change.network_access_policy.is_none() || names("networkAccessPolicy") || names("diskAccessID"));
            prop_assert_eq!(change.disk_access.is_some(), change.network_access_policy == Some(NetworkAccessPolicy::AllowPrivate));
            if let Some(tags) = change.tags {
                for (name, value) in &disk.tags {
                    prop_assert!(tags.get(name) == Some(value) || name == "Team");
                }
            }
        }
    }

    /// A change that is cut off after any PATCH is safe: the class of the next try is served from what is there.
    #[test]
    fn one_class_after_another_is_as_the_last_alone(one in likely(), two in likely(), disk in some_disk(), details in some_details()) {
        if let Ok(first) = plan_modify(&one, &disk, &details, Cloud::Public) {
            let (between, known) = apply::disk_change(&disk, &details, &first.change);
            if let Ok(second) = plan_modify(&two, &between, &known, Cloud::Public) {
                let (after, known) = apply::disk_change(&between, &known, &second.change);
                let again = plan_modify(&two, &after, &known, Cloud::Public);
                prop_assert_eq!(again.map(|plan| plan.change), Ok(DiskChange::default()));
            }
        }
    }

    /// It is quiet where only letter case differs, of keys and of what Azure shows.
    #[test]
    fn letter_case_changes_no_plan(class in likely(), disk in some_disk(), details in some_details(), upper in any::<bool>()) {
        let respell = |text: &str| if upper { text.to_ascii_uppercase() } else { text.to_ascii_lowercase() };
        let keys: BTreeMap<String, String> = class.iter().map(|(key, value)| (respell(key), value.clone())).collect();
        let mut other = disk.clone();
        other.id = respell(disk.id.as_str()).parse().unwrap();
        other.location = respell(&disk.location);
        other.network_access_policy = disk.network_access_policy.as_deref().map(respell);
        let folded = |result: Result<ModifyPlan, ParameterError>| {
            result.map(|plan| plan.change).map_err(|error| (error.parameter.to_ascii_lowercase(), error.value))
        };
        let one = folded(plan_modify(&class, &disk, &details, Cloud::Public));
        prop_assert_eq!(one, folded(plan_modify(&keys, &other, &details, Cloud::Public)));
    }

    #[test]
    fn whatever_is_refused_is_named_with_its_value(
        key in proptest::sample::select(vec![
            "skuName", "DiskIOPSReadWrite", "DiskMBpsReadWrite", "tier", "enableBursting", "networkAccessPolicy",
            "publicNetworkAccess", "diskAccessID", "tags", "location", "maxShares", "diskEncryptionType", "nonsense",
        ]),
        value in "\\PC{1,40}", disk in some_disk(),
    ) {
        if let Err(error) = plan_modify(&map(&[(key, &value)]), &disk, &details(), Cloud::Public) {
            prop_assert_eq!(&error.parameter, key);
            prop_assert_eq!(&error.value, &value);
            prop_assert_eq!(error.code(), Code::InvalidArgument);
        }
    }
}

#[test]
fn a_template_that_nothing_fills_in_names_the_sidecar_that_would() {
    let class = [("tags".to_owned(), "owner=${pvc.metadata.name}".to_owned())].into();
    let plan = plan_modify(&class, &Disk::unattached("pvc-1"), &DiskDetails::default(), Cloud::Public).unwrap();
    assert!(
        plan.warnings.len() == 1 && plan.warnings[0].contains("external-resizer's flag --extra-modify-metadata"),
        "{:?}",
        plan.warnings
    );
}
