"""Disks that are VHDs in a storage account: made and held by a machine, and imported, by the official clients."""

import struct
import uuid

import pytest
from azure.core.exceptions import HttpResponseError
from azure.storage.blob import BlobType

from cloud import LOCATION
from test_blobs import Account

GIB = 1 << 30


@pytest.fixture
def account(cloud, group):
    account = Account(cloud, group)
    account.blobs.create_container("vhds")
    return account


@pytest.fixture
def machine(cloud, group, account):
    """A machine whose system disk is a blob."""
    managed = group.machine("managed")
    network = managed.read().network_profile.network_interfaces[0].id
    interface = cloud.send("GET", f"{network}?api-version=2025-05-01").json()
    subnet = interface["properties"]["ipConfigurations"][0]["properties"]["subnet"]
    own = cloud.put_network_resource(
        group.name, "networkInterfaces", "unmanaged",
        {
            "location": LOCATION,
            "properties": {"ipConfigurations": [{"name": "first", "properties": {"subnet": {"id": subnet["id"]}}}]},
        },
    )
    body = {
        "location": LOCATION,
        "properties": {
            "hardwareProfile": {"vmSize": "Standard_D2s_v3"},
            "osProfile": {"computerName": "u", "adminUsername": "someone", "adminPassword": str(uuid.uuid4()) + "Aa1!"},
            "networkProfile": {"networkInterfaces": [{"id": own}]},
            "storageProfile": {
                "imageReference": {
                    "publisher": "Canonical", "offer": "ubuntu-24_04-lts", "sku": "server", "version": "latest",
                },
                "osDisk": {"name": "os", "createOption": "FromImage", "vhd": {"uri": uri(account, "os.vhd")}},
            },
        },
    }
    cloud.compute.virtual_machines.begin_create_or_update(group.name, "unmanaged", body).result()
    return "unmanaged"


def uri(account, name: str) -> str:
    return f"https://{account.name}.blob.core.windows.net/vhds/{name}"


def write(cloud, group, machine: str, *disks: dict):
    body = {"properties": {"storageProfile": {"dataDisks": list(disks)}}}
    return cloud.compute.virtual_machines.begin_update(group.name, machine, body).result()


def checksum(footer: bytes) -> int:
    return ~sum(footer[:64] + footer[68:]) & 0xFFFFFFFF


def test_a_machine_makes_a_vhd_and_holds_it_until_it_is_detached(cloud, group, account, machine):
    disk = {"lun": 2, "name": "a", "createOption": "Empty", "diskSizeGB": 1, "vhd": {"uri": uri(account, "a.vhd")}}
    shown = write(cloud, group, machine, disk).storage_profile.data_disks
    assert [(one.lun, one.vhd.uri, one.managed_disk) for one in shown] == [(2, uri(account, "a.vhd"), None)]
    blob = account.blobs.get_blob_client("vhds", "a.vhd")
    properties = blob.get_blob_properties()
    assert (properties.size, properties.blob_type) == (GIB + 512, BlobType.PageBlob)
    assert (properties.lease.state, properties.lease.duration) == ("leased", "infinite")
    footer = blob.download_blob(offset=GIB, length=512).readall()
    assert footer[:8] == b"conectix" and struct.unpack(">QQ", footer[40:56]) == (GIB, GIB)
    assert struct.unpack(">II", footer[60:68]) == (2, checksum(footer))
    with pytest.raises(HttpResponseError) as refused:
        blob.delete_blob()
    assert refused.value.error_code == "LeaseIdMissing"
    write(cloud, group, machine)
    assert blob.get_blob_properties().lease.state == "available"
    blob.delete_blob()


def test_a_vhd_becomes_a_managed_disk(cloud, group, account, machine):
    disk = {"lun": 0, "name": "a", "createOption": "Empty", "diskSizeGB": 3, "vhd": {"uri": uri(account, "a.vhd")}}
    write(cloud, group, machine, disk)
    write(cloud, group, machine)
    source = f"/subscriptions/{cloud.subscription}/resourceGroups/{group.name}/providers/Microsoft.Storage/storageAccounts/{account.name}"
    body = {
        "location": LOCATION,
        "sku": {"name": "Premium_LRS"},
        "properties": {
            "creationData": {"createOption": "Import", "sourceUri": uri(account, "a.vhd"), "storageAccountId": source}
        },
    }
    made = cloud.compute.disks.begin_create_or_update(group.name, "imported", body).result()
    assert (made.disk_size_gb, made.disk_size_bytes) == (3, 3 * GIB)
    body["properties"]["creationData"]["sourceUri"] = uri(account, "none.vhd")
    with pytest.raises(HttpResponseError):
        cloud.compute.disks.begin_create_or_update(group.name, "none", body)
