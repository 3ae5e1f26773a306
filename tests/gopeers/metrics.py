#!/usr/bin/env python3
"""One workload on the Go manager and on Lazuli with --go-metrics: the same series under the Go manager's names. So with the
controller of the Go disk driver.

    metrics.py --lazuli BINARY --tools FOLDER --manager BINARY --disk-driver BINARY --calls BINARY [--keep FOLDER]

Each side has a cloud and a cluster of its own. Nodes join, Services are made, changed, refused and deleted, and a Node goes.
Then both pages are read. Of each family that Lazuli writes under a Go name, the type, the labels and the buckets are those
of the Go manager; operations of Services and routes, and their failures, have the same series and the same counts. How many
requests went to Azure, and how long anything took, is each side's own. Calls of the disk driver and their failures have the
same counts.
"""

import argparse
import collections
import contextlib
import json
import pathlib
import re
import ssl
import subprocess
import sys
import tempfile
import urllib.request

from rig import GROUP, NETWORK, NODES as NAMES, TOKEN, Rig, free_port, wait

NODES = "/api/v1/nodes"
SERVICES = "/api/v1/namespaces/default/services"
MERGE = "application/merge-patch+json"
RANGES = "10.244.0.0/16"
TABLE = f"{NETWORK}/routeTables/routes"
PREFIX = "service.beta.kubernetes.io/"
PATIENCE = 180
KEYS = {
    "vmType": "vmss", "enableVmssFlexNodes": True, "loadBalancerSku": "standard", "securityGroupName": "nsg",
    "subnetName": "nodes", "routeTableName": "routes", "routeUpdateWaitingInSeconds": 1,
    "loadBalancerBackendPoolConfigurationType": "nodeIP",
}
# The values of the label `request` of the Go manager's operations that Lazuli has, and the names of its reconciliations.
REQUESTS = {
    "services_ensure_loadbalancer", "services_ensure_loadbalancer_deleted", "routes_create_route", "routes_delete_route",
}
RECONCILIATIONS = {"EnsureLoadBalancer", "EnsureLoadBalancerDeleted"}
# Families whose series and counts are equal, by the label that says which of them Lazuli has.
EQUAL = {
    "cloudprovider_azure_op_duration_seconds": ("request", REQUESTS),
    "cloudprovider_azure_op_failure_count": ("request", REQUESTS),
    "provider_reconcile_duration_seconds": ("name", RECONCILIATIONS),
    "provider_reconcile_errors_counter_total": ("name", RECONCILIATIONS),
}
# Families of which the type, the labels and the buckets are equal, and no more.
ALIKE = (
    "arm_request_duration_seconds", "arm_request_errors_counter_total", "leader_election_master_status",
    "node_controller_cloud_provider_taint_removal_delay_seconds", "node_controller_initial_node_sync_delay_seconds",
)

# Of the disk driver. What Lazuli does not label are calls that change a disk which is there.
OF_DISKS = {
    "azuredisk_csi_driver_operations_total": None,
    "azuredisk_csi_driver_operation_duration_seconds": None,
    "azuredisk_csi_driver_operation_duration_seconds_labeled": ("operation", {"controller_create_volume"}),
}

Family = collections.namedtuple("Family", "kind samples")
SAMPLE = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)$")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"(?:,|$)')


def parse(page):
    """The families of a page in the text format 0.0.4. An empty label is none."""
    families, current = {}, None
    for line in page.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            current = families.setdefault(name, Family(kind, {}))
        elif not line.startswith("#"):
            found = SAMPLE.match(line)
            if not found or current is None:
                raise ValueError(f"no sample of the text format: {line!r}")
            labels = frozenset((name, value) for name, value in LABEL.findall(found[2] or "") if value)
            current.samples[found[1], labels] = float(found[3])
    return families


def shape(family):
    """What kind of family it is, the names of its labels, and the bounds of its buckets."""
    bounds = {dict(labels)["le"] for (_, labels) in family.samples if "le" in dict(labels)}
    bounds = tuple(sorted(float(bound.replace("+Inf", "inf")) for bound in bounds))
    return family.kind, {name for (_, labels) in family.samples for name, _ in labels} - {"le"}, bounds


def counts(name, family, which):
    """How often each series was counted, of those that Lazuli has."""
    ends = "_count" if family.kind == "histogram" else ""
    found = {}
    for (sample, labels), value in family.samples.items():
        if sample == name + ends and (which is None or dict(labels).get(which[0]) in which[1]):
            found[labels] = value
    return found


class World:
    """A cloud, and an empty cluster."""

    def __init__(self, rig):
        self.rig = rig
        rig.start_emulator()
        place = {"location": "westeurope"}
        rig.arm("PUT", f"{NETWORK}/networkSecurityGroups/nsg", place | {"properties": {}})
        rig.arm("PUT", TABLE, place | {"properties": {"routes": []}})
        network = rig.arm("GET", f"{NETWORK}/virtualNetworks/vnet")
        for subnet in network["properties"]["subnets"]:
            if subnet["name"] == "nodes":
                subnet["properties"]["routeTable"] = {"id": TABLE}
        rig.arm("PUT", f"{NETWORK}/virtualNetworks/vnet", network)

    def join(self, index, name):
        """A Node that is initialised: the Go manager of this version leaves that to its cloud-node-manager."""
        machine = f"{GROUP}/providers/Microsoft.Compute/virtualMachines/{name}"
        pods = f"10.244.{index}.0/24"
        self.rig.kube("POST", NODES, {
            "metadata": {"name": name}, "spec": {"providerID": f"azure://{machine}", "podCIDR": pods, "podCIDRs": [pods]},
        })
        addresses = [{"type": "InternalIP", "address": f"10.240.0.{4 + index}"}, {"type": "Hostname", "address": name}]
        status = {"conditions": [{"type": "Ready", "status": "True"}], "addresses": addresses}
        self.rig.kube("PATCH", f"{NODES}/{name}/status", {"status": status}, kind=MERGE)

    def routes(self):
        return len(self.rig.arm("GET", TABLE)["properties"].get("routes", []))

    def make(self, name, port, **annotations):
        self.rig.kube("POST", SERVICES, {
            "metadata": {"name": name, "annotations": {PREFIX + key.replace("_", "-"): value for key, value in annotations.items()}},
            "spec": {"type": "LoadBalancer", "ports": [{"name": "http", "port": port, "targetPort": 8080}]},
        })

    def patch(self, name, change):
        self.rig.kube("PATCH", f"{SERVICES}/{name}", change, kind=MERGE)

    def address(self, name):
        return self.rig.kube("GET", f"{SERVICES}/{name}")["status"]["loadBalancer"].get("ingress")

    def has_rule(self, port):
        with contextlib.suppress(RuntimeError):
            rules = self.rig.arm("GET", f"{NETWORK}/loadBalancers/kubernetes")["properties"].get("loadBalancingRules", [])
            return any(rule["properties"]["frontendPort"] == port for rule in rules)
        return False

    def is_gone(self, name):
        return all(one["metadata"]["name"] != name for one in self.rig.kube("GET", SERVICES)["items"])

    def work(self, counted):
        """The workload. `counted`: what a page counts of a family and a request."""
        for index, name in enumerate(NAMES):
            self.join(index, name)
        wait("the routes of the Nodes", PATIENCE, lambda: self.routes() == len(NAMES))
        self.make("public", 80)
        self.make("internal", 81, azure_load_balancer_internal="true")
        self.make("ranges", 82, azure_allowed_ip_ranges="20.0.0.0/8")
        wait("addresses", PATIENCE, lambda: all(self.address(name) for name in ("public", "internal", "ranges")))
        # Lazuli takes a change of a Service that it is at work on into the same work.
        ensured = lambda: counted("cloudprovider_azure_op_duration_seconds", "services_ensure_loadbalancer")
        wait("the end of the work on them", PATIENCE, lambda: ensured() == 3)
        self.patch("public", {"spec": {"ports": [{"name": "http", "port": 90, "targetPort": 8080}]}})
        wait("the changed port", PATIENCE, lambda: self.has_rule(90))
        # Azure refuses a write once. A Service that is wrong and then mended would make the Go manager look once more.
        self.rig.azure("POST", "/_emulator/incidents", {
            "match": {"operation": "publicIPAddresses.createOrUpdate"}, "times": 1,
            "then": {"status": 403, "code": "AuthorizationFailed"},
        })
        self.make("refused", 83)
        wait("a failure", PATIENCE, lambda: counted("cloudprovider_azure_op_failure_count", "services_ensure_loadbalancer") == 1)
        wait("the address of the refused Service", PATIENCE, lambda: self.address("refused"))
        self.rig.kube("DELETE", f"{SERVICES}/internal")
        wait("the end of a Service", PATIENCE, lambda: self.is_gone("internal"))
        self.rig.kube("DELETE", f"{NODES}/{NAMES[1]}")
        wait("the end of a route", PATIENCE, lambda: self.routes() == 1)
        # What has ended in Azure is counted later.
        for request, times in (("routes_create_route", 2), ("routes_delete_route", 1), ("services_ensure_loadbalancer_deleted", 1)):
            wait(f"{request} in the page", PATIENCE, lambda: counted("cloudprovider_azure_op_duration_seconds", request) == times)


def reader(url, token=None):
    """Reads a page."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE

    def read():
        # As Prometheus asks.
        headers = {"Accept": "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"}
        request = urllib.request.Request(url, headers=headers | ({"Authorization": f"Bearer {token}"} if token else {}))
        with urllib.request.urlopen(request, context=context if url.startswith("https") else None, timeout=30) as answer:
            kind = answer.headers["Content-Type"]
            if not kind.startswith("text/plain; version=0.0.4"):
                raise ValueError(f"{url} is of the type {kind}")
            return answer.read().decode()

    return read


def counted(read, name, request):
    """What a page counts of a family and a request, of all Services and Nodes."""
    family = parse(read()).get(name)
    return sum(counts(name, family, ("request", {request})).values()) if family else 0


def run_go(rig):
    port = free_port()
    rig.start_manager(
        KEYS, "--configure-cloud-routes=true", f"--cluster-cidr={RANGES}", "--route-reconciliation-period=2s",
        "--node-status-update-frequency=2s", f"--secure-port={port}", "--leader-elect=true",
        f"--authentication-kubeconfig={rig.kubeconfig}", f"--authorization-kubeconfig={rig.kubeconfig}",
        controllers="service-lb-controller,node-route-controller,cloud-node-controller",
    )
    return reader(f"https://127.0.0.1:{port}/metrics", TOKEN)


def run_lazuli(rig):
    port = free_port()
    rig.start_lazuli(
        KEYS, RANGES, "--go-metrics", f"--metrics-endpoint=127.0.0.1:{port}", "--metrics-authentication=none",
    )
    return reader(f"http://127.0.0.1:{port}/metrics")


def scrape(options, folder, side, run):
    """The page of a side after the workload."""
    (folder / side).mkdir()
    with Rig(folder / side, options.lazuli, options.tools, options.manager) as rig:
        world = World(rig)
        read = run(rig)

        def answers():
            with contextlib.suppress(OSError):
                return read()
            return False

        wait(f"the page of {side}", 60, answers)
        try:
            world.work(lambda name, request: counted(read, name, request))
        except TimeoutError:
            (folder / f"{side}.txt").write_text(read())
            raise
        page = read()
    (folder / f"{side}.txt").write_text(page)
    return parse(page)


def run_go_driver(rig, options, socket):
    port = free_port()
    rig.start_disk_driver(options.disk_driver, socket, f"--metrics-address=127.0.0.1:{port}")
    return reader(f"http://127.0.0.1:{port}/metrics")


def run_lazuli_driver(rig, _, socket):
    port = free_port()
    rig.run("lazuli", [
        rig.lazuli, "csi-controller", f"--endpoint=unix://{socket}", "--cloud-config", rig.config("lazuli.json"),
        "--cloud-config-secret-name=", "--kubeconfig", rig.kubeconfig, "--go-metrics",
        f"--metrics-endpoint=127.0.0.1:{port}", "--metrics-authentication=none",
    ])
    return reader(f"http://127.0.0.1:{port}/metrics")


def scrape_driver(options, folder, side, run):
    """The page of a disk driver after its calls."""
    (folder / side).mkdir()
    with Rig(folder / side, options.lazuli, options.tools, options.manager) as rig:
        World(rig).join(0, NAMES[0])
        rig.azure("POST", "/_emulator/incidents", {
            "match": {"operation": "disks.createOrUpdate"}, "times": 1, "then": {"status": 403, "code": "AuthorizationFailed"},
        })
        socket = pathlib.Path(tempfile.mkdtemp(prefix="csi-")) / "csi.sock"
        read = run(rig, options, socket)
        wait(f"the socket of {side}", 60, socket.exists)
        calls = subprocess.run([options.calls, socket, NAMES[0]], capture_output=True, text=True, timeout=600)
        page = read()
        (folder / f"{side}.txt").write_text(page)
        if calls.returncode:
            raise RuntimeError(f"the calls of {side}, whose log is in {folder}: {calls.stderr}")
    subprocess.run(["rm", "-rf", socket.parent], check=True)
    return parse(page)


def differences(go, lazuli, equal, alike=()):
    for name in [*equal, *alike]:
        if name not in go or name not in lazuli:
            yield f"{name}: written by Go: {name in go}, by Lazuli: {name in lazuli}"
            continue
        if shape(go[name]) != shape(lazuli[name]):
            yield f"{name}: Go has {shape(go[name])}, Lazuli {shape(lazuli[name])}"
        if name in equal:
            of_go, of_lazuli = (counts(name, side[name], equal[name]) for side in (go, lazuli))
            for labels in sorted(of_go.keys() | of_lazuli.keys(), key=sorted):
                if of_go.get(labels) != of_lazuli.get(labels):
                    labels_text = ", ".join(f"{label}={value}" for label, value in sorted(labels))
                    yield f"{name}: Go counts {of_go.get(labels)}, Lazuli {of_lazuli.get(labels)} of {labels_text}"


def unexplained(options, *pages):
    """The families of the Go pages that `lazuli explain metric` neither gives nor says why not."""
    printed = subprocess.run([options.lazuli, "explain", "metric", "--output", "json"], capture_output=True, check=True)
    names = {item["name"].partition("{")[0] for item in json.loads(printed.stdout)["items"]}
    starts = tuple(name[:-1] for name in names if name.endswith("*"))
    for name in sorted({name for page in pages for name, family in page.items() if family.samples}):
        if name not in names and not name.startswith(starts):
            yield f"{name}: Go writes it, and lazuli explain metric knows nothing of it"


def main():
    parser = argparse.ArgumentParser()
    for name in ("lazuli", "tools", "manager", "disk-driver", "calls"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--keep", help="a folder for the pages and the logs")
    options = parser.parse_args()
    folder = pathlib.Path(options.keep or tempfile.mkdtemp(prefix="gopeers-"))
    folder.mkdir(exist_ok=True)
    drivers = {"go-driver": run_go_driver, "lazuli-driver": run_lazuli_driver}
    of_drivers = [scrape_driver(options, folder, side, run) for side, run in drivers.items()]
    managers = {"go": run_go, "lazuli": run_lazuli}
    of_managers = [scrape(options, folder, side, run) for side, run in managers.items()]
    found = [
        *differences(*of_drivers, OF_DISKS), *differences(*of_managers, EQUAL, ALIKE),
        *unexplained(options, of_drivers[0], of_managers[0]),
    ]
    if found:
        print("\n".join(found), f"the pages and the logs are in {folder}", sep="\n")
        sys.exit(1)
    if not options.keep:
        subprocess.run(["rm", "-rf", folder], check=True)
    same = len(OF_DISKS) + len(EQUAL) + len(ALIKE)
    print(f"metrics: {same} families of the Go manager and the Go disk driver have the same series with --go-metrics")


if __name__ == "__main__":
    main()
