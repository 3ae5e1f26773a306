//! The queue against a simulated Azure, whose buckets are written here a second time.

use super::*;

const VM: &str = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/v";
const DISK: &str = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/d";

fn scope(direction: Direction, path: &str) -> Scope {
    Scope::of(direction, path).unwrap()
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A success that tells what the front door has left for this client.
fn left(own: u32) -> Told {
    Told { own: Some(own), succeeded: true, ..Told::default() }
}

/// A queue that has been told of this many tokens, with nothing in flight, at time zero.
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

#[test]
fn waiting_requests_go_by_priority_then_by_arrival() {
    let mut permits = with(Direction::Writes, 0);
    let mut tickets: Vec<(Priority, Ticket)> = Vec::new();
    for priority in PRIORITIES.iter().rev().chain(&PRIORITIES) {
        tickets.push((*priority, permits.request(scope(Direction::Writes, DISK), *priority, Duration::ZERO)));
    }
    tickets.sort();
    let (mut now, mut granted) = (Duration::ZERO, Vec::new());
    while granted.len() < tickets.len() {
        let step = permits.step(now);
        // One token after the other: whoever comes gets the next one, not the one after all who came before.
        assert!(step.granted.len() <= 1);
        granted.extend(step.granted);
        now = step.wake_at.unwrap_or(now);
    }
    assert_eq!(granted, tickets.into_iter().map(|(_, ticket)| ticket).collect::<Vec<_>>());
}

#[test]
fn a_429_pauses_its_own_scope_until_its_time_is_over() {
    let pause = Duration::from_secs(20);
    let other_vm = VM.replace("/v", "/w").replace("/wirtualMachines", "/virtualMachines");
    // The front door, a policy that all machines share, the bucket of one machine by name, and without saying why.
    for (refusal, holds_other_vm, holds_disks) in [
        (Refusal::FrontDoor, true, true),
        (Refusal::Policy("UpdateVM".into()), true, false),
        (Refusal::Policy("UpdateVMSubscriptionMaximum".into()), true, false),
        (Refusal::Policy("Microsoft.Compute/UpdateVMResource".into()), false, false),
        (Refusal::Resource, false, false),
    ] {
        let mut permits = with(Direction::Writes, 100);
        let now = Duration::from_secs(1);
        let ticket = permits.request(scope(Direction::Writes, VM), Priority::Attach, now);
        permits.step(now);
        permits.throttled(ticket, &Told::default(), &refusal, Some(pause), now);
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
fn a_request_that_only_its_own_machine_holds_back_lets_others_pass() {
    let mut permits = with(Direction::Writes, 200);
    let vm = |n: u32| scope(Direction::Writes, &format!("{VM}{n}"));
    for _ in 0..20 {
        permits.request(vm(0), Priority::DetachDeadNode, Duration::ZERO);
    }
    let others: Vec<Ticket> = (1..=20).map(|n| permits.request(vm(n), Priority::Attach, Duration::ZERO)).collect();
    let step = permits.step(Duration::ZERO);
    // A machine takes twelve writes and then four a minute; a hair less than twelve is relied on.
    assert_eq!(step.granted.len(), 11 + others.len());
    assert!(others.iter().all(|ticket| step.granted.contains(ticket)));
    let wake_at = step.wake_at.unwrap();
    assert!(wake_at < ms(300), "{wake_at:?}");
    assert_eq!(permits.step(wake_at).granted.len(), 1);
    assert!(permits.step(wake_at).wake_at.unwrap() > Duration::from_secs(15));
}
