//! XML as the blob service writes it.

/// A document, with the byte order mark that the service sends.
pub(super) fn document(root: &str) -> String {
    format!("\u{feff}<?xml version=\"1.0\" encoding=\"utf-8\"?>{root}")
}

/// An element with a text.
pub(super) fn element(name: &str, text: &str) -> String {
    match text.is_empty() {
        true => format!("<{name} />"),
        false => format!("<{name}>{}</{name}>", escaped(text)),
    }
}

/// The same, or nothing at all for no text.
pub(super) fn optional(name: &str, text: Option<&str>) -> String {
    text.map(|text| element(name, text)).unwrap_or_default()
}

/// A text as it stands in an element or an attribute. What XML cannot hold is left out.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\t' | '\n' | '\r' => out.push(char),
            '\u{0}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => {}
            _ => out.push(char),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_escaped() {
        assert_eq!(element("Name", "a<&>\"\u{1}b"), "<Name>a&lt;&amp;&gt;&quot;b</Name>");
        assert_eq!((element("Prefix", ""), optional("X", None)), ("<Prefix />".to_owned(), String::new()));
    }
}
