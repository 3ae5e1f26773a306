# Sourced: the CSI community's own suite, csi-sanity, at the version that tests/tools/csi-test pins.

# sanity_folder: the folder with csi-sanity, built if need be. It is one file without libraries, which runs in a guest too.
# LAZULI_CSI_SANITY is a folder that is there already.
sanity_folder() {
    [[ -z ${LAZULI_CSI_SANITY:-} ]] || { printf '%s' "$LAZULI_CSI_SANITY" && return; }
    cached csi-sanity "$(go version)" scripts/parts/sanity.sh tests/tools/csi-test/go.mod tests/tools/csi-test/go.sum \
        -- build_sanity
}

build_sanity() {
    (cd tests/tools/csi-test && CGO_ENABLED=0 GOFLAGS=-mod=readonly go build -trimpath -ldflags '-s -w' \
        -o "$1/csi-sanity" github.com/kubernetes-csi/csi-test/v5/cmd/csi-sanity)
}

# need_go: Go, or the end of the script.
need_go() { command -v go >/dev/null 2>&1 || cannot_run "there is no Go: install Go 1.25 or newer"; }

# Why sanity_folder fails.
readonly NO_SANITY="csi-sanity could not be built: is the Go module proxy reachable?"
