//! What exists at the start: a scenario made into resources, without operations or latencies.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::arm::compute::{
    attachments, availability_sets::AVAILABILITY_SET, disk_controller, disk_rules, scale_sets::SCALE_SET,
};
use crate::arm::descriptor::{Descriptor, Draft, Origin, Verb};
use crate::arm::engine::document;
use crate::arm::kinds;
use crate::arm::network::{
    interfaces::NETWORK_INTERFACE, private_addresses, route_tables::ROUTE_TABLE, security_groups::SECURITY_GROUP,
    virtual_networks::VIRTUAL_NETWORK,
};
use crate::arm::resources::groups;
use crate::derived::guid_of;
use crate::fault::Fault;
use crate::options::Switches;
use crate::path;
use crate::scenario::{Machine as Planned, Orchestration, Placement, ScaleSet, Scenario, UpgradePolicy};
use crate::sizes;
use crate::state::State;
use crate::store::{Machine, Resource};

const START: Duration = Duration::ZERO;

fn group_id(scenario: &Scenario, group: &str) -> String {
    format!("/subscriptions/{}/resourceGroups/{group}", scenario.subscription_of(group))
}

fn within(scenario: &Scenario, group: &str, kind: &str, name: &str) -> String {
    format!("{}/providers/{kind}/{name}", group_id(scenario, group))
}

/// The id of a subnet of the scenario.
fn subnet_id(scenario: &Scenario, network: &str, subnet: &str) -> String {
    let home = scenario.virtual_networks.iter().find(|own| own.name == network);
    let home = home.and_then(|own| own.resource_group.as_deref()).unwrap_or(scenario.resource_group());
    format!("{}/subnets/{subnet}", within(scenario, home, kinds::NETWORK, network))
}

/// What ARM says of the disk of an operating system that is on a local NVMe disk.
fn local_disk() -> Value {
    json!({"option": "Local", "placement": "NvmeDisk"})
}

fn tags(tags: &BTreeMap<String, String>) -> Option<Value> {
    (!tags.is_empty()).then(|| json!(tags))
}

impl State {
    /// Puts a scenario's resources in place. `stamp` is the start as the resources show it.
    pub(crate) fn seed(&mut self, scenario: &Scenario, stamp: &str) {
        for subscription in &scenario.subscriptions {
            self.store.add_subscription(subscription);
        }
        for group in &scenario.resource_groups {
            let id = group_id(scenario, &group.name);
            let location = path::location(group.location.as_deref().unwrap_or(&scenario.location));
            let doc = groups::document(&id, &group.name, &location, &json!({}));
            self.store.insert(&id, Resource::new(doc), START);
        }
        let location = path::location(&scenario.location);
        for planned in &scenario.virtual_networks {
            let group = planned.resource_group.as_deref().unwrap_or(scenario.resource_group());
            let id = within(scenario, group, kinds::NETWORK, &planned.name);
            let subnets: Vec<Value> = planned
                .subnets
                .iter()
                .map(|s| json!({"name": s.name, "properties": {"addressPrefix": s.prefix}}))
                .collect();
            let body = json!({"properties": {
                "addressSpace": {"addressPrefixes": planned.prefixes},
                "subnets": subnets,
            }});
            self.seed_resource(&VIRTUAL_NETWORK, &id, &location, &body, stamp);
        }
        for planned in &scenario.security_groups {
            let group = planned.resource_group.as_deref().unwrap_or(scenario.resource_group());
            let id = within(scenario, group, kinds::SECURITY_GROUP, &planned.name);
            self.seed_resource(&SECURITY_GROUP, &id, &location, &json!({}), stamp);
        }
        for planned in &scenario.route_tables {
            let group = planned.resource_group.as_deref().unwrap_or(scenario.resource_group());
            let id = within(scenario, group, kinds::ROUTE_TABLE, &planned.name);
            self.seed_resource(&ROUTE_TABLE, &id, &location, &json!({}), stamp);
        }
        for planned in &scenario.availability_sets {
            let group = planned.resource_group.as_deref().unwrap_or(scenario.resource_group());
            let id = within(scenario, group, kinds::SET, &planned.name);
            let body = json!({
                "properties": {
                    "platformFaultDomainCount": planned.fault_domains,
                    "platformUpdateDomainCount": planned.update_domains,
                },
                "sku": {"name": "Aligned"},
            });
            self.seed_resource(&AVAILABILITY_SET, &id, &location, &body, stamp);
        }
        let mut given_out = BTreeMap::new();
        for machine in scenario.machines() {
            self.seed_machine(scenario, &machine, &location, stamp, &mut given_out);
        }
        for planned in &scenario.scale_sets {
            self.seed_set(scenario, planned, &location, stamp);
        }
        for planned in &scenario.disks {
            let group = planned.resource_group.as_deref().unwrap_or(scenario.resource_group());
            let id = within(scenario, group, kinds::DISK, &planned.name);
            let mut doc =
                disk_rules::existing(&id, &location, &planned.sku, planned.size_gib, planned.zone.as_deref(), stamp);
            if let Some(tags) = tags(&planned.tags) {
                doc["tags"] = tags;
            }
            self.store.insert(&id, Resource::new(doc), START);
            if let Some(attach) = &planned.attach_to {
                let vm = scenario
                    .machines()
                    .into_iter()
                    .find(|machine| machine.name == attach.vm)
                    .map(|machine| within(scenario, &machine.resource_group, kinds::MACHINE, &machine.name));
                if let Some(vm) = vm {
                    self.seed_attachment(&vm, attach.lun, &id);
                }
            }
        }
    }

    /// Puts a resource in place that its descriptor completes; one that cannot be completed is left out.
    fn seed_resource(&mut self, descriptor: &Descriptor, id: &str, location: &str, body: &Value, stamp: &str) {
        let etag = document::weak(&guid_of(&format!("{id}/etag")));
        if let Ok(doc) = self.completed(descriptor, id, location, body, stamp, &etag) {
            self.store.insert(id, Resource::new(doc), START);
        }
    }

    /// The document that a descriptor makes of a body.
    fn completed(
        &self,
        descriptor: &Descriptor,
        id: &str,
        location: &str,
        body: &Value,
        stamp: &str,
        etag: &str,
    ) -> Result<Value, Fault> {
        let guid = guid_of(id);
        let draft = Draft {
            state: self,
            id,
            name: path::name_of(id),
            location,
            body,
            old: None,
            guid: &guid,
            stamp,
            // Nothing in a scenario depends on one.
            switches: &Switches::default(),
            origin: Origin::Scenario,
            verb: Verb::Put,
        };
        document::complete(descriptor, &draft, Some(etag), "Succeeded")
    }

    fn seed_set(&mut self, scenario: &Scenario, planned: &ScaleSet, location: &str, stamp: &str) {
        let group = planned.resource_group.as_deref().unwrap_or(scenario.resource_group());
        let id = within(scenario, group, kinds::SCALE_SET, &planned.name);
        let Some((net, subnet)) = scenario.subnet_of(planned.subnet.as_deref()) else {
            return;
        };
        let users: Vec<String> = scenario.identities.iter().map(|identity| scenario.identity_id(identity)).collect();
        let size = sizes::find(&planned.size).map_or(planned.size.as_str(), |size| size.name);
        let mut body = json!({
            "location": location,
            "sku": {"name": size, "capacity": planned.count},
            "identity": identity(scenario, true, &users, &id),
            "properties": {
                "orchestrationMode": match planned.orchestration {
                    Orchestration::Uniform => "Uniform",
                    Orchestration::Flexible => "Flexible",
                },
                "upgradePolicy": {"mode": match planned.upgrade_policy {
                    UpgradePolicy::Manual => "Manual",
                    UpgradePolicy::Automatic => "Automatic",
                    UpgradePolicy::Rolling => "Rolling",
                }},
                "singlePlacementGroup": false,
                "overprovision": false,
                "virtualMachineProfile": {
                    "osProfile": {
                        "computerNamePrefix": planned.computer_name_prefix.as_ref().unwrap_or(&planned.name),
                        "adminUsername": "azureuser",
                        "linuxConfiguration": {"disablePasswordAuthentication": true, "provisionVMAgent": true},
                    },
                    "storageProfile": {
                        "imageReference": {
                            "publisher": "Canonical", "offer": "ubuntu-24_04-lts", "sku": "server", "version": "latest",
                        },
                        "osDisk": {
                            "createOption": "FromImage", "osType": "Linux", "caching": "ReadWrite",
                            "diskSizeGB": planned.os_disk.size_gib,
                            "managedDisk": {"storageAccountType": planned.os_disk.sku},
                        },
                    },
                    "networkProfile": {"networkInterfaceConfigurations": [{
                        "name": format!("{}-nic", planned.name),
                        "properties": {"primary": true, "enableIPForwarding": true, "ipConfigurations": [{
                            "name": "ipconfig1",
                            "properties": {"primary": true, "subnet": {"id": subnet_id(scenario, &net, &subnet)}},
                        }]},
                    }]},
                },
            },
        });
        if planned.os_disk.placement == Some(Placement::NvmeDisk) {
            body["properties"]["virtualMachineProfile"]["storageProfile"]["osDisk"]["diffDiskSettings"] = local_disk();
        }
        if !planned.zones.is_empty() {
            body["zones"] = json!(planned.zones);
        }
        if let Some(domains) = planned.fault_domains {
            body["properties"]["platformFaultDomainCount"] = json!(domains);
        }
        if let Some(tags) = tags(&planned.tags) {
            body["tags"] = tags;
        }
        if let Ok(set) = self.completed(&SCALE_SET, &id, location, &body, stamp, "\"1\"") {
            self.seed_scale_set(set, stamp);
        }
    }

    fn seed_attachment(&mut self, vm: &str, lun: u8, disk: &str) {
        let Some(doc) = self.store.disk(disk) else {
            return;
        };
        let element = json!({
            "lun": lun,
            "name": doc["name"],
            "createOption": "Attach",
            "caching": "None",
            "managedDisk": {"storageAccountType": doc["sku"]["name"], "id": doc["id"]},
            "deleteOption": "Detach",
            "diskSizeGB": doc["properties"]["diskSizeGB"],
            "toBeDetached": false,
        });
        self.store.change(vm, START, |resource| {
            if let Some(elements) =
                resource.doc.pointer_mut("/properties/storageProfile/dataDisks").and_then(Value::as_array_mut)
            {
                elements.push(element);
            }
        });
        attachments::take(self, vm, lun, disk, START);
    }

    /// `given_out`: by subnet, how many addresses the machines before have taken.
    fn seed_machine(
        &mut self,
        scenario: &Scenario,
        planned: &Planned,
        location: &str,
        stamp: &str,
        given_out: &mut BTreeMap<String, u32>,
    ) {
        let group = &planned.resource_group;
        let name = &planned.name;
        let id = within(scenario, group, kinds::MACHINE, name);
        let nic_id = within(scenario, &planned.nic_resource_group, kinds::NIC, &format!("{name}-nic"));
        if let Some((net, subnet)) = &planned.subnet {
            let subnet_id = subnet_id(scenario, net, subnet);
            let before = given_out.entry(subnet_id.clone()).or_default();
            if let Some(address) = private_addresses::next_address(self, &subnet_id, *before) {
                *before += 1;
                let body = json!({"properties": {"ipConfigurations": [{
                    "name": "ipconfig1",
                    "properties": {"subnet": {"id": subnet_id}, "primary": true, "privateIPAddress": address},
                }]}});
                self.seed_resource(&NETWORK_INTERFACE, &nic_id, location, &body, stamp);
                // The card's address follows from the machine's name, so that it is the same each time.
                let mac = guid_of(&nic_id).replace('-', "").to_ascii_uppercase();
                self.store.change(&nic_id, START, |resource| {
                    let properties = &mut resource.doc["properties"];
                    properties["virtualMachine"] = json!({ "id": id });
                    properties["macAddress"] = json!(format!("00-0D-3A-{}-{}-{}", &mac[0..2], &mac[2..4], &mac[4..6]));
                });
            }
        }
        let os_name = format!("{name}_OsDisk_1_{}", guid_of(&format!("{id}/os")).replace('-', ""));
        let os_id = within(scenario, group, kinds::DISK, &os_name);
        let os = &planned.os_disk;
        let mut os_shown = json!({
            "osType": "Linux",
            "name": os_name,
            "createOption": "FromImage",
            "caching": "ReadWrite",
        });
        match &os.storage_account {
            Some(account) => {
                let uri = format!("https://{account}.blob.core.windows.net/vhds/{os_name}.vhd");
                os_shown["vhd"] = json!({ "uri": uri });
            }
            None => {
                let zone = planned.zone.as_deref();
                let mut os_doc = disk_rules::existing(&os_id, location, &os.sku, os.size_gib, zone, stamp);
                os_doc["managedBy"] = json!(id);
                os_doc["properties"]["osType"] = json!("Linux");
                os_doc["properties"]["creationData"] = json!({"createOption": "FromImage"});
                os_doc["properties"]["diskState"] = json!("Attached");
                self.store.insert(&os_id, Resource::new(os_doc), START);
                os_shown["managedDisk"] = json!({"storageAccountType": os.sku, "id": os_id});
            }
        }
        if os.placement == Some(Placement::NvmeDisk) {
            os_shown["diffDiskSettings"] = local_disk();
        }
        os_shown["deleteOption"] = json!("Detach");
        os_shown["diskSizeGB"] = json!(os.size_gib);
        let mut doc = json!({"name": name, "id": id, "type": kinds::MACHINE, "location": location});
        if let Some(tags) = tags(&planned.tags) {
            doc["tags"] = tags;
        }
        if let Some(zone) = &planned.zone {
            doc["zones"] = json!([zone]);
        }
        if let Some(identity) = identity(scenario, planned.system_identity, &planned.identities, &id) {
            doc["identity"] = identity;
        }
        doc["properties"] = json!({
            "hardwareProfile": {"vmSize": planned.size},
            "provisioningState": "Succeeded",
            "vmId": guid_of(&id),
            "storageProfile": {
                "imageReference": {
                    "publisher": "Canonical",
                    "offer": "ubuntu-24_04-lts",
                    "sku": "server",
                    "version": "latest",
                    "exactVersion": "24.04.1",
                },
                "osDisk": os_shown,
                "dataDisks": [],
            },
            "osProfile": {
                "computerName": name,
                "adminUsername": "azureuser",
                "linuxConfiguration": {
                    "disablePasswordAuthentication": true,
                    "provisionVMAgent": true,
                    "patchSettings": {"patchMode": "ImageDefault", "assessmentMode": "ImageDefault"},
                },
                "secrets": [],
                "allowExtensionOperations": true,
                "requireGuestProvisionSignal": true,
            },
            "networkProfile": {"networkInterfaces": [{"id": nic_id}]},
            "timeCreated": stamp,
        });
        if let Some(storage) = doc["properties"]["storageProfile"].as_object_mut() {
            if let Some(controller) = planned.disk_controller {
                storage.insert("diskControllerType".to_owned(), json!(controller));
            }
            disk_controller::complete(storage, &planned.size);
        }
        if let Some(set) = &planned.availability_set {
            let set_group = scenario
                .availability_sets
                .iter()
                .find(|own| own.name == *set)
                .and_then(|own| own.resource_group.as_deref())
                .unwrap_or(scenario.resource_group());
            doc["properties"]["availabilitySet"] = json!({ "id": within(scenario, set_group, kinds::SET, set) });
        }
        doc["etag"] = json!("\"2\"");
        let mut resource = Resource::new(doc);
        resource.etag = 2;
        resource.machine = Some(Machine { nvme_multipath: planned.nvme_multipath, ..Machine::default() });
        self.store.insert(&id, resource, START);
    }
}

fn identity(scenario: &Scenario, of_system: bool, of_users: &[String], id: &str) -> Option<Value> {
    let mut users = Map::new();
    for user in of_users {
        let known = scenario.identities.iter().find(|own| path::same(&scenario.identity_id(own), user));
        let named = |what: &str| guid_of(&format!("{}/{what}", path::key(user)));
        let principal = known.map_or_else(|| named("principal"), |known| scenario.identity_principal(known));
        let client = known.and_then(|known| known.client_id.clone()).unwrap_or_else(|| named("client"));
        users.insert(user.clone(), json!({ "principalId": principal, "clientId": client }));
    }
    let kind = match (of_system, users.is_empty()) {
        (true, true) => "SystemAssigned",
        (true, false) => "SystemAssigned, UserAssigned",
        (false, false) => "UserAssigned",
        (false, true) => return None,
    };
    let mut identity = json!({ "type": kind });
    if of_system {
        identity["principalId"] = json!(guid_of(&format!("{id}/principal")));
        identity["tenantId"] = json!(scenario.tenant_id);
    }
    if !users.is_empty() {
        identity["userAssignedIdentities"] = Value::Object(users);
    }
    Some(identity)
}
