use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use clap::Parser as _;
use lazuli_telemetry::{BuildInfo, register_process};
use prometheus_client::registry::Registry;

use super::*;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[cfg(feature = "emulator")]
#[test]
fn the_reference_pages_are_made_of_the_programs_own_tables() {
    let folder = root().join("deploy/reference");
    let records = std::env::var_os("LAZULI_RECORD").is_some_and(|value| !value.is_empty());
    let mut stale = Vec::new();
    for (name, text) in pages::all() {
        let path = folder.join(name);
        if records {
            fs::create_dir_all(&folder).unwrap();
            fs::write(&path, &text).unwrap();
        }
        if fs::read_to_string(&path).unwrap_or_default() != text {
            stale.push(name);
        }
    }
    assert!(stale.is_empty(), "run LAZULI_RECORD=1 cargo test --lib explain, for these are stale: {stale:?}");
    let files: BTreeSet<String> =
        fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(files, pages::all().into_iter().map(|(name, _)| name.to_owned()).collect());
}

#[test]
fn a_name_is_explained_in_any_letter_case_and_without_its_prefix() {
    let text = one(Kind::Parameter, "SKUNAME", 60).unwrap_or_else(|error| panic!("{error}")).text;
    assert!(text.starts_with("skuName\n  Type of the disk. "), "{text}");
    assert!(text.contains("  driver:           disk.csi.azure.com\n") && text.contains("file.csi.azure.com"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 60), "{text}");
    for (kind, name, says) in [
        (Kind::Parameter, "device-setting/queue/scheduler", "perfProfile advanced"),
        (Kind::Annotation, "azure-pip-name", "service.beta.kubernetes.io/azure-pip-name"),
        (Kind::Annotation, "service.beta.kubernetes.io/port_80_no_lb_rule", "No rule and no probe"),
        (Kind::Annotation, "kubernetes.azure.com/managed", "no machine of Azure"),
        (Kind::Annotation, "lazuli.azure/instance-metadata", "by lazuli doctor"),
        (Kind::Config, "VMType", "machines of every kind"),
        (Kind::Option, "nvme-lun-offset", "lazuli csi-node"),
        (Kind::Option, "lazuli_nvme_lun_offset", "--nvme-lun-offset"),
        (Kind::Event, "vmsizefull", "takes no more data disks"),
        (Kind::Metric, "lazuli_rpc_duration_seconds", "method, code"),
    ] {
        let text = one(kind, name, 200).unwrap_or_else(|error| panic!("{name}: {error}")).text;
        assert!(text.contains(says), "{name}: {text}");
    }
}

#[test]
fn a_misspelt_name_is_an_error_that_names_the_nearest() {
    let error = |kind, name: &str| one(kind, name, 100).err().map_or_else(String::new, |error| error.to_string());
    assert_eq!(error(Kind::Parameter, "skuNane"), "there is no parameter \"skuNane\"; the nearest is skuName");
    assert_eq!(
        error(Kind::Config, "vnettName"),
        "there is no key of the cloud configuration \"vnettName\"; the nearest is vnetName"
    );
    assert!(error(Kind::Annotation, "azure-dns").ends_with("service.beta.kubernetes.io/azure-dns-label-name"));
    assert!(error(Kind::Annotation, "azure-dns-lable-name").ends_with("the nearest is azure-dns-label-name"));
    assert!(error(Kind::Option, "nvme-lun-ofset").ends_with("the nearest is nvme-lun-offset"));
    assert_eq!(error(Kind::Event, "x"), "there is no reason of an event \"x\"; lazuli explain event lists all");
}

#[test]
fn programs_get_the_same_as_people() {
    let value = one(Kind::Config, "routeTableName", 100).unwrap_or_else(|error| panic!("{error}")).object;
    let item = &value["items"][0];
    assert_eq!((item["name"].as_str(), item["usedBy"].as_str()), (Some("routeTableName"), Some("Nodes and routes")));
    assert_eq!(item["goProjects"], "same");
    for kind in Kind::value_variants() {
        let listed = list(&kind.sections(), 100);
        assert!(listed.object["items"].as_array().unwrap().len() > 10, "{kind:?}");
        let names = listed.text;
        assert!(names.lines().all(|line| line.chars().count() <= 100), "{names}");
    }
    assert!(kinds(80).text.contains("\nconfig      Keys of the cloud configuration, azure.json"));
}

#[test]
fn an_option_that_several_commands_take_alike_is_explained_once() {
    let listed = list(&Kind::Option.sections(), 100).object;
    let named = |name: &str| listed["items"].as_array().unwrap().iter().filter(|item| item["name"] == name).count();
    assert_eq!((named("--nvme-lun-offset"), named("--trusted-endpoint")), (1, 1));
    let text = one(Kind::Option, "trusted-endpoint", 200).unwrap_or_else(|error| panic!("{error}")).text;
    for part in ["lazuli doctor", "lazuli csi-controller", "LAZULI_TRUSTED_ENDPOINTS"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // No option lacks a name, and the name is taken as it is given to the command.
    assert!(one(Kind::Option, "", 200).is_err());
    for (words, name) in [
        (&["--imds-lag-seconds"][..], Some("--imds-lag-seconds")),
        (&["imds-lag-seconds", "--output", "json"], Some("imds-lag-seconds")),
        (&["--output", "json"], None),
    ] {
        let given = ["lazuli", "explain", "option"].iter().chain(words);
        let cli = super::super::Cli::try_parse_from(given).unwrap_or_else(|error| panic!("{error}"));
        let super::super::Command::Explain(options) = cli.command else { panic!("{words:?}") };
        assert_eq!(options.name.as_deref(), name, "{words:?}");
    }
}

#[test]
fn the_command_line_takes_a_kind_and_a_name() {
    for words in [
        &["lazuli", "explain"][..],
        &["lazuli", "explain", "label", "x", "--output=json"],
        &["lazuli", "explain", "flag", "nvme-lun-offset"],
    ] {
        assert!(super::super::Cli::try_parse_from(words).is_ok(), "{words:?}");
    }
    assert!(super::super::Cli::try_parse_from(["lazuli", "explain", "colour"]).is_err());
}

/// The sources of the program, without tests, simulations, and what plays a cluster or Azure.
fn sources() -> Vec<(PathBuf, String)> {
    fn below(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            let is_of_tests =
                ["tests", "simulation", "emulator", "apiserver", "rig", "bench", "demo", "explain"].contains(&name);
            if path.is_dir() && !is_of_tests {
                below(&path, found);
            } else if name.ends_with(".rs") && !["tests.rs", "fake.rs", "explain.rs"].contains(&name) {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    below(&root().join("src"), &mut found);
    let without_tests = |path: PathBuf| {
        let text = fs::read_to_string(&path).unwrap();
        let end = text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len());
        (path, text[..end].to_owned())
    };
    found.into_iter().map(without_tests).collect()
}

#[test]
fn every_key_of_an_object_that_the_program_names_is_explained_and_no_other() {
    const PREFIXES: [&str; 11] = [
        "lazuli.azure/",
        "service.kubernetes.io/",
        "node.kubernetes.io/",
        "beta.kubernetes.io/",
        "topology.kubernetes.io/",
        "failure-domain.beta.kubernetes.io/",
        "topology.disk.csi.azure.com/",
        "topology.kubernetes.azure.com/",
        "kubernetes.azure.com/",
        "node-role.kubernetes.io/",
        "node.cloudprovider.kubernetes.io/",
    ];
    let mut named = BTreeSet::new();
    for (_, text) in sources() {
        for word in text.split('"').skip(1).step_by(2) {
            let rest = PREFIXES.iter().find_map(|prefix| word.strip_prefix(prefix));
            let is_name = |rest: &str| {
                !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
            };
            if rest.is_some_and(is_name) {
                named.insert(word.to_owned());
            }
        }
    }
    let explained: BTreeSet<String> = keys::KEYS
        .iter()
        .map(|row| row.key.to_owned())
        // Of many kinds of labels, so that their prefixes say nothing.
        .filter(|key| PREFIXES.iter().any(|prefix| key.starts_with(prefix)))
        .collect();
    assert_eq!(named, explained);
    for row in keys::KEYS {
        assert!(row.meaning.ends_with('.') && !row.meaning.contains('|'), "{}", row.key);
    }
}

#[test]
fn every_metric_is_registered_by_its_row() {
    for (path, text) in sources() {
        for register in ["registry.register(", "registry.register_with_unit("] {
            for after in text.split(register).skip(1) {
                let is_by_row = after
                    .trim_start()
                    .split('.')
                    .next()
                    .is_some_and(|name| name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_'))
                    && after.contains(".stem");
                let is_of_process = path.ends_with("telemetry/src/process.rs");
                assert!(is_by_row || is_of_process, "{}: {}", path.display(), after.lines().next().unwrap_or_default());
            }
        }
    }
    let names: BTreeSet<String> = topics::all_metrics().map(|metric| metric.name()).collect();
    assert_eq!(names.len(), topics::all_metrics().count(), "each metric is there once");
    let mut registry = Registry::default();
    register_process(&mut registry, BuildInfo { version: "1", revision: "r" });
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    for metric in keys::PROCESS_METRICS {
        assert!(text.contains(&metric.name()) && text.contains(metric.help), "{}: {text}", metric.stem);
    }
    for metric in topics::all_metrics() {
        assert!(!metric.help.ends_with('.') && !metric.help.contains('|'), "{}", metric.stem);
    }
}

#[test]
fn every_metric_of_the_go_projects_has_one_row_and_its_buckets_rise() {
    use lazuli_telemetry::go_names::FamilyKind;
    let families: Vec<_> = go_metrics::given().collect();
    let names: BTreeSet<&str> = families.iter().map(|family| family.name).collect();
    assert_eq!(names.len(), families.len(), "each family is there once");
    for family in families {
        assert!(!family.help.ends_with('.') && !family.help.contains('|'), "{}", family.name);
        assert!(family.labels.iter().collect::<BTreeSet<_>>().len() == family.labels.len(), "{}", family.name);
        if let FamilyKind::Histogram(bounds) = family.kind {
            assert!(!bounds.is_empty() && bounds.is_sorted_by(|one, other| one < other), "{}", family.name);
        }
        assert!(!family.name.starts_with("lazuli_"), "{}", family.name);
    }
    for not in go_metrics::NOT_GIVEN {
        assert!(!names.contains(not.name) && !not.why.is_empty() && !not.why.ends_with('.'), "{}", not.name);
    }
    // A metric of ours that names one of the Go projects' names one that is explained.
    let explained = |name: &str| {
        let not_given = || go_metrics::NOT_GIVEN.iter().map(|not| not.name.trim_end_matches('*'));
        let family = name.trim_end_matches("_count");
        names.contains(family)
            || not_given().any(|start| name.starts_with(start))
            || name == "process_resident_memory_bytes"
    };
    for name in topics::all_metrics().filter_map(|metric| metric.go).flat_map(|go| go.split(", ")) {
        assert!(explained(name), "{name}");
    }
}
