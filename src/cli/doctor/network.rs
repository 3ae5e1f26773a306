//! Reads the network resources that the cloud configuration names.

use lazuli_azure::{Until, network::Network};
use lazuli_config::Config;
use lazuli_csi::server::chain;
use lazuli_diagnosis::named::{Named, Shown};
use lazuli_model::{ArmId, ArmIdError};
use lazuli_quota::permit::Priority;
use serde_json::Value;

use super::cluster::READS;

/// What the configuration names, and what Azure says of each.
pub(super) async fn named(config: &Config, network: &Network) -> Vec<Named> {
    let names = &config.network;
    let until = Until::within(READS);
    let read = |resource_type: &'static str, group: &str, name: &str| {
        let id = ArmId::resource(&names.subscription_id, group, resource_type, name);
        shown(network, id, &until)
    };
    let mut all = Vec::new();
    if let Some(name) = &names.vnet {
        let group = names.vnet_resource_group.as_str();
        let (vnet, body) = read("Microsoft.Network/virtualNetworks", group, name).await;
        let resource = format!("virtual network {name} in resource group {group}");
        if let Some(subnet) = names.subnet.as_deref().filter(|_| body.is_some()) {
            let resource = format!("subnet {subnet} of virtual network {name}");
            let shown = if has_subnet(&body.unwrap_or_default(), subnet) { Shown::There } else { Shown::Absent };
            all.push(Named { key: "subnetName", resource, shown });
        }
        all.push(Named { key: "vnetName", resource, shown: vnet });
    }
    if let Some(name) = &names.security_group {
        let group = names.security_group_resource_group.as_str();
        let (shown, _) = read("Microsoft.Network/networkSecurityGroups", group, name).await;
        let resource = format!("security group {name} in resource group {group}");
        all.push(Named { key: "securityGroupName", resource, shown });
    }
    all
}

/// What Azure says of a resource, and the resource where it exists.
async fn shown(network: &Network, id: Result<ArmId, ArmIdError>, until: &Until) -> (Shown, Option<Value>) {
    let id = match id {
        Ok(id) => id,
        Err(error) => return (Shown::Unread(error.to_string()), None),
    };
    match network.read_alone(&id, Priority::Read, until).await {
        Ok(body) => (Shown::There, Some(body)),
        Err(error) if error.fault.says_that_it_is_missing() => (Shown::Absent, None),
        Err(error) => (Shown::Unread(chain(&error)), None),
    }
}

/// Whether a virtual network has a subnet. Azure compares names in any letter case.
fn has_subnet(network: &Value, name: &str) -> bool {
    let subnets = network["properties"]["subnets"].as_array();
    subnets.into_iter().flatten().any(|one| one["name"].as_str().is_some_and(|there| there.eq_ignore_ascii_case(name)))
}
