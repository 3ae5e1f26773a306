//! What is set in a mount context, from the options of a user.

use std::net::IpAddr;

use lazuli_model::Secret;
use rustix::mount::{MountAttrFlags, MountFlags};

use super::{Login, Share, SmbError};
use crate::options::Options;

/// The longest text that the kernel takes, in bytes (source: fsconfig in the kernel, 256 with the ending NUL).
pub(super) const LONGEST: usize = 255;

/// Other names that `mount.cifs` has for options of the kernel (source: mount.cifs(8)).
const OTHER_NAMES: [(&str, &str); 2] = [("fmask", "file_mode"), ("dmask", "dir_mode")];

/// One setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Setting {
    Flag(String),
    Text(String, String),
    Password(Secret),
}

impl Setting {
    /// For a person's eyes.
    pub(super) fn shown(&self) -> String {
        match self {
            Self::Flag(key) => key.clone(),
            Self::Text(key, value) => format!("{key}={value}"),
            Self::Password(secret) => format!("password={secret}"),
        }
    }
}

/// The address that the options name themselves.
pub(super) fn address(options: &Options) -> Option<&str> {
    let named = |option: &'_ String| option.split_once('=').is_some_and(|(key, _)| matches!(key, "ip" | "addr"));
    options.data().iter().find(|option| named(option)).map(String::as_str)
}

/// All settings, in their order.
pub(super) fn settings(
    share: &Share,
    login: &Login,
    options: &Options,
    address: Option<IpAddr>,
    source: &str,
) -> Result<Vec<Setting>, SmbError> {
    let text = |key: &str, value: &str| Setting::Text(key.to_owned(), value.to_owned());
    let flag = |key: &str| Setting::Flag(key.to_owned());
    let mut settings = vec![text("source", source)];
    settings.extend(address.map(|address| text("ip", &address.to_string())));
    settings.push(text("username", &login.user));
    settings.push(Setting::Password(login.password.clone()));
    for option in options.data() {
        settings.push(match option.split_once('=') {
            Some((key, value)) => {
                let key = OTHER_NAMES.iter().find(|(other, _)| *other == key).map_or(key, |(_, name)| name);
                text(key, value)
            }
            None => flag(option),
        });
    }
    // These are of the file system, the others of its mount.
    for (is_set, key) in [
        (share.is_read_only || options.is_read_only(), "ro"),
        (options.flags().contains(MountFlags::SYNCHRONOUS), "sync"),
        (options.flags().contains(MountFlags::DIRSYNC), "dirsync"),
        (options.flags().contains(MountFlags::LAZYTIME), "lazytime"),
    ] {
        settings.extend(is_set.then(|| flag(key)));
    }
    for setting in &settings {
        let (key, value) = match setting {
            Setting::Text(key, value) => (key.as_str(), value.as_str()),
            Setting::Password(secret) => ("password", secret.expose()),
            Setting::Flag(_) => continue,
        };
        if value.len() > LONGEST {
            return Err(SmbError::TooLong { key: key.to_owned(), length: value.len() });
        }
    }
    Ok(settings)
}

/// The attributes of the mount.
pub(super) fn attributes(options: &Options, is_read_only: bool) -> MountAttrFlags {
    let flags = options.flags();
    let mut attributes = MountAttrFlags::empty();
    for (flag, attribute) in [
        (MountFlags::RDONLY, MountAttrFlags::MOUNT_ATTR_RDONLY),
        (MountFlags::NOSUID, MountAttrFlags::MOUNT_ATTR_NOSUID),
        (MountFlags::NODEV, MountAttrFlags::MOUNT_ATTR_NODEV),
        (MountFlags::NOEXEC, MountAttrFlags::MOUNT_ATTR_NOEXEC),
        (MountFlags::NOATIME, MountAttrFlags::MOUNT_ATTR_NOATIME),
        (MountFlags::STRICTATIME, MountAttrFlags::MOUNT_ATTR_STRICTATIME),
        (MountFlags::NODIRATIME, MountAttrFlags::MOUNT_ATTR_NODIRATIME),
    ] {
        if flags.contains(flag) {
            attributes |= attribute;
        }
    }
    if is_read_only {
        attributes |= MountAttrFlags::MOUNT_ATTR_RDONLY;
    }
    attributes
}
