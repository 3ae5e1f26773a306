//! One secret by name. `get`, never `list`: the right to list would be the right to all of them.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::{ByteString, api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::Client;
use kube::api::{GetParams, PostParams};
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

/// Why a Secret could not be written.
#[derive(Debug, thiserror::Error)]
pub enum SecretWriteError {
    /// No object can have this name.
    #[error("no secret can have the name {namespace}/{name}")]
    Name {
        /// Namespace of the secret.
        namespace: String,
        /// Name of the secret.
        name: String,
    },
    /// Whether there is one could not be read.
    #[error(transparent)]
    Read(#[from] SecretError),
    /// The role lacks `create` on secrets.
    #[error(
        "not allowed to create secret {namespace}/{name}: the role needs the verb create on secrets of the namespace"
    )]
    Forbidden {
        /// Namespace of the secret.
        namespace: String,
        /// Name of the secret.
        name: String,
        /// What the API server said: it refuses for a quota or an admission policy in the same way.
        #[source]
        source: Box<ApiError>,
    },
    /// The API server did not answer, or refused.
    #[error("cannot create secret {namespace}/{name}")]
    Failed {
        /// Namespace of the secret.
        namespace: String,
        /// Name of the secret.
        name: String,
        /// Why.
        #[source]
        source: Box<ApiError>,
    },
}

/// Whether a text can stand in a path. Names come from a volume's parameters; a slash in one would ask for another
/// resource.
fn is_plain(text: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'.';
    !text.is_empty() && !text.starts_with('.') && text.bytes().all(allowed)
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
    if !is_plain(&namespace) || !is_plain(&name) {
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

/// Writes the key of a storage account into a Secret, as the Go driver does: one that does not exist is made, and one that
/// exists is left as it is. It is read first: a namespace that may have no more Secrets refuses the creation of one that
/// exists, too.
///
/// # Errors
/// [`SecretWriteError`].
pub async fn write_share_secret(
    client: &Client,
    namespace: &str,
    name: &str,
    data: &[(&str, &str)],
) -> Result<(), SecretWriteError> {
    let (namespace, name) = (namespace.to_owned(), name.to_owned());
    if !is_plain(&namespace) || !is_plain(&name) {
        return Err(SecretWriteError::Name { namespace, name });
    }
    if read_secret(client, &namespace, &name).await?.is_some() {
        return Ok(());
    }
    let values = data.iter().map(|(key, value)| ((*key).to_owned(), ByteString(value.as_bytes().to_vec()))).collect();
    let secret = Secret {
        metadata: ObjectMeta { name: Some(name.clone()), namespace: Some(namespace.clone()), ..ObjectMeta::default() },
        type_: Some("Opaque".to_owned()),
        data: Some(values),
        ..Secret::default()
    };
    let created = async {
        let body = serde_json::to_vec(&secret).map_err(kube::Error::SerdeError)?;
        let request = Request::new(format!("/api/v1/namespaces/{namespace}/secrets"))
            .create(&PostParams::default(), body)
            .map_err(kube::Error::BuildRequest)?;
        answered(client.request_text(request)).await
    };
    match created.await {
        Ok(_) => Ok(()),
        // Another replica, or the provisioner's other request, was first.
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        Err(source) => {
            let is_forbidden = matches!(&source, kube::Error::Api(status) if status.code == 403);
            let source = ApiError::boxed(source);
            Err(match is_forbidden {
                true => SecretWriteError::Forbidden { namespace, name, source },
                false => SecretWriteError::Failed { namespace, name, source },
            })
        }
    }
}
