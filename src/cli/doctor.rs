//! `lazuli doctor`: what is wrong with a cloud configuration, whether Azure lets us in, and what is wrong with the cluster.

mod cluster;
mod disks;
mod migration;
mod network;
mod rights;
mod shares;
mod snapshots;

use std::time::Duration;

use clap::Args;
use lazuli_assembly::clients::{self, Azure, CloudOptions, WireError};
use lazuli_azure::Until;
use lazuli_cluster::SecretError;
use lazuli_config::{AZURE_STACK, Cloud, CloudSource, Config, Credential, LooksAfter};
use lazuli_controllers::settings;
use lazuli_csi::server::chain;
use lazuli_diagnosis::{
    Finding, Grade, locations,
    named::named,
    plausible::{Values, plausible},
    roles::roles,
};
use lazuli_journal::printable;
use lazuli_volume::AllowedResourceGroups;
use serde_json::{Value, json};

use self::rights::Needs;
use super::{
    Outcome,
    connect::azure_of,
    output::Format,
    progress::Progress,
    terminal::{Colour, Screen, wrapped},
};

/// How long Azure may take to answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Other tools share the file: a key that means nothing here may mean something to them.
const UNKNOWN_KEYS: &str = "unknown keys";
/// Keys for what other versions and other programs do.
const WITHOUT_EFFECT: &str = "unused keys";
/// What only the cloud controllers need.
const CONTROLLERS: &str = "cloud controllers";
/// What StorageClasses may ask for.
const CLASSES: &str = "StorageClasses";
/// Whether there is a credential.
const CREDENTIAL: &str = "credential";
/// Whether Azure lets us in.
const AZURE: &str = "Azure";
/// The file, the Secret and the environment together.
const CONFIGURATION: &str = "configuration";

/// Options of the check.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// The namespaces in whose pods managers are looked for, where a cluster is named.
    #[arg(long, value_name = "NAMESPACE", value_delimiter = ',', default_value = "kube-system")]
    manager_namespaces: Vec<String>,
    /// No cloud controllers run with this configuration: what they need and it does not have is a note.
    #[arg(long)]
    volumes_only: bool,
    /// Ask neither Azure nor the cluster; check the configuration only.
    #[arg(long)]
    offline: bool,
    /// Go through a cluster of the Go projects before a move too: the Go programs of --manager-namespaces with their
    /// arguments, StorageClasses, VolumeAttributesClasses, PersistentVolumes, VolumeSnapshots, Services and Nodes. What is served
    /// equally, what differs, what is refused and what was not looked at is said, each with the page that says more. Changes
    /// nothing. Needs a cluster.
    #[arg(long, conflicts_with = "offline")]
    migrate: bool,
    /// How to print.
    #[arg(short, long, value_enum, default_value_t = Format::Text, value_name = "FORM")]
    output: Format,
    #[command(flatten)]
    cloud: CloudOptions,
}

impl Options {
    /// How bad it is that something is missing which only the cloud controllers need.
    fn of_controllers(&self) -> Grade {
        if self.volumes_only { Grade::Note } else { Grade::Wrong }
    }
}

fn fine(check: &'static str, text: impl Into<String>) -> Finding {
    Finding::new(check, Grade::Fine, text)
}

pub(super) async fn run(options: Options) -> Outcome {
    let progress =
        Progress::begin(if options.offline { "the configuration is read" } else { "the cluster and Azure are asked" });
    let (text, is_well) = Box::pin(examined(&options, Screen::of_stdout())).await;
    drop(progress);
    print!("{text}");
    if is_well { Ok(()) } else { Err("something is wrong; see above".into()) }
}

/// What is printed, and whether all is well.
async fn examined(options: &Options, screen: Screen) -> (String, bool) {
    let (findings, config) = match configuration(options).await {
        Ok((config, client, unreached)) => {
            let is_reached = unreached.is_none();
            let of_configuration = of_configuration(&config, options.of_controllers());
            let mut findings: Vec<Finding> = unreached.into_iter().chain(of_configuration).collect();
            findings.push(of_classes(&options.cloud.allowed_resource_groups()));
            if !options.offline {
                findings.extend(ask_azure_and_cluster(options, &config, client, is_reached).await);
            }
            (findings, Some(config))
        }
        Err(error) => (vec![Finding::new(CONFIGURATION, Grade::Wrong, chain(&error))], None),
    };
    (report(&findings, config.as_ref(), options.output, screen), is_well(&findings))
}

fn is_well(findings: &[Finding]) -> bool {
    findings.iter().all(|finding| finding.grade != Grade::Wrong)
}

/// The configuration, a client of the cluster, and what is wrong with the cluster where it does not tell the Secret: then
/// the configuration is that of the file alone.
async fn configuration(options: &Options) -> Result<(Config, Option<kube::Client>, Option<Finding>), WireError> {
    if options.offline {
        let config = clients::configuration_now(&options.cloud, None).await?;
        let unasked = "neither Azure nor the cluster is asked; a Secret of the cluster may change what is said here";
        return Ok((config, None, Some(Finding::new(CONFIGURATION, Grade::Unseen, unasked))));
    }
    let error = match clients::cluster(&options.cloud).await {
        Ok(client) => match clients::configuration(&options.cloud, client.as_ref()).await {
            Ok(config) => return Ok((config, client, None)),
            Err(error @ WireError::Secret(SecretError::Failed { .. })) => error,
            // That the API server refuses the Secret alone is about the configuration.
            Err(error) => return Err(error),
        },
        Err(error) => error,
    };
    let text = format!("{}; the configuration below is that of the file alone", chain(&error));
    let unreached = Finding::new(cluster::CLUSTER, Grade::Wrong, text);
    // Without a file the cluster is what is missing.
    let config = clients::configuration_now(&options.cloud, None).await.map_err(|_| error)?;
    Ok((config, None, Some(unreached)))
}

async fn ask_azure_and_cluster(
    options: &Options,
    config: &Config,
    client: Option<kube::Client>,
    is_reached: bool,
) -> Vec<Finding> {
    let absent = options.of_controllers();
    let listed = match &client {
        Some(client) => Some(cluster::Listed::list(client, &options.manager_namespaces).await),
        None => None,
    };
    let needs = Needs::of(config, listed.as_ref().and_then(|listed| listed.as_ref().ok()));
    let (azure, mut findings) = match azure_of(&options.cloud, config).await {
        Ok(azure) => match ask_azure(&azure).await {
            Ok((answer, machines)) => {
                let location = locations(&machines, &config.cluster.location);
                let named = named(&network::named(config, &azure.network).await, absent);
                let rights = roles(&rights::needed(config, &needs, &azure.network, absent).await);
                (Some(azure), [answer].into_iter().chain(location).chain(rights).chain(named).collect())
            }
            Err(NoMachines { finding, is_answered }) => {
                // It may be a right that is missing.
                let rights = match is_answered {
                    true => roles(&rights::needed(config, &needs, &azure.network, absent).await),
                    false => vec![],
                };
                (None, [finding].into_iter().chain(rights).collect())
            }
        },
        Err(error) => (None, vec![Finding::new(AZURE, Grade::Wrong, chain(error.as_ref()))]),
    };
    match client.zip(listed) {
        Some((_, Err(unanswered))) => findings.push(unanswered),
        Some((client, Ok(listed))) => {
            findings.extend(Box::pin(cluster::examine(config, &client, &listed, azure.as_ref())).await);
            let namespaces = &options.manager_namespaces;
            findings.extend(Box::pin(snapshots::examine(config, &client, &listed, namespaces, azure.as_ref())).await);
            if options.migrate {
                findings.extend(Box::pin(migration::examine(config, &client, &listed, azure.as_ref())).await);
            }
        }
        // What is wrong with the cluster is said before.
        None if !is_reached => {}
        None if options.migrate => {
            findings.push(Finding::new(cluster::CLUSTER, Grade::Wrong, "--migrate needs a cluster: give --kubeconfig"));
        }
        None => findings.push(Finding::new(
            cluster::CLUSTER,
            Grade::Unseen,
            "no cluster is named, so its Nodes, managers and Services are not checked: give --kubeconfig",
        )),
    }
    findings
}

/// What there is to say of a configuration that can be read. `controllers` is how bad it is that the cloud controllers do not
/// start with it.
fn of_configuration(config: &Config, controllers: Grade) -> Vec<Finding> {
    let cluster = &config.cluster;
    let text = format!(
        "subscription {}, resource group {}, location {}",
        cluster.subscription_id,
        cluster.resource_group.as_str(),
        cluster.location
    );
    let mut findings = vec![fine(CONFIGURATION, text)];
    findings.extend(of_values(config));
    findings.extend(of_credential(config));
    for warning in config.warnings() {
        findings.push(Finding::new(CONFIGURATION, Grade::Note, warning.as_str()));
    }
    if !config.unknown_keys().is_empty() {
        let unknown: Vec<String> = config.unknown_keys().iter().map(ToString::to_string).collect();
        let text = format!("keys that mean nothing here: {}", unknown.join(", "));
        findings.push(Finding::new(UNKNOWN_KEYS, Grade::Note, text));
    }
    let of_controllers = config.keys_of_cloud_controllers();
    let others = config.keys_without_effect().iter().map(String::as_str);
    let others: Vec<&str> = others.filter(|key| !of_controllers.contains(key)).collect();
    if !others.is_empty() {
        let text = format!("read, no effect in this version: {}", others.join(", "));
        findings.push(Finding::new(WITHOUT_EFFECT, Grade::Note, text));
    }
    findings.push(of_cloud_controllers(config, controllers));
    findings
}

/// Values that cannot be right.
fn of_values(config: &Config) -> Vec<Finding> {
    let clouds: Vec<&str> = Cloud::well_known_names().chain([AZURE_STACK]).collect();
    let cluster = &config.cluster;
    plausible(&Values {
        subscription: &cluster.subscription_id,
        tenant: config.tenant_id.as_deref(),
        name_beside_endpoint: match &config.cloud {
            CloudSource::Discover(discovery) => discovery.name.as_deref(),
            CloudSource::Known(_) => None,
        },
        clouds: &clouds,
        location: &cluster.location,
        resource_group: cluster.resource_group.as_str(),
    })
}

/// A credential that is missing, and the misspelt keys that may be why. `useInstanceMetadata` allows it, for a node alone.
fn of_credential(config: &Config) -> Option<Finding> {
    (config.credential == Credential::Absent).then(|| {
        let misspelt = config.unknown_keys().iter().filter(|key| key.is_of_credential());
        let misspelt: String = misspelt.map(|key| format!("; the unknown key {key} is given")).collect();
        Finding::new(CREDENTIAL, Grade::Wrong, format!("{}{misspelt}", WireError::NoCredential))
    })
}

/// Whether `lazuli cloud-controllers` starts with this configuration. Volumes need none of it.
fn of_cloud_controllers(config: &Config, grade: Grade) -> Finding {
    if config.cluster.disable_controllers {
        let text = "disableCloudProvider is true, so that lazuli cloud-controllers runs no controller: Services get no \
                    addresses from it, and Nodes are not initialised; volumes are served all the same";
        return Finding::new(CONTROLLERS, Grade::Note, text);
    }
    let all = LooksAfter { services: true, nodes: true };
    let started = config.for_cloud_controllers(all).map_err(|error| chain(&error));
    match started.and_then(|_| settings::settings(config, "kubernetes").map_err(|error| error.to_string())) {
        Ok(_) => fine(CONTROLLERS, "the configuration has every key that Services need"),
        Err(why) => {
            let text = format!(
                "lazuli cloud-controllers does not start: {why}; volumes need none of this (where only volumes are served, \
                 --volumes-only makes this a note)"
            );
            Finding::new(CONTROLLERS, grade, text)
        }
    }
}

/// Where StorageClasses may have disks made.
fn of_classes(allowed: &AllowedResourceGroups) -> Finding {
    let text = match allowed {
        AllowedResourceGroups::Any => {
            "may name any resource group that the identity may write to; --allowed-resource-groups restricts them"
                .to_owned()
        }
        AllowedResourceGroups::Only(_) => format!("may name these resource groups: {allowed}"),
    };
    fine(CLASSES, text)
}

/// The configuration for programs. Keys that the cloud controllers use are no keys without effect, as in the text.
fn of_programs(config: &Config) -> Value {
    let of_controllers = config.keys_of_cloud_controllers();
    let mut shown = json!(config);
    if let Some(keys) = shown["keysWithoutEffect"].as_array_mut() {
        keys.retain(|key| key.as_str().is_none_or(|key| !of_controllers.contains(&key)));
    }
    shown
}

/// What is printed: whole and of one form, whatever was found. All forms are made of the same words.
fn report(findings: &[Finding], config: Option<&Config>, output: Format, screen: Screen) -> String {
    let finding =
        |Finding { check, grade, text }: &Finding| json!({"check": check, "grade": word(*grade), "text": text});
    let of_findings: Vec<Value> = findings.iter().map(finding).collect();
    let configuration = config.map(of_programs);
    let object = json!({"ok": is_well(findings), "findings": of_findings, "configuration": configuration});
    let line = |Finding { check, grade, text }: &Finding| {
        let head = format!("{:<4} ", word(*grade));
        let body = wrapped(&printable(&format!("{check}: {text}")), screen.width, &head, "     ");
        // The colour is no part of what is counted.
        let rest = body.strip_prefix(&head).unwrap_or_default();
        format!("{}{rest}\n", screen.paint(colour(*grade), &head))
    };
    output.of_programs(&object).unwrap_or_else(|| findings.iter().map(line).collect())
}

fn colour(grade: Grade) -> Colour {
    match grade {
        Grade::Fine => Colour::Green,
        Grade::Note => Colour::Yellow,
        Grade::Unseen => Colour::Cyan,
        Grade::Wrong => Colour::Red,
    }
}

/// The grade of a finding, for people and programs. `?` is what could not be seen.
fn word(grade: Grade) -> &'static str {
    match grade {
        Grade::Fine => "ok",
        Grade::Note => "note",
        Grade::Unseen => "?",
        Grade::Wrong => "FAIL",
    }
}

/// Why the machines cannot be listed.
struct NoMachines {
    finding: Finding,
    /// Whether Azure answered: then there is a token.
    is_answered: bool,
}

/// Lists the VMs of the cluster's resource group, as the controller would, which needs a token. Returns their locations too.
async fn ask_azure(azure: &Azure) -> Result<(Finding, Vec<(String, String)>), NoMachines> {
    let (subscription, group) = (&azure.defaults.subscription, &azure.defaults.resource_group);
    match azure.compute.list_vms(subscription, group, &Until::within(PATIENCE)).await {
        Ok(vms) => {
            let (endpoint, count) = (&azure.cloud.resource_manager, vms.len());
            let machines = if count == 1 { "machine" } else { "machines" };
            let answer = fine(
                AZURE,
                format!("{endpoint} lets this identity list the {count} virtual {machines} of resource group {group}"),
            );
            Ok((answer, vms.into_iter().map(|vm| (vm.id.name().to_owned(), vm.location)).collect()))
        }
        Err(error) => Err(NoMachines {
            is_answered: error.status.is_some(),
            finding: Finding::new(AZURE, Grade::Wrong, chain(&error)),
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{super::output::testing::odd_names, *};
    use lazuli_config::{ConfigError, Document, Environment};

    fn load(text: &str) -> Result<Config, ConfigError> {
        let file = Document::parse("azure.json", text.as_bytes())?;
        Config::from_documents(Some(&file), None, &Environment::new(&BTreeMap::new()))
    }

    #[test]
    fn keys_that_do_nothing_are_named_and_no_fault() {
        let config = load(
            r#"{"subscriptionId": "00000000-0000-0000-0000-000000000001", "resourceGroup": "g", "location": "l", "useManagedIdentityExtension": true,
                "cloudProviderBackoff": true, "vmType": "vmss", "nonsense": 1, "vnettName": "v"}"#,
        )
        .unwrap();
        let text = report(&of_configuration(&config, Grade::Note), Some(&config), Format::Text, Screen::default());
        assert!(
            text.contains("note unused keys: read, no effect in this version: vmType\n"),
            "the cloud controllers use cloudProviderBackoff: {text}"
        );
        assert!(
            text.contains(
                "note unknown keys: keys that mean nothing here: nonsense, vnettName (the nearest key that exists is \
                 vnetName)\n"
            ),
            "{text}"
        );
    }

    #[test]
    fn it_says_what_services_need_and_the_configuration_does_not_have() {
        let of = |keys: &str| {
            let text = format!(
                r#"{{"subscriptionId": "00000000-0000-0000-0000-000000000001", "resourceGroup": "g", "location": "l",
                "useManagedIdentityExtension": true{keys}}}"#
            );
            let config = load(&text).unwrap();
            let (note, wrong) = (of_configuration(&config, Grade::Note), of_configuration(&config, Grade::Wrong));
            assert!(is_well(&note));
            (is_well(&wrong), report(&wrong, None, Format::Text, Screen::default()))
        };
        let (is_well, none) = of("");
        let line = "FAIL cloud controllers: lazuli cloud-controllers does not start: the cloud configuration has no vnetName, \
                    subnetName, securityGroupName: Services";
        assert!(!is_well && none.contains(line) && none.contains("--volumes-only"), "{none}");
        let (is_well, wrong) = of(r#", "vnetName": "v", "subnetName": ["x"]"#);
        assert!(!is_well && wrong.contains("FAIL cloud controllers: "), "{wrong}");
        assert!(wrong.contains("subnetName: found a list"), "{wrong}");
        let (is_well, off) = of(r#", "vnetName": "v", "disableCloudProvider": true"#);
        assert!(is_well && off.contains("note cloud controllers: disableCloudProvider is true"), "{off}");
        let (is_well, all) = of(r#", "vnetName": "v", "subnetName": "s", "securityGroupName": "n""#);
        assert!(is_well && all.contains("ok   cloud controllers: ") && !all.contains("unused keys"), "{all}");
    }

    #[test]
    fn a_credential_whose_key_is_misspelt_is_wrong_without_azure_too() {
        let text = |more: &str| {
            format!(
                r#"{{"subscriptionId": "00000000-0000-0000-0000-000000000001", "resourceGroup": "g", "location": "l", "tenantId": "contoso.example", "aadClientId": "c",
                "aadClientSecrte": "hunter2"{more}}}"#
            )
        };
        let hint = "the unknown key aadClientSecrte (the nearest key that exists is aadClientSecret) is given";
        let refused = load(&text("")).unwrap_err().to_string();
        assert!(refused.contains("no credentials") && refused.contains(hint), "{refused}");
        let config = load(&text(r#", "useInstanceMetadata": true"#)).unwrap();
        let findings = of_configuration(&config, Grade::Note);
        let printed = report(&findings, Some(&config), Format::Text, Screen::default());
        assert!(!is_well(&findings) && printed.contains("FAIL credential: ") && printed.contains(hint), "{printed}");
        assert!(!printed.contains("hunter2") && !refused.contains("hunter2"));
    }

    #[test]
    fn json_has_the_words_of_the_text() {
        let findings = [Grade::Fine, Grade::Note, Grade::Unseen, Grade::Wrong]
            .map(|grade| Finding::new(CONFIGURATION, grade, format!("it is {grade:?}")));
        let text = report(&findings, None, Format::Text, Screen::default());
        let printed: Value = serde_json::from_str(&report(&findings, None, Format::Json, Screen::default())).unwrap();
        let lines = printed["findings"].as_array().unwrap().iter().map(|finding| {
            let of = |key: &str| finding[key].as_str().unwrap();
            format!("{:<4} {}: {}\n", of("grade"), of("check"), of("text"))
        });
        assert_eq!(lines.collect::<String>(), text);
        assert_eq!((&printed["ok"], is_well(&findings)), (&json!(false), false));
        let config = load(
            r#"{"subscriptionId": "s", "resourceGroup": "g", "location": "l", "tenantId": "t", "aadClientId": "c",
                "aadClientSecret": "x", "vmType": "vmss", "nonsense": 1}"#,
        );
        let printed = report(&[], Some(&config.unwrap()), Format::Json, Screen::default());
        assert_eq!(odd_names(&serde_json::from_str(&printed).unwrap()), Vec::<String>::new());
        assert!(printed.contains("\"keysWithoutEffect\"") && printed.contains("redacted"), "{printed}");
    }

    #[test]
    fn it_says_which_resource_groups_classes_may_name() {
        let printed = |list: &[&str]| {
            let list = list.iter().map(|text| text.parse().unwrap()).collect();
            report(&[of_classes(&AllowedResourceGroups::of(list))], None, Format::Text, Screen::default())
        };
        assert!(printed(&[]).contains("any resource group") && printed(&[]).contains("--allowed-resource-groups"));
        assert_eq!(
            printed(&["team", "s2/*"]),
            "ok   StorageClasses: may name these resource groups: the cluster's, team, s2/*\n"
        );
    }

    #[cfg(feature = "emulator")]
    #[test]
    fn the_configuration_that_the_emulator_writes_has_all_that_services_need_and_warns_of_nothing() {
        let scenario = lazuli_emulator::scenario::Scenario::default();
        let config = load(&lazuli_rig::azure_json(&scenario, "http://127.0.0.1:8181").to_string()).unwrap();
        let all = LooksAfter { services: true, nodes: true };
        assert_eq!(config.for_cloud_controllers(all).unwrap(), Vec::<String>::new());
        assert_eq!(config.start_warnings(), Vec::<String>::new());
        assert!(of_configuration(&config, Grade::Wrong).iter().all(|finding| finding.grade == Grade::Fine));
    }

    #[cfg(feature = "emulator")]
    #[tokio::test]
    async fn an_api_server_that_does_not_answer_is_named_and_azure_is_asked_all_the_same() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let folder = lazuli_rig::Folder::make("doctor").unwrap();
        // Bound and closed again: nobody listens there.
        let closed = || std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let (server, azure) = (closed(), closed());
        let [config, kubeconfig] = ["azure.json", "kubeconfig"].map(|name| folder.path().join(name));
        let text = json!({"subscriptionId": "00000000-0000-0000-0000-000000000001", "resourceGroup": "g", "location": "l", "tenantId": "contoso.example", "aadClientId": "c",
            "aadClientSecret": "x", "resourceManagerEndpoint": format!("http://{azure}/")});
        std::fs::write(&config, text.to_string()).unwrap();
        let text = json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": format!("http://{server}")}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "users": [{"name": "u", "user": {}}]});
        std::fs::write(&kubeconfig, text.to_string()).unwrap();
        let missing = folder.path().join("missing");
        for (kubeconfig, named) in
            [(&kubeconfig, format!("the API server http://{server}")), (&missing, missing.display().to_string())]
        {
            let text = Box::pin(report_of(&config, kubeconfig)).await;
            assert!(text.starts_with("FAIL cluster: ") && text.contains(&named), "{text}");
            assert!(text.contains("ok   configuration: subscription 0"), "{text}");
            let of_azure = text.lines().find(|line| line.starts_with("FAIL Azure: ")).unwrap();
            assert!(of_azure.contains(&azure.to_string()), "{of_azure}");
            assert!(!text.contains("ServiceError"), "{text}");
        }
    }

    #[cfg(feature = "emulator")]
    async fn report_of(config: &std::path::Path, kubeconfig: &std::path::Path) -> String {
        use clap::Parser;

        #[derive(Debug, Parser)]
        struct Line {
            #[command(flatten)]
            options: Options,
        }

        let paths = [format!("--cloud-config={}", config.display()), format!("--kubeconfig={}", kubeconfig.display())];
        let line = Line::parse_from(["doctor".to_owned()].into_iter().chain(paths));
        let (text, is_well) = Box::pin(examined(&line.options, Screen::default())).await;
        assert!(!is_well, "{text}");
        text
    }

    #[test]
    fn json_is_json_also_when_the_configuration_is_wrong() {
        let error = WireError::Config(load(r#"{"subscriptionId": 7, "location": []}"#).unwrap_err());
        let findings = [Finding::new(CONFIGURATION, Grade::Wrong, chain(&error))];
        let printed: Value = serde_json::from_str(&report(&findings, None, Format::Json, Screen::default())).unwrap();
        assert_eq!((&printed["ok"], &printed["configuration"]), (&json!(false), &json!(null)));
        assert!(printed["findings"][0]["text"].as_str().unwrap().contains("resourceGroup"), "{printed}");
    }
}
