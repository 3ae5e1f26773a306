//! What kube-apiserver does to Services: defaults, addresses and ports, and the validation that controllers meet.
//!
//! Source: `pkg/registry/core/service`, `pkg/apis/core/{v1/defaults.go,validation}` of Kubernetes 1.36; the conformance
//! tests compare it with the real server.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::{Refused, resource::Resource, status};

/// Node ports: `--service-node-port-range`.
const NODE_PORTS: std::ops::RangeInclusive<u16> = 30_000..=32_767;

/// The addresses and node ports in use.
#[derive(Debug, Clone, Default)]
pub(crate) struct Allocator {
    ports: BTreeSet<u16>,
    last_port: u16,
    addresses: u32,
}

impl Allocator {
    /// 10.96.0.0/12, in order; a released address is not given again.
    fn address(&mut self) -> String {
        self.addresses += 1;
        let offset = self.addresses + 9;
        format!("10.{}.{}.{}", 96 + (offset >> 16), (offset >> 8) & 255, offset & 255)
    }

    fn port(&mut self) -> Option<u16> {
        let count = usize::from(NODE_PORTS.end() - NODE_PORTS.start()) + 1;
        for _ in 0..count {
            self.last_port = match self.last_port {
                last if NODE_PORTS.contains(&last) && last < *NODE_PORTS.end() => last + 1,
                _ => *NODE_PORTS.start(),
            };
            if self.ports.insert(self.last_port) {
                return Some(self.last_port);
            }
        }
        None
    }

    /// Gives back the node ports of a Service that is gone.
    pub(crate) fn release(&mut self, service: &Value) {
        for port in node_ports(service) {
            self.ports.remove(&port);
        }
    }
}

/// Each once: TCP and UDP of the same port share one.
fn node_ports(service: &Value) -> BTreeSet<u16> {
    let number = |value: &Value| value.as_u64().and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0);
    let spec = &service["spec"];
    let ports = spec["ports"].as_array().map(Vec::as_slice).unwrap_or_default();
    ports.iter().filter_map(|port| number(&port["nodePort"])).chain(number(&spec["healthCheckNodePort"])).collect()
}

/// Gives a member of an object its default; what is no object has no members.
fn or_default(object: &mut Value, key: &str, value: Value) {
    if let Some(members) = object.as_object_mut() {
        members.entry(key).or_insert(value);
    }
}

/// The objects in a list; none where there is no list.
fn items<'a>(object: &'a mut Value, pointer: &str) -> impl Iterator<Item = &'a mut Value> {
    let items = object.pointer_mut(pointer).and_then(Value::as_array_mut).into_iter().flatten();
    items.filter(|item| item.is_object())
}

fn kind_of(service: &Value) -> &str {
    service["spec"]["type"].as_str().unwrap_or("ClusterIP")
}

fn defaults(service: &mut Value) {
    let spec = &mut service["spec"];
    or_default(spec, "type", json!("ClusterIP"));
    or_default(spec, "sessionAffinity", json!("None"));
    if spec["sessionAffinity"] == "ClientIP" && spec.get("sessionAffinityConfig").is_none() {
        spec["sessionAffinityConfig"] = json!({"clientIP": {"timeoutSeconds": 10_800}});
    }
    if spec["sessionAffinity"] == "None" {
        spec.as_object_mut().expect("is an object").remove("sessionAffinityConfig");
    }
    if spec["type"] != "ExternalName" {
        or_default(spec, "internalTrafficPolicy", json!("Cluster"));
        or_default(spec, "ipFamilies", json!(["IPv4"]));
        or_default(spec, "ipFamilyPolicy", json!("SingleStack"));
    }
    if spec["type"] == "LoadBalancer" || spec["type"] == "NodePort" {
        or_default(spec, "externalTrafficPolicy", json!("Cluster"));
    }
    if spec["type"] == "LoadBalancer" {
        or_default(spec, "allocateLoadBalancerNodePorts", json!(true));
    }
    for port in items(spec, "/ports") {
        or_default(port, "protocol", json!("TCP"));
        let number = port["port"].clone();
        or_default(port, "targetPort", number);
    }
}

/// Gives addresses and node ports, and keeps those of `before`.
fn allocate(service: &mut Value, before: Option<&Value>, free: &mut Allocator) -> Result<(), String> {
    let full = || "spec.ports: Internal error: no node port is left".to_owned();
    for port in before.map(node_ports).unwrap_or_default() {
        free.ports.remove(&port);
    }
    for port in node_ports(service) {
        if NODE_PORTS.contains(&port) && !free.ports.insert(port) {
            return Err(format!("spec.ports: Invalid value: {port}: provided port is already allocated"));
        }
    }
    let spec = &mut service["spec"];
    if spec["type"] != "ExternalName" && spec.get("clusterIP").is_none() {
        let address = free.address();
        spec["clusterIP"] = json!(address);
    }
    if let Some(address) = spec.get("clusterIP").cloned() {
        or_default(spec, "clusterIPs", json!([address]));
    }
    let wants_ports = match spec["type"].as_str() {
        Some("NodePort") => true,
        Some("LoadBalancer") => spec["allocateLoadBalancerNodePorts"] != false,
        _ => false,
    };
    if wants_ports {
        let number = |port: &Value, key: &str| port.get(key).and_then(Value::as_u64).filter(|number| *number > 0);
        let has = |port: &mut Value| Some((number(port, "port")?, number(port, "nodePort")?));
        // What one protocol of a new Service's port has, the others get too; in an update each gets one of its own (source:
        // kube-apiserver's initNodePorts and updateNodePorts).
        let are_shared = before.is_none();
        let mut of_port: BTreeMap<u64, u64> = items(spec, "/ports").filter_map(has).collect();
        for port in items(spec, "/ports").filter(|port| number(port, "nodePort").is_none()) {
            let at = number(port, "port").unwrap_or_default();
            let given = match of_port.get(&at) {
                Some(shared) if are_shared => *shared,
                _ => free.port().ok_or_else(full)?.into(),
            };
            of_port.insert(at, given);
            port["nodePort"] = json!(given);
        }
    }
    let wants_health = spec["type"] == "LoadBalancer" && spec["externalTrafficPolicy"] == "Local";
    if wants_health && spec.get("healthCheckNodePort").and_then(Value::as_u64).unwrap_or(0) == 0 {
        spec["healthCheckNodePort"] = json!(free.port().ok_or_else(full)?);
    }
    Ok(())
}

fn validate(service: &Value) -> Result<(), String> {
    let spec = &service["spec"];
    let ports = spec["ports"].as_array().map(Vec::as_slice).unwrap_or_default();
    if ports.is_empty() && spec["type"] != "ExternalName" && spec["clusterIP"] != "None" {
        return Err("spec.ports: Required value".to_owned());
    }
    let (mut seen, mut seen_node_ports) = (BTreeSet::new(), BTreeSet::new());
    for (at, port) in ports.iter().enumerate() {
        let number = port["port"].as_u64().unwrap_or(0);
        if number == 0 || number > 65_535 {
            return Err(format!(
                "spec.ports[{at}].port: Invalid value: {}: must be between 1 and 65535, inclusive",
                port["port"]
            ));
        }
        if ports.len() > 1 && port["name"].as_str().unwrap_or_default().is_empty() {
            return Err(format!("spec.ports[{at}].name: Required value"));
        }
        if !seen.insert((port["protocol"].to_string(), number)) {
            return Err(format!("spec.ports[{at}]: Duplicate value: {port}"));
        }
        let node_port = port["nodePort"].as_u64().unwrap_or(0);
        if node_port > 0 && !seen_node_ports.insert((port["protocol"].to_string(), node_port)) {
            return Err(format!("spec.ports[{at}].nodePort: Duplicate value: {node_port}"));
        }
    }
    for (at, range) in spec["loadBalancerSourceRanges"].as_array().into_iter().flatten().enumerate() {
        let text = range.as_str().unwrap_or_default().trim();
        let fits = text.split_once('/').is_some_and(|(address, bits)| {
            let most = match address.parse() {
                Ok(std::net::IpAddr::V4(_)) => 32,
                Ok(std::net::IpAddr::V6(_)) => 128,
                Err(_) => return false,
            };
            bits.parse::<u8>().is_ok_and(|bits| bits <= most)
        });
        if !fits {
            return Err(format!(
                "spec.loadBalancerSourceRanges[{at}]: Invalid value: {text:?}: must be a valid CIDR value, \
                (e.g. 10.9.8.0/24 or 2001:db8::/64)"
            ));
        }
    }
    if spec.get("loadBalancerClass").is_some() && spec["type"] != "LoadBalancer" {
        return Err("spec.loadBalancerClass: Forbidden: may only be used when `type` is 'LoadBalancer'".to_owned());
    }
    Ok(())
}

fn refused(resource: &Resource, service: &Value, why: &str) -> Refused {
    status::invalid(resource, service["metadata"]["name"].as_str().unwrap_or_default(), why)
}

/// A new Service.
pub(crate) fn on_create(resource: &Resource, service: &mut Value, free: &mut Allocator) -> Result<(), Refused> {
    if !service["spec"].is_object() {
        service["spec"] = json!({});
    }
    defaults(service);
    validate(service).map_err(|why| refused(resource, service, &why))?;
    allocate(service, None, free).map_err(|why| refused(resource, service, &why))?;
    if !service["status"].is_object() {
        service["status"] = json!({});
    }
    or_default(&mut service["status"], "loadBalancer", json!({}));
    default_ip_mode(service);
    Ok(())
}

/// A changed Service.
pub(crate) fn on_update(
    resource: &Resource,
    before: &Value,
    service: &mut Value,
    free: &mut Allocator,
) -> Result<(), Refused> {
    if !service["spec"].is_object() {
        return Err(refused(resource, service, "spec: Required value"));
    }
    keep_addresses(before, service);
    drop_what_the_type_has_not(before, service);
    defaults(service);
    validate(service).map_err(|why| refused(resource, service, &why))?;
    let class = |of: &Value| of["spec"].get("loadBalancerClass").cloned();
    if kind_of(before) == "LoadBalancer" && kind_of(service) == "LoadBalancer" && class(before) != class(service) {
        return Err(refused(resource, service, "spec.loadBalancerClass: Invalid value: may not change once set"));
    }
    let address = |of: &Value| of["spec"].get("clusterIP").cloned();
    if kind_of(service) != "ExternalName" && kind_of(before) != "ExternalName" && address(before) != address(service) {
        return Err(refused(resource, service, "spec.clusterIPs[0]: Invalid value: may not change once set"));
    }
    allocate(service, Some(before), free).map_err(|why| {
        // The ports of the Service that stays as it was.
        free.ports.extend(node_ports(before));
        refused(resource, service, &why)
    })
}

/// What a client leaves out of an update is kept: cluster IPs, and node ports by the port's name.
fn keep_addresses(before: &Value, service: &mut Value) {
    for key in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "healthCheckNodePort"] {
        if service["spec"].get(key).is_none()
            && let Some(kept) = before["spec"].get(key)
            && kind_of(service) != "ExternalName"
        {
            service["spec"][key] = kept.clone();
        }
    }
    let old = before["spec"]["ports"].as_array().map(Vec::as_slice).unwrap_or_default();
    for port in items(service, "/spec/ports") {
        let same = |one: &&Value| one.get("name") == port.get("name");
        if port.get("nodePort").is_none()
            && let Some(kept) = old.iter().find(same).and_then(|one| one.get("nodePort"))
        {
            port["nodePort"] = kept.clone();
        }
    }
}

/// A change of the type takes with it what only the old type has, where the client did not change it too.
fn drop_what_the_type_has_not(before: &Value, service: &mut Value) {
    let (had, has) = (kind_of(before).to_owned(), kind_of(service).to_owned());
    let balanced = has == "LoadBalancer";
    let with_ports = balanced || has == "NodePort";
    let spec = service["spec"].as_object_mut().expect("was checked");
    let local = spec.get("externalTrafficPolicy") == Some(&json!("Local"));
    if !(balanced && local) && spec.get("healthCheckNodePort") == before["spec"].get("healthCheckNodePort") {
        spec.remove("healthCheckNodePort");
    }
    if had == has {
        return;
    }
    let mut unchanged = |key: &str| {
        if spec.get(key) == before["spec"].get(key) {
            spec.remove(key);
        }
    };
    if !balanced {
        unchanged("loadBalancerClass");
        unchanged("allocateLoadBalancerNodePorts");
    }
    if !with_ports {
        unchanged("externalTrafficPolicy");
        let old = node_ports(before);
        for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
            let number = port.get("nodePort").and_then(Value::as_u64).and_then(|number| u16::try_from(number).ok());
            if number.is_some_and(|number| old.contains(&number)) {
                port.as_object_mut().expect("is an object").remove("nodePort");
            }
        }
    }
    if !balanced {
        service["status"] = json!({"loadBalancer": {}});
    }
}

/// `ipMode` is `VIP` where an address has none.
fn default_ip_mode(service: &mut Value) {
    for ingress in items(service, "/status/loadBalancer/ingress") {
        if ingress.get("ip").is_some() {
            or_default(ingress, "ipMode", json!("VIP"));
        }
    }
}

/// A changed status.
pub(crate) fn on_status(resource: &Resource, service: &mut Value) -> Result<(), Refused> {
    if !service["status"].is_object() {
        service["status"] = json!({});
    }
    or_default(&mut service["status"], "loadBalancer", json!({}));
    let ingress = service["status"]["loadBalancer"]["ingress"].as_array().cloned().unwrap_or_default();
    if !ingress.is_empty() && kind_of(service) != "LoadBalancer" {
        let why = "status.loadBalancer.ingress: Forbidden: may only be used when `spec.type` is \"LoadBalancer\"";
        return Err(refused(resource, service, why));
    }
    for (at, one) in ingress.iter().enumerate() {
        let address = one["ip"].as_str().unwrap_or_default();
        if !address.is_empty() && address.parse::<std::net::IpAddr>().is_err() {
            let why = format!(
                "status.loadBalancer.ingress[{at}].ip: Invalid value: {address:?}: must be a valid IP \
                address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
            );
            return Err(refused(resource, service, &why));
        }
    }
    default_ip_mode(service);
    Ok(())
}
