//! What stands in the way of a change that Azure has refused, as far as the disk shows it.
//!
//! Nothing is refused for it before: Azure changes some disks while they are attached, and in a region without zones disks
//! that are in none.

use std::collections::BTreeMap;

use lazuli_model::{Disk, SkuName, fault::Fault, parameter::Parameters};

use crate::create::{Cloud, SKU_ALIASES, sku_name};

/// Whether the disk may show why Azure, with this code, has refused a change.
pub fn may_be_hindered(fault: &Fault, azure_code: &str) -> bool {
    !azure_code.is_empty() && matches!(fault, Fault::InUse | Fault::Unclear | Fault::Invalid)
}

/// What stands in the way of the change that a VolumeAttributesClass asks for, in words that follow a semicolon. `nodes` are
/// those that hold the disk.
pub fn hindrance(class: &BTreeMap<String, String>, cloud: Cloud, disk: &Disk, nodes: &[String]) -> Option<String> {
    let parameters = Parameters::written(class).ok()?;
    let is_given = SKU_ALIASES.iter().any(|key| parameters.get(key).is_some());
    let to = sku_name(&parameters, cloud).ok().filter(|to| is_given && disk.sku != Some(*to));
    let mut said = Vec::new();
    if !nodes.is_empty() {
        let attached = format!("the disk is attached to {}", nodes.join(", "));
        said.push(match to {
            Some(SkuName::PremiumV2Lrs) => format!(
                "{attached}, and an attached disk becomes PremiumV2_LRS only without host caching (cachingMode None) and with \
                 maxShares of 1: stop the Pods that use the volume"
            ),
            Some(_) => format!(
                "{attached}, and Azure changes the type of a detached disk alone: stop the Pods that use the volume"
            ),
            None => attached,
        });
    }
    if to == Some(SkuName::PremiumV2Lrs) && disk.zones.is_empty() {
        said.push(
            "the disk is in no zone, and in a region with zones PremiumV2_LRS is in one: restore a snapshot of it to a class of \
             PremiumV2_LRS instead"
                .to_owned(),
        );
    }
    (!said.is_empty()).then(|| said.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(class: &[(&str, &str)], disk: &Disk, nodes: &[&str]) -> Option<String> {
        let class = class.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let nodes: Vec<String> = nodes.iter().map(|node| (*node).to_owned()).collect();
        hindrance(&class, Cloud::Public, disk, &nodes)
    }

    #[test]
    fn a_refused_change_names_the_node_that_holds_the_disk_and_the_zone_that_it_lacks() {
        let disk = Disk { sku: Some(SkuName::PremiumLrs), ..Disk::unattached("pvc-1") };
        let zonal = Disk { zones: vec!["1".into()], ..disk.clone() };
        let v2 = [("skuName", "PremiumV2_LRS")];
        let said = told(&v2, &disk, &[]).unwrap();
        assert!(said.starts_with("the disk is in no zone") && said.contains("restore a snapshot"), "{said}");
        let said = told(&v2, &zonal, &["node-1"]).unwrap();
        assert!(said.starts_with("the disk is attached to node-1") && said.contains("cachingMode None"), "{said}");
        let both = told(&[("storageAccountType", "PremiumV2_LRS")], &disk, &["node-1"]).unwrap();
        assert!(both.contains("node-1") && both.contains("in no zone"), "{both}");
        let said = told(&[("skuName", "StandardSSD_LRS")], &zonal, &["a", "b"]).unwrap();
        assert!(said.contains("attached to a, b, and Azure changes the type of a detached disk alone"), "{said}");
        // Of a class that asks for no other type nothing more is known.
        let same = [("skuName", "Premium_LRS"), ("DiskIOPSReadWrite", "5000")];
        assert_eq!(told(&same, &disk, &["a"]).as_deref(), Some("the disk is attached to a"));
        assert_eq!(told(&v2, &zonal, &[]), None);
        assert_eq!(told(&[("tags", "a=b")], &disk, &[]), None);
    }

    #[test]
    fn the_disk_is_asked_after_a_refusal_of_azure_alone() {
        for fault in [Fault::InUse, Fault::Unclear, Fault::Invalid] {
            assert!(may_be_hindered(&fault, "OperationNotAllowed"), "{fault:?}");
            assert!(!may_be_hindered(&fault, ""), "{fault:?}");
        }
        assert!(!may_be_hindered(&Fault::NotFound, "NotFound"));
    }
}
