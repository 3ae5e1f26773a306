"""The judge himself: a client that does wrong is found out, and the cloud speaks the dialect it was told to."""

import http.client
import json
import time
import urllib.request

import pytest

from authority import AUDIENCE
from cloud import Cloud
from conftest import furnish
from dialect import DIALECTS, PUBLIC
from judge import Judge
from operations import Refused

VERSION = "api-version=2025-04-01"
QUICK = PUBLIC.but("quick", duration=0.2)


@pytest.fixture
def cloud():
    with Cloud(QUICK) as cloud:
        furnish(cloud)
        cloud.authority.tokens["t"] = AUDIENCE
        yield cloud


def send(cloud: Cloud, method: str, resource: str, body: dict | None = None, **headers) -> tuple[int, dict]:
    """One request with a valid token: status and body."""
    connection = http.client.HTTPConnection(cloud.url.removeprefix("http://"))
    connection.request(
        method,
        f"{resource}?{VERSION}",
        json.dumps(body) if body is not None else None,
        {"Authorization": "Bearer t", "Content-Type": "application/json", **headers},
    )
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    return answer.status, json.loads(text) if text else {}


def new_disk(cloud: Cloud, name: str) -> str:
    path = cloud.compute.path("disks", name)
    send(
        cloud,
        "PUT",
        path,
        {"location": "westeurope", "properties": {"creationData": {"createOption": "Empty"}, "diskSizeGB": 4}},
    )
    time.sleep(cloud.dialect.duration)
    return path


def listed(cloud: Cloud, node: str, change) -> tuple[int, dict]:
    """Reads a machine's data disks, changes the list, and writes it whole."""
    vm = cloud.compute.path("virtualMachines", node)
    disks = send(cloud, "GET", vm)[1]["properties"]["storageProfile"]["dataDisks"]
    change(disks)
    return send(cloud, "PUT", vm, {"location": "westeurope", "properties": {"storageProfile": {"dataDisks": disks}}})


def attach(lun: int, disk: str):
    return lambda disks: disks.append(
        {"lun": lun, "createOption": "Attach", "caching": "None", "managedDisk": {"id": disk}}
    )


def test_a_well_behaved_client_is_found_innocent(cloud):
    judge = Judge(cloud)
    disk = new_disk(cloud, "mine")
    assert listed(cloud, "node-0", attach(1, disk))[0] == 200
    time.sleep(0.3)
    assert judge.luns("node-0")[1] == disk.lower()
    judge.check()

    def leave(disks):
        next(element for element in disks if element["lun"] == 1)["toBeDetached"] = True

    assert listed(cloud, "node-0", leave)[0] == 200
    time.sleep(0.3)
    assert send(cloud, "DELETE", disk)[0] == 202
    time.sleep(0.3)
    judge.check_clean()


def test_a_lun_that_is_taken_is_noticed(cloud):
    judge = Judge(cloud)
    assert listed(cloud, "node-0", attach(2, new_disk(cloud, "mine")))[0] == 400
    with pytest.raises(AssertionError, match="asked for twice"):
        judge.check()


def test_a_foreign_disk_that_is_left_out_is_noticed(cloud):
    judge = Judge(cloud)
    assert listed(cloud, "node-0", lambda disks: disks.pop())[0] == 200
    with pytest.raises(AssertionError, match="foreign"):
        judge.check()


@pytest.mark.parametrize("member", ["caching", "deleteOption", "writeAcceleratorEnabled"])
def test_a_member_of_a_foreign_disk_that_is_dropped_is_noticed(cloud, member):
    judge = Judge(cloud)
    assert listed(cloud, "node-0", lambda disks: disks[0].pop(member))[0] == 200
    with pytest.raises(AssertionError, match=member):
        judge.check()


def test_the_keys_of_a_foreign_disk_that_are_dropped_are_noticed(cloud):
    judge = Judge(cloud)
    assert listed(cloud, "node-0", lambda disks: disks[0]["managedDisk"].pop("diskEncryptionSet"))[0] == 200
    with pytest.raises(AssertionError, match="diskEncryptionSet"):
        judge.check()


def test_a_disk_for_two_machines_is_noticed(cloud):
    judge = Judge(cloud)
    disk = new_disk(cloud, "mine")
    listed(cloud, "node-0", attach(5, disk))
    time.sleep(0.3)
    assert listed(cloud, "node-1", attach(5, disk))[0] == 409
    with pytest.raises(AssertionError, match="while it belongs to"):
        judge.check()


def test_a_write_into_a_running_operation_is_noticed(cloud):
    judge = Judge(cloud)
    disk = new_disk(cloud, "mine")
    assert listed(cloud, "node-0", attach(5, disk))[0] == 200
    assert listed(cloud, "node-0", lambda disks: None)[0] == 409
    with pytest.raises(AssertionError, match="is running"):
        judge.check()


def test_a_disk_and_an_attachment_that_are_left_behind_are_noticed(cloud):
    judge = Judge(cloud)
    disk = new_disk(cloud, "mine")
    with pytest.raises(AssertionError, match="left behind"):
        judge.check_clean()
    listed(cloud, "node-0", attach(5, disk))
    time.sleep(0.3)
    with pytest.raises(AssertionError, match="left behind"):
        judge.check_clean()


def test_a_loop_that_polls_is_noticed(cloud):
    judge = Judge(cloud)
    path = cloud.compute.path("disks", "mine")
    send(
        cloud,
        "PUT",
        path,
        {"location": "westeurope", "properties": {"creationData": {"createOption": "Empty"}, "diskSizeGB": 4}},
    )
    operation = next(iter(cloud.compute.operations.values()))
    for _ in range(60):
        send(cloud, "GET", f"/subscriptions/s/providers/Microsoft.Compute/locations/l/operations/{operation.id}")
    with pytest.raises(AssertionError, match="polls|poll requests"):
        judge.check()


def test_a_stale_etag_is_refused(cloud):
    vm = cloud.compute.path("virtualMachines", "node-0")
    assert send(cloud, "PATCH", vm, {"tags": {"owner": "someone else"}}, **{"If-Match": '"999"'})[0] == 412
    etag = send(cloud, "GET", vm)[1]["etag"]
    assert send(cloud, "PATCH", vm, {"tags": {"owner": "someone else"}}, **{"If-Match": etag})[0] == 200


def test_an_operation_can_fail_after_it_was_accepted(cloud):
    cloud.compute.late_failures["disks"].append(Refused(409, "Quota", "No more disks."))
    path = new_disk(cloud, "mine")
    assert send(cloud, "GET", path)[1]["properties"]["provisioningState"] == "Failed"
    operation = next(iter(cloud.compute.operations.values()))
    status, body = send(
        cloud, "GET", f"/subscriptions/s/providers/Microsoft.Compute/locations/l/operations/{operation.id}"
    )
    assert (status, body["status"], body["error"]["code"]) == (200, "Failed", "Quota")


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name.replace(" ", "-"))
def test_every_dialect_is_http_and_json_to_an_ordinary_client(dialect):
    with Cloud(dialect) as cloud:
        furnish(cloud)
        cloud.authority.tokens["t"] = AUDIENCE
        version = "2019-03-01" if dialect.stack else "2025-01-02"
        url = f"{cloud.url}{cloud.compute.path('disks', '')}?api-version={version}"
        names = []
        while url:
            request = urllib.request.Request(url, headers={"Authorization": "Bearer t"})
            with urllib.request.urlopen(request, timeout=10) as answer:
                body = json.loads(answer.read().decode("utf-8-sig"))
            names += [disk["name"] for disk in body["value"]]
            url = body.get("nextLink")
        assert names == ["Theirs-0", "Theirs-1", "Theirs-2", "Theirs-loose"]
