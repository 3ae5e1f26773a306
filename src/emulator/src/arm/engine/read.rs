//! GET and LIST of resources.

use super::references::BackReferences;
use crate::answer::{Answer, Context, Reply};
use crate::arm::descriptor::Descriptor;
use crate::arm::lists;
use crate::arm::protocol::Etags;
use crate::fault::{self, Fault};
use crate::path;

/// GET.
pub(crate) fn get(descriptor: &'static Descriptor, context: &mut Context<'_>) -> Reply {
    context.require_group()?;
    let found = context.state.store.shown(&descriptor.id(context), context.now);
    let doc = found.ok_or_else(|| descriptor.not_found(context))?;
    check_expansion(descriptor, context)?;
    let doc = BackReferences::of(descriptor, context.state).shown_in(doc);
    if descriptor.family.etags == Etags::None {
        return Ok(Answer::json(200, doc));
    }
    let etag = doc["etag"].as_str().unwrap_or("").to_owned();
    Ok(Answer::json(200, doc).with("etag", etag))
}

/// Documented: `$expand` names a property that leads to other resources; an empty one names none. What it leads
/// to is not shown here in full.
fn check_expansion(descriptor: &Descriptor, context: &Context<'_>) -> Result<(), Fault> {
    if descriptor.expands.is_empty() {
        return Ok(());
    }
    let asked = context.request.query.get("$expand");
    for path in asked.into_iter().flat_map(|asked| asked.split(',')) {
        let property = path.trim().split('/').next().unwrap_or("");
        if !descriptor.expands.iter().any(|known| known.eq_ignore_ascii_case(property)) {
            return Err(fault::invalid_expansion(property));
        }
    }
    Ok(())
}

/// Lists in a group, in a subscription, in a location of one, or below a parent.
pub(crate) fn list(descriptor: &'static Descriptor, context: &mut Context<'_>) -> Reply {
    let scope = match descriptor.parent {
        None => lists::scope(context)?,
        Some(parent) => {
            context.require_group()?;
            let id = parent.id(context);
            if !context.state.store.contains(&id) {
                return Err(parent.not_found(context));
            }
            id
        }
    };
    let in_location = context.request.segment(0).eq_ignore_ascii_case("locations");
    let location = in_location.then(|| path::location(context.request.segment(1)));
    let shown = BackReferences::of(descriptor, context.state);
    lists::select(context, &scope, Some(descriptor.kind), |doc| {
        let here = location.as_ref().is_none_or(|location| doc["location"] == location.as_str());
        here.then(|| shown.shown_in(doc.clone()))
    })
}
