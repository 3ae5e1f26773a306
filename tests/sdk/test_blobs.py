"""Page blobs by the official client of the blob service: its signatures, its conditions, its leases, over TLS."""

import uuid

import pytest
from azure.core import MatchConditions
from azure.core.exceptions import (
    ClientAuthenticationError,
    HttpResponseError,
    ResourceExistsError,
    ResourceModifiedError,
    ResourceNotFoundError,
)
from azure.mgmt.storage import StorageManagementClient
from azure.storage.blob import BlobLeaseClient, BlobServiceClient, BlobType, SequenceNumberAction

from cloud import LOCATION

MIB = 1 << 20


class Account:
    """A storage account with a client for its blobs."""

    def __init__(self, cloud, group):
        self.cloud, self.group = cloud, group.name
        self.management = cloud.client(StorageManagementClient).storage_accounts
        self.name = "vhds" + uuid.uuid4().hex[:12]
        body = {"location": LOCATION, "sku": {"name": "Standard_LRS"}, "kind": "StorageV2", "properties": {}}
        self.management.begin_create(self.group, self.name, body).result()
        self.blobs = self.client(self.key())

    def key(self, name="key1") -> str:
        keys = self.management.list_keys(self.group, self.name).keys_property
        return next(key.value for key in keys if key.key_name == name)

    def client(self, key: str, **options) -> BlobServiceClient:
        return BlobServiceClient(
            f"{self.cloud.url}/{self.name}",
            credential={"account_name": self.name, "account_key": key},
            connection_verify=self.cloud.ca,
            retry_total=0,
            **options,
        )


@pytest.fixture
def account(cloud, group):
    return Account(cloud, group)


@pytest.fixture
def container(account):
    return account.blobs.create_container("vhds")


def code(call) -> str:
    with pytest.raises(HttpResponseError) as refused:
        call()
    return refused.value.error_code


def test_an_account_knows_its_keys_and_no_other(account, container):
    assert account.blobs.get_account_information()["sku_name"] == "Standard_LRS"
    assert [one.name for one in account.blobs.list_containers()] == ["vhds"]
    assert [one.name for one in account.client(account.key("key2")).list_containers()] == ["vhds"]
    account.management.regenerate_key(account.group, account.name, {"keyName": "key1"})
    with pytest.raises(ClientAuthenticationError) as refused:
        account.blobs.get_blob_client("vhds", "a").exists()
    assert refused.value.error_code == "AuthenticationFailed"
    assert account.client(account.key()).get_container_client("vhds").exists()


@pytest.mark.parametrize("version", ["2019-02-02", "2021-12-02", "2026-04-06"])
def test_a_name_that_must_be_encoded_is_signed_in_every_version(account, container, version):
    blob = account.client(account.key(), api_version=version).get_blob_client("vhds", "a b/ü+&=%2F.vhd")
    blob.create_page_blob(512, metadata={"created_by": "me", "a": "1"})
    assert blob.get_blob_properties().metadata == {"created_by": "me", "a": "1"}
    assert [one.name for one in container.list_blobs(name_starts_with="a b/ü")] == ["a b/ü+&=%2F.vhd"]


def test_containers_live_and_die(account):
    container = account.blobs.create_container("vhds", metadata={"a": "1"})
    with pytest.raises(ResourceExistsError) as refused:
        account.blobs.create_container("vhds")
    assert refused.value.error_code == "ContainerAlreadyExists"
    properties = container.get_container_properties()
    assert (properties.metadata, properties.lease.state, properties.public_access) == ({"a": "1"}, "available", None)
    container.set_container_metadata({"b": "2"})
    assert [one.metadata for one in account.blobs.list_containers(include_metadata=True)] == [{"b": "2"}]
    assert container.get_container_access_policy()["signed_identifiers"] == []
    container.delete_container()
    assert code(lambda: account.blobs.create_container("vhds")) == "ContainerBeingDeleted"
    assert code(lambda: list(container.list_blobs())) == "ContainerNotFound"


def test_pages_are_written_cleared_read_and_told(container):
    blob = container.get_blob_client("disk.vhd")
    blob.create_page_blob(1024 * MIB + 512, metadata={"createdby": "me"})
    footer = bytes(range(256)) * 2
    blob.upload_page(footer, offset=1024 * MIB, length=512)
    blob.upload_page(b"\1" * 4 * MIB, offset=0, length=4 * MIB)
    blob.clear_page(offset=MIB, length=MIB)
    shown = [(one.start, one.end) for one in blob.list_page_ranges()]
    assert shown == [(0, MIB - 1), (2 * MIB, 4 * MIB - 1), (1024 * MIB, 1024 * MIB + 511)]
    pages = list(blob.list_page_ranges(results_per_page=2).by_page())
    assert [len(list(page)) for page in pages] == [2, 1]
    assert [(one.start, one.end) for one in blob.list_page_ranges(offset=3 * MIB, length=2 * MIB)] == [(3 * MIB, 4 * MIB - 1)]
    assert blob.download_blob(offset=1024 * MIB, length=512).readall() == footer
    assert blob.download_blob(offset=MIB - 1, length=2).readall() == b"\1\0"
    assert code(lambda: blob.upload_page(footer, offset=1024 * MIB + 512, length=512)) == "InvalidPageRange"
    properties = blob.get_blob_properties()
    assert (properties.size, properties.blob_type) == (1024 * MIB + 512, BlobType.PageBlob)
    small = container.get_blob_client("small.vhd")
    small.upload_blob(footer * 2048, blob_type=BlobType.PageBlob)
    assert small.download_blob().readall() == footer * 2048


def test_a_page_blob_is_resized(container):
    blob = container.get_blob_client("disk.vhd")
    blob.create_page_blob(2 * MIB)
    blob.upload_page(b"\1" * 2 * MIB, offset=0, length=2 * MIB)
    blob.resize_blob(MIB)
    blob.resize_blob(4 * MIB)
    assert blob.get_blob_properties().size == 4 * MIB
    assert [(one.start, one.end) for one in blob.list_page_ranges()] == [(0, MIB - 1)]
    assert blob.download_blob(offset=MIB - 1, length=2).readall() == b"\1\0"
    assert code(lambda: blob.create_page_blob(513)) == "InvalidHeaderValue"
    assert blob.set_sequence_number(SequenceNumberAction.Update, "7")["blob_sequence_number"] == 7
    assert code(lambda: blob.upload_page(b"\1" * 512, 0, 512, if_sequence_number_lt=7)) == "SequenceNumberConditionNotMet"


def test_writes_are_conditional(container):
    blob = container.get_blob_client("disk.vhd")
    etag = blob.create_page_blob(1024, match_condition=MatchConditions.IfMissing)["etag"]
    with pytest.raises(ResourceExistsError) as refused:
        blob.create_page_blob(1024, match_condition=MatchConditions.IfMissing)
    assert refused.value.error_code == "BlobAlreadyExists"
    same = {"etag": etag, "match_condition": MatchConditions.IfNotModified}
    newer = blob.upload_page(b"\1" * 512, offset=0, length=512, **same)["etag"]
    with pytest.raises(ResourceModifiedError) as refused:
        blob.resize_blob(2048, **same)
    assert refused.value.error_code == "ConditionNotMet"
    assert blob.get_blob_properties().etag == newer
    with pytest.raises(ResourceModifiedError):
        blob.delete_blob(**same)
    blob.delete_blob(etag=newer, match_condition=MatchConditions.IfNotModified)
    with pytest.raises(ResourceNotFoundError):
        blob.get_blob_properties()


def test_a_lease_keeps_writers_off(container):
    blob = container.get_blob_client("disk.vhd")
    blob.create_page_blob(1024)
    lease = blob.acquire_lease(lease_duration=-1)
    properties = blob.get_blob_properties()
    assert (properties.lease.status, properties.lease.state, properties.lease.duration) == ("locked", "leased", "infinite")
    assert code(lambda: blob.acquire_lease(lease_duration=15)) == "LeaseAlreadyPresent"
    assert code(blob.delete_blob) == "LeaseIdMissing"
    assert code(lambda: blob.upload_page(b"\1" * 512, 0, 512)) == "LeaseIdMissing"
    assert code(lambda: blob.resize_blob(2048, lease=str(uuid.uuid4()))) == "LeaseIdMismatchWithBlobOperation"
    blob.upload_page(b"\1" * 512, 0, 512, lease=lease)
    lease.change(str(uuid.uuid4()))
    lease.renew()
    other = BlobLeaseClient(blob, lease_id=str(uuid.uuid4()))
    assert code(other.release) == "LeaseIdMismatchWithLeaseOperation"
    assert other.break_lease(lease_break_period=30) == 30
    assert blob.get_blob_properties().lease.state == "breaking"
    lease.release()
    assert code(lease.break_lease) == "LeaseNotPresentWithLeaseOperation"
    blob.delete_blob()


def test_snapshots_and_copies(container):
    blob = container.get_blob_client("disk.vhd")
    blob.create_page_blob(1024)
    blob.upload_page(b"\1" * 512, 0, 512)
    snapshot = blob.create_snapshot()["snapshot"]
    blob.upload_page(b"\2" * 512, 0, 512)
    old = container.get_blob_client("disk.vhd", snapshot=snapshot)
    assert old.download_blob(offset=0, length=512).readall() == b"\1" * 512
    shown = [(one.name, one.snapshot) for one in container.list_blobs(include=["snapshots"])]
    assert shown == [("disk.vhd", snapshot), ("disk.vhd", None)]
    assert code(blob.delete_blob) == "SnapshotsPresent"
    copy = container.get_blob_client("copy.vhd")
    assert copy.start_copy_from_url(old.url)["copy_status"] == "success"
    assert copy.get_blob_properties().copy.status == "success"
    assert copy.download_blob(offset=0, length=512).readall() == b"\1" * 512
    blob.delete_blob(delete_snapshots="include")
    assert [one.name for one in container.list_blobs()] == ["copy.vhd"]


def test_blobs_are_listed_by_prefix_and_page(container):
    names = ["B", "a/1", "a/2", "b", "c"]
    for name in names:
        container.get_blob_client(name).create_page_blob(512, metadata={"k": name})
    assert [one.name for one in container.list_blobs()] == names
    listed = list(container.list_blobs(name_starts_with="a/", include=["metadata"]))
    assert [(one.name, one.metadata, one.size) for one in listed] == [(name, {"k": name}, 512) for name in names[1:3]]
    assert listed[0].lease.state == "available" and listed[0].blob_type == BlobType.PageBlob
    assert [len(list(page)) for page in container.list_blobs(results_per_page=2).by_page()] == [2, 2, 1]
    # The client shows what is below a delimiter first.
    assert [one.name for one in container.walk_blobs(delimiter="/")] == ["a/", "B", "b", "c"]
