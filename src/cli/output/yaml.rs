//! YAML of JSON values.

use serde_json::Value;

/// The value in block style, with its last line break. A text that could be taken for something else is quoted.
pub(super) fn text(value: &Value) -> String {
    let mut text = String::new();
    block(value, 0, &mut text);
    text
}

/// Writes a value at the beginning of a line; the indentation of its first line is there already.
fn block(value: &Value, depth: usize, text: &mut String) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (at, (name, value)) in map.iter().enumerate() {
                if at > 0 {
                    indent(depth, text);
                }
                text.push_str(&scalar(name));
                text.push(':');
                match value {
                    Value::Object(inner) if !inner.is_empty() => {
                        text.push('\n');
                        indent(depth + 1, text);
                        block(value, depth + 1, text);
                    }
                    // Items stand below their name, as kubectl writes them.
                    Value::Array(inner) if !inner.is_empty() => {
                        text.push('\n');
                        indent(depth, text);
                        block(value, depth, text);
                    }
                    _ => {
                        text.push(' ');
                        block(value, depth, text);
                    }
                }
            }
        }
        Value::Array(all) if !all.is_empty() => {
            for (at, value) in all.iter().enumerate() {
                if at > 0 {
                    indent(depth, text);
                }
                text.push_str("- ");
                block(value, depth + 1, text);
            }
        }
        Value::Object(_) => text.push_str("{}\n"),
        Value::Array(_) => text.push_str("[]\n"),
        Value::String(string) => {
            text.push_str(&scalar(string));
            text.push('\n');
        }
        other => {
            text.push_str(&other.to_string());
            text.push('\n');
        }
    }
}

fn indent(depth: usize, text: &mut String) {
    text.extend(std::iter::repeat_n("  ", depth));
}

/// A text, bare where nothing else can be meant.
fn scalar(string: &str) -> String {
    // Source: the booleans and nulls of YAML 1.1, which many programs still read.
    const TAKEN: [&str; 9] = ["y", "n", "yes", "no", "on", "off", "true", "false", "null"];
    let is_bare = string.starts_with(|char: char| char.is_ascii_alphabetic() || char == '/')
        && string.chars().all(|char| char.is_ascii_alphanumeric() || "/._-".contains(char))
        && TAKEN.iter().all(|word| !word.eq_ignore_ascii_case(string));
    if is_bare {
        return string.to_owned();
    }
    // JSON's strings are YAML's, but for characters that a terminal might obey.
    let quoted = Value::from(string).to_string();
    let is_plain = |char: &char| !char.is_control() && !('\u{200b}'..='\u{206f}').contains(char) && *char != '\u{feff}';
    let escaped = |char: char| if is_plain(&char) { char.to_string() } else { format!("\\u{:04x}", u32::from(char)) };
    quoted.chars().map(escaped).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn it_looks_as_kubectl_writes_it() {
        let value = json!({"ok": true, "none": null, "empty": [], "map": {}, "words": ["yes", "a/b", "10.0.0.1", "1"],
            "items": [{"name": "a", "inner": {"b": 1, "c": [[1], {"d": "e: f"}]}}]});
        let expected = "\
ok: true
none: null
empty: []
map: {}
words:
- \"yes\"
- a/b
- \"10.0.0.1\"
- \"1\"
items:
- name: a
  inner:
    b: 1
    c:
    - - 1
    - d: \"e: f\"
";
        assert_eq!(text(&value), expected);
        assert_eq!(scalar("a\u{9b}\u{202e}b"), "\"a\\u009b\\u202eb\"");
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "\\PC{0,12}".prop_map(Value::from),
            "[ -~]{0,12}".prop_map(Value::from),
            "(yes|NO|null|~|-|#|1e3|0x1f|\\.inf|<<|=|2001-01-01)".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::btree_map("[ -~]{0,8}", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(value in values()) {
            let text = text(&value);
            let read: Value = serde_saphyr::from_str(&text).map_err(|error| TestCaseError::fail(format!("{error}\n{text}")))?;
            prop_assert_eq!(read, value, "{}", text);
        }
    }
}
