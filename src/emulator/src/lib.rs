//! Azure itself as a local HTTP server.
//!
//! One process plays the resource manager, the login service, the instance metadata service, the blob services of storage
//! accounts and `/metadata/endpoints`, all on one port, with a page for a browser at `/` and a control interface under `/_emulator/`. It imports
//! nothing of the rest of the project, so it cannot share a mistake with what is tested on it.
//!
//! ```text
//! request ─▶ router: incidents, sign-in, buckets ─▶ arm: routes, engine ─▶ store (documents)
//!                                                       │ accept             ▲ effect, when due
//!                                                       └──▶ operations ─────┘
//! ```
//!
//! A resource type is data: how to add one is told in `arm::descriptor`.
//!
//! # Contract
//!
//! Evidence: **R** recorded from live traffic, **D** documented by Microsoft or a real body in a public
//! tracker, **U** unverified. An unverified behaviour that a client can tell apart is a field of
//! [`Switches`]; the rest are texts and orders of checks, marked where they are written.
//!
//! | request | answer | evidence |
//! |---|---|---|
//! | any, without `Authorization` / with a foreign token | 401 `AuthenticationFailed` / `InvalidAuthenticationToken`, `WWW-Authenticate` | D |
//! | any, without `api-version` | 400 `MissingApiVersionParameter` | D |
//! | an api-version that the type does not have | 400 `InvalidApiVersionParameter` (the gateway's own types), `NoRegisteredProviderFound` (a resource), `InvalidResourceType` (a list), with the list of those it has | D |
//! | which ones are refused | no dates, older than the type, in the future; unpublished ones by [`Options::api_versions`] | deviation: real Azure takes published ones only |
//! | any other | accepted, and echoed in operation URLs | R |
//! | a token of another tenant | 401 `InvalidAuthenticationTokenTenant` | D |
//! | an unknown `$expand` on machines, networks and interfaces | 400 | D, the network provider's code U |
//! | HEAD of what is no group | 405 | D |
//! | unknown subscription, group, resource, type, namespace | 404 from the gateway with `x-ms-failure-cause: gateway` | R, D |
//! | a token that has expired / is for another service | 401 `ExpiredAuthenticationToken` / `InvalidAuthenticationTokenAudience` | D |
//! | what no role of the caller allows | 403 `AuthorizationFailed` from the gateway with action and scope; also of what does not exist | D; of actions on what a body names only the next |
//! | a copy without `beginGetAccess` on its source | 403 `LinkedAuthorizationFailed` from the gateway | D, within a group U: [`Switches::linked_access_in_group`] |
//! | `Microsoft.Authorization/permissions` at a subscription, group or resource | one entry for each role of the caller there, `*` without roles | D; whether asking needs a role U: [`Switches::permissions_need_a_role`] |
//! | a body over 4 MiB | 413 `RequestContentTooLarge` | D |
//! | a member that no resource has at its top | 400 `InvalidRequestContent` from the gateway | D |
//! | tags: more than 50, names over 512 or values over 256 characters, reserved characters | 400 | D, the code for too many U |
//! | deployment PUT / DELETE of a template to a group | 201 or 200 with `Azure-AsyncOperation`, `Running` until the last resource has ended / 202, what it made stays | D, the 202 U |
//! | … one of whose resources is refused | `DeploymentFailed` with the refusals, nothing new begins | D |
//! | … with loops, linked templates, mode `Complete`, functions that tools do not generate | 400 `InvalidTemplate`, which says so | deviation |
//! | … with more than 256 parameters or variables, or whose functions make more than 16 MiB | 400 `InvalidTemplate`, which says so | D, the size a deviation: Azure takes 4 MB once expanded |
//! | types that are not emulated, such as images and galleries | 404 `InvalidResourceType`, as in a cloud without them | D but for the sentence that says so |
//! | `providers`, `resources` of a subscription or group | registered; members without `properties` | D |
//! | `%2F` in a path | divides nothing; no name may hold it | U |
//! | unknown member or wrong type in a body | 400 `BadRequest` with path and position; enumerations 400 `InvalidParameter` | D |
//! | group PUT / DELETE | 201 or 200 at once / 202 and `Location` only, then 200 without a body | R |
//! | group DELETE with a disk or network interface that another group's machine holds | 202, later 409 `ResourceGroupDeletionBlocked`; the rest is gone | D, the rest U |
//! | disk PUT, PATCH | 202, both operation headers, also when nothing changes | R |
//! | disk DELETE | 202 both headers; 204 when absent; 409 while attached | R, D |
//! | … while another operation has the disk | 409 `Conflict` | D; that a deletion is one U |
//! | disk of another SKU | HDD and SSD into each other and into Premium v2; nothing from or to Ultra | D |
//! | … a third time in a day; a fifth change of IOPS and MB/s; a tier lowered again, bursting disabled within 12 hours | 409 | D, codes and texts U, whether SKUs are counted: [`Switches::sku_twice_a_day`] |
//! | Ultra and Premium v2 disks made from snapshots and disks, disks converted to Premium v2 | `completionPercent` grows from 0 to 100 after the operation has ended; they are used meanwhile | D, from disks and by tens U |
//! | … 51 of them in a subscription, six of a snapshot, 16 by instant access of a disk at a time | 409 | D, codes and texts U, what counts: [`Switches::filling_disk_counts`] |
//! | … a snapshot or copy of one that is being filled | taken; 409 with instant access | U: [`Switches::filling_disk_is_source`] / D |
//! | disk copied into another zone | 400 `InvalidParameter` | D, into and from no zone U: [`Switches::zonal_disk_stays_in_zone`] |
//! | copy in another edge zone than its source | 400 `InvalidParameter` | D |
//! | size that is no whole GiB, of an uploaded disk and its copies | `diskSizeBytes` exact | D, `diskSizeGB` U: [`Switches::size_rounding`] |
//! | disk grown past 4 TiB | 409 while attached, also to a deallocated machine; not Ultra and Premium v2 | D |
//! | disk `beginGetAccess`, `endGetAccess` | 202, result at `Location` and in `properties.output` | D |
//! | snapshot PUT, PATCH, DELETE | as of a disk | R, D |
//! | snapshot or disk of a source in another region / that is no disk and no snapshot | 404 `NotFound` / 400 `InvalidParameter` | D |
//! | … of a source that is being created or deleted, or whose copy is not complete | 409 `OperationNotAllowed` | D, code and text U |
//! | snapshot PUT with another source | 400 `BadRequest` | D |
//! | the SKU that an incremental snapshot is not asked to have | that of the one before, else `Standard_ZRS` where there are zones | D |
//! | full snapshot of an Ultra or Premium v2 disk; incremental one on Premium; an eighth in five minutes, a 501st of a disk | refused | D, the texts U |
//! | snapshot by `CopyStart`, incremental snapshot of an Ultra or Premium v2 disk | `completionPercent` grows from 0 to 100 after the operation has ended | D, by tens U |
//! | … with instant access | used from the start, for its time, for Ultra and Premium v2 disks of its size | D, codes and texts U |
//! | … a fourth of a disk at a time | 409 | D, code and text U |
//! | … whose disk grows or is deleted before 100 | `copyCompletionError` | D that growth fails it; U: [`Switches::failed_snapshot_shows`], [`Switches::pending_source_deletable`] |
//! | `CopyStart` of a full snapshot, of a disk, while another of the disk is copied, out of order | 400 or 409 | D, the texts U |
//! | `CopyStart` within its region | 409 | U: [`Switches::copy_start_in_region`] |
//! | snapshot DELETE while it is copied in the background | 202, and the copy gets `copyCompletionError` | D, that nothing refuses it U: [`Switches::copy_source_deletable`] |
//! | … while a disk or snapshot is created from it | 409 `OperationNotAllowed` | U; once a disk is made and is being filled: [`Switches::filled_source_deletable`] |
//! | snapshot `beginGetAccess` | for reading alone, of five snapshots of a family at a time | D, the refusals U |
//! | machine PUT, new | 201, `Azure-AsyncOperation` only, `ETag: "1"`, then `"2"` | R |
//! | machine PUT, nothing changes | 200, etag + 1, `Updating`, no operation header | R |
//! | machine PUT without `location` | 400 `LocationRequired` | U: [`Switches::put_needs_location`] |
//! | machine PUT or PATCH with data disks | 200 and `Azure-AsyncOperation`; absent members stay | D |
//! | data disks left out of a given array | detached; `[]` detaches all | U: [`Switches::left_out_of_put`], [`Switches::left_out_of_patch`] |
//! | `attachDetachDataDisks` (from 2024-03-01) | 202, both headers, storage profile at `Location` | D |
//! | … a LUN left out | the lowest free one | U |
//! | … attach of what is attached, detach of what is not | 409 | U: [`Switches::attach_attached`], [`Switches::detach_unattached`] |
//! | a machine write while one runs | 409 `Conflict`, or the older fails with `OperationPreempted` | U which: [`Switches::concurrent_vm_write`] |
//! | `If-Match` that does not match | 412 with the provider's own text | R |
//! | `managedBy`, `diskState`, LUN map | change when the operation ends, never before | D |
//! | failed attach / detach | element leaves the model / stays marked: `AttachDiskWhileBeingDetached` | U ([`Switches::failed_attach_stays_in_model`]) / D |
//! | machine extension PUT, PATCH, DELETE | as a network resource; protected settings never show; 409 unless the machine runs | D |
//! | scale set PUT, PATCH, DELETE | 201, then 200, `Azure-AsyncOperation` only; 202 both headers; `x-ms-request-charge` | R, what is charged U |
//! | the etag of a scale set | `"1"`, one more with each change of it; an unchanged PUT and the end of a creation change nothing | R |
//! | … after a write of an instance | another | D, when U |
//! | members left out of a PUT of a set or an instance | stay; lists are replaced | D |
//! | `hardwareProfile` left out of a PUT of an instance | stays | U: [`Switches::instance_put_keeps_hardware`] |
//! | a change of what a set is made with: orchestration, prefix, zones less | 409 `PropertyChangeNotAllowed` | D, which members U |
//! | uniform instances | `SET_N`, numbers never twice, computer name with N in six digits of base 36 | D, capitals U |
//! | flexible instances | machines `SET_xxxxxxxx` with interfaces of their own, which go with the set | D, the latter U |
//! | capacity down | the highest number of the fullest zone goes first | D |
//! | capacity after the deletion of an instance | one less | D |
//! | instance PUT | 200, `Azure-AsyncOperation`, `Updating`, `x-ms-request-charge: 0` | R |
//! | instance id that is no number | 400 `InvalidParameter` of `instanceId` | R |
//! | an instance that is not there: writes / GET | 400 `InvalidParameter` of `instanceIds` / 404 | D / U: [`Switches::missing_instance`] |
//! | an instance that is being created | 409 to writes | D, at the operation's end U |
//! | a changed model | `latestModelApplied: false`, until `manualupgrade`, or by the upgrade policy | D |
//! | network interfaces of instances | by the instance's own configurations, when its write ends; addresses stay | D, that they stay U |
//! | the same of a flexible set | 404 `NotFound` | D, the code U |
//! | DELETE of a load balancer / a pool or NAT pool alone that a model or an instance names | 400 | D / the code U |
//! | `$filter` of instances | by `latestModelApplied` and codes of the instance view | D, other forms U |
//! | fault domains of instances | dealt out in turn | U |
//! | virtual network PUT / network interface PUT | 201 and `Azure-AsyncOperation` / synchronous | R |
//! | a machine in deletion | 409 `OperationNotAllowed` for all but another DELETE, which ends with the first | D |
//! | switch off, restart, redeploy a deallocated machine | 409 `OperationNotAllowed` | D |
//! | a disk that several want at once | the first to end has it; the others fail late with `ConflictingUserInput` | D |
//! | a disk's access signature | ends after its time | D; that the disk's state follows at once U |
//! | a finished operation | can be polled for a day, the newest 50,000 at most; then 404 | U |
//! | subnets outside of their network or over each other | 400 `NetcfgSubnetRangeOutsideVnet` / `NetcfgSubnetRangesOverlap` | D |
//! | a prefix of a network or subnet that is none or begins within itself, a subnet without one / below a /29 | 400 | D / the code U |
//! | virtual network PUT without `subnets` | from 2023-09-01 on they stay, before they go | D |
//! | a subnet | shows the configurations that have its addresses | D |
//! | `CheckIPAddressAvailability` and `usages` of a virtual network | what is free and what is given out | D, which addresses are the platform's U |
//! | interfaces of a load balancer, load balancers of an interface | lists of both | D |
//! | public IP PUT | 201, then 200, and `Azure-AsyncOperation`; a static address comes with the end | R |
//! | a newer PUT of a public IP, load balancer, security group, route table or private link while one runs | the older ends as `Canceled`, or the newer is refused: 409 `AnotherOperationInProgress`, 429 `RetryableError` | D that there are all three, U which: [`Switches::concurrent_network_write`] |
//! | load balancer PUT | 201, then 200, and `Azure-AsyncOperation`; `Succeeded` at once | R for one without backends, else U: [`Switches::load_balancer_shows_updating`] |
//! | backend pool, NAT rule, security rule, route: PUT, GET, DELETE alone | as of a subnet; the resource and all its parts have a new etag | D |
//! | frontends, rules, probes, pools, public IPs, security groups, route tables | show who refers to them | D, the form R for public IPs |
//! | a pool of network interfaces | shows them in `loadBalancerBackendAddresses` too | D, the names U: [`Switches::interface_pool_shows_addresses`] |
//! | a write of what names another resource, such as a load balancer and its public IP | the other has a new etag | D, for which writes U: [`Switches::related_etags`] |
//! | a reference to what does not exist, no longer in this body, or in another region | 400 `InvalidResourceReference` | D |
//! | a reference of a frontend to a public IP or subnet that is not `Succeeded` | 429 `RetryableError`, `ReferencedResourceNotProvisioned` | D |
//! | DELETE of what is named: security group, route table / frontend, pool, NAT rule | 400 | D / U |
//! | … of a whole load balancer that has network interfaces in its pools | they leave | the code of a client: [`Switches::interfaces_leave_deleted_pool`] |
//! | a load balancer without frontends | taken if it has no other parts, else 400 | D |
//! | a rule of protocol `All` with a port | 400 | U: [`Switches::all_protocols_need_port_0`] |
//! | a network interface in two load balancers of one type, of another SKU, of another availability set than the other backends of a Basic one | 400 | D |
//! | two rules of one frontend port / of one backend port without floating IP | 400 | the code U / D |
//! | SKUs, zones, ports, timeouts, probes, outbound rules, limits of a load balancer | 400 | D, most codes U |
//! | security rules: priorities, ports, prefixes, overlaps, what is missing, limits | 400 | D, the codes of limits U |
//! | an interface of several configurations, a machine of several interfaces, none of them primary | 400 | D |
//! | the hardware address of an interface | comes with its first machine and stays | D |
//! | private link service in a subnet with network policies, of a Basic load balancer, deleted with connections | 400 | D, the codes U |
//! | private endpoint of a storage account | one part of the account in `groupIds`, else 400; a connection of both, `Disconnected` when the account goes | D, the code U |
//! | private DNS zone and its link PUT | 202 with both headers; `If-None-Match: *` on one that exists: 412; the zone is global and goes after its links | D, codes U |
//! | … a network with two links to a zone / to two zones of one name | 409 / 400 `BadRequest` | U / D |
//! | DNS zone group of a private endpoint | one, for zones that exist, each with a record without an address | D, the refusal U |
//! | a public IP or prefix that is named, DELETE | 400 `PublicIPAddressCannotBeDeleted` / `InUsePublicIpPrefixCannotBeDeleted` | D |
//! | a network interface with a public IP that another configuration names | 400 `PublicIPAddressInUse` | the code U |
//! | a DNS label that another public IP of its family and region has | 400 `DnsRecordInUse` | D |
//! | the address of a public IP | of 198.18.0.0/15 or 2001:db8::/32, from the seed and the id | deviation: Azure's own ranges |
//! | a network resource whose write fails late | its state is `Failed`, and it shows what was asked | D, the latter U |
//! | operation GET | 200, `InProgress` until due; `Location` form 202 until due, then result or error | R, D |
//! | a list | the present; with [`Switches::list_lag`] each item as it was within the last [`options::LIST_LAG`] | U: [`Switches::list_lag`] |
//! | `nextLink` | goes on after the last item that was shown: what comes or goes in between hides nothing else | U |
//! | too many requests | 429, `Retry-After`, the provider's or the front door's body | D |
//! | storage account PUT, new | 202 without a body, `Location` only, `Retry-After: 17`; polls the same, then the account | R |
//! | … of one that exists, PATCH / DELETE | 200 at once; what it does not name stays / 200, 204 when absent | D, R; that a PUT leaves the rest U |
//! | … of a name that is taken / while it is created / with another kind, SKU or namespace than it has | 409 / 409 / 400 | D, that a repeated creation is refused U |
//! | … that lets in a subnet without a service endpoint, or one that is being written | accepted, then 400 `NetworkAclsValidationFailure` and no account; of a change at once | D, of a change U |
//! | `listKeys`, `regenerateKey` | two keys that follow from the seed; 409 `StorageAccountIsNotProvisioned` until the account is there | D |
//! | file service | soft delete of shares for 7 days; what a PUT does not name stays | D, the latter U |
//! | anything below an account that does not exist | 404 `ParentResourceNotFound` from the gateway | R |
//! | share PUT / PATCH / DELETE | 201 or 200 / 200 / 200 or 204 at once, `etag` in the body; refusals with the request's id and time | R, D |
//! | share DELETE | kept with its snapshots for the days that the file service says, its name free at once; else the name is free 30 s later | D, the first name's U |
//! | too many shares, sizes and speeds that the SKU does not have | 409 / 400 `InvalidHeaderValue` | D, of speeds U |
//! | storage requests over the windows of a subscription and region | 429 `TooManyRequests` | D, `Retry-After` U |
//! | a machine with a blob as its system disk | made, changed and started; with [`Switches::unmanaged_disks_retired`] 400 | D, the code U |
//! | … with blobs as data disks | made or taken, and leased, at the end of the write or with their devices, as `blob::vhd` tells | told there |
//! | a blob and a managed disk in one machine | 409 `OperationNotAllowed` | D |
//! | disk PUT, imported from a VHD | the size of the VHD without its footer, 400 for what is no VHD of the account that is named | D, texts U; one that is leased U: [`Switches::leased_blob_importable`] |
//! | blob service of a storage account | containers and page blobs, as `blob` tells | told there |
//! | locks (`Microsoft.Authorization/locks`), queue and table services | not emulated | |
//!
//! # Page and control interface
//!
//! Beside Azure the emulator serves a page and a control interface, without a token. `GET /` of a browser (no
//! `Authorization`, `text/html` accepted) is the page; any other request of `/` is Azure's. The page shows, once a
//! second, what exists by type, machines with their LUNs, running operations with the time left and the newest calls.
//! It has a card for each load balancer, a line for each security rule and route, the claims of disks, who called, and the
//! JSON of a resource or a call at a click. It loads nothing from elsewhere. What a person orders there, an incident or a
//! machine that stops, is told in words before it is ordered. [`control`] lists what is below `/_emulator/`.
//!
//! | request of the page or of `/_emulator/` | answer |
//! |---|---|
//! | names a host that is neither `localhost`, a loopback address, an address listened on nor in [`Options::names`] | 421 |
//! | comes from a page of another site, by `Sec-Fetch-Site` or `Origin`; a link that opens a document may | 403 |
//! | a POST without `Content-Type: application/json` | 415 |
//! | any other | never a CORS header, never a token, password, access signature or client secret |
//!
//! The planes of Azure answer to these names too, to every address, and to names below `localhost`; a request over a
//! connection that names another host gets 421, so that no page of another site reaches them by a name of its own. The call
//! log is bounded ([`call_log::KEPT_MOST`], [`call_log::KEPT_BYTES`]) and says what it dropped. With TLS, the
//! authority's certificate is limited to the served names and to a year, and signs no other authority.
//!
//! # Time and chance
//!
//! All waiting goes through `tokio::time`; wall-clock stamps are [`Options::start_time`] plus elapsed
//! time. GUIDs come from the seed in order of need; the latency of the nth write of a resource follows
//! from the seed, the resource's id and n, so the order in which different resources are written
//! changes nothing. Same seed and paused time: same call log.

pub mod access;
pub mod api_versions;
pub mod call_log;
pub mod changes;
pub mod control;
mod counted_changes;
pub mod disk_skus;
pub mod ended;
pub mod hypervisor;
pub mod incident;
pub mod latency;
pub mod lower_bound;
pub mod options;
pub mod persist;
pub mod phases;
pub mod scenario;
pub mod sizes;
pub mod smb;
pub mod store;

mod answer;
mod arm;
mod blob;
mod casing;
mod cidr;
mod claim;
mod clock;
mod completion;
mod definition;
mod deploy;
mod derived;
mod document;
mod endpoints;
mod error_chain;
mod fault;
mod history;
mod imds;
mod leases;
mod listener;
mod login;
mod lun_history;
mod metadata;
mod operations;
mod overview;
mod page;
mod path;
mod phase_report;
mod recovery;
mod redact;
mod roles;
mod router;
mod saver;
mod schema;
mod seed;
mod served_names;
mod spawn;
mod state;
mod throttle;
mod tls;
mod unknown_fields;

use std::io;
use std::net::SocketAddr;

use axum::Router;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::DropGuard;

pub use arm::quota_names;
pub use control::Control;
pub use options::{HypervisorChoice, Options, SWITCHES, SwitchError, Switches};
pub use served_names::{HostName, HostNameError};

use crate::arm::compute::disk_controller;
use crate::clock::Clock;
use crate::hypervisor::{Attachment, Hypervisor, HypervisorError};
use crate::served_names::ServedNames;
use crate::smb::{Smb, SmbError};
use crate::state::{Backends, Shared, State};

/// A running emulator. Dropping it without [`Emulator::shutdown`] stops it too, but loses what the
/// state file had not got yet and leaves loop devices behind.
#[derive(Debug)]
pub struct Emulator {
    control: Control,
    address: SocketAddr,
    tls_address: Option<SocketAddr>,
    router: Router,
    servers: Vec<JoinHandle<io::Result<()>>>,
    /// The claim on the state file.
    _state_claim: Option<claim::Claim>,
    /// Stops the servers and the tasks when the emulator goes without a shutdown.
    _stop_on_drop: DropGuard,
}

/// The emulator did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The state file cannot be used.
    #[error("the state file cannot be used")]
    State(#[source] persist::StateFileError),
    /// The files of blobs beside the state file cannot be used.
    #[error("the files of blobs beside the state file cannot be used")]
    Blobs {
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The hypervisor does not start.
    #[error("the hypervisor does not start")]
    Hypervisor(#[source] HypervisorError),
    /// File shares cannot be served.
    #[error("file shares cannot be served")]
    Smb(#[source] SmbError),
    /// TLS cannot be set up.
    #[error("TLS cannot be set up")]
    Tls(#[source] tls::TlsError),
}

impl Emulator {
    /// Listens and serves on the caller's runtime, also a current-thread one with paused time.
    ///
    /// # Errors
    ///
    /// When the address is taken, the state file is unusable, or the hypervisor, file servers or TLS cannot start.
    pub async fn start(options: Options) -> Result<Self, StartError> {
        let listen = options.listen;
        let (tcp, address) = bind(listen).await?;
        let names = ServedNames::new([listen].into_iter().chain(options.listen_tls), &options.names);
        let tls = match options.listen_tls {
            Some(listen) => {
                // The machine's own time: clients compare with theirs, whatever time is emulated.
                let now = jiff::Timestamp::now();
                let folder = options.tls_folder.as_deref();
                let authority = tls::Authority::new(folder, &names, now).map_err(StartError::Tls)?;
                let (tcp, address) = bind(listen).await?;
                Some((tcp, address, authority))
            }
            None => None,
        };
        let clock = Clock::new(options.start_time, options.time_scale);
        let mut state = State::new(&options, arm::TYPES);
        let claimed = match &options.state_file {
            Some(path) => Some(persist::claim(path).map_err(StartError::State)?),
            None => None,
        };
        let kept = match &options.state_file {
            Some(path) => persist::load(path).map_err(StartError::State)?,
            None => None,
        };
        match kept {
            Some(exported) => {
                state.store.import(exported);
                state.recover();
                state.set_alarms(options.start_time);
            }
            None => state.seed(&options.scenario, &clock.stamp(std::time::Duration::ZERO)),
        }
        blob::documents::adopt(&mut state.store, &mut state.blobs).map_err(|source| StartError::Blobs { source })?;
        state.store.forget_the_past();
        for vm in state.store.machines() {
            state.remember_luns(vm["id"].as_str().unwrap_or(""), std::time::Duration::ZERO);
        }
        let backends = backends(&options, &mut state).await?;
        let ca_pem = tls.as_ref().map(|(_, _, authority)| authority.ca_pem().to_owned());
        let shared = Shared::new(
            options,
            format!("http://{address}"),
            std::sync::Arc::new(names),
            ca_pem,
            backends,
            clock,
            state,
        );
        let tls_address = tls.as_ref().map(|(_, address, _)| *address);
        let router = router::router(&shared, tls_address.map(|address| address.port()));
        let mut servers = vec![tokio::spawn(listener::serve(tcp, router.clone(), shared.stop.clone()))];
        if let Some((tcp, _, authority)) = tls {
            let (router, stop) = (router.clone(), shared.stop.clone());
            servers.push(tokio::spawn(async move { tls::serve(tcp, &authority, router, stop).await }));
        }
        if shared.options.state_file.is_some() {
            let shared = std::sync::Arc::clone(&shared);
            tokio::spawn(async move {
                if let Some(path) = &shared.options.state_file {
                    tokio::select! {
                        () = shared.stop.cancelled() => {}
                        () = persist::keep(&shared, path) => {}
                    }
                }
            });
        }
        let stop_on_drop = shared.stop.clone().drop_guard();
        Ok(Self {
            _state_claim: claimed,
            _stop_on_drop: stop_on_drop,
            control: Control { shared },
            address,
            tls_address,
            router,
            servers,
        })
    }

    /// Where it is reached, without a slash at the end: every plane is below this one URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The same over TLS, when asked for.
    #[must_use]
    pub fn tls_url(&self) -> Option<String> {
        self.tls_address.map(|address| format!("https://{address}"))
    }

    /// The authority's certificate (PEM), with TLS.
    #[must_use]
    pub fn ca_pem(&self) -> Option<&str> {
        self.control.shared.ca_pem.as_deref()
    }

    /// The whole service for use in process. An answer lost on purpose is a broken body here.
    pub fn service(&self) -> Router {
        self.router.clone()
    }

    /// The same for requests that stand for such over TLS, which accounts that take https alone ask for.
    pub fn service_over_tls(&self) -> Router {
        self.router.clone().layer(axum::Extension(tls::OverTls))
    }

    /// The typed control interface.
    #[must_use]
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    /// The hypervisor, for the folders of its machines.
    #[must_use]
    pub fn hypervisor(&self) -> Hypervisor {
        self.control.shared.hypervisor.clone()
    }

    /// Stops serving, writes the state file and releases the devices.
    pub async fn shutdown(self) {
        let shared = &self.control.shared;
        shared.stop.cancel();
        for server in self.servers {
            server.abort();
            // Aborted: nothing to learn from the result.
            let _ = server.await;
        }
        if let Err(error) = persist::save_last(shared) {
            tracing::error!(error = %error, "the state file was not written");
        }
        shared.smb.shutdown().await;
        if let Err(error) = shared.hypervisor.shutdown().await {
            tracing::error!(error = error_chain::chain(&error), "the hypervisor did not shut down");
        }
    }
}

async fn bind(listen: SocketAddr) -> Result<(TcpListener, SocketAddr), StartError> {
    let failed = |source| StartError::Listen { address: listen, source };
    let tcp = TcpListener::bind(listen).await.map_err(failed)?;
    let address = tcp.local_addr().map_err(failed)?;
    Ok((tcp, address))
}

/// Starts what the options ask for, with what exists.
async fn backends(options: &Options, state: &mut State) -> Result<Backends, StartError> {
    let hypervisor = match &options.hypervisor {
        HypervisorChoice::None => Hypervisor::none(),
        HypervisorChoice::Loop(root) => {
            Hypervisor::start_loop(root, machines(state), attachments(state)).await.map_err(StartError::Hypervisor)?
        }
        HypervisorChoice::Qemu { root, machines: qemu } => {
            Hypervisor::start_qemu(root, qemu.clone(), machines(state), attachments(state))
                .await
                .map_err(StartError::Hypervisor)?
        }
    };
    let smb = match &options.smb {
        None => Smb::default(),
        Some(samba) => {
            let documents = state.store.iter().map(|(key, resource)| (key.clone(), resource.doc.clone())).collect();
            let started = Smb::start(samba, documents, options.seed, options.start_time);
            let (smb, follower) = started.map_err(StartError::Smb)?;
            state.follow(follower);
            smb.settled().await;
            smb
        }
    };
    Ok(Backends { hypervisor, smb })
}

fn machines(state: &State) -> Vec<hypervisor::Machine> {
    let machine = |vm: &store::Document| disk_controller::machine(&state.store, vm["id"].as_str().unwrap_or(""));
    state.store.machines().iter().map(machine).collect()
}

fn attachments(state: &State) -> Vec<Attachment> {
    let mut attachments = Vec::new();
    for vm in state.store.machines() {
        let id = vm["id"].as_str().unwrap_or("");
        for (lun, disk) in state.store.lun_map(id) {
            let facts = match blob::vhd::is_address(&disk) {
                true => blob::vhd::device_of(state, id, &disk),
                false => state.store.disk(&disk).map(|doc| arm::compute::disk_work::facts(&doc)),
            };
            attachments.extend(facts.map(|disk| Attachment { vm: path::machine_name(id), lun, disk }));
        }
    }
    attachments
}

#[cfg(test)]
mod tests;
