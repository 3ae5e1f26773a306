//! What holds for every clone, killed and repeated at any moment, beside disks and snapshots of others.
//!
//! It converges; it leaves what is not its own alone; every prefix of its writes is safe; it does not depend on the order of
//! topologies and parameters; and it is quiet where only letter case differs.

use lazuli_model::{CopyMethod, seeded::Numbers, snapshot_spec::SourceIdentity};
use proptest::prelude::*;

use super::*;

/// A simulated Azure.
#[derive(Clone, PartialEq, Debug)]
struct World {
    disks: BTreeMap<ArmId, Disk>,
    snapshots: BTreeMap<ArmId, Snapshot>,
    made: u32,
}

impl World {
    fn new(numbers: &mut Numbers) -> Self {
        let source = Disk {
            sku: Some(if numbers.one_in(2) { SkuName::PremiumV2Lrs } else { SkuName::PremiumLrs }),
            ..disk(if numbers.one_in(3) { &[] } else { &["2"] })
        };
        let mut world =
            Self { disks: BTreeMap::from([(source.id.clone(), source)]), snapshots: BTreeMap::new(), made: 0 };
        for name in ["carry_pvc-1", "by-hand"] {
            if numbers.one_in(2) {
                let id = ArmId::snapshot("sub", "rg", name).unwrap();
                world.snapshots.insert(id.clone(), Snapshot::complete(id, &disk(&[]).id));
            }
        }
        world
    }

    fn source(&self) -> CopySource<'_> {
        CopySource::Disk(&self.disks[&disk(&[]).id])
    }

    fn unique(&mut self) -> Option<String> {
        self.made += 1;
        Some(format!("u-{}", self.made))
    }

    fn create_carrier(&mut self, id: &ArmId, spec: &SnapshotSpec) {
        assert!(!self.snapshots.contains_key(id), "{id} exists, and is PUT");
        let source = self.disks[&spec.source].clone();
        let is_late = source.sku == Some(SkuName::PremiumV2Lrs);
        let snapshot = Snapshot {
            location: spec.location.clone(),
            unique_id: self.unique(),
            source_unique_id: source.unique_id.clone(),
            size: source.size,
            bytes: source.bytes,
            incremental: spec.incremental,
            tags: spec.tags.clone(),
            access: Some(if is_late { SnapshotAccessState::Pending } else { SnapshotAccessState::Available }),
            ..Snapshot::complete(id.clone(), &source.id)
        };
        self.snapshots.insert(id.clone(), snapshot);
    }

    fn create_disk(&mut self, id: &ArmId, spec: &DiskSpec) {
        let of = spec.copy_of().unwrap();
        if let Some(there) = self.disks.get_mut(id) {
            spec.matches(there).unwrap();
            there.provisioning_state = ProvisioningState::Succeeded;
            return;
        }
        let (bytes, unique) = match (self.disks.get(&of.source), self.snapshots.get(&of.source)) {
            (Some(source), _) => {
                assert!(
                    source.zones.is_empty() || source.zones == spec.zones,
                    "Azure refuses a clone into another zone"
                );
                (source.bytes, source.unique_id.clone())
            }
            (_, Some(source)) => {
                assert!(source.is_complete(), "nothing is made from an incomplete snapshot");
                (source.bytes, source.unique_id.clone())
            }
            _ => panic!("{} is gone", of.source),
        };
        let is_filling = spec.sku == SkuName::PremiumV2Lrs;
        let disk = Disk {
            provisioning_state: ProvisioningState::InProgress,
            unique_id: self.unique(),
            completion: is_filling.then(|| Completion::from_percent(1.0)),
            ..made(id, spec, bytes.unwrap(), &unique.unwrap())
        };
        self.disks.insert(id.clone(), disk);
    }

    fn delete_snapshot(&mut self, id: &ArmId) {
        let from = |disk: &Disk| disk.source.as_deref().and_then(|source| source.parse().ok()).as_ref() == Some(id);
        let needs = |disk: &Disk| {
            from(disk) && (disk.is_hydrating() || disk.provisioning_state == ProvisioningState::InProgress)
        };
        assert!(!self.disks.values().any(needs), "{id} is deleted while a disk is filled from it");
        assert!(self.snapshots.remove(id).is_some());
    }

    fn tick(&mut self) {
        if let Some(snapshot) = self.snapshots.values_mut().find(|snapshot| !snapshot.is_complete()) {
            snapshot.access = Some(SnapshotAccessState::Available);
            return;
        }
        for disk in self.disks.values_mut() {
            if disk.provisioning_state == ProvisioningState::InProgress {
                disk.provisioning_state = ProvisioningState::Succeeded;
                return;
            }
            if disk.is_hydrating() {
                disk.completion = Some(Completion::COMPLETE);
                return;
            }
        }
    }
}

/// A CreateVolume that is served until it is answered or killed.
fn call(world: &mut World, request: &Request, numbers: &mut Numbers) -> Option<Adopted> {
    let plan = planned(request, world.source()).unwrap();
    for _ in 0..20 {
        let carrier = match &plan.route {
            CopyRoute::Carried { carrier, .. } => world.snapshots.get(carrier).cloned(),
            CopyRoute::Direct(_) => None,
        };
        let seen = CopySeen { disk: world.disks.get(&plan.create.disk).cloned(), carrier };
        match next(&plan, &seen) {
            Ok(NextCopy::CreateCarrier { carrier, spec }) => world.create_carrier(&carrier, &spec),
            Ok(NextCopy::CreateDisk(spec)) => world.create_disk(&plan.create.disk, &spec),
            Ok(NextCopy::DeleteCarrier(id)) => world.delete_snapshot(&id),
            Ok(NextCopy::Answer(adopted)) => return Some(*adopted),
            Err(CopyRefusal::NotYet(_)) => return None,
            Err(refusal) => panic!("{refusal}"),
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

fn asked(numbers: &mut Numbers) -> Request {
    let sku = if numbers.one_in(2) { "PremiumV2_LRS" } else { "Premium_LRS" };
    let zones: &[&str] = match numbers.below(4) {
        0 => &["eastus-1"],
        1 => &["eastus-2"],
        2 => &["eastus-1", "eastus-2"],
        _ => &["eastus-3", "eastus-1"],
    };
    in_zones(request(i64::try_from(10 + numbers.below(3)).unwrap(), &[("skuName", sku)]), zones)
}

#[test]
fn a_clone_that_is_killed_and_repeated_is_one_disk_and_leaves_nothing_else() {
    let mut over_carrier = 0;
    for seed in 0..4_000 {
        let mut numbers = Numbers::new(seed);
        let mut world = World::new(&mut numbers);
        let before = world.clone();
        let request = asked(&mut numbers);
        let target = ArmId::disk("sub", "rg", "pvc-2").unwrap();
        let mut answer = None;
        for _ in 0..200 {
            answer = call(&mut world, &request, &mut numbers);
            if answer.is_some() {
                break;
            }
            world.tick();
        }
        let answer = answer.unwrap_or_else(|| panic!("seed {seed}: it is never answered"));
        let made = world.disks[&target].clone();
        let label = answer.accessible_topology[0][DISK_TOPOLOGY_KEY].clone();
        assert!(request.requisite.iter().any(|segments| segments[DISK_TOPOLOGY_KEY] == label), "seed {seed}: {label}");
        assert!(answer.size.bytes() >= request.required_bytes.unsigned_abs());
        over_carrier += u32::from(carrier_of(&made).is_some());
        // What is left over is found by the sweep, once the disk is filled.
        for _ in 0..5 {
            world.tick();
        }
        let filled = world.disks[&target].clone();
        let left: Vec<ArmId> = world
            .snapshots
            .values()
            .filter(|snapshot| {
                leftover(snapshot, &target, TargetSeen::Disk(&filled), AzureTime::from_unix_seconds(0))
                    == Leftover::Over
            })
            .map(|snapshot| snapshot.id.clone())
            .collect();
        for id in left {
            world.delete_snapshot(&id);
        }
        assert_eq!(world.snapshots, before.snapshots, "seed {seed}");
        assert_eq!(world.disks.len(), before.disks.len() + 1, "seed {seed}");
        // It is quiet from then on.
        let quiet = world.clone();
        assert!(call(&mut world, &request, &mut numbers).is_some());
        assert_eq!(world, quiet, "seed {seed}");
    }
    assert!(over_carrier > 500, "{over_carrier}");
}

#[test]
fn a_deletion_finds_the_carrier_that_the_disk_was_made_from() {
    for seed in 0..2_000 {
        let mut numbers = Numbers::new(seed);
        let mut world = World::new(&mut numbers);
        let before = world.snapshots.clone();
        let request = asked(&mut numbers);
        let target = ArmId::disk("sub", "rg", "pvc-2").unwrap();
        for _ in 0..numbers.below(12) {
            drop(call(&mut world, &request, &mut numbers));
            world.tick();
        }
        let Some(made) = world.disks.remove(&target) else { continue };
        if let Some(carrier) = carrier_of(&made)
            && world.snapshots.get(&carrier).is_some_and(|snapshot| is_carrier_to(snapshot, &target))
        {
            world.delete_snapshot(&carrier);
        }
        assert_eq!(world.snapshots, before, "seed {seed}");
    }
}

proptest! {
    #[test]
    fn the_order_and_case_of_what_is_asked_change_no_plan(
        zones in proptest::sample::subsequence(vec!["eastus-1", "eastus-2", "eastus-3"], 0..=3), by in 0usize..3,
        gib in 0i64..70, zoned in any::<bool>(), upper in any::<bool>(),
    ) {
        let request = in_zones(request(gib, &[("skuName", "Premium_LRS"), ("tags", "a=b")]), &zones);
        let mut turned = request.clone();
        turned.requisite.rotate_left(by.min(zones.len()));
        if upper {
            turned.parameters = turned.parameters.into_iter().map(|(key, value)| (key.to_uppercase(), value)).collect();
        }
        let source = disk(if zoned { &["2"] } else { &[] });
        let mut respelled = source.clone();
        respelled.id = source.id.to_string().to_uppercase().parse().unwrap();
        respelled.location = "East US".into();
        let route = |plan: CopyPlan| {
            let of = plan.create.spec.copy_of().cloned();
            (plan.create.disk, plan.create.spec.zones, plan.create.size, of)
        };
        let one = planned(&request, CopySource::Disk(&source)).map(route);
        let other = planned(&turned, CopySource::Disk(&respelled)).map(route);
        prop_assert_eq!(one, other);
    }

    /// Only a disk of this request and this very source is ever handed out.
    #[test]
    fn no_disk_with_other_content_is_taken(
        request_tag in proptest::option::of(0u8..3), source in 0u8..3, unique in proptest::option::of(0u8..3),
        known in any::<bool>(), zone in 0u8..3,
    ) {
        let source_snapshot = Snapshot { unique_id: known.then(|| "s-1".into()), ..snapshot(10 * GIB) };
        let plan = restored(&in_zones(request(10, &[]), &["eastus-1"]), &source_snapshot);
        let id = |n: u8| ArmId::snapshot("sub", "backup", &format!("snapshot-{n}")).unwrap();
        let mut there = made(&plan.create.disk, &plan.create.spec, 10 * GIB, "");
        there.source = Some(id(source).to_string());
        there.source_unique_id = unique.map(|n| format!("s-{n}"));
        there.zones = vec![zone.to_string()];
        there.tags = request_tag.map(|n| (REQUEST.to_owned(), format!("pvc-{n}"))).into_iter().collect();
        let is_it = request_tag == Some(2) && source == 1 && (!known || unique.is_none_or(|n| n == 1)) && zone == 1;
        prop_assert_eq!(plan.adopt(&there).is_ok(), is_it);
    }

    /// The carrier of one clone is never that of another, and no snapshot of a person.
    #[test]
    fn a_carrier_is_of_one_disk(name in "[a-z0-9]{1,90}", other in "[a-z0-9]{1,90}", driver in any::<bool>()) {
        let of = |name: &str| {
            let request = Request { name: name.to_owned(), ..in_zones(request(10, &[]), &["eastus-1"]) };
            cloned(&request, &disk(&["2"]))
        };
        let (one, two) = (of(&name), of(&other));
        let CopyRoute::Carried { carrier, spec, .. } = &one.route else { panic!() };
        prop_assert_eq!(spec.method, CopyMethod::Copy);
        prop_assert_eq!(&spec.origin.source, &SourceIdentity::UniqueId("d-1".into()));
        let mut there = Snapshot { tags: spec.tags.clone(), ..Snapshot::complete(carrier.clone(), &disk(&[]).id) };
        prop_assert!(is_carrier_to(&there, &one.create.disk));
        prop_assert_eq!(is_carrier_to(&there, &two.create.disk), name == other);
        if !driver {
            there.tags.remove("k8s-azure-created-by");
            prop_assert!(!is_carrier_to(&there, &one.create.disk));
        }
    }
}
