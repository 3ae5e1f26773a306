//! In which storage account a share is made.
//!
//! As in the Go driver, the first account of Azure's list fits that has all the properties that the class asks for; only
//! where none fits is one made. No account that exists is ever written, but for two things: its tags
//! ([`clear_skip_matching`]), and the file service of one that this driver made and that holds no share yet.
//!
//! ```text
//!            seen: all accounts of the group, in Azure's order
//!                              │
//!        fits ─ full? ─ no ──► Use           none fits
//!         │       └─ unknown ► Read                │
//!         └─ being made ─────► Wait          next name that is free ──► Create ──(read: 404)──► PUT
//! ```
//!
//! The name of an account that is made follows from what is asked for ([`candidate_name`]): a process that is killed
//! between two requests finds the account that it has begun. Before the PUT the caller reads the account of that name, and
//! sends the PUT only if Azure answers that there is none.
//!
//! The limits of an account on the sum of the operations and MiB per second of its shares are left to Azure: a share that
//! it refuses for them makes the account [full](AccountSeen::is_refused).

mod fit;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use lazuli_model::{
    AccountKind, AccountNetworkAccess, ArmId, ArmIdError, Billing, FileService, FileShare, Gib, NetworkAction,
    NetworkRules, ProvisioningState, StorageAccount, StorageSku, VirtualNetworkRule, digest,
    fault::Code,
    op::{AccountSpec, AccountWrite, FileServiceSpec},
    tags,
};

pub use fit::{Fit, Mismatch, fit, fits_file_service};

use crate::{
    limits::{DEFAULT_SKU, MADE_ACCOUNT_NAME_LENGTH, quota_per_account, shares_per_account},
    network,
    parameters::{AccountSource, Endpoint, Pick, SKIP_MATCHING, ShareClass, ShareNaming},
};

/// How many names are tried for an account that is made.
pub const MOST_NAMES: u8 = 10;

/// The version of TLS below which an account that is made takes no request (source: the Go driver).
const MINIMUM_TLS: &str = "TLS1_2";

/// An account that a claim asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountRequest<'a> {
    /// What the class says.
    pub class: &'a ShareClass,
    /// The name of the CreateVolume request.
    pub request: &'a str,
    /// The region of an account that is made where the class names none: the cluster's.
    pub location: &'a str,
    /// The size of the share, as the claim asks for it.
    pub size: Gib,
}

/// What the shares of an account add up to, soft-deleted ones included: Azure counts them until they are gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ShareUse {
    /// How many they are.
    pub shares: u32,
    /// The sum of their quotas, GiB.
    pub quota: u64,
}

impl ShareUse {
    /// Adds up the shares of an account as a list that includes deleted ones shows them. Snapshots are no shares.
    pub fn of<'a>(shares: impl IntoIterator<Item = &'a FileShare>) -> Self {
        shares.into_iter().filter(|share| share.snapshot.is_none()).fold(Self::default(), |sum, share| Self {
            shares: sum.shares.saturating_add(1),
            quota: sum.quota.saturating_add(u64::from(share.quota.get())),
        })
    }
}

/// An account, with what is known of it.
#[derive(Debug, Clone, Copy)]
pub struct AccountSeen<'a> {
    /// The account, as a list or a read shows it.
    pub account: &'a StorageAccount,
    /// Its file service, where it was read.
    pub file_service: Option<FileService>,
    /// What its shares add up to, where they were read or counted.
    pub shares: Option<ShareUse>,
    /// Whether a share of the name that the claim's will have is known to be in it, and not deleted.
    pub holds_share: bool,
    /// Whether Azure has refused a share in it for the account's limits, and none of its shares was deleted since.
    pub is_refused: bool,
}

/// An account to make, if Azure answers to a read that none has its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// The account.
    pub account: ArmId,
    /// What its PUT says.
    pub spec: AccountSpec,
    /// What is changed of its file service once it is made.
    pub file_service: FileServiceSpec,
    /// What must be in the network before it is made.
    pub network: Option<network::Wanted>,
}

/// What to do for a claim that needs an account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    /// Make the share in it.
    Use(ArmId),
    /// It fits, and Azure is still working on it: look again later.
    Wait(ArmId),
    /// Whether it fits depends on its file service: read it, and choose again.
    ReadFileService(ArmId),
    /// Whether it has room depends on its shares: read them, and choose again.
    ReadShares(ArmId),
    /// Read the account of this name, and make it if there is none. Where there is one in the resource group, choose
    /// again with it among those that are seen; where Azure says that another owns the name, choose again with the name
    /// among those that are taken.
    Create(Box<Candidate>),
    /// This driver made it for such claims and was interrupted: finish its file service, then use it.
    FinishFileService {
        /// The account.
        account: ArmId,
        /// What is left to change.
        spec: FileServiceSpec,
    },
    /// No account can be used, and none can be made.
    Refused(Refusal),
}

/// Why no account can be used or made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Another owns the name that the class gives.
    #[error("storage account {0} belongs to another subscription or resource group; name another as storageAccount")]
    NameTaken(String),
    /// All names are taken by accounts that do not fit or have no room.
    #[error(
        "no storage account fits, and the {MOST_NAMES} names that this class gives to new ones are taken, the last of them {0}"
    )]
    NoNameLeft(String),
    /// The subscription, the resource group or the name makes no id of an account.
    #[error("no storage account can have this id")]
    NoId(#[source] ArmIdError),
}

impl Refusal {
    /// The gRPC code.
    pub fn code(&self) -> Code {
        match self {
            Self::NoId(_) => Code::InvalidArgument,
            Self::NameTaken(_) | Self::NoNameLeft(_) => Code::ResourceExhausted,
        }
    }
}

impl AccountRequest<'_> {
    /// The SKU of an account that is made.
    fn sku(&self) -> StorageSku {
        self.class.sku.unwrap_or(DEFAULT_SKU)
    }

    /// The kind that accounts of the class have: file shares alone, unless they are paid as they go.
    pub(crate) fn kind(&self) -> AccountKind {
        match self.sku().billing() {
            Billing::PayAsYouGo => AccountKind::StorageV2,
            Billing::ProvisionedV1 | Billing::ProvisionedV2Hdd | Billing::ProvisionedV2Ssd => AccountKind::FileStorage,
        }
    }

    /// The account of a name.
    fn id(&self, name: &str) -> Result<ArmId, ArmIdError> {
        ArmId::storage_account(&self.class.subscription, &self.class.resource_group, name)
    }

    /// What the PUT of a new account says: the body of the Go driver, and `accessTier`, which the Go driver forgets.
    pub fn spec(&self) -> AccountSpec {
        let class = self.class;
        let network_rules = match &class.endpoint {
            Endpoint::Any => None,
            Endpoint::Subnets(subnets) => Some(NetworkRules {
                default_action: NetworkAction::Deny,
                bypass: None,
                virtual_networks: subnets
                    .iter()
                    .map(|subnet| VirtualNetworkRule { subnet: subnet.clone(), action: NetworkAction::Allow })
                    .collect(),
            }),
            Endpoint::Private(_) => {
                Some(NetworkRules { default_action: NetworkAction::Deny, bypass: None, virtual_networks: Vec::new() })
            }
        };
        AccountSpec {
            location: class.location.clone().unwrap_or_else(|| self.location.to_owned()),
            sku: self.sku(),
            kind: self.kind(),
            tags: class.tags.clone(),
            access_tier: class.account_access_tier,
            https_only: true,
            minimum_tls_version: MINIMUM_TLS,
            allow_blob_public_access: Some(class.allow_blob_public_access),
            allow_shared_key_access: class.allow_shared_key_access,
            allow_cross_tenant_replication: class.allow_cross_tenant_replication,
            require_infrastructure_encryption: class.require_infrastructure_encryption,
            large_file_shares: class.large_file_shares,
            public_network_access: class.public_network_access,
            network_rules,
        }
    }

    /// What is changed of the file service of a new account.
    pub fn file_service(&self) -> FileServiceSpec {
        FileServiceSpec {
            smb_multichannel: self.class.multichannel,
            share_delete_retention: self.class.disable_delete_retention.map(|disable| !disable),
        }
    }
}

/// The name of a new account: `f` and a digest of what the account must be like. Of a class that wants an account for
/// each claim also the claim's request. `number` tells the candidates of one request apart.
///
/// What does not decide whether an account fits is no part of it, so that two claims that would share an account never
/// make two.
pub fn candidate_name(request: &AccountRequest<'_>, number: u8) -> String {
    let class = request.class;
    let spec = request.spec();
    let optional = |value: Option<bool>| value.map_or("", |value| if value { "true" } else { "false" }).to_owned();
    let subnets = match &class.endpoint {
        Endpoint::Any => String::new(),
        Endpoint::Private(network) => format!("private:{},{}", network.subnet.folded(), network.zone.folded()),
        Endpoint::Subnets(subnets) => subnets.iter().map(|id| format!("{},", id.folded())).collect(),
    };
    let (by_tags, own) = match &class.account {
        AccountSource::Matching { by_tags: true, .. } => {
            (joined(class.tags.iter().flat_map(|(name, value)| [name.as_str(), value])), "")
        }
        AccountSource::Own => (String::new(), request.request),
        AccountSource::Matching { .. } | AccountSource::Named { .. } => (String::new(), ""),
    };
    let fields = [
        class.subscription.to_lowercase(),
        class.resource_group.to_lowercase(),
        spec.location.to_lowercase(),
        spec.sku.to_string(),
        spec.kind.to_string(),
        spec.access_tier.map_or("", |tier| tier.as_str()).to_owned(),
        optional(spec.allow_blob_public_access),
        optional(spec.allow_shared_key_access),
        optional(spec.require_infrastructure_encryption),
        optional(spec.large_file_shares),
        spec.public_network_access.map_or("", AccountNetworkAccess::as_str).to_owned(),
        subnets,
        optional(class.multichannel),
        optional(class.disable_delete_retention),
        by_tags,
        own.to_owned(),
        number.to_string(),
    ];
    let mut name = format!("f{}", digest::hex(joined(fields.iter().map(String::as_str)).as_bytes()));
    name.truncate(MADE_ACCOUNT_NAME_LENGTH);
    name
}

/// The fields, each with its length, so that no two lists of fields have one text.
fn joined<'a>(fields: impl Iterator<Item = &'a str>) -> String {
    fields.map(|field| format!("{}:{field};", field.len())).collect()
}

/// A number for `selectRandomMatchingAccount` that is the same for every try of a request: a try after a restart then
/// chooses the account that the one before it chose.
pub fn random_number(request: &str) -> u64 {
    u64::from_str_radix(&digest::hex(request.as_bytes())[16..], 16).unwrap_or_default()
}

fn billing(account: &StorageAccount) -> Billing {
    account.sku.map_or(Billing::PayAsYouGo, StorageSku::billing)
}

/// Whether an account can be full by what its shares add up to.
fn can_be_full(request: &AccountRequest<'_>, account: &StorageAccount) -> bool {
    let billing = billing(account);
    shares_per_account(billing).is_some()
        || quota_per_account(billing).is_some()
        || request.class.account_quota.is_some()
}

/// How many accounts are looked into only because the claim's share may be there already. Azure allows 100 lists of a
/// subscription and region in five minutes (source: the limits of the storage resource provider).
const MOST_LOOKED_INTO: usize = 20;

/// An account whose shares are not known, and which may have the claim's share already. Before one with room is chosen, or
/// one is made, all that fit are read: an earlier try may have made the share in one that is full by now, or that another
/// one stands before since, and the claim would get a second share. Where one account alone fits and is never full, it is
/// the one that an earlier try took; where very many fit, only those that can be full are read ([`MOST_LOOKED_INTO`]).
fn unread<'a, 'b>(request: &AccountRequest<'_>, fitting: &[&'b AccountSeen<'a>]) -> Option<&'b AccountSeen<'a>> {
    fitting.iter().copied().find(|seen| {
        seen.shares.is_none()
            && ((2..=MOST_LOOKED_INTO).contains(&fitting.len()) || can_be_full(request, seen.account))
            && seen.account.provisioning_state == ProvisioningState::Succeeded
            && seen.file_service.is_none_or(|service| fits_file_service(request, &service))
    })
}

/// Whether an account has room for one more share; `None` where its shares must be read for that.
fn has_room(request: &AccountRequest<'_>, seen: &AccountSeen<'_>) -> Option<bool> {
    if seen.is_refused {
        return Some(false);
    }
    if !can_be_full(request, seen.account) {
        return Some(true);
    }
    let billing = billing(seen.account);
    let (most, capacity) = (shares_per_account(billing), quota_per_account(billing));
    let quota = request.class.account_quota;
    let used = seen.shares?;
    let least = *crate::limits::share_size(billing).start();
    let after = used.quota.saturating_add(u64::from(request.size.max(least).get()));
    Some(
        most.is_none_or(|most| used.shares < most)
            && capacity.is_none_or(|capacity| after <= u64::from(capacity.get()))
            // As in the Go driver, the share that goes over the quota is still made: else one that is larger than the
            // quota would never be.
            && quota.is_none_or(|quota| used.quota <= u64::from(quota.get())),
    )
}

/// What to do with an account that has the properties which a list shows; `None` to go on to the next one.
fn take(request: &AccountRequest<'_>, seen: &AccountSeen<'_>) -> Option<Choice> {
    let id = || seen.account.id.clone();
    match seen.account.provisioning_state {
        ProvisioningState::InProgress => return Some(Choice::Wait(id())),
        ProvisioningState::Failed | ProvisioningState::Canceled => return None,
        ProvisioningState::Succeeded => {}
    }
    if !request.file_service().is_empty() {
        match seen.file_service {
            None => return Some(Choice::ReadFileService(id())),
            Some(service) if !fits_file_service(request, &service) => return finish(request, seen),
            Some(_) => {}
        }
    }
    match has_room(request, seen) {
        None => Some(Choice::ReadShares(id())),
        Some(true) => Some(Choice::Use(id())),
        Some(false) => None,
    }
}

/// Whether an account fits, or is one of ours that lacks nothing but its private endpoint: one that was interrupted, whose
/// endpoint is made before its first share.
fn can_be_used(request: &AccountRequest<'_>, account: &StorageAccount) -> bool {
    match fit(request, account) {
        Fit::Fits => true,
        Fit::Differs(Mismatch::PrivateEndpoint) => is_of_request(request, account),
        Fit::Differs(_) => false,
    }
}

/// Whether an account has a name that the class gives to new ones.
fn is_of_request(request: &AccountRequest<'_>, account: &StorageAccount) -> bool {
    (0..MOST_NAMES).any(|number| candidate_name(request, number) == account.name())
}

/// An account of ours whose file service is not as the class wants it: one that was interrupted, if it holds no share.
/// One that holds shares was changed by a person.
fn finish(request: &AccountRequest<'_>, seen: &AccountSeen<'_>) -> Option<Choice> {
    match seen.shares {
        _ if !is_of_request(request, seen.account) => None,
        None => Some(Choice::ReadShares(seen.account.id.clone())),
        Some(used) if used.shares == 0 => {
            Some(Choice::FinishFileService { account: seen.account.id.clone(), spec: request.file_service() })
        }
        Some(_) => None,
    }
}

/// Chooses the account of a claim.
///
/// `seen` are the accounts of the resource group in the order of Azure's list. `taken` are names of new accounts that
/// Azure has refused as another's. `random` is drawn once for a claim.
pub fn choose(request: &AccountRequest<'_>, seen: &[AccountSeen<'_>], taken: &BTreeSet<String>, random: u64) -> Choice {
    match &request.class.account {
        AccountSource::Named { name, create } => choose_named(request, name, *create, seen, taken),
        AccountSource::Own => choose_new(request, seen, taken, Own::Only),
        AccountSource::Matching { pick, .. } => {
            if let Some(holder) = holder(request, seen) {
                return Choice::Use(holder.account.id.clone());
            }
            let fitting: Vec<&AccountSeen<'_>> =
                seen.iter().filter(|seen| can_be_used(request, seen.account)).collect();
            let first = match pick {
                Pick::First => 0,
                Pick::Random => usize::try_from(random % (fitting.len().max(1) as u64)).unwrap_or(0),
            };
            let (before, from) = fitting.split_at(first);
            let found = from.iter().chain(before).find_map(|seen| take(request, seen));
            match (found, unread(request, &fitting)) {
                (Some(Choice::Use(_)) | None, Some(unread)) => Choice::ReadShares(unread.account.id.clone()),
                (Some(choice), _) => choice,
                (None, None) => choose_new(request, seen, taken, Own::No),
            }
        }
    }
}

/// The account in which an earlier try of the claim made the share: it is used even if it has no room for another one.
/// A share that the class names may be anybody's, and is used where the account fits alone.
fn holder<'a, 'b>(request: &AccountRequest<'_>, seen: &'b [AccountSeen<'a>]) -> Option<&'b AccountSeen<'a>> {
    let is_of_request = matches!(request.class.share, ShareNaming::Generated { .. });
    seen.iter().find(|seen| seen.holds_share && (is_of_request || fit(request, seen.account) == Fit::Fits))
}

fn choose_named(
    request: &AccountRequest<'_>,
    name: &str,
    create: bool,
    seen: &[AccountSeen<'_>],
    taken: &BTreeSet<String>,
) -> Choice {
    let account = match request.id(name) {
        Ok(account) => account,
        Err(error) => return Choice::Refused(Refusal::NoId(error)),
    };
    let exists = seen.iter().any(|seen| seen.account.id == account);
    if exists || !create {
        return Choice::Use(account);
    }
    if taken.contains(name) {
        return Choice::Refused(Refusal::NameTaken(name.to_owned()));
    }
    create_or_refuse(request, account)
}

/// Whether an account that exists under a candidate's name is taken for what it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Own {
    /// It was considered among all others, and does not fit or has no room.
    No,
    /// Only accounts of these names are considered.
    Only,
}

fn choose_new(request: &AccountRequest<'_>, seen: &[AccountSeen<'_>], taken: &BTreeSet<String>, own: Own) -> Choice {
    let mut last = String::new();
    if own == Own::Only
        && let Some(holder) = holder(request, seen)
    {
        return Choice::Use(holder.account.id.clone());
    }
    for number in 0..MOST_NAMES {
        let name = candidate_name(request, number);
        let existing = seen.iter().find(|seen| seen.account.name().eq_ignore_ascii_case(&name));
        match existing {
            Some(seen) if own == Own::Only && can_be_used(request, seen.account) => {
                if let Some(choice) = take(request, seen) {
                    return choice;
                }
            }
            Some(_) => {}
            None if taken.contains(&name) => {}
            None => {
                return match request.id(&name) {
                    Ok(account) => create_or_refuse(request, account),
                    Err(error) => Choice::Refused(Refusal::NoId(error)),
                };
            }
        }
        last = name;
    }
    Choice::Refused(Refusal::NoNameLeft(last))
}

fn create_or_refuse(request: &AccountRequest<'_>, account: ArmId) -> Choice {
    let network = match &request.class.endpoint {
        Endpoint::Any => None,
        Endpoint::Subnets(subnets) => Some(network::Wanted::ServiceEndpoints(subnets.clone())),
        Endpoint::Private(network) => Some(network::Wanted::Zone((**network).clone())),
    };
    let (spec, file_service) = (request.spec(), request.file_service());
    Choice::Create(Box::new(Candidate { account, spec, file_service, network }))
}

/// Lets an account be matched again after a share of it was deleted, as the Go driver does. Other tags stay.
pub fn clear_skip_matching(account: &StorageAccount) -> Option<AccountWrite> {
    tags::find(&account.tags, SKIP_MATCHING)?;
    let tags: BTreeMap<String, String> = account
        .tags
        .iter()
        .filter(|(name, _)| !name.eq_ignore_ascii_case(SKIP_MATCHING))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    Some(AccountWrite::Tags { account: account.id.clone(), tags })
}
