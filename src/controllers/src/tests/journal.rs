//! What the journal has of Services.

use lazuli_emulator::incident::{Effect, Incident, Match};
use lazuli_journal::{Key, Other, Recorder, Standing, Story, Subject, Word};

use super::*;

fn story(journal: &Recorder, subject: Subject, name: &str) -> Story {
    journal.look(|journal| journal.story_of(&Key::new(subject, name))).flatten().expect("it has records")
}

#[tokio::test(start_paused = true)]
async fn a_served_service_waits_for_nothing_and_a_throttled_one_for_its_load_balancer() {
    let rig = Rig::start().await;
    rig.service("web");
    let stop = CancellationToken::new();
    let start = Instant::now();
    let journal = Recorder::new(move || start.elapsed());
    let controller = rig.recorded("one", None, &stop, journal.clone());
    let running = tokio::spawn(controller.run(stop.clone()));
    rig.addresses("web").await;
    sleep(Duration::from_secs(20)).await;
    let web = story(&journal, Subject::Service, "default/web");
    assert_eq!((web.standing, web.open().len()), (Standing::Settled, 0));
    let words: Vec<Word> = web.records.iter().map(|record| record.word).collect();
    let steps = [Word::Shown, Word::AddsFinalizer, Word::Patched, Word::Tells, Word::ObjectDone, Word::SetsStatus];
    let mut rest = words.iter();
    assert!(steps.iter().all(|step| rest.any(|word| word == step)), "{words:?}");
    assert!(words.ends_with(&[Word::ReportsDone, Word::AwaitsNothing]), "{words:?}");
    let balancer = rig.settings.load_balancer_id("kubernetes").unwrap();
    assert_eq!(story(&journal, Subject::LoadBalancer, balancer.as_str()).standing, Standing::Settled);

    let matching =
        Match { method: Some("PUT".to_owned()), path: Some("*/loadBalancers/*".to_owned()), ..Match::default() };
    let then = Effect { status: Some(429), retry_after: Some(30), ..Effect::default() };
    rig.emulator.control().add_incident(Incident { matching, then, times: 0 }).unwrap();
    rig.service("late");
    sleep(Duration::from_secs(80)).await;
    let late = story(&journal, Subject::Service, "default/late");
    let open = late.open();
    let [record] = &open[..] else { panic!("{open:?}") };
    assert_eq!((record.word, record.number), (Word::ObjectRetries, Some(30)));
    assert_eq!(record.cause, Some("Azure gets too many requests"));
    assert_eq!(record.other, Other::Named(Subject::LoadBalancer, balancer.as_str().into()));
    let of_balancer = story(&journal, Subject::LoadBalancer, balancer.as_str());
    assert_eq!(of_balancer.open().iter().map(|record| record.word).collect::<Vec<_>>(), [Word::AwaitsPause]);
    // What was there before waits for nothing all the while.
    assert_eq!(story(&journal, Subject::Service, "default/web").standing, Standing::Settled);

    rig.emulator.control().clear_incidents();
    rig.addresses("late").await;
    sleep(Duration::from_secs(20)).await;
    assert_eq!(story(&journal, Subject::Service, "default/late").standing, Standing::Settled);
    assert_eq!(journal.lines_of_unsettled(9), Vec::<String>::new());
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_replica_without_the_lease_says_that_it_waits_for_it() {
    let rig = Rig::start().await;
    let (stop, running) = rig.controller("one");
    sleep(Duration::from_secs(5)).await;
    let start = Instant::now();
    let journal = Recorder::new(move || start.elapsed());
    let other = CancellationToken::new();
    let standby = tokio::spawn(rig.recorded("two", None, &other, journal.clone()).run(other.clone()));
    rig.service("web");
    rig.addresses("web").await;
    rig.service("late");
    sleep(Duration::from_secs(2)).await;
    for name in ["default/web", "default/late"] {
        let story = story(&journal, Subject::Service, name);
        let open: Vec<Word> = story.open().iter().map(|record| record.word).collect();
        assert!(open.contains(&Word::AwaitsLease), "{}", story.lines().join("\n"));
    }
    stop.cancel();
    running.await.unwrap();
    other.cancel();
    standby.await.unwrap();
}
