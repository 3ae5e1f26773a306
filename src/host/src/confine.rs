//! What a program may do that reads a disk: its own device, and little else.
//!
//! fsck, mkfs, blkid and their kin parse what a stranger may have written, and a node plugin is privileged. So each of
//! them runs with no capability but those that its work needs, can gain none (`no_new_privs`), may not make the system
//! calls that reach beyond a file (seccomp), and has a mount namespace of its own: the root file system, `proc` and
//! `sys` read-only, a `dev` with its own device and the harmless ones, and no volume but the one that it grows.
//!
//! Capabilities, `no_new_privs`, seccomp filters and the mount namespace belong to a thread, and a process has those of
//! the thread that started it. So a thread is made for each start; it confines itself, starts the program and ends.
//! What this process lacks the rights for is left out, with one warning.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use nix::libc;
use nix::sched::CloneFlags;
use rustix::fs::CWD;
use rustix::mount::{MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags};
use rustix::thread::{CapabilitySet, CapabilitySets};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
};

use super::mountinfo;

/// What a program needs.
#[derive(Clone, Debug)]
pub(super) struct Reach {
    pub(super) capabilities: CapabilitySet,
    /// The device node, as the program gets it.
    pub(super) device: Option<PathBuf>,
    /// Where the file system is mounted that it grows.
    pub(super) mountpoint: Option<PathBuf>,
    /// Whether it mounts: what it makes must be seen outside, and it is not confined.
    pub(super) mounts: bool,
}

impl Default for Reach {
    fn default() -> Self {
        Self { capabilities: CapabilitySet::empty(), device: None, mountpoint: None, mounts: false }
    }
}

impl Default for Confinement {
    fn default() -> Self {
        Self { is_off: false, told: [const { AtomicBool::new(false) }; 4] }
    }
}

/// The confinement of a host's programs, and what of it this process lacks the rights for.
#[derive(Debug)]
pub(super) struct Confinement {
    /// For tests that watch a program from within, or let it write files.
    is_off: bool,
    told: [AtomicBool; 4],
}

/// A part of the confinement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Mounts = 0,
    Capabilities = 1,
    Privileges = 2,
    SystemCalls = 3,
}

impl Part {
    fn in_words(self) -> &'static str {
        match self {
            Self::Mounts => "a mount namespace of their own",
            Self::Capabilities => "fewer capabilities",
            Self::Privileges => "no new privileges",
            Self::SystemCalls => "fewer system calls",
        }
    }
}

/// How far a thread came.
enum Start {
    Started(io::Result<Child>, Vec<(Part, io::Error)>),
    /// Nothing was started: the mount namespace is half made.
    NoMounts(io::Error),
}

impl Confinement {
    #[cfg(test)]
    pub(super) fn off() -> Self {
        Self { is_off: true, ..Self::default() }
    }

    /// Starts what `command` makes, which runs the program at `path`.
    pub(super) fn spawn(
        &self,
        reach: &Reach,
        path: &Path,
        proc: &Path,
        command: &(dyn Fn() -> io::Result<Command> + Sync),
    ) -> io::Result<Child> {
        if self.is_off || reach.mounts {
            return command()?.spawn();
        }
        let with_mounts = match on_own_thread(|| start(reach, Some((path, proc)), command))? {
            Start::NoMounts(error) => {
                self.tell(Part::Mounts, &error);
                on_own_thread(|| start(reach, None, command))?
            }
            started @ Start::Started(..) => started,
        };
        match with_mounts {
            Start::Started(child, lacking) => {
                for (part, error) in lacking {
                    self.tell(part, &error);
                }
                child
            }
            Start::NoMounts(error) => Err(error),
        }
    }

    /// Whether a program had to do without.
    #[cfg(test)]
    pub(super) fn lacks(&self, part: Part) -> bool {
        self.told[part as usize].load(Ordering::Relaxed)
    }

    fn tell(&self, part: Part, error: &io::Error) {
        if !self.told[part as usize].swap(true, Ordering::Relaxed) {
            let part = part.in_words();
            tracing::warn!(%error, "fsck, mkfs and the other programs that read disks cannot get {part}, and do without");
        }
    }
}

pub(super) fn on_own_thread<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("host-start".to_owned()).spawn_scoped(scope, work)?;
        thread.join().map_err(|_| io::Error::other("the starting thread ended"))
    })
}

/// Confines the calling thread and starts the program from it.
fn start(reach: &Reach, view: Option<(&Path, &Path)>, command: &(dyn Fn() -> io::Result<Command> + Sync)) -> Start {
    // Descriptors of this process are opened while its own mounts are in view.
    let mut command = match command() {
        Ok(command) => command,
        Err(error) => return Start::Started(Err(error), Vec::new()),
    };
    if let Some((program, proc)) = view
        && let Err(error) = enter_own_mounts(reach, program, proc)
    {
        return Start::NoMounts(error);
    }
    let mut lacking = Vec::new();
    let mut note = |part, outcome: io::Result<()>| lacking.extend(outcome.err().map(|error| (part, error)));
    note(Part::Capabilities, keep_capabilities(reach.capabilities));
    note(Part::Privileges, rustix::thread::set_no_new_privs(true).map_err(Into::into));
    note(Part::SystemCalls, restrict_system_calls());
    Start::Started(command.spawn(), lacking)
}

/// Drops every other capability from the thread, and from what a program that it starts can have.
pub(super) fn keep_capabilities(kept: CapabilitySet) -> io::Result<()> {
    let own = rustix::thread::capabilities(None)?;
    let kept = kept & own.permitted;
    let mut bounded = Ok(());
    for number in 0..64 {
        let one = CapabilitySet::from_bits_retain(1 << number);
        if kept.contains(one) {
            continue;
        }
        match rustix::thread::remove_capability_from_bounding_set(one) {
            Ok(()) => {}
            // The kernel has no capability of this number and none above it.
            Err(rustix::io::Errno::INVAL) => break,
            Err(error) => bounded = Err(error.into()),
        }
    }
    let _ = rustix::thread::clear_ambient_capability_set();
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    rustix::thread::set_capabilities(None, sets)?;
    bounded
}

/// System calls that reach beyond a program's own files and memory: other processes, mounts, namespaces, the network,
/// the kernel itself, and its least tried corners.
const DENIED: [libc::c_long; 58] = [
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_kcmp,
    libc::SYS_pidfd_getfd,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_send_signal,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    libc::SYS_mknodat,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_quotactl,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_acct,
    libc::SYS_syslog,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_personality,
    libc::SYS_setuid,
    libc::SYS_setresuid,
    libc::SYS_fanotify_init,
    libc::SYS_vhangup,
];

/// The flags of `clone` that make a namespace.
const NAMESPACES: [libc::c_int; 7] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWCGROUP,
];

fn restrict_system_calls() -> io::Result<()> {
    for filter in filters().map_err(io::Error::other)? {
        seccompiler::apply_filter(&filter).map_err(io::Error::other)?;
    }
    Ok(())
}

fn filters() -> Result<[BpfProgram; 2], seccompiler::BackendError> {
    let mut denied: BTreeMap<i64, Vec<SeccompRule>> = DENIED.into_iter().map(|call| (call, Vec::new())).collect();
    let namespace = |flag: libc::c_int| {
        let flag = u64::from(flag.unsigned_abs());
        let is_set = SeccompCondition::new(0, SeccompCmpArgLen::Qword, SeccompCmpOp::MaskedEq(flag), flag)?;
        SeccompRule::new(vec![is_set])
    };
    denied.insert(libc::SYS_clone, NAMESPACES.into_iter().map(namespace).collect::<Result<_, _>>()?);
    // A filter cannot see the flags of clone3, which are in memory; without it the C library uses clone.
    let unseen: BTreeMap<i64, Vec<SeccompRule>> = [(libc::SYS_clone3, Vec::new())].into();
    let errno = |number: libc::c_int| SeccompAction::Errno(number.unsigned_abs());
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    let filter = |rules: BTreeMap<i64, Vec<SeccompRule>>, number| -> Result<BpfProgram, seccompiler::BackendError> {
        SeccompFilter::new(other_numbers(rules), SeccompAction::Allow, errno(number), arch)?.try_into()
    };
    Ok([filter(unseen, libc::ENOSYS)?, filter(denied, libc::EPERM)?])
}

/// The same calls by every number that this architecture has for them: x86-64 may also take them as x32, with a bit set
/// (source: `__X32_SYSCALL_BIT`).
fn other_numbers(rules: BTreeMap<i64, Vec<SeccompRule>>) -> BTreeMap<i64, Vec<SeccompRule>> {
    if !cfg!(target_arch = "x86_64") {
        return rules;
    }
    let x32 = rules.clone().into_iter().map(|(call, rules)| (call | 0x4000_0000, rules));
    rules.into_iter().chain(x32).collect()
}

/// Devices that every program may use.
const HARMLESS: [&str; 5] = ["null", "zero", "full", "random", "urandom"];

/// Where the new root is put together: a folder that every root has.
const STAGE: &str = "/proc";

/// Moves the thread into a mount namespace that shows what the program needs. Nothing of it shows outside, and nothing
/// there keeps a volume from being unmounted: the copies of all other mounts are unmounted at once.
fn enter_own_mounts(reach: &Reach, program: &Path, proc: &Path) -> io::Result<()> {
    let table = mountinfo::read(&proc.join("self/mountinfo"))?;
    let real = |path: &Path| fs::canonicalize(path);
    let mut needed: Vec<PathBuf> = ["/proc", "/sys"].map(PathBuf::from).to_vec();
    // Programs, their libraries and settings may each be on a file system of their own.
    needed
        .extend(["/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc"].iter().filter_map(|path| real(path.as_ref()).ok()));
    needed.push(real(program)?);
    let mut devices: Vec<PathBuf> = HARMLESS.iter().map(|name| Path::new("/dev").join(name)).collect();
    devices.retain(|device| device.exists());
    if let Some(device) = &reach.device {
        needed.extend(device.parent().map(real).transpose()?);
        devices.push(real(device)?);
    }
    let mountpoint = reach.mountpoint.as_deref().map(real).transpose()?;
    needed.extend(mountpoint.clone());
    nix::sched::unshare(CloneFlags::CLONE_NEWNS)?;
    rustix::mount::mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;

    let mut places: Vec<&Path> = table.iter().map(|mount| &*mount.target).collect();
    places.retain(|place| {
        let is_above = needed.iter().any(|path| path.starts_with(place));
        is_above && *place != Path::new("/") && !place.starts_with("/dev")
    });
    // What is above comes first.
    places.sort_by_key(|place| (place.components().count(), *place));
    places.dedup();
    let copy = |place: &Path| -> io::Result<OwnedFd> {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        Ok(rustix::mount::open_tree(CWD, place, flags)?)
    };
    let root = copy(Path::new("/"))?;
    let copies = places.iter().map(|place| Ok((*place, copy(place)?))).collect::<io::Result<Vec<_>>>()?;
    let inside = |place: &Path| Path::new(STAGE).join(place.strip_prefix("/").unwrap_or(place));
    let put = |tree: &OwnedFd, place: &Path| {
        rustix::mount::move_mount(tree, "", CWD, place, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
    };
    put(&root, Path::new(STAGE))?;
    drop(root);
    for (place, tree) in &copies {
        put(tree, &inside(place))?;
    }
    let read_only = |place: &Path| {
        let flags = MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID;
        rustix::mount::mount_remount(place, flags, c"")
    };
    let dev = inside(Path::new("/dev"));
    sys_mount::Mount::builder()
        .fstype("tmpfs")
        .flags(sys_mount::MountFlags::NOSUID | sys_mount::MountFlags::NOEXEC)
        .data("mode=755,size=64k")
        .mount("tmpfs", &dev)?;
    for device in &devices {
        let place = inside(device);
        if device.parent() != Some(Path::new("/dev")) {
            return Err(io::Error::other(format!("{} is not in /dev", device.display())));
        }
        fs::File::create_new(&place)?;
        rustix::mount::mount_bind(device, &place)?;
    }
    for (place, _) in &copies {
        if mountpoint.as_deref() != Some(place) {
            read_only(&inside(place))?;
        }
    }
    drop(copies);
    read_only(Path::new(STAGE))?;
    // The new root over the old one, and the old one away with all that is below it (source: pivot_root(2), the last
    // of its notes).
    rustix::process::chdir(STAGE)?;
    rustix::process::pivot_root(".", ".")?;
    rustix::mount::unmount(".", UnmountFlags::DETACH)?;
    rustix::process::chdir("/")?;
    Ok(())
}
