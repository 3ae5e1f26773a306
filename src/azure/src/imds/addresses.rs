//! The addresses of a machine, as it is told about itself.
//!
//! The instance document has the private addresses, and public ones of the Basic SKU. Those of the Standard SKU, and those of
//! an instance of a scale set behind a load balancer, are in a document of their own (source: Microsoft docs,
//! howto-load-balancer-imds).

use std::net::IpAddr;

use serde_json::Value;
use tokio::time::Instant;

use super::{Imds, ImdsError, LOAD_BALANCER_API_VERSION, SHORTEST_INTERVAL};

/// An address of a machine's network interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InterfaceAddress {
    /// The private address.
    pub private: IpAddr,
    /// The public address that leads to it.
    pub public: Option<IpAddr>,
}

impl Imds {
    /// The addresses of the machine, newly asked for, with public ones of every SKU.
    ///
    /// # Errors
    /// When the service gives no usable answer to one of both questions: then it is not known which public addresses there
    /// are.
    pub async fn addresses(&self) -> Result<Vec<InterfaceAddress>, ImdsError> {
        let instance = self.refresh().await?;
        let mut addresses = instance.addresses.clone();
        // A machine has public addresses of one SKU.
        if addresses.is_empty() || addresses.iter().any(|one| one.public.is_some()) {
            return Ok(addresses);
        }
        let due = {
            let mut state = self.0.lock();
            let now = Instant::now();
            let due = state.asked.map_or(now, |asked| now.max(asked + SHORTEST_INTERVAL));
            state.asked = Some(due);
            due
        };
        tokio::time::sleep_until(due).await;
        let document = match self.0.get(&format!("loadbalancer?api-version={LOAD_BALANCER_API_VERSION}")).await {
            Ok(document) => document,
            // Documented: the machine is behind no load balancer, and has no public address.
            Err(ImdsError::Refused { status: 404, .. }) => return Ok(addresses),
            Err(error) => return Err(error),
        };
        add_public(&mut addresses, &document);
        Ok(addresses)
    }
}

/// An address; those of version 6 stand in brackets in one of both documents.
fn address(text: Option<&Value>) -> Option<IpAddr> {
    text?.as_str()?.trim_matches(['[', ']']).parse().ok()
}

/// The first address of each family of the first interface.
pub(super) fn of_interface(document: &Value) -> Vec<InterfaceAddress> {
    let family = |name: &str| {
        let first = document.pointer(&format!("/network/interface/0/{name}/ipAddress/0"))?;
        let private = address(first.get("privateIpAddress"))?;
        Some(InterfaceAddress { private, public: address(first.get("publicIpAddress")) })
    };
    ["ipv4", "ipv6"].into_iter().filter_map(family).collect()
}

/// Adds the public addresses of the document about load balancing.
fn add_public(addresses: &mut [InterfaceAddress], document: &Value) {
    let pairs = document.pointer("/loadbalancer/publicIpAddresses").and_then(Value::as_array);
    for pair in pairs.into_iter().flatten() {
        let of_pair = |name: &str| address(pair.get(name));
        let (Some(private), Some(public)) = (of_pair("privateIpAddress"), of_pair("frontendIpAddress")) else {
            continue;
        };
        if let Some(one) = addresses.iter_mut().find(|one| one.private == private && one.public.is_none()) {
            one.public = Some(public);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{Fake, Reply};

    fn instance(public: &str) -> Value {
        json!({
            "compute": {"name": "v", "location": "westeurope", "vmSize": "Standard_D4s_v3", "subscriptionId": "s",
                "resourceGroupName": "g",
                "resourceId": "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/v"},
            "network": {"interface": [
                {"ipv4": {"ipAddress": [
                    {"privateIpAddress": "10.0.0.4", "publicIpAddress": public}, {"privateIpAddress": "10.0.0.5"}]},
                 "ipv6": {"ipAddress": [{"privateIpAddress": "fd01::4"}]}},
                {"ipv4": {"ipAddress": [{"privateIpAddress": "10.1.0.4"}]}}]},
        })
    }

    fn texts(addresses: &[InterfaceAddress]) -> Vec<String> {
        let text =
            |one: &InterfaceAddress| format!("{} {:?}", one.private, one.public.map(|public| public.to_string()));
        addresses.iter().map(text).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn public_addresses_of_every_sku_are_found() {
        let balanced = json!({"loadbalancer": {"publicIpAddresses": [
            {"frontendIpAddress": "20.0.0.9", "privateIpAddress": "10.0.0.5"},
            {"frontendIpAddress": "20.0.0.1", "privateIpAddress": "10.0.0.4"},
            {"frontendIpAddress": "[2001:db8::1]", "privateIpAddress": "[fd01::4]"}]}});
        let fake = Fake::new([Reply::json(200, instance("")), Reply::json(200, balanced)]);
        let began = Instant::now();
        let addresses = Imds::new(fake.in_process()).addresses().await.unwrap();
        assert_eq!(texts(&addresses), [r#"10.0.0.4 Some("20.0.0.1")"#, r#"fd01::4 Some("2001:db8::1")"#]);
        assert_eq!(fake.log()[1].line, "GET 169.254.169.254/metadata/loadbalancer?api-version=2020-10-01");
        assert_eq!(began.elapsed(), SHORTEST_INTERVAL);
        // Those of the Basic SKU are in the first document, and no machine has both.
        let fake = Fake::new([Reply::json(200, instance("20.0.0.2"))]);
        let addresses = Imds::new(fake.in_process()).addresses().await.unwrap();
        assert_eq!(texts(&addresses)[0], r#"10.0.0.4 Some("20.0.0.2")"#);
    }

    #[tokio::test(start_paused = true)]
    async fn no_load_balancer_is_no_public_address_and_silence_is_none_that_is_known() {
        for (reply, expected) in [
            (Reply::json(404, json!({"error": "No load balancer metadata is found."})), Some(2)),
            (Reply::empty(429), None),
            (Reply::json(500, json!({})), None),
            (Reply::Lost, None),
        ] {
            let fake = Fake::new([Reply::json(200, instance("")), reply]);
            let addresses = Imds::new(fake.in_process()).addresses().await;
            assert_eq!(addresses.as_ref().ok().map(Vec::len), expected, "{addresses:?}");
        }
    }
}
