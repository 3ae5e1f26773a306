//! From the tables of the crates to what is printed.

use clap::CommandFactory as _;
use lazuli_model::{
    event::Reason,
    reference::{ConfigRow, Metric, ParameterRow, UsedBy},
};
use lazuli_services::service::annotation;

use super::{super::Cli, go_metrics, keys};

/// Topics of one table.
#[derive(Debug)]
pub(super) struct Section {
    /// What they are.
    pub(super) title: &'static str,
    /// What is said of each besides name and meaning.
    pub(super) columns: &'static [&'static str],
    /// The topics.
    pub(super) topics: Vec<Topic>,
}

/// One thing that is explained.
#[derive(Debug)]
pub(super) struct Topic {
    /// Its name.
    pub(super) name: String,
    /// What it means or does.
    pub(super) meaning: String,
    /// The names of its values.
    pub(super) columns: &'static [&'static str],
    /// Its values, one for each column.
    pub(super) values: Vec<String>,
}

impl Topic {
    /// The name without the prefix that all annotations of Services have, or without the dashes of an option.
    pub(super) fn short_name(&self) -> &str {
        let option = || self.name.trim_start_matches('-');
        self.name.strip_prefix(annotation::PREFIX).unwrap_or_else(option)
    }

    /// Whether a person means this one: by the whole name, by what stands behind the prefix of an annotation or the dashes of
    /// an option, or by the variable of an option. `PATH`, `{port}` and a `*` at the end stand for anything. A series of a
    /// histogram means the histogram.
    pub(super) fn is_called(&self, name: &str) -> bool {
        let name = name.to_lowercase();
        let series = ["_bucket", "_sum", "_count"].into_iter().find_map(|series| name.strip_suffix(series));
        let variable = self.columns.iter().zip(&self.values).find(|(label, _)| **label == VARIABLE);
        self.fits(&name)
            || series.is_some_and(|histogram| self.fits(histogram))
            || variable.is_some_and(|(_, variable)| !variable.is_empty() && variable.to_lowercase() == name)
    }

    fn fits(&self, name: &str) -> bool {
        let (own, short) = (self.name.to_lowercase(), self.short_name().to_lowercase());
        let is_meant_by = |own: &str| {
            let wild = ["{port}", "path"].into_iter().find_map(|wild| own.split_once(wild));
            own == name
                || own.strip_suffix('*').is_some_and(|start| start.ends_with('_') && name.starts_with(start))
                || wild.is_some_and(|(start, end)| {
                    // Only a name with a slash or a number in it goes on with anything.
                    start.ends_with(['/', '_']) && name.strip_prefix(start).is_some_and(|rest| rest.ends_with(end))
                })
        };
        is_meant_by(&own) || is_meant_by(&short)
    }
}

fn section(title: &'static str, columns: &'static [&'static str], rows: Vec<(String, String, Vec<String>)>) -> Section {
    let topics = rows.into_iter().map(|(name, meaning, values)| Topic { name, meaning, columns, values });
    Section { title, columns, topics: topics.collect() }
}

const PARAMETER: &[&str] = &["class", "driver", "values", "default", "effect"];

/// Parameters of the classes of both drivers.
pub(super) fn parameters() -> Vec<Section> {
    let rows = |class: &str, driver: &str, rows: Vec<&ParameterRow>| {
        let row = |row: &&ParameterRow| {
            let default = row.alias_of.map_or_else(|| row.default.to_owned(), |of| format!("that of {of}"));
            let meaning = row.alias_of.map_or_else(
                || row.meaning.to_owned(),
                |of| format!("Another name of {of}; both together must say the same."),
            );
            let values = [class, driver, row.values, default.as_str(), row.effect.as_str()].map(str::to_owned);
            (row.name.to_owned(), meaning, values.to_vec())
        };
        rows.iter().map(row).collect()
    };
    let disk: Vec<&ParameterRow> = lazuli_volume::PARAMETERS.iter().chain([&lazuli_volume::DEVICE_SETTING]).collect();
    let blobs: Vec<&ParameterRow> = lazuli_vhd::PARAMETERS.iter().chain([&lazuli_volume::DEVICE_SETTING]).collect();
    let file: Vec<&ParameterRow> = lazuli_shares::parameters::PARAMETERS.iter().collect();
    let snapshots: Vec<&ParameterRow> = lazuli_volume::snapshot::SNAPSHOT_PARAMETERS.iter().collect();
    let attributes: Vec<&ParameterRow> = lazuli_volume::modify::ATTRIBUTE_PARAMETERS.iter().collect();
    let (disks, shares) = ("disk.csi.azure.com", "file.csi.azure.com");
    vec![
        section("Parameters of disk.csi.azure.com", PARAMETER, rows("StorageClass", disks, disk)),
        section(
            "Parameters of disk.csi.azure.com for VHD blob disks",
            PARAMETER,
            rows("StorageClass of VHD blob disks", disks, blobs),
        ),
        section("Parameters of file.csi.azure.com", PARAMETER, rows("StorageClass", shares, file)),
        section(
            "Parameters of VolumeSnapshotClasses of disk.csi.azure.com",
            PARAMETER,
            rows("VolumeSnapshotClass", disks, snapshots),
        ),
        section(
            "Parameters of VolumeAttributesClasses of disk.csi.azure.com",
            PARAMETER,
            rows("VolumeAttributesClass", disks, attributes),
        ),
    ]
}

/// Annotations of Services, and the other keys that the program reads or writes.
pub(super) fn annotations() -> Vec<Section> {
    let services = annotation::TABLE
        .iter()
        .map(|row| (row.key.to_owned(), row.effect.to_owned(), vec![row.kind.to_string()]))
        .collect();
    let others = keys::KEYS
        .iter()
        .map(|row| {
            let values = [row.of.as_str(), row.kind.as_str(), row.value].map(str::to_owned);
            (row.key.to_owned(), row.meaning.to_owned(), values.to_vec())
        })
        .collect();
    vec![
        section("Annotations of Services of type LoadBalancer", &["values"], services),
        section("Other annotations, labels, taints and finalizers", &["object", "kind", "values"], others),
    ]
}

/// Who uses a key, for people.
fn users(by: UsedBy) -> String {
    let all = [
        (by.all, "all"),
        (by.services, "service-lb"),
        (by.nodes, "Nodes and routes"),
        (by.cloud_controllers, "cloud controllers"),
    ];
    all.into_iter().filter(|(uses, _)| *uses).map(|(_, name)| name).collect::<Vec<_>>().join(", ")
}

/// Keys of the cloud configuration.
pub(super) fn config() -> Vec<Section> {
    let row = |row: &ConfigRow| {
        let go =
            row.go.reason().map_or_else(|| row.go.as_str().to_owned(), |why| format!("{}: {why}", row.go.as_str()));
        let values = vec![row.values.to_owned(), row.default.to_owned(), users(row.used_by), go];
        (row.key.to_owned(), row.meaning.to_owned(), values)
    };
    let columns = &["values", "default", "used by", "Go projects"];
    vec![section("Keys of the cloud configuration", columns, lazuli_config::KEYS.iter().map(row).collect())]
}

/// The column of the variable of an option.
const VARIABLE: &str = "variable";

/// An option or an argument of a command.
pub(super) struct CommandOption {
    /// Its name with dashes, or that of an argument without.
    pub(super) name: String,
    /// The variable that may stand for it; empty without one.
    pub(super) variable: String,
    /// What it is when it is left out.
    pub(super) default: String,
    /// What it means.
    pub(super) meaning: String,
    /// The values that it takes, where they are few.
    pub(super) values: String,
}

/// A command with its options.
pub(super) struct Command {
    /// How it is called: `lazuli csi-node`.
    pub(super) path: String,
    /// What it takes.
    pub(super) options: Vec<CommandOption>,
}

/// All commands, each before those below it.
pub(super) fn commands() -> Vec<Command> {
    let mut all = Vec::new();
    add_commands(&Cli::command(), "lazuli", &mut all);
    all
}

fn add_commands(command: &clap::Command, path: &str, all: &mut Vec<Command>) {
    let shown = command.get_arguments().filter(|argument| {
        let id = argument.get_id().as_str();
        !argument.is_hide_set() && id != "help" && id != "version" && (!argument.is_global_set() || path == "lazuli")
    });
    all.push(Command { path: path.to_owned(), options: shown.map(option).collect() });
    for below in command.get_subcommands().filter(|command| command.get_name() != "help" && !command.is_hide_set()) {
        add_commands(below, &format!("{path} {}", below.get_name()), all);
    }
}

fn option(argument: &clap::Arg) -> CommandOption {
    let name = match argument.get_long() {
        Some(long) if long.len() == 1 => format!("-{long}"),
        Some(long) => format!("--{long}"),
        None => argument.get_id().as_str().to_uppercase(),
    };
    let default: Vec<_> = argument.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    let help = argument.get_long_help().or_else(|| argument.get_help()).map(ToString::to_string).unwrap_or_default();
    let possible = argument.get_possible_values();
    let values: Vec<&str> =
        possible.iter().filter(|value| !value.is_hide_set()).map(|value| value.get_name()).collect();
    let end = if help.trim_end().ends_with(['.', ':']) || help.is_empty() { "" } else { "." };
    CommandOption {
        name,
        variable: argument.get_env().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default(),
        default: default.join(", "),
        meaning: format!("{}{end}", help.trim_end()),
        values: values.join(", "),
    }
}

/// Options of the commands. What several commands take alike is there once.
pub(super) fn options() -> Vec<Section> {
    let mut rows: Vec<(String, String, Vec<String>)> = Vec::new();
    for Command { path, options, .. } in commands() {
        // An argument has no name of its own: it is explained with its command.
        for CommandOption { name, variable, default, meaning, values } in
            options.into_iter().filter(|one| one.name.starts_with('-'))
        {
            let row = (name, meaning, vec![path.clone(), variable, default, values]);
            let is_same = |other: &&mut (String, String, Vec<String>)| {
                (&other.0, &other.1, &other.2[1..]) == (&row.0, &row.1, &row.2[1..])
            };
            match rows.iter_mut().find(is_same) {
                Some(same) => same.2[0] = format!("{}, {path}", same.2[0]),
                None => rows.push(row),
            }
        }
    }
    vec![section("Options of the commands", &["commands", VARIABLE, "default", "values"], rows)]
}

/// Reasons of events.
pub(super) fn events() -> Vec<Section> {
    let row = |reason: Reason| {
        let objects = reason.objects().iter().map(|object| object.as_str()).collect::<Vec<_>>().join(", ");
        let values = vec![objects, reason.severity().as_str().to_owned(), reason.advice().to_owned()];
        (reason.as_str().to_owned(), reason.meaning().to_owned(), values)
    };
    vec![section("Reasons of events", &["on", "type", "what to do"], Reason::ALL.into_iter().map(row).collect())]
}

/// Every metric.
pub(super) fn all_metrics() -> impl Iterator<Item = &'static Metric> {
    [
        lazuli_csi::server::METRICS,
        lazuli_csi::file::node::METRICS,
        lazuli_azure::metrics::METRICS,
        lazuli_reconcile::metrics::METRICS,
        lazuli_cluster::METRICS,
        lazuli_cluster::LEVELS,
        lazuli_controllers::operations::METRICS,
        lazuli_keys::METRICS,
        lazuli_webhook::METRICS,
        keys::PROCESS_METRICS,
    ]
    .into_iter()
    .flatten()
}

/// Metrics.
pub(super) fn metrics() -> Vec<Section> {
    let row = |metric: &Metric| {
        let values = [metric.kind.as_str(), &metric.labels.join(", "), metric.go.unwrap_or_default()];
        (metric.name(), format!("{}.", metric.help), values.map(str::to_owned).to_vec())
    };
    let given = go_metrics::given().map(|family| {
        let program = go_metrics::program(family).to_owned();
        let values =
            vec![family.kind.as_str().to_owned(), family.labels.join(", "), go_metrics::buckets(family), program];
        (family.name.to_owned(), format!("{}.", family.help), values)
    });
    let not_given = go_metrics::NOT_GIVEN.iter().map(|not| (not.name.to_owned(), format!("{}.", not.why), vec![]));
    vec![
        section("Metrics", &["type", "labels", "Go projects"], all_metrics().map(row).collect()),
        section(
            "Added by --go-metrics, under the Go projects' names",
            &["type", "labels", "buckets", "Go program"],
            given.collect(),
        ),
        section("Not given, though the Go projects write them", &[], not_given.collect()),
    ]
}
