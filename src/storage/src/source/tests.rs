use std::time::Duration;

use lazuli_model::{CachingMode, DataDisk, DataDiskSource, Lun, ProvisioningState};
use proptest::prelude::*;

use super::*;

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn made_from(source: Option<&str>) -> Disk<DiskId> {
    Disk { source: source.map(str::to_owned), ..Disk::unattached("d0") }
}

/// The same disk, attached to a VM.
fn held(disk: &Disk<DiskId>, by: &ArmId) -> Disk<DiskId> {
    Disk { managed_by: Some(by.clone()), ..disk.clone() }
}

/// A VM that lists these disks.
fn lists<'a>(number: usize, disks: impl IntoIterator<Item = &'a DiskId>) -> Vm {
    let element = |(lun, disk): (i64, &DiskId)| DataDisk {
        lun: Lun::try_from(lun).expect("there are few"),
        source: DataDiskSource::Disk(disk.clone()),
        caching: CachingMode::None,
        to_be_detached: false,
    };
    Vm {
        id: vm(number),
        location: "local".into(),
        size: "Standard_D2s_v3".into(),
        zone: None,
        computer_name: None,
        provisioning_state: ProvisioningState::Succeeded,
        etag: None,
        system_disk: lazuli_model::SystemDisk::Managed,
        data_disks: (0..).zip(disks).map(element).collect(),
    }
}

fn by(by: By, seconds: u64) -> Seen<Duration> {
    Seen { by, sent_at: at(seconds) }
}

fn vm(number: usize) -> ArmId {
    ArmId::virtual_machine("s", "g", &format!("n{number}")).expect("this is a name")
}

/// The version that a read of the VM with this `vmId` shows.
fn version(machine: u64, etag: u64) -> VmVersion {
    VmVersion { machine: Some(machine.to_string()), etag: Some(etag.to_string()) }
}

/// What a list shows of it.
fn listed(etag: u64) -> VmVersion {
    VmVersion { machine: None, etag: Some(etag.to_string()) }
}

/// A write that attaches a disk, two seconds after the VM was read, and that Azure has accepted at `seconds`. The VM has the
/// version `etag` afterwards.
fn attach(sources: &mut Sources<Duration>, number: usize, disk: &DiskId, etag: u64, seconds: u64) {
    // `d0` is there as far as anything knows it to be.
    let listed = [&made_from(None).id, disk];
    sources.vm_read(&lists(number, listed), version(1, etag - 2), by(By::Single, seconds - 2));
    sources.write_read(&lists(number, listed), version(1, etag), at(seconds + 10));
    sources.attached(&vm(number), disk, at(seconds));
}

#[test]
fn a_list_says_what_a_disk_was_made_from_only_where_it_is_younger_than_the_attach() {
    let (restored, id) = (made_from(Some("snapshot")), made_from(None).id);
    for (case, attached_at, seen, is_known) in [
        ("a single read", None, by(By::Single, 0), true),
        ("a list of a disk that another replica has attached", None, by(By::List, 1_000), false),
        ("a list sent when Azure accepted the attach", Some(50), by(By::List, 50), false),
        ("a list that may show the time before", Some(50), by(By::List, 59), false),
        ("a list that cannot", Some(50), by(By::List, 60), true),
    ] {
        let mut sources = Sources::default();
        match attached_at {
            Some(seconds) => attach(&mut sources, 0, &id, 4, seconds),
            None => sources.vm_read(&lists(0, [&id]), version(1, 2), by(By::Single, 0)),
        }
        let accepted = sources.accept(&id, &vm(0), seen.sent_at);
        assert_eq!(accepted == Accept::List, is_known && seen.by == By::List, "{case}");
        let known = is_known.then(|| Some("snapshot".to_owned()));
        assert_eq!(sources.learn(&held(&restored, &vm(0)), &vm(0), seen), known, "{case}");
        assert_eq!(sources.of(&id, &vm(0)), known, "{case}");
        assert_eq!(sources.of(&id, &vm(1)), None, "{case}, at another VM");
    }
}

#[test]
fn what_is_known_of_a_disk_ends_with_its_attachment_and_with_another_hands_write_of_its_vm() {
    let empty = made_from(None);
    let id = &empty.id;
    let known = || {
        let mut sources = Sources::default();
        sources.learn_before_attach(&empty, by(By::Single, 98));
        assert_eq!(sources.of(id, &vm(0)), None, "it is not attached");
        attach(&mut sources, 0, id, 4, 100);
        sources
    };
    type Step = fn(&mut Sources<Duration>, &DiskId);
    let steps: [(&str, bool, Step); 19] = [
        ("nothing", true, |_, _| {}),
        ("a read of the same version", true, |s, d| s.vm_read(&lists(0, [d]), version(1, 4), by(By::Single, 500))),
        ("a read of another version", false, |s, d| s.vm_read(&lists(0, [d]), version(1, 5), by(By::Single, 111))),
        ("a read of another machine", false, |s, d| s.vm_read(&lists(0, [d]), version(2, 4), by(By::Single, 500))),
        ("a read that does not list it", false, |s, _| s.vm_read(&lists(0, []), version(1, 4), by(By::Single, 500))),
        ("a read that was sent before", true, |s, d| s.vm_read(&lists(0, [d]), version(1, 3), by(By::Single, 109))),
        ("a list of another version", false, |s, d| s.vm_read(&lists(0, [d]), listed(5), by(By::List, 120))),
        ("a list that may be older", true, |s, d| s.vm_read(&lists(0, [d]), listed(3), by(By::List, 119))),
        ("a list without versions", true, |s, d| {
            s.vm_read(&lists(0, [d]), VmVersion::default(), by(By::List, 500));
        }),
        ("a read without a version", false, |s, d| {
            s.vm_read(&lists(0, [d]), VmVersion::default(), by(By::Single, 500));
        }),
        ("a read that finds no VM", false, |s, _| s.vm_gone(&vm(0))),
        ("a write of this process that concerns another disk", true, |s, _| {
            attach(s, 0, &Disk::unattached("d1").id, 6, 200);
        }),
        ("one after a list", true, |s, d| {
            s.vm_read(&lists(0, [d]), listed(4), by(By::List, 200));
            s.write_read(&lists(0, [d]), version(1, 6), at(220));
        }),
        ("one during which another hand had time", false, |s, d| s.write_read(&lists(0, [d]), version(1, 6), at(141))),
        ("one after which the VM does not list it", false, |s, _| s.write_read(&lists(0, []), version(1, 6), at(120))),
        ("its own attach took that long", true, |s, d| {
            s.detaching(&vm(0), [d]);
            s.learn_before_attach(&made_from(None), by(By::Single, 200));
            s.vm_read(&lists(0, []), version(1, 6), by(By::Single, 200));
            // While the write goes on.
            s.vm_read(&lists(0, [d]), version(1, 7), by(By::Single, 240));
            s.write_read(&lists(0, [d]), version(1, 8), at(300));
            s.attached(&vm(0), d, at(201));
        }),
        ("its detach", false, |s, d| s.detaching(&vm(0), [d])),
        ("a detach from a VM that does not have it", true, |s, d| s.detaching(&vm(1), [d])),
        ("an attach although it was known to be attached", false, |s, d| {
            attach(s, 1, d, 4, 200);
            attach(s, 0, d, 8, 300);
        }),
    ];
    for (case, is_known, step) in steps {
        let mut sources = known();
        step(&mut sources, id);
        assert_eq!(sources.of(id, &vm(0)), is_known.then_some(None), "{case}");
    }
}

#[test]
fn what_was_read_long_before_an_attach_is_read_again() {
    let empty = made_from(None);
    for (read_at, is_known) in [(90, true), (89, false)] {
        let mut sources = Sources::default();
        sources.learn_before_attach(&empty, by(By::Single, read_at));
        attach(&mut sources, 0, &empty.id, 4, 100);
        assert_eq!(sources.of(&empty.id, &vm(0)), is_known.then_some(None), "{read_at}");
    }
}

#[test]
fn an_answer_that_took_long_says_nothing_of_the_next_disk_of_the_name() {
    let (empty, restored) = (made_from(None), made_from(Some("snapshot")));
    let id = &empty.id;
    let mut sources = Sources::default();
    sources.learn_before_attach(&restored, by(By::Single, 98));
    sources.learn_before_attach(&empty, by(By::Single, 97));
    attach(&mut sources, 0, id, 4, 100);
    assert_eq!(sources.learn(&held(&empty, &vm(0)), &vm(0), by(By::Single, 50)), None);
    assert_eq!(sources.of(id, &vm(0)), Some(restored.source));
    // Another hand has written the VM since it was sent, or has detached the disk before.
    sources.vm_read(&lists(0, [id]), version(1, 6), by(By::Single, 200));
    for (disk, sent_at, is_known) in
        [(held(&empty, &vm(0)), 199, false), (empty.clone(), 200, false), (held(&empty, &vm(0)), 200, true)]
    {
        assert_eq!(sources.learn(&disk, &vm(0), by(By::Single, sent_at)), Some(None));
        assert_eq!(sources.of(id, &vm(0)), is_known.then_some(None), "{sent_at}");
    }
}

/// A machine that is made again counts its versions anew.
#[test]
fn a_machine_that_a_list_has_shown_first_is_told_from_the_next_one_of_its_name() {
    let empty = made_from(None);
    let id = &empty.id;
    let mut sources = Sources::default();
    sources.vm_read(&lists(0, [id]), listed(4), by(By::List, 100));
    sources.vm_read(&lists(0, [id]), version(1, 4), by(By::Single, 101));
    assert_eq!(sources.learn(&held(&empty, &vm(0)), &vm(0), by(By::Single, 102)), Some(None));
    sources.vm_read(&lists(0, [id]), version(1, 4), by(By::Single, 200));
    assert_eq!(sources.of(id, &vm(0)), Some(None));
    sources.vm_read(&lists(0, [id]), version(2, 4), by(By::Single, 300));
    assert_eq!(sources.of(id, &vm(0)), None);
}

#[test]
fn a_list_that_shows_a_disk_made_from_another_ends_what_was_known() {
    let (empty, restored) = (made_from(None), made_from(Some("snapshot")));
    let mut sources = Sources::default();
    sources.learn_before_attach(&empty, by(By::Single, 10));
    sources.learn_before_attach(&empty, by(By::List, 298));
    attach(&mut sources, 0, &empty.id, 4, 300);
    assert_eq!(sources.of(&empty.id, &vm(0)), Some(None));
    sources.learn_before_attach(&restored, by(By::List, 320));
    assert_eq!(sources.of(&empty.id, &vm(0)), None);
}

/// Nothing is kept of disks and VMs that have come and gone.
#[test]
fn what_has_left_is_forgotten() {
    let mut sources = Sources::default();
    for n in 0..1_000u64 {
        let (number, disk) = (usize::try_from(n).unwrap(), Disk::unattached(&format!("d{n}")));
        sources.learn_before_attach(&disk, by(By::Single, 100 * n));
        attach(&mut sources, number, &disk.id, 4, 100 * n + 2);
        assert_eq!(sources.of(&disk.id, &vm(number)), Some(None));
        sources.detaching(&vm(number), [&disk.id]);
        sources.write_read(&lists(number, []), version(1, 6), at(100 * n + 20));
        assert_eq!((sources.disks.len(), sources.vms[&vm(number)].disks.len()), (0, 0));
    }
    assert!(sources.vms.len() <= FEWEST_VMS, "{}", sources.vms.len());
    sources.vm_gone(&vm(999));
    assert!(!sources.vms.contains_key(&vm(999)));
}

/// What happens to a disk.
#[derive(Debug, Clone, Copy)]
enum Happening {
    /// This process is asked to attach it to a VM. It reads the disk by a list before, or singly.
    Publish {
        vm: usize,
        by_list: bool,
    },
    /// This process is asked to detach it.
    Unpublish,
    /// Another hand detaches it, makes another of its name if it is not attached, or attaches it.
    OtherDetaches,
    OtherReplaces,
    OtherAttaches(usize),
    /// A write of this process to its VM fails, because another hand was first, which puts another disk in its place. While
    /// this process waits, it is asked to attach the disk.
    OtherIsFirst,
    /// Another hand detaches it from a VM, or attaches it there, while this process writes that.
    OtherDuringWrite(usize),
    /// Another hand deletes the VMs, and makes others of their names. No disk is attached to them.
    OtherRemakesVms,
    /// Time passes.
    Wait(u64),
}

fn happening() -> impl Strategy<Value = (usize, Happening)> {
    let of_a_disk = prop_oneof![
        4 => (0..2usize, any::<bool>()).prop_map(|(vm, by_list)| Happening::Publish { vm, by_list }),
        2 => Just(Happening::Unpublish),
        2 => Just(Happening::OtherDetaches),
        2 => Just(Happening::OtherReplaces),
        2 => (0..2usize).prop_map(Happening::OtherAttaches),
        1 => Just(Happening::OtherIsFirst),
        2 => (0..2usize).prop_map(Happening::OtherDuringWrite),
        1 => Just(Happening::OtherRemakesVms),
        1 => (1..30u64).prop_map(Happening::Wait),
    ];
    (0..2usize, of_a_disk)
}

/// A disk of this name as Azure has it: which one it is, the one before, when it was made, and where it is attached.
#[derive(Debug, Clone, Default)]
struct Real {
    is: u64,
    was: u64,
    made_at: u64,
    on: Option<usize>,
}

/// Azure, and what a process knows of it.
#[derive(Debug, Default)]
struct World {
    now: u64,
    disks: [Real; 2],
    /// The machine of each name, and its etag.
    versions: [(u64, u64); 2],
    sources: Sources<Duration>,
    /// How often this process read a disk that it had published at the same VM, and that nobody else has touched.
    needless: u64,
}

impl World {
    fn disk(&self, disk: usize, by: By) -> Disk<DiskId> {
        let Real { is, was, made_at, on } = self.disks[disk];
        // A list that may be old is old.
        let shown = if by == By::List && self.now < made_at + LISTS_LAG.as_secs() { was } else { is };
        let source = Some(shown.to_string());
        Disk { source, managed_by: on.map(vm), ..Disk::unattached(&format!("d{disk}")) }
    }

    fn vm(&self, number: usize) -> Vm {
        let on = |disk: &usize| self.disks[*disk].on == Some(number);
        let disks: Vec<DiskId> = (0..2).filter(on).map(|disk| self.disk(disk, By::Single).id).collect();
        lists(number, &disks)
    }

    fn version(&self, number: usize) -> VmVersion {
        let (machine, etag) = self.versions[number];
        version(machine, etag)
    }

    fn read_vm(&mut self, number: usize) {
        self.sources.vm_read(&self.vm(number), self.version(number), by(By::Single, self.now));
    }

    /// A write of this process, which gives the VM two versions.
    fn write(&mut self, disk: usize, from: usize, on: Option<usize>) {
        let id = Disk::unattached(&format!("d{disk}")).id;
        self.sources.detaching(&vm(from), on.is_none().then_some(&id));
        self.versions[from].1 += 2;
        self.disks[disk].on = on;
        let accepted = at(self.now);
        self.now += 1;
        self.sources.write_read(&self.vm(from), self.version(from), at(self.now));
        if on.is_some() {
            self.sources.attached(&vm(from), &id, accepted);
        }
    }

    fn publish(&mut self, disk: usize, on: usize, is_by_list: bool, is_untouched: bool) {
        self.read_vm(on);
        match self.disks[disk].on {
            Some(other) if other != on => return,
            Some(_) => {}
            None => {
                let by = if is_by_list { By::List } else { By::Single };
                self.sources.learn_before_attach(&self.disk(disk, by), Seen { by, sent_at: at(self.now) });
                self.write(disk, on, Some(on));
            }
        }
        let id = self.disk(disk, By::Single).id;
        let source = self.sources.of(&id, &vm(on)).unwrap_or_else(|| {
            self.needless += u64::from(is_untouched);
            let by = match self.sources.accept(&id, &vm(on), at(self.now)) {
                Accept::List => By::List,
                Accept::Single | Accept::Any => By::Single,
            };
            let seen = Seen { by, sent_at: at(self.now) };
            self.sources.learn(&self.disk(disk, by), &vm(on), seen).expect("nobody detaches it meanwhile")
        });
        assert_eq!(source, self.disk(disk, By::Single).source, "the node is told of another disk");
    }

    fn happens(&mut self, disk: usize, happening: Happening) {
        match (happening, self.disks[disk].on) {
            (Happening::Publish { vm, by_list }, _) => self.publish(disk, vm, by_list, false),
            (Happening::Unpublish, Some(on)) => {
                self.read_vm(on);
                self.write(disk, on, None);
            }
            (Happening::OtherDetaches, Some(on)) => {
                self.versions[on].1 += 2;
                self.disks[disk].on = None;
            }
            (Happening::OtherReplaces, None) => {
                let real = &mut self.disks[disk];
                *real = Real { is: real.is + 1, was: real.is, made_at: self.now, on: None };
            }
            (Happening::OtherAttaches(on), None) => {
                self.versions[on].1 += 2;
                self.disks[disk].on = Some(on);
            }
            (Happening::OtherIsFirst, Some(on)) => {
                self.read_vm(on);
                for other in [Happening::OtherDetaches, Happening::OtherReplaces, Happening::OtherAttaches(on)] {
                    self.happens(disk, other);
                }
                self.publish(disk, on, false, false);
                self.read_vm(on);
            }
            (Happening::OtherDuringWrite(on), was_on) if was_on.is_none_or(|was_on| was_on == on) => {
                self.read_vm(on);
                self.happens(
                    disk,
                    if was_on.is_some() { Happening::OtherDetaches } else { Happening::OtherAttaches(on) },
                );
                self.versions[on].1 += 2;
                self.now += 1;
                self.sources.write_read(&self.vm(on), self.version(on), at(self.now));
            }
            (Happening::OtherRemakesVms, _) => {
                self.versions.iter_mut().for_each(|version| *version = (version.0 + 1, 0));
                self.disks.iter_mut().for_each(|real| real.on = None);
            }
            (Happening::Wait(seconds), _) => self.now += seconds,
            _ => {}
        }
    }
}

proptest! {
    #[test]
    fn no_node_is_told_what_another_disk_of_the_name_was_made_from(
        happenings in proptest::collection::vec(happening(), 1..60),
    ) {
        let mut world = World::default();
        for (disk, happening) in happenings {
            world.happens(disk, happening);
            // Publishing again what nobody has touched reads no disk, whatever this process does with the other one.
            if let (Happening::Publish { vm, .. }, Some(on)) = (happening, world.disks[disk].on) && on == vm {
                if world.disks[1 - disk].on.is_none() {
                    world.publish(1 - disk, vm, false, false);
                }
                world.publish(disk, vm, false, true);
            }
        }
        prop_assert_eq!(world.needless, 0);
    }
}
