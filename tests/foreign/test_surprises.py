"""Unexpected but possible answers of a cloud, and what callers do."""

import json

import grpc
import pytest

from cloud import Cloud
from compute import key
from dialect import PUBLIC, STACK, SYNC
from driver import RETRYABLE, at_once, code_of, persistently
from operations import Refused

Code = grpc.StatusCode
QUICK = PUBLIC.but("quick", duration=0.3)
WHOLE_LIST = QUICK.but("quick, whole list", action_missing="404")
EVERY_CODE = set(Code)


def to_json(value: dict) -> bytes:
    return json.dumps(value).encode()


@pytest.mark.parametrize("dialect", [QUICK, WHOLE_LIST], ids=["action", "whole-list"])
def test_one_bad_disk_fails_alone(room, dialect):
    here = room(dialect)
    driver, compute = here.driver(), here.cloud.compute
    volumes = [volume.volume_id for volume in at_once([lambda n=n: driver.create(f"pvc-{n}") for n in range(6)])]
    # It was deleted behind our back, and the reads of it are a moment old.
    with compute.lock:
        gone = compute.disks.pop(key(volumes[3]))
    here.cloud.fault("GET", "/disks/pvc-3", times=1, status=200, body=to_json(gone))
    codes = at_once([lambda volume=volume: code_of(driver.publish, volume, "node-0") for volume in volumes])
    assert codes[3] in RETRYABLE | {Code.NOT_FOUND}
    luns = at_once(
        [
            lambda volume=volume: persistently(driver.publish, volume, "node-0")
            for n, volume in enumerate(volumes)
            if n != 3
        ]
    )
    placed = here.judge.luns("node-0")
    assert [placed[lun] for lun in luns] == [key(volume) for n, volume in enumerate(volumes) if n != 3]
    assert code_of(driver.publish, volumes[3], "node-0") == Code.NOT_FOUND
    at_once([lambda volume=volume: persistently(driver.unpublish, volume, "node-0") for volume in volumes])
    at_once([lambda volume=volume: persistently(driver.delete, volume) for volume in volumes])
    here.judge.check_clean()


def test_a_creation_that_fails_for_a_quota_is_rescheduled_and_leaves_nothing(room):
    here = room(QUICK)
    driver = here.driver()
    quota = Refused(
        409,
        "OperationNotAllowed",
        "Operation could not be completed as it results in exceeding approved PremiumDiskCount quota. Additional "
        "details - Deployment Model: Resource Manager, Location: westeurope, Current Limit: 100, Current Usage: 100.",
    )
    here.cloud.compute.late_failures["disks"].append(quota)
    code = code_of(driver.create, "pvc-1")
    if code not in RETRYABLE:
        # A final code: no call comes back for the half-made disk.
        assert here.judge.ours() == []
    persistently(driver.delete, persistently(driver.create, "pvc-1").volume_id)
    here.judge.check_clean()


def test_a_disk_with_data_whose_last_change_failed_is_never_deleted_and_never_written_over(room):
    """Failed is what a disk says after a resize that failed, too: it is no creation that may be begun anew."""
    here = room(QUICK)
    driver, compute = here.driver(), here.cloud.compute
    volume = driver.create("pvc-1", gib=8, diskName="data").volume_id
    disk = compute.disks[key(volume)]
    disk["properties"]["provisioningState"] = "Failed"
    writes = len(here.cloud.requests("PUT", "/disks/data"))
    for wanted in [{"gib": 16}, {"gib": 8, "skuName": "Premium_LRS"}, {"gib": 4, "limit": 4}]:
        assert code_of(driver.create, "pvc-2", diskName="data", **wanted) == Code.ALREADY_EXISTS
    # It has grown since it was made, or is in use: it is there.
    assert driver.create("pvc-1", gib=4, diskName="data").volume_id == volume
    driver.publish(volume, "node-0")
    assert driver.create("pvc-1", gib=8, diskName="data").volume_id == volume
    driver.unpublish(volume, "node-0")
    disk["properties"]["provisioningState"] = "Failed"
    assert len(here.cloud.requests("PUT", "/disks/data")) == writes
    # To the byte what is asked for: a repeated PUT changes nothing, and if it fails, the disk stays.
    here.cloud.fault("PUT", "/disks/data", times=20, status=409, body=to_json({"error": {"code": "Conflict"}}))
    assert code_of(driver.create, "pvc-1", gib=8, diskName="data") != Code.OK
    assert not here.cloud.requests("DELETE", "/disks/data")
    assert key(volume) in compute.disks


def test_an_operation_that_failed_after_all_was_done_counts_as_what_the_machine_shows(room):
    here = room(QUICK)
    driver, compute = here.driver(), here.cloud.compute
    volume = driver.create("pvc-1").volume_id
    error = Refused(500, "InternalExecutionError", "An internal execution error occurred.", leaves="all")
    compute.late_failures["virtualMachines"].append(error)
    lun = persistently(driver.publish, volume, "node-0", also=EVERY_CODE)
    assert here.judge.luns("node-0")[lun] == key(volume)
    compute.late_failures["virtualMachines"].append(error)
    persistently(driver.unpublish, volume, "node-0", also=EVERY_CODE)
    assert key(volume) not in here.judge.luns("node-0").values()
    persistently(driver.delete, volume)
    here.judge.check_clean()


@pytest.mark.parametrize("dialect", [QUICK, WHOLE_LIST], ids=["action", "whole-list"])
def test_a_detach_that_got_stuck_is_not_taken_for_done(room, dialect):
    here = room(dialect)
    driver, compute = here.driver(), here.cloud.compute
    volume = driver.create("pvc-1").volume_id
    driver.publish(volume, "node-0")
    stuck = Refused(409, "DetachFailed", "The last detach operation failed.", leaves="stuck")
    compute.late_failures["virtualMachines"].extend([stuck] * 2)
    first = code_of(driver.unpublish, volume, "node-0")
    attached = key(volume) in here.judge.luns("node-0").values()
    assert (first == Code.OK) == (not attached)
    if attached:
        # Half out: not for another machine, and for the same one only after it has left.
        assert code_of(driver.publish, volume, "node-1") == Code.FAILED_PRECONDITION
        lun = persistently(driver.publish, volume, "node-0", also=EVERY_CODE)
        assert here.judge.luns("node-0")[lun] == key(volume)
        machine = compute.machines[key(compute.path("virtualMachines", "node-0"))]["resource"]["properties"]
        assert not any(element.get("toBeDetached") for element in machine["storageProfile"]["dataDisks"])
    persistently(driver.unpublish, volume, "node-0", also=EVERY_CODE)
    assert key(volume) not in here.judge.luns("node-0").values()
    persistently(driver.publish, volume, "node-1")
    persistently(driver.unpublish, volume, "node-1")
    persistently(driver.delete, volume)
    assert (
        compute.machines[key(compute.path("virtualMachines", "node-0"))]["resource"]["properties"]["provisioningState"]
        == "Succeeded"
    )
    here.judge.check_clean()


@pytest.mark.parametrize("dialect", [QUICK, WHOLE_LIST], ids=["action", "whole-list"])
def test_a_machine_whose_last_operation_failed_for_other_reasons_still_takes_disks(room, dialect):
    here = room(dialect)
    driver, compute = here.driver(), here.cloud.compute
    machine = compute.machines[key(compute.path("virtualMachines", "node-1"))]["resource"]
    machine["properties"]["provisioningState"] = "Failed"
    volume = driver.create("pvc-1").volume_id
    lun = persistently(driver.publish, volume, "node-1")
    assert here.judge.luns("node-1")[lun] == key(volume)
    persistently(driver.unpublish, volume, "node-1")
    persistently(driver.delete, volume)
    here.judge.check_clean()


def test_a_volume_spelled_in_two_ways_is_one_volume(room):
    here = room(QUICK)
    driver = here.driver()
    volume = driver.create("pvc-1").volume_id
    other = volume.replace("/resourceGroups/Foreign-Group/", "/resourcegroups/FOREIGN-GROUP/").replace(
        "/disks/", "/Disks/"
    )
    luns = at_once([lambda v=v: persistently(driver.publish, v, "node-0") for v in (volume, other, volume, other)])
    assert len(set(luns)) == 1
    assert len(here.cloud.requests("POST", "/attachDetach")) == 1
    assert code_of(driver.publish, other, "node-1") == Code.FAILED_PRECONDITION
    at_once([lambda v=v: persistently(driver.unpublish, v, "NODE-0") for v in (volume, other)])
    assert len(here.cloud.requests("POST", "/attachDetach")) == 2
    at_once([lambda v=v: persistently(driver.delete, v) for v in (volume, other)])
    here.judge.check_clean()


@pytest.mark.parametrize("where", ["operation", "list"])
def test_no_token_goes_to_another_host(room, where):
    """Documented: RPC, operations are on the host that was asked. A link elsewhere is a mistake or an attack."""
    here = room(QUICK)
    with Cloud(QUICK) as elsewhere:
        driver = here.driver()
        if where == "operation":
            url = f"{elsewhere.url}/subscriptions/s/providers/Microsoft.Compute/locations/l/operations/x?api-version=1"
            honest = here.cloud._operation_url
            here.cloud._operation_url = lambda *_: url
            code = code_of(driver.create, "pvc-1", timeout=20)
            here.cloud._operation_url = honest
            # The disk was accepted: a final code would leave it without an owner.
            assert code in RETRYABLE | {Code.OK}
        else:
            body = to_json({"value": [], "nextLink": f"{elsewhere.url}/subscriptions/s/next?api-version=1"})
            here.cloud.fault("GET", "/Microsoft.Compute/disks$", status=200, body=body)
            assert code_of(driver.volumes) != Code.OK, "an incomplete list is no list"
        assert elsewhere.requests() == []
        persistently(driver.delete, persistently(driver.create, "pvc-1").volume_id)
    here.judge.check_clean()


def test_a_token_taken_away_while_an_operation_runs_is_replaced(room):
    here = room(QUICK)
    driver = here.driver()
    refusal = b'{"error":{"code":"InvalidAuthenticationToken","message":"The access token has been revoked."}}'
    volume = driver.create("pvc-1").volume_id
    for call, arguments in [
        (driver.publish, (volume, "node-0")),
        (driver.expand, (volume, 20)),
        (driver.unpublish, (volume, "node-0")),
        (driver.delete, (volume,)),
    ]:
        fault = here.cloud.fault("GET", "/locations/", status=401, body=refusal, then=here.cloud.authority.tokens.clear)
        call(*arguments)
        assert fault.hits == 1
    assert here.cloud.requests("PUT", "/virtualMachines/") == []
    here.judge.check_clean()


def test_a_disk_of_somebody_else_is_neither_taken_over_nor_changed_nor_deleted(room):
    here = room(QUICK)
    driver, compute = here.driver(), here.cloud.compute
    # Its name is asked for, with another type.
    assert code_of(driver.create, "Theirs-loose", gib=32) == Code.ALREADY_EXISTS
    assert code_of(driver.create, "Theirs-loose", gib=64, skuName="Premium_LRS") == Code.ALREADY_EXISTS
    attached = compute.path("disks", "Theirs-0")
    assert code_of(driver.delete, attached) == Code.FAILED_PRECONDITION
    assert code_of(driver.publish, attached, "node-1") == Code.FAILED_PRECONDITION
    compute.violations = [text for text in compute.violations if not text.startswith("DELETE of the attached disk")]
    here.judge.check_clean()


def test_a_throttling_that_lasts_does_not_hang_its_caller_nor_others(room):
    """Documented: compute asks for pauses of many minutes."""
    here = room(QUICK)
    driver = here.driver()
    first, second = (driver.create(name).volume_id for name in ("pvc-1", "pvc-2"))
    long = {
        "status": 429,
        "headers": {"Retry-After": "1200"},
        "body": b'{"error":{"code":"OperationNotAllowed","message":"m",'
        b'"details":[{"code":"TooManyRequests","target":"UpdateVM3Min","message":"{}"}]}}',
    }
    fault = here.cloud.fault("POST", "/virtualMachines/node-0/", times=1000, **long)
    assert code_of(driver.publish, first, "node-0", timeout=15) in RETRYABLE
    assert code_of(driver.publish, first, "node-0", timeout=5) in RETRYABLE
    assert fault.hits == 1, "what was told to wait waits"
    driver.delete(second)
    driver.delete(first)
    here.judge.check_clean()


@pytest.mark.parametrize(
    "dialect",
    [
        QUICK.but("action at once", action=SYNC),
        WHOLE_LIST.but("list at once", vm_write=SYNC),
        STACK.but("stack at once", vm_write=SYNC),
    ],
    ids=lambda dialect: dialect.name.replace(" ", "-"),
)
def test_a_disk_that_somebodys_stale_list_pushes_out_at_once_is_not_said_to_be_attached(room, dialect):
    here = room(dialect)
    driver, compute = here.driver(), here.cloud.compute
    volume = driver.create("pvc-1").volume_id

    def push_out():
        machine = compute.machine(compute.path("virtualMachines", "node-1"))
        machine["properties"]["storageProfile"]["dataDisks"].clear()
        disk = compute.disks[key(volume)]
        disk.pop("managedBy", None)
        disk["properties"]["diskState"] = "Unattached"

    for method in ("PUT", "POST"):
        here.cloud.fault(method, "/virtualMachines/node-1", then=push_out)
    if code_of(driver.publish, volume, "node-1") == Code.OK:
        assert key(volume) in here.judge.luns("node-1").values()
    lun = persistently(driver.publish, volume, "node-1", also=EVERY_CODE)
    assert here.judge.luns("node-1")[lun] == key(volume)
    for fault in here.cloud.faults:
        fault.times = 0
    persistently(driver.unpublish, volume, "node-1")
    persistently(driver.delete, volume)
    here.judge.check_clean()
