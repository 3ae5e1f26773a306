"""Azure Resource Manager in one dialect: which address means what, and how answers are spelled.

Owns addresses, bodies and the log of what was asked. What a request does is decided in `compute`; who may ask, in
`authority`; how answers travel, in `wire`. Nothing here comes from Lazuli: the sources are Microsoft's pages, the
swagger and published recordings.
"""

import copy
import datetime
import email.utils
import re
import threading
import time
import urllib.parse

from authority import AUDIENCE, TENANT, Authority
from compute import LOCATION, Compute, key
from dialect import ASYNC, BOTH, BY_LOCATION, SYNC, WHERE_THE_ACTION_IS_MISSING, Dialect
from network import PROVIDER, Network
from network_api import NetworkApi
from operations import Operation, Refused
from wire import Answer, Exchange, Fault, Handler, Server

SUBSCRIPTION = "66666666-7777-8888-9999-000000000000"
GROUP = "Foreign-Group"

RESOURCE_PATH = re.compile(
    r"/subscriptions/(?P<subscription>[^/]+)/resourcegroups/(?P<group>[^/]+)"
    r"/providers/microsoft\.compute/(?P<kind>disks|virtualmachines)(/(?P<name>[^/]+)(/(?P<action>[^/]+))?)?/?",
    re.IGNORECASE,
)
INSTANCE_PATH = re.compile(
    r"/subscriptions/[^/]+/resourcegroups/(?P<group>[^/]+)/providers/microsoft\.compute"
    r"/virtualmachinescalesets/(?P<set>[^/]+)/virtualmachines(/(?P<number>[^/]+)(/(?P<action>[^/]+))?)?/?",
    re.IGNORECASE,
)
OPERATION_PATH = re.compile(
    r"/subscriptions/[^/]+/providers/microsoft\.(compute|network)/locations/[^/]+/(?P<how>operations|results)"
    r"/(?P<id>[0-9a-f-]{36})",
    re.IGNORECASE,
)
SUBSCRIPTION_LIST = re.compile(
    r"/subscriptions/[^/]+/providers/microsoft\.compute/(?P<kind>disks|virtualmachines)", re.IGNORECASE
)
# Documented: the newest api-versions of the API profile 2020-09-01-hybrid of Azure Stack Hub.
STACK_VERSIONS = {"disks": "2019-07-01", "virtualmachines": "2020-06-01"}


class Cloud:
    """A running server. `compute` and `network` are its state, `log` what was asked, `faults` what goes wrong."""

    def __init__(self, dialect: Dialect, audience: str = AUDIENCE):
        self.dialect = dialect
        self.compute = Compute(dialect, SUBSCRIPTION, GROUP)
        self.network = Network(dialect, self.compute)
        self.network_api = NetworkApi(self, self.network)
        self.lock = self.compute.lock
        self.log: list[Exchange] = []
        self.faults: list[Fault] = []
        self.epoch = time.monotonic()
        self.turn = 0
        self.http = Server(("127.0.0.1", 0), Handler)
        self.http.cloud = self
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"
        self.authority = Authority(dialect, self.url, audience, self._metadata())
        self.thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    def __enter__(self) -> "Cloud":
        self.thread.start()
        return self

    def __exit__(self, *_) -> None:
        self.http.shutdown()
        self.http.server_close()

    def fault(self, method: str, path: str, **what) -> Fault:
        """Orders a fault for requests that come from now on."""
        fault = Fault(method, path, **what)
        with self.lock:
            self.faults.append(fault)
        return fault

    def requests(self, method: str | None = None, path: str = "") -> list[Exchange]:
        """What was asked so far."""
        with self.lock:
            return [
                each
                for each in self.log
                if (method is None or each.method == method) and re.search(path, each.path, re.IGNORECASE)
            ]

    def wait_for_request(self, method: str, path: str, seconds: float = 30) -> None:
        """Returns when such a request has been answered."""
        deadline = time.monotonic() + seconds
        while not self.requests(method, path):
            assert time.monotonic() < deadline, f"no {method} {path}"
            time.sleep(0.02)

    def _metadata(self) -> dict:
        """What the instance metadata says of its machine. Documented: all values are text."""
        return {
            "azEnvironment": "AzurePublicCloud",
            "location": LOCATION,
            "name": "node-0",
            "resourceGroupName": GROUP,
            "subscriptionId": SUBSCRIPTION,
            "vmSize": "Standard_D8s_v3",
            "zone": "",
            "platformFaultDomain": "0",
            "platformUpdateDomain": "0",
            "vmScaleSetName": "",
            "tagsList": [],
            "osType": "Linux",
            "vmId": "x",
            "resourceId": self.compute.path("virtualMachines", "node-0"),
            "storageProfile": {"dataDisks": [], "osDisk": {"name": "node-0-os"}},
        }

    # ---- a request

    def handle(self, exchange: Exchange, headers, raw: bytes) -> Answer:
        """Answers one request of any of the services on this address."""
        if re.fullmatch(r"/[^/]+/oauth2(/v2\.0)?/token", exchange.path):
            return self.authority.token(exchange.path, raw)
        if exchange.path.startswith("/metadata/identity/oauth2/token"):
            return self.authority.identity(exchange, headers)
        if exchange.path.startswith("/metadata/instance"):
            return self.authority.instance(headers)
        if exchange.path == "/metadata/endpoints":
            return self.authority.endpoints()
        try:
            with self.lock:
                return self._arm(exchange, headers)
        except Refused as refused:
            return self._error(refused)

    def _arm(self, exchange: Exchange, headers) -> Answer:
        token = (headers.get("Authorization") or "").removeprefix("Bearer ")
        audience = self.authority.tokens.get(token)
        if audience != self.authority.audience:
            # Recorded: ARM compares audiences as text, "including forward slash".
            code = "InvalidAuthenticationToken" if audience is None else "InvalidAuthenticationTokenAudience"
            answer = self._error(
                Refused(401, code, f"The access token is invalid or has the wrong audience '{audience}'.")
            )
            answer.headers["WWW-Authenticate"] = (
                f'Bearer authorization_uri="{self.url}/{TENANT}", error="invalid_token"'
            )
            return answer
        query = {name.lower(): values[0] for name, values in urllib.parse.parse_qs(exchange.query).items()}
        version = query.get("api-version")
        if not version:
            self.compute.violations.append(f"{exchange.method} {exchange.path} without an api-version")
            raise Refused(
                400,
                "MissingApiVersionParameter",
                "The api-version query parameter (?api-version=) is required for all requests.",
            )
        self.compute.settle()
        self.network.settle()
        if found := OPERATION_PATH.fullmatch(exchange.path):
            return self._poll(found["how"].lower(), found["id"].lower(), query)
        if found := RESOURCE_PATH.fullmatch(exchange.path):
            return self._resource(exchange, headers, found, version, query)
        if found := INSTANCE_PATH.fullmatch(exchange.path):
            return self._instance(exchange, headers, found, version, query)
        if found := SUBSCRIPTION_LIST.fullmatch(exchange.path):
            return self._list(exchange, found["kind"].lower(), query)
        if answer := self.network_api.answer(exchange, headers, query):
            return answer
        if re.fullmatch(r"/subscriptions/[^/]+/resourcegroups/[^/]+", exchange.path, re.I):
            return self._group(exchange)
        if re.fullmatch(r"/subscriptions/[^/]+", exchange.path, re.I):
            return Answer(
                200, {"id": exchange.path, "subscriptionId": SUBSCRIPTION, "state": "Enabled", "displayName": "Foreign"}
            )
        if re.fullmatch(r"/subscriptions/[^/]+/providers/microsoft\.compute/skus", exchange.path, re.I):
            return Answer(200, {"value": [_sku("Standard_D8s_v3", 16)]})
        raise Refused(
            404, "InvalidResourceType", "The resource type could not be found in the namespace 'Microsoft.Compute'."
        )

    def _group(self, exchange: Exchange) -> Answer:
        name = exchange.path.rsplit("/", 1)[1]
        if name.lower() != GROUP.lower():
            raise Refused(404, "ResourceGroupNotFound", f"Resource group '{name}' could not be found.")
        if exchange.method == "HEAD":
            return Answer(204)
        return Answer(
            200,
            {
                "id": f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{GROUP}",
                "name": GROUP,
                "location": LOCATION,
                "properties": {"provisioningState": "Succeeded"},
            },
        )

    def _resource(self, exchange: Exchange, headers, found: re.Match, version: str, query: dict) -> Answer:
        method, kind, action = exchange.method, found["kind"].lower(), (found["action"] or "").lower()
        if self.dialect.stack and version > STACK_VERSIONS[kind]:
            raise Refused(
                400,
                "NoRegisteredProviderFound",
                f"No registered resource provider found for location '{LOCATION}' and API version '{version}' for "
                f"type '{kind}'. The supported api-versions are '{STACK_VERSIONS[kind]}'.",
            )
        if found["group"].lower() != GROUP.lower():
            raise Refused(404, "ResourceGroupNotFound", f"Resource group '{found['group']}' could not be found.")
        if not found["name"]:
            return self._list(exchange, kind, query)
        if kind == "disks":
            return self._disk(exchange, self.compute.path("disks", found["name"]), version)
        return self._of_machine(exchange, headers, self.compute.path("virtualMachines", found["name"]), action, version)

    def _instance(self, exchange: Exchange, headers, found: re.Match, version: str, query: dict) -> Answer:
        """Instances of uniform scale sets, and their list."""
        if found["group"].lower() != GROUP.lower():
            raise Refused(404, "ResourceGroupNotFound", f"Resource group '{found['group']}' could not be found.")
        if found["number"]:
            resource_id = self.compute.instance_path(found["set"], found["number"])
            return self._of_machine(exchange, headers, resource_id, (found["action"] or "").lower(), version)
        # Documented (the swagger): an instance has its etag in the answers to its read and its update. So its list
        # need not have it.
        items = self.compute.listed_instances(found["set"], self.dialect.list_lag)
        return self.page(exchange, [self.respell(self._without_disks(item)) for item in items], query)

    def _of_machine(self, exchange: Exchange, headers, resource_id: str, action: str, version: str) -> Answer:
        method = exchange.method
        query = {name.lower(): values[0] for name, values in urllib.parse.parse_qs(exchange.query).items()}
        if method == "GET" and action in ("", "instanceview"):
            self.compute.count("read", key(resource_id))
            machine = self.compute.machine(resource_id)
            if action:
                return Answer(200, _instance_view())
            return self._machine(machine, 200, expand="instanceview" in query.get("$expand", "").lower())
        if method == "POST" and action == "attachdetachdatadisks":
            if self.dialect.action_missing:
                raise Refused(*WHERE_THE_ACTION_IS_MISSING[self.dialect.action_missing])
            self.compute.count("write", key(resource_id))
            operation = self.compute.attach_detach(resource_id, exchange.body or {})
            return self._announce(operation, self.dialect.action, 200, version, self._storage_profile)
        if method in ("PUT", "PATCH") and not action:
            self.compute.count("write", key(resource_id))
            self._condition(headers, resource_id)
            operation = self.compute.write_machine(resource_id, exchange.body or {})
            return self._announce(operation, self.dialect.vm_write, 200, version, self._vm_body)
        raise Refused(405, "MethodNotAllowed", f"The requested resource does not support http method '{method}'.")

    def _disk(self, exchange: Exchange, resource_id: str, version: str) -> Answer:
        if exchange.method == "GET":
            self.compute.count("read", key(resource_id))
            return Answer(200, self._disk_body(self.compute.disk(resource_id, self.dialect.read_lag)))
        self.compute.count("write", key(resource_id))
        if exchange.method == "PUT":
            operation, new = self.compute.put_disk(resource_id, exchange.body or {})
            return self._announce(operation, self.dialect.disk_write, 201 if new else 200, version, self._disk_body)
        if exchange.method == "PATCH":
            operation = self.compute.patch_disk(resource_id, exchange.body or {})
            return self._announce(operation, self.dialect.disk_write, 200, version, self._disk_body)
        if exchange.method == "DELETE":
            operation = self.compute.delete_disk(resource_id)
            if operation is None:
                if self.dialect.delete_absent == 404:
                    raise self.compute.not_found("disks", resource_id)
                return Answer(204)
            return self._announce(operation, self.dialect.disk_delete, 202, version, None)
        raise Refused(
            405, "MethodNotAllowed", f"The requested resource does not support http method '{exchange.method}'."
        )

    def _condition(self, headers, resource_id: str) -> None:
        expected = headers.get("If-Match")
        if expected is None or expected == "*":
            return
        self.compute.machine(resource_id)
        if self.dialect.etag == "absent":
            # Documented: RFC 9110 lets a server without validators fail every If-Match.
            raise Refused(412, "PreconditionFailed", "The resource has no etag.")
        actual = self._etag(resource_id)
        if expected != actual:
            raise Refused(
                412,
                "PreconditionFailed",
                f"Etag provided in if-match header {expected} does not match etag {actual} of resource.",
            )

    def _etag(self, resource_id: str) -> str | None:
        number = self.compute.machines[key(resource_id)]["etag"]
        return {"absent": None, "weak": f'W/"{number:032x}"'}.get(self.dialect.etag, f'"{number}"')

    # ---- operations

    def announce(self, operation: Operation, how: str, status: int, version: str, show) -> Answer:
        """The first answer to a write of the network; `show` is its body by the operation."""
        if operation.failure and operation.done and not operation.canceled:
            raise operation.failure
        if how == SYNC:
            return Answer(200 if operation.deletion else status, None if operation.deletion else show(operation))
        headers = self._advice() | self._operation_urls(operation, how, version)
        if operation.deletion or how == BY_LOCATION:
            return Answer(202, None, headers)
        return Answer(202 if how == BOTH else status, show(operation), headers)

    def _announce(self, operation: Operation, how: str, status: int, version: str, show) -> Answer:
        """The first answer to a write that takes time."""
        if operation.failure and operation.done:
            raise operation.failure
        resource = operation.result()
        if not operation.done and operation.preview:
            resource = operation.preview
        if how == SYNC:
            return Answer(
                200 if operation.deletion else status, None if operation.deletion else self._show(resource, show, True)
            )
        headers = self._advice() | self._operation_urls(operation, how, version)
        if operation.deletion or how == BY_LOCATION:
            return Answer(202, None, headers)
        return Answer(202 if how == BOTH else status, self._show(resource, show, False), headers)

    def _show(self, resource: dict | None, show, finished: bool) -> dict | None:
        if resource is None:
            return None
        body = copy.deepcopy(show(resource))
        if not finished and "properties" in body:
            body["properties"]["provisioningState"] = "Updating"
        return body

    def _operation_urls(self, operation: Operation, how: str, version: str) -> dict:
        headers = {}
        if how in (BOTH, ASYNC):
            headers["Azure-AsyncOperation"] = self._operation_url("operations", operation, version)
        if how in (BOTH, BY_LOCATION):
            headers["Location"] = self._operation_url("results", operation, version)
        return headers

    def _operation_url(self, how: str, operation: Operation, version: str) -> str:
        path = f"/subscriptions/{SUBSCRIPTION}/providers/{operation.provider}/locations/{LOCATION}/{how}/{operation.id}"
        more = f"&step={len(operation.polls)}" if self.dialect.moving_location and how == "results" else ""
        monitor = "&monitor=true" if how == "results" else ""
        base = self.url if self.dialect.operation_urls == "absolute" else ""
        return f"{base}{path}?p={operation.id}&api-version={version}{monitor}{more}&t=1&c=%2Bsigned%2F&s=x"

    def _advice(self) -> dict:
        match self.dialect.retry_after:
            case None:
                return {}
            case "date":
                return {"Retry-After": email.utils.formatdate(time.time() + 1, usegmt=True)}
            case seconds:
                return {"Retry-After": seconds}

    def _poll(self, how: str, operation_id: str, query: dict) -> Answer:
        operation = self.compute.operations.get(operation_id) or self.network.operations.get(operation_id)
        if operation is None:
            raise Refused(404, "NotFound", "The entity was not found.")
        if how == "results" and self.dialect.moving_location and int(query.get("step", -1)) != len(operation.polls):
            self.compute.violations.append("an old Location is polled although each answer named a newer one")
        operation.polls.append(time.monotonic())
        if operation.provider == PROVIDER:
            return self._poll_network(operation, how, query)
        self.compute.count("poll", operation.resource)
        show = self._disk_body if "/disks/" in operation.resource else self._vm_body
        if operation.action:
            show = self._storage_profile
        if how == "operations":
            return self._status(operation, show)
        if not operation.done:
            return Answer(
                202,
                None,
                {"Location": self._operation_url("results", operation, query["api-version"]), **self._advice()},
            )
        if operation.failure:
            raise operation.failure
        resource = operation.result()
        if operation.deletion or resource is None:
            return Answer(self.dialect.deleted_location)
        return Answer(200, self._show(resource, show, True))

    def _poll_network(self, operation: Operation, how: str, query: dict) -> Answer:
        if how == "operations":
            return self._status(operation, None)
        if not operation.done:
            location = self._operation_url("results", operation, query["api-version"])
            return Answer(202, None, {"Location": location, **self._advice()})
        if operation.failure:
            raise operation.failure
        body = None if operation.deletion else self.network_api.show(operation)
        return Answer(self.dialect.deleted_location) if body is None else Answer(200, body)

    def _status(self, operation: Operation, show) -> Answer:
        word = self.dialect.running if not operation.done else "Failed" if operation.failure else self.dialect.succeeded
        if operation.canceled:
            word = "Canceled"
        body = {"status": word, "name": operation.id}
        if operation.provider == PROVIDER and not self.dialect.rich_operations:
            # Recorded: the status is all that the network provider says.
            body = {"status": word}
        elif self.dialect.operation_times != "absent":
            began = (
                "0001-01-01T00:00:00+00:00" if self.dialect.operation_times == "zero" else _moment(operation.started)
            )
            body = {"startTime": began, **({"endTime": _moment(operation.due)} if operation.done else {}), **body}
        if self.dialect.rich_operations:
            body |= {
                "id": f"/subscriptions/{SUBSCRIPTION}/x/{operation.id}",
                "percentComplete": 100.0 if operation.done else 12.5,
                "operations": [],
            }
        if operation.done and operation.failure:
            details = operation.failure.details or []
            body["error"] = {"code": operation.failure.code, "message": operation.failure.message, "details": details}
        elif operation.done and not operation.deletion and "/disks/" in operation.resource and operation.result():
            body["properties"] = {"output": show(operation.result())}
        return Answer(
            200 if operation.done else self.dialect.running_status, body, {} if operation.done else self._advice()
        )

    # ---- bodies

    def _disk_body(self, disk: dict) -> dict:
        disk = copy.deepcopy(disk)
        if disk["properties"]["provisioningState"] == "Succeeded" and self.compute.running(key(disk["id"])):
            disk["properties"]["provisioningState"] = "Updating"
        states = dict(self.dialect.disk_states)
        disk["properties"]["diskState"] = states.get(disk["properties"]["diskState"], disk["properties"]["diskState"])
        if "managedBy" not in disk and self.dialect.no_owner != "absent":
            disk["managedBy"] = {"null": None, "empty": ""}[self.dialect.no_owner]
        return self.respell(disk)

    def _vm_body(self, machine: dict) -> dict:
        held = self.compute.machines[key(machine["id"])]
        machine = self._without_disks(self.compute.shown_machine({**held, "resource": machine}))
        if self.dialect.etag not in ("absent", "header"):
            machine["etag"] = self._etag(machine["id"])
        return self.respell(machine)

    def _without_disks(self, machine: dict) -> dict:
        """A machine's body; one without data disks says so in the dialect's way."""
        storage = machine["properties"]["storageProfile"]
        if not storage["dataDisks"]:
            if self.dialect.no_data_disks == "null":
                storage["dataDisks"] = None
            elif self.dialect.no_data_disks == "absent":
                del storage["dataDisks"]
        return machine

    def _storage_profile(self, machine: dict) -> dict:
        return self._vm_body(machine)["properties"]["storageProfile"]

    def _machine(self, machine: dict, status: int, expand: bool = False) -> Answer:
        body = self._vm_body(machine)
        if expand:
            body["properties"]["instanceView"] = _instance_view()
        etag = self._etag(machine["id"])
        return Answer(status, body, {"ETag": etag} if etag else {})

    def respell(self, value):
        """Ids in the spelling of this dialect."""
        casing = self.dialect.casing
        if casing == "mixed":
            self.turn += 1
            casing = ("as-is", "upper-group", "lower", "lower-segment")[self.turn % 4]

        def text(at: str, value: str) -> str:
            if not value.startswith("/subscriptions/") or (at == "id" and not self.dialect.respell_ids):
                return value
            match casing:
                case "upper-group":
                    parts = value.split("/")
                    return "/".join([*parts[:4], parts[4].upper(), *parts[5:]])
                case "lower":
                    return value.lower()
                case "lower-segment":
                    return value.replace("/resourceGroups/", "/resourcegroups/")
            return value

        def walk(value, at=""):
            if isinstance(value, dict):
                # What has an id and no name refers to another resource; a resource's own `id` is beside its name.
                refers = "id" in value and "name" not in value
                return {
                    name: walk(inner, "reference" if refers and name == "id" else name)
                    for name, inner in value.items()
                }
            if isinstance(value, list):
                return [walk(inner, at) for inner in value]
            return text(at, value) if isinstance(value, str) else value

        return walk(value)

    def _list(self, exchange: Exchange, kind: str, query: dict) -> Answer:
        if kind == "disks":
            seen = (
                self.compute.seen(at, self.dialect.list_lag)
                for at in sorted(set(self.compute.disks) | set(self.compute.history))
            )
            items = [self._disk_body(disk) for disk in seen if disk is not None]
        else:
            # Of the machines of scale sets, only those of flexible ones are here.
            machines = [held["resource"] for at, held in self.compute.machines.items() if "scalesets/" not in at]
            items = [self._vm_body(machine) for machine in machines]
        return self.page(exchange, items, query)

    def page(self, exchange: Exchange, items: list[dict], query: dict) -> Answer:
        """A list, cut as the dialect cuts it."""
        size = self.dialect.page_size
        if size is None:
            return Answer(200, {"value": items})
        pages = [items[at : at + size] for at in range(0, len(items), size)] or [[]]
        pages.insert(1, [])
        at = int(query.get("$skiptoken", 0))
        body = {"value": pages[at]}
        if at + 1 < len(pages):
            body["nextLink"] = f"{self.url}{exchange.path}?%24skiptoken={at + 1}&api-version={query['api-version']}"
        return Answer(200, body)

    def _error(self, refused: Refused) -> Answer:
        inner = {"code": refused.code, "message": refused.message}
        headers = {"x-ms-failure-cause": "gateway"} if refused.status == 404 else {}
        if refused.details:
            inner["details"] = refused.details
        if refused.target:
            inner["target"] = refused.target
        match self.dialect.errors:
            case "rich":
                inner |= {
                    "details": refused.details or [{"code": refused.code, "message": "again", "target": ""}],
                    "innererror": {"internalErrorCode": "x", "exceptiontype": "y"},
                }
            case "flat":
                return Answer(refused.status, inner, headers)
            case "empty":
                # What is told apart by its code alone keeps its code: no client could do without.
                if refused.status not in (404, 400, 409):
                    return Answer(refused.status, None, headers)
        return Answer(refused.status, {"error": inner}, headers)


def _moment(at: float) -> str:
    """A time of the monotonic clock as Azure writes times."""
    wall = datetime.datetime.fromtimestamp(time.time() - time.monotonic() + at, datetime.UTC)
    return wall.isoformat(timespec="microseconds")


def _instance_view() -> dict:
    return {
        "statuses": [
            {"code": "ProvisioningState/succeeded", "level": "Info", "displayStatus": "Provisioning succeeded"},
            {"code": "PowerState/running", "level": "Info", "displayStatus": "VM running"},
        ]
    }


def _sku(name: str, disks: int) -> dict:
    return {
        "resourceType": "virtualMachines",
        "name": name,
        "locations": [LOCATION],
        "restrictions": [],
        "capabilities": [{"name": "MaxDataDiskCount", "value": str(disks)}, {"name": "PremiumIO", "value": "True"}],
    }
