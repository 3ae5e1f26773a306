//! What one private link service needs for the Services that share it.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use lazuli_model::{ServiceKey, tags};

use super::{
    CLUSTER_TAG, Env, Gone, Link, OWNER_TAG, Wants,
    edit::Edit,
    model::{LinkAddress, PrivateLink},
};
use crate::network::{Found, Plan, Refusal, RefusalReason, Served, Waiting};

/// The longest name of one of its IP configurations.
const LONGEST_NAME: usize = 80;

/// Plans one write of the private link service.
pub fn plan(wants: &Wants, actual: Option<&PrivateLink>, env: &Env) -> Plan<Edit> {
    match actual {
        None => create(wants, env),
        Some(actual) => change(wants, actual, env),
    }
}

fn users(wants: &Wants) -> impl Iterator<Item = (&ServiceKey, &Link)> {
    wants.iter().filter_map(|(service, want)| Some((service, want.present.link.as_ref()?)))
}

/// The addresses that a Service asks for: the named ones, then as many as Azure chooses.
fn addresses(link: &Link, env: &Env) -> Vec<LinkAddress> {
    let prefix = format!("{}-{}", link.subnet.name(), env.id.name());
    let named = |suffix: String| {
        let room = LONGEST_NAME.saturating_sub(suffix.len());
        format!("{}{suffix}", &prefix[..prefix.floor_char_boundary(room)])
    };
    let one = |suffix: String, address: Option<IpAddr>, is_primary: bool| LinkAddress {
        name: named(suffix),
        address,
        is_primary,
        subnet: Some(link.subnet.clone()),
    };
    let fixed = &link.ask.addresses;
    let chosen = usize::from(link.ask.address_count).saturating_sub(fixed.len());
    let fixed_ones = fixed.iter().enumerate().map(|(index, ip)| one(format!("-static-{ip}"), Some(*ip), index == 0));
    let chosen_ones = (0..chosen).map(|index| one(format!("-dynamic-{index}"), None, fixed.is_empty() && index == 0));
    fixed_ones.chain(chosen_ones).collect()
}

/// Whether addresses are as wanted; their names and their order are not compared.
fn are_same(there: &[LinkAddress], wanted: &[LinkAddress]) -> bool {
    let fixed = |all: &[LinkAddress]| all.iter().filter_map(|item| item.address).collect::<BTreeSet<_>>();
    let primary = |all: &[LinkAddress]| all.iter().find(|item| item.is_primary).and_then(|item| item.address);
    let subnets = |all: &[LinkAddress]| all.iter().map(|item| item.subnet.clone()).collect::<BTreeSet<_>>();
    there.len() == wanted.len()
        && fixed(there) == fixed(wanted)
        && primary(there) == primary(wanted)
        && subnets(there) == subnets(wanted)
}

fn same_texts(one: &[String], other: &[String]) -> bool {
    let sorted = |all: &[String]| {
        let mut all: Vec<String> = all.to_vec();
        all.sort_unstable();
        all
    };
    sorted(one) == sorted(other)
}

/// What brings a private link service to what its owner asks.
fn edits(owner: &ServiceKey, link: &Link, actual: Option<&PrivateLink>, env: &Env) -> Vec<Edit> {
    let mut edits = Vec::new();
    if actual.is_none() {
        edits.push(Edit::Create(link.frontend.clone()));
    }
    let wanted = addresses(link, env);
    if !actual.is_some_and(|actual| are_same(&actual.addresses, &wanted)) {
        edits.push(Edit::Addresses(wanted));
    }
    let ask = &link.ask;
    if actual.is_some_and(|actual| actual.proxy_protocol) != ask.proxy_protocol {
        edits.push(Edit::ProxyProtocol(ask.proxy_protocol));
    }
    let none: Vec<String> = vec![];
    if !same_texts(actual.map_or(&none, |actual| &actual.host_names), &ask.host_names) {
        edits.push(Edit::HostNames(ask.host_names.clone()));
    }
    let is_seen = same_texts(actual.map_or(&none, |actual| &actual.visible_to), &ask.visible_to);
    let is_approved = same_texts(actual.map_or(&none, |actual| &actual.approved_for), &ask.approved_for);
    if !is_seen || !is_approved {
        edits.push(Edit::Audience { visible_to: ask.visible_to.clone(), approved_for: ask.approved_for.clone() });
    }
    let there = actual.map(|actual| actual.tags.clone()).unwrap_or_default();
    let mut all: BTreeMap<String, String> = env.tags.set.clone();
    let kept = |name: &str| tags::find(&there, name).map(|(_, value)| value.clone());
    all.insert(CLUSTER_TAG.to_owned(), kept(CLUSTER_TAG).unwrap_or_else(|| env.cluster_name.clone()));
    all.insert(OWNER_TAG.to_owned(), kept(OWNER_TAG).unwrap_or_else(|| owner.tag_name()));
    let change = tags::change(&there, &all, &env.tags.keep_prefixes);
    if !change.is_empty() {
        edits.push(Edit::Tags { set: change.set, remove: change.remove });
    }
    edits
}

fn create(wants: &Wants, env: &Env) -> Plan<Edit> {
    let makers = || users(wants).filter(|(_, link)| link.is_own && link.is_allowed);
    let maker = makers().find(|(_, link)| link.ask.is_configured).or_else(|| makers().next());
    let served = wants.iter().map(|(service, want)| {
        let state = match (&want.present.link, maker) {
            (None, _) => Served::Done(Found::default()),
            (Some(link), None) if !link.is_own => Served::Refused(before_anothers(link, env)),
            (Some(_), None) => Served::Refused(Refusal::new(
                RefusalReason::ForeignOwner,
                format!(
                    "Services may not name private link services of resource group {}: it is none of \
                     --allowed-service-resource-groups; name an allowed group, or have the operator allow this one",
                    env.id.resource_group()
                ),
            )),
            (Some(_), Some((owner, _))) if owner == service => Served::Pending,
            (Some(_), Some(_)) => Served::Waiting(Waiting::For(env.id.clone())),
        };
        (service.clone(), state)
    });
    Plan {
        served: served.collect(),
        edits: maker.map(|(owner, link)| edits(owner, link, None, env)).unwrap_or_default(),
        is_partial: false,
    }
}

fn before_anothers(link: &Link, env: &Env) -> Refusal {
    let message = format!(
        "private link service {} would be in front of frontend {}, which is not that of this Service: only the owner of a \
         frontend decides who reaches it through private links. Use an address of the Service's own",
        env.id.name(),
        link.frontend.name()
    );
    Refusal::new(RefusalReason::ForeignOwner, message)
}

/// The events of a Service whose private link service stays though a new one would not be made.
fn kept(link: &Link, is_owner: bool, env: &Env) -> Vec<Refusal> {
    let name = env.id.name();
    let outside = (!link.is_allowed).then(|| {
        format!(
            "the Service keeps private link service {name} of resource group {}, though that is none of \
             --allowed-service-resource-groups: a new Service would not get it",
            env.id.resource_group()
        )
    });
    // Who shares the one of the owner keeps nothing of its own.
    let before_anothers = (is_owner && !link.is_own).then(|| {
        format!(
            "the Service keeps private link service {name} in front of frontend {}, which is not that of this Service: a \
             new one would not be made there",
            link.frontend.name()
        )
    });
    let all = outside.into_iter().chain(before_anothers);
    all.map(|message| Refusal::new(RefusalReason::KeptValue, message)).collect()
}

fn change(wants: &Wants, actual: &PrivateLink, env: &Env) -> Plan<Edit> {
    let name = env.id.name();
    let is_ours = actual.is_of_cluster(&env.cluster_name);
    let is_owner = |service: &ServiceKey| actual.owner().is_some_and(|o| o.eq_ignore_ascii_case(&service.tag_name()));
    let owner = users(wants).find(|(service, _)| is_owner(service));
    let is_released = wants.iter().any(|(service, want)| want.gone == Gone::Released && is_owner(service));
    let is_gone = is_ours && is_released && users(wants).next().is_none();

    let planned = match owner {
        _ if is_gone => match actual.connections.first() {
            Some(connection) => vec![Edit::DeleteConnection(connection.clone())],
            None => vec![Edit::Delete],
        },
        Some((service, link)) if is_ours && actual.frontends.contains(&link.frontend) => {
            edits(service, link, Some(actual), env)
        }
        _ => vec![],
    };
    let served = wants.iter().map(|(service, want)| {
        let state = match &want.present.link {
            None if want.gone == Gone::Released && is_gone => Served::Pending,
            None => Served::Done(Found::default()),
            Some(_) if !is_ours => Served::Refused(Refusal::new(
                RefusalReason::ForeignOwner,
                format!("private link service {name} was not made by cluster {}; name another one", env.cluster_name),
            )),
            Some(link) if !actual.frontends.contains(&link.frontend) => Served::Refused(Refusal::new(
                RefusalReason::Mismatch,
                format!(
                    "private link service {name} is in front of another frontend than {}; its name and frontend cannot \
                     change. Give it another name with annotation service.beta.kubernetes.io/azure-pls-name",
                    link.frontend.name()
                ),
            )),
            Some(link) if link.ask.name.as_ref().is_some_and(|asked| !asked.eq_ignore_ascii_case(name)) => {
                Served::Refused(Refusal::new(
                    RefusalReason::Mismatch,
                    format!("the frontend has private link service {name} already; its name cannot change"),
                ))
            }
            Some(link) if !is_owner(service) && link.ask.is_configured => Served::Refused(Refusal::new(
                RefusalReason::ForeignOwner,
                format!(
                    "private link service {name} belongs to Service {}, which alone configures it; remove all azure-pls \
                     annotations but azure-pls-create",
                    actual.owner().unwrap_or("(none in its tag)")
                ),
            )),
            Some(link) if is_owner(service) && !planned.is_empty() && !link.is_own => {
                Served::Refused(before_anothers(link, env))
            }
            Some(_) if is_owner(service) && !planned.is_empty() => Served::Pending,
            Some(link) => Served::Done(Found { notices: kept(link, is_owner(service), env), ..Found::default() }),
        };
        (service.clone(), state)
    });
    let served: BTreeMap<ServiceKey, Served> = served.collect();
    let is_refused = owner.is_some_and(|(service, _)| matches!(served.get(service), Some(Served::Refused(_))));
    let is_partial = planned.iter().any(|edit| matches!(edit, Edit::DeleteConnection(_)));
    Plan { edits: if is_refused { vec![] } else { planned }, served, is_partial }
}
