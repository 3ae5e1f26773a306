//! Where a process hands out the keys of storage accounts to nodes.

use std::path::PathBuf;

use clap::Args;
use lazuli_assembly::{
    keys::{DEFAULT_AUDIENCE, Namespaced, account_reader},
    services::Shares,
};
use lazuli_cluster::ShareVolumes;
use lazuli_keys::{CONNECTIONS_OF_A_SOURCE, Metrics, Settings, router};
use lazuli_telemetry::http::{CertificateError, CertificateFiles, Listen, ServeError, Server, ServingCertificate};
use prometheus_client::registry::Registry;
use tokio::sync::watch;

/// Options of the broker.
#[derive(Debug, Args)]
#[command(next_help_heading = "Keys of storage accounts")]
pub(super) struct KeyBrokerOptions {
    /// Where to hand out keys of storage accounts to nodes by TLS, as ADDRESS:PORT or :PORT; default: nowhere. A node gets
    /// the keys of the volumes that its Pods use. Every replica answers.
    #[arg(
        long,
        env = "LAZULI_KEY_BROKER_ENDPOINT",
        value_name = "ENDPOINT",
        requires = "file_endpoint",
        requires = "key_broker_certificate",
        requires = "key_broker_key"
    )]
    key_broker_endpoint: Option<Listen>,
    /// The certificate for nodes and its chain, in PEM; read again every minute. It must be for the name SERVICE.NAMESPACE.svc
    /// of the Service by which nodes find this process.
    #[arg(long, env = "LAZULI_KEY_BROKER_CERTIFICATE", value_name = "FILE", requires = "key_broker_key")]
    key_broker_certificate: Option<PathBuf>,
    /// The private key of that certificate, in PEM.
    #[arg(long, env = "LAZULI_KEY_BROKER_KEY", value_name = "FILE", requires = "key_broker_certificate")]
    key_broker_key: Option<PathBuf>,
    /// The audience of the tokens that nodes send.
    #[arg(long, env = "LAZULI_KEY_BROKER_AUDIENCE", default_value = DEFAULT_AUDIENCE, value_name = "AUDIENCE")]
    key_broker_audience: String,
    /// The ServiceAccount of the node plugin, the only one that gets keys.
    #[arg(long, env = "LAZULI_KEY_BROKER_NODE_ACCOUNT", value_name = "NAMESPACE/NAME")]
    #[arg(default_value = "kube-system/lazuli-node")]
    key_broker_node_account: Namespaced,
}

/// Why keys cannot be handed out.
#[derive(Debug, thiserror::Error)]
pub(super) enum KeyBrokerError {
    #[error("--key-broker-endpoint needs a cluster, and none is named: give --kubeconfig")]
    NoCluster,
    #[error("the certificate for nodes that ask for keys cannot be used")]
    Certificate(#[from] CertificateError),
    #[error(transparent)]
    Serve(#[from] ServeError),
}

impl KeyBrokerOptions {
    /// Takes the port, where one is asked for.
    pub(super) async fn bind(
        &self,
        driver: &str,
        shares: Shares,
        volumes: watch::Receiver<ShareVolumes>,
        client: Option<&kube::Client>,
        registry: &mut Registry,
    ) -> Result<Option<Server>, KeyBrokerError> {
        let (Some(at), Some(certificate), Some(key)) =
            (self.key_broker_endpoint, &self.key_broker_certificate, &self.key_broker_key)
        else {
            return Ok(None);
        };
        let client = client.ok_or(KeyBrokerError::NoCluster)?.clone();
        let files = CertificateFiles { certificate: certificate.clone(), key: key.clone() };
        let certificate = ServingCertificate::from_files(files).await?;
        let Namespaced { namespace, name } = self.key_broker_node_account.clone();
        let settings = Settings {
            client,
            driver: driver.to_owned(),
            volumes,
            audience: self.key_broker_audience.clone(),
            node_plugin: (namespace, name),
            azure: Some(account_reader(shares)),
        };
        let server =
            Server::tls(at, "keys of storage accounts", router(settings, Metrics::register(registry)), certificate);
        let server = server.await?.with_most_of_one_source(CONNECTIONS_OF_A_SOURCE);
        tracing::info!(address = %server.address(), "handing out keys of storage accounts to nodes");
        Ok(Some(server))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[arg(long)]
        file_endpoint: Option<String>,
        #[command(flatten)]
        keys: KeyBrokerOptions,
    }

    #[test]
    fn keys_are_handed_out_only_beside_the_file_driver_and_with_a_certificate() {
        let parse = |words: &[&str]| Command::try_parse_from([&["controller"], words].concat());
        let usual = parse(&[]).unwrap();
        assert!(usual.keys.key_broker_endpoint.is_none() && usual.file_endpoint.is_none());
        assert_eq!(usual.keys.key_broker_audience, "lazuli-key-broker");
        let whole = [
            "--file-endpoint=unix:///f.sock",
            "--key-broker-endpoint=:9443",
            "--key-broker-certificate=/c",
            "--key-broker-key=/k",
        ];
        assert!(parse(&whole).unwrap().keys.key_broker_endpoint.is_some());
        for left_out in [0, 2, 3] {
            let mut words = whole.to_vec();
            words.remove(left_out);
            assert!(parse(&words).is_err(), "{words:?}");
        }
        for wrong in ["lazuli-node", "kube-system/", "a/b/c", "System/lazuli"] {
            assert!(parse(&[&format!("--key-broker-node-account={wrong}")]).is_err(), "{wrong}");
        }
    }
}
