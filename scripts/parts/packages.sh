# Sourced: commands that a tier needs from the system, and their installation where that is possible.

missing_commands=()
missing_files=()
missing_packages=()

# need COMMAND PACKAGE: remembers what is not here.
need() {
    if ! command -v "$1" >/dev/null 2>&1; then
        missing_commands+=("$1")
        missing_packages+=("$2")
    fi
}

# need_file PATH PACKAGE: the same for a file.
need_file() {
    if [[ ! -e $1 ]]; then
        missing_files+=("$1")
        missing_packages+=("$2")
    fi
}

# install_needed: as root, with apt, installs what is missing. Succeeds when nothing is missing then.
install_needed() {
    ((${#missing_packages[@]} == 0)) && return 0
    if is_root && command -v apt-get >/dev/null 2>&1; then
        say "installing ${missing_packages[*]}"
        local log
        log=$(mktemp)
        if ! { DEBIAN_FRONTEND=noninteractive apt-get update -qq &&
            DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
                "${missing_packages[@]}"; } >"$log" 2>&1; then
            tail -n 5 "$log"
        fi
        rm -f "$log"
    fi
    local command file
    for command in "${missing_commands[@]}"; do
        command -v "$command" >/dev/null 2>&1 || return 1
    done
    for file in "${missing_files[@]}"; do
        [[ -e $file ]] || return 1
    done
}
