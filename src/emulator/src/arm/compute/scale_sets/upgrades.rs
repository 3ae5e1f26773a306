//! How a changed model reaches the instances of a uniform set.
//!
//! Documented: with `Manual` by `manualupgrade` alone, with `Automatic` all at once, with `Rolling` batch by batch, with
//! a pause between two. A flexible set applies its model to new instances. Unverified: data disks and power stay as they
//! are; the health of a batch is not looked at.

use std::time::Duration;

use serde_json::{Value, json};

use super::members::{is_flexible, members};
use super::{model, nics};
use crate::arm::compute::vm_work;
use crate::arm::writes;
use crate::path;
use crate::state::State;

/// Instances in a batch, in percent. Documented default.
const BATCH_PERCENT: u64 = 20;

fn mode(set: &Value) -> &str {
    set["properties"]["upgradePolicy"]["mode"].as_str().unwrap_or("Manual")
}

/// Whether instances of one model lack something of the other.
pub(crate) fn is_another(old: &Value, new: &Value) -> bool {
    let model = |set: &Value| (set["properties"]["virtualMachineProfile"].clone(), set["sku"]["name"].clone());
    model(old) != model(new)
}

/// Whether a changed model reaches the instances without another request.
pub(crate) fn happens_by_itself(set: &Value) -> bool {
    !is_flexible(set) && mode(set) != "Manual"
}

/// Instances no longer have the latest model.
pub(crate) fn outdate(state: &mut State, members: &[String], at: Duration) {
    for id in members {
        state.store.change(id, at, |resource| {
            if resource.doc["properties"].get("latestModelApplied").is_some() {
                resource.doc["properties"]["latestModelApplied"] = json!(false);
            }
        });
    }
}

/// Gives an instance the model of its set.
pub(crate) fn apply(state: &mut State, set: &Value, id: &str, at: Duration) {
    let sku = json!({"name": set["sku"]["name"], "tier": set["sku"]["tier"]});
    let configurations = model::of_set(set).clone();
    let profile = set["properties"]["virtualMachineProfile"].clone();
    let doc = state.store.change(id, at, |resource| {
        let properties = &mut resource.doc["properties"];
        properties["latestModelApplied"] = json!(true);
        properties["modelDefinitionApplied"] = json!("VirtualMachineScaleSet");
        properties["networkProfileConfiguration"] = json!({"networkInterfaceConfigurations": configurations});
        let own = ["securityProfile", "licenseType", "diagnosticsProfile"];
        *properties = writes::with(properties.take(), &own, &profile);
        resource.doc["sku"] = sku;
        vm_work::bump(resource);
        resource.doc.clone()
    });
    if let Some(doc) = doc
        && nics::follow(state, &doc, at).is_err()
    {
        state.store.change(id, at, |resource| resource.set_provisioning("Failed"));
    }
}

fn outdated(state: &State, set: &Value) -> Vec<String> {
    let mut members = members(state, set);
    members.retain(|id| {
        let doc = state.store.document(id).unwrap_or_default();
        doc["properties"]["latestModelApplied"] == false && doc["properties"]["provisioningState"] != "Creating"
    });
    members.sort_by_key(|id| path::name_of(id).parse::<u64>().unwrap_or(0));
    members
}

/// At the end of a write of a set.
pub(crate) fn after_write(state: &mut State, set: &Value, at: Duration) {
    if !happens_by_itself(set) {
        return;
    }
    if mode(set) == "Automatic" {
        for id in outdated(state, set) {
            apply(state, set, &id, at);
        }
        return;
    }
    roll(state, set, at);
}

/// Upgrades a batch, and sets the alarm of the next one.
fn roll(state: &mut State, set: &Value, at: Duration) {
    let policy = &set["properties"]["upgradePolicy"]["rollingUpgradePolicy"];
    let percent = policy["maxBatchInstancePercent"].as_u64().unwrap_or(BATCH_PERCENT).clamp(1, 100);
    let all = members(state, set).len() as u64;
    let batch = usize::try_from((all * percent).div_ceil(100)).unwrap_or(usize::MAX).max(1);
    let waiting = outdated(state, set);
    for id in waiting.iter().take(batch) {
        apply(state, set, id, at);
    }
    if waiting.len() <= batch {
        return;
    }
    let pause = seconds(policy["pauseTimeBetweenBatches"].as_str().unwrap_or("PT0S"));
    let id = path::of(set).to_owned();
    state.set_alarm(
        at + pause,
        Box::new(move |state, at| {
            // A newer model may stand by then, or none.
            if let Some(set) = state.store.document(&id) {
                roll(state, &set, at);
            }
        }),
    );
}

/// A duration of ISO 8601 in hours, minutes and seconds; what is none is no pause.
fn seconds(text: &str) -> Duration {
    let mut number = String::new();
    let mut total = 0.0_f64;
    for letter in text.trim_start_matches("PT").chars() {
        let factor = match letter {
            'H' => 3600.0,
            'M' => 60.0,
            'S' => 1.0,
            digit => {
                number.push(digit);
                continue;
            }
        };
        total += std::mem::take(&mut number).parse::<f64>().unwrap_or(0.0) * factor;
    }
    Duration::try_from_secs_f64(total).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_read() {
        for (text, wanted) in [("PT0S", 0), ("PT30S", 30), ("PT5M", 300), ("PT1H1M1S", 3661), ("nonsense", 0)] {
            assert_eq!(seconds(text), Duration::from_secs(wanted), "{text}");
        }
    }
}
