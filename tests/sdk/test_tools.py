"""What other people's tools ask before they write, and the templates that the Azure CLI sends."""

import pytest
import requests
from azure.core.exceptions import HttpResponseError
from azure.mgmt.authorization import AuthorizationManagementClient
from azure.mgmt.resource.deployments import DeploymentsMgmtClient

from cloud import LOCATION, refusal

CLIENT = "00000000-0000-0000-0000-000000000003"


@pytest.fixture
def roles(cloud):
    """Gives the signed-in client roles; it may do everything again at the end."""

    def set_roles(*roles):
        body = {"principal": CLIENT, "roles": list(roles) or None}
        answer = requests.post(f"{cloud.url}/_emulator/roles", json=body, verify=cloud.ca, timeout=30)
        assert answer.status_code == 204, answer.text

    yield set_roles
    set_roles()


def test_permissions_are_listed_for_a_group_and_for_a_resource(cloud, group, roles):
    permissions = cloud.client(AuthorizationManagementClient).permissions
    assert [(one.actions, one.not_actions) for one in permissions.list_for_resource_group(group.name)] == [(["*"], [])]
    group.disk("d")
    scope = f"/subscriptions/{cloud.subscription}/resourceGroups/{group.name}"
    roles({"actions": ["*/read"]}, {"scope": f"{scope}/providers/Microsoft.Compute/disks/d", "actions": ["Microsoft.Compute/disks/*"]})
    assert [one.actions for one in permissions.list_for_resource_group(group.name)] == [["*/read"]]
    of_disk = permissions.list_for_resource(group.name, "Microsoft.Compute", "", "disks", "d")
    assert [one.actions for one in of_disk] == [["*/read"], ["Microsoft.Compute/disks/*"]]


def test_what_no_role_allows_is_refused_with_azures_error(cloud, group, roles):
    group.disk("d")
    roles({"actions": ["*/read"]})
    assert cloud.compute.disks.get(group.name, "d").name == "d"
    error = refusal(lambda: cloud.compute.disks.begin_delete(group.name, "d"))
    assert (error.status_code, error.error.code) == (403, "AuthorizationFailed")
    assert "'Microsoft.Compute/disks/delete' over scope '/subscriptions/" in error.error.message


def test_the_newest_image_is_found_as_tools_look_for_it(cloud):
    images = cloud.compute.virtual_machine_images
    publishers = {image.name for image in images.list_publishers(LOCATION)}
    assert {"Canonical", "Debian", "MicrosoftWindowsServer"} <= publishers
    [newest] = images.list(LOCATION, "Canonical", "ubuntu-24_04-lts", "server", top=1, orderby="name desc")
    shown = images.get(LOCATION, "Canonical", "ubuntu-24_04-lts", "server", newest.name)
    assert shown.os_disk_image.operating_system == "Linux"
    with pytest.raises(HttpResponseError):
        images.list_offers(LOCATION, "Nobody")


def template(sku: str) -> dict:
    """What `az network lb create` sends."""
    return {
        "$schema": "https://schema.management.azure.com/schemas/2015-01-01/deploymentTemplate.json#",
        "contentVersion": "1.0.0.0",
        "parameters": {"name": {"type": "string"}},
        "resources": [
            {
                "type": "Microsoft.Network/loadBalancers", "apiVersion": "2023-04-01", "name": "[parameters('name')]",
                "location": LOCATION, "sku": {"name": "Standard"},
                "dependsOn": ["Microsoft.Network/publicIpAddresses/address"],
                "properties": {
                    "backendAddressPools": [{"name": "pool"}],
                    "frontendIPConfigurations": [{"name": "frontend", "properties": {
                        "publicIPAddress": {"id": "[resourceId('Microsoft.Network/publicIPAddresses', 'address')]"},
                    }}],
                },
            },
            {
                "type": "Microsoft.Network/publicIPAddresses", "apiVersion": "2022-05-01", "name": "address",
                "location": "[resourceGroup().location]", "sku": {"name": sku},
                "properties": {"publicIPAllocationMethod": "Static"},
            },
        ],
        "outputs": {"balancer": {"type": "object", "value": "[reference(parameters('name'))]"}},
    }


def test_a_template_is_deployed_and_its_outputs_are_told(cloud, group, network):
    deployments = cloud.client(DeploymentsMgmtClient).deployments
    body = {"properties": {"mode": "Incremental", "template": template("Standard"), "parameters": {"name": {"value": "lb"}}}}
    done = deployments.begin_create_or_update(group.name, "first", body).result()
    assert done.properties.provisioning_state == "Succeeded"
    assert done.properties.outputs["balancer"]["value"]["backendAddressPools"][0]["name"] == "pool"
    assert network.load_balancers.get(group.name, "lb").frontend_ip_configurations[0].name == "frontend"
    assert [one.name for one in deployments.list_by_resource_group(group.name)] == ["first"]
    deployments.begin_delete(group.name, "first").result()
    assert not deployments.check_existence(group.name, "first")
    assert network.load_balancers.get(group.name, "lb").name == "lb"


def test_a_refused_resource_fails_its_deployment(cloud, group):
    deployments = cloud.client(DeploymentsMgmtClient).deployments
    body = {"properties": {"mode": "Incremental", "template": template("Golden"), "parameters": {"name": {"value": "lb"}}}}
    error = refusal(lambda: deployments.begin_create_or_update(group.name, "first", body).result())
    assert error.error.code == "DeploymentFailed"
    assert "Golden" in error.error.details[0].message
