//! The network of accounts on an emulated Azure: made once, found again, left to people, and finished after a stop.

use std::task::{Context, Poll};

use futures::future::{BoxFuture, FutureExt as _};
use lazuli_azure::network::API_VERSION;
use lazuli_emulator::{call_log::Call, control::Control, latency::Profile};
use lazuli_shares::account::candidate_name;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tower::Service;

use super::*;

const PRIVATE: &[(&str, &str)] = &[("networkEndpointType", "privateEndpoint"), ("vnetLinkName", "cluster")];
const SERVICE: &[(&str, &str)] = &[("networkEndpointType", "serviceEndpoint")];
const ZONE: &str = "privateDnsZones/privatelink.file.core.windows.net";

fn slow() -> Options {
    Options { latency: Profile::typical(), ..Options::default() }
}

/// The writes that Azure has accepted, by what they are to: their path after the provider.
fn accepted(control: &Control) -> Vec<String> {
    let calls = control.call_log();
    let is_write = |call: &&Call| !["GET", "POST"].contains(&call.method.as_str()) && call.status < 300;
    let path = |call: &Call| call.path.split("/providers/Microsoft.").nth(1).unwrap_or(&call.path).to_owned();
    calls.iter().filter(is_write).map(path).collect()
}

fn writes(rig: &Rig) -> Vec<String> {
    accepted(&rig.emulator.control())
}

fn reads_of_network(rig: &Rig) -> usize {
    let calls = rig.emulator.control().call_log();
    calls.iter().filter(|call| call.method == "GET" && call.path.contains("Microsoft.Network")).count()
}

fn account_of(parameters: &[(&str, &str)]) -> String {
    candidate_name(&plan("pvc-1", parameters).account_request(), 0)
}

/// All writes of the first claim of a class, in their order.
fn of_first_claim(parameters: &[(&str, &str)]) -> Vec<String> {
    let name = account_of(parameters);
    let (account, endpoint) =
        (format!("Storage/storageAccounts/{name}"), format!("Network/privateEndpoints/{name}-pvtendpoint"));
    let share = format!("{account}/fileServices/default/shares/pvc-1");
    if parameters == SERVICE {
        return vec!["Network/virtualNetworks/lazuli-vnet/subnets/nodes".to_owned(), account, share];
    }
    let (zone, link) = (format!("Network/{ZONE}"), format!("Network/{ZONE}/virtualNetworkLinks/cluster"));
    let group = format!("{endpoint}/privateDnsZoneGroups/{name}-dnszonegroup");
    vec![zone, link, account, endpoint, group, share]
}

fn arm(shares: &Shares) -> &lazuli_azure::arm::Arm {
    shares.regions.storage().arm()
}

fn id(rest: &str) -> String {
    let (subscription, group) = (scenario::SUBSCRIPTION, scenario::RESOURCE_GROUP);
    format!("/subscriptions/{subscription}/resourceGroups/{group}/providers/Microsoft.{rest}")
}

fn minute() -> lazuli_azure::Until {
    lazuli_azure::Until::within(Duration::from_secs(60))
}

async fn get(shares: &Shares, rest: &str) -> Value {
    let version = if rest.contains("privateDnsZones") { "2020-06-01" } else { API_VERSION };
    let version = if rest.starts_with("Storage") { "2025-01-01" } else { version };
    arm(shares).get(&id(rest), version, &[], Priority::Read, &minute()).await.unwrap().value
}

#[tokio::test(start_paused = true)]
async fn an_account_for_subnets_comes_after_their_service_endpoints_and_the_next_claim_writes_its_share_alone() {
    let rig = Rig::start(slow()).await;
    let shares = rig.replica(1);
    let before = get(&shares, "Network/virtualNetworks/lazuli-vnet/subnets/nodes").await;
    shares.create(&plan("pvc-1", SERVICE)).await.unwrap();
    let mut all = of_first_claim(SERVICE);
    assert_eq!(writes(&rig), all);
    let after = get(&shares, "Network/virtualNetworks/lazuli-vnet/subnets/nodes").await;
    assert_eq!(after["properties"]["serviceEndpoints"][0]["service"], "Microsoft.Storage");
    assert_eq!(after["properties"]["addressPrefix"], before["properties"]["addressPrefix"]);
    let account = get(&shares, &all[1]).await;
    let rules = &account["properties"]["networkAcls"];
    assert_eq!((&rules["defaultAction"], &rules["virtualNetworkRules"][0]["id"]), (&json!("Deny"), &after["id"]));
    // Again, and from a replica without memory: nothing of the network is asked any more.
    let reads = reads_of_network(&rig);
    for (shares, name) in [(shares, "pvc-2"), (rig.replica(2), "pvc-3")] {
        shares.create(&plan(name, SERVICE)).await.unwrap();
        all.push(format!("{}/fileServices/default/shares/{name}", all[1]));
    }
    assert_eq!((writes(&rig), reads_of_network(&rig)), (all, reads));
}

#[tokio::test(start_paused = true)]
async fn a_private_account_gets_zone_link_endpoint_and_record_and_the_next_claim_writes_its_share_alone() {
    let rig = Rig::start(slow()).await;
    let shares = rig.replica(1);
    let created = storm(&shares, 20, PRIVATE).await;
    assert_eq!(names(&created).len(), 1);
    let of_network =
        |writes: Vec<String>| writes.into_iter().filter(|path| !path.contains("/shares/")).collect::<Vec<_>>();
    let all = of_first_claim(PRIVATE);
    assert_eq!(of_network(writes(&rig)), all[..5]);
    let account = get(&shares, &all[2]).await;
    assert_eq!(account["properties"]["networkAcls"]["defaultAction"], "Deny");
    let connection = &account["properties"]["privateEndpointConnections"][0]["properties"];
    assert_eq!(connection["privateLinkServiceConnectionState"]["status"], "Approved");
    assert_eq!(connection["privateEndpoint"]["id"], id(&all[3]));
    let group = get(&shares, &all[4]).await;
    let zone = &group["properties"]["privateDnsZoneConfigs"][0]["properties"];
    assert_eq!(zone["privateDnsZoneId"], id(&all[0]));
    assert_eq!(zone["recordSets"][0]["recordSetName"], created[0].account.name());
    let link = get(&shares, &all[1]).await;
    assert_eq!(link["properties"]["virtualNetwork"]["id"], id("Network/virtualNetworks/lazuli-vnet"));
    assert_eq!(link["properties"]["registrationEnabled"], false);
    let answer = plan("pvc-1", PRIVATE).answer(&created[0].account.id, Gib::new(5)).unwrap();
    let server = format!("{}.privatelink.file.core.windows.net", created[0].account.name());
    assert_eq!(answer.volume_context["server"], server);
    let reads = reads_of_network(&rig);
    shares.create(&plan("pvc-again", PRIVATE)).await.unwrap();
    assert_eq!(reads_of_network(&rig), reads);
    rig.replica(2).create(&plan("pvc-other", PRIVATE)).await.unwrap();
    assert_eq!(of_network(writes(&rig)), all[..5]);
    assert_eq!(reads_of_network(&rig), reads + 4, "a replica without memory reads endpoint, group, zone and links");
}

#[tokio::test(start_paused = true)]
async fn two_replicas_at_once_make_one_network() {
    for parameters in [SERVICE, PRIVATE] {
        let rig = Rig::start(slow()).await;
        let (one, other) = (rig.replica(1), rig.replica(2));
        let (a, b) = (plan("pvc-1", parameters), plan("pvc-2", parameters));
        let (a, b) = tokio::join!(one.create(&a), other.create(&b));
        assert_eq!(a.unwrap().account.id, b.unwrap().account.id);
        let accounts = writes(&rig).into_iter().filter(|path| path.starts_with("Storage") && !path.contains("shares/"));
        assert_eq!(accounts.count(), 1);
        if parameters == PRIVATE {
            let links = get(&one, &format!("Network/{ZONE}/virtualNetworkLinks")).await;
            assert_eq!(links["value"].as_array().unwrap().len(), 1);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_subnet_that_is_not_there_is_a_wrong_class_and_nothing_is_written() {
    for parameters in [
        &[("networkEndpointType", "privateEndpoint"), ("subnetName", "none")][..],
        &[("networkEndpointType", "serviceEndpoint"), ("subnetName", "nodes,none")],
        &[("networkEndpointType", "serviceEndpoint"), ("vnetName", "none")],
    ] {
        let rig = Rig::start(Options::default()).await;
        let error = rig.replica(1).create(&plan("pvc-1", parameters)).await.unwrap_err();
        assert_eq!(error.code(), Some(Code::InvalidArgument), "{error}");
        assert!(error.to_string().contains("subnetName") && error.to_string().contains("none"), "{error}");
        assert_eq!(writes(&rig), [""; 0]);
    }
}

#[tokio::test(start_paused = true)]
async fn an_account_whose_owner_gave_it_an_endpoint_is_used_and_nothing_of_the_network_is_asked() {
    let rig = Rig::start(Options::default()).await;
    let shares = rig.replica(1);
    let put = async |rest: &str, version: &str, body: Value| {
        let write = lazuli_azure::arm::Write::put(&id(rest), version, body, lazuli_quota::poll::Kind::Other);
        arm(&shares).write(write, &minute()).await.unwrap().settle(&minute()).await.unwrap();
    };
    let account = json!({"location": scenario::LOCATION, "sku": {"name": "Standard_LRS"}, "kind": "StorageV2",
        "properties": {"allowBlobPublicAccess": false}});
    put("Storage/storageAccounts/theirs", "2025-01-01", account).await;
    let endpoint = json!({"location": scenario::LOCATION, "properties": {
        "subnet": {"id": id("Network/virtualNetworks/lazuli-vnet/subnets/nodes")},
        "privateLinkServiceConnections": [{"name": "c", "properties": {
            "privateLinkServiceId": id("Storage/storageAccounts/theirs"), "groupIds": ["file"],
        }}],
    }});
    put("Network/privateEndpoints/theirs", API_VERSION, endpoint).await;
    let reads = reads_of_network(&rig);
    let created = shares.create(&plan("pvc-1", PRIVATE)).await.unwrap();
    assert_eq!((created.account.name(), reads_of_network(&rig)), ("theirs", reads));
}

/// The way to Azure of a process that is stopped once Azure has accepted so many writes: no answer comes and nothing goes
/// out any more.
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
            let is_stopped = || accepted(&control).len() >= after;
            if is_stopped() {
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

#[tokio::test(start_paused = true)]
async fn a_process_that_is_stopped_after_any_write_leaves_what_the_next_one_finishes() {
    for parameters in [SERVICE, PRIVATE] {
        for count in 1..=of_first_claim(parameters).len() {
            let rig = Rig::start(slow()).await;
            let routes = routes(&rig.emulator.url().parse().unwrap());
            let stopped = Arc::new(Notify::new());
            let way = Stopping {
                inner: rig.emulator.service(),
                control: rig.emulator.control(),
                after: count,
                stopped: stopped.clone(),
            };
            let first = replica(Transport::in_process(routes, way), rig.volumes.subscribe(), 1);
            let claim = plan("pvc-1", parameters);
            tokio::select! {
                created = first.create(&claim) => panic!("stopped after write {count}, and served: {created:?}"),
                () = stopped.notified() => {}
            }
            let created = rig.replica(2).create(&claim).await.unwrap();
            assert_eq!(created.account.name(), account_of(parameters));
            // A share is PUT again unread, for nobody else makes one of its name.
            let mut made = writes(&rig);
            made.dedup();
            assert_eq!(made, of_first_claim(parameters), "stopped after write {count}");
        }
    }
}
