#!/usr/bin/env python3
"""Lazuli takes Services over from the Go manager and gives them back; neither side writes what the other wrote.

    services.py --lazuli BINARY --tools FOLDER --manager BINARY [--only TEXT]

For each cloud configuration the Go manager serves all Services of cases.py together that can stand beside each other. Then
a plan of Lazuli shows no change, and Lazuli leads: nothing is written to Azure, and each Service keeps its resource version,
also while Lazuli serves a new Service. Then Lazuli serves a twin of each Service. Last the Go manager starts again, and Azure
stays as it is: what Lazuli made is what the Go manager would make.
"""

import argparse
import contextlib
import copy
import json
import re
import subprocess
import sys
import tempfile
import time

from cases import CASES, COMMON, INTERNAL, LOCAL, SETTINGS, case, service
from record import clean, make_nodes, prepare
from rig import NETWORK, TWO_MACHINES, Rig, wait

NODES = "/api/v1/nodes"
SERVICES = "/api/v1/namespaces/default/services"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
EVENTS = "/api/v1/namespaces/default/events"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/cloud-controller-manager"
MERGE = "application/merge-patch+json"
# Seconds for all Services of a configuration, which the Go manager serves one after the other.
PATIENCE = 300
# Seconds within which a manager that has begun to lead has looked at everything and written what it would write.
LOOK = 12
# Services with these annotations are left out, for these reasons.
LEFT_OUT = {
    "azure-disable-load-balancer-floating-ip": "where nodes have two families, the Go manager changes the rules at each pass",
    "azure-disable-load-balancer-nsg-rule": "the annotation is newer than this Go manager",
}
# Azure takes one such Service for a pool: without floating IP on IPv6, two would have the same rule.
TWINLESS = {"dual stack, high availability ports"}
# What only one Service can have: an address, a DNS label, the name of a private link service.
UNIQUE = re.compile(r"\bmine6?\b|10\.24[0-2]\.0\.\d+|fd00:0:0:1::\w+|my-label|20\.9\.9\.\d+")

SEVERAL = COMMON | {
    "loadBalancerBackendPoolConfigurationType": "nodeIP",
    "multipleStandardLoadBalancerConfigurations": [
        {"name": "kubernetes", "primaryVMSet": "agents", "autoPlaceServices": True},
        {"name": "second", "primaryVMSet": "others", "autoPlaceServices": True},
        {"name": "third", "primaryVMSet": "none", "serviceLabelSelector": {"matchLabels": {"place": "third"}}},
    ],
}
ON_SEVERAL = [
    case(name, [("web", one)], "several") for name, one in {
        **{f"public {number}": service(ports=(f"TCP:{80 + number}",)) for number in range(5)},
        "internal": service(INTERNAL), "local": service(**LOCAL), "local, internal": service(INTERNAL, **LOCAL),
        "named": service("azure-load-balancer-configurations=second"),
        "one of two": service("azure-load-balancer-configurations=Second,kubernetes"),
        "ranges": service(loadBalancerSourceRanges=["10.0.0.0/8"]),
    }.items()
]
FOUR_MACHINES = {
    "availabilitySets": [{"name": "agents"}, {"name": "others"}],
    "virtualMachines": [*TWO_MACHINES["virtualMachines"], *(
        {"name": f"other-{number}", "size": "Standard_D8s_v3", "availabilitySet": "others"} for number in range(2)
    )],
}


def services(settings, of="s", port=30000, check_port=32000):
    """The Services of a configuration, by name, as far as they can stand beside each other; of twins those that have nothing
    that only one can have."""
    taken, found = set(), {}
    for one_of_all in CASES + ON_SEVERAL:
        if one_of_all["settings"] != settings or len(one_of_all["steps"]) != 1:
            continue
        if of != "s" and one_of_all["name"] in TWINLESS:
            continue
        asked = one_of_all["steps"][0][1]
        if any(key in name for key in LEFT_OUT for name in asked["annotations"]):
            continue
        unique = set(UNIQUE.findall(json.dumps(asked)))
        # The address of a public IP is found by its name too.
        unique = {token.strip("{}") for token in unique}
        if unique & taken or (unique and of != "s"):
            continue
        taken |= unique
        number = len(found)
        made = copy.deepcopy(asked)
        for index, entry in enumerate(made["spec"]["ports"]):
            if "nodePort" in entry:
                entry["nodePort"] = port + 10 * number + index
        if "healthCheckNodePort" in made["spec"]:
            made["spec"]["healthCheckNodePort"] = check_port + number
        found[f"{of}{number:02}-" + re.sub("[^a-z0-9]+", "-", one_of_all["name"].lower())[:40].strip("-")] = made
    return found


class World:
    """A cloud, and a cluster with Services."""

    def __init__(self, rig, settings, keys):
        self.rig, self.keys = rig, keys
        machines = FOUR_MACHINES if settings == "several" else TWO_MACHINES
        rig.start_emulator(machines)
        prepare(rig, settings)
        names = [machine["name"] for machine in machines["virtualMachines"]]
        make_nodes(rig, names)
        for node in rig.kube("GET", NODES)["items"]:
            if node["metadata"]["name"] not in names:
                rig.kube("DELETE", f"{NODES}/{node['metadata']['name']}")
        self.mine = {
            name: rig.arm("GET", f"{NETWORK}/publicIPAddresses/{name}")["properties"]["ipAddress"] for name in ("mine", "mine6")
        }

    def make(self, name, asked):
        text = json.dumps(asked).replace("{mine}", self.mine["mine"]).replace("{mine6}", self.mine["mine6"])
        body = json.loads(text)
        metadata = {"name": name, "annotations": body["annotations"]}
        if body["spec"].get("externalTrafficPolicy") == "Local":
            # As kube-controller-manager makes it; the endpoint is on the first node.
            self.rig.kube("POST", SLICES, {
                "metadata": {"name": name, "labels": {"kubernetes.io/service-name": name}}, "addressType": "IPv4",
                "endpoints": [{"addresses": ["10.244.0.9"], "nodeName": "node-0", "conditions": {"ready": True}}],
                "ports": [{"port": 80}],
            })
        return self.rig.kube("POST", SERVICES, {"metadata": metadata, "spec": body["spec"]})["metadata"]["uid"]

    def listed(self):
        every = self.rig.kube("GET", SERVICES)["items"]
        return {one["metadata"]["name"]: one for one in every if one["metadata"]["name"] != "kubernetes"}

    def address(self, name):
        return self.listed()[name]["status"]["loadBalancer"].get("ingress")

    def failed(self):
        """The Services that a manager could not serve, by name, and why."""
        there = {one["metadata"]["uid"]: name for name, one in self.listed().items()}
        events = [(event["involvedObject"].get("uid"), event) for event in self.rig.kube("GET", EVENTS)["items"]]
        return {
            there[uid]: event["message"] for uid, event in events
            if uid in there and event["reason"] == "SyncLoadBalancerFailed"
        }

    def versions(self, names):
        return {name: one["metadata"]["resourceVersion"] for name, one in self.listed().items() if name in names}

    def state(self):
        return self.rig.azure("GET", "/_emulator/state")

    def resources(self):
        """All that is there, without what each write changes."""
        return {key: clean(document) for key, document in self.state()["resources"].items()}

    def settle(self):
        wait("the end of all operations", 30, lambda: self.state()["runningOperations"] == 0)

    def alive(self):
        return all(self.rig.alive(name) for name in self.rig.children)

    def writes(self):
        calls = [call for call in self.rig.azure("GET", "/_emulator/calls") if call["plane"] == "arm"]
        return [f"{call['method']} {call['path']} {call['status']}" for call in calls if call["method"] != "GET"]

    def forget_calls(self):
        self.rig.azure("DELETE", "/_emulator/calls")

    def watch(self, who):
        """Lets a manager look at everything."""
        end = time.monotonic() + LOOK
        while time.monotonic() < end:
            self.alive()
            time.sleep(0.5)

    def delete(self, name):
        self.rig.kube("DELETE", f"{SERVICES}/{name}")
        wait(f"the end of {name}", 60, lambda: self.alive() and name not in self.listed())

    def start_lazuli(self, name, *flags):
        command = [
            self.rig.lazuli, "cloud-controllers", "--cloud-config", self.rig.config("lazuli.json", **self.keys),
            "--kubeconfig", self.rig.kubeconfig, "--controllers", "service-lb", *flags,
        ]
        if "--dry-run" not in flags:
            self.rig.run(name, command)
            return None
        ended = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=120, check=False)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout


def check(what, expected, found):
    if expected != found:
        raise AssertionError(f"{what}:\n  expected {json.dumps(expected)}\n  found    {json.dumps(found)}")


def differences(path, before, now):
    """Where two documents differ, with both values."""
    if before == now:
        return
    if isinstance(before, dict) and isinstance(now, dict):
        for key in sorted(before.keys() | now.keys()):
            yield from differences(f"{path}.{key}", before.get(key), now.get(key))
    elif isinstance(before, list) and isinstance(now, list) and all(isinstance(one, dict) for one in before + now):
        by_name = [{one.get("name", index): one for index, one in enumerate(side)} for side in (before, now)]
        yield from differences(path, *by_name)
    else:
        yield f"{path}: {json.dumps(before)} became {json.dumps(now)}"


def same(who, before, now):
    found = list(differences("", before, now))
    if found:
        raise AssertionError("\n  ".join([f"under {who}:", *found]))


def take_over(rig, settings, keys):
    world = World(rig, settings, keys)
    began = time.monotonic()

    def say(what):
        print(f"  {time.monotonic() - began:.1f} s: {what}", file=sys.stderr)

    asked = services(settings)
    rig.start_manager(keys)
    for name, body in asked.items():
        world.make(name, body)
    done = lambda: all(world.address(name) for name in set(asked) - set(world.failed()))  # noqa: E731
    wait("the addresses of all Services", PATIENCE, lambda: world.alive() and done())
    # What the manager cannot serve it would repeat for ever.
    refused = set()
    for name, why in world.failed().items():
        if not world.address(name):
            say(f"the Go manager does not serve {name}: {why[:100]}")
            rig.end("manager")
            rig.kube("PATCH", f"{SERVICES}/{name}", {"metadata": {"finalizers": []}}, kind=MERGE)
            rig.kube("DELETE", f"{SERVICES}/{name}")
            del asked[name]
            refused.add(name)
    rig.end("manager")
    # What it writes for a Service may depend on those that came later.
    rig.start_manager(keys)
    world.watch("Go")
    rig.end("manager")
    world.settle()
    say(f"the Go manager serves {len(asked)} Services")

    before, versions = world.resources(), world.versions(asked)
    world.forget_calls()
    plan = world.start_lazuli("plan", "--dry-run")
    (rig.folder / f"plan-{settings}.txt").write_text(plan)
    check("writes of the plan", [], world.writes())
    # It may warn of annotations before.
    check("the plan of a take-over", "nothing would be written", plan.strip().splitlines()[-1])
    world.start_lazuli("lazuli")
    wait("Lazuli's Lease", 60, lambda: world.alive() and rig.holder(LEASE))
    world.watch("Lazuli")
    check("writes of Lazuli to Azure", [], world.writes())
    check("the versions of Services under Lazuli", versions, world.versions(asked))
    world.make("newcomer", service(ports=("TCP:9999",), node_ports=31700))
    wait("the address of a new Service", 60, lambda: world.alive() and world.address("newcomer"))
    check("the versions of older Services", versions, world.versions(asked))
    world.delete("newcomer")
    world.settle()
    same("Lazuli", before, world.resources())
    check("the versions of Services after a newcomer", versions, world.versions(asked))
    say("Lazuli has left all as it was, and served another Service")
    twins = services(settings, of="t", port=31000, check_port=32200)
    refused = {name[4:] for name in refused}
    twins = {name: body for name, body in twins.items() if name[4:] not in refused}
    for name, body in twins.items():
        world.make(name, body)
    wait("the addresses of the twins", PATIENCE, lambda: world.alive() and all(world.address(name) for name in twins))
    time.sleep(3)
    check("the versions of Services beside their twins", versions, world.versions(asked))
    rig.end("lazuli")
    world.settle()
    before, versions = world.resources(), world.versions([*asked, *twins])
    say(f"Lazuli serves {len(twins)} twins")

    rig.start_manager(keys)
    world.watch("Go")
    world.settle()
    check("the versions of Services under Go", versions, world.versions([*asked, *twins]))
    # It writes a security group again whose addresses come in another order.
    same("Go", before, world.resources())
    rig.end("manager")
    for name in [*asked, *twins]:
        rig.kube("PATCH", f"{SERVICES}/{name}", {"metadata": {"finalizers": []}}, kind=MERGE)
        rig.kube("DELETE", f"{SERVICES}/{name}")
    rig.kube("DELETE", SLICES)
    with contextlib.suppress(RuntimeError):
        rig.kube("DELETE", LEASE)
    say("the Go manager has left all as it was")
    return len(asked)


def main():
    parser = argparse.ArgumentParser()
    for name in ("lazuli", "tools", "manager"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="gopeers-")
    print(f"logs in {folder}", file=sys.stderr)
    began, served = time.monotonic(), 0
    with Rig(folder, options.lazuli, options.tools, options.manager) as rig:
        for settings, keys in (SETTINGS | {"several": SEVERAL}).items():
            if options.only in settings:
                print(f"{settings}:", file=sys.stderr)
                served += take_over(rig, settings, keys)
    print(f"passed in {time.monotonic() - began:.1f}s: {served} Services go from the Go manager to Lazuli and back")


if __name__ == "__main__":
    main()
