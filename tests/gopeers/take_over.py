#!/usr/bin/env python3
"""Lazuli takes Nodes and routes over from the Go managers and gives them back; neither side writes what the other wrote.

    take_over.py --lazuli BINARY --tools FOLDER --manager BINARY --node-manager BINARY [--only NAME]

Each case has machines of several kinds. Of each kind one joins under the Go managers, one under Lazuli after them, and one
under the Go managers when they are back. After each change of the manager nothing is written to Azure, and every Node
keeps its resource version. The Nodes that Lazuli initialised equal those that the Go managers initialised.
"""

import argparse
import contextlib
import ipaddress
import itertools
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time

from record import clean
from rig import GROUP, NETWORK, Rig, wait

NODES = "/api/v1/nodes"
SERVICES = "/api/v1/namespaces/default/services"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/cloud-controller-manager"
UNINITIALIZED = "node.cloudprovider.kubernetes.io/uninitialized"
SHUTDOWN = "node.cloudprovider.kubernetes.io/shutdown"
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
RANGES = "10.244.0.0/16,fd00:244::/48"
TABLE = f"{NETWORK}/routeTables/routes"
MERGE = "application/merge-patch+json"
# Its machine is stopped. It is an instance of a scale set: of other machines the Go manager reads no power state.
STOPPED = "stopped-000000"
SET_OF_STOPPED = f"{GROUP}/providers/Microsoft.Compute/virtualMachineScaleSets/stopped"
# Seconds for one step of a manager. The Go manager collects routes for 30 s.
PATIENCE = 180

# The keys of the cloud configuration that both sides have.
KEYS = {
    "vmType": "vmss", "enableVmssFlexNodes": True, "loadBalancerSku": "standard", "securityGroupName": "nsg",
    "subnetName": "nodes", "routeTableName": "routes", "routeUpdateWaitingInSeconds": 1,
    "loadBalancerBackendPoolConfigurationType": "nodeIP",
}
# What is written in Azure when Nodes join.
OF_NODES = ("/routetables/routes", "/loadbalancers/kubernetes")
STEPS = ("first", "second", "third")


def scenario(kinds):
    """Of each kind one machine for each step. Availability sets and scale sets have one fault domain or zone: their members
    differ by name and address alone."""
    machines = []
    for kind in ("zoned", "dual", "member"):
        if kind not in kinds:
            continue
        place = {"availabilitySet": "members"} if kind == "member" else {"zone": "2"}
        machines += [{"name": f"{kind}-{step}", "tags": {"team": "x"}} | place for step in STEPS]
    sets = [{"name": "stopped", "count": 1, "zones": ["1"], "computerNamePrefix": "stopped-"}]
    sets += [
        {"name": kind, "count": len(STEPS), "orchestration": orchestration, "computerNamePrefix": f"pool-{kind}-"} | place
        for kind, orchestration, place in (
            ("uniform", "uniform", {"zones": ["3"]}),
            ("spread", "uniform", {"faultDomains": 1}),
            ("flexible", "flexible", {"zones": ["1"]}),
        ) if kind in kinds
    ]
    return {
        "availabilitySets": [{"name": "members", "faultDomains": 1}], "virtualMachines": machines, "scaleSets": sets,
    }


class World:
    """A cloud and a cluster whose nodes are its machines."""

    def __init__(self, rig, kinds, has_service):
        self.rig, self.has_service = rig, has_service
        rig.start_emulator(scenario(kinds))
        place = {"location": "westeurope"}
        rig.arm("PUT", f"{NETWORK}/networkSecurityGroups/nsg", place | {"properties": {}})
        # As an operator makes it: with a route of their own, and associated with the subnet.
        route = {"addressPrefix": "172.16.0.0/16", "nextHopType": "None"}
        rig.arm("PUT", TABLE, place | {"properties": {"routes": [{"name": "theirs", "properties": route}]}})
        network = rig.arm("GET", f"{NETWORK}/virtualNetworks/vnet")
        for subnet in network["properties"]["subnets"]:
            properties = subnet["properties"]
            if subnet["name"] == "nodes":
                properties["routeTable"] = {"id": TABLE}
                properties["addressPrefixes"] = [properties.pop("addressPrefix"), "fd00:0:0:1::/64"]
        rig.arm("PUT", f"{NETWORK}/virtualNetworks/vnet", network)
        for index, step in enumerate(STEPS if "dual" in kinds else ()):
            self.give_second_family(f"dual-{step}", index)
        self.settle()
        self.machines = self.read_machines()
        self.numbers = itertools.count(1)

    def give_second_family(self, machine, index):
        """An IPv6 address, and a public address of the first family."""
        sku = {"location": "westeurope", "sku": {"name": "Standard"}}
        address = f"{NETWORK}/publicIPAddresses/{machine}"
        self.rig.arm("PUT", address, sku | {"properties": {"publicIPAllocationMethod": "Static"}})
        path = f"{NETWORK}/networkInterfaces/{machine}-nic"
        interface = self.rig.arm("GET", path)
        configurations = interface["properties"]["ipConfigurations"]
        configurations[0]["properties"]["publicIPAddress"] = {"id": address}
        properties = {
            "subnet": configurations[0]["properties"]["subnet"], "privateIPAddressVersion": "IPv6",
            "privateIPAllocationMethod": "Static", "privateIPAddress": f"fd00:0:0:1::{4 + index}",
        }
        configurations.append({"name": "second", "properties": properties})
        self.rig.arm("PUT", path, interface)

    def state(self):
        return self.rig.azure("GET", "/_emulator/state")

    def settle(self):
        wait("the end of all operations", 30, lambda: self.state()["runningOperations"] == 0)

    def read_machines(self):
        """The private addresses of machines, by the names of their computers."""
        resources = {key.lower(): document for key, document in self.state()["resources"].items()}
        found = {}
        for document in resources.values():
            computer = document.get("properties", {}).get("osProfile", {}).get("computerName")
            if computer is None:
                continue
            interface = document["properties"]["networkProfile"]["networkInterfaces"][0]["id"].lower()
            configurations = resources[interface]["properties"]["ipConfigurations"]
            found[computer] = [one["properties"]["privateIPAddress"] for one in configurations]
        return found

    def names(self, step):
        """The machines of a step."""
        at = STEPS.index(step)
        suffixes = (f"-{step}", f"{at:06}")
        names = [name for name in sorted(self.machines) if name != STOPPED and name.endswith(suffixes)]
        return names + ([STOPPED] if step == "first" else [])

    def join(self, name):
        """A Node as a kubelet with --cloud-provider=external and --node-ip registers it, with ranges for its pods."""
        number, addresses = next(self.numbers), self.machines[name]
        ranges = [f"10.244.{number}.0/24", f"fd00:244:0:{number:x}::/64"][:len(addresses)]
        taint = {"key": UNINITIALIZED, "value": "true", "effect": "NoSchedule"}
        self.rig.kube("POST", NODES, {
            "metadata": {
                "name": name,
                "annotations": {"alpha.kubernetes.io/provided-node-ip": ",".join(addresses)},
                "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"},
            },
            "spec": {"podCIDR": ranges[0], "podCIDRs": ranges, "taints": [taint]},
        })
        told = [{"type": "InternalIP", "address": address} for address in addresses]
        self.report(name, "True", addresses=told + [{"type": "Hostname", "address": name}])

    def report(self, name, ready, **status):
        conditions = [{"type": "Ready", "status": ready, "reason": "Kubelet", "message": "as a kubelet says it"}]
        there = self.rig.kube("GET", f"{NODES}/{name}")["status"].get("conditions", [])
        conditions += [one for one in there if one["type"] != "Ready"]
        self.rig.kube("PATCH", f"{NODES}/{name}/status", {"status": status | {"conditions": conditions}}, kind=MERGE)

    def nodes(self):
        return {node["metadata"]["name"]: node for node in self.rig.kube("GET", NODES)["items"]}

    def versions(self, but=()):
        """The resource versions of Nodes and of Services."""
        objects = [*self.nodes().values(), *self.rig.kube("GET", SERVICES)["items"]]
        named = {one["metadata"]["name"]: one["metadata"]["resourceVersion"] for one in objects}
        return {name: version for name, version in named.items() if name not in but}

    def make_service(self):
        """A Service, with its address."""
        spec = {"type": "LoadBalancer", "selector": {"app": "web"}, "ports": [{"port": 80}]}
        self.rig.kube("POST", SERVICES, {"metadata": {"name": "web"}, "spec": spec})
        has = lambda: self.rig.kube("GET", f"{SERVICES}/web")["status"]["loadBalancer"].get("ingress")  # noqa: E731
        wait("the address of a Service", PATIENCE, lambda: self.alive() and has())

    def is_served(self, name):
        """Whether a Node is initialised and has its routes."""
        node = self.rig.kube("GET", f"{NODES}/{name}")
        available = [one["status"] for one in node["status"]["conditions"] if one["type"] == "NetworkUnavailable"]
        return not has_taint(node, UNINITIALIZED) and available == ["False"]

    def served(self, who, names):
        for name in names:
            wait(f"{name} initialised, and with routes, by {who}", PATIENCE, lambda: self.alive() and self.is_served(name))
        if self.has_service:
            nodes = set(self.nodes())
            wait(f"all Nodes in the pool, by {who}", PATIENCE, lambda: self.alive() and self.members() == nodes)
            self.settle()

    def members(self):
        """Of the pool of the Service."""
        with contextlib.suppress(RuntimeError):
            pool = self.rig.arm("GET", f"{NETWORK}/loadBalancers/kubernetes")["properties"]["backendAddressPools"][0]
            return {member["name"] for member in pool["properties"].get("loadBalancerBackendAddresses", [])}
        return None

    def alive(self):
        return all(self.rig.alive(name) for name in self.rig.children)

    def routes(self):
        return self.rig.arm("GET", TABLE)["properties"]["routes"]

    def resources(self):
        """All that is there, without what each write changes."""
        return {key: clean(document) for key, document in self.state()["resources"].items()}

    def clear_calls(self):
        self.rig.azure("DELETE", "/_emulator/calls")

    def calls(self, reads):
        """The paths that were read, or the writes, since they were cleared."""
        arm = [call for call in self.rig.azure("GET", "/_emulator/calls") if call["plane"] == "arm"]
        return [f"{call['method']} {call['path']}" for call in arm if (call["method"] == "GET") == reads]

    def looked(self, who, tables, machines):
        """Waits until a manager has read the route table, and the machine of the Node that is not Ready, so often."""
        parts = {"/routetables/routes": tables, "/virtualmachinescalesets/stopped/": machines}

        def read():
            self.alive()
            reads = [path.lower() for path in self.calls(True)]
            return all(sum(part in path for path in reads) >= times for part, times in parts.items())

        wait(f"{who}'s look", PATIENCE, read)


def has_taint(node, key):
    return any(taint["key"] == key for taint in node["spec"].get("taints", []))


class Go:
    """The Go managers: a cloud-node-manager on each node, and of the cloud-controller-manager's controllers these."""

    def __init__(self, world, controllers):
        self.world, self.rig, self.controllers = world, world.rig, controllers
        self.running = set()

    def start(self):
        """On all Nodes that there are."""
        self.rig.start_manager(
            KEYS, "--configure-cloud-routes=true", f"--cluster-cidr={RANGES}", "--node-monitor-period=1s",
            "--route-reconciliation-period=2s", "--node-status-update-frequency=2s", controllers=self.controllers,
        )
        self.follow(self.world.nodes())

    def follow(self, names):
        for name in names:
            self.rig.start_node_manager(name)
            self.running.add(name)

    def has_looked(self):
        self.world.looked("the Go manager", tables=4, machines=4)
        asked = self.rig.proxy.asked
        wait("the cloud-node-managers' look", PATIENCE, lambda: all(asked[name] for name in self.running))

    def stop(self):
        self.rig.end("manager")
        for name in self.running:
            self.rig.end(f"node-manager-{name}")
        self.running.clear()


def essence(node):
    """What a manager says of a Node, without its times, and with signs for what differs between machines of a kind."""
    name, machine = node["metadata"]["name"], node["spec"]["providerID"]
    status = node["status"]
    keys = ("type", "status", "reason", "message")
    conditions = [{key: one[key] for key in keys} for one in status["conditions"]]
    addresses = [(one["type"], "<name>" if one["address"] == name else family(one["address"])) for one in status["addresses"]]
    return {
        "providerID": machine.rpartition("/")[0],
        "labels": {key: "<name>" if value == name else value for key, value in node["metadata"]["labels"].items()},
        "taints": [{key: taint[key] for key in taint if key != "timeAdded"} for taint in node["spec"].get("taints", [])],
        # Where kubelet has said the same addresses, the Go manager leaves them in kubelet's order of types.
        "addresses": sorted(addresses, key=lambda one: one[0]),
        "conditions": sorted(conditions, key=lambda one: one["type"]),
    }


def family(address):
    return ipaddress.ip_address(address).version


def check(what, expected, found):
    if expected != found:
        raise AssertionError(f"{what}:\n  expected {json.dumps(expected)}\n  found    {json.dumps(found)}")


def untouched(world, who, before, resources, may_repeat):
    """Fails if a manager changed something in Azure, or wrote to a Node or a Service."""
    if not may_repeat:
        check(f"writes of {who} to Azure", [], world.calls(False))
    check(f"the versions of Nodes and Services under {who}", before, world.versions())
    try:
        wait(f"{who}'s repetition of what is there", 30, lambda: world.resources() == resources)
    except TimeoutError:
        now = world.resources()
        for key in sorted(resources.keys() | now.keys()):
            check(f"{key} under {who}", resources.get(key), now.get(key))
        raise


def take_over(rig, kinds, controllers):
    world = World(rig, kinds, "service" in controllers)
    go = Go(world, controllers)
    began = time.monotonic()

    def say(what):
        print(f"  {time.monotonic() - began:.1f} s: {what}", file=sys.stderr)

    # The Go managers make Nodes and routes, and find a machine stopped.
    for name in world.names("first"):
        world.join(name)
    go.start()
    if world.has_service:
        world.make_service()
    world.served("Go", world.names("first"))
    rig.arm("POST", f"{SET_OF_STOPPED}/virtualMachines/0/deallocate")
    world.report(STOPPED, "False")

    def is_out():
        node = rig.kube("GET", f"{NODES}/{STOPPED}")
        return world.alive() and has_taint(node, SHUTDOWN) and has_taint(node, OUT_OF_SERVICE)

    wait("the taints of a stopped machine", PATIENCE, is_out)
    go.stop()
    world.settle()
    say("the Go managers have made Nodes and routes")

    def hand_over(who, start, look, names, may_repeat=False):
        """Another manager starts, leaves all as it is, and serves Nodes that join."""
        before, table, resources = world.versions(), world.routes(), world.resources()
        world.clear_calls()
        start()
        look()
        untouched(world, who, before, resources, may_repeat)
        say(f"{who}: all is in order")
        for name in names:
            world.join(name)
            go.follow({name} if who == "Go" else ())
        world.served(who, names)
        check(f"the versions of older Nodes and Services under {who}", before, world.versions(but=names))
        written = [write for write in world.calls(False) if not any(part in write.lower() for part in OF_NODES)]
        check(f"writes of {who} that have nothing to do with Nodes that join", [], [] if may_repeat else written)
        names_of_routes = {route["name"] for route in table}
        kept = [route for route in world.routes() if route["name"] in names_of_routes]
        strip = lambda routes: {route["name"]: route["properties"] for route in routes}  # noqa: E731
        check(f"the older routes under {who}", strip(table), strip(kept))
        say(f"{who}: Nodes that joined are served")

    def lead():
        wait("Lazuli's Lease", PATIENCE, lambda: world.alive() and rig.holder(LEASE))
        # It reads the table once, and the machine again ten seconds later.
        world.looked("Lazuli", tables=1, machines=2)

    second, third = world.names("second"), world.names("third")
    hand_over("Lazuli", lambda: rig.start_lazuli(KEYS, RANGES), lead, second)
    rig.end("lazuli")
    world.settle()
    # The Go manager writes a security group again whose addresses come in another order.
    hand_over("Go", go.start, go.has_looked, third, may_repeat=world.has_service)
    go.stop()
    nodes = world.nodes()
    for ours, theirs in zip(sorted(second), sorted(third), strict=True):
        check(f"{ours} by Lazuli and {theirs} by Go", essence(nodes[theirs]), essence(nodes[ours]))
    for name in nodes:
        rig.kube("DELETE", f"{NODES}/{name}")
    if world.has_service:
        rig.kube("PATCH", f"{SERVICES}/web", {"metadata": {"finalizers": []}}, kind=MERGE)
        rig.kube("DELETE", f"{SERVICES}/web")
    with contextlib.suppress(RuntimeError):
        rig.kube("DELETE", LEASE)


# By name: the kinds of machines, and the controllers of the cloud-controller-manager.
CASES = {
    # As the chart of the Go managers starts both.
    "cloud-node-manager": ({"dual", "uniform", "flexible"}, "cloud-node-lifecycle,route"),
    # cloud-node of version 1.35 initialises no Node, for it has no worker, but writes addresses and labels again and again.
    # It knows the first family alone. A Node of two families would change with each turn of the two Go managers.
    "all controllers": (
        {"zoned", "member", "spread", "uniform"}, "cloud-node,cloud-node-lifecycle,route,service",
    ),
}


def check_guide(manager):
    """The lists of controllers in the guide are such as the Go manager takes."""
    guide = pathlib.Path(__file__).parents[2].joinpath("deploy/services-and-nodes.md").read_text(encoding="utf-8")
    lists = re.findall(r"`(--controllers=\*,[^`]*)`", guide)
    assert len(lists) == 2, lists
    for flag in lists:
        # Without a configuration it ends at once.
        ended = subprocess.run(
            [manager, "--cloud-provider=azure", flag], capture_output=True, text=True, timeout=60, check=False
        )
        assert "--cloud-config cannot be empty" in ended.stderr, ended.stderr
        assert "known controllers" not in ended.stderr, ended.stderr


def main():
    parser = argparse.ArgumentParser()
    for name in ("lazuli", "tools", "manager", "node-manager"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="gopeers-")
    print(f"logs in {folder}", file=sys.stderr)
    began, passed = time.monotonic(), 0
    check_guide(options.manager)
    with Rig(folder, options.lazuli, options.tools, options.manager, options.node_manager) as rig:
        for name, (kinds, controllers) in CASES.items():
            if options.only in name:
                print(f"{name}:", file=sys.stderr)
                take_over(rig, kinds, controllers)
                passed += 1
    print(f"{passed} passed in {time.monotonic() - began:.1f}s: Nodes and routes go from the Go managers to Lazuli and back")


if __name__ == "__main__":
    main()
