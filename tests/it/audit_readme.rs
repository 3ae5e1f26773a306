//! The README's commands are ones that this program understands.

use std::path::Path;

use clap::{Parser as _, error::ErrorKind};
use lazuli::cli::Cli;

/// The commands of the README's shell blocks, with continued lines joined, and what is quoted inline.
fn commands() -> Vec<String> {
    let readme = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap();
    let mut commands = Vec::new();
    for (at, block) in readme.split("```").enumerate() {
        match at % 2 {
            0 => commands.extend(block.split('`').skip(1).step_by(2).map(str::to_owned)),
            _ => commands.extend(block.replace("\\\n", " ").lines().skip(1).map(str::to_owned)),
        }
    }
    commands
}

fn names_missing_file(error: &clap::Error) -> bool {
    error.kind() == ErrorKind::ValueValidation && error.to_string().contains("No such file")
}

#[test]
fn audit_every_command_in_the_readme_is_understood() {
    let mut understood = 0;
    for command in commands() {
        let command = command.split(" #").next().unwrap_or_default().trim_end_matches(" &").to_owned();
        let words: Vec<&str> = command.split_whitespace().collect();
        if words.first() != Some(&"lazuli") {
            continue;
        }
        match Cli::try_parse_from(&words) {
            Ok(_) => understood += 1,
            Err(error) if error.kind() == ErrorKind::DisplayHelp => understood += 1,
            // It names a program that a command before it builds.
            Err(error) if names_missing_file(&error) => understood += 1,
            // A group of commands is spoken of, such as `lazuli get`.
            Err(error) if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {}
            Err(error) => panic!("{command}: {error}"),
        }
    }
    assert!(understood >= 6, "the README lost its commands: {understood}");
}

#[test]
fn audit_every_script_and_option_in_the_readme_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let subcommands = ["emulator", "csi-controller", "csi-node", "cloud-controllers"].map(|command| vec![command]);
    let benches = [
        "attach-storm",
        "footprint",
        "life-storm",
        "list-volumes",
        "node-churn",
        "node-join",
        "node-loss",
        "service-storm",
    ]
    .map(|bench| vec!["bench", bench]);
    let help = |command: &Vec<&str>| {
        let asked = ["lazuli"].iter().chain(command).chain(&["--help"]);
        Cli::try_parse_from(asked).unwrap_err().to_string()
    };
    let people = [vec!["doctor"], vec!["get", "disks"], vec!["get", "shares"], vec!["instances", "add-ssh-key"]];
    let help: String = subcommands.iter().chain(&benches).chain(&people).map(help).collect();
    // Options of cargo, of Helm, and of the sidecars, which the README says how to run.
    let of_others = [
        "--worker-threads",
        "--timeout",
        "--extra-create-metadata",
        "--release",
        "--target-dir",
        "--no-default-features",
        "--namespace",
        "--set",
    ];
    for command in commands() {
        for word in command.split_whitespace() {
            if ["scripts/", "src/", "deploy/"].iter().any(|folder| word.starts_with(folder)) {
                assert!(root.join(word).exists(), "{word} does not exist");
            }
            let option = word.split('=').next().unwrap_or_default();
            if option.starts_with("--") && option != "--help" && !of_others.contains(&option) {
                assert!(help.contains(option), "{option} is an option of none");
            }
        }
    }
}
