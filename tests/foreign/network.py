"""Microsoft.Network as a state machine: load balancers and their parts, security groups, public IPs, interfaces,
virtual networks, private link services, route tables, and operations that take time.

Owns what exists and what a write may do; `shapes` knows the members of each type. Knows nothing of HTTP, and of
dialects only what changes behaviour. As in `compute`, what a client must never ask for is refused *and* noted in
`violations`. What a client may run into, because it acts beside others, is refused and noted in `collisions`: a test in
which no other writer acts ends with that list empty.
"""

import copy
import ipaddress
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator

import shapes
from compute import LOCATION, Compute, key
from dialect import Dialect
from operations import Operation, Provider, Refused

PROVIDER = "Microsoft.Network"
# Which operation a refusal names. Source: bodies quoted in public issues (hashicorp/terraform#7986).
VERBS = {
    "loadBalancers": "PutLoadBalancerOperation",
    "publicIPAddresses": "PutPublicIpAddressOperation",
    "networkSecurityGroups": "PutNetworkSecurityGroupOperation",
}


class Resource:
    """One resource at the top. `document` is what a client wrote; what Azure adds is added when it is shown."""

    def __init__(self, kind: str, document: dict, etag: int):
        self.kind, self.document, self.etag = kind, document, etag
        self.state = "Succeeded"
        # The document that a running operation brings.
        self.pending: dict | None = None
        self.new = False

    @property
    def id(self) -> str:
        return self.document["id"]

    def shown(self) -> dict:
        return self.pending if self.pending is not None else self.document


class Network(Provider):
    """All methods are called with the cloud's lock held."""

    namespace = PROVIDER

    def __init__(self, dialect: Dialect, compute: Compute):
        super().__init__(dialect)
        self.compute = compute
        self.resources: dict[str, Resource] = {}
        self.collisions: list[str] = []
        # What a reader sees, by time: (since, what `view` showed or None).
        self.history: dict[str, list[tuple[float, dict | None]]] = defaultdict(list)
        self.addresses = (f"20.50.0.{number}" for number in range(10, 250))
        self.addresses6 = (f"2603:1020::{number:x}" for number in range(16, 250))

    @property
    def violations(self) -> list[str]:
        return self.compute.violations

    def path(self, kind: str, name: str) -> str:
        return (
            f"/subscriptions/{self.compute.subscription}/resourceGroups/{self.compute.group}/providers/{PROVIDER}"
            f"/{kind}/{name}"
        )

    # ---- what exists at the start, and what other people do

    def place(self, kind: str, name: str, properties: dict, **more) -> Resource:
        """A resource that another tool made long ago."""
        resource_id = self.path(kind, name)
        document = {"name": name, "id": resource_id, "location": LOCATION, "properties": properties, **more}
        self._lay_out(kind, document)
        held = self.resources[key(resource_id)] = Resource(kind, document, next(self.compute.serial))
        self._changed(held, [])
        self._publish(held.id, 0.0)
        return held

    def somebody_edits(self, kind: str, name: str, edit: Callable[[dict], None]) -> None:
        """Another client changes a resource, all at once."""
        held = self.resources[key(self.path(kind, name))]
        before = self._references(held)
        edit(held.document["properties"])
        if held.pending is not None:
            edit(held.pending["properties"])
        self._lay_out(kind, held.document)
        self._changed(held, before)
        self._publish(held.id)

    # ---- time

    def _ended(self, operation: Operation) -> None:
        self._publish(operation.resource, operation.due)

    def _accepted(self, operation: Operation) -> None:
        self._publish(operation.resource)

    def _abandon(self, operation: Operation) -> None:
        held = self.resources.get(operation.resource)
        if held is None:
            return
        held.pending = None
        # Recorded (hashicorp/terraform#7986): the resource of an operation that failed is in state Failed.
        held.state = "Failed" if operation.failure.code != "Canceled" else held.state
        held.etag = next(self.compute.serial)

    def _publish(self, at: str, now: float | None = None) -> None:
        """Remembers what a reader sees of a resource, for readers that are behind."""
        held = self.resources.get(key(at))
        seen = None if held is None else {"kind": held.kind, "body": self.view(held), "etag": held.etag}
        self.history[key(at)].append((time.monotonic() if now is None else now, seen))

    # ---- reads

    def held(self, kind: str, resource_id: str) -> Resource:
        held = self.resources.get(key(resource_id))
        if held is None:
            raise self.not_found(kind, resource_id)
        return held

    def seen(self, at: str, lag: float) -> dict | None:
        """What a reader who is `lag` seconds behind sees: kind, body and etag."""
        if lag:
            until = time.monotonic() - lag
            return next((seen for since, seen in reversed(self.history[at]) if since <= until), None)
        held = self.resources.get(at)
        if held is None or (self.dialect.invisible_while_creating and held.new):
            return None
        return {"kind": held.kind, "body": self.view(held), "etag": held.etag}

    def not_found(self, kind: str, resource_id: str) -> Refused:
        parts = resource_id.split("/")
        if len(parts) > 9:
            # Recorded: what the provider says of a part.
            return Refused(404, "NotFound", f"Resource {resource_id} not found.")
        return Refused(
            404,
            self.dialect.not_found,
            f"The Resource '{PROVIDER}/{kind}/{parts[-1]}' under resource group '{parts[4]}' was not found.",
        )

    def view(self, held: Resource) -> dict:
        """A resource as it is read: with states, defaults, back references, and parts that have ids and etags."""
        shown = held.shown() if self.dialect.shows_update_in_progress or held.new else held.document
        body = copy.deepcopy(shown)
        operation = self.running(key(held.id))
        state = held.state
        # Recorded: a load balancer says Succeeded while its operation is still announced.
        if operation and (held.kind != "loadBalancers" or not self.dialect.balancer_at_once):
            state = "Deleting" if operation.deletion else "Updating"
        body["type"] = f"{PROVIDER}/{held.kind}"
        body["etag"] = self.etag(held.etag)
        properties = body["properties"]
        properties["provisioningState"] = state
        properties.setdefault("resourceGuid", str(uuid.uuid5(uuid.NAMESPACE_URL, key(held.id))))
        shapes.add_defaults(held.kind, body)
        for member in shapes.PARTS.get(held.kind, ()):
            for part in properties.get(member) or []:
                part["id"] = f"{held.id}/{member}/{part['name']}"
                part["etag"] = body["etag"]
                part["type"] = f"{PROVIDER}/{held.kind}/{member}"
                part["properties"]["provisioningState"] = state
        self._add_back_references(held, body)
        return body

    def etag(self, number: int) -> str:
        return f'W/"{uuid.UUID(int=number)}"'

    def _add_back_references(self, held: Resource, body: dict) -> None:
        properties = body["properties"]
        if held.kind == "publicIPAddresses":
            user = self._user(held.id)
            if user:
                properties["ipConfiguration"] = {"id": user}
        if held.kind == "networkInterfaces":
            for machine in self.compute.machines.values():
                for interface in machine["resource"]["properties"]["networkProfile"]["networkInterfaces"]:
                    if key(interface["id"]) == key(held.id):
                        properties["virtualMachine"] = {"id": machine["resource"]["id"]}
                        properties["primary"] = interface["properties"]["primary"]
        if held.kind == "loadBalancers":
            for rule in properties.get("loadBalancingRules") or []:
                rule_id = {"id": rule["id"]}
                for at, member in (
                    ("frontendIPConfiguration", "frontendIPConfigurations"),
                    ("backendAddressPool", "backendAddressPools"),
                    ("probe", "probes"),
                ):
                    wanted = key((rule["properties"].get(at) or {}).get("id", ""))
                    for part in properties.get(member) or []:
                        if key(part["id"]) == wanted:
                            part["properties"].setdefault("loadBalancingRules", []).append(rule_id)
            for pool in properties.get("backendAddressPools") or []:
                members = [{"id": user} for user in self._members(pool["id"])]
                if members:
                    pool["properties"]["backendIPConfigurations"] = members

    def _user(self, resource_id: str) -> str | None:
        """Who holds a public IP or a frontend: the id of the part that refers to it."""
        for other in self.resources.values():
            for where, target in shapes.references(other.kind, other.shown()):
                if key(target) == key(resource_id):
                    return where
        return None

    def _members(self, pool: str) -> Iterator[str]:
        for other in self.resources.values():
            if other.kind == "networkInterfaces":
                for where, target in shapes.references(other.kind, other.shown()):
                    if key(target) == key(pool):
                        yield where

    # ---- writes

    def put(self, kind: str, resource_id: str, body: dict, if_match: str | None) -> tuple[Operation, bool]:
        """Creates or replaces. Returns the operation and whether the resource is new."""
        at = key(resource_id)
        held = self.resources.get(at)
        if held is not None and held.new and self.running(at) is None:
            held.new = False
        self._precondition(held, resource_id, if_match or body.get("etag"))
        if not body.get("location"):
            raise Refused(400, "LocationRequired", "The location property is required for this definition.")
        document = self._parsed(kind, resource_id, body)
        if held is not None:
            self._check_kept(held, document)
        return self._write(kind, resource_id, held, document), held is None

    def put_part(self, kind: str, resource_id: str, member: str, name: str, body: dict, if_match: str | None):
        """Creates or replaces a part of a resource, such as a backend pool or a subnet."""
        held = self.held(kind, resource_id)
        document = copy.deepcopy(held.shown())
        parts = document["properties"].setdefault(member, [])
        old = next((part for part in parts if part["name"].lower() == name.lower()), None)
        self._precondition(held if old else None, f"{resource_id}/{member}/{name}", if_match or body.get("etag"))
        part = {"name": name, "properties": body.get("properties") or {}}
        if old:
            parts[parts.index(old)] = part
        else:
            parts.append(part)
        document = self._parsed(kind, held.id, document)
        return self._write(kind, held.id, held, document), old is None

    def _write(self, kind: str, resource_id: str, held: Resource | None, document: dict) -> Operation:
        at = key(resource_id)
        self._check_semantics(kind, held, document)
        running = self.running(at)
        if running and kind == "loadBalancers" and not running.deletion:
            # Recorded: aztfmod/terraform-azurerm-caf#389.
            running.failure = Refused(409, "Canceled", "Operation was canceled.", leaves="superseded")
            running.done, running.canceled = True, True
        elif running:
            self._busy(resource_id)
        if held is None:
            held = self.resources[at] = Resource(kind, document, next(self.compute.serial))
            held.new = True
            before = []
        else:
            before = self._references(held)
        held.pending = document
        held.state = "Succeeded"
        self._changed(held, before)

        def finish():
            held.document, held.pending, held.new = document, None, False
            self._allocate(held)
            if not self.dialect.balancer_at_once or kind != "loadBalancers":
                held.etag = next(self.compute.serial)

        announced = self.dialect.interface_write if kind == "networkInterfaces" else self.dialect.network_write
        return self._accept(kind, at, announced, finish, lambda: self.resources.get(at))

    def delete(self, kind: str, resource_id: str, if_match: str | None) -> Operation | None:
        at = key(resource_id)
        held = self.resources.get(at)
        if held is None:
            return None
        if if_match is not None:
            self._precondition(held, resource_id, if_match)
        if self.running(at):
            self._busy(resource_id)
        self._check_unused(held)
        before = self._references(held)

        def finish():
            self.resources.pop(at, None)
            for other in before:
                self._touch(other)

        return self._accept(kind, at, self.dialect.network_delete, finish, lambda: None, deletion=True)

    def _busy(self, resource_id: str) -> None:
        self.collisions.append(f"a write to {resource_id} while an operation on it is running")
        # Recorded: kubernetes#88151.
        raise Refused(
            429,
            "RetryableError",
            "A retryable error occurred.",
            details=[
                {
                    "code": "RetryableErrorDueToAnotherOperation",
                    "message": f"Operation X is updating resource {resource_id}. The call can be retried in 1 seconds.",
                }
            ],
        )

    def _precondition(self, held: Resource | None, resource_id: str, expected: str | None) -> None:
        if held is None:
            if expected is not None:
                raise _stale(expected, "(none)", resource_id)
            return
        if expected in (None, "*"):
            self.violations.append(f"a write replaces {resource_id} without an etag")
            return
        actual = self.etag(held.etag)
        if expected != actual:
            raise _stale(expected, actual, resource_id)

    # ---- what a body may say

    def _parsed(self, kind: str, resource_id: str, body: dict) -> dict:
        """A body without what Azure alone writes; refuses what the shape does not have."""
        document = copy.deepcopy(body)
        for problem in shapes.clean(kind, document, self.dialect):
            self.violations.append(f"PUT {resource_id}: {problem}")
            raise Refused(400, "InvalidRequestFormat", "Cannot parse the request.", details=[{"message": problem}])
        document |= {"name": resource_id.rsplit("/", 1)[1], "id": resource_id}
        self._lay_out(kind, document)
        return document

    def _lay_out(self, kind: str, document: dict) -> None:
        for member in shapes.PARTS.get(kind, ()):
            for part in document["properties"].get(member) or []:
                part.setdefault("properties", {})

    def _check_kept(self, held: Resource, document: dict) -> None:
        """What cannot change does not; what a client of today does not know must come back."""
        for member in ("location", "sku", "zones", "extendedLocation"):
            before, after = held.document.get(member), document.get(member)
            if before is not None and after is not None and _normal(before) != _normal(after):
                self.violations.append(f"{member} of {held.id} goes from {before} to {after}")
                raise Refused(400, "PropertyChangeNotAllowed", f"{member} cannot be changed.", member)
        for where, value in shapes.future(held.document):
            if shapes.find(document, where) != value and shapes.find(document, where[:-1]) is not None:
                self.violations.append(f"{'.'.join(map(str, where))} of {held.id} is lost")

    def _check_semantics(self, kind: str, held: Resource | None, document: dict) -> None:
        for problem in shapes.problems(kind, document):
            self.violations.append(f"{document['id']}: {problem}")
            raise Refused(400, "InvalidRequestFormat", problem)
        for where, target in shapes.references(kind, document):
            self._check_reference(document, where, target)
        if kind == "loadBalancers":
            self._check_frontends(document)
        if kind == "privateLinkServices":
            self._check_policies(document)
        if held is not None:
            kept = {name for name, _ in shapes.parts(kind, document)}
            for name, part in shapes.parts(kind, held.document):
                if name not in kept:
                    self._check_part_unused(f"{held.id}/{name}", document["id"])

    def _check_reference(self, document: dict, where: str, target: str) -> None:
        parts = target.split("/")
        top = "/".join(parts[:9])
        if key(top) == key(document["id"]):
            known = {key(f"{document['id']}/{name}") for name, _ in shapes.parts(_kind(top), document)}
            found, other = key(target) in known, None
        else:
            other = self.resources.get(key(top))
            found = other is not None and (
                len(parts) == 9
                or key(target) in {key(f"{top}/{name}") for name, _ in shapes.parts(other.kind, other.shown())}
            )
        if not found:
            self.collisions.append(f"{where} refers to {target}, which is not there")
            # Recorded (code).
            raise Refused(
                400,
                "InvalidResourceReference",
                f"Resource {target} referenced by resource {document['id']} was not found.",
            )
        if other is not None and (other.state != "Succeeded" or self.running(key(other.id))):
            if other.kind == "loadBalancers" and self.dialect.balancer_at_once:
                return
            operation = VERBS.get(other.kind, "PutOperation")
            self.collisions.append(f"{where} refers to {target}, which is not in Succeeded state")
            raise Refused(
                429,
                "RetryableError",
                "A retryable error occurred.",
                details=[
                    {
                        "code": "ReferencedResourceNotProvisioned",
                        "message": f"Cannot proceed with operation because resource {other.id} used by resource "
                        f"{document['id']} is not in Succeeded state. Resource is in Updating state and the last "
                        f"operation that updated/is updating the resource is {operation}.",
                    }
                ],
            )

    def _check_frontends(self, document: dict) -> None:
        taken = {}
        for other in self.resources.values():
            if other.kind == "loadBalancers" and key(other.id) != key(document["id"]):
                for front in other.shown()["properties"].get("frontendIPConfigurations") or []:
                    taken[_address_of(front)] = other.id
        for front in document["properties"].get("frontendIPConfigurations") or []:
            properties = front["properties"]
            public = (properties.get("publicIPAddress") or {}).get("id")
            if _address_of(front) and taken.get(_address_of(front)):
                self.collisions.append(f"{_address_of(front)} is in use by {taken[_address_of(front)]}")
                raise Refused(400, "PublicIPAddressInUse" if public else "PrivateIPAddressInUse", "In use.")
            if public:
                sku = (self.resources[key(public)].shown().get("sku") or {}).get("name", "Basic")
                if sku != (document.get("sku") or {}).get("name", "Basic"):
                    self.violations.append(f"{document['id']} and {public} are of different SKUs")
                    raise Refused(400, "DifferentSkuLoadBalancersAndPublicIPAddressNotAllowed", "Different SKUs.")
            elif "subnet" in properties:
                self._check_private(document, properties)

    def _check_private(self, document: dict, properties: dict) -> None:
        prefixes = self._prefixes(properties["subnet"]["id"])
        address = properties.get("privateIPAddress")
        if not address:
            version = 6 if properties.get("privateIPAddressVersion") == "IPv6" else 4
            network = next((each for each in prefixes if each.version == version), None)
            if network is None:
                self.violations.append(f"{document['id']} wants IPv{version} of a subnet that has none")
                raise Refused(400, "SubnetHasNoPrefix", "The subnet has no such prefix.")
            return
        if not any(ipaddress.ip_address(address) in each for each in prefixes):
            self.violations.append(f"{address} of {document['id']} is not within its subnet")
            raise Refused(400, "PrivateIPAddressNotInSubnet", f"Private static IP address {address} does not belong.")

    def _check_policies(self, document: dict) -> None:
        for part in document["properties"].get("ipConfigurations") or []:
            subnet = self._subnet(part["properties"]["subnet"]["id"])
            # Documented: disable-private-link-service-network-policy.
            if subnet.get("privateLinkServiceNetworkPolicies", "Enabled") != "Disabled":
                self.collisions.append(f"{document['id']} is made in a subnet whose policies are enabled")
                code = "PrivateLinkServiceCannotBeCreatedInSubnetThatHasNetworkPoliciesEnabled"
                raise Refused(400, code, f"Private link service {document['id']} cannot be created.")

    def _prefixes(self, subnet: str) -> list:
        properties = self._subnet(subnet)
        texts = properties.get("addressPrefixes") or [properties["addressPrefix"]]
        return [ipaddress.ip_network(text) for text in texts]

    def _subnet(self, subnet: str) -> dict:
        network, _, name = subnet.rpartition("/subnets/")
        for part in self.resources[key(network)].document["properties"]["subnets"]:
            if part["name"].lower() == name.lower():
                return part["properties"]
        raise AssertionError(f"{subnet} was checked before")

    # ---- what is in use

    def _check_unused(self, held: Resource) -> None:
        user = self._user(held.id)
        if user and key(held.id) not in key(user):
            self._in_use(held.id, user)
        for name, _ in shapes.parts(held.kind, held.shown()):
            self._check_part_unused(f"{held.id}/{name}", held.id)

    def _check_part_unused(self, part: str, within: str) -> None:
        for other in self.resources.values():
            if key(other.id) == key(within):
                continue
            for where, target in shapes.references(other.kind, other.shown()):
                if key(target) == key(part):
                    self._in_use(part, where)

    def _in_use(self, what: str, user: str) -> None:
        self.collisions.append(f"{what} is taken away while {user} uses it")
        # Recorded for public IPs (hashicorp/terraform#2566) and subnets; the others' code by analogy, unverified.
        code = "PublicIPAddressCannotBeDeleted" if "/publicIPAddresses/" in what else "InUseResourceCannotBeDeleted"
        raise Refused(400, code, f"{what} can not be deleted since it is still allocated to resource {user}.")

    # ---- what a change brings elsewhere

    def _references(self, held: Resource) -> list[str]:
        return sorted({key(target) for _, target in shapes.references(held.kind, held.shown())})

    def _changed(self, held: Resource, before: list[str]) -> None:
        """A write makes a new etag, and one on what begins or ceases to be referred to: its back references change."""
        held.etag = next(self.compute.serial)
        for target in set(before) ^ set(self._references(held)):
            if not target.startswith(key(held.id)):
                self._touch(target)

    def _touch(self, target: str) -> None:
        other = self.resources.get("/".join(target.split("/")[:9]))
        if other is not None:
            other.etag = next(self.compute.serial)
            # What was there before the first request has always been there.
            self._publish(other.id, None if self.operations else 0.0)

    def _allocate(self, held: Resource) -> None:
        """Addresses come at the end of an operation."""
        properties = held.document["properties"]
        if held.kind == "publicIPAddresses" and not properties.get("ipAddress"):
            pool = self.addresses6 if properties.get("publicIPAddressVersion") == "IPv6" else self.addresses
            properties["ipAddress"] = next(pool)
        if held.kind in ("loadBalancers", "privateLinkServices"):
            member = "frontendIPConfigurations" if held.kind == "loadBalancers" else "ipConfigurations"
            for part in properties.get(member) or []:
                inner = part["properties"]
                if "subnet" in inner and not inner.get("privateIPAddress"):
                    inner["privateIPAddress"] = self._free(inner)

    def _free(self, properties: dict) -> str:
        version = 6 if properties.get("privateIPAddressVersion") == "IPv6" else 4
        network = next(each for each in self._prefixes(properties["subnet"]["id"]) if each.version == version)
        used = set()
        for other in self.resources.values():
            for _, part in shapes.parts(other.kind, other.shown()):
                used.add((part["properties"] or {}).get("privateIPAddress"))
        # Documented: the first four addresses of a subnet are Azure's.
        return next(str(network[at]) for at in range(100, 250) if str(network[at]) not in used)


def _kind(resource_id: str) -> str:
    return shapes.spelled(resource_id.split("/")[7])


def _normal(value):
    if isinstance(value, dict):
        # The tier of a SKU is Azure's default.
        return {name: _normal(inner) for name, inner in value.items() if name != "tier"}
    return value.lower() if isinstance(value, str) else value


def _address_of(front: dict) -> str | None:
    properties = front["properties"]
    public = (properties.get("publicIPAddress") or {}).get("id")
    return key(public) if public else properties.get("privateIPAddress")


def _stale(expected: str, actual: str, resource_id: str) -> Refused:
    # Recorded: securitygroupclient, routetableclient, loadbalancerclient.
    return Refused(
        412,
        "PreconditionFailed",
        "Precondition failed.",
        details=[
            {
                "code": "PreconditionFailedEtagMismatch",
                "message": f"Etag provided in if-match header {expected} does not match etag {actual} of resource "
                f"{resource_id} in NRP data store.",
            }
        ],
    )
