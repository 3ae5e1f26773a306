//! The bodies of a disk's PUT and PATCH.

use lazuli_model::{
    disk_spec::{CreateOption, DiskSpec, NetworkAccessPolicy},
    op::DiskChange,
};
use serde_json::{Map, Value, json};

/// What to send to make the disk of a plan. A property that the plan leaves open is left out: Azure's default counts,
/// and an Azure that does not know the property is not asked for it.
pub fn encode_disk(spec: &DiskSpec) -> Value {
    let mut creation = Map::new();
    match &spec.create_option {
        CreateOption::Empty => drop(creation.insert("createOption".into(), json!("Empty"))),
        CreateOption::Copy(of) => {
            creation.insert("createOption".into(), json!("Copy"));
            creation.insert("sourceResourceId".into(), json!(of.source.as_str()));
        }
        CreateOption::Import(of) => {
            creation.insert("createOption".into(), json!("Import"));
            creation.insert("sourceUri".into(), json!(of.blob.folded()));
            put(&mut creation, "storageAccountId", of.seen.as_ref().map(|seen| seen.account.as_str()));
        }
    }
    put(&mut creation, "logicalSectorSize", spec.logical_sector_size);
    put(&mut creation, "performancePlus", spec.performance_plus);

    let mut properties = Map::new();
    properties.insert("creationData".into(), creation.into());
    put(&mut properties, "diskSizeGB", spec.size_to_send().map(|size| size.get()));
    put(&mut properties, "diskIOPSReadWrite", spec.iops);
    put(&mut properties, "diskMBpsReadWrite", spec.mbps);
    put(&mut properties, "maxShares", (spec.max_shares > 1).then_some(spec.max_shares));
    if let Some(set) = &spec.disk_encryption_set {
        let mut encryption = Map::new();
        encryption.insert("diskEncryptionSetId".into(), json!(set.as_str()));
        put(&mut encryption, "type", spec.encryption_type.map(|kind| kind.as_str()));
        properties.insert("encryption".into(), encryption.into());
    }
    put(&mut properties, "networkAccessPolicy", spec.network_access_policy.map(|policy| policy.as_str()));
    put(&mut properties, "diskAccessId", spec.disk_access.as_ref().map(|id| id.as_str()));
    put(&mut properties, "publicNetworkAccess", spec.public_network_access.map(|access| access.as_str()));
    put(&mut properties, "burstingEnabled", spec.bursting_enabled);
    put(&mut properties, "tier", spec.tier.map(|tier| tier.as_str()));

    let mut body = Map::new();
    body.insert("location".into(), json!(spec.location));
    if let Some(edge) = &spec.extended_location {
        body.insert("extendedLocation".into(), json!({ "name": edge.name, "type": edge.kind }));
    }
    if !spec.zones.is_empty() {
        body.insert("zones".into(), json!(spec.zones));
    }
    body.insert("sku".into(), json!({ "name": spec.sku.as_str() }));
    body.insert("tags".into(), json!(spec.tags));
    body.insert("properties".into(), properties.into());
    body.into()
}

/// What to send to change the attributes of a disk. What stays as it is is left out.
pub fn encode_disk_change(change: &DiskChange) -> Value {
    let mut properties = Map::new();
    put(&mut properties, "diskIOPSReadWrite", change.iops);
    put(&mut properties, "diskMBpsReadWrite", change.mbps);
    put(&mut properties, "tier", change.tier.map(|tier| tier.as_str()));
    put(&mut properties, "burstingEnabled", change.bursting_enabled);
    put(&mut properties, "publicNetworkAccess", change.public_network_access.map(|access| access.as_str()));
    if let Some(policy) = change.network_access_policy {
        properties.insert("networkAccessPolicy".into(), json!(policy.as_str()));
        // A null takes the disk access of the policy before away (source: RFC 7396, and Azure's own clients).
        let door = change.disk_access.as_ref().filter(|_| policy == NetworkAccessPolicy::AllowPrivate);
        properties.insert("diskAccessId".into(), json!(door.map(|id| id.as_str())));
    }

    let mut body = Map::new();
    put(&mut body, "sku", change.sku.map(|sku| json!({ "name": sku.as_str() })));
    put(&mut body, "tags", change.tags.as_ref().map(|tags| json!(tags)));
    if !properties.is_empty() {
        body.insert("properties".into(), properties.into());
    }
    body.into()
}

pub(crate) fn put(object: &mut Map<String, Value>, key: &str, value: Option<impl Into<Value>>) {
    if let Some(value) = value {
        object.insert(key.to_owned(), value.into());
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use lazuli_model::disk_spec::ExtendedLocation;
    use lazuli_volume::{
        Capability, Defaults, Request,
        copy::{CopySource, Descent, plan_copy},
        plan_create,
    };

    use super::*;
    use crate::compute::wire::decode_disk;

    fn body(parameters: &[(&str, &str)]) -> Value {
        body_in(parameters, None)
    }

    fn body_in(parameters: &[(&str, &str)], extended_location: Option<ExtendedLocation>) -> Value {
        let defaults = Defaults { extended_location, ..defaults() };
        encode_disk(&plan_create(&request(parameters), &defaults).unwrap().spec)
    }

    fn request(parameters: &[(&str, &str)]) -> Request {
        Request {
            name: "pvc-1".into(),
            parameters: parameters.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
            required_bytes: 10 << 30,
            capabilities: vec![Capability::mounted()],
            ..Request::default()
        }
    }

    fn defaults() -> Defaults {
        Defaults {
            subscription: "s".into(),
            resource_group: "g".into(),
            location: "westeurope".into(),
            ..Defaults::default()
        }
    }

    #[test]
    fn a_copy_names_its_source_and_leaves_a_size_out_that_is_no_whole_number() {
        let id = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/pvc-0";
        for (bytes, size) in [(10_u64 << 30, json!(10)), ((10 << 30) + 512, Value::Null)] {
            let source = decode_disk(&json!({
                "id": id, "location": "westeurope",
                "properties": { "provisioningState": "Succeeded", "diskSizeGB": 10, "diskSizeBytes": bytes },
            }))
            .unwrap();
            let source = CopySource::Disk(&source);
            let plan = plan_copy(&request(&[]), source, &Descent::default(), &defaults()).unwrap();
            let properties = encode_disk(&plan.create.spec)["properties"].take();
            let data = json!({ "createOption": "Copy", "sourceResourceId": id });
            assert_eq!((&properties["creationData"], &properties["diskSizeGB"]), (&data, &size));
        }
    }

    #[test]
    fn a_tier_is_said_where_it_was_asked_for() {
        let mutable_parameters = [("tier".to_owned(), "P40".to_owned())].into();
        let asked = Request { mutable_parameters, required_bytes: 1 << 40, ..request(&[("skuName", "Premium_LRS")]) };
        let spec = plan_create(&asked, &defaults()).unwrap().spec;
        assert_eq!(encode_disk(&spec)["properties"]["tier"], "P40");
        assert!(body(&[])["properties"].get("tier").is_none());
    }

    #[test]
    fn a_plain_disk_says_only_what_the_class_and_the_drivers_defaults_say() {
        assert_eq!(
            body(&[]),
            json!({
                "location": "westeurope",
                "sku": { "name": "StandardSSD_LRS" },
                "tags": BTreeMap::from([("k8s-azure-created-by", "kubernetes-azure-dd"), ("lazuli-request", "pvc-1")]),
                "properties": {
                    "creationData": { "createOption": "Empty" },
                    "diskSizeGB": 10,
                    "networkAccessPolicy": "DenyAll",
                    "publicNetworkAccess": "Disabled",
                },
            })
        );
    }

    #[test]
    fn a_disk_of_a_cluster_in_an_edge_zone_is_made_in_that_edge_zone() {
        let edge = ExtendedLocation { name: "losangeles".into(), kind: "EdgeZone".into() };
        let expected = json!({ "name": "losangeles", "type": "EdgeZone" });
        assert_eq!(body_in(&[], Some(edge))["extendedLocation"], expected);
        assert!(body(&[]).get("extendedLocation").is_none());
    }

    #[test]
    fn encryption_and_performance_are_said_where_they_were_asked_for() {
        let set = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/diskEncryptionSets/e";
        let body = body(&[
            ("skuName", "PremiumV2_LRS"),
            ("DiskIOPSReadWrite", "4000"),
            ("LogicalSectorSize", "512"),
            ("diskEncryptionSetID", set),
            ("cachingMode", "None"),
        ]);
        let properties = &body["properties"];
        assert_eq!(properties["diskIOPSReadWrite"], 4000);
        assert_eq!(properties["creationData"]["logicalSectorSize"], 512);
        assert_eq!(properties["encryption"]["diskEncryptionSetId"], set);
        assert_eq!(properties["encryption"]["type"], "EncryptionAtRestWithCustomerKey");
        assert!(properties.get("maxShares").is_none());
    }
}
