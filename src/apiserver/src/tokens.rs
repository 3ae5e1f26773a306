//! Tokens of ServiceAccounts that are bound to Pods, and their TokenReviews.
//!
//! A token is a random-looking text that means nothing by itself; what it stands for is kept here. It never expires, and
//! it is valid as long as its Pod exists. Source of what a review tells: `pkg/serviceaccount` of Kubernetes 1.36.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use serde_json::{Value, json};

use crate::{resource, store::Store};

/// The collection of reviews, in the parts of its path.
pub(crate) const REVIEWS: [&str; 4] = ["apis", "authentication.k8s.io", "v1", "tokenreviews"];

/// The audience of the API server itself.
const OWN_AUDIENCE: &str = "https://kubernetes.default.svc";

/// What a token stands for.
#[derive(Debug, Clone)]
struct Bound {
    namespace: String,
    service_account: String,
    pod: String,
    pod_uid: String,
    node: String,
    audiences: Vec<String>,
}

/// The tokens that were issued.
#[derive(Debug, Default)]
pub(crate) struct Tokens(Mutex<BTreeMap<String, Bound>>);

impl Tokens {
    fn all(&self) -> MutexGuard<'_, BTreeMap<String, Bound>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new token of a Pod.
    pub(crate) fn issue(&self, pod: &Value, audiences: &[&str]) -> String {
        let text = |pointer: &str| pod.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let mut service_account = text("/spec/serviceAccountName");
        if service_account.is_empty() {
            service_account = "default".to_owned();
        }
        let own = if audiences.is_empty() { &[OWN_AUDIENCE][..] } else { audiences };
        let bound = Bound {
            namespace: text("/metadata/namespace"),
            service_account,
            pod: text("/metadata/name"),
            pod_uid: text("/metadata/uid"),
            node: text("/spec/nodeName"),
            audiences: own.iter().map(|one| (*one).to_owned()).collect(),
        };
        let mut all = self.all();
        let token = format!("token-{}-of-{}", all.len() + 1, bound.pod_uid);
        all.insert(token.clone(), bound);
        token
    }
}

/// Answers a review.
pub(crate) fn review(store: &Store, mut review: Value) -> Value {
    let token = review["spec"]["token"].as_str().unwrap_or_default();
    let asked: Vec<String> = match review["spec"]["audiences"].as_array() {
        Some(audiences) if !audiences.is_empty() => {
            audiences.iter().filter_map(Value::as_str).map(str::to_owned).collect()
        }
        _ => vec![OWN_AUDIENCE.to_owned()],
    };
    let known = store.tokens.all().get(token).cloned();
    review["status"] =
        match known.ok_or_else(|| "invalid bearer token".to_owned()).and_then(|of| user(store, &of, &asked)) {
            Ok(status) => status,
            Err(error) => json!({"authenticated": false, "user": {}, "error": error}),
        };
    review
}

/// Whose token it is; an error where it is not valid, or not for these audiences.
fn user(store: &Store, token: &Bound, asked: &[String]) -> Result<Value, String> {
    let Bound { namespace, service_account, pod, pod_uid, node, audiences } = token;
    let common: Vec<&String> = audiences.iter().filter(|audience| asked.contains(audience)).collect();
    if common.is_empty() {
        return Err(format!("token audiences {audiences:?} is invalid for the target audiences {asked:?}"));
    }
    let pods = resource::by_plural("pods").ok_or("there are no Pods")?;
    let is_there = store.get(pods, namespace, pod).is_ok_and(|now| now["metadata"]["uid"] == **pod_uid);
    if !is_there {
        return Err("service account token has been invalidated".to_owned());
    }
    let mut extra = json!({
        "authentication.kubernetes.io/pod-name": [pod], "authentication.kubernetes.io/pod-uid": [pod_uid],
    });
    if !node.is_empty() {
        extra["authentication.kubernetes.io/node-name"] = json!([node]);
    }
    let groups =
        json!(["system:serviceaccounts", format!("system:serviceaccounts:{namespace}"), "system:authenticated"]);
    let username = format!("system:serviceaccount:{namespace}:{service_account}");
    Ok(json!({
        "authenticated": true, "audiences": common, "user": {"username": username, "groups": groups, "extra": extra},
    }))
}
