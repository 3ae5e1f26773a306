//! What is wrong with snapshots of disks and with classes of changed attributes. Everything is decided in
//! [`lazuli_diagnosis::snapshots`]; here are the reads.

use std::collections::BTreeSet;

use lazuli_assembly::clients::Azure;
use lazuli_azure::Until;
use lazuli_cluster::{
    ListError, lease_holder, list_attributes_classes, list_snapshot_classes, list_snapshot_contents,
    owned_snapshot_types, snapshot_types,
};
use lazuli_config::Config;
use lazuli_csi::{identity::DISK_DRIVER, server::chain};
use lazuli_diagnosis::{
    Finding, Grade,
    migration::Class,
    snapshots::{
        OwnedType, SnapshotClass, SnapshotContent,
        classes::{ATTRIBUTES_CLASSES, Place, SNAPSHOT_CLASSES, attributes_classes, places, snapshot_classes},
        inventory::{self, unnamed},
        machinery::{self, CONTROLLER_LEASE, Seen, machinery},
    },
};
use lazuli_model::SnapshotId;

use super::cluster::{Listed, READS, unseen};

/// What a cluster has of snapshots, listed once for all checks.
#[derive(Debug)]
pub(super) struct Snapshots {
    /// The types of the snapshot API.
    pub(super) types: Result<Vec<String>, ListError>,
    /// The VolumeSnapshotClasses.
    pub(super) classes: Result<Vec<SnapshotClass>, ListError>,
    /// The VolumeSnapshotContents.
    pub(super) contents: Result<Vec<SnapshotContent>, ListError>,
    /// The VolumeAttributesClasses.
    pub(super) attributes: Result<Vec<Class>, ListError>,
}

/// The types of the snapshot API that Helm releases have made.
pub(super) async fn owned_types(client: &kube::Client, of: &Snapshots) -> Result<Vec<OwnedType>, ListError> {
    match &of.types {
        Ok(types) => owned_snapshot_types(client, types).await,
        // That they could not be listed is said before.
        Err(_) => Ok(vec![]),
    }
}

impl Snapshots {
    /// Lists them.
    pub(super) async fn list(client: &kube::Client) -> Self {
        Self {
            types: snapshot_types(client).await,
            classes: list_snapshot_classes(client).await,
            contents: list_snapshot_contents(client).await,
            attributes: list_attributes_classes(client).await,
        }
    }

    /// Whether snapshots of disks are taken here.
    pub(super) fn are_of_disks(&self) -> bool {
        let class = self.classes.iter().flatten().any(|class| class.driver == DISK_DRIVER);
        class || self.contents.iter().flatten().any(|content| content.driver == DISK_DRIVER)
    }
}

/// Examines a cluster. Without `azure` classes are not judged and snapshots in Azure are not looked at.
pub(super) async fn examine(
    config: &Config,
    client: &kube::Client,
    cluster: &Listed,
    namespaces: &[String],
    azure: Option<&Azure>,
) -> Vec<Finding> {
    let of = &cluster.snapshots;
    let mut findings = match &of.types {
        Ok(types) => {
            let controller = holder(client, namespaces).await;
            machinery(&Seen {
                types,
                containers: &cluster.containers,
                is_whole: cluster.unlisted.is_empty(),
                controller: controller.as_deref(),
                contents: of.contents.iter().flatten().filter(|content| content.driver == DISK_DRIVER).count(),
            })
        }
        Err(error) => vec![unseen(machinery::SNAPSHOTS, error)],
    };
    let Some(azure) = azure else { return findings };
    findings.extend(match &of.classes {
        Ok(classes) => {
            let missing = missing(azure, places(classes, DISK_DRIVER, &azure.defaults)).await;
            snapshot_classes(classes, DISK_DRIVER, &azure.defaults, &missing)
        }
        Err(error) => vec![unseen(SNAPSHOT_CLASSES, error)],
    });
    findings.extend(match &of.attributes {
        Ok(classes) => attributes_classes(classes, DISK_DRIVER, &azure.defaults),
        Err(error) => vec![unseen(ATTRIBUTES_CLASSES, error)],
    });
    findings.extend(match &of.contents {
        Ok(contents) => in_azure(config, azure, contents).await,
        Err(error) => vec![unseen(inventory::SNAPSHOTS, error)],
    });
    findings
}

/// Those of these places that Azure says it does not have. A region in which a subscription can use no machine of any size is
/// none for it.
async fn missing(azure: &Azure, places: BTreeSet<Place>) -> BTreeSet<Place> {
    let until = Until::within(READS);
    let mut missing = BTreeSet::new();
    for place in places {
        let is_missing = match &place {
            Place::Group { subscription, name } => {
                let listed = azure.compute.list_snapshots(subscription, Some(name), &until).await;
                listed.is_err_and(|error| error.fault.says_that_it_is_missing())
            }
            Place::Region { subscription, name } => {
                let sizes = azure.compute.vm_sizes(subscription, name, &until).await;
                sizes.is_ok_and(|sizes| sizes.is_empty())
            }
        };
        if is_missing {
            missing.insert(place);
        }
    }
    missing
}

/// Who holds the Lease of the snapshot-controller in one of the namespaces. Where it cannot be read, nobody is named.
async fn holder(client: &kube::Client, namespaces: &[String]) -> Option<String> {
    for namespace in namespaces {
        if let Ok(Some(holder)) = lease_holder(client, namespace, CONTROLLER_LEASE).await {
            return Some(holder);
        }
    }
    None
}

/// The snapshots of the cluster's subscription and of those that contents name.
async fn in_azure(config: &Config, azure: &Azure, contents: &[SnapshotContent]) -> Vec<Finding> {
    let (own, group) = (config.cluster.subscription_id.as_str(), config.cluster.resource_group.as_str());
    let contents: Vec<SnapshotContent> =
        contents.iter().filter(|content| content.driver == DISK_DRIVER).cloned().collect();
    let handles = contents.iter().flat_map(|content| &content.handles);
    let named = handles.filter_map(|handle| SnapshotId::parse(handle, (own, group)).ok());
    let subscriptions: BTreeSet<String> =
        named.map(|id| id.snapshot().subscription().to_lowercase()).chain([own.to_lowercase()]).collect();
    let until = Until::within(READS);
    let (mut snapshots, mut failures) = (Vec::new(), Vec::new());
    for subscription in &subscriptions {
        match azure.compute.list_snapshots(subscription, None, &until).await {
            Ok(listed) => snapshots.extend(listed.snapshots),
            Err(error) => {
                let text = format!("not checked in subscription {subscription}: {}", chain(&error));
                failures.push(Finding::new(inventory::SNAPSHOTS, Grade::Unseen, text));
            }
        }
    }
    let told =
        if failures.len() == subscriptions.len() { vec![] } else { unnamed(&snapshots, &contents, (own, group)) };
    told.into_iter().chain(failures).collect()
}

#[cfg(test)]
#[cfg(feature = "emulator")]
mod tests;
