"""`lazuli cloud-controllers` as a process in front of a cluster and a cloud, and the Services that a person writes.

Owns the process and its configuration files. Written from the README and `--help`.
"""

import itertools
import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from cloud import Cloud
from cluster import Cluster
from driver import cloud_config, process_environment

PREFIX = "service.beta.kubernetes.io/azure-"
INTERNAL = {"load-balancer-internal": "true"}


class Controllers:
    """The process. `with` ends it; `kill` and `start` are what tests do to it."""

    def __init__(self, cloud: Cloud, cluster: Cluster, folder: Path, *options: str, **config):
        self.cloud, self.cluster, self.folder, self.options = cloud, cluster, folder, options
        folder.mkdir(parents=True, exist_ok=True)
        self.config = folder / "azure.json"
        keys = {
            "loadBalancerSku": "standard",
            "loadBalancerBackendPoolConfigurationType": "nodeIP",
            "vnetName": "Their-Network",
            "subnetName": "nodes",
            "securityGroupName": "Their-Group",
            "routeTableName": "Their-Routes",
            **config,
        }
        self.config.write_text(json.dumps(cloud_config(cloud, **keys)))
        self.kubeconfig = folder / "kubeconfig"
        self.kubeconfig.write_text(json.dumps(cluster.kubeconfig()))
        self.environment = process_environment(cloud, folder)
        self.log = (folder / "controllers.log").open("ab")
        self.process = None

    def __enter__(self) -> "Controllers":
        self.start()
        return self

    def __exit__(self, *_) -> None:
        self.stop()
        self.log.close()

    def start(self) -> None:
        command = [
            os.environ["LAZULI_BIN"],
            "cloud-controllers",
            "--cloud-config",
            str(self.config),
            "--kubeconfig",
            str(self.kubeconfig),
            "--drain-seconds",
            "5",
            "--log",
            "debug,h2=info,hyper=info,hyper_util=info,tower=info,kube_client=info",
            *self.options,
        ]
        self.process = subprocess.Popen(
            command, env=self.environment, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log
        )

    def stop(self) -> None:
        """SIGTERM, as Kubernetes does it."""
        self.process.terminate()
        try:
            self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def kill(self) -> None:
        """kill -9; the Lease is as old as if its time were over."""
        self.process.kill()
        self.process.wait()
        for lease in self.cluster.all("leases"):
            lease["spec"]["holderIdentity"] = ""
            self.cluster.put("leases", lease)

    def log_text(self) -> str:
        return (self.folder / "controllers.log").read_text(errors="replace")

    def wait(self, what: str, condition: Callable[[], object], seconds: float = 60):
        """The first true answer of a condition."""
        deadline = time.monotonic() + seconds
        while True:
            if found := condition():
                return found
            if self.process.poll() is not None:
                raise RuntimeError(f"the controllers ended:\n{self.log_text()[-2000:]}")
            assert time.monotonic() < deadline, f"it never came to this: {what}"
            time.sleep(0.05)


class Kubectl:
    """What a person does to Services and Nodes, and what can be read of them."""

    def __init__(self, cluster: Cluster):
        self.cluster = cluster
        self.node_ports = itertools.count(30_000)

    def node(self, name: str, number: int, provider_id: str, **spec) -> None:
        addresses = [
            {"type": "InternalIP", "address": f"10.240.0.{number}"},
            {"type": "InternalIP", "address": f"fd00:0:0:1::{number}"},
            {"type": "Hostname", "address": name},
        ]
        self.cluster.put(
            "nodes",
            {
                "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
                "spec": {"providerID": provider_id, **spec},
                "status": {"addresses": addresses, "conditions": [{"type": "Ready", "status": "True"}]},
            },
        )

    def service(self, name: str, annotations: dict | None = None, ports=(80,), **spec) -> dict:
        """Creates a Service of type LoadBalancer, or gives it another spec."""
        old = self.cluster.get("services", name)
        body = {"metadata": {"name": name, "namespace": "default"}, "status": {"loadBalancer": {}}}
        if old:
            body = {"metadata": old["metadata"], "status": old["status"]}
        body["metadata"]["annotations"] = {PREFIX + key: value for key, value in (annotations or {}).items()}
        listed = []
        for port in ports:
            number, protocol = port if isinstance(port, tuple) else (port, "TCP")
            known = ((old or {}).get("spec") or {}).get("ports") or []
            node_port = next(
                (each["nodePort"] for each in known if (each["port"], each["protocol"]) == (number, protocol)), None
            )
            listed.append(
                {
                    "name": f"{protocol.lower()}-{number}",
                    "protocol": protocol,
                    "port": number,
                    "targetPort": number,
                    "nodePort": node_port or next(self.node_ports),
                }
            )
        body["spec"] = {
            "type": "LoadBalancer",
            "ports": listed,
            "selector": {"app": name},
            "sessionAffinity": "None",
            "externalTrafficPolicy": "Cluster",
            "internalTrafficPolicy": "Cluster",
            "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack",
            "clusterIP": "10.0.0.1",
            "clusterIPs": ["10.0.0.1"],
            "allocateLoadBalancerNodePorts": True,
            **spec,
        }
        return self.cluster.put("services", body)

    def delete(self, name: str) -> None:
        self.cluster.delete("services", name)

    def addresses(self, name: str) -> list[str]:
        """What the status of a Service says."""
        service = self.cluster.get("services", name) or {}
        balancer = (service.get("status") or {}).get("loadBalancer") or {}
        return [each["ip"] for each in balancer.get("ingress") or []]

    def exists(self, name: str) -> bool:
        return self.cluster.get("services", name) is not None

    def events(self, name: str) -> list[str]:
        """The reasons of a Service's events."""
        return [each["reason"] for each in self.cluster.all("events") if each["regarding"]["name"] == name]

    def notes(self, name: str) -> list[str]:
        """The texts of a Service's events."""
        return [each.get("note", "") for each in self.cluster.all("events") if each["regarding"]["name"] == name]
