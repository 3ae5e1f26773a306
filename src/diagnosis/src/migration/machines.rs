//! Nodes: whether they are machines of Azure, and machines on which this program mounts disks.

use super::{Judged, Page, Subject, Verdict};

/// What a Node says of its machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Facts<'a> {
    /// Whether its provider id names a machine of Azure; `None` where it has none.
    pub is_machine: Option<bool>,
    /// Its VM size: the label `node.kubernetes.io/instance-type`, or that of before Kubernetes 1.17.
    pub size: Option<&'a str>,
    /// Its system: the label `kubernetes.io/os`.
    pub system: Option<&'a str>,
}

/// The first version of VM sizes whose disks come by NVMe alone (source: Azure's pages of the sizes of version 6).
const FIRST_NVME_VERSION: u32 = 6;

/// Whether disks come by NVMe to machines of this size: `Standard_D8ds_v6` is of version 6.
fn is_nvme(size: &str) -> bool {
    let versions = size.split('_').filter_map(|part| part.strip_prefix(['v', 'V'])?.parse::<u32>().ok());
    versions.max().is_some_and(|version| version >= FIRST_NVME_VERSION)
}

/// What becomes of a Node.
pub fn node(name: &str, facts: Facts<'_>) -> Judged {
    let differs = |why: &str| Verdict::Differs(why.to_owned());
    let verdict = match facts {
        Facts { system: Some(system), .. } if system.eq_ignore_ascii_case("windows") => {
            Verdict::Refused("it runs Windows, for which there is no node plugin: no volume is mounted on it".to_owned())
        }
        Facts { size: Some(size), .. } if is_nvme(size) => Verdict::Refused(format!(
            "disks come to machines of size {size} by NVMe, and the node plugin finds disks by SCSI alone: no disk is mounted on it"
        )),
        Facts { is_machine: Some(false), .. } => differs(
            "its provider id names no machine of Azure: its disks and routes are not looked after, as with the Go programs",
        ),
        Facts { is_machine: None, .. } => {
            differs("it has no provider id: no disk is attached to it until a cloud controller has initialised it")
        }
        Facts { is_machine: Some(true), size: None, .. } => Verdict::Unseen(
            "no label node.kubernetes.io/instance-type says its VM size, so that it is not known whether disks come to it by \
             SCSI, which the node plugin needs"
                .to_owned(),
        ),
        Facts { is_machine: Some(true), size: Some(_), .. } => Verdict::Equal,
    };
    // What differs is up to the cloud controllers, and the rest up to the node plugin.
    let page = if matches!(verdict, Verdict::Differs(_)) { Page::Nodes } else { Page::Disks };
    Judged { subject: Subject::Node, name: name.to_owned(), verdict, page }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_judged_by_their_machine_size_and_system() {
        let judged = |is_machine, size, system| node("n", Facts { is_machine, size, system }).verdict;
        let linux = Some("linux");
        for size in ["Standard_D8s_v3", "Standard_B2s", "Standard_NV36adms_A10_v5", "Standard_NV6"] {
            assert_eq!(judged(Some(true), Some(size), linux), Verdict::Equal, "{size}");
        }
        for size in ["Standard_D8ds_v6", "standard_e4s_V7"] {
            let verdict = judged(Some(true), Some(size), linux);
            assert!(matches!(&verdict, Verdict::Refused(why) if why.contains(size)), "{verdict:?}");
        }
        let windows = judged(Some(true), Some("Standard_D8s_v3"), Some("windows"));
        assert!(matches!(&windows, Verdict::Refused(why) if why.contains("Windows")), "{windows:?}");
        assert!(matches!(judged(Some(true), None, linux), Verdict::Unseen(_)));
        assert!(matches!(judged(Some(false), None, linux), Verdict::Differs(_)));
        assert!(matches!(judged(None, None, None), Verdict::Differs(_)));
    }
}
