//! The table of reasons, and laws of the log: few writes, none too early, none lost, bounded memory.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::ArmId;

const UID: &str = "0b7c6a52-3c1e-4d3a-9a53-0a6b9a0c2f11";

fn node(number: usize) -> Regarding {
    Regarding::Node(format!("node-{number}"))
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn every_reason_has_a_name_of_its_own_and_advice_that_is_a_sentence() {
    let names: BTreeSet<&str> = Reason::ALL.iter().map(|reason| reason.as_str()).collect();
    assert_eq!(names.len(), Reason::ALL.len());
    for reason in Reason::ALL {
        // Source: the API server refuses longer ones.
        assert!(reason.as_str().len() <= 128 && reason.action().len() <= 128);
        assert!(reason.as_str().bytes().all(|byte| byte.is_ascii_alphabetic()), "{reason:?}");
        assert!(reason.advice().ends_with('.') && reason.advice().len() < 400, "{reason:?}");
        assert!(!reason.advice().contains("  "), "{reason:?}");
    }
}

#[test]
fn a_note_names_thing_value_and_advice_and_is_cut_on_a_character() {
    let failure = Failure {
        fault: &Fault::Forbidden,
        what: "disk pvc-1 cannot be created",
        code: "AuthorizationFailed",
        action: Some("Microsoft.Compute/disks/write"),
    };
    let event = Event::of_failure(Rpc::CreateVolume, node(0), &failure).unwrap();
    assert!(
        event.note.starts_with(
            "disk pvc-1 cannot be created: the controller's identity lacks the action Microsoft.Compute/disks/write. Assign"
        ),
        "{}",
        event.note
    );
    let exhausted = Failure { fault: &Fault::Exhausted, code: "QuotaExceeded", action: None, ..failure };
    let event = Event::of_failure(Rpc::CreateVolume, node(0), &exhausted).unwrap();
    assert!(event.note.contains("created: Azure answered QuotaExceeded. Raise the quota"), "{}", event.note);
    assert_eq!(Event::of_failure(Rpc::Publish, node(0), &Failure { fault: &Fault::Conflict, ..failure }), None);
    let long = Event::new(node(0), Reason::FormatRefused, "ä".repeat(2_000));
    assert!(long.note.len() <= LONGEST_NOTE && long.note.ends_with("ä…"));
}

#[test]
fn what_to_do_about_a_missing_group_names_the_class_of_the_object() {
    let failure = Failure { fault: &Fault::ScopeNotFound, what: "no", code: "ResourceGroupNotFound", action: None };
    let note = |rpc, regarding| Event::of_failure(rpc, regarding, &failure).unwrap().note;
    let snapshot = VolumeSnapshot { namespace: "db".into(), name: "nightly".into(), uid: None };
    let of_snapshot = note(Rpc::CreateSnapshot, Regarding::Snapshot(snapshot));
    assert!(
        of_snapshot.contains("in the VolumeSnapshotClass") && !of_snapshot.contains("StorageClass,"),
        "{of_snapshot}"
    );
    let of_claim = note(Rpc::CreateVolume, Regarding::ClaimOf(ArmId::disk("s", "g", "d").unwrap().into()));
    assert!(of_claim.contains("in the StorageClass"), "{of_claim}");
    for reason in Reason::ALL {
        assert!(reason.advice_for_snapshots().ends_with('.'), "{reason:?}");
    }
}

#[test]
fn a_pod_is_read_from_what_kubelet_says_and_nothing_else_becomes_a_path() {
    let of = |name: &'static str, uid: Option<&'static str>| {
        Pod::of_context(|key| match key {
            "csi.storage.k8s.io/pod.name" => Some(name),
            "csi.storage.k8s.io/pod.namespace" => Some("db"),
            "csi.storage.k8s.io/pod.uid" => uid,
            _ => None,
        })
    };
    let pod = |uid: Option<&str>| Pod { namespace: "db".into(), name: "app-0".into(), uid: uid.map(str::to_owned) };
    assert_eq!(of("app-0", Some("u")), Some(pod(Some("u"))));
    assert_eq!(of("app-0", Some("")), Some(pod(None)));
    assert_eq!((of("../secrets", None), of("", None), Pod::of_context(|_| None)), (None, None, None));
}

#[test]
fn a_claim_is_read_from_what_the_provisioner_says_and_nothing_else_becomes_a_path() {
    let context = |name: &'static str, namespace: &'static str| {
        move |key: &str| match key {
            "csi.storage.k8s.io/pvc/name" => Some(name),
            "csi.storage.k8s.io/pvc/namespace" => Some(namespace),
            "csi.storage.k8s.io/pv/name" => Some("pvc-0b7c6a52-3c1e-4d3a-9a53-0a6b9a0c2f11"),
            _ => None,
        }
    };
    let claim = Claim { namespace: "db".into(), name: "data-0".into(), uid: Some(UID.into()) };
    assert_eq!(Claim::of_context(context("data-0", "db")), Some(claim.clone()));
    assert_eq!(Claim::of(context("data-0", "db"), "team-volume"), Some(Claim { uid: None, ..claim }));
    for (name, namespace) in [("", "db"), ("data", ""), ("a/b", "db"), ("data", "../secrets"), ("Data", "db")] {
        assert_eq!(Claim::of_context(context(name, namespace)), None, "{namespace}/{name}");
    }
    assert_eq!(Claim::of_context(|_| None), None);
}

#[test]
fn an_event_is_written_when_its_state_changes_and_each_half_hour_while_it_stays() {
    let mut log = EventLog::default();
    let full = |attached: u32| Event::new(node(0), Reason::VMSizeFull, format_args!("{attached} disks are attached"));
    assert_eq!(log.observe(seconds(0), &full(4)), Decision::Create);
    let repeats: Vec<(u64, Decision)> = (1..=60)
        .map(|minute| (minute, log.observe(seconds(60 * minute), &full(4))))
        .filter(|(_, decision)| *decision != Decision::Nothing)
        .collect();
    assert_eq!(repeats, [(30, Decision::Repeat(31)), (60, Decision::Repeat(61))]);
    assert_eq!(log.observe(seconds(3_601), &full(3)), Decision::Create);
    assert_eq!(log.observe(seconds(3_602), &full(3)), Decision::Nothing);
    // It has stopped and begins anew.
    assert_eq!(log.observe(seconds(3_602) + LAPSE, &full(3)), Decision::Create);
    // What the API server did not take is tried again.
    log.not_written(&full(3));
    assert_eq!(log.observe(seconds(3_603) + LAPSE, &full(3)), Decision::Create);
}

#[test]
fn an_unconfirmed_identity_is_told_after_a_minute_and_throttling_after_two() {
    for (reason, after) in [(Reason::IdentityUnconfirmed, 60), (Reason::Throttled, 120)] {
        let mut log = EventLog::default();
        // The note may change meanwhile.
        let event = |at: u64| Event::new(node(0), reason, format_args!("for the {}th time", at / 50));
        let first = (0..300).step_by(10).find(|at| log.observe(seconds(*at), &event(*at)) == Decision::Create);
        assert_eq!(first, Some(after), "{reason:?}");
    }
}

#[test]
fn each_change_of_a_service_is_written_until_there_are_too_many() {
    let mut log = EventLog::default();
    let service = Regarding::Service(ServiceKey::new("db", "web", UID));
    let ensured = Event::new(service.clone(), Reason::EnsuredLoadBalancer, "served");
    let ensured = Event { is_change: true, ..ensured };
    assert_eq!(log.observe(seconds(0), &ensured), Decision::Create);
    assert_eq!(log.observe(seconds(1), &ensured), Decision::Repeat(2));
    let ignored = Event::new(service.clone(), Reason::IgnoredValue, "ignored");
    let of_ignored = [log.observe(seconds(2), &ignored), log.observe(seconds(3), &ignored)];
    assert_eq!(of_ignored, [Decision::Create, Decision::Nothing]);
    let written = (4..104).filter(|at| log.observe(seconds(*at), &ensured) != Decision::Nothing).count();
    assert_eq!(written, 22, "a burst");
    let refused = Event::new(service, Reason::AuthorizationFailed, "refused");
    assert!(refused.note.contains("role-cloud-controllers.json"), "{}", refused.note);
}

fn observations() -> impl Strategy<Value = Vec<(u64, usize, usize, u8)>> {
    prop::collection::vec((0u64..900, 0usize..3, 0usize..Reason::ALL.len(), 0u8..3), 1..200)
}

proptest! {
    /// Whatever happens, an object gets no more than a burst and one event for each refill, and an equal observation is
    /// never written twice within the time of a repetition, unless it stopped in between.
    #[test]
    fn an_object_gets_few_events(observations in observations()) {
        let mut log = EventLog::default();
        let mut now = Duration::ZERO;
        let mut created: BTreeMap<Regarding, u64> = BTreeMap::new();
        let mut seen: BTreeMap<(Regarding, Reason), (String, Duration, Option<Duration>)> = BTreeMap::new();
        for (pause, object, reason, note) in observations {
            now += seconds(pause);
            let event = Event::new(node(object), Reason::ALL[reason], note);
            let decision = log.observe(now, &event);
            let key = (event.regarding.clone(), event.reason);
            let before = seen.get(&key).filter(|(note, last, _)| *note == event.note && now - *last < LAPSE);
            let written = before.and_then(|(_, _, written)| *written);
            match decision {
                Decision::Create => {
                    prop_assert_eq!(written, None);
                    *created.entry(event.regarding.clone()).or_default() += 1;
                }
                Decision::Repeat(count) => {
                    prop_assert!(count >= 2);
                    prop_assert!(written.is_some_and(|at| now - at >= REPEAT));
                }
                Decision::Nothing | Decision::Suppress => {}
            }
            let told = matches!(decision, Decision::Create | Decision::Repeat(_));
            seen.insert(key, (event.note, now, if told { Some(now) } else { written }));
            let most = u64::from(BURST) + now.as_secs() / REFILL.as_secs();
            prop_assert!(created.values().all(|created| *created <= most));
        }
    }

    /// A storm over many objects stays in bounded memory, and each object that is observed for the first time is told.
    #[test]
    fn a_storm_is_bounded(objects in 1usize..1_500) {
        let mut log = EventLog::default();
        for object in 0..objects {
            let event = Event::new(node(object), Reason::VMSizeFull, "full");
            prop_assert_eq!(log.observe(seconds(object as u64), &event), Decision::Create);
            prop_assert!(log.objects.len() <= MOST_OBJECTS);
        }
    }
}
