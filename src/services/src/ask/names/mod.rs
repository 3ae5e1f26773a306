//! The names of Azure resources, byte for byte those of the Go cloud-controller-manager: a cluster moves from it and back
//! to it without a write.
//!
//! | object | name |
//! |---|---|
//! | base of a Service | `a` and the uid without `-`, cut to 32 |
//! | load balancer | cluster, availability set or configuration; `-internal` behind it for internal ones |
//! | frontend | base, `-<subnet>` if one is named; cut to 75 |
//! | rule, probe | base, `-<subnet>`, `-<PROTOCOL>-<port>`; the subnet is cut so that 75 suffice |
//! | pool | cluster, `-IPv6` for IPv6; `<namespace>-<name>` for Services with local traffic on several load balancers |
//! | public IP | cluster, `-<base>`, `-<prefix>` if one is named; cut to 75 |
//! | security rule | `k8s-azure-lb_allow_<family>_<md5 of protocol_sources_ports>`, `k8s-azure-lb_deny-all_<family>` |
//! | private link service | `pls-<frontend>` |
//!
//! Where a Service has two families, names of its IPv6 parts end in `-IPv6`. Cutting leaves room for these 5 characters
//! in Azure's 80.

mod md5;

use std::fmt;

use lazuli_model::{ArmId, ServiceKey, address::Family};

use super::SecurityProtocol;
use crate::ask::PortProtocol;

/// The longest name before the suffix of a family: Azure's limit of 80 less `-IPv6`.
const LONGEST: usize = 75;
const IPV6_SUFFIX: &str = "-IPv6";
const INTERNAL_SUFFIX: &str = "-internal";

/// The probe that all Services share where the configuration says so.
pub const SHARED_PROBE: &str = "cluster-service-shared-health-probe";

/// What the names of security rules begin with.
pub const SECURITY_RULE_PREFIX: &str = "k8s-azure-lb";

/// The first part of the names of everything a Service owns.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BaseName(String);

impl BaseName {
    /// The base name of a Service. A uid is letters, digits and dashes; anything else in one is dropped.
    pub fn of(service: &ServiceKey) -> Self {
        let uid = service.uid.chars().filter(char::is_ascii_alphanumeric);
        Self("a".chars().chain(uid).take(32).collect())
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether a frontend, rule or probe of this name belongs to the Service. The case of letters is ignored, and what
    /// follows the base begins with `-`.
    pub fn owns(&self, name: &str) -> bool {
        name.get(..self.0.len()).is_some_and(|start| start.eq_ignore_ascii_case(&self.0))
            && (name.len() == self.0.len() || name.as_bytes()[self.0.len()] == b'-')
    }

    /// Whether a name has the base as one of its parts, which dashes separate. The case of letters is ignored.
    pub fn is_in(&self, name: &str) -> bool {
        name.split('-').any(|part| part.eq_ignore_ascii_case(&self.0))
    }
}

impl fmt::Display for BaseName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The part of a name that looks like the base name of some Service: `a` and 31 hexadecimal digits.
pub fn base_in(name: &str) -> Option<&str> {
    let start = name.get(..32)?;
    let mut characters = start.chars();
    let looks = characters.next().is_some_and(|first| first.eq_ignore_ascii_case(&'a'))
        && characters.all(|character| character.is_ascii_hexdigit())
        && matches!(name.as_bytes().get(32), None | Some(b'-'));
    looks.then_some(start)
}

/// The base name of the Service that a public IP was made for: a part of the name of the public IP.
pub fn base_of_maker(public_ip: &ArmId) -> Option<&str> {
    public_ip.name().split('-').find_map(base_in)
}

/// Whether a text can be the name of a resource of the network provider (source: resource-name-rules).
pub fn is_resource_name(text: &str) -> bool {
    let is_allowed = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '.' | '-');
    (1..=80).contains(&text.len()) && text.chars().all(is_allowed) && !matches!(text, "." | "..")
}

/// Whether a text can be the name of a resource group (source: resource-name-rules).
pub fn is_resource_group_name(text: &str) -> bool {
    let is_allowed = |letter: char| letter.is_alphanumeric() || matches!(letter, '_' | '.' | '-' | '(' | ')');
    (1..=90).contains(&text.chars().count()) && text.chars().all(is_allowed) && !text.ends_with('.')
}

fn cut(name: &str, longest: usize) -> &str {
    &name[..name.floor_char_boundary(longest)]
}

/// The name of one of a Service's parts in this family.
fn in_family(name: String, is_dual_stack: bool, family: Family) -> String {
    if is_dual_stack && family == Family::V6 { name + IPV6_SUFFIX } else { name }
}

/// The load balancer of a side: `stem` is the cluster, an availability set or a configuration.
pub fn load_balancer(stem: &str, is_internal: bool) -> String {
    if is_internal { format!("{stem}{INTERNAL_SUFFIX}") } else { stem.to_owned() }
}

/// The stem of a load balancer's name.
pub fn load_balancer_stem(name: &str) -> &str {
    let split = name.len().saturating_sub(INTERNAL_SUFFIX.len());
    match name.get(split..) {
        Some(end) if end.eq_ignore_ascii_case(INTERNAL_SUFFIX) => &name[..split],
        _ => name,
    }
}

/// A frontend. The subnet is the one that an annotation names.
pub fn frontend(base: &BaseName, subnet: Option<&str>, is_dual_stack: bool, family: Family) -> String {
    let name = match subnet {
        None => base.to_string(),
        Some(subnet) => {
            let whole = format!("{base}-{subnet}");
            let mut name = cut(&whole, LONGEST).to_owned();
            let last = name.chars().next_back();
            if name.len() < whole.len() && !last.is_some_and(|last| last.is_alphabetic() || last == '_') {
                name.pop();
                name.push('_');
            }
            name
        }
    };
    in_family(name, is_dual_stack, family)
}

/// A load-balancing rule, and the probe of the same port.
pub fn rule(
    base: &BaseName,
    subnet: Option<&str>,
    protocol: PortProtocol,
    port: u16,
    is_dual_stack: bool,
    family: Family,
) -> String {
    let protocol = protocol.as_str();
    let name = match subnet {
        None => format!("{base}-{protocol}-{port}"),
        Some(subnet) => {
            let without = base.as_str().len() + 1 + protocol.len() + 1 + port.to_string().len();
            let subnet = cut(subnet, LONGEST - without - 1);
            format!("{base}-{subnet}-{protocol}-{port}")
        }
    };
    in_family(name, is_dual_stack, family)
}

/// The pool of all nodes.
pub fn pool(cluster: &str, family: Family) -> String {
    match family {
        Family::V4 => cluster.to_owned(),
        Family::V6 => format!("{cluster}{IPV6_SUFFIX}"),
    }
}

/// The pool of a Service with `externalTrafficPolicy: Local` on one of several load balancers.
pub fn local_pool(service: &ServiceKey, family: Family) -> String {
    let name = format!("{}-{}", service.namespace, service.name).to_lowercase();
    match family {
        Family::V4 => name,
        Family::V6 => name + "-ipv6",
    }
}

/// A public IP that this provider makes; `prefix` is the last segment of the id of the prefix it is taken from.
pub fn public_ip(cluster: &str, base: &BaseName, prefix: Option<&str>, is_dual_stack: bool, family: Family) -> String {
    let whole = match prefix {
        None => format!("{cluster}-{base}"),
        Some(prefix) => format!("{cluster}-{base}-{prefix}"),
    };
    in_family(cut(&whole, LONGEST).to_owned(), is_dual_stack, family)
}

/// The private link service in front of a frontend.
pub fn private_link(frontend: &str) -> String {
    format!("pls-{frontend}")
}

/// The security rule that allows `sources` to `ports`, both as Azure spells them.
pub fn allow_rule(protocol: SecurityProtocol, family: Family, sources: &[String], ports: &[u16]) -> String {
    let mut sources = sources.to_vec();
    sources.sort_unstable();
    let ports = port_texts(ports);
    let text = format!("{}_{}_{}", protocol.as_str(), sources.join(","), ports.join(","));
    format!("{SECURITY_RULE_PREFIX}_allow_{family}_{}", md5::hex(text.as_bytes()))
}

/// The security rule that denies everything else to destinations of a family.
pub fn deny_all_rule(family: Family) -> String {
    format!("{SECURITY_RULE_PREFIX}_deny-all_{family}")
}

/// Ports as texts, in the order of texts, as the Go manager sorts them: `443` before `80`.
pub fn port_texts(ports: &[u16]) -> Vec<String> {
    let mut texts: Vec<String> = ports.iter().map(u16::to_string).collect();
    texts.sort_unstable();
    texts
}

/// A security rule by the name that managers before 1.30 gave it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OldSecurityRule<'a> {
    /// `<base>-<PROTOCOL>-<port>-<source>`: one Service's own.
    Own {
        /// The base name of the Service.
        base: &'a str,
    },
    /// `shared-<PROTOCOL>-<port>-<source>`: several Services', each with destinations of its own.
    Shared,
}

/// Recognises names of security rules from before `k8s-azure-lb_…`.
pub fn old_security_rule(name: &str) -> Option<OldSecurityRule<'_>> {
    let (kind, rest) = if let Some(rest) = name.strip_prefix("shared-") {
        (OldSecurityRule::Shared, rest)
    } else {
        let base = base_in(name)?;
        (OldSecurityRule::Own { base }, name.get(base.len() + 1..)?)
    };
    // An internal Service with a subnet has it between base and protocol; subnets may hold dashes.
    let parts: Vec<&str> = rest.split('-').collect();
    let is_old = parts
        .windows(3)
        .any(|part| matches!(part[0], "TCP" | "UDP" | "SCTP") && part[1].parse::<u16>().is_ok() && !part[2].is_empty());
    is_old.then_some(kind)
}

#[cfg(test)]
mod tests;
