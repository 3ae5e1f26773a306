//! `lazuli why`: asks a running process what it was asked about an object, what it saw, what it decided, and what it waits
//! for.
//!
//! The process answers at a unix socket ([`socket`]). It looks the object up by its other names too ([`resolve`]).

pub(super) mod resolve;
pub(super) mod socket;

use std::{
    io::{self, IsTerminal as _},
    path::{Path, PathBuf},
    time::Duration,
};

use clap::{Args, Subcommand};
use lazuli_journal::{Answer, Question, Topic, printable};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::UnixStream,
    time::timeout,
};

use super::{
    Outcome,
    output::{self, Format},
};
use socket::{CLOUD_CONTROLLERS, CSI_CONTROLLER, FOLDER, LONGEST_QUESTION, Reply};

/// How long a process may take to answer: it may ask the API server for a claim.
const PATIENCE: Duration = Duration::from_secs(30);
/// The longest answer that is read.
const LONGEST_ANSWER: u64 = 16 * 1024 * 1024;
/// The width where there is no terminal.
const WIDTH: usize = 80;

/// Options of a question.
#[derive(Debug, Args)]
pub(super) struct Options {
    #[command(subcommand)]
    about: About,
}

#[derive(Debug, Subcommand)]
enum About {
    /// Why a disk is not created, attached, detached, expanded or deleted. NAME is its ARM id, its name, the name of its
    /// PersistentVolume, or NAMESPACE/CLAIM.
    Disk(Of),
    /// Why a snapshot is not taken, not ready or not deleted. NAME is NAMESPACE/NAME of its VolumeSnapshot, its ARM id, or its
    /// name in Azure.
    Snapshot(Of),
    /// What is going on with the data disks of a virtual machine. NAME is its ARM id, its name, or the name of its Node.
    Vm(Of),
    /// Why a Service of type LoadBalancer is not served. NAME is NAMESPACE/NAME, or the name alone.
    Service(Of),
    /// Why a Node is not initialised, has no routes or is not deleted.
    Node(Of),
}

#[derive(Debug, Args)]
struct Of {
    /// Which one.
    name: String,
    /// The socket of the process that is asked: its --why-socket. Default: those in /run/lazuli of the processes that look
    /// after such an object.
    #[arg(long, env = "LAZULI_WHY_SOCKET", value_name = "PATH")]
    socket: Option<PathBuf>,
    /// How to print: text in the width of the terminal, or for programs an object whose items are the answers of the
    /// processes.
    #[arg(short, long, value_enum, default_value_t = Format::Text, value_name = "FORM")]
    output: Format,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
enum WhyError {
    #[error(
        "no process answers at {}. Ask in the container of the process, such as: kubectl -n NAMESPACE exec {pod} -- lazuli why \
         {topic} NAME; or name the --why-socket of a process as --socket",
        paths.iter().map(|path| shown(path)).collect::<Vec<_>>().join(" and ")
    )]
    NoProcess { paths: Vec<PathBuf>, pod: &'static str, topic: &'static str },
    #[error("{} belongs to another user: only the user of the process may ask it", shown(.0))]
    NotAllowed(PathBuf),
    #[error("the process at {} cannot be asked", shown(path))]
    Broken {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the process at {} has not answered within {} s", shown(.0), PATIENCE.as_secs())]
    Late(PathBuf),
    #[error("the process at {} answers what this program does not understand: are both of one version?", shown(path))]
    Strange {
        path: PathBuf,
        #[source]
        source: serde_json::Error,
    },
    #[error("the process at {} does not answer: {}", shown(path), printable(why))]
    Refused { path: PathBuf, why: String },
    #[error("a name of {0} bytes is no name of anything; allowed are {LONGEST_QUESTION} at most")]
    TooLong(usize),
    #[error("nothing is known of this {topic}{hint}", topic = .0, hint = hint(.0))]
    Nothing(&'static str),
}

/// How an object is named, where its bare name says little.
fn hint(topic: &str) -> &'static str {
    match topic {
        "snapshot" => "; a VolumeSnapshot is named NAMESPACE/NAME",
        _ => "",
    }
}

/// A path, without what a terminal would obey.
fn shown(path: &Path) -> String {
    printable(&path.display().to_string())
}

impl About {
    fn parts(self) -> (Topic, Of) {
        match self {
            Self::Disk(of) => (Topic::Disk, of),
            Self::Snapshot(of) => (Topic::Snapshot, of),
            Self::Vm(of) => (Topic::Vm, of),
            Self::Service(of) => (Topic::Service, of),
            Self::Node(of) => (Topic::Node, of),
        }
    }
}

/// The processes that look after such an object, and where people find the first of them.
fn processes(topic: Topic) -> (&'static [&'static str], &'static str, &'static str) {
    const CONTROLLER: &str = "deploy/lazuli-controller -c lazuli";
    const CLOUD: &str = "deploy/lazuli-controller -c cloud-controllers (or deploy/lazuli-cloud-controllers, where they have pods of their own)";
    match topic {
        Topic::Disk => (&[CSI_CONTROLLER], CONTROLLER, "disk"),
        Topic::Snapshot => (&[CSI_CONTROLLER], CONTROLLER, "snapshot"),
        Topic::Vm => (&[CSI_CONTROLLER], CONTROLLER, "vm"),
        Topic::Service => (&[CLOUD_CONTROLLERS], CLOUD, "service"),
        Topic::Node => (&[CLOUD_CONTROLLERS, CSI_CONTROLLER], CLOUD, "node"),
    }
}

pub(super) async fn run(options: Options) -> Outcome {
    let (topic, of) = options.about.parts();
    let answers = answers(topic, &of, Path::new(FOLDER)).await?;
    let object = output::in_camel_case(json!({"items": answers}));
    match of.output.of_programs(&object) {
        Some(text) => print!("{text}"),
        None => {
            let pages: Vec<String> = answers.iter().map(|answer| answer.print(width())).collect();
            print!("{}", pages.join("\n"));
        }
    }
    match answers.iter().any(|answer| !answer.objects.is_empty()) {
        true => Ok(()),
        false => Err(WhyError::Nothing(topic.text()).into()),
    }
}

/// The answers of the processes that are there.
async fn answers(topic: Topic, of: &Of, folder: &Path) -> Result<Vec<Answer>, WhyError> {
    if of.name.len() > LONGEST_QUESTION {
        return Err(WhyError::TooLong(of.name.len()));
    }
    let (names, pod, word) = processes(topic);
    let paths = match &of.socket {
        Some(path) => vec![path.clone()],
        None => names.iter().map(|name| folder.join(format!("{name}.sock"))).collect(),
    };
    let question = Question { topic, name: of.name.clone() };
    let mut answers = Vec::new();
    for path in &paths {
        let asked = timeout(PATIENCE, ask(path, &question)).await;
        match asked.unwrap_or_else(|_| Err(WhyError::Late(path.clone())))? {
            Some(answer) => answers.push(answer),
            // Another process may look after it.
            None => continue,
        }
    }
    if answers.is_empty() {
        return Err(WhyError::NoProcess { paths, pod, topic: word });
    }
    Ok(answers)
}

/// The answer of the process at a socket; `None` where there is none.
async fn ask(path: &Path, question: &Question) -> Result<Option<Answer>, WhyError> {
    let mut stream = match UnixStream::connect(path).await {
        Ok(stream) => stream,
        Err(error) => match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => return Ok(None),
            io::ErrorKind::PermissionDenied => return Err(WhyError::NotAllowed(path.to_owned())),
            _ => return Err(WhyError::Broken { path: path.to_owned(), source: error }),
        },
    };
    let strange = |source| WhyError::Strange { path: path.to_owned(), source };
    let mut line = serde_json::to_vec(question).map_err(strange)?;
    line.push(b'\n');
    let mut answer = Vec::new();
    let asking = async {
        // A process that refuses its caller does not read the question.
        let sent = stream.write_all(&line).await;
        let read = stream.take(LONGEST_ANSWER).read_to_end(&mut answer).await;
        if answer.is_empty() { sent.and(read.map(drop)) } else { Ok(()) }
    };
    asking.await.map_err(|source| WhyError::Broken { path: path.to_owned(), source })?;
    match serde_json::from_slice(&answer).map_err(strange)? {
        Reply::Answer(answer) => Ok(Some(*answer)),
        Reply::Refused(why) => Err(WhyError::Refused { path: path.to_owned(), why }),
    }
}

/// The width to print in.
fn width() -> usize {
    let of_variable = std::env::var("COLUMNS").ok().and_then(|columns| columns.trim().parse().ok());
    let of_terminal = || {
        let stdout = io::stdout();
        if !stdout.is_terminal() {
            return None;
        }
        rustix::termios::tcgetwinsize(&stdout).ok().map(|size| usize::from(size.ws_col))
    };
    of_variable.or_else(of_terminal).filter(|width| *width > 0).unwrap_or(WIDTH)
}

#[cfg(test)]
mod tests;
