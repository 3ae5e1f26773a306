//! What the lock file may not contain.
//!
//! Owns the list of banned crates and why each is banned. The same list stands in `deny.toml` for
//! those who run cargo-deny; a test holds the two together. Never looks at features or licences:
//! cargo-deny does.

use std::path::Path;

/// A crate that must not be locked.
struct Ban {
    name: &'static str,
    /// Only versions with a major number below this are banned; `None` bans every version.
    below_major: Option<u64>,
    why: &'static str,
}

/// rustls runs on ring, so every other TLS provider is a second one: it would be picked by accident
/// of feature unification and breaks the static build. The azure_core before 1.0 has other credential
/// traits, no timeouts and known advisories.
const BANS: [Ban; 5] = [
    Ban { name: "aws-lc-rs", below_major: None, why: "a second TLS provider" },
    Ban { name: "aws-lc-sys", below_major: None, why: "a second TLS provider, built with a C toolchain" },
    Ban { name: "openssl-sys", below_major: None, why: "links the system's OpenSSL" },
    Ban { name: "native-tls", below_major: None, why: "links the system's OpenSSL" },
    Ban { name: "azure_core", below_major: Some(1), why: "the frozen generation of the SDK" },
];

/// One `[[package]]` of a lock file.
#[derive(Debug, PartialEq, Eq)]
struct Locked {
    name: String,
    version: String,
}

/// Reads name and version of each package. Cargo writes this file, so its layout is fixed: a section
/// header, then `key = "value"` lines.
fn locked_packages(lock: &str) -> Vec<Locked> {
    let value = |section: &str, key: &str| {
        section
            .lines()
            .find_map(|line| line.strip_prefix(key)?.trim().strip_prefix('='))
            .map(|value| value.trim().trim_matches('"').to_owned())
    };
    lock.split("[[package]]")
        .skip(1)
        .filter_map(|section| Some(Locked { name: value(section, "name")?, version: value(section, "version")? }))
        .collect()
}

/// Says which bans the lock file breaks, one line each.
fn violations(lock: &str) -> Vec<String> {
    let mut found = Vec::new();
    for locked in locked_packages(lock) {
        for ban in BANS.iter().filter(|ban| ban.name == locked.name) {
            let major = locked.version.split('.').next().and_then(|m| m.parse::<u64>().ok());
            let banned = match (ban.below_major, major) {
                (None, _) => true,
                (Some(limit), Some(major)) => major < limit,
                // A version that is no version cannot be shown to be new enough.
                (Some(_), None) => true,
            };
            if banned {
                found.push(format!("{} {}: {}", locked.name, locked.version, ban.why));
            }
        }
    }
    found
}

fn project_file(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn the_lock_file_has_no_banned_crate() {
    let lock = project_file("Cargo.lock");
    assert!(locked_packages(&lock).len() > 50, "the lock file was not understood");
    let found = violations(&lock);
    assert!(found.is_empty(), "{}\n(`cargo tree -i NAME` shows who brings it)", found.join("\n"));
}

#[test]
fn each_banned_crate_is_found_when_it_is_there() {
    for ban in &BANS {
        let version = if ban.below_major.is_some() { "0.21.0" } else { "9.9.9" };
        let lock = format!(
            "version = 4\n\n[[package]]\nname = \"harmless\"\nversion = \"1.0.0\"\n\n\
             [[package]]\nname = \"{}\"\nversion = \"{version}\"\ndependencies = [\n \"harmless\",\n]\n",
            ban.name
        );
        let found = violations(&lock);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with(ban.name), "{found:?}");
    }
}

#[test]
fn the_official_azure_core_is_not_banned() {
    let lock = "[[package]]\nname = \"azure_core\"\nversion = \"1.1.0\"\n\
                [[package]]\nname = \"openssl-probe\"\nversion = \"0.2.2\"\n";
    assert_eq!(violations(lock), Vec::<String>::new());
}

/// A panic is caught where it concerns one caller; the process goes on for the others.
#[test]
fn no_profile_makes_a_panic_end_the_process() {
    let manifest = project_file("Cargo.toml");
    let profiles: Vec<&str> = manifest.split("\n[").filter(|section| section.starts_with("profile.")).collect();
    assert!(profiles.len() >= 2, "the manifest was not understood");
    for profile in profiles {
        assert_eq!(profile.lines().find(|line| line.trim_start().starts_with("panic")), None, "[{profile}");
    }
}

#[test]
fn deny_toml_bans_the_same_crates() {
    let deny = project_file("deny.toml");
    let mut written: Vec<&str> = deny.split("crate = \"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    written.sort_unstable();
    let mut expected: Vec<String> = BANS
        .iter()
        .map(|ban| match ban.below_major {
            None => ban.name.to_owned(),
            Some(major) => format!("{}:<{major}.0.0", ban.name),
        })
        .collect();
    expected.sort_unstable();
    assert_eq!(written, expected);
}
