//! Volumes that were made from others.

use std::time::Duration;

use lazuli_model::Gib;

use super::{
    super::stage::*,
    stage::{SOURCE, copy, filesystem, request, writable},
    *,
};
use crate::device_identity::{Identity, Metadata, Stood};
use lazuli_volume::{FsType, copy::Line};

const BLOB: &str = "https://acct.blob.core.windows.net/vhds/d.vhd";

#[test]
fn what_was_made_from_a_volume_that_was_here_is_staged_at_once_where_the_metadata_names_it() {
    let seen = |metadata, record: Record| Seen {
        found: Some(device(1)),
        identity: Some(Identity { metadata, contradiction: None }),
        disk: Some(device(1)),
        at_path: Some(AtPath::Nothing),
        mounts: Some(vec![]),
        content: Some(OnDevice::Filesystem { found: filesystem("ext4", "A"), is_unfinished: false }),
        records: Some(Records { before: vec![record], ..Records::default() }),
        stood: Some(Stood { seen_for: Duration::ZERO, confirmed_for: Duration::ZERO }),
        acceptance: Some(Acceptance { key: "a".into(), is_given: false }),
        mounts_now: Some(vec![]),
        is_repaired: true,
        ..Seen::default()
    };
    let end = |request: &Request, seen: Seen| match seen.next(request) {
        Next::Do(Act::Admit(Admission::Proved)) => Ok(()),
        Next::Refuse(refusal) => Err(*refusal),
        next => panic!("{next:?}"),
    };
    let (confirmed, silent) = (Metadata::Confirms(None), Metadata::Silent);
    let of = |volume: &str| record(volume, &device(2), Some("A"));
    let sibling = SOURCE.replace("/source", "/sibling");
    let (plain, copy) = (request(writable(FsType::Ext4)), copy(writable(FsType::Ext4)));
    // A disk that Azure has imported has the file system of the page blob.
    let mut imported = plain.clone();
    imported.lineage.line = Line::of_source(BLOB);
    let waits = |end: Result<(), Refusal>| {
        matches!(end, Err(Refusal::Unproved { why: Unproved::WaitForLag(..) | Unproved::Mismatch(_), .. }))
    };
    // The source; a sibling, of which its record says so; one made from this volume; and one of which nothing is known.
    let told = Record { descends_from: Some(SOURCE.to_uppercase()), ..of(&sibling) };
    let child = Record { descends_from: Some(plain.lineage.disk.to_string()), ..of(&sibling) };
    for (request, record, is_at_once) in [
        (&copy, of(SOURCE), true),
        (&copy, told.clone(), true),
        (&plain, child, true),
        (&imported, of(BLOB), true),
        (&imported, of(&BLOB.replace("acct", "ACCT")), true),
        (&imported, of(&BLOB.replace("d.vhd", "D.vhd")), false),
        (&plain, Record { descends_from: Some(BLOB.into()), ..of(&sibling) }, false),
        (&imported, Record { descends_from: Some(BLOB.into()), ..of(&sibling) }, true),
        (&copy, of(&sibling), false),
        (&plain, of(SOURCE), false),
        (&plain, told, false),
    ] {
        let found = end(request, seen(confirmed, record.clone()));
        assert_eq!((found.is_ok(), waits(found)), (is_at_once, !is_at_once), "{record:?}");
        assert!(waits(end(request, seen(silent, record))), "without the metadata no file system tells which it is");
    }
}

#[test]
fn only_a_copy_may_be_smaller_than_azure_s_rounded_size() {
    let seen = |bytes| {
        let device = Device { size_bytes: bytes, ..device(1) };
        let identity = Identity { metadata: Metadata::Confirms(Some(Gib::new(4))), contradiction: None };
        let (found, disk, grown) = (Some(device.clone()), Some(device.clone()), Some(device));
        Seen { found, disk, grown, identity: Some(identity), ..Seen::default() }
    };
    let is_refused = |request: &Request, bytes| matches!(seen(bytes).next(request), Next::Refuse(_));
    let (plain, copy) = (request(Mode::Raw), copy(Mode::Raw));
    assert!(is_refused(&plain, 4 * GIB - 512) && !is_refused(&plain, 4 * GIB));
    assert!(is_refused(&copy, 3 * GIB) && !is_refused(&copy, 3 * GIB + 512));
}

#[test]
fn the_id_that_a_copy_got_on_another_node_is_no_mismatch_and_alone_no_proof() {
    let seen = |metadata, past: Option<&str>| Seen {
        found: Some(device(1)),
        identity: Some(Identity { metadata, contradiction: None }),
        disk: Some(device(1)),
        at_path: Some(AtPath::Nothing),
        has_btrfs_turn: true,
        mounts: Some(vec![]),
        content: Some(OnDevice::Filesystem { found: filesystem("btrfs", "OWN"), is_unfinished: false }),
        records: Some(Records { past: past.map(|uuid| record("a", &device(9), Some(uuid))), ..Records::default() }),
        stood: Some(Stood { seen_for: Duration::ZERO, confirmed_for: Duration::ZERO }),
        acceptance: Some(Acceptance { key: "own".into(), is_given: false }),
        ..Seen::default()
    };
    let copy = copy(writable(FsType::Btrfs));
    let is_admitted = |seen: Seen| matches!(seen.next(&copy), Next::Do(Act::Admit(Admission::Proved)));
    for past in [None, Some("a"), Some("own")] {
        assert!(is_admitted(seen(Metadata::Confirms(None), past)), "{past:?}");
        assert_eq!(is_admitted(seen(Metadata::Silent, past)), past.is_some(), "{past:?}");
    }
    let is_renamed = |seen: &Seen| matches!(seen.next(&copy), Next::Do(Act::GiveFsid(..)));
    let ready = Seen { is_admitted: true, mounts_now: Some(vec![]), ..seen(Metadata::Confirms(None), None) };
    assert!(!is_renamed(&ready), "it has its id");
    let content = Some(OnDevice::Filesystem { found: filesystem("btrfs", "A"), is_unfinished: false });
    let copied = Seen { content, acceptance: Some(Acceptance { key: "a".into(), is_given: false }), ..ready };
    assert!(is_renamed(&copied));
}
