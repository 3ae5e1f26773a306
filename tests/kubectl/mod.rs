//! What a person does with kubectl: scripts, and what they print on any cluster of Lazuli, a real one or `lazuli up`.
//!
//! A transcript has no times, addresses, ports and versions. `UPDATE_TRANSCRIPT=1` writes it anew.

use std::{
    fs,
    net::IpAddr,
    path::{Path, PathBuf},
    process::{Output, Stdio},
    time::Duration,
};

use tokio::{process::Command, time::timeout};

/// What only a hang reaches.
const PATIENCE: Duration = Duration::from_secs(180);

/// Whether this machine has kubectl. The tier `cluster` builds it; where it is missing that is told, and fails nothing.
pub(crate) fn found() -> bool {
    let path = std::env::var("PATH").unwrap_or_default();
    if path.split(':').any(|folder| Path::new(folder).join("kubectl").is_file()) {
        return true;
    }
    eprintln!("SKIPPED, needs kubectl on the PATH (1.29 or newer); scripts/test cluster builds it and runs this too");
    false
}

/// A program that runs in this folder, without options of the environment.
pub(crate) fn command(program: &str, folder: &Path) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("LAZULI_") || text.starts_with("KUBE") || text.starts_with("AZURE_") {
            command.env_remove(&name);
        }
    }
    command.current_dir(folder).env("TMPDIR", folder).env("HOME", folder).stdin(Stdio::null()).kill_on_drop(true);
    command
}

/// Runs `services.sh` in this folder, and compares what it prints with the transcript.
pub(crate) async fn services(kubeconfig: &Path, folder: &Path) {
    prints(&PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/kubectl/services.sh"), kubeconfig, folder).await;
}

async fn prints(script: &Path, kubeconfig: &Path, folder: &Path) {
    let mut run = command("bash", folder);
    run.arg(script).env("KUBECONFIG", kubeconfig);
    let Output { status, stdout, stderr } = timeout(PATIENCE, run.output()).await.expect("it ends").unwrap();
    assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
    let (shown, transcript) = (masked(&String::from_utf8_lossy(&stdout)), script.with_extension("txt"));
    if std::env::var_os("UPDATE_TRANSCRIPT").is_some() {
        fs::write(&transcript, &shown).unwrap();
    }
    let expected = fs::read_to_string(&transcript).unwrap_or_default();
    assert!(shown == expected, "kubectl printed:\n{shown}\nexpected of {}:\n{expected}", transcript.display());
}

/// What differs from one cluster to the next: ages, addresses, node ports, versions and the padding of columns.
fn masked(transcript: &str) -> String {
    let is_age = |word: &str| {
        word.starts_with(|char: char| char.is_ascii_digit())
            && word.ends_with(['s', 'm', 'h', 'd'])
            && word.chars().all(|char| char.is_ascii_digit() || "smhd".contains(char))
    };
    let port = |word: &str| {
        let (before, number) = word.split_once(':')?;
        let (number, protocol) = number.split_once('/')?;
        number.parse::<u16>().ok().filter(|number| *number >= 30_000)?;
        Some(format!("{before}:PORT/{protocol}"))
    };
    let node_port = |word: &str| {
        let (number, protocol) = word.split_once('/')?;
        let number = number.parse::<u16>().ok().filter(|number| (30_000..32_768).contains(number));
        number.map(|_| format!("PORT/{protocol}"))
    };
    let word = |word: &str| match word {
        word if is_age(word) => "AGE".to_owned(),
        word if word.parse::<IpAddr>().is_ok() => "ADDRESS".to_owned(),
        word if word.starts_with("v1.") => "VERSION".to_owned(),
        word => port(word).or_else(|| node_port(word)).unwrap_or_else(|| word.to_owned()),
    };
    let line = |line: &str| {
        let inner = line.trim_start_matches(' ');
        let words: Vec<String> = inner.split_whitespace().map(word).collect();
        format!("{}{}\n", &line[..line.len() - inner.len()], words.join(" "))
    };
    transcript.lines().map(line).collect()
}
