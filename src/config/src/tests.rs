//! Tests of the whole: documents and variables in, configuration or errors out.

mod clouds;
mod keys;
mod properties;

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::*;

const TENANT: &str = "11111111-2222-3333-4444-555555555555";
const SUBSCRIPTION: &str = "99999999-8888-7777-6666-555555555555";
const PASSWORD: &str = "hunter2-very-secret";

/// The 2017 format, as acs-engine wrote it.
fn azure_json_of_2017() -> Value {
    json!({
        "cloud": "AzurePublicCloud",
        "tenantId": TENANT,
        "subscriptionId": SUBSCRIPTION,
        "aadClientId": "client-1",
        "aadClientSecret": PASSWORD,
        "resourceGroup": "MyGroup",
        "location": "westus",
        "subnetName": "k8s-subnet",
        "securityGroupName": "k8s-master-nsg",
        "vnetName": "k8s-vnet",
        "vnetResourceGroup": "",
        "routeTableName": "k8s-routetable",
        "primaryAvailabilitySetName": "agentpool1-availabilitySet",
        "cloudProviderBackoff": true,
        "cloudProviderBackoffRetries": 7,
        "cloudProviderBackoffExponent": 2,
        "cloudProviderBackoffDuration": 6,
        "cloudProviderBackoffJitter": 1.5,
        "cloudProviderRatelimit": true,
        "cloudProviderRateLimitQPS": 3,
        "cloudProviderRateLimitBucket": 10,
        "useManagedIdentityExtension": false,
        "useInstanceMetadata": true
    })
}

fn with(changes: Value) -> Value {
    let mut value = azure_json_of_2017();
    let map = value.as_object_mut().expect("is an object");
    for (key, change) in changes.as_object().expect("is an object") {
        map.insert(key.clone(), change.clone());
    }
    value
}

fn document(value: &Value) -> Document {
    Document::parse("azure.json", value.to_string().as_bytes()).expect("parses")
}

/// The service controller alone.
const SERVICES: LooksAfter = LooksAfter { services: true, nodes: false };

fn load(value: &Value) -> Result<Config, ConfigError> {
    load_with(value, &[])
}

fn load_with(value: &Value, variables: &[(&str, &str)]) -> Result<Config, ConfigError> {
    let variables = map(variables);
    Config::from_documents(Some(&document(value)), None, &Environment::new(&variables))
}

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn yaml(text: &str) -> Result<Config, ConfigError> {
    let document = Document::parse("azure.yaml", text.as_bytes())?;
    let variables = BTreeMap::new();
    Config::from_documents(Some(&document), None, &Environment::new(&variables))
}

fn problems(result: Result<Config, ConfigError>) -> Vec<String> {
    match result {
        Err(ConfigError::Invalid(problems)) => problems.0.iter().map(Problem::to_string).collect(),
        other => panic!("expected problems, got {other:?}"),
    }
}

#[test]
fn a_required_key_that_is_misspelt_is_named_with_the_one_that_is_given() {
    let mut value = with(json!({"subscriptonId": SUBSCRIPTION}));
    value.as_object_mut().unwrap().remove("subscriptionId");
    assert_eq!(
        problems(load(&value)),
        [
            "azure.json: subscriptionId: missing, expected the id of the subscription (the unknown key subscriptonId is given; \
            did you mean subscriptionId?)"
        ]
    );
    // A key that means another is no hint.
    value.as_object_mut().unwrap().remove("subscriptonId");
    assert_eq!(problems(load(&value)), ["azure.json: subscriptionId: missing, expected the id of the subscription"]);
}

#[test]
fn the_file_of_2017_is_understood_whole() {
    let config = load(&azure_json_of_2017()).expect("loads");
    assert_eq!(config.unknown_keys(), []);
    assert_eq!(config.warnings(), [] as [&str; 0]);
    assert_eq!(config.tenant_id.as_deref(), Some(TENANT));
    assert_eq!(config.cluster.subscription_id, SUBSCRIPTION);
    assert_eq!(config.cluster.resource_group.as_str(), "MyGroup");
    assert_eq!(config.cluster.location, "westus");
    assert!(config.cluster.use_instance_metadata);
    assert_eq!(config.network.subnet.as_deref(), Some("k8s-subnet"));
    assert_eq!(config.network.vnet_resource_group, ResourceGroup::new("mygroup"));
    assert_eq!(config.network.route_table.as_deref(), Some("k8s-routetable"));
    let backoff = &config.backoff;
    assert!(backoff.enabled);
    assert_eq!((backoff.retries, backoff.exponent, backoff.jitter), (7, 2.0, 1.5));
    assert_eq!(backoff.duration, Duration::from_secs(6));
    let limit = config.rate_limits.default;
    assert!(limit.enabled);
    assert_eq!((limit.read_per_second, limit.read_burst), (3.0, 10));
    assert_eq!((limit.write_per_second, limit.write_burst), (3.0, 10));
    let CloudSource::Known(cloud) = &config.cloud else {
        panic!("a well-known cloud needs no discovery");
    };
    assert_eq!(cloud.resource_manager.as_str(), "https://management.azure.com/");
    assert_eq!(
        config.credential,
        Credential::ClientSecret {
            tenant_id: TENANT.to_owned(),
            client_id: "client-1".to_owned(),
            secret: Secret::new(PASSWORD),
        }
    );
}

#[test]
fn todays_keys_are_typed_and_known() {
    let config = load(&with(json!({
        "vmType": "vmssFlex", "loadBalancerSku": "Standard", "tagsMap": {"A": "x=y", "n": 5},
        "tags": "a=1, b = 2 ,broken", "systemTags": "b, c",
        "loadBalancerBackendPoolConfigurationType": "nodeip",
        "multipleStandardLoadBalancerConfigurations": [
            {"name": "one", "primaryVMSet": "pool1", "allowServicePlacement": false,
             "serviceLabelSelector": {"matchLabels": {"App": "x", "app": "y"},
                "matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]}]}},
            {"name": "two", "primaryVMSet": "pool2"}],
        "loadBalancerRateLimit": {"cloudProviderRateLimit": true, "cloudProviderRateLimitQPSWrite": 9},
        "podCidrIPv4": ["10.0.0.0/16"], "podCidrIPv6": ["fd00::/48"],
        "auxiliaryTokenProvider": {"vaultName": "v", "secretName": "s"},
        "putVMSSVMBatchSize": -1, "vmssCacheTTLInSeconds": 30, "nsgCacheTTLInSeconds": 0,
        "clusterServiceLoadBalancerHealthProbeMode": "Shared", "disableOutboundSNAT": true,
        "extendedLocationName": "edge", "extendedLocationType": "EdgeZone",
        "cloudProviderBackoffMode": "v2", "preConfiguredBackendPoolLoadBalancerTypes": "",
        "nodeInstanceNotFoundGracePeriodInSeconds": 90
    })))
    .expect("loads");
    assert_eq!(config.unknown_keys(), []);
    assert_eq!(config.warnings().len(), 1, "{:?}", config.warnings());
    assert!(config.keys_without_effect().contains(&"cloudProviderBackoffMode".to_owned()));
    assert_eq!(config.cluster.vm_type, VmType::VmssFlex);
    assert_eq!(config.cluster.vmss_write_batch, 0);
    assert_eq!(config.cluster.not_found_grace, Duration::from_secs(90));
    assert_eq!(config.cluster.pod_cidrs[0].to_string(), "10.0.0.0/16");
    assert_eq!(config.cluster.pod_cidrs[1].length, 48);
    assert_eq!(config.load_balancing.pool_type, BackendPoolType::NodeIp);
    assert_eq!(config.load_balancing.probe_mode, ProbeMode::Shared);
    assert_eq!(config.load_balancing.preconfigured_pools, None);
    assert_eq!(config.tags.apply, map(&[("A", "x=y"), ("b", "2"), ("n", "5")]));
    assert_eq!(config.tags.keep_prefixes, ["b", "c"]);
    let [one, two] = &config.load_balancing.multiple[..] else {
        panic!("two placements");
    };
    assert!(!one.allow_service_placement && two.allow_service_placement);
    let selector = one.service_labels.as_ref().expect("is given");
    assert_eq!(selector.match_labels, map(&[("App", "x"), ("app", "y")]));
    assert_eq!(selector.match_expressions[0].operator, LabelOperator::In);
    let limit = config.rate_limits.by_client["loadBalancerRateLimit"];
    assert_eq!((limit.read_per_second, limit.write_per_second), (3.0, 9.0));
    assert_eq!(config.caches.scale_set, Duration::from_secs(30));
    assert_eq!(config.caches.security_group, Duration::from_secs(120));
}

#[test]
fn defaults_are_those_of_the_go_peers() {
    let config =
        yaml("{subscriptionId: s, resourceGroup: g, location: l, useManagedIdentityExtension: true}").expect("loads");
    assert_eq!(config.cluster.vm_type, VmType::Vmss);
    assert_eq!(config.load_balancing.sku, LoadBalancerSku::Standard);
    assert_eq!(config.load_balancing.maximum_rules, 250);
    assert!(config.load_balancing.exclude_control_plane);
    assert_eq!(config.load_balancing.shared_probe_port, 10256);
    assert_eq!((config.backoff.retries, config.backoff.exponent), (6, 1.5));
    assert_eq!(config.caches.standalone_nodes, Duration::from_secs(900));
    assert_eq!(config.network.subscription_id, "s");
}

#[test]
fn scalars_are_converted_exactly_where_go_converts_them() {
    // Text from numbers and booleans.
    let config = load(&with(json!({"vnetName": 5, "subnetName": true, "routeTableName": 1.5}))).expect("loads");
    assert_eq!(config.network.vnet.as_deref(), Some("5"));
    assert_eq!(config.network.subnet.as_deref(), Some("true"));
    assert_eq!(config.network.route_table.as_deref(), Some("1.5"));
    // A whole number written as a fraction.
    let config = load(&with(json!({"vmCacheTTLInSeconds": 5.0}))).expect("loads");
    assert_eq!(config.caches.vm, Duration::from_secs(5));
    // Null is not set.
    let config = load(&with(json!({"vnetName": null, "vmCacheTTLInSeconds": null}))).expect("loads");
    assert_eq!(config.network.vnet, None);
    assert_eq!(config.caches.vm, Duration::from_secs(60));
    // Nothing else.
    for (key, value, found, expected) in [
        ("useInstanceMetadata", json!("true"), "a string", "true or false"),
        ("useInstanceMetadata", json!(1), "a number", "true or false"),
        ("vmCacheTTLInSeconds", json!("5"), "a string", "a whole number"),
        ("vmCacheTTLInSeconds", json!(5.5), "a fraction", "a whole number"),
        ("vmCacheTTLInSeconds", json!(1e20), "a number", "a whole number"),
        ("vnetName", json!(["a"]), "a list", "a string"),
        ("tagsMap", json!("a=b"), "a string", "a mapping"),
        ("podCidrIPv4", json!("10.0.0.0/8"), "a string", "a list"),
        ("cloudProviderBackoffExponent", json!("2"), "a string", "a number"),
    ] {
        let problem = format!("azure.json: {key}: found {found}, expected {expected}");
        match load(&with(json!({key: value}))) {
            Ok(config) => {
                let warned = config.warnings();
                assert!(
                    warned.len() == 1 && warned[0].starts_with(&format!("{problem}; it has no effect")),
                    "{warned:?}"
                );
            }
            invalid => assert_eq!(problems(invalid), [problem]),
        }
    }
}

#[test]
fn yaml_follows_version_1_1_as_the_go_library_does() {
    let config = yaml(concat!(
        "# comment\nsubscriptionId: s\nresourceGroup: 007\nlocation: l\n",
        "useManagedIdentityExtension: yes\nuseInstanceMetadata: On\nvnetName: no\nvnetName: twice\n"
    ))
    .expect("loads");
    assert!(config.cluster.use_instance_metadata);
    assert_eq!(config.cluster.resource_group.as_str(), "7");
    assert_eq!(config.network.vnet.as_deref(), Some("twice"));
}

#[test]
fn every_problem_is_reported_at_once_with_its_place() {
    let mut value = with(json!({
        "vmType": "vm", "aadClientSecret": {"a": PASSWORD}, "useInstanceMetadata": "yes", "identitySystem": "ldap",
        "cloud": "AzureMoonCloud"
    }));
    let map = value.as_object_mut().expect("is an object");
    map.remove("subscriptionId");
    map.insert("location".to_owned(), json!(""));
    let found = problems(load(&value));
    for expected in [
        "azure.json: identitySystem: unknown value \"ldap\", expected one of azure_ad, adfs",
        "azure.json: useInstanceMetadata: found a string, expected true or false",
        "azure.json: aadClientSecret: found a mapping, expected a string",
        "azure.json: subscriptionId: missing, expected the id of the subscription",
        "azure.json: location: missing, expected the region, such as westeurope",
    ] {
        assert!(found.iter().any(|f| f == expected), "{expected} not in {found:#?}");
    }
    assert!(found.iter().any(|f| f.starts_with("azure.json: cloud: unknown cloud")), "{found:#?}");
    // A switch that cannot be read is off, and so nothing stands for the secret that cannot be read either.
    assert!(found.iter().any(|f| f.starts_with("azure.json: aadClientId: no credentials")), "{found:#?}");
    assert_eq!(found.len(), 7, "{found:#?}");
}

#[test]
fn unknown_keys_are_tolerated_and_warned_about_with_their_path_and_the_nearest_key() {
    let config = load(&with(json!({
        "vnettName": "x", "diskRateLimit": {"cloudProviderRateLimit": true, "burst": 3, "cloudProviderRateLimitQSP": 1}
    })))
    .expect("loads");
    let nodes = config.for_cloud_controllers(LooksAfter { services: false, nodes: true }).expect("starts");
    for started in [config.start_warnings(), config.for_cloud_controllers(SERVICES).expect("starts"), nodes] {
        for line in [
            "unknown key diskRateLimit.burst",
            "unknown key diskRateLimit.cloudProviderRateLimitQSP (the nearest key that exists is \
             diskRateLimit.cloudProviderRateLimitQPS)",
            "unknown key vnettName (the nearest key that exists is vnetName)",
        ] {
            assert!(started.contains(&line.to_owned()), "{line}: {started:#?}");
        }
    }
}

#[test]
fn the_last_spelling_by_bytes_wins_and_is_mentioned() {
    let config = load(&with(json!({"VNETNAME": "upper", "vnetName": "lower"}))).expect("loads");
    assert_eq!(config.network.vnet.as_deref(), Some("lower"));
    assert_eq!(config.warnings().len(), 1);
}

#[test]
fn a_secret_overrides_only_what_it_sets_when_merging() {
    let file = document(&with(json!({
        "tagsMap": {"a": "file", "b": "file"}, "podCidrIPv4": ["10.0.0.0/8", "10.1.0.0/16"],
        "diskRateLimit": {"cloudProviderRateLimit": true, "cloudProviderRateLimitQPS": 4}
    })));
    let secret = Document::parse(
        "secret kube-system/azure-cloud-provider",
        b"VnetName: other\nlocation: null\ntagsMap: {b: secret}\npodCidrIPv4: [10.2.0.0/16]\n\
          diskRateLimit: {cloudProviderRateLimitBucket: 8}\nsubnetName: [1]\n",
    )
    .expect("parses");
    let variables = BTreeMap::new();
    let environment = Environment::new(&variables);
    let config = Config::from_documents(Some(&file), Some(&secret), &environment).expect("loads");
    assert_eq!(
        config.warnings(),
        ["secret kube-system/azure-cloud-provider: subnetName: found a list, expected a string; it has no effect on \
          volumes"]
    );
    let secret = Document::parse(
        "secret",
        b"VnetName: other\nlocation: null\ntagsMap: {b: secret}\npodCidrIPv4: [10.2.0.0/16]\n\
          diskRateLimit: {cloudProviderRateLimitBucket: 8}\n",
    )
    .expect("parses");
    let config = Config::from_documents(Some(&file), Some(&secret), &environment).expect("loads");
    assert_eq!(config.network.vnet.as_deref(), Some("other"));
    assert_eq!(config.cluster.location, "westus");
    assert_eq!(config.tags.apply, map(&[("a", "file"), ("b", "secret")]));
    assert_eq!(config.cluster.pod_cidrs.len(), 1);
    let limit = config.rate_limits.by_client["diskRateLimit"];
    assert!(limit.enabled);
    assert_eq!((limit.read_per_second, limit.read_burst), (4.0, 8));
}

#[test]
fn cloud_config_type_decides_which_documents_count() {
    let secret = document(&with(json!({"vnetName": "of-the-secret"})));
    let variables = BTreeMap::new();
    let environment = Environment::new(&variables);
    let vnet = |config_type: &str, secret: Option<&Document>| {
        let file = document(&with(json!({"cloudConfigType": config_type, "subnetName": "of-the-file"})));
        Config::from_documents(Some(&file), secret, &environment)
            .map(|config| (config.network.vnet, config.network.subnet))
    };
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(vnet("file", Some(&secret)).expect("loads"), (some("k8s-vnet"), some("of-the-file")));
    assert_eq!(vnet("SECRET", Some(&secret)).expect("loads"), (some("of-the-secret"), some("k8s-subnet")));
    assert_eq!(vnet("merge", None).expect("loads"), (some("k8s-vnet"), some("of-the-file")));
    assert!(matches!(vnet("secret", None), Err(ConfigError::SecretMissing { .. })));
    assert!(matches!(vnet("both", None), Err(ConfigError::Invalid(_))));
    // A secret alone is enough.
    let config = Config::from_documents(None, Some(&secret), &environment).expect("loads");
    assert_eq!(config.network.vnet.as_deref(), Some("of-the-secret"));
}

/// The problem of a Secret, by the key that it names, or none.
fn secret_on_file(file: Option<Value>, secret: &Value, variables: &[(&str, &str)]) -> Option<String> {
    let file = file.map(|file| document(&file));
    let secret = Document::parse("secret kube-system/azure-cloud-provider", secret.to_string().as_bytes()).unwrap();
    let variables = map(variables);
    let mut found = match Config::from_documents(file.as_ref(), Some(&secret), &Environment::new(&variables)) {
        Ok(_) => return None,
        Err(ConfigError::Invalid(problems)) => problems.0,
        Err(error) => panic!("{error}"),
    };
    let problem = found.pop().unwrap();
    assert!(found.is_empty(), "{found:?}");
    let text = problem.to_string();
    assert!(text.starts_with("secret kube-system/azure-cloud-provider: ") && !text.contains(PASSWORD), "{text}");
    assert!(text.contains("aadClientSecret of its own"), "{text}");
    Some(problem.key)
}

#[test]
fn a_secret_that_changes_where_the_credential_goes_brings_its_own() {
    let endpoint = json!({"resourceManagerEndpoint": "https://management.attacker.example"});
    let china = json!({"cloud": "AzureChinaCloud"});
    let and = |secret: &Value, more: Value| {
        let mut secret = secret.clone();
        secret.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        secret
    };
    let own = json!({"aadClientId": "c", "aadClientSecret": "its-own"});
    let managed = json!({"useManagedIdentityExtension": true});
    let federated = [("AZURE_FEDERATED_TOKEN_FILE", "/var/run/token"), ("AZURE_CLIENT_ID", "c")];
    for (changes, key) in [(&endpoint, "resourceManagerEndpoint"), (&china, "cloud")] {
        let refused = Some(key.to_owned());
        let file = || Some(azure_json_of_2017());
        assert_eq!(secret_on_file(file(), changes, &[]), refused);
        assert_eq!(secret_on_file(file(), &and(changes, json!({"tenantId": "t", "aadClientId": "x"})), &[]), refused);
        assert_eq!(secret_on_file(file(), &and(changes, managed.clone()), &[]), refused);
        assert_eq!(secret_on_file(Some(with(managed.clone())), &and(changes, own.clone()), &[]), refused);
        assert_eq!(secret_on_file(file(), &and(changes, own.clone()), &federated), refused);
        assert_eq!(secret_on_file(file(), &and(changes, own.clone()), &[("AZURE_CLIENT_SECRET", "s")]), refused);
        assert_eq!(secret_on_file(file(), &and(changes, own.clone()), &[]), None);
    }
    // The file's own endpoint, unset or said again in other words.
    let private = with(json!({"resourceManagerEndpoint": "https://rm.example"}));
    for (secret, refused) in [
        (json!({"resourceManagerEndpoint": ""}), true),
        (json!({"ResourceManagerEndpoint": "https://RM.example/", "cloud": "AZURECLOUD"}), false),
        (json!({"vnetName": "v"}), false),
    ] {
        let key = refused.then(|| "resourceManagerEndpoint".to_owned());
        assert_eq!(secret_on_file(Some(private.clone()), &secret, &[]), key, "{secret}");
    }
    assert_eq!(secret_on_file(Some(azure_json_of_2017()), &json!({"cloud": "azurecloud"}), &[]), None);
    // A Secret without a file overrides no other cloud, but its endpoint still needs its own credential.
    let alone = json!({"subscriptionId": "s", "resourceGroup": "g", "location": "l", "tenantId": "t"});
    let alone = |more: &Value| and(&alone, more.clone());
    assert_eq!(secret_on_file(None, &and(&alone(&managed), china.clone()), &[]), None);
    assert_eq!(secret_on_file(None, &and(&alone(&own), endpoint.clone()), &[]), None);
    let refused = Some("resourceManagerEndpoint".to_owned());
    assert_eq!(secret_on_file(None, &and(&alone(&managed), endpoint.clone()), &[]), refused);
    assert_eq!(secret_on_file(None, &and(&alone(&own), endpoint.clone()), &federated), refused);
}

#[test]
fn credentials_are_chosen_in_the_order_of_the_go_peers() {
    let federated = |client: &str, file: &str| Credential::FederatedToken {
        tenant_id: TENANT.to_owned(),
        client_id: client.to_owned(),
        token_file: file.into(),
    };
    let machine = |identity| Credential::ManagedIdentity(identity);
    let arm_id = "/Subscriptions/s/resourceGroups/g/providers/Microsoft.ManagedIdentity/userAssignedIdentities/i";
    for (name, changes, variables, expected) in [
        (
            "federated before managed",
            json!({"useFederatedWorkloadIdentityExtension": true, "aadFederatedTokenFile": "/t",
                   "useManagedIdentityExtension": true}),
            &[][..],
            federated("client-1", "/t"),
        ),
        (
            "variable switches federation on",
            json!({"useManagedIdentityExtension": true}),
            &[("AZURE_FEDERATED_TOKEN_FILE", "/env"), ("AZURE_CLIENT_ID", "client-2")],
            federated("client-2", "/env"),
        ),
        (
            "managed before secret",
            json!({"useManagedIdentityExtension": true}),
            &[],
            machine(ManagedIdentity::SystemAssigned),
        ),
        (
            "user-assigned by client id",
            json!({"useManagedIdentityExtension": true, "userAssignedIdentityID": "id"}),
            &[],
            machine(ManagedIdentity::ClientId("id".to_owned())),
        ),
        (
            "user-assigned by ARM id",
            json!({"useManagedIdentityExtension": true, "userAssignedIdentityID": arm_id}),
            &[],
            machine(ManagedIdentity::ResourceId(arm_id.to_owned())),
        ),
        (
            "msi stands for managed identity",
            json!({"aadClientId": "msi", "aadClientSecret": "MSI", "userAssignedIdentityID": "id"}),
            &[],
            machine(ManagedIdentity::ClientId("id".to_owned())),
        ),
        (
            "secret before certificate",
            json!({"aadClientCertPath": "/c.pfx"}),
            &[("AZURE_CLIENT_SECRET", "other")],
            Credential::ClientSecret {
                tenant_id: TENANT.to_owned(),
                client_id: "client-1".to_owned(),
                secret: Secret::new("other"),
            },
        ),
        (
            "certificate",
            json!({"aadClientSecret": "", "aadClientCertPath": "/c.pfx", "aadClientCertPassword": "p"}),
            &[],
            Credential::ClientCertificate {
                tenant_id: TENANT.to_owned(),
                client_id: "client-1".to_owned(),
                path: "/c.pfx".into(),
                password: Some(Secret::new("p")),
            },
        ),
        ("none, for a node", json!({"aadClientId": "", "aadClientSecret": ""}), &[], Credential::Absent),
    ] {
        let config = load_with(&with(changes), variables).expect(name);
        assert_eq!(config.credential, expected, "{name}");
    }
}

#[test]
fn a_credential_that_cannot_work_stops_the_start_and_says_why() {
    let none = json!({"aadClientId": "", "aadClientSecret": ""});
    let and = |extra: Value| {
        let mut all = none.clone();
        let map = all.as_object_mut().expect("is an object");
        map.extend(extra.as_object().expect("is an object").clone());
        problems(load(&with(all)))
    };
    let found = and(json!({"aadClientCertPath": "/c.pfx", "aadClientCertPassword": PASSWORD}));
    assert_eq!(found.len(), 1);
    assert!(found[0].contains("aadClientId: missing, expected the client id"), "{found:?}");
    let found = and(json!({"aadMSIDataPlaneIdentityPath": "/i.json"}));
    assert!(found[0].contains("aadMSIDataPlaneIdentityPath") && found[0].contains("aadClientCertPath"), "{found:?}");
    let found = and(json!({"useInstanceMetadata": false}));
    assert!(found[0].contains("no credentials"), "{found:?}");
    let found = and(json!({"useFederatedWorkloadIdentityExtension": true, "tenantId": ""}));
    let keys: Vec<_> = found.iter().map(|f| f.split(": ").nth(1)).collect();
    assert_eq!(keys, [Some("aadFederatedTokenFile"), Some("tenantId"), Some("aadClientId")]);
}

#[test]
fn variables_win_over_the_documents_unless_empty() {
    let config = load_with(
        &azure_json_of_2017(),
        &[("AZURE_TENANT_ID", "t"), ("AZURE_CLIENT_ID", ""), ("AZURE_CLIENT_SECRET", "s")],
    )
    .expect("loads");
    assert_eq!(
        config.credential,
        Credential::ClientSecret {
            tenant_id: "t".to_owned(),
            client_id: "client-1".to_owned(),
            secret: Secret::new("s"),
        }
    );
    assert_eq!(config.tenant_id.as_deref(), Some("t"));
}

#[test]
fn no_form_of_output_shows_a_secret() {
    let file = document(&with(json!({
        "aadClientCertPassword": PASSWORD, "vmType": [PASSWORD], "tagsMap": PASSWORD,
        "resourceManagerEndpoint": format!("https://user:{PASSWORD}@host/"),
        "useInstanceMetadata": PASSWORD, "podCidrIPv4": {"a": PASSWORD}
    })));
    let variables = map(&[("AZURE_CLIENT_SECRET", PASSWORD)]);
    let environment = Environment::new(&variables);
    let error = Config::from_documents(Some(&file), None, &environment).expect_err("has problems");
    let config = load_with(&azure_json_of_2017(), &[("AZURE_CLIENT_SECRET", PASSWORD)]).expect("loads");
    let secret = Secret::new(PASSWORD);
    let mut shown = vec![
        format!("{error} {error:?} {error:#?}"),
        format!("{file:?} {environment:?} {config:?} {config:#?}"),
        format!("{secret} {secret:?}"),
        serde_json::to_string(&config).expect("serialises"),
        serde_json::to_string(&secret).expect("serialises"),
    ];
    for broken in [
        format!("{{\"aadClientSecret\": \"{PASSWORD}\", }} x"),
        format!("aadClientSecret: {PASSWORD}\n\tx: [\n"),
        format!("aadClientSecret: \"{PASSWORD}"),
        format!("aadClientSecret: *{PASSWORD}"),
        format!("- {PASSWORD}"),
        PASSWORD.to_owned(),
    ] {
        let error = Document::parse("azure.json", broken.as_bytes()).expect_err("is broken");
        shown.push(format!("{error} {error:?}"));
    }
    for text in &shown {
        assert!(!text.contains("hunter2"), "{text}");
    }
    assert!(shown[1].contains(REDACTED) && shown[3].contains(REDACTED));
}

#[test]
fn a_broken_document_names_its_place() {
    let error = Document::parse("azure.json", b"{\n\"a\": 1,\n\"b\" 2}").expect_err("is broken");
    assert_eq!(error.to_string(), "the cloud configuration azure.json is not valid JSON: line 3, column 5");
    let error = Document::parse("azure.json", b"[1]").expect_err("is a list");
    assert!(error.to_string().contains("not a mapping"));
    assert!(Document::parse("x", &[0xff, 0xfe]).is_err());
    assert!(matches!(Document::parse("x", &vec![b' '; MAX_BYTES + 1]), Err(ConfigError::TooLarge { .. })));
    let error = Document::read("/does/not/exist".as_ref()).expect_err("is absent");
    assert_eq!(error.to_string(), "cannot read the cloud configuration /does/not/exist");
}

#[test]
fn the_path_is_the_flag_then_the_variable_then_the_default() {
    let variables = map(&[(PATH_VARIABLE, "/from/variable")]);
    assert_eq!(path(Some("/flag".into()), &variables), PathBuf::from("/flag"));
    assert_eq!(path(None, &variables), PathBuf::from("/from/variable"));
    assert_eq!(path(None, &map(&[(PATH_VARIABLE, "")])), PathBuf::from(DEFAULT_PATH));
}

#[test]
fn the_endpoint_file_is_read_only_when_a_variable_names_it() {
    assert!(matches!(read_endpoint_file(&map(&[])), Ok(None)));
    let absent = map(&[(ENDPOINT_FILE_VARIABLE, "/does/not/exist")]);
    let error = read_endpoint_file(&absent).expect_err("is absent");
    assert!(error.to_string().contains("/does/not/exist"));
}

#[test]
fn resource_groups_compare_without_letter_case_and_keep_their_spelling() {
    let (one, other) = (ResourceGroup::new("MyGroup"), ResourceGroup::new("mygroup"));
    assert_eq!(one, other);
    assert_eq!(one.to_string(), "MyGroup");
    assert_eq!(std::collections::BTreeSet::from([one, other]).len(), 1);
}

#[test]
fn keys_that_are_read_and_change_nothing_are_told_apart_from_those_that_nobody_knows() {
    let value = with(json!({
        "cloudProviderBackoff": true, "CloudProviderRateLimitQPS": 3, "vmCacheTTLInSeconds": 60,
        "auxiliaryTokenProvider": {"vaultName": "v"}, "userAgent": "team/1", "nonsense": 1, "routeTableName": null,
    }));
    let config = load(&value).expect("loads");
    let told = config.keys_without_effect();
    for key in ["cloudProviderBackoff", "cloudProviderRateLimitQPS", "vmCacheTTLInSeconds", "auxiliaryTokenProvider"] {
        assert!(told.contains(&key.to_owned()), "{key}: {told:?}");
    }
    for key in ["userAgent", "nonsense", "routeTableName", "subscriptionId"] {
        assert!(!told.contains(&key.to_owned()), "{key}: {told:?}");
    }
    assert_eq!(config.unknown_keys(), [UnknownKey { key: "nonsense".to_owned(), nearest: None }]);
}

#[test]
fn a_setting_without_effect_never_stops_the_start_and_is_told_once() {
    for (changes, told) in [
        (json!({"vmType": "vmss"}), None),
        (json!({"vmType": "vmpool"}), Some("azure.json: vmType: unknown value \"vmpool\"")),
        (json!({"loadBalancerSku": "gateway"}), Some("azure.json: loadBalancerSku: unknown value")),
        (
            json!({"loadBalancerSku": "basic", "disableOutboundSNAT": true}),
            Some("disableOutboundSNAT: can be true only"),
        ),
        (json!({"serviceGatewayEnabled": true}), Some("serviceGatewayEnabled")),
        (
            json!({"multipleStandardLoadBalancerConfigurations": [{"name": "x"}]}),
            Some("multipleStandardLoadBalancerConfigurations[0].primaryVMSet: missing"),
        ),
        (json!({"podCidrIPv4": ["ten"]}), Some("podCidrIPv4: \"ten\" is not an address prefix")),
        (json!({"clusterServiceSharedLoadBalancerHealthProbePort": 70_000}), Some("is outside the range")),
        (json!({"vmssCacheTTLInSeconds": []}), Some("vmssCacheTTLInSeconds: found a list")),
        (json!({"diskRateLimit": {"cloudProviderRateLimitQPS": "3"}}), Some("diskRateLimit.cloudProviderRateLimitQPS")),
        (json!({"auxiliaryTokenProvider": "vault"}), Some("auxiliaryTokenProvider: found a string")),
    ] {
        let config = load(&with(changes.clone())).unwrap_or_else(|error| panic!("{changes}: {error}"));
        let warnings = config.start_warnings();
        for key in changes.as_object().expect("is an object").keys() {
            let mut lines = warnings.iter().filter(|warning| warning.starts_with("without effect in this version: "));
            let is_theirs = is_of_cloud_controllers(key);
            assert_eq!(lines.any(|line| line.contains(key.as_str())), !is_theirs, "{key}: {warnings:#?}");
            assert_eq!(config.keys_of_cloud_controllers().contains(&key.as_str()), is_theirs, "{key}");
        }
        if let Some(told) = told {
            assert!(config.warnings().iter().any(|warning| warning.contains(told)), "{told}: {warnings:#?}");
        }
    }
    // What this version uses stays an error, also beside what it does not use.
    for (changes, key) in [
        (json!({"vmType": "vmpool", "cloud": "AzureMoonCloud"}), "cloud"),
        (json!({"vmType": "vmpool", "useManagedIdentityExtension": "yes"}), "useManagedIdentityExtension"),
        (json!({"vmType": "vmpool", "location": []}), "location"),
    ] {
        let found = problems(load(&with(changes)));
        assert!(found.len() == 1 && found[0].starts_with(&format!("azure.json: {key}: ")), "{found:?}");
    }
}

#[test]
fn the_cloud_controllers_refuse_wrong_values_that_the_disk_driver_only_warns_about() {
    let good = load(&with(json!({"vnetName": "net", "securityGroupName": "nsg", "routeTableName": "routes"}))).unwrap();
    for looks_after in [SERVICES, LooksAfter { services: false, nodes: true }] {
        let warnings = good.for_cloud_controllers(looks_after).unwrap().join("; ");
        for key in ["vnetName", "securityGroupName", "routeTableName"] {
            assert!(!warnings.contains(key), "a controller of this program takes it: {warnings}");
        }
    }
    let wrong = load(&with(json!({"loadBalancerSku": "basicc", "routeUpdateIntervalInSeconds": "often"}))).unwrap();
    let error = wrong.for_cloud_controllers(SERVICES).unwrap_err().to_string();
    assert!(error.contains("loadBalancerSku") && !error.contains("routeUpdate"), "{error}");
}

#[test]
fn the_cloud_controllers_refuse_a_network_of_another_tenant_and_volumes_do_without() {
    let other = "22222222-2222-3333-4444-555555555555";
    let vault = json!({"subscriptionID": "s", "resourceGroup": "g", "vaultName": "v", "secretName": "s"});
    let both =
        load(&with(json!({"networkResourceTenantID": other, "auxiliaryTokenProvider": vault}))).expect("volumes");
    assert!(both.start_warnings().iter().any(|line| line.contains(other) && line.ends_with("no effect on volumes")));
    for looks_after in [(true, false), (false, true), (false, false)] {
        let looks_after = LooksAfter { services: looks_after.0, nodes: looks_after.1 };
        let error = both.for_cloud_controllers(looks_after).unwrap_err().to_string();
        for said in
            ["networkResourceTenantID: \"22222222", TENANT, "not supported", "; azure.json: auxiliaryTokenProvider: "]
        {
            assert!(error.contains(said), "{said}: {error}");
        }
    }
    for own in [json!({"networkResourceTenantID": TENANT.to_uppercase()}), json!({"auxiliaryTokenProvider": vault})] {
        let told = load(&with(own)).expect("loads").for_cloud_controllers(SERVICES).expect("no other tenant");
        assert!(told.iter().any(|line| line.contains("the cluster's own tenant")), "{told:#?}");
    }
}

#[test]
fn an_edge_zone_has_a_name_and_a_type_or_a_warning() {
    let both = load(&with(json!({"extendedLocationName": "edge", "extendedLocationType": "EdgeZone"}))).expect("loads");
    let expected = ExtendedLocation { name: "edge".to_owned(), kind: "EdgeZone".to_owned() };
    assert_eq!(both.cluster.extended_location, Some(expected));
    assert!(!both.start_warnings().join("; ").contains("extendedLocation"));
    assert!(!both.for_cloud_controllers(SERVICES).unwrap().join("; ").contains("extendedLocation"));
    for half in [json!({"extendedLocationName": "edge"}), json!({"extendedLocationType": "EdgeZone"})] {
        let half = load(&with(half)).expect("loads");
        assert_eq!(half.cluster.extended_location, None);
        assert!(half.start_warnings().iter().any(|line| line.contains("has no effect without extendedLocation")));
    }
}

#[test]
fn services_are_not_served_by_halves_where_the_configuration_asks_for_a_service_gateway() {
    for (key, value) in [
        ("serviceGatewayEnabled", json!(true)),
        ("loadBalancerSku", json!("service")),
        ("loadBalancerBackendPoolConfigurationType", json!("podIP")),
    ] {
        let config = load(&with(json!({ key: value }))).expect("the disk driver does not care");
        let error = config.for_cloud_controllers(SERVICES).unwrap_err().to_string();
        assert!(error.contains(&format!("azure.json: {key}: ")) && error.contains("not supported"), "{error}");
        config.for_cloud_controllers(LooksAfter { services: false, nodes: true }).expect("neither do Nodes");
    }
    let off = load(&with(json!({"serviceGatewayEnabled": false}))).unwrap();
    assert!(!off.for_cloud_controllers(SERVICES).unwrap().join("; ").contains("serviceGatewayEnabled"));
}

#[test]
fn a_key_that_means_nothing_to_the_cloud_controllers_is_named_with_the_reason() {
    let config = load(&with(json!({
        "cloudProviderRateLimit": true, "loadBalancerRateLimit": {"cloudProviderRateLimit": true},
        "vmCacheTTLInSeconds": 60, "nsgCacheTTLInSeconds": 60, "cloudProviderBackoffMode": "v2",
        "snapshotRateLimit": {"cloudProviderRateLimit": true}, "vmType": "standard", "disableCloudProvider": false,
        "routeUpdateIntervalInSeconds": 5, "auxiliaryTokenProvider": {"vaultName": "v"},
    })))
    .unwrap();
    let told = config.for_cloud_controllers(SERVICES).unwrap();
    let line = |text: &str| told.iter().find(|line| line.contains(text)).unwrap_or_else(|| panic!("{text}: {told:#?}"));
    assert!(line("nsgCacheTTLInSeconds, vmCacheTTLInSeconds").contains("it is read again"));
    assert!(line("cloudProviderBackoffMode").contains("does not have it any more"));
    assert!(line("snapshotRateLimit").contains("no such requests"));
    assert!(line("vmType").contains("machines of every kind"));
    let nodes = config.for_cloud_controllers(LooksAfter { services: false, nodes: true }).unwrap().join("; ");
    assert!(!nodes.contains("routeUpdate") && !nodes.contains("disableCloudProvider"), "{nodes}");
    assert_eq!(config.network.route_update_interval, Some(Duration::from_secs(5)));
    assert!(line("auxiliaryTokenProvider").contains("the network is in the cluster's own tenant"));
    let is_named = |key: &str| told.iter().any(|line| line.starts_with("without effect") && line.contains(key));
    assert!(!is_named("loadBalancerRateLimit") && !is_named("cloudProviderRateLimit"), "{told:#?}");
    let wrong = load(&with(json!({"loadBalancerRateLimit": {"cloudProviderRateLimitQPS": "3"}}))).unwrap();
    assert!(
        wrong
            .for_cloud_controllers(SERVICES)
            .unwrap_err()
            .to_string()
            .contains("loadBalancerRateLimit.cloudProviderRateLimitQPS")
    );
}

#[test]
fn a_byte_order_mark_is_skipped_and_spoken_of() {
    let text = azure_json_of_2017().to_string();
    let read = |text: &str| {
        let file = Document::parse("azure.json", text.as_bytes()).unwrap();
        Config::from_documents(Some(&file), None, &Environment::new(&BTreeMap::new())).unwrap()
    };
    let (plain, marked) = (read(&text), read(&format!("\u{feff}{text}")));
    let of_mark = |config: &Config| config.warnings().iter().any(|warning| warning.contains("byte order mark"));
    assert_eq!((of_mark(&plain), of_mark(&marked)), (false, true));
    assert_eq!(plain.cluster, marked.cluster);
}
