//! How the node plugin gets the keys of storage accounts.

use std::path::PathBuf;

use clap::Args;
use lazuli_csi::file::node::{KeyError, KeyReader};
use lazuli_keys::{BrokerPlace, NodeKeys};
use lazuli_model::fault::Code;
use lazuli_shares::secret::{SecretAccess, SecretAccessError};

/// Options of the keys.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Keys of file shares")]
pub(super) struct KeyOptions {
    /// How this node gets the key of a share whose volume brings none: from the controllers (broker), which check that a pod
    /// on this node uses the volume; or it reads the Secret itself, any of the cluster (cluster) or those of some
    /// namespaces (namespaces).
    #[arg(long, env = "LAZULI_SECRET_ACCESS", default_value = "broker", value_name = "WAY")]
    secret_access: String,
    /// The namespaces whose Secrets this node reads, separated by commas, with --secret-access=namespaces.
    #[arg(long, env = "LAZULI_SECRET_NAMESPACES", value_delimiter = ',', value_name = "NAMESPACE")]
    secret_namespaces: Vec<String>,
    /// The Service of the controllers' key broker. Its name and namespace are in their certificate.
    #[arg(long, env = "LAZULI_KEY_BROKER_SERVICE", value_name = "NAMESPACE/NAME", value_parser = service)]
    key_broker_service: Option<(String, String)>,
    /// The file with the certificate of the authority that has signed the broker's, in PEM.
    #[arg(long, env = "LAZULI_KEY_BROKER_AUTHORITY", value_name = "FILE")]
    key_broker_authority: Option<PathBuf>,
    /// The file with this pod's token for the broker, of the audience lazuli-key-broker.
    #[arg(long, env = "LAZULI_KEY_BROKER_TOKEN", value_name = "FILE")]
    key_broker_token: Option<PathBuf>,
}

fn service(text: &str) -> Result<(String, String), String> {
    match text.split_once('/') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains('/') => {
            Ok((namespace.to_owned(), name.to_owned()))
        }
        _ => Err("allowed is NAMESPACE/NAME".to_owned()),
    }
}

/// Why the options make no way to a key.
#[derive(Debug, thiserror::Error)]
pub(super) enum KeyOptionsError {
    /// They contradict each other.
    #[error("--secret-access and --secret-namespaces do not fit")]
    Access(#[source] SecretAccessError),
    /// The broker cannot be found without them.
    #[error(
        "with --secret-access=broker, --key-broker-service, --key-broker-authority and --key-broker-token are needed; without \
         them no pod gets a share whose volume brings no key"
    )]
    NoBroker,
}

impl KeyOptions {
    /// How keys are asked for. `None` where there is no cluster to ask: then volumes must bring their keys.
    pub(super) fn reader(&self, client: Option<&kube::Client>) -> Result<Option<KeyReader>, KeyOptionsError> {
        let access =
            SecretAccess::parse(&self.secret_access, &self.secret_namespaces).map_err(KeyOptionsError::Access)?;
        let Some(client) = client else { return Ok(None) };
        let place = match (&self.key_broker_service, &self.key_broker_authority, &self.key_broker_token) {
            (Some((namespace, service)), Some(authority), Some(token)) => BrokerPlace {
                namespace: namespace.clone(),
                service: service.clone(),
                token: token.clone(),
                authority: authority.clone(),
            },
            _ if access == SecretAccess::Broker => return Err(KeyOptionsError::NoBroker),
            _ => BrokerPlace {
                namespace: String::new(),
                service: String::new(),
                token: PathBuf::new(),
                authority: PathBuf::new(),
            },
        };
        let keys = NodeKeys::new(access, client.clone(), place);
        Ok(Some(KeyReader::new(move |request| {
            let keys = keys.clone();
            // Nothing is remembered, so what is read is fresh.
            Box::pin(async move { keys.key(&request.volume_id, &request.context).await.map_err(told) })
        })))
    }
}

/// The same error in the words of the driver.
fn told(error: lazuli_keys::KeyError) -> KeyError {
    match error.code {
        Code::PermissionDenied | Code::Unauthenticated => KeyError::Refused(error.message),
        Code::FailedPrecondition | Code::NotFound | Code::InvalidArgument => KeyError::NoKey(error.message),
        _ => KeyError::Unavailable(error.message),
    }
}

#[cfg(test)]
#[cfg(feature = "emulator")]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        keys: KeyOptions,
    }

    fn options(arguments: &[&str]) -> Result<KeyOptions, clap::Error> {
        Command::try_parse_from(["lazuli"].iter().chain(arguments)).map(|command| command.keys)
    }

    #[tokio::test]
    async fn a_way_to_keys_needs_what_it_says_and_nothing_else() {
        let server = lazuli_apiserver::ApiServer::start(lazuli_apiserver::Options::default());
        let client = kube::Client::new(server.router(), "default");
        let broker = ["--key-broker-service=lazuli/keys", "--key-broker-authority=/ca", "--key-broker-token=/token"];
        let is_read = |arguments: &[&str]| options(arguments).unwrap().reader(Some(&client)).map(|read| read.is_some());
        assert!(matches!(is_read(&[]), Err(KeyOptionsError::NoBroker)));
        assert!(matches!(is_read(&broker[..2]), Err(KeyOptionsError::NoBroker)));
        assert!(is_read(&broker).unwrap());
        assert!(is_read(&["--secret-access=cluster"]).unwrap());
        assert!(is_read(&["--secret-access=namespaces", "--secret-namespaces=a,b"]).unwrap());
        for wrong in [
            &["--secret-access=namespaces"][..],
            &["--secret-access=all"],
            &["--secret-access=cluster", "--secret-namespaces=a"],
        ] {
            assert!(matches!(is_read(wrong), Err(KeyOptionsError::Access(_))), "{wrong:?}");
        }
        assert!(options(&["--key-broker-service=keys"]).is_err());
        // Without a cluster there is nobody to ask.
        assert!(options(&[]).unwrap().reader(None).unwrap().is_none());
    }
}
