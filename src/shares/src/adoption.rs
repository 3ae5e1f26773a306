//! The shares that CreateVolume has given to requests whose PersistentVolumes are not seen yet.
//!
//! A class may name its share, and all of its claims then have that one. CreateVolume answers, external-provisioner makes
//! the PersistentVolume, and only then does the watch see it. A DeleteVolume of another volume of the same share that comes
//! in between finds no PersistentVolume that needs the share. So an answer is remembered until its PersistentVolume is
//! seen, or its volume is deleted. No time ends that: external-provisioner stores a PersistentVolume again and again, up to
//! 1000 s apart, and does not call CreateVolume in between.
//!
//! Memory is a process's own:
//! - A process that has just begun does not know what the one before it has answered. For [`BEGINNING`] it deletes no
//!   share that a class has named. The same holds once more than [`MOST`] answers are open: the oldest is forgotten then.
//! - Another replica may have answered before external-provisioner's leadership came to this one. The provisioner that
//!   answered has stored the PersistentVolume, or will never do so: it ends with its lease. What remains is a watch that
//!   lags more than a takeover of the lease takes (seconds). A request whose PersistentVolume was never stored is repeated,
//!   and has its share made anew; no Pod has written into it yet.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use lazuli_model::ArmId;

use crate::deletion::VolumeRef;

/// How long a process does not know what was answered before it: longer than external-provisioner pauses between two tries
/// to store a PersistentVolume (source: its work queue, 1000 s at most). While the API server does not answer, nothing is
/// deleted anyway.
pub const BEGINNING: Duration = Duration::from_secs(20 * 60);

/// How many answers are remembered whose PersistentVolumes are not seen.
pub const MOST: usize = 4_096;

/// One request for a share.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Adoption {
    /// How many calls of it are being served.
    calls: u32,
    /// When the last of them was answered with the share; `None` too once its PersistentVolume was seen.
    answered: Option<Duration>,
}

impl Adoption {
    fn counts(&self) -> bool {
        self.calls > 0 || self.answered.is_some()
    }
}

/// The requests that were given shares that classes name. Times are of the steps' clock.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Adoptions {
    /// By share, then by request.
    requests: BTreeMap<ArmId, BTreeMap<String, Adoption>>,
    /// When the memory began, or last forgot an answer; `None` where nothing was answered before it.
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
        self.tidy(share);
        while self.len() > MOST && self.forget_oldest() {
            self.began = Some(now);
        }
    }

    /// These PersistentVolumes are seen: their requests need no memory any more.
    pub fn seen(&mut self, volumes: &[VolumeRef]) {
        if self.is_empty() {
            return;
        }
        let names: BTreeSet<&str> = volumes.iter().map(|volume| volume.name.as_str()).collect();
        self.requests.retain(|_, requests| {
            requests.retain(|request, adoption| {
                adoption.answered = adoption.answered.filter(|_| !names.contains(request.as_str()));
                adoption.counts()
            });
            !requests.is_empty()
        });
    }

    /// Drops what counts no more.
    fn tidy(&mut self, share: &ArmId) {
        if let Some(requests) = self.requests.get_mut(share) {
            requests.retain(|_, adoption| adoption.counts());
            if requests.is_empty() {
                self.requests.remove(share);
            }
        }
    }

    /// Whether there was one that no call needs.
    fn forget_oldest(&mut self) -> bool {
        let all = self.requests.iter().flat_map(|(share, requests)| requests.iter().map(move |one| (share, one)));
        let idle = all.filter(|(_, (_, adoption))| adoption.calls == 0);
        let oldest = idle.min_by_key(|(_, (_, adoption))| adoption.answered);
        let Some((share, request)) = oldest.map(|(share, (request, _))| (share.clone(), request.clone())) else {
            return false;
        };
        self.forget(&share, &request);
        true
    }

    /// The volume of a request is deleted.
    pub fn forget(&mut self, share: &ArmId, request: &str) {
        if let Some(requests) = self.requests.get_mut(share) {
            requests.retain(|other, adoption| other != request || adoption.calls > 0);
        }
        self.tidy(share);
    }

    /// What may need a share when the volume of `request` goes, beside the PersistentVolumes that are known.
    /// external-provisioner names a PersistentVolume as its request.
    pub fn unseen<'a>(&'a self, share: &ArmId, request: &str, volumes: &[VolumeRef], now: Duration) -> Unseen<'a> {
        let is_seen = |other: &str| volumes.iter().any(|volume| volume.name == other);
        let given = self.requests.get(share).into_iter().flatten();
        let mut open = given.filter(|(other, adoption)| *other != request && adoption.counts());
        match open.find(|(other, _)| !is_seen(other)) {
            Some((other, _)) => Unseen::Request(other),
            None if self.began.is_some_and(|began| now < began + BEGINNING) => Unseen::Forgotten,
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
    fn an_answer_counts_until_its_volume_is_seen_however_late() {
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
        // external-provisioner stores it after its longest pause, or after many.
        for late in [1_000, 100_000] {
            let late = NOW + Duration::from_secs(late);
            all.begin(&data, "pvc-c");
            all.end(&data, "pvc-c", false, late);
            assert_eq!(all.unseen(&data, "pvc-a", &[], late), Unseen::Request("pvc-b"));
        }
        // Once it was seen, a person may delete it.
        all.seen(&[volume("pvc-b")]);
        assert_eq!(all.unseen(&data, "pvc-a", &[], NOW), Unseen::Nothing);
        assert!(all.is_empty());
    }

    #[test]
    fn of_too_many_answers_the_oldest_is_forgotten_and_nothing_is_known_then() {
        let (data, mut all) = (share("data"), Adoptions::default());
        let mut now = NOW;
        for at in 0..=MOST {
            now += Duration::from_secs(1);
            let request = format!("pvc-{at}");
            all.begin(&data, &request);
            all.end(&data, &request, true, now);
        }
        assert_eq!(all.len(), MOST);
        let rest: Vec<VolumeRef> = (1..=MOST).map(|at| volume(&format!("pvc-{at}"))).collect();
        all.seen(&rest[1..]);
        assert_eq!(all.unseen(&data, "pvc-a", &[], now), Unseen::Request("pvc-1"));
        all.seen(&rest);
        assert_eq!(all.unseen(&data, "pvc-a", &[], now), Unseen::Forgotten);
        assert_eq!(all.unseen(&data, "pvc-a", &[], now + BEGINNING), Unseen::Nothing);
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
        let last = NOW + Duration::from_secs(1_001);
        assert_eq!(all.unseen(&data, "pvc-a", &[], last), Unseen::Forgotten, "a PersistentVolume may still be stored");
        assert_eq!(all.unseen(&data, "pvc-a", &[], NOW + BEGINNING), Unseen::Nothing);
        all.begin(&data, "pvc-b");
        assert_eq!(all.unseen(&data, "pvc-a", &[], NOW), Unseen::Request("pvc-b"));
    }

    proptest! {
        /// Whatever was begun, ended and forgotten: what was answered with the share and is not seen keeps it.
        #[test]
        fn no_answer_is_lost_before_its_volume_is_seen(
            steps in proptest::collection::vec((0u8..5, 0usize..3, 0u64..300, any::<bool>()), 0..20),
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
                    4 => {
                        all.seen(&[volume(NAMES[request])]);
                        *answered = None;
                    }
                    _ => {}
                }
            }
            let volumes: Vec<VolumeRef> = seen.iter().map(|request| volume(NAMES[*request])).collect();
            let open = |request: &usize| {
                let (calls, answered) = told[*request];
                !seen.contains(request) && (calls > 0 || answered.is_some())
            };
            let expected = (1..3).find(open).map_or(Unseen::Nothing, |request| Unseen::Request(NAMES[request]));
            prop_assert_eq!(all.unseen(&data, NAMES[0], &volumes, now), expected);
        }
    }
}
