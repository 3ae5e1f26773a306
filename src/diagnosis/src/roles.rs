//! Which actions of the roles in `deploy/azure` an identity lacks, from what Azure says that it may do.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Finding, Grade, migration::Class, some};

/// The check.
pub const ROLES: &str = "rights in Azure";

/// A role: the actions that are needed together, and the file that says so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Role {
    /// The file in `deploy/azure`.
    pub file: &'static str,
    /// Its actions.
    pub actions: Vec<String>,
}

impl Role {
    fn of(file: &'static str, text: &str) -> Self {
        let role: Value = serde_json::from_str(text).unwrap_or_default();
        Self { file, actions: texts(&role["Actions"]) }
    }

    /// What the controller of disks needs for volumes.
    pub fn disks() -> Self {
        let role = Self::of_disks();
        Self { actions: role.actions.into_iter().filter(|action| !is_of_snapshots(action)).collect(), ..role }
    }

    /// What it needs on top for snapshots and copies: roles that were made before there were any lack it.
    pub fn snapshots() -> Self {
        let role = Self::of_disks();
        Self { actions: role.actions.into_iter().filter(|action| is_of_snapshots(action)).collect(), ..role }
    }

    fn of_disks() -> Self {
        Self::of("role.json", include_str!("../../../deploy/azure/role.json"))
    }

    /// What it needs on top for file shares.
    pub fn files() -> Self {
        Self::of("role-files.json", include_str!("../../../deploy/azure/role-files.json"))
    }

    /// What it needs on top for StorageClasses of shares that only a network reaches.
    pub fn files_network() -> Self {
        Self::of("role-files-network.json", include_str!("../../../deploy/azure/role-files-network.json"))
    }

    /// What the controller of disks needs on top where it writes the whole list of a machine's data disks.
    pub fn whole_list() -> Self {
        Self::of("role-whole-list.json", include_str!("../../../deploy/azure/role-whole-list.json"))
    }

    /// What the controller of disks needs on top for VHD blob disks, beside the role for whole lists.
    pub fn blob_disks() -> Self {
        Self::of("role-blob-disks.json", include_str!("../../../deploy/azure/role-blob-disks.json"))
    }

    /// What the cloud controllers need on top where pools list the network interfaces of scale sets.
    pub fn scale_set_pools() -> Self {
        Self::of("role-scale-set-pools.json", include_str!("../../../deploy/azure/role-scale-set-pools.json"))
    }

    /// What the cloud controllers need, but for the action that only a subscription can give.
    pub fn cloud_controllers() -> Self {
        let role =
            Self::of("role-cloud-controllers.json", include_str!("../../../deploy/azure/role-cloud-controllers.json"));
        let of_group = |action: &String| !action.starts_with("Microsoft.Resources/subscriptions/");
        Self { actions: role.actions.into_iter().filter(of_group).collect(), ..role }
    }
}

/// Whether an action is used for snapshots and copies alone.
fn is_of_snapshots(action: &str) -> bool {
    action.starts_with("Microsoft.Compute/snapshots/") || action.ends_with("/beginGetAccess/action")
}

/// Whether a StorageClass of the disk driver asks for a VHD blob disk: `kind` is Shared or Dedicated, or an account is named.
pub fn asks_for_blob_disks(classes: &[Class], driver: &str) -> bool {
    let asks = |(key, value): (&String, &String)| {
        let value = value.trim();
        (key.eq_ignore_ascii_case("storageAccount") && !value.is_empty())
            || (key.eq_ignore_ascii_case("kind")
                && ["Shared", "Dedicated"].iter().any(|kind| value.eq_ignore_ascii_case(kind)))
    };
    classes.iter().any(|class| class.provisioner == driver && class.parameters.iter().any(asks))
}

/// The resource groups in which StorageClasses of the file driver have networks, private endpoints and zones made: those
/// that say `networkEndpointType`. `vnet` and `accounts` are the groups of classes that name none.
pub fn groups_of_network_classes(classes: &[Class], driver: &str, (vnet, accounts): (&str, &str)) -> BTreeSet<String> {
    let mut groups = BTreeSet::new();
    for class in classes.iter().filter(|class| class.provisioner == driver) {
        let value = |key: &str| {
            let mut all = class.parameters.iter().filter(|(name, _)| name.eq_ignore_ascii_case(key));
            all.next().map(|(_, value)| value.trim()).filter(|value| !value.is_empty())
        };
        if value("networkEndpointType").is_none() {
            continue;
        }
        let vnet = value("vnetResourceGroup").unwrap_or(vnet);
        let zone = value("privateDNSZoneResourceGroup").unwrap_or(vnet);
        groups.extend([vnet, zone, value("resourceGroup").unwrap_or(accounts)].map(str::to_owned));
    }
    groups
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// What one role assignment gives.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Permission {
    /// Patterns of the actions that it gives. A `*` stands for any text.
    pub actions: Vec<String>,
    /// Patterns of those that it does not give although the others match. Another assignment may give them.
    pub not_actions: Vec<String>,
}

impl Permission {
    /// Those of Azure's answer.
    pub fn read(answer: &Value) -> Vec<Self> {
        let of = |one: &Value| Self { actions: texts(&one["actions"]), not_actions: texts(&one["notActions"]) };
        answer["value"].as_array().into_iter().flatten().map(of).collect()
    }

    fn gives(&self, action: &str) -> bool {
        let matches = |patterns: &[String]| patterns.iter().any(|pattern| covers(pattern, action));
        matches(&self.actions) && !matches(&self.not_actions)
    }
}

/// Whether a pattern stands for an action. Source: Microsoft docs, role definitions: a `*` stands for any text, slashes
/// included; letter case counts for nothing.
fn covers(pattern: &str, action: &str) -> bool {
    let (pattern, action) = (pattern.to_ascii_lowercase(), action.to_ascii_lowercase());
    let mut parts = pattern.split('*');
    let Some(rest) = action.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    let mut rest = rest;
    for part in middle {
        // The earliest place leaves the most for what follows.
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// The actions of a role that none of these permissions gives.
pub fn missing<'r>(role: &'r Role, permissions: &[Permission]) -> Vec<&'r str> {
    let is_missing = |action: &&String| !permissions.iter().any(|permission| permission.gives(action));
    role.actions.iter().filter(is_missing).map(String::as_str).collect()
}

/// A role that is needed, where, and how bad it is if it is not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Needed {
    /// The role.
    pub role: Role,
    /// The resource group.
    pub group: String,
    /// What for, such as `disks`.
    pub purpose: &'static str,
    /// How bad it is.
    pub absent: Grade,
    /// What Azure says that the identity may do there, or why it is not known.
    pub shown: Result<Vec<Permission>, String>,
}

/// A finding for each role that an identity lacks in part or as a whole, and one for those that it has.
pub fn roles(all: &[Needed]) -> Vec<Finding> {
    let (mut findings, mut had) = (Vec::new(), Vec::new());
    for Needed { role, group, purpose, absent, shown } in all {
        match shown {
            Err(why) => {
                let text = format!("{} is not compared in resource group {group}: {why}", role.file);
                // One reason for one group.
                let is_said = |one: &Finding| one.grade == Grade::Unseen && one.text.ends_with(why.as_str());
                if !findings.iter().any(is_said) {
                    findings.push(Finding::new(ROLES, Grade::Unseen, text));
                }
            }
            Ok(permissions) => match &missing(role, permissions)[..] {
                [] => had.push(format!("{purpose} in {group}")),
                lacking => findings.push(Finding::new(ROLES, *absent, lack(role, group, purpose, lacking))),
            },
        }
    }
    if !had.is_empty() {
        let text = format!("the identity has every action for {}", had.join(", "));
        findings.insert(0, Finding::new(ROLES, Grade::Fine, text));
    }
    findings
}

fn lack(role: &Role, group: &str, purpose: &str, lacking: &[&str]) -> String {
    let what = match lacking.len() == role.actions.len() {
        true => format!("the identity has no action of deploy/azure/{}", role.file),
        false => format!(
            "the identity lacks {} of {} actions of deploy/azure/{} ({})",
            lacking.len(),
            role.actions.len(),
            role.file,
            some(lacking)
        ),
    };
    format!(
        "{what} in resource group {group}: without them {purpose} there cannot be served; assign the role to it on that group"
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn permission(actions: &[&str], not_actions: &[&str]) -> Permission {
        let of = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        Permission { actions: of(actions), not_actions: of(not_actions) }
    }

    #[test]
    fn the_files_have_actions_and_the_one_of_a_subscription_is_left_out() {
        assert!(Role::disks().actions.len() > 10 && Role::files().actions.len() > 5);
        for role in [Role::files_network(), Role::whole_list(), Role::scale_set_pools()] {
            assert!(role.actions.len() > 1, "{role:?}");
        }
        // Volumes are served without what only snapshots and copies need.
        let of_snapshots = Role::snapshots().actions;
        assert_eq!((of_snapshots.len(), Role::snapshots().file), (5, Role::disks().file));
        assert!(!Role::disks().actions.iter().any(|action| of_snapshots.contains(action)));
        let cloud = Role::cloud_controllers();
        assert!(cloud.actions.len() > 30 && cloud.actions.iter().all(|action| !action.contains("/providers/read")));
    }

    #[test]
    fn networks_are_made_where_classes_of_shares_say_so() {
        let class = |provisioner: &str, parameters: &[(&str, &str)]| Class {
            name: "c".to_owned(),
            mount_options: vec![],
            provisioner: provisioner.to_owned(),
            parameters: parameters.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        };
        let endpoint = ("networkEndpointType", "privateEndpoint");
        let groups = |class: Class| {
            let all = groups_of_network_classes(&[class], "file.csi.azure.com", ("net", "own"));
            all.into_iter().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(groups(class("file.csi.azure.com", &[])), "");
        assert_eq!(groups(class("disk.csi.azure.com", &[endpoint])), "");
        assert_eq!(groups(class("file.csi.azure.com", &[endpoint])), "net own");
        let named =
            [("NETWORKENDPOINTTYPE", "serviceEndpoint"), ("vnetresourcegroup", "hub"), ("resourceGroup", "data")];
        assert_eq!(groups(class("file.csi.azure.com", &named)), "data hub");
        let zone = [endpoint, ("privateDNSZoneResourceGroup", "dns")];
        assert_eq!(groups(class("file.csi.azure.com", &zone)), "dns net own");
    }

    #[test]
    fn wildcards_match_and_another_assignment_gives_what_one_takes_away() {
        let role = Role::disks();
        let left = |permissions: &[Permission]| missing(&role, permissions).len();
        assert_eq!(left(&[]), role.actions.len());
        assert_eq!(left(&[permission(&["*"], &[])]), 0);
        assert_eq!(left(&[permission(&["microsoft.compute/*"], &[])]), 0);
        let reader = permission(&["*/read"], &[]);
        assert!(missing(&role, std::slice::from_ref(&reader)).iter().all(|action| !action.ends_with("/read")));
        let mostly = permission(&["*"], &["Microsoft.Compute/disks/*"]);
        let lacking =
            ["Microsoft.Compute/disks/read", "Microsoft.Compute/disks/write", "Microsoft.Compute/disks/delete"];
        assert_eq!(missing(&role, std::slice::from_ref(&mostly)), lacking);
        assert_eq!(missing(&role, &[mostly, reader]), lacking[1..]);
        let answer = json!({"value": [{"actions": ["*"], "notActions": ["a/b"], "dataActions": []}]});
        assert_eq!(Permission::read(&answer), [permission(&["*"], &["a/b"])]);
    }

    #[test]
    fn what_is_missing_is_told_with_file_and_scope() {
        let needed = |shown: Result<Vec<Permission>, String>| Needed {
            role: Role::disks(),
            group: "nodes".to_owned(),
            purpose: "disks",
            absent: Grade::Wrong,
            shown,
        };
        let found = roles(&[needed(Ok(vec![permission(&["*"], &["Microsoft.Compute/disks/delete"])]))]);
        assert_eq!(found[0].grade, Grade::Wrong);
        let said = "the identity lacks 1 of 12 actions of deploy/azure/role.json (Microsoft.Compute/disks/delete) in resource \
                    group nodes: ";
        assert!(found[0].text.starts_with(said), "{found:?}");
        let found = roles(&[needed(Ok(vec![]))]);
        assert!(found[0].text.starts_with("the identity has no action of deploy/azure/role.json in"), "{found:?}");
        let found = roles(&[needed(Ok(vec![permission(&["*"], &[])])), needed(Err("403".to_owned()))]);
        assert_eq!([found[0].grade, found[1].grade], [Grade::Fine, Grade::Unseen]);
    }

    /// The same by a search of all ways to read a pattern.
    fn slowly(pattern: &[u8], action: &[u8]) -> bool {
        match pattern.split_first() {
            None => action.is_empty(),
            Some((b'*', rest)) => (0..=action.len()).any(|at| slowly(rest, &action[at..])),
            Some((first, rest)) => action
                .split_first()
                .is_some_and(|(byte, after)| byte.eq_ignore_ascii_case(first) && slowly(rest, after)),
        }
    }

    proptest! {
        #[test]
        fn a_pattern_stands_for_what_a_search_of_all_ways_finds(pattern in "[aB/*]{0,8}", action in "[Ab/]{0,10}") {
            prop_assert_eq!(covers(&pattern, &action), slowly(pattern.as_bytes(), action.as_bytes()));
        }

        #[test]
        fn more_assignments_never_take_an_action_away(
            patterns in proptest::collection::vec(("[a/*]{0,5}", "[a/*]{0,5}"), 0..4),
            more in ("[a/*]{0,5}", "[a/*]{0,5}"),
            actions in proptest::collection::vec("[a/]{1,5}", 1..5),
        ) {
            let of = |(gives, takes): &(String, String)| permission(&[gives.as_str()], &[takes.as_str()]);
            let few: Vec<Permission> = patterns.iter().map(of).collect();
            let many: Vec<Permission> = patterns.iter().chain([&more]).map(of).collect();
            let role = Role { file: "x", actions };
            let before = missing(&role, &few);
            prop_assert!(missing(&role, &many).iter().all(|action| before.contains(action)));
        }
    }
}
