//! Mount options as users write them, split into what the kernel takes as flags and what the file
//! system reads itself.
//!
//! Source of the flag names: mount(8), "filesystem-independent mount options". Refuses what would
//! change the kind of the operation (`bind`, `remount`, propagation): that is the driver's to choose.
//! Refuses what reaches beyond the volume: the author of a StorageClass or a PersistentVolume could
//! otherwise read another volume's disk, run a program on the node, or stop the node.

use rustix::mount::MountFlags;

/// The kernel copies one page of options; the last byte ends it (source: mount(2)).
const DATA_MAX: usize = 4095;

/// Kept free for the options that the driver adds itself.
const ADDED_MAX: usize = 64;

/// An option that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    /// It would turn the mount into another operation, or reach beyond the volume.
    #[error("mount option {option} is not allowed for a volume, because {why}: leave it out")]
    NotAllowed {
        /// The option.
        option: String,
        /// Why not.
        why: &'static str,
    },
    /// It has a NUL byte.
    #[error("mount option {option:?} contains a NUL byte")]
    Nul {
        /// The option.
        option: String,
    },
    /// All file system options together exceed what the kernel takes.
    #[error("mount options take {length} bytes; at most {} are allowed", DATA_MAX - ADDED_MAX)]
    TooLong {
        /// Their length.
        length: usize,
    },
}

/// Parsed mount options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    flags: MountFlags,
    data: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self { flags: MountFlags::empty(), data: Vec::new() }
    }
}

impl Options {
    /// Parses options; each item may hold several, separated by commas outside double quotes. A later
    /// option wins over an earlier one.
    ///
    /// # Errors
    /// See [`OptionError`].
    pub fn parse<S: AsRef<str>>(items: &[S]) -> Result<Self, OptionError> {
        let mut options = Self::default();
        for item in items {
            // The kernel's file systems know no quotes: to them a comma between quotes ends an option too.
            for option in item.as_ref().split(',') {
                allowed(option.trim())?;
            }
            for option in split(item.as_ref()) {
                options.add(option.trim())?;
            }
        }
        let length = options.data_string().len();
        if length > DATA_MAX - ADDED_MAX {
            return Err(OptionError::TooLong { length });
        }
        Ok(options)
    }

    /// The same options, read-only.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.flags |= MountFlags::RDONLY;
        self
    }

    /// The same options with `nouuid`, which xfs needs to mount a clone beside its original. The Go
    /// driver adds it to every xfs mount.
    #[must_use]
    pub fn with_nouuid(mut self) -> Self {
        if !self.data.iter().any(|option| option == "nouuid") {
            self.data.push("nouuid".to_owned());
        }
        self
    }

    /// The same options with `errors=remount-ro`, unless they say what to do on an error. An ext file
    /// system may hold another default in its superblock, and `panic` there would stop the node.
    #[must_use]
    pub fn with_read_only_on_error(mut self) -> Self {
        if !self.data.iter().any(|option| option.starts_with("errors=")) {
            self.data.push("errors=remount-ro".to_owned());
        }
        self
    }

    /// Whether `ro` is among them.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.flags.contains(MountFlags::RDONLY)
    }

    /// What the kernel takes as flags.
    #[must_use]
    pub fn flags(&self) -> MountFlags {
        self.flags
    }

    /// What the file system reads, one option each.
    #[must_use]
    pub fn data(&self) -> &[String] {
        &self.data
    }

    /// What the file system reads, comma separated; empty when there is nothing.
    #[must_use]
    pub fn data_string(&self) -> String {
        self.data.join(",")
    }

    fn add(&mut self, option: &str) -> Result<(), OptionError> {
        let owned = || option.to_owned();
        if option.contains('\0') {
            return Err(OptionError::Nul { option: owned() });
        }
        if is_for_userspace(option) {
            return Ok(());
        }
        match flag(option) {
            Some(Flag::Set(flag)) => {
                // The access-time modes exclude each other.
                if ATIME_MODES.contains(flag) {
                    self.flags -= ATIME_MODES;
                }
                self.flags |= flag;
            }
            Some(Flag::Clear(flag)) => self.flags -= flag,
            None => self.data.push(owned()),
        }
        Ok(())
    }
}

const ATIME_MODES: MountFlags = MountFlags::NOATIME.union(MountFlags::RELATIME).union(MountFlags::STRICTATIME);

enum Flag {
    Set(MountFlags),
    Clear(MountFlags),
}

fn flag(option: &str) -> Option<Flag> {
    use Flag::{Clear, Set};
    Some(match option {
        "ro" => Set(MountFlags::RDONLY),
        "rw" => Clear(MountFlags::RDONLY),
        "nosuid" => Set(MountFlags::NOSUID),
        "suid" => Clear(MountFlags::NOSUID),
        "nodev" => Set(MountFlags::NODEV),
        "dev" => Clear(MountFlags::NODEV),
        "noexec" => Set(MountFlags::NOEXEC),
        "exec" => Clear(MountFlags::NOEXEC),
        "sync" => Set(MountFlags::SYNCHRONOUS),
        "async" => Clear(MountFlags::SYNCHRONOUS),
        "dirsync" => Set(MountFlags::DIRSYNC),
        "noatime" => Set(MountFlags::NOATIME),
        "atime" => Clear(MountFlags::NOATIME),
        "nodiratime" => Set(MountFlags::NODIRATIME),
        "diratime" => Clear(MountFlags::NODIRATIME),
        "relatime" => Set(MountFlags::RELATIME),
        "norelatime" => Clear(MountFlags::RELATIME),
        "strictatime" => Set(MountFlags::STRICTATIME),
        "nostrictatime" => Clear(MountFlags::STRICTATIME),
        "lazytime" => Set(MountFlags::LAZYTIME),
        "nolazytime" => Clear(MountFlags::LAZYTIME),
        "silent" => Set(MountFlags::SILENT),
        "loud" => Clear(MountFlags::SILENT),
        _ => return None,
    })
}

/// Refuses what no volume may have. Sources: mount(8), and the kernel's documentation of ext4, xfs and btrfs.
fn allowed(option: &str) -> Result<(), OptionError> {
    let (name, value) = option.split_once('=').map_or((option, ""), |(name, value)| (name, value));
    let why = match name {
        _ if is_operation(name) => "it makes another operation of the mount",
        "logdev" | "rtdev" | "journal_path" | "journal_dev" | "device" | "source" => {
            "it opens another device than the volume's"
        }
        _ if name.starts_with("verity.") => "it opens another device than the volume's",
        "helper" | "uhelper" => "it names a program to run",
        _ if value.trim_matches('"') == "panic" => "an error of the volume would stop the node",
        _ => return Ok(()),
    };
    Err(OptionError::NotAllowed { option: option.to_owned(), why })
}

fn is_operation(name: &str) -> bool {
    matches!(
        name,
        "remount"
            | "bind"
            | "rbind"
            | "move"
            | "shared"
            | "rshared"
            | "slave"
            | "rslave"
            | "private"
            | "rprivate"
            | "unbindable"
            | "runbindable"
            | "loop"
            | "offset"
            | "sizelimit"
    )
}

/// Options that mount(8) and fstab readers act on and no file system knows.
fn is_for_userspace(option: &str) -> bool {
    matches!(
        option,
        "" | "defaults" | "auto" | "noauto" | "nofail" | "_netdev" | "user" | "nouser" | "users" | "owner" | "group"
    ) || option.starts_with("x-")
        || option.starts_with("X-")
        || option.starts_with("comment=")
}

fn split(item: &str) -> impl Iterator<Item = &str> {
    let mut quoted = false;
    item.split(move |letter| {
        if letter == '"' {
            quoted = !quoted;
        }
        letter == ',' && !quoted
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(items: &[&str]) -> Options {
        Options::parse(items).expect("valid options")
    }

    #[test]
    fn generic_options_become_flags_and_the_rest_goes_to_the_file_system() {
        let options = parse(&["noatime,nodiratime", "discard", "barrier=1", "nosuid", "defaults"]);
        assert_eq!(options.flags(), MountFlags::NOATIME | MountFlags::NODIRATIME | MountFlags::NOSUID);
        assert_eq!(options.data_string(), "discard,barrier=1");
    }

    #[test]
    fn the_later_option_wins() {
        assert!(!parse(&["ro", "rw"]).is_read_only());
        assert!(parse(&["rw", "ro"]).is_read_only());
        assert_eq!(parse(&["noatime", "relatime"]).flags(), MountFlags::RELATIME);
    }

    #[test]
    fn options_for_fstab_readers_are_dropped() {
        let options = parse(&["_netdev,nofail,x-systemd.automount,comment=mine", ""]);
        assert_eq!(options, Options::default());
    }

    #[test]
    fn options_that_change_the_operation_are_refused() {
        for option in ["bind", "remount", "rshared", "loop=/dev/loop0", "move"] {
            let error = Options::parse(&[option]).expect_err(option);
            assert!(matches!(error, OptionError::NotAllowed { .. }));
        }
    }

    #[test]
    fn options_that_reach_beyond_the_volume_are_refused() {
        for (option, reason) in [
            ("logdev=/dev/sdc", "another device"),
            ("rtdev=/dev/sdc", "another device"),
            ("journal_path=/dev/sdc", "another device"),
            ("journal_dev=0x803", "another device"),
            ("device=/dev/sdc", "another device"),
            ("source=/dev/sdc", "another device"),
            ("verity.hashdevice=/dev/sdc", "another device"),
            ("uhelper=/tmp/run", "program"),
            ("errors=panic", "stop the node"),
            ("fatal_errors=panic", "stop the node"),
            ("errors=\"panic\"", "stop the node"),
        ] {
            let quoted = format!("x=\"a,{option},b\"");
            for text in [option.to_owned(), format!("noatime, {option}"), quoted] {
                let error = Options::parse(&["discard", &text]).expect_err(&text).to_string();
                assert!(error.contains(&format!("mount option {option} ")) && error.contains(reason), "{error}");
            }
        }
        let good = ["errors=continue,journal_checksum", "subvol=data,compress=zstd", "logbufs=8,data=ordered"];
        assert_eq!(parse(&good).data_string(), good.join(","));
    }

    #[test]
    fn on_an_error_ext_turns_read_only_unless_the_user_says_otherwise() {
        assert_eq!(parse(&["discard"]).with_read_only_on_error().data_string(), "discard,errors=remount-ro");
        assert_eq!(parse(&["errors=continue"]).with_read_only_on_error().data_string(), "errors=continue");
    }

    #[test]
    fn a_quoted_comma_does_not_split() {
        let options = parse(&["context=\"system_u:object_r:x:s0:c1,c2\",discard"]);
        assert_eq!(options.data_string(), "context=\"system_u:object_r:x:s0:c1,c2\",discard");
    }

    #[test]
    fn nouuid_is_added_once() {
        assert_eq!(parse(&["nouuid"]).with_nouuid().data_string(), "nouuid");
        assert_eq!(parse(&[]).with_nouuid().data_string(), "nouuid");
    }

    #[test]
    fn more_than_a_page_is_refused() {
        let error = Options::parse(&["x".repeat(5000)]).expect_err("too long");
        assert_eq!(error, OptionError::TooLong { length: 5000 });
    }
}
