//! A request to the blob service, with its headers read.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::HeaderMap;

use super::address::Address;
use super::documents::Metadata;
use super::error::{self, BlobError};
use super::pages::{PAGE, Span};
use crate::leases::Action;

/// Documented: names and values together.
const METADATA_MOST: usize = 8 * 1024;

/// The headers that tell of a blob's content: as they are shown, and as they are set.
pub(super) const CONTENT_HEADERS: [(&str, &str); 6] = [
    ("content-type", "x-ms-blob-content-type"),
    ("content-encoding", "x-ms-blob-content-encoding"),
    ("content-language", "x-ms-blob-content-language"),
    ("content-md5", "x-ms-blob-content-md5"),
    ("cache-control", "x-ms-blob-cache-control"),
    ("content-disposition", "x-ms-blob-content-disposition"),
];

/// A request.
pub(super) struct Asked {
    pub(super) method: String,
    /// As sent, without query.
    pub(super) raw_path: String,
    pub(super) address: Address,
    /// Decoded values by name in lower case.
    pub(super) query: BTreeMap<String, Vec<String>>,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    pub(super) is_over_tls: bool,
}

impl Asked {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim)
    }

    /// A parameter of the query; empty where it is missing.
    pub(super) fn query(&self, name: &str) -> &str {
        self.query.get(name).and_then(|values| values.first()).map_or("", String::as_str)
    }

    /// The snapshot that is asked about.
    pub(super) fn snapshot(&self) -> Option<&str> {
        Some(self.query("snapshot")).filter(|snapshot| !snapshot.is_empty())
    }

    pub(super) fn required(&self, name: &str) -> Result<&str, BlobError> {
        self.header(name).ok_or_else(|| BlobError::header_missing(name))
    }

    /// A number in a header.
    pub(super) fn number<T: std::str::FromStr>(&self, name: &str) -> Result<Option<T>, BlobError> {
        match self.header(name) {
            None => Ok(None),
            Some(text) => text.parse().map(Some).map_err(|_| BlobError::header(name, text)),
        }
    }

    /// Documented: names are those of C# identifiers. In lower case, because HTTP keeps no other.
    pub(super) fn metadata(&self) -> Result<Metadata, BlobError> {
        let mut metadata = Metadata::new();
        for name in self.headers.keys() {
            let Some(own) = name.as_str().strip_prefix("x-ms-meta-") else { continue };
            if own.is_empty() {
                return Err(error::EMPTY_METADATA_KEY.into());
            }
            let is_identifier = own.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
                && !own.starts_with(|char: char| char.is_ascii_digit());
            let values: Vec<&str> =
                self.headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).map(str::trim).collect();
            if !is_identifier || values.is_empty() {
                return Err(error::INVALID_METADATA.into());
            }
            metadata.insert(own.to_owned(), values.join(","));
        }
        let size: usize = metadata.iter().map(|(name, value)| name.len() + value.len()).sum();
        if size > METADATA_MOST { Err(error::METADATA_TOO_LARGE.into()) } else { Ok(metadata) }
    }

    /// What the request says of a blob's content; none where it says nothing.
    pub(super) fn content(&self) -> Option<BTreeMap<String, String>> {
        let given = CONTENT_HEADERS.into_iter().filter_map(|(shown, set)| {
            let value = self.header(set)?;
            Some((shown.to_owned(), value.to_owned()))
        });
        let given: BTreeMap<String, String> = given.collect();
        (!given.is_empty()).then_some(given)
    }

    /// `x-ms-range` or `Range`: the first byte, and the last where it is named.
    pub(super) fn range(&self) -> Result<Option<(u64, Option<u64>)>, BlobError> {
        let name = if self.headers.contains_key("x-ms-range") { "x-ms-range" } else { "range" };
        let Some(text) = self.header(name) else { return Ok(None) };
        let read = || {
            let (first, last) = text.strip_prefix("bytes=")?.split_once('-')?;
            let last = if last.is_empty() { None } else { Some(last.parse().ok()?) };
            Some((first.parse().ok()?, last))
        };
        match read() {
            Some((first, last)) if last.is_none_or(|last| first <= last) => Ok(Some((first, last))),
            _ => Err(BlobError::header(name, text)),
        }
    }

    /// The range of a write of pages of a blob of this length. Documented: whole pages of the blob.
    pub(super) fn pages(&self, length: u64) -> Result<Span, BlobError> {
        let range = self.range()?.ok_or_else(|| BlobError::header_missing("x-ms-range"))?;
        let (start, last) = (range.0, range.1.ok_or(error::INVALID_PAGE_RANGE)?);
        let end = last.saturating_add(1);
        let is_whole = start.is_multiple_of(PAGE) && end.is_multiple_of(PAGE);
        if is_whole && end <= length { Ok((start, end)) } else { Err(error::INVALID_PAGE_RANGE.into()) }
    }

    /// The lease that the request names.
    pub(super) fn lease_id(&self) -> Result<Option<String>, BlobError> {
        self.guid("x-ms-lease-id")
    }

    fn guid(&self, name: &str) -> Result<Option<String>, BlobError> {
        match self.header(name) {
            None | Some("") => Ok(None),
            Some(text) => match uuid::Uuid::try_parse(text) {
                Ok(id) => Ok(Some(id.to_string())),
                Err(_) => Err(BlobError::header(name, text)),
            },
        }
    }

    /// What a request does to a lease; `generated` is the id of a lease for which none is proposed.
    pub(super) fn lease_action(&self, generated: impl FnOnce() -> String) -> Result<Action, BlobError> {
        let action = self.required("x-ms-lease-action")?;
        let id = || self.lease_id()?.ok_or_else(|| BlobError::header_missing("x-ms-lease-id"));
        match action.to_ascii_lowercase().as_str() {
            "acquire" => {
                let duration = self.required("x-ms-lease-duration")?;
                let length = match duration.parse() {
                    Ok(-1) => None,
                    Ok(seconds) if (15..=60).contains(&seconds) => Some(seconds),
                    _ => return Err(BlobError::header("x-ms-lease-duration", duration)),
                };
                let proposed = self.guid("x-ms-proposed-lease-id")?.unwrap_or_else(generated);
                Ok(Action::Acquire { proposed, length })
            }
            "renew" => Ok(Action::Renew { id: id()? }),
            "change" => {
                let proposed = self.guid("x-ms-proposed-lease-id")?;
                let proposed = proposed.ok_or_else(|| BlobError::header_missing("x-ms-proposed-lease-id"))?;
                Ok(Action::Change { id: id()?, proposed })
            }
            "release" => Ok(Action::Release { id: id()? }),
            "break" => match self.number::<i64>("x-ms-lease-break-period")? {
                Some(period) if !(0..=60).contains(&period) => {
                    Err(BlobError::header("x-ms-lease-break-period", &period.to_string()))
                }
                period => Ok(Action::Break { period }),
            },
            _ => Err(BlobError::header("x-ms-lease-action", action)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(pairs: &[(&str, &str)]) -> Asked {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(http::HeaderName::try_from(*name).unwrap(), value.parse().unwrap());
        }
        let address =
            Address { account: "a".to_owned(), container: None, blob: None, endpoint: "http://a/".to_owned() };
        Asked {
            method: "PUT".to_owned(),
            raw_path: "/".to_owned(),
            address,
            query: BTreeMap::new(),
            headers,
            body: Bytes::new(),
            is_over_tls: false,
        }
    }

    #[test]
    fn pages_are_whole_and_within_the_blob() {
        let pages = |range: &str| asked(&[("x-ms-range", range), ("range", "bytes=1-2")]).pages(2048);
        assert_eq!(pages("bytes=0-511"), Ok((0, 512)));
        assert_eq!(pages("bytes=512-2047"), Ok((512, 2048)));
        for (range, code) in [
            ("bytes=0-510", "InvalidPageRange"),
            ("bytes=1-511", "InvalidPageRange"),
            ("bytes=512-2559", "InvalidPageRange"),
            ("bytes=512-", "InvalidPageRange"),
            ("bytes=1024-511", "InvalidHeaderValue"),
            ("pages=0-511", "InvalidHeaderValue"),
        ] {
            assert_eq!(pages(range).map_err(|error| error.code), Err(code.to_owned()), "{range}");
        }
        assert_eq!(asked(&[]).pages(512).unwrap_err().code, "MissingRequiredHeader");
    }

    #[test]
    fn metadata_has_names_of_identifiers() {
        let metadata = |name: &str, value: &str| asked(&[(name, value)]).metadata().map_err(|error| error.code);
        assert_eq!(metadata("x-ms-meta-createdBy", "k8s").unwrap()["createdby"], "k8s");
        assert_eq!(metadata("x-ms-meta-1a", "x"), Err("InvalidMetadata".to_owned()));
        assert_eq!(metadata("x-ms-meta-a.b", "x"), Err("InvalidMetadata".to_owned()));
        assert_eq!(metadata("x-ms-meta-", "x"), Err("EmptyMetadataKey".to_owned()));
        assert_eq!(metadata("x-ms-meta-a", &"x".repeat(8 * 1024)), Err("MetadataTooLarge".to_owned()));
    }

    #[test]
    fn lease_actions_are_read_with_their_bounds() {
        let id = "6d5d5d5d-0000-4000-8000-000000000001";
        let read = |pairs: &[(&str, &str)]| asked(pairs).lease_action(|| "new".to_owned()).map_err(|error| error.code);
        let (action, duration) = ("x-ms-lease-action", "x-ms-lease-duration");
        assert_eq!(
            read(&[(action, "Acquire"), (duration, "-1")]),
            Ok(Action::Acquire { proposed: "new".to_owned(), length: None })
        );
        assert_eq!(read(&[(action, "break")]), Ok(Action::Break { period: None }));
        assert_eq!(read(&[(action, "renew"), ("x-ms-lease-id", id)]), Ok(Action::Renew { id: id.to_owned() }));
        for wrong in [
            vec![(action, "steal")],
            vec![(action, "acquire"), (duration, "14")],
            vec![(action, "acquire"), (duration, "61")],
            vec![(action, "acquire"), (duration, "-1"), ("x-ms-proposed-lease-id", "x")],
            vec![(action, "break"), ("x-ms-lease-break-period", "61")],
        ] {
            assert_eq!(read(&wrong), Err("InvalidHeaderValue".to_owned()), "{wrong:?}");
        }
        for missing in [
            vec![],
            vec![(action, "acquire")],
            vec![(action, "renew")],
            vec![(action, "change"), ("x-ms-lease-id", id)],
        ] {
            assert_eq!(read(&missing), Err("MissingRequiredHeader".to_owned()), "{missing:?}");
        }
    }
}
