//! A node's side of the broker: finds the replicas of the controller, and asks one after the other.
//!
//! The node's name resolution is the host's, which knows no Services: the replicas are found by EndpointSlice, and the name
//! in a replica's certificate is checked against that of the Service. Token and authority are files that kubelet renews in
//! a projected volume; both are read anew for each request.

use std::{
    hash::{BuildHasher as _, Hasher as _, RandomState},
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use futures::future::join;
use http::{HeaderValue, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use kube::Client;
use lazuli_cluster::service_addresses;
use lazuli_model::{Secret, fault::Code};
use lazuli_shares::secret::Credentials;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
};
use tokio::{net::TcpStream, sync::Semaphore, time::timeout};
use tokio_rustls::TlsConnector;

use crate::{
    KeyError,
    broker::ANSWER_WITHIN,
    fingerprint::Fingerprint,
    wire::{LONGEST_ANSWER, PATH, Question, read},
};

/// How long a replica may take to be connected to: one on a machine that is gone does not answer at all.
const CONNECT_WITHIN: Duration = Duration::from_secs(2);
/// How long it may take to answer then.
const READ_WITHIN: Duration = Duration::from_secs(ANSWER_WITHIN.as_secs() + 1);
/// How long one request may take altogether: a replica that is not there, and one that takes its time. Less than the
/// 15 s that a mount waits for a key, so that it hears why there is none.
const ALL_WITHIN: Duration = Duration::from_secs(14);

/// How many requests a node makes at a time: fewer than the connections that the broker gives one address. A node that starts
/// with many shares asks for their keys one after the other.
const AT_A_TIME: usize = 8;

/// Where the broker is, and what a node shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokerPlace {
    /// The namespace of its Service.
    pub namespace: String,
    /// Its Service, whose name is in its certificate: `SERVICE.NAMESPACE.svc`.
    pub service: String,
    /// The file of the token, of the broker's audience.
    pub token: PathBuf,
    /// The file of the authority that has signed the broker's certificate, in PEM. Several certificates in it all count,
    /// so that one can follow the other.
    pub authority: PathBuf,
}

/// Asks the broker. Clones share what is known of the replicas. No key is kept.
#[derive(Clone)]
pub struct BrokerClient {
    client: Client,
    place: Arc<BrokerPlace>,
    /// The replica that answered last.
    last: Arc<Mutex<Option<SocketAddr>>>,
    turns: Arc<Semaphore>,
}

impl std::fmt::Debug for BrokerClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BrokerClient").field("place", &self.place).finish_non_exhaustive()
    }
}

/// Why a replica gave no answer.
#[derive(Debug, thiserror::Error)]
enum NoAnswer {
    #[error("no connection within {} s", CONNECT_WITHIN.as_secs())]
    Unreached,
    #[error("no connection: {0}")]
    Connect(#[source] io::Error),
    #[error("no TLS, or not its certificate: {0}")]
    Tls(#[source] io::Error),
    #[error("no answer within {} s", READ_WITHIN.as_secs())]
    Late,
    #[error("the connection broke: {0}")]
    Http(#[source] hyper::Error),
    #[error("what answers is not the broker")]
    NotTheBroker,
    #[error("{0}")]
    Passing(KeyError),
}

/// The order in which replicas are asked: the one that answered last, then those that are listed, from a place that differs
/// from node to node.
fn order(mut replicas: Vec<SocketAddr>, last: Option<SocketAddr>, turn: u64) -> Vec<SocketAddr> {
    let count = replicas.len() as u64;
    if count > 0 {
        replicas.rotate_left(usize::try_from(turn % count).unwrap_or_default());
    }
    if let Some(at) = replicas.iter().position(|one| Some(*one) == last) {
        let first = replicas.remove(at);
        replicas.insert(0, first);
    }
    replicas
}

impl BrokerClient {
    /// A client. It connects when it is asked.
    pub fn new(client: Client, place: BrokerPlace) -> Self {
        let turns = Arc::new(Semaphore::new(AT_A_TIME));
        Self { client, place: Arc::new(place), last: Arc::default(), turns }
    }

    /// The account and key of a volume. `refused` is the key that the file server has refused: the broker hears its
    /// fingerprint, and gives no such key again.
    ///
    /// # Errors
    /// [`KeyError`]: the broker's refusal; `Unavailable` where no replica answers.
    pub async fn key(&self, volume_id: &str, refused: Option<&Secret>) -> Result<Credentials, KeyError> {
        let question = Question { volume_id: volume_id.to_owned(), refused: refused.and_then(Fingerprint::of) };
        let asking = async {
            // Never closed.
            let _turn = self.turns.acquire().await;
            self.ask_all(&question).await
        };
        let asked = timeout(ALL_WITHIN, Box::pin(asking)).await;
        asked.unwrap_or_else(|_| Err(self.nobody(&format!("no answer within {} s", ALL_WITHIN.as_secs()))))
    }

    fn nobody(&self, why: &str) -> KeyError {
        let BrokerPlace { namespace, service, .. } = &*self.place;
        let message = format!(
            "no replica of the controller hands out the key ({why}): see that the Pods behind Service {namespace}/{service} \
             run, and that nodes reach their port; what is mounted goes on working"
        );
        KeyError::new(Code::Unavailable, message)
    }

    async fn ask_all(&self, question: &Question) -> Result<Credentials, KeyError> {
        let BrokerPlace { namespace, service, token, authority } = &*self.place;
        let name = format!("{service}.{namespace}.svc");
        let server = ServerName::try_from(name).map_err(|_| {
            KeyError::new(Code::FailedPrecondition, format!("no Service can be named {namespace}/{service}"))
        })?;
        let bearer = bearer(token).await?;
        let connector = connector(authority).await?;
        let replicas = service_addresses(&self.client, namespace, service).await;
        let replicas = replicas.map_err(|error| KeyError::of(Code::Unavailable, &error))?;
        let last = *self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let turn = RandomState::new().build_hasher().finish();
        let mut failures = Vec::new();
        for replica in order(replicas, last, turn) {
            match ask(replica, &connector, &server, &bearer, question).await {
                Ok(answer) => {
                    *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(replica);
                    return answer;
                }
                Err(why) => failures.push(format!("{replica}: {why}")),
            }
        }
        let why = if failures.is_empty() { "it has none".to_owned() } else { failures.join("; ") };
        Err(self.nobody(&why))
    }
}

/// A file that kubelet keeps in the projected volume.
async fn file(path: &Path, what: &str) -> Result<Vec<u8>, KeyError> {
    tokio::fs::read(path).await.map_err(|error| {
        let message = format!("{what} {} cannot be read: {error}", path.display());
        KeyError::new(Code::FailedPrecondition, message)
    })
}

/// The token as it is sent; `Debug` does not show it.
async fn bearer(path: &Path) -> Result<HeaderValue, KeyError> {
    let text = file(path, "the token for the controller").await?;
    let token = String::from_utf8(text).ok().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
    let value = token.and_then(|token| HeaderValue::try_from(format!("Bearer {token}")).ok());
    let none = || KeyError::new(Code::FailedPrecondition, format!("{} holds no token", path.display()));
    let mut value = value.ok_or_else(none)?;
    value.set_sensitive(true);
    Ok(value)
}

pub(crate) async fn connector(path: &Path) -> Result<TlsConnector, KeyError> {
    let pem = file(path, "the authority of the controller's certificate").await?;
    let wrong = || {
        let message = format!("{} holds no authority in PEM", path.display());
        KeyError::new(Code::FailedPrecondition, message)
    };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        roots.add(certificate.map_err(|_| wrong())?).map_err(|_| wrong())?;
    }
    if roots.is_empty() {
        return Err(wrong());
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| KeyError::of(Code::Internal, &error))?;
    Ok(TlsConnector::from(Arc::new(builder.with_root_certificates(roots).with_no_client_auth())))
}

/// Asks one replica. A refusal is its answer; what passes by itself is none, and another replica may know better.
async fn ask(
    replica: SocketAddr,
    connector: &TlsConnector,
    server: &ServerName<'static>,
    bearer: &HeaderValue,
    question: &Question,
) -> Result<Result<Credentials, KeyError>, NoAnswer> {
    let connecting = async {
        let stream = TcpStream::connect(replica).await.map_err(NoAnswer::Connect)?;
        connector.connect(server.clone(), stream).await.map_err(NoAnswer::Tls)
    };
    let stream = timeout(CONNECT_WITHIN, connecting).await.map_err(|_| NoAnswer::Unreached)??;
    let talking = async {
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(NoAnswer::Http)?;
        let asking = async move {
            let answer = sender.send_request(request(server, bearer, question)).await.map_err(NoAnswer::Http)?;
            let status: StatusCode = answer.status();
            let body = Limited::new(answer.into_body(), LONGEST_ANSWER).collect().await;
            Ok((status, body.map_err(|_| NoAnswer::NotTheBroker)?.to_bytes()))
        };
        // The connection ends with its one request.
        join(asking, connection).await.0
    };
    let (status, body) = timeout(READ_WITHIN, talking).await.map_err(|_| NoAnswer::Late)??;
    match read(status, &body).ok_or(NoAnswer::NotTheBroker)? {
        Err(error) if error.is_passing() => Err(NoAnswer::Passing(error)),
        answer => Ok(answer),
    }
}

fn request(server: &ServerName<'_>, bearer: &HeaderValue, question: &Question) -> Request<Full<Bytes>> {
    let body = serde_json::to_vec(question).expect("texts can be written");
    let request = Request::post(PATH)
        .header(header::HOST, server.to_str().as_ref())
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::CONNECTION, "close")
        .header(header::AUTHORIZATION, bearer)
        .body(Full::new(Bytes::from(body)));
    request.expect("the path and the headers are valid")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_are_asked_from_any_of_them_on_and_the_one_that_answered_last_first() {
        let at = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
        let all = vec![at(1), at(2), at(3)];
        assert_eq!(order(all.clone(), None, 4), [at(2), at(3), at(1)]);
        assert_eq!(order(all.clone(), Some(at(3)), 4), [at(3), at(2), at(1)]);
        assert_eq!(order(all, Some(at(9)), 0), [at(1), at(2), at(3)]);
        assert_eq!(order(Vec::new(), Some(at(9)), 7), []);
    }
}
