//! The admission webhooks, which the API server asks about PersistentVolumes and PersistentVolumeClaims.
//!
//! ```text
//!   API server ──AdmissionReview──▶ router ──▶ review ──▶ lazuli_storage::admission
//!                                                └─▶ the claim's volume (API server), the disk (Azure)
//! ```
//!
//! | path | when | answers |
//! |---|---|---|
//! | [`VOLUMES`] | a PersistentVolume is made | its labels, its node affinity, the source of a translated page blob |
//! | [`CLAIMS`] | a PersistentVolumeClaim grows | whether Azure can grow its disk so |
//!
//! The crate is apart from the controllers because it shares nothing with them: every replica answers, without the
//! Lease, and keeps nothing between two reviews. It decides nothing either.
//!
//! A review never keeps anything from working. What is not known within [`ANSWER_WITHIN`] is admitted as it is, with a
//! warning for who asked. The API server is told to do the same when no answer comes (`failurePolicy: Ignore`).
//!
//! Any client that reaches the port can send a review, for the API server usually shows no certificate of its own. So the
//! body of a request has a limit, few reviews run at a time, all together read few disks of Azure
//! ([`lazuli_storage::admission::budget`]), for a new volume only where the operator allows disks, and an answer says no more of a disk than its volume would.

mod metrics;
mod review;
mod reviewer;

use std::{sync::Arc, time::Duration};

use axum::{
    Json, Router,
    body::Bytes,
    extract::{DefaultBodyLimit, State},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::post,
};
use lazuli_azure::compute::Compute;
use lazuli_storage::admission::volume::Readable;
use tokio::{sync::Semaphore, time::Instant};

pub use metrics::{METRICS, Metrics};
use metrics::{Outcome, Webhook};
use review::{Answer, Request};
use reviewer::Reviewer;

/// The path of reviews of new PersistentVolumes.
pub const VOLUMES: &str = "/persistentvolumes";
/// The path of reviews of PersistentVolumeClaims that change.
pub const CLAIMS: &str = "/persistentvolumeclaims";

/// How long a review may take: less than the 2 s after which the API server goes on without it.
pub const ANSWER_WITHIN: Duration = Duration::from_millis(1_500);

/// How many bytes a review may have. Two claims with the most annotations that Kubernetes takes, 256 KiB, and what else
/// they hold have less.
const BODY_LIMIT: usize = 768 * 1024;

/// How many reviews run at a time. Each may hold some 20 times its bytes while it runs.
const REVIEWS: usize = 8;

/// What reviews rest on.
#[derive(Clone)]
pub struct Options {
    /// Reads disks.
    pub compute: Compute,
    /// Reads PersistentVolumes.
    pub api: kube::Client,
    /// The region of the cluster, as the cloud configuration names it.
    pub region: String,
    /// Which disks are read for new PersistentVolumes.
    pub readable: Readable,
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options").field("region", &self.region).finish_non_exhaustive()
    }
}

struct Shared {
    reviewer: Reviewer,
    places: Semaphore,
    metrics: Metrics,
}

/// Answers reviews at [`VOLUMES`] and [`CLAIMS`]. It must be served by TLS: the API server speaks nothing else.
pub fn router(options: Options, metrics: Metrics) -> Router {
    let shared = Arc::new(Shared { reviewer: Reviewer::new(options), places: Semaphore::new(REVIEWS), metrics });
    let handler =
        |webhook| post(async move |State(shared): State<Arc<Shared>>, body: Bytes| shared.answer(webhook, &body).await);
    Router::new()
        .route(VOLUMES, handler(Webhook::Volumes))
        .route(CLAIMS, handler(Webhook::Claims))
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
        .with_state(shared)
}

impl Shared {
    async fn answer(&self, webhook: Webhook, body: &[u8]) -> Response {
        let began = Instant::now();
        let deadline = began + ANSWER_WITHIN;
        let (outcome, response) = match tokio::time::timeout_at(deadline, self.places.acquire()).await {
            Ok(_place) => match Request::parse(body) {
                Ok(request) => {
                    let (outcome, answer) = self.review(webhook, &request, deadline).await;
                    (outcome, Json(answer.to_json(&request)).into_response())
                }
                Err(error) => (Outcome::Malformed, (StatusCode::BAD_REQUEST, format!("{error}\n")).into_response()),
            },
            Err(_) => {
                let text = "too many reviews run at a time\n";
                (Outcome::Unknown, (StatusCode::SERVICE_UNAVAILABLE, text).into_response())
            }
        };
        self.metrics.note(webhook, outcome, began.elapsed());
        response
    }

    async fn review(&self, webhook: Webhook, request: &Request, deadline: Instant) -> (Outcome, Answer) {
        match webhook {
            Webhook::Volumes => self.reviewer.volume(request, deadline).await,
            Webhook::Claims => self.reviewer.claim(request, deadline).await,
        }
    }
}
