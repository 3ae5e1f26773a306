//! Each rule of copies: size, place, readiness, adoption, line, limits.

mod laws;
mod limits;

use std::{collections::BTreeMap, time::Duration};

use lazuli_model::{
    AzureTime, Completion, CopyMethod, ProvisioningState, SkuName, SnapshotAccessState,
    disk_spec::CopySize,
    disk_tags::{CARRIES_TO, FOR_PV, MADE_AS, OF_CLUSTER, REQUEST},
    fault::Code,
};

use super::*;
use crate::{AllowedResourceGroups, Capability, DISK_TOPOLOGY_KEY, ParameterErrorKind};

const GIB: u64 = 1 << 30;

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

fn request(gib: i64, pairs: Pairs<'_>) -> Request {
    Request {
        name: "pvc-2".to_owned(),
        parameters: map(pairs),
        required_bytes: gib << 30,
        capabilities: vec![Capability::mounted()],
        ..Request::default()
    }
}

fn in_zones(request: Request, zones: &[&str]) -> Request {
    let segments = |zone: &&str| BTreeMap::from([(DISK_TOPOLOGY_KEY.to_owned(), (*zone).to_owned())]);
    let requisite: Vec<_> = zones.iter().map(segments).collect();
    Request { preferred: requisite.clone(), requisite, ..request }
}

fn snapshot(bytes: u64) -> Snapshot {
    Snapshot {
        location: "East US".into(),
        size: Gib::holding(bytes).unwrap(),
        bytes: Some(bytes),
        unique_id: Some("s-1".into()),
        ..Snapshot::complete(
            ArmId::snapshot("sub", "backup", "snapshot-1").unwrap(),
            &ArmId::disk("sub", "rg", "pvc-1").unwrap(),
        )
    }
}

fn disk(zones: &[&str]) -> Disk {
    Disk {
        id: ArmId::disk("sub", "rg", "pvc-1").unwrap(),
        location: "eastus".into(),
        zones: zones.iter().map(|zone| (*zone).to_owned()).collect(),
        sku: Some(SkuName::PremiumLrs),
        size: Gib::new(10),
        bytes: Some(10 * GIB),
        unique_id: Some("d-1".into()),
        ..Disk::unattached("pvc-1")
    }
}

fn planned(request: &Request, source: CopySource<'_>) -> Result<CopyPlan, ParameterError> {
    plan_copy(request, source, &Descent::default(), &defaults())
}

fn restored(request: &Request, snapshot: &Snapshot) -> CopyPlan {
    planned(request, CopySource::Snapshot(snapshot)).unwrap()
}

fn cloned(request: &Request, disk: &Disk) -> CopyPlan {
    planned(request, CopySource::Disk(disk)).unwrap()
}

fn copy_of(plan: &CopyPlan) -> &CopyOf {
    plan.create.spec.copy_of().unwrap()
}

/// The disk that Azure makes of a spec.
fn made(id: &ArmId, spec: &DiskSpec, source_bytes: u64, source_unique_id: &str) -> Disk {
    let bytes = spec.size_to_send().map_or(source_bytes, Gib::bytes);
    Disk {
        id: id.clone(),
        location: spec.location.clone(),
        zones: spec.zones.clone(),
        sku: Some(spec.sku),
        size: Gib::holding(bytes).unwrap(),
        bytes: Some(bytes),
        max_shares: spec.max_shares,
        disk_encryption_set: spec.disk_encryption_set.clone(),
        tags: spec.tags.clone(),
        iops: spec.iops,
        mbps: spec.mbps,
        source: spec.copy_of().map(|of| of.source.to_string()),
        source_unique_id: Some(source_unique_id.to_owned()),
        ..Disk::unattached("made")
    }
}

#[test]
fn a_restore_is_one_put_that_names_the_snapshot() {
    let plan = restored(&request(10, &[]), &snapshot(10 * GIB));
    let of = CopyOf { source: snapshot(0).id, unique_id: Some("s-1".into()), size: CopySize::Given };
    assert_eq!((copy_of(&plan), &plan.route), (&of, &CopyRoute::Direct(Readiness::Ready)));
    assert_eq!(plan.create.spec.size_to_send(), Some(Gib::new(10)));
    let context = [("requestedsizegib", "10"), ("sourceResourceId", of.source.as_str())];
    assert_eq!(plan.create.volume_context, map(&context));
    assert_eq!(plan.create.disk, ArmId::disk("sub", "rg", "pvc-2").unwrap());
}

#[test]
fn a_copy_is_never_smaller_than_its_source_to_the_byte() {
    let fractional = 10 * GIB + 512;
    for (asked, bytes, sent, size, context, grows) in [
        (10, 10 * GIB, Some(10), 10, "10", false),
        (20, 10 * GIB, Some(20), 20, "20", true),
        // It has no whole GiB: a size would make it larger or be refused.
        (10, fractional, None, 11, "10", false),
        (11, fractional, Some(11), 11, "11", true),
        (10, 60 * GIB, None, 60, "10", false),
        // Without a wish it is as large as its source.
        (0, 600 * GIB, None, 600, "1", false),
    ] {
        let plan = restored(&request(asked, &[]), &snapshot(bytes));
        let case = format!("{asked} {bytes}");
        assert_eq!(plan.create.spec.size_to_send(), sent.map(Gib::new), "{case}");
        assert_eq!(
            (plan.create.size, plan.create.volume_context["requestedsizegib"].as_str()),
            (Gib::new(size), context),
            "{case}"
        );
        assert_eq!(plan.create.volume_context.contains_key("resizeRequired"), grows, "{case}");
        let disk = made(&plan.create.disk, &plan.create.spec, bytes, "s-1");
        let adopted = plan.adopt(&disk).unwrap();
        let device = disk.bytes.unwrap();
        let said: u64 = adopted.volume_context["requestedsizegib"].parse().unwrap();
        assert!(
            said * GIB <= device && device >= bytes && adopted.size.bytes() >= u64::try_from(asked).unwrap() * GIB,
            "{case}"
        );
    }
    let error = planned(&request(10, &[]), CopySource::Snapshot(&snapshot(61 * GIB))).unwrap_err();
    assert_eq!(error.kind(), ParameterErrorKind::OutOfRange);
    assert!(error.to_string().contains("the source has 61 GiB"), "{error}");
    let limited = Request { limit_bytes: 10 << 30, ..request(10, &[]) };
    let error = planned(&limited, CopySource::Snapshot(&snapshot(fractional))).unwrap_err();
    assert_eq!((error.parameter.as_str(), error.kind()), ("limit_bytes", ParameterErrorKind::OutOfRange));
    let enough = Request { limit_bytes: i64::try_from(fractional).unwrap(), ..request(10, &[]) };
    assert!(planned(&enough, CopySource::Snapshot(&snapshot(fractional))).is_ok());
    let huge = planned(&request(0, &[]), CopySource::Snapshot(&snapshot(40_000 * GIB))).unwrap_err();
    assert!(huge.to_string().contains("largest StandardSSD_LRS disk"), "{huge}");
}

#[test]
fn what_follows_from_the_size_follows_from_the_size_of_the_copy() {
    let plan = restored(&request(600, &[("skuName", "UltraSSD_LRS")]), &snapshot(640 * GIB));
    assert_eq!((plan.create.spec.size_to_send(), plan.create.spec.iops), (None, Some(640)));
    let large = restored(&request(4_090, &[("cachingMode", "ReadOnly")]), &snapshot(4_096 * GIB));
    assert_eq!(large.create.warnings.len(), 1, "{:?}", large.create.warnings);
}

#[test]
fn a_clone_of_a_grown_clone_grows_to_its_device() {
    let descent = Descent { line: Line::default(), least_bytes: Some(5 * GIB) };
    let grows = |descent: &Descent| {
        let plan = plan_copy(&request(10, &[]), CopySource::Disk(&disk(&[])), descent, &defaults()).unwrap();
        plan.create.volume_context.get("resizeRequired").cloned()
    };
    assert_eq!((grows(&descent), grows(&Descent::default())), (Some("true".to_owned()), None));
}

#[test]
fn the_line_is_written_down_and_the_source_too() {
    let line = Line::parse(&format!("{},{}", snapshot(0).id, disk(&[]).id));
    let descent = Descent { line: line.clone(), least_bytes: None };
    let source = snapshot(10 * GIB);
    let plan = plan_copy(&request(10, &[]), CopySource::Snapshot(&source), &descent, &defaults()).unwrap();
    assert_eq!(Line::parse(&plan.create.volume_context[LINE_KEY]), line);
    assert_eq!(plan.create.volume_context[SOURCE_KEY], source.id.as_str());
}

#[test]
fn a_snapshot_is_restored_into_any_zone_of_its_region() {
    let source = snapshot(10 * GIB);
    let plan = restored(&in_zones(request(10, &[]), &["eastus-2"]), &source);
    assert_eq!(
        (plan.create.spec.zones.as_slice(), plan.route),
        (&["2".to_owned()][..], CopyRoute::Direct(Readiness::Ready))
    );
    let error = planned(&in_zones(request(10, &[]), &["westus-1"]), CopySource::Snapshot(&source)).unwrap_err();
    assert_eq!((error.parameter.as_str(), error.value.as_str()), ("volume_content_source", "East US"));
    assert!(error.to_string().contains("East US"), "{error}");
    let there = Snapshot { location: "westus".into(), ..source };
    assert!(planned(&request(10, &[("location", "West US")]), CopySource::Snapshot(&there)).is_ok());
}

#[test]
fn a_clone_stays_in_the_zone_of_its_source_where_the_request_takes_that() {
    let source = disk(&["2"]);
    for (zones, made_in) in
        [(&["eastus-1", "eastus-2"][..], "2"), (&["eastus-2"], "2"), (&[], "2"), (&["eastus-2", "eastus-1"], "2")]
    {
        let plan = cloned(&in_zones(request(10, &[]), zones), &source);
        assert_eq!(
            (plan.create.spec.zones, plan.route),
            (vec![made_in.to_owned()], CopyRoute::Direct(Readiness::Ready))
        );
        assert_eq!(
            plan.create.accessible_topology,
            [BTreeMap::from([(DISK_TOPOLOGY_KEY.to_owned(), "eastus-2".to_owned())])]
        );
    }
    // What is in no zone, or in all of them, is copied into any one.
    for zones in [&[][..], &["1", "2", "3"]] {
        let plan = cloned(&in_zones(request(10, &[]), &["eastus-3"]), &disk(zones));
        assert_eq!(
            (plan.create.spec.zones.as_slice(), plan.route),
            (&["3".to_owned()][..], CopyRoute::Direct(Readiness::Ready))
        );
    }
    let redundant = cloned(&in_zones(request(10, &[("skuName", "Premium_ZRS")]), &["eastus-1"]), &source);
    assert_eq!((redundant.create.spec.zones.len(), redundant.route), (0, CopyRoute::Direct(Readiness::Ready)));
}

#[test]
fn a_clone_into_another_zone_goes_over_a_snapshot_that_says_what_it_is_for() {
    let source = disk(&["2"]);
    for zones in [&["eastus-1"][..], &[""]] {
        let plan = cloned(&in_zones(request(10, &[]), zones), &source);
        let CopyRoute::Carried { carrier, spec, source: Readiness::Ready } = &plan.route else { panic!("{plan:?}") };
        assert_eq!(*carrier, ArmId::snapshot("sub", "rg", "carry_pvc-2").unwrap());
        assert_eq!((&spec.source, spec.incremental, spec.location.as_str()), (&source.id, true, "eastus"));
        let said = [REQUEST, CARRIES_TO, COPY_OF]
            .map(|tag| spec.tags.get(tag).or(plan.create.spec.tags.get(tag)).unwrap().as_str());
        assert_eq!(said, ["pvc-2", plan.create.disk.as_str(), source.id.as_str()]);
        assert_eq!((copy_of(&plan).source.clone(), copy_of(&plan).unique_id.clone()), (carrier.clone(), None));
        assert_eq!(plan.create.volume_context[SOURCE_KEY], source.id.as_str());
        assert_ne!(plan.create.spec.zones, ["2"]);
    }
    // Azure makes incremental snapshots in the subscription of the disk alone.
    let class = [("subscriptionID", "other"), ("resourceGroup", "g")];
    let plan = cloned(&in_zones(request(10, &class), &["eastus-1"]), &source);
    let CopyRoute::Carried { carrier, .. } = &plan.route else { panic!("{plan:?}") };
    assert_eq!((carrier.subscription(), carrier.resource_group()), ("sub", "rg"));
}

#[test]
fn a_source_with_large_sectors_makes_disks_that_have_them_alone() {
    let large = Snapshot { logical_sector_size: Some(4096), ..snapshot(10 * GIB) };
    let error = planned(&request(10, &[("skuName", "Premium_LRS")]), CopySource::Snapshot(&large)).unwrap_err();
    assert!(error.to_string().contains("UltraSSD_LRS and PremiumV2_LRS"), "{error}");
    let v2 = ("skuName", "PremiumV2_LRS");
    assert!(planned(&request(10, &[v2]), CopySource::Snapshot(&large)).is_ok());
    let error = planned(&request(10, &[v2, ("LogicalSectorSize", "512")]), CopySource::Snapshot(&large)).unwrap_err();
    assert!(error.to_string().contains("allowed is 4096"), "{error}");
    let same = restored(&request(10, &[v2, ("LogicalSectorSize", "4096")]), &large);
    assert_eq!(same.create.spec.logical_sector_size, Some(4096));
    assert_eq!(restored(&request(10, &[v2]), &large).create.spec.logical_sector_size, None, "as the Go driver");
}

#[test]
fn a_source_in_a_group_that_the_operator_does_not_allow_is_refused() {
    let limited =
        Defaults { allowed_resource_groups: AllowedResourceGroups::of(vec!["team".parse().unwrap()]), ..defaults() };
    let source = snapshot(10 * GIB);
    let error = plan_copy(&request(10, &[]), CopySource::Snapshot(&source), &Descent::default(), &limited).unwrap_err();
    assert_eq!((error.parameter.as_str(), error.value.as_str()), ("volume_content_source", source.id.as_str()));
    assert!(plan_copy(&request(10, &[]), CopySource::Disk(&disk(&[])), &Descent::default(), &limited).is_ok());
}

#[test]
fn instant_access_is_for_disks_with_performance_of_their_own_and_of_the_same_size() {
    let instant = Snapshot {
        access: Some(SnapshotAccessState::InstantAccess),
        completion: Some(Completion::from_percent(10.0)),
        ..snapshot(10 * GIB)
    };
    let ready = |gib, sku, snapshot: &Snapshot| match restored(&request(gib, &[("skuName", sku)]), snapshot).route {
        CopyRoute::Direct(readiness) => readiness,
        route => panic!("{route:?}"),
    };
    let both =
        Snapshot { access: Some(SnapshotAccessState::AvailableWithInstantAccess), completion: None, ..instant.clone() };
    // The content of the second is complete: Azure is asked, and what it refuses has the same reason.
    let why = |gib, sku, open: &Snapshot| match ready(gib, sku, open) {
        Readiness::InstantAccess(why) => why,
        Readiness::Ready => {
            let create = restored(&request(gib, &[("skuName", sku)]), open).create;
            match refused_by_instant_access(open, &create) {
                Some(CopyRefusal::InstantAccess(why)) => why,
                refusal => panic!("{refusal:?}"),
            }
        }
        readiness => panic!("{readiness:?}"),
    };
    for (open, is_sent) in [(&instant, false), (&both, true)] {
        for sku in ["PremiumV2_LRS", "UltraSSD_LRS"] {
            assert_eq!(ready(10, sku, open), Readiness::Ready);
            assert_eq!(
                refused_by_instant_access(open, &restored(&request(10, &[("skuName", sku)]), open).create),
                None
            );
            assert_eq!(ready(11, sku, open) == Readiness::Ready, is_sent);
            let why = why(11, sku, open);
            let said = ["to have 11 GiB", "its own 10 GiB alone", "once instant access has ended", "a claim of 10 GiB"];
            assert!(said.iter().all(|words| why.contains(words)), "{why}");
        }
        assert_eq!(ready(10, "Premium_LRS", open) == Readiness::Ready, is_sent);
        let why = why(10, "Premium_LRS", open);
        assert!(why.contains("the disk is Premium_LRS") && why.contains("once instant access has ended"), "{why}");
    }
    // A copy in another region of which Azure says nothing never had instant access: Azure is asked.
    let copied = Snapshot {
        access: None,
        completion: None,
        instant_access_minutes: None,
        method: Some(CopyMethod::CopyStart),
        ..instant.clone()
    };
    assert_eq!(ready(11, "Premium_LRS", &copied), Readiness::Ready);
    let ended = Snapshot { access: Some(SnapshotAccessState::Available), completion: None, ..instant.clone() };
    let pending = Snapshot { access: Some(SnapshotAccessState::Pending), ..instant.clone() };
    let failed = Snapshot { provisioning_state: ProvisioningState::Failed, ..instant };
    for (gib, sku) in [(10, "Premium_LRS"), (11, "PremiumV2_LRS")] {
        assert_eq!(ready(gib, sku, &ended), Readiness::Ready, "all of its content is there");
        assert!(matches!(ready(gib, sku, &pending), Readiness::NotYet(_)));
        assert!(matches!(ready(gib, sku, &failed), Readiness::Never(_)));
    }
}

fn seen(disk: Option<&Disk>, carrier: Option<&Snapshot>) -> CopySeen {
    CopySeen { disk: disk.cloned(), carrier: carrier.cloned() }
}

#[test]
fn a_copy_waits_for_its_source_and_says_with_which_code() {
    let pending = Snapshot { access: Some(SnapshotAccessState::Pending), ..snapshot(10 * GIB) };
    let failed = Snapshot { copy_error: Some("x".into()), ..pending.clone() };
    let busy = Disk { provisioning_state: ProvisioningState::InProgress, ..disk(&[]) };
    let gone = snapshot(0).id;
    for (source, code) in [
        (CopySource::Snapshot(&pending), Code::Unavailable),
        (CopySource::Snapshot(&failed), Code::FailedPrecondition),
        (CopySource::Disk(&busy), Code::Unavailable),
        (CopySource::Gone(&gone), Code::NotFound),
    ] {
        let plan = planned(&request(10, &[]), source).unwrap();
        let refusal = next(&plan, &seen(None, None)).unwrap_err();
        assert_eq!(refusal.code(), code, "{refusal}");
        // A disk that was made before stays.
        let unique_id = copy_of(&plan).unique_id.as_deref().unwrap_or("any");
        let there = made(&plan.create.disk, &plan.create.spec, 10 * GIB, unique_id);
        assert!(matches!(next(&plan, &seen(Some(&there), None)), Ok(NextCopy::Answer(_))), "{source:?}");
    }
}

#[test]
fn a_disk_of_another_source_or_request_is_not_the_copy() {
    let plan = restored(&request(10, &[]), &snapshot(10 * GIB));
    let good = made(&plan.create.disk, &plan.create.spec, 10 * GIB, "S-1");
    assert!(plan.adopt(&good).is_ok());
    let other = ArmId::snapshot("sub", "backup", "snapshot-9").unwrap().to_string();
    for (bad, shown) in [
        (Disk { source: None, ..good.clone() }, "none"),
        (Disk { source: Some(other.clone()), ..good.clone() }, other.as_str()),
        (Disk { source: Some("FromImage".into()), ..good.clone() }, "FromImage"),
        // The snapshot was deleted and made again under its name.
        (Disk { source_unique_id: Some("s-0".into()), ..good.clone() }, "s-0"),
        (Disk { tags: map(&[(REQUEST, "pvc-3")]), ..good.clone() }, "pvc-3"),
        (Disk { size: Gib::new(9), ..good.clone() }, "9 GiB"),
    ] {
        let mismatch = plan.adopt(&bad).unwrap_err();
        assert!(mismatch.to_string().contains(shown), "{mismatch}");
    }
    let by_go = Disk { tags: map(&[(FOR_PV, "pvc-2")]), source_unique_id: None, ..good.clone() };
    assert!(plan.adopt(&by_go).is_ok());
    let empty = crate::plan_create(&request(10, &[]), &defaults()).unwrap();
    assert!(empty.adopt(&good).is_err(), "a copy is no empty disk");
}

#[test]
fn a_clone_of_an_earlier_try_in_another_accepted_zone_is_kept() {
    let source = disk(&["2"]);
    let asked = |zones: &[&str]| in_zones(request(10, &[]), zones);
    let over_carrier = cloned(&asked(&["eastus-1"]), &source);
    let there = made(&over_carrier.create.disk, &over_carrier.create.spec, 10 * GIB, "carrier");
    let direct = cloned(&asked(&["eastus-1", "eastus-2"]), &source);
    assert_eq!(direct.route, CopyRoute::Direct(Readiness::Ready));
    let adopted = direct.adopt(&there).unwrap();
    assert_eq!(adopted.accessible_topology[0][DISK_TOPOLOGY_KEY], "eastus-1");
    assert!(matches!(next(&direct, &seen(Some(&there), None)), Ok(NextCopy::Answer(_))));
    let unfinished = Disk { provisioning_state: ProvisioningState::Failed, ..there };
    let Ok(NextCopy::CreateDisk(spec)) = next(&direct, &seen(Some(&unfinished), None)) else { panic!() };
    assert_eq!(spec.copy_of().unwrap().source.name(), "carry_pvc-2");
}

#[test]
fn a_carrier_goes_when_its_disk_has_the_content_and_by_the_sweep_otherwise() {
    let source = disk(&["2"]);
    let plan = cloned(&in_zones(request(10, &[]), &["eastus-1"]), &source);
    let CopyRoute::Carried { carrier: id, spec, .. } = &plan.route else { panic!() };
    let carrier = Snapshot {
        unique_id: Some("c-1".into()),
        location: "eastus".into(),
        source_unique_id: Some("d-1".into()),
        tags: spec.tags.clone(),
        ..Snapshot::complete(id.clone(), &source.id)
    };
    assert!(matches!(next(&plan, &seen(None, None)), Ok(NextCopy::CreateCarrier { .. })));
    let pending = Snapshot { access: Some(SnapshotAccessState::Pending), ..carrier.clone() };
    assert_eq!(next(&plan, &seen(None, Some(&pending))).unwrap_err().code(), Code::Unavailable);
    let failed = Snapshot { provisioning_state: ProvisioningState::Failed, ..carrier.clone() };
    let earlier = Snapshot { source_unique_id: Some("d-0".into()), ..carrier.clone() };
    for useless in [&failed, &earlier] {
        assert_eq!(next(&plan, &seen(None, Some(useless))), Ok(NextCopy::DeleteCarrier(id.clone())));
        let mut untold = useless.clone();
        untold.tags.remove(CARRIES_TO);
        assert!(next(&plan, &seen(None, Some(&untold))).is_err(), "it is no carrier, whatever its name");
    }
    let foreign = Snapshot { tags: BTreeMap::new(), ..carrier.clone() };
    assert_eq!(next(&plan, &seen(None, Some(&foreign))).unwrap_err().code(), Code::AlreadyExists);
    let Ok(NextCopy::CreateDisk(of)) = next(&plan, &seen(None, Some(&carrier))) else { panic!() };
    assert_eq!(of.copy_of().unwrap().unique_id.as_deref(), Some("c-1"));

    let there = made(&plan.create.disk, &plan.create.spec, 10 * GIB, "c-1");
    let filling = Disk { completion: Some(Completion::from_percent(50.0)), ..there.clone() };
    assert!(matches!(next(&plan, &seen(Some(&filling), Some(&carrier))), Ok(NextCopy::Answer(_))));
    assert_eq!(next(&plan, &seen(Some(&there), Some(&carrier))), Ok(NextCopy::DeleteCarrier(id.clone())));
    assert!(matches!(next(&plan, &seen(Some(&there), Some(&foreign))), Ok(NextCopy::Answer(_))), "a person's stays");
    assert!(matches!(next(&plan, &seen(Some(&there), None)), Ok(NextCopy::Answer(_))));

    assert_eq!((carrier_of(&there), carrier_of(&disk(&[]))), (Some(id.clone()), None));
    let to = &plan.create.disk;
    let at = |hours: i64| AzureTime::from_unix_seconds(hours * 3_600);
    let absent = |minutes: u64| TargetSeen::Absent(Duration::from_secs(minutes * 60));
    for (snapshot, target, now, what) in [
        (&carrier, TargetSeen::Disk(&there), at(0), Leftover::Over),
        (&carrier, TargetSeen::Disk(&filling), at(99), Leftover::InUse),
        (&carrier, absent(600), at(23), Leftover::Resting),
        (&carrier, absent(60), at(24), Leftover::Over),
        // The copy has taken longer than a carrier lives, and the request has not come since.
        (&carrier, absent(0), at(99), Leftover::Resting),
        (&carrier, absent(59), at(99), Leftover::Resting),
        (&failed, absent(60), at(24), Leftover::Over),
        (&pending, absent(600), at(99), Leftover::InUse),
        (&foreign, absent(600), at(99), Leftover::InUse),
    ] {
        assert_eq!(leftover(snapshot, to, target, now), what, "{target:?}");
    }
    assert_eq!(leftover(&carrier, &source.id, absent(600), at(99)), Leftover::InUse, "it is another disk's");
    // A sweep knows its cluster's by what they say, in any spelling.
    assert_eq!(carrier_target(&carrier, ("SUB", "RG")).as_ref(), Some(to));
    let untold = Snapshot {
        tags: carrier.tags.clone().into_iter().filter(|(tag, _)| tag != OF_CLUSTER).collect(),
        ..carrier.clone()
    };
    for (snapshot, cluster) in [(&carrier, ("sub", "other")), (&carrier, ("other", "rg")), (&untold, ("sub", "rg"))] {
        assert_eq!(carrier_target(snapshot, cluster), None, "{cluster:?}");
    }
    // Of a disk of the same name in another group, and a person's copy of the tags.
    let elsewhere = ArmId::disk("sub", "other", "pvc-2").unwrap();
    let renamed = Snapshot { id: ArmId::snapshot("sub", "rg", "mine").unwrap(), ..carrier.clone() };
    assert!(is_carrier_to(&carrier, to) && !is_carrier_to(&carrier, &elsewhere) && !is_carrier_to(&renamed, to));
}

/// Azure converts a disk to PremiumV2 and fills one that was made as such in the same way. What was made as another type says
/// so, so that its conversion is known to a later process.
#[test]
fn a_copy_that_may_be_converted_later_says_as_what_it_was_made() {
    for (sku, made_as) in [
        ("Premium_LRS", Some("Premium_LRS")),
        ("StandardSSD_LRS", Some("StandardSSD_LRS")),
        ("PremiumV2_LRS", None),
        ("UltraSSD_LRS", None),
    ] {
        let plan = cloned(&in_zones(request(10, &[("skuName", sku)]), &["eastus-2"]), &disk(&["2"]));
        assert_eq!(plan.create.spec.tags.get(MADE_AS).map(String::as_str), made_as, "{sku}");
        let of_carrier = plan.other_way.unwrap();
        assert_eq!(of_carrier.tags.get(MADE_AS).map(String::as_str), made_as, "{sku}");
    }
    assert_eq!(crate::plan_create(&request(10, &[]), &defaults()).unwrap().spec.tags.get(MADE_AS), None);
}

#[test]
fn the_line_goes_on_behind_a_carrier_that_is_gone() {
    let source = disk(&["2"]);
    let plan = cloned(&in_zones(request(10, &[]), &["eastus-1"]), &source);
    let clone = made(&plan.create.disk, &plan.create.spec, 10 * GIB, "c-1");
    assert_eq!(Link::of_disk(&clone), Link::MadeFrom { source: source.id.clone(), bytes: 10 * GIB });
    let untold = Disk { tags: BTreeMap::new(), ..clone };
    let carrier = ArmId::snapshot("sub", "rg", "carry_pvc-2").unwrap();
    assert_eq!(Link::of_disk(&untold), Link::MadeFrom { source: carrier, bytes: 10 * GIB });
    // Only of a disk that came over a carrier: a person may set a tag.
    let tagged = Disk { tags: map(&[(COPY_OF, source.id.as_str())]), source: None, ..untold };
    assert_eq!(Link::of_disk(&tagged), Link::First { bytes: 10 * GIB });
    assert_eq!(Link::of_snapshot(&snapshot(5)), Link::MadeFrom { source: source.id, bytes: 5 });
}

#[test]
fn a_source_in_another_region_is_named_and_no_parameter_that_the_class_does_not_have() {
    let away = Snapshot { location: "northeurope".into(), ..snapshot(10 * GIB) };
    let error = planned(&request(10, &[]), CopySource::Snapshot(&away)).unwrap_err();
    assert_eq!((error.parameter.as_str(), error.value.as_str()), ("volume_content_source", "northeurope"));
    assert!(error.allowed.contains("this volume is to be in eastus"), "{error}");
    let error = planned(&request(10, &[("location", "westus")]), CopySource::Snapshot(&away)).unwrap_err();
    assert_eq!((error.parameter.as_str(), error.value.as_str()), ("location", "westus"));
}
