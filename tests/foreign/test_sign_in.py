"""Tokens: from the authority in its forms, from the metadata service in its moods, and taken away in between."""

import grpc
import pytest

from dialect import PUBLIC
from driver import RETRYABLE, code_of, persistently

QUICK = PUBLIC.but("quick", duration=0.1, retry_after="0")
IDENTITY = "/metadata/identity/oauth2/token"


def test_a_token_that_azure_no_longer_takes_is_replaced(room):
    here = room(QUICK)
    driver = here.driver()
    volume = driver.create("pvc-1").volume_id
    here.cloud.authority.tokens.clear()
    persistently(driver.publish, volume, "node-0")
    here.cloud.authority.tokens.clear()
    persistently(driver.unpublish, volume, "node-0")
    persistently(driver.delete, volume)
    assert len(here.cloud.authority.requests) <= 4
    here.judge.check_clean()


def test_many_calls_use_one_token(room):
    here = room(QUICK)
    driver = here.driver()
    for number in range(3):
        driver.delete(driver.create(f"pvc-{number}").volume_id)
    assert len(here.cloud.authority.requests) == 1


@pytest.mark.parametrize(
    "audience", ["https://management.foreign", "https://management.foreign/", "https://management.foreign/0a1b"]
)
def test_a_token_is_for_the_audience_that_the_cloud_names_to_the_last_slash(room, audience):
    """Documented: the scope of an audience that ends in a slash has two of them before `.default`."""
    here = room(QUICK, audience=audience)
    driver = here.driver()
    driver.delete(driver.create("pvc-1").volume_id)
    here.judge.check_clean()


@pytest.mark.parametrize(
    "fault",
    [
        {"status": 503},
        {"status": 429, "headers": {"Retry-After": "1"}},
        {"drop": "before"},
        {"drop": "within"},
        {"delay": 3.0},
    ],
    ids=["503", "429", "dropped", "cut", "slow"],
)
def test_an_authority_that_stumbles_is_asked_again(room, fault):
    here = room(QUICK)
    driver = here.driver()
    here.cloud.fault("POST", "/oauth2/", **fault)
    persistently(driver.delete, persistently(driver.create, "pvc-1").volume_id)
    here.judge.check_clean()


def test_a_wrong_secret_is_an_error_of_its_own_and_asked_for_sparingly(room):
    here = room(QUICK)
    driver = here.driver(aadClientSecret="not the secret")
    code = code_of(driver.create, "pvc-1", timeout=20)
    assert code in {grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED} | RETRYABLE
    assert "AADSTS7000215" in driver.log_text(), "the reader is told what the authority said"
    assert "not the secret" not in driver.log_text()
    assert len(here.cloud.authority.requests) <= 3


def test_adfs_is_spoken_to_at_its_own_address(room):
    """Documented: Azure Stack Hub with ADFS has the tenant `adfs`, and its token endpoint writes numbers as strings."""
    here = room(QUICK.but("adfs", stack=True, configured="stack", action_missing="404", etag="absent"))
    here.cloud.authority.adfs = True
    driver = here.driver(identitySystem="adfs", tenantId="adfs")
    volume = driver.create("pvc-1").volume_id
    driver.delete(volume)
    assert here.cloud.authority.requests[0]["path"].startswith("/adfs/oauth2/")


@pytest.mark.parametrize(
    "fault",
    [
        None,
        {"status": 429, "times": 2, "headers": {"Retry-After": "1"}},
        {"status": 410, "times": 2},
        {"status": 404, "times": 1},
        {"status": 500, "times": 2, "body": b'{"error":"internal_server_error"}'},
        {"delay": 3.0},
        {"drop": "before"},
    ],
    ids=["well", "429", "410", "404", "500", "slow", "dropped"],
)
def test_a_managed_identity_signs_in_although_the_metadata_service_stumbles(room, fault):
    here = room(QUICK)
    options = ("--route", f"http://169.254.169.254={here.cloud.url}")
    driver = here.driver(*options, useManagedIdentityExtension=True, aadClientId="", aadClientSecret="")
    if fault:
        here.cloud.fault("GET", IDENTITY, **fault)
    persistently(driver.delete, persistently(driver.create, "pvc-1").volume_id)
    assert here.cloud.authority.requests == []
    here.judge.check_clean()


def test_a_machine_without_an_identity_is_told_apart_from_one_that_waits(room):
    here = room(QUICK)
    options = ("--route", f"http://169.254.169.254={here.cloud.url}")
    driver = here.driver(*options, useManagedIdentityExtension=True, aadClientId="", aadClientSecret="")
    here.cloud.fault(
        "GET",
        IDENTITY,
        times=1000,
        status=400,
        body=b'{"error":"invalid_request","error_description":"Identity not found"}',
    )
    assert code_of(driver.create, "pvc-1", timeout=20) != grpc.StatusCode.OK
    assert "Identity not found" in driver.log_text()
    assert len(here.cloud.requests("GET", IDENTITY)) <= 12
