//! A process that holds credentials leaves no copy of its memory behind when it crashes.

use std::io;

use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};

/// Forbids core dumps of this process, and with the limit those of its children.
///
/// Both are needed. A limit of 0 writes no file, but the kernel still sends the memory to a handler where
/// `core_pattern` names one, such as systemd-coredump; a process that is not dumpable is dumped in neither way (source:
/// core(5), prctl(2)). It cannot be traced by another process of its user either, and its files below /proc belong to
/// root.
///
/// # Errors
/// What the kernel said.
pub(super) fn forbid() -> io::Result<()> {
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    Ok(())
}
