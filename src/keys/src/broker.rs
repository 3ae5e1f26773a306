//! The broker: answers nodes that ask for the key of a volume. Every replica of the controller does, leader or not.

use std::{
    fmt,
    pin::Pin,
    sync::{Arc, Mutex as SyncMutex, PoisonError},
    time::Duration,
};

use axum::{
    Extension, Router,
    body::Bytes,
    extract::{DefaultBodyLimit, State},
    http::{HeaderMap, header},
    response::{IntoResponse, Response},
    routing::post,
};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::Client;
use lazuli_cluster::{
    KeyFactsError, SecretUpdate, SecretValues, ShareVolumes, pods_of_node, review_node_token, share_volume,
    update_secret,
};
use lazuli_model::{AccountKey, Secret, by_key::ByKey, fault::Code};
use lazuli_shares::secret::{
    Credentials, Grant, KeyRequest, KeySource, Refusal, Requester, SecretAccess, VolumeSeen, asking_node, data,
    handout::{AzureKeys, Evidence, Handout, RefusedKey, Step, handout},
    may_have,
};
use lazuli_telemetry::http::{BearerToken, Peer};
use tokio::{
    sync::{Mutex, Semaphore, SemaphorePermit, watch},
    time::{Instant, timeout, timeout_at},
};

use crate::{
    KeyError, Metrics,
    fingerprint::Fingerprint,
    metrics::Update,
    rate::Rates,
    reviews::{Reviews, TooMany},
    stored::{Stored, stored},
    wire::{LONGEST_QUESTION, PATH, Question, written},
};

/// How long a request may take, its turn included. kubelet repeats what fails.
pub(crate) const ANSWER_WITHIN: Duration = Duration::from_secs(8);
/// How long the write of a Secret may take that follows a rotation. The node's answer waits for it, and does not rest on it.
const UPDATE_WITHIN: Duration = Duration::from_secs(2);
/// How many requests of nodes are worked on at a time. Each may hold the Pods of a node, about a megabyte.
const REQUESTS: usize = 8;
/// How many accounts' keys are listed at a time. A listing that is slow keeps no request waiting that needs none.
const LISTINGS: usize = 4;
/// How many PersistentVolumes are read at a time for a request, where several have one volume id.
const READS: usize = 8;

/// An account of Azure, as a volume names it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
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
    reviews: Reviews,
    requests: Semaphore,
    listings: Semaphore,
    /// The accounts whose keys are being listed: each by one request at a time.
    listed: ByKey<AzureAccount, Mutex<()>>,
    rates: SyncMutex<Rates>,
    began: Instant,
}

/// Answers nodes. It must be served by [`lazuli_telemetry::http::Server::tls`], with a certificate for the name of its
/// Service: it is sent tokens, and sends keys, and needs the [`Peer`] of each request. One source may have
/// [`crate::CONNECTIONS_OF_A_SOURCE`] connections.
pub fn router(settings: Settings, metrics: Metrics) -> Router {
    let broker = Arc::new(Broker {
        settings,
        metrics,
        reviews: Reviews::default(),
        requests: Semaphore::new(REQUESTS),
        listings: Semaphore::new(LISTINGS),
        listed: ByKey::default(),
        rates: SyncMutex::default(),
        began: Instant::now(),
    });
    let answer = async |State(broker): State<Arc<Broker>>,
                        Extension(peer): Extension<Peer>,
                        headers: HeaderMap,
                        body: Bytes| { broker.answer(peer, BearerToken::of(&headers), &body).await };
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
        // Any client can cause it. A review that has no answer is told where it is asked for.
        Err(error) if asked.node.is_none() => {
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
    async fn answer(&self, peer: Peer, token: Option<BearerToken>, body: &[u8]) -> Response {
        let mut asked = Asked::default();
        let deadline = Instant::now() + ANSWER_WITHIN;
        let answer = timeout_at(deadline, Box::pin(self.granted(peer, token, body, &mut asked))).await;
        let late = || unavailable("the cluster or Azure did not tell in time; try again");
        let answer = answer.unwrap_or_else(|_| Err(late()));
        log(&asked, &answer);
        self.metrics.note(answer.as_ref().err().map(|error| error.code));
        let (status, body) = written(&answer.map(|granted| granted.credentials));
        let headers = [(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-store")];
        (status, headers, body).into_response()
    }

    async fn granted(
        &self,
        peer: Peer,
        token: Option<BearerToken>,
        body: &[u8],
        asked: &mut Asked,
    ) -> Result<Granted, KeyError> {
        let Some(token) = token else {
            return Err(KeyError::new(Code::Unauthenticated, "send a token as Authorization: Bearer TOKEN"));
        };
        // Without the decoder's words: who sends something else here may have meant it for nobody to see.
        let question: Question = serde_json::from_slice(body)
            .map_err(|_| KeyError::new(Code::InvalidArgument, "the request is not {\"volumeId\": \"...\"}"))?;
        let requester = self.requester(peer, token).await?;
        let Settings { node_plugin: (namespace, account), client, .. } = &self.settings;
        let node_plugin = (namespace.as_str(), account.as_str());
        let node = asking_node(&SecretAccess::Broker, node_plugin, requester.as_ref())?;
        asked.node = Some(node.to_owned());
        self.take(node)?;
        let place = self.requests.acquire().await.map_err(|_| unavailable("the controller stops; try again"))?;
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
        drop(pods);
        self.read(grant, question.refused.as_ref(), place).await
    }

    /// Whose token it is. The API server's own words are for the log of this process alone: they may name addresses, and
    /// nobody is known yet.
    async fn requester(&self, Peer(source): Peer, token: BearerToken) -> Result<Option<Requester>, KeyError> {
        let many = |TooMany| unavailable("too many requests come from this address; try again");
        let _place = self.reviews.place(source).await.map_err(many)?;
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

    /// Reads the key of a grant, and writes it where it follows a rotation.
    /// `place` is given back before Azure is asked.
    async fn read(
        &self,
        Grant { volume, key }: Grant,
        refused: Option<&Fingerprint>,
        place: SemaphorePermit<'_>,
    ) -> Result<Granted, KeyError> {
        let mut place = Some(place);
        let stored = match &key.secret {
            Some(secret) => stored(&self.settings.client, secret).await?,
            None => None,
        };
        let mut listed = None;
        loop {
            match self.step(&volume, &key, stored.as_ref(), listed.as_deref(), refused) {
                Step::ListKeys { account } => {
                    drop(place.take());
                    listed = Some(self.list_keys(&key, account).await?);
                }
                Step::Give(handout) => {
                    let read = stored.as_ref().map(|stored| &stored.read);
                    self.follow(&volume, read, &handout).await;
                    let Handout { credentials, origin, .. } = handout;
                    return Ok(Granted { volume, from: origin.to_string(), credentials });
                }
                Step::Refuse(none) => return Err(none.into()),
            }
        }
    }

    fn step(
        &self,
        volume: &str,
        source: &KeySource,
        stored: Option<&Stored>,
        listed: Option<&Vec<AccountKey>>,
        refused: Option<&Fingerprint>,
    ) -> Step {
        let is = |key: &Secret| refused.is_some_and(|refused| refused.is_of(key));
        let azure = match (listed, &self.settings.azure) {
            (Some(keys), _) => AzureKeys::Listed(keys),
            (None, Some(_)) => AzureKeys::NotListed,
            (None, None) => AzureKeys::NotHere,
        };
        let (stored, refused) = (stored.map(|stored| &stored.secret), refused.map(|_| RefusedKey::new(&is)));
        handout(&Evidence { volume, source, stored, azure, refused })
    }

    async fn list_keys(&self, source: &KeySource, account: String) -> Result<Arc<Vec<AccountKey>>, KeyError> {
        let nobody = || unavailable("this controller lists no keys in Azure; try again");
        let AccountReader(read) = self.settings.azure.as_ref().ok_or_else(nobody)?;
        let (subscription, resource_group) = (source.subscription.clone(), source.resource_group.clone());
        let account = AzureAccount { subscription, resource_group, account };
        // The next one to list its keys finds what the one before has just read.
        let turn = self.listed.of(account.clone());
        let _turn = turn.lock().await;
        let stops = |_| unavailable("the controller stops; try again");
        let _place = self.listings.acquire().await.map_err(stops)?;
        read(account).await
    }

    /// Writes a key into the Secret that follows it. What fails is logged and counted: the node has its key all the same.
    async fn follow(&self, volume: &str, read: Option<&SecretValues>, handout: &Handout) {
        let (Some(secret), Some(read)) = (&handout.updates, read) else { return };
        let (namespace, name, data) = (&secret.namespace, &secret.name, data(&handout.credentials));
        let update = match timeout(UPDATE_WITHIN, update_secret(&self.settings.client, read, &data)).await {
            Ok(Ok(SecretUpdate::Written)) => {
                tracing::info!(volume, namespace, name, "a Secret follows the rotation of its account's key");
                Update::Written
            }
            Ok(Ok(SecretUpdate::Changed)) => Update::Changed,
            Ok(Err(error)) => {
                let error = KeyError::of(Code::Unavailable, &error);
                tracing::warn!(volume, namespace, name, %error, "a Secret still holds a key that was rotated");
                Update::Failed
            }
            Err(_) => {
                let error = format!("no answer within {} s", UPDATE_WITHIN.as_secs());
                tracing::warn!(volume, namespace, name, error, "a Secret may still hold a key that was rotated");
                Update::Failed
            }
        };
        self.metrics.note_update(update);
    }
}

/// The node plugin is known by now, and hears why.
fn not_read(error: KeyFactsError) -> KeyError {
    let why = KeyError::of(Code::Unavailable, &error);
    KeyError::new(why.code, format!("{}: {why}", Refusal::NotRead))
}
