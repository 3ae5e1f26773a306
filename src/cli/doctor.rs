//! `lazuli doctor`: what is wrong with a cloud configuration, and whether Azure lets us in.

use clap::Args;
use lazuli_assembly::clients::{self, CloudOptions, WireError};
use lazuli_azure::Until;
use prometheus_client::registry::Registry;
use serde_json::json;
use std::time::Duration;

use super::{Outcome, csi_controller, output::Format};
use lazuli_config::Config;
use lazuli_csi::server::chain;
use lazuli_plan::disk::AllowedResourceGroups;

/// How long Azure may take to answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Other tools share the file: a key that means nothing here may mean something to them.
const UNKNOWN_KEYS: &str = "unknown keys";
/// Keys for what other versions and other programs do.
const WITHOUT_EFFECT: &str = "unused keys";
/// What StorageClasses may ask for.
const CLASSES: &str = "StorageClasses";
/// The file, the Secret and the environment together.
const CONFIGURATION: &str = "configuration";

/// Options of the check.
#[derive(Debug, Args)]
pub(super) struct Options {
    #[command(flatten)]
    cloud: CloudOptions,
    /// Do not ask Azure; check the configuration only.
    #[arg(long)]
    offline: bool,
    /// How to print.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    output: Format,
}

#[derive(serde::Serialize)]
struct Finding {
    check: &'static str,
    ok: bool,
    text: String,
}

pub(super) async fn run(options: Options) -> Outcome {
    let (findings, config) = match configuration(&options).await {
        Ok(config) => {
            let mut findings = of_configuration(&config);
            findings.push(of_classes(&options.cloud.allowed_resource_groups()));
            if !options.offline {
                findings.push(ask_azure(&options, &config).await);
            }
            (findings, Some(config))
        }
        Err(error) => (vec![Finding { check: CONFIGURATION, ok: false, text: chain(&error) }], None),
    };
    print!("{}", report(&findings, config.as_ref(), options.output));
    if findings.iter().all(|finding| finding.ok) { Ok(()) } else { Err("something is wrong; see above".into()) }
}

async fn configuration(options: &Options) -> Result<Config, WireError> {
    let client = clients::cluster(&options.cloud).await?;
    clients::configuration(&options.cloud, client.as_ref()).await
}

/// What there is to say of a configuration that can be used.
fn of_configuration(config: &Config) -> Vec<Finding> {
    let cluster = &config.cluster;
    let text = format!(
        "subscription {}, resource group {}, location {}",
        cluster.subscription_id,
        cluster.resource_group.as_str(),
        cluster.location
    );
    let mut findings = vec![Finding { check: CONFIGURATION, ok: true, text }];
    for warning in config.warnings() {
        findings.push(Finding { check: CONFIGURATION, ok: true, text: format!("note: {warning}") });
    }
    if !config.unknown_keys().is_empty() {
        let text = format!("keys that mean nothing here: {}", config.unknown_keys().join(", "));
        findings.push(Finding { check: UNKNOWN_KEYS, ok: true, text });
    }
    if !config.keys_without_effect().is_empty() {
        let text = format!("read, no effect in this version: {}", config.keys_without_effect().join(", "));
        findings.push(Finding { check: WITHOUT_EFFECT, ok: true, text });
    }
    findings
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
    Finding { check: CLASSES, ok: true, text }
}

/// What is printed: whole and of one form, whatever was found.
fn report(findings: &[Finding], config: Option<&Config>, output: Format) -> String {
    let ok = findings.iter().all(|finding| finding.ok);
    match output {
        Format::Json => format!("{}\n", json!({ "ok": ok, "findings": findings, "configuration": config })),
        Format::Text => {
            let line = |Finding { check, ok, text }: &Finding| {
                let mark = match (*ok, *check) {
                    (false, _) => "FAIL",
                    (true, UNKNOWN_KEYS | WITHOUT_EFFECT) => "note",
                    (true, _) => "ok  ",
                };
                format!("{mark} {check}: {text}\n")
            };
            findings.iter().map(line).collect()
        }
    }
}

/// Gets a token and lists the VMs of the cluster's resource group, as the controller would.
async fn ask_azure(options: &Options, config: &Config) -> Finding {
    let asked = async {
        let routes = options.cloud.routes.table()?;
        let azure = clients::connect(config, routes, &mut Registry::default(), csi_controller::seed()).await?;
        let (subscription, group) = (&azure.defaults.subscription, &azure.defaults.resource_group);
        let vms = azure.compute.list_vms(subscription, group, &Until::within(PATIENCE)).await?;
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>((azure.cloud.resource_manager, vms.len()))
    };
    match asked.await {
        Ok((endpoint, vms)) => Finding {
            check: "Azure",
            ok: true,
            text: format!("{endpoint} lets us in; {vms} virtual machines in the resource group"),
        },
        Err(error) => Finding { check: "Azure", ok: false, text: chain(error.as_ref()) },
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use lazuli_config::{ConfigError, Document, Environment};

    fn load(text: &str) -> Result<Config, ConfigError> {
        let file = Document::parse("azure.json", text.as_bytes())?;
        Config::from_documents(Some(&file), None, &Environment::new(&BTreeMap::new()))
    }

    #[test]
    fn keys_that_do_nothing_are_named_and_no_fault() {
        let config = load(
            r#"{"subscriptionId": "s", "resourceGroup": "g", "location": "l", "useManagedIdentityExtension": true,
                "cloudProviderBackoff": true, "vmType": "vmss", "nonsense": 1}"#,
        )
        .unwrap();
        let text = report(&of_configuration(&config), Some(&config), Format::Text);
        assert!(
            text.contains("note unused keys: read, no effect in this version: cloudProviderBackoff, vmType\n"),
            "{text}"
        );
        assert!(text.contains("note unknown keys: keys that mean nothing here: nonsense\n"), "{text}");
    }

    #[test]
    fn it_says_which_resource_groups_classes_may_name() {
        let printed = |list: &[&str]| {
            let list = list.iter().map(|text| text.parse().unwrap()).collect();
            report(&[of_classes(&AllowedResourceGroups::of(list))], None, Format::Text)
        };
        assert!(printed(&[]).contains("any resource group") && printed(&[]).contains("--allowed-resource-groups"));
        assert_eq!(
            printed(&["team", "s2/*"]),
            "ok   StorageClasses: may name these resource groups: the cluster's, team, s2/*\n"
        );
    }

    #[test]
    fn json_is_json_also_when_the_configuration_is_wrong() {
        let error = WireError::Config(load(r#"{"subscriptionId": 7, "location": []}"#).unwrap_err());
        let findings = [Finding { check: CONFIGURATION, ok: false, text: chain(&error) }];
        let printed: serde_json::Value = serde_json::from_str(&report(&findings, None, Format::Json)).unwrap();
        assert_eq!((&printed["ok"], &printed["configuration"]), (&json!(false), &json!(null)));
        assert!(printed["findings"][0]["text"].as_str().unwrap().contains("resourceGroup"), "{printed}");
    }
}
