"""Who leads, and what the one before left: two replicas, a Lease that is taken away, the Go manager's leftovers, other
clusters, Services that change faster than Azure."""

import copy
import time

from controllers import INTERNAL
from dialect import PUBLIC
from landscape import rule

QUICK = PUBLIC.but("quick", duration=0.2, retry_after=None)
SLOW = PUBLIC.but("operations that last", duration=1.5, retry_after=None, balancer_at_once=False)
NIC = {"loadBalancerBackendPoolConfigurationType": "nodeIPConfiguration"}
BALANCER = "/loadBalancers/kubernetes$"
ALL = {"10.240.0.4", "10.240.0.5", "10.240.0.6"}
PREFIX = "service.beta.kubernetes.io/azure-"


def base(service: dict) -> str:
    """What the Go manager names a Service's resources by. Source: cloud-provider, DefaultLoadBalancerName."""
    return ("a" + service["metadata"]["uid"].replace("-", ""))[:32]


def gone(here, *names: str):
    return lambda: not any(here.kubectl.exists(name) for name in names)


def test_the_other_replica_ends_what_one_began_that_lost_the_lease_in_the_middle_of_a_write(town):
    here = town(QUICK)

    def take_lease():
        lease = here.cluster.get("leases", "cloud-controller-manager", "kube-system")
        lease["spec"]["holderIdentity"] = "somebody"
        here.cluster.put("leases", lease)

    taken = here.cloud.fault("PUT", BALANCER, then=take_lease, delay=0.5)
    first = here.controllers()
    first.wait("its lead", lambda: "this replica leads" in first.log_text())
    second = here.controllers()
    here.kubectl.service("web", ports=(80, 443))
    second.wait("the loss", lambda: taken.hits)
    # The one that lost it ends: it writes no more.
    deadline = time.monotonic() + 20
    while first.process.poll() is None:
        assert time.monotonic() < deadline, "it did not notice"
        time.sleep(0.05)
    assert first.process.returncode == 1
    writes = len(here.judge.writes())
    lease = here.cluster.get("leases", "cloud-controller-manager", "kube-system")
    assert lease["spec"]["holderIdentity"] == "somebody"
    assert len(here.judge.writes()) == writes
    here.cluster.put("leases", lease | {"spec": lease["spec"] | {"holderIdentity": ""}})
    second.wait("an address", lambda: here.kubectl.addresses("web"))
    [web] = here.kubectl.addresses("web")
    second.wait("the backends", lambda: here.judge.serves(web, 443) == ALL)
    here.kubectl.delete("web")
    second.wait("its end", gone(here, "web"))
    here.judge.check_clean(alone=False)


def test_a_service_that_is_deleted_while_it_is_made_leaves_nothing(town):
    for path in ("/publicIPAddresses/kubernetes-a", BALANCER, "/networkSecurityGroups/Their-Group$"):
        here = town(SLOW)
        here.cloud.fault("PUT", path, then=lambda here=here: here.kubectl.delete("web"))
        controllers = here.controllers()
        here.kubectl.service("web")
        controllers.wait(f"its end after {path}", gone(here, "web"))
        controllers.wait("the end of all operations", here.judge.quiet)
        here.judge.check_clean()


def test_the_newest_of_many_changes_wins_and_a_burst_is_few_writes(town):
    here = town(SLOW)
    controllers = here.controllers()
    here.kubectl.service("web", ports=(80,))
    controllers.wait("an address", lambda: here.kubectl.addresses("web"))
    [web] = here.kubectl.addresses("web")
    writes = len(here.judge.writes())
    for last in range(1, 21):
        here.kubectl.service("web", ports=(80, 1000 + last))
        time.sleep(0.05)
    controllers.wait("the last port", lambda: here.judge.serves(web, 1020) == ALL)
    controllers.wait("rest", lambda: here.settled(controllers))
    ports = {
        each["properties"]["frontendPort"]
        for each in here.judge.document("loadBalancers", "kubernetes")["properties"]["loadBalancingRules"]
    }
    assert ports == {80, 1020}
    assert here.judge.admits("192.0.2.1", web, 1020) and not here.judge.admits("192.0.2.1", web, 1010)
    assert len(here.judge.writes()) - writes <= 8
    here.kubectl.delete("web")
    controllers.wait("its end", gone(here, "web"))
    here.judge.check_clean()


def test_a_private_link_service_that_nobody_asks_for_any_more_does_not_keep_its_service(town):
    """The Go manager leaves it where `azure-pls-create` became false."""
    here = town(QUICK)
    controllers = here.controllers(**NIC)
    here.kubectl.service("inner", INTERNAL)
    controllers.wait("an address", lambda: here.kubectl.addresses("inner"))
    controllers.wait("rest", lambda: here.settled(controllers, 1))
    controllers.stop()
    service = here.cluster.get("services", "inner")
    network = here.cloud.network
    front = network.path("loadBalancers", "kubernetes-internal") + f"/frontendIPConfigurations/{base(service)}"
    subnet = network.path("virtualNetworks", "Their-Network") + "/subnets/links"
    with here.cloud.lock:
        network.place(
            "privateLinkServices",
            f"pls-{base(service)}",
            {
                "loadBalancerFrontendIpConfigurations": [{"id": front}],
                "ipConfigurations": [{"name": "links-0", "properties": {"subnet": {"id": subnet}, "primary": True}}],
            },
            tags={"k8s-azure-owner-service": "default/inner", "k8s-azure-cluster-name": "kubernetes"},
        )
    controllers = here.controllers(**NIC)
    controllers.wait("rest", lambda: here.settled(controllers, 1))
    here.kubectl.delete("inner")
    controllers.wait("its end", gone(here, "inner"))
    controllers.wait("rest", lambda: here.settled(controllers, 1))
    assert here.judge.document("loadBalancers", "kubernetes-internal") is None
    assert not network.violations


def test_what_is_tagged_with_another_clusters_name_is_never_written(town):
    here = town(QUICK)
    uid = "11111111-2222-4333-8444-555555555555"
    theirs = ("a" + uid.replace("-", ""))[:32]
    network = here.cloud.network
    tags = {"k8s-azure-service": "default/web", "k8s-azure-cluster-name": "another"}
    network.place(
        "publicIPAddresses",
        f"another-{theirs}",
        {"publicIPAllocationMethod": "Static", "publicIPAddressVersion": "IPv4", "ipAddress": "20.40.0.9"},
        sku={"name": "Standard"},
        tags=tags,
    )
    balancer = network.path("loadBalancers", "kubernetes")
    port = {
        "name": f"{theirs}-TCP-80",
        "properties": {
            "frontendIPConfiguration": {"id": f"{balancer}/frontendIPConfigurations/Their-Front"},
            "backendAddressPool": {"id": f"{balancer}/backendAddressPools/Their-Pool"},
            "protocol": "Tcp",
            "frontendPort": 80,
            "backendPort": 80,
        },
    }
    network.somebody_edits("loadBalancers", "kubernetes", lambda p: p["loadBalancingRules"].append(port))
    open_ = rule("k8s-azure-lb_allow_IPv4_0123456789abcdef0123456789abcdef", 510, destinationAddressPrefix="20.40.0.9")
    network.somebody_edits("networkSecurityGroups", "Their-Group", lambda p: p["securityRules"].append(open_))
    here.judge.before = {at: copy.deepcopy(held.document) for at, held in network.resources.items()}
    controllers = here.controllers()
    here.kubectl.service("web")
    controllers.wait("an address", lambda: here.kubectl.addresses("web"))
    here.kubectl.delete("web")
    controllers.wait("its end", gone(here, "web"))
    here.judge.check_clean()
