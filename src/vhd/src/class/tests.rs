use lazuli_model::{parameter::ParameterErrorKind, reference::Effect};
use proptest::prelude::*;

use super::*;
use crate::PARAMETERS;

const GIB: i64 = 1 << 30;

fn defaults() -> Defaults {
    Defaults {
        blob_disks: BlobDisks::Auto,
        is_stack_hub: false,
        subscription: "s".into(),
        resource_group: "Cluster".into(),
        location: "westeurope".into(),
    }
}

/// What is found where no earlier try has begun anything.
fn found(machines: Machines) -> Found {
    Found { machines: Some(machines), blob: Some(false), managed: Some(false) }
}

fn request(parameters: &[(&str, &str)]) -> Request {
    Request {
        name: "pvc-1".into(),
        parameters: parameters.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect(),
        required_bytes: 10 * GIB,
        limit_bytes: 0,
    }
}

fn choice(parameters: &[(&str, &str)]) -> Result<Choice, ParameterError> {
    choose(&request(parameters), &defaults(), &found(Machines::Blobs))
}

#[track_caller]
fn blob(parameters: &[(&str, &str)]) -> BlobClass {
    match choice(parameters) {
        Ok(Choice::Blob(class)) => *class,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn refused(parameters: &[(&str, &str)], expected: &str) {
    assert_eq!(choice(parameters).unwrap_err().to_string(), expected);
}

#[test]
fn the_four_classes_of_2017_make_what_they_say() {
    assert_eq!(
        choice(&[("storageaccounttype", "Premium_LRS"), ("kind", "Managed")]),
        Ok(Choice::Managed { warning: None })
    );
    let account = blob(&[("skuname", "Standard_LRS"), ("location", "westus"), ("storageAccount", "azuretestx")]);
    assert_eq!(account.place, Place::Account("azuretestx".into()));
    assert_eq!(account.sku, Some(StorageSku::StandardLrs));
    assert_eq!(
        account.warnings,
        ["parameter location is \"westus\": it is ignored, because the disk is where the account azuretestx is"]
    );
    let shared = blob(&[("skuname", "Premium_LRS"), ("kind", "Shared")]);
    assert_eq!((shared.place, shared.sku), (Place::Shared, Some(StorageSku::PremiumLrs)));
    assert_eq!((&*shared.location, &*shared.blob), ("westeurope", "pvc-1.vhd"));
    let dedicated = blob(&[("skuname", "Standard_LRS"), ("kind", "Dedicated")]);
    assert_eq!((dedicated.place, dedicated.size), (Place::Dedicated, Gib::new(10)));
}

#[test]
fn kind_and_keys_are_read_in_any_letter_case() {
    for kind in ["shared", "Shared", "SHARED", "sHaReD"] {
        assert_eq!(blob(&[("KIND", kind)]).place, Place::Shared);
    }
    assert_eq!(blob(&[("kind", "dedicated"), ("STORAGEACCOUNT", "Acct")]).place, Place::Account("acct".into()));
    assert_eq!(choice(&[("kind", "managed")]), Ok(Choice::Managed { warning: None }));
    // A class without any is the business of managed disks.
    assert_eq!(choice(&[("anything", "else")]), Ok(Choice::Managed { warning: None }));
    assert_eq!(choice(&[("kind", ""), ("storageAccount", "")]), Ok(Choice::Managed { warning: None }));
}

#[test]
fn a_switch_and_the_machines_decide_whether_a_blob_disk_is_made() {
    let with = |blob_disks, machines, parameters: &[(&str, &str)]| {
        choose(&request(parameters), &Defaults { blob_disks, ..defaults() }, &found(machines))
    };
    let kind = [("kind", "shared")];
    let account = [("storageAccount", "acct")];
    for class in [&kind[..], &account[..]] {
        for machines in [Machines::Blobs, Machines::Managed, Machines::Unknown] {
            assert!(matches!(with(BlobDisks::Always, machines, class), Ok(Choice::Blob(_))));
        }
        assert!(matches!(with(BlobDisks::Auto, Machines::Blobs, class), Ok(Choice::Blob(_))));
        assert_eq!(with(BlobDisks::Auto, Machines::Unknown, class), Ok(Choice::Undecided));
    }
    let managed = |why: &str| {
        Ok(Choice::Managed {
            warning: Some(format!(
                "parameter kind is \"shared\": the disk is made as a managed disk, because {why}; --blob-disks=always \
                 makes blob disks"
            )),
        })
    };
    assert_eq!(
        with(BlobDisks::Auto, Machines::Managed, &kind),
        managed("the machines of the cluster take managed disks")
    );
    for machines in [Machines::Blobs, Machines::Managed, Machines::Unknown] {
        assert_eq!(with(BlobDisks::Never, machines, &kind), managed("--blob-disks is never"));
        assert_eq!(
            with(BlobDisks::Never, machines, &account).unwrap_err().to_string(),
            "parameter storageAccount is \"acct\": it asks for a blob disk, and --blob-disks is never; allowed is to leave it \
             out, or --blob-disks=always"
        );
        assert_eq!(with(BlobDisks::Never, machines, &[]), Ok(Choice::Managed { warning: None }));
        assert_eq!(with(BlobDisks::Auto, machines, &[]), Ok(Choice::Managed { warning: None }));
    }
    let error = with(BlobDisks::Auto, Machines::Managed, &account).unwrap_err();
    assert_eq!(error.kind(), ParameterErrorKind::InvalidArgument);
}

#[test]
fn one_machine_with_managed_disks_makes_a_cluster_managed() {
    use SystemDisk::{Blob, Managed};
    assert_eq!(Machines::of([]), Machines::Unknown);
    assert_eq!(Machines::of([Blob, Blob]), Machines::Blobs);
    for mixed in [[Blob, Managed], [Managed, Blob], [Managed, Managed]] {
        assert_eq!(Machines::of(mixed), Machines::Managed);
    }
}

fn node(machine: Option<Machine>, resource_group: Option<&str>) -> lazuli_model::node::Node {
    lazuli_model::node::Node { machine, resource_group: resource_group.map(Into::into), ..Default::default() }
}

fn vm(group: &str, name: &str, system_disk: SystemDisk) -> Vm {
    Vm {
        id: lazuli_model::ArmId::virtual_machine("s", group, name).unwrap(),
        location: "local".into(),
        size: "Standard_DS2_v2".into(),
        zone: None,
        computer_name: None,
        provisioning_state: lazuli_model::ProvisioningState::Succeeded,
        etag: None,
        system_disk,
        data_disks: Vec::new(),
    }
}

fn cluster(nodes: &[(&str, lazuli_model::node::Node)]) -> ClusterNodes {
    let mut known = lazuli_model::node::KnownNodes::default();
    known.replace(nodes.iter().map(|(name, node)| ((*name).to_owned(), node.clone())));
    ClusterNodes::Known(known)
}

#[test]
fn the_machines_of_the_nodes_decide_and_no_other_machines_of_their_groups() {
    let machine =
        |group: &str, name: &str| Machine::of_provider_id(&format!("azure://{}", vm(group, name, SystemDisk::Blob).id));
    let instance = "azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/set/\
                    virtualMachines/0";
    let listed = [
        vm("g", "n0", SystemDisk::Blob),
        vm("g", "jumpbox", SystemDisk::Managed),
        vm("other", "n1", SystemDisk::Blob),
        vm("other", "n2", SystemDisk::Managed),
    ];
    let (n0, n1, n2) =
        (node(machine("G", "N0"), None), node(machine("other", "n1"), None), node(machine("other", "n2"), None));
    let of = |nodes: &[(&str, _)]| Machines::of_cluster(&cluster(nodes), &listed);
    assert_eq!(of(&[("n0", n0.clone()), ("n1", n1.clone())]), Machines::Blobs);
    assert_eq!(of(&[("n0", n0.clone()), ("n2", n2.clone())]), Machines::Managed);
    // Without a provider id a node is the VM of its name.
    assert_eq!(of(&[("N0", node(None, None))]), Machines::Blobs);
    let of_set = node(Machine::of_provider_id(instance), None);
    assert_eq!(of(&[("n0", n0.clone()), ("set000000", of_set.clone())]), Machines::Managed);
    // A Node whose machine is gone says nothing, and without any nothing is known.
    let gone = node(machine("g", "gone"), None);
    assert_eq!(of(&[("n0", n0.clone()), ("gone", gone.clone())]), Machines::Blobs);
    for nodes in [&[("gone", gone.clone())][..], &[]] {
        assert_eq!(of(nodes), Machines::Unknown);
    }
    assert_eq!(Machines::of_cluster(&ClusterNodes::Cold, &listed), Machines::Unknown);
    assert_eq!(Machines::of_cluster(&ClusterNodes::NoCluster, &listed), Machines::Managed);
    let groups = |cluster: &ClusterNodes| Machines::groups(cluster, ("S", "g"));
    let group = |subscription: &str, name: &str| (subscription.to_owned(), name.to_owned());
    assert_eq!(groups(&ClusterNodes::NoCluster), [group("S", "g")]);
    assert_eq!(groups(&ClusterNodes::Cold), []);
    assert_eq!(
        groups(&cluster(&[("n0", n0), ("n1", n1), ("n2", n2), ("set", of_set)])),
        [group("S", "g"), group("s", "other")]
    );
    assert_eq!(
        groups(&cluster(&[("n0", node(None, Some("Third"))), ("n1", node(None, None))])),
        [group("S", "Third"), group("S", "g")]
    );
}

#[test]
fn what_an_earlier_try_has_begun_is_gone_on_with_whatever_the_machines_take_now() {
    let class = [("kind", "Shared")];
    let of = |parameters: &[(&str, &str)], found: Found| choose(&request(parameters), &defaults(), &found).unwrap();
    let (blobs, managed) = (
        Found { machines: Some(Machines::Blobs), ..Found::default() },
        Found { machines: Some(Machines::Managed), ..Found::default() },
    );
    assert_eq!(of(&class, Found::default()), Choice::AskForMachines);
    assert_eq!(of(&class, blobs), Choice::AskForManaged);
    assert!(matches!(of(&class, managed), Choice::AskForBlob(_)));
    assert!(matches!(of(&class, Found { managed: Some(true), ..blobs }), Choice::Managed { warning: Some(_) }));
    assert!(matches!(of(&class, Found { blob: Some(true), ..managed }), Choice::Blob(_)));
    // An account that the class names too: a refusal would leave its blob behind.
    assert!(matches!(of(&[("storageAccount", "acct")], Found { blob: Some(true), ..managed }), Choice::Blob(_)));
    // No try of these has begun a blob, so that nothing is asked.
    for more in [("csi-migration", "true"), ("tags", "a=b")] {
        assert!(matches!(of(&[("kind", "Shared"), more], managed), Choice::Managed { .. }), "{more:?}");
    }
    // A switch that a person has set is followed.
    let by_switch = |blob_disks| choose(&request(&class), &Defaults { blob_disks, ..defaults() }, &Found::default());
    assert!(matches!(by_switch(BlobDisks::Always), Ok(Choice::Blob(_))));
    assert!(matches!(by_switch(BlobDisks::Never), Ok(Choice::Managed { .. })));
}

proptest! {
    /// Tries of one request, of which each may end before its disk is made, after that, or before that is known.
    #[test]
    fn one_request_never_leaves_a_disk_of_either_sort(
        tries in proptest::collection::vec((0..3_u8, any::<bool>()), 1..12),
        parameter in proptest::sample::select(vec![
            ("kind", "Shared"), ("kind", "Dedicated"), ("kind", "Sharde"), ("storageAccount", "acct"),
        ]),
    ) {
        let (mut blob, mut managed) = (false, false);
        for (machines, makes) in tries {
            let machines = [Machines::Blobs, Machines::Managed, Machines::Unknown][usize::from(machines)];
            let mut found = Found::default();
            let chosen = loop {
                match choose(&request(&[parameter]), &defaults(), &found) {
                    Ok(Choice::AskForMachines) => found.machines = Some(machines),
                    Ok(Choice::AskForBlob(_)) => found.blob = Some(blob),
                    Ok(Choice::AskForManaged) => found.managed = Some(managed),
                    chosen => break chosen,
                }
            };
            match chosen {
                Ok(Choice::Blob(_)) => blob |= makes,
                Ok(Choice::Managed { .. }) => managed |= makes,
                Ok(_) => {}
                // A final answer: nothing may be left behind.
                Err(_) => prop_assert!(!blob && !managed),
            }
            prop_assert!(!(blob && managed));
        }
    }
}

#[test]
fn what_contradicts_itself_or_cannot_be_made_is_refused_by_key_and_value() {
    refused(
        &[("kind", "managed"), ("storageAccount", "acct")],
        "parameter storageAccount is \"acct\": it names the account of a blob disk, and kind is \"managed\"; allowed is to \
         leave one of the two out",
    );
    refused(
        &[("kind", "Shared"), ("storageAccount", "acct")],
        "parameter storageAccount is \"acct\": with kind \"Shared\" the driver chooses the account; allowed is to leave one of \
         the two out",
    );
    refused(
        &[("kind", "blob"), ("storageAccount", "acct")],
        "parameter kind is \"blob\": allowed with storageAccount is Dedicated, or to leave it out",
    );
    refused(
        &[("storageAccount", "my_account")],
        "parameter storageAccount is \"my_account\": allowed is the name of a storage account: 3 to 24 letters and digits",
    );
    refused(
        &[("kind", "Shared"), ("skuName", "StandardSSD_LRS")],
        "parameter skuName is \"StandardSSD_LRS\": allowed for blob disks are Standard_LRS, Standard_GRS, Standard_RAGRS, \
         Premium_LRS, in exactly this spelling",
    );
    refused(
        &[("kind", "Shared"), ("skuName", "Premium_LRS"), ("storageAccountType", "Standard_LRS")],
        "parameter storageAccountType is \"Standard_LRS\": skuName names the same thing and is \"Premium_LRS\"; allowed is one \
         of the two, or the same value for both",
    );
    refused(
        &[("kind", "Shared"), ("resourceGroup", "other")],
        "parameter resourceGroup is \"other\": the accounts of blob disks are in the resource group of the cluster; allowed \
         is Cluster",
    );
    refused(
        &[("kind", "Shared"), ("maxShares", "2")],
        "parameter maxShares is \"2\": it is of managed disks, and a blob disk has none; allowed is to leave it out",
    );
    refused(
        &[("kind", "Shared"), ("cachingMod", "None")],
        "parameter cachingMod is \"None\": allowed for blob disks are cachingMode, fsType, kind, location, perfProfile, \
         resourceGroup, skuName, storageAccount, storageAccountType; did you mean cachingMode?",
    );
    refused(
        &[("kind", "Shared"), ("cachingMode", "readonly")],
        "parameter cachingMode is \"readonly\": allowed are None, ReadOnly, ReadWrite, in exactly this spelling",
    );
    assert!(choice(&[("kind", "Shared"), ("Kind", "Managed")]).is_err());
    let class = blob(&[
        ("kind", "Shared"),
        ("resourcegroup", "cluster"),
        ("maxShares", "1"),
        ("cachingmode", "ReadWrite"),
        ("csi-migration", "false"),
        ("csi.storage.k8s.io/pvc/name", "claim"),
        ("fsType", "xfs"),
    ]);
    assert_eq!(class.caching, Some(CachingMode::ReadWrite));
    assert_eq!(class.written.len(), 7);
}

#[test]
fn a_class_of_the_in_tree_provisioner_is_refused_where_it_would_get_a_blob_disk() {
    let of_in_tree = |blob_disks, machines, parameter: (&str, &str)| {
        let request = request(&[parameter, ("csi-migration", "true")]);
        choose(&request, &Defaults { blob_disks, ..defaults() }, &found(machines))
    };
    for parameter in [("kind", "Shared"), ("kind", "Dedicated"), ("storageAccount", "acct")] {
        let refused = [
            of_in_tree(BlobDisks::Always, Machines::Managed, parameter),
            of_in_tree(BlobDisks::Auto, Machines::Blobs, parameter),
        ];
        for error in refused.map(Result::unwrap_err) {
            assert_eq!(error.kind(), ParameterErrorKind::InvalidArgument);
            assert_eq!(
                error.to_string(),
                "parameter csi-migration is \"true\": the class has the in-tree provisioner, of which Kubernetes accepts \
                 managed disks alone; make a class with the provisioner disk.csi.azure.com and these parameters for blob disks, \
                 and the claim anew with that class; or let the class ask for managed disks, without storageAccount and with \
                 kind Managed"
            );
        }
    }
    let managed = |choice| matches!(choice, Ok(Choice::Managed { .. }));
    assert!(managed(of_in_tree(BlobDisks::Auto, Machines::Managed, ("kind", "Shared"))));
    assert!(managed(of_in_tree(BlobDisks::Always, Machines::Blobs, ("kind", "Managed"))));
}

#[test]
fn a_size_that_no_blob_disk_has_is_refused_before_anything_is_made() {
    let sized = |required_bytes, limit_bytes, is_stack_hub| {
        let request = Request { required_bytes, limit_bytes, ..request(&[("kind", "Dedicated")]) };
        match choose(&request, &Defaults { is_stack_hub, ..defaults() }, &found(Machines::Blobs)) {
            Ok(Choice::Blob(class)) => Ok((class.size.get(), class.accepted)),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err((error.kind(), error.to_string())),
        }
    };
    let size = |required, limit, hub| sized(required, limit, hub).map(|(size, _)| size);
    assert_eq!(size(0, 0, false), Ok(1));
    assert_eq!(size(1, 0, false), Ok(1));
    assert_eq!(size(GIB + 1, 0, false), Ok(2));
    assert_eq!(size(4_095 * GIB, 0, false), Ok(4_095));
    assert_eq!(size(1_023 * GIB, 0, true), Ok(1_023));
    assert_eq!(
        size(4_095 * GIB + 1, 0, false),
        Err((
            ParameterErrorKind::OutOfRange,
            format!("parameter required_bytes is \"{}\": the largest blob disk has 4095 GiB", 4_095 * GIB + 1)
        ))
    );
    assert_eq!(
        size(1_024 * GIB, 0, true),
        Err((
            ParameterErrorKind::OutOfRange,
            "parameter required_bytes is \"1099511627776\": the largest blob disk of Azure Stack Hub has 1023 GiB"
                .into()
        ))
    );
    assert_eq!(size(GIB + 1, 2 * GIB, false), Ok(2));
    assert_eq!(size(GIB + 1, 2 * GIB - 1, false).unwrap_err().0, ParameterErrorKind::OutOfRange);
    assert_eq!(size(-1, 0, false).unwrap_err().0, ParameterErrorKind::InvalidArgument);
    assert_eq!(size(i64::MAX, 0, false).unwrap_err().0, ParameterErrorKind::OutOfRange);
    assert_eq!(sized(GIB + 1, 4 * GIB, false).unwrap().1, (1 << 30) + 1..=4 << 30);
}

#[test]
fn azure_stack_hub_has_two_skus() {
    let on_hub = |sku| {
        choose(
            &request(&[("kind", "Shared"), ("skuName", sku)]),
            &Defaults { is_stack_hub: true, ..defaults() },
            &found(Machines::Blobs),
        )
    };
    assert!(on_hub("Standard_LRS").is_ok() && on_hub("Premium_LRS").is_ok());
    assert_eq!(
        on_hub("Standard_GRS").unwrap_err().to_string(),
        "parameter skuName is \"Standard_GRS\": allowed for blob disks on Azure Stack Hub are Standard_LRS, Premium_LRS, in \
         exactly this spelling"
    );
}

#[test]
fn the_switch_has_three_words() {
    for word in ["auto", "always", "never"] {
        assert_eq!(word.parse::<BlobDisks>().unwrap().to_string(), word);
    }
    assert_eq!("Auto".parse::<BlobDisks>().unwrap_err().to_string(), "\"Auto\" is not one of auto, always, never");
}

proptest! {
    #[test]
    fn every_request_has_a_blob_of_its_own(one in "[a-zA-Z0-9_-]{1,80}|\\PC{0,80}", other in "[a-zA-Z0-9_-]{1,80}|\\PC{0,80}") {
        let name = blob_name(&one);
        let uri = lazuli_model::BlobUri::of("acct", "core.windows.net", "vhds", &name);
        prop_assert!(uri.is_ok(), "{:?}", uri);
        prop_assert!(one == other || name != blob_name(&other));
        // What looks like a digest is one.
        prop_assert_ne!(blob_name(name.trim_end_matches(EXTENSION)), if name.starts_with("blob-dynamic-") { name } else { String::new() });
    }

    #[test]
    fn no_class_panics(
        keys in proptest::collection::vec("kind|storageAccount|skuName|location|maxShares|\\PC{0,9}", 0..5),
        values in proptest::collection::vec("Shared|dedicated|Managed|acct|Premium_LRS|\\PC{0,9}", 5),
        required_bytes in any::<i64>(), limit_bytes in any::<i64>(), is_stack_hub in any::<bool>(),
    ) {
        let parameters = keys.into_iter().zip(values).collect();
        let request = Request { name: "pvc-1".into(), parameters, required_bytes, limit_bytes };
        if let Ok(Choice::Blob(class)) = choose(&request, &Defaults { is_stack_hub, ..defaults() }, &found(Machines::Blobs)) {
            prop_assert!(sizes(is_stack_hub).contains(&class.size));
            prop_assert!(class.accepted.contains(&class.size.bytes()));
        }
    }
}

#[test]
fn an_expansion_has_the_sizes_of_a_creation() {
    let gib = 1_i64 << 30;
    assert_eq!(expansion(gib + 1, 0, false), Ok(Gib::new(2)));
    assert_eq!(expansion(gib, gib, false), Ok(Gib::new(1)));
    for (required, limit, is_stack_hub) in
        [(gib + 1, gib + 2, false), (4_096 * gib, 0, false), (1_024 * gib, 0, true), (-1, 0, false)]
    {
        assert!(expansion(required, limit, is_stack_hub).is_err(), "{required} {limit}");
    }
}

/// What the node alone reads, and what nothing here shows.
const OF_NODES: [&str; 2] = ["fsType", "perfProfile"];

#[test]
fn every_parameter_of_the_table_does_what_its_row_says() {
    let outcome = |pairs: &[(&str, &str)]| {
        choice(pairs).map(|choice| match choice {
            Choice::Blob(class) => BlobClass { written: BTreeMap::new(), ..*class },
            other => panic!("{other:?}"),
        })
    };
    for row in PARAMETERS.iter().filter(|row| !OF_NODES.contains(&row.name)) {
        // A class of blob disks, by a parameter that is not the one in question.
        let base: &[(&str, &str)] =
            if row.name == "kind" { &[("storageAccount", "acct")] } else { &[("kind", "Dedicated")] };
        let with = |value| outcome(&[base, &[(row.name, value)]].concat());
        match row.effect {
            Effect::Used => {
                let changes = with(row.example) != outcome(base) || with("\u{7}") != outcome(base);
                assert!(changes, "{} counts", row.name);
            }
            Effect::NoEffect => assert_eq!(with(row.example), outcome(base), "{}", row.name),
            Effect::Refused => assert!(with(row.example).is_err(), "{}", row.name),
        }
        if let Some(of) = row.alias_of {
            let same = outcome(&[base, &[(of, row.example)]].concat());
            assert_eq!(with(row.example), same, "{} is {of}", row.name);
        }
    }
}

#[test]
fn every_row_of_the_table_is_there_once_in_order_and_is_written_for_people() {
    assert!(PARAMETERS.is_sorted_by_key(|row| row.name.to_lowercase()));
    for row in PARAMETERS {
        let folded = row.name.to_lowercase();
        assert_eq!(PARAMETERS.iter().filter(|other| other.name.to_lowercase() == folded).count(), 1, "{}", row.name);
        assert!(!OF_MANAGED_DISKS.contains(&&*folded) || row.name == "maxShares", "{}", row.name);
        assert!(row.alias_of.is_some() || row.meaning.ends_with('.') && !row.meaning.contains('|'), "{}", row.name);
        assert!(!row.values.is_empty() || row.effect == Effect::Refused, "{}", row.name);
    }
    let skus = PARAMETERS.iter().find(|row| row.name == "skuName").unwrap().values;
    let (all, hub) = skus.split_once("; on Azure Stack Hub ").unwrap();
    let names = |skus: &[StorageSku]| skus.iter().map(|sku| sku.as_str()).collect::<Vec<_>>().join(", ");
    assert_eq!((all, hub), (&*names(&SKUS), &*names(&STACK_HUB_SKUS)));
}

/// What the first try has begun the later ones go on with, whatever Nodes there are by then.
#[test]
fn a_managed_disk_that_an_earlier_try_made_is_gone_on_with_whatever_blob_disks_refuse() {
    let begun = Found { machines: Some(Machines::Blobs), blob: Some(false), managed: Some(true) };
    for parameters in [
        &[("kind", "Dedicated"), ("csi.storage.k8s.io/migrated", "x"), ("csi-migration", "true")][..],
        &[("kind", "Shared"), ("tags", "a=b")],
        &[("kind", "Shared"), ("skuName", "StandardSSD_LRS")],
    ] {
        let managed = Found { machines: Some(Machines::Managed), ..begun };
        let first = choose(&request(parameters), &defaults(), &managed);
        assert!(matches!(first, Ok(Choice::Managed { .. })), "the first try: {first:?}");
        let retry = choose(&request(parameters), &defaults(), &begun);
        assert!(matches!(retry, Ok(Choice::Managed { .. })), "the retry: {retry:?}");
    }
}

#[test]
fn a_kind_that_is_none_is_refused_where_blob_disks_are_made() {
    let with = |blob_disks, machines| {
        let found = Found { machines, managed: Some(false), ..Found::default() };
        choose(&request(&[("kind", "Shred")]), &Defaults { blob_disks, ..defaults() }, &found)
    };
    for (blob_disks, machines) in [(BlobDisks::Always, None), (BlobDisks::Auto, Some(Machines::Blobs))] {
        let error = with(blob_disks, machines).unwrap_err().to_string();
        assert!(["kind", "Shred", "Managed, Shared and Dedicated"].iter().all(|word| error.contains(word)), "{error}");
    }
    assert_eq!(with(BlobDisks::Auto, None), Ok(Choice::AskForMachines));
    for (blob_disks, machines) in [(BlobDisks::Never, None), (BlobDisks::Auto, Some(Machines::Managed))] {
        assert_eq!(with(blob_disks, machines), Ok(Choice::Managed { warning: None }));
    }
}
