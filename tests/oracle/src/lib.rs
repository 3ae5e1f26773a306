//! A second opinion on Azure's bodies.
//!
//! The types of `azure_mgmt_compute` were generated from the published API description by other
//! people. A body is decoded with them and encoded again; what they do not know, in names or in
//! values, comes back as a [`Finding`]. This crate never sends anything, and no code of the product
//! depends on it.

use std::fmt;

use azure_mgmt_compute::package_2024_07_01::models;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// What the published types say against a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The oracle has no such type.
    UnknownType(String),
    /// A required member is missing, or a value has another type.
    Undecodable(String),
    /// A member that the type does not have, as a JSON pointer.
    UnknownMember(String),
    /// A member whose value changed on the way through the type, as a JSON pointer.
    ChangedValue(String),
    /// A value that no enumeration has.
    UnknownValue(String),
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownType(name) => write!(f, "the oracle has no type {name}"),
            Self::Undecodable(why) => write!(f, "does not decode: {why}"),
            Self::UnknownMember(pointer) => write!(f, "{pointer}: the type has no such member"),
            Self::ChangedValue(pointer) => write!(f, "{pointer}: another value after decoding"),
            Self::UnknownValue(value) => write!(f, "{value:?}: no enumeration has this value"),
        }
    }
}

/// Everything that the published type of that name says against the body; nothing when it agrees.
#[must_use]
pub fn findings(type_name: &str, body: &Value) -> Vec<Finding> {
    match type_name {
        "AttachDetachDataDisksRequest" => check::<models::AttachDetachDataDisksRequest>(body),
        "AvailabilitySet" => check::<models::AvailabilitySet>(body),
        "AvailabilitySetListResult" => check::<models::AvailabilitySetListResult>(body),
        "CloudError" => check::<models::CloudError>(body),
        "Disk" => check::<models::Disk>(body),
        "DiskList" => check::<models::DiskList>(body),
        "DiskUpdate" => check::<models::DiskUpdate>(body),
        "ResourceSkusResult" => check::<models::ResourceSkusResult>(body),
        "Snapshot" => check::<models::Snapshot>(body),
        "StorageProfile" => check::<models::StorageProfile>(body),
        "VirtualMachine" => check::<models::VirtualMachine>(body),
        "VirtualMachineInstanceView" => check::<models::VirtualMachineInstanceView>(body),
        "VirtualMachineListResult" => check::<models::VirtualMachineListResult>(body),
        "VirtualMachineUpdate" => check::<models::VirtualMachineUpdate>(body),
        other => vec![Finding::UnknownType(other.to_owned())],
    }
}

fn check<T: DeserializeOwned + Serialize + fmt::Debug>(body: &Value) -> Vec<Finding> {
    let decoded: T = match serde_json::from_value(body.clone()) {
        Ok(decoded) => decoded,
        Err(error) => return vec![Finding::Undecodable(error.to_string())],
    };
    let mut found = unknown_values(&format!("{decoded:?}"));
    match serde_json::to_value(&decoded) {
        Ok(encoded) => compare(body, &encoded, "", &mut found),
        Err(error) => found.push(Finding::Undecodable(error.to_string())),
    }
    found
}

/// The generated enumerations keep a value they do not know as `UnknownValue("…")`.
fn unknown_values(debug: &str) -> Vec<Finding> {
    debug
        .split("UnknownValue(\"")
        .skip(1)
        .filter_map(|rest| rest.split('"').next())
        .map(|value| Finding::UnknownValue(value.to_owned()))
        .collect()
}

/// Compares what went in with what came out. Members that the types add (read-only times as `null`)
/// are theirs; empty arrays and `null`s that they leave out say the same.
fn compare(given: &Value, encoded: &Value, at: &str, found: &mut Vec<Finding>) {
    match (given, encoded) {
        (Value::Object(given), Value::Object(encoded)) => {
            for (name, value) in given {
                let here = format!("{at}/{name}");
                match encoded.get(name) {
                    Some(encoded) => compare(value, encoded, &here, found),
                    None if value.is_null() || value.as_array().is_some_and(Vec::is_empty) => {}
                    None => found.push(Finding::UnknownMember(here)),
                }
            }
        }
        (Value::Array(given), Value::Array(encoded)) if given.len() == encoded.len() => {
            for (index, (given, encoded)) in given.iter().zip(encoded).enumerate() {
                compare(given, encoded, &format!("{at}/{index}"), found);
            }
        }
        (Value::Number(given), Value::Number(encoded)) if given.as_f64() == encoded.as_f64() => {}
        (Value::String(given), Value::String(encoded)) if same_moment(given, encoded) => {}
        _ if given == encoded => {}
        _ => found.push(Finding::ChangedValue(at.to_owned())),
    }
}

/// Azure prints seven digits and an offset, the types print their own: the same moment to the second.
fn same_moment(given: &str, encoded: &str) -> bool {
    let second = |text: &str| {
        let text = text.get(..19)?;
        (text.as_bytes()[4] == b'-' && text.as_bytes()[10] == b'T').then(|| text.to_owned())
    };
    second(given).is_some() && second(given) == second(encoded)
}
