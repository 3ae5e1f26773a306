//! Every annotation of a Service, as one table.
//!
//! The table says which kind of value an annotation takes, what is allowed and what it does. The parser takes its errors
//! from it, the documentation its table, and a key that is in no row of it is a typing error ([`misspelt`]).

mod table;
mod value;

use std::fmt;

use lazuli_model::spelling::nearest;

pub use table::{TABLE, key};
pub use value::Annotations;

/// The prefix of all keys.
pub const PREFIX: &str = "service.beta.kubernetes.io/";

/// The prefix of keys that are Lazuli's own.
const OWN_PREFIX: &str = "lazuli.azure/";
/// The namespaces, separated by commas, whose Services may do at the addresses of a Service what they may do at their own.
/// It is this provider's own and in no table of the Go manager.
pub const SHARE_WITH: &str = "lazuli.azure/share-with";

/// One annotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Annotation {
    /// The whole key; `{port}` stands for a port of the Service.
    pub key: &'static str,
    /// The kind of value.
    pub kind: Kind,
    /// What it does, in one sentence.
    pub effect: &'static str,
}

/// The kind of value of an annotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `true` or `false`.
    Flag,
    /// A whole number.
    Number {
        /// The smallest.
        least: u32,
        /// The largest.
        most: u32,
        /// What it counts.
        unit: &'static str,
    },
    /// One of these words, in any case.
    Choice(&'static [&'static str]),
    /// A single text of the kind that is described.
    Text(&'static str),
    /// Several texts with commas between them.
    CommaList(&'static str),
    /// Several texts with spaces between them.
    SpaceList(&'static str),
    /// Pairs `name=value` with commas between them.
    Pairs(&'static str),
    /// Accepted and without effect.
    Ignored,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag => f.write_str("true or false"),
            Self::Number { least, most, unit } => write!(f, "a whole number of {unit} from {least} to {most}"),
            Self::Choice(words) => f.write_str(&words.join(", ")),
            Self::Text(what) => f.write_str(what),
            Self::CommaList(what) => write!(f, "{what}, separated by commas"),
            Self::SpaceList(what) => write!(f, "{what}, separated by spaces"),
            Self::Pairs(what) => write!(f, "{what}, separated by commas"),
            Self::Ignored => f.write_str("anything"),
        }
    }
}

/// The row of a key, and the port that the key names.
pub fn find(key: &str) -> Option<(&'static Annotation, Option<u16>)> {
    TABLE.iter().find_map(|row| match row.key.split_once("{port}") {
        None => (row.key == key).then_some((row, None)),
        Some((start, end)) => {
            let port = key.strip_prefix(start)?.strip_suffix(end)?;
            let is_odd = port.starts_with('+') || (port.len() > 1 && port.starts_with('0'));
            port.parse().ok().filter(|_| !is_odd).map(|port| (row, Some(port)))
        }
    })
}

/// The row of a key of this table.
pub fn row(key: &str) -> &'static Annotation {
    find(key).map(|(row, _)| row).expect("the key is one of this table's")
}

/// Whether a key in lower case is meant for this provider. Providers share the prefix.
fn is_ours(lower: &str) -> bool {
    let of_ours = ["azure-", "azure_", "port_"];
    of_ours.iter().any(|start| lower.strip_prefix(PREFIX).is_some_and(|rest| rest.starts_with(start)))
}

/// Whether anything looks at an annotation of this key: it is in the table, or is probably a typing error, or is one of
/// Lazuli's own. Others need no memory.
pub fn is_in_use(key: &str) -> bool {
    find(key).is_some() || is_ours(&key.to_lowercase()) || key.starts_with(OWN_PREFIX)
}

/// Keys of this provider's prefix that no row has, with the key that was probably meant.
///
/// `None` when the key is in the table, or belongs to another provider: providers share the prefix.
pub fn misspelt(key: &str) -> Option<Option<String>> {
    let lower = key.to_lowercase();
    if !is_ours(&lower) || find(key).is_some() {
        return None;
    }
    // A port key is compared with the port that it names.
    let port: String = lower
        .strip_prefix(PREFIX)
        .and_then(|rest| rest.strip_prefix("port_"))
        .map(|rest| rest.chars().take_while(char::is_ascii_digit).collect())
        .unwrap_or_default();
    let candidates: Vec<String> = TABLE
        .iter()
        // Without a number no key of a port can be meant.
        .filter(|row| !port.is_empty() || !row.key.contains("{port}"))
        .map(|row| row.key.replace("{port}", &port))
        .collect();
    let names = candidates.iter().filter_map(|key| key.strip_prefix(PREFIX));
    let nearest = lower.strip_prefix(PREFIX).and_then(|written| nearest(written, names));
    Some(nearest.map(|name| format!("{PREFIX}{name}")))
}

/// The table in Markdown, as the documentation shows it.
pub fn markdown() -> String {
    let mut text = String::from("| annotation | value | effect |\n|---|---|---|\n");
    for row in TABLE {
        let key = row.key.strip_prefix(PREFIX).unwrap_or(row.key);
        text.push_str(&format!("| `{key}` | {} | {} |\n", row.kind, row.effect));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_there_once_and_is_found() {
        for row in TABLE {
            assert_eq!(TABLE.iter().filter(|other| other.key == row.key).count(), 1, "{}", row.key);
            let key = row.key.replace("{port}", "8080");
            assert_eq!(find(&key).unwrap().0.key, row.key);
            assert_eq!(misspelt(&key), None, "{key}");
        }
        assert_eq!(find("service.beta.kubernetes.io/port_8080_no_lb_rule").unwrap().1, Some(8080));
        for port in ["", "080", "+80", "70000", "http"] {
            assert_eq!(find(&format!("service.beta.kubernetes.io/port_{port}_no_lb_rule")), None, "{port}");
        }
    }

    #[test]
    fn a_misspelt_key_names_the_one_that_was_meant() {
        let meant = |key: &str| {
            misspelt(&format!("{PREFIX}{key}")).map(|meant| meant.map(|key| key[PREFIX.len()..].to_owned()))
        };
        assert_eq!(meant("azure-load-balancer-interal"), Some(Some("azure-load-balancer-internal".to_owned())));
        assert_eq!(meant("Azure-Load-Balancer-Internal"), Some(Some("azure-load-balancer-internal".to_owned())));
        assert_eq!(meant("azure-pip_name"), Some(Some("azure-pip-name".to_owned())));
        assert_eq!(meant("port_80_no_lb_rules"), Some(Some("port_80_no_lb_rule".to_owned())));
        assert_eq!(meant("port_http_health-probe_port"), Some(None), "a port is named by its number");
        assert_eq!(meant("azure-completely-different-thing"), Some(None));
        assert_eq!(meant("aws-load-balancer-type"), None);
        assert_eq!(misspelt("example.com/azure-load-balancer-interal"), None);
    }

    #[test]
    fn the_table_is_written_for_people() {
        let text = markdown();
        assert!(text.contains(
            "| `azure-load-balancer-tcp-idle-timeout` | a whole number of minutes from 4 to 100 | \
             Idle time after which flows end, of every rule. |"
        ));
        for row in TABLE {
            assert!(row.effect.ends_with('.') && row.effect.len() > 10, "{}", row.key);
            assert!(!row.effect.contains('|'));
        }
    }
}
