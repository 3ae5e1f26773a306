//! Windows, by example and against a provider that counts what arrives, from whatever moment its windows begin.

use super::{
    super::bucket::{ARRIVAL, SLOWER},
    simulation::Dice,
    *,
};

const ACCOUNT: &str = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Storage/storageAccounts/a";
const SHARE: &str =
    "/subscriptions/s/resourceGroups/g/providers/Microsoft.Storage/storageAccounts/a/fileServices/default/shares/x";
const SHARES: &str =
    "/subscriptions/s/resourceGroups/g/providers/Microsoft.Storage/storageAccounts/a/fileServices/default/shares";
const KEYS: &str = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Storage/storageAccounts/a/listKeys";

/// What the provider counts apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Count {
    Reads,
    Lists,
    Writes,
}

impl Count {
    /// The published limits: so many requests in so many seconds.
    fn limits(self) -> &'static [(usize, u64)] {
        match self {
            Self::Reads => &[(800, 300)],
            Self::Lists => &[(100, 300)],
            Self::Writes => &[(10, 1), (1_200, 3_600)],
        }
    }
}

/// Each request of the provider: its verb, its path and how it counts.
const REQUESTS: [(Direction, &str, Count); 7] = [
    (Direction::Reads, ACCOUNT, Count::Reads),
    (Direction::Reads, SHARE, Count::Reads),
    (Direction::Writes, KEYS, Count::Reads),
    (Direction::Reads, SHARES, Count::Lists),
    (Direction::Writes, ACCOUNT, Count::Writes),
    (Direction::Writes, SHARE, Count::Writes),
    (Direction::Deletes, SHARE, Count::Writes),
];

fn in_region(direction: Direction, path: &str, region: &str) -> Scope {
    scope(direction, path).in_region(region)
}

/// A queue of an Azure whose front door limits nothing.
fn without_front_door() -> Permits {
    let mut permits = Permits::default();
    for direction in Direction::ALL {
        let ticket = permits.request(scope(direction, DISK), Priority::Read, Duration::ZERO);
        assert_eq!(permits.step(Duration::ZERO).granted, [ticket]);
        permits.answered(ticket, &Remaining { succeeded: true, ..Remaining::default() }, Duration::ZERO);
    }
    permits
}

fn answer(permits: &mut Permits, ticket: Ticket, now: Duration) {
    permits.answered(ticket, &Remaining { succeeded: true, ..Remaining::default() }, now);
}

/// The length of a window by a slower clock.
fn slower(seconds: u64) -> Duration {
    Duration::from_secs(seconds).div_f64(SLOWER)
}

/// One request in the simulation.
struct Request {
    count: Count,
    region: Option<usize>,
    is_granted: bool,
    sent: Option<Duration>,
    settled: Option<Duration>,
}

impl Request {
    /// Whether a window that ends then may hold it.
    fn counts(&self, seconds: u64, now: Duration) -> bool {
        let latest = self.sent.map(|sent| self.settled.map_or(sent + ARRIVAL, |settled| settled.min(sent + ARRIVAL)));
        self.is_granted && latest.is_none_or(|latest| latest + slower(seconds) > now)
    }
}

const REGIONS: [&str; 2] = ["westeurope", "northeurope"];

/// Whether a request of this count and region finds its windows full then.
fn is_full(requests: &BTreeMap<Ticket, Request>, count: Count, region: Option<usize>, now: Duration) -> bool {
    let regions: Vec<usize> = region.map_or_else(|| (0..REGIONS.len()).collect(), |region| vec![region]);
    let counted = |region: usize, seconds: u64| {
        let own = |request: &&Request| request.count == count && request.region.is_none_or(|one| one == region);
        requests.values().filter(own).filter(|request| request.counts(seconds, now)).count()
    };
    let full = |region: usize| count.limits().iter().any(|(limit, seconds)| counted(region, *seconds) >= *limit);
    regions.into_iter().any(full)
}

enum Event {
    Ask { kind: usize, region: Option<usize>, priority: Priority },
    Send { ticket: Ticket },
    Back { ticket: Ticket },
    Wake,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn no_window_of_any_phase_overruns_and_no_request_waits_while_all_its_windows_have_room(
        bursts in prop::collection::vec((0u64..400_000, 1usize..60, 0usize..7, 0usize..4), 1..24),
        held_ms in prop_oneof![Just(0u64), 0u64..8_000],
        there_ms in prop_oneof![Just(0u64), 0u64..300, 0u64..2_000],
        back_ms in prop_oneof![Just(0u64), 0u64..300, 0u64..5_000],
        unused in prop_oneof![Just(0u64), 0u64..40],
        seed in any::<u64>(),
    ) {
        let (mut permits, mut dice, mut sequence) = (without_front_door(), Dice(seed), 0_u64);
        let mut events = BTreeMap::new();
        for (at, requests, kind, region) in bursts {
            for _ in 0..requests {
                sequence += 1;
                let (region, priority) = (Some(region % 3).filter(|one| *one < 2), PRIORITIES[dice.roll(7) as usize]);
                events.insert((ms(at), sequence), Event::Ask { kind, region, priority });
            }
        }
        let mut requests: BTreeMap<Ticket, Request> = BTreeMap::new();
        let mut arrivals: Vec<(Count, usize, Duration)> = Vec::new();
        while let Some(((now, _), event)) = events.pop_first() {
            match event {
                Event::Ask { kind, region, priority } => {
                    let (direction, path, count) = REQUESTS[kind];
                    let scope = in_region(direction, path, region.map_or("", |region| REGIONS[region]));
                    let ticket = permits.request(scope, priority, now);
                    requests.insert(ticket, Request { count, region, is_granted: false, sent: None, settled: None });
                }
                Event::Send { ticket } => {
                    permits.sent(ticket, now);
                    let request = requests.get_mut(&ticket).unwrap();
                    request.sent = Some(now);
                    let there = dice.up_to(ms(there_ms));
                    let region = request.region.unwrap_or_else(|| dice.roll(2) as usize);
                    arrivals.push((request.count, region, now + there));
                    sequence += 1;
                    events.insert((now + there + dice.up_to(ms(back_ms)), sequence), Event::Back { ticket });
                }
                Event::Back { ticket } => {
                    // Whatever became of it, it counts.
                    match dice.roll(3) {
                        0 => permits.lost(ticket, now),
                        _ => answer(&mut permits, ticket, now),
                    }
                    requests.get_mut(&ticket).unwrap().settled = Some(now);
                }
                Event::Wake => {}
            }
            let step = permits.step(now);
            for ticket in step.granted {
                sequence += 1;
                if dice.roll(100) < unused {
                    permits.refund(ticket, now);
                    requests.remove(&ticket);
                    events.insert((now, sequence), Event::Wake);
                    continue;
                }
                requests.get_mut(&ticket).unwrap().is_granted = true;
                events.insert((now + dice.up_to(ms(held_ms)), sequence), Event::Send { ticket });
            }
            if let Some(at) = step.wake_at {
                prop_assert!(at > now);
                // One wake a moment.
                events.insert((at, 0), Event::Wake);
            }
            // What a refund has freed is granted by the step of the event that it adds.
            let all_stepped = events.first_key_value().is_none_or(|((at, _), _)| *at > now);
            for request in requests.values().filter(|request| all_stepped && !request.is_granted) {
                let until = step.wake_at.expect("time frees the window") - Duration::from_nanos(10);
                for at in [now, until.max(now)] {
                    prop_assert!(is_full(&requests, request.count, request.region, at), "{:?} at {at:?}", request.count);
                }
            }
        }
        prop_assert!(requests.values().all(|request| request.is_granted), "each is sent in the end");
        for count in [Count::Reads, Count::Lists, Count::Writes] {
            for region in 0..REGIONS.len() {
                let own = arrivals.iter().filter(|(one, at, _)| (*one, *at) == (count, region));
                let mut own: Vec<Duration> = own.map(|(.., at)| *at).collect();
                own.sort_unstable();
                for (limit, seconds) in count.limits() {
                    for pair in own.windows(limit + 1) {
                        let apart = pair[*limit] - pair[0];
                        prop_assert!(apart >= Duration::from_secs(*seconds), "{count:?}: {} in {apart:?}", limit + 1);
                    }
                }
            }
        }
    }
}

#[test]
fn requests_of_all_verbs_that_wait_for_one_window_go_by_priority_then_by_arrival() {
    let mut permits = without_front_door();
    let ask = |permits: &mut Permits, direction, path, priority| {
        permits.request(in_region(direction, path, "westeurope"), priority, Duration::ZERO)
    };
    for _ in 0..10 {
        let ticket = ask(&mut permits, Direction::Writes, SHARE, Priority::Create);
        assert_eq!(permits.step(Duration::ZERO).granted, [ticket]);
        answer(&mut permits, ticket, Duration::ZERO);
    }
    let mut waiting = Vec::new();
    for n in 0..30_usize {
        let (direction, priority) = ([Direction::Deletes, Direction::Writes][n % 2], PRIORITIES[n * 5 % 7]);
        waiting.push((priority, ask(&mut permits, direction, SHARE, priority)));
    }
    waiting.sort_unstable();
    let (mut granted, mut now) = (Vec::new(), Duration::ZERO);
    while let Step { wake_at: Some(at), .. } = permits.step(now) {
        now = at;
        let step = permits.step(now);
        step.granted.iter().for_each(|ticket| answer(&mut permits, *ticket, now));
        granted.extend(step.granted);
    }
    assert_eq!(granted, waiting.into_iter().map(|(_, ticket)| ticket).collect::<Vec<_>>());
    assert!(now > slower(3) - ms(1) && now < slower(3) + ms(1), "thirty more requests take three windows: {now:?}");
}

#[test]
fn ten_writes_go_at_once_and_the_next_when_the_first_was_answered_a_second_ago() {
    let mut permits = without_front_door();
    let write = || in_region(Direction::Writes, SHARE, "westeurope");
    let tickets: Vec<Ticket> = (0..11).map(|_| permits.request(write(), Priority::Create, Duration::ZERO)).collect();
    assert_eq!(permits.step(Duration::ZERO).granted, tickets[..10]);
    // Reads, and writes in another region, have windows of their own.
    for (direction, path, region) in
        [(Direction::Reads, SHARE, "westeurope"), (Direction::Writes, SHARE, "northeurope")]
    {
        let other = permits.request(in_region(direction, path, region), Priority::Create, Duration::ZERO);
        assert_eq!(permits.step(Duration::ZERO).granted, [other]);
    }
    // It may be on its way for two seconds, and then a second must pass.
    assert_eq!(permits.step(Duration::ZERO).wake_at, Some(ARRIVAL + slower(1)));
    answer(&mut permits, tickets[3], ms(200));
    assert_eq!(permits.step(ms(200)).wake_at, Some(ms(200) + slower(1)));
    // One that was not sent frees its place at once.
    permits.refund(tickets[4], ms(300));
    assert_eq!(permits.step(ms(300)).granted, [tickets[10]]);
}

#[test]
fn a_request_whose_region_is_not_known_counts_in_every_region() {
    let mut permits = without_front_door();
    let write = |region: &str| in_region(Direction::Writes, SHARE, region);
    let ask = |permits: &mut Permits, region: &str| {
        let ticket = permits.request(write(region), Priority::Create, Duration::ZERO);
        let granted = permits.step(Duration::ZERO).granted == [ticket];
        permits.leave(ticket);
        granted
    };
    assert!((0..6).all(|_| ask(&mut permits, "westeurope")));
    assert!((0..4).all(|_| ask(&mut permits, "")), "four more fit beside the six of westeurope");
    assert!(!ask(&mut permits, ""), "the region may be westeurope");
    assert!(!ask(&mut permits, "westeurope"));
    // The four count in a region that is new, too.
    assert!((0..6).all(|_| ask(&mut permits, "northeurope")));
    assert!(!ask(&mut permits, "northeurope"));
}

#[test]
fn a_429_pauses_the_requests_of_its_limit_and_region_and_halves_our_share_of_the_window() {
    let (mut permits, pause) = (without_front_door(), Duration::from_secs(1));
    let write = |region: &str| in_region(Direction::Writes, SHARE, region);
    let ticket = permits.request(write("westeurope"), Priority::Create, Duration::ZERO);
    permits.step(Duration::ZERO);
    permits.throttled(ticket, &Remaining::default(), &Refusal::UnnamedPolicy, Some(pause), Duration::ZERO);
    let other_account = write("westeurope");
    let deletion = in_region(Direction::Deletes, &SHARE.replace("/a/", "/b/"), "westeurope");
    assert_eq!(permits.paused(&other_account, Duration::ZERO), pause);
    assert_eq!(permits.paused(&deletion, Duration::ZERO), pause, "the provider counts deletes as writes");
    for free in [write("northeurope"), in_region(Direction::Reads, SHARE, "westeurope")] {
        assert_eq!(permits.paused(&free, Duration::ZERO), Duration::ZERO);
    }
    let sent_at_once = |permits: &mut Permits, now: Duration| {
        for _ in 0..20 {
            permits.request(write("westeurope"), Priority::Create, now);
        }
        let granted = permits.step(now).granted;
        granted.iter().for_each(|ticket| answer(permits, *ticket, now));
        let waiting: Vec<Ticket> = permits.waiting.keys().copied().collect();
        waiting.into_iter().for_each(|ticket| permits.leave(ticket));
        granted.len()
    };
    assert_eq!(sent_at_once(&mut permits, Duration::from_secs(5)), 5);
    assert_eq!(sent_at_once(&mut permits, Duration::from_secs(200)), 10, "the share grows back");
}

#[test]
fn a_window_whose_share_is_small_grants_a_request_when_the_share_has_grown() {
    let mut permits = without_front_door();
    let list = || in_region(Direction::Reads, SHARES, "westeurope");
    let first = permits.request(list(), Priority::List, Duration::ZERO);
    permits.step(Duration::ZERO);
    permits.throttled(first, &Remaining::default(), &Refusal::UnnamedPolicy, Some(ms(1_000)), Duration::ZERO);
    let now = Duration::from_secs(1);
    for _ in 0..100 {
        permits.request(list(), Priority::List, now);
    }
    let step = permits.step(now);
    // Half of a hundred, less the one that was refused, for Azure may have counted it.
    assert_eq!(step.granted.len(), 49);
    let wake_at = step.wake_at.unwrap();
    assert!(wake_at < Duration::from_secs(5), "a hundredth more comes in 3.3 s: {wake_at:?}");
    assert_eq!(permits.step(wake_at).granted.len(), 1);
}

#[test]
fn windows_hold_no_more_entries_than_their_limits() {
    let (mut permits, mut now) = (without_front_door(), Duration::ZERO);
    for n in 0..30_000_usize {
        let (direction, path, _) = REQUESTS[n % REQUESTS.len()];
        let region = ["westeurope", "northeurope", ""][n % 3];
        let ticket = permits.request(in_region(direction, path, region), Priority::Create, now);
        for ticket in permits.step(now).granted {
            answer(&mut permits, ticket, now);
        }
        permits.leave(ticket);
        now += ms(50);
    }
    assert!(permits.limits.len() <= 3 * 4, "{}", permits.limits.len());
    for (key, meter) in &permits.limits {
        if let (Meter::Window(window), policy::Rule::Window { requests, .. }) = (meter, key.limit().rule) {
            assert!(window.entries() <= requests, "{key:?}: {}", window.entries());
        }
    }
    // After an hour without a request nothing is left of use.
    assert!(permits.limits.values().all(|meter| meter.is_at_rest(now + Duration::from_secs(4_000))));
}

/// A provider that counts all clients in windows, each of which begins with its first request.
#[derive(Default)]
struct Provider {
    began: Duration,
    seen: u32,
}

impl Provider {
    fn count(&mut self, now: Duration) -> Result<(), Duration> {
        if self.seen == 0 || now >= self.began + Duration::from_secs(1) {
            (self.began, self.seen) = (now, 0);
        }
        if self.seen >= 10 {
            // Whole seconds, at least one.
            return Err(Duration::from_secs(1));
        }
        self.seen += 1;
        Ok(())
    }
}

#[test]
fn two_busy_clients_of_one_window_share_it_with_few_refusals() {
    let (mut clients, mut provider) = ([without_front_door(), without_front_door()], Provider::default());
    let (mut served, mut refused) = ([0_u32; 2], 0_u32);
    let (mut dice, mut sequence) = (Dice(7), 1_u64);
    let write = || in_region(Direction::Writes, SHARE, "westeurope");
    for client in &mut clients {
        for _ in 0..2_000 {
            client.request(write(), Priority::Create, Duration::ZERO);
        }
    }
    // A client is woken, or its request comes to the provider.
    let mut events: BTreeMap<(Duration, u64), (usize, Option<Ticket>)> =
        (0..2).map(|client| ((Duration::ZERO, client as u64), (client, None))).collect();
    while let Some(((now, _), (client, arrived))) = events.pop_first().filter(|((at, _), _)| *at < ms(110_000)) {
        let permits = &mut clients[client];
        match arrived.map(|ticket| (ticket, provider.count(now))) {
            Some((ticket, Ok(()))) => {
                served[client] += 1;
                answer(permits, ticket, now);
            }
            Some((ticket, Err(pause))) => {
                refused += 1;
                permits.throttled(ticket, &Remaining::default(), &Refusal::UnnamedPolicy, Some(pause), now);
                permits.request(write(), Priority::Create, now);
            }
            None => {}
        }
        let step = permits.step(now);
        let arrive = |ticket: &Ticket| (now + dice.up_to(ms(80)), (client, Some(*ticket)));
        let arrivals: Vec<_> = step.granted.iter().map(arrive).collect();
        for (at, event) in arrivals {
            sequence += 1;
            events.insert((at, sequence), event);
        }
        // One wake a moment.
        events.extend(step.wake_at.map(|at| ((at, client as u64), (client, None))));
    }
    let all: u32 = served.iter().sum();
    assert!(refused * 6 < all, "{refused} refused beside {served:?}");
    assert!(all > 800, "{served:?} of 1,100");
    assert!(served.iter().all(|one| *one * 4 > all), "{served:?}");
}
