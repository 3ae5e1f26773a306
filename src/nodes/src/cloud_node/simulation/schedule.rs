//! What a seed makes happen.

use std::{ops::Range, time::Duration};

use lazuli_model::seeded::{self, Numbers};

/// The Nodes that may exist.
pub(super) const NODES: u64 = 6;
/// More Nodes than may disappear at once, which some schedules have beside the others.
pub(super) const FLEET: Range<u8> = 20..36;
/// Those from here on are instances of a uniform scale set. All of the fleet are in a resource group of their own.
pub(super) const INSTANCES: u8 = 28;
/// The least number of incidents of a schedule, and so many more at most.
const INCIDENTS: (u64, u64) = (6, 26);

/// A Node that may exist.
fn node(numbers: &mut Numbers) -> u8 {
    u8::try_from(numbers.below(NODES)).expect("there are few Nodes")
}

/// What becomes of one write to Azure.
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
}

/// What another writer does to the route table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Foreign {
    /// It adds a route of its own.
    Adds,
    /// It changes a property that this program does not know.
    Notes,
    /// It removes a route of a Node.
    Removes,
    /// It leads a route of a Node elsewhere.
    Leads,
    /// Its operation takes so many seconds.
    Operates(u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Incident {
    /// A machine is made, and its kubelet registers the Node. With what its plugin publishes, if so.
    Joins(u8, bool),
    /// A person deletes the Node, and its machine goes.
    Leaves(u8),
    /// The Node is deleted, and registered again by the same machine, with the same pod range or another.
    Returns(u8, bool),
    /// The machine is deleted, and its kubelet falls silent.
    MachineGone(u8),
    /// The machine is deleted and made again at once, as by a scale set that reimages it.
    MachineBack(u8),
    /// The machine gets other addresses, by another VM of its name that boots, or while it runs.
    Readdressed(u8, bool),
    Stops(u8),
    /// A machine that was stopped starts.
    Starts,
    Silent(u8),
    Heard(u8),
    /// kubelet changes its Node.
    Heartbeat(u8),
    /// Azure does not say what machines do, for so many seconds.
    Blind(u64),
    Write(Fate),
    /// The answer of a patch is lost, or the patch is refused.
    Patch(bool),
    FailedRead,
    ThrottledRead,
    /// Reads show what was up to three seconds ago, for so many seconds.
    Lag(u64),
    Foreign(Foreign),
    /// The machines of the fleet are made, and their kubelets register their Nodes.
    FleetJoins,
    /// All machines of the fleet are gone at once, or so Azure says.
    FleetGone,
    /// Their scale set is deleted too.
    FleetSetGone,
    /// Their resource group is deleted with all of them.
    FleetGroupGone,
    /// All of them are stopped at once.
    FleetStops,
    /// They run again.
    FleetBack,
    /// The leader loses the API server.
    Partition,
    Kill,
}

/// What happens in a run.
#[derive(Debug, Clone)]
pub(super) struct Schedule {
    pub(super) seed: u64,
    pub(super) incidents: Vec<(Duration, Incident)>,
}

impl seeded::Schedule for Schedule {
    type Incident = (Duration, Incident);

    fn new(seed: u64) -> Self {
        let mut numbers = Numbers::new(seed);
        let mut incidents = Vec::new();
        let mut at = Duration::from_secs(1);
        for _ in 0..INCIDENTS.0 + numbers.below(INCIDENTS.1) {
            at += match numbers.below(5) {
                0 => numbers.ms(90_000),
                1 => numbers.ms(12_000),
                _ => numbers.ms(1_500),
            };
            incidents.push((at, incident(&mut numbers)));
        }
        if numbers.one_in(6) {
            incidents.extend(fleet(&mut numbers));
            incidents.sort_by_key(|(at, _)| *at);
        }
        Self { seed, incidents }
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

/// The life of a fleet: it disappears at once, and maybe returns while its Nodes are being deleted.
fn fleet(numbers: &mut Numbers) -> Vec<(Duration, Incident)> {
    let joins = Duration::from_millis(500);
    let disappears = joins + Duration::from_secs(20) + numbers.ms(120_000);
    let how = match numbers.below(5) {
        0 => Incident::FleetStops,
        1 => Incident::FleetSetGone,
        2 => Incident::FleetGroupGone,
        _ => Incident::FleetGone,
    };
    let mut incidents = vec![(joins, Incident::FleetJoins), (disappears, how)];
    if numbers.one_in(2) {
        incidents.push((disappears + Duration::from_secs(5) + numbers.ms(120_000), Incident::FleetBack));
    }
    incidents
}

fn incident(numbers: &mut Numbers) -> Incident {
    let node = node(numbers);
    match numbers.below(38) {
        0..=8 => Incident::Joins(node, numbers.one_in(2)),
        9..=10 => Incident::Leaves(node),
        11 => Incident::Returns(node, numbers.one_in(2)),
        12..=14 => Incident::MachineGone(node),
        15 => Incident::MachineBack(node),
        16..=17 => Incident::Stops(node),
        18 => Incident::Starts,
        19 => Incident::Silent(node),
        20 => Incident::Heard(node),
        21 => Incident::Heartbeat(node),
        22 => Incident::Blind(1 + numbers.below(40)),
        23..=26 => Incident::Write(fate(numbers)),
        27 => Incident::Patch(numbers.one_in(2)),
        28 => Incident::FailedRead,
        29 => Incident::ThrottledRead,
        30 => Incident::Lag(1 + numbers.below(20)),
        31..=32 => Incident::Foreign(match numbers.below(5) {
            0 => Foreign::Adds,
            1 => Foreign::Notes,
            2 => Foreign::Removes,
            3 => Foreign::Leads,
            _ => Foreign::Operates(1 + numbers.below(8)),
        }),
        33..=34 => Incident::Partition,
        35..=36 => Incident::Readdressed(node, numbers.one_in(2)),
        _ => Incident::Kill,
    }
}

fn fate(numbers: &mut Numbers) -> Fate {
    match numbers.below(9) {
        0 => Fate::LostRequest,
        1 => Fate::LostAnswer,
        2 => Fate::Late,
        3 => Fate::Conflict,
        4 => Fate::Precondition,
        5 => Fate::Throttled(1 + numbers.below(20)),
        6 => Fate::Forbidden,
        7 => Fate::Unavailable,
        _ => Fate::Fails,
    }
}
