//! Claims of classes with `networkEndpointType`: from CreateVolume to the objects in Azure, and the rights that it takes.

use std::collections::BTreeSet;

use lazuli_emulator::{call_log::Call, scenario};
use serde_json::Value;
use tonic::Code;

use super::{
    deploy_azure::{actions, needed, table},
    file_claims::{Rig, create, refused, request, view},
};

const SERVICE: (&str, &str) = ("networkEndpointType", "serviceEndpoint");
const PRIVATE: (&str, &str) = ("networkEndpointType", "privateEndpoint");

/// The writes that Azure has accepted, but those of shares, by their paths after the provider.
fn writes(rig: &Rig) -> Vec<String> {
    let calls = rig.lab.emulator.control().call_log();
    let is_write = |call: &&Call| call.method == "PUT" && call.status < 300 && !call.path.contains("/shares/");
    let path = |call: &Call| call.path.split("/providers/Microsoft.").nth(1).unwrap().to_owned();
    calls.iter().filter(is_write).map(path).collect()
}

fn shown(rig: &Rig, rest: &str) -> Value {
    let (subscription, group) = (scenario::SUBSCRIPTION, scenario::RESOURCE_GROUP);
    let id = format!("/subscriptions/{subscription}/resourceGroups/{group}/providers/Microsoft.{rest}");
    rig.lab.emulator.control().store(|store| store.document(&id)).unwrap().into_value()
}

/// The volume of a claim, and of the same claim again, asked of each of two replicas.
async fn claim(rig: &mut Rig, parameters: &[(&str, &str)]) -> (csi_proto::csi::Volume, Vec<String>) {
    let volume = create(&rig.client, request("pvc-1", 5, parameters)).await.unwrap();
    let made = writes(rig);
    let other = rig.lab.file_controller("other", view(&rig.volumes, &rig.server)).await.unwrap();
    for client in [&rig.client, &other] {
        assert_eq!(create(client, request("pvc-1", 5, parameters)).await.unwrap(), volume);
        create(client, request("pvc-2", 5, parameters)).await.unwrap();
    }
    assert_eq!(writes(rig), made, "what is there is not written again");
    (volume, made)
}

#[tokio::test]
async fn file_a_claim_for_subnets_gives_them_a_service_endpoint_and_an_account_that_lets_them_in() {
    let mut rig = Rig::start().await;
    let (volume, made) = claim(&mut rig, &[SERVICE]).await;
    let account = volume.volume_id.split('#').nth(1).unwrap();
    let subnet = "Network/virtualNetworks/lazuli-vnet/subnets/nodes";
    assert_eq!(made, [subnet, &format!("Storage/storageAccounts/{account}")]);
    let rules = &shown(&rig, &made[1])["properties"]["networkAcls"];
    assert_eq!(rules["defaultAction"], "Deny");
    assert!(rules["virtualNetworkRules"][0]["id"].as_str().unwrap().ends_with(subnet));
    assert!(!volume.volume_context.contains_key("server"));
}

#[tokio::test]
async fn file_a_claim_by_a_private_endpoint_gets_all_that_leads_to_its_server() {
    let mut rig = Rig::start().await;
    let parameters = [PRIVATE, ("vnetLinkName", "cluster"), ("storageEndpointSuffix", "core.windows.net")];
    let (volume, made) = claim(&mut rig, &parameters).await;
    let account = volume.volume_id.split('#').nth(1).unwrap();
    let zone = "Network/privateDnsZones/privatelink.file.core.windows.net";
    let endpoint = format!("Network/privateEndpoints/{account}-pvtendpoint");
    let expected = [
        zone.to_owned(),
        format!("{zone}/virtualNetworkLinks/cluster"),
        format!("Storage/storageAccounts/{account}"),
        endpoint.clone(),
        format!("{endpoint}/privateDnsZoneGroups/{account}-dnszonegroup"),
    ];
    assert_eq!(made, expected);
    let record = &shown(&rig, &made[4])["properties"]["privateDnsZoneConfigs"][0]["properties"]["recordSets"][0];
    assert_eq!(record["fqdn"].as_str(), volume.volume_context.get("server").map(String::as_str));
}

#[tokio::test]
async fn file_a_wrong_network_is_named_before_anything_is_written() {
    let rig = Rig::start().await;
    for (parameters, words) in [
        (&[("networkEndpointType", "public")][..], "serviceEndpoint"),
        (&[PRIVATE, ("subnetName", "nodes,more")], "subnetName"),
        (&[PRIVATE, ("subnetName", "none")], "subnets/none"),
        (&[SERVICE, ("subnetName", "nodes, none")], "subnets/none"),
        (&[SERVICE, ("privateDNSZoneResourceGroup", "g")], "privateDNSZoneResourceGroup"),
        (&[PRIVATE, ("vnetLinkName", "a/b")], "vnetLinkName"),
        (&[PRIVATE, ("privateDNSZoneResourceGroup", "nowhere")], "resourceGroups/nowhere"),
    ] {
        let message = refused(create(&rig.client, request("pvc-1", 5, parameters)).await, Code::InvalidArgument);
        assert!(message.contains(words), "{message}");
    }
    assert_eq!(writes(&rig), [""; 0]);
}

#[tokio::test]
async fn file_the_role_of_the_network_allows_what_its_classes_ask_of_azure_and_nothing_else() {
    const ROLE: &str = "role-files-network.json";
    let mut asked = BTreeSet::new();
    for class in [SERVICE, PRIVATE] {
        let mut rig = Rig::start().await;
        claim(&mut rig, &[class]).await;
        let calls = rig.lab.emulator.control().call_log().into_iter();
        let of_providers: Vec<Call> = calls.filter(|call| call.path.contains("/providers/")).collect();
        asked.extend(needed(&of_providers));
    }
    let asked: BTreeSet<String> = asked.into_iter().filter(|action| action.starts_with("microsoft.network/")).collect();
    let by_call = table().into_iter().filter(|(_, file, by_call)| file == ROLE && *by_call);
    assert_eq!(asked, by_call.map(|(action, ..)| action.to_lowercase()).collect());
    assert!(!actions("role-files.json").iter().any(|action| action.starts_with("Microsoft.Network/")));
}
