//! The arguments, program by program. Sources: the charts `cloud-provider-azure` and `azuredisk-csi-driver`, and the flags
//! that those programs define.

use super::{Effect::*, MOST, Program, Row, Value::*};

const fn row(name: &'static str, value: super::Value, effect: super::Effect, sentence: &'static str) -> Row {
    Row { name, value, effect, sentence }
}

/// The manager of Services, Nodes and routes.
#[derive(Debug)]
pub(crate) struct CloudControllerManager;

impl Program for CloudControllerManager {
    const NAME: &'static str = "cloud-controller-manager";
    const HEADING: &'static str =
        "Arguments of the Azure cloud-controller-manager, so that its list starts this program";
    const ROWS: &'static [Row] = &[
        row("cloud-provider", Words(&["azure"]), NotNeeded, "this program knows one provider"),
        row(
            "bind-address",
            Text,
            NotDone,
            "nothing is served at --secure-port; --health-endpoint and --metrics-endpoint name addresses of their own",
        ),
        row(
            "secure-port",
            Whole(0, 65_535),
            NotDone,
            "nothing is served there; give --health-endpoint=:PORT for probes and --metrics-endpoint=:PORT for metrics, \
             and point what asks at them",
        ),
        row(
            "port",
            Whole(0, 65_535),
            NotDone,
            "nothing is served there; give --health-endpoint=:PORT and point the probes at it",
        ),
        row(
            "cert-dir",
            Text,
            NotNeeded,
            "the certificate for metrics is made in memory, or named by --metrics-certificate and --metrics-key",
        ),
        row("contention-profiling", Flag, NotNeeded, "there is no Go runtime to profile"),
        row("profiling", Flag, NotNeeded, "there is no Go runtime to profile; --log and the metrics show what is slow"),
        row(
            "controller-start-interval",
            Duration,
            NotNeeded,
            "the controllers start together and wait for what they need",
        ),
        row(
            "enable-dynamic-reloading",
            Flag,
            NotNeeded,
            "the credential of file and Secret is read again twice a minute in any case; other keys count after a restart",
        ),
        row(
            "http2-max-streams-per-connection",
            Whole(0, MOST),
            NotNeeded,
            "it is about the server of --secure-port, which is not there",
        ),
        row(
            "kube-api-burst",
            Whole(0, MOST),
            NotNeeded,
            "the controllers follow objects by watches and have few requests in flight; the API server's own fairness \
             counts",
        ),
        row("kube-api-qps", Number, NotNeeded, "as for --kube-api-burst: there is no limit to set"),
        row(
            "kube-api-content-type",
            Text,
            NotNeeded,
            "objects are read and written as JSON, which every API server has",
        ),
        row(
            "leader-elect",
            Flag,
            NotNeeded,
            "the Lease of --lease-name is always taken, also with false: two processes must never write at once",
        ),
        row(
            "leader-elect-lease-duration",
            Duration,
            NotNeeded,
            "the Lease lasts 15 s, as the Go manager's does by default; its times are part of what is proved",
        ),
        row("leader-elect-renew-deadline", Duration, NotNeeded, "it follows from the Lease's 15 s"),
        row("leader-elect-retry-period", Duration, NotNeeded, "it follows from the Lease's 15 s"),
        row("leader-elect-resource-lock", Words(&["leases"]), NotNeeded, "the lock is a Lease, as the Go manager's is"),
        row(
            "master",
            Words(&[""]),
            NotNeeded,
            "the kubeconfig (--kubeconfig) or the pod names the API server; only an empty value is taken",
        ),
        row(
            "min-resync-period",
            Duration,
            NotNeeded,
            "watches are confirmed by lists of their own; --resync-seconds says how often Azure is read again",
        ),
        row(
            "node-monitor-period",
            Duration,
            NotNeeded,
            "a Node that is not Ready is looked at when its watch shows it, then every 10 to 60 s",
        ),
        row(
            "route-reconciliation-period",
            Duration,
            NotNeeded,
            "routes are written when Nodes change, and compared with Azure's again every five minutes",
        ),
        row(
            "use-service-account-credentials",
            Flag,
            NotNeeded,
            "all controllers are one client of the API server, with the rights of the chart's roles",
        ),
        row("concurrent-service-syncs", Whole(1, MOST), NotNeeded, "Services are served at once, and share writes"),
        row("concurrent-node-syncs", Whole(1, MOST), NotNeeded, "Nodes are initialised at once"),
        row("feature-gates", Text, NotDone, "this program has no feature gates"),
        row(
            "authentication-kubeconfig",
            Text,
            NotNeeded,
            "it is about the server of --secure-port, which is not there",
        ),
        row("authorization-kubeconfig", Text, NotNeeded, "it is about the server of --secure-port, which is not there"),
        row(
            "authentication-skip-lookup",
            Flag,
            NotNeeded,
            "it is about the server of --secure-port, which is not there",
        ),
    ];
}

const OF_DRIVER: &str = "Arguments of azuredisk-csi-driver, so that its list starts this program";

/// The disk driver's controller.
#[derive(Debug)]
pub(crate) struct DiskController;

/// Arguments that the Go driver's controller and node plugin both take and that mean the same for both.
macro_rules! of_both {
    ($($more:expr),* $(,)?) => {
        &[
            row(
                "metrics-address",
                Text,
                NotDone,
                "nothing is served there; give --metrics-endpoint=:PORT, which asks readers for a token of the cluster",
            ),
            row(
                "custom-user-agent",
                Text,
                NotDone,
                "the key userAgent of the cloud configuration is added to what requests to Azure name",
            ),
            row(
                "user-agent-suffix",
                Text,
                NotDone,
                "the key userAgent of the cloud configuration is added to what requests to Azure name",
            ),
            row(
                "enable-otel-tracing",
                Flag,
                NotDone,
                "there are no traces; logs carry the request ids of Azure, and metrics the times of every call",
            ),
            row("enable-traffic-manager", Flag, NotNeeded, "nothing of this program asks for it"),
            row("traffic-manager-port", Whole(0, 65_535), NotNeeded, "there is no traffic manager"),
            row("enable-disk-online-resize", Flag, NotNeeded, "disks are resized online wherever Azure can do it"),
            row("enable-windows-host-process", Flag, NotNeeded, "nodes with Windows are not served"),
            row("use-csiproxy-ga-interface", Flag, NotNeeded, "nodes with Windows are not served"),
            $($more),*
        ]
    };
}

impl Program for DiskController {
    const NAME: &'static str = "azuredisk-csi-driver";
    const HEADING: &'static str = OF_DRIVER;
    const ROWS: &'static [Row] = of_both![
        row(
            "allow-empty-cloud-config",
            Flag,
            NotNeeded,
            "the controller needs a cloud configuration, and says so when it starts",
        ),
        row("disable-avset-nodes", Flag, NotNeeded, "machines of every kind are found by what their Nodes say"),
        row(
            "vm-type",
            Words(&["", "vmss", "standard", "vmssflex"]),
            NotNeeded,
            "machines of every kind are found by what their Nodes say",
        ),
        row(
            "vmss-cache-ttl-seconds",
            Whole(-1, MOST),
            NotNeeded,
            "what was read of Azure is not kept for a time: it is read again when a decision needs it",
        ),
        row("disable-update-cache", Flag, NotNeeded, "there is no such cache"),
        row("enable-list-snapshots", Flag, NotNeeded, "snapshots are always listed",),
        row(
            "wait-for-snapshot-ready",
            Flag,
            NotNeeded,
            "external-snapshotter asks for a snapshot until it is ready, and no call waits for that",
        ),
        row(
            "enable-disk-capacity-check",
            Flag,
            NotDone,
            "the capacity of the subscription is not asked for; Azure's answer to the creation counts",
        ),
        row(
            "check-disk-lun-collision",
            Flag,
            NotNeeded,
            "LUNs that VolumeAttachments name are always kept free for their disks",
        ),
        row(
            "attach-detach-initial-delay-ms",
            Whole(0, MOST),
            NotNeeded,
            "requests for one VM are collected until a burst goes quiet, tens of milliseconds",
        ),
        row(
            "force-detach-backoff",
            Flag,
            NotDone,
            "a disk is detached by force only as --force-detach-stopped-vms says",
        ),
    ];
}

/// The disk driver's node plugin.
#[derive(Debug)]
pub(crate) struct DiskNode;

impl Program for DiskNode {
    const NAME: &'static str = "azuredisk-csi-driver";
    const HEADING: &'static str = OF_DRIVER;
    const ROWS: &'static [Row] = of_both![
        row(
            "volume-attach-limit",
            Whole(-1, MOST),
            Acts,
            "how many volumes this node takes, as --max-volumes, which wins; -1 is what the VM size says",
        ),
        row("support-zone", Flag, Acts, "false is --no-zones: the node reports no zone"),
        row(
            "get-node-info-from-labels",
            Flag,
            NotNeeded,
            "the zone is that of the instance metadata, or of the Node's labels where the metadata service does not answer",
        ),
        row("get-nodeid-from-imds", Flag, NotNeeded, "the node's id is its Kubernetes node name (--node-id)"),
        row("enable-perf-optimization", Flag, NotNeeded, "a StorageClass with perfProfile is tuned in any case"),
        row(
            "remove-not-ready-taint",
            Flag,
            NotNeeded,
            "the driver's start-up taint is removed when the driver is registered, also with false",
        ),
        row(
            "max-concurrent-format",
            Whole(0, MOST),
            NotNeeded,
            "two disks are formatted at once, which is the Go driver's default",
        ),
        row(
            "concurrent-format-timeout",
            Whole(0, MOST),
            NotNeeded,
            "a format has a time limit of its own, which is not an option"
        ),
        row(
            "vol-stats-cache-expire-in-minutes",
            Whole(0, MOST),
            NotNeeded,
            "statistics are read when they are asked for"
        ),
        row("allow-empty-cloud-config", Flag, NotNeeded, "the node plugin reads no cloud configuration"),
        row("cloud-config-secret-name", Text, NotNeeded, "the node plugin reads no cloud configuration"),
        row("cloud-config-secret-namespace", Text, NotNeeded, "the node plugin reads no cloud configuration"),
    ];
}
