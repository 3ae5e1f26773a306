//! What each principal may do: roles at scopes, as Azure's role assignments are.
//!
//! A principal that is given no list of roles may do everything, so that a scenario without roles works. One with a
//! list may do what one of its roles allows; an empty list allows nothing. Everything here decides and changes
//! nothing; the router asks it about each request of the resource manager, before the resource provider is asked.
//!
//! | question | answer | evidence |
//! |---|---|---|
//! | which action a request needs | the types in its path, then `read`, `write`, `delete`, or the name of a POST and `action` | D |
//! | which scope a refusal names | the resource; of a list in a group the namespace, of a list in a subscription the subscription | D, real bodies |
//! | a role | allows what matches one of `actions` and none of `notActions`; `*` stands for any text; letter case does not matter | D |
//! | roles of one principal | add up: what one denies by `notActions` another may allow | D |
//! | a disk or snapshot made from a disk or snapshot | needs `Microsoft.Compute/disks/beginGetAccess/action` on that one too, else `LinkedAuthorizationFailed` | D, real bodies (azuredisk#1711, azure-docs#11362, OpenShift#186) |
//! | … a snapshot made from a snapshot | needs `Microsoft.Compute/snapshots/beginGetAccess/action` | U |
//! | … within one resource group | as else | U: [`Switches::linked_access_in_group`](crate::Switches::linked_access_in_group) |
//! | other actions on resources that a body names, such as `subnets/join/action` | not asked for | deviation: Azure refuses with `LinkedAuthorizationFailed` |

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::fault::{self, Fault};
use crate::incident;
use crate::path::{self, ArmPath};

/// What a principal may do at a scope. The lists are those of a role definition of Azure.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Role {
    /// ARM id of the subscription, resource group or resource for which the role holds, with all below it; every
    /// subscription when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// What is allowed, such as `Microsoft.Compute/disks/*`.
    pub actions: Vec<String>,
    /// What of it is not.
    pub not_actions: Vec<String>,
    /// What is allowed on data. Shown, and never asked for: the emulator serves no data.
    pub data_actions: Vec<String>,
    /// What of it is not.
    pub not_data_actions: Vec<String>,
}

impl Role {
    /// Everything, everywhere.
    #[must_use]
    pub fn everything() -> Self {
        Self::of(&["*"])
    }

    /// These actions, everywhere.
    #[must_use]
    pub fn of(actions: &[&str]) -> Self {
        Self { actions: actions.iter().map(|action| (*action).to_owned()).collect(), ..Self::default() }
    }

    /// Checks that the scope is one of Azure's and that each action names one.
    ///
    /// # Errors
    ///
    /// The member that is wrong, and why.
    pub(crate) fn check(&self) -> Result<(), (&'static str, String)> {
        if let Some(scope) = &self.scope
            && ArmPath::parse(scope).is_none()
        {
            return Err(("scope", format!("{scope:?} does not begin with /subscriptions/ and an id")));
        }
        for (member, list) in [("actions", &self.actions), ("notActions", &self.not_actions)] {
            // An action of Azure ends with what it does.
            let is_action = |action: &&String| {
                action.ends_with('*')
                    || ["read", "write", "delete", "action"]
                        .iter()
                        .any(|verb| action.to_ascii_lowercase().ends_with(&format!("/{verb}")))
            };
            if let Some(action) = list.iter().find(|action| !is_action(action)) {
                let what = format!("{action:?} is no action: it must end with /read, /write, /delete, /action or *");
                return Err((member, what));
            }
        }
        Ok(())
    }

    fn holds_at(&self, scope: &str) -> bool {
        self.scope.as_deref().is_none_or(|own| is_within(scope, own))
    }

    fn allows(&self, action: &str) -> bool {
        let any = |list: &[String]| list.iter().any(|pattern| incident::matches(pattern, action));
        any(&self.actions) && !any(&self.not_actions)
    }
}

/// Whether a scope is another one or below it.
fn is_within(scope: &str, outer: &str) -> bool {
    let (scope, outer) = (path::key(scope), path::key(outer));
    scope.strip_prefix(&outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The roles of the principals that have a list of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Roles {
    /// By object id in lower case.
    limited: BTreeMap<String, Vec<Role>>,
}

impl Roles {
    /// Those that are given, by object id; without a list none.
    pub(crate) fn new(given: impl Iterator<Item = (String, Option<Vec<Role>>)>) -> Self {
        Self { limited: given.filter_map(|(id, roles)| Some((path::key(&id), roles?))).collect() }
    }

    /// Gives a principal these roles from now on; without a list it may do everything.
    pub(crate) fn set(&mut self, object_id: &str, roles: Option<Vec<Role>>) {
        match roles {
            Some(roles) => self.limited.insert(path::key(object_id), roles),
            None => self.limited.remove(&path::key(object_id)),
        };
    }

    /// The lists that there are, by object id.
    pub(crate) const fn all(&self) -> &BTreeMap<String, Vec<Role>> {
        &self.limited
    }

    /// The roles that a principal has at a scope.
    pub(crate) fn at(&self, object_id: &str, scope: &str) -> Vec<Cow<'_, Role>> {
        match self.limited.get(&path::key(object_id)) {
            None => vec![Cow::Owned(Role::everything())],
            Some(roles) => roles.iter().filter(|role| role.holds_at(scope)).map(Cow::Borrowed).collect(),
        }
    }

    /// Whether a principal has a role in a subscription or below it, so that its list of subscriptions has it.
    pub(crate) fn reach(&self, object_id: &str, subscription: &str) -> bool {
        let within = |role: &Role| {
            let scope = format!("/subscriptions/{subscription}");
            role.holds_at(&scope) || role.scope.as_deref().is_some_and(|own| is_within(own, &scope))
        };
        self.limited.get(&path::key(object_id)).is_none_or(|roles| roles.iter().any(within))
    }

    /// Refuses what a principal may not do.
    ///
    /// # Errors
    ///
    /// 403 `AuthorizationFailed` with the action and the scope.
    pub(crate) fn check(&self, object_id: &str, method: &str, path: &ArmPath) -> Result<(), Fault> {
        let Some(roles) = self.limited.get(&path::key(object_id)) else {
            return Ok(());
        };
        let Asked { action, scope } = Asked::of(method, path);
        if roles.iter().any(|role| role.holds_at(&scope) && role.allows(&action)) {
            return Ok(());
        }
        // Real bodies name a service principal by its object id twice.
        Err(fault::authorization_failed(object_id, object_id, action, scope))
    }

    /// Refuses what a principal may not do with a resource that the body of an allowed request names. With `in_group`
    /// also where both are in one resource group.
    ///
    /// # Errors
    ///
    /// 403 `LinkedAuthorizationFailed` with both actions and both scopes.
    pub(crate) fn check_linked(
        &self,
        object_id: &str,
        (method, path, body): (&str, &ArmPath, Option<&Value>),
        in_group: bool,
    ) -> Result<(), Fault> {
        let Some(roles) = self.limited.get(&path::key(object_id)) else {
            return Ok(());
        };
        let Some(Linked { action: linked, scope: source }) = body.and_then(|body| Linked::of(method, path, body))
        else {
            return Ok(());
        };
        let Asked { action, scope } = Asked::of(method, path);
        let group = |id: &str| id.split('/').take(5).map(str::to_ascii_lowercase).collect::<Vec<_>>();
        if !in_group && group(source) == group(&scope)
            || roles.iter().any(|role| role.holds_at(source) && role.allows(linked))
        {
            return Ok(());
        }
        Err(fault::linked_authorization_failed(object_id, object_id, action, scope, linked, source))
    }
}

/// A resource that the body of a request names, and on which the request needs an action.
#[derive(Debug, PartialEq, Eq)]
struct Linked<'a> {
    action: &'static str,
    scope: &'a str,
}

impl<'a> Linked<'a> {
    /// What a disk or snapshot is made from.
    fn of(method: &str, path: &ArmPath, body: &'a Value) -> Option<Self> {
        let kind = path.rest.first().filter(|_| path.rest.len() == 2 && method == "PUT")?;
        let provider = path.provider.as_deref()?;
        if !provider.eq_ignore_ascii_case("Microsoft.Compute") {
            return None;
        }
        let data = &body["properties"]["creationData"];
        let scope = ["sourceResourceId", "sourceUri"].iter().find_map(|member| data[*member].as_str())?;
        let source = ArmPath::parse(scope)?;
        let is_snapshot = |kind: &str| kind.eq_ignore_ascii_case("snapshots");
        let action = match (is_snapshot(kind), source.rest.first().is_some_and(|kind| is_snapshot(kind))) {
            (true, true) => "Microsoft.Compute/snapshots/beginGetAccess/action",
            (true, false) => "Microsoft.Compute/disks/beginGetAccess/action",
            (false, _) if kind.eq_ignore_ascii_case("disks") => "Microsoft.Compute/disks/beginGetAccess/action",
            _ => return None,
        };
        Some(Self { action, scope })
    }
}

/// What a request needs.
#[derive(Debug, PartialEq, Eq)]
struct Asked {
    action: String,
    scope: String,
}

impl Asked {
    fn of(method: &str, path: &ArmPath) -> Self {
        let verb = match method {
            "GET" | "HEAD" => "read",
            "DELETE" => "delete",
            "POST" => "action",
            _ => "write",
        };
        let base = match &path.group {
            Some(group) => format!("/subscriptions/{}/resourceGroups/{group}", path.subscription),
            None => format!("/subscriptions/{}", path.subscription),
        };
        let rest: Vec<&str> = path.rest.iter().map(String::as_str).collect();
        match (path.provider.as_deref(), rest.as_slice()) {
            (None, rest) => {
                let below = if path.group.is_some() { "/resourcegroups" } else { "" };
                let kind = rest.first().map_or(String::new(), |kind| format!("/{kind}"));
                Self { action: format!("Microsoft.Resources/subscriptions{below}{kind}/{verb}"), scope: base }
            }
            (Some(_), []) => {
                Self { action: format!("Microsoft.Resources/subscriptions/providers/{verb}"), scope: base }
            }
            (Some(namespace), rest) => {
                let extension = rest.iter().position(|segment| segment.eq_ignore_ascii_case("providers"));
                let (action, kinds) = match extension.and_then(|at| Some((rest.get(at + 1)?, rest.get(at + 2..)?))) {
                    Some((namespace, kinds)) => (*namespace, kinds),
                    None => (namespace, rest),
                };
                let kinds: Vec<&str> = kinds.iter().step_by(2).copied().collect();
                let action = format!("{action}/{}/{verb}", kinds.join("/"));
                Self { action, scope: scope_of(base, path.group.is_some(), namespace, rest) }
            }
        }
    }
}

/// The scope that a refusal names; `rest` is what follows the namespace.
fn scope_of(base: String, in_group: bool, namespace: &str, rest: &[&str]) -> String {
    // An odd number of segments ends with a type or an action.
    let named = rest.len() - rest.len() % 2;
    match (named, rest.len().is_multiple_of(2) || in_group) {
        (0, true) => format!("{base}/providers/{namespace}"),
        (named, true) => format!("{base}/providers/{namespace}/{}", rest[..named].join("/")),
        (_, false) => base,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUB: &str = "/subscriptions/s";

    fn asked(method: &str, below: &str) -> (String, String) {
        let Asked { action, scope } = Asked::of(method, &ArmPath::parse(&format!("{SUB}{below}")).unwrap());
        (action, scope.trim_start_matches(SUB).to_owned())
    }

    #[test]
    fn each_request_needs_the_action_of_its_types_at_its_resource() {
        let disk = "/resourceGroups/g/providers/Microsoft.Compute/disks/d";
        let set = "/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/s";
        for (method, path, action, scope) in [
            ("GET", "", "Microsoft.Resources/subscriptions/read", ""),
            ("GET", "/resourcegroups", "Microsoft.Resources/subscriptions/resourcegroups/read", ""),
            ("PUT", "/resourceGroups/g", "Microsoft.Resources/subscriptions/resourcegroups/write", "/resourceGroups/g"),
            (
                "GET",
                "/resourceGroups/g/resources",
                "Microsoft.Resources/subscriptions/resourcegroups/resources/read",
                "/resourceGroups/g",
            ),
            ("GET", "/providers/Microsoft.Compute", "Microsoft.Resources/subscriptions/providers/read", ""),
            ("POST", "/providers/Microsoft.Compute/register", "Microsoft.Compute/register/action", ""),
            ("GET", "/providers/Microsoft.Compute/disks", "Microsoft.Compute/disks/read", ""),
            (
                "GET",
                "/resourceGroups/g/providers/Microsoft.Compute/disks",
                "Microsoft.Compute/disks/read",
                "/resourceGroups/g/providers/Microsoft.Compute",
            ),
            ("PATCH", disk, "Microsoft.Compute/disks/write", disk),
            ("DELETE", disk, "Microsoft.Compute/disks/delete", disk),
            ("POST", &format!("{disk}/beginGetAccess"), "Microsoft.Compute/disks/beginGetAccess/action", disk),
            (
                "PUT",
                &format!("{set}/virtualMachines/3"),
                "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/write",
                &format!("{set}/virtualMachines/3"),
            ),
            (
                "GET",
                &format!("{set}/virtualMachines"),
                "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/read",
                set,
            ),
            (
                "GET",
                "/providers/Microsoft.Compute/locations/l/DiskOperations/o",
                "Microsoft.Compute/locations/DiskOperations/read",
                "/providers/Microsoft.Compute/locations/l/DiskOperations/o",
            ),
            (
                "GET",
                &format!("{disk}/providers/Microsoft.Authorization/permissions"),
                "Microsoft.Authorization/permissions/read",
                &format!("{disk}/providers/Microsoft.Authorization"),
            ),
        ] {
            assert_eq!(asked(method, path), (action.to_owned(), scope.to_owned()), "{method} {path}");
        }
    }

    #[test]
    fn what_one_role_denies_another_may_allow() {
        let mut roles = Roles::default();
        let may = |roles: &Roles, method: &str, below: &str| {
            roles.check("P", method, &ArmPath::parse(&format!("{SUB}{below}")).unwrap()).is_ok()
        };
        let group = "/resourceGroups/g/providers/Microsoft.Compute/disks/d";
        let other = "/resourceGroups/g2/providers/Microsoft.Compute/disks/d";
        assert!(may(&roles, "DELETE", group));
        let all_but = Role { not_actions: vec!["*/delete".to_owned()], ..Role::everything() };
        roles.set("p", Some(vec![all_but.clone()]));
        assert!(may(&roles, "PUT", group));
        assert!(!may(&roles, "DELETE", group));
        let deletes =
            Role { scope: Some(format!("{SUB}/resourcegroups/G/")), ..Role::of(&["microsoft.compute/DISKS/*"]) };
        roles.set("p", Some(vec![all_but, deletes]));
        assert!(may(&roles, "DELETE", group));
        assert!(!may(&roles, "DELETE", other));
        assert_eq!((roles.at("p", SUB).len(), roles.at("p", &format!("{SUB}{group}")).len()), (1, 2));
        roles.set("P", Some(Vec::new()));
        assert!(!may(&roles, "GET", group));
        assert!(!roles.reach("p", "s"));
        roles.set("P", None);
        assert!(may(&roles, "GET", other));
    }

    #[test]
    fn a_subscription_is_listed_for_a_role_anywhere_in_it() {
        let mut roles = Roles::default();
        let at = |scope: &str| Some(vec![Role { scope: Some(scope.to_owned()), ..Role::everything() }]);
        for (scope, listed) in
            [("/subscriptions/s", true), ("/subscriptions/S/resourceGroups/g", true), ("/subscriptions/s2", false)]
        {
            roles.set("p", at(scope));
            assert_eq!(roles.reach("p", "s"), listed, "{scope}");
        }
    }
}
