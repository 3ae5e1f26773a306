"""Microsoft.Compute as a state machine: disks, virtual machines, and operations that take time.

Owns what exists and what a write may do. Knows nothing of HTTP, and of dialects only what changes behaviour; the
server puts both around it. What a client must never ask for is refused *and* noted in `Compute.violations`: a test
that ends with all resources in place must also end with that list empty.
"""

import copy
import itertools
import json
import threading
import time
import uuid
from collections import defaultdict

from dialect import Dialect
from operations import Operation, Provider, Refused

LOCATION = "westeurope"
GIB = 1 << 30

# Properties of a data disk that the service writes and a client need not send. Source: the swagger's readOnly.
READ_ONLY_DATA_DISK = {"toBeDetached", "diskIOPSReadWrite", "diskMBpsReadWrite", "diskSizeGB", "detachOption"}
# Properties of a disk that a client cannot set. Source: the swagger's readOnly.
READ_ONLY_DISK = {
    "managedBy",
    "timeCreated",
    "uniqueId",
    "provisioningState",
    "diskState",
    "diskSizeBytes",
    "managedByExtended",
}
# Documented: compute throttling limits, per resource: (bucket, refill per minute).
LIMITS = {"write": (12, 4), "read": (36, 12), "poll": (45, 15)}


class Budget:
    """A token bucket that only counts: a driver that empties it would have been throttled by Azure."""

    def __init__(self, size: int, refill_per_minute: int):
        self.size, self.rate, self.left, self.at = size, refill_per_minute / 60, float(size), None

    def take(self, now: float) -> bool:
        if self.at is not None:
            self.left = min(self.size, self.left + (now - self.at) * self.rate)
        self.at = now
        self.left -= 1
        return self.left >= 0


def key(resource_id: str) -> str:
    return resource_id.lower()


def identity(element: dict) -> str | None:
    """What a data disk is, independent of spelling: its managed disk, or its blob."""
    managed = (element.get("managedDisk") or {}).get("id")
    blob = (element.get("vhd") or {}).get("uri")
    return key(managed) if managed else blob


def _plain(value) -> str:
    """A value in a form to compare: ids are spelled in many ways."""
    return json.dumps(value, sort_keys=True).lower()


class Compute(Provider):
    """All methods are called with `lock` held."""

    namespace = "Microsoft.Compute"

    def __init__(self, dialect: Dialect, subscription: str, group: str):
        super().__init__(dialect)
        self.lock = threading.RLock()
        self.subscription, self.group = subscription, group
        self.disks: dict[str, dict] = {}
        self.machines: dict[str, dict] = {}
        self.violations: list[str] = []
        # Which VM a disk in flight belongs to; Azure too knows that before `managedBy` says so.
        self.in_flight: dict[str, str] = {}
        # What a reader sees of a disk, by time: (since, the disk or None).
        self.history: dict[str, list[tuple[float, dict | None]]] = defaultdict(list)
        # The same of an instance of a scale set, as its list shows it.
        self.past_instances: dict[str, list[tuple[float, dict]]] = defaultdict(list)
        self.budgets: dict[tuple[str, str], Budget] = {}
        self.serial = itertools.count(1)

    # ---- what exists at the start

    def path(self, kind: str, name: str) -> str:
        return (
            f"/subscriptions/{self.subscription}/resourceGroups/{self.group}/providers/Microsoft.Compute/{kind}/{name}"
        )

    def instance_path(self, scale_set: str, number: int) -> str:
        return f"{self.path('virtualMachineScaleSets', scale_set)}/virtualMachines/{number}"

    def place_instance(self, scale_set: str, number: int, data_disks: list[dict]) -> dict:
        """An instance of a uniform scale set. Source of the shape: the swagger."""
        machine = self.place_machine(f"{scale_set}_{number}", data_disks, path=self.instance_path(scale_set, number))
        machine["type"] = "Microsoft.Compute/virtualMachineScaleSets/virtualMachines"
        machine["instanceId"] = str(number)
        machine["sku"] = {"name": "Standard_D8s_v3", "tier": "Standard"}
        machine["properties"] |= {"latestModelApplied": True, "modelDefinitionApplied": "VirtualMachineScaleSet"}
        self._publish(key(machine["id"]), now=0.0)
        return machine

    def place_machine(
        self, name: str, data_disks: list[dict], size: str = "Standard_D8s_v3", path: str | None = None
    ) -> dict:
        """A machine made before the driver started, with data disks at LUNs of their choice."""
        machine = {
            "name": name,
            "id": path or self.path("virtualMachines", name),
            "type": "Microsoft.Compute/virtualMachines",
            "location": LOCATION,
            "tags": {"owner": "someone else"},
            "identity": {"type": "SystemAssigned", "principalId": str(uuid.uuid4())},
            "properties": {
                "vmId": str(uuid.uuid4()),
                "hardwareProfile": {"vmSize": size},
                "storageProfile": {
                    "imageReference": {"publisher": "Canonical", "offer": "ubuntu", "sku": "server", "version": "1"},
                    "osDisk": {
                        "osType": "Linux",
                        "name": f"{name}-os",
                        "createOption": "FromImage",
                        "caching": "ReadWrite",
                        "managedDisk": {"id": self.path("disks", f"{name}-os"), "storageAccountType": "Premium_LRS"},
                        "deleteOption": "Detach",
                        "diskSizeGB": 30,
                    },
                    "dataDisks": data_disks,
                    "diskControllerType": "SCSI",
                },
                "osProfile": {"computerName": name, "secrets": [], "allowExtensionOperations": True},
                "networkProfile": {"networkInterfaces": [{"id": f"{name}-nic", "properties": {"primary": True}}]},
                "provisioningState": "Succeeded",
                "timeCreated": "2001-02-03T04:05:06.789+00:00",
            },
        }
        if self.dialect.new_properties:
            machine["properties"]["futureProfile"] = {"kept": ["as", "it", {"was": True}]}
        self.machines[key(machine["id"])] = {"resource": machine, "etag": next(self.serial)}
        return machine

    def place_disk(self, name: str, machine: str | None = None, **properties) -> dict:
        """A disk made before the driver started."""
        disk = self._new_disk(self.path("disks", name), LOCATION, {"name": "Premium_LRS"}, {"owner": "someone else"})
        disk["properties"].update({"diskSizeGB": 32, "diskSizeBytes": 32 * GIB, **properties})
        if machine:
            disk["managedBy"] = self.path("virtualMachines", machine)
            disk["properties"]["diskState"] = "Attached"
        self.disks[key(disk["id"])] = disk
        self._publish(key(disk["id"]), now=0.0)
        return disk

    def somebody_attaches(self, name: str, machine: str, lun: int) -> None:
        """Another tool attaches a disk of its own, all at once."""
        disk = self.place_disk(name, machine)
        vm = self.machines[key(self.path("virtualMachines", machine))]
        vm["resource"]["properties"]["storageProfile"]["dataDisks"].append(
            {
                "lun": lun,
                "name": name,
                "createOption": "Attach",
                "caching": "None",
                "deleteOption": "Detach",
                "managedDisk": {"storageAccountType": "Premium_LRS", "id": disk["id"]},
                "diskSizeGB": 32,
                "toBeDetached": False,
            }
        )
        vm["etag"] = next(self.serial)

    # ---- time

    def settle(self) -> None:
        super().settle()
        self._check()

    def _ended(self, operation: Operation) -> None:
        self._publish(operation.resource, operation.due)
        for disk, owner in list(self.in_flight.items()):
            if owner == operation.resource:
                del self.in_flight[disk]
                self._publish(disk, operation.due)

    def _exclusive(self, resource: str, what: str) -> None:
        if self.running(resource):
            self.violations.append(f"{what} while an operation on it is running")
            raise Refused(409, "Conflict", "The request failed due to conflict with a concurrent request.")

    def count(self, kind: str, resource: str) -> None:
        """Takes from the published budget of a resource."""
        budget = self.budgets.setdefault((kind, resource), Budget(*LIMITS[kind]))
        if not budget.take(time.monotonic()):
            self.violations.append(f"more {kind} requests on {resource} than Azure's published limit")

    # ---- disks

    def _new_disk(self, resource_id: str, location: str, sku: dict, tags: dict | None) -> dict:
        disk = {
            "name": resource_id.rsplit("/", 1)[1],
            "id": resource_id,
            "type": "Microsoft.Compute/disks",
            "location": location,
            "sku": {**sku, "tier": sku.get("name", "Standard").split("_")[0]},
            "properties": {
                "creationData": {"createOption": "Empty"},
                "diskIOPSReadWrite": 500,
                "diskMBpsReadWrite": 60,
                "timeCreated": "2001-02-03T04:05:06.789+00:00",
                "provisioningState": "Succeeded",
                "diskState": "Unattached",
                "uniqueId": str(uuid.uuid4()),
            },
        }
        if tags is not None:
            disk["tags"] = tags
        if self.dialect.new_properties:
            disk["properties"]["futureReplica"] = {"regions": ["here", "there"]}
        return disk

    def put_disk(self, resource_id: str, body: dict) -> tuple[Operation, bool]:
        """Creates or updates. Returns the operation and whether the disk is new."""
        at = key(resource_id)
        self._exclusive(at, f"PUT {resource_id}")
        given = {k: v for k, v in body.get("properties", {}).items() if k not in READ_ONLY_DISK}
        size = given.get("diskSizeGB")
        if not body.get("location"):
            raise Refused(400, "LocationRequired", "The location property is required for this definition.")
        old = self.disks.get(at)
        if old is None:
            if "creationData" not in given:
                raise Refused(
                    400, "InvalidParameter", "Required parameter 'creationData' is missing (null).", "creationData"
                )
            if given["creationData"].get("createOption") == "Empty" and not size:
                raise Refused(
                    400, "InvalidParameter", "Required parameter 'diskSizeGB' is missing (null).", "diskSizeGB"
                )
            disk = self._new_disk(
                resource_id, body["location"], body.get("sku") or {"name": "Standard_LRS"}, body.get("tags")
            )
        else:
            disk = copy.deepcopy(old)
            if "tags" in body:
                disk["tags"] = body["tags"]
        for member in ("zones", "extendedLocation"):
            if body.get(member):
                disk[member] = body[member]
        self._set_disk(disk, given, old)
        if old is None:
            self.disks[at] = {**disk, "properties": {**disk["properties"], "provisioningState": "Creating"}}
            if not self.dialect.invisible_while_creating:
                self._publish(at)

        def finish():
            self.disks[at] = disk

        return self._accept("disks", at, self.dialect.disk_write, finish, lambda: self.disks.get(at), disk), old is None

    def patch_disk(self, resource_id: str, body: dict) -> Operation:
        at = key(resource_id)
        old = self.disk(resource_id)
        self._exclusive(at, f"PATCH {resource_id}")
        disk = copy.deepcopy(old)
        for member in ("tags", "sku"):
            if member in body:
                disk[member] = body[member]
        given = {k: v for k, v in body.get("properties", {}).items() if k not in READ_ONLY_DISK}
        self._set_disk(disk, given, old)

        def finish():
            # An attach may have ended meanwhile: only what was given is written.
            now = self.disks[at]
            now.update({member: disk[member] for member in ("tags", "sku") if member in body})
            self._set_disk(now, given, None)

        return self._accept("disks", at, self.dialect.disk_write, finish, lambda: self.disks.get(at), disk)

    def _set_disk(self, disk: dict, given: dict, old: dict | None) -> None:
        size = given.get("diskSizeGB")
        if old is not None and size is not None and size < old["properties"]["diskSizeGB"]:
            raise Refused(400, "InvalidParameter", "Disk cannot be shrunk.", "diskSizeGB")
        disk["properties"].update(given)
        if size is not None:
            disk["properties"]["diskSizeBytes"] = size * GIB

    def delete_disk(self, resource_id: str) -> Operation | None:
        at = key(resource_id)
        disk = self.disks.get(at)
        if disk is None:
            return None
        self._exclusive(at, f"DELETE {resource_id}")
        if disk.get("managedBy") or at in self.in_flight:
            owner = disk.get("managedBy") or self.in_flight[at]
            self.violations.append(f"DELETE of the attached disk {resource_id}")
            raise Refused(409, "OperationNotAllowed", f"Disk {disk['name']} is attached to VM {owner}.")

        def finish():
            del self.disks[at]

        return self._accept("disks", at, self.dialect.disk_delete, finish, lambda: None, deletion=True)

    def disk(self, resource_id: str, lag: float = 0.0) -> dict:
        """A disk as a reader sees it who is `lag` seconds behind."""
        seen = self.seen(key(resource_id), lag)
        if seen is None:
            raise self.not_found("disks", resource_id)
        return seen

    def seen(self, at: str, lag: float) -> dict | None:
        if not lag:
            visible = self.disks.get(at)
            if (
                visible
                and self.dialect.invisible_while_creating
                and visible["properties"]["provisioningState"] == "Creating"
            ):
                return None
            return visible
        until = time.monotonic() - lag
        return next((disk for since, disk in reversed(self.history[at]) if since <= until), None)

    def _publish(self, at: str, now: float | None = None) -> None:
        """Remembers the present state of a disk for readers that are behind."""
        if "/disks/" in at:
            self.history[at].append((time.monotonic() if now is None else now, copy.deepcopy(self.disks.get(at))))
        elif "/virtualmachinescalesets/" in at:
            shown = self.shown_machine(self.machines[at])
            self.past_instances[at].append((time.monotonic() if now is None else now, shown))

    def shown_machine(self, held: dict) -> dict:
        """A machine as a reader sees it who is not behind."""
        machine = copy.deepcopy(held["resource"])
        if self.running(key(machine["id"])):
            machine["properties"]["provisioningState"] = "Updating"
            if self.dialect.shows_update_in_progress:
                machine["properties"]["storageProfile"]["dataDisks"] = copy.deepcopy(held["pending"])
        return machine

    def listed_instances(self, scale_set: str, lag: float) -> list[dict]:
        """The instances of a scale set as a reader sees them who is `lag` seconds behind."""
        begin, until = key(self.path("virtualMachineScaleSets", scale_set)) + "/", time.monotonic() - lag
        found = sorted(at for at in self.past_instances if at.startswith(begin))
        if not found:
            raise self.not_found("virtualMachineScaleSets", begin.rstrip("/"))
        return [
            copy.deepcopy(next(shown for since, shown in reversed(self.past_instances[at]) if since <= until))
            for at in found
        ]

    def _abandon(self, operation: Operation) -> None:
        """A failed creation leaves a disk in state Failed; a stuck detach leaves its mark on the machine."""
        disk = self.disks.get(operation.resource)
        if disk and disk["properties"]["provisioningState"] == "Creating":
            disk["properties"]["provisioningState"] = "Failed"
        machine = self.machines.get(operation.resource)
        if machine:
            properties = machine["resource"]["properties"]
            properties["provisioningState"] = "Failed"
            if operation.failure.leaves == "stuck":
                leaving = {identity(e) for e in machine["pending"] if e.get("toBeDetached")}
                for element in properties["storageProfile"]["dataDisks"]:
                    element["toBeDetached"] = identity(element) in leaving

    # ---- machines

    def machine(self, resource_id: str) -> dict:
        try:
            return self.machines[key(resource_id)]["resource"]
        except KeyError:
            raise self.not_found("virtualMachines", resource_id) from None

    def not_found(self, kind: str, resource_id: str) -> Refused:
        parts = resource_id.split("/")
        group, name = parts[4], parts[8]
        if group.lower() != self.group.lower():
            return Refused(404, "ResourceGroupNotFound", f"Resource group '{group}' could not be found.")
        return Refused(
            404,
            self.dialect.not_found,
            f"The Resource 'Microsoft.Compute/{kind}/{name}' under resource group '{group}' was not found.",
        )

    def data_disks(self, name: str) -> list[dict]:
        """Of a VM by its name, or of an instance by its id."""
        at = key(name if name.startswith("/") else self.path("virtualMachines", name))
        return self.machines[at]["resource"]["properties"]["storageProfile"]["dataDisks"]

    def write_machine(self, resource_id: str, body: dict) -> Operation:
        """PUT and PATCH: what is not given stays. `dataDisks` is the whole list.

        The whole list: unverified; so the Go peers' path for Azure Stack Hub and other emulators have it.
        """
        machine = self.machine(resource_id)
        self._exclusive(key(resource_id), f"write {resource_id}")
        given = body.get("properties", {})
        state = given.get("provisioningState")
        if state is not None and state != machine["properties"]["provisioningState"]:
            # Documented: RPC, "ProvisioningState property".
            raise Refused(400, "BadRequest", "provisioningState is read-only.", "provisioningState")
        if "networkProfile" in given:
            self.violations.append(f"a disk write to {resource_id} carries a networkProfile")
        for member in ("tags", "identity"):
            if member in body and body[member] != machine.get(member):
                self.violations.append(f"a disk write to {resource_id} changes {member}")
        wanted = given.get("storageProfile", {}).get("dataDisks")
        if self.dialect.stack:
            for index, element in enumerate(wanted or []):
                # Recorded: Azure Stack Hub refuses members newer than its api-version.
                for member in ("toBeDetached", "detachOption", "deleteOption"):
                    if member in element:
                        at = f"properties.storageProfile.dataDisks[{index}].{member}"
                        raise Refused(
                            400,
                            "BadRequest",
                            f"Could not find member '{member}' on object of type 'DataDisk'. "
                            f"Path '{at}', line 1, position 424.",
                            f"vm.{at}",
                        )
        return self._change_disks(resource_id, wanted, self.dialect.vm_write)

    def attach_detach(self, resource_id: str, body: dict) -> Operation:
        """The action: what changes, and nothing else."""
        current = self.machine(resource_id)["properties"]["storageProfile"]["dataDisks"]
        self._exclusive(key(resource_id), f"attachDetachDataDisks {resource_id}")
        wanted = [dict(element) for element in current]
        taken = {element["lun"] for element in current}
        for item in body.get("dataDisksToDetach") or []:
            found = next((e for e in wanted if identity(e) == key(item["diskId"])), None)
            if found is not None:
                found["toBeDetached"] = True
            elif self.dialect.detach_absent == "refused":
                raise Refused(409, "DetachUnattachedDisk", f"Disk {item['diskId']} is not attached.", item["diskId"])
        for item in body.get("dataDisksToAttach") or []:
            if any(identity(e) == key(item["diskId"]) and e["lun"] == item.get("lun") for e in wanted):
                continue
            there = next((e for e in current if identity(e) == key(item["diskId"])), None)
            if there is not None and item.get("lun") is not None:
                # Unverified: that a disk which is on this machine at another LUN is refused like one on another machine.
                self.violations.append(f"{item['diskId']} is attached to {resource_id}, which has it already")
                machine = self.machine(resource_id)
                raise Refused(
                    409,
                    "ConflictingUserInput",
                    f"Cannot attach the disk {there['name']} to VM {machine['name']} because it is already attached to "
                    f"VM {machine['id']}. A disk can be attached to only one VM at a time.",
                    item["diskId"],
                )
            # Documented: "If not specified, lun would be auto assigned".
            lun = item.get("lun")
            lun = next(n for n in itertools.count() if n not in taken) if lun is None else lun
            taken.add(lun)
            wanted.append(
                {
                    "lun": lun,
                    "createOption": "Attach",
                    "caching": item.get("caching", "ReadOnly"),
                    "deleteOption": item.get("deleteOption", "Detach"),
                    "managedDisk": {"id": item["diskId"]},
                }
            )
        operation = self._change_disks(resource_id, wanted, self.dialect.action)
        operation.action = True
        return operation

    def _change_disks(self, resource_id: str, wanted: list[dict] | None, announced: str) -> Operation:
        vm = key(resource_id)
        held = self.machines[vm]
        storage = held["resource"]["properties"]["storageProfile"]
        after, attached, detached = self._plan(resource_id, storage["dataDisks"], wanted)
        for disk in attached + detached:
            self.in_flight[disk] = vm
        held["etag"] = next(self.serial)
        held["pending"] = after

        def finish():
            for disk in detached:
                if disk in self.disks:
                    self.disks[disk].pop("managedBy", None)
                    self.disks[disk]["properties"]["diskState"] = "Unattached"
            for disk in attached:
                self.disks[disk]["managedBy"] = held["resource"]["id"]
                self.disks[disk]["properties"]["diskState"] = "Attached"
            storage["dataDisks"] = [e for e in after if not e.get("toBeDetached")]
            held["resource"]["properties"]["provisioningState"] = "Succeeded"
            held["etag"] = next(self.serial)

        operation = self._accept("virtualMachines", vm, announced, finish, lambda: held["resource"])
        if not operation.done:
            self._publish(vm)
        return operation

    def _plan(self, resource_id: str, current: list[dict], wanted: list[dict] | None):
        """What a list of data disks means for a machine: its next list, what comes, what goes."""
        if wanted is None:
            return current, [], []
        before = {identity(element): element for element in current}
        luns, after, attached = set(), [], []
        for element in wanted:
            disk, lun = identity(element), element.get("lun")
            if not isinstance(lun, int) or not 0 <= lun < 64:
                raise Refused(
                    400,
                    "InvalidParameter",
                    f"The value '{lun}' of parameter 'dataDisk.lun' is out of range. "
                    f"Value '{lun}' must be between '0' and '63' inclusive.",
                    "dataDisk.lun",
                )
            if lun in luns:
                self.violations.append(f"LUN {lun} of {resource_id} is asked for twice")
                raise Refused(400, "InvalidParameter", f"A disk at LUN {lun} already exists.", "dataDisk.lun")
            luns.add(lun)
            if disk in before:
                after.append(self._keep(resource_id, before[disk], element))
            elif not element.get("toBeDetached"):
                after.append(self._attach(resource_id, disk, element))
                attached.append(disk)
        gone = [disk for disk in before if disk not in {identity(element) for element in wanted}]
        leaving = gone + [identity(e) for e in after if e.get("toBeDetached")]
        after += [{**before[disk], "toBeDetached": True} for disk in gone]
        for disk in leaving:
            if (self.disks.get(disk) or {}).get("tags", {}).get("owner") == "someone else":
                self.violations.append(f"the foreign disk {disk} is detached from {resource_id}")
        if len([e for e in after if not e.get("toBeDetached")]) > 16:
            raise Refused(
                409,
                "OperationNotAllowed",
                "The maximum number of data disks allowed to be attached to a VM of this size is 16.",
                "dataDisks",
            )
        return after, attached, leaving

    def _keep(self, resource_id: str, old: dict, given: dict) -> dict:
        """An element that was there: nothing of it may get lost or change."""

        def compare(where: str, before: dict, after: dict) -> None:
            for member, value in before.items():
                if member in READ_ONLY_DATA_DISK or (
                    where == "managedDisk." and member in ("id", "storageAccountType")
                ):
                    continue
                if member == "managedDisk":
                    compare("managedDisk.", value, after.get(member) or {})
                elif _plain(after.get(member)) != _plain(value):
                    self.violations.append(
                        f"{where}{member} of {old.get('name')} on {resource_id} goes from {value!r} to "
                        f"{after.get(member)!r}"
                    )

        compare("", old, given)
        managed = (
            {"managedDisk": {**(given.get("managedDisk") or {}), **old["managedDisk"]}} if "managedDisk" in old else {}
        )
        return {**old, **given, **managed}

    def _attach(self, resource_id: str, disk: str, element: dict) -> dict:
        if element.get("createOption") != "Attach":
            raise Refused(400, "InvalidParameter", "Only existing disks can be attached.", "dataDisk.createOption")
        held = self.disks.get(disk)
        if held is None:
            raise Refused(404, self.dialect.not_found, f"Disk {disk} was not found.", "dataDisk.managedDisk.id")
        owner = held.get("managedBy") or self.in_flight.get(disk)
        if owner:
            # Where reads trail, a client cannot know.
            if not self.dialect.read_lag:
                self.violations.append(f"{disk} is attached to {resource_id} while it belongs to {owner}")
            raise Refused(
                409,
                "ConflictingUserInput",
                f"Cannot attach the disk {held['name']} to VM {resource_id} because it is already attached to VM "
                f"{owner}. A disk can be attached to only one VM at a time.",
                held["id"],
            )
        if any("vhd" in e for e in self.machine(resource_id)["properties"]["storageProfile"]["dataDisks"]):
            raise Refused(
                409,
                "OperationNotAllowed",
                "Addition of a managed disk to a VM with blob based disks is not supported.",
                "dataDisk",
            )
        full = {
            **element,
            "name": element.get("name") or held["name"],
            "managedDisk": {"storageAccountType": held["sku"]["name"], "id": held["id"]},
            "diskSizeGB": held["properties"]["diskSizeGB"],
        }
        if not self.dialect.stack:
            full["toBeDetached"] = False
        if self.dialect.new_properties:
            full["futureTier"] = {"burst": 3}
        return full

    # ---- what must hold at any time

    def _check(self) -> None:
        places = defaultdict(list)
        for machine in self.machines.values():
            for element in machine["resource"]["properties"]["storageProfile"]["dataDisks"]:
                places[identity(element)].append(machine["resource"]["name"])
        for disk, names in places.items():
            if len(names) > 1:
                self.violations.append(f"{disk} is on {names}")
