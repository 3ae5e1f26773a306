//! Azure resource ids and request paths. Letter case never matters for finding, and is kept for showing.

/// A path under `/subscriptions/{id}`, split.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ArmPath {
    pub(crate) subscription: String,
    /// The group's name as the caller spelt it.
    pub(crate) group: Option<String>,
    /// The provider's namespace as the caller spelt it.
    pub(crate) provider: Option<String>,
    /// Segments after the provider, or after the subscription or group when there is none.
    pub(crate) rest: Vec<String>,
}

impl ArmPath {
    /// Splits a path; `None` when it is not below a subscription.
    pub(crate) fn parse(path: &str) -> Option<Self> {
        let mut segments = path.split('/').filter(|s| !s.is_empty()).map(decode).peekable();
        if !segments.next()?.eq_ignore_ascii_case("subscriptions") {
            return None;
        }
        let mut parsed = Self { subscription: segments.next()?, ..Self::default() };
        if segments.peek().is_some_and(|s| s.eq_ignore_ascii_case("resourcegroups")) {
            segments.next();
            match segments.next() {
                Some(group) => parsed.group = Some(group),
                None => {
                    parsed.rest.push("resourcegroups".to_owned());
                    return Some(parsed);
                }
            }
        }
        if segments.peek().is_some_and(|s| s.eq_ignore_ascii_case("providers")) {
            segments.next();
            match segments.next() {
                Some(provider) => parsed.provider = Some(provider),
                None => parsed.rest.push("providers".to_owned()),
            }
        }
        parsed.rest.extend(segments);
        Some(parsed)
    }

    /// The segments after the provider in lower case, for matching.
    pub(crate) fn lower(&self) -> Vec<String> {
        self.rest.iter().map(|s| s.to_ascii_lowercase()).collect()
    }
}

fn decode(segment: &str) -> String {
    if !segment.contains('%') {
        return segment.to_owned();
    }
    let bytes = segment.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let hex = segment.get(at + 1..at + 3).filter(|_| byte == b'%').and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match hex {
            // An escaped slash never divides: it stays escaped, and no name may hold a `%`.
            Some(b'/') => {
                out.extend_from_slice(b"%2F");
                at += 3;
            }
            Some(value) => {
                out.push(value);
                at += 3;
            }
            None => {
                out.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// The key under which an id is stored: lower case, no slash at the end.
pub(crate) fn key(id: &str) -> String {
    id.trim_end_matches('/').to_ascii_lowercase()
}

/// The id of a document.
pub(crate) fn of(doc: &serde_json::Value) -> &str {
    doc["id"].as_str().unwrap_or("")
}

/// The last segment.
pub(crate) fn name_of(id: &str) -> &str {
    id.trim_end_matches('/').rsplit('/').next().unwrap_or(id)
}

/// The name of a virtual machine, also of a scale set's instance: `set_3`, as its document has it.
pub(crate) fn machine_name(id: &str) -> String {
    let mut segments = id.trim_end_matches('/').rsplit('/');
    let (name, above) = (segments.next().unwrap_or(id), segments.nth(1));
    match above.filter(|_| segments.next().is_some_and(|kind| kind.eq_ignore_ascii_case("virtualMachineScaleSets"))) {
        Some(set) => format!("{set}_{name}"),
        None => name.to_owned(),
    }
}

/// The id without its last two segments: of a part, the resource that has it.
pub(crate) fn parent_of(id: &str) -> &str {
    let above = id.trim_end_matches('/').rsplit_once('/').and_then(|(above, _)| above.rsplit_once('/'));
    above.map_or(id, |(parent, _)| parent)
}

/// The resource group's name in an id, as spelt there.
pub(crate) fn group_of(id: &str) -> &str {
    segment_after(id, "resourcegroups")
}

/// The subscription in an id.
pub(crate) fn subscription_of(id: &str) -> &str {
    segment_after(id, "subscriptions")
}

fn segment_after<'a>(id: &'a str, word: &str) -> &'a str {
    let mut segments = id.split('/');
    while let Some(segment) = segments.next() {
        if segment.eq_ignore_ascii_case(word) {
            return segments.next().unwrap_or("");
        }
    }
    ""
}

/// Whether both name the same resource.
pub(crate) fn same(a: &str, b: &str) -> bool {
    a.trim_end_matches('/').eq_ignore_ascii_case(b.trim_end_matches('/'))
}

/// `East US 2` and `eastus2` are one location.
pub(crate) fn location(name: &str) -> String {
    name.chars().filter(|c| !c.is_whitespace()).collect::<String>().to_ascii_lowercase()
}
