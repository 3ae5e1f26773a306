//! What people are shown of blob disks: of which kind each is, who has it, and whether a machine can have it.

use std::fmt;

use lazuli_model::{BlobUri, StorageAccount};

use crate::{
    accounts,
    footer::{Footer, Page, disk_size},
    lease::Lease,
    life::{Answer, Blob, Call},
};

/// Of which kind a blob disk is, by its account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Its account belongs to the pool.
    Shared,
    /// Its account was made for it alone.
    Dedicated,
    /// Its account is one of somebody's own.
    Own,
}

impl Kind {
    /// The kind of the disks in an account.
    pub fn of(account: &StorageAccount) -> Self {
        if accounts::is_of_one_disk(account) {
            Self::Dedicated
        } else if accounts::is_shared(account) {
            Self::Shared
        } else {
            Self::Own
        }
    }

    /// As a StorageClass says it; `Blob` of what is in an account of somebody's own.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Shared => "Shared",
            Self::Dedicated => "Dedicated",
            Self::Own => "Blob",
        }
    }
}

/// What the last bytes of a blob are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FooterState {
    /// The footer of a disk of the blob's size.
    Good,
    /// Nothing, or the footer of another size: the next attach writes it.
    Repairable,
    /// No footer of a fixed VHD, and perhaps data: no machine takes the disk.
    None,
}

impl FooterState {
    /// As it is printed.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Repairable => "repairable",
            Self::None => "none",
        }
    }
}

impl fmt::Display for FooterState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The read of a blob's footer.
///
/// # Errors
/// [`FooterState::None`] where a blob of this length has none.
pub fn footer_call(blob: &Blob) -> Result<Call, FooterState> {
    let offset = disk_size(blob.length).map_err(|_| FooterState::None)?;
    Ok(Call::ReadPage { offset, if_match: blob.etag.clone() })
}

/// What the answer to [`footer_call`] shows.
///
/// # Errors
/// Azure's refusal, where it gave one.
pub fn footer_state<E>(blob: &Blob, answer: Answer<E>) -> Result<FooterState, Option<E>> {
    let state = |page: &Page| match Footer::of_blob(page, blob.length) {
        Ok(_) => FooterState::Good,
        Err(defect) if defect.is_repairable() => FooterState::Repairable,
        Err(_) => FooterState::None,
    };
    match answer {
        Answer::Page(page) => Ok(state(&page)),
        Answer::Refused(_, error) => Err(Some(error)),
        _ => Err(None),
    }
}

/// A blob disk that was read, and its account.
#[derive(Debug, Clone, PartialEq)]
pub struct SeenDisk {
    /// Its address.
    pub uri: BlobUri,
    /// The blob.
    pub blob: Blob,
    /// Its account.
    pub account: StorageAccount,
    /// Its footer; `None` where it cannot be read.
    pub footer: Option<FooterState>,
}

impl SeenDisk {
    /// Of which kind it is.
    pub fn kind(&self) -> Kind {
        Kind::of(&self.account)
    }

    /// The machine that has the lease, where one is held and the metadata names the machine. What the metadata says of a free
    /// disk is of an earlier machine.
    pub fn leased_to(&self) -> Option<String> {
        self.blob.machine().filter(|_| self.blob.lease == Lease::Held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        footer::{LENGTH, ZEROS},
        life::{ETag, MACHINE_KEY, Metadata},
    };

    const MIB: u64 = 1 << 20;

    fn blob(length: u64, lease: Lease) -> Blob {
        let metadata = Metadata::from([(MACHINE_KEY.to_owned(), "n0".to_owned())]);
        Blob { etag: ETag("1".to_owned()), length, is_page_blob: true, lease, metadata }
    }

    #[test]
    fn a_footer_is_good_repairable_or_none() {
        let size = 4 * MIB;
        let whole = blob(size + LENGTH, Lease::Free);
        let of = |size| Footer::new(size, [7; 16], 0).to_page();
        let state = |page: Page| footer_state::<()>(&whole, Answer::Page(Box::new(page)));
        assert_eq!(footer_call(&whole), Ok(Call::ReadPage { offset: size, if_match: ETag("1".to_owned()) }));
        for (page, expected) in [
            (of(size), FooterState::Good),
            (of(2 * MIB), FooterState::Repairable),
            (ZEROS, FooterState::Repairable),
            ([7; 512], FooterState::None),
        ] {
            assert_eq!(state(page), Ok(expected));
        }
        let refused = Answer::Refused(crate::life::Problem::OtherVersion, "changed");
        assert_eq!(footer_state(&whole, refused), Err(Some("changed")));
        // No machine takes these, whatever their last bytes are.
        for length in [LENGTH, size + LENGTH + 1, size + 2 * LENGTH] {
            assert_eq!(footer_call(&blob(length, Lease::Free)), Err(FooterState::None), "{length}");
        }
    }

    #[test]
    fn the_account_says_of_which_kind_a_disk_is_and_a_held_lease_names_the_machine() {
        let tagged = |name: &str, tags: &[(&str, &str)]| {
            let mut account = StorageAccount::general_purpose(name);
            account.tags = tags.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            account
        };
        let (made, disk) = (accounts::CREATED_BY, (accounts::DISK_TAG, "pvc.vhd"));
        for (name, tags, kind) in [
            ("ds1", &[made][..], Kind::Shared),
            ("dd1", &[made, disk], Kind::Dedicated),
            // As the in-tree plugin made it.
            ("dd2", &[made], Kind::Dedicated),
            ("mine", &[made], Kind::Own),
            // The name alone says nothing.
            ("ds1", &[], Kind::Own),
            ("dd1", &[], Kind::Own),
        ] {
            assert_eq!(Kind::of(&tagged(name, tags)), kind, "{name} {tags:?}");
        }
        let leased = [Lease::Held, Lease::Free, Lease::Unknown].map(|lease| {
            let uri = "https://ds1.blob.core.windows.net/vhds/d.vhd".parse().unwrap();
            SeenDisk { uri, blob: blob(MIB, lease), account: tagged("ds1", &[made]), footer: None }.leased_to()
        });
        assert_eq!(leased, [Some("n0".to_owned()), None, None]);
    }
}
