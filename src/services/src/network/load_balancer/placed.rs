//! The parts of Services with their frontends found, and what is refused of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use lazuli_model::{ArmId, ServiceKey, address::Family};

use super::{
    Env, FrontendAddress, FrontendPart, Gone, Part, RulePart, Wants,
    index::{Index, fold, owner_of},
    limits,
    model::{Frontend, LoadBalancer, Pool, Probe, Rule},
};
use crate::{
    ask::{
        ProbeAsk, TransportProtocol,
        names::{self, BaseName},
    },
    network::{
        Refusal, RefusalReason, Want,
        settings::{AddressSharing, LoadBalancerSku},
    },
    service::annotation::SHARE_WITH,
};

/// A Service's part with its frontends found: every name and id is known.
pub(super) struct Placed<'a> {
    pub(super) service: &'a ServiceKey,
    pub(super) base: BaseName,
    pub(super) part: &'a Part,
    pub(super) gone: &'a Gone,
    /// The frontend of each family, as it is to be.
    pub(super) frontends: BTreeMap<Family, Frontend>,
    pub(super) rules: Vec<Rule>,
    pub(super) probes: Vec<Probe>,
    /// The Service of another namespace whose frontend it uses, where that one does not agree.
    pub(super) unagreed: Option<&'a ServiceKey>,
}

impl Placed<'_> {
    pub(super) fn names_rule(&self, name: &str) -> bool {
        self.rules.iter().any(|rule| rule.name.eq_ignore_ascii_case(name))
    }

    pub(super) fn names_probe(&self, name: &str) -> bool {
        self.probes.iter().any(|probe| probe.name.eq_ignore_ascii_case(name))
    }

    pub(super) fn uses_frontend(&self, name: &str) -> bool {
        self.frontends.values().any(|frontend| frontend.name.eq_ignore_ascii_case(name))
    }
}

/// The Services placed so far, with what they take.
pub(super) struct Placing<'a> {
    wants: &'a Wants,
    index: &'a Index<'a>,
    env: &'a Env,
    /// Rules that go with this write, so that their ports are free.
    leaving: BTreeSet<String>,
    pub(super) placed: Vec<Placed<'a>>,
    /// The planned rules of each frontend.
    at: BTreeMap<ArmId, Vec<(Rule, &'a ServiceKey)>>,
    users: BTreeMap<String, &'a ServiceKey>,
    by_public_ip: BTreeMap<ArmId, Frontend>,
    by_address: BTreeMap<IpAddr, Frontend>,
    rules: usize,
    frontends: BTreeSet<String>,
    on_pool: BTreeMap<ArmId, usize>,
    /// Which Service has a pool of its own.
    own_pools: BTreeMap<String, &'a ServiceKey>,
}

impl<'a> Placing<'a> {
    pub(super) fn new(wants: &'a Wants, index: &'a Index<'a>, env: &'a Env) -> Self {
        let leaving = index.leaving_rules(wants);
        let mut on_pool: BTreeMap<ArmId, usize> = BTreeMap::new();
        let (mut rules, mut frontends) = (0, BTreeSet::new());
        if let Some(model) = index.model {
            for rule in model.rules.iter().filter(|rule| !leaving.contains(&fold(&rule.name))) {
                rules += 1;
                if let Some(pool) = &rule.pool {
                    *on_pool.entry(pool.clone()).or_default() += 1;
                }
            }
            frontends.extend(model.frontends.iter().map(|frontend| fold(&frontend.name)));
        }
        Self {
            wants,
            index,
            env,
            leaving,
            placed: vec![],
            at: BTreeMap::new(),
            users: BTreeMap::new(),
            by_public_ip: BTreeMap::new(),
            by_address: BTreeMap::new(),
            rules,
            frontends,
            on_pool,
            own_pools: BTreeMap::new(),
        }
    }

    /// Places one Service, or says why it is refused.
    pub(super) fn add(&mut self, service: &'a ServiceKey, want: &'a Want<Part, Gone>) -> Result<(), Refusal> {
        let mut part = self.place(service, &want.present, &want.gone)?;
        part.unagreed = self.unagreed(&part);
        self.refuse_other_sku(&part)?;
        self.refuse_unagreed(&part)?;
        self.refuse_pool_of_another(&part)?;
        self.refuse_conflicts(&part)?;
        self.refuse_excess(&part)?;
        for rule in &part.rules {
            if let Some(frontend) = &rule.frontend {
                self.at.entry(frontend.clone()).or_default().push((rule.clone(), service));
            }
            if self.index.rule(&rule.name).is_none() {
                self.rules += 1;
                if let Some(pool) = &rule.pool {
                    *self.on_pool.entry(pool.clone()).or_default() += 1;
                }
            }
        }
        for frontend in part.frontends.values() {
            self.frontends.insert(fold(&frontend.name));
            self.users.entry(fold(&frontend.name)).or_insert(service);
            if let Some(id) = &frontend.public_ip {
                self.by_public_ip.entry(id.clone()).or_insert_with(|| frontend.clone());
            } else if let Some(address) = frontend.private_address {
                self.by_address.entry(address).or_insert_with(|| frontend.clone());
            }
        }
        let local = part.part.pools.iter().filter(|pool| is_own_pool(service, pool)).map(|pool| fold(pool));
        self.own_pools.extend(local.map(|pool| (pool, service)));
        self.placed.push(part);
        Ok(())
    }

    /// The Service of another namespace whose frontend a Service uses, unless that one agrees: the one whose uid the public IP
    /// bears in its name, else the one whose uid the frontend bears. It may have told this load balancer nothing yet.
    fn unagreed(&self, part: &Placed) -> Option<&'a ServiceKey> {
        part.frontends.values().find_map(|frontend| {
            let maker = frontend.public_ip.as_ref().and_then(names::base_of_maker);
            let owner = maker.or_else(|| names::base_in(&frontend.name))?;
            if owner.eq_ignore_ascii_case(part.base.as_str()) {
                return None;
            }
            let owner = self.env.peers.of(owner)?;
            (!owner.agrees_with(part.service)).then_some(&owner.service)
        })
    }

    /// Whether Azure shows all rules of a part.
    fn adds_no_rule(&self, part: &Placed) -> bool {
        part.rules.iter().all(|rule| self.index.rule(&rule.name).is_some())
    }

    /// Refuses new rules on the frontend of another namespace where the configuration says so.
    fn refuse_unagreed(&self, part: &Placed) -> Result<(), Refusal> {
        match part.unagreed.filter(|_| self.env.sharing == AddressSharing::Namespace && !self.adds_no_rule(part)) {
            None => Ok(()),
            Some(owner) => Err(Refusal::new(
                RefusalReason::ForeignOwner,
                format!(
                    "its address is that of Service {owner}, and --share-addresses=namespace lets only Services of namespace {} \
                     and of those in that Service's annotation {SHARE_WITH} share it",
                    owner.namespace
                ),
            )),
        }
    }

    /// Refuses new rules to a pool of local traffic that another Service has: `a-b/c` and `a/b-c` make the same name.
    fn refuse_pool_of_another(&self, part: &Placed) -> Result<(), Refusal> {
        if self.adds_no_rule(part) {
            return Ok(());
        }
        for pool in part.part.pools.iter().filter(|pool| is_own_pool(part.service, pool)) {
            let id = LoadBalancer::pool_id(&self.env.id, pool);
            let rules = self.index.model.into_iter().flat_map(|model| &model.rules);
            let mut of_others = rules.filter(|rule| {
                let stays = !self.leaving.contains(&fold(&rule.name));
                rule.pool.as_ref() == Some(&id) && !part.base.owns(&rule.name) && stays
            });
            let by = match (self.own_pools.get(&fold(pool)), of_others.next()) {
                (Some(service), _) => format!("Service {service}"),
                (None, Some(rule)) => self.owner(&rule.name),
                (None, None) => continue,
            };
            return Err(Refusal::new(
                RefusalReason::ForeignOwner,
                format!(
                    "backend pool {pool} of load balancer {} is that of {}: the namespaces and names of both Services make one \
                     name of a pool; give this Service another name, or externalTrafficPolicy Cluster",
                    self.env.id.name(),
                    by.trim_end_matches(',')
                ),
            ));
        }
        Ok(())
    }

    /// Finds or names the frontends of a Service, and with them the ids that its rules hold.
    fn place(&self, service: &'a ServiceKey, part: &'a Part, gone: &'a Gone) -> Result<Placed<'a>, Refusal> {
        let base = BaseName::of(service);
        let mut frontends = BTreeMap::new();
        for asked in &part.frontends {
            let own = self.index.frontend(&asked.name);
            let frontend = match own {
                Some(own) if has_address(own, asked) => own.clone(),
                _ => match self.shared(asked) {
                    Some(shared) => shared.clone(),
                    None => {
                        if let Some(own) = own {
                            self.refuse_if_shared(&base, own)?;
                        }
                        let new = new_frontend(asked, self.env);
                        // Zones of a frontend cannot change.
                        Frontend { zones: own.map_or(new.zones, |own| own.zones.clone()), ..new }
                    }
                },
            };
            frontends.insert(asked.family, frontend);
        }
        let rules = part.rules.iter().map(|rule| wanted_rule(rule, &frontends, self.env)).collect();
        let probes = part.probes.iter().map(wanted_probe).collect();
        Ok(Placed { service, base, part, gone, frontends, rules, probes, unagreed: None })
    }

    /// A frontend of another name that has the public IP, or the private address that the Service names.
    fn shared(&self, asked: &FrontendPart) -> Option<&Frontend> {
        match &asked.address {
            FrontendAddress::Public(id) => self.index.with_public_ip(id).or_else(|| self.by_public_ip.get(id)),
            FrontendAddress::Private { address, .. } => {
                let address = (*address)?;
                let found = self.index.with_address(address).or_else(|| self.by_address.get(&address));
                found.filter(|frontend| has_address(frontend, asked))
            }
        }
    }

    /// Refuses to give a frontend another address while other Services' rules use it.
    fn refuse_if_shared(&self, base: &BaseName, own: &Frontend) -> Result<(), Refusal> {
        let id = LoadBalancer::frontend_id(&self.env.id, &own.name);
        let user = self.index.rules_at(&id).iter().find(|rule| !base.owns(&rule.name));
        let by = match (user, self.users.get(&fold(&own.name))) {
            (Some(rule), _) => self.owner(&rule.name),
            (None, Some(service)) => format!("Service {service}"),
            (None, None) => return Ok(()),
        };
        Err(Refusal::new(
            RefusalReason::WouldReplaceAddress,
            format!(
                "frontend {} of load balancer {} cannot get another address while {by} uses it; move that Service first",
                own.name,
                self.env.id.name()
            ),
        ))
    }

    /// The owner of a rule, in words.
    fn owner(&self, rule: &str) -> String {
        owner_of(rule, self.wants).unwrap_or_else(|| format!("rule {rule}, which belongs to no known Service,"))
    }

    /// Refuses a Service whose port another rule has on the same frontend.
    fn refuse_conflicts(&self, part: &Placed) -> Result<(), Refusal> {
        for rule in &part.rules {
            let Some(frontend) = &rule.frontend else { continue };
            let at = |what: String| {
                let protocol = rule.protocol.map_or("?", TransportProtocol::as_str);
                Err(Refusal::new(
                    RefusalReason::PortConflict,
                    format!(
                        "port {} ({protocol}) of frontend {} is taken by {what}; choose another port or another address",
                        rule.frontend_port,
                        frontend.name()
                    ),
                ))
            };
            let planned = self.at.get(frontend).map_or(&[][..], Vec::as_slice);
            if let Some((_, service)) = planned.iter().find(|(theirs, _)| collide(theirs, rule)) {
                return at(format!("Service {service}"));
            }
            let is_placed = |name: &str| planned.iter().any(|(theirs, _)| theirs.name.eq_ignore_ascii_case(name));
            let taken = self.index.rules_at(frontend).iter().find(|theirs| {
                collide(theirs, rule)
                    && !part.base.owns(&theirs.name)
                    && !self.leaving.contains(&fold(&theirs.name))
                    && !is_placed(&theirs.name)
            });
            if let Some(theirs) = taken {
                return at(self.owner(&theirs.name));
            }
            let range = self.index.model.into_iter().flat_map(|model| &model.nat).find(|range| {
                range.frontend.as_ref() == Some(frontend)
                    && range.ports.contains(&rule.frontend_port)
                    && (range.protocol == rule.protocol
                        || range.protocol == Some(TransportProtocol::All)
                        || rule.protocol == Some(TransportProtocol::All))
            });
            if let Some(range) = range {
                return at(format!("inbound NAT {} ({}-{})", range.name, range.ports.start(), range.ports.end()));
            }
        }
        Ok(())
    }

    /// Refuses new rules on a load balancer of another SKU than the configured one: it is neither upgraded nor deleted.
    fn refuse_other_sku(&self, part: &Placed) -> Result<(), Refusal> {
        let Some(model) = self.index.model.filter(|model| model.sku != self.env.sku) else { return Ok(()) };
        if part.rules.iter().all(|rule| self.index.rule(&rule.name).is_some()) {
            return Ok(());
        }
        let what = match model.sku {
            LoadBalancerSku::Basic => "let a Go cloud-controller-manager that migrates load balancers do that before",
            LoadBalancerSku::Standard => "no Standard load balancer becomes a Basic one",
        };
        let (actual, configured) = (model.sku.as_str(), self.env.sku.as_str());
        Err(Refusal::new(
            RefusalReason::Mismatch,
            format!(
                "load balancer {} is {actual}, and loadBalancerSku says {configured}: this controller does not migrate it; {what}, \
                 or set loadBalancerSku to {}",
                self.env.id.name(),
                actual.to_lowercase()
            ),
        ))
    }

    /// Refuses a Service that would exceed a limit of Azure. What exists is never refused.
    fn refuse_excess(&self, part: &Placed) -> Result<(), Refusal> {
        let sku = self.index.model.map_or(self.env.sku, |model| model.sku);
        let (most_rules, most_frontends) = match sku {
            LoadBalancerSku::Standard => (limits::STANDARD_RULES, limits::STANDARD_FRONTENDS),
            LoadBalancerSku::Basic => {
                let configured = usize::try_from(self.env.maximum_rules).unwrap_or(usize::MAX);
                (if configured == 0 { limits::BASIC_RULES } else { configured }, limits::BASIC_FRONTENDS)
            }
        };
        let new: Vec<&Rule> = part.rules.iter().filter(|rule| self.index.rule(&rule.name).is_none()).collect();
        if new.is_empty() {
            return Ok(());
        }
        let refuse = |what: &str, count: usize, most: usize| {
            Err(Refusal::new(
                RefusalReason::LimitExceeded,
                format!(
                    "load balancer {} would have {count} {what} with this Service; Azure allows {most}. \
                     Remove Services or use several load balancers",
                    self.env.id.name()
                ),
            ))
        };
        let rules = self.rules + new.len();
        if rules > most_rules {
            return refuse("rules", rules, most_rules);
        }
        let added = part.frontends.values().filter(|frontend| !self.frontends.contains(&fold(&frontend.name))).count();
        if self.frontends.len() + added > most_frontends {
            return refuse("frontends", self.frontends.len() + added, most_frontends);
        }
        for pool in &part.part.pools {
            let id = LoadBalancer::pool_id(&self.env.id, pool);
            let has_nics = self.index.model.and_then(|model| model.pool(pool)).is_some_and(Pool::has_nics);
            let added = new.iter().filter(|rule| rule.pool.as_ref() == Some(&id)).count();
            let count = self.on_pool.get(&id).copied().unwrap_or(0) + added;
            if has_nics && count > limits::RULES_PER_NIC {
                return refuse("rules for each NIC", count, limits::RULES_PER_NIC);
            }
        }
        Ok(())
    }
}

/// Whether a pool is that of the local traffic of a Service.
fn is_own_pool(service: &ServiceKey, pool: &str) -> bool {
    let begins =
        pool.get(..service.namespace.len()).is_some_and(|start| start.eq_ignore_ascii_case(&service.namespace));
    let is_it = |family: &Family| names::local_pool(service, *family).eq_ignore_ascii_case(pool);
    begins && [Family::V4, Family::V6].iter().any(is_it)
}

/// Whether a frontend has the address that is asked for.
pub(super) fn has_address(frontend: &Frontend, part: &FrontendPart) -> bool {
    match &part.address {
        FrontendAddress::Public(public_ip) => frontend.public_ip.as_ref() == Some(public_ip),
        FrontendAddress::Private { subnet, is_subnet_named, address, .. } => {
            frontend.public_ip.is_none()
                && (!is_subnet_named || frontend.subnet.as_ref().is_none_or(|there| there == subnet))
                && address.is_none_or(|address| frontend.private_address == Some(address))
        }
    }
}

fn new_frontend(part: &FrontendPart, env: &Env) -> Frontend {
    let empty = Frontend {
        name: part.name.clone(),
        public_ip: None,
        subnet: None,
        private_address: None,
        is_static: false,
        family: Family::V4,
        zones: vec![],
    };
    match &part.address {
        FrontendAddress::Public(public_ip) => Frontend { public_ip: Some(public_ip.clone()), ..empty },
        FrontendAddress::Private { subnet, address, previous, .. } => {
            let holds = |address: &IpAddr| {
                env.subnets.get(subnet).is_some_and(|prefixes| prefixes.iter().any(|prefix| prefix.contains(*address)))
            };
            let address = address.or(previous.filter(holds));
            let is_zonal = env.sku == LoadBalancerSku::Standard && env.edge_zone.is_none();
            Frontend {
                subnet: Some(subnet.clone()),
                private_address: address,
                is_static: address.is_some(),
                family: part.family,
                zones: if is_zonal { env.zones.clone() } else { vec![] },
                ..empty
            }
        }
    }
}

fn wanted_rule(rule: &RulePart, frontends: &BTreeMap<Family, Frontend>, env: &Env) -> Rule {
    let ask = &rule.ask;
    Rule {
        name: ask.name.clone(),
        protocol: Some(ask.protocol),
        frontend: frontends.get(&rule.family).map(|frontend| LoadBalancer::frontend_id(&env.id, &frontend.name)),
        pool: Some(LoadBalancer::pool_id(&env.id, &rule.pool)),
        probe: ask.probe.as_ref().map(|probe| LoadBalancer::probe_id(&env.id, probe)),
        frontend_port: ask.frontend_port,
        backend_port: ask.backend_port,
        floating_ip: ask.floating_ip,
        idle_timeout_minutes: Some(ask.idle_timeout_minutes),
        tcp_reset: ask.tcp_reset,
        affinity: Some(ask.affinity),
        disable_outbound_snat: ask.disable_outbound_snat,
    }
}

fn wanted_probe(probe: &ProbeAsk) -> Probe {
    Probe {
        name: probe.name.clone(),
        protocol: Some(probe.protocol),
        port: probe.port,
        path: probe.path.clone(),
        interval_seconds: probe.interval_seconds,
        threshold: probe.threshold,
    }
}

/// Whether two rules of one frontend would take the same traffic.
fn collide(one: &Rule, other: &Rule) -> bool {
    let takes_all = |rule: &Rule| rule.protocol == Some(TransportProtocol::All) && rule.frontend_port == 0;
    takes_all(one)
        || takes_all(other)
        || (one.frontend_port == other.frontend_port && one.protocol.is_some() && one.protocol == other.protocol)
}
