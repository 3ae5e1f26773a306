"""The picture of the page for the README: a small cluster, an incident in force and an operation under way."""

import json
import sys
import tempfile
from pathlib import Path

from browser import Browser, Driver
from cloud import COMPUTE, Emulator
from scene import LAZULI, SCENARIO, Scene

WIDTH, HEIGHT = 1200, 820
# What a page of a repository may weigh.
MOST_BYTES = 200_000
INCIDENT = {
    "match": {"method": "PUT|PATCH|DELETE", "path": "*/loadBalancers/*"},
    "then": {"status": 429, "code": "TooManyRequests", "retryAfter": 5},
    "times": 3,
}


def main(path: Path):
    with tempfile.TemporaryDirectory(prefix="lazuli-picture-") as folder, Driver() as driver:
        scenario = Path(folder) / "scenario.json"
        scenario.write_text(json.dumps(SCENARIO))
        with Emulator(Path(folder), "--scenario", str(scenario), "--latency", "typical") as emulator:
            Scene(emulator).whole()
            body = json.dumps(INCIDENT).encode()
            status, answer, _ = emulator.send("POST", "/_emulator/incidents", body, {"Content-Type": "application/json"})
            assert status == 201, answer
            emulator.attach("node-2", ("pvc-cache", 0), agent=LAZULI)
            emulator.arm("GET", f"{COMPUTE}/virtualMachines/node-2", None, "2025-04-01", "AZURECLI/2.80.0")
            browser = Browser(driver, WIDTH, HEIGHT)
            try:
                browser.open(emulator.url + "/")
                browser.wait("document.querySelector('#operations tbody tr') && document.querySelector('#incidents li')")
                picture = browser.screenshot()
            finally:
                browser.close()
    if len(picture) > MOST_BYTES:
        sys.exit(f"the picture has {len(picture)} bytes, more than {MOST_BYTES}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(picture)
    print(f"{path}: {WIDTH} by {HEIGHT}, {len(picture)} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
