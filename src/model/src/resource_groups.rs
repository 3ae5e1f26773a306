//! The resource groups in which a StorageClass may have disks and storage accounts made.
//!
//! The author of a StorageClass chooses, by its `subscriptionID` and `resourceGroup`, where the controller's identity
//! writes. The Go driver accepts any group that the identity reaches. This driver does so too, unless the operator lists
//! the allowed groups.

use std::{fmt, str::FromStr};

/// Stands for every resource group of a subscription.
const EVERY: &str = "*";

/// Which resource groups a StorageClass may name. The cluster's own is always allowed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum AllowedResourceGroups {
    /// Any that the identity reaches.
    #[default]
    Any,
    /// These.
    Only(Vec<AllowedResourceGroup>),
}

/// One entry of the list: `GROUP`, `SUBSCRIPTION/GROUP` or `SUBSCRIPTION/*`. Letter case does not count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowedResourceGroup {
    /// `None`: the cluster's subscription.
    subscription: Option<String>,
    /// `None`: every resource group of the subscription.
    name: Option<String>,
}

/// A text that is no entry of the list.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no resource group; allowed are GROUP (in the cluster's subscription), SUBSCRIPTION/GROUP, and \
     SUBSCRIPTION/* for every group of a subscription"
)]
pub struct InvalidResourceGroup(String);

impl FromStr for AllowedResourceGroup {
    type Err = InvalidResourceGroup;

    fn from_str(text: &str) -> Result<Self, InvalidResourceGroup> {
        let (subscription, name) = match text.split_once('/') {
            Some((subscription, name)) => (Some(subscription), name),
            None => (None, text),
        };
        let name = (name != EVERY).then(|| name.to_owned());
        // Source: Azure's rule for the names of resource groups; a subscription's id is a GUID.
        let is_name = |text: &str| {
            !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '.' | '-' | '(' | ')'))
        };
        if !subscription.is_none_or(is_name) || !name.as_deref().is_none_or(is_name) {
            return Err(InvalidResourceGroup(text.to_owned()));
        }
        Ok(Self { subscription: subscription.map(str::to_owned), name })
    }
}

impl fmt::Display for AllowedResourceGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(subscription) = &self.subscription {
            write!(f, "{subscription}/")?;
        }
        f.write_str(self.name.as_deref().unwrap_or(EVERY))
    }
}

impl AllowedResourceGroup {
    fn holds(&self, (subscription, group): (&str, &str), cluster_subscription: &str) -> bool {
        self.subscription.as_deref().unwrap_or(cluster_subscription).eq_ignore_ascii_case(subscription)
            && self.name.as_deref().is_none_or(|name| name.eq_ignore_ascii_case(group))
    }
}

impl AllowedResourceGroups {
    /// These; an empty list allows any.
    pub fn of(list: Vec<AllowedResourceGroup>) -> Self {
        if list.is_empty() { Self::Any } else { Self::Only(list) }
    }

    /// Every resource group that is allowed (subscription and name), the cluster's first; `None` where they cannot be listed,
    /// because all are allowed or all of a subscription.
    pub fn all(&self, cluster: (&str, &str)) -> Option<Vec<(String, String)>> {
        let Self::Only(list) = self else { return None };
        let of = |allowed: &AllowedResourceGroup| {
            let subscription = allowed.subscription.as_deref().unwrap_or(cluster.0);
            Some((subscription.to_owned(), allowed.name.clone()?))
        };
        [Some((cluster.0.to_owned(), cluster.1.to_owned()))].into_iter().chain(list.iter().map(of)).collect()
    }

    /// Whether a disk or a storage account may be in this subscription and resource group; both pairs are (subscription, resource group).
    ///
    /// # Errors
    /// A sentence that says what is allowed.
    pub fn check(&self, named: (&str, &str), cluster: (&str, &str)) -> Result<(), String> {
        let Self::Only(list) = self else { return Ok(()) };
        let is_cluster = named.0.eq_ignore_ascii_case(cluster.0) && named.1.eq_ignore_ascii_case(cluster.1);
        if is_cluster || list.iter().any(|allowed| allowed.holds(named, cluster.0)) {
            return Ok(());
        }
        let list: Vec<String> = list.iter().map(ToString::to_string).collect();
        Err(format!(
            "its resource group would be {}/{}; allowed are {}/{} (the cluster's), {} (--allowed-resource-groups)",
            named.0,
            named.1,
            cluster.0,
            cluster.1,
            list.join(", ")
        ))
    }
}

impl fmt::Display for AllowedResourceGroups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("any"),
            Self::Only(list) => {
                let list: Vec<String> = list.iter().map(ToString::to_string).collect();
                write!(f, "the cluster's, {}", list.join(", "))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only(list: &[&str]) -> AllowedResourceGroups {
        AllowedResourceGroups::of(list.iter().map(|text| text.parse().unwrap()).collect())
    }

    #[test]
    fn groups_are_listed_only_where_each_has_a_name() {
        let cluster = ("s", "g");
        let group = |subscription: &str, name: &str| (subscription.to_owned(), name.to_owned());
        assert_eq!(
            only(&["team", "t/other"]).all(cluster),
            Some(vec![group("s", "g"), group("s", "team"), group("t", "other")])
        );
        for unlisted in [only(&[]), only(&["team", "t/*"])] {
            assert_eq!(unlisted.all(cluster), None);
        }
    }

    #[test]
    fn without_a_list_a_class_names_any_group() {
        assert_eq!(only(&[]), AllowedResourceGroups::Any);
        assert_eq!(AllowedResourceGroups::Any.check(("other", "g"), ("sub", "rg")), Ok(()));
    }

    #[test]
    fn a_list_allows_its_groups_and_the_clusters_own_in_any_letter_case() {
        let allowed = only(&["team-a", "S2/Disks", "s3/*"]);
        for (named, good) in [
            (("sub", "rg"), true),
            (("SUB", "RG"), true),
            (("sub", "Team-A"), true),
            (("s2", "disks"), true),
            (("S3", "whatever"), true),
            (("s2", "team-a"), false),
            (("sub", "disks"), false),
            (("s2", "rg"), false),
            (("s4", "x"), false),
        ] {
            assert_eq!(allowed.check(named, ("sub", "rg")).is_ok(), good, "{named:?}");
        }
        let refused = allowed.check(("s4", "x"), ("sub", "rg")).unwrap_err();
        for part in ["s4/x", "sub/rg", "team-a, S2/Disks, s3/*", "--allowed-resource-groups"] {
            assert!(refused.contains(part), "{refused}");
        }
    }

    #[test]
    fn what_is_no_group_is_refused_and_what_is_one_prints_as_it_was_written() {
        for text in ["", "/", "a/", "/b", "a/b/c", "a b", "*/b", "sub/a*"] {
            let error = text.parse::<AllowedResourceGroup>().unwrap_err().to_string();
            assert!(error.contains(&format!("{text:?}")) && error.contains("SUBSCRIPTION/*"), "{error}");
        }
        for text in ["g", "*", "s/g", "s/*", "S/(G)_1.x"] {
            assert_eq!(text.parse::<AllowedResourceGroup>().unwrap().to_string(), text);
        }
    }
}
