//! What a person must know, as Kubernetes events: which one, about which object, and when it is written.
//!
//! A call that fails is repeated by its sidecar, so the same failure is observed again and again. [`EventLog`] turns the
//! observations into few writes: one when the reason or the note of an object changes, and one each [`REPEAT`] while it
//! stays. Notes hold no request ids and no times, so that equal failures have equal notes.

use std::{collections::BTreeMap, fmt, time::Duration};

use crate::{
    DiskId, ServiceKey,
    fault::{self, Fault, Rpc},
};

pub use crate::reason::{ObjectKind, Reason, Severity};

/// How often an event that goes on is written again. The API server forgets an event after an hour (source: the default
/// of kube-apiserver's `--event-ttl`).
pub const REPEAT: Duration = Duration::from_secs(30 * 60);
/// After so long without an observation, the next one begins anew. The sidecars and kubelet repeat a failed call at
/// least every five minutes (source: their longest back-off).
pub const LAPSE: Duration = Duration::from_secs(10 * 60);
/// How many events one object gets at once, and how often one more (source: the spam filter of client-go).
const BURST: u32 = 25;
const REFILL: Duration = Duration::from_secs(300);
/// How many objects are remembered.
const MOST_OBJECTS: usize = 512;
/// The longest note, in bytes (source: the API server's validation of events).
const LONGEST_NOTE: usize = 1024;

/// A PersistentVolumeClaim, as external-provisioner names it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Claim {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid; without it `kubectl describe` does not find the event.
    pub uid: Option<String>,
}

impl Claim {
    /// The claim that the parameters or the volume context of a request name (source: external-provisioner's
    /// `--extra-create-metadata`). `volume` is the name of its PersistentVolume, which ends with the claim's uid.
    pub fn of<'a>(get: impl Fn(&str) -> Option<&'a str>, volume: &str) -> Option<Self> {
        let name = get("csi.storage.k8s.io/pvc/name").filter(|name| is_object_name(name))?;
        let namespace = get("csi.storage.k8s.io/pvc/namespace").filter(|name| is_object_name(name))?;
        Some(Self { namespace: namespace.to_owned(), name: name.to_owned(), uid: uid(volume).map(str::to_owned) })
    }

    /// The claim that the volume context of a node's call names.
    pub fn of_context<'a>(get: impl Fn(&str) -> Option<&'a str>) -> Option<Self> {
        let volume = get("csi.storage.k8s.io/pv/name").unwrap_or_default();
        Self::of(get, volume)
    }
}

/// Whether a text is a name that Kubernetes gives objects (source: RFC 1123, as the API server validates it). It becomes
/// a part of a path.
fn is_object_name(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'.';
    let ends = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
    let bytes = text.as_bytes();
    bytes.len() <= 253 && bytes.iter().copied().all(allowed) && ends(bytes.first()) && ends(bytes.last())
}

/// The claim's uid in a volume's name, `pvc-UID` (source: the default of external-provisioner's
/// `--volume-name-prefix`).
fn uid(volume: &str) -> Option<&str> {
    const LENGTH: usize = 36;
    let uid = volume.get(volume.len().checked_sub(LENGTH)?..)?;
    let is_uid = uid.bytes().enumerate().all(|(at, byte)| match at {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    });
    is_uid.then_some(uid)
}

/// A VolumeSnapshot, as external-snapshotter names it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct VolumeSnapshot {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid; without it `kubectl describe` does not find the event.
    pub uid: Option<String>,
}

impl VolumeSnapshot {
    /// The VolumeSnapshot that the parameters of a CreateSnapshot name (source: external-snapshotter's
    /// `--extra-create-metadata`). `request` is the name of the request, which ends with its uid (source: the default of
    /// `--snapshot-name-prefix`).
    pub fn of<'a>(get: impl Fn(&str) -> Option<&'a str>, request: &str) -> Option<Self> {
        let name = get("csi.storage.k8s.io/volumesnapshot/name").filter(|name| is_object_name(name))?;
        let namespace = get("csi.storage.k8s.io/volumesnapshot/namespace").filter(|name| is_object_name(name))?;
        Some(Self { namespace: namespace.to_owned(), name: name.to_owned(), uid: uid(request).map(str::to_owned) })
    }
}

/// A Pod, as kubelet names it to a driver that asks for that.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pod {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid; without it `kubectl describe` does not find the event.
    pub uid: Option<String>,
}

impl Pod {
    /// The Pod that the volume context of a NodePublishVolume names (source: kubelet, `podInfoOnMount` of the CSIDriver).
    pub fn of_context<'a>(get: impl Fn(&str) -> Option<&'a str>) -> Option<Self> {
        let name = get("csi.storage.k8s.io/pod.name").filter(|name| is_object_name(name))?;
        let namespace = get("csi.storage.k8s.io/pod.namespace").filter(|name| is_object_name(name))?;
        let uid = get("csi.storage.k8s.io/pod.uid").filter(|uid| !uid.is_empty());
        Some(Self { namespace: namespace.to_owned(), name: name.to_owned(), uid: uid.map(str::to_owned) })
    }
}

/// What an event is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Regarding {
    /// A claim.
    Claim(Claim),
    /// The claim whose volume is this disk.
    ClaimOf(DiskId),
    /// A VolumeSnapshot.
    Snapshot(VolumeSnapshot),
    /// A Pod.
    Pod(Pod),
    /// A PersistentVolume, by its name. It may be gone when the event is written.
    Volume(String),
    /// A Node, by its name.
    Node(String),
    /// A Service.
    Service(ServiceKey),
}

impl Regarding {
    /// The Node of a name. A CSI node id may be spelled in another letter case, or be no name at all.
    pub fn of_node(name: &str) -> Option<Self> {
        let name = name.to_ascii_lowercase();
        is_object_name(&name).then_some(Self::Node(name))
    }
}

/// An observation that a person must know about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// What it is about.
    pub regarding: Regarding,
    /// Why.
    pub reason: Reason,
    /// The sentence for the reader.
    pub note: String,
    /// Whether its observer reports a state when it begins, and not again and again while it lasts.
    pub is_change: bool,
}

impl Event {
    /// An event that says what happened, then what to do about it.
    pub fn new(regarding: Regarding, reason: Reason, what: impl fmt::Display) -> Self {
        let advice = match &regarding {
            Regarding::Service(_) => reason.advice_for_services(),
            Regarding::Snapshot(_) => reason.advice_for_snapshots(),
            Regarding::Claim(_)
            | Regarding::ClaimOf(_)
            | Regarding::Pod(_)
            | Regarding::Volume(_)
            | Regarding::Node(_) => reason.advice(),
        };
        Self::with_advice(regarding, reason, what, advice)
    }

    /// The same with another advice than that of the reason.
    pub fn with_advice(regarding: Regarding, reason: Reason, what: impl fmt::Display, advice: &str) -> Self {
        let mut note = format!("{what}. {advice}");
        if note.len() > LONGEST_NOTE {
            let end = (0..=LONGEST_NOTE - '…'.len_utf8()).rev().find(|at| note.is_char_boundary(*at)).unwrap_or(0);
            note.truncate(end);
            note.push('…');
        }
        Self { regarding, reason, note, is_change: false }
    }

    /// The event of a failure of Azure's, if a person must know about it ([`fault::reason`]).
    pub fn of_failure(rpc: Rpc, regarding: Regarding, failure: &Failure<'_>) -> Option<Self> {
        let reason = fault::reason(rpc, failure.fault)?;
        let what = failure.what;
        let because = match (reason, failure.action, failure.code) {
            (Reason::AuthorizationFailed, Some(action), _) => {
                format!(": the controller's identity lacks the action {action}")
            }
            (Reason::Throttled, ..) => ": for minutes Azure has refused requests as too many".to_owned(),
            (_, _, "") => String::new(),
            (_, _, code) => format!(": Azure answered {code}"),
        };
        Some(Self::new(regarding, reason, format_args!("{what}{because}")))
    }
}

/// A failure as an event tells it.
#[derive(Debug, Clone, Copy)]
pub struct Failure<'a> {
    /// What it is.
    pub fault: &'a Fault,
    /// What could not be done to what: without a full stop, and without what changes from try to try.
    pub what: &'a str,
    /// Azure's `error.code`; empty when Azure gave none.
    pub code: &'a str,
    /// The action of Azure's role-based access control that the failed call needs.
    pub action: Option<&'a str>,
}

/// What is to be done about an observation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Write a new event.
    Create,
    /// The event goes on: it has been observed so many times.
    Repeat(u32),
    /// The event has been written, or the reason has not lasted long enough.
    Nothing,
    /// The object has had too many events.
    Suppress,
}

/// The events so far, as far as the next decision needs them.
#[derive(Debug, Default)]
pub struct EventLog {
    objects: BTreeMap<Regarding, Object>,
}

#[derive(Debug)]
struct Object {
    tokens: u32,
    refilled: Duration,
    last_seen: Duration,
    series: BTreeMap<Reason, Series>,
}

#[derive(Debug)]
struct Series {
    note: String,
    since: Duration,
    last_seen: Duration,
    count: u32,
    written: Option<Duration>,
}

impl Object {
    fn take(&mut self, now: Duration) -> bool {
        let refills = now.saturating_sub(self.refilled).as_secs() / REFILL.as_secs();
        if refills > 0 {
            let refills = u32::try_from(refills).unwrap_or(u32::MAX);
            self.tokens = self.tokens.saturating_add(refills).min(BURST);
            self.refilled += REFILL * refills;
        }
        let taken = self.tokens > 0;
        self.tokens -= u32::from(taken);
        taken
    }
}

impl EventLog {
    /// Takes an observation in. `now` is the time since any fixed moment, and never goes back.
    pub fn observe(&mut self, now: Duration, event: &Event) -> Decision {
        self.make_room(&event.regarding);
        let object = self.objects.entry(event.regarding.clone()).or_insert_with(|| Object {
            tokens: BURST,
            refilled: now,
            last_seen: now,
            series: BTreeMap::new(),
        });
        object.last_seen = now;
        let fresh = || Series { note: event.note.clone(), since: now, last_seen: now, count: 0, written: None };
        let mut series = match object.series.remove(&event.reason) {
            Some(series) if now.saturating_sub(series.last_seen) < LAPSE => series,
            _ => fresh(),
        };
        if series.note != event.note {
            // The reason has lasted all the time.
            series = Series { since: series.since, ..fresh() };
        }
        series.last_seen = now;
        series.count = series.count.saturating_add(1);
        let lasted = event.is_change || now.saturating_sub(series.since) >= event.reason.hold_off();
        let decision = match series.written {
            _ if !lasted => Decision::Nothing,
            None if object.take(now) => Decision::Create,
            None => Decision::Suppress,
            Some(_) if event.is_change && object.take(now) => Decision::Repeat(series.count),
            Some(at) if now.saturating_sub(at) >= REPEAT => Decision::Repeat(series.count),
            Some(_) => Decision::Nothing,
        };
        if matches!(decision, Decision::Create | Decision::Repeat(_)) {
            series.written = Some(now);
        }
        object.series.insert(event.reason, series);
        decision
    }

    /// The event could not be written: the next observation tries again.
    pub fn not_written(&mut self, event: &Event) {
        let series = self.objects.get_mut(&event.regarding).and_then(|object| object.series.get_mut(&event.reason));
        if let Some(series) = series.filter(|series| series.note == event.note) {
            series.written = None;
        }
    }

    /// Forgets the object that was observed the longest time ago, where one more would be too many.
    fn make_room(&mut self, regarding: &Regarding) {
        if self.objects.len() < MOST_OBJECTS || self.objects.contains_key(regarding) {
            return;
        }
        let oldest = self.objects.iter().min_by_key(|(_, object)| object.last_seen).map(|(regarding, _)| regarding);
        if let Some(oldest) = oldest.cloned() {
            self.objects.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests;
