//! VolumeSnapshotClasses and VolumeSnapshotContents: those of disks are served, read as CreateSnapshot and DeleteSnapshot would
//! read them. File shares have no snapshots in this program.

use lazuli_model::SnapshotId;
use lazuli_volume::Defaults;

use super::{
    super::{
        managers::Container,
        snapshots::{OwnedType, SnapshotClass, SnapshotContent, classes::judge},
    },
    Judged, Page, Subject, Verdict, is_go_release,
};

fn judged(kind: &str, name: &str, verdict: Verdict, page: Page) -> Judged {
    Judged { subject: Subject::Snapshot, name: format!("{kind} {name}"), verdict, page }
}

/// What becomes of a class; `None` for one of other drivers.
pub fn snapshot_class(class: &SnapshotClass, defaults: &Defaults) -> Option<Judged> {
    let (verdict, page) = match class.driver.as_str() {
        "disk.csi.azure.com" => {
            let verdict = judge(class, defaults).map_or_else(Verdict::Refused, Verdict::with);
            (verdict, Page::Disks)
        }
        "file.csi.azure.com" => {
            let why = "no snapshot of a share is taken with it: this program has none".to_owned();
            (Verdict::Differs(why), Page::Shares)
        }
        _ => return None,
    };
    Some(judged("VolumeSnapshotClass", &class.name, verdict, page))
}

/// What becomes of a content; `None` for one of other drivers. `cluster` is the cluster's subscription and resource group.
pub fn snapshot_content(content: &SnapshotContent, cluster: (&str, &str)) -> Option<Judged> {
    let (verdict, page) = match content.driver.as_str() {
        "disk.csi.azure.com" => {
            let wrong = content.handles.iter().find_map(|handle| {
                let error = SnapshotId::parse(handle, cluster).err()?;
                Some(format!("its snapshotHandle {handle:?}: {error}"))
            });
            let verdict = wrong.map_or(Verdict::Equal, Verdict::Refused);
            (verdict, Page::Disks)
        }
        "file.csi.azure.com" => {
            let why = "a snapshot of a share is neither restored nor deleted: this program has none".to_owned();
            (Verdict::Refused(why), Page::Shares)
        }
        _ => return None,
    };
    Some(judged("VolumeSnapshotContent", &content.name, verdict, page))
}

/// What becomes of a type that a Helm release has made, when the Go driver goes; `None` for one of another release.
pub fn snapshot_type(owned: &OwnedType, containers: &[Container]) -> Option<Judged> {
    let OwnedType { name, release, namespace } = owned;
    // Source: Helm, which deletes what its stored manifest has, whatever the annotations of the object say.
    is_go_release(release, namespace, containers).then(|| {
        let why = format!(
            "it is in the Helm release {release} of namespace {namespace}: helm uninstall deletes it, with all its objects in the \
             cluster, and snapshots with deletionPolicy Delete may be deleted in Azure; take it out of the release before"
        );
        judged("CustomResourceDefinition", name, Verdict::Refused(why), Page::Snapshots)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISKS: &str = "disk.csi.azure.com";

    fn class(driver: &str, parameters: &[(&str, &str)]) -> Option<Verdict> {
        let defaults = Defaults {
            subscription: "s".into(),
            resource_group: "g".into(),
            location: "l".into(),
            ..Defaults::default()
        };
        let parameters = parameters.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let class = SnapshotClass { name: "c".into(), driver: driver.into(), parameters, is_default: true };
        snapshot_class(&class, &defaults).map(|judged| judged.verdict)
    }

    fn content(driver: &str, handles: &[&str]) -> Option<Judged> {
        let handles = handles.iter().map(|handle| (*handle).to_owned()).collect();
        let content = SnapshotContent { name: "c".into(), driver: driver.into(), handles, snapshot: None };
        snapshot_content(&content, ("s", "g"))
    }

    #[test]
    fn snapshots_of_disks_are_served_as_their_planner_says_and_those_of_shares_are_not() {
        assert_eq!(class(DISKS, &[("incremental", "false")]), Some(Verdict::Equal));
        let odd = class(DISKS, &[("incremental", "no")]);
        assert!(matches!(&odd, Some(Verdict::Differs(why)) if why.contains("incremental")), "{odd:?}");
        let wrong = class(DISKS, &[("sku", "x")]);
        assert!(matches!(&wrong, Some(Verdict::Refused(why)) if why.contains("sku")), "{wrong:?}");
        assert!(matches!(class("file.csi.azure.com", &[]), Some(Verdict::Differs(_))));
        assert_eq!(class("ebs.csi.aws.com", &[]), None);

        let handle = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/snapshots/n";
        // One that is in the making has no handle yet.
        for handles in [&[][..], &[handle], &["bare-name"]] {
            let judged = content(DISKS, handles).unwrap();
            assert_eq!((judged.name.as_str(), judged.verdict), ("VolumeSnapshotContent c", Verdict::Equal));
        }
        let disk = content(DISKS, &["/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/n"]).unwrap();
        assert!(
            matches!(&disk.verdict, Verdict::Refused(why) if why.contains("is not that of a snapshot")),
            "{disk:?}"
        );
        let why = format!("{:?}", disk.verdict);
        assert!(why.contains("Microsoft.Compute/disks/n"), "the handle is not shown: {why}");
        let share = content("file.csi.azure.com", &["x"]).unwrap();
        assert!(matches!(share.verdict, Verdict::Refused(_)) && share.page == Page::Shares);
        assert_eq!(content("ebs.csi.aws.com", &[]), None);
    }

    #[test]
    fn types_that_the_go_drivers_release_would_take_along_are_refused() {
        let owned = |release: &str, namespace: &str| OwnedType {
            name: "volumesnapshots.snapshot.storage.k8s.io".into(),
            release: release.into(),
            namespace: namespace.into(),
        };
        let pod = |image: &str, release: Option<&str>| Container {
            namespace: "kube-system".into(),
            image: image.into(),
            release: release.map(str::to_owned),
            ..Container::default()
        };
        let disks = [pod("mcr/azuredisk-csi:v1.30", Some("storage"))];
        let found = snapshot_type(&owned("storage", "kube-system"), &disks).unwrap();
        assert_eq!((found.subject, found.page), (Subject::Snapshot, Page::Snapshots));
        assert!(
            matches!(&found.verdict, Verdict::Refused(why) if why.contains("Helm release storage of namespace kube-system")),
            "{found:?}"
        );
        // Without a pod of it the name tells it.
        assert!(snapshot_type(&owned("azuredisk-csi-driver", "kube-system"), &[]).is_some());
        for (release, namespace, containers) in [
            ("snapshot-controller", "kube-system", &disks[..]),
            ("storage", "default", &disks[..]),
            ("storage", "kube-system", &[pod("mcr/azuredisk-csi:v1.30", None)][..]),
            ("storage", "kube-system", &[pod("mcr/azurefile-csi:v1.30", Some("storage"))][..]),
        ] {
            assert_eq!(snapshot_type(&owned(release, namespace), containers), None, "{release} {namespace}");
        }
    }
}
