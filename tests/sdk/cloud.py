"""The emulator as the official SDK sees it: a cloud with its own addresses.

Owns the emulator's process, the credential and the clients. The SDK's own defaults stay: its retries,
its pollers, its authority validation over TLS. Only the addresses and the certificate are ours.
"""

import json
import os
import re
import select
import subprocess
import time
import uuid
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from azure.core.exceptions import HttpResponseError
from azure.core.rest import HttpRequest
from azure.identity import ClientSecretCredential
from azure.mgmt.compute import ComputeManagementClient
from azure.mgmt.resource.resources import ResourceManagementClient

NETWORK_API = "2025-05-01"
LOCATION = "westeurope"


class Emulator:
    """A `lazuli emulator` process with TLS, ended with the `with` block."""

    def __init__(self, folder: Path):
        binary = os.environ["LAZULI_BIN"]
        self.azure_json = folder / "azure.json"
        self.ca = folder / "tls" / "ca.pem"
        self.log = (folder / "emulator.log").open("wb")
        self.process = subprocess.Popen(
            [
                binary, "emulator",
                "--listen", "127.0.0.1:0",
                "--tls", "127.0.0.1:0",
                "--tls-dir", str(folder / "tls"),
                "--latency", "none", "--retry-after", "0",
                "--azure-json", str(self.azure_json),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self.log,
        )

    def __enter__(self):
        self.url = self._https_address(deadline=time.monotonic() + 60)
        return self

    def _https_address(self, deadline: float) -> str:
        """Reads what the emulator prints until it has named its TLS address."""
        printed = b""
        while time.monotonic() < deadline:
            ready, _, _ = select.select([self.process.stdout], [], [], 0.2)
            if ready:
                chunk = os.read(self.process.stdout.fileno(), 4096)
                if not chunk:
                    break
                printed += chunk
            found = re.search(rb"https://[\w.-]+:\d+", printed)
            if found:
                return found.group().decode()
        raise RuntimeError(f"the emulator did not start; it printed {printed!r}, see {self.log.name}")

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()


@dataclass
class Cloud:
    """Clients that are signed in to one subscription of the emulator."""

    url: str
    subscription: str
    credential: ClientSecretCredential
    ca: str

    @classmethod
    def sign_in(cls, emulator: Emulator) -> "Cloud":
        config = json.loads(emulator.azure_json.read_text())
        ca = str(emulator.ca)
        credential = ClientSecretCredential(
            tenant_id=config["tenantId"],
            client_id=config["aadClientId"],
            client_secret=config["aadClientSecret"],
            authority=emulator.url,
            # The metadata of well-known clouds is not here; everything else of the sign-in is checked.
            disable_instance_discovery=True,
            connection_verify=ca,
        )
        return cls(url=emulator.url, subscription=config["subscriptionId"], credential=credential, ca=ca)

    def client(self, kind):
        """A client of the SDK, of this kind."""
        return kind(
            self.credential,
            self.subscription,
            base_url=self.url,
            credential_scopes=["https://management.azure.com/.default"],
            connection_verify=self.ca,
        )

    @cached_property
    def compute(self):
        return self.client(ComputeManagementClient)

    @cached_property
    def resources(self):
        return self.client(ResourceManagementClient)

    def send(self, method: str, path: str, *, json_body=None, headers=None):
        """A request that the typed clients cannot or will not make, through their own pipeline."""
        return self.compute.send_request(
            HttpRequest(method, self.url + path, json=json_body, headers=headers or {})
        )

    def put_network_resource(self, group: str, kind: str, name: str, body: dict) -> str:
        """Creates a network resource and waits until it is there. Returns its id."""
        path = (
            f"/subscriptions/{self.subscription}/resourceGroups/{group}"
            f"/providers/Microsoft.Network/{kind}/{name}"
        )
        url = f"{path}?api-version={NETWORK_API}"
        answer = self.send("PUT", url, json_body=body)
        answer.raise_for_status()
        for _ in range(100):
            answer = self.send("GET", url)
            answer.raise_for_status()
            if answer.json()["properties"]["provisioningState"] == "Succeeded":
                return path
        raise AssertionError(f"{kind} {name} is never ready: {answer.text()}")


@dataclass
class Group:
    """A resource group of one test, with shorthands for what tests make in it."""

    cloud: Cloud
    name: str

    def disk(self, name: str, **properties) -> str:
        """Creates a disk and returns its id."""
        body = {
            "location": LOCATION,
            "sku": {"name": properties.pop("sku", "Premium_LRS")},
            "properties": {
                "creationData": {"createOption": "Empty"},
                "diskSizeGB": properties.pop("gib", 8),
                **properties,
            },
        }
        return self.cloud.compute.disks.begin_create_or_update(self.name, name, body).result().id

    def machine(self, name: str, size: str = "Standard_D2s_v3") -> "Machine":
        """Creates a network, an interface and a virtual machine."""
        network = self.cloud.put_network_resource(
            self.name, "virtualNetworks", f"{name}-net",
            {
                "location": LOCATION,
                "properties": {
                    "addressSpace": {"addressPrefixes": ["10.1.0.0/16"]},
                    "subnets": [{"name": "nodes", "properties": {"addressPrefix": "10.1.0.0/24"}}],
                },
            },
        )
        interface = self.cloud.put_network_resource(
            self.name, "networkInterfaces", f"{name}-nic",
            {
                "location": LOCATION,
                "properties": {
                    "ipConfigurations": [
                        {"name": "first", "properties": {"subnet": {"id": f"{network}/subnets/nodes"}}}
                    ]
                },
            },
        )
        body = {
            "location": LOCATION,
            "properties": {
                "hardwareProfile": {"vmSize": size},
                "osProfile": {
                    "computerName": name,
                    "adminUsername": "someone",
                    "adminPassword": str(uuid.uuid4()) + "Aa1!",
                },
                "networkProfile": {"networkInterfaces": [{"id": interface}]},
                "storageProfile": {
                    "imageReference": {
                        "publisher": "Canonical",
                        "offer": "ubuntu-24_04-lts",
                        "sku": "server",
                        "version": "latest",
                    },
                    "osDisk": {
                        "name": f"{name}-os",
                        "createOption": "FromImage",
                        "caching": "ReadWrite",
                        "managedDisk": {"storageAccountType": "Premium_LRS"},
                    },
                },
            },
        }
        self.cloud.compute.virtual_machines.begin_create_or_update(self.name, name, body).result()
        return Machine(self, name)


@dataclass
class Machine:
    """A virtual machine of a test."""

    group: Group
    name: str

    @property
    def operations(self):
        return self.group.cloud.compute.virtual_machines

    def read(self):
        return self.operations.get(self.group.name, self.name)

    def write(self, machine, **conditions):
        return self.operations.begin_create_or_update(
            self.group.name, self.name, machine, **conditions
        ).result()

    def attach(self, *disks: tuple[str, int | None]):
        """Attaches disks, each an id with its LUN, in one request."""
        wanted = [{"diskId": disk} if lun is None else {"diskId": disk, "lun": lun} for disk, lun in disks]
        return self.operations.begin_attach_detach_data_disks(
            self.group.name, self.name, {"dataDisksToAttach": wanted}
        ).result()

    def detach(self, *disks: str):
        return self.operations.begin_attach_detach_data_disks(
            self.group.name, self.name, {"dataDisksToDetach": [{"diskId": disk} for disk in disks]}
        ).result()

    def luns(self) -> dict[int, str]:
        """LUN -> disk id in lower case, as the machine's own model says."""
        return {
            disk.lun: disk.managed_disk.id.lower() for disk in self.read().storage_profile.data_disks or []
        }


def refusal(call) -> HttpResponseError:
    """The error of a call that must fail, with an ARM error body."""
    try:
        call()
    except HttpResponseError as error:
        assert error.error is not None, f"no ARM error body: {error.response.text() if error.response else error}"
        return error
    raise AssertionError("the request was accepted")
