//! The planner of a route table.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use lazuli_engine::Explanation;
use lazuli_model::address::Cidr;

use super::{
    Edit, Env, MOST_ROUTES, PodRange, Want, Wants,
    model::{Route, RouteTable},
    names,
    ranges::{Objection, Ranges},
};

/// What the planner decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// What one write changes; empty when nothing is to be written.
    pub edits: Vec<Edit>,
    /// How far each Node is, judged by what was observed.
    pub served: BTreeMap<String, Served>,
    /// The Nodes with a route that exists and would not be added now, and why not.
    pub kept: BTreeMap<String, &'static str>,
}

/// How far the table serves a Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Served {
    /// The table is observed to be as the Node asks.
    Done,
    /// The edits of this plan bring it there.
    Pending,
    /// Something else must come first.
    Waiting(String),
    /// It cannot be served.
    Refused(Explanation),
}

/// Plans one write of a route table. A table that does not exist is made for its first route.
pub fn plan(wants: &Wants, actual: Option<&RouteTable>, env: &Env) -> Plan {
    let mut planner = Planner::new(actual);
    planner.remove(wants, env);
    let ranges = Ranges::judge(wants, &planner.routes, env);
    let (mut served, mut kept) = (BTreeMap::new(), BTreeMap::new());
    for (node, want) in wants {
        let how = match want {
            Want::Gone(_) if planner.removed_for.contains(node.as_str()) => Served::Pending,
            Want::Gone(_) => Served::Done,
            Want::Present(pods) => {
                let objection = pods.iter().find_map(|pod| ranges.objection(node, pod));
                kept.extend(objection.map(|objection| (node.clone(), objection.kind())));
                planner.present(node, pods, &ranges)
            }
        };
        served.insert(node.clone(), how);
    }
    Plan { edits: planner.edits(actual, env), served, kept }
}

struct Planner<'a> {
    /// What stays of the table.
    routes: Vec<&'a Route>,
    /// The names that are to be removed, in Azure's spelling.
    removed: Vec<String>,
    /// The Nodes for which something is removed.
    removed_for: BTreeSet<&'a str>,
    puts: Vec<Edit>,
    /// How many of the puts make a route that does not exist.
    added: usize,
}

impl<'a> Planner<'a> {
    fn new(actual: Option<&'a RouteTable>) -> Self {
        let routes = actual.map(|table| table.routes.iter().collect()).unwrap_or_default();
        Self { routes, removed: Vec::new(), removed_for: BTreeSet::new(), puts: Vec::new(), added: 0 }
    }

    /// Decides which routes go.
    fn remove(&mut self, wants: &'a Wants, env: &Env) {
        let Self { routes, removed, removed_for, .. } = self;
        routes.retain(|route| {
            let Some(node) = goes(route, wants, env) else { return true };
            removed.push(route.name.clone());
            removed_for.insert(node);
            false
        });
    }

    fn present(&mut self, node: &str, pods: &[PodRange], ranges: &Ranges) -> Served {
        let mut served = Served::Done;
        let mut missing_address = None;
        let mut refusal = None;
        for pod in pods {
            if let Some(objection) = ranges.refusal(node, pod) {
                refusal.get_or_insert_with(|| objected(objection, pod));
                continue;
            }
            let Some(next_hop) = pod.next_hop else {
                missing_address.get_or_insert_with(|| {
                    format!("the Node has the range {} and no {} address", pod.text, pod.range.family())
                });
                continue;
            };
            // One range that cannot be routed does not keep the others back.
            match self.put(node, pod, next_hop) {
                Ok(true) => {}
                Ok(false) => served = Served::Pending,
                Err(why) => _ = refusal.get_or_insert(why),
            }
        }
        match (refusal, missing_address) {
            (Some(why), _) => Served::Refused(why),
            (None, Some(missing)) if served == Served::Done => Served::Waiting(missing),
            _ => served,
        }
    }

    /// Leads a range to an address. Returns whether it is led there already.
    fn put(&mut self, node: &str, pod: &PodRange, next_hop: IpAddr) -> Result<bool, Explanation> {
        // The same range with the same address under another name; with another address it is refused.
        let is_planned = |edit: &Edit| matches!(edit, Edit::PutRoute { range, .. } if *range == pod.range);
        if self.puts.iter().any(is_planned) {
            return Ok(false);
        }
        let there = self.routes.iter().find(|route| route.range == Some(pod.range));
        let name = match there {
            Some(route) if route.next_hop == Some(next_hop) => return Ok(true),
            // It is led elsewhere under the name that it has.
            Some(route) if names::is_of_node(&route.name, node) => route.name.clone(),
            Some(route) => return Err(conflict(route, pod)),
            None => names::route(node, &pod.text),
        };
        let is_new = there.is_none() && !self.routes.iter().any(|route| route.name.eq_ignore_ascii_case(&name));
        if is_new && self.routes.len() + self.added >= MOST_ROUTES {
            return Err(full(pod));
        }
        self.added += usize::from(is_new);
        self.puts.push(Edit::PutRoute { name, range: pod.range, next_hop });
        Ok(false)
    }

    fn edits(self, actual: Option<&RouteTable>, env: &Env) -> Vec<Edit> {
        let mut edits: Vec<Edit> = self.removed.into_iter().map(Edit::RemoveRoute).collect();
        edits.extend(self.puts);
        if actual.is_none() && edits.is_empty() {
            return edits;
        }
        let none = BTreeMap::new();
        let change = env.tags.change(actual.map_or(&none, |table| &table.tags));
        if !change.is_empty() {
            edits.push(Edit::Tags { set: change.set, remove: change.remove });
        }
        if actual.is_none() {
            edits.insert(0, Edit::Create);
        }
        edits
    }
}

/// Whether a route goes, and for which Node.
fn goes<'a>(route: &Route, wants: &'a Wants, env: &Env) -> Option<&'a str> {
    let range = route.range.filter(|range| env.is_of_cluster(range))?;
    // A Node's name has no capital letters, and Azure keeps the case of a route's name.
    let named = names::node(&route.name);
    let (node, want) = wants.get_key_value(&named.unwrap_or(&route.name).to_lowercase())?;
    let goes = match want {
        // The name of 2017 says nothing of the range, and a person may have used it.
        Want::Gone(ranges) => named.is_some() || ranges.contains(&range),
        Want::Present(ranges) => named.is_some() && !ranges.is_empty() && !has(ranges, &range),
    };
    goes.then_some(node.as_str())
}

fn has(ranges: &[PodRange], range: &Cidr) -> bool {
    ranges.iter().any(|pod| pod.range == *range)
}

fn conflict(route: &Route, pod: &PodRange) -> Explanation {
    let to = route.next_hop.map_or_else(|| "elsewhere".to_owned(), |hop| format!("to {hop}"));
    Explanation {
        reason: "RouteConflict",
        message: format!(
            "route {} of the route table leads {} {to}, and a range has one route; delete that route, or give the Node \
             another range",
            route.name, pod.range
        ),
    }
}

fn objected(objection: &Objection, pod: &PodRange) -> Explanation {
    let range = pod.range;
    let message = match objection {
        Objection::Outside => format!(
            "its range {range} lies outside of --cluster-cidr; give the Node a range of the cluster, or give all ranges of \
             the cluster to --cluster-cidr"
        ),
        Objection::Reserved(reserved) => {
            format!("its range {range} overlaps {reserved}, the range of Services; give the Node another range")
        }
        Objection::NodeAddress(address) => format!(
            "its range {range} holds {address}, the address of a Node; give the Node a range that no Node's address is in"
        ),
        Objection::Overlaps(other, node) => format!(
            "its range {range} overlaps {other}, the range of another Node, {node}; delete one of both Nodes, or give one \
             another range"
        ),
    };
    Explanation { reason: "RouteRangeRefused", message }
}

fn full(pod: &PodRange) -> Explanation {
    Explanation {
        reason: "RouteTableFull",
        message: format!(
            "the route table has {MOST_ROUTES} routes, which is Azure's limit, so {} gets none; remove Nodes or routes, or \
             use a network plugin that needs no routes",
            pod.range
        ),
    }
}
