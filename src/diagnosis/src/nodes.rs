//! Pod ranges and regions of Nodes.

use std::net::IpAddr;

use lazuli_model::address::Cidr;

use super::{Finding, Grade, some};

/// The check of pod ranges.
const POD_RANGES: &str = "pod ranges";
/// The check of where machines are.
const LOCATION: &str = "location of machines";
/// The check of the region label.
const REGION: &str = "region of Nodes";

/// A Node, as far as the checks are concerned.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Whether this provider looks after it.
    pub is_ours: bool,
    /// The label `topology.kubernetes.io/region`.
    pub region: Option<String>,
    /// `spec.podCIDRs`.
    pub pod_ranges: Vec<String>,
    /// Its addresses inside the network.
    pub addresses: Vec<IpAddr>,
}

/// Whether the pod ranges are what one allocator gives: each Node has one, and none overlap.
pub fn pod_ranges(nodes: &[Node]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut ranges: Vec<(Cidr, &str)> = Vec::new();
    for node in nodes {
        for text in &node.pod_ranges {
            match text.parse() {
                Ok(range) => ranges.push((range, &node.name)),
                Err(error) => findings.push(Finding::new(
                    POD_RANGES,
                    Grade::Wrong,
                    format!(
                        "Node {} has the pod range {text:?}, which is none ({error}): find out which program wrote \
                         spec.podCIDRs, and delete and register the Node anew",
                        node.name
                    ),
                )),
            }
        }
    }
    // A range that covers others sorts before them, so each need only be compared with the last that was not covered.
    ranges.sort_unstable();
    let mut outer: Option<(Cidr, &str)> = None;
    for (range, node) in ranges {
        match outer {
            Some((other, of)) if other.covers(&range) => {
                if of != node {
                    findings.push(Finding::new(
                        POD_RANGES,
                        Grade::Wrong,
                        format!(
                            "the pod ranges of Nodes {of} ({other}) and {node} ({range}) overlap, so that pods of both \
                             may have one address: let only one program give pod ranges, then delete Node {node} and \
                             let kubelet register it anew"
                        ),
                    ));
                }
            }
            _ => outer = Some((range, node)),
        }
    }
    let (with, without): (Vec<&Node>, Vec<&Node>) = nodes.iter().partition(|node| !node.pod_ranges.is_empty());
    if !with.is_empty() && !without.is_empty() {
        let names: Vec<&str> = without.iter().map(|node| node.name.as_str()).collect();
        let text = format!(
            "{} of {} Nodes have no pod range ({}), and the others have: look at the log of the program that gives them, \
             for the ranges of the cluster may be used up",
            without.len(),
            nodes.len(),
            some(&names)
        );
        findings.push(Finding::new(POD_RANGES, Grade::Wrong, text));
    }
    if findings.is_empty() && !nodes.is_empty() {
        findings.push(if with.is_empty() {
            Finding::new(
                POD_RANGES,
                Grade::Note,
                "no Node has a pod range: that is right where the network plugin gives pods their addresses; node-route \
                 needs ranges, which kube-controller-manager gives with --allocate-node-cidrs and --cluster-cidr",
            )
        } else {
            let text = format!("each of {} Nodes has a pod range, and none overlap", nodes.len());
            Finding::new(POD_RANGES, Grade::Fine, text)
        });
    }
    findings
}

/// Whether the Nodes of this provider say that they are in the configured region.
pub fn regions(nodes: &[Node], location: &str) -> Vec<Finding> {
    let ours = || nodes.iter().filter(|node| node.is_ours);
    let mut findings = Vec::new();
    let without: Vec<&str> = ours().filter(|node| node.region.is_none()).map(|node| node.name.as_str()).collect();
    if !without.is_empty() {
        let text = format!(
            "{} of the Nodes have no label topology.kubernetes.io/region ({}), so that no volume can be placed by them: a \
             Node gets it when a cloud controller initialises it, so look at the log of cloud-node, or set the label to \
             {location}",
            without.len(),
            some(&without)
        );
        findings.push(Finding::new(REGION, Grade::Wrong, text));
    }
    let elsewhere: Vec<String> = ours()
        .filter_map(|node| Some((node, node.region.as_ref()?)))
        .filter(|(_, region)| !is_same_region(region, location))
        .map(|(node, region)| format!("{} in {region}", node.name))
        .collect();
    if !elsewhere.is_empty() {
        let text = format!(
            "{} of the Nodes are labelled with another region than {location}, which is the location in the cloud \
             configuration ({}): correct the one that is wrong",
            elsewhere.len(),
            some(&elsewhere)
        );
        findings.push(Finding::new(REGION, Grade::Wrong, text));
    }
    let count = ours().count();
    if findings.is_empty() && count > 0 {
        let text = format!("{count} Nodes are labelled with the region {location}");
        findings.push(Finding::new(REGION, Grade::Fine, text));
    }
    findings
}

/// Whether the machines of the cluster's resource group, each with its location, are where the cloud configuration says.
pub fn locations(machines: &[(String, String)], location: &str) -> Option<Finding> {
    let elsewhere: Vec<String> = machines
        .iter()
        .filter(|(_, there)| !is_same_region(there, location))
        .map(|(name, there)| format!("{name} in {there}"))
        .collect();
    let count = machines.len();
    Some(match elsewhere.len() {
        _ if machines.is_empty() => return None,
        0 => {
            let text =
                format!("{count} machines of the resource group are in {location}, as the cloud configuration says");
            Finding::new(LOCATION, Grade::Fine, text)
        }
        other if other == count => {
            let text = format!(
                "the location in the cloud configuration is {location}, and none of {count} machines of the resource group is \
                 there ({}), so that disks and load balancers are made where no machine can use them: correct location",
                some(&elsewhere)
            );
            Finding::new(LOCATION, Grade::Wrong, text)
        }
        other => {
            let text = format!(
                "{other} of {count} machines of the resource group are elsewhere than {location}, the location in the cloud \
                 configuration ({}): no disk and no load balancer of this cluster can be used there",
                some(&elsewhere)
            );
            Finding::new(LOCATION, Grade::Note, text)
        }
    })
}

/// Whether two texts name one region: Azure takes `West Europe` for `westeurope`.
fn is_same_region(one: &str, other: &str) -> bool {
    let folded = |text: &str| text.replace(' ', "").to_lowercase();
    folded(one) == folded(other)
}
