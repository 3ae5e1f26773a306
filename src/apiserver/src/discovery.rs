//! Which kinds there are, for clients that ask before they act: one answer a group, or all in one where a client takes
//! that. Source of the shapes: the discovery API of Kubernetes 1.36.

use serde_json::{Value, json};

use crate::resource::{self, Resource};

const VERBS: [&str; 7] = ["create", "delete", "get", "list", "patch", "update", "watch"];

/// The kinds that `kubectl get all` shows.
const ALL: [&str; 2] = ["pods", "services"];

fn groups() -> Vec<&'static str> {
    let mut groups: Vec<&str> = resource::ALL.iter().map(|one| one.group).filter(|one| !one.is_empty()).collect();
    groups.sort_unstable();
    groups.dedup();
    groups
}

fn kinds(group: &str, version: &str) -> impl Iterator<Item = &'static Resource> {
    let (group, version) = (group.to_owned(), version.to_owned());
    resource::ALL.iter().filter(move |one| one.group == group && one.version == version)
}

fn categories(resource: &Resource) -> &'static [&'static str] {
    if resource.group.is_empty() && ALL.contains(&resource.plural) { &["all"] } else { &[] }
}

/// The root of the core group.
pub(crate) fn versions() -> Value {
    json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})
}

fn described(group: &str) -> Value {
    let version = json!({"groupVersion": format!("{group}/v1"), "version": "v1"});
    json!({"name": group, "versions": [version], "preferredVersion": version})
}

/// The named groups.
pub(crate) fn group_list() -> Value {
    let groups: Vec<Value> = groups().into_iter().map(described).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// One named group.
pub(crate) fn group(name: &str) -> Option<Value> {
    groups().contains(&name).then(|| {
        let mut group = described(name);
        group["kind"] = json!("APIGroup");
        group["apiVersion"] = json!("v1");
        group
    })
}

/// The kinds of a group, with `status` where it is a subresource.
pub(crate) fn resource_list(group: &str, version: &str) -> Option<Value> {
    let resources: Vec<Value> = kinds(group, version).flat_map(listed).collect();
    let name = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    (!resources.is_empty())
        .then(|| json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": name, "resources": resources}))
}

fn listed(one: &'static Resource) -> Vec<Value> {
    let mut main = json!({
        "name": one.plural, "singularName": one.singular(), "namespaced": one.namespaced, "kind": one.kind, "verbs": VERBS,
    });
    if !one.short_names.is_empty() {
        main["shortNames"] = json!(one.short_names);
    }
    if !categories(one).is_empty() {
        main["categories"] = json!(categories(one));
    }
    let status = one.has_status.then(|| {
        json!({
            "name": format!("{}/status", one.plural), "singularName": "", "namespaced": one.namespaced, "kind": one.kind,
            "verbs": ["get", "patch", "update"],
        })
    });
    [Some(main), status].into_iter().flatten().collect()
}

/// All groups below `/api` or `/apis` with their kinds: `apidiscovery.k8s.io/v2`.
pub(crate) fn aggregated(root: &str) -> Value {
    let groups = if root == "api" { vec![""] } else { groups() };
    let items: Vec<Value> = groups
        .into_iter()
        .map(|group| {
            let resources: Vec<Value> = kinds(group, "v1").map(aggregated_kind).collect();
            let metadata = if group.is_empty() { json!({}) } else { json!({"name": group}) };
            let version = json!({"version": "v1", "resources": resources, "freshness": "Current"});
            json!({"metadata": metadata, "versions": [version]})
        })
        .collect();
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items})
}

fn aggregated_kind(one: &'static Resource) -> Value {
    let kind = json!({"group": one.group, "version": one.version, "kind": one.kind});
    let mut described = json!({
        "resource": one.plural, "responseKind": kind, "scope": if one.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": one.singular(), "verbs": VERBS,
    });
    if !one.short_names.is_empty() {
        described["shortNames"] = json!(one.short_names);
    }
    if !categories(one).is_empty() {
        described["categories"] = json!(categories(one));
    }
    if one.has_status {
        described["subresources"] =
            json!([{"subresource": "status", "responseKind": kind, "verbs": ["get", "patch", "update"]}]);
    }
    described
}
