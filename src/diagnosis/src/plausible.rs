//! Values of the cloud configuration that can be read and cannot be right.

use super::{Finding, Grade};

/// The check.
const VALUES: &str = "values of the configuration";

/// What is looked at.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Values<'v> {
    /// `subscriptionId`
    pub subscription: &'v str,
    /// `tenantId`
    pub tenant: Option<&'v str>,
    /// `cloud`, where `resourceManagerEndpoint` decides which cloud it is.
    pub name_beside_endpoint: Option<&'v str>,
    /// The names of clouds that this program knows.
    pub clouds: &'v [&'v str],
    /// `location`
    pub location: &'v str,
    /// `resourceGroup`
    pub resource_group: &'v str,
}

/// A finding for each value that cannot be right.
pub fn plausible(values: &Values<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut say = |grade, text: String| findings.push(Finding::new(VALUES, grade, text));
    if !is_uuid(values.subscription) {
        say(
            Grade::Wrong,
            format!(
                "subscriptionId is {:?}, which is the id of no subscription; expected one such as \
                 12345678-90ab-cdef-1234-567890abcdef (az account show --query id)",
                values.subscription
            ),
        );
    }
    // A tenant has names too: those of its domains.
    if let Some(tenant) = values.tenant.filter(|tenant| !is_uuid(tenant) && !tenant.contains('.') && !is_adfs(tenant)) {
        say(
            Grade::Wrong,
            format!(
                "tenantId is {tenant:?}, which is neither an id nor a domain of a tenant (az account show --query tenantId)"
            ),
        );
    }
    if let Some(name) = values.name_beside_endpoint
        && !values.clouds.iter().any(|known| known.eq_ignore_ascii_case(name))
    {
        say(
            Grade::Note,
            format!(
                "cloud is {name:?}, which is none of {}; resourceManagerEndpoint says where Azure is, so that the name is a \
                 name alone",
                values.clouds.join(", ")
            ),
        );
    }
    let is_place = |text: &str| text.chars().all(|char| char.is_ascii_alphanumeric() || char == ' ');
    if !is_place(values.location) {
        let text = format!(
            "location is {:?}, which is the name of no region; expected one such as westeurope (az account list-locations)",
            values.location
        );
        say(Grade::Wrong, text);
    }
    // Source: Microsoft docs, resource name rules: letters, digits, and -_.() with at most 90 characters.
    let is_name = |text: &str| {
        text.chars().count() <= 90
            && !text.ends_with('.')
            && text.chars().all(|char| char.is_alphanumeric() || "-_.()".contains(char))
    };
    if !is_name(values.resource_group) {
        let text = format!(
            "resourceGroup is {:?}, which is the name of no resource group; expected the name alone, of letters, digits and \
             -_.()",
            values.resource_group
        );
        say(Grade::Wrong, text);
    }
    findings
}

fn is_adfs(tenant: &str) -> bool {
    tenant.eq_ignore_ascii_case("adfs")
}

fn is_uuid(text: &str) -> bool {
    let lengths: Vec<usize> = text.split('-').map(str::len).collect();
    lengths == [8, 4, 4, 4, 12] && text.chars().all(|char| char == '-' || char.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: Values<'static> = Values {
        subscription: "00000000-0000-0000-0000-000000000001",
        tenant: Some("contoso.onmicrosoft.com"),
        name_beside_endpoint: None,
        clouds: &["AzurePublicCloud", "AZURESTACKCLOUD"],
        location: "westeurope",
        resource_group: "MC_group_(a).b",
    };

    #[test]
    fn what_may_be_right_is_not_spoken_of() {
        for good in [
            GOOD,
            Values { tenant: None, name_beside_endpoint: Some("AzureStackCloud"), ..GOOD },
            Values { tenant: Some("12345678-90AB-cdef-1234-567890abcdef"), location: "West Europe", ..GOOD },
            Values { tenant: Some("adfs"), ..GOOD },
        ] {
            assert_eq!(plausible(&good), [], "{good:?}");
        }
    }

    #[test]
    fn what_cannot_be_right_is_named_with_what_is_expected() {
        for (odd, grade, said) in [
            (Values { subscription: "5", ..GOOD }, Grade::Wrong, "subscriptionId is \"5\""),
            (Values { tenant: Some("t"), ..GOOD }, Grade::Wrong, "tenantId is \"t\""),
            (Values { name_beside_endpoint: Some("AzurePublic"), ..GOOD }, Grade::Note, "cloud is \"AzurePublic\""),
            (Values { location: "west-europe", ..GOOD }, Grade::Wrong, "location is \"west-europe\""),
            (Values { resource_group: "/subscriptions/s/resourceGroups/g", ..GOOD }, Grade::Wrong, "resourceGroup is "),
        ] {
            let found = plausible(&odd);
            assert!(found.len() == 1 && found[0].grade == grade && found[0].text.starts_with(said), "{found:?}");
        }
    }
}
