//! Reads what the identity may do in the resource groups of the cluster.

use std::collections::BTreeMap;

use lazuli_azure::{Until, network::Network};
use lazuli_config::Config;
use lazuli_csi::server::chain;
use lazuli_diagnosis::{
    Grade,
    roles::{Needed, Permission, Role},
};

use super::cluster::READS;

/// The roles that are needed, and what Azure says of each. `controllers` is how bad it is that the cloud controllers lack
/// theirs.
pub(super) async fn needed(config: &Config, network: &Network, controllers: Grade) -> Vec<Needed> {
    let until = Until::within(READS);
    let mut known: BTreeMap<Place, Shown> = BTreeMap::new();
    let mut all = Vec::new();
    for (role, (subscription, group), purpose, absent) in wanted(config, controllers) {
        let place = (subscription.to_lowercase(), group.to_lowercase());
        let shown = match known.get(&place) {
            Some(shown) => shown.clone(),
            None => {
                let read = network.permissions(&subscription, &group, &until).await;
                let shown: Shown = read.map(|answer| Permission::read(&answer)).map_err(|error| chain(&error));
                known.insert(place, shown.clone());
                shown
            }
        };
        all.push(Needed { role, group, purpose, absent, shown });
    }
    all
}

/// A subscription and a resource group in it.
type Place = (String, String);
/// What Azure says of one, or why it does not.
type Shown = Result<Vec<Permission>, String>;

/// Which roles are needed in which resource groups.
fn wanted(config: &Config, controllers: Grade) -> Vec<(Role, Place, &'static str, Grade)> {
    let (cluster, network) = (&config.cluster, &config.network);
    let own: Place = (cluster.subscription_id.clone(), cluster.resource_group.as_str().to_owned());
    let mut all = vec![
        (Role::disks(), own.clone(), "disks", Grade::Wrong),
        // Not every cluster has shares.
        (Role::files(), own.clone(), "file shares", Grade::Note),
    ];
    if cluster.disable_controllers {
        return all;
    }
    let of_network = |group: &str| (network.subscription_id.clone(), group.to_owned());
    let mut places = vec![
        own,
        of_network(network.vnet_resource_group.as_str()),
        of_network(network.security_group_resource_group.as_str()),
        of_network(config.load_balancing.resource_group.as_str()),
    ];
    if network.route_table.is_some() {
        places.push(of_network(network.route_table_resource_group.as_str()));
    }
    let folded = |(subscription, group): &Place| (subscription.to_lowercase(), group.to_lowercase());
    places.sort_by_key(folded);
    places.dedup_by_key(|place| folded(place));
    all.extend(places.into_iter().map(|place| (Role::cloud_controllers(), place, "Services and routes", controllers)));
    all
}
