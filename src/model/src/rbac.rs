//! The actions of Azure's role-based access control.

/// The action that a request needs (source: Azure's rule for the names of operations: the provider, the types of the
/// path without the names of the resources, and what the method does). `None` for a path without a provider.
pub fn action(method: &str, path: &str) -> Option<String> {
    let done = match method {
        "GET" => "read",
        "PUT" | "PATCH" => "write",
        "DELETE" => "delete",
        "POST" => "action",
        _ => return None,
    };
    let (_, path) = path.rsplit_once("/providers/")?;
    let mut segments = path.split('/');
    let provider = segments.next()?;
    let types: Vec<&str> = segments.step_by(2).collect();
    if types.is_empty() {
        return None;
    }
    Some(format!("{provider}/{}/{done}", types.join("/")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_action_is_made_of_provider_types_and_method() {
        let vm = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/v";
        for (method, path, expected) in [
            ("GET", vm.to_owned(), Some("Microsoft.Compute/virtualMachines/read")),
            ("PATCH", vm.to_owned(), Some("Microsoft.Compute/virtualMachines/write")),
            (
                "POST",
                format!("{vm}/attachDetachDataDisks"),
                Some("Microsoft.Compute/virtualMachines/attachDetachDataDisks/action"),
            ),
            ("DELETE", vm.replace("virtualMachines", "disks"), Some("Microsoft.Compute/disks/delete")),
            ("GET", "/subscriptions/s/resourceGroups/g".to_owned(), None),
            ("HEAD", vm.to_owned(), None),
        ] {
            assert_eq!(action(method, &path).as_deref(), expected, "{method} {path}");
        }
    }
}
