//! Keys in Secrets.

use kube::Client;
use lazuli_cluster::{SecretError, SecretValues, read_secret};
use lazuli_model::fault::Code;
use lazuli_shares::secret::{SecretRef, credentials, handout::StoredSecret};

use crate::KeyError;

/// A Secret with a key: what counts of it, and what was read, for an update.
pub(crate) struct Stored {
    pub(crate) secret: StoredSecret,
    pub(crate) read: SecretValues,
}

/// Reads the key in a Secret; `None` where there is no such Secret.
pub(crate) async fn stored(client: &Client, secret: &SecretRef) -> Result<Option<Stored>, KeyError> {
    let SecretRef { namespace, name } = secret;
    let read = read_secret(client, namespace, name).await.map_err(|error| {
        let code = match &error {
            SecretError::Failed { .. } => Code::Unavailable,
            SecretError::Forbidden { .. } => Code::FailedPrecondition,
            SecretError::Malformed { .. } => Code::Internal,
        };
        KeyError::of(code, &error)
    })?;
    let Some(read) = read else { return Ok(None) };
    // What is no text is no name and no key.
    let texts = read.keys().filter_map(|key| Some((key, std::str::from_utf8(read.get(key)?).ok()?)));
    let credentials = credentials(texts).map_err(|error| {
        KeyError::new(Code::FailedPrecondition, format!("Secret {namespace}/{name} cannot be used: {error}"))
    })?;
    let keys = read.keys().map(str::to_owned).collect();
    let secret = StoredSecret { credentials, keys, is_managed: read.is_managed() };
    Ok(Some(Stored { secret, read }))
}
