use std::collections::{BTreeMap, BTreeSet};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family as Metrics;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

use super::*;
use crate::http::Page;

const OPERATIONS: Family =
    Family::histogram("op_duration_seconds", "How long \\ it took", &["request", "source"], &[0.1, 1.0, 5.0]);
const FAILURES: Family = Family::counter("op_failure_count", "What failed", &["request", "source"]);
const LEADS: Family = Family::gauge("leads", "Whether it leads", &["name"]);
const BARE: Family = Family::histogram("delay_seconds", "A delay", &[], &[1.0]);

/// A family of a page.
#[derive(Debug, Default)]
struct Parsed {
    kind: String,
    /// The values by the name of the sample and its labels.
    samples: BTreeMap<(String, BTreeMap<String, String>), f64>,
}

fn is_name(text: &str) -> bool {
    let mut chars = text.chars();
    chars.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_' || first == ':')
        && chars.all(|char| char.is_ascii_alphanumeric() || char == '_' || char == ':')
}

/// Reads labels up to the closing brace; what follows it.
fn labels(text: &str) -> Result<(BTreeMap<String, String>, &str), String> {
    let mut labels = BTreeMap::new();
    let mut rest = text;
    loop {
        if let Some(after) = rest.strip_prefix('}') {
            return Ok((labels, after));
        }
        let (name, after) = rest.split_once("=\"").ok_or("a label without a value")?;
        if !is_name(name) {
            return Err(format!("{name} is no name of a label"));
        }
        let (mut value, mut chars) = (String::new(), after.char_indices());
        let end = loop {
            match chars.next().ok_or("a value without an end")? {
                (at, '"') => break at,
                (_, '\\') => value.push(match chars.next() {
                    Some((_, 'n')) => '\n',
                    Some((_, char @ ('\\' | '"'))) => char,
                    other => return Err(format!("an escape that does not exist: {other:?}")),
                }),
                (_, char) => value.push(char),
            }
        };
        if labels.insert(name.to_owned(), value).is_some() {
            return Err(format!("label {name} is there twice"));
        }
        rest = &after[end + 1..];
        rest = match rest.strip_prefix(',') {
            Some(rest) if !rest.starts_with('}') => rest,
            Some(_) => return Err("a comma before the end".to_owned()),
            None if rest.starts_with('}') => rest,
            None => return Err("no comma between labels".to_owned()),
        };
    }
}

/// Reads a page of the text format 0.0.4, and refuses what OpenMetrics alone allows.
fn parse(page: &str) -> Result<BTreeMap<String, Parsed>, String> {
    if !page.ends_with('\n') {
        return Err("the last line has no end".to_owned());
    }
    let mut families: BTreeMap<String, Parsed> = BTreeMap::new();
    let mut helps = BTreeSet::new();
    let mut current = String::new();
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, _) = rest.split_once(' ').ok_or("a help without a text")?;
            if !helps.insert(name.to_owned()) || families.contains_key(name) {
                return Err(format!("the help of {name} is late or there twice"));
            }
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').ok_or("a type without a word")?;
            if !["counter", "gauge", "histogram", "summary", "untyped"].contains(&kind) || !is_name(name) {
                return Err(format!("no such type: {line}"));
            }
            let parsed = Parsed { kind: kind.to_owned(), ..Parsed::default() };
            if families.insert(name.to_owned(), parsed).is_some() {
                return Err(format!("{name} has two types"));
            }
            current = name.to_owned();
        } else if line.is_empty() || line.starts_with('#') {
            return Err(format!("not of this format: {line:?}"));
        } else {
            let end = line.find(['{', ' ']).ok_or("a sample without a value")?;
            let (name, rest) = line.split_at(end);
            let (labels, rest) = match rest.strip_prefix('{') {
                Some(rest) => labels(rest)?,
                None => (BTreeMap::new(), rest),
            };
            let value = rest.strip_prefix(' ').ok_or("no blank before the value")?;
            let value: f64 = value.parse().map_err(|_| format!("no value, or more than a value: {line}"))?;
            let family = families.get_mut(&current).ok_or("a sample before the first type")?;
            let suffix = name.strip_prefix(&current).ok_or(format!("{name} is among {current}"))?;
            let fits = match family.kind.as_str() {
                "histogram" => match suffix {
                    "_bucket" => labels.contains_key("le"),
                    "_sum" | "_count" => !labels.contains_key("le"),
                    _ => false,
                },
                _ => suffix.is_empty(),
            };
            if !fits || family.samples.insert((name.to_owned(), labels), value).is_some() {
                return Err(format!("not of its family, or there twice: {line}"));
            }
        }
    }
    families.iter().try_for_each(|(name, family)| histogram(name, family))?;
    Ok(families)
}

/// Whether the buckets of a histogram rise to its count.
fn histogram(name: &str, family: &Parsed) -> Result<(), String> {
    if family.kind != "histogram" {
        return Ok(());
    }
    let mut series: BTreeMap<BTreeMap<String, String>, Vec<(f64, f64)>> = BTreeMap::new();
    for ((sample, labels), value) in &family.samples {
        if sample.ends_with("_bucket") {
            let mut labels = labels.clone();
            let le = labels.remove("le").unwrap_or_default();
            let bound = if le == "+Inf" { f64::INFINITY } else { le.parse().map_err(|_| format!("le={le:?}"))? };
            series.entry(labels).or_default().push((bound, *value));
        }
    }
    for (labels, mut buckets) in series {
        buckets.sort_by(|one, other| one.0.total_cmp(&other.0));
        let count = family.samples.get(&(format!("{name}_count"), labels.clone()));
        let has_sum = family.samples.contains_key(&(format!("{name}_sum"), labels));
        let last = buckets.last().map(|(bound, below)| (*bound, *below));
        let rises = buckets.is_sorted_by(|one, other| one.0 < other.0 && one.1 <= other.1);
        if !rises || !has_sum || last != count.map(|count| (f64::INFINITY, *count)) {
            return Err(format!("the buckets of {name} do not rise to its count: {buckets:?}"));
        }
    }
    Ok(())
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    verb: &'static str,
    name: String,
}

/// A registry with a metric of each type.
fn registry() -> Registry {
    let mut registry = Registry::default();
    let requests: Metrics<Labels, Counter> = Metrics::default();
    requests.get_or_create(&Labels { verb: "GET", name: "a\"b\\c\nd".to_owned() }).inc();
    registry.register("requests", "Requests", requests);
    let waiting: Gauge = Gauge::default();
    waiting.set(7);
    registry.register("waiting", "What waits", waiting);
    let took: Metrics<Labels, Histogram, fn() -> Histogram> =
        Metrics::new_with_constructor(|| Histogram::new([0.5, 1.0]));
    took.get_or_create(&Labels { verb: "PUT", name: String::new() }).observe(0.75);
    registry.register_with_unit("took", "How long it took", Unit::Seconds, took);
    registry.register("build", "The build", Info::new(vec![("version", "1")]));
    registry
}

#[test]
fn a_page_with_go_names_is_of_the_text_format_and_one_without_is_not() {
    let go = GoNames::on();
    go.observe(&OPERATIONS, &["ensure", "shop/web"], 0.3);
    go.observe(&OPERATIONS, &["ensure", "shop/web"], 9.0);
    go.observe(&BARE, &[], 0.5);
    go.count(&FAILURES, &["ensure", "a\"b\\c\nd"]);
    go.show(&FAILURES, &["delete", ""]);
    go.level(&LEADS, &["manager"], || 1.0);
    go.level(&LEADS, &["other"], || 0.0);
    let (kind, page) = Page::new(registry(), go).make().unwrap();
    assert!(kind.starts_with("text/plain; version=0.0.4"), "{kind}");
    let families = parse(&page).unwrap_or_else(|error| panic!("{error}\n{page}"));
    let kinds: BTreeMap<&str, &str> =
        families.iter().map(|(name, family)| (name.as_str(), family.kind.as_str())).collect();
    let expected = [
        ("build_info", "gauge"),
        ("delay_seconds", "histogram"),
        ("leads", "gauge"),
        ("op_duration_seconds", "histogram"),
        ("op_failure_count", "counter"),
        ("requests_total", "counter"),
        ("took_seconds", "histogram"),
        ("waiting", "gauge"),
    ];
    assert_eq!(kinds, expected.into());
    for line in [
        r#"op_duration_seconds_bucket{request="ensure",source="shop/web",le="0.1"} 0"#,
        r#"op_duration_seconds_bucket{request="ensure",source="shop/web",le="1"} 1"#,
        r#"op_duration_seconds_bucket{request="ensure",source="shop/web",le="+Inf"} 2"#,
        r#"op_duration_seconds_sum{request="ensure",source="shop/web"} 9.3"#,
        r#"op_failure_count{request="delete",source=""} 0"#,
        r#"delay_seconds_bucket{le="1"} 1"#,
        r#"leads{name="manager"} 1"#,
    ] {
        assert!(page.lines().any(|there| there == line), "{line} is not in\n{page}");
    }
    let (kind, page) = Page::new(registry(), GoNames::default()).make().unwrap();
    assert!(kind.starts_with("application/openmetrics-text"), "{kind}");
    assert!(parse(&page).is_err(), "the parser takes OpenMetrics:\n{page}");
}

#[test]
fn the_parser_of_these_tests_refuses_what_is_not_of_the_format() {
    for page in [
        "# TYPE a counter\na_total 1\n",
        "# TYPE a counter\na 1\n# EOF\n",
        "# TYPE a_seconds gauge\n# UNIT a_seconds seconds\na_seconds 1\n",
        "# TYPE a info\na_info{x=\"1\"} 1\n",
        "# TYPE a gauge\na{x=\"1\",} 1\n",
        "# TYPE a gauge\na{x=\"\\q\"} 1\n",
        "# TYPE a gauge\na 1\na 2\n",
        "# TYPE a gauge\na 1 # {trace=\"x\"} 1\n",
        "# TYPE a gauge\na 1",
        "a 1\n",
        "# TYPE a histogram\na_bucket{le=\"1\"} 2\na_bucket{le=\"+Inf\"} 1\na_sum 1\na_count 1\n",
        "# TYPE a histogram\na_bucket{le=\"1\"} 1\na_sum 1\na_count 1\n",
    ] {
        assert!(parse(page).is_err(), "{page}");
    }
}

#[test]
fn series_are_bounded_and_what_comes_after_counts_together() {
    let go = GoNames::on();
    for number in 0..MOST_SERIES + 500 {
        go.clone().count(&FAILURES, &["ensure", &format!("shop/{number}")]);
    }
    let mut page = String::new();
    go.write(&mut page);
    let families = parse(&page).unwrap();
    let samples = &families["op_failure_count"].samples;
    assert_eq!(samples.len(), MOST_SERIES + 1);
    let other = BTreeMap::from([("request".into(), "other".into()), ("source".into(), "other".into())]);
    assert_eq!(samples[&("op_failure_count".to_owned(), other)], 500.0);
}

#[test]
fn one_that_is_off_keeps_nothing() {
    let go = GoNames::default();
    go.count(&FAILURES, &["ensure", "a"]);
    go.level(&LEADS, &["a"], || panic!("it is read"));
    let mut page = String::new();
    go.write(&mut page);
    assert!(page.is_empty() && !go.is_on());
}
