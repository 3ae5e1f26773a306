//! One secret by name. `get`, never `list`: the right to list would be the right to all of them.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kube::api::GetParams;
use kube::core::Request;

use super::client::answered;
use super::server::ApiError;

/// The values of a secret. `Debug` shows the names of its keys only.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretValues(BTreeMap<String, Vec<u8>>);

impl SecretValues {
    /// The bytes under a key.
    pub fn get(&self, key: &str) -> Option<&[u8]> {
        self.0.get(key).map(Vec::as_slice)
    }

    /// The names of the keys, for a message about a missing one.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

impl fmt::Debug for SecretValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.0.keys().map(|key| (key, "<redacted>"))).finish()
    }
}

/// Why a secret could not be read. A secret that does not exist is no error.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The role lacks `get` on this secret.
    #[error("not allowed to read secret {namespace}/{name}: the role needs the verb get on it")]
    Forbidden {
        /// Namespace of the secret.
        namespace: String,
        /// Name of the secret.
        name: String,
    },
    /// The API server did not answer, or refused.
    #[error("cannot read secret {namespace}/{name}")]
    Failed {
        /// Namespace of the secret.
        namespace: String,
        /// Name of the secret.
        name: String,
        /// Why.
        #[source]
        source: Box<ApiError>,
    },
    /// The answer is not a secret. Without the decoder's words: they may quote it.
    #[error("the answer for secret {namespace}/{name} cannot be understood")]
    Malformed {
        /// Namespace of the secret.
        namespace: String,
        /// Name of the secret.
        name: String,
    },
}

/// Reads one secret; `None` when there is none of that name.
///
/// # Errors
/// [`SecretError`].
pub async fn read_secret(client: &Client, namespace: &str, name: &str) -> Result<Option<SecretValues>, SecretError> {
    let (namespace, name) = (namespace.to_owned(), name.to_owned());
    let failed = |source: kube::Error| match &source {
        kube::Error::Api(status) if status.code == 403 => {
            SecretError::Forbidden { namespace: namespace.clone(), name: name.clone() }
        }
        _ => SecretError::Failed { namespace: namespace.clone(), name: name.clone(), source: ApiError::boxed(source) },
    };
    // Both come from a volume's parameters; a slash in one would ask for another resource.
    let plain = |text: &str| {
        let allowed = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'.';
        !text.is_empty() && !text.starts_with('.') && text.bytes().all(allowed)
    };
    if !plain(&namespace) || !plain(&name) {
        return Ok(None);
    }
    let request = Request::new(format!("/api/v1/namespaces/{namespace}/secrets"))
        .get(&name, &GetParams::default())
        .map_err(|source| failed(kube::Error::BuildRequest(source)))?;
    // As text: the typed request of the client library logs the whole answer when it cannot decode it.
    let text = match answered(client.request_text(request)).await {
        Ok(text) => text,
        Err(kube::Error::Api(status)) if status.code == 404 => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let Ok(secret) = serde_json::from_str::<Secret>(&text) else {
        return Err(SecretError::Malformed { namespace, name });
    };
    let values = secret.data.unwrap_or_default();
    Ok(Some(SecretValues(values.into_iter().map(|(key, value)| (key, value.0)).collect())))
}
