//! What happens to the names in a directory, as events.

use std::{
    ffi::{OsStr, OsString},
    io,
    mem::MaybeUninit,
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::Path,
};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use tokio::io::unix::AsyncFd;

/// A watch on one directory.
#[derive(Debug)]
pub(super) struct DirectoryWatch {
    descriptor: AsyncFd<OwnedFd>,
}

/// What happened since the last look.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Changes {
    /// Names that are gone.
    pub(super) removed: Vec<OsString>,
}

impl DirectoryWatch {
    /// Watches the directory for names that come, go or are replaced, and for its own removal.
    pub(super) fn new(directory: &Path) -> io::Result<Self> {
        let descriptor = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        let flags = WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVE
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF;
        inotify::add_watch(&descriptor, directory, flags)?;
        #[expect(deprecated, reason = "its successor is unsafe; an owned descriptor keeps the promise it asks for")]
        let descriptor = AsyncFd::new(descriptor)?;
        Ok(Self { descriptor })
    }

    /// Waits for something to happen and returns everything that did.
    ///
    /// Dropping the future loses nothing: an event is only taken in the step that returns it.
    pub(super) async fn changes(&mut self) -> io::Result<Changes> {
        loop {
            let mut ready = self.descriptor.readable().await?;
            let mut buffer = [MaybeUninit::uninit(); 4096];
            let mut reader = inotify::Reader::new(ready.get_inner(), &mut buffer);
            let mut changes = Changes::default();
            let mut any = false;
            loop {
                match reader.next() {
                    Ok(event) => {
                        any = true;
                        let gone = ReadFlags::DELETE | ReadFlags::MOVED_FROM;
                        if let Some(name) = event.file_name()
                            && event.events().intersects(gone)
                        {
                            changes.removed.push(OsStr::from_bytes(name.to_bytes()).to_owned());
                        }
                    }
                    Err(rustix::io::Errno::AGAIN) => break,
                    Err(error) => return Err(error.into()),
                }
            }
            if any {
                return Ok(changes);
            }
            ready.clear_ready();
        }
    }
}
