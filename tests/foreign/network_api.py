"""The addresses of Microsoft.Network: which request means what, in one dialect.

Owns paths, statuses and lists. What a write does is decided in `network`; how answers are announced, in `cloud`.
"""

import re
from typing import TYPE_CHECKING

import shapes
from compute import LOCATION, key
from network import PROVIDER, Network
from operations import Refused
from wire import Answer, Exchange

if TYPE_CHECKING:
    from cloud import Cloud

PATH = re.compile(
    r"/subscriptions/(?P<subscription>[^/]+)/resourcegroups/(?P<group>[^/]+)/providers/microsoft\.network"
    r"/(?P<kind>[a-z]+)(/(?P<name>[^/]+)(/(?P<member>[a-z]+)(/(?P<part>[^/]+))?)?)?/?",
    re.IGNORECASE,
)
SUBSCRIPTION_LIST = re.compile(
    r"/subscriptions/[^/]+/providers/microsoft\.network/(?P<kind>[a-z]+)", re.IGNORECASE
)
# Documented: the newest api-version of the API profile 2020-09-01-hybrid of Azure Stack Hub.
STACK_VERSION = "2018-11-01"
# Parts that may be written by themselves. Source: the operations of 2025-05-01.
WRITABLE_PARTS = {
    ("loadBalancers", "backendAddressPools"),
    ("networkSecurityGroups", "securityRules"),
    ("routeTables", "routes"),
    ("virtualNetworks", "subnets"),
}


class NetworkApi:
    """The face of a `Network`."""

    def __init__(self, cloud: "Cloud", network: Network):
        self.cloud, self.network, self.dialect = cloud, network, cloud.dialect

    def answer(self, exchange: Exchange, headers, query: dict) -> Answer | None:
        """The answer to a request of this provider, or None."""
        found = PATH.fullmatch(exchange.path)
        if "/providers/microsoft.network/" in exchange.path.lower():
            self._check_version(query["api-version"])
        if not found:
            found = SUBSCRIPTION_LIST.fullmatch(exchange.path)
            return self._list(exchange, self._kind(found["kind"]), query) if found else None
        kind = self._kind(found["kind"])
        if found["group"].lower() != self.network.compute.group.lower():
            raise Refused(404, "ResourceGroupNotFound", f"Resource group '{found['group']}' could not be found.")
        if not found["name"]:
            return self._list(exchange, kind, query)
        resource_id = self.network.path(kind, found["name"])
        if found["member"]:
            return self._part(exchange, headers, query, kind, resource_id, found["member"], found["part"])
        return self._resource(exchange, headers, query, kind, resource_id)

    def _check_version(self, version: str) -> None:
        if self.dialect.stack and version > STACK_VERSION:
            raise Refused(
                400,
                "NoRegisteredProviderFound",
                f"No registered resource provider found for location '{LOCATION}' and API version '{version}' for "
                f"type 'loadBalancers'. The supported api-versions are '{STACK_VERSION}'.",
            )

    def _kind(self, text: str) -> str:
        # Private link services came with 2019-04-01.
        if text.lower() not in shapes.KINDS or (self.dialect.stack and text.lower() == "privatelinkservices"):
            raise Refused(
                404, "InvalidResourceType", f"The resource type could not be found in the namespace '{PROVIDER}'."
            )
        return shapes.spelled(text)

    def _resource(self, exchange: Exchange, headers, query: dict, kind: str, resource_id: str) -> Answer:
        network, version = self.network, query["api-version"]
        if exchange.method == "GET":
            seen = network.seen(key(resource_id), self.dialect.read_lag)
            if seen is None:
                raise network.not_found(kind, resource_id)
            return Answer(200, self._spelled(seen["body"]), self._etag_header(seen["etag"]))
        if exchange.method == "PUT":
            operation, new = network.put(kind, resource_id, exchange.body or {}, headers.get("If-Match"))
            how = self.dialect.interface_write if kind == "networkInterfaces" else self.dialect.network_write
            return self._announce(operation, how, 201 if new else 200, version, kind)
        if exchange.method == "DELETE":
            operation = network.delete(kind, resource_id, headers.get("If-Match"))
            if operation is None:
                if self.dialect.delete_absent == 404:
                    raise network.not_found(kind, resource_id)
                return Answer(204)
            return self._announce(operation, self.dialect.network_delete, 202, version, kind)
        raise Refused(
            405, "MethodNotAllowed", f"The requested resource does not support http method '{exchange.method}'."
        )

    def _part(self, exchange: Exchange, headers, query: dict, kind: str, resource_id: str, member: str, part: str):
        network = self.network
        member = next((each for each in shapes.PARTS[kind] if each.lower() == member.lower()), None)
        if member is None or not part:
            raise Refused(404, "InvalidResourceType", f"The resource type could not be found in '{PROVIDER}'.")
        if exchange.method == "GET":
            return self._read_part(kind, resource_id, member, part)
        if exchange.method == "PUT" and (kind, member) in WRITABLE_PARTS:
            operation, new = network.put_part(
                kind, resource_id, member, part, exchange.body or {}, headers.get("If-Match")
            )
            operation.part = (member, part)
            how, version = self.dialect.network_write, query["api-version"]
            return self._announce(operation, how, 201 if new else 200, version, kind)
        raise Refused(
            405, "MethodNotAllowed", f"The requested resource does not support http method '{exchange.method}'."
        )

    def _read_part(self, kind: str, resource_id: str, member: str, part: str) -> Answer:
        seen = self.network.seen(key(resource_id), self.dialect.read_lag)
        if seen is None:
            raise self.network.not_found(kind, resource_id)
        found = _part_of(seen["body"], member, part)
        if found is None:
            raise self.network.not_found(kind, f"{resource_id}/{member}/{part}")
        return Answer(200, self._spelled(found), self._etag_header(seen["etag"]))

    def _announce(self, operation, how: str, status: int, version: str, kind: str) -> Answer:
        # Recorded: the etag is a header of reads alone.
        return self.cloud.announce(operation, how, status, version, self.show)

    def show(self, operation) -> dict | None:
        """What an operation is about, as it is now."""
        held = self.network.resources.get(operation.resource)
        if held is None:
            return None
        body = self.network.view(held)
        if operation.part:
            body = _part_of(body, *operation.part)
        return self._spelled(body)

    def _spelled(self, body: dict) -> dict:
        return self.cloud.respell(body)

    def _etag_header(self, number: int) -> dict:
        return {"ETag": self.network.etag(number)} if self.dialect.network_etag == "header and body" else {}

    def _list(self, exchange: Exchange, kind: str, query: dict) -> Answer:
        network = self.network
        seen = (network.seen(at, self.dialect.list_lag) for at in sorted(set(network.resources) | set(network.history)))
        items = [self._spelled(each["body"]) for each in seen if each is not None and each["kind"] == kind]
        return self.cloud.page(exchange, items, query)


def _part_of(body: dict, member: str, part: str) -> dict | None:
    return next((each for each in body["properties"].get(member) or [] if each["name"].lower() == part.lower()), None)
