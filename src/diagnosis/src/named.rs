//! Whether the network resources exist that the cloud configuration names.

use super::{Finding, Grade};

/// The check.
const NAMED: &str = "network of the configuration";

/// A resource that a key of the cloud configuration names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// The key.
    pub key: &'static str,
    /// What it is, and its name and place, such as `security group nodes-nsg in resource group lazuli`.
    pub resource: String,
    /// What Azure says of it.
    pub shown: Shown,
}

/// What Azure says of a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shown {
    /// It exists.
    There,
    /// It does not exist.
    Absent,
    /// It could not be read, and why.
    Unread(String),
}

/// A finding for each resource that does not exist or could not be read, or one that all exist. `absent` is how bad it is that
/// one does not exist: without cloud controllers nothing needs it.
pub fn named(all: &[Named], absent: Grade) -> Vec<Finding> {
    let finding = |Named { key, resource, shown }: &Named| match shown {
        Shown::There => None,
        Shown::Absent => {
            let text = format!(
                "{key} names {resource}, which does not exist: Services that need it are refused until it does; correct {key} \
                 or the key of its resource group, or make it"
            );
            Some(Finding::new(NAMED, absent, text))
        }
        Shown::Unread(why) => {
            Some(Finding::new(NAMED, Grade::Unseen, format!("{resource} ({key}) is not checked: {why}")))
        }
    };
    let findings: Vec<Finding> = all.iter().filter_map(finding).collect();
    if findings.is_empty() && !all.is_empty() {
        let names: Vec<&str> = all.iter().map(|one| one.resource.as_str()).collect();
        return vec![Finding::new(NAMED, Grade::Fine, format!("these exist: {}", names.join(", ")))];
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_configuration_names_and_azure_does_not_have_is_told_with_its_key() {
        let of = |shown: Shown| Named { key: "securityGroupName", resource: "security group x".to_owned(), shown };
        let found =
            |all: &[Named]| named(all, Grade::Wrong).into_iter().map(|one| (one.grade, one.text)).collect::<Vec<_>>();
        assert_eq!(found(&[]), []);
        assert_eq!(found(&[of(Shown::There)]), [(Grade::Fine, "these exist: security group x".to_owned())]);
        let [(grade, text)] = &found(&[of(Shown::Absent), of(Shown::There)])[..] else { panic!("one finding") };
        assert!(*grade == Grade::Wrong && text.starts_with("securityGroupName names security group x"), "{text}");
        let [(grade, text)] = &found(&[of(Shown::Unread("403".to_owned()))])[..] else { panic!("one finding") };
        assert_eq!(*grade, Grade::Unseen);
        assert_eq!(text, "security group x (securityGroupName) is not checked: 403");
    }
}
