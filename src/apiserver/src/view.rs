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
    /// One object.
    pub(crate) fn one(self, object: &Value, now: Timestamp) -> Value {
        let object = shown(self.resource, object);
        match self.form {
            Form::Whole | Form::Discovery => object.into_owned(),
            Form::Metadata => table::partial(&object),
            Form::Table => self.table_of(&object, now, true),
        }
    }

    fn table_of(self, object: &Value, now: Timestamp, heads: bool) -> Value {
        let row = table::row(self.resource, object, self.include, now);
        let metadata = json!({"resourceVersion": object["metadata"]["resourceVersion"]});
        table::table(self.resource, metadata, vec![row], heads)
    }

    /// One object of a watch; its first table says what the columns are.
    pub(crate) fn watched(self, object: &Value, now: Timestamp, is_first: bool) -> Value {
        match self.form {
            Form::Table => self.table_of(&shown(self.resource, object), now, is_first),
            _ => self.one(object, now),
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
