//! Public IPs by the client against the emulator: made, changed under their ETag, deleted, and many at once.

use std::time::Duration;

use lazuli_emulator::{Options, latency::Profile, scenario};
use lazuli_model::{ArmId, fault::Fault};
use lazuli_quota::permit::Priority;
use serde_json::json;
use tokio::{task::JoinSet, time::Instant};

use super::{Way, rig};
use crate::{
    compute::Freshness,
    error::Verb,
    network::{API_VERSION, Network, NetworkType, NetworkWrite},
    testing::an_hour,
};

fn public_ip(name: &str) -> ArmId {
    let (subscription, group) = (scenario::SUBSCRIPTION, scenario::RESOURCE_GROUP);
    let path =
        format!("/subscriptions/{subscription}/resourceGroups/{group}/providers/Microsoft.Network/publicIPAddresses");
    format!("{path}/{name}").parse().unwrap()
}

async fn network() -> (super::Rig, Network) {
    let rig = rig(Way::InProcess, Options { latency: Profile::typical(), ..Options::default() }).await;
    let network = Network::new(rig.compute.arm().clone(), API_VERSION);
    (rig, network)
}

async fn make(network: &Network, id: &ArmId) {
    let permit = network.permit(Verb::Put, id, Priority::Create, &an_hour()).await.unwrap();
    let body = json!({"location": scenario::LOCATION, "sku": {"name": "Standard"},
        "properties": {"publicIPAllocationMethod": "Static"}});
    let write = NetworkWrite::Put { body, etag: None };
    let mut operation = network.write(NetworkType::PublicIp, id, write, permit, &an_hour()).await.unwrap();
    let made = operation.wait(&an_hour()).await.unwrap().expect("a creation shows what was made");
    assert_eq!(made["properties"]["provisioningState"], "Succeeded");
}

#[tokio::test(start_paused = true)]
async fn a_public_ip_is_made_changed_under_its_etag_and_deleted() {
    let (_rig, network) = network().await;
    let id = public_ip("one");
    let read = async || network.read(NetworkType::PublicIp, &id, Freshness::single(), &an_hour()).await;
    assert_eq!(read().await.unwrap_err().fault, Fault::NotFound);
    make(&network, &id).await;
    let before = read().await.unwrap();
    let mut body = (*before.body).clone();
    body["tags"] = json!({"k8s-azure-service": "default/web"});
    let put = |etag: &Option<String>| NetworkWrite::Put { body: body.clone(), etag: etag.clone() };
    let mut operation = network.write(NetworkType::PublicIp, &id, put(&before.etag), None, &an_hour()).await.unwrap();
    operation.settle(&an_hour()).await.unwrap();
    let after = read().await.unwrap();
    assert_eq!(after.body["tags"]["k8s-azure-service"], "default/web");
    assert_ne!(after.etag, before.etag);
    let refused = network.write(NetworkType::PublicIp, &id, put(&before.etag), None, &an_hour()).await;
    assert_eq!(refused.unwrap_err().fault, Fault::PreconditionFailed);
    let delete = NetworkWrite::Delete { etag: None };
    let mut operation = network.write(NetworkType::PublicIp, &id, delete, None, &an_hour()).await.unwrap();
    operation.settle(&an_hour()).await.unwrap();
    assert_eq!(read().await.unwrap_err().fault, Fault::NotFound);
}

#[tokio::test(start_paused = true)]
async fn many_creations_end_by_a_few_lists() {
    let (rig, network) = network().await;
    // A write that may not wait needs a token at hand; the read before it brings one.
    network.list(NetworkType::PublicIp, scenario::SUBSCRIPTION, scenario::RESOURCE_GROUP, &an_hour()).await.unwrap();
    let began = Instant::now();
    let mut made = JoinSet::new();
    for at in 0..120 {
        let network = network.clone();
        made.spawn(async move { make(&network, &public_ip(&format!("ip-{at}"))).await });
    }
    while let Some(one) = made.join_next().await {
        one.unwrap();
    }
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    let reads = rig.calls().iter().filter(|call| call.contains("\"GET\"")).count();
    assert!(reads < 60, "{reads} reads for 120 creations");
    let all = network.list(NetworkType::PublicIp, scenario::SUBSCRIPTION, scenario::RESOURCE_GROUP, &an_hour()).await;
    assert_eq!(all.unwrap().iter().filter(|ip| ip["name"].as_str().unwrap().starts_with("ip-")).count(), 120);
}
