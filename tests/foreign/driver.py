"""`lazuli csi-controller` as a process, and a CSI client as the sidecars are one.

Owns the process, its configuration files and the socket. Written from the README and `--help`.
"""

import json
import os
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import csi_pb2 as csi
import csi_pb2_grpc as services
import grpc

from authority import CLIENT, SECRET, TENANT
from cloud import GROUP, SUBSCRIPTION, Cloud
from compute import GIB, LOCATION

# Codes after which the sidecars come again with the same request. Source: external-provisioner,
# isFinalError, and the CSI specification's error scheme.
RETRYABLE = {
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.UNAVAILABLE,
}
WRITER = csi.VolumeCapability.AccessMode.SINGLE_NODE_WRITER


def capability(mode=WRITER) -> csi.VolumeCapability:
    return csi.VolumeCapability(
        mount=csi.VolumeCapability.MountVolume(fs_type="ext4"),
        access_mode=csi.VolumeCapability.AccessMode(mode=mode),
    )


def cloud_config(cloud: Cloud, **changes) -> dict:
    """An azure.json for this cloud."""
    config = {
        "tenantId": TENANT,
        "subscriptionId": SUBSCRIPTION,
        "resourceGroup": GROUP,
        "location": LOCATION,
        "vmType": "standard",
        "aadClientId": CLIENT,
        "aadClientSecret": SECRET,
    }
    match cloud.dialect.configured:
        case "discovered":
            config["resourceManagerEndpoint"] = cloud.url
        case "stack":
            config |= {"cloud": "AzureStackCloud", "resourceManagerEndpoint": f"{cloud.url}/"}
        case "file":
            config["cloud"] = "AzureStackCloud" if cloud.dialect.stack else "AzurePublicCloud"
    return config | changes


def channel(socket: Path) -> grpc.Channel:
    """A connection to a socket."""
    return grpc.insecure_channel(f"unix:{socket}")


def process_environment(cloud: Cloud, folder: Path) -> dict[str, str]:
    """The variables of a process that knows this Azure, and no cluster and no other Azure that the shell may know."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("AZURE_", "LAZULI_", "KUBE")) and not name.lower().endswith("_proxy")
    }
    if cloud.dialect.configured == "file":
        path = folder / "environment.json"
        path.write_text(json.dumps(cloud.authority.endpoint_file()))
        environment["AZURE_ENVIRONMENT_FILEPATH"] = str(path)
    return environment


class Driver:
    """The controller and a client of it. `with` ends the process; `kill` and `start` are what tests do to it."""

    def __init__(self, cloud: Cloud, folder: Path, *options: str, environment: dict | None = None, **config):
        self.cloud, self.folder, self.options = cloud, folder, options
        folder.mkdir(parents=True, exist_ok=True)
        self.socket = folder / "csi.sock"
        self.config = folder / "azure.json"
        self.config.write_text(json.dumps(cloud_config(cloud, **config)))
        self.environment = process_environment(cloud, folder) | (environment or {})
        self.log = (folder / "controller.log").open("ab")
        self.process = None

    def __enter__(self) -> "Driver":
        self.start()
        return self

    def __exit__(self, *_) -> None:
        self.channel.close()
        self.process.terminate()
        try:
            self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()

    def start(self) -> None:
        command = [
            os.environ["LAZULI_BIN"],
            "csi-controller",
            "--endpoint",
            f"unix://{self.socket}",
            "--cloud-config",
            str(self.config),
            "--drain-seconds",
            "1",
            "--log",
            "debug,h2=info,hyper=info,hyper_util=info,tower=info",
            *self.options,
        ]
        self.process = subprocess.Popen(
            command, env=self.environment, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log
        )
        self.channel = channel(self.socket)
        self.identity = services.IdentityStub(self.channel)
        self.controller = services.ControllerStub(self.channel)
        deadline = time.monotonic() + 30
        while True:
            # A first connection that fails is tried again after a second only.
            while not self.socket.exists() and self.process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.01)
            try:
                self.identity.GetPluginInfo(csi.GetPluginInfoRequest(), timeout=5)
                return
            except grpc.RpcError as error:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"the controller does not serve:\n{self.log_text()[-2000:]}") from error
                time.sleep(0.05)

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.wait()
        self.channel.close()

    def log_text(self) -> str:
        return (self.folder / "controller.log").read_text(errors="replace")

    # ---- the calls, each as a sidecar makes it

    def create(self, name: str, gib: int = 10, timeout: float = 60, limit: int = 0, mode=WRITER, **parameters):
        return self.controller.CreateVolume(
            csi.CreateVolumeRequest(
                name=name,
                capacity_range=csi.CapacityRange(required_bytes=gib * GIB, limit_bytes=limit * GIB),
                volume_capabilities=[capability(mode)],
                parameters={"skuName": "Standard_LRS", **parameters},
            ),
            timeout=timeout,
        ).volume

    def delete(self, volume: str, timeout: float = 60) -> None:
        self.controller.DeleteVolume(csi.DeleteVolumeRequest(volume_id=volume), timeout=timeout)

    def publish(self, volume: str, node: str, timeout: float = 60, mode=WRITER) -> int:
        """Attaches, and returns the LUN that the node is told."""
        answer = self.controller.ControllerPublishVolume(
            csi.ControllerPublishVolumeRequest(volume_id=volume, node_id=node, volume_capability=capability(mode)),
            timeout=timeout,
        )
        return int(answer.publish_context["LUN"])

    def unpublish(self, volume: str, node: str, timeout: float = 60) -> None:
        self.controller.ControllerUnpublishVolume(
            csi.ControllerUnpublishVolumeRequest(volume_id=volume, node_id=node), timeout=timeout
        )

    def expand(self, volume: str, gib: int, timeout: float = 60) -> int:
        """Returns the new size in GiB."""
        answer = self.controller.ControllerExpandVolume(
            csi.ControllerExpandVolumeRequest(
                volume_id=volume, capacity_range=csi.CapacityRange(required_bytes=gib * GIB)
            ),
            timeout=timeout,
        )
        return answer.capacity_bytes // GIB

    def validate(self, volume: str, timeout: float = 60) -> bool:
        answer = self.controller.ValidateVolumeCapabilities(
            csi.ValidateVolumeCapabilitiesRequest(volume_id=volume, volume_capabilities=[capability()]),
            timeout=timeout,
        )
        return answer.HasField("confirmed")

    def volumes(self, page: int = 0) -> dict[str, list[str]]:
        """ListVolumes to its end: volume -> nodes."""
        found, token = {}, ""
        while True:
            answer = self.controller.ListVolumes(
                csi.ListVolumesRequest(max_entries=page, starting_token=token), timeout=60
            )
            for entry in answer.entries:
                assert entry.volume.volume_id not in found, "a volume is listed twice"
                found[entry.volume.volume_id] = sorted(entry.status.published_node_ids)
            token = answer.next_token
            if not token:
                return found


def persistently(call, *arguments, seconds: float = 60, also: frozenset | set = frozenset()):
    """A call as a sidecar makes it: again, with a growing pause, as long as the code says that it may succeed.

    external-attacher comes again after any code; where a test means that, it names the code in `also`.
    """
    deadline, pause = time.monotonic() + seconds, 0.1
    while True:
        try:
            return call(*arguments)
        except grpc.RpcError as error:
            if error.code() not in RETRYABLE | also or time.monotonic() > deadline:
                raise
            time.sleep(pause)
            pause = min(pause * 2, 2)


def at_once(calls: list) -> list:
    """Makes calls (functions without arguments) at the same time; returns results in order, raises the first error."""
    with ThreadPoolExecutor(max_workers=max(1, len(calls))) as pool:
        return [future.result() for future in [pool.submit(call) for call in calls]]


def code_of(call, *arguments, **options) -> grpc.StatusCode:
    """The code of a call; OK when it succeeds."""
    try:
        call(*arguments, **options)
    except grpc.RpcError as error:
        return error.code()
    return grpc.StatusCode.OK
