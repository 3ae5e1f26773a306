# Sourced by the tiers that run cargo's tests: one dev build of the whole workspace, and a choice among its test programs.
# cargo chooses features and profiles by what a command selects, so `-p` and even `--test` may build everything below a
# second time. Here the whole is built, always by the same command, and what runs is chosen afterwards.

# build_tests: builds, and fills $test_programs: a line each of kind, target, folder of the package and program, with
# tabs between.
build_tests() {
    local fields='.*"manifest_path":"([^"]*)\/Cargo\.toml".*"target":\{"kind":\["([a-z]+)"\].*"name":"([^"]+)"'
    # A library or binary is listed without its tests too.
    fields+='.*"profile":\{[^}]*"test":true\}.*"executable":"([^"]+)".*'
    test_programs=$(cargo test --workspace --locked --no-run --message-format json-render-diagnostics |
        sed -nE "s/^$fields\$/\2\t\3\t\1\t\4/p" | sort)
    [[ -n $test_programs ]] || { say "cargo names no test program" >&2; return 1; }
}

# run_program FOLDER PROGRAM [ARGUMENT...]: as cargo runs it, in the folder of its package.
run_program() {
    local folder=$1
    shift
    (cd "$folder" && CARGO_MANIFEST_DIR=$folder "$@")
}

# has_tests FOLDER PROGRAM [FILTER | --skip FILTER]...: whether any test is left.
has_tests() {
    # Into a variable, because a pipe that closes early would fail.
    local listed
    listed=$(run_program "$@" --list) && [[ $listed == *': test'* ]]
}

# run_tests KIND TARGET [FILTER | --skip FILTER]... [-- ARGUMENT...]: runs the tests of one target, such as `lib
# lazuli_host` or `test it`. A target that does not exist, and a filter or skip that matches no test, fail the tier: a
# test that was renamed must not drop out in silence.
run_tests() {
    local kind=$1 target=$2 folder program
    shift 2
    IFS=$'\t' read -r folder program < <(sed -n "s/^$kind\t$target\t//p" <<<"$test_programs") || {
        say "no test program is built from the $kind $target" >&2
        return 1
    }
    local chosen=()
    while (($# > 0)) && [[ $1 != -- ]]; do
        chosen+=("$1")
        if [[ $1 != --skip ]] && ! has_tests "$folder" "$program" "$1"; then
            say "the filter $1 matches no test of the $kind $target" >&2
            return 1
        fi
        shift
    done
    [[ ${1:-} != -- ]] || shift
    has_tests "$folder" "$program" "${chosen[@]}" || {
        say "no test of the $kind $target is left by: ${chosen[*]}" >&2
        return 1
    }
    say "--- $kind $target ${chosen[*]}"
    run_program "$folder" "$program" "${chosen[@]}" "$@"
}

# run_unit_tests: those of every library and binary.
run_unit_tests() {
    local kind target folder program failed=()
    while IFS=$'\t' read -r kind target folder program; do
        [[ $kind != test ]] || continue
        say "--- $kind $target"
        run_program "$folder" "$program" || failed+=("$kind $target")
    done <<<"$test_programs"
    ((${#failed[@]} == 0)) || { say "failed: ${failed[*]}"; return 1; }
}
