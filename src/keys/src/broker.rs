//! The broker: answers nodes that ask for the key of a volume. Every replica of the controller does, leader or not.

use std::{
    fmt,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::{
    Router,
    body::Bytes,
    extract::{DefaultBodyLimit, State},
    http::{HeaderMap, header},
    response::{IntoResponse, Response},
    routing::post,
};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::Client;
use lazuli_cluster::{KeyFactsError, ShareVolumes, pods_of_node, review_node_token, share_volume};
use lazuli_model::{AccountKey, Secret, fault::Code};
use lazuli_shares::secret::{
    Credentials, Grant, KeyRequest, KeySource, Refusal, Requester, SecretAccess, VolumeSeen, asking_node, choose_key,
    may_have,
};
use lazuli_telemetry::http::BearerToken;
use tokio::{
    sync::{Semaphore, watch},
    time::{Instant, timeout_at},
};

use crate::{
    KeyError, Metrics,
    rate::Rates,
    stored::{missing, nameless, stored},
    wire::{LONGEST_QUESTION, PATH, Question, written},
};

/// How long a request may take, its turn included. kubelet repeats what fails.
pub(crate) const ANSWER_WITHIN: Duration = Duration::from_secs(8);
/// How many tokens are reviewed at a time. Any client can send one.
const REVIEWS: usize = 8;
/// How many requests of nodes are worked on at a time. Each may hold the Pods of a node, about a megabyte.
const REQUESTS: usize = 8;
/// How many PersistentVolumes are read at a time for a request, where several have one volume id.
const READS: usize = 8;

/// An account of Azure, as a volume names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AzureAccount {
    /// Its subscription; `None` for the cluster's.
    pub subscription: Option<String>,
    /// Its resource group; `None` for the cluster's.
    pub resource_group: Option<String>,
    /// Its name.
    pub account: String,
}

/// One reading of an account's keys under way.
pub type Reading = Pin<Box<dyn Future<Output = Result<Arc<Vec<AccountKey>>, KeyError>> + Send>>;

type Read = dyn Fn(AzureAccount) -> Reading + Send + Sync;

/// How Azure is asked for the keys of an account.
#[derive(Clone)]
pub struct AccountReader(Arc<Read>);

impl AccountReader {
    /// `read` asks Azure once. It is dropped when it takes too long.
    pub fn new(read: impl Fn(AzureAccount) -> Reading + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }
}

impl fmt::Debug for AccountReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AccountReader")
    }
}

/// What the broker rests on.
#[derive(Clone)]
pub struct Settings {
    /// Reads the cluster.
    pub client: Client,
    /// The name of the file driver.
    pub driver: String,
    /// The PersistentVolumes: says which of them may have a volume id. What counts of them is read live.
    pub volumes: watch::Receiver<ShareVolumes>,
    /// The audience of the tokens that are taken.
    pub audience: String,
    /// Namespace and name of the ServiceAccount of the node plugin.
    pub node_plugin: (String, String),
    /// How Azure is asked; without it, keys are in Secrets alone.
    pub azure: Option<AccountReader>,
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { driver, audience, node_plugin, .. } = self;
        let mut shown = f.debug_struct("Settings");
        shown.field("driver", driver).field("audience", audience).field("node_plugin", node_plugin);
        shown.finish_non_exhaustive()
    }
}

struct Broker {
    settings: Settings,
    metrics: Metrics,
    reviews: Semaphore,
    requests: Semaphore,
    rates: Mutex<Rates>,
    began: Instant,
}

/// Answers nodes. It must be served by TLS, with a certificate for the name of its Service: it is sent tokens, and sends
/// keys.
pub fn router(settings: Settings, metrics: Metrics) -> Router {
    let broker = Arc::new(Broker {
        settings,
        metrics,
        reviews: Semaphore::new(REVIEWS),
        requests: Semaphore::new(REQUESTS),
        rates: Mutex::default(),
        began: Instant::now(),
    });
    let answer = async |State(broker): State<Arc<Broker>>, headers: HeaderMap, body: Bytes| {
        broker.answer(BearerToken::of(&headers), &body).await
    };
    Router::new().route(PATH, post(answer)).layer(DefaultBodyLimit::max(LONGEST_QUESTION)).with_state(broker)
}

fn unavailable(message: &str) -> KeyError {
    KeyError::new(Code::Unavailable, message)
}

/// How a request ended, for the log: each is told once, where it is answered.
fn log(asked: &Asked, answer: &Result<Granted, KeyError>) {
    let node = asked.node.as_deref().unwrap_or("unknown");
    match answer {
        // Without the account: in a Secret that a person wrote, the key may stand in its place.
        Ok(Granted { volume, from, .. }) => {
            tracing::info!(node, volume, %from, "a node gets the key of a storage account");
        }
        // Any client can cause it.
        Err(error) if asked.node.is_none() && error.code != Code::Unavailable => {
            tracing::debug!(code = ?error.code, %error, "a request for a key is refused");
        }
        Err(error) if error.is_passing() => {
            tracing::warn!(node, code = ?error.code, %error, "a node gets no key now");
        }
        Err(error) => tracing::info!(node, code = ?error.code, %error, "a node gets no key"),
    }
}

/// What is known of a request so far.
#[derive(Default)]
struct Asked {
    /// The node, once it is known.
    node: Option<String>,
}

/// A key that is handed out.
struct Granted {
    /// The PersistentVolume.
    volume: String,
    /// Where the key was.
    from: String,
    credentials: Credentials,
}

impl Broker {
    async fn answer(&self, token: Option<BearerToken>, body: &[u8]) -> Response {
        let mut asked = Asked::default();
        let deadline = Instant::now() + ANSWER_WITHIN;
        let answer = timeout_at(deadline, Box::pin(self.granted(token, body, &mut asked))).await;
        let late = || unavailable("the cluster or Azure did not tell in time; try again");
        let answer = answer.unwrap_or_else(|_| Err(late()));
        log(&asked, &answer);
        self.metrics.note(answer.as_ref().err().map(|error| error.code));
        let (status, body) = written(&answer.map(|granted| granted.credentials));
        let headers = [(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-store")];
        (status, headers, body).into_response()
    }

    async fn granted(&self, token: Option<BearerToken>, body: &[u8], asked: &mut Asked) -> Result<Granted, KeyError> {
        let Some(token) = token else {
            return Err(KeyError::new(Code::Unauthenticated, "send a token as Authorization: Bearer TOKEN"));
        };
        // Without the decoder's words: who sends something else here may have meant it for nobody to see.
        let question: Question = serde_json::from_slice(body)
            .map_err(|_| KeyError::new(Code::InvalidArgument, "the request is not {\"volumeId\": \"...\"}"))?;
        let requester = self.requester(token).await?;
        let Settings { node_plugin: (namespace, account), client, .. } = &self.settings;
        let node_plugin = (namespace.as_str(), account.as_str());
        let node = asking_node(&SecretAccess::Broker, node_plugin, requester.as_ref())?;
        asked.node = Some(node.to_owned());
        self.take(node)?;
        let _place = self.requests.acquire().await.map_err(|_| unavailable("the controller stops; try again"))?;
        let volumes = self.volumes(&question.volume_id).await.map_err(not_read)?;
        let pods = match volumes.as_deref() {
            // Nothing rests on them then.
            None | Some([]) => Vec::new(),
            Some(_) => pods_of_node(client, node).await.map_err(not_read)?,
        };
        let grant = may_have(&KeyRequest {
            access: &SecretAccess::Broker,
            node_plugin,
            requester: requester.as_ref(),
            volumes: volumes.as_deref(),
            pods: Some(&pods),
        })?;
        self.read(grant).await
    }

    /// Whose token it is. The API server's own words are for the log of this process alone: they may name addresses, and
    /// nobody is known yet.
    async fn requester(&self, token: BearerToken) -> Result<Option<Requester>, KeyError> {
        let _place = self.reviews.acquire().await.map_err(|_| unavailable("the controller stops; try again"))?;
        let token = Secret::new(token.expose());
        let review = review_node_token(&self.settings.client, &token, &self.settings.audience).await;
        review.map_err(|error| {
            let error = KeyError::of(Code::Unavailable, &error);
            tracing::warn!(%error, "the cluster does not answer whose token a node has sent");
            unavailable("the cluster does not answer whose token this is; try again")
        })
    }

    fn take(&self, node: &str) -> Result<(), KeyError> {
        let mut rates = self.rates.lock().unwrap_or_else(PoisonError::into_inner);
        if rates.take(node, self.began.elapsed()) {
            return Ok(());
        }
        let message = format!("node {node} asks for too many keys at a time; try again in a moment");
        Err(KeyError::new(Code::ResourceExhausted, message))
    }

    /// The PersistentVolumes that have a volume id, as they are now; `None` while it is not known which may have it.
    async fn volumes(&self, volume_id: &str) -> Result<Option<Vec<VolumeSeen>>, KeyFactsError> {
        let Some(known) = self.settings.volumes.borrow().clone() else { return Ok(None) };
        let named = known.iter().filter(|volume| volume.volume_id.as_deref() == Some(volume_id));
        let names: Vec<String> = named.map(|volume| volume.name.clone()).collect();
        let reads = names.into_iter().map(|name| {
            let (Settings { client, driver, .. }, volume_id) = (self.settings.clone(), volume_id.to_owned());
            Box::pin(async move { share_volume(&client, &driver, &name, &volume_id).await })
        });
        let read: Vec<Option<VolumeSeen>> = stream::iter(reads).buffered(READS).try_collect().await?;
        Ok(Some(read.into_iter().flatten().collect()))
    }

    /// Reads the key of a grant: in its Secret, and where there is none, in Azure.
    async fn read(&self, grant: Grant) -> Result<Granted, KeyError> {
        let Grant { volume, key } = grant;
        if let Some(secret) = &key.secret
            && let Some(credentials) = stored(&self.settings.client, secret).await?
        {
            let from = format!("Secret {}/{}", secret.namespace, secret.name);
            return Ok(Granted { volume, from, credentials });
        }
        let reader = self.settings.azure.as_ref().filter(|_| key.may_ask_azure);
        let (Some(reader), Some(account)) = (reader, key.account.clone()) else {
            let why = "Azure is not asked for its key";
            return Err(key.secret.as_ref().map_or_else(nameless, |secret| missing(secret, why)));
        };
        let KeySource { subscription, resource_group, latest, .. } = key;
        let of = AzureAccount { subscription, resource_group, account: account.clone() };
        let keys = (reader.0)(of).await?;
        let none = || KeyError::new(Code::FailedPrecondition, format!("storage account {account} has no key in Azure"));
        let chosen = choose_key(&keys, latest).ok_or_else(none)?;
        let from = format!("Azure, {}", chosen.name);
        Ok(Granted { volume, from, credentials: Credentials { account: account.clone(), key: chosen.value.clone() } })
    }
}

/// The node plugin is known by now, and hears why.
fn not_read(error: KeyFactsError) -> KeyError {
    let why = KeyError::of(Code::Unavailable, &error);
    KeyError::new(why.code, format!("{}: {why}", Refusal::NotRead))
}
