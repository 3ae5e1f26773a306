//! Names of shares, folders and servers.
//!
//! Azure's rule for shares (source: "Naming and referencing shares"): 3 to 63 lower-case letters, digits and hyphens, a
//! letter or digit first and last, no two hyphens in a row.

use lazuli_model::digest;

use crate::{limits::SHARE_NAME_LENGTH, parameters::ShareNaming};

/// What a share may be called.
pub(crate) const RULE: &str =
    "allowed are 3 to 63 letters, digits and single hyphens, starting and ending with a letter or digit";

/// What a prefix may be.
pub(crate) const PREFIX_RULE: &str =
    "allowed are 1 to 20 lower-case letters, digits and hyphens, starting with a letter or digit";

/// What the Go driver puts before a random UUID where a request's name cannot be that of a share.
const REPLACED: &str = "pvc-file-dynamic-";

/// Whether Azure takes it as the name of a share.
pub fn is_share_name(name: &str) -> bool {
    let is_inner = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = name.as_bytes();
    SHARE_NAME_LENGTH.contains(&bytes.len())
        && bytes.first().is_some_and(is_inner)
        && bytes.last().is_some_and(is_inner)
        && bytes.iter().all(|byte| is_inner(byte) || *byte == b'-')
        && !name.contains("--")
}

/// The first 63 characters, in lower case and with single hyphens, as the Go driver makes them.
fn folded(text: &str) -> String {
    let mut name: String = text.to_lowercase().chars().take(*SHARE_NAME_LENGTH.end()).collect();
    while name.contains("--") {
        name = name.replace("--", "-");
    }
    name
}

/// The name of a share that a class gives. `None` when it can be none; the Go driver then invents one.
pub(crate) fn named(text: &str) -> Option<String> {
    let name = folded(text);
    // The hyphen that a cut leaves at the end is no mistake of the user.
    let name = if text.chars().count() > *SHARE_NAME_LENGTH.end() { name.trim_end_matches('-') } else { &name };
    is_share_name(name).then(|| name.to_owned())
}

/// Whether it can stand before the names of shares (source: the Go driver).
pub(crate) fn is_prefix(prefix: &str) -> bool {
    (1..=20).contains(&prefix.len())
        && !prefix.starts_with('-')
        && prefix.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

/// The name of the share of a request.
///
/// Two requests whose names differ never get one share, unless their class names it: a request's name that would have
/// to be changed (CSI allows any text) becomes `pvc-file-dynamic-` and a digest of it, in the form of the names that the
/// Go driver invents. The same request always gives the same name.
pub fn share_name(request_name: &str, naming: &ShareNaming) -> String {
    let prefix = match naming {
        ShareNaming::Named(name) => return name.clone(),
        ShareNaming::Generated { prefix } => prefix.as_deref(),
    };
    let replaced = || format!("{REPLACED}{}", digest::uuid_like(request_name.as_bytes()));
    if !is_share_name(request_name) {
        return replaced();
    }
    let Some(prefix) = prefix else { return request_name.to_owned() };
    // Only the prefix may bring two hyphens together: for one class it is always the same.
    let name = format!("{prefix}-{request_name}");
    if name.len() > *SHARE_NAME_LENGTH.end() {
        return replaced();
    }
    let name = folded(&name);
    if is_share_name(&name) { name } else { replaced() }
}

/// Whether a driver gives such a name to a share of its own: proof that the share is not a person's, where the class
/// did not name it. `prefix` is the class's.
pub fn is_generated(name: &str, prefix: Option<&str>) -> bool {
    let with_prefix = |prefix: &str| is_prefix(prefix) && name.starts_with(&folded(&format!("{prefix}-")));
    ["pvc-", "pvcn-"].iter().any(|known| name.starts_with(known)) || prefix.is_some_and(with_prefix)
}

/// Whether the in-tree plugin gives such a name to a share of its own.
pub fn is_in_tree(name: &str) -> bool {
    name.starts_with("kubernetes-dynamic-")
}

/// Checks a folder in a share: its parts, separated by slashes.
pub(crate) fn check_folder(folder: &str) -> Result<(), &'static str> {
    if folder.chars().any(char::is_control) {
        return Err("allowed is a path without control characters");
    }
    if folder.contains('\\') {
        return Err("allowed is a path with slashes, not backslashes");
    }
    let folder = folder.trim_matches('/');
    if folder.is_empty() {
        return Err("allowed is the path of a folder in the share");
    }
    if folder.split('/').any(|part| part.is_empty() || part == "." || part == "..") {
        return Err("allowed is a path whose parts are names, none of them empty, \".\" or \"..\"");
    }
    Ok(())
}

/// Checks the name or address of a server.
pub(crate) fn check_host(host: &str) -> Result<(), &'static str> {
    const ALLOWED: &str = "allowed is the name or the address of a server: letters, digits, '.', '-', '_' and ':'";
    let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:".contains(&byte);
    let is_fine = !host.is_empty() && host.len() <= 253 && host.bytes().all(is_host) && !host.starts_with(['-', '.']);
    if is_fine && !host.contains("..") { Ok(()) } else { Err(ALLOWED) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PLAIN: ShareNaming = ShareNaming::Generated { prefix: None };

    fn prefixed(prefix: &str) -> ShareNaming {
        ShareNaming::Generated { prefix: Some(prefix.into()) }
    }

    #[test]
    fn a_request_names_its_share_as_with_the_go_driver() {
        assert_eq!(share_name("pvc-0b1f", &PLAIN), "pvc-0b1f");
        assert_eq!(share_name("pvc-0b1f", &prefixed("team")), "team-pvc-0b1f");
        assert_eq!(share_name("pvc-0b1f", &prefixed("team-")), "team-pvc-0b1f");
        assert_eq!(share_name("pvc-0b1f", &ShareNaming::Named("data".into())), "data");
        let request = format!("pvc-{}", "1".repeat(36));
        assert_eq!(share_name(&request, &prefixed(&"p".repeat(20))), format!("{}-{request}", "p".repeat(20)));
        let longest = format!("pvc-{}", "1".repeat(38));
        assert_eq!(share_name(&longest, &prefixed(&"p".repeat(20))), format!("{}-{longest}", "p".repeat(20)));
    }

    #[test]
    fn a_request_whose_name_would_be_changed_gets_a_digest_that_is_its_own() {
        for (one, other) in [("a--b", "a-b"), ("PVC-1", "pvc-1"), ("pvc_1", "pvc.1"), ("aq", "ar"), ("-a-b", "a-b")] {
            let [one, other] = [one, other].map(|name| share_name(name, &PLAIN));
            assert_ne!(one, other);
            assert!(one.starts_with(REPLACED) && is_share_name(&one), "{one}");
        }
        let long = "a".repeat(63);
        assert_eq!(share_name(&long, &PLAIN), long);
        assert!(share_name(&format!("{long}b"), &PLAIN).starts_with(REPLACED));
        assert_ne!(share_name(&format!("{long}b"), &PLAIN), share_name(&format!("{long}c"), &PLAIN));
        assert_ne!(share_name(&long, &prefixed("p")), share_name(&format!("{}b", "a".repeat(62)), &prefixed("p")));
    }

    #[test]
    fn a_name_that_a_class_gives_is_made_fit_or_refused() {
        for (text, name) in [
            ("data", Some("data")),
            ("Data", Some("data")),
            ("a--b----c", Some("a-b-c")),
            ("ab", None),
            ("-ab", None),
            ("ab-", None),
            ("a.b", None),
            ("a/b", None),
            ("", None),
            ("${x}", None),
        ] {
            assert_eq!(named(text).as_deref(), name, "{text}");
        }
        assert_eq!(named(&"b".repeat(64)), Some("b".repeat(63)));
        assert_eq!(named(&format!("{}-", "b".repeat(62))), None);
        assert_eq!(named(&format!("{}-{}", "b".repeat(62), "c".repeat(9))), Some("b".repeat(62)));
    }

    #[test]
    fn only_names_that_drivers_give_are_generated() {
        for name in ["pvc-1", "pvcn-1", "pvc-file-dynamic-1"] {
            assert!(is_generated(name, None) && !is_in_tree(name), "{name}");
        }
        assert!(is_in_tree("kubernetes-dynamic-pvc-1") && !is_in_tree("kubernetes-pvc-1"));
        for name in
            ["kubernetes-dynamic-pvc-1", "data", "pvc", "pvcs-1", "pvcd-1", "my-pvc-1", "kubernetes-data", "team-pvc-1"]
        {
            assert!(!is_generated(name, None), "{name}");
        }
        assert!(is_generated("team-pvc-1", Some("team")));
        assert!(is_generated("team-pvc-1", Some("team-")));
        assert!(!is_generated("teams-pvc-1", Some("team")));
        for bad in ["", "-", "Team"] {
            assert!(!is_generated("data", Some(bad)), "{bad:?}");
        }
    }

    #[test]
    fn a_folder_cannot_climb_out_of_its_share() {
        for folder in ["a", "a/b", "/a/b/", "a b", "a..b", "ä"] {
            assert_eq!(check_folder(folder), Ok(()), "{folder:?}");
        }
        for folder in ["", "/", "..", "a/../b", "a/..", "./a", "a//b", "a\\b", "a\nb", "a\0"] {
            assert!(check_folder(folder).is_err(), "{folder:?}");
        }
    }

    #[test]
    fn a_server_is_a_name_or_an_address() {
        for host in ["f1.file.core.windows.net", "10.0.0.4", "fd00::1", "nas_1"] {
            assert_eq!(check_host(host), Ok(()), "{host}");
        }
        for host in ["", "/etc", "a/b", "a\\b", "a b", "a,b", "..", "-a", "a..b", "a\n"] {
            assert!(check_host(host).is_err(), "{host:?}");
        }
    }

    proptest! {
        #[test]
        fn every_request_gives_a_name_that_azure_takes(
            request in "(\\PC|-){0,80}", prefix in proptest::option::of("[a-z0-9][a-z0-9-]{0,19}")
        ) {
            let naming = ShareNaming::Generated { prefix };
            let name = share_name(&request, &naming);
            prop_assert!(is_share_name(&name), "{}", name);
            prop_assert_eq!(share_name(&request, &naming), name);
        }

        #[test]
        fn two_requests_never_share_a_name(
            one in "[aA-]{0,66}|(a|-|\\.){60,66}", other in "[aA-]{0,66}|(a|-|\\.){60,66}",
            prefix in proptest::option::of("[a-z0-9][a-z0-9-]{0,19}"),
        ) {
            prop_assume!(one != other);
            let naming = ShareNaming::Generated { prefix };
            prop_assert_ne!(share_name(&one, &naming), share_name(&other, &naming));
        }

        #[test]
        fn a_generated_name_is_known_as_generated(
            uid in "[0-9a-f]{8}-[0-9a-f]{12}", prefix in proptest::option::of("[a-z0-9][a-z0-9-]{0,19}")
        ) {
            let naming = ShareNaming::Generated { prefix: prefix.clone() };
            let name = share_name(&format!("pvc-{uid}"), &naming);
            prop_assert!(is_generated(&name, prefix.as_deref()), "{}", name);
        }
    }
}
