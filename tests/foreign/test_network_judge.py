"""The judge of the network himself: a client that does wrong is found out, and the cloud refuses what Azure refuses."""

import copy

import pytest

from authority import AUDIENCE
from cloud import Cloud
from conftest import furnish
from dialect import PUBLIC
from landscape import lay_out, rule
from network_judge import NetworkJudge
from test_judge import send

QUICK = PUBLIC.but("quick", duration=0.0, retry_after=None)
SLOW = PUBLIC.but("slow", duration=30.0, retry_after=None, balancer_at_once=False)


def make(dialect=QUICK) -> Cloud:
    cloud = Cloud(dialect)
    furnish(cloud)
    lay_out(cloud)
    cloud.authority.tokens["t"] = AUDIENCE
    return cloud


@pytest.fixture
def cloud():
    with make() as cloud:
        yield cloud


def changed(cloud: Cloud, kind: str, name: str, edit, etag: str | None = "read", part: str = "") -> tuple[int, dict]:
    """Reads a resource, edits its properties, and writes it with the etag that was read, another or none."""
    path = cloud.network.path(kind, name) + part
    status, body = send(cloud, "GET", path)
    assert status == 200, body
    edit(body["properties"])
    headers = {"If-Match": body["etag"] if etag == "read" else etag} if etag else {}
    if not etag or etag != "read":
        del body["etag"]
    return send(cloud, "PUT", path, body, **headers)


def code(answer: tuple[int, dict]) -> tuple[int, str]:
    error = answer[1]["error"]
    details = error.get("details") or [{}]
    return answer[0], details[0].get("code") or error["code"]


def test_a_write_that_reads_edits_and_names_the_etag_is_right(cloud):
    judge = NetworkJudge(cloud)
    add = lambda p: p["securityRules"].append(rule("mine", 700))  # noqa: E731
    assert changed(cloud, "networkSecurityGroups", "Their-Group", add)[0] == 200
    judge.check()
    with pytest.raises(AssertionError, match="left behind"):
        judge.check_clean()
    remove = lambda p: p["securityRules"].pop()  # noqa: E731
    assert changed(cloud, "networkSecurityGroups", "Their-Group", remove)[0] == 200
    judge.check_clean()


def test_a_write_without_an_etag_is_found_out(cloud):
    judge = NetworkJudge(cloud)
    assert changed(cloud, "networkSecurityGroups", "Their-Group", lambda p: None, etag=None)[0] == 200
    with pytest.raises(AssertionError, match="without an etag"):
        judge.check()


def test_a_stale_etag_is_refused_in_header_and_body(cloud):
    stale = 'W/"00000000-0000-0000-0000-000000000000"'
    assert code(changed(cloud, "routeTables", "Their-Routes", lambda p: None, etag=stale)) == (
        412,
        "PreconditionFailedEtagMismatch",
    )
    path = cloud.network.path("routeTables", "Their-Routes")
    body = send(cloud, "GET", path)[1] | {"etag": stale}
    assert send(cloud, "PUT", path, body)[0] == 412
    NetworkJudge(cloud).check()


@pytest.mark.parametrize("member", ["securityRules"])
def test_a_part_of_somebody_elses_that_changes_or_goes_is_found_out(cloud, member):
    judge = NetworkJudge(cloud)

    def widen(properties):
        properties[member][0]["properties"]["destinationPortRange"] = "*"

    assert changed(cloud, "networkSecurityGroups", "Their-Group", widen)[0] == 200
    with pytest.raises(AssertionError, match="Their-SSH"):
        judge.check()
    assert changed(cloud, "networkSecurityGroups", "Their-Group", lambda p: p[member].pop(0))[0] == 200
    with pytest.raises(AssertionError, match="is gone"):
        judge.check()


def test_a_future_member_that_gets_lost_is_found_out():
    with make(QUICK.but("future", new_properties=True)) as cloud:
        judge = NetworkJudge(cloud)
        assert changed(cloud, "loadBalancers", "kubernetes", lambda p: None)[0] == 200
        judge.check()

        def forget(properties):
            del properties["frontendIPConfigurations"][0]["properties"]["futureNote"]

        assert changed(cloud, "loadBalancers", "kubernetes", forget)[0] == 200
        with pytest.raises(AssertionError, match="is lost"):
            judge.check()


def test_a_reference_to_nothing_or_to_what_is_not_ready_is_refused():
    with make(SLOW) as cloud:
        spare = {"location": "westeurope", "sku": {"name": "Standard"}, "properties": {}}
        path = cloud.network.path("publicIPAddresses", "new")

        def front(properties):
            one = {"name": "mine", "properties": {"publicIPAddress": {"id": path}}}
            properties["frontendIPConfigurations"].append(one)

        assert code(changed(cloud, "loadBalancers", "kubernetes", front)) == (400, "InvalidResourceReference")
        assert send(cloud, "PUT", path, spare)[0] == 201
        assert code(changed(cloud, "loadBalancers", "kubernetes", front)) == (429, "ReferencedResourceNotProvisioned")
        assert len(cloud.network.collisions) == 2


def test_what_is_in_use_is_not_deleted(cloud):
    for kind, name in (
        ("publicIPAddresses", "Their-Address"),
        ("networkSecurityGroups", "Their-Group"),
        ("routeTables", "Their-Routes"),
        ("virtualNetworks", "Their-Network"),
    ):
        assert send(cloud, "DELETE", cloud.network.path(kind, name))[0] == 400, name
    with pytest.raises(AssertionError, match="uses it"):
        NetworkJudge(cloud).check()


@pytest.mark.parametrize(
    ("kind", "name", "wrong"),
    [
        ("networkSecurityGroups", "Their-Group", lambda p: p["securityRules"].append(rule("x", 500))),
        ("networkSecurityGroups", "Their-Group", lambda p: p["securityRules"].append(rule("x", 50))),
        ("networkSecurityGroups", "Their-Group", lambda p: p["securityRules"].append(rule("Their-ssh", 501))),
        (
            "networkSecurityGroups",
            "Their-Group",
            lambda p: p["securityRules"].append(rule("x", 501, sourceAddressPrefixes=["10.0.0.0/8"])),
        ),
        ("loadBalancers", "kubernetes", lambda p: p.update(colour="blue")),
        ("loadBalancers", "Their-Balancer", lambda p: p.update(frontendIPConfigurations=[], outboundRules=[])),
        ("routeTables", "Their-Routes", lambda p: p["routes"].append(copy.deepcopy(p["routes"][0]) | {"name": "x"})),
    ],
    ids=["priority-twice", "priority-too-low", "name-twice", "two-sources", "unknown", "no-frontend", "prefix-twice"],
)
def test_what_azure_refuses_is_refused(cloud, kind, name, wrong):
    before = copy.deepcopy(cloud.network.resources[cloud.network.path(kind, name).lower()].document)
    assert code(changed(cloud, kind, name, wrong))[0] == 400
    assert cloud.network.violations
    assert cloud.network.resources[cloud.network.path(kind, name).lower()].document == before


def test_a_write_elsewhere_makes_a_new_etag(cloud):
    """Documented by the recordings' back references: what is referred to is changed too."""
    address = cloud.network.path("publicIPAddresses", "Their-Spare")
    before = send(cloud, "GET", address)[1]

    def front(properties):
        properties["frontendIPConfigurations"].append(
            {"name": "mine", "properties": {"publicIPAddress": {"id": address}}}
        )

    assert changed(cloud, "loadBalancers", "kubernetes", front)[0] == 200
    after = send(cloud, "GET", address)[1]
    assert after["etag"] != before["etag"]
    assert after["properties"]["ipConfiguration"]["id"].endswith("/frontendIPConfigurations/mine")
