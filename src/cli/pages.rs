//! `lazuli completion`, `lazuli man`: what shells and `man` read, made from the command line itself.

use std::{io::Write as _, path::PathBuf};

use clap::{Args, CommandFactory as _};

use super::{Cli, Outcome};

/// Options of the completions.
#[derive(Debug, Args)]
pub(super) struct CompletionOptions {
    /// For which shell.
    #[arg(value_enum)]
    shell: clap_complete::Shell,
}

/// Options of the man pages.
#[derive(Debug, Args)]
pub(super) struct ManOptions {
    /// The folder that gets a page for each command, such as ~/.local/share/man/man1. It is made where it is missing.
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

/// Prints the completions of a shell.
pub(super) fn completion(options: &CompletionOptions) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(options.shell, &mut Cli::command(), "lazuli", &mut script);
    match std::io::stdout().write_all(&script) {
        // Such as `lazuli completion bash | head`.
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// Writes the man pages.
pub(super) fn man(options: &ManOptions) -> Outcome {
    let failed = |error| format!("man pages cannot be written to {}: {error}", options.folder.display());
    std::fs::create_dir_all(&options.folder).map_err(failed)?;
    clap_mangen::generate_to(Cli::command(), &options.folder).map_err(failed)?;
    let count = std::fs::read_dir(&options.folder).map_err(failed)?.count();
    eprintln!(
        "{count} pages are in {}; man {}/lazuli.1 shows the first",
        options.folder.display(),
        options.folder.display()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_completed_and_has_a_page() {
        let mut script = Vec::new();
        for shell in [clap_complete::Shell::Bash, clap_complete::Shell::Zsh, clap_complete::Shell::Fish] {
            clap_complete::generate(shell, &mut Cli::command(), "lazuli", &mut script);
        }
        let script = String::from_utf8(script).unwrap();
        let folder = std::env::temp_dir().join(format!("lazuli-man-{}", std::process::id()));
        man(&ManOptions { folder: folder.clone() }).unwrap();
        for command in Cli::command().get_subcommands() {
            let name = command.get_name();
            assert!(script.contains(name), "{name}");
            assert!(folder.join(format!("lazuli-{name}.1")).is_file(), "{name}");
        }
        let page = std::fs::read_to_string(folder.join("lazuli-get-disks.1")).unwrap();
        assert!(page.contains("no\\-headers"), "{page}");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
