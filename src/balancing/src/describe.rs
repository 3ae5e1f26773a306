//! Edits in words, for people.

use std::{collections::BTreeMap, net::IpAddr};

use lazuli_services::network::{load_balancer, private_link, public_ip, security_group};

fn tags(set: &BTreeMap<String, String>, remove: &[String]) -> String {
    let mut parts: Vec<String> = set.iter().map(|(name, value)| format!("set tag {name} to {value:?}")).collect();
    parts.extend(remove.iter().map(|name| format!("remove tag {name}")));
    parts.join(", ")
}

fn addresses<'a>(all: impl IntoIterator<Item = &'a IpAddr>) -> String {
    all.into_iter().map(IpAddr::to_string).collect::<Vec<_>>().join(", ")
}

/// An edit of a load balancer.
pub fn load_balancer(edit: &load_balancer::Edit) -> String {
    use load_balancer::Edit;
    match edit {
        Edit::Create => "create it".to_owned(),
        Edit::Delete => "delete it".to_owned(),
        Edit::Tags { set, remove } => tags(set, remove),
        Edit::AddPool(name) => format!("add backend pool {name}"),
        Edit::RemovePool(name) => format!("remove backend pool {name}"),
        Edit::Members { pool, add, remove, .. } => {
            let mut parts = Vec::new();
            if !add.is_empty() {
                parts.push(format!("add {}", addresses(add.keys())));
            }
            if !remove.is_empty() {
                parts.push(format!("remove {}", addresses(remove)));
            }
            format!("backend pool {pool}: {}", parts.join("; "))
        }
        Edit::PutFrontend(frontend) => {
            let at = frontend.public_ip.as_ref().map(|ip| format!(" with public IP {}", ip.name()));
            let at = at.or_else(|| frontend.private_address.map(|address| format!(" at {address}")));
            format!("write frontend {}{}", frontend.name, at.unwrap_or_default())
        }
        Edit::PutProbe(probe) => format!("write probe {} at port {}", probe.name, probe.port),
        Edit::PutRule(rule) => {
            format!("write rule {} from port {} to port {}", rule.name, rule.frontend_port, rule.backend_port)
        }
        Edit::MigratePools(pools) => format!("make pools of addresses of {}", pools.join(", ")),
        Edit::RemoveRule(name) => format!("remove rule {name}"),
        Edit::RemoveProbe(name) => format!("remove probe {name}"),
        Edit::RemoveFrontend(name) => format!("remove frontend {name}"),
    }
}

/// An edit of a security group.
pub fn security_group(edit: &security_group::Edit) -> String {
    use security_group::Edit;
    match edit {
        Edit::PutRule(rule) => format!(
            "write rule {}: {} {} from {} to {} at ports {}",
            rule.name,
            if rule.is_allow { "allow" } else { "deny" },
            rule.protocol,
            rule.sources.join(", "),
            rule.destinations.join(", "),
            rule.ports.join(", ")
        ),
        Edit::Destinations { rule, destinations } => {
            format!("rule {rule}: set the destinations to {}", destinations.join(", "))
        }
        Edit::RemoveRule(name) => format!("remove rule {name}"),
        Edit::Tags { set, remove } => tags(set, remove),
    }
}

/// An edit of a public IP.
pub fn public_ip(edit: &public_ip::Edit) -> String {
    use public_ip::Edit;
    match edit {
        Edit::Create(new) => match &new.prefix {
            Some(prefix) => format!("create it, {}, from prefix {}", new.family, prefix.name()),
            None => format!("create it, {}", new.family),
        },
        Edit::Tags { set, remove } => tags(set, remove),
        Edit::DnsLabel(Some(label)) => format!("set the DNS label to {label}"),
        Edit::DnsLabel(None) => "remove the DNS label".to_owned(),
        Edit::IpTags(tags) => {
            let tags: Vec<String> = tags.iter().map(|tag| format!("{}={}", tag.kind, tag.tag)).collect();
            format!("set the IP tags to {}", tags.join(", "))
        }
        Edit::Delete => "delete it".to_owned(),
    }
}

/// An edit of a private link service.
pub fn private_link(edit: &private_link::Edit) -> String {
    use private_link::Edit;
    let subscriptions = |all: &[String]| match all {
        [] => "no other subscription".to_owned(),
        all => all.join(", "),
    };
    match edit {
        Edit::Create(frontend) => format!("create it before frontend {}", frontend.name()),
        Edit::Addresses(all) => format!("give it {} addresses", all.len()),
        Edit::HostNames(names) => format!("set the host names to {}", names.join(", ")),
        Edit::ProxyProtocol(on) => format!("turn the proxy protocol {}", if *on { "on" } else { "off" }),
        Edit::Audience { visible_to, approved_for } => {
            let (visible_to, approved_for) = (subscriptions(visible_to), subscriptions(approved_for));
            format!("make it visible to {visible_to} and approve connections of {approved_for} at once")
        }
        Edit::Tags { set, remove } => tags(set, remove),
        Edit::DeleteConnection(name) => format!("delete connection {name}"),
        Edit::Delete => "delete it".to_owned(),
    }
}
