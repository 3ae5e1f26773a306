//! Clients and an Azure in a discrete-event simulation. Requests and answers take random times. Azure's bucket is
//! written here a second time, so that it cannot share a mistake with the estimate.

use proptest::prelude::*;

use super::{front_door::front_door, *};

/// A bucket as Azure keeps it.
struct Azure {
    size: f64,
    refill: f64,
    tokens: f64,
    at: Duration,
}

impl Azure {
    /// Takes a token and gives what remains, or refuses and gives `Retry-After`.
    fn take(&mut self, now: Duration) -> Result<u32, Duration> {
        self.tokens = (self.tokens + (now - self.at).as_secs_f64() * self.refill).min(self.size);
        self.at = now;
        // As in the emulator: a rounding error refuses no request.
        if self.tokens < 1.0 - 1e-6 {
            let seconds = ((1.0 - self.tokens) / self.refill).ceil().max(1.0);
            return Err(Duration::from_secs_f64(seconds));
        }
        self.tokens -= 1.0;
        Ok(self.tokens.max(0.0).floor() as u32)
    }
}

/// Numbers that look random, from a seed: the published SplitMix64 generator.
pub(super) struct Dice(pub(super) u64);

impl Dice {
    pub(super) fn roll(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % below.max(1)
    }

    pub(super) fn up_to(&mut self, time: Duration) -> Duration {
        Duration::from_micros(self.roll(time.as_micros() as u64 + 1))
    }
}

enum Event {
    /// A client asks for so many permits.
    Ask { client: usize, requests: u32 },
    /// A permit is due.
    Wake { client: usize },
    /// A request comes to Azure.
    Arrive { client: usize, ticket: Ticket },
    /// Its answer comes back.
    Back { client: usize, ticket: Ticket, answer: Result<u32, Duration> },
}

struct Simulation {
    direction: Direction,
    azure: Azure,
    clients: Vec<Permits>,
    events: BTreeMap<(Duration, u64), Event>,
    dice: Dice,
    /// The longest way there and back.
    way: (Duration, Duration),
    /// The percentage of requests that leave the queue, and of permits that are given back.
    fickle: u64,
    served: Vec<u32>,
    refused: u32,
    /// When each client is woken next.
    woken: Vec<Option<Duration>>,
    wakes: u32,
}

impl Simulation {
    fn new(direction: Direction, clients: usize, way: (Duration, Duration), seed: u64) -> Self {
        let (size, refill) = front_door(direction);
        Self {
            direction,
            azure: Azure { size, refill, tokens: size, at: Duration::ZERO },
            clients: std::iter::repeat_with(Permits::default).take(clients).collect(),
            events: BTreeMap::new(),
            dice: Dice(seed),
            way,
            fickle: 0,
            served: vec![0; clients],
            refused: 0,
            woken: vec![None; clients],
            wakes: 0,
        }
    }

    fn at(&mut self, time: Duration, event: Event) {
        let sequence = self.events.len() as u64 + self.dice.roll(u64::MAX / 2);
        self.events.insert((time, sequence), event);
    }

    fn run(&mut self, end: Duration) {
        while let Some(entry) = self.events.first_entry().filter(|entry| entry.key().0 <= end) {
            let ((now, _), event) = entry.remove_entry();
            let client = match event {
                Event::Ask { client, requests } => {
                    for _ in 0..requests {
                        let priority = PRIORITIES[self.dice.roll(7) as usize];
                        let ticket = self.clients[client].request(scope(self.direction, DISK), priority, now);
                        if self.dice.roll(100) < self.fickle {
                            self.clients[client].leave(ticket);
                        }
                    }
                    client
                }
                Event::Wake { client } => {
                    self.wakes += 1;
                    client
                }
                Event::Arrive { client, ticket } => {
                    let answer = self.azure.take(now);
                    match answer {
                        Ok(_) => self.served[client] += 1,
                        Err(_) => self.refused += 1,
                    }
                    let back = now + self.dice.up_to(self.way.1);
                    self.at(back, Event::Back { client, ticket, answer });
                    continue;
                }
                Event::Back { client, ticket, answer } => {
                    match answer {
                        Ok(remaining) => self.clients[client].answered(ticket, &left(remaining), now),
                        Err(pause) => {
                            let (remaining, refusal) = (Remaining::default(), Refusal::FrontDoor);
                            self.clients[client].throttled(ticket, &remaining, &refusal, Some(pause), now);
                            self.at(now + pause, Event::Ask { client, requests: 1 });
                        }
                    }
                    client
                }
            };
            let step = self.clients[client].step(now);
            for ticket in step.granted {
                if self.dice.roll(100) < self.fickle {
                    self.clients[client].refund(ticket, now);
                    self.at(now, Event::Wake { client });
                    continue;
                }
                let there = now + self.dice.up_to(self.way.0);
                self.at(there, Event::Arrive { client, ticket });
            }
            if let Some(wake_at) = step.wake_at {
                assert!(wake_at > now);
                if self.woken[client].is_none_or(|planned| planned <= now || planned > wake_at) {
                    self.woken[client] = Some(wake_at);
                    self.at(wake_at, Event::Wake { client });
                }
            }
        }
    }
}

fn direction() -> impl Strategy<Value = Direction> {
    prop_oneof![Just(Direction::Reads), Just(Direction::Writes), Just(Direction::Deletes)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn alone_nothing_is_refused_however_long_answers_take(
        direction in direction(),
        there_ms in prop_oneof![0u64..200, 0u64..2_000],
        back_ms in 0u64..3_000,
        fickle in prop_oneof![Just(0u64), 0u64..60],
        begin_with in 0.04f64..1.0,
        bursts in prop::collection::vec((0u64..120_000, 1u32..400), 1..12),
        seed in any::<u64>(),
    ) {
        let mut simulation = Simulation::new(direction, 1, (ms(there_ms), ms(back_ms)), seed);
        simulation.azure.tokens *= begin_with;
        simulation.fickle = fickle;
        let mut asked = 0;
        for (at, requests) in bursts {
            asked += requests;
            simulation.at(ms(at), Event::Ask { client: 0, requests });
        }
        // Long enough for all of them at the refill of writes.
        simulation.run(ms(120_000) + Duration::from_secs(u64::from(asked) / 9 + 10));
        prop_assert_eq!(simulation.refused, 0);
        prop_assert_eq!(simulation.clients[0].waiting(direction), 0);
        if fickle == 0 {
            prop_assert_eq!(simulation.served[0], asked);
        }
    }

    #[test]
    fn a_backlog_uses_the_bucket_to_the_last_token_though_permits_are_given_back(
        direction in direction(),
        there_ms in 0u64..100,
        back_ms in 0u64..400,
        fickle in prop_oneof![Just(0u64), Just(50u64)],
        seed in any::<u64>(),
    ) {
        let (seconds, way) = (120, (ms(there_ms), ms(back_ms)));
        let mut simulation = Simulation::new(direction, 1, way, seed);
        simulation.fickle = fickle;
        simulation.at(Duration::ZERO, Event::Ask { client: 0, requests: 30_000 });
        simulation.run(Duration::from_secs(seconds));
        let (size, refill) = front_door(direction);
        // Until the first report the bucket stays full; requests on their way at the end are not served yet.
        let lost = refill * (way.0 + way.1).as_secs_f64() * 2.0;
        let possible = size + refill * seconds as f64 - lost;
        prop_assert!(f64::from(simulation.served[0]) >= 0.98 * possible, "{} of {possible}", simulation.served[0]);
        prop_assert_eq!(simulation.refused, 0);
        // One wake a token, and not one a millisecond.
        prop_assert!(f64::from(simulation.wakes) < 3.0 * possible, "{} wakes", simulation.wakes);
    }

}

proptest! {
    // Two clients with a backlog for ten minutes: a second a case.
    #![proptest_config(ProptestConfig::with_cases(8))]

    #[test]
    fn two_clients_of_one_bucket_share_it_with_few_refusals(
        direction in direction(),
        begin_with in 8.0f64..200.0,
        seed in any::<u64>(),
    ) {
        let (half, end) = (Duration::from_secs(300), Duration::from_secs(600));
        let mut simulation = Simulation::new(direction, 2, (ms(60), ms(100)), seed);
        simulation.azure.tokens = begin_with;
        for client in 0..2 {
            simulation.at(Duration::ZERO, Event::Ask { client, requests: 15_000 });
        }
        simulation.run(half);
        let (served, refused) = (simulation.served.iter().sum::<u32>(), simulation.refused);
        // Both may find the same tokens in the bucket and send at once for all of them.
        prop_assert!(f64::from(refused) < begin_with + 0.02 * f64::from(served), "{refused} refused at first");
        simulation.run(end);
        let since: u32 = simulation.served.iter().sum::<u32>() - served;
        let refused = simulation.refused - refused;
        prop_assert!(f64::from(refused) < 0.01 * f64::from(since), "{refused} refused of {since}");
        let possible = front_door(direction).1 * (end - half).as_secs_f64();
        prop_assert!(f64::from(since) > 0.95 * possible, "{since} of {possible}");
        prop_assert!(simulation.served.iter().all(|one| *one * 4 > served + since), "{:?}", simulation.served);
    }

    #[test]
    fn what_another_client_leaves_unused_is_found(direction in direction(), seed in any::<u64>()) {
        let end = Duration::from_secs(300);
        let mut simulation = Simulation::new(direction, 2, (ms(60), ms(100)), seed);
        simulation.at(Duration::ZERO, Event::Ask { client: 0, requests: 15_000 });
        simulation.at(Duration::ZERO, Event::Ask { client: 1, requests: 600 });
        simulation.run(end);
        let (size, refill) = front_door(direction);
        let possible = size + refill * end.as_secs_f64();
        prop_assert_eq!(simulation.served[1], 600);
        let served = f64::from(simulation.served[0]) + 600.0;
        prop_assert!(served > 0.98 * possible, "{served} of {possible}");
    }
}
