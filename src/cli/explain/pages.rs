//! The pages in `deploy/reference`, in Markdown.

use clap::CommandFactory as _;

use super::{
    super::Cli,
    Kind,
    topics::{self, Command, CommandOption, Section, Topic},
};

/// A page: its file's name and its text.
pub(super) type Page = (&'static str, String);

/// A cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;").split_whitespace().collect::<Vec<_>>().join(" ")
}

fn table(heads: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut text = format!("| {} |\n|{}\n", heads.join(" | "), "---|".repeat(heads.len()));
    for row in rows {
        text.push('|');
        for value in &row {
            let value = cell(value);
            text.push_str(&if value.is_empty() { " |".to_owned() } else { format!(" {value} |") });
        }
        text.push('\n');
    }
    text
}

fn of_section(section: &Section, without: &[&str]) -> String {
    let is_shown = |label: &&str| !without.contains(label);
    let heads: Vec<&str> =
        ["name", "meaning"].into_iter().chain(section.columns.iter().copied().filter(is_shown)).collect();
    let row = |topic: &Topic| {
        let shown = section.columns.iter().zip(&topic.values).filter(|(label, _)| is_shown(label));
        let values = shown.map(|(_, value)| value.clone());
        [format!("`{}`", topic.name), topic.meaning.clone()].into_iter().chain(values).collect()
    };
    table(&heads, section.topics.iter().map(row))
}

const MADE: &str = "<!-- Made from the program's own tables. A test compares it; LAZULI_RECORD=1 cargo test --lib explain writes it. -->\n";

fn page(title: &str, introduction: &str, kind: Kind, without: &[&str]) -> String {
    let sections = kind.sections();
    let mut text = format!("{MADE}# {title}\n\n{introduction}\n");
    for section in &sections {
        if sections.len() > 1 {
            text.push_str(&format!("\n## {}\n", section.title));
        }
        text.push('\n');
        text.push_str(&of_section(section, without));
    }
    text
}

/// What the command of this path does.
fn about(path: &str) -> String {
    let root = Cli::command();
    let below = path.split(' ').skip(1).try_fold(&root, |command, name| command.find_subcommand(name));
    let text = below.and_then(|command| command.get_long_about().or_else(|| command.get_about()));
    text.map(ToString::to_string).unwrap_or_default()
}

fn flags_page() -> String {
    let mut text = format!(
        "{MADE}# Options and variables\n\nEach option with a variable may be given by either; the option wins, and an empty \
         variable counts as unset. Booleans take what Go's flags take. `--help` prints the same, and \
         `lazuli explain option NAME` prints a row.\n"
    );
    for Command { path, options } in topics::commands() {
        text.push_str(&format!("\n## {path}\n\n{}\n", cell(&about(&path))));
        let code = |name: String| if name.is_empty() { name } else { format!("`{name}`") };
        let rows = options.into_iter().map(|CommandOption { name, variable, default, meaning, values }| {
            let values = if values.is_empty() { values } else { format!(" Values: {values}.") };
            vec![code(name), code(variable), default, format!("{meaning}{values}")]
        });
        if rows.len() > 0 {
            text.push('\n');
            text.push_str(&table(&["option", "variable", "default", "meaning"], rows));
        }
    }
    text
}

/// Every page.
pub(super) fn all() -> Vec<Page> {
    vec![
        (
            "parameters.md",
            page(
                "Parameters of classes",
                "Letter case of names does not count, that of values does. A value that cannot be right is refused before \
                 anything is made, with its name, its value and what is allowed. `effect` says whether it counts: `no effect` \
                 is accepted for classes of the Go drivers. Templates are `${pvc.metadata.name}`, `${pvc.metadata.namespace}` \
                 and `${pv.metadata.name}`. `lazuli explain parameter NAME` prints a row.",
                Kind::Parameter,
                &["class", "driver"],
            ),
        ),
        (
            "annotations.md",
            page(
                "Annotations, labels, taints and finalizers",
                "A key that is in no row gets the event `UnknownAnnotation` with the nearest one. A wrong value of a new Service \
                 is the event `InvalidService`; of a served one, what Azure shows stays. `lazuli explain annotation NAME` \
                 prints a row.",
                Kind::Annotation,
                &[],
            ),
        ),
        (
            "configuration.md",
            page(
                "Keys of the cloud configuration",
                "`azure.json`, as JSON or YAML. Letter case of keys does not count; a number or boolean is taken where a text \
                 belongs. `used by` is empty for keys that change nothing. \"Go projects\" compares with azuredisk-csi-driver, \
                 azurefile-csi-driver and cloud-provider-azure. `lazuli doctor` says what is wrong with a file, \
                 `lazuli explain config NAME` prints a row.",
                Kind::Config,
                &[],
            ),
        ),
        ("flags.md", flags_page()),
        (
            "metrics.md",
            page(
                "Metrics",
                "OpenMetrics at `/metrics`. Histograms end in `_bucket`, `_sum` and `_count`. \"Go projects\" names what counts \
                 the same or nearly the same there. With `--go-metrics` the whole page is of the text format 0.0.4. \
                 `lazuli explain metric NAME` prints a row.",
                Kind::Metric,
                &[],
            ),
        ),
        (
            "events.md",
            page(
                "Events",
                "An event is written when its reason or its text changes, and once each half hour while it stays. \
                 [Events and alerts](../events-and-alerts.md) says where to look. `lazuli explain event NAME` prints a row.",
                Kind::Event,
                &[],
            ),
        ),
    ]
}
