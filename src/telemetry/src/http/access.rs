//! Who may read metrics: a bearer token, the answer of a cluster to it, and how long that answer counts.
//!
//! ```text
//! token -> known? --yes--> answer
//!            | no
//!            `-> one of few places -> known meanwhile? --no--> review by the cluster -> remembered -> answer
//! ```
//!
//! A review costs the API server two requests, and any client that reaches the port can cause one. Therefore few
//! reviews run at a time, and an answer counts for a while. Tokens are remembered by their hash.

use std::collections::HashMap;
use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::http::{HeaderMap, header};
use ring::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// How long a right counts that the cluster has confirmed: a right that is withdrawn ends within this time. Two
/// scrapes at the usual interval of 30 s then cost one review.
const ALLOWED_FOR: Duration = Duration::from_secs(60);

/// How long a refusal counts. Shorter than a scrape's interval, so that a right that is given counts at the next one.
const REFUSED_FOR: Duration = Duration::from_secs(10);

/// How many answers are remembered. A cluster has a few scrapers.
const REMEMBERED: usize = 256;

/// How many reviews run at a time.
const REVIEWS: usize = 4;

/// How long a review may take, and how long a request waits for its turn. Less than a scrape's usual 10 s, so that the
/// scraper hears why.
const REVIEW_WITHIN: Duration = Duration::from_secs(8);

/// A bearer token.
#[derive(Clone, PartialEq, Eq)]
pub struct BearerToken(String);

impl BearerToken {
    /// The token of a request: RFC 6750, section 2.1. `None` where it has none, or several.
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        let mut values = headers.get_all(header::AUTHORIZATION).iter();
        let (Some(value), None) = (values.next(), values.next()) else { return None };
        let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
        let token = token.trim();
        (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then(|| Self::from(token))
    }

    /// The token itself, for the one request that asks about it.
    pub fn expose(&self) -> &str {
        &self.0
    }

    fn hash(&self) -> Hash {
        let mut hash = [0; SHA256_OUTPUT_LEN];
        hash.copy_from_slice(digest(&SHA256, self.0.as_bytes()).as_ref());
        hash
    }
}

impl From<&str> for BearerToken {
    fn from(token: &str) -> Self {
        Self(token.to_owned())
    }
}

impl fmt::Debug for BearerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<redacted>")
    }
}

type Hash = [u8; SHA256_OUTPUT_LEN];

/// What a cluster says of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Review {
    /// It is valid, and its user may read metrics.
    Allowed,
    /// It is valid, and its user may not read metrics.
    Forbidden {
        /// As the cluster names the user.
        user: String,
    },
    /// It is not valid: no token of this cluster, or expired.
    Unauthenticated,
}

impl Review {
    fn counts_for(&self) -> Duration {
        match self {
            Self::Allowed => ALLOWED_FOR,
            Self::Forbidden { .. } | Self::Unauthenticated => REFUSED_FOR,
        }
    }
}

/// One review under way; the error says in words why there is no answer.
pub type Reviewing = Pin<Box<dyn Future<Output = Result<Review, String>> + Send>>;

type Ask = dyn Fn(BearerToken) -> Reviewing + Send + Sync;

/// Asks a cluster about tokens.
#[derive(Clone)]
pub struct Reviewer(Arc<Ask>);

impl Reviewer {
    /// `ask` makes one review. It is dropped when it takes too long.
    pub fn new(ask: impl Fn(BearerToken) -> Reviewing + Send + Sync + 'static) -> Self {
        Self(Arc::new(ask))
    }
}

impl fmt::Debug for Reviewer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reviewer")
    }
}

/// What becomes of a request for metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Decision {
    /// The request has no token.
    NoToken,
    /// The cluster has answered.
    Reviewed(Review),
    /// The cluster has not, and why.
    Unknown(String),
}

/// Stands before the metrics.
#[derive(Debug)]
pub(super) struct Gate {
    reviewer: Reviewer,
    answers: Mutex<Answers>,
    places: Semaphore,
    /// Whether the last review had no answer: that is logged once.
    unanswered: AtomicBool,
}

impl Gate {
    pub(super) fn new(reviewer: Reviewer) -> Self {
        let (answers, places) = (Mutex::new(Answers::default()), Semaphore::new(REVIEWS));
        Self { reviewer, answers, places, unanswered: AtomicBool::new(false) }
    }

    /// What becomes of a request with these headers.
    pub(super) async fn decide(&self, headers: &HeaderMap) -> Decision {
        let Some(token) = BearerToken::of(headers) else { return Decision::NoToken };
        let hash = token.hash();
        if let Some(review) = self.answers().get(&hash, Instant::now()) {
            return Decision::Reviewed(review);
        }
        let asked = tokio::time::timeout(REVIEW_WITHIN, self.ask(token, hash)).await;
        let asked = asked.unwrap_or_else(|_| Err(format!("no answer within {} s", REVIEW_WITHIN.as_secs())));
        let was_unanswered = self.unanswered.swap(asked.is_err(), Ordering::Relaxed);
        match asked {
            Ok(review) => {
                if was_unanswered {
                    tracing::info!("the cluster answers again who may read metrics");
                }
                Decision::Reviewed(review)
            }
            Err(why) => {
                if !was_unanswered {
                    tracing::warn!(
                        error = why,
                        "the cluster does not answer who may read metrics; until it does, metrics are refused"
                    );
                }
                Decision::Unknown(why)
            }
        }
    }

    async fn ask(&self, token: BearerToken, hash: Hash) -> Result<Review, String> {
        // Never closed.
        let _place = self.places.acquire().await.map_err(|error| error.to_string())?;
        // A request with the same token may have been before this one in the queue.
        if let Some(review) = self.answers().get(&hash, Instant::now()) {
            return Ok(review);
        }
        let review = (self.reviewer.0)(token).await?;
        if let Review::Forbidden { user } = &review {
            tracing::info!(user, "refused metrics: this user may not get the path /metrics");
        }
        self.answers().put(hash, review.clone(), Instant::now());
        Ok(review)
    }

    fn answers(&self) -> MutexGuard<'_, Answers> {
        // A panic elsewhere leaves it whole: each change is one insertion or removal.
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Answers that still count, at most [`REMEMBERED`].
#[derive(Debug, Default)]
struct Answers(HashMap<Hash, (Review, Instant)>);

impl Answers {
    fn get(&self, hash: &Hash, now: Instant) -> Option<Review> {
        self.0.get(hash).filter(|(_, until)| now < *until).map(|(review, _)| review.clone())
    }

    /// Remembers an answer. Where there is no room, the refusal that ends first is forgotten; a right is forgotten only
    /// for another right. Any client can send bad tokens, and they do not displace a scraper.
    fn put(&mut self, hash: Hash, review: Review, now: Instant) {
        self.0.retain(|_, (_, until)| now < *until);
        if self.0.len() >= REMEMBERED {
            let worth = |(_, (review, until)): &(&Hash, &(Review, Instant))| (*review == Review::Allowed, *until);
            let least = self.0.iter().min_by_key(worth).map(|(hash, (least, _))| (*hash, least.clone()));
            match least {
                Some((_, Review::Allowed)) if review != Review::Allowed => return,
                Some((hash, _)) => self.0.remove(&hash),
                None => None,
            };
        }
        let until = now + review.counts_for();
        self.0.insert(hash, (review, until));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    fn headers(values: &[&str]) -> HeaderMap {
        values.iter().map(|value| (header::AUTHORIZATION, value.parse().expect("is a value"))).collect()
    }

    fn forbidden() -> Review {
        Review::Forbidden { user: "eve".to_owned() }
    }

    #[test]
    fn a_token_is_the_one_word_after_bearer_and_is_not_shown() {
        for given in ["Bearer abc", "bearer abc", "BEARER  abc "] {
            let token = BearerToken::of(&headers(&[given])).expect(given);
            assert_eq!((token.expose(), format!("{token:?}").as_str()), ("abc", "<redacted>"), "{given}");
        }
        for none in [&["Basic abc"][..], &["Bearer"], &["Bearer "], &["abc"], &[], &["Bearer a", "Bearer b"]] {
            assert_eq!(BearerToken::of(&headers(none)), None, "{none:?}");
        }
    }

    /// A gate before a cluster that answers each token with its own name, and how often it was asked.
    fn gate() -> (Gate, Arc<AtomicUsize>) {
        let asked = Arc::new(AtomicUsize::new(0));
        let counter = asked.clone();
        let reviewer = Reviewer::new(move |token| {
            counter.fetch_add(1, Ordering::SeqCst);
            Box::pin(async move {
                tokio::time::sleep(Duration::from_secs(1)).await;
                match token.expose() {
                    "good" => Ok(Review::Allowed),
                    "mute" => std::future::pending().await,
                    "out" => Err("no route to host".to_owned()),
                    "weak" => Ok(forbidden()),
                    _ => Ok(Review::Unauthenticated),
                }
            })
        });
        (Gate::new(reviewer), asked)
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_counts_for_a_while_and_a_right_for_longer_than_a_refusal() {
        let (gate, asked) = gate();
        let decide = async |token: &str| gate.decide(&headers(&[&format!("Bearer {token}")])).await;
        for (token, review, seconds) in
            [("good", Review::Allowed, 60), ("weak", forbidden(), 10), ("bad", Review::Unauthenticated, 10)]
        {
            let before = asked.load(Ordering::SeqCst);
            assert_eq!(decide(token).await, Decision::Reviewed(review.clone()));
            tokio::time::advance(Duration::from_secs(seconds - 1)).await;
            assert_eq!(decide(token).await, Decision::Reviewed(review.clone()));
            assert_eq!(asked.load(Ordering::SeqCst), before + 1, "{token}");
            tokio::time::advance(Duration::from_secs(1)).await;
            assert_eq!(decide(token).await, Decision::Reviewed(review));
            assert_eq!(asked.load(Ordering::SeqCst), before + 2, "{token}");
        }
        assert_eq!(gate.decide(&headers(&[])).await, Decision::NoToken);
    }

    #[tokio::test(start_paused = true)]
    async fn many_requests_with_one_token_cost_few_reviews() {
        let (gate, asked) = gate();
        let gate = Arc::new(gate);
        let all: Vec<_> = (0..50)
            .map(|_| {
                let gate = gate.clone();
                tokio::spawn(async move { gate.decide(&headers(&["Bearer good"])).await })
            })
            .collect();
        for one in all {
            assert_eq!(one.await.expect("no panic"), Decision::Reviewed(Review::Allowed));
        }
        // Those that had a place before the first answer came.
        assert_eq!(asked.load(Ordering::SeqCst), REVIEWS);
    }

    #[tokio::test(start_paused = true)]
    async fn without_an_answer_metrics_are_refused_and_nothing_is_remembered() {
        let (gate, asked) = gate();
        let began = Instant::now();
        let decision = gate.decide(&headers(&["Bearer mute"])).await;
        assert_eq!(decision, Decision::Unknown("no answer within 8 s".to_owned()));
        assert_eq!(began.elapsed(), REVIEW_WITHIN);
        for _ in 0..2 {
            let decision = gate.decide(&headers(&["Bearer out"])).await;
            assert_eq!(decision, Decision::Unknown("no route to host".to_owned()));
        }
        assert_eq!(asked.load(Ordering::SeqCst), 3);
        assert_eq!(gate.decide(&headers(&["Bearer good"])).await, Decision::Reviewed(Review::Allowed));
    }

    #[tokio::test(start_paused = true)]
    async fn bad_tokens_are_remembered_within_bounds_and_displace_no_good_one() {
        let hash = |number: usize| BearerToken(number.to_string()).hash();
        let (mut answers, now) = (Answers::default(), Instant::now());
        answers.put(hash(0), Review::Allowed, now);
        // Refusals that count for longer than what is left of the right.
        let now = now + ALLOWED_FOR - REFUSED_FOR / 2;
        for number in 1..=3 * REMEMBERED {
            answers.put(hash(number), Review::Unauthenticated, now);
            assert!(answers.0.len() <= REMEMBERED);
        }
        assert_eq!(answers.get(&hash(0), now), Some(Review::Allowed));
        assert_eq!(answers.get(&hash(3 * REMEMBERED), now), Some(Review::Unauthenticated));
        // A right takes the place of a refusal, and a refusal that of no right.
        for number in 1..=2 * REMEMBERED {
            answers.put(hash(number), Review::Allowed, now);
        }
        answers.put(hash(9_999), forbidden(), now);
        assert_eq!((answers.0.len(), answers.get(&hash(9_999), now)), (REMEMBERED, None));
        assert_eq!(answers.get(&hash(2 * REMEMBERED), now), Some(Review::Allowed));
        // What counts no more makes room.
        answers.put(hash(9_999), forbidden(), now + ALLOWED_FOR);
        assert_eq!(answers.0.len(), 1);
    }
}
