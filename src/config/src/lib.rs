//! The cloud configuration, `azure.json`: parsed once, immutable afterwards.
//!
//! Owns the format: every key of the 2017 file and of today's, its kind, default and meaning; the merge of
//! file and secret; the overrides by environment variables; the choice of one credential and of one cloud.
//! Never reads the environment, the cluster or the network by itself: the caller brings bytes and variables,
//! so that the same inputs give the same [`Config`] in a test, in the demonstration and in a pod.
//!
//! ```text
//! --cloud-config / $AZURE_CREDENTIAL_FILE / default ──> Document ┐
//! secret kube-system/azure-cloud-provider, cloud-config ────────> Document ┼─> Config::from_documents ─> Config
//! environment variables, $AZURE_ENVIRONMENT_FILEPATH's text ──> Environment ┘
//! ```
//!
//! An unknown key is tolerated, listed and warned about ([`Config::unknown_keys`]). A value of the wrong kind is an error, and
//! all errors come at once; of a key that has no effect in this version it is a warning, for the file is shared with
//! programs that use it. Nothing printed here contains a configured secret.

mod build;
mod cloud;
mod credential;
mod document;
mod error;
mod keys;
mod reader;
mod settings;
#[cfg(test)]
mod tests;
mod trust;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use serde::Serialize;
use url::Url;

pub use cloud::{AZURE_STACK, Cloud, CloudSource, Discovery, EndpointFile, IdentitySystem, check_endpoint};
pub use credential::{Credential, ManagedIdentity};
pub use document::{Document, MAX_BYTES};
pub use error::{CloudError, ConfigError, EndpointError, Problem, ProblemKind, Problems};
pub use keys::KEYS;
pub use lazuli_model::{REDACTED, Secret, disk_spec::ExtendedLocation};
pub use settings::{
    AuxiliaryToken, BackendPoolType, Backoff, Caches, Cluster, ConfigType, IpPrefix, LabelOperator, LabelRequirement,
    LabelSelector, LoadBalancerPlacement, LoadBalancerSku, LoadBalancing, Network, PreconfiguredPools, ProbeMode,
    RateLimit, RateLimits, ResourceGroup, Tags, VmType,
};

use reader::{Choice as _, Item, Reader, Report};

/// Where the file is when nothing names another. Source: the Go drivers' default.
pub const DEFAULT_PATH: &str = "/etc/kubernetes/azure.json";
/// Variable that names the file when the flag does not. Source: the Go drivers.
pub const PATH_VARIABLE: &str = "AZURE_CREDENTIAL_FILE";
/// Variable that names a file with a cloud's endpoints. Source: go-autorest.
pub const ENDPOINT_FILE_VARIABLE: &str = "AZURE_ENVIRONMENT_FILEPATH";
/// Namespace of the secret with a configuration. Source: the Go peers' default.
pub const SECRET_NAMESPACE: &str = "kube-system";
/// Name of the secret with a configuration. Source: the Go peers' default.
pub const SECRET_NAME: &str = "azure-cloud-provider";
/// Key of the secret with a configuration. Source: the Go peers' default.
pub const SECRET_KEY: &str = "cloud-config";

/// Path of the configuration file: the flag, else `$AZURE_CREDENTIAL_FILE`, else [`DEFAULT_PATH`].
pub fn path(flag: Option<PathBuf>, variables: &BTreeMap<String, String>) -> PathBuf {
    flag.or_else(|| variables.get(PATH_VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from))
        .unwrap_or_else(|| PathBuf::from(DEFAULT_PATH))
}

/// Reads the file that `$AZURE_ENVIRONMENT_FILEPATH` names: its path and text, for
/// [`Environment::with_endpoint_file`]. Blocking, for as long as a small local file takes.
///
/// # Errors
/// [`ConfigError::Read`] when the variable is set and the file cannot be read.
pub fn read_endpoint_file(variables: &BTreeMap<String, String>) -> Result<Option<(String, String)>, ConfigError> {
    let Some(path) = variables.get(ENDPOINT_FILE_VARIABLE).filter(|path| !path.is_empty()) else {
        return Ok(None);
    };
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some((path.clone(), text))),
        Err(source) => Err(ConfigError::Read { path: path.into(), source }),
    }
}

/// What the process's environment and arguments contribute, as values.
#[derive(Clone, Copy)]
pub struct Environment<'e> {
    variables: &'e BTreeMap<String, String>,
    endpoint_file: Option<(&'e str, &'e str)>,
    trusted: &'e [Url],
}

impl<'e> Environment<'e> {
    /// `AZURE_TENANT_ID`, `AZURE_CLIENT_ID`, `AZURE_CLIENT_SECRET` and `AZURE_FEDERATED_TOKEN_FILE` of
    /// `variables` win over the documents when they are not empty; the rest is ignored.
    pub fn new(variables: &'e BTreeMap<String, String>) -> Self {
        Self { variables, endpoint_file: None, trusted: &[] }
    }

    /// Adds the text of the file that `$AZURE_ENVIRONMENT_FILEPATH` names.
    #[must_use]
    pub fn with_endpoint_file(mut self, path: &'e str, text: &'e str) -> Self {
        self.endpoint_file = Some((path, text));
        self
    }

    /// Adds the endpoints, besides Microsoft's, to which arguments let the credential of the Secret be sent.
    #[must_use]
    pub fn with_trusted_endpoints(mut self, endpoints: &'e [Url]) -> Self {
        self.trusted = endpoints;
        self
    }

    fn text(&self, name: &str) -> Option<String> {
        let text = self.variables.get(name)?.trim();
        (!text.is_empty()).then(|| text.to_owned())
    }
}

impl std::fmt::Debug for Environment<'_> {
    /// Names only: one of the values is a password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Environment")
            .field("variables", &self.variables.keys().collect::<Vec<_>>())
            .field("endpoint_file", &self.endpoint_file.map(|(path, _)| path))
            .field("trusted", &self.trusted.iter().map(Url::as_str).collect::<Vec<_>>())
            .finish()
    }
}

/// Whether every process uses a key. The others are those of load balancers, routes, nodes and of the Go peers' own way of
/// asking Azure: they are read and checked, so that a mistake in a shared file shows, and no more. Nothing in them stops a
/// process that does not use them.
fn is_used_by_all(key: &str) -> bool {
    keys::is_used(key, |by| by.all)
}

/// The keys that the cloud controllers refuse where they name another tenant than the cluster's: what they ask for needs a
/// second credential. Where they name the cluster's own, nothing is to be done.
const OF_OTHER_TENANTS: &[&str] = &["auxiliaryTokenProvider", "networkResourceTenantID"];
const OWN_TENANT: &str = "the network is in the cluster's own tenant, for which the cluster's credential is good";

/// Whether cloud controllers of some kind do something with a key, or refuse it.
fn is_of_cloud_controllers(key: &str) -> bool {
    keys::is_used(key, |by| by.services || by.nodes || by.cloud_controllers) || OF_OTHER_TENANTS.contains(&key)
}

/// A key that means nothing to this program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UnknownKey {
    /// The key with its path, as it is written.
    pub key: String,
    /// The key that was probably meant, with its path.
    pub nearest: Option<String>,
}

/// The keys that give a credential, or say which.
const OF_CREDENTIALS: [&str; 8] = [
    "aadClientCertPassword",
    "aadClientCertPath",
    "aadClientId",
    "aadClientSecret",
    "aadFederatedTokenFile",
    "useFederatedWorkloadIdentityExtension",
    "useManagedIdentityExtension",
    "userAssignedIdentityID",
];

impl UnknownKey {
    /// Whether it probably means a key that gives a credential.
    pub fn is_of_credential(&self) -> bool {
        self.nearest.as_deref().is_some_and(|nearest| OF_CREDENTIALS.contains(&nearest))
    }
}

/// Every key of the cloud configuration, as the documentation spells it, sorted: those that have no effect too. Keys inside
/// of mappings and lists are left out.
pub fn known_keys() -> Vec<String> {
    let mut known: Vec<String> = KEYS.iter().map(|row| row.key.to_owned()).filter(|key| !key.contains('.')).collect();
    known.sort();
    known
}

/// What is wrong with a Secret that lacks the key of the cloud configuration, from the keys that it has. Its values are not
/// looked at.
pub fn without_configuration<'k>(secret: &str, keys: impl IntoIterator<Item = &'k str>) -> String {
    let keys: Vec<&str> = keys.into_iter().collect();
    let has = match &keys[..] {
        [] => "no key".to_owned(),
        keys => format!("the keys {}", keys.join(", ")),
    };
    format!(
        "the Secret {secret} has {has}, and not {SECRET_KEY}: it is not used; put the cloud configuration (azure.json) under \
         the key {SECRET_KEY}"
    )
}

impl std::fmt::Display for UnknownKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.key)?;
        self.nearest.as_ref().map_or(Ok(()), |nearest| write!(f, " (the nearest key that exists is {nearest})"))
    }
}

/// What the cloud controllers of a process look after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LooksAfter {
    /// Services of type LoadBalancer.
    pub services: bool,
    /// Nodes: their machines and routes.
    pub nodes: bool,
}

/// The configuration. Serialise it to show the effective one: secrets come out redacted.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Config {
    /// `cloud`, `resourceManagerEndpoint`: the endpoints, or how to learn them.
    pub cloud: CloudSource,
    /// Whether requests must use the old API versions of Azure Stack Hub: `cloud` is AZURESTACKCLOUD and
    /// `disableAzureStackCloud` is not set.
    pub is_stack_cloud: bool,
    /// `userAgent`, which requests name behind our own.
    pub user_agent: Option<String>,
    /// `identitySystem`.
    pub identity_system: IdentitySystem,
    /// `tenantId`; absent is fine with a managed identity.
    pub tenant_id: Option<String>,
    /// The one credential to use.
    pub credential: Credential,
    /// `auxiliaryTokenProvider`.
    pub auxiliary_token: Option<AuxiliaryToken>,
    /// The cluster's machines.
    pub cluster: Cluster,
    /// The cluster's network.
    pub network: Network,
    /// Load balancers.
    pub load_balancing: LoadBalancing,
    /// Tags of what is created.
    pub tags: Tags,
    /// Repetition of failed requests.
    pub backoff: Backoff,
    /// Client-side limits on requests.
    pub rate_limits: RateLimits,
    /// Ages of answers.
    pub caches: Caches,
    unknown_keys: Vec<UnknownKey>,
    keys_without_effect: Vec<String>,
    warnings: Vec<String>,
    #[serde(skip)]
    harmless: Vec<Problem>,
}

impl Config {
    /// What the file says about the secret: whether to read it at all. Default [`ConfigType::Merge`].
    ///
    /// # Errors
    /// [`ConfigError::Invalid`] for an unknown word.
    pub fn config_type(file: &Document) -> Result<ConfigType, ConfigError> {
        let report = RefCell::new(Report::default());
        let config_type = reader([file], &report).choice("cloudConfigType");
        let report = report.into_inner();
        if report.problems.is_empty() {
            Ok(config_type.unwrap_or(ConfigType::WORDS[0].1))
        } else {
            Err(ConfigError::Invalid(Problems(report.problems)))
        }
    }

    /// Puts file, secret and environment together. With `cloudConfigType: file` a given secret is
    /// ignored; with `secret` the file's other keys are; with `merge` the secret overrides only the keys
    /// it sets, mappings key by key and lists whole. A secret that changes where the credential is sent must hold that
    /// credential, and a credential of the secret is sent only to endpoints that the secret, an argument or Microsoft names.
    ///
    /// # Errors
    /// [`ConfigError::SecretMissing`], and [`ConfigError::Invalid`] with every problem found.
    pub fn from_documents(
        file: Option<&Document>,
        secret: Option<&Document>,
        environment: &Environment<'_>,
    ) -> Result<Self, ConfigError> {
        let (file, secret) = match file {
            None => (None, secret),
            Some(file) => match (Self::config_type(file)?, secret) {
                (ConfigType::File, _) => (Some(file), None),
                (ConfigType::Merge, secret) => (Some(file), secret),
                (ConfigType::Secret, Some(secret)) => (None, Some(secret)),
                (ConfigType::Secret, None) => {
                    return Err(ConfigError::SecretMissing { origin: file.origin().to_owned() });
                }
            },
        };
        let report = RefCell::new(Report::default());
        let mut config = build::config(reader(file.into_iter().chain(secret), &report), environment);
        let Report { mut problems, mut unknown, given: mut without_effect, mut warnings, .. } = report.into_inner();
        problems.extend(secret.and_then(|secret| trust::check_secret(file, secret, &config.credential, environment)));
        let checked =
            secret.map(|secret| trust::check_endpoints_of_secret(file, secret, &config.credential, environment));
        problems.extend(checked.flatten());
        let marked = file.into_iter().chain(secret).filter(|document| document.has_mark());
        warnings.extend(marked.map(|document| {
            format!(
                "{} begins with a byte order mark: this program and the Go ones skip it, other readers of JSON may not",
                document.origin()
            )
        }));
        let harmless: Vec<Problem> = problems.extract_if(.., |problem| !has_effect(problem)).collect();
        warnings.extend(harmless.iter().map(|problem| {
            let scope = if is_of_cloud_controllers(root(problem)) { "on volumes" } else { "in this version" };
            format!("{problem}; it has no effect {scope}")
        }));
        if !problems.is_empty() {
            problems.iter_mut().for_each(|problem| problem.note_misspelt(&unknown));
            return Err(ConfigError::Invalid(Problems(problems)));
        }
        unknown.sort_by(|one, other| one.key.cmp(&other.key));
        unknown.dedup();
        warnings.dedup();
        without_effect.retain(|key| !is_used_by_all(key));
        without_effect.sort();
        without_effect.dedup();
        config.keys_without_effect = without_effect;
        config.unknown_keys = unknown;
        config.warnings = warnings;
        config.harmless = harmless;
        Ok(config)
    }

    /// Keys that mean nothing to this program, with their paths, sorted.
    pub fn unknown_keys(&self) -> &[UnknownKey] {
        &self.unknown_keys
    }

    /// Keys that are given, known and read, and that change nothing for volumes, as the documentation spells them, sorted.
    pub fn keys_without_effect(&self) -> &[String] {
        &self.keys_without_effect
    }

    /// Those of [`Self::keys_without_effect`] that the cloud controllers do something with.
    pub fn keys_of_cloud_controllers(&self) -> Vec<&str> {
        self.keys_without_effect.iter().map(String::as_str).filter(|key| is_of_cloud_controllers(key)).collect()
    }

    /// What an operator should know although it is no error: wrong values of keys without effect, tags that were
    /// skipped, a key given twice.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// What the disk driver's controller logs once when it starts: the warnings, the unknown keys, and one line with the keys
    /// without effect. Those that the cloud controllers take are theirs to speak of.
    pub fn start_warnings(&self) -> Vec<String> {
        self.start_warnings_without(is_of_cloud_controllers)
    }

    /// The same, where these keys have an effect.
    fn start_warnings_without(&self, has_effect: impl Fn(&str) -> bool) -> Vec<String> {
        let unknown = self.unknown_keys.iter().map(|key| format!("unknown key {key}"));
        let idle: Vec<&str> =
            self.keys_without_effect.iter().map(String::as_str).filter(|key| !has_effect(key)).collect();
        let without_effect = (!idle.is_empty()).then(|| format!("without effect in this version: {}", idle.join(", ")));
        self.warnings.iter().cloned().chain(unknown).chain(without_effect).collect()
    }

    /// What the cloud controllers log once when they start: as [`Self::start_warnings`], and why a key means nothing to any of
    /// them.
    ///
    /// # Errors
    /// [`ConfigError::Invalid`] with every wrong value of a key that counts. The disk driver ignores it.
    pub fn for_cloud_controllers(&self, looks_after: LooksAfter) -> Result<Vec<String>, ConfigError> {
        let counts = |key: &str| {
            keys::is_used(key, |by| {
                (by.services && looks_after.services) || (by.nodes && looks_after.nodes) || by.cloud_controllers
            })
        };
        let is_refused = |key: &str| counts(key) || OF_OTHER_TENANTS.contains(&key);
        let wrong: Vec<Problem> = self.harmless.iter().filter(|problem| is_refused(root(problem))).cloned().collect();
        if !wrong.is_empty() {
            return Err(ConfigError::Invalid(Problems(wrong)));
        }
        let mut others = self.clone();
        let mut reasons = Vec::new();
        // Other controllers of this program take them: whoever leaves those out by --controllers knows it.
        others
            .keys_without_effect
            .retain(|key| !keys::is_used(key, |by| by.services || by.nodes || by.cloud_controllers));
        let without_meaning = [(OWN_TENANT, OF_OTHER_TENANTS.to_vec())].into_iter().chain(keys::without_meaning());
        for (reason, keys) in without_meaning {
            let given = others.keys_without_effect.extract_if(.., |key| keys.contains(&key.as_str()));
            let given: Vec<String> = given.collect();
            if !given.is_empty() {
                reasons.push(format!("without effect: {} ({reason})", given.join(", ")));
            }
        }
        Ok(others.start_warnings_without(|_| false).into_iter().chain(reasons).collect())
    }
}

/// The outermost key that a problem is in.
fn root(problem: &Problem) -> &str {
    problem.key.split(['.', '[']).next().unwrap_or_default()
}

/// Whether a problem is one of something that every process uses.
fn has_effect(problem: &Problem) -> bool {
    is_used_by_all(root(problem)) || root(problem) == ENDPOINT_FILE_VARIABLE
}

fn reader<'d, 'r>(layers: impl IntoIterator<Item = &'d Document>, report: &'r RefCell<Report>) -> Reader<'r> {
    let mut items = Vec::new();
    let mut origins: Vec<Arc<str>> = Vec::new();
    for (layer, document) in layers.into_iter().enumerate() {
        origins.push(document.origin_arc());
        items.extend(document.entries().iter().map(|(key, value)| Item {
            layer,
            origin: document.origin_arc(),
            key: key.clone(),
            value: value.clone(),
        }));
    }
    let origin = match origins.as_slice() {
        [] => "cloud configuration".into(),
        origins => origins.join(" with ").into(),
    };
    Reader::new(String::new(), origin, items, report)
}
