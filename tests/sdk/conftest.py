"""One emulator for the whole run; a resource group of its own for each test."""

import re
import uuid

import pytest
from azure.mgmt.network import NetworkManagementClient

from cloud import LOCATION, Cloud, Emulator, Group


@pytest.fixture(scope="session")
def emulator(tmp_path_factory):
    with Emulator(tmp_path_factory.mktemp("emulator")) as emulator:
        yield emulator


@pytest.fixture(scope="session")
def cloud(emulator):
    return Cloud.sign_in(emulator)


@pytest.fixture(scope="session")
def network(cloud):
    """The clients of the network provider."""
    return cloud.client(NetworkManagementClient)


@pytest.fixture
def group(cloud, request):
    name = re.sub(r"\W", "-", request.node.name)[:60] + "-" + uuid.uuid4().hex[:6]
    cloud.resources.resource_groups.create_or_update(name, {"location": LOCATION})
    yield Group(cloud, name)


@pytest.fixture
def machine(group):
    """A machine that takes four data disks."""
    return group.machine("vm")
