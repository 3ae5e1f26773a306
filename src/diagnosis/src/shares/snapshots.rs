//! Share snapshots that no VolumeSnapshotContent names. A share with a snapshot is not deleted with its volume.

use std::collections::BTreeMap;

use lazuli_model::FileShare;

use super::{
    super::{Finding, Grade, some},
    AccountShares, ShareVolume, is_of_driver,
};

/// The check.
pub const SNAPSHOTS: &str = "share snapshots";

/// The snapshots that no handle names, a finding for each share that a volume names or a driver made. `handles` are those of
/// the VolumeSnapshotContents of the driver: the volume id, the time of the snapshot and, where it is another than the
/// cluster's, the subscription, separated by `#`.
pub fn unnamed(accounts: &[AccountShares], volumes: &[ShareVolume], handles: &[String]) -> Vec<Finding> {
    let (mut findings, mut named) = (Vec::new(), 0_usize);
    for of in accounts {
        let account = of.account.name();
        let mut unnamed: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (share, time) in of.shares.iter().filter_map(|one| Some((one, one.snapshot.as_deref()?))) {
            let is_ours =
                volumes.iter().any(|volume| volume.names(account, share.name())) || is_live_of_driver(of, share);
            if handles.iter().any(|handle| is_of(handle, account, share.name(), time)) {
                named += 1;
            } else if is_ours {
                unnamed.entry(share.name()).or_default().push(time);
            }
        }
        findings.extend(unnamed.into_iter().map(|(share, times)| {
            let are = if times.len() == 1 { "a snapshot" } else { "snapshots" };
            let text = format!(
                "share {share} of storage account {account} has {are} that no VolumeSnapshotContent names ({}): its volume \
                 cannot be deleted while it has one; delete them by hand where nobody needs them (az storage share-rm delete \
                 --snapshot)",
                some(&times)
            );
            Finding::new(SNAPSHOTS, Grade::Note, text)
        }));
    }
    if findings.is_empty() {
        let text = match named {
            0 => "no share of a volume has one".to_owned(),
            count => format!("a VolumeSnapshotContent names each of {count}"),
        };
        findings.push(Finding::new(SNAPSHOTS, Grade::Fine, text));
    }
    findings
}

/// Whether a driver made the live share of this snapshot: a snapshot may not show its share's metadata.
fn is_live_of_driver(of: &AccountShares, snapshot: &FileShare) -> bool {
    of.shares.iter().any(|share| share.is_live() && share.id == snapshot.id && is_of_driver(share))
}

/// Whether a handle names this snapshot. Fields are compared, for no name of an account or a share is a time.
fn is_of(handle: &str, account: &str, share: &str, time: &str) -> bool {
    let fields: Vec<&str> = handle.split('#').collect();
    let is = |field: Option<&&str>, name: &str| field.is_some_and(|field| field.eq_ignore_ascii_case(name));
    is(fields.get(1), account) && is(fields.get(2), share) && fields.iter().skip(3).any(|field| *field == time)
}
