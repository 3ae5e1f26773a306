//! What happens, in one line each: from changes of the cluster's objects and from Azure's operations to sentences. Nothing
//! here reads a clock, a socket or a file.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use lazuli_emulator::{
    ended::{EndedOperation, OperationEnd},
    latency::OperationKind,
};
use lazuli_journal::printable;
use lazuli_nodes::cloud_node::Taint;
use serde_json::Value;

/// How many lines may come in one second; the others are counted. A storm of a hundred Services stays readable.
pub(super) const LINES_A_SECOND: usize = 12;

/// How many letters of an event's note are printed; kubectl describe shows the whole.
const LONGEST_NOTE: usize = 160;

/// What was printed so far: a change is a line where it differs from that.
#[derive(Debug, Default)]
pub(super) struct News {
    services: BTreeMap<String, PrintedService>,
    nodes: BTreeMap<String, PrintedNode>,
    /// The resources of Azure that are known, in lower case.
    resources: BTreeSet<String>,
    /// What was printed last of each object and reason.
    warnings: BTreeMap<String, String>,
}

/// A Service as it was printed.
#[derive(Debug, Default, PartialEq)]
struct PrintedService {
    balanced: bool,
    addresses: Vec<String>,
    leaving: bool,
}

/// A Node as it was printed.
#[derive(Debug, PartialEq)]
enum PrintedNode {
    Registered,
    Initialised,
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn each<'a>(object: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    object.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

/// The last part of an id.
fn last(id: &str) -> &str {
    id.rsplit('/').next().unwrap_or_default()
}

impl PrintedService {
    fn of(service: &Value) -> Self {
        let address = |ingress: &Value| text(ingress, "/ip").to_owned();
        Self {
            balanced: text(service, "/spec/type") == "LoadBalancer",
            addresses: each(service, "/status/loadBalancer/ingress").map(address).collect(),
            leaving: service.pointer("/metadata/deletionTimestamp").is_some(),
        }
    }
}

impl News {
    /// News of an Azure in which these resources exist from the start.
    pub(super) fn with_resources(ids: impl IntoIterator<Item = String>) -> Self {
        Self { resources: ids.into_iter().map(|id| id.to_lowercase()).collect(), ..Self::default() }
    }

    /// A change of a Service, of which this is the last state.
    pub(super) fn of_service(&mut self, service: &Value, exists: bool) -> Option<String> {
        let name = format!("{}/{}", text(service, "/metadata/namespace"), text(service, "/metadata/name"));
        if !exists {
            let before = self.services.remove(&name)?;
            return before.balanced.then(|| format!("Service {name} is gone"));
        }
        let now = PrintedService::of(service);
        let before = self.services.remove(&name).unwrap_or_default();
        let line = match (&before, &now) {
            (_, now) if !now.balanced && !before.balanced => None,
            (before, now) if now.leaving && !before.leaving => {
                Some(format!("Service {name} is being deleted: its load balancing is taken away first"))
            }
            (_, now) if now.leaving => None,
            (before, now) if !before.balanced && now.addresses.is_empty() => {
                Some(format!("Service {name} of type LoadBalancer waits for an address"))
            }
            (before, now) if now.addresses.is_empty() && !before.addresses.is_empty() => {
                Some(format!("Service {name} has no address any more"))
            }
            (before, now) if now.addresses != before.addresses => {
                Some(format!("Service {name} has got its address {}", now.addresses.join(" and ")))
            }
            _ => None,
        };
        self.services.insert(name, now);
        line
    }

    /// A change of a Node, of which this is the last state.
    pub(super) fn of_node(&mut self, node: &Value, exists: bool) -> Option<String> {
        let name = text(node, "/metadata/name").to_owned();
        if !exists {
            return self.nodes.remove(&name).map(|_| format!("Node {name} is gone"));
        }
        let is_new = each(node, "/spec/taints").any(|taint| taint["key"] == Taint::UNINITIALIZED);
        let now = if is_new { PrintedNode::Registered } else { PrintedNode::Initialised };
        let before = self.nodes.get(&name);
        let line = match (before, &now) {
            (None, PrintedNode::Registered) => Some(format!("Node {name} has registered")),
            (None, PrintedNode::Initialised) => Some(format!("Node {name} is there")),
            (Some(PrintedNode::Registered), PrintedNode::Initialised) => {
                let size = node.pointer("/metadata/labels/node.kubernetes.io~1instance-type");
                let address = each(node, "/status/addresses").find(|address| address["type"] == "InternalIP");
                let facts = [size.and_then(Value::as_str), address.and_then(|address| address["address"].as_str())];
                let facts: Vec<&str> = facts.into_iter().flatten().collect();
                Some(format!("Node {name} is initialised: {}", facts.join(", ")))
            }
            _ => None,
        };
        self.nodes.insert(name, now);
        line
    }

    /// A change of an event of Kubernetes: those that warn are printed, each text of an object once.
    pub(super) fn of_event(&mut self, event: &Value, exists: bool) -> Option<String> {
        if !exists || text(event, "/type") != "Warning" {
            return None;
        }
        let (kind, name) = (text(event, "/regarding/kind"), text(event, "/regarding/name"));
        let regarding = match text(event, "/regarding/namespace") {
            "" => format!("{kind} {name}"),
            namespace => format!("{kind} {namespace}/{name}"),
        };
        let (reason, note) = (text(event, "/reason"), text(event, "/note"));
        let shown: String = note.chars().take(LONGEST_NOTE).collect();
        let more = if shown.len() < note.len() { "…" } else { "" };
        let line = format!("{regarding} warns: {reason}: {shown}{more}");
        let before = self.warnings.insert(format!("{regarding} {reason}"), line.clone());
        (before.as_ref() != Some(&line)).then_some(line)
    }

    /// An operation of Azure that has ended. `exists` says of a resource whether it is there, `lun_of` of a disk where it is.
    pub(super) fn of_operation(
        &mut self,
        operation: &EndedOperation,
        exists: impl Fn(&str) -> bool,
        lun_of: impl Fn(&str) -> Option<u8>,
    ) -> Vec<String> {
        let took = match operation.took {
            short if short < Duration::from_millis(100) => String::new(),
            took => format!(" ({:.1} s)", took.as_secs_f64()),
        };
        let lines = self.without_time(operation, exists, lun_of);
        lines.into_iter().map(|line| format!("Azure: {line}{took}")).collect()
    }

    fn without_time(
        &mut self,
        operation: &EndedOperation,
        exists: impl Fn(&str) -> bool,
        lun_of: impl Fn(&str) -> Option<u8>,
    ) -> Vec<String> {
        let resource = &operation.resource;
        let subject = subject(resource);
        match &operation.end {
            OperationEnd::Failed(code) => return vec![format!("a write of {subject} has failed: {code}")],
            OperationEnd::Canceled => return vec![format!("a write of {subject} is replaced by a newer one")],
            OperationEnd::Succeeded => {}
        }
        if !operation.attached.is_empty() || !operation.detached.is_empty() {
            let machine = last(resource);
            let at = |disk: &str| lun_of(disk).map_or(String::new(), |lun| format!(" at LUN {lun}"));
            let detached =
                operation.detached.iter().map(|disk| format!("disk {} is detached from {machine}", last(disk)));
            let attached = operation.attached.iter();
            let attached = attached.map(|disk| format!("disk {} is attached to {machine}{}", last(disk), at(disk)));
            return detached.chain(attached).collect();
        }
        let what = match operation.kind {
            OperationKind::DiskGrantAccess => ": access is granted or ended",
            OperationKind::VmPower => ": the power state has changed",
            OperationKind::SnapshotCopy => " is copied",
            OperationKind::ShareRemoval => ": its name is free again",
            _ if !exists(resource) => {
                self.resources.remove(resource);
                " is deleted"
            }
            _ if self.resources.insert(resource.clone()) => " is created",
            _ => " is changed",
        };
        vec![format!("{subject}{what}")]
    }
}

/// A resource in words: its type and name, and where it is a part of another one, that one's too.
fn subject(id: &str) -> String {
    let rest = id.split_once("/providers/").map_or(id, |(_, rest)| rest);
    let parts: Vec<&str> = rest.split('/').filter(|part| !part.is_empty()).collect();
    // Namespace, then pairs of type and name; a resource group has no namespace.
    let pairs = if rest == id { &parts[..] } else { parts.get(1..).unwrap_or_default() };
    match *pairs {
        ["subscriptions", _, "resourcegroups", group] => format!("resource group {group}"),
        [kind, name] => format!("{} {name}", words(kind)),
        [of, owner, .., kind, name] => format!("{} {name} of {} {owner}", words(kind), words(of)),
        _ => last(id).to_owned(),
    }
}

/// A type of Azure in words. One that is missing here has its own name.
fn words(kind: &str) -> &str {
    match kind {
        "backendaddresspools" => "backend pool",
        "disks" => "disk",
        "loadbalancers" => "load balancer",
        "networkinterfaces" => "network interface",
        "networksecuritygroups" => "security group",
        "privatednszones" => "private DNS zone",
        "privateendpoints" => "private endpoint",
        "privatelinkservices" => "private link service",
        "publicipaddresses" => "public IP",
        "publicipprefixes" => "public IP prefix",
        "routetables" => "route table",
        "routes" => "route",
        "securityrules" => "security rule",
        "snapshots" => "snapshot",
        "storageaccounts" => "storage account",
        "subnets" => "subnet",
        "virtualmachines" => "machine",
        "virtualmachinescalesets" => "scale set",
        "virtualnetworks" => "virtual network",
        other => other,
    }
}

/// A line as a terminal gets it, at this time since the start. Whoever may write an event writes a part of it, and so does
/// Azure: what a terminal would obey is printed as an escape.
pub(super) fn printed(at: Duration, line: &str) -> String {
    format!("{:>8.1} s  {}\n", at.as_secs_f64(), printable(line))
}

/// Keeps a storm readable: so many lines a second, then their number.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// The second that is counted, since the start, and how many lines it has had.
    second: (u64, usize),
    left_out: usize,
}

impl Pace {
    /// What is printed of these lines at this time since the start.
    pub(super) fn admit(&mut self, at: Duration, lines: Vec<String>) -> Vec<String> {
        let mut admitted = Vec::new();
        if self.second.0 != at.as_secs() {
            self.second = (at.as_secs(), 0);
            let left_out = std::mem::take(&mut self.left_out);
            if left_out > 0 {
                admitted.push(format!("… and {left_out} more; the page shows them"));
            }
        }
        for line in lines {
            if self.second.1 < LINES_A_SECOND {
                self.second.1 += 1;
                admitted.push(line);
            } else {
                self.left_out += 1;
            }
        }
        admitted
    }

    /// Whether lines were left out whose number is not printed yet.
    pub(super) fn owes(&self) -> bool {
        self.left_out > 0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const GROUP: &str = "/subscriptions/s/resourcegroups/lazuli";

    fn operation(resource: &str, milliseconds: u64) -> EndedOperation {
        EndedOperation {
            resource: format!("{GROUP}/providers/{resource}"),
            kind: OperationKind::Network,
            took: Duration::from_millis(milliseconds),
            end: OperationEnd::Succeeded,
            attached: Vec::new(),
            detached: Vec::new(),
        }
    }

    fn service(kind: &str, addresses: &[&str]) -> Value {
        let ingress: Vec<Value> = addresses.iter().map(|ip| json!({"ip": ip})).collect();
        json!({"metadata": {"namespace": "default", "name": "web"}, "spec": {"type": kind},
            "status": {"loadBalancer": {"ingress": ingress}}})
    }

    #[test]
    fn a_service_is_told_when_it_waits_when_it_has_its_address_and_when_it_is_gone() {
        let mut news = News::default();
        assert_eq!(news.of_service(&service("ClusterIP", &[]), true), None);
        let told = [
            news.of_service(&service("LoadBalancer", &[]), true),
            news.of_service(&service("LoadBalancer", &[]), true),
            news.of_service(&service("LoadBalancer", &["198.18.0.1"]), true),
            news.of_service(&service("LoadBalancer", &["198.18.0.1"]), true),
        ];
        let told: Vec<_> = told.iter().map(Option::as_deref).collect();
        assert_eq!(
            told,
            [
                Some("Service default/web of type LoadBalancer waits for an address"),
                None,
                Some("Service default/web has got its address 198.18.0.1"),
                None
            ]
        );
        let mut leaving = service("LoadBalancer", &["198.18.0.1"]);
        leaving["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        assert!(news.of_service(&leaving, true).unwrap().contains("is being deleted"));
        assert_eq!(news.of_service(&service("LoadBalancer", &[]), false).unwrap(), "Service default/web is gone");
    }

    #[test]
    fn a_node_is_told_when_it_registers_and_when_it_is_initialised() {
        let mut news = News::default();
        let new = json!({"metadata": {"name": "node-0"}, "spec": {"taints": [{"key": Taint::UNINITIALIZED}]}});
        let known = json!({
            "metadata": {"name": "node-0", "labels": {"node.kubernetes.io/instance-type": "Standard_D8s_v3"}},
            "status": {"addresses": [{"type": "Hostname", "address": "x"}, {"type": "InternalIP", "address": "10.0.0.4"}]},
        });
        assert_eq!(news.of_node(&new, true).unwrap(), "Node node-0 has registered");
        assert_eq!(news.of_node(&known, true).unwrap(), "Node node-0 is initialised: Standard_D8s_v3, 10.0.0.4");
        assert_eq!(news.of_node(&known, true), None);
        assert_eq!(news.of_node(&known, false).unwrap(), "Node node-0 is gone");
    }

    #[test]
    fn a_warning_is_told_once_until_its_text_changes() {
        let mut news = News::default();
        let event = |note: &str| json!({"type": "Warning", "reason": "QuotaExceeded", "note": note, "regarding": {"kind": "Service", "namespace": "default", "name": "web"}});
        assert_eq!(news.of_event(&event("a"), true).unwrap(), "Service default/web warns: QuotaExceeded: a");
        assert_eq!(news.of_event(&event("a"), true), None);
        assert!(news.of_event(&event("b"), true).is_some());
        assert!(news.of_event(&event(&"ä".repeat(500)), true).unwrap().ends_with("ä…"));
        assert_eq!(news.of_event(&json!({"type": "Normal"}), true), None);
    }

    #[test]
    fn nothing_that_a_terminal_obeys_is_printed() {
        let mut news = News::default();
        let hostile = "\u{1b}]52;c;cm0gLXJm\u{7}\r\n\u{9b}31m";
        let event = json!({"type": "Warning", "reason": hostile, "note": hostile, "regarding": {"kind": "Node", "name": hostile}});
        let line = news.of_event(&event, true).unwrap();
        let text = printed(Duration::from_millis(1_500), &line);
        assert!(text.starts_with("     1.5 s  Node ") && text.ends_with('\n'), "{text:?}");
        assert!(!text.trim_end_matches('\n').chars().any(char::is_control), "{text:?}");
    }

    #[test]
    fn the_end_of_an_operation_names_the_resource_and_what_became_of_it() {
        let balancer = "microsoft.network/loadbalancers/kubernetes";
        let mut news = News::with_resources([format!("{GROUP}/providers/Microsoft.Network/networkSecurityGroups/nsg")]);
        for (resource, milliseconds, exists, line) in [
            (balancer, 2_500, true, "Azure: load balancer kubernetes is created (2.5 s)"),
            ("microsoft.network/networksecuritygroups/nsg", 0, true, "Azure: security group nsg is changed"),
            ("microsoft.network/routetables/t/routes/r", 0, true, "Azure: route r of route table t is created"),
            (balancer, 50, true, "Azure: load balancer kubernetes is changed"),
            (balancer, 50, false, "Azure: load balancer kubernetes is deleted"),
            (balancer, 50, true, "Azure: load balancer kubernetes is created"),
        ] {
            assert_eq!(news.of_operation(&operation(resource, milliseconds), |_| exists, |_| None), [line]);
        }
        let mut moved = operation("microsoft.compute/virtualmachines/node-0", 1_000);
        moved.attached = vec![format!("{GROUP}/providers/microsoft.compute/disks/pvc-1")];
        moved.detached = vec![format!("{GROUP}/providers/microsoft.compute/disks/pvc-2")];
        let told = news.of_operation(&moved, |_| true, |_| Some(3));
        assert_eq!(
            told,
            [
                "Azure: disk pvc-2 is detached from node-0 (1.0 s)",
                "Azure: disk pvc-1 is attached to node-0 at LUN 3 (1.0 s)"
            ]
        );
        moved.end = OperationEnd::Failed("Conflict".to_owned());
        let told = news.of_operation(&moved, |_| true, |_| Some(3));
        assert_eq!(told, ["Azure: a write of machine node-0 has failed: Conflict (1.0 s)"]);
        assert_eq!(subject(GROUP), "resource group lazuli");
    }

    proptest! {
        /// No second has more lines than are allowed and one that counts, and no line is lost without being counted.
        #[test]
        fn a_storm_is_counted_and_not_printed(bursts in prop::collection::vec((0_u64..4, 0_usize..40), 1..20)) {
            let (mut pace, mut at, mut given, mut shown) = (Pace::default(), 0, 0, 0);
            let mut by_second: BTreeMap<u64, usize> = BTreeMap::new();
            for (later, lines) in bursts {
                at += later;
                given += lines;
                for line in pace.admit(Duration::from_secs(at), vec!["x".to_owned(); lines]) {
                    match line.strip_prefix("… and ").and_then(|rest| rest.split(' ').next()) {
                        Some(count) => shown += count.parse::<usize>().unwrap(),
                        None => {
                            shown += 1;
                            *by_second.entry(at).or_default() += 1;
                        }
                    }
                }
            }
            prop_assert!(by_second.values().all(|lines| *lines <= LINES_A_SECOND));
            let owed = pace.owes();
            for line in pace.admit(Duration::from_secs(at + 1), vec![]) {
                shown += line.split(' ').nth(2).unwrap().parse::<usize>().unwrap();
            }
            prop_assert_eq!(shown, given);
            prop_assert!(!pace.owes() && (owed || shown == given));
        }
    }
}
