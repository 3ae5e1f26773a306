//! Annotations, labels, taints and finalizers that several crates read or write, and the metrics of the process. A test
//! compares these with the sources.

use lazuli_model::reference::{KeyKind, KeyOf, KeyRow, Metric, MetricType};

const fn key(of: KeyOf, kind: KeyKind, key: &'static str, value: &'static str, meaning: &'static str) -> KeyRow {
    KeyRow { key, of, kind, value, meaning }
}

use KeyKind::{Annotation, Finalizer, Label, Taint};
use KeyOf::{Lease, Node, Service, Volume};

/// Every key but the annotations of the Azure provider on Services.
pub(super) const KEYS: &[KeyRow] = &[
    key(
        Service,
        Annotation,
        "lazuli.azure/share-with",
        "namespaces, separated by commas",
        "Lets Services of these namespaces do at this Service's addresses what they may do at their own.",
    ),
    key(
        Service,
        Finalizer,
        "service.kubernetes.io/load-balancer-cleanup",
        "",
        "Keeps a deleted Service until nothing of it is left in Azure. Written and removed by service-lb.",
    ),
    key(
        Node,
        Annotation,
        "lazuli.azure/instance-metadata",
        "JSON",
        "What the instance metadata say of the machine, and what it shows of disks that come by NVMe. Written by the node \
         plugin on its own Node, read by cloud-node and by lazuli doctor. nvme.luns says by what the LUNs of NVMe disks are \
         known: proved (the operating system's disk is namespace 1), given (by --nvme-lun-offset) or unknown (no disk is \
         mounted until the offset is known). nvme.ioTimeoutSeconds is the kernel's nvme_core.io_timeout. Without nvme no \
         disk comes by NVMe.",
    ),
    key(
        Node,
        Label,
        "node.kubernetes.io/instance-type",
        "a VM size",
        "The VM's size. Written by cloud-node; read for the number of data disks.",
    ),
    key(
        Node,
        Label,
        "beta.kubernetes.io/instance-type",
        "a VM size",
        "The same under the name of Kubernetes before 1.17. Written by cloud-node.",
    ),
    key(
        Node,
        Label,
        "topology.kubernetes.io/region",
        "a region",
        "The VM's region. Written by cloud-node, read by the node plugin.",
    ),
    key(
        Node,
        Label,
        "failure-domain.beta.kubernetes.io/region",
        "a region",
        "The same under the name of Kubernetes before 1.17.",
    ),
    key(
        Node,
        Label,
        "topology.kubernetes.io/zone",
        "REGION-ZONE, or a fault domain",
        "The VM's availability zone. Written by cloud-node; where the metadata are silent, the node plugin takes its zone from it.",
    ),
    key(
        Node,
        Label,
        "failure-domain.beta.kubernetes.io/zone",
        "REGION-ZONE, or a fault domain",
        "The same under the name of Kubernetes before 1.17.",
    ),
    key(
        Node,
        Label,
        "topology.disk.csi.azure.com/zone",
        "REGION-ZONE, or empty",
        "The zone in which a disk must be for this Node. Written by kubelet from what the node plugin says.",
    ),
    key(
        Node,
        Label,
        "topology.kubernetes.azure.com/sub-fault-domain",
        "a number",
        "The VM's sub fault domain. Written by cloud-node from the annotation of the node plugin.",
    ),
    key(
        Node,
        Label,
        "topology.kubernetes.azure.com/interconnect-group",
        "a text",
        "The VM's interconnect group. Written by cloud-node from the annotation of the node plugin.",
    ),
    key(
        Node,
        Label,
        "kubernetes.azure.com/managed",
        "false",
        "Says that the Node is no machine of Azure: no controller touches it, and it is in no pool.",
    ),
    key(
        Node,
        Label,
        "kubernetes.azure.com/resource-group",
        "a resource group",
        "The VM's resource group, where the Node has no provider id. In another group than the cluster's it is in no pool.",
    ),
    key(
        Node,
        Label,
        "node.kubernetes.io/exclude-from-external-load-balancers",
        "anything",
        "Keeps the Node out of the pools of load balancers.",
    ),
    key(
        Node,
        Label,
        "node-role.kubernetes.io/control-plane",
        "anything",
        "A Node of the control plane: see excludeMasterFromStandardLB.",
    ),
    key(
        Node,
        Label,
        "node-role.kubernetes.io/master",
        "anything",
        "The same under the name of Kubernetes before 1.20.",
    ),
    key(Node, Label, "kubernetes.io/role", "master", "The same under the name of old clusters."),
    key(
        Node,
        Taint,
        "node.cloudprovider.kubernetes.io/uninitialized",
        "NoSchedule",
        "A Node that has nothing from Azure yet. Removed by cloud-node.",
    ),
    key(
        Node,
        Taint,
        "node.cloudprovider.kubernetes.io/shutdown",
        "NoSchedule",
        "The VM is stopped. Written and removed by cloud-node-lifecycle.",
    ),
    key(
        Node,
        Taint,
        "node.kubernetes.io/out-of-service",
        "NoExecute",
        "The VM is stopped, and its volumes may move. Written and removed by cloud-node-lifecycle; a person may write it.",
    ),
    key(
        Node,
        Taint,
        "disk.csi.azure.com/agent-not-ready",
        "any effect",
        "Keeps Pods off until the disk driver is registered. Written by the program that makes the Node, removed by the node plugin.",
    ),
    key(
        Lease,
        Annotation,
        "lazuli.azure/services-taken-over",
        "the number of the leadership",
        "That the take-over of Services is accepted. Written by service-lb on its Lease.",
    ),
    key(
        Volume,
        Label,
        "topology.kubernetes.io/region",
        "a region",
        "The disk's region. Written by the admission webhook.",
    ),
    key(
        Volume,
        Label,
        "topology.kubernetes.io/zone",
        "REGION-ZONE",
        "The disk's zone. Written by the admission webhook.",
    ),
];

/// The metrics that the telemetry of a process registers by itself.
pub(super) const PROCESS_METRICS: &[Metric] = &[
    Metric::new(MetricType::Info, "lazuli_build", "What this binary was built from")
        .by(&["version", "revision"])
        .as_go("kubernetes_build_info"),
    Metric::new(MetricType::Gauge, "process_uptime", "Time since the process started").in_unit("seconds"),
    Metric::new(MetricType::Gauge, "process_resident_memory", "Resident memory of the process")
        .in_unit("bytes")
        .as_go("process_resident_memory_bytes"),
];
