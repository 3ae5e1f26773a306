//! Tags of a shared object, as the cloud configuration wants them.

use std::collections::BTreeMap;

use crate::parameter::{Parameter, ParameterError};

/// The most tags of a resource (source of this and the two below: Azure Resource Manager, tag-resources).
pub const MOST_TAGS: usize = 50;
/// The longest name of a tag, in characters.
pub const LONGEST_NAME: usize = 512;
/// The longest value of a tag, in characters.
pub const LONGEST_VALUE: usize = 256;

/// What the cloud configuration says of tags: `tags`, `tagsMap` and `systemTags`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TagPolicy {
    /// The tags that objects get: `tags` and, over them, `tagsMap`.
    pub set: BTreeMap<String, String>,
    /// The prefixes of tag names that stay when `systemTags` is set; with none, no tag is ever removed.
    pub keep_prefixes: Vec<String>,
}

/// Names and values to set, and names to remove.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TagChange {
    /// Set these; the names are in the spelling that the object has.
    pub set: BTreeMap<String, String>,
    /// Remove these.
    pub remove: Vec<String>,
}

impl TagChange {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.set.is_empty() && self.remove.is_empty()
    }
}

/// The tag of this name, whatever the case of its letters: Azure ignores it.
pub fn find<'a>(tags: &'a BTreeMap<String, String>, name: &str) -> Option<(&'a String, &'a String)> {
    tags.iter().find(|(key, _)| key.eq_ignore_ascii_case(name))
}

/// What brings tags to `wanted`. Names and values compare without case, as in the Go manager; a tag that is not wanted is
/// removed only where `keep_prefixes` is set and none of them is its prefix.
pub fn change(
    actual: &BTreeMap<String, String>,
    wanted: &BTreeMap<String, String>,
    keep_prefixes: &[String],
) -> TagChange {
    let mut change = TagChange::default();
    for (name, value) in wanted {
        match find(actual, name) {
            Some((_, there)) if there.eq_ignore_ascii_case(value) => {}
            Some((spelled, _)) => {
                change.set.insert(spelled.clone(), value.clone());
            }
            None => {
                change.set.insert(name.clone(), value.clone());
            }
        }
    }
    if !keep_prefixes.is_empty() {
        change.remove = actual
            .keys()
            .filter(|name| find(wanted, name).is_none())
            .filter(|name| {
                let name = name.to_lowercase();
                !keep_prefixes.iter().any(|prefix| name.starts_with(&prefix.to_lowercase()))
            })
            .cloned()
            .collect();
    }
    change
}

impl TagPolicy {
    /// What brings the tags of a load balancer or security group to this policy. Nothing configured changes nothing.
    pub fn change(&self, actual: &BTreeMap<String, String>) -> TagChange {
        if self.set.is_empty() { TagChange::default() } else { change(actual, &self.set, &self.keep_prefixes) }
    }

    /// Reads `tags` (`a=b,c=d`), `tagsMap` and `systemTags` of a cloud configuration as the Go manager does: a pair that is
    /// none is skipped, and the map wins over the list. The second value names what was skipped.
    pub fn parse(list: &str, map: &BTreeMap<String, String>, system_tags: &str) -> (Self, Vec<String>) {
        let (mut set, skipped) = parse_pairs(list);
        for (name, value) in map {
            let name = name.trim();
            if name.is_empty() {
                continue;
            }
            set.retain(|key, _| !key.eq_ignore_ascii_case(name));
            set.insert(name.to_owned(), trim_value(value));
        }
        let keep_prefixes = if system_tags.is_empty() {
            Vec::new()
        } else {
            system_tags.split(',').map(|prefix| prefix.trim().to_owned()).collect()
        };
        (Self { set, keep_prefixes }, skipped)
    }
}

/// The value without space around it, unless that makes it `null`, which Azure reserves.
fn trim_value(value: &str) -> String {
    let trimmed = value.trim();
    if trimmed.eq_ignore_ascii_case("null") { value.to_owned() } else { trimmed.to_owned() }
}

/// Reads `a=b,c=d`; the second value holds the pairs that are none.
pub fn parse_pairs(list: &str) -> (BTreeMap<String, String>, Vec<String>) {
    let mut pairs = BTreeMap::new();
    let mut skipped = Vec::new();
    if list.is_empty() {
        return (pairs, skipped);
    }
    for pair in list.split(',') {
        let mut parts = pair.split('=');
        match (parts.next().map(str::trim), parts.next(), parts.next()) {
            (Some(name), Some(value), None) if !name.is_empty() => {
                pairs.insert(name.to_owned(), trim_value(value));
            }
            _ => skipped.push(pair.to_owned()),
        }
    }
    (pairs, skipped)
}

/// The tags of a class's parameter `tags`, in their order, separated by its `tagValueDelimiter`.
///
/// # Errors
/// For what is no tag, and for a name that Azure refuses.
pub fn written<'a>(parameter: Parameter<'a>, delimiter: &str) -> Result<Vec<(&'a str, &'a str)>, ParameterError> {
    parameter
        .value
        .split(delimiter)
        .map(|tag| {
            let (key, value) = tag
                .split_once('=')
                .map(|(key, value)| (key.trim(), value.trim()))
                .filter(|(key, _)| !key.is_empty())
                .ok_or_else(|| {
                    parameter.refuse(format!(
                        "{tag:?} is no tag; allowed is key1=value1{delimiter}key2=value2, separated by {delimiter:?} (tagValueDelimiter)"
                    ))
                })?;
            if key.contains(['<', '>', '%', '&', '?', '\\', '/']) {
                return Err(parameter.refuse(format!("the tag name {key:?} may not hold any of < > % & ? \\ /")));
            }
            if key.chars().count() > LONGEST_NAME {
                return Err(parameter.refuse(format!("the tag name {key:?} is longer than 512 characters")));
            }
            Ok((key, value))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn tags_are_added_and_none_is_removed_without_system_tags() {
        let policy = TagPolicy { set: map(&[("team", "x"), ("Env", "prod")]), keep_prefixes: vec![] };
        let change = policy.change(&map(&[("TEAM", "X"), ("env", "dev"), ("other", "1")]));
        assert_eq!(change, TagChange { set: map(&[("env", "prod")]), remove: vec![] });
    }

    #[test]
    fn system_tags_are_prefixes_of_what_stays() {
        let policy = TagPolicy { set: map(&[("team", "x")]), keep_prefixes: vec!["k8s-".to_owned()] };
        let change = policy.change(&map(&[("team", "x"), ("K8S-azure", "1"), ("old", "1")]));
        assert_eq!(change, TagChange { set: map(&[]), remove: vec!["old".to_owned()] });
    }

    #[test]
    fn the_map_wins_over_the_list_and_a_bad_pair_is_named() {
        let (policy, skipped) = TagPolicy::parse("a=1, b = 2 ,c,d=1=2,n= null", &map(&[("A", "3")]), "k8s, aks");
        assert_eq!(policy.set, map(&[("A", "3"), ("b", "2"), ("n", " null")]));
        assert_eq!(policy.keep_prefixes, ["k8s", "aks"]);
        assert_eq!(skipped, ["c", "d=1=2"]);
    }
}
