# Sourced after environment.sh and cache.sh: Helm, built from the Go module that tests/tools/helm pins, and the chart
# as it renders.

# The Kubernetes version that the chart is rendered for: what the cluster tier runs.
readonly RENDERED_FOR=1.36.0

build_helm() {
    (cd tests/tools/helm && GOFLAGS=-mod=readonly go build -trimpath -ldflags '-s -w' -o "$1/helm" \
        helm.sh/helm/v3/cmd/helm)
}

# need_helm: sets $helm, or ends the script.
need_helm() {
    command -v go >/dev/null 2>&1 || cannot_run "there is no Go: install Go 1.26 or newer"
    local folder
    folder=$(cached helm "$(go version)" tests/tools/helm/go.mod tests/tools/helm/go.sum -- build_helm) ||
        cannot_run "Helm could not be built: is the Go module proxy reachable?"
    helm=$folder/helm
    # No repository, plugin or setting of who runs this.
    export HELM_CONFIG_HOME=$folder/none HELM_CACHE_HOME=$folder/none HELM_DATA_HOME=$folder/none
}

# render [OPTION...]: the chart on standard output, as one stream.
render() {
    "$helm" template lazuli deploy/chart --namespace kube-system --kube-version "$RENDERED_FOR" "$@"
}

# render_manifests FOLDER: the plain manifests, for who does not use Helm.
render_manifests() {
    local note='# Made from deploy/chart by scripts/manifests. Replace registry.example with the registry of your images.'
    # They are for every version of Kubernetes, and hold no private key.
    local values=(--set image.registry=registry.example --set csiDriver.nodeAllocatableUpdatePeriodSeconds=null)
    local verified='# Prometheus verifies the driver by the Secret lazuli-metrics: deploy/events-and-alerts.md says how to make it.'
    # Nobody's Helm manages what is applied from here.
    local of_helm='/^ *(app\.kubernetes\.io\/managed-by: Helm|helm\.sh\/chart: .*)$/d'
    { say "$note" && render "${values[@]}"; } | sed -E "$of_helm" >"$1/lazuli.yaml"
    local types='# The API server must have the types of snapshot.storage.k8s.io/v1 first: deploy/snapshots.md says how.'
    { say "$note" && say "$types" && render "${values[@]}" --set snapshots.enabled=true; } | sed -E "$of_helm" >"$1/lazuli-with-snapshots.yaml"
    # The certificate of the key broker has a private key too.
    local keys='# Make the Secret and the ConfigMap lazuli-key-broker first: deploy/azure-files.md says how.'
    { say "$note" && say "$keys" && render "${values[@]}" --set azureFile.enabled=true \
        --set azureFile.broker.certificateSecret=lazuli-key-broker \
        --set azureFile.broker.authorityConfigMap=lazuli-key-broker; } | sed -E "$of_helm" >"$1/lazuli-with-files.yaml"
    { say "$note" && say "$verified" && render "${values[@]}" --set monitoring.serviceMonitor.enabled=true \
        --set monitoring.prometheusRule.enabled=true --set metrics.certificateSecret=lazuli-metrics \
        --show-only templates/monitoring.yaml; } | sed -E "$of_helm" >"$1/monitoring.yaml"
}

# render_everything FILE: with every optional part, for the snapshot.
render_everything() {
    { say "# The chart with tests/chart/everything.values.yaml, by scripts/manifests." &&
        render --values tests/chart/everything.values.yaml; } >"$1"
}

# render_azure_file FOLDER: with Azure Files, and keys by the broker or from Secrets of some namespaces.
render_azure_file() {
    local name
    for name in azure-file azure-file-namespaces; do
        { say "# The chart with tests/chart/$name.values.yaml, by scripts/manifests." &&
            render --values "tests/chart/$name.values.yaml"; } >"$1/$name.yaml"
    done
}

# render_fleet FILE: with everything that a fleet of machines of its operator sets: names, labels, accounts, files of the node.
render_fleet() {
    { say "# The chart with tests/chart/fleet.values.yaml, by scripts/manifests." &&
        render --values tests/chart/fleet.values.yaml; } >"$1"
}

# render_cloud_controllers FILE: with the cloud controllers and the webhooks, for the tier cluster.
render_cloud_controllers() {
    { say "# The chart with tests/chart/cloud-controllers.values.yaml, by scripts/manifests." &&
        render --values tests/chart/cloud-controllers.values.yaml; } >"$1"
}
