mod instances;

use super::load_balancers::{id as network_id, reference, subnet, uri as network_uri};
use super::*;
use crate::scenario::ScaleSet;

const NETWORK_VERSION: &str = "2025-05-01";

fn set_id(name: &str) -> String {
    format!("{}/providers/Microsoft.Compute/virtualMachineScaleSets/{name}", group())
}

/// Below a set: `""`, `/virtualMachines/0`, `/delete`.
fn set_uri(name: &str, path: &str) -> String {
    format!("{}{path}?api-version={COMPUTE_VERSION}", set_id(name))
}

fn instance_id(set: &str, number: u64) -> String {
    format!("{}/virtualMachines/{number}", set_id(set))
}

fn instance(set: &str, number: u64) -> String {
    set_uri(set, &format!("/virtualMachines/{number}"))
}

/// A set of this many instances, with its interface in these pools.
fn set(capacity: u64, pools: &[&str]) -> Value {
    let pools: Vec<Value> = pools.iter().map(|pool| reference(pool)).collect();
    json!({
        "location": "westeurope",
        "sku": {"name": "Standard_D4s_v3", "capacity": capacity},
        "properties": {
            "overprovision": false,
            "upgradePolicy": {"mode": "Manual"},
            "virtualMachineProfile": {
                "osProfile": {"computerNamePrefix": "vmss", "adminUsername": "azureuser", "adminPassword": "secret"},
                "storageProfile": {"imageReference": {
                    "publisher": "Canonical", "offer": "ubuntu-24_04-lts", "sku": "server", "version": "latest",
                }},
                "networkProfile": {"networkInterfaceConfigurations": [{"name": "nic", "properties": {
                    "primary": true,
                    "ipConfigurations": [{"name": "ipconfig", "properties": {
                        "subnet": reference(&subnet()), "loadBalancerBackendAddressPools": pools,
                    }}],
                }}]},
            },
        },
    })
}

fn with_pools(pools: &[&str]) -> Value {
    set(0, pools)["properties"]["virtualMachineProfile"]["networkProfile"]["networkInterfaceConfigurations"].clone()
}

/// The body that changes what a model says of its network, and nothing else.
fn model_of_network(pools: &[&str]) -> Value {
    json!({"location": "westeurope", "properties": {"virtualMachineProfile": {"networkProfile": {
        "networkInterfaceConfigurations": with_pools(pools),
    }}}})
}

fn own_network(pools: &[&str]) -> Value {
    json!({"location": "westeurope", "properties": {"networkProfileConfiguration": {
        "networkInterfaceConfigurations": with_pools(pools),
    }}})
}

fn pool() -> String {
    format!("{}/backendAddressPools/pool", network_id("loadBalancers", "lb"))
}

impl Rig {
    async fn done(&self, got: Got) -> Got {
        let end = self.finish(&got).await;
        assert_eq!(end["status"], "Succeeded", "{end}");
        got
    }

    async fn change(&self, method: &str, uri: &str, body: Value) -> Got {
        let got = self.call(method, uri, Some(body)).await;
        assert!(got.status < 300, "{}", got.body);
        self.done(got).await
    }

    async fn scale_set(&self, name: &str, body: Value) -> Value {
        self.change("PUT", &set_uri(name, ""), body).await;
        self.get(&set_uri(name, "")).await.expect(200).body
    }

    async fn instances(&self, set: &str, query: &str) -> Vec<Value> {
        let uri = format!("{}{query}", set_uri(set, "/virtualMachines"));
        self.get(&uri).await.expect(200).body["value"].as_array().unwrap().clone()
    }

    async fn names(&self, set: &str) -> Vec<String> {
        let instances = self.instances(set, "").await;
        instances.iter().map(|doc| doc["name"].as_str().unwrap().to_owned()).collect()
    }

    async fn nic(&self, set: &str, number: u64) -> Value {
        let path = format!("{}/networkInterfaces/nic?api-version=2018-10-01", instance_id(set, number));
        self.get(&path.replace("Microsoft.Compute", "microsoft.Compute")).await.expect(200).body
    }

    /// A load balancer with an empty pool, and its etag.
    async fn balancer(&self, name: &str) -> String {
        let body = json!({"location": "westeurope", "sku": {"name": "Standard"}, "properties": {
            "frontendIPConfigurations": [{"name": "f", "properties": {"subnet": reference(&subnet())}}],
            "backendAddressPools": [{"name": "pool"}],
        }});
        self.change("PUT", &network_uri("loadBalancers", name), body).await;
        self.balancer_etag(name).await
    }

    async fn balancer_etag(&self, name: &str) -> String {
        let shown = self.get(&network_uri("loadBalancers", name)).await.expect(200).body;
        shown["etag"].as_str().unwrap().to_owned()
    }
}

#[tokio::test(start_paused = true)]
async fn a_uniform_set_has_numbered_instances_with_disks_and_interfaces() {
    let rig = Rig::new(slow()).await;
    let got = rig.call("PUT", &set_uri("s", ""), Some(set(2, &[]))).await.expect(201);
    assert_eq!((got.header("etag"), got.header("x-ms-request-charge")), ("\"1\"", "2"));
    assert_eq!((got.header("location"), got.header("x-ms-need-to-refresh-epl-cache")), ("", "False"));
    assert_eq!(got.body["properties"]["provisioningState"], "Creating");
    assert!(got.body["properties"]["virtualMachineProfile"]["osProfile"].get("adminPassword").is_none());
    let during = rig.get(&instance("s", 0)).await.expect(200).body;
    assert_eq!(during["properties"]["provisioningState"], "Creating");
    let early = rig.call("PUT", &instance("s", 0), Some(own_network(&[]))).await.refused(409, "OperationNotAllowed");
    assert!(early.message().ends_with("is not allowed because the VM instance is not provisioned yet."));
    let end = rig.finish(&got).await;
    assert_eq!((&end["status"], end.get("properties")), (&json!("Succeeded"), None));
    let made = rig.get(&set_uri("s", "")).await.expect(200);
    assert_eq!((made.header("etag"), &made.body["sku"]["capacity"]), ("\"1\"", &json!(2)));
    assert_eq!(rig.names("s").await, ["s_0", "s_1"]);
    let one = rig.get(&instance("s", 1)).await.expect(200).body;
    assert_eq!((&one["instanceId"], &one["id"]), (&json!("1"), &json!(instance_id("s", 1))));
    let properties = &one["properties"];
    assert_eq!(properties["osProfile"]["computerName"], "vmss000001");
    assert_eq!((&properties["latestModelApplied"], &properties["hardwareProfile"]), (&json!(true), &json!({})));
    assert_eq!(one["sku"], json!({"name": "Standard_D4s_v3", "tier": "Standard"}));
    let nic = rig.nic("s", 1).await;
    assert_eq!(properties["networkProfile"]["networkInterfaces"][0]["id"], nic["id"]);
    assert_eq!(nic["properties"]["virtualMachine"]["id"], one["id"]);
    assert!(nic.get("type").is_none() && nic.get("location").is_none());
    // The machines of the scenario have the first addresses.
    let address = |nic: &Value| nic["properties"]["ipConfigurations"][0]["properties"]["privateIPAddress"].clone();
    let both = [address(&rig.nic("s", 0).await), address(&nic)];
    assert_eq!(both, [json!("10.240.0.12"), json!("10.240.0.13")]);
    let os_disk = properties["storageProfile"]["osDisk"]["managedDisk"]["id"].as_str().unwrap();
    let disk = rig.get(&format!("{os_disk}?api-version={DISKS_VERSION}")).await.expect(200).body;
    assert_eq!(disk["managedBy"], one["id"]);
    // The gateway lists the set and the disk, and neither instance nor interface.
    let listed = rig.get(&format!("{}/resources?api-version=2021-04-01", group())).await.expect(200).body;
    let types: Vec<&str> = listed["value"].as_array().unwrap().iter().filter_map(|r| r["type"].as_str()).collect();
    assert!(types.contains(&"Microsoft.Compute/virtualMachineScaleSets"));
    assert!(!types.iter().any(|kind| kind.starts_with("Microsoft.Compute/virtualMachineScaleSets/")));
    let lists = [
        format!("{}/providers/Microsoft.Compute/virtualMachineScaleSets", group()),
        format!("{SUB}/providers/Microsoft.Compute/virtualMachineScaleSets"),
        format!("{SUB}/providers/Microsoft.Compute/locations/westeurope/virtualMachineScaleSets"),
    ];
    for list in lists {
        let listed = rig.get(&format!("{list}?api-version={COMPUTE_VERSION}")).await.expect(200).body;
        assert_eq!(listed["value"].as_array().unwrap().len(), 1, "{list}");
    }
    // With the set everything goes.
    let got = rig.call("DELETE", &set_uri("s", ""), None).await.expect(202);
    assert_eq!(got.header("x-ms-request-charge"), "2");
    rig.done(got).await;
    rig.get(&set_uri("s", "")).await.refused(404, "ResourceNotFound");
    rig.get(&format!("{os_disk}?api-version={DISKS_VERSION}")).await.refused(404, "ResourceNotFound");
    rig.get(&set_uri("s", "/virtualMachines")).await.refused(404, "ParentResourceNotFound");
    rig.get(&instance("s", 0)).await.refused(404, "ParentResourceNotFound");
    rig.call("DELETE", &set_uri("s", ""), None).await.expect(204);
    assert_eq!(rig.control().store(|store| store.machines().len()), 8);
}

#[tokio::test(start_paused = true)]
async fn a_put_of_a_set_keeps_what_it_leaves_out_and_counts_changes() {
    let rig = Rig::new(slow()).await;
    let made = rig.scale_set("s", set(1, &[])).await;
    let same = rig.change("PUT", &set_uri("s", ""), set(1, &[])).await;
    assert_eq!((same.status, same.header("etag"), same.header("x-ms-request-charge")), (200, "\"1\"", "0"));
    assert_eq!(same.body["properties"]["provisioningState"], "Updating");
    let tagged = json!({"location": "westeurope", "tags": {"a": "b"}});
    rig.with("PUT", &set_uri("s", ""), Some(tagged.clone()), &[("if-match", "invalid")])
        .await
        .refused(412, "PreconditionFailed");
    let got = rig.with("PUT", &set_uri("s", ""), Some(tagged), &[("if-match", "\"1\"")]).await.expect(200);
    assert_eq!(got.header("etag"), "\"2\"");
    rig.call("PUT", &set_uri("s", ""), Some(set(1, &[]))).await.refused(409, "Conflict");
    rig.done(got).await;
    let shown = rig.get(&set_uri("s", "")).await.expect(200).body;
    assert_eq!((&shown["tags"], &shown["properties"]), (&json!({"a": "b"}), &made["properties"]));
    rig.change("PATCH", &set_uri("s", ""), json!({"sku": {"capacity": 2}})).await;
    assert_eq!(rig.names("s").await, ["s_0", "s_1"]);
    // What is read can be written.
    let shown = rig.get(&set_uri("s", "")).await.expect(200);
    assert_eq!(shown.header("etag"), "\"3\"");
    assert_eq!(rig.change("PUT", &set_uri("s", ""), shown.body).await.header("etag"), "\"3\"");
}

#[tokio::test(start_paused = true)]
async fn instances_come_and_go_and_no_number_comes_twice() {
    let rig = Rig::new(slow()).await;
    let mut body = set(4, &[]);
    body["zones"] = json!(["1", "2"]);
    rig.scale_set("s", body).await;
    let zones: Vec<Value> = rig.instances("s", "").await.iter().map(|doc| doc["zones"].clone()).collect();
    assert_eq!(zones, [json!(["1"]), json!(["2"]), json!(["1"]), json!(["2"])]);
    // One of a zone goes, then the highest of the zone that has more.
    rig.call("DELETE", &instance("s", 0), None).await.expect(202);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(rig.get(&set_uri("s", "")).await.expect(200).body["sku"]["capacity"], 3);
    let got = rig.change("PATCH", &set_uri("s", ""), json!({"sku": {"capacity": 2}})).await;
    assert_eq!(got.status, 200);
    assert_eq!(rig.names("s").await, ["s_1", "s_2"]);
    rig.change("PATCH", &set_uri("s", ""), json!({"sku": {"capacity": 3}})).await;
    assert_eq!(rig.names("s").await, ["s_1", "s_2", "s_4"]);
    let got = rig.change("POST", &set_uri("s", "/delete"), json!({"instanceIds": ["1", "4"]})).await;
    assert_eq!(got.status, 202);
    assert_eq!(rig.names("s").await, ["s_2"]);
    assert_eq!(rig.get(&set_uri("s", "")).await.expect(200).body["sku"]["capacity"], 1);
}

#[tokio::test(start_paused = true)]
async fn a_model_and_its_instances_join_and_leave_pools() {
    let rig = Rig::new(slow()).await;
    rig.balancer("lb").await;
    rig.scale_set("s", set(2, &[])).await;
    let made = rig.balancer_etag("lb").await;
    // First the model: instances lag until they are written.
    rig.change("PUT", &set_uri("s", ""), model_of_network(&[&pool()])).await;
    let latest = |instances: &[Value]| -> Vec<Value> {
        instances.iter().map(|doc| doc["properties"]["latestModelApplied"].clone()).collect()
    };
    assert_eq!(latest(&rig.instances("s", "").await), [json!(false), json!(false)]);
    assert_eq!(rig.instances("s", "&$filter=properties/latestModelApplied%20eq%20false").await.len(), 2);
    assert_eq!(rig.balancer_etag("lb").await, made);
    let used = |got: Got| {
        let set = set_id("s");
        assert!(got.message().ends_with(&format!("in use by virtual machine scale set {set}.")), "{}", got.message());
    };
    let lb = network_uri("loadBalancers", "lb");
    used(rig.call("DELETE", &lb, None).await.refused(400, "LoadBalancerInUseByVirtualMachineScaleSet"));
    let pool_uri = format!("{}?api-version={NETWORK_VERSION}", pool());
    used(rig.call("DELETE", &pool_uri, None).await.refused(400, "BackendAddressPoolInUseByVirtualMachineScaleSet"));
    // An instance by its own write, the other by an upgrade.
    let got = rig.call("PUT", &instance("s", 0), Some(own_network(&[&pool()]))).await.expect(200);
    assert_eq!(got.body["properties"]["modelDefinitionApplied"], "VirtualMachine");
    let pools =
        |nic: &Value| nic["properties"]["ipConfigurations"][0]["properties"]["loadBalancerBackendAddressPools"].clone();
    let before = rig.nic("s", 0).await;
    assert_eq!(pools(&before), json!([]));
    rig.done(got).await;
    let joined = rig.nic("s", 0).await;
    assert_eq!(pools(&joined), json!([reference(&pool())]));
    let address = |nic: &Value| nic["properties"]["ipConfigurations"][0]["properties"]["privateIPAddress"].clone();
    assert_eq!(address(&joined), address(&before));
    assert_ne!(joined["etag"], before["etag"]);
    assert_ne!(rig.balancer_etag("lb").await, made);
    rig.call("POST", &set_uri("s", "/manualupgrade"), Some(json!({}))).await.refused(400, "InvalidParameter");
    rig.change("POST", &set_uri("s", "/manualupgrade"), json!({"instanceIds": ["1"]})).await;
    assert_eq!(latest(&rig.instances("s", "").await), [json!(false), json!(true)]);
    // A new instance joins without another write.
    rig.change("PATCH", &set_uri("s", ""), json!({"sku": {"capacity": 3}})).await;
    let shown = rig.get(&lb).await.expect(200).body;
    let members = &shown["properties"]["backendAddressPools"][0]["properties"];
    let configuration =
        |n: u64| reference(&format!("{}/networkInterfaces/nic/ipConfigurations/ipconfig", instance_id("s", n)));
    let all: Vec<Value> = (0..3).map(configuration).collect();
    assert_eq!(members["backendIPConfigurations"], json!(all));
    assert_eq!(members["loadBalancerBackendAddresses"].as_array().unwrap().len(), 3);
    // Leaving: the model alone does not let the pool go.
    rig.change("PUT", &set_uri("s", ""), model_of_network(&[])).await;
    used(rig.call("DELETE", &lb, None).await.refused(400, "LoadBalancerInUseByVirtualMachineScaleSet"));
    rig.change("POST", &set_uri("s", "/manualupgrade"), json!({"instanceIds": ["*"]})).await;
    let got = rig.call("DELETE", &lb, None).await.expect(202);
    rig.done(got).await;
}

#[tokio::test(start_paused = true)]
async fn what_a_set_names_must_exist_and_be_one_of_each_type() {
    let rig = Rig::new(options()).await;
    rig.balancer("lb").await;
    let none = pool().replace("/pool", "/none");
    let got = rig.call("PUT", &set_uri("s", ""), Some(set(1, &[&none]))).await.refused(400, "InvalidResourceReference");
    assert!(got.message().contains(&format!("referenced by resource {} was not found", set_id("s"))));
    rig.scale_set("s", set(1, &[])).await;
    let got =
        rig.call("PUT", &instance("s", 0), Some(own_network(&[&none]))).await.refused(400, "InvalidResourceReference");
    assert!(got.message().contains(&instance_id("s", 0)), "{}", got.message());
    rig.balancer("second").await;
    let other = pool().replace("/lb/", "/second/");
    let code = "NetworkInterfaceUsesMultipleLoadBalancersOfSameType";
    rig.call("PUT", &set_uri("s", ""), Some(model_of_network(&[&pool(), &other]))).await.refused(400, code);
    rig.call("PUT", &instance("s", 0), Some(own_network(&[&pool(), &other]))).await.refused(400, code);
}

#[tokio::test(start_paused = true)]
async fn a_model_reaches_instances_as_the_upgrade_policy_says() {
    let rig = Rig::new(slow()).await;
    rig.balancer("lb").await;
    let mut body = set(2, &[]);
    body["properties"]["upgradePolicy"]["mode"] = json!("Automatic");
    rig.scale_set("auto", body.clone()).await;
    rig.change("PUT", &set_uri("auto", ""), model_of_network(&[&pool()])).await;
    for doc in rig.instances("auto", "").await {
        assert_eq!(doc["properties"]["latestModelApplied"], true);
    }
    body["sku"]["capacity"] = json!(3);
    body["properties"]["upgradePolicy"] = json!({
        "mode": "Rolling",
        "rollingUpgradePolicy": {"maxBatchInstancePercent": 34, "pauseTimeBetweenBatches": "PT2M"},
    });
    rig.scale_set("roll", body).await;
    rig.change("PUT", &set_uri("roll", ""), model_of_network(&[&pool()])).await;
    let upgraded = async || {
        let instances = rig.instances("roll", "").await;
        instances.iter().filter(|doc| doc["properties"]["latestModelApplied"] == true).count()
    };
    assert_eq!(upgraded().await, 2);
    tokio::time::sleep(Duration::from_secs(125)).await;
    assert_eq!(upgraded().await, 3);
}

#[tokio::test(start_paused = true)]
async fn a_flexible_set_has_virtual_machines() {
    let rig = Rig::new(slow()).await;
    rig.balancer("lb").await;
    let mut body = set(2, &[&pool()]);
    body["properties"]["orchestrationMode"] = json!("Flexible");
    body["properties"]["platformFaultDomainCount"] = json!(2);
    let shown = rig.scale_set("f", body).await;
    assert_eq!(shown["properties"]["singlePlacementGroup"], false);
    let filter = format!("&$filter='virtualMachineScaleSet/id'%20eq%20'{}'&$expand=instanceView", set_id("f"));
    let list = format!("{}/providers/Microsoft.Compute/virtualMachines?api-version={COMPUTE_VERSION}{filter}", group());
    let machines = rig.get(&list).await.expect(200).body["value"].as_array().unwrap().clone();
    assert_eq!(machines.len(), 2);
    let one = &machines[0];
    assert_eq!(one["properties"]["virtualMachineScaleSet"], reference(&set_id("f")));
    assert_eq!(one["properties"]["hardwareProfile"]["vmSize"], "Standard_D4s_v3");
    let name = one["name"].as_str().unwrap();
    let suffix = name.strip_prefix("f_").unwrap();
    assert!(suffix.len() == 8 && suffix.bytes().all(|byte| byte.is_ascii_hexdigit()), "{name}");
    let computer = one["properties"]["osProfile"]["computerName"].as_str().unwrap();
    assert!(computer.starts_with("vmss") && computer.len() == 10, "{computer}");
    let domains: std::collections::BTreeSet<u64> =
        machines.iter().map(|doc| doc["properties"]["instanceView"]["platformFaultDomain"].as_u64().unwrap()).collect();
    assert_eq!(domains.len(), 2);
    // It has interfaces of its own, and the set has none.
    let nic = one["properties"]["networkProfile"]["networkInterfaces"][0]["id"].as_str().unwrap();
    let nic = format!("{nic}?api-version={NETWORK_VERSION}");
    let interface = rig.get(&nic).await.expect(200).body;
    let own = &interface["properties"]["ipConfigurations"][0]["properties"];
    assert_eq!(own["loadBalancerBackendAddressPools"], json!([reference(&pool())]));
    rig.get(&set_uri("f", "/networkInterfaces")).await.refused(404, "NotFound");
    assert_eq!(rig.instances("f", "").await.len(), 2);
    // It is a machine as any other, and the set counts it.
    rig.disk("a").await;
    rig.attached(name, &[("a", 0)]).await;
    assert_eq!(rig.luns(name), [(0, "a".to_owned())]);
    let got = rig.call("DELETE", &vm_uri(name), None).await.expect(202);
    rig.done(got).await;
    rig.get(&nic).await.refused(404, "ResourceNotFound");
    assert_eq!(rig.get(&set_uri("f", "")).await.expect(200).body["sku"]["capacity"], 1);
    rig.change("PATCH", &set_uri("f", ""), json!({"sku": {"capacity": 2}})).await;
    assert_eq!(rig.get(&list).await.expect(200).body["value"].as_array().unwrap().len(), 2);
    let got = rig.call("DELETE", &set_uri("f", ""), None).await.expect(202);
    rig.done(got).await;
    assert_eq!(rig.get(&list).await.expect(200).body["value"], json!([]));
}

#[tokio::test(start_paused = true)]
async fn a_set_is_refused_what_azure_refuses() {
    // More refusals than a bucket has tokens.
    let rig = Rig::new(Options { throttling: false, ..options() }).await;
    let with = |pointer: &str, value: Value| {
        let mut body = set(1, &[]);
        let (parent, member) = pointer.rsplit_once('/').unwrap();
        body.pointer_mut(parent).unwrap()[member] = value;
        body
    };
    let profile = "/properties/virtualMachineProfile";
    for (body, status, code) in [
        (with("/sku/name", json!("Standard_Nothing")), 400, "InvalidParameter"),
        (with("/sku/capacity", json!(1001)), 400, "InvalidParameter"),
        (with("/sku/capacity", json!(-1)), 400, "InvalidParameter"),
        (with("/sku/capacity", json!(101)), 409, "OperationNotAllowed"),
        (with("/zones", json!(["9"])), 400, "InvalidAvailabilityZone"),
        (with("/location", json!("nowhere")), 400, "LocationNotAvailableForResourceType"),
        (with(&format!("{profile}/networkProfile"), json!({})), 400, "InvalidParameter"),
        (with(&format!("{profile}/surprise"), json!(1)), 400, "BadRequest"),
        (with("/properties/orchestrationMode", json!("Loose")), 400, "InvalidParameter"),
    ] {
        rig.call("PUT", &set_uri("s", ""), Some(body)).await.refused(status, code);
    }
    rig.scale_set("s", set(1, &[])).await;
    for body in [
        with("/properties/orchestrationMode", json!("Flexible")),
        with(&format!("{profile}/osProfile/computerNamePrefix"), json!("other")),
        with("/zones", json!(["1"])),
    ] {
        rig.call("PUT", &set_uri("s", ""), Some(body)).await.refused(409, "PropertyChangeNotAllowed");
    }
    // Quotas count instances.
    let rig = Rig::new(Options { quotas: [("cores".to_owned(), 60)].into(), ..options() }).await;
    let got = rig.call("PUT", &set_uri("s", ""), Some(set(8, &[]))).await.refused(409, "OperationNotAllowed");
    assert!(got.message().contains("Current Usage: 32, Additional Required: 32"), "{}", got.message());
    rig.get(&set_uri("s", "")).await.refused(404, "ResourceNotFound");
    assert!(rig.control().store(|store| store.machines().len()) == 8);
}

#[tokio::test(start_paused = true)]
async fn a_group_takes_its_sets_with_it() {
    let rig = Rig::new(options()).await;
    rig.scale_set("s", set(2, &[])).await;
    let got = rig.call("DELETE", &format!("{}?api-version=2021-04-01", group()), None).await.expect(202);
    for _ in 0..10 {
        if rig.get(path_of(got.header("location"))).await.status == 200 {
            break;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(rig.control().store(|store| store.machines().len()), 0);
}

/// The metadata of a machine, by its name.
async fn metadata(rig: &Rig, machine: &str) -> Value {
    let uri = format!("/_imds/{machine}/metadata/instance?api-version=2021-02-01");
    rig.with("GET", &uri, None, &[("metadata", "true")]).await.expect(200).body
}

#[tokio::test(start_paused = true)]
async fn a_scenario_has_sets_whose_instances_know_what_they_are() {
    let mut options = options();
    let mut uniform = ScaleSet::uniform("pool", 40);
    uniform.computer_name_prefix = Some("aks-pool-vmss".to_owned());
    options.scenario.scale_sets = vec![uniform, ScaleSet::flexible("flex", 2)];
    options.scenario.check().unwrap();
    let rig = Rig::new(options).await;
    let names = rig.names("pool").await;
    assert_eq!((names.len(), names[0].as_str()), (40, "pool_0"));
    let seen = metadata(&rig, "aks-pool-vmss000010").await;
    let compute = &seen["compute"];
    assert_eq!((&compute["name"], &compute["vmScaleSetName"]), (&json!("pool_36"), &json!("pool")));
    assert_eq!(
        (&compute["resourceId"], &compute["vmSize"]),
        (&json!(instance_id("pool", 36)), &json!("Standard_D8s_v3"))
    );
    assert_eq!((&compute["platformFaultDomain"], &compute["virtualMachineScaleSet"]["id"]), (&json!("1"), &json!("")));
    let address = &seen["network"]["interface"][0]["ipv4"]["ipAddress"][0]["privateIpAddress"];
    assert!(address.as_str().unwrap().starts_with("10.240.0."), "{address}");
    let token =
        "/_imds/pool_36/metadata/identity/oauth2/token?api-version=2018-02-01&resource=https://management.azure.com/";
    rig.with("GET", token, None, &[("metadata", "true")]).await.expect(200);
    // A disk that it holds shows at its LUN, also before the metadata service is asked the first time.
    rig.disk("a").await;
    let uri = set_uri("pool", "/virtualMachines/36/attachDetachDataDisks");
    rig.change("POST", &uri, json!({"dataDisksToAttach": [{"diskId": disk_id("a"), "lun": 5}]})).await;
    let disks = metadata(&rig, "pool_36").await["compute"]["storageProfile"]["dataDisks"].clone();
    assert_eq!((&disks[0]["lun"], &disks[0]["managedDisk"]["id"]), (&json!("5"), &json!(disk_id("a"))));
    let machines = rig.control().store(|store| store.vms());
    let flexible = machines.iter().find(|vm| vm["name"].as_str().unwrap().starts_with("flex_")).unwrap();
    let seen = metadata(&rig, flexible["name"].as_str().unwrap()).await;
    assert_eq!(seen["compute"]["vmScaleSetName"], "flex");
    assert_eq!(seen["compute"]["virtualMachineScaleSet"]["id"], set_id("flex"));
    // The next instance has the next number.
    rig.change("PATCH", &set_uri("pool", ""), json!({"sku": {"capacity": 41}})).await;
    assert!(rig.names("pool").await.contains(&"pool_40".to_owned()));
}

#[test]
fn a_scenario_of_impossible_sets_is_refused_by_the_key() {
    let refused = |text: &str| Scenario::parse(text).unwrap_err().to_string();
    for (text, key) in [
        ("scaleSets: [{name: a, count: 1001}]", "scaleSets[0].count"),
        ("scaleSets: [{name: a, count: 1, size: Big}]", "scaleSets[0].size"),
        ("scaleSets: [{name: a, count: 1, zones: ['7']}]", "scaleSets[0].zones"),
        ("scaleSets: [{name: a, count: 1, subnet: x/y}]", "scaleSets[0].subnet"),
        ("scaleSets: [{name: a, count: 1}, {name: A, count: 1}]", "scaleSets[1].name"),
        ("scaleSets: [{name: a, count: 1, resourceGroup: none}]", "scaleSets[0].resourceGroup"),
    ] {
        assert!(refused(text).starts_with(key), "{}", refused(text));
    }
    let scenario = Scenario::parse("scaleSets: [{name: a, count: 1, orchestration: flexible, upgradePolicy: rolling}]");
    assert_eq!(scenario.unwrap().scale_sets.len(), 1);
}

#[tokio::test]
async fn instances_of_a_scenario_have_their_system_where_their_set_says() {
    let os = "osDisk: {placement: NvmeDisk}";
    let text = format!(
        "scaleSets:\n- {{name: local, count: 1, size: Standard_D8ds_v6, {os}}}\n\
         - {{name: flex, count: 1, size: Standard_D8ds_v6, orchestration: flexible, {os}}}\n\
         - {{name: remote, count: 1, size: Standard_D8ds_v6}}\n"
    );
    let options = Options { scenario: Scenario::parse(&text).unwrap(), ..Options::default() };
    let rig = Rig::new(options).await;
    let machines = rig.control().store(|store| store.machines());
    for (set, system) in [("local", false), ("flex", false), ("remote", true)] {
        let instance = machines.iter().find(|machine| machine["name"].as_str().unwrap().starts_with(set)).unwrap();
        let shown = crate::arm::compute::disk_controller::shown(instance, false);
        assert_eq!(shown, crate::hypervisor::Shown::Nvme { multipath: false, system }, "{instance:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn writes_of_sets_and_instances_in_flight_at_a_kill_are_at_their_end_after_the_next_start() {
    let folder = recovery::Folder::new("scale-sets");
    let rig = Rig::new(folder.options()).await;
    rig.balancer("lb").await;
    for name in ["grows", "shrinks", "goes", "own"] {
        rig.scale_set(name, set(2, &[])).await;
    }
    rig.disk("a").await;
    let capacity = |count: u64| Some(json!({"sku": {"capacity": count}}));
    rig.call("PATCH", &set_uri("grows", ""), capacity(3)).await.expect(200);
    rig.call("PATCH", &set_uri("shrinks", ""), capacity(1)).await.expect(200);
    rig.call("DELETE", &set_uri("goes", ""), None).await.expect(202);
    rig.call("DELETE", &instance("own", 0), None).await.expect(202);
    let mut body = own_network(&[&pool()]);
    body["properties"]["storageProfile"] = json!({"dataDisks": [element("a", 7)]});
    rig.call("PUT", &instance("own", 1), Some(body)).await.expect(200);
    recovery::kill(rig, &folder).await;
    let rig = Rig::new(folder.options()).await;
    assert_eq!(rig.names("grows").await, ["grows_0", "grows_1", "grows_2"]);
    assert_eq!(rig.names("shrinks").await, ["shrinks_0"]);
    rig.get(&set_uri("goes", "")).await.refused(404, "ResourceNotFound");
    assert_eq!(rig.names("own").await, ["own_1"]);
    for (name, count) in [("grows", 3), ("shrinks", 1), ("own", 1)] {
        let shown = rig.get(&set_uri(name, "")).await.expect(200).body;
        assert_eq!(
            (&shown["sku"]["capacity"], &shown["properties"]["provisioningState"]),
            (&json!(count), &json!("Succeeded"))
        );
        for doc in rig.instances(name, "").await {
            assert_eq!(doc["properties"]["provisioningState"], "Succeeded", "{name}");
        }
    }
    let own = rig.control().store(|store| store.lun_map(&instance_id("own", 1)));
    assert_eq!(own.into_iter().collect::<Vec<_>>(), [(7, disk_id("a"))]);
    let configuration = &rig.nic("own", 1).await["properties"]["ipConfigurations"][0];
    assert_eq!(configuration["properties"]["loadBalancerBackendAddressPools"], json!([reference(&pool())]));
    // Numbers go on.
    rig.change("PATCH", &set_uri("shrinks", ""), json!({"sku": {"capacity": 2}})).await;
    assert_eq!(rig.names("shrinks").await, ["shrinks_0", "shrinks_2"]);
}

#[tokio::test(start_paused = true)]
async fn what_fails_late_shows_it_on_the_set_and_its_instances() {
    let rig = Rig::new(slow()).await;
    rig.control()
        .add_incident(
            serde_json::from_value(json!({
                "match": {"operation": "virtualMachineScaleSets.createOrUpdate"}, "times": 1,
                "then": {"lateFailure": {"code": "OverconstrainedAllocationRequest", "message": "no room"}},
            }))
            .unwrap(),
        )
        .unwrap();
    let got = rig.call("PUT", &set_uri("s", ""), Some(set(1, &[]))).await.expect(201);
    assert_eq!(rig.finish(&got).await["status"], "Failed");
    assert_eq!(rig.get(&set_uri("s", "")).await.expect(200).body["properties"]["provisioningState"], "Failed");
    assert_eq!(rig.instances("s", "").await[0]["properties"]["provisioningState"], "Failed");
    let got = rig.call("DELETE", &set_uri("s", ""), None).await.expect(202);
    rig.done(got).await;
}

#[tokio::test(start_paused = true)]
async fn a_model_that_is_written_back_keeps_what_its_writer_does_not_know() {
    let rig = Rig::new(Options { future_fields: true, ..options() }).await;
    rig.scale_set("s", set(1, &[])).await;
    let shown = rig.get(&set_uri("s", "")).await.expect(200).body;
    rig.change("PUT", &set_uri("s", ""), shown.clone()).await;
    let pointer = "/properties/virtualMachineProfile/networkProfile/networkInterfaceConfigurations/0";
    let inner = "/properties/ipConfigurations/0/properties";
    for part in ["/properties", inner] {
        let mut dropped = shown.clone();
        let own = dropped.pointer_mut(&format!("{pointer}{part}")).unwrap();
        own.as_object_mut().unwrap().remove(crate::unknown_fields::MEMBER).unwrap();
        rig.call("PUT", &set_uri("s", ""), Some(dropped)).await.refused(400, "BadRequest");
    }
    let one = rig.get(&instance("s", 0)).await.expect(200).body;
    let body = |configurations: Value| json!({"location": "westeurope", "properties": {"networkProfileConfiguration": configurations}});
    let mut configurations = one["properties"]["networkProfileConfiguration"].clone();
    rig.change("PUT", &instance("s", 0), body(configurations.clone())).await;
    let own = configurations.pointer_mut(&format!("/networkInterfaceConfigurations/0{inner}")).unwrap();
    own.as_object_mut().unwrap().remove(crate::unknown_fields::MEMBER).unwrap();
    rig.call("PUT", &instance("s", 0), Some(body(configurations))).await.refused(400, "BadRequest");
    assert_eq!(rig.control().violations().len(), 3);
}

/// The template of `az vmss create` quotes it.
#[tokio::test(start_paused = true)]
async fn a_model_may_quote_that_its_interface_is_the_primary_one() {
    let rig = Rig::new(options()).await;
    let mut body = set(1, &[]);
    let path = "/properties/virtualMachineProfile/networkProfile/networkInterfaceConfigurations/0/properties/primary";
    *body.pointer_mut(path).unwrap() = json!("true");
    let got = rig.call("PUT", &set_uri("s", ""), Some(body)).await.expect(201);
    rig.done(got).await;
    let shown = rig.get(&set_uri("s", "")).await.expect(200).body;
    assert_eq!(shown.pointer(path), Some(&json!(true)));
}
