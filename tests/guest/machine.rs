//! A guest of a test: a machine with Debian's kernel, without which nothing mounts SMB, made by `scripts/guest`.
//!
//! Tests measure no time. What a test waits for is an event, and the one clock is the guest's: it lives for [`LIFE`], and a
//! test that waits for something of a guest that has ended fails.

use std::{
    net::Ipv4Addr,
    path::{Path, PathBuf},
    process::Stdio,
    sync::{Arc, Mutex},
    time::Duration,
};

use http::Uri;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
    process::Command,
    sync::{oneshot, watch},
    time::Instant,
};
use tonic::transport::{Channel, Endpoint};

use super::wire;

/// How long a guest may live: what only a hang reaches, on a busy machine too.
const LIFE: Duration = Duration::from_secs(1_200);
/// How often a test looks whether what it waits for has come.
const LOOK: Duration = Duration::from_millis(20);
/// How long kubelet waits for a call, and so a test: what has no answer then is a defect of the program.
const KUBELET: Duration = Duration::from_secs(120);
/// The log of the node plugin.
pub(super) const NODE_LOG: &str = "/tmp/node.log";
/// The file with the number of its process.
const NODE_PID: &str = "/tmp/node.pid";
/// Whether it runs: a process that has ended has no program, also before its parent has noticed.
const NODE_RUNS: &str = "readlink /proc/$(cat /tmp/node.pid)/exe >/dev/null";
/// How many lines of the console a failure shows.
const SHOWN: usize = 60;

/// Whether this machine can run a guest and what it needs. Says why not; under `CI=true` that is a failure.
pub(super) fn able() -> bool {
    let folders = ["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/local/bin", "/usr/bin", "/bin"];
    let there = |program: &&str| folders.iter().any(|folder| Path::new(folder).join(program).exists());
    let needed = ["apt-get", "cpio", "modprobe", "qemu-system-x86_64", "setpriv", "strip"];
    let mut missing: Vec<&str> = needed.into_iter().filter(|program| !there(program)).collect();
    if !nix::unistd::geteuid().is_root() {
        missing.push("root");
    }
    if missing.is_empty() {
        return true;
    }
    let reason = missing.join(", ");
    eprintln!("SKIPPED, needs {reason}");
    assert!(std::env::var("CI").as_deref() != Ok("true"), "in CI nothing is skipped: needs {reason}");
    false
}

/// What a program in the guest did.
#[derive(Debug)]
pub(super) struct Output {
    /// The exit code; 128 and the signal's number after a signal.
    pub(super) code: i32,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

/// What a guest has besides the program under test.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Equipment<'a> {
    /// Other programs: where they are in the guest, and out here.
    pub(super) programs: &'a [(&'a str, &'a Path)],
    /// By what it reaches file servers.
    pub(super) storage: Storage,
    /// More words for the kernel's command line.
    pub(super) kernel: &'a str,
    /// By what an emulator plugs disks.
    pub(super) disks: Option<DataDisks<'a>>,
}

/// A SCSI controller of a guest's own for data disks.
#[derive(Debug, Clone, Copy)]
pub(super) struct DataDisks<'a> {
    /// Where QEMU serves the protocol by which disks are plugged.
    pub(super) socket: &'a Path,
    /// More properties of the controller, each after a comma.
    pub(super) properties: &'a str,
}

/// The network by which a guest reaches file servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Storage {
    /// The one over which its agent calls.
    #[default]
    Same,
    /// One of its own, which can be cut.
    Own,
}

impl Storage {
    /// The first three parts of the network's addresses.
    const fn prefix(self) -> &'static str {
        match self {
            Self::Same => "10.0.2",
            Self::Own => "10.0.3",
        }
    }
}

/// A running guest. It ends with this value, and with the process of the test, whatever ends that.
pub(super) struct Guest {
    listener: TcpListener,
    token: String,
    console: Arc<Mutex<Vec<String>>>,
    /// Why it has ended, when it has.
    ended: watch::Receiver<Option<String>>,
    /// Dropped: it is to end.
    stop: Option<oneshot::Sender<()>>,
    pid: Option<nix::unistd::Pid>,
    hosts: Mutex<u8>,
    storage: Storage,
    /// QEMU's own connection for orders.
    monitor: tokio::sync::Mutex<BufReader<TcpStream>>,
}

impl Guest {
    /// Boots one with the program under test in it, as `lazuli`, and waits until it is ready.
    pub(super) async fn boot() -> Self {
        Self::boot_with(Equipment::default()).await
    }

    /// The same, with more in it.
    pub(super) async fn boot_with(equipment: Equipment<'_>) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let orders = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let token = uuid::Uuid::new_v4().simple().to_string();
        let agent = format!("{}:{token}", listener.local_addr().unwrap().port());
        let mut child = command(&agent, equipment, orders.local_addr().unwrap().port()).spawn().unwrap();
        let console = Arc::new(Mutex::new(Vec::new()));
        let lines = BufReader::new(child.stdout.take().unwrap());
        let pid = child.id().map(|pid| nix::unistd::Pid::from_raw(i32::try_from(pid).unwrap()));
        let (stop, stopped) = oneshot::channel();
        let (end, ended) = watch::channel(None);
        tokio::spawn(keep(lines, Arc::clone(&console)));
        tokio::spawn(async move {
            let deadline = Instant::now() + LIFE;
            let why = tokio::select! {
                status = child.wait() => format!("it has ended: {status:?}"),
                _ = stopped => "the test has ended it".to_owned(),
                () = tokio::time::sleep_until(deadline) => format!("it ran for {LIFE:?}, which only a hang does"),
            };
            let _ = child.kill().await;
            let _ = end.send(Some(why));
        });
        let called = tokio::select! {
            called = orders.accept() => called.unwrap().0,
            why = over(&ended) => panic!("the guest is gone: {why}"),
        };
        let (monitor, storage) = (tokio::sync::Mutex::new(BufReader::new(called)), equipment.storage);
        let guest =
            Self { listener, token, console, ended, stop: Some(stop), pid, hosts: Mutex::new(100), storage, monitor };
        guest.order(json!({"execute": "qmp_capabilities"})).await;
        match storage {
            Storage::Same => guest.sh("true").await,
            Storage::Own => guest.sh("ip addr add 10.0.3.15/24 dev eth1; ip link set eth1 up").await,
        };
        guest
    }

    /// Cuts the network of the file servers, or joins it again. Packets are lost, and neither side is told.
    pub(super) async fn cut(&self, is_cut: bool) {
        assert_eq!(self.storage, Storage::Own, "the agent's network stays");
        self.order(json!({"execute": "set_link", "arguments": {"name": "storage", "up": !is_cut}})).await;
    }

    /// Gives QEMU an order, which it must carry out (source: the QEMU Machine Protocol).
    async fn order(&self, order: Value) {
        let mut monitor = self.monitor.lock().await;
        monitor.write_all(order.to_string().as_bytes()).await.unwrap();
        loop {
            let mut line = String::new();
            assert!(monitor.read_line(&mut line).await.unwrap() > 0, "QEMU has ended");
            let said: Value = serde_json::from_str(&line).unwrap();
            assert!(said["error"].is_null(), "{order}: {said}");
            // A greeting and events come in between.
            if !said["return"].is_null() {
                return;
            }
        }
    }

    /// Waits for what happens out here; panics when the guest ends meanwhile.
    pub(super) async fn meanwhile<T>(&self, work: impl Future<Output = T>) -> T {
        tokio::select! {
            done = work => done,
            why = over(&self.ended) => panic!("the guest is gone: {why}"),
        }
    }

    /// Waits until what a test sees out here is so; panics when the guest ends meanwhile.
    pub(super) async fn until(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        while !is_so() {
            let why = self.ended.borrow().clone();
            assert_eq!(why, None, "the guest is gone, and this is not so yet: {what}");
            tokio::time::sleep(LOOK).await;
        }
    }

    /// What its console has shown.
    fn console(&self) -> Vec<String> {
        self.console.lock().unwrap().clone()
    }

    /// Ends it, and waits until it has ended.
    pub(super) async fn stop(mut self) {
        drop(self.stop.take());
        let mut ended = self.ended.clone();
        ended.wait_for(Option::is_some).await.unwrap();
    }

    /// Sends a request, and gives the answer with the connection that brought it; panics when the guest ends meanwhile.
    async fn ask(&self, kind: u8, parts: &[&[u8]]) -> (TcpStream, Result<Vec<Vec<u8>>, String>) {
        let asked = async {
            let mut connection = self.next().await;
            connection.write_all(&wire::encode(kind, parts)).await.unwrap();
            let answer = read(&mut connection).await.unwrap();
            (connection, answer)
        };
        self.meanwhile(asked).await
    }

    /// The connection of the agent that waits for a request.
    async fn next(&self) -> TcpStream {
        loop {
            let (mut connection, _) = self.listener.accept().await.unwrap();
            connection.set_nodelay(true).unwrap();
            let mut token = vec![0; self.token.len()];
            if connection.read_exact(&mut token).await.is_ok() && token == self.token.as_bytes() {
                return connection;
            }
        }
    }

    /// Runs a program to its end.
    pub(super) async fn exec(&self, words: &[&str]) -> Output {
        let parts: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        let (_, answer) = self.ask(wire::EXEC, &parts).await;
        let answer = answer.unwrap_or_else(|why| panic!("{words:?}: {why}"));
        let text = |part: usize| String::from_utf8_lossy(&answer[part]).into_owned();
        Output { code: text(0).parse().unwrap(), stdout: text(1), stderr: text(2) }
    }

    /// Runs a shell's line, which must succeed, and gives what it printed.
    pub(super) async fn sh(&self, line: &str) -> String {
        let output = self.exec(&["/bin/sh", "-c", line]).await;
        assert!(output.code == 0, "{line}: {output:?}");
        output.stdout.trim_end().to_owned()
    }

    /// Writes a file.
    pub(super) async fn put(&self, path: &str, mode: u32, content: &[u8]) {
        let (_, answer) = self.ask(wire::PUT, &[path.as_bytes(), format!("{mode:o}").as_bytes(), content]).await;
        answer.unwrap_or_else(|why| panic!("{path}: {why}"));
    }

    /// Reads a file.
    pub(super) async fn get(&self, path: &str) -> Vec<u8> {
        let (_, answer) = self.ask(wire::GET, &[path.as_bytes()]).await;
        answer.unwrap_or_else(|why| panic!("{path}: {why}")).remove(0)
    }

    /// Connects to a unix socket in the guest.
    ///
    /// # Errors
    ///
    /// What the guest's kernel says.
    pub(super) async fn unix_socket(&self, path: &str) -> Result<TcpStream, String> {
        let (connection, answer) = self.ask(wire::UNIX, &[path.as_bytes()]).await;
        answer.map(|_| connection)
    }

    /// Starts a node plugin with these arguments, and gives a channel to the socket that it is to serve.
    pub(super) async fn start_node(&self, program: &str, arguments: &str, socket: &str) -> Channel {
        self.sh(&format!("{program} csi-node {arguments} >>{NODE_LOG} 2>&1 & echo $! >{NODE_PID}")).await;
        loop {
            match self.unix_socket(socket).await {
                Ok(connection) => return over_connection(connection).await,
                Err(_) if self.exec(&["/bin/sh", "-c", NODE_RUNS]).await.code == 0 => tokio::time::sleep(LOOK).await,
                Err(why) => panic!("{socket}: {why}: {}", self.node_log().await),
            }
        }
    }

    /// Ends the node plugin as Kubernetes does, and waits until it has ended.
    pub(super) async fn stop_node(&self) {
        self.sh(&format!("kill $(cat {NODE_PID}); while {NODE_RUNS}; do sleep 0.05; done")).await;
    }

    /// What the node plugin has logged.
    pub(super) async fn node_log(&self) -> String {
        String::from_utf8_lossy(&self.get(NODE_LOG).await).into_owned()
    }

    /// Leads a host's name and port in the guest to a port of the loopback interface outside. Packets get another
    /// address and port, and nothing else: a port on which nobody listens refuses connections.
    pub(super) async fn reach(&self, name: &str, port: u16, outside: u16) {
        let host = {
            let mut hosts = self.hosts.lock().unwrap();
            *hosts += 1;
            // Another address of the network that QEMU makes up, for each name.
            format!("{}.{hosts}", self.storage.prefix())
        };
        self.sh(&format!("echo '{host} {name}' >> /etc/hosts")).await;
        let gateway = format!("{}.2", self.storage.prefix());
        // The kernel's SMB client tries another port when this one refuses: nobody answers there either.
        let rule = format!(
            "add table ip test; add chain ip test out {{ type nat hook output priority -100; }}; \
             add rule ip test out ip daddr {host} tcp dport {port} dnat to {gateway}:{outside}; \
             add chain ip test rest {{ type filter hook output priority 0; }}; \
             add rule ip test rest ip daddr {host} reject with tcp reset"
        );
        let output = self.exec(&["nft", &rule]).await;
        assert!(output.code == 0, "{rule}: {output:?}");
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        if self.ended.borrow().is_none()
            && let Some(pid) = self.pid
        {
            // Not reaped yet, so the number is still its own.
            let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
        }
        if std::thread::panicking() {
            let console = self.console();
            eprintln!(
                "--- the end of the guest's console\n{}",
                console[console.len().saturating_sub(SHOWN)..].join("\n")
            );
        }
    }
}

async fn over_connection(connection: TcpStream) -> Channel {
    let mut connection = Some(connection);
    let connector = tower::service_fn(move |_: Uri| {
        let connection = connection.take().map(TokioIo::new);
        async move { connection.ok_or_else(|| std::io::Error::other("the connection to the guest has ended")) }
    });
    Endpoint::from_static("http://guest").timeout(KUBELET).connect_with_connector(connector).await.unwrap()
}

/// A program of these tests, which cargo puts beside the others.
pub(super) fn example(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_BIN_EXE_lazuli")).parent().unwrap().join("examples").join(name);
    assert!(path.exists(), "no {}: cargo test builds it", path.display());
    path
}

/// The script that becomes QEMU. Until then it takes away what it has made when this process ends; QEMU just ends.
fn command(agent: &str, equipment: Equipment<'_>, orders: u16) -> Command {
    let program = Path::new(env!("CARGO_BIN_EXE_lazuli"));
    let own = example("guest-agent");
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "TERM", "bash", "scripts/guest", "boot", "--agent", agent]);
    let usual = [("/bin/agent", &*own), ("/bin/lazuli", program)];
    for (inside, outside) in usual.iter().chain(equipment.programs) {
        command.args(["--file", &format!("{inside}={}", outside.display())]);
    }
    command
        .args(["--kernel", equipment.kernel])
        .args(["--", "-mon", "chardev=orders,mode=control"])
        .args(["-chardev", &format!("socket,id=orders,host=127.0.0.1,port={orders},server=off")]);
    if equipment.storage == Storage::Own {
        // Between the guest's device and QEMU's network is a hub: when the network is cut, the device keeps its carrier.
        let network = format!("user,id=storage,net={}.0/24", Storage::Own.prefix());
        command.args(["-netdev", &network, "-netdev", "hubport,id=outside,hubid=0,netdev=storage"]).args([
            "-netdev",
            "hubport,id=inside,hubid=0",
            "-device",
            "virtio-net-pci,netdev=inside,romfile=",
        ]);
    }
    if let Some(DataDisks { socket, properties }) = equipment.disks {
        command
            .args(["-chardev", &format!("socket,id=disks,path={},server=on,wait=off", socket.display())])
            .args(["-mon", "chardev=disks,mode=control"])
            .args(["-device", &format!("virtio-scsi-pci,id=lazuli{properties}")]);
    }
    command
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .kill_on_drop(true);
    command
}

/// Waits until a guest has ended, and gives why.
async fn over(ended: &watch::Receiver<Option<String>>) -> String {
    let mut ended = ended.clone();
    let why = ended.wait_for(Option::is_some).await.ok().and_then(|why| why.clone());
    why.unwrap_or_default()
}

async fn keep(lines: impl tokio::io::AsyncBufRead + Unpin, console: Arc<Mutex<Vec<String>>>) {
    let mut lines = lines.split(b'\n');
    while let Ok(Some(line)) = lines.next_segment().await {
        console.lock().unwrap().push(String::from_utf8_lossy(&line).trim_end().to_owned());
    }
}

async fn read(connection: &mut TcpStream) -> std::io::Result<Result<Vec<Vec<u8>>, String>> {
    let kind = connection.read_u8().await?;
    let mut parts = Vec::new();
    for _ in 0..connection.read_u32().await? {
        let mut part = vec![0; connection.read_u32().await? as usize];
        connection.read_exact(&mut part).await?;
        parts.push(part);
    }
    Ok(match kind {
        wire::DONE => Ok(parts),
        wire::FAILED => Err(String::from_utf8_lossy(&parts[0]).into_owned()),
        other => Err(format!("the agent answers with the kind {other}")),
    })
}
