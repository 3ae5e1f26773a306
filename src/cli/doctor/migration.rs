//! Goes through a cluster of the Go projects before a move. Decided in [`lazuli_diagnosis::migration`]; here are the reads.

use lazuli_assembly::clients::Azure;
use lazuli_cluster::{ListedNode, list_azure_volumes};
use lazuli_config::Config;
use lazuli_controllers::settings;
use lazuli_csi::identity::{DISK_DRIVER, FILE_DRIVER};
use lazuli_diagnosis::{
    Finding, Grade,
    migration::{
        self, Defaults, Facts, GoContainer, Judged, Mounting, arguments_of, findings, go_containers, not_looked_at,
    },
};
use lazuli_host::options::Options;
use lazuli_model::node::Machine;
use lazuli_nodes::cloud_node::{
    facts::{ANNOTATION, InstanceFacts},
    labels,
};

use super::{
    super::{Cli, go_arguments},
    cluster::{Listed, unseen},
    snapshots::owned_types,
};

/// The check of StorageClasses.
const CLASSES: &str = "move: StorageClasses";
/// That of VolumeAttributesClasses.
const ATTRIBUTES: &str = "move: VolumeAttributesClasses";

/// That of VolumeSnapshotClasses and VolumeSnapshotContents.
const SNAPSHOTS: &str = "move: VolumeSnapshots";

/// That of the types of snapshots, whose failure hides no verdict on VolumeSnapshots.
const TYPES: &str = "move: types of snapshots";

/// The domain of Azure's storage services in the public cloud. It stands where the clients of Azure do not tell it: no volume is
/// refused for it.
const STORAGE_SUFFIX: &str = "core.windows.net";

/// Why a node refuses mount options of a disk.
fn refused_options(options: &[String]) -> Option<String> {
    Options::parse(options).err().map(|error| error.to_string())
}

/// What a Node says of its machine.
fn facts(node: &ListedNode) -> Facts<'_> {
    let label = |name: &str| node.labels.get(name).map(String::as_str).filter(|value| !value.is_empty());
    Facts {
        is_machine: node.provider_id.as_deref().map(|id| Machine::of_provider_id(id).is_some()),
        size: label(labels::INSTANCE_TYPE).or_else(|| label(labels::BETA_INSTANCE_TYPE)),
        system: label("kubernetes.io/os"),
        nvme: node.annotations.get(ANNOTATION).and_then(|text| InstanceFacts::parse(text)?.nvme),
    }
}

/// What becomes of the cluster. Without `azure` its endpoints are not known, and StorageClasses are not judged.
pub(super) async fn examine(
    config: &Config,
    client: &kube::Client,
    cluster: &Listed,
    azure: Option<&Azure>,
) -> Vec<Finding> {
    let mut failures: Vec<Finding> = cluster.unlisted.iter().map(|error| unseen("move: programs", error)).collect();
    let mut judged: Vec<Judged> = go_containers(&cluster.containers).iter().map(program).collect();
    let defaults =
        azure.map(|azure| Defaults { disks: azure.defaults.clone(), shares: azure.share_defaults.clone() }).ok_or_else(
            || Finding::new(CLASSES, Grade::Unseen, "not judged without the clients of Azure; see Azure above"),
        );
    let suffix = defaults.as_ref().map_or(STORAGE_SUFFIX, |defaults| &defaults.shares.storage_endpoint_suffix);
    let mounting = Mounting { refused_options, storage_endpoint_suffix: suffix };
    match (&defaults, &cluster.classes) {
        (Ok(defaults), Ok(classes)) => {
            judged.extend(classes.iter().filter_map(|class| migration::class(class, defaults, &mounting)));
        }
        (Err(finding), Ok(_)) => failures.push(finding.clone()),
        (_, Err(error)) => failures.push(unseen(CLASSES, error)),
    }
    match (&defaults, &cluster.snapshots.attributes) {
        (Ok(defaults), Ok(classes)) => {
            judged.extend(classes.iter().filter_map(|class| migration::attributes_class(class, defaults)));
        }
        (Err(finding), Ok(_)) => failures.push(Finding { check: ATTRIBUTES, ..finding.clone() }),
        (_, Err(error)) => failures.push(unseen(ATTRIBUTES, error)),
    }
    match list_azure_volumes(client, DISK_DRIVER, FILE_DRIVER).await {
        Ok(volumes) => judged.extend(volumes.iter().map(|volume| migration::volume(volume, &mounting))),
        Err(error) => failures.push(unseen("move: PersistentVolumes", &error)),
    }
    match (&defaults, &cluster.snapshots.classes) {
        (Ok(defaults), Ok(classes)) => {
            judged.extend(classes.iter().filter_map(|class| migration::snapshot_class(class, &defaults.disks)));
        }
        (Err(finding), Ok(_)) => failures.push(Finding { check: SNAPSHOTS, ..finding.clone() }),
        (_, Err(error)) => failures.push(unseen(SNAPSHOTS, error)),
    }
    match &cluster.snapshots.contents {
        Ok(contents) => {
            let own = (config.cluster.subscription_id.as_str(), config.cluster.resource_group.as_str());
            judged.extend(contents.iter().filter_map(|content| migration::snapshot_content(content, own)));
        }
        Err(error) => failures.push(unseen(SNAPSHOTS, error)),
    }
    match owned_types(client, &cluster.snapshots).await {
        Ok(types) => judged.extend(types.iter().filter_map(|one| migration::snapshot_type(one, &cluster.containers))),
        Err(error) => failures.push(unseen(TYPES, &error)),
    }
    match &cluster.services {
        Ok((services, _)) => {
            let settings = settings::settings(config, "kubernetes").ok();
            judged.extend(services.iter().map(|service| migration::service(service, settings.as_ref())));
        }
        Err(error) => failures.push(unseen("move: Services", error)),
    }
    match &cluster.nodes {
        Ok(nodes) => judged.extend(nodes.iter().map(|node| migration::node(&node.name, facts(node)))),
        Err(error) => failures.push(unseen("move: Nodes", error)),
    }
    // Of what could not be listed nothing is said to be absent.
    let is_seen = |one: &Finding| !failures.iter().any(|failure| failure.check == one.check);
    let seen: Vec<Finding> = findings(&judged).into_iter().filter(is_seen).collect();
    seen.into_iter().chain(failures).chain([not_looked_at()]).collect()
}

/// Whether the subcommand that takes a program's place starts with its arguments, by this program's own command line.
fn program(of: &GoContainer<'_>) -> Judged {
    let arguments: Vec<String> = arguments_of(of.container)
        .into_iter()
        // What a variable of the pod holds is not seen here; any value of the right kind stands for it.
        .filter(|argument| !argument.contains("$("))
        .collect();
    let Some(subcommand) = of.program.subcommand() else {
        if of.program.is_of_shares() {
            let (refused, notes) = go_arguments::shares::judge(&arguments);
            return migration::program(of, refused.as_deref(), &notes);
        }
        return migration::program(of, None, &[]);
    };
    let words = ["lazuli", subcommand].into_iter().chain(arguments.iter().map(String::as_str));
    let refused = <Cli as clap::Parser>::try_parse_from(words).err().and_then(|error| reason(&error));
    let notes = go_arguments::without_effect(subcommand, &arguments);
    migration::program(of, refused.as_deref(), &notes)
}

/// The first sentence of what clap says; nothing where only an argument is missing that the pod gives by a variable.
fn reason(error: &clap::Error) -> Option<String> {
    if error.kind() == clap::error::ErrorKind::MissingRequiredArgument {
        return None;
    }
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
    Some(line.to_owned())
}

#[cfg(test)]
mod tests {
    use lazuli_diagnosis::{
        managers::Container,
        migration::{GoProgram, Verdict},
    };
    use lazuli_nodes::cloud_node::facts::{NvmeFacts, NvmeLuns};

    use super::*;

    #[test]
    fn the_arguments_of_a_go_program_are_judged_by_the_command_line() {
        let container = |words: &[&str]| Container {
            image: "mcr/azuredisk-csi:v1.30".to_owned(),
            command: words.iter().map(|word| (*word).to_owned()).collect(),
            ..Container::default()
        };
        let verdict = |words: &[&str]| {
            let container = container(words);
            program(&GoContainer { program: GoProgram::DiskController, container: &container }).verdict
        };
        assert_eq!(verdict(&["--endpoint=unix:///csi/csi.sock", "--drivername=disk.csi.azure.com"]), Verdict::Equal);
        let refused = verdict(&["--endpoint=unix:///csi/csi.sock", "--nonsense=1"]);
        assert!(matches!(&refused, Verdict::Refused(why) if why.contains("--nonsense")), "{refused:?}");
        let differs = verdict(&["--endpoint=unix:///csi/csi.sock", "--custom-user-agent=x"]);
        assert!(matches!(&differs, Verdict::Differs(why) if why.contains("custom-user-agent")), "{differs:?}");
    }

    #[test]
    fn the_arguments_of_the_file_driver_are_judged_by_their_table() {
        let verdict = |words: &[&str]| {
            let command = words.iter().map(|word| (*word).to_owned()).collect();
            let container = Container { command, ..Container::default() };
            program(&GoContainer { program: GoProgram::ShareNode, container: &container }).verdict
        };
        assert_eq!(verdict(&["--v=5", "--endpoint=$(CSI_ENDPOINT)", "--nodeid=$(KUBE_NODE_NAME)"]), Verdict::Equal);
        let differs = verdict(&["--mount-permissions=0755"]);
        assert!(matches!(&differs, Verdict::Differs(why) if why.contains("--mount-permissions=0755")), "{differs:?}");
        let refused = verdict(&["--mount-permissions=rwx"]);
        assert!(matches!(&refused, Verdict::Refused(why) if why.contains("rwx")), "{refused:?}");
    }

    #[test]
    fn the_options_of_a_disk_and_the_labels_of_a_node_are_read_as_the_programs_read_them() {
        assert_eq!(refused_options(&["noatime".to_owned()]), None);
        assert!(refused_options(&["bind".to_owned()]).is_some_and(|why| why.contains("bind")));
        let labels = [("beta.kubernetes.io/instance-type", "Standard_D8ds_v6"), ("kubernetes.io/os", "windows")];
        let annotation = r#"{"resourceId":"/i","vmSize":"s","nvme":{"luns":"proved","ioTimeoutSeconds":240}}"#;
        let node = ListedNode {
            name: "n".to_owned(),
            provider_id: None,
            labels: labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
            annotations: [(ANNOTATION.to_owned(), annotation.to_owned())].into(),
            pod_ranges: vec![],
            addresses: vec![],
            other_addresses: vec![],
        };
        let nvme = Some(NvmeFacts { luns: NvmeLuns::Proved, io_timeout_seconds: Some(240) });
        let expected = Facts { is_machine: None, size: Some("Standard_D8ds_v6"), system: Some("windows"), nvme };
        assert_eq!(facts(&node), expected);
    }

    #[test]
    fn a_cause_is_one_line() {
        let error = <Cli as clap::Parser>::try_parse_from(["lazuli", "csi-controller", "--v=much"]).unwrap_err();
        let reason = reason(&error).unwrap();
        assert!(!reason.contains('\n') && reason.contains("much"), "{reason}");
        let missing = <Cli as clap::Parser>::try_parse_from(["lazuli", "csi-node"]);
        assert!(missing.err().is_none_or(|error| super::reason(&error).is_none()));
    }
}
