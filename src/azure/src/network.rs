//! Load balancers, route tables and their kin: which request is which. Bodies are values; what to write in them is decided in
//! `lazuli-plan`.
//!
//! No write here is repeated, and none waits: each brings its permit along, for the caller must read and plan again before
//! another try. Reads of one type in one resource group are shared, and many single reads become one list; so are looks
//! at creations of public IPs, of which a storm makes hundreds.

use std::sync::Arc;

use lazuli_plan::{
    fault::{Effect, Fault},
    model::{ArmId, ProvisioningState},
    permit::Priority,
    poll::Kind,
    read::{Listed, Target},
};
use serde_json::Value;
use tokio::time::Instant;

use crate::{
    arm::{Arm, Operation, Patience, Repeat, Watching, Write},
    broker::{Broker, Fields, ResourceType},
    compute::{ApiVersions, Freshness},
    error::{ArmError, Failure, Verb},
    metrics,
    permits::Permit,
    until::Until,
};

/// The API version of the network provider's types (source: what the Go cloud-controller-manager sends).
pub const API_VERSION: &str = "2025-05-01";
/// The same on Azure Stack Hub (source: its profile of 2020-09-01).
pub const AZURE_STACK_API_VERSION: &str = "2018-11-01";

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
    /// `virtualNetworks/subnets`
    Subnet,
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
            Self::PrivateLinkService => Kind::PrivateLink,
            Self::RouteTable => Kind::RouteTable,
            Self::Subnet => Kind::Other,
        }
    }

    /// How its reads are shared; `None` for what is a part of another resource.
    fn shared(self) -> Option<&'static ResourceType> {
        match self {
            Self::LoadBalancer => Some(&LOAD_BALANCERS),
            Self::SecurityGroup => Some(&SECURITY_GROUPS),
            Self::PublicIp => Some(&PUBLIC_IPS),
            Self::Interface => Some(&INTERFACES),
            Self::PrivateLinkService => Some(&PRIVATE_LINK_SERVICES),
            Self::RouteTable => Some(&ROUTE_TABLES),
            Self::BackendPool | Self::Subnet => None,
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
            let read = self.arm.get(id.as_str(), self.api_version, &[], priority, until).await?;
            return Ok(NetworkRead { body: Arc::new(read.value), etag: read.etag, sent_at: read.sent_at });
        };
        let read = self.broker.read(shared, self.api_version, id, freshness);
        let read = until.run(read).await.map_err(late)??;
        // Children of a list have their ETags in the body alone.
        let etag = read.etag.or_else(|| read.value.get("etag").and_then(Value::as_str).map(str::to_owned));
        Ok(NetworkRead { body: read.value, etag, sent_at: read.seen.sent_at })
    }

    /// Lists all resources of a type in a resource group.
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
        let path = format!("/subscriptions/{subscription}/resourceGroups/{resource_group}/providers/{name}");
        Ok(self.arm.list_of(&path, self.api_version, &[], until).await?.items)
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
        let path = format!(
            "/subscriptions/{subscription}/resourceGroups/{resource_group}/providers/Microsoft.Compute/virtualMachines"
        );
        let versions = match self.api_version {
            AZURE_STACK_API_VERSION => ApiVersions::azure_stack(),
            _ => ApiVersions::public(),
        };
        Ok(self.arm.list_of(&path, versions.virtual_machines, &[], until).await?.items)
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
        let kind = resource_type.kind();
        let (write, target) = match write {
            NetworkWrite::Put { body, etag } => {
                // Only a creation shows its end in a list: a change leaves the resource at rest as it was.
                let target = if etag.is_none() { Target::Present } else { Target::Polled };
                (Write::put(id.as_str(), self.api_version, body, kind).if_match(etag.as_deref()), target)
            }
            NetworkWrite::Delete { etag } => {
                let write = Write::delete(id.as_str(), self.api_version, kind).if_match(etag.as_deref());
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

impl Freshness {
    /// A read that is sent no earlier than this.
    #[must_use]
    pub fn not_before(self, not_before: Instant) -> Self {
        Self { not_before, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_another_resource_is_read_alone() {
        assert!(NetworkType::BackendPool.shared().is_none());
        assert_eq!(NetworkType::BackendPool.kind(), NetworkType::LoadBalancer.kind());
        for shared in [NetworkType::LoadBalancer, NetworkType::PublicIp] {
            assert!(shared.shared().is_some());
        }
    }
}
