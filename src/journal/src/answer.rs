//! What a process answers about its journal, and how that is printed.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{
    note::Subject,
    store::{Journal, Other, RecordView, Story},
    text::{called, duration, printable, sentence, short_name, utc, wrapped},
    words::Standing,
};

/// What may be asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Topic {
    /// A managed disk.
    Disk,
    /// A snapshot of a managed disk.
    Snapshot,
    /// A virtual machine.
    Vm,
    /// A Service of type LoadBalancer.
    Service,
    /// A Node.
    Node,
}

impl Topic {
    /// What people call it.
    pub const fn text(self) -> &'static str {
        self.subject().text()
    }

    const fn subject(self) -> Subject {
        match self {
            Self::Disk => Subject::Disk,
            Self::Snapshot => Subject::Snapshot,
            Self::Vm => Subject::Vm,
            Self::Service => Subject::Service,
            Self::Node => Subject::Node,
        }
    }
}

/// A question, as it goes over the socket: a line of JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// What kind of object it is about.
    pub topic: Topic,
    /// Its name.
    pub name: String,
}

/// The Lease of a process that needs one to write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leadership {
    /// Its namespace and name.
    pub lease: String,
    /// Whether this process holds it.
    pub leads: bool,
    /// Who holds it, as far as this process has seen it.
    pub holder: Option<String>,
}

/// Who answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// The subcommand.
    pub name: String,
    /// The version that it was built from.
    pub version: String,
    /// The host name: in a cluster that of the pod.
    pub host: String,
    /// Its Lease, where it needs one.
    pub leadership: Option<Leadership>,
    /// What else is to be said of it, a sentence each.
    pub notes: Vec<String>,
}

/// The times of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// Now, since the epoch of Unix.
    pub now: Duration,
    /// For how long the process has run. Its journal counts from its start.
    pub runs: Duration,
}

impl Times {
    fn at(self, since_start: Duration) -> Time {
        let ago = self.runs.saturating_sub(since_start);
        Time { utc: utc(self.now.saturating_sub(ago)), seconds_ago: ago.as_millis() as f64 / 1_000.0 }
    }
}

/// A moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Time {
    /// In UTC.
    pub utc: String,
    /// How long ago it was when the answer was made.
    pub seconds_ago: f64,
}

impl Time {
    /// The day of the month and the time of day.
    fn short(&self) -> String {
        let part = |from, to| self.utc.get(from..to).unwrap_or_default();
        format!("{} {}", part(5, 10), part(11, 19))
    }

    fn ago(&self) -> String {
        duration(Duration::try_from_secs_f64(self.seconds_ago).unwrap_or_default())
    }
}

/// An answer: a JSON document.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// What was asked.
    pub question: Question,
    /// Who answers.
    pub process: Process,
    /// When it was started.
    pub started: Time,
    /// By which other names the object was looked for, a sentence each.
    pub resolved: Vec<String>,
    /// What is known of the objects of this name.
    pub objects: Vec<Object>,
    /// What is known of other objects that these wait for.
    pub related: Vec<Object>,
    /// How many more objects have the name.
    pub more: usize,
}

/// What is known of one object.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Object {
    /// What it is.
    pub kind: String,
    /// Its whole name.
    pub name: String,
    /// How it stands: settled, waits or failed.
    pub standing: String,
    /// Since when.
    pub since: Time,
    /// What it waits for or has failed for.
    pub waits_for: Vec<Line>,
    /// Its records, oldest first.
    pub records: Vec<Line>,
}

/// A record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// When it was noted.
    pub time: Time,
    /// Whether it was asked, seen, decided, waited for or done.
    pub what: String,
    /// The word, for programs.
    pub word: String,
    /// The sentence, for people.
    pub text: String,
    /// How often it was noted in a row.
    pub times: u8,
    /// The number in it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub number: Option<u32>,
    /// The cause of a failure.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cause: Option<String>,
    /// The kind and the whole name of the other object.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub other: Option<(String, String)>,
}

/// How many objects of one name an answer has.
const MOST_OBJECTS: usize = 8;
/// How many other objects.
const MOST_RELATED: usize = 8;
/// How many records of another object.
const RECORDS_OF_RELATED: usize = 8;

fn line(record: &RecordView, times: Times) -> Line {
    Line {
        time: times.at(record.at),
        what: record.word.group().text().to_owned(),
        word: record.word.name().to_owned(),
        text: sentence(record),
        times: record.times,
        number: record.number,
        cause: record.cause.map(str::to_owned),
        other: match &record.other {
            Other::Named(subject, name) => Some((subject.text().to_owned(), name.to_string())),
            Other::None | Other::Forgotten => None,
        },
    }
}

fn object(story: &Story, times: Times, newest: usize) -> Object {
    let standing = match story.standing {
        Standing::Settled => "settled",
        Standing::Waits => "waits",
        Standing::Failed => "failed",
    };
    let left_out = story.records.len().saturating_sub(newest);
    Object {
        kind: story.subject.text().to_owned(),
        name: story.name.to_string(),
        standing: standing.to_owned(),
        since: times.at(story.since),
        waits_for: story.open().into_iter().map(|record| line(record, times)).collect(),
        records: story.records.iter().skip(left_out).map(|record| line(record, times)).collect(),
    }
}

/// Another name that an object was found to have, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    /// What kind of object has it.
    pub topic: Topic,
    /// The name.
    pub name: String,
    /// How it was found: a sentence.
    pub how: String,
}

impl Answer {
    /// The answer of a process to a question about an object that has these other names too.
    pub fn of(journal: &Journal, question: Question, resolved: &[Resolved], process: Process, times: Times) -> Self {
        let asked = [(question.topic, &question.name)];
        let names = asked.into_iter().chain(resolved.iter().map(|one| (one.topic, &one.name)));
        let (mut found, mut more): (Vec<Story>, usize) = (Vec::new(), 0);
        for (topic, name) in names {
            let (stories, beyond) = journal.stories(&[topic.subject()], name, MOST_OBJECTS);
            more += beyond;
            for story in stories {
                if !found.iter().any(|known| (known.subject, &known.name) == (story.subject, &story.name)) {
                    found.push(story);
                }
            }
        }
        more += found.len().saturating_sub(MOST_OBJECTS);
        found.truncate(MOST_OBJECTS);
        let mut related: Vec<Story> = Vec::new();
        for record in found.iter().flat_map(Story::open) {
            let Other::Named(subject, name) = &record.other else { continue };
            let is_known = found.iter().chain(&related).any(|known| (known.subject, &known.name) == (*subject, name));
            if !is_known && related.len() < MOST_RELATED {
                related.extend(journal.story_of(&crate::Key::new(*subject, &**name)));
            }
        }
        Self {
            question,
            process,
            started: times.at(Duration::ZERO),
            resolved: resolved.iter().map(|one| one.how.clone()).collect(),
            objects: found.iter().map(|story| object(story, times, usize::MAX)).collect(),
            related: related.iter().map(|story| object(story, times, RECORDS_OF_RELATED)).collect(),
            more,
        }
    }

    /// The answer for people, in lines of this width.
    pub fn print(&self, width: usize) -> String {
        let mut page = Page { width, text: String::new() };
        let Process { name, version, host, leadership, notes } = &self.process;
        page.add(
            (0, 0),
            &format!("lazuli {name} {version} on {host}, since {} ({})", day(&self.started), self.started.ago()),
        );
        if let Some(Leadership { lease, leads, holder }) = leadership {
            page.add(
                (0, 0),
                &match (leads, holder) {
                    (true, _) => format!("it holds the Lease {lease}"),
                    (false, Some(holder)) => format!(
                        "it does not hold the Lease {lease} and writes nothing; {holder} holds it: ask that process too"
                    ),
                    (false, None) => {
                        format!("it does not hold the Lease {lease} and writes nothing; nobody is seen to hold it")
                    }
                },
            );
        }
        for note in notes.iter().chain(&self.resolved) {
            page.add((0, 0), note);
        }
        if self.objects.is_empty() {
            page.text.push('\n');
            let Question { topic, name } = &self.question;
            page.add((0, 0), &format!(
                "Its journal has nothing about {} {name}: nothing was asked or seen of it since the start, or that is long ago \
                 and settled.",
                topic.text()
            ));
        }
        for object in &self.objects {
            page.object(object);
        }
        if self.more > 0 {
            page.text.push('\n');
            page.add((0, 0), &format!("{} more have this name: give the whole one", self.more));
        }
        for object in &self.related {
            page.object(object);
        }
        page.text
    }
}

fn day(time: &Time) -> String {
    let part = |from, to| time.utc.get(from..to).unwrap_or_default();
    format!("{} {} UTC", part(0, 10), part(11, 19))
}

struct Page {
    width: usize,
    text: String,
}

impl Page {
    /// Adds a paragraph with the indents of its first line and of the others.
    fn add(&mut self, indents: (usize, usize), text: &str) {
        self.text.push_str(&wrapped(&printable(text), self.width, indents));
        self.text.push('\n');
    }

    fn object(&mut self, object: &Object) {
        let Object { kind, name, standing, since, waits_for, records } = object;
        let is_short = Subject::ALL.iter().find(|one| one.text() == kind).map(|subject| called(*subject, name));
        let called = is_short.unwrap_or_else(|| format!("{kind} {name}"));
        let stands = match standing.as_str() {
            "settled" => "waits for nothing",
            "failed" => "has failed",
            _ => "waits",
        };
        self.text.push('\n');
        self.add((0, 2), &format!("{called} {stands} since {} UTC ({})", since.short(), since.ago()));
        if short_name(name) != *name {
            self.add((2, 2), name);
        }
        for line in waits_for {
            let (verb, for_how_long) =
                if line.what == "waits" { ("waits for ", line.time.ago()) } else { ("", line.time.ago()) };
            self.add((2, 4), &format!("{verb}{} ({for_how_long})", line.text));
        }
        self.text.push('\n');
        for line in records {
            self.add((2, COLUMNS), &format!("{}  {:<7}  {}", line.time.short(), line.what, line.text));
        }
    }
}

/// Where the sentences of records begin: after the time and what it is.
const COLUMNS: usize = 2 + 14 + 2 + 7 + 2;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Key, Note, Word};

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn process() -> Process {
        Process {
            name: "cloud-controllers".into(),
            version: "0.1.0 (abc)".into(),
            host: "lazuli-controller-1".into(),
            leadership: Some(Leadership {
                lease: "kube-system/cloud-controller-manager".into(),
                leads: false,
                holder: Some("lazuli-controller-2_1".into()),
            }),
            notes: vec![],
        }
    }

    /// 2026-11-30 10:00:00 is an hour after the start.
    const TIMES: Times = Times { now: Duration::from_secs(1_796_032_800), runs: Duration::from_secs(3_600) };

    fn answer(journal: &Journal, name: &str) -> Answer {
        let question = Question { topic: Topic::Service, name: name.into() };
        Answer::of(journal, question, &[], process(), TIMES)
    }

    fn journal(service: &str) -> Journal {
        let mut journal = Journal::default();
        let balancer = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/loadBalancers/kubernetes";
        let service = || Key::new(Subject::Service, service.to_owned());
        let balancer = || Key::new(Subject::LoadBalancer, balancer);
        let throttled = lazuli_model::fault::Fault::Throttled { retry_after: None };
        let mut note = |seconds, key: Key<'_>, note: Note<'_>| journal.note(at(seconds), &key, &note);
        note(3_000, service(), Word::Shown.into());
        note(3_001, service(), Word::Tells.about(balancer()).number(1));
        note(3_001, service(), Word::AwaitsObjects.into());
        note(3_002, balancer(), Word::Wanted.about(service()).number(1));
        note(3_003, balancer(), Word::WriteFailed.fault(&throttled));
        note(3_003, balancer(), Word::AwaitsPause.into());
        for _ in 0..3 {
            note(3_004, service(), Word::ObjectRetries.about(balancer()).number(30).fault(&throttled));
        }
        journal
    }

    #[test]
    fn an_answer_says_what_was_asked_seen_and_decided_and_what_is_waited_for() {
        let answer = answer(&journal("default/web"), "web");
        let expected = "\
lazuli cloud-controllers 0.1.0 (abc) on lazuli-controller-1, since 2026-11-30
09:00:00 UTC (1 h 0 min)
it does not hold the Lease kube-system/cloud-controller-manager and writes
nothing; lazuli-controller-2_1 holds it: ask that process too

Service default/web waits since 11-30 09:50:01 UTC (9 min 59 s)
  load balancer kubernetes: is tried again after 30 s: Azure gets too many
    requests (3 times) (9 min 56 s)

  11-30 09:50:00  asked    Kubernetes shows it, new or changed
  11-30 09:50:01  decided  load balancer kubernetes: is told what it is to have
                           (want 1)
  11-30 09:50:01  waits    objects of Azure
  11-30 09:50:04  seen     load balancer kubernetes: is tried again after 30 s:
                           Azure gets too many requests (3 times)

load balancer kubernetes waits since 11-30 09:50:02 UTC (9 min 58 s)
  /subscriptions/s/resourceGroups/g/providers/Microsoft.Network/loadBalancers/ku
  bernetes
  waits for the end of a pause after a failure (9 min 57 s)

  11-30 09:50:02  asked    Service default/web wants something of it (want 1)
  11-30 09:50:03  seen     the write has failed: Azure gets too many requests
  11-30 09:50:03  waits    the end of a pause after a failure
";
        assert_eq!(answer.print(80), expected);
        for width in [40, 60, 200] {
            let printed = answer.print(width);
            assert!(printed.lines().all(|line| line.chars().count() <= width.max(COLUMNS + 20)), "{printed}");
        }
        let json = serde_json::to_string(&answer).expect("it is plain data");
        assert_eq!(serde_json::from_str::<Answer>(&json).expect("it is read again"), answer);
    }

    #[test]
    fn a_hostile_name_steers_no_terminal() {
        let name = "default/web\u{1b}]0;pwned\u{7}\r\n\u{202e}\u{9b}2J";
        let mut answer = answer(&journal(name), name);
        answer.process.host = "\u{1b}[2J".into();
        answer.resolved = vec!["claim \u{1b}c".into()];
        let printed = answer.print(80);
        assert!(
            printed.contains("Service default/web\\u{1b}]0;pwned\\u{7}\\r\\n\\u{202e}\\u{9b}2J waits since"),
            "{printed}"
        );
        assert!(printed.chars().all(|char| char == '\n' || !char.is_control()), "{printed:?}");
        let nothing = Answer { objects: vec![], ..answer };
        assert!(nothing.print(80).chars().all(|char| char == '\n' || !char.is_control()));
    }

    #[test]
    fn a_name_that_several_objects_have_is_answered_for_each_and_other_names_of_an_object_are_looked_for_too() {
        let mut journal = Journal::default();
        for number in 0..12 {
            let name = format!("team-{number:02}/web");
            journal.note(at(1), &Key::new(Subject::Service, &*name), &Word::Shown.into());
        }
        journal.note(at(1), &Key::new(Subject::Disk, "/d/pvc-1"), &Word::CreateAsked.into());
        let many = answer(&journal, "web");
        assert_eq!((many.objects.len(), many.more), (MOST_OBJECTS, 4));
        assert!(many.print(80).contains("4 more have this name"));
        let none = answer(&journal, "api");
        assert!(none.print(80).contains("Its journal has nothing about Service api"), "{}", none.print(80));
        let resolved = Resolved { topic: Topic::Disk, name: "/D/PVC-1".into(), how: "the claim is a disk".into() };
        let question = Question { topic: Topic::Disk, name: "db/data".into() };
        let found = Answer::of(&journal, question, &[resolved.clone(), resolved], process(), TIMES);
        assert_eq!(found.objects.iter().map(|object| &*object.name).collect::<Vec<_>>(), ["/d/pvc-1"]);
    }
}
