//! The bodies of machines and NICs, as far as a Node's facts are in them.

use std::net::IpAddr;

use lazuli_model::scale_set::is_instance;
use lazuli_model::{
    ArmId,
    json::{BodyError, at, list, text},
};
use serde_json::Value;

use super::InstanceAddress;

/// A machine, without the addresses of its NICs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// Its id.
    pub id: ArmId,
    /// The name of the computer in it.
    pub computer_name: Option<String>,
    /// The VM size.
    pub size: String,
    /// The region.
    pub location: String,
    /// The number of its availability zone.
    pub zone: Option<String>,
    /// Its fault domain, where the body has an instance view.
    pub fault_domain: Option<u32>,
    /// Whether it belongs to an availability set or a scale set, whose members have fault domains.
    pub is_in_set: bool,
    /// Its NICs, the primary one first.
    pub nics: Vec<ArmId>,
}

impl Machine {
    /// Reads the body of a VM or of an instance of a scale set.
    ///
    /// # Errors
    /// When its id, its size or its region is missing.
    pub fn read(body: &Value) -> Result<Self, BodyError> {
        let missing = |field| BodyError { object: "a machine", field };
        let size = text(body, &["properties", "hardwareProfile", "vmSize"]).or_else(|| text(body, &["sku", "name"]));
        let fault_domain = at(body, &["properties", "instanceView", "platformFaultDomain"]).and_then(Value::as_u64);
        let set = ["availabilitySet", "virtualMachineScaleSet"];
        let id: ArmId = text(body, &["id"]).and_then(|id| id.parse().ok()).ok_or(missing("id"))?;
        let mut nics: Vec<(bool, ArmId)> = list(body, &["properties", "networkProfile", "networkInterfaces"])
            .iter()
            .filter_map(|nic| {
                let is_primary = at(nic, &["properties", "primary"]).and_then(Value::as_bool).unwrap_or(false);
                Some((!is_primary, text(nic, &["id"])?.parse().ok()?))
            })
            .collect();
        nics.sort_by_key(|(is_secondary, _)| *is_secondary);
        Ok(Self {
            is_in_set: is_instance(&id) || set.iter().any(|set| text(body, &["properties", set, "id"]).is_some()),
            id,
            computer_name: text(body, &["properties", "osProfile", "computerName"]).map(str::to_owned),
            size: size.ok_or(missing("properties.hardwareProfile.vmSize"))?.to_owned(),
            location: text(body, &["location"]).ok_or(missing("location"))?.to_owned(),
            zone: list(body, &["zones"]).first().and_then(Value::as_str).map(str::to_owned),
            fault_domain: fault_domain.and_then(|number| u32::try_from(number).ok()),
            nics: nics.into_iter().map(|(_, nic)| nic).collect(),
        })
    }

    /// Whether its zone label needs a fault domain that the body does not say.
    pub fn lacks_fault_domain(&self) -> bool {
        self.zone.is_none() && self.is_in_set && self.fault_domain.is_none()
    }
}

/// An address of a NIC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NicAddress {
    /// The private address.
    pub private: IpAddr,
    /// The public IP of the same configuration.
    pub public: Option<ArmId>,
}

impl NicAddress {
    /// With the address of its public IP.
    pub fn with_public(self, address: impl FnOnce(&ArmId) -> Option<IpAddr>) -> InstanceAddress {
        InstanceAddress { private: self.private, public: self.public.as_ref().and_then(address) }
    }
}

/// The addresses of a NIC, that of its primary configuration first.
pub fn nic_addresses(body: &Value) -> Vec<NicAddress> {
    let configurations = list(body, &["properties", "ipConfigurations"]).iter();
    let mut addresses: Vec<(bool, NicAddress)> = configurations
        .filter_map(|one| {
            let is_primary = at(one, &["properties", "primary"]).and_then(Value::as_bool).unwrap_or(false);
            let private = text(one, &["properties", "privateIPAddress"])?.parse().ok()?;
            let public = text(one, &["properties", "publicIPAddress", "id"]).and_then(|id| id.parse().ok());
            Some((!is_primary, NicAddress { private, public }))
        })
        .collect();
    addresses.sort_by_key(|(is_secondary, _)| *is_secondary);
    addresses.into_iter().map(|(_, address)| address).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use lazuli_model::scale_set::scale_set;

    use super::*;

    const SET: &str = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/set";

    #[test]
    fn machines_of_all_kinds_are_read() {
        let nic = |name: &str, primary: bool| {
            json!({"id": format!("/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/networkInterfaces/{name}"),
                "properties": {"primary": primary}})
        };
        let id = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/v";
        let mut vm = json!({"id": id, "location": "eu", "zones": ["2"], "properties": {
            "hardwareProfile": {"vmSize": "Standard_B2s"}, "osProfile": {"computerName": "node"},
            "networkProfile": {"networkInterfaces": [nic("b", false), nic("a", true)]}}});
        let read = Machine::read(&vm).unwrap();
        assert_eq!((read.zone.as_deref(), read.is_in_set, read.lacks_fault_domain()), (Some("2"), false, false));
        assert_eq!(read.nics[0].name(), "a");
        vm["zones"] = json!([]);
        assert!(!Machine::read(&vm).unwrap().lacks_fault_domain());
        vm["properties"]["availabilitySet"] = json!({"id": id});
        assert!(Machine::read(&vm).unwrap().lacks_fault_domain());
        vm["properties"]["instanceView"] = json!({"platformFaultDomain": 1});
        assert_eq!(Machine::read(&vm).unwrap().fault_domain, Some(1));
        vm["location"] = json!(null);
        assert!(Machine::read(&vm).is_err());

        let instance = json!({"id": format!("{SET}/virtualMachines/3"), "location": "eu", "sku": {"name": "Standard_B2s"},
            "properties": {}});
        let read = Machine::read(&instance).unwrap();
        assert_eq!((read.size.as_str(), read.is_in_set), ("Standard_B2s", true));
        assert_eq!(scale_set(&read.id), Some(SET.parse().unwrap()));
        assert_eq!(scale_set(&id.parse().unwrap()), None);
    }

    #[test]
    fn the_primary_address_of_a_nic_comes_first() {
        let configuration =
            |address: &str, primary: bool| json!({"properties": {"privateIPAddress": address, "primary": primary}});
        let body = json!({"properties": {"ipConfigurations": [
            configuration("fd01::4", false), configuration("10.0.0.4", true), {"properties": {}}]}});
        let addresses = nic_addresses(&body);
        assert_eq!(addresses.iter().map(|one| one.private.to_string()).collect::<Vec<_>>(), ["10.0.0.4", "fd01::4"]);
    }
}
