//! Gauges of what this process knows of the cluster: read when a page is made, from what is followed anyway.

use lazuli_model::reference::{Metric, MetricType::Gauge as Level};
use lazuli_shares::deletion::ShareVolumes;
use lazuli_storage::{list::VolumeHandles, lun::LunReservations};
use lazuli_telemetry::go_names::{Family, GoNames};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{MetricType, gauge::ConstGauge},
    registry::Registry,
};
use tokio::{sync::watch, time::Instant};

use super::lease::{LeaseName, LeaseView};

const LEADER: Metric =
    Metric::new(Level, "lazuli_leader", "Whether this process holds a Lease, named by namespace/name: 1 or 0")
        .by(&["lease"])
        .as_go("leader_election_master_status");
const VOLUMES: Metric =
    Metric::new(Level, "lazuli_volumes", "PersistentVolumes of a driver that the API server has listed")
        .by(&["driver"]);
const ATTACHMENTS: Metric = Metric::new(
    Level,
    "lazuli_volume_attachments",
    "Disks that are attached to a machine, by the VolumeAttachments of a driver",
)
.by(&["driver"]);

/// The metrics of what is known of the cluster.
pub const LEVELS: &[Metric] = &[LEADER, VOLUMES, ATTACHMENTS];

/// Source: client-go's metric of leader election, which the Go manager registers.
const MASTER_STATUS: Family = Family::gauge(
    "leader_election_master_status",
    "Whether this process holds the Lease of this name: 1 or 0",
    &["name"],
);

/// The families of the Go manager that this crate writes.
pub const GO_FAMILIES: &[&Family] = &[&MASTER_STATUS];

/// A gauge with one label, which is absent while its value is not known.
struct Gauge {
    metric: Metric,
    labels: [(&'static str, String); 1],
    value: Box<dyn Fn() -> Option<i64> + Send + Sync>,
}

impl std::fmt::Debug for Gauge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gauge").field("metric", &self.metric).field("labels", &self.labels).finish_non_exhaustive()
    }
}

/// Gauges of one metric: a family is named once in a page.
#[derive(Debug)]
struct Gauges(Vec<Gauge>);

impl Collector for Gauges {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), std::fmt::Error> {
        let known: Vec<(&Gauge, i64)> = self.0.iter().filter_map(|gauge| Some((gauge, (gauge.value)()?))).collect();
        let Some((Gauge { metric, .. }, _)) = known.first() else { return Ok(()) };
        let mut family = encoder.encode_descriptor(metric.stem, metric.help, None, MetricType::Gauge)?;
        for (gauge, value) in known {
            ConstGauge::new(value).encode(family.encode_family(&gauge.labels)?)?;
        }
        Ok(())
    }
}

fn gauge(metric: Metric, label: &str, value: impl Fn() -> Option<i64> + Send + Sync + 'static) -> Gauge {
    let name = metric.labels.first().copied().unwrap_or_default();
    Gauge { metric, labels: [(name, label.to_owned())], value: Box::new(value) }
}

/// Registers `lazuli_leader{lease}`, and what the Go manager calls it.
pub fn register_leadership(registry: &mut Registry, go: &GoNames, lease: &LeaseName, view: &LeaseView) {
    let leads = |view: &LeaseView| view.seen().leads_until.is_some_and(|until| Instant::now() < until);
    let name = format!("{}/{}", lease.namespace, lease.name);
    let seen = view.clone();
    registry.register_collector(Box::new(Gauges(vec![gauge(LEADER, &name, move || Some(leads(&seen).into()))])));
    let seen = view.clone();
    go.level(&MASTER_STATUS, &[&lease.name], move || if leads(&seen) { 1.0 } else { 0.0 });
}

/// What the API server tells of the volumes of a driver.
#[derive(Debug, Clone)]
pub enum KnownVolumes {
    /// Of disks, and which machines they are attached to.
    Disks(watch::Receiver<VolumeHandles>, watch::Receiver<LunReservations>),
    /// Of file shares, which nothing attaches.
    Shares(watch::Receiver<ShareVolumes>),
}

/// Registers `lazuli_volumes{driver}` and `lazuli_volume_attachments{driver}` of these drivers.
pub fn register_volumes(registry: &mut Registry, drivers: Vec<(String, KnownVolumes)>) {
    let (mut volumes, mut attachments) = (Vec::new(), Vec::new());
    for (driver, known) in drivers {
        match known {
            KnownVolumes::Disks(handles, luns) => {
                volumes.push(gauge(VOLUMES, &driver, move || match &*handles.borrow() {
                    VolumeHandles::Synced(handles) => Some(count(handles.len())),
                    VolumeHandles::NoCluster | VolumeHandles::Cold => None,
                }));
                attachments.push(gauge(ATTACHMENTS, &driver, move || match &*luns.borrow() {
                    LunReservations::Synced(nodes) => Some(count(nodes.values().map(Vec::len).sum())),
                    LunReservations::NoCluster | LunReservations::Cold => None,
                }));
            }
            KnownVolumes::Shares(shares) => {
                volumes.push(gauge(VOLUMES, &driver, move || Some(count(shares.borrow().as_ref()?.len()))));
            }
        }
    }
    registry.register_collector(Box::new(Gauges(volumes)));
    registry.register_collector(Box::new(Gauges(attachments)));
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, sync::Arc};

    use lazuli_storage::lun::Reservation;

    use super::*;

    fn page(registry: &Registry) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
        text
    }

    #[test]
    fn volumes_and_attachments_are_those_that_the_api_server_has_told() {
        let (tell, handles) = watch::channel(VolumeHandles::Cold);
        let (tell_luns, luns) = watch::channel(LunReservations::Cold);
        let (tell_shares, shares) = watch::channel(None);
        let mut registry = Registry::default();
        let disks = ("disk.csi.azure.com".to_owned(), KnownVolumes::Disks(handles, luns));
        let files = ("file.csi.azure.com".to_owned(), KnownVolumes::Shares(shares));
        register_volumes(&mut registry, vec![disks, files]);
        assert_eq!(page(&registry), "# EOF\n", "what is not known is absent");
        let named = |names: &[&str]| names.iter().map(|name| ((*name).to_owned(), Arc::from(*name))).collect();
        tell.send_replace(VolumeHandles::Synced(named(&["pv-1", "pv-2"])));
        let reservation = |attachment: &str| Reservation {
            lun: 1.try_into().unwrap(),
            volume_handle: None,
            attachment: attachment.to_owned(),
        };
        let nodes = [("a", vec![reservation("1"), reservation("2")]), ("b", vec![reservation("3")])];
        let nodes: BTreeMap<String, Vec<Reservation>> =
            nodes.into_iter().map(|(name, reservations)| (name.to_owned(), reservations)).collect();
        tell_luns.send_replace(LunReservations::Synced(nodes));
        tell_shares.send_replace(Some(Arc::new(vec![])));
        let text = page(&registry);
        for line in [
            "lazuli_volumes{driver=\"disk.csi.azure.com\"} 2",
            "lazuli_volumes{driver=\"file.csi.azure.com\"} 0",
            "lazuli_volume_attachments{driver=\"disk.csi.azure.com\"} 3",
        ] {
            assert!(text.lines().any(|there| there == line), "{line} is not in\n{text}");
        }
        assert_eq!(text.matches("# TYPE lazuli_volumes ").count(), 1, "{text}");
    }

    #[tokio::test(start_paused = true)]
    async fn the_leader_is_shown_under_our_name_and_under_that_of_go_while_its_lease_lasts() {
        let (view, go) = (LeaseView::default(), GoNames::on());
        let lease = LeaseName {
            namespace: "kube-system".to_owned(),
            name: "cloud-controller-manager".to_owned(),
            identity: "me".to_owned(),
        };
        let mut registry = Registry::default();
        register_leadership(&mut registry, &go, &lease, &view);
        let shown = || {
            let mut text = page(&registry);
            go.write(&mut text);
            let values = [
                "lazuli_leader{lease=\"kube-system/cloud-controller-manager\"} ",
                "leader_election_master_status{name=\"cloud-controller-manager\"} ",
            ];
            values.map(|begin| text.lines().find_map(|line| line.strip_prefix(begin).map(str::to_owned)).unwrap())
        };
        assert_eq!(shown(), ["0", "0"]);
        view.note(Some(Instant::now() + std::time::Duration::from_secs(10)), &serde_json::Value::Null);
        assert_eq!(shown(), ["1", "1"]);
        tokio::time::advance(std::time::Duration::from_secs(10)).await;
        assert_eq!(shown(), ["0", "0"]);
    }
}
