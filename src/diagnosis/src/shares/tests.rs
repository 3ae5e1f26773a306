use lazuli_model::{
    AccountNetworkAccess, ArmId, DeletedShare, FileShare, Gib, NetworkAction, NetworkRules, PrivateEndpointConnection,
    StorageAccount, StorageSku, VirtualNetworkRule,
};

use super::{
    super::{Finding, Grade},
    accounts, inventory,
    kernel::{self, Kernel},
    snapshots, volumes, *,
};

fn volume(name: &str, handle: &str, attributes: &[(&str, &str)]) -> ShareVolume {
    let attributes: BTreeMap<String, String> =
        attributes.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    ShareVolume {
        refers: VolumeRef::of_driver(name, handle, &attributes, false),
        claim: Some(format!("shop/{name}")),
        attributes,
        stage_secret: None,
        mount_options: Vec::new(),
    }
}

fn in_tree(name: &str, share: &str, secret: &str) -> ShareVolume {
    ShareVolume {
        refers: VolumeRef::of_in_tree(name, share, secret, false),
        claim: None,
        attributes: BTreeMap::new(),
        stage_secret: None,
        mount_options: Vec::new(),
    }
}

fn account(name: &str, shares: Vec<FileShare>) -> AccountShares {
    AccountShares { account: StorageAccount::general_purpose(name), shares }
}

fn deleted(share: FileShare, version: &str) -> FileShare {
    let deleted = DeletedShare { version: version.to_owned(), deleted: None, remaining_days: Some(6) };
    FileShare { deleted: Some(deleted), ..share }
}

fn snapshot(share: FileShare, time: &str) -> FileShare {
    FileShare { snapshot: Some(time.to_owned()), ..share }
}

fn own() -> AccountGroup {
    AccountGroup { subscription: "s".to_owned(), name: "g".to_owned() }
}

fn text(findings: &[Finding]) -> (Grade, &str) {
    assert_eq!(findings.len(), 1, "{findings:?}");
    (findings[0].grade, findings[0].text.as_str())
}

#[test]
fn the_groups_of_volumes_are_listed_once_in_any_letter_case() {
    let volumes = [
        volume("a", "G#f1#a###default", &[]),
        volume("b", "other#f2#b###default#elsewhere", &[]),
        volume("c", "handle", &[("resourceGroup", "OTHER"), ("subscriptionID", "Elsewhere"), ("shareName", "c")]),
        in_tree("d", "d", "azure-storage-account-f3-secret"),
    ];
    let other = AccountGroup { subscription: "elsewhere".to_owned(), name: "other".to_owned() };
    assert_eq!(groups(&own(), &volumes), [own(), other]);
}

#[test]
fn a_row_has_the_volumes_and_the_snapshots_of_its_share() {
    let one = FileShare::smb("f1", "pvc-1", 5);
    let shares = vec![
        snapshot(one.clone(), "t1"),
        deleted(one.clone(), "02"),
        deleted(FileShare::smb("f1", "pvc-0", 7), "01"),
        one,
        FileShare::smb("f1", "mine", 9),
    ];
    let volumes = [
        volume("pv-b", "g#F1#PVC-1/folder###default", &[]),
        volume("pv-a", "g#f1#pvc-1###default", &[]),
        volume("pv-0", "g#f1#pvc-0###default", &[]),
        volume("pv-2", "g#f2#mine###default", &[]),
        in_tree("pv-t", "mine/sub", "azure-storage-account-f1-secret"),
        in_tree("pv-u", "mine", "some-secret"),
    ];
    let rows = inventory::rows(&[account("f1", shares)], &volumes);
    let shown: Vec<_> = rows
        .iter()
        .map(|row| {
            let names: Vec<&str> = row.volumes.iter().map(|one| one.volume.as_str()).collect();
            (row.share.name(), row.quota.get(), names, row.snapshots, row.deleted.is_some())
        })
        .collect();
    assert_eq!(
        shown,
        [
            ("mine", 9, vec!["pv-t"], 0, false),
            ("pvc-0", 7, vec!["pv-0"], 0, true),
            ("pvc-1", 5, vec!["pv-a", "pv-b"], 1, false),
            ("pvc-1", 5, vec![], 0, true),
        ]
    );
    assert_eq!(rows[2].volumes[0].claim.as_deref(), Some("shop/pv-a"));
}

#[test]
fn an_account_without_keys_is_wrong_where_a_volume_needs_one() {
    let mut without = account("f1", vec![]);
    without.account.allow_shared_key_access = Some(false);
    let volumes = [volume("pv-1", "g#f1#a###default", &[]), volume("pv-2", "g#F1#b###default", &[])];
    let all = [without, account("f2", vec![])];
    let found = accounts::keys(&all, &volumes);
    let (grade, words) = text(&found);
    assert_eq!(grade, Grade::Wrong);
    assert!(words.starts_with("storage account f1 takes no key (allowSharedKeyAccess is false)"), "{words}");
    assert!(words.contains("PersistentVolumes pv-1, pv-2 cannot be mounted"), "{words}");
    assert_eq!(text(&accounts::keys(&all, &[])).0, Grade::Fine, "no volume is mounted from it");
    let volumes = [volume("pv-3", "g#f2#a###default", &[])];
    let found = accounts::keys(&all, &volumes);
    assert_eq!(text(&found), (Grade::Fine, "each of 1 that PersistentVolumes name takes its keys"));
}

#[test]
fn an_account_that_keeps_the_subnet_out_is_noted_and_one_without_any_way_is_wrong() {
    let subnet: ArmId = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/virtualNetworks/v/subnets/nodes"
        .parse()
        .unwrap();
    let volumes = [volume("pv-1", "g#f1#a###default", &[])];
    let rule = |action| VirtualNetworkRule { subnet: subnet.as_str().to_uppercase().parse().unwrap(), action };
    let with = |default_action, virtual_networks: Vec<VirtualNetworkRule>| {
        let mut one = account("f1", vec![]);
        one.account.network_rules = Some(NetworkRules { default_action, bypass: None, virtual_networks });
        one
    };
    let grade = |one: &AccountShares, subnet: Option<&ArmId>| {
        let found = accounts::network(std::slice::from_ref(one), &volumes, subnet);
        (text(&found).0, text(&found).1.to_owned())
    };
    use NetworkAction::{Allow, Deny};
    assert_eq!(grade(&with(Allow, vec![]), Some(&subnet)).0, Grade::Fine);
    assert_eq!(grade(&with(Deny, vec![rule(Allow)]), Some(&subnet)).0, Grade::Fine);
    let (kept_out, words) = grade(&with(Deny, vec![rule(Deny)]), Some(&subnet));
    assert_eq!(kept_out, Grade::Note);
    assert!(words.contains("keeps subnet nodes of the configuration out"), "{words}");
    assert_eq!(grade(&with(Deny, vec![]), None).0, Grade::Unseen);
    let mut closed = with(Deny, vec![]);
    closed.account.private_endpoint_connections =
        vec![PrivateEndpointConnection { id: "/endpoint".to_owned(), endpoint: None }];
    assert_eq!(grade(&closed, Some(&subnet)).0, Grade::Fine);
    closed.account.public_network_access = Some(AccountNetworkAccess::Disabled);
    assert_eq!(grade(&closed, Some(&subnet)).0, Grade::Fine);
    closed.account.private_endpoint_connections.clear();
    let (wrong, words) = grade(&closed, Some(&subnet));
    assert!(wrong == Grade::Wrong && words.contains("no private endpoint; PersistentVolume pv-1"), "{words}");
}

#[test]
fn a_full_account_is_named_with_what_fills_it() {
    let of = |sku, shares| {
        let mut one = account("f1", shares);
        one.account.sku = Some(sku);
        one
    };
    let shares = |count: u32, quota: u32| -> Vec<FileShare> {
        (0..count).map(|at| FileShare::smb("f1", &format!("pvc-{at}"), quota)).collect()
    };
    let grade = |one: &AccountShares| {
        let found = accounts::limits(std::slice::from_ref(one), &[]);
        (text(&found).0, text(&found).1.to_owned())
    };
    assert_eq!(grade(&of(StorageSku::StandardLrs, shares(2_000, 5))).0, Grade::Fine, "no limit is known");
    assert_eq!(grade(&of(StorageSku::PremiumV2Lrs, shares(49, 32))).0, Grade::Fine);
    let mut fifty = shares(49, 32);
    fifty.push(deleted(FileShare::smb("f1", "pvc-x", 32), "01"));
    fifty.push(snapshot(FileShare::smb("f1", "pvc-1", 32), "t"));
    let (note, words) = grade(&of(StorageSku::PremiumV2Lrs, fifty));
    assert_eq!(note, Grade::Note);
    assert!(words.contains("50 shares, and Azure allows 50; 1 of the shares are deleted"), "{words}");
    assert_eq!(grade(&of(StorageSku::PremiumLrs, shares(1, 102_300))).0, Grade::Fine, "one of 100 GiB fits");
    let (note, words) = grade(&of(StorageSku::PremiumLrs, shares(1, 102_301)));
    assert!(note == Grade::Note && words.contains("quotas of 102301 GiB, and Azure allows 102400 GiB"), "{words}");
    let mut others = of(StorageSku::PremiumV2Lrs, vec![]);
    others.shares = (0..50).map(|at| FileShare::smb("f1", &format!("mine-{at}"), 32)).collect();
    assert_eq!(grade(&others).1, "no storage account holds a share of a driver");
}

#[test]
fn what_no_node_mounts_is_said_in_the_words_of_the_node() {
    let mut kerberos = volume("pv-k", "g#f1#k###default", &[]);
    kerberos.mount_options = vec!["sec=krb5,cruid=1".to_owned()];
    for (volume, words) in [
        (kerberos, "Kerberos needs helpers"),
        (volume("pv-n", "g#f1#n###default", &[("protocol", "nfs")]), "no NFS shares"),
        (volume("pv-v", "g#f1#v#disk.vhd##default", &[]), "VHD file"),
        (volume("pv-i", "g#f1#i###default", &[("mountWithManagedIdentity", "true")]), "Kerberos helpers"),
    ] {
        let name = volume.refers.name.clone();
        let found = volumes::mounts(&[volume], "core.windows.net");
        let (grade, said) = text(&found);
        assert_eq!(grade, Grade::Wrong, "{said}");
        assert!(
            said.starts_with(&format!("PersistentVolume {name} cannot be mounted")) && said.contains(words),
            "{said}"
        );
    }
    let kata = volume("pv-c", "g#f1#c###default", &[("runtimeclasshandler", "kata-cc")]);
    let found = volumes::mounts(&[kata], "core.windows.net");
    assert!(text(&found).0 == Grade::Note && text(&found).1.contains("confidential containers"), "{found:?}");
    let nameless = volume("staged", "any", &[("shareName", "a")]);
    let found = volumes::mounts(std::slice::from_ref(&nameless), "core.windows.net");
    assert!(text(&found).0 == Grade::Wrong && text(&found).1.contains("no storage account"), "{found:?}");
    let fine = [
        // kubelet passes a Secret that names the account.
        ShareVolume {
            stage_secret: Some(SecretRef { namespace: "db".to_owned(), name: "mine".to_owned() }),
            ..nameless
        },
        volume("pv-1", "g#f1#a###default", &[("protocol", "smb")]),
        volume("by-secret", "any", &[("shareName", "a"), ("secretName", "mine")]),
        in_tree("pv-t", "a", "mine"),
    ];
    let found = volumes::mounts(&fine, "core.windows.net");
    assert_eq!(
        text(&found),
        (Grade::Fine, "3 PersistentVolumes of the driver ask for nothing that nodes do not mount")
    );
}

#[test]
fn a_volume_without_its_share_is_wrong_and_its_deleted_share_is_named() {
    let gone = deleted(FileShare::smb("f1", "pvc-1", 5), "01");
    let again = deleted(FileShare::smb("f1", "pvc-1", 5), "02");
    let accounts = [account("f1", vec![FileShare::smb("f1", "pvc-0", 5), again, gone])];
    let missing = |volume: ShareVolume| {
        let found = volumes::missing(&accounts, &[volume], &own(), &[own()]);
        (text(&found).0, text(&found).1.to_owned())
    };
    assert_eq!(missing(volume("pv-0", "g#f1#pvc-0###default", &[])).0, Grade::Fine);
    let (grade, words) = missing(volume("pv-1", "g#f1#pvc-1###default", &[]));
    assert!(
        grade == Grade::Wrong && words.contains("for 6 more days") && words.contains("--deleted-version 02"),
        "{words}"
    );
    let (grade, words) = missing(volume("pv-2", "g#f2#pvc-2###default", &[]));
    assert!(grade == Grade::Wrong && words.contains("names storage account f2"), "{words}");
    let by_secret = volume("pv-6", "mine", &[("shareName", "a"), ("storageAccount", "f9"), ("secretName", "mine")]);
    assert_eq!(missing(by_secret).0, Grade::Unseen, "its account may be in any group");
    assert_eq!(missing(in_tree("pv-3", "a", "azure-storage-account-f3-secret")).0, Grade::Unseen);
    assert_eq!(missing(volume("pv-4", "other#f4#a###default", &[])).0, Grade::Fine, "its group is not listed");
    let mut released = volume("pv-5", "g#f1#pvc-5###default", &[]);
    released.refers.is_released_for_deletion = true;
    assert_eq!(missing(released).0, Grade::Fine);
}

#[test]
fn a_snapshot_that_no_content_names_is_noted_by_share() {
    let (one, mine) = (FileShare::smb("f1", "pvc-1", 5), FileShare::smb("f1", "mine", 5));
    let (t1, t2) = ("2026-01-01T00:00:00.0000000Z", "2026-01-02T00:00:00.0000000Z");
    let shares =
        vec![one.clone(), snapshot(one.clone(), t1), snapshot(one, t2), mine.clone(), snapshot(mine.clone(), t1)];
    let all = [account("f1", shares)];
    let handles = vec![format!("g#F1#pvc-1###default#{t1}")];
    let found = snapshots::unnamed(&all, &[], &handles);
    let (grade, words) = text(&found);
    assert!(
        grade == Grade::Note && words.contains("share pvc-1") && words.contains(t2) && !words.contains(t1),
        "{words}"
    );
    let both = vec![format!("g#f1#pvc-1###default#{t1}"), format!("g#f1#pvc-1###default#{t2}#sub")];
    assert_eq!(text(&snapshots::unnamed(&all, &[], &both)), (Grade::Fine, "a VolumeSnapshotContent names each of 2"));
    let volumes = [volume("pv-m", "g#f1#mine###default", &[])];
    let found = snapshots::unnamed(&all, &volumes, &both);
    assert!(text(&found).1.contains("share mine"), "{found:?}");
    let others = vec![format!("g#f2#pvc-1###default#{t1}"), format!("g#f1#pvc-2###default#{t2}")];
    assert!(text(&snapshots::unnamed(&all, &[], &others)).1.contains(&format!("{t1}, {t2}")));
}

#[test]
fn a_kernel_has_cifs_loaded_built_in_as_a_module_or_not_at_all() {
    let kernel = |filesystems: Option<&str>, built_in: Option<&str>, modules: Option<&str>| {
        let text = |file: Option<&str>| file.map(str::to_owned);
        let seen = Kernel {
            release: "6.1".to_owned(),
            filesystems: text(filesystems),
            built_in: text(built_in),
            modules: text(modules),
        };
        kernel::smb(&seen).grade
    };
    let ext4 = Some("nodev\tproc\n\text4\n");
    assert_eq!(kernel(Some("nodev\tproc\nnodev\tcifs\n"), None, None), Grade::Fine);
    assert_eq!(kernel(ext4, Some("kernel/fs/cifs/cifs.ko\n"), Some("")), Grade::Fine);
    let modules =
        "kernel/fs/ext4/ext4.ko: kernel/fs/jbd2/jbd2.ko\nkernel/fs/smb/client/cifs.ko.xz: kernel/lib/libdes.ko\n";
    assert_eq!(kernel(ext4, Some(""), Some(modules)), Grade::Fine);
    assert_eq!(kernel(ext4, Some(""), Some("kernel/fs/smb/server/ksmbd.ko: kernel/fs/cifs.ko\n")), Grade::Wrong);
    assert_eq!(kernel(ext4, Some(""), None), Grade::Unseen);
    assert_eq!(kernel(None, None, None), Grade::Unseen);
}

#[test]
fn a_share_made_by_a_driver_is_told_by_its_mark_or_its_name() {
    let mut marked = FileShare::smb("f1", "mine", 5);
    assert!(!is_of_driver(&marked));
    marked.metadata.insert("createdby".to_owned(), "FILE.csi.azure.com".to_owned());
    assert!(is_of_driver(&marked) && is_of_driver(&FileShare::smb("f1", "pvcn-1", 5)));
    assert_eq!(Gib::new(5), marked.quota);
}
