//! Who called, by its `User-Agent`: one name for people.

/// Programs whose own name stands somewhere in a `User-Agent` that begins with the name of a library, and the name that
/// people have for them.
const PROGRAMS: [(&str, &str); 7] = [
    ("terraform", "Terraform"),
    ("pulumi", "Pulumi"),
    ("ansible", "Ansible"),
    ("azurecli", "Azure CLI"),
    ("azurepowershell", "Azure PowerShell"),
    ("kubernetes-cloudprovider", "Go cloud provider"),
    ("csi.azure.com", "Go CSI driver"),
];

/// The name of a caller, with the version of what is no well-known program; nothing of an empty `User-Agent`.
pub(super) fn name(user_agent: &str) -> String {
    let lower = user_agent.to_ascii_lowercase();
    if let Some((_, name)) = PROGRAMS.iter().find(|(mark, _)| lower.contains(mark)) {
        return (*name).to_owned();
    }
    let mut words = user_agent.split_whitespace();
    let first = words.next().unwrap_or("");
    // A suffix says what a program of this name is used for: `lazuli/0.1.0 team/1`.
    match words.next().filter(|word| first.starts_with("lazuli") && word.contains('/')) {
        Some(suffix) => format!("{first} {suffix}"),
        None => first.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::name;

    #[test]
    fn a_well_known_program_has_its_name_and_any_other_its_first_product() {
        for (user_agent, expected) in [
            ("", ""),
            ("lazuli/0.1.0", "lazuli/0.1.0"),
            ("lazuli/0.1.0 team/1", "lazuli/0.1.0 team/1"),
            ("curl/8.5.0", "curl/8.5.0"),
            ("azsdk-python-mgmt-compute/34.1.0 Python/3.13 (Linux)", "azsdk-python-mgmt-compute/34.1.0"),
            ("AZURECLI/2.80.0 (PIP) azsdk-python-core/1.36.0 Python/3.13", "Azure CLI"),
            (
                "HashiCorp/go-azure-sdk (Go-http-Client/1.1 virtualmachines/2024-03-01) HashiCorp Terraform/1.9",
                "Terraform",
            ),
            ("azsdk-python/1 Ansible/2.18.0", "Ansible"),
            ("azsdk-go-armcompute/v5 disk.csi.azure.com/v1.34.0", "Go CSI driver"),
        ] {
            assert_eq!(name(user_agent), expected, "{user_agent}");
        }
    }
}
