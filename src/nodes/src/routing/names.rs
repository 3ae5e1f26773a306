//! How a route is called, and whose a name is.

/// What stands between the Node and the range. Source: the Go manager, `routeNameSeparator`.
const SEPARATOR: &str = "____";

/// The name of a Node's route to a range, which is spelled as the Node spells it.
pub fn route(node: &str, range: &str) -> String {
    let range: String = range.chars().filter(|c| !matches!(c, '.' | ':' | '/')).collect();
    format!("{node}{SEPARATOR}{range}")
}

/// The Node in the name of a route; `None` for a name that was not made by [`route`]. No Node's name holds a `_`.
pub fn node(route: &str) -> Option<&str> {
    route.split_once(SEPARATOR).map(|(node, _)| node)
}

/// Whether the name of a route is that of this Node's route, in today's form or in that of 2017. Azure ignores the case
/// of letters.
pub fn is_of_node(route: &str, of: &str) -> bool {
    node(route).unwrap_or(route).eq_ignore_ascii_case(of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_go_manager() {
        assert_eq!(route("node1", "10.244.100.0/24"), "node1____10244100024");
        assert_eq!(route("aks-0", "fd00:10:244::/64"), "aks-0____fd001024464");
    }

    #[test]
    fn the_node_of_a_name_is_exact() {
        assert_eq!(node("agent-1____1024410024"), Some("agent-1"));
        assert_eq!(node("agent-1"), None);
        assert!(is_of_node("Agent-1____1024410024", "agent-1"));
        assert!(is_of_node("agent-1", "agent-1"));
        assert!(!is_of_node("agent-10____1024410024", "agent-1"));
        assert!(!is_of_node("agent-10", "agent-1"));
    }
}
