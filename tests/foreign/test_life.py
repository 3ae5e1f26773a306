"""The whole life of volumes, in every dialect."""

import grpc
import pytest

from compute import GIB, key
from dialect import DIALECTS
from driver import RETRYABLE, at_once, code_of, persistently

HALF = 5


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name.replace(" ", "-"))
def test_volumes_live_and_die_and_nothing_else_is_touched(room, dialect):
    here = room(dialect)
    driver, judge = here.driver(), here.judge
    names = [f"pvc-{number}" for number in range(2 * HALF)]

    # Ten callers create at once, and create again: the same ten disks, with the same ids.
    volumes = at_once([lambda name=name: driver.create(name) for name in names])
    ids = [volume.volume_id for volume in volumes]
    assert sorted(map(key, ids)) == sorted(map(key, judge.ours()))
    assert all(volume.capacity_bytes == 10 * GIB for volume in volumes)
    again = at_once([lambda name=name: driver.create(name) for name in names])
    if dialect.casing == "mixed":
        assert [key(volume.volume_id) for volume in again] == [key(volume) for volume in ids]
    else:
        assert [volume.volume_id for volume in again] == ids
    assert len(judge.ours()) == len(names)
    assert len({each.path for each in judge.writes("disks")}) == len(names)
    assert driver.validate(ids[0])

    # Half of them on each of two nodes at once; the LUN each caller is told is where the disk is.
    wishes = [(volume, "node-0" if at < HALF else "node-1") for at, volume in enumerate(ids)]
    luns = at_once([lambda wish=wish: persistently(driver.publish, *wish) for wish in wishes])
    for (volume, node), lun in zip(wishes, luns, strict=True):
        assert judge.luns(node)[lun] == key(volume)
    judge.check()
    writes = len(judge.writes("virtualMachines"))
    assert writes <= 12, "one write serves a burst"

    # Once more, and not one write more.
    assert at_once([lambda wish=wish: driver.publish(*wish) for wish in wishes]) == luns
    assert len(judge.writes("virtualMachines")) == writes

    # A disk that is on one machine goes on no other.
    assert code_of(driver.publish, ids[0], "Node-2") == grpc.StatusCode.FAILED_PRECONDITION
    assert len(judge.luns("Node-2")) == 1

    # A third node, whose name we spell differently from Azure.
    persistently(driver.unpublish, ids[9], "node-1")
    # While reads still say that it is on the other machine, a refusal is right: the attacher tries again.
    lun = persistently(
        driver.publish, ids[9], "node-2", also={grpc.StatusCode.FAILED_PRECONDITION} if dialect.read_lag else set()
    )
    assert judge.luns("Node-2")[lun] == key(ids[9])
    persistently(driver.unpublish, ids[9], "node-2")

    # Where Azure allows it, an attached disk grows; a detached one always does.
    assert persistently(driver.expand, ids[0], 20) == 20
    assert persistently(driver.expand, ids[9], 20) == 20
    assert persistently(driver.expand, ids[9], 20) == 20
    assert here.cloud.compute.disks[key(ids[9])]["properties"]["diskSizeGB"] == 20
    if not dialect.read_lag:
        assert code_of(driver.create, names[9], gib=10, limit=15) == grpc.StatusCode.ALREADY_EXISTS

    # A list is whole or it is an error; it trails as the cloud's own lists do.
    listed = {key(volume): nodes for volume, nodes in driver.volumes().items()}
    for volume, node in wishes[:-1]:
        if not (dialect.list_lag and key(volume) not in listed):
            assert [name.lower() for name in listed[key(volume)]] in ([node], [] if dialect.list_lag else [node])
    assert {key(volume) for volume in driver.volumes(page=3)} == set(listed)

    at_once([lambda wish=wish: persistently(driver.unpublish, *wish) for wish in wishes])
    writes = len(judge.writes("virtualMachines"))
    at_once([lambda wish=wish: persistently(driver.unpublish, *wish) for wish in wishes])
    assert len(judge.writes("virtualMachines")) == writes, "what is detached is detached without a write"
    at_once([lambda volume=volume: persistently(driver.delete, volume) for volume in ids])
    at_once([lambda volume=volume: persistently(driver.delete, volume) for volume in ids])
    assert code_of(driver.publish, ids[0], "node-0") in {grpc.StatusCode.NOT_FOUND} | (
        RETRYABLE if dialect.read_lag else set()
    )
    judge.check_clean()
