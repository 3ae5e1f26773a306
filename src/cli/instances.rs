//! `lazuli instances`: what a person changes at the machines of a cluster. No controller does any of it.

mod add_ssh_key;

use clap::{Args, Subcommand};

use super::{Outcome, stop};

/// Options of all changes.
#[derive(Debug, Args)]
pub(super) struct Options {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Adds an SSH key for a user to machines, by Azure's VM access extension. The user is made where it does not exist and
    /// may become root by sudo; keys that are there stay. Windows machines are left out.
    AddSshKey(add_ssh_key::AddSshKey),
}

pub(super) async fn run(options: Options) -> Outcome {
    let stop = stop::on_signal()?;
    match options.what {
        What::AddSshKey(options) => Box::pin(add_ssh_key::run(&options, stop)).await,
    }
}
