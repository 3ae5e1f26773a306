//! From a Service to what it asks of Azure.

mod access;
mod address;
mod as_shown;
mod external;
mod private_link;
mod traffic;

use std::{collections::BTreeSet, net::IpAddr};

use as_shown::{Correction, Frozen};
pub use external::{ClusterAddresses, never_allowed};

use super::{
    ServiceObject,
    annotation::{Annotations, SHARE_WITH, key},
    object::MOST_PORTS,
    share,
    shown::Shown,
};
use crate::ask::{
    Ask, FamilyAsk, Mistake, Mode, PlacementAsk, Side, Warning, WarningReason,
    names::{self, BaseName},
};
use crate::network::{Settings, settings::LoadBalancerSku};

/// What a Service is read beside.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Existing {
    /// What load balancers show of it; `None` for a new Service.
    pub shown: Option<Shown>,
    /// The addresses of the frontends that they show; `None` while one is not known.
    pub own_addresses: Option<BTreeSet<IpAddr>>,
    /// The addresses that no Service may name as its own.
    pub cluster: ClusterAddresses,
}

impl Existing {
    /// The side that serves the Service already, as far as that is known.
    fn side(&self, object: &ServiceObject) -> Option<Side> {
        self.shown.as_ref()?.side(&object.ingress)
    }
}

/// How often what is shown is put in the place of mistakes: a value may be a mistake only beside another one.
const CORRECTIONS: usize = 3;

/// Parses a Service.
///
/// A value that cannot be used is a mistake of a new Service: an answer with mistakes rests on there being nothing shown. Of one that Azure serves, what Azure shows is read in its place,
/// with a warning.
///
/// # Errors
/// Everything that is wrong with it, each with annotation or field, value and what is allowed.
pub fn parse(object: &ServiceObject, settings: &Settings, existing: &Existing) -> Result<Ask, Vec<Mistake>> {
    let mut mistakes = match read(object, settings, existing, Frozen::default()) {
        Ok(ask) => return Ok(ask),
        Err(mistakes) => mistakes,
    };
    let first = mistakes.clone();
    let Some(shown) = &existing.shown else { return Err(first) };
    let mut corrected = Correction { object: object.clone(), frozen: Frozen::default(), settings, existing, shown };
    for _ in 0..CORRECTIONS {
        if !corrected.apply(&mistakes) {
            break;
        }
        match read(&corrected.object, settings, existing, corrected.frozen) {
            Ok(mut ask) => {
                let kept = first.iter().map(|mistake| {
                    let message = format!("{mistake}; until it is corrected, what Azure has of it stays");
                    Warning::new(WarningReason::IgnoredValue, message)
                });
                ask.warnings.extend(kept);
                ask.warnings.sort();
                ask.reads_shown = true;
                return Ok(ask);
            }
            Err(next) => mistakes = next,
        }
    }
    Err(first)
}

/// Reads a Service, of which some things stay as they are.
fn read(object: &ServiceObject, settings: &Settings, existing: &Existing, frozen: Frozen) -> Result<Ask, Vec<Mistake>> {
    let mut read = Reader {
        object,
        settings,
        existing,
        frozen,
        annotations: Annotations::of(object, existing.shown.is_some()),
        base: BaseName::of(&object.key),
        side: Side::Public,
        reads_as_internal: false,
    };
    read.side();
    read.annotations.note_unknown(object);
    if object.ports.is_empty() {
        read.annotations.mistakes.push(Mistake::field("spec.ports", "", "at least one port is needed"));
    }
    if object.ports.len() > MOST_PORTS {
        let allowed =
            format!("Azure takes {MOST_PORTS} rules on a load balancer; spread the ports over several Services");
        read.annotations.mistakes.push(Mistake::field("spec.ports", format!("more than {MOST_PORTS} ports"), allowed));
    }
    read.check_name(key::INTERNAL_SUBNET, names::is_resource_name);
    let access = access::read(&mut read);
    let placement = read.placement();
    let additional_addresses = external::read(&mut read);
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
    let (_, others) = share::shares_with(object);
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
        private_link_stays: frozen.private_link,
        is_local: object.is_local,
        floating_ip,
        reads_shown: annotations.reads_shown,
        warnings: annotations.warnings,
    })
}

/// A Service being read.
struct Reader<'a> {
    object: &'a ServiceObject,
    settings: &'a Settings,
    existing: &'a Existing,
    frozen: Frozen,
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
    fn side(&mut self) {
        let raw = self.annotations.raw(key::INTERNAL);
        let is_live = self.existing.shown.is_some();
        let served_on = self.existing.side(self.object);
        self.side = match raw {
            None => Side::Public,
            Some("true") => Side::Internal,
            // It moves to no side by a spelling that the Go manager took for the other one.
            Some(text) if text.trim().eq_ignore_ascii_case("true") => {
                self.annotations.reads_shown = true;
                match served_on {
                    Some(Side::Public) => {
                        self.annotations.warnings.push(Warning::new(
                        WarningReason::IgnoredValue,
                        format!(
                            "annotation {} is {text:?}; the Service stays public: write \"true\" for an internal one",
                            key::INTERNAL
                        ),
                    ));
                        self.reads_as_internal = text.eq_ignore_ascii_case("true");
                        return;
                    }
                    Some(Side::Internal) => Side::Internal,
                    None => {
                        if is_live {
                            self.annotations.refuse_by_table(key::INTERNAL);
                        }
                        Side::Internal
                    }
                }
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

    fn frontend_name(&self, family: lazuli_model::address::Family) -> String {
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
}
