# Sourced by every script: where things are, and how a tier says that it cannot run.
# Owns the working folder, the standard input and the names of the build's outputs.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
# Nothing here asks a question.
exec </dev/null

# The file-system tools are in folders that a plain user's PATH may lack.
export PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
[[ -d ${HOME:-/nonexistent}/.cargo/bin ]] && PATH=$HOME/.cargo/bin:$PATH

export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$root/target}
# The dev build that every tier shares.
export LAZULI_BIN=${LAZULI_BIN:-$CARGO_TARGET_DIR/debug/lazuli}

# Exit status of a tier that cannot run here; any other but 0 is a failure.
readonly CANNOT_RUN=77

say() { printf '%s\n' "$*"; }

# cannot_run WHY: ends the tier. The last such line of its output is the reason in the closing table.
cannot_run() {
    say "cannot run: $*"
    exit "$CANNOT_RUN"
}

is_root() { [[ $(id -u) == 0 ]]; }

# need_binary: the product as the build tier left it.
need_binary() {
    [[ -x $LAZULI_BIN ]] || cargo build --locked --bin lazuli
    [[ -x $LAZULI_BIN ]] || { say "no binary at $LAZULI_BIN"; exit 1; }
}
