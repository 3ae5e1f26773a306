//! A client of the QEMU Machine Protocol: a JSON object a line, over a unix socket.
//!
//! Calls block, as all that a hypervisor does; the thread is one that may. Each command has a deadline, after which the
//! connection is of no more use, since the answer may still come.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;

use serde_json::{Value, json};

use super::super::types::QmpError;
use super::patience::{Patience, Wait};

/// A connection that is ready for commands.
#[derive(Debug)]
pub(super) struct Qmp {
    stream: UnixStream,
    /// What was read and is no whole line.
    rest: Vec<u8>,
    /// Devices of which an event has said that they have gone, and which nobody has waited for.
    gone: Vec<String>,
    number: u64,
    socket: PathBuf,
    patience: Patience,
}

/// Connects. QEMU lets two more clients wait for their turn; the next one waits in this call, for which there is no
/// deadline: a thread does it, which goes when QEMU does.
fn stream(socket: &Path, patience: &Patience) -> Result<UnixStream, QmpError> {
    let (sender, receiver) = mpsc::channel();
    let path = socket.to_owned();
    let connect = move || drop(sender.send(UnixStream::connect(path)));
    thread::Builder::new().name("qmp".to_owned()).spawn(connect).map_err(QmpError::Connect)?;
    let mut wait = patience.wait(GREETING, socket);
    loop {
        match receiver.recv_timeout(wait.slice()?) {
            Ok(connected) => return connected.map_err(|error| refused(socket, error)),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(QmpError::Connect(io::ErrorKind::Other.into())),
        }
    }
}

/// Why there is no connection. The kernel says of a file that is no socket what it says of one that nobody serves.
fn refused(socket: &Path, error: io::Error) -> QmpError {
    match fs::metadata(socket) {
        Ok(facts) if !facts.file_type().is_socket() => QmpError::NoSocket,
        _ => QmpError::Connect(error),
    }
}

/// What is waited for first.
const GREETING: &str = "the greeting";

impl Qmp {
    /// Connects and leaves the negotiation behind.
    pub(super) fn connect(socket: &Path, patience: &Patience) -> Result<Self, QmpError> {
        let patience = patience.clone();
        let greeted = stream(socket, &patience).and_then(|stream| {
            let (rest, gone, socket) = (Vec::new(), Vec::new(), socket.to_owned());
            let mut qmp = Self { stream, rest, gone, number: 0, socket, patience };
            let greeting = qmp.read(&mut qmp.wait(GREETING))?;
            Ok((qmp, greeting))
        });
        let (mut qmp, greeting) = match greeted {
            Ok(greeted) => greeted,
            Err(QmpError::Late { within, .. }) => return Err(QmpError::NoGreeting { within }),
            Err(QmpError::NoJson { got, .. }) => return Err(QmpError::NoQmp { got }),
            Err(error) => return Err(error),
        };
        if greeting.get("QMP").is_none() {
            return Err(QmpError::NoQmp { got: greeting.to_string() });
        }
        qmp.execute("qmp_capabilities", json!({}))?;
        Ok(qmp)
    }

    fn wait(&self, what: &str) -> Wait {
        self.patience.wait(what, &self.socket)
    }

    /// Gives a command and waits for its answer.
    pub(super) fn execute(&mut self, command: &str, arguments: Value) -> Result<Value, QmpError> {
        self.number += 1;
        let mut line = json!({"execute": command, "arguments": arguments, "id": self.number}).to_string();
        line.push('\n');
        let broken = |source| QmpError::Broken { command: command.to_owned(), source };
        self.stream.set_write_timeout(Some(self.patience.within())).map_err(broken)?;
        match self.stream.write_all(line.as_bytes()) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                return Err(QmpError::Ended { command: command.to_owned() });
            }
            Err(source) => return Err(broken(source)),
        }
        let mut wait = self.wait(command);
        loop {
            let said = self.read(&mut wait)?;
            if let Some(error) = said.get("error") {
                let text = |key: &str| error[key].as_str().unwrap_or("no reason").to_owned();
                // One without an id is about a line that QEMU has not understood: there is no other than this one.
                let (class, why) = (text("class"), text("desc"));
                return Err(QmpError::Refused { command: command.to_owned(), class, why });
            }
            if said["id"] == self.number
                && let Some(answer) = said.get("return")
            {
                return Ok(answer.clone());
            }
            self.note(&said);
        }
    }

    /// Waits until QEMU says that a device has gone, which it may have said already.
    pub(super) fn wait_until_gone(&mut self, device: &str) -> Result<(), QmpError> {
        let mut wait = self.wait(&format!("device_del until the event DEVICE_DELETED of {device}"));
        loop {
            if let Some(at) = self.gone.iter().position(|gone| gone == device) {
                self.gone.remove(at);
                return Ok(());
            }
            let said = self.read(&mut wait)?;
            self.note(&said);
        }
    }

    /// Remembers an event that somebody may wait for.
    fn note(&mut self, said: &Value) {
        if said["event"] == "DEVICE_DELETED"
            && let Some(device) = said["data"]["device"].as_str()
        {
            self.gone.push(device.to_owned());
        }
    }

    /// The next object that QEMU sends.
    fn read(&mut self, wait: &mut Wait) -> Result<Value, QmpError> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                let line = line.trim_ascii();
                if line.is_empty() {
                    continue;
                }
                let object = serde_json::from_slice(line).ok().filter(Value::is_object);
                let got = || String::from_utf8_lossy(line).chars().take(200).collect();
                return object.ok_or_else(|| QmpError::NoJson { command: wait.what(), got: got() });
            }
            let slice = wait.slice()?;
            let broken = |source| QmpError::Broken { command: wait.what(), source };
            self.stream.set_read_timeout(Some(slice)).map_err(broken)?;
            let mut bytes = [0; 16 << 10];
            match self.stream.read(&mut bytes) {
                Ok(0) => return Err(QmpError::Ended { command: wait.what() }),
                Ok(length) => self.rest.extend_from_slice(&bytes[..length]),
                Err(error) => match error.kind() {
                    io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {}
                    io::ErrorKind::ConnectionReset => return Err(QmpError::Ended { command: wait.what() }),
                    _ => return Err(broken(error)),
                },
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::os::unix::net::UnixListener;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::thread::JoinHandle;
    use std::time::Duration;

    use super::*;

    const GREETING: &str = "{\"QMP\": {\"version\": {}, \"capabilities\": [\"oob\"]}}\r\n";

    /// A socket's path, which is gone afterwards.
    pub(in super::super) struct Socket(pub(in super::super) PathBuf);

    impl Socket {
        pub(in super::super) fn new() -> Self {
            static NEXT: AtomicU32 = AtomicU32::new(0);
            let name = format!("lazuli-qmp-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
            Self(std::env::temp_dir().join(name))
        }

        /// Serves one client: the greeting, then for each command that comes these lines, in which ID stands for the
        /// command's id. After the last it closes the connection, or reads on for ever where `stays`.
        fn serve(&self, greeting: &'static str, answers: Vec<&'static str>, stays: bool) -> JoinHandle<Vec<Value>> {
            let listener = UnixListener::bind(&self.0).unwrap();
            thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
                stream.write_all(greeting.as_bytes()).unwrap();
                let mut asked = Vec::new();
                for answer in answers {
                    let Some(Ok(line)) = lines.next() else { return asked };
                    let command: Value = serde_json::from_str(&line).unwrap();
                    stream.write_all(answer.replace("ID", &command["id"].to_string()).as_bytes()).unwrap();
                    asked.push(command);
                }
                if stays {
                    asked.extend(lines.map_while(Result::ok).filter_map(|line| serde_json::from_str(&line).ok()));
                }
                asked
            })
        }
    }

    impl Drop for Socket {
        fn drop(&mut self) {
            let _ = fs::remove_file(&self.0);
        }
    }

    const LONG: Duration = Duration::from_secs(60);
    const SHORT: Duration = Duration::from_millis(50);
    const DONE: &str = "{\"return\": {}, \"id\": ID}\r\n";

    #[test]
    fn a_command_gets_its_own_answer_whatever_events_come_between() {
        let socket = Socket::new();
        let events = "{\"event\": \"RESUME\"}\r\n\r\n{\"event\": \"DEVICE_DELETED\", \"data\": {\"path\": \"/a/b\"}}\n\
                      {\"event\": \"DEVICE_DELETED\", \"data\": {\"device\": \"a\", \"path\": \"/a\"}}\n\
                      {\"return\": {\"of\": \"an earlier one\"}, \"id\": 0}\n{\"return\": [1, 2], \"id\": ID}\n\
                      {\"event\": \"DEVICE_DELETED\", \"data\": {\"device\": \"b\"}}\n";
        let server = socket.serve(GREETING, vec![DONE, events], false);
        let mut qmp = Qmp::connect(&socket.0, &LONG.into()).unwrap();
        assert_eq!(qmp.execute("query-block", json!({"x": 1})).unwrap(), json!([1, 2]));
        // One event came before the answer and one after it.
        qmp.wait_until_gone("b").unwrap();
        qmp.wait_until_gone("a").unwrap();
        let error = qmp.wait_until_gone("a").unwrap_err();
        assert!(matches!(error, QmpError::Ended { .. }), "{error}");
        let asked = server.join().unwrap();
        assert_eq!(asked[0]["execute"], "qmp_capabilities");
        assert_eq!((&asked[1]["execute"], &asked[1]["arguments"]), (&json!("query-block"), &json!({"x": 1})));
    }

    #[test]
    fn a_refusal_says_what_was_refused_and_why() {
        let socket = Socket::new();
        let refusal = "{\"error\": {\"class\": \"GenericError\", \"desc\": \"lun already used\"}, \"id\": ID}\n";
        let server = socket.serve(GREETING, vec![DONE, refusal, DONE], false);
        let mut qmp = Qmp::connect(&socket.0, &LONG.into()).unwrap();
        let error = qmp.execute("device_add", json!({})).unwrap_err().to_string();
        assert_eq!(error, "QEMU refused device_add: lun already used (GenericError)");
        // The connection goes on.
        qmp.execute("device_add", json!({})).unwrap();
        server.join().unwrap();
    }

    #[test]
    fn what_is_no_qmp_server_is_called_so() {
        let none = Socket::new();
        let error = Qmp::connect(&none.0, &LONG.into()).unwrap_err();
        assert!(error.is_off() && error.to_string().contains("-qmp unix:PATH"), "{error}");
        for (greeting, word) in [
            ("SSH-2.0-OpenSSH\r\n", "got SSH-2.0-OpenSSH"),
            ("{\"event\": \"STOP\"}\n", "got {\"event\":\"STOP\"}"),
            ("", "ended during the greeting"),
        ] {
            let socket = Socket::new();
            let server = socket.serve(greeting, vec![], false);
            let error = Qmp::connect(&socket.0, &LONG.into()).unwrap_err();
            assert!(error.to_string().contains(word) && !error.is_off(), "{greeting}: {error}");
            server.join().unwrap();
        }
    }

    #[test]
    fn what_is_no_socket_is_not_taken_for_a_machine_that_is_off() {
        let file = Socket::new();
        fs::write(&file.0, "").unwrap();
        for path in [&*file.0, &*std::env::temp_dir()] {
            let error = Qmp::connect(path, &LONG.into()).unwrap_err();
            assert!(!error.is_off() && error.to_string().starts_with("it is no socket"), "{error}");
        }
    }

    #[test]
    fn what_does_not_come_is_waited_for_no_longer_than_allowed() {
        let socket = Socket::new();
        let server = socket.serve("", vec![], true);
        let error = Qmp::connect(&socket.0, &SHORT.into()).unwrap_err().to_string();
        assert!(error.contains("no greeting") && error.contains("another connected"), "{error}");
        server.join().unwrap();

        let socket = Socket::new();
        // Events are no answer, also when they come again and again.
        let server = socket.serve(GREETING, vec![DONE, "{\"event\": \"RTC_CHANGE\"}\n"], true);
        let mut qmp = Qmp::connect(&socket.0, &LONG.into()).unwrap();
        qmp.patience = SHORT.into();
        let error = qmp.execute("query-block", json!({})).unwrap_err();
        assert!(matches!(&error, QmpError::Late { command, .. } if command == "query-block"), "{error}");
        drop(qmp);
        server.join().unwrap();
    }

    #[test]
    fn an_end_of_qemu_and_nonsense_are_told_from_an_answer() {
        for (answer, word) in
            [("", "QEMU ended during query-block"), ("null\n", "is not JSON: null"), ("{\n", "is not JSON")]
        {
            let socket = Socket::new();
            let server = socket.serve(GREETING, vec![DONE, answer], false);
            let mut qmp = Qmp::connect(&socket.0, &LONG.into()).unwrap();
            let error = qmp.execute("query-block", json!({})).unwrap_err().to_string();
            assert!(error.contains(word), "{answer}: {error}");
            server.join().unwrap();
        }
    }
}
