//! `lazuli bench`: what an operator would measure, against the embedded Azure.

mod attach_storm;
mod control;
mod figures;
mod emulator;
mod footprint;
mod life_storm;
mod node_loss;
mod processes;
mod sidecars;
mod storm;

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
    /// Creates, attaches, detaches and deletes many volumes, each phase at once and right after the one before it.
    LifeStorm(life_storm::Options),
    /// Deletes VMs with disks attached to them, then detaches all these disks at once.
    NodeLoss(node_loss::Options),
    /// How fast the emulator itself is: single requests and a list of 20,000 disks, in process and over loopback TCP.
    Emulator(emulator::Options),
    /// The size of this program, and the memory of an idle controller and node plugin.
    Footprint(footprint::Options),
}

pub(super) async fn run(options: Options) -> Outcome {
    match options.bench {
        Bench::AttachStorm(options) => attach_storm::run(options).await,
        Bench::LifeStorm(options) => life_storm::run(options).await,
        Bench::NodeLoss(options) => node_loss::run(options).await,
        Bench::Emulator(options) => emulator::run(options).await,
        Bench::Footprint(options) => footprint::run(options).await,
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_options_of_every_bench_hold_together() {
        crate::cli::Cli::command().debug_assert();
    }
}
