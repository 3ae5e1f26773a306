//! Which cloud the configuration names, and the endpoints of it.

use url::Url;

use super::*;

fn known(value: &Value, endpoint_file: Option<&str>) -> Result<Cloud, Vec<String>> {
    let variables = BTreeMap::new();
    let mut environment = Environment::new(&variables);
    if let Some(text) = endpoint_file {
        environment = environment.with_endpoint_file("/env.json", text);
    }
    match Config::from_documents(Some(&document(value)), None, &environment) {
        Ok(Config { cloud: CloudSource::Known(cloud), .. }) => Ok(cloud),
        Ok(config) => panic!("unexpected {:?}", config.cloud),
        Err(ConfigError::Invalid(found)) => Err(found.0.iter().map(Problem::to_string).collect()),
        Err(error) => panic!("unexpected {error}"),
    }
}

#[test]
fn well_known_clouds_are_found_by_name_in_any_case() {
    for (name, resource_manager, login, suffix) in [
        ("", "management.azure.com", "login.microsoftonline.com", "core.windows.net"),
        ("AZURECLOUD", "management.azure.com", "login.microsoftonline.com", "core.windows.net"),
        ("azurechinacloud", "management.chinacloudapi.cn", "login.chinacloudapi.cn", "core.chinacloudapi.cn"),
        ("AzureUSGovernment", "management.usgovcloudapi.net", "login.microsoftonline.us", "core.usgovcloudapi.net"),
    ] {
        let cloud = known(&with(json!({"cloud": name})), None).expect(name);
        assert_eq!(cloud.resource_manager.host_str(), Some(resource_manager));
        assert_eq!(cloud.login.host_str(), Some(login));
        assert_eq!(cloud.storage_suffix, suffix);
    }
    let found = known(&with(json!({"cloud": "AzureGermanCloud"})), None).expect_err("is gone");
    assert!(found[0].contains("AzurePublicCloud, AzureChinaCloud, AzureUSGovernmentCloud"), "{found:?}");
}

const STACK: &str = r#"{"name": "AzureStackCloud", "managementPortalURL": "https://portal.local.azurestack.external/",
    "serviceManagementEndpoint": "https://management.adfs.azurestack.local/guid",
    "resourceManagerEndpoint": "https://management.local.azurestack.external/",
    "activeDirectoryEndpoint": "https://adfs.local.azurestack.external/adfs/",
    "storageEndpointSuffix": "local.azurestack.external", "tokenAudience": "https://management.adfs/x",
    "keyVaultDNSSuffix": "vault.local", "resourceIdentifiers": {"graph": "N/A"}}"#;

#[test]
fn azure_stack_comes_from_the_endpoint_file() {
    let value = with(json!({"cloud": "AzureStackCloud", "identitySystem": "ADFS"}));
    let cloud = known(&value, Some(STACK)).expect("is complete");
    assert_eq!(cloud.resource_manager.as_str(), "https://management.local.azurestack.external/");
    assert_eq!(cloud.login.as_str(), "https://adfs.local.azurestack.external/");
    assert_eq!(cloud.audiences, ["https://management.adfs/x"]);
    assert_eq!(cloud.storage_suffix, "local.azurestack.external");
    assert!(load(&value).is_err(), "without the file there are no endpoints");
    let found = known(&value, Some("{}")).expect_err("is incomplete");
    assert!(found[0].contains("resourceManagerEndpoint"), "{found:?}");
    let found = known(&value, Some("no json")).expect_err("is broken");
    assert!(found[0].contains("/env.json"), "{found:?}");
}

#[test]
fn the_endpoint_file_overrides_a_well_known_cloud_in_part() {
    let text =
        r#"{"activeDirectoryEndpoint": "https://login.example/", "resourceManagerEndpoint": "https://rm.example/"}"#;
    let cloud = known(&azure_json_of_2017(), Some(text)).expect("loads");
    assert_eq!(cloud.login.as_str(), "https://login.example/");
    // Without its audience the resource manager is not taken.
    assert_eq!(cloud.resource_manager.as_str(), "https://management.azure.com/");
}

#[test]
fn a_resource_manager_endpoint_asks_for_discovery() {
    let value = with(json!({"cloud": "AZURESTACKCLOUD",
        "resourceManagerEndpoint": "https://management.local.azurestack.external"}));
    let config = load(&value).expect("loads");
    assert!(config.is_stack_cloud);
    let CloudSource::Discover(discovery) = config.cloud else {
        panic!("is to be discovered");
    };
    assert_eq!(discovery.resource_manager.as_str(), "https://management.local.azurestack.external/");
    let cloud = discovery
        .finish(
            r#"{"galleryEndpoint": "https://g/", "graphEndpoint": "https://graph/",
            "portalEndpoint": "https://portal/", "authentication": {
            "loginEndpoint": "https://login.windows.net/", "audiences": ["https://management.stack/guid"]}}"#,
        )
        .expect("is the form of Azure Stack Hub");
    assert_eq!(cloud.name, "AZURESTACKCLOUD");
    assert_eq!(cloud.storage_suffix, "local.azurestack.external");
    assert_eq!(cloud.audiences, ["https://management.stack/guid"]);
    let disabled = with(json!({"cloud": "AZURESTACKCLOUD", "disableAzureStackCloud": true,
        "resourceManagerEndpoint": "https://rm.example"}));
    assert!(!load(&disabled).expect("loads").is_stack_cloud);
}

#[test]
fn a_resource_manager_without_a_domain_is_asked_for_the_storage_services_too() {
    let discovery = |endpoint: &str, file: &str| {
        let value = with(json!({"cloud": "AzurePublicCloud", "resourceManagerEndpoint": endpoint}));
        let variables = BTreeMap::new();
        let environment = Environment::new(&variables).with_endpoint_file("/env.json", file);
        match Config::from_documents(Some(&document(&value)), None, &environment).expect("loads").cloud {
            CloudSource::Discover(discovery) => discovery,
            CloudSource::Known(_) => panic!("is to be discovered"),
        }
    };
    let stamp = discovery("https://management.local.azurestack.external", "{}");
    assert_eq!(stamp.api_version_of_storage(), None);
    let told = discovery("https://127.0.0.1:8443", r#"{"storageEndpointSuffix": "s"}"#);
    assert_eq!(told.api_version_of_storage(), None);
    assert!(discovery("http://localhost:8181", "{}").api_version_of_storage().is_some());
    let address = discovery("http://127.0.0.1:8181", "{}");
    assert!(address.api_version_of_storage().is_some());
    let old =
        r#"{"authentication": {"loginEndpoint": "http://127.0.0.1:8181/", "audiences": ["http://127.0.0.1:8181/"]}}"#;
    let cloud = address.finish(old).expect("is the form of Azure Stack Hub");
    assert_eq!(cloud.storage_suffix, "127.0.0.1");
    let new = r#"{"authentication": {"loginEndpoint": "http://127.0.0.1:8181", "audiences": ["https://management.azure.com/"]},
        "suffixes": {"storage": "127.0.0.1:8443"}}"#;
    let found = address.with_storage(cloud.clone(), new);
    assert_eq!(found, Cloud { storage_suffix: "127.0.0.1:8443".to_owned(), ..cloud.clone() }, "and nothing else");
    assert_eq!(address.with_storage(cloud.clone(), "{}"), cloud);
}

#[test]
fn a_private_resource_manager_gets_no_token_for_azures_own_services() {
    let asked = |endpoint: &str, audiences: Value| {
        let config = load(&with(json!({"resourceManagerEndpoint": endpoint}))).expect("loads");
        let CloudSource::Discover(discovery) = config.cloud else { panic!("is to be discovered") };
        let answer = json!({"authentication": {"loginEndpoint": "https://login.microsoftonline.com/",
            "audiences": audiences}, "suffixes": {"storage": "s"}});
        discovery.finish(&answer.to_string()).map(|cloud| cloud.audiences)
    };
    let azure = "https://management.azure.com/";
    for endpoint in ["https://management.attacker.example", "https://evilmanagement.azure.com.example"] {
        for audience in [azure, "https://storage.azure.com/", "797f4846-ba00-4fd7-ba43-dac1f8f63013"] {
            let error = asked(endpoint, json!([audience])).expect_err(audience);
            assert!(error.to_string().contains(audience), "{error}");
        }
        let own = "https://management.attacker.example/x";
        assert_eq!(asked(endpoint, json!([azure, own])), Ok(vec![own.to_owned()]));
    }
    for endpoint in [azure, "https://westeurope.management.azure.com/"] {
        assert_eq!(asked(endpoint, json!([azure])), Ok(vec![azure.to_owned()]));
    }
    // The endpoint file names both, and only together.
    let file = |audience: &str| {
        json!({"resourceManagerEndpoint": "https://rm.example/", "tokenAudience": audience,
            "activeDirectoryEndpoint": "https://login.example/", "storageEndpointSuffix": "s"})
        .to_string()
    };
    for cloud in ["AzurePublicCloud", "AzureStackCloud"] {
        let value = with(json!({"cloud": cloud}));
        let found = known(&value, Some(&file(azure))).expect_err(cloud);
        assert!(found.len() == 1 && found[0].contains("AZURE_ENVIRONMENT_FILEPATH"), "{found:?}");
        assert_eq!(known(&value, Some(&file("https://rm.example/"))).expect(cloud).audiences, ["https://rm.example/"]);
    }
}

#[test]
fn metadata_in_array_form_is_picked_by_host() {
    let asked = Url::parse("https://management.chinacloudapi.cn").expect("is a URL");
    let entry = |name: &str, resource_manager: &str, suffix: &str| {
        json!({"name": name, "resourceManager": resource_manager, "suffixes": {"storage": suffix},
            "authentication": {"loginEndpoint": "https://login.example", "audiences": ["a", "b"]}})
    };
    let both = json!([
        entry("AzureCloud", "https://management.azure.com/", "core.windows.net"),
        entry("AzureChinaCloud", "https://management.chinacloudapi.cn/", "core.chinacloudapi.cn")
    ]);
    let cloud = Cloud::from_metadata(&both.to_string(), &asked).expect("is listed");
    assert_eq!((cloud.name.as_str(), cloud.storage_suffix.as_str()), ("AzureChinaCloud", "core.chinacloudapi.cn"));
    assert_eq!(cloud.audiences, ["a", "b"]);
    let other = Url::parse("https://elsewhere.example").expect("is a URL");
    assert_eq!(
        Cloud::from_metadata(&both.to_string(), &other),
        Err(CloudError::NotListed { count: 2, host: "elsewhere.example".to_owned() })
    );
    for (json, problem) in [
        ("[]", "names 0 clouds"),
        ("nonsense", "not JSON"),
        ("7", "neither an object nor an array"),
        (r#"{"authentication": {"audiences": ["a"]}}"#, "loginEndpoint"),
        (r#"{"authentication": {"loginEndpoint": "https://l", "audiences": []}}"#, "audiences"),
        (r#"{"authentication": {"loginEndpoint": "http://evil", "audiences": ["a"]}}"#, "loginEndpoint"),
    ] {
        let error = Cloud::from_metadata(json, &asked).expect_err(json);
        assert!(error.to_string().contains(problem), "{error}");
    }
}

#[test]
fn clear_text_is_allowed_to_loopback_hosts_only() {
    for text in [
        "https://management.azure.com",
        "http://127.0.0.1:8080",
        "http://127.9.9.9",
        "http://[::1]:1",
        "http://localhost:1",
        "http://arm.localhost",
    ] {
        assert!(check_endpoint(text).is_ok(), "{text}");
    }
    for (text, reason) in [
        ("http://management.azure.com", "credentials travel over https only"),
        ("http://127.0.0.1.example", "credentials travel over https only"),
        ("http://0.0.0.0", "credentials travel over https only"),
        ("http://192.168.0.1", "credentials travel over https only"),
        ("ftp://host", "has scheme ftp"),
        ("management.azure.com", "is not an absolute https URL"),
        ("unix:/x", "is not an absolute https URL"),
        ("https://user@host", "contains a user name or password"),
    ] {
        let error = check_endpoint(text).expect_err(text);
        assert!(error.to_string().contains(reason), "{text}: {error}");
    }
    let found = problems(load(&with(json!({"resourceManagerEndpoint": "http://azure.example"}))));
    assert_eq!(
        found,
        ["azure.json: resourceManagerEndpoint: uses http with host azure.example: credentials travel \
          over https only, except to a loopback host"]
    );
}

#[test]
fn a_file_redirects_no_credential_of_the_secret_unless_an_argument_names_the_endpoint() {
    let evil = "https://rm.attacker.example";
    let password = json!({"aadClientSecret": "of-the-secret"});
    let merged = |file: Value, secret: &Value, endpoint_file: Option<&str>, trusted: &[&str]| {
        let (variables, trusted) =
            (BTreeMap::new(), trusted.iter().map(|url| url.parse().unwrap()).collect::<Vec<Url>>());
        let mut environment = Environment::new(&variables).with_trusted_endpoints(&trusted);
        if let Some(text) = endpoint_file {
            environment = environment.with_endpoint_file("/endpoints.json", text);
        }
        let secret = Document::parse("secret kube-system/azure-cloud-provider", secret.to_string().as_bytes()).unwrap();
        Config::from_documents(Some(&document(&file)), Some(&secret), &environment).map(|_| ())
    };
    let to = |endpoint: &str| with(json!({"resourceManagerEndpoint": endpoint, "aadClientSecret": ""}));
    let refused = |outcome: Result<(), ConfigError>| match outcome {
        Err(ConfigError::Invalid(Problems(found))) => {
            found.iter().map(Problem::to_string).collect::<Vec<_>>().join("; ")
        }
        other => panic!("{other:?}"),
    };

    let error = refused(merged(to(evil), &password, None, &[]));
    for said in [
        "azure.json: resourceManagerEndpoint: https://rm.attacker.example would get the aadClientSecret of secret",
        "--trusted-endpoint=https://rm.attacker.example",
    ] {
        assert!(error.contains(said) && !error.contains("of-the-secret"), "{error}");
    }
    for lookalike in ["https://management.azure.com.attacker.example", "https://management.azure.com:8443"] {
        assert!(refused(merged(to(lookalike), &password, None, &["https://rm.attacker.example"])).contains(lookalike));
    }
    // An argument names it, the Secret does, or it is Microsoft's.
    merged(to(evil), &password, None, &["https://rm.attacker.example/"]).expect("an argument names it");
    for microsofts in ["https://management.azure.com/", "https://westeurope.management.azure.com"] {
        merged(to(microsofts), &password, None, &[]).expect(microsofts);
    }
    for cloud in ["AzurePublicCloud", "AzureChinaCloud", "AzureUSGovernmentCloud"] {
        merged(with(json!({"cloud": cloud})), &password, None, &[]).expect(cloud);
    }
    let both = json!({"aadClientSecret": "of-the-secret", "resourceManagerEndpoint": evil});
    merged(to(evil), &both, None, &[]).expect("the Secret names it");
    // The file's own password is the file's business.
    merged(with(json!({"resourceManagerEndpoint": evil})), &json!({}), None, &[]).expect("the file's own");

    // A description of endpoints is a file too.
    let stack = with(json!({"cloud": "AzureStackCloud", "identitySystem": "ADFS"}));
    let error = refused(merged(stack.clone(), &password, Some(STACK), &[]));
    assert!(
        error.contains("/endpoints.json: AZURE_ENVIRONMENT_FILEPATH: https://adfs.local.azurestack.external"),
        "{error}"
    );
    let (login, manager) = ("https://adfs.local.azurestack.external", "https://management.local.azurestack.external");
    assert!(refused(merged(stack.clone(), &password, Some(STACK), &[login])).contains(manager));
    merged(stack, &password, Some(STACK), &[login, manager]).expect("arguments name both");
    let login = r#"{"activeDirectoryEndpoint": "https://login.attacker.example/"}"#;
    assert!(refused(merged(azure_json_of_2017(), &password, Some(login), &[])).contains("login.attacker.example"));

    // A certificate too, whose path or password the Secret holds.
    for secret in [json!({"aadClientCertPath": "/c.p12"}), json!({"aadClientCertPassword": "p"})] {
        let mut file = to(evil);
        file["aadClientCertPath"] = "/c.p12".into();
        assert!(refused(merged(file.clone(), &secret, None, &[])).contains("client certificate"));
        merged(file, &secret, None, &[evil]).expect("an argument names it");
    }
}
