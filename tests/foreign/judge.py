"""What must be true of the cloud, whatever the driver says.

Reads the server's own state and log; knows nothing of the driver's.
"""

import copy
from collections import Counter
from itertools import pairwise

from cloud import Cloud
from compute import Compute, identity, key

# At most this many polls of one operation that takes `Dialect.duration`.
MOST_POLLS = 15
# No two polls of one operation are closer, in seconds.
LEAST_PAUSE = 0.02


class Judge:
    """Remembers what was there before the driver came."""

    def __init__(self, cloud: Cloud):
        self.cloud = cloud
        with cloud.compute.lock:
            self.disks = copy.deepcopy(cloud.compute.disks)
            self.machines = {at: copy.deepcopy(held["resource"]) for at, held in cloud.compute.machines.items()}

    @property
    def compute(self) -> Compute:
        return self.cloud.compute

    def settled(self) -> Compute:
        with self.compute.lock:
            self.compute.settle()
            return self.compute

    def ours(self) -> list[str]:
        """Ids of the disks that came after us."""
        return [disk["id"] for at, disk in self.settled().disks.items() if at not in self.disks]

    def luns(self, node: str) -> dict[int, str]:
        """LUN -> disk on a machine, in lower case."""
        self.settled()
        return {element["lun"]: identity(element) for element in self.compute.data_disks(node)}

    def check(self) -> None:
        """Nothing forbidden was asked for, and what was there before is untouched."""
        compute = self.settled()
        assert not compute.violations, "\n".join(compute.violations)
        for at, before in self.disks.items():
            assert compute.disks.get(at) == before, f"the foreign disk {at} was changed"
        for at, before in self.machines.items():
            now = copy.deepcopy(compute.machines[at]["resource"])
            ours = [e for e in now["properties"]["storageProfile"]["dataDisks"] if identity(e) not in self._foreign(at)]
            for element in ours:
                now["properties"]["storageProfile"]["dataDisks"].remove(element)
                assert compute.disks[identity(element)]["managedBy"] == now["id"]
            now["properties"]["storageProfile"]["dataDisks"].sort(key=identity)
            expected = copy.deepcopy(before)
            expected["properties"]["storageProfile"]["dataDisks"].sort(key=identity)
            assert now == expected, f"{at} is changed beyond its own disks"
        self.check_polls()

    def check_clean(self) -> None:
        """All of `check`, and nothing is left behind."""
        self.check()
        assert self.ours() == [], "disks are left behind"
        for at in self.machines:
            left = [
                identity(e) for e in self.compute.machines[at]["resource"]["properties"]["storageProfile"]["dataDisks"]
            ]
            assert sorted(left) == sorted(self._foreign(at)), "attachments are left behind"

    def check_polls(self) -> None:
        """No loop asks again and again."""
        for operation in self.compute.operations.values():
            assert len(operation.polls) <= MOST_POLLS, f"{len(operation.polls)} polls of one operation"
            pauses = [later - earlier for earlier, later in pairwise(operation.polls)]
            assert all(pause >= LEAST_PAUSE for pause in pauses), f"polls {min(pauses)} s apart"

    def writes(self, kind: str) -> list:
        """Requests that change resources of a kind ("disks", "virtualMachines")."""
        return [each for each in self.cloud.requests(path=f"/{kind}/") if each.method not in ("GET", "HEAD")]

    def report(self) -> str:
        """Requests by kind, for a person."""
        asked = Counter(
            f"{e.method} {e.path.split('/providers/')[-1].split('/')[1] if '/providers/' in e.path else e.path}"
            for e in self.cloud.requests()
        )
        return ", ".join(f"{name} {count}" for name, count in sorted(asked.items()))

    def _foreign(self, machine: str) -> list[str]:
        return [identity(e) for e in self.machines[key(machine)]["properties"]["storageProfile"]["dataDisks"]]
