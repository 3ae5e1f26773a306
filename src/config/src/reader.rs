//! Typed access to a tree of configured values, with Go's rules for what a value may look like.
//!
//! The Go peers decode through `sigs.k8s.io/yaml` into a struct: keys match in any letter case, a number
//! or boolean is accepted where a string is wanted, and nothing else is converted. Where a key occurs in
//! several spellings or layers the later layer wins, then the spelling that sorts last by bytes (Go sorts
//! keys before it decodes them).

use std::{cell::RefCell, collections::BTreeMap, sync::Arc, time::Duration};

use lazuli_model::spelling::nearest;
use serde_json::{Number, Value};

use super::{
    Secret, UnknownKey,
    error::{Problem, ProblemKind},
};

/// What reading found besides the values.
#[derive(Debug, Default)]
pub(super) struct Report {
    pub(super) problems: Vec<Problem>,
    pub(super) unknown: Vec<UnknownKey>,
    /// The keys of the document itself that are given and known, as the documentation spells them.
    pub(super) given: Vec<String>,
    pub(super) warnings: Vec<String>,
    /// Every key that a setting has asked for, with its path.
    pub(super) asked: Vec<String>,
}

/// An enumeration written as one of a few words, in any letter case.
pub(super) trait Choice: Copy + 'static {
    /// Accepted words. The first for a value is the documented one.
    const WORDS: &'static [(&'static str, Self)];
}

#[derive(Debug, Clone)]
pub(super) struct Item {
    pub(super) layer: usize,
    pub(super) origin: Arc<str>,
    pub(super) key: String,
    pub(super) value: Value,
}

/// One mapping being read. Keys are taken out as they are read; what is left at the end is unknown.
pub(super) struct Reader<'r> {
    path: String,
    /// Named when a required key is missing.
    origin: Arc<str>,
    items: Vec<Item>,
    /// The keys that settings have asked for: those that exist.
    asked: Vec<String>,
    report: &'r RefCell<Report>,
}

impl<'r> Reader<'r> {
    pub(super) fn new(path: String, origin: Arc<str>, mut items: Vec<Item>, report: &'r RefCell<Report>) -> Self {
        items.sort_by(|a, b| (a.layer, &a.key).cmp(&(b.layer, &b.key)));
        Self { path, origin, items, asked: Vec::new(), report }
    }

    fn at(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// Removes all spellings of a key, in the order in which they apply. Null is "not set".
    fn take(&mut self, key: &str) -> Vec<Item> {
        self.asked.push(key.to_owned());
        let mut taken: Vec<Item> = Vec::new();
        self.items.retain(|item| {
            let matches = item.key.eq_ignore_ascii_case(key);
            if matches {
                taken.push(item.clone());
            }
            !matches
        });
        let doubled = taken.windows(2).any(|pair| pair[0].layer == pair[1].layer && !pair[0].value.is_object());
        if doubled {
            let spellings: Vec<&str> = taken.iter().map(|item| item.key.as_str()).collect();
            self.warn(format!(
                "{} is given in several spellings ({}): the last one listed is used",
                self.at(key),
                spellings.join(", ")
            ));
        }
        taken.retain(|item| !item.value.is_null());
        if self.path.is_empty() && !taken.is_empty() {
            self.report.borrow_mut().given.push(key.to_owned());
        }
        taken
    }

    pub(super) fn warn(&self, text: String) {
        self.report.borrow_mut().warnings.push(text);
    }

    fn problem(&self, origin: &str, key: String, kind: ProblemKind) {
        self.report.borrow_mut().problems.push(Problem { origin: origin.to_owned(), key, kind });
    }

    /// Reports that a key cannot be used although its kind is right.
    pub(super) fn unusable(&self, key: &str, reason: impl Into<String>) {
        let reason = reason.into();
        self.problem(&self.origin, self.at(key), ProblemKind::Unusable { reason });
    }

    /// Reports that no key gives a credential. Which unknown keys probably mean one is known when all have been asked for.
    pub(super) fn without_credential(&self, key: &str) {
        self.problem(&self.origin, self.at(key), ProblemKind::NoCredential { misspelt: Vec::new() });
    }

    /// Reports that a required key is absent.
    pub(super) fn missing(&self, key: &str, expected: &str) {
        // Whether an unknown key means it is known when all keys have been asked for.
        let kind = ProblemKind::Missing { expected: expected.to_owned(), misspelt: None };
        self.problem(&self.origin, self.at(key), kind);
    }

    /// Reads a scalar with `convert`; every layer is checked, the last good value wins.
    fn scalar<T>(
        &mut self,
        key: &str,
        expected: &str,
        convert: impl Fn(&Value) -> Result<T, Option<String>>,
    ) -> Option<T> {
        let mut found = None;
        for item in self.take(key) {
            match convert(&item.value) {
                Ok(value) => found = Some(value),
                Err(reason) => {
                    let kind = match reason {
                        Some(reason) => ProblemKind::Unusable { reason },
                        None => ProblemKind::WrongKind { found: kind_of(&item.value), expected: expected.to_owned() },
                    };
                    self.problem(&item.origin, self.at(key), kind);
                }
            }
        }
        found
    }

    /// A text; numbers and booleans are taken by their spelling. Surrounding white space is dropped, and
    /// an empty text is "not set".
    pub(super) fn text(&mut self, key: &str) -> Option<String> {
        self.scalar(key, "a string", |value| text_of(value).ok_or(None))
            .map(|text| text.trim().to_owned())
            .filter(|text| !text.is_empty())
    }

    pub(super) fn required_text(&mut self, key: &str, expected: &str) -> String {
        let problems = self.report.borrow().problems.len();
        let text = self.text(key);
        // A value of the wrong kind is reported once, not also as missing.
        if text.is_none() && self.report.borrow().problems.len() == problems {
            self.missing(key, expected);
        }
        text.unwrap_or_default()
    }

    pub(super) fn secret(&mut self, key: &str) -> Option<Secret> {
        self.text(key).map(Secret::new)
    }

    /// A boolean; the strings "true" and "false" are refused, as by Go.
    pub(super) fn flag(&mut self, key: &str) -> Option<bool> {
        self.scalar(key, "true or false", |value| value.as_bool().ok_or(None))
    }

    /// A whole number; `5.0` is accepted, `"5"` and `5.5` are not, as by Go.
    pub(super) fn whole(&mut self, key: &str, least: i64, most: i64) -> Option<i64> {
        self.scalar(key, "a whole number", |value| {
            let number = match value {
                Value::Number(number) => whole_of(number).ok_or(None)?,
                _ => return Err(None),
            };
            if (least..=most).contains(&number) {
                Ok(number)
            } else {
                Err(Some(format!("{number} is outside the range {least} to {most}")))
            }
        })
    }

    /// A count; 0 is "not set", as Go cannot tell them apart.
    pub(super) fn count(&mut self, key: &str) -> Option<u32> {
        let number = self.whole(key, 0, i64::from(i32::MAX))?;
        u32::try_from(number).ok().filter(|number| *number != 0)
    }

    /// A number of seconds; 0 is "not set".
    pub(super) fn seconds(&mut self, key: &str, default: u64) -> Duration {
        let seconds = self.count(key).map_or(default, u64::from);
        Duration::from_secs(seconds)
    }

    /// A number that is not negative; 0 is "not set".
    pub(super) fn real(&mut self, key: &str) -> Option<f64> {
        self.scalar(key, "a number", |value| match value.as_f64() {
            Some(number) if number.is_finite() && number >= 0.0 => Ok(number),
            Some(_) => Err(Some("is negative or not finite".to_owned())),
            None => Err(None),
        })
        .filter(|number| *number != 0.0)
    }

    /// One of a few words. The word itself is quoted in the error: these keys hold no secrets.
    pub(super) fn choice<C: Choice>(&mut self, key: &str) -> Option<C> {
        let expected = C::WORDS.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(", ");
        let expected = format!("one of {expected}");
        self.scalar(key, &expected, |value| {
            let text = text_of(value).ok_or(None)?;
            let text = text.trim();
            if text.is_empty() {
                return Ok(None);
            }
            C::WORDS
                .iter()
                .find(|(word, _)| word.eq_ignore_ascii_case(text))
                .map(|(_, choice)| Some(*choice))
                .ok_or_else(|| Some(format!("unknown value {text:?}, expected {expected}")))
        })
        .flatten()
    }

    /// A nested mapping. Several layers merge key by key.
    pub(super) fn table(&mut self, key: &str) -> Option<Reader<'r>> {
        let path = self.at(key);
        let items = self.nested(key)?;
        Some(Reader::new(path, Arc::clone(&self.origin), items, self.report))
    }

    fn nested(&mut self, key: &str) -> Option<Vec<Item>> {
        let mut items = Vec::new();
        let mut present = false;
        for item in self.take(key) {
            if let Value::Object(map) = &item.value {
                present = true;
                items.extend(map.iter().map(|(key, value)| Item {
                    layer: item.layer,
                    origin: Arc::clone(&item.origin),
                    key: key.clone(),
                    value: value.clone(),
                }));
            } else {
                self.wrong_kind(&item, self.at(key), "a mapping");
            }
        }
        present.then_some(items)
    }

    fn wrong_kind(&self, item: &Item, at: String, expected: &str) {
        let kind = ProblemKind::WrongKind { found: kind_of(&item.value), expected: expected.to_owned() };
        self.problem(&item.origin, at, kind);
    }

    /// A mapping of free names to texts. Names keep their case.
    pub(super) fn texts_by_name(&mut self, key: &str) -> BTreeMap<String, String> {
        let at = self.at(key);
        let mut texts = BTreeMap::new();
        for item in self.nested(key).unwrap_or_default() {
            match text_of(&item.value) {
                Some(text) => {
                    texts.insert(item.key.clone(), text);
                }
                None if item.value.is_null() => {
                    texts.insert(item.key.clone(), String::new());
                }
                None => self.wrong_kind(&item, format!("{at}.{}", item.key), "a string"),
            }
        }
        texts
    }

    /// A list; a later layer replaces it whole.
    fn list(&mut self, key: &str) -> Vec<Item> {
        let mut last = Vec::new();
        for item in self.take(key) {
            if let Value::Array(values) = &item.value {
                last = values.iter().map(|value| Item { value: value.clone(), ..item.clone() }).collect();
            } else {
                self.wrong_kind(&item, self.at(key), "a list");
            }
        }
        last
    }

    /// A list of texts.
    pub(super) fn texts(&mut self, key: &str) -> Vec<String> {
        let at = self.at(key);
        let mut texts = Vec::new();
        for (index, item) in self.list(key).iter().enumerate() {
            match text_of(&item.value) {
                Some(text) => texts.push(text),
                None => self.wrong_kind(item, format!("{at}[{index}]"), "a string"),
            }
        }
        texts
    }

    /// A list of mappings.
    pub(super) fn tables(&mut self, key: &str) -> Vec<Reader<'r>> {
        let at = self.at(key);
        let mut tables = Vec::new();
        for (index, item) in self.list(key).iter().enumerate() {
            let at = format!("{at}[{index}]");
            let Value::Object(map) = &item.value else {
                self.wrong_kind(item, at, "a mapping");
                continue;
            };
            let items = map.iter().map(|(key, value)| Item { key: key.clone(), value: value.clone(), ..item.clone() });
            tables.push(Reader::new(at, Arc::clone(&item.origin), items.collect(), self.report));
        }
        tables
    }

    /// Ends the reading: a key that no setting asked for is unknown.
    pub(super) fn finish(self) {
        let nearest = |key: &str| nearest(key, self.asked.iter().map(String::as_str)).map(|meant| self.at(meant));
        let unknown = self.items.iter().map(|item| UnknownKey { key: self.at(&item.key), nearest: nearest(&item.key) });
        let mut report = self.report.borrow_mut();
        report.unknown.extend(unknown);
        report.asked.extend(self.asked.iter().map(|key| self.at(key)));
    }
}

/// The text that Go would give for a scalar where a string is wanted.
pub(super) fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Number(number) => Some(spelling_of(number)),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Go's `strconv.FormatFloat(f, 'g', -1, 64)` for floats, decimal digits for integers.
fn spelling_of(number: &Number) -> String {
    if !number.is_f64() {
        return number.to_string();
    }
    let float = number.as_f64().unwrap_or_default();
    if float != 0.0 && !(1e-4..1e21).contains(&float.abs()) {
        let text = format!("{float:e}");
        return match text.split_once('e') {
            Some((digits, exponent)) => {
                let (sign, exponent) = match exponent.strip_prefix('-') {
                    Some(rest) => ('-', rest),
                    None => ('+', exponent),
                };
                format!("{digits}e{sign}{exponent:0>2}")
            }
            None => text,
        };
    }
    float.to_string()
}

fn whole_of(number: &Number) -> Option<i64> {
    if let Some(number) = number.as_i64() {
        return Some(number);
    }
    let float = number.as_f64()?;
    // 2^53: beyond it a float no longer names one integer.
    let exact = float.fract() == 0.0 && float.abs() <= 9_007_199_254_740_992.0;
    exact.then_some(float as i64)
}

/// The kind of a value, for messages.
pub(super) fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "a boolean",
        Value::Number(number) if number.as_f64().is_some_and(|number| number.fract() != 0.0) => "a fraction",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "a mapping",
    }
}
