//! DELETE of resources.

use super::{changed, preconditions, put, references};
use crate::answer::{Answer, Context, Reply, Start};
use crate::arm::descriptor::{Descriptor, Shape};
use crate::operations::Outcome;
use crate::path;
use crate::state::State;

/// DELETE. Documented: 204 when absent, refused while in use.
pub(crate) fn delete(descriptor: &'static Descriptor, context: &mut Context<'_>) -> Reply {
    context.require_group()?;
    let Some(doc) = context.state.store.document(&descriptor.id(context)) else {
        return Ok(Answer::empty(204));
    };
    preconditions(descriptor.family, context, Some(&doc))?;
    references::unused(descriptor, context.state, &doc)?;
    let id = path::of(&doc).to_owned();
    put::refuse_if_busy(descriptor, context, &id)?;
    let (now, answered) = (context.now, descriptor.delete);
    if answered.shape == Shape::Synchronous {
        remove(descriptor, context.state, &id, now);
        return Ok(Answer::empty(answered.status));
    }
    context.state.store.change(&id, now, |resource| resource.set_provisioning("Deleting"));
    let (effect_id, undo_id) = (id.clone(), id.clone());
    let started = put::start(
        descriptor.family,
        context,
        Start {
            style: descriptor.family.style,
            kind: descriptor.latency.delete,
            resource: &id,
            collection: descriptor.family.operations(doc["location"].as_str().unwrap_or("")),
            retry_after: 0,
            steps: (descriptor.hooks.steps)(Some(&doc), None),
            effect: Box::new(move |state, at| {
                // It may have come into use since.
                if let Some(doc) = state.store.document(&effect_id) {
                    references::unused(descriptor, state, &doc)?;
                }
                remove(descriptor, state, &effect_id, at);
                Ok(Outcome::default())
            }),
            undo: Some(Box::new(move |state, at, _| {
                state.store.change(&undo_id, at, |resource| {
                    resource.busy = None;
                    resource.set_provisioning("Succeeded");
                });
            })),
            together_with: None,
        },
    );
    put::supersede(descriptor, context, &id, &started.id);
    context.state.store.change(&id, now, |resource| resource.busy = Some(started.id.clone()));
    Ok(Answer::empty(answered.status).started(started, answered.headers(descriptor.family)))
}

/// Takes a resource away with all that is below it.
pub(crate) fn remove(descriptor: &'static Descriptor, state: &mut State, id: &str, at: std::time::Duration) {
    for below in state.store.below(id).into_iter().rev() {
        let removed = state.store.remove(&below, at);
        if let Some(removed) = removed.filter(|_| path::same(&below, id)) {
            changed(descriptor, state, Some(&removed.doc), None, at);
        }
    }
}
