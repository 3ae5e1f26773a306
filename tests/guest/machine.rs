//! A guest of a test: a machine with Debian's kernel, without which nothing mounts SMB, made by `scripts/guest`.

use std::{
    net::Ipv4Addr,
    path::Path,
    process::Stdio,
    sync::{Arc, Mutex},
    time::Duration,
};

use http::Uri;
use hyper_util::rt::TokioIo;
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
const LIFE: Duration = Duration::from_secs(300);
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
}

impl Guest {
    /// Boots one with the program under test in it, as `lazuli`, and waits until it is ready.
    pub(super) async fn boot() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let token = uuid::Uuid::new_v4().simple().to_string();
        let agent = format!("{}:{token}", listener.local_addr().unwrap().port());
        let program = Path::new(env!("CARGO_BIN_EXE_lazuli"));
        // cargo puts examples beside the programs.
        let own = program.parent().unwrap().join("examples/guest-agent");
        assert!(own.exists(), "no agent at {}: cargo test builds it", own.display());
        // The script becomes QEMU. Until then it takes away what it has made when this process ends; QEMU just ends.
        let mut child = Command::new("setpriv")
            .args(["--pdeathsig", "TERM", "bash", "scripts/guest", "boot", "--agent", &agent])
            .args(["--file", &format!("/bin/agent={}", own.display())])
            .args(["--file", &format!("/bin/lazuli={}", program.display())])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
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
        let guest = Self { listener, token, console, ended, stop: Some(stop), pid, hosts: Mutex::new(100) };
        guest.sh("true").await;
        guest
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
        let mut ended = self.ended.clone();
        let end = async { ended.wait_for(Option::is_some).await.ok().and_then(|why| why.clone()) };
        let asked = async {
            let mut connection = self.next().await;
            connection.write_all(&wire::encode(kind, parts)).await.unwrap();
            let answer = read(&mut connection).await.unwrap();
            (connection, answer)
        };
        tokio::select! {
            answered = asked => answered,
            why = end => panic!("the guest is gone: {}", why.unwrap_or_default()),
        }
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

    /// A channel for gRPC over one connection to a unix socket in the guest.
    pub(super) async fn channel(&self, path: &str) -> Channel {
        let mut connection = Some(self.unix_socket(path).await.unwrap_or_else(|why| panic!("{path}: {why}")));
        let connector = tower::service_fn(move |_: Uri| {
            let connection = connection.take().map(TokioIo::new);
            async move { connection.ok_or_else(|| std::io::Error::other("the connection to the guest has ended")) }
        });
        Endpoint::from_static("http://guest").connect_with_connector(connector).await.unwrap()
    }

    /// Leads a host's name and port in the guest to a port of the loopback interface outside. Packets get another
    /// address and port, and nothing else: a port on which nobody listens refuses connections.
    pub(super) async fn reach(&self, name: &str, port: u16, outside: u16) {
        let host = {
            let mut hosts = self.hosts.lock().unwrap();
            *hosts += 1;
            // Another address of the network that QEMU makes up, for each name.
            format!("10.0.2.{hosts}")
        };
        self.sh(&format!("echo '{host} {name}' >> /etc/hosts")).await;
        // The kernel's SMB client tries another port when this one refuses: nobody answers there either.
        let rule = format!(
            "add table ip test; add chain ip test out {{ type nat hook output priority -100; }}; \
             add rule ip test out ip daddr {host} tcp dport {port} dnat to 10.0.2.2:{outside}; \
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
