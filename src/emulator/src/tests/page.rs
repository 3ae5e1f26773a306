//! The page, and who may use it and the control interface.

use super::*;

const HTML: &str = "text/html,application/xhtml+xml;q=0.9";

fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &'static str) -> Request<Body> {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Body::from(body)).unwrap()
}

const HOST: (&str, &str) = ("host", "localhost:8181");
const JSON: (&str, &str) = ("content-type", "application/json");

async fn text(rig: &Rig, path: &str) -> (HeaderMap, String) {
    let response = rig.router.clone().oneshot(request("GET", path, &[HOST, ("accept", HTML)], "")).await.unwrap();
    assert_eq!(response.status(), 200, "{path}");
    let (parts, body) = response.into_parts();
    (parts.headers, String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap())
}

/// What the page would get.
async fn overview(rig: &Rig, query: &str) -> Value {
    let path = format!("/_emulator/overview{query}");
    rig.send(request("GET", &path, &[HOST], "")).await.expect(200).body
}

fn type_of<'a>(overview: &'a Value, name: &str) -> &'a Value {
    let types = overview["types"].as_array().unwrap();
    types.iter().find(|one| one["name"] == name).unwrap_or(&Value::Null)
}

fn row_of<'a>(overview: &'a Value, kind: &str, name: &str) -> &'a Value {
    let rows = type_of(overview, kind)["rows"].as_array().unwrap();
    rows.iter().find(|row| row["name"] == name).unwrap()
}

const DISKS: &str = "Microsoft.Compute/disks";
const MACHINES: &str = "Microsoft.Compute/virtualMachines";

#[tokio::test(start_paused = true)]
async fn a_browser_gets_the_page_and_an_arm_client_gets_arm_at_the_same_path() {
    let rig = Rig::new(options()).await;
    let (headers, page) = text(&rig, "/").await;
    assert_eq!(headers["content-type"], "text/html; charset=utf-8");
    assert!(page.starts_with("<!doctype html>"));
    // Whatever an ARM client accepts.
    rig.send(request("GET", "/", &[HOST], "")).await.refused(401, "AuthenticationFailed");
    rig.send(request("GET", "/", &[HOST, ("accept", "application/json")], ""))
        .await
        .refused(401, "AuthenticationFailed");
    rig.with("GET", "/", None, &[("accept", HTML)]).await.refused(400, "MissingApiVersionParameter");
    rig.send(request("POST", "/", &[HOST, ("accept", HTML)], "")).await.refused(401, "AuthenticationFailed");
    // The page is no call.
    assert_eq!(rig.control().counters().calls, 4);
}

#[tokio::test(start_paused = true)]
async fn the_page_loads_nothing_from_elsewhere_and_says_so_to_the_browser() {
    let rig = Rig::new(options()).await;
    let files = crate::page::FILES.map(|(path, ..)| format!("/_emulator{path}"));
    for path in ["/".to_owned()].into_iter().chain(files) {
        let (headers, text) = text(&rig, &path).await;
        let policy = headers["content-security-policy"].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none';") && policy.contains("frame-ancestors 'none'"), "{policy}");
        assert!(!headers.contains_key("access-control-allow-origin"));
        assert_eq!(headers["x-frame-options"], "DENY");
        let elsewhere = text.replace("http://www.w3.org/2000/svg", "");
        assert!(!elsewhere.contains("://"), "{path}");
        for markup in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("] {
            assert!(!text.contains(markup), "{path}: {markup}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_overview_shows_machines_with_their_luns_and_disks_with_their_machine() {
    let rig = Rig::new(slow()).await;
    rig.disk_with("d", json!({"tags": {"team": "<script>alert(1)</script>"}})).await;
    rig.attached("plain-0", &[("d", 3)]).await;
    let seen = overview(&rig, "").await;
    let machine = row_of(&seen, MACHINES, "plain-0");
    assert_eq!(machine["machine"]["luns"], json!([{"lun": 3, "disk": "d", "state": "attached"}]));
    assert_eq!((&machine["machine"]["power"], &machine["state"]), (&json!("running"), &json!("Succeeded")));
    assert_eq!(machine["group"], "lazuli");
    let disk = row_of(&seen, DISKS, "d");
    let shown = json!({"gib": 10, "diskState": "Attached", "machines": [["plain-0", 3]], "claim": "", "volume": ""});
    assert_eq!(disk["disk"], shown);
    assert_eq!(disk["tags"]["team"], "<script>alert(1)</script>");
    assert_eq!(type_of(&seen, MACHINES)["total"], 8);
    assert_eq!(machine["machine"]["slots"], 8);
    let network = &type_of(&seen, "Microsoft.Network/virtualNetworks")["rows"][0]["network"]["network"];
    let subnet = json!({"name": "nodes", "prefixes": ["10.240.0.0/16"], "securityGroup": "", "routeTable": ""});
    assert_eq!(*network, json!({"prefixes": ["10.0.0.0/8"], "subnets": [subnet]}));
}

#[tokio::test(start_paused = true)]
async fn the_overview_names_the_claim_that_the_tags_of_a_disk_name() {
    let rig = Rig::new(options()).await;
    let tags = json!({
        "Kubernetes.io-created-for-pvc-name": "data", "kubernetes.io-created-for-pvc-namespace": "shop",
        "kubernetes.io-created-for-pv-name": "pvc-1",
    });
    rig.disk_with("d", json!({ "tags": tags })).await;
    let seen = overview(&rig, "").await;
    let disk = &row_of(&seen, DISKS, "d")["disk"];
    assert_eq!((&disk["claim"], &disk["volume"]), (&json!("shop/data"), &json!("pvc-1")));
}

fn reference(id: &str) -> Value {
    json!({ "id": id })
}

fn network_id(kind: &str, name: &str) -> String {
    format!("{}/providers/Microsoft.Network/{kind}/{name}", group())
}

async fn put_network(rig: &Rig, kind: &str, name: &str, mut body: Value) {
    body["location"] = json!("westeurope");
    let got = rig.call("PUT", &format!("{}?api-version=2025-05-01", network_id(kind, name)), Some(body)).await;
    assert!([200, 201].contains(&got.status), "{}", got.body);
    if !got.header("azure-asyncoperation").is_empty() {
        assert_eq!(rig.finish(&got).await["status"], "Succeeded");
    }
}

#[tokio::test(start_paused = true)]
async fn the_overview_shows_a_load_balancer_with_its_service_and_its_machines_by_name() {
    let rig = Rig::new(options()).await;
    let tags = json!({"k8s-azure-service": "shop/web, default/api"});
    let standard = json!({"name": "Standard"});
    let address = json!({"sku": standard, "tags": tags, "properties": {"publicIPAllocationMethod": "Static"}});
    put_network(&rig, "publicIPAddresses", "ip", address).await;
    let own = |part: &str| reference(&format!("{}/{part}", network_id("loadBalancers", "lb")));
    let network = reference(&network_id("virtualNetworks", "lazuli-vnet"));
    let member = |ip: &str| json!({"name": ip, "properties": {"ipAddress": ip, "virtualNetwork": network}});
    let nic = rig.get(&format!("{}?api-version=2025-05-01", network_id("networkInterfaces", "plain-1-nic"))).await.body;
    let own_address =
        nic["properties"]["ipConfigurations"][0]["properties"]["privateIPAddress"].as_str().unwrap().to_owned();
    let rule = json!({"name": "web-TCP-80", "properties": {
        "frontendIPConfiguration": own("frontendIPConfigurations/f"), "backendAddressPool": own("backendAddressPools/k"),
        "probe": own("probes/p"), "protocol": "Tcp", "frontendPort": 80, "backendPort": 30080, "loadDistribution": "SourceIP",
    }});
    let probe = json!({"protocol": "Http", "port": 31845, "requestPath": "/healthz", "intervalInSeconds": 5});
    let balancer = json!({"sku": standard, "properties": {
        "frontendIPConfigurations": [{"name": "f", "properties": {"publicIPAddress": reference(&network_id("publicIPAddresses", "ip"))}}],
        "backendAddressPools": [
            {"name": "k", "properties": {"loadBalancerBackendAddresses": [member(&own_address), member("10.250.0.9")]}}, {"name": "nics"},
        ],
        "probes": [{"name": "p", "properties": probe}],
        "loadBalancingRules": [rule],
    }});
    put_network(&rig, "loadBalancers", "lb", balancer).await;
    let mut nic =
        rig.get(&format!("{}?api-version=2025-05-01", network_id("networkInterfaces", "plain-0-nic"))).await.body;
    nic["properties"]["ipConfigurations"][0]["properties"]["loadBalancerBackendAddressPools"] =
        json!([own("backendAddressPools/nics")]);
    put_network(&rig, "networkInterfaces", "plain-0-nic", nic).await;

    let seen = overview(&rig, "").await;
    let balancer = &row_of(&seen, "Microsoft.Network/loadBalancers", "lb")["network"]["balancer"];
    let ip = &row_of(&seen, "Microsoft.Network/publicIPAddresses", "ip")["network"]["address"];
    assert!(ip["address"].as_str().unwrap().starts_with("198."), "{ip}");
    assert_eq!((&ip["usedBy"], &ip["services"]), (&json!("lb"), &json!(["shop/web", "default/api"])));
    let frontend =
        json!({"name": "f", "address": ip["address"], "from": "ip", "services": ["shop/web", "default/api"]});
    assert_eq!((&balancer["kind"], &balancer["frontends"]), (&json!("public"), &json!([frontend])));
    let rule = json!({
        "name": "web-TCP-80", "protocol": "Tcp", "port": "80", "backendPort": "30080", "frontend": "f", "pool": "k",
        "probe": "p", "options": ["affinity by client address"],
    });
    assert_eq!(balancer["rules"], json!([rule]));
    let probe = json!({"name": "p", "protocol": "Http", "port": "31845", "path": "/healthz", "interval": 5});
    assert_eq!(balancer["probes"], json!([probe]));
    // By address, by its interface, and what has no machine.
    let pools = json!([
        {"name": "k", "total": 2, "members": ["10.250.0.9", "plain-1"]}, {"name": "nics", "total": 1, "members": ["plain-0"]},
    ]);
    assert_eq!(balancer["pools"], pools);
    let interface = &row_of(&seen, "Microsoft.Network/networkInterfaces", "plain-0-nic")["network"]["interface"];
    assert_eq!((&interface["machine"], &interface["pools"]), (&json!("plain-0"), &json!(["lb/nics"])));
}

#[tokio::test(start_paused = true)]
async fn the_overview_shows_security_rules_whole_and_in_the_order_of_azure_and_routes_with_their_machine() {
    let rig = Rig::new(options()).await;
    let rule = |name: &str, priority: u32, direction: &str, ports: Value| {
        json!({"name": name, "properties": {
            "priority": priority, "direction": direction, "access": "Allow", "protocol": "Tcp", "sourcePortRange": "*",
            "sourceAddressPrefixes": ["10.0.0.0/8", "192.0.2.1"], "destinationAddressPrefix": "*", "destinationPortRanges": ports,
        }})
    };
    let rules = json!([
        rule("out", 100, "Outbound", json!(["443"])),
        rule("second", 300, "Inbound", json!(["80"])),
        rule("first", 200, "Inbound", json!(["22", "8080-8090"])),
    ]);
    put_network(&rig, "networkSecurityGroups", "nsg", json!({"properties": {"securityRules": rules}})).await;
    let nic = rig.get(&format!("{}?api-version=2025-05-01", network_id("networkInterfaces", "plain-0-nic"))).await.body;
    let address = &nic["properties"]["ipConfigurations"][0]["properties"]["privateIPAddress"];
    let hop = json!({"addressPrefix": "10.244.0.0/24", "nextHopType": "VirtualAppliance", "nextHopIpAddress": address});
    let routes = json!({"properties": {"routes": [{"name": "r", "properties": hop}]}});
    put_network(&rig, "routeTables", "routes", routes).await;
    let seen = overview(&rig, "").await;
    let rules = row_of(&seen, "Microsoft.Network/networkSecurityGroups", "nsg")["network"]["securityRules"].clone();
    let names: Vec<&str> = rules.as_array().unwrap().iter().map(|rule| rule["name"].as_str().unwrap()).collect();
    assert_eq!((&names[..2], names.len(), names[5]), (&["first", "second"][..], 9, "out"), "{names:?}");
    let first = json!({
        "name": "first", "priority": 200, "direction": "Inbound", "access": "Allow", "protocol": "Tcp",
        "sources": ["10.0.0.0/8", "192.0.2.1"], "sourcePorts": ["*"], "destinations": ["*"], "ports": ["22", "8080-8090"],
        "builtIn": false,
    });
    assert_eq!(rules[0], first);
    let route = &row_of(&seen, "Microsoft.Network/routeTables", "routes")["network"]["routes"][0];
    let expected = json!({"name": "r", "prefix": "10.244.0.0/24", "hop": "VirtualAppliance", "address": address, "machine": "plain-0"});
    assert_eq!(*route, expected);
}

#[tokio::test(start_paused = true)]
async fn the_overview_names_the_caller_and_tells_incidents_whole() {
    let rig = Rig::new(options()).await;
    rig.with("GET", &vm_uri("plain-0"), None, &[("user-agent", "AZURECLI/2.80.0 (PIP)")]).await.expect(200);
    let incident = r#"{"match": {"method": "PUT"}, "then": {"status": 429, "retryAfter": 5}, "times": 3}"#;
    rig.send(request("POST", "/_emulator/incidents", &[HOST, JSON], incident)).await.expect(201);
    let seen = overview(&rig, "").await;
    assert_eq!(seen["calls"][0]["caller"], "Azure CLI");
    let incident = json!({"match": {"method": "PUT"}, "then": {"status": 429, "retryAfter": 5}, "times": 3});
    assert_eq!(seen["incidents"], json!([{"id": 1, "incident": incident, "seen": 0, "struck": 0}]));
}

#[tokio::test(start_paused = true)]
async fn the_overview_shows_scale_sets_and_their_instances_as_machines() {
    let mut options = options();
    options.scenario.scale_sets = vec![crate::scenario::ScaleSet::uniform("pool", 2)];
    let rig = Rig::new(options).await;
    rig.disk("a").await;
    let id = format!("{}/providers/Microsoft.Compute/virtualMachineScaleSets/pool/virtualMachines/1", group());
    let uri = format!("{id}/attachDetachDataDisks?api-version={COMPUTE_VERSION}");
    let body = json!({"dataDisksToAttach": [{"diskId": disk_id("a"), "lun": 3}]});
    let got = rig.call("POST", &uri, Some(body)).await.expect(202);
    rig.finish(&got).await;
    let seen = overview(&rig, "").await;
    let set = row_of(&seen, "Microsoft.Compute/virtualMachineScaleSets", "pool");
    assert_eq!(set["facts"][0], json!(["capacity", "2"]), "{set}");
    assert_eq!(set["facts"][1], json!(["orchestrationMode", "Uniform"]), "{set}");
    let instance = row_of(&seen, "Microsoft.Compute/virtualMachineScaleSets/virtualMachines", "pool_1");
    let machine = json!({
        "power": "running", "size": "Standard_D8s_v3", "slots": 16, "luns": [{"lun": 3, "disk": "a", "state": "attached"}],
    });
    assert_eq!(instance["machine"], machine);
    assert_eq!(row_of(&seen, DISKS, "a")["disk"]["machines"], json!([["pool_1", 3]]));
}

#[tokio::test(start_paused = true)]
async fn the_overview_shows_facts_of_a_resource_without_columns_of_its_own() {
    let rig = Rig::new(slow()).await;
    let prefix = json!({"location": "westeurope", "sku": {"name": "Standard"}, "properties": {"prefixLength": 30}});
    let uri = format!("{}?api-version=2025-05-01", network_id("publicIPPrefixes", "p"));
    rig.call("PUT", &uri, Some(prefix)).await.expect(201);
    let seen = overview(&rig, "").await;
    let prefix = &type_of(&seen, "Microsoft.Network/publicIPPrefixes")["rows"][0];
    assert!(prefix["facts"].as_array().unwrap().contains(&json!(["prefixLength", "30"])), "{prefix}");
    assert!(prefix["network"].is_null());
}

#[tokio::test(start_paused = true)]
async fn the_overview_shows_what_runs_and_what_is_half_attached() {
    let rig = Rig::new(slow()).await;
    rig.disk("d").await;
    let attach = rig.attach_detach("plain-0", json!([{"diskId": disk_id("d"), "lun": 0}]), json!([])).await.expect(202);
    let seen = overview(&rig, "").await;
    assert_eq!(seen["runningOperations"], 1);
    let running = &seen["operations"][0];
    assert_eq!((&running["kind"], &running["resource"]), (&json!("vmAttach"), &json!(vm_id("plain-0"))));
    assert!(running["dueMs"].as_u64() > seen["atMs"].as_u64());
    let machine = row_of(&seen, MACHINES, "plain-0");
    assert_eq!((&machine["machine"]["luns"][0]["state"], &machine["busy"]), (&json!("attaching"), &json!(true)));
    rig.finish(&attach).await;
    assert_eq!(overview(&rig, "").await["operations"], json!([]));
}

#[tokio::test(start_paused = true)]
async fn a_page_gets_only_what_it_has_not_seen() {
    let rig = Rig::new(options()).await;
    rig.disk("d").await;
    let first = overview(&rig, "").await;
    let last = first["calls"].as_array().unwrap().last().unwrap()["number"].as_u64().unwrap();
    assert_eq!(first["calls"][0]["operation"], "disks.createOrUpdate");
    let query = format!("?revision={}&after={last}", first["revision"]);
    let second = overview(&rig, &query).await;
    assert!(second["types"].is_null() && second["calls"] == json!([]), "{second}");
    rig.disk("e").await;
    let third = overview(&rig, &query).await;
    assert_eq!(third["calls"][0]["number"], last + 1);
    assert_eq!(row_of(&third, DISKS, "e")["name"], "e");
    assert_eq!(third["run"], first["run"]);
}

#[tokio::test(start_paused = true)]
async fn an_overview_is_bounded_whatever_exists() {
    let rig = Rig::new(Options { throttling: false, ..options() }).await;
    let many = crate::overview::ROWS_MOST + 10;
    for number in 0..crate::overview::CALLS_MOST + 5 {
        rig.get(&disk_uri(&format!("none-{number}"))).await.expect(404);
    }
    let group: Value = json!({"id": "", "name": "", "type": "Microsoft.Resources/resourceGroups"});
    {
        let control = rig.control();
        let mut state = control.shared.state();
        for number in 0..many {
            let mut group = group.clone();
            let id = format!("{SUB}/resourceGroups/g-{number}");
            group["id"] = json!(id);
            state.store.insert(&id, crate::store::Resource::new(group), Duration::ZERO);
        }
    }
    let seen = overview(&rig, "").await;
    let groups = type_of(&seen, "Microsoft.Resources/resourceGroups");
    assert_eq!(
        (groups["total"].as_u64(), groups["rows"].as_array().unwrap().len()),
        (Some(many as u64 + 1), many - 10)
    );
    assert_eq!(seen["calls"].as_array().unwrap().len(), crate::overview::CALLS_MOST);
    assert_eq!(seen["calls"][0]["path"], disk_id("none-5"));
}

#[tokio::test(start_paused = true)]
async fn page_and_control_answer_to_the_served_host_names_only() {
    let names = vec!["emulator.test".parse().unwrap()];
    let rig = Rig::new(Options { names, ..options() }).await;
    let paths = ["/", "/_emulator/health", "/_emulator/state", "/_emulator/page.js", "/_emulator/nothing"];
    for path in paths {
        for host in ["rebound.example", "localhost.rebound.example:8181", "10.0.0.1"] {
            let got = rig.send(request("GET", path, &[("host", host), ("accept", HTML)], "")).await.expect(421);
            let told = got.body["error"].as_str().unwrap();
            assert!(told.contains(host) && told.contains("localhost, emulator.test, 127.0.0.1, ::1"), "{told}");
        }
        rig.send(request("GET", path, &[("accept", HTML)], "")).await.expect(421);
        let status = if path.ends_with("nothing") { 404 } else { 200 };
        for host in ["localhost", "127.0.0.1:1", "[::1]:2", "Emulator.Test:80"] {
            rig.send(request("GET", path, &[("host", host), ("accept", HTML)], "")).await.expect(status);
        }
    }
    // The planes of Azure answer to whatever name a client has for them.
    rig.with("GET", &vm_uri("plain-0"), None, &[("host", "management.azure.com")]).await.expect(200);
}

#[tokio::test(start_paused = true)]
async fn no_page_of_another_site_drives_the_emulator() {
    let rig = Rig::new(options()).await;
    rig.disk("d").await;
    let incident = r#"{"match": {"method": "GET"}, "then": {"status": 500}}"#;
    let post = |headers: &[(&str, &str)]| {
        rig.send(request("POST", "/_emulator/incidents", &[&[HOST][..], headers].concat(), incident))
    };
    // A form, and a script that avoids the preflight.
    for kind in ["application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/plain"] {
        post(&[("content-type", kind)]).await.expect(415);
    }
    post(&[]).await.expect(415);
    post(&[JSON, ("origin", "https://elsewhere.example"), ("sec-fetch-site", "cross-site")]).await.expect(403);
    post(&[JSON, ("origin", "http://localhost:3000")]).await.expect(403);
    for path in ["/_emulator/calls", "/_emulator/incidents"] {
        rig.send(request("DELETE", path, &[HOST, ("origin", "null")], "")).await.expect(403);
    }
    rig.send(request("POST", "/_emulator/buckets/fill", &[HOST], "")).await.expect(415);
    // The preflight gets no leave.
    let preflight = [HOST, ("origin", "https://elsewhere.example"), ("access-control-request-method", "DELETE")];
    let got = rig.send(request("OPTIONS", "/_emulator/calls", &preflight, "")).await.expect(403);
    assert!(!got.headers.keys().any(|name| name.as_str().starts_with("access-control-")));
    assert!(rig.control().incidents().is_empty() && rig.control().counters().calls > 0);
    post(&[JSON, ("origin", "http://localhost:8181"), ("sec-fetch-site", "same-origin")]).await.expect(201);
}

#[tokio::test(start_paused = true)]
async fn no_secret_is_in_any_answer_of_page_and_control() {
    let rig = Rig::new(options()).await;
    let body = json!({
        "location": "westeurope",
        "properties": {
            "hardwareProfile": {"vmSize": "Standard_D2s_v3"},
            "osProfile": {"computerName": "x", "adminUsername": "x", "adminPassword": "hidden-Password-1", "customData": "aGlkZGVuLWRhdGE="},
            "userData": "aGlkZGVuLXVzZXI=",
        },
    });
    rig.call("PUT", &vm_uri("new"), Some(body)).await;
    let import = json!({
        "location": "westeurope", "sku": {"name": "Premium_LRS"},
        "properties": {"diskSizeGB": 8, "creationData": {
            "createOption": "Import", "storageAccountId": "/subscriptions/s/x",
            "sourceUri": "https://account.blob.core.windows.net/vhds/a.vhd?sv=1&sig=hidden-signature",
        }},
    });
    rig.put_disk("imported", import).await;
    rig.disk("d").await;
    let access = format!("{}/beginGetAccess?api-version={DISKS_VERSION}", disk_id("d"));
    let got = rig.call("POST", &access, Some(json!({"access": "Read", "durationInSeconds": 60}))).await.expect(202);
    let url = rig.finish(&got).await["properties"]["output"]["accessSAS"].as_str().unwrap().to_owned();
    let (_, signature) = url.split_once('?').unwrap();
    let form = format!(
        "grant_type=client_credentials&client_id={}&client_secret={}&scope=https%3A%2F%2Fmanagement.azure.com%2F.default",
        crate::scenario::CLIENT_ID,
        crate::scenario::CLIENT_SECRET
    );
    let login = Request::builder()
        .method("POST")
        .uri(format!("/{}/oauth2/v2.0/token", crate::scenario::TENANT))
        .header("host", "localhost")
        .header("content-type", "application/x-www-form-urlencoded")
        .body(Body::from(form))
        .unwrap();
    let token = rig.send(login).await.expect(200).body["access_token"].as_str().unwrap().to_owned();
    for path in ["state", "calls", "counters", "phases", "incidents", "scenario", "overview", "phases/1/operations"] {
        let (_, shown) = text(&rig, &format!("/_emulator/{path}")).await;
        for secret in
            ["hidden", "aGlkZGVu", signature, crate::scenario::CLIENT_SECRET, token.as_str(), rig.token.as_str()]
        {
            assert!(!shown.contains(secret), "{path} shows {secret}");
        }
    }
    let (_, calls) = text(&rig, "/_emulator/calls").await;
    assert!(calls.contains("a.vhd?<redacted>") && calls.contains(r#""adminPassword":"<redacted>""#));
}
