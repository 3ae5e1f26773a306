//! How large shares are, how fast, and how many an account has.
//!
//! Documented (storage-files-scale-targets, understanding-billing): 1 to 5,120 GiB where use is paid, to 102,400 with large
//! file shares; provisioned v1 100 to 102,400 GiB, 1,024 shares and 100 TiB in an account; provisioned v2 32 GiB to
//! 256 TiB, 50 shares and 256 TiB in an account, with operations and throughput between the limits below; shares that are
//! soft-deleted count too. The default speeds of v2 are those that a CSI driver computes (azurefile-csi-driver). Unverified:
//! the default sizes of provisioned shares, and how bursts follow from operations.

use serde_json::{Value, json};

use super::skus::{self, Media};
use crate::arm::kinds;
use crate::fault::{self, Fault};
use crate::path;
use crate::state::State;

/// The sizes of an account's shares.
struct Sizes {
    least: u64,
    most: u64,
    default: u64,
    /// Of an account: shares, and GiB of all of them.
    account: Option<(usize, u64)>,
}

fn sizes(account: &Value) -> Sizes {
    match skus::of(account).media {
        Media::PayAsYouGo => {
            let large = account["properties"]["largeFileSharesState"] == "Enabled";
            let most = if large { 102_400 } else { 5_120 };
            Sizes { least: 1, most, default: most, account: None }
        }
        Media::ProvisionedV1 => Sizes { least: 100, most: 102_400, default: 102_400, account: Some((1_024, 102_400)) },
        Media::StandardV2 | Media::PremiumV2 => {
            Sizes { least: 32, most: 262_144, default: 1_024, account: Some((50, 262_144)) }
        }
    }
}

/// Least, default and most of operations a second and of MiB a second, of a share of a size. Only v2 has them.
fn speeds(media: Media, gib: u64) -> Option<[(&'static str, [u64; 3]); 2]> {
    match media {
        Media::StandardV2 => Some([
            ("provisionedIops", [500, (1_000 + gib / 5).min(50_000), 50_000]),
            ("provisionedBandwidthMibps", [60, (60 + gib / 50).min(5_120), 5_120]),
        ]),
        Media::PremiumV2 => Some([
            ("provisionedIops", [3_000, (3_000 + gib).min(102_400), 102_400]),
            ("provisionedBandwidthMibps", [100, (100 + gib / 10).min(10_340), 10_340]),
        ]),
        Media::PayAsYouGo | Media::ProvisionedV1 => None,
    }
}

/// Fills in size and speed of a share.
///
/// # Errors
///
/// `InvalidHeaderValue`, as the file service says for a size that the account does not have; unverified for speeds.
pub(super) fn fill(properties: &mut Value, account: &Value) -> Result<(), Fault> {
    let sizes = sizes(account);
    let gib = match properties.get("shareQuota") {
        None => sizes.default,
        Some(given) => given
            .as_u64()
            .filter(|gib| (sizes.least..=sizes.most).contains(gib))
            .ok_or_else(fault::share_header_invalid)?,
    };
    properties["shareQuota"] = json!(gib);
    let Some(speeds) = speeds(skus::of(account).media, gib) else {
        let given = ["provisionedIops", "provisionedBandwidthMibps"].iter().any(|name| properties.get(name).is_some());
        return if given { Err(fault::share_header_invalid()) } else { Ok(()) };
    };
    for (name, [least, default, most]) in speeds {
        let value = match properties.get(name) {
            None => default,
            Some(given) => {
                given.as_u64().filter(|value| (least..=most).contains(value)).ok_or_else(fault::share_header_invalid)?
            }
        };
        properties[name] = json!(value);
    }
    let iops = properties["provisionedIops"].as_u64().unwrap_or(0);
    let burst = (3 * iops).max(10_000).max(iops);
    properties["includedBurstIops"] = json!(burst);
    properties["maxBurstCreditsForIops"] = json!((burst - iops) * 3_600);
    Ok(())
}

/// Refuses a share that an account has no room for; `own` is the id of the share that changes or comes back.
pub(super) fn check_account(state: &State, account: &Value, own: &str, gib: u64) -> Result<(), Fault> {
    let Some((most, capacity)) = sizes(account).account else {
        return Ok(());
    };
    let id = path::of(account);
    let live = state.store.below_of_kind(id, kinds::SHARE);
    let deleted = state.store.below_of_kind(id, super::own_documents::DELETED);
    let (mut shares, mut total) = (1, gib);
    for share in live.chain(deleted).filter(|share| !path::same(share.id(), own)) {
        shares += 1;
        total += share.doc["properties"]["shareQuota"].as_u64().unwrap_or(0);
    }
    if shares > most {
        return Err(fault::too_many_shares());
    }
    if total > capacity {
        return Err(fault::shares_too_large());
    }
    Ok(())
}
