//! The command line: a file per subcommand.
//!
//! Results go to stdout, logs to stderr. A process ends with 0 when it did what it was told, 1 when that failed and
//! 2 when it was told something it does not understand.

mod azure_ready;
#[cfg(feature = "emulator")]
mod bench;
mod cloud_controllers;
mod core_dumps;
mod csi_controller;
mod csi_node;
#[cfg(feature = "emulator")]
mod demo;
mod doctor;
#[cfg(feature = "emulator")]
mod emulator;
mod endpoints;
mod get;
mod go_arguments;
mod instances;
mod machines;
mod node_controllers;
mod output;
mod sizes;
mod stop;
mod webhook;

use std::{process::ExitCode, sync::LazyLock};

use clap::{Args, Parser, Subcommand};

use lazuli_csi::server::chain;
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
    /// info for what serves a cluster, warn for what people run.
    #[arg(long, env = "LAZULI_LOG", global = true)]
    log: Option<String>,
    /// What to log, as a number in the way of the Go programs: 0 to 3 are info, 4 and 5 debug, more trace, of this program's
    /// own parts. --log wins.
    #[arg(short, long = "v", value_name = "LEVEL", global = true)]
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
        self.log.as_deref().or(of_number).unwrap_or(otherwise)
    }
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serves the CSI Identity and Controller services of disk.csi.azure.com.
    CsiController(csi_controller::Options),
    /// Serves the CSI Identity and Node services of disk.csi.azure.com on one node.
    CsiNode(csi_node::Options),
    /// Gives Services of type LoadBalancer their Azure load balancers, initialises Nodes, routes their pods and removes
    /// Nodes whose VMs are gone, in place of the Azure cloud-controller-manager.
    CloudControllers(cloud_controllers::Options),
    #[cfg(feature = "emulator")]
    /// Runs Azure itself as a local HTTP server.
    Emulator(emulator::Options),
    #[cfg(feature = "emulator")]
    /// Shows a volume's whole life and a Service's on an embedded Azure: no cluster and no Azure account needed.
    Demo(demo::Options),
    /// Checks a cloud configuration and, where one is named, the cluster, and says what is wrong.
    Doctor(doctor::Options),
    /// Prints what the provider sees of the cluster in Azure: instances, zones, clusters, routes, load balancers,
    /// disks.
    Get(get::Options),
    /// Changes the machines of the cluster, by a person's hand: adds an SSH key.
    Instances(instances::Options),
    #[cfg(feature = "emulator")]
    /// Measures the provider against the embedded Azure.
    Bench(bench::Options),
}

/// Parses the command line and runs it.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let format = match cli.log.log_format {
        LogFormat::Text => logs::Format::Text,
        LogFormat::Json => logs::Format::Json,
    };
    let filter = cli.log.filter(match cli.command {
        Command::CsiController(_) | Command::CsiNode(_) | Command::CloudControllers(_) => "info",
        Command::Doctor(_) | Command::Get(_) | Command::Instances(_) => "warn",
        #[cfg(feature = "emulator")]
        Command::Emulator(_) | Command::Demo(_) | Command::Bench(_) => "warn",
    });
    if let Err(error) = logs::init(format, filter) {
        eprintln!("lazuli: {}", chain(&error));
        return ExitCode::from(2);
    }
    // Before the first credential is read.
    let holds_credentials = matches!(
        cli.command,
        Command::CsiController(_)
            | Command::CsiNode(_)
            | Command::CloudControllers(_)
            | Command::Doctor(_)
            | Command::Get(_)
            | Command::Instances(_)
    );
    if holds_credentials && let Err(error) = core_dumps::forbid() {
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
            Command::CloudControllers(options) => Box::pin(cloud_controllers::run(options)).await,
            #[cfg(feature = "emulator")]
            Command::Emulator(options) => Box::pin(emulator::run(options)).await,
            #[cfg(feature = "emulator")]
            Command::Demo(options) => Box::pin(demo::run(options)).await,
            Command::Doctor(options) => Box::pin(doctor::run(options)).await,
            Command::Get(options) => Box::pin(get::run(options)).await,
            Command::Instances(options) => Box::pin(instances::run(options)).await,
            #[cfg(feature = "emulator")]
            Command::Bench(options) => Box::pin(bench::run(options)).await,
        }
    });
    // Blocking work that hangs (a filesystem that does not answer) must not keep the process.
    runtime.shutdown_background();
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lazuli: {}", chain(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        ] {
            assert_eq!(filter(words), expected, "{words:?}");
        }
        assert!(Cli::try_parse_from(["lazuli", "doctor", "--v=much"]).is_err());
    }
}
