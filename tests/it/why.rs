//! `lazuli why` asks running processes: what a Service and a disk wait for, which replica acts, and who may ask.

use std::{
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    process::{Output, Stdio},
    time::{Duration, Instant},
};

use lazuli_emulator::incident::Incident;
use lazuli_rig::{Folder, cluster::Cluster, connect};
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use super::disk_rig::{Client, create, disk_id, publish};

/// What only a hang reaches, on a busy machine too.
const PATIENCE: Duration = Duration::from_secs(90);
/// How often a condition that announces itself by no event is looked at.
const LOOK: Duration = Duration::from_millis(20);
/// A user who is nobody here.
const NOBODY: u32 = 65_534;

const PROGRAM: &str = env!("CARGO_BIN_EXE_lazuli");

struct World {
    cluster: Cluster,
    folder: Folder,
}

impl World {
    async fn start() -> Self {
        let keys = [("loadBalancerBackendPoolConfigurationType", json!("nodeIP"))];
        let cluster = Cluster::start(lazuli_emulator::Options::default(), &keys).await.unwrap();
        Self { cluster, folder: Folder::make("why-it").unwrap() }
    }

    fn socket(&self, name: &str) -> PathBuf {
        self.folder.path().join(format!("{name}.sock"))
    }

    /// A process that answers at the socket of this name.
    fn process(&self, socket: &str, words: &[&str]) -> Child {
        let mut command = Command::new(PROGRAM);
        command.env_clear().args(words).args(self.cluster.arguments());
        command.arg(format!("--why-socket={}", self.socket(socket).display()));
        command.stdin(Stdio::null()).kill_on_drop(true).spawn().unwrap()
    }

    fn controllers(&self, socket: &str) -> Child {
        self.process(socket, &["cloud-controllers", "--controllers=service-lb"])
    }

    /// A driver of disks that answers at the socket of this name, and who calls it.
    async fn driver(&self, socket: &str) -> (Child, Client) {
        let endpoint = self.folder.path().join("csi");
        let process = self.process(socket, &["csi-controller", &format!("--endpoint=unix://{}", endpoint.display())]);
        let began = Instant::now();
        while !endpoint.exists() {
            assert!(began.elapsed() < PATIENCE, "the process does not serve");
            tokio::time::sleep(LOOK).await;
        }
        (process, Client::new(connect(&endpoint).await.unwrap()))
    }

    fn incident(&self, incident: Value) {
        let incident: Incident = serde_json::from_value(incident).unwrap();
        self.cluster.azure.control().add_incident(incident).unwrap();
    }

    /// What `lazuli why` prints about these words, asked at a socket.
    async fn why(&self, socket: &str, words: &[&str]) -> Output {
        let mut command = Command::new(PROGRAM);
        command.env_clear().env("COLUMNS", "100").arg("why").args(words);
        command.arg(format!("--socket={}", self.socket(socket).display()));
        tokio::time::timeout(PATIENCE, command.output()).await.expect("ends").unwrap()
    }

    /// The answer in JSON, once it is so.
    async fn answer(&self, socket: &str, words: &[&str], is: impl Fn(&Value) -> bool) -> Value {
        let began = Instant::now();
        loop {
            let output = self.why(socket, &[words, &["--output=json"]].concat()).await;
            let answers: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
            let answer = &answers["items"][0];
            if is(answer) {
                return answer.clone();
            }
            assert!(began.elapsed() < PATIENCE, "{answers:#} {}", stderr(&output));
            tokio::time::sleep(LOOK).await;
        }
    }
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// What the first object of an answer waits for.
fn waits_for(answer: &Value) -> Vec<&str> {
    let waits = answer["objects"][0]["waitsFor"].as_array();
    waits.into_iter().flatten().filter_map(|wait| wait["text"].as_str()).collect()
}

#[tokio::test]
async fn why_says_that_a_service_waits_for_its_load_balancer_and_who_leads() {
    let world = World::start().await;
    world.incident(json!({"match": {"method": "PUT", "path": "*/loadBalancers/*"},
        "then": {"status": 429, "retryAfter": 60, "message": "a message of Azure: hunter2"}, "times": 0}));
    let leader = world.controllers("leader");
    let began = Instant::now();
    while world.cluster.holder().is_none() {
        assert!(began.elapsed() < PATIENCE, "the process does not lead");
        tokio::time::sleep(LOOK).await;
    }
    let holder = world.cluster.holder().unwrap();
    world.cluster.service("web", json!({"owner": "hunter2"}), Value::Null).unwrap();
    let is_throttled = |answer: &Value| waits_for(answer).iter().any(|wait| wait.contains("too many requests"));
    let answer = world.answer("leader", &["service", "web"], is_throttled).await;
    let object = &answer["objects"][0];
    assert_eq!((&object["name"], &object["standing"]), (&json!("default/web"), &json!("waits")));
    let waits = object["waitsFor"].as_array().unwrap();
    let wait = waits.iter().find(|wait| wait["word"] == "ObjectRetries").expect("it is tried again");
    assert_eq!((&wait["what"], &wait["number"]), (&json!("seen"), &json!(60)));
    assert_eq!(wait["other"][0], "load balancer");
    assert!(wait["other"][1].as_str().unwrap().ends_with("/loadBalancers/kubernetes"), "{wait}");
    assert_eq!(answer["process"]["name"], "cloud-controllers");
    let leadership = &answer["process"]["leadership"];
    assert_eq!((&leadership["leads"], &leadership["holder"]), (&json!(true), &json!(holder)));
    assert!(answer["started"]["secondsAgo"].as_f64().unwrap() > 0.0);
    // What the load balancer itself waits for is beside it.
    let related = answer["related"].as_array().unwrap();
    let balancer = related.iter().find(|object| object["kind"] == "load balancer").expect("it is waited for");
    assert_eq!(balancer["waitsFor"][0]["word"], "AwaitsPause", "{balancer:#}");

    let output = world.why("leader", &["service", "default/web"]).await;
    let page = stdout(&output);
    assert!(output.status.success(), "{}", stderr(&output));
    for part in [
        "lazuli cloud-controllers",
        "it holds the Lease kube-system/cloud-controller-manager",
        "Service default/web waits since",
        "load balancer kubernetes: is tried again after 60 s: Azure gets too many requests",
        "asked    Kubernetes shows it, new or changed",
        "decided  patches it: adds the finalizer",
        "seen     public IP",
        "waits    objects of Azure",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert!(page.lines().all(|line| line.chars().count() <= 100), "{page}");
    // Neither Azure's message nor an annotation is in it.
    assert!(!page.contains("hunter2") && !answer.to_string().contains("hunter2"), "{page}");

    let standby = world.controllers("standby");
    let knows = |answer: &Value| {
        answer["process"]["leadership"]["holder"] == json!(holder)
            && waits_for(answer).iter().any(|wait| wait.contains("the Lease"))
    };
    world.answer("standby", &["service", "web"], knows).await;
    let page = stdout(&world.why("standby", &["service", "web"]).await);
    let joined = page.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(joined.contains(&format!("writes nothing; {holder} holds it: ask that process too")), "{page}");

    world.cluster.azure.control().clear_incidents();
    drop((leader, standby));
    world.cluster.azure.shutdown().await;
}

#[tokio::test]
async fn why_prints_hostile_names_without_what_a_terminal_obeys() {
    const EVIL: &str = "evil\u{1b}]0;pwned\u{7}\u{1b}[2J\r\n\u{9b}31m\u{202e}txt";
    const PRINTED: &str = "evil\\u{1b}]0;pwned\\u{7}\\u{1b}[2J\\r\\n\\u{9b}31m\\u{202e}txt";
    let world = World::start().await;
    // Whoever may write Leases chooses the name of a holder.
    let spec = json!({"holderIdentity": EVIL, "leaseDurationSeconds": 3_600, "leaseTransitions": 0});
    let metadata = json!({"name": "cloud-controller-manager", "namespace": "kube-system"});
    world.cluster.server.put("leases", json!({"metadata": metadata, "spec": spec})).unwrap();
    let _standby = world.controllers("standby");
    let is_seen = |answer: &Value| answer["process"]["leadership"]["holder"] == EVIL;
    world.answer("standby", &["service", EVIL], is_seen).await;
    // Who calls the driver chooses the id of a node.
    let (_process, client) = world.driver("why").await;
    let volume = create(&client, "pvc-1").await.unwrap();
    publish(&client, &volume, EVIL).await.unwrap_err();

    let is_harmless = |text: &str| text.chars().all(|char| char == '\n' || !(char.is_control() || char == '\u{202e}'));
    for (socket, words) in [
        ("standby", &["service", EVIL][..]),
        ("standby", &["service", EVIL, "--output=json"]),
        ("standby", &["disk", EVIL]),
        ("why", &["disk", "pvc-1"]),
        ("why", &["disk", "pvc-1", "--output=json"]),
        ("why", &["node", EVIL]),
        (EVIL, &["disk", "pvc-1"]),
    ] {
        let output = world.why(socket, words).await;
        assert!(is_harmless(&stdout(&output)) && is_harmless(&stderr(&output)), "{words:?}: {output:?}");
    }
    let joined = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let page = joined(stdout(&world.why("standby", &["service", "web"]).await));
    assert!(page.contains(&format!("writes nothing; {PRINTED} holds it")), "{page}");
    let page = joined(stdout(&world.why("why", &["disk", "pvc-1"]).await));
    assert!(page.contains(&format!("the attach to Node {PRINTED} is requested")), "{page}");
    world.cluster.azure.shutdown().await;
}

#[tokio::test]
async fn why_without_a_process_says_where_to_ask_and_of_another_user_nothing() {
    let world = World::start().await;
    let output = world.why("nowhere", &["disk", "pvc-1"]).await;
    assert_eq!(output.status.code(), Some(1));
    let text = stderr(&output);
    assert!(
        text.starts_with(&format!("lazuli: no process answers at {}", world.socket("nowhere").display())),
        "{text}"
    );
    assert!(
        text.contains("kubectl -n NAMESPACE exec deploy/lazuli-controller -c lazuli -- lazuli why disk NAME"),
        "{text}"
    );

    let _process = world.controllers("leader");
    world.answer("leader", &["service", "none"], |answer| !answer["process"].is_null()).await;
    let output = world.why("leader", &["service", "none"]).await;
    assert_eq!((output.status.code(), stderr(&output).trim()), (Some(1), "lazuli: nothing is known of this Service"));
    assert!(stdout(&output).contains("Its journal has nothing about Service none"), "{output:?}");
    let text = stderr(&world.why("leader", &["disk", "d"]).await);
    assert!(text.contains("cloud-controllers knows of Services, Nodes, and not of a disk"), "{text}");

    let socket = world.socket("leader");
    assert_eq!(std::fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o600);
    if nix::unistd::geteuid().is_root() {
        // The program itself may lie where nobody else may go.
        let program = world.folder.path().join("lazuli");
        std::fs::copy(PROGRAM, &program).unwrap();
        let ask = async || {
            let mut command = Command::new(&program);
            command.env_clear().args(["why", "service", "none"]).uid(NOBODY).gid(NOBODY);
            command.arg(format!("--socket={}", socket.display()));
            stderr(&command.output().await.unwrap())
        };
        assert!(ask().await.contains("belongs to another user"), "{}", ask().await);
        // Whatever the mode of the file says, the kernel names the caller.
        std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o666)).unwrap();
        assert!(ask().await.contains("it answers user 0 alone, and user 65534 asks"), "{}", ask().await);
    }
    world.cluster.azure.shutdown().await;
}

#[tokio::test]
async fn why_finds_a_disk_by_its_id_its_name_its_volume_and_its_claim() {
    let world = World::start().await;
    let (_process, client) = world.driver("why").await;
    let answer = world.answer("why", &["disk", "pvc-1"], |answer| !answer["process"].is_null()).await;
    let note = answer["process"]["notes"][0].as_str().unwrap();
    assert!(note.contains("No request about a disk has come since the start"), "{note}");
    assert!(note.contains("external-attacher-leader-disk-csi-azure-com"), "{note}");

    let volume = create(&client, "pvc-1").await.unwrap();
    let csi = json!({"driver": "disk.csi.azure.com", "volumeHandle": volume.volume_id});
    let pv = json!({"metadata": {"name": "pv-1"}, "spec": {"csi": csi}});
    world.cluster.server.put("persistentvolumes", pv).unwrap();
    let claim = |name: &str, volume: Value| {
        let metadata = json!({"name": name, "namespace": "db"});
        let claim = json!({"metadata": metadata, "spec": {"volumeName": volume}});
        world.cluster.server.put("persistentvolumeclaims", claim).unwrap();
    };
    claim("data-0", json!("pv-1"));
    claim("data-1", Value::Null);
    // Azure takes its time to answer a write of the machine.
    world.incident(json!({"match": {"method": "POST|PATCH|PUT", "path": "*/virtualMachines/*"},
        "then": {"delayMs": 300_000}, "times": 0}));
    let publishing = tokio::spawn(async move { publish(&client, &volume, "node-0").await });
    let id = disk_id("pvc-1");
    let is_asked = |answer: &Value| waits_for(answer) == ["the attach to Node node-0 is requested"];
    for name in ["pvc-1", &id, &id.to_uppercase(), "pv-1", "db/data-0"] {
        let answer = world.answer("why", &["disk", name], is_asked).await;
        assert_eq!(answer["objects"][0]["standing"], "waits", "{answer:#}");
        assert_eq!(answer["objects"].as_array().unwrap().len(), 1, "{answer:#}");
    }
    let page = stdout(&world.why("why", &["disk", "db/data-0"]).await);
    let joined = page.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        joined.contains("Claim db/data-0 has PersistentVolume pv-1; PersistentVolume pv-1 is the disk /subscr"),
        "{page}"
    );
    for part in ["done     the request is answered: done", "asked    the attach to Node node-0 is requested"] {
        assert!(page.contains(part), "{part}: {page}");
    }
    let pending = stdout(&world.why("why", &["disk", "db/data-1"]).await);
    let joined = pending.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        joined.contains("Claim db/data-1 has no PersistentVolume yet; its disk will have the name pvc-"),
        "{pending}"
    );
    let none = stdout(&world.why("why", &["disk", "db/data-2"]).await);
    assert!(none.contains("There is no PersistentVolumeClaim db/data-2."), "{none}");
    publishing.abort();
    world.cluster.azure.shutdown().await;
}
