//! Azure Resource Manager ids.

use std::{
    cmp::Ordering,
    fmt,
    hash::{Hash, Hasher},
    str::FromStr,
    sync::Arc,
};

use crate::{file_share::SHARE_TYPE, storage_account::ACCOUNT_TYPE};

/// The id of an Azure resource:
/// `/subscriptions/{s}/resourceGroups/{g}/providers/{namespace}/{type}/{name}[/{type}/{name}…]`.
///
/// Azure returns ids in any letter case (resource groups upper-cased by the compute provider, for example), so two
/// ids that differ only in case are equal, order equally and hash equally. The spelling is kept, for Kubernetes
/// compares volume handles byte by byte.
///
/// Clones share the text: states, wants and reports of thousands of Services name the same few objects.
#[derive(Clone)]
pub struct ArmId {
    text: Arc<str>,
    folded: Arc<str>,
}

/// The longest id, in bytes. Azure's own names are far shorter; an id comes from who may write a volume or a Service, and
/// is a key of tables here.
const LONGEST_ID: usize = 1_024;
/// How much of a text that is no id an error shows, in characters.
const SHOWN: usize = 256;

/// Why a text is not the id of an Azure resource.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not an Azure resource id: {why}; expected at most {LONGEST_ID} characters of the form /subscriptions/{{subscription}}/resourceGroups/{{group}}/providers/{{namespace}}/{{type}}/{{name}}"
)]
pub struct ArmIdError {
    text: String,
    why: &'static str,
}

impl ArmIdError {
    fn new(text: &str, why: &'static str) -> Self {
        let text = match text.char_indices().nth(SHOWN) {
            Some((end, _)) => format!("{}…", &text[..end]),
            None => text.to_owned(),
        };
        Self { text, why }
    }
}

impl ArmId {
    /// The id of a resource of one type in a group, in Azure's usual spelling.
    ///
    /// # Errors
    /// When a part is empty or holds a slash.
    pub fn resource(
        subscription: &str,
        resource_group: &str,
        resource_type: &str,
        name: &str,
    ) -> Result<Self, ArmIdError> {
        let text =
            format!("/subscriptions/{subscription}/resourceGroups/{resource_group}/providers/{resource_type}/{name}");
        if [subscription, resource_group, name].iter().any(|part| part.contains('/')) {
            return Err(ArmIdError::new(&text, "a name holds a slash"));
        }
        text.parse()
    }

    /// The id of a managed disk.
    ///
    /// # Errors
    /// As [`ArmId::resource`].
    pub fn disk(subscription: &str, resource_group: &str, name: &str) -> Result<Self, ArmIdError> {
        Self::resource(subscription, resource_group, "Microsoft.Compute/disks", name)
    }

    /// The id of a snapshot of a managed disk.
    ///
    /// # Errors
    /// As [`ArmId::resource`].
    pub fn snapshot(subscription: &str, resource_group: &str, name: &str) -> Result<Self, ArmIdError> {
        Self::resource(subscription, resource_group, "Microsoft.Compute/snapshots", name)
    }

    /// The id of a virtual machine.
    ///
    /// # Errors
    /// As [`ArmId::resource`].
    pub fn virtual_machine(subscription: &str, resource_group: &str, name: &str) -> Result<Self, ArmIdError> {
        Self::resource(subscription, resource_group, "Microsoft.Compute/virtualMachines", name)
    }

    /// The id of a storage account.
    ///
    /// # Errors
    /// As [`ArmId::resource`].
    pub fn storage_account(subscription: &str, resource_group: &str, name: &str) -> Result<Self, ArmIdError> {
        Self::resource(subscription, resource_group, ACCOUNT_TYPE, name)
    }

    /// The id of a file share of an account.
    ///
    /// # Errors
    /// When the name is empty or holds a slash.
    pub fn file_share(account: &Self, name: &str) -> Result<Self, ArmIdError> {
        let text = format!("{account}/fileServices/default/shares/{name}");
        if name.contains('/') {
            return Err(ArmIdError::new(&text, "a name holds a slash"));
        }
        text.parse()
    }

    /// The storage account of a file share; `None` for another resource.
    pub fn account_of_share(&self) -> Option<Self> {
        if self.is_type(SHARE_TYPE) { self.parent()?.parent() } else { None }
    }

    /// The id as it was spelled.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The id in lower case: a key for tables and for stable order.
    pub fn folded(&self) -> &str {
        &self.folded
    }

    fn segment(&self, index: usize) -> &str {
        self.text.split('/').nth(index).expect("the parser counted the segments")
    }

    /// The subscription, as spelled.
    pub fn subscription(&self) -> &str {
        self.segment(2)
    }

    /// The resource group, as spelled.
    pub fn resource_group(&self) -> &str {
        self.segment(4)
    }

    /// The last segment: the resource's own name, as spelled.
    pub fn name(&self) -> &str {
        self.text.rsplit('/').next().expect("the parser counted the segments")
    }

    /// The id of the resource that this one is a part of, as a scale set is of its instance; `None` for a resource of
    /// its own.
    pub fn parent(&self) -> Option<Self> {
        let (of_type, _) = self.text.rsplit_once('/')?;
        let (parent, _) = of_type.rsplit_once('/')?;
        parent.parse().ok()
    }

    /// Whether this is the id of a resource of the given type, such as `Microsoft.Compute/disks`; the case of
    /// letters is ignored.
    pub fn is_type(&self, resource_type: &str) -> bool {
        let segments: Vec<&str> = self.folded.split('/').skip(6).collect();
        let namespace_and_types: Vec<&str> = segments
            .iter()
            .enumerate()
            .filter(|(index, _)| *index == 0 || index % 2 == 1)
            .map(|(_, segment)| *segment)
            .collect();
        namespace_and_types.join("/") == resource_type.to_ascii_lowercase()
    }
}

impl FromStr for ArmId {
    type Err = ArmIdError;

    fn from_str(text: &str) -> Result<Self, ArmIdError> {
        let refuse = |why| Err(ArmIdError::new(text, why));
        if text.len() > LONGEST_ID {
            return refuse("it is too long");
        }
        let segments: Vec<&str> = text.split('/').collect();
        if segments.first() != Some(&"") {
            return refuse("it does not start with a slash");
        }
        if segments.len() < 9 || segments.len().is_multiple_of(2) {
            return refuse("it has the wrong number of segments");
        }
        if segments[1..].iter().any(|segment| segment.is_empty()) {
            return refuse("it has an empty segment");
        }
        // A URL resolves them: the id would be that of something else.
        if segments.iter().any(|segment| matches!(*segment, "." | "..")) {
            return refuse("it has a segment of dots");
        }
        for (index, keyword) in [(1, "subscriptions"), (3, "resourceGroups"), (5, "providers")] {
            if !segments[index].eq_ignore_ascii_case(keyword) {
                return refuse("subscriptions, resourceGroups or providers is not where it belongs");
            }
        }
        if text.chars().any(|c| c.is_control() || c.is_whitespace() || matches!(c, '?' | '#' | '%' | '\\')) {
            return refuse("it holds a character that no resource name may have");
        }
        let whole: Arc<str> = text.into();
        let is_folded = !text.bytes().any(|byte| byte.is_ascii_uppercase());
        let folded = if is_folded { whole.clone() } else { text.to_ascii_lowercase().into() };
        Ok(Self { text: whole, folded })
    }
}

impl fmt::Display for ArmId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for ArmId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ArmId({})", self.text)
    }
}

impl PartialEq for ArmId {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.folded, &other.folded) || self.folded == other.folded
    }
}

impl Eq for ArmId {}

impl Hash for ArmId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.folded.hash(state);
    }
}

impl PartialOrd for ArmId {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ArmId {
    fn cmp(&self, other: &Self) -> Ordering {
        if Arc::ptr_eq(&self.folded, &other.folded) {
            return Ordering::Equal;
        }
        self.folded.cmp(&other.folded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DISK: &str = "/subscriptions/0b1f/resourceGroups/MC_Group/providers/Microsoft.Compute/disks/pvc-1";

    #[test]
    fn an_id_keeps_its_spelling_and_gives_its_parts() {
        let id: ArmId = DISK.parse().unwrap();
        assert_eq!(id.to_string(), DISK);
        assert_eq!((id.subscription(), id.resource_group(), id.name()), ("0b1f", "MC_Group", "pvc-1"));
        assert!(id.is_type("microsoft.compute/Disks"));
        assert!(!id.is_type("Microsoft.Compute/snapshots"));
    }

    #[test]
    fn a_child_resource_has_the_type_of_its_whole_path() {
        let id: ArmId =
            "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/a/virtualMachines/3"
                .parse()
                .unwrap();
        assert!(id.is_type("Microsoft.Compute/virtualMachineScaleSets/virtualMachines"));
        assert_eq!(id.name(), "3");
    }

    #[test]
    fn what_is_not_an_id_is_refused_with_its_text() {
        for text in [
            "",
            "pvc-1",
            "https://a.blob.core.windows.net/vhds/d.vhd",
            "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks",
            "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/",
            "/subscriptions/s/resourceGroups//providers/Microsoft.Compute/disks/d",
            "/subscriptions/s/groups/g/providers/Microsoft.Compute/disks/d",
            "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/d?x=1",
            "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/d e",
            "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/..",
            "/subscriptions/s/resourceGroups/./providers/Microsoft.Compute/disks/d",
        ] {
            let error = text.parse::<ArmId>().unwrap_err();
            assert!(error.to_string().contains(&format!("{text:?}")), "{error}");
        }
        assert!(ArmId::disk("s", "a/b", "d").is_err());
    }

    proptest! {
        #[test]
        fn ids_that_differ_only_in_case_are_the_same_id(upper in proptest::collection::vec(any::<bool>(), DISK.len())) {
            let respelled: String = DISK
                .chars()
                .zip(upper)
                .map(|(c, upper)| if upper { c.to_ascii_uppercase() } else { c.to_ascii_lowercase() })
                .collect();
            let (a, b): (ArmId, ArmId) = (DISK.parse().unwrap(), respelled.parse().unwrap());
            prop_assert_eq!(&a, &b);
            prop_assert_eq!(a.cmp(&b), Ordering::Equal);
            prop_assert_eq!(b.as_str(), respelled);
        }
    }
}
