"""The processes of a recording: etcd, an API server, the emulator over TLS and the Go cloud controller manager.

All listen on loopback, on ports that the kernel gave. The manager signs in to the emulator as to Azure: a proxy leads
what is meant for login.microsoftonline.com, which the sign-in library asks about every authority, to the emulator.
"""

import base64
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
TOKEN = "recorder"
SUBSCRIPTION = "00000000-0000-0000-0000-000000000001"
GROUP = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/lazuli"
NETWORK = f"{GROUP}/providers/Microsoft.Network"
API_VERSION = "2024-05-01"
NODES = ("node-0", "node-1")


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
    """Leads CONNECT to the login host to another address; refuses all else."""

    def __init__(self, port):
        self.target = ("127.0.0.1", port)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
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
        if not head.startswith(f"CONNECT {LOGIN}:443 ".encode()):
            client.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
            client.close()
            return
        server = socket.create_connection(self.target)
        client.sendall(b"HTTP/1.1 200 Connected\r\n\r\n")
        back = threading.Thread(target=pump, args=(server, client), daemon=True)
        back.start()
        pump(client, server)


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

    def __init__(self, folder, lazuli, tools, manager):
        self.folder = pathlib.Path(folder)
        self.lazuli, self.tools, self.manager_binary = lazuli, pathlib.Path(tools), manager
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

    def start_emulator(self):
        keys = self.folder / "tls"
        config = self.folder / "azure.json"
        self.end("emulator")
        log = self.folder / "emulator.log"
        log.write_text("")
        scenario = self.folder / "scenario.json"
        scenario.write_text(json.dumps({
            "virtualNetworks": [{"name": "vnet", "prefixes": ["10.0.0.0/8", "fd00::/48"], "subnets": [
                {"name": "nodes", "prefix": "10.240.0.0/16"},
                {"name": "apps", "prefix": "10.241.0.0/16"},
                {"name": "links", "prefix": "10.242.0.0/16"},
            ]}],
            "availabilitySets": [{"name": "agents"}],
            "virtualMachines": [
                {"name": name, "size": "Standard_D8s_v3", "availabilitySet": "agents"} for name in NODES
            ],
            "resourceGroups": [{"name": "lazuli"}, {"name": "other"}],
        }))
        self.run("emulator", [
            self.lazuli, "emulator", "--listen", "127.0.0.1:0", "--tls", "127.0.0.1:0", "--tls-dir", keys, "--name", LOGIN,
            "--scenario", scenario, "--retry-after", "0", "--no-throttling", "--accept-any-token", "--azure-json", config,
            "--output", "json",
            # The manager deletes a load balancer whose pool has NICs, and has done so on Azure for years.
            "--unverified", "interfaces-leave-deleted-pool=true",
        ])
        wait("the emulator", 60, lambda: self.alive("emulator") and log.read_text().strip().endswith("}"))
        found = re.findall(r"https?://127\.0\.0\.1:\d+", log.read_text())
        plain = next(url for url in found if url.startswith("http:"))
        self.secure = next(url for url in found if url.startswith("https:"))
        self.azure = Http(plain, TOKEN)
        self.proxy = Proxy(int(self.secure.rsplit(":", 1)[1]))
        self.trust = keys / "ca.pem"
        self.azure_json = json.loads(config.read_text())

    def arm(self, method, path, body=None):
        separator = "&" if "?" in path else "?"
        return self.azure(method, f"{path}{separator}api-version={API_VERSION}", body)

    def start_manager(self, settings):
        config = self.folder / "manager.json"
        config.write_text(json.dumps(self.azure_json | {
            "resourceManagerEndpoint": self.secure, "useInstanceMetadata": False, "cloudConfigType": "file",
            "vnetName": "vnet", "disableAPICallCache": True,
        } | settings))
        self.run("manager", [
            self.manager_binary, "--cloud-provider=azure", f"--cloud-config={config}", f"--kubeconfig={self.kubeconfig}",
            "--controllers=service", "--leader-elect=false", "--cluster-name=kubernetes", "--allocate-node-cidrs=false",
            "--configure-cloud-routes=false", "--bind-address=127.0.0.1", f"--secure-port={free_port()}",
            f"--cert-dir={self.folder / 'manager-cert'}", "--v=3",
        ], SSL_CERT_FILE=str(self.trust), HTTPS_PROXY=self.proxy.url, NO_PROXY="127.0.0.1")
