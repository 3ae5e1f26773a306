//! The expressions of templates: `[concat(parameters('a'), '-b')]`. Names of functions count in any case, as Azure has it.

use serde_json::{Value, json};

use super::{
    id_of,
    values::{Values, size},
};
use crate::api_versions;
use crate::fault::{self, Fault};
use crate::path;

/// The properties of a resource by its id, or by its name in the template.
pub(crate) type Reference = Box<dyn Fn(&str) -> Option<Value> + Send>;

/// What an expression is told of the world around its template.
pub(crate) struct Scope {
    pub(crate) group_id: String,
    /// Of the group.
    pub(crate) location: String,
    pub(crate) subscription: String,
    pub(crate) tenant: String,
    pub(crate) reference: Reference,
}

/// How deep calls may stand in each other: more than any template has, and far from the stack's end.
const DEEPEST: usize = 32;

/// The value of a text: of an expression what it evaluates to, of any other the text itself.
pub(super) fn text(text: &str, values: &Values, scope: &Scope) -> Result<Value, Fault> {
    if let Some(escaped) = text.strip_prefix("[[") {
        return Ok(Value::from(format!("[{escaped}")));
    }
    let Some(inner) = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) else {
        return Ok(Value::from(text));
    };
    let mut reader = Reader { text: inner, rest: inner, values, scope };
    let value = reader.value(0)?;
    if reader.rest.trim().is_empty() { Ok(value) } else { Err(reader.malformed()) }
}

struct Reader<'a> {
    text: &'a str,
    rest: &'a str,
    values: &'a Values,
    scope: &'a Scope,
}

impl<'a> Reader<'a> {
    fn malformed(&self) -> Fault {
        fault::invalid_template(format!("the expression '{}' is not valid", self.text))
    }

    /// Takes a character, if it is next.
    fn take(&mut self, wanted: char) -> bool {
        let rest = self.rest.trim_start();
        match rest.strip_prefix(wanted) {
            Some(after) => {
                self.rest = after;
                true
            }
            None => false,
        }
    }

    fn word(&mut self) -> &'a str {
        let rest = self.rest.trim_start();
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        self.rest = after;
        word
    }

    fn value(&mut self, depth: usize) -> Result<Value, Fault> {
        if depth > DEEPEST {
            return Err(self.malformed());
        }
        if self.take('\'') {
            return self.quoted();
        }
        let word = self.word();
        if let Ok(number) = word.parse::<i64>() {
            return Ok(Value::from(number));
        }
        if word.is_empty() || !self.take('(') {
            return Err(self.malformed());
        }
        let mut given = Vec::new();
        while !self.take(')') {
            if !given.is_empty() && !self.take(',') {
                return Err(self.malformed());
            }
            given.push(self.value(depth + 1)?);
        }
        let mut value = self.call(word, &given)?;
        self.values.take(size(&value))?;
        loop {
            if self.take('.') {
                let member = self.word();
                value = self.member(&value, member)?;
            } else if self.take('[') {
                let at = self.value(depth + 1)?;
                value = match at.as_u64().and_then(|at| usize::try_from(at).ok()) {
                    Some(at) => value.get(at).cloned().ok_or_else(|| self.malformed())?,
                    None => self.member(&value, at.as_str().unwrap_or(""))?,
                };
                if !self.take(']') {
                    return Err(self.malformed());
                }
            } else {
                return Ok(value);
            }
        }
    }

    /// The rest of a quoted text, in which a quote is written twice.
    fn quoted(&mut self) -> Result<Value, Fault> {
        let mut value = String::new();
        loop {
            let (part, after) = self.rest.split_once('\'').ok_or_else(|| self.malformed())?;
            value.push_str(part);
            self.rest = after;
            match after.strip_prefix('\'') {
                Some(after) => {
                    value.push('\'');
                    self.rest = after;
                }
                None => return Ok(Value::from(value)),
            }
        }
    }

    fn member(&self, value: &Value, name: &str) -> Result<Value, Fault> {
        let members = value.as_object().into_iter().flatten();
        let mut found = members.filter(|(own, _)| own.eq_ignore_ascii_case(name));
        found
            .next()
            .map(|(_, value)| value.clone())
            .ok_or_else(|| fault::invalid_template(format!("the property '{name}' in '{}' does not exist", self.text)))
    }

    fn call(&self, name: &str, given: &[Value]) -> Result<Value, Fault> {
        let words = || given.iter().map(word).collect::<Vec<String>>();
        let one = || given.first().ok_or_else(|| self.malformed());
        Ok(match name.to_ascii_lowercase().as_str() {
            "parameters" => self.values.parameter(&word(one()?))?,
            "variables" => self.values.variable(&word(one()?))?,
            "concat" if given.iter().all(Value::is_array) => {
                given.iter().filter_map(Value::as_array).flatten().cloned().collect()
            }
            "concat" => Value::from(words().concat()),
            "format" => Value::from(self.formatted(&words())?),
            "string" => Value::from(word(one()?)),
            "int" => Value::from(word(one()?).trim().parse::<i64>().map_err(|_| self.malformed())?),
            "tolower" => Value::from(word(one()?).to_lowercase()),
            "toupper" => Value::from(word(one()?).to_uppercase()),
            "createarray" => Value::Array(given.to_vec()),
            "true" => Value::Bool(true),
            "false" => Value::Bool(false),
            "null" => Value::Null,
            "not" => Value::Bool(one()? == &Value::Bool(false)),
            "and" => Value::Bool(given.iter().all(|one| one == &Value::Bool(true))),
            "or" => Value::Bool(given.iter().any(|one| one == &Value::Bool(true))),
            "equals" => Value::Bool(given.first() == given.get(1)),
            "empty" => Value::Bool(length(one()?) == Some(0)),
            "length" => Value::from(length(one()?).ok_or_else(|| self.malformed())?),
            "if" => {
                let chosen = if one()? == &Value::Bool(true) { given.get(1) } else { given.get(2) };
                chosen.cloned().ok_or_else(|| self.malformed())?
            }
            "subscription" => json!({
                "id": format!("/subscriptions/{}", self.scope.subscription),
                "subscriptionId": self.scope.subscription,
                "tenantId": self.scope.tenant,
            }),
            "resourcegroup" => json!({
                "id": self.scope.group_id,
                "name": path::name_of(&self.scope.group_id),
                "location": self.scope.location,
            }),
            "resourceid" => self.resource_id(&words())?,
            "providers" => {
                let kind = words();
                let [namespace, kind] = kind.as_slice() else { return Err(self.malformed()) };
                let mut versions = api_versions::of(Some(namespace), &kind.to_ascii_lowercase());
                versions.reverse();
                json!({"resourceType": kind, "apiVersions": versions})
            }
            "reference" => {
                let wanted = word(one()?);
                (self.scope.reference)(&wanted)
                    .ok_or_else(|| fault::invalid_template(format!("the resource '{wanted}' is not found")))?
            }
            _ => return Err(fault::template_not_emulated(format!("the function '{name}'"))),
        })
    }

    /// `format('{0}-{1}', 'a', 'b')`.
    fn formatted(&self, words: &[String]) -> Result<String, Fault> {
        let (pattern, given) = words.split_first().map_or(("", &[][..]), |(pattern, given)| (pattern.as_str(), given));
        let mut text = pattern.to_owned();
        for (at, word) in given.iter().enumerate() {
            let place = format!("{{{at}}}");
            // Before it is made: a pattern of few letters may name a long word often.
            self.values.take(text.matches(&place).count().saturating_mul(word.len()))?;
            text = text.replace(&place, word);
        }
        Ok(text)
    }

    /// `resourceId([subscription,] [group,] type, name...)`.
    fn resource_id(&self, words: &[String]) -> Result<Value, Fault> {
        let at = words.iter().position(|word| word.contains('/')).ok_or_else(|| self.malformed())?;
        let (before, rest) = words.split_at(at);
        let (kind, names) = rest.split_first().ok_or_else(|| self.malformed())?;
        let group = match before {
            [] => self.scope.group_id.clone(),
            [group] => format!("/subscriptions/{}/resourceGroups/{group}", self.scope.subscription),
            [subscription, group, ..] => format!("/subscriptions/{subscription}/resourceGroups/{group}"),
        };
        id_of(&group, kind, &names.join("/")).map(Value::from).ok_or_else(|| self.malformed())
    }
}

/// A scalar as a text.
fn word(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn length(value: &Value) -> Option<usize> {
    match value {
        Value::String(text) => Some(text.chars().count()),
        Value::Array(items) => Some(items.len()),
        Value::Object(members) => Some(members.len()),
        Value::Null => Some(0),
        Value::Bool(_) | Value::Number(_) => None,
    }
}
