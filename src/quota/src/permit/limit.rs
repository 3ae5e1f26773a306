//! One limit of a policy, and what it counts for.

use std::sync::Arc;

use super::{
    policy::{Limit, Owner, Policy},
    scope::Scope,
};

/// A limit: the policy, which of its limits, and what it counts for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LimitKey {
    policy: Policy,
    index: usize,
    counts_for: CountsFor,
}

/// What a limit counts for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum CountsFor {
    Resource(Arc<str>),
    Subscription(Arc<str>),
    /// A subscription and a region. The order of the variants of [`Region`] is the order of the keys.
    Region(Arc<str>, Region),
}

/// A region of Azure.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Region {
    /// One that is not known.
    Unknown,
    /// The one of this name.
    Named(Arc<str>),
    /// The bound behind all of them; no limit has it.
    End,
}

impl LimitKey {
    /// All limits that a request counts against.
    pub(super) fn all(scope: &Scope) -> Vec<Self> {
        let Some(policy) = scope.policy() else { return Vec::new() };
        let key = |(index, limit): (usize, &Limit)| {
            let counts_for = match limit.owner {
                Owner::Resource => CountsFor::Resource(scope.resource.clone()),
                Owner::Subscription => CountsFor::Subscription(scope.subscription.clone()),
                Owner::Region => {
                    let region = scope.region.clone().map_or(Region::Unknown, Region::Named);
                    CountsFor::Region(scope.subscription.clone(), region)
                }
            };
            Self { policy, index, counts_for }
        };
        policy.limits().iter().enumerate().map(key).collect()
    }

    /// The limit as it is published.
    pub(super) fn limit(&self) -> &'static Limit {
        &self.policy.limits()[self.index]
    }

    /// A request that counts against this limit counts against all limits from this one to that: where the region is not
    /// known, to the last of the subscription.
    pub(super) fn last_counting(&self) -> Self {
        match &self.counts_for {
            CountsFor::Region(subscription, Region::Unknown) => {
                Self { counts_for: CountsFor::Region(subscription.clone(), Region::End), ..self.clone() }
            }
            _ => self.clone(),
        }
    }

    /// The limit of the requests whose region is not known; itself where regions do not matter.
    pub(super) fn of_unknown_region(&self) -> Self {
        match &self.counts_for {
            CountsFor::Region(subscription, _) => {
                Self { counts_for: CountsFor::Region(subscription.clone(), Region::Unknown), ..self.clone() }
            }
            _ => self.clone(),
        }
    }
}
