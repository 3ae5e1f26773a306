//! StorageClasses and VolumeAttributesClasses: read as CreateVolume and ControllerModifyVolume would read them, and a class also
//! as the calls that attach, stage and mount a volume of it.

use std::collections::BTreeMap;

use lazuli_shares::{
    mount,
    parameters::{self, ShareClass},
    share::check_modification,
};
use lazuli_vhd::class as blob;
use lazuli_volume::{self as disk, AccessMode, AccessType, Capability, Request, plan_create};

use super::{
    super::{refusals::judged, roles::asks_for_blob_disks, snapshots::classes::judge_attributes},
    Judged, Mounting, Page, Subject, Verdict,
    volumes::{attached_and_staged, planned_mount},
};

/// A StorageClass, or a VolumeAttributesClass.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Class {
    /// Its name.
    pub name: String,
    /// Its provisioner; of a VolumeAttributesClass its driver.
    pub provisioner: String,
    /// Its parameters.
    pub parameters: BTreeMap<String, String>,
    /// Its mount options; a VolumeAttributesClass has none.
    pub mount_options: Vec<String>,
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

/// A size that blob disks have in every cloud.
const BYTES_OF_BLOBS: i64 = 1 << 30;

/// What becomes of claims of a class; `None` for a class of other drivers.
pub fn class(class: &Class, defaults: &Defaults, mounting: &Mounting<'_>) -> Option<Judged> {
    // Source: the names of the drivers and of the in-tree plugins, which the external-provisioner hands to the drivers.
    let (verdict, page) = match class.provisioner.as_str() {
        "disk.csi.azure.com" | "kubernetes.io/azure-disk" => (of_disks(class, defaults, mounting), Page::Disks),
        "file.csi.azure.com" | "kubernetes.io/azure-file" => (of_shares(class, defaults, mounting), Page::Shares),
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

/// Disks are made and changed as the class says. Of what type they are it need not say, so it is judged by itself.
fn of_disk_attributes(class: &Class, defaults: &Defaults) -> Verdict {
    match judge_attributes(&class.parameters, &defaults.disks) {
        Ok(warnings) => Verdict::with(warnings),
        Err(error) => Verdict::Refused(error),
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

/// The file system that external-provisioner asks for, and the mount options.
fn mounted(class: &Class) -> Capability {
    // Source: external-provisioner, which folds the letters of this key.
    let fs_type = class.parameters.iter().find(|(key, _)| key.eq_ignore_ascii_case("csi.storage.k8s.io/fstype"));
    let fs_type = fs_type.map(|(_, fs_type)| fs_type.clone()).unwrap_or_default();
    let access_type = AccessType::Mount { fs_type, flags: class.mount_options.clone() };
    Capability { access_type: Some(access_type), ..Capability::mounted() }
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
            mounted(class)
        }],
        ..Request::default()
    }
}

/// A class of VHD blob disks. Whether it gets one is said by `--blob-disks` and by the machines, which are not looked at here.
fn of_blob_disks(class: &Class, defaults: &disk::Defaults, mounting: &Mounting<'_>) -> Verdict {
    let asked = blob::Request {
        name: "pvc-0".to_owned(),
        parameters: with_metadata(class),
        required_bytes: BYTES_OF_BLOBS,
        limit_bytes: 0,
    };
    let defaults = blob::Defaults {
        blob_disks: blob::BlobDisks::Always,
        is_stack_hub: defaults.cloud == disk::Cloud::AzureStack,
        subscription: defaults.subscription.clone(),
        resource_group: defaults.resource_group.clone(),
        location: defaults.location.clone(),
    };
    let chosen = judged(&asked.parameters, |parameters| {
        let request = blob::Request { parameters: parameters.clone(), ..asked.clone() };
        blob::choose(&request, &defaults, &blob::Found::default())
    });
    let made = match chosen {
        Ok(blob::Choice::Blob(made)) => *made,
        // Whatever is asked for: where blob disks are always made, nothing is.
        Ok(_) => return Verdict::Equal,
        Err(refused) => return Verdict::Refused(refused),
    };
    let otherwise = match made.place {
        blob::Place::Account(_) => "it is refused",
        blob::Place::Shared | blob::Place::Dedicated => "the disk is a managed one, as by the Go driver",
    };
    let first = format!("it asks for a VHD blob disk, and --blob-disks says whether it gets one; else {otherwise}");
    match attached_and_staged(&made.written, &mounted(class), mounting) {
        Ok(more) => Verdict::with([first].into_iter().chain(made.warnings).chain(more).collect()),
        Err(why) => Verdict::Refused(why),
    }
}

fn of_disks(class: &Class, defaults: &Defaults, mounting: &Mounting<'_>) -> Verdict {
    if asks_for_blob_disks(std::slice::from_ref(class), "disk.csi.azure.com") {
        return of_blob_disks(class, &defaults.disks, mounting);
    }
    let request = request(class);
    let planned = judged(&request.parameters, |parameters| {
        plan_create(&Request { parameters: parameters.clone(), ..request.clone() }, &defaults.disks)
    });
    let plan = match planned {
        Ok(plan) => plan,
        Err(refused) => return Verdict::Refused(refused),
    };
    let mut warnings = plan.warnings;
    for capability in &request.capabilities {
        match attached_and_staged(&plan.volume_context, capability, mounting) {
            Ok(more) => warnings.extend(more),
            Err(why) => return Verdict::Refused(why),
        }
    }
    Verdict::with(warnings)
}

fn of_shares(class: &Class, defaults: &Defaults, mounting: &Mounting<'_>) -> Verdict {
    let parsed = match ShareClass::parse(&with_metadata(class), &BTreeMap::new(), &defaults.shares) {
        Ok(parsed) => parsed,
        Err(error) => return Verdict::Refused(error.to_string()),
    };
    let request = mount::Request {
        // As CreateVolume writes it: group, account, share, VHD, UUID and the namespace of the Secret.
        volume_id: "group#account#pvc-0###default".to_owned(),
        context: parsed.written,
        mount_flags: class.mount_options.clone(),
        ..mount::Request::default()
    };
    match planned_mount(&request, mounting) {
        Ok(more) => Verdict::with(parsed.warnings.into_iter().chain(more).collect()),
        Err(why) => Verdict::Refused(why),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::volumes::tests::MOUNTING, *};

    fn of(provisioner: &str, parameters: &[(&str, &str)]) -> Class {
        let parameters = parameters.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Class { name: "c".into(), provisioner: provisioner.into(), parameters, mount_options: vec![] }
    }

    fn judged(provisioner: &str, parameters: &[(&str, &str)]) -> Option<Verdict> {
        class(&of(provisioner, parameters), &defaults(), &MOUNTING).map(|judged| judged.verdict)
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
        assert_eq!(made, Some(Verdict::Equal));
        let ignored = judged("disk.csi.azure.com", &[("cachingMode", "ReadOnly")]);
        assert!(matches!(&ignored, Some(Verdict::Differs(why)) if why.contains("cachingMode")), "{ignored:?}");
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

    #[test]
    fn a_class_of_blob_disks_is_judged_as_one_and_told_what_decides() {
        for (parameters, otherwise) in [
            (&[("kind", "Shared"), ("skuName", "Standard_GRS")][..], "a managed one"),
            (&[("KIND", "dedicated")], "a managed one"),
            (&[("storageAccount", "acct"), ("location", "westus")], "it is refused"),
        ] {
            let verdict = judged("disk.csi.azure.com", parameters);
            let says = |why: &str| why.contains("--blob-disks") && why.contains(otherwise);
            assert!(matches!(&verdict, Some(Verdict::Differs(why)) if says(why)), "{verdict:?}");
        }
        for parameters in [[("kind", "Shared"), ("maxShares", "2")], [("kind", "Shared"), ("storageAccount", "acct")]] {
            let verdict = judged("disk.csi.azure.com", &parameters);
            assert!(matches!(&verdict, Some(Verdict::Refused(why)) if why.contains(parameters[1].0)), "{verdict:?}");
        }
        // Kubernetes makes managed disks alone of these.
        let in_tree = judged("kubernetes.io/azure-disk", &[("kind", "Shared")]);
        assert!(matches!(&in_tree, Some(Verdict::Differs(why)) if why.contains("is a managed disk")), "{in_tree:?}");
    }

    #[test]
    fn a_class_whose_volumes_no_node_would_mount_is_refused() {
        let with = |provisioner: &str, parameters: &[(&str, &str)], option: &str| {
            let class = Class { mount_options: vec![option.to_owned()], ..of(provisioner, parameters) };
            super::class(&class, &defaults(), &MOUNTING).map(|judged| judged.verdict)
        };
        for (verdict, word) in [
            (judged("disk.csi.azure.com", &[("csi.storage.k8s.io/FsType", "ntfs")]), "ntfs"),
            (with("disk.csi.azure.com", &[], "suid"), "suid"),
            (with("file.csi.azure.com", &[], "sec=krb5"), "Kerberos"),
        ] {
            assert!(matches!(&verdict, Some(Verdict::Refused(why)) if why.contains(word)), "{word}: {verdict:?}");
        }
        assert_eq!(with("disk.csi.azure.com", &[], "noatime"), Some(Verdict::Equal));
        assert_eq!(with("file.csi.azure.com", &[], "mfsymlinks"), Some(Verdict::Equal));
        // Several machines share a raw device, which nothing mounts.
        let shared = [("skuName", "PremiumV2_LRS"), ("maxShares", "2"), ("cachingMode", "None")];
        assert_eq!(with("disk.csi.azure.com", &shared, "suid"), Some(Verdict::Equal));
    }
}
