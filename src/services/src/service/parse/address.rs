//! Where the addresses of a Service come from.

use std::{collections::BTreeMap, net::IpAddr};

use lazuli_model::{ArmId, address::Family};

use super::{Reader, external::may_be_public};
use crate::{
    ask::{AddressAsk, DnsLabel, IpTag, Mistake, PublicIpAsk, PublicIpSettings, Side, Warning, WarningReason, names},
    network::public_ip,
    service::annotation::key,
};

pub(super) fn read(read: &mut Reader, family: Family) -> AddressAsk {
    let address = named_address(read, family);
    match read.side {
        Side::Internal => AddressAsk::Private {
            subnet: read.named_subnet().unwrap_or(&read.settings.subnet_name).to_owned(),
            is_subnet_named: read.named_subnet().is_some(),
            address,
            previous: read.object.ingress.iter().copied().find(|address| Family::of(*address) == family),
        },
        Side::Public => AddressAsk::Public(public(read, family, address)),
    }
}

/// The address that the Service names: the annotation of the family, else the deprecated field.
fn named_address(read: &mut Reader, family: Family) -> Option<IpAddr> {
    let key = match family {
        Family::V4 => key::IPV4,
        Family::V6 => key::IPV6,
    };
    if let Some(text) = read.annotations.text(key) {
        let address = text.parse::<IpAddr>().ok().filter(|address| Family::of(*address) == family);
        if address.is_none() {
            read.annotations.refuse_by_table(key);
        }
        return address.filter(|address| is_usable(read, *address, Err(key)));
    }
    const FIELD: &str = "spec.loadBalancerIP";
    let text = read.object.load_balancer_ip.as_deref().map(str::trim).filter(|text| !text.is_empty())?;
    match text.parse::<IpAddr>() {
        Ok(address) if Family::of(address) == family => {
            Some(address).filter(|address| is_usable(read, *address, Ok(FIELD)))
        }
        Ok(_) => None,
        Err(_) => {
            read.annotations.mistakes.push(Mistake::field(FIELD, text, "allowed is an IPv4 or IPv6 address"));
            None
        }
    }
}

/// Whether a public Service may have this address; notes a mistake in a field (`Ok`) or an annotation (`Err`) otherwise.
fn is_usable(read: &mut Reader, address: IpAddr, subject: Result<&'static str, &'static str>) -> bool {
    if read.side == Side::Internal || may_be_public(address) {
        return true;
    }
    let allowed = "a public Service needs the address of an existing public IP; for an internal one set \
                   service.beta.kubernetes.io/azure-load-balancer-internal to \"true\"";
    match subject {
        Ok(field) => read.annotations.mistakes.push(Mistake::field(field, address, allowed)),
        Err(key) => read.annotations.refuse(key, allowed),
    }
    false
}

fn public(read: &mut Reader, family: Family, address: Option<IpAddr>) -> PublicIpAsk {
    let settings = settings(read);
    read.check_name(key::RESOURCE_GROUP, names::is_resource_group_name);
    let resource_group = read.annotations.text(key::RESOURCE_GROUP).unwrap_or(&read.settings.resource_group).to_owned();
    // A Service of IPv6 alone may use either key.
    let of_family = |v4: &'static str, v6: &'static str| match (family, read.object.is_dual_stack()) {
        (Family::V4, _) => [Some(v4), None],
        (Family::V6, true) => [Some(v6), None],
        (Family::V6, false) => [Some(v6), Some(v4)],
    };
    let first = |read: &Reader, keys: [Option<&'static str>; 2]| {
        keys.into_iter().flatten().find_map(|key| Some((key, read.annotations.text(key)?.to_owned())))
    };
    if let Some((key, name)) = first(read, of_family(key::PIP_NAME, key::PIP_NAME_IPV6)) {
        if !names::is_resource_name(&name) {
            read.annotations.refuse_by_table(key);
        }
        return PublicIpAsk::Named { name, resource_group, settings };
    }
    let prefix = first(read, of_family(key::PIP_PREFIX, key::PIP_PREFIX_IPV6)).and_then(|(key, text)| {
        let id = text.parse::<ArmId>().ok().filter(|id| id.is_type("Microsoft.Network/publicIPPrefixes"));
        if id.is_none() {
            read.annotations.refuse_by_table(key);
        }
        id
    });
    if let (None, Some(address)) = (&prefix, address) {
        return PublicIpAsk::WithAddress { address, resource_group, settings };
    }
    let is_dual_stack = read.object.is_dual_stack();
    let cluster = &read.settings.cluster_name;
    let name = names::public_ip(cluster, &read.base, prefix.as_ref().map(ArmId::name), is_dual_stack, family);
    PublicIpAsk::Managed { name, prefix, resource_group, settings }
}

fn settings(read: &mut Reader) -> PublicIpSettings {
    let dns_label = match read.annotations.raw(key::DNS_LABEL) {
        None => DnsLabel::Untouched,
        Some("") => DnsLabel::Removed,
        Some(label) => {
            if !is_dns_label(label) {
                read.annotations.refuse_by_table(key::DNS_LABEL);
            }
            DnsLabel::Set(label.to_owned())
        }
    };
    let (mut tags, skipped) =
        lazuli_model::tags::parse_pairs(read.annotations.raw(key::PIP_TAGS).unwrap_or_default().trim());
    if !skipped.is_empty() {
        read.annotations.refuse_by_table(key::PIP_TAGS);
    }
    tags.retain(|name, _| {
        let is_allowed = !public_ip::tags::marks_ownership(name);
        if !is_allowed {
            let message = format!(
                "annotation {} sets tag {name}, by which the cloud controllers know whose a public IP is: it is ignored; use \
                 another name",
                key::PIP_TAGS
            );
            let warning = Warning::new(WarningReason::IgnoredValue, message);
            // The public IP of the other family has the same tags.
            if !read.annotations.warnings.contains(&warning) {
                read.annotations.warnings.push(warning);
            }
        }
        is_allowed
    });
    PublicIpSettings { dns_label, tags, tags_stay: read.frozen.tags, ip_tags: ip_tags(read) }
}

/// Whether Azure takes a text as the label of a public IP (source: publicIPAddresses, `domainNameLabel`).
fn is_dns_label(text: &str) -> bool {
    let is_inner = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
    (3..=63).contains(&text.len())
        && text.starts_with(|letter: char| letter.is_ascii_lowercase())
        && !text.ends_with('-')
        && text.chars().all(is_inner)
}

fn ip_tags(read: &mut Reader) -> Option<Vec<IpTag>> {
    let text = read.annotations.raw(key::PIP_IP_TAGS)?.trim();
    let mut tags: BTreeMap<&str, &str> = BTreeMap::new();
    let mut is_malformed = false;
    for pair in text.split(',').filter(|_| !text.is_empty()) {
        match pair.split('=').map(str::trim).collect::<Vec<_>>().as_slice() {
            [kind, tag] if !kind.is_empty() => {
                tags.insert(kind, tag);
            }
            _ => is_malformed = true,
        }
    }
    if is_malformed {
        read.annotations.refuse_by_table(key::PIP_IP_TAGS);
    }
    Some(tags.into_iter().map(|(kind, tag)| IpTag { kind: kind.to_owned(), tag: tag.to_owned() }).collect())
}
