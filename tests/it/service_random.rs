//! Random Services that change at random moments, each run from one seed, judged after each step of Azure.

use serde_json::{Value, json};
use tokio::time::sleep;

use super::service_rig::Judged;
use crate::model::dice::Dice;

/// How many runs there are. `LAZULI_SERVICE_SEED` names a single one; `LAZULI_SERVICE_POOLS=nodeIPConfiguration` fills the
/// pools by interfaces, which is not judged yet: interfaces join after the status, and a pool may keep them.
const RUNS: u64 = 40;
/// The same with `LAZULI_TEST_FULL`.
const RUNS_IN_FULL: u64 = 400;
/// How many changes a run has.
const CHANGES: usize = 8;
const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// A random Service: no two have a port in common, so that any may share an address.
fn put(rig: &Judged, dice: &mut Dice, seed: u64, at: usize, own: &str) -> String {
    let number = u16::try_from(at).unwrap();
    let ports: Vec<u16> = match dice.below(3) {
        0 => vec![1000 + number],
        1 => vec![2000 + number],
        _ => vec![1000 + number, 2000 + number],
    };
    let ranges: &[&str] =
        dice.one(&[&[][..], &[], &["203.0.113.0/24"], &["10.9.0.0/16"], &["203.0.113.0/24", "10.8.0.0/16"]]);
    let mut annotations = Vec::new();
    let is_internal = dice.percent(40);
    if is_internal {
        annotations.push(("azure-load-balancer-internal", "true"));
    }
    // A private address is named always or never: what happens when it is named no more while another Service shares it,
    // and when it changes while everything else is denied, is not judged.
    let address = Dice::of(seed, NAMES[at]).below(4);
    let is_closed = dice.percent(30) && !ranges.is_empty() && !(is_internal && address < 2);
    if is_closed {
        annotations.push(("azure-deny-all-except-load-balancer-source-ranges", "true"));
    }
    // Not judged: nodes that join or leave where rules name the nodes, and a denial there, which closes the nodes' other
    // ports too.
    if dice.percent(25) && !is_closed && seed.is_multiple_of(2) {
        annotations.push(("azure-disable-load-balancer-floating-ip", "true"));
    }
    match (is_internal, address) {
        (true, 0) => annotations.push(("azure-load-balancer-ipv4", "10.240.1.1")),
        (true, 1) => annotations.push(("azure-load-balancer-ipv4", "10.240.1.2")),
        (false, 0) => annotations.push(("azure-load-balancer-ipv4", own)),
        _ => {}
    }
    rig.service(NAMES[at], &ports, ranges, &annotations);
    // Its address may change in place; the writes of other Services count too.
    rig.allow_gap(NAMES[at], 20);
    format!("{} {ports:?} {ranges:?} {annotations:?}", NAMES[at])
}

async fn run(seed: u64) -> String {
    let mut dice = Dice::new(seed);
    let kind = std::env::var("LAZULI_SERVICE_POOLS").unwrap_or_else(|_| "nodeIP".to_owned());
    let keys: [(&str, Value); 1] = [("loadBalancerBackendPoolConfigurationType", json!(kind))];
    let rig = Judged::start(&keys).await;
    let own = rig.public_ip("own").await;
    let mut running = rig.controller("0");
    let mut exist = [false; NAMES.len()];
    let mut nodes = [false; 2];
    let mut story = vec![format!("seed {seed} {kind}")];
    for number in 1..=CHANGES {
        match dice.below(10) {
            0 if !seed.is_multiple_of(2) => {
                let at = dice.below(2);
                nodes[at] = !nodes[at];
                let node = u8::try_from(at).unwrap() + 2;
                if nodes[at] {
                    rig.node(node)
                } else {
                    rig.delete_node(node)
                }
                story.push(format!("node {node} {}", nodes[at]));
            }
            1 => {
                running.stop().await;
                running = rig.controller(&number.to_string());
                story.push("restart".to_owned());
            }
            2 | 3 if exist.contains(&true) => {
                let at = (0..NAMES.len()).cycle().skip(dice.below(NAMES.len())).find(|at| exist[*at]).unwrap();
                rig.delete(NAMES[at]);
                exist[at] = false;
                story.push(format!("delete {}", NAMES[at]));
                // A Service of the same name is another one.
                if !rig.gone(NAMES[at]).await {
                    return format!("{}; it stays", story.join("; "));
                }
            }
            _ => {
                let at = dice.below(NAMES.len());
                exist[at] = true;
                story.push(put(&rig, &mut dice, seed, at, &own));
            }
        }
        match dice.below(3) {
            0 => rig.rest().await,
            _ => {
                let wait = dice.millis(0, 15_000);
                story.push(format!("wait {wait:?}"));
                sleep(wait).await;
            }
        }
    }
    rig.rest().await;
    for at in (0..NAMES.len()).filter(|at| exist[*at]) {
        rig.delete(NAMES[at]);
    }
    rig.rest().await;
    running.stop().await;
    let faults = rig.judge.lock().unwrap().judge.faults().to_vec();
    let summary = format!("{}\n  {}", story.join("; "), faults.join("\n  "));
    let told =
        rig.judge.lock().unwrap().judge.story().iter().chain(&rig.events()).cloned().collect::<Vec<_>>().join("\n");
    rig.cluster.azure.shutdown().await;
    if faults.is_empty() { String::new() } else { format!("{summary}\n{told}") }
}

#[tokio::test(start_paused = true)]
async fn random_services_are_reached_by_those_they_admit_and_by_no_others() {
    let one = std::env::var("LAZULI_SERVICE_SEED").ok().map(|seed| seed.parse::<u64>().unwrap());
    let runs = if std::env::var_os("LAZULI_TEST_FULL").is_some() { RUNS_IN_FULL } else { RUNS };
    let seeds = one.map_or(1..runs + 1, |seed| seed..seed + 1);
    let mut failed = Vec::new();
    for seed in seeds {
        let told = Box::pin(run(seed)).await;
        if !told.is_empty() {
            failed.push(told);
        }
    }
    for (at, told) in failed.iter().enumerate() {
        // What led to it is printed of the first.
        println!("{}", if at == 0 { told.as_str() } else { told.lines().next().unwrap_or_default() });
    }
    assert!(failed.is_empty(), "{} runs have faults", failed.len());
}
