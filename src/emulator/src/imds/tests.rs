use super::*;
use axum::body::Body;
use http::Request;
use http_body_util::BodyExt;
use jiff::Timestamp;
use tower::ServiceExt;

use crate::scenario::derived_id;

/// 2026-01-01T00:00:00Z.
const NOW: Timestamp = Timestamp::constant(1_767_225_600, 0);

const GROUP: &str = "/subscriptions/s/resourceGroups/Lazuli/providers";

fn id(kind: &str, name: &str) -> String {
    format!("{GROUP}/{kind}/{name}")
}

fn machine(name: &str) -> Value {
    json!({
        "id": id("Microsoft.Compute/virtualMachines", name),
        "name": name,
        "location": "westeurope",
        "zones": ["2"],
        "tags": {"b": "2", "a": "1"},
        "identity": {
            "type": "SystemAssigned, UserAssigned",
            "principalId": "system-principal",
            "userAssignedIdentities": {
                id("Microsoft.ManagedIdentity/userAssignedIdentities", "one"):
                    {"clientId": "one-client", "principalId": "one-principal"},
            },
        },
        "properties": {
            "vmId": "guid",
            "hardwareProfile": {"vmSize": "Standard_D8s_v3"},
            "osProfile": {"computerName": format!("{name}-host"), "adminUsername": "azureuser"},
            "networkProfile": {"networkInterfaces": [{"id": id("Microsoft.Network/networkInterfaces", name)}]},
            "storageProfile": {
                "osDisk": {"name": "os", "diskSizeGB": 30, "managedDisk": {"id": "os-id"}},
                "dataDisks": [
                    {"lun": 0, "name": "pvc", "caching": "ReadOnly", "createOption": "Attach",
                     "managedDisk": {"id": id("Microsoft.Compute/disks", "PVC")}},
                    {"lun": 5, "name": "late", "managedDisk": {"id": "not-yet"}},
                ],
            },
        },
    })
}

fn document(asked: &str) -> Option<Value> {
    let documents = [
        json!({
            "id": id("Microsoft.Compute/disks", "pvc"),
            "sku": {"name": "UltraSSD_LRS"},
            "properties": {
                "diskSizeGB": 32, "diskSizeBytes": 34_359_738_368_u64, "maxShares": 2,
                "diskIOPSReadWrite": 1000, "diskMBpsReadWrite": 50,
            },
        }),
        json!({
            "id": id("Microsoft.Network/networkInterfaces", "node-0"),
            "properties": {
                "macAddress": "00-0D-3A-00-00-01",
                "ipConfigurations": [
                    {"properties": {
                        "privateIPAddress": "10.240.0.4", "privateIPAddressVersion": "IPv4",
                        "subnet": {"id": id("Microsoft.Network/virtualNetworks", "net/subnets/nodes")},
                        "publicIPAddress": {"id": id("Microsoft.Network/publicIPAddresses", "standard")},
                    }},
                    {"properties": {
                        "privateIPAddress": "10.240.0.5",
                        "subnet": {"id": id("Microsoft.Network/virtualNetworks", "net/subnets/nodes")},
                        "publicIPAddress": {"id": id("Microsoft.Network/publicIPAddresses", "basic")},
                    }},
                    {"properties": {"privateIPAddress": "fd00::4", "privateIPAddressVersion": "IPv6"}},
                ],
            },
        }),
        json!({
            "id": id("Microsoft.Network/virtualNetworks", "net/subnets/nodes"),
            "properties": {"addressPrefix": "10.240.0.0/16"},
        }),
        json!({
            "id": id("Microsoft.Network/publicIPAddresses", "standard"),
            "sku": {"name": "Standard"},
            "properties": {"ipAddress": "20.0.0.1"},
        }),
        json!({
            "id": id("Microsoft.Network/publicIPAddresses", "basic"),
            "sku": {"name": "Basic"},
            "properties": {"ipAddress": "20.0.0.2"},
        }),
    ];
    documents.into_iter().find(|document| document["id"].as_str().unwrap().eq_ignore_ascii_case(asked))
}

/// Time stands still until a test moves it.
#[derive(Clone, Default)]
struct Stopped(Arc<Mutex<Duration>>);

fn service(machines: &[Value], lag: Duration, clock: &Stopped) -> Router {
    let machines: Vec<Document> = machines.iter().cloned().map(Document::from).collect();
    let clock = clock.clone();
    let disk = id("Microsoft.Compute/disks", "PVC");
    router(Arc::new(Imds {
        tenant_id: "tenant".to_owned(),
        cloud: Cloud {
            machines: Box::new(move || machines.clone()),
            document: Box::new(|id| document(id).map(Document::from)),
            // The disk came a minute ago.
            domains: Box::new(|_| None),
            attached: Box::new(move |_, ago| {
                if ago < Duration::from_secs(60) { BTreeMap::from([(0, disk.clone())]) } else { BTreeMap::new() }
            }),
            elapsed: Box::new(move || *clock.0.lock().unwrap()),
        },
        tokens: Tokens::default(),
        now: Arc::new(|| NOW),
        lag,
        throttling: true,
        nasty_casing: false,
        answered: Mutex::default(),
    }))
}

fn one() -> Router {
    service(&[machine("node-0")], Duration::ZERO, &Stopped::default())
}

async fn send(router: Router, request: Request<Body>) -> (StatusCode, String) {
    let response = router.oneshot(request).await.unwrap();
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

fn asking(path: &str) -> Request<Body> {
    Request::get(path).header("Metadata", "true").body(Body::empty()).unwrap()
}

async fn ask(router: Router, path: &str) -> (StatusCode, Value) {
    let (status, text) = send(router, asking(path)).await;
    let value = serde_json::from_str(&text).unwrap_or(Value::String(text));
    (status, value)
}

const INSTANCE: &str = "/metadata/instance?api-version=2021-10-01";

fn assert_only_strings(value: &Value, at: &str) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                assert_only_strings(value, &format!("{at}/{name}"));
            }
        }
        Value::Array(elements) => {
            for element in elements {
                assert_only_strings(element, at);
            }
        }
        Value::String(_) => {}
        other => panic!("{at} is {other}"),
    }
}

#[tokio::test]
async fn the_instance_is_the_machines_document_in_strings() {
    let (status, body) = ask(one(), INSTANCE).await;
    assert_eq!(status, StatusCode::OK);
    assert_only_strings(&body, "");
    let compute = &body["compute"];
    assert_eq!(compute["name"], "node-0");
    assert_eq!(compute["zone"], "2");
    assert_eq!(compute["vmSize"], "Standard_D8s_v3");
    assert_eq!(compute["resourceGroupName"], "Lazuli");
    assert_eq!(compute["subscriptionId"], "s");
    assert_eq!(compute["osProfile"]["computerName"], "node-0-host");
    assert_eq!(compute["tags"], "a:1;b:2");
    assert_eq!(compute["tagsList"][1]["value"], "2");
    assert_eq!(compute["azEnvironment"], "AzurePublicCloud");
    assert_eq!(compute["storageProfile"]["osDisk"]["diskSizeGB"], "30");
}

#[tokio::test]
async fn data_disks_are_what_the_host_holds_and_not_what_the_model_wants() {
    let (_, body) = ask(one(), INSTANCE).await;
    let disks = &body["compute"]["storageProfile"]["dataDisks"];
    assert_eq!(
        *disks,
        json!([{
            "bytesPerSecondThrottle": "50000000",
            "caching": "ReadOnly",
            "createOption": "Attach",
            "diskCapacityBytes": "34359738368",
            "diskSizeGB": "32",
            "image": {"uri": ""},
            "isSharedDisk": "true",
            "isUltraDisk": "true",
            "lun": "0",
            "managedDisk": {
                "id": id("Microsoft.Compute/disks", "pvc"),
                "storageAccountType": "UltraSSD_LRS",
            },
            "name": "pvc",
            "opsPerSecondThrottle": "1000",
            "vhd": {"uri": ""},
            "writeAcceleratorEnabled": "false",
        }])
    );
}

#[tokio::test]
async fn the_list_of_data_disks_may_be_late() {
    for (lag, disks) in [(59, 1), (60, 0)] {
        let router = service(&[machine("node-0")], Duration::from_secs(lag), &Stopped::default());
        let (_, body) = ask(router, INSTANCE).await;
        let list = &body["compute"]["storageProfile"]["dataDisks"];
        assert_eq!(list.as_array().unwrap().len(), disks, "lag {lag}");
    }
}

#[tokio::test]
async fn a_standard_public_address_shows_under_loadbalancer_and_a_basic_one_under_network() {
    let (_, body) = ask(one(), INSTANCE).await;
    assert_eq!(
        body["network"]["interface"][0],
        json!({
            "ipv4": {
                "ipAddress": [
                    {"privateIpAddress": "10.240.0.4", "publicIpAddress": ""},
                    {"privateIpAddress": "10.240.0.5", "publicIpAddress": "20.0.0.2"},
                ],
                "subnet": [{"address": "10.240.0.0", "prefix": "16"}],
            },
            "ipv6": {"ipAddress": [{"privateIpAddress": "fd00::4"}]},
            "macAddress": "000D3A000001",
        })
    );
    let (_, body) = ask(one(), "/metadata/loadbalancer?api-version=2020-10-01").await;
    assert_eq!(
        body["loadbalancer"]["publicIpAddresses"],
        json!([{"frontendIpAddress": "20.0.0.1", "privateIpAddress": "10.240.0.4"}])
    );
    assert_eq!(body["loadbalancer"]["inboundRules"], json!([]));
}

#[tokio::test]
async fn a_part_is_found_by_path_and_a_leaf_is_text() {
    let version = "api-version=2021-10-01";
    let text = |path: &str| format!("/metadata/instance/{path}?{version}&format=text");
    let (status, body) = send(one(), asking(&text("compute/vmId"))).await;
    assert_eq!((status.as_u16(), body.as_str()), (200, "guid"));
    let address = "network/interface/0/ipv4/ipAddress/0/privateIpAddress";
    assert_eq!(send(one(), asking(&text(address))).await.1, "10.240.0.4");
    assert_eq!(send(one(), asking(&text("network"))).await.1, "interface/");
    let leaf_as_json = format!("/metadata/instance/compute/vmId?{version}");
    assert_eq!(ask(one(), &leaf_as_json).await.0, StatusCode::BAD_REQUEST);
    let branch = format!("/metadata/instance/compute/osProfile?{version}");
    assert_eq!(ask(one(), &branch).await.1["adminUsername"], "azureuser");
    assert_eq!(ask(one(), &text("compute/nothing")).await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn an_unknown_or_missing_api_version_names_the_newest() {
    for path in ["/metadata/instance", "/metadata/instance?api-version=1999-01-01"] {
        let (status, body) = ask(one(), path).await;
        assert_eq!(status, StatusCode::BAD_REQUEST);
        assert_eq!(body["newest-versions"][0], "2025-04-07");
    }
    let (_, body) = ask(one(), "/metadata/versions").await;
    assert!(body["apiVersions"].as_array().unwrap().contains(&json!("2021-10-01")));
}

#[tokio::test]
async fn forged_and_forwarded_requests_are_refused() {
    let request = Request::get(INSTANCE).body(Body::empty()).unwrap();
    assert_eq!(send(one(), request).await.0, StatusCode::BAD_REQUEST);
    let mut request = asking(INSTANCE);
    request.headers_mut().insert("X-Forwarded-For", "10.0.0.1".parse().unwrap());
    assert_eq!(send(one(), request).await.0, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn the_machine_is_known_by_path_by_header_or_by_being_the_only_one() {
    let two = || service(&[machine("node-0"), machine("node-1")], Duration::ZERO, &Stopped::default());
    let prefixed = format!("/_imds/NODE-1{INSTANCE}");
    assert_eq!(ask(two(), &prefixed).await.1["compute"]["name"], "node-1");
    let by_computer_name = format!("/_imds/node-0-host{INSTANCE}");
    assert_eq!(ask(two(), &by_computer_name).await.1["compute"]["name"], "node-0");
    let mut request = asking(INSTANCE);
    request.headers_mut().insert("X-Lazuli-Vm", "node-0".parse().unwrap());
    assert!(send(two(), request).await.1.contains("node-0-host"));
    let (status, body) = ask(two(), INSTANCE).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    let error = body["error"].as_str().unwrap();
    assert!(error.contains("X-Lazuli-Vm") && error.contains("node-0, node-1"));
    let unknown = format!("/_imds/node-7{INSTANCE}");
    assert_eq!(ask(two(), &unknown).await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_machine_gets_five_answers_a_second_and_others_are_not_in_its_way() {
    let clock = Stopped::default();
    let router = service(&[machine("node-0"), machine("node-1")], Duration::ZERO, &clock);
    let first = format!("/_imds/node-0{INSTANCE}");
    for _ in 0..5 {
        assert_eq!(ask(router.clone(), &first).await.0, StatusCode::OK);
    }
    assert_eq!(ask(router.clone(), &first).await.0, StatusCode::TOO_MANY_REQUESTS);
    let second = format!("/_imds/node-1{INSTANCE}");
    assert_eq!(ask(router.clone(), &second).await.0, StatusCode::OK);
    // Tokens are counted apart.
    let token = format!("/_imds/node-0{TOKEN}");
    for _ in 0..20 {
        assert_eq!(ask(router.clone(), &token).await.0, StatusCode::OK);
    }
    assert_eq!(ask(router.clone(), &token).await.0, StatusCode::TOO_MANY_REQUESTS);
    *clock.0.lock().unwrap() += Duration::from_secs(1);
    assert_eq!(ask(router.clone(), &first).await.0, StatusCode::OK);
}

const TOKEN: &str =
    "/metadata/identity/oauth2/token?api-version=2018-02-01&resource=https%3A%2F%2Fmanagement.azure.com%2F";

#[tokio::test]
async fn a_machine_has_its_system_assigned_identity_first() {
    let (status, body) = ask(one(), TOKEN).await;
    assert_eq!(status, StatusCode::OK);
    assert_only_strings(&body, "");
    assert_eq!(body["resource"], "https://management.azure.com/");
    assert_eq!(body["expires_in"], "3599");
    assert_eq!(body["token_type"], "Bearer");
    let vm = id("Microsoft.Compute/virtualMachines", "node-0");
    assert_eq!(body["client_id"], derived_id("system-identity", &vm));
    let token = body["access_token"].as_str().unwrap();
    assert!(Tokens::default().valid(token, NOW + Duration::from_secs(1_800)));
    assert_eq!(Tokens::default().read(token).object_id.as_deref(), Some("system-principal"));
}

#[tokio::test]
async fn a_user_assigned_identity_is_chosen_by_any_of_its_ids() {
    let resource = id("Microsoft.ManagedIdentity/userAssignedIdentities", "ONE");
    for selector in [
        "client_id=ONE-client".to_owned(),
        "object_id=one-principal".to_owned(),
        format!("mi_res_id={resource}"),
        format!("msi_res_id={resource}"),
    ] {
        let (status, body) = ask(one(), &format!("{TOKEN}&{selector}")).await;
        assert_eq!(status, StatusCode::OK, "{selector} {body}");
        assert_eq!(body["client_id"], "one-client");
    }
}

#[tokio::test]
async fn an_identity_that_the_machine_does_not_have_is_not_found() {
    let (status, body) = ask(one(), &format!("{TOKEN}&client_id=other")).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert_eq!(body["error"], "invalid_request");
    assert_eq!(body["error_description"], "Identity not found");

    let mut bare = machine("node-0");
    bare["identity"] = Value::Null;
    let router = service(&[bare], Duration::ZERO, &Stopped::default());
    assert_eq!(ask(router, TOKEN).await.1["error_description"], "Identity not found");

    let (_, body) = ask(one(), &format!("{TOKEN}&client_id=a&object_id=b")).await;
    assert_eq!(body["error"], "invalid_request");
}

#[tokio::test]
async fn a_token_request_without_resource_version_or_header_is_invalid() {
    for path in ["/metadata/identity/oauth2/token?api-version=2018-02-01", "/metadata/identity/oauth2/token?resource=x"]
    {
        let (status, body) = ask(one(), path).await;
        assert_eq!(status, StatusCode::BAD_REQUEST);
        assert_eq!(body["error"], "invalid_request");
    }
    let request = Request::get(TOKEN).body(Body::empty()).unwrap();
    let (status, body) = send(one(), request).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(body.contains("invalid_request"));
}
