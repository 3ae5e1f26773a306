//! Copies within an account.
//!
//! Documented: 202 with the id and the status of the copy, which is `success` where it has ended already, as here. A source in
//! another account would need a public container or an access signature, and neither is emulated: it is not found.

use super::address;
use super::conditions::Conditions;
use super::context::{Answer, Context, Reply, failed};
use super::documents::{Blob, Copied};
use super::error::{self, BlobError};

/// PUT with `x-ms-copy-source`.
pub(super) fn start(context: &mut Context<'_>) -> Reply {
    if context.asked.header("x-ms-requires-sync") == Some("true") {
        return Err(BlobError::not_emulated("Copy Blob From URL"));
    }
    context.refuse_snapshot()?;
    let given = context.asked.required("x-ms-copy-source")?.to_owned();
    context.container()?;
    let source = source(context, &given)?;
    let (container, name) = (context.container_name().to_owned(), context.blob_name().to_owned());
    let old = context.documents.blob(&container, &name, None);
    context.check_replacement(old.as_ref())?;
    if !Conditions::read(&context.asked.headers, "x-ms-source-")?.allow_write(Some(source.stand())) {
        return Err(error::SOURCE_CONDITION_NOT_MET.into());
    }
    let metadata = context.asked.metadata()?;
    let files = &mut context.documents.blobs.files;
    let file = files.copy(&source.file).map_err(|error| failed(&error))?;
    if let Some(old) = &old {
        files.remove(&old.file);
    }
    let id = context.new_id.clone();
    let mut blob = Blob {
        name,
        snapshot: None,
        file,
        created: context.now,
        metadata: if metadata.is_empty() { source.metadata.clone() } else { metadata },
        device: old.as_ref().and_then(|old| old.device),
        lease: old.and_then(|old| old.lease),
        copied: Some(Copied { id: id.clone(), source: given, at: context.now }),
        ..source
    };
    context.keep(&mut blob);
    Ok(Answer::new(202).stand(blob.stand()).with("x-ms-copy-id", id).with("x-ms-copy-status", "success"))
}

/// The blob or snapshot that a URL names.
fn source(context: &Context<'_>, given: &str) -> Result<Blob, BlobError> {
    let address = address::of_url(given, context.names);
    let own = address.filter(|address| address.account == context.asked.address.account);
    let found = own.and_then(|address| {
        let url = url::Url::parse(given).ok()?;
        let snapshot = url.query_pairs().find(|(name, _)| name == "snapshot").map(|(_, value)| value.into_owned());
        let container = address.container?;
        let is_there = context.documents.container(&container).is_some_and(|own| own.deleted_until.is_none());
        context.documents.blob(&container, &address.blob?, snapshot.as_deref()).filter(|_| is_there)
    });
    found.ok_or_else(|| error::CANNOT_VERIFY_COPY_SOURCE.into())
}

/// PUT `?comp=copy`. All copies have ended.
pub(super) fn abort(context: &mut Context<'_>) -> Reply {
    context.written_blob()?;
    Err(error::NO_PENDING_COPY.into())
}
