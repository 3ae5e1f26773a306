use lazuli_model::BlobUri;

use super::*;
use crate::{
    accounts::{self, Evidence, Request},
    class::Place,
    footer::{Footer, LENGTH, ZEROS},
};

const GIB: u64 = 1 << 30;
const CLUSTER: &str = "s/g/kubernetes";

type Ends<D> = Result<D, Failure<&'static str>>;

fn etag(number: u32) -> ETag {
    ETag(number.to_string())
}

fn done(number: u32) -> Answer<&'static str> {
    Answer::Done(Some(etag(number)))
}

fn refused(problem: Problem) -> Answer<&'static str> {
    Answer::Refused(problem, "azure")
}

fn page(page: Page) -> Answer<&'static str> {
    Answer::Page(Box::new(page))
}

fn blob(size: u64, metadata: Metadata) -> Blob {
    Blob { etag: etag(1), length: size + LENGTH, is_page_blob: true, lease: Lease::Free, metadata }
}

fn shown(blob: &Blob) -> Answer<&'static str> {
    Answer::Blob(Box::new(blob.clone()))
}

/// Gives a step its answers, one by one: the calls, and how it ends.
fn run<D>(
    first: Next<D, &'static str>,
    mut next: impl FnMut(Answer<&'static str>) -> Next<D, &'static str>,
    answers: Vec<Answer<&'static str>>,
) -> (Vec<Call>, Ends<D>) {
    let mut calls = Vec::new();
    let mut came = first;
    let mut answers = answers.into_iter();
    loop {
        match came {
            Next::End(end) => {
                assert_eq!(answers.count(), 0, "it ends before all is answered: {calls:?}");
                return (calls, end);
            }
            Next::Call(call) => {
                calls.push(call);
                came = next(answers.next().unwrap_or_else(|| panic!("no answer is left for {calls:?}")));
            }
        }
    }
}

fn create_spec() -> CreateSpec {
    let accepted = GIB..=2 * GIB;
    CreateSpec { mark: mark(CLUSTER, "pvc-1"), size: GIB, accepted, unique_id: [7; 16], time_stamp: 9 }
}

fn create(answers: Vec<Answer<&'static str>>) -> (Vec<Call>, Ends<u64>) {
    let mut create = Create::new(create_spec());
    run(create.begin(), |answer| create.next(answer), answers)
}

fn expand(size: u64, answers: Vec<Answer<&'static str>>) -> (Vec<Call>, Ends<u64>) {
    let mut expand = Expand::new(ExpandSpec { size, unique_id: [8; 16], time_stamp: 9 });
    run(expand.begin(), |answer| expand.next(answer), answers)
}

fn delete(account: &str, answers: Vec<Answer<&'static str>>) -> (Vec<Call>, Ends<Deleted>) {
    let uri = BlobUri::of(account, "core.windows.net", "vhds", "pvc-1.vhd").unwrap();
    let mut delete = Delete::new(DeleteSpec { uri, cluster: CLUSTER.into() });
    run(delete.begin(), |answer| delete.next(answer), answers)
}

fn container() -> Answer<&'static str> {
    Answer::Container { is_public: false }
}

fn ours() -> Metadata {
    create::metadata(&mark(CLUSTER, "pvc-1"))
}

#[track_caller]
fn why<D: fmt::Debug>((_, end): (Vec<Call>, Ends<D>)) -> Why {
    end.unwrap_err().why
}

#[test]
fn a_disk_is_made_with_three_requests() {
    let (calls, end) = create(vec![container(), done(1), done(2)]);
    let footer = Footer::new(GIB, [7; 16], 9).to_page();
    assert_eq!(end, Ok(GIB));
    assert_eq!(
        calls,
        [
            Call::ReadContainer,
            Call::MakeBlob { length: GIB + 512, metadata: ours() },
            Call::WritePage { offset: GIB, page: Box::new(footer), if_match: etag(1) },
        ]
    );
    let (calls, end) = create(vec![refused(Problem::NoContainer), Answer::Done(None), done(1), done(2)]);
    assert_eq!((end, &calls[1]), (Ok(GIB), &Call::MakeContainer));
    // Another process has made it, and it is looked at.
    let (calls, end) =
        create(vec![refused(Problem::NoContainer), refused(Problem::Exists), container(), done(1), done(2)]);
    assert_eq!((end, calls.len()), (Ok(GIB), 5));
}

#[test]
fn a_retry_finds_its_disk_and_writes_the_footer_that_is_missing() {
    let mine = blob(GIB, ours());
    let good = Footer::new(GIB, [7; 16], 9).to_page();
    let exists = || vec![container(), refused(Problem::Exists), shown(&mine)];
    let with = |more: Vec<Answer<&'static str>>| create(exists().into_iter().chain(more).collect());
    let (calls, end) = with(vec![page(good)]);
    assert_eq!((end, calls.len()), (Ok(GIB), 4));
    let (calls, end) = with(vec![page(ZEROS), done(2)]);
    assert_eq!(end, Ok(GIB));
    assert_eq!(calls[4], Call::WritePage { offset: GIB, page: Box::new(good), if_match: etag(1) });
    // A lost answer is looked at.
    let (_, end) = create(vec![container(), refused(Problem::Lost), shown(&mine), page(ZEROS), done(2)]);
    assert_eq!(end, Ok(GIB));
    // A larger disk within the limit is the volume; the footer of the old size is not.
    let grown = blob(2 * GIB, ours());
    let (calls, end) = create(vec![container(), refused(Problem::Exists), shown(&grown), page(good), done(2)]);
    assert_eq!(end, Ok(2 * GIB));
    let footer = Footer::new(GIB, [7; 16], 9).resized(2 * GIB).to_page();
    assert_eq!(calls[4], Call::WritePage { offset: 2 * GIB, page: Box::new(footer), if_match: etag(1) });
}

#[test]
fn a_creation_takes_no_other_blob() {
    let exists = |blob: &Blob| create(vec![container(), refused(Problem::Exists), shown(blob)]);
    let stranger = |metadata: Metadata| why(exists(&blob(GIB, metadata)));
    assert_eq!(stranger(Metadata::new()), Why::Stranger);
    // A disk of the in-tree plugin, and one of another cluster.
    assert_eq!(stranger(Metadata::from([("createdby".into(), "k8sAzureDataDisk".into())])), Why::Stranger);
    assert_eq!(stranger(create::metadata(&mark("s/g/other", "pvc-1"))), Why::Stranger);
    assert_eq!(why(exists(&Blob { is_page_blob: false, ..blob(GIB, ours()) })), Why::Stranger);
    let (_, end) = exists(&blob(3 * GIB, ours()));
    let failure = end.unwrap_err();
    assert_eq!((&failure.why, failure.code(Rpc::CreateVolume)), (&Why::OtherSize(3 * GIB), Code::AlreadyExists));
    // What an earlier try made before the container was opened is there.
    for (found, code) in
        [(refused(Problem::NoBlob), Code::FailedPrecondition), (shown(&blob(GIB, ours())), Code::Unavailable)]
    {
        let public = create(vec![Answer::Container { is_public: true }, found]).1.unwrap_err();
        assert_eq!((&public.why, public.code(Rpc::CreateVolume)), (&Why::PublicContainer, code));
    }
    // Its end is neither empty nor a footer: no write, and no final answer, for the blob is the volume's.
    let odd = create(vec![container(), refused(Problem::Exists), shown(&blob(GIB, ours())), page([1; 512])]);
    let failure = odd.1.unwrap_err();
    assert_eq!((&failure.why, failure.code(Rpc::CreateVolume)), (&Why::Footer(Defect::Cookie), Code::Unavailable));
}

#[test]
fn no_final_code_follows_a_blob_that_may_be_there() {
    for fault in [Fault::Forbidden, Fault::Invalid, Fault::Unavailable, Fault::Malformed] {
        let new = vec![refused(Problem::NoContainer), done(1), refused(Problem::Other(fault.clone()))];
        assert_eq!(create(new).1.unwrap_err().effect, Effect::None);
        // An earlier try may have made it, where nothing shows the container, or no write is let through to it.
        let unread = create(vec![refused(Problem::Other(fault.clone()))]).1.unwrap_err();
        assert_eq!(unread.effect, Effect::Possible);
        assert!(unread.code(Rpc::CreateVolume).keeps_the_claim(), "{unread:?}");
        let unwritten = create(vec![container(), refused(Problem::Other(fault.clone()))]).1.unwrap_err();
        assert_eq!(unwritten.effect == Effect::Possible, fault == Fault::Forbidden, "{unwritten:?}");
        let after = create(vec![container(), done(1), refused(Problem::Other(fault))]).1.unwrap_err();
        assert_eq!(after.effect, Effect::Possible);
        assert!(after.code(Rpc::CreateVolume).keeps_the_claim(), "{after:?}");
    }
}

#[test]
fn a_disk_grows_with_the_new_footer_before_the_old_one_goes() {
    let old = Footer::new(GIB, [7; 16], 9);
    let own = Metadata::from([("team".into(), "red".into())]);
    let noted = Metadata::from([("team".into(), "red".into()), (GROWN_FROM_KEY.into(), GIB.to_string())]);
    let answers =
        vec![shown(&blob(GIB, own.clone())), page(old.to_page()), done(2), done(3), done(4), done(5), done(6)];
    let (calls, end) = expand(4 * GIB, answers);
    assert_eq!(end, Ok(4 * GIB));
    let new = Box::new(old.resized(4 * GIB).to_page());
    assert_eq!(
        calls,
        [
            Call::ReadBlob,
            Call::ReadPage { offset: GIB, if_match: etag(1) },
            Call::SetMetadata { metadata: noted, if_match: etag(1) },
            Call::Resize { length: 4 * GIB + 512, if_match: etag(2) },
            Call::WritePage { offset: 4 * GIB, page: new, if_match: etag(3) },
            Call::ClearPage { offset: GIB, if_match: etag(4) },
            Call::SetMetadata { metadata: own, if_match: etag(5) },
        ]
    );
}

#[test]
fn a_growth_that_was_cut_short_is_finished_and_clears_only_an_old_footer() {
    let noted = || blob(4 * GIB, Metadata::from([(GROWN_FROM_KEY.into(), GIB.to_string())]));
    let old = Footer::new(GIB, [7; 16], 9);
    let new = old.resized(4 * GIB);
    // After the resize: no footer yet.
    let (calls, end) =
        expand(4 * GIB, vec![shown(&noted()), page(ZEROS), page(old.to_page()), done(2), done(3), done(4)]);
    assert_eq!(end, Ok(4 * GIB));
    let written = Call::WritePage { offset: 4 * GIB, page: Box::new(new.to_page()), if_match: etag(1) };
    assert_eq!((&calls[3], &calls[4]), (&written, &Call::ClearPage { offset: GIB, if_match: etag(2) }));
    // After the new footer: a machine has written where the old one was, or a footer of another disk is there.
    for data in [[1; 512], ZEROS, Footer::new(GIB, [1; 16], 9).to_page(), new.to_page()] {
        let (calls, end) = expand(4 * GIB, vec![shown(&noted()), page(new.to_page()), page(data), done(2)]);
        assert_eq!(end, Ok(4 * GIB));
        assert!(!calls.iter().any(|call| matches!(call, Call::ClearPage { .. })), "{calls:?}");
    }
    // A note that is no place in the disk is dropped.
    for note in ["", "x", "0", "1000", "99999999999999999999999", "8589934592"] {
        let odd = blob(4 * GIB, Metadata::from([(GROWN_FROM_KEY.into(), note.into())]));
        let (calls, end) = expand(4 * GIB, vec![shown(&odd), page(new.to_page()), done(2)]);
        assert_eq!((end, calls.len()), (Ok(4 * GIB), 3), "{note}");
    }
}

#[test]
fn a_disk_never_shrinks_and_one_that_is_large_enough_costs_two_reads() {
    let good = Footer::new(4 * GIB, [7; 16], 9).to_page();
    for size in [0, GIB, 4 * GIB] {
        let (calls, end) = expand(size, vec![shown(&blob(4 * GIB, Metadata::new())), page(good)]);
        assert_eq!((end, calls.len()), (Ok(4 * GIB), 2));
    }
    // Before an attach: the footer alone.
    let (_, end) = expand(0, vec![shown(&blob(4 * GIB, Metadata::new())), page(ZEROS), done(2)]);
    assert_eq!(end, Ok(4 * GIB));
}

#[test]
fn nothing_is_written_to_a_blob_that_is_attached_or_is_no_fixed_vhd() {
    let named = Metadata::from([("microsoftazurecompute_vmname".into(), "node-3".into())]);
    for lease in [Lease::Held, Lease::Unknown] {
        let attached = Blob { lease, ..blob(GIB, named.clone()) };
        let failure = expand(4 * GIB, vec![shown(&attached)]).1.unwrap_err();
        assert_eq!(failure.code(Rpc::Expand), Code::FailedPrecondition);
        assert_eq!(
            failure.why.to_string(),
            "the blob's lease is held: the disk is attached to the machine node-3; stop the Pods that use it there, or detach it \
             from the machine"
        );
        let failure = delete("ds0a1b0", vec![shown(&attached)]).1.unwrap_err();
        assert_eq!(failure.code(Rpc::DeleteVolume), Code::FailedPrecondition);
        assert!(matches!(failure.why, Why::Attached { machine: Some(_) }));
        let mine = Blob { lease, ..blob(GIB, ours()) };
        let created = create(vec![container(), refused(Problem::Exists), shown(&mine), page(ZEROS)]);
        assert_eq!(why(created), Why::Attached { machine: None });
    }
    for (end, defect) in [
        ([1; 512], Defect::Cookie),
        (
            {
                // A dynamic VHD has a copy of its footer at its end.
                let mut page = Footer::new(GIB, [7; 16], 9).to_page();
                page[63] = 3;
                page[67] -= 1;
                page
            },
            Defect::DiskType(3),
        ),
    ] {
        let failed = expand(4 * GIB, vec![shown(&blob(GIB, Metadata::new())), page(end)]);
        assert_eq!(why(failed), Why::Footer(defect));
    }
    let odd = Blob { length: GIB, ..blob(GIB, Metadata::new()) };
    assert_eq!(why(expand(4 * GIB, vec![shown(&odd)])), Why::Footer(Defect::Unaligned(GIB - 512)));
    let block = Blob { is_page_blob: false, ..blob(GIB, Metadata::new()) };
    assert_eq!(why(expand(4 * GIB, vec![shown(&block)])), Why::NotAPageBlob);
    assert_eq!(why(delete("ds0a1b0", vec![shown(&block)])), Why::NotAPageBlob);
    let missing = expand(4 * GIB, vec![refused(Problem::NoBlob)]).1.unwrap_err();
    assert_eq!(missing.code(Rpc::Expand), Code::NotFound);
}

#[test]
fn a_machine_that_attaches_between_a_read_and_a_write_stops_it() {
    let good = Footer::new(GIB, [7; 16], 9).to_page();
    let seen = || shown(&blob(GIB, Metadata::new()));
    let grown = expand(4 * GIB, vec![seen(), page(good), refused(Problem::Leased)]);
    assert_eq!(why(grown), Why::Attached { machine: None });
    let deleted = delete("ds0a1b0", vec![seen(), Answer::Snapshots(Vec::new()), refused(Problem::Leased)]);
    assert_eq!(why(deleted), Why::Attached { machine: None });
}

#[test]
fn a_blob_that_always_changes_is_given_up() {
    let mut expand = Expand::new(ExpandSpec { size: GIB, unique_id: [8; 16], time_stamp: 9 });
    let mut next = expand.begin();
    let mut calls = 0;
    let failure = loop {
        next = match next {
            Next::Call(Call::ReadBlob) => expand.next(shown(&blob(GIB, Metadata::new()))),
            Next::Call(_) => expand.next(refused(Problem::OtherVersion)),
            Next::End(end) => break end.unwrap_err(),
        };
        calls += 1;
    };
    assert!(calls < 30);
    assert_eq!((&failure.why, failure.code(Rpc::Expand)), (&Why::Unsettled, Code::Aborted));
}

#[test]
fn a_disk_is_deleted_with_three_requests_and_never_with_its_snapshots() {
    let seen = || shown(&blob(GIB, Metadata::new()));
    let (calls, end) = delete("ds0a1b0", vec![seen(), Answer::Snapshots(Vec::new()), done(2)]);
    assert_eq!(end, Ok(Deleted::Disk));
    assert_eq!(calls, [Call::ReadBlob, Call::ListSnapshots, Call::DeleteBlob { if_match: etag(1) }]);
    let times = vec!["2026-01-01T00:00:00.0000000Z".to_owned()];
    let failure = delete("ds0a1b0", vec![seen(), Answer::Snapshots(times)]).1.unwrap_err();
    assert_eq!(failure.code(Rpc::DeleteVolume), Code::FailedPrecondition);
    assert_eq!(
        failure.why.to_string(),
        "the blob has snapshots, which would be deleted with it: 2026-01-01T00:00:00.0000000Z; delete them first"
    );
    let since = delete("ds0a1b0", vec![seen(), Answer::Snapshots(Vec::new()), refused(Problem::HasSnapshots)]);
    assert_eq!(why(since), Why::Snapshots(Vec::new()));
    for missing in [Problem::NoBlob, Problem::NoContainer, Problem::NoAccount] {
        assert_eq!(delete("ds0a1b0", vec![refused(missing)]).1, Ok(Deleted::Disk));
    }
    // What Azure does not say for certain ends nothing.
    for (status, code) in [(404, ""), (404, "ResourceNotFound"), (403, "AuthenticationFailed"), (503, "ServerBusy")] {
        let failure = delete("ds0a1b0", vec![refused(Problem::of(status, code))]).1.unwrap_err();
        assert_ne!(failure.code(Rpc::DeleteVolume), Code::Ok, "{code}");
    }
}

/// The account that is made for the disk alone.
fn own_account() -> StorageAccount {
    let request = Request { blob: "pvc-1.vhd".into(), place: Place::Dedicated, sku: None, location: "local".into() };
    let evidence = Evidence {
        cluster: CLUSTER.into(),
        is_stack_hub: false,
        accounts: Vec::new(),
        placed: BTreeMap::new(),
        making: Vec::new(),
        taken: std::collections::BTreeSet::new(),
    };
    let new = accounts::plan(&evidence, &[request]).makes.remove(0);
    StorageAccount { tags: new.spec.tags, ..StorageAccount::general_purpose(&new.name) }
}

#[test]
fn the_account_of_a_dedicated_disk_goes_only_when_it_is_its_own_and_empty() {
    let account = own_account();
    let shown = |account: &StorageAccount| Answer::Account(Box::new(account.clone()));
    let with = |more: Vec<Answer<&'static str>>| {
        // A retry after the blob was deleted begins here too.
        delete(account.name(), [refused(Problem::NoBlob)].into_iter().chain(more).collect()).1
    };
    let vhds = Contents { containers: vec!["vhds".into()], ..Contents::default() };
    assert_eq!(
        with(vec![shown(&account), Answer::Contents(vhds.clone()), Answer::Done(None)]),
        Ok(Deleted::DiskAndAccount)
    );
    assert_eq!(with(vec![refused(Problem::NoAccount)]), Ok(Deleted::DiskAndAccount));
    let mut foreign = account.clone();
    foreign.tags.remove(accounts::DISK_TAG);
    assert_eq!(with(vec![shown(&foreign)]), Ok(Deleted::AccountKept(KeptBecause::Tags)));
    let others = [
        Contents { containers: vec!["vhds".into(), "backup".into()], ..Contents::default() },
        Contents { blobs: 1, ..vhds.clone() },
        Contents { shares: 1, ..vhds.clone() },
        Contents { tables: 1, ..vhds.clone() },
        Contents { queues: 1, ..vhds.clone() },
    ];
    for contents in others {
        assert_eq!(
            with(vec![shown(&account), Answer::Contents(contents.clone())]),
            Ok(Deleted::AccountKept(KeptBecause::Contents(contents)))
        );
    }
    // A container that can be restored keeps the account, also where another one has its name now.
    for listed in [vec![("vhds", None)], vec![("vhds", Some(0)), ("vhds", Some(0))]] {
        let mut contents = Contents::default();
        listed.into_iter().for_each(|(container, blobs)| contents.add(container.to_owned(), blobs));
        assert_eq!(
            with(vec![shown(&account), Answer::Contents(contents.clone())]),
            Ok(Deleted::AccountKept(KeptBecause::Contents(contents)))
        );
    }
    let mut empty = Contents::default();
    empty.add("vhds".to_owned(), Some(0));
    assert_eq!(empty, vhds);
    let forbidden = || refused(Problem::Other(Fault::Forbidden));
    assert_eq!(with(vec![forbidden()]), Ok(Deleted::AccountKept(KeptBecause::Forbidden)));
    assert_eq!(with(vec![shown(&account), forbidden()]), Ok(Deleted::AccountKept(KeptBecause::Forbidden)));
    let unlisted = refused(Problem::Other(Fault::Unsupported));
    assert_eq!(with(vec![shown(&account), unlisted]), Ok(Deleted::AccountKept(KeptBecause::Unlisted)));
    // What a retry can cure is retried.
    let failure = with(vec![shown(&account), refused(Problem::Other(Fault::Unavailable))]).unwrap_err();
    assert_eq!(failure.code(Rpc::DeleteVolume), Code::Unavailable);
    let again =
        with(vec![shown(&account), Answer::Contents(vhds), refused(Problem::Lost), refused(Problem::NoAccount)]);
    assert_eq!(again, Ok(Deleted::DiskAndAccount));
}

#[test]
fn the_answers_of_the_blob_service_are_sorted_by_their_codes() {
    for (status, code, problem) in [
        (404, "BlobNotFound", Problem::NoBlob),
        (404, "ContainerNotFound", Problem::NoContainer),
        (404, "", Problem::Other(Fault::Malformed)),
        (409, "BlobAlreadyExists", Problem::Exists),
        (409, "ContainerAlreadyExists", Problem::Exists),
        (409, "SnapshotsPresent", Problem::HasSnapshots),
        (409, "ContainerBeingDeleted", Problem::Other(Fault::Conflict)),
        (412, "ConditionNotMet", Problem::OtherVersion),
        (412, "LeaseIdMissing", Problem::Leased),
        (412, "LeaseIdMismatchWithBlobOperation", Problem::Leased),
        (403, "AuthenticationFailed", Problem::Other(Fault::Unauthenticated)),
        (403, "AuthorizationFailure", Problem::Other(Fault::Forbidden)),
        (503, "ServerBusy", Problem::Other(Fault::Unavailable)),
        (500, "InternalError", Problem::Other(Fault::Unavailable)),
        (416, "InvalidPageRange", Problem::Other(Fault::Malformed)),
    ] {
        assert_eq!(Problem::of(status, code), problem, "{status} {code}");
    }
}

#[test]
fn a_write_whose_answer_names_no_version_is_looked_at() {
    let none = || Answer::Done(None);
    let mine = blob(GIB, ours());
    assert_eq!(create(vec![container(), none(), shown(&mine), page(ZEROS), done(2)]).1, Ok(GIB));
    let (_, end) = create(vec![container(), none(), Answer::Snapshots(Vec::new())]);
    assert_eq!(end.unwrap_err().effect, Effect::Possible);
    let good = page(Footer::new(GIB, [7; 16], 9).to_page());
    let (calls, end) = expand(GIB, vec![shown(&mine), page(ZEROS), none(), shown(&mine), good]);
    assert_eq!((end, calls.len()), (Ok(GIB), 5));
}

#[test]
fn an_account_that_is_gone_is_no_users_mistake() {
    let failure = create(vec![refused(Problem::NoAccount)]).1.unwrap_err();
    assert_eq!((&failure.why, failure.code(Rpc::CreateVolume)), (&Why::NoAccount, Code::Unavailable));
    let failure = expand(GIB, vec![refused(Problem::NoAccount)]).1.unwrap_err();
    assert_eq!(failure.code(Rpc::Expand), Code::FailedPrecondition);
}

#[test]
fn a_mark_names_one_volume_of_one_cluster() {
    assert_eq!(mark("S/G/k", "pvc-1"), mark("s/g/k", "pvc-1"));
    assert_ne!(mark("s/g/k", "pvc-1"), mark("s/g/k", "pvc-2"));
    assert_ne!(mark("s/g/k", "pvc-1"), mark("s/g/l", "pvc-1"));
    assert_ne!(mark("a", ";b"), mark("a;", "b"));
}

#[test]
fn a_read_tells_a_blob_that_is_gone_from_one_that_cannot_be_read() {
    let disk = blob(GIB, Metadata::new());
    assert_eq!(*read(shown(&disk)).unwrap(), disk);
    let other = Blob { is_page_blob: false, ..disk };
    let why = |answer| read(answer).unwrap_err().why;
    assert_eq!(why(shown(&other)), Why::NotAPageBlob);
    assert_eq!(why(refused(Problem::NoBlob)), Why::NoBlob);
    assert_eq!(why(refused(Problem::NoContainer)), Why::NoBlob);
    assert_eq!(why(refused(Problem::NoAccount)), Why::NoAccount);
    let forbidden = Problem::Other(Fault::Forbidden);
    assert_eq!(why(refused(forbidden)), Why::Azure("reading the blob", Fault::Forbidden));
    assert_eq!(why(done(1)), Why::Azure("reading the blob", Fault::Malformed));
}

#[test]
fn what_no_repetition_cures_has_a_fault_that_says_so() {
    let fault = |why| Failure::<()> { why, effect: Effect::None, azure: None }.fault();
    for why in [Why::Attached { machine: None }, Why::Snapshots(Vec::new())] {
        assert_eq!(fault(why), Fault::InUse);
    }
    for why in [Why::PublicContainer, Why::Stranger, Why::OtherSize(1), Why::NotAPageBlob] {
        assert_eq!(fault(why), Fault::Invalid);
    }
    assert_eq!((fault(Why::NoBlob), fault(Why::NoAccount)), (Fault::NotFound, Fault::ScopeNotFound));
    assert_eq!((fault(Why::Unsettled), fault(Why::Azure("", Fault::Locked))), (Fault::Conflict, Fault::Locked));
}
