//! The Secrets in which keys of accounts are, and who may have them.

pub mod handout;
pub mod login;

use std::collections::{BTreeMap, BTreeSet};

use lazuli_model::{
    AccountKey, Secret,
    fault::Code,
    kube_name::is_subdomain,
    parameter::{ParameterError, Parameters},
    template::Templates,
};

use crate::{parameters::DEFAULT_NAMESPACE, volume_id::ShareVolumeId};

/// The key of a Secret, or of the secrets of a request, that holds the name of the account.
pub const ACCOUNT_NAME: &str = "azurestorageaccountname";
/// The key of a Secret, or of the secrets of a request, that holds the key of the account.
pub const ACCOUNT_KEY: &str = "azurestorageaccountkey";
/// Their other names, in secrets that people write.
const ALIASES: [(&str, &str); 2] = [("accountname", ACCOUNT_NAME), ("accountkey", ACCOUNT_KEY)];

/// The type of the Secrets that drivers write.
pub const SECRET_TYPE: &str = "Opaque";

/// The name of the Secret of an account, where nothing names another.
pub fn secret_name(account: &str) -> String {
    format!("azure-storage-account-{account}-secret")
}

/// The account of a Secret that has such a name.
pub fn account_of_secret(name: &str) -> Option<&str> {
    name.strip_prefix("azure-storage-account-")?.strip_suffix("-secret").filter(|account| !account.is_empty())
}

/// A Secret of Kubernetes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SecretRef {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// What a share is mounted with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The account: the name of the user.
    pub account: String,
    /// Its key: the password.
    pub key: Secret,
}

/// Why secrets hold no credentials.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CredentialsError {
    /// A value is missing or empty.
    #[error("the secret has no {0}; expected are {ACCOUNT_NAME} and {ACCOUNT_KEY}")]
    Missing(&'static str),
    /// A value is there twice, with two contents.
    #[error("the secret has two different values for {0}; expected is one")]
    Ambiguous(&'static str),
    /// Name and key may have been mistaken for each other, so the value is not shown.
    #[error(
        "the secret's {ACCOUNT_NAME} is no name of a storage account: allowed are 24 lower-case letters and digits at most; is it the key?"
    )]
    NotAnAccount,
}

/// Whether a text can be the name of a storage account (source: Azure's naming rules).
pub(crate) fn is_account_name(text: &str) -> bool {
    (1..=24).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
}

/// Reads credentials out of a Secret or out of the secrets of a request. Keys have no letter case, and space around
/// values does not count, as in the Go driver. No error shows a value.
///
/// # Errors
/// When a value is missing, empty or there twice.
pub fn credentials<'a>(secrets: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Credentials, CredentialsError> {
    let mut found: BTreeMap<&'static str, &str> = BTreeMap::new();
    for (key, value) in secrets {
        let value = value.trim();
        let folded = key.to_ascii_lowercase();
        let known = ALIASES.into_iter().find(|(alias, name)| folded == *alias || folded == *name);
        let Some((_, name)) = known.filter(|_| !value.is_empty()) else { continue };
        if found.insert(name, value).is_some_and(|before| before != value) {
            return Err(CredentialsError::Ambiguous(name));
        }
    }
    let value = |name| found.get(name).copied().ok_or(CredentialsError::Missing(name));
    let (account, key) = (value(ACCOUNT_NAME)?, Secret::new(value(ACCOUNT_KEY)?));
    if !is_account_name(account) {
        return Err(CredentialsError::NotAnAccount);
    }
    Ok(Credentials { account: account.to_owned(), key })
}

/// What a driver writes into a Secret.
pub fn data(credentials: &Credentials) -> [(&'static str, &str); 2] {
    [(ACCOUNT_NAME, &credentials.account), (ACCOUNT_KEY, credentials.key.expose())]
}

/// Which of an account's keys is used: the first of Azure's list, or the one that was made last. Of two that were made at
/// the same time, or at unknown times, the first.
pub fn choose_key(keys: &[AccountKey], latest: bool) -> Option<&AccountKey> {
    let mut usable = keys.iter().filter(|key| !key.value.expose().trim().is_empty());
    let first = usable.next()?;
    if !latest {
        return Some(first);
    }
    Some(usable.fold(first, |best, key| if key.created > best.created { key } else { best }))
}

/// Where the key of a volume is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeySource {
    /// The account, as far as the volume says; else the Secret does.
    pub account: Option<String>,
    /// The resource group of the account; `None` for the cluster's.
    pub resource_group: Option<String>,
    /// The subscription of the account; `None` for the cluster's.
    pub subscription: Option<String>,
    /// The Secret; `None` where neither the volume nor its account names one.
    pub secret: Option<SecretRef>,
    /// Whether Azure may be asked for the key where there is no Secret.
    pub may_ask_azure: bool,
    /// Whether the key that was made last is used, not the first one.
    pub latest: bool,
}

/// Where the key of a volume is, by the context of the PersistentVolume and its volume id.
///
/// # Errors
/// When the context says two things of one, or uses a template that it does not explain.
pub fn key_source(
    context: &BTreeMap<String, String>,
    volume: Option<&ShareVolumeId>,
) -> Result<KeySource, ParameterError> {
    key_source_of(context, volume, None)
}

/// The same where the PersistentVolume itself is known: `stage_secret` is its `spec.csi.nodeStageSecretRef`, which counts
/// where its attributes name no Secret.
///
/// # Errors
/// As [`key_source`].
pub fn key_source_of(
    context: &BTreeMap<String, String>,
    volume: Option<&ShareVolumeId>,
    stage_secret: Option<&SecretRef>,
) -> Result<KeySource, ParameterError> {
    let read = Parameters::context(context);
    let templates = Templates::of_context(read)?;
    let text = |key: &str| -> Result<Option<String>, ParameterError> {
        let Some(parameter) = read.get(key)? else { return Ok(None) };
        let filled = templates.fill(parameter.value.trim());
        match templates.unfilled(&filled) {
            Some(template) => Err(parameter.refuse(format!("{template} is unknown in this volume's attributes"))),
            None => Ok(Some(filled).filter(|text| !text.is_empty())),
        }
    };
    let of_id = |part: fn(&ShareVolumeId) -> &String| volume.map(part).filter(|part| !part.is_empty()).cloned();
    // The translation of an in-tree volume puts the name of the Secret there, where that is not named after its account.
    let (account_of_id, secret_of_id): (Vec<_>, Vec<_>) =
        of_id(|id| &id.account).into_iter().partition(|name| is_account_name(&name.to_ascii_lowercase()));
    let account = text("storageaccount")?.or_else(|| account_of_id.into_iter().next());
    let resource_group = text("resourcegroup")?.or_else(|| of_id(|id| &id.resource_group));
    let subscription = text("subscriptionid")?.or_else(|| of_id(|id| &id.subscription));
    let named = text("secretname")?;
    let staged = stage_secret.filter(|_| named.is_none());
    let name = named.or_else(|| account.as_deref().map(secret_name)).or_else(|| secret_of_id.into_iter().next());
    let namespace = text("secretnamespace")?
        .or_else(|| of_id(|id| &id.namespace))
        .or_else(|| templates.pvc_namespace.map(str::to_owned))
        .unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned());
    let only_secret = read.get("getaccountkeyfromsecret")?.is_some_and(|parameter| parameter.is_true());
    let latest = match read.get("getlatestaccountkey")? {
        Some(parameter) => parameter.boolean()?,
        None => false,
    };
    Ok(KeySource {
        secret: staged.cloned().or_else(|| name.map(|name| SecretRef { namespace, name })),
        may_ask_azure: !only_secret && account.is_some(),
        account,
        resource_group,
        subscription,
        latest,
    })
}

/// How nodes get the keys of accounts: `node.secretAccess` of the chart.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum SecretAccess {
    /// From the controller, which checks each request: the default.
    #[default]
    Broker,
    /// Nodes read any Secret of the cluster, as with the Go driver.
    Cluster,
    /// Nodes read the Secrets of these namespaces.
    Namespaces(BTreeSet<String>),
}

/// Why a text is no [`SecretAccess`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SecretAccessError {
    /// An unknown mode.
    #[error("the access to Secrets is {0:?}: allowed are broker, cluster and namespaces")]
    Unknown(String),
    /// Namespaces beside a mode that knows none.
    #[error("namespaces are named ({0}), and the access to Secrets is not \"namespaces\"")]
    Unused(String),
    /// Nobody would get a key.
    #[error("the access to Secrets is \"namespaces\", and none is named")]
    NoNamespace,
    /// No namespace has such a name.
    #[error("{0:?} is not the name of a namespace")]
    NotANamespace(String),
}

impl SecretAccess {
    /// Reads the mode, and the namespaces that belong to it.
    ///
    /// # Errors
    /// An unknown mode; namespaces where the mode knows none; none, or one that cannot exist, where it needs some.
    pub fn parse(mode: &str, namespaces: &[String]) -> Result<Self, SecretAccessError> {
        let access = match mode {
            "broker" => Self::Broker,
            "cluster" => Self::Cluster,
            "namespaces" if namespaces.is_empty() => return Err(SecretAccessError::NoNamespace),
            "namespaces" => {
                if let Some(wrong) = namespaces.iter().find(|name| !is_subdomain(name)) {
                    return Err(SecretAccessError::NotANamespace(wrong.clone()));
                }
                return Ok(Self::Namespaces(namespaces.iter().cloned().collect()));
            }
            other => return Err(SecretAccessError::Unknown(other.to_owned())),
        };
        if !namespaces.is_empty() {
            return Err(SecretAccessError::Unused(namespaces.join(", ")));
        }
        Ok(access)
    }

    /// Whether a node reads a Secret itself.
    ///
    /// # Errors
    /// [`NotReadable`]: it asks the controller instead, or the Secret is in a namespace that is not allowed.
    pub fn lets_nodes_read(&self, secret: &SecretRef) -> Result<(), NotReadable> {
        match self {
            Self::Broker => Err(NotReadable::Broker),
            Self::Cluster => Ok(()),
            Self::Namespaces(allowed) if allowed.contains(&secret.namespace) => Ok(()),
            Self::Namespaces(allowed) => Err(NotReadable::Namespace {
                secret: secret.clone(),
                allowed: allowed.iter().map(String::as_str).collect::<Vec<_>>().join(", "),
            }),
        }
    }
}

/// Why a node does not read a Secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotReadable {
    /// Nodes ask the controller.
    #[error("nodes read no Secrets in this cluster: they ask the controller for keys")]
    Broker,
    /// Its namespace is not among those that nodes may read.
    #[error(
        "nodes read no Secret in namespace {} (for {}): allowed are {allowed} (node.secretAccess)", .secret.namespace, .secret.name
    )]
    Namespace {
        /// The Secret.
        secret: SecretRef,
        /// The namespaces that are allowed.
        allowed: String,
    },
}

/// Who asks, as the TokenReview says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requester {
    /// The namespace of the ServiceAccount.
    pub namespace: String,
    /// The ServiceAccount.
    pub service_account: String,
    /// The node to which the token is bound (`authentication.kubernetes.io/node-name`); `None` for a token without one.
    pub node: Option<String>,
}

/// A PersistentVolume of this driver that has the volume id that is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeSeen {
    /// Its name.
    pub name: String,
    /// The namespace and name of the claim that it is bound to.
    pub claim: Option<(String, String)>,
    /// Where its key is; an error where its attributes do not say.
    pub key: Result<KeySource, ParameterError>,
}

/// A Pod whose `spec.nodeName` is a node, read when the request came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodSeen {
    /// Its namespace.
    pub namespace: String,
    /// Its `spec.nodeName`.
    pub node: String,
    /// The claims of its volumes, those of ephemeral volumes included.
    pub claims: BTreeSet<String>,
    /// Whether it has ended: its phase is `Succeeded` or `Failed`. Nothing is mounted for it any more.
    pub has_ended: bool,
}

/// All that a grant rests on.
#[derive(Debug, Clone, Copy)]
pub struct KeyRequest<'a> {
    /// How nodes get keys in this cluster.
    pub access: &'a SecretAccess,
    /// The ServiceAccount of the node plugin: namespace and name.
    pub node_plugin: (&'a str, &'a str),
    /// Who asks; `None` where the token was not authenticated.
    pub requester: Option<&'a Requester>,
    /// The PersistentVolumes that have the volume id; `None` where they could not be read.
    pub volumes: Option<&'a [VolumeSeen]>,
    /// The Pods of the requester's node; `None` where they could not be read.
    pub pods: Option<&'a [PodSeen]>,
}

/// A key may be handed out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// The PersistentVolume for which it is.
    pub volume: String,
    /// Where the key is.
    pub key: KeySource,
}

/// Why no key is handed out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Nodes read Secrets themselves in this cluster.
    #[error("this cluster lets its nodes read Secrets (node.secretAccess), and the controller hands out no keys")]
    NotBroker,
    /// Nobody is known by the token.
    #[error("the token is not that of a ServiceAccount of this cluster for this controller")]
    Unauthenticated,
    /// It is not the node plugin's ServiceAccount.
    #[error("ServiceAccount {0} is not that of the node plugin, and gets no keys")]
    NotNodePlugin(String),
    /// The token does not say on which node it is used.
    #[error("the token is not bound to a node; expected is a token that Kubernetes has projected into a Pod")]
    NoNode,
    /// The cluster could not be read.
    #[error("the PersistentVolumes or the Pods of the node could not be read; try again")]
    NotRead,
    /// No PersistentVolume of this driver has the volume id, or none is bound.
    #[error("no bound PersistentVolume of this driver has this volume id")]
    NoVolume,
    /// No Pod of the node uses it.
    #[error("no Pod on node {0} uses a claim of this volume")]
    NoPod(String),
    /// The volume does not say where its key is.
    #[error("PersistentVolume {volume} does not say where its key is")]
    Unclear {
        /// The PersistentVolume.
        volume: String,
        /// What is wrong with its attributes.
        source: ParameterError,
    },
}

impl Refusal {
    /// The gRPC code.
    pub fn code(&self) -> Code {
        match self {
            Self::Unauthenticated => Code::Unauthenticated,
            Self::NotRead => Code::Unavailable,
            Self::NotBroker | Self::Unclear { .. } => Code::FailedPrecondition,
            Self::NotNodePlugin(_) | Self::NoNode | Self::NoVolume | Self::NoPod(_) => Code::PermissionDenied,
        }
    }
}

/// The node that asks. It is judged before anything of the cluster is read for it.
///
/// # Errors
/// When nodes do not ask the controller for keys, or when this one is not known to be the node plugin on a node.
pub fn asking_node<'a>(
    access: &SecretAccess,
    node_plugin: (&str, &str),
    requester: Option<&'a Requester>,
) -> Result<&'a str, Refusal> {
    if *access != SecretAccess::Broker {
        return Err(Refusal::NotBroker);
    }
    let requester = requester.ok_or(Refusal::Unauthenticated)?;
    if (requester.namespace.as_str(), requester.service_account.as_str()) != node_plugin {
        return Err(Refusal::NotNodePlugin(format!("{}/{}", requester.namespace, requester.service_account)));
    }
    requester.node.as_deref().filter(|node| !node.is_empty()).ok_or(Refusal::NoNode)
}

/// Judges a node's request for the key of a volume. A node gets the keys of the volumes that its Pods use, and no other.
///
/// # Errors
/// When one thing is not as it must be; what is not known is never taken for granted.
pub fn may_have(request: &KeyRequest<'_>) -> Result<Grant, Refusal> {
    let node = asking_node(request.access, request.node_plugin, request.requester)?;
    let (Some(volumes), Some(pods)) = (request.volumes, request.pods) else {
        return Err(Refusal::NotRead);
    };
    let uses = |namespace: &str, claim: &str| {
        pods.iter()
            .any(|pod| pod.node == node && !pod.has_ended && pod.namespace == namespace && pod.claims.contains(claim))
    };
    let mut bound: Vec<(&VolumeSeen, &str, &str)> = volumes
        .iter()
        .filter_map(|volume| {
            volume.claim.as_ref().map(|(namespace, claim)| (volume, namespace.as_str(), claim.as_str()))
        })
        .collect();
    if bound.is_empty() {
        return Err(Refusal::NoVolume);
    }
    bound.sort_by_key(|(volume, ..)| &volume.name);
    match bound.into_iter().find(|(_, namespace, claim)| uses(namespace, claim)) {
        Some((volume, ..)) => match &volume.key {
            Ok(key) => Ok(Grant { volume: volume.name.clone(), key: key.clone() }),
            Err(source) => Err(Refusal::Unclear { volume: volume.name.clone(), source: source.clone() }),
        },
        None => Err(Refusal::NoPod(node.to_owned())),
    }
}

/// What is known of a Secret whose key may have been rotated.
#[derive(Debug, Clone, Copy)]
pub struct StoredKey<'a> {
    /// The Secret.
    pub secret: &'a SecretRef,
    /// The keys of its data.
    pub keys: &'a BTreeSet<String>,
    /// Whether it is immutable or has an owner: then another program, or a person, looks after it.
    pub is_managed: bool,
    /// The account that its data names.
    pub account: &'a str,
    /// Where the keys of this driver's PersistentVolumes are.
    pub volumes: &'a [KeySource],
}

/// Whether a driver wrote the Secret, so that a new key may be written into it: it has the name that a driver gives, holds
/// what a driver writes and nothing else, and a volume of ours has its key there. A Secret that a person made is never
/// changed.
pub fn may_update(stored: &StoredKey<'_>) -> bool {
    let has_own_keys =
        stored.keys.len() == 2 && [ACCOUNT_NAME, ACCOUNT_KEY].iter().all(|key| stored.keys.contains(*key));
    let is_named = account_of_secret(&stored.secret.name) == Some(stored.account);
    let is_used = stored.volumes.iter().any(|source| {
        source.secret.as_ref() == Some(stored.secret) && source.account.as_deref() == Some(stored.account)
    });
    has_own_keys && !stored.is_managed && is_named && is_used
}

#[cfg(test)]
mod tests;
