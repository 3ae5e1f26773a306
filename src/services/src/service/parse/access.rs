//! Who may reach a Service.

use lazuli_model::address::{Cidr, CidrError, aggregate};

use super::{Reader, as_shown::Frozen};
use crate::{
    ask::{Access, Denial, KeptRules, Warning, WarningReason},
    service::{annotation::key, shown::Shown},
};

/// The service tag of the whole world.
const INTERNET: &str = "Internet";

const FIELD: &str = "spec.loadBalancerSourceRanges";

/// The ranges that a field or an annotation names, and how many of its items are none.
#[derive(Default)]
struct Ranges {
    valid: Vec<Cidr>,
    invalid: usize,
}

impl Ranges {
    /// Reads items as the Go manager does: an empty one is none.
    fn read<'t>(items: impl IntoIterator<Item = &'t str>, mut note: impl FnMut(&CidrError)) -> Self {
        let mut ranges = Self::default();
        for item in items {
            match item.trim().parse() {
                Ok(range) => ranges.valid.push(range),
                Err(error) => {
                    note(&error);
                    ranges.invalid += 1;
                }
            }
        }
        ranges
    }

    fn and(mut self, other: Self) -> Self {
        self.valid.extend(other.valid);
        self.invalid += other.invalid;
        self
    }
}

pub(super) fn read(read: &mut Reader) -> Access {
    let by_node_port = read.annotations.flag(key::DISABLE_FLOATING_IP);
    let mut notes = Vec::new();
    let items = read.object.source_ranges.iter();
    let fields = Ranges::read(items, |error| notes.push(closed(FIELD, error, by_node_port)));
    let annotated = [key::IP_RANGES, key::SOURCE_RANGES].map(|key| {
        let items = read.annotations.raw(key).into_iter().flat_map(|text| text.trim().split(','));
        Ranges::read(items, |error| notes.push(closed(&format!("annotation {key}"), error, by_node_port)))
    });
    read.annotations.warnings.append(&mut notes);
    let annotated = annotated.into_iter().fold(Ranges::default(), Ranges::and);
    let mut service_tags = service_tags(read);
    if !fields.valid.is_empty() && !annotated.valid.is_empty() {
        let key = if read.annotations.raw(key::IP_RANGES).is_some() { key::IP_RANGES } else { key::SOURCE_RANGES };
        read.annotations.refuse(key, "spec.loadBalancerSourceRanges is set too; put all ranges into one of the two");
    }
    if !fields.valid.is_empty() && !service_tags.is_empty() {
        read.annotations.warnings.push(Warning::new(
            WarningReason::ConflictConfiguration,
            format!(
                "annotation {} and spec.loadBalancerSourceRanges are both set: kube-proxy drops traffic of the service tags; \
                 put the ranges into annotation {} instead",
                key::SERVICE_TAGS,
                key::IP_RANGES
            ),
        ));
    }
    let all = fields.and(annotated);
    let has_invalid = all.invalid > 0;
    let ranges = aggregate(all.valid);
    let asks_deny = read.annotations.flag(key::DENY_ALL);
    if asks_deny && ranges.is_empty() && !has_invalid {
        read.annotations.note_no_effect(key::DENY_ALL, "the Service names no source ranges");
    }
    if by_node_port && asks_deny && !ranges.is_empty() {
        deny_at_nodes(read);
    }
    // A list of service tags without a tag is still a list: the world is not on it.
    let names_sources = read.annotations.raw(key::SERVICE_TAGS).is_some() || !ranges.is_empty() || has_invalid;
    if !names_sources && !read.reads_as_internal {
        service_tags.push(INTERNET.to_owned());
    }
    let ports = read
        .object
        .ports
        .iter()
        .map(|port| (port.protocol.in_security_rules(), if by_node_port { port.node_port } else { port.port }));
    Access {
        has_rules: !read.annotations.flag(key::DISABLE_SECURITY_RULES),
        service_tags,
        denial: match asks_deny && !ranges.is_empty() {
            true => Denial::Asked,
            false if has_invalid => Denial::OfInvalidRange,
            false => Denial::None,
        },
        kept: match read.frozen {
            Frozen { security_rules: true, .. } => KeptRules::All,
            Frozen { denials: true, .. } => KeptRules::Denials,
            _ => KeptRules::None,
        },
        ranges,
        ports: ports.collect(),
    }
}

/// A denial of all else at the addresses of nodes would cut off all that runs there. A Service that has it so keeps what it has.
fn deny_at_nodes(read: &mut Reader) {
    read.annotations.reads_shown = true;
    let arrives_at_nodes = read.existing.shown.as_ref().and_then(Shown::floating_ip) == Some(false);
    if arrives_at_nodes {
        read.annotations.warnings.push(Warning::new(
            WarningReason::KeptValue,
            format!(
                "annotation {} denies nothing at the nodes, where traffic arrives since floating IP is off: it would cut off all \
                 that runs there; a denial that is there already stays",
                key::DENY_ALL
            ),
        ));
    } else {
        let allowed = format!(
            "with annotation {} all nodes would be cut off, for without floating IP traffic arrives at their addresses; set one \
             of the two to false",
            key::DENY_ALL
        );
        read.annotations.refuse(key::DISABLE_FLOATING_IP, allowed);
    }
}

/// The service tags. An empty one goes out to Azure from the Go manager, whose writes of the whole security group then fail.
fn service_tags(read: &mut Reader) -> Vec<String> {
    let Some(text) = read.annotations.raw(key::SERVICE_TAGS) else { return vec![] };
    let tags: Vec<String> = read.annotations.comma_list(key::SERVICE_TAGS).into_iter().map(str::to_owned).collect();
    if tags.len() < text.split(',').count() {
        let effect = match tags.is_empty() {
            true => "no service tag is left, and none is allowed; remove the annotation to allow the Internet",
            false => "it is left out",
        };
        read.annotations.warnings.push(Warning::new(
            WarningReason::IgnoredValue,
            format!("annotation {} is {text:?} and has an empty item: {effect}", key::SERVICE_TAGS),
        ));
    }
    tags
}

/// A range that is none is dropped, and all else is denied instead, as the Go manager does.
fn closed(subject: &str, error: &CidrError, by_node_port: bool) -> Warning {
    let effect = match by_node_port {
        false => "all other sources are denied until it changes, unless another Service has the same address",
        // Whatever is denied at a node is denied to all that runs there.
        true => {
            "since floating IP is off, traffic arrives at the nodes, at whose addresses nothing is denied: sources of the \
             virtual network reach the Service until it changes"
        }
    };
    Warning::new(WarningReason::IgnoredValue, format!("{subject}: {error}; it is ignored, and {effect}"))
}
