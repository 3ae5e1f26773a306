//! `lazuli explain`: what can be set, read and seen, from the tables that the program itself goes by. The pages in
//! `deploy/reference` are made of the same.

mod keys;
#[cfg(all(test, feature = "emulator"))]
mod pages;
mod topics;

use clap::{Args, ValueEnum};
use lazuli_model::spelling::nearest;
use serde_json::{Map, Value, json};

use super::{
    Outcome,
    output::Format,
    terminal::{self, Screen},
};
use topics::{Section, Topic};

/// What is printed where it is not known how wide the terminal is, in columns.
const WIDTH: usize = 100;

/// What there is to explain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Parameters of StorageClasses, of disks and of file shares.
    Parameter,
    /// Annotations, labels, taints and finalizers of Services, Nodes and other objects.
    #[value(alias = "label")]
    Annotation,
    /// Keys of the cloud configuration, azure.json.
    Config,
    /// Reasons of Kubernetes events.
    Event,
    /// Metrics of Prometheus.
    Metric,
}

/// Options of the explanation.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// What to explain; without it the kinds are listed.
    kind: Option<Kind>,
    /// Its name, in any letter case; without it all of the kind are listed.
    #[arg(requires = "kind")]
    name: Option<String>,
    /// How to print it.
    #[arg(short, long, value_enum, default_value_t = Format::Text, value_name = "FORM")]
    output: Format,
}

impl Kind {
    /// The word for it on the command line.
    fn word(self) -> &'static str {
        match self {
            Self::Parameter => "parameter",
            Self::Annotation => "annotation",
            Self::Config => "config",
            Self::Event => "event",
            Self::Metric => "metric",
        }
    }

    fn sections(self) -> Vec<Section> {
        match self {
            Self::Parameter => topics::parameters(),
            Self::Annotation => topics::annotations(),
            Self::Config => topics::config(),
            Self::Event => topics::events(),
            Self::Metric => topics::metrics(),
        }
    }
}

/// No such name.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no {kind} {name:?}; {meant}")]
struct UnknownTopic {
    kind: &'static str,
    name: String,
    /// What was probably meant, or where the names are.
    meant: String,
}

pub(super) async fn run(options: Options) -> Outcome {
    let width = width();
    let text = match (options.kind, &options.name) {
        (None, _) => kinds(width, options.output),
        (Some(kind), None) => list(&kind.sections(), width, options.output),
        (Some(kind), Some(name)) => one(kind, name, width, options.output)?,
    };
    print!("{text}");
    Ok(())
}

/// The width to print in.
fn width() -> usize {
    Screen::of_stdout().width.filter(|width| *width >= 40).unwrap_or(WIDTH)
}

/// The items for programs, or the text for people.
fn printed(format: Format, items: impl Iterator<Item = Value>, text: impl FnOnce() -> String) -> String {
    format.of_programs(&json!({ "items": items.collect::<Vec<_>>() })).unwrap_or_else(text)
}

/// The kinds, a line each.
fn kinds(width: usize, format: Format) -> String {
    let all = Kind::value_variants();
    let help = |kind: Kind| {
        let value = kind.to_possible_value();
        value.and_then(|value| value.get_help().map(ToString::to_string)).unwrap_or_default()
    };
    let items = all.iter().map(|kind| json!({"kind": kind.word(), "meaning": help(*kind)}));
    printed(format, items, || {
        let lines = all.iter().map(|kind| wrapped(&format!("{:<12}", kind.word()), &help(*kind), width, 12));
        lines.collect::<String>()
            + "\nlazuli explain KIND lists the names, lazuli explain KIND NAME says more of one.\n"
    })
}

/// All topics, a line each.
fn list(sections: &[Section], width: usize, format: Format) -> String {
    printed(format, sections.iter().flat_map(|section| &section.topics).map(as_json), || {
        let texts = sections.iter().map(|section| {
            let line = |topic: &Topic| wrapped(&format!("  {:<30}  ", topic.name), &topic.meaning, width, 34);
            format!("{}\n{}", section.title, section.topics.iter().map(line).collect::<String>())
        });
        texts.collect::<Vec<_>>().join("\n")
    })
}

/// What is known of one name.
fn one(kind: Kind, name: &str, width: usize, format: Format) -> Result<String, UnknownTopic> {
    let sections = kind.sections();
    let found: Vec<(&Section, &Topic)> = sections
        .iter()
        .flat_map(|section| section.topics.iter().map(move |topic| (section, topic)))
        .filter(|(_, topic)| topic.is_called(name))
        .collect();
    if found.is_empty() {
        return Err(unknown(kind, name, &sections));
    }
    Ok(printed(format, found.iter().map(|(_, topic)| as_json(topic)), || {
        found.iter().map(|(section, topic)| full(section, topic, width)).collect::<Vec<_>>().join("\n")
    }))
}

/// Names that hold the text are offered where none is near it.
const MOST_OFFERED: usize = 8;
/// The shortest text, in bytes, that says something of a name.
const SHORTEST_PART: usize = 3;

fn unknown(kind: Kind, name: &str, sections: &[Section]) -> UnknownTopic {
    let topics = || sections.iter().flat_map(|section| &section.topics);
    let lower = name.to_lowercase();
    let mut holding: Vec<&str> = topics()
        .map(|topic| topic.name.as_str())
        .filter(|known| name.len() >= SHORTEST_PART && known.to_lowercase().contains(&lower))
        .collect();
    holding.dedup();
    let word = kind.word();
    let meant = match nearest(name, topics().flat_map(|topic| [topic.name.as_str(), topic.short_name()])) {
        Some(near) => format!("the nearest is {near}"),
        None if (1..=MOST_OFFERED).contains(&holding.len()) => {
            format!("these have it in their names: {}", holding.join(", "))
        }
        None => format!("lazuli explain {word} lists all"),
    };
    UnknownTopic { kind: word, name: name.to_owned(), meant }
}

fn full(section: &Section, topic: &Topic, width: usize) -> String {
    let mut text = format!("{}\n", topic.name);
    text.push_str(&wrapped("  ", &topic.meaning, width, 2));
    for (label, value) in section.columns.iter().zip(&topic.values).filter(|(_, value)| !value.is_empty()) {
        text.push_str(&wrapped(&format!("  {:<18}", format!("{label}:")), value, width, 20));
    }
    text
}

/// A topic for programs.
fn as_json(topic: &Topic) -> Value {
    let mut object = Map::new();
    object.insert("name".to_owned(), topic.name.as_str().into());
    object.insert("meaning".to_owned(), topic.meaning.as_str().into());
    for (label, value) in topic.columns.iter().zip(&topic.values) {
        object.insert(camel_case(label), value.as_str().into());
    }
    object.into()
}

/// `used by` as `usedBy`.
fn camel_case(label: &str) -> String {
    let mut words = label.split(' ');
    let first = words.next().unwrap_or_default().to_lowercase();
    let rest = words.map(|word| {
        let mut letters = word.chars();
        letters.next().map(|first| first.to_uppercase().chain(letters).collect::<String>()).unwrap_or_default()
    });
    std::iter::once(first).chain(rest).collect()
}

/// A text in lines of so many columns, after what the first one begins with; the others are indented.
fn wrapped(first: &str, text: &str, width: usize, indent: usize) -> String {
    terminal::wrapped(text, Some(width), first, &" ".repeat(indent)) + "\n"
}

#[cfg(test)]
mod tests;
