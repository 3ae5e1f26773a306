"""A cloud and a driver of its own for each test, so that tests may run at once."""

import contextlib
import shutil
import tempfile
import time
from pathlib import Path

import pytest

from cloud import Cloud
from cluster import Cluster
from controllers import Controllers, Kubectl
from dialect import Dialect
from driver import Driver
from judge import Judge
from landscape import NODES, lay_out, provider_id
from network_judge import NetworkJudge


def furnish(cloud: Cloud) -> None:
    """What other people have in this cloud: three machines, some of their disks attached."""
    compute = cloud.compute

    def theirs(name: str, lun: int, **more) -> dict:
        element = {
            "lun": lun,
            "name": name,
            "createOption": "Attach",
            "caching": "None",
            "writeAcceleratorEnabled": False,
            "managedDisk": {"storageAccountType": "Premium_LRS", "id": compute.path("disks", name)},
            "deleteOption": "Detach",
            "diskSizeGB": 32,
            "toBeDetached": False,
            **more,
        }
        if cloud.dialect.stack:
            # Members that its api-version does not have.
            del element["toBeDetached"], element["deleteOption"]
        else:
            # A disk with keys of its owner: who drops this from a list re-encrypts another user's disk.
            element["managedDisk"]["diskEncryptionSet"] = {"id": compute.path("diskEncryptionSets", "Their-Keys")}
        if cloud.dialect.new_properties:
            element["futureTier"] = {"burst": 7, "notes": [None, "kept"]}
            element["managedDisk"]["futureSecurity"] = {"kept": "as well"}
        return element

    compute.place_machine("node-0", [theirs("Theirs-2", 2, caching="ReadWrite"), theirs("Theirs-0", 0)])
    compute.place_machine("node-1", [])
    compute.place_machine("Node-2", [theirs("Theirs-1", 1, deleteOption="Delete")])
    for name, machine in (
        ("Theirs-0", "node-0"),
        ("Theirs-2", "node-0"),
        ("Theirs-1", "Node-2"),
        ("Theirs-loose", None),
    ):
        compute.place_disk(name, machine)


class Room:
    """A furnished cloud, its judge, and drivers for it."""

    def __init__(self, dialect: Dialect, stack: contextlib.ExitStack, **cloud):
        self.stack = stack
        # Short, because a unix socket's path may have 107 bytes.
        self.folder = Path(tempfile.mkdtemp(prefix="lazuli-foreign-"))
        stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
        self.cloud = stack.enter_context(Cloud(dialect, **cloud))
        furnish(self.cloud)
        self.judge = Judge(self.cloud)
        self.drivers: list[Driver] = []

    def driver(self, *options: str, **config) -> Driver:
        driver = Driver(self.cloud, self.folder / f"driver-{len(self.drivers)}", *options, **config)
        self.drivers.append(driver)
        return self.stack.enter_context(driver)


class Town:
    """A cloud with a network, a cluster of three nodes, judges, and cloud controllers for both."""

    def __init__(self, dialect: Dialect, stack: contextlib.ExitStack):
        self.stack = stack
        self.folder = Path(tempfile.mkdtemp(prefix="lazuli-foreign-"))
        stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
        self.cloud = stack.enter_context(Cloud(dialect))
        self.cluster = stack.enter_context(Cluster())
        furnish(self.cloud)
        lay_out(self.cloud, "Basic" if dialect.stack else "Standard")
        self.judge = NetworkJudge(self.cloud)
        self.kubectl = Kubectl(self.cluster)
        for name, number in NODES.items():
            self.kubectl.node(name.lower(), number, provider_id(self.cloud, name))
        self.processes: list[Controllers] = []

    def controllers(self, *options: str, **config) -> Controllers:
        """Starts the process, with the service controller alone unless the options say otherwise."""
        if not any(option.startswith("--controllers") for option in options):
            options = ("--controllers=service-lb", *options)
        folder = self.folder / f"controllers-{len(self.processes)}"
        self.processes.append(Controllers(self.cloud, self.cluster, folder, *options, **config))
        return self.stack.enter_context(self.processes[-1])


    def settled(self, controllers: Controllers, seconds: float = 2) -> bool:
        """Whether the process leads and has asked the cloud nothing for a while."""
        if "this replica leads" not in controllers.log_text():
            return False
        with self.cloud.lock:
            last = self.cloud.log[-1].at
        return time.monotonic() - self.cloud.epoch - last > seconds and self.judge.quiet()


@pytest.fixture
def town(request):
    """`town(dialect)` makes a cloud with a cluster. On failure its requests and the controllers' log are printed."""
    made = []
    with contextlib.ExitStack() as stack:

        def make(dialect: Dialect) -> Town:
            made.append(Town(dialect, stack))
            return made[-1]

        yield make
        for each in made:
            if getattr(request.node, "failed", False):
                print(*each.cloud.log[-100:], sep="\n")
                print("unknown to the cluster:", each.cluster.unknown)
                print(*each.cluster.writes[-40:], sep="\n")
                for controllers in each.processes:
                    print(f"--- the end of the controllers' log\n{controllers.log_text()[-8000:]}")


@pytest.fixture
def room(request):
    """`room(dialect)` furnishes a cloud. On failure its requests and the driver's log are printed."""
    made = []
    with contextlib.ExitStack() as stack:

        def make(dialect: Dialect, **cloud) -> Room:
            made.append(Room(dialect, stack, **cloud))
            return made[-1]

        yield make
        for each in made:
            print(f"\nrequests in {each.cloud.dialect.name!r}: {each.judge.report()}")
            if getattr(request.node, "failed", False):
                print(*each.cloud.log[-80:], sep="\n")
                for driver in each.drivers:
                    print(f"--- the end of the driver's log\n{driver.log_text()[-6000:]}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.when == "call":
        item.failed = report.failed
    return report
