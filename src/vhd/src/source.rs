//! Whether a managed disk may be imported from a blob now. Nothing here writes: what is read stays as it is.
//!
//! A machine that runs may write at any moment, so that the disk would have parts of two states. A machine that is
//! deallocated keeps the lease of its disks, and does not write. On a cloud that has retired VHD disks nothing can detach
//! them: there the lease alone must not forbid the import.

use std::fmt;

use lazuli_model::{ArmId, BlobUri, DiskId, InstanceView, PowerState, ProvisioningState, Vm};

use crate::{
    footer::{Defect, disk_size},
    lease::Lease,
    life::{Blob, GROWN_FROM_KEY},
};

/// A blob that may be imported, by its properties. The footer is checked by [`Footer::of_blob`](crate::footer::Footer).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// The size of its disk, in bytes.
    pub size: u64,
    /// Who has it.
    pub holder: Holder,
}

/// Who holds the lease of a blob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Holder {
    /// Nobody.
    Nobody,
    /// A machine that the metadata names: its resource group and its name.
    Machine(String, String),
    /// Somebody, or it is not known.
    Unknown,
}

impl Holder {
    /// Who holds the lease.
    pub fn of(blob: &Blob) -> Self {
        if blob.lease == Lease::Free {
            return Self::Nobody;
        }
        match blob.machine_in_group() {
            Some((group, name)) => Self::Machine(group.to_owned(), name.to_owned()),
            None => Self::Unknown,
        }
    }
}

/// Why no disk is imported from a blob now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unfit {
    /// It is a block blob or an append blob.
    NotAPageBlob,
    /// It is no fixed VHD.
    Footer(Defect),
    /// Its disk is being grown: its end is not written yet.
    Growing,
    /// A lease is held, and no metadata says by which machine.
    HeldBySomebody,
    /// A lease is held, and this machine may have it, which cannot be said to be at rest.
    Held(ArmId, NotAtRest),
}

/// Why it is not certain that a machine does not write to a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotAtRest {
    /// It runs, or an operation on it does.
    Runs,
    /// It does not list the disk: somebody else has the lease.
    DoesNotListIt,
    /// There is no such machine: somebody else has the lease, or it was left behind.
    Gone,
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAPageBlob => f.write_str("the blob is no page blob, so it is no disk"),
            Self::Footer(defect) => write!(f, "the blob is no fixed VHD: {defect}"),
            Self::Growing => f.write_str("the disk in the blob is being grown; it is imported when that has ended"),
            Self::HeldBySomebody => f.write_str(
                "the blob's lease is held, and its metadata names no machine: it may be written to; detach the disk, or \
                 break the lease if nothing uses the blob",
            ),
            Self::Held(machine, NotAtRest::Runs) => write!(
                f,
                "the disk is attached to the machine {}, which Azure does not show as deallocated, so that it may be written \
                 to; detach the disk, deallocate the machine, or delete it, which keeps its blobs",
                machine.name()
            ),
            Self::Held(machine, NotAtRest::DoesNotListIt) => write!(
                f,
                "the blob's lease is held, and the machine {} that its metadata names does not have the disk: somebody else \
                 may be writing; break the lease if nothing uses the blob",
                machine.name()
            ),
            Self::Held(machine, NotAtRest::Gone) => write!(
                f,
                "the blob's lease is held, and the machine {} that its metadata names does not exist; break the lease if \
                 nothing uses the blob",
                machine.name()
            ),
        }
    }
}

/// What the properties of a blob say.
///
/// # Errors
/// Why it cannot be imported, whoever has it.
pub fn check(blob: &Blob) -> Result<Source, Unfit> {
    if !blob.is_page_blob {
        return Err(Unfit::NotAPageBlob);
    }
    if blob.metadata.contains_key(GROWN_FROM_KEY) {
        return Err(Unfit::Growing);
    }
    let size = disk_size(blob.length).map_err(Unfit::Footer)?;
    Ok(Source { size, holder: Holder::of(blob) })
}

/// Whether a machine that holds the lease of a blob is proved not to write to it: it has the disk, and is on no host.
///
/// # Errors
/// What is missing.
pub fn is_at_rest(vm: &Vm, view: InstanceView, blob: &BlobUri) -> Result<(), NotAtRest> {
    if vm.data_disk(&DiskId::from(blob.clone())).is_none() {
        return Err(NotAtRest::DoesNotListIt);
    }
    // An operation may be its start.
    let is_still = view.provisioning_state != ProvisioningState::InProgress;
    if is_still && view.power == Some(PowerState::Deallocated) { Ok(()) } else { Err(NotAtRest::Runs) }
}

#[cfg(test)]
mod tests {
    use lazuli_model::{CachingMode, DataDisk, DataDiskSource, Lun};

    use super::*;
    use crate::life::{ETag, GROUP_KEY, MACHINE_KEY, Metadata};

    const MIB: u64 = 1 << 20;

    fn blob(lease: Lease, metadata: &[(&str, &str)]) -> Blob {
        Blob {
            etag: ETag("1".into()),
            length: MIB + 512,
            is_page_blob: true,
            lease,
            metadata: metadata.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect::<Metadata>(),
        }
    }

    #[test]
    fn a_free_blob_is_nobodys_and_a_held_one_is_of_the_machine_that_it_names() {
        let (group, name) = (GROUP_KEY, MACHINE_KEY);
        let named = [(group, "g"), (name, "vm")];
        let holder = |lease, metadata: &[_]| check(&blob(lease, metadata)).unwrap().holder;
        assert_eq!(holder(Lease::Free, &named), Holder::Nobody, "the metadata of a detached disk may stay");
        for lease in [Lease::Held, Lease::Unknown] {
            assert_eq!(holder(lease, &named), Holder::Machine("g".into(), "vm".into()));
            for some in [&[][..], &named[..1], &named[1..], &[(group, ""), (name, "vm")]] {
                assert_eq!(holder(lease, some), Holder::Unknown);
            }
        }
        assert_eq!(check(&blob(Lease::Free, &[])).unwrap().size, MIB);
    }

    #[test]
    fn what_is_no_disk_or_is_being_grown_is_not_imported() {
        let plain = || blob(Lease::Free, &[]);
        assert_eq!(check(&Blob { is_page_blob: false, ..plain() }), Err(Unfit::NotAPageBlob));
        assert_eq!(check(&Blob { length: MIB, ..plain() }), Err(Unfit::Footer(Defect::Unaligned(MIB - 512))));
        assert_eq!(check(&blob(Lease::Free, &[(GROWN_FROM_KEY, "1")])), Err(Unfit::Growing));
    }

    #[test]
    fn only_a_machine_that_has_the_disk_and_is_on_no_host_is_at_rest() {
        let uri: BlobUri = "https://acct.blob.core.windows.net/vhds/d.vhd".parse().unwrap();
        let vm = |source| Vm {
            id: ArmId::virtual_machine("s", "g", "vm").unwrap(),
            location: "local".into(),
            size: "Standard_D2s_v5".into(),
            zone: None,
            computer_name: None,
            provisioning_state: ProvisioningState::Succeeded,
            etag: None,
            system_disk: lazuli_model::SystemDisk::Blob,
            data_disks: vec![DataDisk {
                lun: Lun::try_from(0).unwrap(),
                source,
                caching: CachingMode::None,
                to_be_detached: false,
            }],
        };
        let has = |uri: &str| vm(DataDiskSource::Disk(uri.parse().unwrap()));
        let view = |power, provisioning_state| InstanceView { provisioning_state, power };
        let off = view(Some(PowerState::Deallocated), ProvisioningState::Succeeded);
        assert_eq!(is_at_rest(&has("https://ACCT.blob.core.windows.net/vhds/d.vhd"), off, &uri), Ok(()));
        assert_eq!(
            is_at_rest(&has(uri.as_str()), InstanceView { provisioning_state: ProvisioningState::Failed, ..off }, &uri),
            Ok(())
        );
        for other in [vm(DataDiskSource::Other("x".into())), has("https://acct.blob.core.windows.net/vhds/D.vhd")] {
            assert_eq!(is_at_rest(&other, off, &uri), Err(NotAtRest::DoesNotListIt));
        }
        for on in [
            view(Some(PowerState::Stopped), ProvisioningState::Succeeded),
            view(Some(PowerState::Other), ProvisioningState::Succeeded),
            view(None, ProvisioningState::Succeeded),
            view(Some(PowerState::Deallocated), ProvisioningState::InProgress),
        ] {
            assert_eq!(is_at_rest(&has(uri.as_str()), on, &uri), Err(NotAtRest::Runs), "{on:?}");
        }
    }
}
