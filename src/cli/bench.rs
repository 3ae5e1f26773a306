//! `lazuli bench`: what an operator would measure, against the embedded Azure.

mod attach_storm;
mod emulator;
mod footprint;
mod processes;

use clap::{Args, Subcommand};

use super::Outcome;

/// Options of the benches.
#[derive(Debug, Args)]
pub(super) struct Options {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Debug, Subcommand)]
enum Bench {
    /// Attaches many disks to many nodes at once, then detaches them. Emulator and controller are processes of their
    /// own.
    AttachStorm(attach_storm::Options),
    /// How fast the emulator itself is: single requests and a list of 20,000 disks, in process and over loopback TCP.
    Emulator(emulator::Options),
    /// The size of this program, and the memory of an idle controller and node plugin.
    Footprint(footprint::Options),
}

pub(super) async fn run(options: Options) -> Outcome {
    match options.bench {
        Bench::AttachStorm(options) => attach_storm::run(options).await,
        Bench::Emulator(options) => emulator::run(options).await,
        Bench::Footprint(options) => footprint::run(options).await,
    }
}
