//! The tags by which a public IP knows its cluster and its Services.

use std::collections::BTreeMap;

/// The Services that use a public IP: `namespace/name`, separated by commas.
pub const SERVICES: &str = "k8s-azure-service";
/// The same, as older managers wrote it.
pub const OLD_SERVICES: &str = "service";
/// The cluster that made a public IP.
pub const CLUSTER: &str = "k8s-azure-cluster-name";
/// The same, as older managers wrote it.
pub const OLD_CLUSTER: &str = "kubernetes-cluster-name";
/// The Service whose annotation set the DNS label.
pub const DNS_OWNER: &str = "k8s-azure-dns-label-service";
/// The same, as older managers wrote it.
pub const OLD_DNS_OWNER: &str = "kubernetes-dns-label-service";

/// The Services that have given up a public IP whose frontend stays as the last of its load balancer. It counts while the
/// tag of Services says the same.
pub const RELEASED: &str = "lazuli-released-service";

/// Azure's limit for the value of a tag (source: tag-resources).
pub const LONGEST_VALUE: usize = 256;

/// The tags that name the cluster and the Services of a public IP.
pub const OWNERSHIP: [&str; 7] = [SERVICES, CLUSTER, DNS_OWNER, OLD_SERVICES, OLD_CLUSTER, OLD_DNS_OWNER, RELEASED];
/// What the names of this provider's own tags begin with.
const OWN_PREFIX: &str = "lazuli-";

/// Whether a tag says whose a public IP is, so that no annotation may set it. Azure ignores the case of names.
pub fn marks_ownership(name: &str) -> bool {
    OWNERSHIP.iter().any(|own| own.eq_ignore_ascii_case(name)) || name.to_lowercase().starts_with(OWN_PREFIX)
}

type Tags = BTreeMap<String, String>;

/// The value of a tag, or of its older name. Azure ignores the case of names.
fn either<'a>(tags: &'a Tags, name: &str, old: &str) -> Option<&'a str> {
    let find =
        |name: &str| tags.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str());
    find(name).or_else(|| find(old))
}

/// The text of the tag that lists Services; empty when there is none.
pub fn services_text(tags: &Tags) -> &str {
    either(tags, SERVICES, OLD_SERVICES).unwrap_or_default()
}

/// The Services in the tag, in its order. None means that the public IP is the user's.
pub fn services(tags: &Tags) -> Vec<&str> {
    services_text(tags).split(',').map(str::trim).filter(|name| !name.is_empty()).collect()
}

/// Whether all Services in the tag have given it up.
pub fn is_released(tags: &Tags) -> bool {
    let services = services_text(tags);
    !services.is_empty()
        && either(tags, RELEASED, RELEASED).is_some_and(|released| released.eq_ignore_ascii_case(services))
}

/// The cluster that made it.
pub fn cluster(tags: &Tags) -> Option<&str> {
    either(tags, CLUSTER, OLD_CLUSTER).filter(|name| !name.is_empty())
}

/// The Service that owns the DNS label.
pub fn dns_owner(tags: &Tags) -> Option<&str> {
    either(tags, DNS_OWNER, OLD_DNS_OWNER).filter(|name| !name.is_empty())
}
