//! Which crate imports which: the manifests, and the table in `src/lib.rs` that shows them to readers.
//!
//! Cargo keeps a crate from naming what its manifest does not, and refuses cycles. What is left to hold here: the table
//! is true, an import goes to a lower level (also one that only tests use), the emulator shares no code with what it
//! tests, and a production build carries none of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    process::Command,
};

use serde_json::{Value, json};

type Names = BTreeSet<String>;

/// What a crate imports of this workspace, by short name: `plan` is `lazuli-plan`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Imports {
    always: Names,
    in_tests: Names,
}

/// A row of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Row {
    level: u32,
    imports: Imports,
}

/// The name of a package as the table's last columns spell it.
fn short(package: &str) -> String {
    package.strip_prefix("lazuli-").unwrap_or(package).to_owned()
}

/// The text of the cells of a table's row in a module's documentation.
fn cells(line: &str) -> Option<Vec<&str>> {
    Some(line.strip_prefix("//! |")?.trim_end().strip_suffix('|')?.split('|').map(str::trim).collect())
}

/// The columns of the table.
const COLUMNS: [&str; 5] = ["level", "crate", "what it owns", "imports", "its tests also"];

/// Reads the rows of the table out of the documentation of `lib.rs`.
fn documented(source: &str) -> BTreeMap<String, Row> {
    let names = |cell: &str| match cell {
        "" | "nothing of ours" => Names::new(),
        some => some.split(", ").map(str::to_owned).collect(),
    };
    let before = |line: &&str| cells(line).as_deref() != Some(&COLUMNS);
    let mut table = BTreeMap::new();
    for row in source.lines().skip_while(before).skip(2).map_while(cells) {
        let [level, package, _, imports, in_tests] = row[..] else { panic!("{row:?} has not {} cells", COLUMNS.len()) };
        let level = level.parse().expect("a level is a number");
        let imports = Imports { always: names(imports), in_tests: names(in_tests) };
        table.insert(short(package.trim_matches('`')), Row { level, imports });
    }
    table
}

/// What the manifests say, as `cargo metadata` tells it: the dependencies that have a path and no registry.
fn in_manifests(metadata: &Value) -> BTreeMap<String, Imports> {
    let imports_of = |package: &Value| {
        let mut imports = Imports::default();
        for dependency in package["dependencies"].as_array().unwrap() {
            if dependency["source"].is_null() {
                let name = short(dependency["name"].as_str().unwrap());
                match dependency["kind"].as_str() {
                    Some("dev") => imports.in_tests.insert(name),
                    _ => imports.always.insert(name),
                };
            }
        }
        imports.in_tests.retain(|name| !imports.always.contains(name));
        (short(package["name"].as_str().unwrap()), imports)
    };
    metadata["packages"].as_array().unwrap().iter().map(imports_of).collect()
}

/// Where table and manifests differ.
fn differences(table: &BTreeMap<String, Row>, manifests: &BTreeMap<String, Imports>) -> Vec<String> {
    let mut found = Vec::new();
    for name in table.keys().chain(manifests.keys()).collect::<BTreeSet<_>>() {
        match (table.get(name), manifests.get(name)) {
            (Some(row), Some(imports)) if row.imports == *imports => {}
            (Some(row), Some(imports)) => {
                found.push(format!("{name}: the table says {:?}, the manifest {imports:?}", row.imports));
            }
            (Some(_), None) => found.push(format!("{name} is in the table and no crate of the workspace")),
            (None, _) => found.push(format!("{name} is a crate of the workspace and not in the table")),
        }
    }
    found
}

/// Imports that do not go down. Cargo allows a cycle through dependencies of tests; this does not.
fn not_downwards(table: &BTreeMap<String, Row>) -> Vec<String> {
    let mut found = Vec::new();
    for (name, row) in table {
        for import in row.imports.always.union(&row.imports.in_tests) {
            if table.get(import).is_none_or(|other| other.level >= row.level) {
                found.push(format!("{name} at level {} imports {import}", row.level));
            }
        }
    }
    found
}

fn cargo(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO"))
        .args(arguments)
        .args(["--offline", "--locked"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(output.status.success(), "cargo {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn metadata() -> Value {
    serde_json::from_str(&cargo(&["metadata", "--no-deps", "--format-version", "1"])).unwrap()
}

fn table() -> BTreeMap<String, Row> {
    documented(&fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs")).unwrap())
}

#[test]
fn the_manifests_keep_to_the_table() {
    let wrong = differences(&table(), &in_manifests(&metadata()));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_import_goes_to_a_lower_level() {
    let wrong = not_downwards(&table());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_picture_shows_every_crate_and_is_the_same_for_contributors() {
    let read = |name| fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap();
    let documentation: String = read("src/lib.rs")
        .lines()
        .filter_map(|line| Some(line.strip_prefix("//!")?.trim().to_owned() + "\n"))
        .collect();
    let (_, from) = documentation.split_once("```text\n").expect("there is a picture");
    let (picture, _) = from.split_once("```").expect("the picture ends");
    let words: Names = picture.split([' ', '|', '\n']).map(str::to_owned).collect();
    let missing: Vec<String> = table().into_keys().filter(|name| !words.contains(name)).collect();
    assert!(missing.is_empty(), "the picture lacks {missing:?}");
    assert!(read("CONTRIBUTING.md").contains(picture), "CONTRIBUTING.md has another picture");
}

/// The libraries that a crate of pure functions may use: none of them has a socket, a task or a clock.
const OF_PURE_CRATES: [&str; 5] = ["base64", "ipnet", "serde", "serde_json", "thiserror"];

/// The crates that only decide, by short name: those that use each other and [`OF_PURE_CRATES`], and nothing else.
fn pure_crates(metadata: &Value) -> Names {
    let mut pure = Names::new();
    loop {
        let uses_only_pure = |package: &&Value| {
            package["dependencies"].as_array().unwrap().iter().filter(|one| one["kind"].is_null()).all(|one| {
                let name = one["name"].as_str().unwrap();
                OF_PURE_CRATES.contains(&name) || pure.contains(&short(name))
            })
        };
        let packages = metadata["packages"].as_array().unwrap().iter();
        let found: Names = packages.filter(uses_only_pure).map(|one| short(one["name"].as_str().unwrap())).collect();
        if found.len() == pure.len() {
            return pure;
        }
        pure = found;
    }
}

fn lines_below(folder: &Path) -> usize {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let lines = |path: &Path| fs::read_to_string(path).unwrap().lines().count();
    entries
        .map(|path| match path.extension() {
            _ if path.is_dir() => lines_below(&path),
            Some(rs) if rs == "rs" => lines(&path),
            _ => 0,
        })
        .sum()
}

#[test]
fn every_crate_that_decides_is_of_a_readable_size_and_has_its_profile() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let manifest = fs::read_to_string(root.join("Cargo.toml")).unwrap();
    let pure = pure_crates(&metadata());
    assert!(pure.len() >= 8 && pure.contains("model") && pure.contains("balancing"), "{pure:?}");
    for name in &pure {
        let lines = lines_below(&root.join("src").join(name));
        assert!((1..20_000).contains(&lines), "{name} has {lines} lines");
        let header = format!("[profile.dev.package.lazuli-{name}]\n");
        assert!(manifest.contains(&header), "Cargo.toml has no {header}");
    }
}

#[test]
fn the_values_the_wire_and_the_emulator_import_nothing_of_ours() {
    let manifests = in_manifests(&metadata());
    for name in ["model", "csi-proto", "emulator", "apiserver"] {
        assert_eq!(manifests[name], Imports::default(), "{name}");
    }
}

/// Dates are jiff's, as in the types of Kubernetes. A second library would mean conversions, and a second opinion on what
/// a date is.
#[test]
fn no_crate_names_a_second_library_for_dates() {
    for package in metadata()["packages"].as_array().unwrap() {
        let dependencies = package["dependencies"].as_array().unwrap().iter();
        let names: Names = dependencies.map(|one| one["name"].as_str().unwrap().to_owned()).collect();
        for other in ["chrono", "time"] {
            assert!(!names.contains(other), "{} uses {other}", package["name"]);
        }
    }
}

#[test]
fn only_the_rig_the_command_line_and_the_cluster_of_tests_import_the_emulator() {
    let manifests = in_manifests(&metadata());
    let who = |of: fn(&Imports) -> &Names| {
        let importers = manifests.iter().filter(|(_, imports)| of(imports).contains("emulator"));
        importers.map(|(name, _)| name.as_str()).collect::<Vec<_>>()
    };
    assert_eq!(who(|imports| &imports.always), ["lazuli", "rig", "test-cluster"]);
    assert_eq!(who(|imports| &imports.in_tests), ["azure", "blob-disk", "controllers", "disk", "file"]);
}

#[test]
fn a_production_build_has_no_emulator() {
    let packages = |more: &[&str]| -> Names {
        let tree = ["tree", "--package", "lazuli", "--edges", "normal", "--prefix", "none", "--format", "{p}"];
        let tree = cargo(&[&tree[..], more].concat());
        tree.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
    };
    let (whole, production) = (packages(&[]), packages(&["--no-default-features"]));
    for only_with_emulator in ["lazuli-apiserver", "lazuli-emulator", "lazuli-rig"] {
        assert!(whole.contains(only_with_emulator), "{only_with_emulator} has another name now");
        assert!(!production.contains(only_with_emulator), "{only_with_emulator} is in a production build");
    }
    assert!(production.contains("lazuli-csi"));
    assert!(!whole.contains("lazuli-test-cluster"), "a program has what is of tests");
}

/// A small table in the form of `lib.rs`.
const SAMPLE: &str = "//! Crates.\n//!\n//! | level | crate | what it owns | imports | its tests also |\n\
    //! |---|---|---|---|---|\n//! | 0 | `csi-proto` | generated code | nothing of ours | |\n\
    //! | 0 | `lazuli-plan` | decisions, pure | nothing of ours | |\n\
    //! | 1 | `lazuli-azure` | the client | plan | csi-proto |\n\
    //! | 2 | `lazuli` | the program | azure, plan | |\n//!\n//! | 3 | `lazuli-x` | no row | of this | table |\n";

fn names(all: &[&str]) -> Names {
    all.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn the_table_is_read_from_the_documentation() {
    let table = documented(SAMPLE);
    assert_eq!(table.keys().map(String::as_str).collect::<Vec<_>>(), ["azure", "csi-proto", "lazuli", "plan"]);
    assert_eq!(table["plan"], Row { level: 0, imports: Imports::default() });
    let azure = Imports { always: names(&["plan"]), in_tests: names(&["csi-proto"]) };
    assert_eq!(table["azure"], Row { level: 1, imports: azure });
    assert_eq!(table["lazuli"].imports.always, names(&["azure", "plan"]));
}

#[test]
fn a_table_that_is_not_true_is_told() {
    let package = |name: &str, dependencies: Value| json!({ "name": name, "dependencies": dependencies });
    let ours = |name: &str, kind: Option<&str>| json!({ "name": name, "source": null, "kind": kind });
    let foreign = json!({ "name": "serde", "source": "registry", "kind": null });
    let manifests = |azure: Value| {
        in_manifests(&json!({ "packages": [
            package("csi-proto", json!([foreign])),
            package("lazuli-plan", json!([])),
            package("lazuli-azure", azure),
            package("lazuli", json!([ours("lazuli-plan", None), ours("lazuli-azure", Some("build"))])),
        ]}))
    };
    let good = manifests(json!([ours("lazuli-plan", None), foreign, ours("csi-proto", Some("dev"))]));
    let table = documented(SAMPLE);
    assert_eq!(differences(&table, &good), Vec::<String>::new());
    for wrong in [json!([ours("lazuli-plan", None)]), json!([ours("lazuli-plan", None), ours("csi-proto", None)])] {
        let found = differences(&table, &manifests(wrong));
        assert!(matches!(&found[..], [one] if one.starts_with("azure: the table says")), "{found:?}");
    }
    let mut grown = good.clone();
    let plan = grown.remove("plan").unwrap();
    grown.insert("disk".to_owned(), plan);
    assert_eq!(
        differences(&table, &grown),
        ["disk is a crate of the workspace and not in the table", "plan is in the table and no crate of the workspace"]
    );
}

#[test]
fn an_import_that_goes_up_or_nowhere_is_told() {
    assert_eq!(not_downwards(&documented(SAMPLE)), Vec::<String>::new());
    let table =
        documented(&SAMPLE.replace("| csi-proto |", "| lazuli |").replace("| 0 | `csi-proto`", "| 0 | `other`"));
    assert_eq!(not_downwards(&table), ["azure at level 1 imports lazuli"]);
    let table = documented(&SAMPLE.replace("| nothing of ours | |", "| plan | |"));
    assert_eq!(not_downwards(&table), ["csi-proto at level 0 imports plan", "plan at level 0 imports plan"]);
}
