//! In which storage accounts blob disks are made.
//!
//! - `Shared`: a pool as that of the in-tree plugin of Kubernetes 1.7, whose accounts it joins: their names begin with `ds`,
//!   and they have the tag `created-by: azure-dd`. An account takes [`DISKS_PER_ACCOUNT`] disks, because all disks of an
//!   account share its 20,000 operations per second. The pool of a SKU and region gets one more account above half full,
//!   and all pools together have at most [`MOST_ACCOUNTS`].
//! - `Dedicated`: an account for each disk. Its tag `skip-matching` keeps drivers of file shares away from it, and its tag
//!   [`DISK_TAG`] names the disk.
//! - `storageAccount`: that one. It is never made.
//!
//! ```text
//!   accounts, their blobs, what is placed, requests ──▶ plan ──▶ joins, accounts to make, blobs to list first, refusals
//! ```
//!
//! A name follows from the cluster and from a number or the disk, so that two replicas that plan the same account make one.
//! A name that somebody else has gives the next one.
//!
//! A request that comes again, to another process, must find the disk that its first try made. So nothing is placed before
//! the blobs of each account of its pool are known.

use std::collections::{BTreeMap, BTreeSet};

use lazuli_model::{
    AccountKind, BlobUri, ProvisioningState, StorageAccount, StorageSku, digest, fault::Fault, op::AccountSpec, tags,
};

use crate::class::{BlobClass, Place, SKUS};

/// The container of the disks that a driver makes (source: the in-tree plugin of Kubernetes 1.7).
pub const CONTAINER: &str = "vhds";

/// How many disks an account of the pool gets (source: the in-tree plugin).
pub const DISKS_PER_ACCOUNT: usize = 60;

/// How many disks an account has on the average before the pool grows: half of [`DISKS_PER_ACCOUNT`] (source: the in-tree
/// plugin).
const DISKS_BEFORE_GROWTH: usize = DISKS_PER_ACCOUNT / 2;

/// How many accounts the pools of a cluster have (source: the in-tree plugin, which leaves the other half of what a
/// subscription had to others).
pub const MOST_ACCOUNTS: usize = 100;

/// How many names are tried for the account of one disk.
const MOST_NAMES: u32 = 20;

/// How the names of the pool's accounts begin (source: the in-tree plugin).
const SHARED_PREFIX: &str = "ds";

/// How the names of accounts of one disk begin (source: the in-tree plugin).
const DEDICATED_PREFIX: &str = "dd";

/// How long the names are that are given to accounts: the longest that Azure takes.
const NAME_LENGTH: usize = 24;

/// The tag that says that a driver made an account for disks (source: the in-tree plugin).
pub const CREATED_BY: (&str, &str) = ("created-by", "azure-dd");

/// The tag with which the drivers of file shares, or a person, keep an account from being matched. Its value does not count
/// (source: the Go driver of file shares).
pub const SKIP_MATCHING: &str = "skip-matching";

/// The tag that names the disk of an account that was made for it alone.
pub const DISK_TAG: &str = "lazuli-blob-disk";

const MINIMUM_TLS: &str = "TLS1_2";

/// The names of the blobs in the container of disks of an account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Blobs {
    /// These.
    Known(BTreeSet<String>),
    /// They have not been listed.
    Unread,
    /// Azure does not list them.
    Unreadable,
}

/// An account of the cluster's resource group.
#[derive(Debug, Clone)]
pub struct Seen {
    /// As Azure shows it.
    pub account: StorageAccount,
    /// What it holds. It counts for accounts of the pool alone.
    pub blobs: Blobs,
}

/// What is known.
#[derive(Debug, Clone)]
pub struct Evidence {
    /// What names accounts apart from those of other clusters: subscription, resource group and name of the cluster.
    pub cluster: String,
    /// Whether the cloud is Azure Stack Hub.
    pub is_stack_hub: bool,
    /// All accounts of the cluster's resource group.
    pub accounts: Vec<Seen>,
    /// The disks that were given an account and that no list has shown yet: blob and account.
    pub placed: BTreeMap<String, String>,
    /// The accounts that are being made, and that the list may lack.
    pub making: Vec<NewAccount>,
    /// The names that belong to somebody else, in any subscription.
    pub taken: BTreeSet<String>,
}

/// A request for an account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The name of the blob, which tells requests apart.
    pub blob: String,
    /// Where the class wants it.
    pub place: Place,
    /// The SKU; for a named account what the class says of it.
    pub sku: Option<StorageSku>,
    /// The region.
    pub location: String,
}

impl Request {
    /// The request for the account of a disk.
    pub fn of(class: &BlobClass) -> Self {
        Self { blob: class.blob.clone(), place: class.place.clone(), sku: class.sku, location: class.location.clone() }
    }

    fn sku(&self) -> StorageSku {
        self.sku.unwrap_or(StorageSku::StandardLrs)
    }
}

/// An account that is to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewAccount {
    /// Its name.
    pub name: String,
    /// What its PUT says.
    pub spec: AccountSpec,
}

/// What is to be done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// The account of each request that has one: blob and account. The account may still be in the making.
    pub joins: BTreeMap<String, String>,
    /// The accounts to make.
    pub makes: Vec<NewAccount>,
    /// The accounts whose blobs must be listed first. The requests that wait for it are in none of the other fields.
    pub reads: BTreeSet<String>,
    /// The requests that get none, by blob.
    pub refused: BTreeMap<String, Refusal>,
}

/// Why a request gets no account.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The pool cannot grow any more.
    #[error(
        "the pool of {sku} in {location} is full: its accounts have {DISKS_PER_ACCOUNT} disks each, and the pools of the cluster \
         have {MOST_ACCOUNTS} accounts; delete disks, or name an account with the parameter storageAccount"
    )]
    PoolIsFull {
        /// The SKU of the pool.
        sku: StorageSku,
        /// Its region.
        location: String,
    },
    /// The blobs of an account of the pool cannot be listed: it may hold the disk.
    #[error(
        "the blobs of the storage account {0} cannot be listed, and it may hold the disk; give the driver access to it, or \
         take it out of the pool with the tag {SKIP_MATCHING}"
    )]
    Unreadable(String),
    /// There is no account of the name.
    #[error("there is no storage account {0} in the resource group of the cluster; make it, or name another one")]
    NoAccount(String),
    /// The account cannot have disks.
    #[error("the storage account {account} cannot have blob disks: {why}; name another one")]
    Unfit {
        /// The account.
        account: String,
        /// Why.
        why: &'static str,
    },
    /// The account has another SKU than the class says.
    #[error(
        "the storage account {account} has the SKU {actual}, and the class says {asked}; say the account's SKU, or none"
    )]
    OtherSku {
        /// The account.
        account: String,
        /// Its SKU.
        actual: StorageSku,
        /// The class's.
        asked: StorageSku,
    },
    /// All names for the account of a disk belong to others.
    #[error(
        "the {MOST_NAMES} names for the storage account of the disk {0} belong to other accounts; delete them, or give the \
             claim another name"
    )]
    NamesAreTaken(String),
}

impl Refusal {
    /// What a caller may do about it.
    pub fn fault(&self) -> Fault {
        match self {
            Self::PoolIsFull { .. } | Self::NamesAreTaken(_) => Fault::Exhausted,
            Self::Unreadable(_) => Fault::Unavailable,
            Self::NoAccount(_) | Self::Unfit { .. } | Self::OtherSku { .. } => Fault::Invalid,
        }
    }
}

fn tag<'a>(account: &'a StorageAccount, name: &str) -> Option<&'a str> {
    tags::find(&account.tags, name).map(|(_, value)| value.as_str())
}

/// Whether a driver made it for disks.
fn is_made_for_disks(account: &StorageAccount) -> bool {
    tag(account, CREATED_BY.0) == Some(CREATED_BY.1)
}

/// Whether a driver made it for one disk.
pub(crate) fn is_of_one_disk(account: &StorageAccount) -> bool {
    let is_named_so = account.name().starts_with(DEDICATED_PREFIX);
    is_made_for_disks(account) && (is_named_so || tag(account, DISK_TAG).is_some())
}

/// Whether it belongs to the pools of clusters, whatever its SKU. The name alone would take accounts of people.
pub(crate) fn is_shared(account: &StorageAccount) -> bool {
    account.name().starts_with(SHARED_PREFIX) && is_made_for_disks(account)
}

/// Why an account cannot have disks.
fn unfit(account: &StorageAccount) -> Option<&'static str> {
    match account {
        StorageAccount { kind: None | Some(AccountKind::FileStorage | AccountKind::BlobStorage), .. }
        | StorageAccount { kind: Some(AccountKind::BlockBlobStorage), .. } => {
            Some("its kind has no page blobs, expected StorageV2 or Storage")
        }
        StorageAccount { sku, .. } if !sku.is_some_and(|sku| SKUS.contains(&sku)) => {
            Some("its SKU has no disks, expected Standard_LRS, Standard_GRS, Standard_RAGRS or Premium_LRS")
        }
        StorageAccount { hierarchical_namespace: Some(true), .. } => Some("it has a hierarchical namespace"),
        StorageAccount { allow_shared_key_access: Some(false), .. } => Some("it does not allow access with its keys"),
        StorageAccount { provisioning_state: ProvisioningState::Succeeded | ProvisioningState::InProgress, .. } => None,
        StorageAccount { .. } => Some("it has not been made or changed completely"),
    }
}

/// Azure writes `West Europe` in some places and `westeurope` in others.
fn folded(location: &str) -> String {
    location.chars().filter(|letter| !letter.is_whitespace()).collect::<String>().to_lowercase()
}

/// The fields, each with its length, so that no two lists of fields have one text.
fn name(prefix: &str, fields: &[&str]) -> String {
    let text: String = fields.iter().map(|field| format!("{}:{field};", field.len())).collect();
    let mut name = format!("{prefix}{}", digest::hex(text.as_bytes()));
    name.truncate(NAME_LENGTH);
    name
}

/// The name of an account of the pool.
fn shared_name(cluster: &str, sku: StorageSku, location: &str, number: usize) -> String {
    name(SHARED_PREFIX, &[&cluster.to_lowercase(), sku.as_str(), &folded(location), &number.to_string()])
}

/// The names of the account of a disk, first choice first. Nothing but the cluster and the disk decides, so that the
/// deletion of the disk knows them too.
pub(crate) fn dedicated_names(cluster: &str, blob: &str) -> impl Iterator<Item = String> {
    (0..MOST_NAMES).map(move |number| name(DEDICATED_PREFIX, &[&cluster.to_lowercase(), blob, &number.to_string()]))
}

/// Whether only the account that this cluster made for this disk alone has the name.
pub fn is_dedicated_name(cluster: &str, blob: &str, account: &str) -> bool {
    dedicated_names(cluster, blob).any(|name| name == account)
}

/// Whether an account was made for this disk alone, by this cluster: by its name and by its tags.
pub fn is_dedicated_to(account: &StorageAccount, cluster: &str, blob: &str) -> bool {
    is_made_for_disks(account)
        && tag(account, SKIP_MATCHING).is_some()
        && tag(account, DISK_TAG) == Some(blob)
        && is_dedicated_name(cluster, blob, account.name())
}

/// What names the accounts of a cluster apart from those of others ([`Evidence::cluster`]).
pub fn cluster_key(subscription: &str, resource_group: &str, name: &str) -> String {
    format!("{subscription}/{resource_group}/{name}").to_lowercase()
}

/// In which containers of which accounts there may be disks of this cluster's kind: those that addresses name, and the
/// container of disks of each account that a driver made for disks.
pub fn containers_to_list(
    accounts: &[StorageAccount],
    addresses: impl IntoIterator<Item = BlobUri>,
) -> Vec<(StorageAccount, BTreeSet<String>)> {
    let mut named: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for address in addresses {
        named.entry(address.account().to_owned()).or_default().insert(address.container().to_owned());
    }
    let containers = |account: &StorageAccount| {
        let mut containers = named.get(account.name()).cloned().unwrap_or_default();
        if is_made_for_disks(account) {
            containers.insert(CONTAINER.to_owned());
        }
        containers
    };
    let listed = accounts.iter().map(|account| (account.clone(), containers(account)));
    listed.filter(|(_, containers)| !containers.is_empty()).collect()
}

fn spec(request: &Request, disk: Option<&str>, is_stack_hub: bool) -> AccountSpec {
    let text = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    let mut tags = BTreeMap::from([text(CREATED_BY)]);
    tags.extend(disk.into_iter().flat_map(|disk| [text((SKIP_MATCHING, "true")), text((DISK_TAG, disk))]));
    AccountSpec {
        location: request.location.clone(),
        sku: request.sku(),
        // Azure Stack Hub has general purpose v1 alone.
        kind: if is_stack_hub { AccountKind::Storage } else { AccountKind::StorageV2 },
        tags,
        access_tier: None,
        https_only: true,
        minimum_tls_version: MINIMUM_TLS,
        allow_blob_public_access: (!is_stack_hub).then_some(false),
        allow_shared_key_access: (!is_stack_hub).then_some(true),
        allow_cross_tenant_replication: None,
        require_infrastructure_encryption: None,
        large_file_shares: None,
        public_network_access: None,
        network_rules: None,
    }
}

/// Which account each request gets, and what is done for it. Requests that come first are served first; a blob counts once.
pub fn plan(evidence: &Evidence, requests: &[Request]) -> Plan {
    let mut planner = Planner { evidence, plan: Plan::default() };
    let mut pools: Vec<((StorageSku, String), Vec<&Request>)> = Vec::new();
    for request in requests {
        match &request.place {
            Place::Account(account) => planner.named(request, account),
            Place::Dedicated => planner.dedicated(request),
            Place::Shared => {
                let key = (request.sku(), folded(&request.location));
                match pools.iter_mut().find(|(known, _)| *known == key) {
                    Some((_, pool)) if pool.iter().any(|other| other.blob == request.blob) => {}
                    Some((_, pool)) => pool.push(request),
                    None => pools.push((key, vec![request])),
                }
            }
        }
    }
    for (key, pool) in &pools {
        planner.shared(key, pool);
    }
    planner.plan
}

/// What an earlier try of a request has begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Earlier {
    /// The disk was given this account, or is in it; or the account is the disk's own.
    In(String),
    /// The blobs of these accounts must be known first.
    Unread(BTreeSet<String>),
    /// The blobs of this account cannot be known.
    Unreadable(String),
    /// Nothing.
    Nothing,
}

/// What an earlier try of a request has begun, in whatever account its class named or chose.
pub fn earlier(evidence: &Evidence, request: &Request) -> Earlier {
    let exists = |name: &&String| {
        let is_listed = evidence.accounts.iter().any(|seen| seen.account.name() == **name);
        is_listed || evidence.making.iter().any(|new| new.name == **name)
    };
    if let Some(account) = evidence.placed.get(&request.blob).filter(exists) {
        return Earlier::In(account.clone());
    }
    let may_have_it = |seen: &&Seen| match &request.place {
        Place::Shared => is_shared(&seen.account),
        Place::Dedicated => false,
        Place::Account(name) => seen.account.name() == name,
    };
    let is_its_own = |seen: &&Seen| {
        request.place == Place::Dedicated && is_dedicated_to(&seen.account, &evidence.cluster, &request.blob)
    };
    let has_it = |seen: &&Seen| matches!(&seen.blobs, Blobs::Known(blobs) if blobs.contains(&request.blob));
    let candidates = || evidence.accounts.iter().filter(may_have_it);
    let name = |seen: &Seen| seen.account.name().to_owned();
    let found = evidence.accounts.iter().find(is_its_own).or_else(|| candidates().find(has_it));
    let unread: BTreeSet<String> = candidates().filter(|seen| seen.blobs == Blobs::Unread).map(name).collect();
    // The tag is the way out for a person who knows that the account does not answer.
    let is_left_out = |seen: &&Seen| request.place == Place::Shared && tag(&seen.account, SKIP_MATCHING).is_some();
    let mut unreadable = candidates().filter(|seen| seen.blobs == Blobs::Unreadable && !is_left_out(seen)).map(name);
    match (found.map(name), unreadable.next()) {
        (Some(account), _) => Earlier::In(account),
        (None, Some(account)) => Earlier::Unreadable(account),
        (None, None) if unread.is_empty() => Earlier::Nothing,
        (None, None) => Earlier::Unread(unread),
    }
}

/// An account of a pool, and how many disks it has with those that were given a place.
#[derive(Debug)]
struct Member {
    name: String,
    disks: usize,
    /// Its place among those that have as many: an account that is there comes before one that must be waited for.
    rank: u8,
}

struct Planner<'a> {
    evidence: &'a Evidence,
    plan: Plan,
}

impl Planner<'_> {
    fn join(&mut self, request: &Request, account: &str) {
        self.plan.joins.insert(request.blob.clone(), account.to_owned());
    }

    fn refuse(&mut self, request: &Request, refusal: Refusal) {
        self.plan.refused.insert(request.blob.clone(), refusal);
    }

    fn listed(&self, name: &str) -> Option<&StorageAccount> {
        self.evidence.accounts.iter().map(|seen| &seen.account).find(|account| account.name() == name)
    }

    fn in_the_making(&self) -> impl Iterator<Item = &NewAccount> {
        self.evidence.making.iter().chain(&self.plan.makes).filter(|new| self.listed(&new.name).is_none())
    }

    fn named(&mut self, request: &Request, name: &str) {
        let Some(account) = self.listed(name) else {
            return self.refuse(request, Refusal::NoAccount(name.to_owned()));
        };
        if let Some(why) = unfit(account) {
            return self.refuse(request, Refusal::Unfit { account: name.to_owned(), why });
        }
        let is_premium = |sku: StorageSku| sku == StorageSku::PremiumLrs;
        match (account.sku, request.sku) {
            // What counts is the hardware: the account's redundancy is its owner's choice.
            (Some(actual), Some(asked)) if is_premium(actual) != is_premium(asked) => {
                self.refuse(request, Refusal::OtherSku { account: name.to_owned(), actual, asked });
            }
            _ => self.join(request, name),
        }
    }

    fn dedicated(&mut self, request: &Request) {
        let evidence = self.evidence;
        let is_its = |account: &&StorageAccount| is_dedicated_to(account, &evidence.cluster, &request.blob);
        let accounts = || evidence.accounts.iter().map(|seen| &seen.account);
        if let Some(account) = accounts().find(is_its) {
            return match unfit(account) {
                None => self.join(request, account.name()),
                Some(why) => self.refuse(request, Refusal::Unfit { account: account.name().to_owned(), why }),
            };
        }
        for name in dedicated_names(&evidence.cluster, &request.blob) {
            if self.in_the_making().any(|new| new.name == name) {
                return self.join(request, &name);
            }
            if evidence.taken.contains(&name) || self.listed(&name).is_some() {
                continue;
            }
            let spec = spec(request, Some(&request.blob), evidence.is_stack_hub);
            self.plan.makes.push(NewAccount { name: name.clone(), spec });
            return self.join(request, &name);
        }
        self.refuse(request, Refusal::NamesAreTaken(request.blob.clone()));
    }

    /// The accounts of a pool, and how many disks each has.
    fn members(&self, (sku, location): &(StorageSku, String)) -> Vec<Member> {
        let placed = &self.evidence.placed;
        let placed_in =
            |name: &str| placed.iter().filter(|(_, of)| *of == name).map(|(blob, _)| blob).collect::<Vec<_>>();
        let is_member = |account: &StorageAccount| {
            is_shared(account)
                && account.sku == Some(*sku)
                && folded(&account.location) == *location
                && tag(account, SKIP_MATCHING).is_none()
                && unfit(account).is_none()
        };
        let none = BTreeSet::new();
        let listed = self.evidence.accounts.iter().filter(|seen| is_member(&seen.account)).map(|seen| {
            let name = seen.account.name();
            let known = if let Blobs::Known(blobs) = &seen.blobs { blobs } else { &none };
            let disks = known.len() + placed_in(name).into_iter().filter(|blob| !known.contains(*blob)).count();
            let is_there = seen.account.provisioning_state == ProvisioningState::Succeeded;
            Member { name: name.to_owned(), disks, rank: if is_there { 0 } else { 1 } }
        });
        let making = self
            .in_the_making()
            .filter(|new| new.name.starts_with(SHARED_PREFIX))
            .filter(|new| new.spec.sku == *sku && folded(&new.spec.location) == *location)
            .map(|new| Member { name: new.name.clone(), disks: placed_in(&new.name).len(), rank: 1 });
        listed.chain(making).collect()
    }

    /// The account that has the disk of a request, by a list. The class may have another SKU since.
    fn home(&self, blob: &str) -> Option<String> {
        let holds = |seen: &&Seen| {
            is_shared(&seen.account) && matches!(&seen.blobs, Blobs::Known(blobs) if blobs.contains(blob))
        };
        self.evidence.accounts.iter().find(holds).map(|seen| seen.account.name().to_owned())
    }

    /// The account that an earlier try was given here. It may have made the disk there, unless another process has led
    /// meanwhile, and has made it elsewhere.
    fn given(&self, blob: &str) -> Option<String> {
        let exists = |name: &&String| self.listed(name).is_some() || self.in_the_making().any(|new| new.name == **name);
        self.evidence.placed.get(blob).filter(exists).cloned()
    }

    fn shared(&mut self, key: &(StorageSku, String), requests: &[&Request]) {
        let mut new = Vec::new();
        for request in requests {
            match self.home(&request.blob) {
                Some(account) => self.join(request, &account),
                None => new.push(*request),
            }
        }
        if new.is_empty() {
            return;
        }
        let mut members = self.members(key);
        let evidence = self.evidence;
        let blobs_of = |member: &Member| {
            // What is being made here holds only what was placed here.
            let is_ours = evidence.making.iter().any(|new| new.name == member.name);
            let seen = evidence.accounts.iter().find(|seen| seen.account.name() == member.name);
            seen.filter(|_| !is_ours).map(|seen| &seen.blobs)
        };
        let unread: BTreeSet<String> = members
            .iter()
            .filter(|member| blobs_of(member) == Some(&Blobs::Unread))
            .map(|member| member.name.clone())
            .collect();
        let unreadable = members.iter().find(|member| blobs_of(member) == Some(&Blobs::Unreadable));
        if let Some(name) = unreadable.map(|member| member.name.clone()) {
            return new.into_iter().for_each(|request| self.refuse(request, Refusal::Unreadable(name.clone())));
        }
        if !unread.is_empty() {
            self.plan.reads.extend(unread);
            return;
        }
        new.retain(|request| match self.given(&request.blob) {
            Some(account) => {
                self.join(request, &account);
                false
            }
            None => true,
        });
        for number in self.free_numbers(key, self.growth(&members, new.len())) {
            let name = shared_name(&self.evidence.cluster, key.0, &key.1, number);
            members.push(Member { name: name.clone(), disks: 0, rank: 2 });
            let spec = spec(new[0], None, self.evidence.is_stack_hub);
            self.plan.makes.push(NewAccount { name, spec });
        }
        for request in new {
            let free = members.iter_mut().filter(|member| member.disks < DISKS_PER_ACCOUNT);
            match free
                .min_by(|one, other| (one.disks, one.rank, &one.name).cmp(&(other.disks, other.rank, &other.name)))
            {
                Some(member) => {
                    member.disks += 1;
                    let name = member.name.clone();
                    self.join(request, &name);
                }
                None => {
                    let location = request.location.clone();
                    self.refuse(request, Refusal::PoolIsFull { sku: key.0, location });
                }
            }
        }
    }

    /// By how many accounts a pool grows for so many new disks: to where it is at most half full with them, and never by an
    /// account that none of them would go to.
    fn growth(&self, members: &[Member], new: usize) -> usize {
        let disks: usize = members.iter().map(|member| member.disks).sum();
        let empty = members.iter().filter(|member| member.disks == 0).count();
        let needed = (disks + new).div_ceil(DISKS_BEFORE_GROWTH).saturating_sub(members.len());
        let of_pools = self.evidence.accounts.iter().filter(|seen| is_shared(&seen.account)).count()
            + self.in_the_making().filter(|new| new.name.starts_with(SHARED_PREFIX)).count();
        needed.min(new.saturating_sub(empty)).min(MOST_ACCOUNTS.saturating_sub(of_pools))
    }

    /// The first numbers whose names nobody has.
    fn free_numbers(&self, (sku, location): &(StorageSku, String), count: usize) -> Vec<usize> {
        let evidence = self.evidence;
        let is_free = |number: &usize| {
            let name = shared_name(&evidence.cluster, *sku, location, *number);
            !evidence.taken.contains(&name)
                && self.listed(&name).is_none()
                && self.in_the_making().all(|new| new.name != name)
        };
        (0..).filter(is_free).take(count).collect()
    }
}

#[cfg(test)]
mod tests;
