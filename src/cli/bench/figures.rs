//! Figures of a phase, from what the sidecars met and what the emulator wrote down.
//!
//! | key | what |
//! |---|---|
//! | `makespan_s` | from the first call to the last answer |
//! | `lower_bound_s`, `ratio` | how fast it could have been from the buckets as they were, and `makespan_s` over that |
//! | `lower_bound_full_s` | the same from full buckets: smaller where an earlier phase has wasted requests |
//! | `p50_s`, `p99_s` | of a volume: from its first call to the answer of the last repetition |
//! | `arm_reads` | GETs that Azure answered in the phase, polls and refused ones included |
//! | `arm_writes` | PUT, PATCH, POST and DELETE, refused ones included; `arm_deletes` is how many of them are DELETE |
//! | `vm_writes` | of `arm_writes`, those of virtual machines |
//! | `vm_reads` | of `arm_reads`, those of virtual machines, lists of them, and polls of their operations |
//! | `polls`, `list_pages` | of `arm_reads`, polls of operations and pages of lists |
//! | `throttled` | answers 429 |
//! | `blob_reads`, `blob_writes` | of blob disks: requests to the blob services of accounts |
//! | `requests` | of blob disks: all requests, by the emulator's names of operations |
//! | `repeated_rpcs` | calls of the sidecars that failed and were repeated |
//! | `noticed_p50_s`, `noticed_p95_s`, `noticed_max_s` | of a volume: from the end of the operation by the emulator's own clock, or from the attempt that was sent after it, to the answer |
//! | `noticed_relative_p95` | the same as a share of the operation's duration |
//! | `noticed_within_1s_or_10pct`, `noticed_within_2s_or_15pct` | the share of volumes whose end was noticed in that time or that share of the duration, whichever is more |

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{
    control::{Begun, seconds},
    sidecars::{Round, Step},
};

/// The row of a phase: `counted` is the phase as the emulator has it, `operations` what was accepted in it.
pub(super) fn row(
    step: Step,
    begun: Begun,
    round: &Round,
    counted: &Value,
    operations: &[Value],
) -> Map<String, Value> {
    let counters = &counted["counters"];
    let count = |name: &str| json!(counters[name].as_u64().unwrap_or_default());
    let bound = seconds(&counted["lowerBound"]["total"]);
    let makespan = round.makespan.as_secs_f64();
    let took = sorted(round.answers.iter().map(|call| call.answered.duration_since(call.sent).as_secs_f64()));
    let repeated: u64 = round.answers.iter().map(|call| u64::from(call.repeated)).sum();

    let mut row = Map::new();
    row.insert("phase".into(), json!(step.name()));
    row.insert("makespan_s".into(), rounded(makespan));
    row.insert("lower_bound_s".into(), rounded(bound));
    row.insert("ratio".into(), ratio(makespan, bound));
    row.insert("lower_bound_full_s".into(), rounded(seconds(&counted["lowerBound"]["withFullBuckets"])));
    row.insert("p50_s".into(), rounded(percentile(&took, 50)));
    row.insert("p99_s".into(), rounded(percentile(&took, 99)));
    for (key, counter) in [
        ("arm_reads", "reads"),
        ("arm_writes", "writes"),
        ("arm_deletes", "deletes"),
        ("polls", "polls"),
        ("vm_reads", "vmReads"),
        ("list_pages", "listPages"),
        ("throttled", "throttled"),
    ] {
        row.insert(key.into(), count(counter));
    }
    row.insert("vm_writes".into(), json!(vm_writes(counters)));
    row.insert("repeated_rpcs".into(), json!(repeated));

    let ends = Ends::of(step, operations);
    let noticed: Vec<Noticed> = round
        .answers
        .iter()
        .filter_map(|call| {
            let [sent, answered] = [call.sent_last, call.answered].map(|at| begun.on_emulator(at).as_secs_f64());
            ends.noticed(&call.id, sent, answered)
        })
        .collect();
    row.extend(lateness(&noticed));
    row
}

fn vm_writes(counters: &Value) -> u64 {
    const KINDS: [&str; 2] = ["virtualMachines.", "virtualMachineScaleSetVMs."];
    const READS: [&str; 6] = ["get", "list", "listByLocation", "listAvailableSizes", "instanceView", "getInstanceView"];
    let operations = counters["byOperation"].as_object().into_iter().flatten();
    operations
        .filter(|(name, _)| {
            let verb = KINDS.iter().find_map(|kind| name.strip_prefix(kind));
            verb.is_some_and(|verb| !READS.contains(&verb))
        })
        .filter_map(|(_, count)| count.as_u64())
        .sum()
}

/// What of a phase is about blob services.
pub(super) fn blob_requests(counted: &Value) -> Map<String, Value> {
    const READS: [&str; 5] = ["get", "getProperties", "getContainer", "list", "listContainers"];
    let by_operation = &counted["counters"]["byOperation"];
    let (mut reads, mut writes) = (0, 0);
    for (name, count) in by_operation.as_object().into_iter().flatten() {
        let Some(verb) = name.strip_prefix("blob.") else { continue };
        let sum = if READS.contains(&verb) { &mut reads } else { &mut writes };
        *sum += count.as_u64().unwrap_or_default();
    }
    let figures = [("blob_reads", json!(reads)), ("blob_writes", json!(writes)), ("requests", by_operation.clone())];
    figures.map(|(name, value)| (name.to_owned(), value)).into_iter().collect()
}

/// When the operations of a phase ended, by disk or snapshot.
struct Ends(BTreeMap<String, Vec<(f64, f64)>>);

/// How late a volume's caller learned that its operation had ended.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Noticed {
    late: f64,
    duration: f64,
}

impl Ends {
    /// From the emulator's record: (accepted, ended) in seconds of its clock, of those that ended well.
    fn of(step: Step, operations: &[Value]) -> Self {
        let mut ends: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
        for operation in operations.iter().filter(|operation| operation["succeeded"] == true) {
            let (Some(accepted), Some(ended)) = (operation["acceptedMs"].as_f64(), operation["endedMs"].as_f64())
            else {
                continue;
            };
            let of_kind = |kinds: &[&str]| {
                let is = kinds.iter().any(|kind| operation["kind"] == *kind);
                if is { operation["resource"].as_str() } else { None }
            };
            let of_list = |list: &str| operation[list].as_array().into_iter().flatten().filter_map(Value::as_str);
            let disks: Vec<&str> = match step {
                Step::Create | Step::Restore => of_kind(&["diskCreate"]).into_iter().collect(),
                Step::Delete => of_kind(&["diskDelete", "snapshotDelete"]).into_iter().collect(),
                Step::Expand | Step::Modify => of_kind(&["diskUpdate"]).into_iter().collect(),
                Step::Snapshot => of_kind(&["snapshot"]).into_iter().collect(),
                Step::Publish => of_list("attached").collect(),
                Step::Unpublish => of_list("detached").collect(),
            };
            for disk in disks {
                ends.entry(disk.to_owned()).or_default().push((accepted / 1e3, ended / 1e3));
            }
        }
        Self(ends)
    }

    /// The last operation of the disk that had ended when its caller was answered. A call that Azure's state answered
    /// without an operation of this phase has none.
    /// While a sidecar pauses between two attempts it cannot be told, so the pause does not count.
    fn noticed(&self, volume_id: &str, sent: f64, answered: f64) -> Option<Noticed> {
        // Both clocks are read to the millisecond.
        const READING: f64 = 0.005;
        let ends = self.0.get(&volume_id.to_ascii_lowercase())?;
        let before = ends.iter().filter(|(_, ended)| *ended <= answered + READING);
        let (accepted, ended) = before.max_by(|a, b| a.1.total_cmp(&b.1))?;
        Some(Noticed { late: (answered - ended.max(sent)).max(0.0), duration: ended - accepted })
    }
}

fn lateness(noticed: &[Noticed]) -> Map<String, Value> {
    let late = sorted(noticed.iter().map(|noticed| noticed.late));
    let relative =
        sorted(noticed.iter().filter(|noticed| noticed.duration > 0.0).map(|noticed| noticed.late / noticed.duration));
    let figure = |known: &[f64], value: f64| if known.is_empty() { Value::Null } else { rounded(value) };
    let within = |seconds: f64, share_of_duration: f64| {
        let in_time = noticed.iter().filter(|n| n.late <= seconds.max(n.duration * share_of_duration)).count();
        share(in_time as u64, noticed.len() as u64)
    };
    let mut row = Map::new();
    row.insert("noticed_p50_s".into(), figure(&late, percentile(&late, 50)));
    row.insert("noticed_p95_s".into(), figure(&late, percentile(&late, 95)));
    row.insert("noticed_max_s".into(), figure(&late, percentile(&late, 100)));
    row.insert("noticed_relative_p95".into(), figure(&relative, percentile(&relative, 95)));
    row.insert("noticed_within_1s_or_10pct".into(), within(1.0, 0.10));
    row.insert("noticed_within_2s_or_15pct".into(), within(2.0, 0.15));
    row
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

/// The value that so many percent of the sorted values do not exceed; 0 of none.
fn percentile(sorted: &[f64], percent: usize) -> f64 {
    let index = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(index).copied().unwrap_or_default()
}

/// One number over another; null where there is nothing to compare with.
pub(super) fn ratio(makespan: f64, bound: f64) -> Value {
    if bound > 0.0 { rounded(makespan / bound) } else { Value::Null }
}

/// A part of a whole, between 0 and 1; null of nothing.
pub(super) fn share(part: u64, whole: u64) -> Value {
    if whole > 0 { rounded(part as f64 / whole as f64) } else { Value::Null }
}

/// To a thousandth.
pub(super) fn rounded(value: f64) -> Value {
    json!((value * 1000.0).round() / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let values = [1.0, 2.0, 3.0, 4.0];
        assert_eq!(
            [0, 25, 50, 51, 99, 100].map(|percent| percentile(&values, percent)),
            [1.0, 1.0, 2.0, 3.0, 4.0, 4.0]
        );
        assert_eq!(percentile(&[], 50), 0.0);
    }

    #[test]
    fn requests_to_blob_services_are_counted_apart() {
        let by_operation =
            json!({"blob.put": 3, "blob.putPage": 3, "blob.getProperties": 2, "blob.list": 1, "disks.get": 9});
        let row = blob_requests(&json!({"counters": {"byOperation": by_operation}}));
        assert_eq!((&row["blob_reads"], &row["blob_writes"], &row["requests"]), (&json!(3), &json!(6), &by_operation));
        assert_eq!(blob_requests(&json!({}))["blob_reads"], 0);
    }

    #[test]
    fn an_end_is_noticed_when_the_call_is_answered_and_not_when_the_client_looked() {
        let operations = [
            json!({"kind": "vmAttach", "resource": "/vm", "acceptedMs": 1_000, "endedMs": 11_000, "succeeded": true,
                "attached": ["/a", "/b"]}),
            json!({"kind": "vmAttach", "resource": "/vm", "acceptedMs": 11_500, "endedMs": 21_500, "succeeded": true,
                "attached": ["/c"], "detached": ["/a"]}),
            json!({"kind": "vmAttach", "resource": "/vm", "acceptedMs": 21_750, "endedMs": 22_000, "succeeded": false,
                "attached": ["/d"]}),
        ];
        let ends = Ends::of(Step::Publish, &operations);
        assert_eq!(ends.noticed("/A", 0.0, 11.5), Some(Noticed { late: 0.5, duration: 10.0 }));
        assert_eq!(ends.noticed("/b", 0.0, 11.0 - 0.004), Some(Noticed { late: 0.0, duration: 10.0 }));
        assert_eq!(ends.noticed("/a", 13.0, 13.5), Some(Noticed { late: 0.5, duration: 10.0 }), "asked again after it");
        assert_eq!(ends.noticed("/c", 0.0, 20.0), None, "answered before the end: by something else");
        assert_eq!(ends.noticed("/d", 0.0, 30.0), None, "it failed");
        assert_eq!(Ends::of(Step::Unpublish, &operations).noticed("/a", 0.0, 22.1).map(|n| n.duration), Some(10.0));
        let created =
            json!({"kind": "diskCreate", "resource": "/a", "acceptedMs": 0, "endedMs": 2_500, "succeeded": true});
        assert!(Ends::of(Step::Delete, std::slice::from_ref(&created)).noticed("/a", 0.0, 3.0).is_none());
        assert!(Ends::of(Step::Create, &[created]).noticed("/a", 0.0, 3.0).is_some());
    }

    #[test]
    fn lateness_is_judged_by_seconds_or_by_the_operations_duration() {
        let noticed = [
            Noticed { late: 0.9, duration: 2.5 },
            Noticed { late: 1.8, duration: 2.5 },
            Noticed { late: 5.9, duration: 60.0 },
            Noticed { late: 9.5, duration: 60.0 },
        ];
        let row = lateness(&noticed);
        assert_eq!(row["noticed_within_1s_or_10pct"], 0.5);
        assert_eq!(row["noticed_within_2s_or_15pct"], 0.75);
        assert_eq!((&row["noticed_p50_s"], &row["noticed_max_s"]), (&json!(1.8), &json!(9.5)));
        assert_eq!(lateness(&[])["noticed_p50_s"], Value::Null);
    }
}
