#![cfg(feature = "emulator")]

use std::{os::unix::fs::PermissionsExt as _, sync::Arc};

use clap::{CommandFactory as _, Parser};
use lazuli_journal::{Key, Leadership, Recorder, Subject, Word};
use lazuli_rig::Folder;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{
    resolve::Names,
    socket::{Answering, WhyOptions, WhySocket},
    *,
};

/// Beyond what anything here takes.
const LONG: Duration = Duration::from_secs(20);

#[derive(Parser)]
struct Process {
    #[command(flatten)]
    options: WhyOptions,
}

fn answering(journal: Recorder) -> Answering {
    Answering {
        process: CLOUD_CONTROLLERS,
        topics: &[Topic::Service, Topic::Node],
        journal,
        names: Names::None,
        about: Box::new(|| {
            let leadership =
                Leadership { lease: "ns/lease".into(), leads: false, holder: Some("another\u{1b}[2J".into()) };
            (Some(leadership), vec![])
        }),
    }
}

/// A process that answers in a folder, until it is dropped.
struct Answers {
    folder: Folder,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

impl Answers {
    async fn start(journal: Recorder, change: impl FnOnce(&mut WhySocket)) -> Self {
        let folder = Folder::make("why").unwrap();
        let path = folder.path().join("cloud-controllers.sock");
        let socket = format!("--why-socket={}", path.display());
        let options = Process::parse_from(["process", &socket]).options;
        let mut socket = options.bind(CLOUD_CONTROLLERS).await.unwrap().expect("a socket was asked for");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        change(&mut socket);
        let (stop, answering) = (CancellationToken::new(), answering(journal));
        let stops = stop.clone();
        let task = tokio::spawn(async move { socket.serve(&answering, &stops).await });
        Self { folder, stop, task }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("cloud-controllers.sock")
    }

    async fn ask(&self, topic: Topic, name: &str) -> Result<Vec<Answer>, String> {
        let of = Of { name: name.to_owned(), socket: None, output: Format::Text };
        let answers = timeout(LONG, answers(topic, &of, self.folder.path())).await.expect("answers");
        answers.map_err(|error| lazuli_csi::server::chain(&error))
    }

    /// What is answered to these bytes.
    async fn raw(&self, bytes: &[u8]) -> String {
        let mut stream = UnixStream::connect(self.path()).await.unwrap();
        // It may have answered and closed before it has read all.
        _ = stream.write_all(bytes).await;
        let mut answer = Vec::new();
        _ = timeout(LONG, stream.read_to_end(&mut answer)).await.expect("ends");
        String::from_utf8(answer).unwrap()
    }

    async fn stop(self) {
        let path = self.path();
        self.stop.cancel();
        self.task.await.unwrap();
        assert!(!path.exists(), "the socket goes with its process");
    }
}

fn journal() -> Recorder {
    let journal = Recorder::new(|| Duration::from_secs(60));
    journal.note(&Key::new(Subject::Service, "default/web"), Word::AwaitsPatch);
    journal
}

#[tokio::test]
async fn a_question_is_answered_by_the_process_and_says_who_holds_its_lease() {
    let process = Answers::start(journal(), |_| {}).await;
    let answers = process.ask(Topic::Service, "web").await.unwrap();
    let [answer] = &answers[..] else { panic!("{answers:?}") };
    assert_eq!(answer.objects[0].name, "default/web");
    let page = answer.print(200);
    assert!(
        page.contains("it does not hold the Lease ns/lease") && page.contains("another\\u{1b}[2J holds it"),
        "{page}"
    );
    assert!(page.contains("waits for the API server's answer to a patch"), "{page}");
    // One process is there, and another one that may know of Nodes is not.
    let nothing = process.ask(Topic::Node, "node-0").await.unwrap();
    assert!(nothing[0].objects.is_empty());
    let error = process.ask(Topic::Disk, "d").await.unwrap_err();
    let path = process.folder.path().join("csi-controller.sock");
    assert!(error.starts_with(&format!("no process answers at {}", path.display())), "{error}");
    assert!(
        error.contains("kubectl -n NAMESPACE exec deploy/lazuli-controller -c lazuli -- lazuli why disk"),
        "{error}"
    );
    process.stop().await;
}

#[tokio::test]
async fn a_process_refuses_what_is_no_question_of_its_own() {
    let process = Answers::start(journal(), |_| {}).await;
    let of_another = Of { name: "d".to_owned(), socket: Some(process.path()), output: Format::Text };
    let error = answers(Topic::Disk, &of_another, Path::new("/nowhere")).await.unwrap_err().to_string();
    assert!(
        error.ends_with("does not answer: cloud-controllers knows of Services, Nodes, and not of a disk"),
        "{error}"
    );
    for (bytes, why) in [
        (&b"why?\n"[..], "a question is {"),
        (b"{\"topic\":\"service\"}\n", "a question is {"),
        (b"{\"topic\":\"secret\",\"name\":\"x\"}\n", "where TOPIC is disk, snapshot, vm, service or node"),
        (&[b'x'; 20_000], "one line of at most 8192 bytes"),
        (format!("{{\"topic\":\"service\",\"name\":\"{}\"}}\n", "x".repeat(2_000)).as_bytes(), "at most 1024 bytes"),
    ] {
        let answer = process.raw(bytes).await;
        assert!(answer.starts_with("{\"refused\":") && answer.contains(why), "{answer}");
    }
    let long = process.ask(Topic::Service, &"x".repeat(2_000)).await.unwrap_err();
    assert!(long.contains("a name of 2000 bytes"), "{long}");
    process.stop().await;
}

#[tokio::test]
async fn another_user_is_refused_by_the_uid_that_the_kernel_gives() {
    let process = Answers::start(journal(), |socket| socket.user += 1).await;
    let error = process.ask(Topic::Service, "web").await.unwrap_err();
    let own = nix::unistd::geteuid().as_raw();
    assert!(error.ends_with(&format!("it answers user {} alone, and user {own} asks", own + 1)), "{error}");
    assert!(!process.raw(b"{\"topic\":\"service\",\"name\":\"web\"}\n").await.contains("default/web"));
    process.stop().await;
}

#[tokio::test]
async fn callers_that_say_nothing_do_not_keep_others_from_an_answer_for_long() {
    tokio::time::pause();
    let process = Arc::new(Answers::start(journal(), |_| {}).await);
    let mut silent = Vec::new();
    for _ in 0..8 {
        silent.push(UnixStream::connect(process.path()).await.unwrap());
    }
    let began = tokio::time::Instant::now();
    let of = Of { name: "web".to_owned(), socket: None, output: Format::Text };
    let found = loop {
        // The pause of the clock ends a wait when nothing else can happen.
        match answers(Topic::Service, &of, process.folder.path()).await {
            Ok(found) => break found,
            Err(WhyError::Late(_)) => {}
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!(found[0].objects.len(), 1);
    assert!(began.elapsed() < Duration::from_secs(90), "{:?}", began.elapsed());
    drop(silent);
}

#[test]
fn json_is_ascii_so_that_no_name_steers_a_terminal() {
    let value = serde_json::json!({"name": "a\u{1b}[2J\u{9b}31m\u{202e}\u{7f}é\u{1f600}"});
    let text = output::json_text(&value);
    assert!(text.bytes().all(|byte| byte == b'\n' || (0x20..0x7f).contains(&byte)), "{text}");
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
}

#[test]
fn the_help_says_how_a_disk_may_be_named() {
    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        _options: Options,
    }
    let help = Line::command().find_subcommand_mut("disk").unwrap().render_long_help().to_string();
    for word in ["NAMESPACE/CLAIM", "PersistentVolume", "ARM id", "LAZULI_WHY_SOCKET", "--output"] {
        assert!(help.contains(word), "{word}: {help}");
    }
    let names = ["disk", "vm", "service", "node"];
    let parsed = |name: &str| Line::try_parse_from(["why", name, "x"]).is_ok();
    assert!(names.iter().all(|name| parsed(name)) && !parsed("secret"));
}
