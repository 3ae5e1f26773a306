//! The socket at which a process answers `lazuli why`.
//!
//! It belongs to the user of the process alone (mode 0600), and a caller of another user is refused even so. A question is
//! one line of JSON of bounded length, the answer is one JSON document. So many callers are served at once, each for so
//! long.

use std::{io, path::PathBuf, time::Duration};

use clap::Args;
use futures::{StreamExt as _, stream::FuturesUnordered};
use lazuli_csi::server::{BindError, Endpoint, Listener, SocketFile, chain};
use lazuli_journal::{Answer, Leadership, Process, Question, Recorder, Times, Topic};
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{UnixListener, UnixStream},
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::super::csi_controller::{BUILD, host_name};
use super::resolve::Names;

/// The folder of the sockets.
pub(crate) const FOLDER: &str = "/run/lazuli";
/// The name of a process, and of its socket without the ending.
pub(crate) const CSI_CONTROLLER: &str = "csi-controller";
/// The same of the other process.
pub(crate) const CLOUD_CONTROLLERS: &str = "cloud-controllers";

/// The longest name in a question, in bytes. Source: the longest ARM id that this program takes.
pub(crate) const LONGEST_QUESTION: usize = 1_024;
/// The longest line: a name of escapes, and what is around it.
const LONGEST_LINE: u64 = 8 * 1_024;
/// How many callers are served at once. Others wait in the kernel's queue.
const CALLERS: usize = 4;
/// How long a caller is served, from its connection to its answer.
const SERVED: Duration = Duration::from_secs(20);
/// How soon a connection is accepted again after one could not be.
const AGAIN: Duration = Duration::from_secs(1);

/// Where a process answers.
#[derive(Debug, Args)]
#[command(next_help_heading = "Questions of lazuli why")]
pub(crate) struct WhyOptions {
    /// The unix socket at which this process answers lazuli why, for its own user alone. Default: a socket with the name of
    /// this subcommand in /run/lazuli, where that folder exists.
    #[arg(long, env = "LAZULI_WHY_SOCKET", value_name = "PATH")]
    why_socket: Option<PathBuf>,
}

/// What a process sends.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Reply {
    /// An answer.
    Answer(Box<Answer>),
    /// Why there is none.
    Refused(String),
}

/// What is known of a process beside its journal.
pub(crate) struct Answering {
    /// Its name: that of its subcommand.
    pub(crate) process: &'static str,
    /// What it may be asked about.
    pub(crate) topics: &'static [Topic],
    pub(crate) journal: Recorder,
    /// Under which other names it knows objects.
    pub(crate) names: Names,
    /// Its Lease, and what else is to be said of it.
    pub(crate) about: Box<dyn Fn() -> (Option<Leadership>, Vec<String>) + Send + Sync>,
}

/// A socket that answers once it is served.
pub(crate) struct WhySocket {
    listener: UnixListener,
    file: SocketFile,
    /// The user that may ask.
    pub(super) user: u32,
}

impl WhyOptions {
    /// Binds the socket of a process. `None` where there is no folder for it.
    ///
    /// # Errors
    /// When a socket that was asked for cannot be made.
    pub(crate) async fn bind(&self, process: &str) -> Result<Option<WhySocket>, BindError> {
        if let Some(path) = &self.why_socket {
            return WhySocket::bind(path.clone()).await.map(Some);
        }
        let folder = PathBuf::from(FOLDER);
        if !folder.is_dir() {
            debug!(FOLDER, "the folder does not exist: lazuli why cannot ask this process");
            return Ok(None);
        }
        match WhySocket::bind(folder.join(format!("{process}.sock"))).await {
            Ok(socket) => Ok(Some(socket)),
            // Nobody has asked for it, and nothing depends on it.
            Err(error) => {
                warn!(error = chain(&error), "lazuli why cannot ask this process");
                Ok(None)
            }
        }
    }
}

impl WhySocket {
    async fn bind(path: PathBuf) -> Result<Self, BindError> {
        let listener = Listener::bind(&Endpoint::Unix(path)).await?;
        let (listener, file) = listener.into_unix().expect("the endpoint is a unix socket");
        Ok(Self { listener, file, user: nix::unistd::geteuid().as_raw() })
    }

    /// Answers until `stop`.
    pub(crate) async fn serve(self, answering: &Answering, stop: &CancellationToken) {
        let mut callers = FuturesUnordered::new();
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                Some(()) = callers.next() => {}
                accepted = self.listener.accept(), if callers.len() < CALLERS => match accepted {
                    Ok((stream, _)) => callers.push(serve(stream, self.user, answering)),
                    Err(error) => {
                        warn!(%error, "a caller of lazuli why cannot be served");
                        sleep(AGAIN).await;
                    }
                }
            }
        }
        self.file.remove_if_ours();
    }
}

/// Serves one caller.
async fn serve(mut stream: UnixStream, user: u32, answering: &Answering) {
    let work = async {
        let reply = match refusal(&stream, user) {
            Some(why) => Reply::Refused(why),
            None => match question(&mut stream).await? {
                Ok(question) => answering.reply(question).await,
                Err(why) => Reply::Refused(why),
            },
        };
        let text = serde_json::to_vec(&reply).map_err(io::Error::other)?;
        stream.write_all(&text).await?;
        stream.shutdown().await
    };
    match timeout(SERVED, Box::pin(work)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => debug!(%error, "a caller of lazuli why has gone"),
        Err(_) => debug!("a caller of lazuli why was too slow"),
    }
}

/// Why this caller is not answered.
fn refusal(stream: &UnixStream, user: u32) -> Option<String> {
    match stream.peer_cred() {
        Ok(caller) if caller.uid() == user => None,
        Ok(caller) => {
            warn!(caller = caller.uid(), user, "a user who may not ask has reached the socket of lazuli why");
            Some(format!("it answers user {user} alone, and user {} asks", caller.uid()))
        }
        Err(error) => {
            warn!(%error, "it is not known who asks at the socket of lazuli why");
            Some("the kernel does not say which user asks".to_owned())
        }
    }
}

/// Reads a question; else why it is none.
async fn question(stream: &mut UnixStream) -> io::Result<Result<Question, String>> {
    let mut line = Vec::new();
    BufReader::new(stream).take(LONGEST_LINE).read_until(b'\n', &mut line).await?;
    if line.last() != Some(&b'\n') {
        return Ok(Err(format!("a question is one line of at most {LONGEST_LINE} bytes")));
    }
    Ok(match serde_json::from_slice::<Question>(&line) {
        Ok(question) if question.name.len() > LONGEST_QUESTION => {
            Err(format!("a name has at most {LONGEST_QUESTION} bytes"))
        }
        Ok(question) => Ok(question),
        Err(_) => Err(
            "a question is {\"topic\": TOPIC, \"name\": NAME} in one line, where TOPIC is disk, snapshot, vm, service or node"
                .to_owned(),
        ),
    })
}

impl Answering {
    async fn reply(&self, question: Question) -> Reply {
        if !self.topics.contains(&question.topic) {
            let all: Vec<&str> = self.topics.iter().map(|topic| topic.text()).collect();
            let topic = question.topic.text();
            return Reply::Refused(format!("{} knows of {}s, and not of a {topic}", self.process, all.join("s, ")));
        }
        let (resolved, more) = self.names.of(&question).await;
        let (leadership, mut notes) = (self.about)();
        notes.extend(more);
        let process = Process {
            name: self.process.to_owned(),
            version: format!("{} ({})", BUILD.version, BUILD.revision),
            host: host_name(self.process),
            leadership,
            notes,
        };
        let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let times = Times { now: since_epoch.unwrap_or_default(), runs: self.journal.runs() };
        let answer =
            self.journal.look(|journal| Answer::of(journal, question.clone(), &resolved, process.clone(), times));
        match answer {
            Some(answer) => Reply::Answer(Box::new(answer)),
            None => Reply::Refused("it keeps no journal".to_owned()),
        }
    }
}
