//! Writes what a person must know as Kubernetes events (`events.k8s.io/v1`).
//!
//! Callers put observations into a bounded queue and never wait. One task takes them out, asks [`EventLog`] what to write,
//! and writes one event after another. An observation that does not fit, and an event that the API server refuses, is
//! counted; no call fails because of it.
//!
//! The name of an event is made from what it says. A process that starts anew, and the other replica, meet the event of
//! the first one (409), and count on in its series.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::{
    Client,
    api::{Patch, PatchParams, PostParams},
    core::Request,
};
use lazuli_model::reference::{Metric, MetricType};
use lazuli_model::{
    DiskId, VolumeId,
    event::{Decision, Event, EventLog, Regarding},
};
use lazuli_storage::list::VolumeHandles;
use lazuli_telemetry::lossy;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::{
    client::{answered, get},
    reservations::VOLUMES,
    server::ApiError,
};

/// Observations that wait to be written.
const WAITING: usize = 256;
/// The namespace of events about objects without one. Source: Kubernetes' validation of events.
const DEFAULT_NAMESPACE: &str = "default";
/// The longest text in `reportingInstance`, in bytes. Source: the same.
const LONGEST_INSTANCE: usize = 128;
/// The longest name of an object. Source: the same.
const LONGEST_NAME: usize = 253;

/// Who reports.
#[derive(Debug, Clone)]
pub struct Reporter {
    /// The driver's name.
    pub controller: String,
    /// The name of this process's pod or node.
    pub instance: String,
}

const EVENTS: Metric = Metric::new(
    MetricType::Counter,
    "lazuli_events",
    "Kubernetes events: created, repeated, suppressed (too many of one object), lost (the queue was full), failed, no_object",
)
.by(&["outcome"]);

/// The metrics of events.
pub const METRICS: &[Metric] = &[EVENTS];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    outcome: &'static str,
}

/// What becomes of observations. Clones count together.
#[derive(Debug, Clone)]
pub struct EventMetrics(Family<Outcome, Counter>);

impl EventMetrics {
    /// Registers `lazuli_events_total{outcome}`.
    pub fn register(registry: &mut Registry) -> Self {
        let family = Family::default();
        registry.register(EVENTS.stem, EVENTS.help, family.clone());
        Self(family)
    }

    fn of(&self, outcome: &'static str) -> Counter {
        self.0.get_or_create(&Outcome { outcome }).clone()
    }
}

/// The queue of observations, for [`write_events`].
pub fn event_queue(metrics: &EventMetrics) -> (lossy::Sender<Event>, lossy::Receiver<Event>) {
    lossy::channel(WAITING, metrics.of("lost"))
}

/// Writes events until `stop`. `handles` resolve the claim of a disk.
pub async fn write_events(
    client: Client,
    reporter: Reporter,
    handles: watch::Receiver<VolumeHandles>,
    mut queue: lossy::Receiver<Event>,
    metrics: EventMetrics,
    stop: CancellationToken,
) {
    let mut writer = Writer { client, reporter, handles, metrics, log: EventLog::default(), failing: false };
    let started = Instant::now();
    let work = async {
        while let Some(event) = queue.receive().await {
            writer.observe(started, &event).await;
        }
    };
    stop.run_until_cancelled(work).await;
}

struct Writer {
    client: Client,
    reporter: Reporter,
    handles: watch::Receiver<VolumeHandles>,
    metrics: EventMetrics,
    log: EventLog,
    /// Whether the last write failed: a failure is logged once.
    failing: bool,
}

impl Writer {
    async fn observe(&mut self, started: Instant, event: &Event) {
        let count = match self.log.observe(started.elapsed(), event) {
            Decision::Nothing => return,
            Decision::Suppress => {
                self.metrics.of("suppressed").inc();
                return;
            }
            Decision::Create => None,
            Decision::Repeat(count) => Some(count),
        };
        match self.write(event, count).await {
            Ok(Written::Created) => self.metrics.of("created").inc(),
            Ok(Written::Repeated) => self.metrics.of("repeated").inc(),
            Ok(Written::NoObject) => {
                // The volume may not be known yet.
                self.log.not_written(event);
                self.metrics.of("no_object").inc()
            }
            Err(error) => {
                self.log.not_written(event);
                self.metrics.of("failed").inc();
                if !self.failing {
                    let (reason, error) = (event.reason.as_str(), ApiError::boxed(error));
                    warn!(reason, %error, "an event cannot be written (the role needs create and patch on events.k8s.io)");
                }
                self.failing = true;
                return;
            }
        };
        self.failing = false;
    }

    async fn write(&self, event: &Event, count: Option<u32>) -> kube::Result<Written> {
        let Some(object) = self.resolve(&event.regarding).await? else {
            debug!(reason = event.reason.as_str(), note = event.note, "no object for an event");
            return Ok(Written::NoObject);
        };
        let namespace = object.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE);
        let events = Request::new(format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events"));
        let name = name(&object, event);
        if let Some(count) = count {
            match self.repeat(&events, &name, count).await {
                // The API server has forgotten it.
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                repeated => return repeated.map(|()| Written::Repeated),
            }
        }
        let body = self.body(event, &object, namespace, &name);
        let request = events.create(&PostParams::default(), body.to_string().into_bytes());
        match answered(self.client.request::<Value>(request.map_err(kube::Error::BuildRequest)?)).await {
            Ok(_) => Ok(Written::Created),
            Err(kube::Error::Api(status)) if status.code == 409 => {
                // An empty patch reads the event: the role has no get.
                let earlier: EarlierEvent = self.patch(&events, &name, &json!({})).await?;
                let count = earlier.series.map_or(1, |series| series.count).saturating_add(1);
                self.repeat(&events, &name, count).await.map(|()| Written::Repeated)
            }
            Err(error) => Err(error),
        }
    }

    async fn repeat(&self, events: &Request, name: &str, count: u32) -> kube::Result<()> {
        // Source: the API server's validation of a series. The field is an int32.
        let count = count.clamp(2, i32::MAX as u32);
        let series = json!({"series": {"count": count, "lastObservedTime": MicroTime(Timestamp::now())}});
        self.patch::<Value>(events, name, &series).await.map(|_| ())
    }

    async fn patch<K: serde::de::DeserializeOwned>(
        &self,
        events: &Request,
        name: &str,
        patch: &Value,
    ) -> kube::Result<K> {
        let request = events.patch(name, &PatchParams::default(), &Patch::Merge(patch));
        answered(self.client.request(request.map_err(kube::Error::BuildRequest)?)).await
    }

    fn body(&self, event: &Event, object: &Object, namespace: &str, name: &str) -> Value {
        let instance = cut(&self.reporter.instance, LONGEST_INSTANCE);
        json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "eventTime": MicroTime(Timestamp::now()),
            "reportingController": self.reporter.controller,
            "reportingInstance": instance,
            "action": event.reason.action(),
            "reason": event.reason.as_str(),
            "type": event.reason.severity().as_str(),
            "note": event.note,
            "regarding": {"apiVersion": object.api_version, "kind": object.kind, "namespace": object.namespace, "name": object.name,
                "uid": object.uid},
        })
    }

    /// The object that an event is about; `None` where there is none.
    async fn resolve(&self, regarding: &Regarding) -> kube::Result<Option<Object>> {
        Ok(match regarding {
            Regarding::Claim(claim) => Some(Object {
                api_version: CORE,
                kind: "PersistentVolumeClaim",
                namespace: Some(claim.namespace.clone()),
                name: claim.name.clone(),
                uid: claim.uid.clone(),
            }),
            // Source: the group of external-snapshotter's types. `kubectl describe` finds the event by kind, name and uid.
            Regarding::Snapshot(snapshot) => Some(Object {
                api_version: "snapshot.storage.k8s.io/v1",
                kind: "VolumeSnapshot",
                namespace: Some(snapshot.namespace.clone()),
                name: snapshot.name.clone(),
                uid: snapshot.uid.clone(),
            }),
            Regarding::Pod(pod) => Some(Object {
                api_version: CORE,
                kind: "Pod",
                namespace: Some(pod.namespace.clone()),
                name: pod.name.clone(),
                uid: pod.uid.clone(),
            }),
            // It may be gone since: the event is then found by the name.
            Regarding::Volume(name) => {
                let read: Option<Identified> = get(&self.client, VOLUMES, name).await?;
                let uid = read.and_then(|read| read.metadata.uid);
                Some(Object { api_version: CORE, kind: "PersistentVolume", namespace: None, name: name.clone(), uid })
            }
            // Source: kubelet gives its Node's name as the uid, and `kubectl describe node` looks for both.
            Regarding::Node(name) => {
                let uid = Some(name.clone());
                Some(Object { api_version: CORE, kind: "Node", namespace: None, name: name.clone(), uid })
            }
            Regarding::Service(service) => Some(Object {
                api_version: CORE,
                kind: "Service",
                namespace: Some(service.namespace.clone()),
                name: service.name.clone(),
                uid: Some(service.uid.clone()),
            }),
            Regarding::ClaimOf(disk) => {
                let Some(volume) = self.volume_of(disk) else { return Ok(None) };
                let read: Option<BoundVolume> = get(&self.client, VOLUMES, &volume).await?;
                read.and_then(|volume| volume.spec.claim_ref).map(|claim| Object {
                    api_version: CORE,
                    kind: "PersistentVolumeClaim",
                    namespace: Some(claim.namespace),
                    name: claim.name,
                    uid: claim.uid,
                })
            }
        })
    }

    /// The name of the PersistentVolume whose handle names a disk.
    fn volume_of(&self, disk: &DiskId) -> Option<String> {
        let VolumeHandles::Synced(handles) = &*self.handles.borrow() else { return None };
        let is_it = |handle: &str| handle.parse::<VolumeId>().is_ok_and(|volume| volume.disk() == disk);
        handles.iter().find(|(_, handle)| is_it(handle)).map(|(name, _)| name.clone())
    }
}

enum Written {
    Created,
    Repeated,
    /// The object does not exist.
    NoObject,
}

/// The version of Kubernetes' core types.
const CORE: &str = "v1";

struct Object {
    api_version: &'static str,
    kind: &'static str,
    namespace: Option<String>,
    name: String,
    uid: Option<String>,
}

#[derive(Deserialize)]
struct EarlierEvent {
    series: Option<EarlierSeries>,
}

#[derive(Deserialize)]
struct EarlierSeries {
    count: u32,
}

#[derive(Deserialize)]
struct BoundVolume {
    spec: BoundVolumeSpec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BoundVolumeSpec {
    claim_ref: Option<ClaimRef>,
}

#[derive(Deserialize)]
struct Identified {
    metadata: Identity,
}

#[derive(Deserialize)]
struct Identity {
    uid: Option<String>,
}

#[derive(Deserialize)]
struct ClaimRef {
    namespace: String,
    name: String,
    uid: Option<String>,
}

/// The name of an event: its object's, and a digest of what it says.
fn name(object: &Object, event: &Event) -> String {
    let uid = object.uid.as_deref().unwrap_or_default();
    let said = [object.kind, uid, event.reason.as_str(), &event.note].join("\n");
    let digest = format!(".{:016x}", digest(&said));
    let object = cut(&object.name, LONGEST_NAME - digest.len()).trim_end_matches(['.', '-']);
    format!("{object}{digest}")
}

/// FNV-1a, 64 bits (source: the FNV draft's parameters): a digest for names, not for secrets.
fn digest(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

fn cut(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    &text[..end]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use std::time::Duration;

    use lazuli_model::{
        ArmId,
        event::{Claim, Pod, REPEAT, Reason, VolumeSnapshot},
    };
    use tokio::task::JoinHandle;
    use tokio::time::{advance, sleep};

    use super::*;
    use crate::fake::{FakeApiServer, Mood};

    const EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/db/events";
    const NODE_EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/default/events";

    struct Recorder {
        events: lossy::Sender<Event>,
        metrics: EventMetrics,
        stop: CancellationToken,
        task: JoinHandle<()>,
    }

    impl Recorder {
        fn start(server: &FakeApiServer) -> Self {
            let metrics = EventMetrics::register(&mut Registry::default());
            let (events, queue) = event_queue(&metrics);
            let reporter = Reporter { controller: "disk.csi.azure.com".into(), instance: "lazuli-controller-0".into() };
            let disk = ArmId::disk("s", "g", "d").unwrap().to_string();
            let handles = VolumeHandles::Synced([("pv-d".to_owned(), Arc::from(disk))].into());
            let stop = CancellationToken::new();
            let writing = write_events(
                server.client(),
                reporter,
                watch::channel(handles).1,
                queue,
                metrics.clone(),
                stop.clone(),
            );
            Self { events, metrics, task: tokio::spawn(writing), stop }
        }

        /// Lets the task write.
        async fn written(&self) {
            sleep(Duration::from_millis(1)).await;
        }

        fn counts(&self) -> BTreeMap<&'static str, u64> {
            let outcomes = ["created", "repeated", "suppressed", "failed", "lost", "no_object"];
            outcomes.into_iter().map(|of| (of, self.metrics.of(of).get())).filter(|(_, count)| *count > 0).collect()
        }
    }

    fn claim() -> Event {
        let claim = Claim { namespace: "db".into(), name: "data-0".into(), uid: Some("u".into()) };
        Event::new(Regarding::Claim(claim), Reason::QuotaExceeded, "disk pvc-u cannot be created")
    }

    fn full() -> Event {
        Event::new(Regarding::Node("node-0".into()), Reason::VMSizeFull, "4 of 4 data disks are attached")
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_says_who_did_what_to_which_object_and_is_written_once() {
        let server = FakeApiServer::default();
        let recorder = Recorder::start(&server);
        for _ in 0..50 {
            recorder.events.send(claim());
            recorder.events.send(full());
        }
        recorder.written().await;
        let events = server.objects(EVENTS);
        let [event] = &events[..] else { panic!("{events:?}") };
        assert_eq!(
            event["regarding"],
            json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "db",
            "name": "data-0", "uid": "u"})
        );
        assert_eq!(
            (&event["reason"], &event["action"], &event["type"]),
            (&json!("QuotaExceeded"), &json!("ProvisionDisk"), &json!("Warning"))
        );
        assert_eq!(event["reportingController"], "disk.csi.azure.com");
        assert!(event["note"].as_str().unwrap().starts_with("disk pvc-u cannot be created. Raise the quota"));
        let of_node = server.objects(NODE_EVENTS);
        assert_eq!((of_node.len(), &of_node[0]["regarding"]["uid"]), (1, &json!("node-0")));
        assert_eq!(recorder.counts(), [("created", 2)].into());
        recorder.stop.cancel();
        recorder.task.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_about_a_pod_is_in_its_namespace_and_names_it() {
        let server = FakeApiServer::default();
        let recorder = Recorder::start(&server);
        let pod = Pod { namespace: "db".into(), name: "app-0".into(), uid: Some("u".into()) };
        recorder.events.send(Event::new(Regarding::Pod(pod), Reason::FileShareNotFound, "the share is gone"));
        recorder.written().await;
        let events = server.objects(EVENTS);
        let [event] = &events[..] else { panic!("{events:?}") };
        let regarding = json!({"apiVersion": "v1", "kind": "Pod", "namespace": "db", "name": "app-0", "uid": "u"});
        assert_eq!((&event["regarding"], &event["action"]), (&regarding, &json!("MountShare")));
        recorder.stop.cancel();
        recorder.task.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_about_a_snapshot_is_in_its_namespace_and_names_its_group() {
        let server = FakeApiServer::default();
        let recorder = Recorder::start(&server);
        let uid = "0b1f6a52-8c54-4a39-9a7e-3a4e3c0b8d11";
        let metadata = |key: &str| match key {
            "csi.storage.k8s.io/volumesnapshot/name" => Some("nightly"),
            "csi.storage.k8s.io/volumesnapshot/namespace" => Some("db"),
            _ => None,
        };
        let snapshot = VolumeSnapshot::of(metadata, &format!("snapshot-{uid}")).unwrap();
        assert_eq!(VolumeSnapshot::of(|_| None, "snapshot-1"), None);
        recorder.events.send(Event::new(Regarding::Snapshot(snapshot), Reason::SnapshotLimitReached, "no more"));
        recorder.written().await;
        let events = server.objects(EVENTS);
        let [event] = &events[..] else { panic!("{events:?}") };
        let regarding = json!({"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot", "namespace": "db",
            "name": "nightly", "uid": uid});
        assert_eq!((&event["regarding"], &event["action"]), (&regarding, &json!("CreateSnapshot")));
        recorder.stop.cancel();
        recorder.task.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_that_goes_on_counts_in_its_series_also_after_a_restart_and_when_it_was_forgotten() {
        let server = FakeApiServer::default();
        let recorder = Recorder::start(&server);
        let step = Duration::from_secs(300);
        for _ in 0..=REPEAT.as_secs() / step.as_secs() {
            recorder.events.send(full());
            recorder.written().await;
            advance(step).await;
        }
        let count = || server.objects(NODE_EVENTS)[0]["series"]["count"].clone();
        assert_eq!((server.objects(NODE_EVENTS).len(), count()), (1, json!(7)));
        let again = Recorder::start(&server);
        again.events.send(full());
        again.written().await;
        assert_eq!((server.objects(NODE_EVENTS).len(), count()), (1, json!(8)));
        assert_eq!(again.counts(), [("repeated", 1)].into());
        server.clear(NODE_EVENTS);
        for _ in 0..=REPEAT.as_secs() / step.as_secs() {
            again.events.send(full());
            again.written().await;
            advance(step).await;
        }
        assert_eq!((server.objects(NODE_EVENTS).len(), count()), (1, Value::Null));
    }

    #[tokio::test(start_paused = true)]
    async fn the_claim_of_a_disk_is_found_by_the_handle_of_its_volume() {
        let server = FakeApiServer::default();
        let recorder = Recorder::start(&server);
        let about = |disk: &str| {
            Event::new(
                Regarding::ClaimOf(ArmId::disk("s", "g", disk).unwrap().into()),
                Reason::ExpansionNeedsDetach,
                "x",
            )
        };
        server.put(
            VOLUMES,
            json!({"metadata": {"name": "pv-d"},
            "spec": {"claimRef": {"namespace": "db", "name": "data-1", "uid": "u1"}}}),
        );
        recorder.events.send(about("D"));
        recorder.events.send(about("other"));
        recorder.written().await;
        let events = server.objects(EVENTS);
        assert_eq!((events.len(), &events[0]["regarding"]["name"]), (1, &json!("data-1")));
        assert_eq!(recorder.counts(), [("created", 1), ("no_object", 1)].into());
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_about_a_volume_is_written_also_when_the_volume_is_gone() {
        let server = FakeApiServer::default();
        let recorder = Recorder::start(&server);
        recorder.events.send(Event::new(Regarding::Volume("pvc-1".into()), Reason::ShareKept, "share x is kept"));
        recorder.written().await;
        let events = server.objects(NODE_EVENTS);
        let [event] = &events[..] else { panic!("{events:?}") };
        let regarding = &event["regarding"];
        assert_eq!((&regarding["kind"], &regarding["name"]), (&json!("PersistentVolume"), &json!("pvc-1")));
        assert_eq!(event["reason"], "ShareKept");
        recorder.stop.cancel();
        recorder.task.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_is_counted_and_the_next_observation_tries_again() {
        let server = FakeApiServer::default();
        server.mood(NODE_EVENTS, Mood::Forbids);
        let recorder = Recorder::start(&server);
        recorder.events.send(full());
        recorder.written().await;
        server.mood(NODE_EVENTS, Mood::Answers);
        recorder.events.send(full());
        recorder.written().await;
        assert_eq!(recorder.counts(), [("created", 1), ("failed", 1)].into());
    }

    #[tokio::test(start_paused = true)]
    async fn an_api_server_that_hangs_slows_no_caller_and_what_does_not_fit_is_counted() {
        let server = FakeApiServer::default();
        server.mood(NODE_EVENTS, Mood::Hangs);
        let recorder = Recorder::start(&server);
        recorder.events.send(full());
        recorder.written().await;
        let began = Instant::now();
        for _ in 0..WAITING + 5 {
            recorder.events.send(claim());
        }
        assert_eq!((began.elapsed(), recorder.counts()), (Duration::ZERO, [("lost", 5)].into()));
    }

    #[test]
    fn the_name_of_an_event_is_the_same_for_the_same_event_and_never_too_long() {
        let object =
            |name: &str| Object { api_version: CORE, kind: "Node", namespace: None, name: name.to_owned(), uid: None };
        let one = name(&object("node-0"), &full());
        assert_eq!(one, name(&object("node-0"), &full()));
        assert!(one.starts_with("node-0.") && one.len() == "node-0.".len() + 16);
        let other = Event { note: "3 of 4".into(), ..full() };
        assert_ne!(one, name(&object("node-0"), &other));
        assert!(name(&object(&"n".repeat(400)), &full()).len() <= LONGEST_NAME);
    }
}
