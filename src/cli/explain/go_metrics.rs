//! The Go projects' metrics: those that `--go-metrics` adds, and those that it does not.

use lazuli_telemetry::go_names::{Family, FamilyKind, NotGiven};

/// Which Go program writes a family, by how its name begins.
pub(super) fn program(family: &Family) -> &'static str {
    match family.name {
        name if name.starts_with("azuredisk_") => "azuredisk-csi-driver",
        name if name.starts_with("azurefile_") => "azurefile-csi-driver",
        _ => "cloud-controller-manager",
    }
}

/// The families that are written.
pub(super) fn given() -> impl Iterator<Item = &'static Family> {
    [
        lazuli_controllers::operations::GO_FAMILIES,
        lazuli_azure::arm_requests::GO_FAMILIES,
        lazuli_cluster::GO_FAMILIES,
        lazuli_csi::server::GO_FAMILIES,
    ]
    .into_iter()
    .flatten()
    .copied()
}

/// The upper bounds of the buckets, in words.
pub(super) fn buckets(family: &Family) -> String {
    match family.kind {
        FamilyKind::Histogram(bounds) => bounds.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
        FamilyKind::Counter | FamilyKind::Gauge => String::new(),
    }
}

const fn not(name: &'static str, why: &'static str) -> NotGiven {
    NotGiven { name, why }
}

/// The families of the Go projects that are not written, and why. Source: scrapes of the Go manager and of the Go disk driver.
pub(super) const NOT_GIVEN: &[NotGiven] = &[
    not(
        "cloudprovider_azure_op_duration_seconds{request=\"services_update_loadbalancer\"}",
        "A change of Nodes is no operation on each Service here: it changes each pool once; see lazuli_reconcile_action_seconds",
    ),
    not(
        "cloudprovider_azure_op_duration_seconds{request=\"services_*_ensure_hosts_in_pool\"}",
        "Machines join pools on their own, not as a part of a Service; so with the requests that end in _deleted and migrate_to_*",
    ),
    not(
        "cloudprovider_azure_op_duration_seconds{request=\"services_ensure_privatelinkservice\"}",
        "A private link service is a part of the work on its Service, and is not measured alone; so with its deletion",
    ),
    not(
        "provider_reconcile_duration_seconds{name=\"GetLoadBalancer\"}",
        "Nothing is looked up before a Service is deleted; so with the name UpdateLoadBalancer, which is about Nodes",
    ),
    not(
        "cloudprovider_azure_api_request_*",
        "The Go manager registers them and writes no series: arm_request_* took their place",
    ),
    not(
        "arm_request_rate_limit_counter_total",
        "No request is refused here for want of a permit: it waits; see lazuli_azure_permit_wait_seconds",
    ),
    not(
        "arm_request_throttle_counter_total",
        "No request is refused here in a pause that Azure asked for: it waits; see lazuli_azure_throttled_total",
    ),
    not(
        "service_controller_*",
        "They count how each Service follows a change of Nodes; here each pool follows it once",
    ),
    not("workqueue_*", "There are no work queues: each object has a task; see lazuli_reconcile_keys"),
    not("leader_election_slowpath_total", "The Lease is written in one way"),
    not("rest_client_*", "The client of Kubernetes is another one and is not measured"),
    not(
        "azuredisk_csi_driver_operation_duration_seconds_labeled{operation=\"controller_expand_volume\"}",
        "The kind of disk is known when a disk is made",
    ),
    not(
        "azuredisk_csi_driver_operations_total{operation=\"controller_*_snapshot\"}",
        "The calls of snapshots have no name of Go's here; see lazuli_rpc_duration_seconds",
    ),
    not(
        "azurefile_csi_driver_mount_operations_total",
        "Its labels name the share and the account; see lazuli_share_mounts_total",
    ),
    not("kubernetes_build_info", "It tells of Kubernetes' own version; see lazuli_build_info"),
    not("process_*", "kubelet tells of each container what they tell, but for the resident memory, which is given"),
    not("go_*", "They are about Go's runtime"),
    not("promhttp_*", "They are about the Go library's own page"),
    not("aggregator_*", "They are about parts of Kubernetes' API server that are linked into the Go manager"),
    not(
        "authenticated_user_requests",
        "It is about parts of Kubernetes' API server that are linked into the Go manager",
    ),
    not("cardinality_enforcement_*", "They are about the Go library's own metrics"),
    not(
        "disabled_metrics_total",
        "It is about the Go library's own metrics; so with hidden_metrics_total and registered_metrics_total",
    ),
    not("hidden_metrics_total", "It is about the Go library's own metrics"),
    not("registered_metrics_total", "It is about the Go library's own metrics"),
    not("target_info", "It names the Go library"),
    not("apiserver_*", "They are about parts of Kubernetes' API server that are linked into the Go manager"),
    not("authentication_*", "They are about parts of Kubernetes' API server that are linked into the Go manager"),
    not("authorization_*", "They are about parts of Kubernetes' API server that are linked into the Go manager"),
];
