//! Which reads of an object may be believed.
//!
//! - A read counts when it was sent after the last thing that may have changed the object: an own write, a write of a
//!   related object, a fault that says that the object is not what was read.
//! - Azure's reads may lag behind an own write by some seconds. The object step notices that, because the read does not
//!   show what the write wrote.
//! - Absence proves nothing while a write may still arrive: one whose answer was lost, or one of the leader before. An
//!   own write that succeeded on its ETag ends that, because any earlier write now meets another ETag.
//! - Presence proves as little while a write may still arrive that removes or replaces something.
//!
//! # The writes of the leader before
//!
//! A write that the leader before began may arrive until [`LATE`] after this replica began to lead. It was planned for a
//! desired state that may have changed since: it may add what is to be gone, and it may remove what is to be present, for
//! example delete a public IP address that a Service left and has come back to. So until then neither absence nor presence
//! is proved, unless this replica has written the object itself, for then the late write meets another ETag.
//!
//! What follows from that differs:
//!
//! - *Absence* is told as done from then on only. A finalizer that goes too early leaves something behind for good.
//! - *Presence* that the next stage of a Service rests on is told as done from then on only
//!   ([`Object::is_threatened`](super::object::Object::is_threatened)): a rule of the load balancer on a denial of the
//!   security group, a security rule on an address. A new Service does not wait, because its objects are written for it. A
//!   Service that is as it should be loses nothing by waiting, because its status is set already. What waits is a Service
//!   that was half changed when the leadership moved, and those are the ones that a late write may concern.
//! - *Presence* that cannot be taken away, such as a public IP address in use, is told as done at once.
//!
//! In every case the object is looked at a second time when the bound has passed, so that what a late write has undone is
//! repaired then and not at the next resync.

use std::time::Duration;

/// How long after a client has given up on a write the write may still arrive at Azure.
///
/// No document gives this bound or the next; reports speak of seconds.
const ARRIVES: Duration = Duration::from_secs(4);
/// How long reads may lag behind a write.
pub const LAG: Duration = Duration::from_secs(4);
/// How long after a client has given up on a write, or after the lease has moved, a read proves that something is gone.
pub const LATE: Duration = ARRIVES.saturating_add(LAG);
/// How old an observation may be when a new want is answered from it without a write. A write needs no such limit: it
/// carries the ETag.
pub const OLDEST: Duration = Duration::from_secs(60);

/// How old the read may be that proves to a write that the object does not exist. Such a write carries no ETag, and what
/// another writer has made since would be replaced. This is time enough for the request of a permit that is to be had.
pub const OLDEST_ABSENCE: Duration = Duration::from_secs(1);

/// What is known of the reads of one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Freshness {
    not_before: Duration,
    doubted_until: Duration,
    /// The same for writes that remove or replace something.
    threatened_until: Duration,
    wrote: bool,
}

impl Freshness {
    /// From when on a read counts.
    pub fn not_before(&self) -> Duration {
        self.not_before
    }

    /// Whether a read that was sent at that time counts.
    pub fn accepts(&self, sent_at: Duration) -> bool {
        sent_at >= self.not_before
    }

    /// Records that the object may have changed.
    pub fn changed(&mut self, now: Duration) {
        self.not_before = self.not_before.max(now);
    }

    /// Records that the answer to a write was lost, or that its operation failed: what it has changed is unknown. `replaces`
    /// when it removes or replaces something.
    pub fn lost(&mut self, now: Duration, replaces: bool) {
        self.changed(now);
        self.doubted_until = self.doubted_until.max(now + LATE);
        if replaces {
            self.threatened_until = self.doubted_until;
        }
        self.wrote = false;
    }

    /// Records that a read shows a write that succeeded on the ETag of its observation, and that the object exists.
    pub fn wrote_on_etag(&mut self) {
        (self.doubted_until, self.threatened_until) = (Duration::ZERO, Duration::ZERO);
        self.wrote = true;
    }

    /// From when on a read proves that what it shows stays. `trusted_from` is the same for the writes of the leader before.
    pub fn proves_presence_from(&self, trusted_from: Duration) -> Duration {
        if self.wrote { self.threatened_until } else { self.threatened_until.max(trusted_from) }
    }

    /// From when on a read proves absence. `trusted_from` is the same for the writes of the leader before.
    pub fn proves_absence_from(&self, trusted_from: Duration) -> Duration {
        if self.wrote { self.doubted_until } else { self.doubted_until.max(trusted_from) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s(s: u64) -> Duration {
        Duration::from_secs(s)
    }

    #[test]
    fn a_read_from_before_a_change_does_not_count() {
        let mut freshness = Freshness::default();
        assert!(freshness.accepts(s(0)));
        freshness.changed(s(5));
        freshness.changed(s(3));
        assert!(!freshness.accepts(s(4)));
        assert!(freshness.accepts(s(5)));
    }

    #[test]
    fn after_a_lost_answer_absence_is_proved_late_and_after_a_write_on_the_etag_at_once() {
        let mut freshness = Freshness::default();
        assert_eq!(freshness.proves_absence_from(s(7)), s(7));
        freshness.lost(s(10), false);
        assert_eq!(freshness.proves_absence_from(s(7)), s(10) + LATE);
        freshness.wrote_on_etag();
        assert_eq!(freshness.proves_absence_from(s(20)), s(0));
        freshness.lost(s(12), false);
        assert_eq!(freshness.proves_absence_from(s(20)), s(20));
    }

    #[test]
    fn presence_is_doubted_only_while_a_removal_may_arrive() {
        let mut freshness = Freshness::default();
        freshness.lost(s(10), false);
        assert_eq!(freshness.proves_presence_from(s(0)), s(0));
        freshness.lost(s(11), true);
        freshness.lost(s(12), false);
        assert_eq!(freshness.proves_presence_from(s(0)), s(11) + LATE);
        freshness.wrote_on_etag();
        assert_eq!(freshness.proves_presence_from(s(0)), s(0));
    }

    #[test]
    fn presence_is_doubted_while_a_removal_of_the_leader_before_may_arrive() {
        let mut freshness = Freshness::default();
        assert_eq!(freshness.proves_presence_from(s(7)), s(7));
        freshness.wrote_on_etag();
        assert_eq!(freshness.proves_presence_from(s(7)), s(0), "a late write meets another ETag");
    }
}
