//! The programs of the Go projects, as their pods show them.

use super::{super::managers::Container, Judged, Page, Subject, Verdict};

/// A program of the Go projects, and the subcommand that takes its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum GoProgram {
    /// The controller of the disk driver.
    DiskController,
    /// Its node plugin.
    DiskNode,
    /// The controller of the file driver.
    ShareController,
    /// Its node plugin.
    ShareNode,
    /// The cloud-controller-manager.
    CloudControllerManager,
    /// The cloud-node-manager.
    CloudNodeManager,
}

impl GoProgram {
    /// The program that a container runs, by its image, which names it in every registry, or by its command.
    pub fn of(container: &Container) -> Option<Self> {
        let words: Vec<&str> = container.command.iter().flat_map(|word| word.split_whitespace()).collect();
        let image = container.image.rsplit('/').next().unwrap_or_default().split([':', '@']).next().unwrap_or_default();
        let command = words.first().and_then(|word| word.rsplit('/').next()).unwrap_or_default();
        let is = |names: &[&str]| names.contains(&image) || names.contains(&command);
        // A driver's node plugin is the same program with the name of its node.
        let is_node = words.iter().any(|word| word.trim_start_matches('-').starts_with("nodeid"));
        if is(&["azuredisk-csi", "azurediskplugin"]) {
            Some(if is_node { Self::DiskNode } else { Self::DiskController })
        } else if is(&["azurefile-csi", "azurefileplugin"]) {
            Some(if is_node { Self::ShareNode } else { Self::ShareController })
        } else if is(&["azure-cloud-controller-manager", "cloud-controller-manager"]) {
            Some(Self::CloudControllerManager)
        } else if is(&["azure-cloud-node-manager", "cloud-node-manager"]) {
            Some(Self::CloudNodeManager)
        } else {
            None
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::DiskController => "azuredisk-csi-driver (controller)",
            Self::DiskNode => "azuredisk-csi-driver (node)",
            Self::ShareController => "azurefile-csi-driver (controller)",
            Self::ShareNode => "azurefile-csi-driver (node)",
            Self::CloudControllerManager => "azure-cloud-controller-manager",
            Self::CloudNodeManager => "azure-cloud-node-manager",
        }
    }

    /// The subcommand that starts with its arguments; `None` where none takes them.
    pub fn subcommand(self) -> Option<&'static str> {
        match self {
            Self::DiskController => Some("csi-controller"),
            Self::DiskNode => Some("csi-node"),
            Self::CloudControllerManager => Some("cloud-controllers"),
            Self::ShareController | Self::ShareNode | Self::CloudNodeManager => None,
        }
    }

    /// Whether it is a program of the file driver. Of its arguments a table says what becomes of them: its place is taken by
    /// subcommands that serve disks too.
    pub fn is_of_shares(self) -> bool {
        matches!(self, Self::ShareController | Self::ShareNode)
    }

    fn page(self) -> Page {
        match self {
            Self::DiskController | Self::DiskNode => Page::Disks,
            Self::ShareController | Self::ShareNode => Page::Shares,
            Self::CloudControllerManager => Page::Services,
            Self::CloudNodeManager => Page::Nodes,
        }
    }
}

/// A program of the Go projects that runs: one of its replicas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GoContainer<'c> {
    /// Which.
    pub program: GoProgram,
    /// Where it runs.
    pub container: &'c Container,
}

/// The Go programs among these containers: one of each owner.
pub fn go_containers(containers: &[Container]) -> Vec<GoContainer<'_>> {
    let mut found: Vec<GoContainer<'_>> = Vec::new();
    for container in containers {
        let Some(program) = GoProgram::of(container) else { continue };
        let is_static = container.owner.starts_with("Node/");
        let same = |one: &GoContainer<'_>| {
            let other = one.container;
            one.program == program
                && other.namespace == container.namespace
                && (other.owner == container.owner || (is_static && other.owner.starts_with("Node/")))
        };
        if !found.iter().any(same) {
            found.push(GoContainer { program, container });
        }
    }
    found.sort_by(|one, other| (one.program, &one.container.owner).cmp(&(other.program, &other.container.owner)));
    found
}

/// Whether a Helm release is that of the disk driver in Go. A program of it says so by a label of its pod; of one that does not
/// run, or has no label, the name tells it.
pub fn is_go_release(release: &str, namespace: &str, containers: &[Container]) -> bool {
    let is_of_disks = |container: &Container| {
        matches!(GoProgram::of(container), Some(GoProgram::DiskController | GoProgram::DiskNode))
    };
    let names_it = |container: &Container| container.release.as_deref() == Some(release);
    let in_namespace = |container: &&Container| container.namespace == namespace;
    release.contains("azuredisk") || containers.iter().filter(in_namespace).any(|one| is_of_disks(one) && names_it(one))
}

/// The arguments of a program, without the name of the program.
pub fn arguments_of(container: &Container) -> Vec<String> {
    let words = container.command.iter().flat_map(|word| word.split_whitespace());
    words.skip_while(|word| !word.starts_with('-')).map(str::to_owned).collect()
}

/// The version that an image names.
fn version(image: &str) -> &str {
    let name = image.split('@').next().unwrap_or(image);
    match name.rsplit('/').next().and_then(|last| last.split_once(':')) {
        Some((_, tag)) => tag,
        None => "of no tag",
    }
}

/// What becomes of a program. `refused` is why its arguments do not start the subcommand that takes its place; `notes` are those
/// of its arguments that have no effect, each with its sentence.
pub fn program(of: &GoContainer<'_>, refused: Option<&str>, notes: &[String]) -> Judged {
    let GoContainer { program, container } = of;
    let name =
        format!("{} {} ({}/{})", program.name(), version(&container.image), container.namespace, container.owner);
    let verdict = match (program.subcommand(), refused) {
        (Some(subcommand), Some(why)) => {
            Verdict::Refused(format!("lazuli {subcommand} does not start with its arguments: {why}"))
        }
        (Some(_), None) if notes.is_empty() => Verdict::Equal,
        (Some(subcommand), None) => {
            Verdict::Differs(format!("lazuli {subcommand} starts with its arguments; {}", notes.join("; ")))
        }
        (None, Some(why)) => Verdict::Refused(why.to_owned()),
        (None, None) if program.is_of_shares() && notes.is_empty() => Verdict::Equal,
        (None, None) if program.is_of_shares() => Verdict::Differs(notes.join("; ")),
        (None, None) => Verdict::Differs(
            "its work is done by lazuli csi-node and lazuli cloud-controllers: it is not needed beside them, and is taken away \
             after the move"
                .to_owned(),
        ),
    };
    Judged { subject: Subject::Program, name, verdict, page: program.page() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(owner: &str, image: &str, command: &[&str]) -> Container {
        Container {
            namespace: "kube-system".into(),
            pod: "p".into(),
            owner: owner.into(),
            image: image.into(),
            command: command.iter().map(|word| (*word).to_owned()).collect(),
            release: None,
        }
    }

    #[test]
    fn programs_are_known_by_image_or_command_and_replicas_are_one() {
        let all = [
            container("Deployment/disk", "mcr/k8s/azuredisk-csi:v1.30.4", &["--endpoint=unix:///x", "--v=5"]),
            container("Deployment/disk", "mcr/k8s/azuredisk-csi:v1.30.4", &["--endpoint=unix:///x", "--v=5"]),
            container("DaemonSet/disk", "mcr/k8s/azuredisk-csi:v1.30.4", &["--nodeid=$(NODE)"]),
            container("Node/a", "own/ccm@sha256:x", &["/usr/bin/cloud-controller-manager", "--v=2"]),
            container("Node/b", "own/ccm@sha256:x", &["/usr/bin/cloud-controller-manager", "--v=2"]),
            container("DaemonSet/cnm", "mcr/azure-cloud-node-manager:v1.31.0", &[]),
            container("Deployment/ours", "lazuli:1", &["lazuli", "csi-controller"]),
        ];
        let found: Vec<GoProgram> = go_containers(&all).iter().map(|one| one.program).collect();
        use GoProgram::{CloudControllerManager, CloudNodeManager, DiskController, DiskNode};
        assert_eq!(found, [DiskController, DiskNode, CloudControllerManager, CloudNodeManager]);
        assert_eq!(arguments_of(&all[3]), ["--v=2"]);
    }

    #[test]
    fn a_program_is_named_with_its_version_and_judged_by_its_arguments() {
        let disk = container("Deployment/disk", "mcr/k8s/azuredisk-csi:v1.30.4", &["--v=5"]);
        let of = GoContainer { program: GoProgram::DiskController, container: &disk };
        let equal = program(&of, None, &[]);
        assert_eq!(equal.name, "azuredisk-csi-driver (controller) v1.30.4 (kube-system/Deployment/disk)");
        assert_eq!(equal.verdict, Verdict::Equal);
        assert!(matches!(program(&of, Some("no"), &[]).verdict, Verdict::Refused(why) if why.ends_with(": no")));
        assert!(matches!(program(&of, None, &["x".to_owned()]).verdict, Verdict::Differs(why) if why.ends_with("; x")));
        let share = GoContainer { program: GoProgram::ShareNode, container: &disk };
        assert_eq!(program(&share, None, &[]).verdict, Verdict::Equal);
        assert_eq!(program(&share, None, &["x".to_owned()]).verdict, Verdict::Differs("x".to_owned()));
        assert_eq!(program(&share, Some("no"), &["x".to_owned()]).verdict, Verdict::Refused("no".to_owned()));
    }
}
