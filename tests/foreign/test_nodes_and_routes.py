"""Nodes that come and go: members of pools, interfaces, routes, private links."""

from controllers import INTERNAL
from dialect import PUBLIC
from landscape import NODES, provider_id

QUICK = PUBLIC.but("quick", duration=0.2, retry_after=None)
ALL = {"10.240.0.4", "10.240.0.5", "10.240.0.6"}
NIC = {"loadBalancerBackendPoolConfigurationType": "nodeIPConfiguration"}


def served(here, controllers, name: str, backends: set[str], port: int = 80) -> str:
    controllers.wait(f"an address of {name}", lambda: here.kubectl.addresses(name))
    [address] = here.kubectl.addresses(name)
    controllers.wait(f"the backends of {name}", lambda: here.judge.serves(address, port) == backends)
    return address


def test_members_follow_nodes_and_nothing_else_does(town):
    here = town(QUICK)
    kubectl, judge = here.kubectl, here.judge
    controllers = here.controllers()
    kubectl.service("web")
    kubectl.service("inner", INTERNAL)
    served(here, controllers, "web", ALL)
    served(here, controllers, "inner", ALL)
    controllers.wait("rest", lambda: here.settled(controllers, 1))

    # Readiness, taints and labels of others remove no backend: no write, no read.
    asked, node = len(here.cloud.log), here.cluster.get("nodes", "node-1")
    node["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
    node["metadata"]["labels"]["team"] = "x"
    node["spec"]["taints"] = [{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]
    here.cluster.put("nodes", node)
    controllers.wait("rest", lambda: here.settled(controllers, 2))
    assert len(here.cloud.log) == asked

    # The label that excludes a node does, and so does the end of a node: one write for each load balancer.
    for change in ("excluded", "gone"):
        writes = len(judge.writes())
        if change == "excluded":
            node["metadata"]["labels"]["node.kubernetes.io/exclude-from-external-load-balancers"] = ""
            here.cluster.put("nodes", node)
        else:
            here.cluster.delete("nodes", "node-2")
        left = ALL - {"10.240.0.5"} - ({"10.240.0.6"} if change == "gone" else set())
        served(here, controllers, "web", left)
        served(here, controllers, "inner", left)
        controllers.wait("rest", lambda: here.settled(controllers, 1))
        assert len(judge.writes()) == writes + 2, change
        assert all("/loadBalancers/" in each.path for each in judge.writes()[writes:])
    kubectl.node("node-2", NODES["Node-2"], provider_id(here.cloud, "Node-2"))
    served(here, controllers, "web", {"10.240.0.4", "10.240.0.6"})
    for name in ("web", "inner"):
        kubectl.delete(name)
    controllers.wait("the end of both", lambda: not kubectl.exists("web") and not kubectl.exists("inner"))
    judge.check_clean()


def test_interfaces_join_and_leave_pools_and_keep_what_they_have(town):
    here = town(QUICK)
    kubectl, judge = here.kubectl, here.judge
    pool = {"id": here.cloud.network.path("loadBalancers", "kubernetes") + "/backendAddressPools/Their-Pool"}
    here.cloud.network.somebody_edits(
        "networkInterfaces",
        "node-0-nic",
        lambda p: p["ipConfigurations"][0]["properties"].update(loadBalancerBackendAddressPools=[pool]),
    )
    controllers = here.controllers(**NIC)
    kubectl.service("web")
    kubectl.service("inner", INTERNAL)
    served(here, controllers, "web", ALL)
    served(here, controllers, "inner", ALL)
    assert judge.members(pool["id"]) == {"10.240.0.4"}
    here.cluster.delete("nodes", "node-1")
    served(here, controllers, "web", ALL - {"10.240.0.5"})
    for name in ("web", "inner"):
        kubectl.delete(name)
    controllers.wait("the end of both", lambda: not kubectl.exists("web") and not kubectl.exists("inner"))
    controllers.wait("rest", lambda: here.settled(controllers, 1))
    # The pool of another owner is part of the interface as it was.
    part = judge.before[here.cloud.network.path("networkInterfaces", "node-0-nic").lower()]
    part["properties"]["ipConfigurations"][0]["properties"]["loadBalancerBackendAddressPools"] = [pool]
    judge.check_clean()
    assert judge.members(pool["id"]) == {"10.240.0.4"}
    assert judge.document("loadBalancers", "kubernetes-internal") is None


def test_a_private_link_service_comes_changes_and_goes_before_its_frontend(town):
    here = town(QUICK)
    kubectl, judge = here.kubectl, here.judge
    controllers = here.controllers(**NIC)
    link = INTERNAL | {"pls-create": "true", "pls-name": "ours", "pls-ip-configuration-subnet": "links"}
    kubectl.service("inner", link)
    served(here, controllers, "inner", ALL)
    controllers.wait("the link", lambda: judge.document("privateLinkServices", "ours"))
    kubectl.service("inner", link | {"pls-visibility": "*", "pls-fqdns": "a.example b.example"})
    names = lambda: judge.document("privateLinkServices", "ours")["properties"].get("fqdns")  # noqa: E731
    controllers.wait("the names", lambda: names() == ["a.example", "b.example"])
    controllers.wait("rest", lambda: here.settled(controllers, 1))
    # The annotation goes, and the link goes. It comes back, in a subnet whose policies must be turned off, and goes
    # with its Service.
    kubectl.service("inner", INTERNAL)
    controllers.wait("the end of the link", lambda: judge.document("privateLinkServices", "ours") is None)
    before = {name: part for name, part in _subnets(judge)}
    kubectl.service("inner", link | {"pls-ip-configuration-subnet": "apps"})
    controllers.wait("the link", lambda: judge.document("privateLinkServices", "ours"))
    controllers.wait("rest", lambda: here.settled(controllers, 1))
    kubectl.delete("inner")
    controllers.wait("the end of it", lambda: not kubectl.exists("inner"))
    controllers.wait("rest", lambda: here.settled(controllers, 1))
    assert not here.cloud.network.collisions and not here.cloud.network.violations
    assert judge.document("privateLinkServices", "ours") is None
    assert judge.document("loadBalancers", "kubernetes-internal") is None
    # Of the virtual network nothing else has changed.
    after = dict(_subnets(judge))
    assert after["apps"].pop("privateLinkServiceNetworkPolicies") == "Disabled"
    assert after == before


def _subnets(judge):
    listed = judge.document("virtualNetworks", "Their-Network")["properties"]["subnets"]
    defaults = {"privateLinkServiceNetworkPolicies": "Enabled", "privateEndpointNetworkPolicies": "Disabled"}
    for part in listed:
        given = part["properties"].items()
        yield part["name"], {name: value for name, value in given if defaults.get(name) != value and value != []}


def test_each_node_gets_a_route_and_routes_of_others_stay(town):
    here = town(QUICK)
    kubectl, judge = here.kubectl, here.judge
    for number, (name, address) in enumerate(NODES.items()):
        pods = f"10.244.{number}.0/24"
        kubectl.node(name.lower(), address, provider_id(here.cloud, name), podCIDR=pods, podCIDRs=[pods])
    controllers = here.controllers("--controllers=node-route", "--cluster-cidr=10.244.0.0/16")

    def routes() -> dict[str, str]:
        listed = judge.document("routeTables", "Their-Routes")["properties"]["routes"]
        return {r["properties"]["addressPrefix"]: r["properties"].get("nextHopIpAddress") for r in listed}

    theirs = {"172.16.0.0/16": None}
    ours = {f"10.244.{number}.0/24": f"10.240.0.{address}" for number, address in enumerate(NODES.values())}
    controllers.wait("three routes", lambda: routes() == theirs | ours)
    controllers.wait("rest", lambda: here.settled(controllers, 1))
    assert len(judge.writes()) == 1, "a burst of nodes is one write"
    here.cluster.delete("nodes", "node-1")
    del ours["10.244.1.0/24"]
    controllers.wait("two routes", lambda: routes() == theirs | ours)
    # Another writer takes a route away: it is not noticed before a look, which a new process takes.
    controllers.stop()
    here.cloud.network.somebody_edits("routeTables", "Their-Routes", lambda p: p["routes"].pop())
    controllers = here.controllers("--controllers=node-route", "--cluster-cidr=10.244.0.0/16")
    controllers.wait("two routes", lambda: routes() == theirs | ours)
    judge.check()
