//! A resource's document: shared by all who read it, copied by the first who changes it.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

/// A JSON document. A clone costs nothing and shares the content; a change through [`DerefMut`] copies the content
/// first where it is shared, so that no reader ever sees it change.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Document(Arc<Value>);

impl Document {
    /// The content; a copy of it where others share it.
    #[must_use]
    pub fn into_value(self) -> Value {
        Arc::unwrap_or_clone(self.0)
    }

    /// Whether both share one content, which is then the same.
    pub(crate) fn shares_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl From<Value> for Document {
    fn from(value: Value) -> Self {
        Self(Arc::new(value))
    }
}

impl Deref for Document {
    type Target = Value;

    fn deref(&self) -> &Value {
        &self.0
    }
}

impl DerefMut for Document {
    fn deref_mut(&mut self) -> &mut Value {
        Arc::make_mut(&mut self.0)
    }
}

impl Serialize for Document {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Document {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_change_is_seen_by_its_own_copy_alone() {
        let mut changed = Document::from(json!({"a": 1}));
        let read = changed.clone();
        changed["a"] = json!(2);
        assert_eq!((read.into_value(), changed.into_value()), (json!({"a": 1}), json!({"a": 2})));
    }
}
