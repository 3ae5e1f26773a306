//! Documents of the emulator's own that tell of storage accounts: no request names them, and no answer shows them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::derived;

/// The type of deleted shares that can come back.
pub(crate) const DELETED: &str = "Microsoft.Storage/storageAccounts/fileServices/deletedShares";
/// The type of names that are not free yet.
pub(crate) const HELD: &str = "Microsoft.Storage/storageAccounts/fileServices/heldNames";
/// The type of leases of shares.
pub(crate) const LEASE: &str = "Microsoft.Storage/storageAccounts/fileServices/shareLeases";
/// The member with the moment at which any of these is over, in nanoseconds of Unix time.
pub(crate) const OVER: &str = "over";
/// The type of the document that counts how often the keys of an account have been drawn. It outlives the account.
pub(crate) const KEYS: &str = "lazuli/storageKeys";

/// The id of the document of the type [`KEYS`].
pub(crate) fn keys_id(account: &str) -> String {
    format!("/lazuli/storageKeys/{}", account.to_ascii_lowercase())
}

/// A key of an account that has been drawn so often. It follows from the emulator's seed.
pub(crate) fn key(seed: u64, account: &str, name: &str, times: u64) -> String {
    let part = |part: u64| derived::drawn(seed, &format!("storageKeys/{account}/{name}/{times}/{part}")).to_be_bytes();
    let bytes: Vec<u8> = (0..8).flat_map(part).collect();
    STANDARD.encode(bytes)
}
