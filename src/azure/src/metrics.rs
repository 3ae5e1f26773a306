//! What is counted about calls to Azure. Every label is a bounded enum.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use lazuli_model::reference::{
    Metric,
    MetricType::{Counter as Count, Gauge as Level, Histogram as Spread},
};
use lazuli_quota::{permit::Direction, poll::Kind, read::By};
use lazuli_telemetry::{go_names::GoNames, labels::Bounded};
use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::{Registry, Unit},
};
use tokio::time::Instant;

use crate::arm_requests::{ArmRequests, Sent, Target};

const REQUESTS: Metric = Metric::new(
    Count,
    "lazuli_azure_requests",
    "Requests to Azure Resource Manager and to blob services, by what they do, to what, and how they were answered",
)
.by(&["verb", "resource", "status"])
.as_go("arm_request_duration_seconds_count, arm_request_errors_counter_total");
const REQUEST_DURATIONS: Metric = Metric::new(
    Spread,
    "lazuli_azure_request_duration",
    "How long requests to Azure Resource Manager and to blob services took, from the sending to the whole answer, by subscription too",
)
.in_unit("seconds")
.by(&["verb", "resource", "status", "subscription"])
.as_go("arm_request_duration_seconds");
const THROTTLED: Metric = Metric::new(Count, "lazuli_azure_throttled", "Answers of Azure that said: too many requests")
    .by(&["resource"])
    .as_go("arm_request_throttle_counter_total");
const POLLS: Metric =
    Metric::new(Count, "lazuli_azure_polls", "Questions about how an operation is doing").by(&["kind"]);
const OPERATIONS: Metric =
    Metric::new(Spread, "lazuli_azure_operation", "How long operations took, by Azure's own clock where it tells")
        .in_unit("seconds")
        .by(&["kind", "outcome"]);
const PERMIT_QUEUE: Metric = Metric::new(
    Level,
    "lazuli_azure_permit_queue_length",
    "Requests that wait until Azure has a token for them, by bucket; data: those to blob services",
)
.by(&["bucket"]);
const PERMIT_WAITS: Metric = Metric::new(
    Spread,
    "lazuli_azure_permit_wait",
    "How long requests waited until Azure had a token for them, by bucket",
)
.in_unit("seconds")
.by(&["bucket"])
.as_go("arm_request_rate_limit_counter_total");
const LIST_PAGES: Metric =
    Metric::new(Count, "lazuli_azure_list_pages", "Pages of lists that were read").by(&["resource"]);
const SHARED_READS: Metric = Metric::new(
    Count,
    "lazuli_azure_shared_reads",
    "Reads that needed no request of their own, by the request that answered them: single, or list",
)
.by(&["resource", "by"]);

/// The metrics of requests to Azure.
pub const METRICS: &[Metric] =
    &[REQUESTS, REQUEST_DURATIONS, THROTTLED, POLLS, OPERATIONS, PERMIT_QUEUE, PERMIT_WAITS, LIST_PAGES, SHARED_READS];

/// The counters; clones count together.
#[derive(Debug, Clone)]
pub struct Metrics {
    requests: Family<Request, Counter>,
    request_durations: Family<RequestOf, Histogram, fn() -> Histogram>,
    subscriptions: Bounded,
    arm_requests: ArmRequests,
    throttled: Family<Throttled, Counter>,
    polls: Family<Operation, Counter>,
    operations: Family<Finished, Histogram, fn() -> Histogram>,
    permit_queue: Family<Bucket, Gauge>,
    permit_waits: Family<Bucket, Histogram, fn() -> Histogram>,
    list_pages: Family<Listed, Counter>,
    shared_reads: Family<Shared, Counter>,
    last_success: Arc<Mutex<Option<Instant>>>,
}

/// A request to the data service of a storage account that went out, and what became of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SentToAccount<'a> {
    pub(crate) method: &'static str,
    pub(crate) resource: ResourceType,
    /// The subscription of the account.
    pub(crate) subscription: &'a str,
    /// The HTTP status of the answer; `None` without one.
    pub(crate) status: Option<u16>,
    /// Whether the account gets too many requests.
    pub(crate) is_throttled: bool,
    /// From the sending to the whole answer.
    pub(crate) took: Duration,
}

/// A request, as it is counted.
struct Counted {
    verb: &'static str,
    resource: ResourceType,
    status: Option<u16>,
    is_throttled: bool,
    subscription: Arc<str>,
    took: Duration,
}

/// What a path leads to, as far as counting goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ResourceType {
    /// `Microsoft.Compute/disks`
    Disks,
    /// `Microsoft.Compute/snapshots`
    Snapshots,
    /// `Microsoft.Compute/virtualMachines`
    VirtualMachines,
    /// `Microsoft.Compute/virtualMachineScaleSets/virtualMachines`
    ScaleSetVirtualMachines,
    /// `Microsoft.Compute/skus`
    Skus,
    /// `Microsoft.Network/loadBalancers` and its children
    LoadBalancers,
    /// `Microsoft.Network/networkSecurityGroups` and its children
    SecurityGroups,
    /// `Microsoft.Network/publicIPAddresses`
    PublicIps,
    /// `Microsoft.Network/networkInterfaces`
    Interfaces,
    /// `Microsoft.Network/privateLinkServices`
    PrivateLinkServices,
    /// `Microsoft.Network/routeTables`
    RouteTables,
    /// `Microsoft.Network/virtualNetworks` and its subnets
    VirtualNetworks,
    /// `Microsoft.Storage/storageAccounts` and their keys
    StorageAccounts,
    /// `Microsoft.Storage/storageAccounts/fileServices` and their shares
    FileShares,
    /// Blobs of a storage account, by its own service.
    Blobs,
    /// Containers of blobs, by the account's own service.
    BlobContainers,
    /// The status and the result of an operation.
    Operations,
    /// Anything else.
    Other,
}

impl ResourceType {
    /// Reads a path; letter case does not matter.
    pub(crate) fn of(path: &str) -> Self {
        let path = path.to_ascii_lowercase();
        let Some((_, rest)) = path.rsplit_once("/providers/") else {
            return Self::Other;
        };
        let mut segments = rest.split('/').skip(1);
        let (kind, child) = (segments.next().unwrap_or_default(), segments.nth(1));
        match (kind, child) {
            ("disks", _) => Self::Disks,
            ("snapshots", _) => Self::Snapshots,
            ("virtualmachines", _) => Self::VirtualMachines,
            ("virtualmachinescalesets", Some("virtualmachines")) => Self::ScaleSetVirtualMachines,
            ("skus", _) => Self::Skus,
            ("loadbalancers", _) => Self::LoadBalancers,
            ("networksecuritygroups", _) => Self::SecurityGroups,
            ("publicipaddresses", _) => Self::PublicIps,
            ("networkinterfaces", _) => Self::Interfaces,
            ("privatelinkservices", _) => Self::PrivateLinkServices,
            ("routetables", _) => Self::RouteTables,
            ("virtualnetworks", _) => Self::VirtualNetworks,
            ("storageaccounts", Some("fileservices")) => Self::FileShares,
            ("storageaccounts", _) => Self::StorageAccounts,
            ("locations", Some(child)) if child.contains("operation") => Self::Operations,
            _ => Self::Other,
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Disks => "disks",
            Self::Snapshots => "snapshots",
            Self::VirtualMachines => "virtual_machines",
            Self::ScaleSetVirtualMachines => "scale_set_virtual_machines",
            Self::Skus => "skus",
            Self::LoadBalancers => "load_balancers",
            Self::SecurityGroups => "network_security_groups",
            Self::PublicIps => "public_ip_addresses",
            Self::Interfaces => "network_interfaces",
            Self::PrivateLinkServices => "private_link_services",
            Self::RouteTables => "route_tables",
            Self::VirtualNetworks => "virtual_networks",
            Self::StorageAccounts => "storage_accounts",
            Self::FileShares => "file_shares",
            Self::Blobs => "blobs",
            Self::BlobContainers => "blob_containers",
            Self::Operations => "operations",
            Self::Other => "other",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Request {
    verb: Label,
    resource: Label,
    status: Label,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestOf {
    verb: Label,
    resource: Label,
    status: Label,
    subscription: Subscription,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Throttled {
    resource: Label,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Operation {
    kind: Label,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Finished {
    kind: Label,
    outcome: Label,
}

/// A bucket of the front door: `reads`, `writes` or `deletes`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Bucket {
    bucket: Label,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Shared {
    resource: Label,
    by: Label,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Listed {
    resource: Label,
}

/// One of our own words, so that no label can grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Label(&'static str);

impl EncodeLabelValue for Label {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), std::fmt::Error> {
        self.0.encode(encoder)
    }
}

/// A subscription's id, or one word for all after the first ones.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Subscription(Arc<str>);

impl EncodeLabelValue for Subscription {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), std::fmt::Error> {
        (&*self.0).encode(encoder)
    }
}

fn kind_label(kind: Kind) -> Label {
    Label(match kind {
        Kind::DiskCreate => "disk_create",
        Kind::DiskUpdate => "disk_update",
        Kind::DiskDelete => "disk_delete",
        Kind::SnapshotCreate => "snapshot_create",
        Kind::SnapshotDelete => "snapshot_delete",
        Kind::VmAttach => "vm_attach",
        Kind::VmDetach => "vm_detach",
        Kind::LoadBalancer => "load_balancer",
        Kind::SecurityGroup => "security_group",
        Kind::PublicIp => "public_ip",
        Kind::Interface => "network_interface",
        Kind::PrivateLink => "private_link_service",
        Kind::RouteTable => "route_table",
        Kind::Extension => "extension",
        Kind::StorageAccount => "storage_account",
        Kind::Other => "other",
    })
}

/// Seconds; around the published medians (attach 10 s, detach 16 s) and their tails.
const BUCKETS: [f64; 12] = [0.5, 1.0, 2.5, 5.0, 7.5, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0, 300.0];

/// Seconds; around the usual answer of Azure (0.1 to 0.5 s), to the time-out of a request.
const REQUEST_BUCKETS: [f64; 10] = [0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];

/// The most subscriptions that have series of their own: a cluster has one, or two with its network in another, and volumes
/// may name further ones.
const MOST_SUBSCRIPTIONS: usize = 8;

/// Seconds; from one refill of a bucket (0.04 s and 0.1 s) to that of a whole one and more.
const WAIT_BUCKETS: [f64; 11] = [0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0];

impl Metrics {
    /// Makes the counters known to a registry, and to what shows the Go manager's names.
    pub fn register(registry: &mut Registry, go: GoNames) -> Self {
        let metrics = Self { arm_requests: ArmRequests::new(go), ..Self::unregistered() };
        registry.register(REQUESTS.stem, REQUESTS.help, metrics.requests.clone());
        let durations = metrics.request_durations.clone();
        registry.register_with_unit(REQUEST_DURATIONS.stem, REQUEST_DURATIONS.help, Unit::Seconds, durations);
        registry.register(THROTTLED.stem, THROTTLED.help, metrics.throttled.clone());
        registry.register(POLLS.stem, POLLS.help, metrics.polls.clone());
        registry.register_with_unit(OPERATIONS.stem, OPERATIONS.help, Unit::Seconds, metrics.operations.clone());
        registry.register(PERMIT_QUEUE.stem, PERMIT_QUEUE.help, metrics.permit_queue.clone());
        registry.register_with_unit(PERMIT_WAITS.stem, PERMIT_WAITS.help, Unit::Seconds, metrics.permit_waits.clone());
        registry.register(LIST_PAGES.stem, LIST_PAGES.help, metrics.list_pages.clone());
        registry.register(SHARED_READS.stem, SHARED_READS.help, metrics.shared_reads.clone());
        metrics
    }

    /// Counters that no scrape reads.
    pub fn unregistered() -> Self {
        Self {
            requests: Family::default(),
            request_durations: Family::new_with_constructor(|| Histogram::new(REQUEST_BUCKETS)),
            subscriptions: Bounded::new(MOST_SUBSCRIPTIONS),
            arm_requests: ArmRequests::new(GoNames::default()),
            throttled: Family::default(),
            polls: Family::default(),
            operations: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            permit_queue: Family::default(),
            permit_waits: Family::new_with_constructor(|| Histogram::new(WAIT_BUCKETS)),
            list_pages: Family::default(),
            shared_reads: Family::default(),
            last_success: Arc::default(),
        }
    }

    /// When the resource manager last did what a request asked of it.
    pub fn last_success(&self) -> Option<Instant> {
        *self.last_success.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn request(&self, sent: &Sent<'_>) {
        if matches!(sent.status, Some(200..=299)) {
            *self.last_success.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        }
        let target = Target::of(sent.path);
        let subscription = self.subscriptions.of(&target.subscription.to_ascii_lowercase());
        self.arm_requests.count(sent, &target, &subscription);
        self.count(&Counted {
            verb: sent.verb.as_str(),
            resource: ResourceType::of(sent.path),
            status: sent.status,
            is_throttled: sent.status == Some(429),
            subscription,
            took: sent.took,
        });
    }

    /// Counts a request to the data service of a storage account. The Go manager has no names for these.
    pub(crate) fn data_request(&self, sent: &SentToAccount<'_>) {
        self.count(&Counted {
            verb: sent.method,
            resource: sent.resource,
            status: sent.status,
            is_throttled: sent.is_throttled,
            subscription: self.subscriptions.of(&sent.subscription.to_ascii_lowercase()),
            took: sent.took,
        });
    }

    fn count(&self, counted: &Counted) {
        let status = Label(match counted.status {
            Some(429) => "429",
            Some(200..=299) => "2xx",
            Some(300..=399) => "3xx",
            Some(400..=499) => "4xx",
            Some(_) => "5xx",
            None => "none",
        });
        let (verb, resource) = (Label(counted.verb), Label(counted.resource.as_str()));
        if counted.is_throttled {
            self.throttled.get_or_create(&Throttled { resource }).inc();
        }
        self.requests.get_or_create(&Request { verb, resource, status }).inc();
        let labels = RequestOf { verb, resource, status, subscription: Subscription(counted.subscription.clone()) };
        self.request_durations.get_or_create(&labels).observe(counted.took.as_secs_f64());
    }

    pub(crate) fn poll(&self, kind: Kind) {
        self.polls.get_or_create(&Operation { kind: kind_label(kind) }).inc();
    }

    pub(crate) fn permit_queue(&self, bucket: Direction, length: usize) {
        let length = i64::try_from(length).unwrap_or(i64::MAX);
        self.permit_queue.get_or_create(&Bucket { bucket: Label(bucket.as_str()) }).set(length);
    }

    pub(crate) fn permit_wait(&self, bucket: Direction, waited: Duration) {
        self.permit_waits.get_or_create(&Bucket { bucket: Label(bucket.as_str()) }).observe(waited.as_secs_f64());
    }

    pub(crate) fn list_page(&self, resource: ResourceType) {
        self.list_pages.get_or_create(&Listed { resource: Label(resource.as_str()) }).inc();
    }

    /// So many reads were answered by the request of another.
    pub(crate) fn shared_reads(&self, resource: ResourceType, by: By, reads: usize) {
        let by = Label(match by {
            By::Single => "single",
            By::List => "list",
        });
        let reads = u64::try_from(reads).unwrap_or(u64::MAX);
        self.shared_reads.get_or_create(&Shared { resource: Label(resource.as_str()), by }).inc_by(reads);
    }

    pub(crate) fn operation(&self, kind: Kind, succeeded: bool, took: Duration) {
        let outcome = Label(if succeeded { "succeeded" } else { "failed" });
        self.operations.get_or_create(&Finished { kind: kind_label(kind), outcome }).observe(took.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Verb;

    const DISK: &str = "/subscriptions/S/resourceGroups/g/providers/Microsoft.Compute/disks/d";

    fn sent(verb: Verb, path: &str, status: Option<u16>) -> Sent<'_> {
        Sent { verb, path, status, code: "", took: Duration::from_millis(300) }
    }

    #[test]
    fn paths_become_one_of_few_resource_types() {
        for (path, expected) in [
            ("/subscriptions/s/resourceGroups/g/providers/microsoft.Compute/DISKS/d", ResourceType::Disks),
            ("/subscriptions/s/providers/Microsoft.Compute/disks", ResourceType::Disks),
            (
                "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/v/attachDetachDataDisks",
                ResourceType::VirtualMachines,
            ),
            (
                "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/a/virtualMachines/1",
                ResourceType::ScaleSetVirtualMachines,
            ),
            (
                "/subscriptions/s/providers/Microsoft.Compute/locations/eastus2/DiskOperations/1",
                ResourceType::Operations,
            ),
            ("/subscriptions/s/providers/Microsoft.Compute/locations/eastus2/vmSizes", ResourceType::Other),
            ("/subscriptions/s/providers/Microsoft.Compute/skus", ResourceType::Skus),
            ("/metadata/endpoints", ResourceType::Other),
        ] {
            assert_eq!(ResourceType::of(path), expected, "{path}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_success_is_that_of_an_answer_that_gave_what_was_asked_for() {
        let metrics = Metrics::unregistered();
        for status in [None, Some(503), Some(429), Some(401), Some(403)] {
            metrics.request(&sent(Verb::Get, DISK, status));
            assert_eq!(metrics.last_success(), None, "{status:?}");
        }
        metrics.clone().request(&sent(Verb::Put, DISK, Some(202)));
        let success = Some(Instant::now());
        tokio::time::advance(Duration::from_secs(1)).await;
        metrics.request(&sent(Verb::Get, DISK, None));
        assert_eq!(metrics.last_success(), success);
    }

    #[test]
    fn what_is_counted_shows_in_the_registry() {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry, GoNames::default());
        metrics.request(&sent(Verb::Get, DISK, Some(429)));
        metrics.poll(Kind::VmAttach);
        metrics.operation(Kind::VmAttach, true, Duration::from_secs(9));
        metrics.permit_queue(Direction::Reads, 3);
        metrics.permit_wait(Direction::Deletes, Duration::from_secs(1));
        metrics.list_page(ResourceType::Disks);
        metrics.shared_reads(ResourceType::Disks, By::List, 7);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            "lazuli_azure_requests_total{verb=\"GET\",resource=\"disks\",status=\"429\"} 1",
            "lazuli_azure_throttled_total{resource=\"disks\"} 1",
            "lazuli_azure_polls_total{kind=\"vm_attach\"} 1",
            "lazuli_azure_permit_queue_length{bucket=\"reads\"} 3",
            "lazuli_azure_permit_wait_seconds_count{bucket=\"deletes\"} 1",
            "lazuli_azure_list_pages_total{resource=\"disks\"} 1",
            "lazuli_azure_shared_reads_total{resource=\"disks\",by=\"list\"} 7",
            "lazuli_azure_operation_seconds_count{kind=\"vm_attach\",outcome=\"succeeded\"} 1",
        ] {
            assert!(text.contains(line), "{text}");
        }
    }
}
