# Sourced: results that are slow to make, kept under a hash of what they are made from.
# A cache is never needed: with an empty or unwritable one the result is made again.

cache_folder() {
    local folder=${LAZULI_CACHE:-${HOME:-/nonexistent}/.cache/lazuli}
    if ! mkdir -p "$folder" 2>/dev/null || [[ ! -w $folder ]]; then
        folder=$CARGO_TARGET_DIR/cache
        mkdir -p "$folder"
    fi
    printf '%s' "$folder"
}

# cached NAME KEY FILE... -- COMMAND...: prints the folder that COMMAND filled, given as its last
# argument. KEY is what decides besides the files: a tool's version. Progress goes to standard error.
cached() {
    local name=$1 key=$2 hash folder
    shift 2
    local inputs=()
    while [[ $1 != -- ]]; do
        inputs+=("$1")
        shift
    done
    shift
    hash=$({ printf '%s\n' "$key"; cat "${inputs[@]}"; } | sha256sum | cut -c1-16)
    folder=$(cache_folder)/$name-$hash
    if [[ ! -d $folder ]]; then
        say "making $name (kept in $folder)" >&2
        # Complete or absent: filled beside, then renamed.
        local part=$folder.part.$$
        rm -rf "$part"
        mkdir -p "$part"
        if ! "$@" "$part" >&2; then
            rm -rf "$part"
            return 1
        fi
        mv -T "$part" "$folder" 2>/dev/null || rm -rf "$part" # another run was faster
    fi
    printf '%s' "$folder"
}
