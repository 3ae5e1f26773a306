//! What happens to the world from outside: changes by users, faults of Azure, deaths of replicas. A schedule is a list of
//! these with times, made from a seed, and can be shortened.

use std::{collections::BTreeSet, time::Duration};

use lazuli_model::seeded::{self, Numbers};

use super::{
    api::{Ask, AskAddress},
    world::{Name, Owner, POISON, VIRTUAL_NETWORK},
};

/// The fewest incidents of a schedule.
const LEAST: u64 = 30;
/// The Services that may exist.
const OWNERS: u64 = 5;

/// What becomes of one write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// It never reaches Azure, and no answer comes.
    LostRequest,
    /// Azure takes it, and the answer is lost.
    LostAnswer,
    /// It reaches Azure after the client has given up.
    Late,
    Conflict,
    Precondition,
    /// A 429 with so many seconds of Retry-After.
    Throttled(u64),
    Forbidden,
    Unavailable,
    /// Azure accepts it, and it fails later.
    Fails,
    /// Azure accepts it, and it fails half way.
    FailsPartly,
}

const FATES: [Fate; 12] = [
    Fate::LostRequest,
    Fate::LostAnswer,
    Fate::Late,
    Fate::Late,
    Fate::Conflict,
    Fate::Precondition,
    Fate::Throttled(3),
    Fate::Throttled(20),
    Fate::Forbidden,
    Fate::Unavailable,
    Fate::Fails,
    Fate::FailsPartly,
];

/// What another writer does at the moment in which a write of ours arrives: the write then comes second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Race {
    /// It deletes the public IP that the write is to delete.
    Deletes,
    /// A resource of its own uses the public IP that the write is to delete, for so many seconds.
    Holds(u64),
    /// It begins an operation on the object, for so many seconds.
    Operates(u64),
    /// It deletes the public IP of a frontend that the write is to make.
    Orphans,
}

/// What becomes of the last writes of a leader that loses its lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tail {
    /// They meet what writes meet at any time.
    Prompt,
    /// They reach Azure after the client has given up.
    Late,
}

/// One thing that happens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Incident {
    /// A user creates or changes a Service.
    Apply(Owner, Ask),
    /// A user writes an annotation that is wrong.
    Mistake(Owner),
    Delete(Owner),
    /// The Service is no load balancer any more.
    Unclaim(Owner),
    /// The next write meets this.
    Write(Fate),
    /// The next read is answered with 429.
    ThrottledRead,
    /// The next read fails.
    FailedRead,
    /// For so many seconds reads show what was.
    Lag(u64),
    /// Another writer changes something of its own.
    Foreign(Name),
    /// Another writer's operation runs for some seconds.
    ForeignOperation(Name, u64),
    /// The next write that it can concern comes second to another writer.
    Race(Race),
    /// For so many seconds the operator has not accepted what removes or replaces something.
    Unaccepted(u64),
    /// For so many seconds a policy denies writes of load balancers that give a Service a new rule.
    Policy(Owner, u64),
    /// A public IP becomes `Failed`.
    Breaks(Name),
    /// The leader cannot reach the API server any more. Its last writes may arrive when another replica leads.
    Partition(Tail),
    /// The leader is killed.
    Kill,
    AddNode(u8),
    RemoveNode(u8),
}

/// A list of incidents, each with its time.
#[derive(Debug, Clone)]
pub(super) struct Schedule {
    pub(super) seed: u64,
    pub(super) by_interface: bool,
    pub(super) incidents: Vec<(Duration, Incident)>,
}

fn ask(owner: Owner, numbers: &mut Numbers) -> Ask {
    let address = match numbers.below(10) {
        0..4 => AskAddress::Shared,
        4..7 => AskAddress::Own(numbers.one_in(2)),
        _ => AskAddress::Internal(numbers.one_in(3)),
    };
    // Ports of two Services at one address must differ.
    let base = 80 + 10 * u16::from(owner);
    let mut ports: BTreeSet<u16> = (base..base + 3).filter(|_| numbers.one_in(2)).collect();
    ports.insert(base);
    if numbers.one_in(25) {
        ports.insert(POISON);
    }
    let mut sources: BTreeSet<u8> = (1..5).filter(|_| numbers.one_in(2)).collect();
    sources.insert(1);
    let deny = numbers.one_in(3);
    if numbers.one_in(4) && !deny {
        sources.insert(VIRTUAL_NETWORK);
    }
    let link = matches!(address, AskAddress::Internal(_)) && numbers.one_in(2);
    let second = matches!(address, AskAddress::Own(_)) && numbers.one_in(3);
    Ask { address, ports, sources, deny, link, second }
}

/// The same with less: what a leader that changes to it removes.
fn less(ask: &Ask, numbers: &mut Numbers) -> Ask {
    let mut less = ask.clone();
    match (ask.address, numbers.below(3)) {
        (AskAddress::Own(second), 0) => less.address = AskAddress::Own(!second),
        (AskAddress::Internal(second), 0) => less.address = AskAddress::Internal(!second),
        (_, 1) if ask.ports.len() > 1 => _ = less.ports.pop_last(),
        (_, 1) if ask.deny => less.deny = false,
        _ if ask.link => less.link = false,
        _ => less.address = AskAddress::Own(numbers.one_in(2)),
    }
    less.link &= less.is_internal();
    less
}

fn object(numbers: &mut Numbers) -> Name {
    match numbers.below(8) {
        0 | 1 => Name::LoadBalancer(numbers.below(2) as u8),
        2 | 3 => Name::SecurityGroup,
        4 => Name::PublicIp(0),
        5 => Name::PublicIp(numbers.below(11) as u8),
        6 => Name::PrivateLink(numbers.below(OWNERS) as u8),
        _ => Name::Interface(numbers.below(2) as u8),
    }
}

impl seeded::Schedule for Schedule {
    type Incident = (Duration, Incident);

    fn new(seed: u64) -> Self {
        let mut numbers = Numbers::new(seed);
        let by_interface = numbers.one_in(2);
        let mut at = Duration::ZERO;
        let mut incidents = Vec::new();
        for owner in 0..3 {
            incidents.push((at, Incident::Apply(owner, ask(owner, &mut numbers))));
            at += numbers.ms(200);
        }
        let count = LEAST + numbers.below(8);
        while (incidents.len() as u64) < count {
            at += match numbers.below(10) {
                0..3 => Duration::ZERO,
                3..6 => numbers.ms(1_000),
                6..9 => numbers.ms(6_000),
                _ => numbers.ms(60_000),
            };
            let owner = numbers.below(OWNERS) as u8;
            let incident = match numbers.below(54) {
                0..12 => Incident::Apply(owner, ask(owner, &mut numbers)),
                12 => Incident::Mistake(owner),
                13 | 14 => Incident::Delete(owner),
                15 => Incident::Unclaim(owner),
                16..25 => {
                    let fate = FATES[numbers.below(FATES.len() as u64) as usize];
                    incidents.push((at, Incident::Write(fate)));
                    // A write, and a change of mind while it is under way.
                    if numbers.one_in(2) {
                        incidents.push((at, Incident::Apply(owner, ask(owner, &mut numbers))));
                        at += Duration::from_secs(4) + numbers.ms(3_000);
                    }
                    if numbers.one_in(2) {
                        Incident::Delete(owner)
                    } else {
                        Incident::Apply(owner, ask(owner, &mut numbers))
                    }
                }
                25 => Incident::ThrottledRead,
                26 => Incident::FailedRead,
                27 | 28 => Incident::Lag(1 + numbers.below(8)),
                29..32 => Incident::Foreign(object(&mut numbers)),
                // Some run for longer than the steps wait for them.
                32 if numbers.one_in(8) => Incident::ForeignOperation(object(&mut numbers), 310),
                32 => Incident::ForeignOperation(object(&mut numbers), 1 + numbers.below(8)),
                33 => Incident::Breaks(Name::PublicIp(if numbers.one_in(2) { 0 } else { numbers.below(11) as u8 })),
                34 => Incident::Partition(if numbers.one_in(2) { Tail::Prompt } else { Tail::Late }),
                35 => {
                    // A write that is under way when the lease moves, and that the next leader cannot see yet.
                    incidents.push((at, Incident::Apply(owner, ask(owner, &mut numbers))));
                    for fate in [Fate::Throttled(3), Fate::Throttled(3), Fate::Late] {
                        incidents.push((at, Incident::Write(fate)));
                    }
                    at += numbers.ms(300);
                    incidents.push((at, Incident::Partition(Tail::Prompt)));
                    at += Duration::from_secs(12);
                    Incident::Delete(owner)
                }
                36 | 37 => Incident::Kill,
                38 => Incident::AddNode(numbers.below(6) as u8),
                39 => Incident::RemoveNode(numbers.below(6) as u8),
                40 => Incident::Unaccepted(1 + numbers.below(30)),
                41 => Incident::Race(Race::Operates(1 + numbers.below(8))),
                // A public IP that goes just before the load balancer's write.
                42 => {
                    incidents.push((at, Incident::Race(Race::Orphans)));
                    Incident::Apply(owner, ask(owner, &mut numbers))
                }
                // A Service that takes its address to another load balancer.
                43 => {
                    let mut there = ask(owner, &mut numbers);
                    there.address = AskAddress::Own(numbers.one_in(2));
                    there.link = false;
                    let moved = Ask { second: !there.second, ..there.clone() };
                    incidents.push((at, Incident::Apply(owner, there)));
                    at += Duration::from_secs(10) + numbers.ms(10_000);
                    Incident::Apply(owner, moved)
                }
                // A user changes a Service and back again while the leadership moves: a removal of the leader before may
                // come late.
                44..48 => {
                    let wanted = ask(owner, &mut numbers);
                    let less = less(&wanted, &mut numbers);
                    incidents.push((at, Incident::Apply(owner, wanted.clone())));
                    at += Duration::from_secs(25);
                    incidents.push((at, Incident::Apply(owner, less)));
                    at += numbers.ms(9_000);
                    incidents.push((at, Incident::Partition(Tail::Late)));
                    at += Duration::from_secs(9) + numbers.ms(6_000);
                    Incident::Apply(owner, wanted)
                }
                // The same at the moment in which the public IP is deleted that the Service has left and comes back to.
                49 | 50 => {
                    let mut wanted = ask(owner, &mut numbers);
                    let second = numbers.one_in(2);
                    (wanted.address, wanted.link, wanted.second) = (AskAddress::Own(second), false, false);
                    let left = Ask { address: AskAddress::Own(!second), ..wanted.clone() };
                    incidents.push((at, Incident::Apply(owner, wanted.clone())));
                    at += Duration::from_secs(25);
                    incidents.push((at, Incident::Apply(owner, left)));
                    at += Duration::from_secs(4) + numbers.ms(14_000);
                    incidents.push((at, Incident::Partition(Tail::Late)));
                    at += Duration::from_secs(9) + numbers.ms(5_000);
                    Incident::Apply(owner, wanted)
                }
                // A Service changes while no replica leads. The next leader finds it so, and what it removes is not accepted.
                48 => {
                    let wanted = ask(owner, &mut numbers);
                    let less = less(&wanted, &mut numbers);
                    incidents.push((at, Incident::Apply(owner, wanted)));
                    at += Duration::from_secs(25);
                    incidents.push((at, Incident::Kill));
                    incidents.push((at, Incident::Unaccepted(30 + numbers.below(30))));
                    at += numbers.ms(9_000);
                    Incident::Apply(owner, less)
                }
                // A policy denies what the Service asks for, and its change comes together with that of another.
                53 => {
                    let other = numbers.below(OWNERS) as u8;
                    incidents.push((at, Incident::Policy(owner, 20 + numbers.below(100))));
                    incidents.push((at, Incident::Apply(other, ask(other, &mut numbers))));
                    Incident::Apply(owner, ask(owner, &mut numbers))
                }
                _ => {
                    let race = if numbers.one_in(2) { Race::Deletes } else { Race::Holds(1 + numbers.below(20)) };
                    incidents.push((at, Incident::Race(race)));
                    Incident::Delete(owner)
                }
            };
            incidents.push((at, incident));
        }
        Self { seed, by_interface, incidents }
    }

    fn incidents(&self) -> &[Self::Incident] {
        &self.incidents
    }

    fn with(&self, incidents: &[Self::Incident]) -> Self {
        Self { incidents: incidents.to_vec(), ..self.clone() }
    }

    fn described(&self) -> String {
        seeded::table(&self.incidents)
    }
}
