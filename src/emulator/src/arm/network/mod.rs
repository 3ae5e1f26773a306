//! The network provider.
//!
//! Recorded: PUT answers 201 or 200 with the asynchronous header, except for network interfaces, whose PUT is
//! synchronous; deletes answer 202 with both headers; etags are weak GUIDs on the resource and on every child, and
//! change with each write; the `ETag` header comes on GET only. Documented: PATCH changes tags, at once.

pub(crate) mod backends;
pub(crate) mod balancing;
pub(crate) mod base;
pub(crate) mod interfaces;
pub(crate) mod load_balancers;
pub(crate) mod private_addresses;
pub(crate) mod private_dns;
pub(crate) mod private_links;
pub(crate) mod public_ip_addresses;
pub(crate) mod public_ip_prefixes;
pub(crate) mod route_tables;
pub(crate) mod security_groups;
pub(crate) mod virtual_networks;

use super::descriptor::{Extra, Handler, Provider};
use super::engine::quotas;
use super::polling;
use super::protocol::Scope;
use crate::throttle::READ_NETWORK;

pub(crate) static PROVIDER: Provider = Provider {
    namespace: "Microsoft.Network",
    types: &[
        &interfaces::NETWORK_INTERFACE,
        &virtual_networks::VIRTUAL_NETWORK,
        &public_ip_addresses::PUBLIC_IP_ADDRESS,
        &public_ip_prefixes::PUBLIC_IP_PREFIX,
        &load_balancers::LOAD_BALANCER,
        &security_groups::SECURITY_GROUP,
        &route_tables::ROUTE_TABLE,
        &private_links::PRIVATE_LINK_SERVICE,
        &private_links::PRIVATE_ENDPOINT,
        &private_dns::ZONE_GROUP,
        &private_dns::PRIVATE_ZONE,
        &private_dns::ZONE_LINK,
    ],
    other_types: &[],
    routes: &[
        operation("locations/*/operations/*", polling::network),
        operation("locations/*/operationresults/*", polling::network_result),
        Extra { operation: "usages.list", ..operation("locations/*/usages", quotas::usages) },
    ],
};

const fn operation(path: &'static str, handler: Handler) -> Extra {
    let limit = Some(READ_NETWORK);
    let operation = "operations.get";
    Extra { method: "GET", scope: Scope::Subscription, path, operation, handler, limit, since: None, headers: &[] }
}
