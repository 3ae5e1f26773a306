"""The node plugin and the instance metadata service in its moods; and what `doctor` says of this cloud."""

import contextlib
import json
import os
import subprocess
import time
from pathlib import Path

import csi_pb2 as csi
import csi_pb2_grpc as services
import grpc
import pytest

from dialect import PUBLIC, STACK
from driver import Driver, channel, code_of, persistently

INSTANCE = "/metadata/instance"


@pytest.mark.parametrize(
    "fault",
    [
        {"status": 429, "headers": {"Retry-After": "1"}},
        {"status": 404},
        {"status": 410},
        {"status": 502, "body": b"<html>"},
        {"drop": "before"},
        {"delay": 30.0},
    ],
    ids=["throttled", "absent", "gone", "html", "dropped", "slow"],
)
def test_a_node_answers_kubelet_in_time_and_with_the_truth_once_the_metadata_service_is_well(room, fault):
    here = room(PUBLIC)
    fault = here.cloud.fault("GET", INSTANCE, times=1000, **fault)
    socket, root = here.folder / "node.sock", here.folder / "root"
    for folder in ("sys/class", "dev"):
        (root / folder).mkdir(parents=True)
    command = [
        os.environ["LAZULI_BIN"],
        "csi-node",
        "--node-id",
        "node-0",
        "--endpoint",
        f"unix://{socket}",
        "--state-dir",
        str(here.folder / "state"),
        "--host-root",
        str(root),
        "--imds-url",
        here.cloud.url,
        "--drain-seconds",
        "1",
    ]
    with process(command, here.folder / "node.log", socket), channel(socket) as calls:
        node = services.NodeStub(calls)

        def info():
            # kubelet's own patience is in this order. It may be told to come again, and no untruth.
            return node.NodeGetInfo(csi.NodeGetInfoRequest(), timeout=5, wait_for_ready=True)

        assert code_of(info) in {grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE}
        fault.times = 0
        told = persistently(info, seconds=20)
        assert told.node_id == "node-0"
        assert told.max_volumes_per_node == 16, "as the published table says of this size"
        # What was learned is remembered.
        fault.times, fault.hits = 1000, 0
        assert info() == told
    # Documented: five requests a second and machine.
    asked = [each.at for each in here.cloud.requests("GET", INSTANCE)]
    assert all(later - earlier >= 0.95 for earlier, later in zip(asked, asked[5:], strict=False)), (
        "more than five requests in a second"
    )


@contextlib.contextmanager
def process(command: list[str], log: Path, socket: Path):
    """A process that makes a socket."""
    with log.open("wb") as output:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        try:
            deadline = time.monotonic() + 20
            while not socket.exists():
                assert child.poll() is None and time.monotonic() < deadline, log.read_text()
                time.sleep(0.02)
            yield child
        finally:
            child.terminate()
            try:
                child.wait(timeout=20)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


@pytest.mark.parametrize("dialect", [PUBLIC, STACK], ids=["public", "stack"])
def test_doctor_finds_nothing_wrong_with_a_cloud_that_is_well_and_names_what_is_not(room, dialect):
    here = room(dialect)
    driver = Driver(here.cloud, here.folder / "doctor")

    def doctor(*options: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            [os.environ["LAZULI_BIN"], "doctor", "--cloud-config", str(driver.config), "--output", "json", *options],
            env=driver.environment,
            capture_output=True,
            text=True,
            timeout=60,
            stdin=subprocess.DEVNULL,
        )

    # The driver's configuration names no network: enough for volumes, not for Services.
    well = doctor("--volumes-only")
    assert well.returncode == 0, well.stdout + well.stderr
    assert json.loads(well.stdout)["ok"]
    for_services = doctor()
    assert for_services.returncode == 1
    assert "lazuli cloud-controllers does not start" in for_services.stdout
    here.cloud.fault(
        "POST",
        "/oauth2/",
        times=1000,
        status=401,
        body=b'{"error":"invalid_client","error_description":"AADSTS7000215: Invalid client secret provided."}',
    )
    ill = doctor("--volumes-only")
    assert ill.returncode == 1
    assert "AADSTS7000215" in ill.stdout + ill.stderr
    driver.log.close()
