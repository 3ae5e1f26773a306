//! Load balancers, route tables and their kin, and the networks of scale sets: which request is which. Bodies are values;
//! what to write in them is decided in `lazuli-services` and `lazuli-nodes`.
//!
//! No write here is repeated, and none waits: each brings its permit along, for the caller must read and plan again before
//! another try. Reads of one type in one resource group are shared, and many single reads become one list; so are looks
//! at creations of public IPs, of which a storm makes hundreds.

use std::sync::Arc;

use lazuli_model::{
    ArmId, ProvisioningState,
    fault::{Effect, Fault},
    zones,
};
use lazuli_quota::{
    permit::Priority,
    poll::Kind,
    read::{Listed, Target},
};
use serde_json::Value;
use tokio::time::Instant;

use crate::{
    arm::{Arm, Operation, Patience, Repeat, Watching, Write},
    broker::{Broker, Fields, ResourceType},
    compute::{ApiVersions, Freshness, list_path},
    error::{ArmError, Failure, Verb},
    metrics,
    permits::Permit,
    until::Until,
};

/// The API version of the network provider's types (source: what the Go cloud-controller-manager sends).
pub const API_VERSION: &str = "2025-05-01";
/// The API version of the interfaces of scale sets' instances, which the compute provider shows (source: the SDKs, which
/// know no other).
const INSTANCE_INTERFACES_API_VERSION: &str = "2018-10-01";
/// The same on Azure Stack Hub (source: its profile of 2020-09-01).
pub const AZURE_STACK_API_VERSION: &str = "2018-11-01";

/// The API version of private DNS zones and their links (source: the client library of the Go drivers).
const PRIVATE_DNS_API_VERSION: &str = "2020-06-01";

/// The API version of resource providers (source: the client library of the Go cloud-controller-manager).
const PROVIDERS_API_VERSION: &str = "2021-04-01";

/// The API version of the list of permissions (source: Microsoft docs, Permissions - List For Resource Group).
const PERMISSIONS_API_VERSION: &str = "2022-04-01";

/// A type of network resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NetworkType {
    /// `loadBalancers`
    LoadBalancer,
    /// `loadBalancers/backendAddressPools`
    BackendPool,
    /// `networkSecurityGroups`
    SecurityGroup,
    /// `publicIPAddresses`
    PublicIp,
    /// `networkInterfaces`
    Interface,
    /// `privateLinkServices`
    PrivateLinkService,
    /// `routeTables`
    RouteTable,
    /// `virtualNetworks`
    VirtualNetwork,
    /// `virtualNetworks/subnets`
    Subnet,
    /// `privateEndpoints`
    PrivateEndpoint,
    /// `privateEndpoints/privateDnsZoneGroups`
    ZoneGroup,
    /// `privateDnsZones`
    PrivateZone,
    /// `privateDnsZones/virtualNetworkLinks`
    ZoneLink,
    /// `virtualMachineScaleSets` of the compute provider, whose model holds the NICs of the next instances
    ScaleSet,
    /// `virtualMachineScaleSets/virtualMachines`, which hold their NICs
    Instance,
}

/// A network resource as it was read.
#[derive(Debug, Clone)]
pub struct NetworkRead {
    /// The whole body.
    pub body: Arc<Value>,
    /// Its version, from the `ETag` header or the body.
    pub etag: Option<String>,
    /// When the request that was answered was sent.
    pub sent_at: Instant,
}

/// One write of a network resource.
#[derive(Debug)]
pub enum NetworkWrite {
    /// Makes or replaces it.
    Put {
        /// The whole body.
        body: Value,
        /// The version that it replaces. `None` to create.
        etag: Option<String>,
    },
    /// Changes a part of it.
    Patch {
        /// The part.
        body: Value,
        /// The version that is changed; `None` for any.
        etag: Option<String>,
    },
    /// Has Azure do something to it.
    Post {
        /// The last segment of the path.
        action: &'static str,
        /// What is asked.
        body: Value,
    },
    /// Deletes it.
    Delete {
        /// The version that is deleted; `None` for any.
        etag: Option<String>,
    },
}

impl NetworkWrite {
    /// The verb of the request, for the permit.
    pub fn verb(&self) -> Verb {
        match self {
            Self::Put { .. } => Verb::Put,
            Self::Patch { .. } => Verb::Patch,
            Self::Post { .. } => Verb::Post,
            Self::Delete { .. } => Verb::Delete,
        }
    }
}

/// The client of the network provider; clones share everything.
#[derive(Debug, Clone)]
pub struct Network {
    arm: Arm,
    broker: Broker,
    api_version: &'static str,
}

macro_rules! shared_reads {
    ($($constant:ident = $name:literal, $counted:ident;)*) => {$(
        static $constant: ResourceType = ResourceType {
            name: $name,
            counted_as: metrics::ResourceType::$counted,
            // A body that goes back to Azure must be whole.
            fields: Fields::All,
            is_complete: |resource| resource.pointer("/properties/provisioningState").is_some_and(Value::is_string),
            shown: |resource| {
                let word = resource.pointer("/properties/provisioningState")?.as_str()?;
                Some(Listed { state: ProvisioningState::from_azure(word), size: None, made: None })
            },
        };
    )*};
}

shared_reads! {
    LOAD_BALANCERS = "Microsoft.Network/loadBalancers", LoadBalancers;
    SECURITY_GROUPS = "Microsoft.Network/networkSecurityGroups", SecurityGroups;
    PUBLIC_IPS = "Microsoft.Network/publicIPAddresses", PublicIps;
    INTERFACES = "Microsoft.Network/networkInterfaces", Interfaces;
    PRIVATE_LINK_SERVICES = "Microsoft.Network/privateLinkServices", PrivateLinkServices;
    ROUTE_TABLES = "Microsoft.Network/routeTables", RouteTables;
}

impl NetworkType {
    /// How its operations are counted and expected to last.
    pub fn kind(self) -> Kind {
        match self {
            Self::LoadBalancer | Self::BackendPool => Kind::LoadBalancer,
            Self::SecurityGroup => Kind::SecurityGroup,
            Self::PublicIp => Kind::PublicIp,
            Self::Interface => Kind::Interface,
            Self::PrivateLinkService | Self::PrivateEndpoint | Self::ZoneGroup => Kind::PrivateLink,
            Self::RouteTable => Kind::RouteTable,
            Self::VirtualNetwork
            | Self::Subnet
            | Self::PrivateZone
            | Self::ZoneLink
            | Self::ScaleSet
            | Self::Instance => Kind::Other,
        }
    }

    /// Whether an API version has the type: private link services came with 2019-04-01 (source: the provider's API
    /// versions), which Azure Stack Hub does not know.
    fn is_in(self, api_version: &str) -> bool {
        self != Self::PrivateLinkService || api_version >= "2019-04-01"
    }

    /// Whether a PUT that makes one can say that it must not change one that exists: `If-None-Match: *` (source: the
    /// reference of private DNS).
    fn can_be_only_made(self) -> bool {
        matches!(self, Self::PrivateZone | Self::ZoneLink)
    }

    /// How its reads are shared; `None` for what is a part of another resource, or seldom read.
    fn shared(self) -> Option<&'static ResourceType> {
        match self {
            Self::LoadBalancer => Some(&LOAD_BALANCERS),
            Self::SecurityGroup => Some(&SECURITY_GROUPS),
            Self::PublicIp => Some(&PUBLIC_IPS),
            Self::Interface => Some(&INTERFACES),
            Self::PrivateLinkService => Some(&PRIVATE_LINK_SERVICES),
            Self::RouteTable => Some(&ROUTE_TABLES),
            // Lists of instances do not tell the ETags that a write needs, and those of other machines lack them.
            Self::BackendPool
            | Self::VirtualNetwork
            | Self::Subnet
            | Self::PrivateEndpoint
            | Self::ZoneGroup
            | Self::PrivateZone
            | Self::ZoneLink
            | Self::ScaleSet
            | Self::Instance => None,
        }
    }
}

impl Network {
    /// A client by this API version, such as [`API_VERSION`].
    pub fn new(arm: Arm, api_version: &'static str) -> Self {
        Self { broker: Broker::new(arm.clone()), arm, api_version }
    }

    /// The client underneath.
    pub fn arm(&self) -> &Arm {
        &self.arm
    }

    /// Reads a resource, together with all callers that ask for it.
    ///
    /// # Errors
    /// [`Fault::NotFound`] when exactly it is gone; [`Fault::Deadline`] when the caller's time is over.
    pub async fn read(
        &self,
        resource_type: NetworkType,
        id: &ArmId,
        freshness: Freshness,
        until: &Until,
    ) -> Result<NetworkRead, ArmError> {
        let late = |why: crate::until::Interrupted| {
            Failure::ours(Fault::Deadline, Effect::None, Verb::Get, id.as_str(), why.as_str())
        };
        let Some(shared) = resource_type.shared() else {
            let Freshness { not_before, priority, .. } = freshness;
            if Instant::now() < not_before {
                until.run(tokio::time::sleep_until(not_before)).await.map_err(late)?;
            }
            let read = self.arm.get(id.as_str(), self.version(resource_type), &[], priority, until).await?;
            return Ok(NetworkRead { body: Arc::new(read.value), etag: read.etag, sent_at: read.sent_at });
        };
        let read = self.broker.read(shared, self.api_version, id, freshness);
        let read = until.run(read).await.map_err(late)??;
        Ok(NetworkRead { body: read.value, etag: read.etag, sent_at: read.seen.sent_at })
    }

    /// Reads a resource of the provider alone, whatever its type; also a network interface of a scale set's instance and
    /// its public IP.
    ///
    /// # Errors
    /// As [`Arm::get`].
    pub async fn read_alone(&self, id: &ArmId, priority: Priority, until: &Until) -> Result<Value, ArmError> {
        let has = |segment| id.folded().contains(segment);
        let of_instance = has("/virtualmachinescalesets/") && has("/networkinterfaces/");
        let version = if of_instance { INSTANCE_INTERFACES_API_VERSION } else { self.api_version };
        Ok(self.arm.get(id.as_str(), version, &[], priority, until).await?.value)
    }

    /// Lists all resources of a type in a resource group. A type that the API version does not have has none.
    ///
    /// # Errors
    /// Any [`Fault`]; an incomplete list is an error.
    pub async fn list(
        &self,
        resource_type: NetworkType,
        subscription: &str,
        resource_group: &str,
        until: &Until,
    ) -> Result<Vec<Value>, ArmError> {
        let Some(ResourceType { name, .. }) = resource_type.shared() else {
            let message = "what is a part of another resource is listed with it";
            return Err(Failure::ours(Fault::Invalid, Effect::None, Verb::Get, resource_group, message).into());
        };
        if !resource_type.is_in(self.api_version) {
            return Ok(Vec::new());
        }
        let path = format!("/subscriptions/{subscription}/resourceGroups/{resource_group}/providers/{name}");
        Ok(self.arm.list_of(&path, self.api_version, &[], until).await?.items)
    }

    /// Lists all resources of a type below another resource: `member` is the last segment of the path.
    ///
    /// # Errors
    /// [`Fault::NotFound`] when exactly that resource is gone; an incomplete list is an error.
    pub async fn list_below(
        &self,
        resource_type: NetworkType,
        parent: &ArmId,
        member: &str,
        until: &Until,
    ) -> Result<Vec<Value>, ArmError> {
        let path = format!("{parent}/{member}");
        Ok(self.arm.list_of(&path, self.version(resource_type), &[], until).await?.items)
    }

    /// Lists the virtual machines of a resource group, with the sets that load balancers may belong to.
    ///
    /// # Errors
    /// As [`list`](Self::list).
    pub async fn list_machines(
        &self,
        subscription: &str,
        resource_group: &str,
        until: &Until,
    ) -> Result<Vec<Value>, ArmError> {
        let path = list_path(subscription, Some(resource_group), "virtualMachines");
        Ok(self.arm.list_of(&path, self.compute_versions().virtual_machines, &[], until).await?.items)
    }

    /// Lists the scale sets of a resource group.
    ///
    /// # Errors
    /// As [`list`](Self::list).
    pub async fn list_scale_sets(
        &self,
        subscription: &str,
        resource_group: &str,
        until: &Until,
    ) -> Result<Vec<Value>, ArmError> {
        let path = list_path(subscription, Some(resource_group), "virtualMachineScaleSets");
        Ok(self.arm.list_of(&path, self.compute_versions().scale_sets, &[], until).await?.items)
    }

    /// Lists the instances of a uniform scale set, page by page.
    ///
    /// # Errors
    /// As [`list`](Self::list).
    pub async fn each_instance(
        &self,
        scale_set: &ArmId,
        until: &Until,
        mut each: impl FnMut(Value),
    ) -> Result<(), ArmError> {
        let path = format!("{scale_set}/virtualMachines");
        let mut pages = self.arm.pages(&path, self.compute_versions().scale_sets, &[], Priority::List, until)?;
        while let Some(items) = pages.next_of(Fields::All).await? {
            items.into_iter().for_each(&mut each);
        }
        Ok(())
    }

    /// Lists the network interfaces of all instances of a uniform scale set.
    ///
    /// # Errors
    /// As [`list`](Self::list).
    pub async fn list_instance_interfaces(&self, scale_set: &ArmId, until: &Until) -> Result<Vec<Value>, ArmError> {
        let path = format!("{scale_set}/networkInterfaces");
        Ok(self.arm.list_of(&path, INSTANCE_INTERFACES_API_VERSION, &[], until).await?.items)
    }

    fn compute_versions(&self) -> ApiVersions {
        match self.api_version {
            AZURE_STACK_API_VERSION => ApiVersions::azure_stack(),
            _ => ApiVersions::public(),
        }
    }

    fn version(&self, resource_type: NetworkType) -> &'static str {
        match resource_type {
            NetworkType::ScaleSet | NetworkType::Instance => self.compute_versions().scale_sets,
            NetworkType::PrivateZone | NetworkType::ZoneLink => PRIVATE_DNS_API_VERSION,
            _ => self.api_version,
        }
    }

    /// The availability zones of a region, in Azure's order. Azure Stack Hub has none.
    ///
    /// # Errors
    /// Any [`Fault`]; [`Fault::Forbidden`] where the identity may not read the resource providers of the subscription.
    pub async fn zones(&self, subscription: &str, location: &str, until: &Until) -> Result<Vec<String>, ArmError> {
        if self.api_version == AZURE_STACK_API_VERSION {
            return Ok(vec![]);
        }
        let path = format!("/subscriptions/{subscription}/providers/Microsoft.Compute");
        let read = self.arm.get(&path, PROVIDERS_API_VERSION, &[], Priority::Read, until).await?;
        Ok(zones::of_region(&read.value, location))
    }

    /// What the identity may do in a resource group, as Azure lists it: an entry for each role that it holds there or above.
    ///
    /// # Errors
    /// As [`Arm::get`].
    pub async fn permissions(&self, subscription: &str, group: &str, until: &Until) -> Result<Value, ArmError> {
        let path = format!(
            "/subscriptions/{subscription}/resourceGroups/{group}/providers/Microsoft.Authorization/permissions"
        );
        Ok(self.arm.get(&path, PERMISSIONS_API_VERSION, &[], Priority::Read, until).await?.value)
    }

    /// Waits for the permit to send a write.
    ///
    /// # Errors
    /// As [`Arm::permit`].
    pub async fn permit(&self, verb: Verb, id: &ArmId, priority: Priority, until: &Until) -> Result<Permit, ArmError> {
        self.arm.permit(verb, id.as_str(), priority, until).await
    }

    /// Sends a write, once.
    ///
    /// # Errors
    /// Any [`Fault`]; [`Failure::effect`] says whether Azure may have acted all the same.
    pub async fn write(
        &self,
        resource_type: NetworkType,
        id: &ArmId,
        write: NetworkWrite,
        permit: impl Into<Option<Permit>>,
        until: &Until,
    ) -> Result<Operation, ArmError> {
        let (kind, version) = (resource_type.kind(), self.version(resource_type));
        let path = match &write {
            NetworkWrite::Post { action, .. } => format!("{id}/{action}"),
            NetworkWrite::Put { .. } | NetworkWrite::Patch { .. } | NetworkWrite::Delete { .. } => id.to_string(),
        };
        let (write, target) = match write {
            NetworkWrite::Put { body, etag } => {
                // Only a creation shows its end in a list: a change leaves the resource at rest as it was.
                let target = if etag.is_none() { Target::Present } else { Target::Polled };
                let write = Write::put(&path, version, spelled(body, version), kind).if_match(etag.as_deref());
                let only_make = etag.is_none() && resource_type.can_be_only_made();
                (if only_make { write.if_absent() } else { write }, target)
            }
            NetworkWrite::Patch { body, etag } => {
                (Write::patch(&path, version, body, kind).if_match(etag.as_deref()), Target::Polled)
            }
            NetworkWrite::Post { body, .. } => (Write::post(&path, version, Some(body), kind), Target::Polled),
            NetworkWrite::Delete { etag } => {
                let write = Write::delete(&path, version, kind).if_match(etag.as_deref());
                (write, Target::Absent)
            }
        };
        let write = write.repeat(Repeat::Never).patience(Patience::None).with_permit(permit);
        let operation = self.arm.write(write, until).await?;
        Ok(match resource_type.shared() {
            Some(shared) => operation.watched(Watching {
                broker: self.broker.clone(),
                resource_type: shared,
                api_version: self.api_version,
                resource: id.clone(),
                target,
            }),
            None => operation,
        })
    }
}

/// A body in the spelling of an API version. Azure Stack Hub refuses members that are newer than its own, and knows the
/// threshold of a probe by its older name alone (source: the provider's swagger of 2021-05-01, which has no
/// `probeThreshold` yet).
fn spelled(mut body: Value, api_version: &str) -> Value {
    if api_version == AZURE_STACK_API_VERSION {
        let probes = body.pointer_mut("/properties/probes").and_then(Value::as_array_mut);
        for probe in probes.into_iter().flatten() {
            let Some(properties) = probe.get_mut("properties").and_then(Value::as_object_mut) else { continue };
            if let Some(threshold) = properties.remove("probeThreshold") {
                properties.insert("numberOfProbes".to_owned(), threshold);
            }
        }
    }
    body
}

/// The failure of a read whose answer lacks what decisions rest on.
pub fn unreadable(id: &ArmId, why: &impl std::fmt::Display) -> ArmError {
    let message = format!("the answer cannot be used: {why}");
    Failure::ours(Fault::Malformed, Effect::None, Verb::Get, id.as_str(), message).into()
}

impl Freshness {
    /// A read that is sent no earlier than this.
    #[must_use]
    pub fn not_before(self, not_before: Instant) -> Self {
        Self { not_before, ..self }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn azure_stack_hub_gets_the_threshold_of_a_probe_by_its_older_name() {
        let body = json!({"properties": {"probes": [{"name": "a", "properties": {"port": 80, "probeThreshold": 4}}]}});
        assert_eq!(spelled(body.clone(), API_VERSION), body);
        let older = json!({"properties": {"probes": [{"name": "a", "properties": {"port": 80, "numberOfProbes": 4}}]}});
        assert_eq!(spelled(body, AZURE_STACK_API_VERSION), older);
        assert_eq!(spelled(json!({"properties": {}}), AZURE_STACK_API_VERSION), json!({"properties": {}}));
    }

    #[test]
    fn azure_stack_hub_has_no_private_link_services() {
        assert!(NetworkType::PrivateLinkService.is_in(API_VERSION));
        assert!(!NetworkType::PrivateLinkService.is_in(AZURE_STACK_API_VERSION));
        assert!(NetworkType::LoadBalancer.is_in(AZURE_STACK_API_VERSION));
    }

    #[test]
    fn a_part_of_another_resource_is_read_alone() {
        assert!(NetworkType::BackendPool.shared().is_none());
        assert_eq!(NetworkType::BackendPool.kind(), NetworkType::LoadBalancer.kind());
        for shared in [NetworkType::LoadBalancer, NetworkType::PublicIp] {
            assert!(shared.shared().is_some());
        }
    }
}
