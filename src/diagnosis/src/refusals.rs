//! All that is wrong with the parameters of a class. A call names the first wrong one, for which it refuses the class; a person
//! who corrects the class wants to know the others too.

use std::collections::BTreeMap;

use lazuli_model::parameter::ParameterError;

/// Parameters, in lower case, with those that are judged by them: where the one is wrong, nothing is known of the others.
const JUDGED_BY: [(&[&str], &[&str]); 3] = [
    (
        &["skuname", "storageaccounttype"],
        &[
            "skuname",
            "storageaccounttype",
            "cachingmode",
            "diskiopsreadwrite",
            "diskmbpsreadwrite",
            "enablebursting",
            "enableperformanceplus",
            "logicalsectorsize",
            "maxshares",
            "tier",
            "writeacceleratorenabled",
        ],
    ),
    (&["networkaccesspolicy"], &["diskaccessid"]),
    (&["diskencryptionsetid"], &["diskencryptiontype"]),
];

/// What comes of parameters.
///
/// # Errors
/// A sentence for each parameter that is refused, in the order in which a call would meet them.
pub(crate) fn judged<T>(
    parameters: &BTreeMap<String, String>,
    of: impl Fn(&BTreeMap<String, String>) -> Result<T, ParameterError>,
) -> Result<T, String> {
    let mut left = parameters.clone();
    let mut refused: Vec<String> = Vec::new();
    loop {
        match of(&left) {
            Ok(outcome) if refused.is_empty() => return Ok(outcome),
            Ok(_) => return Err(refused.join("; ")),
            Err(error) => {
                refused.push(error.to_string());
                // What no parameter is the reason of would be refused again.
                if left.remove(&error.parameter).is_none() {
                    return Err(refused.join("; "));
                }
                let wrong = error.parameter.to_ascii_lowercase();
                let unjudged = JUDGED_BY.iter().filter(|(by, _)| by.contains(&wrong.as_str()));
                let unjudged: Vec<&str> = unjudged.flat_map(|(_, judged)| judged.iter().copied()).collect();
                left.retain(|key, _| !unjudged.contains(&key.to_ascii_lowercase().as_str()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    /// Refuses every parameter whose value is `bad`, and a `diskAccessID` without a policy.
    fn strict(parameters: &BTreeMap<String, String>) -> Result<usize, ParameterError> {
        if let Some((key, value)) = parameters.iter().find(|(_, value)| *value == "bad") {
            return Err(ParameterError::invalid(key, value, "allowed is good"));
        }
        match parameters.get("diskAccessID") {
            Some(id) if !parameters.contains_key("networkAccessPolicy") => {
                Err(ParameterError::invalid("diskAccessID", id, "allowed with a policy"))
            }
            _ => Ok(parameters.len()),
        }
    }

    #[test]
    fn every_wrong_parameter_is_named_once_and_none_that_was_judged_by_a_wrong_one() {
        assert_eq!(judged(&map(&[("a", "good"), ("b", "good")]), strict), Ok(2));
        let refused = judged(&map(&[("a", "bad"), ("b", "good"), ("c", "bad")]), strict).unwrap_err();
        assert_eq!(refused, "parameter a is \"bad\": allowed is good; parameter c is \"bad\": allowed is good");
        let refused = judged(&map(&[("diskAccessID", "x"), ("networkAccessPolicy", "bad")]), strict).unwrap_err();
        assert_eq!(refused, "parameter networkAccessPolicy is \"bad\": allowed is good");
    }

    #[test]
    fn what_no_parameter_is_the_reason_of_ends_the_search() {
        let name = |_: &BTreeMap<String, String>| Err::<(), _>(ParameterError::invalid("name", "", "one is needed"));
        assert_eq!(judged(&map(&[("a", "good")]), name).unwrap_err(), "parameter name is \"\": one is needed");
    }
}
