//! VolumeSnapshots: this program takes, restores and deletes none.

use super::{Judged, Page, Subject, Verdict};

/// An object of the snapshot API that names a driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Snapshot {
    /// A VolumeSnapshotClass.
    Class {
        /// Its name.
        name: String,
        /// Its driver.
        driver: String,
    },
    /// A VolumeSnapshotContent.
    Content {
        /// Its name.
        name: String,
        /// Its driver.
        driver: String,
    },
}

/// What becomes of it; `None` for one of other drivers.
pub fn snapshot(snapshot: &Snapshot) -> Option<Judged> {
    let (kind, name, driver, verdict) = match snapshot {
        Snapshot::Class { name, driver } => {
            let why = format!("no snapshot of {driver} is taken with it: this program has no snapshots");
            ("VolumeSnapshotClass", name, driver, Verdict::Differs(why))
        }
        Snapshot::Content { name, driver } => {
            let why = format!("a snapshot of {driver} is neither restored nor deleted: this program has no snapshots");
            ("VolumeSnapshotContent", name, driver, Verdict::Refused(why))
        }
    };
    let page = match driver.as_str() {
        "disk.csi.azure.com" => Page::Disks,
        "file.csi.azure.com" => Page::Shares,
        _ => return None,
    };
    Some(Judged { subject: Subject::Snapshot, name: format!("{kind} {name}"), verdict, page })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshots_of_the_drivers_are_not_served() {
        let (name, driver) = ("s".to_owned(), "disk.csi.azure.com".to_owned());
        let content = snapshot(&Snapshot::Content { name: name.clone(), driver: driver.clone() }).unwrap();
        assert!(matches!(&content.verdict, Verdict::Refused(why) if why.contains("neither restored nor deleted")));
        assert_eq!((content.name.as_str(), content.page), ("VolumeSnapshotContent s", Page::Disks));
        let class = snapshot(&Snapshot::Class { name: name.clone(), driver }).unwrap();
        assert!(matches!(class.verdict, Verdict::Differs(_)));
        assert_eq!(snapshot(&Snapshot::Class { name, driver: "ebs.csi.aws.com".to_owned() }), None);
    }
}
