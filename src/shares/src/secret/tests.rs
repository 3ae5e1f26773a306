use lazuli_model::{AzureTime, REDACTED};
use proptest::prelude::*;

use super::*;

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn a_secret_is_named_after_its_account() {
    assert_eq!(secret_name("f1"), "azure-storage-account-f1-secret");
    assert_eq!(account_of_secret("azure-storage-account-f1-secret"), Some("f1"));
    for name in ["azure-storage-account--secret", "azure-storage-account-f1", "f1-secret", "mine"] {
        assert_eq!(account_of_secret(name), None, "{name}");
    }
}

#[test]
fn credentials_are_read_under_both_names_and_in_any_letter_case() {
    let read = |pairs: &[(&'static str, &'static str)]| credentials(pairs.iter().copied());
    let expected = Credentials { account: "f1".into(), key: Secret::new("a2V5") };
    assert_eq!(read(&[("azurestorageaccountname", "f1"), ("azurestorageaccountkey", "a2V5")]), Ok(expected.clone()));
    assert_eq!(read(&[("AccountName", " f1 "), ("ACCOUNTKEY", "a2V5\n"), ("other", "x")]), Ok(expected.clone()));
    assert_eq!(read(&[("accountname", "f1"), ("azurestorageaccountname", "f1"), ("accountkey", "a2V5")]), Ok(expected));
    assert_eq!(read(&[]), Err(CredentialsError::Missing(ACCOUNT_NAME)));
    assert_eq!(read(&[("accountname", "f1"), ("accountkey", " ")]), Err(CredentialsError::Missing(ACCOUNT_KEY)));
    let error = read(&[("accountname", "f1"), ("accountkey", "b25l"), ("azurestorageaccountkey", "dHdv")]).unwrap_err();
    assert_eq!(error, CredentialsError::Ambiguous(ACCOUNT_KEY));
    assert!(!error.to_string().contains("b25l") && !error.to_string().contains("dHdv"));
}

#[test]
fn credentials_are_written_as_the_go_driver_does_and_never_printed() {
    let one = Credentials { account: "f1".into(), key: Secret::new("a2V5") };
    assert_eq!(data(&one), [("azurestorageaccountname", "f1"), ("azurestorageaccountkey", "a2V5")]);
    let shown = format!("{one:?}");
    assert!(shown.contains(REDACTED) && !shown.contains("a2V5"), "{shown}");
}

#[test]
fn the_first_key_is_used_unless_the_latest_is_asked_for() {
    let key = |name: &str, value: &str, created: Option<i64>| AccountKey {
        name: name.into(),
        value: Secret::new(value),
        created: created.map(AzureTime::from_unix_seconds),
    };
    let chosen = |keys: &[AccountKey], latest| choose_key(keys, latest).map(|key| key.name.clone());
    let two = [key("key1", "a", Some(1)), key("key2", "b", Some(2))];
    assert_eq!((chosen(&two, false).as_deref(), chosen(&two, true).as_deref()), (Some("key1"), Some("key2")));
    let same = [key("key1", "a", Some(1)), key("key2", "b", Some(1))];
    assert_eq!(chosen(&same, true).as_deref(), Some("key1"));
    let unknown = [key("key1", "a", None), key("key2", "b", Some(1)), key("key3", "c", None)];
    assert_eq!(chosen(&unknown, true).as_deref(), Some("key2"));
    let empty = [key("key1", " ", Some(9)), key("key2", "b", None)];
    assert_eq!((chosen(&empty, false).as_deref(), chosen(&empty, true).as_deref()), (Some("key2"), Some("key2")));
    assert_eq!(chosen(&[], false), None);
}

fn source(context: &[(&str, &str)], id: &str) -> KeySource {
    let id = ShareVolumeId::parse(id).ok();
    key_source(&map(context), id.as_ref()).unwrap()
}

fn secret(namespace: &str, name: &str) -> SecretRef {
    SecretRef { namespace: namespace.into(), name: name.into() }
}

#[test]
fn the_secret_of_a_volume_is_found_as_by_the_go_driver() {
    const TEMPLATE: &str = "azure-storage-account-f1-secret";
    for (context, id, account, expected) in [
        (&[][..], "g#f1#s###ns", Some("f1"), Some(secret("ns", TEMPLATE))),
        (&[], "g#f1#s#", Some("f1"), Some(secret("default", TEMPLATE))),
        (&[("csi.storage.k8s.io/pvc/namespace", "db")], "g#f1#s#", Some("f1"), Some(secret("db", TEMPLATE))),
        (&[("csi.storage.k8s.io/pvc/namespace", "db")], "g#f1#s###ns", Some("f1"), Some(secret("ns", TEMPLATE))),
        (&[("SecretNamespace", "x")], "g#f1#s###ns", Some("f1"), Some(secret("x", TEMPLATE))),
        (&[("secretName", "mine")], "vol1", None, Some(secret("default", "mine"))),
        (&[("storageAccount", "f2")], "g#f1#s###ns", Some("f2"), Some(secret("ns", "azure-storage-account-f2-secret"))),
        (&[], "vol1", None, None),
        (
            &[("secretName", "of-${pvc.metadata.name}"), ("csi.storage.k8s.io/pvc/name", "data")],
            "g#f1#s###ns",
            Some("f1"),
            Some(secret("ns", "of-data")),
        ),
    ] {
        let found = source(context, id);
        assert_eq!((found.account.as_deref(), &found.secret), (account, &expected), "{context:?} {id}");
        assert_eq!(found.may_ask_azure, account.is_some());
        assert!(!found.latest);
    }
    let only = source(&[("getAccountKeyFromSecret", "True"), ("getLatestAccountKey", "true")], "g#f1#s#");
    assert!(!only.may_ask_azure && only.latest);
    for context in [
        &[("secretName", "a"), ("secretname", "b")][..],
        &[("secretName", "${pv.metadata.name}")],
        &[("getLatestAccountKey", "maybe")],
    ] {
        assert!(key_source(&map(context), None).is_err(), "{context:?}");
    }
}

const PLUGIN: (&str, &str) = ("kube-system", "csi-node");

fn requester(node: Option<&str>) -> Requester {
    Requester { namespace: PLUGIN.0.into(), service_account: PLUGIN.1.into(), node: node.map(str::to_owned) }
}

fn volume(name: &str, claim: Option<(&str, &str)>) -> VolumeSeen {
    VolumeSeen {
        name: name.into(),
        claim: claim.map(|(namespace, name)| (namespace.to_owned(), name.to_owned())),
        key: Ok(source(&[("secretName", name)], "vol")),
    }
}

fn pod(namespace: &str, node: &str, claim: &str) -> PodSeen {
    PodSeen {
        namespace: namespace.into(),
        node: node.into(),
        claims: BTreeSet::from([claim.to_owned()]),
        has_ended: false,
    }
}

fn asked<'a>(requester: &'a Requester, volumes: &'a [VolumeSeen], pods: &'a [PodSeen]) -> KeyRequest<'a> {
    KeyRequest {
        access: &SecretAccess::Broker,
        node_plugin: PLUGIN,
        requester: Some(requester),
        volumes: Some(volumes),
        pods: Some(pods),
    }
}

#[test]
fn a_node_gets_the_key_of_a_volume_that_its_pod_uses() {
    let (who, volumes, pods) = (requester(Some("n1")), [volume("pv", Some(("db", "data")))], [pod("db", "n1", "data")]);
    let grant = may_have(&asked(&who, &volumes, &pods)).unwrap();
    assert_eq!((grant.volume.as_str(), Ok(grant.key)), ("pv", volumes[0].key.clone()));
}

#[test]
fn each_thing_that_is_not_as_it_must_be_is_a_refusal_of_its_own() {
    let who = requester(Some("n1"));
    let volumes = [volume("pv", Some(("db", "data")))];
    let pods = [pod("db", "n1", "data")];
    let good = asked(&who, &volumes, &pods);
    let refused = |request: KeyRequest<'_>| may_have(&request).unwrap_err();
    for access in [SecretAccess::Cluster, SecretAccess::Namespaces(BTreeSet::from(["db".to_owned()]))] {
        assert_eq!(refused(KeyRequest { access: &access, ..good }), Refusal::NotBroker);
    }
    assert_eq!(refused(KeyRequest { requester: None, ..good }), Refusal::Unauthenticated);
    for (namespace, name) in [("default", "csi-node"), ("kube-system", "other")] {
        let other = Requester { namespace: namespace.into(), service_account: name.into(), ..who.clone() };
        let refusal = refused(KeyRequest { requester: Some(&other), ..good });
        assert_eq!(refusal, Refusal::NotNodePlugin(format!("{namespace}/{name}")));
    }
    for node in [None, Some("")] {
        let unbound = requester(node);
        assert_eq!(refused(KeyRequest { requester: Some(&unbound), ..good }), Refusal::NoNode);
    }
    assert_eq!(refused(KeyRequest { volumes: None, ..good }), Refusal::NotRead);
    assert_eq!(refused(KeyRequest { pods: None, ..good }), Refusal::NotRead);
    assert_eq!(refused(KeyRequest { volumes: Some(&[]), ..good }), Refusal::NoVolume);
    let unbound = [volume("pv", None)];
    assert_eq!(refused(KeyRequest { volumes: Some(&unbound), ..good }), Refusal::NoVolume);
    let ended = PodSeen { has_ended: true, ..pods[0].clone() };
    for other in [pod("db", "n2", "data"), pod("web", "n1", "data"), pod("db", "n1", "logs"), ended] {
        assert_eq!(refused(KeyRequest { pods: Some(&[other]), ..good }), Refusal::NoPod("n1".into()));
    }
    for (refusal, code) in [
        (Refusal::NotBroker, Code::FailedPrecondition),
        (Refusal::Unauthenticated, Code::Unauthenticated),
        (Refusal::NotRead, Code::Unavailable),
        (Refusal::NoVolume, Code::PermissionDenied),
        (Refusal::NoPod("n1".into()), Code::PermissionDenied),
    ] {
        assert_eq!(refusal.code(), code, "{refusal}");
    }
}

#[test]
fn a_volume_that_does_not_say_where_its_key_is_gets_none() {
    let error = key_source(&map(&[("secretName", "a"), ("secretname", "b")]), None).unwrap_err();
    let unclear = VolumeSeen { key: Err(error.clone()), ..volume("pv", Some(("db", "data"))) };
    let (who, volumes, pods) = (requester(Some("n1")), [unclear], [pod("db", "n1", "data")]);
    let refusal = may_have(&asked(&who, &volumes, &pods)).unwrap_err();
    assert_eq!(refusal, Refusal::Unclear { volume: "pv".into(), source: error });
    assert_eq!(refusal.code(), Code::FailedPrecondition);
    // A node that does not use it hears nothing of its attributes.
    assert_eq!(may_have(&asked(&who, &volumes, &[])), Err(Refusal::NoPod("n1".into())));
}

#[test]
fn the_account_in_azure_is_that_of_the_attributes_before_that_of_the_volume_id() {
    let of = |context: &[(&str, &str)], id: &str| {
        let found = source(context, id);
        (found.subscription.unwrap_or_default(), found.resource_group.unwrap_or_default())
    };
    assert_eq!(of(&[], "g#f1#s###ns#sub"), ("sub".into(), "g".into()));
    assert_eq!(of(&[], "#f1#s#"), (String::new(), String::new()));
    assert_eq!(of(&[("resourceGroup", "h"), ("subscriptionID", "t")], "g#f1#s###ns#sub"), ("t".into(), "h".into()));
}

#[test]
fn the_access_to_secrets_is_one_of_three_and_an_empty_list_admits_nobody() {
    let parse = |mode: &str, namespaces: &[&str]| {
        let namespaces: Vec<String> = namespaces.iter().map(|name| (*name).to_owned()).collect();
        SecretAccess::parse(mode, &namespaces).map_err(|error| error.to_string())
    };
    let two = SecretAccess::Namespaces(BTreeSet::from(["db".to_owned(), "web".to_owned()]));
    assert_eq!(parse("broker", &[]), Ok(SecretAccess::Broker));
    assert_eq!(parse("cluster", &[]), Ok(SecretAccess::Cluster));
    assert_eq!(parse("namespaces", &["web", "db"]), Ok(two.clone()));
    for (mode, namespaces, words) in [
        ("Broker", &[][..], "allowed are broker, cluster and namespaces"),
        ("", &[], "allowed are broker"),
        ("namespaces", &[], "none is named"),
        ("namespaces", &["*"], "\"*\" is not the name of a namespace"),
        ("namespaces", &["db", ""], "\"\" is not the name"),
        ("broker", &["db"], "namespaces are named (db)"),
        ("cluster", &["db"], "namespaces are named (db)"),
    ] {
        let error = parse(mode, namespaces).unwrap_err();
        assert!(error.contains(words), "{mode} {namespaces:?}: {error}");
    }
    let in_db = secret("db", "key");
    assert_eq!(two.lets_nodes_read(&in_db), Ok(()));
    let refused = two.lets_nodes_read(&secret("kube-system", "key")).unwrap_err();
    assert!(refused.to_string().contains("in namespace kube-system (for key): allowed are db, web"), "{refused}");
    assert_eq!(SecretAccess::Cluster.lets_nodes_read(&in_db), Ok(()));
    assert_eq!(SecretAccess::Broker.lets_nodes_read(&in_db), Err(NotReadable::Broker));
}

#[test]
fn of_two_volumes_with_one_id_the_one_that_the_node_uses_is_meant() {
    let who = requester(Some("n1"));
    let volumes = [volume("pv-b", Some(("db", "data"))), volume("pv-a", Some(("web", "data")))];
    let pods = [pod("db", "n1", "data")];
    assert_eq!(may_have(&asked(&who, &volumes, &pods)).unwrap().volume, "pv-b");
    let both = [pods[0].clone(), pod("web", "n1", "data")];
    assert_eq!(may_have(&asked(&who, &volumes, &both)).unwrap().volume, "pv-a");
}

#[test]
fn only_a_secret_that_a_driver_wrote_follows_a_rotation() {
    let own = secret("db", "azure-storage-account-f1-secret");
    let keys: BTreeSet<String> = [ACCOUNT_NAME, ACCOUNT_KEY].map(str::to_owned).into();
    let volumes = [source(&[("secretNamespace", "db")], "g#f1#s#")];
    let good = StoredKey { secret: &own, keys: &keys, is_managed: false, account: "f1", volumes: &volumes };
    assert!(may_update(&good) && !may_update(&StoredKey { is_managed: true, ..good }));
    let mut more = keys.clone();
    more.insert("mine".to_owned());
    assert!(!may_update(&StoredKey { keys: &more, ..good }));
    let half: BTreeSet<String> = [ACCOUNT_NAME, "mine"].map(str::to_owned).into();
    assert!(!may_update(&StoredKey { keys: &half, ..good }));
    let aliases: BTreeSet<String> = ["accountname", "accountkey"].map(str::to_owned).into();
    assert!(!may_update(&StoredKey { keys: &aliases, ..good }));
    assert!(!may_update(&StoredKey { account: "f2", ..good }));
    assert!(!may_update(&StoredKey { volumes: &[], ..good }));
    let elsewhere = [source(&[("secretNamespace", "web")], "g#f1#s#")];
    assert!(!may_update(&StoredKey { volumes: &elsewhere, ..good }));
    let of_another = [source(
        &[("secretNamespace", "db"), ("secretName", "azure-storage-account-f1-secret"), ("storageAccount", "f2")],
        "g#f1#s#",
    )];
    assert!(!may_update(&StoredKey { volumes: &of_another, ..good }));
    let named = secret("db", "mine");
    let by_name = [source(&[("secretNamespace", "db"), ("secretName", "mine")], "g#f1#s#")];
    assert!(!may_update(&StoredKey { secret: &named, volumes: &by_name, ..good }));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_024, ..ProptestConfig::default() })]

    #[test]
    fn a_key_goes_only_to_a_node_whose_pod_uses_the_volume(
        pods in proptest::collection::vec(("(db|web)", "(n1|n2)", "(data|logs)", any::<bool>()), 0..4),
        claims in proptest::collection::vec(proptest::option::of(("(db|web)", "(data|logs)")), 0..3),
        node in "(n1|n2)?", account in "(csi-node|other)",
    ) {
        let who = Requester { service_account: account, ..requester(Some(&node)) };
        let pods: Vec<PodSeen> = pods
            .iter()
            .map(|(namespace, node, claim, has_ended)| PodSeen { has_ended: *has_ended, ..pod(namespace, node, claim) })
            .collect();
        let volumes: Vec<VolumeSeen> = claims
            .iter()
            .enumerate()
            .map(|(index, claim)| {
                volume(&format!("pv{index}"), claim.as_ref().map(|(namespace, name)| (namespace.as_str(), name.as_str())))
            })
            .collect();
        let answer = may_have(&asked(&who, &volumes, &pods));
        let allowed: Vec<&VolumeSeen> = volumes
            .iter()
            .filter(|volume| volume.claim.as_ref().is_some_and(|(namespace, claim)| {
                pods.iter().any(|pod| {
                    pod.node == node && pod.namespace == *namespace && pod.claims.contains(claim) && !pod.has_ended
                })
            }))
            .collect();
        let may = who.service_account == "csi-node" && !node.is_empty() && !allowed.is_empty();
        prop_assert_eq!(answer.is_ok(), may);
        if let Ok(grant) = answer {
            prop_assert!(allowed.iter().any(|volume| volume.name == grant.volume && volume.key.as_ref() == Ok(&grant.key)));
        }
        let mut turned = (volumes.clone(), pods.clone());
        turned.0.reverse();
        turned.1.reverse();
        prop_assert_eq!(may_have(&asked(&who, &turned.0, &turned.1)), may_have(&asked(&who, &volumes, &pods)));
    }
}
