//! The command line: a file per subcommand.
//!
//! Results go to stdout, logs to stderr. A process ends with 0 when the command succeeded, with 1 when it failed, and
//! with 2 when the command line or a variable cannot be read.

mod azure_ready;
#[cfg(feature = "emulator")]
mod bench;
mod cloud_controllers;
mod connect;
mod core_dumps;
mod csi_controller;
mod csi_node;
#[cfg(feature = "emulator")]
mod demo;
mod doctor;
#[cfg(feature = "emulator")]
mod emulator;
mod endpoints;
mod explain;
mod get;
mod go_arguments;
mod instances;
mod key_broker;
mod machines;
mod node_controllers;
mod number;
mod output;
#[cfg(feature = "pages")]
mod pages;
mod progress;
mod sizes;
mod stop;
mod storage_accounts;
mod table;
mod terminal;
#[cfg(feature = "emulator")]
mod up;
mod version;
mod webhook;
mod why;

use std::{
    ffi::{OsStr, OsString},
    process::ExitCode,
    sync::LazyLock,
};

use clap::{
    Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand,
    builder::Resettable,
    error::{ContextKind, ContextValue},
};

use lazuli_csi::server::chain;
use lazuli_journal::printable;
use lazuli_telemetry::{BuildInfo, logs};

/// What every subcommand may return: its own error is printed with all its causes.
type Outcome = Result<(), Box<dyn std::error::Error + Send + Sync>>;

/// What `--version` prints after the name: the version, and the revision it was built from.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    let BuildInfo { version, revision } = csi_controller::BUILD;
    format!("{version} ({revision})")
});

/// The whole Azure provider for Kubernetes in one plugin.
#[derive(Debug, Parser)]
#[command(name = "lazuli", version = VERSION.as_str(), about, max_term_width = 110)]
pub struct Cli {
    #[command(flatten)]
    log: LogOptions,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Logs")]
struct LogOptions {
    /// What to log to stderr: error, warn, info, debug, trace, or directives such as info,lazuli_disk=debug. Default:
    /// info for what serves a cluster, warn for what people run; so too where it is empty.
    #[arg(long, env = "LAZULI_LOG", global = true, value_parser = log_filter)]
    log: Option<String>,
    /// What to log, as a number in the way of the Go programs: 0 to 3 are info, 4 and 5 debug, more trace, of this program's
    /// own parts. --log wins.
    #[arg(short, long = "v", value_name = "LEVEL", global = true, value_parser = log_level)]
    verbosity: Option<u8>,
    /// How to write logs.
    #[arg(long, env = "LAZULI_LOG_FORMAT", value_enum, default_value_t = LogFormat::Text, global = true)]
    log_format: LogFormat,
}

impl LogOptions {
    /// What to log where nothing else is said.
    fn filter(&self, otherwise: &'static str) -> &str {
        // Source: Kubernetes' conventions for klog; 2 is what the Go charts give, for what an operator is to see.
        let of_number = self.verbosity.map(|number| match number {
            0..=3 => "info",
            // The targets of all its crates begin so. Those of its libraries stay quiet.
            4..=5 => "info,lazuli=debug",
            6.. => "info,lazuli=trace",
        });
        // An empty filter would turn every line off; the word for that is off.
        let is_given = |text: &&str| text.split(',').any(|directive| !directive.trim().is_empty());
        self.log.as_deref().filter(is_given).or(of_number).unwrap_or(otherwise)
    }
}

/// What the demonstration logs: it prints itself the answer of a call that is refused on purpose.
#[cfg(feature = "emulator")]
const DEMO_LOG: &str = "warn,lazuli_csi::server::rpc_log=error";

/// The words that say how much to log.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// What `--log` takes. A word that is no level would be the name of a part, and everything else would be silent.
fn log_filter(text: &str) -> Result<String, String> {
    let is_level = |word: &str| LEVELS.iter().any(|level| level.eq_ignore_ascii_case(word.trim()));
    let is_good = |directive: &str| match directive.rsplit_once('=') {
        // Fields of spans have a grammar of their own.
        _ if directive.contains(['[', '{']) => true,
        Some((target, level)) => !target.trim().is_empty() && is_level(level),
        None => is_level(directive),
    };
    match text.split(',').find(|directive| !directive.trim().is_empty() && !is_good(directive)) {
        None => Ok(text.to_owned()),
        Some(directive) => {
            Err(format!("{directive:?}: allowed: {}, and TARGET=LEVEL, such as lazuli_disk=debug", LEVELS.join(", ")))
        }
    }
}

/// What `-v` takes.
fn log_level(text: &str) -> Result<u8, String> {
    text.parse().map_err(|_| {
        "allowed: a whole number from 0 to 255, of which 0 to 3 are info, 4 and 5 debug, more trace".to_owned()
    })
}

/// The command line, of which no argument reads a variable that is set and empty: charts and scripts write an empty value
/// where they have none.
fn without_empty_variables(command: clap::Command) -> clap::Command {
    let is_empty = |name: Option<&OsStr>| name.and_then(std::env::var_os).is_some_and(|value| value.is_empty());
    command
        .mut_args(|arg| if is_empty(arg.get_env()) { arg.env(Resettable::<clap::builder::OsStr>::Reset) } else { arg })
        .mut_subcommands(without_empty_variables)
}

/// Reads the command line and the variables of the environment.
fn parse(arguments: &[OsString]) -> Result<Cli, clap::Error> {
    let mut command = without_empty_variables(Cli::command());
    let mut matches = command.try_get_matches_from_mut(arguments)?;
    Cli::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
}

/// The variable whose value a wrong argument has, where the command line does not give the argument.
fn variable_of(error: &clap::Error, arguments: &[OsString]) -> Option<String> {
    let Some(ContextValue::String(shown)) = error.get(ContextKind::InvalidArg) else { return None };
    fn all(command: &clap::Command) -> Vec<&clap::Arg> {
        command.get_arguments().chain(command.get_subcommands().flat_map(all)).collect()
    }
    let mut command = Cli::command();
    command.build();
    let named = |arg: &&clap::Arg| arg.to_string() == *shown && arg.get_env().is_some();
    let found = all(&command).into_iter().find(named)?;
    let names = found.get_long_and_visible_aliases().unwrap_or_default();
    let names = names.into_iter().chain(found.get_all_aliases().unwrap_or_default());
    let flags: Vec<String> = names.map(|name| format!("--{name}")).collect();
    let is_given = arguments.iter().any(|word| {
        let word = word.to_string_lossy();
        flags.iter().any(|flag| word == *flag || word.starts_with(&format!("{flag}=")))
    });
    let variable = found.get_env()?.to_string_lossy().into_owned();
    (!is_given).then_some(variable)
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serves the CSI Identity and Controller services of disk.csi.azure.com and of file.csi.azure.com.
    CsiController(csi_controller::Options),
    /// Serves the CSI Identity and Node services of disk.csi.azure.com and of file.csi.azure.com on one node.
    CsiNode(csi_node::Options),
    /// Gives Services of type LoadBalancer their Azure load balancers, initialises Nodes, routes their pods and removes
    /// Nodes whose VMs are gone, in place of the Azure cloud-controller-manager.
    CloudControllers(Box<cloud_controllers::Options>),
    #[cfg(feature = "emulator")]
    /// Runs Azure itself as a local HTTP server.
    Emulator(emulator::Options),
    #[cfg(feature = "emulator")]
    /// Shows the whole life of a disk, a file share and a Service on an embedded Azure: no cluster and no Azure account needed.
    Demo(demo::Options),
    #[cfg(feature = "emulator")]
    /// Runs Azure with its page, a small Kubernetes API for kubectl, and the whole provider in this process, until Ctrl-C.
    Up(up::Options),
    /// Checks a cloud configuration and, where one is named, the cluster, and says what is wrong.
    Doctor(doctor::Options),
    /// Prints what the provider sees of the cluster in Azure: instances, zones, clusters, routes, load balancers,
    /// disks, snapshots, file shares.
    Get(get::Options),
    /// Explains what can be set, read and seen: parameters, annotations and labels, keys of the cloud configuration,
    /// options, events, metrics.
    Explain(explain::Options),
    /// Changes the machines of the cluster, by a person's hand: adds an SSH key.
    Instances(instances::Options),
    /// Says why a disk, a snapshot, a VM, a Service or a Node waits: asks the process that looks after it, in the same container.
    Why(why::Options),
    #[cfg(feature = "emulator")]
    /// Measures the provider against the embedded Azure.
    Bench(bench::Options),
    #[cfg(feature = "pages")]
    /// Prints a script that completes this program's commands and options in a shell, such as:
    /// source <(lazuli completion bash).
    #[command(verbatim_doc_comment)]
    Completion(pages::CompletionOptions),
    #[cfg(feature = "pages")]
    /// Writes a man page for each command.
    Man(pages::ManOptions),
    /// Says which version and revision this is, and what is in it.
    Version(version::Options),
}

impl Command {
    /// Whether it reads the credential of a cloud configuration, a token of Kubernetes or a kubeconfig. The others speak to
    /// an emulator of their own, whose credentials are made up.
    fn holds_credentials(&self) -> bool {
        match self {
            Self::CsiController(_)
            | Self::CsiNode(_)
            | Self::CloudControllers(_)
            | Self::Doctor(_)
            | Self::Get(_)
            | Self::Instances(_) => true,
            // A process tells it no credential.
            Self::Why(_) | Self::Version(_) | Self::Explain(_) => false,
            #[cfg(feature = "pages")]
            Self::Completion(_) | Self::Man(_) => false,
            #[cfg(feature = "emulator")]
            Self::Emulator(_) | Self::Demo(_) | Self::Up(_) | Self::Bench(_) => false,
        }
    }
}

/// Parses the command line and runs it.
pub fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let cli = match parse(&arguments) {
        Ok(cli) => cli,
        Err(error) => {
            let variable = variable_of(&error, &arguments);
            // Nothing is left to do where the message cannot be printed.
            let _ = error.print();
            if let Some(variable) = variable {
                eprintln!("\nThe value is that of the environment variable {variable}.");
            }
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    let format = match cli.log.log_format {
        LogFormat::Text => logs::Format::Text,
        LogFormat::Json => logs::Format::Json,
    };
    let filter = cli.log.filter(match cli.command {
        Command::CsiController(_) | Command::CsiNode(_) | Command::CloudControllers(_) => "info",
        Command::Doctor(_) | Command::Get(_) | Command::Instances(_) | Command::Why(_) => "warn",
        Command::Version(_) | Command::Explain(_) => "warn",
        #[cfg(feature = "pages")]
        Command::Completion(_) | Command::Man(_) => "warn",
        #[cfg(feature = "emulator")]
        Command::Demo(_) => DEMO_LOG,
        #[cfg(feature = "emulator")]
        Command::Emulator(_) | Command::Up(_) | Command::Bench(_) => "warn",
    });
    if let Err(error) = logs::init(format, filter) {
        eprintln!("lazuli: {}", chain(&error));
        return ExitCode::from(2);
    }
    // Before the first credential is read.
    if cli.command.holds_credentials()
        && let Err(error) = core_dumps::forbid()
    {
        eprintln!("lazuli: core dumps of this process cannot be forbidden: {error}");
        return ExitCode::FAILURE;
    }
    // One provider for every TLS library in the process; a second choice would be a panic at the first connection.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("lazuli: the runtime cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    let outcome = runtime.block_on(async {
        match cli.command {
            Command::CsiController(options) => Box::pin(csi_controller::run(options)).await,
            Command::CsiNode(options) => Box::pin(csi_node::run(options)).await,
            Command::CloudControllers(options) => Box::pin(cloud_controllers::run(*options)).await,
            #[cfg(feature = "emulator")]
            Command::Emulator(options) => Box::pin(emulator::run(options)).await,
            #[cfg(feature = "emulator")]
            Command::Demo(options) => Box::pin(demo::run(options)).await,
            #[cfg(feature = "emulator")]
            Command::Up(options) => Box::pin(up::run(options)).await,
            Command::Doctor(options) => Box::pin(doctor::run(options)).await,
            Command::Get(options) => Box::pin(get::run(options)).await,
            Command::Explain(options) => Box::pin(explain::run(options)).await,
            Command::Instances(options) => Box::pin(instances::run(options)).await,
            Command::Why(options) => Box::pin(why::run(options)).await,
            Command::Version(options) => version::run(&options),
            #[cfg(feature = "pages")]
            Command::Completion(options) => pages::completion(&options),
            #[cfg(feature = "pages")]
            Command::Man(options) => pages::man(&options),
            #[cfg(feature = "emulator")]
            Command::Bench(options) => Box::pin(bench::run(options)).await,
        }
    });
    // Blocking work that hangs (a filesystem that does not answer) must not keep the process.
    runtime.shutdown_background();
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lazuli: {}", printed(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

/// An error as a terminal gets it, with its causes. Its text may be that of Azure, of Kubernetes or of a file: it colours nothing
/// and moves no cursor. An error may have several lines.
fn printed(error: &(dyn std::error::Error + 'static)) -> String {
    chain(error).lines().map(printable).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_colours_nothing_and_moves_no_cursor() {
        let error = std::io::Error::other(
            "Azure said \u{1b}[31mno\u{1b}]52;c;aGk=\u{7}\r\u{202e}\nand \u{9b}2J why, für immer",
        );
        assert_eq!(
            printed(&error),
            "Azure said \\u{1b}[31mno\\u{1b}]52;c;aGk=\\u{7}\\r\\u{202e}\nand \\u{9b}2J why, für immer"
        );
    }

    #[test]
    fn a_number_says_what_to_log_unless_words_say_it() {
        let filter = |words: &[&str]| {
            let cli = Cli::try_parse_from([&["lazuli", "doctor"], words].concat()).unwrap();
            cli.log.filter("warn").to_owned()
        };
        for (words, expected) in [
            (&[][..], "warn"),
            (&["-v=0"], "info"),
            (&["--v=2"], "info"),
            (&["-v", "4"], "info,lazuli=debug"),
            (&["--v=10"], "info,lazuli=trace"),
            (&["-v=4", "--log=error"], "error"),
            (&["--log="], "warn"),
            (&["--log= , ", "-v=4"], "info,lazuli=debug"),
        ] {
            assert_eq!(filter(words), expected, "{words:?}");
        }
        for (wrong, allowed) in [
            ("--v=much", "a whole number from 0 to 255"),
            ("-v=x", "a whole number from 0 to 255"),
            ("--log=verbose", "off, error, warn, info, debug, trace"),
            ("--log=info,lazuli_disk=loud", "TARGET=LEVEL"),
        ] {
            let error = Cli::try_parse_from(["lazuli", "doctor", wrong]).unwrap_err().to_string();
            assert!(error.contains(allowed), "{wrong}: {error}");
        }
        for right in ["INFO", "info,lazuli_disk=debug", "off,[attach{volume=x}]=trace"] {
            assert!(log_filter(right).is_ok(), "{right}");
        }
    }

    /// Every command that prints a result, by its words.
    fn with_output(command: &clap::Command, words: &str) -> Vec<(String, clap::Arg)> {
        let own = command.get_arguments().filter(|arg| arg.get_id() == "output");
        let own = own.map(|arg| (words.to_owned(), arg.clone()));
        let below = command.get_subcommands();
        own.chain(below.flat_map(|one| with_output(one, &format!("{words} {}", one.get_name())))).collect()
    }

    #[test]
    fn every_command_prints_in_the_same_forms_by_the_same_option() {
        let found = with_output(&Cli::command(), "lazuli");
        let printing = ["get disks", "get routes", "doctor", "why disk", "instances add-ssh-key", "version"];
        for words in printing {
            assert!(found.iter().any(|(name, _)| *name == format!("lazuli {words}")), "{words}");
        }
        for (words, arg) in found {
            assert_eq!((arg.get_short(), arg.get_long()), (Some('o'), Some("output")), "{words}");
            let values: Vec<String> =
                arg.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect();
            let of_list = ["table", "wide", "json", "yaml", "name"];
            let of_object = ["text", "json", "yaml"];
            assert!(values == of_list || values == of_object, "{words}: {values:?}");
            assert_eq!(values == of_list, words.starts_with("lazuli get "), "{words}");
        }
    }

    #[test]
    fn a_wrong_value_of_an_environment_variable_names_the_variable() {
        // As for a variable: clap's error does not say which of both the value comes from.
        let words = |text: &[&str]| text.iter().map(OsString::from).collect::<Vec<_>>();
        let given = ["lazuli", "cloud-controllers", "--share-addresses=nobody"];
        let error = Cli::try_parse_from(given).unwrap_err();
        assert_eq!(variable_of(&error, &words(&given)), None);
        let variable = variable_of(&error, &words(&["lazuli", "cloud-controllers"]));
        assert_eq!(variable.as_deref(), Some("LAZULI_SHARE_ADDRESSES"));
    }
}
