//! The parameters of a VolumeSnapshotClass row by row, each state of a snapshot, and each limit.

mod laws;
mod limits;

use lazuli_model::{
    Completion, Gib, ProvisioningState, SkuName, SnapshotAccessState, fault::Code, reference::Effect,
    snapshot_spec::SnapshotMismatch,
};
use proptest::prelude::*;

use super::*;
use crate::{AllowedResourceGroups, ParameterErrorKind};

type Pairs<'a> = &'a [(&'a str, &'a str)];

fn map(pairs: Pairs<'_>) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn defaults() -> Defaults {
    Defaults {
        subscription: "sub".to_owned(),
        resource_group: "rg".to_owned(),
        location: "eastus".to_owned(),
        ..Defaults::default()
    }
}

fn volume(text: &str) -> ArmId {
    text.parse().unwrap()
}

const VOLUME: &str = "/subscriptions/sub/resourceGroups/disks/providers/Microsoft.Compute/disks/pvc-1";

fn disk() -> Disk {
    Disk {
        id: VOLUME.parse().unwrap(),
        location: "eastus".into(),
        sku: Some(SkuName::PremiumLrs),
        unique_id: Some("u-1".into()),
        ..Disk::unattached("pvc-1")
    }
}

fn v2() -> Disk {
    Disk { sku: Some(SkuName::PremiumV2Lrs), ..disk() }
}

fn request(pairs: Pairs<'_>) -> SnapshotRequest {
    SnapshotRequest { name: "snapshot-1".into(), volume: volume(VOLUME), parameters: map(pairs) }
}

fn planned(pairs: Pairs<'_>, disk: &Disk) -> Result<SnapshotPlan, ParameterError> {
    plan_snapshot(&request(pairs), &defaults(), SourceSeen::Disk(disk))
}

fn plan(pairs: Pairs<'_>) -> SnapshotPlan {
    planned(pairs, &disk()).unwrap()
}

fn spec(pairs: Pairs<'_>) -> SnapshotSpec {
    match plan(pairs).route {
        Route::InRegion(spec) => *spec,
        Route::AcrossRegions { copy, .. } => *copy,
    }
}

/// The error of a class, which must name this parameter, its value and something that is allowed.
fn refused_of(result: Result<SnapshotPlan, ParameterError>, parameter: &str, value: &str) -> ParameterError {
    let error = result.unwrap_err();
    assert_eq!((error.parameter.as_str(), error.value.as_str()), (parameter, value), "{error}");
    assert_eq!(error.kind(), ParameterErrorKind::InvalidArgument, "{error}");
    assert!(!error.allowed.is_empty() && !error.to_string().contains('\n'), "{error}");
    error
}

fn refused(pairs: Pairs<'_>, parameter: &str) -> ParameterError {
    let value = pairs.iter().find(|(key, _)| *key == parameter).map_or("", |(_, value)| value);
    refused_of(planned(pairs, &disk()), parameter, value)
}

/// The snapshot that Azure has made of a spec.
fn made(id: &ArmId, spec: &SnapshotSpec) -> Snapshot {
    Snapshot {
        location: spec.location.clone(),
        method: Some(spec.method),
        source: Some(spec.source.to_string()),
        source_unique_id: match (&spec.origin.source, spec.method) {
            (SourceIdentity::UniqueId(id), CopyMethod::Copy) => Some(id.clone()),
            _ => None,
        },
        incremental: spec.incremental,
        instant_access_minutes: spec.instant_access_minutes,
        size: Gib::new(10),
        tags: spec.tags.clone(),
        ..Snapshot::complete(id.clone(), &spec.source)
    }
}

fn pending(snapshot: Snapshot) -> Snapshot {
    Snapshot {
        access: Some(SnapshotAccessState::Pending),
        completion: Some(Completion::from_percent(10.0)),
        ..snapshot
    }
}

#[test]
fn an_empty_class_makes_an_incremental_snapshot_beside_its_disk() {
    let plan = plan(&[]);
    let id = "/subscriptions/sub/resourceGroups/disks/providers/Microsoft.Compute/snapshots/snapshot-1";
    assert_eq!(plan.snapshot.as_str(), id);
    assert_eq!(asked_snapshot(&request(&[]), &defaults()), Some(plan.snapshot.clone()));
    assert_eq!(asked_snapshot(&request(&[("resourceGroup", "a/b")]), &defaults()), None);
    let tags = [
        ("k8s-azure-created-by", "kubernetes-azure-dd"),
        ("lazuli-request", "snapshot-1"),
        ("source_volume_id", VOLUME),
    ];
    let expected = SnapshotSpec {
        location: "eastus".into(),
        extended_location: None,
        tags: map(&tags),
        method: CopyMethod::Copy,
        source: VOLUME.parse().unwrap(),
        instant_access_minutes: None,
        incremental: true,
        network_access_policy: None,
        public_network_access: None,
        data_access_auth_mode: None,
        origin: SnapshotOrigin {
            request: "snapshot-1".into(),
            volume: VOLUME.into(),
            source: SourceIdentity::UniqueId("u-1".into()),
        },
    };
    assert_eq!((plan.route, plan.warnings), (Route::InRegion(Box::new(expected)), vec![]));
}

#[test]
fn every_parameter_of_the_table_does_what_its_row_says() {
    for row in SNAPSHOT_PARAMETERS {
        let base: Pairs<'_> = if row.name == "tagValueDelimiter" { &[("tags", "a=1;b=2")] } else { &[] };
        let outcome = |pairs: Pairs<'_>| {
            format!("{:?}", planned(pairs, &disk()).map(|plan| (plan.snapshot, plan.route)).map_err(|e| e.to_string()))
        };
        let with = |value| outcome(&[base, &[(row.name, value)]].concat());
        match row.effect {
            Effect::Used => assert!(with(row.example) != outcome(base), "{} counts", row.name),
            Effect::NoEffect => assert_eq!(with(row.example), outcome(base), "{}", row.name),
            Effect::Refused => drop(refused(&[(row.name, row.example)], row.name)),
        }
        let same = SNAPSHOT_PARAMETERS.iter().filter(|other| other.name.eq_ignore_ascii_case(row.name)).count();
        assert!(same == 1 && row.meaning.ends_with('.') && !row.meaning.contains('|'), "{}", row.name);
    }
}

#[test]
fn a_bad_value_is_the_users_mistake_and_is_told_before_anything_is_sent() {
    assert!(refused(&[("color", "red")], "color").to_string().contains("tagValueDelimiter"));
    for value in ["59", "301", "x", "1.5", "-1"] {
        let error = refused(&[("instantAccessDurationMinutes", value)], "instantAccessDurationMinutes");
        assert!(error.to_string().contains("from 60 to 300"), "{error}");
    }
    refused(&[("dataAccessAuthMode", "none")], "dataAccessAuthMode");
    for value in ["allowall", "denyall", "AllowPrivate"] {
        let error = refused(&[("networkAccessPolicy", value)], "networkAccessPolicy").allowed;
        assert!(error.contains("allowed are AllowAll, DenyAll") && !error.contains("AllowPrivate"), "{error}");
    }
    refused(&[("publicNetworkAccess", "on")], "publicNetworkAccess");
    let error = refused(&[("networkAccessPolicy", "AllowPrivate")], "networkAccessPolicy");
    assert!(error.to_string().contains("disk access"), "{error}");
    refused(&[("tags", "a")], "tags");
    refused(&[("resourceGroup", "a/b")], "resourceGroup");
    assert!(planned(&[("Tags", "a=1"), ("tags", "a=1")], &disk()).unwrap_err().to_string().contains("given twice"));
    let nameless = SnapshotRequest { name: String::new(), ..request(&[]) };
    assert_eq!(plan_snapshot(&nameless, &defaults(), SourceSeen::Gone).unwrap_err().parameter, "name");
}

#[test]
fn only_false_makes_a_full_snapshot_and_never_of_a_disk_that_has_none() {
    assert!(!spec(&[("incremental", "false")]).incremental);
    assert!(spec(&[("incremental", "true")]).incremental);
    let odd = plan(&[("incremental", "False")]);
    assert!(odd.warnings.len() == 1 && odd.warnings[0].contains("counts as true"), "{:?}", odd.warnings);
    let error = refused_of(planned(&[("incremental", "false")], &v2()), "incremental", "false");
    assert!(error.to_string().contains("PremiumV2_LRS"), "{error}");
    let gone = plan_snapshot(&request(&[("incremental", "false")]), &defaults(), SourceSeen::Gone);
    assert!(gone.is_ok(), "what exists is still told of");
}

#[test]
fn azure_stack_has_full_snapshots_without_access_rules() {
    let stack = Defaults { cloud: Cloud::AzureStack, ..defaults() };
    let of = |pairs| plan_snapshot(&request(pairs), &stack, SourceSeen::Disk(&disk()));
    let plan =
        of(&[("incremental", "true"), ("networkAccessPolicy", "DenyAll"), ("instantAccessDurationMinutes", "60")]);
    let plan = plan.unwrap();
    let Route::InRegion(spec) = &plan.route else { panic!("{plan:?}") };
    assert_eq!((spec.incremental, spec.network_access_policy, spec.instant_access_minutes), (false, None, None));
    assert_eq!(plan.warnings.len(), 3, "{:?}", plan.warnings);
    refused_of(of(&[("location", "westus")]), "location", "westus");
}

#[test]
fn group_and_subscription_are_the_disks_unless_the_class_names_others() {
    let id = |pairs: Pairs<'_>, volume: &str| {
        let request = SnapshotRequest { volume: volume.parse().unwrap(), ..request(pairs) };
        plan_snapshot(&request, &defaults(), SourceSeen::Disk(&disk()))
            .map(|plan| (plan.snapshot.subscription().to_owned(), plan.snapshot.resource_group().to_owned()))
    };
    let other = "/subscriptions/s2/resourceGroups/g2/providers/Microsoft.Compute/disks/d";
    let full = ("incremental", "false");
    let guid = "00000000-0000-0000-0000-00000000000a";
    for (pairs, volume, subscription, group) in [
        (&[][..], VOLUME, "sub", "disks"),
        (&[("resourceGroup", "backup")], VOLUME, "sub", "backup"),
        (&[], other, "s2", "g2"),
        // As the Go driver.
        (&[("resourceGroup", "backup"), full], other, "sub", "backup"),
        (&[("subscriptionID", guid), full], VOLUME, guid, "disks"),
    ] {
        assert_eq!(id(pairs, volume), Ok((subscription.to_owned(), group.to_owned())), "{pairs:?}");
    }
    let error = id(&[("resourceGroup", "backup")], other).unwrap_err();
    assert!(error.to_string().contains("allowed is s2"), "{error}");
    let error = id(&[("subscriptionID", guid)], VOLUME).unwrap_err();
    assert!(error.parameter == "subscriptionID" && error.to_string().contains("only in the subscription"), "{error}");
    for pairs in [&[("subscriptionID", "abc")][..], &[("subscriptionID", "abc"), full]] {
        let error = id(pairs, VOLUME).unwrap_err().to_string();
        assert!(error.contains("is a GUID") && !error.contains("incremental"), "{error}");
    }
}

#[test]
fn neither_the_disk_nor_the_snapshot_may_be_in_a_group_that_the_operator_does_not_allow() {
    let allowed = AllowedResourceGroups::of(vec!["disks".parse().unwrap()]);
    let limited = Defaults { allowed_resource_groups: allowed, ..defaults() };
    let of = |pairs, volume: &str| {
        let request = SnapshotRequest { volume: volume.parse().unwrap(), ..request(pairs) };
        plan_snapshot(&request, &limited, SourceSeen::Disk(&disk()))
    };
    assert!(of(&[], VOLUME).is_ok());
    refused_of(of(&[("resourceGroup", "vault")], VOLUME), "resourceGroup", "vault");
    let secret = VOLUME.replace("/disks/providers", "/secret/providers");
    refused_of(of(&[("resourceGroup", "disks")], &secret), "source_volume_id", &secret);
}

#[test]
fn names_are_those_of_the_go_driver_where_it_gives_the_same_name_twice() {
    let across = [("location", "westus")];
    let Route::AcrossRegions { local, .. } = plan(&across).route else { panic!() };
    assert_eq!((local.name(), local.resource_group()), ("local_snapshot-1", "disks"));
    let named = |name: &str| {
        let request = SnapshotRequest { name: name.into(), ..request(&across) };
        let plan = plan_snapshot(&request, &defaults(), SourceSeen::Disk(&disk())).unwrap();
        let Route::AcrossRegions { local, .. } = plan.route else { panic!() };
        (plan.snapshot.name().to_owned(), local.name().to_owned())
    };
    let long = "n".repeat(80);
    assert_eq!(named(&long).0, long);
    let (snapshot, local) = named(&format!("{long}x"));
    assert!(snapshot.starts_with("pvc-disk-dynamic-") && local == format!("local_{snapshot}"), "{snapshot} {local}");
    assert!(named(&long).1.starts_with("pvc-disk-dynamic-"), "what cannot be its name is a digest");
    assert_ne!(named(&format!("{}a", &long[1..])).1, named(&format!("{}b", &long[1..])).1);
}

#[test]
fn a_volume_id_that_is_longer_than_a_tag_is_found_again_in_any_spelling() {
    let (subscription, group, name) = ("s".repeat(36), "g".repeat(90), "d".repeat(80));
    let long = ArmId::disk(&subscription, &group, &name).unwrap().to_string();
    assert!(long.len() > 256);
    let tag = |text: &str| {
        let request = SnapshotRequest { volume: volume(text), ..request(&[]) };
        let plan = plan_snapshot(&request, &defaults(), SourceSeen::Gone).unwrap();
        let Route::InRegion(spec) = plan.route else { panic!() };
        spec.tags[SOURCE_VOLUME].clone()
    };
    assert!(tag(&long).len() <= 256 && tag(&long) == tag(&long.to_uppercase()));
    assert_eq!(tag(VOLUME), VOLUME);
}

#[test]
fn a_class_sets_no_tag_of_the_driver() {
    let plan = plan(&[("tags", "Source_Volume_Id=mine,team=red"), ("csi.storage.k8s.io/volumesnapshot/name", "n")]);
    let Route::InRegion(spec) = &plan.route else { panic!() };
    assert_eq!((spec.tags["source_volume_id"].as_str(), spec.tags["team"].as_str()), (VOLUME, "red"));
    assert_eq!(spec.tags["kubernetes.io-created-for-snapshot-name"], "n");
    assert!(plan.warnings.len() == 1 && plan.warnings[0].contains("mine"), "{:?}", plan.warnings);
}

#[test]
fn another_region_takes_a_local_snapshot_and_a_copy_of_it() {
    let pairs = [("location", "West US"), ("instantAccessDurationMinutes", "60")];
    let edge = lazuli_model::disk_spec::ExtendedLocation { name: "attatlanta1".into(), kind: "EdgeZone".into() };
    let defaults = Defaults { extended_location: Some(edge.clone()), ..defaults() };
    let across = plan_snapshot(&request(&pairs), &defaults, SourceSeen::Disk(&v2())).unwrap();
    let Route::AcrossRegions { local, of_disk, copy } = &across.route else { panic!("{across:?}") };
    assert_eq!((of_disk.location.as_str(), of_disk.method, &of_disk.source), ("eastus", CopyMethod::Copy, &disk().id));
    assert_eq!((copy.location.as_str(), copy.method, &copy.source), ("West US", CopyMethod::CopyStart, local));
    assert_eq!((&of_disk.extended_location, &copy.extended_location), (&Some(edge), &None));
    assert_eq!((of_disk.instant_access_minutes, copy.instant_access_minutes), (Some(60), None));
    assert_eq!(of_disk.tags, copy.tags);
    for here in ["eastus", "East US", ""] {
        assert!(matches!(plan(&[("location", here)]).route, Route::InRegion(_)), "{here}");
    }
    // A disk of another region than the cluster's has its snapshot where it is.
    let far = Disk { location: "westus".into(), ..disk() };
    let Route::InRegion(there) = planned(&[("location", "westus")], &far).unwrap().route else { panic!() };
    assert_eq!(there.location, "westus");
    refused(&[("location", "westus"), ("incremental", "false")], "location");
}

#[test]
fn a_location_that_is_no_name_of_a_region_is_refused_and_one_that_azure_refuses_names_its_code() {
    for value in ["west-us", "west_us", "westus.", "(US) West US", "/westus", "münchen", " "] {
        let error = refused(&[("location", value)], "location");
        assert!(error.to_string().contains("list-locations"), "{error}");
    }
    let across = plan(&[("location", "Atlantis 2")]);
    let code = "LocationNotAvailableForResourceType";
    assert!(is_region_refusal(code) && is_region_refusal("invalidlocation") && !is_region_refusal("InvalidParameter"));
    let refused = across.region_refused(code).unwrap().to_string();
    assert!(["location", "Atlantis 2", code, "eastus"].iter().all(|word| refused.contains(word)), "{refused}");
    assert_eq!(plan(&[]).region_refused(code), None);
}

#[test]
fn instant_access_is_for_disks_whose_snapshots_are_filled_late() {
    let pairs = [("instantAccessDurationMinutes", "60")];
    let error = refused(&pairs, "instantAccessDurationMinutes");
    assert!(error.to_string().contains("Premium_LRS") && error.to_string().contains("UltraSSD_LRS"), "{error}");
    for sku in [Some(SkuName::PremiumV2Lrs), Some(SkuName::UltraSsdLrs), None] {
        assert!(planned(&pairs, &Disk { sku, ..disk() }).is_ok(), "{sku:?}");
    }
    assert!(plan_snapshot(&request(&pairs), &defaults(), SourceSeen::Gone).is_ok());
}

#[test]
fn a_template_in_a_tag_of_a_snapshot_stays_and_is_told() {
    for value in ["${pvc.metadata.nmae}", "${pvc.metadata.name}", "${volumesnapshot.metadata.name}"] {
        let plan = plan(&[("tags", &format!("owner={value}"))]);
        let Route::InRegion(spec) = &plan.route else { panic!() };
        assert_eq!(spec.tags["owner"], value);
        assert!(plan.warnings.len() == 1 && plan.warnings[0].contains(value), "{:?}", plan.warnings);
        assert!(plan.warnings[0].contains("tags of a snapshot have no templates"), "{:?}", plan.warnings);
    }
}

#[test]
fn a_missing_resource_group_is_named_with_the_parameters_that_name_it() {
    let snapshot = plan(&[("resourceGroup", "backup")]).snapshot;
    let said = missing_scope(&Fault::ScopeNotFound, &snapshot, &ArmId::disk("sub", "BACKUP", "d").unwrap()).unwrap();
    let words = ["resource group backup in subscription sub", "resourceGroup", "VolumeSnapshotClass"];
    assert!(words.iter().all(|word| said.contains(word)), "{said}");
    let other = ArmId::disk("sub", "team", "d").unwrap();
    let said = missing_scope(&Fault::ScopeNotFound, &snapshot, &other).unwrap();
    assert!(said.contains("group backup in") && said.ends_with("group team in subscription sub, which is the disk's"));
    assert_eq!(missing_scope(&Fault::NotFound, &snapshot, &other), None);
}

#[test]
fn what_counts_otherwise_than_it_is_written_is_told() {
    for (value, says) in [("flase", "counts as true"), ("", "incremental is empty and counts as not given")] {
        let told = taken_otherwise(&request(&[("incremental", value)]), &defaults());
        assert!(told.len() == 1 && told[0].contains(says), "{told:?}");
    }
    assert_eq!(taken_otherwise(&request(&[("incremental", "false")]), &defaults()), Vec::<String>::new());
    assert_eq!(taken_otherwise(&request(&[("color", "red")]), &defaults()), Vec::<String>::new(), "it is refused");
}

fn step(
    plan: &SnapshotPlan,
    target: Option<&Snapshot>,
    local: Option<&Snapshot>,
) -> Result<NextSnapshot, SnapshotRefusal> {
    next(plan, &SnapshotsSeen { target: target.cloned(), local: local.cloned() })
}

fn answered(next: Result<NextSnapshot, SnapshotRefusal>) -> SnapshotView {
    match next {
        Ok(NextSnapshot::Answer(view)) => view,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_snapshot_is_made_once_and_is_ready_when_azure_says_so() {
    let plan = plan(&[]);
    let Route::InRegion(spec) = &plan.route else { panic!() };
    let expected = NextSnapshot::Create { snapshot: plan.snapshot.clone(), spec: spec.clone() };
    assert_eq!(step(&plan, None, None), Ok(expected));
    let there = made(&plan.snapshot, spec);
    let view = answered(step(&plan, Some(&pending(there.clone())), None));
    assert!(!view.is_ready);
    let fractional = Snapshot { bytes: Some((10 << 30) + 512), created: AzureTime::from_unix_seconds(7), ..there };
    let view = answered(step(&plan, Some(&fractional), None));
    assert_eq!((view.is_ready, view.size_bytes, view.created.unix_seconds()), (true, 10 << 30, 7));
    assert_eq!((view.snapshot, view.source_volume_id.as_str()), (plan.snapshot.clone(), VOLUME));
}

#[test]
fn what_cannot_be_made_says_what_to_do() {
    let plan = plan(&[]);
    let Route::InRegion(spec) = &plan.route else { panic!() };
    let gone = plan_snapshot(&request(&[]), &defaults(), SourceSeen::Gone).unwrap();
    let refusal = step(&gone, None, None).unwrap_err();
    assert_eq!((refusal.code(), refusal), (Code::NotFound, SnapshotRefusal::SourceGone(disk().id)));
    // The disk may go while its snapshot stays.
    assert!(answered(step(&gone, Some(&made(&plan.snapshot, spec)), None)).is_ready);

    let other = Snapshot { source_unique_id: Some("u-0".into()), ..made(&plan.snapshot, spec) };
    let refusal = step(&plan, Some(&other), None).unwrap_err();
    assert!(matches!(refusal, SnapshotRefusal::Mismatch(SnapshotMismatch::SourceRemade { .. })), "{refusal}");
    assert_eq!(refusal.code(), Code::AlreadyExists);
}

/// external-snapshotter deletes only what an answer has named.
#[test]
fn a_snapshot_that_azure_has_failed_to_make_is_answered_as_not_ready_with_the_failure() {
    let failures = |snapshot: &Snapshot| {
        let state = |state| Snapshot { provisioning_state: state, ..snapshot.clone() };
        let broken = Snapshot { copy_error: Some("CopySourceNotFound".into()), ..pending(snapshot.clone()) };
        [
            (state(ProvisioningState::Failed), "failed"),
            (state(ProvisioningState::Canceled), "canceled"),
            (broken, "CopySourceNotFound"),
        ]
    };
    let here = plan(&[]);
    let Route::InRegion(spec) = &here.route else { panic!() };
    let there = plan(&[("location", "westus")]);
    let Route::AcrossRegions { local, of_disk, copy } = &there.route else { panic!() };
    let source = made(local, of_disk);
    for (plan, snapshot, is_target) in [
        (&here, made(&here.snapshot, spec), true),
        (&there, made(&there.snapshot, copy), true),
        (&there, source.clone(), false),
    ] {
        for (failed, why) in failures(&snapshot) {
            let view = match is_target {
                true => answered(step(plan, Some(&failed), Some(&source))),
                false => answered(step(plan, None, Some(&failed))),
            };
            assert_eq!((&view.snapshot, view.is_ready), (&plan.snapshot, false), "{failed:?}");
            let failure = view.failure.unwrap();
            assert_eq!((&failure.snapshot, failure.why.as_str()), (&snapshot.id, why));
            let told = failure.to_string();
            assert!(told.contains(snapshot.id.as_str()) && told.contains(why), "{told}");
            let of_earlier = Snapshot { source_unique_id: Some("u-0".into()), ..failed.clone() };
            let view = match is_target {
                true => answered(step(plan, Some(&of_earlier), Some(&source))),
                false => answered(step(plan, None, Some(&of_earlier))),
            };
            assert!(view.failure.is_some(), "whichever disk has the name of its source");
            let a_persons = Snapshot { tags: BTreeMap::new(), ..failed };
            let refused =
                if is_target { step(plan, Some(&a_persons), None) } else { step(plan, None, Some(&a_persons)) };
            assert_eq!(refused.unwrap_err().code(), Code::AlreadyExists);
        }
        let view = SnapshotView::of(&snapshot);
        assert_eq!((view.is_ready, view.failure), (true, None));
    }
}

#[test]
fn the_local_snapshot_stays_until_its_copy_is_complete() {
    let plan = plan(&[("location", "westus")]);
    let Route::AcrossRegions { local: id, of_disk, copy } = &plan.route else { panic!() };
    let (local, target) = (made(id, of_disk), made(&plan.snapshot, copy));
    let create = |id: &ArmId, spec: &SnapshotSpec| {
        Ok(NextSnapshot::Create { snapshot: id.clone(), spec: Box::new(spec.clone()) })
    };
    assert_eq!(step(&plan, None, None), create(id, of_disk));
    let view = answered(step(&plan, None, Some(&pending(local.clone()))));
    assert_eq!((view.snapshot, view.is_ready), (plan.snapshot.clone(), false));
    let instant = Snapshot { access: Some(SnapshotAccessState::InstantAccess), ..pending(local.clone()) };
    assert!(!answered(step(&plan, None, Some(&instant))).is_ready, "Azure copies it once it is complete");
    assert_eq!(step(&plan, None, Some(&local)), create(&plan.snapshot, copy));
    let copying = pending(target.clone());
    assert!(!answered(step(&plan, Some(&copying), Some(&local))).is_ready);
    // What the Go driver wrote would call it ready.
    let by_go = Snapshot { access: None, instant_access_minutes: Some(60), ..copying };
    assert!(!answered(step(&plan, Some(&by_go), Some(&local))).is_ready);
    assert_eq!(step(&plan, Some(&target), Some(&local)), Ok(NextSnapshot::DeleteLocal(id.clone())));
    assert!(answered(step(&plan, Some(&target), None)).is_ready);
    assert!(!SnapshotView::of(&by_go).is_ready, "in a list too");
    let other = VOLUME.replace("pvc-1", "pvc-9");
    let of_another = [("k8s-azure-created-by", "kubernetes-azure-dd"), ("source_volume_id", &other)];
    let of_another = Snapshot { tags: map(&of_another), ..local.clone() };
    assert!(answered(step(&plan, Some(&target), Some(&of_another))).is_ready);
    let a_persons = Snapshot { tags: BTreeMap::new(), ..local.clone() };
    assert!(answered(step(&plan, Some(&target), Some(&a_persons))).is_ready);
    assert!(step(&plan, None, Some(&a_persons)).is_err());
}

#[test]
fn a_local_snapshot_of_the_request_is_copied_whichever_disk_has_the_name_of_its_source() {
    let plan = plan(&[("location", "westus")]);
    let Route::AcrossRegions { local, of_disk, copy } = &plan.route else { panic!("another region") };
    let there = Snapshot { source_unique_id: Some("u-0".into()), ..made(local, of_disk) };
    let of_gone = plan_snapshot(&request(&[("location", "westus")]), &defaults(), SourceSeen::Gone).unwrap();
    for plan in [&plan, &of_gone] {
        let expected = NextSnapshot::Create { snapshot: plan.snapshot.clone(), spec: copy.clone() };
        assert_eq!(step(plan, None, Some(&there)), Ok(expected));
        let view = answered(step(plan, None, Some(&pending(there.clone()))));
        assert_eq!((view.snapshot, view.is_ready), (plan.snapshot.clone(), false));
        let target = made(&plan.snapshot, copy);
        assert!(!answered(step(plan, Some(&pending(target.clone())), Some(&there))).is_ready);
        assert_eq!(step(plan, Some(&target), Some(&there)), Ok(NextSnapshot::DeleteLocal(local.clone())));
        assert!(plan.has_any(&SnapshotsSeen { target: None, local: Some(there.clone()) }));
    }
    let tagged = |tags: BTreeMap<String, String>| Snapshot { tags, ..there.clone() };
    let mut of_go = there.tags.clone();
    of_go.remove("lazuli-request");
    let mut of_another = there.tags.clone();
    of_another.insert("lazuli-request".into(), "snapshot-2".into());
    for other in [
        tagged(of_go),
        tagged(of_another),
        tagged(BTreeMap::new()),
        Snapshot { location: "westeurope".into(), source_unique_id: Some("u-1".into()), ..there.clone() },
        Snapshot { method: Some(CopyMethod::CopyStart), ..there.clone() },
    ] {
        let refused = step(&plan, None, Some(&other)).unwrap_err();
        assert_eq!(refused.code(), Code::AlreadyExists, "{other:?}");
        assert!(!plan.has_any(&SnapshotsSeen { target: None, local: Some(other) }));
    }
}

#[test]
fn a_deletion_takes_the_local_snapshot_along_and_no_other_one() {
    let plan = plan(&[("location", "westus")]);
    let Route::AcrossRegions { local: id, of_disk, copy } = &plan.route else { panic!() };
    let (local, target) = (made(id, of_disk), made(&plan.snapshot, copy));
    fn delete(plan: &SnapshotPlan, target: Option<&Snapshot>, local: Option<Option<&Snapshot>>) -> NextDeletion {
        next_deletion(&plan.snapshot, target, local)
    }
    assert_eq!(delete(&plan, Some(&target), None), NextDeletion::Delete(plan.snapshot.clone()));
    assert_eq!(delete(&plan, None, None), NextDeletion::ReadLocal(id.clone()));
    assert_eq!(delete(&plan, None, Some(Some(&local))), NextDeletion::DeleteLast(id.clone()));
    assert_eq!(delete(&plan, None, Some(None)), NextDeletion::Done);
    for tags in [
        map(&[]),
        map(&[("lazuli-request", "snapshot-1")]),
        map(&[("k8s-azure-created-by", "kubernetes-azure-dd"), ("lazuli-request", "local_snapshot-1")]),
    ] {
        let other = Snapshot { tags, ..local.clone() };
        assert_eq!(delete(&plan, None, Some(Some(&other))), NextDeletion::Done, "{:?}", other.tags);
    }
    // In the disk's region there is none to look for.
    let here = Snapshot { method: Some(CopyMethod::Copy), ..target };
    assert_eq!(delete(&plan, Some(&here), None), NextDeletion::DeleteLast(plan.snapshot.clone()));
    let long = "n".repeat(120);
    let request = SnapshotRequest { name: long, ..request(&[("location", "westus")]) };
    let plan = plan_snapshot(&request, &defaults(), SourceSeen::Disk(&disk())).unwrap();
    let Route::AcrossRegions { local: id, of_disk, .. } = &plan.route else { panic!() };
    assert_eq!(next_deletion(&plan.snapshot, None, None), NextDeletion::ReadLocal(id.clone()));
    let there = made(id, of_disk);
    assert_eq!(next_deletion(&plan.snapshot, None, Some(Some(&there))), NextDeletion::DeleteLast(id.clone()));
}

#[test]
fn a_list_tells_of_which_volume_a_copy_is() {
    let plan = plan(&[("location", "westus")]);
    let Route::AcrossRegions { local, of_disk, copy } = &plan.route else { panic!() };
    assert_eq!(SnapshotView::of(&made(&plan.snapshot, copy)).source_volume_id, VOLUME);
    assert_eq!(SnapshotView::of(&made(local, of_disk)).source_volume_id, VOLUME);
    let by_hand = Snapshot { tags: BTreeMap::new(), ..made(local, of_disk) };
    assert_eq!(SnapshotView::of(&by_hand).source_volume_id, VOLUME);
    let untold = Snapshot { tags: BTreeMap::new(), ..made(&plan.snapshot, copy) };
    assert_eq!(SnapshotView::of(&untold).source_volume_id, local.as_str());
    let empty = Snapshot { source: None, method: None, tags: BTreeMap::new(), ..untold };
    assert_eq!(SnapshotView::of(&empty).source_volume_id, "");
}

proptest! {
    #[test]
    fn whatever_is_refused_is_named_with_its_value(
        key in proptest::sample::select(SNAPSHOT_PARAMETERS.iter().map(|row| row.name).chain(["nonsense"]).collect::<Vec<_>>()),
        value in "\\PC{0,40}",
    ) {
        if let Err(error) = planned(&[(key, &value)], &disk()) {
            // Another subscription is refused for what follows from it.
            prop_assert_eq!(&error.parameter, key);
            prop_assert_eq!(&error.value, &value);
        }
    }
}
