mod laws;

use std::collections::{BTreeMap, BTreeSet};

use lazuli_model::{AccountAccessTier, AccountNetworkAccess, PrivateEndpointConnection};

use super::*;
use crate::parameters::Defaults;

fn class(pairs: &[(&str, &str)]) -> ShareClass {
    let parameters = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let defaults = Defaults {
        subscription: "s".into(),
        resource_group: "g".into(),
        location: "local".into(),
        storage_endpoint_suffix: "core.windows.net".into(),
        vnet_name: "vnet".into(),
        subnet_name: "nodes".into(),
        ..Defaults::default()
    };
    ShareClass::parse(&parameters, &BTreeMap::new(), &defaults).unwrap()
}

fn asking(class: &ShareClass) -> AccountRequest<'_> {
    AccountRequest { class, request: "pvc-1", location: "local", size: Gib::new(100) }
}

fn seen(account: &StorageAccount) -> AccountSeen<'_> {
    AccountSeen { account, file_service: None, shares: None, holds_share: false, is_refused: false }
}

/// The same, with its shares read.
fn read(account: &StorageAccount) -> AccountSeen<'_> {
    AccountSeen { shares: Some(ShareUse::default()), ..seen(account) }
}

fn none() -> BTreeSet<String> {
    BTreeSet::new()
}

/// An account as Azure shows one that was made by a candidate's PUT.
fn made(candidate: &Candidate) -> StorageAccount {
    let Candidate { account, spec, .. } = candidate;
    StorageAccount {
        id: account.clone(),
        location: spec.location.clone(),
        sku: Some(spec.sku),
        kind: Some(spec.kind),
        access_tier: spec.access_tier,
        tags: spec.tags.clone(),
        https_only: Some(spec.https_only),
        allow_blob_public_access: spec.allow_blob_public_access,
        allow_shared_key_access: spec.allow_shared_key_access,
        require_infrastructure_encryption: spec.require_infrastructure_encryption,
        large_file_shares: spec.large_file_shares,
        public_network_access: spec.public_network_access,
        network_rules: spec.network_rules.clone(),
        ..StorageAccount::general_purpose("x")
    }
}

fn created(choice: Choice) -> Candidate {
    match choice {
        Choice::Create(candidate) => *candidate,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_body_of_a_new_account_is_that_of_the_go_driver() {
    let class = class(&[("tags", "team=x")]);
    let candidate = created(choose(&asking(&class), &[], &none(), 0));
    let expected = AccountSpec {
        location: "local".into(),
        sku: StorageSku::StandardLrs,
        kind: AccountKind::StorageV2,
        tags: [("k8s-azure-created-by", "azure"), ("team", "x")].map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
        access_tier: None,
        https_only: true,
        minimum_tls_version: "TLS1_2",
        allow_blob_public_access: Some(false),
        allow_shared_key_access: None,
        allow_cross_tenant_replication: None,
        require_infrastructure_encryption: None,
        large_file_shares: None,
        public_network_access: None,
        network_rules: None,
    };
    assert_eq!(candidate.spec, expected);
    assert!(candidate.file_service.is_empty());
    assert_eq!((candidate.account.subscription(), candidate.account.resource_group()), ("s", "g"));
}

#[test]
fn what_a_class_says_of_accounts_is_in_the_body() {
    let class = class(&[
        ("skuName", "PremiumV2_ZRS"),
        ("location", "north"),
        ("accountAccessTier", "Cool"),
        ("allowBlobPublicAccess", "true"),
        ("allowSharedKeyAccess", "true"),
        ("allowCrossTenantReplication", "false"),
        ("requireInfraEncryption", "true"),
        ("enableLargeFileShares", "false"),
        ("publicNetworkAccess", "Disabled"),
        ("networkEndpointType", "serviceEndpoint"),
        ("enableMultichannel", "true"),
        ("disableDeleteRetentionPolicy", "true"),
    ]);
    let candidate = created(choose(&asking(&class), &[], &none(), 0));
    let spec = candidate.spec;
    assert_eq!((spec.sku, spec.kind), (StorageSku::PremiumV2Zrs, AccountKind::FileStorage));
    assert_eq!((spec.location.as_str(), spec.access_tier), ("north", Some(AccountAccessTier::Cool)));
    assert_eq!((spec.allow_blob_public_access, spec.allow_shared_key_access), (Some(true), Some(true)));
    assert_eq!((spec.allow_cross_tenant_replication, spec.large_file_shares), (Some(false), Some(false)));
    assert_eq!(spec.require_infrastructure_encryption, Some(true));
    assert_eq!(spec.public_network_access, Some(AccountNetworkAccess::Disabled));
    let rules = spec.network_rules.unwrap();
    assert_eq!((rules.default_action, rules.virtual_networks.len()), (NetworkAction::Deny, 1));
    assert_eq!(rules.virtual_networks[0].action, NetworkAction::Allow);
    assert_eq!(
        candidate.file_service,
        FileServiceSpec { smb_multichannel: Some(true), share_delete_retention: Some(false) }
    );
}

#[test]
fn every_sku_but_pay_as_you_go_is_of_accounts_for_file_shares_alone() {
    for sku in StorageSku::ALL {
        let class = class(&[("skuName", sku.as_str())]);
        let is_payg = sku.as_str().starts_with("Standard_");
        let kind = if is_payg { AccountKind::StorageV2 } else { AccountKind::FileStorage };
        assert_eq!(asking(&class).spec().kind, kind, "{sku}");
    }
}

#[test]
fn an_account_that_is_made_for_a_class_fits_it() {
    for pairs in [
        &[][..],
        &[("skuName", "Premium_LRS"), ("requireInfraEncryption", "true"), ("accountAccessTier", "Cool")],
        &[("matchTags", "true"), ("tags", "a=b"), ("enableLargeFileShares", "true")],
        &[("networkEndpointType", "serviceEndpoint"), ("publicNetworkAccess", "Enabled"), ("location", "L")],
        &[("allowBlobPublicAccess", "true"), ("allowSharedKeyAccess", "true")],
    ] {
        let class = class(pairs);
        let candidate = created(choose(&asking(&class), &[], &none(), 0));
        assert_eq!(fit(&asking(&class), &made(&candidate)), Fit::Fits, "{pairs:?}");
    }
}

/// A class, what is changed of an account that fits it, and the property that no longer fits.
type Case = (&'static [(&'static str, &'static str)], fn(&mut StorageAccount), Mismatch);

#[test]
fn each_property_that_the_go_driver_compares_can_make_an_account_not_fit() {
    let cases: &[Case] = &[
        (&[("skuName", "Standard_LRS")], |a| a.sku = Some(StorageSku::StandardZrs), Mismatch::Sku),
        (&[("skuName", "Standard_LRS")], |a| a.sku = None, Mismatch::Sku),
        (&[], |a| a.kind = Some(AccountKind::FileStorage), Mismatch::Kind),
        (&[], |a| a.kind = None, Mismatch::Kind),
        (&[("location", "local")], |a| a.location = "other".into(), Mismatch::Location),
        (&[("enableLargeFileShares", "true")], |a| a.large_file_shares = None, Mismatch::LargeFileShares),
        (&[("enableLargeFileShares", "false")], |a| a.large_file_shares = Some(true), Mismatch::LargeFileShares),
        (&[("matchTags", "true"), ("tags", "a=b")], |a| drop(a.tags.remove("a")), Mismatch::Tags),
        (&[("matchTags", "true"), ("tags", "a=b")], |a| drop(a.tags.insert("a".into(), "B".into())), Mismatch::Tags),
        (&[("matchTags", "true")], |a| a.tags.clear(), Mismatch::Tags),
        (&[], |a| drop(a.tags.insert("skip-matching".into(), String::new())), Mismatch::Skipped),
        (&[], |a| drop(a.tags.insert("Skip-Matching".into(), "x".into())), Mismatch::Skipped),
        (&[], |a| a.hierarchical_namespace = Some(true), Mismatch::HierarchicalNamespace),
        (&[], |a| a.nfs_v3 = Some(true), Mismatch::NfsV3),
        (&[], |a| a.https_only = Some(false), Mismatch::HttpsOnly),
        (&[], |a| a.allow_blob_public_access = None, Mismatch::AllowBlobPublicAccess),
        (
            &[("allowBlobPublicAccess", "true")],
            |a| a.allow_blob_public_access = Some(false),
            Mismatch::AllowBlobPublicAccess,
        ),
        (&[], |a| a.require_infrastructure_encryption = Some(true), Mismatch::RequireInfrastructureEncryption),
        (
            &[("requireInfraEncryption", "true")],
            |a| a.require_infrastructure_encryption = None,
            Mismatch::RequireInfrastructureEncryption,
        ),
        (&[], |a| a.allow_shared_key_access = Some(false), Mismatch::AllowSharedKeyAccess),
        (&[("accountAccessTier", "Cool")], |a| a.access_tier = Some(AccountAccessTier::Hot), Mismatch::AccessTier),
        (&[("accountAccessTier", "Cool")], |a| a.access_tier = None, Mismatch::AccessTier),
        (
            &[("publicNetworkAccess", "Enabled")],
            |a| a.public_network_access = Some(AccountNetworkAccess::Disabled),
            Mismatch::PublicNetworkAccess,
        ),
        (&[("publicNetworkAccess", "Disabled")], |a| a.public_network_access = None, Mismatch::PublicNetworkAccess),
        (&[("networkEndpointType", "serviceEndpoint")], |a| a.network_rules = None, Mismatch::NetworkRules),
        (
            &[("networkEndpointType", "serviceEndpoint"), ("subnetName", "a,b")],
            |a| drop(a.network_rules.as_mut().unwrap().virtual_networks.pop()),
            Mismatch::NetworkRules,
        ),
        (
            &[("networkEndpointType", "serviceEndpoint")],
            |a| a.network_rules.as_mut().unwrap().virtual_networks[0].action = NetworkAction::Deny,
            Mismatch::NetworkRules,
        ),
    ];
    for (pairs, change, mismatch) in cases {
        let class = class(pairs);
        let mut account = made(&created(choose(&asking(&class), &[], &none(), 0)));
        assert_eq!(fit(&asking(&class), &account), Fit::Fits);
        change(&mut account);
        assert_eq!(fit(&asking(&class), &account), Fit::Differs(*mismatch), "{pairs:?}");
    }
}

#[test]
fn what_a_class_does_not_say_does_not_count() {
    let class = class(&[]);
    let mut account = StorageAccount::general_purpose("acct");
    account.sku = None;
    account.location = "elsewhere".into();
    account.tags.clear();
    account.access_tier = None;
    account.large_file_shares = Some(true);
    account.public_network_access = Some(AccountNetworkAccess::Disabled);
    account.private_endpoint_connections = vec![PrivateEndpointConnection { id: "pe".into(), endpoint: None }];
    account.allow_shared_key_access = None;
    account.https_only = None;
    assert_eq!(fit(&asking(&class), &account), Fit::Fits);
    account.location = "West Europe".into();
    let class = self::class(&[("location", "westeurope")]);
    assert_eq!(fit(&asking(&class), &account), Fit::Fits);
}

#[test]
fn the_first_account_of_the_list_that_fits_is_used() {
    let class = class(&[]);
    let [mut a, b, c] = ["a1a", "b1b", "c1c"].map(StorageAccount::general_purpose);
    a.kind = Some(AccountKind::BlobStorage);
    let list = [seen(&a), read(&b), read(&c)];
    assert_eq!(choose(&asking(&class), &list, &none(), 1), Choice::Use(b.id.clone()));
    let turned = [read(&c), read(&b), seen(&a)];
    assert_eq!(choose(&asking(&class), &turned, &none(), 1), Choice::Use(c.id.clone()));
}

#[test]
fn a_share_that_an_earlier_try_has_made_is_looked_for_in_all_accounts_that_fit() {
    let class = class(&[]);
    let [a, b] = ["a1a", "b1b"].map(StorageAccount::general_purpose);
    let choose = |list: &[AccountSeen<'_>]| choose(&asking(&class), list, &none(), 1);
    // An account of another class has come before the one that has the share.
    assert_eq!(choose(&[seen(&a), seen(&b)]), Choice::ReadShares(a.id.clone()));
    assert_eq!(choose(&[read(&a), seen(&b)]), Choice::ReadShares(b.id.clone()));
    assert_eq!(choose(&[read(&a), AccountSeen { holds_share: true, ..read(&b) }]), Choice::Use(b.id.clone()));
    // One alone is the one that an earlier try took.
    assert_eq!(choose(&[seen(&b)]), Choice::Use(b.id.clone()));
    let many: Vec<_> = (0..=MOST_LOOKED_INTO).map(|n| StorageAccount::general_purpose(&format!("m{n}"))).collect();
    let many: Vec<_> = many.iter().map(seen).collect();
    assert_eq!(choose(&many), Choice::Use(many[0].account.id.clone()));
}

#[test]
fn a_random_account_is_one_of_those_that_fit() {
    let class = class(&[("selectRandomMatchingAccount", "true")]);
    let [mut a, b, c] = ["a1a", "b1b", "c1c"].map(StorageAccount::general_purpose);
    a.https_only = Some(false);
    let list = [seen(&a), read(&b), read(&c)];
    for (random, expected) in [(0, &b), (1, &c), (2, &b), (u64::MAX, &c)] {
        assert_eq!(choose(&asking(&class), &list, &none(), random), Choice::Use(expected.id.clone()), "{random}");
    }
    assert!(matches!(choose(&asking(&class), &[], &none(), 7), Choice::Create(_)));
    assert_eq!(random_number("pvc-1"), random_number("pvc-1"));
    assert_ne!(random_number("pvc-1") % 1_000, random_number("pvc-2") % 1_000);
}

fn used(shares: u32, quota: u64) -> Option<ShareUse> {
    Some(ShareUse { shares, quota })
}

#[test]
fn a_full_account_is_passed_over() {
    for (sku, shares, has_room) in [
        ("StandardV2_LRS", used(49, 49 * 32), true),
        ("StandardV2_LRS", used(50, 50 * 32), false),
        ("PremiumV2_LRS", used(50, 0), false),
        ("PremiumV2_LRS", used(1, 262_044), true),
        ("PremiumV2_LRS", used(1, 262_045), false),
        ("Premium_LRS", used(1_023, 0), true),
        ("Premium_LRS", used(1_024, 0), false),
        ("Premium_LRS", used(1, 102_300), true),
        ("Premium_LRS", used(1, 102_301), false),
        ("Standard_LRS", used(100_000, 10_000_000), true),
    ] {
        let class = class(&[("skuName", sku)]);
        let account = made(&created(choose(&asking(&class), &[], &none(), 0)));
        let account = StorageAccount { id: ArmId::storage_account("s", "g", "first").unwrap(), ..account };
        let choice = choose(&asking(&class), &[AccountSeen { shares, ..seen(&account) }], &none(), 0);
        if has_room {
            assert_eq!(choice, Choice::Use(account.id), "{sku} {shares:?}");
        } else {
            assert!(matches!(choice, Choice::Create(_)), "{sku} {shares:?}");
        }
    }
}

#[test]
fn a_small_share_takes_the_room_of_the_smallest_that_its_sku_has() {
    let class = class(&[("skuName", "Premium_LRS")]);
    let account = made(&created(choose(&asking(&class), &[], &none(), 0)));
    let account = StorageAccount { id: ArmId::storage_account("s", "g", "first").unwrap(), ..account };
    let small = AccountRequest { size: Gib::new(5), ..asking(&class) };
    let with = |quota| AccountSeen { shares: used(1, quota), ..seen(&account) };
    assert_eq!(choose(&small, &[with(102_300)], &none(), 0), Choice::Use(account.id.clone()));
    assert!(matches!(choose(&small, &[with(102_301)], &none(), 0), Choice::Create(_)));
}

#[test]
fn no_account_is_chosen_while_another_may_hold_the_share_already() {
    let class = class(&[("skuName", "StandardV2_LRS")]);
    let account = made(&created(choose(&asking(&class), &[], &none(), 0)));
    let [first, second] = ["first", "second"]
        .map(|name| StorageAccount { id: ArmId::storage_account("s", "g", name).unwrap(), ..account.clone() });
    let with_room = AccountSeen { shares: used(1, 32), ..seen(&first) };
    let refused = AccountSeen { is_refused: true, ..seen(&second) };
    for unread in [seen(&second), refused] {
        assert_eq!(choose(&asking(&class), &[with_room, unread], &none(), 0), Choice::ReadShares(second.id.clone()));
        let read = AccountSeen { shares: used(50, 1_600), ..unread };
        assert_eq!(choose(&asking(&class), &[with_room, read], &none(), 0), Choice::Use(first.id.clone()));
    }
}

#[test]
fn an_account_quota_lets_in_the_share_that_goes_over_it_and_none_after() {
    let class = class(&[("accountQuota", "200")]);
    let account = StorageAccount::general_purpose("acct");
    let with = |shares| AccountSeen { shares, ..seen(&account) };
    assert_eq!(choose(&asking(&class), &[with(None)], &none(), 0), Choice::ReadShares(account.id.clone()));
    assert_eq!(choose(&asking(&class), &[with(used(2, 200))], &none(), 0), Choice::Use(account.id.clone()));
    assert!(matches!(choose(&asking(&class), &[with(used(2, 201))], &none(), 0), Choice::Create(_)));
}

#[test]
fn deleted_shares_count_and_snapshots_do_not() {
    let share = |name: &str| FileShare::smb("acct", name, 32);
    let deleted = lazuli_model::DeletedShare { version: "1".into(), deleted: None, remaining_days: Some(1) };
    let shares = [
        share("a"),
        FileShare { deleted: Some(deleted), ..share("b") },
        FileShare { snapshot: Some("t".into()), ..share("a") },
    ];
    assert_eq!(ShareUse::of(&shares), ShareUse { shares: 2, quota: 64 });
}

#[test]
fn an_account_that_azure_calls_full_is_passed_over() {
    let class = class(&[]);
    let account = StorageAccount::general_purpose("acct");
    let full = AccountSeen { is_refused: true, ..seen(&account) };
    assert!(matches!(choose(&asking(&class), &[full], &none(), 0), Choice::Create(_)));
}

#[test]
fn a_repeated_request_finds_its_share_in_an_account_that_is_full_by_now() {
    let class = class(&[("skuName", "StandardV2_LRS")]);
    let account = made(&created(choose(&asking(&class), &[], &none(), 0)));
    let [first, second] = ["first", "second"]
        .map(|name| StorageAccount { id: ArmId::storage_account("s", "g", name).unwrap(), ..account.clone() });
    let with_room = AccountSeen { shares: used(1, 32), ..seen(&first) };
    fn holding(account: &StorageAccount) -> AccountSeen<'_> {
        AccountSeen { shares: used(50, 1_600), holds_share: true, ..seen(account) }
    }
    assert_eq!(choose(&asking(&class), &[with_room, holding(&second)], &none(), 0), Choice::Use(second.id.clone()));
    // Also where it no longer fits: the name of a generated share is the request's alone.
    let second = StorageAccount { https_only: Some(false), ..second.clone() };
    assert_eq!(choose(&asking(&class), &[with_room, holding(&second)], &none(), 0), Choice::Use(second.id.clone()));
    let named = self::class(&[("skuName", "StandardV2_LRS"), ("shareName", "data")]);
    assert_eq!(choose(&asking(&named), &[with_room, holding(&second)], &none(), 0), Choice::Use(first.id.clone()));
}

#[test]
fn what_is_not_known_is_read() {
    let class = class(&[("disableDeleteRetentionPolicy", "true"), ("accountQuota", "100")]);
    let account = StorageAccount::general_purpose("acct");
    let mut one = seen(&account);
    assert_eq!(choose(&asking(&class), &[one], &none(), 0), Choice::ReadFileService(account.id.clone()));
    one.file_service = Some(FileService { share_delete_retention: Some(false), ..FileService::default() });
    assert_eq!(choose(&asking(&class), &[one], &none(), 0), Choice::ReadShares(account.id.clone()));
    one.shares = used(0, 0);
    assert_eq!(choose(&asking(&class), &[one], &none(), 0), Choice::Use(account.id.clone()));
    // Absent is enabled.
    one.file_service = Some(FileService::default());
    assert!(matches!(choose(&asking(&class), &[one], &none(), 0), Choice::Create(_)));
    let kept = self::class(&[("disableDeleteRetentionPolicy", "false")]);
    assert_eq!(choose(&asking(&kept), &[one], &none(), 0), Choice::Use(account.id.clone()));
}

#[test]
fn multichannel_is_off_where_azure_does_not_say() {
    for (asked, said, fits) in [
        ("true", None, false),
        ("true", Some(true), true),
        ("true", Some(false), false),
        ("false", None, true),
        ("false", Some(true), false),
    ] {
        let class = class(&[("skuName", "Premium_LRS"), ("enableMultichannel", asked)]);
        let service = FileService { smb_multichannel: said, ..FileService::default() };
        assert_eq!(fits_file_service(&asking(&class), &service), fits, "{asked} {said:?}");
    }
    let silent = class(&[]);
    let service =
        FileService { smb_multichannel: Some(true), share_delete_retention: Some(false), retention_days: None };
    assert!(fits_file_service(&asking(&silent), &service));
}

#[test]
fn an_account_in_the_making_is_waited_for_and_a_failed_one_is_not_used() {
    let class = class(&[]);
    let mut account = StorageAccount::general_purpose("acct");
    account.provisioning_state = ProvisioningState::InProgress;
    assert_eq!(choose(&asking(&class), &[seen(&account)], &none(), 0), Choice::Wait(account.id.clone()));
    account.provisioning_state = ProvisioningState::Failed;
    assert!(matches!(choose(&asking(&class), &[seen(&account)], &none(), 0), Choice::Create(_)));
}

#[test]
fn an_account_of_ours_that_was_interrupted_is_finished_only_while_it_is_empty() {
    let class = class(&[("disableDeleteRetentionPolicy", "true")]);
    let candidate = created(choose(&asking(&class), &[], &none(), 0));
    let account = made(&candidate);
    let one = AccountSeen { file_service: Some(FileService::default()), ..seen(&account) };
    assert_eq!(choose(&asking(&class), &[one], &none(), 0), Choice::ReadShares(account.id.clone()));
    let empty = AccountSeen { shares: used(0, 0), ..one };
    assert_eq!(
        choose(&asking(&class), &[empty], &none(), 0),
        Choice::FinishFileService { account: account.id.clone(), spec: candidate.file_service }
    );
    let in_use = AccountSeen { shares: used(1, 100), ..one };
    let next = created(choose(&asking(&class), &[in_use], &none(), 0));
    assert_eq!(next.account.name(), candidate_name(&asking(&class), 1));
    // An account that this driver did not make is not changed, empty or not.
    let theirs = StorageAccount { id: ArmId::storage_account("s", "g", "theirs").unwrap(), ..account.clone() };
    let theirs = AccountSeen { account: &theirs, ..empty };
    assert!(matches!(choose(&asking(&class), &[theirs], &none(), 0), Choice::Create(_)));
}

#[test]
fn a_named_account_is_used_unread_and_made_only_where_the_class_says_so() {
    let id = |name| ArmId::storage_account("s", "g", name).unwrap();
    let plain = class(&[("storageAccount", "acct1")]);
    assert_eq!(choose(&asking(&plain), &[], &none(), 0), Choice::Use(id("acct1")));
    let create = class(&[("storageAccount", "acct1"), ("createAccount", "true")]);
    assert_eq!(created(choose(&asking(&create), &[], &none(), 0)).account, id("acct1"));
    let account = StorageAccount { kind: None, ..StorageAccount::general_purpose("acct1") };
    assert_eq!(choose(&asking(&create), &[seen(&account)], &none(), 0), Choice::Use(id("acct1")));
    let taken = BTreeSet::from(["acct1".to_owned()]);
    assert_eq!(choose(&asking(&create), &[], &taken, 0), Choice::Refused(Refusal::NameTaken("acct1".into())));
}

#[test]
fn a_claim_may_have_an_account_of_its_own_and_keeps_it_over_tries() {
    let class = class(&[("createAccount", "true")]);
    let fits = StorageAccount::general_purpose("acct");
    let one = asking(&class);
    let other = AccountRequest { request: "pvc-2", ..one.clone() };
    let candidate = created(choose(&one, &[seen(&fits)], &none(), 0));
    let of_other = created(choose(&other, &[seen(&fits)], &none(), 0));
    assert_ne!(candidate.account, of_other.account);
    let account = made(&candidate);
    assert_eq!(choose(&one, &[seen(&fits), seen(&account)], &none(), 0), Choice::Use(account.id.clone()));
    assert_eq!(created(choose(&other, &[seen(&fits), seen(&account)], &none(), 0)).account, of_other.account);
}

#[test]
fn an_account_of_its_own_is_used_again_when_it_holds_the_share_and_never_when_it_is_to_be_skipped() {
    let class = class(&[("createAccount", "true"), ("accountQuota", "100")]);
    let account = made(&created(choose(&asking(&class), &[], &none(), 0)));
    let full = AccountSeen { shares: used(1, 200), ..seen(&account) };
    let holding = AccountSeen { holds_share: true, ..full };
    assert_eq!(choose(&asking(&class), &[holding], &none(), 0), Choice::Use(account.id.clone()));
    let next = |seen| created(choose(&asking(&class), &[seen], &none(), 0)).account.name().to_owned();
    assert_eq!(next(full), candidate_name(&asking(&class), 1));
    let mut skipped = account.clone();
    skipped.tags.insert(SKIP_MATCHING.into(), String::new());
    assert_eq!(next(AccountSeen { shares: used(0, 0), ..seen(&skipped) }), candidate_name(&asking(&class), 1));
}

#[test]
fn an_account_with_a_private_endpoint_is_used_and_else_one_is_made_once() {
    let class = class(&[("networkEndpointType", "privateEndpoint")]);
    let mut account = StorageAccount::general_purpose("acct");
    let candidate = created(choose(&asking(&class), &[seen(&account)], &none(), 0));
    let rules = candidate.spec.network_rules.as_ref().unwrap();
    assert_eq!((rules.default_action, rules.virtual_networks.len()), (NetworkAction::Deny, 0));
    assert!(matches!(&candidate.network, Some(network::Wanted::Zone(_))));
    // One that was interrupted before its endpoint was made is finished, and no second one is made.
    let unfinished = made(&candidate);
    for own in [&[seen(&account), seen(&unfinished)][..], &[seen(&unfinished)]] {
        assert_eq!(choose(&asking(&class), own, &none(), 0), Choice::Use(unfinished.id.clone()));
    }
    account.private_endpoint_connections = vec![PrivateEndpointConnection { id: "pe".into(), endpoint: None }];
    assert_eq!(choose(&asking(&class), &[seen(&account)], &none(), 0), Choice::Use(account.id.clone()));
}

#[test]
fn classes_of_different_networks_make_no_account_together() {
    let of = |pairs: &[(&str, &str)]| class(&[&[("networkEndpointType", "privateEndpoint")], pairs].concat());
    let own = of(&[]);
    let others =
        [of(&[("subnetName", "b")]), of(&[("vnetResourceGroup", "h")]), of(&[("privateDNSZoneResourceGroup", "h")])];
    let unfinished = made(&created(choose(&asking(&own), &[], &none(), 0)));
    for other in &others {
        assert_ne!(candidate_name(&asking(&own), 0), candidate_name(&asking(other), 0), "{:?}", other.endpoint);
        created(choose(&asking(other), &[seen(&unfinished)], &none(), 0));
    }
    // The endpoint that a driver has made is of the network in whose group it is.
    let Endpoint::Private(network) = &own.endpoint else { panic!("{own:?}") };
    let mut account = unfinished;
    let endpoint = network::Wanted::endpoint(&account.id, network).unwrap().endpoint_id().cloned();
    account.private_endpoint_connections = vec![PrivateEndpointConnection { id: "pe".into(), endpoint }];
    assert_eq!(fit(&asking(&own), &account), Fit::Fits);
    assert_eq!(fit(&asking(&others[1]), &account), Fit::Differs(Mismatch::PrivateEndpoint));
}

#[test]
fn an_account_that_is_made_for_subnets_needs_their_service_endpoints_first() {
    let service = class(&[("networkEndpointType", "serviceEndpoint"), ("subnetName", "a,b")]);
    let candidate = created(choose(&asking(&service), &[], &none(), 0));
    let Some(network::Wanted::ServiceEndpoints(subnets)) = &candidate.network else { panic!("{candidate:?}") };
    let rules = candidate.spec.network_rules.unwrap().virtual_networks;
    assert_eq!(*subnets, rules.into_iter().map(|rule| rule.subnet).collect::<Vec<_>>());
    assert_eq!(created(choose(&asking(&class(&[])), &[], &none(), 0)).network, None);
}

#[test]
fn the_eleventh_name_is_not_tried() {
    let class = class(&[]);
    let names: Vec<String> = (0..=MOST_NAMES).map(|number| candidate_name(&asking(&class), number)).collect();
    let mut taken = none();
    for name in &names[..10] {
        assert_eq!(created(choose(&asking(&class), &[], &taken, 0)).account.name(), name);
        taken.insert(name.clone());
    }
    let refusal = Refusal::NoNameLeft(names[9].clone());
    assert!(refusal.to_string().contains(&names[9]), "{refusal}");
    assert_eq!(choose(&asking(&class), &[], &taken, 0), Choice::Refused(refusal));
}

#[test]
fn the_name_of_a_new_account_depends_on_what_decides_a_match_and_on_nothing_else() {
    let name = |pairs: &[(&str, &str)]| candidate_name(&asking(&class(pairs)), 0);
    let plain = name(&[]);
    for pairs in [
        &[("skuName", "Standard_ZRS")][..],
        &[("resourceGroup", "h")],
        &[("subscriptionID", "t"), ("resourceGroup", "g")],
        &[("location", "other")],
        &[("accountAccessTier", "Cool")],
        &[("allowBlobPublicAccess", "true")],
        &[("allowSharedKeyAccess", "true")],
        &[("requireInfraEncryption", "true")],
        &[("enableLargeFileShares", "true")],
        &[("enableLargeFileShares", "false")],
        &[("publicNetworkAccess", "Enabled")],
        &[("networkEndpointType", "serviceEndpoint")],
        &[("networkEndpointType", "privateEndpoint")],
        &[("disableDeleteRetentionPolicy", "true")],
        &[("enableMultichannel", "false")],
        &[("matchTags", "true")],
        &[("createAccount", "true")],
    ] {
        assert_ne!(name(pairs), plain, "{pairs:?}");
    }
    for pairs in [
        &[("skuName", "Standard_LRS")][..],
        &[("resourceGroup", "G")],
        &[("tags", "a=b")],
        &[("shareName", "data")],
        &[("accountQuota", "100")],
        &[("getLatestAccountKey", "true")],
        &[("allowCrossTenantReplication", "true")],
        &[("selectRandomMatchingAccount", "true")],
    ] {
        assert_eq!(name(pairs), plain, "{pairs:?}");
    }
    let by_tags = |tags: &str| name(&[("matchTags", "true"), ("tags", tags)]);
    assert_ne!(by_tags("a=b"), by_tags("a=c"));
    assert_ne!(by_tags("a=b,c=d"), by_tags("a=bc,=d".replace(",=", ",x=").as_str()));
}

#[test]
fn the_skip_matching_tag_is_removed_and_other_tags_stay() {
    let mut account = StorageAccount::general_purpose("acct");
    assert_eq!(clear_skip_matching(&account), None);
    let before = account.tags.clone();
    account.tags.insert("Skip-Matching".into(), String::new());
    assert_eq!(clear_skip_matching(&account), Some(AccountWrite::Tags { account: account.id.clone(), tags: before }));
}

#[test]
fn no_account_is_made_before_the_shares_of_all_that_fit_are_known() {
    let class = class(&[("skuName", "StandardV2_LRS")]);
    let there = StorageAccount {
        sku: Some(StorageSku::StandardV2Lrs),
        kind: Some(AccountKind::FileStorage),
        ..StorageAccount::general_purpose("f1")
    };
    // It takes no more shares, but may hold that of an earlier try.
    let refused = AccountSeen { is_refused: true, ..seen(&there) };
    assert_eq!(choose(&asking(&class), &[refused], &none(), 0), Choice::ReadShares(there.id.clone()));
    let read = AccountSeen { shares: Some(ShareUse::default()), ..refused };
    created(choose(&asking(&class), &[read], &none(), 0));
    let holder = AccountSeen { holds_share: true, ..read };
    assert_eq!(choose(&asking(&class), &[holder], &none(), 0), Choice::Use(there.id.clone()));
}
