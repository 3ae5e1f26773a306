//! OpenAPI v3: an index, and a document a group, from [`crate::schema`]. They hold what `kubectl` looks for: which kinds
//! take `fieldValidation`, how lists are patched, and the fields for `kubectl explain`.

use serde_json::{Map, Value, json};

use crate::{
    resource::{self, Resource},
    schema::{self, Field, TYPES, Type},
};

/// The plain types that have names of their own, which `kubectl explain` shows.
const QUANTITY: &str = "Quantity";
const INT_OR_STRING: &str = "IntOrString";

/// The path of a group below `/openapi/v3` and below the server.
fn path(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

/// Where the documents are.
pub(crate) fn index() -> Value {
    let paths: Map<String, Value> = resource::ALL
        .iter()
        .map(|one| path(one.group, one.version))
        .map(|path| (path.clone(), json!({"serverRelativeURL": format!("/openapi/v3/{path}")})))
        .collect();
    json!({"paths": paths})
}

/// The document of a group.
pub(crate) fn document(group: &str, version: &str) -> Option<Value> {
    let kinds: Vec<&Resource> =
        resource::ALL.iter().filter(|one| one.group == group && one.version == version).collect();
    if kinds.is_empty() {
        return None;
    }
    let paths: Map<String, Value> = kinds.iter().map(|one| path_of(one)).collect();
    let mut schemas = Map::new();
    schemas.insert(QUANTITY.to_owned(), json!({"oneOf": [{"type": "string"}, {"type": "number"}]}));
    let either = json!({"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]});
    schemas.insert(INT_OR_STRING.to_owned(), either);
    for one in &kinds {
        add(&schema::of(one), &mut schemas);
        let gvk = json!([{"group": one.group, "version": one.version, "kind": one.kind}]);
        schemas[&schema::of(one)]["x-kubernetes-group-version-kind"] = gvk;
    }
    Some(json!({
        "openapi": "3.0.0", "info": {"title": "Kubernetes", "version": crate::VERSION}, "paths": paths,
        "components": {"schemas": schemas},
    }))
}

fn path_of(one: &Resource) -> (String, Value) {
    let namespaces = if one.namespaced { "/namespaces/{namespace}" } else { "" };
    let path = format!("/{}{namespaces}/{}/{{name}}", path(one.group, one.version), one.plural);
    let content = |media: &str| (media.to_owned(), json!({"schema": {"type": "object"}}));
    let media: Map<String, Value> = crate::patch::MEDIA.iter().map(|media| content(media)).collect();
    let parameter = |name: &str| json!({"name": name, "in": "query", "schema": {"type": "string"}});
    let patch = json!({
        "operationId": format!("patch{}", one.kind),
        "parameters": [parameter("dryRun"), parameter("fieldManager"), parameter("fieldValidation")],
        "requestBody": {"required": true, "content": media},
        "responses": {"200": {"description": "OK"}},
        "x-kubernetes-action": "patch",
        "x-kubernetes-group-version-kind": {"group": one.group, "version": one.version, "kind": one.kind},
    });
    (path, json!({"patch": patch}))
}

/// Adds a type and those that its fields name.
fn add(name: &str, schemas: &mut Map<String, Value>) {
    if schemas.contains_key(name) {
        return;
    }
    let Some(fields) = TYPES.get(name) else { return };
    schemas.insert(name.to_owned(), Value::Null);
    let properties: Map<String, Value> = fields.iter().map(|(key, field)| (key.clone(), property(field))).collect();
    schemas[name] = json!({"type": "object", "properties": properties});
    for field in fields.values() {
        let mut kind = &field.kind;
        while let Type::List(inner) | Type::Map(inner) = kind {
            kind = inner;
        }
        if let Type::Object(of) = kind {
            add(of, schemas);
        }
    }
}

fn property(field: &Field) -> Value {
    let mut property = schema_of(&field.kind);
    if let Some(key) = &field.merged_by {
        property["x-kubernetes-patch-strategy"] = json!("merge");
        if !key.is_empty() {
            property["x-kubernetes-patch-merge-key"] = json!(key);
        }
    }
    property
}

fn schema_of(kind: &Type) -> Value {
    match kind {
        Type::Any => json!({"type": "object"}),
        Type::Text => json!({"type": "string"}),
        Type::Boolean => json!({"type": "boolean"}),
        Type::Integer => json!({"type": "integer", "format": "int32"}),
        Type::Long => json!({"type": "integer", "format": "int64"}),
        Type::Bytes => json!({"type": "string", "format": "byte"}),
        Type::Number => json!({"type": "number"}),
        Type::Time => json!({"type": "string", "format": "date-time"}),
        Type::Quantity => reference(QUANTITY),
        Type::PortName => reference(INT_OR_STRING),
        Type::List(item) => json!({"type": "array", "items": schema_of(item)}),
        Type::Map(value) => json!({"type": "object", "additionalProperties": schema_of(value)}),
        Type::Object(name) => reference(name),
    }
}

fn reference(name: &str) -> Value {
    json!({"allOf": [{"$ref": format!("#/components/schemas/{name}")}]})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_document_of_the_index_exists_and_no_reference_leads_nowhere() {
        for path in index()["paths"].as_object().unwrap().keys() {
            let parts: Vec<&str> = path.split('/').collect();
            let (group, version) = if parts[0] == "api" { ("", parts[1]) } else { (parts[1], parts[2]) };
            let document = document(group, version).unwrap();
            let text = document.to_string();
            for reference in text.split("#/components/schemas/").skip(1) {
                let name = reference.split('"').next().unwrap();
                assert!(document["components"]["schemas"][name].is_object(), "{path}: {name}");
            }
        }
        assert!(document("apps", "v1").is_none());
    }

    #[test]
    fn a_service_says_that_it_takes_field_validation_and_how_its_ports_are_merged() {
        let document = document("", "v1").unwrap();
        let patch = &document["paths"]["/api/v1/namespaces/{namespace}/services/{name}"]["patch"];
        assert_eq!(patch["x-kubernetes-group-version-kind"]["kind"], "Service");
        assert!(patch["parameters"].as_array().unwrap().iter().any(|one| one["name"] == "fieldValidation"));
        let schemas = &document["components"]["schemas"];
        assert_eq!(schemas["ServiceSpec"]["properties"]["ports"]["x-kubernetes-patch-merge-key"], "port");
    }
}
