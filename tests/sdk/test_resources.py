"""Signing in, resource groups, and what every list has in common."""

import requests

from azure.core.exceptions import ClientAuthenticationError, ResourceNotFoundError
from azure.identity import ClientSecretCredential
from cloud import LOCATION, refusal


def test_a_client_secret_gives_a_bearer_token(cloud):
    token = cloud.credential.get_token("https://management.azure.com/.default")
    assert token.token
    assert token.expires_on > 0


def test_a_wrong_secret_is_refused_at_the_login_endpoint(cloud):
    wrong = ClientSecretCredential(
        tenant_id=cloud.credential._tenant_id,
        client_id=cloud.credential._client_id,
        client_secret="not the secret",
        authority=cloud.url,
        disable_instance_discovery=True,
        connection_verify=cloud.ca,
    )
    try:
        wrong.get_token("https://management.azure.com/.default")
    except ClientAuthenticationError as error:
        assert "AADSTS7000215" in error.message
    else:
        raise AssertionError("a wrong secret was accepted")


def test_a_request_without_a_token_is_unauthenticated(cloud):
    answer = requests.get(
        f"{cloud.url}/subscriptions/{cloud.subscription}/resourcegroups?api-version=2021-04-01",
        verify=cloud.ca,
        timeout=30,
    )
    assert answer.status_code == 401
    assert answer.json()["error"]["code"] == "AuthenticationFailed"
    assert answer.headers["WWW-Authenticate"].startswith("Bearer ")


def test_a_foreign_token_is_refused(cloud):
    answer = requests.get(
        f"{cloud.url}/subscriptions/{cloud.subscription}/resourcegroups?api-version=2021-04-01",
        headers={"Authorization": "Bearer made-up"},
        verify=cloud.ca,
        timeout=30,
    )
    assert answer.status_code == 401
    assert answer.json()["error"]["code"] == "InvalidAuthenticationToken"


def test_a_resource_group_lives_and_takes_its_disks_with_it(cloud):
    groups = cloud.resources.resource_groups
    created = groups.create_or_update("short-lived", {"location": LOCATION, "tags": {"a": "b"}})
    assert (created.name, created.location, created.tags) == ("short-lived", LOCATION, {"a": "b"})
    assert groups.check_existence("short-lived")
    assert "short-lived" in [found.name for found in groups.list()]
    cloud.compute.disks.begin_create_or_update(
        "short-lived", "inside",
        {"location": LOCATION, "properties": {"creationData": {"createOption": "Empty"}, "diskSizeGB": 4}},
    ).result()

    groups.begin_delete("short-lived").result()

    assert not groups.check_existence("short-lived")
    error = refusal(lambda: cloud.compute.disks.get("short-lived", "inside"))
    assert (error.status_code, error.error.code) == (404, "ResourceGroupNotFound")
    assert all("/short-lived/" not in disk.id for disk in cloud.compute.disks.list())


def test_an_absent_resource_is_resource_not_found(cloud, group):
    try:
        cloud.compute.disks.get(group.name, "absent")
    except ResourceNotFoundError as error:
        assert error.error.code == "ResourceNotFound"
        assert "'Microsoft.Compute/disks/absent'" in error.error.message
        assert error.response.headers["x-ms-failure-cause"] == "gateway"
    else:
        raise AssertionError("an absent disk was found")


def test_a_request_without_api_version_is_refused(cloud, group):
    answer = cloud.send("GET", f"/subscriptions/{cloud.subscription}/resourceGroups/{group.name}")
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "MissingApiVersionParameter"


def test_another_subscription_is_not_found(cloud):
    answer = cloud.send(
        "GET",
        "/subscriptions/99999999-9999-9999-9999-999999999999/resourcegroups?api-version=2021-04-01",
    )
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "SubscriptionNotFound")


def test_the_sku_catalogue_tells_how_many_disks_a_size_takes(cloud):
    skus = {
        sku.name: {capability.name: capability.value for capability in sku.capabilities}
        for sku in cloud.compute.resource_skus.list(filter=f"location eq '{LOCATION}'")
        if sku.resource_type == "virtualMachines"
    }
    assert skus["Standard_D2s_v3"]["MaxDataDiskCount"] == "4"
    assert skus["Standard_D8s_v3"]["MaxDataDiskCount"] == "16"
