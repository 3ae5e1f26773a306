//! The program behind `scripts/cluster`, and the supervisor that it starts.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Args, Parser, Subcommand};
use lazuli_test_cluster::{command, node_command, place::Place, supervisor};

/// A real Kubernetes on this machine, with Lazuli's chart and Azure as the emulator.
#[derive(Parser)]
#[command(name = "scripts/cluster")]
struct Line {
    #[command(subcommand)]
    command: Asked,
}

#[derive(Args)]
struct Programs {
    /// The program lazuli.
    #[arg(long, env = "LAZULI_BIN")]
    lazuli: PathBuf,
    /// The folder of the Go programs.
    #[arg(long, env = "LAZULI_CLUSTER_TOOLS")]
    tools: PathBuf,
}

#[derive(Args)]
struct Where {
    /// The folder of the cluster.
    #[arg(long, env = "LAZULI_CLUSTER_FOLDER")]
    folder: PathBuf,
}

#[derive(Subcommand)]
enum Change {
    /// Start one more node and wait until it is ready.
    Add {
        #[command(flatten)]
        at: Where,
    },
    /// Drain a node, wait until its disks are detached, and end it.
    Remove {
        #[command(flatten)]
        at: Where,
        /// Its name, such as node-2.
        name: String,
    },
}

#[derive(Subcommand)]
enum Asked {
    /// Start a cluster and wait until it serves. One that runs is left alone.
    Up {
        #[command(flatten)]
        at: Where,
        #[command(flatten)]
        programs: Programs,
    },
    /// Say what runs: versions, addresses, nodes.
    Status {
        #[command(flatten)]
        at: Where,
    },
    /// End the cluster, and remove all that it left, also after its supervisor was killed.
    Down {
        #[command(flatten)]
        at: Where,
    },
    /// Add a node, or remove one.
    Node {
        #[command(subcommand)]
        change: Change,
    },
    /// The supervisor itself, in namespaces of its own: `up` starts it.
    #[command(hide = true)]
    Serve {
        #[command(flatten)]
        at: Where,
        #[command(flatten)]
        programs: Programs,
    },
}

fn main() -> ExitCode {
    match run(Line::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("scripts/cluster: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(asked: Asked) -> Result<(), Box<dyn std::error::Error>> {
    match asked {
        Asked::Up { at, programs } => {
            let (lazuli, tools) = (absolute(&programs.lazuli)?, absolute(&programs.tools)?);
            command::up(&at.place()?, &lazuli, &tools)?;
        }
        Asked::Status { at } => runtime()?.block_on(command::status(&at.place()?))?,
        Asked::Down { at } => command::down(&at.place()?)?,
        Asked::Node { change: Change::Add { at } } => node_command::add(&at.place()?)?,
        Asked::Node { change: Change::Remove { at, name } } => node_command::remove(&at.place()?, &name)?,
        Asked::Serve { at, programs } => {
            runtime()?.block_on(supervisor::serve(&at.place()?, &programs.lazuli, &programs.tools))?;
        }
    }
    Ok(())
}

impl Where {
    fn place(&self) -> Result<Place, Box<dyn std::error::Error>> {
        Ok(Place::new(&absolute(&self.folder)?)?)
    }
}

/// One thread: a thread has a network of its own, and those that it starts have it too.
fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

fn absolute(path: &Path) -> std::io::Result<PathBuf> {
    std::path::absolute(path)
}
