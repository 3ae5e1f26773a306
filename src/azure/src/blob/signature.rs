//! Shared Key: the signature of a request by a key of the account (source: Microsoft's "Authorize with Shared Key").
//!
//! The official crate has none, so this is a policy of its pipeline, behind its retry policy: it signs what is sent,
//! each time. What is signed is the request as the service sees it, so a route that puts an account's name in front of
//! the path ([`Routes`](crate::transport::Routes)) is followed first.

use std::{cmp::Ordering, collections::BTreeMap, sync::Arc};

use azure_core::{
    error::{Error, ErrorKind},
    http::{
        Context, Request,
        headers::{HeaderName, Headers},
        policies::{Policy, PolicyResult},
    },
};
use base64::{Engine, engine::general_purpose::STANDARD};
use jiff::{Timestamp, fmt::rfc2822::DateTimePrinter};
use lazuli_model::Secret;
use ring::hmac;
use url::Url;

use crate::transport::Transport;

/// The headers that are signed by their place, in this order.
const IN_PLACE: [&str; 11] = [
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

/// Signs the requests of one account.
#[derive(Debug)]
pub(super) struct SharedKey {
    pub(super) account: String,
    /// Base64, as the resource manager lists it.
    pub(super) key: Secret,
    pub(super) transport: Transport,
}

#[async_trait::async_trait]
impl Policy for SharedKey {
    async fn send(&self, context: &Context, request: &mut Request, next: &[Arc<dyn Policy>]) -> PolicyResult {
        let now = DateTimePrinter::new()
            .timestamp_to_rfc9110_string(&Timestamp::now())
            .map_err(|error| Error::new(ErrorKind::DataConversion, error))?;
        request.insert_header("x-ms-date", now);
        // The transport names the product.
        request.headers_mut().remove("user-agent");
        let routed = self.transport.routes().physical(request.url());
        let url = routed.as_ref().unwrap_or(request.url());
        let text = string_to_sign(&self.account, request.method().as_str(), url, request.headers());
        let signature = sign(&self.key, &text)
            .ok_or_else(|| Error::with_message(ErrorKind::Credential, "a key of the account is no base64"))?;
        request.insert_header("authorization", format!("SharedKey {}:{signature}", self.account));
        let [first, rest @ ..] = next else {
            return Err(Error::with_message(ErrorKind::Other, "the pipeline ends with the signature"));
        };
        first.send(context, request, rest).await
    }
}

/// The signature of a text; `None` if the key is none.
fn sign(key: &Secret, text: &str) -> Option<String> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, &STANDARD.decode(key.expose()).ok()?);
    Some(STANDARD.encode(hmac::sign(&key, text.as_bytes())))
}

/// The text that is signed, in the form since version 2015-02-21, in which a length of 0 is left out.
fn string_to_sign(account: &str, method: &str, url: &Url, headers: &Headers) -> String {
    let value =
        |name: &'static str| headers.get_optional_str(&HeaderName::from_static(name)).unwrap_or_default().trim();
    let mut text = method.to_owned();
    for name in IN_PLACE {
        let value = match (name, value(name)) {
            ("content-length", "0") => "",
            // The date that counts is `x-ms-date`.
            ("date", _) => "",
            (_, value) => value,
        };
        text.push('\n');
        text.push_str(value);
    }
    let mut own: Vec<(&str, &str)> =
        headers.iter().map(|(name, value)| (name.as_str(), value.as_str().trim())).collect();
    own.retain(|(name, _)| name.starts_with("x-ms-"));
    own.sort_by(|(a, _), (b, _)| in_order(a, b));
    for (name, value) in own {
        text.push_str(&format!("\n{name}:{value}"));
    }
    text.push_str(&format!("\n/{account}{}", url.path()));
    let mut query: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in url.query_pairs() {
        query.entry(name.to_ascii_lowercase()).or_default().push(value.into_owned());
    }
    for (name, mut values) in query {
        values.sort_unstable();
        text.push_str(&format!("\n{name}:{}", values.join(",")));
    }
    text
}

/// The order of the service, which is that of a language and not that of bytes: marks before digits before letters, and
/// hyphens count only where all else is alike (source: the sorting of headers in Microsoft's client for Python).
fn in_order(a: &str, b: &str) -> Ordering {
    let rank = |byte: u8| match byte {
        b'a'..=b'z' => (2, byte),
        b'0'..=b'9' => (1, byte),
        _ => (0, byte),
    };
    let letters = |name: &str| -> Vec<(u8, u8)> { name.bytes().filter(|byte| *byte != b'-').map(rank).collect() };
    let hyphens = |name: &str| -> Vec<usize> { name.match_indices('-').map(|(at, _)| at).collect() };
    letters(a).cmp(&letters(b)).then_with(|| hyphens(b).cmp(&hyphens(a)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> Headers {
        let mut headers = Headers::new();
        for (name, value) in pairs {
            headers.insert((*name).to_owned(), (*value).to_owned());
        }
        headers
    }

    fn url(text: &str) -> Url {
        text.parse().unwrap()
    }

    /// The key that Azurite and the storage emulator of Microsoft publish.
    const PUBLISHED_KEY: &str =
        "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

    /// Source: the example of Microsoft's "Authorize with Shared Key". The signature is that of another implementation
    /// of HMAC, Python's.
    #[test]
    fn the_published_example_has_the_published_text_and_pythons_signature() {
        let headers = headers(&[("x-ms-date", "Fri, 26 Jun 2015 23:39:12 GMT"), ("x-ms-version", "2015-02-21")]);
        let url = url("https://myaccount.blob.core.windows.net/mycontainer?restype=container&comp=metadata&timeout=20");
        let text = string_to_sign("myaccount", "GET", &url, &headers);
        let expected = "GET\n\n\n\n\n\n\n\n\n\n\n\nx-ms-date:Fri, 26 Jun 2015 23:39:12 GMT\nx-ms-version:2015-02-21\n\
                        /myaccount/mycontainer\ncomp:metadata\nrestype:container\ntimeout:20";
        assert_eq!(text, expected);
        assert_eq!(
            sign(&Secret::new(PUBLISHED_KEY), &text).as_deref(),
            Some("1u9lui2jDxj0+fpbHjQ5m5NnastJRSYM+PSmfi8TXx4=")
        );
    }

    #[test]
    fn a_write_is_signed_with_its_length_condition_and_range() {
        let headers = headers(&[
            ("content-length", "512"),
            ("content-type", "application/octet-stream"),
            ("if-match", "\"0x8D\""),
            ("range", "bytes=512-1023"),
            ("user-agent", "anything"),
            ("x-ms-version", "2017-11-09"),
            ("x-ms-page-write", "update"),
            ("x-ms-date", "Fri, 26 Jun 2015 23:39:12 GMT"),
        ]);
        let text = string_to_sign("a1", "PUT", &url("https://a1.blob.x/vhds/d.vhd?comp=page"), &headers);
        let expected = "PUT\n\n\n512\n\napplication/octet-stream\n\n\n\"0x8D\"\n\n\nbytes=512-1023\n\
                        x-ms-date:Fri, 26 Jun 2015 23:39:12 GMT\nx-ms-page-write:update\nx-ms-version:2017-11-09\n\
                        /a1/vhds/d.vhd\ncomp:page";
        assert_eq!(text, expected);
        assert_eq!(
            sign(&Secret::new(PUBLISHED_KEY), &text).as_deref(),
            Some("8dzsk89Auk/8vIBv3inyhcKwfuoMJdby6UVjE5s07eM=")
        );
    }

    #[test]
    fn values_of_a_query_are_decoded_and_a_length_of_zero_is_left_out() {
        let headers =
            headers(&[("content-length", "0"), ("date", "x"), ("x-ms-meta-b", " x "), ("x-ms-meta-a-c", "y")]);
        let url = url("https://a1.blob.x/c?Prefix=a%2Fb+c&include=snapshots&include=metadata");
        let text = string_to_sign("a1", "PUT", &url, &headers);
        let expected = "PUT\n\n\n\n\n\n\n\n\n\n\n\nx-ms-meta-a-c:y\nx-ms-meta-b:x\n/a1/c\ninclude:metadata,snapshots\n\
                        prefix:a/b c";
        assert_eq!(text, expected);
    }

    #[test]
    fn hyphens_count_last_in_the_order_of_headers() {
        let mut names = ["x-ms-meta-ab", "x-ms-meta-a-c", "x-ms-meta-a1", "x-ms-meta-a_b", "x-ms-date", "x-ms-meta-a"];
        names.sort_by(|a, b| in_order(a, b));
        let expected = ["x-ms-date", "x-ms-meta-a", "x-ms-meta-a_b", "x-ms-meta-a1", "x-ms-meta-ab", "x-ms-meta-a-c"];
        assert_eq!(names, expected);
    }

    #[test]
    fn what_is_no_key_signs_nothing() {
        assert_eq!(sign(&Secret::new("no base64!"), "text"), None);
    }
}
