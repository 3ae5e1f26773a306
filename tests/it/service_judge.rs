//! The judge of the order of writes: it sees each state of Azure and of the API server, and knows neither planners nor
//! interpreters.
//!
//! After each step of Azure, in each network that may be in force ([`super::service_reach`]):
//!
//! | law | holds |
//! |---|---|
//! | served | each address of a status is reached from every source that the spec admits; while a spec changes, from those that the old and the new one admit |
//! | closed | no load-balancing rule of a Service lets a source in that neither its old nor its new spec admits |
//! | held | an address that a security rule of the controllers admits belongs to a public IP, a frontend or a network interface |
//! | shown | when a status gets an address, that address is reached from every source that the spec admits |
//!
//! Where Azure forces a gap of `served`, a test allows it for a Service with a number of writes ([`Judge::allow_gap`]).

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use lazuli_emulator::changes::Step;
use serde_json::Value;

use super::service_reach::{Azure, Network, Port, SOURCES, Source};

/// What the names of the controllers' security rules begin with.
const SECURITY_RULES: &str = "k8s-azure-lb";
const ANNOTATION: &str = "service.beta.kubernetes.io/";

/// What a Service asks for, as far as packets show it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Asked {
    is_internal: bool,
    ports: BTreeSet<Port>,
    /// Ranges and service tags. Without any, every source is admitted.
    sources: Vec<String>,
    /// Sources of the virtual network too are denied where no range names them.
    denies_others: bool,
}

impl Asked {
    /// `None`: no load balancer.
    fn read(service: &Value) -> Option<Self> {
        let annotation = |name: &str| {
            service["metadata"]["annotations"][format!("{ANNOTATION}{name}")].as_str().unwrap_or_default().to_owned()
        };
        let spec = &service["spec"];
        if spec["type"] != "LoadBalancer" {
            return None;
        }
        let port = |port: &Value| Port {
            protocol: port["protocol"].as_str().unwrap_or("TCP").to_lowercase(),
            number: port["port"].as_u64().and_then(|port| u16::try_from(port).ok()).unwrap_or_default(),
        };
        let ranges = spec["loadBalancerSourceRanges"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let lists = ["azure-allowed-ip-ranges", "azure-allowed-service-tags"].map(annotation);
        let listed = lists.iter().flat_map(|text| text.split(',')).filter(|text| !text.is_empty());
        let sources: Vec<String> = ranges.chain(listed).map(str::to_owned).collect();
        Some(Self {
            is_internal: annotation("azure-load-balancer-internal") == "true",
            ports: spec["ports"].as_array().into_iter().flatten().map(port).collect(),
            denies_others: annotation("azure-deny-all-except-load-balancer-source-ranges") == "true",
            sources,
        })
    }

    /// Whether a source may reach it, by an address of the side where the source is.
    fn admits(&self, source: Source) -> bool {
        let is_named = self.sources.is_empty() || self.sources.iter().any(|prefix| source.is_in(prefix));
        // The default rules of a security group let the virtual network in.
        is_named || (self.is_internal && !self.denies_others && !source.is_of_internet())
    }
}

/// A Service as the judge follows it.
#[derive(Debug)]
struct Tracked {
    name: String,
    /// What its rules are called.
    base: String,
    /// What it asks for; `None` once it is deleted or is no load balancer.
    asked: Option<Asked>,
    /// What it has asked for since all was at rest, and may still be in force.
    before: Vec<Asked>,
    addresses: BTreeSet<IpAddr>,
    exists: bool,
    gap: Option<Gap>,
}

/// A time without service that Azure forces.
#[derive(Debug, Clone, Copy)]
struct Gap {
    /// How many writes may begin in it.
    writes: usize,
    begun: usize,
}

impl Tracked {
    fn specs(&self) -> impl Iterator<Item = &Asked> {
        self.asked.iter().chain(&self.before)
    }
}

/// The judge.
#[derive(Debug, Default)]
pub(super) struct Judge {
    azure: Azure,
    services: BTreeMap<String, Tracked>,
    /// Every address that something has held.
    held: BTreeSet<IpAddr>,
    /// What happened, for the reader of a failure.
    story: Vec<String>,
    faults: Vec<String>,
    /// States that were judged.
    pub(super) judged: usize,
}

impl Judge {
    pub(super) fn new(azure: Azure) -> Self {
        Self { azure, ..Self::default() }
    }

    /// Applies a step of Azure and judges the state after it.
    pub(super) fn step(&mut self, step: &Step) {
        let parts: Vec<String> = step
            .documents
            .iter()
            .filter(|changed| changed.key.contains("/microsoft.network/"))
            .map(|changed| {
                let name = changed.key.split("/microsoft.network/").nth(1).unwrap_or_default();
                let state = match (&changed.document, changed.in_flight) {
                    (None, _) => "gone",
                    (Some(_), true) => "in flight",
                    (Some(_), false) => "at rest",
                };
                format!("{name} {state}")
            })
            .collect();
        if parts.is_empty() {
            return;
        }
        self.story.push(format!("{:.3} {}", step.at.as_secs_f64(), parts.join(", ")));
        let begins = step.documents.iter().any(|changed| changed.in_flight);
        step.documents.iter().for_each(|changed| self.azure.changed(changed));
        self.check(begins);
    }

    /// Applies a change of a Service and judges its status. `exists` is false for its last state.
    pub(super) fn service(&mut self, object: &Value, exists: bool) {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (name, uid) = (text("/metadata/name"), text("/metadata/uid"));
        let is_deleting = object["metadata"]["deletionTimestamp"].is_string();
        let asked = Asked::read(object).filter(|_| exists && !is_deleting);
        let ingress = object["status"]["loadBalancer"]["ingress"].as_array().into_iter().flatten();
        let addresses: BTreeSet<IpAddr> = ingress.filter_map(|one| one["ip"].as_str()?.parse().ok()).collect();
        let base: String = format!("a{}", uid.replace('-', "")).chars().take(32).collect();
        let tracked = self.services.entry(uid).or_insert_with(|| Tracked {
            name: name.clone(),
            base,
            asked: None,
            before: vec![],
            addresses: BTreeSet::new(),
            exists: true,
            gap: None,
        });
        if tracked.asked != asked {
            self.story.push(format!("  {name} asks for {asked:?}"));
            tracked.before.extend(std::mem::replace(&mut tracked.asked, asked));
        }
        // The record that something of it may exist is gone, so nothing may.
        tracked.exists = exists;
        if !exists {
            tracked.before.clear();
        }
        let fresh: Vec<IpAddr> = addresses.difference(&tracked.addresses).copied().collect();
        if tracked.addresses != addresses {
            self.story.push(format!("  {name} has {addresses:?}"));
            tracked.addresses = addresses;
        }
        if let Some(asked) = tracked.asked.as_ref() {
            let networks = self.azure.networks();
            let missing = |address: IpAddr| {
                let missing = unreached(&networks, address, [asked].into_iter());
                missing.into_iter().map(move |one| format!("shown: the status of a Service gets {address}, and {one}"))
            };
            let faults: Vec<String> = fresh.into_iter().flat_map(missing).collect();
            faults.into_iter().for_each(|fault| self.fault(fault));
        }
        if !exists {
            self.check(false);
        }
    }

    /// Everything is at rest: only what the Services ask for now may be in force, and nothing of Services that are gone.
    /// `nodes` are the addresses of the Nodes that exist.
    pub(super) fn at_rest(&mut self, nodes: &BTreeSet<IpAddr>) {
        self.story.push("  at rest".to_owned());
        self.services.retain(|_, tracked| tracked.exists);
        for tracked in self.services.values_mut() {
            tracked.before.clear();
            tracked.gap = None;
        }
        self.check(false);
        let left = self.left(nodes);
        left.into_iter().for_each(|fault| self.fault(format!("at rest: {fault}")));
    }

    /// What is missing, and what is left of Services that are gone.
    fn left(&self, nodes: &BTreeSet<IpAddr>) -> Vec<String> {
        let without = self.services.values().filter(|tracked| tracked.asked.is_some() && tracked.addresses.is_empty());
        let mut faults: Vec<String> = without.map(|tracked| format!("{} has no address", tracked.name)).collect();
        let bases: Vec<&str> = self.services.values().map(|tracked| tracked.base.as_str()).collect();
        let shown: BTreeSet<IpAddr> = self.services.values().flat_map(|tracked| tracked.addresses.clone()).collect();
        for network in self.azure.networks() {
            let rules = network.rules().map(|(_, rule)| rule.name.as_str());
            let strange = rules.filter(|name| !bases.iter().any(|base| name.starts_with(base)));
            faults.extend(strange.map(|name| format!("the rule {name} belongs to no Service")));
            let frontends = network.unused_frontends().into_iter();
            let strange = frontends.filter(|name| !bases.iter().any(|base| name.starts_with(base)));
            faults.extend(strange.map(|name| format!("the frontend {name} belongs to no Service and has no rule")));
            let admitted = network.admitted(SECURITY_RULES).into_iter();
            let strange = admitted.filter(|(address, _)| !shown.contains(address) && !nodes.contains(address));
            faults.extend(strange.map(|(address, rule)| format!("{rule} admits {address}, which no Service has")));
        }
        for document in self.azure.of_type("Microsoft.Network/publicIPAddresses") {
            let name = document["name"].as_str().unwrap_or_default();
            let listed = document["tags"]["k8s-azure-service"].as_str().unwrap_or_default();
            let is_listed = listed.split(',').any(|service| self.has(service.rsplit('/').next().unwrap_or_default()));
            if name.starts_with("kubernetes-a") && !is_listed {
                faults.push(format!("the public IP {name} belongs to no Service"));
            }
        }
        faults
    }

    fn has(&self, name: &str) -> bool {
        self.services.values().any(|tracked| tracked.name == name)
    }

    /// Lets a Service be out of reach once while so many writes begin, where Azure forces that.
    pub(super) fn allow_gap(&mut self, name: &str, writes: usize) {
        let gap = Some(Gap { writes, begun: 0 });
        self.services.values_mut().filter(|tracked| tracked.name == name).for_each(|tracked| tracked.gap = gap);
    }

    /// The faults found so far, with what led to the first ones.
    ///
    /// # Panics
    /// When there are any.
    pub(super) fn assert_no_faults(&self, case: &str) {
        assert!(self.faults.is_empty(), "{case}:\n{}", self.story.join("\n"));
    }

    pub(super) fn faults(&self) -> &[String] {
        &self.faults
    }

    /// What happened so far.
    pub(super) fn story(&self) -> &[String] {
        &self.story
    }

    fn fault(&mut self, fault: String) {
        if !self.faults.contains(&fault) {
            self.story.push(format!("!! {fault}"));
            self.faults.push(fault);
        }
    }

    /// Judges the state as it is. `begins`: a write has just begun.
    fn check(&mut self, begins: bool) {
        self.judged += 1;
        let networks = self.azure.networks();
        let mut faults = Vec::new();
        for tracked in self.services.values_mut().filter(|tracked| tracked.asked.is_some()) {
            let missing = tracked.addresses.iter().flat_map(|address| {
                let missing = unreached(&networks, *address, tracked.specs());
                missing.into_iter().map(move |one| format!("{address}: {one}"))
            });
            let missing: Vec<String> = missing.collect();
            match &mut tracked.gap {
                Some(gap) if missing.is_empty() && gap.begun == 0 => {}
                Some(gap) if !missing.is_empty() && gap.begun + usize::from(begins) <= gap.writes => {
                    gap.begun += usize::from(begins);
                }
                _ => {
                    tracked.gap = None;
                    faults.extend(missing.iter().map(|one| format!("served: {} at {one}", tracked.name)));
                }
            }
        }
        for network in &networks {
            for (place, rule) in network.rules() {
                let Some(tracked) = self.services.values().find(|tracked| rule.name.starts_with(&tracked.base)) else {
                    continue;
                };
                let claims: Vec<&Asked> = tracked.specs().filter(|asked| asked.ports.contains(&rule.port)).collect();
                for source in SOURCES {
                    let is_admitted =
                        claims.iter().any(|asked| asked.is_internal != place.is_public && asked.admits(source));
                    if !is_admitted && network.reach_by(source, place, rule).is_open {
                        faults.push(format!(
                            "closed: {} is open to {} at {} {:?}",
                            tracked.name, source.address, place.address, rule.port
                        ));
                    }
                }
            }
            for (address, rule) in network.admitted(SECURITY_RULES) {
                // One that has never been held is not there yet.
                let is_in_gap =
                    self.services.values().any(|tracked| tracked.gap.is_some() && tracked.addresses.contains(&address));
                if !network.is_held(address) && self.held.contains(&address) && !is_in_gap {
                    faults.push(format!("held: security rule {rule} admits {address}, which was given up"));
                }
            }
        }
        let held = networks.iter().flat_map(Network::held).collect::<Vec<_>>();
        self.held.extend(held);
        faults.into_iter().for_each(|fault| self.fault(fault));
    }
}

/// From where an address is not reached although all these specs admit it.
fn unreached<'s>(networks: &[Network<'_>], address: IpAddr, specs: impl Iterator<Item = &'s Asked>) -> Vec<String> {
    let specs: Vec<&Asked> = specs.collect();
    let Some(first) = specs.first() else { return vec![] };
    let is_public = networks.iter().any(|network| network.is_public(address));
    let ports = first.ports.iter().filter(|port| specs.iter().all(|asked| asked.ports.contains(port)));
    let pairs = ports.flat_map(|port| SOURCES.map(|source| (port, source)));
    let required = pairs
        .filter(|(_, source)| source.is_of_internet() == is_public && specs.iter().all(|asked| asked.admits(*source)));
    let missing =
        required.filter(|(port, source)| !networks.iter().all(|one| one.reach(*source, address, port).is_served));
    missing.map(|(port, source)| format!("{} does not reach {port:?}", source.address)).collect()
}
