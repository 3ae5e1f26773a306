//! The state of a running emulator and the sources of its randomness.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::arm::descriptor::Types;
use crate::arm::resources::template::Deployment;
use crate::blob::documents::Blobs;
use crate::call_log::{Call, CallLog};
use crate::changes::Followers;
use crate::clock::{self, Clock};
use crate::derived;
use crate::fault::Fault;
use crate::hypervisor::{DiskFacts, Hypervisor, Shown};
use crate::incident::Incidents;
use crate::latency::OperationKind;
use crate::login::Tokens;
use crate::lun_history::LunHistory;
use crate::operations::{Operations, Outcome};
use crate::options::{Options, Switches};
use crate::path;
use crate::phases::Phases;
use crate::roles::Roles;
use crate::served_names::ServedNames;
use crate::smb::Smb;
use crate::store::{Lags, Store};
use crate::throttle::Throttle;

/// What makes something of what ARM says.
pub(crate) struct Backends {
    pub(crate) hypervisor: Hypervisor,
    pub(crate) smb: Smb,
}

/// What all planes of one emulator share.
pub(crate) struct Shared {
    pub(crate) options: Options,
    pub(crate) clock: Clock,
    pub(crate) tokens: Tokens,
    pub(crate) hypervisor: Hypervisor,
    pub(crate) smb: Smb,
    /// Where this emulator is reached, without a slash at the end.
    pub(crate) url: String,
    /// The host names under which it is reached.
    pub(crate) names: Arc<ServedNames>,
    /// Who writes the state file waits here for a change.
    pub(crate) saver: crate::saver::Saver,
    /// The authority's certificate, with TLS.
    pub(crate) ca_pem: Option<String>,
    /// Cancelled at shutdown.
    pub(crate) stop: tokio_util::sync::CancellationToken,
    state: Mutex<State>,
}

impl Shared {
    pub(crate) fn new(
        options: Options,
        url: String,
        names: Arc<ServedNames>,
        ca_pem: Option<String>,
        Backends { hypervisor, smb }: Backends,
        clock: Clock,
        state: State,
    ) -> Arc<Self> {
        Arc::new(Self {
            options,
            clock,
            tokens: Tokens::default(),
            hypervisor,
            smb,
            url,
            names,
            ca_pem,
            saver: crate::saver::Saver::default(),
            stop: tokio_util::sync::CancellationToken::new(),
            state: Mutex::new(state),
        })
    }

    /// The state with everything settled that is due.
    pub(crate) fn state(&self) -> Locked<'_> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.settle(self.clock.elapsed());
        Locked { state, clock: &self.clock }
    }

    /// Reads the store as it is now.
    pub(crate) fn store<T>(&self, read: impl FnOnce(&Store) -> T) -> T {
        read(&self.state().store)
    }
}

/// The locked state. At its end the followers are told what has changed.
pub(crate) struct Locked<'a> {
    state: MutexGuard<'a, State>,
    clock: &'a Clock,
}

impl Deref for Locked<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.state.tell_followers(self.clock.elapsed());
    }
}

/// A step for the hypervisor on behalf of an operation.
#[derive(Clone, Debug)]
pub(crate) enum HypervisorStep {
    Attach {
        vm: String,
        lun: u8,
        disk: DiskFacts,
    },
    /// The same for a blob, which is made first where it is to have so many GiB.
    AttachBlob {
        vm: String,
        lun: u8,
        uri: String,
        gib: Option<u64>,
    },
    Detach {
        vm: String,
        lun: u8,
    },
    Create {
        disk: DiskFacts,
    },
    Copy {
        from: String,
        disk: DiskFacts,
    },
    /// Makes a disk of the first bytes of a file.
    Import {
        file: PathBuf,
        bytes: u64,
        disk: DiskFacts,
    },
    Resize {
        disk: DiskFacts,
    },
    Delete {
        disk: DiskFacts,
    },
    CreateMachine {
        vm: String,
        shown: Shown,
    },
    DeleteMachine {
        vm: String,
    },
}

/// What an operation does to the state when it ends.
pub(crate) type Effect = Box<dyn FnOnce(&mut State, Duration) -> Result<Outcome, Fault> + Send>;

/// What a failure leaves behind.
pub(crate) type Undo = Box<dyn FnOnce(&mut State, Duration, &Fault) + Send>;

/// What happens at a moment of its own, outside of all operations.
pub(crate) type Alarm = Box<dyn FnOnce(&mut State, Duration) + Send>;

/// What is done when an operation ends.
pub(crate) struct Work {
    pub(crate) effect: Effect,
    pub(crate) undo: Option<Undo>,
}

/// Work that an accepted operation leaves for a task.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    pub(crate) operation: String,
    pub(crate) started: Duration,
    pub(crate) due: Duration,
    pub(crate) steps: Vec<HypervisorStep>,
}

/// Everything that changes.
pub(crate) struct State {
    pub(crate) store: Store,
    /// The bytes of blobs.
    pub(crate) blobs: Blobs,
    pub(crate) operations: Operations<Work>,
    /// By moment, and by order of setting.
    pub(crate) alarms: BTreeMap<(Duration, u64), Alarm>,
    pub(crate) alarms_set: u64,
    pub(crate) throttle: Throttle,
    pub(crate) log: CallLog,
    pub(crate) incidents: Incidents,
    /// What each principal may do.
    pub(crate) roles: Roles,
    pub(crate) followers: Followers,
    /// What machines held, for the metadata service, which lags.
    pub(crate) luns: LunHistory,
    /// What was counted and accepted in each phase of the run.
    pub(crate) phases: Phases,
    /// Writes that dropped what they had been given (`--future-fields`).
    pub(crate) violations: Vec<String>,
    /// Accepted operations whose task has not been spawned yet.
    pub(crate) pending: Vec<Pending>,
    /// Accepted deployments whose task has not been spawned yet.
    pub(crate) deployments: Vec<Deployment>,
    /// What is unverified, as this emulator does it.
    pub(crate) switches: Switches,
    /// The resource types that there are.
    pub(crate) types: Types,
    /// Since the start: everything that was due until then has been settled.
    pub(crate) settled: Duration,
    start_time: Timestamp,
    seed: u64,
    guids: StdRng,
}

impl State {
    pub(crate) fn new(options: &Options, types: Types) -> Self {
        Self {
            store: Store::new(Lags {
                read: options.read_lag,
                list: options.unverified.longest_list_lag(),
                seed: options.seed,
            }),
            blobs: Blobs::new(options.state_file.as_deref()),
            operations: Operations::default(),
            alarms: BTreeMap::new(),
            alarms_set: 0,
            throttle: Throttle::default(),
            log: CallLog::default(),
            incidents: Incidents::new(),
            roles: options.scenario.roles(),
            followers: Followers::default(),
            luns: LunHistory::new(options.imds_lag),
            phases: Phases::default(),
            violations: Vec::new(),
            pending: Vec::new(),
            deployments: Vec::new(),
            switches: options.unverified,
            types,
            settled: Duration::ZERO,
            start_time: options.start_time,
            seed: options.seed,
            guids: StdRng::seed_from_u64(options.seed),
        }
    }

    /// Writes down a call: in the log, and in the counters of the run and of the phase.
    pub(crate) fn note(&mut self, call: Call) {
        self.phases.count(&call);
        self.log.push(call);
    }

    /// The next GUID.
    pub(crate) fn guid(&mut self) -> String {
        let mut bytes = [0_u8; 16];
        self.guids.fill_bytes(&mut bytes);
        uuid::Builder::from_random_bytes(bytes).into_uuid().to_string()
    }

    /// The stamp of the moment at which `at` had passed since the start.
    pub(crate) fn stamp(&self, at: Duration) -> String {
        clock::stamp(self.start_time + at)
    }

    /// The wall-clock moment at which `at` had passed since the start.
    pub(crate) fn moment(&self, at: Duration) -> Timestamp {
        self.start_time + at
    }

    /// The seed of everything random.
    pub(crate) const fn random_seed(&self) -> u64 {
        self.seed
    }

    /// Notes what a machine holds from `at` on.
    pub(crate) fn remember_luns(&mut self, vm: &str, at: Duration) {
        let held = self.store.lun_map(vm);
        self.luns.record(vm, at, held);
    }

    /// A number that follows from the seed and a text alone.
    pub(crate) fn drawn(&self, text: &str) -> u64 {
        derived::drawn(self.seed, text)
    }

    /// The latency of the nth write of a resource: it depends on the seed, the resource and n only, so
    /// that the order in which different resources are written changes nothing.
    pub(crate) fn draw(&self, options: &Options, kind: OperationKind, resource: &str, nth: u64) -> Duration {
        let name = format!("{}/{kind:?}/{nth}/{}", self.seed, path::key(resource));
        let mut rng = StdRng::seed_from_u64(derived::hash(&name));
        options.latency.sample(kind, &mut rng)
    }
}
