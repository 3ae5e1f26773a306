//! What a person asks for: `up`, `status` and `down`.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs::{self, File},
    io::{self, Write as _},
    os::unix::{fs::DirBuilderExt as _, fs::symlink, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use nix::sys::signal::{Signal, kill};
use serde_json::Value;

use crate::{
    cluster::{PODS_OF_THE_CHART, is_ready},
    place::{MARKER, Place, read_json},
    process::{Stat, mount_lines, processes},
};

/// How often a wait looks.
const LOOK: Duration = Duration::from_millis(50);
/// How long killed processes, and loop devices that were detached, may take to be gone.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long an API server may take to answer `status`.
const ANSWER: Duration = Duration::from_secs(10);
/// What the commands need of this machine, and the packages of Debian that have it.
const PROGRAMS: [(&str, &str); 6] = [
    ("unshare", "util-linux"),
    ("losetup", "util-linux"),
    ("blkid", "util-linux"),
    ("ip", "iproute2"),
    ("mkfs.ext4", "e2fsprogs"),
    ("mkfs.xfs", "xfsprogs"),
];

/// Why a command failed, in words for a person.
#[derive(Debug)]
pub struct Failure(pub(crate) String);

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failure {}

/// Prints at once. A reader that has left is no failure of the command.
pub(crate) fn say(text: &str) {
    let mut output = io::stdout();
    let _ = output.write_all(text.as_bytes()).and_then(|()| output.flush());
}

pub(crate) fn failure<T>(words: impl Into<String>) -> Result<T, Failure> {
    Err(Failure(words.into()))
}

/// Says what could not be done with a file.
pub(crate) fn on(path: &Path) -> impl Fn(io::Error) -> Failure {
    let path = path.to_owned();
    move |error| Failure(format!("{}: {error}", path.display()))
}

/// What the new namespaces, mounts and loop devices need, in words; `None` where all is there.
fn lacking(is_root: bool, has: impl Fn(&str) -> bool, has_loops: bool) -> Option<String> {
    if !is_root {
        return Some("it makes namespaces, mounts and loop devices: run it as root, such as with sudo".to_owned());
    }
    if !has_loops {
        return Some("there is no /dev/loop-control: load the kernel's module loop".to_owned());
    }
    let missing: Vec<String> =
        PROGRAMS.iter().filter(|(name, _)| !has(name)).map(|(name, of)| format!("{name} (Debian: {of})")).collect();
    (!missing.is_empty()).then(|| format!("not installed: {}", missing.join(", ")))
}

fn check_machine() -> Result<(), Failure> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let has = |program: &str| std::env::split_paths(&path).any(|folder| folder.join(program).exists());
    let is_root = nix::unistd::geteuid().is_root();
    match lacking(is_root, has, Path::new("/dev/loop-control").exists()) {
        Some(words) => failure(words),
        None => Ok(()),
    }
}

/// Starts a cluster in the background and waits until it serves; says what it is and what to try. One that runs already is
/// left alone.
///
/// # Errors
/// The machine lacks something, or the cluster does not start.
pub fn up(place: &Place, lazuli: &Path, tools: &Path) -> Result<(), Failure> {
    check_machine()?;
    let began = Instant::now();
    if !place.supervisors().is_empty() {
        let Some(addresses) = read_json(&place.addresses()) else {
            return failure(format!("a cluster is being started in {}", place.path().display()));
        };
        say(&format!("The cluster runs already.\n{}", introduction(place, &addresses)));
        return Ok(());
    }
    if place.path().exists() {
        down(place)?;
    }
    fs::DirBuilder::new().recursive(true).mode(0o700).create(place.path()).map_err(on(place.path()))?;
    // For the kubelet's plugins and tests of this folder: nobody else on this machine looks into it.
    fs::create_dir(place.programs()).map_err(on(&place.programs()))?;
    symlink(tools.join("kubernetes"), place.programs().join("kubectl")).map_err(on(&place.programs()))?;
    let mut supervisor = supervise(place, lazuli, tools)?;
    follow(place, &mut supervisor, began)?;
    let addresses = read_json(&place.addresses()).unwrap_or_default();
    say(&format!("The cluster serves after {} s.\n{}", began.elapsed().as_secs(), introduction(place, &addresses)));
    Ok(())
}

/// Starts this program as the supervisor, in a session of its own.
fn supervise(place: &Place, lazuli: &Path, tools: &Path) -> Result<Child, Failure> {
    let myself = std::env::current_exe().map_err(|error| Failure(format!("this program's own path: {error}")))?;
    let log = File::options().create(true).append(true).open(place.log()).map_err(on(&place.log()))?;
    let errors = log.try_clone().map_err(on(&place.log()))?;
    let mut command = Command::new("unshare");
    // Mounts of this machine come and go there too; none goes back.
    command.args(["--pid", "--mount", "--propagation", "slave", "--fork", "--kill-child", "--mount-proc", "--"]);
    command.arg(myself).arg("serve").arg("--folder").arg(place.path());
    command.arg("--lazuli").arg(lazuli).arg("--tools").arg(tools).env(MARKER, place.path());
    // What a person types at this terminal, such as Ctrl-C, is not for it.
    command.stdin(Stdio::null()).stdout(log).stderr(errors).process_group(0);
    command.spawn().map_err(|error| Failure(format!("unshare: {error}")))
}

/// Prints each step as it is made, until the cluster serves.
fn follow(place: &Place, supervisor: &mut Child, began: Instant) -> Result<(), Failure> {
    let mut printed = 0;
    loop {
        let ends = supervisor.try_wait().map_err(|error| Failure(format!("the supervisor: {error}")))?;
        let serves = place.addresses().exists();
        let steps = fs::read_to_string(place.steps()).unwrap_or_default();
        // The last line may be half written.
        for step in steps.split_inclusive('\n').skip(printed).filter(|step| step.ends_with('\n')) {
            say(&format!("{:4} s  {step}", began.elapsed().as_secs()));
            printed += 1;
        }
        if !place.pid().exists() {
            write_pid(place, supervisor.id());
        }
        if let Some(status) = ends {
            let said = fs::read_to_string(place.failure()).or_else(|_| fs::read_to_string(place.log()));
            return failure(format!(
                "the cluster did not start: {}\nIts supervisor has ended with {status}; all of its log: {}",
                shortened(&said.unwrap_or_default(), 20),
                place.log().display(),
            ));
        }
        if serves {
            return Ok(());
        }
        std::thread::sleep(LOOK);
    }
}

/// The first process of the namespace, which is the child of `unshare`.
fn write_pid(place: &Place, unshare: u32) {
    let parent = i32::try_from(unshare).ok();
    let child = processes().find(|pid| Stat::of(*pid).map(|stat| stat.parent) == parent);
    if let Some(pid) = child {
        let _ = fs::write(place.pid(), format!("{pid}\n"));
    }
}

/// The first line and the last ones of a text.
fn shortened(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.trim_end().lines().collect();
    match lines.len().checked_sub(count + 1) {
        None | Some(0) => lines.join("\n"),
        Some(_) => [&lines[..1], &["…"], &lines[lines.len() - count..]].concat().join("\n"),
    }
}

/// What a person needs of a cluster that serves.
fn introduction(place: &Place, addresses: &Value) -> String {
    let address = |name: &str| addresses[name].as_str().unwrap_or("?").to_owned();
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("example.yaml");
    let mut text = String::new();
    let kubeconfig = place.kubeconfig();
    let _ = writeln!(text, "  kubeconfig  {}", kubeconfig.display());
    let _ = writeln!(text, "  API server  {}", address("apiServer"));
    let _ = writeln!(text, "  page        {}", address("page"));
    let _ = writeln!(
        text,
        "Try, after: export KUBECONFIG={} PATH={}:$PATH",
        kubeconfig.display(),
        place.programs().display()
    );
    let _ = writeln!(text, "  kubectl apply -f {}", example.display());
    let _ = writeln!(text, "  kubectl get pods,pvc,services --watch");
    let _ = writeln!(text, "  kubectl exec writer -- cat /data/letter");
    text
}

/// Says what runs.
///
/// # Errors
/// No cluster runs, or its API server does not answer.
pub async fn status(place: &Place) -> Result<(), Failure> {
    if place.supervisors().is_empty() {
        let left = if place.is_used() { "; what is left of one goes with: scripts/cluster down" } else { "" };
        return failure(format!("no cluster runs in {}{left}", place.path().display()));
    }
    let Some(addresses) = read_json(&place.addresses()) else {
        return failure(format!("the cluster in {} is being started", place.path().display()));
    };
    let asked = tokio::time::timeout(ANSWER, ask(place)).await;
    let [version, nodes, pods] =
        asked.map_err(|_| Failure(format!("the API server does not answer within {ANSWER:?}")))??;
    say(&format!("{}{}", introduction_of_running(&version, &nodes, &pods), introduction(place, &addresses)));
    Ok(())
}

/// The version of Kubernetes, its nodes and the chart's pods.
async fn ask(place: &Place) -> Result<[Value; 3], Failure> {
    let no_answer = |error: &dyn std::error::Error| Failure(format!("the API server: {error}"));
    let kubeconfig = place.kubeconfig();
    let client =
        lazuli_cluster::connect(Some(&kubeconfig), &BTreeMap::new()).await.map_err(|error| no_answer(&error))?;
    let client = client.ok_or_else(|| Failure(format!("{} names no cluster", kubeconfig.display())))?;
    let mut answers = [Value::Null, Value::Null, Value::Null];
    for (answer, path) in answers.iter_mut().zip(["/version", "/api/v1/nodes", PODS_OF_THE_CHART]) {
        let request = http::Request::get(path).body(Vec::new()).map_err(|error| no_answer(&error))?;
        *answer = client.request(request).await.map_err(|error| no_answer(&error))?;
    }
    Ok(answers)
}

fn introduction_of_running(version: &Value, nodes: &Value, pods: &Value) -> String {
    let of = |list: &Value| list["items"].as_array().cloned().unwrap_or_default();
    let mut text = format!("Kubernetes {} runs.\n", version["gitVersion"].as_str().unwrap_or("?"));
    for node in of(nodes) {
        let (name, kubelet) = (&node["metadata"]["name"], &node["status"]["nodeInfo"]["kubeletVersion"]);
        let ready = if is_ready(&node) { "ready" } else { "not ready" };
        let (name, kubelet) = (name.as_str().unwrap_or("?"), kubelet.as_str().unwrap_or("?"));
        let _ = writeln!(text, "  {name:10}  {ready}, kubelet {kubelet}");
    }
    let pods = of(pods);
    let ready = pods.iter().filter(|pod| is_ready(pod)).count();
    let _ = writeln!(text, "  chart       {ready} of {} pods are ready", pods.len());
    text
}

/// Ends a cluster, and removes what is left of one whose supervisor is gone. Succeeds when there is none.
///
/// # Errors
/// Something of it stays: a process, a mount, a loop device or a file.
pub fn down(place: &Place) -> Result<(), Failure> {
    check_machine()?;
    if !place.path().exists() && place.supervisors().is_empty() {
        return Ok(());
    }
    if !place.is_used() && place.supervisors().is_empty() && has_entries(place.path()) {
        return failure(format!("{} is not empty, and no cluster made it: nothing is removed", place.path().display()));
    }
    let supervisors = place.supervisors();
    for supervisor in &supervisors {
        let _ = kill(*supervisor, Signal::SIGKILL);
    }
    // The first process of a namespace is gone after all others of it, and of the namespaces in it.
    let runs = |pid: i32| Stat::of(pid).is_some_and(|stat| !matches!(stat.state, 'Z' | 'X'));
    wait("the end of the cluster's processes", || supervisors.iter().all(|pid| !runs(pid.as_raw())))?;
    let list = || place.loops().map_err(|error| Failure(format!("losetup: {error}")));
    let began = Instant::now();
    loop {
        let devices = list()?;
        if devices.is_empty() {
            break;
        }
        if began.elapsed() > PATIENCE {
            return failure(format!("loop devices stay: {}", devices.join(", ")));
        }
        for device in devices {
            // One that is still mounted in a namespace that ends is detached with its last use.
            let _ = Command::new("losetup").arg("--detach").arg(&device).stderr(Stdio::null()).status();
        }
        std::thread::sleep(LOOK);
    }
    let mounts: Vec<PathBuf> = mount_lines().into_iter().map(|line| line.target).collect();
    if let Some(mount) = mounts.iter().find(|mount| mount.starts_with(place.path())) {
        return failure(format!("{} is mounted, and not by the cluster: unmount it first", mount.display()));
    }
    match fs::remove_dir_all(place.path()) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(on(place.path())(error)),
        _ => Ok(()),
    }
}

fn has_entries(folder: &Path) -> bool {
    fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some())
}

fn wait(what: &str, holds: impl Fn() -> bool) -> Result<(), Failure> {
    let began = Instant::now();
    while !holds() {
        if began.elapsed() > PATIENCE {
            return failure(format!("{what}: not within {} s", PATIENCE.as_secs()));
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_the_machine_lacks_is_said_with_what_to_do() {
        let all = |_: &str| true;
        assert_eq!(lacking(true, all, true), None);
        assert!(lacking(false, all, true).unwrap().contains("run it as root"));
        assert!(lacking(true, all, false).unwrap().contains("module loop"));
        let none_of_ip = lacking(true, |name| name != "ip", true);
        assert_eq!(none_of_ip.unwrap(), "not installed: ip (Debian: iproute2)");
    }

    #[test]
    fn a_long_failure_keeps_its_first_line_and_its_last_ones() {
        assert_eq!(shortened("", 2), "");
        assert_eq!(shortened("why\na\nb\n", 2), "why\na\nb");
        assert_eq!(shortened("why\na\nb\nc\n", 2), "why\n…\nb\nc");
    }

    #[test]
    fn down_leaves_a_folder_alone_that_no_cluster_made() {
        let folder = std::env::temp_dir().join(format!("lazuli-no-cluster-{}", uuid::Uuid::new_v4().simple()));
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("letter"), "mine").unwrap();
        let outcome = down(&Place::new(&folder).unwrap());
        assert!(outcome.is_err());
        assert_eq!(fs::read_to_string(folder.join("letter")).unwrap(), "mine");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn status_names_version_nodes_and_pods() {
        let ready =
            |is: &str| json!({"conditions": [{"type": "Ready", "status": is}], "nodeInfo": {"kubeletVersion": "v1"}});
        let object = |name: &str, is: &str| json!({"metadata": {"name": name}, "status": ready(is)});
        let nodes = json!({"items": [object("node-0", "True"), object("node-1", "False")]});
        let pods = json!({"items": [object("a", "True"), object("b", "False")]});
        let text = introduction_of_running(&json!({"gitVersion": "v1"}), &nodes, &pods);
        assert_eq!(
            text,
            "Kubernetes v1 runs.\n  node-0      ready, kubelet v1\n  node-1      not ready, kubelet v1\n  \
             chart       1 of 2 pods are ready\n"
        );
    }
}
