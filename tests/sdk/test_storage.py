"""Storage accounts, their keys, file services and file shares: their life, soft delete, pages, and what is refused."""

import base64
import uuid

import pytest
from azure.core.exceptions import ResourceNotFoundError
from azure.mgmt.storage import StorageManagementClient

from cloud import LOCATION, refusal


@pytest.fixture(scope="session")
def storage(cloud):
    """The clients of the storage provider."""
    return cloud.client(StorageManagementClient)


class Accounts:
    """Storage accounts of one group."""

    def __init__(self, storage, group):
        self.group = group.name
        self.client = storage.storage_accounts
        self.shares = storage.file_shares
        self.services = storage.file_services

    @staticmethod
    def name() -> str:
        return "files" + uuid.uuid4().hex[:12]

    def put(self, name: str, sku="Standard_LRS", kind="StorageV2", **properties):
        body = {"location": LOCATION, "sku": {"name": sku}, "kind": kind, "properties": properties}
        return self.client.begin_create(self.group, name, body).result()

    def keys(self, name: str) -> dict[str, str]:
        return {key.key_name: key.value for key in self.client.list_keys(self.group, name).keys_property}

    def share(self, account: str, name: str, expand=None, **properties):
        return self.shares.create(self.group, account, name, {"properties": properties}, expand=expand)

    def names(self, account: str, **query) -> list[str]:
        return [share.name for share in self.shares.list(self.group, account, **query)]

    def keep_deleted(self, account: str, **policy):
        body = {"properties": {"shareDeleteRetentionPolicy": policy}}
        return self.services.set_service_properties(self.group, account, body)


@pytest.fixture
def accounts(storage, group):
    return Accounts(storage, group)


def test_an_account_is_created_read_changed_listed_and_deleted(storage, accounts):
    name = accounts.name()
    asked = {"name": name, "type": "Microsoft.Storage/storageAccounts"}
    assert storage.storage_accounts.check_name_availability(asked).name_available
    made = accounts.put(
        name,
        minimumTlsVersion="TLS1_2",
        allowBlobPublicAccess=False,
        allowSharedKeyAccess=True,
        supportsHttpsTrafficOnly=True,
        largeFileSharesState="Enabled",
        publicNetworkAccess="Enabled",
        defaultToOAuthAuthentication=False,
        allowCrossTenantReplication=False,
        accessTier="Hot",
        networkAcls={"defaultAction": "Deny", "bypass": "AzureServices", "ipRules": [{"value": "1.2.3.4"}]},
        encryption={"keySource": "Microsoft.Storage", "services": {"file": {"enabled": True}}},
        azureFilesIdentityBasedAuthentication={"directoryServiceOptions": "None"},
    )
    assert (made.name, made.kind, made.sku.name, made.sku.tier) == (name, "StorageV2", "Standard_LRS", "Standard")
    assert made.properties.provisioning_state == "Succeeded"
    assert made.properties.primary_endpoints.file == f"https://{name}.file.core.windows.net/"
    assert made.properties.encryption.services.blob.enabled
    assert not storage.storage_accounts.check_name_availability(asked).name_available
    read = storage.storage_accounts.get_properties(accounts.group, name)
    assert read.as_dict() == made.as_dict()
    again = accounts.put(name)
    assert again.properties.minimum_tls_version == "TLS1_2"
    changed = storage.storage_accounts.update(
        accounts.group, name, {"tags": {"a": "b"}, "properties": {"allowSharedKeyAccess": False}}
    )
    assert (changed.tags, changed.properties.allow_shared_key_access) == ({"a": "b"}, False)
    assert [one.name for one in storage.storage_accounts.list_by_resource_group(accounts.group)] == [name]
    assert name in [one.name for one in storage.storage_accounts.list()]
    storage.storage_accounts.delete(accounts.group, name)
    storage.storage_accounts.delete(accounts.group, name)
    with pytest.raises(ResourceNotFoundError):
        storage.storage_accounts.get_properties(accounts.group, name)


def test_wrong_accounts_are_refused(accounts):
    name = accounts.name()
    accounts.put(name)
    for call, code in [
        (lambda: accounts.put("Upper"), "AccountNameInvalid"),
        (lambda: accounts.put(accounts.name(), sku="Standard_LRS", kind="FileStorage"), "InvalidValuesForRequestParameters"),
        (lambda: accounts.put(accounts.name(), sku="Fast_LRS"), "InvalidValuesForRequestParameters"),
        (lambda: accounts.put(name, kind="FileStorage", sku="Premium_LRS"), "AccountPropertyCannotBeUpdated"),
        (lambda: accounts.put(name, isHnsEnabled=True), "AccountPropertyCannotBeUpdated"),
        (lambda: accounts.put(accounts.name(), kind="Storage", accessTier="Hot"), "InvalidRequestPropertyValue"),
    ]:
        error = refusal(call)
        assert error.error.code == code, error
    without = {"location": LOCATION, "kind": "StorageV2"}
    error = refusal(lambda: accounts.client.begin_create(accounts.group, accounts.name(), without))
    assert error.error.code == "AccountPropertyIsInvalid"


def test_a_name_is_taken_in_other_groups_too(cloud, storage, accounts):
    name = accounts.name()
    accounts.put(name)
    other = f"{accounts.group}-other"[-80:]
    cloud.resources.resource_groups.create_or_update(other, {"location": LOCATION})
    body = {"location": LOCATION, "sku": {"name": "Standard_LRS"}, "kind": "StorageV2"}
    error = refusal(lambda: storage.storage_accounts.begin_create(other, name, body))
    assert (error.status_code, error.error.code) == (409, "StorageAccountAlreadyExists")
    cloud.resources.resource_groups.begin_delete(other).result()


def test_keys_are_listed_and_renewed_one_by_one(accounts):
    name = accounts.name()
    accounts.put(name)
    before = accounts.keys(name)
    assert sorted(before) == ["key1", "key2"]
    assert all(len(base64.b64decode(key)) == 64 for key in before.values())
    renewed = accounts.client.regenerate_key(accounts.group, name, {"keyName": "key1"})
    after = accounts.keys(name)
    assert {key.key_name: key.value for key in renewed.keys_property} == after
    assert after["key1"] != before["key1"] and after["key2"] == before["key2"]
    assert all(key.permissions.upper() == "FULL" and key.creation_time for key in renewed.keys_property)
    error = refusal(lambda: accounts.client.regenerate_key(accounts.group, name, {"keyName": "key3"}))
    assert error.status_code == 400
    missing = refusal(lambda: accounts.client.list_keys(accounts.group, accounts.name()))
    assert missing.error.code == "ResourceNotFound"


def test_a_file_service_says_how_long_deleted_shares_are_kept(accounts):
    name = accounts.name()
    accounts.put(name)
    service = accounts.services.get_service_properties(accounts.group, name)
    policy = service.file_service_properties.share_delete_retention_policy
    assert (policy.enabled, policy.days) == (True, 7)
    accounts.keep_deleted(name, enabled=True, days=14)
    assert [one.name for one in accounts.services.list(accounts.group, name).value] == ["default"]
    error = refusal(lambda: accounts.keep_deleted(name, enabled=True, days=400))
    assert error.status_code == 400
    missing = refusal(lambda: accounts.services.get_service_properties(accounts.group, accounts.name()))
    assert missing.error.code == "ParentResourceNotFound"


def test_a_share_is_created_read_changed_listed_and_deleted(accounts):
    name = accounts.name()
    accounts.put(name)
    made = accounts.share(name, "share1", shareQuota=10, metadata={"a": "b"})
    assert (made.name, made.file_share_properties.share_quota) == ("share1", 10)
    read = accounts.shares.get(accounts.group, name, "share1", expand="stats")
    assert (read.file_share_properties.share_usage_bytes, read.file_share_properties.access_tier) == (0, "TransactionOptimized")
    assert read.etag.startswith('"0x8D')
    changed = accounts.shares.update(accounts.group, name, "share1", {"properties": {"shareQuota": 20}})
    assert (changed.file_share_properties.share_quota, changed.file_share_properties.metadata) == (20, {"a": "b"})
    assert changed.etag != read.etag
    assert accounts.share(name, "share1").file_share_properties.share_quota == 20
    assert accounts.names(name) == ["share1"]
    accounts.shares.delete(accounts.group, name, "share1")
    accounts.shares.delete(accounts.group, name, "share1")
    error = refusal(lambda: accounts.shares.get(accounts.group, name, "share1"))
    assert (error.status_code, error.error.code) == (404, "ShareNotFound")
    assert error.error.message.startswith("The specified share does not exist.\nRequestId:")


def test_wrong_shares_are_refused(accounts):
    name = accounts.name()
    accounts.put(name, sku="Premium_LRS", kind="FileStorage")
    for call, code in [
        (lambda: accounts.share(name, "two--dashes"), "InvalidResourceName"),
        (lambda: accounts.share(name, "ab"), "OutOfRangeInput"),
        (lambda: accounts.share(name, "share1", shareQuota=99), "InvalidHeaderValue"),
        (lambda: accounts.share(name, "share1", accessTier="Hot"), "InvalidHeaderValue"),
        (lambda: accounts.share(accounts.name(), "share1"), "ParentResourceNotFound"),
        (lambda: accounts.shares.update(accounts.group, name, "none", {"properties": {}}), "ShareNotFound"),
    ]:
        error = refusal(call)
        assert error.error.code == code, error
    made = accounts.share(name, "share1", shareQuota=100, enabledProtocols="NFS")
    assert made.file_share_properties.root_squash == "NoRootSquash"


def test_a_deleted_share_is_restored(accounts):
    name = accounts.name()
    accounts.put(name)
    accounts.share(name, "share1", shareQuota=10)
    snapshot = accounts.share(name, "share1", expand="snapshots").file_share_properties.snapshot_time
    assert snapshot
    error = refusal(lambda: accounts.shares.delete(accounts.group, name, "share1", include="none"))
    assert (error.status_code, error.error.code) == (409, "ShareHasSnapshots")
    accounts.shares.delete(accounts.group, name, "share1", include="snapshots")
    assert accounts.names(name) == []
    [deleted] = accounts.shares.list(accounts.group, name, expand="deleted")
    assert (deleted.name, deleted.properties.deleted, deleted.properties.remaining_retention_days) == ("share1", True, 7)
    asked = {"deletedShareName": "share1", "deletedShareVersion": deleted.properties.version}
    accounts.shares.restore(accounts.group, name, "share1", asked)
    assert accounts.shares.get(accounts.group, name, "share1").file_share_properties.share_quota == 10
    assert accounts.names(name, expand="snapshots") == ["share1", "share1"]
    error = refusal(lambda: accounts.shares.restore(accounts.group, name, "share1", asked))
    assert error.error.code == "ShareAlreadyExists"
    asked["deletedShareName"] = "share2"
    error = refusal(lambda: accounts.shares.restore(accounts.group, name, "share2", asked))
    assert error.error.code == "ShareNotFound"


def test_shares_come_in_pages(cloud, accounts):
    name = accounts.name()
    accounts.put(name)
    wanted = [f"share-{number}" for number in range(5)]
    for share in wanted:
        accounts.share(name, share, shareQuota=1)
    account = accounts.client.get_properties(accounts.group, name).id
    page = cloud.send("GET", f"{account}/fileServices/default/shares?api-version=2025-01-01&$maxpagesize=2")
    seen = []
    for _ in range(3):
        page.raise_for_status()
        seen.append([share["name"] for share in page.json()["value"]])
        if "nextLink" not in page.json():
            break
        page = cloud.send("GET", page.json()["nextLink"].removeprefix(cloud.url))
    assert seen == [wanted[:2], wanted[2:4], wanted[4:]]
    assert accounts.names(name, filter="share-3") == ["share-3"]
    assert accounts.names(name) == wanted


def test_the_lease_of_a_share_keeps_it_from_deletion(accounts):
    name = accounts.name()
    accounts.put(name)
    accounts.share(name, "share1", shareQuota=10)

    def lease(**body):
        return accounts.shares.lease(accounts.group, name, "share1", parameters=body)

    def shown():
        properties = accounts.shares.get(accounts.group, name, "share1").file_share_properties
        return (properties.lease_status, properties.lease_state, properties.lease_duration)

    assert shown() == ("unlocked", "available", None)
    first = lease(action="Acquire", leaseDuration=-1).lease_id
    assert shown() == ("locked", "leased", "infinite")
    error = refusal(lambda: accounts.shares.delete(accounts.group, name, "share1", include="none"))
    assert (error.status_code, error.error.code) == (412, "LeaseIdMissing")
    other = str(uuid.uuid4())
    for body, code in [
        ({"action": "Acquire", "leaseDuration": 15}, "LeaseAlreadyPresent"),
        ({"action": "Renew", "leaseId": other}, "LeaseIdMismatchWithLeaseOperation"),
        ({"action": "Release", "leaseId": other}, "LeaseIdMismatchWithLeaseOperation"),
    ]:
        error = refusal(lambda body=body: lease(**body))
        assert (error.status_code, error.error.code) == (409, code), error
    for body in [{"action": "Acquire", "leaseDuration": 5}, {"action": "Seize"}, {"action": "Renew"}]:
        assert refusal(lambda body=body: lease(**body)).status_code == 400
    assert lease(action="Change", leaseId=first, proposedLeaseId=other).lease_id == other
    assert lease(action="Renew", leaseId=other).lease_id == other
    assert lease(action="Break", breakPeriod=60).lease_time_seconds == "60"
    assert shown() == ("locked", "breaking", None)
    error = refusal(lambda: lease(action="Renew", leaseId=other))
    assert error.error.code == "LeaseIsBrokenAndCannotBeRenewed"
    lease(action="Release", leaseId=other)
    assert shown() == ("unlocked", "available", None)
    error = refusal(lambda: lease(action="Break"))
    assert (error.status_code, error.error.code) == (409, "LeaseNotPresentWithLeaseOperation")
    lease(action="Acquire", leaseDuration=60)
    lease(action="Break", breakPeriod=0)
    assert shown() == ("unlocked", "broken", None)
    accounts.shares.delete(accounts.group, name, "share1", include="none")


def test_a_snapshot_is_read_by_its_time_and_deleted_alone(accounts):
    name = accounts.name()
    accounts.put(name)
    accounts.share(name, "share1", shareQuota=10, metadata={"a": "b"})
    first = accounts.share(name, "share1", expand="snapshots", metadata={"c": "d"}).file_share_properties
    second = accounts.share(name, "share1", expand="snapshots").file_share_properties
    assert first.snapshot_time != second.snapshot_time
    assert (first.metadata, second.metadata) == ({"c": "d"}, {"a": "b"})
    accounts.shares.update(accounts.group, name, "share1", {"properties": {"shareQuota": 20}})

    def of(time):
        return {"x_ms_snapshot": time.strftime("%Y-%m-%dT%H:%M:%S.0000000Z")}

    read = accounts.shares.get(accounts.group, name, "share1", **of(first.snapshot_time))
    assert (read.file_share_properties.share_quota, read.file_share_properties.snapshot_time) == (10, first.snapshot_time)
    assert len(accounts.names(name, expand="snapshots")) == 3
    accounts.shares.delete(accounts.group, name, "share1", **of(first.snapshot_time))
    accounts.shares.delete(accounts.group, name, "share1", **of(first.snapshot_time))
    error = refusal(lambda: accounts.shares.get(accounts.group, name, "share1", **of(first.snapshot_time)))
    assert (error.status_code, error.error.code) == (404, "ShareSnapshotNotFound")
    assert len(accounts.names(name, expand="snapshots")) == 2
    error = refusal(lambda: accounts.share(name, "absent", expand="snapshots"))
    assert (error.status_code, error.error.code) == (404, "ShareNotFound")


def test_a_deleted_share_is_listed_beside_a_new_one_of_its_name(accounts):
    name = accounts.name()
    accounts.put(name)
    versions = []
    for gib in [10, 20]:
        accounts.share(name, "share1", shareQuota=gib)
        accounts.shares.delete(accounts.group, name, "share1", include="none")
    accounts.share(name, "share1", shareQuota=30)
    for share in accounts.shares.list(accounts.group, name, expand="deleted"):
        versions.append((share.properties.share_quota, bool(share.properties.deleted), bool(share.properties.version)))
    assert sorted(versions) == [(10, True, True), (20, True, True), (30, False, False)]
    assert accounts.names(name) == ["share1"]
    accounts.keep_deleted(name, enabled=False)
    accounts.share(name, "share2", shareQuota=10)
    accounts.shares.delete(accounts.group, name, "share2")
    assert len(list(accounts.shares.list(accounts.group, name, expand="deleted"))) == 3, "share2 has gone for good"


def test_wrong_sizes_tiers_and_queries_are_refused(accounts):
    standard, premium = accounts.name(), accounts.name()
    accounts.put(standard)
    accounts.put(premium, sku="PremiumV2_LRS", kind="FileStorage")
    accounts.share(standard, "share1", shareQuota=10)
    accounts.share(standard, "share1", expand="snapshots")
    update = accounts.shares.update
    for call, code in [
        (lambda: accounts.share(standard, "share2", shareQuota=0), "InvalidHeaderValue"),
        (lambda: accounts.share(standard, "share2", shareQuota=5_121), "InvalidHeaderValue"),
        (lambda: accounts.share(standard, "share2", accessTier="Premium"), "InvalidHeaderValue"),
        (lambda: accounts.share(standard, "share2", provisionedIops=500), "InvalidHeaderValue"),
        (lambda: accounts.share(premium, "share2", shareQuota=31), "InvalidHeaderValue"),
        (lambda: accounts.share(premium, "share2", shareQuota=32, provisionedIops=2_999), "InvalidHeaderValue"),
        (lambda: accounts.share(premium, "share2", shareQuota=32, provisionedBandwidthMibps=99), "InvalidHeaderValue"),
        (lambda: accounts.share(premium, "share2", shareQuota=32, accessTier="Hot"), "InvalidHeaderValue"),
        (lambda: accounts.share(standard, "share1", expand="everything"), "InvalidQueryParameterValue"),
        (lambda: accounts.shares.get(accounts.group, standard, "share1", expand="everything"), "InvalidQueryParameterValue"),
        (lambda: accounts.names(standard, expand="everything"), "InvalidQueryParameterValue"),
        (lambda: accounts.shares.delete(accounts.group, standard, "share1", include="some"), "InvalidQueryParameterValue"),
        (lambda: accounts.share(standard, "Upper"), "InvalidResourceName"),
        (lambda: accounts.share(standard, "-dash"), "InvalidResourceName"),
        (lambda: accounts.share(standard, "a" * 64), "OutOfRangeInput"),
        (lambda: update(accounts.group, standard, "share1", {"properties": {"accessTier": "Premium"}}), "InvalidHeaderValue"),
        (lambda: update(accounts.group, standard, "share1", {"properties": {"shareQuota": 0}}), "InvalidHeaderValue"),
        (lambda: accounts.services.get_service_properties(accounts.group, accounts.name()), "ParentResourceNotFound"),
    ]:
        error = refusal(call)
        assert error.error.code == code, error
    made = accounts.share(premium, "share2", shareQuota=32, provisionedIops=4_000, provisionedBandwidthMibps=200)
    properties = made.file_share_properties
    assert (properties.provisioned_iops, properties.provisioned_bandwidth_mibps) == (4_000, 200)
    changed = update(accounts.group, standard, "share1", {"properties": {"accessTier": "Cool"}}).file_share_properties
    assert (changed.access_tier, changed.share_quota) == ("Cool", 10)


def test_an_account_of_v2_takes_fifty_shares_with_those_that_are_deleted(accounts):
    name = accounts.name()
    accounts.put(name, sku="PremiumV2_LRS", kind="FileStorage")
    for number in range(50):
        accounts.share(name, f"share-{number}", shareQuota=32)
    error = refusal(lambda: accounts.share(name, "one-more", shareQuota=32))
    assert (error.status_code, error.error.code) == (409, "TotalSharesCountExceedsAccountLimit")
    accounts.shares.delete(accounts.group, name, "share-0")
    error = refusal(lambda: accounts.share(name, "one-more", shareQuota=32))
    assert error.error.code == "TotalSharesCountExceedsAccountLimit", "a deleted share counts until it is gone"


def test_names_of_accounts_are_checked_before_they_are_taken(storage, accounts):
    kind = "Microsoft.Storage/storageAccounts"
    name = accounts.name()
    accounts.put(name)
    for asked, reason in [(name, "AlreadyExists"), ("Upper", "AccountNameInvalid"), ("ab", "AccountNameInvalid")]:
        answer = storage.storage_accounts.check_name_availability({"name": asked, "type": kind})
        assert (answer.name_available, answer.reason) == (False, reason) and answer.message
    error = refusal(lambda: storage.storage_accounts.check_name_availability({"name": name, "type": "Other/type"}))
    assert error.status_code == 400


def test_an_account_without_files_has_no_shares(accounts):
    name = accounts.name()
    accounts.put(name, kind="BlockBlobStorage", sku="Premium_LRS")
    error = refusal(lambda: accounts.share(name, "share1"))
    assert (error.status_code, error.error.code) == (409, "FeatureNotSupportedForAccount"), error
