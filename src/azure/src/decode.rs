//! Members of Azure's JSON.
//!
//! Tolerant where Azure varies (absent defaults, null and empty texts) and strict where a member is not what it should be:
//! that is an error which names the member.

use std::collections::BTreeMap;

use jiff::Timestamp;
use lazuli_model::{
    ArmId, AzureTime, ProvisioningState,
    fault::{Effect, Fault},
};
use serde_json::Value;

use crate::error::{ArmError, Failure, Verb};

/// Why an answer cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} {why}")]
pub struct DecodeError {
    /// The field, as a path: `properties.diskSizeGB`.
    pub field: String,
    /// What is wrong with it.
    pub why: String,
}

pub(crate) fn wrong(field: &str, why: impl Into<String>) -> DecodeError {
    DecodeError { field: field.to_owned(), why: why.into() }
}

/// The value at a dotted path; null is absent.
pub(crate) fn at<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(value, |value, key| value.get(key)).filter(|value| !value.is_null())
}

/// A text; empty is absent, for Azure writes both.
pub(crate) fn optional_text<'a>(value: &'a Value, path: &str) -> Result<Option<&'a str>, DecodeError> {
    match at(value, path) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.as_str()).filter(|text| !text.is_empty())),
        Some(_) => Err(wrong(path, "is no text")),
    }
}

pub(crate) fn text<'a>(value: &'a Value, path: &str) -> Result<&'a str, DecodeError> {
    optional_text(value, path)?.ok_or_else(|| wrong(path, "is missing"))
}

pub(crate) fn optional_number(value: &Value, path: &str) -> Result<Option<u64>, DecodeError> {
    match at(value, path) {
        None => Ok(None),
        // Azure writes some counts as 5000.0.
        Some(number) => number
            .as_u64()
            .or_else(|| number.as_f64().filter(|n| n.fract() == 0.0 && *n >= 0.0).map(|n| n as u64))
            .map(Some)
            .ok_or_else(|| wrong(path, "is no count")),
    }
}

pub(crate) fn parse_id(text: &str, path: &str) -> Result<ArmId, DecodeError> {
    text.parse().map_err(|error| wrong(path, format!("cannot be read: {error}")))
}

pub(crate) fn optional_id(value: &Value, path: &str) -> Result<Option<ArmId>, DecodeError> {
    optional_text(value, path)?.map(|text| parse_id(text, path)).transpose()
}

pub(crate) fn list<'a>(value: &'a Value, path: &str) -> Result<&'a [Value], DecodeError> {
    match at(value, path) {
        None => Ok(&[]),
        Some(Value::Array(items)) => Ok(items),
        Some(_) => Err(wrong(path, "is no list")),
    }
}

pub(crate) fn texts(value: &Value, path: &str) -> Result<Vec<String>, DecodeError> {
    list(value, path)?
        .iter()
        .map(|item| item.as_str().map(str::to_owned).ok_or_else(|| wrong(path, "holds what is no text")))
        .collect()
}

pub(crate) fn provisioning_state(value: &Value) -> Result<ProvisioningState, DecodeError> {
    Ok(ProvisioningState::from_azure(text(value, "properties.provisioningState")?))
}

/// A stamp. One that cannot be read is as if it were absent: then nothing rests on it.
/// A stamp in whole seconds, for what is compared with Azure's `Date`.
pub(crate) fn stamp(raw: &Value, path: &str) -> Option<AzureTime> {
    Some(AzureTime::from_unix_seconds(exact_stamp(raw, path)?.unix_seconds()))
}

/// A stamp as exact as Azure tells it.
pub(crate) fn exact_stamp(raw: &Value, path: &str) -> Option<AzureTime> {
    let text = at(raw, path)?.as_str()?;
    let time: Timestamp = text.parse().ok()?;
    Some(AzureTime::from_unix(time.as_second(), u32::try_from(time.subsec_nanosecond()).unwrap_or(0)))
}

pub(crate) fn readable_tags(raw: &Value) -> Result<BTreeMap<String, String>, DecodeError> {
    if at(raw, "tags").is_some_and(|tags| !tags.is_object()) {
        return Err(wrong("tags", "is no object"));
    }
    Ok(tags(raw))
}

/// The tags that are texts.
pub(crate) fn tags(raw: &Value) -> BTreeMap<String, String> {
    let tags = at(raw, "tags").and_then(Value::as_object).into_iter().flatten();
    tags.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned()))).collect()
}

/// A yes or no.
pub(crate) fn optional_bool(value: &Value, path: &str) -> Result<Option<bool>, DecodeError> {
    match at(value, path) {
        None => Ok(None),
        Some(Value::Bool(yes)) => Ok(Some(*yes)),
        Some(_) => Err(wrong(path, "is neither true nor false")),
    }
}

/// A count that fits into 32 bits.
pub(crate) fn optional_number32(value: &Value, path: &str) -> Result<Option<u32>, DecodeError> {
    optional_number(value, path)?.map(|n| u32::try_from(n).map_err(|_| wrong(path, "is too large"))).transpose()
}

/// An answer to a read that cannot be used.
pub(crate) fn undecodable(path: &str, error: DecodeError) -> ArmError {
    let message = format!("the answer cannot be used: {error}");
    Failure::ours(Fault::Malformed, Effect::None, Verb::Get, path, message).into()
}
