"""Headless Chromium over the WebDriver protocol: JSON over HTTP to chromedriver.

Owns both processes. Waiting is done inside the page, by its own changes; nothing here sleeps.
"""

import base64
import json
import os
import re
import subprocess
import tempfile
import urllib.error
import urllib.request

# Names of other sites, which lead to this machine: no DNS and no network is asked.
ELSEWHERE = "elsewhere.example"
REBOUND = "rebound.example"

ARGUMENTS = [
    "--headless",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    f"--host-resolver-rules=MAP {ELSEWHERE} 127.0.0.1, MAP {REBOUND} 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
]

# The longest wait for something that the page should show.
PATIENCE_MS = 20_000


class Driver:
    """A chromedriver process, ended with the `with` block."""

    def __enter__(self):
        self.process = subprocess.Popen(
            ["chromedriver", "--port=0"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        printed = b""
        for line in self.process.stdout:
            printed += line
            if found := re.search(rb"started successfully on port (\d+)", line):
                self.url = f"http://127.0.0.1:{found.group(1).decode()}"
                return self
        raise RuntimeError(f"chromedriver did not start; it printed {printed!r}")

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(timeout=20)
        self.process.stdout.close()

    def send(self, method: str, path: str, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            told = json.load(error)["value"]
            raise AssertionError(f"{told['error']}: {told['message']}") from None


class Browser:
    """A browser window with a profile of its own."""

    def __init__(self, driver: Driver, width: int, height: int):
        self.driver = driver
        self.profile = tempfile.TemporaryDirectory(prefix="lazuli-page-")
        arguments = [*ARGUMENTS, f"--user-data-dir={self.profile.name}", f"--window-size={width},{height}"]
        if os.geteuid() == 0:
            # Chromium's own sandbox does not start as root.
            arguments.append("--no-sandbox")
        options = {
            "args": arguments,
            # A window is never narrower than 500 pixels; an emulated screen is.
            "mobileEmulation": {"deviceMetrics": {"width": width, "height": height, "pixelRatio": 1, "mobile": False}},
        }
        wanted = {
            "browserName": "chrome",
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL"},
            "timeouts": {"script": PATIENCE_MS, "pageLoad": PATIENCE_MS},
        }
        session = driver.send("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self.path = f"/session/{session['sessionId']}"

    def close(self):
        self.driver.send("DELETE", self.path)
        self.profile.cleanup()

    def open(self, url: str):
        self.driver.send("POST", self.path + "/url", {"url": url})

    def run(self, script: str, *arguments):
        """Runs a script in the page and gives what it returns."""
        return self.driver.send("POST", self.path + "/execute/sync", {"script": script, "args": list(arguments)})

    def wait(self, condition: str):
        """Waits until an expression is true in the page, looking whenever the page changes; gives its value."""
        script = f"""
            const done = arguments[0];
            const seen = () => {{ try {{ return {condition}; }} catch {{ return null; }} }};
            const now = seen();
            if (now) return done(now);
            const observer = new MutationObserver(() => {{
                const now = seen();
                if (now) {{ observer.disconnect(); done(now); }}
            }});
            observer.observe(document, {{ subtree: true, childList: true, characterData: true, attributes: true }});
        """
        try:
            return self.driver.send("POST", self.path + "/execute/async", {"script": script, "args": []})
        except AssertionError as error:
            raise AssertionError(f"never true: {condition}\n{error}\nthe page shows:\n{self.text()}") from None

    def text(self) -> str:
        return self.run("return document.body.innerText")

    def fetch(self, path: str, **options):
        """Status and text of a request that the page itself makes; the error's name where the browser refuses."""
        script = """
            const [path, options, done] = arguments;
            fetch(path, options)
                .then(async (answer) => done([answer.status, await answer.text()]))
                .catch((error) => done([error.name, String(error)]));
        """
        return self.driver.send("POST", self.path + "/execute/async", {"script": script, "args": [path, options]})

    def framed(self, url: str) -> str:
        """The source of what the page shows in a frame of this address; of the browser's error where it refuses."""
        script = """
            const [src, done] = arguments;
            const frame = document.createElement("iframe");
            frame.onload = () => done(frame);
            frame.src = src;
            document.body.append(frame);
        """
        frame = self.driver.send("POST", self.path + "/execute/async", {"script": script, "args": [url]})
        self.driver.send("POST", self.path + "/frame", {"id": frame})
        source = self.driver.send("GET", self.path + "/source")
        self.driver.send("POST", self.path + "/frame", {"id": None})
        return source

    def screenshot(self) -> bytes:
        """The window as PNG."""
        return base64.b64decode(self.driver.send("GET", self.path + "/screenshot"))

    def logged(self) -> list[dict]:
        """What the browser wrote to its console since the last call."""
        return self.driver.send("POST", self.path + "/se/log", {"type": "browser"})
