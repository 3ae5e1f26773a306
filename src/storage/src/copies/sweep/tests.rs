//! When a process sweeps, and that a sweep deletes nothing that a disk is filled from, whatever happens between its
//! calls.

use lazuli_engine::single::AzureFailure;
use lazuli_model::{
    Completion, Disk, SnapshotAccessState,
    disk_tags::{CARRIES_TO, CREATED_BY, OF_CLUSTER},
    fault::{Effect, Fault},
    seeded::Numbers,
};

use super::*;
use crate::copies::Next;

#[derive(Debug, Clone, PartialEq)]
struct Error(Fault);

impl AzureFailure for Error {
    fn fault(&self) -> &Fault {
        &self.0
    }

    fn effect(&self) -> Effect {
        Effect::None
    }

    fn code(&self) -> &str {
        ""
    }
}

const HOUR: Duration = Duration::from_secs(3_600);

fn id(disk: &str) -> ArmId {
    ArmId::snapshot("sub", "rg", &format!("carry_{disk}")).unwrap()
}

fn disk(name: &str) -> ArmId {
    ArmId::disk("sub", "rg", name).unwrap()
}

/// A complete carrier that was made when Azure's clock began.
fn carrier(to: &str) -> Snapshot {
    let tags = [
        (CREATED_BY.0, CREATED_BY.1.to_owned()),
        (CARRIES_TO, disk(to).to_string()),
        (OF_CLUSTER, "/subscriptions/SUB/resourceGroups/RG".to_owned()),
    ];
    let tags = tags.map(|(tag, value)| (tag.to_owned(), value)).into();
    Snapshot { tags, unique_id: Some("c".into()), ..Snapshot::complete(id(to), &disk("source")) }
}

#[derive(Debug, Default)]
struct Azure {
    snapshots: BTreeMap<ArmId, Snapshot>,
    disks: BTreeMap<ArmId, Disk>,
    calls: Vec<Call>,
    /// Whose snapshots cannot be listed.
    unread: Option<String>,
}

impl Azure {
    fn with(carriers: &[Snapshot]) -> Self {
        let snapshots = carriers.iter().map(|carrier| (carrier.id.clone(), carrier.clone())).collect();
        Self { snapshots, ..Self::default() }
    }

    fn fill(&mut self, name: &str, percent: f64) {
        let completion = Some(Completion::from_percent(percent));
        let made = Disk { id: disk(name), completion, source: Some(id(name).to_string()), ..Disk::unattached("x") };
        self.disks.insert(disk(name), made);
    }

    fn answer(&mut self, hours: i64, call: &Call) -> Event<Error> {
        self.calls.push(call.clone());
        let missing = || Error(Fault::NotFound);
        match call {
            Call::List(scope) if self.unread.as_ref() == Some(&scope.subscription) => {
                Event::Snapshots(Err(Error(Fault::Forbidden)))
            }
            Call::List(scope) => {
                let now = AzureTime::from_unix_seconds(hours * 3_600);
                let is_there = |shown: &&Snapshot| shown.id.subscription().eq_ignore_ascii_case(&scope.subscription);
                Event::Snapshots(Ok((self.snapshots.values().filter(is_there).cloned().collect(), Some(now))))
            }
            Call::Look(disk) | Call::ReadDisk(disk) => {
                Event::Disk(self.disks.get(disk).cloned().map(Box::new).ok_or_else(missing))
            }
            Call::Permit(_) => Event::Permitted(Ok(())),
            Call::ReadSnapshot(id) => {
                Event::Snapshot(self.snapshots.get(id).cloned().map(Box::new).ok_or_else(missing))
            }
            Call::Delete(id) => {
                let needs = |disk: &Disk| disk.is_hydrating() && disk.source.as_deref() == Some(id.as_str());
                assert!(!self.disks.values().any(needs), "{id} is deleted while a disk is filled from it");
                self.snapshots.remove(id);
                Event::Deleted(Ok(()))
            }
        }
    }

    /// The subscriptions of what is there.
    fn others(&self) -> BTreeSet<String> {
        self.snapshots.keys().map(|id| id.subscription().to_owned()).collect()
    }

    /// Sweeps at an hour. Before each call `happens` may change what is there.
    fn sweep(&mut self, hours: i64, before: Resting, mut happens: impl FnMut(&mut Self, &Call)) -> Resting {
        let now = HOUR * u32::try_from(hours).unwrap();
        let (mut sweep, mut event) = (Sweep::new("Sub", "Rg", self.others(), before), Event::Begun);
        loop {
            match sweep.step(now, event).next {
                Next::Done(resting) => return resting,
                Next::Call(call) => {
                    happens(self, &call);
                    event = self.answer(hours, &call);
                }
            }
        }
    }
}

fn nothing(_: &mut Azure, _: &Call) {}

#[test]
fn carriers_in_other_subscriptions_are_swept_and_one_that_cannot_be_read_keeps_what_is_known_of_it() {
    let there = |subscription: &str| {
        let id = ArmId::snapshot(subscription, "rg", "carry_a").unwrap();
        Snapshot { id, ..carrier("a") }
    };
    for unread in [None, Some("other"), Some("Sub")] {
        let mut azure = Azure::with(&[there("sub"), there("other"), there("third")]);
        let resting = azure.sweep(72, Resting::new(), nothing);
        assert_eq!((azure.snapshots.len(), resting.len()), (3, 3), "each rests first");
        azure.unread = unread.map(str::to_owned);
        let resting = azure.sweep(74, resting, nothing);
        let left: Vec<&str> = azure.snapshots.keys().map(ArmId::subscription).collect();
        let expected: Vec<&str> = unread.into_iter().collect();
        assert!(
            left.iter().map(|left| left.to_lowercase()).eq(expected.iter().map(|one| one.to_lowercase())),
            "{left:?}"
        );
        assert_eq!(resting.len(), expected.len(), "{unread:?}");
        let lists = azure.calls.iter().filter(|call| matches!(call, Call::List(_))).count();
        assert_eq!(lists, 6 + usize::from(unread == Some("Sub")), "the cluster's own group alone is tried instead");
    }
}

#[test]
fn a_process_sweeps_an_hour_after_its_start_then_once_a_day_and_sooner_while_a_carrier_rests() {
    let mut sweeps = Sweeps::default();
    let mut begun = Vec::new();
    for hour in 0..80 {
        let now = HOUR * hour;
        if sweeps.step(now, Occurrence::Served).is_some() {
            begun.push(hour);
            // One at a time, however long it takes.
            assert_eq!(sweeps.step(now + HOUR * 99, Occurrence::Served), None);
            let rests = Resting::from([(id("a"), (AzureTime::from_unix_seconds(0), now))]);
            let left = if hour == 25 { rests.clone() } else { Resting::new() };
            assert_eq!(sweeps.step(now, Occurrence::Swept(left)), None);
        }
    }
    assert_eq!(begun, [1, 25, 26, 50, 74]);
    assert!(!sweeps.is_over(), "it remembers when the next one is due");
    sweeps.step(HOUR * 99, Occurrence::Drain);
    assert_eq!((sweeps.step(HOUR * 99, Occurrence::Served), sweeps.is_over()), (None, true));
}

/// The copy of a large disk takes longer than a carrier lives, and its request comes minutes after the end.
#[test]
fn a_carrier_that_was_filled_for_days_is_not_deleted_before_its_request_comes_again() {
    let pending = Snapshot { access: Some(SnapshotAccessState::Pending), ..carrier("a") };
    let mut azure = Azure::with(&[pending]);
    let left = azure.sweep(72, Resting::new(), nothing);
    assert!(left.is_empty());
    azure.snapshots = Azure::with(&[carrier("a")]).snapshots;
    let left = azure.sweep(73, left, nothing);
    assert_eq!(left.keys().collect::<Vec<_>>(), [&id("a")]);
    // The request comes, and fills its disk for days.
    azure.fill("a", 1.0);
    for hours in [74, 98, 170] {
        assert!(azure.sweep(hours, left.clone(), nothing).is_empty());
    }
    assert!(azure.snapshots.contains_key(&id("a")));
    azure.fill("a", 100.0);
    azure.sweep(171, Resting::new(), nothing);
    assert!(azure.snapshots.is_empty());
}

#[test]
fn a_carrier_without_a_disk_is_deleted_once_it_has_rested_for_an_hour() {
    let mut azure = Azure::with(&[carrier("a")]);
    let left = azure.sweep(72, Resting::new(), nothing);
    // What cannot be read is known as before.
    let scope_is_gone = |azure: &mut Azure, call: &Call| {
        if matches!(call, Call::Look(_)) {
            azure.snapshots.clear();
        }
    };
    assert_eq!((azure.snapshots.len(), left.len()), (1, 1));
    // Another one of its name has not rested yet.
    let other = Snapshot { created: AzureTime::from_unix_seconds(3_600), ..carrier("a") };
    let mut remade = Azure::with(&[other]);
    assert_eq!(remade.sweep(73, left.clone(), nothing).len(), 1);
    assert_eq!(remade.snapshots.len(), 1);
    azure.sweep(73, left.clone(), nothing);
    assert!(azure.snapshots.is_empty());
    let mut gone = Azure::with(&[carrier("a")]);
    assert!(gone.sweep(73, left, scope_is_gone).is_empty());
    assert!(!gone.calls.iter().any(|call| matches!(call, Call::Delete(_))));
}

/// In whichever moment a request begins to fill the disk, or a person keeps the snapshot.
#[test]
fn both_are_read_behind_the_permit() {
    let mut kept = 0;
    for seed in 0..2_000 {
        let mut numbers = Numbers::new(seed);
        let mut azure = Azure::with(&[carrier("a")]);
        let left = azure.sweep(72, Resting::new(), nothing);
        let (moment, is_request) = (numbers.below(4), numbers.one_in(2));
        let mut calls = 0;
        azure.sweep(74, left, |azure, call| {
            if calls == moment && !matches!(call, Call::ReadSnapshot(_) | Call::Delete(_)) {
                match is_request {
                    true => azure.fill("a", 1.0),
                    false => drop(azure.snapshots.get_mut(&id("a")).unwrap().tags.remove(CARRIES_TO)),
                }
            }
            calls += 1;
        });
        let is_changed = azure.snapshots.get(&id("a")).is_some_and(|there| !there.tags.contains_key(CARRIES_TO));
        assert!(azure.disks.is_empty() || azure.snapshots.len() == 1, "seed {seed}");
        kept += usize::from(is_changed || !azure.disks.is_empty());
        let order: Vec<_> = azure.calls.iter().rev().take(4).rev().collect();
        if let [permit, disk, snapshot, Call::Delete(_)] = order[..] {
            assert!(matches!((permit, disk), (Call::Permit(_), Call::ReadDisk(_))), "{order:?}");
            assert!(matches!(snapshot, Call::ReadSnapshot(_)), "{order:?}");
        }
    }
    assert!(kept > 1_000, "{kept}");
}

#[test]
fn another_cluster_s_carriers_are_left_alone() {
    let other = |cluster: Option<&str>| {
        let mut other = carrier("a");
        other.tags.remove(OF_CLUSTER);
        other.tags.extend(cluster.map(|cluster| (OF_CLUSTER.to_owned(), cluster.to_owned())));
        other
    };
    for cluster in [None, Some("/subscriptions/sub/resourceGroups/other"), Some("rg"), Some("")] {
        let mut azure = Azure::with(&[other(cluster)]);
        azure.fill("a", 100.0);
        assert!(azure.sweep(99, Resting::new(), nothing).is_empty());
        assert_eq!(azure.calls.len(), 1, "{cluster:?}: the list alone");
    }
}
