# Sourced: the Go programs of a Kubernetes on this machine, each from its own module in tests/tools.

# build_program FOLDER PROGRAM PACKAGE [LINKER-OPTION]: from tests/tools/FOLDER, which pins the versions.
build_program() {
    say "building $2"
    (cd "tests/tools/$1" && GOFLAGS=-mod=readonly go build -trimpath -ldflags "-s -w ${4:-}" -o "$target/$2" "$3")
}

# build_kubernetes: its parts say which version they are.
build_kubernetes() {
    local version
    version=$(cd tests/tools/kubernetes && go list -m -f '{{.Version}}' k8s.io/kubernetes) &&
        build_program kubernetes kubernetes . "-X k8s.io/component-base/version.gitVersion=$version"
}

build_cluster() {
    local target=$1
    local csi=github.com/kubernetes-csi
    build_program etcd etcd . &&
        build_program external-attacher csi-attacher "$csi/external-attacher/v4/cmd/csi-attacher" &&
        build_program external-provisioner csi-provisioner "$csi/external-provisioner/v6/cmd/csi-provisioner" &&
        build_program external-resizer csi-resizer "$csi/external-resizer/v2/cmd/csi-resizer" &&
        build_kubernetes &&
        build_program node node .
}

# cluster_programs: builds them unless they are kept, and prints their folder.
cluster_programs() {
    local tools=(etcd external-attacher external-provisioner external-resizer kubernetes node) inputs tool
    mapfile -t inputs < <(for tool in "${tools[@]}"; do ls "tests/tools/$tool"/*; done)
    cached cluster "$(go version)" "${inputs[@]}" -- build_cluster
}

# need_for_cluster: remembers what of the system is not here.
need_for_cluster() {
    need mkfs.ext4 e2fsprogs
    need mkfs.xfs xfsprogs
    need mkfs.btrfs btrfs-progs
    need blkid util-linux
    need ip iproute2
}
