//! The client of the blob service against the emulator, which checks signatures with code of its own.

use std::{
    io,
    sync::{Arc, Mutex},
    time::Duration,
};

use azure_core::http::Etag;
use azure_storage_blob::{BlobClient, BlobClientOptions};
use futures::FutureExt as _;
use lazuli_emulator::{Emulator, Options, call_log, incident::Incident, latency::Profile, scenario};
use lazuli_model::{Secret, fault::Fault};
use lazuli_quota::{permit::Priority, poll::Kind};
use lazuli_telemetry::go_names::GoNames;
use lazuli_vhd::{
    footer::{self, Footer, LENGTH, ZEROS},
    lease::Lease,
    life::{
        Blob, Create, CreateSpec, Delete, DeleteSpec, Deleted, ETag, Expand, ExpandSpec, Failure, Metadata, Next,
        VOLUME_KEY, Why, mark,
    },
};
use prometheus_client::registry::Registry;
use serde_json::{Value, json};

use super::*;

use crate::{
    arm::{Arm, Retry, Write},
    auth::Tokens,
    metrics::Metrics,
    on_emulator,
    storage::API_VERSION,
    testing::{an_hour, url},
    transport::{Tls, Transport},
};

mod azurite;
mod scripted;

const SUFFIX: &str = "core.windows.net";
const MIB: u64 = 1 << 20;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Way {
    InProcess,
    Tcp,
    /// The account takes https alone.
    Tls,
}

struct Rig {
    emulator: Emulator,
    arm: Arm,
    blobs: Blobs,
    registry: Registry,
}

/// A client of the emulator's accounts, of which there is `vhds1`.
async fn rig_with(way: Way, version: ServiceVersion, blobs_at: Option<&str>) -> Rig {
    rig_of(way, version, blobs_at, Profile::typical()).await
}

async fn rig_of(way: Way, version: ServiceVersion, blobs_at: Option<&str>, latency: Profile) -> Rig {
    let listen_tls = (way == Way::Tls).then(|| "127.0.0.1:0".parse().unwrap());
    let options = Options { latency, listen_tls, ..Options::default() };
    let emulator = Emulator::start(options).await.unwrap();
    let base = url(&emulator.url());
    let served = emulator.tls_url().map_or_else(|| base.clone(), |at| url(&at));
    let blobs_at = blobs_at.map_or(served, url);
    let routes = on_emulator::routes(&base).with_blob_services(SUFFIX, &blobs_at).unwrap();
    let tls = Tls { extra_roots_pem: emulator.ca_pem().unwrap_or_default().as_bytes().to_vec() };
    let transport = match way {
        Way::InProcess => Transport::in_process(routes, emulator.service()),
        Way::Tcp | Way::Tls => Transport::new(routes, &tls).unwrap(),
    };
    let principal = on_emulator::principal(scenario::TENANT, scenario::CLIENT_ID, scenario::CLIENT_SECRET);
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry, GoNames::default());
    let tokens = Tokens::new(transport.clone(), principal, on_emulator::ARM, 7);
    let arm = Arm::new(url(on_emulator::ARM), transport, tokens, metrics, Retry::default(), 7);
    let blobs = Blobs::new(Storage::new(arm.clone()), SUFFIX, version);
    let rig = Rig { emulator, arm, blobs, registry };
    rig.make_account("vhds1", way == Way::Tls).await;
    rig
}

async fn rig() -> Rig {
    rig_with(Way::InProcess, ServiceVersion::Newest, None).await
}

fn account(name: &str) -> Account {
    let id = ArmId::storage_account(scenario::SUBSCRIPTION, scenario::RESOURCE_GROUP, name).unwrap();
    Account { id, location: Some(scenario::LOCATION.to_owned()) }
}

fn vhds1() -> Account {
    account("vhds1")
}

fn disk(name: &str) -> BlobUri {
    BlobUri::of("vhds1", SUFFIX, "vhds", name).unwrap()
}

fn tag(text: &str) -> ETag {
    ETag(text.to_owned())
}

impl Rig {
    async fn make_account(&self, name: &str, https_only: bool) {
        let body = json!({
            "location": scenario::LOCATION, "sku": {"name": "Standard_LRS"}, "kind": "StorageV2",
            "properties": {"supportsHttpsTrafficOnly": https_only}
        });
        let write = Write::put(account(name).id.as_str(), API_VERSION, body, Kind::StorageAccount);
        self.arm.write(write, &an_hour()).await.unwrap().settle(&an_hour()).await.unwrap();
    }

    async fn draw_key(&self) {
        let path = format!("{}/regenerateKey", vhds1().id);
        let write = Write::post(&path, API_VERSION, Some(json!({"keyName": "key1"})), Kind::Other);
        self.arm.write(write, &an_hour()).await.unwrap();
    }

    async fn call(&self, name: &str, call: Call) -> Answer<BlobError> {
        self.blobs.call(&vhds1(), &disk(name), &call, &an_hour()).await
    }

    async fn blob(&self, name: &str) -> Blob {
        match self.call(name, Call::ReadBlob).await {
            Answer::Blob(blob) => *blob,
            other => panic!("{other:?}"),
        }
    }

    async fn etag(&self, name: &str) -> ETag {
        self.blob(name).await.etag
    }

    async fn done(&self, name: &str, call: Call) -> Option<ETag> {
        match self.call(name, call).await {
            Answer::Done(etag) => etag,
            other => panic!("{other:?}"),
        }
    }

    async fn refused(&self, name: &str, call: Call) -> (Problem, BlobError) {
        match self.call(name, call).await {
            Answer::Refused(problem, error) => (problem, error),
            other => panic!("{other:?}"),
        }
    }

    async fn problem(&self, name: &str, call: Call) -> Problem {
        self.refused(name, call).await.0
    }

    async fn make(&self, name: &str, length: u64) -> ETag {
        self.done(name, make(length)).await.unwrap()
    }

    /// Does something that no call does, by the crate's own client.
    async fn by_the_crate<F>(&self, name: &str, act: impl Fn(BlobClient) -> F)
    where
        F: Future<Output = azure_core::Result<()>>,
    {
        let place = url(disk(name).as_str());
        let about = About { method: "PUT", url: &place, writes: true };
        let send = |client_options| {
            let mut options = BlobClientOptions { client_options, ..BlobClientOptions::default() };
            if let Some(version) = self.blobs.version.header() {
                options.version = version.to_owned();
            }
            act(BlobClient::new(place.clone(), None, Some(options)).unwrap())
        };
        serve(&self.blobs.keys, &vhds1(), about, &an_hour(), send).await.unwrap();
    }

    async fn lease(&self, name: &str) {
        self.by_the_crate(name, |blob| async move { blob.acquire_lease(-1, None).await.map(drop) }).await;
    }

    async fn snapshot(&self, name: &str) {
        self.by_the_crate(name, |blob| async move { blob.create_snapshot(None).await.map(drop) }).await;
    }

    fn incident(&self, incident: Value) {
        let incident: Incident = serde_json::from_value(incident).unwrap();
        self.emulator.control().add_incident(incident).unwrap();
    }

    fn log(&self) -> Vec<call_log::Call> {
        self.emulator.control().call_log()
    }

    /// The requests to the blob service.
    fn sent(&self) -> Vec<call_log::Call> {
        self.log().into_iter().filter(|call| call.plane == "blob").collect()
    }

    fn statuses(&self) -> Vec<u16> {
        self.sent().iter().map(|call| call.status).collect()
    }

    fn key_reads(&self) -> usize {
        self.log().iter().filter(|call| call.path.ends_with("/listKeys")).count()
    }

    /// The lines of the metrics that begin so.
    fn metrics(&self, prefix: &str) -> Vec<String> {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).unwrap();
        let mut lines: Vec<String> = text.lines().filter(|line| line.starts_with(prefix)).map(str::to_owned).collect();
        lines.sort();
        lines
    }

    fn forget_log(&self) {
        self.emulator.control().reset_log();
    }
}

fn make(length: u64) -> Call {
    let metadata = Metadata::from([("createdby".to_owned(), "k8sAzureDataDisk".to_owned())]);
    Call::MakeBlob { length, metadata }
}

/// All calls that are bound to a version.
fn bound(if_match: &ETag) -> [Call; 6] {
    let if_match = if_match.clone();
    [
        Call::ReadPage { offset: MIB, if_match: if_match.clone() },
        Call::WritePage { offset: MIB, page: Box::new([7; 512]), if_match: if_match.clone() },
        Call::ClearPage { offset: MIB, if_match: if_match.clone() },
        Call::Resize { length: 2 * MIB + LENGTH, if_match: if_match.clone() },
        Call::SetMetadata { metadata: Metadata::new(), if_match: if_match.clone() },
        Call::DeleteBlob { if_match },
    ]
}

#[tokio::test(start_paused = true)]
async fn every_call_is_served_by_both_versions_and_over_every_way() {
    let newest = ServiceVersion::Newest;
    for (way, version) in
        [(Way::InProcess, newest), (Way::InProcess, ServiceVersion::StackHub), (Way::Tcp, newest), (Way::Tls, newest)]
    {
        let rig = rig_with(way, version, None).await;
        assert_eq!(rig.problem("d.vhd", Call::ReadContainer).await, Problem::NoContainer);
        assert_eq!(rig.done("d.vhd", Call::MakeContainer).await, None);
        assert_eq!(rig.problem("d.vhd", Call::MakeContainer).await, Problem::Exists);
        assert_eq!(rig.call("d.vhd", Call::ReadContainer).await, Answer::Container { is_public: false });
        assert_eq!(rig.problem("d.vhd", Call::ReadBlob).await, Problem::NoBlob);
        let made = rig.make("d.vhd", MIB + LENGTH).await;
        assert_eq!(rig.problem("d.vhd", make(MIB + LENGTH)).await, Problem::Exists);
        let blob = rig.blob("d.vhd").await;
        assert_eq!((&blob.etag, blob.length, blob.is_page_blob), (&made, MIB + LENGTH, true));
        assert_eq!((blob.lease, blob.metadata["createdby"].as_str()), (Lease::Free, "k8sAzureDataDisk"));

        let [read, write, clear, resize, ..] = bound(&made);
        assert_eq!(rig.call("d.vhd", read).await, Answer::Page(Box::new(ZEROS)));
        let written = rig.done("d.vhd", write).await.unwrap();
        assert_ne!(written, made);
        assert_eq!(rig.problem("d.vhd", clear).await, Problem::OtherVersion);
        assert_eq!(rig.problem("d.vhd", resize).await, Problem::OtherVersion);
        let [read, _, clear, ..] = bound(&written);
        assert_eq!(rig.call("d.vhd", read).await, Answer::Page(Box::new([7; 512])));
        let cleared = rig.done("d.vhd", clear).await.unwrap();
        let [read, _, _, resize, ..] = bound(&cleared);
        assert_eq!(rig.call("d.vhd", read).await, Answer::Page(Box::new(ZEROS)));
        let grown = rig.done("d.vhd", resize).await.unwrap();
        assert_eq!(rig.blob("d.vhd").await.length, 2 * MIB + LENGTH);

        let metadata: Metadata = [(VOLUME_KEY, "id-1"), ("a1", "x y=z; ,"), ("empty", "")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into();
        // Azure ignores the letter case of names.
        let given = metadata.iter().map(|(name, value)| (name.to_ascii_uppercase(), value.clone())).collect();
        let set = rig.done("d.vhd", Call::SetMetadata { metadata: given, if_match: grown }).await.unwrap();
        let blob = rig.blob("d.vhd").await;
        assert_eq!((blob.metadata, &blob.etag), (metadata, &set));

        assert_eq!(rig.call("d.vhd", Call::ListSnapshots).await, Answer::Snapshots(vec![]));
        rig.snapshot("d.vhd").await;
        let Answer::Snapshots(times) = rig.call("d.vhd", Call::ListSnapshots).await else { panic!() };
        assert_eq!(times.len(), 1, "{times:?}");
        let delete = Call::DeleteBlob { if_match: rig.etag("d.vhd").await };
        assert_eq!(rig.problem("d.vhd", delete).await, Problem::HasSnapshots);
        let other = rig.make("other.vhd", MIB).await;
        assert_eq!(rig.done("other.vhd", Call::DeleteBlob { if_match: other }).await, None);
        assert_eq!(rig.problem("other.vhd", Call::ReadBlob).await, Problem::NoBlob);

        let sent = rig.sent();
        let expected = if version == newest { "2026-04-06" } else { "2017-11-09" };
        for call in &sent {
            assert_eq!(call.api_version.as_deref(), Some(expected), "{call:?}");
            assert!(call.user_agent.as_ref().unwrap().starts_with("lazuli/"), "{call:?}");
        }
        // None was sent twice, and the keys were read once.
        assert_eq!((sent.len(), rig.key_reads()), (27, 1), "{way:?}");
        rig.emulator.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn another_version_and_a_lease_refuse_every_write() {
    let rig = rig().await;
    rig.done("d.vhd", Call::MakeContainer).await;
    let old = rig.make("d.vhd", MIB + LENGTH).await;
    let [_, write, ..] = bound(&old);
    let now = rig.done("d.vhd", write).await.unwrap();
    for call in bound(&old) {
        assert_eq!(rig.problem("d.vhd", call.clone()).await, Problem::OtherVersion, "{call:?}");
    }
    rig.lease("d.vhd").await;
    let blob = rig.blob("d.vhd").await;
    assert_eq!((blob.lease, &blob.etag), (Lease::Held, &now));
    let [read, writes @ ..] = bound(&now);
    assert_eq!(rig.call("d.vhd", read).await, Answer::Page(Box::new([7; 512])));
    for call in writes {
        let (problem, error) = rig.refused("d.vhd", call.clone()).await;
        assert_eq!((problem, error.fault()), (Problem::Leased, &Fault::InUse), "{call:?}");
        assert_eq!(error.code(), "LeaseIdMissing");
    }
    assert_eq!(rig.blob("d.vhd").await, blob);
}

#[tokio::test(start_paused = true)]
async fn what_does_not_exist_is_told_apart_and_only_the_resource_manager_ends_an_account() {
    let rig = rig().await;
    assert_eq!(rig.problem("d.vhd", Call::ReadBlob).await, Problem::NoContainer);
    assert_eq!(rig.problem("d.vhd", Call::ListSnapshots).await, Problem::NoContainer);
    assert_eq!(rig.problem("d.vhd", make(MIB)).await, Problem::NoContainer);
    rig.done("d.vhd", Call::MakeContainer).await;
    for call in bound(&tag("\"0x1\"")) {
        assert_eq!(rig.problem("d.vhd", call.clone()).await, Problem::NoBlob, "{call:?}");
    }
    let none = BlobUri::of("vhds2", SUFFIX, "vhds", "d.vhd").unwrap();
    let answer = rig.blobs.call(&account("vhds2"), &none, &Call::ReadBlob, &an_hour()).await;
    let Answer::Refused(Problem::NoAccount, error) = answer else { panic!("{answer:?}") };
    assert!(std::error::Error::source(&error).is_some(), "{error:?}");
    // A 404 without the service's code, and one of something that stands for it.
    for code in ["", "ResourceNotFound"] {
        rig.incident(json!({"match": {"method": "HEAD"}, "then": {"status": 404, "code": code}}));
        assert_eq!(rig.problem("d.vhd", Call::ReadBlob).await, Problem::Other(Fault::Malformed), "{code}");
    }
    // The keys are in memory when the account goes.
    rig.make("d.vhd", MIB).await;
    let gone = Write::delete(vhds1().id.as_str(), API_VERSION, Kind::Other);
    rig.arm.write(gone, &an_hour()).await.unwrap().settle(&an_hour()).await.unwrap();
    assert_eq!(rig.problem("d.vhd", Call::ReadBlob).await, Problem::Other(Fault::Malformed));
    assert_eq!(rig.problem("d.vhd", Call::ReadBlob).await, Problem::NoAccount);
}

#[tokio::test(start_paused = true)]
async fn a_host_that_is_not_reached_is_asked_about_and_is_no_proof() {
    // Nobody listens on port 1.
    let rig = rig_with(Way::Tcp, ServiceVersion::Newest, Some("http://127.0.0.1:1")).await;
    for call in [Call::ReadBlob, make(MIB)] {
        rig.forget_log();
        assert_eq!(rig.problem("d.vhd", call).await, Problem::Other(Fault::Unavailable));
        assert_eq!(rig.key_reads(), 4);
    }
    let gone = Write::delete(vhds1().id.as_str(), API_VERSION, Kind::Other);
    rig.arm.write(gone, &an_hour()).await.unwrap().settle(&an_hour()).await.unwrap();
    assert_eq!(rig.problem("d.vhd", Call::ReadBlob).await, Problem::NoAccount);
}

#[tokio::test(start_paused = true)]
async fn keys_are_shared_for_ten_minutes_and_read_again_when_they_are_refused() {
    let rig = rig().await;
    rig.done("d.vhd", Call::MakeContainer).await;
    rig.make("d.vhd", MIB).await;
    let all = (0..20).map(|_| rig.blob("d.vhd"));
    futures::future::join_all(all).await;
    assert_eq!(rig.key_reads(), 1);
    tokio::time::sleep(Duration::from_secs(599)).await;
    rig.blob("d.vhd").await;
    assert_eq!(rig.key_reads(), 1);
    tokio::time::sleep(Duration::from_secs(2)).await;
    futures::future::join_all((0..20).map(|_| rig.blob("d.vhd"))).await;
    assert_eq!(rig.key_reads(), 2);

    rig.draw_key().await;
    rig.forget_log();
    // A write too: a refused signature has done nothing.
    let writes = (0..20).map(|n| rig.call("d.vhd", make(MIB + n * LENGTH)));
    let writes = futures::future::join_all(writes).await;
    assert!(writes.iter().all(|answer| matches!(answer, Answer::Refused(Problem::Exists, _))), "{writes:?}");
    assert_eq!(rig.key_reads(), 1);
    assert_eq!(rig.statuses().iter().filter(|status| **status == 403).count(), 20);
}

#[tokio::test(start_paused = true)]
async fn a_second_refusal_is_the_answer_and_costs_no_storm_of_keys() {
    let rig = rig().await;
    rig.done("d.vhd", Call::MakeContainer).await;
    rig.incident(json!({
        "match": {"method": "HEAD|PUT"}, "then": {"status": 403, "code": "AuthenticationFailed"}, "times": 0
    }));
    rig.forget_log();
    let (problem, error) = rig.refused("d.vhd", Call::ReadBlob).await;
    assert_eq!((problem, error.code()), (Problem::Other(Fault::Unauthenticated), "AuthenticationFailed"));
    assert_eq!((rig.statuses(), rig.key_reads()), (vec![403, 403], 1));
    for _ in 0..10 {
        assert_eq!(rig.problem("d.vhd", make(MIB)).await, Problem::Other(Fault::Unauthenticated));
    }
    assert_eq!((rig.statuses().len(), rig.key_reads()), (12, 1));
    tokio::time::sleep(Duration::from_secs(31)).await;
    rig.problem("d.vhd", Call::ReadBlob).await;
    assert_eq!(rig.key_reads(), 2);
    // What is forbidden otherwise is not the key's fault.
    rig.emulator.control().clear_incidents();
    rig.incident(json!({"match": {"method": "HEAD"}, "then": {"status": 403, "code": "AuthorizationFailure"}}));
    rig.forget_log();
    assert_eq!(rig.problem("d.vhd", Call::ReadBlob).await, Problem::Other(Fault::Forbidden));
    assert_eq!((rig.statuses().len(), rig.key_reads()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_of_a_write_is_told_and_that_of_a_read_is_made_up_for() {
    for way in [Way::InProcess, Way::Tcp] {
        let rig = rig_with(way, ServiceVersion::Newest, None).await;
        rig.done("d.vhd", Call::MakeContainer).await;
        for lose in ["before", "after"] {
            rig.incident(json!({"match": {"method": "PUT"}, "then": {"loseAnswer": lose}}));
            rig.forget_log();
            let (problem, error) = rig.refused("d.vhd", make(MIB + LENGTH)).await;
            assert_eq!((problem, error.fault()), (Problem::Lost, &Fault::OutcomeUnknown), "{error}");
            assert_eq!(rig.sent().len(), 1, "{way:?} {lose}");
        }
        let etag = rig.etag("d.vhd").await;
        let [_, writes @ ..] = bound(&etag);
        for call in writes {
            let status = json!({"match": {"method": "PUT|DELETE"}, "then": {"status": 500, "code": "InternalError"}});
            for then in [json!({"match": {"method": "PUT|DELETE"}, "then": {"loseAnswer": "before"}}), status] {
                rig.incident(then);
                rig.forget_log();
                assert_eq!(rig.problem("d.vhd", call.clone()).await, Problem::Lost, "{call:?}");
                assert_eq!(rig.sent().len(), 1, "{way:?} {call:?}");
            }
        }
        for then in [json!({"loseAnswer": "after"}), json!({"status": 503, "code": "ServerBusy"})] {
            rig.incident(json!({"match": {"method": "HEAD"}, "then": then, "times": 3}));
            rig.forget_log();
            assert_eq!(rig.etag("d.vhd").await, etag);
            assert_eq!(rig.sent().len(), 4, "{way:?}");
            rig.incident(json!({"match": {"method": "HEAD"}, "then": then, "times": 4}));
            assert_eq!(rig.problem("d.vhd", Call::ReadBlob).await, Problem::Other(Fault::Unavailable));
        }
        rig.emulator.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_the_service_asks_for_is_kept_and_a_deadline_ends_the_wait() {
    let rig = rig().await;
    rig.done("d.vhd", Call::MakeContainer).await;
    rig.incident(json!({"match": {"method": "PUT"}, "then": {"status": 503, "code": "ServerBusy", "retryAfter": 20}}));
    let began = tokio::time::Instant::now();
    rig.make("d.vhd", MIB).await;
    assert!(began.elapsed() >= Duration::from_secs(20), "{:?}", began.elapsed());
    rig.incident(json!({"match": {"method": "HEAD"}, "then": {"status": 429, "retryAfter": 20}, "times": 0}));
    let until = Until::within(Duration::from_secs(10));
    let answer = rig.blobs.call(&vhds1(), &disk("d.vhd"), &Call::ReadBlob, &until).await;
    let Answer::Refused(Problem::Other(fault), _) = answer else { panic!("{answer:?}") };
    assert_eq!(fault, Fault::Throttled { retry_after: Some(Duration::from_secs(20)) });
    tokio::time::sleep(Duration::from_secs(20)).await;
    // The time is over while a write is on its way, and before one is.
    rig.incident(json!({"match": {"method": "PUT"}, "then": {"delayMs": 5_000}}));
    let until = Until::within(Duration::from_secs(2));
    let call = make(MIB);
    for expected in [Problem::Lost, Problem::Other(Fault::Deadline)] {
        let answer = rig.blobs.call(&vhds1(), &disk("e.vhd"), &call, &until).await;
        let Answer::Refused(problem, error) = answer else { panic!("{answer:?}") };
        assert_eq!(problem, expected, "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_account_that_is_busy_is_left_alone_by_all_and_another_is_served() {
    for (then, at_least) in
        [(json!({"status": 503, "code": "ServerBusy", "retryAfter": 20}), 20_000), (json!({"status": 429}), 700)]
    {
        let rig = rig().await;
        rig.make_account("vhds2", false).await;
        rig.done("d.vhd", Call::MakeContainer).await;
        let other = BlobUri::of("vhds2", SUFFIX, "vhds", "d.vhd").unwrap();
        // The keys of the other account are read.
        rig.blobs.call(&account("vhds2"), &other, &Call::ReadContainer, &an_hour()).await;
        rig.incident(json!({"match": {"method": "HEAD"}, "then": then}));
        rig.forget_log();
        let began = tokio::time::Instant::now();
        let after = |call| async move { (call.await, began.elapsed().as_millis()) };
        let later = async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            rig.call("d.vhd", Call::ReadContainer).await
        };
        let elsewhere = async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            rig.blobs.call(&account("vhds2"), &other, &Call::MakeContainer, &an_hour()).await
        };
        let (refused, later, elsewhere) = tokio::join!(
            after(rig.call("d.vhd", Call::ReadBlob).boxed()),
            after(later.boxed()),
            after(elsewhere.boxed())
        );
        assert!(matches!(refused.0, Answer::Refused(Problem::NoBlob, _)) && refused.1 >= at_least, "{refused:?}");
        assert!(matches!(later.0, Answer::Container { .. }) && later.1 >= at_least, "{later:?}");
        assert!(matches!(elsewhere.0, Answer::Done(_)) && elsewhere.1 < 700, "{elsewhere:?}");
        assert_eq!(rig.metrics("lazuli_azure_throttled"), ["lazuli_azure_throttled_total{resource=\"blobs\"} 1"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_storm_on_one_account_keeps_few_requests_in_flight_and_all_are_served() {
    let rig = rig().await;
    rig.done("d.vhd", Call::MakeContainer).await;
    rig.incident(json!({"match": {"method": "PUT"}, "then": {"delayMs": 1_000}, "times": 0}));
    let began = tokio::time::Instant::now();
    let names: Vec<String> = (0..100).map(|n| format!("d{n}.vhd")).collect();
    let made = names.iter().map(|name| async { rig.call(name, make(MIB)).await }.boxed());
    let storm = async {
        for answer in futures::future::join_all(made).await {
            assert!(matches!(answer, Answer::Done(_)), "{answer:?}");
        }
    };
    let look = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert_eq!(
            rig.metrics("lazuli_azure_permit_queue_length{bucket=\"data"),
            ["lazuli_azure_permit_queue_length{bucket=\"data\"} 68"]
        );
    };
    tokio::join!(storm, look);
    let took = began.elapsed().as_secs_f64();
    // Four rounds of 32 requests at most.
    assert!((4.0..5.0).contains(&took), "{took}");
    assert_eq!(rig.metrics("lazuli_azure_permit_queue_length{bucket=\"data")[0].split(' ').next_back(), Some("0"));
}

#[tokio::test(start_paused = true)]
async fn requests_to_accounts_are_counted_and_timed_and_are_no_success_of_the_resource_manager() {
    let rig = rig().await;
    rig.done("d.vhd", Call::MakeContainer).await;
    let keys = rig.arm.metrics().last_success();
    assert!(keys.is_some());
    tokio::time::sleep(Duration::from_secs(5)).await;
    let made = rig.make("d.vhd", MIB).await;
    rig.problem("e.vhd", Call::ReadBlob).await;
    rig.incident(json!({"match": {"method": "PUT"}, "then": {"loseAnswer": "after"}}));
    rig.problem("f.vhd", make(MIB)).await;
    rig.blobs.list(&vhds1(), "vhds", Show::Disks, &an_hour()).await.unwrap();
    rig.blobs.containers(&vhds1(), true, &an_hour()).await.unwrap();
    rig.done("d.vhd", Call::DeleteBlob { if_match: made }).await;
    assert_eq!(rig.arm.metrics().last_success(), keys);
    assert_eq!(
        rig.metrics("lazuli_azure_requests_total{")
            .into_iter()
            .filter(|line| line.contains("resource=\"blob"))
            .collect::<Vec<_>>(),
        [
            "lazuli_azure_requests_total{verb=\"DELETE\",resource=\"blobs\",status=\"2xx\"} 1",
            "lazuli_azure_requests_total{verb=\"GET\",resource=\"blob_containers\",status=\"2xx\"} 2",
            "lazuli_azure_requests_total{verb=\"HEAD\",resource=\"blobs\",status=\"4xx\"} 1",
            "lazuli_azure_requests_total{verb=\"PUT\",resource=\"blob_containers\",status=\"2xx\"} 1",
            "lazuli_azure_requests_total{verb=\"PUT\",resource=\"blobs\",status=\"2xx\"} 1",
            "lazuli_azure_requests_total{verb=\"PUT\",resource=\"blobs\",status=\"none\"} 1",
        ]
    );
    let of = format!("status=\"2xx\",subscription=\"{}\"", scenario::SUBSCRIPTION);
    assert_eq!(
        rig.metrics(&format!("lazuli_azure_request_duration_seconds_count{{verb=\"PUT\",resource=\"blobs\",{of}"))
            .len(),
        1
    );
    assert_eq!(
        rig.metrics("lazuli_azure_list_pages_total{resource=\"blob"),
        [
            "lazuli_azure_list_pages_total{resource=\"blob_containers\"} 1",
            "lazuli_azure_list_pages_total{resource=\"blobs\"} 1"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn no_redirect_is_followed() {
    for way in [Way::InProcess, Way::Tcp] {
        let rig = rig_with(way, ServiceVersion::Newest, None).await;
        rig.done("d.vhd", Call::MakeContainer).await;
        for status in [301, 302, 307, 308] {
            for call in [Call::ReadBlob, make(MIB)] {
                let location = format!("{}/vhds1/vhds/other.vhd", rig.emulator.url());
                rig.incident(json!({
                    "match": {"method": "HEAD|PUT"}, "then": {"status": status, "headers": {"Location": location}}
                }));
                rig.forget_log();
                assert_eq!(rig.problem("d.vhd", call).await, Problem::Other(Fault::Malformed));
                assert_eq!(rig.statuses(), [status], "{way:?}");
            }
        }
        rig.emulator.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_to_another_cloud_or_account_or_without_its_condition() {
    let rig = rig().await;
    rig.done("d.vhd", Call::MakeContainer).await;
    rig.forget_log();
    let foreign: BlobUri = "https://vhds1.blob.core.chinacloudapi.cn/vhds/d.vhd".parse().unwrap();
    let other = BlobUri::of("vhds2", SUFFIX, "vhds", "d.vhd").unwrap();
    let no_account = Account { id: ArmId::disk("s", "g", "vhds1").unwrap(), location: None };
    let [_, write, ..] = bound(&tag(""));
    for (account, uri, call, fault) in [
        (vhds1(), &foreign, Call::ReadBlob, Fault::Invalid),
        (vhds1(), &other, Call::ReadBlob, Fault::Invalid),
        (no_account, &disk("d.vhd"), Call::ReadBlob, Fault::Invalid),
        (vhds1(), &disk("d.vhd"), write, Fault::Invalid),
        (vhds1(), &disk("d.vhd"), Call::ReadAccount, Fault::Unsupported),
        (vhds1(), &disk("d.vhd"), Call::ReadContents, Fault::Unsupported),
        (vhds1(), &disk("d.vhd"), Call::DeleteAccount, Fault::Unsupported),
    ] {
        let answer = rig.blobs.call(&account, uri, &call, &an_hour()).await;
        let Answer::Refused(Problem::Other(found), error) = answer else { panic!("{answer:?}") };
        assert_eq!((&found, error.fault()), (&fault, &fault), "{error}");
    }
    for container in ["", "a/b", "../x", "a?comp=list", "UPPER"] {
        let error = rig.blobs.list(&vhds1(), container, Show::Disks, &an_hour()).await.unwrap_err();
        assert_eq!(error.fault(), &Fault::Invalid, "{container}");
    }
    // What no header can carry.
    for (name, value) in
        [("a", "x\ny"), ("a", "\u{e4}\u{0}"), ("\u{c4}", "x"), ("\u{4e2d}", "x"), ("a b", "x"), ("", "x")]
    {
        let metadata = Metadata::from([(name.to_owned(), value.to_owned())]);
        let call = Call::SetMetadata { metadata, if_match: tag("\"0x1\"") };
        assert_eq!(rig.problem("d.vhd", call).await, Problem::Other(Fault::Invalid), "{name} {value}");
    }
    assert_eq!(rig.log().len(), 0, "{:?}", rig.log());
}

#[tokio::test(start_paused = true)]
async fn a_request_that_the_crate_sends_elsewhere_is_stopped() {
    let rig = rig().await;
    let place = url("https://vhds1.blob.core.windows.net/vhds/d.vhd");
    let about = About { method: "HEAD", url: &place, writes: false };
    let send = |client_options| async move {
        let options = BlobClientOptions { client_options, ..BlobClientOptions::default() };
        let elsewhere = url("https://vhds2.blob.core.windows.net/vhds/d.vhd");
        BlobClient::new(elsewhere, None, Some(options))?.get_properties(None).await.map(drop)
    };
    let (problem, _) = serve(&rig.blobs.keys, &vhds1(), about, &an_hour(), send).await.unwrap_err();
    assert_eq!(problem, Problem::Other(Fault::Invalid));
    assert_eq!(rig.sent().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn lists_are_read_to_their_end() {
    for version in [ServiceVersion::Newest, ServiceVersion::StackHub] {
        let mut rig = rig_with(Way::InProcess, version, None).await;
        rig.blobs.page = 2;
        assert_eq!(rig.blobs.list(&vhds1(), "vhds", Show::Disks, &an_hour()).await.unwrap(), None);
        rig.done("d.vhd", Call::MakeContainer).await;
        assert_eq!(rig.blobs.list(&vhds1(), "vhds", Show::Disks, &an_hour()).await.unwrap(), Some(vec![]));
        let names: Vec<String> = ["0+a.vhd", "d.vhd", "d.vhd-2", "f/g.vhd", "x&y=z.vhd"].map(str::to_owned).into();
        for name in &names {
            rig.make(name, MIB + LENGTH).await;
        }
        rig.lease("f/g.vhd").await;
        for name in ["d.vhd", "d.vhd", "d.vhd-2", "0+a.vhd"] {
            tokio::time::sleep(Duration::from_secs(1)).await;
            rig.snapshot(name).await;
        }
        rig.forget_log();
        let listed = rig.blobs.list(&vhds1(), "vhds", Show::Disks, &an_hour()).await.unwrap().unwrap();
        assert_eq!(listed.iter().map(|blob| blob.name.clone()).collect::<Vec<_>>(), names);
        assert_eq!(rig.sent().len(), 3);
        for entry in &listed {
            // What a list shows is what the blob shows, so that its etag is good for a condition.
            assert_eq!(entry.blob, rig.blob(&entry.name).await, "{}", entry.name);
            assert!(entry.snapshot.is_none() && !entry.is_deleted);
        }
        assert_eq!(listed[3].blob.lease, Lease::Held);
        let all = rig.blobs.list(&vhds1(), "vhds", Show::Everything, &an_hour()).await.unwrap().unwrap();
        assert_eq!((all.len(), all.iter().filter(|entry| entry.snapshot.is_some()).count()), (9, 4));
        for (name, count) in [("d.vhd", 2), ("d.vhd-2", 1), ("0+a.vhd", 1), ("f/g.vhd", 0)] {
            let Answer::Snapshots(times) = rig.call(name, Call::ListSnapshots).await else { panic!("{name}") };
            assert_eq!(times.len(), count, "{name}");
        }
        for name in ["c1", "c2", "c3"] {
            let blob = BlobUri::of("vhds1", SUFFIX, &format!("{name}x"), "d").unwrap();
            rig.blobs.call(&vhds1(), &blob, &Call::MakeContainer, &an_hour()).await;
        }
        for with_deleted in [false, true] {
            let names = rig.blobs.containers(&vhds1(), with_deleted, &an_hour()).await.unwrap();
            assert_eq!(names, ["c1x", "c2x", "c3x", "vhds"]);
        }
        rig.emulator.shutdown().await;
    }
}

/// What is logged.
#[derive(Clone, Default)]
struct Logged(Arc<Mutex<Vec<u8>>>);

impl io::Write for Logged {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn no_key_and_no_signature_is_printed_or_logged() {
    // With one subscriber in the program, what other tests reach first would stay silent in this one too.
    let _other = tracing::Dispatch::new(
        tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_writer(io::sink).finish(),
    );
    let logged = Logged::default();
    let writer = logged.clone();
    let subscriber =
        tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_writer(move || writer.clone()).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let rig = rig().await;
    rig.done("d.vhd", Call::MakeContainer).await;
    rig.make("d.vhd", MIB).await;
    let region = Storage::new(rig.arm.clone()).in_region(Some(scenario::LOCATION));
    let keys = region.list_keys(&vhds1().id, Priority::Read, &an_hour()).await.unwrap();
    // The service refuses both signatures, and quotes them.
    let message =
        "The MAC signature found in the HTTP request 'c2lnbmF0dXJl' is not the same as any computed signature.";
    rig.incident(json!({
        "match": {"method": "GET"}, "then": {"status": 403, "code": "AuthenticationFailed", "message": message}, "times": 0
    }));
    let (_, refused) = rig.refused("d.vhd", Call::ReadContainer).await;
    let broken = Account { id: vhds1().id, location: None };
    let signs = signature::SharedKey {
        account: "vhds1".to_owned(),
        key: keys[0].value.clone(),
        transport: rig.arm.transport().clone(),
    };
    let printed = format!("{:?} {refused:?} {refused} {signs:?} {broken:?} {:?}", rig.blobs, Secret::new("x"));
    let logged = String::from_utf8(logged.0.lock().unwrap().clone()).unwrap();
    assert!(logged.contains("Request: url: https://vhds1.blob.core.windows.net/vhds/d.vhd"), "{logged}");
    for key in &keys {
        let key = key.value.expose();
        for text in [&printed, &logged] {
            assert!(!text.contains(key) && !text.contains(&key[..16]), "{text}");
            assert!(!text.contains("SharedKey vhds1:") && !text.contains("c2lnbm"), "{text}");
        }
    }
}

/// Runs a step to its end.
async fn run<D>(
    rig: &Rig,
    name: &str,
    mut next: Next<D, BlobError>,
    mut step: impl FnMut(Answer<BlobError>) -> Next<D, BlobError>,
) -> Result<D, Failure<BlobError>> {
    for _ in 0..100 {
        match next {
            Next::Call(call) => next = step(rig.call(name, call).await),
            Next::End(end) => return end,
        }
    }
    panic!("the step does not end")
}

async fn create(rig: &Rig, request: &str) -> Result<u64, Failure<BlobError>> {
    let mut create = Create::new(CreateSpec {
        mark: mark("cluster", request),
        size: MIB,
        accepted: MIB..=MIB,
        unique_id: footer::unique_id(disk("d.vhd").folded()),
        time_stamp: footer::time_stamp(1_767_225_600),
    });
    let first = create.begin();
    run(rig, "d.vhd", first, |answer| create.next(answer)).await
}

async fn expand(rig: &Rig, size: u64) -> Result<u64, Failure<BlobError>> {
    let mut expand = Expand::new(ExpandSpec { size, unique_id: footer::unique_id("x"), time_stamp: 0 });
    let first = expand.begin();
    run(rig, "d.vhd", first, |answer| expand.next(answer)).await
}

async fn delete(rig: &Rig) -> Result<Deleted, Failure<BlobError>> {
    let mut delete = Delete::new(DeleteSpec { uri: disk("d.vhd"), cluster: "cluster".to_owned() });
    let first = delete.begin();
    run(rig, "d.vhd", first, |answer| delete.next(answer)).await
}

#[tokio::test(start_paused = true)]
async fn a_disk_is_made_grown_and_deleted_whatever_answer_is_lost() {
    for version in [ServiceVersion::Newest, ServiceVersion::StackHub] {
        for lost in [None, Some("before"), Some("after")] {
            let rig = rig_with(Way::InProcess, version, None).await;
            // Of each kind of write the first answer is lost.
            for operation in ["*container*", "*page*", "*Page*", "*metadata*", "*Metadata*", "*"] {
                if let Some(lost) = lost {
                    let matching = json!({"method": "PUT|DELETE", "path": "/vhds1/*", "operation": operation});
                    rig.incident(json!({"match": matching, "then": {"loseAnswer": lost}}));
                }
            }
            let size = create(&rig, "pvc-1").await.unwrap();
            assert_eq!(size, MIB);
            assert_eq!(create(&rig, "pvc-1").await.unwrap(), MIB);
            assert_eq!(create(&rig, "pvc-2").await.unwrap_err().why, Why::Stranger);
            let blob = rig.blob("d.vhd").await;
            assert_eq!(blob.length, MIB + LENGTH);
            assert_eq!(expand(&rig, 3 * MIB).await.unwrap(), 3 * MIB);
            let blob = rig.blob("d.vhd").await;
            assert_eq!(blob.length, 3 * MIB + LENGTH);
            assert_eq!(blob.metadata.get(VOLUME_KEY), Some(&mark("cluster", "pvc-1")));
            let read = |offset| rig.call("d.vhd", Call::ReadPage { offset, if_match: blob.etag.clone() });
            let Answer::Page(page) = read(3 * MIB).await else { panic!() };
            assert!(Footer::of_blob(&page, blob.length).is_ok());
            assert_eq!(read(MIB).await, Answer::Page(Box::new(ZEROS)));

            rig.snapshot("d.vhd").await;
            let error = delete(&rig).await.unwrap_err();
            assert!(matches!(&error.why, Why::Snapshots(times) if times.len() == 1), "{error:?}");
            rig.by_the_crate("d.vhd", |blob| async move {
                let only = azure_storage_blob::models::DeleteSnapshotsOptionType::Only;
                let options = azure_storage_blob::models::BlobClientDeleteOptions {
                    delete_snapshots: Some(only),
                    if_match: None::<Etag>,
                    ..Default::default()
                };
                blob.delete(Some(options)).await.map(drop)
            })
            .await;
            if lost.is_some() {
                rig.incident(json!({"match": {"method": "DELETE"}, "then": {"loseAnswer": lost}}));
            }
            assert_eq!(delete(&rig).await.unwrap(), Deleted::Disk);
            assert_eq!(delete(&rig).await.unwrap(), Deleted::Disk);
            assert_eq!(rig.problem("d.vhd", Call::ReadBlob).await, Problem::NoBlob);
            rig.emulator.shutdown().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_attached_disk_neither_grows_nor_goes() {
    let rig = rig().await;
    create(&rig, "pvc-1").await.unwrap();
    rig.lease("d.vhd").await;
    assert!(matches!(expand(&rig, 3 * MIB).await.unwrap_err().why, Why::Attached { .. }));
    assert!(matches!(delete(&rig).await.unwrap_err().why, Why::Attached { .. }));
    assert_eq!(rig.blob("d.vhd").await.length, MIB + LENGTH);
}
