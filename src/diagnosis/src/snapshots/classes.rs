//! Whether a VolumeSnapshotClass takes snapshots, and whether a VolumeAttributesClass changes any disk: read as CreateSnapshot
//! and ControllerModifyVolume would read them.

use std::collections::{BTreeMap, BTreeSet};

use lazuli_model::{
    ArmId, Disk, Gib, SkuName, disk_details::DiskDetails, disk_spec::canonical_region, parameter::ParameterError,
};
use lazuli_volume::{
    Defaults,
    modify::plan_modify,
    snapshot::{SnapshotRequest, SourceSeen, plan_snapshot},
};

use super::{
    super::{Finding, Grade, migration::Class, refusals::judged, some},
    SnapshotClass,
};

/// The check of VolumeSnapshotClasses.
pub const SNAPSHOT_CLASSES: &str = "VolumeSnapshotClasses";
/// The check of VolumeAttributesClasses.
pub const ATTRIBUTES_CLASSES: &str = "VolumeAttributesClasses";

/// What begins the names of parameters that the sidecars keep for themselves.
const OF_SIDECARS: &str = "csi.storage.k8s.io/";

/// The sizes of the disks on which a VolumeAttributesClass is tried: the smallest, one that may burst, and a large one.
const SIZES: [Gib; 3] = [Gib::new(4), Gib::new(1_024), Gib::new(16_384)];

/// Whether a class takes snapshots of disks. `Ok` has what does not count of it, a sentence each.
///
/// # Errors
/// Why it takes none.
pub fn judge(class: &SnapshotClass, defaults: &Defaults) -> Result<Vec<String>, String> {
    // Source: csi-snapshotter, which reads the Secrets that these name, and hands on none of them.
    let secret = class.parameters.keys().find(|key| key.starts_with(OF_SIDECARS) && key.contains("secret"));
    if let Some(key) = secret {
        return Err(format!("parameter {key} names a Secret: disks need none, and csi-snapshotter may read none"));
    }
    let own = class.parameters.iter().filter(|(key, _)| !key.starts_with(OF_SIDECARS));
    let disk =
        ArmId::disk(&defaults.subscription, &defaults.resource_group, "pvc-0").map_err(|error| error.to_string())?;
    let parameters = own.map(|(key, value)| (key.clone(), value.clone())).collect();
    let (name, volume) = ("snapshot-0".to_owned(), disk);
    // What depends on the disk is left to the call.
    judged(&parameters, |parameters| {
        let (name, volume, parameters) = (name.clone(), volume.clone(), parameters.clone());
        let request = SnapshotRequest { name, volume, parameters };
        plan_snapshot(&request, defaults, SourceSeen::Gone).map(|plan| plan.warnings)
    })
}

/// Whether a VolumeAttributesClass changes disks of any type and size. `Ok` has what does not count of it, a sentence each.
///
/// # Errors
/// Why it changes none.
pub fn judge_attributes(parameters: &BTreeMap<String, String>, defaults: &Defaults) -> Result<Vec<String>, String> {
    if disks(parameters, defaults).is_empty() {
        return Err("the cluster's resource group is not known".to_owned());
    }
    judged(parameters, |parameters| of_any_disk(parameters, defaults))
}

fn of_any_disk(parameters: &BTreeMap<String, String>, defaults: &Defaults) -> Result<Vec<String>, ParameterError> {
    let mut refusal: Option<ParameterError> = None;
    for disk in disks(parameters, defaults) {
        match plan_modify(parameters, &disk, &DiskDetails::default(), defaults.cloud) {
            Ok(plan) => return Ok(plan.warnings.into_iter().chain(plan.ignored).collect()),
            Err(error) => refusal = refusal.or(Some(error)),
        }
    }
    refusal.map_or(Ok(Vec::new()), Err)
}

/// Disks of every type and some sizes, those first whose type the class asks for: their refusal says most.
fn disks(parameters: &BTreeMap<String, String>, defaults: &Defaults) -> Vec<Disk> {
    let Ok(id) = ArmId::disk(&defaults.subscription, &defaults.resource_group, "pvc-0") else { return Vec::new() };
    let asks = |sku: SkuName| parameters.values().any(|value| value == sku.as_str());
    let mut skus = SkuName::ALL.to_vec();
    skus.sort_by_key(|sku| !asks(*sku));
    let disk = |sku, size| Disk { sku: Some(sku), size, ..Disk::plain(id.clone(), defaults.location.clone()) };
    skus.into_iter().flat_map(|sku| SIZES.map(|size| disk(sku, size))).collect()
}

/// Where a class has snapshots made, which Azure may not have.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// A resource group.
    Group {
        /// Its subscription, in lower case.
        subscription: String,
        /// Its name, in lower case.
        name: String,
    },
    /// A region.
    Region {
        /// The subscription that would use it, in lower case.
        subscription: String,
        /// Its name, as Azure writes it.
        name: String,
    },
}

impl Place {
    /// Why no snapshot is made there, where Azure does not have it.
    fn is_missing(&self) -> String {
        match self {
            Self::Group { subscription, name } => format!(
                "parameter resourceGroup names {name}, which does not exist in subscription {subscription}: make it, or correct \
                 the class"
            ),
            Self::Region { subscription, name } => format!(
                "parameter location names {name}, of which Azure tells subscription {subscription} nothing: az account \
                 list-locations lists the regions"
            ),
        }
    }
}

/// The places that a class names.
fn places_of(class: &SnapshotClass, defaults: &Defaults) -> Vec<Place> {
    let value = |name: &str| {
        let found = class.parameters.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.to_lowercase()).filter(|value| !value.is_empty())
    };
    let subscription = value("subscriptionid").unwrap_or_else(|| defaults.subscription.to_lowercase());
    let group = value("resourcegroup").map(|name| Place::Group { subscription: subscription.clone(), name });
    let region = value("location").map(|name| canonical_region(&name));
    let is_other = |name: &String| *name != canonical_region(&defaults.location);
    let region = region.filter(is_other).map(|name| Place::Region { subscription, name });
    group.into_iter().chain(region).collect()
}

/// The resource groups and the regions that the classes of a driver name, of those classes that can be used otherwise.
pub fn places(classes: &[SnapshotClass], driver: &str, defaults: &Defaults) -> BTreeSet<Place> {
    let usable = |class: &&SnapshotClass| class.driver == driver && judge(class, defaults).is_ok();
    classes.iter().filter(usable).flat_map(|class| places_of(class, defaults)).collect()
}

/// What there is to say of the VolumeSnapshotClasses of a driver. `missing` are those of [`places`] that Azure does not have.
pub fn snapshot_classes(
    classes: &[SnapshotClass],
    driver: &str,
    defaults: &Defaults,
    missing: &BTreeSet<Place>,
) -> Vec<Finding> {
    let of_driver: Vec<&SnapshotClass> = classes.iter().filter(|class| class.driver == driver).collect();
    let verdict = |class: &SnapshotClass| {
        let warnings = judge(class, defaults)?;
        match places_of(class, defaults).iter().find(|place| missing.contains(place)) {
            Some(place) => Err(place.is_missing()),
            None => Ok(warnings),
        }
    };
    let judged = of_driver.iter().map(|class| (class.name.as_str(), verdict(class)));
    let mut findings =
        findings(SNAPSHOT_CLASSES, "VolumeSnapshotClass", "no snapshot is taken with it", driver, judged);
    let defaults: Vec<&str> =
        of_driver.iter().filter(|class| class.is_default).map(|class| class.name.as_str()).collect();
    // Source: the snapshot-controller, which then takes neither.
    if defaults.len() > 1 {
        let text = format!(
            "{} are each the default class of {driver}: a VolumeSnapshot that names no class is taken with none of them; leave \
             the annotation to one",
            some(&defaults)
        );
        findings.push(Finding::new(SNAPSHOT_CLASSES, Grade::Note, text));
    }
    findings
}

/// What there is to say of the VolumeAttributesClasses of a driver of disks.
pub fn attributes_classes(classes: &[Class], driver: &str, defaults: &Defaults) -> Vec<Finding> {
    let of_driver = classes.iter().filter(|class| class.provisioner == driver);
    let judged = of_driver.map(|class| (class.name.as_str(), judge_attributes(&class.parameters, defaults)));
    findings(ATTRIBUTES_CLASSES, "VolumeAttributesClass", "it changes no disk", driver, judged)
}

/// A finding for each class that is refused and each sentence about another, and one for all that can be used.
fn findings<'c>(
    check: &'static str,
    kind: &str,
    refused: &str,
    driver: &str,
    judged: impl Iterator<Item = (&'c str, Result<Vec<String>, String>)>,
) -> Vec<Finding> {
    let (mut findings, mut usable, mut count) = (Vec::new(), Vec::new(), 0_usize);
    for (name, verdict) in judged {
        count += 1;
        match verdict {
            Ok(warnings) => {
                usable.push(name);
                let note = |warning: String| Finding::new(check, Grade::Note, format!("{kind} {name}: {warning}"));
                findings.extend(warnings.into_iter().map(note));
            }
            Err(why) => findings.push(Finding::new(check, Grade::Wrong, format!("{kind} {name}: {refused}: {why}"))),
        }
    }
    let text = match (usable.len(), count) {
        (0, 0) => format!("there is none of {driver}"),
        (0, _) => return findings,
        (1, _) => format!("1 of {driver} can be used: {}", some(&usable)),
        (more, _) => format!("{more} of {driver} can be used: {}", some(&usable)),
    };
    findings.insert(0, Finding::new(check, Grade::Fine, text));
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRIVER: &str = "disk.csi.azure.com";

    fn defaults() -> Defaults {
        Defaults {
            subscription: "s".into(),
            resource_group: "g".into(),
            location: "westeurope".into(),
            ..Defaults::default()
        }
    }

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn class(name: &str, parameters: &[(&str, &str)]) -> SnapshotClass {
        SnapshotClass { name: name.into(), driver: DRIVER.into(), parameters: map(parameters), is_default: false }
    }

    fn attributes(name: &str, parameters: &[(&str, &str)]) -> Class {
        Class { name: name.into(), provisioner: DRIVER.into(), parameters: map(parameters), ..Class::default() }
    }

    fn texts(findings: &[Finding]) -> Vec<(Grade, &str)> {
        findings.iter().map(|finding| (finding.grade, finding.text.as_str())).collect()
    }

    #[test]
    fn a_class_with_which_no_snapshot_is_taken_is_wrong_and_says_why() {
        let other = SnapshotClass { driver: "ebs.csi.aws.com".into(), ..class("other", &[("x", "y")]) };
        let all = [
            class("plain", &[]),
            class("odd", &[("incremental", "yes"), ("location", "northeurope")]),
            class("misspelt", &[("increnental", "true")]),
            class("short", &[("instantAccessDurationMinutes", "5")]),
            class("secret", &[("csi.storage.k8s.io/snapshotter-secret-name", "s")]),
            other,
        ];
        let found = snapshot_classes(&all, DRIVER, &defaults(), &BTreeSet::new());
        let found = texts(&found);
        assert_eq!(found[0], (Grade::Fine, "2 of disk.csi.azure.com can be used: plain, odd"));
        assert!(found[1].0 == Grade::Note && found[1].1.starts_with("VolumeSnapshotClass odd: "), "{found:?}");
        for (at, words) in [(2, ["misspelt", "increnental"]), (3, ["short", "60"]), (4, ["secret", "Secret"])] {
            assert_eq!(found[at].0, Grade::Wrong);
            assert!(words.iter().all(|word| found[at].1.contains(word)), "{found:?}");
        }
        assert_eq!(found.len(), 5);
        let wrong =
            class("wrong", &[("location", "west-europe"), ("incremental", "maybe"), ("networkAccessPolicy", "No")]);
        let found = snapshot_classes(&[wrong], DRIVER, &defaults(), &BTreeSet::new());
        let found = texts(&found);
        assert!(
            found.len() == 1 && ["location", "networkAccessPolicy"].iter().all(|key| found[0].1.contains(key)),
            "{found:?}"
        );
        let found = snapshot_classes(&all[5..], DRIVER, &defaults(), &BTreeSet::new());
        assert_eq!(texts(&found), [(Grade::Fine, "there is none of disk.csi.azure.com")]);
    }

    #[test]
    fn a_class_whose_group_or_region_is_not_there_takes_no_snapshot() {
        let all = [
            class("here", &[("location", "West Europe")]),
            class("there", &[("resourceGroup", "Backups")]),
            class("away", &[("location", "North Eurpoe")]),
            class("wrong", &[("location", "a-b"), ("resourceGroup", "x")]),
        ];
        let named = places(&all, DRIVER, &defaults());
        let subscription = || "s".to_owned();
        let expected = [
            Place::Group { subscription: subscription(), name: "backups".into() },
            Place::Region { subscription: subscription(), name: "northeurpoe".into() },
        ];
        assert_eq!(named, expected.into());
        let found = snapshot_classes(&all[..3], DRIVER, &defaults(), &named);
        let found = texts(&found);
        assert_eq!(found[0], (Grade::Fine, "1 of disk.csi.azure.com can be used: here"));
        assert!(found[1].0 == Grade::Wrong && found[1].1.contains("names backups, which does not exist"), "{found:?}");
        assert!(found[2].0 == Grade::Wrong && found[2].1.contains("location names northeurpoe, of which"), "{found:?}");
        let found = snapshot_classes(&all[..3], DRIVER, &defaults(), &BTreeSet::new());
        assert_eq!(texts(&found), [(Grade::Fine, "3 of disk.csi.azure.com can be used: here, there, away")]);
    }

    #[test]
    fn two_default_classes_of_the_driver_are_said() {
        let is_default = |name: &str| SnapshotClass { is_default: true, ..class(name, &[]) };
        let of_another = SnapshotClass { driver: "ebs.csi.aws.com".into(), ..is_default("c") };
        let found = snapshot_classes(&[is_default("a"), of_another.clone()], DRIVER, &defaults(), &BTreeSet::new());
        assert_eq!(found.len(), 1);
        let found =
            snapshot_classes(&[is_default("a"), of_another, is_default("b")], DRIVER, &defaults(), &BTreeSet::new());
        assert!(found[1].grade == Grade::Note && found[1].text.starts_with("a, b are each the default"), "{found:?}");
    }

    #[test]
    fn a_class_of_attributes_counts_where_a_disk_of_any_type_and_size_takes_it() {
        for parameters in [
            &[("skuName", "Premium_LRS")][..],
            &[("DiskIOPSReadWrite", "8000"), ("DiskMBpsReadWrite", "400")],
            &[("tier", "P50")],
            &[("enableBursting", "true")],
            &[("tags", "a=b")],
            &[("networkAccessPolicy", "DenyAll"), ("publicNetworkAccess", "Disabled")],
        ] {
            assert_eq!(judge_attributes(&map(parameters), &defaults()), Ok(vec![]), "{parameters:?}");
        }
        let ignored = judge_attributes(&map(&[("cachingMode", "None")]), &defaults()).unwrap();
        assert!(ignored[0].contains("cachingMode"), "{ignored:?}");
        let all = [
            attributes("typo", &[("skuName", "Premium_LSR")]),
            attributes("unknown", &[("iops", "1")]),
            attributes("never", &[("skuName", "StandardSSD_LRS"), ("DiskIOPSReadWrite", "5000")]),
        ];
        let found = attributes_classes(&all, DRIVER, &defaults());
        for (finding, words) in
            found.iter().zip([["typo", "Premium_LSR"], ["unknown", "iops"], ["never", "DiskIOPSReadWrite"]])
        {
            assert_eq!(finding.grade, Grade::Wrong);
            assert!(words.iter().all(|word| finding.text.contains(word)), "{}", finding.text);
        }
        assert_eq!(found.len(), 3);
        assert!(attributes_classes(&all, "file.csi.azure.com", &defaults())[0].text.starts_with("there is none"));
    }
}
