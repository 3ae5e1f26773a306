//! The objects, their versions, and the changes of the recent past.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use serde_json::{Map, Value, json};
use tokio::sync::watch;
use uuid::Uuid;

use crate::{
    Options, Refused, clock::Clock, patch::Patch, resource::Resource, select::Selector, service, status, strategy,
    tokens::Tokens,
};

/// How many unfinished lists are kept. The page after the oldest one is answered 410.
const OPEN_LISTS: usize = 256;

/// A change of one object.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    pub(crate) version: u64,
    pub(crate) resource: &'static Resource,
    pub(crate) before: Option<Arc<Value>>,
    /// `None`: the object is gone.
    pub(crate) after: Option<Arc<Value>>,
}

/// Where an object is: collection, namespace, name.
type Place = (&'static str, &'static str, String, String);

/// What is left of a list: its version and its next objects.
#[derive(Debug)]
struct OpenList {
    version: u64,
    rest: Vec<Arc<Value>>,
}

/// A page of a list.
pub(crate) struct Page {
    pub(crate) version: u64,
    pub(crate) items: Vec<Arc<Value>>,
    pub(crate) token: Option<String>,
    pub(crate) remaining: usize,
}

#[derive(Debug, Default)]
struct World {
    version: u64,
    /// Changes up to this version are forgotten.
    compacted: u64,
    objects: BTreeMap<Place, Arc<Value>>,
    changes: VecDeque<Change>,
    lists: HashMap<u64, OpenList>,
    list_ids: u64,
    made: u64,
    addresses: service::Allocator,
}

#[derive(Debug)]
pub(crate) struct Store {
    world: Mutex<World>,
    head: watch::Sender<u64>,
    /// Counts up when all watches must end.
    drops: watch::Sender<u64>,
    history: usize,
    seed: u64,
    pub(crate) clock: Clock,
    pub(crate) tokens: Tokens,
}

/// What a write does with the object's status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// The write changes all but the status, where the status is a subresource.
    Main,
    /// The write changes metadata and status.
    Status,
}

/// Whether a write is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keeping {
    Kept,
    /// The answer is that of a write that is kept, and nothing changes: the query's `dryRun=All`.
    DryRun,
}

/// What a write brings.
pub(crate) enum Write<'a> {
    Whole(&'a Value),
    Patch(Patch<'a>),
}

fn place(resource: &'static Resource, namespace: &str, name: &str) -> Place {
    let namespace = if resource.namespaced { namespace } else { "" };
    (resource.group, resource.plural, namespace.to_owned(), name.to_owned())
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The phase that the API server gives to a new object of a kind. Source: the strategies of these kinds in Kubernetes.
fn first_phase(resource: &Resource) -> Option<&'static str> {
    match (resource.group, resource.plural) {
        ("", "namespaces") => Some("Active"),
        ("", "persistentvolumes" | "persistentvolumeclaims" | "pods") => Some("Pending"),
        _ => None,
    }
}

fn finalizers(object: &Value) -> &[Value] {
    object.pointer("/metadata/finalizers").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn set(object: &mut Value, key: &str, value: Value) {
    object["metadata"][key] = value;
}

/// Takes `null` members out, as Go's decoder does.
fn without_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, member| !member.is_null());
            map.values_mut().for_each(without_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(without_nulls),
        _ => {}
    }
}

/// Gives an update the members of metadata that no update changes: those of the server, and the object's namespace, which
/// a client may leave out.
fn keep_servers_members(before: &Value, after: &mut Value) {
    let metadata = after["metadata"].as_object_mut().expect("its name was compared");
    keep_members(&before["metadata"], metadata, SERVERS.into_iter().chain(["namespace"]));
    metadata.remove("managedFields");
}

/// Makes members what they were before, the absent ones included.
pub(crate) fn keep_members<'a>(
    before: &Value,
    after: &mut Map<String, Value>,
    keys: impl IntoIterator<Item = &'a str>,
) {
    for key in keys {
        match before.get(key) {
            Some(kept) => drop(after.insert(key.to_owned(), kept.clone())),
            None => drop(after.remove(key)),
        }
    }
}

/// The members of metadata that only the server writes.
const SERVERS: [&str; 7] = [
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "selfLink",
    "generation",
    "resourceVersion",
];

impl Store {
    pub(crate) fn new(options: Options) -> Self {
        Self {
            world: Mutex::new(World::default()),
            head: watch::Sender::new(0),
            drops: watch::Sender::new(0),
            history: options.history.max(1),
            seed: options.seed,
            clock: Clock::new(options.start),
            tokens: Tokens::default(),
        }
    }

    fn world(&self) -> MutexGuard<'_, World> {
        // Objects change in one step, at the end of a request: one that panics has changed nothing, and the next ones go on.
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Panics as a request might that this crate has a mistake about.
    #[cfg(test)]
    pub(crate) fn panic_inside(&self) {
        let _world = self.world();
        panic!("a test asks for it");
    }

    pub(crate) fn head(&self) -> u64 {
        self.world().version
    }

    pub(crate) fn heads(&self) -> watch::Receiver<u64> {
        self.head.subscribe()
    }

    pub(crate) fn drops(&self) -> watch::Receiver<u64> {
        self.drops.subscribe()
    }

    pub(crate) fn drop_watches(&self) {
        self.drops.send_modify(|drops| *drops += 1);
    }

    pub(crate) fn compact(&self) {
        let mut world = self.world();
        world.changes.clear();
        world.lists.clear();
        world.compacted = world.version;
    }

    pub(crate) fn get(&self, resource: &'static Resource, namespace: &str, name: &str) -> Result<Arc<Value>, Refused> {
        let world = self.world();
        world.objects.get(&place(resource, namespace, name)).cloned().ok_or_else(|| status::not_found(resource, name))
    }

    pub(crate) fn all(&self, resource: &'static Resource) -> Vec<Arc<Value>> {
        self.world().of_kind(resource).cloned().collect()
    }

    /// The state of a collection: its version and what is selected of it.
    pub(crate) fn state(&self, resource: &'static Resource, selector: &Selector) -> (u64, Vec<Arc<Value>>) {
        let world = self.world();
        let selected = world.of_kind(resource).filter(|object| selector.selects(object)).cloned().collect();
        (world.version, selected)
    }

    /// A first page, or the one that a token names. `limit` 0: everything.
    pub(crate) fn page(
        &self,
        resource: &'static Resource,
        selector: &Selector,
        limit: usize,
        token: Option<&str>,
    ) -> Result<Page, Refused> {
        let (version, mut items) = match token {
            None => self.state(resource, selector),
            Some(token) => {
                let id = token.parse().map_err(|_| status::bad_request("continue key is not valid"))?;
                let list = self.world().lists.remove(&id).ok_or_else(status::token_expired)?;
                (list.version, list.rest)
            }
        };
        if limit == 0 || items.len() <= limit {
            return Ok(Page { version, items, token: None, remaining: 0 });
        }
        let rest = items.split_off(limit);
        let remaining = rest.len();
        let mut world = self.world();
        world.list_ids += 1;
        let id = world.list_ids;
        world.lists.insert(id, OpenList { version, rest });
        world.lists.retain(|old, _| *old + OPEN_LISTS as u64 > id);
        Ok(Page { version, items, token: Some(id.to_string()), remaining })
    }

    /// The changes of a collection after a version, and the version up to which they go.
    pub(crate) fn changes_after(&self, resource: &'static Resource, after: u64) -> Result<(u64, Vec<Change>), Refused> {
        let world = self.world();
        if after < world.compacted {
            return Err(status::expired(after, world.compacted));
        }
        let first = world.changes.partition_point(|change| change.version <= after);
        let of_kind = |change: &&Change| std::ptr::eq(change.resource, resource);
        Ok((world.version, world.changes.iter().skip(first).filter(of_kind).cloned().collect()))
    }

    /// Creates an object as a client does.
    pub(crate) fn create(
        &self,
        resource: &'static Resource,
        mut object: Value,
        keeping: Keeping,
    ) -> Result<Arc<Value>, Refused> {
        let mut world = self.world();
        self.prepare(&mut world, resource, &mut object)?;
        strategy::check_metadata(resource, &object)?;
        if resource.has_status {
            object.as_object_mut().expect("was checked").remove("status");
        }
        if let Some(phase) = first_phase(resource) {
            object["status"] = json!({"phase": phase});
        }
        let at = place(resource, text(&object, "/metadata/namespace"), text(&object, "/metadata/name"));
        if world.objects.contains_key(&at) {
            return Err(status::already_exists(resource, &at.3));
        }
        let mut addresses = None;
        if resource.plural == "services" {
            service::on_create(resource, &mut object, addresses.insert(world.addresses.clone()))?;
        }
        if keeping == Keeping::DryRun {
            return Ok(Arc::new(object));
        }
        if let Some(addresses) = addresses {
            world.addresses = addresses;
        }
        Ok(self.keep(&mut world, resource, at, object))
    }

    /// Creates or replaces an object with its status, whatever its version.
    pub(crate) fn put(&self, resource: &'static Resource, mut object: Value) -> Result<Arc<Value>, Refused> {
        let mut world = self.world();
        if resource.namespaced && object["metadata"].is_object() && text(&object, "/metadata/namespace").is_empty() {
            set(&mut object, "namespace", json!("default"));
        }
        let at = place(resource, text(&object, "/metadata/namespace"), text(&object, "/metadata/name"));
        let before = world.objects.get(&at).cloned();
        let (uid, made) = (object["metadata"]["uid"].clone(), object["metadata"]["creationTimestamp"].clone());
        self.prepare(&mut world, resource, &mut object)?;
        if let Some(before) = &before {
            for key in ["uid", "creationTimestamp"] {
                set(&mut object, key, before["metadata"][key].clone());
            }
        }
        if uid.is_string() {
            set(&mut object, "uid", uid);
        }
        if made.is_string() {
            set(&mut object, "creationTimestamp", made);
        }
        if resource.plural == "services" {
            match &before {
                None => service::on_create(resource, &mut object, &mut world.addresses)?,
                Some(before) => service::on_update(resource, before, &mut object, &mut world.addresses)?,
            }
        }
        Ok(self.keep(&mut world, resource, at, object))
    }

    /// Changes an object.
    pub(crate) fn update(
        &self,
        resource: &'static Resource,
        (namespace, name): (&str, &str),
        (part, keeping): (Part, Keeping),
        write: &Write<'_>,
    ) -> Result<(Arc<Value>, Vec<String>), Refused> {
        let mut world = self.world();
        let at = place(resource, namespace, name);
        let before = world.objects.get(&at).cloned().ok_or_else(|| status::not_found(resource, name))?;
        let (mut after, warnings) = match write {
            Write::Whole(object) => {
                strategy::check_version(resource, name, object)?;
                ((*object).clone(), Vec::new())
            }
            Write::Patch(patch) => patch.applied_to(&before)?,
        };
        without_nulls(&mut after);
        strategy::as_kept(resource, &mut after);
        Self::check_identity(resource, &before, &after)?;
        strategy::check_metadata(resource, &after)?;
        keep_servers_members(&before, &mut after);
        let dying = before.pointer("/metadata/deletionTimestamp").is_some();
        if dying && finalizers(&after).iter().any(|one| !finalizers(&before).contains(one)) {
            let why = "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted";
            return Err(status::invalid(resource, name, why));
        }
        Self::keep_other_part(resource, &before, &mut after, part);
        strategy::on_update(resource, &before, &mut after, part)?;
        let mut addresses = None;
        if resource.plural == "services" && part == Part::Main {
            service::on_update(resource, &before, &mut after, addresses.insert(world.addresses.clone()))?;
        }
        if resource.plural == "services" && part == Part::Status {
            service::on_status(resource, &mut after)?;
        }
        if after == *before {
            return Ok((before, warnings));
        }
        if keeping == Keeping::DryRun {
            return Ok((Arc::new(after), warnings));
        }
        if let Some(addresses) = addresses {
            world.addresses = addresses;
        }
        let object = match dying && finalizers(&after).is_empty() {
            true => self.remove(&mut world, &at, Some(after)),
            false => self.keep(&mut world, resource, at, after),
        };
        Ok((object, warnings))
    }

    /// The name, UID and version that a write names must be those of the object.
    fn check_identity(resource: &'static Resource, before: &Value, after: &Value) -> Result<(), Refused> {
        let name = text(before, "/metadata/name");
        for key in ["name", "namespace"] {
            let (had, has) = (text(before, &format!("/metadata/{key}")), text(after, &format!("/metadata/{key}")));
            if had != has && !(key == "namespace" && has.is_empty()) {
                return Err(status::bad_request(format!(
                    "the {key} of the object ({has}) does not match the {key} on the URL ({had})"
                )));
            }
        }
        let uid = text(after, "/metadata/uid");
        if !uid.is_empty() && uid != text(before, "/metadata/uid") {
            let why = format!(
                "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
                text(before, "/metadata/uid")
            );
            return Err(status::conflict(resource, name, &why));
        }
        let version = text(after, "/metadata/resourceVersion");
        if !version.is_empty() && version != text(before, "/metadata/resourceVersion") {
            return Err(status::conflict(resource, name, status::MODIFIED));
        }
        Ok(())
    }

    /// A write of the main part leaves the status, a write of the status leaves all but metadata.
    fn keep_other_part(resource: &Resource, before: &Value, after: &mut Value, part: Part) {
        let map = after.as_object_mut().expect("was checked");
        map.insert("apiVersion".to_owned(), json!(resource.api_version()));
        map.insert("kind".to_owned(), json!(resource.kind));
        let before = before.as_object().expect("what is kept is an object");
        match part {
            Part::Main if !resource.has_status => {}
            Part::Main => match before.get("status") {
                Some(kept) => drop(map.insert("status".to_owned(), kept.clone())),
                None => drop(map.remove("status")),
            },
            Part::Status => {
                map.retain(|key, _| ["apiVersion", "kind", "metadata", "status"].contains(&key.as_str()));
                for (key, kept) in before {
                    if !["metadata", "status"].contains(&key.as_str()) {
                        map.insert(key.clone(), kept.clone());
                    }
                }
            }
        }
    }

    /// Deletes an object, or marks it where finalizers hold it. `options` is the body of the request.
    pub(crate) fn delete(
        &self,
        resource: &'static Resource,
        namespace: &str,
        name: &str,
        options: &Value,
        keeping: Keeping,
    ) -> Result<(Arc<Value>, bool), Refused> {
        let mut world = self.world();
        let at = place(resource, namespace, name);
        let before = world.objects.get(&at).cloned().ok_or_else(|| status::not_found(resource, name))?;
        for key in ["uid", "resourceVersion"] {
            let asked = text(options, &format!("/preconditions/{key}"));
            let has = text(&before, &format!("/metadata/{key}"));
            if !asked.is_empty() && asked != has {
                let why = format!("Precondition failed: {key} in precondition: {asked}, {key} in object meta: {has}");
                return Err(status::conflict(resource, name, &why));
            }
        }
        if keeping == Keeping::DryRun {
            let gone = finalizers(&before).is_empty();
            return Ok((before, gone));
        }
        if finalizers(&before).is_empty() {
            return Ok((self.remove(&mut world, &at, None), true));
        }
        if before.pointer("/metadata/deletionTimestamp").is_some() {
            return Ok((before, false));
        }
        let mut dying = (*before).clone();
        set(&mut dying, "deletionTimestamp", json!(self.clock.stamp()));
        set(&mut dying, "deletionGracePeriodSeconds", json!(0));
        Ok((self.keep(&mut world, resource, at, dying), false))
    }

    /// What every new object goes through.
    fn prepare(&self, world: &mut World, resource: &'static Resource, object: &mut Value) -> Result<(), Refused> {
        if !object.is_object() || !object["metadata"].is_object() {
            return Err(status::bad_request("the object has no metadata"));
        }
        without_nulls(object);
        strategy::as_kept(resource, object);
        world.made += 1;
        let metadata = object["metadata"].as_object_mut().expect("was checked");
        for key in SERVERS {
            metadata.remove(key);
        }
        metadata.remove("managedFields");
        if let (None, Some(prefix)) = (metadata.get("name"), metadata.get("generateName").and_then(Value::as_str)) {
            let name = format!("{prefix}{:05x}", world.made);
            metadata.insert("name".to_owned(), json!(name));
        }
        let name = metadata.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
        if name.is_empty() {
            return Err(status::invalid(
                resource,
                "",
                "metadata.name: Required value: name or generateName is required",
            ));
        }
        let fits = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || "-.".contains(letter);
        if name.len() > 253 || !name.chars().all(fits) || name.starts_with(['-', '.']) || name.ends_with(['-', '.']) {
            let why = format!(
                "metadata.name: Invalid value: {name:?}: a lowercase RFC 1123 subdomain must consist of \
                lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character"
            );
            return Err(status::invalid(resource, &name, &why));
        }
        if !resource.namespaced {
            metadata.remove("namespace");
        }
        let uid = Uuid::new_v5(&Uuid::from_u64_pair(self.seed, 0), &world.made.to_be_bytes());
        metadata.insert("uid".to_owned(), json!(uid.to_string()));
        metadata.insert("creationTimestamp".to_owned(), json!(self.clock.stamp()));
        object["apiVersion"] = json!(resource.api_version());
        object["kind"] = json!(resource.kind);
        Ok(())
    }

    fn keep(&self, world: &mut World, resource: &'static Resource, at: Place, mut object: Value) -> Arc<Value> {
        world.version += 1;
        set(&mut object, "resourceVersion", json!(world.version.to_string()));
        let after = Arc::new(object);
        let before = world.objects.insert(at, Arc::clone(&after));
        self.tell(world, Change { version: world.version, resource, before, after: Some(Arc::clone(&after)) });
        after
    }

    /// Takes an object out. `last`: its state when it went, where that is not the one before.
    fn remove(&self, world: &mut World, at: &Place, last: Option<Value>) -> Arc<Value> {
        let before = world.objects.remove(at).expect("was read under this lock");
        let resource = crate::resource::ALL
            .iter()
            .find(|resource| resource.group == at.0 && resource.plural == at.1)
            .expect("every object has a kind");
        world.version += 1;
        let mut gone = last.unwrap_or_else(|| (*before).clone());
        set(&mut gone, "resourceVersion", json!(world.version.to_string()));
        if resource.plural == "services" {
            world.addresses.release(&gone);
        }
        let gone = Arc::new(gone);
        self.tell(world, Change { version: world.version, resource, before: Some(Arc::clone(&gone)), after: None });
        gone
    }

    fn tell(&self, world: &mut World, change: Change) {
        let version = change.version;
        world.changes.push_back(change);
        while world.changes.len() > self.history {
            let forgotten = world.changes.pop_front().expect("there are some");
            world.compacted = forgotten.version;
        }
        self.head.send_replace(version);
    }
}

impl World {
    fn of_kind(&self, resource: &'static Resource) -> impl Iterator<Item = &Arc<Value>> {
        let from = (resource.group, resource.plural, String::new(), String::new());
        self.objects
            .range(from..)
            .take_while(|((group, plural, ..), _)| *group == resource.group && *plural == resource.plural)
            .map(|(_, object)| object)
    }
}
