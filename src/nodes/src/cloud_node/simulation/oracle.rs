//! What must hold after every write, and when the world has come to rest.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{
    driver::{RESYNC, number_of},
    schedule::FLEET,
    world::{Azure, Fleet, Power, Route},
};
use crate::cloud_node::{
    CloudNode, NodeAddress, Taint,
    step::{APART, FRESH, Patch},
};

/// Reads, informers and requests may be as late as this.
const SLACK: Duration = Duration::from_secs(30);

/// What is known of a Node beside what it shows.
#[derive(Debug)]
struct Life {
    registered_at: Duration,
    /// Patches that were made of it before its taint went.
    patches: u32,
}

#[derive(Debug, Default)]
pub(super) struct Oracle {
    lives: BTreeMap<String, Life>,
    /// Node and range of Nodes that were deleted, until a route of both is made anew.
    deleted: BTreeSet<(String, String)>,
    /// The ranges that Nodes ever had, each with the address of its Node.
    led: BTreeSet<(String, String)>,
}

fn ranges(node: &CloudNode) -> impl Iterator<Item = (String, String)> {
    node.pod_ranges.iter().map(|range| (node.name.clone(), range.clone()))
}

/// The routes that a Node needs.
fn routes_of(node: &CloudNode) -> BTreeSet<Route> {
    let hop = |range: &str| {
        let internal = node.addresses.iter().filter(|one| one.kind == NodeAddress::INTERNAL);
        internal.map(|one| one.address.clone()).find(|address| address.contains(':') == range.contains(':'))
    };
    node.pod_ranges.iter().filter_map(|range| Some((node.name.clone(), range.clone(), hop(range)?))).collect()
}

/// Whether the resource group of its machine is not found, which proves nothing.
fn is_of_lost_group(node: &CloudNode, azure: &Azure) -> bool {
    azure.fleet() == Fleet::NoGroup && FLEET.contains(&number_of(&node.name))
}

impl Oracle {
    pub(super) fn registered(&mut self, node: &CloudNode, addresses: &[String], now: Duration) {
        self.lives.insert(node.uid.clone(), Life { registered_at: now, patches: 0 });
        for range in &node.pod_ranges {
            let hop = addresses.iter().find(|address| address.contains(':') == range.contains(':'));
            self.led.extend(hop.map(|hop| (range.clone(), hop.clone())));
        }
    }

    /// The machine of a Node has other addresses.
    pub(super) fn readdressed(&mut self, node: &CloudNode, addresses: &[String]) {
        for range in &node.pod_ranges {
            let hop = addresses.iter().find(|address| address.contains(':') == range.contains(':'));
            self.led.extend(hop.map(|hop| (range.clone(), hop.clone())));
        }
    }

    pub(super) fn deleted(&mut self, node: &CloudNode) {
        self.deleted.extend(ranges(node));
    }

    /// Judges a write of ours of the table or of the subnet.
    pub(super) fn written(
        &mut self,
        before: &BTreeSet<Route>,
        azure: &Azure,
        nodes: &BTreeMap<String, CloudNode>,
    ) -> Result<(), String> {
        azure.foreign_is_untouched()?;
        let after = azure.routes();
        let leads = |routes: &BTreeSet<Route>, name: &str, range: &str| {
            routes.iter().any(|(node, led, _)| (node.as_str(), led.as_str()) == (name, range))
        };
        for (node, range, _) in before.iter().filter(|(node, range, _)| !leads(&after, node, range)) {
            let exists = nodes.get(node).is_some_and(|node| node.pod_ranges.contains(range));
            if exists && !self.deleted.contains(&(node.clone(), range.clone())) {
                return Err(format!("the route of {node} to {range} is removed, and the Node exists"));
            }
        }
        for (node, range, hop) in after.difference(before) {
            if !self.led.contains(&(range.clone(), hop.clone())) {
                return Err(format!("{range} is led to {hop}, which no Node with that range has"));
            }
            if nodes.get(node).is_some_and(|node| node.pod_ranges.contains(range)) {
                self.deleted.remove(&(node.clone(), range.clone()));
            }
        }
        Ok(())
    }

    /// Judges a patch that was just made of a Node.
    pub(super) fn patched(
        &mut self,
        before: &CloudNode,
        after: &CloudNode,
        patch: &Patch,
        azure: &Azure,
        now: Duration,
    ) -> Result<(), String> {
        let Some(life) = self.lives.get_mut(&after.uid) else { return Err("a Node without a life".to_owned()) };
        let name = &after.name;
        if before.has_taint(Taint::UNINITIALIZED) {
            life.patches += u32::from(!matches!(patch, Patch::Taints(_)));
            if !after.has_taint(Taint::UNINITIALIZED) && after.is_network_unavailable.is_none() {
                return Err(format!("{name} is initialised before it says that its network is unavailable"));
            }
        }
        if let Patch::Status { network: Some(network), .. } = patch {
            let wanted = routes_of(after);
            let is_as_said = |routes: &BTreeSet<Route>| wanted.is_subset(routes) != network.is_unavailable;
            // What others have changed is found at the next look. A route that is missing must be missed by a fresh one.
            let age = if network.is_unavailable { SLACK } else { RESYNC + SLACK };
            let since = life.registered_at.saturating_sub(age);
            if network.reason != "NodeInitialization" && !azure.showed(since, is_as_said) {
                return Err(format!("{name} says {}, and the table never was so", network.reason));
            }
        }
        let has = |node: &CloudNode| node.has_taint(Taint::OUT_OF_SERVICE);
        if has(after) && !has(before) {
            let stopped = azure.span(number_of(name), Power::Stopped, now.saturating_sub(FRESH + SLACK), now);
            if stopped == Duration::ZERO {
                return Err(format!("{name} is out of service, and its machine was not stopped"));
            }
        }
        Ok(())
    }

    /// Judges the deletion of a Node.
    pub(super) fn removed(&self, node: &CloudNode, azure: &Azure, now: Duration) -> Result<(), String> {
        let gone = azure.span(number_of(&node.name), Power::Gone, now.saturating_sub(FRESH + SLACK), now);
        if gone < APART {
            return Err(format!("{} is deleted, and its machine was gone for {gone:?}", node.name));
        }
        if is_of_lost_group(node, azure) {
            return Err(format!("{} is deleted, and its resource group is not found", node.name));
        }
        Ok(())
    }

    /// Judges the world at rest.
    pub(super) fn at_rest(
        &self,
        azure: &Azure,
        nodes: &BTreeMap<String, CloudNode>,
        addresses: impl Fn(u8) -> Vec<String>,
    ) -> Result<(), String> {
        azure.foreign_is_untouched()?;
        let mut expected = BTreeSet::new();
        for (name, node) in nodes {
            let power = azure.power(number_of(name));
            let has = |key: &str| node.has_taint(key);
            let (shutdown, out) = (has(Taint::SHUTDOWN), has(Taint::OUT_OF_SERVICE));
            if power == Power::Gone {
                // A Node without provider id has no machine that could be proved to be gone.
                if node.provider_id.is_some() && !node.is_ready && !is_of_lost_group(node, azure) {
                    return Err(format!("the machine of {name} is gone, and the Node is not deleted"));
                }
                expected.extend(routes_of(node));
                continue;
            }
            if has(Taint::UNINITIALIZED) {
                return Err(format!("{name} is not initialised"));
            }
            let internal = node.addresses.iter().filter(|one| one.kind == NodeAddress::INTERNAL);
            let shown: BTreeSet<&String> = internal.map(|one| &one.address).collect();
            let own = addresses(number_of(name));
            if shown != own.iter().collect() {
                return Err(format!("the machine of {name} has the addresses {own:?}, and the Node says {shown:?}"));
            }
            let is_stopped = power == Power::Stopped;
            if !node.is_ready && is_stopped && !(shutdown && out) {
                return Err(format!("{name} is stopped, and its taints are {:?}", node.taints));
            }
            if node.is_ready && (shutdown || (out && !is_stopped)) {
                return Err(format!("{name} is Ready, and its taints are {:?}", node.taints));
            }
            if node.is_network_unavailable != Some(false) {
                return Err(format!("{name} says of its network {:?}", node.is_network_unavailable));
            }
            expected.extend(routes_of(node));
            let patches = self.lives.get(&node.uid).map_or(0, |life| life.patches);
            // One may be made again whose answer was lost, or that met another address.
            if patches > 6 {
                return Err(format!("{name} was patched {patches} times until it was initialised"));
            }
        }
        // A Node without addresses has told the table nothing yet: what bears its name stays.
        let is_silent = |name: &String| nodes.get(name).is_some_and(|node| routes_of(node).is_empty());
        let routes: BTreeSet<Route> = azure.routes().into_iter().filter(|(name, ..)| !is_silent(name)).collect();
        if routes != expected {
            return Err(format!("the routes are {routes:?}, expected are {expected:?}"));
        }
        if !expected.is_empty() && !azure.is_associated() {
            return Err("no subnet is served by the table".to_owned());
        }
        Ok(())
    }
}
