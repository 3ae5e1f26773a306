"""The processes of a run: etcd, an API server, the emulator over TLS, the Go managers and Lazuli.

All listen on loopback, on ports that the kernel gave. The Go manager signs in to the emulator as to Azure: a proxy leads
what is meant for login.microsoftonline.com, which the sign-in library asks about every authority, to the emulator. The
same proxy leads what is meant for the instance metadata service to the emulator's.
"""

import base64
import collections
import contextlib
import json
import os
import pathlib
import re
import signal
import socket
import ssl
import subprocess
import threading
import time
import urllib.error
import urllib.request

LOGIN = "login.microsoftonline.com"
METADATA = "http://169.254.169.254/"
TOKEN = "recorder"
SUBSCRIPTION = "00000000-0000-0000-0000-000000000001"
GROUP = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/lazuli"
NETWORK = f"{GROUP}/providers/Microsoft.Network"
API_VERSION = "2024-05-01"
NODES = ("node-0", "node-1")
TWO_MACHINES = {
    "availabilitySets": [{"name": "agents"}],
    "virtualMachines": [{"name": name, "size": "Standard_D8s_v3", "availabilitySet": "agents"} for name in NODES],
}


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def wait(what, seconds, ready):
    """The first true answer of ready, which is asked every 50 ms."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        answer = ready()
        if answer:
            return answer
        time.sleep(0.05)
    raise TimeoutError(f"{what}: not within {seconds} s")


class Proxy:
    """Leads CONNECT to the login host, and requests of the instance metadata of the machine that the proxy's user names,
    to the emulator; refuses all else."""

    def __init__(self, plain, secure):
        self.plain, self.secure = ("127.0.0.1", plain), ("127.0.0.1", secure)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.url = f"http://{self.address}"
        # How often each machine has asked for its metadata.
        self.asked = collections.Counter()
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.one, args=(client,), daemon=True).start()

    def one(self, client):
        head = b""
        while b"\r\n\r\n" not in head:
            part = client.recv(4096)
            if not part:
                return
            head += part
        if head.startswith(f"CONNECT {LOGIN}:443 ".encode()):
            server = socket.create_connection(self.secure)
            client.sendall(b"HTTP/1.1 200 Connected\r\n\r\n")
            threading.Thread(target=pump, args=(server, client), daemon=True).start()
            pump(client, server)
            return
        machine, request = metadata_request(head.decode())
        if request is None:
            client.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
        else:
            self.asked[machine] += 1
            with socket.create_connection(self.plain) as server:
                server.sendall(request)
                pump(server, client)
        client.close()


def metadata_request(head):
    """The machine that asks for instance metadata, and its request as the emulator takes it, whose path names the machine;
    None twice for another request."""
    line, *fields = head.removesuffix("\r\n\r\n").split("\r\n")
    method, url, version = line.split(" ")
    user = next((field for field in fields if field.lower().startswith("proxy-authorization: basic ")), None)
    if method != "GET" or not url.startswith(METADATA) or user is None:
        return None, None
    machine = base64.b64decode(user.rpartition(" ")[2]).decode().partition(":")[0]
    kept = [field for field in fields if not field.lower().startswith(("proxy-", "connection:"))]
    path = f"/_imds/{machine}/{url.removeprefix(METADATA)}"
    return machine, "\r\n".join([f"GET {path} {version}", *kept, "Connection: close", "", ""]).encode()


def pump(source, sink):
    with contextlib.suppress(OSError):
        while part := source.recv(65536):
            sink.sendall(part)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)


class Http:
    """JSON over HTTP to one server."""

    def __init__(self, url, token=None, trust=None):
        self.url, self.token = url, token
        self.context = ssl.create_default_context(cafile=trust) if trust else None

    def __call__(self, method, path, body=None, kind="application/json"):
        headers = {"Content-Type": kind}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        data = json.dumps(body).encode() if body is not None else (b"" if method != "GET" else None)
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, context=self.context, timeout=60) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            text = error.read().decode(errors="replace")
            raise RuntimeError(f"{method} {path}: {error.code} {text}") from error
        try:
            return json.loads(text) if text else None
        except json.JSONDecodeError:
            return text.decode(errors="replace")


class Rig:
    """Starts and ends the processes. Their logs are in its folder."""

    def __init__(self, folder, lazuli, tools, manager, node_manager=None):
        self.folder = pathlib.Path(folder)
        self.lazuli, self.tools, self.manager_binary = lazuli, pathlib.Path(tools), manager
        self.node_manager_binary = node_manager
        self.children = {}

    def run(self, name, command, **environment):
        with open(self.folder / f"{name}.log", "a", encoding="utf-8") as log:
            self.children[name] = subprocess.Popen(
                [str(part) for part in command], stdout=log, stderr=log, env=os.environ | environment
            )

    def end(self, name):
        child = self.children.pop(name, None)
        if child:
            child.send_signal(signal.SIGTERM)
            try:
                child.wait(10)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()

    def alive(self, name):
        if self.children[name].poll() is not None:
            log = (self.folder / f"{name}.log").read_text(errors="replace")
            raise RuntimeError(f"{name} ended:\n{log[-3000:]}")
        return True

    def __enter__(self):
        try:
            self.start_api_server()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for name in list(reversed(self.children)):
            self.end(name)

    def start_api_server(self):
        client, peer, secure = free_port(), free_port(), free_port()
        self.run("etcd", [
            self.tools / "etcd", "--data-dir", self.folder / "etcd", "--unsafe-no-fsync=true", "--log-level", "warn",
            "--listen-client-urls", f"http://127.0.0.1:{client}", "--advertise-client-urls", f"http://127.0.0.1:{client}",
            "--listen-peer-urls", f"http://127.0.0.1:{peer}", "--initial-advertise-peer-urls", f"http://127.0.0.1:{peer}",
            "--initial-cluster", f"default=http://127.0.0.1:{peer}",
        ])
        key, tokens = self.folder / "sa.key", self.folder / "tokens.csv"
        subprocess.run([self.tools / "kubernetes", "credentials", self.folder], check=True)
        tokens.write_text(f"{TOKEN},admin,admin,system:masters\n")
        self.run("apiserver", [
            self.tools / "kubernetes", "kube-apiserver", "--etcd-servers", f"http://127.0.0.1:{client}",
            "--bind-address", "127.0.0.1", "--advertise-address", "127.0.0.1", "--endpoint-reconciler-type", "none",
            "--secure-port", secure, "--cert-dir", self.folder / "cert",
            "--service-account-issuer", "https://kubernetes.default.svc", "--service-account-key-file", key,
            "--service-account-signing-key-file", key, "--service-cluster-ip-range", "10.0.0.0/16,fd01::/108",
            "--token-auth-file", tokens, "--authorization-mode", "RBAC",
            "--disable-admission-plugins", "ServiceAccount",
        ])
        trust = self.folder / "cert" / "apiserver.crt"
        wait("the API server's certificate", 120, lambda: self.alive("apiserver") and trust.exists() and trust.stat().st_size)
        self.kube = Http(f"https://127.0.0.1:{secure}", TOKEN, trust)
        self.kube.context.check_hostname = False

        def ready():
            self.alive("apiserver")
            with contextlib.suppress(RuntimeError, OSError):
                return self.kube("GET", "/readyz") == "ok" and self.kube("GET", "/api/v1/namespaces/kube-system")
            return False

        wait("the API server", 180, ready)
        self.kubeconfig = self.folder / "kubeconfig"
        authority = base64.b64encode(trust.read_bytes()).decode()
        self.kubeconfig.write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": self.kube.url, "certificate-authority-data": authority}}],
            "users": [{"name": "u", "user": {"token": TOKEN}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        }))

    def start_emulator(self, scenario=None):
        keys = self.folder / "tls"
        config = self.folder / "azure.json"
        self.end("emulator")
        log = self.folder / "emulator.log"
        log.write_text("")
        file = self.folder / "scenario.json"
        file.write_text(json.dumps({
            "virtualNetworks": [{"name": "vnet", "prefixes": ["10.0.0.0/8", "fd00::/48"], "subnets": [
                {"name": "nodes", "prefix": "10.240.0.0/16"},
                {"name": "apps", "prefix": "10.241.0.0/16"},
                {"name": "links", "prefix": "10.242.0.0/16"},
            ]}],
            "resourceGroups": [{"name": "lazuli"}, {"name": "other"}],
        } | (scenario or TWO_MACHINES)))
        self.run("emulator", [
            self.lazuli, "emulator", "--listen", "127.0.0.1:0", "--tls", "127.0.0.1:0", "--tls-dir", keys, "--name", LOGIN,
            "--scenario", file, "--retry-after", "0", "--no-throttling", "--accept-any-token", "--azure-json", config,
            "--output", "json",
            # The manager deletes a load balancer whose pool has NICs, and has done so on Azure for years.
            "--unverified", "interfaces-leave-deleted-pool=true",
        ])
        wait("the emulator", 60, lambda: self.alive("emulator") and log.read_text().strip().endswith("}"))
        found = re.findall(r"https?://127\.0\.0\.1:\d+", log.read_text())
        plain = next(url for url in found if url.startswith("http:"))
        self.secure = next(url for url in found if url.startswith("https:"))
        self.azure = Http(plain, TOKEN)
        self.proxy = Proxy(*(int(url.rsplit(":", 1)[1]) for url in (plain, self.secure)))
        self.trust = keys / "ca.pem"
        self.azure_json = json.loads(config.read_text())

    def arm(self, method, path, body=None):
        separator = "&" if "?" in path else "?"
        return self.azure(method, f"{path}{separator}api-version={API_VERSION}", body)

    def config(self, name, **keys):
        """Writes a cloud configuration of the emulator with these keys."""
        file = self.folder / name
        file.write_text(json.dumps(self.azure_json | {"vnetName": "vnet"} | keys))
        return file

    def start_manager(self, settings, *flags, controllers="service"):
        """The Go cloud controller manager; of its controllers these."""
        config = self.config(
            "manager.json", resourceManagerEndpoint=self.secure, useInstanceMetadata=False, cloudConfigType="file",
            disableAPICallCache=True, **settings
        )
        self.run("manager", [
            self.manager_binary, "--cloud-provider=azure", f"--cloud-config={config}", f"--kubeconfig={self.kubeconfig}",
            f"--controllers={controllers}", "--leader-elect=false", "--cluster-name=kubernetes",
            "--allocate-node-cidrs=false", "--bind-address=127.0.0.1", f"--secure-port={free_port()}",
            f"--cert-dir={self.folder / 'manager-cert'}", "--v=3", *(flags or ["--configure-cloud-routes=false"]),
        ], SSL_CERT_FILE=str(self.trust), HTTPS_PROXY=self.proxy.url, NO_PROXY="127.0.0.1")

    def start_disk_driver(self, binary, socket, *flags):
        """The controller of the Go disk driver."""
        config = self.config("driver.json", resourceManagerEndpoint=self.secure, useInstanceMetadata=False, vmType="standard")
        self.run("driver", [
            binary, f"--endpoint=unix://{socket}", f"--kubeconfig={self.kubeconfig}", "--cloud-config-secret-name=",
            "--vm-type=standard", "--v=3", *flags,
        ], AZURE_CREDENTIAL_FILE=str(config), SSL_CERT_FILE=str(self.trust), HTTPS_PROXY=self.proxy.url, NO_PROXY="127.0.0.1")

    def start_node_manager(self, node):
        """The Go cloud-node-manager of a node, which asks the instance metadata of its machine."""
        self.proxy.asked[node] = 0
        self.run(f"node-manager-{node}", [
            self.node_manager_binary, f"--kubeconfig={self.kubeconfig}", f"--node-name={node}", "--wait-routes",
            "--node-status-update-frequency=1s", "--enable-deprecated-beta-topology-labels", "--v=3",
        ], NODE_NAME=node, HTTP_PROXY=f"http://{node}:-@{self.proxy.address}", NO_PROXY="127.0.0.1")

    def start_lazuli(self, settings, ranges, *flags):
        """Lazuli's cloud controllers, all of them."""
        config = self.config("lazuli.json", **settings)
        self.run("lazuli", [
            self.lazuli, "cloud-controllers", "--cloud-config", config, "--kubeconfig", self.kubeconfig,
            "--cluster-cidr", ranges, "--log", "debug,h2=info,hyper=info,hyper_util=info,tower=info,kube_client=info", *flags,
        ])

    def holder(self, lease):
        """The identity that holds a Lease; None where it is not held."""
        with contextlib.suppress(RuntimeError):
            return self.kube("GET", lease)["spec"].get("holderIdentity")
        return None
