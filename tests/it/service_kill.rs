//! The process `lazuli cloud-controllers` killed after any write, or frozen while another replica takes its Lease over.
//!
//! Real processes and real signals, so this runs on real time; the operations are short instead. The judge of
//! [`super::service_judge`] sees every state between.

use std::{
    collections::BTreeSet,
    path::PathBuf,
    process::Stdio,
    time::{Duration, Instant},
};

use futures::future::join_all;
use lazuli_emulator::{call_log::Call, latency::Profile};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};
use tokio::{
    process::{Child, Command},
    time::{sleep, timeout},
};

use super::service_rig::Judged;

/// What only a hang reaches, on a busy machine too.
const PATIENCE: Duration = Duration::from_secs(240);
/// How often a condition that announces itself by no event is looked at.
const LOOK: Duration = Duration::from_millis(5);
const LEASE: &str = "cloud-controller-manager";

/// A cluster, and the folder with the latencies of its Azure.
struct World {
    rig: Judged,
    _folder: lazuli_rig::Folder,
}

impl World {
    async fn start(millis: u32) -> Self {
        let folder = lazuli_rig::Folder::make("service-kill").unwrap();
        let latency = short(folder.path().join("latency.yaml"), millis);
        let options = lazuli_emulator::Options { latency, retry_after: Some(1), ..Default::default() };
        Self { rig: Judged::with(&[], options).await, _folder: folder }
    }

    fn process(&self) -> Child {
        self.process_by(&self.rig.cluster.arguments())
    }

    fn process_by(&self, arguments: &[String]) -> Child {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lazuli"));
        command.env_clear().arg("cloud-controllers").args(arguments).arg("--controllers=service-lb");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true).spawn().unwrap()
    }

    /// The writes that Azure has accepted.
    fn accepted(&self) -> Vec<Call> {
        let calls = self.rig.cluster.azure.control().call_log().into_iter();
        let is_write = |call: &Call| call.plane == "arm" && ["PUT", "PATCH", "DELETE"].contains(&call.method.as_str());
        calls.filter(|call| is_write(call) && (200..300).contains(&call.status)).collect()
    }

    async fn until(&self, what: &str, is: impl Fn() -> bool) {
        let began = Instant::now();
        while !is() {
            assert!(began.elapsed() < PATIENCE, "{what}: {:#?}", self.rig.cluster.writes());
            sleep(LOOK).await;
        }
    }

    /// The next process need not wait until the Lease of one that was killed expires.
    fn free_lease(&self) {
        if let Some(mut lease) = self.rig.cluster.server.get("leases", "kube-system", LEASE) {
            lease["spec"]["holderIdentity"] = "".into();
            self.rig.cluster.server.put("leases", lease).unwrap();
        }
    }

    fn has_address(&self, name: &str, is_internal: bool) -> bool {
        let addresses = self.rig.addresses(name);
        !addresses.is_empty() && addresses.iter().all(|address| address.starts_with("10.") == is_internal)
    }

    /// What the cluster asks for after so many steps.
    fn is_reached(&self, step: usize) -> bool {
        let exists = |name| self.rig.cluster.server.get("services", "default", name).is_some();
        match step {
            0 => self.has_address("web", false) && self.has_address("inner", true) && self.has_address("closed", false),
            1 => self.has_address("web", true),
            _ => !exists("closed"),
        }
    }

    fn step(&self, step: usize) {
        match step {
            0 => {
                self.rig.service("web", &[80], &[], &[]);
                self.rig.service("inner", &[81], &["10.9.0.0/16"], &[("azure-load-balancer-internal", "true")]);
                self.rig.service("closed", &[82], &["203.0.113.0/24"], &[]);
            }
            1 => self.rig.service("web", &[80], &[], &[("azure-load-balancer-internal", "true")]),
            _ => {
                self.rig.delete("closed");
                self.rig.node(2);
            }
        }
    }

    /// What Azure holds of the network, with the names of Services in place of what differs from life to life.
    fn state(&self) -> BTreeSet<String> {
        let services = self.rig.cluster.server.list("services");
        let mut names: Vec<(String, String)> = Vec::new();
        for service in &services {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let name = text(&service["metadata"]["name"]);
            let uid = text(&service["metadata"]["uid"]).replace('-', "");
            names.push((format!("a{uid}").chars().take(32).collect(), format!("<{name}>")));
            for (family, address) in self.rig.addresses(&name).into_iter().enumerate() {
                names.push((address, format!("<{name} {family}>")));
            }
        }
        let documents = self.rig.cluster.azure.control().dump().resources;
        let of_network = documents.into_iter().filter(|(key, _)| key.contains("/microsoft.network/"));
        of_network
            .map(|(_, mut document)| {
                plain(&mut document);
                names.iter().fold(document.to_string(), |text, (from, to)| text.replace(from, to))
            })
            .collect()
    }

    /// Waits until nothing of the network changes any more and is like this.
    async fn until_state(&self, what: &str, expected: &BTreeSet<String>) {
        let began = Instant::now();
        loop {
            let (now, running) = (self.state(), self.rig.cluster.azure.control().running_operations());
            if running == 0 && now == *expected {
                break;
            }
            let differ: Vec<&String> = now.symmetric_difference(expected).collect();
            assert!(began.elapsed() < PATIENCE, "{what}: {differ:#?} {:#?}", self.rig.cluster.writes());
            sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Takes out what says nothing of what is served: etags, GUIDs, states and the order of lists.
fn plain(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|key, _| !["etag", "resourceGuid", "priority", "provisioningState"].contains(&key.as_str()));
            members.values_mut().for_each(plain);
        }
        Value::Array(items) => {
            items.iter_mut().for_each(plain);
            items.sort_by_key(Value::to_string);
        }
        _ => {}
    }
}

/// Operations of the network that take so long.
fn short(path: PathBuf, millis: u32) -> Profile {
    let kinds = ["loadBalancer", "securityGroup", "publicIpAddress", "network"];
    let kinds: Vec<String> = kinds.iter().map(|kind| format!("  {kind}: {{constant_ms: {millis}}}")).collect();
    std::fs::write(&path, format!("base: none\noperations:\n{}\n", kinds.join("\n"))).unwrap();
    Profile::parse(path.to_str().unwrap()).unwrap()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moment {
    /// Azure has accepted the write and works on it.
    Accepted,
    /// The next write has arrived, and Azure has not acted.
    NextArrived,
}

const STEPS: usize = 3;

/// One life. The process is killed once, when Azure has accepted so many writes. Returns what Azure holds at the end and
/// how many writes it has accepted.
async fn life(killed: Option<(usize, Moment)>, expected: Option<&BTreeSet<String>>) -> (BTreeSet<String>, usize) {
    let world = World::start(150).await;
    let control = world.rig.cluster.azure.control();
    let before = world.accepted().len();
    let after = |writes: usize| world.accepted().len() >= before + writes;
    if let Some((writes, _)) = killed {
        let hold = json!({"match": {"method": "PUT|PATCH|DELETE", "nth": writes + 1},
            "then": {"delayMs": 3_600_000}, "times": 0});
        control.add_incident(serde_json::from_value(hold).unwrap()).unwrap();
    }
    let mut killed = killed;
    let mut process = world.process();
    for step in 0..STEPS {
        world.step(step);
        let is_due = || {
            killed.is_some_and(|(writes, moment)| match moment {
                Moment::Accepted => after(writes),
                Moment::NextArrived => control.incidents().iter().any(|incident| incident.struck > 0),
            })
        };
        world.until(&format!("step {step} of {killed:?}"), || is_due() || world.is_reached(step)).await;
        if is_due() {
            killed = None;
            process.kill().await.unwrap();
            control.clear_incidents();
            world.free_lease();
            process = world.process();
            world.until(&format!("step {step} after a kill"), || world.is_reached(step)).await;
        }
    }
    let state = match expected {
        Some(expected) => {
            world.until_state("the end of a life", expected).await;
            expected.clone()
        }
        None => settled(&world).await,
    };
    process.kill().await.unwrap();
    world.rig.judge_rest();
    let writes = world.accepted().len() - before;
    world.rig.end("a life").await;
    (state, writes)
}

/// What Azure holds once it has not changed for a while.
async fn settled(world: &World) -> BTreeSet<String> {
    let (mut state, mut since) = (world.state(), Instant::now());
    while since.elapsed() < Duration::from_secs(5) {
        sleep(Duration::from_millis(100)).await;
        let now = world.state();
        if now != state || world.rig.cluster.azure.control().running_operations() > 0 {
            (state, since) = (now, Instant::now());
        }
    }
    state
}

#[tokio::test]
async fn cloud_controllers_killed_after_any_write_are_succeeded_by_a_process_that_ends_in_the_same_state() {
    let (expected, writes) = Box::pin(timeout(PATIENCE, life(None, None))).await.expect("ends");
    assert!(writes > 8, "the script has {writes} writes");
    // A life may have some writes more than another: what is asked at once goes out in one write or in two.
    let accepted = (1..=writes).map(|at| (at, Moment::Accepted));
    let arrived = (0..writes).step_by(3).map(|at| (at, Moment::NextArrived));
    let lives = accepted.chain(arrived).map(|killed| life(Some(killed), Some(&expected)));
    for (which, ended) in join_all(lives.map(|life| timeout(PATIENCE, life))).await.into_iter().enumerate() {
        ended.unwrap_or_else(|_| panic!("life {which} does not end"));
    }
}

fn signal(process: &Child, signal: Signal) {
    kill(Pid::from_raw(i32::try_from(process.id().unwrap()).unwrap()), signal).unwrap();
}

#[tokio::test]
async fn a_frozen_leader_writes_nothing_once_another_replica_leads() {
    let world = World::start(1500).await;
    let config = world.rig.cluster.config().unwrap();
    // Each replica has a name in the log of Azure.
    let replica = |name: &str| {
        let mut own = config.clone();
        own["userAgent"] = name.into();
        world.rig.cluster.write(&format!("{name}.json"), &own).unwrap();
        let arguments = world.rig.cluster.arguments().into_iter();
        let arguments: Vec<String> = arguments.map(|one| one.replace("azure.json", &format!("{name}.json"))).collect();
        world.process_by(&arguments)
    };
    // Accepted or not, each with the replica that sent it.
    let writes = || -> Vec<String> {
        let calls = world.rig.cluster.azure.control().call_log().into_iter();
        let writes =
            calls.filter(|call| call.plane == "arm" && ["PUT", "PATCH", "DELETE"].contains(&call.method.as_str()));
        let agent = |call: &Call| call.user_agent.clone().unwrap_or_default();
        writes.map(|call| format!("{} {} {} {}", agent(&call), call.method, call.path, call.status)).collect()
    };
    let by = |name: &str| writes().iter().filter(|write| write.contains(name)).count();
    let mut first = replica("replica-one");
    world.until("the first replica leads", || world.rig.cluster.holder().is_some()).await;
    let leader = world.rig.cluster.holder();
    let mut second = replica("replica-two");
    world.step(0);
    // What depends on the addresses that it has asked for is left to the other.
    world.until("the first replica writes", || by("replica-one") > 1).await;
    signal(&first, Signal::SIGSTOP);
    world.until("the second replica leads", || world.rig.cluster.holder() != leader).await;
    world.until("the second replica writes", || by("replica-two") > 0).await;
    signal(&first, Signal::SIGCONT);
    let ended = timeout(PATIENCE, first.wait()).await.expect("ends").unwrap();
    assert_eq!(ended.code(), Some(1), "the first replica has lost its Lease");
    // A request whose bytes were on their way when it froze may arrive when it goes on. Azure refuses it, for it names the
    // ETag of what the other replica has changed since.
    let writes = writes();
    let is_write = |write: &String| write.contains("replica-one") && !write.ends_with(" 412");
    let last_of_first = writes.iter().rposition(is_write);
    let first_of_second = writes.iter().position(|write| write.contains("replica-two"));
    assert!(last_of_first < first_of_second, "{writes:#?}");
    world.until("every Service has its address", || world.is_reached(0)).await;
    world.step(1);
    world.until("web has changed its side", || world.is_reached(1)).await;
    world.step(2);
    world.until("closed is gone", || world.is_reached(2)).await;
    settled(&world).await;
    second.kill().await.unwrap();
    world.rig.judge_rest();
    world.rig.end("two replicas").await;
}
