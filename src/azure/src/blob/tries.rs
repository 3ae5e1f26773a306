//! What comes after a sending that did not serve: nothing, a pause and the same again, or other keys.
//!
//! | sending | read | write |
//! |---|---|---|
//! | never left | again, with keys read anew: the resource manager knows whether there is an account | the same |
//! | its answer was lost; 408, 500, 502, 503, 504 | again | [`Problem::Lost`], and never again |
//! | 429, or 503 with `Retry-After` | again when that is over, if it is not long: nothing was done | the same |
//! | 403 that says nothing, or `AuthenticationFailed` | once again with keys that are read anew | the same |
//! | anything else | what it says | the same |

use std::time::Duration;

use lazuli_model::fault::Fault;
use lazuli_vhd::life::Problem;

/// What came of a sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sent<'a> {
    /// There was no connection.
    NoConnection,
    /// It left, and no whole answer came.
    Lost,
    /// An answer that does not serve.
    Answered {
        status: u16,
        /// `x-ms-error-code`; empty without one.
        code: &'a str,
        retry_after: Option<Duration>,
    },
}

impl Sent<'_> {
    /// For how long the account is to be left alone, by everyone who asks it; `None` where it is not busy. `pause` is the
    /// pause of a try that failed.
    pub(super) fn pause_of_all(self, pause: Duration) -> Option<Duration> {
        let Sent::Answered { status, code, retry_after } = self else { return None };
        let is_busy =
            status == 429 || status == 503 && (retry_after.is_some() || code.eq_ignore_ascii_case("ServerBusy"));
        is_busy.then(|| retry_after.unwrap_or(pause))
    }
}

/// What comes next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Next {
    /// Send it again after this time.
    Again { after: Duration },
    /// Forget the keys of the account, and send it again after this time.
    AgainWithKeysOfNow { after: Duration },
    /// Read keys other than the one that was refused, and send it again at once. If there are none, this is the end.
    WithOtherKeys(Problem),
    /// No more.
    End(Problem),
}

/// A request, as often as it is sent.
#[derive(Debug, Clone)]
pub(super) struct Tries {
    writes: bool,
    /// How often it may be sent without an answer that serves.
    most: u32,
    /// How long it may wait in all because the service says so.
    longest_wait: Duration,
    sent: u32,
    waited: Duration,
    has_other_keys: bool,
}

impl Tries {
    pub(super) fn new(writes: bool, most: u32, longest_wait: Duration) -> Self {
        Self { writes, most, longest_wait, sent: 0, waited: Duration::ZERO, has_other_keys: false }
    }

    /// How often it was sent.
    pub(super) fn sent(&self) -> u32 {
        self.sent
    }

    /// How long the next sending may wait because the account is busy. `left` is what the caller's time has left.
    pub(super) fn may_wait(&self, left: Option<Duration>) -> Duration {
        let rest = self.longest_wait.saturating_sub(self.waited);
        left.map_or(rest, |left| left.min(rest))
    }

    /// What comes after a sending. `pause` is the pause of a try that failed, `left` what the caller's time has left.
    pub(super) fn next(&mut self, sent: Sent<'_>, pause: Duration, left: Option<Duration>) -> Next {
        self.sent += 1;
        let problem = self.problem(sent);
        let has_time = |pause: Duration| left.is_none_or(|left| pause < left);
        let may_repeat = self.sent < self.most && has_time(pause);
        match sent {
            Sent::NoConnection if may_repeat => Next::AgainWithKeysOfNow { after: pause },
            Sent::Answered { status: 403, code, .. } if !self.has_other_keys && is_of_the_key(code) => {
                self.has_other_keys = true;
                self.sent -= 1;
                Next::WithOtherKeys(problem)
            }
            Sent::Answered { status: 429 | 503, retry_after: Some(pause), .. } => {
                if self.waited + pause > self.longest_wait || !has_time(pause) {
                    return Next::End(Problem::Other(Fault::Throttled { retry_after: Some(pause) }));
                }
                self.waited += pause.max(Duration::from_secs(1));
                Next::Again { after: pause }
            }
            Sent::Answered { status: 429, .. } if may_repeat => Next::Again { after: pause },
            Sent::Lost | Sent::Answered { status: 408 | 500 | 502..=504, .. } if !self.writes && may_repeat => {
                Next::Again { after: pause }
            }
            _ => Next::End(problem),
        }
    }

    fn problem(&self, sent: Sent<'_>) -> Problem {
        match sent {
            Sent::NoConnection => Problem::Other(Fault::Unavailable),
            Sent::Lost if self.writes => Problem::Lost,
            Sent::Lost => Problem::Other(Fault::Unavailable),
            // Whatever the service says of its success, it may have acted.
            Sent::Answered { status: 200..=299 | 408 | 500 | 502..=504, .. } if self.writes => Problem::Lost,
            Sent::Answered { status: 200..=299, .. } => Problem::Other(Fault::Malformed),
            Sent::Answered { status, code, .. } => Problem::of(status, code),
        }
    }
}

/// Whether other keys may help: the service does not take the signature. Its other refusals name what forbids the
/// request.
fn is_of_the_key(code: &str) -> bool {
    code.is_empty() || code.eq_ignore_ascii_case("AuthenticationFailed")
}

/// What a caller may do about a problem that no step has an answer to.
pub(super) fn fault_of(problem: &Problem) -> Fault {
    match problem {
        // The resource manager has said it of exactly this account.
        Problem::NoAccount | Problem::NoBlob => Fault::NotFound,
        Problem::NoContainer => Fault::ScopeNotFound,
        Problem::Exists | Problem::OtherVersion => Fault::Conflict,
        Problem::Leased | Problem::HasSnapshots => Fault::InUse,
        Problem::Lost => Fault::OutcomeUnknown,
        Problem::Other(fault) => fault.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAUSE: Duration = Duration::from_secs(2);

    fn tries(writes: bool) -> Tries {
        Tries::new(writes, 4, Duration::from_secs(60))
    }

    fn answered(status: u16, code: &str, retry_after: Option<u64>) -> Sent<'_> {
        Sent::Answered { status, code, retry_after: retry_after.map(Duration::from_secs) }
    }

    fn first(writes: bool, sent: Sent<'_>) -> Next {
        tries(writes).next(sent, PAUSE, None)
    }

    #[test]
    fn a_write_whose_outcome_is_unknown_is_never_sent_again_and_a_read_is() {
        let unknown = [408, 500, 502, 503, 504].map(|status| answered(status, "ServerBusy", None));
        for sent in unknown.into_iter().chain([Sent::Lost]) {
            assert_eq!(first(true, sent), Next::End(Problem::Lost), "{sent:?}");
            assert_eq!(first(false, sent), Next::Again { after: PAUSE }, "{sent:?}");
        }
        // A success that is not understood.
        assert_eq!(first(true, answered(202, "", None)), Next::End(Problem::Lost));
        assert_eq!(first(false, answered(202, "", None)), Next::End(Problem::Other(Fault::Malformed)));
    }

    #[test]
    fn what_never_left_is_sent_again_with_keys_of_now_four_times_in_all() {
        for writes in [false, true] {
            let mut tries = tries(writes);
            for _ in 0..3 {
                assert_eq!(tries.next(Sent::NoConnection, PAUSE, None), Next::AgainWithKeysOfNow { after: PAUSE });
            }
            assert_eq!(tries.next(Sent::NoConnection, PAUSE, None), Next::End(Problem::Other(Fault::Unavailable)));
        }
        let late = tries(true).next(Sent::NoConnection, PAUSE, Some(PAUSE));
        assert_eq!(late, Next::End(Problem::Other(Fault::Unavailable)));
    }

    #[test]
    fn a_pause_that_the_service_asks_for_is_kept_or_told() {
        for status in [429, 503] {
            assert_eq!(
                first(true, answered(status, "ServerBusy", Some(7))),
                Next::Again { after: Duration::from_secs(7) }
            );
            let told = |seconds| {
                Next::End(Problem::Other(Fault::Throttled { retry_after: Some(Duration::from_secs(seconds)) }))
            };
            assert_eq!(first(true, answered(status, "", Some(61))), told(61));
            let late = tries(true).next(answered(status, "", Some(7)), PAUSE, Some(Duration::from_secs(7)));
            assert_eq!(late, told(7));
            let mut tries = tries(true);
            // A service that asks for no time at all does not get the caller's for ever.
            let rounds = (0..100).take_while(|_| tries.next(answered(status, "", Some(0)), PAUSE, None) != told(0));
            assert!(rounds.count() <= 61);
        }
        assert_eq!(first(true, answered(429, "", None)), Next::Again { after: PAUSE });
    }

    #[test]
    fn an_account_that_is_busy_is_left_alone_by_all() {
        let seven = Duration::from_secs(7);
        for (sent, pause) in [
            (answered(429, "", None), Some(PAUSE)),
            (answered(429, "TooManyRequests", Some(7)), Some(seven)),
            (answered(503, "serverbusy", None), Some(PAUSE)),
            (answered(503, "", Some(7)), Some(seven)),
            (answered(503, "", None), None),
            (answered(500, "ServerBusy", Some(7)), None),
            (answered(409, "", None), None),
            (Sent::Lost, None),
            (Sent::NoConnection, None),
        ] {
            assert_eq!(sent.pause_of_all(PAUSE), pause, "{sent:?}");
        }
        let mut tries = tries(false);
        assert_eq!((tries.may_wait(None), tries.may_wait(Some(PAUSE))), (Duration::from_secs(60), PAUSE));
        tries.next(answered(503, "", Some(7)), PAUSE, None);
        assert_eq!(tries.may_wait(None), Duration::from_secs(53));
    }

    #[test]
    fn a_refused_signature_is_made_once_again_with_other_keys() {
        for code in ["AuthenticationFailed", ""] {
            let mut tries = tries(true);
            let refused = answered(403, code, None);
            let Next::WithOtherKeys(problem) = tries.next(refused, PAUSE, None) else { panic!("{code}") };
            assert_eq!(tries.next(refused, PAUSE, None), Next::End(problem));
            assert_eq!(tries.sent(), 1);
        }
        for code in ["AuthorizationFailure", "KeyBasedAuthenticationNotPermitted"] {
            assert!(matches!(first(true, answered(403, code, None)), Next::End(Problem::Other(_))), "{code}");
        }
    }

    #[test]
    fn any_other_answer_is_the_callers_and_a_404_without_a_code_says_nothing() {
        for (status, code, problem) in [
            (404, "BlobNotFound", Problem::NoBlob),
            (404, "ContainerNotFound", Problem::NoContainer),
            (404, "", Problem::Other(Fault::Malformed)),
            (404, "ResourceNotFound", Problem::Other(Fault::Malformed)),
            (409, "BlobAlreadyExists", Problem::Exists),
            (412, "ConditionNotMet", Problem::OtherVersion),
            (412, "LeaseIdMissing", Problem::Leased),
            (409, "SnapshotsPresent", Problem::HasSnapshots),
            (302, "", Problem::Other(Fault::Malformed)),
            (400, "InvalidHeaderValue", Problem::Other(Fault::Invalid)),
        ] {
            for writes in [false, true] {
                assert_eq!(first(writes, answered(status, code, None)), Next::End(problem.clone()), "{status} {code}");
            }
        }
    }
}
