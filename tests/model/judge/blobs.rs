//! VHDs in page blobs, and the storage accounts that are made for them: what must hold at each change and each answer.
//!
//! The footer is read here by its published format, with code of this tier's own.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    super::{
        facts::{BlobFacts, Facts},
        script::{Class, Kind, NAMED_ACCOUNT},
    },
    Became, Call, Judge, Who,
};

const FOOTER: u64 = 512;
/// How long after a machine has taken a blob a write of it may still leave: it was read as free, and its account was
/// throttled meanwhile.
const ON_ITS_WAY_MS: u64 = 130_000;
/// How long ago something was put into an account that goes with it: Azure compares no version of an account.
const UNSEEN_MS: u64 = 130_000;
/// For how long a replica knows a list of accounts, and how long one list may take.
const LIST_OF_ACCOUNTS_MS: u64 = 80_000;

/// What is known of VHDs besides the facts.
#[derive(Debug, Default)]
pub(super) struct Vhds {
    /// What machines have written, by disk and offset.
    written: BTreeMap<(String, u64), [u8; 512]>,
    /// How often.
    writes: u64,
    /// The versions of the VHD while Azure read it, and whether a machine had it, by the id of the imported disk.
    imports: BTreeMap<String, Import>,
    /// The disks whose creation was answered.
    answered: BTreeSet<String>,
    /// All that there have been.
    known: BTreeSet<String>,
    /// When accounts have got something else.
    littered: BTreeMap<String, u64>,
    /// When keys were drawn anew.
    rotated: u64,
}

#[derive(Debug, Default)]
struct Import {
    versions: BTreeSet<u64>,
    was_held: bool,
    is_read: bool,
}

/// Whether 512 bytes are the footer of a fixed disk of so many bytes.
fn is_footer(page: &[u8], size: u64) -> bool {
    let number =
        |at: usize, bytes: usize| page[at..at + bytes].iter().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
    let counted = page.iter().enumerate().filter(|(at, _)| !(64..68).contains(at));
    let sum = u64::from(!counted.map(|(_, byte)| u32::from(*byte)).sum::<u32>());
    page.starts_with(b"conectix") && number(60, 4) == 2 && number(48, 8) == size && number(64, 4) == sum
}

impl Judge {
    pub(super) fn is_vhd(&self, disk: &str) -> bool {
        self.facts.disks.get(disk).is_some_and(|facts| facts.blob.is_some())
    }

    fn vhd(&self, disk: &str) -> Option<&BlobFacts> {
        self.facts.disks.get(disk)?.blob.as_ref()
    }

    /// Whether a node takes a disk: one kind of disks goes with one kind of machines.
    pub(super) fn takes(&self, node: &str, disk: &str) -> bool {
        let takes_vhds = self.vhd_nodes.contains(node);
        self.facts.disks.get(disk).is_none_or(|facts| facts.blob.is_some() == takes_vhds)
    }

    fn page(&self, blob: &BlobFacts, at: u64) -> Vec<u8> {
        self.control.blob_bytes(&blob.uri, at, 512).unwrap_or_default()
    }

    fn ends_with_footer(&self, blob: &BlobFacts) -> bool {
        let size = blob.length.saturating_sub(FOOTER);
        let page = self.page(blob, size);
        page.len() == 512 && is_footer(&page, size)
    }

    pub(super) fn has_footer(&mut self, disk: &str, when: &str) {
        let Some(blob) = self.vhd(disk).cloned() else { return };
        if !self.ends_with_footer(&blob) {
            self.violated("footer", format!("{disk} {when} without a footer: {blob:?}"));
        }
    }

    // ---- what changes ----

    pub(super) fn compare_vhds(&self, old: &Facts, changes: &mut Vec<(String, Became)>) {
        for (name, disk) in &self.facts.disks {
            let was = old.disks.get(name).and_then(|was| was.blob.as_ref());
            if let (Some(is), Some(was)) = (&disk.blob, was)
                && is.etag != was.etag
            {
                changes.push((name.clone(), Became::Written));
            }
        }
        let made = self.facts.accounts.keys().filter(|name| !old.accounts.contains_key(*name));
        changes.extend(made.map(|name| (name.clone(), Became::Made)));
        let gone = old.accounts.keys().filter(|name| !self.facts.accounts.contains_key(*name));
        changes.extend(gone.map(|name| (name.clone(), Became::Gone)));
    }

    /// What Azure reads while it imports.
    pub(super) fn note_imports(&mut self) {
        let Self { facts, vhds, .. } = self;
        for disk in facts.disks.values() {
            let Some(source) = &disk.imported else { continue };
            let import = vhds.imports.entry(disk.content.unique_id.clone()).or_default();
            if import.is_read {
                continue;
            }
            import.is_read = disk.provisioning == "Succeeded";
            import.was_held |= !facts.holders(source).is_empty();
            // One that is gone has no version.
            let version = facts.disks.get(source).and_then(|source| source.blob.as_ref()).map(|blob| blob.etag);
            import.versions.insert(version.unwrap_or_default());
        }
    }

    pub(super) fn check_vhds(&mut self, old: &Facts, by: Who) {
        if !self.has_vhds {
            return;
        }
        for double in self.facts.doubles.clone() {
            self.violated("double", double);
        }
        let at = self.now();
        for (name, account) in self.facts.accounts.iter().filter(|(_, account)| account.has_others) {
            if old.accounts.get(name).is_none_or(|was| was.has_others != account.has_others) {
                self.vhds.littered.insert(name.clone(), at);
            }
        }
        let gone = old.accounts.iter().filter(|(name, _)| !self.facts.accounts.contains_key(*name));
        let wrong: Vec<String> = gone
            .filter(|(name, was)| {
                let has_disks =
                    old.disks.values().filter_map(|disk| disk.blob.as_ref()).any(|blob| blob.account == **name);
                let littered = self.vhds.littered.get(*name).is_some_and(|when| at - when > UNSEEN_MS);
                // A creation has failed that Azure had accepted.
                let was_never_made = by == Who::Azure && !was.has_others;
                has_disks || littered || was.of.is_none() && !was_never_made
            })
            .map(|(name, was)| format!("{name} goes by {by:?}: {was:?}"))
            .collect();
        for what in wrong {
            self.violated("account", what);
        }
        let vhds = self.facts.disks.iter().filter(|(_, disk)| disk.blob.is_some());
        self.vhds.known.extend(vhds.map(|(name, _)| name.clone()));
        self.check_bytes(old);
    }

    /// Whether a VHD is gone, and perhaps its account with it, of which nothing is known then but that.
    pub(super) fn is_gone_with_account(&self, disk: &str, since: u64) -> bool {
        self.vhds.known.contains(disk) && self.was_absent(disk, since)
    }

    fn check_bytes(&mut self, old: &Facts) {
        let changed: Vec<(String, BlobFacts)> = self
            .facts
            .disks
            .iter()
            .filter_map(|(name, disk)| Some((name.clone(), disk.blob.clone()?)))
            .filter(|(name, blob)| old.disks.get(name).and_then(|was| was.blob.as_ref()) != Some(blob))
            .collect();
        for (name, blob) in changed {
            let was = old.disks.get(&name).and_then(|was| was.blob.as_ref());
            if was.is_some_and(|was| blob.length < was.length) {
                self.violated("content", format!("{name} shrinks: {was:?} -> {blob:?}"));
            }
            let whole = self.ends_with_footer(&blob);
            let noted = blob.grown_from.is_some_and(|size| is_footer(&self.page(&blob, size), size));
            let is_held = !self.facts.holders(&name).is_empty();
            if self.vhds.answered.contains(&name) && !whole && (is_held || !noted) {
                self.violated("footer", format!("{name} has none: {blob:?}"));
            }
            self.check_written(&name, &blob);
        }
        let Self { vhds, facts, .. } = self;
        vhds.written.retain(|(disk, _), _| facts.disks.contains_key(disk));
        vhds.answered.retain(|disk| facts.disks.contains_key(disk));
    }

    fn check_written(&mut self, disk: &str, blob: &BlobFacts) {
        let range = (disk.to_owned(), 0)..=(disk.to_owned(), u64::MAX);
        let lost = self.vhds.written.range(range).find(|((_, at), page)| self.page(blob, *at) != page.as_slice());
        if let Some(((_, at), _)) = lost {
            let what = format!("what the machine has written at {at} of {disk} is gone: {blob:?}");
            self.violated("content", what);
        }
    }

    /// The machine that has a VHD writes to its disk.
    pub(in super::super) fn machine_writes(&mut self, disk: &str, gib: u64) {
        self.look_closely();
        let Some(blob) = self.vhd(disk).cloned() else { return };
        let size = blob.length.saturating_sub(FOOTER);
        let at = (gib << 30).min(size - 512);
        self.vhds.writes += 1;
        let mut page = [0; 512];
        page[..8].copy_from_slice(&self.vhds.writes.to_be_bytes());
        page[8..].fill(0xab);
        if self.control.write_as_machine(&blob.uri, at, &page).is_some() {
            self.coverage.count("machine writes");
            self.vhds.written.insert((disk.to_owned(), at), page);
            self.tell(&format!("  the machine writes at {at} of {disk}"));
            self.request_is_answered(Who::Azure, "PUT");
        }
    }

    pub(in super::super) fn keys_rotated(&mut self) {
        self.vhds.rotated = self.now();
    }

    /// A write of a blob leaves: the machine that has it has had it for a while.
    pub(super) fn blob_is_written(&mut self, who: Who, path: &str) {
        let disk = super::super::facts::name_of(path);
        let (Who::Replica(_), Some(blob)) = (who, self.vhd(&disk)) else { return };
        let since = self.now().saturating_sub(ON_ITS_WAY_MS);
        let is_new = |change: &super::Change| change.became.machine().is_some() || change.became == Became::Made;
        if blob.is_leased && !self.changes_of(&disk, since).any(is_new) {
            self.violated("lease", format!("{who:?} writes {path}: {:?}", self.facts.disks.get(&disk)));
        }
    }

    // ---- what is answered ----

    pub(super) fn vhd_is_answered(&mut self, disk: &str, class: Class) {
        let (Class::Vhd(kind), Some(blob)) = (class, self.vhd(disk).cloned()) else { return };
        self.vhds.answered.insert(disk.to_owned());
        self.has_footer(disk, "is answered");
        let account = self.facts.accounts.get(&blob.account);
        let is_right = match kind {
            Kind::Shared => account.is_some_and(|account| account.of.is_none()),
            Kind::Dedicated => account.is_some_and(|account| account.of.as_deref() == Some(disk)),
            Kind::Named => blob.account == NAMED_ACCOUNT,
        };
        if !is_right {
            self.violated("account", format!("{disk} of {kind:?} is in {}: {account:?}", blob.account));
        }
        self.coverage.count(format!("{kind:?} made"));
    }

    pub(super) fn vhd_has_grown(&mut self, call: &Call, disk: &str) {
        let Some(blob) = self.vhd(disk).cloned() else { return };
        self.has_footer(disk, "has grown");
        if blob.grown_from.is_some() && !self.disturbed(disk, self.window(call), call.replica) {
            self.violated("footer", format!("{disk} has grown, and the note is there: {blob:?}"));
        }
        self.coverage.count("VHD grown");
    }

    /// The account of a disk that is gone, where it was made for that alone and nothing else is in it.
    pub(super) fn account_is_gone(&mut self, call: &Call, disk: &str) {
        let of_disk = |account: &&super::super::facts::AccountFacts| account.of.as_deref() == Some(disk);
        let left = self.facts.accounts.values().any(|account| of_disk(&account) && !account.has_others);
        if left && !self.keeps_accounts && !self.disturbed(disk, self.window(call), call.replica) {
            self.violated("account", format!("that of {disk} stays: {:?}", self.facts.accounts));
        }
    }

    pub(super) fn is_imported_whole(&mut self, disk: &str) {
        let Some(facts) = self.facts.disks.get(disk).filter(|facts| facts.imported.is_some()) else { return };
        let Some(import) = self.vhds.imports.get(&facts.content.unique_id) else { return };
        if import.versions.len() != 1 || import.was_held || !import.is_read {
            self.violated("imported", format!("{disk}: {import:?} {facts:?}"));
        }
        self.coverage.count("VHD imported");
    }

    /// Whether a list of volumes may lack a VHD: its account is new to a replica, or has not answered.
    pub(super) fn list_may_lack(&self, disk: &str, since: u64) -> bool {
        let Some(blob) = self.vhd(disk) else { return false };
        let lately = since.saturating_sub(LIST_OF_ACCOUNTS_MS);
        let has_struck = self.last_struck >= lately && self.last_struck > 0;
        let is_new = self.changes_of(&blob.account, lately).next().is_some();
        has_struck || is_new || self.vhds.rotated >= lately && self.vhds.rotated > 0
    }

    // ---- the end ----

    /// Accounts of disks that are gone, whose maker has an excuse: a replica whose write was on its way when it lost its
    /// role.
    pub(in super::super) fn stray_accounts(&mut self, wanted: &BTreeSet<String>) -> Vec<String> {
        self.look();
        let of_nobody = self.facts.accounts.iter().filter(|(_, account)| {
            account.of.as_ref().is_some_and(|disk| !wanted.contains(disk)) && !account.has_others
        });
        let (mut strays, mut leaks) = (Vec::new(), Vec::new());
        for (name, account) in of_nobody {
            let made = self.changes.iter().rev().find(|change| change.disk == *name && change.became == Became::Made);
            match made {
                Some(change) if change.late => strays.push(name.clone()),
                _ if self.keeps_accounts => {}
                _ => leaks.push(format!("{name}: {account:?}")),
            }
        }
        for what in leaks {
            self.violated("leak", what);
        }
        strays
    }

    /// What holds of VHDs when all is quiet.
    pub(super) fn vhds_at_rest(&mut self) {
        let disks: Vec<(String, BlobFacts)> =
            self.facts.disks.iter().filter_map(|(name, disk)| Some((name.clone(), disk.blob.clone()?))).collect();
        for (name, blob) in disks {
            self.has_footer(&name, "is at rest");
            self.check_written(&name, &blob);
            if blob.grown_from.is_some() || blob.is_leased == self.facts.holders(&name).is_empty() {
                self.violated("footer", format!("{name} at rest: {blob:?}"));
            }
            // A footer that was left inside a disk is no content of its user.
            let old = (1..blob.length >> 30).find(|gib| is_footer(&self.page(&blob, gib << 30), gib << 30));
            if let Some(gib) = old {
                self.violated("footer", format!("{name} has an old one at {gib} GiB: {blob:?}"));
            }
        }
        let shared = self.facts.accounts.values().filter(|account| account.of.is_none()).count();
        if shared > 1 {
            self.violated("account", format!("{shared} accounts of one pool: {:?}", self.facts.accounts));
        }
    }
}
