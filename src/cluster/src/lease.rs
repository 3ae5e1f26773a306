//! Leadership among the replicas of this program, by a Lease that the Go managers know too.
//!
//! [`lazuli_engine::lease`] decides; here are the requests. The Lease is edited as the API server showed it, so what other
//! versions of Kubernetes put into it stays.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use http::{Method, Request};
use jiff::Timestamp;
use kube::Client;
use lazuli_engine::lease::{Election, Loss, Next, Record, Terms, carried};
use serde_json::{Value, json};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use super::server::ApiError;

/// What the annotations of the Lease begin with that are marks of this program.
const MARKS: &str = "lazuli.azure/";

/// How long one request may take. Longer ones would leave no time for a second try before the lease ends.
const CALL: Duration = Duration::from_secs(4);

/// Which Lease, and who asks for it.
#[derive(Debug, Clone)]
pub struct LeaseName {
    /// The namespace, such as `kube-system`.
    pub namespace: String,
    /// The name, such as `cloud-controller-manager`.
    pub name: String,
    /// This process; no two processes share one.
    pub identity: String,
}

/// What this process has seen of its Lease last. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct LeaseView(Arc<Mutex<SeenLease>>);

/// What was seen of a Lease.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SeenLease {
    /// Until when this process leads; `None` when it does not.
    pub leads_until: Option<Instant>,
    /// Who holds it; `None` when nobody does, or none was read yet.
    pub holder: Option<String>,
}

impl LeaseView {
    /// What was seen last.
    pub fn seen(&self) -> SeenLease {
        self.lock().clone()
    }

    pub(crate) fn note(&self, leads_until: Option<Instant>, shown: &Value) {
        let holder = shown["spec"]["holderIdentity"].as_str().filter(|holder| !holder.is_empty());
        let mut seen = self.lock();
        seen.leads_until = leads_until;
        if seen.holder.as_deref() != holder {
            seen.holder = holder.map(str::to_owned);
        }
    }

    fn lock(&self) -> MutexGuard<'_, SeenLease> {
        // Every change is complete.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How leading ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The process was told to stop.
    Stopped,
    /// This replica led and leads no more. The process must end, since another replica may write.
    Lost(Loss),
}

/// A lease that cannot be written as planned.
#[derive(Debug)]
enum Failed {
    /// The Lease has another version by now, or was created by another replica.
    Conflict,
    /// The API server refused, or did not answer.
    Other(String),
}

impl LeaseName {
    fn collection(&self) -> String {
        format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", self.namespace)
    }

    fn path(&self) -> String {
        format!("{}/{}", self.collection(), self.name)
    }
}

/// Takes the Lease and keeps it. `until` shows until when this replica leads; `None` while it does not. `view` shows that to
/// people, with the holder.
///
/// Returns when the lease is lost, or after `stop`. After `stop` a leader goes on renewing until `drained`: its writes may
/// still be in flight. Then it gives the Lease up, so that another replica need not wait.
pub async fn lead(
    client: &Client,
    lease: &LeaseName,
    terms: Terms,
    (until, view): (&watch::Sender<Option<Instant>>, &LeaseView),
    stop: &CancellationToken,
    drained: impl Future<Output = ()>,
) -> Ended {
    let start = Instant::now();
    let mut election = Election::new(lease.identity.clone(), terms);
    // The newest Lease as the API server showed it.
    let mut shown = Value::Null;
    let mut drained = std::pin::pin!(drained);
    loop {
        let leads = election.leads_until().map(|until| start + until);
        view.note(leads, &shown);
        until.send_if_modified(|shown| {
            let differs = *shown != leads;
            if leads.is_some() && shown.is_none() {
                info!(lease = lease.name, identity = lease.identity, "this replica leads");
            }
            *shown = leads;
            differs
        });
        if stop.is_cancelled() && leads.is_none() {
            return Ended::Stopped;
        }
        let now = start.elapsed();
        let taken = match election.next(now) {
            Next::Lost(loss) => {
                until.send_replace(None);
                view.note(None, &shown);
                let why = match loss {
                    Loss::Taken => "another process holds it",
                    Loss::NotRenewed => "the API server took no renewal before it ended",
                };
                error!(lease = lease.name, why, "the lease is lost");
                return Ended::Lost(loss);
            }
            Next::Wait { until: soonest } => {
                tokio::select! {
                    () = sleep_until(start + soonest) => {}
                    () = stop.cancelled(), if leads.is_none() => {}
                    () = &mut drained, if stop.is_cancelled() => {
                        until.send_replace(None);
                        view.note(None, &Value::Null);
                        give_up(client, lease, shown).await;
                        return Ended::Stopped;
                    }
                }
                continue;
            }
            Next::Read => {
                match read(client, lease).await {
                    Ok(found) => {
                        shown = found.unwrap_or_default();
                        election.saw(record(&shown), start.elapsed());
                    }
                    Err(error) => {
                        let error = ApiError::boxed(error);
                        warn!(lease = lease.name, %error, "the lease cannot be read");
                        election.failed(start.elapsed());
                    }
                }
                continue;
            }
            // `shown` has the version that the election names.
            Next::Create | Next::Take { .. } => true,
            Next::Renew { .. } => false,
        };
        debug!(lease = lease.name, taken, "writing the lease");
        match write(client, lease, held(&shown, lease, taken, terms)).await {
            Ok(written) => {
                shown = written;
                match record(&shown) {
                    Some(record) => election.wrote(record, now),
                    None => election.failed(start.elapsed()),
                }
            }
            Err(Failed::Conflict) => election.conflicted(),
            Err(Failed::Other(error)) => {
                warn!(lease = lease.name, %error, "the lease cannot be written");
                election.failed(start.elapsed());
            }
        }
    }
}

/// A mark that replicas leave on the Lease: an annotation whose key begins with `lazuli.azure/`. Whether there is one, as
/// the leader sees it: one from before another controller led went when this replica took the Lease.
///
/// # Errors
/// When the API server refuses or does not answer. A Lease that is not there has no marks.
pub async fn read_mark(client: &Client, lease: &LeaseName, key: &str) -> kube::Result<bool> {
    let found = read(client, lease).await?;
    Ok(found.is_some_and(|found| found["metadata"]["annotations"][key].is_string()))
}

/// Leaves a mark on the Lease, for this leadership and those of this program that follow it. The leader that renews it meanwhile meets another version, reads it and goes on.
///
/// # Errors
/// When the API server refuses or does not answer.
pub async fn write_mark(client: &Client, lease: &LeaseName, key: &str) -> kube::Result<()> {
    let found = read(client, lease).await?.unwrap_or_default();
    // Where another replica leads by now, its number makes the mark void.
    if found["spec"]["holderIdentity"] != lease.identity {
        return Ok(());
    }
    let leadership = transitions(&found).to_string();
    let body = json!({"metadata": {"annotations": {key: leadership}}}).to_string().into_bytes();
    let request = Request::builder().method(Method::PATCH).uri(lease.path());
    let request = request.header("content-type", "application/merge-patch+json").body(body);
    let request = request.map_err(kube::Error::HttpError)?;
    let late = |_| kube::Error::Service(format!("no answer within {} s", CALL.as_secs()).into());
    timeout(CALL, client.request::<Value>(request)).await.map_err(late)?.map(|_| ())
}

/// A request with an end.
async fn call(client: &Client, method: Method, path: &str, body: &Value) -> kube::Result<Value> {
    let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let request = Request::builder().method(method).uri(path).header("content-type", "application/json").body(bytes);
    let request = request.map_err(kube::Error::HttpError)?;
    let late = |_| kube::Error::Service(format!("no answer within {} s", CALL.as_secs()).into());
    timeout(CALL, client.request(request)).await.map_err(late)?
}

async fn read(client: &Client, lease: &LeaseName) -> kube::Result<Option<Value>> {
    match call(client, Method::GET, &lease.path(), &Value::Null).await {
        Ok(found) => Ok(Some(found)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error),
    }
}

/// Creates the Lease, or writes it over the version that it carries.
async fn write(client: &Client, lease: &LeaseName, body: Value) -> Result<Value, Failed> {
    let is_new = body["metadata"]["resourceVersion"].is_null();
    let (method, path) = if is_new { (Method::POST, lease.collection()) } else { (Method::PUT, lease.path()) };
    call(client, method, &path, &body).await.map_err(|error| match error {
        kube::Error::Api(status) if status.code == 409 => Failed::Conflict,
        // It was deleted since it was read.
        kube::Error::Api(status) if status.code == 404 && !is_new => Failed::Conflict,
        kube::Error::Api(status) if status.code == 404 => {
            let namespace = &lease.namespace;
            Failed::Other(format!(
                "Lease {namespace}/{} cannot be made: {}; its namespace must be one that exists",
                lease.name, status.message
            ))
        }
        other => Failed::Other(ApiError::boxed(other).to_string()),
    })
}

/// What the API server's Lease says; `None` where there is none.
fn record(lease: &Value) -> Option<Record> {
    let version = lease["metadata"]["resourceVersion"].as_str()?.to_owned();
    let spec = &lease["spec"];
    let holder = spec["holderIdentity"].as_str().unwrap_or_default().to_owned();
    let duration = Duration::from_secs(spec["leaseDurationSeconds"].as_u64().unwrap_or_default());
    Some(Record { version, holder, duration })
}

/// The Lease with this process as its holder. `taken`: as a new one.
fn held(shown: &Value, lease: &LeaseName, taken: bool, terms: Terms) -> Value {
    let mut body = shown.clone();
    if body.is_null() {
        body = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": {"leaseTransitions": -1}});
    }
    body["metadata"]["namespace"] = json!(lease.namespace);
    body["metadata"]["name"] = json!(lease.name);
    let stamp = format!("{:.6}", Timestamp::now());
    let before = transitions(&body);
    if taken {
        let now = before.saturating_add(1);
        body["spec"]["leaseTransitions"] = json!(now);
        body["spec"]["acquireTime"] = json!(stamp);
        if let Some(annotations) = body["metadata"]["annotations"].as_object_mut() {
            annotations.retain(|key, mark| {
                let is_mark = key.starts_with(MARKS);
                match carried(mark.as_str().unwrap_or_default(), before, now).filter(|_| is_mark) {
                    Some(carried) => *mark = carried.into(),
                    None => return !is_mark,
                }
                true
            });
        }
    }
    let spec = &mut body["spec"];
    spec["holderIdentity"] = json!(lease.identity);
    spec["leaseDurationSeconds"] = json!(terms.duration.as_secs());
    spec["renewTime"] = json!(stamp);
    body
}

/// How often the Lease has got another holder.
fn transitions(lease: &Value) -> i64 {
    lease["spec"]["leaseTransitions"].as_i64().unwrap_or(0)
}

/// Gives the Lease up as client-go does: no holder, and a duration of one second.
async fn give_up(client: &Client, lease: &LeaseName, shown: Value) {
    let mut body = shown;
    body["spec"]["holderIdentity"] = json!("");
    body["spec"]["leaseDurationSeconds"] = json!(1);
    match write(client, lease, body).await {
        Ok(_) => info!(lease = lease.name, "this replica has given up the lease"),
        Err(error) => warn!(lease = lease.name, ?error, "the lease ends by itself: it cannot be given up"),
    }
}

#[cfg(test)]
mod tests {
    use lazuli_apiserver::{ApiServer, Options};
    use tokio::task::JoinHandle;
    use tokio::time::sleep;

    use super::*;

    struct Replica {
        view: LeaseView,
        until: watch::Receiver<Option<Instant>>,
        stop: CancellationToken,
        drained: CancellationToken,
        task: JoinHandle<Ended>,
    }

    impl Replica {
        fn start(server: &ApiServer, identity: &str) -> Self {
            let client = Client::new(server.router(), "default");
            let lease = LeaseName {
                namespace: "kube-system".to_owned(),
                name: "cloud-controller-manager".to_owned(),
                identity: identity.to_owned(),
            };
            let (until, shown) = watch::channel(None);
            let (stop, drained) = (CancellationToken::new(), CancellationToken::new());
            let (stops, drains) = (stop.clone(), drained.clone());
            let view = LeaseView::default();
            let views = view.clone();
            let task = tokio::spawn(async move {
                lead(&client, &lease, Terms::default(), (&until, &views), &stops, drains.cancelled()).await
            });
            Self { view, until: shown, stop, drained, task }
        }

        fn leads(&self) -> bool {
            self.until.borrow().is_some_and(|until| until > Instant::now())
        }
    }

    fn lease(server: &ApiServer) -> Value {
        server.get("leases", "kube-system", "cloud-controller-manager").expect("the lease exists")
    }

    #[tokio::test(start_paused = true)]
    async fn one_replica_leads_and_another_follows_when_it_is_killed() {
        let server = ApiServer::start(Options::default());
        let first = Replica::start(&server, "first");
        sleep(Duration::from_secs(1)).await;
        let second = Replica::start(&server, "second");
        sleep(Duration::from_secs(60)).await;
        assert!(first.leads() && !second.leads());
        for (replica, leads) in [(&first, true), (&second, false)] {
            let seen = replica.view.seen();
            assert_eq!((seen.leads_until.is_some(), seen.holder.as_deref()), (leads, Some("first")));
        }
        assert_eq!(lease(&server)["spec"]["leaseTransitions"], 0);
        first.task.abort();
        sleep(Duration::from_secs(13)).await;
        assert!(!second.leads(), "the lease has not run out");
        sleep(Duration::from_secs(8)).await;
        assert!(second.leads());
        let spec = &lease(&server)["spec"];
        assert_eq!((&spec["holderIdentity"], &spec["leaseTransitions"]), (&json!("second"), &json!(1)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_whose_namespace_does_not_exist_is_tried_every_few_seconds() {
        let count = Arc::new(std::sync::atomic::AtomicU32::new(0));
        let asked = count.clone();
        let router = axum::Router::new().fallback(move || {
            asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound",
                "message": "namespaces \"nope\" not found", "code": 404});
            async move { (http::StatusCode::NOT_FOUND, axum::body::Bytes::from(status.to_string())) }
        });
        let client = Client::new(router, "default");
        let name = |text: &str| text.to_owned();
        let lease =
            LeaseName { namespace: name("nope"), name: name("cloud-controller-manager"), identity: name("first") };
        let (until, _shown) = watch::channel(None);
        let stop = CancellationToken::new();
        let view = LeaseView::default();
        let leads = lead(&client, &lease, Terms::default(), (&until, &view), &stop, std::future::pending());
        assert!(timeout(Duration::from_secs(20), leads).await.is_err());
        let asked = count.load(std::sync::atomic::Ordering::Relaxed);
        assert!((4..=24).contains(&asked), "{asked} requests in 20 s");
        let error = write(&client, &lease, held(&Value::Null, &lease, true, Terms::default())).await.unwrap_err();
        let Failed::Other(error) = error else { panic!("{error:?}") };
        assert!(
            error.contains("Lease nope/cloud-controller-manager cannot be made: namespaces \"nope\" not found"),
            "{error}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_replica_that_stops_leads_until_it_has_drained_and_gives_the_lease_up() {
        let server = ApiServer::start(Options::default());
        let first = Replica::start(&server, "first");
        sleep(Duration::from_secs(1)).await;
        let second = Replica::start(&server, "second");
        first.stop.cancel();
        sleep(Duration::from_secs(40)).await;
        assert!(first.leads(), "a write may be in flight");
        first.drained.cancel();
        assert_eq!(first.task.await.unwrap(), Ended::Stopped);
        sleep(Duration::from_secs(3)).await;
        assert!(second.leads(), "nothing had to run out");
    }

    #[tokio::test(start_paused = true)]
    async fn a_leader_that_is_shut_out_ends() {
        let server = ApiServer::start(Options::default());
        let leader = Replica::start(&server, "first");
        sleep(Duration::from_secs(1)).await;
        let mut other = lease(&server);
        other["spec"]["holderIdentity"] = json!("go-manager");
        other["spec"]["strategy"] = json!("OldestEmulationVersion");
        server.put("leases", other).unwrap();
        assert_eq!(leader.task.await.unwrap(), Ended::Lost(Loss::Taken));
        assert_eq!(*leader.until.borrow(), None);
        let next = Replica::start(&server, "second");
        sleep(Duration::from_secs(30)).await;
        assert!(next.leads());
        assert_eq!(lease(&server)["spec"]["strategy"], "OldestEmulationVersion", "what others wrote stays");
    }

    #[tokio::test(start_paused = true)]
    async fn a_candidate_that_stops_ends_at_once_and_leaves_the_lease() {
        let server = ApiServer::start(Options::default());
        let _leader = Replica::start(&server, "first");
        sleep(Duration::from_secs(1)).await;
        let candidate = Replica::start(&server, "second");
        sleep(Duration::from_secs(5)).await;
        candidate.stop.cancel();
        assert_eq!(candidate.task.await.unwrap(), Ended::Stopped);
        assert_eq!(lease(&server)["spec"]["holderIdentity"], "first");
    }

    #[test]
    fn a_mark_ends_with_the_leadership_of_another_controller() {
        let lease = LeaseName { namespace: "n".to_owned(), name: "l".to_owned(), identity: "me".to_owned() };
        let shown = |marked_at: &str, transitions: i64| {
            json!({"metadata": {"annotations": {"lazuli.azure/mark": marked_at, "other.example/mark": "1"}},
                "spec": {"holderIdentity": "other", "leaseTransitions": transitions}})
        };
        let annotations =
            |shown: &Value, taken| held(shown, &lease, taken, Terms::default())["metadata"]["annotations"].clone();
        let of_ours = json!({"lazuli.azure/mark": "5", "other.example/mark": "1"});
        assert_eq!(annotations(&shown("4", 4), true), of_ours);
        assert_eq!(annotations(&shown("4", 5), true), json!({"other.example/mark": "1"}));
        assert_eq!(annotations(&shown("5", 5), false), of_ours, "a renewal is no new leadership");
    }

    #[test]
    fn stamps_have_microseconds_as_kubernetes_writes_them() {
        let lease = LeaseName { namespace: "n".to_owned(), name: "l".to_owned(), identity: "me".to_owned() };
        let body = held(&Value::Null, &lease, true, Terms::default());
        let stamp = body["spec"]["renewTime"].as_str().unwrap();
        assert_eq!((stamp.len(), &stamp[19..20], &stamp[26..]), (27, ".", "Z"), "{stamp}");
        assert_eq!(body["spec"]["leaseTransitions"], 0);
    }
}
