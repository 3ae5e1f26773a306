//! Which key a node gets for a volume whose key it may have, and when a Secret follows a rotation.
//!
//! ```text
//! Secret read ──▶ of another account? ──▶ refuse
//!     │  └────▶ not the refused key ──▶ give it
//!     │  └────▶ the refused key, of a person ──▶ refuse
//!     │  └────▶ the refused key, of a driver ─┐
//!     └─ there is none ───────────────────────┴▶ list the keys in Azure ──▶ give one, update the driver's Secret
//!                                                                       └─▶ it is the refused one: refuse
//! ```
//!
//! A Secret whose key Azure lists holds no key that was rotated, and is left as it is.

use std::{collections::BTreeSet, fmt};

use lazuli_model::{AccountKey, Secret, fault::Code};

use super::{ACCOUNT_KEY, ACCOUNT_NAME, Credentials, KeySource, SecretRef, StoredKey, choose_key, may_update};

/// What a Secret holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredSecret {
    /// The account and key in its data.
    pub credentials: Credentials,
    /// The keys of its data.
    pub keys: BTreeSet<String>,
    /// Whether it is immutable or has an owner. A driver writes no such Secret.
    pub is_managed: bool,
}

/// What is known of an account's keys in Azure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AzureKeys<'a> {
    /// They have not been listed.
    NotListed,
    /// They are not listed by this process.
    NotHere,
    /// Their list, in Azure's order.
    Listed(&'a [AccountKey]),
}

/// Tells whether a key is the one that the file server has refused the node. The node does not send the key itself.
#[derive(Clone, Copy)]
pub struct RefusedKey<'a>(&'a dyn Fn(&Secret) -> bool);

impl<'a> RefusedKey<'a> {
    /// `is` tells whether a key is the refused one.
    pub fn new(is: &'a dyn Fn(&Secret) -> bool) -> Self {
        Self(is)
    }
}

impl fmt::Debug for RefusedKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RefusedKey")
    }
}

/// All that an answer rests on. The node may have the key of the volume ([`super::may_have`]).
#[derive(Debug, Clone, Copy)]
pub struct Evidence<'a> {
    /// The PersistentVolume.
    pub volume: &'a str,
    /// Where its key is.
    pub source: &'a KeySource,
    /// What its Secret holds; `None` where there is none.
    pub stored: Option<&'a StoredSecret>,
    /// The keys in Azure.
    pub azure: AzureKeys<'a>,
    /// The key that the server has refused this node; `None` where it asks for the first time.
    pub refused: Option<RefusedKey<'a>>,
}

/// What is done next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// List the keys of this account in Azure, and ask again.
    ListKeys {
        /// The account.
        account: String,
    },
    /// Answer.
    Give(Handout),
    /// There is no key.
    Refuse(NoKey),
}

/// A key that is handed out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handout {
    /// The key.
    pub credentials: Credentials,
    /// Where it was.
    pub origin: Origin,
    /// The Secret of a driver into which it is written before the answer. The answer does not depend on whether it could be.
    pub updates: Option<SecretRef>,
}

/// Where a key was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// In a Secret.
    Secret(SecretRef),
    /// In Azure, under this name.
    Azure(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Secret(SecretRef { namespace, name }) => write!(f, "Secret {namespace}/{name}"),
            Self::Azure(name) => write!(f, "Azure, {name}"),
        }
    }
}

/// Why there is no key for a volume.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoKey {
    /// The volume names neither a Secret nor an account.
    #[error(
        "the volume names neither a Secret nor a storage account: set secretName or storageAccount in its volumeAttributes"
    )]
    Nameless,
    /// There is no such Secret, and nobody else to ask.
    #[error(
        "Secret {}/{} does not exist, and {why}: create it with {ACCOUNT_NAME} and {ACCOUNT_KEY}",
        .secret.namespace, .secret.name
    )]
    NoSecret {
        /// The Secret.
        secret: SecretRef,
        /// Why Azure is not asked.
        why: &'static str,
    },
    /// Azure lists none that can be used.
    #[error("storage account {0} has no key in Azure")]
    NotInAzure(String),
    /// The Secret holds the key of another account than that of the volume.
    #[error(
        "PersistentVolume {volume} names storage account {named}, and Secret {}/{} holds the key of storage account {found}: \
         correct the volume, or {ACCOUNT_NAME} and {ACCOUNT_KEY} of the Secret",
        .secret.namespace, .secret.name
    )]
    OtherAccount {
        /// The PersistentVolume.
        volume: String,
        /// The account that it names.
        named: String,
        /// The Secret.
        secret: SecretRef,
        /// The account in it.
        found: String,
    },
    /// The server refuses the key in a Secret of a person, or in one that a class has named (`secretName`).
    #[error(
        "the file server refuses the key in Secret {}/{}, which does not follow a rotation: that does a Secret named \
         azure-storage-account-ACCOUNT-secret that holds nothing but what a driver writes; write the account's current key \
         into its {ACCOUNT_KEY}, or see whether the firewall of the storage account lets this node in",
        .secret.namespace, .secret.name
    )]
    OfAPerson {
        /// The Secret.
        secret: SecretRef,
    },
    /// The server refuses the key in a Secret, and Azure is not asked for another.
    #[error(
        "the file server refuses the key in Secret {}/{}, and Azure is not asked for its key: write the account's current key \
         into its {ACCOUNT_KEY}",
        .secret.namespace, .secret.name
    )]
    OnlyStored {
        /// The Secret.
        secret: SecretRef,
    },
    /// The server refuses the key that Azure lists.
    #[error(
        "the file server refuses the key that Azure lists for storage account {0}: see whether the account's firewall lets this \
         node in, and whether access by keys is allowed; a key that was rotated counts after ten seconds"
    )]
    Current(String),
}

impl NoKey {
    /// The gRPC code: a person has to do something, and then a repetition succeeds.
    pub fn code(&self) -> Code {
        Code::FailedPrecondition
    }
}

/// Decides what is done next for a node that asks for a key.
pub fn handout(evidence: &Evidence<'_>) -> Step {
    let Evidence { volume, source, stored, .. } = *evidence;
    // What was read is of the Secret that the volume names.
    let Some((stored, secret)) = stored.zip(source.secret.as_ref()) else { return of_azure(evidence, None) };
    let found = &stored.credentials.account;
    if let Some(named) = source.account.as_ref().filter(|named| !named.eq_ignore_ascii_case(found)) {
        let (volume, named, found) = (volume.to_owned(), named.clone(), found.clone());
        return Step::Refuse(NoKey::OtherAccount { volume, named, secret: secret.clone(), found });
    }
    if !is_refused(evidence, &stored.credentials.key) {
        let (credentials, origin) = (stored.credentials.clone(), Origin::Secret(secret.clone()));
        return Step::Give(Handout { credentials, origin, updates: None });
    }
    let known = StoredKey {
        secret,
        keys: &stored.keys,
        is_managed: stored.is_managed,
        account: found,
        volumes: std::slice::from_ref(source),
    };
    match may_update(&known) {
        true => of_azure(evidence, Some((secret, &stored.credentials.key))),
        false => Step::Refuse(NoKey::OfAPerson { secret: secret.clone() }),
    }
}

/// The key in Azure; `held` is the Secret of a driver that holds the refused one, and that key.
fn of_azure(evidence: &Evidence<'_>, held: Option<(&SecretRef, &Secret)>) -> Step {
    let Evidence { source, azure, .. } = *evidence;
    let account = source.account.as_ref().filter(|_| source.may_ask_azure);
    let (account, keys) = match (account, azure) {
        (Some(account), AzureKeys::Listed(keys)) => (account, keys),
        (Some(account), AzureKeys::NotListed) => return Step::ListKeys { account: account.clone() },
        (_, AzureKeys::NotHere) | (None, _) => return Step::Refuse(not_listed(source, held.map(|(secret, _)| secret))),
    };
    let Some(key) = choose_key(keys, source.latest) else { return Step::Refuse(NoKey::NotInAzure(account.clone())) };
    if is_refused(evidence, &key.value) {
        return Step::Refuse(NoKey::Current(account.clone()));
    }
    // A key that Azure lists was not rotated: the server refuses it for another reason.
    let stale = held.filter(|(_, held)| keys.iter().all(|key| key.value != **held));
    let credentials = Credentials { account: account.clone(), key: key.value.clone() };
    Step::Give(Handout {
        credentials,
        origin: Origin::Azure(key.name.clone()),
        updates: stale.map(|(secret, _)| secret.clone()),
    })
}

fn not_listed(source: &KeySource, stale: Option<&SecretRef>) -> NoKey {
    match (stale, &source.secret) {
        (Some(secret), _) => NoKey::OnlyStored { secret: secret.clone() },
        (None, Some(secret)) => NoKey::NoSecret { secret: secret.clone(), why: "Azure is not asked for its key" },
        (None, None) => NoKey::Nameless,
    }
}

fn is_refused(evidence: &Evidence<'_>, key: &Secret) -> bool {
    evidence.refused.is_some_and(|RefusedKey(is)| is(key))
}

#[cfg(test)]
mod tests;
