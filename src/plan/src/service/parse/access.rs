//! Who may reach a Service.

use super::Reader;
use crate::{
    network::{Cidr, CidrError, aggregate},
    service::{Access, Mistake, Warning, WarningReason, annotation::key},
};

/// The service tag of the whole world.
const INTERNET: &str = "Internet";

pub(super) fn read(read: &mut Reader) -> Access {
    let mut has_invalid = false;
    let fields = field_ranges(read, &mut has_invalid);
    let mut annotated = annotation_ranges(read, key::IP_RANGES, &mut has_invalid);
    annotated.extend(annotation_ranges(read, key::SOURCE_RANGES, &mut has_invalid));
    let mut service_tags: Vec<String> =
        read.annotations.comma_list(key::SERVICE_TAGS).into_iter().map(str::to_owned).collect();
    if !fields.is_empty() && !annotated.is_empty() {
        let key = if read.annotations.raw(key::IP_RANGES).is_some() { key::IP_RANGES } else { key::SOURCE_RANGES };
        read.annotations.refuse(key, "spec.loadBalancerSourceRanges is set too; put all ranges into one of the two");
    }
    if !fields.is_empty() && !service_tags.is_empty() {
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
    let ranges = aggregate(fields.into_iter().chain(annotated));
    let asks_deny = read.annotations.flag(key::DENY_ALL);
    if asks_deny && ranges.is_empty() && !has_invalid {
        read.annotations.note_no_effect(key::DENY_ALL, "the Service names no source ranges");
    }
    if service_tags.is_empty() && ranges.is_empty() && !has_invalid && !read.reads_as_internal {
        service_tags.push(INTERNET.to_owned());
    }
    let by_node_port = read.annotations.flag(key::DISABLE_FLOATING_IP);
    let ports = read
        .object
        .ports
        .iter()
        .map(|port| (port.protocol.in_security_rules(), if by_node_port { port.node_port } else { port.port }));
    Access {
        has_rules: !read.annotations.flag(key::DISABLE_SECURITY_RULES),
        service_tags,
        deny_all_else: (asks_deny && !ranges.is_empty()) || has_invalid,
        ranges,
        ports: ports.collect(),
    }
}

fn field_ranges(read: &mut Reader, has_invalid: &mut bool) -> Vec<Cidr> {
    let mut ranges = Vec::new();
    for text in &read.object.source_ranges {
        match text.trim().parse() {
            Ok(range) => ranges.push(range),
            Err(error) => {
                const FIELD: &str = "spec.loadBalancerSourceRanges";
                *has_invalid = true;
                if read.annotations.keeps_old_reading(FIELD) {
                    read.annotations.warnings.push(closed(FIELD, &error));
                } else {
                    read.annotations.mistakes.push(Mistake::field(FIELD, text, allowed(&error)));
                }
            }
        }
    }
    ranges
}

fn annotation_ranges(read: &mut Reader, key: &str, has_invalid: &mut bool) -> Vec<Cidr> {
    let mut ranges = Vec::new();
    for item in read.annotations.comma_list(key) {
        match item.parse() {
            Ok(range) => ranges.push(range),
            Err(error) => {
                *has_invalid = true;
                if read.annotations.keeps_old_reading(key) {
                    read.annotations.warnings.push(closed(&format!("annotation {key}"), &error));
                } else {
                    read.annotations.refuse(key, allowed(&error));
                }
            }
        }
    }
    ranges
}

/// The Go manager drops a range that is none and denies all else instead.
fn closed(subject: &str, error: &CidrError) -> Warning {
    Warning::new(
        WarningReason::IgnoredValue,
        format!("{subject}: {error}; it is ignored, and all other sources are denied until it changes"),
    )
}

fn allowed(error: &CidrError) -> String {
    match error {
        CidrError::Syntax(_) => "allowed are address ranges such as 10.0.0.0/8".to_owned(),
        CidrError::HostBits { masked, .. } => format!("it sets bits behind its length; {masked} is the range"),
    }
}
