//! Services, settings and bodies for the tests of this crate and of crates above it.

#![expect(missing_docs, reason = "fixtures of tests say by their names what they are")]
#![expect(clippy::unwrap_used, reason = "what the fixtures are made of is known; a panic fails the test")]

use super::{
    Existing, ServiceObject, Shown, annotation,
    object::ServicePort,
    parse,
    wants::{self, Former, Stage},
};
use crate::{
    ask::{AddressAsk, Ask, PortProtocol, Side},
    network::{
        Settings, load_balancer, private_link, public_ip, security_group,
        settings::{LoadBalancerSku, PoolKind, PreconfiguredPools},
    },
};
use lazuli_model::{ArmId, ServiceKey, address::Family, tags::TagPolicy};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

pub const SUBSCRIPTION: &str = "/subscriptions/sub/resourceGroups/group/providers/Microsoft.Network";

pub const BASE: &str = "a0a1b2c3d4e5f60718293a4b5c6d7e8f";

pub fn settings() -> Settings {
    let group = || "group".to_owned();
    Settings {
        cluster_name: "kubernetes".to_owned(),
        subscription: "sub".to_owned(),
        compute_subscription: "sub".to_owned(),
        location: "westeurope".to_owned(),
        resource_group: group(),
        load_balancer_resource_group: group(),
        load_balancer_name: None,
        sku: LoadBalancerSku::Standard,
        vnet_resource_group: group(),
        vnet_name: "vnet".to_owned(),
        subnet_name: "nodes".to_owned(),
        security_group_resource_group: group(),
        security_group_name: "nsg".to_owned(),
        private_link_resource_group: group(),
        pool_kind: PoolKind::Nic,
        preconfigured_pools: PreconfiguredPools::None,
        primary_vm_set: "agents".to_owned(),
        configurations: vec![],
        maximum_rules: 250,
        exclude_control_plane: true,
        disable_outbound_snat: false,
        migrates_pools: false,
        pool_update_interval: std::time::Duration::ZERO,
        shared_probe: None,
        may_change_ip_tags: false,
        tags: TagPolicy::default(),
        edge_zone: None,
        share_addresses: Default::default(),
        allowed_groups: None,
    }
}

/// A port whose node port is 30000 and the port.
pub fn port(protocol: PortProtocol, port: u16) -> ServicePort {
    ServicePort { name: format!("p{port}"), protocol, port, node_port: 30_000 + port % 2_000, app_protocol: None }
}

/// A public Service with TCP port 80.
pub fn service() -> ServiceObject {
    ServiceObject {
        key: ServiceKey::new("default", "web", "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"),
        labels: BTreeMap::new(),
        namespace_labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        is_load_balancer: true,
        load_balancer_class: None,
        ports: vec![port(PortProtocol::Tcp, 80)],
        families: vec![Family::V4],
        is_local: false,
        health_check_node_port: 0,
        is_client_ip_affine: false,
        source_ranges: Default::default(),
        load_balancer_ip: None,
        cluster_ips: vec![],
        external_ips: vec![],
        ingress: vec![],
        is_deleting: false,
        has_finalizer: true,
    }
}

/// The Service with annotations, given without their prefix.
pub fn annotated(pairs: &[(&str, &str)]) -> ServiceObject {
    let annotations =
        pairs.iter().map(|(key, value)| (format!("{}{key}", annotation::PREFIX), (*value).to_owned())).collect();
    ServiceObject { annotations, ..service() }
}

pub fn load_balancer_env(settings: &Settings, side: Side) -> load_balancer::Env {
    let name = crate::ask::names::load_balancer(&settings.cluster_name, side == Side::Internal);
    load_balancer::Env {
        id: settings.load_balancer_id(&name).unwrap(),
        location: settings.location.clone(),
        sku: settings.sku,
        edge_zone: settings.edge_zone.clone(),
        zones: ["1", "2", "3"].map(str::to_owned).into(),
        subnets: [(settings.subnet_id("nodes").unwrap(), vec!["10.0.0.0/16".parse().unwrap()])].into(),
        tags: settings.tags.clone(),
        pools: BTreeMap::new(),
        in_models: BTreeSet::new(),
        migrates_pools: settings.migrates_pools,
        maximum_rules: settings.maximum_rules,
        is_preconfigured: settings.preconfigured_pools.covers(side),
        sharing: settings.share_addresses,
        peers: Default::default(),
    }
}

pub fn public_ip_env(settings: &Settings, id: &ArmId) -> public_ip::Env {
    public_ip::Env {
        id: id.clone(),
        cluster_name: settings.cluster_name.clone(),
        location: settings.location.clone(),
        sku: settings.sku,
        edge_zone: settings.edge_zone.clone(),
        zones: ["1", "2", "3"].map(str::to_owned).into(),
        tags: settings.tags.clone(),
        may_change_ip_tags: settings.may_change_ip_tags,
    }
}

pub fn security_group_env(settings: &Settings) -> security_group::Env {
    security_group::Env {
        id: settings.security_group_id().unwrap(),
        tags: settings.tags.clone(),
        nodes: BTreeSet::new(),
        all_nodes: BTreeSet::new(),
        reached: BTreeSet::new(),
        users: vec![],
        keep: BTreeMap::new(),
        departed: BTreeSet::new(),
        node_ports: BTreeMap::new(),
    }
}

/// A security group that holds nothing.
pub fn empty_group() -> Value {
    json!({ "name": "nsg", "location": "westeurope", "properties": { "securityRules": [] } })
}

/// The bodies that a Service leads to on an empty Azure.
pub struct Bodies {
    pub public_ips: Vec<Value>,
    pub load_balancer: Value,
    pub security_group: Value,
    pub private_link: Option<Value>,
}

/// Leads a Service to its bodies. Public IPs get 20.0.0.4 and 2001:db8::4, private frontends 10.0.0.4 and fd00::4, nodes
/// are 10.0.0.11 and 10.0.0.12; one has fd00::11 too.
pub fn bodies(object: &ServiceObject, settings: &Settings) -> Bodies {
    let ask = parse(object, settings, &Existing::default()).unwrap_or_else(|mistakes| panic!("{mistakes:?}"));
    let service = ask.service.clone();
    let mut ids = BTreeMap::new();
    let mut addresses: BTreeSet<IpAddr> = BTreeSet::new();
    let mut public_ips = Vec::new();
    for family in &ask.families {
        let text = match (&family.address, family.family) {
            (AddressAsk::Public(_), Family::V4) => "20.0.0.4",
            (AddressAsk::Public(_), Family::V6) => "2001:db8::4",
            (AddressAsk::Private { .. }, Family::V4) => "10.0.0.4",
            (AddressAsk::Private { .. }, Family::V6) => "fd00::4",
        };
        addresses.insert(text.parse().unwrap());
        if let AddressAsk::Public(public) = &family.address {
            let found = wants::public_ip_id(public, settings).unwrap();
            let id = found.unwrap_or_else(|| settings.public_ip_id(public.resource_group(), "found").unwrap());
            let env = public_ip_env(settings, &id);
            let want = wants::public_ip(public, family.family);
            let plan = public_ip::plan(&[(service.clone(), want)].into(), None, &env);
            public_ips.extend(public_ip::apply_raw(None, &plan.edits, &env));
            ids.insert(family.family, id);
        }
    }
    let env = load_balancer_env(settings, ask.side);
    let want = wants::load_balancer(&ask, settings, &ids, &Former::default(), Stage::Trimming).unwrap();
    let plan = load_balancer::plan(&[(service.clone(), want)].into(), None, &env);
    let load_balancer = load_balancer::apply_raw(None, &plan.edits, &env).unwrap_or_else(|| panic!("{plan:?}"));
    let nodes = ["10.0.0.11", "10.0.0.12", "fd00::11"].iter().map(|text| text.parse().unwrap()).collect();
    let env = security_group_env(settings);
    let want = wants::security_group(&ask, &addresses, &nodes, &Former::default(), Stage::Trimming);
    let group = security_group::SecurityGroup::read(&env.id, &empty_group()).unwrap();
    let plan = security_group::plan(&[(service, want)].into(), Some(&group), &env);
    let security_group = security_group::apply_raw(Some(empty_group()), &plan.edits, &env).unwrap();
    let private_link = private_link_body(&ask, settings);
    Bodies { public_ips, load_balancer, security_group, private_link }
}

/// What a Service is read beside that the load balancer of this body serves.
pub fn beside(object: &ServiceObject, settings: &Settings, side: Side, balancer: &Value) -> Existing {
    let id = load_balancer_env(settings, side).id;
    let all = Shown::all(&load_balancer::LoadBalancer::read(&id, balancer).unwrap());
    let shown = Shown::of(&crate::ask::names::BaseName::of(&object.key), [&all]);
    assert!(shown.is_some(), "{balancer}");
    Existing { shown, ..Existing::default() }
}

/// What a Service is read beside that is served as it is.
pub fn served(object: &ServiceObject) -> Existing {
    let side = parse(object, &settings(), &Existing::default()).unwrap().side;
    beside(object, &settings(), side, &bodies(object, &settings()).load_balancer)
}

fn private_link_body(ask: &Ask, settings: &Settings) -> Option<Value> {
    let link = ask.private_link.as_ref()?;
    let balancer = load_balancer_env(settings, ask.side).id;
    let frontend = load_balancer::LoadBalancer::frontend_id(&balancer, &ask.families[0].frontend);
    let name = private_link::name(link, &frontend, &[]);
    let env = private_link::Env {
        id: settings.private_link_id(&link.resource_group, &name).unwrap(),
        cluster_name: settings.cluster_name.clone(),
        location: settings.location.clone(),
        edge_zone: None,
        tags: settings.tags.clone(),
    };
    let want = wants::private_link(ask, settings, &frontend).unwrap()?;
    let plan = private_link::plan(&[(ask.service.clone(), want)].into(), None, &env);
    private_link::apply_raw(None, &plan.edits, &env)
}
