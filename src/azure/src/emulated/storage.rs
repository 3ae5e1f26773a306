//! Accounts and shares by the client against the emulator: their life, what is refused, the provider's limits, lost
//! answers, and that no key is printed.

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex},
    time::Duration,
};

use lazuli_emulator::{Options, incident::Incident, scenario};
use lazuli_model::{
    AccountKind, ArmId, FileShare, Gib, ProvisioningState, RootSquash, ShareProtocol, StorageAccount, StorageSku,
    fault::{Effect, Fault},
    op::{AccountSpec, FileServiceSpec, ShareChange, ShareSpec},
};
use lazuli_quota::{permit::Priority, poll::Kind};
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::Instant};

use super::{Rig, Way, rig, typical};
use crate::{
    Until,
    error::{ArmError, Verb},
    storage::{RegionStorage, ShareList, Storage, StoragePages, Unreadable, Usage, decode_account},
    testing::an_hour,
};

fn account_id(name: &str) -> ArmId {
    ArmId::storage_account(scenario::SUBSCRIPTION, scenario::RESOURCE_GROUP, name).unwrap()
}

fn share_id(account: &str, name: &str) -> ArmId {
    ArmId::file_share(&account_id(account), name).unwrap()
}

fn account_spec(sku: StorageSku, kind: AccountKind) -> AccountSpec {
    AccountSpec {
        location: scenario::LOCATION.into(),
        sku,
        kind,
        tags: BTreeMap::from([("k8s-azure-created-by".into(), "azure".into())]),
        access_tier: None,
        https_only: true,
        minimum_tls_version: "TLS1_2",
        allow_blob_public_access: Some(false),
        allow_shared_key_access: None,
        allow_cross_tenant_replication: None,
        require_infrastructure_encryption: None,
        large_file_shares: None,
        public_network_access: None,
        network_rules: None,
    }
}

fn share_spec(gib: u32) -> ShareSpec {
    ShareSpec {
        quota: Gib::new(gib),
        protocol: None,
        access_tier: None,
        root_squash: None,
        provisioned_iops: None,
        provisioned_bandwidth: None,
        metadata: BTreeMap::from([("createdBy".into(), "azure".into())]),
    }
}

/// A client in the emulator's region, and the same without one.
async fn storage_with(way: Way, options: Options) -> (Rig, RegionStorage, Storage) {
    let rig = rig(way, options).await;
    let storage = Storage::new(rig.compute.arm().clone());
    (rig, storage.in_region(Some(scenario::LOCATION)), storage)
}

async fn storage() -> (Rig, RegionStorage) {
    let (rig, region, _) = storage_with(Way::InProcess, typical()).await;
    (rig, region)
}

async fn make(storage: &RegionStorage, name: &str, spec: &AccountSpec) -> StorageAccount {
    let mut operation = storage.create_account(&account_id(name), spec, None, &an_hour()).await.unwrap();
    decode_account(&operation.wait(&an_hour()).await.unwrap().unwrap()).unwrap()
}

async fn make_standard(storage: &RegionStorage, name: &str) -> StorageAccount {
    make(storage, name, &account_spec(StorageSku::StandardLrs, AccountKind::StorageV2)).await
}

/// The pages of a list, by name.
async fn pages<T>(mut list: StoragePages<T>, name: impl Fn(&T) -> String) -> Vec<Vec<String>> {
    let mut pages = Vec::new();
    while let Some(page) = list.next_page().await.unwrap() {
        pages.push(
            page.iter().map(|item| name(item.as_ref().map_err(|Unreadable { error, .. }| error).unwrap())).collect(),
        );
    }
    assert!(list.pages().sent_at().is_some());
    pages
}

fn name_of(share: &FileShare) -> String {
    let state = match (&share.deleted, &share.snapshot) {
        (Some(_), _) => " deleted",
        (None, Some(_)) => " snapshot",
        (None, None) => "",
    };
    format!("{}{state}", share.name())
}

fn incident(storage: &Rig, incident: Value) {
    let incident: Incident = serde_json::from_value(incident).unwrap();
    storage.emulator.control().add_incident(incident).unwrap();
}

impl Rig {
    fn statuses(&self, method: &str, path_ends: &str) -> Vec<u16> {
        let calls = self.emulator.control().call_log();
        let own = calls.iter().filter(|call| call.method == method && call.path.ends_with(path_ends));
        own.map(|call| call.status).collect()
    }
}

async fn life(rig: &Rig, region: &RegionStorage, storage: &Storage) {
    let (files, share, until) = (account_id("files"), share_id("files", "pvc-1"), an_hour());
    let missing = region.get_account(&files, Priority::Read, &until).await.unwrap_err();
    assert_eq!(missing.fault, Fault::NotFound);
    let made = make_standard(region, "files").await;
    assert_eq!((made.name(), made.provisioning_state), ("files", ProvisioningState::Succeeded));
    let read = region.get_account(&files, Priority::Read, &until).await.unwrap();
    assert_eq!(read.model, made);
    assert!(read.answered.is_some() && read.raw["properties"].is_object());
    for group in [None, Some(scenario::RESOURCE_GROUP)] {
        let list = storage.list_accounts(scenario::SUBSCRIPTION, group, Priority::List, &until).unwrap();
        assert_eq!(pages(list, |account| account.name().to_owned()).await, [["files"]]);
    }
    let tags = BTreeMap::from([("skip-matching".to_owned(), String::new())]);
    region.set_tags(&files, &tags, None, &until).await.unwrap();
    assert_eq!(region.get_account(&files, Priority::Read, &until).await.unwrap().model.tags, tags);
    let keys = region.list_keys(&files, Priority::Read, &until).await.unwrap();
    let names: Vec<&str> = keys.iter().map(|key| key.name.as_str()).collect();
    assert_eq!(names, ["key1", "key2"]);
    assert!(keys.iter().all(|key| key.value.expose().len() == 88 && key.created.is_some()));

    let service = region.get_file_service(&files, Priority::Read, &until).await.unwrap();
    assert_eq!((service.model.share_delete_retention, service.model.retention_days), (Some(true), Some(7)));
    let off = FileServiceSpec { share_delete_retention: Some(false), ..FileServiceSpec::default() };
    let changed = region.change_file_service(&files, &service, &off, None, &until).await.unwrap();
    assert_eq!(changed.share_delete_retention, Some(false));
    let service = region.get_file_service(&files, Priority::Read, &until).await.unwrap();
    let on = FileServiceSpec { share_delete_retention: Some(true), ..FileServiceSpec::default() };
    let changed = region.change_file_service(&files, &service, &on, None, &until).await.unwrap();
    assert_eq!((changed.share_delete_retention, changed.retention_days), (Some(true), Some(7)));

    let missing = region.get_share(&share, Usage::Omitted, Priority::Read, &until).await.unwrap_err();
    assert_eq!(missing.fault, Fault::NotFound);
    let made = region.create_share(&share, &share_spec(5), None, &until).await.unwrap().shown;
    assert_eq!(
        (made.quota, made.protocol, made.metadata("createdby")),
        (Gib::new(5), Some(ShareProtocol::Smb), Some("azure"))
    );
    assert_eq!(region.get_share(&share, Usage::Omitted, Priority::Read, &until).await.unwrap().model, made);
    let counted = region.get_share(&share, Usage::Shown, Priority::Read, &until).await.unwrap().model;
    assert_eq!((made.used_bytes, counted.used_bytes), (None, Some(0)));
    let change = ShareChange { quota: Some(Gib::new(7)), ..ShareChange::default() };
    let changed = region.change_share(&share, &change, None, &until).await.unwrap();
    assert_eq!((changed.quota, &changed.metadata), (Gib::new(7), &made.metadata));
    for _ in 0..2 {
        region.delete_share(&share, None, &until).await.unwrap();
    }
    assert_eq!(rig.statuses("DELETE", "pvc-1"), [200, 204]);
}

#[tokio::test(start_paused = true)]
async fn an_accounts_and_a_shares_life_over_tcp_and_in_process_is_the_same_call_by_call() {
    let mut logs = Vec::new();
    for way in [Way::Tcp, Way::InProcess, Way::InProcess] {
        let (rig, region, storage) = storage_with(way, typical()).await;
        life(&rig, &region, &storage).await;
        assert!(rig.compute.arm().median(Kind::StorageAccount).is_some());
        assert_eq!(rig.emulator.control().violations(), Vec::<String>::new());
        logs.push(rig.calls());
        rig.emulator.shutdown().await;
    }
    assert_eq!(logs[1], logs[2]);
    assert_eq!(logs[0], logs[1]);
}

#[tokio::test(start_paused = true)]
async fn what_this_client_does_not_know_survives_its_writes() {
    let options = Options { future_fields: true, nasty_casing: true, ..typical() };
    let (rig, region, storage) = storage_with(Way::InProcess, options).await;
    life(&rig, &region, &storage).await;
    assert_eq!(rig.emulator.control().violations(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_creation_is_noticed_within_a_second_or_two_and_costs_few_polls() {
    let (rig, region) = storage().await;
    let began = Instant::now();
    make_standard(&region, "files").await;
    let took = began.elapsed();
    assert!(took >= Duration::from_secs(20) && took < Duration::from_secs(22), "{took:?}");
    let polls = rig.calls().iter().filter(|call| call.contains("asyncoperations")).count();
    assert!((1..=7).contains(&polls), "{polls}");
}

#[tokio::test(start_paused = true)]
async fn a_creation_that_fails_at_its_end_says_why() {
    let (rig, region) = storage().await;
    let late = json!({"code": "MaxStorageAccountsCountPerSubscriptionExceeded", "message": "too many"});
    incident(&rig, json!({"match": {"method": "PUT"}, "then": {"lateFailure": late}}));
    let spec = account_spec(StorageSku::StandardLrs, AccountKind::StorageV2);
    let mut operation = region.create_account(&account_id("files"), &spec, None, &an_hour()).await.unwrap();
    let error = operation.wait(&an_hour()).await.unwrap_err();
    assert_eq!(error.fault, Fault::Exhausted, "{error}");
}

#[tokio::test(start_paused = true)]
async fn each_kind_of_account_has_its_shares() {
    let (_rig, region) = storage().await;
    make(&region, "premium", &account_spec(StorageSku::PremiumLrs, AccountKind::FileStorage)).await;
    let nfs =
        ShareSpec { protocol: Some(ShareProtocol::Nfs), root_squash: Some(RootSquash::AllSquash), ..share_spec(100) };
    let made = region.create_share(&share_id("premium", "pvcn-1"), &nfs, None, &an_hour()).await.unwrap().shown;
    assert_eq!((made.protocol, made.root_squash), (Some(ShareProtocol::Nfs), Some(RootSquash::AllSquash)));
    make(&region, "fast", &account_spec(StorageSku::StandardV2Lrs, AccountKind::FileStorage)).await;
    let fast = ShareSpec { provisioned_iops: Some(2_000), provisioned_bandwidth: Some(80), ..share_spec(32) };
    let made = region.create_share(&share_id("fast", "pvc-1"), &fast, None, &an_hour()).await.unwrap().shown;
    assert_eq!((made.provisioned_iops, made.provisioned_bandwidth), (Some(2_000), Some(80)));
    let faster = ShareChange { provisioned_iops: Some(3_000), ..ShareChange::default() };
    let made = region.change_share(&share_id("fast", "pvc-1"), &faster, None, &an_hour()).await.unwrap();
    assert_eq!((made.provisioned_iops, made.provisioned_bandwidth), (Some(3_000), Some(80)));
}

#[tokio::test(start_paused = true)]
async fn lists_come_page_by_page_with_snapshots_and_deleted_shares_where_they_are_asked_for() {
    let (rig, region, storage) = storage_with(Way::InProcess, Options { page_size: 2, ..typical() }).await;
    for name in ["files1", "files2", "files3"] {
        make_standard(&region, name).await;
    }
    let list = storage.list_accounts(scenario::SUBSCRIPTION, None, Priority::List, &an_hour()).unwrap();
    assert_eq!(pages(list, |account| account.name().to_owned()).await, [vec!["files1", "files2"], vec!["files3"]]);
    for name in ["a-1", "a-2", "b-1", "b-2"] {
        region.create_share(&share_id("files1", name), &share_spec(1), None, &an_hour()).await.unwrap();
    }
    let snapshot = crate::arm::Write::put(share_id("files1", "b-1").as_str(), "2025-01-01", json!({}), Kind::Other);
    rig.compute.arm().write(snapshot.query("$expand", "snapshots"), &an_hour()).await.unwrap();
    region.delete_share(&share_id("files1", "a-1"), None, &an_hour()).await.unwrap();
    for (list, expected) in [
        (ShareList::default(), vec!["a-2", "b-1", "b-2"]),
        (ShareList { deleted: true, ..ShareList::default() }, vec!["a-1 deleted", "a-2", "b-1", "b-2"]),
        (ShareList { snapshots: true, ..ShareList::default() }, vec!["a-2", "b-1", "b-1 snapshot", "b-2"]),
        (ShareList { prefix: "b".into(), snapshots: true, deleted: true }, vec!["b-1", "b-1 snapshot", "b-2"]),
    ] {
        let pages =
            pages(region.list_shares(&account_id("files1"), &list, Priority::List, &an_hour()).unwrap(), name_of);
        let pages = pages.await;
        assert!(pages.iter().all(|page| page.len() <= 2) && pages.len() >= 2, "{pages:?}");
        assert_eq!(pages.concat(), expected, "{list:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_share_with_snapshots_is_not_deleted() {
    let (rig, region) = storage().await;
    make_standard(&region, "files").await;
    let share = share_id("files", "pvc-1");
    region.create_share(&share, &share_spec(1), None, &an_hour()).await.unwrap();
    let snapshot = crate::arm::Write::put(share.as_str(), "2025-01-01", json!({}), Kind::Other);
    rig.compute.arm().write(snapshot.query("$expand", "snapshots"), &an_hour()).await.unwrap();
    let error = region.delete_share(&share, None, &an_hour()).await.unwrap_err();
    assert_eq!((error.fault.clone(), error.effect), (Fault::InUse, Effect::None), "{error}");
    region.get_share(&share, Usage::Omitted, Priority::Read, &an_hour()).await.unwrap();
}

fn refused<T>(answer: Result<T, ArmError>) -> Fault {
    match answer {
        Ok(_) => panic!("Azure took it"),
        Err(error) => {
            assert_eq!(error.effect, Effect::None, "{error}");
            error.fault.clone()
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_azure_refuses_is_sorted_by_what_the_caller_may_do() {
    let (rig, region) = storage().await;
    let (until, standard) = (an_hour(), account_spec(StorageSku::StandardLrs, AccountKind::StorageV2));
    let read = Priority::Read;
    let nobody = account_id("nobody");
    assert_eq!(refused(region.list_keys(&nobody, read, &until).await), Fault::NotFound);
    assert_eq!(refused(region.set_tags(&nobody, &BTreeMap::new(), None, &until).await), Fault::NotFound);
    assert_eq!(refused(region.get_file_service(&nobody, read, &until).await), Fault::ScopeNotFound);
    // What is below a missing account is not said to be missing.
    let below = share_id("nobody", "pvc-1");
    assert_eq!(refused(region.get_share(&below, Usage::Omitted, read, &until).await), Fault::ScopeNotFound);
    assert_eq!(refused(region.create_share(&below, &share_spec(1), None, &until).await), Fault::ScopeNotFound);
    assert_eq!(refused(region.delete_share(&below, None, &until).await), Fault::ScopeNotFound);
    let mut list = region.list_shares(&nobody, &ShareList::default(), Priority::List, &until).unwrap();
    assert_eq!(refused(list.next_page().await), Fault::ScopeNotFound);
    let elsewhere = ArmId::storage_account(scenario::SUBSCRIPTION, "no-such-group", "files").unwrap();
    assert_eq!(refused(region.get_account(&elsewhere, read, &until).await), Fault::ScopeNotFound);

    assert_eq!(refused(region.create_account(&account_id("No-Name"), &standard, None, &until).await), Fault::Invalid);
    let odd_kind = account_spec(StorageSku::StandardLrs, AccountKind::FileStorage);
    assert_eq!(refused(region.create_account(&account_id("odd"), &odd_kind, None, &until).await), Fault::Invalid);
    let mut operation = region.create_account(&account_id("files"), &standard, None, &until).await.unwrap();
    // While it is made it is busy, and has no keys yet.
    assert_eq!(refused(region.list_keys(&account_id("files"), read, &until).await), Fault::Conflict);
    assert_eq!(refused(region.create_account(&account_id("files"), &standard, None, &until).await), Fault::Conflict);
    operation.settle(&until).await.unwrap();

    let share = share_id("files", "pvc-1");
    let nfs = ShareSpec { protocol: Some(ShareProtocol::Nfs), ..share_spec(100) };
    assert_eq!(refused(region.create_share(&share, &nfs, None, &until).await), Fault::Invalid);
    assert_eq!(refused(region.create_share(&share, &share_spec(600_000), None, &until).await), Fault::Invalid);
    let odd = share_id("files", "Not--A-Name");
    assert_eq!(refused(region.create_share(&odd, &share_spec(1), None, &until).await), Fault::Invalid);
    let grow = ShareChange { quota: Some(Gib::new(2)), ..ShareChange::default() };
    assert_eq!(refused(region.change_share(&share, &grow, None, &until).await), Fault::NotFound);
    // Its name is not free at once where deleted shares are not kept.
    let off = FileServiceSpec { share_delete_retention: Some(false), ..FileServiceSpec::default() };
    let service = region.get_file_service(&account_id("files"), read, &until).await.unwrap();
    region.change_file_service(&account_id("files"), &service, &off, None, &until).await.unwrap();
    region.create_share(&share, &share_spec(1), None, &until).await.unwrap();
    region.delete_share(&share, None, &until).await.unwrap();
    assert_eq!(refused(region.create_share(&share, &share_spec(1), None, &until).await), Fault::Conflict);

    make(&region, "small", &account_spec(StorageSku::PremiumLrs, AccountKind::FileStorage)).await;
    region.create_share(&share_id("small", "most"), &share_spec(102_400), None, &until).await.unwrap();
    let more = region.create_share(&share_id("small", "more"), &share_spec(100), None, &until).await;
    assert_eq!(refused(more), Fault::AccountFull);
    incident(&rig, json!({"then": {"status": 409, "code": "ScopeLocked"}}));
    assert_eq!(refused(region.delete_share(&share, None, &until).await), Fault::Locked);
}

#[tokio::test(start_paused = true)]
async fn sixty_creations_at_once_are_sent_as_fast_as_the_provider_takes_them_and_none_is_refused() {
    // With and without knowledge of the region.
    for location in [Some(scenario::LOCATION), None] {
        let (rig, _, storage) = storage_with(Way::InProcess, typical()).await;
        let region = storage.in_region(location);
        make_standard(&region, "files").await;
        let began = Instant::now();
        let mut made = JoinSet::new();
        for at in 0..60 {
            let region = region.clone();
            made.spawn(async move {
                let share = share_id("files", &format!("pvc-{at}"));
                assert_eq!(
                    refused(region.get_share(&share, Usage::Omitted, Priority::Read, &an_hour()).await),
                    Fault::NotFound
                );
                region.create_share(&share, &share_spec(1), None, &an_hour()).await.unwrap();
                region.list_keys(&account_id("files"), Priority::Read, &an_hour()).await.unwrap();
            });
        }
        while let Some(one) = made.join_next().await {
            one.unwrap();
        }
        let (took, calls) = (began.elapsed(), rig.emulator.control().call_log());
        assert!(calls.iter().all(|call| call.status != 429), "a request was refused");
        // Ten a second: the last ten after five seconds.
        assert!(took >= Duration::from_secs(5) && took < Duration::from_secs(7), "{took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn two_processes_that_share_the_limits_both_finish_and_few_requests_are_refused() {
    let (rig, region, _) = storage_with(Way::InProcess, typical()).await;
    make_standard(&region, "files").await;
    let other = super::client(&rig.transport, super::principal());
    let other = Storage::new(other.arm().clone()).in_region(Some(scenario::LOCATION));
    let began = Instant::now();
    let mut made = JoinSet::new();
    for at in 0..200 {
        let region = if at % 2 == 0 { region.clone() } else { other.clone() };
        made.spawn(async move {
            // The way to Azure takes some time, and not always the same.
            tokio::time::sleep(Duration::from_millis(at * 7 % 90)).await;
            let share = share_id("files", &format!("pvc-{at}"));
            region.create_share(&share, &share_spec(1), None, &an_hour()).await.unwrap();
        });
    }
    while let Some(one) = made.join_next().await {
        one.unwrap();
    }
    let (took, calls) = (began.elapsed(), rig.emulator.control().call_log());
    let refused = calls.iter().filter(|call| call.status == 429).count();
    // Azure takes two hundred in nineteen seconds.
    assert!(took < Duration::from_secs(25) && refused < 20, "{refused} refused in {took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_429_pauses_the_writes_of_the_region_for_as_long_as_it_says() {
    let (rig, region, storage) = storage_with(Way::InProcess, typical()).await;
    make_standard(&region, "files").await;
    make_standard(&region, "others").await;
    incident(
        &rig,
        json!({"match": {"method": "PUT"}, "then": {"status": 429, "code": "TooManyRequests", "retryAfter": 9}}),
    );
    let began = Instant::now();
    let refused = async {
        region.create_share(&share_id("files", "pvc-1"), &share_spec(1), None, &an_hour()).await.unwrap();
        began.elapsed()
    };
    let held = async {
        // It comes after the refusal, and is of another account.
        tokio::time::sleep(Duration::from_millis(500)).await;
        region.delete_share(&share_id("others", "pvc-2"), None, &an_hour()).await.unwrap();
        began.elapsed()
    };
    let free = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        region.get_account(&account_id("files"), Priority::Read, &an_hour()).await.unwrap();
        let elsewhere = storage.in_region(Some("northeurope"));
        elsewhere.delete_share(&share_id("others", "pvc-3"), None, &an_hour()).await.unwrap();
        began.elapsed()
    };
    let (refused, held, free) = tokio::join!(refused, held, free);
    for waited in [refused, held] {
        assert!(waited >= Duration::from_secs(9) && waited < Duration::from_secs(11), "{waited:?}");
    }
    assert!(free < Duration::from_secs(2), "{free:?}");
    // Who may not wait so long is told at once.
    incident(
        &rig,
        json!({"match": {"method": "PUT"}, "then": {"status": 429, "code": "TooManyRequests", "retryAfter": 900}}),
    );
    let began = Instant::now();
    let error = region.create_share(&share_id("files", "pvc-9"), &share_spec(1), None, &an_hour()).await.unwrap_err();
    assert_eq!(error.fault, Fault::Throttled { retry_after: Some(Duration::from_secs(900)) }, "{error}");
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_write_under_a_permit_goes_out_once_or_not_at_all() {
    let (rig, region) = storage().await;
    make_standard(&region, "files").await;
    let share = share_id("files", "pvc-1");
    let permit = region.permit(Verb::Put, &share, Priority::Create, &an_hour()).await.unwrap();
    region.create_share(&share, &share_spec(1), Some(permit), &an_hour()).await.unwrap();
    for _ in 0..12 {
        drop(region.permit(Verb::Delete, &share, Priority::Create, &an_hour()).await.unwrap());
    }
    incident(&rig, json!({"match": {"method": "DELETE"}, "then": {"status": 503}}));
    let permit = region.permit(Verb::Delete, &share, Priority::Create, &an_hour()).await.unwrap();
    let error = region.delete_share(&share, Some(permit), &an_hour()).await.unwrap_err();
    assert_eq!((error.fault.clone(), error.effect), (Fault::OutcomeUnknown, Effect::Possible), "{error}");
    assert_eq!(rig.statuses("DELETE", "pvc-1"), [503]);
    // A window that is full has no permit now, and has one in a second.
    let mut permits = Vec::new();
    while let Some(permit) = region.try_permit(Verb::Put, &share, Priority::Create) {
        permits.push(permit);
    }
    assert!(permits.len() < 11, "{}", permits.len());
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_made_up_for_where_that_is_safe_and_told_where_it_is_not() {
    let (rig, region) = storage().await;
    let lose = |method: &str| incident(&rig, json!({"match": {"method": method}, "then": {"loseAnswer": "after"}}));
    let files = account_id("files");
    let spec = account_spec(StorageSku::StandardLrs, AccountKind::StorageV2);
    lose("PUT");
    let error = region.create_account(&files, &spec, None, &an_hour()).await.unwrap_err();
    assert_eq!((error.fault.clone(), error.effect), (Fault::OutcomeUnknown, Effect::Possible), "{error}");
    assert_eq!(rig.statuses("PUT", "/files").len(), 1);
    tokio::time::sleep(Duration::from_secs(30)).await;
    region.get_account(&files, Priority::Read, &an_hour()).await.unwrap();

    let share = share_id("files", "pvc-1");
    lose("PUT");
    let made = region.create_share(&share, &share_spec(1), None, &an_hour()).await.unwrap().shown;
    assert_eq!(made.quota, Gib::new(1));
    lose("PATCH");
    let grow = ShareChange { quota: Some(Gib::new(2)), ..ShareChange::default() };
    let error = region.change_share(&share, &grow, None, &an_hour()).await.unwrap_err();
    assert_eq!(error.fault, Fault::OutcomeUnknown, "{error}");
    assert_eq!(rig.statuses("PATCH", "pvc-1").len(), 1);
    lose("DELETE");
    region.delete_share(&share, None, &an_hour()).await.unwrap();
    assert_eq!(rig.statuses("DELETE", "pvc-1").len(), 2);
    // Reading keys is a POST, and changes nothing however often it is sent.
    lose("POST");
    region.list_keys(&files, Priority::Read, &an_hour()).await.unwrap();
    incident(&rig, json!({"match": {"method": "POST"}, "then": {"loseAnswer": "after"}, "times": 0}));
    let error = region.list_keys(&files, Priority::Read, &an_hour()).await.unwrap_err();
    assert_eq!((error.fault.clone(), error.effect), (Fault::Unavailable, Effect::None), "{error}");
    let short = Until::within(Duration::from_secs(2));
    let error = region.list_keys(&files, Priority::Read, &short).await.unwrap_err();
    assert_eq!(error.effect, Effect::None, "{error}");
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
async fn no_key_is_printed_or_logged() {
    let logged = Logged::default();
    let writer = logged.clone();
    let subscriber =
        tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_writer(move || writer.clone()).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let (rig, region) = storage().await;
    make_standard(&region, "files").await;
    incident(&rig, json!({"match": {"method": "POST"}, "then": {"status": 429, "retryAfter": 1}}));
    let keys = region.list_keys(&account_id("files"), Priority::Read, &an_hour()).await.unwrap();
    let printed = format!("{keys:?} {:?} {region:?}", serde_json::to_string(&keys[0].value));
    let logged = String::from_utf8(logged.0.lock().unwrap().clone()).unwrap();
    assert!(logged.contains("listKeys"), "the request was not logged: {logged}");
    for key in &keys {
        let key = key.value.expose();
        assert!(!printed.contains(key) && !logged.contains(key) && !logged.contains(&key[..16]));
    }
    assert!(printed.contains("<redacted>"));
}

#[tokio::test(start_paused = true)]
async fn an_account_is_counted_and_deleted() {
    let (_rig, storage) = storage().await;
    let (account, until) = (account_id("counted"), an_hour());
    let shares = storage.count_shares(&account, Priority::Read, &until).await.unwrap_err();
    assert_eq!(shares.fault, Fault::ScopeNotFound);
    make_standard(&storage, "counted").await;
    for name in ["one", "two"] {
        storage.create_share(&share_id("counted", name), &share_spec(5), None, &until).await.unwrap();
    }
    storage.delete_share(&share_id("counted", "two"), None, &until).await.unwrap();
    assert_eq!(storage.count_shares(&account, Priority::Read, &until).await.unwrap(), 2, "one can be restored");
    assert_eq!(storage.count_tables(&account, Priority::Read, &until).await.unwrap(), 0);
    assert_eq!(storage.count_queues(&account, Priority::Read, &until).await.unwrap(), 0);
    for _ in 0..2 {
        storage.delete_account(&account, None, &until).await.unwrap();
    }
    let gone = storage.get_account(&account, Priority::Read, &until).await.unwrap_err();
    assert_eq!(gone.fault, Fault::NotFound);
    let gone = storage.count_queues(&account, Priority::Read, &until).await.unwrap_err();
    assert_eq!(gone.fault, Fault::ScopeNotFound);
}

#[tokio::test(start_paused = true)]
async fn an_account_of_premium_page_blobs_has_nothing_else_to_count() {
    let (_rig, storage) = storage().await;
    make(&storage, "premium", &account_spec(StorageSku::PremiumLrs, AccountKind::StorageV2)).await;
    let (account, until) = (account_id("premium"), an_hour());
    let refused = [
        storage.count_shares(&account, Priority::Read, &until).await,
        storage.count_tables(&account, Priority::Read, &until).await,
        storage.count_queues(&account, Priority::Read, &until).await,
    ];
    for refused in refused {
        assert_eq!(refused.unwrap_err().code, "FeatureNotSupportedForAccount");
    }
}
