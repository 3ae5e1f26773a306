use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::{
    secret::{key_source, key_source_of},
    volume_id::ShareVolumeId,
};

const OWN: &str = "azure-storage-account-f1-secret";

fn source(context: &[(&str, &str)]) -> KeySource {
    let context: BTreeMap<String, String> =
        context.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    key_source(&context, ShareVolumeId::parse("g#f1#pvc-1###db").ok().as_ref()).unwrap()
}

fn credentials(account: &str, key: &str) -> Credentials {
    Credentials { account: account.into(), key: Secret::new(key) }
}

fn stored(account: &str, key: &str) -> StoredSecret {
    let keys = [ACCOUNT_NAME, ACCOUNT_KEY].map(str::to_owned).into();
    StoredSecret { credentials: credentials(account, key), keys, is_managed: false }
}

fn listed(values: &[&str]) -> Vec<AccountKey> {
    let key = |(at, value): (usize, &&str)| AccountKey {
        name: format!("key{}", at + 1),
        value: Secret::new(*value),
        created: None,
    };
    values.iter().enumerate().map(key).collect()
}

/// Runs the steps to the end, and says whether Azure was asked.
fn run(
    source: &KeySource,
    stored: Option<&StoredSecret>,
    azure: Option<&[AccountKey]>,
    refused: Option<&str>,
) -> (Step, bool) {
    let is = |key: &Secret| refused.is_some_and(|refused| key.expose() == refused);
    let refused = refused.map(|_| RefusedKey::new(&is));
    let before = azure.map_or(AzureKeys::NotHere, |_| AzureKeys::NotListed);
    let evidence = Evidence { volume: "pv", source, stored, azure: before, refused };
    match (handout(&evidence), azure) {
        (Step::ListKeys { account }, Some(keys)) => {
            assert_eq!(Some(&account), source.account.as_ref());
            (handout(&Evidence { azure: AzureKeys::Listed(keys), ..evidence }), true)
        }
        (step, _) => (step, false),
    }
}

fn secret(name: &str) -> SecretRef {
    SecretRef { namespace: "db".into(), name: name.into() }
}

#[test]
fn after_a_rotation_a_drivers_secret_follows_and_the_node_gets_the_key_at_once() {
    let (own, keys) = (source(&[]), listed(&["new", "second"]));
    let given =
        |key: &str, origin, updates| Step::Give(Handout { credentials: credentials("f1", key), origin, updates });
    let of_secret = Origin::Secret(secret(OWN));
    let before = run(&own, Some(&stored("f1", "old")), Some(&keys), None);
    assert_eq!(before, (given("old", of_secret.clone(), None), false));
    let asked = run(&own, Some(&stored("f1", "old")), Some(&keys), Some("old"));
    assert_eq!(asked, (given("new", Origin::Azure("key1".into()), Some(secret(OWN))), true));
    // Another replica, or another node's request, has been first.
    let after = run(&own, Some(&stored("f1", "new")), Some(&keys), Some("old"));
    assert_eq!(after, (given("new", of_secret, None), false));
    // Without a Secret there is nothing to write.
    let without = run(&own, None, Some(&keys), Some("old"));
    assert_eq!(without, (given("new", Origin::Azure("key1".into()), None), true));
    assert_eq!(
        format!("{}; {}", Origin::Azure("key1".into()), Origin::Secret(secret(OWN))),
        format!("Azure, key1; Secret db/{OWN}")
    );
}

#[test]
fn a_secret_whose_key_azure_lists_is_not_written_whatever_the_server_says() {
    // The firewall refuses a node of another network, and a person has put the second key there.
    let (step, asked) =
        run(&source(&[]), Some(&stored("f1", "second")), Some(&listed(&["first", "second"])), Some("second"));
    let (credentials, origin) = (credentials("f1", "first"), Origin::Azure("key1".into()));
    assert_eq!((step, asked), (Step::Give(Handout { credentials, origin, updates: None }), true));
}

#[test]
fn the_secret_of_the_stage_counts_before_the_drivers_name_and_is_a_drivers_by_its_name_alone() {
    let id = ShareVolumeId::parse("g#f1#pvc-1###db").ok();
    let of = |context: &[(&str, &str)], staged: &str| {
        let context = context.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        key_source_of(&context, id.as_ref(), Some(&secret(staged))).unwrap()
    };
    assert_eq!(of(&[], "mine").secret, Some(secret("mine")));
    assert_eq!(of(&[("secretName", "named"), ("secretNamespace", "db")], "mine").secret, Some(secret("named")));
    let old = stored("f1", "old");
    let keys = listed(&["new"]);
    let (step, _) = run(&of(&[], "mine"), Some(&old), Some(&keys), Some("old"));
    assert_eq!(step, Step::Refuse(NoKey::OfAPerson { secret: secret("mine") }));
    let (step, _) = run(&of(&[], OWN), Some(&old), Some(&keys), Some("old"));
    assert!(matches!(step, Step::Give(Handout { updates: Some(written), .. }) if written == secret(OWN)));
    let nameless = key_source_of(&BTreeMap::new(), None, Some(&secret("mine"))).unwrap();
    assert_eq!((nameless.secret, nameless.may_ask_azure), (Some(secret("mine")), false));
}

#[test]
fn a_secret_of_a_person_is_named_and_never_written() {
    let keys = listed(&["new"]);
    let mut with_more = stored("f1", "old");
    with_more.keys.insert("note".into());
    let managed = StoredSecret { is_managed: true, ..stored("f1", "old") };
    for (context, held, name) in
        [(&[("secretName", "mine")][..], &stored("f1", "old"), "mine"), (&[], &with_more, OWN), (&[], &managed, OWN)]
    {
        let (step, asked) = run(&source(context), Some(held), Some(&keys), Some("old"));
        assert_eq!((&step, asked), (&Step::Refuse(NoKey::OfAPerson { secret: secret(name) }), false));
        let Step::Refuse(why) = step else { unreachable!() };
        assert!(
            why.to_string().contains(&format!("Secret db/{name}")) && why.code() == Code::FailedPrecondition,
            "{why}"
        );
    }
}

#[test]
fn a_secret_of_another_account_is_refused_with_both_names() {
    for refused in [None, Some("old")] {
        let (step, asked) = run(&source(&[]), Some(&stored("f2", "old")), Some(&listed(&["new"])), refused);
        let Step::Refuse(why @ NoKey::OtherAccount { .. }) = step else { panic!("{step:?}") };
        assert!(!asked);
        for part in ["PersistentVolume pv", "storage account f1", &format!("Secret db/{OWN}"), "storage account f2"] {
            assert!(why.to_string().contains(part), "{part}: {why}");
        }
    }
    // Names of accounts have no letter case, and a volume that names none takes the Secret's.
    let upper = source(&[("storageAccount", "F1"), ("secretName", OWN)]);
    assert!(matches!(run(&upper, Some(&stored("f1", "k")), None, None).0, Step::Give(_)));
    let nameless = key_source(&[("secretName".to_owned(), "mine".to_owned())].into(), None).unwrap();
    assert!(matches!(run(&nameless, Some(&stored("f9", "k")), None, None).0, Step::Give(_)));
}

#[test]
fn each_reason_why_there_is_no_key_says_what_to_do() {
    let only = source(&[("getAccountKeyFromSecret", "true")]);
    let nameless = key_source(&BTreeMap::new(), None).unwrap();
    let keys = listed(&["old", "second"]);
    for (source, held, azure, refused, expected, says) in [
        (&nameless, None, Some(&keys), None, NoKey::Nameless, "set secretName or storageAccount"),
        (
            &only,
            None,
            Some(&keys),
            None,
            NoKey::NoSecret { secret: secret(OWN), why: "Azure is not asked for its key" },
            "create it with azurestorageaccountname and azurestorageaccountkey",
        ),
        (&only, Some("old"), Some(&keys), Some("old"), NoKey::OnlyStored { secret: secret(OWN) }, "Azure is not asked"),
        (
            &source_of_f1(),
            Some("old"),
            None,
            Some("old"),
            NoKey::OnlyStored { secret: secret(OWN) },
            "Azure is not asked",
        ),
        (&source_of_f1(), Some("old"), Some(&keys), Some("old"), NoKey::Current("f1".into()), "firewall"),
        (&source_of_f1(), None, Some(&keys), Some("old"), NoKey::Current("f1".into()), "ten seconds"),
        (&source_of_f1(), None, Some(&Vec::new()), None, NoKey::NotInAzure("f1".into()), "no key in Azure"),
    ] {
        let held = held.map(|key| stored("f1", key));
        let (step, _) = run(source, held.as_ref(), azure.map(Vec::as_slice), refused);
        assert_eq!(step, Step::Refuse(expected.clone()));
        assert!(expected.to_string().contains(says), "{expected}");
    }
}

fn source_of_f1() -> KeySource {
    source(&[])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_048, ..ProptestConfig::default() })]

    #[test]
    fn the_refused_key_is_never_given_again_and_only_a_drivers_stale_secret_is_written(
        name in proptest::option::of("(mine|azure-storage-account-f1-secret|azure-storage-account-f2-secret)"),
        only_secret in any::<bool>(), latest in any::<bool>(),
        held in proptest::option::of(("(f1|f2)", "[abc]", any::<bool>(), any::<bool>())),
        azure in proptest::option::of(proptest::collection::vec("[abc ]", 0..3)), refused in proptest::option::of("[abc]"),
    ) {
        let mut context = vec![("getAccountKeyFromSecret", if only_secret { "true" } else { "false" })];
        context.push(("getLatestAccountKey", if latest { "true" } else { "false" }));
        context.extend(name.as_deref().map(|name| ("secretName", name)));
        let source = source(&context);
        let keys = azure.map(|values| listed(&values.iter().map(String::as_str).collect::<Vec<_>>()));
        let held = held.map(|(account, key, has_more, is_managed)| {
            let mut secret = StoredSecret { is_managed, ..stored(&account, &key) };
            if has_more {
                secret.keys.insert("note".into());
            }
            (secret, has_more)
        });
        let stored = held.as_ref().map(|(secret, _)| secret);
        let (step, asked) = run(&source, stored, keys.as_deref(), refused.as_deref());
        prop_assert!(!matches!(step, Step::ListKeys { .. }), "it ends: {:?}", step);
        // Azure is asked only where the volume lets it, and where the Secret has no key that may be right.
        if asked {
            prop_assert!(!only_secret && keys.is_some());
            prop_assert!(stored.is_none_or(|held| Some(held.credentials.key.expose()) == refused.as_deref()));
        }
        if let Step::Give(Handout { credentials, origin, updates }) = step {
            prop_assert_ne!(Some(credentials.key.expose()), refused.as_deref());
            prop_assert_eq!(credentials.account.as_str(), "f1");
            match origin {
                Origin::Secret(_) => prop_assert_eq!(Some(&credentials), stored.map(|held| &held.credentials)),
                Origin::Azure(name) => {
                    let all = keys.as_deref().unwrap_or_default();
                    prop_assert!(all.iter().any(|key| key.name == name && key.value == credentials.key));
                }
            }
            if let Some(written) = updates {
                let (held, has_more) = held.as_ref().unwrap();
                prop_assert!(!has_more && !held.is_managed && asked);
                prop_assert_eq!(written.name, OWN);
                prop_assert_eq!(held.credentials.account.as_str(), "f1");
                prop_assert_eq!(Some(held.credentials.key.expose()), refused.as_deref());
                prop_assert!(keys.iter().flatten().all(|key| key.value != held.credentials.key), "it was not rotated");
            } else if let Some((held, _)) = &held {
                // A Secret that stays is one whose key was given, or is one that Azure lists.
                let is_listed = keys.iter().flatten().any(|key| key.value == held.credentials.key);
                prop_assert!(credentials == held.credentials || is_listed);
            }
        }
    }
}
