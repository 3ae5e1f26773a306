//! What this program makes of a cluster of the Go projects, before it moves: what is served equally, what differs, and what is
//! refused, each with the page that says more. Nothing is guessed: the program's own readers judge each object.
//!
//! | file | looks at |
//! |---|---|
//! | `classes` | StorageClasses of the disk and file drivers, and of the in-tree plugins; VolumeAttributesClasses |
//! | `volumes` | PersistentVolumes of these |
//! | `snapshots` | VolumeSnapshotClasses, VolumeSnapshotContents, and whose their types are |
//! | `services` | Services of type LoadBalancer, with their annotations |
//! | `machines` | Nodes, by their provider id, size and system |
//! | `programs` | the Go programs, their versions and arguments |

mod classes;
mod machines;
mod programs;
mod services;
mod snapshots;
mod volumes;

use super::{Finding, Grade, some};

pub use classes::{Class, Defaults, attributes_class, class};
pub use machines::{Facts, node};
pub use programs::{GoContainer, GoProgram, arguments_of, go_containers, is_go_release, program};
pub use services::service;
pub use snapshots::{snapshot_class, snapshot_content, snapshot_type};
pub use volumes::{Csi, Mounting, Source, Volume, volume};

/// What is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// A StorageClass.
    Class,
    /// A VolumeAttributesClass.
    AttributesClass,
    /// A PersistentVolume.
    Volume,
    /// A VolumeSnapshotClass, a VolumeSnapshotContent, or a type of the snapshot API.
    Snapshot,
    /// A Service of type LoadBalancer.
    Service,
    /// A Node.
    Node,
    /// A program of the Go projects.
    Program,
}

impl Subject {
    const ALL: [Self; 7] =
        [Self::Program, Self::Class, Self::AttributesClass, Self::Volume, Self::Snapshot, Self::Service, Self::Node];

    /// Its name as a check.
    fn check(self) -> &'static str {
        match self {
            Self::Class => "move: StorageClasses",
            Self::AttributesClass => "move: VolumeAttributesClasses",
            Self::Volume => "move: PersistentVolumes",
            Self::Snapshot => "move: VolumeSnapshots",
            Self::Service => "move: Services",
            Self::Node => "move: Nodes",
            Self::Program => "move: programs",
        }
    }
}

/// A section of a page that says more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Page {
    /// How disks move.
    Disks,
    /// How the types of snapshots outlive the Go driver's Helm release.
    Snapshots,
    /// How file shares move.
    Shares,
    /// Services and their annotations.
    Services,
    /// Nodes and routes.
    Nodes,
}

impl Page {
    /// Every page.
    pub const ALL: [Self; 5] = [Self::Disks, Self::Snapshots, Self::Shares, Self::Services, Self::Nodes];

    /// The file, and the heading in it.
    fn place(self) -> (&'static str, &'static str) {
        match self {
            Self::Disks => ("deploy/moving.md", "From azuredisk-csi-driver"),
            Self::Snapshots => ("deploy/moving.md", "Keep the snapshots"),
            Self::Shares => ("deploy/moving.md", "From azurefile-csi-driver"),
            Self::Services => ("deploy/services-and-nodes.md", "Services of type LoadBalancer"),
            Self::Nodes => ("deploy/services-and-nodes.md", "Nodes and routes"),
        }
    }
}

impl std::fmt::Display for Page {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (file, heading) = self.place();
        write!(f, "{file}, {heading}")
    }
}

/// What becomes of something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It is served as before.
    Equal,
    /// It is served, and this is different.
    Differs(String),
    /// It is not served as it is.
    Refused(String),
    /// What decides about it was not looked at.
    Unseen(String),
}

impl Verdict {
    /// The verdict on what is served with these warnings.
    fn with(warnings: Vec<String>) -> Self {
        if warnings.is_empty() { Self::Equal } else { Self::Differs(warnings.join("; ")) }
    }
}

/// A verdict on an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judged {
    /// What it is.
    pub subject: Subject,
    /// Which one.
    pub name: String,
    /// What becomes of it.
    pub verdict: Verdict,
    /// Where more is said.
    pub page: Page,
}

/// A finding for each verdict that is not [`Verdict::Equal`], where many objects of one verdict share a finding, and one for
/// those that are, of each subject; and what was not there to be judged.
pub fn findings(judged: &[Judged]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for subject in Subject::ALL {
        let of_subject: Vec<&Judged> = judged.iter().filter(|one| one.subject == subject).collect();
        let equal: Vec<&str> =
            of_subject.iter().filter(|one| one.verdict == Verdict::Equal).map(|one| one.name.as_str()).collect();
        if !equal.is_empty() {
            let text = format!("{} served equally: {}", counted(equal.len()), some(&equal));
            findings.push(Finding::new(subject.check(), Grade::Fine, text));
        }
        if of_subject.is_empty() {
            findings.push(Finding::new(subject.check(), Grade::Fine, "there is none of the Go projects"));
        }
        // Many of one cause are one sentence.
        let mut causes: Vec<(&Verdict, Page, Vec<&str>)> = Vec::new();
        for one in of_subject.iter().filter(|one| one.verdict != Verdict::Equal) {
            match causes.iter_mut().find(|(verdict, page, _)| **verdict == one.verdict && *page == one.page) {
                Some((_, _, names)) => names.push(&one.name),
                None => causes.push((&one.verdict, one.page, vec![&one.name])),
            }
        }
        for (verdict, page, names) in causes {
            let (grade, what, why) = match verdict {
                Verdict::Refused(why) => (Grade::Wrong, "refused", why.as_str()),
                Verdict::Differs(why) => (Grade::Note, "differs", why.as_str()),
                Verdict::Unseen(why) => (Grade::Unseen, "not looked at", why.as_str()),
                Verdict::Equal => continue,
            };
            let text = format!("{what}: {}: {why} (see {page})", some(&names));
            findings.push(Finding::new(subject.check(), grade, text));
        }
    }
    findings
}

fn counted(count: usize) -> String {
    if count == 1 { "1 is".to_owned() } else { format!("{count} are") }
}

/// What no check of this module looks at.
pub fn not_looked_at() -> Finding {
    let text = "not looked at: volumes that Pods name themselves (csi, azureDisk, azureFile), the Secrets that volumes name, and \
                VolumeSnapshots without a VolumeSnapshotContent";
    Finding::new("move: the rest", Grade::Unseen, text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_page_that_is_named_has_its_heading() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for page in Page::ALL {
            let (file, heading) = page.place();
            let text = std::fs::read_to_string(root.join(file)).unwrap();
            let is_heading = |line: &str| line.starts_with('#') && line.trim_start_matches(['#', ' ']) == heading;
            assert!(text.lines().any(is_heading), "{file} has no heading {heading:?}");
        }
    }

    #[test]
    fn what_is_equal_is_one_sentence_and_each_cause_another() {
        let of = |name: &str, is_machine| {
            node(name, Facts { is_machine, size: Some("Standard_B2s"), system: None, nvme: None })
        };
        let judged = [of("a", Some(true)), of("b", None), of("c", None), of("d", Some(false))];
        let found = findings(&judged);
        let of_nodes: Vec<(Grade, &str)> =
            found.iter().filter(|one| one.check == "move: Nodes").map(|one| (one.grade, one.text.as_str())).collect();
        assert_eq!(of_nodes[0], (Grade::Fine, "1 is served equally: a"));
        assert!(of_nodes[1].0 == Grade::Note && of_nodes[1].1.starts_with("differs: b, c: it has no provider id"));
        assert!(of_nodes[1].1.ends_with("(see deploy/services-and-nodes.md, Nodes and routes)") && of_nodes.len() == 3);
        assert_eq!(found.iter().filter(|one| one.text == "there is none of the Go projects").count(), 6);
    }

    fn verdicts() -> impl Strategy<Value = Verdict> {
        prop_oneof![
            Just(Verdict::Equal),
            "[ab]".prop_map(Verdict::Differs),
            "[ab]".prop_map(Verdict::Refused),
            "[ab]".prop_map(Verdict::Unseen)
        ]
    }

    proptest! {
        #[test]
        fn every_object_is_counted_once_and_only_what_is_refused_is_wrong(
            all in proptest::collection::vec((0_usize..7, verdicts()), 0..20)
        ) {
            let judged: Vec<Judged> = all
                .iter()
                .enumerate()
                .map(|(at, (subject, verdict))| Judged {
                    subject: Subject::ALL[*subject],
                    name: format!("n{at}"),
                    verdict: verdict.clone(),
                    page: Page::Disks,
                })
                .collect();
            let found = findings(&judged);
            let refused = judged.iter().any(|one| matches!(one.verdict, Verdict::Refused(_)));
            prop_assert_eq!(found.iter().any(|one| one.grade == Grade::Wrong), refused);
            let unseen = judged.iter().any(|one| matches!(one.verdict, Verdict::Unseen(_)));
            prop_assert_eq!(found.iter().any(|one| one.grade == Grade::Unseen), unseen);
            for subject in Subject::ALL {
                let equal = judged.iter().filter(|one| one.subject == subject && one.verdict == Verdict::Equal).count();
                let said = found.iter().any(|one| one.check == subject.check() && one.text.starts_with(&counted(equal)));
                prop_assert_eq!(said, equal > 0);
                prop_assert!(found.iter().any(|one| one.check == subject.check()));
            }
        }
    }
}
