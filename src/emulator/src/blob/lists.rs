//! Lists of containers and blobs.
//!
//! Documented: the parameters, 5,000 entries a page, the order by name, with snapshots before their blob. A marker of the
//! emulator's is the position of the next entry's name, as hexadecimal digits. Deleted blobs are not kept, so that
//! `include=deleted` shows none.

use super::conditions;
use super::context::{self, Answer, Context, Reply, lease_words};
use super::documents::{Blob, BlobType, Container, Metadata};
use super::error::BlobError;
use super::xml::{self, element, optional};

const MOST: usize = 5_000;

/// What a list may include, besides the entries.
const INCLUDES: [&str; 13] = [
    "copy",
    "deleted",
    "deletedwithversions",
    "immutabilitypolicy",
    "legalhold",
    "metadata",
    "permissions",
    "snapshots",
    "system",
    "tags",
    "uncommittedblobs",
    "versions",
    "",
];

/// The parameters of a list.
struct Wanted {
    prefix: String,
    marker: String,
    /// The name from which the list goes on.
    from: String,
    delimiter: String,
    /// As given.
    max_results: String,
    most: usize,
    include: Vec<String>,
}

impl Wanted {
    fn read(context: &Context<'_>) -> Result<Self, BlobError> {
        let text = |name: &str| context.asked.query(name).to_owned();
        let (marker, max_results) = (text("marker"), text("maxresults"));
        let from =
            unhex(&marker).ok_or_else(|| BlobError::query("marker", &marker, "It is no marker of this list."))?;
        let most = match (max_results.as_str(), max_results.parse::<usize>()) {
            ("", _) => MOST,
            (text, Ok(0)) => return Err(BlobError::query_range("maxresults", text)),
            (_, Ok(most)) => most.min(MOST),
            (text, Err(_)) => return Err(BlobError::query("maxresults", text, "It is no number.")),
        };
        let given = context.asked.query.get("include").into_iter().flatten();
        let include: Vec<String> = given.flat_map(|value| value.split(',')).map(str::to_ascii_lowercase).collect();
        if let Some(unknown) = include.iter().find(|include| !INCLUDES.contains(&include.as_str())) {
            return Err(BlobError::query("include", unknown, "Invalid value."));
        }
        Ok(Self { prefix: text("prefix"), marker, from, delimiter: text("delimiter"), max_results, most, include })
    }

    fn includes(&self, what: &str) -> bool {
        self.include.iter().any(|include| include == what)
    }

    /// The list, with what has been asked and the name of the next entry.
    fn document(&self, context: &Context<'_>, container: Option<&str>, entries: &str, next: Option<&str>) -> Answer {
        let endpoint = xml::escaped(&context.asked.address.endpoint);
        let container = container.map(|name| format!(" ContainerName=\"{}\"", xml::escaped(name))).unwrap_or_default();
        let asked = |name: &str, text: &str| optional(name, Some(text).filter(|text| !text.is_empty()));
        let head = [
            asked("Prefix", &self.prefix),
            asked("Marker", &self.marker),
            asked("MaxResults", &self.max_results),
            asked("Delimiter", &self.delimiter),
        ]
        .concat();
        let next = element("NextMarker", &next.map(hex).unwrap_or_default());
        Answer::xml(xml::document(&format!(
            "<EnumerationResults ServiceEndpoint=\"{endpoint}\"{container}>{head}{entries}{next}</EnumerationResults>"
        )))
    }
}

fn hex(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<String> {
    let bytes: Option<Vec<u8>> =
        (0..text.len()).step_by(2).map(|at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok()).collect();
    String::from_utf8(bytes?).ok()
}

/// GET `/?comp=list`.
pub(super) fn containers(context: &mut Context<'_>) -> Reply {
    let wanted = Wanted::read(context)?;
    let all = context.documents.containers().into_iter().filter(|container| {
        container.deleted_until.is_none() && container.name.starts_with(&wanted.prefix) && container.name >= wanted.from
    });
    let (mut entries, mut next, mut count) = (String::new(), None, 0);
    for container in all {
        if count == wanted.most {
            next = Some(container.name);
            break;
        }
        count += 1;
        entries.push_str(&container_entry(&container, context.now, wanted.includes("metadata")));
    }
    Ok(wanted.document(context, None, &format!("<Containers>{entries}</Containers>"), next.as_deref()))
}

fn container_entry(container: &Container, now: i128, with_metadata: bool) -> String {
    let properties = [
        element("Last-Modified", &context::seconds_date(container.stand().modified)),
        element("Etag", &conditions::quoted(container.etag)),
        lease(container.lease.as_ref(), now),
        optional("PublicAccess", container.public_access.as_deref()),
        element("HasImmutabilityPolicy", "false"),
        element("HasLegalHold", "false"),
    ]
    .concat();
    let metadata = if with_metadata { metadata(&container.metadata) } else { String::new() };
    let name = element("Name", &container.name);
    format!("<Container>{name}<Properties>{properties}</Properties>{metadata}</Container>")
}

fn lease(lease: Option<&crate::leases::Lease>, now: i128) -> String {
    let (status, state, duration) = lease_words(lease, now);
    [element("LeaseStatus", status), element("LeaseState", state), optional("LeaseDuration", duration)].concat()
}

fn metadata(metadata: &Metadata) -> String {
    let all: String = metadata.iter().map(|(name, value)| element(name, value)).collect();
    if all.is_empty() { "<Metadata />".to_owned() } else { format!("<Metadata>{all}</Metadata>") }
}

/// GET `?restype=container&comp=list`.
pub(super) fn blobs(context: &mut Context<'_>) -> Reply {
    let container = context.container()?;
    let wanted = Wanted::read(context)?;
    let all = context.documents.blobs(&container.name).into_iter().filter(|blob| {
        blob.name.starts_with(&wanted.prefix)
            && blob.name >= wanted.from
            && (blob.snapshot.is_none() || wanted.includes("snapshots"))
    });
    let (mut entries, mut next, mut count) = (String::new(), None, 0);
    let mut last: (Option<String>, Option<String>) = (None, None);
    for blob in all {
        let below = blob.name.get(wanted.prefix.len()..).unwrap_or("");
        let folder = Some(&wanted.delimiter).filter(|delimiter| !delimiter.is_empty());
        let folder = folder.and_then(|delimiter| {
            let at = below.find(delimiter.as_str())?;
            Some(format!("{}{}{delimiter}", wanted.prefix, below.get(..at)?))
        });
        let is_told = folder.is_some() && last.1 == folder;
        // A page ends between names, so that the next one begins with all of a name.
        if count >= wanted.most && !is_told && last.0.as_ref() != Some(&blob.name) {
            next = Some(blob.name);
            break;
        }
        last = (Some(blob.name.clone()), folder.clone());
        match folder {
            Some(_) if is_told => continue,
            Some(folder) => {
                entries.push_str(&format!("<BlobPrefix>{}</BlobPrefix>", element("Name", &folder)));
            }
            None => entries.push_str(&blob_entry(&blob, context.now, wanted.includes("metadata"))),
        }
        count += 1;
    }
    let entries = format!("<Blobs>{entries}</Blobs>");
    Ok(wanted.document(context, Some(&container.name), &entries, next.as_deref()))
}

fn blob_entry(blob: &Blob, now: i128, with_metadata: bool) -> String {
    let content = |header: &str| blob.content.get(header).map_or("", String::as_str);
    let kind = blob.content.get("content-type").map_or("application/octet-stream", String::as_str);
    let number = (blob.blob_type == BlobType::Page).then(|| blob.sequence_number.to_string());
    let copied = blob.copied.as_ref();
    let progress = copied.map(|_| format!("{0}/{0}", blob.length));
    let properties = [
        element("Creation-Time", &context::date(blob.created)),
        element("Last-Modified", &context::seconds_date(blob.stand().modified)),
        element("Etag", &conditions::bare(blob.etag)),
        element("Content-Length", &blob.length.to_string()),
        element("Content-Type", kind),
        element("Content-Encoding", content("content-encoding")),
        element("Content-Language", content("content-language")),
        element("Content-MD5", content("content-md5")),
        element("Cache-Control", content("cache-control")),
        element("Content-Disposition", content("content-disposition")),
        optional("x-ms-blob-sequence-number", number.as_deref()),
        element("BlobType", blob.blob_type.word()),
        if blob.snapshot.is_none() { lease(blob.lease.as_ref(), now) } else { String::new() },
        optional("CopyId", copied.map(|copied| copied.id.as_str())),
        optional("CopyStatus", copied.map(|_| "success")),
        optional("CopySource", copied.map(|copied| copied.source.as_str())),
        optional("CopyProgress", progress.as_deref()),
        optional("CopyCompletionTime", copied.map(|copied| context::date(copied.at)).as_deref()),
        element("ServerEncrypted", "true"),
    ]
    .concat();
    let metadata = if with_metadata { metadata(&blob.metadata) } else { String::new() };
    let head = [element("Name", &blob.name), optional("Snapshot", blob.snapshot.as_deref())].concat();
    format!("<Blob>{head}<Properties>{properties}</Properties>{metadata}</Blob>")
}
