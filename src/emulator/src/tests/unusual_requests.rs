//! Unusual requests: unknown versions, strange queries, foreign tokens, broken bytes.

use super::*;
use crate::api_versions::ApiVersions;
use crate::scenario;

fn versioned(path: &str, version: &str) -> String {
    format!("{path}?api-version={version}")
}

#[tokio::test(start_paused = true)]
async fn an_api_version_that_a_type_does_not_have_is_refused_with_those_it_has() {
    let rig = Rig::new(options()).await;
    rig.disk("d").await;
    // The gateway's own types: the newest version first.
    for path in ["/subscriptions".to_owned(), SUB.to_owned(), group(), format!("{SUB}/resourcegroups")] {
        let refused = rig.get(&versioned(&path, "2099-01-01")).await.refused(400, "InvalidApiVersionParameter");
        let message = refused.message();
        assert!(
            message.starts_with("The api-version '2099-01-01' is invalid. The supported versions are '2025-04-01,")
        );
        assert!(message.ends_with(",2014-04'."), "{message}");
        assert_eq!(refused.header("x-ms-failure-cause"), "gateway");
    }
    // A resource, and one that could be: with the location.
    for name in ["d", "other"] {
        let refused = rig.get(&versioned(&disk_id(name), "2015-06-15")).await.refused(400, "NoRegisteredProviderFound");
        let expected = "No registered resource provider found for location 'westeurope' and API version '2015-06-15' for type 'disks'. The supported api-versions are '2016-04-30-preview, 2017-03-30,";
        assert!(refused.message().starts_with(expected), "{}", refused.message());
        assert!(refused.message().contains("The supported locations are '"), "{}", refused.message());
    }
    let action = format!("{}/start", vm_id("plain-0"));
    let refused = rig.call("POST", &versioned(&action, "2099-01-01"), None).await;
    assert!(refused.message().contains("for type 'virtualMachines/start'"), "{}", refused.message());
    // A list of a subscription has no location.
    let list = format!("{SUB}/providers/Microsoft.Network/virtualNetworks");
    let refused = rig.get(&versioned(&list, "2025-13-45")).await.refused(400, "InvalidResourceType");
    assert!(refused.message().contains("The supported api-versions are '2014-12-01-preview,"), "{}", refused.message());
    // Words are refused before anything is looked at.
    let refused = rig.get(&versioned(&disk_id("d"), "latest")).await.refused(400, "InvalidApiVersionParameter");
    assert!(refused.message().contains("'2026-03-02,2025-01-02,"), "{}", refused.message());
}

#[tokio::test(start_paused = true)]
async fn which_unpublished_api_versions_are_taken_can_be_chosen() {
    for (api_versions, of_machines, of_nothing) in
        [(ApiVersions::Dated, 404, 400), (ApiVersions::Published, 400, 400), (ApiVersions::Any, 404, 404)]
    {
        let rig = Rig::new(Options { api_versions, ..options() }).await;
        rig.get(&versioned(&disk_id("d"), "2024-07-01")).await.expect(of_machines);
        rig.get(&versioned(&disk_id("d"), "2025-13-45")).await.expect(of_nothing);
        rig.get(&versioned(&disk_id("d"), "2024-03-02")).await.expect(404);
    }
}

#[tokio::test(start_paused = true)]
async fn attach_detach_of_an_older_version_is_refused_with_the_versions_that_have_it() {
    let rig = Rig::new(options()).await;
    let uri = versioned(&format!("{}/attachDetachDataDisks", vm_id("plain-0")), "2023-09-01");
    let refused = rig.call("POST", &uri, Some(json!({}))).await.refused(400, "NoRegisteredProviderFound");
    assert!(
        refused.message().contains(
            "for type 'virtualMachines/attachDetachDataDisks'. The supported api-versions are '2024-03-01, 2024-07-01,"
        ),
        "{}",
        refused.message()
    );
}

#[tokio::test(start_paused = true)]
async fn an_expansion_that_a_type_does_not_have_is_refused() {
    let rig = Rig::new(options()).await;
    let asking = |uri: String, expand: &str| format!("{uri}&$expand={expand}");
    for uri in
        [vm_uri("plain-0"), format!("{}/providers/Microsoft.Compute/virtualMachines?api-version=2025-04-01", group())]
    {
        let refused = rig.get(&asking(uri.clone(), "everything")).await.refused(400, "InvalidParameter");
        assert_eq!(
            (refused.message(), &refused.body["error"]["target"]),
            ("The request URL is not valid.", &json!("$expand"))
        );
        rig.get(&asking(uri, "INSTANCEVIEW")).await.expect(200);
    }
    let network = format!("{}/providers/Microsoft.Network/virtualNetworks/lazuli-vnet?api-version=2025-05-01", group());
    rig.get(&asking(network.clone(), "subnets/ipConfigurations")).await.expect(200);
    let refused = rig.get(&asking(network, "everything")).await.expect(400);
    assert!(refused.message().starts_with("$expand query option value is invalid."), "{}", refused.message());
}

#[tokio::test(start_paused = true)]
async fn user_data_show_where_they_are_asked_for_and_nowhere_else() {
    let rig = Rig::new(options()).await;
    let got =
        rig.call("PATCH", &vm_uri("plain-0"), Some(json!({"properties": {"userData": "aGk="}}))).await.expect(200);
    assert!(got.body["properties"].get("userData").is_none());
    rig.finish(&got).await;
    assert!(rig.vm("plain-0").await["properties"].get("userData").is_none());
    let list = rig.get(&format!("{SUB}/providers/Microsoft.Compute/virtualMachines?api-version=2025-04-01")).await;
    assert!(!list.body.to_string().contains("userData"));
    let got = rig.get(&format!("{}&$expand=userData", vm_uri("plain-0"))).await.expect(200);
    assert_eq!(got.body["properties"]["userData"], "aGk=");
}

#[tokio::test(start_paused = true)]
async fn a_list_of_machines_with_their_states_only_has_the_instance_views() {
    let rig = Rig::new(options()).await;
    let uri = format!("{SUB}/providers/Microsoft.Compute/virtualMachines?api-version=2025-04-01&statusOnly=true");
    let list = rig.get(&uri).await.expect(200);
    assert_eq!(list.body["value"][0]["properties"]["instanceView"]["statuses"][1]["code"], "PowerState/running");
}

#[tokio::test(start_paused = true)]
async fn a_token_of_another_tenant_is_refused_with_both() {
    let tenant = "11111111-2222-3333-4444-555555555555".to_owned();
    let scenario = Scenario { tenant_id: tenant.clone(), ..scenario() };
    let other = Rig::new(Options { scenario, ..options() }).await;
    let rig = Rig::new(options()).await;
    let request = Request::get(disk_uri("d")).header("authorization", format!("Bearer {}", other.token));
    let refused = rig.send(request.body(Body::empty()).unwrap()).await.refused(401, "InvalidAuthenticationTokenTenant");
    assert!(refused.message().contains(&format!("wrong issuer 'https://sts.windows.net/{tenant}/'")));
    assert!(refused.message().contains(&format!("match the tenant 'https://sts.windows.net/{}/'", scenario::TENANT)));
    assert!(refused.header("www-authenticate").starts_with("Bearer authorization_uri="));
}

#[tokio::test(start_paused = true)]
async fn a_body_may_begin_with_a_byte_order_mark() {
    let rig = Rig::new(options()).await;
    let mut body = b"\xef\xbb\xbf".to_vec();
    body.extend(premium(4).to_string().into_bytes());
    let request = Request::put(disk_uri("d"))
        .header("authorization", format!("Bearer {}", rig.token))
        .header("content-type", "application/json");
    rig.send(request.body(Body::from(body)).unwrap()).await.expect(202);
}

#[tokio::test(start_paused = true)]
async fn an_access_signature_ends_after_its_time() {
    let rig = Rig::new(options()).await;
    rig.disk("d").await;
    let state = async || rig.disk_doc("d").await["properties"]["diskState"].clone();
    let post = async |action: &str, seconds: u64| {
        let uri = versioned(&format!("{}/{action}", disk_id("d")), DISKS_VERSION);
        rig.call("POST", &uri, Some(json!({"access": "Read", "durationInSeconds": seconds}))).await
    };
    let granted = post("beginGetAccess", 300).await.expect(202);
    let output = rig.finish(&granted).await["properties"]["output"]["accessSAS"].as_str().unwrap().to_owned();
    assert!(output.contains("se=2026-01-01T00:05:00Z&sp=r"), "{output}");
    assert_eq!(state().await, "ActiveSAS");
    // A longer one takes its place.
    tokio::time::sleep(Duration::from_secs(200)).await;
    let granted = post("beginGetAccess", 300).await.expect(202);
    rig.finish(&granted).await;
    tokio::time::sleep(Duration::from_secs(299)).await;
    assert_eq!(state().await, "ActiveSAS");
    rig.call("DELETE", &disk_uri("d"), None).await.refused(409, "Conflict");
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(state().await, "Unattached");
    rig.attached("plain-0", &[("d", 0)]).await;
    post("beginGetAccess", 5_000_000_000).await.expect(409);
    let uri = versioned(&format!("{}/beginGetAccess", disk_id("d")), DISKS_VERSION);
    rig.call("POST", &uri, Some(json!({"access": "Read", "durationInSeconds": 0}))).await.expect(409);
}

#[tokio::test(start_paused = true)]
async fn subnets_lie_in_their_network_and_apart() {
    let rig = Rig::new(options()).await;
    let network = format!("{}/providers/Microsoft.Network/virtualNetworks/net", group());
    let uri = versioned(&network, "2025-05-01");
    let body = |subnets: Value| json!({"location": "westeurope", "properties": {"addressSpace": {"addressPrefixes": ["10.0.0.0/16"]}, "subnets": subnets}});
    let subnet = |name: &str, prefix: &str| json!({"name": name, "properties": {"addressPrefix": prefix}});
    let outside = rig.call("PUT", &uri, Some(body(json!([subnet("a", "10.1.0.0/24")])))).await;
    let outside = outside.refused(400, "NetcfgSubnetRangeOutsideVnet");
    assert!(outside.message().starts_with("Subnet 'a' is not valid because its IP address range is outside"));
    let both = json!([subnet("a", "10.0.0.0/24"), subnet("b", "10.0.0.128/25")]);
    rig.call("PUT", &uri, Some(body(both))).await.refused(400, "NetcfgSubnetRangesOverlap");
    rig.call("PUT", &uri, Some(body(json!([subnet("a", "10.0.0.0/24")])))).await.expect(201);
    let child = |name: &str| versioned(&format!("{network}/subnets/{name}"), "2025-05-01");
    let prefix = |prefix: &str| json!({"properties": {"addressPrefix": prefix}});
    rig.call("PUT", &child("b"), Some(prefix("10.0.0.0/25"))).await.refused(400, "NetcfgSubnetRangesOverlap");
    rig.call("PUT", &child("b"), Some(prefix("10.0.1.0/24"))).await.expect(201);
    // Letter case makes no second subnet.
    rig.call("PUT", &child("B"), Some(prefix("10.0.2.0/24"))).await.expect(200);
    let list = rig.get(&versioned(&format!("{network}/subnets"), "2025-05-01")).await.expect(200);
    assert_eq!(list.body["value"].as_array().unwrap().len(), 2);
    assert_eq!(list.body["value"][1]["name"], "b");
}

#[tokio::test(start_paused = true)]
async fn what_is_being_deleted_in_a_network_takes_no_write() {
    let rig = Rig::new(slow()).await;
    let uri = versioned(&format!("{}/providers/Microsoft.Network/virtualNetworks/net", group()), "2025-05-01");
    let body = json!({"location": "westeurope", "properties": {"addressSpace": {"addressPrefixes": ["10.0.0.0/16"]}}});
    let made = rig.call("PUT", &uri, Some(body.clone())).await.expect(201);
    rig.finish(&made).await;
    let going = rig.call("DELETE", &uri, None).await.expect(202);
    let refused = rig.call("PUT", &uri, Some(body)).await.refused(409, "AnotherOperationInProgress");
    let operation = going.header("azure-asyncoperation").split('?').next().unwrap().to_owned();
    assert!(refused.message().contains(&operation), "{} {operation}", refused.message());
    rig.finish(&going).await;
    rig.get(&uri).await.expect(404);
}
