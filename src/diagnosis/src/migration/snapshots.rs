//! VolumeSnapshotClasses and VolumeSnapshotContents: those of disks are served, read as CreateSnapshot and DeleteSnapshot would
//! read them. File shares have no snapshots in this program.

use lazuli_model::SnapshotId;
use lazuli_volume::Defaults;

use super::{
    super::snapshots::{SnapshotClass, SnapshotContent, classes::judge},
    Judged, Page, Subject, Verdict,
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
            let wrong = content.handles.iter().find_map(|handle| SnapshotId::parse(handle, cluster).err());
            let verdict = wrong.map_or(Verdict::Equal, |error| Verdict::Refused(error.to_string()));
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
        let share = content("file.csi.azure.com", &["x"]).unwrap();
        assert!(matches!(share.verdict, Verdict::Refused(_)) && share.page == Page::Shares);
        assert_eq!(content("ebs.csi.aws.com", &[]), None);
    }
}
