//! Mounting, binding and unmounting, each safe to repeat after a crash at any step.
//!
//! The only file of this crate that mounts volumes. A file system goes through `sys-mount` with its
//! type named (never guessed by trial); binds, remounts and unmounts through `rustix` (`sys-mount`
//! 3.1.1 defines UMOUNT_NOFOLLOW with the value of O_NOFOLLOW, which the kernel refuses). Unmounts
//! are plain: never lazy, because MNT_DETACH of a present disk reports success with dirty pages and
//! open files behind it, and never through a symbolic link.
//!
//! Targets are named by their canonical parent plus their own last name, so that a dead file system
//! at the target does not hang or fail its lookup.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use lazuli_staging::{AtPath, Mounted};
use rustix::mount::{MountFlags, UnmountFlags};

use super::bounded::{self, CallError};
use super::device::{Device, is_still, node_number};
use super::device_number::DeviceNumber;
use super::mountinfo::{self, Mount};
use super::options::Options;
use super::{Deadline, Host, raw};

/// A mount, bind or unmount that did not come to be.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// Something else is mounted at the target.
    #[error("{} is taken: {found}", target.display())]
    Occupied {
        /// The target.
        target: PathBuf,
        /// What is there.
        found: String,
    },
    /// The target is no plain absolute path below an existing folder.
    #[error("{} cannot be a mount point: {why}", target.display())]
    BadTarget {
        /// The target.
        target: PathBuf,
        /// Why not.
        why: String,
    },
    /// The source of a bind cannot be resolved.
    #[error("cannot bind from {}", bind_source.display())]
    Source {
        /// The source.
        bind_source: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// Files are open below the target.
    #[error("{} is busy", target.display())]
    Busy {
        /// The target.
        target: PathBuf,
    },
    /// A folder that should be empty once unmounted is not. Nothing in it is deleted.
    #[error("{} is not empty and not removed", target.display())]
    NotEmpty {
        /// The target.
        target: PathBuf,
    },
    /// The system call failed.
    #[error("cannot {action} {}", target.display())]
    System {
        /// What was tried.
        action: &'static str,
        /// The target.
        target: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The kernel does not take the file system with these options.
    #[error(
        "the kernel does not mount {fs_type} on {} with the options \"{options}\": one of them is wrong for {fs_type}, \
         or the file system is damaged",
        target.display()
    )]
    Rejected {
        /// The target.
        target: PathBuf,
        /// The type.
        fs_type: String,
        /// What the file system was to read.
        options: String,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The system call did not return, or could not be tried.
    #[error("no answer from the kernel")]
    Call(#[source] CallError),
    /// The mount table could not be read.
    #[error("cannot read {}", path.display())]
    Table {
        /// The table.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
}

/// Whether there was anything to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// Done now.
    Now,
    /// It was so already.
    Already,
}

/// What a bind target is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetKind {
    /// A folder, for a file system.
    Directory,
    /// A file, for a block device.
    File,
}

impl TargetKind {
    fn in_words(self) -> &'static str {
        match self {
            Self::Directory => "a folder",
            Self::File => "a file",
        }
    }
}

/// What is at a target path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetState {
    /// No such path.
    Absent,
    /// A path with nothing mounted on it.
    Bare(TargetKind),
    /// Healthy mounts, bottom first.
    Mounted(Vec<Mount>),
    /// Mounts that no longer answer: a dead disk or server.
    Corrupted {
        /// The mounts, bottom first.
        mounts: Vec<Mount>,
        /// What looking at it said.
        error: String,
    },
}

/// This process's mount table.
///
/// # Errors
/// [`MountError::Table`].
pub async fn table(host: &Host) -> Result<Vec<Mount>, MountError> {
    let path = host.proc.join("self/mountinfo");
    let result = tokio::task::spawn_blocking({
        let path = path.clone();
        move || mountinfo::read(&path)
    })
    .await
    .unwrap_or_else(|_| Err(io::Error::other("the reading task was lost")));
    result.map_err(|source| MountError::Table { path, source })
}

/// This process's mount table, and the block devices that the mounts lead to.
///
/// # Errors
/// [`MountError::Table`].
pub async fn seen(host: &Host) -> Result<Vec<Mounted>, MountError> {
    let table = table(host).await?;
    let lost =
        || MountError::Table { path: host.proc.join("self/mountinfo"), source: io::Error::other("a task was lost") };
    tokio::task::spawn_blocking(move || table.into_iter().map(leading).collect()).await.map_err(|_| lost())
}

/// What is mounted on top of a path.
///
/// # Errors
/// See [`state`].
pub async fn seen_at(host: &Host, target: &Path, deadline: Deadline) -> Result<AtPath, MountError> {
    let top = |mounts: Vec<Mount>| mounts.into_iter().next_back().map(|top| Box::new(leading(top)));
    Ok(match state(host, target, deadline).await? {
        TargetState::Absent | TargetState::Bare(_) => AtPath::Nothing,
        TargetState::Mounted(mounts) => top(mounts).map_or(AtPath::Nothing, AtPath::Mounted),
        TargetState::Corrupted { mounts, error } => AtPath::Dead { top: top(mounts), error },
    })
}

/// The number of the device that a mounted file system is on.
#[must_use]
pub fn number_of(mount: &Mount) -> DeviceNumber {
    leading(mount.clone()).number()
}

/// Only a node that may tell a device is looked at: what others have mounted may hang whoever looks.
fn leading(mount: Mount) -> Mounted {
    let source = mount.is_told_by_source().then(|| node_number(&mount.source)).flatten();
    let node = mount.may_show_node().then(|| node_number(&mount.target)).flatten();
    Mounted { mount, source, node }
}

pub(super) fn matches(mount: &Mount, device: &Device, fs_type: &str, read_only: bool) -> bool {
    is_of(mount, device) && mount.fs_type == fs_type && mount.root == Path::new("/") && mount.read_only() == read_only
}

/// Whether a mount is of this device: by number, or by its source for btrfs, whose mounts carry an
/// anonymous number.
#[must_use]
pub fn is_of(mount: &Mount, device: &Device) -> bool {
    mount.device == device.number
        || (mount.device.major == 0 && mount.source.is_absolute() && node_number(&mount.source) == Some(device.number))
}

/// The target with its parent resolved, as the mount table names it. A missing parent leaves the
/// path as it is: then nothing is mounted there either.
fn canonical(target: &Path) -> Result<PathBuf, MountError> {
    let bad = |why: &str| MountError::BadTarget { target: target.to_path_buf(), why: why.to_owned() };
    if !target.is_absolute() {
        return Err(bad("it is not absolute"));
    }
    if target.as_os_str().as_encoded_bytes().contains(&0) {
        return Err(bad("it contains a NUL byte"));
    }
    let (Some(parent), Some(name)) = (target.parent(), target.file_name()) else {
        return Err(bad("it has no parent"));
    };
    match fs::canonicalize(parent) {
        Ok(parent) => Ok(parent.join(name)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(target.to_path_buf()),
        Err(source) => Err(system("resolve", target, source)),
    }
}

/// A path as the mount table names it: `/var/lib/kubelet` may be a link. Its last name is never looked at, so that a
/// dead file system there does not hang the caller.
#[must_use]
pub fn as_mounted(path: &Path) -> PathBuf {
    match (path.parent().map(fs::canonicalize), path.file_name()) {
        (Some(Ok(parent)), Some(name)) => parent.join(name),
        _ => path.to_owned(),
    }
}

pub(super) fn system(action: &'static str, target: &Path, source: io::Error) -> MountError {
    MountError::System { action, target: target.to_path_buf(), source }
}

/// Runs blocking work on one target under the gate of mount calls.
async fn gated<T: Send + 'static>(
    host: &Host,
    call: &'static str,
    target: &Path,
    deadline: Deadline,
    work: impl FnOnce() -> Result<T, MountError> + Send + 'static,
) -> Result<T, MountError> {
    bounded::call(&host.mounts, call, target, deadline, work).await.map_err(MountError::Call)?
}

/// Creates a bind or mount target when it is missing: a folder with its parents (mode 0750, as
/// kubelet's own), or an empty file.
///
/// # Errors
/// [`MountError::BadTarget`] when something of another kind is there.
pub async fn ensure_target(
    host: &Host,
    target: &Path,
    kind: TargetKind,
    deadline: Deadline,
) -> Result<Done, MountError> {
    let path = target.to_path_buf();
    let table = host.proc.join("self/mountinfo");
    gated(host, "mkdir", target, deadline, move || make_target(&path, kind, &table)).await
}

fn make_target(target: &Path, kind: TargetKind, table: &Path) -> Result<Done, MountError> {
    let make_dir = |path: &Path| {
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o750).create(path)
    };
    match fs::symlink_metadata(target) {
        Ok(found) => {
            let fits = match kind {
                TargetKind::Directory => found.is_dir(),
                // A block device is what a finished bind shows.
                TargetKind::File => found.is_file() || found.file_type().is_block_device(),
            };
            if fits {
                return Ok(Done::Already);
            }
            Err(MountError::BadTarget {
                target: target.to_path_buf(),
                why: format!("it is {}, not {}", in_words(found.file_type()), kind.in_words()),
            })
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let made = match kind {
                TargetKind::Directory => make_dir(target),
                TargetKind::File => target.parent().map_or(Ok(()), make_dir).and_then(|()| make_file(target)),
            };
            made.map_err(|source| system("create", target, source))?;
            Ok(Done::Now)
        }
        // A dead mount is there; mounting over it is refused later, unmounting works.
        Err(error) if is_corruption(&error, &stack(table, &canonical(target)?)?) => Ok(Done::Already),
        Err(source) => Err(system("look at", target, source)),
    }
}

fn in_words(kind: fs::FileType) -> &'static str {
    match kind {
        kind if kind.is_dir() => "a folder",
        kind if kind.is_symlink() => "a symbolic link",
        kind if kind.is_block_device() => "a block device",
        kind if kind.is_file() => "a file",
        _ => "a device, pipe or socket",
    }
}

fn make_file(path: &Path) -> io::Result<()> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o660);
    options.open(path).map(drop)
}

/// Whether an error of looking at a path means that what is mounted there is dead. Some file systems check what they
/// read from the disk, and report content that is not theirs: ext4 and xfs as `EUCLEAN`, or as `EBADMSG` where a checksum
/// is wrong (source: `EFSCORRUPTED` and `EFSBADCRC` in the kernel). File shares report errors of the network. Of the mounts
/// at the path, SMB shares alone report `EAGAIN` where the server is there and the share is not any more; any other file
/// system means that it is to be tried again.
pub(super) fn is_corruption(error: &io::Error, mounts: &[Mount]) -> bool {
    use nix::libc;
    let is_share = || mounts.last().is_some_and(super::smb::is_share);
    error.raw_os_error() == Some(libc::EAGAIN) && is_share()
        || matches!(
            error.raw_os_error(),
            Some(
                libc::ENOTCONN
                    | libc::EIO
                    | libc::ESTALE
                    | libc::EHOSTDOWN
                    | libc::ESHUTDOWN
                    | libc::ENODEV
                    | libc::ENXIO
                    | libc::EUCLEAN
                    | libc::EBADMSG
                    | libc::ETIMEDOUT
                    | libc::ECONNRESET
                    | libc::ECONNABORTED
                    | libc::EHOSTUNREACH
                    | libc::ENETUNREACH
            )
        )
}

/// What is at `target`. A mounted folder is also listed: a dead disk still answers `stat` from the
/// cache.
///
/// # Errors
/// [`MountError::Call`] when even looking does not return.
pub async fn state(host: &Host, target: &Path, deadline: Deadline) -> Result<TargetState, MountError> {
    let path = target.to_path_buf();
    let table_path = host.proc.join("self/mountinfo");
    gated(host, "stat", target, deadline, move || {
        let place = canonical(&path)?;
        let mounts = stack(&table_path, &place)?;
        let seen = fs::symlink_metadata(&place).and_then(|found| {
            if found.is_dir() && !mounts.is_empty() {
                fs::read_dir(&place)?.next().transpose()?;
            }
            Ok(found)
        });
        match seen {
            Ok(_) if !mounts.is_empty() => Ok(TargetState::Mounted(mounts)),
            Ok(found) if found.is_dir() => Ok(TargetState::Bare(TargetKind::Directory)),
            Ok(_) => Ok(TargetState::Bare(TargetKind::File)),
            // What is mounted there has no root any more: a share that was deleted.
            Err(error) if error.kind() == io::ErrorKind::NotFound && mounts.is_empty() => Ok(TargetState::Absent),
            Err(error) if is_corruption(&error, &mounts) || error.kind() == io::ErrorKind::NotFound => {
                Ok(TargetState::Corrupted { mounts, error: error.to_string() })
            }
            Err(source) => Err(system("look at", &path, source)),
        }
    })
    .await
}

fn stack(table: &Path, place: &Path) -> Result<Vec<Mount>, MountError> {
    let all = mountinfo::read(table).map_err(|source| MountError::Table { path: table.to_path_buf(), source })?;
    Ok(mountinfo::at(&all, place).into_iter().cloned().collect())
}

/// Mounts the device's file system at `target`, a folder that exists.
///
/// Already mounted there with the same device, type and writability is [`Done::Already`]; anything
/// else there is [`MountError::Occupied`]. xfs gets `nouuid`, as from the Go driver.
///
/// # Errors
/// See [`MountError`].
pub async fn mount_block(
    host: &Host,
    device: &Device,
    target: &Path,
    fs_type: &str,
    options: &Options,
    deadline: Deadline,
) -> Result<Done, MountError> {
    let (device, fs_type) = (device.clone(), fs_type.to_owned());
    let options = match fs_type.as_str() {
        "xfs" => options.clone().with_nouuid(),
        "ext4" | "ext3" | "ext2" => options.clone().with_read_only_on_error(),
        _ => options.clone(),
    };
    let path = target.to_path_buf();
    let table_path = host.proc.join("self/mountinfo");
    gated(host, "mount", target, deadline, move || {
        let place = canonical(&path)?;
        let read_only = options.is_read_only() || device.read_only;
        if let Some(top) = stack(&table_path, &place)?.last() {
            if matches(top, &device, &fs_type, read_only) {
                return Ok(Done::Already);
            }
            return Err(occupied(&place, top));
        }
        // The real node, not a link to it: that name is what `findmnt` and the Go driver look for.
        let source = fs::canonicalize(&device.path).map_err(|e| system("resolve", &place, e))?;
        if node_number(&source) != Some(device.number) || !is_still(&device) {
            let gone = io::Error::from_raw_os_error(nix::libc::ENODEV);
            return Err(system("mount the vanished device on", &place, gone));
        }
        let flags = sys_mount::MountFlags::from_bits_retain(kernel_bits(options.flags()));
        let data = options.data_string();
        let mut builder = sys_mount::Mount::builder().fstype(fs_type.as_str()).flags(flags);
        if !data.is_empty() {
            builder = builder.data(&data);
        }
        let is_held = |error: &io::Error| error.raw_os_error() == Some(nix::libc::EBUSY);
        raw::once_settled(|| builder.mount(&source, &place), is_held).map_err(|error| match error.raw_os_error() {
            Some(nix::libc::EINVAL) => MountError::Rejected {
                target: place.clone(),
                fs_type: fs_type.clone(),
                options: data.clone(),
                source: error,
            },
            _ => system("mount on", &place, error),
        })?;
        Ok(Done::Now)
    })
    .await
}

fn kernel_bits(flags: MountFlags) -> nix::libc::c_ulong {
    nix::libc::c_ulong::from(flags.bits())
}

fn occupied(target: &Path, top: &Mount) -> MountError {
    MountError::Occupied {
        target: target.to_path_buf(),
        found: format!("{} of {} ({}) with {}", top.fs_type, top.source.display(), top.device, top.options.join(",")),
    }
}

/// Refuses a place where something is mounted.
pub(super) fn refuse_occupied(table: &Path, place: &Path) -> Result<(), MountError> {
    stack(table, place)?.last().map_or(Ok(()), |top| Err(occupied(place, top)))
}

/// Flags that belong to one mount and so may differ between a bind and its source.
const PER_MOUNT: MountFlags = MountFlags::RDONLY
    .union(MountFlags::NOSUID)
    .union(MountFlags::NODEV)
    .union(MountFlags::NOEXEC)
    .union(MountFlags::NOATIME)
    .union(MountFlags::NODIRATIME)
    .union(MountFlags::RELATIME);

/// Binds a folder or a device node to `target`, which exists and is of the same kind.
///
/// Of the options only those of a single mount matter (`ro`, `nosuid`, `nodev`, `noexec`, access
/// times); they are set by a second call, which a repeated request catches up on when a crash came
/// between the two.
///
/// # Errors
/// See [`MountError`].
pub async fn bind(
    host: &Host,
    bind_source: &Path,
    target: &Path,
    options: &Options,
    deadline: Deadline,
) -> Result<Done, MountError> {
    let (from, path) = (bind_source.to_path_buf(), target.to_path_buf());
    let wanted = options.flags() & PER_MOUNT;
    let table_path = host.proc.join("self/mountinfo");
    gated(host, "bind", target, deadline, move || {
        let place = canonical(&path)?;
        let resolve_error = |source| MountError::Source { bind_source: from.clone(), source };
        let source = fs::canonicalize(&from).map_err(resolve_error)?;
        let expected = visible_at(&table_path, &source)?;
        let before = stack(&table_path, &place)?;
        let mut done = Done::Already;
        match before.last() {
            Some(top) if (top.device, &top.root) != (expected.device, &expected.root) => {
                return Err(occupied(&place, top));
            }
            Some(_) => {}
            None => {
                rustix::mount::mount_bind(&source, &place).map_err(|errno| system("bind to", &place, errno.into()))?;
                done = Done::Now;
            }
        }
        let after = stack(&table_path, &place)?;
        let Some(top) = after.last() else {
            let vanished = io::Error::other("the mount vanished");
            return Err(system("bind to", &place, vanished));
        };
        let has = flags_of(top);
        // Written through although it must not be, or the other way round, but not by our own cut.
        if has.contains(MountFlags::RDONLY) && !wanted.contains(MountFlags::RDONLY) && !expected.read_only() {
            return Err(occupied(&place, top));
        }
        if !has.contains(wanted) {
            rustix::mount::mount_remount(&place, MountFlags::BIND | wanted | has, c"")
                .map_err(|errno| system("set the options of", &place, errno.into()))?;
            done = Done::Now;
        }
        Ok(done)
    })
    .await
}

fn flags_of(mount: &Mount) -> MountFlags {
    // Only the options of the mount itself: the words are the same as a user's.
    Options::parse(&mount.options).map_or(MountFlags::empty(), |options| options.flags()) & PER_MOUNT
}

/// The mount that shows `path`, with its root extended to `path` itself: what a bind of it will show.
fn visible_at(table: &Path, path: &Path) -> Result<Mount, MountError> {
    let all = mountinfo::read(table).map_err(|source| MountError::Table { path: table.to_path_buf(), source })?;
    let covers = |mount: &&Mount| path.starts_with(&mount.target);
    // The longest target wins; of equals the last one is on top.
    let deepest = all.iter().filter(covers).max_by_key(|mount| mount.target.components().count());
    let Some(mount) = deepest else {
        return Err(MountError::Source {
            bind_source: path.to_path_buf(),
            source: io::Error::from(io::ErrorKind::NotFound),
        });
    };
    let rest = path.strip_prefix(&mount.target).unwrap_or(path);
    let mut extended = mount.clone();
    if rest != Path::new("") {
        extended.root = mount.root.join(rest);
    }
    Ok(extended)
}

/// Unmounts everything at `target`, topmost first, and returns how many mounts that were. Nothing
/// mounted, or no such path, is success.
///
/// # Errors
/// [`MountError::Busy`] when something below is in use; see [`super::release`] for who.
pub async fn unmount(host: &Host, target: &Path, deadline: Deadline) -> Result<usize, MountError> {
    let path = target.to_path_buf();
    let table_path = host.proc.join("self/mountinfo");
    gated(host, "umount", target, deadline, move || unmount_all(&table_path, &canonical(&path)?)).await
}

/// How long an unmount that finds its target busy is tried again. A process being started holds copies of all our open
/// files for an instant, between its fork and its exec, whatever their close-on-exec flags say.
const SETTLE: Duration = Duration::from_millis(300);

pub(super) fn unmount_all(table: &Path, place: &Path) -> Result<usize, MountError> {
    let mut count = 0;
    let settled = Instant::now() + SETTLE;
    let mut left = stack(table, place)?.len();
    while left > 0 {
        match rustix::mount::unmount(place, UnmountFlags::NOFOLLOW) {
            Ok(()) => count += 1,
            // Someone else took it away in between.
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOENT) => {}
            Err(rustix::io::Errno::BUSY) if Instant::now() < settled => {
                thread::sleep(Duration::from_millis(10));
                continue;
            }
            Err(rustix::io::Errno::BUSY) => {
                return Err(MountError::Busy { target: place.to_path_buf() });
            }
            Err(errno) => return Err(system("unmount", place, errno.into())),
        }
        let now = stack(table, place)?.len();
        if now >= left {
            let source = io::Error::other("it is still mounted after an unmount");
            return Err(system("unmount", place, source));
        }
        left = now;
    }
    Ok(count)
}

/// Unmounts everything at `target` and removes the empty folder or file. Repeating it is success.
///
/// Data that lies in the folder itself (written while nothing was mounted) is never deleted.
///
/// # Errors
/// See [`MountError`].
pub async fn remove_target(host: &Host, target: &Path, deadline: Deadline) -> Result<(), MountError> {
    let path = target.to_path_buf();
    let table_path = host.proc.join("self/mountinfo");
    gated(host, "umount", target, deadline, move || {
        let place = canonical(&path)?;
        unmount_all(&table_path, &place)?;
        remove_empty(&place)
    })
    .await
}

fn remove_empty(place: &Path) -> Result<(), MountError> {
    let not_empty = || MountError::NotEmpty { target: place.to_path_buf() };
    let found = match fs::symlink_metadata(place) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(source) => return Err(system("look at", place, source)),
    };
    let removed = if found.is_dir() {
        fs::remove_dir(place)
    } else if found.is_file() && found.len() == 0 {
        fs::remove_file(place)
    } else {
        return Err(not_empty());
    };
    match removed {
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Err(not_empty()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other.map_err(|source| system("remove", place, source)),
    }
}

/// The names under which a device may appear as the source of a mount.
pub(super) fn source_names(host: &Host, device: &Device) -> Vec<PathBuf> {
    let mut names =
        vec![device.path.clone(), Path::new("/dev").join(OsStr::new(&device.name)), host.dev().join(&device.name)];
    names.extend(fs::canonicalize(&device.path));
    names.sort();
    names.dedup();
    names
}
