use proptest::prelude::*;

use super::*;

const CLUSTER: &str = "s/g/kubernetes";

fn evidence(accounts: Vec<Seen>) -> Evidence {
    Evidence {
        cluster: CLUSTER.into(),
        is_stack_hub: false,
        accounts,
        placed: BTreeMap::new(),
        making: Vec::new(),
        taken: BTreeSet::new(),
    }
}

fn blobs(count: usize) -> Blobs {
    Blobs::Known((0..count).map(|number| format!("old-{number}.vhd")).collect())
}

fn account(name: &str, sku: StorageSku, made_for_disks: bool) -> StorageAccount {
    let mut account = StorageAccount::general_purpose(name);
    account.sku = Some(sku);
    account.location = "West Europe".into();
    account.tags.clear();
    if made_for_disks {
        account.tags.insert(CREATED_BY.0.into(), CREATED_BY.1.into());
    }
    account
}

/// An account that the in-tree plugin made, with so many disks.
fn old(name: &str, disks: usize) -> Seen {
    Seen { account: account(name, StorageSku::PremiumLrs, true), blobs: blobs(disks) }
}

fn request(number: usize, place: Place) -> Request {
    Request {
        blob: format!("pvc-{number}.vhd"),
        place,
        sku: Some(StorageSku::PremiumLrs),
        location: "westeurope".into(),
    }
}

fn shared(count: usize) -> Vec<Request> {
    (0..count).map(|number| request(number, Place::Shared)).collect()
}

/// What Azure shows of an account once it is made.
fn made(new: &NewAccount) -> StorageAccount {
    StorageAccount {
        sku: Some(new.spec.sku),
        kind: Some(new.spec.kind),
        location: new.spec.location.clone(),
        tags: new.spec.tags.clone(),
        ..StorageAccount::general_purpose(&new.name)
    }
}

#[track_caller]
fn only_refusal(plan: &Plan) -> String {
    assert_eq!((plan.refused.len(), plan.joins.len(), plan.makes.len()), (1, 0, 0), "{plan:?}");
    plan.refused.values().next().unwrap().to_string()
}

#[test]
fn the_accounts_of_the_in_tree_plugin_are_joined_the_emptiest_first() {
    let evidence = evidence(vec![old("ds0a1b0", 12), old("ds0a1b1", 10)]);
    let plan = plan(&evidence, &shared(3));
    assert!(plan.makes.is_empty());
    let joined: Vec<_> = plan.joins.values().map(String::as_str).collect();
    assert_eq!(joined, ["ds0a1b1", "ds0a1b1", "ds0a1b0"]);
}

#[test]
fn requests_at_once_grow_the_pool_once_to_what_they_need() {
    for (requests, accounts) in [(1, 1), (30, 1), (31, 2), (60, 2), (160, 6), (3_000, 100), (6_000, 100)] {
        let plan = plan(&evidence(Vec::new()), &shared(requests));
        assert_eq!((plan.makes.len(), plan.joins.len()), (accounts, requests));
        let names: BTreeSet<_> = plan.makes.iter().map(|new| &new.name).collect();
        assert_eq!(names.len(), accounts);
        for new in &plan.makes {
            assert!(lazuli_model::blob_uri::is_account_name(&new.name) && new.name.starts_with("ds"), "{}", new.name);
            assert_eq!(new.spec.tags, BTreeMap::from([("created-by".into(), "azure-dd".into())]));
        }
    }
}

#[test]
fn above_half_full_there_is_one_more_account() {
    let makes = |counts: &[usize], requests| {
        let accounts = counts.iter().enumerate().map(|(number, disks)| old(&format!("ds{number}xx"), *disks)).collect();
        plan(&evidence(accounts), &shared(requests)).makes.len()
    };
    assert_eq!(makes(&[29], 1), 0);
    assert_eq!(makes(&[30], 1), 1);
    assert_eq!(makes(&[30, 29], 1), 0);
    assert_eq!(makes(&[30, 30], 1), 1);
    // An empty account comes first, and no account is made that no disk would go to.
    assert_eq!(makes(&[60, 60, 0], 1), 0);
    assert_eq!(makes(&[60, 60, 0], 2), 1);
    assert_eq!(makes(&[60, 60], 1), 1);
    assert_eq!(makes(&[200], 1), 1);
    assert_eq!(makes(&[60], 0), 0);
}

#[test]
fn a_full_pool_that_cannot_grow_says_so() {
    let accounts = |disks| (0..100).map(|number| old(&format!("ds{number}xx"), disks)).collect();
    assert_eq!(plan(&evidence(accounts(59)), &shared(100)).joins.len(), 100);
    let plan = plan(&evidence(accounts(60)), &shared(1));
    assert_eq!(
        only_refusal(&plan),
        "the pool of Premium_LRS in westeurope is full: its accounts have 60 disks each, and the pools of the cluster have 100 \
         accounts; delete disks, or name an account with the parameter storageAccount"
    );
    assert_eq!(plan.refused["pvc-0.vhd"].fault(), Fault::Exhausted);
}

#[test]
fn accounts_of_people_and_of_other_pools_are_not_joined() {
    let premium = StorageSku::PremiumLrs;
    let mut tagged = account("dstagged", premium, true);
    tagged.tags.insert(SKIP_MATCHING.into(), String::new());
    let mut elsewhere = account("dselsewhere", premium, true);
    elsewhere.location = "eastus".into();
    let mut files = account("dsfiles", premium, true);
    files.kind = Some(AccountKind::FileStorage);
    let mut failed = account("dsfailed", premium, true);
    failed.provisioning_state = ProvisioningState::Failed;
    let mut keyless = account("dskeyless", premium, true);
    keyless.allow_shared_key_access = Some(false);
    for stranger in [
        account("dsteamdata", premium, false),
        account("ddabc", premium, true),
        account("dsstandard", StorageSku::StandardLrs, true),
        tagged,
        elsewhere,
        files,
        failed,
        keyless,
    ] {
        let name = stranger.name().to_owned();
        let plan = plan(&evidence(vec![Seen { account: stranger, blobs: blobs(0) }]), &shared(1));
        assert_eq!(plan.makes.len(), 1, "{name}");
        assert_ne!(plan.joins["pvc-0.vhd"], name);
    }
}

#[test]
fn a_retry_goes_where_its_disk_is() {
    let mut with_disk = old("ds0a1b0", 59);
    let Blobs::Known(known) = &mut with_disk.blobs else { unreachable!() };
    known.insert("pvc-0.vhd".into());
    // Emptier accounts, a class with another SKU since, and a full account change nothing.
    let mut evidence = evidence(vec![old("ds0a1b1", 0), with_disk]);
    let mut request = request(0, Place::Shared);
    assert_eq!(plan(&evidence, std::slice::from_ref(&request)).joins["pvc-0.vhd"], "ds0a1b0");
    request.sku = Some(StorageSku::StandardLrs);
    assert_eq!(plan(&evidence, std::slice::from_ref(&request)).joins["pvc-0.vhd"], "ds0a1b0");
    request.blob = "pvc-1.vhd".into();
    evidence.placed.insert("pvc-1.vhd".into(), "ds0a1b0".into());
    assert_eq!(plan(&evidence, &[request]).joins["pvc-1.vhd"], "ds0a1b0");
}

#[test]
fn nothing_is_placed_before_the_blobs_of_the_pool_are_known() {
    let with = |blobs| {
        let unknown = Seen { blobs, ..old("ds0a1b1", 0) };
        plan(&evidence(vec![old("ds0a1b0", 0), unknown]), &shared(2))
    };
    let unread = with(Blobs::Unread);
    assert_eq!(unread, Plan { reads: BTreeSet::from(["ds0a1b1".into()]), ..Plan::default() });
    let unreadable = with(Blobs::Unreadable);
    assert_eq!((unreadable.refused.len(), unreadable.joins.len()), (2, 0));
    let refusal = &unreadable.refused["pvc-0.vhd"];
    assert_eq!(refusal.fault(), Fault::Unavailable);
    assert_eq!(
        refusal.to_string(),
        "the blobs of the storage account ds0a1b1 cannot be listed, and it may hold the disk; give the driver access to it, or \
         take it out of the pool with the tag skip-matching"
    );
}

#[test]
fn a_name_that_somebody_has_gives_the_next() {
    let first = plan(&evidence(Vec::new()), &shared(1)).makes[0].name.clone();
    let mut taken = evidence(Vec::new());
    taken.taken.insert(first.clone());
    let second = plan(&taken, &shared(1)).makes[0].name.clone();
    assert_ne!(first, second);
    // The same where the name is that of an account which cannot be joined.
    let listed =
        evidence(vec![Seen { account: account(&first, StorageSku::StandardLrs, false), blobs: Blobs::Unread }]);
    assert_eq!(plan(&listed, &shared(1)).makes[0].name, second);
    let mut other = evidence(Vec::new());
    other.cluster = "s/g/other".into();
    assert!(![first, second].contains(&plan(&other, &shared(1)).makes[0].name));
}

#[test]
fn a_dedicated_disk_has_an_account_that_says_whose_it_is() {
    let request = [request(0, Place::Dedicated)];
    let plan_0 = plan(&evidence(Vec::new()), &request);
    let new = &plan_0.makes[0];
    assert!(new.name.starts_with("dd") && lazuli_model::blob_uri::is_account_name(&new.name));
    assert_eq!(plan_0.joins["pvc-0.vhd"], new.name);
    let tag = |name: &str| new.spec.tags[name].as_str();
    assert_eq!((tag("created-by"), tag("skip-matching"), tag("lazuli-blob-disk")), ("azure-dd", "true", "pvc-0.vhd"));
    let its = made(new);
    assert!(is_dedicated_to(&its, CLUSTER, "pvc-0.vhd"));
    // The next try finds it, whether it is listed or in the making.
    let listed = plan(&evidence(vec![Seen { account: its.clone(), blobs: Blobs::Unread }]), &request);
    assert_eq!((listed.makes.len(), &listed.joins), (0, &plan_0.joins));
    let making = plan(&Evidence { making: plan_0.makes.clone(), ..evidence(Vec::new()) }, &request);
    assert_eq!((making.makes.len(), &making.joins), (0, &plan_0.joins));
    // It is nobody else's.
    assert!(!is_dedicated_to(&its, "s/g/other", "pvc-0.vhd"));
    assert!(!is_dedicated_to(&its, CLUSTER, "pvc-1.vhd"));
    for tag in [CREATED_BY.0, SKIP_MATCHING, DISK_TAG] {
        let mut without = its.clone();
        without.tags.remove(tag);
        assert!(!is_dedicated_to(&without, CLUSTER, "pvc-0.vhd"), "{tag}");
    }
    let mut other_name = account("ddmine", StorageSku::PremiumLrs, true);
    other_name.tags = its.tags.clone();
    assert!(!is_dedicated_to(&other_name, CLUSTER, "pvc-0.vhd"));
}

#[test]
fn the_account_of_a_dedicated_disk_is_found_by_every_name_it_may_have() {
    let request = [request(0, Place::Dedicated)];
    let mut world = evidence(Vec::new());
    let first = plan(&world, &request).makes[0].name.clone();
    world.taken.insert(first.clone());
    let second = plan(&world, &request).makes.remove(0);
    assert_ne!(first, second.name);
    // The first name is free again, and the account of the second try is used all the same.
    world.taken.clear();
    world.accounts.push(Seen { account: made(&second), blobs: Blobs::Unread });
    let again = plan(&world, &request);
    assert_eq!((again.makes.len(), &again.joins["pvc-0.vhd"]), (0, &second.name));
    world.accounts.clear();
    world.taken = dedicated_names(CLUSTER, "pvc-0.vhd").collect();
    assert_eq!(plan(&world, &request).refused["pvc-0.vhd"], Refusal::NamesAreTaken("pvc-0.vhd".into()));
}

#[test]
fn a_named_account_is_that_one_and_is_never_made() {
    let named = |sku| [Request { sku, ..request(0, Place::Account("azuretestx".into())) }];
    let standard = account("azuretestx", StorageSku::StandardRagrs, false);
    let world = |account: &StorageAccount| evidence(vec![Seen { account: account.clone(), blobs: Blobs::Unread }]);
    for sku in [None, Some(StorageSku::StandardLrs), Some(StorageSku::StandardRagrs)] {
        assert_eq!(plan(&world(&standard), &named(sku)).joins["pvc-0.vhd"], "azuretestx");
    }
    let none = plan(&evidence(Vec::new()), &named(None));
    assert_eq!(
        only_refusal(&none),
        "there is no storage account azuretestx in the resource group of the cluster; make it, or name another one"
    );
    assert_eq!(
        only_refusal(&plan(&world(&standard), &named(Some(StorageSku::PremiumLrs)))),
        "the storage account azuretestx has the SKU Standard_RAGRS, and the class says Premium_LRS; say the account's SKU, or \
         none"
    );
    let with = |change: fn(&mut StorageAccount)| {
        let mut account = standard.clone();
        change(&mut account);
        only_refusal(&plan(&world(&account), &named(None)))
    };
    let hierarchical = with(|account| account.hierarchical_namespace = Some(true));
    assert_eq!(
        hierarchical,
        "the storage account azuretestx cannot have blob disks: it has a hierarchical namespace; name another one"
    );
    assert!(with(|account| account.kind = Some(AccountKind::BlobStorage)).contains("page blobs"));
    assert!(with(|account| account.kind = Some(AccountKind::BlockBlobStorage)).contains("page blobs"));
    assert!(with(|account| account.sku = Some(StorageSku::StandardZrs)).contains("SKU"));
    assert!(with(|account| account.allow_shared_key_access = Some(false)).contains("keys"));
    assert!(with(|account| account.provisioning_state = ProvisioningState::Failed).contains("completely"));
}

#[test]
fn azure_stack_hub_gets_accounts_that_it_knows() {
    let plan = plan(&Evidence { is_stack_hub: true, ..evidence(Vec::new()) }, &shared(1));
    let spec = &plan.makes[0].spec;
    assert_eq!((spec.kind, spec.allow_shared_key_access), (AccountKind::Storage, None));
}

/// A pool that people, the in-tree plugin and this driver have used.
fn worlds() -> impl Strategy<Value = Evidence> {
    let seen = (0_usize..14, 0_usize..75, 0_u8..14);
    (
        proptest::collection::vec(seen, 0..12),
        proptest::collection::btree_map(0_usize..90, 0_usize..14, 0..30),
        0_usize..120,
    )
        .prop_map(|(accounts, placed, others)| {
            let mut names = BTreeSet::new();
            let mut all = Vec::new();
            for (number, disks, which) in accounts {
                if !names.insert(number) {
                    continue;
                }
                // Some have the names that this driver gives.
                let name = match which % 2 {
                    0 => format!("ds{number}old"),
                    _ => shared_name(CLUSTER, StorageSku::PremiumLrs, "westeurope", number),
                };
                let mut seen = old(&name, disks);
                match which {
                    0 => seen.account.sku = Some(StorageSku::StandardLrs),
                    1 => seen.account.tags.clear(),
                    2 => seen.account.provisioning_state = ProvisioningState::InProgress,
                    3 => seen.account.provisioning_state = ProvisioningState::Failed,
                    4 => drop(seen.account.tags.insert(SKIP_MATCHING.into(), "true".into())),
                    5 if disks == 7 => seen.blobs = Blobs::Unread,
                    6 if disks == 8 => seen.blobs = Blobs::Unreadable,
                    7 => {
                        let Blobs::Known(known) = &mut seen.blobs else { unreachable!() };
                        known.insert("pvc-3.vhd".into());
                    }
                    _ => {}
                }
                all.push(seen);
            }
            // The other pools of the cluster.
            let others = others.saturating_sub(20);
            for number in 0..others {
                let account = account(&format!("ds{number}standard"), StorageSku::StandardLrs, true);
                all.push(Seen { account, blobs: blobs(1) });
            }
            let mut world = evidence(all);
            for (blob, at) in placed {
                if let Some(seen) = world.accounts.get(at) {
                    world.placed.insert(format!("pvc-{blob}.vhd"), seen.account.name().to_owned());
                }
            }
            world
        })
}

/// How many disks an account has when a plan is carried out.
fn load(world: &Evidence, plan: &Plan, name: &str) -> usize {
    let seen = world.accounts.iter().find(|seen| seen.account.name() == name);
    let known = match seen.map(|seen| &seen.blobs) {
        Some(Blobs::Known(blobs)) => blobs.clone(),
        _ => BTreeSet::new(),
    };
    let of = |places: &BTreeMap<String, String>| {
        places.iter().filter(|(_, of)| *of == name).map(|(blob, _)| blob.clone()).collect::<BTreeSet<_>>()
    };
    let all: BTreeSet<String> = known.into_iter().chain(of(&world.placed)).chain(of(&plan.joins)).collect();
    all.len()
}

proptest! {
    #[test]
    fn every_request_is_placed_within_the_limits_or_refused(world in worlds(), count in 0_usize..150) {
        let requests = shared(count);
        let plan = plan(&world, &requests);
        // Each request has one answer, or waits for lists.
        for request in &requests {
            let answers = usize::from(plan.joins.contains_key(&request.blob))
                + usize::from(plan.refused.contains_key(&request.blob));
            prop_assert!(answers == 1 || (answers == 0 && !plan.reads.is_empty()), "{:?}", request);
        }
        let before = Plan::default();
        let touched: BTreeSet<&String> = plan.joins.values().collect();
        for name in &touched {
            let (was, is) = (load(&world, &before, name), load(&world, &plan, name));
            // Accounts that others have filled above the limit get nothing more.
            prop_assert!(is <= DISKS_PER_ACCOUNT || is == was, "{}: {} and then {}", name, was, is);
        }
        let of_pools = world.accounts.iter().filter(|seen| is_shared(&seen.account)).count();
        prop_assert!(plan.makes.is_empty() || of_pools + plan.makes.len() <= MOST_ACCOUNTS);
        // No account is made twice, in place of another one, or for no disk.
        let names: BTreeSet<&String> = plan.makes.iter().map(|new| &new.name).collect();
        prop_assert_eq!(names.len(), plan.makes.len());
        for name in &names {
            prop_assert!(world.accounts.iter().all(|seen| seen.account.name() != **name));
            prop_assert!(touched.contains(name), "{} stays empty", name);
        }
        // It is refused only where nothing is free.
        if plan.refused.values().any(|refusal| matches!(refusal, Refusal::PoolIsFull { .. })) {
            prop_assert!(of_pools + plan.makes.len() >= MOST_ACCOUNTS);
        }
    }

    #[test]
    fn a_plan_that_is_under_way_does_not_grow_the_pool_again(world in worlds(), count in 0_usize..150, ended in any::<u64>()) {
        let requests = shared(count);
        let first = plan(&world, &requests);
        let mut next = world.clone();
        next.placed.extend(first.joins.clone());
        for (index, new) in first.makes.iter().enumerate() {
            // Some are listed by now, and some of these are made.
            if ended >> (index % 32) & 1 == 1 {
                let mut account = made(new);
                if ended >> (index % 32 + 32) & 1 == 1 {
                    account.provisioning_state = ProvisioningState::InProgress;
                }
                next.accounts.push(Seen { account, blobs: blobs(0) });
            }
            next.making.push(new.clone());
        }
        let second = plan(&next, &requests);
        prop_assert_eq!(second.makes, Vec::new());
        prop_assert_eq!(second.joins, first.joins);
    }

    #[test]
    fn two_replicas_that_see_the_same_plan_the_same(world in worlds(), count in 0_usize..90) {
        let mut other = world.clone();
        other.accounts.reverse();
        let names = |plan: Plan| plan.makes.into_iter().map(|new| new.name).collect::<BTreeSet<_>>();
        prop_assert_eq!(names(plan(&world, &shared(count))), names(plan(&other, &shared(count))));
    }

    #[test]
    fn one_after_the_other_needs_no_more_accounts_than_all_at_once(count in 1_usize..200) {
        let mut world = evidence(Vec::new());
        for request in shared(count) {
            let plan = plan(&world, &[request]);
            world.placed.extend(plan.joins);
            world.making.extend(plan.makes);
        }
        prop_assert_eq!(world.making.len(), plan(&evidence(Vec::new()), &shared(count)).makes.len());
    }
}

#[test]
fn disks_are_looked_for_where_addresses_and_tags_say() {
    let accounts = [
        account("ds1", StorageSku::StandardLrs, true),
        account("mine", StorageSku::StandardLrs, false),
        account("other", StorageSku::StandardLrs, false),
    ];
    let uri = |account, container| BlobUri::of(account, "core.windows.net", container, "d.vhd").unwrap();
    let listed = containers_to_list(&accounts, [uri("mine", "old"), uri("ds1", "more"), uri("gone", "vhds")]);
    let listed: Vec<(&str, Vec<&str>)> = listed
        .iter()
        .map(|(account, containers)| (account.name(), containers.iter().map(String::as_str).collect()))
        .collect();
    assert_eq!(listed, [("ds1", vec!["more", "vhds"]), ("mine", vec!["old"])]);
}
