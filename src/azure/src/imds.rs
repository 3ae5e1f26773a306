//! What the instance metadata service tells a machine about itself, without credentials.
//!
//! It allows five requests a second per machine, so answers are kept: [`Imds::instance`] gives the one at hand,
//! [`Imds::refresh`] a newer one, at most every 200 ms and one for all who ask meanwhile. It lags behind the compute
//! provider by seconds: a disk may be absent that is attached, or present that is gone. All its values are texts.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use futures::{
    FutureExt,
    future::{BoxFuture, Shared},
};
use http::{HeaderMap, HeaderValue, Method};
use lazuli_model::{ArmId, Gib, Lun};
use serde_json::Value;
use tokio::time::Instant;
use url::Url;

use crate::transport::{IMDS_ORIGIN, Transport, TransportError};

/// The version asked for (source: what the Go drivers send).
const API_VERSION: &str = "2021-10-01";
/// The version asked for in questions about load balancing (source: what the Go cloud-node-manager sends).
const LOAD_BALANCER_API_VERSION: &str = "2020-10-01";
/// The shortest time between two requests (source: Microsoft docs, instance-metadata-service: 5 per second).
const SHORTEST_INTERVAL: Duration = Duration::from_millis(200);

/// The tag that tells the interconnect group. Source: the Go cloud-node-manager.
const INTERCONNECT_GROUP: &str = "Platform_Interconnect_Group";

/// A machine, as it is told about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instance {
    /// The name of the VM resource; `{scale set}_{instance}` in a uniform scale set.
    pub name: String,
    /// The region, as Azure spells it.
    pub location: String,
    /// The zone, if the machine is zonal.
    pub zone: Option<String>,
    /// The fault domain, as a text.
    pub platform_fault_domain: Option<String>,
    /// The part of the fault domain.
    pub platform_sub_fault_domain: Option<String>,
    /// The machines that share a fast network with it, as a tag of Azure's tells it.
    pub interconnect_group: Option<String>,
    /// The VM size.
    pub vm_size: String,
    /// The ARM id of the VM.
    pub resource_id: ArmId,
    /// The subscription.
    pub subscription_id: String,
    /// The resource group.
    pub resource_group: String,
    /// The scale set, if it is in one.
    pub scale_set: Option<String>,
    /// The data disks that the service knows of.
    pub data_disks: Vec<InstanceDisk>,
    /// The first address of each family of its first NIC, as the Go cloud-node-manager takes them. Public addresses of the
    /// Standard SKU are missing: [`Imds::addresses`] has them.
    pub addresses: Vec<InterfaceAddress>,
}

/// A data disk, as a machine is told about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceDisk {
    /// Its slot.
    pub lun: Lun,
    /// What is in it.
    pub source: InstanceDiskSource,
    /// Its name.
    pub name: String,
    /// The size that Azure bills, if told.
    pub size: Option<Gib>,
    /// The size in bytes, if told.
    pub bytes: Option<u64>,
}

/// What a data disk is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InstanceDiskSource {
    /// A managed disk.
    Managed(ArmId),
    /// A VHD in a page blob, by its URI.
    Vhd(String),
    /// The service does not tell.
    Unknown,
}

/// The metadata service gave no usable answer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ImdsError {
    /// No answer: this is no Azure VM, a network policy forbids it, or the service is down.
    #[error("the instance metadata service gives no answer")]
    Unreachable(#[source] TransportError),
    /// Too many requests, from this process or another on the machine.
    #[error("the instance metadata service is asked too often")]
    Throttled,
    /// Another refusal.
    #[error("the instance metadata service answers {status}: {text}")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// Its words.
        text: String,
    },
    /// An answer without a field that is needed.
    #[error("the answer of the instance metadata service cannot be read: {field} {why}")]
    Malformed {
        /// The field.
        field: String,
        /// What is wrong with it.
        why: String,
    },
}

/// The client; clones share what is known.
#[derive(Clone)]
pub struct Imds(Arc<Inner>);

struct Inner {
    transport: Transport,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// With the moment it was asked for, so that a late answer does not replace a newer one.
    known: Option<(Instant, Arc<Instance>)>,
    asked: Option<Instant>,
    flight: Option<Flight>,
}

type Flight = Shared<BoxFuture<'static, Result<Arc<Instance>, ImdsError>>>;

impl std::fmt::Debug for Imds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Imds").field("transport", &self.0.transport).finish_non_exhaustive()
    }
}

impl Imds {
    /// A client. Nothing is asked for yet.
    pub fn new(transport: Transport) -> Self {
        Self(Arc::new(Inner { transport, state: Mutex::default() }))
    }

    /// What is known, from memory if anything is.
    ///
    /// # Errors
    /// When nothing is known and the service gives no usable answer.
    pub async fn instance(&self) -> Result<Arc<Instance>, ImdsError> {
        let known = self.0.lock().known.clone();
        match known {
            Some((_, instance)) => Ok(instance),
            None => self.refresh().await,
        }
    }

    /// Asks anew. Those who ask while a question is out get its answer only if it was not sent yet; else theirs is
    /// the next one, so that an answer is never older than the call.
    ///
    /// # Errors
    /// When the service gives no usable answer. What was known is kept.
    pub async fn refresh(&self) -> Result<Arc<Instance>, ImdsError> {
        let flight = {
            let mut state = self.0.lock();
            match &state.flight {
                // One that is over and still here ended in a panic.
                Some(flight) if flight.peek().is_none() => flight.clone(),
                _ => {
                    // A task of its own: one caller that gives up must not stop it for the others.
                    let task = tokio::spawn(self.0.clone().ask());
                    let flight = task
                        .map(|joined| {
                            joined.unwrap_or_else(|panic| {
                                Err(ImdsError::Malformed { field: "the answer".to_owned(), why: panic.to_string() })
                            })
                        })
                        .boxed()
                        .shared();
                    state.flight = Some(flight.clone());
                    flight
                }
            }
        };
        flight.await
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn ask(self: Arc<Self>) -> Result<Arc<Instance>, ImdsError> {
        let due = self.lock().asked.map(|asked| asked + SHORTEST_INTERVAL);
        if let Some(due) = due {
            tokio::time::sleep_until(due).await;
        }
        let asked = Instant::now();
        {
            let mut state = self.lock();
            state.asked = Some(asked);
            // From here on the answer may be older than a question.
            state.flight = None;
        }
        let instance = Arc::new(self.fetch().await?);
        let mut state = self.lock();
        if state.known.as_ref().is_none_or(|(when, _)| *when < asked) {
            state.known = Some((asked, instance.clone()));
        }
        Ok(instance)
    }

    async fn fetch(&self) -> Result<Instance, ImdsError> {
        decode(&self.get(&format!("instance?api-version={API_VERSION}&format=json")).await?)
    }

    async fn get(&self, what: &str) -> Result<Value, ImdsError> {
        let url = Url::parse(&format!("{IMDS_ORIGIN}/metadata/{what}"))
            .map_err(|error| malformed("the address", error.to_string()))?;
        let mut headers = HeaderMap::new();
        headers.insert("metadata", HeaderValue::from_static("true"));
        let answer =
            self.transport.send(Method::GET, &url, headers, Bytes::new()).await.map_err(ImdsError::Unreachable)?;
        match answer.status().as_u16() {
            200 => {}
            429 => return Err(ImdsError::Throttled),
            status => {
                let text = String::from_utf8_lossy(answer.body()).trim().chars().take(300).collect();
                return Err(ImdsError::Refused { status, text });
            }
        }
        serde_json::from_slice(answer.body()).map_err(|error| malformed("the document", error.to_string()))
    }
}

fn malformed(field: &str, why: impl Into<String>) -> ImdsError {
    ImdsError::Malformed { field: field.to_owned(), why: why.into() }
}

/// Reads the instance document.
fn decode(value: &Value) -> Result<Instance, ImdsError> {
    let compute = value.get("compute").ok_or_else(|| malformed("compute", "is missing"))?;
    let optional = |key: &str| {
        let text = compute.get(key).and_then(Value::as_str);
        text.filter(|text| !text.is_empty()).map(str::to_owned)
    };
    let needed = |key: &str| optional(key).ok_or_else(|| malformed(&format!("compute.{key}"), "is missing"));
    let resource_id = needed("resourceId")?;
    let disks = compute.pointer("/storageProfile/dataDisks").and_then(Value::as_array);
    Ok(Instance {
        name: needed("name")?,
        location: needed("location")?,
        zone: optional("zone"),
        platform_fault_domain: optional("platformFaultDomain"),
        platform_sub_fault_domain: optional("platformSubFaultDomain"),
        interconnect_group: tag(compute, INTERCONNECT_GROUP),
        vm_size: needed("vmSize")?,
        resource_id: resource_id
            .parse()
            .map_err(|error| malformed("compute.resourceId", format!("cannot be read: {error}")))?,
        subscription_id: needed("subscriptionId")?,
        resource_group: needed("resourceGroupName")?,
        scale_set: optional("vmScaleSetName"),
        data_disks: disks.into_iter().flatten().map(decode_disk).collect::<Result<_, _>>()?,
        addresses: addresses::of_interface(value),
    })
}

fn tag(compute: &Value, name: &str) -> Option<String> {
    let tags = compute.get("tagsList").and_then(Value::as_array)?;
    let found = tags.iter().find(|tag| tag.get("name").and_then(Value::as_str) == Some(name))?;
    found.get("value").and_then(Value::as_str).filter(|value| !value.is_empty()).map(str::to_owned)
}

fn decode_disk(value: &Value) -> Result<InstanceDisk, ImdsError> {
    let field = |key: &str| format!("compute.storageProfile.dataDisks[].{key}");
    let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str).filter(|text| !text.is_empty());
    // Numbers are texts here; a future version may mend that.
    let number = |key: &str| {
        let value = value.get(key)?;
        value.as_u64().or_else(|| value.as_str()?.parse().ok())
    };
    let lun = number("lun")
        .and_then(|lun| Lun::try_from(i64::try_from(lun).ok()?).ok())
        .ok_or_else(|| malformed(&field("lun"), "is no LUN"))?;
    let source = match (text("/managedDisk/id"), text("/vhd/uri")) {
        (Some(id), _) => InstanceDiskSource::Managed(
            id.parse().map_err(|error| malformed(&field("managedDisk.id"), format!("cannot be read: {error}")))?,
        ),
        (None, Some(uri)) => InstanceDiskSource::Vhd(uri.to_owned()),
        (None, None) => InstanceDiskSource::Unknown,
    };
    Ok(InstanceDisk {
        lun,
        source,
        name: text("/name").unwrap_or_default().to_owned(),
        size: number("diskSizeGB").and_then(|gib| u32::try_from(gib).ok()).map(Gib::new),
        bytes: number("diskCapacityBytes"),
    })
}

mod addresses;
#[cfg(test)]
mod tests;

pub use addresses::InterfaceAddress;
