//! Label selectors of Kubernetes.

use std::collections::{BTreeMap, BTreeSet};

/// A label selector: all of its requirements must hold. One without requirements selects everything.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LabelSelector {
    /// `matchLabels`.
    pub labels: BTreeMap<String, String>,
    /// `matchExpressions`.
    pub expressions: Vec<Requirement>,
}

/// One of `matchExpressions`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    /// The label.
    pub key: String,
    /// What holds of it.
    pub operator: Operator,
}

/// What must hold of a label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operator {
    /// It is there, with one of these values.
    In(BTreeSet<String>),
    /// It is not there, or has none of these values.
    NotIn(BTreeSet<String>),
    /// It is there.
    Exists,
    /// It is not there.
    DoesNotExist,
}

impl LabelSelector {
    /// Whether it has no requirement.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.expressions.is_empty()
    }

    /// Whether it selects what bears these labels.
    pub fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        self.labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.expressions.iter().all(|requirement| {
                let value = labels.get(&requirement.key);
                match &requirement.operator {
                    Operator::In(values) => value.is_some_and(|value| values.contains(value)),
                    Operator::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
                    Operator::Exists => value.is_some(),
                    Operator::DoesNotExist => value.is_none(),
                }
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_requirement_must_hold() {
        let labels: BTreeMap<String, String> = [("app".to_owned(), "web".to_owned())].into();
        let one = |key: &str, operator| LabelSelector {
            labels: BTreeMap::new(),
            expressions: vec![Requirement { key: key.to_owned(), operator }],
        };
        let values = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect::<BTreeSet<_>>();
        assert!(LabelSelector::default().selects(&labels) && LabelSelector::default().is_empty());
        for (selector, selects) in [
            (LabelSelector { labels: labels.clone(), expressions: vec![] }, true),
            (one("app", Operator::In(values(&["web", "db"]))), true),
            (one("app", Operator::In(values(&["db"]))), false),
            (one("tier", Operator::In(values(&["db"]))), false),
            (one("app", Operator::NotIn(values(&["web"]))), false),
            (one("tier", Operator::NotIn(values(&["web"]))), true),
            (one("app", Operator::Exists), true),
            (one("tier", Operator::Exists), false),
            (one("app", Operator::DoesNotExist), false),
        ] {
            assert_eq!(selector.selects(&labels), selects, "{selector:?}");
        }
    }
}
