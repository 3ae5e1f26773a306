//! The events of the core group, which `kubectl describe` and `kubectl get events` read: those of `events.k8s.io` with
//! other names. The latter are kept. Source of the names: both kinds in the published OpenAPI.

use serde_json::{Map, Value, json};

/// The members that have two names: in the core group, and in `events.k8s.io`.
const NAMES: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// The times that the core group shows of every event.
const STAMPS: [&str; 2] = ["firstTimestamp", "lastTimestamp"];

fn renamed(event: &Value, name: impl Fn(&str) -> Option<&'static str>, version: &str) -> Value {
    let members = event.as_object().into_iter().flatten();
    let mut other: Map<String, Value> =
        members.map(|(key, value)| (name(key).map_or_else(|| key.clone(), str::to_owned), value.clone())).collect();
    other.insert("apiVersion".to_owned(), json!(version));
    other.into()
}

/// An event as the core group shows it.
pub(crate) fn shown(event: &Value) -> Value {
    let name = |key: &str| NAMES.iter().find(|(_, kept)| *kept == key).map(|(core, _)| *core);
    let mut event = renamed(event, name, "v1");
    if event.get("source").is_none() {
        event["source"] = json!({});
    }
    // kube-apiserver writes both in any case, and `kubectl --sort-by` drops all objects where one has not the member.
    for stamp in STAMPS {
        if event.get(stamp).is_none() {
            event[stamp] = Value::Null;
        }
    }
    event
}

/// An event of the core group as it is kept.
pub(crate) fn kept(event: &Value) -> Value {
    let name = |key: &str| NAMES.iter().find(|(core, _)| *core == key).map(|(_, kept)| *kept);
    let mut event = renamed(event, name, "events.k8s.io/v1");
    // The core group shows every event with a source and two times.
    if let Some(members) = event.as_object_mut() {
        members.retain(|key, value| !(key == "deprecatedSource" && *value == json!({})));
        members.retain(|key, value| !(key.starts_with("deprecated") && key.ends_with("Timestamp") && value.is_null()));
    }
    event
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_has_the_same_content_in_both_groups() {
        let event = json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e"}, "note": "text",
            "regarding": {"kind": "Service", "name": "web"}, "reason": "Synced", "type": "Normal",
            "reportingController": "lazuli", "eventTime": "2026-01-01T00:00:00.000000Z", "deprecatedSource": {"component": "c"},
        });
        let core = shown(&event);
        assert_eq!((&core["message"], &core["involvedObject"]["name"]), (&json!("text"), &json!("web")));
        assert_eq!((&core["apiVersion"], &core["reportingComponent"]), (&json!("v1"), &json!("lazuli")));
        assert_eq!(core["source"]["component"], "c");
        assert_eq!(core.get("lastTimestamp"), Some(&Value::Null));
        assert_eq!(kept(&core), event);
    }
}
