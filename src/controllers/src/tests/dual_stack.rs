//! Services with IPv4 and IPv6, public and internal, against what the Go cloud-controller-manager wrote for the same ones.

use std::path::Path;

use lazuli_azure::{Until, arm::Write};
use lazuli_quota::poll::Kind;

use super::*;

const NETWORK: &str =
    "/subscriptions/00000000-0000-0000-0000-000000000001/resourceGroups/lazuli/providers/Microsoft.Network";

/// The first step of a case that was recorded with that manager: the Service, its addresses, and the last body of each
/// resource.
fn recorded(case: &str) -> (Value, Vec<String>, BTreeMap<String, Value>) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/it/go_bodies/node-ip.json");
    // The names of this cluster's network.
    let text = std::fs::read_to_string(file)
        .unwrap()
        .replace("~/virtualNetworks/vnet", "~/virtualNetworks/lazuli-vnet")
        .replace("~/networkSecurityGroups/nsg", "~/networkSecurityGroups/nodes-nsg")
        .replace("westeurope", scenario::LOCATION)
        .replace("~/", &format!("{NETWORK}/"));
    let all: Value = serde_json::from_str(&text).unwrap();
    let mut cases = all["cases"].as_array().unwrap().iter();
    let case = cases.find(|one| one["name"] == case).unwrap();
    let step = &case["steps"][0];
    let writes = step["writes"].as_array().unwrap().iter();
    let bodies = writes.map(|write| (write["path"].as_str().unwrap().to_owned(), write["body"].clone()));
    let ingress = step["ingress"].as_array().unwrap().iter().map(|one| one.as_str().unwrap().to_owned());
    (step["service"].clone(), ingress.collect(), bodies.collect())
}

/// What of a recorded body another one lacks or has otherwise, by its path.
fn differences(recorded: &Value, actual: &Value, path: &str) -> Vec<String> {
    match (recorded, actual) {
        (Value::Object(recorded), Value::Object(actual)) => {
            // The recorded manager sends these back, or beside the id of what they name.
            let is_said_twice = |key: &str| key == "name" && recorded.contains_key("id");
            let compared = recorded
                .iter()
                .filter(|(key, _)| !["provisioningState", "type"].contains(&key.as_str()) && !is_said_twice(key));
            let none = Value::Null;
            let of = |(key, value): (&String, &Value)| {
                differences(value, actual.get(key).unwrap_or(&none), &format!("{path}.{key}"))
            };
            compared.flat_map(of).collect()
        }
        (Value::Array(recorded), Value::Array(actual)) => {
            let missing = actual.len() < recorded.len();
            let of = |(at, value): (usize, &Value)| {
                let same = actual.iter().find(|one| value["name"].is_string() && one["name"] == value["name"]);
                differences(value, same.or_else(|| actual.get(at)).unwrap_or(&Value::Null), &format!("{path}[{at}]"))
            };
            let lacks = missing.then(|| format!("{path}: {} of {}", actual.len(), recorded.len()));
            recorded.iter().enumerate().flat_map(of).chain(lacks).collect()
        }
        (Value::String(recorded), Value::String(actual)) if recorded.eq_ignore_ascii_case(actual) => vec![],
        (recorded, actual) if recorded == actual => vec![],
        (recorded, actual) => vec![format!("{path}: {actual}, and the Go manager wrote {recorded}")],
    }
}

/// A cluster whose network and Nodes have both families.
async fn rig() -> Rig {
    let rig = Rig::start().await;
    let (until, vnet) = (Until::within(Duration::from_secs(600)), settings().vnet_id().unwrap());
    let arm = rig.network.arm();
    let priority = lazuli_quota::permit::Priority::Read;
    let mut body = arm.get(vnet.as_str(), API_VERSION, &[], priority, &until).await.unwrap().value;
    let properties = &mut body["properties"];
    properties["addressSpace"]["addressPrefixes"].as_array_mut().unwrap().push("fd00:0:0::/48".into());
    for subnet in properties["subnets"].as_array_mut().unwrap() {
        let own = subnet["properties"].as_object_mut().unwrap();
        let four = own.remove("addressPrefix").unwrap_or_else(|| own["addressPrefixes"][0].clone());
        own.insert("addressPrefixes".to_owned(), json!([four, "fd00:0:0:1::/64"]));
    }
    let write = Write::put(vnet.as_str(), API_VERSION, body, Kind::Other);
    arm.write(write, &until).await.unwrap().settle(&until).await.unwrap();
    for at in 0..2 {
        let mut node = rig.server.get("nodes", "", &format!("node-{at}")).unwrap();
        let six = json!({"type": "InternalIP", "address": format!("fd00:0:0:1::{}", 4 + at)});
        node["status"]["addresses"].as_array_mut().unwrap().push(six);
        rig.server.put("nodes", node).unwrap();
    }
    rig
}

/// Serves a recorded Service and compares everything that the Go manager wrote; then it goes and leaves nothing behind.
async fn serves(case: &str) {
    let rig = rig().await;
    let (service, ingress, bodies) = recorded(case);
    rig.server.put("services", service).unwrap();
    let (stop, running) = rig.controller("first");
    let addresses = rig.addresses("web").await;
    let of_six = |all: &[String]| all.iter().filter(|one| one.contains(':')).count();
    assert_eq!((addresses.len(), of_six(&addresses)), (ingress.len(), of_six(&ingress)), "{addresses:?}");
    sleep(Duration::from_secs(60)).await;
    let until = Until::within(Duration::from_secs(60));
    let mut all = Vec::new();
    for (path, body) in &bodies {
        let priority = lazuli_quota::permit::Priority::Read;
        let read = rig.network.arm().get(path, API_VERSION, &[], priority, &until).await;
        let actual = read.unwrap_or_else(|error| panic!("{path}: {error}")).value;
        // Azure gave that manager other addresses.
        let theirs =
            ingress.iter().map(|one| (one, addresses.iter().find(|own| own.contains(':') == one.contains(':'))));
        let text = theirs.fold(body.to_string(), |text, (one, own)| {
            text.replace(&format!("\"{one}\""), &format!("\"{}\"", own.unwrap()))
        });
        let body = serde_json::from_str(&text).unwrap();
        all.extend(differences(&body, &actual, path.rsplit('/').next().unwrap()));
    }
    assert_eq!(all, Vec::<String>::new());
    let mut written = rig.writes();
    rig.server.delete("services", "default", "web").unwrap();
    rig.until("web is gone", async || rig.server.list("services").is_empty()).await;
    written = rig.writes().split_off(written.len());
    assert_eq!(rig.list(NetworkType::PublicIp).await, Vec::<Value>::new(), "{written:#?}");
    assert_eq!(rig.list(NetworkType::LoadBalancer).await, Vec::<Value>::new(), "{written:#?}");
    let groups = rig.list(NetworkType::SecurityGroup).await;
    let group = groups.iter().find(|one| one["name"] == "nodes-nsg").unwrap();
    assert_eq!(group["properties"]["securityRules"], json!([]), "{written:#?}");
    stop.cancel();
    assert_eq!(running.await.unwrap(), Ended::Stopped);
}

#[tokio::test(start_paused = true)]
async fn a_public_service_of_both_families_has_what_the_go_manager_gives_it() {
    serves("dual stack").await;
}

#[tokio::test(start_paused = true)]
async fn an_internal_service_of_both_families_has_what_the_go_manager_gives_it() {
    serves("dual stack, internal").await;
}

#[tokio::test(start_paused = true)]
async fn a_service_of_ipv6_alone_has_what_the_go_manager_gives_it() {
    serves("IPv6 alone").await;
}
