//! DELETE of resources.

use super::{changed, location_of, preconditions, put, references};
use crate::answer::{Answer, Context, Reply, Start};
use crate::arm::descriptor::Descriptor;
use crate::arm::protocol::Shape;
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
    (descriptor.hooks.deletable)(context, &doc)?;
    let id = path::of(&doc).to_owned();
    put::refuse_if_busy(descriptor, context, &id)?;
    let begun = (descriptor.hooks.begun)(context, Some(&doc), None)?;
    let (now, answered) = (context.now, descriptor.delete);
    if answered.shape == Shape::Synchronous {
        remove(descriptor, context.state, &id, now);
        return Ok(Answer::empty(answered.status));
    }
    let location = location_of(descriptor, context, &doc);
    context.state.store.change(&id, now, |resource| resource.set_provisioning("Deleting"));
    let (effect_id, undo_id) = (id.clone(), id.clone());
    let started = put::start(
        descriptor.family,
        context,
        Start {
            style: descriptor.family.style,
            kind: begun.kind.unwrap_or(descriptor.latency.delete),
            resource: &id,
            collection: descriptor.family.operations(&location),
            retry_after: 0,
            steps: begun.steps,
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
                (descriptor.hooks.failed)(state, &undo_id, at);
            })),
            together_with: None,
        },
    );
    put::supersede(descriptor, context, &id, &started.id);
    context.state.store.change(&id, now, |resource| resource.busy = Some(started.id.clone()));
    Ok(Answer::empty(answered.status).started(started, descriptor.family.headers(answered)))
}

/// Takes a resource away with all that is below it.
pub(crate) fn remove(descriptor: &'static Descriptor, state: &mut State, id: &str, at: std::time::Duration) {
    for below in state.store.below(id).into_iter().rev() {
        let of_type = state.store.get(&below).and_then(|resource| state.types.of(&resource.doc));
        let own = of_type.filter(|_| !path::same(&below, id)).and_then(|descriptor| descriptor.hooks.remove);
        if let Some(remove) = own {
            remove(state, &below, at);
            continue;
        }
        let Some(removed) = state.store.remove(&below, at) else {
            continue;
        };
        let own = state.types.of(&removed.doc).unwrap_or(descriptor);
        changed(own, state, Some(&removed.doc), None, at);
    }
}
