//! How the controller and the nodes of a cluster deal with the keys of storage accounts.

use std::path::PathBuf;

use clap::Args;
use lazuli_csi::{file::node, server::chain};
use lazuli_file::Shares;
use lazuli_keys::{AUDIENCE, AccountReader, AzureAccount, BrokerPlace, KeyError, NodeKeys};
use lazuli_model::{
    fault::{Code, Rpc, code},
    kube_name::is_subdomain,
};
use lazuli_shares::{
    secret::{SecretAccess, SecretAccessError},
    volume_id::ShareVolumeId,
};

/// An object of a namespace, as NAMESPACE/NAME.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Namespaced {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl std::str::FromStr for Namespaced {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('/').filter(|(namespace, name)| is_subdomain(namespace) && is_subdomain(name));
        let (namespace, name) = parts.ok_or_else(|| format!("{text:?} is not NAMESPACE/NAME"))?;
        Ok(Self { namespace: namespace.to_owned(), name: name.to_owned() })
    }
}

/// Options of a node: where it gets keys that no request brings.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Keys of storage accounts")]
pub struct KeyOptions {
    /// How keys of storage accounts are got. broker: from the controller, which hands out those of volumes that Pods on this
    /// node use. cluster: from the Secrets of all namespaces, as the Go driver does. namespaces: from the Secrets of those of
    /// --secret-namespaces.
    #[arg(long, env = "LAZULI_SECRET_ACCESS", default_value = "broker", value_name = "MODE")]
    #[arg(value_parser = ["broker", "cluster", "namespaces"])]
    secret_access: String,
    /// With --secret-access=namespaces: those whose Secrets are read, separated by commas.
    #[arg(long, env = "LAZULI_SECRET_NAMESPACES", value_delimiter = ',', value_name = "NAMESPACE")]
    secret_namespaces: Vec<String>,
    /// The Service of the controller that hands out keys. The controller's certificate must be for NAME.NAMESPACE.svc.
    #[arg(long, env = "LAZULI_KEY_BROKER_SERVICE", value_name = "NAMESPACE/NAME")]
    #[arg(default_value = "kube-system/lazuli-key-broker")]
    key_broker_service: Namespaced,
    /// The file with this Pod's token for the controller, of the controller's --key-broker-audience; read for each request.
    #[arg(long, env = "LAZULI_KEY_BROKER_TOKEN", value_name = "FILE")]
    #[arg(default_value = "/var/run/secrets/lazuli-key-broker/token")]
    key_broker_token: PathBuf,
    /// The file with the authority of the controller's certificate, in PEM; read for each request.
    #[arg(long, env = "LAZULI_KEY_BROKER_AUTHORITY", value_name = "FILE")]
    #[arg(default_value = "/var/run/secrets/lazuli-key-broker/ca.crt")]
    key_broker_authority: PathBuf,
}

/// The audience of the tokens that the controller takes, where nothing else is configured.
pub const DEFAULT_AUDIENCE: &str = AUDIENCE;

/// Where a node of this cluster gets keys that no request brings.
///
/// # Errors
/// Options that contradict each other.
pub fn key_reader(options: &KeyOptions, client: kube::Client) -> Result<node::KeyReader, SecretAccessError> {
    let access = SecretAccess::parse(&options.secret_access, &options.secret_namespaces)?;
    let place = BrokerPlace {
        namespace: options.key_broker_service.namespace.clone(),
        service: options.key_broker_service.name.clone(),
        token: options.key_broker_token.clone(),
        authority: options.key_broker_authority.clone(),
    };
    let keys = NodeKeys::new(access, client, place);
    Ok(node::KeyReader::new(move |request| {
        let keys = keys.clone();
        Box::pin(async move {
            let node::KeyRequest { volume_id, context, refused } = request;
            keys.key(&volume_id, &context, refused.as_ref()).await.map_err(of_node)
        })
    }))
}

/// The same failure, as the node's services sort them.
fn of_node(error: KeyError) -> node::KeyError {
    let KeyError { code, message } = error;
    match code {
        Code::Unavailable | Code::DeadlineExceeded | Code::ResourceExhausted | Code::Aborted => {
            node::KeyError::Unavailable(message)
        }
        Code::PermissionDenied | Code::Unauthenticated => node::KeyError::Refused(message),
        _ => node::KeyError::NoKey(message),
    }
}

/// How the broker asks Azure for the keys of an account.
pub fn account_reader(shares: Shares) -> AccountReader {
    AccountReader::new(move |of| {
        let shares = shares.clone();
        Box::pin(async move {
            let AzureAccount { subscription, resource_group, account } = of;
            let named = ShareVolumeId {
                subscription: subscription.unwrap_or_default(),
                resource_group: resource_group.unwrap_or_default(),
                account,
                ..ShareVolumeId::default()
            };
            let read = async { shares.keys(&shares.account_of(&named)?).await };
            read.await.map_err(|error| {
                let code = error.code().unwrap_or_else(|| code(Rpc::Read, &error.fault, error.effect));
                KeyError::new(code, chain(&error))
            })
        })
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        keys: KeyOptions,
    }

    #[tokio::test]
    async fn a_node_asks_the_broker_unless_told_otherwise_and_mistakes_are_named() {
        let client = || {
            kube::Client::new(
                tower::service_fn(|_: http::Request<kube::client::Body>| async {
                    Ok::<_, std::convert::Infallible>(http::Response::new(kube::client::Body::empty()))
                }),
                "default",
            )
        };
        let parse = |words: &[&str]| Command::try_parse_from([&["node"], words].concat()).map(|command| command.keys);
        let usual = parse(&[]).unwrap();
        assert_eq!(usual.secret_access, "broker");
        assert_eq!(usual.key_broker_service, "kube-system/lazuli-key-broker".parse().unwrap());
        let read =
            |words: &[&str]| key_reader(&parse(words).unwrap(), client()).map(drop).map_err(|error| error.to_string());
        assert_eq!(read(&["--secret-access=cluster"]), Ok(()));
        assert_eq!(read(&["--secret-access=namespaces", "--secret-namespaces=db,web"]), Ok(()));
        assert!(read(&["--secret-access=namespaces"]).unwrap_err().contains("none is named"));
        assert!(read(&["--secret-namespaces=db"]).unwrap_err().contains("db"));
        for wrong in
            ["--secret-access=all", "--key-broker-service=one", "--key-broker-service=a/b/c", "--key-broker-service=/b"]
        {
            assert!(parse(&[wrong]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_failure_stays_one_of_its_kind_on_the_node() {
        let of = |code| of_node(KeyError::new(code, "why"));
        assert_eq!(of(Code::Unavailable), node::KeyError::Unavailable("why".into()));
        assert_eq!(of(Code::ResourceExhausted), node::KeyError::Unavailable("why".into()));
        assert_eq!(of(Code::PermissionDenied), node::KeyError::Refused("why".into()));
        assert_eq!(of(Code::Unauthenticated), node::KeyError::Refused("why".into()));
        assert_eq!(of(Code::FailedPrecondition), node::KeyError::NoKey("why".into()));
        assert_eq!(of(Code::Internal), node::KeyError::NoKey("why".into()));
    }
}
