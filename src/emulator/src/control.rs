//! The control interface: typed for tests and demos, and over HTTP under `/_emulator/`.
//!
//! | request | what |
//! |---|---|
//! | `GET /_emulator/health` | 200 when it serves |
//! | `GET /_emulator/state` | dump: all resource documents, LUN maps, operations in flight, violations |
//! | `GET /_emulator/calls` | the call log: the newest calls, within [`crate::call_log::KEPT_MOST`] and [`crate::call_log::KEPT_BYTES`] |
//! | `DELETE /_emulator/calls` | empties call log, counters and phases; buckets stay as they are |
//! | `GET /_emulator/counters` | sums over all calls since the log was emptied |
//! | `GET /_emulator/phases` | what each phase counted, found in the buckets, and its lower bound |
//! | `POST /_emulator/phases` | `{"name": "..."}` begins a phase and answers its number and moment; buckets stay as they are |
//! | `GET /_emulator/phases/{number}/operations` | the operations accepted in a phase, with their ends |
//! | `GET /_emulator/lower-bound` | how fast all phases could have been, one after the other |
//! | `POST /_emulator/buckets/fill` | all buckets are full, as after a long rest |
//! | `GET`, `POST`, `DELETE /_emulator/incidents` | list, add (one or a list), forget all |
//! | `DELETE /_emulator/incidents/{id}` | forget one |
//! | `GET /_emulator/resource?id=...` | one resource as Azure shows it, without secrets |
//! | `GET /_emulator/calls/{number}` | one call of the log |
//! | `POST /_emulator/machines` | `{"id": "...", "runs": false}` stops a virtual machine as if its system had crashed: it is `stopped`, its disks stay attached, and no operation is started; `true` lets it run again |
//! | `GET /_emulator/roles` | the principals that may not do everything, by object id, with their roles |
//! | `POST /_emulator/roles` | `{"principal": "...", "roles": [{"actions": ["*/read"]}]}`: what a client, a managed identity or an object id may do from now on; everything without `roles`. The members of a role are those of the scenario: `scope`, `actions`, `notActions` |
//! | `GET /_emulator/smb` | the servers of file shares ([`crate::smb`]) with address, process, log and folders |
//! | `POST /_emulator/smb` | `{"account": "...", "serves": false}` stops the server of an account, `true` starts it again |
//! | `GET /_emulator/scenario` | what existed at the start, without secrets |
//! | `GET /_emulator/overview` | what the page at `/` shows, for the page: its shape follows the page's needs |
//! | `GET /_emulator/ca.pem` | the authority's certificate, with TLS |
//!
//! Nothing here needs a token, takes from a bucket, or is logged. A POST needs `Content-Type: application/json`, also
//! without a body. The host that a request names must be one of the emulator's, and no page of another site may ask:
//! see `access.rs`. No answer holds a secret: passwords, access signatures and the secrets of clients are
//! `<redacted>`, and no token is in any.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use axum::{Json, Router, middleware};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::access;
use crate::arm::compute::scale_sets::members;
use crate::arm::engine::references::BackReferences;
use crate::blob::vhd;
use crate::call_log::{Call, Counters, LogSize};
use crate::changes::Step;
use crate::incident::{Incident, IncidentError, Listed};
use crate::lower_bound::LowerBound;
use crate::page;
use crate::phases::{Begun, OperationRecord, Phase};
use crate::redact::redact;
use crate::roles::Role;
use crate::smb::{FileServer, SmbError};
use crate::state::Shared;
use crate::store::{Document, Power, Store};
use crate::throttle::Throttle;

/// A handle on a running emulator. Clones are one handle.
#[derive(Clone)]
pub struct Control {
    pub(crate) shared: Arc<Shared>,
}

impl std::fmt::Debug for Control {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Control").field("url", &self.shared.url).finish_non_exhaustive()
    }
}

/// A principal that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{principal:?} is no principal: give the id of a client, the name or client id of a managed identity of the scenario, or an object id"
)]
pub struct UnknownPrincipal {
    /// What was given.
    pub principal: String,
}

/// A machine that cannot be stopped or started from outside of Azure.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MachineError {
    /// There is none.
    #[error("{id:?} is the id of no virtual machine or instance of a scale set")]
    Unknown {
        /// What was given.
        id: String,
    },
    /// Its power state is another than the one that this ends.
    #[error("{id} is {power}: only a running machine stops, and only a stopped one runs again")]
    Power {
        /// The machine.
        id: String,
        /// Its power state.
        power: &'static str,
    },
}

/// Everything at one moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Dump {
    /// Milliseconds of emulated time since the start.
    pub at_ms: u64,
    /// Resource documents by lower-case id.
    pub resources: BTreeMap<String, Value>,
    /// Machine (lower-case id) to LUN to disk id: what each hypervisor holds.
    pub luns: BTreeMap<String, BTreeMap<u8, String>>,
    /// Machine (lower-case id) to power state.
    pub power: BTreeMap<String, String>,
    /// Operations in flight.
    pub running_operations: usize,
    /// Writes that dropped members they had been given (`--future-fields`).
    pub violations: Vec<String>,
}

impl Control {
    /// The call log since the last reset: the newest calls, see [`Control::call_log_size`].
    #[must_use]
    pub fn call_log(&self) -> Vec<Call> {
        self.shared.state().log.calls().cloned().collect()
    }

    /// How much the call log holds, and how much it could not hold.
    #[must_use]
    pub fn call_log_size(&self) -> LogSize {
        self.shared.state().log.size()
    }

    /// Sums over the call log.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.shared.state().log.counters().clone()
    }

    /// Empties the call log, the counters and the phases. Buckets stay as they are.
    pub fn reset_log(&self) {
        let now = self.shared.clock.elapsed();
        let mut state = self.shared.state();
        state.log.reset();
        let contents = state.throttle.contents(now);
        state.phases.reset(now, contents);
    }

    /// Begins a phase of this name; the one before it ends. Buckets stay as they are, and what they hold now is where
    /// the phase's lower bound starts.
    pub fn begin_phase(&self, name: &str) -> Begun {
        let now = self.shared.clock.elapsed();
        let mut state = self.shared.state();
        let contents = state.throttle.contents(now);
        let number = state.phases.begin(name, now, contents);
        Begun { number, started_ms: u64::try_from(now.as_millis()).unwrap_or(u64::MAX) }
    }

    /// The phases since the log was last emptied, the running one last: the newest
    /// [`crate::phases::PHASES_MOST`].
    #[must_use]
    pub fn phases(&self) -> Vec<Phase> {
        self.shared.state().phases(&self.shared.options)
    }

    /// The operations that were accepted in a phase, in order, with their ends.
    #[must_use]
    pub fn operations_of(&self, phase: u64) -> Vec<OperationRecord> {
        self.shared.state().operations_of(phase)
    }

    /// Fills all buckets, as a long rest would.
    pub fn fill_buckets(&self) {
        self.shared.state().throttle = Throttle::default();
    }

    /// How fast the run since the last reset could have been, phase after phase; see [`LowerBound`].
    #[must_use]
    pub fn lower_bound(&self) -> LowerBound {
        self.shared.state().lower_bound(&self.shared.options)
    }

    /// Everything that exists.
    #[must_use]
    pub fn dump(&self) -> Dump {
        let at = self.shared.clock.elapsed();
        let state = self.shared.state();
        let mut dump = Dump {
            at_ms: u64::try_from(at.as_millis()).unwrap_or(u64::MAX),
            resources: BTreeMap::new(),
            luns: BTreeMap::new(),
            power: BTreeMap::new(),
            running_operations: state.operations.running(),
            violations: state.violations.clone(),
        };
        for (key, resource) in state.store.iter() {
            dump.resources.insert(key.clone(), resource.doc.clone().into_value());
            if let Some(machine) = &resource.machine {
                dump.luns.insert(key.clone(), machine.attached.clone());
                dump.power.insert(key.clone(), machine.power.word().to_owned());
            }
        }
        dump
    }

    /// Tells `follower` from now on what each step changes, and returns what exists before the first. The emulator is
    /// locked meanwhile: `follower` must not call it.
    pub fn follow(&self, follower: impl FnMut(&Step) + Send + 'static) -> BTreeMap<String, Document> {
        let mut state = self.shared.state();
        state.follow(Box::new(follower));
        state.store.iter().map(|(key, resource)| (key.clone(), resource.doc.clone())).collect()
    }

    /// Machine (lower-case id) to LUN to disk id: what each hypervisor holds now.
    #[must_use]
    pub fn lun_maps(&self) -> BTreeMap<String, BTreeMap<u8, String>> {
        self.dump().luns
    }

    /// Adds an incident; returns its number.
    ///
    /// # Errors
    ///
    /// When the incident makes no sense.
    pub fn add_incident(&self, incident: Incident) -> Result<u64, IncidentError> {
        self.shared.state().incidents.add(incident)
    }

    /// All incidents with their counters.
    #[must_use]
    pub fn incidents(&self) -> Vec<Listed> {
        self.shared.state().incidents.list().to_vec()
    }

    /// Forgets all incidents.
    pub fn clear_incidents(&self) {
        self.shared.state().incidents.clear();
    }

    /// A resource as a GET shows it, without secrets; none where there is none.
    #[must_use]
    pub fn resource(&self, id: &str) -> Option<Value> {
        let state = self.shared.state();
        let doc = state.store.document(id)?;
        let shown = match state.types.of(&doc) {
            Some(descriptor) => BackReferences::of(descriptor, &state).shown_in(doc),
            None => doc,
        };
        Some(redacted(shown.into_value()))
    }

    /// Stops a machine as if its system had crashed, or lets it run again. Its disks stay attached, and nothing that runs is
    /// ended. Only its power state changes, as Azure shows it.
    ///
    /// # Errors
    ///
    /// When there is no such machine, or its power state is not the one that this ends.
    pub fn set_machine_runs(&self, id: &str, runs: bool) -> Result<(), MachineError> {
        let now = self.shared.clock.elapsed();
        let mut state = self.shared.state();
        let Some(power) = state.store.power(id) else {
            return Err(MachineError::Unknown { id: id.to_owned() });
        };
        let to = match (power, runs) {
            (Power::Running, false) => Power::Stopped,
            (Power::Stopped, true) => Power::Running,
            (power, _) => return Err(MachineError::Power { id: id.to_owned(), power: power.word() }),
        };
        state.store.change(id, now, |resource| {
            if let Some(machine) = &mut resource.machine {
                machine.power = to;
            }
        });
        members::touch(&mut state, id, now);
        drop(state);
        self.shared.saver.changed();
        Ok(())
    }

    /// The principals that may not do everything, by object id, with their roles.
    #[must_use]
    pub fn roles(&self) -> BTreeMap<String, Vec<Role>> {
        self.shared.state().roles.all().clone()
    }

    /// Gives a principal these roles from now on, everything without a list: a client by its id, a managed identity of
    /// the scenario by its name or client id, any other by its object id.
    ///
    /// # Errors
    ///
    /// When it is none of these.
    pub fn set_roles(&self, principal: &str, roles: Option<Vec<Role>>) -> Result<(), UnknownPrincipal> {
        let unknown = || UnknownPrincipal { principal: principal.to_owned() };
        let object = self.shared.options.scenario.principal(principal).ok_or_else(unknown)?;
        self.shared.state().roles.set(&object, roles);
        Ok(())
    }

    /// Writes that dropped what they had been given (`--future-fields`).
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        self.shared.state().violations.clone()
    }

    /// Operations in flight.
    #[must_use]
    pub fn running_operations(&self) -> usize {
        self.shared.state().operations.running()
    }

    /// Refuses all tokens issued so far, as after a rotation of credentials.
    pub fn revoke_tokens(&self) {
        self.shared.tokens.revoke_all();
    }

    /// A token for the first client of the scenario, for tests that speak HTTP themselves.
    #[must_use]
    pub fn token(&self) -> String {
        let scenario = &self.shared.options.scenario;
        let client = scenario.clients.first();
        let subject = crate::login::Subject {
            tenant: scenario.tenant_id.clone(),
            client_id: client.map(|client| client.id.clone()).unwrap_or_default(),
            object_id: client.map(crate::scenario::Client::object_id).unwrap_or_default(),
            identity: None,
        };
        self.shared.tokens.issue(
            "https://management.azure.com/",
            &subject,
            self.shared.clock.token_now(),
            crate::login::TOKEN_LIFETIME,
        )
    }

    /// The servers of file shares, by account; none without [`crate::Options::smb`].
    #[must_use]
    pub fn file_servers(&self) -> Vec<FileServer> {
        self.shared.smb.servers()
    }

    /// Stops the server of an account's file shares, as an outage does, or starts it again; waits until it is done.
    ///
    /// # Errors
    ///
    /// When the account has no server, or it does not start.
    pub async fn serve_files(&self, account: &str, serves: bool) -> Result<(), SmbError> {
        self.shared.smb.set_out(account, !serves).await
    }

    /// Reads the store at this moment.
    pub fn store<T>(&self, read: impl FnOnce(&Store) -> T) -> T {
        self.shared.store(read)
    }

    /// Bytes of a blob, by its address, whoever has it. `None` where there are none.
    #[must_use]
    pub fn blob_bytes(&self, uri: &str, at: u64, length: usize) -> Option<Vec<u8>> {
        vhd::bytes(&self.shared.state(), uri, at, length)
    }

    /// The machine that has a blob, by its address, writes to its disk. `None` where no machine has it, or where it cannot be
    /// written there.
    pub fn write_as_machine(&self, uri: &str, at: u64, bytes: &[u8]) -> Option<()> {
        let now = self.shared.clock.elapsed();
        let written = vhd::write(&mut self.shared.state(), uri, at, bytes, now);
        self.shared.saver.changed();
        written
    }

    /// Deletes a blob that nobody has leased, by its address, as a person would. `None` where there is none.
    pub fn delete_blob(&self, uri: &str) -> Option<()> {
        let now = self.shared.clock.elapsed();
        let deleted = vhd::delete(&mut self.shared.state(), uri, now);
        self.shared.saver.changed();
        deleted
    }

    /// Changes a resource's document behind everybody's back, as another tool or a person would.
    /// `None` when it does not exist.
    pub fn tamper(&self, id: &str, change: impl FnOnce(&mut Value)) -> Option<()> {
        let now = self.shared.clock.elapsed();
        let mut state = self.shared.state();
        let changed = state.store.change(id, now, |resource| {
            change(&mut resource.doc);
            if resource.machine.is_some() {
                crate::arm::compute::vm_work::bump(resource);
            }
        });
        drop(state);
        self.shared.saver.changed();
        changed
    }
}

/// Everything below `/_emulator`, for those whom [`crate::access`] lets in.
pub(crate) fn router(shared: Arc<Shared>) -> Router {
    let names = Arc::clone(&shared.names);
    let control = Control { shared };
    let routes = Router::new()
        .route("/health", get(|| async { "ok" }))
        .route("/state", get(|State(c): State<Control>| async move { Json(redacted(json!(c.dump()))) }))
        .route(
            "/calls",
            get(|State(c): State<Control>| async move { Json(c.call_log()) }).delete(
                |State(c): State<Control>| async move {
                    c.reset_log();
                    StatusCode::NO_CONTENT
                },
            ),
        )
        .route("/counters", get(|State(c): State<Control>| async move { Json(c.counters()) }))
        .route("/lower-bound", get(|State(c): State<Control>| async move { Json(c.lower_bound()) }))
        .route("/phases", get(|State(c): State<Control>| async move { Json(c.phases()) }).post(begin_phase))
        .route(
            "/phases/{number}/operations",
            get(|State(c): State<Control>, Path(number): Path<u64>| async move { Json(c.operations_of(number)) }),
        )
        .route(
            "/buckets/fill",
            post(|State(c): State<Control>| async move {
                c.fill_buckets();
                StatusCode::NO_CONTENT
            }),
        )
        .route(
            "/incidents",
            get(|State(c): State<Control>| async move { Json(c.incidents()) }).post(add_incidents).delete(
                |State(c): State<Control>| async move {
                    c.clear_incidents();
                    StatusCode::NO_CONTENT
                },
            ),
        )
        .route("/incidents/{id}", delete(remove_incident))
        .route("/resource", get(resource))
        .route("/calls/{number}", get(call))
        .route("/machines", post(set_machine_runs))
        .route("/roles", get(|State(c): State<Control>| async move { Json(c.roles()) }).post(set_roles))
        .route("/smb", get(|State(c): State<Control>| async move { Json(c.file_servers()) }).post(serve_files))
        .route(
            "/scenario",
            get(|State(c): State<Control>| async move { Json(redacted(json!(c.shared.options.scenario))) }),
        )
        .route("/ca.pem", get(ca_pem))
        .merge(page::router())
        .fallback(unknown)
        .layer(middleware::from_fn_with_state(names, access::guard))
        .with_state(control);
    Router::new().nest("/_emulator", routes)
}

/// What there is below `/_emulator/`.
const PATHS: &str = "health, state, overview, resource?id=ID, calls, calls/NUMBER, counters, lower-bound, phases, \
                     phases/NUMBER/operations, buckets/fill, incidents, incidents/NUMBER, machines, roles, scenario, smb, ca.pem";

async fn unknown() -> Response {
    missing(&format!("there is no such thing below /_emulator/; there are: {PATHS}"))
}

fn redacted(mut value: Value) -> Value {
    redact(&mut value);
    value
}

/// What `POST /_emulator/phases` takes.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PhaseName {
    name: String,
}

async fn begin_phase(State(control): State<Control>, body: bytes::Bytes) -> Response {
    match serde_json::from_slice::<PhaseName>(&body) {
        Ok(PhaseName { name }) => (StatusCode::CREATED, Json(control.begin_phase(&name))).into_response(),
        Err(error) => refused(&error.to_string()),
    }
}

/// What `GET /_emulator/resource` takes.
#[derive(Deserialize)]
struct ResourceId {
    id: String,
}

async fn resource(State(control): State<Control>, Query(asked): Query<ResourceId>) -> Response {
    control.resource(&asked.id).map_or_else(|| missing("there is no such resource"), |doc| Json(doc).into_response())
}

async fn call(State(control): State<Control>, Path(number): Path<u64>) -> Response {
    let found = control.shared.state().log.calls().find(|call| call.number == number).cloned();
    found.map_or_else(|| missing("the log has no such call any more"), |call| Json(call).into_response())
}

fn missing(why: &str) -> Response {
    (StatusCode::NOT_FOUND, Json(json!({ "error": why }))).into_response()
}

/// What `POST /_emulator/machines` takes.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MachineRuns {
    id: String,
    runs: bool,
}

async fn set_machine_runs(State(control): State<Control>, body: bytes::Bytes) -> Response {
    let asked: MachineRuns = match serde_json::from_slice(&body) {
        Ok(asked) => asked,
        Err(error) => return refused(&error.to_string()),
    };
    match control.set_machine_runs(&asked.id, asked.runs) {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err(error) => refused(&error.to_string()),
    }
}

/// What `POST /_emulator/roles` takes.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RolesOf {
    principal: String,
    #[serde(default)]
    roles: Option<Vec<Role>>,
}

async fn set_roles(State(control): State<Control>, body: bytes::Bytes) -> Response {
    let asked: RolesOf = match serde_json::from_slice(&body) {
        Ok(asked) => asked,
        Err(error) => return refused(&error.to_string()),
    };
    for (at, role) in asked.roles.iter().flatten().enumerate() {
        if let Err((member, what)) = role.check() {
            return refused(&format!("roles[{at}].{member}: {what}"));
        }
    }
    match control.set_roles(&asked.principal, asked.roles) {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err(error) => refused(&error.to_string()),
    }
}

/// What `POST /_emulator/smb` takes.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Serves {
    account: String,
    serves: bool,
}

async fn serve_files(State(control): State<Control>, body: bytes::Bytes) -> Response {
    let asked: Serves = match serde_json::from_slice(&body) {
        Ok(asked) => asked,
        Err(error) => return refused(&error.to_string()),
    };
    match control.serve_files(&asked.account, asked.serves).await {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err(error) => refused(&error.to_string()),
    }
}

async fn add_incidents(State(control): State<Control>, body: bytes::Bytes) -> Response {
    let given: Result<Value, _> = serde_json::from_slice(&body);
    let list = match given {
        Ok(Value::Array(list)) => list,
        Ok(one) => vec![one],
        Err(error) => return refused(&error.to_string()),
    };
    let mut parsed = Vec::new();
    for one in list {
        match serde_json::from_value::<Incident>(one) {
            Ok(incident) => parsed.push(incident),
            Err(error) => return refused(&error.to_string()),
        }
    }
    let mut ids = Vec::new();
    for incident in parsed {
        match control.add_incident(incident) {
            Ok(id) => ids.push(id),
            Err(error) => return refused(&error.to_string()),
        }
    }
    (StatusCode::CREATED, Json(json!({ "ids": ids }))).into_response()
}

fn refused(why: &str) -> Response {
    (StatusCode::BAD_REQUEST, Json(json!({ "error": why }))).into_response()
}

async fn remove_incident(State(control): State<Control>, Path(id): Path<u64>) -> StatusCode {
    if control.shared.state().incidents.remove(id) { StatusCode::NO_CONTENT } else { StatusCode::NOT_FOUND }
}

async fn ca_pem(State(control): State<Control>) -> Response {
    match &control.shared.ca_pem {
        Some(pem) => ([("content-type", "application/x-pem-file")], pem.clone()).into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}
