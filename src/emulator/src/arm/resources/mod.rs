//! The resource manager's own types: subscriptions, resource groups, and lists over all types.

pub(crate) mod all;
pub(crate) mod filter;
pub(crate) mod groups;
pub(crate) mod providers;

use super::descriptor::Provider;

pub(crate) static PROVIDER: Provider = Provider {
    namespace: "Microsoft.Resources",
    types: &[],
    other_types: &[("resourceGroups", &["2021-04-01"])],
    routes: &[],
};
