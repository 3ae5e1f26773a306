//! The resource manager's own types: subscriptions, resource groups, and lists over all types.

pub(crate) mod all;
pub(crate) mod deployments;
pub(crate) mod filter;
pub(crate) mod groups;
pub(crate) mod providers;
pub(crate) mod template;

use super::descriptor::Provider;

pub(crate) static PROVIDER: Provider = Provider {
    namespace: "Microsoft.Resources",
    types: &[],
    other_types: &[("resourceGroups", &["2021-04-01"]), ("deployments", &["2025-04-01", "2024-11-01", "2021-04-01"])],
    routes: &deployments::ROUTES,
};
