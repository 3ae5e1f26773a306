//! The PATCH that changes tags and nothing else. Documented: the tags given replace all tags, at once.

use super::{Context, Reply};
use crate::answer::Answer;
use crate::store::Resource;

/// Reads the body by `type_name` and replaces the tags of a resource that exists; `also` is what else such a
/// write does to it.
pub(crate) fn patch(
    context: &mut Context<'_>,
    id: &str,
    type_name: &str,
    root: &'static str,
    also: impl FnOnce(&mut Resource),
) -> Reply {
    let body = context.read(type_name, root, true)?;
    let now = context.now;
    let doc = context.state.store.change(id, now, |resource| {
        if let Some(tags) = body.get("tags") {
            resource.doc["tags"] = tags.clone();
        }
        also(resource);
        resource.doc.clone()
    });
    Ok(Answer::json(200, doc.unwrap_or_default()))
}
