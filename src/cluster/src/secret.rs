//! One secret by name. `get`, never `list`: the right to list would be the right to all of them.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::{ByteString, api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::Client;
use kube::api::{GetParams, PostParams};
use kube::core::Request;

use super::client::answered;
use super::server::ApiError;

/// A secret as it was read. `Debug` shows the names of its keys only.
#[derive(Clone, PartialEq)]
pub struct SecretValues(Secret);

impl SecretValues {
    /// The bytes under a key.
    pub fn get(&self, key: &str) -> Option<&[u8]> {
        self.0.data.as_ref()?.get(key).map(|value| value.0.as_slice())
    }

    /// The names of the keys, for a message about a missing one.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.data.iter().flat_map(BTreeMap::keys).map(String::as_str)
    }

    /// Whether another program or a person looks after it: it is immutable, or an object owns it.
    pub fn is_managed(&self) -> bool {
        let owners = self.0.metadata.owner_references.as_ref();
        self.0.immutable == Some(true) || owners.is_some_and(|owners| !owners.is_empty())
    }
}

impl fmt::Debug for SecretValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.keys().map(|key| (key, "<redacted>"))).finish()
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
    /// The role lacks the verb on secrets.
    #[error(
        "not allowed to {verb} secret {namespace}/{name}: the role needs the verb {verb} on secrets of the namespace"
    )]
    Forbidden {
        /// What was tried.
        verb: Verb,
        /// Namespace of the secret.
        namespace: String,
        /// Name of the secret.
        name: String,
        /// What the API server said: it refuses for a quota or an admission policy in the same way.
        #[source]
        source: Box<ApiError>,
    },
    /// The API server did not answer, or refused.
    #[error("cannot {verb} secret {namespace}/{name}")]
    Failed {
        /// What was tried.
        verb: Verb,
        /// Namespace of the secret.
        namespace: String,
        /// Name of the secret.
        name: String,
        /// Why.
        #[source]
        source: Box<ApiError>,
    },
}

impl SecretWriteError {
    fn of(verb: Verb, namespace: String, name: String, source: kube::Error) -> Self {
        let is_forbidden = matches!(&source, kube::Error::Api(status) if status.code == 403);
        let source = ApiError::boxed(source);
        match is_forbidden {
            true => Self::Forbidden { verb, namespace, name, source },
            false => Self::Failed { verb, namespace, name, source },
        }
    }
}

/// A write of a secret, as roles name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// It is made.
    Create,
    /// It is changed.
    Update,
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Create => "create",
            Self::Update => "update",
        })
    }
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
    Ok(Some(SecretValues(secret)))
}

/// What became of an update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecretUpdate {
    /// It has the new values.
    Written,
    /// It has changed since it was read, or is gone: nothing was written.
    Changed,
}

/// Writes new values into a secret that was read, where it is still as it was read. Keys that are not named, labels and all
/// else stay.
///
/// # Errors
/// [`SecretWriteError`].
pub async fn update_secret(
    client: &Client,
    read: &SecretValues,
    data: &[(&str, &str)],
) -> Result<SecretUpdate, SecretWriteError> {
    let mut secret = read.0.clone();
    let of = |text: &Option<String>| text.clone().unwrap_or_default();
    let (namespace, name) = (of(&secret.metadata.namespace), of(&secret.metadata.name));
    // Without a version the API server would write over whatever is there by now.
    if !is_plain(&namespace) || !is_plain(&name) || of(&secret.metadata.resource_version).is_empty() {
        return Err(SecretWriteError::Name { namespace, name });
    }
    let values = data.iter().map(|(key, value)| ((*key).to_owned(), ByteString(value.as_bytes().to_vec())));
    secret.data.get_or_insert_default().extend(values);
    let written = async {
        let body = serde_json::to_vec(&secret).map_err(kube::Error::SerdeError)?;
        let request = Request::new(format!("/api/v1/namespaces/{namespace}/secrets"))
            .replace(&name, &PostParams::default(), body)
            .map_err(kube::Error::BuildRequest)?;
        answered(client.request_text(request)).await
    };
    match written.await {
        Ok(_) => Ok(SecretUpdate::Written),
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(SecretUpdate::Changed),
        Err(source) => Err(SecretWriteError::of(Verb::Update, namespace, name, source)),
    }
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
        Err(source) => Err(SecretWriteError::of(Verb::Create, namespace, name, source)),
    }
}
