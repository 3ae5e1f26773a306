"""What must be true of the network, whatever the controllers and the cluster say.

Reads the cloud's own state and log; knows nothing of Lazuli.
"""

import copy
import ipaddress
from itertools import pairwise

import shapes
from cloud import Cloud
from compute import key
from judge import LEAST_PAUSE, MOST_POLLS
from network import Network, Resource

# The names of the cluster's pools.
OWN_POOLS = {"kubernetes", "kubernetes-ipv6"}
WRITES = ("PUT", "PATCH", "POST", "DELETE")


class NetworkJudge:
    """Remembers what was there before the controllers came."""

    def __init__(self, cloud: Cloud):
        self.cloud = cloud
        with cloud.lock:
            self.before = {at: copy.deepcopy(held.document) for at, held in self.network.resources.items()}

    @property
    def network(self) -> Network:
        return self.cloud.network

    def settled(self) -> dict[str, Resource]:
        with self.cloud.lock:
            self.network.settle()
            return dict(self.network.resources)

    def quiet(self) -> bool:
        """No operation is running."""
        self.settled()
        with self.cloud.lock:
            return all(operation.done for operation in self.network.operations.values())

    def of(self, kind: str) -> list[Resource]:
        return [held for held in self.settled().values() if held.kind == kind]

    def document(self, kind: str, name: str) -> dict | None:
        held = self.settled().get(key(self.network.path(kind, name)))
        return held and held.document

    def writes(self, path: str = "/Microsoft.Network/") -> list:
        """Requests that change something of the network."""
        return [each for each in self.cloud.requests(path=path) if each.method in WRITES]

    def check(self, alone: bool = True) -> None:
        """Nothing forbidden was asked for, and what was there before is untouched. `alone`: no other writer acts."""
        now = self.settled()
        assert not self.network.violations, "\n".join(self.network.violations)
        if alone:
            assert not self.network.collisions, "\n".join(self.network.collisions)
        for at, before in self.before.items():
            assert at in now, f"{at} belonged to another owner"
            self._check_kept(now[at].kind, before, now[at].document)
        self.check_polls()

    def _check_kept(self, kind: str, before: dict, now: dict) -> None:
        before, now = copy.deepcopy(before), copy.deepcopy(now)
        for document in (before, now):
            # What Azure adds is in neither.
            shapes.add_defaults(kind, document)
        own = dict(shapes.parts(kind, now))
        if kind == "networkInterfaces":
            # An interface stays in the cluster's pool as long as the pool.
            for part in own.values():
                pools = part["properties"].get("loadBalancerBackendAddressPools") or []
                pools = [pool for pool in pools if pool["id"].rsplit("/", 1)[1].lower() not in OWN_POOLS]
                part["properties"]["loadBalancerBackendAddressPools"] = pools
        for name, part in shapes.parts(kind, before):
            assert own.get(name) is not None, f"{name} of {before['id']} belonged to another owner and is gone"
            assert _plain(own[name]) == _plain(part), f"{name} of {before['id']}:\n{part}\nis now\n{own[name]}"
        for member, value in before["properties"].items():
            if member not in shapes.PARTS[kind]:
                assert _plain(now["properties"].get(member)) == _plain(value), f"{member} of {before['id']}"
        for member in ("location", "tags", "sku", "zones"):
            given, left = before.get(member), now.get(member)
            assert given == left, f"{member} of {before['id']} goes from {given} to {left}"

    def check_clean(self, alone: bool = True) -> None:
        """All of `check`, and nothing is left behind."""
        self.check(alone)
        now = self.settled()
        assert sorted(now) == sorted(self.before), "resources are left behind"
        for at, before in self.before.items():
            left = {name for name, _ in shapes.parts(now[at].kind, now[at].document)}
            left -= {name for name, _ in shapes.parts(now[at].kind, before)}
            # The cluster's pool stays as long as its load balancer, as the Go manager has it.
            left = {name for name in left if name.lower().removeprefix("backendaddresspools/") not in OWN_POOLS}
            assert not left, f"{sorted(left)} of {at} are left behind"

    def check_polls(self) -> None:
        """No loop asks again and again."""
        for operation in self.network.operations.values():
            assert len(operation.polls) <= MOST_POLLS, f"{len(operation.polls)} polls of one operation"
            pauses = [later - earlier for earlier, later in pairwise(operation.polls)]
            assert all(pause >= LEAST_PAUSE for pause in pauses), f"polls {min(pauses)} s apart"

    # ---- what a packet meets

    def serves(self, address: str, port: int, protocol: str = "Tcp") -> set[str]:
        """The backends to which a load balancer sends what comes to this address and port."""
        found: set[str] = set()
        for held in self.of("loadBalancers"):
            properties = held.document["properties"]
            for rule in properties.get("loadBalancingRules") or []:
                inner = rule["properties"]
                if inner["protocol"].lower() not in (protocol.lower(), "all") or inner["frontendPort"] not in (port, 0):
                    continue
                front = self._part(held, inner["frontendIPConfiguration"]["id"])
                if self._address(front) != address:
                    continue
                pools = [inner.get("backendAddressPool"), *(inner.get("backendAddressPools") or [])]
                for pool in filter(None, pools):
                    found |= self.members(pool["id"])
        return found

    def members(self, pool: str) -> set[str]:
        """The addresses of a pool's members, by address or by interface."""
        held = self.settled()[key("/".join(pool.split("/")[:9]))]
        listed = self._part(held, pool)["properties"].get("loadBalancerBackendAddresses") or []
        found = {each["properties"]["ipAddress"] for each in listed if each["properties"].get("ipAddress")}
        for interface in self.of("networkInterfaces"):
            for part in interface.document["properties"]["ipConfigurations"]:
                pools = part["properties"].get("loadBalancerBackendAddressPools") or []
                if key(pool) in {key(each["id"]) for each in pools}:
                    found.add(part["properties"]["privateIPAddress"])
        return found

    def admits(self, source: str, address: str, port: int, protocol: str = "Tcp") -> bool:
        """Whether the security group lets this source reach an address and port. `source`: an address or a tag."""
        group = self.document("networkSecurityGroups", "Their-Group")
        inbound = [r["properties"] for r in group["properties"]["securityRules"]]
        for rule in sorted(inbound, key=lambda each: each["priority"]):
            if (
                rule["direction"] == "Inbound"
                and rule["protocol"].lower() in (protocol.lower(), "*")
                and _covers(rule, "sourceAddressPrefix", "sourceAddressPrefixes", source)
                and _covers(rule, "destinationAddressPrefix", "destinationAddressPrefixes", address)
                and any(_in_range(port, each) for each in _both(rule, "destinationPortRange", "destinationPortRanges"))
            ):
                return rule["access"] == "Allow"
        return False

    def _part(self, held: Resource, part_id: str) -> dict:
        wanted = key(part_id)
        return next(p for name, p in shapes.parts(held.kind, held.document) if key(f"{held.id}/{name}") == wanted)

    def _address(self, front: dict) -> str | None:
        public = (front["properties"].get("publicIPAddress") or {}).get("id")
        if not public:
            return front["properties"].get("privateIPAddress")
        held = self.settled().get(key(public))
        return held and held.document["properties"].get("ipAddress")


def _plain(value):
    """A value without what Azure adds by itself, and with ids in one spelling."""
    if isinstance(value, dict):
        said = {name: inner for name, inner in value.items() if inner not in (None, [], False)}
        return {name: inner.lower() if name == "id" else _plain(inner) for name, inner in said.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list) else value


def _both(rule: dict, one: str, many: str) -> list[str]:
    return [each for each in [rule.get(one), *(rule.get(many) or [])] if each]


def _covers(rule: dict, one: str, many: str, address: str) -> bool:
    for prefix in _both(rule, one, many):
        # `Internet` is what is outside of the virtual network.
        if prefix in ("*", address) or (prefix == "Internet" and not address.startswith(("10.", "fd00:"))):
            return True
        try:
            if ipaddress.ip_address(address) in ipaddress.ip_network(prefix):
                return True
        except ValueError:
            continue
    return False


def _in_range(port: int, text: str) -> bool:
    if text == "*":
        return True
    first, _, last = text.partition("-")
    return int(first) <= port <= int(last or first)
