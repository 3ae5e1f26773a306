//! The cluster that a person starts with `scripts/cluster`, used as its own words say, and what is left of it.

#![expect(clippy::unwrap_used, reason = "a test fails where it unwraps")]

use std::{
    collections::BTreeSet,
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::{Duration, Instant},
};

use lazuli_test_cluster::{
    place::Place,
    process::{mount_lines, run},
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

/// How long a person waits for a step of the example, on a busy machine too.
const PATIENCE: &str = "--timeout=120s";

/// The programs that the tests run on: lazuli and the folder of the Go programs. `None` where they cannot run.
fn programs() -> Option<[PathBuf; 2]> {
    let named = ["LAZULI_BIN", "LAZULI_CLUSTER_TOOLS"].map(|name| std::env::var_os(name).map(PathBuf::from));
    let reason = match named {
        _ if !nix::unistd::geteuid().is_root() => "root",
        [Some(lazuli), Some(tools)] => return Some([lazuli, tools]),
        _ => "the programs that LAZULI_BIN and LAZULI_CLUSTER_TOOLS name; scripts/test cluster makes them",
    };
    eprintln!("SKIPPED, needs {reason}");
    assert!(std::env::var("CI").as_deref() != Ok("true"), "in CI nothing is skipped: needs {reason}");
    None
}

/// A person at this machine, with a folder for a cluster. What is left of the cluster goes with it.
struct Person {
    place: Place,
    programs: [PathBuf; 2],
}

impl Person {
    fn new(programs: [PathBuf; 2]) -> Self {
        let name = format!("lazuli-c-{}", &uuid::Uuid::new_v4().simple().to_string()[..8]);
        Self { place: Place::new(&std::env::temp_dir().join(name)).unwrap(), programs }
    }

    fn asks(&self, command: &str) -> Output {
        let mut line = Command::new(env!("CARGO_BIN_EXE_lazuli-test-cluster"));
        line.args(command.split(' ')).arg("--folder").arg(self.place.path());
        if command == "up" {
            line.arg("--lazuli").arg(&self.programs[0]).arg("--tools").arg(&self.programs[1]);
        }
        line.output().unwrap()
    }

    /// What a command prints that succeeds.
    fn says(&self, command: &str) -> String {
        let output = self.asks(command);
        assert!(output.status.success(), "{command}: {output:#?}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn kubectl_with(&self, arguments: &[&str], input: &str) -> Output {
        let mut child = Command::new(self.place.programs().join("kubectl"))
            .args(arguments)
            .env("KUBECONFIG", self.place.kubeconfig())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    }

    /// What kubectl prints when it succeeds.
    fn kubectl(&self, arguments: &[&str]) -> String {
        let output = self.kubectl_with(arguments, "");
        assert!(output.status.success(), "kubectl {arguments:?}: {output:#?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// A value of an object, once it is there.
    fn value(&self, object: &str, path: &str) -> String {
        let path = format!("jsonpath={{{path}}}");
        self.kubectl(&["wait", object, &format!("--for={path}"), PATIENCE]);
        self.kubectl(&["get", object, "--output", &path])
    }
}

impl Drop for Person {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- the supervisor's log\n{}", fs::read_to_string(self.place.log()).unwrap_or_default());
        }
        let _ = self.asks("down");
    }
}

/// A process that cannot be taken for another one of its id: the id, and when it began (source: proc_pid_stat(5)).
type Life = (i32, String);

fn life(pid: i32) -> Option<(Life, i32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    (fields[0] != "Z").then(|| ((pid, fields[19].to_owned()), fields[1].parse().unwrap()))
}

fn lives() -> Vec<(Life, i32)> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|entry| life(entry.file_name().to_str()?.parse().ok()?)).collect()
}

/// A process and all that descend from it.
fn with_descendants(root: i32) -> BTreeSet<Life> {
    let all = lives();
    let mut found: BTreeSet<Life> =
        all.iter().filter(|(life, _)| life.0 == root).map(|(life, _)| life.clone()).collect();
    loop {
        let ids: BTreeSet<i32> = found.iter().map(|life| life.0).collect();
        let more = all.iter().filter(|(_, parent)| ids.contains(parent)).map(|(life, _)| life.clone());
        let before = found.len();
        found.extend(more);
        if found.len() == before {
            return found;
        }
    }
}

/// The names of this machine's network devices.
fn links() -> BTreeSet<String> {
    let entries = fs::read_dir("/sys/class/net").unwrap().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

fn mounts_below(folder: &Path) -> Vec<PathBuf> {
    mount_lines().into_iter().map(|line| line.target).filter(|target| target.starts_with(folder)).collect()
}

fn page_at(address: &str) -> String {
    let address = address.strip_prefix("http://").unwrap().trim_end_matches('/');
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET / HTTP/1.1\r\nHost: {address}\r\nAccept: text/html\r\nConnection: close\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    page
}

/// What `up` names to try.
fn try_the_example(person: &Person) {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("example.yaml");
    person.kubectl(&["apply", "--filename", example.to_str().unwrap()]);
    person.kubectl(&["wait", "--for=condition=Ready", "pod/writer", PATIENCE]);
    assert_eq!(person.value("pvc/data", ".status.phase"), "Bound");
    assert!(!person.kubectl(&["exec", "writer", "--", "cat", "/data/letter"]).is_empty());
    assert_eq!(person.kubectl(&["logs", "writer"]), "wrote /data/letter");
    let address = person.value("service/web", ".status.loadBalancer.ingress[0].ip");
    assert!(address.parse::<std::net::Ipv4Addr>().is_ok(), "{address}");

    // Input, both outputs and the exit code of a program in a container, which is in the container's namespaces.
    let script = "read line; echo \"$line\"; echo aside >&2; hostname; readlink /proc/1/exe; exit 3";
    let output = person.kubectl_with(&["exec", "--stdin", "writer", "--", "sh", "-c", script], "a line\n");
    let printed = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = printed.lines().collect();
    assert_eq!(lines[..2], ["a line", "writer"], "{printed}");
    assert!(lines[2].ends_with("/sleep"), "{printed}");
    let aside = String::from_utf8(output.stderr).unwrap();
    assert!(aside.starts_with("aside\n") && aside.contains("exit code 3"), "{aside}");
    assert_eq!(output.status.code(), Some(3));
    let absent = person.kubectl_with(&["exec", "writer", "--", "no-such-program"], "");
    assert!(String::from_utf8_lossy(&absent.stderr).contains("no-such-program"), "{absent:?}");
}

/// A pod runs on a node that is added, and is evicted when that is removed.
fn add_and_remove_a_node(person: &Person) {
    assert_eq!(person.says("node add"), "node-2 is ready.\n");
    let on_the_new_node = r#"{"spec": {"nodeSelector": {"kubernetes.io/hostname": "node-2"}, "containers": [
        {"name": "c", "image": "shell", "imagePullPolicy": "IfNotPresent"}]}}"#;
    person.kubectl(&["run", "guest", "--image=shell", "--overrides", on_the_new_node]);
    person.kubectl(&["wait", "--for=condition=Ready", "pod/guest", PATIENCE]);
    assert_eq!(person.kubectl(&["exec", "guest", "--", "hostname"]), "guest");
    assert_eq!(person.says("node remove node-2"), "node-2 is gone.\n");
    assert_eq!(person.kubectl(&["get", "nodes", "--output=name"]), "node/node-0\nnode/node-1");
    let refused = person.asks("node remove node-2");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("its nodes are node-0, node-1"), "{refused:?}");
}

#[test]
fn a_person_starts_a_cluster_and_uses_it_and_nothing_is_left_of_one_whose_supervisor_was_killed() {
    let Some(programs) = programs() else { return };
    let links_before = links();
    let person = Person::new(programs);
    let place = &person.place;
    let began = Instant::now();
    let said = person.says("up");
    println!("the cluster served after {:.1} s", began.elapsed().as_secs_f64());
    assert!(said.contains(place.kubeconfig().to_str().unwrap()), "{said}");
    // An administrator of the cluster is root on this machine.
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(place.path()), mode(&place.kubeconfig())), (0o700, 0o600));
    for step in ["API server", "nodes", "chart"] {
        assert!(said.contains(step), "{said}");
    }
    let page = said.split_whitespace().find(|word| word.starts_with("http://127.0.0.1:")).expect("the page's address");
    assert!(page_at(page).contains("<html"), "the page");
    try_the_example(&person);
    println!("a pod had written after {:.1} s", began.elapsed().as_secs_f64());

    let said = person.says("status");
    assert!(said.contains("Kubernetes v1.") && said.contains("node-1") && said.contains(page), "{said}");
    assert!(person.says("up").contains("runs already"));

    add_and_remove_a_node(&person);

    // There is something that can be left.
    assert!(!place.loops().unwrap().is_empty(), "no disk is attached");
    let supervisor: i32 = fs::read_to_string(place.pid()).unwrap().trim().parse().unwrap();
    let processes = with_descendants(supervisor);
    assert!(processes.len() > 10, "{processes:?}");
    kill(Pid::from_raw(supervisor), Signal::SIGKILL).unwrap();
    person.says("down");

    let now: BTreeSet<Life> = lives().into_iter().map(|(life, _)| life).collect();
    assert_eq!(processes.intersection(&now).collect::<Vec<_>>(), Vec::<&Life>::new(), "processes are left");
    assert_eq!(place.loops().unwrap(), Vec::<String>::new());
    assert!(!run("losetup", &["--list"]).contains(place.path().to_str().unwrap()), "loop devices are left");
    assert_eq!(mounts_below(place.path()), Vec::<PathBuf>::new());
    assert_eq!(links(), links_before);
    assert!(!place.path().exists());
    let nothing = person.asks("status");
    assert!(!nothing.status.success() && String::from_utf8_lossy(&nothing.stderr).contains("no cluster runs"));
    person.says("down");
}

#[test]
fn a_start_that_fails_says_why_and_leaves_no_process() {
    let Some([_, tools]) = programs() else { return };
    let person = Person::new(["/bin/false".into(), tools]);
    let began = Instant::now();
    let output = person.asks("up");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("the emulator has ended"), "{said}");
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    assert_eq!(person.place.supervisors(), []);
}
