use std::sync::LazyLock;

use proptest::prelude::*;

use super::*;

static NOTHING: LazyLock<Adoptions> = LazyLock::new(Adoptions::default);
const NOW: Duration = Duration::from_secs(1_000);

fn volume(id: &str) -> (ShareVolumeId, ArmId) {
    let volume = ShareVolumeId::parse(id).unwrap();
    let share = volume.share_id("s", "g").unwrap();
    (volume, share)
}

fn other(name: &str, account: Option<&str>, share: Option<&str>) -> VolumeRef {
    VolumeRef {
        name: name.into(),
        volume_id: None,
        account: account.map(str::to_owned),
        server: Server::OfAccount,
        share: share.map(str::to_owned),
        is_released_for_deletion: false,
        size: None,
    }
}

fn evidence<'a>(volume: &'a (ShareVolumeId, ArmId), volumes: &'a [VolumeRef]) -> Evidence<'a> {
    Evidence {
        volume: &volume.0,
        share_id: &volume.1,
        prefix: None,
        share: ShareSeen::NotRead,
        snapshots: &[],
        volumes: Volumes::Known(volumes),
        adoptions: &NOTHING,
        now: NOW,
        driver_name: "file.csi.azure.com",
    }
}

fn marked(name: &str, by: &str) -> FileShare {
    let mut share = FileShare::smb("f1", name, 5);
    share.metadata.insert("createdBy".into(), by.into());
    share
}

#[test]
fn an_old_picture_of_the_volume_itself_is_no_other_volume() {
    let id = "rg#f1#pvc-1###ns";
    let of = volume(id);
    let pv = |name: &str, released: bool| VolumeRef::of_driver(name, id, &BTreeMap::new(), released);
    let bound = [pv("pvc-1", false)];
    let verdict = may_delete(&evidence(&of, &bound));
    assert_eq!(verdict, Verdict::Refuse(NotNow::NotReleased("pvc-1".into())));
    assert!(matches!(may_delete(&evidence(&of, &[pv("pvc-1", true)])), Verdict::Delete(_)));
    // Another one with its id keeps it, once its own is released.
    let both = [pv("pvc-1", true), pv("static", false)];
    assert!(
        matches!(may_delete(&evidence(&of, &both)), Verdict::Keep(Kept::Shared { other, .. }) if other == "static")
    );
}

#[test]
fn a_share_that_its_request_named_is_deleted_unread() {
    let volume = volume("g#f1#pvc-1###default");
    assert_eq!(may_delete(&evidence(&volume, &[])), Verdict::Delete(ShareWrite::Delete { share: volume.1.clone() }));
    assert_eq!(ShareWrite::DELETE_INCLUDE, "none");
}

#[test]
fn nothing_is_deleted_before_the_volumes_of_the_cluster_are_known() {
    let volume = volume("g#f1#pvc-1###default");
    let cold = Evidence { volumes: Volumes::Unknown, ..evidence(&volume, &[]) };
    let Verdict::Refuse(why) = may_delete(&cold) else { panic!() };
    assert_eq!((why.code(), why), (Code::Unavailable, NotNow::VolumesUnknown));
}

#[test]
fn snapshots_stop_a_deletion_and_are_named() {
    let volume = volume("g#f1#pvc-1###default");
    let snapshots = ["2026-02-01T00:00:00.0000000Z".to_owned(), "2026-01-01T00:00:00.0000000Z".to_owned()];
    let Verdict::Refuse(why) = may_delete(&Evidence { snapshots: &snapshots, ..evidence(&volume, &[]) }) else {
        panic!()
    };
    assert_eq!(why.code(), Code::FailedPrecondition);
    assert!(why.to_string().contains("2026-01-01T00:00:00.0000000Z, 2026-02-01T00:00:00.0000000Z"), "{why}");
}

/// What keeps a share, in short.
fn kept(verdict: Verdict) -> String {
    match verdict {
        Verdict::Keep(Kept::Shared { other, .. }) => format!("for {other}"),
        Verdict::Keep(Kept::Unclear { other, unsaid, .. }) => format!("for {other}, {} unsaid", unsaid.len()),
        other => format!("{other:?}"),
    }
}

#[test]
fn a_share_that_another_volume_may_name_is_kept() {
    let volume = volume("g#f1#pvc-1###default");
    for (account, share, words) in [
        (Some("f1"), Some("pvc-1"), "for pv-2"),
        (Some("F1"), Some("PVC-1"), "for pv-2"),
        (None, Some("pvc-1"), "for pv-2, 1 unsaid"),
        (Some("f1"), None, "for pv-2, 1 unsaid"),
        (None, None, "for pv-2, 2 unsaid"),
        (Some("f1"), Some("pvc-1/folder"), "for pv-2"),
        (Some(" f1 "), Some("/pvc-1/"), "for pv-2"),
    ] {
        let others = [other("pv-2", account, share)];
        assert_eq!(kept(may_delete(&evidence(&volume, &others))), words, "{account:?} {share:?}");
    }
    for (account, share) in [(Some("f2"), Some("pvc-1")), (Some("f1"), Some("pvc-2")), (Some("f2"), None)] {
        let others = [other("pv-2", account, share)];
        assert!(matches!(may_delete(&evidence(&volume, &others)), Verdict::Delete(_)), "{account:?} {share:?}");
    }
    // One that names it counts before one that may.
    let others = [other("pv-1", None, None), other("pv-2", Some("f1"), Some("pvc-1"))];
    assert_eq!(kept(may_delete(&evidence(&volume, &others))), "for pv-2");
    let Verdict::Keep(why) = may_delete(&evidence(&volume, &others[..1])) else { panic!() };
    let why = why.to_string();
    assert!(why.contains("PersistentVolume pv-1 may need it"), "{why}");
    assert!(why.contains("(attribute storageAccount), nor its share (attribute shareName)"), "{why}");
}

#[test]
fn a_volume_that_names_a_server_is_about_the_account_of_that_server_too() {
    let volume = volume("g#f1#data###default");
    let pv = |id: &str, server: &str| {
        let attributes = [("shareName", "data"), ("server", server)];
        let attributes = attributes.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        VolumeRef::of_driver("pv-2", id, &attributes, false)
    };
    let deleted = |id: &str, server: &str| {
        let read = marked("data", DRIVER_NAME);
        kept(may_delete(&Evidence { share: ShareSeen::There(&read), ..evidence(&volume, &[pv(id, server)]) }))
    };
    for (id, server, words) in [
        ("g#f2#data###default", "f1.file.core.windows.net", "for pv-2"),
        ("g#f2#data###default", "F1.privatelink.file.core.windows.net", "for pv-2"),
        ("mine", "f1.file.core.windows.net", "for pv-2"),
        ("g#f1#data###mine", "f3.file.core.windows.net", "for pv-2"),
        ("g#f2#data###default", "10.0.0.4", "for pv-2, 1 unsaid"),
        ("g#f2#data###default", "files.example.org", "for pv-2, 1 unsaid"),
        ("mine", " ", "for pv-2, 1 unsaid"),
    ] {
        assert_eq!(deleted(id, server), words, "{id} {server:?}");
    }
    for (id, server) in
        [("g#f2#data###default", ""), ("g#f2#data###default", "f3.file.core.windows.net"), ("mine", "f3.file.x")]
    {
        assert!(deleted(id, server).starts_with("Delete"), "{id} {server:?}");
    }
}

#[test]
fn a_share_that_a_request_has_just_got_is_not_deleted() {
    let volume = volume("g#f1#pvc-1##pvc-a#default");
    let read = marked("pvc-1", DRIVER_NAME);
    let evidence = Evidence { share: ShareSeen::There(&read), ..evidence(&volume, &[]) };
    let refused = |adoptions: &Adoptions, volumes: &[VolumeRef]| match may_delete(&Evidence {
        adoptions,
        volumes: Volumes::Known(volumes),
        ..evidence
    }) {
        Verdict::Refuse(why) => (why.code(), why.to_string()),
        other => panic!("{other:?}"),
    };
    let mut adoptions = Adoptions::default();
    for request in ["pvc-a", "pvc-b"] {
        adoptions.begin(&volume.1, request);
        adoptions.end(&volume.1, request, true, NOW);
    }
    let (code, why) = refused(&adoptions, &[]);
    assert!(code == Code::Unavailable && why.contains("request pvc-b too"), "{why}");
    // Its PersistentVolume is seen: it keeps the share, or goes with it.
    let seen = [VolumeRef::of_driver("pvc-b", "g#f1#pvc-1##pvc-b#default", &BTreeMap::new(), false)];
    let verdict = may_delete(&Evidence { adoptions: &adoptions, volumes: Volumes::Known(&seen), ..evidence });
    assert_eq!(kept(verdict), "for pvc-b");
    let released = [VolumeRef { is_released_for_deletion: true, ..seen[0].clone() }];
    let both = Evidence { adoptions: &adoptions, volumes: Volumes::Known(&released), ..evidence };
    assert!(matches!(may_delete(&both), Verdict::Delete(_)));
    // A process that has just begun deletes what no class can have named, and keeps what nobody proves to be its own.
    let young = Adoptions::beginning(NOW);
    let (code, why) = refused(&young, &[]);
    assert!(code == Code::Unavailable && why.contains("begun less than 20 minutes ago"), "{why}");
    let foreign = marked("pvc-1", "me");
    let foreign = Evidence { share: ShareSeen::There(&foreign), adoptions: &young, ..evidence };
    assert!(matches!(may_delete(&foreign), Verdict::Keep(Kept::NotOurs { .. })));
    for generated in ["g#f1#pvc-1###default", "g#f1#kubernetes-dynamic-pvc-1##ns#default"] {
        let generated = self::volume(generated);
        let generated = Evidence { volume: &generated.0, share_id: &generated.1, adoptions: &young, ..evidence };
        assert!(matches!(may_delete(&generated), Verdict::Delete(_)));
    }
}

#[test]
fn the_persistent_volume_of_a_volume_is_found_by_its_id() {
    let id = "g#f1#pvc-1###default";
    let (of, _) = volume(id);
    let pv = |name: &str, id: &str, released| VolumeRef::of_driver(name, id, &BTreeMap::new(), released);
    let all = [pv("a", id, false), pv("b", id, true), pv("c", "g#f1#pvc-2###default", true)];
    assert_eq!(volume_of(&all, &of), Some("b"), "the released one is deleted");
    assert_eq!(volume_of(&all[2..], &of), None);
}

#[test]
fn a_persistent_volume_names_the_share_that_a_node_would_mount() {
    let attributes = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    };
    for (id, pairs, account, share) in [
        ("g#f1#pvc-1###ns", &[][..], Some("f1"), Some("pvc-1")),
        ("vol1", &[("shareName", "data")], None, Some("data")),
        ("vol1", &[("shareName", "data/x"), ("storageAccount", "f2")], Some("f2"), Some("data")),
        ("g#f1#data##pvc-1#ns", &[("shareName", "${pvc.metadata.name}")], Some("f1"), Some("data")),
        ("vol1", &[("shareName", "${pvc.metadata.name}")], None, None),
        ("vol1", &[("shareName", "a"), ("sharename", "b")], None, None),
        ("g#f1#pvc-1###ns", &[("storageAccount", "a"), ("storageaccount", "b")], None, Some("pvc-1")),
        ("vol1", &[], None, None),
        // It may be the name of a Secret, with another account in it: it counts as equal, and keeps the share.
        ("#f1#data#pv#ns", &[], None, Some("data")),
        ("#f1#data#pv#ns", &[("storageAccount", "f2")], Some("f2"), Some("data")),
    ] {
        let found = VolumeRef::of_driver("pv", id, &attributes(pairs), true);
        assert_eq!((found.account.as_deref(), found.share.as_deref()), (account, share), "{id} {pairs:?}");
        assert!(found.is_released_for_deletion);
    }
    let found = VolumeRef::of_in_tree("pv", "data", "azure-storage-account-f1-secret", false);
    assert_eq!(found, other("pv", Some("f1"), Some("data")));
    assert_eq!(VolumeRef::of_in_tree("pv", "", "mine", false), other("pv", None, None));
    for (phase, policy, released) in [
        ("Released", "Delete", true),
        ("Failed", "Delete", true),
        ("Bound", "Delete", false),
        ("Available", "Delete", false),
        ("Released", "Retain", false),
        ("Failed", "Recycle", false),
        ("", "", false),
    ] {
        assert_eq!(VolumeRef::is_released(phase, policy), released, "{phase} {policy}");
    }
}

#[test]
fn volumes_that_wait_for_the_same_deletion_do_not_keep_a_share() {
    let volume = volume("g#f1#pvc-1###default");
    let released = VolumeRef { is_released_for_deletion: true, ..other("pv-1", Some("f1"), Some("pvc-1")) };
    assert!(matches!(may_delete(&evidence(&volume, std::slice::from_ref(&released))), Verdict::Delete(_)));
    let bound = other("pv-2", Some("f1"), Some("pvc-1"));
    let both = [released, bound];
    let Verdict::Keep(why) = may_delete(&evidence(&volume, &both)) else { panic!() };
    assert!(why.to_string().contains("PersistentVolume pv-2 names it too"), "{why}");
}

#[test]
fn a_share_is_deleted_only_with_proof_that_a_driver_made_it() {
    // The id, the class's prefix, the metadata, and whether it is proved.
    let cases = [
        ("g#f1#pvc-1###default", None, None, true),
        ("g#f1#pvcn-1###default", None, None, true),
        ("g#f1#kubernetes-dynamic-pvc-1#pv#default", None, None, true),
        ("g#f1#pvc-mine#pv#default", None, None, false),
        ("#f1#kubernetes-dynamic-pvc-1#pv#default", None, None, true),
        ("g#f1#team-pvc-1###default", Some("team"), None, true),
        ("g#f1#team-pvc-1###default", None, None, false),
        ("g#f1#data###default", None, None, false),
        ("g#f1#data###default", None, Some("somebody"), false),
        ("g#f1#data###default", None, Some("file.csi.azure.com"), true),
        ("g#f1#data###default", None, Some("File.CSI.azure.com"), true),
        // A class named it: its name proves nothing, for a person may have made it.
        ("g#f1#pvc-archive##pvc-1#default", None, None, false),
        ("g#f1#pvc-archive##pvc-1#default", None, Some("file.csi.azure.com"), true),
    ];
    for (id, prefix, by, is_proved) in cases {
        let volume = volume(id);
        let share = by.map_or_else(|| FileShare::smb("f1", "x", 5), |by| marked("x", by));
        let read = Evidence { prefix, share: ShareSeen::There(&share), ..evidence(&volume, &[]) };
        match may_delete(&read) {
            Verdict::Delete(_) => assert!(is_proved, "{id} {by:?}"),
            Verdict::Keep(Kept::NotOurs { .. }) => assert!(!is_proved, "{id} {by:?}"),
            other => panic!("{other:?}"),
        }
        // Unread, only a name can prove it.
        let unread = may_delete(&Evidence { share: ShareSeen::NotRead, ..read });
        assert_eq!(matches!(unread, Verdict::Delete(_)), is_proved && by.is_none(), "{id}");
        assert_eq!(unread == Verdict::Read, !is_proved || by.is_some(), "{id}");
    }
}

#[test]
fn a_driver_with_another_name_knows_its_own_shares() {
    let volume = volume("g#f1#data###default");
    let share = marked("data", "test.csi.azure.com");
    let read = Evidence { share: ShareSeen::There(&share), ..evidence(&volume, &[]) };
    assert!(matches!(may_delete(&read), Verdict::Keep(_)));
    assert!(matches!(may_delete(&Evidence { driver_name: "test.csi.azure.com", ..read }), Verdict::Delete(_)));
    let empty = marked("data", "");
    let unnamed = Evidence { driver_name: "", share: ShareSeen::There(&empty), ..read };
    assert!(matches!(may_delete(&unnamed), Verdict::Keep(_)));
}

#[test]
fn a_share_that_is_gone_is_deleted() {
    let volume = volume("g#f1#data##pvc-1#default");
    let gone = Evidence { share: ShareSeen::Gone, ..evidence(&volume, &[]) };
    assert_eq!(may_delete(&gone), Verdict::Gone);
}

fn any_ref() -> impl Strategy<Value = VolumeRef> {
    let account = proptest::option::of(prop_oneof![Just("f1".to_owned()), Just("f2".to_owned())]);
    let share = proptest::option::of(prop_oneof![Just("pvc-1".to_owned()), Just("data".to_owned())]);
    let server = prop_oneof![
        Just(Server::OfAccount),
        Just(Server::Of("f1".to_owned())),
        Just(Server::Of("f2".to_owned())),
        Just(Server::Unknown("nas".to_owned()))
    ];
    let all = ("pv-[a-c]", account, server, share, any::<bool>());
    all.prop_map(|(name, account, server, share, released)| VolumeRef {
        name,
        volume_id: None,
        account,
        server,
        share,
        is_released_for_deletion: released,
        size: None,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_024, ..ProptestConfig::default() })]

    #[test]
    fn a_deletion_rests_on_all_of_its_evidence_and_on_no_order(
        volumes in proptest::collection::vec(any_ref(), 0..4), known in any::<bool>(), by_class in any::<bool>(),
        named in prop_oneof![Just("pvc-1"), Just("data")], by in proptest::option::of(any::<bool>()),
        read in any::<bool>(), snapshots in 0usize..2, adopted in proptest::option::of("pv-[a-c]"), young in any::<bool>(),
    ) {
        let uuid = if by_class { "pvc-9" } else { "" };
        let volume = volume(&format!("g#f1#{named}##{uuid}#default"));
        let share = match by {
            Some(ours) => marked(named, if ours { DRIVER_NAME } else { "me" }),
            None => FileShare::smb("f1", named, 5),
        };
        let mut adoptions = if young { Adoptions::beginning(NOW) } else { Adoptions::default() };
        if let Some(request) = &adopted {
            adoptions.begin(&volume.1, request);
        }
        let times = vec!["t".to_owned(); snapshots];
        let evidence = Evidence {
            share: if read { ShareSeen::There(&share) } else { ShareSeen::NotRead },
            snapshots: &times,
            volumes: if known { Volumes::Known(&volumes) } else { Volumes::Unknown },
            adoptions: &adoptions,
            ..evidence(&volume, &[])
        };
        let verdict = may_delete(&evidence);
        let mut turned = volumes.clone();
        turned.reverse();
        let again = Evidence { volumes: if known { Volumes::Known(&turned) } else { Volumes::Unknown }, ..evidence };
        prop_assert_eq!(&may_delete(&again), &verdict);
        if let Verdict::Delete(write) = verdict {
            prop_assert_eq!(write, ShareWrite::Delete { share: volume.1.clone() });
            prop_assert!(known && snapshots == 0);
            let needed = |one: &VolumeRef| {
                !one.is_released_for_deletion
                    && match (one.account.as_deref(), &one.server) {
                        (Some("f1"), _) | (_, Server::Unknown(_)) | (None, Server::OfAccount) => true,
                        (_, Server::Of(account)) => account == "f1",
                        (Some(_), Server::OfAccount) => false,
                    }
                    && one.share.as_deref().is_none_or(|share| share == named)
            };
            prop_assert!(!volumes.iter().any(needed));
            prop_assert!(adopted.is_none_or(|request| volumes.iter().any(|volume| volume.name == request)));
            prop_assert!(!young || !by_class);
            prop_assert!((named == "pvc-1" && !by_class) || (read && by == Some(true)));
        }
    }
}
