"""The life of Services of type LoadBalancer, in every dialect."""

import pytest

from controllers import INTERNAL
from dialect import DIALECTS

BACKENDS = {"10.240.0.4", "10.240.0.5", "10.240.0.6"}
STACKS = [each for each in DIALECTS if each.stack]
TEAM = {"pip-name": "Their-Spare"}


@pytest.mark.parametrize(
    "dialect", [each for each in DIALECTS if not each.stack], ids=lambda dialect: dialect.name.replace(" ", "-")
)
def test_services_live_and_die_and_nothing_else_is_touched(town, dialect):
    here = town(dialect)
    controllers, judge, kubectl = here.controllers(), here.judge, here.kubectl

    # A public one with two ports, an internal one, and two that share a public IP of another owner.
    kubectl.service("web", ports=(80, 443), loadBalancerSourceRanges=["203.0.113.0/24"])
    # Where reads trail, a read after the end of the write may show a frontend without the address that Azure chose.
    chosen = {"load-balancer-ipv4": "10.240.0.99"} if dialect.read_lag else {}
    kubectl.service("inner", INTERNAL | chosen, ports=(80, (53, "UDP")))
    kubectl.service("left", TEAM, ports=(81,))
    kubectl.service("right", TEAM, ports=(82,))
    names = ("web", "inner", "left", "right")
    controllers.wait("four addresses", lambda: all(kubectl.addresses(name) for name in names))
    [web], [inner] = kubectl.addresses("web"), kubectl.addresses("inner")
    assert kubectl.addresses("left") == kubectl.addresses("right") == ["20.40.0.3"]
    for address, port in ((web, 80), (web, 443), (inner, 80), ("20.40.0.3", 81), ("20.40.0.3", 82)):
        assert judge.serves(address, port) == BACKENDS, (address, port)
    assert judge.serves(inner, 53, "Udp") == BACKENDS
    assert judge.admits("203.0.113.9", web, 80) and judge.admits("203.0.113.9", web, 443)
    assert not judge.admits("192.0.2.1", web, 80)
    assert judge.admits("192.0.2.1", "20.40.0.3", 81) and not judge.admits("192.0.2.1", "20.40.0.3", 83)
    controllers.wait("the end of all operations", judge.quiet)
    judge.check()

    # Other ports, other ranges, another side; each is what changes, and the others are served at any time.
    kubectl.service("web", ports=(80, 8443), loadBalancerSourceRanges=["203.0.113.0/24", "198.51.100.0/24"])
    controllers.wait("the new port", lambda: judge.serves(web, 8443) and not judge.serves(web, 443))
    controllers.wait("the new range", lambda: judge.admits("198.51.100.9", web, 8443))
    assert judge.serves(web, 80) == BACKENDS and not judge.admits("192.0.2.1", web, 80)
    kubectl.service("inner", ports=(80,))
    controllers.wait("a public address", lambda: kubectl.addresses("inner") not in ([], [inner]))
    [outer] = kubectl.addresses("inner")
    assert judge.serves(outer, 80) == BACKENDS and judge.admits("192.0.2.1", outer, 80)
    controllers.wait("the old frontend's end", lambda: not judge.serves(inner, 80))
    # One of two that share an address goes; the other is served as before.
    kubectl.delete("left")
    controllers.wait("the end of left", lambda: not kubectl.exists("left"))
    assert not judge.serves("20.40.0.3", 81) and not judge.admits("192.0.2.1", "20.40.0.3", 81)
    assert judge.serves("20.40.0.3", 82) == BACKENDS and judge.admits("192.0.2.1", "20.40.0.3", 82)

    # The next process takes over without a write, and so does one that was killed.
    controllers.wait("the end of all operations", judge.quiet)
    services, writes = here.cluster.all("services"), len(judge.writes())
    controllers.stop()
    controllers = here.controllers()
    controllers.wait("its first look", lambda: here.settled(controllers))
    assert judge.writes()[writes:] == [] and here.cluster.all("services") == services

    for name in ("web", "inner", "right"):
        kubectl.delete(name)
    controllers.wait("the end of all Services", lambda: not any(kubectl.exists(name) for name in names))
    controllers.wait("the end of all operations", judge.quiet)
    judge.check_clean()


@pytest.mark.parametrize("dialect", STACKS, ids=lambda dialect: dialect.name.replace(" ", "-"))
def test_basic_load_balancers_serve_an_availability_set_of_azure_stack_hub(town, dialect):
    here = town(dialect.but(dialect.name, duration=0.2))
    controllers = here.controllers(
        loadBalancerSku="basic",
        loadBalancerBackendPoolConfigurationType="nodeIPConfiguration",
        primaryAvailabilitySetName="agents",
    )
    kubectl, judge = here.kubectl, here.judge
    kubectl.service("web", ports=(80, 443))
    kubectl.service("inner", INTERNAL)
    controllers.wait("two addresses", lambda: kubectl.addresses("web") and kubectl.addresses("inner"))
    for name, port in (("web", 80), ("web", 443), ("inner", 80)):
        [address] = kubectl.addresses(name)
        controllers.wait("the backends", lambda at=(address, port): judge.serves(*at) == BACKENDS)
    for name in ("web", "inner"):
        kubectl.delete(name)
    controllers.wait("the end of both", lambda: not kubectl.exists("web") and not kubectl.exists("inner"))
    controllers.wait("the end of all operations", judge.quiet)
    judge.check_clean()
