//! The storage provider: accounts with their keys, file services and file shares.
//!
//! Recorded: the creation of an account answers 202 without a body, with `Location` and `Retry-After: 17`, and so do its
//! polls until the account is there; PATCH and DELETE of accounts are synchronous. Documented: all requests below an
//! account are synchronous; what they refuse, the file service says, with the id and the time of the request in the text.
//! Of queue and table services there are the lists, which are empty; what the provider says of blob services is not
//! emulated. Of the data planes that the endpoints of an account lead to there are blobs ([`crate::blob`]) and the
//! files of SMB shares ([`crate::smb`]).

pub(crate) mod accounts;
pub(crate) mod base;
pub(crate) mod file_services;
pub(crate) mod keys;
pub(crate) mod network_acls;
pub(crate) mod no_services;
pub(crate) mod own_documents;
pub(crate) mod share_base;
pub(crate) mod share_deletion;
pub(crate) mod share_leases;
pub(crate) mod share_lists;
pub(crate) mod share_sizes;
pub(crate) mod share_snapshots;
pub(crate) mod shares;
pub(crate) mod skus;
pub(crate) mod windows;

use self::base::{VERSIONS, of_subscription};
use super::descriptor::Provider;
use super::engine::quotas;
use super::polling;

pub(crate) static PROVIDER: Provider = Provider {
    namespace: "Microsoft.Storage",
    types: &[&accounts::STORAGE_ACCOUNT, &file_services::FILE_SERVICE, &shares::SHARE],
    other_types: &[
        ("checkNameAvailability", VERSIONS),
        ("locations/asyncoperations", VERSIONS),
        ("locations/usages", VERSIONS),
    ],
    routes: &[
        of_subscription("GET", "locations/*/asyncoperations/*", "operations.get", polling::network_result),
        of_subscription("GET", "locations/*/usages", "usages.listByLocation", quotas::usages),
        of_subscription(
            "POST",
            "checknameavailability",
            "storageAccounts.checkNameAvailability",
            accounts::check_name_availability,
        ),
    ],
};
