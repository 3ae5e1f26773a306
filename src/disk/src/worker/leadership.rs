//! When reads of a VM show what another replica wrote while it was the leader.

use std::time::Duration;

use tokio::time::Instant;

/// How old a read of a VM may be (unverified). A replica that has just become the leader does not take a disk's absence
/// from the VM's list as proof of its detach for this long: the leader before it may have written a moment ago.
const MAX_READ_LAG: Duration = Duration::from_secs(4);

/// How long a pause between two requests is at least in which another replica may have been the leader: its sidecars lead for
/// as long as their Lease lasts, whatever becomes of them (source: the lease duration of csi-lib-utils, of which the chart
/// changes nothing, and which releases no Lease early).
const SHORTEST_LEADERSHIP: Duration = Duration::from_secs(15);

/// Since when this replica has had requests without a break.
///
/// Leadership is a lease of the sidecars, which no replica of this program sees. In [`SHORTEST_LEADERSHIP`] without a request
/// another replica may have been the leader. Reads taken in the first [`MAX_READ_LAG`] after a pause of that length may lack
/// the last write of the leader before, and prove no detach.
#[derive(Debug, Default)]
pub(super) struct Leadership {
    last_request: Option<Instant>,
    /// When the first of these requests came.
    since: Option<Instant>,
    /// From then on no read is older than the last write of the leader before.
    pub(super) reads_fresh_since: Option<Instant>,
}

impl Leadership {
    pub(super) fn request_arrived(&mut self, now: Instant) {
        let is_after = |pause| self.last_request.is_none_or(|last| now >= last + pause);
        if is_after(SHORTEST_LEADERSHIP) {
            self.since = Some(now);
        }
        if is_after(MAX_READ_LAG) {
            self.reads_fresh_since = Some(now + MAX_READ_LAG);
        }
        self.last_request = Some(now);
    }

    /// Since when this replica may have been the leader: before that another one may have been.
    pub(super) fn leading_since(&self, now: Instant) -> Instant {
        self.since.unwrap_or(now)
    }
}
