//! Deployments of templates to a resource group (`Microsoft.Resources/deployments`), as tools send them: the Azure CLI
//! makes machines and load balancers by them.
//!
//! Documented: PUT answers 201 or 200 with the state `Accepted` and `Azure-AsyncOperation`; the operation is `Running`, then
//! `Succeeded`, or `Failed` with `DeploymentFailed` and the refusal of each resource among its details. The resources are
//! written by the caller's own roles, each after those that it depends on has ended (`crate::deploy`). What of templates is
//! understood is told in [`template`](super::template).

use std::time::Duration;

use serde_json::{Value, json};

use super::template::{self, Deployment, Plan, Scope as TemplateScope};
use crate::answer::{Answer, Context, Reply};
use crate::arm::descriptor::{Extra, Handler};
use crate::arm::engine::references;
use crate::arm::protocol::Scope;
use crate::arm::{kinds, lists, polling};
use crate::fault::{self, Fault};
use crate::latency::OperationKind;
use crate::operations::{Order, Outcome, Style};
use crate::path;
use crate::state::{State, Work};
use crate::store::Resource;

/// Seconds told to those who poll. Unverified.
const RETRY_AFTER: u64 = 5;

pub(super) const ROUTES: [Extra; 7] = [
    route("GET", "deployments", "deployments.list", list),
    route("PUT", "deployments/*", "deployments.createOrUpdate", put),
    route("GET", "deployments/*", "deployments.get", get),
    route("HEAD", "deployments/*", "deployments.checkExistence", head),
    route("DELETE", "deployments/*", "deployments.delete", delete),
    route("POST", "deployments/*/validate", "deployments.validate", validate),
    route("GET", "deployments/*/operationstatuses/*", "operations.get", status),
];

const fn route(method: &'static str, path: &'static str, operation: &'static str, handler: Handler) -> Extra {
    Extra { method, scope: Scope::Group, path, operation, handler, limit: None, since: None, headers: &[] }
}

fn id_of(context: &Context<'_>) -> String {
    format!("{}/providers/{}/{}", context.request.group_id(), kinds::DEPLOYMENT, context.request.segment(1))
}

/// The properties of a resource, or of a part of one, such as a NAT rule.
fn properties(state: &State, id: &str) -> Option<Value> {
    let whole = || Some(state.store.document(id)?["properties"].clone());
    whole().or_else(|| Some(references::child(state, id)?.1["properties"].take()))
}

fn scope(context: &Context<'_>, group: &Value) -> TemplateScope {
    TemplateScope {
        group_id: path::of(group).to_owned(),
        location: group["location"].as_str().unwrap_or("").to_owned(),
        subscription: context.request.path.subscription.clone(),
        tenant: context.shared.options.scenario.tenant_id.clone(),
        // What a resource has become is known at the end alone.
        reference: Box::new(|_| None),
    }
}

/// The plan of the template in a request's body.
fn planned(context: &Context<'_>) -> Result<(Plan, TemplateScope), Fault> {
    let group = context.require_group()?;
    let body = context.request.body()?;
    let scope = scope(context, &group);
    Ok((template::plan(&body["properties"], &scope)?, scope))
}

/// The deployment's document. Documented members.
fn document(context: &Context<'_>, id: &str, plan: &Plan, state: &str) -> Value {
    json!({
        "id": id,
        "name": path::name_of(id),
        "type": kinds::DEPLOYMENT,
        "properties": {
            "templateHash": context.state.drawn(&plan.parameters.to_string()).to_string(),
            "parameters": plan.parameters,
            "mode": "Incremental",
            "provisioningState": state,
            "timestamp": context.state.stamp(context.now),
            "duration": "PT0S",
            "correlationId": crate::derived::guid_of(&format!("{id}/{}", context.now.as_nanos())),
            "providers": [],
            "dependencies": [],
        },
    })
}

fn resource_ids(plan: &Plan) -> Vec<String> {
    plan.resources.iter().map(|resource| resource.id.clone()).collect()
}

/// PUT.
fn put(context: &mut Context<'_>) -> Reply {
    let (plan, scope) = planned(context)?;
    let id = id_of(context);
    let now = context.now;
    let old = context.state.store.get(&id).map(|resource| (resource.id().to_owned(), resource.busy.clone()));
    if let Some((_, Some(busy))) = &old
        && context.state.operations.is_running(busy)
    {
        return Err(fault::deployment_active(path::name_of(&id)));
    }
    let doc = document(context, &id, &plan, "Accepted");
    match &old {
        Some((id, _)) => {
            context.state.store.change(id, now, |resource| resource.doc = doc.clone().into());
        }
        None => context.state.store.insert(&id, Resource::new(doc.clone()), now),
    }
    let operation = accept(context, &id, plan, scope);
    let url = format!(
        "{}{id}/operationStatuses/{operation}?api-version={}&t=638&c=lazuli&s=emulator",
        context.request.base, context.request.api_version
    );
    let seconds = context.shared.options.retry_after.unwrap_or_else(|| context.shared.options.scaled(RETRY_AFTER));
    let status = if old.is_some() { 200 } else { 201 };
    Ok(Answer::json(status, doc).with("azure-asyncoperation", url).with("retry-after", seconds.to_string()))
}

/// Begins the operation, which waits for the task that writes the resources.
fn accept(context: &mut Context<'_>, id: &str, plan: Plan, scope: TemplateScope) -> String {
    let operation = context.state.guid();
    let now = context.now;
    let ids = resource_ids(&plan);
    let steps = plan.resources.clone();
    let (effect_id, undo_id) = (id.to_owned(), id.to_owned());
    let nth = context.state.store.change(id, now, |resource| {
        resource.writes += 1;
        resource.writes
    });
    let due = now + context.state.draw(&context.shared.options, OperationKind::Deployment, id, nth.unwrap_or(0));
    let effect = move |state: &mut State, at: Duration| -> Result<Outcome, Fault> {
        let found: Vec<(String, Value)> =
            ids.iter().filter_map(|id| Some((id.clone(), properties(state, id)?))).collect();
        // An emulator that ends takes its operations to their end; a deployment whose resources are not all there has failed.
        if found.len() < ids.len() {
            return Err(fault::deployment_failed(&[]));
        }
        let lookup = move |wanted: &str| {
            let mut named =
                found.iter().filter(|(id, _)| path::same(id, wanted) || path::name_of(id).eq_ignore_ascii_case(wanted));
            named.next().map(|(_, properties)| properties.clone())
        };
        let outputs = plan.outputs(&TemplateScope { reference: Box::new(lookup), ..scope })?;
        state.store.change(&effect_id, at, |resource| {
            resource.set_provisioning("Succeeded");
            resource.busy = None;
            resource.doc["properties"]["outputs"] = outputs;
            resource.doc["properties"]["outputResources"] = ids.iter().map(|id| json!({ "id": id })).collect();
        });
        Ok(Outcome::default())
    };
    let undo = move |state: &mut State, at: Duration, fault: &Fault| {
        state.store.change(&undo_id, at, |resource| {
            resource.set_provisioning("Failed");
            resource.busy = None;
            resource.doc["properties"]["error"] = fault.object();
        });
    };
    context.state.operations.accept(Order {
        id: operation.clone(),
        style: Style::Deployment,
        kind: OperationKind::Deployment,
        resource: id.to_owned(),
        started: now,
        due,
        retry_after: None,
        late_failure: context.request.late_failure.clone(),
        held: true,
        work: Work { effect: Box::new(effect), undo: Some(Box::new(undo)) },
    });
    context.state.store.change(id, now, |resource| {
        resource.set_provisioning("Running");
        resource.busy = Some(operation.clone());
    });
    context.state.deployments.push(Deployment {
        operation: operation.clone(),
        steps,
        principal: context.principal.to_owned(),
        base: context.request.base.clone(),
    });
    operation
}

/// POST `validate`: what the template makes, and nothing is made.
fn validate(context: &mut Context<'_>) -> Reply {
    let (plan, _) = planned(context)?;
    let mut doc = document(context, &id_of(context), &plan, "Succeeded");
    doc["properties"]["validatedResources"] = resource_ids(&plan).iter().map(|id| json!({ "id": id })).collect();
    Ok(Answer::json(200, doc))
}

fn found(context: &Context<'_>) -> Result<Value, Fault> {
    context.require_group()?;
    let id = id_of(context);
    let shown = context.state.store.shown(&id, context.now).map(crate::document::Document::into_value);
    shown.ok_or_else(|| fault::deployment_not_found(path::name_of(&id)))
}

/// GET.
fn get(context: &mut Context<'_>) -> Reply {
    Ok(Answer::json(200, found(context)?))
}

/// HEAD.
fn head(context: &mut Context<'_>) -> Reply {
    found(context).map(|_| Answer::empty(204))
}

/// Those of a group.
fn list(context: &mut Context<'_>) -> Reply {
    context.require_group()?;
    lists::select(context, &context.request.group_id(), Some(kinds::DEPLOYMENT), |doc| Some(doc.clone()))
}

/// DELETE: the record goes at once, and nothing that it made. Documented but for the moment.
fn delete(context: &mut Context<'_>) -> Reply {
    let id = id_of(context);
    let busy = context.state.store.get(&id).and_then(|resource| resource.busy.clone());
    if busy.is_some_and(|busy| context.state.operations.is_running(&busy)) {
        return Err(fault::deployment_active(path::name_of(&id)));
    }
    let now = context.now;
    Ok(Answer::empty(if context.state.store.remove(&id, now).is_some() { 202 } else { 204 }))
}

/// The operation's object.
fn status(context: &mut Context<'_>) -> Reply {
    let id = context.request.segment(3).to_owned();
    polling::object(context, &id)
}
