//! Shared Key: a request is signed with one of the account's two keys.
//!
//! Documented (rest/api/storageservices/authorize-with-shared-key), in the form of version 2009-09-19 and later. The order of
//! headers whose names differ by a hyphen is that of the service's own language-sensitive order, as the official clients have
//! it. Deviations: a date that is more than 15 minutes away is accepted, because the emulator's clock need not be the client's;
//! Shared Key Lite, access signatures and tokens of Microsoft Entra ID are refused.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use ring::hmac;

use super::conditions;
use super::error::{self, BlobError};
use super::versions::LENGTH_ZERO_IS_EMPTY;

/// What of a request is signed.
pub(super) struct Signed<'a> {
    pub(super) method: &'a str,
    pub(super) account: &'a str,
    /// As in the request line, still encoded.
    pub(super) path: &'a str,
    /// Decoded values by name in lower case.
    pub(super) query: &'a BTreeMap<String, Vec<String>>,
    pub(super) headers: &'a HeaderMap,
    pub(super) version: &'a str,
}

/// Checks the signature against the keys of the account.
pub(super) fn check(signed: &Signed<'_>, keys: &[String]) -> Result<(), BlobError> {
    let Some(header) = text(signed.headers, "authorization") else {
        return Err(match signed.query.contains_key("sig") {
            true => BlobError::authentication("The emulator takes no shared access signatures."),
            false => error::RESOURCE_NOT_FOUND.into(),
        });
    };
    let (scheme, value) = header.split_once(' ').unwrap_or((&header, ""));
    match scheme {
        "SharedKey" => {}
        "SharedKeyLite" | "Bearer" => {
            return Err(BlobError::authentication(format!("The emulator takes SharedKey, and not {scheme}.")));
        }
        _ => {
            let message = "Authentication information is not given in the correct format. Check the value of \
                           Authorization header.";
            return Err(BlobError::new(400, "InvalidAuthenticationInfo", message));
        }
    }
    let Some((account, given)) = value.split_once(':').filter(|(account, _)| *account == signed.account) else {
        return Err(BlobError::authentication("The account name in the Authorization header is not that of the URL."));
    };
    check_date(signed.headers)?;
    let text = string_to_sign(signed);
    let is_signed = |key: &String| {
        let key = STANDARD.decode(key).unwrap_or_default();
        let given = STANDARD.decode(given).unwrap_or_default();
        hmac::verify(&hmac::Key::new(hmac::HMAC_SHA256, &key), text.as_bytes(), &given).is_ok()
    };
    match keys.iter().any(is_signed) {
        true => Ok(()),
        false => Err(BlobError::authentication(format!(
            "The MAC signature found in the HTTP request '{given}' is not the same as any computed signature of the account \
             {account}. Server used following string to sign: '{text}'."
        ))),
    }
}

/// Documented: a date is required, in `x-ms-date` or `Date`.
fn check_date(headers: &HeaderMap) -> Result<(), BlobError> {
    let date = text(headers, "x-ms-date").or_else(|| text(headers, "date"));
    match date.as_deref().and_then(conditions::date) {
        Some(_) => Ok(()),
        None => Err(BlobError::authentication(format!(
            "The Date header in the request is incorrect: '{}'.",
            date.unwrap_or_default()
        ))),
    }
}

/// The text that is signed.
pub(super) fn string_to_sign(signed: &Signed<'_>) -> String {
    const STANDARD_HEADERS: [&str; 11] = [
        "content-encoding",
        "content-language",
        "content-length",
        "content-md5",
        "content-type",
        "date",
        "if-modified-since",
        "if-match",
        "if-none-match",
        "if-unmodified-since",
        "range",
    ];
    let mut out = signed.method.to_owned();
    for name in STANDARD_HEADERS {
        let value = text(signed.headers, name).unwrap_or_default();
        let is_left_out = match name {
            "content-length" => value == "0" && signed.version >= LENGTH_ZERO_IS_EMPTY,
            "date" => signed.headers.contains_key("x-ms-date"),
            _ => false,
        };
        out.push('\n');
        out.push_str(if is_left_out { "" } else { &value });
    }
    let mut own: Vec<&str> =
        signed.headers.keys().map(http::HeaderName::as_str).filter(|name| name.starts_with("x-ms-")).collect();
    own.sort_by(|a, b| in_order(a, b));
    for name in own {
        let values: Vec<&str> =
            signed.headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).map(str::trim).collect();
        out.push_str(&format!("\n{name}:{}", values.join(",")));
    }
    out.push_str(&format!("\n/{}{}", signed.account, signed.path));
    for (name, values) in signed.query {
        let mut values: Vec<&str> = values.iter().map(String::as_str).collect();
        values.sort_unstable();
        out.push_str(&format!("\n{name}:{}", values.join(",")));
    }
    out
}

/// The order of the names of headers: hyphens count only where all else is alike, and marks come before digits and these
/// before letters.
fn in_order(a: &str, b: &str) -> Ordering {
    let weights = |name: &str| -> Vec<(u8, char)> {
        let class = |char: char| match char {
            'a'..='z' => 2,
            '0'..='9' => 1,
            _ => 0,
        };
        name.chars().filter(|char| *char != '-').map(|char| (class(char), char)).collect()
    };
    let hyphens = |name: &str| -> Vec<usize> { name.match_indices('-').map(|(at, _)| at).collect() };
    weights(a).cmp(&weights(b)).then_with(|| hyphens(b).cmp(&hyphens(a)))
}

fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name).and_then(|value| value.to_str().ok()).map(|value| value.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(http::HeaderName::try_from(*name).unwrap(), value.parse().unwrap());
        }
        headers
    }

    fn query(pairs: &[(&str, &str)]) -> BTreeMap<String, Vec<String>> {
        let mut query: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (name, value) in pairs {
            query.entry((*name).to_owned()).or_default().push((*value).to_owned());
        }
        query
    }

    /// The example of the published description.
    #[test]
    fn the_published_example_has_the_published_text() {
        let headers = headers(&[
            ("x-ms-date", "Fri, 26 Jun 2015 23:39:12 GMT"),
            ("x-ms-version", "2015-02-21"),
            ("content-length", "0"),
        ]);
        let query = query(&[("comp", "metadata"), ("restype", "container"), ("timeout", "20")]);
        let signed = Signed {
            method: "GET",
            account: "myaccount",
            path: "/mycontainer",
            query: &query,
            headers: &headers,
            version: "2015-02-21",
        };
        let expected = "GET\n\n\n\n\n\n\n\n\n\n\n\nx-ms-date:Fri, 26 Jun 2015 23:39:12 GMT\nx-ms-version:2015-02-21\n\
                        /myaccount/mycontainer\ncomp:metadata\nrestype:container\ntimeout:20";
        assert_eq!(string_to_sign(&signed), expected);
        let old = Signed { version: "2014-02-14", ..signed };
        assert!(string_to_sign(&old).starts_with("GET\n\n\n0\n\n\n"));
    }

    #[test]
    fn values_of_one_name_are_joined_and_a_date_counts_once() {
        let headers = headers(&[
            ("date", "Fri, 26 Jun 2015 23:39:12 GMT"),
            ("x-ms-date", " Fri, 26 Jun 2015 23:39:12 GMT "),
            ("content-length", "11"),
            ("range", "bytes=0-511"),
        ]);
        let query = query(&[("include", "snapshots"), ("include", "metadata")]);
        let signed = Signed {
            method: "PUT",
            account: "a",
            path: "/a/c",
            query: &query,
            headers: &headers,
            version: "2020-02-10",
        };
        assert_eq!(
            string_to_sign(&signed),
            "PUT\n\n\n11\n\n\n\n\n\n\n\nbytes=0-511\nx-ms-date:Fri, 26 Jun 2015 23:39:12 GMT\n/a/a/c\n\
             include:metadata,snapshots"
        );
    }

    #[test]
    fn hyphens_count_last_in_the_order_of_headers() {
        let mut names = ["x-ms-meta-ab", "x-ms-meta-a-c", "x-ms-meta-a1", "x-ms-meta-a_b", "x-ms-date", "x-ms-meta-a"];
        names.sort_by(|a, b| in_order(a, b));
        let expected = ["x-ms-date", "x-ms-meta-a", "x-ms-meta-a_b", "x-ms-meta-a1", "x-ms-meta-ab", "x-ms-meta-a-c"];
        assert_eq!(names, expected);
    }

    #[test]
    fn a_request_is_signed_with_a_key_of_its_account() {
        let sign = |key: &str, text: &str| {
            let key = hmac::Key::new(hmac::HMAC_SHA256, &STANDARD.decode(key).unwrap());
            STANDARD.encode(hmac::sign(&key, text.as_bytes()))
        };
        let (own, other) = (STANDARD.encode([1; 64]), STANDARD.encode([2; 64]));
        let query = BTreeMap::new();
        let code = |authorization: Option<String>, date: &str, keys: &[String]| {
            let mut headers = headers(&[("x-ms-date", date)]);
            if let Some(authorization) = authorization {
                headers.insert("authorization", authorization.parse().unwrap());
            }
            let signed = Signed {
                method: "GET",
                account: "a",
                path: "/c",
                query: &query,
                headers: &headers,
                version: "2020-02-10",
            };
            check(&signed, keys).map_err(|error| error.code)
        };
        let date = "Fri, 26 Jun 2015 23:39:12 GMT";
        let text = format!("GET{}x-ms-date:{date}\n/a/c", "\n".repeat(12));
        let shared = |account: &str, key: &str| Some(format!("SharedKey {account}:{}", sign(key, &text)));
        let keys = [other.clone(), own.clone()];
        assert_eq!(code(shared("a", &own), date, &keys), Ok(()));
        let failed = Err("AuthenticationFailed".to_owned());
        assert_eq!(code(shared("a", &own), date, &keys[..1]), failed);
        assert_eq!(code(shared("b", &own), date, &keys), failed);
        assert_eq!(code(shared("a", &own), "today", &keys), failed);
        assert_eq!(code(Some("SharedKeyLite a:x".to_owned()), date, &keys), failed);
        assert_eq!(code(Some("Basic x".to_owned()), date, &keys), Err("InvalidAuthenticationInfo".to_owned()));
        assert_eq!(code(None, date, &keys), Err("ResourceNotFound".to_owned()));
    }
}
