"""A small cluster of Kubernetes as Azure sees it: what the page is for. The tests look at it, and so does the picture of the
README."""

import json
import time

from cloud import COMPUTE, GROUP, STORAGE, Emulator

NETWORK = f"{GROUP}/providers/Microsoft.Network"
NETWORK_VERSION = "2025-05-01"
STORAGE_VERSION = "2025-01-01"
LAZULI = "lazuli/0.1.0"
SUBNET = f"{NETWORK}/virtualNetworks/lazuli-vnet/subnets/nodes"
WEB = "a3f1c0d2e4b5460c8d7e6f5a4b3c2d1e"
SCENARIO = {
    "virtualMachines": [{"name": "node-{}", "count": 3, "size": "Standard_D4s_v3", "zones": ["1", "2", "3"]}],
    "securityGroups": [{"name": "nodes-nsg"}],
}


def reference(path: str) -> dict:
    return {"id": path}


def claim(name: str, namespace: str = "default") -> dict:
    """The tags that a driver writes on a disk."""
    return {
        "k8s-azure-created-by": "kubernetes-azure-dd",
        "kubernetes.io-created-for-pv-name": f"pvc-{name}",
        "kubernetes.io-created-for-pvc-name": name,
        "kubernetes.io-created-for-pvc-namespace": namespace,
    }


class Scene:
    """Makes what a cluster has in Azure, each request with the name of who sends it."""

    def __init__(self, emulator: Emulator):
        self.emulator = emulator

    def put(self, path: str, body: dict, version: str = NETWORK_VERSION, agent: str = LAZULI):
        status, answer, headers = self.emulator.arm("PUT", path, body, version, agent)
        assert status in (200, 201, 202), answer
        self.finish(headers)

    def finish(self, headers):
        """Waits for the operation of an answer, as clients do."""
        url = headers.get("azure-asyncoperation") or ""
        while url:
            status, answer, _ = self.emulator.send(
                "GET", url[len(self.emulator.url):], headers={"Authorization": f"Bearer {self.emulator.token}", "User-Agent": LAZULI}
            )
            assert status == 200, answer
            if json.loads(answer)["status"] != "InProgress":
                assert json.loads(answer)["status"] == "Succeeded", answer
                return
            time.sleep(0.3)

    def disks(self):
        for name, namespace, zone in [("data-db-0", "shop", "1"), ("data-db-1", "shop", "2"), ("uploads", "default", "1"), ("cache", "default", "3")]:
            body = {
                "location": "westeurope", "sku": {"name": "Premium_LRS"}, "zones": [zone], "tags": claim(name, namespace),
                "properties": {"creationData": {"createOption": "Empty"}, "diskSizeGB": 32},
            }
            self.put(f"{COMPUTE}/disks/pvc-{name}", body, "2025-01-02")
        for node, disks in [("node-0", ["data-db-0", "uploads"]), ("node-1", ["data-db-1"])]:
            self.finish(self.emulator.attach(node, *[(f"pvc-{disk}", lun) for lun, disk in enumerate(disks)], agent=LAZULI))

    def addresses(self, node: str) -> str:
        status, answer, _ = self.emulator.arm("GET", f"{NETWORK}/networkInterfaces/{node}-nic", None, NETWORK_VERSION, LAZULI)
        assert status == 200, answer
        return json.loads(answer)["properties"]["ipConfigurations"][0]["properties"]["privateIPAddress"]

    def balancers(self):
        """A public load balancer of a Service and an internal one."""
        nodes = [self.addresses(f"node-{n}") for n in range(3)]
        address = f"{NETWORK}/publicIPAddresses/kubernetes-{WEB[:12]}"
        tags = {"k8s-azure-service": "shop/web", "k8s-azure-cluster-name": "kubernetes"}
        static = {"publicIPAllocationMethod": "Static"}
        self.put(address, {"location": "westeurope", "sku": {"name": "Standard"}, "tags": tags, "properties": static})
        self.balancer("kubernetes", {"publicIPAddress": reference(address)}, nodes, WEB, [(80, 30080), (443, 30443)])
        self.balancer("kubernetes-internal", {"subnet": reference(SUBNET)}, nodes[:2], "internal", [(5432, 5432)])

    def balancer(self, name: str, frontend: dict, nodes: list[str], base: str, ports: list[tuple[int, int]]):
        own = f"{NETWORK}/loadBalancers/{name}"
        network = reference(SUBNET.rsplit("/subnets/", 1)[0])
        members = [{"name": f"node-{n}", "properties": {"ipAddress": ip, "virtualNetwork": network}} for n, ip in enumerate(nodes)]
        rules = [
            {"name": f"{base}-TCP-{port}", "properties": {
                "frontendIPConfiguration": reference(f"{own}/frontendIPConfigurations/{base}"),
                "backendAddressPool": reference(f"{own}/backendAddressPools/kubernetes"),
                "probe": reference(f"{own}/probes/{base}-TCP-{port}"),
                "protocol": "Tcp", "frontendPort": port, "backendPort": backend, "enableFloatingIP": port == backend,
                "loadDistribution": "SourceIP" if port == 443 else "Default",
            }}
            for port, backend in ports
        ]
        probes = [
            {"name": f"{base}-TCP-{port}", "properties": {"protocol": "Http", "port": 31845, "requestPath": "/healthz", "intervalInSeconds": 5}}
            for port, _ in ports
        ]
        body = {"location": "westeurope", "sku": {"name": "Standard"}, "properties": {
            "frontendIPConfigurations": [{"name": base, "properties": frontend}],
            "backendAddressPools": [{"name": "kubernetes", "properties": {"loadBalancerBackendAddresses": members}}],
            "loadBalancingRules": rules, "probes": probes,
        }}
        self.put(own, body)

    def rules(self):
        """The security rules of a Service, and the routes of the nodes."""
        def rule(name: str, priority: int, access: str, sources: list[str], destinations: list[str], ports: list[str]) -> dict:
            return {"name": name, "properties": {
                "priority": priority, "direction": "Inbound", "access": access, "protocol": "Tcp" if ports else "*",
                "sourcePortRange": "*", "sourceAddressPrefixes": sources, "destinationAddressPrefixes": destinations,
                **({"destinationPortRanges": ports} if ports else {"destinationPortRange": "*"}),
            }}
        status, answer, _ = self.emulator.arm("GET", f"{NETWORK}/publicIPAddresses/kubernetes-{WEB[:12]}", None, NETWORK_VERSION, LAZULI)
        assert status == 200, answer
        ip = json.loads(answer)["properties"]["ipAddress"]
        body = {"location": "westeurope", "properties": {"securityRules": [
            rule("k8s-azure-lb_allow_IPv4_d39272f7f57ed937951650d93992ad77", 500, "Allow", ["203.0.113.0/24", "198.51.100.7"], [ip], ["80", "443"]),
            rule("k8s-azure-lb_deny-all_IPv4", 4095, "Deny", ["0.0.0.0/0"], [ip], []),
        ]}}
        self.put(f"{NETWORK}/networkSecurityGroups/nodes-nsg", body)
        routes = [
            {"name": f"node-{n}", "properties": {
                "addressPrefix": f"10.244.{n}.0/24", "nextHopType": "VirtualAppliance", "nextHopIpAddress": self.addresses(f"node-{n}"),
            }}
            for n in range(3)
        ]
        self.put(f"{NETWORK}/routeTables/nodes-routes", {"location": "westeurope", "properties": {"routes": routes}})

    def shares(self):
        account = f"{STORAGE}/storageAccounts/f3a1b2c3d4e5"
        body = {"location": "westeurope", "kind": "StorageV2", "sku": {"name": "Standard_LRS"}, "properties": {}}
        status, answer, _ = self.emulator.arm("PUT", account, body, STORAGE_VERSION, LAZULI)
        assert status in (200, 202), answer
        while '"provisioningState":"Succeeded"' not in self.emulator.arm("GET", account, None, STORAGE_VERSION, LAZULI)[1]:
            time.sleep(0.3)
        metadata = {"createdBy": "file.csi.azure.com"}
        for name in ["pvc-media", "pvc-reports"]:
            share = {"properties": {"shareQuota": 100, "metadata": metadata}}
            self.put(f"{account}/fileServices/default/shares/{name}", share, STORAGE_VERSION)

    def whole(self):
        self.disks()
        self.balancers()
        self.rules()
        self.shares()
