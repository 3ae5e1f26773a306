//! Rows of cells for people, as `kubectl get` prints them: `meta.k8s.io/v1` `Table`.
//!
//! Source of the columns and of what a cell shows: the printers of kube-apiserver 1.36
//! (`pkg/printers/internalversion`); of the snapshot API, the definitions of its kinds. A kind that is not named here has its
//! name and its age.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    resource::Resource,
    table::cells::{access_modes, age, list, named, or, text},
};

mod cells;

/// A column: its head, and whether only a wide table shows it.
type Column = (&'static str, Width);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Width {
    Always,
    Wide,
}

use Width::{Always, Wide};

/// The columns of a kind, and the cells of an object.
struct Layout {
    columns: &'static [Column],
    cells: fn(&Value, Timestamp) -> Vec<Value>,
}

fn layout(resource: &Resource) -> Layout {
    let of = |columns, cells| Layout { columns, cells };
    match (resource.group, resource.plural) {
        ("", "services") => of(SERVICE, cells::service),
        ("", "nodes") => of(NODE, cells::node),
        (_, "events") => of(EVENT, cells::event),
        ("", "namespaces") => of(NAMESPACE, |object, now| {
            vec![named(object), json!(or(text(object, "/status/phase"), "Active")), age(object, now)]
        }),
        ("", "configmaps") => of(DATA, |object, now| {
            let count = cells::size(object, "/data") + cells::size(object, "/binaryData");
            vec![named(object), json!(count.to_string()), age(object, now)]
        }),
        ("", "secrets") => of(SECRET, |object, now| {
            let count = cells::size(object, "/data");
            vec![named(object), json!(text(object, "/type")), json!(count.to_string()), age(object, now)]
        }),
        ("", "pods") => of(POD, cells::pod),
        ("", "persistentvolumes") => of(VOLUME, cells::volume),
        ("", "persistentvolumeclaims") => of(CLAIM, |object, now| {
            vec![
                named(object),
                json!(or(text(object, "/status/phase"), "Pending")),
                json!(text(object, "/spec/volumeName")),
                json!(text(object, "/status/capacity/storage")),
                json!(access_modes(object, "/status/accessModes")),
                json!(text(object, "/spec/storageClassName")),
                json!(or(text(object, "/spec/volumeAttributesClassName"), "<unset>")),
                age(object, now),
                json!(or(text(object, "/spec/volumeMode"), "<unset>")),
            ]
        }),
        ("", "endpoints") => {
            of(ENDPOINTS, |object, now| vec![named(object), cells::endpoints(object), age(object, now)])
        }
        ("discovery.k8s.io", "endpointslices") => of(SLICE, |object, now| {
            let ports = list(object, "/ports").map(|port| match &port["port"] {
                Value::Null => or(text(port, "/name"), "*").to_owned(),
                number => number.to_string(),
            });
            let addresses = list(object, "/endpoints").flat_map(|one| list(one, "/addresses"));
            let addresses = addresses.filter_map(Value::as_str).map(str::to_owned);
            vec![
                named(object),
                json!(text(object, "/addressType")),
                json!(cells::first_three(ports)),
                json!(cells::first_three(addresses)),
                age(object, now),
            ]
        }),
        ("coordination.k8s.io", "leases") => {
            of(LEASE, |object, now| vec![named(object), json!(text(object, "/spec/holderIdentity")), age(object, now)])
        }
        ("storage.k8s.io", "volumeattachments") => of(ATTACHMENT, |object, now| {
            vec![
                named(object),
                json!(text(object, "/spec/attacher")),
                json!(text(object, "/spec/source/persistentVolumeName")),
                json!(text(object, "/spec/nodeName")),
                json!(object["status"]["attached"] == true),
                age(object, now),
            ]
        }),
        ("storage.k8s.io", "csinodes") => of(CSI_NODE, |object, now| {
            vec![named(object), json!(list(object, "/spec/drivers").count()), age(object, now)]
        }),
        ("storage.k8s.io", "csidrivers") => of(CSI_DRIVER, cells::csi_driver),
        ("storage.k8s.io", "storageclasses") => of(CLASS, cells::class),
        ("storage.k8s.io", "volumeattributesclasses") => {
            of(ATTRIBUTES, |object, now| vec![named(object), json!(text(object, "/driverName")), age(object, now)])
        }
        ("snapshot.storage.k8s.io", "volumesnapshots") => of(SNAPSHOT, cells::snapshot),
        ("snapshot.storage.k8s.io", "volumesnapshotcontents") => of(CONTENT, cells::snapshot_content),
        ("snapshot.storage.k8s.io", "volumesnapshotclasses") => of(SNAPSHOT_CLASS, |object, now| {
            let of = |field| json!(text(object, field));
            vec![named(object), of("/driver"), of("/deletionPolicy"), age(object, now)]
        }),
        _ => of(PLAIN, |object, now| vec![named(object), age(object, now)]),
    }
}

const PLAIN: &[Column] = &[("Name", Always), ("Age", Always)];
const SERVICE: &[Column] = &[
    ("Name", Always),
    ("Type", Always),
    ("Cluster-IP", Always),
    ("External-IP", Always),
    ("Port(s)", Always),
    ("Age", Always),
    ("Selector", Wide),
];
const NODE: &[Column] = &[
    ("Name", Always),
    ("Status", Always),
    ("Roles", Always),
    ("Age", Always),
    ("Version", Always),
    ("Internal-IP", Wide),
    ("External-IP", Wide),
    ("OS-Image", Wide),
    ("Kernel-Version", Wide),
    ("Container-Runtime", Wide),
];
const EVENT: &[Column] = &[
    ("Last Seen", Always),
    ("Type", Always),
    ("Reason", Always),
    ("Object", Always),
    ("Subobject", Wide),
    ("Source", Wide),
    ("Message", Always),
    ("First Seen", Wide),
    ("Count", Wide),
    ("Name", Wide),
];
const NAMESPACE: &[Column] = &[("Name", Always), ("Status", Always), ("Age", Always)];
const DATA: &[Column] = &[("Name", Always), ("Data", Always), ("Age", Always)];
const SECRET: &[Column] = &[("Name", Always), ("Type", Always), ("Data", Always), ("Age", Always)];
const POD: &[Column] = &[
    ("Name", Always),
    ("Ready", Always),
    ("Status", Always),
    ("Restarts", Always),
    ("Age", Always),
    ("IP", Wide),
    ("Node", Wide),
    ("Nominated Node", Wide),
    ("Readiness Gates", Wide),
];
const VOLUME: &[Column] = &[
    ("Name", Always),
    ("Capacity", Always),
    ("Access Modes", Always),
    ("Reclaim Policy", Always),
    ("Status", Always),
    ("Claim", Always),
    ("StorageClass", Always),
    ("VolumeAttributesClass", Always),
    ("Reason", Always),
    ("Age", Always),
    ("VolumeMode", Wide),
];
const CLAIM: &[Column] = &[
    ("Name", Always),
    ("Status", Always),
    ("Volume", Always),
    ("Capacity", Always),
    ("Access Modes", Always),
    ("StorageClass", Always),
    ("VolumeAttributesClass", Always),
    ("Age", Always),
    ("VolumeMode", Wide),
];
const ENDPOINTS: &[Column] = &[("Name", Always), ("Endpoints", Always), ("Age", Always)];
const SLICE: &[Column] =
    &[("Name", Always), ("AddressType", Always), ("Ports", Always), ("Endpoints", Always), ("Age", Always)];
const LEASE: &[Column] = &[("Name", Always), ("Holder", Always), ("Age", Always)];
const ATTACHMENT: &[Column] =
    &[("Name", Always), ("Attacher", Always), ("PV", Always), ("Node", Always), ("Attached", Always), ("Age", Always)];
const CSI_NODE: &[Column] = &[("Name", Always), ("Drivers", Always), ("Age", Always)];
const CSI_DRIVER: &[Column] = &[
    ("Name", Always),
    ("AttachRequired", Always),
    ("PodInfoOnMount", Always),
    ("StorageCapacity", Always),
    ("TokenRequests", Always),
    ("RequiresRepublish", Always),
    ("Modes", Always),
    ("Age", Always),
];
const CLASS: &[Column] = &[
    ("Name", Always),
    ("Provisioner", Always),
    ("ReclaimPolicy", Always),
    ("VolumeBindingMode", Always),
    ("AllowVolumeExpansion", Always),
    ("Age", Always),
];
const ATTRIBUTES: &[Column] = &[("Name", Always), ("DriverName", Always), ("Age", Always)];
const SNAPSHOT: &[Column] = &[
    ("Name", Always),
    ("ReadyToUse", Always),
    ("SourcePVC", Always),
    ("SourceSnapshotContent", Always),
    ("RestoreSize", Always),
    ("SnapshotClass", Always),
    ("SnapshotContent", Always),
    ("CreationTime", Always),
    ("Age", Always),
];
const CONTENT: &[Column] = &[
    ("Name", Always),
    ("ReadyToUse", Always),
    ("RestoreSize", Always),
    ("DeletionPolicy", Always),
    ("Driver", Always),
    ("VolumeSnapshotClass", Always),
    ("VolumeSnapshot", Always),
    ("VolumeSnapshotNamespace", Always),
    ("Age", Always),
];
const SNAPSHOT_CLASS: &[Column] = &[("Name", Always), ("Driver", Always), ("DeletionPolicy", Always), ("Age", Always)];

/// How much of each object a row carries beside its cells: the query's `includeObject`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Include {
    Nothing,
    Metadata,
    Object,
}

/// An object's metadata as an object of its own.
pub(crate) fn partial(object: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]})
}

/// The row of an object.
pub(crate) fn row(resource: &Resource, object: &Value, include: Include, now: Timestamp) -> Value {
    let shown = match include {
        Include::Nothing => Value::Null,
        Include::Metadata => partial(object),
        Include::Object => object.clone(),
    };
    json!({"cells": (layout(resource).cells)(object, now), "object": shown})
}

/// A table of these rows. `heads`: whether it says what its columns are; a watch says it once.
pub(crate) fn table(resource: &Resource, metadata: Value, rows: Vec<Value>, heads: bool) -> Value {
    let column = |(name, width): &Column| {
        let format = if *name == "Name" { "name" } else { "" };
        let kind = match *name {
            "Attached" | "AttachRequired" | "PodInfoOnMount" | "StorageCapacity" | "RequiresRepublish" => "boolean",
            "Drivers" => "integer",
            _ => "string",
        };
        json!({"name": name, "type": kind, "format": format, "description": "", "priority": i32::from(*width == Wide)})
    };
    let columns: Vec<Value> = if heads { layout(resource).columns.iter().map(column).collect() } else { Vec::new() };
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "columnDefinitions": columns, "rows": rows,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource;

    #[test]
    fn every_kind_has_as_many_cells_as_columns_whatever_the_object_lacks() {
        for one in resource::ALL {
            for object in [json!({}), json!({"metadata": {"name": "x"}, "spec": {}, "status": {}})] {
                let row = row(one, &object, Include::Metadata, Timestamp::UNIX_EPOCH);
                let table = table(one, json!({}), vec![row], true);
                let (cells, columns) = (&table["rows"][0]["cells"], &table["columnDefinitions"]);
                assert_eq!(cells.as_array().unwrap().len(), columns.as_array().unwrap().len(), "{}", one.plural);
            }
        }
    }

    fn cells_of(plural: &str, object: &Value, seconds: i64) -> Value {
        let now = Timestamp::from_second(seconds).unwrap();
        row(resource::by_plural(plural).unwrap(), object, Include::Nothing, now)["cells"].clone()
    }

    #[test]
    fn a_service_shows_its_addresses_and_ports() {
        let mut service = json!({
            "metadata": {"name": "web", "creationTimestamp": "1970-01-01T00:00:10Z"},
            "spec": {"type": "LoadBalancer", "clusterIP": "10.96.0.10", "clusterIPs": ["10.96.0.10"],
                "selector": {"b": "2", "a": "1"},
                "ports": [{"port": 80, "nodePort": 30_000, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}]},
        });
        let cells = json!(["web", "LoadBalancer", "10.96.0.10", "<pending>", "80:30000/TCP,53/UDP", "50s", "a=1,b=2"]);
        assert_eq!(cells_of("services", &service, 60), cells);
        service["status"]["loadBalancer"]["ingress"] = json!([{"ip": "198.18.0.2"}, {"hostname": "a.test"}]);
        assert_eq!(cells_of("services", &service, 60)[3], "198.18.0.2,a.test");
        service["spec"]["type"] = json!("ClusterIP");
        assert_eq!(cells_of("services", &service, 60)[3], "<none>");
        service["spec"] = json!({"type": "ExternalName", "externalName": "a.test"});
        assert_eq!(
            cells_of("services", &service, 60),
            json!(["web", "ExternalName", "<none>", "a.test", "<none>", "50s", "<none>"])
        );
    }

    #[test]
    fn a_node_shows_its_state_roles_and_addresses() {
        let node = json!({
            "metadata": {"name": "n", "labels": {"node-role.kubernetes.io/worker": "", "kubernetes.io/role": "db"}},
            "spec": {"unschedulable": true},
            "status": {"conditions": [{"type": "Ready", "status": "False"}],
                "addresses": [{"type": "InternalIP", "address": "10.0.0.4"}],
                "nodeInfo": {"kubeletVersion": "v1", "kernelVersion": "6.1", "architecture": "amd64"}},
        });
        let cells = json!([
            "n",
            "NotReady,SchedulingDisabled",
            "db,worker",
            "<unknown>",
            "v1",
            "10.0.0.4",
            "<none>",
            "<unknown>",
            "6.1 (amd64)",
            "<unknown>"
        ]);
        assert_eq!(cells_of("nodes", &node, 0), cells);
    }

    #[test]
    fn a_snapshot_shows_whether_it_is_ready_and_what_it_is_of() {
        let snapshot = json!({
            "metadata": {"name": "s", "creationTimestamp": "1970-01-01T00:00:10Z"},
            "spec": {"source": {"persistentVolumeClaimName": "data"}, "volumeSnapshotClassName": "c"},
            "status": {"readyToUse": true, "restoreSize": "10Gi", "boundVolumeSnapshotContentName": "content",
                "creationTime": "1970-01-01T00:00:20Z"},
        });
        let cells = json!(["s", "true", "data", "", "10Gi", "c", "content", "40s", "50s"]);
        assert_eq!(cells_of("volumesnapshots", &snapshot, 60), cells);
        // One that nothing has answered yet.
        let begun = json!({"metadata": {"name": "s"}, "spec": {}});
        let cells = json!(["s", "", "", "", "", "", "", "", "<unknown>"]);
        assert_eq!(cells_of("volumesnapshots", &begun, 60), cells);
        let content = json!({
            "metadata": {"name": "c"}, "status": {"readyToUse": false, "restoreSize": 1024},
            "spec": {"driver": "d", "deletionPolicy": "Delete", "volumeSnapshotRef": {"namespace": "shop", "name": "s"}},
        });
        let cells = json!(["c", "false", "1024", "Delete", "d", "", "s", "shop", "<unknown>"]);
        assert_eq!(cells_of("volumesnapshotcontents", &content, 60), cells);
    }

    #[test]
    fn an_event_shows_when_it_was_seen_last_and_how_often() {
        let event = json!({
            "metadata": {"name": "e"}, "type": "Warning", "reason": "Failed", "note": "text ",
            "regarding": {"kind": "Service", "name": "web"}, "eventTime": "1970-01-01T00:00:00.500000Z",
            "series": {"count": 3, "lastObservedTime": "1970-01-01T00:01:00.000000Z"}, "reportingController": "lazuli",
        });
        let cells = json!(["60s", "Warning", "Failed", "service/web", "", "lazuli", "text", "119s", "3", "e"]);
        assert_eq!(cells_of("events", &event, 120), cells);
    }

    #[test]
    fn an_age_has_at_most_two_units() {
        for (seconds, age) in [
            (-5, "<invalid>"),
            (-1, "0s"),
            (119, "119s"),
            (120, "2m"),
            (185, "3m5s"),
            (600, "10m"),
            (3 * 3600, "3h"),
            (3 * 3600 + 60, "3h1m"),
            (47 * 3600, "47h"),
            (48 * 3600, "2d"),
            (50 * 3600, "2d2h"),
            (9 * 86_400, "9d"),
            (730 * 86_400, "2y"),
            (800 * 86_400, "2y70d"),
            (3_650 * 86_400, "10y"),
        ] {
            assert_eq!(cells::elapsed(seconds), age, "{seconds}");
        }
    }
}
