//! Waking up when a device appears: inotify on the device folders, with a slow re-check behind it.
//!
//! Evidence (recorded): the kernel's own node making in devtmpfs raises inotify events, so a watch on
//! `dev/` sees a new disk at once, in a container too as long as it sees the host's `/dev`. Entries
//! of sysfs raise none; there the watch only helps under an emulator's root folder, and the re-check
//! covers what no event tells (a size that changed, a lost event).

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use tokio::io::unix::AsyncFd;

use super::{Deadline, Host};

const FIRST_RECHECK: Duration = Duration::from_millis(250);
const LAST_RECHECK: Duration = Duration::from_secs(2);

/// A subscription to changes under a host's root folder.
pub(super) struct Watch {
    events: Option<AsyncFd<OwnedFd>>,
    folders: Vec<PathBuf>,
    recheck: Duration,
}

impl Watch {
    /// Starts watching; anything that happens after this call ends the next [`Watch::changed`].
    pub(super) fn start(host: &Host) -> Self {
        let mut folders = vec![
            host.dev(),
            host.dev().join("disk/azure"),
            host.dev().join("disk/azure/scsi1"),
            host.sys().join("class/scsi_device"),
            host.sys().join("class/block"),
        ];
        folders.extend(super::nvme::folders(host));
        #[expect(deprecated, reason = "its successor is unsafe; an owned descriptor keeps the promise it asks for")]
        let events = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)
            .map_err(std::io::Error::from)
            .and_then(AsyncFd::new)
            .inspect_err(|error| tracing::warn!(%error, "no inotify, devices are polled"))
            .ok();
        let mut watch = Self { events, folders, recheck: FIRST_RECHECK };
        watch.subscribe();
        watch
    }

    /// Adds the folders that exist by now. Repeating it for a watched folder changes nothing.
    fn subscribe(&mut self) {
        let Some(events) = &self.events else { return };
        let flags = WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVED_TO
            | WatchFlags::MOVED_FROM
            | WatchFlags::ATTRIB;
        for folder in &self.folders {
            // A missing folder is normal: udev makes dev/disk/azure with the first disk.
            let _ = inotify::add_watch(events.get_ref(), folder, flags);
        }
    }

    /// Returns when something changed, when it is time to look again, or at the deadline.
    pub(super) async fn changed(&mut self, deadline: Deadline) {
        let until = deadline.capped(self.recheck);
        self.recheck = (self.recheck * 3 / 2).min(LAST_RECHECK);
        let Some(events) = &self.events else {
            tokio::time::sleep_until(until.instant()).await;
            return;
        };
        if let Ok(Ok(mut ready)) = tokio::time::timeout_at(until.instant(), events.readable()).await {
            // What changed does not matter; the caller reads the whole state again.
            let mut buffer = [0_u8; 4096];
            while rustix::io::read(events.get_ref(), &mut buffer).is_ok_and(|read| read > 0) {}
            ready.clear_ready();
        }
        self.subscribe();
    }
}
