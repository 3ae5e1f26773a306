//! What the cells of a row show.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Value, json};

/// How many ports and addresses of a slice are shown.
const SHOWN: usize = 3;

pub(super) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn or<'a>(text: &'a str, otherwise: &'a str) -> &'a str {
    if text.is_empty() { otherwise } else { text }
}

pub(super) fn list<'a>(object: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    object.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

/// How many members a map has.
pub(super) fn size(object: &Value, pointer: &str) -> usize {
    object.pointer(pointer).and_then(Value::as_object).map_or(0, serde_json::Map::len)
}

pub(super) fn named(object: &Value) -> Value {
    json!(text(object, "/metadata/name"))
}

/// The time since a moment, as people read it.
fn since(stamp: &str, now: Timestamp) -> String {
    match stamp.parse::<Timestamp>() {
        Ok(then) => elapsed(now.duration_since(then).as_secs()),
        Err(_) => "<unknown>".to_owned(),
    }
}

pub(super) fn age(object: &Value, now: Timestamp) -> Value {
    json!(since(text(object, "/metadata/creationTimestamp"), now))
}

/// Seconds in at most two units. Source: `HumanDuration` of apimachinery.
pub(super) fn elapsed(seconds: i64) -> String {
    let (minutes, hours) = (seconds / 60, seconds / 3_600);
    let (days, years) = (hours / 24, hours / 24 / 365);
    let two = |more: i64, unit: &str, less: i64, small: &str| match less {
        0 => format!("{more}{unit}"),
        _ => format!("{more}{unit}{less}{small}"),
    };
    match seconds {
        ..-1 => "<invalid>".to_owned(),
        -1..0 => "0s".to_owned(),
        _ if seconds < 120 => format!("{seconds}s"),
        _ if minutes < 10 => two(minutes, "m", seconds % 60, "s"),
        _ if minutes < 180 => format!("{minutes}m"),
        _ if hours < 8 => two(hours, "h", minutes % 60, "m"),
        _ if hours < 48 => format!("{hours}h"),
        _ if days < 8 => two(days, "d", hours % 24, "h"),
        _ if years < 2 => format!("{days}d"),
        _ if years < 8 => two(years, "y", days % 365, "d"),
        _ => format!("{years}y"),
    }
}

fn joined<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    texts.collect::<Vec<_>>().join(",")
}

/// The first three, and how many more there are.
pub(super) fn first_three(all: impl Iterator<Item = String>) -> String {
    let all: Vec<String> = all.collect();
    let shown = all.iter().take(SHOWN).map(String::as_str);
    match all.len() {
        0 => "<unset>".to_owned(),
        count if count > SHOWN => format!("{} + {} more...", joined(shown), count - SHOWN),
        _ => joined(shown),
    }
}

pub(super) fn access_modes(object: &Value, pointer: &str) -> String {
    let has = |mode: &str| list(object, pointer).any(|one| one == mode);
    let modes =
        [("ReadWriteOnce", "RWO"), ("ReadOnlyMany", "ROX"), ("ReadWriteMany", "RWX"), ("ReadWriteOncePod", "RWOP")];
    joined(modes.into_iter().filter(|(mode, _)| has(mode)).map(|(_, short)| short))
}

pub(super) fn service(object: &Value, now: Timestamp) -> Vec<Value> {
    let spec = &object["spec"];
    let external = external(object);
    let port = |port: &Value| {
        let protocol = text(port, "/protocol");
        match port["nodePort"].as_u64().filter(|number| *number > 0) {
            Some(node) => format!("{}:{node}/{protocol}", port["port"]),
            None => format!("{}/{protocol}", port["port"]),
        }
    };
    let ports: Vec<String> = list(spec, "/ports").map(port).collect();
    let mut selector: Vec<String> = spec["selector"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    selector.sort();
    vec![
        named(object),
        json!(or(text(spec, "/type"), "ClusterIP")),
        json!(or(text(spec, "/clusterIPs/0"), "<none>")),
        json!(external),
        json!(or(&ports.join(","), "<none>")),
        age(object, now),
        json!(or(&selector.join(","), "<none>")),
    ]
}

/// The addresses under which a Service is reached from outside.
fn external(service: &Value) -> String {
    let given: Vec<&str> = list(service, "/spec/externalIPs").filter_map(Value::as_str).collect();
    match text(service, "/spec/type") {
        "ExternalName" => text(service, "/spec/externalName").to_owned(),
        "LoadBalancer" => {
            let address = |ingress: &'_ Value| or(text(ingress, "/ip"), text(ingress, "/hostname")).to_owned();
            let all: BTreeSet<String> = list(service, "/status/loadBalancer/ingress")
                .map(address)
                .filter(|address| !address.is_empty())
                .collect();
            let all: Vec<&str> = all.iter().map(String::as_str).chain(given).collect();
            or(&all.join(","), "<pending>").to_owned()
        }
        _ => or(&given.join(","), "<none>").to_owned(),
    }
}

pub(super) fn node(object: &Value, now: Timestamp) -> Vec<Value> {
    let ready = list(object, "/status/conditions").find(|condition| condition["type"] == "Ready");
    let state = match ready.map(|condition| text(condition, "/status")) {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    };
    let cordoned = if object["spec"]["unschedulable"] == true { ",SchedulingDisabled" } else { "" };
    let labels = object["metadata"]["labels"].as_object().into_iter().flatten();
    let role = |(key, value): (&String, &Value)| match key.strip_prefix("node-role.kubernetes.io/") {
        Some(role) if !role.is_empty() => Some(role.to_owned()),
        _ if key == "kubernetes.io/role" => value.as_str().filter(|role| !role.is_empty()).map(str::to_owned),
        _ => None,
    };
    let roles: BTreeSet<String> = labels.filter_map(role).collect();
    let address = |kind: &str| {
        let found = list(object, "/status/addresses").find(|address| address["type"] == kind);
        json!(found.map_or("<none>", |address| text(address, "/address")))
    };
    let info = |key: &str| text(object, &format!("/status/nodeInfo/{key}"));
    let kernel = or(info("kernelVersion"), "<unknown>");
    let kernel = match info("architecture") {
        "" => kernel.to_owned(),
        architecture => format!("{kernel} ({architecture})"),
    };
    vec![
        named(object),
        json!(format!("{state}{cordoned}")),
        json!(or(&joined(roles.iter().map(String::as_str)), "<none>")),
        age(object, now),
        json!(info("kubeletVersion")),
        address("InternalIP"),
        address("ExternalIP"),
        json!(or(info("osImage"), "<unknown>")),
        json!(kernel),
        json!(or(info("containerRuntimeVersion"), "<unknown>")),
    ]
}

/// An event in either of its forms.
pub(super) fn event(object: &Value, now: Timestamp) -> Vec<Value> {
    let either = |core: &str, kept: &str| or(text(object, core), text(object, kept)).to_owned();
    let first = either("/firstTimestamp", "/deprecatedFirstTimestamp");
    let first = since(or(&first, text(object, "/eventTime")), now);
    let last = match text(object, "/series/lastObservedTime") {
        "" => match either("/lastTimestamp", "/deprecatedLastTimestamp").as_str() {
            "" => first.clone(),
            last => since(last, now),
        },
        last => since(last, now),
    };
    let counts = ["/series/count", "/count", "/deprecatedCount"];
    let count = counts.iter().find_map(|pointer| object.pointer(pointer)?.as_u64().filter(|count| *count > 0));
    let regarding = object.get("involvedObject").unwrap_or(&object["regarding"]);
    let kind = text(regarding, "/kind").to_lowercase();
    let target = match text(regarding, "/name") {
        "" => kind,
        name => format!("{kind}/{name}"),
    };
    let component = either("/source/component", "/deprecatedSource/component");
    let component = or(&component, &either("/reportingComponent", "/reportingController")).to_owned();
    let host = either("/source/host", "/deprecatedSource/host");
    let source: Vec<&str> = [&*component, &*host].into_iter().filter(|part| !part.is_empty()).collect();
    vec![
        json!(last),
        json!(text(object, "/type")),
        json!(text(object, "/reason")),
        json!(target),
        json!(text(regarding, "/fieldPath")),
        json!(source.join(", ")),
        json!(either("/message", "/note").trim()),
        json!(first),
        json!(count.unwrap_or(1).to_string()),
        named(object),
    ]
}

pub(super) fn pod(object: &Value, now: Timestamp) -> Vec<Value> {
    let all = list(object, "/spec/containers").count();
    let statuses = || list(object, "/status/containerStatuses");
    let ready = statuses().filter(|one| one["ready"] == true).count();
    let restarts: u64 = statuses().filter_map(|one| one["restartCount"].as_u64()).sum();
    let state = match object.pointer("/metadata/deletionTimestamp") {
        Some(_) => "Terminating",
        None => or(text(object, "/status/phase"), "Pending"),
    };
    vec![
        named(object),
        json!(format!("{ready}/{all}")),
        json!(state),
        json!(restarts.to_string()),
        age(object, now),
        json!(or(text(object, "/status/podIP"), "<none>")),
        json!(or(text(object, "/spec/nodeName"), "<none>")),
        json!(or(text(object, "/status/nominatedNodeName"), "<none>")),
        json!("<none>"),
    ]
}

pub(super) fn volume(object: &Value, now: Timestamp) -> Vec<Value> {
    let claim = match text(object, "/spec/claimRef/name") {
        "" => String::new(),
        name => format!("{}/{name}", text(object, "/spec/claimRef/namespace")),
    };
    let state = match object.pointer("/metadata/deletionTimestamp") {
        Some(_) => "Terminating",
        None => or(text(object, "/status/phase"), "Pending"),
    };
    vec![
        named(object),
        json!(text(object, "/spec/capacity/storage")),
        json!(access_modes(object, "/spec/accessModes")),
        json!(or(text(object, "/spec/persistentVolumeReclaimPolicy"), "Retain")),
        json!(state),
        json!(claim),
        json!(text(object, "/spec/storageClassName")),
        json!(or(text(object, "/spec/volumeAttributesClassName"), "<unset>")),
        json!(text(object, "/status/reason")),
        age(object, now),
        json!(or(text(object, "/spec/volumeMode"), "<unset>")),
    ]
}

pub(super) fn endpoints(object: &Value) -> Value {
    let of_subset = |subset: &Value| -> Vec<String> {
        let ports: Vec<String> = list(subset, "/ports").map(|port| port["port"].to_string()).collect();
        let with_ports = |address: &Value| {
            let ip = text(address, "/ip").to_owned();
            let each: Vec<String> = ports.iter().map(|port| format!("{ip}:{port}")).collect();
            if each.is_empty() { vec![ip] } else { each }
        };
        list(subset, "/addresses").flat_map(with_ports).collect()
    };
    let all: Vec<String> = list(object, "/subsets").flat_map(of_subset).collect();
    json!(if all.is_empty() { "<none>".to_owned() } else { first_three(all.into_iter()) })
}

pub(super) fn csi_driver(object: &Value, now: Timestamp) -> Vec<Value> {
    let spec = &object["spec"];
    let modes = list(spec, "/volumeLifecycleModes").filter_map(Value::as_str);
    let audiences: Vec<&str> = list(spec, "/tokenRequests").map(|one| text(one, "/audience")).collect();
    vec![
        named(object),
        // Source: the defaults of CSIDriver.
        json!(spec["attachRequired"] != false),
        json!(spec["podInfoOnMount"] == true),
        json!(spec["storageCapacity"] == true),
        json!(or(&audiences.join(","), "<unset>")),
        json!(spec["requiresRepublish"] == true),
        json!(or(&joined(modes), "<none>")),
        age(object, now),
    ]
}

pub(super) fn class(object: &Value, now: Timestamp) -> Vec<Value> {
    let is_default = object["metadata"]["annotations"]["storageclass.kubernetes.io/is-default-class"] == "true";
    let name = text(object, "/metadata/name");
    vec![
        json!(if is_default { format!("{name} (default)") } else { name.to_owned() }),
        json!(text(object, "/provisioner")),
        json!(or(text(object, "/reclaimPolicy"), "Delete")),
        json!(or(text(object, "/volumeBindingMode"), "Immediate")),
        json!((object["allowVolumeExpansion"] == true).to_string()),
        age(object, now),
    ]
}

/// What a path shows of whatever kind; nothing where it is not there.
fn shown(object: &Value, path: &str) -> Value {
    match object.pointer(path) {
        None | Some(Value::Null) => json!(""),
        Some(Value::String(text)) => json!(text),
        Some(other) => json!(other.to_string()),
    }
}

pub(super) fn snapshot(object: &Value, now: Timestamp) -> Vec<Value> {
    let taken = text(object, "/status/creationTime");
    let of = |path| shown(object, path);
    vec![
        named(object),
        of("/status/readyToUse"),
        of("/spec/source/persistentVolumeClaimName"),
        of("/spec/source/volumeSnapshotContentName"),
        of("/status/restoreSize"),
        of("/spec/volumeSnapshotClassName"),
        of("/status/boundVolumeSnapshotContentName"),
        json!(if taken.is_empty() { String::new() } else { since(taken, now) }),
        age(object, now),
    ]
}

pub(super) fn snapshot_content(object: &Value, now: Timestamp) -> Vec<Value> {
    let of = |path| shown(object, path);
    vec![
        named(object),
        of("/status/readyToUse"),
        of("/status/restoreSize"),
        of("/spec/deletionPolicy"),
        of("/spec/driver"),
        of("/spec/volumeSnapshotClassName"),
        of("/spec/volumeSnapshotRef/name"),
        of("/spec/volumeSnapshotRef/namespace"),
        age(object, now),
    ]
}
