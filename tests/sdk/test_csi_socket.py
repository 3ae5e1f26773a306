"""A client on gRPC's C core, whose name for a unix socket is its percent-encoded path.

No message types are needed: an empty request is no bytes, and a name can be found in an answer's bytes.
"""

import os
import subprocess
import time

import grpc
import pytest


@pytest.fixture
def controller(emulator, tmp_path):
    """The socket of a controller on the emulator, in a folder whose name has to be encoded."""
    folder = tmp_path / "a folder"
    folder.mkdir()
    socket = folder / "csi.sock"
    log = (tmp_path / "controller.log").open("wb")
    process = subprocess.Popen(
        [
            os.environ["LAZULI_BIN"], "csi-controller",
            "--endpoint", f"unix://{socket}",
            "--cloud-config", str(emulator.azure_json),
        ],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        env={"SSL_CERT_FILE": str(emulator.ca)},
    )
    try:
        deadline = time.monotonic() + 30
        while not socket.exists():
            assert process.poll() is None and time.monotonic() < deadline, (tmp_path / "controller.log").read_text()
            time.sleep(0.02)
        yield socket
    finally:
        process.terminate()
        process.wait(timeout=30)


def test_the_c_core_is_served_on_a_unix_socket(controller):
    with grpc.insecure_channel(f"unix://{controller}") as channel:
        info = channel.unary_unary("/csi.v1.Identity/GetPluginInfo")
        for _ in range(3):
            assert b"disk.csi.azure.com" in info(b"", timeout=10)
        with pytest.raises(grpc.RpcError) as refused:
            channel.unary_unary("/csi.v1.Controller/DeleteVolume")(b"", timeout=10)
        assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert "volume_id" in refused.value.details()
