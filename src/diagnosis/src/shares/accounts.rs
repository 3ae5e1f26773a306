//! Storage accounts that stand in the way of their shares: by their keys, their network, their limits.

use lazuli_model::{AccountNetworkAccess, ArmId, NetworkAction, StorageAccount};
use lazuli_shares::{
    account::ShareUse,
    limits::{quota_per_account, share_size, shares_per_account},
};

use super::{
    super::{Finding, Grade, some},
    AccountShares, ShareVolume, is_of_driver, volumes_named,
};

/// The check of keys.
pub const KEYS: &str = "keys of storage accounts";
/// The check of the network.
pub const NETWORK: &str = "network of storage accounts";
/// The check of limits.
pub const LIMITS: &str = "limits of storage accounts";

/// How a sentence begins that tells why no account is looked at.
const NO_VOLUME: &str = "no PersistentVolume names a storage account in the resource groups that are listed";

/// The accounts that volumes name, with the names of those volumes.
fn used<'a>(accounts: &'a [AccountShares], volumes: &'a [ShareVolume]) -> Vec<(&'a StorageAccount, Vec<&'a str>)> {
    let with_volumes = accounts.iter().map(|of| (&of.account, of.volumes(volumes)));
    with_volumes.filter(|(_, names)| !names.is_empty()).collect()
}

fn or_fine(findings: Vec<Finding>, fine: impl FnOnce() -> Finding) -> Vec<Finding> {
    if findings.is_empty() { vec![fine()] } else { findings }
}

/// Accounts that take no key: nodes mount with one.
pub fn keys(accounts: &[AccountShares], volumes: &[ShareVolume]) -> Vec<Finding> {
    let used = used(accounts, volumes);
    let refusing = used.iter().filter(|(account, _)| account.allow_shared_key_access == Some(false));
    let finding = |(account, names): &(&StorageAccount, Vec<&str>)| {
        let text = format!(
            "storage account {} takes no key (allowSharedKeyAccess is false), and nodes mount its shares with one: {} cannot \
             be mounted; set allowSharedKeyAccess to true (az storage account update --allow-shared-key-access true)",
            account.name(),
            volumes_named(names)
        );
        Finding::new(KEYS, Grade::Wrong, text)
    };
    or_fine(refusing.map(finding).collect(), || match used.len() {
        0 => Finding::new(KEYS, Grade::Fine, NO_VOLUME),
        count => Finding::new(KEYS, Grade::Fine, format!("each of {count} that PersistentVolumes name takes its keys")),
    })
}

/// Accounts that nodes cannot reach. `subnet` is the one that the configuration names. What an account's IP rules let in is
/// not looked at, so an account that keeps the subnet out is a note.
pub fn network(accounts: &[AccountShares], volumes: &[ShareVolume], subnet: Option<&ArmId>) -> Vec<Finding> {
    let used = used(accounts, volumes);
    let findings = used.iter().filter_map(|(account, names)| unreachable(account, names, subnet)).collect();
    or_fine(findings, || match used.len() {
        0 => Finding::new(NETWORK, Grade::Fine, NO_VOLUME),
        count => {
            let text =
                format!("each of {count} that PersistentVolumes name lets the nodes in, or has a private endpoint");
            Finding::new(NETWORK, Grade::Fine, text)
        }
    })
}

fn unreachable(account: &StorageAccount, names: &[&str], subnet: Option<&ArmId>) -> Option<Finding> {
    let (name, volumes) = (account.name(), volumes_named(names));
    if !account.private_endpoint_connections.is_empty() {
        return None;
    }
    if account.public_network_access == Some(AccountNetworkAccess::Disabled) {
        let text = format!(
            "storage account {name} cannot be reached: its public network access is Disabled and it has no private endpoint; \
             {volumes} cannot be mounted; make a private endpoint for its file service, or enable the access"
        );
        return Some(Finding::new(NETWORK, Grade::Wrong, text));
    }
    let rules = account.network_rules.as_ref().filter(|rules| rules.default_action == NetworkAction::Deny)?;
    let Some(subnet) = subnet else {
        let text = format!(
            "storage account {name} lets in only what its rules name (default action Deny), and the configuration does not \
             name the nodes' subnet (vnetName, subnetName), so it is not known whether {volumes} can be mounted"
        );
        return Some(Finding::new(NETWORK, Grade::Unseen, text));
    };
    let allows =
        rules.virtual_networks.iter().any(|rule| rule.subnet == *subnet && rule.action == NetworkAction::Allow);
    (!allows).then(|| {
        let text = format!(
            "storage account {name} keeps subnet {} of the configuration out (default action Deny, and no virtual network \
             rule names the subnet): nodes there cannot mount {volumes}, unless an IP rule lets them in; add the rule, or \
             make a private endpoint",
            subnet.name()
        );
        Finding::new(NETWORK, Grade::Note, text)
    })
}

/// Accounts that take no further share: those of volumes, and those with a share that a driver made.
pub fn limits(accounts: &[AccountShares], volumes: &[ShareVolume]) -> Vec<Finding> {
    let is_ours = |of: &&AccountShares| !of.volumes(volumes).is_empty() || of.shares.iter().any(is_of_driver);
    let ours: Vec<&AccountShares> = accounts.iter().filter(is_ours).collect();
    let full: Vec<String> = ours.iter().filter_map(|of| full(of)).collect();
    let finding = |text: String| Finding::new(LIMITS, Grade::Note, text);
    or_fine(full.into_iter().map(finding).collect(), || {
        let names: Vec<&str> = ours.iter().map(|of| of.account.name()).collect();
        let text = match names.len() {
            0 => "no storage account holds a share of a driver".to_owned(),
            _ => format!("each account with shares of a driver takes more of them: {}", some(&names)),
        };
        Finding::new(LIMITS, Grade::Fine, text)
    })
}

/// Why an account takes no further share, as a sentence.
fn full(of: &AccountShares) -> Option<String> {
    let billing = of.account.sku?.billing();
    let sum = ShareUse::of(&of.shares);
    let deleted = of.shares.iter().filter(|share| share.snapshot.is_none() && share.deleted.is_some()).count();
    let limit = if let Some(most) = shares_per_account(billing).filter(|most| sum.shares >= *most) {
        format!("{} shares, and Azure allows {most}", sum.shares)
    } else {
        let most = quota_per_account(billing).map(|most| u64::from(most.get()))?;
        let least = u64::from(share_size(billing).start().get());
        if sum.quota.saturating_add(least) <= most {
            return None;
        }
        format!("quotas of {} GiB, and Azure allows {most} GiB", sum.quota)
    };
    let kept = match deleted {
        0 => String::new(),
        count => format!("; {count} of the shares are deleted and count until they are gone"),
    };
    Some(format!(
        "storage account {} is full: it holds {limit}{kept}; new shares go to another account, and a class that names this \
         one (storageAccount) gets none",
        of.account.name()
    ))
}
