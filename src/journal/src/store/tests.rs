use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn at(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

fn disk(number: usize) -> String {
    format!(
        "/subscriptions/6f8b9080-0000-4000-8000-000000000000/resourceGroups/mc_cluster/providers/Microsoft.Compute/disks/pvc-{number:08}"
    )
}

fn key(subject: Subject, name: &str) -> Key<'_> {
    Key::new(subject, name)
}

/// Every list, chain and count is whole.
fn check(journal: &Journal) {
    let mut seen_chunks = vec![false; journal.chunks.len()];
    let mut in_lists = 0;
    for rank in Rank::ALL {
        let (mut before, mut next) = (NONE, journal.ranks[rank as usize].first);
        while next != NONE {
            let entry = &journal.keys[usize::from(next)];
            assert_eq!((entry.before, entry.rank), (before, rank));
            assert_eq!(journal.rank_of(next), rank);
            let (mut chunk, mut count) = (entry.oldest, 0);
            while chunk != NONE {
                assert!(!std::mem::replace(&mut seen_chunks[usize::from(chunk)], true), "a chunk has two keys");
                let Chunk { len, newer, .. } = journal.chunks[usize::from(chunk)];
                assert!((1..=CHUNK).contains(&usize::from(len)));
                assert!(newer == NONE || usize::from(len) == CHUNK, "only the newest chunk has room");
                assert_eq!(newer == NONE, chunk == entry.newest);
                (chunk, count) = (newer, count + 1);
            }
            assert_eq!(count, entry.chunks);
            assert!((1..=MOST).contains(&count));
            let times: Vec<Duration> = journal.records(next).map(Record::at).collect();
            assert!(times.is_sorted(), "{times:?}");
            (before, next, in_lists) = (next, entry.after, in_lists + 1);
        }
        assert_eq!(journal.ranks[rank as usize].last, before);
    }
    assert_eq!(in_lists, journal.names.len());
    assert!(seen_chunks.iter().all(|seen| *seen), "a chunk is lost");
    assert!(journal.chunks.len() <= usize::from(journal.limit));
    assert!(journal.bytes() <= LIMIT);
    let named = |at: &u16| {
        let entry = &journal.keys[usize::from(*at)];
        (entry.subject, entry.name.as_deref().expect("a key has a name"))
    };
    assert!(journal.names.windows(2).all(|pair| compare(named(&pair[0]), named(&pair[1])) == Ordering::Less));
}

#[test]
fn of_five_thousand_waiting_disks_each_keeps_three_records_what_was_asked_among_them() {
    let mut journal = Journal::default();
    let names: Vec<String> = (0..5_000).map(disk).collect();
    let machines: Vec<String> = (0..2_000).map(|number| format!("/vms/node-{number}")).collect();
    let mut now = 0;
    let mut note = |subject, name: &str, note: Note<'_>| {
        now += 1;
        journal.note(at(now), &key(subject, name), &note);
    };
    for round in 0..6_u32 {
        // What is settled is many times as much, and goes first.
        for number in 0..4_000 {
            note(Subject::Service, &format!("default/service-{number}"), Word::ReportsDone.number(round));
        }
        for (number, name) in names.iter().enumerate() {
            let vm = key(Subject::Vm, &machines[number % machines.len()]);
            match round {
                0 => note(Subject::Disk, name, Word::AttachAsked.about(vm)),
                _ => note(Subject::Disk, name, Word::AwaitsPause.number(round)),
            }
        }
        for machine in &machines {
            note(Subject::Vm, machine, Word::AwaitsPermit.number(round));
        }
    }
    check(&journal);
    for name in &names {
        let story = journal.story_of(&key(Subject::Disk, name)).expect("a waiting disk is remembered");
        let said: Vec<(Word, Option<u32>)> = story.records.iter().map(|record| (record.word, record.number)).collect();
        assert_eq!(said[0], (Word::AttachAsked, None), "{name}");
        assert_eq!(said[said.len() - 2..], [(Word::AwaitsPause, Some(4)), (Word::AwaitsPause, Some(5))], "{name}");
        assert_eq!((story.standing, story.since < at(20_000)), (Standing::Waits, true));
    }
    assert!(journal.bytes() > LIMIT * 9 / 10, "{}", journal.bytes());
}

#[test]
fn a_small_cluster_costs_little() {
    let mut journal = Journal::default();
    for number in 0..50 {
        journal.note(at(1), &key(Subject::Disk, &disk(number)), &Word::CreateAsked.into());
    }
    assert!(journal.bytes() < 16 * 1024, "{}", journal.bytes());
}

#[test]
fn names_that_differ_in_letter_case_name_one_object_and_ends_of_names_find_it() {
    let mut journal = Journal::default();
    journal.note(at(1), &key(Subject::Disk, &disk(1)), &Word::CreateAsked.into());
    journal.note(at(2), &key(Subject::Disk, &disk(1).to_uppercase()), &Word::Answered.into());
    journal.note(at(3), &key(Subject::Service, "default/web"), &Word::Shown.into());
    journal.note(at(3), &key(Subject::Service, "other/web"), &Word::Shown.into());
    assert_eq!(journal.len(), 3);
    let found = |name: &str, most| {
        let (stories, more) = journal.stories(&[Subject::Disk, Subject::Service], name, most);
        (stories.iter().map(|story| story.name.to_string()).collect::<Vec<_>>(), more)
    };
    assert_eq!(found("PVC-00000001", 9), (vec![disk(1)], 0));
    assert_eq!(found("vc-00000001", 9), (vec![], 0));
    assert_eq!(found("", 9), (vec![], 0));
    assert_eq!(found("web", 9), (vec!["default/web".to_owned(), "other/web".to_owned()], 0));
    assert_eq!(found("web", 1), (vec!["default/web".to_owned()], 1));
    assert_eq!(found("default/web", 9), (vec!["default/web".to_owned()], 0));
    assert_eq!(journal.stories(&[Subject::Node], "web", 9), (vec![], 0));
}

#[test]
fn a_name_that_is_longer_than_any_id_is_not_kept() {
    let mut journal = Journal::default();
    let long = "n".repeat(LONGEST_NAME + 1);
    journal.note(at(1), &key(Subject::Node, &long), &Word::Shown.into());
    journal.note(at(1), &key(Subject::Disk, "d"), &Word::AttachAsked.about(key(Subject::Node, &long)));
    let story = journal.story_of(&key(Subject::Disk, "d")).expect("is known");
    assert_eq!((journal.len(), &story.records[0].other), (1, &Other::Forgotten));
}

#[test]
fn what_an_object_waits_for_is_the_newest_open_record_of_each_other_object_and_of_itself() {
    let mut journal = Journal::default();
    let service = key(Subject::Service, "default/web");
    let (balancer, group) = (key(Subject::LoadBalancer, "lb"), key(Subject::SecurityGroup, "nsg"));
    let mut note = |note: Note<'_>| {
        journal.note(at(1), &service, &note);
        let open = journal.story_of(&service).expect("it is known");
        open.open().iter().map(|record| record.word).collect::<Vec<_>>()
    };
    assert_eq!(note(Word::Shown.into()), []);
    assert_eq!(note(Word::AwaitsPatch.into()), [Word::AwaitsPatch]);
    assert_eq!(note(Word::Tells.about(balancer.clone())), [Word::AwaitsPatch, Word::Tells]);
    assert_eq!(note(Word::AwaitsObjects.into()), [Word::Tells]);
    assert_eq!(note(Word::Tells.about(group.clone())), [Word::Tells, Word::Tells]);
    assert_eq!(note(Word::ObjectRetries.about(balancer.clone())), [Word::Tells, Word::ObjectRetries]);
    assert_eq!(note(Word::ObjectDone.about(group)), [Word::ObjectRetries]);
    assert_eq!(note(Word::ReportsRetry.about(balancer)), []);
    assert_eq!(note(Word::ReportsDone.into()), []);
}

#[test]
fn a_note_has_room_for_no_text_but_names_and_the_programs_own_words() {
    let mut journal = Journal::default();
    for number in 0..2 * REASONS {
        let reason: &'static str = Box::leak(format!("reason-{number}").into_boxed_str());
        let note = Note::from(Word::ObjectRefusedByPlan).because(reason);
        journal.note(at(1), &key(Subject::Service, &format!("s/{number}")), &note);
    }
    let cause = |number: usize| {
        let story = journal.story_of(&key(Subject::Service, &format!("s/{number}"))).expect("is known");
        story.records[0].cause
    };
    assert_eq!((cause(0), cause(REASONS - 1)), (Some("reason-0"), Some(&*format!("reason-{}", REASONS - 1))));
    assert_eq!(cause(REASONS), None, "there is room for so many");
}

/// Something noted in a random schedule: of which key, a word, a number, and of which other key.
type Noted = (u8, usize, u8, Option<u8>);

fn noted() -> impl Strategy<Value = Vec<Noted>> {
    let one = (0..24_u8, 0..Word::ALL.len(), 0..3_u8, proptest::option::weighted(0.4, 0..24_u8));
    proptest::collection::vec(one, 1..400)
}

/// Of each third number a VM.
fn subject_of(number: u8) -> Subject {
    [Subject::Vm, Subject::Disk, Subject::Service][usize::from(number % 3)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_noted_the_store_is_whole_and_within_its_limit_and_keeps_the_newest(
        all in noted(),
        limit in 1..40_u16,
    ) {
        let mut journal = Journal::with_limit(limit);
        let mut now = 0;
        for (number, word, argument, other) in all {
            now += 1;
            let names = [number, other.unwrap_or_default()].map(|number| format!("key-{number}"));
            let key = Key::new(subject_of(number), &*names[0]);
            let mut note = Note::from(Word::ALL[word]).number(argument);
            if let Some(other) = other.filter(|other| *other != number) {
                note = note.about(Key::new(subject_of(other), &*names[1]));
            }
            let standings = |journal: &Journal| -> BTreeMap<String, (Standing, Subject, usize)> {
                let (stories, _) = journal.unsettled(100);
                let of = |story: Story| (story.name.to_string(), (story.standing, story.subject, story.records.len()));
                stories.into_iter().map(of).collect()
            };
            let before = standings(&journal);
            journal.note(at(now), &key, &note);
            check(&journal);
            // The newest record is there, unless a settled object had no room at all.
            let story = journal.story_of(&key);
            match &story {
                Some(story) => {
                    let newest = story.records.last().expect("a key has a record");
                    prop_assert_eq!((newest.word, newest.number), (note.word, note.number));
                    // What was asked last outlives all else.
                    if story.standing == Standing::Settled {
                        prop_assert!(story.open().is_empty());
                    }
                }
                None => prop_assert!(!before.contains_key(&names[0])),
            }
            let after = standings(&journal);
            let is_settled = story.is_none_or(|story| story.standing == Standing::Settled);
            let settled_left = journal.ranks[Rank::Settled as usize].first != NONE;
            for (name, (_, subject, records)) in before.iter().filter(|(name, _)| **name != names[0]) {
                let left = after.get(name).map_or(0, |(_, _, records)| *records);
                // A settled object takes nothing from one that waits; nor does any other while a settled one has records.
                prop_assert!(left == *records || (!is_settled && !settled_left) || !is_settled && {
                    // The one that was settled is the key itself, or what it has just named.
                    journal.ranks[Rank::Settled as usize].first == journal.ranks[Rank::Settled as usize].last
                }, "{} had {} and has {}", name, records, left);
                // Three records stay as long as the key does.
                prop_assert!(left == 0 || left >= (*records).min(CHUNK));
                // A VM goes before a disk.
                if left == 0 && *subject != Subject::Vm {
                    prop_assert!(after.iter().all(|(_, (_, subject, records))| *subject != Subject::Vm || *records > CHUNK));
                }
            }
        }
    }

    #[test]
    fn what_was_asked_last_of_a_waiting_object_stays_and_so_do_the_newest_records(
        words in proptest::collection::vec(0..Word::ALL.len(), 1..200),
        limit in 1..20_u16,
    ) {
        let mut journal = Journal::with_limit(limit);
        let key = Key::new(Subject::Disk, "d");
        journal.note(at(0), &key, &Word::AttachAsked.number(0));
        let mut asked = (Word::AttachAsked, 0);
        let mut newest = vec![asked];
        let mut is_settled = false;
        for (number, word) in words.iter().enumerate() {
            let number = u32::try_from(number + 1).expect("fits");
            let word = Word::ALL[*word];
            match word.effect().standing {
                Some(Standing::Settled) => is_settled = true,
                Some(_) => is_settled = false,
                None => {}
            }
            if is_settled || word.folds() || word == Word::Named {
                continue;
            }
            journal.note(at(u64::from(number)), &key, &word.number(number));
            newest.push((word, number));
            if word.group() == Group::Asked {
                asked = (word, number);
            }
            let story = journal.story_of(&key).expect("it waits");
            let said: Vec<(Word, u32)> = story.records.iter().map(|record| (record.word, record.number.expect("has one"))).collect();
            prop_assert!(said.contains(&asked), "{said:?} {asked:?}");
            prop_assert!(said.ends_with(&newest[newest.len().saturating_sub(2)..]));
            prop_assert!(said.len() >= newest.len().min(CHUNK));
        }
    }
}
