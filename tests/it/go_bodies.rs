//! What the planners write for a Service, against what the Go cloud controller manager wrote for it.
//!
//! The files of `go_bodies` are recordings of that manager on the emulator (`scripts/tiers/gopeers`): per step the Service,
//! the resources before it and the writes. Here the same Service goes through the planners, on the same resources, and each
//! resource must end as the manager's last write of it says. Between two steps a process that has just started takes over
//! what the manager left, and must write nothing. [`DIFFERENCES`] lists what differs on purpose.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    net::IpAddr,
    path::Path,
};

use lazuli_model::{
    ArmId, ServiceKey,
    address::{Cidr, Family},
    tags::TagPolicy,
};
use lazuli_services::{
    ask::{
        AddressAsk, Ask, PortProtocol, PublicIpAsk, Side,
        names::{self, BaseName},
    },
    network::{
        Served, Settings, Waiting, Want, load_balancer, nic, private_link, public_ip, security_group,
        settings::{LoadBalancerSku, PoolKind, PreconfiguredPools, SharedProbe},
    },
    service::{
        Existing, ServiceObject, Shown, annotation,
        object::ServicePort,
        parse,
        wants::{self, Former, Stage},
    },
};
use serde_json::{Value, json};

const SUBSCRIPTION: &str = "00000000-0000-0000-0000-000000000001";
const NETWORK: &str =
    "/subscriptions/00000000-0000-0000-0000-000000000001/resourceGroups/lazuli/providers/Microsoft.Network";

/// What a Service wants that is gone: nothing reaches the addresses that it had.
fn gone(service: &ServiceKey, former: &Former) -> Want<security_group::Part, security_group::Gone> {
    let (destinations, base) = (former.addresses.clone(), Some(BaseName::of(service)));
    let gone = security_group::Gone { destinations, base, ..security_group::Gone::default() };
    Want { present: security_group::Part::default(), gone }
}

/// What differs on purpose: a part of `SETTINGS / CASE / STEP: RESOURCE.PATH` and the reason.
const DIFFERENCES: &[(&str, &str)] = &[
    (
        "public becomes internal / 2: /networksecuritygroups/nsg.",
        "the Go manager keeps the address that the status still shows: the rule for the old address, which is free again, stays",
    ),
    ("public becomes internal, NIC pool / 2: /networksecuritygroups/nsg.", "as above"),
    ("public IP name appears / 2: /networksecuritygroups/nsg.", "as above"),
    ("public IP prefix appears / 2: /networksecuritygroups/nsg.", "as above"),
    (
        "floating IP goes off / 2: /networksecuritygroups/nsg.",
        "as at a change to internal: the Service's address is no destination any more, and its rule stays",
    ),
    (
        "floating IP goes off / 3: /networksecuritygroups/nsg.",
        "the Go manager leaves that rule behind for ever; here it goes at the Service's next change, not at take-over",
    ),
    (
        "DNS label changes and goes / 3: /publicipaddresses/kubernetes-a0000000100004000800000000000000.tags.k8s-azure-dns-",
        "the Go manager keeps the owner of a label that is gone, and then refuses the label to other Services",
    ),
    (
        "floating IP comes back / 2: /networksecuritygroups/nsg.",
        "the Go manager leaves the rule for the nodes' addresses behind for ever",
    ),
    ("floating IP comes back / 3: /networksecuritygroups/nsg.", "as above"),
    (
        "dual stack goes / 2: /networksecuritygroups/nsg.",
        "the Go manager keeps the rule of the address that the status still shows",
    ),
    (
        "dual stack goes / 2: /publicipaddresses/kubernetes-a0000000100004000800000000000000-ipv6: only Go's is there",
        "the Go manager leaves the public IP of a family that is gone behind for ever",
    ),
    (
        "dual stack comes and goes, NIC pool / 3: /publicipaddresses/kubernetes-a0000000100004000800000000000000-ipv6: only Go's",
        "as above",
    ),
    ("dual stack comes and goes, NIC pool / 3: /networksecuritygroups/nsg.", "as where dual stack goes"),
    (
        "private link comes and goes / 3: /privatelinkservices/",
        "the Go manager keeps a private link service whose annotation says false until the Service is deleted",
    ),
    (
        "private link comes and goes / 4: /privatelinkservices/",
        "as above: this world's planners have deleted it at the change before, so they have no record of it",
    ),
    ("no security rule / ", "the annotation is newer than the recorded manager"),
];

/// Errors of the manager that are answered otherwise here: the case and the reason.
const ERRORS: &[(&str, &str)] = &[
    ("SCTP / ", "unverified: the emulator wants port 0 of a rule of all protocols, and the Go manager names one"),
    (
        "IP tags change / 2: ",
        "the Go manager takes the frontend off to make the public IP anew, which Azure refuses for the last frontend of a \
         load balancer; here an event says that the IP tags stay",
    ),
    ("private link on a pool of addresses / ", "Azure refuses it: the pool needs NICs"),
    (
        "private link on a public Service / ",
        "here it is refused before anything is written; the Go manager has made public IP and security rule by then",
    ),
];

pub(super) fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(|item| Some(item.as_str()?.to_owned())).collect()
}

pub(super) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn number(value: &Value) -> u16 {
    value.as_u64().unwrap_or_default().try_into().unwrap()
}

pub(super) fn settings(json: &Value) -> Settings {
    let group = || "lazuli".to_owned();
    let no_map = BTreeMap::new();
    let name = json["loadBalancerName"].as_str().map(str::to_owned);
    let is_shared = json["clusterServiceLoadBalancerHealthProbeMode"] == "shared";
    Settings {
        cluster_name: "kubernetes".to_owned(),
        subscription: SUBSCRIPTION.to_owned(),
        compute_subscription: SUBSCRIPTION.to_owned(),
        location: "westeurope".to_owned(),
        resource_group: group(),
        load_balancer_resource_group: group(),
        load_balancer_name: name,
        sku: if json["loadBalancerSku"] == "basic" { LoadBalancerSku::Basic } else { LoadBalancerSku::Standard },
        vnet_resource_group: group(),
        vnet_name: "vnet".to_owned(),
        subnet_name: text(&json["subnetName"]),
        security_group_resource_group: group(),
        security_group_name: text(&json["securityGroupName"]),
        private_link_resource_group: group(),
        pool_kind: if json["loadBalancerBackendPoolConfigurationType"] == "nodeIP" {
            PoolKind::NodeIp
        } else {
            PoolKind::Nic
        },
        preconfigured_pools: PreconfiguredPools::None,
        primary_vm_set: text(&json["primaryAvailabilitySetName"]),
        configurations: vec![],
        migrates_pools: false,
        pool_update_interval: std::time::Duration::ZERO,
        maximum_rules: 250,
        exclude_control_plane: true,
        disable_outbound_snat: json["disableOutboundSNAT"] == true,
        shared_probe: is_shared.then(|| SharedProbe { port: 10_256, path: "/healthz".to_owned() }),
        may_change_ip_tags: false,
        tags: TagPolicy::parse(&text(&json["tags"]), &no_map, "").0,
        edge_zone: None,
        share_addresses: Default::default(),
        allowed_groups: None,
    }
}

pub(super) fn service(json: &Value, ingress: Vec<IpAddr>) -> ServiceObject {
    let (metadata, spec) = (&json["metadata"], &json["spec"]);
    let annotations = metadata["annotations"].as_object().into_iter().flatten();
    ServiceObject {
        key: ServiceKey::new(text(&metadata["namespace"]), text(&metadata["name"]), text(&metadata["uid"])),
        labels: BTreeMap::new(),
        namespace_labels: BTreeMap::new(),
        annotations: annotations.map(|(key, value)| (key.clone(), text(value))).collect(),
        is_load_balancer: spec["type"] == "LoadBalancer",
        load_balancer_class: None,
        ports: spec["ports"].as_array().into_iter().flatten().map(port).collect(),
        families: texts(&spec["ipFamilies"])
            .iter()
            .map(|family| if family == "IPv6" { Family::V6 } else { Family::V4 })
            .collect(),
        is_local: spec["externalTrafficPolicy"] == "Local",
        health_check_node_port: number(&spec["healthCheckNodePort"]),
        is_client_ip_affine: spec["sessionAffinity"] == "ClientIP",
        source_ranges: texts(&spec["loadBalancerSourceRanges"]).iter().collect(),
        load_balancer_ip: spec["loadBalancerIP"].as_str().map(str::to_owned),
        cluster_ips: vec![],
        external_ips: vec![],
        ingress,
        is_deleting: false,
        has_finalizer: true,
    }
}

fn port(json: &Value) -> ServicePort {
    ServicePort {
        name: text(&json["name"]),
        protocol: match json["protocol"].as_str() {
            Some("UDP") => PortProtocol::Udp,
            Some("SCTP") => PortProtocol::Sctp,
            _ => PortProtocol::Tcp,
        },
        port: number(&json["port"]),
        node_port: number(&json["nodePort"]),
        app_protocol: json["appProtocol"].as_str().map(str::to_owned),
    }
}

/// A Service that lives, and what is known of it.
struct Live {
    ask: Ask,
    addresses: BTreeSet<IpAddr>,
    /// All destinations that it ever had.
    former: BTreeSet<IpAddr>,
    public_ips: BTreeMap<Family, ArmId>,
}

pub(super) type Documents = BTreeMap<String, Value>;

/// The planners on a copy of the resources.
pub(super) struct World<'a> {
    settings: &'a Settings,
    pub(super) documents: Documents,
    live: BTreeMap<ServiceKey, Live>,
    /// Ids of what was written.
    written: BTreeSet<String>,
}

fn key(id: &ArmId) -> String {
    id.to_string().to_lowercase()
}

fn nodes() -> BTreeMap<IpAddr, String> {
    [("10.240.0.4", "node-0"), ("10.240.0.5", "node-1"), ("fd00:0:0:1::4", "node-0"), ("fd00:0:0:1::5", "node-1")]
        .map(|(address, name)| (address.parse().unwrap(), name.to_owned()))
        .into()
}

fn zones() -> Vec<String> {
    ["1", "2", "3"].map(str::to_owned).into()
}

impl<'a> World<'a> {
    pub(super) fn new(settings: &'a Settings) -> Self {
        Self { settings, documents: BTreeMap::new(), live: BTreeMap::new(), written: BTreeSet::new() }
    }

    /// What load balancers show of a Service.
    fn shown(&self, service: &ServiceKey) -> Option<Shown> {
        let documents = self.documents.iter().map(|(id, body)| (id.parse::<ArmId>().unwrap(), body));
        let all: Vec<_> = documents
            .filter(|(id, _)| id.is_type("Microsoft.Network/loadBalancers"))
            .map(|(id, body)| Shown::all(&load_balancer::LoadBalancer::read(&id, body).unwrap()))
            .collect();
        Shown::of(&BaseName::of(service), &all)
    }

    /// Writes what a planner plans until it is quiet; how each Service is served then.
    fn write<E>(
        &mut self,
        id: &ArmId,
        mut plan: impl FnMut(Option<&Value>) -> (Vec<E>, BTreeMap<ServiceKey, Served>),
        apply: impl Fn(Option<Value>, &[E]) -> Option<Value>,
    ) -> BTreeMap<ServiceKey, Served> {
        for _ in 0..6 {
            let (edits, served) = plan(self.documents.get(&key(id)));
            let leaves = served.values().any(|served| matches!(served, Served::Waiting(Waiting::MembersLeave(_))));
            if edits.is_empty() && !leaves {
                return served;
            }
            self.written.insert(key(id));
            let mut there = self.documents.remove(&key(id));
            if let (true, Some(there)) = (leaves, &mut there) {
                for pool in there["properties"]["backendAddressPools"].as_array_mut().into_iter().flatten() {
                    pool["properties"].as_object_mut().unwrap().remove("backendIPConfigurations");
                }
            }
            if let Some(body) = apply(there, &edits) {
                self.documents.insert(key(id), body);
            }
        }
        panic!("the plan for {id} does not converge");
    }

    fn public_ip(&mut self, id: &ArmId, released: Option<&ServiceKey>) -> BTreeMap<ServiceKey, Served> {
        let mut wanted: public_ip::Wants = BTreeMap::new();
        for (service, live) in &self.live {
            for family in &live.ask.families {
                if let AddressAsk::Public(public) = &family.address
                    && live.public_ips.get(&family.family) == Some(id)
                {
                    wanted.insert(service.clone(), wants::public_ip(public, family.family));
                }
            }
        }
        if let Some(service) = released {
            wanted.entry(service.clone()).or_insert_with(wants::public_ip_released);
        }
        let settings = self.settings;
        let env = public_ip::Env {
            id: id.clone(),
            cluster_name: settings.cluster_name.clone(),
            location: settings.location.clone(),
            sku: settings.sku,
            edge_zone: None,
            zones: zones(),
            tags: settings.tags.clone(),
            may_change_ip_tags: false,
        };
        self.write(
            id,
            |body| {
                let actual = body.map(|body| public_ip::PublicIp::read(id, body).unwrap());
                let plan = public_ip::plan(&wanted, actual.as_ref(), &env);
                (plan.edits, plan.served)
            },
            |body, edits| public_ip::apply_raw(body, edits, &env),
        )
    }

    fn load_balancer(&mut self, side: Side, changed: &ServiceKey, former: &Former) -> BTreeMap<ServiceKey, Served> {
        let settings = self.settings;
        let stem = settings.load_balancer_name.as_ref().unwrap_or(&settings.cluster_name);
        let id = settings.load_balancer_id(&names::load_balancer(stem, side == Side::Internal)).unwrap();
        let mut wanted: load_balancer::Wants = BTreeMap::new();
        for (service, live) in self.live.iter().filter(|(_, live)| live.ask.side == side) {
            let none = Former::default();
            let former = if service == changed { former } else { &none };
            let want = wants::load_balancer(&live.ask, settings, &live.public_ips, former, Stage::Trimming).unwrap();
            wanted.insert(service.clone(), want);
        }
        wanted
            .entry(changed.clone())
            .or_insert_with(|| wants::load_balancer_left(changed, settings, former, Stage::Trimming));
        let vnet = settings.vnet_id().unwrap();
        let pools = [Family::V4, Family::V6].map(|family| {
            let addresses = nodes().into_iter().filter(|(address, _)| Family::of(*address) == family).collect();
            let kind = settings.pool_kind;
            let members =
                load_balancer::PoolMembers { kind, vnet: vnet.clone(), addresses, may_be_empty: false, keeps: false };
            (settings.pool_name(family), members)
        });
        let env = load_balancer::Env {
            id: id.clone(),
            location: settings.location.clone(),
            sku: settings.sku,
            edge_zone: None,
            zones: zones(),
            subnets: [("nodes", "10.240.0.0/16"), ("nodes", "fd00:0:0:1::/64"), ("apps", "10.241.0.0/16")]
                .into_iter()
                .fold(BTreeMap::new(), |mut all: BTreeMap<ArmId, Vec<Cidr>>, (name, prefix)| {
                    all.entry(settings.subnet_id(name).unwrap()).or_default().push(prefix.parse().unwrap());
                    all
                }),
            tags: settings.tags.clone(),
            pools: pools.into(),
            in_models: BTreeSet::new(),
            migrates_pools: settings.migrates_pools,
            maximum_rules: settings.maximum_rules,
            is_preconfigured: settings.is_preconfigured(&id),
            sharing: settings.share_addresses,
            // Every Service shares with every other, as under the Go manager.
            peers: Default::default(),
        };
        self.write(
            &id,
            |body| {
                let actual = body.map(|body| load_balancer::LoadBalancer::read(&id, body).unwrap());
                let plan = load_balancer::plan(&wanted, actual.as_ref(), &env);
                (plan.edits, plan.served)
            },
            |body, edits| load_balancer::apply_raw(body, edits, &env),
        )
    }

    fn security_group(&mut self, changed: &ServiceKey, former: &Former) -> BTreeMap<ServiceKey, Served> {
        let settings = self.settings;
        let env = security_group::Env {
            id: settings.security_group_id().unwrap(),
            tags: settings.tags.clone(),
            nodes: BTreeSet::new(),
            all_nodes: BTreeSet::new(),
            reached: BTreeSet::new(),
            users: vec![],
            keep: BTreeMap::new(),
            departed: BTreeSet::new(),
            node_ports: BTreeMap::new(),
        };
        let nodes: BTreeSet<IpAddr> = nodes().into_keys().collect();
        let none = Former::default();
        let mut wanted: security_group::Wants = BTreeMap::new();
        for (service, live) in &self.live {
            let former = if service == changed { former } else { &none };
            let want = wants::security_group(&live.ask, &live.addresses, &nodes, former, Stage::Trimming);
            wanted.insert(service.clone(), want);
        }
        wanted.entry(changed.clone()).or_insert_with(|| gone(changed, former));
        let id = env.id.clone();
        self.write(
            &id,
            |body| {
                let actual = body.map(|body| security_group::SecurityGroup::read(&id, body).unwrap());
                let plan = security_group::plan(&wanted, actual.as_ref(), &env);
                (plan.edits, plan.served)
            },
            |body, edits| security_group::apply_raw(body, edits, &env),
        )
    }

    fn private_link(&mut self, id: &ArmId, changed: &ServiceKey, want: Want<private_link::Part, private_link::Gone>) {
        let env = private_link::Env {
            id: id.clone(),
            cluster_name: self.settings.cluster_name.clone(),
            location: self.settings.location.clone(),
            edge_zone: None,
            tags: self.settings.tags.clone(),
        };
        let wanted: private_link::Wants = [(changed.clone(), want)].into();
        self.write(
            id,
            |body| {
                let actual = body.map(|body| private_link::PrivateLink::read(id, body).unwrap());
                let plan = private_link::plan(&wanted, actual.as_ref(), &env);
                (plan.edits, plan.served)
            },
            |body, edits| private_link::apply_raw(body, edits, &env),
        );
    }

    /// Public IPs that no frontend refers to are free.
    fn free_public_ips(&mut self) {
        let used: Vec<String> = (self.documents.iter())
            .filter(|(id, _)| id.contains("/loadbalancers/"))
            .flat_map(|(_, body)| body["properties"]["frontendIPConfigurations"].as_array().into_iter().flatten())
            .filter_map(|frontend| Some(frontend["properties"]["publicIPAddress"]["id"].as_str()?.to_lowercase()))
            .collect();
        for (id, body) in self.documents.iter_mut().filter(|(id, _)| id.contains("/publicipaddresses/")) {
            if !used.contains(id) {
                body["properties"].as_object_mut().unwrap().remove("ipConfiguration");
            }
        }
    }

    /// The ids of the public IPs that a Service asks for.
    fn public_ips_of(&self, ask: &Ask) -> BTreeMap<Family, ArmId> {
        let mut found = BTreeMap::new();
        for family in &ask.families {
            let AddressAsk::Public(public) = &family.address else { continue };
            let id = match public {
                PublicIpAsk::WithAddress { address, .. } => (self.documents.values())
                    .find(|body| body["properties"]["ipAddress"] == json!(address.to_string()))
                    .map(|body| body["id"].as_str().unwrap().parse().unwrap()),
                _ => wants::public_ip_id(public, self.settings).unwrap(),
            };
            found.extend(id.map(|id| (family.family, id)));
        }
        found
    }

    /// Does one step of a case; what is refused and why.
    pub(super) fn step(&mut self, service: &ServiceKey, next: Option<(Ask, BTreeSet<IpAddr>)>) -> Vec<String> {
        let old = self.live.remove(service);
        let former = old.as_ref().map_or_else(Former::default, |live| Former {
            addresses: live.former.clone(),
            public_ips: live.public_ips.values().cloned().collect(),
        });
        let mut public_ips: BTreeSet<ArmId> = BTreeSet::new();
        let mut links: Vec<(ArmId, Want<private_link::Part, private_link::Gone>)> = Vec::new();
        if let Some(old) = &old {
            public_ips.extend(old.public_ips.values().cloned());
            links.extend(self.link(&old.ask).map(|(id, _)| (id, wants::private_link_released())));
        }
        if let Some((ask, addresses)) = next {
            let found = self.public_ips_of(&ask);
            links.extend(self.link(&ask));
            public_ips.extend(found.values().cloned());
            let mut all = former.addresses.clone();
            all.extend(&addresses);
            if !ask.floating_ip {
                all.extend(nodes().into_keys());
            }
            self.live.insert(service.clone(), Live { ask, addresses, former: all, public_ips: found });
        }
        let mut refused = Vec::new();
        let mut note = |served: BTreeMap<ServiceKey, Served>| {
            refused.extend(served.into_values().filter_map(|served| match served {
                Served::Refused(refusal) => Some(refusal.message),
                _ => None,
            }));
        };
        for id in self.live.get(service).map(|live| live.public_ips.clone()).unwrap_or_default().values() {
            note(self.public_ip(id, None));
        }
        for side in [Side::Public, Side::Internal] {
            note(self.load_balancer(side, service, &former));
        }
        note(self.security_group(service, &former));
        for (id, want) in links {
            self.private_link(&id, service, want);
        }
        self.free_public_ips();
        for id in &public_ips {
            note(self.public_ip(id, Some(service)));
        }
        refused
    }

    /// Plans all Services on what the manager left, as a process that has just started; the ids of what it would write.
    pub(super) fn take_over(&mut self) -> BTreeSet<String> {
        self.written.clear();
        let services: Vec<ServiceKey> = self.live.keys().cloned().collect();
        for service in &services {
            for id in self.live[service].public_ips.clone().values() {
                self.public_ip(id, None);
            }
            for side in [Side::Public, Side::Internal] {
                self.load_balancer(side, service, &Former::default());
            }
            self.security_group(service, &Former::default());
            if let Some((id, want)) = self.link(&self.live[service].ask) {
                self.private_link(&id, service, want);
            }
        }
        std::mem::take(&mut self.written)
    }

    fn link(&self, ask: &Ask) -> Option<(ArmId, Want<private_link::Part, private_link::Gone>)> {
        let link = ask.private_link.as_ref()?;
        let stem = self.settings.load_balancer_name.as_ref().unwrap_or(&self.settings.cluster_name);
        let balancer = self.settings.load_balancer_id(&names::load_balancer(stem, ask.side == Side::Internal)).unwrap();
        let frontend = load_balancer::LoadBalancer::frontend_id(&balancer, &ask.families[0].frontend);
        let name = private_link::name(link, &frontend, &[]);
        let id = self.settings.private_link_id(&link.resource_group, &name).unwrap();
        Some((id, wants::private_link(ask, self.settings, &frontend).unwrap()?))
    }
}

/// The resources as the manager's writes leave them: the last body of each, or none.
fn go_documents(before: &Documents, writes: &Value) -> Documents {
    let mut after = before.clone();
    for write in writes.as_array().unwrap().iter().filter(|write| write["refused"].is_null()) {
        let path = text(&write["path"]).to_lowercase();
        let method = text(&write["method"]);
        if let Some((balancer, pool)) = path.split_once("/backendaddresspools/") {
            let Some(pools) =
                after.get_mut(balancer).and_then(|body| body["properties"]["backendAddressPools"].as_array_mut())
            else {
                continue;
            };
            pools.retain(|there| text(&there["name"]).to_lowercase() != pool);
            if method == "PUT" {
                pools.push(write["body"].clone());
            }
        } else if method == "DELETE" {
            after.remove(&path);
        } else if is_compared(&path) {
            after.insert(path, write["body"].clone());
        }
    }
    after
}

fn is_compared(path: &str) -> bool {
    ["loadbalancers", "networksecuritygroups", "publicipaddresses", "privatelinkservices"]
        .iter()
        .any(|kind| path.contains(&format!("/microsoft.network/{kind}/")))
}

fn has_pool(balancer: &Value, name: &str) -> bool {
    let pools = balancer["properties"]["backendAddressPools"].as_array();
    pools.into_iter().flatten().any(|pool| text(&pool["name"]).eq_ignore_ascii_case(name))
}

/// The NICs that the manager wrote must be in the pools that ours would put them in.
fn nic_differences(title: &str, world: &World, before: &Documents, writes: &Value) -> Vec<String> {
    let pools_of = |family| -> BTreeSet<ArmId> {
        let name = world.settings.pool_name(family);
        (world.documents.iter())
            .filter(|(id, body)| id.contains("/loadbalancers/") && has_pool(body, &name))
            .map(|(id, _)| format!("{id}/backendAddressPools/{name}").parse().unwrap())
            .collect()
    };
    let wanted = [Family::V4, Family::V6].map(|family| (family, pools_of(family)));
    let managed = wanted.iter().flat_map(|(_, pools)| pools.clone()).collect();
    let env = nic::Env { wanted: wanted.into(), managed };
    let mut bodies: BTreeMap<String, &Value> = BTreeMap::new();
    for write in writes.as_array().unwrap() {
        let path = text(&write["path"]).to_lowercase();
        if path.contains("/networkinterfaces/") {
            bodies.insert(path, &write["body"]);
        }
    }
    let mut found = Vec::new();
    for (path, go) in bodies {
        let id: ArmId = path.parse().unwrap();
        let actual = nic::Nic::read(&id, &before[&path]).unwrap();
        let ours = nic::apply_raw(before[&path].clone(), &nic::plan(&actual, &env).edits);
        let is_pool = |leaf: &(String, String)| leaf.0.contains("loadBalancerBackendAddressPools");
        let pools = |body: &Value| {
            let mut all = BTreeMap::new();
            leaves(body, "", &mut all);
            all.into_iter().filter(is_pool).collect::<Vec<_>>()
        };
        if pools(&ours) != pools(go) {
            found.push(format!("{title}: {path}: ours {:?}, Go {:?}", pools(&ours), pools(go)));
        }
    }
    found
}

/// Members that only Azure writes, and back references.
const READ_ONLY: &[&str] = &[
    "etag",
    "provisioningState",
    "resourceGuid",
    "backendIPConfigurations",
    "ipConfiguration",
    "defaultSecurityRules",
    "subnets",
    "networkInterfaces",
    "alias",
    "privateEndpointConnections",
    "fqdn",
    "type",
];

/// A body as leaves by path: lists of named elements by name, in lower case where Azure ignores it; read-only members,
/// empty ones and defaults of Azure are left out.
fn leaves(value: &Value, path: &str, all: &mut BTreeMap<String, String>) {
    match value {
        Value::Null => {}
        Value::Object(map) => {
            for (key, value) in map {
                let is_element = path.ends_with(']');
                let is_read_only = READ_ONLY.contains(&key.as_str())
                    || ((is_element || path.is_empty()) && ["id", "name"].contains(&key.as_str()))
                    // The manager sends the subnet that it has read, of which the id counts.
                    || path.ends_with(".subnet") && key != "id"
                    // Rules that refer to a frontend, pool or probe.
                    || key == "loadBalancingRules" && path.contains('[');
                if !is_read_only && !is_default(key, value) {
                    leaves(value, &format!("{path}.{key}"), all);
                }
            }
        }
        Value::Array(items) => {
            let mut names: Vec<String> = Vec::new();
            for (index, item) in items.iter().enumerate() {
                match item {
                    // Members of a pool that are NICs: Azure lists them, and the manager sends what it has read.
                    Value::Object(_) if item["properties"]["networkInterfaceIPConfiguration"].is_object() => {}
                    Value::Object(_) => {
                        let name = item["name"].as_str().or(item["id"].as_str());
                        let name = name.map_or_else(|| index.to_string(), str::to_lowercase);
                        all.insert(format!("{path}[{name}]"), "there".to_owned());
                        leaves(item, &format!("{path}[{name}]"), all);
                    }
                    leaf => names.push(leaf.to_string().to_lowercase()),
                }
            }
            names.sort_unstable();
            if !names.is_empty() {
                all.insert(path.to_owned(), names.join(" "));
            }
        }
        leaf => {
            let mut text = leaf.to_string();
            if text.starts_with("\"/subscriptions") {
                text = text.to_lowercase();
            }
            all.insert(path.to_owned(), text);
        }
    }
}

/// Defaults of Azure, which a writer may leave out.
fn is_default(key: &str, value: &Value) -> bool {
    match key {
        "enableTcpReset" | "disableOutboundSnat" | "enableFloatingIP" | "enableProxyProtocol" => *value == false,
        "loadDistribution" => value == "Default",
        "privateIPAllocationMethod" => value == "Dynamic",
        "privateIPAddressVersion" => value == "IPv4",
        // Azure fills it in; the manager sends `probeThreshold` in its place.
        "numberOfProbes" => *value == 2,
        "idleTimeoutInMinutes" => *value == 4,
        _ => false,
    }
}

fn differences(title: &str, ours: &Documents, go: &Documents) -> Vec<String> {
    let mut found = Vec::new();
    let ids: BTreeSet<&String> = ours.keys().chain(go.keys()).filter(|id| is_compared(id)).collect();
    for id in ids {
        let name = id.strip_prefix(&NETWORK.to_lowercase()).unwrap_or(id);
        match (ours.get(id), go.get(id)) {
            (Some(ours), Some(go)) => {
                let (mut our_leaves, mut go_leaves) = (BTreeMap::new(), BTreeMap::new());
                leaves(ours, "", &mut our_leaves);
                leaves(go, "", &mut go_leaves);
                let paths: BTreeSet<&String> = our_leaves.keys().chain(go_leaves.keys()).collect();
                for path in paths {
                    let (ours, go) = (our_leaves.get(path), go_leaves.get(path));
                    if ours != go {
                        let show = |leaf: Option<&String>| leaf.map_or("nothing".to_owned(), String::clone);
                        found.push(format!("{title}: {name}{path}: ours {}, Go {}", show(ours), show(go)));
                    }
                }
            }
            (ours, _) => {
                let who = if ours.is_some() { "only ours is there" } else { "only Go's is there" };
                found.push(format!("{title}: {name}: {who}"));
            }
        }
    }
    found
}

pub(super) fn recordings() -> Vec<Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/go_bodies");
    let mut paths: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
        .iter()
        .map(|path| {
            let text = fs::read_to_string(path).unwrap().replace("\"~", &format!("\"{NETWORK}"));
            let mut recording: Value = serde_json::from_str(&text).unwrap();
            recording["name"] = json!(path.file_stem().unwrap().to_str().unwrap());
            recording
        })
        .collect()
}

pub(super) fn documents(before: &Value) -> Documents {
    before.as_object().unwrap().iter().map(|(id, body)| (id.to_lowercase(), body.clone())).collect()
}

/// Runs a case through the planners; what differs.
fn compare(recording: &Value, case: &Value) -> Vec<String> {
    let settings = settings(&recording["settings"]);
    let mut world = World::new(&settings);
    let mut found = Vec::new();
    let mut keys: BTreeMap<String, ServiceKey> = BTreeMap::new();
    for (index, step) in case["steps"].as_array().unwrap().iter().enumerate() {
        let title = format!("{} / {} / {}", text(&recording["name"]), text(&case["name"]), index + 1);
        let before = documents(&step["before"]);
        let ingress: BTreeSet<IpAddr> =
            texts(&step["ingress"]).iter().map(|address| address.parse().unwrap()).collect();
        world.documents.clone_from(&before);
        let taken_over = world.take_over();
        found.extend(taken_over.iter().map(|id| format!("{title}: before it, taking over writes {id}")));
        world.documents.clone_from(&before);
        let name = text(&step["name"]);
        let next = if step["service"].is_object() {
            let old = keys.get(&name).and_then(|service| world.live.get(service));
            let known = old.map(|live| live.addresses.iter().copied().collect()).unwrap_or_default();
            let is_served = old.is_some();
            let object = service(&step["service"], known);
            let shown = is_served.then(|| world.shown(&object.key)).flatten();
            let existing = Existing { shown, ..Existing::default() };
            keys.insert(name.clone(), object.key.clone());
            if object.is_load_balancer {
                match parse(&object, &settings, &existing) {
                    Ok(ask) => Some((ask, ingress)),
                    Err(mistakes) => {
                        let texts: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
                        if step["error"].is_null() {
                            found.push(format!("{title}: ours refuses: {}", texts.join("; ")));
                        }
                        continue;
                    }
                }
            } else {
                None
            }
        } else {
            None
        };
        let refused = world.step(&keys[&name], next);
        if let Some(error) = step["error"].as_str() {
            if refused.is_empty() {
                found.push(format!("{title}: only Go refuses: {error}"));
            }
            continue;
        }
        found.extend(refused.iter().map(|refusal| format!("{title}: ours refuses: {refusal}")));
        found.extend(differences(&title, &world.documents, &go_documents(&before, &step["writes"])));
        found.extend(nic_differences(&title, &world, &before, &step["writes"]));
    }
    found
}

/// Annotations that no recording has, and why.
const NOT_RECORDED: &[(&str, &str)] =
    &[("azure-load-balancer-configurations", "it needs several load balancers, each with nodes of its own")];

#[test]
fn every_annotation_is_recorded() {
    let recordings = recordings();
    let steps = || {
        recordings
            .iter()
            .flat_map(|all| all["cases"].as_array().unwrap())
            .flat_map(|case| case["steps"].as_array().unwrap())
    };
    let keys: BTreeSet<&String> = steps()
        .filter_map(|step| step["service"]["metadata"]["annotations"].as_object())
        .flat_map(|annotations| annotations.keys())
        .collect();
    for row in annotation::TABLE {
        let is_recorded = keys.iter().any(|key| annotation::find(key).is_some_and(|(found, _)| found == row));
        let is_exempt = NOT_RECORDED.iter().any(|(key, _)| row.key.ends_with(key));
        assert_ne!(is_recorded, is_exempt, "annotation {}", row.key);
    }
}

#[test]
fn planners_write_what_the_go_manager_writes() {
    let mut found = Vec::new();
    let mut steps = 0;
    for recording in recordings() {
        for case in recording["cases"].as_array().unwrap() {
            steps += case["steps"].as_array().unwrap().len();
            found.extend(compare(&recording, case));
        }
    }
    let is_intended = |line: &&String| DIFFERENCES.iter().chain(ERRORS).any(|(part, _)| line.contains(part));
    let unintended: Vec<&String> = found.iter().filter(|line| !is_intended(line)).collect();
    assert!(steps > 100, "only {steps} steps are recorded");
    assert!(unintended.is_empty(), "{} differences:\n{}", unintended.len(), texts_of(&unintended));
    for (part, reason) in DIFFERENCES.iter().chain(ERRORS) {
        assert!(found.iter().any(|line| line.contains(part)), "nothing differs any more by {part:?}: {reason}");
    }
}

fn texts_of(lines: &[&String]) -> String {
    lines.iter().map(|line| format!("{line}\n")).collect()
}
