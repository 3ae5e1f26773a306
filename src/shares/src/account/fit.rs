//! Whether an account has the properties that a class asks for: the same properties as in the Go driver.

use lazuli_model::{ArmId, FileService, NetworkAction, StorageAccount, tags};

use super::AccountRequest;
use crate::{
    network::{PrivateNetwork, Wanted},
    parameters::{AccountSource, Endpoint, SKIP_MATCHING},
};

/// Whether an account fits, by what a list shows of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fit {
    /// All properties are as asked for.
    Fits,
    /// One is not.
    Differs(Mismatch),
}

/// The first property that is not as asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "each is named after the property of the account")]
pub enum Mismatch {
    Sku,
    Kind,
    Location,
    LargeFileShares,
    Tags,
    /// It has the tag `skip-matching`.
    Skipped,
    HierarchicalNamespace,
    NfsV3,
    HttpsOnly,
    AllowBlobPublicAccess,
    RequireInfrastructureEncryption,
    AllowSharedKeyAccess,
    AccessTier,
    PublicNetworkAccess,
    NetworkRules,
    PrivateEndpoint,
}

/// Compares an account with what a claim asks for.
pub fn fit(request: &AccountRequest<'_>, account: &StorageAccount) -> Fit {
    let class = request.class;
    let spec = request.spec();
    let has_tags = |wanted: &std::collections::BTreeMap<String, String>| {
        wanted.iter().all(|(name, value)| tags::find(&account.tags, name).is_some_and(|(_, there)| there == value))
    };
    let by_tags = matches!(class.account, AccountSource::Matching { by_tags: true, .. });
    let is_in = |location: &str| same_location(location, &account.location);
    let reached = class.public_network_access.is_none_or(|wanted| {
        account.public_network_access.unwrap_or(lazuli_model::AccountNetworkAccess::Enabled) == wanted
    });
    let checks = [
        (Mismatch::Sku, class.sku.is_none_or(|sku| account.sku == Some(sku))),
        (Mismatch::Kind, account.kind == Some(spec.kind)),
        (Mismatch::Location, class.location.as_deref().is_none_or(is_in)),
        (
            Mismatch::LargeFileShares,
            class.large_file_shares.is_none_or(|wanted| wanted == account.large_file_shares.unwrap_or(false)),
        ),
        (Mismatch::Tags, !by_tags || has_tags(&spec.tags)),
        (Mismatch::Skipped, tags::find(&account.tags, SKIP_MATCHING).is_none()),
        (Mismatch::HierarchicalNamespace, !account.hierarchical_namespace.unwrap_or(false)),
        (Mismatch::NfsV3, !account.nfs_v3.unwrap_or(false)),
        (Mismatch::HttpsOnly, account.https_only.unwrap_or(true) == spec.https_only),
        (
            Mismatch::AllowBlobPublicAccess,
            account.allow_blob_public_access.unwrap_or(true) == class.allow_blob_public_access,
        ),
        (
            Mismatch::RequireInfrastructureEncryption,
            account.require_infrastructure_encryption.unwrap_or(false)
                == class.require_infrastructure_encryption.unwrap_or(false),
        ),
        (
            Mismatch::AllowSharedKeyAccess,
            account.allow_shared_key_access.unwrap_or(true) == class.allow_shared_key_access.unwrap_or(true),
        ),
        (Mismatch::AccessTier, class.account_access_tier.is_none_or(|tier| account.access_tier == Some(tier))),
        (Mismatch::PublicNetworkAccess, reached),
        (Mismatch::NetworkRules, lets_in(&class.endpoint, account)),
        (
            Mismatch::PrivateEndpoint,
            !matches!(&class.endpoint, Endpoint::Private(network) if !is_reached(network, account)),
        ),
    ];
    match checks.into_iter().find(|(_, is_fine)| !is_fine) {
        Some((mismatch, _)) => Fit::Differs(mismatch),
        None => Fit::Fits,
    }
}

/// Regions are one whether they are written `westeurope` or `West Europe`.
fn same_location(one: &str, other: &str) -> bool {
    let letters =
        |text: &str| text.chars().filter(|c| !c.is_whitespace()).flat_map(char::to_lowercase).collect::<String>();
    letters(one) == letters(other)
}

/// Whether the firewall lets every subnet in that the class names.
fn lets_in(endpoint: &Endpoint, account: &StorageAccount) -> bool {
    let Endpoint::Subnets(subnets) = endpoint else { return true };
    let Some(rules) = &account.network_rules else { return false };
    subnets.iter().all(|subnet| {
        rules.virtual_networks.iter().any(|rule| rule.action == NetworkAction::Allow && rule.subnet == *subnet)
    })
}

/// Whether a private endpoint leads to the account from the network of the class, as far as a list shows that: one that a
/// driver has named is of the network in whose resource group it is. A list shows no subnets of endpoints.
fn is_reached(network: &PrivateNetwork, account: &StorageAccount) -> bool {
    let connections = &account.private_endpoint_connections;
    let wanted = Wanted::endpoint(&account.id, network).ok();
    let wanted = wanted.as_ref().and_then(Wanted::endpoint_id);
    let of_driver = |endpoint: &ArmId| wanted.is_some_and(|wanted| wanted.name().eq_ignore_ascii_case(endpoint.name()));
    let mut made = connections.iter().filter_map(|one| one.endpoint.as_ref()).filter(|one| of_driver(one)).peekable();
    !connections.is_empty() && (made.peek().is_none() || made.any(|one| Some(one) == wanted))
}

/// Whether the file service of an account is as a class asks for.
pub fn fits_file_service(request: &AccountRequest<'_>, service: &FileService) -> bool {
    let wanted = request.file_service();
    wanted.smb_multichannel.is_none_or(|wanted| wanted == service.smb_multichannel.unwrap_or(false))
        && wanted.share_delete_retention.is_none_or(|wanted| wanted == service.share_delete_retention.unwrap_or(true))
}
