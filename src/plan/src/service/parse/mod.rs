//! From a Service to what it asks of Azure.

mod access;
mod address;
mod private_link;
mod traffic;

use std::{collections::BTreeSet, net::IpAddr};

use super::{
    Ask, FamilyAsk, Mistake, Mode, PlacementAsk, ServiceObject, Side, Warning, WarningReason,
    annotation::{Annotations, SHARE_WITH, key},
    names::{self, BaseName},
    share,
};
use crate::network::{Settings, settings::LoadBalancerSku};

/// What serves a Service already, so that its reading stays.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Existing {
    /// The side of the load balancer that has a frontend or rules of it; `None` for a new Service.
    pub side: Option<Side>,
    /// Keys of annotations whose value changed since this provider first saw the Service.
    pub changed: BTreeSet<String>,
}

/// Parses a Service.
///
/// The reading of the Go manager is kept for a live Service where it differs from the right one, with a warning each,
/// until the annotation in question changes.
///
/// # Errors
/// Everything that is wrong with it, each with annotation or field, value and what is allowed.
pub fn parse(object: &ServiceObject, settings: &Settings, existing: &Existing) -> Result<Ask, Vec<Mistake>> {
    let mut read = Reader {
        object,
        settings,
        annotations: Annotations::of(object, existing.side.is_some(), &existing.changed),
        base: BaseName::of(&object.key),
        side: Side::Public,
        reads_as_internal: false,
    };
    read.side(existing);
    read.annotations.note_unknown(object);
    if object.ports.is_empty() {
        read.annotations.mistakes.push(Mistake::field("spec.ports", "", "at least one port is needed"));
    }
    read.check_name(key::INTERNAL_SUBNET, names::is_resource_name);
    let access = access::read(&mut read);
    let placement = read.placement();
    let additional_addresses = read.additional_addresses();
    let private_link = private_link::read(&mut read);
    let floating_ip = !read.annotations.flag(key::DISABLE_FLOATING_IP);
    let families = object
        .served_families()
        .into_iter()
        .map(|family| {
            let address = address::read(&mut read, family);
            let (rules, probes) = traffic::read(&mut read, family, floating_ip, private_link.as_ref());
            FamilyAsk { family, frontend: read.frontend_name(family), address, rules, probes }
        })
        .collect();
    let Reader { mut annotations, base, side, .. } = read;
    let (shares_with, others) = share::shares_with(object);
    annotations.warnings.extend(others.iter().map(|other| {
        let message =
            format!("annotation {SHARE_WITH} holds {other:?}, which is no name of a namespace and opens nothing");
        Warning::new(WarningReason::IgnoredValue, message)
    }));
    annotations.mistakes.sort();
    annotations.mistakes.dedup();
    annotations.warnings.sort();
    annotations.warnings.dedup();
    if !annotations.mistakes.is_empty() {
        return Err(annotations.mistakes);
    }
    Ok(Ask {
        service: object.key.clone(),
        base,
        side,
        families,
        access,
        placement,
        additional_addresses,
        private_link,
        is_local: object.is_local,
        floating_ip,
        shares_with,
        warnings: annotations.warnings,
    })
}

/// A Service being read.
struct Reader<'a> {
    object: &'a ServiceObject,
    settings: &'a Settings,
    annotations: Annotations<'a>,
    base: BaseName,
    side: Side,
    /// Whether security rules, high-availability ports and IPv6 rules follow the internal reading. It differs from the
    /// side where the Go manager read `azure-load-balancer-internal` in two ways.
    reads_as_internal: bool,
}

impl<'a> Reader<'a> {
    /// Which side: the Go manager takes only the exact text `true` for internal when it chooses the load balancer, and any
    /// case of it elsewhere.
    fn side(&mut self, existing: &Existing) {
        let raw = self.annotations.raw(key::INTERNAL);
        self.side = match raw {
            None => Side::Public,
            Some("true") => Side::Internal,
            Some(text) if text.trim().eq_ignore_ascii_case("true") => {
                let stays_public =
                    existing.side == Some(Side::Public) && self.annotations.keeps_old_reading(key::INTERNAL);
                if stays_public {
                    self.annotations.warnings.push(Warning::new(
                        WarningReason::IgnoredValue,
                        format!(
                            "annotation {} is {text:?}; the Service stays public until the annotation changes: write \
                             \"true\" for an internal one",
                            key::INTERNAL
                        ),
                    ));
                    self.reads_as_internal = text.eq_ignore_ascii_case("true");
                    return;
                }
                Side::Internal
            }
            Some(_) if self.annotations.flag(key::INTERNAL) => Side::Internal,
            Some(_) => Side::Public,
        };
        self.reads_as_internal = self.side == Side::Internal;
    }

    fn is_standard(&self) -> bool {
        self.settings.sku == LoadBalancerSku::Standard
    }

    /// The subnet that an annotation names, of an internal Service.
    fn named_subnet(&self) -> Option<&'a str> {
        self.annotations.text(key::INTERNAL_SUBNET).filter(|_| self.side == Side::Internal)
    }

    /// Notes a mistake where a value is set that cannot be a name.
    fn check_name(&mut self, key: &str, is_name: fn(&str) -> bool) {
        if self.annotations.raw(key).is_some_and(|text| !text.trim().is_empty() && !is_name(text.trim())) {
            self.annotations.refuse_by_table(key);
        }
    }

    fn frontend_name(&self, family: crate::network::Family) -> String {
        names::frontend(&self.base, self.named_subnet(), self.object.is_dual_stack(), family)
    }

    fn placement(&mut self) -> PlacementAsk {
        let mode = match self.annotations.text(key::MODE) {
            None => Mode::Primary,
            Some(_) if self.is_standard() => {
                self.annotations.note_no_effect(key::MODE, "load balancers are Standard, and one serves all nodes");
                Mode::Primary
            }
            Some(text) if text.eq_ignore_ascii_case("__auto__") => Mode::Auto,
            Some(_) => Mode::Sets(self.annotations.comma_list(key::MODE).into_iter().map(str::to_owned).collect()),
        };
        let configurations: Vec<String> =
            self.annotations.comma_list(key::CONFIGURATIONS).into_iter().map(str::to_lowercase).collect();
        let has_address = self.object.load_balancer_ip.as_ref().is_some_and(|text| !text.is_empty());
        let pins = [key::IPV4, key::IPV6, key::PIP_NAME, key::PIP_NAME_IPV6];
        let pins_address = has_address || pins.iter().any(|key| self.annotations.text(key).is_some());
        if !configurations.is_empty() && !self.settings.has_several_load_balancers() {
            self.annotations.note_no_effect(key::CONFIGURATIONS, "only one load balancer is configured");
            return PlacementAsk { mode, configurations: vec![], pins_address };
        }
        if !configurations.is_empty() && pins_address {
            self.annotations.refuse(
                key::CONFIGURATIONS,
                "the load balancer is that of the address or public IP that the Service names; remove one of the two",
            );
        }
        PlacementAsk { mode, configurations, pins_address }
    }

    fn additional_addresses(&mut self) -> Vec<IpAddr> {
        let mut addresses = Vec::new();
        for item in self.annotations.comma_list(key::ADDITIONAL_IPS) {
            match item.parse() {
                Ok(address) => addresses.push(address),
                Err(_) => self.annotations.refuse_by_table(key::ADDITIONAL_IPS),
            }
        }
        addresses
    }
}
