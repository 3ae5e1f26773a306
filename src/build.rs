//! Tells the program which revision it is built from: `LAZULI_REVISION` of the environment, as for images, else what git says of
//! this folder. A source tree without a repository builds too; its program says `unknown`.

use std::{
    path::Path,
    process::{Command, Stdio},
};

fn main() {
    println!("cargo::rerun-if-changed=src/build.rs");
    println!("cargo::rerun-if-env-changed=LAZULI_REVISION");
    // Cargo gives it to the compiler by itself.
    if std::env::var("LAZULI_REVISION").is_ok_and(|revision| !revision.is_empty()) {
        return;
    }
    let root = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    // A repository around an unpacked archive is not the archive's.
    let is_own = git(&root, &["rev-parse", "--show-toplevel"]).is_some_and(|top| is_same(&top, &root));
    if !is_own {
        return;
    }
    // Whatever moves HEAD changes one of these; a file that is named and missing would run this script every time.
    let branch = git(&root, &["symbolic-ref", "--quiet", "HEAD"]);
    let watched = ["HEAD", "logs/HEAD", "packed-refs"].map(str::to_owned).into_iter().chain(branch);
    for name in watched {
        let Some(path) = git(&root, &["rev-parse", "--git-path", &name]) else { continue };
        let path = Path::new(&root).join(path);
        if path.exists() {
            println!("cargo::rerun-if-changed={}", path.display());
        }
    }
    if let Some(revision) = git(&root, &["rev-parse", "--short=12", "HEAD"]) {
        println!("cargo::rustc-env=LAZULI_REVISION={revision}");
    }
}

/// What a git command says; nothing where there is no git, no repository, or no answer.
fn git(root: &str, arguments: &[&str]) -> Option<String> {
    // Git asks nothing of a repository of another user, as root builds one; this script runs its code all the same.
    let trusted = ["-c", "safe.directory=*", "-C", root];
    let said = Command::new("git").args(trusted).args(arguments).stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8(said.stdout).ok()?.trim().to_owned();
    (said.status.success() && !text.is_empty()).then_some(text)
}

fn is_same(one: &str, other: &str) -> bool {
    let real = |path: &str| std::fs::canonicalize(path).ok();
    real(one).is_some_and(|one| Some(one) == real(other))
}
