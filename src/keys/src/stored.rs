//! Keys in Secrets.

use kube::Client;
use lazuli_cluster::{SecretError, read_secret};
use lazuli_model::fault::Code;
use lazuli_shares::secret::{Credentials, SecretRef, credentials};

use crate::KeyError;

/// Reads the key in a Secret; `None` where there is no such Secret.
pub(crate) async fn stored(client: &Client, secret: &SecretRef) -> Result<Option<Credentials>, KeyError> {
    let SecretRef { namespace, name } = secret;
    let read = read_secret(client, namespace, name).await.map_err(|error| {
        let code = match &error {
            SecretError::Failed { .. } => Code::Unavailable,
            SecretError::Forbidden { .. } => Code::FailedPrecondition,
            SecretError::Malformed { .. } => Code::Internal,
        };
        KeyError::of(code, &error)
    })?;
    let Some(values) = read else { return Ok(None) };
    // What is no text is no name and no key.
    let texts = values.keys().filter_map(|key| Some((key, std::str::from_utf8(values.get(key)?).ok()?)));
    let found = credentials(texts);
    found.map(Some).map_err(|error| {
        KeyError::new(Code::FailedPrecondition, format!("Secret {namespace}/{name} cannot be used: {error}"))
    })
}

/// What is said where there is no Secret, and nobody else to ask.
pub(crate) fn missing(secret: &SecretRef, why: &str) -> KeyError {
    let SecretRef { namespace, name } = secret;
    let message = format!(
        "Secret {namespace}/{name} does not exist, and {why}: create it with azurestorageaccountname and \
         azurestorageaccountkey"
    );
    KeyError::new(Code::FailedPrecondition, message)
}

/// What is said of a volume that names neither a Secret nor an account.
pub(crate) fn nameless() -> KeyError {
    let message = "the volume names neither a Secret nor a storage account: set secretName or storageAccount in its \
                   volumeAttributes";
    KeyError::new(Code::FailedPrecondition, message)
}
