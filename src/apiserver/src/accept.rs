//! What form of an answer a client asks for: the header `Accept`.
//!
//! A client lists forms, the best first. This server has JSON alone: protobuf and CBOR are passed over, and every client of
//! Kubernetes lists JSON behind them.

use http::{HeaderMap, header};

use crate::{Refused, status};

/// A form of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// The objects.
    Whole,
    /// Rows of cells for people: `as=Table`.
    Table,
    /// The metadata alone: `as=PartialObjectMetadata` and its list.
    Metadata,
    /// All groups of a root in one answer: `as=APIGroupDiscoveryList`.
    Discovery,
}

/// The form of one media range; `None` where this server has none such.
fn form(range: &str) -> Option<Form> {
    let mut parts = range.split(';').map(str::trim);
    if !["application/json", "application/*", "*/*"].contains(&parts.next()?) {
        return None;
    }
    let parameters: Vec<(&str, &str)> = parts.filter_map(|part| part.split_once('=')).collect();
    let value = |name: &str| parameters.iter().find(|(key, _)| *key == name).map(|(_, value)| *value);
    match (value("as"), value("g"), value("v")) {
        (None, ..) => Some(Form::Whole),
        (Some("Table"), Some("meta.k8s.io"), Some("v1")) => Some(Form::Table),
        (Some("PartialObjectMetadata" | "PartialObjectMetadataList"), Some("meta.k8s.io"), Some("v1")) => {
            Some(Form::Metadata)
        }
        (Some("APIGroupDiscoveryList"), Some("apidiscovery.k8s.io"), Some("v2")) => Some(Form::Discovery),
        _ => None,
    }
}

/// The first form of the list that this server has.
///
/// # Errors
/// 406 where it has none of them.
pub(crate) fn wanted(headers: &HeaderMap) -> Result<Form, Refused> {
    let all: Vec<&str> = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect();
    if all.iter().all(|list| list.trim().is_empty()) {
        return Ok(Form::Whole);
    }
    all.iter().flat_map(|list| list.split(',')).find_map(form).ok_or_else(|| status::not_acceptable(&all.join(",")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(accept: &str) -> Option<Form> {
        let headers = HeaderMap::from_iter([(header::ACCEPT, accept.parse().unwrap())]);
        wanted(&headers).ok()
    }

    #[test]
    fn the_first_form_that_there_is_is_chosen() {
        for (accept, form) in [
            ("", Some(Form::Whole)),
            ("*/*", Some(Form::Whole)),
            ("application/vnd.kubernetes.protobuf, application/json", Some(Form::Whole)),
            ("application/vnd.kubernetes.protobuf", None),
            ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", Some(Form::Table)),
            ("application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json", Some(Form::Whole)),
            ("application/json, application/json;as=Table;v=v1;g=meta.k8s.io", Some(Form::Whole)),
            ("application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", Some(Form::Discovery)),
            ("application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList", None),
            ("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", Some(Form::Metadata)),
        ] {
            assert_eq!(of(accept), form, "{accept}");
        }
        assert_eq!(wanted(&HeaderMap::new()), Ok(Form::Whole));
    }
}
