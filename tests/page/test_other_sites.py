"""A page of another site cannot read or drive the emulator through the browser of someone who visits it."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from browser import ELSEWHERE, REBOUND

INCIDENT = json.dumps({"match": {"method": "GET"}, "then": {"status": 500}})


class Site(BaseHTTPRequestHandler):
    """An empty page."""

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>elsewhere</title><body>elsewhere")

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def site():
    """The address of another site, which this machine serves."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Site)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://{ELSEWHERE}:{server.server_port}/"
    server.shutdown()
    server.server_close()


@pytest.fixture
def elsewhere(windows, site):
    browser = windows()
    browser.open(site)
    return browser


def test_a_rebound_host_name_gets_neither_the_page_nor_an_answer(emulator, windows):
    browser = windows()
    browser.open(f"http://{REBOUND}:{emulator.port}/")
    assert REBOUND in browser.text() and "localhost" in browser.text()
    # The browser takes these requests for ones of the same site.
    for path in ["/_emulator/state", "/_emulator/overview", "/_emulator/calls", "/_emulator/page.js"]:
        status, answer = browser.fetch(path)
        assert status == 421, answer
    for method in ["POST", "DELETE"]:
        headers = {"Content-Type": "application/json"}
        status, answer = browser.fetch("/_emulator/incidents", method=method, headers=headers, body=INCIDENT)
        assert status == 421, answer
    assert emulator.control("incidents") == []


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
def test_a_form_of_another_site_is_refused(emulator, elsewhere, kind):
    elsewhere.run(
        """
        const [action, kind, body] = arguments;
        const form = document.createElement("form");
        Object.assign(form, { method: "POST", action, enctype: kind });
        // The body of text/plain is name=value: this one is the incident as JSON, with a member more.
        const field = document.createElement("input");
        Object.assign(field, { name: body.slice(0, -1) + ',"x":"', value: '"}' });
        form.append(field);
        document.body.append(form);
        form.submit();
        """,
        emulator.url + "/_emulator/incidents", kind, INCIDENT,
    )
    elsewhere.wait("location.pathname === '/_emulator/incidents' && document.body.innerText.includes('error')")
    assert "another site" in elsewhere.text()
    assert emulator.control("incidents") == []


def test_a_script_of_another_site_changes_and_reads_nothing(emulator, elsewhere):
    emulator.disk("private")
    before = emulator.control("counters")["calls"]
    url = emulator.url + "/_emulator/"
    for options in [
        {"method": "POST", "mode": "no-cors", "headers": {"Content-Type": "text/plain"}, "body": INCIDENT},
        {"method": "POST", "headers": {"Content-Type": "application/json"}, "body": INCIDENT},
        {"method": "POST", "headers": {"Content-Type": "text/plain"}, "body": INCIDENT},
        {"method": "DELETE"},
    ]:
        for path in ["incidents", "calls", "buckets/fill"]:
            status, answer = elsewhere.fetch(url + path, **options)
            # Opaque, or refused by the browser.
            assert status in (0, "TypeError") and "private" not in answer
    for path in ["state", "calls", "overview"]:
        status, answer = elsewhere.fetch(url + path)
        assert status == "TypeError" and "private" not in answer
    assert emulator.control("incidents") == []
    assert emulator.control("counters")["calls"] == before
    # The same request of a program is accepted: what refused the others is who asked.
    status, answer, _ = emulator.send("POST", "/_emulator/incidents", INCIDENT.encode(), {"Content-Type": "application/json"})
    assert status == 201, answer


def test_another_site_cannot_frame_the_page(emulator, site, elsewhere):
    assert "elsewhere" in elsewhere.framed(site)
    assert "Lazuli" not in elsewhere.framed(emulator.url + "/")


def test_a_link_of_another_site_opens_the_page(emulator, elsewhere):
    elsewhere.run("location.href = arguments[0]", emulator.url + "/")
    elsewhere.wait("document.title === 'Lazuli emulator' && document.querySelector('#live').textContent === 'live'")
