//! Access lists, well formed and not, as the Go manager reads them. What it makes of each is in `access_lists.jsonl`, written
//! by the manager's own code: `tests/tools/cloud-controller-manager-1.35/access`. A row of which this provider makes
//! something else says what, and why.

use serde::Deserialize;

use super::*;

const TABLE: &str = include_str!("access_lists.jsonl");

#[derive(Debug, Deserialize)]
struct Row {
    #[serde(default)]
    annotations: BTreeMap<String, String>,
    #[serde(default)]
    field: Vec<String>,
    go: Vec<String>,
    lazuli: Option<Vec<String>>,
    why: Option<String>,
}

/// The rules of a dual-stack Service at its addresses, as the table writes them.
fn rules(row: &Row) -> (Vec<String>, Vec<String>) {
    let pairs: Vec<(&str, &str)> = row.annotations.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    let object = ServiceObject {
        families: vec![Family::V4, Family::V6],
        source_ranges: row.field.iter().collect(),
        ..annotated(&pairs)
    };
    let Ok(ask) = parse(&object, &settings(), &Existing::default()) else {
        return (vec!["refused".to_owned()], vec![]);
    };
    let addresses = ["20.0.0.4", "2001:db8::4"].iter().map(|text| text.parse().unwrap()).collect();
    let env = security_group_env(&settings());
    let want = wants::security_group(&ask, &addresses, &BTreeSet::new(), &Former::default(), Stage::Trimming);
    let group = security_group::SecurityGroup::read(&env.id, &empty_group()).unwrap();
    let plan = security_group::plan(&[(ask.service.clone(), want)].into(), Some(&group), &env);
    let after = security_group::apply(Some(group), &plan.edits, &env).unwrap();
    let line = |rule: &security_group::SecurityRule| {
        let mut sources = rule.sources.clone();
        sources.sort_unstable();
        let access = if rule.is_allow { "allow" } else { "deny" };
        format!("{access} {} to {}", sources.join(","), rule.destinations.join(","))
    };
    let mut rules: Vec<String> = after.rules.iter().map(line).collect();
    rules.sort_unstable();
    (rules, ask.warnings.into_iter().map(|warning| warning.message).collect())
}

#[test]
fn an_access_list_admits_and_denies_as_the_go_manager_or_says_why_not() {
    let rows: Vec<Row> = TABLE.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(rows.len() >= 200, "{}", rows.len());
    let mut unlike = Vec::new();
    for row in &rows {
        let (rules, warnings) = rules(row);
        let expected = row.lazuli.as_ref().unwrap_or(&row.go);
        if rules != *expected {
            unlike.push(format!("{} makes {rules:?}", json!({"annotations": row.annotations, "field": row.field})));
        }
        assert_eq!(row.lazuli.is_some(), row.why.as_ref().is_some_and(|why| why.len() > 20), "{row:?}");
        assert!(row.lazuli.as_ref() != Some(&row.go), "{row:?} is as the Go manager");
        // Whoever is denied for an item that cannot be read is told.
        let denies = rules.iter().any(|rule| rule.starts_with("deny"));
        let asks = row.annotations.keys().any(|key| key.starts_with("azure-deny-all"));
        assert!(!denies || asks || warnings.iter().any(|one| one.contains("is ignored, and all other")), "{row:?}");
    }
    assert!(unlike.is_empty(), "{}", unlike.join("\n"));
}

#[test]
fn no_malformed_list_lets_the_internet_in() {
    for key in ["azure-allowed-ip-ranges", "load-balancer-source-ranges", "azure-allowed-service-tags"] {
        for value in ["", " ", ",", "x,", "x"] {
            for is_live in [false, true] {
                let existing = if is_live { served(&service()) } else { Existing::default() };
                let ask = parse(&annotated(&[(key, value)]), &settings(), &existing).unwrap();
                assert!(!ask.access.service_tags.iter().any(|tag| tag == "Internet"), "{key}={value:?}");
                let is_tag = key.ends_with("tags");
                assert_eq!(ask.access.denial, if is_tag { Denial::None } else { Denial::OfInvalidRange }, "{value:?}");
                assert_eq!(ask.warnings.is_empty(), is_tag && value == "x", "{key}={value:?}: {:?}", ask.warnings);
            }
        }
    }
}
