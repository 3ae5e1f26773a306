//! What holds for every request, killed and repeated at any moment, beside snapshots of others.
//!
//! It converges; it leaves what is not its own alone; every prefix of its writes is safe; it does not depend on the order of
//! what is there; and it is quiet where only letter case differs.

use lazuli_model::seeded::Numbers;

use super::*;

/// A simulated Azure with one disk.
#[derive(Clone)]
struct World {
    disk: Option<Disk>,
    snapshots: BTreeMap<ArmId, Snapshot>,
    made: u32,
}

impl World {
    fn new(numbers: &mut Numbers) -> Self {
        let disk = if numbers.one_in(2) { disk() } else { v2() };
        let mut world = Self { disk: Some(disk), snapshots: BTreeMap::new(), made: 0 };
        for name in ["by-hand", "local_by-hand", "snapshot-2", "local_snapshot-2"] {
            if numbers.one_in(2) {
                let id = ArmId::snapshot("sub", "disks", name).unwrap();
                world.snapshots.insert(id.clone(), Snapshot::complete(id, &VOLUME.parse().unwrap()));
            }
        }
        world
    }

    fn has_disk(&self) -> SourceSeen<'_> {
        self.disk.as_ref().map_or(SourceSeen::Gone, SourceSeen::Disk)
    }

    /// As Azure may spell it.
    fn read(&self, id: &ArmId, numbers: &mut Numbers) -> Option<Snapshot> {
        let mut snapshot = self.snapshots.get(id)?.clone();
        if numbers.one_in(2) {
            snapshot.id = snapshot.id.to_string().to_uppercase().parse().unwrap();
            snapshot.source = snapshot.source.map(|source| source.to_lowercase());
            snapshot.location = snapshot.location.to_uppercase();
            snapshot.tags = snapshot.tags.into_iter().map(|(key, value)| (key.to_uppercase(), value)).collect();
        }
        Some(snapshot)
    }

    fn create(&mut self, id: &ArmId, spec: &SnapshotSpec) {
        assert!(!self.snapshots.contains_key(id), "{id} exists, and is PUT");
        self.made += 1;
        let mut snapshot = made(id, spec);
        snapshot.unique_id = Some(format!("s-{}", self.made));
        match spec.method {
            CopyMethod::Copy => {
                let disk = self.disk.as_ref().expect("no snapshot of a disk that is gone is asked for");
                assert_eq!(spec.source, disk.id);
                snapshot.source_unique_id = disk.unique_id.clone();
                if disk.sku == Some(SkuName::PremiumV2Lrs) {
                    snapshot = pending(snapshot);
                }
            }
            CopyMethod::CopyStart => {
                let source = &self.snapshots[&spec.source];
                assert!(source.is_complete(), "Azure copies no incomplete snapshot");
                snapshot.source_unique_id = source.unique_id.clone();
                snapshot = pending(snapshot);
            }
        }
        snapshot.provisioning_state = ProvisioningState::InProgress;
        self.snapshots.insert(id.clone(), snapshot);
    }

    fn delete(&mut self, id: &ArmId) {
        let filled_from = |copy: &Snapshot| {
            !copy.is_complete() && copy.source.as_deref().and_then(|s| s.parse::<ArmId>().ok()).as_ref() == Some(id)
        };
        assert!(!self.snapshots.values().any(filled_from), "{id} is deleted while something is copied from it");
        assert!(self.snapshots.remove(id).is_some(), "{id} is not there, and is deleted");
    }

    /// Azure goes on with one of its operations.
    fn tick(&mut self) {
        for snapshot in self.snapshots.values_mut() {
            if snapshot.provisioning_state == ProvisioningState::InProgress {
                snapshot.provisioning_state = ProvisioningState::Succeeded;
                return;
            }
            if !snapshot.is_complete() {
                (snapshot.access, snapshot.completion) =
                    (Some(SnapshotAccessState::Available), Some(Completion::COMPLETE));
                return;
            }
        }
    }
}

fn asked(numbers: &mut Numbers, across: bool) -> SnapshotRequest {
    let mut pairs = vec![("tags".to_owned(), "team=red".to_owned())];
    if across {
        pairs.push(("location".to_owned(), "westus".to_owned()));
    }
    if numbers.one_in(2) {
        for (key, value) in &mut pairs {
            *key = key.to_uppercase();
            if value == "westus" {
                *value = "West US".to_owned();
            }
        }
    }
    let volume = if numbers.one_in(2) { VOLUME.to_uppercase() } else { VOLUME.to_owned() };
    SnapshotRequest {
        name: "snapshot-1".into(),
        volume: volume.parse().unwrap(),
        parameters: pairs.into_iter().collect(),
    }
}

/// A CreateSnapshot that is served until it is answered or killed.
fn call(world: &mut World, across: bool, numbers: &mut Numbers) -> Option<SnapshotView> {
    let request = asked(numbers, across);
    let plan = plan_snapshot(&request, &defaults(), world.has_disk()).unwrap();
    for _ in 0..20 {
        let local = match &plan.route {
            Route::AcrossRegions { local, .. } => world.read(local, numbers),
            Route::InRegion(_) => None,
        };
        let seen = SnapshotsSeen { target: world.read(&plan.snapshot, numbers), local };
        match next(&plan, &seen).unwrap() {
            NextSnapshot::Create { snapshot, spec } => world.create(&snapshot, &spec),
            NextSnapshot::DeleteLocal(local) => {
                let target = &world.snapshots[&plan.snapshot];
                assert!(target.is_ready() && target.is_complete(), "the content is nowhere else");
                world.delete(&local);
            }
            NextSnapshot::Answer(view) => return Some(view),
        }
        if numbers.one_in(3) {
            return None;
        }
        if numbers.one_in(2) {
            world.tick();
        }
    }
    panic!("it is never answered");
}

/// A DeleteSnapshot that is served until it is done or killed.
fn delete(world: &mut World, id: &ArmId, numbers: &mut Numbers) -> bool {
    let mut local: Option<Option<Snapshot>> = None;
    for _ in 0..10 {
        let target = world.read(id, numbers);
        match next_deletion(id, target.as_ref(), local.as_ref().map(Option::as_ref)) {
            NextDeletion::ReadLocal(id) => local = Some(world.read(&id, numbers)),
            NextDeletion::Delete(id) => world.delete(&id),
            NextDeletion::DeleteLast(id) => {
                world.delete(&id);
                return true;
            }
            NextDeletion::Done => return true,
        }
        if numbers.one_in(3) {
            return false;
        }
    }
    panic!("it is never done");
}

#[test]
fn a_request_that_is_killed_and_repeated_makes_one_snapshot_and_leaves_nothing_else() {
    let target = ArmId::snapshot("sub", "disks", "snapshot-1").unwrap();
    for seed in 0..4_000 {
        let mut numbers = Numbers::new(seed);
        let mut world = World::new(&mut numbers);
        let others = world.snapshots.clone();
        let across = numbers.one_in(2);
        let mut view = None;
        for _ in 0..200 {
            view = call(&mut world, across, &mut numbers);
            if let Some(view) = &view {
                assert_eq!(view.snapshot, target, "seed {seed}");
                if view.is_ready {
                    break;
                }
            }
            // Its content is safe from the disk once it is complete.
            let own = |snapshot: &&Snapshot| !others.contains_key(&snapshot.id);
            if world.snapshots.values().filter(own).any(Snapshot::is_complete) && numbers.one_in(4) {
                world.disk = None;
                if across && numbers.one_in(2) {
                    world.disk = Some(Disk { unique_id: Some("u-2".into()), ..disk() });
                }
            }
            world.tick();
        }
        assert!(view.is_some_and(|view| view.is_ready), "seed {seed}");
        let own: Vec<&ArmId> = world.snapshots.keys().filter(|id| !others.contains_key(*id)).collect();
        assert_eq!(own, [&target], "seed {seed}");
        assert_eq!(world.made, if across { 2 } else { 1 }, "seed {seed}: none is taken a second time");
        let region = if across { "westus" } else { "eastus" };
        assert_eq!(canonical_region(&world.snapshots[&target].location), region);
        // It is quiet from then on.
        let (before, snapshots) = (world.made, world.snapshots.clone());
        while call(&mut world, across, &mut numbers).is_none() {}
        assert_eq!((world.made, &world.snapshots), (before, &snapshots), "seed {seed}");
        while !delete(&mut world, &target, &mut numbers) {}
        assert_eq!(world.snapshots, others, "seed {seed}");
    }
}

#[test]
fn a_deletion_at_any_moment_leaves_nothing_of_the_request() {
    let target = ArmId::snapshot("sub", "disks", "snapshot-1").unwrap();
    for seed in 0..4_000 {
        let mut numbers = Numbers::new(seed);
        let mut world = World::new(&mut numbers);
        let others = world.snapshots.clone();
        let across = numbers.one_in(2);
        for _ in 0..numbers.below(12) {
            drop(call(&mut world, across, &mut numbers));
            world.tick();
        }
        while !delete(&mut world, &target, &mut numbers) {}
        assert_eq!(world.snapshots, others, "seed {seed}");
    }
}

#[test]
fn two_requests_never_share_a_snapshot() {
    let name = |n: u8| SnapshotRequest { name: format!("snapshot-{n}"), ..request(&[]) };
    let plan = |n| plan_snapshot(&name(n), &defaults(), SourceSeen::Disk(&disk())).unwrap();
    for (one, other) in [(1, 2), (2, 1)] {
        let Route::InRegion(spec) = plan(one).route else { panic!() };
        let there = made(&plan(one).snapshot, &spec);
        let other = SnapshotPlan { snapshot: there.id.clone(), ..plan(other) };
        assert!(matches!(step(&other, Some(&there), None), Err(SnapshotRefusal::Mismatch(_))));
    }
}

proptest! {
    #[test]
    fn the_case_of_keys_changes_no_plan(
        rows in proptest::sample::subsequence(SNAPSHOT_PARAMETERS.to_vec(), 0..=5), upper in any::<bool>(),
    ) {
        let pairs: BTreeMap<String, String> =
            rows.iter().map(|row| (row.name.to_owned(), row.example.to_owned())).collect();
        let respelled = pairs.iter().map(|(key, value)| {
            (if upper { key.to_ascii_uppercase() } else { key.to_ascii_lowercase() }, value.clone())
        });
        let of = |parameters| {
            let request = SnapshotRequest { parameters, ..request(&[]) };
            plan_snapshot(&request, &defaults(), SourceSeen::Disk(&disk()))
                .map(|plan| (plan.snapshot, plan.route))
                .map_err(|error| (error.parameter.to_ascii_lowercase(), error.value))
        };
        prop_assert_eq!(of(pairs.clone()), of(respelled.collect()));
    }
}
