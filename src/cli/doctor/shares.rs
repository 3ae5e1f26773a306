//! What is wrong with file shares. Everything is decided in [`lazuli_diagnosis::shares`]; here are the reads.

use std::path::Path;

use lazuli_assembly::clients::Azure;
use lazuli_azure::{Until, error::ArmError};
use lazuli_cluster::{list_share_volumes, list_snapshot_handles};
use lazuli_config::Config;
use lazuli_csi::{identity::FILE_DRIVER, server::chain};
use lazuli_diagnosis::{
    Finding, Grade,
    shares::{
        AccountGroup, ShareVolume, accounts, groups,
        kernel::{self, Kernel},
        snapshots, volumes,
    },
};
use lazuli_model::ArmId;

use super::{
    super::storage_accounts,
    cluster::{READS, unseen},
};

/// Examines the PersistentVolumes of the file driver and, where `azure` is there, their accounts and shares. `nodes` are the
/// names of the Nodes: where this process runs on one of them, its kernel is looked at too.
pub(super) async fn examine(
    config: &Config,
    client: &kube::Client,
    azure: Option<&Azure>,
    nodes: &[&str],
) -> Vec<Finding> {
    let all = match list_share_volumes(client, FILE_DRIVER).await {
        Ok(all) => all,
        Err(error) => return vec![unseen(volumes::MOUNTS, &error)],
    };
    if all.is_empty() {
        let text =
            format!("no PersistentVolume is of {FILE_DRIVER}, so that shares and storage accounts are not looked at");
        return vec![Finding::new(volumes::SHARES, Grade::Fine, text)];
    }
    let mut findings = Vec::new();
    if let Some(kernel) = kernel_of_node(nodes) {
        findings.push(kernel::smb(&kernel));
    }
    let Some(azure) = azure else { return findings };
    findings.extend(volumes::mounts(&all, &azure.cloud.storage_suffix));
    findings.extend(in_azure(config, client, azure, &all).await);
    findings
}

async fn in_azure(config: &Config, client: &kube::Client, azure: &Azure, all: &[ShareVolume]) -> Vec<Finding> {
    let cluster = &config.cluster;
    let own = AccountGroup {
        subscription: cluster.subscription_id.clone(),
        name: cluster.resource_group.as_str().to_owned(),
    };
    let until = Until::within(READS);
    let seen = storage_accounts::gather(&azure.storage, &groups(&own, all), |_| true, &until).await;
    let of_failure = |(group, error): &(AccountGroup, ArmError)| {
        let text = format!("not checked in resource group {}: {}", group.name, chain(error));
        Finding::new(volumes::SHARES, Grade::Unseen, text)
    };
    let mut findings: Vec<Finding> = seen.failed.iter().map(of_failure).collect();
    if seen.listed.is_empty() && seen.accounts.is_empty() {
        return findings;
    }
    findings.extend(volumes::missing(&seen.accounts, all, &own, &seen.listed));
    findings.extend(accounts::keys(&seen.accounts, all));
    findings.extend(accounts::network(&seen.accounts, all, subnet(config).as_ref()));
    findings.extend(accounts::limits(&seen.accounts, all));
    findings.extend(match list_snapshot_handles(client, FILE_DRIVER).await {
        Ok(handles) => snapshots::unnamed(&seen.accounts, all, &handles),
        Err(error) => vec![unseen(snapshots::SNAPSHOTS, &error)],
    });
    findings
}

/// The subnet that the configuration names.
fn subnet(config: &Config) -> Option<ArmId> {
    let network = &config.network;
    let (vnet, subnet) = (network.vnet.as_deref()?, network.subnet.as_deref()?);
    let group = network.vnet_resource_group.as_str();
    let id = format!(
        "/subscriptions/{}/resourceGroups/{group}/providers/Microsoft.Network/virtualNetworks/{vnet}/subnets/{subnet}",
        network.subscription_id
    );
    id.parse().ok()
}

/// What the kernel shows, where this machine is one of the Nodes.
fn kernel_of_node(nodes: &[&str]) -> Option<Kernel> {
    let read = |path: &str| std::fs::read_to_string(path).ok();
    let host = read("/proc/sys/kernel/hostname")?;
    let is_node = nodes.iter().any(|node| node.eq_ignore_ascii_case(host.trim()));
    is_node.then(|| {
        let release = read("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned();
        let modules = Path::new("/lib/modules").join(&release);
        let of_modules = |name: &str| std::fs::read_to_string(modules.join(name)).ok();
        Kernel {
            filesystems: read("/proc/filesystems"),
            built_in: of_modules("modules.builtin"),
            modules: of_modules("modules.dep"),
            release,
        }
    })
}

#[cfg(test)]
#[cfg(feature = "emulator")]
mod tests;
