//! The pure part: what is served, what Samba reads, and what becomes of folders. Samba itself is run by the guest's tests.

use std::collections::BTreeMap;
use std::path::Path;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::config::{self, Place};
use super::files::{self, Account, Files, Key};
use super::names::{AccountName, KeptName, ShareName};
use super::plan::{FolderStep, ServerStep, folder_steps, server_step};
use crate::arm::kinds;
use crate::arm::storage::own_documents::DELETED;
use crate::store::Document;

const ACCOUNT: &str = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Storage/storageAccounts";

fn account_doc(name: &str, properties: Value) -> Value {
    json!({"id": format!("{ACCOUNT}/{name}"), "type": kinds::STORAGE_ACCOUNT, "properties": properties})
}

fn share_doc(account: &str, name: &str, properties: Value) -> Value {
    let id = format!("{ACCOUNT}/{account}/fileServices/default/shares/{name}");
    json!({"id": id, "type": kinds::SHARE, "properties": properties})
}

fn served(documents: impl IntoIterator<Item = Value>) -> Files {
    let documents: BTreeMap<String, Document> =
        documents.into_iter().map(|doc| (doc["id"].as_str().unwrap().to_lowercase(), Document::from(doc))).collect();
    files::files(&documents, 1)
}

fn account(name: &str) -> AccountName {
    AccountName::parse(name).unwrap()
}

fn share(name: &str) -> ShareName {
    ShareName::parse(name).unwrap()
}

fn with_shares(shares: &[(&str, u64)]) -> Account {
    let shares = shares.iter().map(|(name, gib)| (share(name), *gib)).collect();
    Account { shares, encrypted: true, ..Account::default() }
}

#[test]
fn smb_shares_are_served_and_no_others() {
    let files = served([
        account_doc("one", json!({})),
        account_doc("two", json!({"allowSharedKeyAccess": false, "supportsHttpsTrafficOnly": false})),
        share_doc("one", "data", json!({"shareQuota": 7, "enabledProtocols": "SMB"})),
        share_doc("one", "nfs", json!({"shareQuota": 100, "enabledProtocols": "NFS"})),
        share_doc("gone", "data", json!({"shareQuota": 1})),
        json!({
            "id": format!("{ACCOUNT}/one/fileServices/default/deletedShares/old_01DC"),
            "type": DELETED, "over": "9", "properties": {},
        }),
        json!({"id": "/lazuli/storageKeys/one", "type": "lazuli/storageKeys", "properties": {"key1": 3, "key2": 1}}),
    ]);
    let one = &files.accounts[&account("one")];
    assert_eq!(one.shares, BTreeMap::from([(share("data"), 7)]));
    assert_eq!(one.kept, BTreeMap::from([(KeptName::parse("old_01dc").unwrap(), 9)]));
    assert!(one.encrypted && one.key.is_some());
    let two = &files.accounts[&account("two")];
    assert!(two.key.is_none() && !two.encrypted && two.shares.is_empty());
    assert_eq!(files.accounts.len(), 2);
    assert_eq!(format!("{:?}", one.key), "Some(<redacted>)");
}

#[test]
fn a_drawn_key_is_another_and_each_account_has_its_own() {
    let key = |name: &str, times: u64| {
        let files = served([
            account_doc(name, json!({})),
            json!({"id": format!("/lazuli/storageKeys/{name}"), "type": "lazuli/storageKeys",
                "properties": {"key1": times, "key2": 1}}),
        ]);
        files.accounts[&account(name)].key.as_ref().map(|key: &Key| key.reveal().to_owned()).unwrap()
    };
    assert_ne!(key("one", 1), key("one", 2));
    assert_ne!(key("one", 1), key("two", 1));
}

#[test]
fn what_samba_reads_names_the_account_its_shares_and_its_port_alone() {
    let root = Path::new("/srv/smb");
    let one = account("one");
    let place = Place::new(root, &one);
    let text = config::configuration(&one, &with_shares(&[("data", 7), ("other-data", 1)]), &place, 4455);
    let sections: Vec<&str> = text.lines().filter(|line| line.starts_with('[')).collect();
    assert_eq!(sections, ["[global]", "[data]", "[other-data]"]);
    for line in [
        "smb ports = 4455",
        "interfaces = 127.0.0.1",
        "bind interfaces only = yes",
        "server smb encrypt = required",
        "map to guest = never",
        "path = /srv/smb/accounts/one/shares/data",
        "dfree command = /srv/smb/accounts/one/server/size-data",
    ] {
        assert!(text.lines().any(|own| own.trim() == line), "{line} is not in {text}");
    }
    assert!(!text.contains("guest ok"));
    let plain = Account { encrypted: false, ..Account::default() };
    assert!(config::configuration(&one, &plain, &place, 1).contains("server smb encrypt = desired"));
    assert_eq!(config::users(&one), "!root = one\n!no-such-user = root\n");
    assert_eq!(config::users(&account("root")), "!root = root\n");
    assert!(config::configuration(&account("nobody"), &plain, &place, 1).contains("guest account = daemon"));
    assert!(config::size(2).contains("echo 2097152 $free 1024"));
}

#[test]
fn a_root_that_samba_would_read_in_its_own_way_is_refused() {
    config::plain(Path::new("/var/lib/lazuli_1.0/smb-x")).unwrap();
    for path in ["relative", "/a b", "/a%L", "/a\n[global]", "/a;b", "/a\"b", "/ä"] {
        let why = config::plain(Path::new(path)).unwrap_err();
        assert!(why.contains("letters, digits"), "{why}");
    }
    // A socket of the longest account below a root of 41 bytes has 107.
    let socket = |root: &str| format!("{root}/accounts/{}/server/private/msg.sock/4194304", "a".repeat(24)).len();
    let root = |length: usize| format!("/{}", "r".repeat(length - 1));
    assert_eq!(socket(&root(41)), 107);
    config::plain(Path::new(&root(41))).unwrap();
    assert!(config::plain(Path::new(&root(42))).unwrap_err().contains("41 are allowed"));
}

#[test]
fn a_root_with_files_of_others_is_refused_and_one_of_an_earlier_run_is_taken() {
    let root = std::env::temp_dir().join(format!("lazuli-smb-{}", std::process::id()));
    std::fs::create_dir_all(root.join("accounts/alice")).unwrap();
    let why = super::claim(&root).unwrap_err().to_string();
    assert!(why.contains("is not empty and not of this emulator"), "{why}");
    std::fs::remove_dir_all(&root).unwrap();
    drop(super::claim(&root).unwrap());
    std::fs::create_dir_all(root.join("accounts/first")).unwrap();
    let claim = super::claim(&root).unwrap();
    assert!(super::claim(&root).unwrap_err().to_string().contains("another emulator serves the shares of"));
    drop(claim);
    std::fs::remove_dir_all(&root).unwrap();
}

#[test]
fn names_to_which_samba_gives_a_meaning_are_not_served() {
    let documents = ["global", "homes", "printers", "home", "-x-"].map(|name| share_doc("one", name, json!({})));
    let files = served(documents.into_iter().chain([account_doc("one", json!({}))]));
    let names: Vec<&str> = files.accounts[&account("one")].shares.keys().map(ShareName::as_str).collect();
    assert_eq!(names, ["home"]);
    assert_eq!(files.refused.len(), 4, "{:?}", files.refused);
}

#[test]
fn a_server_starts_with_the_first_share_and_ends_sessions_only_for_another_key() {
    let none = with_shares(&[]);
    let one = with_shares(&[("one", 1)]);
    let larger = with_shares(&[("one", 2)]);
    assert_eq!(server_step(&none, &none, false), ServerStep::Nothing);
    assert_eq!(server_step(&none, &one, false), ServerStep::Start);
    assert_eq!(server_step(&one, &one, true), ServerStep::Nothing);
    assert_eq!(server_step(&one, &larger, true), ServerStep::Reload { close: vec![] });
    assert_eq!(server_step(&one, &none, true), ServerStep::Reload { close: vec![share("one")] });
    let key = |times| {
        served([
            account_doc("one", json!({})),
            json!({"id": "/lazuli/storageKeys/one", "type": "lazuli/storageKeys", "properties": {"key1": times}}),
        ])
        .accounts[&account("one")]
            .clone()
    };
    assert_eq!(server_step(&key(1), &key(2), true), ServerStep::Restart);
    let open = Account { encrypted: false, ..one.clone() };
    assert_eq!(server_step(&one, &open, true), ServerStep::Restart);
}

/// One request to the shares of an account.
#[derive(Clone, Debug)]
enum Request {
    Create(usize),
    Delete(usize, bool),
    Restore(usize, usize),
    Wait,
}

fn request() -> impl Strategy<Value = Request> {
    prop_oneof![
        (0..4_usize).prop_map(Request::Create),
        (0..4_usize, any::<bool>()).prop_map(|(share, kept)| Request::Delete(share, kept)),
        (0..8_usize, 0..4_usize).prop_map(|(kept, share)| Request::Restore(kept, share)),
        Just(Request::Wait),
    ]
}

/// What Azure would have in each share, and the folders that the steps leave: a number for what a share was made with.
#[derive(Default)]
struct Twin {
    account: Account,
    contents: BTreeMap<String, u64>,
    folders: BTreeMap<String, u64>,
    made: u64,
    now: i128,
}

impl Twin {
    const DAYS: i128 = 3;

    fn ask(&mut self, request: &Request) {
        let old = self.account.clone();
        let name = |index: usize| share(["aaa", "bbb", "ccc", "ddd"][index]);
        self.now += 1;
        // As the emulator does: what is over goes first, in the same step.
        let now = self.now;
        let over = |(kept, over): (&KeptName, &i128)| (*over <= now).then(|| kept.clone());
        for kept in self.account.kept.iter().filter_map(over).collect::<Vec<_>>() {
            self.account.kept.remove(&kept);
            self.contents.remove(kept.as_str());
        }
        match request {
            Request::Create(index) => {
                let own = name(*index);
                if self.account.shares.insert(own.clone(), 1).is_none() {
                    self.made += 1;
                    self.contents.insert(own.as_str().to_owned(), self.made);
                }
            }
            Request::Delete(index, keep) => {
                let own = name(*index);
                if self.account.shares.remove(&own).is_some() {
                    let content = self.contents.remove(own.as_str()).unwrap();
                    if *keep {
                        let kept = KeptName::parse(&format!("{}_{:x}", own.as_str(), self.now)).unwrap();
                        self.contents.insert(kept.as_str().to_owned(), content);
                        self.account.kept.insert(kept, self.now + Self::DAYS);
                    }
                }
            }
            Request::Restore(kept, index) => {
                let own = name(*index);
                let found = self.account.kept.keys().nth(*kept).cloned();
                if let Some(kept) = found.filter(|_| !self.account.shares.contains_key(&own)) {
                    self.account.kept.remove(&kept);
                    let content = self.contents.remove(kept.as_str()).unwrap();
                    self.contents.insert(own.as_str().to_owned(), content);
                    self.account.shares.insert(own, 1);
                }
            }
            Request::Wait => self.now += Self::DAYS,
        }
        let (old, new, now) = (old, self.account.clone(), self.now);
        for step in folder_steps(&old, &new, now) {
            self.carry_out(step);
        }
    }

    fn carry_out(&mut self, step: FolderStep) {
        let mut take = |name: &str| self.folders.remove(name).unwrap_or_else(|| panic!("no folder {name}"));
        let made = match step {
            FolderStep::Make(own) => Some((own.as_str().to_owned(), self.made)),
            FolderStep::Drop(own) => {
                take(own.as_str());
                None
            }
            FolderStep::DropKept(kept) => {
                take(kept.as_str());
                None
            }
            FolderStep::Keep(own, kept) => Some((kept.as_str().to_owned(), take(own.as_str()))),
            FolderStep::Restore(kept, own) => Some((own.as_str().to_owned(), take(kept.as_str()))),
        };
        if let Some((name, content)) = made {
            assert!(self.folders.insert(name, content).is_none(), "a folder is overwritten");
        }
    }
}

proptest! {
    #[test]
    fn a_share_has_the_files_that_were_put_into_it_whatever_is_deleted_and_restored(
        requests in proptest::collection::vec(request(), 0..40),
    ) {
        let mut twin = Twin::default();
        for request in &requests {
            twin.ask(request);
            prop_assert_eq!(&twin.folders, &twin.contents, "after {:?}", request);
        }
    }

    #[test]
    fn no_name_brings_a_line_into_what_samba_reads(
        name in any::<String>(), other in "[a-z0-9\\-\\]\\[\n\r\t =;#%.]{3,20}", owner in "[a-z0-9\n=! ]{3,24}",
    ) {
        let mut documents = vec![account_doc("one", json!({}))];
        // An id has no slash in a name.
        for name in [name, other.clone()].iter().map(|name| name.replace('/', "")) {
            documents.push(share_doc("one", &name, json!({"shareQuota": 1})));
        }
        documents.push(account_doc(&owner, json!({})));
        documents.push(share_doc(&owner, &other, json!({"shareQuota": 1})));
        let files = served(documents);
        for (name, account) in &files.accounts {
            let place = Place::new(Path::new("/srv/smb"), name);
            let text = config::configuration(name, account, &place, 1);
            let count = |shares: usize| config::configuration(name, &Account::default(), &place, 1).lines().count() + shares * 6;
            prop_assert_eq!(text.lines().count(), count(account.shares.len()));
            prop_assert_eq!(text.matches('[').count(), 1 + account.shares.len());
            prop_assert!(text.chars().all(|c| c.is_ascii() && (c == '\n' || c == '\t' || !c.is_control()) && c != '%' && c != '\r'));
            prop_assert_eq!(config::users(name).lines().count(), 2 - usize::from(name.as_str() == "root"));
        }
    }
}
