//! How objects look in an answer: whole, as rows of a table, or as metadata; and those of the core group's events, which
//! are kept in another form, under their own names.

use std::borrow::Cow;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    accept::Form,
    core_events,
    resource::Resource,
    table::{self, Include},
};

/// What a client sees of objects.
#[derive(Debug, Clone, Copy)]
pub(crate) struct View {
    /// The kind that it asked for.
    pub(crate) resource: &'static Resource,
    pub(crate) form: Form,
    pub(crate) include: Include,
}

/// An object under the names of the kind that was asked for.
pub(crate) fn shown<'a>(resource: &Resource, object: &'a Value) -> Cow<'a, Value> {
    match resource.kept_as {
        None => Cow::Borrowed(object),
        Some(_) => Cow::Owned(core_events::shown(object)),
    }
}

impl View {
    /// One object, as JSON text: a whole one is printed without being copied.
    pub(crate) fn one(self, object: &Value, now: Timestamp) -> String {
        self.watched(object, now, true)
    }

    /// One object of a watch, as JSON text; its first table says what the columns are.
    pub(crate) fn watched(self, object: &Value, now: Timestamp, is_first: bool) -> String {
        let object = shown(self.resource, object);
        match self.form {
            Form::Whole | Form::Discovery => object.to_string(),
            Form::Metadata => table::partial(&object).to_string(),
            Form::Table => {
                let row = table::row(self.resource, &object, self.include, now);
                let metadata = json!({"resourceVersion": object["metadata"]["resourceVersion"]});
                table::table(self.resource, metadata, vec![row], is_first).to_string()
            }
        }
    }

    /// A list. The items are printed one by one: a list of 5,000 is not copied first.
    pub(crate) fn list<'a>(self, items: impl Iterator<Item = &'a Value>, metadata: Value, now: Timestamp) -> String {
        let (kind, version) = match self.form {
            Form::Table => {
                let rows = items.map(|item| table::row(self.resource, &shown(self.resource, item), self.include, now));
                return table::table(self.resource, metadata, rows.collect(), true).to_string();
            }
            Form::Metadata => ("PartialObjectMetadataList".to_owned(), "meta.k8s.io/v1".to_owned()),
            Form::Whole | Form::Discovery => (format!("{}List", self.resource.kind), self.resource.api_version()),
        };
        let mut text = json!({"kind": kind, "apiVersion": version, "metadata": metadata}).to_string();
        text.pop();
        text.push_str(",\"items\":[");
        for (at, item) in items.enumerate() {
            if at > 0 {
                text.push(',');
            }
            match self.form {
                Form::Metadata => text.push_str(&table::partial(item).to_string()),
                _ => text.push_str(&shown(self.resource, item).to_string()),
            }
        }
        text.push_str("]}");
        text
    }
}
