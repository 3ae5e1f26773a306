//! What the pages for people say is true of this program: commands, options, files, links, and the README's length.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use clap::{CommandFactory as _, Parser as _, error::ErrorKind};
use lazuli::cli::Cli;

/// The most that the README may have.
const MOST_LINES: usize = 120;
const MOST_WORDS: usize = 1_300;
/// The most lines of the notes of a release.
const MOST_LINES_OF_NOTES: usize = 60;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every page for people.
fn pages() -> Vec<(PathBuf, String)> {
    let markdown = |folder: &str| -> Vec<PathBuf> {
        let entries = fs::read_dir(root().join(folder)).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| path.extension().is_some_and(|end| end == "md")).collect()
    };
    let mut paths =
        [markdown("."), markdown("deploy"), markdown("deploy/azure"), markdown("deploy/reference")].concat();
    paths.sort();
    paths.into_iter().map(|path| (path.clone(), fs::read_to_string(path).unwrap())).collect()
}

fn is_reference(page: &Path) -> bool {
    page.parent().is_some_and(|folder| folder.ends_with("reference"))
}

/// The commands of a page's shell blocks, with continued lines joined, and what is quoted inline.
fn commands(page: &str) -> Vec<String> {
    let mut commands = Vec::new();
    for (at, block) in page.split("```").enumerate() {
        match at % 2 {
            0 => commands.extend(block.split('`').skip(1).step_by(2).map(str::to_owned)),
            _ => commands.extend(block.replace("\\\n", " ").lines().skip(1).map(|line| line.trim().to_owned())),
        }
    }
    commands
}

fn names_missing_file(error: &clap::Error) -> bool {
    let says = |text: &str| error.to_string().contains(text);
    error.kind() == ErrorKind::ValueValidation && (says("No such file") || says("no file that can be read"))
}

/// Placeholders of a sentence: `lazuli why disk NAME` is a command, `lazuli get ...` and `lazuli bench` speak of several.
fn speaks_of_several(words: &[&str]) -> bool {
    words.iter().any(|word| word.contains("...") || *word == "…")
}

#[test]
fn audit_every_command_in_the_pages_is_understood() {
    let mut understood = 0;
    for (page, text) in pages().iter().filter(|(page, _)| !is_reference(page)) {
        for command in commands(text) {
            let command = command.split(" #").next().unwrap_or_default();
            let command = command.split(" >").next().unwrap_or_default().trim_end_matches(" &").to_owned();
            let words: Vec<&str> = command.split_whitespace().collect();
            if words.first() != Some(&"lazuli") || speaks_of_several(&words) {
                continue;
            }
            match Cli::try_parse_from(&words) {
                Ok(_) => understood += 1,
                Err(error) if [ErrorKind::DisplayHelp, ErrorKind::DisplayVersion].contains(&error.kind()) => {
                    understood += 1
                }
                // It names a file that a command before it makes.
                Err(error) if names_missing_file(&error) => understood += 1,
                // A group of commands is spoken of, such as `lazuli get`, or one without what it needs.
                Err(error)
                    if [ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand, ErrorKind::MissingRequiredArgument]
                        .contains(&error.kind()) => {}
                Err(error) => panic!("{}: {command}: {error}", page.display()),
            }
        }
    }
    assert!(understood >= 30, "the pages lost their commands: {understood}");
}

/// The long options of every subcommand, also of those that only the Go programs have.
fn options_of_lazuli() -> BTreeSet<String> {
    fn below(command: &clap::Command, found: &mut BTreeSet<String>) {
        for argument in command.get_arguments() {
            found.extend(argument.get_long().map(|long| format!("--{long}")));
            found.extend(argument.get_all_aliases().unwrap_or_default().into_iter().map(|long| format!("--{long}")));
        }
        command.get_subcommands().for_each(|command| below(command, found));
    }
    let mut found = BTreeSet::from(["--help", "--version"].map(str::to_owned));
    below(&Cli::command(), &mut found);
    found
}

/// Options of the sidecars, of kubelet, of the Go manager, of Helm and of Azure's command line, of which the pages speak
/// without the program's name.
const OF_OTHERS: [&str; 9] = [
    "--enable-oidc-issuer",
    "--extra-create-metadata",
    "--kube-version",
    "--leader-elect-resource-name",
    "--root-dir",
    "--subject",
    "--timeout",
    "--values",
    "--worker-threads",
];

#[test]
fn audit_every_script_and_option_in_the_pages_exists() {
    let known = options_of_lazuli();
    for (page, text) in pages().iter().filter(|(page, _)| !is_reference(page)) {
        for command in commands(text) {
            for word in command.split_whitespace() {
                if ["scripts/", "src/", "deploy/", "tests/"].iter().any(|folder| word.starts_with(folder)) {
                    assert!(root().join(word).exists(), "{}: {word} does not exist", page.display());
                }
            }
            // Commands of other programs have options of their own.
            let first = command.split_whitespace().next().unwrap_or_default();
            if !first.starts_with("--") && first != "lazuli" {
                continue;
            }
            for word in command.split_whitespace() {
                let option = word.split('=').next().unwrap_or_default();
                if option.starts_with("--")
                    && !option.trim_start_matches('-').is_empty()
                    && !OF_OTHERS.contains(&option)
                {
                    assert!(known.contains(option), "{}: {option} is an option of none", page.display());
                }
            }
        }
    }
}

/// The anchor of a heading, as the usual renderers make it.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().to_lowercase().replace(' ', "-");
    kept.chars().filter(|char| char.is_alphanumeric() || "-_".contains(*char)).collect()
}

#[test]
fn every_link_between_the_pages_leads_somewhere() {
    let mut checked = 0;
    for (page, text) in pages() {
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if link.contains("://") {
                continue;
            }
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            assert!(target.exists(), "{}: {link}", page.display());
            if !heading.is_empty() {
                let there = fs::read_to_string(&target).unwrap();
                let mut headings = there.lines().filter_map(|line| line.trim_start_matches('#').strip_prefix(' '));
                assert!(headings.any(|line| anchor(line) == heading), "{}: {link}", page.display());
            }
            checked += 1;
        }
    }
    assert!(checked >= 40, "the pages lost their links: {checked}");
}

#[test]
fn the_readme_and_the_notes_of_the_release_are_short() {
    let read = |name: &str| fs::read_to_string(root().join(name)).unwrap();
    let readme = read("README.md");
    assert!(readme.lines().count() <= MOST_LINES, "README.md has {} lines", readme.lines().count());
    let words = readme.split_whitespace().count();
    assert!(words <= MOST_WORDS, "README.md has {words} words");
    assert!(read("CHANGELOG.md").lines().count() <= MOST_LINES_OF_NOTES);
}
