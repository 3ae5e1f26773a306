"""A small Kubernetes API server: the objects that the cloud controllers read and write, in memory.

Owns versions, watches, patches and deletion with finalizers. Written from the Kubernetes API conventions; it knows
nothing of Lazuli, authorizes everybody, and has no controllers. A path that it does not know is 404 and is noted in
`unknown`.
"""

import copy
import itertools
import json
import queue
import re
import threading
import time
import urllib.parse
import uuid
from http.server import BaseHTTPRequestHandler

from wire import Server

# Plural -> (group and version, kind, whether it is in a namespace).
KINDS = {
    "namespaces": ("v1", "Namespace", False),
    "nodes": ("v1", "Node", False),
    "services": ("v1", "Service", True),
    "secrets": ("v1", "Secret", True),
    "endpointslices": ("discovery.k8s.io/v1", "EndpointSlice", True),
    "leases": ("coordination.k8s.io/v1", "Lease", True),
    "events": ("events.k8s.io/v1", "Event", True),
}
PATH = re.compile(
    r"/(api|apis)/(?P<version>v1|[a-z0-9.]+/v1)(/namespaces/(?P<namespace>[^/]+)(?=/))?"
    r"/(?P<plural>[a-z]+)(/(?P<name>[^/]+)(/(?P<part>status))?)?"
)
# Lists of a strategic merge patch that are merged by a key; lists of texts are merged as sets.
MERGE_KEYS = {"conditions": "type", "addresses": "type", "ports": "port"}
SETS = {"finalizers"}


class Rejected(Exception):
    """A Status with a failure."""

    def __init__(self, code: int, reason: str, message: str):
        super().__init__(message)
        self.body = {
            "kind": "Status",
            "apiVersion": "v1",
            "status": "Failure",
            "code": code,
            "reason": reason,
            "message": message,
        }


class Cluster:
    """A running server. `objects` is its state: plural -> (namespace, name) -> object."""

    def __init__(self):
        self.lock = threading.RLock()
        self.objects: dict[str, dict[tuple[str, str], dict]] = {plural: {} for plural in KINDS}
        self.versions = itertools.count(100)
        self.version = next(self.versions)
        self.watches: list[tuple[str, queue.Queue]] = []
        # Every event: (version, plural, event).
        self.told: list[tuple[int, str, dict]] = []
        # Requests that change something: (time, method, path).
        self.writes: list[tuple[float, str, str]] = []
        self.unknown: list[str] = []
        self.http = Server(("127.0.0.1", 0), _Handler)
        self.http.cluster = self
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"
        self.thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        for name in ("default", "kube-system"):
            self.put("namespaces", {"metadata": {"name": name}})

    def __enter__(self) -> "Cluster":
        self.thread.start()
        return self

    def __exit__(self, *_) -> None:
        with self.lock:
            for _, waiting in self.watches:
                waiting.put(None)
        self.http.shutdown()
        self.http.server_close()

    def kubeconfig(self) -> dict:
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": self.url}}],
            "users": [{"name": "u", "user": {"token": "t"}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        }

    # ---- what a test does

    def put(self, plural: str, body: dict) -> dict:
        """Creates an object, or replaces it whatever its version."""
        with self.lock:
            metadata = body["metadata"]
            place = (metadata.get("namespace", "default") if KINDS[plural][2] else "", metadata["name"])
            old = self.objects[plural].get(place)
            return self._store(plural, place, old, copy.deepcopy(body))

    def get(self, plural: str, name: str, namespace: str = "default") -> dict | None:
        with self.lock:
            found = self.objects[plural].get((namespace if KINDS[plural][2] else "", name))
            return copy.deepcopy(found)

    def delete(self, plural: str, name: str, namespace: str = "default") -> None:
        with self.lock:
            self._delete(plural, (namespace if KINDS[plural][2] else "", name), {})

    def all(self, plural: str) -> list[dict]:
        with self.lock:
            return copy.deepcopy(list(self.objects[plural].values()))

    # ---- the store

    def _store(self, plural: str, place: tuple[str, str], old: dict | None, new: dict) -> dict:
        version, kind, namespaced = KINDS[plural]
        metadata = new.setdefault("metadata", {})
        given = old["metadata"] if old else {}
        metadata["name"] = place[1]
        if namespaced:
            metadata["namespace"] = place[0]
        metadata["uid"] = given.get("uid") or str(uuid.uuid4())
        metadata["creationTimestamp"] = given.get("creationTimestamp") or "2001-02-03T04:05:06Z"
        if given.get("deletionTimestamp"):
            metadata["deletionTimestamp"] = given["deletionTimestamp"]
        if not metadata.get("finalizers"):
            metadata.pop("finalizers", None)
        new |= {"apiVersion": version, "kind": kind}
        metadata["resourceVersion"] = given.get("resourceVersion", "")
        if old == new:
            return old
        self.version = next(self.versions)
        metadata["resourceVersion"] = str(self.version)
        if metadata.get("deletionTimestamp") and not metadata.get("finalizers"):
            self.objects[plural].pop(place, None)
            self._tell(plural, "DELETED", new)
        else:
            self.objects[plural][place] = new
            self._tell(plural, "MODIFIED" if old else "ADDED", new)
        return new

    def _delete(self, plural: str, place: tuple[str, str], options: dict) -> dict:
        found = self._found(plural, place)
        wanted = (options.get("preconditions") or {}).get("uid")
        if wanted and wanted != found["metadata"]["uid"]:
            raise Rejected(409, "Conflict", f"{place[1]} has another uid")
        new = copy.deepcopy(found)
        new["metadata"].setdefault("deletionTimestamp", "2001-02-03T04:05:07Z")
        if new["metadata"].get("finalizers"):
            return self._store(plural, place, found, new)
        self.version = next(self.versions)
        new["metadata"]["resourceVersion"] = str(self.version)
        del self.objects[plural][place]
        self._tell(plural, "DELETED", new)
        return new

    def _found(self, plural: str, place: tuple[str, str]) -> dict:
        found = self.objects[plural].get(place)
        if found is None:
            raise Rejected(404, "NotFound", f'{plural} "{place[1]}" not found')
        return found

    def _tell(self, plural: str, what: str, body: dict) -> None:
        event = {"type": what, "object": copy.deepcopy(body)}
        self.told.append((self.version, plural, event))
        for watched, waiting in self.watches:
            if watched == plural:
                waiting.put(event)

    # ---- requests

    def answer(self, method: str, path: str, query: dict, media: str, body: dict | None) -> tuple[int, dict]:
        found = PATH.fullmatch(path)
        plural = found and found["plural"]
        if not found or plural not in KINDS or KINDS[plural][0] != found["version"]:
            self.unknown.append(f"{method} {path}")
            raise Rejected(404, "NotFound", "the server could not find the requested resource")
        place = (found["namespace"] or "", found["name"] or (body or {}).get("metadata", {}).get("name", ""))
        with self.lock:
            if method == "GET" and found["name"]:
                return 200, self._found(plural, place)
            if method == "GET":
                return 200, self._list(plural, found["namespace"], query)
            self.writes.append((time.monotonic(), method, path))
            if method == "POST":
                if place in self.objects[plural]:
                    raise Rejected(409, "AlreadyExists", f"{plural} {place[1]} already exists")
                return 201, self._store(plural, place, None, body)
            if method == "PUT":
                old = self._found(plural, place)
                self._same(old, body)
                return 200, self._store(plural, place, old, body)
            if method == "PATCH":
                return 200, self._patch(plural, place, found["part"], media, body)
            if method == "DELETE":
                return 200, self._delete(plural, place, body or {})
        raise Rejected(405, "MethodNotAllowed", method)

    def _list(self, plural: str, namespace: str | None, query: dict) -> dict:
        version, kind, _ = KINDS[plural]
        places = sorted(place for place in self.objects[plural] if not namespace or place[0] == namespace)
        # A page ends where the client says; the next begins there.
        start = int(query.get("continue") or 0)
        size = min(int(query.get("limit") or 1000), 3)
        metadata = {"resourceVersion": str(self.version)}
        if start + size < len(places):
            metadata["continue"] = str(start + size)
        items = [copy.deepcopy(self.objects[plural][place]) for place in places[start : start + size]]
        return {"kind": f"{kind}List", "apiVersion": version, "metadata": metadata, "items": items}

    def _same(self, old: dict, body: dict) -> None:
        metadata = body.get("metadata") or {}
        for member, reason in (("resourceVersion", "the object has been modified"), ("uid", "the uid differs")):
            if metadata.get(member) and metadata[member] != old["metadata"][member]:
                raise Rejected(409, "Conflict", f"Operation cannot be fulfilled: {reason}")

    def _patch(self, plural: str, place: tuple[str, str], part: str | None, media: str, body: dict) -> dict:
        old = self._found(plural, place)
        self._same(old, body)
        new = copy.deepcopy(old)
        strategic = media.startswith("application/strategic-merge-patch")
        if not strategic and not media.startswith("application/merge-patch"):
            raise Rejected(415, "UnsupportedMediaType", media)
        # A subresource writes its own part alone, and the whole object everything else.
        for member, value in body.items():
            if member in ("apiVersion", "kind") or (member == "status") != (part == "status") and member != "metadata":
                continue
            if part == "status" and member == "metadata":
                continue
            new[member] = _merged(new.get(member), value, strategic, member)
        return self._store(plural, place, old, new)

    def watch(self, plural: str, query: dict) -> queue.Queue:
        """What has happened since the version of the request, then what happens."""
        waiting: queue.Queue = queue.Queue()
        since = int(query.get("resourceVersion") or 0)
        with self.lock:
            for version, told, event in self.told:
                if told == plural and version > since:
                    waiting.put(event)
            self.watches.append((plural, waiting))
        return waiting


def _merged(old, patch, strategic: bool, member: str):
    """RFC 7386, and of a strategic merge patch what Services and Nodes need."""
    if isinstance(patch, dict):
        result = copy.deepcopy(old) if isinstance(old, dict) else {}
        for name, value in patch.items():
            if strategic and name.startswith("$deleteFromPrimitiveList/"):
                real = name.split("/", 1)[1]
                result[real] = [each for each in result.get(real) or [] if each not in value]
            elif value is None:
                result.pop(name, None)
            else:
                result[name] = _merged(result.get(name), value, strategic, name)
        return result
    if strategic and isinstance(patch, list):
        if any(isinstance(each, dict) and each.get("$patch") == "replace" for each in patch):
            return [each for each in patch if "$patch" not in each]
        if member in SETS:
            return list(dict.fromkeys([*(old or []), *patch]))
        if member in MERGE_KEYS:
            merged = {each[MERGE_KEYS[member]]: each for each in copy.deepcopy(old or [])}
            for each in patch:
                merged[each[MERGE_KEYS[member]]] = {**merged.get(each[MERGE_KEYS[member]], {}), **each}
            return list(merged.values())
    return copy.deepcopy(patch)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_) -> None:
        """Writes are kept in `Cluster.writes`."""

    def _serve(self) -> None:
        cluster = self.server.cluster
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path, _, text = self.path.partition("?")
        path = urllib.parse.unquote(path)
        query = {name: values[0] for name, values in urllib.parse.parse_qs(text).items()}
        found = PATH.fullmatch(path)
        try:
            if query.get("watch") in ("true", "1") and found and found["plural"] in KINDS:
                return self._watch(cluster, found["plural"], query)
            media = self.headers.get("Content-Type") or ""
            code, body = cluster.answer(self.command, path, query, media, json.loads(raw) if raw else None)
        except Rejected as rejected:
            code, body = rejected.body["code"], rejected.body
        data = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_PUT = do_PATCH = do_POST = do_DELETE = _serve

    def _watch(self, cluster: Cluster, plural: str, query: dict) -> None:
        waiting = cluster.watch(plural, query)
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        try:
            while event := waiting.get():
                data = json.dumps(event).encode() + b"\n"
                self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
                self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            pass
        finally:
            with cluster.lock:
                cluster.watches = [each for each in cluster.watches if each[1] is not waiting]
            self.close_connection = True
