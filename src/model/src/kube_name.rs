//! What Kubernetes takes as a name or a label (source: its documents "Object Names and IDs" and "Labels and Selectors").

/// The longest label value, and the longest name without its prefix.
const LONGEST_LABEL: usize = 63;
/// The longest DNS subdomain.
pub const LONGEST_SUBDOMAIN: usize = 253;

/// Whether this can be the value of a label. An empty one can, and is not meant here.
pub fn is_label_value(text: &str) -> bool {
    let is_inner = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    let ends = [text.as_bytes().first(), text.as_bytes().last()];
    text.len() <= LONGEST_LABEL
        && text.bytes().all(|byte| is_inner(&byte))
        && ends.into_iter().all(|end| end.is_some_and(u8::is_ascii_alphanumeric))
}

/// Whether this can be the name of most objects.
pub fn is_subdomain(text: &str) -> bool {
    let is_edge = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_part = |part: &str| {
        let ends = [part.as_bytes().first(), part.as_bytes().last()];
        part.bytes().all(|byte| is_edge(&byte) || byte == b'-') && ends.into_iter().all(|end| end.is_some_and(is_edge))
    };
    text.len() <= LONGEST_SUBDOMAIN && text.split('.').all(is_part)
}

/// Whether this can be the key of a label, or a class: a name, or a DNS subdomain and a name with a slash between.
pub fn is_qualified(text: &str) -> bool {
    match text.split_once('/') {
        Some((prefix, name)) => is_subdomain(prefix) && is_label_value(name),
        None => is_label_value(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_labels_are_what_kubernetes_takes() {
        let long = |length| "a".repeat(length);
        for (text, is_value, is_domain, is_key) in [
            ("", false, false, false),
            ("a", true, true, true),
            ("A_b.C", true, false, true),
            ("a-1.b", true, true, true),
            ("-a", false, false, false),
            ("a.", false, false, false),
            ("a..b", true, false, true),
            ("x y", false, false, false),
            ("example.com/internal", false, false, true),
            ("Example.com/internal", false, false, false),
            ("/internal", false, false, false),
            ("example.com/", false, false, false),
            ("a/b/c", false, false, false),
            ("zone-\u{e9}", false, false, false),
            (&long(63), true, true, true),
            (&long(64), false, true, false),
            (&format!("{}/{}", long(253), long(63)), false, false, true),
            (&format!("{}/a", long(254)), false, false, false),
        ] {
            assert_eq!(
                (is_label_value(text), is_subdomain(text), is_qualified(text)),
                (is_value, is_domain, is_key),
                "{text}"
            );
        }
    }
}
