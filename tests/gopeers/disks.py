#!/usr/bin/env python3
"""The Go disk driver and Lazuli make snapshots, copies and changes of the same disks, each on an Azure of its own: what Azure
has of them afterwards must be equal. Then each driver gets the other's Azure, and the requests that made it once more: the
same ids are answered, and Lazuli writes nothing.

    disks.py --lazuli BINARY --tools FOLDER --disk-driver BINARY --call BINARY [--keep FOLDER]
"""

import argparse
import contextlib
import json
import pathlib
import subprocess
import sys
import tempfile

from rig import GROUP, NODES, Rig, wait

GIB = 1 << 30
PATIENCE = 300
CAPABILITY = {"mount": {"fsType": "ext4"}, "accessMode": {"mode": "SINGLE_NODE_WRITER"}}
# Members that only Azure writes: new at each run.
VOLATILE = {"etag", "uniqueId", "timeCreated", "sourceUniqueId", "LastOwnershipUpdateTime", "incrementalSnapshotFamilyId"}
# What Lazuli says of a resource beyond Go, and Go does not miss.
OWN_TAGS = ("lazuli-",)


def claim(name):
    return {
        "csi.storage.k8s.io/pv/name": f"pvc-{name}", "csi.storage.k8s.io/pvc/name": name,
        "csi.storage.k8s.io/pvc/namespace": "default",
    }


def volume(name, gib, source=None, **parameters):
    request = {
        "name": f"pvc-{name}", "capacityRange": {"requiredBytes": str(gib * GIB)}, "volumeCapabilities": [CAPABILITY],
        "parameters": {"skuName": "Premium_LRS"} | parameters | claim(name),
    }
    return "CreateVolume", request | ({"volumeContentSource": source} if source else {})


def snapshot(name, of, **parameters):
    return "CreateSnapshot", {"name": f"snapshot-{name}", "sourceVolumeId": disk(of), "parameters": parameters}


def disk(name):
    return f"{GROUP}/providers/Microsoft.Compute/disks/pvc-{name}"


def snapshot_id(name):
    return f"{GROUP}/providers/Microsoft.Compute/snapshots/snapshot-{name}"


def from_snapshot(name):
    return {"snapshot": {"snapshotId": snapshot_id(name)}}


def from_volume(name):
    return {"volume": {"volumeId": disk(name)}}


# In order: each builds on those before it.
REQUESTS = [
    volume("source", 4),
    volume("plain", 4, skuName="StandardSSD_LRS"),
    snapshot("plain", "source"),
    snapshot("tagged", "source", tags="team=blue,of=us", networkAccessPolicy="DenyAll", publicNetworkAccess="Disabled"),
    snapshot("full", "plain", incremental="false"),
    snapshot("far", "source", location="northeurope"),
    volume("restored", 4, from_snapshot("plain")),
    volume("larger", 8, from_snapshot("plain"), skuName="StandardSSD_LRS"),
    volume("of-full", 4, from_snapshot("full"), skuName="StandardSSD_LRS"),
    volume("clone", 4, from_volume("source")),
]
# Once the driver that has not made it has it.
CHANGES = [("ControllerModifyVolume", {"volumeId": disk("plain"), "mutableParameters": {"skuName": "Premium_LRS"}})]


class Driver:
    """A driver's controller, and what it is asked."""

    def __init__(self, rig, options, name):
        self.rig, self.options, self.name = rig, options, name
        self.socket = pathlib.Path(tempfile.mkdtemp(prefix="csi-")) / "csi.sock"
        getattr(self, f"start_{name}")()
        wait(f"the socket of {name}", 60, self.socket.exists)

    def start_go(self):
        self.rig.start_disk_driver(self.options.disk_driver, self.socket)

    def start_lazuli(self):
        self.rig.run("driver", [
            self.rig.lazuli, "csi-controller", f"--endpoint=unix://{self.socket}", "--cloud-config", self.rig.config("lazuli.json"),
            "--cloud-config-secret-name=", "--kubeconfig", self.rig.kubeconfig, "--metrics-endpoint=127.0.0.1:0",
        ])

    def call(self, name, request):
        line = f"{name} {json.dumps(request)}\n"
        done = subprocess.run(
            [self.options.call, self.socket], input=line, capture_output=True, text=True, timeout=600, check=True
        )
        return json.loads(done.stdout)

    def end(self):
        self.rig.end("driver")
        subprocess.run(["rm", "-rf", self.socket.parent], check=True)

    def until_ready(self, name, request):
        """The answer of a call; a snapshot's as soon as it is ready, for external-snapshotter asks until then."""
        def asked():
            answer = self.call(name, request)
            if "code" in answer:
                raise RuntimeError(f"{self.name}: {name} of {request.get('name')}: {answer}")
            ready = answer.get("snapshot", {"readyToUse": True}).get("readyToUse")
            return (answer,) if ready else None

        return wait(f"{name} of {request.get('name')} by {self.name}", PATIENCE, asked)[0]


@contextlib.contextmanager
def world(options, folder, name):
    (folder / name).mkdir()
    with Rig(folder / name, options.lazuli, options.tools, None) as rig:
        rig.start_emulator()
        rig.kube("POST", "/api/v1/nodes", {"metadata": {"name": NODES[0]}})
        yield rig


def cleaned(value):
    if isinstance(value, dict):
        return {key: cleaned(inner) for key, inner in sorted(value.items()) if key not in VOLATILE}
    return [cleaned(inner) for inner in value] if isinstance(value, list) else value


def documents(rig):
    """The disks and snapshots that drivers have made, without what differs from run to run."""
    found = {}
    wait("Azure's rest", 60, lambda: rig.azure("GET", "/_emulator/state")["runningOperations"] == 0)
    for document in rig.azure("GET", "/_emulator/state")["resources"].values():
        if document["type"] in ("Microsoft.Compute/disks", "Microsoft.Compute/snapshots") and document.get("tags"):
            tags = {key: value for key, value in document["tags"].items() if not key.startswith(OWN_TAGS)}
            found[document["id"]] = cleaned(document | {"tags": tags})
    return found


def writes(rig):
    calls = rig.azure("GET", "/_emulator/calls")
    return [f"{call['method']} {call['path']}" for call in calls if call["plane"] == "arm" and call["method"] != "GET"]


def ids(answers):
    """What Kubernetes keeps of answers: ids, sources, sizes and times."""
    kept = []
    for answer in answers:
        made = answer.get("snapshot") or answer.get("volume") or {}
        # Go answers a copy whose size it left to Azure with no capacity.
        kept.append({key: made.get(key) for key in ("snapshotId", "sourceVolumeId", "volumeId", "sizeBytes", "creationTime")})
    return kept


def differences(go, lazuli):
    for name in sorted(go.keys() | lazuli.keys(), key=str.lower):
        if go.get(name) != lazuli.get(name):
            yield f"{name}:\n  Go     {json.dumps(go.get(name))}\n  Lazuli {json.dumps(lazuli.get(name))}"


def run(options, folder):
    wrong, made, changed = [], {}, {}
    for first, second in (("go", "lazuli"), ("lazuli", "go")):
        with world(options, folder, first) as rig:
            driver = Driver(rig, options, first)
            answers = [driver.until_ready(*request) for request in REQUESTS]
            driver.end()
            made[first] = documents(rig)
            rig.azure("DELETE", "/_emulator/calls")
            driver = Driver(rig, options, second)
            again = [driver.until_ready(*request) for request in REQUESTS]
            if ids(again) != ids(answers):
                wrong += [f"{second} after {first}: {one} is {other}" for one, other in zip(ids(answers), ids(again)) if one != other]
            if second == "lazuli" and writes(rig):
                wrong.append(f"Lazuli writes what Go has made: {writes(rig)}")
            if documents(rig) != made[first]:
                wrong += differences(made[first], documents(rig))
            for request in CHANGES:
                driver.until_ready(*request)
            changed[second] = documents(rig)
            for name in ("plain", "tagged", "full", "far"):
                driver.until_ready("DeleteSnapshot", {"snapshotId": snapshot_id(name)})
            for _, request in REQUESTS:
                if request["name"].startswith("pvc-"):
                    driver.until_ready("DeleteVolume", {"volumeId": disk(request["name"].removeprefix("pvc-"))})
            driver.end()
            left = documents(rig)
            if left:
                wrong.append(f"{second} leaves of {first}: {sorted(left)}")
    wrong += [*differences(made["go"], made["lazuli"]), *differences(changed["go"], changed["lazuli"])]
    return wrong


def main():
    parser = argparse.ArgumentParser()
    for name in ("--lazuli", "--tools", "--disk-driver", "--call"):
        parser.add_argument(name, required=True, type=pathlib.Path)
    parser.add_argument("--keep", type=pathlib.Path, help="where logs stay")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lazuli-gopeers-") as temporary:
        folder = options.keep or pathlib.Path(temporary)
        folder.mkdir(exist_ok=True)
        wrong = run(options, folder)
    if wrong:
        sys.exit("\n".join(wrong))
    print(f"{len(REQUESTS) + len(CHANGES)} requests: Azure has the same of both drivers, and each serves what the other made")


if __name__ == "__main__":
    main()
