//! The private link service of a Service.

use std::net::IpAddr;

use lazuli_model::address::Family;

use super::Reader;
use crate::{
    ask::{PrivateLinkAsk, Side, names},
    service::annotation::key,
};

pub(super) fn read(read: &mut Reader) -> Option<PrivateLinkAsk> {
    // The Go manager reads these two flags without regard to space around them.
    let is_set = |read: &mut Reader, key: &str| {
        read.annotations.text(key).is_some_and(|text| text.eq_ignore_ascii_case("true")) || read.annotations.flag(key)
    };
    if read.frozen.private_link || !is_set(read, key::PLS_CREATE) {
        return None;
    }
    if read.side == Side::Public && !read.annotations.flag(key::DISABLE_FLOATING_IP) {
        read.annotations.refuse(
            key::PLS_CREATE,
            "a private link service needs an internal Service, or annotation \
             service.beta.kubernetes.io/azure-disable-load-balancer-floating-ip set to true",
        );
    }
    if !read.object.served_families().contains(&Family::V4) {
        read.annotations
            .refuse(key::PLS_CREATE, "a private link service needs an IPv4 address, and the Service has none");
    }
    read.check_name(key::PLS_NAME, names::is_resource_name);
    read.check_name(key::PLS_SUBNET, names::is_resource_name);
    read.check_name(key::PLS_RESOURCE_GROUP, names::is_resource_group_name);
    let mut addresses: Vec<IpAddr> = Vec::new();
    for item in read.annotations.space_list(key::PLS_ADDRESSES) {
        match item.parse::<IpAddr>() {
            Ok(address) if Family::of(address) == Family::V4 => {
                if !addresses.contains(&address) {
                    addresses.push(address);
                }
            }
            _ => read.annotations.refuse_by_table(key::PLS_ADDRESSES),
        }
    }
    let count = read.annotations.number(key::PLS_ADDRESS_COUNT).unwrap_or(1);
    let address_count = u8::try_from(count).unwrap_or(1);
    if addresses.len() > usize::from(address_count) {
        let allowed = format!("annotation {} allows {address_count} addresses", key::PLS_ADDRESS_COUNT);
        read.annotations.refuse(key::PLS_ADDRESSES, allowed);
    }
    let owned = |list: Vec<&str>| list.into_iter().map(str::to_owned).collect::<Vec<_>>();
    let visible = owned(read.annotations.space_list(key::PLS_VISIBILITY));
    let subnet = read.annotations.text(key::PLS_SUBNET);
    let others = [
        key::PLS_NAME,
        key::PLS_SUBNET,
        key::PLS_ADDRESS_COUNT,
        key::PLS_ADDRESSES,
        key::PLS_FQDNS,
        key::PLS_PROXY_PROTOCOL,
        key::PLS_VISIBILITY,
        key::PLS_AUTO_APPROVAL,
    ];
    Some(PrivateLinkAsk {
        name: read.annotations.text(key::PLS_NAME).map(str::to_owned),
        resource_group: read
            .annotations
            .text(key::PLS_RESOURCE_GROUP)
            .unwrap_or(&read.settings.private_link_resource_group)
            .to_owned(),
        subnet: subnet.or_else(|| read.named_subnet()).unwrap_or(&read.settings.subnet_name).to_owned(),
        address_count,
        addresses,
        host_names: owned(read.annotations.space_list(key::PLS_FQDNS)),
        proxy_protocol: is_set(read, key::PLS_PROXY_PROTOCOL),
        visible_to: if visible.iter().any(|item| item == "*") { vec!["*".to_owned()] } else { visible },
        approved_for: owned(read.annotations.space_list(key::PLS_AUTO_APPROVAL)),
        is_configured: others.iter().any(|key| read.annotations.raw(key).is_some()),
    })
}
