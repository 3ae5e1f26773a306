# Sourced: the Go programs of a Kubernetes on this machine, each from its own module in tests/tools.

# build_program FOLDER PROGRAM PACKAGE [LINKER-OPTION]: from tests/tools/FOLDER, which pins the versions.
build_program() {
    say "building $2"
    (cd "tests/tools/$1" &&
        GOFLAGS="-mod=readonly ${GOFLAGS:-}" go build -trimpath -ldflags "-s -w ${4:-}" -o "$target/$2" "$3")
}

# The pins of Kubernetes: those of the newest version, or of another one that LAZULI_KUBERNETES names, such as 1.36.
kubernetes_pins() {
    printf 'go%s.mod' "${LAZULI_KUBERNETES:+-$LAZULI_KUBERNETES}"
}

# build_kubernetes: its parts say which version they are.
build_kubernetes() {
    local pins version
    pins=$(kubernetes_pins)
    version=$(cd tests/tools/kubernetes && go list -modfile "$pins" -m -f '{{.Version}}' k8s.io/kubernetes) &&
        GOFLAGS="-modfile=$pins -tags=kubernetes${LAZULI_KUBERNETES:-}" build_program kubernetes kubernetes . \
            "-X k8s.io/component-base/version.gitVersion=$version"
}

# snapshot_kinds: the definitions of snapshots' kinds, which a cluster gets from its administrator, with snapshot-controller.
snapshot_kinds() {
    local module=github.com/kubernetes-csi/external-snapshotter/client/v8 folder
    folder=$(cd tests/tools/external-snapshotter && GOFLAGS="-mod=readonly ${GOFLAGS:-}" go list -m -f '{{.Dir}}' "$module") &&
        mkdir "$target/snapshot-kinds" &&
        cp "$folder"/config/crd/snapshot.storage.k8s.io_*.yaml "$target/snapshot-kinds"
}

build_cluster() {
    local target=$1
    local csi=github.com/kubernetes-csi
    build_program etcd etcd . &&
        build_program external-attacher csi-attacher "$csi/external-attacher/v4/cmd/csi-attacher" &&
        build_program external-provisioner csi-provisioner "$csi/external-provisioner/v6/cmd/csi-provisioner" &&
        build_program external-resizer csi-resizer "$csi/external-resizer/v2/cmd/csi-resizer" &&
        build_program external-snapshotter csi-snapshotter "$csi/external-snapshotter/v8/cmd/csi-snapshotter" &&
        build_program external-snapshotter snapshot-controller "$csi/external-snapshotter/v8/cmd/snapshot-controller" &&
        snapshot_kinds &&
        build_kubernetes &&
        ln -s kubernetes "$target/kubectl" &&
        build_program node node .
}

# cluster_programs: builds them unless they are kept, and prints their folder.
cluster_programs() {
    local tools=(etcd external-attacher external-provisioner external-resizer external-snapshotter kubernetes node)
    local inputs tool
    [[ -e tests/tools/kubernetes/$(kubernetes_pins) ]] || {
        say "LAZULI_KUBERNETES=$LAZULI_KUBERNETES: there are pins of 1.36, and of the newest version without it" >&2
        return 1
    }
    mapfile -t inputs < <(for tool in "${tools[@]}"; do ls "tests/tools/$tool"/*; done)
    cached cluster "$(go version) $(kubernetes_pins)" "${inputs[@]}" -- build_cluster
}

# need_for_cluster: remembers what of the system is not here.
need_for_cluster() {
    need mkfs.ext4 e2fsprogs
    need mkfs.xfs xfsprogs
    need mkfs.btrfs btrfs-progs
    need blkid util-linux
    need ip iproute2
}
