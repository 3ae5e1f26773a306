//! The shares that CreateVolume has given to requests whose PersistentVolumes are not seen yet.
//!
//! A class may name its share, and all of its claims then have that one. CreateVolume answers, external-provisioner makes
//! the PersistentVolume, and only then does the watch see it. A DeleteVolume of another volume of the same share that comes
//! in between finds no PersistentVolume that needs the share. So an answer is remembered until its PersistentVolume is
//! seen, and for [`LASTS`] at most.
//!
//! Memory is a process's own:
//! - A process that has just begun does not know what the one before it has answered. For [`LASTS`] it deletes no share
//!   that a class has named.
//! - Another replica may have answered before external-provisioner's leadership came to this one. The provisioner that
//!   answered has stored the PersistentVolume, or will never do so: it ends with its lease. What remains is a watch that
//!   lags more than a takeover of the lease takes (seconds). A request whose PersistentVolume was never stored is repeated,
//!   and has its share made anew; no Pod has written into it yet.

use std::{collections::BTreeMap, time::Duration};

use lazuli_model::ArmId;

use crate::deletion::VolumeRef;

/// How long an answer is remembered whose PersistentVolume is not seen: longer than external-provisioner takes to store
/// one, with its repetitions. While the API server does not answer, nothing is deleted anyway.
pub const LASTS: Duration = Duration::from_secs(10 * 60);

/// One request for a share.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Adoption {
    /// How many calls of it are being served.
    calls: u32,
    /// When the last of them was answered with the share.
    answered: Option<Duration>,
}

impl Adoption {
    fn counts(&self, now: Duration) -> bool {
        self.calls > 0 || self.answered.is_some_and(|at| now < at + LASTS)
    }
}

/// The requests that were given shares that classes name. Times are of the steps' clock.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Adoptions {
    /// By share, then by request.
    requests: BTreeMap<ArmId, BTreeMap<String, Adoption>>,
    /// When the memory began; `None` where nothing was answered before it.
    began: Option<Duration>,
}

/// What may need a share though no PersistentVolume that is known names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unseen<'a> {
    /// Nothing.
    Nothing,
    /// This request, which was given the share.
    Request(&'a str),
    /// A request that another process has answered, of which nothing is known here.
    Forgotten,
}

impl Adoptions {
    /// The memory of a process that begins now.
    pub fn beginning(now: Duration) -> Self {
        Self { began: Some(now), ..Self::default() }
    }

    /// A call of a request for this share begins.
    pub fn begin(&mut self, share: &ArmId, request: &str) {
        self.requests.entry(share.clone()).or_default().entry(request.to_owned()).or_default().calls += 1;
    }

    /// A call of a request ends: with the share, or otherwise.
    pub fn end(&mut self, share: &ArmId, request: &str, has_share: bool, now: Duration) {
        if let Some(adoption) = self.requests.get_mut(share).and_then(|requests| requests.get_mut(request)) {
            adoption.calls = adoption.calls.saturating_sub(1);
            if has_share {
                adoption.answered = Some(now);
            }
        }
        self.requests.retain(|_, requests| {
            requests.retain(|_, adoption| adoption.counts(now));
            !requests.is_empty()
        });
    }

    /// The volume of a request is deleted.
    pub fn forget(&mut self, share: &ArmId, request: &str) {
        if let Some(requests) = self.requests.get_mut(share) {
            requests.retain(|other, adoption| other != request || adoption.calls > 0);
        }
    }

    /// What may need a share when the volume of `request` goes, beside the PersistentVolumes that are known.
    /// external-provisioner names a PersistentVolume as its request.
    pub fn unseen<'a>(&'a self, share: &ArmId, request: &str, volumes: &[VolumeRef], now: Duration) -> Unseen<'a> {
        let is_seen = |other: &str| volumes.iter().any(|volume| volume.name == other);
        let given = self.requests.get(share).into_iter().flatten();
        let mut open = given.filter(|(other, adoption)| *other != request && adoption.counts(now));
        match open.find(|(other, _)| !is_seen(other)) {
            Some((other, _)) => Unseen::Request(other),
            None if self.began.is_some_and(|began| now < began + LASTS) => Unseen::Forgotten,
            None => Unseen::Nothing,
        }
    }

    /// How many requests are remembered.
    pub fn len(&self) -> usize {
        self.requests.values().map(BTreeMap::len).sum()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn share(name: &str) -> ArmId {
        ArmId::file_share(&ArmId::storage_account("s", "g", "f1").unwrap(), name).unwrap()
    }

    fn volume(name: &str) -> VolumeRef {
        VolumeRef::of_in_tree(name, "data", "azure-storage-account-f1-secret", false)
    }

    const NOW: Duration = Duration::from_secs(50);

    #[test]
    fn an_answer_counts_until_its_volume_is_seen_or_its_time_is_over() {
        let (data, mut all) = (share("data"), Adoptions::default());
        all.begin(&data, "pvc-b");
        // The call is not answered yet, and may be at any moment.
        assert_eq!(all.unseen(&data, "pvc-a", &[], NOW), Unseen::Request("pvc-b"));
        all.end(&data, "pvc-b", true, NOW);
        assert_eq!(all.unseen(&data, "pvc-a", &[], NOW), Unseen::Request("pvc-b"));
        assert_eq!(all.unseen(&data, "pvc-b", &[], NOW), Unseen::Nothing, "its own volume goes");
        assert_eq!(all.unseen(&share("other"), "pvc-a", &[], NOW), Unseen::Nothing);
        assert_eq!(all.unseen(&data, "pvc-a", &[volume("pvc-b")], NOW), Unseen::Nothing);
        assert_eq!(all.unseen(&data, "pvc-a", &[volume("pvc-c")], NOW), Unseen::Request("pvc-b"));
        assert_eq!(all.unseen(&data, "pvc-a", &[], NOW + LASTS - Duration::from_secs(1)), Unseen::Request("pvc-b"));
        assert_eq!(all.unseen(&data, "pvc-a", &[], NOW + LASTS), Unseen::Nothing);
        // What is over is not kept.
        all.begin(&data, "pvc-c");
        all.end(&data, "pvc-c", false, NOW + LASTS);
        assert!(all.is_empty());
    }

    #[test]
    fn a_call_that_fails_gives_nothing_and_takes_nothing_back() {
        let (data, mut all) = (share("data"), Adoptions::default());
        all.begin(&data, "pvc-b");
        all.end(&data, "pvc-b", false, NOW);
        assert!(all.is_empty());
        all.begin(&data, "pvc-b");
        all.end(&data, "pvc-b", true, NOW);
        all.begin(&data, "pvc-b");
        all.end(&data, "pvc-b", false, NOW);
        assert_eq!(all.unseen(&data, "pvc-a", &[], NOW), Unseen::Request("pvc-b"));
        all.forget(&data, "pvc-b");
        assert_eq!(all.unseen(&data, "pvc-a", &[], NOW), Unseen::Nothing);
    }

    #[test]
    fn a_process_that_has_just_begun_does_not_know_what_was_answered_before() {
        let (data, mut all) = (share("data"), Adoptions::beginning(NOW));
        assert_eq!(all.unseen(&data, "pvc-a", &[], NOW), Unseen::Forgotten);
        assert_eq!(all.unseen(&data, "pvc-a", &[], NOW + LASTS), Unseen::Nothing);
        all.begin(&data, "pvc-b");
        assert_eq!(all.unseen(&data, "pvc-a", &[], NOW), Unseen::Request("pvc-b"));
    }

    proptest! {
        /// Whatever was begun, ended and forgotten: what was answered with the share and is not seen keeps it.
        #[test]
        fn no_answer_is_lost_before_its_time(
            steps in proptest::collection::vec((0u8..4, 0usize..3, 0u64..300, any::<bool>()), 0..20),
            seen in proptest::collection::vec(0usize..3, 0..3),
        ) {
            const NAMES: [&str; 3] = ["pvc-0", "pvc-1", "pvc-2"];
            let (data, mut all) = (share("data"), Adoptions::default());
            let mut now = Duration::ZERO;
            // The calls that run, and the last answer.
            let mut told: [(u32, Option<Duration>); 3] = Default::default();
            for (step, request, seconds, has_share) in steps {
                now += Duration::from_secs(seconds);
                let (calls, answered) = &mut told[request];
                match step {
                    0 | 1 => {
                        all.begin(&data, NAMES[request]);
                        *calls += 1;
                    }
                    2 if *calls > 0 => {
                        all.end(&data, NAMES[request], has_share, now);
                        *calls -= 1;
                        if has_share {
                            *answered = Some(now);
                        }
                    }
                    3 if *calls == 0 => {
                        all.forget(&data, NAMES[request]);
                        *answered = None;
                    }
                    _ => {}
                }
            }
            let volumes: Vec<VolumeRef> = seen.iter().map(|request| volume(NAMES[*request])).collect();
            let open = |request: &usize| {
                let (calls, answered) = told[*request];
                !seen.contains(request) && (calls > 0 || answered.is_some_and(|at| now - at < LASTS))
            };
            let expected = (1..3).find(open).map_or(Unseen::Nothing, |request| Unseen::Request(NAMES[request]));
            prop_assert_eq!(all.unseen(&data, NAMES[0], &volumes, now), expected);
        }
    }
}
