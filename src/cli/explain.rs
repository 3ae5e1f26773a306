//! `lazuli explain`: what can be set, read and seen, from the tables that the program itself goes by. The pages in
//! `deploy/reference` are made of the same.

mod go_metrics;
mod keys;
#[cfg(all(test, feature = "emulator"))]
mod pages;
mod topics;

use clap::{Args, ValueEnum};
use lazuli_model::spelling::nearest;
use serde_json::{Map, Value, json};

use super::{
    Outcome,
    output::{Format, camel_case},
    terminal::{self, Screen},
};
use topics::{Section, Topic};

/// What is printed where it is not known how wide the terminal is, in columns.
const WIDTH: usize = 100;

/// The width of the column of names, in columns.
const NAME: usize = 30;

/// What there is to explain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Parameters of StorageClasses, of disks and of file shares, of VolumeSnapshotClasses and of VolumeAttributesClasses.
    Parameter,
    /// Annotations, labels, taints and finalizers of Services, Nodes and other objects.
    #[value(alias = "label")]
    Annotation,
    /// Keys of the cloud configuration, azure.json.
    Config,
    /// Options of the commands, by name or by variable, without the dashes.
    #[value(alias = "flag")]
    Option,
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
    #[arg(requires = "kind", allow_hyphen_values = true)]
    name: Option<String>,
    /// How to print it.
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    output: Format,
}

impl Kind {
    /// The word for it on the command line.
    fn word(self) -> &'static str {
        match self {
            Self::Parameter => "parameter",
            Self::Annotation => "annotation",
            Self::Config => "config",
            Self::Option => "option",
            Self::Event => "event",
            Self::Metric => "metric",
        }
    }

    /// What a person calls one of it.
    fn noun(self) -> &'static str {
        match self {
            Self::Parameter => "parameter",
            Self::Annotation => "annotation or label",
            Self::Config => "key of the cloud configuration",
            Self::Option => "option or variable",
            Self::Event => "reason of an event",
            Self::Metric => "metric",
        }
    }

    fn sections(self) -> Vec<Section> {
        match self {
            Self::Parameter => topics::parameters(),
            Self::Annotation => topics::annotations(),
            Self::Config => topics::config(),
            Self::Option => topics::options(),
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

/// What is printed, for programs and for people.
struct Explained {
    object: Value,
    text: String,
}

impl Explained {
    fn of(topics: impl Iterator<Item = Value>, text: String) -> Self {
        let items: Vec<Value> = topics.collect();
        Self { object: json!({ "items": items }), text }
    }
}

pub(super) async fn run(options: Options) -> Outcome {
    let width = width();
    let explained = match (options.kind, &options.name) {
        (None, _) => kinds(width),
        (Some(kind), None) => list(&kind.sections(), width),
        (Some(kind), Some(name)) => one(kind, name, width)?,
    };
    print!("{}", options.output.of_programs(&explained.object).unwrap_or(explained.text));
    Ok(())
}

/// The width to print in.
fn width() -> usize {
    Screen::of_stdout().width.filter(|width| *width >= 40).unwrap_or(WIDTH)
}

/// The kinds, a line each.
fn kinds(width: usize) -> Explained {
    let all = Kind::value_variants();
    let help = |kind: &Kind| {
        let value = kind.to_possible_value();
        value.and_then(|value| value.get_help().map(ToString::to_string)).unwrap_or_default()
    };
    let mut text = String::new();
    for kind in all {
        text.push_str(&wrapped(&format!("{:<12}", kind.word()), &help(kind), width, 12));
    }
    text.push_str("\nlazuli explain KIND lists the names, lazuli explain KIND NAME says more of one.\n");
    Explained::of(all.iter().map(|kind| json!({"name": kind.word(), "meaning": help(kind)})), text)
}

/// All topics, a line each.
fn list(sections: &[Section], width: usize) -> Explained {
    let texts = sections.iter().map(|section| {
        let mut text = format!("{}\n", section.title);
        for topic in &section.topics {
            // A name that is too long for its column has a line of its own.
            if topic.name.len() > NAME {
                text.push_str(&format!("  {}\n", topic.name));
            }
            let name = if topic.name.len() > NAME { "" } else { topic.name.as_str() };
            text.push_str(&wrapped(&format!("  {name:<NAME$}  "), &topic.meaning, width, NAME + 4));
        }
        text
    });
    let text = texts.collect::<Vec<_>>().join("\n");
    Explained::of(sections.iter().flat_map(|section| &section.topics).map(as_json), text)
}

/// What is known of one name.
fn one(kind: Kind, name: &str, width: usize) -> Result<Explained, UnknownTopic> {
    let sections = kind.sections();
    let found: Vec<(&Section, &Topic)> = sections
        .iter()
        .flat_map(|section| section.topics.iter().map(move |topic| (section, topic)))
        .filter(|(_, topic)| topic.is_called(name))
        .collect();
    if found.is_empty() {
        return Err(unknown(kind, name, &sections));
    }
    let texts = found.iter().map(|(section, topic)| full(section, topic, width));
    let text = texts.collect::<Vec<_>>().join("\n");
    Ok(Explained::of(found.iter().map(|(_, topic)| as_json(topic)), text))
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
    UnknownTopic { kind: kind.noun(), name: name.to_owned(), meant }
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
        object.insert(camel_case(label.split(' ')), value.as_str().into());
    }
    object.into()
}

/// A text in lines of so many columns, after what the first one begins with; the others are indented.
fn wrapped(first: &str, text: &str, width: usize, indent: usize) -> String {
    terminal::wrapped(text, Some(width), first, &" ".repeat(indent)) + "\n"
}

#[cfg(test)]
mod tests;
