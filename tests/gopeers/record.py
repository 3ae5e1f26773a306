#!/usr/bin/env python3
"""Records what the Go cloud controller manager writes to Azure for each case of cases.py.

    record.py --lazuli BINARY --tools FOLDER --manager BINARY --version VERSION --output FOLDER [--only TEXT]

The output is a file for each name of SETTINGS: the settings, and for each case its steps. A step has the Service as the
API server holds it, the network resources before it, the writes that Azure took and the addresses or the error that the
manager reported after it. What differs between runs is replaced: uids of Services become fixed ones, and etags go.
"""

import argparse
import contextlib
import itertools
import json
import pathlib
import re
import sys
import tempfile
import time

from cases import CASES, SETTINGS
from rig import GROUP, NETWORK, NODES, Rig, wait

RECORDED = ("loadbalancers", "networksecuritygroups", "publicipaddresses", "privatelinkservices")
# These only where a step writes them.
RECORDED_IF_WRITTEN = ("networkinterfaces",)
# Members that only Azure writes: new at each run, or always the same.
VOLATILE = ("etag", "resourceGuid", "defaultSecurityRules", "alias", "networkInterfaces")
SERVICES = "/api/v1/namespaces/default/services"


def prepare(rig, settings):
    """What an operator has before the first Service, with the settings of this name."""
    place = {"location": "westeurope"}
    rig.arm("PUT", f"{NETWORK}/networkSecurityGroups/nsg", place | {"properties": {}})
    standard = place | {"sku": {"name": "Standard"}}
    for name, length, version in (("prefix", 28, "IPv4"), ("prefix6", 124, "IPv6")):
        properties = {"prefixLength": length, "publicIPAddressVersion": version}
        rig.arm("PUT", f"{NETWORK}/publicIPPrefixes/{name}", standard | {"properties": properties})
    for name, version in (("mine", "IPv4"), ("mine6", "IPv6")):
        properties = {"publicIPAllocationMethod": "Static", "publicIPAddressVersion": version}
        rig.arm("PUT", f"{NETWORK}/publicIPAddresses/{name}", standard | {"properties": properties})
    network = rig.arm("GET", f"{NETWORK}/virtualNetworks/vnet")
    for subnet in network["properties"]["subnets"]:
        properties = subnet["properties"]
        if subnet["name"] == "nodes" and "addressPrefixes" not in properties:
            properties["addressPrefixes"] = [properties.pop("addressPrefix"), "fd00:0:0:1::/64"]
    rig.arm("PUT", f"{NETWORK}/virtualNetworks/vnet", network)
    if settings == "nic-dual-stack":
        for index, node in enumerate(NODES):
            interface = rig.arm("GET", f"{NETWORK}/networkInterfaces/{node}-nic")
            subnet = interface["properties"]["ipConfigurations"][0]["properties"]["subnet"]
            properties = {
                "subnet": subnet, "privateIPAddressVersion": "IPv6", "privateIPAllocationMethod": "Static",
                "privateIPAddress": f"fd00:0:0:1::{4 + index}",
            }
            interface["properties"]["ipConfigurations"].append({"name": "ipconfig6", "properties": properties})
            rig.arm("PUT", f"{NETWORK}/networkInterfaces/{node}-nic", interface)
    wait("the operator's resources", 30, lambda: state(rig)["runningOperations"] == 0)


def state(rig):
    return rig.azure("GET", "/_emulator/state")


def resources(rig):
    """The documents of the network, by their id below the provider."""
    found = {}
    for document in state(rig)["resources"].values():
        kind = document.get("type", "").lower().removeprefix("microsoft.network/")
        if kind in RECORDED + RECORDED_IF_WRITTEN:
            found[document["id"]] = document
    return found


def make_nodes(rig, names=NODES):
    for index, name in enumerate(names):
        path = f"/api/v1/nodes/{name}"
        provider = f"azure://{GROUP}/providers/Microsoft.Compute/virtualMachines/{name}"
        with contextlib.suppress(RuntimeError):
            rig.kube("POST", "/api/v1/nodes", {"metadata": {"name": name}, "spec": {"providerID": provider}})
        addresses = [
            {"type": "InternalIP", "address": f"10.240.0.{4 + index}"},
            {"type": "InternalIP", "address": f"fd00:0:0:1::{4 + index}"},
            {"type": "Hostname", "address": name},
        ]
        conditions = [{"type": "Ready", "status": "True"}]
        patch = {"status": {"addresses": addresses, "conditions": conditions}}
        rig.kube("PATCH", f"{path}/status", patch, kind="application/merge-patch+json")


class Recorder:
    def __init__(self, rig, name, settings):
        self.rig = rig
        rig.start_emulator()
        prepare(rig, name)
        self.addresses = {
            name: rig.arm("GET", f"{NETWORK}/publicIPAddresses/{name}")["properties"]["ipAddress"] for name in ("mine", "mine6")
        }
        self.operators = set(resources(rig))
        rig.start_manager(settings)

    def end(self):
        self.rig.end("manager")
        self.rig.end("emulator")

    def events(self, uid):
        """How often the manager reported success and failure of a Service, and its last failure."""
        done, failed, message = 0, 0, None
        listed = self.rig.kube("GET", f"/api/v1/namespaces/default/events?fieldSelector=involvedObject.uid={uid}")
        for event in listed["items"]:
            if event["reason"] in ("EnsuredLoadBalancer", "UpdatedLoadBalancer", "DeletedLoadBalancer"):
                done += event.get("count") or 1
            if event["reason"] == "SyncLoadBalancerFailed":
                failed += event.get("count") or 1
                message = event["message"]
        return done, failed, message

    def step(self, name, wanted, uids):
        rig, path = self.rig, f"{SERVICES}/{name}"
        before = resources(rig)
        rig.azure("DELETE", "/_emulator/calls")
        error = None
        if wanted is None:
            rig.kube("DELETE", path)

            def gone():
                self.rig.alive("manager")
                with contextlib.suppress(RuntimeError):
                    rig.kube("GET", path)
                    return False
                return True

            wait(f"the end of {name}", 25, gone)
            served = None
        else:
            body = json.loads(json.dumps(wanted).replace("{mine}", self.addresses["mine"]).replace("{mine6}", self.addresses["mine6"]))
            there = None
            with contextlib.suppress(RuntimeError):
                there = rig.kube("GET", path)
            counts = self.events(there["metadata"]["uid"])[:2] if there else (0, 0)
            metadata = {"name": name, "annotations": body["annotations"]}
            if there is None:
                made = rig.kube("POST", SERVICES, {"metadata": metadata, "spec": body["spec"]})
            else:
                spec = dict(body["spec"])
                spec.setdefault("ports", there["spec"]["ports"])
                for kept in ("clusterIP", "clusterIPs"):
                    spec.setdefault(kept, there["spec"][kept])
                if "ipFamilies" in spec:
                    spec["clusterIPs"] = there["spec"]["clusterIPs"][:1]
                metadata["resourceVersion"] = there["metadata"]["resourceVersion"]
                metadata["finalizers"] = there["metadata"].get("finalizers", [])
                made = rig.kube("PUT", path, {"metadata": metadata, "spec": spec})
            uid = uids[name] = made["metadata"]["uid"]

            def reported():
                self.rig.alive("manager")
                done, failed, message = self.events(uid)
                return (done > counts[0] and "done") or (failed > counts[1] and message)

            outcome = wait(f"{name}", 25, reported)
            error = None if outcome == "done" else outcome
            time.sleep(0.3)
            served = rig.kube("GET", path)
        wait("the end of all operations", 30, lambda: state(rig)["runningOperations"] == 0)
        writes = []
        for call in rig.azure("GET", "/_emulator/calls"):
            if call["plane"] == "arm" and call["method"] != "GET":
                write = {"method": call["method"], "path": call["path"]}
                if call.get("body") is not None:
                    write["body"] = call["body"]
                if call["status"] >= 300:
                    write["refused"] = f"{call['status']} {call.get('code', '')}".strip()
                writes.append(write)
        written = {write["path"].lower() for write in writes}
        before = {
            identity: document for identity, document in before.items()
            if document["type"].lower().rpartition("/")[2] in RECORDED or identity.lower() in written
        }
        # NICs are written in parallel, so in any order.
        runs = itertools.groupby(writes, lambda write: "/networkInterfaces/" in write["path"])
        writes = [write for nics, run in runs for write in (sorted(run, key=lambda write: write["path"]) if nics else run)]
        step = {"name": name, "before": before, "writes": writes}
        if served:
            step["service"] = {
                "metadata": {key: served["metadata"][key] for key in ("name", "namespace", "uid", "annotations") if key in served["metadata"]},
                "spec": {key: value for key, value in served["spec"].items() if not key.startswith("clusterIP") and key != "selector"},
            }
            ingress = served["status"]["loadBalancer"].get("ingress", [])
            step["ingress"] = [entry["ip"] for entry in ingress]
        if error:
            # Of an answer of Azure its code: the text names a port of this run.
            code = re.search(r"ERROR CODE: (\w+)", error)
            step["error"] = code[1] if code else error
        return step

    def case(self, case):
        uids, steps, names = {}, [], []
        for name, wanted in case["steps"]:
            steps.append(self.step(name, wanted, uids))
            if wanted is None:
                names.remove(name)
            elif name not in names:
                names.append(name)
        for name in names:
            steps.append(self.step(name, None, uids))
        left = {identity for identity in resources(self.rig) if identity not in self.operators}
        for identity in sorted(left, key=lambda text: "loadbalancers" not in text.lower()):
            print(f"  left behind: {identity}", file=sys.stderr)
            self.rig.arm("DELETE", identity)
            wait("a deletion", 30, lambda: state(self.rig)["runningOperations"] == 0)
        if resources(self.rig)[f"{NETWORK}/networkSecurityGroups/nsg"]["properties"]["securityRules"]:
            print("  security rules left behind", file=sys.stderr)
            self.rig.arm("PUT", f"{NETWORK}/networkSecurityGroups/nsg", {"location": "westeurope", "properties": {}})
        if "mine" not in json.dumps([(step.get("service"), step["writes"]) for step in steps]) and "{mine" not in json.dumps(case):
            for step in steps:
                step["before"] = {
                    identity: document for identity, document in step["before"].items()
                    if not identity.endswith(("/mine", "/mine6"))
                }
        return fixed({"name": case["name"], "steps": steps}, uids)


def clean(value):
    if isinstance(value, dict):
        return {key: clean(item) for key, item in sorted(value.items()) if key not in VOLATILE}
    if isinstance(value, list):
        items = [clean(item) for item in value]
        if items and all(isinstance(item, dict) and "name" in item for item in items):
            items.sort(key=lambda item: json.dumps(item, sort_keys=True))
        if all(isinstance(item, str) for item in items):
            items.sort()
        return items
    return value


def essence(value):
    """A body without what Azure fills in and without empty members, to tell a write that changes nothing."""
    if isinstance(value, dict):
        members = {key: essence(item) for key, item in value.items() if key not in ("id", "type", "provisioningState")}
        return {key: item for key, item in members.items() if item not in (None, [], {}, "")}
    return [essence(item) for item in value] if isinstance(value, list) else value


def effective(step):
    """The writes of a step but for those that change nothing: the manager repeats the one of the security group now and
    then, with its addresses in another order, in a pass that may fall into the next step."""
    bodies = {identity.lower(): essence(document) for identity, document in step["before"].items()}
    for write in step["writes"]:
        key, body = write["path"].lower(), essence(write.get("body"))
        if write["method"] != "PUT" or "refused" in write or bodies.get(key) != body:
            yield write
        bodies[key] = body


def fixed(case, uids):
    """The case with fixed uids, and without what Azure makes anew at each run."""
    for step in case["steps"]:
        step["before"] = clean(step["before"])
        for write in step["writes"]:
            write |= {"body": clean(write["body"])} if "body" in write else {}
        step["writes"] = list(effective(step))
    text = json.dumps(case)
    # Addresses of public IPs follow from their names, and these from uids.
    for index, (_, address) in enumerate(sorted(public_addresses(case, uids))):
        text = text.replace(f'"{address}"', f'"2603::{index + 1}"' if ":" in address else f'"20.0.0.{index + 1}"')
    for index, name in enumerate(sorted(uids)):
        uid, fixed_uid = uids[name], f"{index + 1:08x}-0000-4000-8000-000000000000"
        text = text.replace(uid, fixed_uid).replace(base(uid), base(fixed_uid))
    case = json.loads(text.replace(NETWORK, "~"))
    for step in case["steps"]:
        step["before"] = clean(step["before"])
        step["writes"] = [write | ({"body": clean(write["body"])} if "body" in write else {}) for write in step["writes"]]
    return case


def public_addresses(case, uids):
    """The addresses of the public IPs of the case's Services, with what sorts them alike at each run."""
    found = set()
    for step in case["steps"]:
        for identity, document in step["before"].items():
            for name, uid in uids.items():
                address = document["properties"].get("ipAddress")
                if address and base(uid) in identity:
                    found.add((name + identity.replace(base(uid), ""), address))
    return found


def base(uid):
    return ("a" + uid.replace("-", ""))[:32]


def main():
    parser = argparse.ArgumentParser()
    for name in ("lazuli", "tools", "manager", "version", "output"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--only", default="")
    parser.add_argument("--expected", help="a folder with an earlier recording: a case that differs is tried again")
    parser.add_argument("--keep", action="store_true", help="keep the folder with the logs")
    options = parser.parse_args()
    output = pathlib.Path(options.output)
    output.mkdir(parents=True, exist_ok=True)
    folder = tempfile.mkdtemp(prefix="gopeers-")
    print(f"logs in {folder}", file=sys.stderr)
    failed = 0
    with Rig(folder, options.lazuli, options.tools, options.manager) as rig:
        make_nodes(rig)
        for settings, values in SETTINGS.items():
            cases = [case for case in CASES if case["settings"] == settings and options.only in case["name"]]
            if not cases:
                continue
            recorder, recorded = Recorder(rig, settings, values), []
            for case in cases:
                begun = time.monotonic()
                try:
                    recorded.append(recorder.case(case))
                    # Now and then the manager passes once more over a Service, and writes what it would write later.
                    for _ in range(2):
                        if expected(options.expected, settings, recorded[-1]):
                            break
                        print(f"{settings}: {case['name']}: differs, tried again", file=sys.stderr)
                        recorded[-1] = recorder.case(case)
                    errors = [step["error"] for step in recorded[-1]["steps"] if "error" in step]
                    print(f"{settings}: {case['name']}: {time.monotonic() - begun:.1f} s {' '.join(errors)}", file=sys.stderr)
                except (TimeoutError, RuntimeError) as error:
                    failed += 1
                    print(f"{settings}: {case['name']}: FAILED {error}", file=sys.stderr)
                    recorder.end()
                    for service in rig.kube("GET", SERVICES)["items"]:
                        if service["metadata"]["name"] != "kubernetes":
                            path = f"{SERVICES}/{service['metadata']['name']}"
                            rig.kube("PATCH", path, {"metadata": {"finalizers": []}}, kind="application/merge-patch+json")
                            with contextlib.suppress(RuntimeError):
                                rig.kube("DELETE", path)
                    recorder = Recorder(rig, settings, values)
            recorder.end()
            with open(output / f"{settings}.json", "w", encoding="utf-8") as file:
                write(file, {"manager": options.version, "settings": values}, recorded)
    sys.exit(1 if failed else 0)


def expected(folder, settings, case):
    """Whether an earlier recording has this case; true when there is none to compare it with."""
    path = pathlib.Path(folder or "", f"{settings}.json")
    if not folder or not path.exists():
        return True
    return case in json.loads(path.read_text())["cases"]


def write(file, head, cases):
    """One line for each step, so that a difference between two recordings can be read."""
    text = lambda value: json.dumps(value, separators=(",", ":"))
    file.write(text(head)[:-1] + ',"cases":[')
    for index, case in enumerate(cases):
        file.write(("," if index else "") + f'\n{{"name":{text(case["name"])},"steps":[\n')
        file.write(",\n".join(text(step) for step in case["steps"]))
        file.write("]}")
    file.write("\n]}\n")


if __name__ == "__main__":
    main()
