//! Shares on an emulated Azure, on paused time.

mod network;

use std::{collections::BTreeMap, time::Duration};

use lazuli_azure::{
    on_emulator::{client, principal, routes},
    storage::Storage,
    transport::Transport,
};
use lazuli_emulator::{Emulator, Options, scenario};
use lazuli_model::{
    AccessMode,
    fault::{Code, Fault},
};
use lazuli_shares::{
    deletion::DRIVER_NAME,
    parameters::Defaults,
    share::{Access, Capability, Request, plan_create},
};
use tokio::{task::JoinSet, time::Instant};

use super::*;

struct Rig {
    emulator: Emulator,
    volumes: watch::Sender<ShareVolumes>,
}

impl Rig {
    async fn start(options: Options) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let volumes = watch::channel(Some(Arc::default())).0;
        Self { emulator: Emulator::start(options).await.unwrap(), volumes }
    }

    /// A replica of the controller, which knows nothing of others.
    fn replica(&self, seed: u64) -> Shares {
        let routes = routes(&self.emulator.url().parse().unwrap());
        replica(Transport::in_process(routes, self.emulator.service()), self.volumes.subscribe(), seed)
    }
}

fn replica(transport: Transport, volumes: watch::Receiver<ShareVolumes>, seed: u64) -> Shares {
    let credential = principal(scenario::TENANT, scenario::CLIENT_ID, scenario::CLIENT_SECRET);
    let arm = client(transport, credential, seed);
    Shares::new(Settings {
        network: Network::new(arm.clone(), lazuli_azure::network::API_VERSION),
        storage: Storage::new(arm),
        volumes,
        driver_name: DRIVER_NAME.into(),
        subscription: scenario::SUBSCRIPTION.into(),
        resource_group: scenario::RESOURCE_GROUP.into(),
        allowed_resource_groups: AllowedResourceGroups::of(vec!["team".parse().unwrap()]),
        metrics: Metrics::unregistered(),
        journal: Recorder::nowhere(),
    })
}

fn plan(name: &str, parameters: &[(&str, &str)]) -> Arc<SharePlan> {
    let defaults = Defaults {
        subscription: scenario::SUBSCRIPTION.into(),
        resource_group: scenario::RESOURCE_GROUP.into(),
        location: scenario::LOCATION.into(),
        storage_endpoint_suffix: "core.windows.net".into(),
        vnet_resource_group: String::new(),
        vnet_name: "lazuli-vnet".into(),
        subnet_name: "nodes".into(),
        driver_name: DRIVER_NAME.into(),
        ..Defaults::default()
    };
    let request = Request {
        name: name.into(),
        parameters: parameters.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        mutable_parameters: BTreeMap::new(),
        required_bytes: 5 << 30,
        limit_bytes: 0,
        capabilities: vec![Capability { access: Access::Mount, mode: AccessMode::MultiNodeMultiWriter }],
    };
    Arc::new(plan_create(&request, &defaults).unwrap())
}

async fn storm(shares: &Shares, count: usize, parameters: &'static [(&str, &str)]) -> Vec<Created> {
    let mut claims = JoinSet::new();
    for number in 0..count {
        let shares = shares.clone();
        claims.spawn(async move { shares.create(&plan(&format!("pvc-{number:04}"), parameters)).await.unwrap() });
    }
    claims.join_all().await
}

fn names(created: &[Created]) -> BTreeMap<String, usize> {
    let mut names = BTreeMap::new();
    for created in created {
        *names.entry(created.account.name().to_owned()).or_insert(0) += 1;
    }
    names
}

#[tokio::test(start_paused = true)]
async fn a_storm_of_claims_makes_one_account_and_is_never_throttled() {
    let rig = Rig::start(Options::default()).await;
    let shares = rig.replica(1);
    let began = Instant::now();
    let created = storm(&shares, 200, &[]).await;
    let took = began.elapsed();
    assert_eq!(names(&created).into_values().collect::<Vec<_>>(), [200]);
    let calls = rig.emulator.control().call_log();
    assert_eq!(calls.iter().filter(|call| call.status == 429).count(), 0);
    assert!(took < Duration::from_secs(60), "{took:?}");
    let reads = calls.iter().filter(|call| call.method == "GET" && call.path.contains("Microsoft.Storage")).count();
    assert!(reads < 30, "{reads} reads");
}

#[tokio::test(start_paused = true)]
async fn accounts_of_fifty_shares_are_filled_one_after_the_other() {
    let rig = Rig::start(Options::default()).await;
    let created = storm(&rig.replica(1), 120, &[("skuName", "StandardV2_LRS")]).await;
    let mut counts: Vec<usize> = names(&created).into_values().collect();
    counts.sort_unstable();
    assert_eq!(counts, [20, 50, 50]);
}

#[tokio::test(start_paused = true)]
async fn a_share_lives_from_its_claim_to_its_deletion() {
    let rig = Rig::start(Options::default()).await;
    let shares = rig.replica(1);
    let plan = plan("pvc-1", &[]);
    let created = shares.create(&plan).await.unwrap();
    assert_eq!(created.size, Gib::new(5));
    let keys = shares.keys(&created.account.id).await.unwrap();
    assert_eq!(keys.len(), 2);
    let answer = plan.answer(&created.account.id, created.size).unwrap();
    let volume = ShareVolumeId::parse(&answer.volume_id).unwrap();
    assert!(shares.exists(&volume).await.unwrap());
    // A replica without memory finds what the other has made.
    let other = rig.replica(2);
    let again = other.create(&plan).await.unwrap();
    assert_eq!((again.account.id, again.size), (created.account.id, created.size));
    assert_eq!(other.expand(&volume, 7 << 30, 0).await.unwrap(), Gib::new(7));
    assert_eq!(shares.expand(&volume, 6 << 30, 0).await.unwrap(), Gib::new(7));
    // A retry after the expansion does not take the size back.
    let pv = VolumeRef::of_driver("pvc-1", &answer.volume_id, &BTreeMap::new(), false).with_size(Some(Gib::new(7)));
    rig.volumes.send_replace(Some(Arc::new(vec![pv])));
    assert_eq!(rig.replica(3).create(&plan).await.unwrap().size, Gib::new(7));
    assert_eq!(other.expand(&volume, 1 << 30, 0).await.unwrap(), Gib::new(7));
    // It stays as long as it is not known who else names it.
    rig.volumes.send_replace(None);
    let error = shares.delete(volume.clone(), None).await.unwrap_err();
    assert_eq!((error.fault.clone(), error.code()), (Fault::Unavailable, Some(Code::Unavailable)), "{error}");
    // Nor as long as its own PersistentVolume is not seen to be released.
    let pv = |name: &str, released| VolumeRef::of_driver(name, &answer.volume_id, &BTreeMap::new(), released);
    rig.volumes.send_replace(Some(Arc::new(vec![pv("pvc-1", false)])));
    let error = shares.delete(volume.clone(), None).await.unwrap_err();
    assert_eq!(error.code(), Some(Code::Unavailable), "{error}");
    rig.volumes.send_replace(Some(Arc::new(vec![pv("pvc-1", true), pv("pv-2", false)])));
    let kept = shares.delete(volume.clone(), None).await.unwrap();
    let Deleted::Kept { kept: Kept::Shared { .. }, volume: persistent_volume } = kept else { panic!("{kept:?}") };
    assert_eq!(persistent_volume.as_deref(), Some("pvc-1"));
    rig.volumes.send_replace(Some(Arc::default()));
    for _ in 0..2 {
        assert_eq!(shares.delete(volume.clone(), None).await.unwrap(), Deleted::Gone);
        assert!(!other.exists(&volume).await.unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn an_account_that_is_deleted_is_chosen_no_more() {
    let rig = Rig::start(Options::default()).await;
    let shares = rig.replica(1);
    let created = shares.create(&plan("pvc-1", &[])).await.unwrap();
    let arm = shares.regions.storage().arm();
    let deletion =
        lazuli_azure::arm::Write::delete(created.account.id.as_str(), "2025-01-01", lazuli_quota::poll::Kind::Other);
    arm.write(deletion, &lazuli_azure::Until::within(Duration::from_secs(60))).await.unwrap();
    let again = shares.create(&plan("pvc-2", &[])).await.unwrap();
    assert_eq!(again.account.id, created.account.id, "its name follows from what is asked for");
}

#[tokio::test(start_paused = true)]
async fn an_account_that_waits_for_its_permit_is_not_made_when_its_claims_have_given_up() {
    let rig = Rig::start(Options::default()).await;
    let shares = rig.replica(1);
    let writes = |of_shares: bool| {
        let calls = rig.emulator.control().call_log();
        calls.iter().filter(|call| call.method == "PUT" && call.path.contains("/shares/") == of_shares).count()
    };
    let others = tokio::spawn({
        let shares = shares.clone();
        async move { storm(&shares, 200, &[]).await }
    });
    while writes(true) < 5 {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // The account would be the second one, and waits behind the shares.
    let other = plan("pvc-other", &[("skuName", "StandardV2_LRS")]);
    let given_up = tokio::time::timeout(Duration::from_secs(2), shares.create(&other)).await;
    assert!(given_up.is_err() && writes(true) < 150, "shares are made at 10 a second");
    others.await.unwrap();
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!((writes(false), writes(true)), (1, 200));
    shares.create(&other).await.unwrap();
    assert_eq!(writes(false), 2);
}

#[tokio::test(start_paused = true)]
async fn a_failed_listing_of_keys_answers_for_five_seconds() {
    let rig = Rig::start(Options::default()).await;
    let shares = rig.replica(1);
    let account = ArmId::storage_account(scenario::SUBSCRIPTION, scenario::RESOURCE_GROUP, "missing").unwrap();
    let first = shares.keys(&account).await.unwrap_err();
    let again = shares.keys(&account).await.unwrap_err();
    let same = |one: &ShareError, other: &ShareError| {
        let source =
            |error: &ShareError| std::error::Error::source(error).map(|source| std::ptr::from_ref(source).cast::<()>());
        source(one).is_some() && source(one) == source(other)
    };
    assert!(same(&first, &again), "{again}");
    tokio::time::sleep(Duration::from_secs(6)).await;
    let later = shares.keys(&account).await.unwrap_err();
    assert!(!same(&first, &later), "{later}");
}
