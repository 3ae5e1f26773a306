//! What holds for every copy, by whichever failures its calls meet and wherever it is given up.
//!
//! It converges; nothing is made from what is not complete; a carrier goes no earlier than its disk is filled, and stays only
//! where a later call, a deletion or the sweep takes it; a final code leaves no carrier, and no disk is answered that is
//! another one.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use lazuli_engine::single::AzureFailure;
use lazuli_model::{
    ArmId, AzureTime, Completion, CopyMethod, Disk, Gib, ProvisioningState, SkuName, Snapshot, SnapshotAccessState,
    disk_spec::DiskSpec,
    fault::{Code, Effect, Fault},
    seeded::Numbers,
    snapshot_spec::SnapshotSpec,
};
use lazuli_volume::{
    AccessMode, AccessType, Capability, DISK_TOPOLOGY_KEY, Defaults, Request,
    copy::{Link, is_carrier_to},
};

use super::*;

const SEEDS: u64 = 20_000;

#[derive(Debug, Clone, PartialEq)]
struct Error(Fault, Effect);

impl AzureFailure for Error {
    fn fault(&self) -> &Fault {
        &self.0
    }

    fn effect(&self) -> Effect {
        self.1
    }

    fn code(&self) -> &str {
        ""
    }
}

type Happened = Event<Error, Error>;

fn disk(name: &str) -> ArmId {
    ArmId::disk("sub", "rg", name).unwrap()
}

fn snapshot(name: &str) -> ArmId {
    ArmId::snapshot("sub", "rg", name).unwrap()
}

fn defaults() -> Defaults {
    Defaults {
        subscription: "sub".into(),
        resource_group: "rg".into(),
        location: "eastus".into(),
        ..Defaults::default()
    }
}

/// A claim of 10 GiB in this zone.
fn claim(sku: SkuName, zone: &str) -> Request {
    let zone = BTreeMap::from([(DISK_TOPOLOGY_KEY.to_owned(), format!("eastus-{zone}"))]);
    let access_type = Some(AccessType::Mount { fs_type: String::new(), flags: Vec::new() });
    Request {
        name: "pvc-1".into(),
        parameters: BTreeMap::from([("skuName".to_owned(), sku.to_string())]),
        required_bytes: 10 << 30,
        capabilities: vec![Capability { access_type, access_mode: AccessMode::SingleNodeWriter }],
        requisite: vec![zone.clone()],
        preferred: vec![zone],
        ..Request::default()
    }
}

/// A simulated Azure. The source of the tests is in zone 1.
#[derive(Debug, Clone, PartialEq)]
struct Azure {
    disks: BTreeMap<ArmId, Disk>,
    snapshots: BTreeMap<ArmId, Snapshot>,
    made: u32,
    /// One call of so many fails.
    fails: u64,
    is_limited: bool,
}

impl Azure {
    fn new(fails: u64) -> Self {
        let source = Disk {
            location: "eastus".into(),
            zones: vec!["1".into()],
            sku: Some(SkuName::PremiumLrs),
            size: Gib::new(10),
            unique_id: Some("d-1".into()),
            ..Disk::unattached("x")
        };
        let taken = Snapshot {
            location: "eastus".into(),
            size: Gib::new(10),
            unique_id: Some("s-1".into()),
            ..Snapshot::complete(snapshot("snap"), &disk("source"))
        };
        Self {
            disks: BTreeMap::from([(disk("source"), Disk { id: disk("source"), ..source })]),
            snapshots: BTreeMap::from([(taken.id.clone(), taken)]),
            made: 0,
            fails,
            is_limited: false,
        }
    }

    fn unique(&mut self) -> Option<String> {
        self.made += 1;
        Some(format!("u-{}", self.made))
    }

    fn tick(&mut self) {
        for snapshot in self.snapshots.values_mut() {
            snapshot.access = Some(SnapshotAccessState::Available);
        }
        for disk in self.disks.values_mut().filter(|disk| disk.is_hydrating()) {
            disk.completion = Some(Completion::COMPLETE);
        }
    }

    /// A failure of a call, before its effect or after it.
    fn failure(&self, numbers: &mut Numbers) -> Option<(Error, bool)> {
        if self.fails == 0 || !numbers.one_in(self.fails) {
            return None;
        }
        Some(match numbers.below(5) {
            0 => (Error(Fault::Throttled { retry_after: None }, Effect::None), false),
            1 => (Error(Fault::OutcomeUnknown, Effect::Possible), true),
            2 => (Error(Fault::Forbidden, Effect::None), false),
            3 => (Error(Fault::Exhausted, Effect::None), false),
            _ => (Error(Fault::Conflict, Effect::None), false),
        })
    }

    fn make_disk(&mut self, id: &ArmId, spec: &DiskSpec) -> Arc<Disk> {
        if let Some(there) = self.disks.get(id) {
            return Arc::new(there.clone());
        }
        let of = spec.copy_of().unwrap();
        let source_unique_id = match (self.disks.get(&of.source), self.snapshots.get(&of.source)) {
            (Some(source), _) => {
                assert!(source.zones == spec.zones, "Azure refuses a clone into another zone");
                source.unique_id.clone()
            }
            (_, Some(source)) => {
                assert!(source.is_complete(), "nothing is made from an incomplete snapshot");
                source.unique_id.clone()
            }
            _ => panic!("{} is gone", of.source),
        };
        let is_filling = spec.sku == SkuName::PremiumV2Lrs;
        let made = Disk {
            id: id.clone(),
            location: spec.location.clone(),
            zones: spec.zones.clone(),
            sku: Some(spec.sku),
            size: spec.size_to_send().unwrap_or(Gib::new(10)),
            tags: spec.tags.clone(),
            source: Some(of.source.to_string()),
            source_unique_id,
            unique_id: self.unique(),
            completion: is_filling.then(|| Completion::from_percent(1.0)),
            ..Disk::unattached("x")
        };
        self.disks.insert(id.clone(), made.clone());
        Arc::new(made)
    }

    fn make_snapshot(&mut self, id: &ArmId, spec: &SnapshotSpec, is_late: bool) -> Box<Snapshot> {
        if let Some(there) = self.snapshots.get(id) {
            return Box::new(there.clone());
        }
        let made = Snapshot {
            location: spec.location.clone(),
            size: Gib::new(10),
            unique_id: self.unique(),
            source_unique_id: self.disks[&spec.source].unique_id.clone(),
            method: Some(CopyMethod::Copy),
            tags: spec.tags.clone(),
            access: is_late.then_some(SnapshotAccessState::Pending),
            ..Snapshot::complete(id.clone(), &spec.source)
        };
        self.snapshots.insert(id.clone(), made.clone());
        Box::new(made)
    }

    fn delete_snapshot(&mut self, id: &ArmId) {
        let needs = |disk: &Disk| {
            disk.is_hydrating() && disk.source.as_deref().and_then(|source| source.parse().ok()).as_ref() == Some(id)
        };
        assert!(!self.disks.values().any(needs), "{id} is deleted while a disk is filled from it");
        self.snapshots.remove(id);
    }

    fn answer(&mut self, call: &Call, numbers: &mut Numbers) -> Happened {
        let failure = self.failure(numbers);
        let (error, is_done) = match failure {
            Some((error, is_done)) => (Some(error), is_done),
            None => (None, true),
        };
        let missing = || Error(Fault::NotFound, Effect::None);
        let or = |error: Option<Error>| error.map_or(Ok(()), Err);
        match call {
            Call::ReadDisk { disk, .. } => {
                let read = self.disks.get(disk).cloned().map(Box::new).ok_or_else(missing);
                Event::Disk(or(error.map(|Error(fault, _)| Error(fault, Effect::None))).and(read))
            }
            Call::ReadSnapshot { snapshot: id, .. } => {
                let read = self.snapshots.get(id).cloned().map(Box::new).ok_or_else(missing);
                Event::Snapshot(or(error.map(|Error(fault, _)| Error(fault, Effect::None))).and(read))
            }
            Call::MakeDisk { disk, spec } => {
                if self.is_limited {
                    return Event::DiskMade(Err(Error(Fault::Exhausted, Effect::None)));
                }
                let made = is_done.then(|| self.make_disk(disk, spec));
                Event::DiskMade(error.map_or_else(|| Ok(made.unwrap()), Err))
            }
            Call::MakeSnapshot { snapshot, spec } => {
                let is_late = numbers.one_in(2);
                let made = is_done.then(|| self.make_snapshot(snapshot, spec, is_late));
                Event::SnapshotMade(error.map_or_else(|| Ok(made.unwrap()), Err))
            }
            Call::DeleteDisk(disk) => {
                if is_done {
                    self.disks.remove(disk);
                }
                Event::Deleted(or(error))
            }
            Call::DeleteSnapshot(id) => {
                if is_done {
                    self.delete_snapshot(id);
                }
                Event::Deleted(or(error))
            }
            Call::ListDisks(_) => Event::Disks(or(error).map(|()| self.disks.values().cloned().collect())),
            Call::ListSnapshots(_) => {
                let all = self.snapshots.values().cloned().collect();
                Event::Snapshots(or(error).map(|()| (all, Some(AzureTime::from_unix_seconds(0)))))
            }
        }
    }

    /// The answer to a call of a sweep, days after all carriers were made.
    fn swept(&mut self, call: &sweep::Call) -> sweep::Event<Error> {
        let missing = || Error(Fault::NotFound, Effect::None);
        match call {
            sweep::Call::List(_) => {
                let all = self.snapshots.values().cloned().collect();
                sweep::Event::Snapshots(Ok((all, Some(AzureTime::from_unix_seconds(72 * 3_600)))))
            }
            sweep::Call::Look(disk) | sweep::Call::ReadDisk(disk) => {
                sweep::Event::Disk(self.disks.get(disk).cloned().map(Box::new).ok_or_else(missing))
            }
            sweep::Call::Permit(_) => sweep::Event::Permitted(Ok(())),
            sweep::Call::ReadSnapshot(id) => {
                sweep::Event::Snapshot(self.snapshots.get(id).cloned().map(Box::new).ok_or_else(missing))
            }
            sweep::Call::Delete(id) => {
                self.delete_snapshot(id);
                sweep::Event::Deleted(Ok(()))
            }
        }
    }

    fn carriers(&self) -> Vec<&ArmId> {
        self.snapshots.values().filter(|there| is_carrier_to(there, &disk("pvc-1"))).map(|there| &there.id).collect()
    }
}

/// A call of CreateVolume. `None`: it was given up.
fn call(
    azure: &mut Azure,
    request: &Request,
    source: &ArmId,
    numbers: &mut Numbers,
) -> Option<Result<Made, Failure<Error, Error>>> {
    let mut create = Create::new(request.clone(), source.clone(), defaults()).unwrap();
    let (mut links, mut event) = (Links::default(), Event::Begun);
    for _ in 0..30 {
        match create.step(&mut links, event).next {
            Next::Done(done) => return Some(done),
            Next::Call(next) => event = azure.answer(&next, numbers),
        }
        if azure.fails > 0 && numbers.one_in(12) {
            return None;
        }
    }
    panic!("it does not end");
}

/// Sweeps whatever comes of it, an hour after a first look.
fn swept(azure: &mut Azure) {
    let mut resting = sweep::Resting::new();
    for hours in [0, 1] {
        let now = Duration::from_secs(hours * 3_600);
        let (mut sweep, mut event) =
            (sweep::Sweep::new("sub", "rg", Default::default(), resting), sweep::Event::<Error>::Begun);
        resting = loop {
            match sweep.step(now, event).next {
                Next::Done(resting) => break resting,
                Next::Call(next) => event = azure.swept(&next),
            }
        };
    }
}

fn drawn(numbers: &mut Numbers) -> (Request, ArmId) {
    let sku = if numbers.one_in(2) { SkuName::PremiumV2Lrs } else { SkuName::PremiumLrs };
    let zone = ["1", "2"][usize::try_from(numbers.below(2)).unwrap()];
    let source = if numbers.one_in(3) { snapshot("snap") } else { disk("source") };
    (claim(sku, zone), source)
}

#[test]
fn a_copy_converges_by_whichever_failures_and_leaves_nothing_behind() {
    let (mut over_carrier, mut final_codes, mut unreadable) = (0, 0, 0);
    for seed in 0..SEEDS {
        let mut numbers = Numbers::new(seed);
        let (request, source) = drawn(&mut numbers);
        let mut azure = Azure::new(2 + numbers.below(6));
        for _ in 0..numbers.below(8) {
            let outcome = call(&mut azure, &request, &source, &mut numbers);
            over_carrier += usize::from(!azure.carriers().is_empty());
            if let Some(Err(failure @ Failure::Unreadable { .. })) = &outcome
                && !failure.code().keeps_the_claim()
            {
                unreadable += 1;
                assert_eq!(azure.carriers(), Vec::<&ArmId>::new(), "seed {seed}: {failure:?}");
                assert!(!azure.disks.contains_key(&disk("pvc-1")), "seed {seed}: {failure:?}");
            }
            if let Some(Err(failure)) = outcome
                && let Failure::Work(_) = failure
                && !failure.code().keeps_the_claim()
            {
                final_codes += 1;
            }
            if numbers.one_in(2) {
                azure.tick();
            }
        }
        azure.fails = 0;
        let mut answered = None;
        for _ in 0..4 {
            match call(&mut azure, &request, &source, &mut numbers) {
                Some(Ok(made)) => answered = Some(made),
                Some(Err(failure)) => assert_eq!(failure.code(), Code::Unavailable, "seed {seed}: {failure:?}"),
                None => unreachable!("no call is given up"),
            }
            azure.tick();
        }
        let made = answered.unwrap_or_else(|| panic!("seed {seed}: it is never answered"));
        assert_eq!(made.disk.id, disk("pvc-1"), "seed {seed}");
        assert_eq!(
            Link::of_disk(&made.disk),
            Link::MadeFrom { source: source.clone(), bytes: 10 << 30 },
            "seed {seed}"
        );
        swept(&mut azure);
        assert_eq!(azure.carriers(), Vec::<&ArmId>::new(), "seed {seed}");
        assert!(azure.snapshots.contains_key(&snapshot("snap")), "seed {seed}");
    }
    let enough = over_carrier > 1_000 && final_codes > 1_000 && unreadable > 100;
    assert!(enough, "{over_carrier} {final_codes} {unreadable}");
}

#[test]
fn a_deletion_takes_the_carrier_along_whatever_is_known_of_the_disk() {
    let mut with_carrier = 0;
    for seed in 0..SEEDS {
        let mut numbers = Numbers::new(seed);
        let (request, source) = drawn(&mut numbers);
        let mut azure = Azure::new(5);
        for _ in 0..numbers.below(5) {
            drop(call(&mut azure, &request, &source, &mut numbers));
        }
        azure.fails = 0;
        with_carrier += usize::from(!azure.carriers().is_empty());
        let target = disk("pvc-1");
        let known = azure.disks.get(&target).filter(|_| numbers.one_in(2)).and_then(|disk| disk.source.clone());
        let all: Vec<Snapshot> = azure.snapshots.values().cloned().collect();
        let carrier = Remove::carrier_in(&all, &target);
        // A list that lags lacks it, and what is known of the disk names it.
        let is_known = carrier.as_ref().is_some_and(|carrier| known.as_deref() == Some(carrier.as_str()));
        let listed = carrier.filter(|_| !is_known || numbers.one_in(2));
        let (mut remove, mut event) = (Remove::new(target.clone(), known.as_deref(), listed), Event::Begun);
        loop {
            match remove.step::<Error, Error>(event).next {
                Next::Done(removed) => {
                    removed.unwrap();
                    break;
                }
                Next::Call(next) => event = azure.answer(&next, &mut numbers),
            }
        }
        assert!(!azure.disks.contains_key(&target) && azure.carriers().is_empty(), "seed {seed}");
        assert!(azure.snapshots.contains_key(&snapshot("snap")), "seed {seed}");
    }
    assert!(with_carrier > 1_000, "{with_carrier}");
}

/// After a code that external-provisioner takes for the end, or that has it choose another zone, no call may come that ends
/// what was begun.
#[test]
fn a_final_refusal_of_the_disk_leaves_no_carrier_and_one_that_is_not_final_keeps_it() {
    for (error, is_kept) in [
        (Error(Fault::Invalid, Effect::None), false),
        (Error(Fault::Exhausted, Effect::None), false),
        (Error(Fault::Forbidden, Effect::None), false),
        (Error(Fault::Exhausted, Effect::Possible), true),
        (Error(Fault::Throttled { retry_after: None }, Effect::None), true),
        (Error(Fault::Conflict, Effect::None), true),
    ] {
        let (mut azure, mut numbers) = (Azure::new(0), Numbers::new(2));
        let mut create = Create::new(claim(SkuName::PremiumLrs, "2"), disk("source"), defaults()).unwrap();
        let (mut links, mut event) = (Links::default(), Event::Begun);
        let failure = loop {
            match create.step(&mut links, event).next {
                Next::Done(done) => break done.unwrap_err(),
                Next::Call(Call::MakeDisk { .. }) => event = Event::DiskMade(Err(error.clone())),
                Next::Call(Call::MakeSnapshot { snapshot, spec }) => {
                    event = Event::SnapshotMade(Ok(azure.make_snapshot(&snapshot, &spec, false)));
                }
                Next::Call(next) => event = azure.answer(&next, &mut numbers),
            }
        };
        assert_eq!((failure.code().keeps_the_claim(), azure.carriers().is_empty()), (is_kept, !is_kept), "{error:?}");
    }
}

/// In a storm the first reads of requests that have only begun fill the queue; behind them the writes would wait, and Azure's
/// bucket of writes would be full meanwhile.
#[test]
fn a_request_reads_its_source_last_and_what_comes_after_before_the_sources_of_others() {
    let mut azure = Azure::new(0);
    for (source, sku, zone) in
        [(snapshot("snap"), SkuName::PremiumLrs, "1"), (disk("source"), SkuName::PremiumLrs, "2")]
    {
        let mut numbers = Numbers::new(1);
        let mut create = Create::new(claim(sku, zone), source, defaults()).unwrap();
        let (mut links, mut event, mut ranks) = (Links::default(), Event::Begun, Vec::new());
        while let Next::Call(next) = create.step(&mut links, event).next {
            if let Call::ReadDisk { priority, .. } | Call::ReadSnapshot { priority, .. } = &next {
                ranks.push(*priority);
            }
            event = azure.answer(&next, &mut numbers);
        }
        assert!(ranks.len() > 1, "{ranks:?}");
        assert_eq!(ranks.remove(0), Priority::Read);
        assert!(ranks.iter().all(|priority| *priority < Priority::Read), "{ranks:?}");
    }
}

#[test]
fn a_limit_that_is_reached_is_never_exhaustion() {
    for (filling, limited) in [(4, false), (5, true)] {
        let (mut azure, mut numbers) = (Azure::new(0), Numbers::new(1));
        let request = claim(SkuName::PremiumV2Lrs, "1");
        call(&mut azure, &request, &snapshot("snap"), &mut numbers).unwrap().unwrap();
        let made = azure.disks.remove(&disk("pvc-1")).unwrap();
        for n in 0..filling {
            let id = disk(&format!("filling-{n}"));
            azure.disks.insert(id.clone(), Disk { id, ..made.clone() });
        }
        azure.is_limited = true;
        let failure = call(&mut azure, &request, &snapshot("snap"), &mut numbers).unwrap().unwrap_err();
        assert_eq!(matches!(failure, Failure::Limited(..)), limited, "{failure:?}");
        assert_eq!(failure.code(), if limited { Code::Unavailable } else { Code::ResourceExhausted });
    }
}

/// Azure is asked: what it refuses while instant access lasts is told in words of its own.
#[test]
fn what_azure_refuses_while_instant_access_lasts_is_explained() {
    for (access, is_explained) in
        [(SnapshotAccessState::AvailableWithInstantAccess, true), (SnapshotAccessState::Available, false)]
    {
        let (mut azure, mut numbers) = (Azure::new(0), Numbers::new(1));
        azure.snapshots.get_mut(&snapshot("snap")).unwrap().access = Some(access);
        azure.is_limited = true;
        let request = claim(SkuName::PremiumLrs, "1");
        let failure = call(&mut azure, &request, &snapshot("snap"), &mut numbers).unwrap().unwrap_err();
        let explained = matches!(failure, Failure::Refused(CopyRefusal::InstantAccess(_)));
        assert_eq!(explained, is_explained, "{failure:?}");
        assert!(!is_explained || failure.code() == Code::Unavailable);
    }
}

#[test]
fn a_failed_creation_is_completed_once_and_what_stays_failed_is_answered() {
    let (mut azure, mut numbers) = (Azure::new(0), Numbers::new(1));
    let request = claim(SkuName::PremiumLrs, "1");
    call(&mut azure, &request, &disk("source"), &mut numbers).unwrap().unwrap();
    azure.disks.get_mut(&disk("pvc-1")).unwrap().provisioning_state = ProvisioningState::Failed;
    // A change of it has failed: the creation leaves it as it is.
    let made = call(&mut azure, &request, &disk("source"), &mut numbers).unwrap().unwrap();
    assert_eq!(made.disk.provisioning_state, ProvisioningState::Failed);
}

#[test]
fn a_volume_is_answered_although_the_resource_group_of_its_source_is_gone() {
    let (mut azure, mut numbers) = (Azure::new(0), Numbers::new(1));
    let request = claim(SkuName::PremiumLrs, "1");
    for (is_made, code) in [(false, Some(Code::NotFound)), (true, None)] {
        if is_made {
            call(&mut azure, &request, &snapshot("snap"), &mut numbers).unwrap().unwrap();
        }
        let mut create = Create::new(request.clone(), snapshot("snap"), defaults()).unwrap();
        let (mut links, mut event) = (Links::default(), Event::Begun);
        let done = loop {
            match create.step(&mut links, event).next {
                Next::Done(done) => break done,
                Next::Call(Call::ReadSnapshot { .. }) => {
                    event = Event::Snapshot(Err(Error(Fault::ScopeNotFound, Effect::None)));
                }
                Next::Call(next) => event = azure.answer(&next, &mut numbers),
            }
        };
        assert_eq!(done.err().map(|failure| failure.code()), code);
    }
}

#[test]
fn a_source_that_may_not_be_read_ends_the_request_only_where_nothing_is_left_of_it() {
    let left = |there: &str| {
        let (mut azure, mut numbers) = (Azure::new(0), Numbers::new(1));
        let request = claim(SkuName::PremiumLrs, "2");
        let mut create = Create::new(request.clone(), disk("source"), defaults()).unwrap();
        let (mut links, mut event, mut is_unreadable) = (Links::default(), Event::Begun, false);
        while let Step { next: Next::Call(next), .. } = create.step(&mut links, event) {
            event = azure.answer(&next, &mut numbers);
            if there == "carrier" && !azure.carriers().is_empty()
                || there == "disk" && azure.disks.contains_key(&disk("pvc-1"))
            {
                break;
            }
            is_unreadable |= there == "nothing";
            if is_unreadable {
                break;
            }
            azure.tick();
        }
        if there == "disk" {
            azure.snapshots.retain(|_, snapshot| !is_carrier_to(snapshot, &disk("pvc-1")));
        }
        let mut create = Create::new(request, disk("source"), defaults()).unwrap();
        let (mut event, mut reads) = (Event::Begun, 0);
        loop {
            match create.step(&mut links, event).next {
                Next::Done(done) => return (done.unwrap_err().code(), reads),
                Next::Call(Call::ReadDisk { disk: read, .. }) if read == disk("source") => {
                    event = Event::Disk(Err(Error(Fault::Forbidden, Effect::None)));
                }
                Next::Call(next) => event = azure.answer(&next, &mut numbers),
            }
            reads += 1;
        }
    };
    assert_eq!(left("nothing"), (Code::PermissionDenied, 4));
    assert_eq!(left("carrier"), (Code::Unavailable, 4));
    assert_eq!(left("disk"), (Code::Unavailable, 3));
}

#[test]
fn bad_input_is_refused_before_anything_is_asked_of_azure() {
    let mut request = claim(SkuName::PremiumLrs, "1");
    request.parameters.insert("cachingMode".into(), "Sometimes".into());
    let error = Create::<Error>::new(request, disk("source"), defaults()).unwrap_err();
    assert_eq!((error.parameter.as_str(), error.value.as_str()), ("cachingMode", "Sometimes"));
}

/// The roles of a subscription are mended while the process runs.
#[test]
fn what_could_not_be_read_is_read_again_minutes_later_and_what_is_known_is_not() {
    let (mut links, azure) = (Links::default(), Azure::new(0));
    let mut line = |seconds: u64, is_allowed: bool| {
        let now = Duration::from_secs(seconds);
        let (mut walk, mut event, mut reads) = (Descend::new(snapshot("snap"), Priority::Attach), Happened::Begun, 0);
        loop {
            let call = match walk.next(links.at(now), event).unwrap() {
                Next::Done(descent) => return (descent.line.origins().len(), reads),
                Next::Call(call) => call,
            };
            reads += 1;
            event = match call {
                Call::ReadSnapshot { snapshot: id, .. } => {
                    let missing = || Error(Fault::NotFound, Effect::None);
                    Event::Snapshot(azure.snapshots.get(&id).cloned().map(Box::new).ok_or_else(missing))
                }
                Call::ReadDisk { disk, .. } if is_allowed => {
                    let from = Some(snapshot("first").to_string());
                    Event::Disk(Ok(Box::new(Disk { source: from, ..azure.disks[&disk].clone() })))
                }
                Call::ReadDisk { .. } => Event::Disk(Err(Error(Fault::Forbidden, Effect::None))),
                other => panic!("{other:?}"),
            };
        }
    };
    assert_eq!(line(0, false), (2, 2));
    assert_eq!(line(119, true), (2, 0), "it is not asked for at every publish");
    assert_eq!(line(121, true), (3, 2), "the disk, and what it was made from, which is gone");
}
