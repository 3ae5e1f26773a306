//! StorageClasses and VolumeAttributesClasses: read as CreateVolume and ControllerModifyVolume would read them.

use std::collections::BTreeMap;

use lazuli_shares::{
    parameters::{self, ShareClass},
    share::check_modification,
};
use lazuli_storage::disk::{self, AccessMode, Capability, Request, plan_create};

use super::{Judged, Page, Subject, Verdict};

/// A StorageClass, or a VolumeAttributesClass.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Class {
    /// Its name.
    pub name: String,
    /// Its provisioner; of a VolumeAttributesClass its driver.
    pub provisioner: String,
    /// Its parameters.
    pub parameters: BTreeMap<String, String>,
}

/// What stands where a class says nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Defaults {
    /// Of disks.
    pub disks: disk::Defaults,
    /// Of file shares.
    pub shares: parameters::Defaults,
}

/// A size that every limit by size allows.
const BYTES: i64 = 1 << 40;

/// What becomes of claims of a class; `None` for a class of other drivers.
pub fn class(class: &Class, defaults: &Defaults) -> Option<Judged> {
    // Source: the names of the drivers and of the in-tree plugins, which the external-provisioner hands to the drivers.
    let (verdict, page) = match class.provisioner.as_str() {
        "disk.csi.azure.com" | "kubernetes.io/azure-disk" => (of_disks(class, defaults), Page::Disks),
        "file.csi.azure.com" | "kubernetes.io/azure-file" => (of_shares(class, defaults), Page::Shares),
        _ => return None,
    };
    Some(Judged { subject: Subject::Class, name: class.name.clone(), verdict, page })
}

/// What becomes of claims of a VolumeAttributesClass; `None` for one of other drivers.
pub fn attributes_class(class: &Class, defaults: &Defaults) -> Option<Judged> {
    let (verdict, page) = match class.provisioner.as_str() {
        "disk.csi.azure.com" => (of_disk_attributes(class, defaults), Page::Disks),
        "file.csi.azure.com" => (of_share_attributes(class), Page::Shares),
        _ => return None,
    };
    Some(Judged { subject: Subject::AttributesClass, name: class.name.clone(), verdict, page })
}

/// A disk is made as the class says, and not changed.
fn of_disk_attributes(class: &Class, defaults: &Defaults) -> Verdict {
    let request = Request { mutable_parameters: class.parameters.clone(), ..request(&Class::default()) };
    match plan_create(&request, &defaults.disks) {
        Ok(plan) => {
            let unchanged = "disks are made as it says; a claim that is given the class later keeps its disk as it is, for \
                             disks are not modified";
            Verdict::Differs([unchanged.to_owned()].into_iter().chain(plan.warnings).collect::<Vec<_>>().join("; "))
        }
        Err(error) => Verdict::Refused(error.to_string()),
    }
}

fn of_share_attributes(class: &Class) -> Verdict {
    match check_modification(&class.parameters) {
        Ok(()) => Verdict::Equal,
        Err(error) => Verdict::Refused(error.to_string()),
    }
}

/// What external-provisioner adds with `--extra-create-metadata`, which templates may name.
fn with_metadata(class: &Class) -> BTreeMap<String, String> {
    let metadata = [
        ("csi.storage.k8s.io/pvc/name", "data"),
        ("csi.storage.k8s.io/pvc/namespace", "shop"),
        ("csi.storage.k8s.io/pv/name", "pvc-1"),
    ];
    let metadata = metadata.map(|(key, value)| (key.to_owned(), value.to_owned()));
    // The provisioner keeps these for itself.
    let own = class.parameters.iter().filter(|(key, _)| !key.starts_with("csi.storage.k8s.io/"));
    own.map(|(key, value)| (key.clone(), value.clone())).chain(metadata).collect()
}

/// The request for a disk of a class.
fn request(class: &Class) -> Request {
    let shared = class.parameters.iter().find(|(key, _)| key.eq_ignore_ascii_case("maxShares"));
    let is_shared = shared.is_some_and(|(_, count)| count.trim().parse().is_ok_and(|count: u32| count > 1));
    Request {
        name: "pvc-0".to_owned(),
        parameters: with_metadata(class),
        required_bytes: BYTES,
        capabilities: vec![if is_shared {
            Capability::block(AccessMode::MultiNodeMultiWriter)
        } else {
            Capability::mounted()
        }],
        ..Request::default()
    }
}

fn of_disks(class: &Class, defaults: &Defaults) -> Verdict {
    match plan_create(&request(class), &defaults.disks) {
        Ok(plan) => with_warnings(&plan.warnings),
        Err(error) => Verdict::Refused(error.to_string()),
    }
}

fn of_shares(class: &Class, defaults: &Defaults) -> Verdict {
    match ShareClass::parse(&with_metadata(class), &BTreeMap::new(), &defaults.shares) {
        Ok(class) => with_warnings(&class.warnings),
        Err(error) => Verdict::Refused(error.to_string()),
    }
}

fn with_warnings(warnings: &[String]) -> Verdict {
    if warnings.is_empty() { Verdict::Equal } else { Verdict::Differs(warnings.join("; ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(provisioner: &str, parameters: &[(&str, &str)]) -> Class {
        let parameters = parameters.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Class { name: "c".into(), provisioner: provisioner.into(), parameters }
    }

    fn judged(provisioner: &str, parameters: &[(&str, &str)]) -> Option<Verdict> {
        class(&of(provisioner, parameters), &defaults()).map(|judged| judged.verdict)
    }

    fn defaults() -> Defaults {
        Defaults {
            disks: disk::Defaults {
                subscription: "s".into(),
                resource_group: "g".into(),
                location: "westeurope".into(),
                ..disk::Defaults::default()
            },
            shares: parameters::Defaults {
                subscription: "s".into(),
                resource_group: "g".into(),
                location: "westeurope".into(),
                storage_endpoint_suffix: "core.windows.net".into(),
                vnet_resource_group: String::new(),
                vnet_name: String::new(),
                subnet_name: String::new(),
                driver_name: "file.csi.azure.com".into(),
                allowed_resource_groups: disk::AllowedResourceGroups::Any,
            },
        }
    }

    #[test]
    fn attributes_classes_are_judged_by_what_they_can_change() {
        let judged = |driver: &str, parameters: &[(&str, &str)]| {
            attributes_class(&of(driver, parameters), &defaults()).map(|judged| judged.verdict)
        };
        assert_eq!(judged("ebs.csi.aws.com", &[]), None);
        let made = judged("disk.csi.azure.com", &[("skuName", "PremiumV2_LRS"), ("DiskIOPSReadWrite", "5000")]);
        assert!(matches!(&made, Some(Verdict::Differs(why)) if why.contains("not modified")), "{made:?}");
        let wrong = judged("disk.csi.azure.com", &[("skuName", "Premium_LSR")]);
        assert!(matches!(&wrong, Some(Verdict::Refused(why)) if why.contains("Premium_LSR")), "{wrong:?}");
        assert_eq!(judged("file.csi.azure.com", &[("provisionedIops", "4000")]), Some(Verdict::Equal));
        let fixed = judged("file.csi.azure.com", &[("skuName", "Premium_LRS")]);
        assert!(matches!(&fixed, Some(Verdict::Refused(why)) if why.contains("skuName")), "{fixed:?}");
    }

    #[test]
    fn classes_are_judged_by_the_readers_of_create_volume() {
        assert_eq!(judged("ebs.csi.aws.com", &[]), None);
        for (provisioner, parameters) in [
            ("disk.csi.azure.com", &[("skuName", "Premium_LRS"), ("cachingMode", "ReadOnly")][..]),
            ("disk.csi.azure.com", &[("skuName", "PremiumV2_LRS"), ("maxShares", "2"), ("cachingMode", "None")]),
            ("disk.csi.azure.com", &[("csi.storage.k8s.io/fstype", "xfs"), ("tags", "claim=${pvc.metadata.name}")]),
            ("kubernetes.io/azure-disk", &[("storageaccounttype", "StandardSSD_LRS"), ("kind", "managed")]),
            ("file.csi.azure.com", &[("skuName", "Standard_LRS")]),
        ] {
            assert_eq!(judged(provisioner, parameters), Some(Verdict::Equal), "{parameters:?}");
        }
        let refused = judged("disk.csi.azure.com", &[("skuName", "Premium_LSR")]);
        assert!(matches!(&refused, Some(Verdict::Refused(why)) if why.contains("Premium_LSR")), "{refused:?}");
        let differs = judged("disk.csi.azure.com", &[("skuName", "Premium_LRS"), ("enableBursting", "on")]);
        assert!(matches!(&differs, Some(Verdict::Differs(why)) if why.contains("enableBursting")), "{differs:?}");
        let nfs = judged("file.csi.azure.com", &[("protocol", "nfs")]);
        assert!(matches!(&nfs, Some(Verdict::Refused(why)) if why.contains("nfs")), "{nfs:?}");
    }
}
