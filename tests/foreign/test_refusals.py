"""Requests that are wrong or cannot be met: the code that the CSI specification gives them, and nothing written."""

import csi_pb2 as csi
import grpc

from compute import GIB, key
from dialect import PUBLIC
from driver import capability, code_of, persistently

QUICK = PUBLIC.but("quick", duration=0.1, retry_after="0")
Code = grpc.StatusCode


def test_wrong_requests_get_the_codes_of_the_specification_and_write_nothing(room):
    here = room(QUICK)
    driver, compute = here.driver(), here.cloud.compute
    volume = driver.create("pvc-1").volume_id
    absent = compute.path("disks", "absent")
    controller = driver.controller
    before = len(here.judge.writes("disks"))
    block = csi.VolumeCapability(block=csi.VolumeCapability.BlockVolume(), access_mode=capability().access_mode)
    many = csi.VolumeCapability.AccessMode.MULTI_NODE_MULTI_WRITER

    def create(**fields):
        base = {
            "name": "pvc-2",
            "volume_capabilities": [capability()],
            "capacity_range": csi.CapacityRange(required_bytes=GIB),
        }
        return lambda: controller.CreateVolume(csi.CreateVolumeRequest(**{**base, **fields}), timeout=20)

    def publish(**fields):
        base = {"volume_id": volume, "node_id": "node-0", "volume_capability": capability()}
        return lambda: controller.ControllerPublishVolume(
            csi.ControllerPublishVolumeRequest(**{**base, **fields}), timeout=20
        )

    def expand(size: int, **fields):
        request = csi.ControllerExpandVolumeRequest(
            **{"volume_id": volume, "capacity_range": csi.CapacityRange(required_bytes=size), **fields}
        )
        return lambda: controller.ControllerExpandVolume(request, timeout=20)

    wrong = {
        "no name": (create(name=""), {Code.INVALID_ARGUMENT}),
        "no capability": (create(volume_capabilities=[]), {Code.INVALID_ARGUMENT}),
        "an unknown parameter": (create(parameters={"skuNam": "Premium_LRS"}), {Code.INVALID_ARGUMENT}),
        "an unknown sku": (create(parameters={"skuName": "Golden_LRS"}), {Code.INVALID_ARGUMENT}),
        "a limit below the need": (
            create(capacity_range=csi.CapacityRange(required_bytes=9 * GIB, limit_bytes=GIB)),
            {Code.INVALID_ARGUMENT, Code.OUT_OF_RANGE},
        ),
        "more than Azure has": (create(capacity_range=csi.CapacityRange(required_bytes=1 << 60)), {Code.OUT_OF_RANGE}),
        "many writers of one filesystem": (create(volume_capabilities=[capability(many)]), {Code.INVALID_ARGUMENT}),
        "the same name, bigger": (
            create(name="pvc-1", capacity_range=csi.CapacityRange(required_bytes=50 * GIB)),
            {Code.ALREADY_EXISTS},
        ),
        "publish of nothing": (publish(volume_id=""), {Code.INVALID_ARGUMENT}),
        "publish nowhere": (publish(node_id=""), {Code.INVALID_ARGUMENT}),
        "publish without capability": (publish(volume_capability=None), {Code.INVALID_ARGUMENT}),
        "publish of an absent disk": (publish(volume_id=absent), {Code.NOT_FOUND}),
        "publish on an absent node": (publish(node_id="nobody"), {Code.NOT_FOUND}),
        "publish of no id at all": (publish(volume_id="pvc-1"), {Code.NOT_FOUND, Code.INVALID_ARGUMENT}),
        "expand of an absent disk": (expand(20 * GIB, volume_id=absent), {Code.NOT_FOUND}),
        "expand without a size": (expand(0, capacity_range=None), {Code.INVALID_ARGUMENT}),
        "expand beyond Azure": (expand(1 << 60), {Code.OUT_OF_RANGE}),
        "validate an absent disk": (lambda: driver.validate(absent), {Code.NOT_FOUND}),
        "a list from nowhere": (
            lambda: controller.ListVolumes(csi.ListVolumesRequest(starting_token="nonsense"), timeout=20),
            {Code.ABORTED},
        ),
    }
    got = {what: (code_of(call), codes) for what, (call, codes) in wrong.items()}
    assert {what: code for what, (code, codes) in got.items() if code not in codes} == {}
    # Right, though it asks for nothing.
    assert code_of(driver.delete, absent) == Code.OK
    assert code_of(driver.unpublish, absent, "node-0") == Code.OK
    assert code_of(publish(volume_capability=block)) == Code.OK
    driver.unpublish(volume, "node-0")
    assert [each.method for each in here.judge.writes("disks")[before:]] in ([], ["DELETE"])
    # A disk that is attached is not deleted.
    driver.publish(volume, "node-0")
    assert code_of(driver.delete, volume) == Code.FAILED_PRECONDITION
    driver.unpublish(volume, "node-0")
    driver.delete(volume)
    compute.violations = [text for text in compute.violations if not text.startswith("DELETE of the attached disk")]
    here.judge.check_clean()


def test_a_full_machine_takes_no_more_and_says_so(room):
    here = room(QUICK)
    driver, compute = here.driver(), here.cloud.compute
    volume = driver.create("pvc-1").volume_id
    for lun in range(2, 17):
        compute.somebody_attaches(f"Theirs-x{lun}", "node-1", lun)
    compute.somebody_attaches("Theirs-x17", "node-1", 17)
    assert code_of(driver.publish, volume, "node-1") == Code.RESOURCE_EXHAUSTED
    assert len(here.judge.luns("node-1")) == 16
    driver.delete(volume)
    assert here.judge.ours() and all("Theirs-x" in disk for disk in here.judge.ours())


def test_a_machine_with_blob_disks_keeps_them_and_takes_no_managed_disk(room):
    here = room(QUICK)
    driver, compute = here.driver(), here.cloud.compute
    blob = {
        "lun": 3,
        "name": "old",
        "createOption": "Attach",
        "caching": "None",
        "diskSizeGB": 8,
        "vhd": {"uri": "https://theirs.blob.core.foreign/vhds/old.vhd"},
    }
    compute.place_machine("node-blob", [dict(blob)])
    volume = driver.create("pvc-1").volume_id
    assert code_of(driver.publish, volume, "node-blob") not in {Code.OK, Code.UNAVAILABLE, Code.ABORTED}
    assert compute.data_disks("node-blob") == [blob]
    assert code_of(driver.unpublish, volume, "node-blob") == Code.OK
    driver.delete(volume)
    here.judge.check_clean()


def test_a_growth_that_azure_refuses_in_use_is_told_as_such_and_works_afterwards(room):
    here = room(QUICK)
    driver = here.driver()
    volume = driver.create("pvc-1").volume_id
    driver.publish(volume, "node-0")
    refusal = (
        b'{"error":{"code":"OperationNotAllowed","message":"Cannot resize disk while it is attached to a running VM.",'
        b'"innererror":{"internalErrorCode":"ChangeDiskSizeWhileAttachedNotAllowed"}}}'
    )
    here.cloud.fault("PATCH", "/disks/", status=409, body=refusal)
    assert code_of(driver.expand, volume, 20) == Code.FAILED_PRECONDITION
    driver.unpublish(volume, "node-0")
    assert driver.expand(volume, 20) == 20
    persistently(driver.delete, volume)
    assert key(volume) not in here.cloud.compute.disks
    here.judge.check_clean()
