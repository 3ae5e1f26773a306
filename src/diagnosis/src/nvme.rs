//! Nodes whose data disks come by NVMe, and what the node plugin saw there.

use lazuli_nodes::cloud_node::facts::{NvmeFacts, NvmeLuns};

use super::{Finding, Grade, some};

const CHECK: &str = "NVMe disks of Nodes";

/// The first version of VM sizes whose disks come by NVMe alone (source: Azure's pages of the sizes of version 6).
const FIRST_VERSION: u32 = 6;

/// After so many seconds the kernel may take a request for lost where disks are remote (source: Azure's page about NVMe
/// on Linux). By default that is 30 seconds, after which a disk that Azure moves to another host fails.
const IO_TIMEOUT: u64 = 240;

/// Whether disks come by NVMe to machines of this size unless they say otherwise: `Standard_D8ds_v6` is of version 6.
pub fn is_nvme(size: &str) -> bool {
    let versions = size.split('_').filter_map(|part| part.strip_prefix(['v', 'V'])?.parse::<u32>().ok());
    versions.max().is_some_and(|version| version >= FIRST_VERSION)
}

/// A Node, as far as this check is concerned.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Its VM size, where a label says it.
    pub size: Option<String>,
    /// What the node plugin has published.
    pub seen: Option<NvmeFacts>,
}

/// What is known of the Nodes to which disks come by NVMe; nothing where there is none.
pub fn nodes(nodes: &[Node]) -> Vec<Finding> {
    let named = |is: &dyn Fn(&Node) -> bool| -> Vec<&str> {
        nodes.iter().filter(|node| is(node)).map(|node| node.name.as_str()).collect()
    };
    let luns = |luns: NvmeLuns| named(&|node| node.seen.is_some_and(|seen| seen.luns == luns));
    let mut findings = Vec::new();
    let mut find = |grade: Grade, names: Vec<&str>, text: &str| {
        if !names.is_empty() {
            findings.push(Finding::new(CHECK, grade, format!("{}: {text}", some(&names))));
        }
    };
    find(
        Grade::Fine,
        luns(NvmeLuns::Proved),
        "disks come by NVMe, and the operating system's is namespace 1, so that the LUN of each is known",
    );
    find(
        Grade::Note,
        luns(NvmeLuns::Given),
        "disks come by NVMe, and --nvme-lun-offset alone says which namespace has which LUN: a disk is used while that \
         agrees with all that the instance metadata lists",
    );
    find(
        Grade::Wrong,
        luns(NvmeLuns::Unknown),
        "disks come by NVMe, and it is not known which namespace has which LUN, so that no disk is mounted, or none of a second \
         controller: the node plugin logs at its start what it saw, and what to give with --nvme-lun-offset",
    );
    let is_unseen = |node: &Node| node.seen.is_none() && node.size.as_deref().is_some_and(is_nvme);
    find(
        Grade::Unseen,
        named(&is_unseen),
        "disks come by NVMe to machines of this size, and the node plugin has not published what it saw: it does so when it \
         runs there and may annotate its Node",
    );
    let is_hasty =
        |node: &Node| node.seen.and_then(|seen| seen.io_timeout_seconds).is_some_and(|seconds| seconds < IO_TIMEOUT);
    find(
        Grade::Note,
        named(&is_hasty),
        "the kernel takes a request to an NVMe disk for lost sooner than the 240 seconds that Azure asks for: start it with \
         nvme_core.io_timeout=240, or the file systems may turn read-only when Azure moves a disk",
    );
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, size: &str, seen: Option<(NvmeLuns, Option<u64>)>) -> Node {
        let seen = seen.map(|(luns, io_timeout_seconds)| NvmeFacts { luns, io_timeout_seconds });
        Node { name: name.to_owned(), size: Some(size.to_owned()), seen }
    }

    #[test]
    fn nodes_are_named_by_what_their_plugins_saw() {
        let all = [
            node("scsi", "Standard_D8s_v3", None),
            node("proved", "Standard_D8ds_v6", Some((NvmeLuns::Proved, Some(240)))),
            node("hasty", "Standard_E8bds_v5", Some((NvmeLuns::Proved, Some(30)))),
            node("given", "Standard_D8ds_v7", Some((NvmeLuns::Given, None))),
            node("unknown", "Standard_D8ds_v7", Some((NvmeLuns::Unknown, None))),
            node("unseen", "Standard_D8ds_v6", None),
        ];
        let found = nodes(&all);
        let told: Vec<(Grade, &str)> =
            found.iter().map(|one| (one.grade, one.text.split(':').next().unwrap_or_default())).collect();
        let expected = [
            (Grade::Fine, "proved, hasty"),
            (Grade::Note, "given"),
            (Grade::Wrong, "unknown"),
            (Grade::Unseen, "unseen"),
            (Grade::Note, "hasty"),
        ];
        assert_eq!(told, expected);
        assert!(found[4].text.contains("nvme_core.io_timeout=240"), "{:?}", found[4]);
        assert_eq!(nodes(&all[..1]), Vec::new());
    }

    #[test]
    fn sizes_of_version_6_and_newer_have_their_disks_by_nvme() {
        for (size, is) in [
            ("Standard_D8s_v3", false),
            ("Standard_NV36adms_A10_v5", false),
            ("Standard_NV6", false),
            ("Standard_D8ds_v6", true),
            ("standard_e4s_V7", true),
            ("", false),
        ] {
            assert_eq!(is_nvme(size), is, "{size}");
        }
    }
}
