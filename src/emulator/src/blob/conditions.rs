//! `If-Match` and its like, as the blob service reads them.

use http::HeaderMap;
use jiff::fmt::rfc2822::DateTimeParser;

use super::error::{self, BlobError};

/// The conditions of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Conditions {
    if_match: Option<String>,
    if_none_match: Option<String>,
    /// Seconds of Unix time.
    if_modified_since: Option<i64>,
    if_unmodified_since: Option<i64>,
}

/// What a condition is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stand {
    pub(super) etag: u64,
    /// Seconds of Unix time.
    pub(super) modified: i64,
}

/// An etag as headers show it.
pub(super) fn quoted(etag: u64) -> String {
    format!("\"{}\"", bare(etag))
}

/// An etag as lists show it.
pub(super) fn bare(etag: u64) -> String {
    format!("0x{etag:X}")
}

fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name).and_then(|value| value.to_str().ok()).map(|value| value.trim().to_owned())
}

/// A moment as HTTP writes it.
pub(super) fn date(text: &str) -> Option<i64> {
    DateTimeParser::new().parse_timestamp(text).ok().map(|at| at.as_second())
}

impl Conditions {
    /// Those of a request; with a prefix those on the source of a copy (`x-ms-source-`).
    pub(super) fn read(headers: &HeaderMap, prefix: &str) -> Result<Self, BlobError> {
        let get = |name: &str| (format!("{prefix}{name}"), text(headers, &format!("{prefix}{name}")));
        let moment = |name: &str| match get(name) {
            (_, None) => Ok(None),
            (name, Some(text)) => date(&text).map(Some).ok_or_else(|| BlobError::header(&name, &text)),
        };
        Ok(Self {
            if_match: get("if-match").1,
            if_none_match: get("if-none-match").1,
            if_modified_since: moment("if-modified-since")?,
            if_unmodified_since: moment("if-unmodified-since")?,
        })
    }

    /// Whether nothing may exist.
    pub(super) fn wants_nothing(&self) -> bool {
        self.if_none_match.as_deref() == Some("*")
    }

    /// Whether a write may go on, with what stands or with nothing.
    pub(super) fn allow_write(&self, stand: Option<Stand>) -> bool {
        let Some(stand) = stand else {
            return self.if_match.is_none() && self.if_unmodified_since.is_none();
        };
        self.holds_match(stand) && self.is_new(stand)
    }

    /// Whether a read may go on.
    pub(super) fn check_read(&self, stand: Stand) -> Result<(), BlobError> {
        match (self.holds_match(stand), self.is_new(stand)) {
            (false, _) => Err(error::CONDITION_NOT_MET.into()),
            (true, false) => Err(error::NOT_MODIFIED.into()),
            (true, true) => Ok(()),
        }
    }

    fn holds_match(&self, stand: Stand) -> bool {
        self.if_match.as_deref().is_none_or(|given| names(given, stand))
            && self.if_unmodified_since.is_none_or(|since| stand.modified <= since)
    }

    /// Documented: with `If-None-Match` and `If-Modified-Since` both, one of them is enough.
    fn is_new(&self, stand: Stand) -> bool {
        match (self.if_none_match.as_deref(), self.if_modified_since) {
            (None, None) => true,
            (Some(given), None) => !names(given, stand),
            (None, Some(since)) => stand.modified > since,
            (Some(given), Some(since)) => !names(given, stand) || stand.modified > since,
        }
    }
}

fn names(given: &str, stand: Stand) -> bool {
    given == "*" || given.trim_matches('"') == bare(stand.etag)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAND: Stand = Stand { etag: 0xAB, modified: 1_767_225_600 };

    fn conditions(pairs: &[(&str, &str)]) -> Conditions {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.insert(http::HeaderName::try_from(*name).unwrap(), value.parse().unwrap());
        }
        Conditions::read(&headers, "").unwrap()
    }

    #[test]
    fn a_write_goes_on_under_its_conditions_only() {
        let before = "Wed, 31 Dec 2025 00:00:00 GMT";
        let same = "Thu, 01 Jan 2026 00:00:00 GMT";
        for (pairs, with, without) in [
            (vec![], true, true),
            (vec![("if-match", "\"0xAB\"")], true, false),
            (vec![("if-match", "0xAB")], true, false),
            (vec![("if-match", "\"0xAC\"")], false, false),
            (vec![("if-match", "*")], true, false),
            (vec![("if-none-match", "*")], false, true),
            (vec![("if-none-match", "\"0xAC\"")], true, true),
            (vec![("if-none-match", "\"0xAB\"")], false, true),
            (vec![("if-modified-since", before)], true, true),
            (vec![("if-modified-since", same)], false, true),
            (vec![("if-unmodified-since", same)], true, false),
            (vec![("if-unmodified-since", before)], false, false),
            (vec![("if-none-match", "\"0xAB\""), ("if-modified-since", before)], true, true),
        ] {
            let read = conditions(&pairs);
            assert_eq!((read.allow_write(Some(STAND)), read.allow_write(None)), (with, without), "{pairs:?}");
        }
        let mut headers = HeaderMap::new();
        headers.insert("if-modified-since", "yesterday".parse().unwrap());
        assert_eq!(Conditions::read(&headers, "").unwrap_err().code, "InvalidHeaderValue");
    }

    #[test]
    fn a_read_of_what_is_known_is_not_modified() {
        let code = |pairs: &[(&str, &str)]| conditions(pairs).check_read(STAND).map_err(|error| error.status);
        assert_eq!(code(&[("if-none-match", "\"0xAB\"")]), Err(304));
        assert_eq!(code(&[("if-match", "\"0xAC\"")]), Err(412));
        assert_eq!(code(&[("if-match", "\"0xAB\"")]), Ok(()));
    }
}
