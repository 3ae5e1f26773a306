//! The `lazuli` command: parse, run, print the error chain.

use std::process::ExitCode;

fn main() -> ExitCode {
    lazuli::cli::main()
}
