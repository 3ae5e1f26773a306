//! What leads to a storage account: service endpoints of subnets, private endpoints, private DNS zones.

use super::load_balancers::{id, reference, subnet, uri};
use super::storage_accounts::{account, account_id};
use super::*;

const ZONE: &str = "privatelink.file.core.windows.net";

fn zone_uri(rest: &str) -> String {
    format!("{}?api-version=2020-06-01", id("privateDnsZones", &format!("{ZONE}{rest}")))
}

fn account_uri() -> String {
    format!("{}?api-version=2025-01-01", account_id("files"))
}

fn subnet_uri() -> String {
    uri("virtualNetworks", "lazuli-vnet/subnets/nodes")
}

fn zone() -> Value {
    json!({"location": "global"})
}

fn link_to(network: &str) -> Value {
    json!({"location": "global", "properties": {
        "registrationEnabled": false, "virtualNetwork": reference(&id("virtualNetworks", network)),
    }})
}

fn endpoint(groups: &Value) -> Value {
    json!({"location": "westeurope", "properties": {
        "subnet": reference(&subnet()),
        "privateLinkServiceConnections": [
            {"name": "c", "properties": {"privateLinkServiceId": account_id("files"), "groupIds": groups}},
        ],
    }})
}

fn group(zone: &str) -> Value {
    json!({"properties": {"privateDnsZoneConfigs": [{"name": "z", "properties": {"privateDnsZoneId": zone}}]}})
}

fn let_in() -> Value {
    let mut body = account("Standard_LRS", "StorageV2");
    body["properties"]["networkAcls"] =
        json!({"defaultAction": "Deny", "virtualNetworkRules": [{"id": subnet(), "action": "Allow"}]});
    body
}

#[tokio::test(start_paused = true)]
async fn an_account_that_lets_a_subnet_in_needs_its_service_endpoint() {
    let rig = Rig::new(slow()).await;
    let got = rig.call("PUT", &account_uri(), Some(let_in())).await.expect(202);
    tokio::time::sleep(Duration::from_secs(120)).await;
    let refused = rig.get(path_of(got.header("location"))).await.refused(400, "NetworkAclsValidationFailure");
    assert!(
        refused.message().contains("SubnetsHaveNoServiceEndpointsConfigured:Subnets nodes"),
        "{}",
        refused.message()
    );
    rig.get(&account_uri()).await.expect(404);

    let before = rig.get(&subnet_uri()).await.expect(200);
    let mut body = before.body.clone();
    body["properties"]["serviceEndpoints"] = json!([{"service": "Microsoft.Storage"}]);
    let etag = [("if-match", before.header("etag"))];
    let got = rig.with("PUT", &subnet_uri(), Some(body.clone()), &etag).await.expect(200);
    rig.with("PUT", &subnet_uri(), Some(body), &etag).await.refused(412, "PreconditionFailed");
    rig.finish(&got).await;
    let shown = rig.get(&subnet_uri()).await.expect(200).body;
    let made = json!([{"service": "Microsoft.Storage", "locations": ["westeurope"], "provisioningState": "Succeeded"}]);
    assert_eq!(shown["properties"]["serviceEndpoints"], made);
    assert_eq!(shown["properties"]["addressPrefix"], before.body["properties"]["addressPrefix"]);

    let made = rig.account("files", let_in()).await;
    assert_eq!(made["properties"]["networkAcls"]["virtualNetworkRules"][0]["id"], subnet().as_str());
    let mut missing = let_in();
    missing["properties"]["networkAcls"]["virtualNetworkRules"][0]["id"] =
        json!(id("virtualNetworks", "lazuli-vnet/subnets/none"));
    rig.call("PATCH", &account_uri(), Some(missing)).await.refused(400, "NetworkAclsValidationFailure");
    rig.call("PATCH", &account_uri(), Some(json!({"tags": {"a": "b"}}))).await.expect(200);
}

#[tokio::test(start_paused = true)]
async fn a_private_zone_is_global_is_never_overwritten_unasked_and_goes_after_its_links() {
    let rig = Rig::new(slow()).await;
    rig.call("PUT", &zone_uri(""), Some(json!({"location": "westeurope"})))
        .await
        .refused(400, "LocationNotAvailableForResourceType");
    let only_new = [("if-none-match", "*")];
    let got = rig.with("PUT", &zone_uri(""), Some(zone()), &only_new).await.expect(202);
    assert_eq!(rig.get(&zone_uri("")).await.expect(200).body["properties"]["provisioningState"], "Creating");
    rig.finish(&got).await;
    rig.with("PUT", &zone_uri(""), Some(zone()), &only_new).await.refused(412, "PreconditionFailed");
    let shown = rig.get(&zone_uri("")).await.expect(200).body;
    assert_eq!((&shown["location"], &shown["properties"]["numberOfRecordSets"]), (&json!("global"), &json!(1)));
    assert_eq!(shown["properties"]["provisioningState"], "Succeeded");

    let link = |name: &str| zone_uri(&format!("/virtualNetworkLinks/{name}"));
    rig.call("PUT", &link("a"), Some(link_to("none"))).await.refused(400, "InvalidResourceReference");
    let got = rig.with("PUT", &link("a"), Some(link_to("lazuli-vnet")), &only_new).await.expect(202);
    rig.finish(&got).await;
    rig.call("PUT", &link("b"), Some(link_to("lazuli-vnet"))).await.refused(409, "Conflict");
    let listed = rig.get(&zone_uri("/virtualNetworkLinks")).await.expect(200).body;
    let network = &listed["value"][0]["properties"]["virtualNetwork"]["id"];
    assert_eq!(network, &json!(id("virtualNetworks", "lazuli-vnet")));
    assert_eq!(rig.get(&zone_uri("")).await.expect(200).body["properties"]["numberOfVirtualNetworkLinks"], 1);
    rig.call("DELETE", &zone_uri(""), None).await.refused(409, "CannotDeleteResource");
    for uri in [link("a"), zone_uri("")] {
        let got = rig.call("DELETE", &uri, None).await.expect(202);
        rig.finish(&got).await;
        rig.get(&uri).await.expect(404);
    }
}

#[tokio::test(start_paused = true)]
async fn a_private_endpoint_leads_to_one_part_of_an_account_and_has_one_zone_group() {
    let rig = Rig::new(slow()).await;
    let pe = uri("privateEndpoints", "files-pe");
    rig.refuses(&pe, &endpoint(&json!(["file"])), "InvalidResourceReference").await;
    rig.account("files", account("Standard_LRS", "StorageV2")).await;
    for groups in [json!([]), json!(["disk"]), json!(["file", "blob"])] {
        rig.refuses(&pe, &endpoint(&groups), "PrivateEndpointInvalidGroupId").await;
    }
    let got = rig.call("PUT", &pe, Some(endpoint(&json!(["file"])))).await.expect(201);
    let groups = |name: &str| uri("privateEndpoints", &format!("files-pe/privateDnsZoneGroups{name}"));
    rig.call("PUT", &groups("/g"), Some(group(&id("privateDnsZones", ZONE))))
        .await
        .refused(400, "InvalidResourceReference");
    let made = rig.call("PUT", &zone_uri(""), Some(zone())).await.expect(202);
    rig.finish(&made).await;
    rig.finish(&got).await;
    let connection = &rig.get(&account_uri()).await.expect(200).body["properties"]["privateEndpointConnections"][0];
    assert_eq!(connection["type"], "Microsoft.Storage/storageAccounts/privateEndpointConnections");
    assert_eq!(connection["properties"]["privateEndpoint"], reference(&id("privateEndpoints", "files-pe")));
    assert_eq!(connection["properties"]["privateLinkServiceConnectionState"]["status"], "Approved");
    let subnet = rig.get(&subnet_uri()).await.expect(200).body;
    assert_eq!(subnet["properties"]["privateEndpoints"], json!([reference(&id("privateEndpoints", "files-pe"))]));

    let got = rig.call("PUT", &groups("/g"), Some(group(&id("privateDnsZones", ZONE)))).await.expect(201);
    rig.finish(&got).await;
    let listed = rig.get(&groups("")).await.expect(200).body;
    let record = &listed["value"][0]["properties"]["privateDnsZoneConfigs"][0]["properties"]["recordSets"][0];
    assert_eq!(record["fqdn"], format!("files.{ZONE}"));
    rig.refuses(
        &groups("/h"),
        &group(&id("privateDnsZones", ZONE)),
        "MultiplePrivateDnsZoneGroupsPerPrivateEndpointNotAllowed",
    )
    .await;
    // The account goes, and the endpoint leads nowhere.
    rig.call("DELETE", &account_uri(), None).await.expect(200);
    let shown = rig.get(&pe).await.expect(200).body;
    let connection = &shown["properties"]["privateLinkServiceConnections"][0]["properties"];
    assert_eq!(connection["privateLinkServiceConnectionState"]["status"], "Disconnected");
}
