//! The queue, by example and against a simulated Azure.

mod ceilings;
mod simulation;
mod windows;

use proptest::prelude::*;

use super::*;

const VM: &str = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/v";
const DISK: &str = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/d";

fn scope(direction: Direction, path: &str) -> Scope {
    Scope::of(direction, path).unwrap()
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A successful answer that reports what the front door's bucket of this client holds.
fn left(own: u32) -> Remaining {
    Remaining { own: Some(own), succeeded: true, ..Remaining::default() }
}

#[test]
fn subscriptions_that_are_asked_once_leave_nothing_behind() {
    let mut permits = Permits::default();
    let mut now = Duration::ZERO;
    let mut most = 0;
    for n in 0..10_000 {
        let disk = format!("/subscriptions/{n}/resourceGroups/g/providers/Microsoft.Compute/disks/d");
        let ticket = permits.request(scope(Direction::Reads, &disk), Priority::Read, now);
        assert_eq!(permits.step(now).granted, [ticket]);
        permits.answered(ticket, &Remaining { succeeded: false, ..Remaining::default() }, now);
        most = most.max(permits.doors.len() + permits.policies.len());
        now += ms(10);
    }
    assert!(most <= 2 * KEPT_DOORS, "{most}");
}

#[test]
fn a_subscription_in_use_keeps_its_buckets_however_many_others_are_asked() {
    // Nothing is left in the bucket, and one request is under way.
    let mut permits = with(Direction::Reads, 0);
    let waiting = permits.request(scope(Direction::Reads, DISK), Priority::Read, Duration::ZERO);
    for n in 0..1_000 {
        let disk = format!("/subscriptions/other-{n}/resourceGroups/g/providers/Microsoft.Compute/disks/d");
        let ticket = permits.request(scope(Direction::Reads, &disk), Priority::Read, Duration::ZERO);
        assert_eq!(permits.step(Duration::ZERO).granted, [ticket]);
        permits.lost(ticket, Duration::ZERO);
    }
    assert_eq!(permits.step(Duration::ZERO).granted, []);
    assert_eq!(drain(&mut permits, Duration::ZERO), [waiting]);
}

/// A queue after an answer at time zero that reported so many tokens, with nothing in flight.
fn with(direction: Direction, tokens: u32) -> Permits {
    let mut permits = Permits::default();
    let ticket = permits.request(scope(direction, DISK), Priority::Read, Duration::ZERO);
    assert_eq!(permits.step(Duration::ZERO).granted, [ticket]);
    permits.answered(ticket, &left(tokens), Duration::ZERO);
    permits
}

const PRIORITIES: [Priority; 7] = [
    Priority::DetachDeadNode,
    Priority::Poll,
    Priority::Detach,
    Priority::Attach,
    Priority::Create,
    Priority::Read,
    Priority::List,
];

/// The waiting requests in the order in which they are granted.
fn drain(permits: &mut Permits, mut now: Duration) -> Vec<Ticket> {
    let mut granted = Vec::new();
    loop {
        let step = permits.step(now);
        // Tokens come one after the other, and each is granted at once.
        assert!(step.granted.len() <= 1, "{step:?}");
        granted.extend(step.granted);
        match step.wake_at {
            Some(wake_at) => now = wake_at,
            None => return granted,
        }
    }
}

proptest! {
    #[test]
    fn waiting_requests_go_by_priority_then_by_arrival(
        requests in prop::collection::vec((0usize..7, 0usize..7, 0u32..10), 1..60),
    ) {
        let mut permits = with(Direction::Writes, 0);
        let mut order = Vec::new();
        let writes = || scope(Direction::Writes, DISK);
        for (asked, raised, leaves) in requests {
            let ticket = permits.request(writes(), PRIORITIES[asked], Duration::ZERO);
            // A lower priority changes nothing.
            permits.raise(ticket, PRIORITIES[raised]);
            match leaves {
                0 => permits.leave(ticket),
                _ => order.push((PRIORITIES[asked.min(raised)], ticket)),
            }
        }
        order.sort();
        prop_assert_eq!(permits.waiting(Direction::Writes), order.len());
        let order: Vec<Ticket> = order.into_iter().map(|(_, ticket)| ticket).collect();
        prop_assert_eq!(drain(&mut permits, Duration::ZERO), order);
    }
}

#[test]
fn a_write_that_gathers_lets_creations_pass_for_four_seconds() {
    let mut permits = with(Direction::Writes, 0);
    let ask =
        |permits: &mut Permits, priority| permits.request(scope(Direction::Writes, DISK), priority, Duration::ZERO);
    let gathers = ask(&mut permits, Priority::Gather);
    let creations: Vec<Ticket> = (0..100).map(|_| ask(&mut permits, Priority::Create)).collect();
    let estimate = permits.would_wait(&scope(Direction::Writes, VM), Priority::Gather, Duration::ZERO);
    assert_eq!(estimate, LONGEST_GATHERING);
    let granted = drain(&mut permits, Duration::ZERO);
    // Azure gives ten tokens a second.
    let place = granted.iter().position(|ticket| *ticket == gathers).unwrap();
    assert!((39..=41).contains(&place), "{place}");
    assert_eq!(granted.len(), 101);
    assert_eq!(granted.into_iter().filter(|ticket| *ticket != gathers).collect::<Vec<_>>(), creations);
}

#[test]
fn a_write_that_gathers_goes_at_once_where_no_creation_waits() {
    let mut permits = with(Direction::Writes, 1);
    let gathers = permits.request(scope(Direction::Writes, DISK), Priority::Gather, Duration::ZERO);
    let step = permits.step(Duration::ZERO);
    assert_eq!((step.granted, step.wake_at), (vec![gathers], None));
}

#[test]
fn a_detach_from_a_dead_node_waits_for_one_refill_behind_any_number_of_others() {
    let mut permits = with(Direction::Writes, 0);
    for priority in PRIORITIES[1..].iter().cycle().take(10_000) {
        permits.request(scope(Direction::Writes, DISK), *priority, Duration::ZERO);
    }
    let detach = permits.request(scope(Direction::Writes, VM), Priority::DetachDeadNode, Duration::ZERO);
    let estimate = permits.would_wait(&scope(Direction::Writes, VM), Priority::DetachDeadNode, Duration::ZERO);
    let wake_at = permits.step(Duration::ZERO).wake_at.unwrap();
    assert!(wake_at <= ms(101), "{wake_at:?}");
    assert_eq!(permits.step(wake_at).granted, [detach]);
    // The estimate is for one more request of that priority. A list would wait for all others.
    assert!(estimate > ms(199) && estimate < ms(202), "{estimate:?}");
    let last = permits.would_wait(&scope(Direction::Writes, DISK), Priority::List, wake_at);
    assert!(last > Duration::from_secs(1_000), "{last:?}");
}

#[test]
fn each_direction_and_subscription_has_a_bucket_of_its_own() {
    let mut permits = with(Direction::Reads, 0);
    let stranger = DISK.replace("/s/", "/other/");
    let now = Duration::ZERO;
    let waits = permits.request(scope(Direction::Reads, DISK), Priority::DetachDeadNode, now);
    let free = [(Direction::Writes, DISK), (Direction::Deletes, DISK), (Direction::Reads, stranger.as_str())];
    let free = free.map(|(direction, path)| permits.request(scope(direction, path), Priority::List, now));
    let granted = permits.step(now).granted;
    assert!(!granted.contains(&waits) && free.iter().all(|ticket| granted.contains(ticket)), "{granted:?}");
    assert!(permits.level(&scope(Direction::Reads, VM), now) < 0.01);
    assert!(permits.level(&scope(Direction::Writes, VM), now) >= 1.0);
}

#[test]
fn before_azure_reports_what_remains_few_requests_are_in_flight() {
    let mut permits = Permits::default();
    let reads = || scope(Direction::Reads, DISK);
    let tickets: Vec<Ticket> = (0..300).map(|_| permits.request(reads(), Priority::Read, Duration::ZERO)).collect();
    let step = permits.step(Duration::ZERO);
    assert_eq!((step.granted.as_slice(), step.wake_at), (&tickets[..8], None));
    // A lost answer, an answer of the front door itself and a refund report nothing.
    permits.lost(tickets[0], ms(50));
    permits.answered(tickets[1], &Remaining::default(), ms(50));
    permits.refund(tickets[2], ms(50));
    assert_eq!(permits.step(ms(50)).granted, tickets[8..11]);
    // 100 remained when Azure counted this one. The requests in flight may not have been counted yet.
    permits.answered(tickets[3], &left(100), ms(50));
    let granted = permits.step(ms(50)).granted.len();
    assert!((90..=93).contains(&granted), "{granted}");
}

#[test]
fn an_azure_that_reports_nothing_is_limited_by_its_pauses_alone() {
    let mut permits = Permits::default();
    let silent = Remaining { succeeded: true, ..Remaining::default() };
    let writes = || scope(Direction::Writes, VM);
    let first = permits.request(writes(), Priority::Attach, Duration::ZERO);
    permits.step(Duration::ZERO);
    permits.answered(first, &silent, Duration::ZERO);
    for _ in 0..1_000 {
        permits.request(writes(), Priority::Attach, Duration::ZERO);
    }
    let granted = permits.step(Duration::ZERO).granted;
    assert_eq!(granted.len(), 1_000);
    let pause = Duration::from_secs(5);
    permits.throttled(granted[0], &Remaining::default(), &Refusal::FrontDoor, Some(pause), Duration::ZERO);
    permits.request(writes(), Priority::Attach, Duration::ZERO);
    assert_eq!(permits.step(Duration::ZERO), Step { granted: vec![], wake_at: Some(pause) });
    assert_eq!(permits.step(pause).granted.len(), 1);
}

#[test]
fn a_refusal_of_an_accounts_data_service_pauses_all_requests_to_it_and_no_other() {
    let mut permits = Permits::default();
    let [one, other] = ["a1.blob.x", "a2.blob.x"].map(Scope::of_data);
    let now = Duration::ZERO;
    let first = permits.request(one.clone(), Priority::Create, now);
    assert_eq!(permits.step(now).granted, [first]);
    let pause = Duration::from_secs(5);
    permits.throttled(first, &Remaining::default(), &Refusal::FrontDoor, Some(pause), now);
    let waits = permits.request(Scope::of_data("A1.Blob.x"), Priority::Poll, now);
    let free = [other, scope(Direction::Writes, DISK)].map(|scope| permits.request(scope, Priority::List, now));
    assert_eq!(permits.step(now), Step { granted: free.into(), wake_at: Some(pause) });
    assert_eq!((permits.paused(&one, now), permits.paused(&one, pause)), (pause, Duration::ZERO));
    assert_eq!(permits.step(pause).granted, [waits]);
}

proptest! {
    #[test]
    fn of_an_account_so_many_requests_are_in_flight_at_most_and_none_waits_without_need(
        events in prop::collection::vec((0..3_usize, 0..4_u8, any::<prop::sample::Index>()), 0..600),
    ) {
        let most = MOST_IN_FLIGHT_OF_ACCOUNT as usize;
        let mut permits = Permits::default();
        let (mut waiting, mut in_flight) = ([0; 3], [const { Vec::new() }; 3]);
        let mut accounts = BTreeMap::new();
        for (n, (account, event, at)) in events.into_iter().enumerate() {
            let now = ms(n as u64);
            match event {
                0 | 1 => {
                    let scope = Scope::of_data(&format!("a{account}.blob.x"));
                    accounts.insert(permits.request(scope, Priority::Create, now), account);
                    waiting[account] += 1;
                }
                _ if in_flight[account].is_empty() => {}
                _ => {
                    let index = at.index(in_flight[account].len());
                    let ticket = in_flight[account].swap_remove(index);
                    match n % 3 {
                        0 => permits.answered(ticket, &Remaining { succeeded: true, ..Remaining::default() }, now),
                        1 => permits.lost(ticket, now),
                        _ => permits.refund(ticket, now),
                    }
                }
            }
            let step = permits.step(now);
            prop_assert_eq!(step.wake_at, None);
            for ticket in step.granted {
                in_flight[accounts[&ticket]].push(ticket);
                waiting[accounts[&ticket]] -= 1;
            }
            for (waiting, in_flight) in waiting.iter().zip(&in_flight) {
                prop_assert!(in_flight.len() <= most && (*waiting == 0 || in_flight.len() == most));
            }
        }
    }
}

#[test]
fn the_bucket_that_all_clients_share_limits_too() {
    let mut permits = with(Direction::Reads, 249);
    let ticket = permits.request(scope(Direction::Reads, DISK), Priority::Read, Duration::ZERO);
    permits.step(Duration::ZERO);
    permits.answered(ticket, &Remaining { global: Some(3), ..left(248) }, Duration::ZERO);
    for _ in 0..10 {
        permits.request(scope(Direction::Reads, DISK), Priority::Read, Duration::ZERO);
    }
    assert_eq!(permits.step(Duration::ZERO).granted.len(), 3);
    assert!(permits.level(&scope(Direction::Reads, DISK), Duration::ZERO) < 0.01);
}

/// The table has no row for disks, nor for Azure's older policy names.
#[test]
fn a_bucket_of_an_unknown_name_slows_its_own_resource_type_for_ten_seconds_at_most() {
    let mut permits = with(Direction::Writes, 199);
    let report = |policy: &str, remaining| Remaining { provider: vec![(policy.into(), remaining)], ..left(199) };
    let mut answer = |policy, remaining| {
        let ticket = permits.request(scope(Direction::Writes, DISK), Priority::Create, Duration::ZERO);
        permits.step(Duration::ZERO);
        permits.answered(ticket, &report(policy, remaining), Duration::ZERO);
    };
    // A small bucket belongs to one resource and limits nothing.
    answer("Microsoft.Compute/PutDiskResource", 11);
    answer("Microsoft.Compute/PutDiskResource", 0);
    answer("Microsoft.Compute/PutDisk3Min", 239);
    answer("Microsoft.Compute/PutDisk3Min", 2);
    for _ in 0..50 {
        permits.request(scope(Direction::Writes, DISK), Priority::Create, Duration::ZERO);
    }
    let other = permits.request(scope(Direction::Writes, VM), Priority::Create, Duration::ZERO);
    let step = permits.step(Duration::ZERO);
    assert_eq!((step.granted.len(), step.wake_at), (3, Some(Duration::from_secs(1))));
    assert!(step.granted.contains(&other));
    assert_eq!(permits.step(Duration::from_secs(1)).granted.len(), 1);
    // After ten seconds a request is sent all the same; its answer reports what remains then.
    assert_eq!(permits.step(LONGEST_OBSERVED).granted.len(), 47);
}

#[test]
fn buckets_of_single_resources_are_forgotten_when_they_are_full_again() {
    let mut permits = Permits::default();
    let report = Remaining { provider: vec![("Microsoft.Compute/UpdateVMResource".into(), 11)], ..left(5_000) };
    for n in 0..20_000_u64 {
        let now = Duration::from_secs(n);
        let ticket = permits.request(scope(Direction::Writes, &format!("{VM}{n}")), Priority::Attach, now);
        assert_eq!(permits.step(now).granted, [ticket]);
        permits.answered(ticket, &report, now);
    }
    assert!(permits.limits.len() <= KEPT_FULL + 1, "{}", permits.limits.len());
    assert!(permits.granted.is_empty() && permits.waiting.is_empty());
}

#[test]
fn a_429_pauses_its_own_scope_until_its_time_is_over() {
    let pause = Duration::from_secs(20);
    let other_vm = VM.replace("/v", "/w").replace("/wirtualMachines", "/virtualMachines");
    // The front door, a policy of the subscription, the bucket of one VM by name, and no name at all.
    for (refusal, holds_other_vm, holds_disks) in [
        (Refusal::FrontDoor, true, true),
        (Refusal::Policy("UpdateVM".into()), true, false),
        (Refusal::Policy("UpdateVMSubscriptionMaximum".into()), true, false),
        (Refusal::Policy("Microsoft.Compute/UpdateVMResource".into()), false, false),
        (Refusal::UnnamedPolicy, false, false),
        (Refusal::Resource, false, false),
    ] {
        let mut permits = with(Direction::Writes, 100);
        let now = Duration::from_secs(1);
        let ticket = permits.request(scope(Direction::Writes, VM), Priority::Attach, now);
        permits.step(now);
        permits.throttled(ticket, &Remaining::default(), &refusal, Some(pause), now);
        let paused = |direction, path: &str, now| permits.paused(&scope(direction, path), now);
        assert_eq!(paused(Direction::Writes, VM, now), pause);
        assert_eq!(paused(Direction::Writes, &other_vm, now) == pause, holds_other_vm, "{refusal:?}");
        assert_eq!(paused(Direction::Writes, DISK, now) == pause, holds_disks, "{refusal:?}");
        assert_eq!(paused(Direction::Reads, VM, now), Duration::ZERO);
        assert_eq!(paused(Direction::Writes, VM, now + pause), Duration::ZERO);
        let waits = permits.request(scope(Direction::Writes, VM), Priority::Attach, now);
        let step = permits.step(now);
        assert!(step.granted.is_empty() && step.wake_at >= Some(now + pause), "{step:?}");
        assert_eq!(permits.step(now + pause + ms(500)).granted, [waits], "{refusal:?}");
    }
}

#[test]
fn a_request_held_back_by_its_own_vm_lets_others_pass() {
    let mut permits = with(Direction::Writes, 200);
    let vm = |n: u32| scope(Direction::Writes, &format!("{VM}{n}"));
    for _ in 0..20 {
        permits.request(vm(0), Priority::DetachDeadNode, Duration::ZERO);
    }
    let others: Vec<Ticket> = (1..=20).map(|n| permits.request(vm(n), Priority::Attach, Duration::ZERO)).collect();
    let step = permits.step(Duration::ZERO);
    // A machine takes twelve writes and then four a minute.
    assert_eq!(step.granted.len(), 12 + others.len());
    assert!(others.iter().all(|ticket| step.granted.contains(ticket)));
    // The estimate refills when the first of them must have arrived.
    let wake_at = step.wake_at.unwrap();
    assert!(wake_at > Duration::from_secs(15) && wake_at < Duration::from_secs(20), "{wake_at:?}");
}
