"""What goes wrong between a driver and a cloud: throttling, gateways, lost answers, late failures, kill -9.

The rule of each test: the code tells the sidecar the truth, a call that is made again ends well, and the cloud is
left as if nothing had happened.
"""

import json
import threading
import time

import grpc
import pytest

from compute import key
from dialect import ASYNC, PUBLIC
from driver import RETRYABLE, at_once, code_of, persistently
from operations import Refused

QUICK = PUBLIC.but("quick", duration=0.4)
WHOLE_LIST = QUICK.but("quick, whole list", action_missing="404")
SLOW = PUBLIC.but("an operation takes its time", duration=1.5)
# Client and server both end a call whose time is over, each with its own word.
OUT_OF_TIME = {grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED}

DISK = "/disks/pvc-"
ACTION = "/attachDetachDataDisks"
OPERATION = "/locations/.*/operations/"

GATEWAY_PAGE = {"headers": {"Content-Type": "text/html"}, "body": b"<html><body><h1>502 Bad Gateway</h1></body></html>"}
THROTTLED = {
    "status": 429,
    "body": b'{"error":{"code":"TooManyRequests","message":"The server rejected the request.","details":[]}}',
}


def life(driver, name: str = "pvc-1") -> None:
    """A short life, each call made again as a sidecar does."""
    volume = persistently(driver.create, name).volume_id
    persistently(driver.publish, volume, "node-0")
    persistently(driver.expand, volume, 20)
    persistently(driver.unpublish, volume, "node-0")
    persistently(driver.delete, volume)


def wait_until(condition, what: str, seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"it never came to this: {what}"
        time.sleep(0.005)


# Each step of a life as a request.
STEPS = [
    ("GET", DISK),
    ("PUT", DISK),
    ("GET", OPERATION),
    ("GET", "/virtualMachines/"),
    ("POST", ACTION),
    ("PATCH", DISK),
    ("DELETE", DISK),
]


@pytest.mark.parametrize(
    "answer",
    [
        {**THROTTLED, "headers": {"Retry-After": "1"}},
        {**THROTTLED},
        {"status": 429, "headers": {"Retry-After": "0"}, "body": b""},
        {"status": 503, "headers": {"Retry-After": "1"}, "body": b""},
        {
            "status": 500,
            "body": b'{"error":{"code":"InternalServerError","message":"Encountered internal server error."}}',
        },
        {"status": 502, **GATEWAY_PAGE},
        {
            "status": 504,
            "body": b'{"error":{"code":"GatewayTimeout","message":"The gateway did not receive a response."}}',
        },
        {"status": 408, "body": b""},
    ],
    ids=["429-with-advice", "429-without-advice", "429-advice-zero", "503", "500", "502-html", "504", "408"],
)
def test_a_request_that_a_gateway_refuses_once_is_made_again(room, answer):
    here = room(QUICK)
    driver = here.driver()
    for method, path in STEPS:
        here.cloud.fault(method, path, **answer)
    life(driver)
    assert all(fault.hits == 1 for fault in here.cloud.faults), "each step was hit"
    here.judge.check_clean()


def test_the_pause_that_a_throttling_answer_asks_for_is_kept(room):
    here = room(QUICK)
    driver = here.driver()
    here.cloud.fault("PUT", DISK, **THROTTLED, headers={"Retry-After": "3"})
    code = code_of(driver.create, "pvc-1")
    assert code in RETRYABLE | {grpc.StatusCode.OK}
    persistently(driver.create, "pvc-1")
    puts = here.cloud.requests("PUT", DISK)
    assert puts[1].at - puts[0].at >= 2.9
    assert len(puts) == 2


@pytest.mark.parametrize("drop", ["before", "after", "within"])
@pytest.mark.parametrize("dialect", [QUICK, WHOLE_LIST], ids=["action", "whole-list"])
def test_a_connection_lost_around_a_write_neither_repeats_nor_loses_it(room, dialect, drop):
    here = room(dialect)
    driver = here.driver()
    for method, path in [("PUT", DISK), ("PATCH", DISK), ("DELETE", DISK)]:
        here.cloud.fault(method, path, drop=drop)
    if dialect is QUICK:
        here.cloud.fault("POST", ACTION, times=2, drop=drop)
    else:
        here.cloud.fault("PUT", "/virtualMachines/", times=2, drop=drop)
    life(driver)
    assert all(fault.hits == fault.times for fault in here.cloud.faults)
    here.judge.check_clean()


def test_answers_cut_in_half_are_read_again(room):
    here = room(QUICK)
    driver = here.driver()
    for method, path in [("GET", DISK), ("GET", OPERATION), ("GET", "/virtualMachines/")]:
        here.cloud.fault(method, path, drop="within")
    life(driver)
    here.judge.check_clean()


def test_an_operation_whose_status_we_may_not_read_is_followed_on_its_resource(room):
    """Documented: with rights on the resource alone one may start an operation and not track it."""
    here = room(SLOW)
    driver = here.driver()
    forbidden = b'{"error":{"code":"AuthorizationFailed","message":"The client does not have authorization."}}'
    here.cloud.fault("GET", "/locations/", times=1000, status=403, body=forbidden)
    volume = driver.create("pvc-1").volume_id
    driver.publish(volume, "node-0")
    assert here.cloud.requests("PUT", "/virtualMachines/") == [], "what was accepted is not written once more"
    assert driver.expand(volume, 20) == 20
    driver.unpublish(volume, "node-0")
    driver.delete(volume)
    here.judge.check_clean()


def test_an_operation_that_azure_does_not_know_yet_is_followed_on_its_resource(room):
    here = room(QUICK)
    driver = here.driver()
    missing = b'{"error":{"code":"NotFound","message":"The entity was not found."}}'
    here.cloud.fault("GET", "/locations/", times=1000, status=404, body=missing)
    life(driver)
    here.judge.check_clean()


def test_a_404_that_is_not_azures_own_is_no_deletion(room):
    here = room(QUICK)
    driver = here.driver()
    volume = driver.create("pvc-1").volume_id
    for body in (b"", b"<html>404 Not Found</html>"):
        here.cloud.fault("DELETE", DISK, status=404, body=body)
        assert code_of(driver.delete, volume, timeout=20) in RETRYABLE
    assert here.judge.ours() == [volume]
    driver.delete(volume)
    here.judge.check_clean()


def test_a_missing_disk_does_not_make_the_driver_forget_that_the_action_exists(room):
    here = room(QUICK)
    driver = here.driver()
    first, second = (driver.create(name).volume_id for name in ("pvc-1", "pvc-2"))
    with here.cloud.compute.lock:
        gone = here.cloud.compute.disks.pop(key(first))
    # The driver's read still sees it, as a cache does; the write meets the truth.
    here.cloud.fault("GET", "/disks/pvc-1", times=2, status=200, body=json.dumps(gone).encode())
    assert code_of(driver.publish, first, "node-0") in RETRYABLE | {grpc.StatusCode.NOT_FOUND}
    driver.publish(second, "node-1")
    assert here.cloud.requests("PUT", "/virtualMachines/node-1") == []
    assert here.cloud.requests("POST", "/virtualMachines/node-1") != []
    persistently(driver.unpublish, second, "node-1")
    persistently(driver.delete, second)
    here.judge.check_clean()


# ---- operations that fail after they were accepted

QUOTA = Refused(
    409,
    "OperationNotAllowed",
    "Operation could not be completed as it results in exceeding approved Disks quota. Additional details - Location: "
    "westeurope, Current Limit: 100, Current Usage: 100, Additional Required: 1, (Minimum) New Limit Required: 101.",
)


@pytest.mark.parametrize("announced", ["Azure-AsyncOperation", "Location"])
def test_a_disk_whose_creation_fails_late_is_not_left_behind(room, announced):
    dialect = QUICK if announced != "Location" else QUICK.but("quick, Location", disk_write="202, Location only")
    here = room(dialect)
    driver = here.driver()
    here.cloud.compute.late_failures["disks"].append(QUOTA)
    assert code_of(driver.create, "pvc-1") != grpc.StatusCode.OK
    volume = persistently(driver.create, "pvc-1").volume_id
    assert here.cloud.compute.disks[key(volume)]["properties"]["provisioningState"] == "Succeeded"
    persistently(driver.delete, volume)
    here.judge.check_clean()


@pytest.mark.parametrize(
    "failure",
    [
        Refused(
            409,
            "AttachDiskWhileBeingDetached",
            "Cannot attach data disk 'X' to VM 'Y' because the disk is currently being detached or the last detach "
            "operation failed.",
        ),
        Refused(409, "OperationPreempted", "Operation execution has been preempted by a more recent operation."),
        Refused(500, "InternalExecutionError", "An internal execution error occurred. Please retry later."),
    ],
    ids=lambda failure: failure.code,
)
def test_an_attach_that_fails_late_is_tried_again_and_tells_the_truth(room, failure):
    here = room(QUICK)
    driver = here.driver()
    volume = driver.create("pvc-1").volume_id
    here.cloud.compute.late_failures["virtualMachines"].append(failure)
    first = code_of(driver.publish, volume, "node-0")
    if first == grpc.StatusCode.OK:
        assert key(volume) in here.judge.luns("node-0").values()
    lun = persistently(driver.publish, volume, "node-0", also=set(grpc.StatusCode))
    assert here.judge.luns("node-0")[lun] == key(volume)
    here.cloud.compute.late_failures["virtualMachines"].append(failure)
    if code_of(driver.unpublish, volume, "node-0") == grpc.StatusCode.OK:
        assert key(volume) not in here.judge.luns("node-0").values()
    persistently(driver.unpublish, volume, "node-0", also=set(grpc.StatusCode))
    persistently(driver.delete, volume)
    here.judge.check_clean()


# ---- callers and processes that go away


@pytest.mark.parametrize("shown", [True, False], ids=["shown", "hidden"])
def test_an_unpublish_that_meets_another_replicas_attach_is_not_ok_before_it_is_true(room, shown):
    """While a machine is written to, its model may not show what the write brings."""
    here = room(SLOW.but("slow attach", duration=3, shows_update_in_progress=shown))
    one, two = here.driver(), here.driver()
    volume = persistently(one.create, "pvc-1").volume_id
    # A process that has just started distrusts what it reads anyway.
    time.sleep(5)

    def unpublish():
        here.cloud.wait_for_request("POST", "/attachDetach")
        return code_of(two.unpublish, volume, "node-0")

    published, unpublished = at_once([lambda: code_of(one.publish, volume, "node-0"), unpublish])
    assert published in RETRYABLE | {grpc.StatusCode.OK}
    if unpublished == grpc.StatusCode.OK:
        assert key(volume) not in here.judge.luns("node-0").values()
    persistently(two.unpublish, volume, "node-0")
    assert key(volume) not in here.judge.luns("node-0").values()
    persistently(two.delete, volume)
    # Two processes cannot know of each other's writes; Azure refuses what collides, and that is no offence.
    here.cloud.compute.violations = [text for text in here.cloud.compute.violations if "is running" not in text]
    here.judge.check_clean()


def test_a_caller_that_gives_up_and_comes_back_finds_its_own_write(room):
    here = room(SLOW)
    driver = here.driver()
    assert code_of(driver.create, "pvc-1", timeout=0.4) in OUT_OF_TIME
    volume = persistently(driver.create, "pvc-1").volume_id
    assert len(here.cloud.requests("PUT", DISK)) == 1
    assert code_of(driver.publish, volume, "node-0", timeout=0.4) in OUT_OF_TIME
    persistently(driver.publish, volume, "node-0")
    assert code_of(driver.unpublish, volume, "node-0", timeout=0.4) in OUT_OF_TIME
    persistently(driver.unpublish, volume, "node-0")
    assert len(here.judge.writes("virtualMachines")) == 2
    assert code_of(driver.delete, volume, timeout=0.4) in OUT_OF_TIME
    persistently(driver.delete, volume)
    here.judge.check_clean()


@pytest.mark.parametrize(
    "dialect",
    [
        SLOW,
        SLOW.but("whole list", action_missing="404"),
        SLOW.but("hidden", shows_update_in_progress=False),
        SLOW.but("async", disk_write=ASYNC),
    ],
    ids=["action", "whole-list", "action-hidden-until-the-end", "disks-without-Location"],
)
def test_a_controller_killed_in_the_middle_of_any_write_leaves_the_next_one_able_to_go_on(room, dialect):
    here = room(dialect)
    driver, judge = here.driver(), here.judge

    def killed_during(call, *arguments, writes: str):
        """Calls, kills the process as soon as its write was accepted, starts the next one and calls again."""
        before = len(judge.writes(writes))
        thread = threading.Thread(target=code_of, args=(call.__get__(driver), *arguments), daemon=True)
        thread.start()
        wait_until(lambda: any(each.status for each in judge.writes(writes)[before:]), f"a write of {writes}")
        if dialect.action_missing and writes == "virtualMachines":
            wait_until(lambda: here.cloud.compute.in_flight, "a whole list was accepted")
        driver.kill()
        driver.start()
        return persistently(call.__get__(driver), *arguments)

    cls = type(driver)
    volume = killed_during(cls.create, "pvc-1", writes="disks").volume_id
    assert judge.ours() == [volume]
    lun = killed_during(cls.publish, volume, "node-0", writes="virtualMachines")
    assert judge.luns("node-0")[lun] == key(volume)
    assert killed_during(cls.expand, volume, 20, writes="disks") == 20
    killed_during(cls.unpublish, volume, "node-0", writes="virtualMachines")
    assert key(volume) not in judge.luns("node-0").values()
    killed_during(cls.delete, volume, writes="disks")
    # A new process may collide, once a step, with what its predecessor left running: Azure refuses that.
    collisions = [text for text in here.cloud.compute.violations if "is running" in text]
    assert len(collisions) <= 5, collisions
    here.cloud.compute.violations = [text for text in here.cloud.compute.violations if text not in collisions]
    judge.check_clean()


@pytest.mark.parametrize("dialect", [QUICK, WHOLE_LIST], ids=["action", "whole-list"])
def test_two_controllers_at_once_give_no_lun_twice(room, dialect):
    here = room(dialect)
    drivers = [here.driver(), here.driver()]
    volumes = [
        volume.volume_id for volume in at_once([lambda n=n: drivers[n % 2].create(f"pvc-{n}") for n in range(6)])
    ]
    again = {grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.INTERNAL}
    luns = at_once(
        [lambda n=n: persistently(drivers[n % 2].publish, volumes[n], "node-0", also=again) for n in range(6)]
    )
    placed = here.judge.luns("node-0")
    assert [placed[lun] for lun in luns] == [key(volume) for volume in volumes]
    # The same disk, asked of both for different nodes: one of them at most.
    codes = at_once(
        [lambda n=n: code_of(drivers[n].publish, volumes[0], "node-1" if n else "Node-2") for n in range(2)]
    )
    assert grpc.StatusCode.OK not in codes
    at_once([lambda n=n: persistently(drivers[n % 2].unpublish, volumes[n], "node-0", also=again) for n in range(6)])
    at_once([lambda n=n: persistently(drivers[n % 2].delete, volumes[n]) for n in range(6)])
    # Two processes cannot know of each other's writes; Azure refuses what collides, and that is no offence.
    here.cloud.compute.violations = [
        text for text in here.cloud.compute.violations if "is running" not in text and "asked for twice" not in text
    ]
    here.judge.check_clean()


# ---- other people's tools


@pytest.mark.parametrize(
    "dialect",
    [QUICK, WHOLE_LIST, WHOLE_LIST.but("weak", etag="weak")],
    ids=["action", "whole-list", "whole-list-weak-etag"],
)
def test_a_disk_that_somebody_attaches_between_our_read_and_our_write_stays(room, dialect):
    here = room(dialect)
    driver, compute = here.driver(), here.cloud.compute
    volume = driver.create("pvc-1").volume_id
    # At the LUN that we would have taken.
    here.cloud.fault("GET", "/virtualMachines/node-1", then=lambda: compute.somebody_attaches("Late-0", "node-1", 0))
    lun = persistently(driver.publish, volume, "node-1", also={grpc.StatusCode.INVALID_ARGUMENT})
    assert lun != 0
    assert here.judge.luns("node-1") == {0: key(compute.path("disks", "Late-0")), lun: key(volume)}
    here.cloud.fault("GET", "/virtualMachines/node-1", then=lambda: compute.somebody_attaches("Late-7", "node-1", 7))
    persistently(driver.unpublish, volume, "node-1")
    assert sorted(here.judge.luns("node-1")) == [0, 7]
    persistently(driver.delete, volume)
    if dialect is QUICK:
        compute.violations = [text for text in compute.violations if "asked for twice" not in text]
    assert not compute.violations, compute.violations


def test_a_machine_that_is_gone_needs_no_detach_and_one_that_is_hidden_does(room):
    here = room(QUICK)
    driver, compute = here.driver(), here.cloud.compute
    volume = driver.create("pvc-1").volume_id
    driver.publish(volume, "node-1")
    for body in (
        b'{"error":{"code":"ResourceGroupNotFound","message":"Resource group \'x\' could not be found."}}',
        b'{"error":{"code":"AuthorizationFailed","message":"The client does not have authorization."}}',
        b"",
    ):
        fault = here.cloud.fault(
            "GET", "/virtualMachines/node-1", times=1000, status=403 if b"Auth" in body else 404, body=body
        )
        assert code_of(driver.unpublish, volume, "node-1", timeout=20) != grpc.StatusCode.OK
        fault.times = 0
    assert key(volume) in here.judge.luns("node-1").values()
    with compute.lock:
        del compute.machines[key(compute.path("virtualMachines", "node-1"))]
        compute.disks[key(volume)].pop("managedBy")
        compute.disks[key(volume)]["properties"]["diskState"] = "Unattached"
    persistently(driver.unpublish, volume, "node-1")
    persistently(driver.delete, volume)
    assert here.judge.ours() == []
