//! Whether the bearer of a token may read metrics: whose token it is by a TokenReview, and whether that user may `get`
//! the path `/metrics` by a SubjectAccessReview. The API server decides about its own `/metrics` in the same way.

use kube::Client;
use kube::api::PostParams;
use kube::core::Request;
use lazuli_telemetry::http::{BearerToken, Review};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::client::{answered, null_as_empty};
use super::server::ApiError;

/// The collections. Source: Kubernetes; an object of them is made and never stored.
pub(super) const TOKEN_REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
pub(super) const ACCESS_REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

/// The path whose `get` is the right to read metrics; a nonResourceURL of RBAC.
const PATH: &str = "/metrics";

/// Why the API server gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum ReviewError {
    /// It refused, most often because the role lacks the right.
    #[error("the API server refuses a review (the role needs create on {resource}): {message}")]
    Refused {
        /// The kind of review.
        resource: &'static str,
        /// In its words.
        message: String,
    },
    /// It did not answer.
    #[error("the API server does not answer a review in {resource}")]
    Failed {
        /// The kind of review.
        resource: &'static str,
        /// Why.
        #[source]
        source: Box<ApiError>,
    },
    /// The answer is no review. Without the decoder's words: they may quote the token.
    #[error("the answer to a review in {resource} cannot be understood")]
    Malformed {
        /// The kind of review.
        resource: &'static str,
    },
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TokenStatus {
    authenticated: bool,
    user: UserInfo,
}

/// A user as one review tells and the other takes.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct UserInfo {
    pub(super) username: String,
    uid: String,
    #[serde(deserialize_with = "null_as_empty")]
    groups: Vec<String>,
    #[serde(deserialize_with = "null_as_empty")]
    pub(super) extra: Map<String, Value>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct AccessStatus {
    allowed: bool,
    denied: bool,
}

/// Asks the API server about the bearer of a token.
///
/// # Errors
/// [`ReviewError`]: there is no answer, which is neither a yes nor a no.
pub async fn review_metrics_reader(client: &Client, token: &BearerToken) -> Result<Review, ReviewError> {
    let review = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token.expose()},
    });
    let TokenStatus { authenticated, user } = made(client, TOKEN_REVIEWS, "tokenreviews", &review).await?;
    if !authenticated || user.username.is_empty() {
        return Ok(Review::Unauthenticated);
    }
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {
            "user": user.username, "uid": user.uid, "groups": user.groups, "extra": user.extra,
            "nonResourceAttributes": {"path": PATH, "verb": "get"},
        },
    });
    let AccessStatus { allowed, denied } = made(client, ACCESS_REVIEWS, "subjectaccessreviews", &review).await?;
    // An evaluationError beside "not allowed" is no reason to ask again: RBAC has one for each binding whose role is
    // missing (source: SubjectAccessReviewStatus).
    match allowed && !denied {
        true => Ok(Review::Allowed),
        false => Ok(Review::Forbidden { user: user.username }),
    }
}

/// Makes a review and gives its status.
pub(super) async fn made<Status: DeserializeOwned>(
    client: &Client,
    collection: &str,
    resource: &'static str,
    review: &Value,
) -> Result<Status, ReviewError> {
    #[derive(Deserialize)]
    struct Made<Status> {
        status: Status,
    }
    let failed = |error| match error {
        kube::Error::Api(status) => ReviewError::Refused { resource, message: status.message },
        source => ReviewError::Failed { resource, source: ApiError::boxed(source) },
    };
    let request = Request::new(collection).create(&PostParams::default(), review.to_string().into_bytes());
    let request = request.map_err(|source| failed(kube::Error::BuildRequest(source)))?;
    // As text: the answer repeats the token, and the typed request of the client library logs an answer that it cannot
    // decode.
    let text = answered(client.request_text(request)).await.map_err(failed)?;
    let made: Made<Status> = serde_json::from_str(&text).map_err(|_| ReviewError::Malformed { resource })?;
    Ok(made.status)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{FakeApiServer, Mood};

    /// What a client hears of a token, by its name in the fake's answers.
    async fn review(server: &FakeApiServer, token: &str) -> Result<Review, ReviewError> {
        review_metrics_reader(&server.client(), &BearerToken::from(token)).await
    }

    fn forbidden(user: &str) -> Review {
        Review::Forbidden { user: user.to_owned() }
    }

    #[tokio::test]
    async fn a_token_may_read_metrics_whose_user_may_get_their_path() {
        let server = FakeApiServer::default();
        let user = |name: &str| json!({"username": name, "uid": "7", "groups": ["system:authenticated"], "extra": {"pod": ["p"]}});
        server.answer_review(TOKEN_REVIEWS, json!({"authenticated": true, "user": user("prometheus")}));
        server.answer_review(ACCESS_REVIEWS, json!({"allowed": true}));
        assert_eq!(review(&server, "t").await.expect("is answered"), Review::Allowed);
        assert_eq!(server.reviewed(TOKEN_REVIEWS)["spec"], json!({"token": "t"}));
        let asked = server.reviewed(ACCESS_REVIEWS);
        assert_eq!(
            asked["spec"],
            json!({"user": "prometheus", "uid": "7", "groups": ["system:authenticated"], "extra": {"pod": ["p"]},
                "nonResourceAttributes": {"path": "/metrics", "verb": "get"}})
        );
        // No opinion, one that failed, and a denial that beats a permission.
        for status in [
            json!({"allowed": false}),
            json!({"allowed": false, "evaluationError": "clusterrole \"x\" not found"}),
            json!({"allowed": true, "denied": true}),
        ] {
            server.answer_review(ACCESS_REVIEWS, status.clone());
            assert_eq!(review(&server, "t").await.expect("is answered"), forbidden("prometheus"), "{status}");
        }
    }

    #[tokio::test]
    async fn groups_that_are_null_are_none() {
        let server = FakeApiServer::default();
        let user = json!({"username": "u", "groups": null, "extra": null});
        server.answer_review(TOKEN_REVIEWS, json!({"authenticated": true, "user": user}));
        server.answer_review(ACCESS_REVIEWS, json!({"allowed": true}));
        assert_eq!(review(&server, "t").await.expect("is answered"), Review::Allowed);
        assert_eq!(server.reviewed(ACCESS_REVIEWS)["spec"]["groups"], json!([]));
    }

    #[tokio::test]
    async fn a_token_that_is_not_valid_is_not_asked_for_its_rights() {
        let server = FakeApiServer::default();
        for status in [
            json!({"error": "token has expired"}),
            json!({"authenticated": false}),
            json!({}),
            json!({"authenticated": true}),
        ] {
            server.answer_review(TOKEN_REVIEWS, status.clone());
            assert_eq!(review(&server, "t").await.expect("is answered"), Review::Unauthenticated, "{status}");
        }
        assert_eq!(server.count(&[ACCESS_REVIEWS]), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn no_answer_is_neither_a_yes_nor_a_no() {
        let server = FakeApiServer::default();
        let user = json!({"authenticated": true, "user": {"username": "u"}});
        for (collection, resource) in [(TOKEN_REVIEWS, "tokenreviews"), (ACCESS_REVIEWS, "subjectaccessreviews")] {
            server.mood(collection, Mood::Forbids);
            let error = review(&server, "hunter2").await.expect_err("no answer");
            let expected =
                format!("the API server refuses a review (the role needs create on {resource}): not allowed");
            assert_eq!(error.to_string(), expected);
            server.mood(collection, Mood::Hangs);
            let error = review(&server, "hunter2").await.expect_err("no answer");
            assert_eq!(error.to_string(), format!("the API server does not answer a review in {resource}"));
            server.mood(collection, Mood::Answers);
            server.answer_review(collection, json!("hunter2"));
            let error = review(&server, "hunter2").await.expect_err("is no review");
            assert!(matches!(error, ReviewError::Malformed { .. }), "{error:?}");
            assert!(!format!("{error:?} {error}").contains("hunter2"), "{error:?}");
            server.answer_review(collection, user.clone());
        }
    }
}
