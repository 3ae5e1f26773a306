//! The text format 0.0.4. Source: Prometheus' documentation on exposition formats.

use std::fmt::Write as _;

use super::{Family, FamilyKind, Series};

/// The type of a page in this format.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A page of OpenMetrics in the text format 0.0.4: the same names and values. What differs is how a family is named: there
/// it has no suffix, here a counter is called by the name of its series, and an info is a gauge.
pub fn from_open_metrics(page: &str) -> String {
    let mut text = String::with_capacity(page.len());
    // OpenMetrics writes the help of a family before its type, which names the family here.
    let mut help = None;
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ').map(|(_, help)| help);
        } else if let Some((family, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            let (suffix, kind) = match kind {
                "counter" => ("_total", "counter"),
                "info" => ("_info", "gauge"),
                "unknown" => ("", "untyped"),
                kind => ("", kind),
            };
            if let Some(help) = help.take() {
                // The format does not escape quotation marks in a help.
                _ = writeln!(text, "# HELP {family}{suffix} {}", help.replace("\\\"", "\""));
            }
            _ = writeln!(text, "# TYPE {family}{suffix} {kind}");
        } else if !line.starts_with('#') {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

/// The lines before the series of a family.
pub(super) fn head(page: &mut String, family: &Family) {
    _ = writeln!(page, "# HELP {} {}", family.name, family.help.replace('\\', "\\\\").replace('\n', "\\n"));
    _ = writeln!(page, "# TYPE {} {}", family.name, family.kind.as_str());
}

/// The lines of one series.
pub(super) fn series(page: &mut String, family: &Family, values: &[String], series: &Series) {
    let labels: Vec<String> =
        family.labels.iter().zip(values).map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
    let labels = labels.join(",");
    let name = family.name;
    match (series, family.kind) {
        (Series::Value(value), _) => _ = writeln!(page, "{name}{} {value}", braced(&labels)),
        (Series::Histogram { buckets, count, sum }, FamilyKind::Histogram(bounds)) => {
            let comma = if labels.is_empty() { "" } else { "," };
            let mut below = 0;
            for (bound, bucket) in bounds.iter().zip(buckets) {
                below += bucket;
                _ = writeln!(page, "{name}_bucket{{{labels}{comma}le=\"{bound}\"}} {below}");
            }
            _ = writeln!(page, "{name}_bucket{{{labels}{comma}le=\"+Inf\"}} {count}");
            _ = writeln!(page, "{name}_sum{} {sum}", braced(&labels));
            _ = writeln!(page, "{name}_count{} {count}", braced(&labels));
        }
        (Series::Histogram { .. }, FamilyKind::Counter | FamilyKind::Gauge) => {}
    }
}

fn braced(labels: &str) -> String {
    if labels.is_empty() { String::new() } else { format!("{{{labels}}}") }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
