//! Blobs as wholes: made, read, changed, deleted, leased, with their snapshots.
//!
//! Block blobs are what one Put Blob makes of at most 4 MiB, so that there can be others than page blobs. Append blobs, block
//! lists, tiers, tags, versions and soft delete are not emulated.

use std::collections::BTreeMap;

use super::containers::{leased, leased_status};
use super::context::{self, Answer, Body, Context, Reply, failed};
use super::documents::{Blob, BlobType};
use super::error::{self, BlobError};
use super::pages::{PAGE, PageMap};
use super::request::CONTENT_HEADERS;
use crate::arm::storage::skus;
use crate::leases;

/// Documented.
const LENGTH_MOST: u64 = 8 << 40;
const SEQUENCE_NUMBER_MOST: u64 = (1 << 63) - 1;
const NAME_MOST: usize = 1024;

/// The length of a page blob that a request names. Documented: whole pages, 8 TiB at most.
fn page_blob_length(context: &Context<'_>) -> Result<Option<u64>, BlobError> {
    const NAME: &str = "x-ms-blob-content-length";
    match context.asked.number::<u64>(NAME)? {
        Some(length) if !length.is_multiple_of(PAGE) || length > LENGTH_MOST => {
            Err(BlobError::header(NAME, &length.to_string()))
        }
        length => Ok(length),
    }
}

fn sequence_number(context: &Context<'_>) -> Result<Option<u64>, BlobError> {
    const NAME: &str = "x-ms-blob-sequence-number";
    match context.asked.number::<u64>(NAME)? {
        Some(number) if number > SEQUENCE_NUMBER_MOST => Err(BlobError::header(NAME, &number.to_string())),
        number => Ok(number),
    }
}

/// Documented: which kinds of accounts have which blobs. The code is unverified.
fn check_type(context: &Context<'_>, blob_type: BlobType) -> Result<(), BlobError> {
    let is_taken = match blob_type {
        BlobType::Page => skus::has_page_blobs(context.account),
        BlobType::Block => skus::has_block_blobs(context.account),
    };
    if is_taken { Ok(()) } else { Err(error::BLOB_TYPE_NOT_SUPPORTED.into()) }
}

/// PUT.
pub(super) fn put(context: &mut Context<'_>) -> Reply {
    let blob_type = match context.asked.required("x-ms-blob-type")? {
        "PageBlob" => BlobType::Page,
        "BlockBlob" => BlobType::Block,
        "AppendBlob" => return Err(BlobError::not_emulated("append blobs")),
        other => return Err(BlobError::header("x-ms-blob-type", other)),
    };
    if context.blob_name().chars().count() > NAME_MOST {
        return Err(error::NAME_LENGTH.into());
    }
    context.refuse_snapshot()?;
    context.container()?;
    let (container, name) = (context.container_name().to_owned(), context.blob_name().to_owned());
    let old = context.documents.blob(&container, &name, None);
    context.check_replacement(old.as_ref())?;
    check_type(context, blob_type)?;
    let (metadata, sequence_number) = (context.asked.metadata()?, sequence_number(context)?.unwrap_or(0));
    let length = match blob_type {
        BlobType::Page => {
            let length = page_blob_length(context)?;
            let length = length.ok_or_else(|| BlobError::header_missing("x-ms-blob-content-length"))?;
            if !context.asked.body.is_empty() {
                return Err(BlobError::header("Content-Length", &context.asked.body.len().to_string()));
            }
            length
        }
        BlobType::Block => context.asked.body.len() as u64,
    };
    let files = &mut context.documents.blobs.files;
    let file = files.create(length).map_err(|error| failed(&error))?;
    files.write(&file, 0, &context.asked.body).map_err(|error| failed(&error))?;
    if let Some(old) = &old {
        files.remove(&old.file);
    }
    let mut blob = Blob {
        name,
        snapshot: None,
        blob_type,
        length,
        file,
        pages: PageMap::default(),
        sequence_number,
        etag: 0,
        created: context.now,
        modified: context.now,
        metadata,
        content: content(context),
        device: old.as_ref().and_then(|old| old.device),
        lease: old.and_then(|old| old.lease),
        copied: None,
    };
    context.keep(&mut blob);
    Ok(Answer::new(201).stand(blob.stand()).with("x-ms-request-server-encrypted", "true"))
}

/// What a new blob shows of its content: also what the plain headers say.
fn content(context: &Context<'_>) -> BTreeMap<String, String> {
    let mut content = context.asked.content().unwrap_or_default();
    for (shown, _) in CONTENT_HEADERS {
        if let Some(value) = context.asked.header(shown).filter(|_| !content.contains_key(shown)) {
            content.insert(shown.to_owned(), value.to_owned());
        }
    }
    content
}

fn shown(blob: &Blob, now: i128) -> Answer {
    let mut answer = Answer::new(200).stand(blob.stand()).metadata(&blob.metadata);
    if !blob.content.contains_key("content-type") {
        answer = answer.with("content-type", "application/octet-stream");
    }
    answer.headers.extend(blob.content.clone());
    answer = answer
        .with("accept-ranges", "bytes")
        .with("x-ms-blob-type", blob.blob_type.word())
        .with("x-ms-creation-time", context::date(blob.created))
        .with("x-ms-server-encrypted", "true");
    if blob.blob_type == BlobType::Page {
        answer = answer.with("x-ms-blob-sequence-number", blob.sequence_number.to_string());
    }
    if blob.snapshot.is_none() {
        answer = answer.lease(blob.lease.as_ref(), now);
    }
    if let Some(copied) = &blob.copied {
        answer = answer
            .with("x-ms-copy-id", &copied.id)
            .with("x-ms-copy-source", &copied.source)
            .with("x-ms-copy-status", "success")
            .with("x-ms-copy-progress", format!("{0}/{0}", blob.length))
            .with("x-ms-copy-completion-time", context::date(copied.at));
    }
    answer
}

/// HEAD.
pub(super) fn properties(context: &mut Context<'_>) -> Reply {
    let blob = context.read_blob()?;
    Ok(shown(&blob, context.now).with("content-length", blob.length.to_string()))
}

/// GET.
pub(super) fn get(context: &mut Context<'_>) -> Reply {
    let blob = context.read_blob()?;
    let range = context.asked.range()?;
    let (start, end) = match range {
        None => (0, blob.length),
        Some((first, _)) if first >= blob.length => return Err(error::INVALID_RANGE.into()),
        Some((first, last)) => (first, last.map_or(blob.length, |last| last.saturating_add(1).min(blob.length))),
    };
    let file = context.documents.blobs.files.open(&blob.file).map_err(|error| failed(&error))?;
    let mut answer = shown(&blob, context.now);
    if range.is_some() {
        answer.status = 206;
        answer = answer.with("content-range", format!("bytes {start}-{}/{}", end.saturating_sub(1), blob.length));
    }
    answer.body = Body::File { file, start, length: end - start };
    Ok(answer)
}

/// GET, HEAD `?comp=metadata`.
pub(super) fn metadata(context: &mut Context<'_>) -> Reply {
    let blob = context.read_blob()?;
    Ok(Answer::new(200).stand(blob.stand()).metadata(&blob.metadata))
}

/// PUT `?comp=metadata`.
pub(super) fn set_metadata(context: &mut Context<'_>) -> Reply {
    let mut blob = context.written_blob()?;
    blob.metadata = context.asked.metadata()?;
    context.keep(&mut blob);
    Ok(Answer::new(200).stand(blob.stand()).with("x-ms-request-server-encrypted", "true"))
}

/// PUT `?comp=properties`. Documented: a page blob that shrinks loses its pages; headers that are left out lose their value
/// where any is given. That a request that gives none of these changes none is unverified.
pub(super) fn set_properties(context: &mut Context<'_>) -> Reply {
    let mut blob = context.written_blob()?;
    let length = page_blob_length(context)?;
    let action = context.asked.header("x-ms-sequence-number-action").map(str::to_ascii_lowercase);
    if (length.is_some() || action.is_some()) && blob.blob_type != BlobType::Page {
        return Err(error::INVALID_BLOB_TYPE.into());
    }
    let given = sequence_number(context)?;
    let missing = || BlobError::header_missing("x-ms-blob-sequence-number");
    match action.as_deref() {
        None => {}
        Some("update") => blob.sequence_number = given.ok_or_else(missing)?,
        Some("max") => blob.sequence_number = blob.sequence_number.max(given.ok_or_else(missing)?),
        Some("increment") => match (given, blob.sequence_number < SEQUENCE_NUMBER_MOST) {
            (Some(given), _) => return Err(BlobError::header("x-ms-blob-sequence-number", &given.to_string())),
            (None, false) => return Err(error::SEQUENCE_NUMBER_INCREMENT.into()),
            (None, true) => blob.sequence_number += 1,
        },
        Some(other) => return Err(BlobError::header("x-ms-sequence-number-action", other)),
    }
    if let Some(length) = length {
        context.documents.blobs.files.resize(&blob.file, length).map_err(|error| failed(&error))?;
        blob.pages.truncate(length);
        blob.length = length;
    }
    if let Some(content) = context.asked.content() {
        blob.content = content;
    }
    context.keep(&mut blob);
    let answer = Answer::new(200).stand(blob.stand());
    Ok(match blob.blob_type {
        BlobType::Page => answer.with("x-ms-blob-sequence-number", blob.sequence_number.to_string()),
        BlobType::Block => answer,
    })
}

/// DELETE.
pub(super) fn delete(context: &mut Context<'_>) -> Reply {
    const SNAPSHOTS: &str = "x-ms-delete-snapshots";
    let blob = context.blob()?;
    context.check_write(Some(&blob))?;
    let container = context.container_name().to_owned();
    let snapshots = match blob.snapshot {
        None => context.documents.snapshots(&container, &blob.name),
        Some(_) => Vec::new(),
    };
    let (with_snapshots, with_blob) = match context.asked.header(SNAPSHOTS).map(str::to_ascii_lowercase).as_deref() {
        Some(given) if blob.snapshot.is_some() => return Err(BlobError::header(SNAPSHOTS, given)),
        None if !snapshots.is_empty() => return Err(error::SNAPSHOTS_PRESENT.into()),
        None => (false, true),
        Some("include") => (true, true),
        Some("only") => (true, false),
        Some(other) => return Err(BlobError::header(SNAPSHOTS, other)),
    };
    for snapshot in snapshots.iter().filter(|_| with_snapshots) {
        context.documents.remove_blob(&container, snapshot);
    }
    if with_blob {
        context.documents.remove_blob(&container, &blob);
    }
    Ok(Answer::new(202).with("x-ms-delete-type-permanent", "true"))
}

/// PUT `?comp=snapshot`. Documented: a lease keeps nobody from it; a snapshot with the blob's metadata has its etag.
pub(super) fn snapshot(context: &mut Context<'_>) -> Reply {
    context.refuse_snapshot()?;
    let blob = context.blob()?;
    let conditions = super::conditions::Conditions::read(&context.asked.headers, "")?;
    if !conditions.allow_write(Some(blob.stand())) {
        return Err(error::CONDITION_NOT_MET.into());
    }
    let given = context.asked.lease_id()?;
    context::check_lease(blob.lease.as_ref(), given.as_deref(), context.now, false, &context::OF_BLOB)?;
    let metadata = context.asked.metadata()?;
    let container = context.container_name().to_owned();
    let mut at = context.now;
    while context.documents.blob(&container, &blob.name, Some(&context::snapshot_time(at))).is_some() {
        at += 100;
    }
    let time = context::snapshot_time(at);
    let file = context.documents.blobs.files.copy(&blob.file).map_err(|error| failed(&error))?;
    let mut taken = Blob { snapshot: Some(time.clone()), file, lease: None, device: None, ..blob };
    if !metadata.is_empty() {
        taken.metadata = metadata;
        taken.etag = context.documents.blobs.next_etag(context.now);
        taken.modified = context.now;
    }
    context.documents.put_blob(&container, &taken);
    Ok(Answer::new(201).stand(taken.stand()).with("x-ms-snapshot", time).with("x-ms-request-server-encrypted", "false"))
}

/// PUT `?comp=lease`. Documented: the etag stays.
pub(super) fn lease(context: &mut Context<'_>) -> Reply {
    context.refuse_snapshot()?;
    let mut blob = context.blob()?;
    if !super::conditions::Conditions::read(&context.asked.headers, "")?.allow_write(Some(blob.stand())) {
        return Err(error::CONDITION_NOT_MET.into());
    }
    let generated = context.new_id.clone();
    let action = context.asked.lease_action(|| generated)?;
    let status = leased_status(&action);
    let (lease, answered) = leases::act(blob.lease.take(), action, context.now)?;
    blob.lease = lease;
    let container = context.container_name().to_owned();
    context.documents.put_blob(&container, &blob);
    Ok(leased(Answer::new(status).stand(blob.stand()), answered))
}
