use lazuli_model::{ArmId, BlobUri, StorageAccount};

use super::*;
use crate::{
    accounts::{self, Evidence, Request as Placing, dedicated_names},
    class::Place,
    footer::LENGTH,
    lease::Lease,
    life::{Blob, CREATED_BY, Contents, ETag, Metadata, Problem, VOLUME_KEY, mark},
};

type Work = Disk<&'static str>;

const GIB: u64 = 1 << 30;
const CLUSTER: &str = "s/g/kubernetes";

fn home(name: &str) -> Home {
    Home { id: ArmId::storage_account("s", "g", name).unwrap(), location: "local".into(), sku: None }
}

fn made(time_stamp: u32) -> Request {
    let mark = mark(CLUSTER, "pvc-1");
    let spec = CreateSpec { mark, size: GIB, accepted: GIB..=GIB, unique_id: [1; 16], time_stamp };
    Request { wanted: Wanted::Made(spec), home: home("ds1") }
}

fn deleted(account: &str) -> Request {
    let uri = BlobUri::of(account, "core.windows.net", "vhds", "pvc-1.vhd").unwrap();
    Request { wanted: Wanted::Deleted(DeleteSpec { uri, cluster: CLUSTER.into() }), home: home(account) }
}

fn etag() -> ETag {
    ETag("1".into())
}

fn done() -> Input<Work> {
    Input::Written(Some(Answer::Done(Some(etag()))))
}

fn read(answer: Answer<&'static str>) -> Input<Work> {
    Input::Read(Ok(answer))
}

fn blob() -> Blob {
    let text = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
    let metadata = Metadata::from([text(CREATED_BY), (VOLUME_KEY.into(), mark(CLUSTER, "pvc-1"))]);
    Blob { etag: etag(), length: GIB + LENGTH, is_page_blob: true, lease: Lease::Free, metadata }
}

/// Gives a course its inputs: what it wants after each.
fn run(course: &mut Work, inputs: Vec<Input<Work>>) -> Vec<String> {
    let word = |next: Next<Work>| match next {
        Next::Permit(verb) => format!("permit {verb:?}"),
        Next::Read(sent) => sent.call.what().to_owned(),
        Next::Write(sent) => sent.call.what().to_owned(),
        Next::Rest(_) => "rest".to_owned(),
        Next::End(Ok(done)) => format!("{done:?}"),
        Next::End(Err(failure)) => format!("{:?}", failure.why),
    };
    inputs.into_iter().map(|input| word(course.next(&(), std::time::Duration::ZERO, input))).collect()
}

#[test]
fn each_write_of_a_creation_has_a_permit_and_what_is_begun_is_finished() {
    let mut course = Work::of(&made(1));
    let inputs = vec![Input::Begin, read(Answer::Container { is_public: false }), Input::Permitted];
    assert_eq!(run(&mut course, inputs), ["reading the container", "permit Blob", "making the blob"]);
    assert!(!course.goes_on_alone(), "nothing is there that it must finish");
    assert_eq!(run(&mut course, vec![done()]), ["permit Blob"]);
    assert!(course.goes_on_alone(), "the blob has no footer");
    assert_eq!(run(&mut course, vec![Input::Permitted, done()]), ["writing the blob's footer", "Size(1073741824)"]);
}

#[test]
fn a_lost_write_is_finished_too_and_an_unsent_one_is_not() {
    for (problem, goes_on) in [(Problem::Lost, true), (Problem::Other(Fault::Unavailable), false)] {
        let mut course = Work::of(&made(1));
        let inputs = vec![Input::Begin, read(Answer::Container { is_public: false }), Input::Permitted];
        run(&mut course, inputs);
        run(&mut course, vec![Input::Refused(Refused::new(problem.clone(), "azure"))]);
        assert_eq!(course.goes_on_alone(), goes_on, "{problem:?}");
    }
    let mut course = Work::of(&made(1));
    let end = run(&mut course, vec![Input::Begin, Input::Unwanted]);
    assert_eq!(end[1], "Azure(\"reading the container\", Deadline)");
}

#[test]
fn the_reads_that_an_account_is_deleted_by_come_after_the_permit() {
    let request = Placing { blob: "pvc-1.vhd".into(), place: Place::Dedicated, sku: None, location: "local".into() };
    let evidence = Evidence {
        cluster: CLUSTER.into(),
        is_stack_hub: false,
        accounts: Vec::new(),
        placed: Default::default(),
        making: Vec::new(),
        taken: Default::default(),
    };
    let new = accounts::plan(&evidence, &[request]).makes.remove(0);
    let account = StorageAccount { tags: new.spec.tags, ..StorageAccount::general_purpose(&new.name) };
    let mut course = Work::of(&deleted(&new.name));
    let inputs = vec![
        Input::Begin,
        read(Answer::Blob(Box::new(blob()))),
        read(Answer::Snapshots(Vec::new())),
        Input::Permitted,
        done(),
        Input::Permitted,
        read(Answer::Account(Box::new(account))),
        read(Answer::Contents(Contents { containers: vec!["vhds".into()], ..Contents::default() })),
        done(),
    ];
    let words = [
        "reading the blob",
        "listing the blob's snapshots",
        "permit Blob",
        "deleting the blob",
        "permit Account",
        "reading the storage account",
        "listing what is in the storage account",
        "deleting the storage account",
        "Deleted(DiskAndAccount)",
    ];
    assert_eq!(run(&mut course, inputs), words);
}

#[test]
fn the_same_request_joins_and_another_does_not() {
    assert!(Work::is_same(&made(1), &made(2)), "the time in the footer is no difference");
    let grown = |size| Request {
        wanted: Wanted::Grown(ExpandSpec { size, unique_id: [1; 16], time_stamp: 1 }),
        home: home("ds1"),
    };
    assert!(!Work::is_same(&made(1), &grown(GIB)) && !Work::is_same(&grown(GIB), &grown(2 * GIB)));
    assert!(!Work::is_same(&made(1), &deleted("ds1")));
    let elsewhere = Request { home: home("ds2"), ..made(1) };
    assert!(!Work::is_same(&made(1), &elsewhere));
}

#[test]
fn the_manager_says_that_an_account_is_gone() {
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
    let problem = |fault, effect| Refused::by_manager(Error(fault, effect)).problem;
    assert_eq!(problem(Fault::NotFound, Effect::None), Problem::NoAccount);
    // Whether the account exists is unknown.
    assert_eq!(problem(Fault::ScopeNotFound, Effect::None), Problem::Other(Fault::ScopeNotFound));
    assert_eq!(problem(Fault::OutcomeUnknown, Effect::Possible), Problem::Lost);
    assert_eq!(problem(Fault::Locked, Effect::None), Problem::Other(Fault::Locked));
}

#[test]
fn without_an_account_only_a_deletion_is_done_and_only_where_reads_say_that_there_is_none() {
    let done = |request: &Request, is_gone| request.wanted.without_account::<&str>(is_gone);
    assert_eq!(done(&deleted("ds1"), true), Ok(Done::Deleted(Deleted::Disk)));
    assert_eq!(done(&deleted("ds1"), false).unwrap_err().why, Why::NoAccount);
    assert_eq!(done(&made(1), true).unwrap_err().why, Why::NoAccount);
}

#[derive(Debug, Clone, PartialEq)]
struct Missing(Fault);

impl AzureFailure for Missing {
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

#[test]
fn an_account_is_gone_where_it_is_in_none_of_the_resource_groups_that_it_may_be_in() {
    let gone = |faults: &[Option<Fault>]| {
        let reads: Vec<Result<(), Missing>> =
            faults.iter().map(|fault| fault.clone().map_or(Ok(()), |fault| Err(Missing(fault)))).collect();
        are_missing(&reads)
    };
    assert!(gone(&[Some(Fault::NotFound)]) && gone(&[Some(Fault::NotFound), Some(Fault::NotFound)]));
    for other in [None, Some(Fault::Forbidden), Some(Fault::Unavailable), Some(Fault::ScopeNotFound)] {
        assert!(!gone(&[Some(Fault::NotFound), other]));
    }
    assert!(!gone(&[]), "nothing is known of where it may be");

    let only = |list: &[&str]| AllowedResourceGroups::of(list.iter().map(|text| text.parse().unwrap()).collect());
    let of = |request: &Request, allowed: &AllowedResourceGroups| request.wanted.may_be_in(("s", "g"), allowed);
    let group = |name: &str| ("s".to_owned(), name.to_owned());
    let Wanted::Deleted(DeleteSpec { uri, cluster }) = deleted("any").wanted else { panic!("it is a deletion") };
    let own = dedicated_names(&cluster, uri.name()).next().unwrap();
    assert_eq!(of(&deleted(&own), &AllowedResourceGroups::Any), [group("g")]);
    assert_eq!(of(&deleted(&own), &only(&["team"])), [group("g")]);
    for name in ["mine", "dsomething", "ds0123456789abcdef012345", "dd0123456789abcdef012345"] {
        assert_eq!(of(&deleted(name), &AllowedResourceGroups::Any), [], "{name}");
        assert_eq!(of(&deleted(name), &only(&["team"])), [group("g"), group("team")], "{name}");
    }
    assert_eq!(of(&made(1), &only(&["team"])), []);
}

/// The name says that a driver made the account, and not that this cluster did.
#[test]
fn an_account_that_another_cluster_made_may_be_in_a_group_that_the_operator_allows() {
    let allowed = AllowedResourceGroups::of(vec!["oldsub/oldgroup".parse().unwrap()]);
    let groups = deleted("ds0123456789abcdef012345").wanted.may_be_in(("s", "g"), &allowed);
    assert!(groups.contains(&("oldsub".to_owned(), "oldgroup".to_owned())), "{groups:?}");
}

#[test]
fn a_subscription_that_is_not_found_says_nothing_of_an_account() {
    let reads: Vec<Result<(), Missing>> = vec![Err(Missing(Fault::NotFound)), Err(Missing(Fault::ScopeNotFound))];
    assert!(!are_missing(&reads), "the fault says that whether the resource exists is unknown");
}
