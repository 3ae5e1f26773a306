//! The buckets that a request counts against: the front door's, a provider's policy, one resource's.

use std::sync::Arc;

use super::policy::{Limit, Policy};

/// The kinds of request that are counted apart: three by the front door, and those that do not go through it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// GET and HEAD: reads, lists and polls of operations.
    Reads,
    /// PUT, PATCH and POST.
    Writes,
    /// DELETE.
    Deletes,
    /// Requests of any verb to the data service of a storage account. The account counts them, and tells nothing of what
    /// remains.
    Data,
}

impl Direction {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Reads, Self::Writes, Self::Deletes, Self::Data];

    /// The word of Azure's headers, where they have one.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Reads => "reads",
            Self::Writes => "writes",
            Self::Deletes => "deletes",
            Self::Data => "data",
        }
    }
}

/// Requests that a provider counts in one bucket.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Class {
    /// Those of a published throttle policy.
    Policy(Policy),
    /// Those of one direction and resource type, where no policy is published.
    Type(Direction, Arc<str>),
}

/// The buckets that a request counts against.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Scope {
    pub(super) subscription: Arc<str>,
    pub(super) direction: Direction,
    pub(super) class: Class,
    /// The lower-case type of the resource, with its provider.
    pub(super) resource_type: Arc<str>,
    /// The lower-case path of the resource, without an action.
    pub(super) resource: Arc<str>,
    /// The region that counts the request, where its policy counts by region and the region is known.
    pub(super) region: Option<Arc<str>>,
}

impl Scope {
    /// The scope of a request to a path, in any letter case. `None` outside of subscriptions: those requests are not
    /// counted.
    pub fn of(direction: Direction, path: &str) -> Option<Self> {
        let path = path.to_ascii_lowercase();
        let subscription = path.strip_prefix("/subscriptions/")?.split('/').next()?;
        if subscription.is_empty() {
            return None;
        }
        let (provider, mut segments) = match path.rsplit_once("/providers/") {
            Some((_, rest)) => {
                let mut segments = rest.split('/').filter(|segment| !segment.is_empty());
                (segments.next().unwrap_or_default(), segments.collect())
            }
            None => ("", Vec::new()),
        };
        let class = match Policy::of(direction, provider, &segments) {
            Some(policy) => Class::Policy(policy),
            None => {
                let types = segments.iter().step_by(2).fold(provider.to_owned(), |all, one| all + "/" + one);
                Class::Type(direction, types.into())
            }
        };
        let last = segments.last().copied().unwrap_or_default();
        let names_an_action = segments.len() >= 3
            && segments.len() % 2 == 1
            && (direction == Direction::Writes || last == "instanceview");
        let resource = if names_an_action {
            segments.pop();
            path.strip_suffix(last).unwrap_or(&path).trim_end_matches('/')
        } else {
            path.trim_end_matches('/')
        };
        let resource_type = segments.iter().step_by(2).fold(provider.to_owned(), |all, one| all + "/" + one).into();
        let scope = Self {
            subscription: subscription.into(),
            direction,
            class,
            resource_type,
            resource: resource.into(),
            region: None,
        };
        Some(match segments.as_slice() {
            ["locations", region, ..] => scope.in_region(region),
            _ => scope,
        })
    }

    /// The scope of a request to the data service of a storage account at this host, such as
    /// `account.blob.core.windows.net`. Each account has a queue of its own, with
    /// [`MOST_IN_FLIGHT_OF_ACCOUNT`](super::MOST_IN_FLIGHT_OF_ACCOUNT) requests in flight at most.
    pub fn of_data(host: &str) -> Self {
        let host: Arc<str> = host.to_ascii_lowercase().into();
        let direction = Direction::Data;
        Self {
            subscription: host.clone(),
            direction,
            class: Class::Type(direction, host.clone()),
            resource_type: Arc::default(),
            resource: host,
            region: None,
        }
    }

    /// The same for a resource of this region, such as `westeurope` or `West Europe`. It matters only where the provider
    /// counts by region. There, a request whose region is not known counts in every region of the subscription.
    #[must_use]
    pub fn in_region(mut self, region: &str) -> Self {
        // Both spellings name one region.
        let region: String = region.chars().filter(|c| *c != ' ').map(|c| c.to_ascii_lowercase()).collect();
        if !region.is_empty() && self.policy().is_some_and(Policy::is_regional) {
            self.region = Some(region.into());
        }
        self
    }

    /// The front door's bucket of the request.
    pub fn direction(&self) -> Direction {
        self.direction
    }

    /// Whether a request of the other scope counts against the same limits, but for those of one resource.
    pub(super) fn shares_limits_with(&self, other: &Self) -> bool {
        (&self.class, &self.region, &self.subscription) == (&other.class, &other.region, &other.subscription)
    }

    /// Whether the provider counts the request in windows of time.
    pub fn has_windows(&self) -> bool {
        self.policy().is_some_and(|policy| policy.limits().iter().any(Limit::is_window))
    }

    pub(super) fn policy(&self) -> Option<Policy> {
        match self.class {
            Class::Policy(policy) => Some(policy),
            Class::Type(..) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VM: &str = "/subscriptions/S/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/v";

    #[test]
    fn an_action_counts_as_a_write_of_its_resource() {
        let put = Scope::of(Direction::Writes, VM).unwrap();
        let action = format!("{VM}/attachDetachDataDisks").to_uppercase().replace("/SUBSCRIPTIONS", "/subscriptions");
        assert_eq!(Scope::of(Direction::Writes, &action).unwrap(), put);
        assert_eq!(Scope::of(Direction::Reads, &format!("{VM}/instanceView")), Scope::of(Direction::Reads, VM));
        assert_ne!(Scope::of(Direction::Deletes, VM).unwrap(), put);
    }

    #[test]
    fn a_region_matters_only_where_the_provider_counts_by_it() {
        let vm = Scope::of(Direction::Writes, VM).unwrap();
        assert_eq!(vm.clone().in_region("westeurope"), vm);
        let account = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Storage/storageAccounts/a";
        let account = Scope::of(Direction::Writes, account).unwrap();
        assert_eq!(account.clone().in_region("West Europe"), account.clone().in_region("westeurope"));
        assert_ne!(account.clone().in_region("westeurope"), account);
        assert!(account.has_windows() && !vm.has_windows());
        assert_eq!(account.clone().in_region(""), account);
        let usages = "/subscriptions/s/providers/Microsoft.Storage/locations/westeurope/usages";
        assert_eq!(Scope::of(Direction::Reads, usages).unwrap().region.as_deref(), Some("westeurope"));
    }

    #[test]
    fn outside_of_subscriptions_nothing_is_counted() {
        for path in ["/metadata/endpoints", "/page", "/subscriptions/", "/subscriptions", ""] {
            assert_eq!(Scope::of(Direction::Reads, path), None, "{path}");
        }
        assert!(Scope::of(Direction::Reads, "/subscriptions/s").is_some());
    }

    #[test]
    fn a_resource_without_a_policy_is_of_its_type() {
        let disk = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/d";
        let scope = Scope::of(Direction::Reads, disk).unwrap();
        assert_eq!(scope.class, Class::Type(Direction::Reads, "microsoft.compute/disks".into()));
        assert_eq!(&*scope.resource, disk.to_ascii_lowercase());
    }
}
