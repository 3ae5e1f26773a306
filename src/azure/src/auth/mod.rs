//! Tokens for the resource manager.
//!
//! One token is kept for all callers, asked for once however many callers wait, and thrown away when the resource
//! manager refuses it. Five minutes before its end it is renewed in the background: while the old one is good no request
//! waits for the authority, which may take minutes or hang. Never prints a secret, never writes one anywhere.
//!
//! A refusal that only a change of the credential or of the directory cures is remembered ([`Backoff`]): callers get it
//! again without a request, for the authority locks out clients that ask too often. The credential can be replaced
//! while the process runs ([`Tokens::replace`]).

mod certificate;
mod source;
#[cfg(test)]
mod tests;

use std::{
    error::Error as StdError,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::{
    FutureExt,
    future::{BoxFuture, Shared},
};
use http::HeaderValue;
use lazuli_model::fault::Fault;
use tokio::time::Instant;
use url::Url;

pub use certificate::CertificateError;
pub use lazuli_model::Secret;

use crate::{
    random::Random,
    transport::{Transport, TransportError},
};

/// Who we are to Azure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credential {
    /// A token of the cluster, exchanged at the authority (workload identity).
    FederatedToken {
        /// Tenant of the application.
        tenant_id: String,
        /// The application.
        client_id: String,
        /// The file with the cluster's token, read for each exchange.
        token_file: PathBuf,
        /// The logical https origin of the authority.
        authority: Url,
    },
    /// The identity of the machine, from the instance metadata service.
    ManagedIdentity(ManagedIdentity),
    /// A service principal with a password. The tenant `adfs` means Active Directory Federation Services.
    ClientSecret {
        /// Tenant of the application.
        tenant_id: String,
        /// The application.
        client_id: String,
        /// Its password.
        secret: Secret,
        /// The logical https origin of the authority.
        authority: Url,
    },
    /// A service principal with a certificate. The tenant `adfs` means Active Directory Federation Services.
    ClientCertificate {
        /// Tenant of the application.
        tenant_id: String,
        /// The application.
        client_id: String,
        /// The file with certificate and key, read for each exchange.
        path: PathBuf,
        /// The password of the file, where it has one.
        password: Option<Secret>,
        /// The logical https origin of the authority.
        authority: Url,
    },
}

/// Which identity of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ManagedIdentity {
    /// The one that belongs to the machine.
    SystemAssigned,
    /// A user-assigned one, by client id.
    ClientId(String),
    /// A user-assigned one, by its ARM id.
    ResourceId(String),
}

/// No token.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AuthError {
    /// The credential cannot be used as it is configured.
    #[error("the credential cannot be used")]
    Unusable(#[source] Arc<dyn StdError + Send + Sync>),
    /// The file with the cluster's token cannot be read.
    #[error("the federated token file cannot be read")]
    TokenFile(#[source] Arc<std::io::Error>),
    /// The client certificate cannot be used.
    #[error("the client certificate {} (aadClientCertPath) cannot be used", path.display())]
    Certificate {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: Arc<CertificateError>,
    },
    /// The authority said no.
    #[error("the authority {at} refuses a token: {status} {text}")]
    Refused {
        /// Where the request went: origin and path.
        at: String,
        /// The HTTP status.
        status: u16,
        /// The authority's words, with its AADSTS code.
        text: String,
        /// When it may be asked again.
        retry_after: Option<Duration>,
    },
    /// The authority could not be reached.
    #[error("the authority gives no answer")]
    Unreachable(#[from] TransportError),
    /// The authority's answer holds no token.
    #[error("the authority's answer is not understood")]
    Malformed(#[source] Arc<dyn StdError + Send + Sync>),
}

impl AuthError {
    fn unusable(source: Arc<dyn StdError + Send + Sync>) -> Self {
        Self::Unusable(source)
    }

    fn malformed(source: Arc<dyn StdError + Send + Sync>) -> Self {
        Self::Malformed(source)
    }

    /// Whether the authority is to be left alone for a while. Token file and certificate are on this machine, and kubelet
    /// may be about to write them.
    fn is_remembered(&self) -> bool {
        !self.is_transient() && !matches!(self, Self::TokenFile(_) | Self::Certificate { .. })
    }

    /// Whether asking again soon may help.
    fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable(_) => true,
            // 410: the metadata service is being updated (source: Microsoft docs, how-to-use-vm-token).
            Self::Refused { status, .. } => matches!(status, 408 | 410 | 429) || (500..600).contains(status),
            // The file is missing for a moment while kubelet replaces it; a wrong path stays wrong, cheaply.
            Self::Unusable(_) | Self::TokenFile(_) | Self::Certificate { .. } | Self::Malformed(_) => false,
        }
    }

    /// What a caller may do about it.
    pub fn fault(&self) -> Fault {
        if self.is_transient() { Fault::Unavailable } else { Fault::Unauthenticated }
    }
}

/// A token in the form a request carries it.
#[derive(Debug, Clone)]
pub(crate) struct Bearer {
    /// `Bearer …`, marked sensitive so that nothing prints it.
    pub(crate) header: HeaderValue,
    /// Which of the tokens this process has had.
    generation: u64,
}

/// The source of tokens for one audience; clones share the token.
#[derive(Debug, Clone)]
pub struct Tokens(Arc<Inner>);

struct Inner {
    transport: Transport,
    audience: String,
    random: Random,
    state: Mutex<State>,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inner")
            .field("credential", &self.lock().credential)
            .field("audience", &self.audience)
            .finish_non_exhaustive()
    }
}

struct State {
    credential: Credential,
    /// How often the credential was replaced.
    replaced: u64,
    held: Option<Held>,
    flight: Option<Flight>,
    generation: u64,
    /// The last refusal of the authority, and until when it is not asked again.
    refusal: Option<(AuthError, Instant)>,
    /// After refusals of the authority.
    authority: Backoff,
    /// After tokens that the resource manager refused.
    resource_manager: Backoff,
}

#[derive(Clone)]
struct Held {
    bearer: Bearer,
    issued: Instant,
    /// Whether the resource manager has taken it.
    accepted: bool,
    renew: Instant,
    expires: Instant,
}

/// Pauses that double: 5 s, 10 s, … 5 min.
#[derive(Default)]
struct Backoff(Duration);

impl Backoff {
    const FIRST: Duration = Duration::from_secs(5);
    const LONGEST: Duration = Duration::from_secs(5 * 60);

    /// The next pause.
    fn next(&mut self) -> Duration {
        self.0 = (self.0 * 2).clamp(Self::FIRST, Self::LONGEST);
        self.0
    }

    fn reset(&mut self) {
        self.0 = Duration::ZERO;
    }
}

type Flight = Shared<BoxFuture<'static, Result<Bearer, AuthError>>>;

/// A token is renewed this long before it ends, or at half its life if that is later: a write that waits in a queue
/// at the service must not outlive it.
const RENEW_BEFORE: Duration = Duration::from_secs(300);
/// The longest life that is believed of a token, whatever its issuer says (source: the longest that Microsoft Entra
/// issues are good for 24 hours).
const LONGEST_LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);
/// How long to keep a still valid token after its renewal failed, before trying again.
const RENEWAL_PAUSE: Duration = Duration::from_secs(30);
/// How often the authority is asked when it does not answer.
const TRIES: u32 = 4;
/// The longest wait between two of them.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

impl Tokens {
    /// Tokens for an audience, such as `https://management.azure.com/`. Nothing is asked for yet.
    pub fn new(transport: Transport, credential: Credential, audience: &str, seed: u64) -> Self {
        Self(Arc::new(Inner {
            transport,
            audience: audience.to_owned(),
            random: Random::seeded(seed),
            state: Mutex::new(State {
                credential,
                replaced: 0,
                held: None,
                flight: None,
                generation: 0,
                refusal: None,
                authority: Backoff::default(),
                resource_manager: Backoff::default(),
            }),
        }))
    }

    /// Uses another credential from now on. The token at hand stays good until there is one of the new credential,
    /// which is asked for at the next call; a remembered refusal is forgotten. Whether it is another one at all.
    pub fn replace(&self, credential: Credential) -> bool {
        let mut state = self.0.lock();
        if state.credential == credential {
            return false;
        }
        state.credential = credential;
        state.replaced += 1;
        state.refusal = None;
        state.authority.reset();
        state.resource_manager.reset();
        // What is under way is of the old credential.
        state.flight = None;
        if let Some(held) = &mut state.held {
            held.renew = Instant::now();
        }
        true
    }

    /// A token that is good: the one at hand, or a new one. Only who finds none at hand waits for the authority.
    pub(crate) async fn bearer(&self) -> Result<Bearer, AuthError> {
        let flight = {
            let mut state = self.0.lock();
            match self.usable(&mut state) {
                Some(bearer) => return Ok(bearer),
                None => match &state.refusal {
                    Some((refusal, until)) if Instant::now() < *until => return Err(refusal.clone()),
                    _ => self.renewal(&mut state),
                },
            }
        };
        flight.await
    }

    /// The token at hand, without waiting for anybody.
    pub(crate) fn at_hand(&self) -> Option<Bearer> {
        self.usable(&mut self.0.lock())
    }

    /// The token at hand, if it is still good. Towards its end it is renewed meanwhile.
    fn usable(&self, state: &mut State) -> Option<Bearer> {
        let now = Instant::now();
        let held = state.held.clone().filter(|held| now < held.expires)?;
        if now >= held.renew {
            drop(self.renewal(state));
        }
        Some(held.bearer)
    }

    /// The renewal that is under way, or a new one.
    fn renewal(&self, state: &mut State) -> Flight {
        // One that is over and still here ended in a panic. No request may have waited for it, so it is looked at here.
        if let Some(flight) = state.flight.clone().filter(|flight| flight.clone().now_or_never().is_none()) {
            return flight;
        }
        // A task of its own: a caller that gives up must not stop it for the others.
        let task = tokio::spawn(self.0.clone().renew());
        let flight = task
            .map(|joined| joined.unwrap_or_else(|panic| Err(AuthError::malformed(Arc::new(panic)))))
            .boxed()
            .shared();
        state.flight = Some(flight.clone());
        flight
    }

    /// Notes that the resource manager has taken a token.
    pub(crate) fn accepted(&self, bearer: &Bearer) {
        if let Some(held) = self.0.lock().held.as_mut().filter(|held| held.bearer.generation == bearer.generation) {
            held.accepted = true;
        }
    }

    /// Throws a token away that the resource manager has refused, unless a newer one has come already. One that it has
    /// never taken is kept for a while: the next one would be refused too.
    pub(crate) fn refused(&self, bearer: &Bearer) {
        let mut state = self.0.lock();
        let Some(held) = state.held.as_ref().filter(|held| held.bearer.generation == bearer.generation) else { return };
        if held.accepted {
            // It was revoked.
            state.resource_manager.reset();
        } else if held.issued.elapsed() < state.resource_manager.0 {
            return;
        } else {
            state.resource_manager.next();
        }
        state.held = None;
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is whole after every statement, so a poisoned lock is as good as any.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn renew(self: Arc<Self>) -> Result<Bearer, AuthError> {
        let (credential, replaced) = {
            let state = self.lock();
            (state.credential.clone(), state.replaced)
        };
        let issued = self.issue(&credential).await;
        let now = Instant::now();
        let mut state = self.lock();
        let is_of_the_old = state.replaced != replaced;
        if !is_of_the_old {
            state.flight = None;
        }
        let failed = match issued
            .map(|issued| (HeaderValue::try_from(format!("Bearer {}", issued.token.expose())), issued.lifetime))
        {
            Ok((Ok(mut header), lifetime)) => {
                header.set_sensitive(true);
                state.generation += 1;
                let bearer = Bearer { header, generation: state.generation };
                // It serves the callers that waited for it; the next token is of the credential in use.
                if is_of_the_old {
                    return Ok(bearer);
                }
                let renew = lifetime.saturating_sub(RENEW_BEFORE).max(lifetime / 2);
                state.held = Some(Held {
                    bearer: bearer.clone(),
                    issued: now,
                    accepted: false,
                    renew: now + renew,
                    expires: now + lifetime,
                });
                state.refusal = None;
                state.authority.reset();
                return Ok(bearer);
            }
            Ok((Err(invalid), _)) => AuthError::malformed(Arc::new(invalid)),
            Err(error) => error,
        };
        let mut pause = RENEWAL_PAUSE;
        if !is_of_the_old && failed.is_remembered() {
            let longer = state.authority.next();
            state.refusal = Some((failed.clone(), now + longer));
            pause = pause.max(longer);
        }
        match &mut state.held {
            Some(held) if now < held.expires => {
                tracing::warn!(
                    error = &failed as &dyn StdError,
                    "the token is not renewed yet; the old one is good for a while"
                );
                if !is_of_the_old {
                    held.renew = now + pause;
                }
                Ok(held.bearer.clone())
            }
            _ => Err(failed),
        }
    }

    async fn issue(&self, credential: &Credential) -> Result<source::Issued, AuthError> {
        let mut tries = 0;
        loop {
            tries += 1;
            let error = match source::issue(&self.transport, credential, &self.audience).await {
                Ok(issued) => return Ok(issued),
                Err(error) => error,
            };
            let wished = match &error {
                AuthError::Refused { retry_after, .. } => *retry_after,
                _ => None,
            };
            let pause = wished.unwrap_or_else(|| Duration::from_secs(1 << (tries - 1)).mul_f64(self.random.jitter()));
            if tries == TRIES || !error.is_transient() || pause > LONGEST_PAUSE {
                return Err(error);
            }
            tokio::time::sleep(pause).await;
        }
    }
}
