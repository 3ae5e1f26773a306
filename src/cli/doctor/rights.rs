//! Reads what the identity may do in the resource groups of the cluster.

use std::collections::{BTreeMap, BTreeSet};

use lazuli_azure::{Until, network::Network};
use lazuli_config::Config;
use lazuli_controllers::settings;
use lazuli_csi::{
    identity::{DISK_DRIVER, FILE_DRIVER},
    server::chain,
};
use lazuli_diagnosis::{
    Grade,
    roles::{self, Needed, Permission, Role},
};
use lazuli_services::network::settings::PoolKind;

use super::cluster::{Listed, READS};

/// What asks for more than the roles that every cluster needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Needs {
    /// Machines are written with the whole list of their data disks.
    whole_list: bool,
    /// How bad it is that VHD blob disks cannot be made. `None`: none is asked for.
    blob_disks: Option<Grade>,
    /// Snapshots of disks are taken.
    snapshots: bool,
    /// Pools list the network interfaces of uniform scale sets.
    scale_set_pools: bool,
    /// Resource groups in which StorageClasses have networks and private endpoints made.
    networks: BTreeSet<String>,
}

impl Needs {
    /// What the configuration says, and the cluster where it was listed.
    pub(super) fn of(config: &Config, listed: Option<&Listed>) -> Self {
        let is_given = |argument: &str| {
            let has =
                |words: &[String]| words.iter().flat_map(|word| word.split_whitespace()).any(|word| word == argument);
            listed.is_some_and(|listed| listed.containers.iter().any(|one| has(&one.command)))
        };
        let nodes = listed.and_then(|listed| listed.nodes.as_ref().ok());
        // Source: the form of provider ids of instances of uniform scale sets.
        let is_instance = |id: &str| id.to_ascii_lowercase().contains("/virtualmachinescalesets/");
        // Without a cluster it is not known what its machines are.
        let has_instances =
            nodes.is_some_and(|nodes| nodes.iter().filter_map(|node| node.provider_id.as_deref()).any(is_instance));
        let lists_nics =
            settings::settings(config, "kubernetes").is_ok_and(|settings| settings.pool_kind == PoolKind::Nic);
        let classes = listed.and_then(|listed| listed.classes.as_deref().ok()).unwrap_or_default();
        let places = (config.network.vnet_resource_group.as_str(), config.cluster.resource_group.as_str());
        Self {
            whole_list: config.is_stack_cloud || is_given("--attach-method=whole-list"),
            blob_disks: match roles::asks_for_blob_disks(classes, DISK_DRIVER) {
                true if is_given("--blob-disks=always") => Some(Grade::Wrong),
                // What the machines take decides, and is not read here.
                true if !is_given("--blob-disks=never") => Some(Grade::Note),
                _ => None,
            },
            snapshots: listed.is_some_and(|listed| listed.snapshots.are_of_disks()),
            scale_set_pools: lists_nics && has_instances,
            networks: roles::groups_of_network_classes(classes, FILE_DRIVER, places),
        }
    }
}

/// The roles that are needed, and what Azure says of each. `controllers` is how bad it is that the cloud controllers lack
/// theirs.
pub(super) async fn needed(config: &Config, needs: &Needs, network: &Network, controllers: Grade) -> Vec<Needed> {
    let until = Until::within(READS);
    let mut known: BTreeMap<Place, Shown> = BTreeMap::new();
    let mut all = Vec::new();
    for (role, (subscription, group), purpose, absent) in wanted(config, needs, controllers) {
        let place = (subscription.to_lowercase(), group.to_lowercase());
        let shown = match known.get(&place) {
            Some(shown) => shown.clone(),
            None => {
                let read = network.permissions(&subscription, &group, &until).await;
                let shown: Shown = read.map(|answer| Permission::read(&answer)).map_err(|error| chain(&error));
                known.insert(place, shown.clone());
                shown
            }
        };
        all.push(Needed { role, group, purpose, absent, shown });
    }
    all
}

/// A subscription and a resource group in it.
type Place = (String, String);
/// What Azure says of one, or why it does not.
type Shown = Result<Vec<Permission>, String>;

/// Which roles are needed in which resource groups.
fn wanted(config: &Config, needs: &Needs, controllers: Grade) -> Vec<(Role, Place, &'static str, Grade)> {
    let (cluster, network) = (&config.cluster, &config.network);
    let own: Place = (cluster.subscription_id.clone(), cluster.resource_group.as_str().to_owned());
    let mut all = vec![
        (Role::disks(), own.clone(), "disks", Grade::Wrong),
        // Not every cluster has these either, and roles of earlier versions lack their actions.
        (
            Role::snapshots(),
            own.clone(),
            "snapshots and copies",
            if needs.snapshots { Grade::Wrong } else { Grade::Note },
        ),
        // Not every cluster has shares.
        (Role::files(), own.clone(), "file shares", Grade::Note),
    ];
    if needs.whole_list {
        all.push((Role::whole_list(), own.clone(), "attaching by the whole list", Grade::Wrong));
    }
    if let Some(grade) = needs.blob_disks {
        all.push((Role::blob_disks(), own.clone(), "VHD blob disks", grade));
        if !needs.whole_list {
            all.push((Role::whole_list(), own.clone(), "attaching VHD blob disks", grade));
        }
    }
    let of_network = |group: &str| (network.subscription_id.clone(), group.to_owned());
    let networks = needs.networks.iter().map(|group| of_network(group));
    // Where the accounts of such a class exist already, less will do.
    all.extend(networks.map(|place| (Role::files_network(), place, "shares with networkEndpointType", Grade::Note)));
    if cluster.disable_controllers {
        return all;
    }
    if needs.scale_set_pools {
        all.push((Role::scale_set_pools(), own.clone(), "pools of scale sets", controllers));
    }
    let mut places = vec![
        own,
        of_network(network.vnet_resource_group.as_str()),
        of_network(network.security_group_resource_group.as_str()),
        of_network(config.load_balancing.resource_group.as_str()),
    ];
    if network.route_table.is_some() {
        places.push(of_network(network.route_table_resource_group.as_str()));
    }
    let folded = |(subscription, group): &Place| (subscription.to_lowercase(), group.to_lowercase());
    places.sort_by_key(folded);
    places.dedup_by_key(|place| folded(place));
    all.extend(places.into_iter().map(|place| (Role::cloud_controllers(), place, "Services and routes", controllers)));
    all
}

#[cfg(test)]
mod tests {
    use lazuli_cluster::ListedNode;
    use lazuli_config::{Document, Environment};
    use lazuli_diagnosis::{managers::Container, migration::Class, snapshots::SnapshotClass};
    use serde_json::{Value, json};

    use super::{super::snapshots::Snapshots, *};

    fn config(more: &[(&str, Value)]) -> Config {
        let mut keys = json!({"tenantId": "t", "subscriptionId": "s", "resourceGroup": "own", "location": "l",
            "vnetName": "v", "vnetResourceGroup": "net", "subnetName": "n", "securityGroupName": "g",
            "loadBalancerSku": "standard", "useManagedIdentityExtension": true});
        for (key, value) in more {
            keys[*key] = value.clone();
        }
        let document = Document::parse("azure.json", keys.to_string().as_bytes()).unwrap();
        Config::from_documents(Some(&document), None, &Environment::new(&BTreeMap::new())).unwrap()
    }

    /// A cluster with a Node of this provider id, a container with this argument and a class with this parameter.
    fn listed(provider_id: &str, argument: &str, parameter: &str) -> Listed {
        let node = ListedNode {
            name: "n".to_owned(),
            provider_id: Some(provider_id.to_owned()),
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            pod_ranges: vec![],
            addresses: vec![],
            other_addresses: vec![],
        };
        let class = Class {
            name: "c".to_owned(),
            provisioner: FILE_DRIVER.to_owned(),
            parameters: [(parameter.to_owned(), "privateEndpoint".to_owned())].into(),
            mount_options: vec![],
        };
        Listed {
            nodes: Ok(vec![node]),
            services: Ok(Default::default()),
            containers: vec![Container { command: vec![argument.to_owned()], ..Container::default() }],
            unlisted: vec![],
            classes: Ok(vec![class]),
            snapshots: Snapshots {
                types: Ok(vec![]),
                classes: Ok(vec![]),
                contents: Ok(vec![]),
                attributes: Ok(vec![]),
            },
        }
    }

    #[test]
    fn the_actions_on_snapshots_must_be_there_where_snapshots_of_disks_are() {
        let grade = |driver: &str| {
            let mut listed = listed("azure:///s/virtualMachines/n", "--v=2", "skuName");
            listed.snapshots.classes =
                Ok(vec![SnapshotClass { driver: driver.to_owned(), ..SnapshotClass::default() }]);
            let config = config(&[]);
            let wanted = wanted(&config, &Needs::of(&config, Some(&listed)), Grade::Note);
            wanted.into_iter().find(|(_, _, purpose, _)| *purpose == "snapshots and copies").unwrap().3
        };
        assert_eq!((grade("disk.csi.azure.com"), grade("ebs.csi.aws.com")), (Grade::Wrong, Grade::Note));
    }

    #[test]
    fn the_roles_of_blob_disks_are_compared_where_a_class_asks_for_such_disks() {
        let vm = "azure:///s/virtualMachines/n";
        let compared = |provisioner: &str, (key, value): (&str, &str), argument: &str| {
            let mut listed = listed(vm, argument, "skuName");
            let parameters = BTreeMap::from([(key.to_owned(), value.to_owned())]);
            listed.classes = Ok(vec![Class {
                name: "c".to_owned(),
                provisioner: provisioner.to_owned(),
                parameters,
                mount_options: vec![],
            }]);
            let config = config(&[]);
            let wanted = wanted(&config, &Needs::of(&config, Some(&listed)), Grade::Wrong).into_iter();
            let of_blobs = wanted.filter(|(_, _, purpose, _)| purpose.contains("VHD blob disks"));
            of_blobs.map(|(role, (_, group), _, grade)| (role.file, group, grade)).collect::<Vec<_>>()
        };
        let both = |grade| {
            ["role-blob-disks.json", "role-whole-list.json"].map(|file| (file, "own".to_owned(), grade)).to_vec()
        };
        let dedicated = ("Kind", "dedicated");
        for parameter in [dedicated, ("kind", "Shared"), ("storageaccount", "acct")] {
            assert_eq!(compared(DISK_DRIVER, parameter, "--v=2"), both(Grade::Note), "{parameter:?}");
        }
        assert_eq!(compared(DISK_DRIVER, dedicated, "--blob-disks=always"), both(Grade::Wrong));
        assert_eq!(compared(DISK_DRIVER, dedicated, "--blob-disks=never"), []);
        assert_eq!(compared(DISK_DRIVER, ("kind", "Managed"), "--blob-disks=always"), []);
        // There it names the account of shares.
        assert_eq!(compared(FILE_DRIVER, ("storageAccount", "acct"), "--blob-disks=always"), []);
    }

    #[test]
    fn a_role_is_compared_where_the_configuration_or_the_cluster_needs_it() {
        let (vm, instance) = ("azure:///s/virtualMachines/n", "azure:///s/virtualMachineScaleSets/p/virtualMachines/0");
        let nodes_by_address = ("loadBalancerBackendPoolConfigurationType", json!("nodeIP"));
        for (config, listed, files) in [
            (config(&[]), Some(listed(vm, "--v=2", "skuName")), &[][..]),
            (config(&[]), Some(listed(instance, "--v=2", "skuName")), &["role-scale-set-pools.json own"]),
            (config(&[nodes_by_address]), Some(listed(instance, "--v=2", "skuName")), &[]),
            (config(&[]), Some(listed(vm, "--attach-method=whole-list", "skuName")), &["role-whole-list.json own"]),
            (
                config(&[]),
                Some(listed(vm, "--v=2", "networkEndpointType")),
                &["role-files-network.json net", "role-files-network.json own"],
            ),
            (config(&[]), None, &[]),
        ] {
            let needs = Needs::of(&config, listed.as_ref());
            let usual = ["role.json", "role-files.json", "role-cloud-controllers.json"];
            let wanted = wanted(&config, &needs, Grade::Wrong).into_iter();
            let more: Vec<String> = wanted
                .filter(|(role, ..)| !usual.contains(&role.file))
                .map(|(role, (_, group), ..)| format!("{} {group}", role.file))
                .collect();
            assert_eq!(more, files, "{needs:?}");
        }
    }
}
