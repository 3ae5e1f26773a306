//! Answers that no service should give, and some that old ones do.

use super::*;
use crate::testing::{ARM, Fake, Reply};

/// A client of a scripted Azure, which begins with the keys.
fn client(script: impl IntoIterator<Item = Reply>) -> (Fake, Blobs) {
    let key = json!({"keys": [{"keyName": "key1", "value": "c2VjcmV0"}]});
    let fake = Fake::new([Reply::json(200, key)].into_iter().chain(script));
    let arm = fake.arm(fake.in_process());
    (fake, Blobs::new(Storage::new(arm), SUFFIX, ServiceVersion::Newest))
}

async fn problem(reply: Reply, call: Call) -> Problem {
    let (fake, blobs) = client([reply]);
    let answer = blobs.call(&vhds1(), &disk("d.vhd"), &call, &an_hour()).await;
    assert!(fake.script_is_used_up());
    let Answer::Refused(problem, _) = answer else { panic!("{answer:?}") };
    problem
}

fn read_page() -> Call {
    Call::ReadPage { offset: 0, if_match: tag("\"1\"") }
}

#[tokio::test(start_paused = true)]
async fn a_success_that_lacks_what_it_must_have_is_none() {
    let malformed = Problem::Other(Fault::Malformed);
    let page = |status, length: usize| Reply::text(status, &"x".repeat(length)).header("etag", "\"1\"");
    for (reply, call) in [
        (Reply::empty(200).header("content-length", "512"), Call::ReadBlob),
        (Reply::empty(200).header("etag", "\"1\"").header("content-length", "many"), Call::ReadBlob),
        (Reply::empty(204).header("etag", "\"1\""), Call::ReadBlob),
        (page(206, 511), read_page()),
        (page(206, 513), read_page()),
        (page(200, 4_096), read_page()),
        (Reply::text(200, "no list"), Call::ListSnapshots),
    ] {
        assert_eq!(problem(reply.clone(), call.clone()).await, malformed, "{call:?} {reply:?}");
    }
    // It may have been done.
    for call in [make(MIB), Call::MakeContainer] {
        assert_eq!(problem(Reply::empty(200), call.clone()).await, Problem::Lost, "{call:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_code_in_the_body_alone_counts_too() {
    let body = "<?xml version=\"1.0\"?><Error><Code>ContainerNotFound</Code><Message>No.</Message></Error>";
    assert_eq!(problem(Reply::text(404, body), Call::ReadContainer).await, Problem::NoContainer);
    let proxy = Reply::text(404, "<html><body>Not Found</body></html>");
    assert_eq!(problem(proxy, Call::ReadContainer).await, Problem::Other(Fault::Malformed));
}

#[tokio::test(start_paused = true)]
async fn a_list_without_an_end_or_with_words_that_are_not_known_is_none() {
    let list = |blobs: &str, marker: &str| {
        let head = "<?xml version=\"1.0\"?><EnumerationResults>";
        Reply::text(200, &format!("{head}<Blobs>{blobs}</Blobs><NextMarker>{marker}</NextMarker></EnumerationResults>"))
    };
    let round = [list("", "a"), list("", "b"), list("", "b")];
    let leased = "<Blob><Name>d</Name><Properties><LeaseState>lent</LeaseState></Properties></Blob>";
    for (script, sent) in [(round.to_vec(), 3), (vec![list(leased, "")], 1)] {
        let (fake, blobs) = client(script);
        let error = blobs.list(&vhds1(), "vhds", Show::Everything, &an_hour()).await.unwrap_err();
        assert_eq!(error.fault(), &Fault::Malformed, "{error}");
        assert_eq!(fake.calls().len(), 1 + sent);
    }
    // What is deleted has few properties.
    let deleted = "<Blob><Name>d</Name><Deleted>true</Deleted></Blob>";
    let (_fake, blobs) = client([list(deleted, "")]);
    let listed = blobs.list(&vhds1(), "vhds", Show::Everything, &an_hour()).await.unwrap().unwrap();
    let [ListedBlob { blob, is_deleted: true, .. }] = &listed[..] else { panic!("{listed:?}") };
    assert_eq!((blob.lease, &blob.etag), (Lease::Unknown, &tag("")));
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_none_and_keys_that_are_refused_are_told_apart_from_the_service() {
    let until = an_hour();
    let none = json!({"keys": [{"keyName": "key1", "value": "k-n-o-n-e!"}]});
    let forbidden = json!({"error": {"code": "AuthorizationFailed", "message": "no right"}});
    let locked = json!({"error": {"code": "ScopeLocked", "message": "a lock"}});
    for (reply, fault) in [
        (Reply::json(200, none), Fault::Malformed),
        (Reply::json(200, json!({"keys": []})), Fault::Malformed),
        (Reply::json(403, forbidden), Fault::Forbidden),
        (Reply::json(409, locked), Fault::Locked),
    ] {
        let fake = Fake::new([reply]);
        let blobs = Blobs::new(Storage::new(fake.arm(fake.in_process())), SUFFIX, ServiceVersion::Newest);
        let answer = blobs.call(&vhds1(), &disk("d.vhd"), &make(MIB), &until).await;
        let Answer::Refused(Problem::Other(found), error) = answer else { panic!("{answer:?}") };
        assert_eq!((&found, error.fault()), (&fault, &fault), "{error}");
        assert!(!format!("{error:?}").contains("k-n-o-n-e"));
        let host = ARM.trim_start_matches("https://");
        assert!(fake.calls().iter().all(|seen| seen.line.contains(host)), "{:?}", fake.calls());
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_goes_to_the_accounts_own_host_and_is_signed() {
    let (fake, blobs) = client([Reply::empty(201).header("etag", "\"1\"")]);
    let spelled: BlobUri = "HTTPS://VHDS1.Blob.Core.Windows.NET/vhds/D.vhd".parse().unwrap();
    let answer = blobs.call(&account("Vhds1"), &spelled, &make(MIB), &an_hour()).await;
    assert_eq!(answer, Answer::Done(Some(tag("\"1\""))));
    let seen = fake.calls().pop().unwrap();
    assert_eq!(seen.line, "PUT vhds1.blob.core.windows.net/vhds/D.vhd");
    assert!(seen.authorization.unwrap().starts_with("SharedKey vhds1:"));
    assert!(seen.client_request_id.is_some());
}
