//! The instance document, made from the machine's document and those that it refers to. Every
//! primitive value is a string, as the service has it.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::Imds;
use crate::disk_skus;
use crate::document::Document;

const GIB: u64 = 1 << 30;

/// A primitive as a string; an absent one is empty.
fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        Value::Bool(truth) => truth.to_string(),
        _ => String::new(),
    }
}

fn text_or(value: &Value, otherwise: &str) -> String {
    let text = text(value);
    if text.is_empty() { otherwise.to_owned() } else { text }
}

/// The segment after `key` in an ARM id.
fn segment(id: &str, key: &str) -> String {
    let mut segments = id.split('/');
    segments
        .find(|segment| segment.eq_ignore_ascii_case(key))
        .and_then(|_| segments.next())
        .unwrap_or_default()
        .to_owned()
}

fn last_segment(value: &Value) -> String {
    text(value).rsplit('/').next().unwrap_or_default().to_owned()
}

/// The name of the scale set that a machine is an instance of.
fn set_name(machine: &Value) -> String {
    match last_segment(&machine["properties"]["virtualMachineScaleSet"]["id"]) {
        name if name.is_empty() => segment(&text(&machine["id"]), "virtualMachineScaleSets"),
        name => name,
    }
}

fn uri(value: &Value) -> Value {
    json!({ "uri": text(&value["uri"]) })
}

impl Imds {
    /// `/metadata/instance`.
    pub(super) fn instance(&self, machine: &Value) -> Value {
        json!({
            "compute": self.compute(machine),
            "network": { "interface": self.interfaces(machine) },
        })
    }

    fn compute(&self, machine: &Value) -> Value {
        let properties = &machine["properties"];
        let storage = &properties["storageProfile"];
        let image = &storage["imageReference"];
        let os_profile = &properties["osProfile"];
        let linux = &os_profile["linuxConfiguration"];
        let (fault_domain, update_domain) = (self.cloud.domains)(machine).unwrap_or((0, 0));
        let security = &properties["securityProfile"]["uefiSettings"];
        let id = text(&machine["id"]);
        let mut tags = BTreeMap::new();
        for (name, value) in machine["tags"].as_object().into_iter().flatten() {
            tags.insert(name.clone(), text(value));
        }
        let tag_text: Vec<String> = tags.iter().map(|(n, v)| format!("{n}:{v}")).collect();
        let tag_list: Vec<Value> = tags.iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
        let keys: Vec<Value> = linux["ssh"]["publicKeys"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|key| json!({"keyData": text(&key["keyData"]), "path": text(&key["path"])}))
            .collect();
        json!({
            "additionalCapabilities": {
                "hibernationEnabled":
                    text_or(&properties["additionalCapabilities"]["hibernationEnabled"], "false"),
            },
            "azEnvironment": "AzurePublicCloud",
            "customData": "",
            "evictionPolicy": text(&properties["evictionPolicy"]),
            "extendedLocation": {
                "name": text(&machine["extendedLocation"]["name"]),
                "type": text(&machine["extendedLocation"]["type"]),
            },
            "host": { "id": text(&properties["host"]["id"]) },
            "hostGroup": { "id": text(&properties["hostGroup"]["id"]) },
            "isHostCompatibilityLayerVm": "false",
            "licenseType": text(&properties["licenseType"]),
            "location": text(&machine["location"]),
            "name": text(&machine["name"]),
            "offer": text(&image["offer"]),
            "osProfile": {
                "adminUsername": text(&os_profile["adminUsername"]),
                "computerName": text_or(&os_profile["computerName"], &text(&machine["name"])),
                "disablePasswordAuthentication":
                    text_or(&linux["disablePasswordAuthentication"], "true"),
            },
            "osType": text_or(&storage["osDisk"]["osType"], "Linux"),
            "placementGroupId": "",
            "plan": {
                "name": text(&machine["plan"]["name"]),
                "product": text(&machine["plan"]["product"]),
                "publisher": text(&machine["plan"]["publisher"]),
            },
            "platformFaultDomain": fault_domain.to_string(),
            "platformSubFaultDomain": "",
            "platformUpdateDomain": update_domain.to_string(),
            "priority": text_or(&properties["priority"], ""),
            "provider": "Microsoft.Compute",
            "publicKeys": keys,
            "publisher": text(&image["publisher"]),
            "resourceGroupName": segment(&id, "resourceGroups"),
            "resourceId": id,
            "securityProfile": {
                "encryptionAtHost":
                    text_or(&properties["securityProfile"]["encryptionAtHost"], "false"),
                "secureBootEnabled": text_or(&security["secureBootEnabled"], "false"),
                "securityType": text(&properties["securityProfile"]["securityType"]),
                "virtualTpmEnabled": text_or(&security["vTpmEnabled"], "false"),
            },
            "sku": text(&image["sku"]),
            "storageProfile": self.storage(&id, storage),
            "subscriptionId": segment(&id, "subscriptions"),
            "tags": tag_text.join(";"),
            "tagsList": tag_list,
            "userData": text(&properties["userData"]),
            "version": text(&image["version"]),
            "virtualMachineScaleSet": {
                "id": text(&properties["virtualMachineScaleSet"]["id"]),
            },
            "vmId": text(&properties["vmId"]),
            "vmScaleSetName": set_name(machine),
            "vmSize": crate::sizes::of_machine(machine),
            "zone": text(&machine["zones"][0]),
        })
    }

    fn storage(&self, machine_id: &str, storage: &Value) -> Value {
        let image = &storage["imageReference"];
        let os = &storage["osDisk"];
        let elements = storage["dataDisks"].as_array();
        let held = (self.cloud.attached)(machine_id, self.lag);
        let disks: Vec<Value> = held
            .iter()
            .map(|(lun, disk)| {
                // The model may already name another disk at this LUN; the host's word counts.
                let element = elements
                    .into_iter()
                    .flatten()
                    .find(|element| element["lun"].as_u64() == Some(u64::from(*lun)) && names(element, disk));
                self.data_disk(*lun, disk, element.unwrap_or(&Value::Null))
            })
            .collect();
        json!({
            "dataDisks": disks,
            "imageReference": {
                "communityGalleryImageId": text(&image["communityGalleryImageId"]),
                "exactVersion": text(&image["exactVersion"]),
                "id": text(&image["id"]),
                "offer": text(&image["offer"]),
                "publisher": text(&image["publisher"]),
                "sharedGalleryImageId": text(&image["sharedGalleryImageId"]),
                "sku": text(&image["sku"]),
                "version": text(&image["version"]),
            },
            "osDisk": {
                "caching": text_or(&os["caching"], "None"),
                "createOption": text_or(&os["createOption"], "FromImage"),
                "diffDiskSettings": { "option": text(&os["diffDiskSettings"]["option"]) },
                "diskSizeGB": text(&os["diskSizeGB"]),
                "encryptionSettings": {
                    "diskEncryptionKey": {
                        "secretUrl": "",
                        "sourceVault": { "id": "" },
                    },
                    "enabled": text_or(&os["encryptionSettings"]["enabled"], "false"),
                    "keyEncryptionKey": {
                        "keyUrl": "",
                        "sourceVault": { "id": "" },
                    },
                },
                "image": uri(&os["image"]),
                "managedDisk": {
                    "id": text(&os["managedDisk"]["id"]),
                    "storageAccountType": text(&os["managedDisk"]["storageAccountType"]),
                },
                "name": text(&os["name"]),
                "osType": text_or(&os["osType"], "Linux"),
                "vhd": uri(&os["vhd"]),
                "writeAcceleratorEnabled": text_or(&os["writeAcceleratorEnabled"], "false"),
            },
            "resourceDisk": { "size": "65536" },
        })
    }

    fn data_disk(&self, lun: u8, disk: &str, element: &Value) -> Value {
        // A disk is named by its ARM id, an unmanaged one by the URI of its blob.
        let managed = !disk.contains("://");
        let document = (self.cloud.document)(disk).unwrap_or_default();
        let properties = &document["properties"];
        let gib = properties["diskSizeGB"].as_u64().or(element["diskSizeGB"].as_u64());
        let bytes = properties["diskSizeBytes"].as_u64().or(gib.map(|gib| gib * GIB));
        let sku = text_or(&document["sku"]["name"], &text(&element["managedDisk"]["storageAccountType"]));
        let performance = disk_skus::find(&sku).map(|sku| sku.default_performance(gib.unwrap_or(0)));
        let number = |value: Option<u64>| value.map(|v| v.to_string()).unwrap_or_default();
        let iops = properties["diskIOPSReadWrite"].as_u64().or(performance.map(|p| p.iops));
        let mbps = properties["diskMBpsReadWrite"].as_u64().or(performance.map(|p| p.mbps));
        let shared = properties["maxShares"].as_u64().is_some_and(|shares| shares > 1);
        json!({
            "bytesPerSecondThrottle": number(mbps.map(|mbps| mbps * 1_000_000)),
            "caching": text_or(&element["caching"], "None"),
            "createOption": text_or(&element["createOption"], "Attach"),
            "diskCapacityBytes": number(bytes),
            "diskSizeGB": number(gib),
            "image": { "uri": "" },
            "isSharedDisk": shared.to_string(),
            "isUltraDisk": sku.eq_ignore_ascii_case("UltraSSD_LRS").to_string(),
            "lun": lun.to_string(),
            "managedDisk": {
                // As the disk's own document spells it; the machine's may differ in letter case.
                "id": if managed { text_or(&document["id"], disk) } else { String::new() },
                "storageAccountType": sku,
            },
            "name": text_or(
                &element["name"],
                disk.rsplit('/').next().unwrap_or_default(),
            ),
            "opsPerSecondThrottle": number(iops),
            "vhd": { "uri": if managed { "" } else { disk } },
            "writeAcceleratorEnabled": text_or(&element["writeAcceleratorEnabled"], "false"),
        })
    }

    /// The documents of the network cards and their addresses.
    fn cards(&self, machine: &Value) -> Vec<Document> {
        machine["properties"]["networkProfile"]["networkInterfaces"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|card| (self.cloud.document)(card["id"].as_str()?))
            .collect()
    }

    fn interfaces(&self, machine: &Value) -> Vec<Value> {
        let cards = self.cards(machine);
        cards.iter().map(|card| self.interface(card)).collect()
    }

    fn interface(&self, card: &Value) -> Value {
        let properties = &card["properties"];
        let (mut addresses4, mut addresses6, mut subnets) = (vec![], vec![], vec![]);
        for configuration in properties["ipConfigurations"].as_array().into_iter().flatten() {
            let properties = &configuration["properties"];
            let address = text(&properties["privateIPAddress"]);
            if text(&properties["privateIPAddressVersion"]).eq_ignore_ascii_case("IPv6") {
                addresses6.push(json!({ "privateIpAddress": address }));
                continue;
            }
            let public =
                self.public_address(configuration).filter(|(_, standard)| !standard).map(|(address, _)| address);
            addresses4.push(json!({
                "privateIpAddress": address,
                "publicIpAddress": public.unwrap_or_default(),
            }));
            let subnet =
                properties["subnet"]["id"].as_str().and_then(|id| (self.cloud.document)(id)).unwrap_or_default();
            let prefix =
                text_or(&subnet["properties"]["addressPrefix"], &text(&subnet["properties"]["addressPrefixes"][0]));
            if let Some((address, length)) = prefix.split_once('/') {
                let entry = json!({ "address": address, "prefix": length });
                if !subnets.contains(&entry) {
                    subnets.push(entry);
                }
            }
        }
        json!({
            "ipv4": { "ipAddress": addresses4, "subnet": subnets },
            "ipv6": { "ipAddress": addresses6 },
            "macAddress": text(&properties["macAddress"]).replace(['-', ':'], ""),
        })
    }

    /// The public address of an IP configuration, and whether it is of the Standard SKU.
    fn public_address(&self, configuration: &Value) -> Option<(String, bool)> {
        let id = configuration["properties"]["publicIPAddress"]["id"].as_str()?;
        let public = (self.cloud.document)(id)?;
        let address = text(&public["properties"]["ipAddress"]);
        let standard = text(&public["sku"]["name"]).eq_ignore_ascii_case("Standard");
        (!address.is_empty()).then_some((address, standard))
    }

    /// `/metadata/loadbalancer`. Documented: public addresses of the Standard SKU show here and not
    /// under `network`.
    pub(super) fn load_balancer(&self, machine: &Value) -> Value {
        let mut addresses = Vec::new();
        for card in self.cards(machine) {
            for configuration in card["properties"]["ipConfigurations"].as_array().into_iter().flatten() {
                if let Some((address, true)) = self.public_address(configuration) {
                    addresses.push(json!({
                        "frontendIpAddress": address,
                        "privateIpAddress": text(&configuration["properties"]["privateIPAddress"]),
                    }));
                }
            }
        }
        json!({ "loadbalancer": {
            "publicIpAddresses": addresses,
            "inboundRules": [],
            "outboundRules": [],
        }})
    }
}

/// Whether an element of the model is this disk.
fn names(element: &Value, disk: &str) -> bool {
    [&element["managedDisk"]["id"], &element["vhd"]["uri"]]
        .iter()
        .any(|id| id.as_str().is_some_and(|id| id.eq_ignore_ascii_case(disk)))
}
