//! Subscriptions and resource groups. Recorded: PUT 201 at once, DELETE 202 with `Location` only.

use base64::Engine;
use serde_json::{Value, json};

use crate::answer::{Answer, Context, OperationHeaders, Reply, Start};
use crate::arm::compute::disk_work;
use crate::arm::engine::{delete, references};
use crate::arm::kinds::{self, GROUP};
use crate::arm::protocol::Schema;
use crate::arm::{lists, regions, tenant, writes};
use crate::fault;
use crate::latency::OperationKind;
use crate::operations::{Outcome, Style};
use crate::path;
use crate::phases::Moved;
use crate::state::{HypervisorStep, State};
use crate::store::Resource;

/// Seconds told to those who wait for a deletion: documented in examples (15).
const RETRY_AFTER: u64 = 15;

/// GET of a subscription.
pub(crate) fn get_subscription(context: &mut Context<'_>) -> Reply {
    let tenant = &context.shared.options.scenario.tenant_id;
    Ok(Answer::json(200, tenant::subscription(&context.request.path.subscription, tenant)))
}

/// Locations.
pub(crate) fn locations(context: &mut Context<'_>) -> Reply {
    let value: Vec<Value> = regions::all()
        .into_iter()
        .map(|name| {
            json!({
                "id": format!("{}/locations/{name}", context.request.subscription_id()),
                "name": name,
                "type": "Region",
                "displayName": name,
                "regionalDisplayName": name,
                "metadata": {"regionType": "Physical", "regionCategory": "Other"},
            })
        })
        .collect();
    Ok(Answer::json(200, json!({ "value": value })))
}

/// The document of a group. Recorded members.
pub(crate) fn document(id: &str, name: &str, location: &str, body: &Value) -> Value {
    let mut doc = json!({
        "id": id,
        "name": name,
        "type": GROUP,
        "location": location,
    });
    for member in ["managedBy", "tags"] {
        if let Some(value) = body.get(member) {
            doc[member] = value.clone();
        }
    }
    doc["properties"] = json!({ "provisioningState": "Succeeded" });
    doc
}

/// PUT. Recorded 201; documented 200 for a group that exists.
pub(crate) fn put(context: &mut Context<'_>) -> Reply {
    let body = context.read("ResourceGroup", "resourceGroup", false)?;
    let name = context.request.group().to_owned();
    let fits = (1..=90).contains(&name.chars().count())
        && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | '(' | ')'))
        && !name.ends_with('.');
    if !fits {
        return Err(fault::invalid_group_name(&name));
    }
    let location = path::location(body["location"].as_str().unwrap_or(""));
    regions::check(&location, "Microsoft.Resources/resourceGroups")?;
    let id = context.request.group_id();
    let now = context.now;
    match context.state.store.get(&id).map(|r| (r.doc.clone(), r.provisioning().to_owned())) {
        None => {
            let doc = document(&id, &name, &location, &body);
            context.state.store.insert(&id, Resource::new(doc.clone()), now);
            Ok(Answer::json(201, doc))
        }
        Some((_, state)) if state == "Deleting" => Err(fault::group_being_deleted(&name)),
        Some((old, _)) => {
            let there = old["location"].as_str().unwrap_or("");
            if there != location {
                return Err(fault::group_location_conflict(&location, there));
            }
            let own = old["id"].as_str().unwrap_or("").to_owned();
            let doc = document(&own, old["name"].as_str().unwrap_or(""), &location, &body);
            let shown = doc.clone();
            context.state.store.change(&own, now, |resource| resource.doc = doc.into());
            Ok(Answer::json(200, shown))
        }
    }
}

/// PATCH: tags. Documented.
pub(crate) fn patch(context: &mut Context<'_>) -> Reply {
    context.require_group()?;
    let id = context.request.group_id();
    writes::patch_tags(context, &id, Schema { name: "ResourceGroup", root: "resourceGroup" }, |_| ())
}

/// GET. Recorded.
pub(crate) fn get(context: &mut Context<'_>) -> Reply {
    let doc = context
        .state
        .store
        .shown(&context.request.group_id(), context.now)
        .ok_or_else(|| fault::group_not_found(context.request.group()))?;
    Ok(Answer::json(200, doc))
}

/// HEAD: 204 or 404. Documented.
pub(crate) fn head(context: &mut Context<'_>) -> Reply {
    match context.state.store.shown(&context.request.group_id(), context.now) {
        Some(_) => Ok(Answer::empty(204)),
        None => Err(fault::group_not_found(context.request.group())),
    }
}

/// List. Recorded shape; `$filter` by tag is documented.
pub(crate) fn list(context: &mut Context<'_>) -> Reply {
    let conditions = lists::conditions(context, &["tagname", "tagvalue"])?;
    lists::select(context, &lists::scope(context)?, Some(GROUP), |doc| {
        lists::tagged(doc, &conditions).then(|| doc.clone())
    })
}

/// DELETE. Recorded: 202 and `Location`; everything in the group goes with it.
pub(crate) fn delete(context: &mut Context<'_>) -> Reply {
    let id = context.request.group_id();
    let Some(resource) = context.state.store.get(&id) else {
        return Err(fault::group_not_found(context.request.group()));
    };
    let id = resource.id().to_owned();
    let location = resource.doc["location"].as_str().unwrap_or("").to_owned();
    let name = resource.name().to_ascii_uppercase().replace('-', ":2D");
    let job = json!({
        "jobId": format!("RESOURCEGROUPDELETIONJOB-{name}-{}", location.to_ascii_uppercase()),
        "jobLocation": location,
    });
    let token = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(job.to_string());
    let now = context.now;
    context.state.store.change(&id, now, |resource| resource.set_provisioning("Deleting"));
    let (effect_id, undo_id) = (id.clone(), id.clone());
    let inside = context.state.store.below(&id);
    let mut steps = Vec::new();
    for id in &inside {
        if context.state.store.power(id).is_some() {
            steps.push(HypervisorStep::DeleteMachine { vm: id.clone() });
        }
    }
    for id in inside.iter().filter(|id| !used_outside(context.state, &effect_id, id)) {
        if let Some(doc) = context
            .state
            .store
            .disk(id)
            .filter(|doc| [kinds::DISK, kinds::SNAPSHOT].iter().any(|kind| doc["type"] == *kind))
        {
            steps.push(HypervisorStep::Delete { disk: disk_work::facts(&doc) });
        }
    }
    let started = context.start(Start {
        style: Style::Group,
        kind: OperationKind::ResourceGroupDelete,
        resource: &id,
        collection: format!("operationresults/{token}"),
        retry_after: RETRY_AFTER,
        steps,
        effect: Box::new(move |state, at| remove(state, &effect_id, at).map(|()| Outcome::default())),
        undo: Some(Box::new(move |state, at, _| {
            // Documented: the provisioning state is rolled back.
            state.store.change(&undo_id, at, |resource| resource.set_provisioning("Succeeded"));
        })),
        together_with: None,
    });
    context.state.operations.alias(&token, &started.id);
    writes::record(context, OperationKind::ResourceGroupDelete, &id, &started, Moved::default());
    Ok(Answer::empty(202)
        .started(started, OperationHeaders { asynchronous: false, location: true, notification: false }))
}

/// Whether something outside of the group uses a resource of the group.
fn used_outside(state: &State, group: &str, id: &str) -> bool {
    let prefix = format!("{}/", path::key(group));
    let users = state.store.document(id).map(|doc| references::users(state, &doc)).unwrap_or_default();
    users.iter().any(|user| !path::key(user).starts_with(&prefix))
}

/// Removes a group with all that is in it, except what others use: then the group stays as well.
///
/// # Errors
///
/// Documented: `ResourceGroupDeletionBlocked` with the resources that stayed.
pub(crate) fn remove(state: &mut State, group: &str, at: std::time::Duration) -> Result<(), fault::Fault> {
    let inside = state.store.below(group);
    // Those that take others with them first: machines release their disks, some of which may live in other groups.
    for id in &inside {
        let of_type = state.store.get(id).and_then(|resource| state.types.of(&resource.doc));
        if let Some(remove) = of_type.and_then(|descriptor| descriptor.hooks.remove) {
            remove(state, id, at);
        }
    }
    // Judged before anything else goes: a network interface that stays keeps its network, and that a route table.
    let mut staying: Vec<String> = inside.iter().filter(|id| used_outside(state, group, id)).cloned().collect();
    let mut judged = 0;
    while !staying.is_empty() && judged < staying.len() {
        judged = staying.len();
        let used: Vec<String> = inside
            .iter()
            .filter(|id| !staying.contains(id))
            .filter(|id| {
                let users = state.store.document(id).map(|doc| references::users(state, &doc)).unwrap_or_default();
                users.iter().any(|user| staying.iter().any(|staying| path::same(staying, user)))
            })
            .cloned()
            .collect();
        staying.extend(used);
    }
    for id in inside {
        let is_group = path::same(&id, group);
        if !staying.contains(&id) && (!is_group || staying.is_empty()) {
            let kind = state.store.get(&id).and_then(|resource| state.types.of(&resource.doc));
            match kind {
                Some(descriptor) => delete::remove(descriptor, state, &id, at),
                None => {
                    state.store.remove(&id, at);
                }
            }
        }
    }
    if staying.is_empty() {
        return Ok(());
    }
    state.store.change(group, at, |resource| resource.set_provisioning("Succeeded"));
    Err(fault::group_deletion_blocked(path::name_of(group), &staying))
}
