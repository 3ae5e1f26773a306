//! Leadership by a Lease of Kubernetes: when a replica takes it, renews it, and has lost it.
//!
//! Only this machine's monotonic clock counts. A candidate waits until the Lease has not changed for its whole duration,
//! measured from when the candidate first saw that version. A leader counts its own duration from before it sent the
//! renewal that the API server accepted. So the candidate always waits longer than the leader believes itself to lead.
//!
//! The API server decides between two candidates: each write names the version it was planned from.

use std::time::Duration;

/// The times of a Lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// How long leadership lasts after a renewal.
    pub duration: Duration,
    /// How long after a renewal the leader renews again, and how often a candidate looks.
    pub period: Duration,
}

impl Default for Terms {
    /// Source: `leaderelection` of client-go and the defaults of `--leader-elect-lease-duration` and
    /// `--leader-elect-retry-period`.
    fn default() -> Self {
        Self { duration: Duration::from_secs(15), period: Duration::from_secs(2) }
    }
}

/// What the API server shows of a Lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// `metadata.resourceVersion`: it changes with every renewal.
    pub version: String,
    /// `spec.holderIdentity`; empty when the last leader gave it up.
    pub holder: String,
    /// `spec.leaseDurationSeconds`, as the holder set it.
    pub duration: Duration,
}

/// What becomes of a mark on the Lease when a replica of this program takes the Lease. A mark names the leadership at which
/// it holds, by its `spec.leaseTransitions`, and goes from one leadership of this program to the next. Another controller
/// that led in between has counted one more, and has left the mark as it was: such a mark is void.
///
/// Versions before this one wrote `true`, which says nothing of the leadership and is believed once.
#[must_use]
pub fn carried(mark: &str, before: i64, now: i64) -> Option<String> {
    (mark == "true" || mark == before.to_string()).then(|| now.to_string())
}

/// What to do now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Read the Lease.
    Read,
    /// Create the Lease: the API server has none.
    Create,
    /// Write this replica's identity over this version, as a new leader.
    Take {
        /// The version that the write replaces.
        version: String,
    },
    /// Write the renewal over this version.
    Renew {
        /// The version that the write replaces.
        version: String,
    },
    /// Nothing until then.
    Wait {
        /// By the clock of `now`.
        until: Duration,
    },
    /// This replica led and leads no more. The process ends: writes it has sent may still arrive.
    Lost(Loss),
}

/// Why a replica that led leads no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// The Lease has another holder, or none.
    Taken,
    /// The API server took no renewal until the Lease ended.
    NotRenewed,
}

/// What a candidate knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Election {
    identity: String,
    terms: Terms,
    /// The newest record and when this replica first saw its version. `Some(None)`: there is no Lease.
    seen: Option<(Option<Record>, Duration)>,
    /// When the last accepted write of this replica was sent.
    renewed: Option<Duration>,
    /// When the Lease was last read or written without success.
    tried: Option<Duration>,
    lost: bool,
}

impl Election {
    /// A candidate that has seen nothing. `identity` differs for each process.
    #[must_use]
    pub fn new(identity: String, terms: Terms) -> Self {
        Self { identity, terms, seen: None, renewed: None, tried: None, lost: false }
    }

    /// Until when this replica leads.
    #[must_use]
    pub fn leads_until(&self) -> Option<Duration> {
        self.renewed.filter(|_| !self.lost).map(|sent| sent + self.terms.duration)
    }

    /// What to do now. Times never go back.
    #[must_use]
    pub fn next(&self, now: Duration) -> Next {
        if self.lost {
            return Next::Lost(Loss::Taken);
        }
        if self.leads_until().is_some_and(|until| now >= until) {
            return Next::Lost(Loss::NotRenewed);
        }
        let last = self.renewed.max(self.tried);
        if let Some(last) = last.filter(|last| now < *last + self.terms.period) {
            let soonest = last + self.terms.period;
            return Next::Wait { until: self.leads_until().map_or(soonest, |until| soonest.min(until)) };
        }
        match &self.seen {
            None => Next::Read,
            Some((None, _)) => Next::Create,
            Some((Some(record), _)) if record.holder == self.identity && self.renewed.is_some() => {
                Next::Renew { version: record.version.clone() }
            }
            Some((Some(record), since)) if self.is_free(record, *since, now) => {
                Next::Take { version: record.version.clone() }
            }
            Some((Some(_), _)) => Next::Read,
        }
    }

    /// The API server has shown the Lease; `None`: there is none.
    pub fn saw(&mut self, record: Option<Record>, now: Duration) {
        let is_other = record.as_ref().is_none_or(|record| record.holder != self.identity);
        self.lost |= self.renewed.is_some() && is_other;
        let same = self.seen.as_ref().is_some_and(|(seen, _)| *seen == record);
        if !same {
            self.seen = Some((record, now));
        }
        if !self.can_act(now) {
            self.tried = Some(now);
        }
    }

    /// Whether what was seen lets this replica write at once.
    fn can_act(&self, now: Duration) -> bool {
        match &self.seen {
            Some((None, _)) => true,
            Some((Some(record), since)) => self.renewed.is_some() || self.is_free(record, *since, now),
            None => false,
        }
    }

    /// Whether a candidate may take the Lease: it was given up, it is this process's own by a write whose answer was lost,
    /// or it has not changed for its duration. A holder with a longer duration than this replica's is believed.
    fn is_free(&self, record: &Record, since: Duration, now: Duration) -> bool {
        let expires = since + record.duration.max(self.terms.duration);
        record.holder.is_empty() || record.holder == self.identity || now >= expires
    }

    /// The API server has accepted a write of this replica that was sent at `sent_at`.
    pub fn wrote(&mut self, record: Record, sent_at: Duration) {
        self.seen = Some((Some(record), sent_at));
        self.renewed = Some(sent_at);
        self.tried = None;
    }

    /// A write was refused because the Lease has another version, or was not answered. The Lease is read again.
    pub fn failed(&mut self, now: Duration) {
        if self.renewed.is_some() {
            // The record that was seen is out of date. The next read tells whether another replica leads.
            self.seen = None;
        }
        self.tried = Some(now);
    }

    /// A write met another version: the Lease is read at once.
    pub fn conflicted(&mut self) {
        self.seen = None;
        self.tried = None;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TERMS: Terms = Terms { duration: Duration::from_secs(15), period: Duration::from_secs(2) };

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn record(version: &str, holder: &str) -> Record {
        Record { version: version.to_owned(), holder: holder.to_owned(), duration: TERMS.duration }
    }

    fn candidate() -> Election {
        Election::new("a".to_owned(), TERMS)
    }

    #[test]
    fn a_free_lease_is_taken_at_once_and_renewed_every_period() {
        let mut election = candidate();
        assert_eq!(election.next(at(0)), Next::Read);
        election.saw(None, at(0));
        assert_eq!(election.next(at(0)), Next::Create);
        election.wrote(record("1", "a"), at(0));
        assert_eq!(election.leads_until(), Some(at(15)));
        assert_eq!(election.next(at(1)), Next::Wait { until: at(2) });
        assert_eq!(election.next(at(2)), Next::Renew { version: "1".to_owned() });
        election.wrote(record("2", "a"), at(2));
        assert_eq!(election.leads_until(), Some(at(17)));
        let mut second = candidate();
        second.saw(Some(record("9", "")), at(0));
        assert_eq!(second.next(at(0)), Next::Take { version: "9".to_owned() });
    }

    #[test]
    fn a_mark_goes_from_one_leadership_to_the_next_and_is_void_when_another_controller_led_in_between() {
        assert_eq!(carried("7", 7, 8), Some("8".to_owned()));
        assert_eq!(carried("7", 8, 9), None, "another controller has counted one more");
        assert_eq!(carried("true", 8, 9), Some("9".to_owned()));
        assert_eq!(carried("", 0, 1), None);
    }

    #[test]
    fn a_lease_is_taken_after_it_has_not_changed_for_its_duration() {
        let mut election = candidate();
        election.saw(Some(record("1", "b")), at(0));
        assert_eq!(election.next(at(0)), Next::Wait { until: at(2) });
        for second in [2, 4, 6, 8] {
            assert_eq!(election.next(at(second)), Next::Read);
            election.saw(Some(record("1", "b")), at(second));
        }
        election.saw(Some(record("2", "b")), at(10));
        election.saw(Some(record("2", "b")), at(24));
        assert_eq!(election.next(at(24)), Next::Wait { until: at(26) });
        election.saw(Some(record("2", "b")), at(26));
        assert_eq!(election.next(at(26)), Next::Take { version: "2".to_owned() });
    }

    #[test]
    fn a_leader_that_cannot_renew_loses_the_lease_when_its_duration_ends() {
        let mut election = candidate();
        election.wrote(record("1", "a"), at(0));
        for second in (2..15).step_by(2) {
            assert!(!matches!(election.next(at(second)), Next::Lost(_)));
            election.failed(at(second));
        }
        assert_eq!(election.next(at(14)), Next::Wait { until: at(15) });
        assert_eq!(election.next(at(15)), Next::Lost(Loss::NotRenewed));
    }

    #[test]
    fn a_leader_that_sees_another_holder_has_lost_the_lease() {
        let mut election = candidate();
        election.wrote(record("1", "a"), at(0));
        election.conflicted();
        assert_eq!(election.next(at(2)), Next::Read);
        election.saw(Some(record("2", "b")), at(2));
        assert_eq!(election.next(at(2)), Next::Lost(Loss::Taken));
        assert_eq!(election.leads_until(), None);
    }

    #[test]
    fn a_renewal_whose_answer_was_lost_is_no_loss() {
        let mut election = candidate();
        election.wrote(record("1", "a"), at(0));
        election.failed(at(3));
        assert_eq!(election.next(at(5)), Next::Read);
        election.saw(Some(record("2", "a")), at(5));
        assert_eq!(election.next(at(5)), Next::Renew { version: "2".to_owned() });
        assert_eq!(election.leads_until(), Some(at(15)), "only an accepted write counts");
    }

    /// The Lease at the API server.
    #[derive(Default)]
    struct Server {
        record: Option<Record>,
        writes: u64,
    }

    impl Server {
        fn write(&mut self, over: Option<&str>, holder: &str) -> Option<Record> {
            if over != self.record.as_ref().map(|record| record.version.as_str()) {
                return None;
            }
            self.writes += 1;
            self.record = Some(record(&self.writes.to_string(), holder));
            self.record.clone()
        }
    }

    /// What becomes of one call: it arrives or not, and its answer too.
    #[derive(Debug, Clone, Copy)]
    struct Call {
        who: usize,
        wait: u64,
        arrives: bool,
        answered: bool,
        takes: u64,
    }

    fn call() -> impl Strategy<Value = Call> {
        (0..3_usize, 0..6_u64, prop::bool::weighted(0.8), prop::bool::weighted(0.8), 0..4_u64)
            .prop_map(|(who, wait, arrives, answered, takes)| Call { who, wait, arrives, answered, takes })
    }

    proptest! {
        #[test]
        fn two_replicas_never_lead_at_once(calls in prop::collection::vec(call(), 1..200)) {
            let mut server = Server::default();
            let mut now = at(0);
            let mut replicas: Vec<Election> =
                ["a", "b", "c"].map(|name| Election::new(name.to_owned(), TERMS)).into();
            for call in calls {
                now += at(call.wait);
                let replica = &mut replicas[call.who];
                let sent_at = now;
                let next = replica.next(now);
                let over = match &next {
                    Next::Take { version } | Next::Renew { version } => Some(version.as_str()),
                    Next::Read | Next::Create => None,
                    Next::Wait { .. } => continue,
                    Next::Lost(_) => {
                        // The process ends; its successor has another identity.
                        *replica = Election::new(format!("{}-{}", call.who, now.as_secs()), TERMS);
                        continue;
                    }
                };
                let identity = replica.identity.clone();
                if next == Next::Read {
                    if call.arrives && call.answered {
                        let shown = server.record.clone();
                        now += at(call.takes);
                        replica.saw(shown, now);
                    } else {
                        replica.failed(now);
                    }
                } else {
                    let written = call.arrives.then(|| server.write(over, &identity));
                    now += at(call.takes);
                    match written {
                        Some(Some(record)) if call.answered => replica.wrote(record, sent_at),
                        Some(None) if call.answered => replica.conflicted(),
                        _ => replica.failed(now),
                    }
                }
                let leaders = replicas.iter().filter(|replica| replica.leads_until().is_some_and(|until| now < until));
                prop_assert!(leaders.count() <= 1);
            }
        }
    }
}
