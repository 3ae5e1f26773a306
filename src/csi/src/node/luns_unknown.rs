//! What is said at the start where disks come by NVMe and their LUNs are not known.
//!
//! Staging says it too, with an event, but only when a pod needs a disk there.

use lazuli_host::{
    Host,
    device::FindError,
    nvme::{self, Luns},
};
use lazuli_staging::nvme::{Controller, FIND_OFFSET, Machine};

/// Why the LUNs of the machine's NVMe disks are not known and what to do; `None` where they are, or no disk comes by NVMe.
/// `offset` is what the operator has given.
///
/// # Errors
/// [`FindError::Read`] where sysfs cannot be read.
pub async fn luns_unknown(host: &Host, offset: Option<u32>) -> Result<Option<String>, FindError> {
    Ok(warning(&nvme::machine(host).await?, offset))
}

fn warning(machine: &Machine, offset: Option<u32>) -> Option<String> {
    if machine.luns(offset)? != Luns::Unknown {
        return None;
    }
    let remote = || machine.controllers.iter().filter(|controller| controller.has_remote_disks());
    // Of each controller alone it is known whether the system lies on its namespace 1.
    let is_proved = |controller: &&Controller| {
        let alone = Machine { controllers: vec![(*controller).clone()], system: machine.system.clone() };
        alone.luns(None) == Some(Luns::Proved)
    };
    let seen: Vec<String> = remote().map(seen).collect();
    let (seen, system) = (seen.join(", "), &machine.system);
    let next = match (offset, remote().find(is_proved)) {
        (None, None) => format!(
            "no disk is mounted: give the offset between namespace ids and LUNs with --nvme-lun-offset; {FIND_OFFSET}"
        ),
        (None, Some(Controller { name, .. })) => format!(
            "disks of other controllers than {name} are not mounted: where the offset is 2 there too, give \
             --nvme-lun-offset=2"
        ),
        (Some(given), Some(Controller { name, .. })) => format!(
            "no disk is mounted: --nvme-lun-offset is {given}, the operating system's disk is namespace 1 of {name}, which \
             proves 2 there, and one offset must hold for all controllers; where 2 does, give --nvme-lun-offset=2"
        ),
        (Some(given), None) => format!(
            "no disk is mounted: --nvme-lun-offset is {given}, and an offset counts for one controller of remote disks alone"
        ),
    };
    Some(format!(
        "data disks come by NVMe here, and it is not known which namespace has which LUN: there are {seen}; {system}; {next}"
    ))
}

/// A controller as it is seen: `nvme0 (live, namespaces 1 and 2)`.
fn seen(controller: &Controller) -> String {
    let mut ids: Vec<u32> = controller.namespaces.iter().map(|namespace| namespace.nsid).collect();
    ids.sort_unstable();
    let ids: Vec<String> = ids.iter().map(u32::to_string).collect();
    let namespaces = match ids.split_last() {
        None => "no namespace".to_owned(),
        Some((only, [])) => format!("namespace {only}"),
        Some((last, others)) => format!("namespaces {} and {last}", others.join(", ")),
    };
    format!("{} ({}, {namespaces})", controller.name, controller.state)
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use lazuli_staging::nvme::{Namespace, REMOTE_DISKS, SystemDisks};

    use super::*;

    fn controller(name: &str, model: &str, ids: &[u32]) -> Controller {
        let namespace = |nsid: &u32| Namespace {
            name: format!("{name}n{nsid}"),
            nsid: *nsid,
            size_bytes: 1 << 30,
            is_partitioned: *nsid == 1,
        };
        Controller {
            name: name.to_owned(),
            model: model.to_owned(),
            state: "live".to_owned(),
            namespaces: ids.iter().map(namespace).collect(),
        }
    }

    fn machine(root: &str, controllers: Vec<Controller>) -> Machine {
        let root = Some(root.to_owned()).filter(|root| !root.is_empty()).into_iter().collect();
        Machine { controllers, system: SystemDisks { root, kubelet: vec!["sda".to_owned()], ..SystemDisks::default() } }
    }

    #[test]
    fn what_is_seen_and_what_to_give_is_said_where_no_lun_is_known() {
        let one = |ids: &[u32]| vec![controller("nvme0", REMOTE_DISKS, ids)];
        let two = || vec![controller("nvme0", REMOTE_DISKS, &[1, 2]), controller("nvme1", REMOTE_DISKS, &[3])];
        for (root, controllers, offset, told) in [
            (
                "",
                one(&[2, 1]),
                None,
                &[
                    "nvme0 (live, namespaces 1 and 2)",
                    "root= lies on no disk that is known and kubelet's folder on sda",
                    "no disk is mounted: give the offset between namespace ids and LUNs with --nvme-lun-offset; it is the namespace id",
                ][..],
            ),
            // Before the first disk is attached.
            ("nvme1n1", one(&[]), None, &["nvme0 (live, no namespace)", "root= lies on nvme1n1"][..]),
            (
                "nvme0n1",
                two(),
                None,
                &["nvme1 (live, namespace 3)", "other controllers than nvme0", "give --nvme-lun-offset=2"][..],
            ),
            ("nvme0n1", two(), Some(1), &["--nvme-lun-offset is 1", "namespace 1 of nvme0", "proves 2 there"][..]),
            ("", two(), Some(1), &["--nvme-lun-offset is 1", "counts for one controller"][..]),
        ] {
            let machine = machine(root, controllers);
            let warning = warning(&machine, offset).unwrap_or_else(|| panic!("{machine:?} {offset:?}"));
            for part in told {
                assert!(warning.contains(part), "{part}: {warning}");
            }
        }
    }

    #[test]
    fn nothing_is_said_where_luns_are_known_or_no_disk_comes_by_nvme() {
        let local = || controller("nvme1", "Microsoft NVMe Direct Disk v2", &[1]);
        let remote = |ids: &[u32]| controller("nvme0", REMOTE_DISKS, ids);
        for (root, controllers, offset) in [
            ("nvme0n1", vec![remote(&[1, 2]), local()], None),
            ("nvme0n1", vec![remote(&[1, 2])], Some(1)),
            ("nvme1n1", vec![remote(&[1, 2]), local()], Some(1)),
            ("sda", vec![local()], None),
            ("sda", vec![], None),
        ] {
            let machine = machine(root, controllers);
            assert_eq!(warning(&machine, offset), None, "{machine:?} {offset:?}");
        }
    }

    #[tokio::test]
    async fn it_is_said_of_what_sysfs_shows() {
        let folder = std::env::temp_dir().join(format!("lazuli-luns-unknown-{}", std::process::id()));
        let controller = folder.join("sys/class/nvme/nvme0");
        let write = |path: &Path, text: &str| {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let host = Host::new().with_root(&folder);
        assert_eq!(luns_unknown(&host, None).await.unwrap(), None, "there is no controller");
        write(&controller.join("model"), "MSFT NVMe Accelerator v1.0              \n");
        write(&controller.join("state"), "live\n");
        for (file, text) in [("nsid", "1\n"), ("size", "4096\n")] {
            write(&controller.join("nvme0n1").join(file), text);
        }
        let unknown = luns_unknown(&host, None).await.unwrap().unwrap();
        assert!(unknown.contains("nvme0 (live, namespace 1)"), "{unknown}");
        assert_eq!(luns_unknown(&host, Some(1)).await.unwrap(), None);
        fs::remove_dir_all(&folder).unwrap();
    }
}
