//! What holds for every list of accounts, and for claims that are killed and repeated.

use lazuli_model::seeded::Numbers;
use proptest::prelude::*;

use super::*;

/// What a simulated Azure holds: accounts with their file service and the names of their shares.
#[derive(Default)]
struct World {
    accounts: Vec<(StorageAccount, FileService, Vec<String>)>,
    /// How many of the accounts a list shows: new ones appear late.
    listed: usize,
    puts: Vec<ArmId>,
}

/// What a caller of [`choose`] does, until the share is made or the process is killed.
fn provision(world: &mut World, class: &ShareClass, share: &str, numbers: &mut Numbers, kill_one_in: u64) -> bool {
    let request = AccountRequest { request: share, ..asking(class) };
    let mut known = world.accounts[..world.listed].iter().map(|(one, ..)| one.clone()).collect::<Vec<_>>();
    let (mut services, mut uses, mut taken) = (BTreeMap::new(), BTreeMap::new(), none());
    let random = random_number(share);
    for _ in 0..200 {
        if kill_one_in > 0 && numbers.one_in(kill_one_in) {
            return false;
        }
        let index = |world: &World, id: &ArmId| world.accounts.iter().position(|(one, ..)| one.id == *id);
        let list: Vec<AccountSeen<'_>> = known
            .iter()
            .map(|account| AccountSeen {
                account,
                file_service: services.get(&account.id).copied(),
                shares: uses.get(&account.id).map(|(shares, _)| *shares),
                holds_share: uses.get(&account.id).is_some_and(|(_, holds)| *holds),
                is_refused: false,
            })
            .collect();
        match choose(&request, &list, &taken, random) {
            Choice::Use(id) => {
                let at = index(world, &id).unwrap();
                let shares = &mut world.accounts[at].2;
                if !shares.iter().any(|one| one == share) {
                    shares.push(share.to_owned());
                }
                return true;
            }
            Choice::ReadFileService(id) => {
                let service = world.accounts[index(world, &id).unwrap()].1;
                assert!(services.insert(id, service).is_none(), "read twice");
            }
            Choice::ReadShares(id) => {
                let shares = &world.accounts[index(world, &id).unwrap()].2;
                let count = ShareUse { shares: shares.len() as u32, quota: shares.len() as u64 * 100 };
                let holds = shares.iter().any(|one| one == share);
                assert!(uses.insert(id, (count, holds)).is_none(), "read twice");
            }
            Choice::Create(candidate) => {
                let account = made(&candidate);
                match index(world, &account.id) {
                    Some(index) => known.push(world.accounts[index].0.clone()),
                    None if account.name().ends_with('7') => drop(taken.insert(account.name().to_owned())),
                    None => {
                        world.puts.push(account.id.clone());
                        world.accounts.push((account.clone(), FileService::default(), Vec::new()));
                        known.push(account);
                    }
                }
            }
            Choice::FinishFileService { account, spec } => {
                let service = FileService {
                    smb_multichannel: spec.smb_multichannel,
                    share_delete_retention: spec.share_delete_retention,
                    retention_days: None,
                };
                let index = index(world, &account).unwrap();
                world.accounts[index].1 = service;
                services.insert(account, service);
            }
            Choice::Wait(_) | Choice::Refused(_) => panic!("nothing is in the making, and there are names enough"),
        }
    }
    panic!("{share}: no decision after 200 steps");
}

#[test]
fn killed_and_repeated_claims_make_no_account_too_many_and_no_share_twice() {
    for seed in 0..300 {
        let mut numbers = Numbers::new(seed);
        let sku = ["StandardV2_LRS", "Standard_LRS", "Premium_LRS"][(seed % 3) as usize];
        let mut pairs = vec![("skuName", sku)];
        if seed % 2 == 0 {
            pairs.push(("disableDeleteRetentionPolicy", "true"));
        }
        if seed % 5 == 0 {
            pairs.push(("selectRandomMatchingAccount", "true"));
        }
        let class = class(&pairs);
        let mut world = World::default();
        let claims = if sku == "StandardV2_LRS" { 120 } else { 30 };
        for claim in 0..claims {
            while !provision(&mut world, &class, &format!("pvc-{claim}"), &mut numbers, 8) {}
            if numbers.one_in(3) {
                world.listed = world.accounts.len();
                // Azure's list is in the order of names.
                world.accounts.sort_by(|one, other| one.0.id.cmp(&other.0.id));
            }
            // A claim that is done may be asked for once more.
            assert!(provision(&mut world, &class, &format!("pvc-{claim}"), &mut numbers, 0));
        }
        let mut all: Vec<&String> = world.accounts.iter().flat_map(|(_, _, shares)| shares).collect();
        let count = all.len();
        all.sort();
        all.dedup();
        assert_eq!((count, all.len()), (claims, claims), "seed {seed}: a share was made twice");
        let accounts = if sku == "StandardV2_LRS" { 3 } else { 1 };
        assert_eq!(world.puts.len(), accounts, "seed {seed}");
        let distinct: BTreeSet<&ArmId> = world.puts.iter().collect();
        assert_eq!(distinct.len(), accounts, "seed {seed}: an account that exists was PUT");
    }
}

fn any_account() -> impl Strategy<Value = StorageAccount> {
    let flags = (any::<bool>(), any::<bool>(), proptest::option::of(any::<bool>()), any::<bool>(), any::<bool>());
    ("[a-z]{3,6}", flags, 0usize..4).prop_map(|(name, (kind, https, blob, skip, busy), sku)| StorageAccount {
        kind: Some(if kind { AccountKind::StorageV2 } else { AccountKind::FileStorage }),
        https_only: Some(https),
        allow_blob_public_access: blob,
        sku: StorageSku::ALL.get(sku * 3).copied(),
        tags: if skip { [("skip-matching".to_owned(), String::new())].into() } else { BTreeMap::new() },
        provisioning_state: if busy { ProvisioningState::Failed } else { ProvisioningState::Succeeded },
        ..StorageAccount::general_purpose(&name)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn the_first_that_fits_and_has_room_is_chosen_whatever_else_is_there(
        accounts in proptest::collection::vec(any_account(), 0..8), quota in proptest::option::of(Just("150")),
        shares in proptest::collection::vec(proptest::option::of(0u32..4), 8), random in any::<u64>(), pick in any::<bool>(),
    ) {
        let mut pairs = vec![("selectRandomMatchingAccount", if pick { "true" } else { "false" })];
        pairs.extend(quota.map(|quota| ("accountQuota", quota)));
        let class = class(&pairs);
        let request = asking(&class);
        let list: Vec<AccountSeen<'_>> = accounts
            .iter()
            .zip(&shares)
            .map(|(account, shares)| AccountSeen {
                shares: shares.map(|shares| ShareUse { shares, quota: u64::from(shares) * 100 }),
                ..seen(account)
            })
            .collect();
        let choice = choose(&request, &list, &none(), random);
        let fits: Vec<AccountSeen<'_>> =
            list.iter().filter(|one| fit(&request, one.account) == Fit::Fits).copied().collect();
        prop_assert_eq!(&choose(&request, &fits, &none(), random), &choice);
        match &choice {
            Choice::Use(id) => {
                let at = fits.iter().position(|one| one.account.id == *id).expect("it is one that fits");
                let has_room = |one: &AccountSeen<'_>| {
                    one.account.provisioning_state == ProvisioningState::Succeeded
                        && (quota.is_none() || one.shares.is_some_and(|shares| shares.quota <= 150))
                };
                prop_assert!(has_room(&fits[at]));
                if !pick {
                    prop_assert!(fits[..at].iter().all(|one| !has_room(one)));
                }
            }
            Choice::Create(candidate) => {
                prop_assert!(list.iter().all(|one| one.account.id != candidate.account), "no account is PUT that exists");
            }
            Choice::ReadShares(id) => {
                prop_assert!(fits.iter().any(|one| one.account.id == *id && one.shares.is_none()));
            }
            other => prop_assert!(false, "{other:?}"),
        }
    }

    #[test]
    fn names_of_new_accounts_are_valid_and_differ(request in "\\PC{0,40}", number in 0u8..MOST_NAMES, other in 0u8..MOST_NAMES) {
        let class = class(&[("createAccount", "true")]);
        let request = AccountRequest { request: &request, ..asking(&class) };
        let name = candidate_name(&request, number);
        prop_assert_eq!(name.len(), MADE_ACCOUNT_NAME_LENGTH);
        prop_assert!(name.starts_with('f') && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit()));
        prop_assert_eq!(name == candidate_name(&request, other), number == other);
    }
}
