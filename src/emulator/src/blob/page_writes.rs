//! Pages: written, cleared, and told.
//!
//! Unverified: what a body of another length than its range is answered. Checksums of bodies (`Content-MD5`,
//! `x-ms-content-crc64`) are not looked at, and the difference to an earlier snapshot is not told.

use super::context::{Answer, Context, Reply, failed};
use super::documents::{Blob, BlobType};
use super::error::{self, BlobError};
use super::pages::{PAGE, Span};
use super::xml;

/// Documented.
const WRITE_MOST: u64 = 4 << 20;
const RANGES_MOST: usize = 10_000;

/// PUT `?comp=page`.
pub(super) fn put(context: &mut Context<'_>) -> Reply {
    let is_update = match context.asked.required("x-ms-page-write")?.to_ascii_lowercase().as_str() {
        "update" => true,
        "clear" => false,
        other => return Err(BlobError::header("x-ms-page-write", other)),
    };
    if context.asked.headers.contains_key("x-ms-copy-source") {
        return Err(BlobError::not_emulated("Put Page From URL"));
    }
    let mut blob = context.written_page_blob()?;
    check_sequence_number(context, &blob)?;
    let span = context.asked.pages(blob.length)?;
    let length = context.asked.body.len() as u64;
    let expected = if is_update { span.1 - span.0 } else { 0 };
    if is_update && expected > WRITE_MOST {
        return Err(error::BODY_TOO_LARGE.into());
    }
    if length != expected {
        return Err(BlobError::header("Content-Length", &length.to_string()));
    }
    let files = &context.documents.blobs.files;
    match is_update {
        true => {
            files.write(&blob.file, span.0, &context.asked.body).map_err(|error| failed(&error))?;
            blob.pages.write(span);
        }
        false => {
            files.clear(&blob.file, span).map_err(|error| failed(&error))?;
            blob.pages.clear(span);
        }
    }
    context.keep(&mut blob);
    Ok(Answer::new(201)
        .stand(blob.stand())
        .with("x-ms-blob-sequence-number", blob.sequence_number.to_string())
        .with("x-ms-request-server-encrypted", "true"))
}

/// Documented.
fn check_sequence_number(context: &Context<'_>, blob: &Blob) -> Result<(), BlobError> {
    let number = |name: &str| context.asked.number::<u64>(&format!("x-ms-if-sequence-number-{name}"));
    let holds = number("le")?.is_none_or(|most| blob.sequence_number <= most)
        && number("lt")?.is_none_or(|above| blob.sequence_number < above)
        && number("eq")?.is_none_or(|same| blob.sequence_number == same);
    if holds { Ok(()) } else { Err(error::SEQUENCE_NUMBER_CONDITION.into()) }
}

/// GET `?comp=pagelist`. Documented: 10,000 ranges at most where the request limits them, and then a marker.
pub(super) fn ranges(context: &mut Context<'_>) -> Reply {
    let previous = context.asked.query("prevsnapshot");
    if !previous.is_empty() || context.asked.headers.contains_key("x-ms-previous-snapshot-url") {
        return Err(BlobError::query("prevsnapshot", previous, "The emulator does not tell differences."));
    }
    let blob = context.read_blob()?;
    if blob.blob_type != BlobType::Page {
        return Err(error::INVALID_BLOB_TYPE.into());
    }
    let span: Span = match context.asked.range()? {
        None => (0, blob.length),
        Some((first, _)) if first >= blob.length => return Err(error::INVALID_RANGE.into()),
        Some((first, last)) => {
            let end = last.map_or(blob.length, |last| last.saturating_add(1).min(blob.length));
            (first / PAGE * PAGE, end.next_multiple_of(PAGE))
        }
    };
    let from = match context.asked.query("marker") {
        "" => span.0,
        marker => marker.parse().map_err(|_| BlobError::query("marker", marker, "It is no marker of this list."))?,
    };
    let most = match context.asked.query("maxresults") {
        "" => usize::MAX,
        text => match text.parse::<usize>() {
            Ok(0) => return Err(BlobError::query_range("maxresults", text)),
            Ok(most) => most.min(RANGES_MOST),
            Err(_) => return Err(BlobError::query("maxresults", text, "It is no number.")),
        },
    };
    let mut rest = blob.pages.within((from.max(span.0), span.1));
    let shown: String = rest
        .by_ref()
        .take(most)
        .map(|(start, end)| {
            let (start, end) = (xml::element("Start", &start.to_string()), xml::element("End", &(end - 1).to_string()));
            format!("<PageRange>{start}{end}</PageRange>")
        })
        .collect();
    let next = rest.next().map(|next| xml::element("NextMarker", &next.0.to_string())).unwrap_or_default();
    Ok(Answer::xml(xml::document(&format!("<PageList>{shown}{next}</PageList>")))
        .stand(blob.stand())
        .with("x-ms-blob-content-length", blob.length.to_string()))
}
