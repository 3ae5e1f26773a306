//! Routes that stay although the route controller would not add them today, and routes of no Node of the cluster.
//!
//! The controller leaves both: what works is not broken by it. `doctor` reports them.

use std::net::IpAddr;

use lazuli_model::{
    address::{Cidr, Family},
    tags::TagPolicy,
};
use lazuli_nodes::routing::{Env, PodRange, Route, RouteTable, Want, Wants, names, plan};

use super::{Finding, Grade, Node, some};

/// The check.
const ROUTES: &str = "routes";

/// What stays in a route table. `pods` and `services` are the ranges of `--cluster-cidr` and `--service-cluster-ip-range`, as
/// far as they can be seen.
pub fn kept(nodes: &[Node], table: &RouteTable, pods: &[Cidr], services: &[Cidr]) -> Vec<Finding> {
    let name = table.id.name();
    let mut findings = refused_today(nodes, table, pods, services);
    let others: Vec<&str> =
        table.routes.iter().filter(|route| !is_of(route, nodes)).map(|route| &*route.name).collect();
    if !others.is_empty() {
        let text = format!(
            "{} of {} routes in route table {name} lead to no Node of this cluster ({}): the route controller leaves them; \
             delete those that nothing else needs",
            others.len(),
            table.routes.len(),
            some(&others)
        );
        findings.push(Finding::new(ROUTES, Grade::Note, text));
    }
    if findings.is_empty() {
        let text =
            format!("each of {} routes in route table {name} leads to a Node of this cluster", table.routes.len());
        findings.push(Finding::new(ROUTES, Grade::Fine, text));
    }
    findings
}

/// The Nodes whose route exists and would not be added today.
fn refused_today(nodes: &[Node], table: &RouteTable, pods: &[Cidr], services: &[Cidr]) -> Vec<Finding> {
    if pods.is_empty() {
        let text = "whether routes lie in the ranges of the cluster is not checked: no --cluster-cidr of a program can be seen";
        return vec![Finding::new(ROUTES, Grade::Unseen, text)];
    }
    let env = Env {
        id: table.id.clone(),
        location: String::new(),
        tags: TagPolicy::default(),
        cluster_ranges: pods.to_vec(),
        reserved: services.to_vec(),
    };
    let wants: Wants = nodes.iter().map(|node| (node.name.clone(), Want::Present(ranges(node)))).collect();
    let finding = |(node, why): (String, &'static str)| {
        let text = format!(
            "Node {node} has a route in route table {} that would not be added today, because its pod range {why}: the \
             route stays and takes the traffic of that range; correct the range of the cluster that is wrong, or delete \
             the Node and let kubelet register it anew",
            table.id.name()
        );
        Finding::new(ROUTES, Grade::Note, text)
    };
    plan(&wants, Some(table), &env).kept.into_iter().map(finding).collect()
}

/// The pod ranges of a Node, each with the Node's address of its family.
fn ranges(node: &Node) -> Vec<PodRange> {
    let address = |family| node.addresses.iter().copied().find(|address: &IpAddr| Family::of(*address) == family);
    let of = |text: &String| {
        let range: Cidr = text.parse().ok()?;
        Some(PodRange { text: text.clone(), range, next_hop: address(range.family()), created: String::new() })
    };
    node.pod_ranges.iter().filter_map(of).collect()
}

/// Whether a route bears the name of a Node, or leads a Node's range to its address.
fn is_of(route: &Route, nodes: &[Node]) -> bool {
    let leads = |node: &Node| {
        ranges(node)
            .iter()
            .any(|pod| route.range == Some(pod.range) && pod.next_hop.is_some() && route.next_hop == pod.next_hop)
    };
    nodes.iter().any(|node| names::is_of_node(&route.name, &node.name) || leads(node))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(name: &str, range: &str, address: &str) -> Node {
        Node {
            name: name.to_owned(),
            pod_ranges: vec![range.to_owned()],
            addresses: vec![address.parse().unwrap()],
            ..Node::default()
        }
    }

    fn table(routes: &[(&str, &str, &str)]) -> RouteTable {
        let id = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/routeTables/rt".parse().unwrap();
        let route = |(name, range, hop): &(&str, &str, &str)| {
            json!({"name": name, "properties":
                {"addressPrefix": range, "nextHopType": "VirtualAppliance", "nextHopIpAddress": hop}})
        };
        let routes: Vec<_> = routes.iter().map(route).collect();
        RouteTable::read(&id, &json!({"properties": {"routes": routes}})).unwrap()
    }

    fn texts(findings: &[Finding]) -> Vec<&str> {
        findings.iter().map(|finding| finding.text.as_str()).collect()
    }

    #[test]
    fn a_route_that_stays_although_none_would_be_added_is_named_with_its_node_and_the_reason() {
        let pods = ["10.244.0.0/16".parse().unwrap()];
        let nodes = [node("a", "10.244.0.0/24", "10.240.0.4"), node("b", "10.9.0.0/24", "10.240.0.5")];
        let fine = kept(&nodes[..1], &table(&[("a____10244000024", "10.244.0.0/24", "10.240.0.4")]), &pods, &[]);
        assert_eq!(fine[0].grade, Grade::Fine, "{fine:?}");
        let both = table(&[
            ("a____10244000024", "10.244.0.0/24", "10.240.0.4"),
            ("b____109000024", "10.9.0.0/24", "10.240.0.5"),
        ]);
        let found = kept(&nodes, &both, &pods, &[]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].text.starts_with("Node b has a route in route table rt"), "{found:?}");
        assert!(found[0].text.contains("its pod range lies outside of --cluster-cidr"), "{found:?}");
        let services = ["10.244.0.0/20".parse().unwrap()];
        let found = kept(&nodes[..1], &table(&[("a____10244000024", "10.244.0.0/24", "10.240.0.4")]), &pods, &services);
        assert!(found[0].text.contains("overlaps a range of Services"), "{found:?}");
    }

    #[test]
    fn a_route_of_no_node_is_named_and_one_of_another_name_that_leads_to_a_node_is_not() {
        let pods = ["10.244.0.0/16".parse().unwrap()];
        let nodes = [node("a", "10.244.0.0/24", "10.240.0.4")];
        let all = table(&[
            ("by-hand", "10.244.0.0/24", "10.240.0.4"),
            ("to-firewall", "0.0.0.0/0", "10.1.0.4"),
            ("old____10244500024", "10.244.5.0/24", "10.240.0.9"),
        ]);
        let found = kept(&nodes, &all, &pods, &[]);
        let expected =
            "2 of 3 routes in route table rt lead to no Node of this cluster (to-firewall, old____10244500024)";
        assert!(found.len() == 1 && found[0].text.starts_with(expected), "{found:?}");
        // Without the ranges of the cluster it says so, and accuses no Node.
        let found = kept(&nodes, &all, &[], &[]);
        assert_eq!((found.len(), found[0].grade, found[1].grade), (2, Grade::Unseen, Grade::Note));
        assert!(texts(&found)[0].contains("no --cluster-cidr"), "{found:?}");
    }
}
