//! The client of Azure: it carries out what the crates of pure functions decided, and reads what is there.
//!
//! | module | owns |
//! |---|---|
//! | [`transport`] | the one HTTP client: pool, TLS, proxies, time-outs, the table of routes |
//! | [`auth`] | tokens: one for all callers, renewed in time |
//! | [`arm`] | the pipeline of a call to the resource manager, retry, paging, operations |
//! | [`permits`] | the queue in which requests wait until Azure has a token for them |
//! | `broker` | reads of resources and looks at operations, shared by all who ask |
//! | [`compute`] | disks and virtual machines: requests, answers, lossless edits |
//! | [`network`] | load balancers, security groups, public IPs, NICs: requests and answers |
//! | [`blob`] | page blobs and their containers: requests signed with an account's key, and answers |
//! | [`storage`] | storage accounts with their keys, file services and file shares: requests and answers |
//! | `decode` | members of Azure's JSON |
//! | [`imds`] | what a machine is told about itself |
//! | [`endpoints`] | what a resource manager says of its cloud |
//! | [`error`] | what went wrong, for the program and for the reader |
//! | [`metrics`] | what is counted |
//!
//! ```no_run
//! # async fn f() -> Result<(), Box<dyn std::error::Error>> {
//! use lazuli_azure::{
//!     Until,
//!     arm::{Arm, Retry},
//!     auth::{Credential, ManagedIdentity, Tokens},
//!     compute::{ApiVersions, Compute},
//!     metrics::Metrics,
//!     transport::{Routes, Tls, Transport},
//! };
//! let transport = Transport::new(Routes::none(), &Tls::default())?;
//! let credential = Credential::ManagedIdentity(ManagedIdentity::SystemAssigned);
//! let tokens = Tokens::new(transport.clone(), credential, "https://management.azure.com/", 1);
//! let endpoint = "https://management.azure.com/".parse()?;
//! let arm = Arm::new(endpoint, transport, tokens, Metrics::unregistered(), Retry::default(), 1);
//! let compute = Compute::new(arm, ApiVersions::public());
//! let disk = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/d".parse()?;
//! let disk = compute.get_disk(&disk, &Until::within(std::time::Duration::from_secs(30))).await?;
//! println!("{} is {}", disk.model.id, disk.model.size);
//! # Ok(())
//! # }
//! ```
//!
//! Nothing here chooses: which write to send is decided before it comes here. Nothing here outlives its caller but
//! the renewal of a token, the reading of metadata, and the task that hands out permits while other requests wait for
//! one; an accepted [`arm::Operation`] goes on in Azure.
//! Waiting is on tokio's clock and randomness from one seed, so that a simulation can be replayed call by call.

pub mod arm;
pub mod arm_requests;
pub mod auth;
pub mod blob;
mod broker;
pub mod compute;
mod decode;
#[cfg(test)]
mod emulated;
pub mod endpoints;
pub mod error;
pub mod imds;
pub mod metrics;
pub mod network;
#[cfg(any(test, feature = "testing"))]
pub mod on_emulator;
pub mod permits;
mod random;
pub mod storage;
#[cfg(test)]
mod testing;
pub mod transport;
mod until;

pub use until::Until;
