//! `lazuli emulator --smb samba` as a process: what a kill leaves, and what the next start finds.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::{
    folder::{Folder, samba_programs},
    machine::able,
};

/// The watchdog of this test, which has no guest: what only a hang reaches, on a busy machine too.
const LIFE: Duration = Duration::from_secs(1_200);
const SHARE: &str = "/fileServices/default/shares/data";

/// The program, running.
struct Process {
    child: Child,
    address: String,
}

fn command(folder: &Folder, state: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lazuli"));
    command
        .args(["emulator", "--listen", "127.0.0.1:0", "--output", "json", "--no-throttling", "--accept-any-token"])
        .arg("--state")
        .arg(folder.path().join(state))
        .args(["--smb", "samba", "--smb-root"])
        .arg(folder.smb())
        .arg("--smb-programs")
        .arg(samba_programs())
        // No option from the environment.
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .stdin(Stdio::null());
    command
}

impl Process {
    fn start(folder: &Folder) -> Self {
        let mut child = command(folder, "state.json").stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let ready: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("it does not start: {line}"));
        let address = ready["url"].as_str().unwrap().trim_start_matches("http://").to_owned();
        Self { child, address }
    }

    /// One request over a connection of its own, which must have this status.
    fn ask(&self, method: &str, path: &str, body: &Value, status: u16) -> Value {
        let body = body.to_string();
        let mut stream = TcpStream::connect(&self.address).unwrap();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nAuthorization: Bearer any\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{method} {path}: {answer}");
        let text = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        serde_json::from_str(text).unwrap_or_default()
    }

    fn of_account(&self, method: &str, below: &str, body: &Value, status: u16) -> Value {
        let subscription = &lazuli_emulator::scenario::Scenario::default().subscriptions[0];
        let path = format!(
            "/subscriptions/{subscription}/resourceGroups/lazuli/providers/Microsoft.Storage/storageAccounts/first{below}\
             ?api-version=2025-01-01"
        );
        self.ask(method, &path, body, status)
    }

    fn server(&self) -> Value {
        self.ask("GET", "/_emulator/smb", &json!({}), 200)[0].take()
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn listens(server: &Value) -> bool {
    let address: SocketAddr = server["address"].as_str().unwrap().parse().unwrap();
    TcpStream::connect(address).is_ok()
}

/// Waits until no process but this one has anything to do with the folder.
fn nobody_works_in(folder: &Folder) {
    let began = Instant::now();
    let name = folder.path().to_string_lossy().into_owned();
    let works = |entry: fs::DirEntry| {
        fs::read(entry.path().join("cmdline")).is_ok_and(|line| String::from_utf8_lossy(&line).contains(&name))
    };
    while fs::read_dir("/proc").unwrap().flatten().any(works) {
        assert!(began.elapsed() < LIFE, "somebody still works in {name}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn file_servers_end_with_a_killed_emulator_and_the_next_one_finds_the_files() {
    if !able() {
        return;
    }
    let folder = Folder::make();
    let mut first = Process::start(&folder);
    assert_eq!(first.ask("GET", "/_emulator/smb", &json!({}), 200), json!([]));
    let account = json!({"location": "westeurope", "kind": "StorageV2", "sku": {"name": "Standard_LRS"}});
    first.of_account("PUT", "", &account, 202);
    assert_eq!(first.ask("GET", "/_emulator/smb", &json!({}), 200), json!([]), "nothing is served without a share");
    first.of_account("PUT", SHARE, &json!({"properties": {"shareQuota": 5}}), 201);
    let server = first.server();
    assert!(listens(&server), "{server}");
    assert_eq!(server["account"], "first");
    let share = server["shares"]["data"].as_str().unwrap().to_owned();
    fs::write(format!("{share}/file"), "kept").unwrap();

    // The key is in no file; Samba keeps a hash of it, for root alone.
    let keys = first.of_account("POST", "/listKeys", &json!({}), 200);
    let key = keys["keys"][0]["value"].as_str().unwrap();
    let found = Command::new("grep").args(["--recursive", "--fixed-strings", key]).arg(folder.path()).output().unwrap();
    assert_eq!(found.status.code(), Some(1), "{}", String::from_utf8_lossy(&found.stdout));

    // One at a time, and an outage by hand.
    let second = command(&folder, "other.json").output().unwrap();
    let said = String::from_utf8_lossy(&second.stderr);
    assert!(!second.status.success() && said.contains("another emulator serves the shares of"), "{said}");
    first.ask("POST", "/_emulator/smb", &json!({"account": "first", "serves": false}), 204);
    assert!(!listens(&server));
    first.ask("POST", "/_emulator/smb", &json!({"account": "first", "serves": true}), 204);
    assert!(listens(&server));
    let refused = first.ask("POST", "/_emulator/smb", &json!({"account": "none", "serves": true}), 400);
    assert!(refused["error"].as_str().unwrap().contains("is not served"), "{refused}");

    // Written soon after a change; a kill loses what is not written yet.
    while !fs::read_to_string(folder.path().join("state.json")).unwrap_or_default().contains("shares/data") {
        assert_eq!(first.child.try_wait().unwrap(), None, "it has ended, and the state is not written");
        std::thread::sleep(Duration::from_millis(5));
    }
    first.kill();
    nobody_works_in(&folder);
    assert!(!listens(&server));

    let next = Process::start(&folder);
    assert!(listens(&next.server()));
    assert_eq!(fs::read_to_string(format!("{share}/file")).unwrap(), "kept");
    next.of_account("DELETE", "", &json!({}), 200);
    assert_eq!(next.ask("GET", "/_emulator/smb", &json!({}), 200), json!([]));
    assert!(!fs::exists(share).unwrap(), "the files of an account that is gone are there");
    next.kill();
    nobody_works_in(&folder);
}
