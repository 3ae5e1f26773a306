//! Goes through a cluster of the Go projects before a move. Decided in [`lazuli_diagnosis::migration`]; here are the reads.

use lazuli_assembly::clients::Azure;
use lazuli_cluster::{list_attributes_classes, list_azure_volumes};
use lazuli_config::Config;
use lazuli_controllers::settings;
use lazuli_csi::identity::{DISK_DRIVER, FILE_DRIVER};
use lazuli_diagnosis::{
    Finding, Grade,
    migration::{self, Defaults, GoContainer, Judged, arguments_of, findings, go_containers},
};
use lazuli_model::node::Machine;

use super::{
    super::{Cli, go_arguments},
    cluster::{Listed, unseen},
};

/// The check of StorageClasses.
const CLASSES: &str = "move: StorageClasses";
/// That of VolumeAttributesClasses.
const ATTRIBUTES: &str = "move: VolumeAttributesClasses";

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
    let attributes = list_attributes_classes(client).await;
    match (&defaults, &cluster.classes) {
        (Ok(defaults), Ok(classes)) => {
            judged.extend(classes.iter().filter_map(|class| migration::class(class, defaults)));
        }
        (Err(finding), Ok(_)) => failures.push(finding.clone()),
        (_, Err(error)) => failures.push(unseen(CLASSES, error)),
    }
    match (&defaults, &attributes) {
        (Ok(defaults), Ok(classes)) => {
            judged.extend(classes.iter().filter_map(|class| migration::attributes_class(class, defaults)));
        }
        (Err(finding), Ok(_)) => failures.push(Finding { check: ATTRIBUTES, ..finding.clone() }),
        (_, Err(error)) => failures.push(unseen(ATTRIBUTES, error)),
    }
    match list_azure_volumes(client, DISK_DRIVER, FILE_DRIVER).await {
        Ok(volumes) => judged.extend(volumes.iter().map(migration::volume)),
        Err(error) => failures.push(unseen("move: PersistentVolumes", &error)),
    }
    match &cluster.services {
        Ok((services, _)) => {
            let settings = settings::settings(config, "kubernetes").ok();
            judged.extend(services.iter().map(|service| migration::service(service, settings.as_ref())));
        }
        Err(error) => failures.push(unseen("move: Services", error)),
    }
    match &cluster.nodes {
        Ok(nodes) => judged.extend(nodes.iter().map(|node| {
            let machine = node.provider_id.as_deref().map(|id| Machine::of_provider_id(id).is_some());
            migration::node(&node.name, machine)
        })),
        Err(error) => failures.push(unseen("move: Nodes", error)),
    }
    // Of what could not be listed nothing is said to be absent.
    let is_seen = |one: &Finding| !failures.iter().any(|failure| failure.check == one.check);
    let seen: Vec<Finding> = findings(&judged).into_iter().filter(is_seen).collect();
    seen.into_iter().chain(failures).collect()
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
    fn a_cause_is_one_line() {
        let error = <Cli as clap::Parser>::try_parse_from(["lazuli", "csi-controller", "--v=much"]).unwrap_err();
        let reason = reason(&error).unwrap();
        assert!(!reason.contains('\n') && reason.contains("much"), "{reason}");
        let missing = <Cli as clap::Parser>::try_parse_from(["lazuli", "csi-node"]);
        assert!(missing.err().is_none_or(|error| super::reason(&error).is_none()));
    }
}
