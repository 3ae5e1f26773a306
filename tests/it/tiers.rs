//! How the tiers in `scripts/tiers` choose among test programs: what matches no test is a failure.

use std::process::{Command, Output};

/// Runs `run_tests` of `scripts/parts/tests.sh` on this very program.
fn run_tests(arguments: &[&str]) -> Output {
    let script = "set -euo pipefail\n\
        source scripts/parts/environment.sh\n\
        source scripts/parts/tests.sh\n\
        test_programs=$(printf 'test\\tit\\t%s\\t%s' \"$root\" \"$1\")\n\
        shift\n\
        run_tests \"$@\"\n";
    Command::new("bash")
        .args(["-c", script, "tier"])
        .arg(std::env::current_exe().unwrap())
        .args(arguments)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap()
}

const QUICK: &str = "it::import_table::the_table_is_read_from_the_documentation";

#[test]
fn a_tier_runs_the_tests_that_it_names() {
    for arguments in [&[QUICK][..], &[QUICK, "--skip", "privileged::", "--", "--test-threads", "1"]] {
        let output = run_tests(&[&["test", "it"], arguments].concat());
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(said.contains("test result: ok. 1 passed; 0 failed"), "{arguments:?}: {said}");
    }
}

#[test]
fn a_tier_that_names_no_test_fails_and_says_what_it_named() {
    for (arguments, told) in [
        (&["lib", "lazuli_gone"][..], "no test program is built from the lib lazuli_gone"),
        (&["test", "it", "it::gone::"], "the filter it::gone:: matches no test of the test it"),
        (&["test", "it", QUICK, "it::gone::"], "the filter it::gone:: matches no test of the test it"),
        (
            &["test", "it", QUICK, "--skip", "no_such_module::"],
            "the filter no_such_module:: matches no test of the test it",
        ),
        (&["test", "it", "model::", "--skip", "model::"], "no test of the test it is left by: model:: --skip model::"),
    ] {
        let output = run_tests(arguments);
        assert!(!output.status.success(), "{arguments:?} passed");
        assert_eq!(String::from_utf8_lossy(&output.stderr).trim_end(), told);
        assert!(output.stdout.is_empty(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stdout));
    }
}
