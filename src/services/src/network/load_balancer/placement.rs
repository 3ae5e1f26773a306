//! Which load balancer a Service is placed on, and which one a node belongs to.
//!
//! | configuration | a Service goes to |
//! |---|---|
//! | one Standard load balancer a side | that one |
//! | several Standard load balancers | where its address is; else where it is, while it may be there; else the one with the fewest rules among those that the annotation, labels and namespace allow |
//! | Basic | where it is, while its mode allows; else the one with the fewest rules among the availability sets of its mode |
//!
//! Two decisions in a row count the rules that the first one adds: a burst of Services spreads.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use lazuli_model::ArmId;

use super::{limits, model::LoadBalancer};
use crate::{
    ask::{Ask, Mode, Side, names},
    network::{
        Refusal, RefusalReason, Settings,
        settings::{LoadBalancerConfiguration, LoadBalancerSku},
    },
    service::ServiceObject,
};

/// A load balancer that exists or is about to.
#[derive(Debug, Clone, Copy)]
pub struct Balancer<'a> {
    /// Its name.
    pub name: &'a str,
    /// As it was observed.
    pub actual: Option<&'a LoadBalancer>,
    /// Rules of Services that are placed on it and not on Azure yet.
    pub planned_rules: usize,
}

impl Balancer<'_> {
    fn rules(&self) -> usize {
        self.actual.map_or(0, |actual| actual.rules.len()) + self.planned_rules
    }

    fn has(&self, base: &names::BaseName) -> bool {
        self.actual.is_some_and(|actual| {
            actual.frontends.iter().any(|item| base.owns(&item.name))
                || actual.rules.iter().any(|item| base.owns(&item.name))
        })
    }

    fn has_address(&self, address: IpAddr) -> bool {
        self.actual.is_some_and(|actual| actual.frontends.iter().any(|item| item.private_address == Some(address)))
    }
}

/// What decides beside the Service itself.
#[derive(Debug, Clone, Copy)]
pub struct Surroundings<'a> {
    /// The load balancers, of both sides.
    pub balancers: &'a [Balancer<'a>],
    /// The availability sets of the nodes that are no control plane, in order.
    pub vm_sets: &'a [String],
    /// What uses the public IP that the Service names: a frontend of some load balancer.
    pub public_ip_user: Option<&'a ArmId>,
}

/// The name of the load balancer for a Service.
///
/// # Errors
/// When none fits; the sentence is for the owner of the Service.
pub fn place(ask: &Ask, object: &ServiceObject, settings: &Settings, around: &Surroundings) -> Result<String, Refusal> {
    let is_internal = ask.side == Side::Internal;
    let stem = match settings.sku {
        LoadBalancerSku::Standard if settings.configurations.is_empty() => main_stem(settings).to_owned(),
        LoadBalancerSku::Standard => among_configurations(ask, object, settings, around)?,
        LoadBalancerSku::Basic => among_vm_sets(ask, settings, around)?,
    };
    Ok(names::load_balancer(&stem, is_internal))
}

fn main_stem(settings: &Settings) -> &str {
    settings.load_balancer_name.as_deref().unwrap_or(&settings.cluster_name)
}

fn refuse(message: String) -> Refusal {
    Refusal::new(RefusalReason::NoPlacement, message)
}

fn find<'a>(around: &Surroundings<'a>, stem: &str, is_internal: bool) -> Option<Balancer<'a>> {
    let name = names::load_balancer(stem, is_internal);
    around.balancers.iter().copied().find(|balancer| balancer.name.eq_ignore_ascii_case(&name))
}

/// The stem with the fewest rules. One without a load balancer has none; at a tie the earlier one is taken.
fn fewest_rules(stems: &[String], is_internal: bool, around: &Surroundings) -> Option<(String, usize)> {
    let rules = |stem: &String| find(around, stem, is_internal).map_or(0, |balancer| balancer.rules());
    // Of two without rules the one that exists is taken.
    let is_missing = |stem: &String| find(around, stem, is_internal).is_none_or(|balancer| balancer.actual.is_none());
    let best = stems.iter().enumerate().min_by_key(|(index, stem)| (rules(stem), is_missing(stem), *index));
    best.map(|(_, stem)| (stem.clone(), rules(stem)))
}

fn among_vm_sets(ask: &Ask, settings: &Settings, around: &Surroundings) -> Result<String, Refusal> {
    let is_internal = ask.side == Side::Internal;
    let primary = &settings.primary_vm_set;
    let stem_of = |set: &String| {
        if set.eq_ignore_ascii_case(primary) { main_stem(settings).to_owned() } else { set.clone() }
    };
    let sets: Vec<String> = match &ask.placement.mode {
        Mode::Primary => vec![primary.clone()],
        Mode::Auto => around.vm_sets.to_vec(),
        Mode::Sets(sets) => sets.clone(),
    };
    let unknown = sets.iter().find(|set| {
        matches!(ask.placement.mode, Mode::Sets(_))
            && !around.vm_sets.iter().any(|there| there.eq_ignore_ascii_case(set))
    });
    if let Some(set) = unknown {
        return Err(refuse(format!(
            "availability set {set} of annotation service.beta.kubernetes.io/azure-load-balancer-mode has no node; allowed \
             are __auto__ and {}",
            around.vm_sets.join(", ")
        )));
    }
    let stems: Vec<String> = sets.iter().map(stem_of).collect();
    let current = around.balancers.iter().find(|balancer| {
        balancer.has(&ask.base) && (names::load_balancer_stem(balancer.name) != balancer.name) == is_internal
    });
    if let Some(current) = current {
        let stem = names::load_balancer_stem(current.name);
        let stays =
            !matches!(ask.placement.mode, Mode::Sets(_)) || stems.iter().any(|there| there.eq_ignore_ascii_case(stem));
        if stays {
            return Ok(stem.to_owned());
        }
    }
    let Some((stem, rules)) = fewest_rules(&stems, is_internal, around) else {
        return Err(refuse("no node belongs to an availability set that could serve".to_owned()));
    };
    let most = usize::try_from(settings.maximum_rules).unwrap_or(usize::MAX);
    if most != 0 && rules >= most {
        return Err(Refusal::new(
            RefusalReason::LimitExceeded,
            format!("every load balancer that the Service may use has {most} rules or more; remove Services"),
        ));
    }
    Ok(stem)
}

fn among_configurations(
    ask: &Ask,
    object: &ServiceObject,
    settings: &Settings,
    around: &Surroundings,
) -> Result<String, Refusal> {
    let is_internal = ask.side == Side::Internal;
    let is_on = |stem: &str| {
        around
            .balancers
            .iter()
            .any(|there| names::load_balancer_stem(there.name).eq_ignore_ascii_case(stem) && there.has(&ask.base))
    };
    let eligible = eligible(ask, object, settings, &is_on)?;
    let is_eligible = |stem: &str| eligible.iter().any(|there| there.eq_ignore_ascii_case(stem));
    if let Some(stem) = stem_of_address(ask, around) {
        if is_eligible(&stem) {
            return Ok(stem);
        }
        return Err(refuse(format!(
            "the address that the Service names is on load balancer {stem}, where it may not be placed; allowed are {}",
            eligible.join(", ")
        )));
    }
    // Where its frontend of this side is comes before where rules of the other side are.
    let own_frontend = |stem: &&String| find(around, stem, is_internal).is_some_and(|there| there.has(&ask.base));
    if let Some(current) = eligible.iter().find(own_frontend).or_else(|| eligible.iter().find(|stem| is_on(stem))) {
        return Ok(current.clone());
    }
    match fewest_rules(&eligible, is_internal, around) {
        Some((stem, rules)) if rules < limits::STANDARD_RULES => Ok(stem),
        _ => Err(Refusal::new(
            RefusalReason::LimitExceeded,
            format!("every load balancer that the Service may use ({}) is full", eligible.join(", ")),
        )),
    }
}

/// The load balancer that has the address or the public IP that the Service names.
fn stem_of_address(ask: &Ask, around: &Surroundings) -> Option<String> {
    if !ask.placement.pins_address {
        return None;
    }
    if ask.side == Side::Public {
        let frontend = around.public_ip_user?;
        let name = frontend.as_str().split('/').nth(8)?;
        return frontend
            .is_type("Microsoft.Network/loadBalancers/frontendIPConfigurations")
            .then(|| names::load_balancer_stem(name).to_owned());
    }
    let addresses = ask.families.iter().filter_map(|family| match &family.address {
        crate::ask::AddressAsk::Private { address, .. } => *address,
        crate::ask::AddressAsk::Public(_) => None,
    });
    let addresses: Vec<IpAddr> = addresses.collect();
    let is_it = |there: &&Balancer| addresses.iter().any(|address| there.has_address(*address));
    around.balancers.iter().find(is_it).map(|there| names::load_balancer_stem(there.name).to_owned())
}

/// The configurations that a Service may be placed on, in their order.
fn eligible(
    ask: &Ask,
    object: &ServiceObject,
    settings: &Settings,
    is_on: &dyn Fn(&str) -> bool,
) -> Result<Vec<String>, Refusal> {
    let annotated = &ask.placement.configurations;
    let named: Vec<&LoadBalancerConfiguration> = settings
        .configurations
        .iter()
        .filter(|there| annotated.is_empty() || annotated.contains(&there.name.to_lowercase()))
        .collect();
    let all_names = || settings.configurations.iter().map(|there| there.name.as_str()).collect::<Vec<_>>().join(", ");
    if named.is_empty() {
        return Err(refuse(format!(
            "no load balancer configuration is called {}; allowed in annotation \
             service.beta.kubernetes.io/azure-load-balancer-configurations are {}",
            annotated.join(", "),
            all_names()
        )));
    }
    let mut reasons = Vec::new();
    let mut fitting: Vec<&LoadBalancerConfiguration> = Vec::new();
    for there in named {
        let selects = |selector: &Option<crate::ask::selector::LabelSelector>, labels| {
            selector.as_ref().is_none_or(|selector| selector.selects(labels))
        };
        if !there.allow_placement && !is_on(&there.name) {
            reasons.push(format!("{} takes no further Services", there.name));
        } else if !selects(&there.service_labels, &object.labels) {
            reasons.push(format!("the labels of the Service do not fit {}", there.name));
        } else if !selects(&there.namespace_labels, &object.namespace_labels) {
            reasons.push(format!("the labels of its namespace do not fit {}", there.name));
        } else {
            fitting.push(there);
        }
    }
    if fitting.is_empty() {
        return Err(refuse(format!("no load balancer fits the Service: {}", reasons.join("; "))));
    }
    // One that selects the Service comes before those that take everything.
    let has_selector =
        |there: &&LoadBalancerConfiguration| there.service_labels.is_some() || there.namespace_labels.is_some();
    if fitting.iter().any(has_selector) {
        fitting.retain(has_selector);
    }
    Ok(fitting.into_iter().map(|there| there.name.clone()).collect())
}

/// A node, as far as its load balancer depends on it.
#[derive(Debug, Clone)]
pub struct NodePlace {
    /// Its name.
    pub name: String,
    /// Its scale set or availability set.
    pub vm_set: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// The configuration that it belongs to now.
    pub current: Option<String>,
}

/// Where nodes belong, by configuration, and those that none takes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodePlaces {
    /// The names of nodes, by configuration.
    pub nodes: BTreeMap<String, BTreeSet<String>>,
    /// Nodes that no configuration takes.
    pub homeless: BTreeSet<String>,
}

/// Spreads nodes over several Standard load balancers: by primary set, then by the node selectors, then to the one with the
/// fewest nodes. A node that may stay where it is stays. `in_use` names the configurations that have a load balancer.
pub fn place_nodes(nodes: &[NodePlace], settings: &Settings, in_use: &BTreeSet<String>) -> NodePlaces {
    let mut places = NodePlaces::default();
    let usable: Vec<&LoadBalancerConfiguration> = settings
        .configurations
        .iter()
        .filter(|there| in_use.iter().any(|name| name.eq_ignore_ascii_case(&there.name)))
        .collect();
    let mut order: Vec<&NodePlace> = nodes.iter().collect();
    order.sort_by(|one, other| one.name.cmp(&other.name));
    let mut undecided = Vec::new();
    for node in order {
        let primary = usable.iter().find(|there| there.primary_vm_set.eq_ignore_ascii_case(&node.vm_set));
        if let Some(there) = primary {
            places.nodes.entry(there.name.clone()).or_default().insert(node.name.clone());
            continue;
        }
        let selector = |there: &&LoadBalancerConfiguration| {
            there
                .node_labels
                .as_ref()
                .filter(|selector| !selector.is_empty())
                .map(|selector| selector.selects(&node.labels))
        };
        let mut fitting: Vec<&str> =
            usable.iter().filter(|there| selector(there) == Some(true)).map(|there| there.name.as_str()).collect();
        if fitting.is_empty() {
            fitting =
                usable.iter().filter(|there| selector(there).is_none()).map(|there| there.name.as_str()).collect();
        }
        let current = node.current.as_deref();
        match fitting.iter().find(|name| current.is_some_and(|current| current.eq_ignore_ascii_case(name))) {
            Some(stays) => {
                places.nodes.entry((*stays).to_owned()).or_default().insert(node.name.clone());
            }
            None => undecided.push((node, fitting)),
        }
    }
    for (node, fitting) in undecided {
        let count = |name: &&str| places.nodes.get(*name).map_or(0, BTreeSet::len);
        match fitting.iter().min_by_key(|name| count(name)) {
            Some(name) => {
                places.nodes.entry((*name).to_owned()).or_default().insert(node.name.clone());
            }
            None => {
                places.homeless.insert(node.name.clone());
            }
        }
    }
    places
}

#[cfg(test)]
mod tests;
