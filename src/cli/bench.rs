//! `lazuli bench`: what an operator would measure, against the embedded Azure.

mod attach_storm;
mod footprint;
mod list_volumes;
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
    /// The size of this program, and the memory of an idle controller and node plugin.
    Footprint(footprint::Options),
    /// The whole list of a large cluster's volumes: the controller's peak memory, the time, the reads of Azure.
    ListVolumes(list_volumes::Options),
}

pub(super) async fn run(options: Options) -> Outcome {
    match options.bench {
        Bench::AttachStorm(options) => attach_storm::run(options).await,
        Bench::Footprint(options) => footprint::run(options).await,
        Bench::ListVolumes(options) => list_volumes::run(options).await,
    }
}
