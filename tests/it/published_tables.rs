//! The tables of published facts are what `scripts/tables` makes of the published files.
//!
//! Those files are not part of this repository: `LAZULI_AZURE_DATA` names their folder, as for the recorded traffic.

use std::path::Path;
use std::process::Command;

use super::recordings::azure_data;

#[test]
fn the_tables_are_what_their_generator_makes_of_the_published_files() {
    let folder = azure_data();
    if !folder.join("manifest.json").is_file() {
        assert!(
            std::env::var("CI").as_deref() != Ok("true"),
            "the published files are not there: set LAZULI_AZURE_DATA to the folder that holds manifest.json"
        );
        println!("skipped: no published files (LAZULI_AZURE_DATA names no folder that holds manifest.json)");
        return;
    }
    let generator = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/tables");
    let output = Command::new("python3").arg(generator).arg("--check").arg(&folder).output().expect("python3 runs");
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}run scripts/tables {}", folder.display());
}

#[test]
fn every_table_names_its_generator_its_day_and_its_sources() {
    for (table, text) in [
        ("schema.txt", include_str!("../../src/emulator/src/schema.txt")),
        ("sizes.txt", include_str!("../../src/emulator/src/sizes.txt")),
        ("size.txt", include_str!("../../src/model/src/size.txt")),
    ] {
        let head: Vec<&str> = text.lines().take_while(|line| line.starts_with('#')).collect();
        assert!(head[0].starts_with("# made by scripts/tables on 20"), "{table}: {}", head[0]);
        assert!(head[1..].iter().any(|line| line.contains("azure") && line.contains('/')), "{table}: {head:?}");
    }
}
