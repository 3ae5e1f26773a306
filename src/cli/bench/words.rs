//! The five figures of a bench that a person asks for first, in words, each with the bound that Azure or this program sets.
//! All figures are in JSON.

use serde_json::{Map, Value};

use super::super::{
    output::Format,
    table::{
        Column, Form,
        Shown::{Always, WithRoom},
        lay,
    },
    terminal::Screen,
};

/// How a figure is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    Seconds,
    Milliseconds,
    Microseconds,
    Bytes,
    Count,
}

impl Unit {
    fn say(self, value: f64) -> String {
        match self {
            Self::Seconds => format!("{value:.2} s"),
            Self::Milliseconds => format!("{value:.1} ms"),
            Self::Microseconds => format!("{value:.1} µs"),
            // Of millions, as memory is sold and as the limits of this program are said.
            Self::Bytes => format!("{:.1} MB", value / 1e6),
            Self::Count => format!("{value:.0}"),
        }
    }
}

/// What a figure is measured against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bound {
    /// Nothing.
    None,
    /// The figure of this name cannot be beaten.
    Least(&'static str),
    /// No fewer than the product of these.
    LeastProduct(&'static [&'static str], u32),
    /// None is best.
    Zero,
    /// The figure of this name must not be passed.
    Most(&'static str),
    /// A constant that must not be passed: the limits of the images.
    MostOf(u32),
}

/// A figure: what it is, its name in JSON (a pointer where it is of a phase), its unit and its bound.
type Figure = (&'static str, &'static str, Unit, Bound);

use Bound::{Least, LeastProduct, Most, MostOf, None as Free, Zero};
use Unit::{Bytes, Count, Microseconds, Milliseconds, Seconds};

/// Limit of the program of the images, bytes, which its build holds.
const LARGEST_PROGRAM: u32 = 25_000_000;

const PEAK: Figure = ("the most memory that the controllers had", "peak_rss_bytes", Bytes, Free);
const REFUSED: Figure = ("requests that Azure refused for coming too soon", "throttled", Count, Zero);

/// The figures of each bench.
const FIGURES: &[(&str, [Figure; 5])] = &[
    (
        "attach-storm",
        [
            ("until every disk was attached", "makespan_s", Seconds, Least("lower_bound_s")),
            ("until every disk was detached", "detach_makespan_s", Seconds, Least("detach_lower_bound_s")),
            ("writes of VMs to attach them", "vm_writes", Count, LeastProduct(&["nodes"], 1)),
            REFUSED,
            PEAK,
        ],
    ),
    (
        "life-storm",
        [
            ("until every volume was created", "/phases/0/makespan_s", Seconds, Least("/phases/0/lower_bound_s")),
            ("until every one was attached", "/phases/1/makespan_s", Seconds, Least("/phases/1/lower_bound_s")),
            ("until every one was detached", "/phases/2/makespan_s", Seconds, Least("/phases/2/lower_bound_s")),
            ("until every one was deleted", "/phases/3/makespan_s", Seconds, Least("/phases/3/lower_bound_s")),
            REFUSED,
        ],
    ),
    (
        "share-storm",
        [
            ("until every share was created", "/phases/0/makespan_s", Seconds, Least("/phases/0/lower_bound_s")),
            ("until every one had grown", "/phases/1/makespan_s", Seconds, Least("/phases/1/lower_bound_s")),
            ("until every one was deleted", "/phases/2/makespan_s", Seconds, Least("/phases/2/lower_bound_s")),
            REFUSED,
            PEAK,
        ],
    ),
    (
        "snapshot-storm",
        [
            ("until every snapshot was taken", "/phases/0/makespan_s", Seconds, Least("/phases/0/lower_bound_s")),
            ("until every volume was restored", "/phases/1/makespan_s", Seconds, Least("/phases/1/lower_bound_s")),
            ("until every one was changed", "/phases/2/makespan_s", Seconds, Least("/phases/2/lower_bound_s")),
            ("until all of both were deleted", "/phases/3/makespan_s", Seconds, Least("/phases/3/lower_bound_s")),
            REFUSED,
        ],
    ),
    (
        "node-loss",
        [
            ("until every disk was free", "makespan_s", Seconds, Free),
            ("writes, although the machines are gone", "arm_writes", Count, Zero),
            ("reads", "arm_reads", Count, Free),
            REFUSED,
            PEAK,
        ],
    ),
    (
        "service-storm",
        [
            ("until every Service had its address", "makespan_s", Seconds, Least("lower_bound_s")),
            ("of a Service, the slowest of a hundred", "p99_s", Seconds, Free),
            ("writes of public IPs", "public_ip_writes", Count, LeastProduct(&["services"], 1)),
            ("writes of load balancers", "load_balancer_writes", Count, LeastProduct(&["load_balancers"], 1)),
            PEAK,
        ],
    ),
    (
        "node-churn",
        [
            ("writes of pools as nodes join", "join_pool_writes", Count, LeastProduct(&["load_balancers"], 1)),
            ("writes of pools as nodes leave", "leave_pool_writes", Count, LeastProduct(&["load_balancers"], 1)),
            ("writes as the informers list anew", "resync_arm_writes", Count, Zero),
            ("memory at the end", "rss_bytes", Bytes, Free),
            PEAK,
        ],
    ),
    (
        "node-join",
        [
            ("until every node was initialised", "makespan_s", Seconds, Least("lower_bound_s")),
            ("of a node, the slowest of a hundred", "p99_s", Seconds, Free),
            ("writes of Nodes", "node_writes", Count, LeastProduct(&["nodes"], 2)),
            ("reads of Azure", "arm_reads", Count, Free),
            PEAK,
        ],
    ),
    (
        "hostile-input",
        [
            ("memory that hostile input costs", "growth_bytes", Bytes, Most("limit_bytes")),
            PEAK,
            ("memory in an empty cluster", "idle_rss_bytes", Bytes, Free),
            ("until all reviews were answered", "reviews_s", Seconds, Free),
            ("reads of Azure for the reviews", "review_arm_reads", Count, Free),
        ],
    ),
    (
        "emulator",
        [
            ("from nothing to the first answer", "start_ms", Milliseconds, Free),
            ("a GET of a disk, in this process", "in_process_get_p50_us", Microseconds, Free),
            ("a GET of a disk, over loopback", "loopback_get_p50_us", Microseconds, Free),
            ("a PUT of a disk, over loopback", "loopback_put_p50_us", Microseconds, Free),
            ("the list of all disks, over loopback", "loopback_list_ms", Milliseconds, Free),
        ],
    ),
    (
        "footprint",
        [
            ("size of the program", "binary_bytes", Bytes, MostOf(LARGEST_PROGRAM)),
            ("memory of an idle controller", "controller_rss_bytes", Bytes, Free),
            ("memory of an idle node plugin", "node_rss_bytes", Bytes, Free),
            ("processor time of the controller", "controller_cpu_s", Seconds, Free),
            ("processor time of the node plugin", "node_cpu_s", Seconds, Free),
        ],
    ),
    (
        "list-volumes",
        [
            ("the first list", "first_list_s", Seconds, Free),
            ("the slowest list", "slowest_list_s", Seconds, Free),
            ("reads of Azure", "arm_reads", Count, Free),
            REFUSED,
            PEAK,
        ],
    ),
];

const COLUMNS: [Column; 3] =
    [Column::new("WHAT", Always), Column::new("MEASURED", Always), Column::new("BOUND", WithRoom(1))];

/// Prints what a bench has measured: its figures in words for people, all of them for programs.
pub(super) fn print(result: &Value, format: Format) {
    let screen = Screen::of_stdout();
    match format.of_programs(result) {
        // Figures are one line of JSON, which a file of many runs has one below the other.
        Some(_) if format == Format::Json => println!("{result}"),
        Some(text) => print!("{text}"),
        None => {
            print!("{}", said(result, screen.width));
            eprintln!("(-o json has all {} figures)", result.as_object().map_or(0, Map::len));
        }
    }
}

/// The figures in words.
fn said(result: &Value, width: Option<usize>) -> String {
    let name = result["bench"].as_str().unwrap_or_default();
    let figures = FIGURES.iter().find(|(bench, _)| *bench == name).map(|(_, figures)| &figures[..]);
    let rows: Vec<Vec<String>> = figures.unwrap_or_default().iter().filter_map(|figure| row(figure, result)).collect();
    let about = result.as_object().into_iter().flatten().take_while(|(key, _)| *key != "makespan_s");
    let about: Vec<String> = about
        .filter(|(key, _)| ABOUT.contains(&key.as_str()))
        .map(|(key, value)| format!("{} {}", key.replace('_', " "), value.to_string().trim_matches('"')))
        .collect();
    let form = Form { has_heads: true, is_wide: false, width };
    format!("{name}: {}\n\n{}", about.join(", "), lay(&COLUMNS, &rows, form).text)
}

/// What is said of how a bench was run.
const ABOUT: [&str; 10] =
    ["nodes", "disks", "shares", "snapshots", "services", "load_balancers", "lost", "latency", "reviews", "lists"];

fn row((what, key, unit, bound): &Figure, result: &Value) -> Option<Vec<String>> {
    let number = |key: &str| match key.starts_with('/') {
        true => result.pointer(key).and_then(Value::as_f64),
        false => result[key].as_f64(),
    };
    let value = number(key)?;
    let best = |bound: f64| {
        let times = if bound > 0.0 { format!(" (×{:.2})", value / bound) } else { String::new() };
        format!("{} at best{times}", unit.say(bound))
    };
    let bound = match bound {
        Bound::None => String::new(),
        Least(name) => number(name).map(best).unwrap_or_default(),
        LeastProduct(names, times) => {
            let product: f64 = names.iter().filter_map(|name| number(name)).product();
            best(product * f64::from(*times))
        }
        Zero => "0 at best".to_owned(),
        Most(name) => number(name).map(|most| format!("{} at most", unit.say(most))).unwrap_or_default(),
        MostOf(most) => format!("{} at most in an image", unit.say(f64::from(*most))),
    };
    Some(vec![(*what).to_owned(), unit.say(value), bound])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_bench_says_five_figures_with_their_bounds() {
        let result = json!({"bench": "attach-storm", "nodes": 10, "disks": 160, "latency": "typical", "makespan_s": 10.31,
            "lower_bound_s": 9.92, "detach_makespan_s": 16.2, "detach_lower_bound_s": 16.0, "vm_writes": 10, "throttled": 0,
            "peak_rss_bytes": 18_300_000, "p50_s": 3.0});
        let expected = "\
attach-storm: nodes 10, disks 160, latency typical

WHAT                                             MEASURED  BOUND
until every disk was attached                    10.31 s   9.92 s at best (×1.04)
until every disk was detached                    16.20 s   16.00 s at best (×1.01)
writes of VMs to attach them                     10        10 at best (×1.00)
requests that Azure refused for coming too soon  0         0 at best
the most memory that the controllers had         18.3 MB   -
";
        assert_eq!(said(&result, None), expected);
        assert!(said(&result, Some(60)).lines().all(|line| line.chars().count() <= 60));
        let life = json!({"bench": "life-storm", "phases": [{"makespan_s": 2.0, "lower_bound_s": 1.0}]});
        assert!(said(&life, None).contains("2.00 s    1.00 s at best (×2.00)"), "{}", said(&life, None));
        let hostile = json!({"bench": "hostile-input", "growth_bytes": 3e6, "limit_bytes": 64e6});
        assert!(said(&hostile, None).contains("3.0 MB    64.0 MB at most"), "{}", said(&hostile, None));
    }
}
