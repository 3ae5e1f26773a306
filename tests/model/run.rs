//! One run: a world, its steps, the calm afterwards, and the verdict.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use lazuli_emulator::{Control, Emulator};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use super::{
    cluster::Cluster,
    facts::{BlobFacts, name_of},
    judge::{Coverage, GIVEN_UP_FOR_MS, Judge, Violation, Who, is_ours},
    script::{NAMED_ACCOUNT, Step, Timed, World, foreign_name, node_name, node_number},
    wire::Tool,
};

/// How long everything may take to come true when all is quiet: an operation of the slowest profile, and the longest
/// pauses of everybody who waits for it, some times over.
const CONVERGENCE: Duration = Duration::from_secs(45 * 60);
/// How many writes to Azure a wish may cost then, besides one for each time that it is asked for.
const WRITES_PER_WISH: usize = 20;

/// As often as temporary snapshots are swept.
const A_DAY: Duration = Duration::from_secs(25 * 3_600);

/// What came of a run.
#[derive(Debug)]
pub(super) struct Verdict {
    pub(super) violation: Option<Violation>,
    pub(super) coverage: Coverage,
    pub(super) story: Vec<String>,
    /// Method, path, status and time of every request.
    pub(super) log: Vec<String>,
}

/// Runs steps in a world, in a runtime of its own on paused time. What a run leaves behind ends with its runtime.
pub(super) fn run(world: &World, steps: &[Timed]) -> Verdict {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(play(world, steps))
}

async fn play(world: &World, steps: &[Timed]) -> Verdict {
    let emulator = Emulator::start(world.azure()).await.unwrap();
    let control = emulator.control();
    let limits = (0..world.nodes.len()).map(|node| (node_name(node), world.limit(node))).collect();
    let judge = Arc::new(Mutex::new(Judge::new(control.clone(), world, limits)));
    let cluster = Cluster::new(world, &emulator, &judge);
    let tool = Tool::new(&emulator, &judge);
    if world.vhds.is_some() {
        tool.make_account(NAMED_ACCOUNT).await;
        at_rest(&control).await;
    }
    standing_incidents(world, &control);
    for (pause, step) in steps {
        sleep(*pause).await;
        if judge.lock().unwrap().violation.is_some() {
            break;
        }
        judge.lock().unwrap().tell(&format!("{step:?}"));
        take(step, world, &cluster, &emulator, &tool, &judge).await;
    }
    sleep(Duration::from_secs(2)).await;
    if judge.lock().unwrap().violation.is_none() {
        calm(world, &cluster, &control, &tool, &judge).await;
    }
    let calls = control.call_log();
    let log = calls.iter().map(|call| {
        format!("{:>8} {} {} {} {}", call.at_ms, call.method, call.path, call.status, call.latency_ms.unwrap_or(0))
    });
    let mut judge = judge.lock().unwrap();
    Verdict {
        violation: judge.violation.clone(),
        coverage: judge.coverage.clone(),
        story: std::mem::take(&mut judge.story),
        log: log.collect(),
    }
}

/// A role made for the Go drivers has no right to the action.
fn standing_incidents(world: &World, control: &Control) {
    if world.without_action {
        let incident = json!({
            "match": {"operation": "virtualMachines.attachDetachDataDisks"},
            "then": {"status": 403, "code": "AuthorizationFailed"},
            "times": 0,
        });
        control.add_incident(serde_json::from_value(incident).unwrap()).unwrap();
    }
}

async fn take(
    step: &Step,
    world: &World,
    cluster: &Arc<Cluster>,
    emulator: &Emulator,
    tool: &Tool,
    judge: &Arc<Mutex<Judge>>,
) {
    match step.clone() {
        Step::Create { slot, gib } => cluster.create(slot, gib),
        Step::CreateOther { slot, gib } => cluster.create_other(slot, gib),
        Step::Delete { slot, hasty } => cluster.delete(slot, hasty),
        Step::Publish { slot, node, both } => cluster.publish(slot, node, both),
        Step::Republish { slot } => cluster.resync(slot),
        Step::Unpublish { slot } => cluster.unpublish(slot),
        Step::UnpublishFrom { slot, node } => cluster.unpublish_from(slot, Some(node)),
        Step::UnpublishEverywhere { slot } => cluster.unpublish_from(slot, None),
        Step::Expand { slot, gib } => cluster.expand(slot, gib),
        Step::List { page } => cluster.list(page),
        Step::Get { slot } => cluster.get(slot),
        Step::Incident { .. } => {
            let incident = serde_json::from_value(step.incident().unwrap()).unwrap();
            emulator.control().add_incident(incident).unwrap();
        }
        Step::ForeignAttach { disk, node, lun } => {
            let status = tool.attach(&node_name(node), &foreign_name(disk), lun).await;
            judge.lock().unwrap().tell(&format!("the tool is told {status}"));
        }
        Step::ForeignDetach { disk } => detach_by_tool(&foreign_name(disk), world, tool, judge).await,
        Step::MeddleAttach { slot, node, lun } => {
            let Some(disk) = cluster.in_slot(slot) else { return };
            let vhd = vhd(judge, &disk);
            let status = match &vhd {
                Some(vhd) => attach_vhd(&node_name(node), vhd, lun, tool).await,
                None => tool.attach(&node_name(node), &disk, lun).await,
            };
            judge.lock().unwrap().tell(&format!("the tool is told {status}"));
        }
        Step::MeddleDetach { slot } => {
            let Some(disk) = cluster.in_slot(slot) else { return };
            detach_by_tool(&disk, world, tool, judge).await;
            // external-attacher notices in its own time.
            cluster.resync_later(slot);
        }
        Step::TakeSnapshot { at, of, place } => cluster.take_snapshot(at, of, place),
        Step::DropSnapshot { at } => cluster.drop_snapshot(at),
        Step::Restore { slot, at, class, more_gib, hasty } => cluster.restore(slot, at, (class, more_gib), hasty),
        Step::Clone { slot, of, class, more_gib } => cluster.clone_volume(slot, of, (class, more_gib)),
        Step::Modify { slot, to } => cluster.modify(slot, to),
        Step::ListSnapshots { of, page } => cluster.list_snapshots(of, page),
        Step::MachineWrites { slot, gib } => {
            let Some(disk) = cluster.in_slot(slot) else { return };
            judge.lock().unwrap().machine_writes(&disk, gib);
        }
        Step::RotateKeys { slot } => {
            let Some(vhd) = cluster.in_slot(slot).and_then(|disk| vhd(judge, &disk)) else { return };
            tool.rotate_keys(&vhd.account).await;
            judge.lock().unwrap().keys_rotated();
        }
        Step::Litter { slot } => {
            let Some(vhd) = cluster.in_slot(slot).and_then(|disk| vhd(judge, &disk)) else { return };
            tool.make_share(&vhd.account).await;
        }
        Step::Kill { role } => cluster.lead(role, emulator, true),
        Step::Move { role } => cluster.lead(role, emulator, false),
    }
}

/// From wherever a machine holds it.
async fn detach_by_tool(disk: &str, world: &World, tool: &Tool, judge: &Arc<Mutex<Judge>>) {
    let holder = {
        let mut judge = judge.lock().unwrap();
        judge.look();
        judge.facts.holders(disk).first().map(|(vm, _)| (*vm).to_owned())
    };
    if let Some(vm) = holder {
        let status = detach_from(&vm, disk, world, tool).await;
        judge.lock().unwrap().tell(&format!("the tool is told {status}"));
    }
}

async fn detach_from(vm: &str, disk: &str, world: &World, tool: &Tool) -> u16 {
    if !world.takes_vhds(node_number(vm)) {
        return tool.detach(vm, disk).await;
    }
    let is_it = |element: &&mut Value| element["vhd"]["uri"].as_str().map(name_of).as_deref() == Some(disk);
    // A list may keep what it leaves out.
    tool.write_list(vm, |disks| disks.iter_mut().filter(is_it).for_each(|it| it["toBeDetached"] = true.into())).await
}

/// The page blob of a volume, if it has one.
fn vhd(judge: &Arc<Mutex<Judge>>, disk: &str) -> Option<BlobFacts> {
    let mut judge = judge.lock().unwrap();
    judge.look_closely();
    judge.facts.disks.get(disk)?.blob.clone()
}

async fn attach_vhd(vm: &str, vhd: &BlobFacts, lun: u8, tool: &Tool) -> u16 {
    let element = json!({"lun": lun, "name": name_of(&vhd.uri), "createOption": "Attach", "vhd": {"uri": vhd.uri}});
    tool.write_list(vm, |disks| disks.push(element)).await
}

/// No more incidents and no more tools: every wish must come true, and nothing else may be left.
async fn calm(world: &World, cluster: &Arc<Cluster>, control: &Control, tool: &Tool, judge: &Arc<Mutex<Judge>>) {
    control.clear_incidents();
    standing_incidents(world, control);
    judge.lock().unwrap().tell("calm");
    // Replicas without a role are gone now; what they had sent comes to its end.
    let foreign = room_of_others(world, judge);
    cluster.calm(&foreign);
    at_rest(control).await;
    let (writes_before, asked_before) = {
        let judge = judge.lock().unwrap();
        (judge.writes(), judge.asked_for())
    };
    let wishes = cluster.unsettled().len() + cluster.wishes().0.len();
    let settled = settles(world, cluster, control, tool, judge).await;
    if judge.lock().unwrap().violation.is_some() {
        return;
    }
    if !settled {
        let left = cluster.unsettled();
        judge.lock().unwrap().violated("converges", format!("after {CONVERGENCE:?}: {left:?}"));
        return;
    }
    at_rest(control).await;
    clear_strays(world, cluster, control, tool, judge).await;
    at_rest(control).await;
    // Reads show all that was written.
    sleep(Duration::from_millis(world.read_lag_ms + world.list_lag_ms() + 1)).await;
    cluster.list_at_rest().await;
    let (volumes, published) = cluster.wishes();
    let wanted: BTreeSet<String> = volumes.keys().cloned().collect();
    let (writes, asked) = {
        let judge = judge.lock().unwrap();
        (judge.writes() - writes_before, judge.asked_for() - asked_before)
    };
    // What was given up long ago has come to its end by then.
    sleep(Duration::from_millis(GIVEN_UP_FOR_MS + 1)).await;
    cluster.republish_at_rest().await;
    rest(judge, &wanted, (&volumes, &published), (wishes, writes, asked));
    if world.has_farewell() && judge.lock().unwrap().violation.is_none() {
        farewell(world, cluster, control, tool, judge).await;
    }
}

/// Waits until all wishes have come true. What Azure does by itself takes its own time.
async fn settles(
    world: &World,
    cluster: &Arc<Cluster>,
    control: &Control,
    tool: &Tool,
    judge: &Arc<Mutex<Judge>>,
) -> bool {
    const ROUND: Duration = Duration::from_secs(180);
    let mut waited = Duration::ZERO;
    while waited < CONVERGENCE {
        // What excuses can be made for is cleared away by a person, now and again: it may keep a wish from coming true.
        clear_strays(world, cluster, control, tool, judge).await;
        let settled = timeout(ROUND, cluster.settled()).await.is_ok();
        if settled || judge.lock().unwrap().violation.is_some() {
            return settled;
        }
        if !judge.lock().unwrap().goes_on() {
            waited += ROUND;
        }
    }
    false
}

/// The LUN that was answered last, by node and disk.
type Published = BTreeMap<(String, String), u8>;

/// What holds when all is quiet, and what it took.
fn rest(
    judge: &Mutex<Judge>,
    wanted: &BTreeSet<String>,
    (volumes, published): (&BTreeMap<String, i64>, &Published),
    (wishes, writes, asked): (usize, u64, usize),
) {
    let mut judge = judge.lock().unwrap();
    let (attached, disks) = judge.strays(wanted);
    if !attached.is_empty() || !disks.is_empty() {
        judge.violated("leak", format!("cleared away and there again: {attached:?} {disks:?}"));
    }
    judge.at_rest(volumes, published);
    if writes > (WRITES_PER_WISH * (wishes + 1) + asked) as u64 {
        judge.violated("economy", format!("{wishes} wishes took {writes} writes when all was quiet"));
    }
}

/// Everything is deleted through the controller: nothing that it has made may be left then, but for temporary snapshots,
/// which it sweeps.
async fn farewell(world: &World, cluster: &Arc<Cluster>, control: &Control, tool: &Tool, judge: &Arc<Mutex<Judge>>) {
    judge.lock().unwrap().tell("farewell");
    cluster.farewell();
    let settled = settles(world, cluster, control, tool, judge).await;
    if judge.lock().unwrap().violation.is_some() {
        return;
    }
    if !settled {
        let left = cluster.unsettled();
        return judge.lock().unwrap().violated("converges", format!("{left:?} cannot be deleted"));
    }
    at_rest(control).await;
    clear_strays(world, cluster, control, tool, judge).await;
    at_rest(control).await;
    if !judge.lock().unwrap().left_of_copies().is_empty() {
        judge.lock().unwrap().coverage.count("sweep waited for");
        // A sweep a day, of what is a day old.
        for _ in 0..2 {
            sleep(A_DAY).await;
            cluster.list_at_rest().await;
        }
        at_rest(control).await;
    }
    let mut judge = judge.lock().unwrap();
    let left = judge.left_of_copies();
    if !left.is_empty() {
        judge.violated("leak", format!("all is deleted, and there is {left:?}"));
    }
}

/// How many slots of each node others have, or may still get.
fn room_of_others(world: &World, judge: &Arc<Mutex<Judge>>) -> BTreeMap<String, usize> {
    let mut judge = judge.lock().unwrap();
    judge.look();
    (0..world.nodes.len())
        .map(|node| {
            let name = node_name(node);
            let machine = &judge.facts.machines[&name];
            let taken = machine.listed.values().filter(|element| !is_ours(&element.disk)).count();
            (name, taken)
        })
        .collect()
}

async fn clear_strays(
    world: &World,
    cluster: &Arc<Cluster>,
    control: &Control,
    tool: &Tool,
    judge: &Arc<Mutex<Judge>>,
) {
    // A volume that is still to be deleted is not left over yet.
    let mut wanted: BTreeSet<String> = cluster.wishes().0.into_keys().collect();
    wanted.extend(cluster.to_be_deleted());
    let (attached, disks) = judge.lock().unwrap().strays(&wanted);
    for (vm, disk) in &attached {
        judge.lock().unwrap().coverage.count("stray attachment cleared away");
        // A person's role has what the provider's lacks.
        control.clear_incidents();
        detach_from(vm, disk, world, tool).await;
        standing_incidents(world, control);
        at_rest(control).await;
    }
    for disk in &disks {
        judge.lock().unwrap().coverage.count("stray disk cleared away");
        match vhd(judge, disk) {
            Some(vhd) => {
                control.delete_blob(&vhd.uri);
                judge.lock().unwrap().request_is_answered(Who::Tool, "DELETE");
            }
            None => drop(tool.delete(disk).await),
        }
        at_rest(control).await;
    }
    let strays = judge.lock().unwrap().stray_accounts(&wanted);
    for account in strays {
        judge.lock().unwrap().coverage.count("stray account cleared away");
        tool.delete_account(&account).await;
        at_rest(control).await;
    }
}

async fn at_rest(control: &Control) {
    while control.running_operations() > 0 {
        sleep(Duration::from_millis(200)).await;
    }
}
