//! From a cloud configuration to clients: shared by every subcommand that speaks to Azure.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    str::FromStr,
    time::Duration,
};

use clap::Args;
use lazuli_azure::{
    arm::{Arm, Retry},
    auth::{Credential, ManagedIdentity, Secret, Tokens},
    blob::{Blobs, ServiceVersion},
    compute::{ApiVersions, Compute},
    endpoints::{EndpointsError, read_endpoints},
    metrics::Metrics,
    network::{self, Network},
    storage::Storage,
    transport::{RouteError, Routes, SetupError, Tls, Transport},
};
use lazuli_cluster::{self as cluster, ConnectError, SecretError};
use lazuli_config::{
    self as config, Cloud, CloudError, CloudSource, Config, ConfigError, ConfigType, Discovery, Document, Environment,
    IdentitySystem, SECRET_KEY, SECRET_NAME, SECRET_NAMESPACE,
};
use lazuli_shares::{deletion::DRIVER_NAME, parameters};
use lazuli_telemetry::go_names::GoNames;
use lazuli_volume as plan;
use prometheus_client::registry::Registry;
use tokio::time::{sleep, timeout};
use tracing::warn;
use url::Url;

use crate::reload::LiveCredential;

/// Where the cloud configuration comes from, and where Azure is.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Azure")]
pub struct CloudOptions {
    /// The cloud configuration (azure.json, JSON or YAML). Default: $AZURE_CREDENTIAL_FILE, else
    /// /etc/kubernetes/azure.json. The endpoints of a private cloud: resourceManagerEndpoint in it, or a file named by
    /// $AZURE_ENVIRONMENT_FILEPATH.
    #[arg(long, env = "LAZULI_CLOUD_CONFIG")]
    pub cloud_config: Option<PathBuf>,
    /// The Secret with a cloud configuration, which overrides the keys it sets; an empty argument: none is read. Only looked
    /// for where there is a cluster.
    #[arg(long, env = "LAZULI_CLOUD_CONFIG_SECRET_NAME", default_value = SECRET_NAME)]
    pub cloud_config_secret_name: String,
    /// The namespace of that Secret.
    #[arg(long, env = "LAZULI_CLOUD_CONFIG_SECRET_NAMESPACE", default_value = SECRET_NAMESPACE)]
    pub cloud_config_secret_namespace: String,
    /// Which cluster to ask; default: $KUBECONFIG, else the pod's own, else none.
    #[arg(long)]
    pub kubeconfig: Option<PathBuf>,
    /// The resource groups, besides the cluster's own, in which a StorageClass may have disks and storage accounts made by
    /// its subscriptionID and resourceGroup, and in which the shares of volumes may be: GROUP, SUBSCRIPTION/GROUP or
    /// SUBSCRIPTION/*, separated by commas. Default: any that the controller's identity may write to. The webhook of the
    /// cloud controllers reads disks there alone.
    #[arg(long, env = "LAZULI_ALLOWED_RESOURCE_GROUPS", value_delimiter = ',', value_name = "GROUP")]
    pub allowed_resource_groups: Vec<plan::AllowedResourceGroup>,
    #[expect(rustdoc::bare_urls, reason = "the text is printed by --help, where a link's brackets would show")]
    /// Endpoints of a private cloud, such as https://management.local.azurestack.external, to which a password or
    /// certificate of the Secret may be sent although that Secret does not name them, separated by commas. Those of
    /// AzurePublicCloud, AzureChinaCloud and AzureUSGovernmentCloud are always allowed.
    #[arg(long = "trusted-endpoint", env = "LAZULI_TRUSTED_ENDPOINTS", value_delimiter = ',', value_name = "URL")]
    #[arg(value_parser = trusted_endpoint)]
    pub trusted_endpoints: Vec<Url>,
    /// Verify Azure's servers by the certificate authorities of this file too, PEM: that of an emulator, or of an Azure Stack
    /// Hub. $SSL_CERT_FILE and $SSL_CERT_DIR replace those of the system instead, for every server.
    #[arg(long, env = "LAZULI_AZURE_CA_FILE", value_name = "FILE")]
    pub azure_ca_file: Option<PathBuf>,
    #[command(flatten)]
    /// Where logical origins really are.
    pub routes: RouteOptions,
}

fn trusted_endpoint(text: &str) -> Result<Url, String> {
    let url = config::check_endpoint(text.trim()).map_err(|error| format!("it {error}"))?;
    let rest = url[url::Position::BeforePath..].trim_start_matches('/');
    if !rest.is_empty() {
        return Err(format!(
            "it has {rest:?} behind the host; allowed: scheme, host and port alone, such as {}",
            &url[..url::Position::BeforePath]
        ));
    }
    Ok(url)
}

impl CloudOptions {
    /// The resource groups that a StorageClass may name.
    pub fn allowed_resource_groups(&self) -> plan::AllowedResourceGroups {
        plan::AllowedResourceGroups::of(self.allowed_resource_groups.clone())
    }

    /// The routes as the transport takes them, with the authorities that verify where they lead.
    ///
    /// # Errors
    /// [`WireError`] when a route is not usable, or the file of the authorities cannot be read.
    pub fn table(&self) -> Result<Routes, WireError> {
        let table = self.routes.table().map_err(WireError::Route)?;
        let Some(path) = &self.azure_ca_file else {
            return Ok(table);
        };
        let authorities = fs::read(path)
            .and_then(certificates)
            .map_err(|source| WireError::Authorities { path: path.clone(), source })?;
        Ok(table.trusting(&authorities))
    }
}

/// Refuses a file without a certificate: nothing would be trusted by it, and every connection fail.
fn certificates(pem: Vec<u8>) -> io::Result<Vec<u8>> {
    let begin = b"-----BEGIN CERTIFICATE-----";
    if pem.windows(begin.len()).any(|window| window == begin) {
        return Ok(pem);
    }
    Err(io::Error::other("no certificate in PEM is in it"))
}

/// Where logical origins really are.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Azure")]
pub struct RouteOptions {
    #[expect(rustdoc::bare_urls, reason = "the text is printed by --help, where a link's brackets would show")]
    /// Send what is meant for an origin to another URL, ORIGIN=URL, such as
    /// https://management.azure.com=http://127.0.0.1:8181. May be repeated; plain http only to this machine.
    #[arg(long = "route", env = "LAZULI_ROUTES", value_delimiter = ',')]
    pub routes: Vec<Route>,
}

/// One `ORIGIN=URL`.
#[derive(Debug, Clone)]
pub struct Route {
    logical: Url,
    physical: Url,
}

impl FromStr for Route {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || format!("{text:?} is no route; expected ORIGIN=URL");
        let (logical, physical) = text.split_once('=').ok_or_else(expected)?;
        let url = |text: &str| Url::parse(text).map_err(|error| format!("{}: {error}", expected()));
        Ok(Self { logical: url(logical)?, physical: url(physical)? })
    }
}

impl RouteOptions {
    /// The routes as the transport takes them.
    ///
    /// # Errors
    /// [`RouteError`] when a route is not usable, such as plain http to another machine.
    pub fn table(&self) -> Result<Routes, RouteError> {
        self.routes.iter().try_fold(Routes::none(), |table, route| table.with(&route.logical, &route.physical))
    }
}

/// Why a process cannot speak to Azure.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// The configuration cannot be used.
    #[error("the cloud configuration cannot be used (--cloud-config says which)")]
    Config(#[source] ConfigError),
    /// The cluster cannot be used.
    #[error("the cluster cannot be asked for the cloud configuration")]
    Cluster(#[source] ConnectError),
    /// The secret cannot be read.
    #[error("the cloud configuration's Secret cannot be read")]
    Secret(#[source] SecretError),
    /// The authorities of Azure's servers cannot be read.
    #[error("--azure-ca-file {} cannot be used", path.display())]
    Authorities {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// An endpoint or a route is not usable.
    #[error("an endpoint is not usable")]
    Route(#[source] RouteError),
    /// The HTTP client cannot be made.
    #[error(transparent)]
    Transport(SetupError),
    /// The resource manager does not answer with its endpoints.
    #[error(transparent)]
    Endpoints(Box<EndpointsError>),
    /// Its endpoints cannot be used.
    #[error("the endpoints in the answer of the resource manager cannot be used")]
    Cloud(#[source] CloudError),
    /// There is no credential.
    #[error(
        "the cloud configuration has no credential; expected aadClientId and aadClientSecret or aadClientCertPath, useManagedIdentityExtension, or useFederatedWorkloadIdentityExtension with a token file"
    )]
    NoCredential,
}

/// The variables of the process, once. One that is set and empty counts as one that is not set.
pub fn variables() -> BTreeMap<String, String> {
    // A variable that is no UTF-8 is none of ours.
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .filter(|(_, value)| !value.is_empty())
        .collect()
}

/// A client of the cluster, where there is one.
///
/// # Errors
/// [`WireError::Cluster`].
pub async fn cluster(options: &CloudOptions) -> Result<Option<kube::Client>, WireError> {
    cluster::connect(options.kubeconfig.as_deref(), &variables()).await.map_err(WireError::Cluster)
}

/// The same as [`cluster`], with another name in the API server's audit log and metrics.
///
/// # Errors
/// [`WireError::Cluster`].
pub async fn cluster_as(user_agent: &'static str, options: &CloudOptions) -> Result<Option<kube::Client>, WireError> {
    cluster::connect_as(user_agent, options.kubeconfig.as_deref(), &variables()).await.map_err(WireError::Cluster)
}

/// How long a process that starts waits for a cloud configuration that an argument names and that does not exist yet:
/// the program that writes it, such as an emulator, may have started at the same moment.
const FILE_WAIT: Duration = Duration::from_secs(10);
/// How often it looks.
const FILE_LOOK: Duration = Duration::from_millis(100);

/// Reads the configuration from file, Secret and environment, as a process starts. Waits up to 10 seconds for a file that
/// an argument names and that does not exist yet, and says so: the program that writes it may just have been started.
///
/// # Errors
/// Those of [`configuration_now`].
pub async fn configuration(options: &CloudOptions, client: Option<&kube::Client>) -> Result<Config, WireError> {
    if let Some(path) = &options.cloud_config {
        until_it_exists(path).await;
    }
    configuration_now(options, client).await
}

/// Reads the configuration from file, Secret and environment as they are now.
///
/// # Errors
/// [`WireError`] when one of them cannot be read, or when they are no configuration together.
pub async fn configuration_now(options: &CloudOptions, client: Option<&kube::Client>) -> Result<Config, WireError> {
    configuration_in(options, client, &variables()).await
}

async fn until_it_exists(path: &Path) {
    if path.exists() {
        return;
    }
    warn!(path = %path.display(), "the cloud configuration does not exist yet; waiting up to 10 s for it");
    let appears = async {
        while !path.exists() {
            sleep(FILE_LOOK).await;
        }
    };
    // What is read next says that it does not exist.
    let _ = timeout(FILE_WAIT, appears).await;
}

/// The file comes first: it says whether the Secret counts at all, and one that does not count is not asked for.
async fn configuration_in(
    options: &CloudOptions,
    client: Option<&kube::Client>,
    variables: &BTreeMap<String, String>,
) -> Result<Config, WireError> {
    let path = config::path(options.cloud_config.clone(), variables);
    // It may be absent only where a Secret can stand for it and no flag names it.
    let (file, absent) = match Document::read(&path) {
        Ok(file) => (Some(file), None),
        Err(absent @ ConfigError::Read { .. }) if options.cloud_config.is_none() && !path.exists() => {
            (None, Some(absent))
        }
        Err(error) => return Err(WireError::Config(error)),
    };
    let config_type = file.as_ref().map(Config::config_type).transpose().map_err(WireError::Config)?;
    let secret = match client {
        Some(client) if !options.cloud_config_secret_name.is_empty() && config_type != Some(ConfigType::File) => {
            let (namespace, name) = (&options.cloud_config_secret_namespace, &options.cloud_config_secret_name);
            let values = cluster::read_secret(client, namespace, name).await.map_err(WireError::Secret)?;
            let document = |bytes| Document::parse(format!("secret {namespace}/{name}"), bytes);
            if let Some(values) = values.as_ref().filter(|values| values.get(SECRET_KEY).is_none()) {
                let secret = format!("{namespace}/{name}");
                warn!("{}", config::without_configuration(&secret, values.keys()));
            }
            values
                .as_ref()
                .and_then(|values| values.get(SECRET_KEY))
                .map(document)
                .transpose()
                .map_err(WireError::Config)?
        }
        _ => None,
    };
    if let (Some(absent), None) = (absent, &secret) {
        return Err(WireError::Config(absent));
    }
    let mut environment = Environment::new(variables).with_trusted_endpoints(&options.trusted_endpoints);
    let endpoints = config::read_endpoint_file(variables).map_err(WireError::Config)?;
    if let Some((path, text)) = &endpoints {
        environment = environment.with_endpoint_file(path, text);
    }
    Config::from_documents(file.as_ref(), secret.as_ref(), &environment).map_err(WireError::Config)
}

/// Azure, as a configuration describes it.
#[derive(Debug)]
pub struct Azure {
    /// The client of disks and VMs.
    pub compute: Compute,
    /// The client of load balancers, security groups and public IPs.
    pub network: Network,
    /// The client of storage accounts and file shares.
    pub storage: Storage,
    /// The client of page blobs.
    pub blobs: Blobs,
    /// What stands where a StorageClass of disks says nothing.
    pub defaults: plan::Defaults,
    /// What stands where one of file shares does.
    pub share_defaults: parameters::Defaults,
    /// The endpoints in use.
    pub cloud: Cloud,
    /// Whether it is Azure Stack Hub, by API versions.
    pub stack: bool,
    /// What is counted about the calls.
    pub metrics: Metrics,
    /// The credential, which can be replaced.
    pub credential: LiveCredential,
}

impl Azure {
    /// Restricts the resource groups that classes may name, of disks and of file shares.
    pub fn allow_resource_groups(&mut self, allowed: plan::AllowedResourceGroups) {
        self.share_defaults.allowed_resource_groups = allowed.clone();
        self.defaults.allowed_resource_groups = allowed;
    }
}

/// Makes the clients. Asks the resource manager for its endpoints where the configuration says so; asks for no token.
///
/// # Errors
/// [`WireError`] when an endpoint is not usable, or when there is no credential.
pub async fn connect(config: &Config, routes: Routes, metrics: &mut Registry, seed: u64) -> Result<Azure, WireError> {
    connect_with(config, routes, (metrics, GoNames::default()), seed, Retry::default()).await
}

/// The same, with requests that are also shown under the Go manager's names, and calls that are repeated in another way.
///
/// # Errors
/// As there.
pub async fn connect_with(
    config: &Config,
    routes: Routes,
    (metrics, go): (&mut Registry, GoNames),
    seed: u64,
    retry: Retry,
) -> Result<Azure, WireError> {
    let mut cloud = match &config.cloud {
        CloudSource::Known(cloud) => cloud.clone(),
        CloudSource::Discover(discovery) => {
            let (endpoint, routes) = logical(&discovery.resource_manager, routes.clone())?;
            let transport = transport(config, routes)?;
            let unusable = |error| WireError::Endpoints(Box::new(error));
            let answer = read_endpoints(&transport, &endpoint, Discovery::API_VERSION).await.map_err(unusable)?;
            let cloud = discovery.finish(&answer.to_string()).map_err(WireError::Cloud)?;
            match discovery.api_version_of_storage() {
                None => cloud,
                Some(version) => match read_endpoints(&transport, &endpoint, version).await {
                    Ok(answer) => discovery.with_storage(cloud, &answer.to_string()),
                    Err(error @ EndpointsError::Unreachable { .. }) => return Err(unusable(error)),
                    // It serves the older form alone.
                    Err(_) => cloud,
                },
            }
        }
    };
    let (resource_manager, routes) = logical(&cloud.resource_manager, routes)?;
    let (login, routes) = logical(&cloud.login, routes)?;
    let (storage_suffix, routes) = routes.for_storage(&cloud.storage_suffix).map_err(WireError::Route)?;
    cloud.storage_suffix = storage_suffix;
    let transport = transport(config, routes)?;
    let credential = credential(config, &login)?;
    let audience = cloud.audiences.first().map_or(cloud.resource_manager.as_str(), String::as_str);
    let tokens = Tokens::new(transport.clone(), credential, audience, seed);
    let metrics = Metrics::register(metrics, go);
    let live = LiveCredential::new(tokens.clone(), login, config);
    let arm = Arm::new(resource_manager, transport, tokens, metrics.clone(), retry, seed);
    let versions = if config.is_stack_cloud { ApiVersions::azure_stack() } else { ApiVersions::public() };
    let of_network = if config.is_stack_cloud { network::AZURE_STACK_API_VERSION } else { network::API_VERSION };
    let storage = if config.is_stack_cloud { Storage::of_azure_stack(arm.clone()) } else { Storage::new(arm.clone()) };
    let version = if config.is_stack_cloud { ServiceVersion::StackHub } else { ServiceVersion::Newest };
    Ok(Azure {
        network: Network::new(arm.clone(), of_network),
        blobs: Blobs::new(storage.clone(), &cloud.storage_suffix, version),
        storage,
        share_defaults: share_defaults(config, &cloud),
        compute: Compute::new(arm, versions),
        defaults: plan::Defaults {
            subscription: config.cluster.subscription_id.clone(),
            resource_group: config.cluster.resource_group.as_str().to_owned(),
            location: config.cluster.location.clone(),
            extended_location: config.cluster.extended_location.clone(),
            cloud: if config.is_stack_cloud { plan::Cloud::AzureStack } else { plan::Cloud::Public },
            allowed_resource_groups: plan::AllowedResourceGroups::Any,
        },
        cloud,
        stack: config.is_stack_cloud,
        metrics,
        credential: live,
    })
}

fn share_defaults(config: &Config, cloud: &Cloud) -> parameters::Defaults {
    parameters::Defaults {
        subscription: config.cluster.subscription_id.clone(),
        resource_group: config.cluster.resource_group.as_str().to_owned(),
        location: config.cluster.location.clone(),
        storage_endpoint_suffix: cloud.storage_suffix.clone(),
        vnet_resource_group: config.network.vnet_resource_group.as_str().to_owned(),
        vnet_name: config.network.vnet.clone().unwrap_or_default(),
        subnet_name: config.network.subnet.clone().unwrap_or_default(),
        driver_name: DRIVER_NAME.to_owned(),
        allowed_resource_groups: plan::AllowedResourceGroups::Any,
    }
}

/// The HTTP client, which names itself as the configuration wants.
fn transport(config: &Config, routes: Routes) -> Result<Transport, WireError> {
    let transport = Transport::new(routes, &Tls::default()).map_err(WireError::Transport)?;
    Ok(match &config.user_agent {
        Some(user_agent) => transport.with_user_agent_suffix(user_agent),
        None => transport,
    })
}

/// The logical https origin of an endpoint, with the route that a plain http one on this machine needs.
fn logical(endpoint: &Url, routes: Routes) -> Result<(Url, Routes), WireError> {
    let (logical, route) = Routes::for_endpoint(endpoint).map_err(WireError::Route)?;
    match route {
        Some((from, to)) => Ok((logical, routes.with(&from, &to).map_err(WireError::Route)?)),
        None => Ok((logical, routes)),
    }
}

pub(crate) fn credential(config: &Config, authority: &Url) -> Result<Credential, WireError> {
    // The authority of Active Directory Federation Services knows one tenant, by this word.
    let tenant = |tenant_id: &str| match config.identity_system {
        IdentitySystem::Adfs => "adfs".to_owned(),
        IdentitySystem::AzureAd => tenant_id.to_owned(),
    };
    let authority = authority.clone();
    Ok(match &config.credential {
        config::Credential::FederatedToken { tenant_id, client_id, token_file } => Credential::FederatedToken {
            tenant_id: tenant(tenant_id),
            client_id: client_id.clone(),
            token_file: token_file.clone(),
            authority,
        },
        config::Credential::ManagedIdentity(identity) => Credential::ManagedIdentity(match identity {
            config::ManagedIdentity::SystemAssigned => ManagedIdentity::SystemAssigned,
            config::ManagedIdentity::ClientId(id) => ManagedIdentity::ClientId(id.clone()),
            config::ManagedIdentity::ResourceId(id) => ManagedIdentity::ResourceId(id.clone()),
        }),
        config::Credential::ClientSecret { tenant_id, client_id, secret } => Credential::ClientSecret {
            tenant_id: tenant(tenant_id),
            client_id: client_id.clone(),
            secret: Secret::new(secret.expose()),
            authority,
        },
        config::Credential::ClientCertificate { tenant_id, client_id, path, password } => {
            Credential::ClientCertificate {
                tenant_id: tenant(tenant_id),
                client_id: client_id.clone(),
                path: path.clone(),
                password: password.as_ref().map(|password| Secret::new(password.expose())),
                authority,
            }
        }
        config::Credential::Absent => return Err(WireError::NoCredential),
    })
}

#[cfg(test)]
mod tests {
    use std::{
        convert::Infallible,
        sync::{
            Arc,
            atomic::{AtomicU32, Ordering},
        },
    };

    use super::*;

    /// An API server that refuses everything, and how often it was asked.
    fn refusing() -> (kube::Client, Arc<AtomicU32>) {
        let asked = Arc::new(AtomicU32::new(0));
        let count = asked.clone();
        let service = tower::service_fn(move |_: http::Request<kube::client::Body>| {
            count.fetch_add(1, Ordering::Relaxed);
            let answer = http::Response::builder().status(403).body(axum::body::Body::empty());
            async { Ok::<_, Infallible>(answer.expect("is a response")) }
        });
        (kube::Client::new(service, "default"), asked)
    }

    #[tokio::test(start_paused = true)]
    async fn a_start_waits_for_a_file_that_does_not_exist_yet_and_a_look_does_not() {
        let path = std::env::temp_dir().join(format!("lazuli-no-such-file-{}", std::process::id()));
        let options = options(Some(path.clone()));
        let began = tokio::time::Instant::now();
        let error = configuration_now(&options, None).await.unwrap_err();
        assert!(began.elapsed().is_zero(), "it is said at once");
        let WireError::Config(error) = error else { panic!("{error}") };
        assert!(error.to_string().contains(&path.display().to_string()), "{error}");
        assert!(configuration(&options, None).await.is_err());
        assert!(began.elapsed() >= FILE_WAIT, "the program that writes it may have started at the same moment");
    }

    fn options(file: Option<PathBuf>) -> CloudOptions {
        CloudOptions {
            cloud_config: file,
            cloud_config_secret_name: SECRET_NAME.to_owned(),
            cloud_config_secret_namespace: SECRET_NAMESPACE.to_owned(),
            kubeconfig: None,
            allowed_resource_groups: Vec::new(),
            trusted_endpoints: Vec::new(),
            azure_ca_file: None,
            routes: RouteOptions::default(),
        }
    }

    #[test]
    fn a_trusted_endpoint_is_scheme_host_and_port_alone() {
        for allowed in
            ["https://management.local.azurestack.external", "https://management.local.azurestack.external:30024/"]
        {
            assert!(trusted_endpoint(allowed).is_ok(), "{allowed}");
        }
        for (refused, rest) in [
            ("https://management.local.azurestack.external/subscriptions", "\"subscriptions\""),
            ("https://management.local.azurestack.external?x=1", "\"?x=1\""),
        ] {
            let error = trusted_endpoint(refused).unwrap_err();
            assert!(
                error.contains(rest) && error.ends_with("such as https://management.local.azurestack.external"),
                "{error}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_that_starts_waits_ten_seconds_for_a_named_configuration_that_does_not_exist_yet() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("azure.json");
        let began = tokio::time::Instant::now();
        until_it_exists(&path).await;
        assert_eq!(began.elapsed(), FILE_WAIT);

        let writing = async {
            sleep(Duration::from_secs(3)).await;
            fs::write(&path, "{}").unwrap();
        };
        let began = tokio::time::Instant::now();
        tokio::join!(until_it_exists(&path), writing);
        assert!(began.elapsed() <= Duration::from_secs(3) + FILE_LOOK, "{:?}", began.elapsed());
        // One that is there costs no wait.
        let began = tokio::time::Instant::now();
        until_it_exists(&path).await;
        assert_eq!(began.elapsed(), Duration::ZERO);
    }

    #[tokio::test]
    async fn a_file_that_counts_alone_is_enough_where_the_secret_cannot_be_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("azure.json");
        let (client, asked) = refusing();
        let load = async |config_type: &str| {
            let text = serde_json::json!({
                "cloudConfigType": config_type, "subscriptionId": "s", "resourceGroup": "g", "location": "l",
                "useManagedIdentityExtension": true, "userAgent": "team/1",
            });
            fs::write(&file, text.to_string()).unwrap();
            configuration_in(&options(Some(file.clone())), Some(&client), &BTreeMap::new()).await
        };
        assert_eq!(load("file").await.unwrap().user_agent.as_deref(), Some("team/1"));
        assert_eq!(asked.load(Ordering::Relaxed), 0);
        // Where it counts too, going on without it might be going on with the wrong identity.
        assert!(matches!(load("merge").await, Err(WireError::Secret(SecretError::Forbidden { .. }))));
        assert!(matches!(load("File alone").await, Err(WireError::Config(ConfigError::Invalid(_)))));
        assert_eq!(asked.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn what_disks_are_made_with_is_what_the_configuration_says() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("azure.json");
        let text = serde_json::json!({
            "cloud": "AzurePublicCloud", "subscriptionId": "s", "resourceGroup": "g", "location": "l",
            "useManagedIdentityExtension": true,
            "extendedLocationName": "microsoftlosangeles1", "extendedLocationType": "EdgeZone",
        });
        fs::write(&file, text.to_string()).unwrap();
        let config = configuration_in(&options(Some(file)), None, &BTreeMap::new()).await.unwrap();
        let azure = connect(&config, Routes::none(), &mut Registry::default(), 7).await.unwrap();
        let plan::Defaults { subscription, resource_group, location, extended_location, cloud, .. } = azure.defaults;
        assert_eq!((&*subscription, &*resource_group, &*location), ("s", "g", "l"));
        assert_eq!(cloud, plan::Cloud::Public);
        let zone = extended_location.expect("the cluster is in an edge zone");
        assert_eq!((&*zone.name, &*zone.kind), ("microsoftlosangeles1", "EdgeZone"));
    }

    #[tokio::test]
    async fn a_file_that_is_absent_and_no_secret_in_its_stead_is_told_by_its_path() {
        let named = BTreeMap::from([(config::PATH_VARIABLE.to_owned(), "/no/such/azure.json".to_owned())]);
        let error = configuration_in(&options(None), None, &named).await.unwrap_err();
        let WireError::Config(error) = error else { panic!("{error}") };
        assert!(error.to_string().contains("/no/such/azure.json"), "{error}");
    }
}
