//! With whom a Service shares its addresses.

use std::collections::BTreeSet;

use super::{ServiceObject, annotation::SHARE_WITH};

/// The longest name of a namespace (source: RFC 1123, a label).
const LONGEST: usize = 63;

/// The namespaces that a Service shares its addresses with, and what is no name of one: that opens nothing.
pub fn shares_with(object: &ServiceObject) -> (BTreeSet<String>, Vec<String>) {
    let text = object.annotations.get(SHARE_WITH).map(String::as_str).unwrap_or_default();
    let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
    let (names, others): (Vec<&str>, Vec<&str>) = items.partition(|item| is_namespace(item));
    (names.into_iter().map(str::to_owned).collect(), others.into_iter().map(str::to_owned).collect())
}

fn is_namespace(text: &str) -> bool {
    let is_edge = |char: Option<char>| char.is_some_and(|char| char.is_ascii_lowercase() || char.is_ascii_digit());
    let is_inner = |char: char| is_edge(Some(char)) || char == '-';
    text.len() <= LONGEST
        && is_edge(text.chars().next())
        && is_edge(text.chars().next_back())
        && text.chars().all(is_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::fixtures::service;

    #[test]
    fn a_name_that_is_none_opens_nothing() {
        let of = |text: &str| {
            let mut object = service();
            object.annotations.insert(SHARE_WITH.to_owned(), text.to_owned());
            let (names, others) = shares_with(&object);
            (names.into_iter().collect::<Vec<_>>().join(" "), others.join(" "))
        };
        assert_eq!(of("shop, billing"), ("billing shop".to_owned(), String::new()));
        assert_eq!(of(""), (String::new(), String::new()));
        assert_eq!(of("*,Shop,a b,-a,a-"), (String::new(), "* Shop a b -a a-".to_owned()));
        assert_eq!(shares_with(&service()), (BTreeSet::new(), vec![]));
    }
}
