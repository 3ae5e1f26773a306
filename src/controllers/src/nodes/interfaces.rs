//! The lists of network interfaces by which the addresses of initialised Nodes are kept.
//!
//! Each is read once for all its Nodes, every `--node-status-update-frequency`, by the process that leads. What a list means
//! for a Node is decided in `lazuli_nodes::cloud_node::addresses` and in the step of the Node.

use std::{collections::BTreeMap, net::IpAddr};

use lazuli_azure::{Until, network::NetworkType};
use lazuli_model::{ArmId, fault::Fault};
use lazuli_nodes::cloud_node::{
    addresses::{InterfaceList, Listed, PublicAddresses, lists},
    step::Event,
};
use lazuli_services::network::public_ip::PublicIp;
use serde_json::Value;
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tracing::{debug, warn};

use super::{
    known::Known,
    machine::{READ, fault},
};

/// Reads the lists over and over.
pub(super) async fn follow(known: &Known) {
    let every = known.options.address_refresh;
    if !known.options.controllers.node || every.is_zero() {
        return std::future::pending().await;
    }
    let mut ticks = interval_at(Instant::now() + every, every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if known.shared().lease.until.is_some() {
            refresh(known).await;
        }
    }
}

async fn refresh(known: &Known) {
    let lists = known.told().nodes.iter().map(|nodes| lists(nodes.values())).next().unwrap_or_default();
    for (list, nodes) in lists {
        let listed = match read(known, &list).await {
            Ok(listed) => listed,
            // Older roles may not list the interfaces of a scale set. Then each machine is asked for its own.
            Err(Fault::Forbidden) if matches!(list, InterfaceList::ScaleSet(_)) => {
                warn!(
                    %list,
                    "the network interfaces of the scale set may not be listed, so they are read one by one; give the \
                     identity the action Microsoft.Compute/virtualMachineScaleSets/networkInterfaces/read"
                );
                Listed::default()
            }
            Err(fault) => {
                debug!(%list, ?fault, "the network interfaces cannot be listed; it is tried again");
                continue;
            }
        };
        let machines = nodes.iter().map(|(_, machine)| machine);
        let public = if listed.has_public(machines) { public_addresses(known, &list).await } else { BTreeMap::new() };
        for (node, machine) in nodes {
            known.to_node(&node, Event::Listed(listed.addresses(&machine, &public)));
        }
    }
}

async fn read(known: &Known, list: &InterfaceList) -> Result<Listed, Fault> {
    let until = Until::within(READ);
    let interfaces = match list {
        InterfaceList::Group { subscription, resource_group } => {
            known.network.list(NetworkType::Interface, subscription, resource_group, &until).await
        }
        InterfaceList::ScaleSet(set) => known.network.list_instance_interfaces(set, &until).await,
    };
    let mut listed = Listed::default();
    interfaces.map_err(fault)?.iter().for_each(|interface| listed.add(interface));
    Ok(listed)
}

/// The public IPs of a resource group. Those of a scale set's instances, and those that cannot be listed, are read with
/// their machines.
async fn public_addresses(known: &Known, list: &InterfaceList) -> PublicAddresses {
    let InterfaceList::Group { subscription, resource_group } = list else { return BTreeMap::new() };
    let until = Until::within(READ);
    let listed = known.network.list(NetworkType::PublicIp, subscription, resource_group, &until).await;
    listed.map_err(fault).unwrap_or_default().iter().filter_map(public_address).collect()
}

fn public_address(body: &Value) -> Option<(ArmId, Option<IpAddr>)> {
    let id: ArmId = body.get("id")?.as_str()?.parse().ok()?;
    let read = PublicIp::read(&id, body).ok()?;
    Some((id, read.address))
}
