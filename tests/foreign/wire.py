"""HTTP as servers speak it: requests in, answers out in the form that a dialect gives them, and orderly faults.

Owns sockets, headers that every answer has, and encodings. Knows nothing of Azure.
"""

import codecs
import gzip
import json
import re
import secrets
import socket
import time
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from dialect import Dialect


@dataclass
class Fault:
    """What goes wrong, for the next `times` requests that match."""

    method: str
    path: str
    times: int = 1
    # The answer in place of the real one.
    status: int | None = None
    headers: dict = field(default_factory=dict)
    body: bytes = b""
    # "before": the connection ends and nothing happened; "after": it ends and the request was carried out;
    # "within": half of the answer is sent.
    drop: str | None = None
    delay: float = 0.0
    # What happens between this request and the next, with the cloud's lock held.
    then: Callable[[], None] | None = None
    hits: int = 0

    def takes(self, method: str, path: str) -> bool:
        return (
            self.hits < self.times and method == self.method and re.search(self.path, path, re.IGNORECASE) is not None
        )


@dataclass
class Exchange:
    """One request, and what was answered."""

    at: float
    method: str
    path: str
    query: str
    body: dict | None
    if_match: str | None
    status: int | None = None

    def __str__(self) -> str:
        return f"{self.at:8.3f} {self.method:6} {self.path}?{self.query} -> {self.status}"


@dataclass
class Answer:
    status: int
    body: dict | list | bytes | None = None
    headers: dict = field(default_factory=dict)


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    # What answers: it has `dialect`, `faults`, `log`, `lock`, `epoch` and `handle`.
    cloud = None

    def handle_error(self, request, client_address) -> None:
        """A peer that went away (a killed controller) is no news."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # A short pause between two packets of one answer costs 40 ms otherwise.
    disable_nagle_algorithm = True

    def log_message(self, *_) -> None:
        """Requests are kept in `Cloud.log`."""

    def _serve(self) -> None:
        cloud = self.server.cloud
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path, _, query = self.path.partition("?")
        try:
            body = json.loads(raw) if raw[:1] == b"{" else None
        except ValueError:
            body = None
        exchange = Exchange(
            time.monotonic() - cloud.epoch,
            self.command,
            urllib.parse.unquote(path),
            query,
            body,
            self.headers.get("If-Match"),
        )
        with cloud.lock:
            cloud.log.append(exchange)
            fault = next((f for f in cloud.faults if f.takes(self.command, exchange.path)), None)
            if fault:
                fault.hits += 1
        delay = cloud.dialect.slow + (fault.delay if fault else 0)
        if delay:
            time.sleep(delay)
        if fault and fault.drop == "before":
            return self._hang_up()
        if fault and fault.status is not None:
            answer = Answer(fault.status, fault.body, dict(fault.headers))
        else:
            answer = cloud.handle(exchange, self.headers, raw)
        exchange.status = answer.status
        if fault and fault.then:
            with cloud.lock:
                fault.then()
        if fault and fault.drop == "after":
            return self._hang_up()
        self._send(answer, cloud.dialect, half=bool(fault and fault.drop == "within"))

    do_GET = do_HEAD = do_PUT = do_PATCH = do_POST = do_DELETE = _serve

    def _send(self, answer: Answer, dialect: Dialect, half: bool) -> None:
        data = answer.body if isinstance(answer.body, bytes) else _encode(answer.body, dialect)
        if dialect.bom and data and self.path.startswith("/subscriptions/"):
            data = codecs.BOM_UTF8 + data
        self.send_response(answer.status)
        headers = {"x-ms-request-id": secrets.token_hex(16), "Cache-Control": "no-cache", **answer.headers}
        if data and dialect.content_type and "Content-Type" not in headers:
            headers["Content-Type"] = dialect.content_type
        if data and dialect.gzip and "gzip" in self.headers.get("Accept-Encoding", ""):
            headers["Content-Encoding"] = "gzip"
            data = gzip.compress(data)
        chunked = dialect.chunked and data and answer.status != 204
        if chunked:
            headers["Transfer-Encoding"] = "chunked"
        elif answer.status != 204:
            headers["Content-Length"] = str(len(data))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        if half:
            self.wfile.write(data[: len(data) // 2])
            return self._hang_up()
        if chunked:
            for at in range(0, len(data), 100):
                piece = data[at : at + 100]
                self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            self.wfile.write(b"0\r\n\r\n")
        else:
            self.wfile.write(data)
        if dialect.closes_connections:
            self._hang_up()

    def _hang_up(self) -> None:
        self.close_connection = True
        try:
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


def _encode(body, dialect: Dialect) -> bytes:
    if body is None:
        return b""
    if dialect.new_properties and isinstance(body, dict):
        body = {**body, "futureEnvelope": {"of": [1, None, {"any": "shape"}]}}

    def backwards(value):
        if isinstance(value, dict):
            return {name: backwards(value[name]) for name in reversed(value)}
        return [backwards(inner) for inner in value] if isinstance(value, list) else value

    match dialect.json_style:
        case "indented":
            text = json.dumps(body, indent=2).replace("\n", "\r\n")
        case "reversed":
            text = json.dumps(backwards(body))
        case _:
            text = json.dumps(body, separators=(",", ":"))
    return text.encode()
