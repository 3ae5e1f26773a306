//! What a machine without `cifs` can prove; the guest tier mounts.

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use super::*;
use crate::device_number::DeviceNumber;
use crate::lab::{TempDir, long};

const PASSWORD: &str = "c2VjcmV0LWtleQ==";

fn share(options: &[&str]) -> Share {
    Share {
        server: "f1.file.core.windows.net".to_owned(),
        share: "data".to_owned(),
        folder: None,
        makes_folder: false,
        options: options.iter().map(|option| (*option).to_owned()).collect(),
        is_read_only: false,
    }
}

fn login() -> Login {
    Login { user: "f1".to_owned(), password: Secret::new(PASSWORD) }
}

fn shown(share: &Share, address: Option<IpAddr>) -> Vec<String> {
    let options = Options::parse(&share.options).expect("options");
    let settings = settings::settings(share, &login(), &options, address, &share.source()).expect("short enough");
    settings.iter().map(Setting::shown).collect()
}

#[test]
fn settings_hold_the_source_the_address_and_the_options_of_the_file_system_alone() {
    let mut share = share(&["file_mode=0777,dmask=0750", "mfsymlinks", "nosuid,noexec,_netdev", "sync"]);
    share.folder = Some("a/b".to_owned());
    share.is_read_only = true;
    let address = "10.0.0.4".parse().expect("an address");
    let expected = [
        "source=//f1.file.core.windows.net/data/a/b",
        "ip=10.0.0.4",
        "username=f1",
        "password=<redacted>",
        "file_mode=0777",
        "dir_mode=0750",
        "mfsymlinks",
        "ro",
        "sync",
    ];
    assert_eq!(shown(&share, Some(address)), expected);
    let options = Options::parse(&share.options).expect("options");
    let attributes = settings::attributes(&options, true);
    let flags = [
        rustix::mount::MountAttrFlags::MOUNT_ATTR_RDONLY,
        rustix::mount::MountAttrFlags::MOUNT_ATTR_NOSUID,
        rustix::mount::MountAttrFlags::MOUNT_ATTR_NOEXEC,
    ];
    assert_eq!(attributes, flags.into_iter().collect());
}

#[test]
fn an_address_that_the_user_names_is_not_resolved() {
    let share = share(&["ip=10.0.0.9"]);
    let options = Options::parse(&share.options).expect("options");
    assert_eq!(settings::address(&options), Some("ip=10.0.0.9"));
    assert_eq!(shown(&share, None).iter().filter(|setting| setting.starts_with("ip=")).count(), 1);
}

#[test]
fn what_the_kernel_would_cut_is_refused_by_name_and_length() {
    let share = share(&[]);
    let long = "x".repeat(256);
    let refused = settings::settings(&share, &login(), &Options::default(), None, &long).expect_err("too long");
    assert_eq!(refused.to_string(), "source has 256 bytes; the kernel takes 255 at most");
    let login = Login { password: Secret::new(long), ..login() };
    let refused = settings::settings(&share, &login, &Options::default(), None, "//a/b").expect_err("too long");
    assert_eq!(refused.to_string(), "password has 256 bytes; the kernel takes 255 at most");
}

#[test]
fn each_error_of_the_kernel_says_what_it_means_and_what_to_do() {
    use nix::libc;
    let of = |number| {
        let source = io_error(number);
        error::of_errno("mount", "//s/data", "s", "f1", source, "VFS: no luck".to_owned())
    };
    for (number, parts) in [
        (libc::EACCES, ["account f1 mount //s/data (VFS: no luck)", "rotated", "firewall"]),
        (libc::ENOENT, ["no share or folder //s/data", "createFolderIfNotExist", "ciphers"]),
        (libc::ECONNREFUSED, ["//s/data does not answer on TCP port 445", "firewall", "private endpoint"]),
        (libc::EHOSTDOWN, ["does not answer", "route", "tried again"]),
        (libc::ETIMEDOUT, ["does not answer", "route", "tried again"]),
        (libc::ENODEV, ["no module cifs", "install it", "off this node"]),
        (libc::EOPNOTSUPP, ["agree on no dialect", "vers=", "sec="]),
        (libc::EINVAL, ["does not take one of the mount options", "VFS: no luck", "mountOptions"]),
        (libc::EMFILE, ["cannot mount //s/data", "VFS", "luck"]),
    ] {
        let text = of(number).to_string();
        for part in parts {
            assert!(text.contains(part), "{number}: {text}");
        }
    }
    assert!(of(libc::ECONNREFUSED).may_be_of_the_address() && !of(libc::EACCES).may_be_of_the_address());
}

fn io_error(number: i32) -> std::io::Error {
    std::io::Error::from_raw_os_error(number)
}

#[test]
fn a_mount_is_recognized_by_server_share_and_folder_whoever_mounted_it() {
    let found = |fs_type: &str, source: &str| Mount {
        id: 1,
        parent: 0,
        device: DeviceNumber { major: 0, minor: 44 },
        root: "/".into(),
        target: "/t".into(),
        options: Vec::new(),
        fs_type: fs_type.to_owned(),
        source: source.into(),
        super_options: Vec::new(),
    };
    let whole = share(&[]);
    let folder = Share { folder: Some("A/b".to_owned()), ..share(&[]) };
    assert!(whole.is_at(&found("cifs", "//F1.file.core.windows.net/Data")));
    assert!(whole.is_at_some_server(&found("cifs", "//other/Data")) && !whole.is_at(&found("cifs", "//other/Data")));
    assert!(
        !whole.is_at_some_server(&found("ext4", "//other/Data")) && !whole.is_at_some_server(&found("cifs", "//h/d"))
    );
    assert!(!folder.is_at_some_server(&found("cifs", "//other/data")));
    assert!(whole.is_at(&found("smb3", "//f1.file.core.windows.net/data/")));
    assert!(folder.is_at(&found("cifs", "\\\\f1.file.core.windows.net\\data\\A\\b")));
    for (share, fs_type, source) in [
        (&whole, "ext4", "//f1.file.core.windows.net/data"),
        (&whole, "cifs", "//f1.file.core.windows.net/data/A/b"),
        (&whole, "cifs", "//f2.file.core.windows.net/data"),
        (&folder, "cifs", "//f1.file.core.windows.net/data/a/b"),
        (&folder, "cifs", "//f1.file.core.windows.net/data"),
    ] {
        assert!(!share.is_at(&found(fs_type, source)), "{source}");
    }
}

#[tokio::test]
async fn a_name_that_nobody_knows_is_an_error_about_the_name() {
    let unknown = resolve(&Host::new(), "account.file.invalid", long()).await.expect_err("no such name");
    assert!(unknown.to_string().contains("account.file.invalid"), "{unknown}");
    let numeric = resolve(&Host::new(), "[::1]", Deadline::after(Duration::ZERO)).await.expect("needs no resolver");
    assert_eq!(numeric, ["::1".parse::<IpAddr>().expect("an address")]);
}

/// A stand-in for `mount.cifs` that notes how it was called, and answers so.
fn stand_in(folder: &TempDir, answer: &str) -> Host {
    let script = format!(
        "#!/bin/sh\necho \"$@\" >{0}/arguments\ncat /proc/$$/environ >{0}/environment\n\
         [ \"$PASSWD_FD\" = 0 ] && cat >{0}/password\n{answer}\n",
        folder.path().display()
    );
    let path = folder.path().join("mount.cifs");
    std::fs::write(&path, script).expect("written");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("its mode");
    Host::new().with_search(vec![folder.path().to_owned(), "/usr/bin".into(), "/bin".into()])
}

#[tokio::test]
async fn mount_cifs_gets_the_password_through_a_descriptor_alone() {
    let folder = TempDir::new("smb");
    let host = stand_in(&folder, "exit 0");
    let mut share = share(&["file_mode=0777"]);
    share.is_read_only = true;
    let address = Some("10.0.0.4".parse().expect("an address"));
    program::mount(&host, &share, &login(), address, Path::new("/mnt/a"), long()).await.expect("it says so");
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).expect(name);
    assert_eq!(
        read("arguments").trim(),
        "//f1.file.core.windows.net/data /mnt/a -o file_mode=0777,ro,ip=10.0.0.4,username=f1"
    );
    assert_eq!(read("password"), PASSWORD);
    assert!(read("environment").contains("PASSWD_FD=0") && !read("environment").contains(PASSWORD));
}

#[tokio::test]
async fn what_mount_cifs_says_becomes_the_same_errors_without_the_password() {
    for (answer, says) in [
        ("echo 'mount error(13): Permission denied' >&2; exit 32", "does not let account f1 mount"),
        ("echo 'mount error(2): No such file or directory' >&2; exit 32", "no share or folder"),
        ("echo 'mount error(111): could not connect' >&2; exit 32", "does not answer"),
        ("echo 'odd c2VjcmV0LWtleQ== words' >&2; exit 1", "exit code 1: odd <redacted> words"),
    ] {
        let folder = TempDir::new("smb");
        let host = stand_in(&folder, answer);
        let failed = program::mount(&host, &share(&[]), &login(), None, Path::new("/mnt/a"), long()).await;
        let failed = failed.expect_err(answer).to_string();
        assert!(failed.contains(says), "{failed}");
    }
}

#[test]
fn no_debug_form_shows_the_password() {
    let text = format!("{:?} {:?}", login(), Setting::Password(Secret::new(PASSWORD)));
    assert!(!text.contains(PASSWORD), "{text}");
    let call = crate::child::Call::new("mount.cifs", &["a"]).with_password(&Secret::new(PASSWORD));
    assert!(!format!("{call:?}").contains(PASSWORD));
}
