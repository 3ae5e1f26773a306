//! How an emulator behaves: [`Options`], and the [`Switches`] for behaviour that is unverified.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;

use crate::api_versions::ApiVersions;
use crate::hypervisor::QemuMachines;
use crate::latency::Profile;
use crate::scenario::Scenario;
use crate::served_names::HostName;
use crate::smb::Samba;

/// All that can be chosen about an emulator.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where to listen; port 0 lets the system choose. Default `127.0.0.1:0`.
    pub listen: SocketAddr,
    /// Where to listen with TLS as well; none by default.
    pub listen_tls: Option<SocketAddr>,
    /// Host names under which it is reached besides `localhost` and addresses: it answers to no other, and the certificate is
    /// made for these.
    pub names: Vec<HostName>,
    /// Folder for the TLS certificate and key; a fresh pair in memory when absent.
    pub tls_folder: Option<PathBuf>,
    /// Seed of everything random: GUIDs and latencies. Default 1.
    pub seed: u64,
    /// The wall-clock moment of the start. Default 2026-01-01T00:00:00Z, so that runs are alike; the
    /// command line passes the real time.
    pub start_time: Timestamp,
    /// Durations of operations. Default none: an operation is over at the first poll.
    pub latency: Profile,
    /// `Retry-After` in seconds on accepted operations and their polls. Default: 10 for machines
    /// (recorded) and network resources (unverified), see [`Switches::disk_retry_after`] for disks, 15 for
    /// resource groups.
    pub retry_after: Option<u64>,
    /// How much faster than real time emulated time passes, for people. Default 1.
    pub time_scale: f64,
    /// Throttling by token buckets. Default on.
    pub throttling: bool,
    /// Ids in answers get other letter case than was given. Default off.
    pub nasty_casing: bool,
    /// How long GETs and lists go on showing the state before a write. Default zero. Unverified: a new resource
    /// is hidden past the end of its creation, so that a poller which ends with a GET finds 404.
    pub read_lag: Duration,
    /// How old the list of data disks is that the metadata service shows. Default zero.
    pub imds_lag: Duration,
    /// Every machine and disk carries members newer than any published type, and a PUT that drops
    /// one is refused and recorded as a violation. The resource SKUs list a machine size that no table has. Default
    /// off.
    pub future_fields: bool,
    /// Resources per page of a list. Default 1000; `$top` may ask for fewer.
    pub page_size: usize,
    /// What becomes of an api-version that is in no list of published ones. Default [`ApiVersions::Dated`].
    pub api_versions: ApiVersions,
    /// Any bearer token will do. Default off: tokens must come from the login or identity endpoints.
    pub accept_any_token: bool,
    /// What exists at the start.
    pub scenario: Scenario,
    /// Keep the resources in this file: read at the start, written soon after each change and at shutdown.
    /// Operations in flight are taken to their end: before the last write, or by the next start after a kill. The bytes of
    /// blobs are in the folder beside it whose name has `.blobs` added.
    pub state_file: Option<PathBuf>,
    /// Quotas per subscription and region by usage name (`cores`, `StandardDiskCount`,
    /// `PremiumDiskCount`, `UltraSSDDiskSizeInGB`, `PremiumV2DiskSizeInGB`), over the defaults.
    pub quotas: BTreeMap<String, u64>,
    /// What becomes of attached disks: nothing, or block devices.
    pub hypervisor: HypervisorChoice,
    /// Serves the files of shares by Samba; not at all by default.
    pub smb: Option<Samba>,
    /// Behaviours without evidence.
    pub unverified: Switches,
}

/// 2026-01-01T00:00:00Z.
const START_TIME: Timestamp = Timestamp::constant(1_767_225_600, 0);

impl Default for Options {
    fn default() -> Self {
        Self {
            listen: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0),
            listen_tls: None,
            names: Vec::new(),
            tls_folder: None,
            seed: 1,
            start_time: START_TIME,
            latency: Profile::none(),
            retry_after: None,
            time_scale: 1.0,
            throttling: true,
            nasty_casing: false,
            read_lag: Duration::ZERO,
            imds_lag: Duration::ZERO,
            future_fields: false,
            page_size: 1000,
            api_versions: ApiVersions::default(),
            accept_any_token: false,
            scenario: Scenario::default(),
            state_file: None,
            quotas: BTreeMap::new(),
            hypervisor: HypervisorChoice::None,
            smb: None,
            unverified: Switches::default(),
        }
    }
}

impl Options {
    /// Whole seconds of a real clock, for a client's `Retry-After`, in which emulated time passes by so
    /// many; at least one.
    pub(crate) fn scaled(&self, seconds: u64) -> u64 {
        if self.time_scale > 1.0 { (seconds as f64 / self.time_scale).ceil() as u64 } else { seconds }
    }
}

/// What becomes of attached disks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum HypervisorChoice {
    /// Nothing: no file, no device.
    #[default]
    None,
    /// Sparse files on loop devices below this root folder.
    Loop(PathBuf),
    /// Sparse files below this root folder, plugged in machines that run in QEMU.
    Qemu {
        /// The folder.
        root: PathBuf,
        /// The machines.
        machines: QemuMachines,
    },
}

/// What a write does with another write of the same machine still running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Concurrent {
    /// The newer is refused: 409 `Conflict`.
    Conflict,
    /// The newer goes ahead and the older operation fails with `OperationPreempted`. Writes only;
    /// a delete or power action in flight still answers `Conflict`.
    Preempt,
}

/// What becomes of data disks that a given `dataDisks` array leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeftOut {
    /// They are detached; `[]` detaches all.
    Detach,
    /// They stay.
    Keep,
}

/// What an attach or detach of something that is so already does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Already {
    /// It is refused: 409.
    Refuse,
    /// It succeeds and changes nothing.
    Ignore,
}

/// What a write of a load balancer, security group, route table, private link or public address does while another one
/// of it runs. Azure does all three; when it does which is not documented.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConcurrentNetwork {
    /// The older operation ends as `Canceled`, with `CanceledAndSupersededDueToAnotherOperation`.
    Cancel,
    /// The newer is refused, and one of what names the resource: 409 `AnotherOperationInProgress`.
    Conflict,
    /// The same with 429 `RetryableError`, `RetryableErrorDueToAnotherOperation`.
    Retry,
}

/// What a snapshot shows whose content can no longer come from its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailedSnapshot {
    /// `copyCompletionError`, as a copy by `CopyStart` does, which is documented.
    CopyError,
    /// The provisioning state `Failed`.
    State,
}

/// How `diskSizeGB` names a size of no whole GiB; `diskSizeBytes` is exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeRounding {
    /// 1024.25 GiB are 1024.
    Down,
    /// 1024.25 GiB are 1025.
    Up,
}

/// What a GET of an instance that a scale set does not have answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingInstance {
    /// 404 `ResourceNotFound`.
    NotFound,
    /// 400 `InvalidParameter`, as writes of it do, which is documented.
    InvalidParameter,
}

/// When a write changes the etags of the resources that it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelatedEtags {
    /// Always.
    EveryWrite,
    /// When it names something new, or no longer names something.
    References,
}

/// Behaviours that no recording and no document settles. Suites should pass in every position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switches {
    /// A second write of a machine while one runs. Default [`Concurrent::Conflict`].
    pub concurrent_vm_write: Concurrent,
    /// Data disks left out of the array in a PUT. Default [`LeftOut::Detach`].
    pub left_out_of_put: LeftOut,
    /// Data disks left out of the array in a PATCH. Default [`LeftOut::Detach`].
    pub left_out_of_patch: LeftOut,
    /// `attachDetachDataDisks` with a disk that this machine has. Default [`Already::Refuse`].
    pub attach_attached: Already,
    /// Detach of a disk that this machine does not have. Default [`Already::Refuse`]
    /// (`DetachUnattachedDisk`).
    pub detach_unattached: Already,
    /// After a failed attach the model keeps the element. Default false.
    pub failed_attach_stays_in_model: bool,
    /// A PUT of a machine that exists must name its location (documented for resources in general; the Go
    /// drivers send `{}` to a machine in the state Failed). Default true.
    pub put_needs_location: bool,
    /// `Retry-After` of disk operations in seconds. Default 2.
    pub disk_retry_after: u64,
    /// A network PUT on an existing resource answers 201 (recorded once for an unchanged virtual
    /// network) rather than 200 (documented). Default true.
    pub network_update_answers_created: bool,
    /// Each item of a list is as it was at some moment of the last [`LIST_LAG`], another in each list: what has been
    /// created may be missing, what has been deleted may be there, what has changed may be as it was. GETs show the
    /// present. That lists miss new machines and disks now and then which a GET shows is reported
    /// (azure-sdk-for-python#8985, azure-sdk-for-python#25095, azure-cli#17123); for how long, and what else lags, is
    /// not. Default false.
    pub list_lag: bool,
    /// A snapshot may be copied with `CopyStart` within its region; it is documented between regions only. Default
    /// false.
    pub copy_start_in_region: bool,
    /// A snapshot may be deleted while a background copy of it runs, which then ends with the published error
    /// `CopySourceNotFound`; else the deletion is refused: 409. Default true.
    pub copy_source_deletable: bool,
    /// A snapshot may be deleted while a disk that was made from it is being filled, which goes on; else the deletion is
    /// refused: 409. Default true.
    pub filled_source_deletable: bool,
    /// A disk may be deleted while the content of its snapshots is still copied from it, which then fail; else the
    /// deletion is refused: 409. That these snapshots depend on the disk is documented (disks-instant-access-snapshots),
    /// what happens is not. Default true.
    pub pending_source_deletable: bool,
    /// What a snapshot shows whose disk has grown or is gone before the content was copied. That it fails when the disk
    /// grows is documented (disks-incremental-snapshots), how is not. Default [`FailedSnapshot::CopyError`].
    pub failed_snapshot_shows: FailedSnapshot,
    /// An Ultra or Premium v2 disk that is still being filled may be copied, and have snapshots. That it has none with
    /// instant access is documented (disks-instant-access-snapshots), nothing of others. Default true.
    pub filling_disk_is_source: bool,
    /// A disk counts as being created from a snapshot until it is filled, rather than until its operation has ended:
    /// for the limits of 5 and 15 disks at a time. Default true.
    pub filling_disk_counts: bool,
    /// A disk in a zone is copied into that zone only, and a disk in none into none, rather than into no other zone,
    /// which is documented (azuredisk#571). Default false.
    pub zonal_disk_stays_in_zone: bool,
    /// How sizes of no whole GiB are named. That a snapshot of 1024.25 GiB is offered to claims of 1024 is reported
    /// (azuredisk PR#3379). Default [`SizeRounding::Down`].
    pub size_rounding: SizeRounding,
    /// The SKU of a disk may change twice within 24 hours. The limit is documented (disks-convert-types), and reported
    /// not to be enforced (azure-docs#107903). Default true.
    pub sku_twice_a_day: bool,
    /// A copy within a resource group needs the action `beginGetAccess` on its source too, as one between groups does,
    /// which is documented. Default true.
    pub linked_access_in_group: bool,
    /// A second write of a network resource while one runs. Default [`ConcurrentNetwork::Cancel`].
    pub concurrent_network_write: ConcurrentNetwork,
    /// Whether a write changes the etag of what it names and of what shows who names it: a network interface's that of
    /// its load balancers, a load balancer's that of its public addresses. Default [`RelatedEtags::EveryWrite`].
    pub related_etags: RelatedEtags,
    /// A load balancer is `Updating` while its write runs, rather than `Succeeded`, which is recorded for one without
    /// backends. Default false.
    pub load_balancer_shows_updating: bool,
    /// A backend pool shows its network interfaces in `loadBalancerBackendAddresses` too, as real bodies do
    /// (azure-rest-api-specs#10104, bicep#8074, which has other names than the first); since when is not documented.
    /// Default true.
    pub interface_pool_shows_addresses: bool,
    /// The deletion of a whole load balancer removes the network interfaces of virtual machines from its backend pools
    /// and NAT rules; else it is refused with 400 while they have any. The cloud-controller-manager relies on it for
    /// machines without a scale set (cloud-provider-azure, `cleanOrphanedLoadBalancer`). A pool that goes alone is
    /// always refused. Default true.
    pub interfaces_leave_deleted_pool: bool,
    /// A load-balancing rule of the protocol `All` must have port 0 on both sides. That port 0 means all ports, and
    /// needs `All`, is documented; whether `All` may have a port is not. The cloud-controller-manager sends such rules
    /// for SCTP. Default true.
    pub all_protocols_need_port_0: bool,
    /// A GET of an instance that a scale set does not have. Default [`MissingInstance::NotFound`].
    pub missing_instance: MissingInstance,
    /// A PUT of an instance of a uniform scale set without `hardwareProfile` leaves it as it is, as with what else is left
    /// out; else the instance loses what it had of its own there. The cloud-controller-manager sends it in every PUT.
    /// Default true.
    pub instance_put_keeps_hardware: bool,
    /// A principal sees its own permissions only with a role that allows `Microsoft.Authorization/permissions/read`. That the
    /// action exists is documented; whether the request is refused without it is not. Default false.
    pub permissions_need_a_role: bool,
    /// Disks that are VHDs in storage accounts, for machines whose system disk is one, are no longer served: a machine with
    /// them is neither made nor changed nor started. Documented for the public cloud from 2026-03-31 on, the code is
    /// unverified; Azure Stack Hub serves them. Default false.
    pub unmanaged_disks_retired: bool,
    /// A blob with a lease, such as that of a machine which is deallocated, can be imported into a managed disk. Default
    /// true.
    pub leased_blob_importable: bool,
    /// The blob service knows no version after 2017-11-09, as Azure Stack Hub, of which that is documented; the refusal
    /// of a later one is unverified there. Default false.
    pub blob_service_of_2017: bool,
}

/// How old an item of a list is at most with [`Switches::list_lag`]. Unverified: the reports give no time. Longer than
/// the shortest published operation (2.5 s), so that an item may be older than a whole operation.
pub const LIST_LAG: Duration = Duration::from_secs(4);

impl Default for Switches {
    fn default() -> Self {
        Self {
            concurrent_vm_write: Concurrent::Conflict,
            left_out_of_put: LeftOut::Detach,
            left_out_of_patch: LeftOut::Detach,
            attach_attached: Already::Refuse,
            detach_unattached: Already::Refuse,
            failed_attach_stays_in_model: false,
            put_needs_location: true,
            disk_retry_after: 2,
            network_update_answers_created: true,
            list_lag: false,
            copy_start_in_region: false,
            copy_source_deletable: true,
            filled_source_deletable: true,
            pending_source_deletable: true,
            failed_snapshot_shows: FailedSnapshot::CopyError,
            filling_disk_is_source: true,
            filling_disk_counts: true,
            zonal_disk_stays_in_zone: false,
            size_rounding: SizeRounding::Down,
            sku_twice_a_day: true,
            linked_access_in_group: true,
            concurrent_network_write: ConcurrentNetwork::Cancel,
            related_etags: RelatedEtags::EveryWrite,
            load_balancer_shows_updating: false,
            interface_pool_shows_addresses: true,
            interfaces_leave_deleted_pool: true,
            all_protocols_need_port_0: true,
            missing_instance: MissingInstance::NotFound,
            instance_put_keeps_hardware: true,
            permissions_need_a_role: false,
            unmanaged_disks_retired: false,
            leased_blob_importable: true,
            blob_service_of_2017: false,
        }
    }
}

/// A switch that does not exist, or a position that it does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SwitchError {
    /// There is no `=`.
    #[error("{given:?} is no KEY=VALUE")]
    Form {
        /// What was given.
        given: String,
    },
    /// There is no such switch.
    #[error("there is no switch {key:?}; there are: {known}")]
    Key {
        /// What was given.
        key: String,
        /// All keys with their positions.
        known: String,
    },
    /// The switch has no such position.
    #[error("the switch {key} has no position {value:?}; it has: {positions}")]
    Value {
        /// The switch.
        key: &'static str,
        /// What was given.
        value: String,
        /// Its positions.
        positions: &'static str,
    },
}

/// Every switch by the name that the command line and the documentation use, with its positions; the
/// first is the default.
pub const SWITCHES: [(&str, &str); 33] = [
    ("concurrent-vm-write", "conflict|preempt"),
    ("left-out-of-put", "detach|keep"),
    ("left-out-of-patch", "detach|keep"),
    ("attach-attached", "refuse|ignore"),
    ("detach-unattached", "refuse|ignore"),
    ("failed-attach-stays-in-model", "false|true"),
    ("put-needs-location", "true|false"),
    ("disk-retry-after", "SECONDS, 2 by default"),
    ("network-update-answers-created", "true|false"),
    ("list-lag", "false|true"),
    ("copy-start-in-region", "false|true"),
    ("copy-source-deletable", "true|false"),
    ("filled-source-deletable", "true|false"),
    ("pending-source-deletable", "true|false"),
    ("failed-snapshot-shows", "copy-error|state"),
    ("filling-disk-is-source", "true|false"),
    ("filling-disk-counts", "true|false"),
    ("zonal-disk-stays-in-zone", "false|true"),
    ("size-rounding", "down|up"),
    ("sku-twice-a-day", "true|false"),
    ("linked-access-in-group", "true|false"),
    ("concurrent-network-write", "cancel|conflict|retry"),
    ("related-etags", "every-write|references"),
    ("load-balancer-shows-updating", "false|true"),
    ("interface-pool-shows-addresses", "true|false"),
    ("interfaces-leave-deleted-pool", "true|false"),
    ("all-protocols-need-port-0", "true|false"),
    ("missing-instance", "not-found|invalid-parameter"),
    ("instance-put-keeps-hardware", "true|false"),
    ("permissions-need-a-role", "false|true"),
    ("unmanaged-disks-retired", "false|true"),
    ("leased-blob-importable", "true|false"),
    ("blob-service-of-2017", "false|true"),
];

impl Switches {
    /// Sets one switch by `KEY=VALUE`; see [`SWITCHES`]. Letter case does not matter, and `_` is `-`.
    ///
    /// # Errors
    ///
    /// When there is no such switch or position.
    pub fn set(&mut self, given: &str) -> Result<(), SwitchError> {
        let (key, value) = given.split_once('=').ok_or_else(|| SwitchError::Form { given: given.to_owned() })?;
        let wanted = key.trim().to_ascii_lowercase().replace('_', "-");
        let Some((key, positions)) = SWITCHES.into_iter().find(|(known, _)| *known == wanted) else {
            let known: Vec<String> = SWITCHES.iter().map(|(key, positions)| format!("{key}={positions}")).collect();
            return Err(SwitchError::Key { key: key.to_owned(), known: known.join(", ") });
        };
        let value = value.trim().to_ascii_lowercase();
        let refused = || SwitchError::Value { key, value: value.clone(), positions };
        match key {
            "concurrent-vm-write" => {
                self.concurrent_vm_write =
                    one_of(&value, [("conflict", Concurrent::Conflict), ("preempt", Concurrent::Preempt)])
                        .ok_or_else(refused)?;
            }
            "left-out-of-put" => self.left_out_of_put = left_out(&value).ok_or_else(refused)?,
            "left-out-of-patch" => self.left_out_of_patch = left_out(&value).ok_or_else(refused)?,
            "attach-attached" => self.attach_attached = already(&value).ok_or_else(refused)?,
            "detach-unattached" => self.detach_unattached = already(&value).ok_or_else(refused)?,
            "disk-retry-after" => self.disk_retry_after = value.parse().map_err(|_| refused())?,
            "failed-snapshot-shows" => {
                let positions = [("copy-error", FailedSnapshot::CopyError), ("state", FailedSnapshot::State)];
                self.failed_snapshot_shows = one_of(&value, positions).ok_or_else(refused)?;
            }
            "size-rounding" => {
                let positions = [("down", SizeRounding::Down), ("up", SizeRounding::Up)];
                self.size_rounding = one_of(&value, positions).ok_or_else(refused)?;
            }
            "concurrent-network-write" => {
                let positions = [
                    ("cancel", ConcurrentNetwork::Cancel),
                    ("conflict", ConcurrentNetwork::Conflict),
                    ("retry", ConcurrentNetwork::Retry),
                ];
                self.concurrent_network_write = one_of(&value, positions).ok_or_else(refused)?;
            }
            "related-etags" => {
                let positions = [("every-write", RelatedEtags::EveryWrite), ("references", RelatedEtags::References)];
                self.related_etags = one_of(&value, positions).ok_or_else(refused)?;
            }
            "missing-instance" => {
                let positions = [
                    ("not-found", MissingInstance::NotFound),
                    ("invalid-parameter", MissingInstance::InvalidParameter),
                ];
                self.missing_instance = one_of(&value, positions).ok_or_else(refused)?;
            }
            _ => {
                let flag = self.flag(key).ok_or_else(refused)?;
                *flag = value.parse().map_err(|_| refused())?;
            }
        }
        Ok(())
    }

    /// A switch whose positions are true and false.
    fn flag(&mut self, key: &str) -> Option<&mut bool> {
        Some(match key {
            "failed-attach-stays-in-model" => &mut self.failed_attach_stays_in_model,
            "put-needs-location" => &mut self.put_needs_location,
            "list-lag" => &mut self.list_lag,
            "copy-start-in-region" => &mut self.copy_start_in_region,
            "copy-source-deletable" => &mut self.copy_source_deletable,
            "filled-source-deletable" => &mut self.filled_source_deletable,
            "pending-source-deletable" => &mut self.pending_source_deletable,
            "filling-disk-is-source" => &mut self.filling_disk_is_source,
            "filling-disk-counts" => &mut self.filling_disk_counts,
            "zonal-disk-stays-in-zone" => &mut self.zonal_disk_stays_in_zone,
            "sku-twice-a-day" => &mut self.sku_twice_a_day,
            "linked-access-in-group" => &mut self.linked_access_in_group,
            "load-balancer-shows-updating" => &mut self.load_balancer_shows_updating,
            "interface-pool-shows-addresses" => &mut self.interface_pool_shows_addresses,
            "interfaces-leave-deleted-pool" => &mut self.interfaces_leave_deleted_pool,
            "instance-put-keeps-hardware" => &mut self.instance_put_keeps_hardware,
            "permissions-need-a-role" => &mut self.permissions_need_a_role,
            "unmanaged-disks-retired" => &mut self.unmanaged_disks_retired,
            "leased-blob-importable" => &mut self.leased_blob_importable,
            "blob-service-of-2017" => &mut self.blob_service_of_2017,
            "all-protocols-need-port-0" => &mut self.all_protocols_need_port_0,
            "network-update-answers-created" => &mut self.network_update_answers_created,
            _ => return None,
        })
    }

    /// How old an item of a list is at most.
    pub(crate) fn longest_list_lag(&self) -> Duration {
        if self.list_lag { LIST_LAG } else { Duration::ZERO }
    }
}

fn one_of<T: Copy, const N: usize>(value: &str, words: [(&str, T); N]) -> Option<T> {
    words.into_iter().find(|(word, _)| *word == value).map(|(_, position)| position)
}

fn left_out(value: &str) -> Option<LeftOut> {
    one_of(value, [("detach", LeftOut::Detach), ("keep", LeftOut::Keep)])
}

fn already(value: &str) -> Option<Already> {
    one_of(value, [("refuse", Already::Refuse), ("ignore", Already::Ignore)])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The positions of a switch as they are written.
    fn positions(text: &str) -> Vec<&str> {
        if text.starts_with("SECONDS") { vec!["2", "7"] } else { text.split('|').collect() }
    }

    #[test]
    fn every_switch_has_the_positions_that_are_written_and_the_first_is_the_default() {
        for (key, text) in SWITCHES {
            for (at, position) in positions(text).into_iter().enumerate() {
                let mut switches = Switches::default();
                switches.set(&format!("{key}={position}")).unwrap();
                assert_eq!(switches == Switches::default(), at == 0, "{key}={position}");
            }
            let mut switches = Switches::default();
            let refused = switches.set(&format!("{key}=sideways")).unwrap_err();
            assert!(matches!(refused, SwitchError::Value { .. }), "{refused}");
        }
    }

    #[test]
    fn an_unknown_switch_is_refused_with_the_known_ones() {
        let refused = Switches::default().set("color=blue").unwrap_err().to_string();
        assert!(refused.contains("concurrent-vm-write=conflict|preempt"), "{refused}");
        assert!(matches!(Switches::default().set("color"), Err(SwitchError::Form { .. })));
        let mut switches = Switches::default();
        switches.set("Left_Out_Of_Patch=KEEP").unwrap();
        assert_eq!(switches.left_out_of_patch, LeftOut::Keep);
    }
}
