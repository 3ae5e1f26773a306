//! The fields that the kinds have, for the validation of what clients write, for strategic merge patches and for the OpenAPI
//! documents.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use jiff::Timestamp;
use serde_json::Value;

use crate::resource::Resource;

/// The type of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Type {
    /// Whatever it is.
    Any,
    Text,
    Boolean,
    /// A whole number of 32 bits.
    Integer,
    /// A whole number of 64 bits.
    Long,
    Number,
    /// Bytes, in base64.
    Bytes,
    /// A moment.
    Time,
    /// An amount, as a text or a number.
    Quantity,
    /// A number, or a name.
    PortName,
    List(Box<Type>),
    Map(Box<Type>),
    Object(String),
}

impl Type {
    /// The type of a member of such a value, and by which key a strategic merge patch merges that member's list.
    pub(crate) fn member(&self, key: &str) -> (&Self, Option<&str>) {
        match self {
            Self::Object(name) => match TYPES.get(name).and_then(|fields| fields.get(key)) {
                Some(field) => (&field.kind, field.merged_by.as_deref()),
                None => (&Self::Any, None),
            },
            Self::Map(value) => (value, None),
            _ => (&Self::Any, None),
        }
    }

    /// The type of the items of such a list.
    pub(crate) fn item(&self) -> &Self {
        match self {
            Self::List(item) => item,
            _ => &Self::Any,
        }
    }
}

/// A field of a type.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Field {
    pub(crate) kind: Type,
    /// By which member a strategic merge patch merges this list; empty: as a set. `None`: it replaces it.
    pub(crate) merged_by: Option<String>,
}

/// The fields of each type.
pub(crate) static TYPES: LazyLock<BTreeMap<String, BTreeMap<String, Field>>> =
    LazyLock::new(|| parse(include_str!("schema.txt")));

fn parse(text: &str) -> BTreeMap<String, BTreeMap<String, Field>> {
    let lines =
        text.lines().filter(|line| !line.starts_with('#')).map(|line| if line.is_empty() { "\n" } else { line });
    let joined = lines.collect::<Vec<_>>().join(" ");
    let paragraph = |paragraph: &str| {
        let (name, fields) = paragraph.split_once('=')?;
        let field = |word: &str| {
            let (name, kind) = word.split_once(':').expect("a field is NAME:TYPE");
            let (kind, merged_by) =
                kind.split_once('/').map_or((kind, None), |(kind, key)| (kind, Some(key.to_owned())));
            (name.to_owned(), Field { kind: kind_of(kind), merged_by })
        };
        Some((name.trim().to_owned(), fields.split_whitespace().map(field).collect()))
    };
    joined.split('\n').filter_map(paragraph).collect()
}

fn kind_of(text: &str) -> Type {
    let inner = |open: char, close: char| text.strip_prefix(open).and_then(|rest| rest.strip_suffix(close));
    if let Some(item) = inner('[', ']') {
        return Type::List(Box::new(kind_of(item)));
    }
    if let Some(value) = inner('{', '}') {
        return Type::Map(Box::new(kind_of(value)));
    }
    match text {
        "any" => Type::Any,
        "string" => Type::Text,
        "boolean" => Type::Boolean,
        "int" => Type::Integer,
        "long" => Type::Long,
        "bytes" => Type::Bytes,
        "number" => Type::Number,
        "time" => Type::Time,
        "quantity" => Type::Quantity,
        "portname" => Type::PortName,
        name => Type::Object(name.to_owned()),
    }
}

/// The type of a kind.
pub(crate) fn type_of(resource: &Resource) -> Type {
    Type::Object(of(resource))
}

/// The name of the type of a kind.
pub(crate) fn of(resource: &Resource) -> String {
    match resource.group.split('.').next().unwrap_or_default() {
        "" => resource.kind.to_owned(),
        group => format!("{group}.{}", resource.kind),
    }
}

/// What becomes of a write with fields that the kind does not have: the query's `fieldValidation`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UnknownFields {
    Ignored,
    Warned,
    Refused,
}

/// What is wrong with an object, by the fields of its kind.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Problems {
    /// Fields that the kind does not have, by their paths.
    pub(crate) unknown: BTreeSet<String>,
    /// Values of another type, in words.
    pub(crate) mistyped: Vec<String>,
}

impl Problems {
    /// Those that are not among the older ones.
    pub(crate) fn beyond(mut self, older: &Self) -> Self {
        self.unknown.retain(|path| !older.unknown.contains(path));
        self.mistyped.retain(|words| !older.mistyped.contains(words));
        self
    }

    /// What the writer is warned of.
    ///
    /// # Errors
    /// Why the write is refused. A value of another type is always refused: a client that follows the kind cannot decode it.
    pub(crate) fn judged(self, unknown: UnknownFields) -> Result<Vec<String>, Vec<String>> {
        if !self.mistyped.is_empty() {
            return Err(self.mistyped);
        }
        let named: Vec<String> = self.unknown.iter().map(|path| format!("unknown field {path:?}")).collect();
        match unknown {
            UnknownFields::Ignored => Ok(Vec::new()),
            UnknownFields::Refused if !named.is_empty() => Err(named),
            UnknownFields::Warned | UnknownFields::Refused => Ok(named),
        }
    }
}

/// Compares an object with the fields of its kind.
pub(crate) fn check(resource: &Resource, object: &Value) -> Problems {
    let mut problems = Problems::default();
    visit(&type_of(resource), object, "", &mut problems);
    problems
}

fn visit(kind: &Type, value: &Value, at: &str, problems: &mut Problems) {
    let expected = match (kind, value) {
        (Type::Any, _) | (_, Value::Null) => return,
        (Type::Text, Value::String(_)) | (Type::Boolean, Value::Bool(_)) | (Type::Number, Value::Number(_)) => return,
        (Type::Time, Value::String(text)) if text.parse::<Timestamp>().is_ok() => return,
        (Type::Bytes, Value::String(text)) if BASE64_STANDARD.decode(text).is_ok() => return,
        (Type::Quantity, Value::String(text)) if is_quantity(text) => return,
        (Type::Quantity, Value::Number(_)) | (Type::PortName, Value::String(_)) => return,
        (Type::Integer | Type::PortName, Value::Number(_)) if value.as_i64().is_some_and(has_32_bits) => return,
        (Type::Long, Value::Number(_)) if value.is_i64() => return,
        (Type::List(item), Value::Array(items)) => {
            for (index, one) in items.iter().enumerate() {
                let at = format!("{at}[{index}]");
                match one {
                    // A member without a value is no member; an item without a value stays one.
                    Value::Null => problems.mistyped.push(format!("{at}: found null, expected {}", words(item))),
                    one => visit(item, one, &at, problems),
                }
            }
            return;
        }
        (Type::Map(item), Value::Object(members)) => {
            members.iter().for_each(|(key, one)| visit(item, one, &below(at, key), problems));
            return;
        }
        (Type::Object(name), Value::Object(members)) => {
            let Some(fields) = TYPES.get(name) else { return };
            for (key, one) in members {
                match fields.get(key) {
                    Some(field) => visit(&field.kind, one, &below(at, key), problems),
                    None => drop(problems.unknown.insert(below(at, key))),
                }
            }
            return;
        }
        (kind, _) => words(kind),
    };
    let at = if at.is_empty() { "the object" } else { at };
    problems.mistyped.push(format!("{at}: found {}, expected {expected}", found(value)));
}

/// What a value of a type is, for people.
fn words(kind: &Type) -> &'static str {
    match kind {
        Type::Any => "a value",
        Type::List(_) => "a list",
        Type::Map(_) | Type::Object(_) => "an object",
        Type::Text => "a text",
        Type::Time => "a moment such as 2026-01-01T00:00:00Z",
        Type::Boolean => "true or false",
        Type::Integer => "a whole number of 32 bits",
        Type::Long => "a whole number of 64 bits",
        Type::Number => "a number",
        Type::Bytes => "bytes in base64",
        Type::Quantity => "a quantity such as 1Gi",
        Type::PortName => "a port's number or name",
    }
}

fn has_32_bits(number: i64) -> bool {
    i32::try_from(number).is_ok()
}

/// Source of the form: `k8s.io/apimachinery/pkg/api/resource`.
fn is_quantity(text: &str) -> bool {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let end = digits.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(digits.len());
    let (number, suffix) = digits.split_at(end);
    let is_number = number.bytes().any(|byte| byte.is_ascii_digit()) && number.matches('.').count() <= 1;
    let power = suffix.strip_prefix(['e', 'E']).is_some_and(|power| power.parse::<i32>().is_ok());
    let units = ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    is_number && (power || units.contains(&suffix))
}

/// Writes each quantity of an object as a text, as kube-apiserver answers it: its clients read nothing else.
pub(crate) fn with_text_quantities(kind: &Type, value: &mut Value) {
    match value {
        Value::Number(number) if *kind == Type::Quantity => *value = Value::String(number.to_string()),
        Value::Array(items) => items.iter_mut().for_each(|item| with_text_quantities(kind.item(), item)),
        Value::Object(members) => {
            members.iter_mut().for_each(|(key, member)| with_text_quantities(kind.member(key).0, member));
        }
        _ => {}
    }
}

fn below(at: &str, key: &str) -> String {
    if at.is_empty() { key.to_owned() } else { format!("{at}.{key}") }
}

fn found(value: &Value) -> String {
    match value {
        Value::Object(_) => "an object".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        plain => plain.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::resource;

    #[test]
    fn every_kind_and_every_type_that_a_field_names_is_there() {
        for one in resource::ALL {
            let fields = TYPES.get(&of(one)).unwrap_or_else(|| panic!("{}", of(one)));
            assert!(fields.contains_key("metadata"), "{}", one.kind);
        }
        fn named(kind: &Type) -> Option<&str> {
            match kind {
                Type::Object(name) => Some(name),
                Type::List(inner) | Type::Map(inner) => named(inner),
                _ => None,
            }
        }
        for (name, fields) in TYPES.iter() {
            for (key, field) in fields {
                assert!(named(&field.kind).is_none_or(|of| TYPES.contains_key(of)), "{name}.{key}");
            }
        }
    }

    #[test]
    fn an_object_is_compared_with_the_fields_of_its_kind() {
        let services = resource::by_plural("services").unwrap();
        let good = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "labels": {"a": "b"}},
            "spec": {"ports": [{"port": 80, "targetPort": "http"}], "selector": {"app": "web"}},
        });
        assert_eq!(check(services, &good), Problems::default());
        let wrong = json!({"spec": {"prots": 1, "ports": [{"port": "80", "x": 1}], "selector": {"a": 1}, "type": {}}});
        let problems = check(services, &wrong);
        assert_eq!(problems.unknown, ["spec.ports[0].x".to_owned(), "spec.prots".to_owned()].into());
        assert_eq!(
            problems.mistyped,
            [
                "spec.ports[0].port: found \"80\", expected a whole number of 32 bits",
                "spec.selector.a: found 1, expected a text",
                "spec.type: found an object, expected a text"
            ]
        );
    }
    #[test]
    fn what_a_client_cannot_decode_is_another_type() {
        let found = |plural: &str, object: Value| check(resource::by_plural(plural).unwrap(), &object).mistyped;
        for (plural, object) in [
            ("services", json!({"spec": {"ports": [{"port": 80, "nodePort": 4_294_967_296_u64}]}})),
            ("services", json!({"spec": {"loadBalancerSourceRanges": [null]}})),
            ("services", json!({"status": {"conditions": [{"lastTransitionTime": "yesterday"}]}})),
            ("services", json!({"metadata": {"generation": 1.5}})),
            ("secrets", json!({"data": {"key": "not base64!"}})),
            ("persistentvolumes", json!({"spec": {"capacity": {"storage": "much"}}})),
            ("pods", json!({"spec": {"containers": [{"ports": "x"}]}})),
            ("pods", json!([])),
        ] {
            assert_eq!(found(plural, object.clone()).len(), 1, "{object}");
        }
        for text in ["1", "0.5", "10Gi", "-1k", "1e3", "2E+3", "1E", "500m"] {
            assert!(is_quantity(text), "{text}");
        }
        for text in ["", "Gi", "1 Gi", "1.2.3", "1gi", "e3", "."] {
            assert!(!is_quantity(text), "{text}");
        }
    }

    #[test]
    fn quantities_become_texts_and_nothing_else_does() {
        let volumes = resource::by_plural("persistentvolumes").unwrap();
        let mut volume =
            json!({"spec": {"capacity": {"storage": 5}, "csi": {"volumeAttributes": {}}, "iscsi": {"lun": 5}}});
        with_text_quantities(&type_of(volumes), &mut volume);
        assert_eq!(
            volume["spec"],
            json!({"capacity": {"storage": "5"}, "csi": {"volumeAttributes": {}}, "iscsi": {"lun": 5}})
        );
    }
}
