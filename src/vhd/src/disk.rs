//! What a read of a blob says of it as a disk on machines.

use std::collections::BTreeMap;

use lazuli_model::{
    ArmId, BlobUri, Disk, DiskId, DiskState, Gib,
    disk_tags::{self, REQUEST},
};

use crate::{
    footer::disk_size,
    lease::Lease,
    life::{Blob, CREATED_BY, VOLUME_KEY},
};

/// The disk that a blob is. `subscription` is that of the cluster, in which its machines are.
///
/// Its state is its lease: while a machine has it, one is held. The machine is the one that the metadata names, and only
/// while a lease is held: what the metadata says afterwards is of an earlier machine.
pub fn of_blob(uri: &BlobUri, blob: &Blob, subscription: &str) -> Disk<DiskId> {
    let bytes = disk_size(blob.length).unwrap_or(blob.length);
    let state = match blob.lease {
        Lease::Free => Some(DiskState::Unattached),
        Lease::Held => Some(DiskState::Attached),
        Lease::Unknown => None,
    };
    Disk {
        size: Gib::holding(bytes).unwrap_or(Gib::new(u32::MAX)),
        bytes: Some(bytes),
        state,
        managed_by: machine(blob, subscription).filter(|_| blob.lease == Lease::Held),
        tags: tags(blob),
        ..Disk::plain(DiskId::Blob(uri.clone()), String::new())
    }
}

/// The metadata of a blob as tags. A blob that a driver made belongs to a claim, as a disk does whose tags say so: it is
/// detached from a node on which Kubernetes does not use it.
fn tags(blob: &Blob) -> BTreeMap<String, String> {
    let mut tags = blob.metadata.clone();
    let is_made = blob.metadata.get(CREATED_BY.0).is_some_and(|value| value == CREATED_BY.1);
    let mark = blob.metadata.get(VOLUME_KEY).or_else(|| blob.metadata.get(CREATED_BY.0).filter(|_| is_made));
    if let Some(mark) = mark {
        tags.insert(REQUEST.to_owned(), mark.clone());
        tags.insert(disk_tags::CREATED_BY.0.to_owned(), disk_tags::CREATED_BY.1.to_owned());
    }
    tags
}

/// The machine that the metadata of a blob names.
fn machine(blob: &Blob, subscription: &str) -> Option<ArmId> {
    let (group, name) = blob.machine_in_group()?;
    ArmId::virtual_machine(subscription, group, name).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::life::{ETag, GROUP_KEY, MACHINE_KEY, Metadata};

    #[test]
    fn the_lease_is_the_state_and_names_a_machine_only_while_it_is_held() {
        let uri: BlobUri = "https://acct.blob.core.windows.net/vhds/d.vhd".parse().unwrap();
        let text = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
        let named = Metadata::from([text((GROUP_KEY, "g")), text((MACHINE_KEY, "n0"))]);
        let blob = |lease, metadata: &Metadata| Blob {
            etag: ETag("1".into()),
            length: (4 << 30) + 512,
            is_page_blob: true,
            lease,
            metadata: metadata.clone(),
        };
        let vm = ArmId::virtual_machine("s", "g", "n0").unwrap();
        for (lease, state, holder) in [
            (Lease::Held, Some(DiskState::Attached), Some(&vm)),
            (Lease::Free, Some(DiskState::Unattached), None),
            (Lease::Unknown, None, None),
        ] {
            let disk = of_blob(&uri, &blob(lease, &named), "s");
            assert_eq!((disk.state, disk.managed_by.as_ref()), (state, holder), "{lease:?}");
            assert_eq!((disk.size, disk.bytes), (Gib::new(4), Some(4 << 30)));
            assert_eq!(of_blob(&uri, &blob(lease, &Metadata::new()), "s").managed_by, None);
        }
    }

    #[test]
    fn a_blob_that_a_driver_made_counts_as_a_disk_that_one_made() {
        let uri: BlobUri = "https://acct.blob.core.windows.net/vhds/d.vhd".parse().unwrap();
        let is_made = |metadata: &[(&str, &str)]| {
            let text = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
            let blob = Blob {
                etag: ETag("1".into()),
                length: (1 << 30) + 512,
                is_page_blob: true,
                lease: Lease::Held,
                metadata: metadata.iter().map(text).collect(),
            };
            let tags = of_blob(&uri, &blob, "s").tags;
            (disk_tags::is_made_by_driver(&tags), disk_tags::value(&tags, REQUEST).map(str::to_owned))
        };
        assert_eq!(is_made(&[(VOLUME_KEY, "m")]), (true, Some("m".into())));
        assert_eq!(is_made(&[CREATED_BY]), (true, Some(CREATED_BY.1.into())));
        assert_eq!(is_made(&[(CREATED_BY.0, "me")]), (false, None));
        assert_eq!(is_made(&[]), (false, None));
    }
}
