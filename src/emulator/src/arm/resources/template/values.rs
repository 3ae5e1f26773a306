//! The values that the expressions of a template read: parameters, and variables, each of which is evaluated once.

use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
};

use serde_json::{Map, Value};

use super::{Scope, evaluate};
use crate::fault::{self, Fault};

/// How many variables, and how many parameters, a template may have (source: Azure's limits of templates).
const MOST: usize = 256;

/// How many bytes all results of functions may take together: four times what Azure lets a template take once it is expanded
/// (4 MB), because results stand in each other.
const MOST_BYTES: usize = 16 << 20;

/// Parameters and variables with their values. Names are in small letters, because their case does not count.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Values {
    parameters: BTreeMap<String, Value>,
    variables: BTreeMap<String, Result<Value, Fault>>,
    /// How many bytes the results of functions have taken so far.
    taken: Cell<usize>,
}

impl Values {
    /// Evaluates the variables, those that others name first.
    ///
    /// # Errors
    ///
    /// Where there are more parameters or variables than Azure allows. A variable that cannot be evaluated is an error where it is
    /// used.
    pub(super) fn new(
        parameters: BTreeMap<String, Value>,
        written: &Map<String, Value>,
        scope: &Scope,
    ) -> Result<Self, Fault> {
        for (count, what) in [(parameters.len(), "parameters"), (written.len(), "variables")] {
            if count > MOST {
                return Err(fault::invalid_template(format!("it has {count} {what}, and at most {MOST} are allowed")));
            }
        }
        let written: BTreeMap<String, &Value> =
            written.iter().map(|(name, value)| (name.to_ascii_lowercase(), value)).collect();
        let mut values = Self { parameters, ..Self::default() };
        for name in order(&written) {
            let value = evaluate(written[name], &values, scope);
            values.variables.insert(name.to_owned(), value);
        }
        Ok(values)
    }

    pub(super) fn parameter(&self, name: &str) -> Result<Value, Fault> {
        let found = self.parameters.get(&name.to_ascii_lowercase()).cloned();
        found.ok_or_else(|| fault::invalid_template(format!("the parameter '{name}' is not found")))
    }

    pub(super) fn variable(&self, name: &str) -> Result<Value, Fault> {
        let found = self.variables.get(&name.to_ascii_lowercase()).cloned();
        // One that names itself is not there yet when it is evaluated.
        found.unwrap_or_else(|| {
            Err(fault::invalid_template(format!("the variable '{name}' is not found, or needs itself")))
        })
    }

    /// Counts bytes of a result that is about to be made or was made.
    pub(super) fn take(&self, bytes: usize) -> Result<(), Fault> {
        let taken = self.taken.get().saturating_add(bytes);
        self.taken.set(taken);
        if taken > MOST_BYTES {
            return Err(fault::invalid_template(format!("its expressions make more than {MOST_BYTES} bytes")));
        }
        Ok(())
    }
}

/// How many bytes a value takes, about.
pub(super) fn size(value: &Value) -> usize {
    const SCALAR: usize = 16;
    match value {
        Value::String(text) => SCALAR + text.len(),
        Value::Array(items) => SCALAR + items.iter().map(size).sum::<usize>(),
        Value::Object(members) => SCALAR + members.iter().map(|(name, value)| name.len() + size(value)).sum::<usize>(),
        Value::Null | Value::Bool(_) | Value::Number(_) => SCALAR,
    }
}

/// The names of variables, each behind those that it names. Of those that need each other, one comes before what it needs.
fn order<'a>(written: &'a BTreeMap<String, &Value>) -> Vec<&'a str> {
    let (mut order, mut begun) = (Vec::new(), BTreeSet::new());
    for first in written.keys() {
        // By a list of our own, not by calls: a chain of variables may be longer than the stack.
        let mut open: Vec<(&str, Vec<&str>)> = Vec::new();
        let mut next = Some(first.as_str());
        loop {
            if let Some(name) = next.take().filter(|name| begun.insert(*name)) {
                let mut needs = BTreeSet::new();
                named(written[name], written, &mut needs);
                open.push((name, needs.into_iter().collect()));
            }
            let Some((name, needs)) = open.last_mut() else { break };
            next = needs.pop();
            if next.is_none() {
                order.push(*name);
                open.pop();
            }
        }
    }
    order
}

/// Puts the variables that the texts of a value may name into `needs`: all of them where a name is computed.
fn named<'a>(value: &Value, written: &'a BTreeMap<String, &Value>, needs: &mut BTreeSet<&'a str>) {
    const CALL: &str = "variables";
    match value {
        Value::String(text) => {
            let text = text.to_ascii_lowercase();
            for (at, _) in text.match_indices(CALL) {
                let Some(argument) = text[at + CALL.len()..].trim_start().strip_prefix('(') else { continue };
                let literal = argument.trim_start().strip_prefix('\'').and_then(|rest| rest.split_once('\''));
                match literal {
                    Some((name, _)) => needs.extend(written.get_key_value(name).map(|(name, _)| name.as_str())),
                    None => needs.extend(written.keys().map(String::as_str)),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| named(item, written, needs)),
        Value::Object(members) => members.values().for_each(|member| named(member, written, needs)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use serde_json::json;

    use super::*;

    fn scope() -> Scope {
        let text = |text: &str| text.to_owned();
        Scope {
            group_id: text("/subscriptions/s/resourceGroups/g"),
            location: text("westeurope"),
            subscription: text("s"),
            tenant: text("t"),
            reference: Box::new(|_| None),
        }
    }

    fn values(written: &Value) -> Result<Values, Fault> {
        let parameters = BTreeMap::from([("environment".to_owned(), json!("test"))]);
        Values::new(parameters, written.as_object().unwrap(), &scope())
    }

    /// A variable for each number, of what stands for the next one.
    fn chain(length: usize, link: impl Fn(&str) -> String) -> Value {
        let last = (format!("v{length}"), json!("x"));
        let links = (0..length).map(|at| (format!("v{at}"), Value::from(link(&format!("variables('V{}')", at + 1)))));
        Value::Object(links.chain([last]).collect())
    }

    #[test]
    fn variables_are_evaluated_in_the_order_in_which_they_need_each_other() {
        let written = json!({
            "a": "[concat(variables('B'), variables( 'c' )[0], variables('d').e)]",
            "b": "[variables(concat('size-', parameters('environment')))]",
            "c": ["[variables('last')]"],
            "d": {"e": "[[variables('a')]"},
            "last": "z",
            "size-test": "[toLower('SMALL')]",
        });
        assert_eq!(values(&written).unwrap().variable("A").unwrap(), json!("smallz[variables('a')]"));
    }

    #[test]
    fn variables_that_need_themselves_are_refused_where_they_are_used() {
        let found = values(&json!({"a": "[variables('b')]", "b": "[variables('a')]", "c": "[variables('c')]", "d": 1}))
            .unwrap();
        for name in ["a", "b", "c", "none"] {
            assert!(found.variable(name).unwrap_err().message.contains("needs itself"), "{name}");
        }
        assert_eq!(found.variable("d").unwrap(), json!(1));
    }

    #[test]
    fn a_template_can_neither_end_nor_hold_the_emulator() {
        let plain = |next: &str| format!("[{next}]");
        assert_eq!(values(&chain(MOST - 1, plain)).unwrap().variable("v0").unwrap(), json!("x"));
        let many = values(&chain(3000, plain)).unwrap_err();
        assert_eq!((many.status, many.message.contains("3001 variables")), (400, true), "{}", many.message);
        let began = Instant::now();
        for twice in
            ["concat({}, {})", "format('{0}{0}{0}{0}', {})", "createArray({}, {})", "string(createArray({}, {}))"]
        {
            let found = values(&chain(64, |next| format!("[{}]", twice.replace("{}", next)))).unwrap();
            assert!(found.variable("v0").unwrap_err().message.contains("bytes"), "{twice}");
        }
        assert!(began.elapsed().as_secs() < 20, "{:?}", began.elapsed());
    }
}
