//! Where a process answers probes and scrapes, and who may scrape.

use std::path::PathBuf;

use super::go_arguments::boolean;
use clap::{Args, ValueEnum};
use lazuli_csi::server::chain;
use lazuli_telemetry::{
    Readiness,
    go_names::GoNames,
    http::{
        CertificateError, CertificateFiles, Listen, Page, Protection, Reviewer, ServeError, Server, ServingCertificate,
    },
};
use tokio_util::sync::CancellationToken;

/// Options of what serves a cluster.
#[derive(Debug, Args)]
#[command(next_help_heading = "Health and metrics")]
pub(super) struct EndpointOptions {
    /// Where to answer /healthz and /readyz by plain HTTP, as ADDRESS:PORT or :PORT; default: nowhere.
    #[arg(long, env = "LAZULI_HEALTH_ENDPOINT", value_name = "ENDPOINT")]
    health_endpoint: Option<Listen>,
    /// Where to answer /metrics, as ADDRESS:PORT or :PORT; default: nowhere.
    #[arg(long, env = "LAZULI_METRICS_ENDPOINT", value_name = "ENDPOINT")]
    metrics_endpoint: Option<Listen>,
    /// Who may read metrics. kubernetes: by TLS, clients with a token of the cluster whose user may get the
    /// nonResourceURL /metrics. none: every client, by plain HTTP, at a loopback address. Default: kubernetes where a
    /// cluster is named, else none.
    #[arg(long, env = "LAZULI_METRICS_AUTHENTICATION", value_enum)]
    metrics_authentication: Option<Authentication>,
    /// Serve metrics without authentication at an endpoint that other machines can reach.
    #[arg(long, value_parser = boolean, env = "LAZULI_ALLOW_REMOTE_METRICS")]
    allow_remote_metrics: bool,
    /// The certificate for metrics and its chain, in PEM; read again every minute. Default: with authentication, one
    /// that the process makes at its start.
    #[arg(long, env = "LAZULI_METRICS_CERTIFICATE", value_name = "FILE", requires = "metrics_key")]
    metrics_certificate: Option<PathBuf>,
    /// The private key of that certificate, in PEM.
    #[arg(long, env = "LAZULI_METRICS_KEY", value_name = "FILE", requires = "metrics_certificate")]
    metrics_key: Option<PathBuf>,
    /// Add the metrics of the Go projects under their names, for dashboards and alerts that were made for them. The whole page
    /// is then in the text format 0.0.4 instead of OpenMetrics. lazuli explain metric says which names are there.
    #[arg(long, value_parser = boolean, env = "LAZULI_GO_METRICS")]
    go_metrics: bool,
}

/// Who may read metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Authentication {
    Kubernetes,
    None,
}

/// Why the servers cannot start.
#[derive(Debug, thiserror::Error)]
pub(super) enum EndpointsError {
    #[error(
        "--metrics-authentication=kubernetes needs a cluster, and none is named: give --kubeconfig, or \
         --metrics-authentication=none with a loopback address"
    )]
    NoCluster,
    #[error(
        "other machines can read metrics without authentication at {0}: listen at a loopback address such as \
         127.0.0.1:9600, name a cluster with --kubeconfig, or give --allow-remote-metrics"
    )]
    Open(Listen),
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    #[error(transparent)]
    Serve(#[from] ServeError),
}

impl EndpointOptions {
    /// Whether anything asks for the readiness of this process.
    pub(super) fn has_probes(&self) -> bool {
        self.health_endpoint.is_some()
    }

    /// Who may read metrics here.
    fn authentication(&self, at: Listen, cluster: bool) -> Result<Authentication, EndpointsError> {
        match (self.metrics_authentication, cluster) {
            (Some(Authentication::Kubernetes), false) => Err(EndpointsError::NoCluster),
            (Some(Authentication::Kubernetes) | None, true) => Ok(Authentication::Kubernetes),
            (Some(Authentication::None), _) | (None, false) => match at.is_loopback() || self.allow_remote_metrics {
                true => Ok(Authentication::None),
                false => Err(EndpointsError::Open(at)),
            },
        }
    }

    fn files(&self) -> Option<CertificateFiles> {
        let (certificate, key) = (self.metrics_certificate.clone()?, self.metrics_key.clone()?);
        Some(CertificateFiles { certificate, key })
    }

    async fn protection(&self, at: Listen, cluster: Option<&kube::Client>) -> Result<Protection, EndpointsError> {
        let authentication = self.authentication(at, cluster.is_some())?;
        let certificate = match self.files() {
            Some(files) => Some(ServingCertificate::from_files(files).await?),
            None => None,
        };
        Ok(match (authentication, cluster, certificate) {
            (Authentication::None, _, None) => Protection::None,
            (Authentication::None, _, Some(certificate)) => Protection::Tls(certificate),
            (Authentication::Kubernetes, None, _) => return Err(EndpointsError::NoCluster),
            (Authentication::Kubernetes, Some(client), certificate) => {
                let certificate = match certificate {
                    Some(certificate) => certificate,
                    None => ServingCertificate::self_signed()?,
                };
                Protection::TlsAndReview(certificate, reviewer(client.clone()))
            }
        })
    }

    /// What shows metrics under the Go projects' names, if that is wanted.
    pub(super) fn go_names(&self) -> GoNames {
        if self.go_metrics { GoNames::on() } else { GoNames::default() }
    }

    /// Takes the ports that are wanted: one that is taken ends the start, not the process a day later.
    pub(super) async fn bind(
        &self,
        page: Page,
        readiness: Readiness,
        cluster: Option<&kube::Client>,
    ) -> Result<Endpoints, EndpointsError> {
        let health = match self.health_endpoint {
            Some(at) => Some(Server::health(at, readiness).await?),
            None => None,
        };
        let metrics = match self.metrics_endpoint {
            Some(at) => Some(Server::metrics(at, page, self.protection(at, cluster).await?).await?),
            None => None,
        };
        Ok(Endpoints { health, metrics, further: None })
    }
}

/// Asks the cluster who may read metrics.
fn reviewer(client: kube::Client) -> Reviewer {
    Reviewer::new(move |token| {
        let client = client.clone();
        Box::pin(
            async move { lazuli_cluster::review_metrics_reader(&client, &token).await.map_err(|error| chain(&error)) },
        )
    })
}

/// Servers that have their ports.
pub(super) struct Endpoints {
    health: Option<Server>,
    metrics: Option<Server>,
    further: Option<Server>,
}

impl Endpoints {
    /// These, and a further server of the process.
    #[must_use]
    pub(super) fn and(self, further: Option<Server>) -> Self {
        Self { further, ..self }
    }

    /// Answers probes, scrapes and what the further server is for, until `stop`.
    pub(super) async fn run(self, stop: &CancellationToken) {
        let answer = async |server: Option<Server>| {
            if let Some(server) = server {
                // Boxed: the future of the whole process would be too large for the stack.
                Box::pin(server.run(stop.clone())).await;
            }
        };
        tokio::join!(answer(self.health), answer(self.metrics), answer(self.further));
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        options: EndpointOptions,
    }

    fn options(words: &[&str]) -> EndpointOptions {
        Command::parse_from([&["lazuli"], words].concat()).options
    }

    #[test]
    fn metrics_are_open_at_a_loopback_address_alone_unless_told() {
        let who = |words: &[&str], at: &str, cluster: bool| {
            options(words).authentication(at.parse().unwrap(), cluster).map_err(|error| error.to_string())
        };
        let (none, kubernetes) = (&["--metrics-authentication=none"][..], &["--metrics-authentication=kubernetes"][..]);
        for at in ["127.0.0.1:1", ":1"] {
            for words in [&[][..], kubernetes] {
                assert_eq!(who(words, at, true), Ok(Authentication::Kubernetes), "{at} {words:?}");
            }
            assert!(who(kubernetes, at, false).unwrap_err().contains("none is named"));
        }
        for cluster in [true, false] {
            assert_eq!(who(none, "[::1]:1", cluster), Ok(Authentication::None));
            assert!(who(none, ":1", cluster).unwrap_err().contains("without authentication at :1"));
            let told = [none, &["--allow-remote-metrics"]].concat();
            assert_eq!(who(&told, "10.0.0.4:1", cluster), Ok(Authentication::None));
        }
        assert_eq!(who(&[], "127.0.0.1:1", false), Ok(Authentication::None));
        assert!(who(&[], "10.0.0.4:1", false).unwrap_err().contains("at 10.0.0.4:1"));
        // One file alone is a mistake.
        assert!(Command::try_parse_from(["lazuli", "--metrics-key=/k"]).is_err());
    }

    /// An API server that knows the tokens of two users, of whom one may get /metrics, and that has no answer to some.
    #[cfg(feature = "emulator")]
    async fn api_server() -> std::net::SocketAddr {
        use axum::{Json, routing::post};
        use http::StatusCode;
        use serde_json::{Value, json};

        let whose = async |Json(review): Json<Value>| {
            let status = match review["spec"]["token"].as_str().unwrap() {
                name @ ("scraper" | "stranger") => json!({"authenticated": true, "user": {"username": name}}),
                "lost" => return Err(StatusCode::INTERNAL_SERVER_ERROR),
                _ => json!({"authenticated": false, "error": "invalid bearer token"}),
            };
            Ok(Json(json!({"status": status})))
        };
        let may = async |Json(review): Json<Value>| {
            assert_eq!(review["spec"]["nonResourceAttributes"], json!({"path": "/metrics", "verb": "get"}));
            Json(json!({"status": {"allowed": review["spec"]["user"] == "scraper"}}))
        };
        let router = axum::Router::new()
            .route("/apis/authentication.k8s.io/v1/tokenreviews", post(whose))
            .route("/apis/authorization.k8s.io/v1/subjectaccessreviews", post(may));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, router).await });
        address
    }

    /// A client of this server with this token, which takes any certificate.
    #[cfg(feature = "emulator")]
    async fn client(folder: &lazuli_rig::Folder, server: &str, token: &str) -> kube::Client {
        use serde_json::json;

        let kubeconfig = json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": server, "insecure-skip-tls-verify": true}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "users": [{"name": "u", "user": {"token": token}}]});
        let path = folder.path().join("kubeconfig");
        std::fs::write(&path, kubeconfig.to_string()).unwrap();
        lazuli_cluster::connect(Some(&path), &Default::default()).await.unwrap().unwrap()
    }

    #[cfg(feature = "emulator")]
    // The client repeats what was answered with 503, after pauses.
    #[tokio::test(start_paused = true)]
    async fn metrics_are_read_by_tls_with_a_token_whose_user_the_cluster_lets_get_them() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let folder = lazuli_rig::Folder::make("endpoints").unwrap();
        let cluster = client(&folder, &format!("http://{}", api_server().await), "the-process").await;
        let mut registry = prometheus_client::registry::Registry::default();
        lazuli_telemetry::register_process(&mut registry, super::super::csi_controller::BUILD);
        let options = options(&["--health-endpoint=127.0.0.1:0", "--metrics-endpoint=127.0.0.1:0"]);
        let endpoints = options.bind(registry.into(), Readiness::new(), Some(&cluster)).await.unwrap();
        let address = endpoints.metrics.as_ref().unwrap().address();
        let stop = CancellationToken::new();
        let running = tokio::spawn({
            let stop = stop.clone();
            async move { endpoints.run(&stop).await }
        });
        let request = || http::Request::get("/metrics").body(Vec::new()).unwrap();
        for (token, status) in [("scraper", 200), ("stranger", 403), ("forged", 401), ("lost", 503)] {
            let mut config = kube::Config::new(format!("https://{address}").parse().unwrap());
            config.accept_invalid_certs = true;
            config.auth_info.token = Some(token.to_owned().into());
            let scraper = kube::Client::try_from(config).unwrap();
            match scraper.request_text(request()).await {
                Ok(text) => assert!(status == 200 && text.contains("lazuli_build_info"), "{token}: {text}"),
                Err(kube::Error::Api(answer)) => assert_eq!(answer.code, status, "{token}: {answer:?}"),
                Err(error) => panic!("{token}: {error}"),
            }
        }
        stop.cancel();
        running.await.unwrap();
    }
}
