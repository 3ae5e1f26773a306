//! Blob disks on an emulated Azure, on paused time.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures::future::{BoxFuture, FutureExt as _};
use lazuli_azure::{
    blob::ServiceVersion,
    on_emulator::{client, principal, routes},
    transport::Transport,
};
use lazuli_emulator::{Emulator, Options, call_log, control::Control, latency::Profile, scenario};
use lazuli_journal::Standing;
use lazuli_model::fault::{Code, Fault, Rpc};
use lazuli_quota::poll::Kind;
use lazuli_vhd::{
    class::{self, Choice, Defaults},
    life::{KeptBecause, Why},
    shown,
};
use serde_json::{Value, json};
use tokio::{sync::Notify, task::JoinSet, time::Instant};
use tower::Service;

use super::*;

mod rights;

const SUFFIX: &str = "core.windows.net";
const GIB: u64 = 1 << 30;

struct Rig(Emulator);

impl Rig {
    async fn start() -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let options = Options { latency: Profile::typical(), ..Options::default() };
        Self(Emulator::start(options).await.unwrap())
    }

    fn routes(&self) -> lazuli_azure::transport::Routes {
        let server = self.0.url().parse().unwrap();
        routes(&server).with_blob_services(SUFFIX, &server).unwrap()
    }

    /// A replica of the controller, which knows nothing of others.
    fn replica(&self, seed: u64) -> BlobDisks {
        replica(Transport::in_process(self.routes(), self.way()), seed)
    }

    fn way(&self) -> Way {
        Way { of_manager: self.0.service(), of_blobs: self.0.service_over_tls() }
    }

    fn calls(&self) -> Vec<call_log::Call> {
        self.0.control().call_log()
    }

    fn count(&self, method: &str, path: &str) -> usize {
        self.calls().iter().filter(|call| call.method == method && call.path.contains(path)).count()
    }

    /// The documents of the emulator's own type, by their ids.
    fn documents(&self, kind: &str) -> Vec<(String, Value)> {
        let dump = self.0.control().dump();
        dump.resources.into_iter().filter(|(_, doc)| doc["type"] == kind).collect()
    }

    /// The disks that there are: account and blob.
    fn blobs(&self) -> Vec<(String, String)> {
        let account = |id: &str| id.split("/storageaccounts/").nth(1).unwrap().split('/').next().unwrap().to_owned();
        let blobs = self.documents("lazuli/blobs").into_iter();
        blobs.map(|(id, doc)| (account(&id), doc["properties"]["name"].as_str().unwrap().to_owned())).collect()
    }

    fn accounts(&self) -> BTreeSet<String> {
        let accounts = self.documents("Microsoft.Storage/storageAccounts").into_iter();
        accounts.map(|(_, doc)| doc["name"].as_str().unwrap().to_owned()).collect()
    }
}

/// The way to Azure: what goes to accounts goes over TLS.
#[derive(Clone)]
struct Way {
    of_manager: axum::Router,
    of_blobs: axum::Router,
}

impl<B> Service<http::Request<B>> for Way
where
    axum::Router: Service<http::Request<B>, Error = std::convert::Infallible>,
{
    type Response = <axum::Router as Service<http::Request<B>>>::Response;
    type Error = std::convert::Infallible;
    type Future = <axum::Router as Service<http::Request<B>>>::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Service::<http::Request<B>>::poll_ready(&mut self.of_manager, context)
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let is_of_manager = ["/subscriptions/", "/providers/"].iter().any(|part| request.uri().path().contains(part));
        if is_of_manager || request.uri().path().contains("oauth2") {
            self.of_manager.call(request)
        } else {
            self.of_blobs.call(request)
        }
    }
}

fn replica(transport: Transport, seed: u64) -> BlobDisks {
    replica_in(transport, seed, false)
}

fn replica_in(transport: Transport, seed: u64, is_stack_hub: bool) -> BlobDisks {
    replica_with(transport, seed, is_stack_hub, Recorder::nowhere())
}

fn replica_with(transport: Transport, seed: u64, is_stack_hub: bool, journal: Recorder) -> BlobDisks {
    let credential = principal(scenario::TENANT, scenario::CLIENT_ID, scenario::CLIENT_SECRET);
    let arm = client(transport, credential, seed);
    let storage = if is_stack_hub { Storage::of_azure_stack(arm) } else { Storage::new(arm) };
    let version = if is_stack_hub { ServiceVersion::StackHub } else { ServiceVersion::Newest };
    BlobDisks::new(Settings {
        blobs: Blobs::new(storage.clone(), SUFFIX, version),
        storage,
        suffix: SUFFIX.into(),
        is_stack_hub,
        subscription: scenario::SUBSCRIPTION.into(),
        resource_group: scenario::RESOURCE_GROUP.into(),
        allowed_resource_groups: AllowedResourceGroups::Any,
        cluster_name: "kubernetes".into(),
        metrics: Metrics::unregistered(),
        journal,
    })
}

fn class(name: &str, parameters: &[(&str, &str)]) -> BlobClass {
    let defaults = Defaults {
        blob_disks: class::BlobDisks::Always,
        is_stack_hub: false,
        subscription: scenario::SUBSCRIPTION.into(),
        resource_group: scenario::RESOURCE_GROUP.into(),
        location: scenario::LOCATION.into(),
    };
    let request = class::Request {
        name: name.into(),
        parameters: parameters.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        required_bytes: 1 << 30,
        limit_bytes: 0,
    };
    match class::choose(&request, &defaults, &class::Found::default()).unwrap() {
        Choice::Blob(class) => *class,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn the_journal_tells_what_a_disk_and_its_account_waited_for_and_what_was_written() {
    let rig = Rig::start().await;
    let start = Instant::now();
    let journal = Recorder::new(move || start.elapsed());
    let disks = replica_with(Transport::in_process(rig.routes(), rig.way()), 1, false, journal.clone());
    let story = |key: &Key<'_>| journal.look(|journal| journal.story_of(key)).flatten().unwrap();
    let words = |key: &Key<'_>| story(key).records.iter().map(|record| record.word).collect::<Vec<_>>();
    let made = create(&disks, "pvc-1", SHARED).await.unwrap();
    let (named, blob) = (Key::blob_name("pvc-1.vhd"), Key::blob(&made.uri));
    assert_eq!(words(&named), [Word::AwaitsAccount, Word::PlacedIn, Word::AwaitsBlob]);
    assert_eq!(story(&blob).standing, Standing::Settled);
    let writes = |key: &Key<'_>| {
        let story = story(key);
        let written = story.records.iter().filter(|record| record.word == Word::WritesDisk);
        written.filter_map(|record| record.cause).collect::<Vec<_>>()
    };
    assert_eq!(writes(&blob), ["making the container", "making the blob", "writing the blob's footer"]);
    let account = ArmId::storage_account(scenario::SUBSCRIPTION, scenario::RESOURCE_GROUP, made.uri.account()).unwrap();
    let of_account = words(&Key::storage_account(&account));
    assert!(of_account.contains(&Word::Writes) && of_account.contains(&Word::OperationDone), "{of_account:?}");
    assert_eq!(story(&Key::storage_account(&account)).standing, Standing::Settled);

    disks.expand(&made.uri, 3 << 30, 0).await.unwrap();
    assert!(writes(&blob).contains(&"growing the blob"), "{:?}", writes(&blob));
    disks.delete(&made.uri).await.unwrap();
    assert!(words(&blob).contains(&Word::WritesDeletion), "{:?}", words(&blob));
    disks.delete(&made.uri).await.unwrap();
    assert_eq!(words(&blob).iter().filter(|word| **word == Word::Absent).count(), 1, "{:?}", words(&blob));
}

#[tokio::test(start_paused = true)]
async fn people_are_shown_every_disk_with_its_footer_and_what_cannot_be_read() {
    let rig = Rig::start().await;
    let disks = rig.replica(1);
    put_account(&disks, &id("mine")).await;
    let mut made = Vec::new();
    for (parameters, kind) in KINDS.into_iter().zip([shown::Kind::Shared, shown::Kind::Dedicated, shown::Kind::Own]) {
        made.push((create(&disks, &format!("pvc-{kind:?}"), parameters).await.unwrap().uri, kind));
    }
    // A footer that is gone, and one that was written over.
    let [shared, own, own_account] = [0, 1, 2].map(|at| made[at].0.clone());
    for (uri, write) in [(&own, None), (&own_account, Some(Box::new([7; 512])))] {
        let blob = disks.read(uri).await.unwrap();
        let (offset, if_match) = (blob.blob.length - 512, blob.blob.etag.clone());
        let call = match write {
            Some(page) => Call::WritePage { offset, page, if_match },
            None => Call::ClearPage { offset, if_match },
        };
        let account = lazuli_azure::blob::Account { id: blob.account, location: Some(blob.location) };
        disks.calls.blobs.call(&account, uri, &call, &an_hour()).await;
    }
    let missing: BlobUri = "https://nowhere.blob.core.windows.net/vhds/d.vhd".parse().unwrap();
    let handles = [own_account.clone(), missing.clone()];
    let whole = rig.replica(2).inspect(handles).await.unwrap();
    let gone = BlobUri::of("mine", SUFFIX, "vhds", "gone.vhd").unwrap();
    let alone = rig.replica(3);
    let alone = alone.inspect_alone([&shared, &own, &own_account, &missing, &gone].map(Clone::clone)).await.unwrap();
    for seen in [&whole, &alone] {
        let mut shown: Vec<_> =
            seen.disks.iter().map(|disk| (disk.uri.clone(), disk.kind(), disk.footer.unwrap().as_str())).collect();
        shown.sort_by(|one, other| one.2.cmp(other.2));
        assert_eq!(
            shown,
            [
                (shared.clone(), shown::Kind::Shared, "good"),
                (own_account.clone(), shown::Kind::Own, "none"),
                (own.clone(), shown::Kind::Dedicated, "repairable"),
            ]
        );
    }
    let unreadable = |seen: &Inspection| seen.unreadable.iter().map(|(what, _)| what.clone()).collect::<Vec<_>>();
    assert_eq!(unreadable(&whole), ["nowhere"]);
    assert_eq!(unreadable(&alone), ["nowhere".to_owned(), gone.to_string()]);
}

const SHARED: &[(&str, &str)] = &[("kind", "Shared")];
const DEDICATED: &[(&str, &str)] = &[("kind", "Dedicated")];
const NAMED: &[(&str, &str)] = &[("storageAccount", "mine")];
const KINDS: [&[(&str, &str)]; 3] = [SHARED, DEDICATED, NAMED];

async fn create(disks: &BlobDisks, name: &str, parameters: &[(&str, &str)]) -> Result<Made, BlobDiskError> {
    disks.create(&class(name, parameters), name).await
}

fn id(account: &str) -> String {
    let (subscription, group) = (scenario::SUBSCRIPTION, scenario::RESOURCE_GROUP);
    format!(
        "/subscriptions/{subscription}/resourceGroups/{group}/providers/Microsoft.Storage/storageAccounts/{account}"
    )
}

fn an_hour() -> Until {
    Until::within(Duration::from_secs(3_600))
}

/// A person makes an account.
async fn put_account(disks: &BlobDisks, id: &str) {
    let body = json!({"location": scenario::LOCATION, "sku": {"name": "Standard_LRS"}, "kind": "StorageV2"});
    let write = lazuli_azure::arm::Write::put(id, "2025-01-01", body, Kind::StorageAccount);
    let arm = disks.calls.storage.arm();
    arm.write(write, &an_hour()).await.unwrap().settle(&an_hour()).await.unwrap();
}

/// A person deletes an account.
async fn delete_account(disks: &BlobDisks, account: &ArmId) {
    disks.calls.storage.in_region(None).delete_account(account, None, &an_hour()).await.unwrap();
}

fn why(error: &BlobDiskError) -> Why {
    error.why().unwrap_or_else(|| panic!("{error}")).clone()
}

#[tokio::test(start_paused = true)]
async fn a_disk_lives_from_its_claim_to_its_deletion() {
    for parameters in KINDS {
        let rig = Rig::start().await;
        let disks = rig.replica(1);
        put_account(&disks, &id("mine")).await;
        let made = create(&disks, "pvc-1", parameters).await.unwrap();
        assert_eq!(made.size_bytes, GIB);
        assert_eq!((made.uri.container(), made.uri.name()), ("vhds", "pvc-1.vhd"));
        assert_eq!(made.uri.account() == "mine", parameters == NAMED);
        // Another process, which knows nothing, finds it.
        let other = rig.replica(2);
        assert_eq!(create(&other, "pvc-1", parameters).await.unwrap(), made);
        let seen = other.read(&made.uri).await.unwrap();
        assert_eq!((seen.account.name(), seen.blob.length), (made.uri.account(), GIB + 512));
        assert!(seen.blob.lease.is_free() && seen.blob.machine().is_none());
        assert_eq!(other.expand(&made.uri, 3 << 30, 0).await.unwrap(), 3 * GIB);
        assert_eq!(disks.expand(&made.uri, 2 << 30, 0).await.unwrap(), 3 * GIB);
        let before = other.read(&made.uri).await.unwrap().blob;
        assert_eq!(disks.repair(&made.uri).await.unwrap(), 3 * GIB);
        assert_eq!(other.read(&made.uri).await.unwrap().blob, before, "a disk with its footer is left as it is");
        let error = create(&disks, "pvc-1", parameters).await.map(|made| made.size_bytes);
        assert_eq!(error.unwrap(), 3 * GIB, "without a limit the grown disk is the one");
        let expected = if parameters == DEDICATED { Deleted::DiskAndAccount } else { Deleted::Disk };
        assert_eq!(other.delete(&made.uri).await.unwrap(), expected);
        if parameters == DEDICATED {
            // What this one knows of the account is old, and the blob service alone does not say that it is gone.
            let error = disks.delete(&made.uri).await.unwrap_err();
            assert_eq!(error.code(Rpc::DeleteVolume), Code::Unavailable, "{error}");
        }
        for disks in [&other, &disks, &rig.replica(3)] {
            assert_eq!(disks.delete(&made.uri).await.unwrap(), expected);
        }
        assert_eq!(rig.blobs(), []);
        assert_eq!(rig.accounts().contains(made.uri.account()), parameters != DEDICATED);
        let expected = if parameters == DEDICATED { Why::NoAccount } else { Why::NoBlob };
        let gone = disks.read(&made.uri).await.unwrap_err();
        assert_eq!(why(&gone), expected, "{gone}");
        assert!(gone.to_string().contains(made.uri.as_str()), "{gone}");
        let gone = disks.expand(&made.uri, 4 << 30, 0).await.unwrap_err();
        assert_eq!(why(&gone), expected, "{gone}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_storm_of_claims_grows_the_pool_once_and_is_never_throttled() {
    let rig = Rig::start().await;
    let disks = rig.replica(1);
    let began = Instant::now();
    let mut claims = JoinSet::new();
    for number in 0..160 {
        let disks = disks.clone();
        claims.spawn(async move { create(&disks, &format!("pvc-{number:03}"), SHARED).await.unwrap() });
    }
    let made = claims.join_all().await;
    let took = began.elapsed();
    let mut accounts: BTreeMap<&str, usize> = BTreeMap::new();
    made.iter().for_each(|made| *accounts.entry(made.uri.account()).or_default() += 1);
    assert_eq!(accounts.len(), 6, "{accounts:?}");
    assert!(accounts.values().all(|disks| *disks <= 30), "{accounts:?}");
    assert_eq!((rig.blobs().len(), rig.accounts().len()), (160, 6));
    assert_eq!(rig.calls().iter().filter(|call| call.status == 429 || call.status == 503).count(), 0);
    assert!(took < Duration::from_secs(60), "{took:?}");
    let of_manager = |method| {
        let is_one = |call: &&call_log::Call| call.method == method && call.path.contains("Microsoft.Storage");
        rig.calls().iter().filter(is_one).count()
    };
    // One list, a read before each creation and the polls of it; the keys of each account.
    assert_eq!((of_manager("PUT"), of_manager("POST")), (6, 6));
    assert!(of_manager("GET") < 120, "{}", of_manager("GET"));
    // Each disk is the container's read, the blob and its footer; those that come first find no container.
    let of_blobs = rig.calls().iter().filter(|call| call.path.contains("/vhds")).count();
    assert!((480..=800).contains(&of_blobs), "{of_blobs}");
    // One more claim costs the resource manager one list: another replica may have made an account.
    let before = rig.calls().len();
    create(&disks, "pvc-more", SHARED).await.unwrap();
    let of_manager = rig.calls().split_off(before).into_iter().filter(|call| !call.path.contains("/vhds"));
    let of_manager: Vec<(String, String)> = of_manager.map(|call| (call.method, call.path)).collect();
    let is_list = |(method, path): &(String, String)| method == "GET" && path.ends_with("/storageAccounts");
    assert!(of_manager.len() == 1 && is_list(&of_manager[0]), "{of_manager:?}");
}

/// The writes that Azure has accepted.
fn accepted(control: &Control) -> usize {
    let is_write = |call: &call_log::Call| {
        !["GET", "HEAD", "POST"].contains(&call.method.as_str()) && (200..300).contains(&call.status)
    };
    control.call_log().iter().filter(|call| is_write(call)).count()
}

/// The way to Azure of a process that is stopped once Azure has accepted so many writes: no answer comes and nothing
/// goes out any more.
#[derive(Clone)]
struct Stopping<S> {
    inner: S,
    control: Control,
    after: usize,
    stopped: Arc<Notify>,
}

impl<S, R> Service<R> for Stopping<S>
where
    S: Service<R> + Clone + Send + 'static,
    S::Future: Send,
    S::Response: Send,
    S::Error: Send,
    R: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: R) -> Self::Future {
        let Self { mut inner, control, after, stopped } = self.clone();
        async move {
            let is_stopped = || accepted(&control) >= after;
            if is_stopped() {
                stopped.notify_one();
                return std::future::pending().await;
            }
            let answer = inner.call(request).await;
            if is_stopped() {
                stopped.notify_one();
                return std::future::pending().await;
            }
            answer
        }
        .boxed()
    }
}

/// What a process does that is stopped.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Life {
    Create,
    Expand,
    Delete,
}

async fn live(disks: &BlobDisks, life: Life, parameters: &[(&str, &str)], uri: Option<&BlobUri>) {
    match (life, uri) {
        (Life::Expand, Some(uri)) => drop(disks.expand(uri, 2 << 30, 0).await.unwrap()),
        (Life::Delete, Some(uri)) => drop(disks.delete(uri).await.unwrap()),
        _ => drop(create(disks, "pvc-1", parameters).await.unwrap()),
    }
}

#[tokio::test(start_paused = true)]
async fn a_process_that_is_stopped_after_any_write_leaves_what_the_next_one_finishes() {
    let mut stops = 0;
    for parameters in KINDS {
        for life in [Life::Create, Life::Expand, Life::Delete] {
            for count in 1.. {
                let rig = Rig::start().await;
                let others = rig.replica(9);
                put_account(&others, &id("mine")).await;
                let uri = match life {
                    Life::Create => None,
                    Life::Expand | Life::Delete => Some(create(&others, "pvc-1", parameters).await.unwrap().uri),
                };
                let stopped = Arc::new(Notify::new());
                let control = rig.0.control();
                let after = accepted(&control) + count;
                let way = Stopping { inner: rig.way(), control, after, stopped: stopped.clone() };
                let first = replica(Transport::in_process(rig.routes(), way), 1);
                let is_stopped = tokio::select! {
                    () = live(&first, life, parameters, uri.as_ref()) => false,
                    () = stopped.notified() => true,
                };
                live(&rig.replica(2), life, parameters, uri.as_ref()).await;
                let made = rig.replica(3);
                let is_deleted = life == Life::Delete;
                assert_eq!(rig.blobs().len(), usize::from(!is_deleted), "{life:?} {count} {parameters:?}");
                let of_disks = rig.accounts().into_iter().filter(|name| name != "mine").count();
                let expected = usize::from(parameters == SHARED || parameters == DEDICATED && !is_deleted);
                assert_eq!(of_disks, expected, "{life:?} {count} {parameters:?}");
                if !is_deleted {
                    let uri = create(&made, "pvc-1", parameters).await.unwrap().uri;
                    let (before, size) = (made.read(&uri).await.unwrap().blob, made.repair(&uri).await.unwrap());
                    assert_eq!(size, if life == Life::Expand { 2 * GIB } else { GIB });
                    assert_eq!(made.read(&uri).await.unwrap().blob, before, "nothing is left to repair");
                }
                if !is_stopped {
                    break;
                }
                stops += 1;
            }
        }
    }
    assert!(stops > 20, "{stops}");
}

#[tokio::test(start_paused = true)]
async fn a_name_of_somebody_else_gives_the_next_one() {
    for parameters in [SHARED, DEDICATED] {
        let rig = Rig::start().await;
        let account = create(&rig.replica(1), "pvc-1", parameters).await.unwrap().uri.account().to_owned();
        let rig = Rig::start().await;
        let disks = rig.replica(1);
        // It is in another resource group of the subscription, which the list of the cluster's does not show.
        let group = format!("/subscriptions/{}/resourceGroups/theirs", scenario::SUBSCRIPTION);
        let body = json!({"location": scenario::LOCATION});
        let write = lazuli_azure::arm::Write::put(&group, "2021-04-01", body, Kind::Other);
        disks.calls.storage.arm().write(write, &an_hour()).await.unwrap().settle(&an_hour()).await.unwrap();
        put_account(&disks, &format!("{group}/providers/Microsoft.Storage/storageAccounts/{account}")).await;
        let made = create(&disks, "pvc-1", parameters).await.unwrap();
        assert_ne!(made.uri.account(), account);
        assert_eq!(create(&rig.replica(2), "pvc-1", parameters).await.unwrap(), made);
        assert_eq!(rig.blobs().len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn an_account_that_is_deleted_by_hand_is_gone_for_its_disks_and_made_again_for_new_ones() {
    let rig = Rig::start().await;
    let disks = rig.replica(1);
    let made = create(&disks, "pvc-1", SHARED).await.unwrap();
    let account = disks.read(&made.uri).await.unwrap().account;
    delete_account(&disks, &account).await;
    tokio::time::sleep(Duration::from_secs(700)).await;
    let gone = disks.read(&made.uri).await.unwrap_err();
    assert_eq!((why(&gone), gone.code(Rpc::Publish)), (Why::NoAccount, Code::FailedPrecondition), "{gone}");
    // A list proves nothing: the identity may not see the account any more. A read of it does.
    let incident = json!({"match": {"method": "GET", "path": "*/storageAccounts/*"}, "times": 0,
        "then": {"status": 403, "code": "AuthorizationFailed", "message": "no"}});
    rig.0.control().add_incident(serde_json::from_value(incident).unwrap()).unwrap();
    let unproved = disks.delete(&made.uri).await.unwrap_err();
    assert_eq!((why(&unproved), unproved.code(Rpc::DeleteVolume)), (Why::NoAccount, Code::FailedPrecondition));
    rig.0.control().clear_incidents();
    // It may have been in any resource group: another cluster's pool has such names too.
    let unproved = disks.delete(&made.uri).await.unwrap_err();
    assert_eq!((why(&unproved), unproved.code(Rpc::DeleteVolume)), (Why::NoAccount, Code::FailedPrecondition));
    let again = create(&disks, "pvc-2", SHARED).await.unwrap();
    assert_eq!(again.uri.account(), made.uri.account(), "its name follows from the cluster");
    // A named account is never made.
    let error = create(&disks, "pvc-3", NAMED).await.unwrap_err();
    assert_eq!(error.code(Rpc::CreateVolume), Code::InvalidArgument, "{error}");
    assert!(error.to_string().contains("mine"), "{error}");
    put_account(&disks, &id("mine")).await;
    assert_eq!(create(&disks, "pvc-3", NAMED).await.unwrap().uri.account(), "mine");
}

#[tokio::test(start_paused = true)]
async fn a_container_that_everybody_may_read_gets_no_disk() {
    let rig = Rig::start().await;
    let disks = rig.replica(1);
    create(&disks, "pvc-1", SHARED).await.unwrap();
    let (container, _) = rig.documents("lazuli/blobContainers").remove(0);
    rig.0.control().tamper(&container, |doc| doc["properties"]["publicAccess"] = json!("container")).unwrap();
    let error = create(&disks, "pvc-2", SHARED).await.unwrap_err();
    assert_eq!(why(&error), Why::PublicContainer);
    assert_eq!(error.code(Rpc::CreateVolume), Code::FailedPrecondition);
    assert_eq!(rig.blobs().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_account_of_a_disk_with_something_else_in_it_stays() {
    let rig = Rig::start().await;
    let disks = rig.replica(1);
    let made = create(&disks, "pvc-1", DEDICATED).await.unwrap();
    let seen = disks.read(&made.uri).await.unwrap();
    let share = ArmId::file_share(&seen.account, "files").unwrap();
    let write = lazuli_azure::arm::Write::put(
        share.as_str(),
        "2025-01-01",
        json!({"properties": {"shareQuota": 1}}),
        Kind::Other,
    );
    disks.calls.storage.arm().write(write, &an_hour()).await.unwrap();
    for disks in [&disks, &rig.replica(2)] {
        let Deleted::AccountKept(KeptBecause::Contents(contents)) = disks.delete(&made.uri).await.unwrap() else {
            panic!("the share goes with the account")
        };
        assert_eq!((contents.shares, contents.blobs, contents.containers), (1, 0, vec!["vhds".to_owned()]));
    }
    assert!(rig.accounts().contains(made.uri.account()) && rig.blobs().is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_same_request_joins_and_the_opposite_one_is_refused() {
    let rig = Rig::start().await;
    let disks = rig.replica(1);
    put_account(&disks, &id("mine")).await;
    let uri = create(&disks, "pvc-0", NAMED).await.unwrap().uri;
    let before = rig.count("PUT", "/vhds/pvc-0.vhd");
    let (one, same, other, opposite) = tokio::join!(
        disks.expand(&uri, 2 << 30, 0),
        disks.expand(&uri, 2 << 30, 0),
        disks.expand(&uri, 3 << 30, 0),
        disks.delete(&uri),
    );
    assert_eq!((one.unwrap(), same.unwrap()), (2 * GIB, 2 * GIB));
    for error in [other.unwrap_err(), opposite.unwrap_err()] {
        assert_eq!(error.code(Rpc::DeleteVolume), Code::Aborted, "{error}");
        assert!(error.to_string().contains("expansion") && error.to_string().contains("pvc-0.vhd"), "{error}");
    }
    let writes = rig.count("PUT", "/vhds/pvc-0.vhd") - before;
    rig.replica(2).expand(&uri, 4 << 30, 0).await.unwrap();
    assert_eq!(rig.count("PUT", "/vhds/pvc-0.vhd") - before, 2 * writes, "one of the two requests did all");
}

#[tokio::test(start_paused = true)]
async fn a_creation_whose_caller_leaves_is_finished_or_not_begun() {
    for wait in [10, 15_000, 20_000, 21_000, 22_000, 23_000, 25_000] {
        let rig = Rig::start().await;
        let disks = rig.replica(1);
        let caller = tokio::time::timeout(Duration::from_millis(wait), create(&disks, "pvc-1", SHARED)).await;
        tokio::time::sleep(Duration::from_secs(300)).await;
        let puts = rig.count("PUT", "/vhds/pvc-1.vhd");
        assert!([0, 2].contains(&puts), "{puts} after {wait} ms: a blob without its footer is no disk");
        assert!(caller.is_err() || puts == 2);
        create(&disks, "pvc-1", SHARED).await.unwrap();
        assert_eq!((rig.blobs().len(), rig.accounts().len()), (1, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn lists_show_the_disks_of_tagged_and_named_accounts_and_name_what_they_cannot_read() {
    let rig = Rig::start().await;
    let disks = rig.replica(1);
    for name in ["mine", "other"] {
        put_account(&disks, &id(name)).await;
    }
    let mut expected = Vec::new();
    for (number, parameters) in KINDS.into_iter().enumerate() {
        expected.push(create(&disks, &format!("pvc-{number}"), parameters).await.unwrap().uri);
    }
    expected.sort();
    let listed = async |disks: &BlobDisks, handles: &[BlobUri]| {
        let listing = disks.list(handles.iter().cloned()).await.unwrap();
        let mut uris: Vec<BlobUri> = listing.disks.iter().map(|disk| disk.uri.clone()).collect();
        uris.sort();
        (uris, listing.unreadable)
    };
    let (found, unreadable) = listed(&disks, &expected).await;
    assert_eq!((found, unreadable.len()), (expected.clone(), 0));
    let (found, _) = listed(&disks, &[]).await;
    assert_eq!(found, expected.iter().filter(|uri| uri.account() != "mine").cloned().collect::<Vec<_>>());
    // Lists of accounts are a minute old at most.
    let lists = || rig.count("GET", &format!("{}/providers/Microsoft.Storage/storageAccounts", scenario::SUBSCRIPTION));
    let before = lists();
    for _ in 0..5 {
        listed(&disks, &expected).await;
    }
    assert_eq!(lists(), before);
    let incident = json!({"match": {"path": "*/mine/listKeys"}, "times": 0,
        "then": {"status": 403, "code": "AuthorizationFailed", "message": "no"}});
    rig.0.control().add_incident(serde_json::from_value(incident).unwrap()).unwrap();
    let (found, unreadable) = listed(&rig.replica(2), &expected).await;
    assert_eq!(found, expected.iter().filter(|uri| uri.account() != "mine").cloned().collect::<Vec<_>>());
    assert_eq!(unreadable.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["mine"]);
    assert!(unreadable[0].1.to_string().contains("mine"), "{}", unreadable[0].1);
}

#[tokio::test(start_paused = true)]
async fn an_account_of_the_pool_that_cannot_be_listed_stops_new_disks_and_says_so() {
    let rig = Rig::start().await;
    create(&rig.replica(1), "pvc-1", SHARED).await.unwrap();
    let incident = json!({"match": {"path": "*/listKeys"}, "times": 0,
        "then": {"status": 403, "code": "AuthorizationFailed", "message": "no"}});
    rig.0.control().add_incident(serde_json::from_value(incident).unwrap()).unwrap();
    let disks = rig.replica(2);
    let error = create(&disks, "pvc-1", SHARED).await.unwrap_err();
    assert_eq!(error.code(Rpc::CreateVolume), Code::Unavailable, "{error}");
    assert!(std::error::Error::source(&error).is_some(), "Azure's own words are there");
    rig.0.control().clear_incidents();
    create(&disks, "pvc-1", SHARED).await.unwrap();
    assert_eq!(rig.blobs().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_address_of_another_cloud_is_asked_of_nobody() {
    let rig = Rig::start().await;
    let disks = rig.replica(1);
    let uri: BlobUri = "https://ds1.blob.core.chinacloudapi.cn/vhds/d.vhd".parse().unwrap();
    for error in [
        disks.read(&uri).await.unwrap_err(),
        disks.delete(&uri).await.unwrap_err(),
        disks.repair(&uri).await.unwrap_err(),
    ] {
        assert_eq!(error.code(Rpc::Publish), Code::InvalidArgument, "{error}");
    }
    assert!(rig.calls().is_empty());
    let uri = BlobUri::of("ds1", SUFFIX, "vhds", "d.vhd").unwrap();
    let error = disks.expand(&uri, 5_000 << 30, 0).await.unwrap_err();
    assert_eq!(error.code(Rpc::Expand), Code::OutOfRange, "{error}");
    assert!(rig.calls().is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_older_service_of_a_stack_hub_has_the_same_disks() {
    let rig = Rig::start().await;
    let disks = replica_in(Transport::in_process(rig.routes(), rig.way()), 1, true);
    for parameters in [SHARED, DEDICATED] {
        let made = create(&disks, "pvc-1", parameters).await.unwrap();
        assert_eq!(disks.expand(&made.uri, 2 << 30, 0).await.unwrap(), 2 * GIB);
        assert_eq!(disks.list([]).await.unwrap().disks.len(), 1);
        // It has no list of shares, tables and queues, so nothing shows that an account is empty.
        let expected =
            if parameters == DEDICATED { Deleted::AccountKept(KeptBecause::Unlisted) } else { Deleted::Disk };
        for _ in 0..2 {
            assert_eq!(disks.delete(&made.uri).await.unwrap(), expected);
        }
    }
    let kinds: Vec<_> =
        rig.documents("Microsoft.Storage/storageAccounts").into_iter().map(|(_, doc)| doc["kind"].clone()).collect();
    assert_eq!(kinds, ["Storage", "Storage"]);
    assert_eq!((rig.blobs().len(), rig.count("DELETE", "/storageAccounts/")), (0, 0));
    let calls = rig.calls().into_iter().filter(|call| call.path.contains("/Microsoft.Storage/"));
    let versions: BTreeSet<String> = calls.filter_map(|call| call.api_version).collect();
    assert_eq!(versions, BTreeSet::from(["2018-02-01".to_owned()]));
}

/// The missing right, or the policy that switches keys off, is met when the account is there.
#[tokio::test(start_paused = true)]
async fn no_final_code_leaves_the_account_of_one_disk_behind() {
    let rig = Rig::start().await;
    refuse(&rig, "POST", "*/listKeys");
    for number in 0..3 {
        let error = create(&rig.replica(1), &format!("pvc-{number}"), DEDICATED).await.unwrap_err();
        assert_eq!((error.code(Rpc::CreateVolume), error.fault()), (Code::Unavailable, Fault::Forbidden), "{error}");
        assert_eq!(rig.accounts().len(), number + 1);
    }
    // Where none could be made, none is left.
    let rig = Rig::start().await;
    refuse(&rig, "PUT", "*/storageAccounts/*");
    let error = create(&rig.replica(1), "pvc-1", DEDICATED).await.unwrap_err();
    assert_eq!((error.code(Rpc::CreateVolume), rig.accounts().len()), (Code::PermissionDenied, 0));
}

/// The first try has made the blob, and a right has gone since.
#[tokio::test(start_paused = true)]
async fn a_retry_keeps_the_claim_while_an_earlier_try_may_have_left_a_blob() {
    for (method, path) in [("GET", "*/storageAccounts"), ("POST", "*/listKeys")] {
        for parameters in KINDS {
            let rig = Rig::start().await;
            let disks = rig.replica(1);
            put_account(&disks, &id("mine")).await;
            create(&disks, "pvc-1", parameters).await.unwrap();
            refuse(&rig, method, path);
            let error = create(&rig.replica(2), "pvc-1", parameters).await.unwrap_err();
            let code = error.code(Rpc::CreateVolume);
            assert_eq!(code, Code::Unavailable, "{path} {parameters:?}: {error}");
            let action = error.action().unwrap();
            assert!(action.starts_with("Microsoft.Storage/storageAccounts/"), "{action}");
            assert_eq!(rig.blobs().len(), 1);
        }
    }
}

/// Azure refuses these requests for want of a right.
fn refuse(rig: &Rig, method: &str, path: &str) {
    let incident = json!({"match": {"method": method, "path": path}, "times": 0,
        "then": {"status": 403, "code": "AuthorizationFailed", "message": "no"}});
    rig.0.control().add_incident(serde_json::from_value(incident).unwrap()).unwrap();
}
