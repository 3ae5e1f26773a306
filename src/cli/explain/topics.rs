//! From the tables of the crates to what is printed.

use lazuli_model::{
    event::Reason,
    reference::{ConfigRow, Metric, ParameterRow, UsedBy},
};
use lazuli_services::service::annotation;

use super::{go_metrics, keys};

/// Topics of one table.
#[derive(Debug)]
pub(super) struct Section {
    /// What they are.
    pub(super) title: &'static str,
    /// What is said of each besides name and meaning.
    pub(super) columns: &'static [&'static str],
    /// The topics.
    pub(super) topics: Vec<Topic>,
}

/// One thing that is explained.
#[derive(Debug)]
pub(super) struct Topic {
    /// Its name.
    pub(super) name: String,
    /// What it means or does.
    pub(super) meaning: String,
    /// The names of its values.
    pub(super) columns: &'static [&'static str],
    /// Its values, one for each column.
    pub(super) values: Vec<String>,
}

impl Topic {
    /// The name without the prefix that all annotations of Services have.
    pub(super) fn short_name(&self) -> &str {
        self.name.strip_prefix(annotation::PREFIX).unwrap_or(&self.name)
    }

    /// Whether a person means this one: by the whole name or, of an annotation, by what stands behind its prefix. `PATH`,
    /// `{port}` and a `*` at the end stand for anything. A series of a histogram means the histogram.
    pub(super) fn is_called(&self, name: &str) -> bool {
        let name = name.to_lowercase();
        let series = ["_bucket", "_sum", "_count"].into_iter().find_map(|series| name.strip_suffix(series));
        self.fits(&name) || series.is_some_and(|histogram| self.fits(histogram))
    }

    fn fits(&self, name: &str) -> bool {
        let (own, short) = (self.name.to_lowercase(), self.short_name().to_lowercase());
        let is_meant_by = |own: &str| {
            let wild = ["{port}", "path"].into_iter().find_map(|wild| own.split_once(wild));
            own == name
                || own.strip_suffix('*').is_some_and(|start| start.ends_with('_') && name.starts_with(start))
                || wild.is_some_and(|(start, end)| {
                    // Only a name with a slash or a number in it goes on with anything.
                    start.ends_with(['/', '_']) && name.strip_prefix(start).is_some_and(|rest| rest.ends_with(end))
                })
        };
        is_meant_by(&own) || is_meant_by(&short)
    }
}

fn section(title: &'static str, columns: &'static [&'static str], rows: Vec<(String, String, Vec<String>)>) -> Section {
    let topics = rows.into_iter().map(|(name, meaning, values)| Topic { name, meaning, columns, values });
    Section { title, columns, topics: topics.collect() }
}

const PARAMETER: &[&str] = &["class", "driver", "values", "default", "effect"];

/// Parameters of the classes of both drivers.
pub(super) fn parameters() -> Vec<Section> {
    let rows = |class: &str, driver: &str, rows: Vec<&ParameterRow>| {
        let row = |row: &&ParameterRow| {
            let default = row.alias_of.map_or_else(|| row.default.to_owned(), |of| format!("that of {of}"));
            let meaning = row.alias_of.map_or_else(
                || row.meaning.to_owned(),
                |of| format!("Another name of {of}; both together must say the same."),
            );
            let values = [class, driver, row.values, default.as_str(), row.effect.as_str()].map(str::to_owned);
            (row.name.to_owned(), meaning, values.to_vec())
        };
        rows.iter().map(row).collect()
    };
    let disk: Vec<&ParameterRow> = lazuli_volume::PARAMETERS.iter().chain([&lazuli_volume::DEVICE_SETTING]).collect();
    let blobs: Vec<&ParameterRow> = lazuli_vhd::PARAMETERS.iter().chain([&lazuli_volume::DEVICE_SETTING]).collect();
    let file: Vec<&ParameterRow> = lazuli_shares::parameters::PARAMETERS.iter().collect();
    let snapshots: Vec<&ParameterRow> = lazuli_volume::snapshot::SNAPSHOT_PARAMETERS.iter().collect();
    let attributes: Vec<&ParameterRow> = lazuli_volume::modify::ATTRIBUTE_PARAMETERS.iter().collect();
    let (disks, shares) = ("disk.csi.azure.com", "file.csi.azure.com");
    vec![
        section("Parameters of disk.csi.azure.com", PARAMETER, rows("StorageClass", disks, disk)),
        section(
            "Parameters of disk.csi.azure.com for VHD blob disks",
            PARAMETER,
            rows("StorageClass of VHD blob disks", disks, blobs),
        ),
        section("Parameters of file.csi.azure.com", PARAMETER, rows("StorageClass", shares, file)),
        section(
            "Parameters of VolumeSnapshotClasses of disk.csi.azure.com",
            PARAMETER,
            rows("VolumeSnapshotClass", disks, snapshots),
        ),
        section(
            "Parameters of VolumeAttributesClasses of disk.csi.azure.com",
            PARAMETER,
            rows("VolumeAttributesClass", disks, attributes),
        ),
    ]
}

/// Annotations of Services, and the other keys that the program reads or writes.
pub(super) fn annotations() -> Vec<Section> {
    let services = annotation::TABLE
        .iter()
        .map(|row| (row.key.to_owned(), row.effect.to_owned(), vec![row.kind.to_string()]))
        .collect();
    let others = keys::KEYS
        .iter()
        .map(|row| {
            let values = [row.of.as_str(), row.kind.as_str(), row.value].map(str::to_owned);
            (row.key.to_owned(), row.meaning.to_owned(), values.to_vec())
        })
        .collect();
    vec![
        section("Annotations of Services of type LoadBalancer", &["values"], services),
        section("Other annotations, labels, taints and finalizers", &["object", "kind", "values"], others),
    ]
}

/// Who uses a key, for people.
fn users(by: UsedBy) -> String {
    let all = [
        (by.all, "all"),
        (by.services, "service-lb"),
        (by.nodes, "Nodes and routes"),
        (by.cloud_controllers, "cloud controllers"),
    ];
    all.into_iter().filter(|(uses, _)| *uses).map(|(_, name)| name).collect::<Vec<_>>().join(", ")
}

/// Keys of the cloud configuration.
pub(super) fn config() -> Vec<Section> {
    let row = |row: &ConfigRow| {
        let go =
            row.go.reason().map_or_else(|| row.go.as_str().to_owned(), |why| format!("{}: {why}", row.go.as_str()));
        let values = vec![row.values.to_owned(), row.default.to_owned(), users(row.used_by), go];
        (row.key.to_owned(), row.meaning.to_owned(), values)
    };
    let columns = &["values", "default", "used by", "Go projects"];
    vec![section("Keys of the cloud configuration", columns, lazuli_config::KEYS.iter().map(row).collect())]
}

/// Reasons of events.
pub(super) fn events() -> Vec<Section> {
    let row = |reason: Reason| {
        let objects = reason.objects().iter().map(|object| object.as_str()).collect::<Vec<_>>().join(", ");
        let values = vec![objects, reason.severity().as_str().to_owned(), reason.advice().to_owned()];
        (reason.as_str().to_owned(), reason.meaning().to_owned(), values)
    };
    vec![section("Reasons of events", &["on", "type", "what to do"], Reason::ALL.into_iter().map(row).collect())]
}

/// Every metric.
pub(super) fn all_metrics() -> impl Iterator<Item = &'static Metric> {
    [
        lazuli_csi::server::METRICS,
        lazuli_csi::file::node::METRICS,
        lazuli_azure::metrics::METRICS,
        lazuli_reconcile::metrics::METRICS,
        lazuli_cluster::METRICS,
        lazuli_cluster::LEVELS,
        lazuli_controllers::operations::METRICS,
        lazuli_keys::METRICS,
        lazuli_webhook::METRICS,
        keys::PROCESS_METRICS,
    ]
    .into_iter()
    .flatten()
}

/// Metrics.
pub(super) fn metrics() -> Vec<Section> {
    let row = |metric: &Metric| {
        let values = [metric.kind.as_str(), &metric.labels.join(", "), metric.go.unwrap_or_default()];
        (metric.name(), format!("{}.", metric.help), values.map(str::to_owned).to_vec())
    };
    let given = go_metrics::given().map(|family| {
        let program = go_metrics::program(family).to_owned();
        let values =
            vec![family.kind.as_str().to_owned(), family.labels.join(", "), go_metrics::buckets(family), program];
        (family.name.to_owned(), format!("{}.", family.help), values)
    });
    let not_given = go_metrics::NOT_GIVEN.iter().map(|not| (not.name.to_owned(), format!("{}.", not.why), vec![]));
    vec![
        section("Metrics", &["type", "labels", "Go projects"], all_metrics().map(row).collect()),
        section(
            "Added by --go-metrics, under the Go projects' names",
            &["type", "labels", "buckets", "Go program"],
            given.collect(),
        ),
        section("Not given, though the Go projects write them", &[], not_given.collect()),
    ]
}
