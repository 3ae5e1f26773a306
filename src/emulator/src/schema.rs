//! The published schema of request bodies, and Azure's strict reading of them.
//!
//! `schema.txt` is a table that `scripts/tables` makes from the public type definitions (disks and snapshots
//! 2026-03-02, compute 2025-04-01, network 2025-05-01, storage 2025-01-01); to add a type, add it there. `schema_private_dns.txt` is
//! the same by hand, for types that none of these files has; their names have a leading `D`. After its sources, marked with
//! `#`, it has a type name on its own line, then one line per property: its name, `!` when required, `?` when read-only, and its type (`string`, `int`, `bool`, `any`,
//! `[T]`, `map<T>`, `enum(a|b)`, or another type's name). A leading `N` marks a network type, a leading `S` one of storage. `vmSize` is a
//! string here: the published words are old ones, and the service takes every size it sells. Members that answers show
//! and no published type has are read-only ones of the table.
//!
//! Reading normalises: property names and enum words get Azure's own spelling (recorded: `fromImage`
//! comes back as `FromImage`), `null` counts as absent, and an empty text where a word of an enumeration belongs (Terraform
//! and Ansible send it; which types take it is unverified), read-only members are dropped. This module
//! decides nothing that needs state.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::{Map, Value};

use crate::fault::{self, Fault};

#[derive(Debug)]
struct Property {
    name: &'static str,
    required: bool,
    read_only: bool,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Text,
    Int,
    Bool,
    Any,
    Enum(Vec<&'static str>),
    List(Box<Kind>),
    Map(Box<Kind>),
    Object(&'static str),
}

static TABLE: LazyLock<BTreeMap<&'static str, Vec<Property>>> = LazyLock::new(|| {
    let mut table: BTreeMap<&'static str, Vec<Property>> = BTreeMap::new();
    let mut current = "";
    let published = include_str!("schema.txt").lines().chain(include_str!("schema_private_dns.txt").lines());
    for line in published.filter(|line| !line.starts_with('#')) {
        if let Some(row) = line.strip_prefix(' ') {
            let Some((name, kind)) = row.split_once(' ') else {
                continue;
            };
            table.entry(current).or_default().push(Property {
                required: name.ends_with('!'),
                read_only: name.ends_with('?'),
                name: name.trim_end_matches(['!', '?']),
                kind: parse_kind(kind),
            });
        } else {
            current = line;
            table.entry(current).or_default();
        }
    }
    table
});

fn parse_kind(text: &'static str) -> Kind {
    if let Some(inner) = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')) {
        return Kind::List(Box::new(parse_kind(inner)));
    }
    if let Some(inner) = text.strip_prefix("map<").and_then(|t| t.strip_suffix('>')) {
        return Kind::Map(Box::new(parse_kind(inner)));
    }
    if let Some(inner) = text.strip_prefix("enum(").and_then(|t| t.strip_suffix(')')) {
        return Kind::Enum(inner.split('|').collect());
    }
    match text {
        "string" => Kind::Text,
        "int" => Kind::Int,
        "bool" => Kind::Bool,
        "any" => Kind::Any,
        name => Kind::Object(name),
    }
}

/// Members that an api-version does not have yet. Documented: Azure Stack Hub refuses them in a body
/// (cloud-provider-azure#8919). What a version does not know it does not show either.
pub(crate) fn unknown_to(api_version: &str) -> &'static [&'static str] {
    match api_version {
        "" => &[],
        version if version < "2019-03-01" => &["toBeDetached", "detachOption", "deleteOption"],
        version if version < "2020-12-01" => &["detachOption"],
        _ => &[],
    }
}

/// Members of answers that did not exist in an api-version of a provider: later versions of the compute provider have
/// more of them.
pub(crate) fn hidden_from(provider: Option<&str>, api_version: &str) -> &'static [&'static str] {
    match provider {
        Some(provider) if provider.eq_ignore_ascii_case("Microsoft.Compute") => unknown_to(api_version),
        _ => &[],
    }
}

/// Takes members out of a document, wherever they are.
pub(crate) fn hide(value: &mut Value, members: &[&str]) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| hide(item, members)),
        Value::Object(object) => {
            object.retain(|name, _| !members.contains(&name.as_str()));
            object.values_mut().for_each(|item| hide(item, members));
        }
        _ => {}
    }
}

/// How strictly a body is read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading<'a> {
    /// The parameter name that error targets start with, such as `disk` or `vm`.
    pub(crate) root: &'static str,
    /// A PATCH: nothing is required.
    pub(crate) partial: bool,
    /// Members that exist although the table does not know them (`--future-fields`).
    pub(crate) future: Option<&'a str>,
    /// Members that the requested api-version does not know yet.
    pub(crate) unknown: &'a [&'a str],
}

/// Reads a body by the schema of `type_name`.
///
/// # Errors
///
/// The 400 that Azure answers for an unknown member, a wrong type or a missing required property.
pub(crate) fn read(body: &Value, raw: &str, type_name: &str, reading: Reading<'_>) -> Result<Value, Fault> {
    Reader { raw, reading }.object(body, type_name, &mut Vec::new())
}

struct Reader<'a> {
    raw: &'a str,
    reading: Reading<'a>,
}

impl Reader<'_> {
    fn object(&self, value: &Value, type_name: &str, path: &mut Vec<Step>) -> Result<Value, Fault> {
        let Value::Object(given) = value else {
            let shown = dotted(path);
            return Err(fault::wrong_type(
                format!("Error converting value {} to type '{}'.", shown_value(value), short(type_name)),
                &shown,
                self.position(path),
                self.reading.root,
            ));
        };
        let Some(properties) = TABLE.get(type_name) else {
            return Ok(value.clone());
        };
        let mut read = Map::new();
        for (name, member) in given {
            let known = properties
                .iter()
                .find(|p| p.name.eq_ignore_ascii_case(name))
                .filter(|p| !self.reading.unknown.contains(&p.name));
            path.push(Step::Member(name.clone()));
            match known {
                Some(_) if member.is_null() => {}
                Some(Property { kind: Kind::Enum(_), .. }) if member == "" => {}
                Some(property) if property.read_only => {}
                Some(property) => {
                    let member = self.value(member, &property.kind, path)?;
                    read.insert(property.name.to_owned(), member);
                }
                None if self.reading.future == Some(name.as_str()) => {}
                None => {
                    return Err(fault::unknown_member(
                        name,
                        short(type_name),
                        dotted(path),
                        self.position(path),
                        self.reading.root,
                    ));
                }
            }
            path.pop();
        }
        if !self.reading.partial {
            for property in properties.iter().filter(|p| p.required && !p.read_only) {
                if !read.contains_key(property.name) {
                    if path.is_empty() && property.name == "location" {
                        return Err(fault::location_required());
                    }
                    let mut shown: String = match path.last() {
                        Some(_) => parameter(path),
                        None => self.reading.root.to_owned(),
                    };
                    shown.push('.');
                    shown.push_str(property.name);
                    return Err(fault::missing_parameter(&shown));
                }
            }
        }
        Ok(Value::Object(read))
    }

    fn value(&self, value: &Value, kind: &Kind, path: &mut Vec<Step>) -> Result<Value, Fault> {
        match kind {
            Kind::Any => Ok(value.clone()),
            Kind::Text => match value {
                Value::String(_) => Ok(value.clone()),
                _ => Err(self.wrong("Error reading string. Unexpected token:", value, path)),
            },
            // Azure takes a quoted number and a quoted boolean. Source: the templates of `az vmss create`, which Azure deploys, have
            // "primary": "true" and "frontendPortRangeStart": "50000"; and its error says that a text cannot be converted.
            Kind::Int => match value {
                Value::Number(number) if number.is_i64() || number.is_u64() => Ok(value.clone()),
                Value::String(text) => text
                    .parse::<i64>()
                    .map(Value::from)
                    .map_err(|_| self.wrong("Could not convert string to integer:", value, path)),
                _ => Err(self.wrong("Could not convert string to integer:", value, path)),
            },
            Kind::Bool => match value {
                Value::Bool(_) => Ok(value.clone()),
                Value::String(text) => text
                    .to_ascii_lowercase()
                    .parse::<bool>()
                    .map(Value::from)
                    .map_err(|_| self.wrong("Could not convert string to boolean:", value, path)),
                _ => Err(self.wrong("Could not convert string to boolean:", value, path)),
            },
            Kind::Enum(words) => {
                let word = value.as_str().and_then(|given| words.iter().find(|word| word.eq_ignore_ascii_case(given)));
                match word {
                    Some(word) => Ok(Value::String((*word).to_owned())),
                    None => Err(fault::invalid_parameter(
                        &parameter(path),
                        format!(
                            "The value {} of parameter '{}' is not valid. Allowed values: {}.",
                            shown_value(value),
                            parameter(path),
                            words.join(", ")
                        ),
                    )),
                }
            }
            Kind::List(inner) => {
                let Value::Array(items) = value else {
                    return Err(self.wrong(
                        "Cannot deserialize the current JSON value into an array because the type requires a JSON array (e.g. [1,2,3]) to deserialize correctly:",
                        value,
                        path,
                    ));
                };
                let mut read = Vec::with_capacity(items.len());
                for (index, item) in items.iter().enumerate() {
                    path.push(Step::Index(index));
                    read.push(self.value(item, inner, path)?);
                    path.pop();
                }
                Ok(Value::Array(read))
            }
            Kind::Map(inner) => {
                let Value::Object(items) = value else {
                    return Err(self.wrong("Error converting value", value, path));
                };
                let mut read = Map::new();
                for (name, item) in items {
                    path.push(Step::Member(name.clone()));
                    if !item.is_null() {
                        read.insert(name.clone(), self.value(item, inner, path)?);
                    }
                    path.pop();
                }
                Ok(Value::Object(read))
            }
            Kind::Object(name) => self.object(value, name, path),
        }
    }

    fn wrong(&self, why: &str, value: &Value, path: &[Step]) -> Fault {
        let shown = match value {
            Value::String(text) => text.clone(),
            other => shown_value(other),
        };
        fault::wrong_type(format!("{why} {shown}."), dotted(path), self.position(path), self.reading.root)
    }

    fn position(&self, path: &[Step]) -> usize {
        position(self.raw, path).unwrap_or(self.raw.len())
    }
}

#[derive(Clone, Debug)]
enum Step {
    Member(String),
    Index(usize),
}

/// `properties.storageProfile.dataDisks[0].lun`.
fn dotted(path: &[Step]) -> String {
    let mut shown = String::new();
    for step in path {
        match step {
            Step::Member(name) => {
                if !shown.is_empty() {
                    shown.push('.');
                }
                shown.push_str(name);
            }
            Step::Index(index) => shown.push_str(&format!("[{index}]")),
        }
    }
    shown
}

/// The last two members, as the provider names parameters: `dataDisk.lun`, `osDisk.caching`,
/// `creationData.createOption`.
fn parameter(path: &[Step]) -> String {
    let mut members: Vec<String> = path
        .iter()
        .enumerate()
        .filter_map(|(at, step)| match step {
            Step::Member(name) => Some(match path.get(at + 1) {
                Some(Step::Index(_)) => name.trim_end_matches('s').to_owned(),
                _ => name.clone(),
            }),
            Step::Index(_) => None,
        })
        .filter(|name| name != "properties")
        .collect();
    let keep = members.len().saturating_sub(2);
    members.drain(..keep);
    members.join(".")
}

fn short(type_name: &str) -> &str {
    match type_name.strip_prefix(['N', 'S']) {
        Some(rest) if rest.starts_with(|c: char| c.is_ascii_uppercase()) => rest,
        _ => type_name,
    }
}

fn shown_value(value: &Value) -> String {
    match value {
        Value::Array(_) => "[".to_owned(),
        Value::Object(_) => "{".to_owned(),
        Value::String(text) => format!("\"{text}\""),
        other => other.to_string(),
    }
}

/// The column just after the colon of the member at `path`, counted from the start of the text: what
/// the .NET reader reports as "line 1, position N" for a body without line breaks.
fn position(raw: &str, path: &[Step]) -> Option<usize> {
    let bytes = raw.as_bytes();
    let mut at = skip_space(bytes, 0);
    for step in path {
        match step {
            Step::Member(wanted) => {
                if bytes.get(at) != Some(&b'{') {
                    return Some(at);
                }
                at = skip_space(bytes, at + 1);
                loop {
                    let end = skip_value(bytes, at)?;
                    let name: String = serde_json::from_str(raw.get(at..end)?).ok()?;
                    let colon = skip_space(bytes, end);
                    at = skip_space(bytes, colon + 1);
                    if &name == wanted {
                        if matches!(path.last(), Some(Step::Member(last)) if std::ptr::eq(last, wanted)) {
                            return Some(colon + 1);
                        }
                        break;
                    }
                    at = skip_space(bytes, skip_value(bytes, at)?);
                    if bytes.get(at) != Some(&b',') {
                        return None;
                    }
                    at = skip_space(bytes, at + 1);
                }
            }
            Step::Index(index) => {
                if bytes.get(at) != Some(&b'[') {
                    return Some(at);
                }
                at = skip_space(bytes, at + 1);
                for _ in 0..*index {
                    at = skip_space(bytes, skip_value(bytes, at)?);
                    at = skip_space(bytes, at + 1);
                }
            }
        }
    }
    Some(at)
}

/// The same for a member at the top of a body.
pub(crate) fn position_of(raw: &str, member: &str) -> usize {
    position(raw, &[Step::Member(member.to_owned())]).unwrap_or(raw.len())
}

fn skip_space(bytes: &[u8], mut at: usize) -> usize {
    while bytes.get(at).is_some_and(u8::is_ascii_whitespace) {
        at += 1;
    }
    at
}

/// The offset after the value that starts at `at`.
fn skip_value(bytes: &[u8], at: usize) -> Option<usize> {
    match *bytes.get(at)? {
        b'"' => {
            let mut at = at + 1;
            loop {
                match *bytes.get(at)? {
                    b'\\' => at += 2,
                    b'"' => return Some(at + 1),
                    _ => at += 1,
                }
            }
        }
        b'{' | b'[' => {
            let mut depth = 0_usize;
            let mut at = at;
            loop {
                match *bytes.get(at)? {
                    b'"' => {
                        at = skip_value(bytes, at)?;
                        continue;
                    }
                    b'{' | b'[' => depth += 1,
                    b'}' | b']' => {
                        depth -= 1;
                        if depth == 0 {
                            return Some(at + 1);
                        }
                    }
                    _ => {}
                }
                at += 1;
            }
        }
        _ => {
            let mut at = at;
            while bytes.get(at).is_some_and(|b| !matches!(b, b',' | b'}' | b']') && !b.is_ascii_whitespace()) {
                at += 1;
            }
            Some(at)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named<'a>(kind: &'a Kind, into: &mut Vec<&'a str>) {
        match kind {
            Kind::Object(name) => into.push(name),
            Kind::List(inner) | Kind::Map(inner) => named(inner, into),
            _ => {}
        }
    }

    #[test]
    fn every_type_that_the_table_names_is_in_it() {
        let mut names = vec![
            "Disk",
            "VirtualMachine",
            "AvailabilitySet",
            "NVirtualNetwork",
            "NSubnetResource",
            "NNetworkInterfaceResource",
            "NPublicIPAddressResource",
            "NPublicIPPrefix",
            "AttachDetachDataDisksRequest",
            "GrantAccessData",
            "ResourceGroup",
            "TagsObject",
        ];
        for property in TABLE.values().flatten() {
            named(&property.kind, &mut names);
        }
        for name in names {
            assert!(TABLE.get(name).is_some_and(|rows| !rows.is_empty()), "{name}");
        }
    }
}
