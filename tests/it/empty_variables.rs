//! A variable that is set and empty is as one that is not set: charts and scripts write an empty value where they have none.

use std::{
    collections::BTreeSet,
    process::{Command, Output},
};

/// Each command that reads variables, with arguments that end it before it reaches anything.
const COMMANDS: [&str; 8] = [
    "csi-controller --cloud-config=/dev/null",
    "csi-node --node-id=n --imds=off --kubeconfig=/dev/null/none",
    "cloud-controllers --kubeconfig=/dev/null/none",
    "doctor --offline --cloud-config=/dev/null",
    "get instances --cloud-config=/dev/null",
    "instances add-ssh-key --all --user=u --key=/dev/null/none --cloud-config=/dev/null",
    "emulator --scenario=/dev/null/none",
    "why disk none",
];

fn run(words: &[&str], variables: &BTreeSet<String>) -> Output {
    let empty = variables.iter().map(|name| (name, ""));
    Command::new(env!("CARGO_BIN_EXE_lazuli")).args(words).env_clear().envs(empty).output().unwrap()
}

/// The variables that the help of a command names.
fn variables_of(words: &[&str]) -> BTreeSet<String> {
    let names: Vec<&str> = words.iter().copied().filter(|word| !word.starts_with('-')).chain(["--help"]).collect();
    let help = String::from_utf8(run(&names, &BTreeSet::new()).stdout).unwrap();
    // Its lines are broken between any two words.
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    let named = help.split("[env: ").skip(1).filter_map(|rest| rest.split(['=', ']']).next());
    named.map(str::to_owned).collect()
}

#[test]
fn empty_variables_end_no_process_and_change_nothing() {
    let others =
        ["AZURE_CLIENT_ID", "AZURE_TENANT_ID", "AZURE_CREDENTIAL_FILE", "AZURE_FEDERATED_TOKEN_FILE", "KUBECONFIG"];
    let mut all = BTreeSet::new();
    for command in COMMANDS {
        let words: Vec<&str> = command.split(' ').collect();
        let mut variables = variables_of(&words);
        assert!(variables.contains("LAZULI_LOG"), "{command}: {variables:?}");
        variables.extend(others.map(str::to_owned));
        let (with, without) = (run(&words, &variables), run(&words, &BTreeSet::new()));
        let text = |output: &Output| {
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            // The time of a line.
            let line = |line: &str| line.split_once("Z ").map_or(line, |(_, line)| line).to_owned();
            text.lines().map(line).collect::<Vec<_>>()
        };
        assert_eq!(without.status.code(), Some(1), "{command}: {:?}", text(&without));
        assert_eq!((with.status.code(), text(&with)), (Some(1), text(&without)), "{command}");
        all.extend(variables);
    }
    assert!(all.len() > 50, "{all:?}");
}
