//! Which request goes where: the routes of all descriptors, and those that belong to no resource type.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use super::descriptor::{Children, Descriptor, Extra, Handler, Headers, Own};
use super::engine::{children, delete, put, read};
use super::protocol::{Access, Limits, Patch, Scope};
use super::resources::{all, groups, providers as registrations};
use super::{authorization, polling, registry::TYPES};
use crate::answer::{Context, Reply, Request};
use crate::fault::{self, Fault};
use crate::path::ArmPath;
use crate::throttle::Policy;

type OfResource = fn(&'static Descriptor, &mut Context<'_>) -> Reply;
type OfChild = fn(&'static Descriptor, &'static Children, &mut Context<'_>) -> Reply;

/// Who answers.
#[derive(Clone, Copy)]
enum Action {
    Own(Handler),
    Resource(&'static Descriptor, OfResource),
    Child(&'static Descriptor, &'static Children, OfChild),
}

/// Where a request goes.
#[derive(Clone, Copy)]
pub(crate) struct Route {
    /// The emulator's name of the operation.
    pub(crate) name: &'static str,
    /// The provider's bucket.
    pub(crate) policy: Option<Policy>,
    /// The first api-version that has the route, where that is not the first of the type.
    pub(crate) since: Option<&'static str>,
    /// What the provider's answers carry besides what all carry; an empty list is without.
    pub(crate) headers: Headers,
    /// How many segments after the provider name the resource of a group that has the bucket.
    limited_at: usize,
    action: Action,
}

impl Route {
    fn own(name: &'static str, handler: Handler) -> Self {
        Self { name, policy: None, since: None, headers: &[], limited_at: usize::MAX, action: Action::Own(handler) }
    }

    /// What a per-resource bucket belongs to: the resource without the action, or the operation.
    pub(crate) fn limited_resource(&self, request: &Request) -> String {
        let segments = request.path.rest.len();
        let kept = if request.path.group.is_some() { self.limited_at } else { segments };
        let mut path = request.raw_path.to_ascii_lowercase();
        for _ in kept..segments {
            if let Some(at) = path.rfind('/') {
                path.truncate(at);
            }
        }
        path
    }

    /// Answers a request.
    pub(crate) fn answer(&self, context: &mut Context<'_>) -> Reply {
        match self.action {
            Action::Own(handler) => handler(context),
            Action::Resource(descriptor, answer) => answer(descriptor, context),
            Action::Child(descriptor, children, answer) => answer(descriptor, children, context),
        }
    }
}

/// A route of a provider.
struct Row {
    /// In lower case.
    namespace: String,
    method: &'static str,
    scope: Scope,
    /// Segments after the namespace in lower case, `*` for a name.
    pattern: Vec<String>,
    name: String,
    policy: Option<Policy>,
    since: Option<&'static str>,
    headers: Headers,
    limited_at: usize,
    action: Action,
}

impl Row {
    fn route(&'static self) -> Route {
        let Self { policy, since, headers, limited_at, action, .. } = *self;
        Route { name: &self.name, policy, since, headers, limited_at, action }
    }

    fn is_path(&self, namespace: &str, rest: &[&str]) -> bool {
        self.pattern.len() == rest.len()
            && self.pattern.iter().zip(rest).all(|(own, asked)| own == "*" || own == asked)
            && self.namespace == namespace
    }

    fn takes(&self, method: &str, grouped: bool) -> bool {
        let in_scope = match self.scope {
            Scope::Either => true,
            Scope::Group => grouped,
            Scope::Subscription | Scope::Location => !grouped,
        };
        in_scope && self.method == method
    }
}

/// All routes of the providers, by the first segment: no path begins with a name.
static ROWS: LazyLock<BTreeMap<String, Vec<Row>>> = LazyLock::new(|| {
    let mut rows = Vec::new();
    for provider in TYPES.providers() {
        for descriptor in provider.types {
            add(&mut rows, descriptor);
        }
        for extra in provider.routes {
            rows.push(extra_row(provider.namespace, "", usize::MAX, extra));
        }
    }
    let mut by_first: BTreeMap<String, Vec<Row>> = BTreeMap::new();
    for row in rows {
        by_first.entry(row.pattern.first().cloned().unwrap_or_default()).or_default().push(row);
    }
    by_first
});

fn row(
    descriptor: &Descriptor,
    (method, scope): (&'static str, Scope),
    path: &str,
    name: String,
    policy: Option<Policy>,
    action: Action,
) -> Row {
    Row {
        namespace: descriptor.namespace().to_ascii_lowercase(),
        method,
        scope,
        pattern: path.split('/').map(str::to_ascii_lowercase).collect(),
        name,
        policy,
        since: None,
        headers: descriptor.headers,
        limited_at: descriptor.limited_at(),
        action,
    }
}

fn extra_row(namespace: &str, before: &str, limited_at: usize, extra: &Extra) -> Row {
    Row {
        namespace: namespace.to_ascii_lowercase(),
        method: extra.method,
        scope: extra.scope,
        pattern: format!("{before}{}", extra.path).split('/').map(str::to_ascii_lowercase).collect(),
        name: extra.operation.to_owned(),
        policy: extra.limit,
        since: extra.since,
        headers: extra.headers,
        limited_at,
        action: Action::Own(extra.handler),
    }
}

/// The routes of a resource type.
fn add(rows: &mut Vec<Row>, descriptor: &'static Descriptor) {
    let Descriptor { own, limits, .. } = descriptor;
    let Own { put: own_put, patch: own_patch, get: own_get, delete: own_delete, list: own_list } = *own;
    let Limits { get: get_limit, list: list_limit, write: write_limit, change, delete: delete_limit } = *limits;
    let (stem, collection) = (descriptor.stem(), descriptor.path);
    let one = format!("{collection}/*");
    let engine =
        |own: Option<Handler>, answer: OfResource| own.map_or(Action::Resource(descriptor, answer), Action::Own);
    for scope in descriptor.lists {
        let (path, name) = match scope {
            Scope::Location => (format!("locations/*/{collection}"), format!("{stem}.listByLocation")),
            _ => (collection.to_owned(), format!("{stem}.list")),
        };
        rows.push(row(descriptor, ("GET", *scope), &path, name, list_limit, engine(own_list, read::list)));
    }
    let patch_name = match descriptor.patch {
        Patch::Tags { operation, .. } | Patch::Merge { operation, .. } | Patch::Asked { operation, .. } => {
            Some(operation)
        }
        Patch::None => own_patch.map(|_| "update"),
    };
    let verbs = [
        ("PUT", Some("createOrUpdate"), write_limit, engine(own_put, put::put)),
        ("PATCH", patch_name, change.or(write_limit), engine(own_patch, put::patch)),
        ("GET", Some("get"), get_limit, engine(own_get, read::get)),
        ("DELETE", Some("delete"), delete_limit, engine(own_delete, delete::delete)),
    ];
    for (method, name, limit, action) in verbs {
        if let Some(name) = name {
            rows.push(row(descriptor, (method, Scope::Group), &one, format!("{stem}.{name}"), limit, action));
        }
    }
    for children in descriptor.children {
        let (stem, all) = (children.member, format!("{one}/{}", children.member));
        let one = format!("{all}/*");
        let verbs: [(&'static str, &str, &str, Option<Policy>, OfChild); 4] = [
            ("GET", &all, "list", list_limit, children::list),
            ("GET", &one, "get", get_limit, children::get),
            ("PUT", &one, "createOrUpdate", write_limit, children::put),
            ("DELETE", &one, "delete", delete_limit, children::delete),
        ];
        for (method, path, name, limit, answer) in verbs {
            if children.access == Access::Write || method == "GET" && children.access == Access::Read {
                let action = Action::Child(descriptor, children, answer);
                rows.push(row(descriptor, (method, Scope::Group), path, format!("{stem}.{name}"), limit, action));
            }
        }
    }
    let before = format!("{one}/");
    let (namespace, limited_at) = (descriptor.namespace(), descriptor.limited_at());
    rows.extend(descriptor.routes.iter().map(|extra| extra_row(namespace, &before, limited_at, extra)));
}

/// Finds out who answers a request.
///
/// # Errors
///
/// The gateway's 404 for an unknown path or type, 405 for a method that the path does not take.
pub(crate) fn find(method: &str, path: &ArmPath, raw: &str, version: &str) -> Result<Route, Fault> {
    let lower = path.lower();
    let rest: Vec<&str> = lower.iter().map(String::as_str).collect();
    let grouped = path.group.is_some();
    let found = match &path.provider {
        None => plain(method, grouped, &rest),
        Some(_) if authorization::asks_of_resource(path) => match method {
            "GET" => Some(Found::Route(Route::own("permissions.list", authorization::permissions))),
            _ => Some(Found::OtherMethod),
        },
        Some(_) if !grouped && matches!(rest[..], [] | ["register"]) => Some(of_provider(method, &rest)),
        Some(namespace) => {
            let namespace = namespace.to_ascii_lowercase();
            if !TYPES.providers().any(|provider| provider.namespace.eq_ignore_ascii_case(&namespace)) {
                return Err(fault::invalid_namespace(path.provider.as_deref().unwrap_or("")));
            }
            of_resource(method, grouped, &namespace, &rest)
        }
    };
    match (found, &path.provider, rest.first()) {
        (Some(Found::Route(route)), ..) => Ok(route),
        (Some(Found::OtherMethod), ..) => Err(fault::method_not_allowed(method)),
        (None, Some(namespace), Some(_)) => {
            let kind: Vec<&str> = path.rest.iter().step_by(2).map(String::as_str).collect();
            Err(fault::invalid_resource_type(kind.join("/"), namespace, version))
        }
        (None, ..) => Err(fault::path_not_found(raw)),
    }
}

/// What is known of a path.
enum Found {
    Route(Route),
    /// The path exists, but does not take the method.
    OtherMethod,
}

fn of_resource(method: &str, grouped: bool, namespace: &str, rest: &[&str]) -> Option<Found> {
    let mut known = None;
    let rows = ROWS.get(*rest.first()?)?;
    for row in rows.iter().filter(|row| row.is_path(namespace, rest)) {
        if row.takes(method, grouped) {
            return Some(Found::Route(row.route()));
        }
        known = Some(Found::OtherMethod);
    }
    known
}

fn of_provider(method: &str, rest: &[&str]) -> Found {
    Found::Route(match (rest, method) {
        ([], "GET") => Route::own("providers.get", registrations::get),
        (["register"], "POST") => Route::own("providers.register", registrations::get),
        _ => return Found::OtherMethod,
    })
}

fn plain(method: &str, grouped: bool, rest: &[&str]) -> Option<Found> {
    Some(Found::Route(match (grouped, rest, method) {
        (false, [], "GET") => Route::own("subscriptions.get", groups::get_subscription),
        (false, ["locations"], "GET") => Route::own("subscriptions.listLocations", groups::locations),
        (false, ["resourcegroups"], "GET") => Route::own("resourceGroups.list", groups::list),
        (false, ["operationresults", _], "GET") => Route::own("operations.get", polling::group_result),
        (false, ["providers"], "GET") => Route::own("providers.list", registrations::list),
        (_, ["resources"], "GET") => Route::own("resources.list", all::list),
        (true, [], "PUT") => Route::own("resourceGroups.createOrUpdate", groups::put),
        (true, [], "PATCH") => Route::own("resourceGroups.update", groups::patch),
        (true, [], "GET") => Route::own("resourceGroups.get", groups::get),
        (true, [], "HEAD") => Route::own("resourceGroups.checkExistence", groups::head),
        (true, [], "DELETE") => Route::own("resourceGroups.delete", groups::delete),
        (_, [] | ["resources"], _) | (false, ["resourcegroups" | "locations" | "providers"], _) => {
            return Some(Found::OtherMethod);
        }
        _ => return None,
    }))
}
