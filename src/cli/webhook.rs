//! Where a process answers the API server's admission reviews.

use std::path::PathBuf;

use clap::Args;
use lazuli_assembly::clients::{Azure, CloudOptions};
use lazuli_storage::admission::volume::Readable;
use lazuli_telemetry::http::{CertificateError, CertificateFiles, Listen, ServeError, Server, ServingCertificate};
use lazuli_webhook::{Metrics, Options, router};
use prometheus_client::registry::Registry;

/// Options of the admission webhooks.
#[derive(Debug, Args)]
#[command(next_help_heading = "Admission webhooks")]
pub(super) struct WebhookOptions {
    /// Where to answer the API server's reviews of PersistentVolumes and PersistentVolumeClaims by TLS, as ADDRESS:PORT
    /// or :PORT; default: nowhere. Every replica answers, also one that waits for the Lease.
    #[arg(
        long,
        env = "LAZULI_WEBHOOK_ADDRESS",
        value_name = "ENDPOINT",
        requires = "webhook_certificate",
        requires = "webhook_key"
    )]
    webhook_address: Option<Listen>,
    /// The certificate for reviews and its chain, in PEM; read again every minute. The API server must trust it: its
    /// authority is the caBundle of the webhook configurations.
    #[arg(long, env = "LAZULI_WEBHOOK_CERTIFICATE", value_name = "FILE", requires = "webhook_key")]
    webhook_certificate: Option<PathBuf>,
    /// The private key of that certificate, in PEM.
    #[arg(long, env = "LAZULI_WEBHOOK_KEY", value_name = "FILE", requires = "webhook_certificate")]
    webhook_key: Option<PathBuf>,
}

/// Why the webhooks cannot be served.
#[derive(Debug, thiserror::Error)]
pub(super) enum WebhookError {
    #[error("the certificate for admission reviews cannot be used")]
    Certificate(#[from] CertificateError),
    #[error(transparent)]
    Serve(#[from] ServeError),
}

impl WebhookOptions {
    /// Takes the port, where one is asked for.
    pub(super) async fn bind(
        &self,
        azure: &Azure,
        cloud: &CloudOptions,
        api: &kube::Client,
        registry: &mut Registry,
    ) -> Result<Option<Server>, WebhookError> {
        let (Some(at), Some(certificate), Some(key)) =
            (self.webhook_address, &self.webhook_certificate, &self.webhook_key)
        else {
            return Ok(None);
        };
        let files = CertificateFiles { certificate: certificate.clone(), key: key.clone() };
        let certificate = ServingCertificate::from_files(files).await?;
        let readable = Readable {
            allowed: cloud.allowed_resource_groups(),
            subscription: azure.defaults.subscription.clone(),
            resource_group: azure.defaults.resource_group.clone(),
        };
        let region = azure.defaults.location.clone();
        let options = Options { compute: azure.compute.clone(), api: api.clone(), region, readable };
        let router = router(options, Metrics::register(registry));
        let server = Server::tls(at, "admission reviews", router, certificate).await?;
        tracing::info!(address = %server.address(), "answering admission reviews");
        Ok(Some(server))
    }
}
