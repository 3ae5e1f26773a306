//! The fields that the kinds have, for the validation that clients ask for and for the OpenAPI documents.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
};

use serde_json::Value;

use crate::resource::Resource;

/// The type of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Type {
    /// Whatever it is.
    Any,
    Text,
    Boolean,
    Integer,
    Number,
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
        "number" => Type::Number,
        "time" => Type::Time,
        "quantity" => Type::Quantity,
        "portname" => Type::PortName,
        name => Type::Object(name.to_owned()),
    }
}

/// The name of the type of a kind.
pub(crate) fn of(resource: &Resource) -> String {
    match resource.group.split('.').next().unwrap_or_default() {
        "" => resource.kind.to_owned(),
        group => format!("{group}.{}", resource.kind),
    }
}

/// What is wrong with an object, by the fields of its kind.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Problems {
    /// Fields that the kind does not have, by their paths.
    pub(crate) unknown: BTreeSet<String>,
    /// Values of another type, in words.
    pub(crate) mistyped: Vec<String>,
}

/// Compares an object with the fields of its kind.
pub(crate) fn check(resource: &Resource, object: &Value) -> Problems {
    let mut problems = Problems::default();
    visit(&Type::Object(of(resource)), object, "", &mut problems);
    problems
}

fn visit(kind: &Type, value: &Value, at: &str, problems: &mut Problems) {
    let expected = match (kind, value) {
        (Type::Any, _) | (_, Value::Null) => return,
        (Type::Text | Type::Time | Type::Quantity | Type::PortName, Value::String(_)) => return,
        (Type::Quantity | Type::Number, Value::Number(_)) | (Type::Boolean, Value::Bool(_)) => return,
        (Type::Integer | Type::PortName, Value::Number(number)) if number.is_i64() || number.is_u64() => return,
        (Type::List(item), Value::Array(items)) => {
            items.iter().enumerate().for_each(|(index, one)| visit(item, one, &format!("{at}[{index}]"), problems));
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
        (Type::List(_), _) => "a list",
        (Type::Map(_) | Type::Object(_), _) => "an object",
        (Type::Text | Type::Time, _) => "a text",
        (Type::Boolean, _) => "true or false",
        (Type::Integer, _) => "a whole number",
        (Type::Number, _) => "a number",
        (Type::Quantity, _) => "a quantity such as 1Gi",
        (Type::PortName, _) => "a port's number or name",
    };
    problems.mistyped.push(format!("{at}: found {}, expected {expected}", found(value)));
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
    fn the_lists_that_patches_merge_are_those_of_the_schema() {
        for one in resource::ALL {
            for (pointer, key) in one.merged_lists {
                let mut at = of(one);
                let mut found: Option<&str> = None;
                for part in pointer.split('/').skip(1) {
                    let field = &TYPES[&at][part];
                    if field.kind == Type::Any {
                        // The parts of a Pod are not listed.
                        found = Some(*key);
                        break;
                    }
                    found = field.merged_by.as_deref();
                    if let Type::Object(name) = &field.kind {
                        at = name.clone();
                    }
                }
                assert_eq!(found, Some(*key), "{} {pointer}", one.kind);
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
                "spec.ports[0].port: found \"80\", expected a whole number",
                "spec.selector.a: found 1, expected a text",
                "spec.type: found an object, expected a text"
            ]
        );
    }
}
