//! The mount options of a share: the user's, and the Go driver's defaults where the user says nothing.

use lazuli_model::parameter::ParameterError;

/// What the configuration of the node says for every share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Defaults<'a> {
    /// The domain of Azure's storage services: `core.windows.net`.
    pub storage_endpoint_suffix: &'a str,
    /// Whether each mount gets connections of its own (`nosharesock`): the Go driver's default.
    pub own_connections: bool,
    /// Whether files are closed at the server at once (`closetimeo=0`), where the kernel knows how.
    pub closes_at_once: bool,
}

/// What errors call mount options.
const OPTIONS: &str = "mountOptions";

/// The longest value that the kernel's mount API takes, in bytes.
const LONGEST: usize = 255;

/// Options that name a user, or where a password is. The Go driver passes them on, and its own, which come after them,
/// count: they have no effect there, and are left out here.
const CREDENTIALS: [&str; 5] = ["username", "user", "credentials", "cred", "guest"];

/// Options that would mount another thing than the volume, or none.
const REDIRECTING: [&str; 10] =
    ["bind", "rbind", "remount", "move", "loop", "unc", "target", "path", "source", "prefixpath"];

/// The key of an option: what stands before `=`.
fn key(option: &str) -> String {
    option.split_once('=').map_or(option, |(key, _)| key).trim().to_ascii_lowercase()
}

/// Whether an option is about the user or the password, by its key.
fn is_credential(key: &str) -> bool {
    CREDENTIALS.contains(&key) || key.contains("pass")
}

/// An option for a person's eyes: without its value where that may be a secret.
pub fn without_credentials(option: &str) -> String {
    let key = key(option);
    if is_credential(&key) { key } else { option.to_owned() }
}

fn refuse(option: &str, why: &str) -> ParameterError {
    ParameterError::invalid(OPTIONS, without_credentials(option), why)
}

/// Checks one option of the user.
fn check(option: &str) -> Result<(), ParameterError> {
    let key = key(option);
    if option.chars().any(char::is_control) {
        return Err(refuse(&option.escape_debug().to_string(), "allowed are options without control characters"));
    }
    if REDIRECTING.contains(&key.as_str()) {
        return Err(refuse(option, "it would mount something else than this volume; allowed is to leave it out"));
    }
    let value = option.split_once('=').map(|(_, value)| value.trim());
    let is_kerberos = key == "sec" && value.is_some_and(|value| value.to_ascii_lowercase().starts_with("krb5"));
    if is_kerberos || key == "upcall_target" {
        return Err(refuse(
            option,
            "Kerberos needs helpers on the host, which this driver does not install; allowed is to leave it out",
        ));
    }
    if key == "vers" && value.is_some_and(|value| value.starts_with("1.")) {
        return Err(refuse(option, "SMB 1 is not spoken; allowed are 2.1, 3.0, 3.1.1 and to leave it out"));
    }
    if value.is_some_and(|value| value.len() > LONGEST) {
        return Err(refuse(option, "the kernel takes values of at most 255 bytes"));
    }
    Ok(())
}

/// Whether the user has decided about a default: by the same option, or by its opposite.
fn is_decided(options: &[String], keys: &[&str]) -> bool {
    options.iter().map(|option| key(option)).any(|key| keys.contains(&key.as_str()))
}

/// All options, in the order in which they count, and whether they forbid writing.
pub(super) fn options(
    flags: &[String],
    group: &str,
    defaults: &Defaults<'_>,
    warnings: &mut Vec<String>,
) -> Result<(Vec<String>, bool), ParameterError> {
    let mut options: Vec<String> = Vec::new();
    let mut is_read_only = false;
    // An entry of mountOptions may be a list of options itself.
    for option in flags.iter().flat_map(|flags| flags.split(',')).map(str::trim).filter(|option| !option.is_empty()) {
        check(option)?;
        let key = key(option);
        if is_credential(&key) {
            warnings.push(format!(
                "{OPTIONS} has {key}, which is left out: the share is mounted with the key of its account"
            ));
            continue;
        }
        match option {
            "ro" => is_read_only = true,
            "rw" => is_read_only = false,
            _ if !options.iter().any(|there| there == option) => options.push(option.to_owned()),
            _ => {}
        }
    }
    if !group.is_empty() && !is_decided(&options, &["gid", "forcegid", "noforcegid"]) {
        if group.parse::<u32>().is_err() || !group.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(ParameterError::invalid("volume_mount_group", group, "allowed is the number of a group"));
        }
        options.push(format!("gid={group}"));
    }
    let mut default = |decided_by: &[&str], option: &str| {
        if !is_decided(&options, decided_by) {
            options.push(option.to_owned());
        }
    };
    default(&["file_mode"], "file_mode=0777");
    default(&["dir_mode"], "dir_mode=0777");
    default(&["actimeo", "acregmax", "acdirmax"], "actimeo=30");
    default(&["mfsymlinks", "nomfsymlinks"], "mfsymlinks");
    if defaults.own_connections {
        default(&["nosharesock", "sharesock"], "nosharesock");
    }
    if defaults.closes_at_once {
        default(&["closetimeo"], "closetimeo=0");
    }
    Ok((options, is_read_only))
}
