//! The journal of a process: of each object the last events, decisions and reasons, in bounded memory, for the question
//! `lazuli why`.
//!
//! ```text
//!   adapters ──note──▶ Recorder ──▶ Journal ──▶ Answer ──a line of JSON──▶ lazuli why ──▶ a page
//!                                     │
//!                                     └──▶ lines in the log at a panic, on stderr at a failed test
//! ```
//!
//! | module | holds |
//! |---|---|
//! | `words` | the table of all words, and what each leaves behind |
//! | `cause` | faults and reasons in a byte |
//! | `note` | what callers write down |
//! | `record` | a record: 16 bytes |
//! | `store` | the bounded store, and who loses records first |
//! | `text` | records as sentences, times, and names that steer no terminal |
//! | `answer` | what a process answers, and how that is printed |
//! | `recorder` | the handle that parts of a process share |
//!
//! # What is in it
//!
//! A record has a time, a word of a fixed table, the cause of a failure, a number and another object. It has no room for
//! text of other programs, so no secret, no message of Azure and no annotation can get into it. The names of objects are
//! kept as they are, and are printed without what a terminal would obey.
//!
//! It never decides anything, and nothing reads it to decide. It has no clock: the caller's [`Recorder`] brings one.
//!
//! # How to write into it
//!
//! ```
//! use lazuli_journal::{Key, Recorder, Word};
//! use lazuli_model::{ArmId, fault::Fault};
//!
//! let start = std::time::Instant::now();
//! let journal = Recorder::new(move || start.elapsed());
//! let disk = ArmId::disk("s", "g", "pvc-1").expect("an id");
//! let vm = ArmId::virtual_machine("s", "g", "node-0").expect("an id");
//! let (disk, vm) = (Key::disk(&disk), Key::vm(&vm));
//!
//! // A request arrives. The disk waits from now on.
//! journal.note(&disk, Word::AttachAsked.about(vm.clone()));
//! journal.note(&vm, Word::DiskAttachAsked.about(disk.clone()));
//! // What was read, and what follows from it.
//! journal.note(&vm, Word::SeenAlone);
//! journal.note(&disk, Word::PlansAttach.about(vm.clone()).number(3));
//! // What is waited for: the newest such word about the same object, or about none, counts.
//! journal.note(&disk, Word::AwaitsPermit.about(vm.clone()));
//! journal.note(&vm, Word::AwaitsPermit);
//! // The write, and its end.
//! journal.note(&disk, Word::WritesAction.about(vm.clone()));
//! journal.note(&disk, Word::WriteRefused.about(vm.clone()).number(429).fault(&Fault::Throttled { retry_after: None }));
//! journal.note(&disk, Word::AwaitsPause.number(30));
//! // The answer settles the disk, or leaves it as failed.
//! journal.note(&disk, Word::AnsweredLun.number(3));
//! ```
//!
//! - A word that asks, waits or fails keeps the records of its object until last. A word that ends settles it. A caller
//!   that leaves an object waiting by mistake costs others their room, so each way out of a request notes its end.
//! - A note costs a lock for about a microsecond. It is made where something happens, not where it is looked at: the same
//!   again counts up and takes no room.
//! - Another word is another line of the table in `words`.

mod answer;
mod cause;
mod note;
mod record;
mod recorder;
mod store;
mod text;
mod words;

pub use answer::{Answer, Leadership, Line, Object, Process, Question, Resolved, Time, Times, Topic};
pub use cause::FaultKind;
pub use note::{Key, Note, Subject};
pub use recorder::{PrintedAtFailure, Recorder};
pub use store::{Journal, LIMIT, Other, RecordView, Story};
pub use text::printable;
pub use words::{Group, Standing, Word};
