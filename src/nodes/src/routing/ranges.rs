//! Which pod ranges of Nodes get a route.
//!
//! kubelet may choose the range of its Node, and a route takes the traffic of its whole range. So a route is added only
//! inside the cluster's ranges, outside of what is reserved, around no Node's address, and where no other Node's range
//! overlaps it. A route that exists stays; the plan names it ([`Ranges::objection`]).
//!
//! Of two Nodes whose ranges overlap, the one whose route exists keeps it. Otherwise the older Node gets one.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use lazuli_model::address::Cidr;

use super::{Env, PodRange, Want, Wants, model::Route, names};

/// Why a range gets no route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Objection {
    /// It lies outside of the cluster's ranges.
    Outside,
    /// It overlaps a reserved range.
    Reserved(Cidr),
    /// The address of a Node lies in it.
    NodeAddress(IpAddr),
    /// It overlaps this range of this Node.
    Overlaps(Cidr, String),
}

impl Objection {
    /// What is wrong with the range, without names.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Outside => "lies outside of --cluster-cidr",
            Self::Reserved(_) => "overlaps a range of Services",
            Self::NodeAddress(_) => "holds the address of a Node",
            Self::Overlaps(..) => "overlaps the range of another Node",
        }
    }
}

/// A range that has a route, or gets one, and for which Node.
#[derive(Debug)]
struct Holder {
    node: String,
    next_hop: Option<IpAddr>,
}

/// The objections to the ranges of all Nodes.
#[derive(Debug, Default)]
pub(super) struct Ranges {
    refused: BTreeMap<(String, Cidr), Objection>,
    kept: BTreeMap<(String, Cidr), Objection>,
}

impl Ranges {
    /// Judges the ranges of all Nodes beside the routes that stay.
    pub(super) fn judge(wants: &Wants, routes: &[&Route], env: &Env) -> Self {
        let pods = || {
            let ranges = wants.iter().filter_map(|(node, want)| match want {
                Want::Present(ranges) => Some((node, ranges)),
                Want::Gone(_) => None,
            });
            ranges.flat_map(|(node, ranges)| ranges.iter().map(move |pod| (node.as_str(), pod)))
        };
        let mut by_range: BTreeMap<Cidr, &Route> = BTreeMap::new();
        let mut held: BTreeMap<Cidr, Vec<Holder>> = BTreeMap::new();
        for route in routes {
            let Some(range) = route.range else { continue };
            by_range.entry(range).or_insert(route);
            // What leads other ranges is not a Node's, whatever its name is.
            if let Some(node) = names::node(&route.name).filter(|_| env.is_of_cluster(&range)) {
                held.entry(range).or_default().push(Holder { node: node.to_lowercase(), next_hop: route.next_hop });
            }
        }
        let is_there = |node: &str, pod: &PodRange| {
            by_range.get(&pod.range).is_some_and(|route| {
                (pod.next_hop.is_some() && route.next_hop == pod.next_hop) || names::is_of_node(&route.name, node)
            })
        };
        let (there, mut new): (Vec<_>, Vec<_>) = pods().partition(|(node, pod)| is_there(node, pod));
        for (node, pod) in &there {
            let holder = Holder { node: (*node).to_owned(), next_hop: pod.next_hop };
            held.entry(pod.range).or_default().push(holder);
        }
        let addresses: BTreeSet<IpAddr> = pods().filter_map(|(_, pod)| pod.next_hop).collect();
        let objection = |held: &BTreeMap<Cidr, Vec<Holder>>, node: &str, pod: &PodRange| {
            if !env.is_of_cluster(&pod.range) || pod.range.is_everything() {
                return Some(Objection::Outside);
            }
            if let Some(reserved) = env.reserved.iter().find(|reserved| reserved.overlaps(&pod.range)) {
                return Some(Objection::Reserved(*reserved));
            }
            let address = addresses.range(pod.range.address()..).next();
            if let Some(address) = address.filter(|address| pod.range.contains(**address)) {
                return Some(Objection::NodeAddress(*address));
            }
            overlapping(held, node, pod).map(|(range, node)| Objection::Overlaps(range, node))
        };
        let key = |node: &str, pod: &PodRange| (node.to_owned(), pod.range);
        let mut ranges = Self::default();
        for (node, pod) in there {
            ranges.kept.extend(objection(&held, node, pod).map(|objection| (key(node, pod), objection)));
        }
        // A Node that does not say when it was made is the youngest.
        new.sort_by_key(|(node, pod)| (pod.created.is_empty(), &pod.created, *node));
        for (node, pod) in new {
            match objection(&held, node, pod) {
                Some(objection) => _ = ranges.refused.insert(key(node, pod), objection),
                // Also without an address yet: the range is this Node's.
                None => {
                    let holder = Holder { node: node.to_owned(), next_hop: pod.next_hop };
                    held.entry(pod.range).or_default().push(holder);
                }
            }
        }
        ranges
    }

    /// Why a range of a Node gets no route.
    pub(super) fn refusal(&self, node: &str, pod: &PodRange) -> Option<&Objection> {
        self.refused.get(&(node.to_owned(), pod.range))
    }

    /// Why a range of a Node, whose route exists, would get none now.
    pub(super) fn objection(&self, node: &str, pod: &PodRange) -> Option<&Objection> {
        self.kept.get(&(node.to_owned(), pod.range))
    }
}

/// The range of another Node that overlaps this one. The same range that leads to the same address is none.
fn overlapping(held: &BTreeMap<Cidr, Vec<Holder>>, node: &str, pod: &PodRange) -> Option<(Cidr, String)> {
    let wider = pod.range.around_each().filter_map(|wider| held.get_key_value(&wider));
    let inside = held.range(pod.range..).take_while(|(range, _)| pod.range.covers(range));
    wider.chain(inside).find_map(|(range, holders)| {
        let is_other = |holder: &&Holder| {
            let is_same = *range == pod.range && holder.next_hop.is_some() && holder.next_hop == pod.next_hop;
            !holder.node.eq_ignore_ascii_case(node) && !is_same
        };
        holders.iter().find(is_other).map(|holder| (*range, holder.node.clone()))
    })
}
