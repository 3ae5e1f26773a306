//! Volumes that no node can mount with this version, and volumes whose share is not there.

use std::collections::{BTreeMap, BTreeSet};

use lazuli_shares::mount::{self, Defaults, Request};

use super::{
    super::{Finding, Grade},
    AccountGroup, AccountShares, Place, ShareVolume, folded, place_of, volumes_named,
};

/// The check of what nodes mount.
pub const MOUNTS: &str = "mounts of file shares";
/// The check of what is in Azure.
pub const SHARES: &str = "shares of PersistentVolumes";

/// Attributes that only nodes with confidential containers look at.
const CONFIDENTIAL: [&str; 2] = ["confidentialContainerLabel", "runtimeClassHandler"];

/// Volumes that ask for what nodes do not mount: Kerberos, NFS, VHD files, confidential containers. The words are those that
/// NodeStageVolume would answer with.
pub fn mounts(volumes: &[ShareVolume], storage_endpoint_suffix: &str) -> Vec<Finding> {
    let defaults = Defaults { storage_endpoint_suffix, own_connections: true, closes_at_once: true };
    let mut refused: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    let mut confidential: Vec<&str> = Vec::new();
    let of_driver = volumes.iter().filter(|volume| volume.refers.volume_id.is_some());
    for volume in of_driver.clone() {
        let name = volume.refers.name.as_str();
        if let Some(why) = refusal(volume, &defaults) {
            refused.entry(why).or_default().push(name);
        } else if volume
            .attributes
            .iter()
            .any(|(key, value)| !value.is_empty() && CONFIDENTIAL.iter().any(|known| known.eq_ignore_ascii_case(key)))
        {
            confidential.push(name);
        }
    }
    let mut findings: Vec<Finding> = refused
        .iter()
        .map(|(why, names)| {
            let text = format!("{} cannot be mounted by this version: {why}", volumes_named(names));
            Finding::new(MOUNTS, Grade::Wrong, text)
        })
        .collect();
    if !confidential.is_empty() {
        let text = format!(
            "{} name confidential containers ({}): for these the Go driver writes the account's key to the host's disk; this \
             driver does not, and mounts on the node alone",
            volumes_named(&confidential),
            CONFIDENTIAL.join(", ")
        );
        findings.push(Finding::new(MOUNTS, Grade::Note, text));
    }
    if findings.is_empty() {
        let text =
            format!("{} PersistentVolumes of the driver ask for nothing that nodes do not mount", of_driver.count());
        findings.push(Finding::new(MOUNTS, Grade::Fine, text));
    }
    findings
}

/// Why a volume cannot be mounted.
fn refusal(volume: &ShareVolume, defaults: &Defaults<'_>) -> Option<String> {
    let request = Request {
        volume_id: volume.refers.volume_id.clone()?,
        context: volume.attributes.clone(),
        mount_flags: volume.mount_options.clone(),
        ..Request::default()
    };
    let plan = mount::plan(&request, defaults);
    let plan = match &volume.stage_secret {
        // It may name the account.
        Some(_) => plan,
        None => plan.and_then(|plan| plan.to_mount(&request.volume_id)),
    };
    plan.err().map(|error| error.to_string())
}

/// Volumes whose account or share Azure does not have. Only what is in the groups `listed` is looked at.
pub fn missing(
    accounts: &[AccountShares],
    volumes: &[ShareVolume],
    own: &AccountGroup,
    listed: &[AccountGroup],
) -> Vec<Finding> {
    let listed: BTreeSet<_> = listed.iter().map(folded).collect();
    let looked_at: Vec<(&ShareVolume, Place)> = volumes
        .iter()
        .filter(|volume| volume.account().is_some() && !volume.refers.is_released_for_deletion)
        .filter_map(|volume| Some((volume, place_of(volume, own)?)))
        .filter(|(_, place)| listed.contains(&folded(&place.group)))
        .collect();
    let findings: Vec<Finding> =
        looked_at.iter().filter_map(|(volume, place)| absence(volume, place, accounts)).collect();
    if !findings.is_empty() {
        return findings;
    }
    let text = format!("Azure has the share of each of {} PersistentVolumes", looked_at.len());
    vec![Finding::new(SHARES, Grade::Fine, text)]
}

fn absence(volume: &ShareVolume, place: &Place, accounts: &[AccountShares]) -> Option<Finding> {
    let (name, account) = (&volume.refers.name, volume.account()?);
    let Some(of) = accounts.iter().find(|of| volume.names_account(of.account.name())) else {
        let text = format!(
            "PersistentVolume {name} names storage account {account}, which is not in resource group {}; az storage account \
             list shows whether it is in another one, or deleted",
            place.group.name
        );
        return Some(Finding::new(SHARES, if place.is_named { Grade::Wrong } else { Grade::Unseen }, text));
    };
    let share = volume.share()?;
    let of_name = || of.shares.iter().filter(|one| one.name().eq_ignore_ascii_case(share));
    if of_name().any(|one| one.is_live()) {
        return None;
    }
    let restore = of_name().filter_map(|one| one.deleted.as_ref()).max_by(|one, other| one.version.cmp(&other.version));
    let restore = restore.map_or_else(String::new, |deleted| {
        let left = deleted.remaining_days.map_or_else(String::new, |days| format!(" for {days} more days"));
        format!(
            "; it is deleted and can be restored{left} (az storage share-rm restore --deleted-version {})",
            deleted.version
        )
    });
    let text = format!(
        "PersistentVolume {name} names share {share} of storage account {account}, which does not exist{restore}"
    );
    Some(Finding::new(SHARES, Grade::Wrong, text))
}
