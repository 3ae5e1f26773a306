//! The members of a JSON document that are in use. The others are skipped while the text is read, so a list of thousands
//! of resources never becomes values as a whole.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// What is kept of a value. In an array it holds for each element.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Fields {
    /// Everything.
    All,
    /// Of an object these members.
    Only(&'static [(&'static str, Fields)]),
}

impl<'de> DeserializeSeed<'de> for Fields {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        match self {
            Self::All => serde::Deserialize::deserialize(deserializer),
            Self::Only(members) => deserializer.deserialize_any(Kept(members)),
        }
    }
}

struct Kept(&'static [(&'static str, Fields)]);

impl<'de> Visitor<'de> for Kept {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut kept = Map::new();
        while let Some(name) = map.next_key::<std::borrow::Cow<'de, str>>()? {
            match self.0.iter().find(|(member, _)| *member == name) {
                Some((member, fields)) => drop(kept.insert((*member).to_owned(), map.next_value_seed(*fields)?)),
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(Value::Object(kept))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut elements = Vec::new();
        while let Some(element) = seq.next_element_seed(Fields::Only(self.0))? {
            elements.push(element);
        }
        Ok(Value::Array(elements))
    }

    // What is not of the expected shape is kept as it is, for the decoder to refuse by name.
    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const FIELDS: Fields =
        Fields::Only(&[("id", Fields::All), ("list", Fields::Only(&[("lun", Fields::All)])), ("tags", Fields::All)]);

    fn kept(text: &str) -> Value {
        let mut deserializer = serde_json::Deserializer::from_str(text);
        FIELDS.deserialize(&mut deserializer).unwrap()
    }

    #[test]
    fn members_in_use_are_kept_at_any_depth_and_others_are_not() {
        let text = r#"{"id":"a\u0062","rest":{"deep":[1,{"x":null}]},"list":[{"lun":1,"x":[2]},{}],"tags":{"k":"v"}}"#;
        assert_eq!(kept(text), json!({ "id": "ab", "list": [{ "lun": 1 }, {}], "tags": { "k": "v" } }));
    }

    #[test]
    fn what_has_another_shape_than_expected_is_kept_for_the_decoder() {
        for odd in ["null", "true", "-1", "2", "2.5", "\"text\"", "[]"] {
            let value: Value = serde_json::from_str(odd).unwrap();
            assert_eq!(kept(odd), value);
            assert_eq!(kept(&format!("{{\"list\":{odd}}}")), json!({ "list": value }));
        }
    }
}
