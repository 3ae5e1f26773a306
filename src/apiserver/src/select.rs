//! Label and field selectors.

use serde_json::Value;

use crate::{Refused, resource::Resource, status, view};

/// What a list or a watch asks for.
#[derive(Debug, Clone)]
pub(crate) struct Selector {
    resource: &'static Resource,
    namespace: Option<String>,
    labels: Vec<Requirement>,
    fields: Vec<(String, bool, String)>,
}

#[derive(Debug, Clone)]
enum Requirement {
    Exists(String),
    Missing(String),
    In(String, Vec<String>),
    /// Holds also where the label is missing.
    NotIn(String, Vec<String>),
}

/// Splits at commas outside parentheses.
fn parts(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut from) = (Vec::new(), 0_u32, 0);
    for (at, letter) in text.char_indices() {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&text[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[from..]);
    parts.into_iter().map(str::trim).filter(|part| !part.is_empty()).collect()
}

fn requirement(text: &str) -> Result<Requirement, Refused> {
    let wrong = || status::bad_request(format!("unable to parse requirement: {text:?}"));
    let set = |rest: &str| -> Option<Vec<String>> {
        let inner = rest.trim().strip_prefix('(')?.strip_suffix(')')?;
        Some(inner.split(',').map(|value| value.trim().to_owned()).collect())
    };
    if let Some(key) = text.strip_prefix('!') {
        return Ok(Requirement::Missing(key.trim().to_owned()));
    }
    if let Some((key, value)) = text.split_once("!=") {
        return Ok(Requirement::NotIn(key.trim().to_owned(), vec![value.trim().to_owned()]));
    }
    if let Some((key, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
        return Ok(Requirement::In(key.trim().to_owned(), vec![value.trim().to_owned()]));
    }
    let Some((key, rest)) = text.split_once(' ') else {
        return Ok(Requirement::Exists(text.to_owned()));
    };
    let rest = rest.trim();
    if let Some(values) = rest.strip_prefix("notin") {
        return Ok(Requirement::NotIn(key.to_owned(), set(values).ok_or_else(wrong)?));
    }
    if let Some(values) = rest.strip_prefix("in") {
        return Ok(Requirement::In(key.to_owned(), set(values).ok_or_else(wrong)?));
    }
    Err(wrong())
}

impl Requirement {
    fn holds(&self, labels: &Value) -> bool {
        let value = |key: &String| labels.get(key).and_then(Value::as_str);
        match self {
            Self::Exists(key) => value(key).is_some(),
            Self::Missing(key) => value(key).is_none(),
            Self::In(key, values) => value(key).is_some_and(|has| values.iter().any(|one| one == has)),
            Self::NotIn(key, values) => value(key).is_none_or(|has| values.iter().all(|one| one != has)),
        }
    }
}

impl Selector {
    pub(crate) fn parse(
        resource: &'static Resource,
        namespace: Option<&str>,
        labels: &str,
        fields: &str,
    ) -> Result<Self, Refused> {
        let labels = parts(labels).into_iter().map(requirement).collect::<Result<_, _>>()?;
        let field = |text: &str| {
            let (key, equal, value) = if let Some((key, value)) = text.split_once("!=") {
                (key, false, value)
            } else if let Some((key, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
                (key, true, value)
            } else {
                return Err(status::bad_request(format!("invalid field selector: {text:?}")));
            };
            let pointer = match key.trim() {
                // Source: the field labels of core events.
                "source" => "/source/component".to_owned(),
                key => format!("/{}", key.replace('.', "/")),
            };
            Ok((pointer, equal, value.trim().to_owned()))
        };
        let fields = parts(fields).into_iter().map(field).collect::<Result<_, _>>()?;
        Ok(Self { resource, namespace: namespace.map(str::to_owned), labels, fields })
    }

    /// Whether it selects an object, by the names of the kind that was asked for.
    pub(crate) fn selects(&self, object: &Value) -> bool {
        let resource = self.resource;
        let object = &*view::shown(resource, object);
        let metadata = &object["metadata"];
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let in_namespace = match &self.namespace {
            Some(namespace) if resource.namespaced => metadata["namespace"] == **namespace,
            _ => true,
        };
        in_namespace
            && self.labels.iter().all(|requirement| requirement.holds(&metadata["labels"]))
            && self.fields.iter().all(|(pointer, equal, value)| (text(pointer) == value) == *equal)
    }
}
