//! An emulated Azure whose lists lag, and replicas of the controller on it.

use std::{collections::BTreeMap, time::Duration};

use lazuli_azure::{
    compute::{ApiVersions, Compute},
    on_emulator::{client, principal, routes},
    transport::Transport,
};
use lazuli_emulator::{
    Emulator, Options,
    incident::Incident,
    scenario::{self, Disk, Scenario},
};
use lazuli_model::{
    ArmId,
    event::Event,
    node::{ClusterNodes, KnownNodes, Machine, Node},
    op::VmWriteMethod,
    size::SizeLimits,
};
use lazuli_storage::{dangling::DetachUnused, force_detach::ForceDetach, list::VolumeHandles, lun::LunReservations};
use lazuli_telemetry::lossy;
use serde_json::Value;
use tokio::sync::watch;

use crate::{Admission, Settings, Volumes};

/// The resource group of machines that the cluster's own group does not list.
pub(super) const ELSEWHERE: &str = "elsewhere";

pub(super) struct Rig {
    pub(super) emulator: Emulator,
    pub(super) nodes: watch::Sender<ClusterNodes>,
    pub(super) reservations: watch::Sender<LunReservations>,
    pub(super) method: VmWriteMethod,
}

/// An Azure whose lists lag and that is made from this scenario. A request takes no time.
pub(super) fn lagging(seed: u64, scenario: Scenario) -> Options {
    let mut options = Options { seed, throttling: false, retry_after: Some(0), scenario, ..Options::default() };
    options.unverified.list_lag = true;
    options
}

/// Disks that are attached to no machine.
pub(super) fn disks(names: impl IntoIterator<Item = String>) -> Vec<Disk> {
    let disk = |name| Disk {
        name,
        size_gib: 4,
        sku: "StandardSSD_LRS".into(),
        zone: None,
        resource_group: None,
        attach_to: None,
        tags: BTreeMap::new(),
    };
    names.into_iter().map(disk).collect()
}

impl Rig {
    pub(super) async fn start(options: Options) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        Self {
            emulator: Emulator::start(options).await.unwrap(),
            nodes: watch::channel(ClusterNodes::NoCluster).0,
            reservations: watch::channel(LunReservations::NoCluster).0,
            method: VmWriteMethod::Action,
        }
    }

    /// A replica of the controller, which knows nothing of others.
    pub(super) fn replica(&self, seed: u64) -> Volumes {
        self.replica_telling(seed, lossy::Sender::nowhere())
    }

    /// The same, which sends events for people there.
    pub(super) fn replica_telling(&self, seed: u64, events: lossy::Sender<Event>) -> Volumes {
        let routes = routes(&self.emulator.url().parse().unwrap());
        let transport = Transport::in_process(routes, self.emulator.service());
        let credential = principal(scenario::TENANT, scenario::CLIENT_ID, scenario::CLIENT_SECRET);
        let arm = client(transport, credential, seed);
        Volumes::new(Settings {
            compute: Compute::new(arm, ApiVersions::public()),
            blobs: None,
            subscription: scenario::SUBSCRIPTION.into(),
            resource_group: scenario::RESOURCE_GROUP.into(),
            reservations: self.reservations.subscribe(),
            handles: watch::channel(VolumeHandles::NoCluster).1,
            nodes: self.nodes.subscribe(),
            sizes: watch::channel(SizeLimits::default()).1,
            node_facts: None,
            events,
            force_detach: ForceDetach::Off,
            detach_unused: DetachUnused::On,
            admission: Admission::default(),
            method: self.method,
            metrics: lazuli_reconcile::metrics::Metrics::unregistered(),
            journal: lazuli_journal::Recorder::nowhere(),
        })
    }

    /// The cluster's Nodes are these, each with the machine of its name.
    pub(super) fn set_nodes<'a>(&self, names: impl IntoIterator<Item = &'a String>) {
        let mut known = KnownNodes::default();
        known.replace(names.into_iter().map(|name| {
            let machine = Machine::of_provider_id(&format!("azure://{}", machine(name)));
            (name.clone(), Node { machine, healthy: true, ..Node::default() })
        }));
        self.nodes.send_replace(ClusterNodes::Known(known));
    }

    /// The deletion of a Node is seen.
    pub(super) fn delete_node(&self, name: &str) {
        self.nodes.send_modify(|nodes| match nodes {
            ClusterNodes::Known(known) => assert!(known.remove(name), "there is no Node {name}"),
            ClusterNodes::NoCluster | ClusterNodes::Cold => panic!("there are no Nodes"),
        });
    }

    /// Delays the requests of a method to the paths of a pattern.
    pub(super) fn delay(&self, method: &str, path: &str, delay: Duration) {
        let delay_ms = u64::try_from(delay.as_millis()).unwrap();
        self.incident(serde_json::json!({
            "match": {"method": method, "path": path}, "then": {"delayMs": delay_ms}, "times": 0,
        }));
    }

    pub(super) fn incident(&self, incident: Value) {
        let incident: Incident = serde_json::from_value(incident).unwrap();
        self.emulator.control().add_incident(incident).unwrap();
    }

    /// The LUN at which a machine holds a disk, by the emulator's hypervisor.
    pub(super) fn lun_of(&self, node: &str, disk: &ArmId) -> Option<u8> {
        let maps = self.emulator.control().lun_maps();
        let held = maps.get(&machine(node).to_lowercase())?;
        held.iter().find(|(_, held)| held.eq_ignore_ascii_case(disk.as_str())).map(|(lun, _)| *lun)
    }

    /// How many writes of data disks were sent since the log was reset.
    pub(super) fn writes(&self) -> usize {
        let log = self.emulator.control().call_log();
        log.iter().filter(|call| call.plane == "arm" && call.method != "GET").count()
    }
}

/// The id of a node's machine. Those of nodes called `far-…` are in another resource group.
pub(super) fn machine(node: &str) -> String {
    let group = if node.starts_with("far-") { ELSEWHERE } else { scenario::RESOURCE_GROUP };
    format!(
        "/subscriptions/{}/resourceGroups/{group}/providers/Microsoft.Compute/virtualMachines/{node}",
        scenario::SUBSCRIPTION
    )
}

pub(super) fn disk(name: &str) -> ArmId {
    ArmId::disk(scenario::SUBSCRIPTION, scenario::RESOURCE_GROUP, name).unwrap()
}
