//! Arguments of the Go manager and of the Go disk driver that have no flag of this program.
//!
//! The argument lists of their charts start this program as they are. Each argument that it does not have as a flag of its
//! own stands in a table ([`tables`]) with the values that it takes and a sentence: what it does here, or why nothing needs
//! to be done. `--help` prints the sentences, a wrong value ends the start as the value of any flag does, and the log of the
//! start says what becomes of each argument that is given. The list of the Go file driver starts nothing here; [`shares`]
//! judges it for a move.

pub(super) mod shares;
mod tables;

use std::{fmt::Debug, marker::PhantomData, time::Duration};

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};

pub(super) use tables::{CloudControllerManager, DiskController, DiskNode};

/// Longer than any real one; so many seconds, ports or disks fit into every number of a table.
const MOST: i64 = i32::MAX as i64;

/// A program whose arguments are taken.
pub(super) trait Program: Debug {
    /// As a person calls it.
    const NAME: &'static str;
    /// What stands above its arguments in the help.
    const HEADING: &'static str;
    /// Its arguments that have no flag here.
    const ROWS: &'static [Row];
}

/// An argument.
#[derive(Debug)]
pub(super) struct Row {
    /// Its name without dashes.
    name: &'static str,
    /// What it takes.
    value: Value,
    effect: Effect,
    /// What it does, or why nothing needs to be done.
    sentence: &'static str,
}

/// What becomes of an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effect {
    /// Its value counts.
    Acts,
    /// This program does what it asks for without it, or has nothing that it could be about.
    NotNeeded,
    /// A person who gives it may expect what does not happen.
    NotDone,
}

/// What an argument takes.
#[derive(Debug, Clone, Copy)]
enum Value {
    /// true or false; the name alone is true.
    Flag,
    /// A duration as Go writes it, such as 1m30s.
    Duration,
    /// A whole number of this range.
    Whole(i64, i64),
    /// A number that is not negative.
    Number,
    /// One of these words.
    Words(&'static [&'static str]),
    /// Any text, an empty one too.
    Text,
}

impl Value {
    /// What it takes, for people.
    fn expected(self) -> String {
        match self {
            Self::Flag => "true or false".to_owned(),
            Self::Duration => "a duration such as 1m30s".to_owned(),
            Self::Whole(least, most) => format!("a whole number from {least} to {most}"),
            Self::Number => "a number that is not negative".to_owned(),
            Self::Words(words) => words
                .iter()
                .map(|word| if word.is_empty() { "an empty text" } else { *word })
                .collect::<Vec<_>>()
                .join(", "),
            Self::Text => "any text".to_owned(),
        }
    }

    fn check(self, text: &str) -> Result<String, String> {
        let is_good = match self {
            Self::Flag => boolean(text).is_ok(),
            Self::Duration => duration(text).is_some(),
            Self::Whole(least, most) => text.parse().is_ok_and(|number: i64| (least..=most).contains(&number)),
            Self::Number => text.parse().is_ok_and(|number: f64| number.is_finite() && number >= 0.0),
            Self::Words(words) => words.contains(&text),
            Self::Text => true,
        };
        if is_good { Ok(text.to_owned()) } else { Err(format!("allowed: {}", self.expected())) }
    }
}

/// A boolean as the flags of Go programs take it, for every flag and variable of this program. Source: Go's
/// `strconv.ParseBool`.
pub(super) fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err("allowed: true or false, or 1, t, T, TRUE, True, 0, f, F, FALSE, False".to_owned()),
    }
}

/// A duration as Go writes it: numbers with units, such as `1h30m`, `1.5s`, `250ms`. Source: Go's `time.ParseDuration`,
/// without negative ones.
fn duration(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let (mut rest, mut seconds) = (text, 0.0);
    while !rest.is_empty() {
        let digits = rest.find(|char: char| !char.is_ascii_digit() && char != '.').filter(|digits| *digits > 0)?;
        let (number, after) = rest.split_at(digits);
        let end = after.find(|char: char| char.is_ascii_digit() || char == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        let unit = match unit {
            "ns" => 1e-9,
            "us" | "µs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3_600.0,
            _ => return None,
        };
        seconds += number.parse::<f64>().ok()? * unit;
        rest = after;
    }
    (!text.is_empty()).then(|| Duration::try_from_secs_f64(seconds).ok())?
}

/// Those of a program's arguments that were given.
#[derive(Debug)]
pub(super) struct GoArguments<P> {
    given: Vec<(&'static Row, String)>,
    program: PhantomData<P>,
}

impl<P: Program> GoArguments<P> {
    /// Says in the log what becomes of each argument that was given.
    pub(super) fn log(&self) {
        for (row, value) in &self.given {
            let text = row.text(P::NAME, value);
            match row.effect {
                Effect::Acts | Effect::NotNeeded => tracing::info!("{text}"),
                Effect::NotDone => tracing::warn!("{text}"),
            }
        }
    }

    /// The value of an argument, if it was given; the last one where it was given twice.
    fn value(&self, name: &str) -> Option<&str> {
        self.given.iter().rfind(|(row, _)| row.name == name).map(|(_, value)| value.as_str())
    }

    /// Whether a flag was given as false.
    pub(super) fn is_off(&self, name: &str) -> bool {
        self.value(name).is_some_and(|value| boolean(value) == Ok(false))
    }

    /// The number that was given; a negative one is none.
    pub(super) fn count(&self, name: &str) -> Option<u32> {
        self.value(name)?.parse().ok()
    }
}

/// What is said of those of a Go program's arguments that have no effect in the subcommand that takes its place.
pub(super) fn without_effect(subcommand: &str, arguments: &[String]) -> Vec<String> {
    let (program, rows): (&str, &[Row]) = match subcommand {
        "csi-controller" => (DiskController::NAME, DiskController::ROWS),
        "csi-node" => (DiskNode::NAME, DiskNode::ROWS),
        "cloud-controllers" => (CloudControllerManager::NAME, CloudControllerManager::ROWS),
        _ => return vec![],
    };
    let given = |row: &&Row| {
        let of_row = |argument: &str| {
            let (name, value) = argument.split_once('=').unwrap_or((argument, "true"));
            (name.trim_start_matches('-') == row.name).then(|| value.to_owned())
        };
        let is_undone = matches!(row.effect, Effect::NotDone);
        arguments.iter().find_map(|argument| of_row(argument)).filter(|_| is_undone)
    };
    rows.iter().filter_map(|row| given(&row).map(|value| row.text(program, &value))).collect()
}

impl Row {
    fn text(&self, program: &str, value: &str) -> String {
        let Self { name, sentence, .. } = self;
        match self.effect {
            Effect::Acts => format!("--{name}={value} of {program}: {sentence}"),
            Effect::NotNeeded => format!("--{name}={value} of {program} is not needed: {sentence}"),
            Effect::NotDone => format!("--{name}={value} of {program} has no effect: {sentence}"),
        }
    }

    fn argument(&'static self, heading: &'static str) -> Arg {
        let Self { name, value, sentence, .. } = self;
        let effect = match self.effect {
            Effect::Acts => "",
            Effect::NotNeeded => "Not needed: ",
            Effect::NotDone => "No effect: ",
        };
        let value = *value;
        let argument = Arg::new(*name)
            .long(*name)
            .action(ArgAction::Append)
            .value_name("VALUE")
            .value_parser(move |text: &str| value.check(text))
            .allow_hyphen_values(true)
            .help(format!("{effect}{sentence}. Takes {}.", value.expected()))
            .help_heading(heading)
            .hide_short_help(true);
        match value {
            Value::Flag => argument.num_args(0..=1).require_equals(true).default_missing_value("true"),
            _ => argument,
        }
    }
}

impl<P: Program> FromArgMatches for GoArguments<P> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let values = |row: &'static Row| {
            let values = matches.try_get_many::<String>(row.name).ok().flatten();
            values.into_iter().flatten().map(|value| (row, value.clone())).collect::<Vec<_>>()
        };
        Ok(Self { given: P::ROWS.iter().flat_map(values).collect(), program: PhantomData })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl<P: Program> Args for GoArguments<P> {
    fn augment_args(command: Command) -> Command {
        P::ROWS.iter().fold(command, |command, row| command.arg(row.argument(P::HEADING)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    /// The argument list of a chart, one a line: its values as the charts' defaults are.
    fn list(text: &'static str) -> impl Iterator<Item = &'static str> {
        text.lines().map(str::trim).filter(|line| !line.is_empty())
    }

    fn parsed(subcommand: &str, arguments: &[&str]) -> Result<super::super::Cli, clap::Error> {
        super::super::Cli::try_parse_from(["lazuli", subcommand].iter().chain(arguments))
    }

    /// Source: helm/cloud-provider-azure/templates/cloud-provider-azure.yaml, every argument that it can print.
    const MANAGER: &str = "
        --allocate-node-cidrs=true
        --bind-address=0.0.0.0
        --cert-dir=/var/run/kubernetes
        --cloud-config=/etc/kubernetes/azure.json
        --cloud-config-secret-name=azure-cloud-provider
        --cloud-provider=azure
        --cluster-cidr=10.244.0.0/16
        --cluster-name=kubernetes
        --configure-cloud-routes=true
        --contention-profiling=false
        --controller-start-interval=0s
        --controllers=*,-cloud-node
        --enable-dynamic-reloading=false
        --http2-max-streams-per-connection=0
        --kube-api-burst=30
        --kube-api-content-type=application/vnd.kubernetes.protobuf
        --kube-api-qps=20
        --kubeconfig=/etc/kubernetes/kubeconfig
        --leader-elect=true
        --leader-elect-lease-duration=15s
        --leader-elect-renew-deadline=10s
        --leader-elect-retry-period=2s
        --leader-elect-resource-lock=leases
        --master=
        --min-resync-period=12h0m0s
        --node-status-update-frequency=5m0s
        --port=10267
        --profiling=true
        --route-reconciliation-period=10s
        --secure-port=10268
        --use-service-account-credentials=false
        --v=2";

    /// Source: charts/latest/azuredisk-csi-driver, templates/csi-azuredisk-controller.yaml, of several releases.
    const CONTROLLER: &str = "
        --v=5
        --endpoint=unix:///csi/csi.sock
        --metrics-address=0.0.0.0:29604
        --disable-avset-nodes=false
        --vm-type=
        --drivername=disk.csi.azure.com
        --cloud-config-secret-name=azure-cloud-provider
        --cloud-config-secret-namespace=kube-system
        --custom-user-agent=
        --user-agent-suffix=OSS-helm
        --allow-empty-cloud-config=false
        --vmss-cache-ttl-seconds=-1
        --enable-traffic-manager=false
        --traffic-manager-port=7788
        --enable-otel-tracing=false
        --enable-list-volumes=true
        --enable-list-snapshots=true
        --check-disk-lun-collision=true
        --attach-detach-initial-delay-ms=1000
        --force-detach-backoff=true
        --wait-for-snapshot-ready=true";

    /// Source: the same chart, templates/csi-azuredisk-node.yaml.
    const NODE: &str = "
        --v=5
        --endpoint=unix:///csi/csi.sock
        --nodeid=node-1
        --metrics-address=0.0.0.0:29605
        --enable-perf-optimization=true
        --drivername=disk.csi.azure.com
        --volume-attach-limit=-1
        --reserved-data-disk-slot-num=0
        --cloud-config-secret-name=azure-cloud-provider
        --cloud-config-secret-namespace=kube-system
        --custom-user-agent=
        --user-agent-suffix=OSS-helm
        --allow-empty-cloud-config=true
        --support-zone=true
        --get-node-info-from-labels=false
        --get-nodeid-from-imds=false
        --enable-otel-tracing=false
        --remove-not-ready-taint=true
        --max-concurrent-format=2
        --concurrent-format-timeout=100";

    #[test]
    fn every_argument_of_the_go_charts_starts_the_subcommand_that_takes_its_place() {
        for (subcommand, text, needed) in [
            ("cloud-controllers", MANAGER, None),
            ("csi-controller", CONTROLLER, None),
            ("csi-node", NODE, Some("--node-id=node-1")),
        ] {
            let all: Vec<&str> = list(text).collect();
            // Each alone says which it is.
            for argument in &all {
                let needed = needed.filter(|_| !argument.starts_with("--nodeid"));
                let one: Vec<&str> = needed.into_iter().chain([*argument]).collect();
                if let Err(error) = parsed(subcommand, &one) {
                    panic!("{subcommand} {argument}: {error}");
                }
            }
            parsed(subcommand, &all).unwrap_or_else(|error| panic!("{subcommand}: {error}"));
        }
    }

    #[test]
    fn a_value_that_an_argument_does_not_take_ends_the_start_and_says_what_is_allowed() {
        for (subcommand, argument, allowed) in [
            ("cloud-controllers", "--leader-elect=perhaps", "true or false"),
            ("cloud-controllers", "--leader-elect-lease-duration=15", "a duration such as 1m30s"),
            ("cloud-controllers", "--leader-elect-resource-lock=endpoints", "allowed: leases"),
            ("cloud-controllers", "--cloud-provider=aws", "allowed: azure"),
            ("cloud-controllers", "--master=https://10.0.0.1", "allowed: an empty text"),
            ("cloud-controllers", "--kube-api-qps=-1", "a number that is not negative"),
            ("cloud-controllers", "--secure-port=70000", "a whole number from 0 to 65535"),
            ("cloud-controllers", "--nonsense=1", "unexpected argument"),
            ("csi-node", "--volume-attach-limit=-2", "a whole number from -1 to"),
        ] {
            let error = parsed(subcommand, &["--node-id=n", argument][usize::from(subcommand != "csi-node")..]);
            let error = error.unwrap_err().to_string();
            assert!(error.contains(allowed), "{argument}: {error}");
        }
    }

    #[test]
    fn help_has_a_sentence_for_each_argument_and_the_short_help_has_none() {
        for (subcommand, rows) in [
            ("cloud-controllers", CloudControllerManager::ROWS),
            ("csi-controller", DiskController::ROWS),
            ("csi-node", DiskNode::ROWS),
        ] {
            let long = parsed(subcommand, &["--help"]).unwrap_err().to_string();
            let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
            let (long, short) = (words(&long), parsed(subcommand, &["-h"]).unwrap_err().to_string());
            for row in rows {
                assert!(long.contains(&words(row.sentence)), "{subcommand} --{}: {long}", row.name);
                assert!(!short.contains(&format!("--{}", row.name)), "{subcommand} -h: --{}", row.name);
                assert!(row.sentence.len() > 20 && !row.sentence.ends_with('.'), "--{}", row.name);
            }
        }
    }

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        arguments: GoArguments<DiskNode>,
    }

    #[test]
    fn what_is_given_is_told_and_counts() {
        let line = |words: &[&str]| Line::try_parse_from([&["x"], words].concat()).unwrap().arguments;
        let given = line(&["--volume-attach-limit=16", "--support-zone=false", "--remove-not-ready-taint"]);
        assert_eq!(given.given.len(), 3);
        assert_eq!((given.count("volume-attach-limit"), given.is_off("support-zone")), (Some(16), true));
        assert!(!given.is_off("remove-not-ready-taint"));
        let texts: Vec<String> = given.given.iter().map(|(row, value)| row.text(DiskNode::NAME, value)).collect();
        assert!(texts.iter().any(|text| text.starts_with("--remove-not-ready-taint=true of azuredisk-csi-driver")));
        let none = line(&["--volume-attach-limit=-1"]);
        assert_eq!((none.count("volume-attach-limit"), none.is_off("support-zone")), (None, false));
        // A list that names it twice, as the Go manager's chart can.
        assert_eq!(line(&["--volume-attach-limit=1", "--volume-attach-limit=2"]).count("volume-attach-limit"), Some(2));
    }

    #[test]
    fn every_boolean_takes_what_the_flags_of_go_programs_take_and_nothing_else() {
        use clap::CommandFactory as _;

        let mut flags = 0;
        for subcommand in ["cloud-controllers", "csi-controller", "csi-node"] {
            let command = super::super::Cli::command();
            let command = command.find_subcommand(subcommand).unwrap();
            let needed = if subcommand == "csi-node" { &["--node-id=n"][..] } else { &[] };
            // A value that is a boolean has a default of one, or its variable is all that gives one.
            for argument in command.get_arguments() {
                let takes_one = argument.get_default_values().iter().any(|value| value == "true" || value == "false");
                let Some(name) = argument.get_long().filter(|_| takes_one && argument.get_action().takes_values())
                else {
                    continue;
                };
                flags += 1;
                for (text, is_taken) in
                    [("1", true), ("T", true), ("FALSE", true), ("f", true), ("yes", false), ("", false)]
                {
                    let given = format!("--{name}={text}");
                    let words: Vec<&str> = needed.iter().copied().chain([&*given]).collect();
                    assert_eq!(parsed(subcommand, &words).is_ok(), is_taken, "{subcommand} {given}");
                }
            }
        }
        assert!(flags >= 7, "{flags}");
    }

    #[test]
    fn durations_are_written_as_go_writes_them() {
        for (text, seconds) in [("0", 0.0), ("10s", 10.0), ("12h0m0s", 43_200.0), ("1.5h", 5_400.0), ("250ms", 0.25)] {
            assert_eq!(duration(text), Some(Duration::from_secs_f64(seconds)), "{text}");
        }
        for text in ["", "10", "s", "-1s", "1d", "1s2", "ten", "1..5s"] {
            assert_eq!(duration(text), None, "{text}");
        }
    }
}
