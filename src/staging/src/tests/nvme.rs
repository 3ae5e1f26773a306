//! Staging a disk that is a namespace of an NVMe controller.

use std::time::Duration;

use lazuli_model::{Gib, Lun};
use lazuli_volume::FsType;

use super::{
    super::{nvme, stage::*, unstage},
    stage::{request, writable},
    *,
};
use crate::{
    device_identity::{Identity, Listed, ListedDisk, Metadata, OnSilence, Stood},
    nvme::{Controller, Machine, Namespace, NvmeDisk, Offset, REMOTE_DISKS},
};

/// The disk at LUN 3, by an offset of 2.
fn disk(offset: Offset) -> Device {
    let nvme = NvmeDisk { controller: "nvme0".to_owned(), nsid: 5, offset };
    Device { name: "nvme0n3".to_owned(), scsi: None, nvme: Some(nvme), ..device(1) }
}

fn machine() -> Machine {
    let namespace = |nsid: u32, name: &str| Namespace {
        name: name.to_owned(),
        nsid,
        size_bytes: 4 * GIB,
        is_partitioned: nsid == 1,
    };
    let namespaces = vec![namespace(1, "nvme0n1"), namespace(4, "nvme0n2"), namespace(5, "nvme0n3")];
    let controller =
        Controller { name: "nvme0".to_owned(), model: REMOTE_DISKS.to_owned(), state: "live".to_owned(), namespaces };
    Machine { controllers: vec![controller], system: nvme::SystemDisks::default() }
}

fn listed(lun: u8, gib: u32) -> Listed {
    let lun = Lun::try_from(i64::from(lun)).unwrap();
    Listed { lun, disk: ListedDisk::Unnamed, size: Some(Gib::new(gib)) }
}

/// What follows for a disk whose offset the metadata has borne out for longer than it lags.
fn outcome(disk: &Device, metadata: Metadata, listed: &[Listed], content: &OnDevice, records: &Records) -> Next {
    outcome_after(LAG, disk, metadata, listed, content, records)
}

/// What follows for a disk that nothing speaks against, in the end.
fn outcome_after(
    confirmed_for: Duration,
    disk: &Device,
    metadata: Metadata,
    listed: &[Listed],
    content: &OnDevice,
    records: &Records,
) -> Next {
    let request = Request { on_silence: OnSilence::Tolerate, ..request(writable(FsType::Ext4)) };
    let mut seen = Seen::default();
    loop {
        let look = match seen.next(&request) {
            Next::Look(look) => look,
            Next::Do(Act::Admit(_)) => {
                seen.is_admitted = true;
                continue;
            }
            end => return end,
        };
        match look {
            Look::DiskAndIdentity => {
                seen.found = Some(disk.clone());
                seen.identity = Some(Identity { metadata, contradiction: None });
                seen.listed = listed.to_vec();
            }
            Look::Disk => seen.disk = Some(disk.clone()),
            Look::Nvme => seen.nvme = Some(machine()),
            Look::Size(..) => seen.grown = Some(disk.clone()),
            Look::StagingPath => seen.at_path = Some(AtPath::Nothing),
            Look::Mounts => seen.mounts = Some(Vec::new()),
            Look::MountsNow => seen.mounts_now = Some(Vec::new()),
            Look::Content(_) => seen.content = Some(content.clone()),
            Look::Records(_) => seen.records = Some(records.clone()),
            Look::Stood(..) => {
                seen.stood = Some(Stood { seen_for: Duration::from_secs(3600), confirmed_for });
            }
            Look::Acceptance(key) => seen.acceptance = Some(Acceptance { key, is_given: true }),
            Look::Partition(..) | Look::BtrfsTurn | Look::BtrfsMembers(..) => panic!("{look:?}"),
        }
    }
}

fn blank(disk: &Device, metadata: Metadata, listed: &[Listed]) -> Next {
    outcome(disk, metadata, listed, &OnDevice::Nothing, &Records::default())
}

/// As [`request`] has it.
const LAG: Duration = Duration::from_secs(120);
const HERE: Metadata = Metadata::Confirms(Some(Gib::new(4)));

#[test]
fn a_given_offset_formats_a_disk_only_where_every_disk_of_the_metadata_is_found_by_it() {
    let given = disk(Offset::Given);
    let both = [listed(2, 4), listed(3, 4)];
    assert!(matches!(blank(&given, HERE, &both), Next::Do(Act::Format(..))));
    for (metadata, listed) in [
        (HERE, vec![listed(3, 4)]),
        (HERE, vec![listed(3, 4), listed(4, 4)]),
        (HERE, vec![listed(2, 8), listed(3, 4)]),
        (HERE, vec![]),
        (Metadata::Unlisted, vec![listed(2, 4)]),
    ] {
        let refused = blank(&given, metadata, &listed);
        let Next::Refuse(refusal) = &refused else { panic!("{listed:?}: {refused:?}") };
        assert!(matches!(**refusal, Refusal::OffsetNotBorneOut { nsid: 5, .. }), "{refusal:?}");
        // What is proved needs no list.
        if metadata == HERE {
            assert!(matches!(blank(&disk(Offset::Proved), metadata, &listed), Next::Do(Act::Format(..))));
        }
    }
}

/// Disks of one size, and a list that lacks one: a wrong offset may agree with it.
#[test]
fn a_given_offset_formats_a_disk_only_once_the_metadata_has_agreed_for_longer_than_it_lags() {
    let (given, both) = (disk(Offset::Given), [listed(2, 4), listed(3, 4)]);
    let after = |confirmed_for: Duration, disk: &Device, content: &OnDevice, records: &Records| {
        outcome_after(confirmed_for, disk, HERE, &both, content, records)
    };
    let unknown = OnDevice::Filesystem { found: stage::filesystem("ext4", "y"), is_unfinished: false };
    for content in [OnDevice::Nothing, unknown] {
        let none = Records::default();
        let refused = after(LAG - Duration::from_secs(1), &given, &content, &none);
        let Next::Refuse(refusal) = &refused else { panic!("{refused:?}") };
        let more = Unproved::WaitForOffset(Duration::from_secs(1));
        assert_eq!(**refusal, Refusal::Unproved { device: given.path.clone(), why: more });
        assert!(matches!(after(LAG, &given, &content, &none), Next::Do(_)));
        assert!(matches!(after(Duration::ZERO, &disk(Offset::Proved), &content, &none), Next::Do(_)));
    }
    let known = Records { past: Some(record("a", &given, Some("x"))), ..Records::default() };
    let own = OnDevice::Filesystem { found: stage::filesystem("ext4", "x"), is_unfinished: false };
    assert!(matches!(after(Duration::ZERO, &given, &own, &known), Next::Do(Act::Repair(_))));
}

#[test]
fn in_silence_a_given_offset_finds_a_volume_by_its_content_alone_whatever_the_operator_tolerates() {
    let given = disk(Offset::Given);
    let whole = |uuid: &str| OnDevice::Filesystem { found: stage::filesystem("ext4", uuid), is_unfinished: false };
    let known = Records { past: Some(record("a", &given, Some("x"))), ..Records::default() };
    for metadata in [Metadata::Silent, Metadata::Unused] {
        for (content, records) in
            [(OnDevice::Nothing, Records::default()), (whole("x"), Records::default()), (whole("y"), known.clone())]
        {
            let refused = outcome(&given, metadata, &[], &content, &records);
            let is_refused = matches!(&refused, Next::Refuse(refusal)
                if matches!(**refusal, Refusal::Unproved { why: Unproved::Unconfirmed, .. }));
            assert!(is_refused, "{metadata:?} {content:?}: {refused:?}");
        }
        let used = outcome(&given, metadata, &[], &whole("x"), &known);
        assert!(matches!(used, Next::Do(Act::Repair(_))), "{metadata:?}: {used:?}");
        // The operator's word about silence counts where the offset is proved.
        assert!(matches!(blank(&disk(Offset::Proved), metadata, &[]), Next::Do(Act::Format(..))));
    }
}

#[test]
fn a_namespace_that_is_larger_than_the_metadata_says_is_not_formatted() {
    for (offset, list) in [(Offset::Proved, vec![]), (Offset::Given, vec![listed(2, 4), listed(3, 4)])] {
        let larger = Device { size_bytes: 8 * GIB, ..disk(offset) };
        let refused = blank(&larger, HERE, &list);
        let Next::Refuse(refusal) = &refused else { panic!("{refused:?}") };
        let told = Refusal::TooLarge { device: "nvme0n3".to_owned(), found: 8 * GIB, listed: 4 * GIB };
        assert_eq!(**refusal, told);
        // Its own content tells that it was grown.
        let records = Records { past: Some(record("a", &larger, Some("x"))), ..Records::default() };
        let own = OnDevice::Filesystem { found: stage::filesystem("ext4", "x"), is_unfinished: false };
        assert!(matches!(outcome(&larger, HERE, &list, &own, &records), Next::Do(Act::Repair(_))));
    }
    // A SCSI disk is where its address says.
    let scsi = Device { size_bytes: 8 * GIB, ..device(1) };
    assert!(matches!(blank(&scsi, HERE, &[]), Next::Do(Act::Format(..))));
}

#[test]
fn a_raw_device_that_an_operator_s_offset_finds_is_handed_out_only_where_the_volume_was_staged_from_it() {
    for offset in [Offset::Proved, Offset::Given] {
        let device = disk(offset);
        let seen = |own: Option<Record>| crate::raw::Seen {
            device: device.clone(),
            identity: Identity { metadata: HERE, contradiction: None },
            node: Some(device.number),
            mounts: Vec::new(),
            records: Records { own, ..Records::default() },
        };
        let unrecorded = if offset == Offset::Proved { Ok(()) } else { Err(Refusal::NotStaged) };
        assert_eq!(seen(None).decide(&staging()), unrecorded);
        assert_eq!(seen(Some(record("a", &device, None))).decide(&staging()), Ok(()));
    }
}

#[test]
fn to_whom_a_device_belongs_is_not_told_by_what_an_operator_s_offset_finds() {
    let (device, other) = (device(1), Device { nvme: disk(Offset::Given).nvme, ..device(2) });
    let seen = crate::owner::Seen { own: Some(None), listed: Some(Some(other)), records: None };
    assert_eq!(seen.next("a", &device), crate::owner::Next::Look(crate::owner::Look::Records));
}

#[test]
fn what_an_operator_s_offset_finds_at_a_lun_takes_no_disk_from_its_record() {
    let (staged, other) = (disk(Offset::Given), Device { nvme: disk(Offset::Given).nvme, ..device(2) });
    let request = unstage::Request { volume: "a", staging: &staging() };
    let seen = unstage::Seen {
        at_path: Some(AtPath::Nothing),
        own: Some(Some(record("a", &staged, None))),
        at_lun: Some(unstage::AtLun::Disk(other.clone())),
        ..unstage::Seen::default()
    };
    let look = unstage::Next::Look(unstage::Look::Numbered(staged.number));
    assert_eq!(seen.next(request), look);
    let seen = unstage::Seen { numbered: Some(Some(staged.clone())), ..seen };
    assert_eq!(seen.next(request), unstage::Next::Release(staged));
    // Without a record nothing tells that the disk at the LUN is the volume's.
    let lun = Lun::try_from(3).unwrap();
    let seen = unstage::Seen {
        at_path: Some(AtPath::Nothing),
        own: Some(None),
        listed: Some(unstage::ListedAt::Lun(lun)),
        at_listed: Some(unstage::AtListed::Disk(other.clone())),
        ..unstage::Seen::default()
    };
    assert_eq!(seen.next(request), unstage::Next::Look(unstage::Look::DataDisks));
    let third = Device { nvme: None, lun: None, ..device(3) };
    let seen = unstage::Seen { data_disks: Some(Some(vec![other.clone(), third.clone()])), ..seen };
    assert_eq!(seen.next(request), unstage::Next::Look(unstage::Look::Records));
    let all = |records: Vec<Record>| unstage::Seen { records: Some(records), ..seen.clone() }.next(request);
    assert_eq!(all(vec![]), unstage::Next::ReleaseAll(lun, vec![other.clone(), third.clone()]));
    // From what another volume is staged the volume is not; a record of another boot says nothing.
    let of_third = record("b", &third, None);
    let old = Record { sequence: Some("earlier/diskseq/3".to_owned()), ..of_third.clone() };
    assert_eq!(all(vec![old]), unstage::Next::ReleaseAll(lun, vec![other.clone(), third.clone()]));
    let part = DeviceNumber { major: 8, minor: 131 };
    let of_part = Record { device_name: Some("sd3p1".to_owned()), device: Some(part), ..of_third.clone() };
    let old_part = Record { sequence: Some("earlier/diskseq/3".to_owned()), ..of_part.clone() };
    assert_eq!(all(vec![old_part]), unstage::Next::ReleaseAll(lun, vec![other.clone(), third.clone()]));
    for record in [of_part, of_third] {
        assert_eq!(all(vec![record]), unstage::Next::ReleaseAll(lun, vec![other.clone()]));
    }
    assert_eq!(all(vec![record("b", &third, None), record("c", &other, None)]), unstage::Next::Nothing);
    let hidden = unstage::Seen { data_disks: Some(None), ..seen.clone() };
    assert_eq!(hidden.next(request), unstage::Next::DisksHidden(lun));
}
