"""What goes wrong between the cloud controllers and a cloud: throttling, gateways, lost answers, late failures, other
people's writes, kill -9.

The rule of each test: every Service ends as it asks, the cloud is left as if nothing had happened, and what other
people wrote meanwhile is still there.
"""

import pytest

from controllers import INTERNAL
from dialect import PUBLIC
from landscape import rule
from operations import Refused

QUICK = PUBLIC.but("quick", duration=0.2, retry_after=None)
AT_REST = PUBLIC.but("quick, Updating while it lasts", duration=0.2, retry_after=None, balancer_at_once=False)

BALANCER = "/loadBalancers/kubernetes$"
GROUP = "/networkSecurityGroups/Their-Group$"
ADDRESS = "/publicIPAddresses/kubernetes-a"
# Each step of a life as a request.
STEPS = [
    ("GET", "/publicIPAddresses$"),
    ("GET", BALANCER),
    ("PUT", ADDRESS),
    ("GET", "/locations/.*/operations/"),
    ("PUT", BALANCER),
    ("PUT", GROUP),
    ("DELETE", ADDRESS),
    ("DELETE", "/loadBalancers/kubernetes-internal$"),
]
WRITES = [step for step in STEPS if step[0] != "GET"]
BACKENDS = {"10.240.0.4", "10.240.0.5", "10.240.0.6"}


def created(here, controllers) -> None:
    """A public and an internal Service, both served."""
    here.kubectl.service("web", ports=(80, 443))
    here.kubectl.service("inner", INTERNAL)
    served(here, controllers)


def served(here, controllers) -> None:
    controllers.wait("two addresses", lambda: here.kubectl.addresses("web") and here.kubectl.addresses("inner"), 90)
    [web], [inner] = here.kubectl.addresses("web"), here.kubectl.addresses("inner")
    for address, port in ((web, 80), (web, 443), (inner, 80)):
        controllers.wait("the backends", lambda at=(address, port): here.judge.serves(*at) == BACKENDS)
    controllers.wait("the security group", lambda: here.judge.admits("192.0.2.1", web, 443))


def deleted(here, controllers) -> None:
    for name in ("web", "inner"):
        if here.kubectl.exists(name):
            here.kubectl.delete(name)
    gone = lambda: not here.kubectl.exists("web") and not here.kubectl.exists("inner")  # noqa: E731
    controllers.wait("the end of both", gone, 90)
    controllers.wait("the end of all operations", here.judge.quiet)


@pytest.mark.parametrize(
    "answer",
    [
        {
            "status": 429,
            "headers": {"Retry-After": "1"},
            "body": b'{"error":{"code":"TooManyRequests","message":"Too many requests.","details":[]}}',
        },
        {
            "status": 429,
            "body": b'{"error":{"code":"RetryableError","message":"A retryable error occurred.","details":[{"code":'
            b'"RetryableErrorDueToAnotherOperation","message":"Operation PutLoadBalancerOperation (x) is updating '
            b'resource y. The call can be retried in 1 seconds."}]}}',
        },
        {
            "status": 409,
            "body": b'{"error":{"code":"AnotherOperationInProgress","message":"Another operation on this or dependent '
            b'resource is in progress."}}',
        },
        {"status": 503, "headers": {"Retry-After": "1"}, "body": b""},
        {
            "status": 500,
            "body": b'{"error":{"code":"InternalServerError","message":"An error occurred.","details":[]}}',
        },
        {"status": 502, "headers": {"Content-Type": "text/html"}, "body": b"<html><h1>502 Bad Gateway</h1></html>"},
    ],
    ids=["429", "429-another-operation", "409-another-operation", "503", "500", "502-html"],
)
def test_a_request_that_is_refused_once_is_made_again(town, answer):
    here = town(QUICK)
    for method, path in STEPS:
        if not (answer["status"] == 409 and method == "GET"):
            here.cloud.fault(method, path, **answer)
    controllers = here.controllers()
    created(here, controllers)
    deleted(here, controllers)
    assert all(fault.hits == 1 for fault in here.cloud.faults), "each step was hit"
    here.judge.check_clean()


@pytest.mark.parametrize("drop", ["before", "after", "within"])
@pytest.mark.parametrize("dialect", [QUICK, AT_REST], ids=["succeeded-at-once", "updating"])
def test_a_connection_lost_around_a_write_neither_repeats_nor_loses_it(town, dialect, drop):
    here = town(dialect)
    for method, path in WRITES:
        here.cloud.fault(method, path, drop=drop)
    controllers = here.controllers()
    created(here, controllers)
    deleted(here, controllers)
    assert all(fault.hits == 1 for fault in here.cloud.faults), "each step was hit"
    here.judge.check_clean(alone=False)


@pytest.mark.parametrize("leaves", ["nothing", "all"])
def test_an_operation_that_fails_at_its_end_is_repeated_or_seen_to_be_done(town, leaves):
    here = town(QUICK)
    for kind in ("publicIPAddresses", "loadBalancers", "networkSecurityGroups"):
        failure = Refused(500, "InternalServerError", "An error occurred.", leaves=leaves)
        here.cloud.network.late_failures[kind].append(failure)
    controllers = here.controllers()
    created(here, controllers)
    assert not any(here.cloud.network.late_failures.values())
    deleted(here, controllers)
    here.judge.check_clean(alone=False)


def test_what_somebody_writes_between_a_read_and_a_write_stays(town):
    here = town(QUICK)
    network, made = here.cloud.network, []

    def add_rule():
        made.append(f"Somebody-{len(made)}")
        one = rule(made[-1], 600 + len(made))
        network.somebody_edits("networkSecurityGroups", "Their-Group", lambda p: p["securityRules"].append(one))

    def add_probe():
        made.append(f"Somebody-{len(made)}")
        one = {"name": made[-1], "properties": {"protocol": "Tcp", "port": 9000}}
        network.somebody_edits("loadBalancers", "kubernetes", lambda p: p["probes"].append(one))

    for _ in range(3):
        here.cloud.fault("GET", f"{GROUP}|/networkSecurityGroups$", then=add_rule)
        here.cloud.fault("GET", BALANCER, then=add_probe)
    controllers = here.controllers()
    created(here, controllers)
    # A write was refused with 412, read again and planned again.
    assert [each for each in here.judge.writes() if each.status == 412]
    assert len(made) >= 3
    deleted(here, controllers)
    here.judge.check(alone=False)
    group = here.judge.document("networkSecurityGroups", "Their-Group")["properties"]
    balancer = here.judge.document("loadBalancers", "kubernetes")["properties"]
    left = {each["name"] for each in group["securityRules"] + balancer["probes"]}
    assert left == {*made, "Their-SSH", "Their-Deny", "Their-Outbound", "Their-Probe"}


def test_what_azure_refuses_for_good_is_told_and_the_others_are_served(town):
    here = town(QUICK)
    kubectl = here.kubectl
    controllers = here.controllers()
    kubectl.service("web", ports=(80, 443))
    kubectl.service("inner", INTERNAL)
    kubectl.service("lost", {"load-balancer-ipv4": "20.99.99.99"})
    kubectl.service("wrong", {"load-balancer-tcp-idle-timeout": "three"})
    served(here, controllers)

    def told(name: str, *parts: str) -> bool:
        return any(all(part in note for part in parts) for note in kubectl.notes(name))

    # Of a Service more than one event may be told, at moments of their own.
    controllers.wait("the event of lost", lambda: told("lost", "20.99.99.99"))
    controllers.wait("the event of wrong", lambda: told("wrong", "tcp-idle-timeout", "three"))
    assert not kubectl.addresses("lost") and not kubectl.addresses("wrong")
    # Corrected, they are served.
    kubectl.service("wrong", {"load-balancer-tcp-idle-timeout": "30"})
    kubectl.service("lost")
    controllers.wait("two more addresses", lambda: kubectl.addresses("wrong") and kubectl.addresses("lost"))
    for name in ("wrong", "lost"):
        kubectl.delete(name)
    deleted(here, controllers)
    controllers.wait("the end of all", lambda: not kubectl.exists("wrong") and not kubectl.exists("lost"))
    here.judge.check_clean()


def test_a_deletion_that_is_forbidden_keeps_the_service_until_it_is_allowed(town):
    here = town(QUICK)
    controllers = here.controllers()
    created(here, controllers)
    forbidden = here.cloud.fault(
        "DELETE",
        ADDRESS,
        times=2,
        status=403,
        body=b'{"error":{"code":"AuthorizationFailed","message":"The client does not have authorization."}}',
    )
    here.kubectl.delete("web")
    controllers.wait("the refusal", lambda: forbidden.hits)
    assert here.kubectl.exists("web")
    deleted(here, controllers)
    here.judge.check_clean()


@pytest.mark.parametrize("nth", range(1, 9))
def test_a_process_that_is_killed_after_any_write_leaves_nothing(town, nth):
    here = town(QUICK)
    controllers = here.controllers()
    writes = lambda: len([each for each in here.judge.writes() if each.status])  # noqa: E731
    here.kubectl.service("web", ports=(80, 443))
    here.kubectl.service("inner", INTERNAL)
    # Creation takes some four writes, deletion the others.
    while writes() < nth:
        if here.kubectl.addresses("web") and here.kubectl.addresses("inner") and here.judge.quiet():
            for name in ("web", "inner"):
                if not (here.cluster.get("services", name) or {"metadata": {}})["metadata"].get("deletionTimestamp"):
                    if here.kubectl.exists(name):
                        here.kubectl.delete(name)
        if not here.kubectl.exists("web") and not here.kubectl.exists("inner"):
            break
    controllers.kill()
    controllers.start()
    if here.kubectl.exists("web") and not here.cluster.get("services", "web")["metadata"].get("deletionTimestamp"):
        served(here, controllers)
    deleted(here, controllers)
    here.judge.check_clean(alone=False)


def test_services_that_the_cluster_does_not_list_lose_nothing(town):
    here = town(QUICK)
    controllers = here.controllers()
    created(here, controllers)
    web = here.kubectl.addresses("web")[0]
    controllers.wait("the end of all operations", lambda: here.settled(controllers))
    controllers.stop()
    # A cluster that was restored from nothing, under the same name.
    for name in ("web", "inner"):
        service = here.cluster.get("services", name)
        service["metadata"]["finalizers"] = []
        here.cluster.put("services", service)
        here.cluster.delete("services", name)
    writes = len(here.judge.writes())
    controllers = here.controllers()
    controllers.wait("its first look", lambda: here.settled(controllers))
    assert here.judge.writes()[writes:] == []
    assert here.judge.serves(web, 80) == BACKENDS
    here.judge.check()
