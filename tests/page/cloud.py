"""The emulator as a process, and an ARM client that knows nothing of it but its address."""

import json
import os
import subprocess
import urllib.error
import urllib.parse
import urllib.request
import uuid
from pathlib import Path

TENANT = "00000000-0000-0000-0000-000000000002"
CLIENT = "00000000-0000-0000-0000-000000000003"
SECRET = "lazuli-emulator-secret"
GROUP = "/subscriptions/00000000-0000-0000-0000-000000000001/resourceGroups/lazuli"
COMPUTE = f"{GROUP}/providers/Microsoft.Compute"
STORAGE = f"{GROUP}/providers/Microsoft.Storage"


class Emulator:
    """A `lazuli emulator` process, ended with the `with` block."""

    def __init__(self, folder: Path, *options: str, listen: str = "127.0.0.1:0"):
        self.log = (folder / f"emulator-{uuid.uuid4().hex[:6]}.log").open("wb")
        command = [os.environ["LAZULI_BIN"], "emulator", "--listen", listen, "--output", "json", *options]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.log)

    def __enter__(self):
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the emulator did not start, see {self.log.name}")
        self.url = json.loads(line)["url"]
        self.port = urllib.parse.urlsplit(self.url).port
        form = {
            "grant_type": "client_credentials",
            "client_id": CLIENT,
            "client_secret": SECRET,
            "scope": "https://management.azure.com/.default",
        }
        body = urllib.parse.urlencode(form).encode()
        kind = {"Content-Type": "application/x-www-form-urlencoded"}
        status, answer, _ = self.send("POST", f"/{TENANT}/oauth2/v2.0/token", body, kind)
        assert status == 200, answer
        self.token = json.loads(answer)["access_token"]
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        self.process.terminate()
        self.process.wait(timeout=20)
        self.process.stdout.close()
        self.log.close()

    def send(self, method: str, path: str, body: bytes | None = None, headers: dict | None = None):
        """Status, body and headers of one request."""
        request = urllib.request.Request(self.url + path, body, headers or {}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read().decode(), answer.headers
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode(), error.headers

    def control(self, path: str):
        """What the control interface tells."""
        status, body, _ = self.send("GET", f"/_emulator/{path}")
        assert status == 200, body
        return json.loads(body)

    def arm(self, method: str, path: str, body=None, version: str = "2025-01-02", agent: str = "page-tests/1"):
        """One request to the resource manager: status, body, headers."""
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json", "User-Agent": agent}
        data = None if body is None else json.dumps(body).encode()
        return self.send(method, f"{path}?api-version={version}", data, headers)

    def disk(self, name: str, tags: dict | None = None, gib: int = 8):
        """Begins to create a disk."""
        body = {
            "location": "westeurope",
            "sku": {"name": "Premium_LRS"},
            "tags": tags or {},
            "properties": {"creationData": {"createOption": "Empty"}, "diskSizeGB": gib},
        }
        status, answer, _ = self.arm("PUT", f"{COMPUTE}/disks/{name}", body)
        assert status == 202, answer

    def attach(self, machine: str, *disks: tuple[str, int], agent: str = "page-tests/1"):
        """Begins to attach disks, each a name with its LUN; gives the answer's headers."""
        listed = [{"diskId": f"{COMPUTE}/disks/{disk}", "lun": lun} for disk, lun in disks]
        path = f"{COMPUTE}/virtualMachines/{machine}/attachDetachDataDisks"
        status, answer, headers = self.arm("POST", path, {"dataDisksToAttach": listed}, "2025-04-01", agent)
        assert status == 202, answer
        return headers
