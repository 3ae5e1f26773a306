//! Reading values by the table.

use std::collections::BTreeMap;

use super::{Kind, find, key, misspelt, row};
use crate::{
    ask::{Mistake, Warning, WarningReason},
    service::ServiceObject,
};

/// The annotations of a Service, and what turns out to be wrong with them.
pub struct Annotations<'a> {
    values: &'a BTreeMap<String, String>,
    /// Whether Azure serves the Service already.
    is_live: bool,
    /// Whether a value is read by what serves the Service.
    pub reads_shown: bool,
    /// What is wrong.
    pub mistakes: Vec<Mistake>,
    /// What is odd.
    pub warnings: Vec<Warning>,
}

/// The key for a port.
fn of_port(template: &str, port: u16) -> String {
    template.replace("{port}", &port.to_string())
}

impl<'a> Annotations<'a> {
    /// The annotations of a Service.
    pub fn of(object: &'a ServiceObject, is_live: bool) -> Self {
        Self { values: &object.annotations, is_live, reads_shown: false, mistakes: vec![], warnings: vec![] }
    }

    /// The value of a key, as written.
    pub fn raw(&self, key: &str) -> Option<&'a str> {
        self.values.get(key).map(String::as_str)
    }

    /// The value of a key without space around it; `None` when nothing is left.
    pub fn text(&self, key: &str) -> Option<&'a str> {
        self.raw(key).map(str::trim).filter(|text| !text.is_empty())
    }

    /// Notes that a value cannot be used.
    pub fn refuse(&mut self, key: &str, allowed: impl Into<String>) {
        let value = self.raw(key).unwrap_or_default().to_owned();
        self.mistakes.push(Mistake::annotation(key, value, allowed));
    }

    /// Notes that a value cannot be used, in the words of the table.
    pub fn refuse_by_table(&mut self, key: &str) {
        let kind = row(key).kind;
        self.refuse(key, format!("allowed is {kind}"));
    }

    /// Notes that a setting has no effect.
    pub fn note_no_effect(&mut self, key: &str, why: &str) {
        self.warnings.push(Warning::new(WarningReason::NoEffect, format!("annotation {key} has no effect: {why}")));
    }

    /// A flag; absent is false. The Go manager takes everything but `true` in any case, with no space around it, as false. So
    /// a `true` with space around it is one of a new Service alone: what serves already may have been made by the other
    /// reading, and is looked at.
    pub fn flag(&mut self, key: &str) -> bool {
        let Some(raw) = self.raw(key) else { return false };
        if raw.eq_ignore_ascii_case("true") {
            return true;
        }
        let text = raw.trim();
        let is_true = text.eq_ignore_ascii_case("true");
        self.reads_shown |= is_true;
        let is_false = text.is_empty() || text.eq_ignore_ascii_case("false");
        if (is_true && self.is_live) || (!is_true && !is_false) {
            self.refuse_by_table(key);
        }
        is_true
    }

    /// A flag of a port.
    pub fn port_flag(&mut self, template: &str, port: u16) -> bool {
        self.flag(&of_port(template, port))
    }

    /// A whole number within the bounds of the table.
    pub fn number(&mut self, key: &str) -> Option<u32> {
        let raw = self.raw(key)?;
        let Kind::Number { least, most, .. } = row(key).kind else { return None };
        match raw.trim().parse::<u32>() {
            Ok(number) if (least..=most).contains(&number) => Some(number),
            _ => {
                self.refuse_by_table(key);
                None
            }
        }
    }

    /// A whole number of a port or, without one, of the whole Service, with the key that said so.
    pub fn port_number(&mut self, template: &str, port: u16, global: &str) -> Option<(u32, String)> {
        let own = of_port(template, port);
        let key = if self.raw(&own).is_some() { own } else { global.to_owned() };
        self.number(&key).map(|number| (number, key))
    }

    /// The text of a port.
    pub fn port_text(&self, template: &str, port: u16) -> Option<(&'a str, String)> {
        let key = of_port(template, port);
        self.raw(&key).map(|text| (text, key))
    }

    /// The items of a list with commas between them, without space around them; empty items are dropped.
    pub fn comma_list(&self, key: &str) -> Vec<&'a str> {
        self.raw(key)
            .into_iter()
            .flat_map(|text| text.split(','))
            .map(str::trim)
            .filter(|item| !item.is_empty())
            .collect()
    }

    /// The items of a list with spaces between them.
    pub fn space_list(&self, key: &str) -> Vec<&'a str> {
        self.raw(key).into_iter().flat_map(str::split_whitespace).collect()
    }

    /// Warns of keys that no row has, and of keys for ports that the Service does not have.
    pub fn note_unknown(&mut self, object: &ServiceObject) {
        for key in self.values.keys() {
            if let Some(meant) = misspelt(key) {
                let hint = match meant {
                    Some(meant) => format!("; the nearest key is {meant}"),
                    None if key.to_lowercase().contains("/port_") => {
                        "; the key of a port has its number, as in port_80_no_lb_rule".to_owned()
                    }
                    None => String::new(),
                };
                let message = format!("unknown annotation {key}{hint}");
                self.warnings.push(Warning::new(WarningReason::UnknownAnnotation, message));
            }
            if let Some((_, Some(port))) = find(key) {
                let is_health_check = object.is_local && object.health_check_node_port == port;
                if !is_health_check && !object.ports.iter().any(|there| there.port == port) {
                    let message = format!("annotation {key} has no effect: the Service has no port {port}");
                    self.warnings.push(Warning::new(WarningReason::NoEffect, message));
                }
            }
        }
        if self.raw(key::SHARED_SECURITY_RULE).is_some() {
            self.note_no_effect(key::SHARED_SECURITY_RULE, "security rules are always shared");
        }
    }
}
