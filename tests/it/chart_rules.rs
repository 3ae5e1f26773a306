//! Every text and number that the chart takes has a rule of its own in `deploy/chart/files/rules.yaml`, whose refusal is a sentence:
//! a pattern of the schema would be printed bare. That the refusals read well is the tier `chart`'s.

use std::{collections::BTreeSet, fs, path::Path};

use serde_json::Value;

/// Values that may be any text: annotations, and what Kubernetes and the drivers judge themselves.
const FREE: [&str; 10] = [
    "azureFile.storageClasses.#.mountOptions.#",
    "cloudControllers.deployment.podAnnotations.*",
    "cloudControllers.deployment.serviceAccount.annotations.*",
    "commonAnnotations.*",
    "controller.podAnnotations.*",
    "controller.serviceAccount.annotations.*",
    "monitoring.dashboard.annotations.*",
    "node.podAnnotations.*",
    "node.serviceAccount.annotations.*",
    "storageClasses.#.mountOptions.#",
];

fn chart(file: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/chart").join(file)).unwrap()
}

fn rules() -> Value {
    serde_saphyr::from_str(&chart("files/rules.yaml")).unwrap()
}

fn schema() -> Value {
    serde_json::from_str(&chart("values.schema.json")).unwrap()
}

/// The paths of texts and numbers below a node of the schema, and of the objects that the schema leaves open.
fn paths(node: &Value, at: &str, leaves: &mut BTreeSet<String>, open: &mut BTreeSet<String>) {
    let below = |segment: &str| if at.is_empty() { segment.to_owned() } else { format!("{at}.{segment}") };
    let types: Vec<&str> = match &node["type"] {
        Value::Array(types) => types.iter().map(|one| one.as_str().unwrap()).collect(),
        one => one.as_str().into_iter().collect(),
    };
    if ["string", "integer", "number"].iter().any(|one| types.contains(one)) {
        leaves.insert(at.to_owned());
    }
    for (name, property) in node["properties"].as_object().into_iter().flatten() {
        paths(property, &below(name), leaves, open);
    }
    if node["items"].is_object() {
        paths(&node["items"], &below("#"), leaves, open);
    }
    match &node["additionalProperties"] {
        Value::Object(_) => paths(&node["additionalProperties"], &below("*"), leaves, open),
        Value::Null if types.contains(&"object") => {
            open.insert(at.to_owned());
        }
        _ => {}
    }
}

/// The paths of rules.
fn ruled() -> BTreeSet<String> {
    let rules = rules();
    let lists = rules["values"].as_object().unwrap().values();
    lists.flat_map(|paths| paths.as_array().unwrap()).map(|path| path.as_str().unwrap().to_owned()).collect()
}

/// Whether a rule's path leads to a path of the schema.
fn leads_to(rule: &str, path: &str) -> bool {
    let (rule, path): (Vec<&str>, Vec<&str>) = (rule.split('.').collect(), path.split('.').collect());
    rule.len() == path.len() && rule.iter().zip(path).all(|(rule, path)| *rule == path || *rule == "*")
}

#[test]
fn every_text_and_number_of_the_chart_has_a_rule() {
    let (mut leaves, mut open) = (BTreeSet::new(), BTreeSet::new());
    paths(&schema(), "", &mut leaves, &mut open);
    assert!(leaves.len() > 100, "{leaves:?}");
    let ruled = ruled();
    let unruled: BTreeSet<&str> =
        leaves.iter().filter(|leaf| !ruled.iter().any(|rule| leads_to(rule, leaf))).map(String::as_str).collect();
    assert_eq!(unruled, FREE.into(), "left those without a rule, right those that may be any text");
    // Nor does a rule speak of a value that there is not.
    for rule in &ruled {
        let leads = leaves.iter().any(|leaf| leads_to(rule, leaf));
        let is_of_keys = rule.ends_with(".@");
        let lies_in_open = open.iter().any(|object| {
            let (rule, object): (Vec<&str>, Vec<&str>) = (rule.split('.').collect(), object.split('.').collect());
            rule.len() > object.len() && object.iter().zip(&rule).all(|(one, of)| one == of || *of == "*")
        });
        assert!(leads || is_of_keys || lies_in_open || rule.contains('~'), "{rule} is in no value");
    }
}

#[test]
fn the_schema_says_types_and_names_and_nothing_that_helm_would_print_bare() {
    let text = chart("values.schema.json");
    for word in ["pattern", "enum", "minimum", "maximum", "minLength", "minItems", "anyOf", "oneOf"] {
        assert!(!text.contains(&format!("\"{word}\"")), "{word}");
    }
}

#[test]
fn every_kind_of_value_is_used_and_says_what_is_allowed() {
    let rules = rules();
    let (kinds, values) = (rules["kinds"].as_object().unwrap(), rules["values"].as_object().unwrap());
    let used: BTreeSet<&str> = values.keys().map(|kind| kind.trim_end_matches('?')).collect();
    assert_eq!(used, kinds.keys().map(String::as_str).collect::<BTreeSet<_>>());
    let names: Value = serde_json::from_str(&chart("files/names.json")).unwrap();
    for (kind, rule) in kinds {
        let has = |key: &str| !rule[key].is_null();
        let ways = ["pattern", "words", "names", "least", "template"].into_iter().filter(|way| has(way)).count();
        assert_eq!(ways, 1, "{kind}");
        assert!(has("allowed") || has("words") || has("names") || (has("least") && has("most")), "{kind}");
        assert!(!has("names") || names[rule["names"].as_str().unwrap()].is_array(), "{kind}");
        assert_eq!(has("not"), has("because"), "{kind}");
    }
}

/// Null deletes a value with its default, and a template would fail on what is missing: in Helm's words, not in ours.
#[test]
fn the_schema_misses_each_part_and_switch_that_is_deleted() {
    fn walk(node: &Value, at: &str) {
        let required: Vec<&Value> = node["required"].as_array().into_iter().flatten().collect();
        for (name, property) in node["properties"].as_object().into_iter().flatten() {
            let path = format!("{at}.{name}");
            // Kubernetes has no need of resources, and an older release has no top-level switch.
            let needed = property["type"] == "boolean" || (property["properties"].is_object() && name != "resources");
            assert!(!needed || path == ".enabled" || required.contains(&&Value::from(name.as_str())), "{path}");
            walk(property, &path);
        }
    }
    walk(&schema(), "");
}
