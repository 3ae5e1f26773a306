//! A public IP as Azure describes it.

use std::{collections::BTreeMap, net::IpAddr};

use lazuli_model::{
    ArmId,
    address::Family,
    json::{self, BodyError, Provisioning, list, text},
};
use serde_json::Value;

use super::tags;
use crate::{ask::IpTag, network::settings::LoadBalancerSku};

/// A public IP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicIp {
    /// Its id.
    pub id: ArmId,
    /// Its address; `None` until Azure has chosen one.
    pub address: Option<IpAddr>,
    /// Its family.
    pub family: Family,
    /// Its SKU.
    pub sku: LoadBalancerSku,
    /// Its tags.
    pub tags: BTreeMap<String, String>,
    /// `dnsSettings.domainNameLabel`.
    pub dns_label: Option<String>,
    /// `dnsSettings.fqdn`.
    pub host_name: Option<String>,
    /// Its IP tags, sorted.
    pub ip_tags: Vec<IpTag>,
    /// What uses it: a frontend, or the IP configuration of a NIC.
    pub used_by: Option<ArmId>,
    /// How its last operation went.
    pub provisioning: Provisioning,
}

impl PublicIp {
    /// Reads the body of the public IP of this id.
    ///
    /// # Errors
    /// When it is no object.
    pub fn read(id: &ArmId, body: &Value) -> Result<Self, BodyError> {
        if !body.is_object() {
            return Err(BodyError { object: "a public IP", field: "object" });
        }
        let property = |path: &[&str]| text(body, &[&["properties"], path].concat());
        let is = |text: Option<&str>, value: &str| text.is_some_and(|text| text.eq_ignore_ascii_case(value));
        let mut ip_tags: Vec<IpTag> = list(body, &["properties", "ipTags"])
            .iter()
            .map(|tag| IpTag {
                kind: text(tag, &["ipTagType"]).unwrap_or_default().to_owned(),
                tag: text(tag, &["tag"]).unwrap_or_default().to_owned(),
            })
            .collect();
        ip_tags.sort_unstable();
        Ok(Self {
            id: id.clone(),
            address: property(&["ipAddress"]).and_then(|text| text.parse().ok()),
            family: if is(property(&["publicIPAddressVersion"]), "IPv6") { Family::V6 } else { Family::V4 },
            sku: match text(body, &["sku", "name"]) {
                Some(name) if !name.eq_ignore_ascii_case("Basic") => LoadBalancerSku::Standard,
                _ => LoadBalancerSku::Basic,
            },
            tags: json::tags(body),
            dns_label: property(&["dnsSettings", "domainNameLabel"])
                .filter(|label| !label.is_empty())
                .map(str::to_owned),
            host_name: property(&["dnsSettings", "fqdn"]).map(str::to_owned),
            ip_tags,
            used_by: property(&["ipConfiguration", "id"]).and_then(|text| text.parse().ok()),
            provisioning: Provisioning::read(body),
        })
    }

    /// Whether the user brought it: no Service is in its tags.
    pub fn is_users(&self) -> bool {
        tags::services(&self.tags).is_empty()
    }

    /// Whether all Services in its tag have given it up: it goes when its frontend has gone.
    pub fn is_released(&self) -> bool {
        tags::is_released(&self.tags)
    }

    /// The Services in its tag, as `namespace/name`.
    pub fn services(&self) -> Vec<&str> {
        tags::services(&self.tags)
    }

    /// Whether its tag says that another cluster than this one made it.
    pub fn is_of_another_cluster(&self, cluster: &str) -> bool {
        tags::cluster(&self.tags).is_some_and(|name| !name.eq_ignore_ascii_case(cluster))
    }

    /// Whether its tag lists another Service than this one, given as `namespace/name`.
    pub fn lists_another(&self, service: &str) -> bool {
        tags::services(&self.tags).iter().any(|name| !name.eq_ignore_ascii_case(service))
    }

    /// Whether its tag lists a Service, given as `namespace/name`.
    pub fn lists(&self, service: &str) -> bool {
        tags::services(&self.tags).iter().any(|name| name.eq_ignore_ascii_case(service))
    }
}
