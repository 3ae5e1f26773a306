//! Templates in the parameters of a class, such as `${pvc.metadata.name}`, which external-provisioner's extra metadata
//! fills in.

use crate::parameter::{Context, ParameterError, Parameters};

/// What the templates stand for; what external-provisioner did not send is `None`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Templates<'a> {
    /// `${pv.metadata.name}`
    pub pv_name: Option<&'a str>,
    /// `${pvc.metadata.name}`
    pub pvc_name: Option<&'a str>,
    /// `${pvc.metadata.namespace}`
    pub pvc_namespace: Option<&'a str>,
}

impl<'a> Templates<'a> {
    /// As external-provisioner sends them with the parameters of a class.
    pub fn of(parameters: &Parameters<'a>) -> Self {
        let value = |key| parameters.get(key).map(|parameter| parameter.value);
        Self {
            pv_name: value("csi.storage.k8s.io/pv/name"),
            pvc_name: value("csi.storage.k8s.io/pvc/name"),
            pvc_namespace: value("csi.storage.k8s.io/pvc/namespace"),
        }
    }

    /// As the context of a volume keeps them.
    ///
    /// # Errors
    /// When the context has two values for one of them.
    pub fn of_context(context: Context<'a>) -> Result<Self, ParameterError> {
        let value = |key| Ok::<_, ParameterError>(context.get(key)?.map(|parameter| parameter.value));
        Ok(Self {
            pv_name: value("csi.storage.k8s.io/pv/name")?,
            pvc_name: value("csi.storage.k8s.io/pvc/name")?,
            pvc_namespace: value("csi.storage.k8s.io/pvc/namespace")?,
        })
    }

    fn pairs(&self) -> [(&'static str, Option<&'a str>); 3] {
        [
            ("${pvc.metadata.name}", self.pvc_name),
            ("${pvc.metadata.namespace}", self.pvc_namespace),
            ("${pv.metadata.name}", self.pv_name),
        ]
    }

    /// The text with every template filled in whose value is known. Names of Kubernetes objects hold no `$`, so that
    /// nothing is filled in twice.
    pub fn fill(&self, text: &str) -> String {
        self.pairs().into_iter().fold(text.to_owned(), |text, (template, value)| match value {
            Some(value) => text.replace(template, value),
            None => text,
        })
    }

    /// What is written as a template in a text and is none, such as `${pvc.metadata.nmae}`. It stays in the text, as with
    /// the Go driver.
    pub fn unknown<'t>(&self, text: &'t str) -> Option<&'t str> {
        let is_known = |found: &str| self.pairs().iter().any(|(template, _)| *template == found);
        let begins = text.match_indices("${").map(|(at, _)| &text[at..]);
        begins.map(|rest| rest.find('}').map_or(rest, |end| &rest[..=end])).find(|found| !is_known(found))
    }

    /// The first of what is written as a template in a text.
    pub fn first(text: &str) -> Option<&str> {
        let rest = &text[text.find("${")?..];
        Some(rest.find('}').map_or(rest, |end| &rest[..=end]))
    }

    /// The templates that there are, for a sentence.
    pub fn names() -> String {
        Templates::default().pairs().map(|(template, _)| template).join(", ")
    }

    /// A template that is left in a text.
    pub fn unfilled(&self, text: &str) -> Option<&'static str> {
        self.pairs().into_iter().map(|(template, _)| template).find(|template| text.contains(template))
    }
}
