//! PersistentVolumes: their handles, read as the calls about them would read them.

use lazuli_model::VolumeId;
use lazuli_shares::volume_id::ShareVolumeId;

use super::{Judged, Page, Subject, Verdict};

/// Where a PersistentVolume is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A volume of the disk driver, by its handle.
    Disk(String),
    /// A volume of the file driver, by its handle.
    Share(String),
    /// A volume of the in-tree disk plugin: its `kind`, and its `diskURI`.
    InTreeDisk {
        /// `Managed`, `Dedicated` or `Shared`.
        kind: String,
        /// The id of a managed disk, or the URL of a page blob.
        uri: String,
    },
    /// A volume of the in-tree file plugin.
    InTreeShare,
}

/// A PersistentVolume of Azure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    /// Its name.
    pub name: String,
    /// Where it is.
    pub source: Source,
}

/// What becomes of a volume.
pub fn volume(volume: &Volume) -> Judged {
    let of_disk = |handle: &str| match handle.parse::<VolumeId>() {
        Ok(_) => Verdict::Equal,
        Err(error) => Verdict::Refused(format!("{handle:?} is the id of no managed disk: {error}")),
    };
    let (verdict, page) = match &volume.source {
        Source::Disk(handle) => (of_disk(handle), Page::Disks),
        Source::InTreeDisk { kind, uri } if kind.eq_ignore_ascii_case("Managed") => (of_disk(uri), Page::Disks),
        Source::InTreeDisk { kind, uri } => {
            let why =
                format!("{uri} is a disk in a page blob (kind {kind}), and this program serves managed disks alone");
            (Verdict::Refused(why), Page::Disks)
        }
        Source::Share(handle) => (of_share(handle), Page::Shares),
        Source::InTreeShare => (Verdict::Equal, Page::Shares),
    };
    Judged { subject: Subject::Volume, name: volume.name.clone(), verdict, page }
}

fn of_share(handle: &str) -> Verdict {
    match ShareVolumeId::parse(handle) {
        Ok(id) if id.is_vhd() => {
            Verdict::Refused(format!("{handle:?} is a disk image in a share, which this program does not mount"))
        }
        Ok(_) => Verdict::Equal,
        // A person's own volume names its share by attributes; the handle is any text.
        Err(_) => Verdict::Differs(
            "its handle names no share, so that it can be mounted by its attributes and neither grown nor deleted"
                .to_owned(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_are_judged_by_their_handles() {
        let judged = |source: Source| volume(&Volume { name: "pv".into(), source }).verdict;
        let id = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/d";
        let in_tree = |kind: &str, uri: &str| Source::InTreeDisk { kind: kind.into(), uri: uri.into() };
        for equal in [
            Source::Disk(id.into()),
            in_tree("Managed", id),
            Source::Share("g#account#share###default".into()),
            Source::InTreeShare,
        ] {
            assert_eq!(judged(equal.clone()), Verdict::Equal, "{equal:?}");
        }
        assert!(matches!(judged(Source::Disk("d".into())), Verdict::Refused(why) if why.contains("\"d\"")));
        let blob = judged(in_tree("Dedicated", "https://a.blob.core.windows.net/vhds/d.vhd"));
        assert!(matches!(blob, Verdict::Refused(why) if why.contains("page blob")));
        assert!(matches!(judged(Source::Share("mine".into())), Verdict::Differs(_)));
    }
}
