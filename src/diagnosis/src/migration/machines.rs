//! Nodes: whether they are machines of Azure, and machines on which this program mounts disks.

use lazuli_nodes::cloud_node::facts::{NvmeFacts, NvmeLuns};

use super::{Judged, Page, Subject, Verdict};
use crate::nvme::is_nvme;

/// What a Node says of its machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Facts<'a> {
    /// Whether its provider id names a machine of Azure; `None` where it has none.
    pub is_machine: Option<bool>,
    /// Its VM size: the label `node.kubernetes.io/instance-type`, or that of before Kubernetes 1.17.
    pub size: Option<&'a str>,
    /// Its system: the label `kubernetes.io/os`.
    pub system: Option<&'a str>,
    /// What the node plugin has published of disks that come by NVMe.
    pub nvme: Option<NvmeFacts>,
}

/// What becomes of the disks of a Node to which they come by NVMe; `None` where they are served as others.
fn by_nvme(facts: Facts<'_>) -> Option<Verdict> {
    match (facts.nvme.map(|nvme| nvme.luns), facts.size) {
        (Some(NvmeLuns::Proved), _) => None,
        (Some(NvmeLuns::Given), _) => Some(Verdict::Differs(
            "its disks come by NVMe, and are found by --nvme-lun-offset alone, which is checked against the instance metadata"
                .to_owned(),
        )),
        (Some(NvmeLuns::Unknown), _) => Some(Verdict::Refused(
            "its disks come by NVMe, and nothing proves which namespace has which LUN: no disk is mounted on it without \
             --nvme-lun-offset"
                .to_owned(),
        )),
        (None, Some(size)) if is_nvme(size) => Some(Verdict::Differs(format!(
            "disks come to machines of size {size} by NVMe: the node plugin mounts them where it finds that the operating \
             system's disk is namespace 1, and lazuli doctor says so when the plugin runs there"
        ))),
        (None, _) => None,
    }
}

/// What becomes of a Node.
pub fn node(name: &str, facts: Facts<'_>) -> Judged {
    let differs = |why: &str| Verdict::Differs(why.to_owned());
    let is_windows = facts.system.is_some_and(|system| system.eq_ignore_ascii_case("windows"));
    if let Some(verdict) = by_nvme(facts).filter(|_| !is_windows && facts.is_machine == Some(true)) {
        return Judged { subject: Subject::Node, name: name.to_owned(), verdict, page: Page::Disks };
    }
    let verdict = match facts {
        _ if is_windows => {
            Verdict::Refused("it runs Windows, for which there is no node plugin: no volume is mounted on it".to_owned())
        }
        Facts { is_machine: Some(false), .. } => differs(
            "its provider id names no machine of Azure: its disks and routes are not looked after, as with the Go programs",
        ),
        Facts { is_machine: None, .. } => {
            differs("it has no provider id: no disk is attached to it until a cloud controller has initialised it")
        }
        Facts { is_machine: Some(true), size: None, .. } => Verdict::Unseen(
            "no label node.kubernetes.io/instance-type says its VM size, so that it is not known whether disks come to it by \
             NVMe, and how many"
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
        let with = |is_machine, size, system, nvme| node("n", Facts { is_machine, size, system, nvme }).verdict;
        let judged = |is_machine, size, system| with(is_machine, size, system, None);
        let linux = Some("linux");
        for size in ["Standard_D8s_v3", "Standard_B2s", "Standard_NV36adms_A10_v5", "Standard_NV6"] {
            assert_eq!(judged(Some(true), Some(size), linux), Verdict::Equal, "{size}");
        }
        for size in ["Standard_D8ds_v6", "standard_e4s_V7"] {
            let verdict = judged(Some(true), Some(size), linux);
            assert!(matches!(&verdict, Verdict::Differs(why) if why.contains(size)), "{verdict:?}");
        }
        // What the node plugin saw outweighs what the size has by default.
        for size in ["Standard_D8ds_v6", "Standard_E8bds_v5"] {
            let seen = |luns| with(Some(true), Some(size), linux, Some(NvmeFacts { luns, io_timeout_seconds: None }));
            assert_eq!(seen(NvmeLuns::Proved), Verdict::Equal, "{size}");
            assert!(matches!(seen(NvmeLuns::Given), Verdict::Differs(why) if why.contains("--nvme-lun-offset")));
            assert!(matches!(seen(NvmeLuns::Unknown), Verdict::Refused(why) if why.contains("--nvme-lun-offset")));
        }
        let windows = judged(Some(true), Some("Standard_D8s_v3"), Some("windows"));
        assert!(matches!(&windows, Verdict::Refused(why) if why.contains("Windows")), "{windows:?}");
        assert!(matches!(judged(Some(true), None, linux), Verdict::Unseen(_)));
        assert!(matches!(judged(Some(false), None, linux), Verdict::Differs(_)));
        assert!(matches!(judged(None, None, None), Verdict::Differs(_)));
    }
}
