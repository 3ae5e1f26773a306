//! How parameters are read: keys in any case, aliases, numbers and booleans, and the error that names what is wrong.

use std::{collections::BTreeMap, fmt::Display, str::FromStr};

use crate::{UnknownName, fault::Code};

/// A parameter of a StorageClass, a VolumeAttributesClass or a PersistentVolume that cannot be used.
///
/// Its text is one sentence that names the parameter, its value and what is allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("parameter {parameter} is {value:?}: {allowed}")]
pub struct ParameterError {
    /// The parameter, as the user spelled it.
    pub parameter: String,
    /// The value, as the user wrote it.
    pub value: String,
    /// What is allowed instead, or why this is not.
    pub allowed: String,
    kind: ParameterErrorKind,
}

/// Which of the two answers to a caller's mistake a [`ParameterError`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParameterErrorKind {
    /// The value is wrong in itself.
    InvalidArgument,
    /// The size that was asked for cannot be made within its own limit or with this kind of disk. The CSI
    /// specification gives "unsupported capacity_range" this code for CreateVolume and ControllerExpandVolume.
    OutOfRange,
}

impl ParameterError {
    /// A value that is wrong in itself.
    pub fn invalid(parameter: impl Into<String>, value: impl Display, allowed: impl Into<String>) -> Self {
        Self {
            parameter: parameter.into(),
            value: value.to_string(),
            allowed: allowed.into(),
            kind: ParameterErrorKind::InvalidArgument,
        }
    }

    /// A size that cannot be made.
    pub fn out_of_range(parameter: impl Into<String>, value: impl Display, allowed: impl Into<String>) -> Self {
        Self { kind: ParameterErrorKind::OutOfRange, ..Self::invalid(parameter, value, allowed) }
    }

    /// Which kind of mistake it is.
    pub fn kind(&self) -> ParameterErrorKind {
        self.kind
    }

    /// The gRPC code; both are final for external-provisioner, for a repetition would fail in the same way.
    pub fn code(&self) -> Code {
        match self.kind {
            ParameterErrorKind::InvalidArgument => Code::InvalidArgument,
            ParameterErrorKind::OutOfRange => Code::OutOfRange,
        }
    }
}

/// One parameter as it was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parameter<'a> {
    /// The key, as it was spelled.
    pub key: &'a str,
    /// The value.
    pub value: &'a str,
}

impl Parameter<'_> {
    /// The error that says what is allowed instead.
    pub fn refuse(&self, allowed: impl Into<String>) -> ParameterError {
        ParameterError::invalid(self.key, self.value, allowed)
    }

    /// One of the names of an enum; the case of letters counts, as it does in the Go drivers.
    ///
    /// # Errors
    /// When it is none of them.
    pub fn name<T: FromStr<Err = UnknownName>>(&self) -> Result<T, ParameterError> {
        self.value.parse().map_err(|unknown: UnknownName| {
            self.refuse(format!("allowed are {}, in exactly this spelling", unknown.allowed))
        })
    }

    /// A decimal number of the wanted type.
    ///
    /// # Errors
    /// When it is none, or too large for the type.
    pub fn number<T: FromStr>(&self, allowed: &str) -> Result<T, ParameterError> {
        // A leading plus is what Go's Atoi takes and Rust's parse too; anything else but digits is refused by both.
        self.value.parse().map_err(|_| self.refuse(allowed))
    }

    /// A boolean in any of the spellings of Go's `strconv.ParseBool`.
    ///
    /// # Errors
    /// When it is none of them.
    pub fn boolean(&self) -> Result<bool, ParameterError> {
        match self.value {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
            _ => Err(self.refuse("allowed are true and false")),
        }
    }

    /// Whether it is `true` in any case: the Go driver ignores every other value of these switches.
    pub fn is_true(&self) -> bool {
        self.value.eq_ignore_ascii_case("true")
    }
}

/// Parameters by their lower-cased keys.
#[derive(Debug, Clone, Default)]
pub struct Parameters<'a>(BTreeMap<String, Parameter<'a>>);

impl<'a> Parameters<'a> {
    /// Parameters that a user writes: two keys that differ only in case are refused, where the Go driver takes one of
    /// them at random.
    ///
    /// # Errors
    /// For the second of such keys.
    pub fn written(map: &'a BTreeMap<String, String>) -> Result<Self, ParameterError> {
        let mut folded = BTreeMap::new();
        for (key, value) in map {
            let parameter = Parameter { key, value };
            if let Some(other) = folded.insert(key.to_ascii_lowercase(), parameter) {
                return Err(parameter.refuse(format!(
                    "it is given twice, also as {} with {:?}; allowed is one spelling",
                    other.key, other.value
                )));
            }
        }
        Ok(Self(folded))
    }

    /// A volume or publish context. What drivers wrote is read leniently: the same value under two spellings is one
    /// value. Which of two different values counts would be chance, so a lookup refuses it.
    pub fn context(map: &'a BTreeMap<String, String>) -> Context<'a> {
        Context(map)
    }

    /// These, with others over them: a VolumeAttributesClass wins over the StorageClass, also where one says
    /// `skuName` and the other `storageAccountType`.
    pub fn overridden_by(mut self, over: Self, aliases: &[&str]) -> Self {
        if aliases.iter().any(|alias| over.0.contains_key(*alias)) {
            for alias in aliases {
                self.0.remove(*alias);
            }
        }
        self.0.extend(over.0);
        self
    }

    /// All of them, each with its lower-cased key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Parameter<'a>)> {
        self.0.iter().map(|(folded, parameter)| (folded.as_str(), *parameter))
    }

    /// A parameter by its lower-cased name; an empty value counts as absent, as in the Go driver.
    pub fn get(&self, folded: &str) -> Option<Parameter<'a>> {
        self.0.get(folded).copied().filter(|parameter| !parameter.value.is_empty())
    }
}

/// The context of a volume, as a PersistentVolume holds it.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a>(&'a BTreeMap<String, String>);

impl<'a> Context<'a> {
    /// All attributes, as they are spelled.
    pub fn iter(&self) -> impl Iterator<Item = Parameter<'a>> {
        self.0.iter().map(|(key, value)| Parameter { key, value })
    }

    /// An attribute by its lower-cased name; an empty value counts as absent.
    ///
    /// # Errors
    /// When it is given twice, with two values.
    pub fn get(&self, folded: &str) -> Result<Option<Parameter<'a>>, ParameterError> {
        let mut found: Option<Parameter<'a>> = None;
        for parameter in self.iter().filter(|p| p.key.eq_ignore_ascii_case(folded) && !p.value.is_empty()) {
            match found {
                Some(first) if first.value != parameter.value => {
                    return Err(parameter.refuse(format!(
                        "it is given twice, also as {} with {:?}; allowed is one value",
                        first.key, first.value
                    )));
                }
                Some(_) => {}
                None => found = Some(parameter),
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn an_error_names_parameter_value_and_what_is_allowed() {
        let error = Parameter { key: "skuName", value: "gold" }.refuse("allowed is brass");
        assert_eq!(error.to_string(), "parameter skuName is \"gold\": allowed is brass");
        assert_eq!(error.code(), Code::InvalidArgument);
        assert_eq!(ParameterError::out_of_range("size", 3, "at least 4").code(), Code::OutOfRange);
    }

    #[test]
    fn two_keys_that_differ_only_in_case_are_refused() {
        let error = Parameters::written(&map(&[("Tags", "a=b"), ("tags", "c=d")])).unwrap_err();
        assert_eq!(
            error.to_string(),
            "parameter tags is \"c=d\": it is given twice, also as Tags with \"a=b\"; allowed is one spelling"
        );
    }

    #[test]
    fn a_context_may_say_the_same_twice_but_not_two_things() {
        let same = map(&[("cachingMode", "None"), ("cachingmode", "None")]);
        assert_eq!(Parameters::context(&same).get("cachingmode").unwrap().unwrap().value, "None");
        let two = map(&[("cachingMode", "None"), ("cachingmode", "ReadOnly")]);
        assert!(Parameters::context(&two).get("cachingmode").is_err());
        assert_eq!(Parameters::context(&map(&[("LUN", "")])).get("lun"), Ok(None));
    }

    #[test]
    fn a_class_that_overrides_one_alias_overrides_the_other() {
        let (under, over) = (map(&[("storageAccountType", "a"), ("tags", "k=v")]), map(&[("skuName", "b")]));
        let merged = Parameters::written(&under)
            .unwrap()
            .overridden_by(Parameters::written(&over).unwrap(), &["skuname", "storageaccounttype"]);
        assert_eq!(merged.get("storageaccounttype"), None);
        assert_eq!(merged.get("skuname").unwrap().value, "b");
        assert!(merged.get("tags").is_some());
    }

    #[test]
    fn booleans_are_spelled_as_in_go() {
        for (text, value) in [("T", Some(true)), ("False", Some(false)), ("yes", None), ("tRUE", None)] {
            assert_eq!(Parameter { key: "k", value: text }.boolean().ok(), value, "{text}");
        }
    }
}
