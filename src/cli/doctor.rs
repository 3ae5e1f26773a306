//! `lazuli doctor`: what is wrong with a cloud configuration, and whether Azure lets us in.

use clap::Args;
use lazuli_azure::Until;
use prometheus_client::registry::Registry;
use serde_json::json;
use std::time::Duration;

use super::{
    Outcome, csi_controller,
    output::Format,
    wire::{self, CloudOptions},
};
use crate::csi::server::chain;

/// How long Azure may take to answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Other tools share the file: a key that means nothing here may mean something to them.
const UNKNOWN_KEYS: &str = "unknown keys";

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
    let client = wire::cluster(&options.cloud).await?;
    let config = wire::configuration(&options.cloud, client.as_ref()).await?;
    let mut findings = vec![Finding {
        check: "configuration",
        ok: true,
        text: format!(
            "subscription {}, resource group {}, location {}",
            config.cluster.subscription_id,
            config.cluster.resource_group.as_str(),
            config.cluster.location
        ),
    }];
    for warning in config.warnings() {
        findings.push(Finding { check: "configuration", ok: true, text: format!("note: {warning}") });
    }
    if !config.unknown_keys().is_empty() {
        let text = format!("keys that mean nothing here: {}", config.unknown_keys().join(", "));
        findings.push(Finding { check: UNKNOWN_KEYS, ok: true, text });
    }
    if !options.offline {
        findings.push(ask_azure(&options, &config).await);
    }
    let ok = findings.iter().all(|finding| finding.ok);
    match options.output {
        Format::Json => println!("{}", json!({ "ok": ok, "findings": findings, "configuration": config })),
        Format::Text => {
            for Finding { check, ok, text } in &findings {
                let mark = match (*ok, *check) {
                    (false, _) => "FAIL",
                    (true, UNKNOWN_KEYS) => "note",
                    (true, _) => "ok  ",
                };
                println!("{mark} {check}: {text}");
            }
        }
    }
    if ok { Ok(()) } else { Err("something is wrong; see above".into()) }
}

/// Gets a token and lists the VMs of the cluster's resource group, as the controller would.
async fn ask_azure(options: &Options, config: &crate::config::Config) -> Finding {
    let asked = async {
        let routes = options.cloud.routes.table()?;
        let azure = wire::connect(config, routes, &mut Registry::default(), csi_controller::seed()).await?;
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
