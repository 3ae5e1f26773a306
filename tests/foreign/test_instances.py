"""Disks on the instances of a uniform scale set, whose list may be older than a read of one."""

import pytest

from compute import key
from dialect import PUBLIC
from driver import at_once, persistently

INSTANCES = 16
DIALECTS = [
    PUBLIC.but("a list of the present"),
    PUBLIC.but("a list that trails", list_lag=1.2),
    PUBLIC.but("a list that trails and shows no update", list_lag=1.2, shows_update_in_progress=False),
    PUBLIC.but("pages that trail", list_lag=0.4, page_size=6),
    PUBLIC.but("any spelling", list_lag=0.4, casing="mixed", respell_ids=True),
    PUBLIC.but("no action and a list that trails", list_lag=1.2, action_missing="404"),
]


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name.replace(" ", "-"))
def test_a_node_is_never_told_another_disks_lun_however_the_list_of_its_set_trails(room, dialect):
    here = room(dialect)
    compute, judge = here.cloud.compute, here.judge
    # Another program's disk sits on each, at another LUN.
    for number in range(INSTANCES):
        lun = number % 5
        element = {
            "lun": lun,
            "name": f"Theirs-on-{number}",
            "createOption": "Attach",
            "caching": "None",
            "managedDisk": {
                "storageAccountType": "Premium_LRS",
                "id": compute.path("disks", f"Theirs-on-{number}"),
            },
            "deleteOption": "Detach",
            "diskSizeGB": 32,
            "toBeDetached": False,
        }
        machine = compute.place_instance("Pool", number, [element])
        compute.place_disk(f"Theirs-on-{number}")["managedBy"] = machine["id"]
    nodes = [compute.instance_path("Pool", number) for number in range(INSTANCES)]
    before = {node: judge.luns(node) for node in nodes}
    driver = here.driver()
    volumes = at_once([lambda n=n: driver.create(f"pvc-{n}").volume_id for n in range(2 * INSTANCES)])

    # Each round begins while the list may still show what the last one left.
    for turn in range(3):
        places = [(volume, nodes[(at // 2 + turn) % INSTANCES]) for at, volume in enumerate(volumes)]
        luns = at_once([lambda place=place: persistently(driver.publish, *place) for place in places])
        for (volume, node), lun in zip(places, luns, strict=True):
            assert judge.luns(node)[lun] == key(volume)
        assert at_once([lambda place=place: persistently(driver.publish, *place) for place in places]) == luns
        judge.check()
        at_once([lambda place=place: persistently(driver.unpublish, *place) for place in places])
        assert {node: judge.luns(node) for node in nodes} == before, "what was detached is off, and nothing else"

    lists = here.cloud.requests("GET", r"/virtualMachineScaleSets/Pool/virtualMachines/?$")
    assert lists or dialect.action_missing, "the instances share the list of their set"
    at_once([lambda volume=volume: persistently(driver.delete, volume) for volume in volumes])
    compute_now = judge.settled()
    assert not compute_now.violations, "\n".join(compute_now.violations)
    assert all(key(volume) not in compute_now.disks for volume in volumes)
